//! Logarithms, inverse hyperbolic functions and powers. float32: log stays in float32, the others
//! go through float64, where the accuracy near 1 (log2, power) or 0 (log1p, arcsinh) costs nothing
//! extra.
const std = @import("std");
const base = @import("math_base.zig");
const exponential = @import("math_exp.zig");
const Child = base.Child;
const fma = base.fma;
const horner = base.horner;
const select = base.select;
const splat = base.splat;

/// (log(1+f) - f + f^2/2)/f^3 for 1+f in [sqrt(1/2), sqrt(2)]: a minimax fit, 2^-30 of the
/// logarithm.
const log_32 = [_]comptime_float{
    0.333333125674,  -0.250000093773, 0.200021211734,  -0.166680080303, 0.142195173824,
    -0.124053857156, 0.118881879037,  -0.116766837113, 0.0674775180759,
};
/// (log((1+s)/(1-s)) - 2s)/s^3 in powers of s^2 for |s| <= 3 - 2 sqrt(2), 2^-58.
const log_64 = [_]comptime_float{
    0.66666666666667348754, 0.3999999999941130254,  0.28571428743208268001, 0.22222198481934435862,
    0.1818356942255261172,  0.15313911424290665023, 0.14797426093147207606,
};
const ln2_32 = base.splitConstant(f32, std.math.ln2, 14);
const ln2_64 = base.splitConstant(f64, std.math.ln2, 32);

fn Parts(comptime V: type) type {
    return struct { exponent: V, f: V };
}

/// x = 2^exponent (1 + f) for x > 0, subnormal ones included; 1 + f in [sqrt(1/2), sqrt(2)).
inline fn decompose(x: anytype) Parts(@TypeOf(x)) {
    const V = @TypeOf(x);
    const I = base.SignedBits(V);
    const mantissa = comptime std.math.floatMantissaBits(Child(V));
    const tiny = x < splat(V, std.math.floatMin(Child(V)));
    const lift: Child(V) = comptime std.math.ldexp(@as(Child(V), 1), mantissa);
    const y = select(tiny, x * @as(V, @splat(lift)), x);
    const adjust = select(tiny, splat(V, -@as(comptime_float, mantissa)), splat(V, 0.0));
    const root: V = splat(V, std.math.sqrt1_2);
    const bits: I = @bitCast(y);
    const k = (bits -% @as(I, @bitCast(root))) >> base.shiftCount(I, mantissa);
    const m: V = @bitCast(bits -% (k << base.shiftCount(I, mantissa)));
    // An exponent fits 32 bits, and those convert to either float in one instruction.
    const short: @Vector(base.laneCount(V), i32) = @truncate(k);
    const exponent: V = @floatFromInt(short);
    return .{ .exponent = exponent + adjust, .f = m - splat(V, 1.0) };
}

/// `value` where x is finite and positive; the logarithm's special values elsewhere.
inline fn withSpecials(x: anytype, value: @TypeOf(x)) @TypeOf(x) {
    const V = @TypeOf(x);
    const T = Child(V);
    const zero = splat(V, 0.0);
    const infinity: V = @splat(std.math.inf(T));
    const nan: V = @splat(std.math.nan(T));
    // +inf and NaN are their own logarithm.
    const special = select(x == zero, -infinity, select(x < zero, nan, x));
    const big = x >= infinity;
    const positive = x > zero;
    return select(positive, select(big, x, value), special);
}

/// The natural logarithm; 1 ulp.
pub inline fn log(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const parts = decompose(x);
    const f = parts.f;
    if (Child(V) == f32) {
        const z = f * f;
        var r = f * z * horner(f, &log_32);
        r = fma(parts.exponent, @as(V, @splat(ln2_32.low)), r);
        r = fma(z, splat(V, -0.5), r) + f;
        r = fma(parts.exponent, @as(V, @splat(ln2_32.high)), r);
        return withSpecials(x, r);
    }
    // log(1+f) = f - f^2/2 + s (f^2/2 + s^2 P) with s = f/(2+f).
    const s = f / (splat(V, 2.0) + f);
    const z = s * s;
    const half_square = splat(V, 0.5) * f * f;
    const tail = s * fma(z, horner(z, &log_64), half_square);
    const low = fma(parts.exponent, @as(V, @splat(ln2_64.low)), tail);
    const r = fma(parts.exponent, @as(V, @splat(ln2_64.high)), f - (half_square - low));
    return withSpecials(x, r);
}

/// log(1 + x). float64: the C library.
pub inline fn log1p(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.log1p);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    // Below 2^-12 the series has a relative error of 2^-38; above, 1 + x loses 2^-41.
    const series = wide * horner(wide, &.{ 1.0, -0.5, 1.0 / 3.0 });
    const outer = log(splat(W, 1.0) + wide);
    const result = select(@abs(wide) < splat(W, 0x1p-12), series, outer);
    return base.narrow(result);
}

inline fn scaledLog(x: anytype, comptime factor: comptime_float, f: base.Unary) @TypeOf(x) {
    if (Child(@TypeOf(x)) == f64) return base.eachLane(x, f);
    const wide = log(base.widen(x));
    return base.narrow(wide * splat(@TypeOf(wide), factor));
}

pub inline fn log2(x: anytype) @TypeOf(x) {
    return scaledLog(x, 1.44269504088896340735992468100189214, base.libm.log2);
}

pub inline fn log10(x: anytype) @TypeOf(x) {
    return scaledLog(x, 0.43429448190325182765112891891660508, base.libm.log10);
}

/// log(x + sqrt(x^2 + 1)) of the magnitude; x - x^3/6 near 0.
pub inline fn arcsinh(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.asinh);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const m = @abs(wide);
    const z = wide * wide;
    const outer = log(m + @sqrt(z + splat(W, 1.0)));
    const inner = fma(m * z, splat(W, -1.0 / 6.0), m);
    return base.narrow(base.copySign(select(m < splat(W, 0x1p-10), inner, outer), wide));
}

pub inline fn arccosh(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.acosh);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const nan: W = @splat(std.math.nan(f64));
    // The square of a float32 is exact, so nothing cancels near 1.
    const value = log(wide + @sqrt(wide * wide - splat(W, 1.0)));
    return base.narrow(select(wide < splat(W, 1.0), nan, value));
}

pub inline fn arctanh(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.atanh);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const one = splat(W, 1.0);
    const outer = splat(W, 0.5) * log((one + wide) / (one - wide));
    const inner = fma(wide * wide * wide, splat(W, 1.0 / 3.0), wide);
    return base.narrow(select(@abs(wide) < splat(W, 0x1p-10), inner, outer));
}

/// x^y with the special values of IEEE 754 `pow`: x^0 = 1^y = 1, a negative base with a y that is
/// not an integer gives NaN, odd integers keep the sign of x. float64: the C library.
pub inline fn power(x: anytype, y: @TypeOf(x)) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLanePair(x, y, base.libm.pow);
    const zero = splat(V, 0.0);
    const one = splat(V, 1.0);
    const infinity: V = @splat(std.math.inf(f32));
    const m = @abs(x);
    const magnitude = base.narrow(exponential.exp(base.widen(y) * log(base.widen(m))));
    // Floats from 2^24 on are even; there the half below is exact.
    const whole = @trunc(y) == y;
    const half = y * splat(V, 0.5);
    const odd = select(@trunc(half) == half, zero, select(whole, one, zero));
    const signed = select(odd == one, base.copySign(magnitude, x), magnitude);
    const nan: V = @splat(std.math.nan(f32));
    const undefined_base = select(x < zero, select(m < infinity, one, zero), zero);
    const fraction = select(whole, zero, undefined_base);
    var result = select(fraction == one, nan, signed);
    // (-1)^(+-inf): the product inf * log(1) above is NaN.
    const unit = select(m == one, select(@abs(y) == infinity, one, zero), zero);
    result = select(unit == one, one, result);
    result = select(isNanOf(x, y), nan, result);
    result = select(x == one, one, result);
    return select(y == zero, one, result);
}

inline fn isNanOf(x: anytype, y: @TypeOf(x)) @TypeOf(x != y) {
    return base.isNan(select(base.isNan(x), x, y));
}
