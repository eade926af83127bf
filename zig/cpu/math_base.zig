//! What the vector mathematics of this folder is built from: multiply-add with and without
//! hardware, Horner's rule, bit access, and the libm functions that serve the rare cases lane by
//! lane. Every function takes and returns a `@Vector(N, f32)` or `@Vector(N, f64)` of any length
//! N.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;

/// Without a fused multiply-add in hardware `@mulAdd` is a library call for each lane.
pub const has_fma = builtin.cpu.arch == .aarch64 or
    (builtin.cpu.arch == .x86_64 and builtin.cpu.has(.x86, .fma));

pub const has_avx512 = builtin.cpu.arch == .x86_64 and builtin.cpu.has(.x86, .avx512f) and
    builtin.cpu.has(.x86, .avx512dq) and builtin.zig_backend == .stage2_llvm;

/// Bytes of the vector registers of this object.
pub const vector_bytes = if (builtin.cpu.arch != .x86_64)
    16
else if (has_avx512)
    64
else if (builtin.cpu.has(.x86, .avx2))
    32
else
    16;

pub fn Child(comptime V: type) type {
    return @typeInfo(V).vector.child;
}

pub fn laneCount(comptime V: type) comptime_int {
    return @typeInfo(V).vector.len;
}

/// The unsigned integers with the bits of `V`.
pub fn Bits(comptime V: type) type {
    return @Vector(laneCount(V), @Int(.unsigned, @bitSizeOf(Child(V))));
}

pub fn SignedBits(comptime V: type) type {
    return @Vector(laneCount(V), @Int(.signed, @bitSizeOf(Child(V))));
}

pub fn Wide(comptime V: type) type {
    return @Vector(laneCount(V), f64);
}

pub inline fn splat(comptime V: type, comptime value: comptime_float) V {
    return @splat(value);
}

/// `a*b + c`, rounded once where the hardware can and twice where it cannot.
pub inline fn fma(a: anytype, b: @TypeOf(a), c: @TypeOf(a)) @TypeOf(a) {
    return if (has_fma) @mulAdd(@TypeOf(a), a, b, c) else a * b + c;
}

/// `c[0] + c[1] x + c[2] x^2 + ...`
pub inline fn horner(x: anytype, comptime c: []const comptime_float) @TypeOf(x) {
    const V = @TypeOf(x);
    var sum: V = @splat(c[c.len - 1]);
    comptime var i = c.len - 1;
    inline while (i > 0) {
        i -= 1;
        sum = fma(sum, x, splat(V, c[i]));
    }
    return sum;
}

pub inline fn select(mask: anytype, a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    return @select(Child(@TypeOf(a)), mask, a, b);
}

/// The magnitude of `magnitude` with the sign bit of `sign`.
pub inline fn copySign(magnitude: anytype, sign: @TypeOf(magnitude)) @TypeOf(magnitude) {
    const V = @TypeOf(magnitude);
    const top: Bits(V) = @splat(1 << (@bitSizeOf(Child(V)) - 1));
    const m: Bits(V) = @bitCast(magnitude);
    const s: Bits(V) = @bitCast(sign);
    return @bitCast((m & ~top) | (s & top));
}

pub inline fn isNan(x: anytype) @Vector(laneCount(@TypeOf(x)), bool) {
    return x != x;
}

pub inline fn widen(x: anytype) Wide(@TypeOf(x)) {
    return @floatCast(x);
}

pub inline fn narrow(x: anytype) @Vector(laneCount(@TypeOf(x)), f32) {
    return @floatCast(x);
}

/// Shift counts for integer vectors.
pub inline fn shiftCount(comptime I: type, comptime n: comptime_int) @Vector(
    laneCount(I),
    std.math.Log2Int(Child(I)),
) {
    return @splat(n);
}

/// The nearest integer to `x * factor` (near ties either one) as a float `n`, and the bits whose
/// low part is that integer in two's complement. Right below 2^21 (float32) and 2^51 (float64).
pub fn Rounded(comptime V: type) type {
    return struct { n: V, bits: Bits(V) };
}

pub inline fn roundToInteger(x: anytype, comptime factor: comptime_float) Rounded(@TypeOf(x)) {
    const V = @TypeOf(x);
    const magic = splat(V, if (Child(V) == f32) 0x1.8p23 else 0x1.8p52);
    const t = fma(x, splat(V, factor), magic);
    return .{ .n = t - magic, .bits = @bitCast(t) };
}

/// Half to even for any x; zeros, infinities and NaN as they are.
pub inline fn roundHalfEven(x: anytype) @TypeOf(x) {
    const V = @TypeOf(x);
    const whole = splat(V, if (Child(V) == f32) 0x1p23 else 0x1p52);
    const magnitude = @abs(x);
    const rounded = (magnitude + whole) - whole;
    return select(magnitude < whole, copySign(rounded, x), x);
}

/// The leading `bits` bits of a constant, and what `T` holds of the rest.
pub fn Split(comptime T: type) type {
    return struct { high: T, low: T };
}

pub fn splitConstant(
    comptime T: type,
    comptime c: comptime_float,
    comptime bits: comptime_int,
) Split(T) {
    const I = @Int(.unsigned, @bitSizeOf(T));
    const mantissa = std.math.floatMantissaBits(T) + 1;
    comptime assert(bits < mantissa);
    const mask = ~@as(I, 0) << (mantissa - bits);
    const high: T = @bitCast(@as(I, @bitCast(@as(T, c))) & mask);
    return .{ .high = high, .low = @floatCast(@as(f128, c) - @as(f128, high)) };
}

/// The part of a vector of one, two or four 64-byte registers that one instruction works on.
fn Register(comptime V: type) type {
    return @Vector(64 / @sizeOf(Child(V)), Child(V));
}

/// Register `index` of a vector. (A cast to an array would go element by element.)
inline fn registerOf(comptime index: comptime_int, v: anytype) Register(@TypeOf(v)) {
    const count = comptime laneCount(Register(@TypeOf(v)));
    const first: @Vector(count, i32) = @splat(index * count);
    return @shuffle(Child(@TypeOf(v)), v, undefined, std.simd.iota(i32, count) + first);
}

/// `f` of each register of `a` and `b`.
inline fn eachRegister(comptime f: anytype, a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    return switch (@sizeOf(@TypeOf(a)) / 64) {
        1 => f(a, b),
        2 => std.simd.join(
            f(registerOf(0, a), registerOf(0, b)),
            f(registerOf(1, a), registerOf(1, b)),
        ),
        4 => std.simd.join(
            std.simd.join(
                f(registerOf(0, a), registerOf(0, b)),
                f(registerOf(1, a), registerOf(1, b)),
            ),
            std.simd.join(
                f(registerOf(2, a), registerOf(2, b)),
                f(registerOf(3, a), registerOf(3, b)),
            ),
        ),
        else => comptime unreachable,
    };
}

inline fn scaleRegister(p: anytype, n: @TypeOf(p)) @TypeOf(p) {
    const R = @TypeOf(p);
    return if (Child(R) == f32)
        asm ("vscalefps %[n], %[p], %[d]"
            : [d] "=v" (-> R),
            : [p] "v" (p),
              [n] "v" (n),
        )
    else
        asm ("vscalefpd %[n], %[p], %[d]"
            : [d] "=v" (-> R),
            : [p] "v" (p),
              [n] "v" (n),
        );
}

/// `p * 2^n` rounded once, of vectors of whole 64-byte registers; AVX-512 only.
pub inline fn scaleInHardware(p: anytype, n: @TypeOf(p)) @TypeOf(p) {
    comptime assert(has_avx512);
    return eachRegister(scaleRegister, p, n);
}

inline fn quotientRegister(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const R = @TypeOf(a);
    const r = asm ("vrcp14ps %[b], %[r]"
        : [r] "=v" (-> R),
        : [b] "v" (b),
    );
    const near = a * r;
    return fma(fma(-near, b, a), r, near);
}

/// a/b for finite a and b in [1, 2^100]: rounded correctly, or within 0.6 ulp from a reciprocal to
/// 14 bits and its residual (float32 with AVX-512, where division is the slowest instruction).
pub inline fn quotient(a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const V = @TypeOf(a);
    if (has_avx512 and Child(V) == f32 and @sizeOf(V) % 64 == 0) {
        return eachRegister(quotientRegister, a, b);
    }
    return a / b;
}

/// The functions of the C library, float64 each: at most 1-2 ulp, all arguments.
pub const libm = struct {
    pub extern "c" fn sin(f64) f64;
    pub extern "c" fn cos(f64) f64;
    pub extern "c" fn tan(f64) f64;
    pub extern "c" fn asin(f64) f64;
    pub extern "c" fn acos(f64) f64;
    pub extern "c" fn atan(f64) f64;
    pub extern "c" fn atan2(f64, f64) f64;
    pub extern "c" fn sinh(f64) f64;
    pub extern "c" fn cosh(f64) f64;
    pub extern "c" fn tanh(f64) f64;
    pub extern "c" fn asinh(f64) f64;
    pub extern "c" fn acosh(f64) f64;
    pub extern "c" fn atanh(f64) f64;
    pub extern "c" fn exp(f64) f64;
    pub extern "c" fn exp2(f64) f64;
    pub extern "c" fn expm1(f64) f64;
    pub extern "c" fn log(f64) f64;
    pub extern "c" fn log1p(f64) f64;
    pub extern "c" fn log2(f64) f64;
    pub extern "c" fn log10(f64) f64;
    pub extern "c" fn erf(f64) f64;
    pub extern "c" fn erfc(f64) f64;
    pub extern "c" fn cbrt(f64) f64;
    pub extern "c" fn pow(f64, f64) f64;
    pub extern "c" fn fmod(f64, f64) f64;
};

pub const Unary = *const fn (f64) callconv(.c) f64;
pub const Binary = *const fn (f64, f64) callconv(.c) f64;

/// `f` of every lane.
pub inline fn eachLane(x: anytype, f: Unary) @TypeOf(x) {
    const V = @TypeOf(x);
    var lanes: [laneCount(V)]Child(V) = x;
    for (&lanes) |*lane| lane.* = @floatCast(f(lane.*));
    return lanes;
}

pub inline fn eachLanePair(x: anytype, y: @TypeOf(x), f: Binary) @TypeOf(x) {
    const V = @TypeOf(x);
    var lanes: [laneCount(V)]Child(V) = x;
    const others: [laneCount(V)]Child(V) = y;
    for (&lanes, others) |*lane, other| lane.* = @floatCast(f(lane.*, other));
    return lanes;
}

test "rounding to even keeps zeros, large values and NaN" {
    const V = @Vector(8, f32);
    const x: V = .{ 0.5, 1.5, -2.5, -0.25, 0x1.8p23, -std.math.inf(f32), 8388607.5, -0.0 };
    const y: [8]f32 = roundHalfEven(x);
    try std.testing.expectEqualSlices(
        f32,
        &.{ 0, 2, -2, -0.0, 0x1.8p23, -std.math.inf(f32), 8388608, -0.0 },
        &y,
    );
    try std.testing.expect(std.math.signbit(y[3]) and std.math.signbit(y[7]));
    const nan: @Vector(2, f64) = @splat(std.math.nan(f64));
    try std.testing.expect(@reduce(.And, isNan(roundHalfEven(nan))));
}

test "a split constant adds up" {
    const s = splitConstant(f64, std.math.ln2, 32);
    try std.testing.expectEqual(@as(f64, std.math.ln2), s.high + s.low);
    try std.testing.expectEqual(@as(u64, 0), @as(u64, @bitCast(s.high)) & 0x1fffff);
}
