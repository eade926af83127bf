//! The micro-operations of the tile interpreter (elementwise.zig): their numbers, which dtypes
//! each is legal on, their costs, and the table of functions that carry them out on a tile.
//!
//! Registers hold the computing type of a dtype: float16 and bfloat16 live as float32, everything
//! else as itself, a bool as a byte 0 or 1. An operation on `n` elements (a multiple of `granule`)
//! reads registers `a`, `b`, `c` and writes `dst`; `dst` may be one of its sources if the element
//! sizes agree.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const arithmetic = @import("tile_arithmetic.zig");
const convert = @import("tile_cast.zig");
const math = @import("math.zig");

/// Tile operations work on multiples of this many elements: the lanes of a 64-byte vector of bytes.
pub const granule = 64;

/// Named as the opcodes of the wire format where the meaning is theirs; numbers are internal.
pub const TileOp = enum(u8) {
    negative,
    abs,
    sign,
    sqrt,
    rsqrt,
    cbrt,
    square,
    reciprocal,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log2,
    log10,
    sin,
    cos,
    tan,
    arcsin,
    arccos,
    arctan,
    sinh,
    cosh,
    tanh,
    arcsinh,
    arccosh,
    arctanh,
    erf,
    erfc,
    sigmoid,
    floor,
    ceil,
    trunc,
    round,
    isnan,
    isinf,
    isfinite,
    logical_not,
    bitwise_not,
    integer_power,
    erfinv,
    lgamma,
    polygamma,
    bessel_i,
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    remainder,
    power,
    maximum,
    minimum,
    arctan2,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    logical_and,
    logical_or,
    logical_xor,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    left_shift,
    right_shift,
    gcd,
    where,
    /// Conversion to the result's dtype; the builder turns it into one of the `cast_` operations.
    cast,

    // What follows is made by the builder only.

    /// a*b + c, a*b - c and c - a*b, rounded twice as the separate operations are.
    multiply_add,
    multiply_subtract,
    subtract_multiply,
    /// Fetch a tile of a strided operand.
    load,
    /// Move a register, whatever its dtype.
    copy,
    cast_bool,
    cast_u8,
    cast_u16,
    cast_u32,
    cast_u64,
    cast_i8,
    cast_i16,
    cast_i32,
    cast_i64,
    cast_f32,
    cast_f64,
    /// Round to a half type, the result in float32.
    round_f16,
    round_bf16,
    /// Between half types in memory and float32 registers.
    widen_f16,
    widen_bf16,
    narrow_f16,
    narrow_bf16,

    pub const count = @typeInfo(TileOp).@"enum".field_names.len;

    /// Number of register sources.
    pub fn arity(op: TileOp) u32 {
        const n = @backingInt(op);
        if (op == .where) return 3;
        if (n >= @backingInt(TileOp.add) and n <= @backingInt(TileOp.gcd)) return 2;
        return switch (op) {
            .multiply_add, .multiply_subtract, .subtract_multiply => 3,
            .load => 0,
            else => 1,
        };
    }

    /// Whether a number stands beside the sources: an exponent, or the order of a derivative.
    pub fn hasImmediate(op: TileOp) bool {
        return switch (op) {
            .integer_power, .polygamma, .bessel_i => true,
            else => false,
        };
    }

    pub fn isComparison(op: TileOp) bool {
        const n = @backingInt(op);
        return n >= @backingInt(TileOp.equal) and n <= @backingInt(TileOp.greater_equal);
    }

    pub fn isLogical(op: TileOp) bool {
        return switch (op) {
            .logical_not, .logical_and, .logical_or, .logical_xor => true,
            else => false,
        };
    }

    pub fn isTest(op: TileOp) bool {
        return op == .isnan or op == .isinf or op == .isfinite;
    }
};

/// What a value of dtype `d` is in a register.
pub fn registerKind(d: DType) DType {
    return switch (d) {
        .f16, .bf16 => .f32,
        else => d,
    };
}

/// The dtype of the result of `op` on operands of `d` (for `where`: of its branches).
pub fn resultKind(op: TileOp, d: DType) DType {
    if (op.isComparison() or op.isLogical() or op.isTest()) return .bool;
    return switch (op) {
        .cast_bool => .bool,
        .cast_u8 => .u8,
        .cast_u16 => .u16,
        .cast_u32 => .u32,
        .cast_u64 => .u64,
        .cast_i8 => .i8,
        .cast_i16 => .i16,
        .cast_i32 => .i32,
        .cast_i64 => .i64,
        .cast_f64 => .f64,
        .cast_f32, .round_f16, .round_bf16, .widen_f16, .widen_bf16 => .f32,
        .narrow_f16 => .f16,
        .narrow_bf16 => .bf16,
        else => d,
    };
}

/// Whether a program may contain `op` (one of the wire's) on operands of dtype `d`. Rounding and
/// the tests for NaN are legal on integers, where they are trivial.
pub fn isLegal(op: TileOp, d: DType) bool {
    if (!d.isValid()) return false;
    const number = @backingInt(op);
    if (number > @backingInt(TileOp.cast)) return false;
    return switch (op) {
        .cast, .where, .logical_not, .logical_and, .logical_or, .logical_xor => true,
        .equal, .not_equal, .less, .less_equal, .greater, .greater_equal => true,
        .maximum, .minimum, .isnan, .isinf, .isfinite, .abs, .sign => true,
        .floor, .ceil, .trunc, .round => d != .bool,
        .negative, .square, .integer_power, .add, .subtract, .multiply => d != .bool,
        .floor_divide, .remainder, .power => d != .bool,
        .bitwise_not, .bitwise_and, .bitwise_or, .bitwise_xor => !d.isFloat(),
        .left_shift, .right_shift, .gcd => d.isInteger(),
        else => d.isFloat(),
    };
}

/// `dst[i] = op(a[i], b[i], c[i])` for i < n; `immediate` is the number of an operation that has
/// one (`TileOp.hasImmediate`).
/// Operations of fewer sources ignore the rest.
pub const TileFn = *const fn (
    dst: [*]u8,
    a: [*]const u8,
    b: [*]const u8,
    c: [*]const u8,
    n: usize,
    immediate: i64,
) void;

/// The kind whose function serves `op` on registers of `kind`, or null if there is none: operations
/// that do not depend on the sign (or only on the size) of an element share one function.
pub fn canonicalKind(op: TileOp, kind: DType) ?DType {
    if (kind == .f16 or kind == .bf16) {
        // Half types are in memory only.
        return switch (op) {
            .widen_f16 => if (kind == .f16) .f16 else null,
            .widen_bf16 => if (kind == .bf16) .bf16 else null,
            .copy => .u16,
            else => null,
        };
    }
    const unsigned: DType = switch (kind.bytes()) {
        1 => .u8,
        2 => .u16,
        4 => .u32,
        else => .u64,
    };
    return switch (op) {
        .where, .copy => unsigned,
        .widen_f16, .widen_bf16, .load, .cast => null,
        .narrow_f16, .narrow_bf16 => if (kind == .f32) .f32 else null,
        .round_f16, .round_bf16 => switch (kind) {
            .f32, .f64, .u64, .i64 => kind,
            else => null,
        },
        .multiply_add, .multiply_subtract, .subtract_multiply => if (kind.isFloat()) kind else null,
        .cast_f32, .cast_f64 => castKind(op, kind),
        .cast_u8, .cast_u16, .cast_u32, .cast_u64 => castKind(op, kind),
        // Integers of one size are the same bits: only floats care for the sign of the result.
        .cast_i8, .cast_i16, .cast_i32, .cast_i64 => if (kind.isFloat()) kind else null,
        .cast_bool => if (kind == .bool) null else if (kind.isFloat()) kind else unsigned,
        .isnan, .isinf, .isfinite => if (kind.isFloat()) kind else null,
        .floor, .ceil, .trunc, .round => if (kind.isFloat()) kind else null,
        .logical_not, .logical_and, .logical_or, .logical_xor => if (kind == .bool) .bool else null,
        .bitwise_not => if (kind == .bool) .bool else if (kind.isFloat()) null else unsigned,
        .abs => if (kind == .bool or kind.isInteger() and !kind.isSigned()) null else kind,
        .sign => if (kind == .bool) null else kind,
        else => binaryKind(op, kind, unsigned),
    };
}

fn castKind(op: TileOp, kind: DType) ?DType {
    const source: DType = if (kind == .bool) .u8 else kind;
    const to = resultKind(op, source);
    if (source == to) return null;
    if (source.isFloat() or to.isFloat()) return source;
    if (source.bytes() == to.bytes()) return null;
    if (source.bytes() < to.bytes()) return source;
    // Narrowing drops high bits, whatever they mean.
    return switch (source.bytes()) {
        2 => .u16,
        4 => .u32,
        else => .u64,
    };
}

fn binaryKind(op: TileOp, kind: DType, unsigned: DType) ?DType {
    if (!isLegal(op, kind)) return null;
    if (kind.isFloat()) return kind;
    return switch (op) {
        .negative, .square, .integer_power, .add, .subtract, .multiply => unsigned,
        .equal, .not_equal, .bitwise_and, .bitwise_or, .bitwise_xor, .left_shift => unsigned,
        else => if (kind == .bool) .u8 else kind,
    };
}

/// Rough nanoseconds per element on one core with wide vectors.
pub fn cost(op: TileOp, kind: DType) f64 {
    const size: f64 = @floatFromInt(kind.bytes());
    const light = 0.012 * size;
    const double = kind == .f64;
    return switch (op) {
        .exp, .exp2 => if (double) 1.0 else 0.25,
        .sigmoid, .tanh, .log, .erf => if (double) 1.5 else 0.5,
        .sin, .cos, .expm1 => if (double) 1.5 else 1.0,
        .log1p, .log2, .log10, .sinh, .cosh, .arcsinh, .arccosh, .arctanh => rare(double, 2.0),
        .tan, .arcsin, .arccos, .arctan, .erfc, .cbrt, .arctan2 => rare(double, 2.0),
        .power => if (kind.isFloat()) rare(double, 3.5) else 3.0,
        .divide, .sqrt, .rsqrt, .reciprocal => 0.05 * size,
        .floor_divide, .remainder => if (kind.isFloat() or kind.bytes() == 8) 4.0 else 0.6,
        .integer_power => 0.5,
        .erfinv, .lgamma, .polygamma, .bessel_i => 100.0,
        .gcd => 60.0,
        .load => 0.2 * size,
        else => light,
    };
}

/// float64 versions of the rare functions are calls lane by lane.
fn rare(double: bool, vector: f64) f64 {
    return if (double) 12.0 else vector;
}

const kind_count = DType.count;

/// `table[op][kind of the sources]`. Referenced by the kernel objects only.
pub const table: [TileOp.count][kind_count]?TileFn = build: {
    @setEvalBranchQuota(10_000_000);
    var t: [TileOp.count][kind_count]?TileFn = @splat(@splat(null));
    for (&t, 0..) |*row, i| {
        const op: TileOp = @fromBackingInt(@intCast(i));
        for (row, 0..) |*entry, k| {
            const kind = canonicalKind(op, @fromBackingInt(@intCast(k))) orelse continue;
            entry.* = tileFunction(op, kind);
        }
    }
    break :build t;
};

fn tileFunction(comptime op: TileOp, comptime kind: DType) TileFn {
    return Tile(op, kind).run;
}

/// Vectors each turn of the loop works on: light operations need a few to hide the loop itself.
fn unrolling(comptime op: TileOp, comptime lanes: comptime_int) comptime_int {
    return switch (op) {
        .negative, .abs, .square, .add, .subtract, .multiply => @min(4, granule / lanes),
        .maximum, .minimum, .where, .copy => @min(4, granule / lanes),
        .multiply_add, .multiply_subtract, .subtract_multiply => @min(4, granule / lanes),
        else => 1,
    };
}

/// Registers that make up one vector of the operation: with two, long chains of dependent
/// instructions overlap. Worth it where there are 32 registers to keep the constants in.
fn interleaving(comptime op: TileOp, comptime kind: DType) comptime_int {
    if (!math.has_avx512 or kind != .f32) return 1;
    return switch (op) {
        .exp, .exp2, .sigmoid, .tanh, .log, .erf => 2,
        else => 1,
    };
}

fn Tile(comptime op: TileOp, comptime kind: DType) type {
    const S = dtype.Storage(kind);
    const result = resultKind(op, kind);
    const R = dtype.Storage(result);
    const widest: comptime_int = @max(kind.bytes(), result.bytes());
    const lanes = math.vector_bytes / widest * interleaving(op, kind);
    const unroll = unrolling(op, lanes);
    comptime assert(granule % (lanes * unroll) == 0);
    // A condition is a bool, whatever the branches are.
    const A = if (op == .where) u8 else S;
    return struct {
        fn run(
            dst: [*]u8,
            a: [*]const u8,
            b: [*]const u8,
            c: [*]const u8,
            n: usize,
            immediate: i64,
        ) void {
            @setEvalBranchQuota(100_000);
            assert(n % granule == 0);
            const to: [*]R = @ptrCast(@alignCast(dst));
            const pa: [*]const A = @ptrCast(@alignCast(a));
            const pb: [*]const S = @ptrCast(@alignCast(b));
            const pc: [*]const S = @ptrCast(@alignCast(c));
            var i: usize = 0;
            while (i < n) : (i += lanes * unroll) {
                inline for (0..unroll) |u| {
                    const at = i + u * lanes;
                    step(to + at, pa + at, pb + at, pc + at, immediate);
                }
            }
        }

        inline fn step(
            to: [*]R,
            pa: [*]const A,
            pb: [*]const S,
            pc: [*]const S,
            immediate: i64,
        ) void {
            switch (op) {
                .widen_f16 => to[0..lanes].* = convert.widenHalf(lanes, pa),
                .widen_bf16 => to[0..lanes].* = convert.widenBrain(lanes, pa),
                .narrow_f16 => convert.narrowHalf(lanes, to, pa[0..lanes].*),
                .narrow_bf16 => convert.narrowBrain(lanes, to, pa[0..lanes].*),
                .round_f16 => to[0..lanes].* = convert.roundHalf(lanes, kind, pa[0..lanes].*),
                .round_bf16 => to[0..lanes].* = convert.roundBrain(lanes, kind, pa[0..lanes].*),
                .where => {
                    const condition: @Vector(lanes, u8) = pa[0..lanes].*;
                    const x: @Vector(lanes, S) = pb[0..lanes].*;
                    const y: @Vector(lanes, S) = pc[0..lanes].*;
                    const zero: @Vector(lanes, u8) = @splat(0);
                    to[0..lanes].* = @select(S, condition != zero, x, y);
                },
                else => {
                    const x: @Vector(lanes, S) = pa[0..lanes].*;
                    to[0..lanes].* = switch (comptime op.arity()) {
                        1 => if (comptime isCast(op))
                            convert.cast(kind, result, x)
                        else
                            arithmetic.unary(op, kind, x, immediate),
                        2 => arithmetic.binary(op, kind, x, pb[0..lanes].*),
                        else => arithmetic.ternary(op, x, pb[0..lanes].*, pc[0..lanes].*),
                    };
                },
            }
        }
    };
}

fn isCast(op: TileOp) bool {
    const n = @backingInt(op);
    return n >= @backingInt(TileOp.cast_bool) and n <= @backingInt(TileOp.cast_f64);
}
