//! Tests of the fused elementwise engine against scalar models: every operation over the dtypes it
//! is legal on, operands of every class, several results, results in the memory of operands.
const std = @import("std");
const kernel_abi = @import("kernel_abi.zig");
const dtype = @import("../dtype.zig");
const elementwise = @import("elementwise.zig");
const tile_ops = @import("tile_ops.zig");
const plan = @import("elementwise_plan.zig");
const math = @import("math.zig");
const DType = dtype.DType;
const Bf16 = dtype.Bf16;
const Operand = kernel_abi.Operand;
const Builder = elementwise.Builder;
const TileOp = elementwise.TileOp;
const testing = std.testing;

/// Runs all tasks of a region, in reverse: they are independent.
pub fn execute(g: *const elementwise.Geometry, ptrs: []const [*]u8) !void {
    const scratch = try testing.allocator.alignedAlloc(u8, .@"64", g.work.scratch_bytes + 64);
    defer testing.allocator.free(scratch);
    // Whatever a register holds before it is written must not matter.
    @memset(scratch, 0xa5);
    var cancel: u32 = 0;
    var status: kernel_abi.Status = .{};
    var ctx: kernel_abi.TaskContext = .{
        .scratch = scratch.ptr,
        .cancel = &cancel,
        .status = &status,
    };
    var task = g.work.task_count;
    while (task > 0) {
        task -= 1;
        elementwise.run(g, ptrs.ptr, task, &ctx);
    }
    try testing.expectEqual(kernel_abi.Fault.none, status.fault);
}

/// Values that meet the special cases of each dtype.
fn sample(comptime d: DType, random: std.Random) dtype.Storage(d) {
    const kind = random.uintLessThan(u32, 8);
    switch (d) {
        .bool => return random.int(u1),
        .f16, .bf16, .f32, .f64 => {
            const specials = [_]f64{
                0.0,
                -0.0,
                1.0,
                -1.0,
                std.math.inf(f64),
                -std.math.inf(f64),
                std.math.nan(f64),
                2.5,
                -0.5,
                3.0,
                1e-30,
                7e4,
            };
            const x = switch (kind) {
                0, 1 => specials[random.uintLessThan(usize, specials.len)],
                2 => @as(f64, @floatFromInt(random.intRangeAtMost(i32, -9, 9))),
                3 => (random.float(f64) - 0.5) * 2e5,
                else => (random.float(f64) - 0.5) * 8,
            };
            return if (d == .bf16) Bf16.fromF32(@floatCast(x)) else @floatCast(x);
        },
        else => {
            const T = dtype.Storage(d);
            return switch (kind) {
                0 => std.math.maxInt(T),
                1 => std.math.minInt(T),
                2 => 0,
                3, 4, 5 => small: {
                    const wide: u64 = @bitCast(random.intRangeAtMost(i64, -9, 9));
                    const low: @Int(.unsigned, @bitSizeOf(T)) = @truncate(wide);
                    break :small @bitCast(low);
                },
                else => random.int(T),
            };
        },
    }
}

fn toDouble(comptime d: DType, x: dtype.Storage(d)) f64 {
    return switch (d) {
        .bf16 => x.toF32(),
        else => if (comptime d.isFloat()) x else @floatFromInt(x),
    };
}

fn floorDivide(a: f64, b: f64, comptime T: type) f64 {
    if (b == 0) return @as(T, @floatCast(a)) / @as(T, @floatCast(b));
    const rest = math.libm.fmod(a, b);
    var q = (a - rest) / b;
    if (rest != 0 and (rest < 0) != (b < 0)) q -= 1;
    if (std.math.isNan(q)) return q;
    return if (q == 0) std.math.copysign(q, a / b) else @round(q);
}

fn floatRemainder(a: f64, b: f64) f64 {
    const rest = math.libm.fmod(a, b);
    if (std.math.isNan(rest)) return rest;
    if (rest == 0) return std.math.copysign(@as(f64, 0), b);
    return if ((rest < 0) != (b < 0)) rest + b else rest;
}

fn halfEven(x: f64) f64 {
    const down = @floor(x);
    if (std.math.isNan(x) or x == down) return x;
    const gap = x - down;
    const even = @mod(down, 2) == 0;
    return std.math.copysign(if (gap < 0.5 or gap == 0.5 and even) down else down + 1, x);
}

fn vector(x: f64) @Vector(1, f64) {
    return @splat(x);
}

fn lane(x: @Vector(1, f64)) f64 {
    return x[0];
}

/// The value of a float operation, in float64; comparisons and tests give 0 or 1.
fn modelFloat(op: TileOp, a: f64, b: f64, c: f64, comptime T: type) f64 {
    const nan = std.math.nan(f64);
    const l = math.libm;
    return switch (op) {
        .negative => -a,
        .abs => @abs(a),
        .sign => if (a > 0) 1 else if (a < 0) -1 else a,
        .sqrt => @sqrt(a),
        .rsqrt => 1 / @sqrt(a),
        .cbrt => l.cbrt(a),
        .square => a * a,
        .reciprocal => 1 / a,
        .exp => l.exp(a),
        .exp2 => l.exp2(a),
        .expm1 => l.expm1(a),
        .log => l.log(a),
        .log1p => l.log1p(a),
        .log2 => l.log2(a),
        .log10 => l.log10(a),
        .sin => l.sin(a),
        .cos => l.cos(a),
        .tan => l.tan(a),
        .arcsin => l.asin(a),
        .arccos => l.acos(a),
        .arctan => l.atan(a),
        .sinh => l.sinh(a),
        .cosh => l.cosh(a),
        .tanh => l.tanh(a),
        .arcsinh => l.asinh(a),
        .arccosh => l.acosh(a),
        .arctanh => l.atanh(a),
        .erf => l.erf(a),
        .erfc => l.erfc(a),
        .sigmoid => if (a < 0) l.exp(a) / (1 + l.exp(a)) else 1 / (1 + l.exp(-a)),
        .floor => @floor(a),
        .ceil => @ceil(a),
        .trunc => @trunc(a),
        .round => halfEven(a),
        .isnan => @floatFromInt(@intFromBool(std.math.isNan(a))),
        .isinf => @floatFromInt(@intFromBool(std.math.isInf(a))),
        .isfinite => @floatFromInt(@intFromBool(std.math.isFinite(a))),
        .integer_power => 1 / (a * a * a),
        // Their values are tested in math_special.zig; here it is that each lane is its own.
        .erfinv => lane(math.erfinv(vector(a))),
        .lgamma => lane(math.lgamma(vector(a))),
        .polygamma => lane(math.polygamma(vector(a), 2)),
        .bessel_i => lane(math.bessel_i(vector(a), 2)),
        .add => a + b,
        .subtract => a - b,
        .multiply => a * b,
        .divide => a / b,
        .floor_divide => floorDivide(a, b, T),
        .remainder => floatRemainder(a, b),
        .power => l.pow(a, b),
        .maximum => if (a != a or b != b) nan else @max(a, b),
        .minimum => if (a != a or b != b) nan else @min(a, b),
        .arctan2 => l.atan2(a, b),
        .where => if (c != 0) a else b,
        else => modelCompare(op, a, b),
    };
}

fn modelCompare(op: TileOp, a: anytype, b: @TypeOf(a)) @TypeOf(a) {
    const t: u1 = @intFromBool(switch (op) {
        .equal => a == b,
        .not_equal => a != b,
        .less => a < b,
        .less_equal => a <= b,
        .greater => a > b,
        .greater_equal => a >= b,
        .logical_not => a == 0,
        .logical_and => a != 0 and b != 0,
        .logical_or => a != 0 or b != 0,
        .logical_xor => (a != 0) != (b != 0),
        else => unreachable,
    });
    return if (@typeInfo(@TypeOf(a)) == .float) @floatFromInt(t) else t;
}

fn wrappingPower(comptime T: type, x: i128, exponent: i128) i128 {
    if (exponent < 0) {
        if (x == 1) return 1;
        if (x == -1) return if (@mod(exponent, 2) == 0) 1 else -1;
        return 0;
    }
    const U = @Int(.unsigned, @bitSizeOf(T));
    var factor: U = @truncate(@as(u128, @bitCast(x)));
    var result: U = 1;
    var rest = exponent;
    while (rest > 0) : (rest = @divTrunc(rest, 2)) {
        if (@mod(rest, 2) == 1) result *%= factor;
        factor *%= factor;
    }
    return result;
}

/// By subtraction of multiples, which keeps the sign of what is divided.
fn commonDivisor(a: i128, b: i128) i128 {
    var p = a;
    var q = b;
    while (q != 0) {
        const rest = @rem(p, q);
        p = q;
        q = rest;
    }
    return if (p < 0) -p else p;
}

/// The value of an integer or bool operation before wrapping.
fn modelInteger(op: TileOp, a: i128, b: i128, c: i128, comptime T: type) i128 {
    const bits = @bitSizeOf(T);
    const is_signed = @typeInfo(T).int.signedness == .signed;
    return switch (op) {
        .negative => -a,
        .abs => if (a < 0) -a else a,
        .sign => std.math.sign(a),
        .square => a *% a,
        .floor, .ceil, .trunc, .round => a,
        .isnan, .isinf => 0,
        .isfinite => 1,
        .bitwise_not => -1 - a,
        .integer_power => wrappingPower(T, a, 5),
        .add => a + b,
        .subtract => a - b,
        .multiply => a *% b,
        .floor_divide => if (b == 0) 0 else @divFloor(a, b),
        .remainder => if (b == 0) 0 else a - @divFloor(a, b) * b,
        .power => wrappingPower(T, a, b),
        .gcd => commonDivisor(a, b),
        .maximum => @max(a, b),
        .minimum => @min(a, b),
        .bitwise_and => a & b,
        .bitwise_or => a | b,
        .bitwise_xor => a ^ b,
        .left_shift => if (b < 0 or b >= bits) 0 else a << @intCast(b),
        .right_shift => if (b >= 0 and b < bits)
            a >> @intCast(b)
        else if (is_signed and a < 0) -1 else 0,
        .where => if (c != 0) a else b,
        else => modelCompare(op, a, b),
    };
}

/// Whether `got` is the correctly rounded `want`, or near it by `ulps` of the dtype.
fn near(comptime d: DType, got: dtype.Storage(d), want: f64, ulps: f64) bool {
    const x = toDouble(d, got);
    if (std.math.isNan(want)) return std.math.isNan(x);
    const mantissa: i32, const smallest: i32, const largest: f64 = switch (d) {
        .f16 => .{ 10, -14, 65504 },
        .bf16 => .{ 7, -126, 0x1.fep127 },
        .f32 => .{ 23, -126, std.math.floatMax(f32) },
        else => .{ 52, -1022, std.math.floatMax(f64) },
    };
    if (std.math.isInf(want) or @abs(want) > largest) {
        const overflow = std.math.isInf(x) or @abs(x) == largest;
        return overflow and (x > 0) == (want > 0);
    }
    const last_place = std.math.ldexp(@as(f64, 1), -mantissa);
    if (std.math.isInf(x)) return @abs(want) >= largest * (1 - last_place);
    if (want == 0) return x == 0 and std.math.signbit(x) == std.math.signbit(want);
    const exponent = @max(std.math.frexp(want).exponent - 1, smallest);
    return @abs(x - want) <= ulps * std.math.ldexp(@as(f64, 1), exponent - mantissa);
}

/// Last places allowed: half for what IEEE rounds correctly, the bound of math.zig otherwise.
fn tolerance(op: TileOp, d: DType) f64 {
    return switch (op) {
        .negative, .abs, .sign, .sqrt, .square, .reciprocal => 0.5000001,
        .add, .subtract, .multiply => 0.5000001,
        .divide, .floor, .ceil, .trunc, .round, .maximum, .minimum, .where => 0.5000001,
        .integer_power => 4,
        .floor_divide, .remainder => 1,
        else => if (d == .f64) 4 else 2.01,
    };
}

const length = 331;

fn checkOperation(comptime op: TileOp, comptime d: DType, random: std.Random) !void {
    const S = dtype.Storage(d);
    const out_dtype = comptime tile_ops.resultKind(op, d);
    const R = dtype.Storage(out_dtype);
    var a: [length]S = undefined;
    var b: [length]S = undefined;
    var condition: [length]u8 = undefined;
    var out: [length]R = undefined;
    for (&a, &b, &condition) |*x, *y, *t| {
        x.* = sample(d, random);
        y.* = sample(d, random);
        t.* = random.int(u1);
    }
    // Exponents that wrap are fine, but those of a model in float64 are not worth more digits.
    const dims = [_]u64{length};
    var builder: Builder = .init(&dims);
    const ra = try builder.addLoad(.contiguous(d, &dims), 1);
    const rb = try builder.addLoad(.contiguous(d, &dims), 2);
    const rc = try builder.addLoad(.contiguous(.bool, &dims), 3);
    const immediate: i64 = switch (op) {
        .integer_power => if (d.isFloat()) -3 else 5,
        .polygamma, .bessel_i => 2,
        else => 0,
    };
    const result = switch (op.arity()) {
        1 => try builder.addOp(op, d, out_dtype, &.{ra}, immediate),
        2 => try builder.addOp(op, d, out_dtype, &.{ ra, rb }, 0),
        else => try builder.addOp(op, d, out_dtype, &.{ rc, ra, rb }, 0),
    };
    try builder.addStore(result, out_dtype, 0);
    const g = try builder.finish();
    try execute(&g, &.{ @ptrCast(&out), @ptrCast(&a), @ptrCast(&b), @ptrCast(&condition) });
    for (out, a, b, condition) |got, x, y, t| {
        if (comptime d.isFloat()) {
            const T = dtype.Compute(d);
            const want = modelFloat(op, toDouble(d, x), toDouble(d, y), @floatFromInt(t), T);
            const ok = if (comptime out_dtype == .bool)
                got == @as(u8, @trunc(want))
            else
                near(out_dtype, got, want, tolerance(op, d)) or
                    // Either zero will do.
                    (op == .maximum or op == .minimum) and toDouble(d, got) == want;
            if (ok) continue;
            const p = .{ op, d, toDouble(d, x), toDouble(d, y), got, want };
            std.debug.print("{t} {t}: ({e}, {e}) gives {any}, not {e}\n", p);
        } else {
            const want = modelInteger(op, x, y, t, S);
            const bits: @Int(.unsigned, @bitSizeOf(R)) = @truncate(@as(u128, @bitCast(want)));
            const one_bit = d == .bool and op == .bitwise_not;
            const expected: R = if (one_bit) @intCast(bits & 1) else @bitCast(bits);
            if (got == expected) continue;
            const p = .{ op, d, x, y, got, expected };
            std.debug.print("{t} {t}: ({d}, {d}) gives {d}, not {d}\n", p);
        }
        return error.WrongValue;
    }
}

test "every operation on every dtype against a scalar model" {
    var prng: std.Random.DefaultPrng = .init(7);
    var failed = false;
    @setEvalBranchQuota(100_000);
    inline for (0..@backingInt(TileOp.cast)) |n| {
        inline for (0..DType.count) |k| {
            const op: TileOp = @fromBackingInt(@intCast(n));
            const d: DType = @fromBackingInt(@intCast(k));
            if (comptime tile_ops.isLegal(op, d)) checkOperation(op, d, prng.random()) catch {
                failed = true;
            };
        }
    }
    try testing.expect(!failed);
}

fn modelCast(comptime from: DType, comptime to: DType, x: dtype.Storage(from)) dtype.Storage(to) {
    const R = dtype.Storage(to);
    if (to == .bool) return @intFromBool(toDouble(from, x) != 0);
    if (comptime from.isFloat() and !to.isFloat()) {
        const wide = toDouble(from, x);
        if (std.math.isNan(wide)) return 0;
        if (wide >= @as(f64, @floatFromInt(std.math.maxInt(R)))) return std.math.maxInt(R);
        if (wide <= @as(f64, @floatFromInt(std.math.minInt(R)))) return std.math.minInt(R);
        return @trunc(wide);
    }
    if (comptime !from.isFloat() and !to.isFloat()) {
        const bits: u128 = @bitCast(@as(i128, x));
        return @bitCast(@as(@Int(.unsigned, @bitSizeOf(R)), @truncate(bits)));
    }
    // float128 holds every value exactly, so there is one rounding.
    const wide: f128 = switch (from) {
        .bf16 => x.toF32(),
        .f16, .f32, .f64 => x,
        else => @floatFromInt(x),
    };
    return if (to == .bf16) nearestBrain(wide) else @floatCast(wide);
}

/// By halving the gap between neighbours, independent of bit tricks.
fn nearestBrain(x: f128) Bf16 {
    if (std.math.isNan(x)) return .{ .bits = 0x7fc0 };
    var low: u16 = 0;
    var high: u16 = 0x7f80;
    const m = @abs(x);
    while (high - low > 1) {
        const middle = low + (high - low) / 2;
        if (@as(f128, (Bf16{ .bits = middle }).toF32()) <= m) low = middle else high = middle;
    }
    const below: f128 = (Bf16{ .bits = low }).toF32();
    // Infinity counts as 2^128 here.
    const above: f128 = if (high == 0x7f80) 0x1p128 else (Bf16{ .bits = high }).toF32();
    const up = m - below > above - m or m - below == above - m and low & 1 == 1;
    const bits = if (std.math.isInf(x) or up) high else low;
    return .{ .bits = if (std.math.signbit(x)) bits | 0x8000 else bits };
}

fn checkCast(comptime from: DType, comptime to: DType, random: std.Random) !void {
    const S = dtype.Storage(from);
    const R = dtype.Storage(to);
    var a: [length]S = undefined;
    var out: [length]R = undefined;
    for (&a) |*x| x.* = sample(from, random);
    const dims = [_]u64{length};
    var builder: Builder = .init(&dims);
    const ra = try builder.addLoad(.contiguous(from, &dims), 1);
    const result = try builder.addOp(.cast, from, to, &.{ra}, 0);
    try builder.addStore(result, to, 0);
    const g = try builder.finish();
    try execute(&g, &.{ @ptrCast(&out), @ptrCast(&a) });
    for (out, a) |got, x| {
        const want = modelCast(from, to, x);
        const both_nan = std.math.isNan(toDouble(to, got)) and std.math.isNan(toDouble(to, want));
        if (both_nan or std.meta.eql(got, want)) continue;
        const p = .{ from, to, toDouble(from, x), got, want };
        std.debug.print("cast {t} {t}: {e} gives {any}, not {any}\n", p);
        return error.WrongValue;
    }
}

test "every cast against a model in float128" {
    var prng: std.Random.DefaultPrng = .init(8);
    var failed = false;
    inline for (0..DType.count) |f| {
        inline for (0..DType.count) |t| {
            const from: DType = @fromBackingInt(@intCast(f));
            const to: DType = @fromBackingInt(@intCast(t));
            checkCast(from, to, prng.random()) catch {
                failed = true;
            };
        }
    }
    try testing.expect(!failed);
}
