//! Vector mathematics: every function takes a `@Vector(N, f32)` or `@Vector(N, f64)` of any length
//! and returns the same type. float32 is within 2 ulp over all arguments (tests below), float64
//! within 4, but for those of math_special, which says its own bounds. The functions live in
//! math_exp, math_log, math_trig, math_erf and math_special; this file is their index and holds
//! the sweeps.
const std = @import("std");
const base = @import("math_base.zig");
const exponential = @import("math_exp.zig");
const logarithm = @import("math_log.zig");
const trigonometry = @import("math_trig.zig");
const error_function = @import("math_erf.zig");
const special = @import("math_special.zig");

pub const has_fma = base.has_fma;
pub const has_avx512 = base.has_avx512;
pub const vector_bytes = base.vector_bytes;
pub const fma = base.fma;
pub const horner = base.horner;
pub const select = base.select;
pub const copySign = base.copySign;
pub const roundHalfEven = base.roundHalfEven;
pub const libm = base.libm;

pub const exp = exponential.exp;
pub const exp2 = exponential.exp2;
pub const expm1 = exponential.expm1;
pub const sigmoid = exponential.sigmoid;
pub const tanh = exponential.tanh;
pub const sinh = exponential.sinh;
pub const cosh = exponential.cosh;
pub const log = logarithm.log;
pub const log1p = logarithm.log1p;
pub const log2 = logarithm.log2;
pub const log10 = logarithm.log10;
pub const arcsinh = logarithm.arcsinh;
pub const arccosh = logarithm.arccosh;
pub const arctanh = logarithm.arctanh;
pub const power = logarithm.power;
pub const sin = trigonometry.sin;
pub const cos = trigonometry.cos;
pub const tan = trigonometry.tan;
pub const arcsin = trigonometry.arcsin;
pub const arccos = trigonometry.arccos;
pub const arctan = trigonometry.arctan;
pub const arctan2 = trigonometry.arctan2;
pub const erf = error_function.erf;
pub const erfc = error_function.erfc;
pub const cbrt = error_function.cbrt;
pub const rsqrt = error_function.rsqrt;
pub const erfinv = special.erfinv;
pub const lgamma = special.lgamma;
pub const polygamma = special.polygamma;
pub const bessel_i = special.bessel_i;
pub const gcd = special.gcd;

/// Lanes of a vector register that holds `T`.
pub fn lanes(comptime T: type) comptime_int {
    return vector_bytes / @sizeOf(T);
}

// ---- tests -------------------------------------------------------------------------------------

fn sigmoidReference(x: f64) callconv(.c) f64 {
    return if (x < 0) libm.exp(x) / (1 + libm.exp(x)) else 1 / (1 + libm.exp(-x));
}

fn rsqrtReference(x: f64) callconv(.c) f64 {
    return 1 / @sqrt(x);
}

const Case = struct { name: []const u8, reference: base.Unary, ulp_64: f64 = 4 };

const cases = [_]Case{
    .{ .name = "exp", .reference = libm.exp },
    .{ .name = "exp2", .reference = libm.exp2 },
    .{ .name = "expm1", .reference = libm.expm1 },
    .{ .name = "log", .reference = libm.log },
    .{ .name = "log1p", .reference = libm.log1p },
    .{ .name = "log2", .reference = libm.log2 },
    .{ .name = "log10", .reference = libm.log10 },
    .{ .name = "sin", .reference = libm.sin },
    .{ .name = "cos", .reference = libm.cos },
    .{ .name = "tan", .reference = libm.tan },
    .{ .name = "arcsin", .reference = libm.asin },
    .{ .name = "arccos", .reference = libm.acos },
    .{ .name = "arctan", .reference = libm.atan },
    .{ .name = "sinh", .reference = libm.sinh },
    .{ .name = "cosh", .reference = libm.cosh },
    .{ .name = "tanh", .reference = libm.tanh },
    .{ .name = "arcsinh", .reference = libm.asinh },
    .{ .name = "arccosh", .reference = libm.acosh },
    .{ .name = "arctanh", .reference = libm.atanh },
    .{ .name = "erf", .reference = libm.erf },
    .{ .name = "erfc", .reference = libm.erfc },
    .{ .name = "sigmoid", .reference = sigmoidReference },
    .{ .name = "rsqrt", .reference = rsqrtReference },
    .{ .name = "cbrt", .reference = libm.cbrt },
};

/// Distance of `got` from `want` in units of the last place of T at `want`; infinite where the
/// classes (NaN, infinity, sign of a zero) differ.
fn ulpDistance(comptime T: type, got: T, want: f64) f64 {
    const rounded: T = @floatCast(want);
    if (std.math.isNan(want)) return if (std.math.isNan(got)) 0 else std.math.inf(f64);
    if (std.math.isInf(rounded) or std.math.isInf(got)) {
        // At the edge of the range the neighbour of infinity is the largest number.
        const largest = std.math.floatMax(T);
        if (got == rounded) return 0;
        const near = @abs(got) >= largest and @abs(rounded) >= largest;
        return if (near and (got > 0) == (rounded > 0)) 1 else std.math.inf(f64);
    }
    if (got == 0 and rounded == 0) {
        return if (std.math.signbit(got) == std.math.signbit(rounded)) 0 else std.math.inf(f64);
    }
    const magnitude = @max(@abs(want), @as(f64, std.math.floatMin(T)));
    const exponent = std.math.frexp(magnitude).exponent - 1;
    const unit = std.math.ldexp(@as(f64, 1), exponent - std.math.floatMantissaBits(T));
    return @abs(@as(f64, got) - want) / unit;
}

/// Points of a sweep: dense enough to meet every exponent many times.
const sweep_points: u64 = if (@import("builtin").mode == .debug) 1 << 16 else 1 << 20;

fn sweep(comptime T: type, comptime case: Case, bound: f64) !void {
    @setEvalBranchQuota(100_000);
    const n = lanes(T);
    const I = @Int(.unsigned, @bitSizeOf(T));
    // An odd step near 2^bits/points visits all exponents and both signs evenly.
    const step: I = @truncate((@as(u128, 1) << @bitSizeOf(T)) / sweep_points | 1);
    const f = @field(@This(), case.name);
    var bits: I = 0;
    var worst: f64 = 0;
    var at: T = 0;
    var i: u64 = 0;
    while (i < sweep_points) : (i += n) {
        var x: [n]T = undefined;
        for (&x) |*lane| {
            lane.* = @bitCast(bits);
            bits +%= step;
        }
        // The step never meets a negative zero.
        if (i == 0) x[n - 1] = -0.0;
        const y: [n]T = f(@as(@Vector(n, T), x));
        for (x, y) |argument, got| {
            const distance = ulpDistance(T, got, case.reference(argument));
            if (distance > worst) {
                worst = distance;
                at = argument;
            }
        }
    }
    if (worst > bound) {
        std.debug.print("{s} {s}: {d:.3} ulp at {e}\n", .{ case.name, @typeName(T), worst, at });
        return error.TooFarOff;
    }
}

test "float32 functions are within 2 ulp over all exponents" {
    var failed = false;
    inline for (cases) |case| sweep(f32, case, 2) catch {
        failed = true;
    };
    try std.testing.expect(!failed);
}

test "float64 functions are within 4 ulp over all exponents" {
    var failed = false;
    inline for (cases) |case| sweep(f64, case, case.ulp_64) catch {
        failed = true;
    };
    try std.testing.expect(!failed);
}

fn sweepPairs(comptime f: anytype, comptime reference: base.Binary, bound: f64) !void {
    @setEvalBranchQuota(100_000);
    const n = lanes(f32);
    const awkward = [_]f32{
        0,
        -0.0,
        1,
        -1,
        2,
        -2,
        3,
        0.5,
        -3,
        1e-45,
        16777215,
        -16777216,
        3e38,
        std.math.inf(f32),
        -std.math.inf(f32),
        std.math.nan(f32),
    };
    var prng: std.Random.DefaultPrng = .init(3);
    const random = prng.random();
    var i: u64 = 0;
    while (i < sweep_points) : (i += n) {
        var x: [n]f32 = undefined;
        var y: [n]f32 = undefined;
        for (&x, &y, 0..) |*a, *b, lane| {
            const k = i + lane;
            a.* = if (k < 256) awkward[k % 16] else @bitCast(random.int(u32));
            b.* = if (k < 256) awkward[k / 16] else @bitCast(random.int(u32));
            // Half of the pairs near 1, where powers stay in range.
            if (k >= 256 and k % 2 == 0) {
                a.* = random.float(f32) * 4 - 0.5;
                b.* = (random.float(f32) - 0.5) * 60;
            }
        }
        const V = @Vector(n, f32);
        const z: [n]f32 = f(@as(V, x), @as(V, y));
        for (x, y, z) |a, b, got| {
            if (ulpDistance(f32, got, reference(a, b)) <= bound) continue;
            std.debug.print("({e}, {e}) gives {e}, not {e}\n", .{ a, b, got, reference(a, b) });
            return error.TooFarOff;
        }
    }
}

test "float32 power and arctan2 are within 2 ulp on pairs, special values included" {
    try sweepPairs(power, libm.pow, 2);
    try sweepPairs(arctan2, libm.atan2, 2);
}
