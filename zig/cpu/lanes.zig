//! Vectors of elements as arithmetic sees them: loads that widen half types, stores that round
//! once, and the four associative operations of reductions and scans with their NaN rules.
//! Vectors are 64 bytes of the computing type on every instruction set, so that the shape of a
//! summation tree, and with it the last bit of a sum, is the same on all of them.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const Bf16 = dtype.Bf16;
const Storage = dtype.Storage;
const Compute = dtype.Compute;

/// Lanes of a vector of `T`.
pub fn width(comptime T: type) comptime_int {
    return 64 / @sizeOf(T);
}

/// Lanes of a vector of what `d` computes in.
pub fn lanes(comptime d: DType) comptime_int {
    return width(Compute(d));
}

pub fn Vector(comptime d: DType) type {
    return @Vector(lanes(d), Compute(d));
}

pub inline fn widen(comptime d: DType, x: Storage(d)) Compute(d) {
    return switch (d) {
        .bf16 => x.toF32(),
        .f16 => @floatCast(x),
        else => x,
    };
}

pub inline fn narrow(comptime d: DType, x: Compute(d)) Storage(d) {
    return switch (d) {
        .bf16 => Bf16.fromF32(x),
        .f16 => @floatCast(x),
        else => x,
    };
}

/// Loads one vector; no alignment beyond the element's is assumed.
pub inline fn load(comptime d: DType, p: [*]const Storage(d)) Vector(d) {
    const n = lanes(d);
    switch (d) {
        .bf16 => {
            const bits = @as(*align(2) const @Vector(n, u16), @ptrCast(p)).*;
            const wide: @Vector(n, u32) = bits;
            return @bitCast(wide << @splat(16));
        },
        .f16 => {
            const half: @Vector(n, f16) = p[0..n].*;
            return @floatCast(half);
        },
        else => return p[0..n].*,
    }
}

/// Stores one vector, rounding half types to nearest even.
pub inline fn store(comptime d: DType, p: [*]Storage(d), v: Vector(d)) void {
    const n = lanes(d);
    switch (d) {
        .bf16 => {
            const u: @Vector(n, u32) = @bitCast(v);
            const odd = (u >> @splat(16)) & @as(@Vector(n, u32), @splat(1));
            const rounded = (u +% @as(@Vector(n, u32), @splat(0x7fff)) +% odd) >> @splat(16);
            const quiet = (u >> @splat(16)) | @as(@Vector(n, u32), @splat(0x40));
            const bits: @Vector(n, u16) = @truncate(@select(u32, v != v, quiet, rounded));
            @as(*align(2) @Vector(n, u16), @ptrCast(p)).* = bits;
        },
        .f16 => {
            const half: @Vector(n, f16) = @floatCast(v);
            p[0..n].* = half;
        },
        else => p[0..n].* = v,
    }
}

/// An associative operation. Sums and products of integers wrap.
pub const Op = enum(u32) { sum = 0, prod = 1, max = 2, min = 3 };

/// Whether `op` picks one of its operands (and so needs the sign of integers).
pub fn isOrder(op: Op) bool {
    return op == .max or op == .min;
}

/// The dtype whose instance of a kernel for `op` serves `d`: wrapping arithmetic on integers does
/// not depend on their sign, and bool is kept in a byte.
pub fn canonical(op: Op, d: DType) DType {
    if (isOrder(op)) return if (d == .bool) .u8 else d;
    return switch (d) {
        .bool, .i8 => .u8,
        .i16 => .u16,
        .i32 => .u32,
        .i64 => .u64,
        else => d,
    };
}

/// What `op` over no elements gives: 0, 1, or the lowest and highest value.
pub inline fn identity(comptime op: Op, comptime T: type) T {
    const is_float = @typeInfo(T) == .float;
    return switch (op) {
        .sum => 0,
        .prod => 1,
        .max => if (is_float) -std.math.inf(T) else std.math.minInt(T),
        .min => if (is_float) std.math.inf(T) else std.math.maxInt(T),
    };
}

/// `op` of two scalars or two vectors. `max` and `min` give NaN if either is NaN.
pub inline fn combine(comptime op: Op, a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const T = @TypeOf(a);
    const info = @typeInfo(T);
    const E = if (info == .vector) info.vector.child else T;
    const is_float = @typeInfo(E) == .float;
    switch (op) {
        .sum => return if (is_float) a + b else a +% b,
        .prod => return if (is_float) a * b else a *% b,
        .max, .min => {
            if (!is_float) return if (op == .max) @max(a, b) else @min(a, b);
            // The comparison is false for a NaN in either, which keeps `a`; then `b` is looked at.
            const takes_b = if (op == .max) a < b else a > b;
            if (info == .vector) {
                return @select(E, b != b, b, @select(E, takes_b, b, a));
            }
            return if (b != b or takes_b) b else a;
        },
    }
}

/// `op` over the lanes of a vector, as a balanced tree of halves.
pub inline fn fold(comptime op: Op, v: anytype) @typeInfo(@TypeOf(v)).vector.child {
    const info = @typeInfo(@TypeOf(v)).vector;
    if (info.len == 1) return v[0];
    const half = info.len / 2;
    const low = @shuffle(info.child, v, undefined, std.simd.iota(i32, half));
    const high = @shuffle(
        info.child,
        v,
        undefined,
        std.simd.iota(i32, half) + @as(@Vector(half, i32), @splat(half)),
    );
    return fold(op, combine(op, low, high));
}

/// Placed in a loop over the few elements that do not fill a vector: the compiler would otherwise
/// unroll and vectorise it as well, which doubles the size of a kernel for nothing.
pub inline fn keepScalar() void {
    asm volatile ("");
}

/// How many elements `foldBlock` takes at most.
pub fn blockLength(comptime d: DType) comptime_int {
    return 64 * lanes(d);
}

/// `op` over `n` dense elements, `n <= blockLength(d)`: four vectors of accumulators, at most 16
/// additions deep, then a tree.
pub inline fn foldBlock(
    comptime op: Op,
    comptime d: DType,
    p: [*]const Storage(d),
    n: u64,
) Compute(d) {
    const W = lanes(d);
    const C = Compute(d);
    var i: u64 = 0;
    var total = identity(op, C);
    if (n >= 4 * W) {
        var a0 = load(d, p);
        var a1 = load(d, p + W);
        var a2 = load(d, p + 2 * W);
        var a3 = load(d, p + 3 * W);
        i = 4 * W;
        while (i + 4 * W <= n) : (i += 4 * W) {
            a0 = combine(op, a0, load(d, p + i));
            a1 = combine(op, a1, load(d, p + i + W));
            a2 = combine(op, a2, load(d, p + i + 2 * W));
            a3 = combine(op, a3, load(d, p + i + 3 * W));
        }
        while (i + W <= n) : (i += W) a0 = combine(op, a0, load(d, p + i));
        total = fold(op, combine(op, combine(op, a0, a1), combine(op, a2, a3)));
    } else if (n >= W) {
        var a0 = load(d, p);
        i = W;
        while (i + W <= n) : (i += W) a0 = combine(op, a0, load(d, p + i));
        total = fold(op, a0);
    }
    while (i < n) : (i += 1) {
        keepScalar();
        total = combine(op, total, widen(d, p[i]));
    }
    return total;
}

test "combine propagates NaN from either side" {
    const nan = std.math.nan(f32);
    inline for (.{ Op.max, Op.min }) |op| {
        try std.testing.expect(std.math.isNan(combine(op, @as(f32, 1), nan)));
        try std.testing.expect(std.math.isNan(combine(op, nan, @as(f32, 1))));
        const v = combine(op, @Vector(4, f32){ 1, nan, 2, -1 }, @Vector(4, f32){ nan, 1, 3, -2 });
        try std.testing.expect(std.math.isNan(v[0]));
        try std.testing.expect(std.math.isNan(v[1]));
        try std.testing.expectEqual(@as(f32, if (op == .max) 3 else 2), v[2]);
        try std.testing.expectEqual(@as(f32, if (op == .max) -1 else -2), v[3]);
    }
}

test "half types survive a load and a store" {
    var source: [32]Bf16 = undefined;
    for (&source, 0..) |*s, i| s.* = .{ .bits = @intCast(i * 1009 % 0x7f80) };
    source[3] = .{ .bits = 0x7fc1 };
    var out: [32]Bf16 = undefined;
    store(.bf16, &out, load(.bf16, &source));
    store(.bf16, out[16..], load(.bf16, source[16..]));
    for (source, out) |s, o| try std.testing.expectEqual(s.bits, o.bits);
    const tie: @Vector(16, f32) = @splat(1.01171875);
    store(.bf16, &out, tie);
    try std.testing.expectEqual(@as(u16, 0x3f82), out[7].bits);
}
