//! Lowering of instructions that run blocks, and of host calls. Blocks have plans already; here it
//! is settled where their inputs are read and their outputs written: captures and slices of stacks
//! in place, outputs directly in the results, carries in two places by turns or in one.
const std = @import("std");
const assert = std.debug.assert;
const ir = @import("ir.zig");
const kernel_abi = @import("cpu/kernel_abi.zig");
const lowering = @import("lower.zig");
const plan_memory = @import("plan_memory.zig");
const plans = @import("plan.zig");
const views = @import("lower_view.zig");
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;

/// What the executor spends on a step besides the block, in nanoseconds.
const step_ns = 50;
/// Nobody knows how long a loop runs: long enough to be a job, which can be cancelled.
const loop_ns_min = 2_000_000;

/// The memory of an instruction: the arena of its blocks, then pieces for the executor.
const Memory = struct {
    bytes: u64 = 0,
    scratch_bytes: u64 = 0,

    fn addBlock(m: *Memory, plan: *const plans.Plan) void {
        m.bytes = @max(m.bytes, plan.arena_bytes);
        m.scratch_bytes = @max(m.scratch_bytes, plan.scratch_bytes);
    }

    /// The offset of a piece; blocks have been added before.
    fn take(m: *Memory, bytes: u64) u64 {
        const at = std.mem.alignForward(u64, m.bytes, plan_memory.alignment);
        m.bytes = at + bytes;
        return at;
    }
};

fn blockPlan(l: *const Lowering, number: i64) *const plans.Plan {
    return &l.target.blocks[@intCast(number)];
}

pub fn lowerSwitch(l: *Lowering) Error!void {
    const numbers = l.attr("blocks");
    const blocks = try l.target.kept.alloc(u32, numbers.len);
    var memory: Memory = .{};
    var cost_ns: u64 = 0;
    for (blocks, numbers) |*block, number| {
        block.* = @intCast(number);
        const plan = blockPlan(l, number);
        memory.addBlock(plan);
        cost_ns = @max(cost_ns, plan.cost_ns);
    }
    const operands = try denseOperands(l, 0);
    try emit(l, .{ .choose = .{
        .blocks = blocks,
        .result_count = @intCast(l.program.resultCount(l.origin)),
    } }, operands, memory, cost_ns);
}

pub fn lowerWhile(l: *Lowering) Error!void {
    const captures: usize = @intCast(l.attr("captures"));
    const body = blockPlan(l, l.attr("body"));
    var memory: Memory = .{};
    memory.addBlock(body);
    memory.addBlock(blockPlan(l, l.attr("condition")));
    const condition_offset = memory.take(1);
    const carries = try makeCarries(l, body, captures, l.program.resultCount(l.origin), &memory);
    const operands = try denseOperands(l, 0);
    try emit(l, .{ .loop = .{
        .condition = @intCast(l.attr("condition")),
        .body = @intCast(l.attr("body")),
        .capture_count = @intCast(captures),
        .carries = carries,
        .condition_offset = condition_offset,
    } }, operands, memory, @max(loop_ns_min, body.cost_ns));
}

pub fn lowerScan(l: *Lowering) Error!void {
    const captures: usize = @intCast(l.attr("captures"));
    const carry_count: usize = @intCast(l.attr("carries"));
    const length: u64 = @intCast(l.attr("length"));
    const body = blockPlan(l, l.attr("body"));
    var memory: Memory = .{};
    memory.addBlock(body);
    const carries = try makeCarries(l, body, captures, carry_count, &memory);
    const read_count = l.program.operandsOf(l.origin).len - captures - carry_count;
    const operands = try denseOperands(l, read_count);
    const reads = try l.target.kept.alloc(plans.Stack, read_count);
    for (reads, operands[captures + carry_count ..], captures + carry_count..) |*read, *ref, k| {
        read.* = try readStack(l, l.operand(k), ref);
    }
    const write_count = l.program.resultCount(l.origin) - carry_count;
    const writes = try l.target.kept.alloc(plans.Stack, write_count);
    for (writes, carry_count..) |*write, k| {
        write.* = .{ .stride = @intCast(sliceBytes(l.typeOf(l.result(k)))) };
    }
    try emit(l, .{ .scan = .{
        .body = @intCast(l.attr("body")),
        .capture_count = @intCast(captures),
        .carries = carries,
        .reads = reads,
        .writes = writes,
        .length = length,
        .reverse = l.attr("reverse"),
    } }, operands, memory, length *| (body.cost_ns +| step_ns));
}

pub fn lowerHostCall(l: *Lowering) Error!void {
    const values = l.program.operandsOf(l.origin);
    const operands = try l.target.kept.alloc(plans.HostOperand, values.len);
    for (operands, values) |*operand, v| {
        const t = l.typeOf(v);
        operand.* = .{ .dtype = t.dtype, .dims = try l.target.kept.dupe(i64, t.dims) };
    }
    try emit(l, .{ .host_call = .{
        .id = l.attr("id"),
        .operands = operands,
    } }, try denseOperands(l, 0), .{}, 0);
}

/// The operands but the last `rest` ones, copied where they are not dense; room for those.
fn denseOperands(l: *Lowering, rest: usize) Error![]Ref {
    const values = l.program.operandsOf(l.origin);
    const refs = try l.gpa.alloc(Ref, values.len);
    const count = values.len - rest;
    for (refs[0..count], values[0..count]) |*ref, v| ref.* = try l.denseRef(v);
    return refs;
}

/// A stack that is read slice by slice: each slice has to be dense, their distance is free.
fn readStack(l: *Lowering, v: ir.ValueId, ref: *Ref) Error!plans.Stack {
    const t = l.typeOf(v);
    const view = l.view(v);
    const strides = views.stridesOf(view, t.dims);
    if (try views.keep(l.gpa, t.dims[1..], strides[1..t.dims.len]) == null) {
        ref.* = l.ref(v);
        return .{ .stride = strides[0] * t.dtype.bytes() };
    }
    ref.* = try l.denseRef(v);
    return .{ .stride = @intCast(sliceBytes(t)) };
}

fn sliceBytes(t: ir.Type) u64 {
    const slice: ir.Type = .{ .dtype = t.dtype, .dims = t.dims[1..] };
    return slice.byteCount();
}

fn makeCarries(
    l: *Lowering,
    body: *const plans.Plan,
    captures: usize,
    count: usize,
    memory: *Memory,
) Error![]plans.Carry {
    const carries = try l.target.kept.alloc(plans.Carry, count);
    for (carries, body.outputs[0..count], 0..) |*carry, output, k| {
        assert(output.bytes == body.inputs[captures + k].bytes);
        const in_place = output.alias == captures + k;
        const is_mirror = output.same_as != null;
        carry.* = .{
            .bytes = output.bytes,
            .in_place = in_place,
            .spare = if (in_place or is_mirror) 0 else memory.take(output.bytes),
        };
        if (output.same_as) |same| carry.mirror = @intCast(same - count);
    }
    return carries;
}

fn emit(
    l: *Lowering,
    control: plans.Control,
    operands: []const Ref,
    memory: Memory,
    cost_ns: u64,
) Error!void {
    const geometry: plans.ControlGeometry = .{
        .work = .{
            .task_count = 1,
            .scratch_bytes = memory.scratch_bytes,
            .cost_ns = cost_ns,
            // Never none, so that the executor finds its address where it expects it.
            .shared_bytes = @max(memory.bytes, 1),
        },
        .index = @intCast(l.controls.items.len),
    };
    try l.controls.append(l.gpa, control);
    const results = try l.gpa.alloc(Ref, l.program.resultCount(l.origin));
    for (results, 0..) |*result, k| result.* = try l.define(l.result(k));
    const carries: []const plans.Carry, const pair_first: usize = switch (control) {
        .loop => |loop| .{ loop.carries, loop.capture_count },
        .scan => |scan| .{ scan.carries, scan.capture_count },
        .choose, .host_call => .{ &.{}, 0 },
    };
    try l.emitStruct(.control, &geometry, results, operands, .{
        .pair_first = @intCast(pair_first),
        .in_place = overCarries(carries, operands, pair_first),
        // Also because it can take long, and what runs behind the commit point cannot be cancelled.
        .may_fail = true,
        .has_effect = l.program.hasEffect(l.origin),
    });
}

/// Carries that a body writes in place may begin where they come from, if nothing else reads there.
fn overCarries(carries: []const plans.Carry, operands: []const Ref, first: usize) u64 {
    var mask: u64 = 0;
    for (carries[0..@min(64, carries.len)], 0..) |carry, k| {
        if (!carry.in_place) continue;
        const alone = for (operands, 0..) |other, position| {
            if (position != first + k and other.storage == operands[first + k].storage) break false;
        } else true;
        if (alone) mask |= @as(u64, 1) << @intCast(k);
    }
    return mask;
}
