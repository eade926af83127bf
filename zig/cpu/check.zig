//! Checks without a result of their own. `check` fails the run if a 0-d bool is false; the value
//! that the opcode gives back is the memory of its first operand. `window` fails if a window lies
//! outside its array: an update checks that before anything is overwritten, not while it
//! overwrites.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const rank_max = kernel_abi.rank_max;

const Op = enum(u32) { condition, window };

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    rank: u32,
    /// condition: what the fault reports.
    code: i64,
    /// window: elements between starts, and the highest legal start of each axis.
    start_stride: i64,
    room: [rank_max]i64,
};

const work: kernel_abi.Work = .{ .task_count = 1, .scratch_bytes = 0, .cost_ns = 10 };

/// ptrs: the condition.
pub fn planCondition(code: i64) Geometry {
    var g = std.mem.zeroes(Geometry);
    g.work = work;
    g.op = .condition;
    g.code = code;
    return g;
}

/// A window of `sizes` in x at `starts`, int64 `[rank]`. ptrs: starts.
pub fn planWindow(
    x: *const kernel_abi.Operand,
    starts: *const kernel_abi.Operand,
    sizes: []const u64,
) Geometry {
    assert(starts.dtype == .i64 and starts.rank == 1);
    assert(sizes.len == x.rank and starts.dims[0] == x.rank);
    var g = std.mem.zeroes(Geometry);
    g.work = work;
    g.op = .window;
    g.rank = x.rank;
    g.start_stride = starts.strides[0];
    for (sizes, x.dims[0..x.rank], g.room[0..x.rank]) |size, extent, *room| {
        assert(size <= extent);
        room.* = @intCast(extent - size);
    }
    return g;
}

pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    assert(task == 0);
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    switch (g.op) {
        .condition => {
            if (ptrs[0][0] == 0) ctx.status.* = .{ .fault = .check_failed, .value = g.code };
        },
        .window => {
            const starts: [*]const i64 = @ptrCast(@alignCast(ptrs[0]));
            var offset: i64 = 0;
            for (g.room[0..g.rank], 0..) |room, axis| {
                const start = @import("view.zig").at(i64, starts, offset)[0];
                offset += g.start_stride;
                if (start >= 0 and start <= room) continue;
                ctx.status.* = .{
                    .fault = .index_out_of_bounds,
                    .axis = @intCast(axis),
                    .value = start,
                    .extent = room + 1,
                };
                return;
            }
        },
    }
}

const testing = std.testing;

fn statusOf(g: *const Geometry, pointer: [*]u8) kernel_abi.Status {
    var status: kernel_abi.Status = .{};
    var scratch: [64]u8 align(64) = undefined;
    const cancel: u32 = 0;
    var ctx: kernel_abi.TaskContext = .{
        .scratch = &scratch,
        .cancel = &cancel,
        .status = &status,
    };
    run(g, &.{pointer}, 0, &ctx);
    return status;
}

test "a false condition is a fault with the code, a true one is none" {
    const g = planCondition(7);
    var flag: [1]u8 = .{1};
    try testing.expectEqual(kernel_abi.Fault.none, statusOf(&g, &flag).fault);
    flag[0] = 0;
    try testing.expectEqual(kernel_abi.Fault.check_failed, statusOf(&g, &flag).fault);
    try testing.expectEqual(@as(i64, 7), statusOf(&g, &flag).value);
}

test "a window outside its array names the axis, the start and how many starts there are" {
    const x: kernel_abi.Operand = .contiguous(.f32, &.{ 4, 6 });
    const s: kernel_abi.Operand = .contiguous(.i64, &.{2});
    const g = planWindow(&x, &s, &.{ 1, 4 });
    var starts = [2]i64{ 3, 2 };
    try testing.expectEqual(kernel_abi.Fault.none, statusOf(&g, @ptrCast(&starts)).fault);
    starts[1] = 3;
    const status = statusOf(&g, @ptrCast(&starts));
    try testing.expectEqual(kernel_abi.Fault.index_out_of_bounds, status.fault);
    try testing.expectEqual(@as(u32, 1), status.axis);
    try testing.expectEqual(@as(i64, 3), status.value);
    try testing.expectEqual(@as(i64, 3), status.extent);
    starts = .{ -1, 0 };
    try testing.expectEqual(@as(i64, -1), statusOf(&g, @ptrCast(&starts)).value);
}
