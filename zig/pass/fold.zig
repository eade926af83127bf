//! Constant folding: instructions whose operands are all literals and whose results fit a literal
//! are run at compile time, by the very kernels that would run them later, and replaced by their
//! values.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("../abi_types.zig");
const dead = @import("dead.zig");
const executor = @import("../cpu/executor.zig");
const fuse = @import("fuse.zig");
const ir = @import("../ir.zig");
const kernel_table = @import("../cpu/kernel_table.zig");
const lower = @import("../lower.zig");
const lower_finish = @import("../lower_finish.zig");
const limits = @import("../wire_format.zig").limits;
const plans = @import("../plan.zig");
const Builder = ir.Builder;
const Control = @import("../runtime/control.zig").Control;
const Failure = @import("../runtime/failure.zig").Failure;
const Pool = @import("../cpu/pool.zig").Pool;
const Program = ir.Program;

/// The program with everything folded that can be. Linear in its size; the folded part is run once.
pub fn run(
    gpa: Allocator,
    program: *const Program,
    kernels: kernel_table.Choice,
    e: *abi.Error,
) Failure!Program {
    const known = try gpa.alloc(bool, program.valueCount());
    for (known, 0..) |*k, v| k.* = v >= program.inputs.len and v < program.firstResult();
    const frontier = try gpa.alloc(bool, program.valueCount());
    @memset(frontier, false);
    var count: u32 = 0;
    for (0..program.instructionCount()) |index| {
        const i: ir.InstructionId = .at(index);
        if (isFoldable(program, i, known)) {
            known[program.result(i, 0).index()] = true;
            count += 1;
        } else for (program.operandsOf(i)) |v| {
            frontier[v.index()] = true;
        }
    }
    if (count == 0) return program.*;
    for (program.outputs) |output| frontier[output.value.index()] = true;
    const values = try evaluate(gpa, program, known, frontier, kernels, e) orelse return program.*;
    return rewrite(gpa, program, known, frontier, values);
}

fn isFoldable(program: *const Program, i: ir.InstructionId, known: []const bool) bool {
    const code = program.code(i);
    if (code.traits().barrier or program.mayFail(i) or program.resultCount(i) != 1) return false;
    if (code.info().group == .control) return false;
    // Counters are made where they are used, cheaper than they could be read.
    if (code == .iota or program.operandsOf(i).len == 0) return false;
    if (program.typeOf(program.result(i, 0)).byteCount() > limits.literal_bytes_max) return false;
    for (program.operandsOf(i)) |v| if (!known[v.index()]) return false;
    return true;
}

/// Runs the foldable instructions; the bytes of each frontier result in the order of the values, or
/// null if there is no kernel for one of them (lowering will say so where it matters).
fn evaluate(
    gpa: Allocator,
    program: *const Program,
    known: []const bool,
    frontier: []const bool,
    kernels: kernel_table.Choice,
    e: *abi.Error,
) Failure!?[]const []align(64) u8 {
    var part = program.*;
    part.inputs = &.{};
    var b: Builder = try .initFrom(gpa, program);
    var outputs: std.ArrayList(Builder.Output) = .empty;
    for (program.firstResult()..program.valueCount()) |v| {
        if (!known[v]) continue;
        const i = program.definitionOf(.at(v)).result.instruction;
        const value = try b.copy(i);
        if (frontier[v]) try outputs.append(gpa, .{ .value = value });
    }
    const folded = try b.finish(outputs.items);
    const live = try dead.run(gpa, &folded);
    const units = try fuse.single(gpa, &folded, live);
    var unused: abi.Error = .{};
    const target: lower.Target = .{ .isa = kernels.isa, .kept = gpa };
    var lowered = lower.lower(gpa, &folded, &units, target, &unused) catch |f| switch (f) {
        error.OutOfMemory => return error.OutOfMemory,
        error.Unsupported => return null,
    };
    const plan = try lower_finish.finish(&lowered, .program);
    _ = e;
    return execute(gpa, &plan, kernels.table);
}

/// One thread, plain memory, no cancellation: what is folded is a few kilobytes.
fn execute(
    gpa: Allocator,
    plan: *const plans.Plan,
    table: *const kernel_table.KernelTable,
) Failure!?[]const []align(64) u8 {
    var pool: Pool = .init(1);
    defer pool.deinit();
    var control: Control = .{};
    const bases = try gpa.alloc([*]u8, plan.baseCount());
    const arena = try gpa.alignedAlloc(u8, .@"64", plan.arena_bytes + 2 * plan.scratch_bytes + 64);
    // The inputs of the program are inputs here too, but nothing reads them.
    @memset(bases, arena.ptr);
    bases[@backingInt(plans.Base.constants)] = @constCast(plan.constants.ptr);
    const results = try gpa.alloc([]align(64) u8, plan.outputs.len);
    for (results, plan.outputs, 0..) |*result, output, index| {
        result.* = try gpa.alignedAlloc(u8, .@"64", @max(1, output.bytes));
        bases[plan.outputBase(index)] = result.ptr;
        result.len = output.bytes;
    }
    var execution: executor.Execution = .{
        .plan = plan,
        .table = table,
        .pool = &pool,
        .control = &control,
        .bases = bases,
        .words = try gpa.alloc(u64, plan.table_words),
        .scratch = @alignCast(arena.ptr + plan.arena_bytes),
        .scratch_stride = plan.scratch_bytes,
        .worker_count = 1,
    };
    return switch (execution.run()) {
        .completed => results,
        .cancelled, .failed => null,
    };
}

fn rewrite(
    gpa: Allocator,
    program: *const Program,
    known: []const bool,
    frontier: []const bool,
    values: []const []align(64) u8,
) Allocator.Error!Program {
    var b: Builder = try .initFrom(gpa, program);
    var next: usize = 0;
    for (0..program.instructionCount()) |index| {
        const i: ir.InstructionId = .at(index);
        // A folded instruction has one result.
        if (program.resultCount(i) != 1) {
            _ = try b.copy(i);
            continue;
        }
        const v = program.result(i, 0);
        if (!known[v.index()]) {
            _ = try b.copy(i);
        } else if (frontier[v.index()]) {
            b.replace(v, try b.addLiteral(program.typeId(v), values[next]));
            next += 1;
        }
    }
    assert(next == values.len);
    return b.finish(try b.mappedOutputs());
}
