//! The type rule of every opcode: operand types and attributes to result types. `Check` holds one
//! instruction while it is looked at; the rules of the larger families are in
//! `verify_infer_structure.zig`, `_reduce.zig`, `_indexing.zig`, `_neural.zig`, `_linalg.zig` and
//! `_control.zig`.
//!
//! Operand types are legal (`ir.Type.isLegal`), operand counts and attribute words are as the
//! opcode's row says; everything else is checked here.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("dtype.zig");
const ir = @import("ir.zig");
const op = @import("op.zig");
const shape = @import("shape.zig");
const special = @import("cpu/math_special.zig");
const Message = @import("diagnostic.zig").Message;
const structure = @import("verify_infer_structure.zig");
const reduce = @import("verify_infer_reduce.zig");
const indexing = @import("verify_infer_indexing.zig");
const neural = @import("verify_infer_neural.zig");
const linalg = @import("verify_infer_linalg.zig");
const control = @import("verify_infer_control.zig");

const DType = dtype.DType;
const Type = ir.Type;

/// The instruction does not type-check; `Check.message` says why.
pub const Error = error{InvalidProgram};

/// Most results of an opcode that has a fixed number of them.
pub const results_max = 3;

pub const Result = struct {
    dtype: DType,
    dims: shape.Dims,

    pub fn typeOf(r: *const Result) Type {
        return .{ .dtype = r.dtype, .dims = r.dims.slice() };
    }
};

pub const Check = struct {
    code: op.Code,
    operands: []const Type,
    attrs: []const i64,
    /// The blocks that the instruction may run.
    blocks: []const ir.Program = &.{},
    /// What `resultAt` is found from where it does not follow from operands or blocks.
    results: [results_max]Result = undefined,
    result_count: usize = 0,
    message: Message = .none,
    /// The operand the message is about.
    operand: ?u32 = null,

    pub fn fail(c: *Check, message: Message) Error {
        @branchHint(.cold);
        assert(message != .none);
        c.message = message;
        return error.InvalidProgram;
    }

    pub fn failOperand(c: *Check, message: Message, operand: usize) Error {
        @branchHint(.cold);
        c.operand = @intCast(operand);
        return c.fail(message);
    }

    /// Inferred result k, once `infer` has found no fault.
    pub fn resultAt(c: *const Check, k: usize) Result {
        assert(k < c.result_count);
        if (c.code == .barrier) {
            const t = c.operands[k];
            return .{ .dtype = t.dtype, .dims = .from(t.dims) };
        }
        return if (c.code.traits().region) control.resultAt(c, k) else c.results[k];
    }

    pub inline fn attr(
        c: *const Check,
        comptime name: []const u8,
    ) op.KindType(op.kindOf(name)) {
        return ir.attrOf(c.code, c.attrs, name);
    }

    /// Adds a result. The rank is within the limit; the size may not be, which is an error.
    pub fn give(c: *Check, element: DType, dims: shape.Dims) Error!void {
        assert(c.result_count < results_max);
        const result = &c.results[c.result_count];
        result.* = .{ .dtype = element, .dims = dims };
        if (!result.typeOf().isLegal()) return c.fail(.shape_overflow);
        c.result_count += 1;
    }

    pub fn giveLike(c: *Check, element: DType, dims: []const i64) Error!void {
        return c.give(element, .from(dims));
    }

    /// The operand's dtype is in the domain of the opcode.
    pub fn wantDomain(c: *Check, operand: usize) Error!void {
        if (!isInDomain(c.operands[operand].dtype, c.code.info().domain)) {
            return c.failOperand(.operand_dtype, operand);
        }
    }

    pub fn wantDType(c: *Check, operand: usize, element: DType) Error!void {
        if (c.operands[operand].dtype != element) return c.failOperand(.operand_dtype, operand);
    }

    pub fn wantInteger(c: *Check, operand: usize) Error!void {
        if (!c.operands[operand].dtype.isInteger()) return c.failOperand(.operand_dtype, operand);
    }

    /// The operand has the dtype of operand `other`.
    pub fn wantSameDType(c: *Check, operand: usize, other: usize) Error!void {
        if (c.operands[operand].dtype != c.operands[other].dtype) {
            return c.failOperand(.operand_dtypes_differ, operand);
        }
    }

    pub fn wantRank(c: *Check, operand: usize, rank: usize) Error!void {
        if (c.operands[operand].rank() != rank) return c.failOperand(.operand_rank, operand);
    }

    pub fn wantDims(c: *Check, operand: usize, dims: []const i64) Error!void {
        if (c.operands[operand].rank() != dims.len) return c.failOperand(.operand_rank, operand);
        if (!std.mem.eql(i64, c.operands[operand].dims, dims)) {
            return c.failOperand(.operand_shape, operand);
        }
    }

    /// An axis of a value of this rank.
    pub fn axisOf(c: *Check, axis: i64, rank: usize) Error!usize {
        if (axis < 0 or axis >= rank) return c.fail(.axis_out_of_range);
        return @intCast(axis);
    }

    /// Axes of a value of this rank, no two equal.
    pub fn axesOf(c: *Check, axes: []const i64, rank: usize) Error!shape.AxisSet {
        var set: shape.AxisSet = .empty;
        for (axes) |axis| {
            const a = try c.axisOf(axis, rank);
            if (set.isSet(a)) return c.fail(.axis_repeated);
            set.set(a);
        }
        return set;
    }

    /// A `shape` attribute as extents.
    pub fn dimsOf(c: *Check, extents: []const i64) Error!shape.Dims {
        if (extents.len > shape.rank_max) return c.fail(.shape_overflow);
        for (extents) |extent| if (extent < 0) return c.fail(.negative_extent);
        return .from(extents);
    }
};

pub fn isInDomain(element: DType, domain: op.Domain) bool {
    return switch (domain) {
        .any => true,
        .numeric => element != .bool,
        .floating => element.isFloat(),
        .integer => element.isInteger(),
        .bits => !element.isFloat(),
        .boolean => element == .bool,
    };
}

/// Infers the results of one instruction into `c`. Exhaustive: a new opcode does not compile
/// without a rule.
pub fn infer(c: *Check) Error!void {
    assert(c.result_count == 0);
    assert(c.operands.len >= c.code.info().operands_min);
    return switch (c.code) {
        .iota => structure.iota(c),
        .reshape => structure.reshape(c),
        .transpose => structure.transpose(c),
        .broadcast_to => structure.broadcastTo(c),
        .slice => structure.slice(c),
        .concatenate => structure.concatenate(c),
        .pad => structure.pad(c),
        .cast => structure.cast(c),
        .bitcast => structure.bitcast(c),
        .barrier => c.result_count = c.operands.len,
        .window => structure.window(c),
        .window_sum => structure.windowSum(c),
        .negative, .abs, .sign, .sqrt, .rsqrt, .cbrt, .square, .reciprocal => unary(c),
        .exp, .exp2, .expm1, .log, .log1p, .log2, .log10 => unary(c),
        .sin, .cos, .tan, .arcsin, .arccos, .arctan => unary(c),
        .sinh, .cosh, .tanh, .arcsinh, .arccosh, .arctanh => unary(c),
        .erf, .erfc, .sigmoid, .floor, .ceil, .trunc, .round => unary(c),
        .erfinv, .lgamma => unary(c),
        .polygamma, .bessel_i => ofOrder(c),
        .isnan, .isinf, .isfinite, .logical_not, .bitwise_not => unary(c),
        .integer_power => integerPower(c),
        .add, .subtract, .multiply, .divide, .floor_divide, .remainder, .power => binary(c),
        .maximum, .minimum, .arctan2, .gcd => binary(c),
        .equal, .not_equal, .less, .less_equal, .greater, .greater_equal => binary(c),
        .logical_and, .logical_or, .logical_xor => binary(c),
        .bitwise_and, .bitwise_or, .bitwise_xor, .left_shift, .right_shift => binary(c),
        .where => where(c),
        .reduce_sum, .reduce_prod, .reduce_max, .reduce_min => reduce.reduction(c),
        .argmax, .argmin => reduce.argReduction(c),
        .cumsum, .cumprod, .cummax, .cummin => reduce.cumulative(c),
        .sort => reduce.sort(c),
        .searchsorted => reduce.searchsorted(c),
        .dot_general => reduce.dotGeneral(c),
        .take => indexing.take(c),
        .take_along_axis => indexing.takeAlongAxis(c),
        .scatter => indexing.scatter(c),
        .scatter_along_axis => indexing.scatterAlongAxis(c),
        .dynamic_slice => indexing.dynamicSlice(c),
        .dynamic_update_slice => indexing.dynamicUpdateSlice(c),
        .check_index => indexing.checkIndex(c),
        .check => indexing.check(c),
        .random_bits => neural.randomBits(c),
        .random_fold_in => neural.randomFoldIn(c),
        .softmax, .log_softmax => neural.softmax(c),
        .layer_norm => neural.layerNorm(c),
        .rms_norm => neural.rmsNorm(c),
        .cross_entropy => neural.crossEntropy(c),
        .cross_entropy_grad => neural.crossEntropyGrad(c),
        .attention => neural.attention(c),
        .attention_grad => neural.attentionGrad(c),
        .lu => linalg.lu(c),
        .triangular_solve => linalg.triangularSolve(c),
        .cholesky => linalg.cholesky(c),
        .qr => linalg.qr(c),
        .eigh => linalg.eigh(c),
        .svd => linalg.svd(c),
        .@"switch" => control.choose(c),
        .@"while" => control.loop(c),
        .scan => control.scan(c),
        .host_call => {},
    };
}

fn resultDType(c: *const Check, element: DType) DType {
    return if (c.code.traits().bool_result) .bool else element;
}

fn unary(c: *Check) Error!void {
    assert(c.code.info().group == .unary);
    try c.wantDomain(0);
    try c.giveLike(resultDType(c, c.operands[0].dtype), c.operands[0].dims);
}

/// Exponents are exact in float64.
const exponent_max = 1 << 53;

fn integerPower(c: *Check) Error!void {
    const exponent = c.attr("exponent");
    if (exponent < 0 and !c.operands[0].dtype.isFloat()) return c.fail(.bad_exponent);
    if (exponent > exponent_max or exponent < -exponent_max) return c.fail(.bad_exponent);
    try unary(c);
}

fn ofOrder(c: *Check) Error!void {
    const order = c.attr("order");
    if (order < 0 or order > special.order_max) return c.fail(.bad_exponent);
    try unary(c);
}

fn binary(c: *Check) Error!void {
    assert(c.code.info().group == .binary);
    try c.wantDomain(0);
    try c.wantSameDType(1, 0);
    var dims: shape.Dims = .from(c.operands[0].dims);
    if (!shape.broadcast(&dims, c.operands[1].dims)) return c.failOperand(.not_broadcastable, 1);
    try c.give(resultDType(c, c.operands[0].dtype), dims);
}

fn where(c: *Check) Error!void {
    try c.wantDType(0, .bool);
    try c.wantSameDType(2, 1);
    var dims: shape.Dims = .from(c.operands[0].dims);
    for (1..3) |k| {
        if (!shape.broadcast(&dims, c.operands[k].dims)) {
            return c.failOperand(.not_broadcastable, k);
        }
    }
    try c.give(c.operands[1].dtype, dims);
}
