//! The error functions and the roots. float32 erf and rsqrt stay in float32, erfc and cbrt go
//! through float64; float64 erf, erfc and cbrt are the C library's.
const std = @import("std");
const base = @import("math_base.zig");
const exponential = @import("math_exp.zig");
const Child = base.Child;
const fma = base.fma;
const horner = base.horner;
const select = base.select;
const splat = base.splat;

/// erf(x)/x - 1 in powers of x^2 for |x| < 0.92: a minimax fit, 2^-31.
const erf_small = [_]comptime_float{
    0.128379166673,   -0.376126340044,    0.112836987311,   -0.026859539069,
    0.00520130471024, -0.000814507718353, 8.37758780587e-5,
};
/// -log(erfc(x)) in powers of x for 0.92 < x < 3.95, weighted so that erf is good to 2^-29.
const erf_large = [_]comptime_float{
    0.000180743396637, 1.12773762193,    0.637077369307,     0.104024041398,
    -0.0222716609987,  0.00305448189209, -0.000197089246493,
};
/// (1 + 2x) e^(x^2) erfc(x) in powers of (x-3)/(x+3) for 0 <= x <= 11, 2^-35.
const erfc_64 = [_]comptime_float{
    1.25300805828458156,      -0.135621106398735532,    -0.0475622969486424908,
    0.129645173636841275,     -0.119273584141596408,    0.0683078199416238665,
    -0.0237714618717870351,   0.0025303565881059775,    0.00189403378007066134,
    -0.000780184869904978142, -0.000119368745392442058, 0.000117227741394775595,
    0.0000190562911359254142, -4.85000810673532908e-6,
};

pub inline fn erf(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.erf);
    const z = x * x;
    const inner = fma(x, horner(z, &erf_small), x);
    // From 3.92 on the result rounds to 1.
    const m = @abs(x);
    const t = select(m > splat(V, 3.95), splat(V, 3.95), m);
    const tail = exponential.expBounded(-horner(t, &erf_large));
    const outer = base.copySign(splat(V, 1.0) - tail, x);
    return select(m < splat(V, 0.92), inner, outer);
}

pub inline fn erfc(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.erfc);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const magnitude = @abs(wide);
    // erfc(11) is below the smallest float32.
    const m = select(magnitude > splat(W, 11.0), splat(W, 11.0), magnitude);
    const q = (m - splat(W, 3.0)) / (m + splat(W, 3.0));
    const scaled = horner(q, &erfc_64) / fma(m, splat(W, 2.0), splat(W, 1.0));
    const value = exponential.expBounded(-(m * m)) * scaled;
    return base.narrow(select(wide < splat(W, 0.0), splat(W, 2.0) - value, value));
}

/// The cube root, by a guess from the exponent and three steps of Halley's method.
pub inline fn cbrt(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.cbrt);
    // Every non-zero float32 is a normal float64.
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const B = base.Bits(W);
    const m = @abs(wide);
    const bits: @Vector(base.laneCount(V), u32) = @truncate(
        @as(B, @bitCast(m)) >> base.shiftCount(B, 32),
    );
    // Dividing the exponent by 3 restores two thirds of the bias: 0x3ff00000 / 3 * 2.
    const third = bits / @as(@TypeOf(bits), @splat(3)) + @as(@TypeOf(bits), @splat(0x2aa00000));
    var t: W = @bitCast(@as(B, third) << base.shiftCount(B, 32));
    inline for (0..3) |_| {
        const cube = t * t * t;
        t = t * (cube + m + m) / (cube + cube + m);
    }
    const value = base.copySign(t, wide);
    const infinity: W = @splat(std.math.inf(f64));
    const regular = select(m == splat(W, 0.0), wide, select(m == infinity, wide, value));
    return base.narrow(select(base.isNan(wide), wide, regular));
}

/// 1/sqrt(x): two roundings. rsqrt(+-0) is +-inf.
pub inline fn rsqrt(x: anytype) @TypeOf(x) {
    return splat(@TypeOf(x), 1.0) / @sqrt(x);
}
