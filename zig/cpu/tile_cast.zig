//! Conversions between dtypes, a vector at a time. Floats to integers truncate and saturate, NaN
//! gives 0; anything to a half type rounds once; non-zero (NaN too) is true.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const Bf16 = dtype.Bf16;
const math = @import("math.zig");

fn Vec(comptime n: comptime_int, comptime kind: DType) type {
    return @Vector(n, dtype.Storage(kind));
}

/// `x` of dtype `from` (no half type) as dtype `to` (no half type).
pub inline fn cast(
    comptime from: DType,
    comptime to: DType,
    x: anytype,
) Vec(@typeInfo(@TypeOf(x)).vector.len, to) {
    const n = @typeInfo(@TypeOf(x)).vector.len;
    const S = dtype.Storage(from);
    const R = dtype.Storage(to);
    if (to == .bool) return @intFromBool(x != @as(@Vector(n, S), @splat(0)));
    if (comptime from.isFloat()) {
        if (comptime to.isFloat()) return @floatCast(x);
        return saturate(R, x);
    }
    if (comptime to.isFloat()) return @floatFromInt(x);
    if (@bitSizeOf(R) < @bitSizeOf(S)) return lowBits(R, x);
    const Wide = @Int(@typeInfo(S).int.signedness, @bitSizeOf(R));
    return @bitCast(@as(@Vector(n, Wide), x));
}

/// The low bits of integers, as `R`.
inline fn lowBits(comptime R: type, x: anytype) @Vector(@typeInfo(@TypeOf(x)).vector.len, R) {
    const n = @typeInfo(@TypeOf(x)).vector.len;
    const S = @typeInfo(@TypeOf(x)).vector.child;
    const bits: @Vector(n, @Int(.unsigned, @bitSizeOf(S))) = @bitCast(x);
    const low: @Vector(n, @Int(.unsigned, @bitSizeOf(R))) = @truncate(bits);
    return @bitCast(low);
}

/// Truncation of floats to the range of the integer `R`.
inline fn saturate(comptime R: type, x: anytype) @Vector(@typeInfo(@TypeOf(x)).vector.len, R) {
    const V = @TypeOf(x);
    const n = @typeInfo(V).vector.len;
    const T = @typeInfo(V).vector.child;
    // Small integers go through int32, which hardware converts to.
    const M = if (@bitSizeOf(R) < 32) i32 else R;
    const low: V = @splat(@floatFromInt(std.math.minInt(R)));
    // One past the largest integer is a power of two, exact in either float.
    const exponent = if (std.math.minInt(R) < 0) @bitSizeOf(R) - 1 else @bitSizeOf(R);
    const high: V = @splat(comptime std.math.ldexp(@as(T, 1), exponent));
    const over = x >= high;
    // NaN fails both comparisons of this one.
    const inside = (x > low) & (x < high);
    const safe = @select(T, inside, x, @as(V, @splat(0)));
    const whole: @Vector(n, M) = @trunc(safe);
    const small = lowBits(R, whole);
    const smallest: @Vector(n, R) = @splat(std.math.minInt(R));
    const largest: @Vector(n, R) = @splat(std.math.maxInt(R));
    const bottom = @select(R, x <= low, smallest, small);
    return @select(R, over, largest, bottom);
}

/// float16 in memory to float32.
pub inline fn widenHalf(comptime n: comptime_int, p: [*]const f16) @Vector(n, f32) {
    const half: @Vector(n, f16) = p[0..n].*;
    return @floatCast(half);
}

/// bfloat16 in memory to float32.
pub inline fn widenBrain(comptime n: comptime_int, p: [*]const Bf16) @Vector(n, f32) {
    const bits = @as(*align(2) const @Vector(n, u16), @ptrCast(p)).*;
    const wide: @Vector(n, u32) = bits;
    return @bitCast(wide << @splat(16));
}

pub inline fn narrowHalf(comptime n: comptime_int, to: [*]f16, x: @Vector(n, f32)) void {
    const half: @Vector(n, f16) = @floatCast(x);
    to[0..n].* = half;
}

/// The bits of the nearest bfloat16 (ties to even) in the high half of each lane; NaN stays NaN.
inline fn brainBits(comptime n: comptime_int, x: @Vector(n, f32)) @Vector(n, u32) {
    const U = @Vector(n, u32);
    const u: U = @bitCast(x);
    const odd = (u >> @splat(16)) & @as(U, @splat(1));
    const rounded = u +% @as(U, @splat(0x7fff)) +% odd;
    const quiet = u | @as(U, @splat(0x400000));
    return @select(u32, x != x, quiet, rounded);
}

pub inline fn narrowBrain(comptime n: comptime_int, to: [*]Bf16, x: @Vector(n, f32)) void {
    const bits: @Vector(n, u16) = @truncate(brainBits(n, x) >> @splat(16));
    @as(*align(2) @Vector(n, u16), @ptrCast(to)).* = bits;
}

/// The nearest float16, kept in float32.
pub inline fn roundHalf(
    comptime n: comptime_int,
    comptime from: DType,
    x: Vec(n, from),
) @Vector(n, f32) {
    const half: @Vector(n, f16) = @floatCast(stickySingle(n, from, x));
    return @floatCast(half);
}

/// The nearest bfloat16, kept in float32.
pub inline fn roundBrain(
    comptime n: comptime_int,
    comptime from: DType,
    x: Vec(n, from),
) @Vector(n, f32) {
    const bits = brainBits(n, stickySingle(n, from, x));
    return @bitCast(bits & @as(@Vector(n, u32), @splat(0xffff0000)));
}

/// A float32 that rounds to every half type as `x` itself does: rounded to odd, so that what was
/// lost still breaks ties the right way.
inline fn stickySingle(
    comptime n: comptime_int,
    comptime from: DType,
    x: Vec(n, from),
) @Vector(n, f32) {
    if (from == .f32) return x;
    const wide: @Vector(n, f64) = switch (from) {
        .f64 => x,
        .u64, .i64 => stickyDouble(n, from, x),
        else => comptime unreachable,
    };
    const U = @Vector(n, u32);
    const near: @Vector(n, f32) = @floatCast(wide);
    const back: @Vector(n, f64) = near;
    const one: U = @splat(1);
    const zero: U = @splat(0);
    // An overflow to infinity steps back to the largest float32 here, whose last bit is set.
    const above: U = @select(u32, @abs(back) > @abs(wide), one, zero);
    const inexact: U = @select(u32, back != wide, one, zero);
    const nan = wide != wide;
    const odd = (@as(U, @bitCast(near)) -% above) | inexact;
    return @select(f32, nan, near, @as(@Vector(n, f32), @bitCast(odd)));
}

/// A 64-bit integer as float64, exact below 2^53; beyond, its low 12 bits become one that says
/// whether any was set, far below the last place of a half type.
inline fn stickyDouble(
    comptime n: comptime_int,
    comptime from: DType,
    x: Vec(n, from),
) @Vector(n, f64) {
    const V = @TypeOf(x);
    const T = dtype.Storage(from);
    const limit: V = @splat(1 << 53);
    const low: V = @splat(0xfff);
    const sticky = @select(
        T,
        (x & low) != @as(V, @splat(0)),
        @as(V, @splat(0x800)),
        @as(V, @splat(0)),
    );
    const short = (x & ~low) | sticky;
    const large = if (from == .i64) (x > limit) | (x < -limit) else x > limit;
    return @floatFromInt(@select(T, large, short, x));
}

test "floats saturate to integers" {
    const V = @Vector(8, f32);
    const inf = std.math.inf(f32);
    const x: V = .{ 300, -300, -1.9, std.math.nan(f32), inf, -inf, 255.9, 4.5e9 };
    const u8s: [8]u8 = cast(.f32, .u8, x);
    try std.testing.expectEqualSlices(u8, &.{ 255, 0, 0, 0, 255, 0, 255, 255 }, &u8s);
    const i8s: [8]i8 = cast(.f32, .i8, x);
    try std.testing.expectEqualSlices(i8, &.{ 127, -128, -1, 0, 127, -128, 127, 127 }, &i8s);
    const i32s: [8]i32 = cast(.f32, .i32, x);
    try std.testing.expectEqualSlices(
        i32,
        &.{ 300, -300, -1, 0, 2147483647, -2147483648, 255, 2147483647 },
        &i32s,
    );
    const u64s: [8]u64 = cast(.f32, .u64, x);
    try std.testing.expectEqualSlices(
        u64,
        &.{ 300, 0, 0, 0, std.math.maxInt(u64), 0, 255, 4499999744 },
        &u64s,
    );
    const i64s: [8]i64 = cast(.f32, .i64, x);
    try std.testing.expectEqual(@as(i64, std.math.minInt(i64)), i64s[5]);
}

test "float64 rounds to half types once" {
    // Just above the tie between two float16: two roundings would fall back to the even one below.
    const above = 1.0 + 0x1p-11 + 0x1p-40;
    const x: @Vector(4, f64) = .{ above, 65519.999999999, 65520, -0x1p-25 - 0x1p-70 };
    const half: [4]f32 = roundHalf(4, .f64, x);
    try std.testing.expectEqualSlices(
        f32,
        &.{ 1.0 + 0x1p-10, 65504, std.math.inf(f32), -0x1p-24 },
        &half,
    );
    const y: @Vector(2, f64) = .{ 1.0 + 0x1p-8 + 0x1p-40, 1e300 };
    const brain: [2]f32 = roundBrain(2, .f64, y);
    try std.testing.expectEqualSlices(f32, &.{ 1.0 + 0x1p-7, std.math.inf(f32) }, &brain);
    const z: @Vector(2, i64) = .{ (1 << 62) + (1 << 54) + 1, -(1 << 62) - (1 << 54) };
    const long: [2]f32 = roundBrain(2, .i64, z);
    try std.testing.expectEqualSlices(f32, &.{ 0x1p62 + 0x1p55, -0x1p62 }, &long);
}
