//! A plan as JSON, for people: how long each pass took, which instructions became one kernel, where
//! every value lies and when.
const std = @import("std");
const abi = @import("abi_types.zig");
const plans = @import("plan.zig");
const Plan = plans.Plan;
const Writer = std.Io.Writer;

/// Writes one JSON object.
/// `donations_copied`: how often a donated buffer was not written in place although the plan says
/// so, because somebody else still had a hold on it.
pub fn write(plan: *const Plan, donations_copied: u64, w: *Writer) Writer.Error!void {
    try w.print(
        \\{{"program_instructions":{d},"instructions":{d},"commit_point":{d},
    , .{ plan.program_instructions, plan.instructions.len, plan.commit_point });
    try w.print(
        \\"arena_bytes":{d},"constant_bytes":{d},"scratch_bytes":{d},"cost_ns":{d},"compile_us":{d},
    , .{
        plan.arena_bytes,
        plan.constants.len,
        plan.scratch_bytes,
        plan.cost_ns,
        plan.compile_ns / 1000,
    });
    try w.print("\"peak_bytes\":{d},\"donations_copied\":{d},", .{
        peakBytes(plan),
        donations_copied,
    });
    try writePasses(plan, w);
    try writeBody(plan, w);
    try w.writeAll(",\"blocks\":[");
    var first = true;
    for (plan.blocks, 0..) |*block, k| {
        // A block that does nothing is one that nothing runs.
        if (block.instructions.len == 0) continue;
        if (!first) try w.writeByte(',');
        first = false;
        try w.print(
            \\{{"block":{d},"arena_bytes":{d},"constant_bytes":{d},"cost_ns":{d},
        , .{ k, block.arena_bytes, block.constants.len, block.cost_ns });
        try writeBody(block, w);
        try w.writeByte('}');
    }
    try w.writeAll("]}");
}

/// What a program and its blocks have each.
fn writeBody(plan: *const Plan, w: *Writer) Writer.Error!void {
    try writeKernels(plan, w);
    try writeRegions(plan, w);
    try writeOutputs(plan, w);
    try writeArena(plan, w);
}

/// Everything one run holds: inputs, outputs that are not written in place, arena and constants.
fn peakBytes(plan: *const Plan) u64 {
    var bytes = plan.arena_bytes + plan.constants.len;
    for (plan.inputs) |input| bytes += input.bytes;
    for (plan.outputs) |output| if (output.alias == plans.no_alias) {
        bytes += output.bytes;
    };
    return bytes;
}

fn writePasses(plan: *const Plan, w: *Writer) Writer.Error!void {
    try w.writeAll("\"passes\":[");
    for (plan.passes, 0..) |pass, index| {
        if (index > 0) try w.writeByte(',');
        try w.print(
            \\{{"name":"{s}","us":{d}.{d:0>3},"instructions":{d}}}
        , .{ pass.name, pass.ns / 1000, pass.ns % 1000, pass.instructions });
    }
    try w.writeAll("],");
}

/// One for each record of a profile, in their order.
fn writeKernels(plan: *const Plan, w: *Writer) Writer.Error!void {
    try w.writeAll("\"kernels\":[");
    for (plan.instructions, plan.members, plan.copied_bytes, 0..) |*instruction, list, copied, n| {
        if (n > 0) try w.writeByte(',');
        try w.writeAll("{\"kernel\":");
        if (instruction.kernel == .control) {
            try writeControl(plan, instruction, w);
        } else {
            try w.print("\"{t}\",", .{instruction.kernel});
        }
        try w.print(
            \\"block":{d},"instruction":{d},"tasks":{d},"cost_ns":{d},"source":
        , .{
            instruction.block,
            instruction.origin,
            instruction.work.task_count,
            instruction.work.cost_ns,
        });
        if (instruction.source == abi.none_index) {
            try w.writeAll("null");
        } else {
            try w.print("{d}", .{instruction.source});
        }
        try w.print(",\"copied_bytes\":{d},\"members\":[", .{copied});
        for (list, 0..) |member, index| {
            if (index > 0) try w.writeByte(',');
            try w.print("{d}", .{member});
        }
        try w.writeAll("]}");
    }
    try w.writeAll("],");
}

/// Name and blocks of what the executor does itself, and which carries need two places.
fn writeControl(
    plan: *const Plan,
    instruction: *const plans.Instruction,
    w: *Writer,
) Writer.Error!void {
    switch (plan.controlOf(instruction).*) {
        .choose => |choose| {
            try w.writeAll("\"switch\",\"runs\":[");
            for (choose.blocks, 0..) |k, n| {
                if (n > 0) try w.writeByte(',');
                try w.print("{d}", .{k});
            }
            try w.writeAll("],");
        },
        .loop => |loop| {
            try w.print("\"while\",\"runs\":[{d},{d}],", .{ loop.condition, loop.body });
            try writeCarries(loop.carries, w);
        },
        .scan => |scan| {
            try w.print("\"scan\",\"runs\":[{d}],\"length\":{d},", .{ scan.body, scan.length });
            try writeCarries(scan.carries, w);
        },
        .host_call => |call| try w.print("\"host_call\",\"id\":{d},", .{call.id}),
    }
}

fn writeCarries(carries: []const plans.Carry, w: *Writer) Writer.Error!void {
    var in_place: usize = 0;
    for (carries) |carry| in_place += @intFromBool(carry.in_place);
    const counts = .{ carries.len, in_place };
    try w.print("\"carries\":{d},\"carries_in_place\":{d},", counts);
}

fn writeRegions(plan: *const Plan, w: *Writer) Writer.Error!void {
    try w.writeAll("\"regions\":[");
    for (plan.regions, 0..) |region, index| {
        if (index > 0) try w.writeByte(',');
        try w.print("{{\"block\":{d},\"instruction\":{d},\"opcodes\":[", .{
            region.block, region.instruction,
        });
        for (region.codes, 0..) |code, k| {
            if (k > 0) try w.writeByte(',');
            try w.print("\"{s}\"", .{code.info().name});
        }
        try w.writeAll("]}");
    }
    try w.writeAll("],");
}

fn writeOutputs(plan: *const Plan, w: *Writer) Writer.Error!void {
    try w.writeAll("\"outputs\":[");
    for (plan.outputs, 0..) |output, index| {
        if (index > 0) try w.writeByte(',');
        try w.print("{{\"bytes\":{d},\"in_place\":\"{t}\",\"in_place_of_input\":", .{
            output.bytes,
            output.in_place,
        });
        if (output.alias == plans.no_alias) {
            try w.writeAll("null}");
        } else {
            try w.print("{d}}}", .{output.alias});
        }
    }
    try w.writeAll("],");
}

fn writeArena(plan: *const Plan, w: *Writer) Writer.Error!void {
    try w.writeAll("\"arena\":[");
    var first = true;
    for (plan.storages) |storage| {
        if (storage.place != .arena or storage.first == abi.none_index) continue;
        if (!first) try w.writeByte(',');
        first = false;
        try w.print(
            \\{{"offset":{d},"bytes":{d},"first":{d},"last":{d}}}
        , .{ storage.index, storage.bytes, storage.first, storage.last });
    }
    try w.writeByte(']');
}
