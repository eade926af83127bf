//! Running blocks: each has a frame, its own table of addresses, and runs on the thread of the run;
//! what its instructions do in parallel they do on the pool. Inputs are read where the operands
//! are, outputs are written where the results are.
const std = @import("std");
const assert = std.debug.assert;
const executor = @import("executor.zig");
const kernel_abi = @import("kernel_abi.zig");
const plans = @import("../plan.zig");
const Execution = executor.Execution;
const Frame = executor.Frame;
const Plan = plans.Plan;
const Status = kernel_abi.Status;

const cancelled: Status = .{ .fault = .cancelled };

/// Runs an instruction of kernel `control`, whose addresses are in `frame.pointers`.
pub fn run(x: *Execution, frame: *const Frame, instruction: *const plans.Instruction) Status {
    const pointers = frame.pointers[0..instruction.pointer_count];
    return switch (frame.plan.controlOf(instruction).*) {
        .choose => |*choose| runChoose(x, frame, choose, pointers),
        .loop => |*loop| runLoop(x, frame, loop, pointers),
        .scan => |*scan| runScan(x, frame, scan, pointers),
        .host_call => |*call| x.host.?.call(x.host.?.context, .{
            .call = call,
            .instruction = instruction,
            .operands = pointers[0..call.operands.len],
        }),
    };
}

/// A frame for a block inside `outer`; its inputs and outputs are not set yet.
fn enter(x: *Execution, outer: *const Frame, number: u32, arena: [*]u8) Frame {
    const plan = &x.plan.blocks[number];
    const base_count = plan.baseCount();
    const bases: [][*]u8 = @ptrCast(outer.rest[0..base_count]);
    bases[@backingInt(plans.Base.arena)] = arena;
    bases[@backingInt(plans.Base.constants)] = @constCast(plan.constants.ptr);
    return .{
        .plan = plan,
        .bases = bases,
        .pointers = @ptrCast(outer.rest[base_count..][0..plan.pointer_count_max]),
        .rest = outer.rest[base_count + plan.pointer_count_max ..],
        .records = x.recordsOf(number),
    };
}

fn inputsOf(frame: *const Frame) [][*]u8 {
    return frame.bases[plans.Base.first_input..][0..frame.plan.inputs.len];
}

fn outputsOf(frame: *const Frame) [][*]u8 {
    return frame.bases[plans.Base.first_input + frame.plan.inputs.len ..];
}

/// The address of slice `t` of a stack.
fn sliceAt(base: [*]u8, stack: plans.Stack, t: u64) [*]u8 {
    const offset = stack.stride *% @as(i64, @intCast(t));
    return @ptrFromInt(@intFromPtr(base) +% @as(usize, @bitCast(offset)));
}

fn runChoose(
    x: *Execution,
    outer: *const Frame,
    choose: *const plans.Choose,
    pointers: []const [*]u8,
) Status {
    const results = pointers[0..choose.result_count];
    const operands = pointers[choose.result_count .. pointers.len - 1];
    const index: *const i64 = @ptrCast(@alignCast(operands[0]));
    const last: i64 = @intCast(choose.blocks.len - 1);
    const chosen = choose.blocks[@intCast(std.math.clamp(index.*, 0, last))];
    const frame = enter(x, outer, chosen, pointers[pointers.len - 1]);
    @memcpy(inputsOf(&frame), operands[1..]);
    @memcpy(outputsOf(&frame), results);
    return x.runBlock(&frame);
}

fn runLoop(
    x: *Execution,
    outer: *const Frame,
    loop: *const plans.Loop,
    pointers: []const [*]u8,
) Status {
    const memory = pointers[pointers.len - 1];
    const results = pointers[0..loop.carries.len];
    const operands = pointers[loop.carries.len .. pointers.len - 1];
    const flag = memory + loop.condition_offset;
    var condition = enter(x, outer, loop.condition, memory);
    // Tables of their own for both, so that captures are set once.
    const body = enter(x, &condition, loop.body, memory);
    condition.rest = body.rest;
    outputsOf(&condition)[0] = flag;
    for ([_]*const Frame{ &condition, &body }) |frame| @memcpy(inputsOf(frame), operands);
    const tested = inputsOf(&condition)[loop.capture_count..];
    const before = inputsOf(&body)[loop.capture_count..];
    var step: u64 = 0;
    while (true) : (step += 1) {
        if (x.control.isCancelled()) return cancelled;
        var status = x.runBlock(&condition);
        if (status.fault != .none) return status;
        if (flag[0] == 0) break;
        for (outputsOf(&body), loop.carries, results) |*to, *carry, result| {
            to.* = placeOf(carry, result, memory, step % 2 == 0);
        }
        status = x.runBlock(&body);
        if (status.fault != .none) return status;
        @memcpy(before, outputsOf(&body));
        @memcpy(tested, outputsOf(&body));
    }
    for (loop.carries, results, before) |*carry, result, place| {
        if (place != result) @memcpy(result[0..carry.bytes], place[0..carry.bytes]);
    }
    return .{};
}

/// Where a step writes a carry: in the result, or in turns in the result and the spare memory.
fn placeOf(carry: *const plans.Carry, result: [*]u8, memory: [*]u8, is_result: bool) [*]u8 {
    return if (carry.in_place or is_result) result else memory + carry.spare;
}

fn runScan(
    x: *Execution,
    outer: *const Frame,
    scan: *const plans.Scan,
    pointers: []const [*]u8,
) Status {
    const carry_count = scan.carries.len;
    const result_count = carry_count + scan.writes.len;
    const memory = pointers[pointers.len - 1];
    const results = pointers[0..result_count];
    const operands = pointers[result_count .. pointers.len - 1];
    const fixed_count = scan.capture_count + carry_count;
    const frame = enter(x, outer, scan.body, memory);
    const inputs = inputsOf(&frame);
    const outputs = outputsOf(&frame);
    @memcpy(inputs[0..fixed_count], operands[0..fixed_count]);
    const carries = inputs[scan.capture_count..][0..carry_count];
    for (0..scan.length) |step| {
        if (x.control.isCancelled()) return cancelled;
        const t = if (scan.reverse) scan.length - 1 - step else step;
        for (outputs[0..carry_count], scan.carries, results[0..carry_count]) |*to, *carry, result| {
            to.* = placeOf(carry, result, memory, (scan.length - step) % 2 == 1);
        }
        for (inputs[fixed_count..], scan.reads, operands[fixed_count..]) |*from, stack, base| {
            from.* = sliceAt(base, stack, t);
        }
        for (outputs[carry_count..], scan.writes, results[carry_count..]) |*to, stack, base| {
            to.* = sliceAt(base, stack, t);
        }
        const status = x.runBlock(&frame);
        if (status.fault != .none) return status;
        for (carries, scan.carries, outputs[0..carry_count]) |*carry, *kind, place| {
            const is_mirror = kind.mirror != plans.Carry.no_mirror;
            carry.* = if (is_mirror) outputs[carry_count + kind.mirror] else place;
        }
    }
    // The last slice is copied to a carry that is one. Without a step the carries are what
    // they were.
    for (scan.carries, results[0..carry_count], carries) |*carry, result, place| {
        if (place != result) @memcpy(result[0..carry.bytes], place[0..carry.bytes]);
    }
    return .{};
}
