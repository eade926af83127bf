//! `check`: fails the run if a 0-d bool is false. It has no result of its own; the value that the
//! opcode gives back is the memory of its first operand.
const std = @import("std");
const kernel_abi = @import("kernel_abi.zig");

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    /// What the fault reports.
    code: i64,
};

pub fn plan(code: i64) Geometry {
    return .{ .work = .{ .task_count = 1, .scratch_bytes = 0, .cost_ns = 10 }, .code = code };
}

/// ptrs: the condition.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    _ = task;
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    if (ptrs[0][0] == 0) ctx.status.* = .{ .fault = .check_failed, .value = g.code };
}

test "a false condition is a fault with the code, a true one is none" {
    const g = plan(7);
    var status: kernel_abi.Status = .{};
    var scratch: [64]u8 align(64) = undefined;
    const cancel: u32 = 0;
    var ctx: kernel_abi.TaskContext = .{ .scratch = &scratch, .cancel = &cancel, .status = &status };
    var flag: [1]u8 = .{1};
    run(&g, &.{&flag}, 0, &ctx);
    try std.testing.expectEqual(kernel_abi.Fault.none, status.fault);
    flag[0] = 0;
    run(&g, &.{&flag}, 0, &ctx);
    try std.testing.expectEqual(kernel_abi.Fault.check_failed, status.fault);
    try std.testing.expectEqual(@as(i64, 7), status.value);
}
