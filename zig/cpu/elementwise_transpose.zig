//! A copy whose innermost axis is not the one that is contiguous in the source: moved in strips
//! of squares that are turned in registers, so that both sides use whole cache lines. Generic over
//! the size of an element.
const std = @import("std");
const assert = std.debug.assert;
const math = @import("math_base.zig");
const rank_max = @import("kernel_abi.zig").rank_max;

/// Rows of a strip: as many as keep a cache line of each (and more of the source) at work.
const strip = 64;

/// Axes of the copy, in elements. `rows` is the axis that is contiguous in the source, `columns`
/// the innermost one of the (dense) result.
pub const Shape = extern struct {
    rows: u64,
    columns: u64,
    source_row: i64,
    source_column: i64,
    result_row: u64,
    /// Tasks of one matrix along both axes, each `rows_per_task` (a multiple of `strip`) by
    /// `columns_per_task` of it.
    row_tasks: u64,
    column_tasks: u64,
    rows_per_task: u64,
    columns_per_task: u64,
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
    var matrix = task / (shape.row_tasks * shape.column_tasks);
    const first = task / shape.column_tasks % shape.row_tasks * shape.rows_per_task;
    const last = @min(first + shape.rows_per_task, shape.rows);
    const left = task % shape.column_tasks * shape.columns_per_task;
    assert(first < last and left < shape.columns);
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
    const move: Move(T) = .{
        .shape = shape,
        .to = @as([*]T, @ptrCast(@alignCast(to))) + result,
        .from = @intFromPtr(from) +% bytesOf(T, source),
        .left = left,
        .right = @min(left + shape.columns_per_task, shape.columns),
    };
    var row = first;
    while (row < last) : (row += strip) move.strips(row, @min(row + strip, last));
}

fn bytesOf(comptime T: type, elements: i64) usize {
    return @bitCast(elements *% @sizeOf(T));
}

fn Move(comptime T: type) type {
    // Rows and columns of a square that is turned in registers.
    const side: comptime_int = @min(16, math.vector_bytes / @sizeOf(T));
    const Line = @Vector(side, T);
    return struct {
        const Self = @This();
        shape: *const Shape,
        to: [*]T,
        from: usize,
        /// The columns of this task.
        left: u64,
        right: u64,

        /// The address of a source element.
        inline fn at(move: *const Self, row: u64, column: u64) usize {
            const offset = @as(i64, @intCast(row)) *% move.shape.source_row +%
                @as(i64, @intCast(column)) *% move.shape.source_column;
            return move.from +% bytesOf(T, offset);
        }

        /// Rows [first, last) of one matrix.
        fn strips(move: *const Self, first: u64, last: u64) void {
            const shape = move.shape;
            const whole = if (shape.source_row == 1) (last - first) / side * side else 0;
            var column = move.left;
            while (column < move.right) : (column += side) {
                const end = @min(column + side, move.right);
                var row = first;
                if (end - column == side) {
                    while (row < first + whole) : (row += side) move.square(row, column);
                }
                for (row..last) |r| {
                    for (column..end) |c| {
                        const source: *const T = @ptrFromInt(move.at(r, c));
                        move.to[r * shape.result_row + c] = source.*;
                    }
                }
            }
        }

        inline fn square(move: *const Self, row: u64, column: u64) void {
            @setEvalBranchQuota(10_000);
            var lines: [side]Line = undefined;
            inline for (&lines, 0..) |*line, c| {
                const source: [*]const T = @ptrFromInt(move.at(row, column + c));
                line.* = source[0..side].*;
            }
            // Exchanges the off-diagonal quarters, then those of each quarter, down to elements.
            comptime var distance = side / 2;
            inline while (distance > 0) : (distance /= 2) {
                inline for (0..side) |i| {
                    if (i & distance != 0) continue;
                    const a = lines[i];
                    const b = lines[i + distance];
                    lines[i] = @shuffle(T, a, b, exchange(distance, false));
                    lines[i + distance] = @shuffle(T, a, b, exchange(distance, true));
                }
            }
            inline for (lines, 0..) |line, r| {
                (move.to + (row + r) * move.shape.result_row + column)[0..side].* = line;
            }
        }

        fn exchange(distance: i32, upper: bool) @Vector(side, i32) {
            var mask: [side]i32 = undefined;
            for (&mask, 0..) |*m, k| {
                const lane: i32 = @intCast(k);
                const second = lane & distance != 0;
                const source = if (upper) lane | distance else lane & ~distance;
                m.* = if (second) ~source else source;
            }
            return mask;
        }
    };
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
        .row_tasks = 0,
        .column_tasks = 0,
        .rows_per_task = 0,
        .columns_per_task = 0,
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
    // About 64 Ki elements a task, in long rows where there are few of them.
    const elements = 1 << 16;
    const wanted = std.math.clamp(elements / shape.columns, 1, shape.rows);
    shape.rows_per_task = std.mem.alignForward(u64, wanted, strip);
    const height = @min(shape.rows_per_task, shape.rows);
    const width = std.math.clamp(elements / height, strip, shape.columns + strip);
    shape.columns_per_task = std.mem.alignForward(u64, width, strip);
    shape.row_tasks = (shape.rows + shape.rows_per_task - 1) / shape.rows_per_task;
    shape.column_tasks = (shape.columns + shape.columns_per_task - 1) / shape.columns_per_task;
    return shape;
}

/// Number of tasks.
pub fn taskCount(shape: *const Shape) u64 {
    var n = shape.row_tasks * shape.column_tasks;
    for (shape.outer[0..shape.outer_rank]) |outer| n *= outer.extent;
    return n;
}
