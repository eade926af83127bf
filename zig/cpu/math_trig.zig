//! Trigonometric functions and their inverses. float32 results are computed in float64: a
//! reduction by a split pi/2, a short polynomial, one rounding (0.5 ulp and a little). float64 sin
//! and cos are vectors too; the other float64 functions and the lanes with huge arguments are the
//! C library's.
const std = @import("std");
const base = @import("math_base.zig");
const Child = base.Child;
const fma = base.fma;
const horner = base.horner;
const select = base.select;
const splat = base.splat;

const half_pi = std.math.pi / 2.0;

/// Above this the products with the parts of pi/2 below are no longer exact.
const argument_max = 0x1p19;

/// pi/2 in three parts; the first two have 33 bits, so that a multiple up to 2^20 is exact.
const pi_1 = base.splitConstant(f64, half_pi, 33).high;
const pi_2 = base.splitConstant(f64, half_pi - @as(comptime_float, pi_1), 33).high;
const pi_3 = base.splitConstant(f64, half_pi - @as(comptime_float, pi_1), 33).low;

/// Coefficients of sin(r)/r - 1 and cos(r) - 1 + r^2/2 in powers of r^2, from r^2 and from r^4.
fn series(comptime first: comptime_int, comptime count: comptime_int) [count]comptime_float {
    var c: [count]comptime_float = undefined;
    var factorial: comptime_float = 1.0;
    for (1..first + 1) |k| factorial *= k;
    var k = first;
    for (&c, 0..) |*term, i| {
        const sign = if ((first / 2 + i) % 2 == 0) 1.0 else -1.0;
        term.* = sign / factorial;
        factorial *= (k + 1) * (k + 2);
        k += 2;
    }
    return c;
}

const Kind = enum { sine, cosine, tangent };

fn Angle(comptime V: type) type {
    return struct { r: V, quadrant: base.Bits(V) };
}

/// x = quadrant pi/2 + r, |r| <= pi/4, for |x| <= argument_max.
inline fn reduce(x: anytype) Angle(@TypeOf(x)) {
    const V = @TypeOf(x);
    const n = base.roundToInteger(x, 1.0 / half_pi);
    var r = fma(-n.n, @as(V, @splat(pi_1)), x);
    r = fma(-n.n, @as(V, @splat(pi_2)), r);
    return .{ .r = fma(-n.n, @as(V, @splat(pi_3)), r), .quadrant = n.bits };
}

/// For float64 lanes. `terms`: 6 give 2^-33 (enough before rounding to float32), 8 give full
/// float64.
inline fn evaluate(x: anytype, comptime kind: Kind, comptime terms: comptime_int) @TypeOf(x) {
    const V = @TypeOf(x);
    const B = base.Bits(V);
    const angle = reduce(x);
    const r = angle.r;
    const z = r * r;
    // A negative zero would lose its sign in the sum.
    const near = fma(r * z, horner(z, &comptime series(3, terms)), r);
    const sine = select(r == splat(V, 0.0), r, near);
    const w = fma(z, splat(V, -0.5), splat(V, 1.0));
    const lost = (splat(V, 1.0) - w) - splat(V, 0.5) * z;
    const cosine = w + fma(z * z, horner(z, &comptime series(4, terms - 1)), lost);
    const one: B = @splat(1);
    const odd = (angle.quadrant & one) != @as(B, @splat(0));
    if (kind == .tangent) {
        return select(odd, -cosine, sine) / select(odd, sine, cosine);
    }
    const shifted = if (kind == .sine) angle.quadrant else angle.quadrant +% one;
    const flip = (shifted << base.shiftCount(B, 62)) & @as(B, @splat(1 << 63));
    const value = if (kind == .sine) select(odd, cosine, sine) else select(odd, sine, cosine);
    return @bitCast(@as(B, @bitCast(value)) ^ flip);
}

inline fn trigonometric(x: anytype, comptime kind: Kind, library: base.Unary) @TypeOf(x) {
    const V = @TypeOf(x);
    // Infinities go to the library as well: NaN. NaN fails the comparison and stays NaN.
    const huge = @abs(x) > splat(V, argument_max);
    const value = if (Child(V) == f64)
        evaluate(x, kind, 8)
    else
        base.narrow(evaluate(base.widen(x), kind, 6));
    if (@reduce(.Or, huge)) {
        @branchHint(.unlikely);
        return select(huge, base.eachLane(select(huge, x, splat(V, 0.0)), library), value);
    }
    return value;
}

pub inline fn sin(x: anytype) @TypeOf(x) {
    return trigonometric(x, .sine, base.libm.sin);
}

pub inline fn cos(x: anytype) @TypeOf(x) {
    return trigonometric(x, .cosine, base.libm.cos);
}

pub inline fn tan(x: anytype) @TypeOf(x) {
    if (Child(@TypeOf(x)) == f64) return base.eachLane(x, base.libm.tan);
    return trigonometric(x, .tangent, base.libm.tan);
}

/// asin(x)/x in powers of x^2 for |x| <= 1/2: a minimax fit, 2^-40.
const arcsin_64 = [_]comptime_float{
    1.00000000000093931,   0.166666666073755854,   0.0750000615496494186,
    0.0446404041525048279, 0.0304306517094814969,  0.0218340644942164728,
    0.0207840377363434715, 0.00166229574508683554, 0.0332112730936370832,
};
/// atan(x)/x in powers of x^2 for |x| <= 1, 2^-36.
const arctan_64 = [_]comptime_float{
    0.999999999991522068,    -0.333333330304065553,  0.199999820364643235,
    -0.142852938933974283,   0.111059591669284073,   -0.0905286301487668466,
    0.0750846474422383525,   -0.0605337104371160291, 0.0441379976960793598,
    -0.0265179112267278491,  0.0117659686361686621,  -0.0033239290807758481,
    0.000440587737382065461,
};

fn HalfAngle(comptime V: type) type {
    return struct { outer: @Vector(base.laneCount(V), bool), value: V };
}

/// For |x| <= 1/2 asin|x|, above asin(sqrt((1 - |x|)/2)), which is a quarter turn less half of it.
inline fn arcsinCore(m: anytype) HalfAngle(@TypeOf(m)) {
    const V = @TypeOf(m);
    const outer = m > splat(V, 0.5);
    const rest = (splat(V, 1.0) - m) * splat(V, 0.5);
    const t = select(outer, @sqrt(rest), m);
    const z = select(outer, rest, m * m);
    return .{ .outer = outer, .value = t * horner(z, &arcsin_64) };
}

/// NaN outside [-1, 1].
pub inline fn arcsin(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.asin);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const core = arcsinCore(@abs(wide));
    const far = fma(core.value, splat(W, -2.0), splat(W, half_pi));
    return base.narrow(base.copySign(select(core.outer, far, core.value), wide));
}

pub inline fn arccos(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.acos);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const core = arcsinCore(@abs(wide));
    const inner = splat(W, half_pi) - base.copySign(core.value, wide);
    const twice = splat(W, 2.0) * core.value;
    const far = select(wide < splat(W, 0.0), splat(W, std.math.pi) - twice, twice);
    return base.narrow(select(core.outer, far, inner));
}

inline fn arctanUnit(t: anytype) @TypeOf(t) {
    return t * horner(t * t, &arctan_64);
}

pub inline fn arctan(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    if (Child(V) == f64) return base.eachLane(x, base.libm.atan);
    const wide = base.widen(x);
    const W = @TypeOf(wide);
    const m = @abs(wide);
    const outer = m > splat(W, 1.0);
    const inner = arctanUnit(select(outer, splat(W, 1.0) / m, m));
    const value = select(outer, splat(W, half_pi) - inner, inner);
    return base.narrow(base.copySign(value, wide));
}

/// The angle of the point (x, y), signed zeros and infinities as in C.
pub inline fn arctan2(y: anytype, x: @TypeOf(y)) @TypeOf(y) {
    const V = @TypeOf(y);
    if (Child(V) == f64) return base.eachLanePair(y, x, base.libm.atan2);
    const wide_y = base.widen(y);
    const wide_x = base.widen(x);
    const W = @TypeOf(wide_y);
    const infinity: W = @splat(std.math.inf(f64));
    const my = @abs(wide_y);
    const mx = @abs(wide_x);
    const steep = my > mx;
    const low = select(steep, mx, my);
    const high = select(steep, my, mx);
    // 0/0 is the angle 0 and inf/inf that of a diagonal; NaN fails both tests and goes through.
    const ratio = select(high == splat(W, 0.0), low, low / high);
    const t = select(low == infinity, splat(W, 1.0), ratio);
    const octant = arctanUnit(t);
    const quarter = select(steep, splat(W, half_pi) - octant, octant);
    const negative = base.copySign(splat(W, 1.0), wide_x) < splat(W, 0.0);
    const half = select(negative, splat(W, std.math.pi) - quarter, quarter);
    const value = base.narrow(base.copySign(half, wide_y));
    // A NaN may have hidden in the minimum.
    return select(base.isNan(x), x, select(base.isNan(y), y, value));
}
