//! Reads at positions known only at run time, dynamic windows, and checks of indices: take,
//! take_along_axis, dynamic_slice, dynamic_update_slice, check_index. Writes are in `scatter.zig`.
//! Operands have any strides; moves are generic over the element size, indices over their dtype.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const index = @import("index.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Operand = kernel_abi.Operand;
const rank_max = kernel_abi.rank_max;
pub const Mode = index.Mode;

pub const Op = enum(u32) { gather, window, update_window, check_index };

/// Bytes a task moves, and indices it looks at.
const task_bytes = 1 << 18;
const task_rows = 1 << 14;
/// Indices that are resolved at a time, on the stack.
const batch_length = 256;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    mode: Mode,
    index_dtype: DType,
    size: u8,
    /// The axis that errors name, and its extent.
    axis: u32,
    extent: u64,
    axis_stride: i64,
    /// gather: one position for each row of the result, strides of x and index. update_window:
    /// strides of update and result. check_index: of the index.
    rows: view.Axes(2),
    /// gather: the elements of a row, strides of x. The windows: those of the operand.
    inner: view.Axes(1),
    row_count: u64,
    row_elements: u64,
    rows_per_task: u64,
    columns: u64,
    column_elements: u64,
    /// What mode `fill` writes, as the bits of an element.
    fill_bits: u64,
    /// The windows: how far a start may go, and how far it moves element 0 of x or result.
    rank: u64,
    room: [rank_max]u64,
    strides: [rank_max]i64,
    start_stride: i64,
    x_is_dense: bool,
};

fn finish(g: *Geometry) void {
    const target = @max(task_bytes / @as(u64, g.size), 1);
    if (g.row_elements == 0) g.row_count = 0;
    g.columns = @max(1, (g.row_elements + target - 1) / target);
    g.column_elements = (g.row_elements + g.columns - 1) / g.columns;
    const rows = @min(target / @max(g.row_elements, 1), task_rows);
    g.rows_per_task = @max(rows, 1);
    g.work.task_count = (g.row_count + g.rows_per_task - 1) / g.rows_per_task * g.columns;
    g.work.cost_ns = g.row_count * 3 + g.row_count * g.row_elements * g.size / 8;
}

/// x `[batch.., pre.., n, post..]`, positions `[batch.., k..]` -> `[batch.., pre.., k.., post..]`.
/// ptrs: result, x, index.
pub fn planTake(
    x: *const Operand,
    positions: *const Operand,
    axis: u32,
    batch_dims: u32,
    mode: Mode,
) Geometry {
    assert(axis < x.rank);
    assert(batch_dims <= axis and batch_dims <= positions.rank);
    var g = beginGather(x, positions, axis, mode);
    for (0..batch_dims) |a| g.rows.append(x.dims[a], .{ x.strides[a], positions.strides[a] });
    for (batch_dims..axis) |a| g.rows.append(x.dims[a], .{ x.strides[a], 0 });
    for (batch_dims..positions.rank) |a| {
        g.rows.append(positions.dims[a], .{ 0, positions.strides[a] });
    }
    for (axis + 1..x.rank) |a| g.inner.append(x.dims[a], .{x.strides[a]});
    g.row_count = g.rows.count();
    g.row_elements = g.inner.count();
    finish(&g);
    return g;
}

/// Positions of x's rank, extents equal but along `axis`; the result is as they are.
/// ptrs: result, x, index.
pub fn planTakeAlongAxis(
    x: *const Operand,
    positions: *const Operand,
    axis: u32,
    mode: Mode,
) Geometry {
    assert(axis < x.rank);
    assert(x.rank == positions.rank);
    var g = beginGather(x, positions, axis, mode);
    for (0..x.rank) |a| {
        const stride = if (a == axis) 0 else x.strides[a];
        g.rows.append(positions.dims[a], .{ stride, positions.strides[a] });
    }
    g.row_count = g.rows.count();
    g.row_elements = 1;
    finish(&g);
    return g;
}

fn beginGather(x: *const Operand, positions: *const Operand, axis: u32, mode: Mode) Geometry {
    assert(positions.dtype.isInteger());
    var g = std.mem.zeroes(Geometry);
    g.op = .gather;
    g.mode = mode;
    g.index_dtype = positions.dtype;
    g.size = x.dtype.bytes();
    g.axis = axis;
    g.extent = x.dims[axis];
    g.axis_stride = x.strides[axis];
    g.rows = .empty;
    g.inner = .empty;
    g.fill_bits = switch (x.dtype) {
        .f16 => 0x7e00,
        .bf16 => 0x7fc0,
        .f32 => 0x7fc00000,
        .f64 => 0x7ff8000000000000,
        else => 0,
    };
    return g;
}

/// The window of `sizes` of x at `starts` (int64 `[rank]`); one that leaves x is an error, whose
/// extent is the number of legal starts. ptrs: result, x, starts.
pub fn planDynamicSlice(x: *const Operand, starts: *const Operand, sizes: []const u64) Geometry {
    var g = beginWindow(.window, x, starts, sizes, x.strides[0..x.rank]);
    for (sizes, x.strides[0..x.rank]) |extent, stride| g.inner.append(extent, .{stride});
    g.row_count = 1;
    g.row_elements = g.inner.count();
    finish(&g);
    return g;
}

/// x with the window at `starts` replaced; the result may be x. ptrs: result, x, update, starts.
pub fn planDynamicUpdateSlice(
    x: *const Operand,
    update: *const Operand,
    starts: *const Operand,
) Geometry {
    const result = Operand.contiguous(x.dtype, x.dims[0..x.rank]);
    const sizes = update.dims[0..update.rank];
    var g = beginWindow(.update_window, x, starts, sizes, result.strides[0..x.rank]);
    for (0..x.rank) |a| {
        g.inner.append(x.dims[a], .{x.strides[a]});
        g.rows.append(update.dims[a], .{ update.strides[a], result.strides[a] });
    }
    g.row_count = 1;
    g.row_elements = g.inner.count();
    g.x_is_dense = x.isContiguous();
    finish(&g);
    const copies = g.work.task_count;
    const elements = g.rows.count();
    const per_task = task_bytes / @as(u64, g.size);
    g.work.phase_task_count = copies;
    g.work.task_count = copies + (elements + per_task - 1) / per_task;
    return g;
}

fn beginWindow(
    op: Op,
    x: *const Operand,
    starts: *const Operand,
    sizes: []const u64,
    strides: []const i64,
) Geometry {
    assert(sizes.len == x.rank);
    assert(starts.rank == 1 and starts.dims[0] == x.rank);
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.mode = .checked;
    g.index_dtype = starts.dtype;
    g.size = x.dtype.bytes();
    g.rows = .empty;
    g.inner = .empty;
    g.rank = x.rank;
    g.start_stride = starts.strides[0];
    for (sizes, strides, 0..) |extent, stride, a| {
        assert(extent <= x.dims[a]);
        g.room[a] = x.dims[a] - extent;
        g.strides[a] = stride;
    }
    return g;
}

/// Indices as int64 in `[0, extent)`: wrapped and checked, or clipped (modes clip and fill).
/// ptrs: result, index.
pub fn planCheckIndex(positions: *const Operand, extent: u64, axis: u32, mode: Mode) Geometry {
    assert(positions.dtype.isInteger());
    var g = std.mem.zeroes(Geometry);
    g.op = .check_index;
    g.mode = if (mode == .fill) .clip else mode;
    g.index_dtype = positions.dtype;
    g.size = 8;
    g.axis = axis;
    g.extent = extent;
    g.rows = .empty;
    g.inner = .empty;
    for (positions.dims[0..positions.rank], positions.strides[0..positions.rank]) |d, stride| {
        g.rows.append(d, .{ 0, stride });
    }
    g.row_count = g.rows.count();
    g.row_elements = 1;
    finish(&g);
    return g;
}

pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    if (ctx.isCancelled()) return;
    switch (g.op) {
        .gather => switch (g.size) {
            inline 1, 2, 4, 8 => |size| gather(view.Unit(size), g, ptrs, task, ctx),
            else => unreachable,
        },
        .window => {
            const offset = windowOffset(g, ptrs[2], ctx) orelse return;
            const x = view.at(u8, ptrs[1], offset * @as(i64, g.size));
            copyColumns(g, ptrs[0], x, task);
        },
        .update_window => {
            const offset = windowOffset(g, ptrs[3], ctx) orelse return;
            if (task >= g.work.phase_task_count) {
                const target = view.atMutable(u8, ptrs[0], offset * @as(i64, g.size));
                updateWindow(g, target, ptrs[2], task - g.work.phase_task_count);
            } else if (ptrs[0] != ptrs[1] or !g.x_is_dense) {
                copyColumns(g, ptrs[0], ptrs[1], task);
            }
        },
        .check_index => checkIndex(g, ptrs, task, ctx),
    }
}

fn gather(
    comptime T: type,
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) void {
    const result: [*]T = @ptrCast(@alignCast(ptrs[0]));
    const x: [*]const T = @ptrCast(@alignCast(ptrs[1]));
    const column = task % g.columns * g.column_elements;
    const n = @min(g.column_elements, g.row_elements -| column);
    const first = task / g.columns * g.rows_per_task;
    const end = @min(first + g.rows_per_task, g.row_count);
    const blank: T = @truncate(g.fill_bits);
    const index_bytes: i64 = g.index_dtype.bytes();
    var cursor = g.rows.cursor(first);
    const step = g.rows.innerStride(0);
    const index_step = g.rows.innerStride(1);
    var resolved: [batch_length]i64 = undefined;
    var row = first;
    while (row < end) {
        const count: u64 = @min(cursor.run(), end - row, batch_length);
        const from = view.at(u8, ptrs[2], cursor.offsets[1] * index_bytes);
        index.load(g.index_dtype, &resolved, from, index_step, count);
        if (!index.resolveAll(&resolved, count, g.extent, g.axis, g.mode, ctx.status)) return;
        var base = cursor.offsets[0];
        const to = result + row * g.row_elements + column;
        if (g.row_elements == 1) {
            for (resolved[0..count], 0..) |position, i| {
                const from_x = view.at(T, x, base + position * g.axis_stride);
                to[i] = if (position < 0) blank else from_x[0];
                base += step;
            }
        } else for (resolved[0..count], 0..) |position, i| {
            const target = to + i * g.row_elements;
            if (position < 0) {
                @memset(target[0..n], blank);
            } else {
                copyRow(T, g, target, view.at(T, x, base + position * g.axis_stride), column, n);
            }
            base += step;
        }
        cursor.advance(count);
        row += count;
    }
}

inline fn copyRow(
    comptime T: type,
    g: *const Geometry,
    to: [*]T,
    from: [*]const T,
    column: u64,
    n: u64,
) void {
    if (g.inner.isDense(0)) return @memcpy(to[0..n], from[column..][0..n]);
    var cursor = g.inner.cursor(column);
    view.gatherRun(@sizeOf(T), @ptrCast(to), @ptrCast(from), &cursor, n);
}

/// How many elements the starts move element 0 by; null, with the status set, if one is illegal.
fn windowOffset(g: *const Geometry, starts: [*]const u8, ctx: *kernel_abi.TaskContext) ?i64 {
    var values: [rank_max]i64 = undefined;
    index.load(g.index_dtype, &values, starts, g.start_stride, g.rank);
    var offset: i64 = 0;
    for (values[0..g.rank], 0..) |start, axis| {
        const room: i64 = @intCast(g.room[axis]);
        if (start < 0 or start > room) {
            ctx.status.* = index.outOfBounds(start, @intCast(axis), room + 1);
            return null;
        }
        offset += start * g.strides[axis];
    }
    return offset;
}

/// The part of a task of a single row of any layout.
fn copyColumns(g: *const Geometry, to: [*]u8, from: [*]const u8, task: u64) void {
    const column = task * g.column_elements;
    if (column >= g.row_elements) return;
    var cursor = g.inner.cursor(column);
    const n = @min(g.column_elements, g.row_elements - column);
    view.gatherRun(g.size, to + column * g.size, from, &cursor, n);
}

fn updateWindow(g: *const Geometry, to: [*]u8, from: [*]const u8, task: u64) void {
    switch (g.size) {
        inline 1, 2, 4, 8 => |size| {
            const T = view.Unit(size);
            const per_task: u64 = task_bytes / @sizeOf(T);
            const source: [*]const T = @ptrCast(@alignCast(from));
            const target: [*]T = @ptrCast(@alignCast(to));
            var position = task * per_task;
            const end = @min(position + per_task, g.rows.count());
            var cursor = g.rows.cursor(position);
            const step = g.rows.innerStride(0);
            const target_step = g.rows.innerStride(1);
            while (position < end) {
                const n = @min(cursor.run(), end - position);
                const p = view.at(T, source, cursor.offsets[0]);
                const q = view.atMutable(T, target, cursor.offsets[1]);
                if (target_step == 1) {
                    view.gatherLine(T, q, p, step, n);
                } else for (0..n) |i| {
                    const k: i64 = @intCast(i);
                    view.atMutable(T, q, k * target_step)[0] = view.at(T, p, k * step)[0];
                }
                cursor.advance(n);
                position += n;
            }
        },
        else => unreachable,
    }
}

fn checkIndex(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) void {
    const result: [*]i64 = @ptrCast(@alignCast(ptrs[0]));
    const index_bytes: i64 = g.index_dtype.bytes();
    var row = task * g.rows_per_task;
    const end = @min(row + g.rows_per_task, g.row_count);
    var cursor = g.rows.cursor(row);
    while (row < end) {
        const n = @min(cursor.run(), end - row);
        const from = view.at(u8, ptrs[1], cursor.offsets[1] * index_bytes);
        index.load(g.index_dtype, result + row, from, g.rows.innerStride(1), n);
        if (!index.resolveAll(result + row, n, g.extent, g.axis, g.mode, ctx.status)) return;
        cursor.advance(n);
        row += n;
    }
}
