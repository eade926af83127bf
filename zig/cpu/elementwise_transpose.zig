//! A copy whose innermost axis is not the one that is contiguous in the source: moved in square
//! blocks, so that both sides use whole cache lines. Generic over the size of an element.
const std = @import("std");
const assert = std.debug.assert;
const rank_max = @import("kernel_abi.zig").rank_max;

/// Rows and columns of a block.
const block = 32;

/// Axes of the copy, in elements. `rows` is the axis that is contiguous in the source, `columns`
/// the innermost one of the (dense) result.
pub const Shape = extern struct {
    rows: u64,
    columns: u64,
    source_row: i64,
    source_column: i64,
    result_row: u64,
    /// Tasks of one matrix, each `rows_per_task` rows (a multiple of `block`) of it.
    tasks_per_matrix: u64,
    rows_per_task: u64,
    outer_rank: u64,
    outer: [rank_max]Outer,
};

pub const Outer = extern struct { extent: u64, source: i64, result: u64 };

pub fn run(shape: *const Shape, bytes: u8, to: [*]u8, from: [*]const u8, task: u64) void {
    switch (bytes) {
        inline 1, 2, 4, 8 => |size| runUnits(
            @Int(.unsigned, 8 * @as(u16, size)),
            shape,
            to,
            from,
            task,
        ),
        else => unreachable,
    }
}

fn runUnits(comptime T: type, shape: *const Shape, to: [*]u8, from: [*]const u8, task: u64) void {
    var matrix = task / shape.tasks_per_matrix;
    const first = task % shape.tasks_per_matrix * shape.rows_per_task;
    const last = @min(first + shape.rows_per_task, shape.rows);
    assert(first < last);
    var source: i64 = 0;
    var result: u64 = 0;
    var k = shape.outer_rank;
    while (k > 0) {
        k -= 1;
        const outer = shape.outer[k];
        source += @as(i64, @intCast(matrix % outer.extent)) * outer.source;
        result += matrix % outer.extent * outer.result;
        matrix /= outer.extent;
    }
    const out: [*]T = @as([*]T, @ptrCast(@alignCast(to))) + result;
    var row = first;
    while (row < last) : (row += block) {
        var column: u64 = 0;
        while (column < shape.columns) : (column += block) {
            const start = source + @as(i64, @intCast(row)) * shape.source_row +
                @as(i64, @intCast(column)) * shape.source_column;
            const address = @intFromPtr(from) +% @as(usize, @bitCast(start *% @sizeOf(T)));
            const rows = @min(block, last - row);
            const columns = @min(block, shape.columns - column);
            moveBlock(T, shape, out + row * shape.result_row + column, address, rows, columns);
        }
    }
}

/// Reads along the rows' axis into a small square, then writes along the columns'.
fn moveBlock(
    comptime T: type,
    shape: *const Shape,
    to: [*]T,
    from: usize,
    rows: u64,
    columns: u64,
) void {
    var square: [block][block]T = undefined;
    const row_step: usize = @bitCast(shape.source_row *% @sizeOf(T));
    const column_step: usize = @bitCast(shape.source_column *% @sizeOf(T));
    if (rows == block and columns == block and shape.source_row == 1) {
        for (0..block) |c| {
            const line: [*]const T = @ptrFromInt(from +% c *% column_step);
            const v: [block]T = line[0..block].*;
            inline for (0..block) |r| square[r][c] = v[r];
        }
        for (0..block) |r| (to + r * shape.result_row)[0..block].* = square[r];
        return;
    }
    for (0..columns) |c| {
        for (0..rows) |r| {
            const address = from +% c *% column_step +% r *% row_step;
            square[r][c] = @as(*const T, @ptrFromInt(address)).*;
        }
    }
    for (0..rows) |r| {
        @memcpy((to + r * shape.result_row)[0..columns], square[r][0..columns]);
    }
}

/// The shape of a copy over `extents` with these source strides (merged axes, outermost first), or
/// null if gathering row by row is as good.
pub fn plan(extents: []const u64, strides: []const i64) ?Shape {
    const rank = extents.len;
    assert(rank == strides.len and rank <= rank_max);
    if (rank < 2) return null;
    const last = rank - 1;
    if (@abs(strides[last]) <= 1) return null;
    var best: ?usize = null;
    for (0..last) |k| {
        if (@abs(strides[k]) != 1) continue;
        if (extents[k] >= 4) best = k;
    }
    const rows = best orelse return null;
    var result_strides: [rank_max]u64 = undefined;
    var size: u64 = 1;
    var axis = rank;
    while (axis > 0) {
        axis -= 1;
        result_strides[axis] = size;
        size *= extents[axis];
    }
    var shape: Shape = .{
        .rows = extents[rows],
        .columns = extents[last],
        .source_row = strides[rows],
        .source_column = strides[last],
        .result_row = result_strides[rows],
        .tasks_per_matrix = 0,
        .rows_per_task = 0,
        .outer_rank = 0,
        .outer = @splat(.{ .extent = 0, .source = 0, .result = 0 }),
    };
    for (0..last) |k| {
        if (k == rows) continue;
        shape.outer[shape.outer_rank] = .{
            .extent = extents[k],
            .source = strides[k],
            .result = result_strides[k],
        };
        shape.outer_rank += 1;
    }
    // About 64 Ki elements a task.
    const wanted = std.math.clamp((1 << 16) / shape.columns, 1, shape.rows);
    shape.rows_per_task = std.mem.alignForward(u64, wanted, block);
    shape.tasks_per_matrix = (shape.rows + shape.rows_per_task - 1) / shape.rows_per_task;
    return shape;
}

/// Number of tasks.
pub fn taskCount(shape: *const Shape) u64 {
    var n = shape.tasks_per_matrix;
    for (shape.outer[0..shape.outer_rank]) |outer| n *= outer.extent;
    return n;
}
