//! The verifier: infers every result type again and compares it with the declared one, and checks
//! what a program says about its inputs and outputs. After it a pass may rely on every type.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const ir = @import("ir.zig");
const diagnostic_file = @import("diagnostic.zig");
const infer_file = @import("verify_infer.zig");

pub const Diagnostic = diagnostic_file.Diagnostic;
pub const Message = diagnostic_file.Message;
pub const Check = infer_file.Check;
/// Result types of one instruction, for passes that write new ones.
pub const infer = infer_file.infer;

pub const Error = error{
    OutOfMemory,
    /// `diagnostic` says what does not type-check, and where.
    InvalidProgram,
};

/// Checks a decoded program and its blocks. Nothing is kept; `scratch` may be freed as a whole
/// afterwards.
pub fn verify(scratch: Allocator, p: *const ir.Program, diagnostic: *Diagnostic) Error!void {
    diagnostic.* = .{};
    for (p.blocks, 0..) |*block, k| {
        errdefer diagnostic.block = @intCast(k);
        try verifyOne(scratch, block, p.blocks[0..k], diagnostic);
    }
    try verifyOne(scratch, p, p.blocks, diagnostic);
}

/// A program or a block, which may run `blocks`.
pub fn verifyOne(
    scratch: Allocator,
    p: *const ir.Program,
    blocks: []const ir.Program,
    diagnostic: *Diagnostic,
) Error!void {
    try verifyInputs(p, diagnostic);
    var operands: std.ArrayList(ir.Type) = .empty;
    defer operands.deinit(scratch);
    for (0..p.instructionCount()) |n| {
        const i: ir.InstructionId = .at(n);
        if (isPlainElementwise(p, i)) continue;
        try operands.resize(scratch, p.operandsOf(i).len);
        for (operands.items, p.operandsOf(i)) |*t, v| t.* = p.typeOf(v);
        try verifyInstruction(p, i, operands.items, blocks, diagnostic);
    }
    try verifyOutputs(scratch, p, diagnostic);
}

/// The common case, decided by type ids alone: a unary or binary instruction whose operands and
/// result have the same type, of a dtype its opcode takes.
fn isPlainElementwise(p: *const ir.Program, i: ir.InstructionId) bool {
    const info = p.code(i).info();
    if (info.group != .unary and info.group != .binary) return false;
    if (info.traits.bool_result or info.attributes.len > 0) return false;
    const t = p.typeId(p.result(i, 0));
    for (p.operandsOf(i)) |v| if (p.typeId(v) != t) return false;
    return infer_file.isInDomain(p.types[t.index()].dtype, info.domain);
}

fn verifyInstruction(
    p: *const ir.Program,
    i: ir.InstructionId,
    operands: []const ir.Type,
    blocks: []const ir.Program,
    diagnostic: *Diagnostic,
) Error!void {
    var check: Check = .{
        .code = p.code(i),
        .operands = operands,
        .attrs = p.attrWords(i),
        .blocks = blocks,
    };
    infer(&check) catch |err| {
        diagnostic.* = .{
            .message = check.message,
            .instruction = @intCast(i.index()),
            .operand = check.operand,
        };
        return err;
    };
    if (check.result_count != p.resultCount(i)) {
        // The decoder has looked at all counts but those that follow from blocks.
        assert(p.code(i).traits().region);
        diagnostic.* = .{ .message = .result_count, .instruction = @intCast(i.index()) };
        return error.InvalidProgram;
    }
    for (0..p.resultCount(i)) |k| {
        const declared = p.typeOf(p.result(i, k));
        const inferred = check.resultAt(k);
        if (declared.eql(inferred.typeOf())) continue;
        diagnostic.* = .{
            .message = .result_type,
            .instruction = @intCast(i.index()),
            .operand = @intCast(k),
        };
        return error.InvalidProgram;
    }
}

fn verifyInputs(p: *const ir.Program, diagnostic: *Diagnostic) Error!void {
    var has_key = false;
    for (p.inputs, 0..) |input, n| {
        const t = p.typeOf(p.inputValue(.at(n)));
        assert((input.data != null) == input.flags.constant);
        if (input.flags.scalar_slot and t.rank() != 0) {
            return fail(diagnostic, .inputs, .scalar_slot_rank);
        }
        if (!input.flags.rng_key) continue;
        if (has_key) return fail(diagnostic, .inputs, .rng_key_twice);
        if (!t.eql(.{ .dtype = .u32, .dims = &.{2} })) {
            return fail(diagnostic, .inputs, .rng_key_type);
        }
        has_key = true;
    }
}

fn verifyOutputs(scratch: Allocator, p: *const ir.Program, diagnostic: *Diagnostic) Error!void {
    const taken = try scratch.alloc(bool, p.inputs.len);
    defer scratch.free(taken);
    @memset(taken, false);
    for (p.outputs) |output| {
        const alias = output.alias orelse continue;
        if (!p.inputs[alias.index()].flags.donated) {
            return fail(diagnostic, .outputs, .alias_not_donated);
        }
        if (p.typeId(output.value) != p.typeId(p.inputValue(alias))) {
            return fail(diagnostic, .outputs, .alias_type);
        }
        if (taken[alias.index()]) return fail(diagnostic, .outputs, .alias_twice);
        taken[alias.index()] = true;
    }
}

fn fail(
    diagnostic: *Diagnostic,
    section: @FieldType(Diagnostic, "section"),
    message: Message,
) Error {
    diagnostic.* = .{ .message = message, .section = section };
    return error.InvalidProgram;
}

test {
    _ = infer_file;
    _ = @import("verify_test.zig");
}
