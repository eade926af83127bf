//! Sums and stores of products: from the type that is multiplied in to the storage of a dtype.
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const shapes = @import("gemm_shapes.zig");

/// a + b; wraps for integers. Scalars or vectors.
pub inline fn plus(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const info = @typeInfo(@TypeOf(a));
    const E = if (info == .vector) info.vector.child else @TypeOf(a);
    return if (@typeInfo(E) == .float) a + b else a +% b;
}

/// One element, rounded once; integers keep their low bits.
pub inline fn narrow(comptime d: DType, x: shapes.Kind.of(d).Type()) Storage(d) {
    return switch (d) {
        .bf16 => dtype.Bf16.fromF32(x),
        .f16 => @floatCast(x),
        .u8, .u16 => @truncate(x),
        else => x,
    };
}

/// Stores `count` elements, rounded to the storage of `d`.
pub fn storeRow(
    comptime d: DType,
    to: [*]Storage(d),
    from: [*]const shapes.Kind.of(d).Type(),
    count: u64,
) void {
    const lanes = comptime shapes.shapeOf(shapes.here, .of(d)).lanes;
    var i: u64 = 0;
    switch (d) {
        .f16 => while (i + lanes <= count) : (i += lanes) {
            const v: @Vector(lanes, f32) = from[i..][0..lanes].*;
            const half: @Vector(lanes, f16) = @floatCast(v);
            to[i..][0..lanes].* = half;
        },
        .bf16 => while (i + lanes <= count) : (i += lanes) {
            const U = @Vector(lanes, u32);
            const v: @Vector(lanes, f32) = from[i..][0..lanes].*;
            const bits: U = @bitCast(v);
            const high = bits >> @splat(16);
            const odd = high & @as(U, @splat(1));
            const rounded = (bits +% @as(U, @splat(0x7fff)) +% odd) >> @splat(16);
            const quiet = high | @as(U, @splat(0x40));
            const half: @Vector(lanes, u16) = @truncate(@select(u32, v != v, quiet, rounded));
            @as(*align(2) @Vector(lanes, u16), @ptrCast(to + i)).* = half;
        },
        else => {},
    }
    while (i < count) : (i += 1) to[i] = narrow(d, from[i]);
}

test "rows of half types round as single elements do" {
    const std = @import("std");
    var from: [37]f32 = undefined;
    for (&from, 0..) |*x, i| {
        const bits: u32 = @truncate((i + 1) *% 2654435761);
        x.* = @bitCast(bits);
    }
    from[5] = std.math.nan(f32);
    from[6] = std.math.inf(f32);
    from[7] = 1.01171875; // a tie
    inline for (.{ DType.bf16, DType.f16, DType.f32 }) |d| {
        var to: [37]Storage(d) = undefined;
        storeRow(d, &to, &from, 37);
        const Bits = @Int(.unsigned, 8 * @sizeOf(Storage(d)));
        for (to, from) |got, x| {
            const want: Bits = @bitCast(narrow(d, x));
            // The payload of a NaN may differ.
            if (x == x) try std.testing.expectEqual(want, @as(Bits, @bitCast(got)));
            if (x != x and d == .bf16) try std.testing.expect(std.math.isNan(got.toF32()));
        }
    }
}
