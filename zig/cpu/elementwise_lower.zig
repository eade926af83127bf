//! Operations of the wire format in terms of those the tile interpreter has a function for: half
//! types widened, casts chosen, trivial operations dropped, powers with a fixed exponent
//! shortened.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const tile_ops = @import("tile_ops.zig");
const plan = @import("elementwise_plan.zig");
const DType = dtype.DType;
const TileOp = tile_ops.TileOp;
const Builder = plan.Builder;
const Error = plan.Error;
const Register = plan.Register;

/// See `Builder.addOp`, which checks the arguments.
pub fn operation(
    b: *Builder,
    op: TileOp,
    dtype_in: DType,
    dtype_out: DType,
    sources: []const Register,
    immediate: i64,
) Error!Register {
    if (op == .cast) return cast(b, sources[0], dtype_out);
    const integer = !dtype_in.isFloat();
    switch (op) {
        .isnan, .isinf => if (integer) return b.addConstant(.bool, 0),
        .isfinite => if (integer) return b.addConstant(.bool, 1),
        .floor, .ceil, .trunc, .round => if (integer) return sources[0],
        .abs => if (!dtype_in.isSigned()) return sources[0],
        .sign => if (dtype_in == .bool) return sources[0],
        .integer_power => return integerPower(b, dtype_in, sources[0], immediate),
        else => {},
    }
    var registers: [3]Register = undefined;
    for (sources, 0..) |source, i| {
        const is_condition = op == .where and i == 0;
        const truth = op.isLogical() or is_condition;
        registers[i] = if (truth) try cast(b, source, .bool) else try widened(b, source);
    }
    const kind = if (op.isLogical()) DType.bool else tile_ops.registerKind(dtype_in);
    // A selection among exact half values is exact.
    const selects = switch (op) {
        .where, .maximum, .minimum, .negative, .abs => true,
        else => false,
    };
    const first: usize = if (op == .where) 1 else 0;
    var rounded = selects;
    for (registers[first..sources.len]) |r| rounded = rounded and b.values[r].rounded;
    return pushOperation(
        b,
        op,
        kind,
        registers[0..sources.len],
        immediate,
        tile_ops.resultKind(op, dtype_in),
        rounded,
    );
}

fn pushOperation(
    b: *Builder,
    op: TileOp,
    kind: DType,
    sources: []const Register,
    immediate: i64,
    result: DType,
    rounded: bool,
) Error!Register {
    var all: [3]Register = @splat(sources[0]);
    @memcpy(all[0..sources.len], sources);
    return b.push(.{
        .source = .{ .op = .{ .code = op, .kind = kind, .sources = all, .immediate = immediate } },
        .dtype = result,
        .rounded = rounded,
    });
}

/// The value in a register of its computing type.
pub fn widened(b: *Builder, r: Register) Error!Register {
    const value = b.values[r];
    if (!value.raw) return r;
    // One widening serves all uses.
    for (b.values[0..b.value_count], 0..) |other, i| {
        if (other.source != .op) continue;
        const o = other.source.op;
        if (o.sources[0] != r) continue;
        if (o.code == .widen_f16 or o.code == .widen_bf16) return @intCast(i);
    }
    const code: TileOp = if (value.dtype == .f16) .widen_f16 else .widen_bf16;
    return pushOperation(b, code, value.dtype, &.{r}, 0, value.dtype, true);
}

/// The value of a half type without the extra precision of its register.
fn exactHalf(b: *Builder, r: Register) Error!Register {
    const wide = try widened(b, r);
    const value = b.values[wide];
    if (value.rounded) return wide;
    return pushOperation(b, roundCode(value.dtype), .f32, &.{wide}, 0, value.dtype, true);
}

fn roundCode(d: DType) TileOp {
    assert(d == .f16 or d == .bf16);
    return if (d == .f16) .round_f16 else .round_bf16;
}

/// Another name for a register, as dtype `d` of the same bits.
fn renamed(b: *Builder, r: Register, d: DType, rounded: bool) Error!Register {
    assert(!b.values[r].raw);
    return b.push(.{ .source = .{ .alias = r }, .dtype = d, .rounded = rounded });
}

/// The value converted to `to`, rounded once.
pub fn cast(b: *Builder, r: Register, to: DType) Error!Register {
    const from = b.values[r].dtype;
    if (from == to) return r;
    const from_half = from == .f16 or from == .bf16;
    const source = if (from_half) try exactHalf(b, r) else r;
    const kind = tile_ops.registerKind(from);
    if (to == .f16 or to == .bf16) return castToHalf(b, source, to);
    if (kind == to) return renamed(b, source, to, false);
    if (to == .bool) return pushOperation(b, .cast_bool, kind, &.{source}, 0, to, false);
    if (!kind.isFloat() and !to.isFloat() and kind.bytes() == to.bytes()) {
        return renamed(b, source, to, false);
    }
    const code: TileOp = switch (to) {
        .u8 => .cast_u8,
        .u16 => .cast_u16,
        .u32 => .cast_u32,
        .u64 => .cast_u64,
        .i8 => if (kind.isFloat()) .cast_i8 else .cast_u8,
        .i16 => if (kind.isFloat()) .cast_i16 else .cast_u16,
        .i32 => if (kind.isFloat()) .cast_i32 else .cast_u32,
        .i64 => if (kind.isFloat()) .cast_i64 else .cast_u64,
        .f32 => .cast_f32,
        .f64 => .cast_f64,
        else => unreachable,
    };
    return pushOperation(b, code, kind, &.{source}, 0, to, false);
}

fn castToHalf(b: *Builder, source: Register, to: DType) Error!Register {
    const kind = b.values[source].kind();
    const code = roundCode(to);
    switch (kind) {
        .f32, .f64, .u64, .i64 => return pushOperation(b, code, kind, &.{source}, 0, to, true),
        else => {
            // 32 bits are exact in float64, fewer in float32.
            const wide: DType = if (kind.bytes() == 4) .f64 else .f32;
            const convert: TileOp = if (wide == .f64) .cast_f64 else .cast_f32;
            const exact = try pushOperation(b, convert, kind, &.{source}, 0, wide, false);
            return pushOperation(b, code, wide, &.{exact}, 0, to, true);
        },
    }
}

fn integerPower(b: *Builder, d: DType, r: Register, exponent: i64) Error!Register {
    const kind = tile_ops.registerKind(d);
    if (exponent == 1) return r;
    const source = try widened(b, r);
    if (exponent == 2) return pushOperation(b, .square, kind, &.{source}, 0, d, false);
    if (exponent == 3) {
        const square = try pushOperation(b, .square, kind, &.{source}, 0, d, false);
        return pushOperation(b, .multiply, kind, &.{ square, source }, 0, d, false);
    }
    if (exponent == -1 and d.isFloat()) {
        return pushOperation(b, .reciprocal, kind, &.{source}, 0, d, false);
    }
    return pushOperation(b, .integer_power, kind, &.{source}, exponent, d, false);
}
