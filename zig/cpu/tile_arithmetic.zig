//! One vector of each arithmetic operation, with the numeric rules of the library: integers wrap,
//! division by zero gives 0, shifts of the width or more give 0 or the sign, maximum and minimum
//! propagate NaN, floor_divide and remainder follow the divisor's sign.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const math = @import("math.zig");
const TileOp = @import("tile_ops.zig").TileOp;

fn Child(comptime V: type) type {
    return @typeInfo(V).vector.child;
}

fn laneCount(comptime V: type) comptime_int {
    return @typeInfo(V).vector.len;
}

fn Bools(comptime V: type) type {
    return @Vector(laneCount(V), u8);
}

fn Result(comptime op: TileOp, comptime V: type) type {
    return if (op.isComparison() or op.isTest() or op.isLogical()) Bools(V) else V;
}

pub inline fn unary(
    comptime op: TileOp,
    comptime kind: DType,
    x: anytype,
    immediate: i64,
) Result(op, @TypeOf(x)) {
    const V = @TypeOf(x);
    const T = Child(V);
    const zero: V = @splat(0);
    const one: V = @splat(1);
    const float = comptime kind.isFloat();
    return switch (op) {
        .copy => x,
        .negative => if (float) -x else zero -% x,
        .abs => if (float) @abs(x) else @select(T, x < zero, zero -% x, x),
        .sign => sign(x),
        .sqrt => @sqrt(x),
        .square => if (float) x * x else x *% x,
        .reciprocal => one / x,
        .floor => @floor(x),
        .ceil => @ceil(x),
        .trunc => @trunc(x),
        .round => math.roundHalfEven(x),
        .isnan => @intFromBool(x != x),
        .isinf => @intFromBool(@abs(x) == @as(V, @splat(std.math.inf(T)))),
        .isfinite => @intFromBool(@abs(x) < @as(V, @splat(std.math.inf(T)))),
        .logical_not => x ^ one,
        .bitwise_not => if (kind == .bool) x ^ one else ~x,
        .integer_power => integerPower(x, immediate),
        .polygamma => math.polygamma(x, immediate),
        .bessel_i => math.bessel_i(x, immediate),
        // The remaining names are those of math.zig.
        else => @field(math, @tagName(op))(x),
    };
}

/// -1, 0 or 1; zeros keep their sign and NaN stays.
inline fn sign(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const T = Child(V);
    const zero: V = @splat(0);
    const one: V = @splat(1);
    const positive = @select(T, x > zero, one, x);
    if (@typeInfo(T) == .int and @typeInfo(T).int.signedness == .unsigned) return positive;
    return @select(T, x < zero, zero - one, positive);
}

/// x^exponent by squaring; a negative exponent is the reciprocal of the power (integers: 0, but for
/// the bases 1 and -1).
inline fn integerPower(x: anytype, exponent: i64) @TypeOf(x) {
    const V = @TypeOf(x);
    const T = Child(V);
    const one: V = @splat(1);
    var rest = @abs(exponent);
    var factor = x;
    var result = one;
    while (rest != 0) : (rest >>= 1) {
        if (rest & 1 == 1) result = multiply(result, factor);
        if (rest > 1) factor = multiply(factor, factor);
    }
    if (exponent >= 0) return result;
    if (@typeInfo(T) == .float) return one / result;
    const zero: V = @splat(0);
    const minus: V = zero -% one;
    const unit = (x == one) | (x == minus);
    return @select(T, unit, result, zero);
}

inline fn multiply(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    return if (@typeInfo(Child(@TypeOf(a))) == .float) a * b else a *% b;
}

pub inline fn binary(
    comptime op: TileOp,
    comptime kind: DType,
    a: anytype,
    b: @TypeOf(a),
) Result(op, @TypeOf(a)) {
    const V = @TypeOf(a);
    const T = Child(V);
    const float = comptime kind.isFloat();
    return switch (op) {
        .add => if (float) a + b else a +% b,
        .subtract => if (float) a - b else a -% b,
        .multiply => multiply(a, b),
        .divide => a / b,
        .floor_divide => if (float) floatDivision(
            a,
            b,
        ).quotient else integerDivision(a, b).quotient,
        .remainder => if (float) floatDivision(a, b).remainder else integerDivision(a, b).remainder,
        .power => if (float) math.power(a, b) else integerPowerOf(a, b),
        .arctan2 => math.arctan2(a, b),
        .gcd => math.gcd(a, b),
        // A NaN in `a` is kept by the second test, one in `b` fails the first.
        .maximum => if (float) @select(T, (a > b) | (a != a), a, b) else @max(a, b),
        .minimum => if (float) @select(T, (a < b) | (a != a), a, b) else @min(a, b),
        .equal => @intFromBool(a == b),
        .not_equal => @intFromBool(a != b),
        .less => @intFromBool(a < b),
        .less_equal => @intFromBool(a <= b),
        .greater => @intFromBool(a > b),
        .greater_equal => @intFromBool(a >= b),
        .logical_and, .bitwise_and => a & b,
        .logical_or, .bitwise_or => a | b,
        .logical_xor, .bitwise_xor => a ^ b,
        .left_shift => shift(.left, a, b),
        .right_shift => shift(.right, a, b),
        else => comptime unreachable,
    };
}

pub inline fn ternary(comptime op: TileOp, a: anytype, b: @TypeOf(a), c: @TypeOf(a)) @TypeOf(a) {
    return switch (op) {
        .multiply_add => a * b + c,
        .multiply_subtract => a * b - c,
        .subtract_multiply => c - a * b,
        else => comptime unreachable,
    };
}

/// Counts of at least the width, and negative ones, shift everything out.
inline fn shift(comptime direction: enum { left, right }, a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const V = @TypeOf(a);
    const T = Child(V);
    const bits = @bitSizeOf(T);
    const n = laneCount(V);
    const U = @Vector(n, @Int(.unsigned, bits));
    const width: U = @splat(bits);
    const wanted: U = @bitCast(b);
    const out = wanted >= width;
    const most: U = @splat(bits - 1);
    const count: @Vector(n, std.math.Log2Int(T)) = @truncate(@min(wanted, most));
    if (direction == .left) return @select(T, out, @as(V, @splat(0)), a << count);
    // A signed value shifted by width - 1 is its sign already.
    if (@typeInfo(T).int.signedness == .signed) return a >> count;
    return @select(T, out, @as(V, @splat(0)), a >> count);
}

/// Python's `a // b` and `a % b`.
fn Division(comptime V: type) type {
    return struct { quotient: V, remainder: V };
}

inline fn integerDivision(a: anytype, b: @TypeOf(a)) Division(@TypeOf(a)) {
    const V = @TypeOf(a);
    const T = Child(V);
    const zero: V = @splat(0);
    const one: V = @splat(1);
    const signed = @typeInfo(T).int.signedness == .signed;
    const by_zero = b == zero;
    // Divisors 0 and -1 are taken out: the first has no quotient, the second may overflow.
    var divisor = @select(T, by_zero, one, b);
    const minus_one = if (signed) b == zero -% one else by_zero;
    if (signed) divisor = @select(T, minus_one, one, divisor);
    var quotient = truncatedQuotient(a, divisor);
    var rest = a -% quotient *% divisor;
    if (signed) {
        const opposite = (rest != zero) & ((rest < zero) != (divisor < zero));
        quotient = @select(T, opposite, quotient -% one, quotient);
        rest = @select(T, opposite, rest +% divisor, rest);
        quotient = @select(T, minus_one, zero -% a, quotient);
    }
    return .{
        .quotient = @select(T, by_zero, zero, quotient),
        .remainder = @select(T, by_zero, zero, rest),
    };
}

/// a / b rounded to zero, b not 0 and no overflow. The quotient of integers of up to 16 bits is
/// exact after truncation in float32, of 32 bits in float64; 64 bits are divided lane by lane.
inline fn truncatedQuotient(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const V = @TypeOf(a);
    const T = Child(V);
    const n = laneCount(V);
    if (@bitSizeOf(T) == 64) {
        const x: [n]T = a;
        const y: [n]T = b;
        var q: [n]T = undefined;
        for (&q, x, y) |*quotient, p, d| quotient.* = @divTrunc(p, d);
        return q;
    }
    const F = @Vector(n, if (@bitSizeOf(T) == 32) f64 else f32);
    const q = @as(F, @floatFromInt(a)) / @as(F, @floatFromInt(b));
    return @trunc(q);
}

/// Wraps around; a negative exponent gives 0, but for the bases 1 and -1.
inline fn integerPowerOf(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const V = @TypeOf(a);
    const T = Child(V);
    const n = laneCount(V);
    const zero: V = @splat(0);
    const one: V = @splat(1);
    const U = @Vector(n, @Int(.unsigned, @bitSizeOf(T)));
    const none: U = @splat(0);
    var rest: U = @bitCast(b);
    var factor = a;
    var result = one;
    while (@reduce(.Or, rest) != 0) {
        const odd = (rest & @as(U, @splat(1))) != none;
        result = @select(T, odd, result *% factor, result);
        factor = factor *% factor;
        rest = rest >> @as(@Vector(n, std.math.Log2Int(T)), @splat(1));
    }
    if (@typeInfo(T).int.signedness == .unsigned) return result;
    // For the bases 1 and -1 only the parity of the exponent counted, which its bits kept.
    const unit = (a == one) | (a == zero -% one);
    return @select(T, (b >= zero) | unit, result, zero);
}

/// As Python: the remainder has the divisor's sign, zeros included; a divisor of 0 gives the
/// quotient a/b and the remainder NaN. Exact but for the one rounding of each result.
inline fn floatDivision(a: anytype, b: @TypeOf(a)) Division(@TypeOf(a)) {
    const V = @TypeOf(a);
    const T = Child(V);
    const n = laneCount(V);
    const W = @Vector(n, f64);
    const wide_a: W = a;
    const wide_b: W = b;
    const q = @trunc(wide_a / wide_b);
    const infinity: W = @splat(std.math.inf(f64));
    // Exact: q b has at most 29 + 24 bits for float32; float64 needs the product kept unrounded.
    const quotient_max: f64 = if (T == f32) 0x1p29 else 0x1p52;
    const exact = T == f32 or math.has_fma;
    const normal = (@abs(q) < @as(W, @splat(quotient_max))) & (@abs(wide_b) < infinity);
    if (!exact or !@reduce(.And, normal)) {
        @branchHint(.unlikely);
        const x: [n]T = a;
        const y: [n]T = b;
        var quotients: [n]T = undefined;
        var rests: [n]T = undefined;
        for (
            &quotients,
            &rests,
            x,
            y,
        ) |*quotient, *rest, p, d| scalarDivision(T, p, d, quotient, rest);
        return .{ .quotient = quotients, .remainder = rests };
    }
    const rest = math.fma(-q, wide_b, wide_a);
    return fromTruncated(V, q, rest, wide_b);
}

/// From a = q b + rest with |rest| < |b|. Where the division rounded up to an integer, rest has the
/// sign opposite to a's and q is one too large: the same correction mends both.
inline fn fromTruncated(comptime V: type, q: anytype, rest: @TypeOf(q), b: @TypeOf(q)) Division(V) {
    const W = @TypeOf(q);
    const zero: W = @splat(0);
    const one: W = @splat(1);
    const opposite = (rest != zero) & ((rest < zero) != (b < zero));
    const quotient = @select(f64, opposite, q - one, q);
    const shifted = @select(f64, opposite, rest + b, rest);
    const signed = @select(f64, rest == zero, math.copySign(zero, b), shifted);
    return .{ .quotient = @floatCast(quotient), .remainder = @floatCast(signed) };
}

fn scalarDivision(comptime T: type, a: T, b: T, quotient: *T, remainder: *T) void {
    const wide_a: f64 = a;
    const wide_b: f64 = b;
    var rest = math.libm.fmod(wide_a, wide_b);
    if (b == 0 or std.math.isNan(rest)) {
        quotient.* = if (b == 0) a / b else std.math.nan(T);
        remainder.* = std.math.nan(T);
        return;
    }
    var whole = (wide_a - rest) / wide_b;
    if (rest == 0) {
        rest = std.math.copysign(@as(f64, 0), wide_b);
    } else if ((rest < 0) != (wide_b < 0)) {
        rest += wide_b;
        whole -= 1;
    }
    // The division above may miss the integer by a rounding.
    const near = @floor(whole);
    const integer = if (whole - near > 0.5) near + 1 else near;
    quotient.* = @floatCast(
        if (integer == 0) std.math.copysign(@as(f64, 0), wide_a / wide_b) else integer,
    );
    remainder.* = @floatCast(rest);
}
