//! Exponentials and what is made of them. float32: exp, exp2, sigmoid and tanh stay in float32;
//! expm1, sinh and cosh go through float64. All reduce to |r| <= ln(2)/2 and scale by a power of
//! two in a way that rounds once, so subnormal results are right.
const std = @import("std");
const base = @import("math_base.zig");
const Child = base.Child;
const fma = base.fma;
const horner = base.horner;
const select = base.select;
const splat = base.splat;

const log2e = 1.44269504088896340735992468100189214;
const ln2_32 = base.splitConstant(f32, std.math.ln2, 16);
const ln2_64 = base.splitConstant(f64, std.math.ln2, 32);

/// (exp(r) - 1 - r)/r^2 on |r| <= ln(2)/2: a minimax fit, relative error of the exponential 2^-28.
const exp_32 = [_]comptime_float{
    0.500000010095, 0.166665128855, 0.0416661873908, 0.00836959859278, 0.00139517104114,
};
/// The same for float64, 2^-58.
const exp_64 = [_]comptime_float{
    0.50000000000000129719,   0.16666666666666693642,   0.041666666666513457796,
    0.0083333333333102780714, 0.0013888888947532324741, 0.00019841269911396776946,
    2.4801489407349052929e-5, 2.7557221183542115714e-6, 2.7631471196221940503e-7,
    2.5116432152116283402e-8,
};
/// (2^r - 1)/r on |r| <= 1/2, 2^-29.
const exp2_32 = [_]comptime_float{
    0.693147207956,   0.240226513452,   0.0555032426203,
    0.00961800334597, 0.00134016544789, 0.000154765809469,
};
/// (tanh(x) - x)/x^3 in powers of x^2 for |x| < 0.625, 2^-28.
const tanh_32 = [_]comptime_float{
    -0.333332839214, 0.133314912011, -0.0537434918914, 0.0206505692393, -0.00571702665011,
};

/// `p * 2^n`, rounded once; `n` an integer with its bits as `roundToInteger` gives them, |n| <
/// 2^10.
inline fn scale(p: anytype, n: base.Rounded(@TypeOf(p))) @TypeOf(p) {
    const V = @TypeOf(p);
    if (base.has_avx512 and @sizeOf(V) % 64 == 0) return base.scaleInHardware(p, n.n);
    const I = base.SignedBits(V);
    const mantissa = comptime std.math.floatMantissaBits(Child(V));
    const bias: I = @splat(std.math.floatExponentMax(Child(V)));
    const magic: V = splat(V, if (Child(V) == f32) 0x1.8p23 else 0x1.8p52);
    const k = @as(I, @bitCast(n.bits)) -% @as(I, @bitCast(magic));
    // Two factors, since 2^n itself may be out of range; the first product is exact.
    const half = k >> base.shiftCount(I, 1);
    const first: V = @bitCast((half + bias) << base.shiftCount(I, mantissa));
    const second: V = @bitCast((k - half + bias) << base.shiftCount(I, mantissa));
    return p * first * second;
}

/// `p * 2^n` where the result is known to be a normal number.
inline fn scaleNormal(p: anytype, n: base.Rounded(@TypeOf(p))) @TypeOf(p) {
    const V = @TypeOf(p);
    const B = base.Bits(V);
    const mantissa = comptime std.math.floatMantissaBits(Child(V));
    return @bitCast(@as(B, @bitCast(p)) +% (n.bits << base.shiftCount(B, mantissa)));
}

fn Reduced(comptime V: type) type {
    return struct { n: base.Rounded(V), r: V };
}

/// x = n ln 2 + r with |r| <= ln(2)/2.
inline fn reduce(x: anytype) Reduced(@TypeOf(x)) {
    const V = @TypeOf(x);
    const ln2 = if (Child(V) == f32) ln2_32 else ln2_64;
    const n = base.roundToInteger(x, log2e);
    const high = fma(-n.n, @as(V, @splat(ln2.high)), x);
    return .{ .n = n, .r = fma(-n.n, @as(V, @splat(ln2.low)), high) };
}

/// exp(r) - 1 of a reduced argument.
inline fn expm1Reduced(r: anytype) @TypeOf(r) {
    const q = horner(r, if (Child(@TypeOf(r)) == f32) &exp_32 else &exp_64);
    return fma(r * r, q, r);
}

/// Keeps NaN.
inline fn clamp(
    x: anytype,
    comptime low: comptime_float,
    comptime high: comptime_float,
) @TypeOf(x) {
    const V = @TypeOf(x);
    const y = select(x > splat(V, high), splat(V, high), x);
    return select(y < splat(V, low), splat(V, low), y);
}

/// e^x; float32 1.1 ulp, float64 1 ulp.
pub inline fn exp(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const high = if (Child(V) == f32) 89.0 else 710.0;
    return expBounded(clamp(x, lowest(V), high));
}

/// Where the exponential rounds to 0.
fn lowest(comptime V: type) comptime_float {
    return if (Child(V) == f32) -104.0 else -746.0;
}

/// e^x for x in [-104, 89] (float64: [-746, 710]) or NaN.
pub inline fn expBounded(x: anytype) @TypeOf(x) {
    const reduced = reduce(x);
    return scale(splat(@TypeOf(x), 1.0) + expm1Reduced(reduced.r), reduced.n);
}

/// 2^x. float64: the C library.
pub inline fn exp2(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.exp2);
    const y = clamp(x, -151.0, 129.0);
    const n = base.roundToInteger(y, 1.0);
    const r = y - n.n;
    return scale(fma(r, horner(r, &exp2_32), splat(V, 1.0)), n);
}

/// e^x - 1 without cancellation: 2^n (expm1(r) + (1 - 2^-n)). 2 ulp in float64.
pub inline fn expm1(x: anytype) @TypeOf(x) {
    if (Child(@TypeOf(x)) == f64) return expm1Wide(x);
    return base.narrow(expm1Wide(base.widen(x)));
}

inline fn expm1Wide(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const reduced = reduce(clamp(x, -50.0, 710.0));
    const I = base.SignedBits(V);
    const one: V = splat(V, 1.0);
    // Where n > 60 the term 2^-n no longer counts, and n <= 1024 + 53 keeps its bits a number.
    const shifted = (reduced.n.bits << base.shiftCount(base.Bits(V), 52));
    const inverse: V = @bitCast(@as(I, @bitCast(one)) -% @as(I, @bitCast(shifted)));
    const small = select(reduced.n.n > splat(V, 60.0), splat(V, 0.0), inverse);
    const result = scale(expm1Reduced(reduced.r) + (one - small), reduced.n);
    // The sum above gives +0 for -0.
    return select(x == splat(V, 0.0), x, result);
}

/// 1/(1 + e^-x). With e = e^-|x| and q = e/(1 + e) it is 1 - q for x >= 0 and e - e q below:
/// nothing overflows, and the roundings of 1 + e and of the quotient count only by the size of q.
pub inline fn sigmoid(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const one = splat(V, 1.0);
    const m = -@abs(x);
    const e = expBounded(select(m < splat(V, lowest(V)), splat(V, lowest(V)), m));
    const t = select(x < splat(V, 0.0), e, one);
    return fma(-t, base.quotient(e, one + e), t);
}

/// float32: a polynomial below 0.625, 1 - 2/(e^2x + 1) above. float64: expm1(2x)/(expm1(2x) + 2).
pub inline fn tanh(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const magnitude = @abs(x);
    const two = splat(V, 2.0);
    if (Child(V) == f64) {
        const e = expm1Wide(two * clamp(magnitude, 0.0, 20.0));
        return base.copySign(e / (e + two), x);
    }
    const z = x * x;
    const inner = fma(x * z, horner(z, &tanh_32), x);
    // From 9.02 on the result rounds to 1.
    const reduced = reduce(two * clamp(magnitude, 0.0, 9.02));
    const e = scaleNormal(splat(V, 1.0) + expm1Reduced(reduced.r), reduced.n);
    const outer = splat(V, 1.0) - base.quotient(two, e + splat(V, 1.0));
    // The select keeps NaN, and the sign is also that of a zero.
    return base.copySign(select(magnitude >= splat(V, 0.625), outer, inner), x);
}

/// float32 by way of float64; float64 from the C library.
pub inline fn sinh(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.sinh);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const magnitude = @abs(wide);
    const e = exp(magnitude);
    const outer = splat(W, 0.5) * (e - splat(W, 1.0) / e);
    const z = wide * wide;
    // The series to x^11/11!: the next term is below 2^-32 of the sum for |x| < 1.
    const inner = fma(wide * z, horner(z, &.{
        1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362880.0, 1.0 / 39916800.0,
    }), wide);
    return base.narrow(select(magnitude < splat(W, 1.0), inner, base.copySign(outer, wide)));
}

pub inline fn cosh(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.cosh);
    const e = exp(@abs(base.widen(x)));
    const W = @TypeOf(e);
    return base.narrow(splat(W, 0.5) * (e + splat(W, 1.0) / e));
}
