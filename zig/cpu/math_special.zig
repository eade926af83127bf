//! Special functions, in float64 for every dtype and one number at a time: they are rare, and a
//! vector would run all branches of all its lanes.
//!
//! Errors of float64, in roundings of the largest term: erfinv 2, lgamma 4, polygamma 8 + order,
//! bessel_i 4 + |x| / 4. Terms cancel near a root other than lgamma's at 1 and 2. float32 is
//! rounded from these, so it is within 1 ulp, but for the neighbours of such roots.
const std = @import("std");
const base = @import("math_base.zig");
const assert = std.debug.assert;
const libm = base.libm;
const pi = std.math.pi;
const inf = std.math.inf(f64);
const nan = std.math.nan(f64);

/// The highest `order`: 170! is the last factorial that float64 holds.
pub const order_max = 170;

/// `f` of every lane.
inline fn eachLane(x: anytype, order: i64, comptime f: fn (f64, u32) f64) @TypeOf(x) {
    const V = @TypeOf(x);
    assert(order >= 0);
    assert(order <= order_max);
    var lanes: [base.laneCount(V)]base.Child(V) = x;
    for (&lanes) |*lane| lane.* = @floatCast(f(lane.*, @intCast(order)));
    return lanes;
}

pub inline fn erfinv(x: anytype) @TypeOf(x) {
    return eachLane(x, 0, inverseError);
}

pub inline fn lgamma(x: anytype) @TypeOf(x) {
    return eachLane(x, 0, logGamma);
}

pub inline fn polygamma(x: anytype, order: i64) @TypeOf(x) {
    return eachLane(x, order, logGammaDerivative);
}

pub inline fn bessel_i(x: anytype, order: i64) @TypeOf(x) {
    return eachLane(x, order, besselI);
}

/// The greatest common divisor of each pair of lanes, not negative but where the type cannot hold
/// it; gcd(0, 0) is 0.
pub inline fn gcd(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const V = @TypeOf(a);
    const n = base.laneCount(V);
    const x: [n]base.Child(V) = a;
    const y: [n]base.Child(V) = b;
    var out: [n]base.Child(V) = undefined;
    for (&out, x, y) |*d, p, q| d.* = @bitCast(euclid(base.Child(V), p, q));
    return out;
}

noinline fn euclid(comptime T: type, a: T, b: T) @Int(.unsigned, @bitSizeOf(T)) {
    var p = @abs(a);
    var q = @abs(b);
    while (q != 0) {
        const rest = p % q;
        p = q;
        q = rest;
    }
    return p;
}

/// A guess of 2e-3 (Winitzki, "A handy approximation for the error function and its inverse", 2008)
/// and two steps of Halley's method, each of which cubes the error.
noinline fn inverseError(x: f64, order: u32) f64 {
    assert(order == 0);
    const m = @abs(x);
    if (m >= 1 or m != m) return if (m == 1) std.math.copysign(inf, x) else nan;
    const a = 0.147;
    const logarithm = libm.log1p(-m * m);
    const half = 2.0 / (pi * a) + logarithm / 2;
    const product = -logarithm / a;
    var y = @sqrt(product / (@sqrt(half * half + product) + half));
    for (0..2) |_| {
        // From 1/2 on, the distance from 1 has the digits.
        const miss = if (m < 0.5) libm.erf(y) - m else (1 - m) - libm.erfc(y);
        const step = miss * (@sqrt(pi) / 2.0) * libm.exp(y * y);
        y -= step / (1 + y * step);
    }
    return std.math.copysign(y, x);
}

/// (-1)^k (zeta(k) - 1) / k for k = 2, 3, ...: lgamma(2 + z) in powers of z, but for z itself.
const around_two = [_]f64{
    0.322467033424113218,    -0.0673523010531980951,  0.0205808084277845479,
    -0.00738555102867398527, 0.00289051033074152329,  -0.00119275391170326098,
    5.09669524743042422e-4,  -2.2315475845357938e-4,  9.94575127818085337e-5,
    -4.49262367381331417e-5, 2.05072127756706916e-5,  -9.4394882752683959e-6,
    4.3748667899074878e-6,   -2.03921575380136624e-6, 9.55141213040741983e-7,
    -4.49246919876456604e-7, 2.12071848055546659e-7,  -1.00432248239680996e-7,
    4.76981016936398057e-8,  -2.27110946089431649e-8, 1.08386592148969541e-8,
    -5.18347504197004666e-9, 2.48367454380247832e-9,  -1.19214014058609121e-9,
};
const one_less_euler = 0.42278433509846713939;

fn polynomial(z: f64, coefficients: []const f64) f64 {
    var sum: f64 = 0;
    var k = coefficients.len;
    while (k > 0) {
        k -= 1;
        sum = sum * z + coefficients[k];
    }
    return sum;
}

/// lgamma(2 + z) for |z| <= 1/2.
fn logGammaNearTwo(z: f64) f64 {
    return z * (one_less_euler + z * polynomial(z, &around_two));
}

/// B_2k / (2k (2k - 1)): Stirling's series from 10 on.
const stirling = [_]f64{
    1.0 / 12.0,  -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360360.0,
    1.0 / 156.0,
};
const half_log_two_pi = 0.91893853320467274178;

noinline fn logGamma(x: f64, order: u32) f64 {
    assert(order == 0);
    if (x != x) return x;
    if (@abs(x) < 0.5) return logGammaNearTwo(x) - libm.log1p(x) - libm.log(@abs(x));
    if (x < 0) {
        if (x == @floor(x)) return inf; // the poles, and -infinity
        // Gamma(x) Gamma(-x) = -pi / (x sin(pi x)), with the sine of the distance to a pole.
        const sine = @abs(libm.sin(pi * (x - @round(x))));
        return libm.log(pi / (-x * sine)) - logGamma(-x, 0);
    }
    if (x < 1.5) return logGammaNearTwo(x - 1) - libm.log1p(x - 1);
    if (x < 10) {
        const steps = @floor(x - 1.5);
        var product: f64 = 1;
        var k: f64 = 1;
        while (k <= steps) : (k += 1) product *= x - k;
        return logGammaNearTwo(x - (steps + 2)) + libm.log(product);
    }
    const series = polynomial(1 / (x * x), &stirling) / x;
    return (x - 0.5) * (libm.log(x) - 1) - 0.5 + half_log_two_pi + series;
}

/// B_2k / 2k, negated.
const digamma_series = [_]f64{
    -1.0 / 12.0,     1.0 / 120.0, -1.0 / 252.0,    1.0 / 240.0, -1.0 / 132.0,
    691.0 / 32760.0, -1.0 / 12.0, 3617.0 / 8160.0,
};

noinline fn digamma(x: f64) f64 {
    if (x == 0) return -1 / x;
    if (x < 0) {
        // psi(1 - x) - psi(x) = pi cot(pi x), of the distance to a pole; NaN at one.
        const distance = x - @round(x);
        if (distance == 0) return nan;
        return digamma(1 - x) - pi / libm.tan(pi * distance);
    }
    var shifted = x;
    var sum: f64 = 0;
    while (shifted < 10) : (shifted += 1) sum -= 1 / shifted;
    const square = 1 / (shifted * shifted);
    return sum + (libm.log(shifted) - 0.5 / shifted + square * polynomial(square, &digamma_series));
}

/// B_2k / (2k)! for k = 1, 2, ...
const euler_maclaurin = [_]f64{
    0.0833333333333333333,    -0.00138888888888888889,  3.30687830687830688e-5,
    -8.2671957671957672e-7,   2.0876756987868099e-8,    -5.28419013868749318e-10,
    1.33825365306846788e-11,  -3.38968029632258287e-13, 8.58606205627784456e-15,
    -2.17486869855806187e-16, 5.50900282836022952e-18,  -1.39544646858125233e-19,
};

/// The sum of (q + k)^-s over k = 0, 1, ..., by the Euler-Maclaurin formula from q + k >= s + 10
/// on. For q > 0.
fn hurwitz(s: f64, q: f64) f64 {
    assert(s >= 2);
    var at = q;
    var sum: f64 = 0;
    while (at < s + 10) : (at += 1) sum += libm.pow(at, -s);
    if (at == inf) return 0;
    var tail: f64 = 0.5;
    // Each factor in turn, so that neither overflows: s (s + 1) ... (s + 2k - 2) / at^(2k - 1).
    var factor = s / at;
    for (euler_maclaurin, 0..) |coefficient, k| {
        tail += coefficient * factor;
        const next = s + 2 * @as(f64, @floatFromInt(k));
        factor *= (next + 1) / at * ((next + 2) / at);
    }
    return sum + libm.pow(at, 1 - s) * (1 / (s - 1) + tail / at);
}

/// Derivative `order` of digamma, which is (-1)^(order + 1) order! zeta(order + 1, x).
noinline fn logGammaDerivative(x: f64, order: u32) f64 {
    if (x != x or x == -inf) return nan;
    if (order == 0) return digamma(x);
    const s: f64 = @floatFromInt(order + 1);
    const even = order % 2 == 1; // s is
    var zeta = if (x > 0) hurwitz(s, x) else libm.pow(x, -s);
    if (x < 0) {
        // All poles less those that x has passed, by the distance to the nearest one.
        const distance = x - @round(x);
        if (distance == 0) return if (even) inf else nan;
        const sign: f64 = if (even) 1 else -1;
        const above = libm.pow(1 + distance, -s);
        const below = sign * libm.pow(1 - distance, -s);
        // The two nearest first: midway between them they cancel.
        zeta = libm.pow(distance, -s) + if (distance > 0) below else above;
        zeta += if (distance > 0) above else below;
        zeta += hurwitz(s, 2 + distance);
        zeta += sign * (hurwitz(s, 2 - distance) - hurwitz(s, 1 - x));
    }
    var factorial: f64 = 1;
    for (1..order + 1) |k| factorial *= @floatFromInt(k);
    return if (even) factorial * zeta else -factorial * zeta;
}

/// The modified Bessel function of the first kind: its power series, whose terms have one sign, or
/// from 40 on, where that takes too many, the asymptotic expansion.
noinline fn besselI(x: f64, order: u32) f64 {
    if (x != x) return x;
    const n: f64 = @floatFromInt(order);
    const m = @abs(x);
    const value = if (m >= 40 and m >= n * n) besselFar(m, n) else besselNear(m, order);
    return if (order % 2 == 1) std.math.copysign(value, x) else value;
}

fn besselNear(m: f64, order: u32) f64 {
    const half = m / 2;
    const square = half * half;
    const n: f64 = @floatFromInt(order);
    var term: f64 = 1;
    for (1..order + 1) |k| term *= half / @as(f64, @floatFromInt(k));
    var sum = term;
    var k: f64 = 1;
    // The terms grow up to k = m / 2 at most, and then fall faster than a geometric series.
    while (term > sum * 0x1p-54 and sum < inf) : (k += 1) {
        term *= square / (k * (k + n));
        sum += term;
    }
    return sum;
}

fn besselFar(m: f64, n: f64) f64 {
    if (m > 800) return inf;
    var term: f64 = 1;
    var sum: f64 = 1;
    var k: f64 = 1;
    while (@abs(term) > 0x1p-55) : (k += 1) {
        const odd = 2 * k - 1;
        term *= (odd * odd - 4 * n * n) / (8 * k * m);
        sum += term;
    }
    // exp(m) alone overflows before the value does.
    const root = libm.exp(m / 2);
    return root / @sqrt(2 * pi * m) * sum * root;
}

// ---- tests -------------------------------------------------------------------------------------

fn expectNear(want: f64, got: f64, roundings: f64, scale: f64) !void {
    const error_max = roundings * std.math.floatEps(f64) * @max(@abs(want), scale);
    if (@abs(got - want) <= error_max) return;
    std.debug.print("got {e}, not {e}\n", .{ got, want });
    return error.TooFarOff;
}

test "erfinv: known values, small and near 1" {
    const known = [_][2]f64{
        .{ 1e-10, 8.86226925452758046e-11 }, .{ 0.1, 0.088855990494257692 },
        .{ 0.5, 0.476936276204469873 },      .{ -0.75, -0.813419847597618542 },
        .{ 0.9999, 2.75106390571207969 },    .{ 0.99999999999, 4.81292405894483254 },
    };
    for (known) |pair| try expectNear(pair[1], inverseError(pair[0], 0), 2, 0);
    try std.testing.expectEqual(inf, inverseError(1, 0));
    try std.testing.expectEqual(-inf, inverseError(-1, 0));
    try std.testing.expect(std.math.isNan(inverseError(1.0000001, 0)));
    try std.testing.expect(std.math.signbit(inverseError(-0.0, 0)));
}

test "lgamma: known values, the roots at 1 and 2, the poles" {
    const known = [_][2]f64{
        .{ 0.1, 2.2527126517342059 },           .{ 0.75, 0.203280951431295371 },
        .{ 1.0000001, -5.7721558299185071e-8 }, .{ 1.5, -0.120782237635245222 },
        .{ 1.99, -0.0041955290887916687 },      .{ 2.25, 0.124871714892396594 },
        .{ 3.7, 1.42807232666538813 },          .{ 9.5, 11.6893334207972685 },
        .{ 12.25, 18.1156695057108926 },        .{ 100, 359.134205369575399 },
        .{ -0.5, 1.2655121234846454 },          .{ -1.25, 1.36643176123697623 },
        .{ -7.75, -8.58184776355186667 },       .{ 1, 0 },
        .{ 2, 0 },
    };
    for (known) |pair| try expectNear(pair[1], logGamma(pair[0], 0), 4, 0);
    for ([_]f64{ 0, -0.0, -1, -1e300, inf, -inf }) |x| {
        try std.testing.expectEqual(inf, logGamma(x, 0));
    }
}

test "polygamma: known values and the poles" {
    const Case = struct { n: u32, x: f64, want: f64 };
    const known = [_]Case{
        .{ .n = 0, .x = 0.1, .want = -10.4237549404110762 },
        .{ .n = 0, .x = 1.25, .want = -0.227453533376265408 },
        .{ .n = 0, .x = 3, .want = 0.922784335098467139 },
        .{ .n = 0, .x = 40, .want = 3.67632737403484313 },
        .{ .n = 0, .x = -3.7, .want = -0.845076858870419355 },
        .{ .n = 1, .x = 0.5, .want = 4.93480220054467931 },
        .{ .n = 1, .x = 3, .want = 0.394934066848226436 },
        .{ .n = 2, .x = 0.25, .want = -129.32773993753692 },
        .{ .n = 3, .x = 10, .want = 0.00231990130428986839 },
        .{ .n = 7, .x = 2.5, .want = 3.56523635252313135 },
        .{ .n = 20, .x = 1.5, .want = -487772949462609.874 },
        .{ .n = 1, .x = -0.75, .want = 18.9751069322848885 },
        .{ .n = 2, .x = -1.25, .want = 123.72136678366236 },
        .{ .n = 60, .x = 30, .want = -7.57937196800081865e-9 },
    };
    for (known) |case| {
        const got = logGammaDerivative(case.x, case.n);
        try expectNear(case.want, got, 8 + @as(f64, @floatFromInt(case.n)), 0);
    }
    try expectNear(-4.35146369587697737e-8, digamma(1.4616321), 8, 1);
    try std.testing.expectEqual(-inf, digamma(0));
    try std.testing.expect(std.math.isNan(digamma(-2)));
    try std.testing.expectEqual(inf, logGammaDerivative(-2, 1));
    try std.testing.expect(std.math.isNan(logGammaDerivative(-2, 2)));
    try std.testing.expectEqual(@as(f64, 0), logGammaDerivative(inf, 1));
}

test "bessel_i: known values, both methods, overflow" {
    const Case = struct { n: u32, x: f64, want: f64 };
    const known = [_]Case{
        .{ .n = 0, .x = 0.5, .want = 1.06348337074132352 },
        .{ .n = 1, .x = -0.5, .want = -0.257894305390896316 },
        .{ .n = 2, .x = 3, .want = 2.24521244092995115 },
        .{ .n = 0, .x = 45, .want = 2.08341407517731482e18 },
        .{ .n = 3, .x = 100, .want = 1.02627401756519006e42 },
        .{ .n = 0, .x = 600, .want = 6.1463054039368448e258 },
        .{ .n = 30, .x = 50, .want = 42749936497955949.0 },
        .{ .n = 5, .x = 1e-3, .want = 2.60416677517361332e-19 },
        .{ .n = 0, .x = 0, .want = 1 },
        .{ .n = 4, .x = 0, .want = 0 },
    };
    for (known) |case| {
        const got = besselI(case.x, case.n);
        try expectNear(case.want, got, 4 + @abs(case.x) / 4, 0);
    }
    try std.testing.expectEqual(inf, besselI(-1e300, 0));
    try std.testing.expectEqual(-inf, besselI(-inf, 3));
    // The two methods meet where one takes over from the other.
    try expectNear(besselFar(50, 1), besselNear(50, 1), 64, 0);
}

test "gcd: signs, zeros and the number that has no counterpart" {
    const V = @Vector(8, i8);
    const a: V = .{ 12, -12, 0, 0, -128, -128, 127, 35 };
    const b: V = .{ 18, 18, 5, 0, 0, 64, -128, -21 };
    const got: [8]i8 = gcd(a, b);
    try std.testing.expectEqualSlices(i8, &.{ 6, 6, 5, 0, -128, 64, 1, 7 }, &got);
}
