//! Type rules of the instructions that run blocks. Their results are not written down one by one:
//! `resultAt` reads them off the blocks, once the rule has found that blocks and operands agree.
const std = @import("std");
const assert = std.debug.assert;
const ir = @import("ir.zig");
const shape = @import("shape.zig");
const infer_file = @import("verify_infer.zig");
const Check = infer_file.Check;
const Error = infer_file.Error;
const Result = infer_file.Result;
const Program = ir.Program;
const Type = ir.Type;

/// Steps of a scan at most: results have that extent.
const length_max = 1 << 48;

/// Branches have equal types: inputs as the operands behind the index, outputs as the results.
pub fn choose(c: *Check) Error!void {
    try c.wantDType(0, .i64);
    try c.wantRank(0, 0);
    const numbers = c.attr("blocks");
    if (numbers.len == 0) return c.fail(.bad_block);
    const first = try blockAt(c, numbers[0]);
    for (numbers) |number| {
        const block = try blockAt(c, number);
        try wantInputCount(c, block, c.operands.len - 1);
        for (1..c.operands.len) |k| try wantInput(c, block, k - 1, k, c.operands[k]);
        if (block.outputs.len != first.outputs.len) return c.fail(.block_outputs);
        for (0..first.outputs.len) |k| {
            if (!outputType(block, k).eql(outputType(first, k))) return c.fail(.block_outputs);
        }
    }
    c.result_count = first.outputs.len;
}

pub fn loop(c: *Check) Error!void {
    const captures = try countOf(c, c.attr("captures"), c.operands.len);
    const condition = try blockAt(c, c.attr("condition"));
    const body = try blockAt(c, c.attr("body"));
    for ([_]*const Program{ condition, body }) |block| {
        try wantInputCount(c, block, c.operands.len);
        for (c.operands, 0..) |t, k| try wantInput(c, block, k, k, t);
    }
    const truth: Type = .{ .dtype = .bool, .dims = &.{} };
    if (condition.outputs.len != 1) return c.fail(.block_outputs);
    if (!outputType(condition, 0).eql(truth)) return c.fail(.block_outputs);
    const carries = c.operands[captures..];
    if (body.outputs.len != carries.len) return c.fail(.block_outputs);
    for (carries, 0..) |t, k| if (!outputType(body, k).eql(t)) return c.fail(.block_outputs);
    c.result_count = carries.len;
}

pub fn scan(c: *Check) Error!void {
    const captures = try countOf(c, c.attr("captures"), c.operands.len);
    const carries = try countOf(c, c.attr("carries"), c.operands.len - captures);
    const length = c.attr("length");
    if (length < 0 or length > length_max) return c.fail(.bad_length);
    const body = try blockAt(c, c.attr("body"));
    try wantInputCount(c, body, c.operands.len);
    for (c.operands, 0..) |t, k| {
        if (k < captures + carries) {
            try wantInput(c, body, k, k, t);
            continue;
        }
        if (t.rank() == 0) return c.failOperand(.operand_rank, k);
        if (t.dims[0] != length) return c.failOperand(.operand_shape, k);
        try wantInput(c, body, k, k, .{ .dtype = t.dtype, .dims = t.dims[1..] });
    }
    if (body.outputs.len < carries) return c.fail(.block_outputs);
    for (0..carries) |k| {
        if (!outputType(body, k).eql(c.operands[captures + k])) return c.fail(.block_outputs);
    }
    for (carries..body.outputs.len) |k| {
        const t = outputType(body, k);
        if (t.rank() == shape.rank_max) return c.fail(.shape_overflow);
        if (!stacked(t, length).typeOf().isLegal()) return c.fail(.shape_overflow);
    }
    c.result_count = body.outputs.len;
}

/// Result k of an instruction that the rule accepted.
pub fn resultAt(c: *const Check, k: usize) Result {
    assert(k < c.result_count);
    switch (c.code) {
        .@"switch" => return plain(outputType(&c.blocks[@intCast(c.attr("blocks")[0])], k)),
        .@"while" => return plain(outputType(&c.blocks[@intCast(c.attr("body"))], k)),
        .scan => {
            const t = outputType(&c.blocks[@intCast(c.attr("body"))], k);
            return if (k < c.attr("carries")) plain(t) else stacked(t, c.attr("length"));
        },
        else => unreachable,
    }
}

fn plain(t: Type) Result {
    return .{ .dtype = t.dtype, .dims = .from(t.dims) };
}

/// The results of all steps.
fn stacked(t: Type, length: i64) Result {
    var dims: shape.Dims = .{};
    dims.append(length);
    for (t.dims) |extent| dims.append(extent);
    return .{ .dtype = t.dtype, .dims = dims };
}

fn outputType(block: *const Program, k: usize) Type {
    return block.typeOf(block.outputs[k].value);
}

fn blockAt(c: *Check, number: i64) Error!*const Program {
    if (number < 0 or number >= c.blocks.len) return c.fail(.bad_block);
    return &c.blocks[@intCast(number)];
}

fn countOf(c: *Check, count: i64, limit: usize) Error!usize {
    if (count < 0 or count > limit) return c.fail(.bad_split);
    return @intCast(count);
}

fn wantInputCount(c: *Check, block: *const Program, count: usize) Error!void {
    if (block.inputs.len != count) return c.fail(.block_inputs);
}

/// Input `input` of the block has type `t`, which operand `operand` gives it.
fn wantInput(c: *Check, block: *const Program, input: usize, operand: usize, t: Type) Error!void {
    if (!block.typeOf(block.inputValue(.at(input))).eql(t)) {
        return c.failOperand(.block_inputs, operand);
    }
}
