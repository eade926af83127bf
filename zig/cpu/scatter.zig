//! scatter and scatter_along_axis: a copy of x with updates written at, or combined with what is
//! at, positions known only at run time. The result may be x itself; then nothing is copied.
//!
//! Updates are applied in the order of the index, so duplicates give the same bits every time:
//! tasks share neither rows nor columns of the result, each runs through the whole index and takes
//! what falls into its rows. Half types accumulate in float32 and round once, for every kind but
//! `set`.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const fold = @import("fold.zig");
const index = @import("index.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Operand = kernel_abi.Operand;
pub const Mode = index.Mode;

/// What an update does to what is there. max and min propagate NaN.
pub const Kind = enum(u32) { add = 0, set = 1, max = 2, min = 3, multiply = 4 };

/// Elements of a task, copied or updated: about 40 us.
const task_elements = 1 << 16;
const strip_length_max = 4096;
/// A strip of columns that have positions of their own.
const own_strip_length = 64;
/// Positions that are resolved at a time, on the stack.
const batch_length = 256;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    kind: Kind,
    mode: Mode,
    dtype: DType,
    index_dtype: DType,
    size: u8,
    x_is_dense: bool,
    /// Half types whose rows are kept in float32 while they are updated.
    widens: bool,
    /// Each column has positions of its own (scatter_along_axis), not one for a whole row.
    own_positions: bool,
    /// The axis that errors name, its extent and x's stride along it.
    axis: u32,
    extent: u64,
    axis_stride: i64,
    /// Strides of x, index and updates: outside the axis, along the index, and inside the axis.
    groups: view.Axes(3),
    positions: view.Axes(3),
    inner: view.Axes(3),
    position_count: u64,
    inner_count: u64,
    /// A unit is `strip` columns of `rows` rows of a group.
    rows: u64,
    range_count: u64,
    strip: u64,
    strip_count: u64,
    unit_count: u64,
    units_per_task: u64,
};

/// x `[batch.., pre.., n, post..]`, index `[batch.., k..]`,
/// updates `[batch.., pre.., k.., post..]`. ptrs: result, x, index, updates.
pub fn planScatter(
    x: *const Operand,
    positions: *const Operand,
    updates: *const Operand,
    axis: u32,
    batch_dims: u32,
    mode: Mode,
    kind: Kind,
) Geometry {
    assert(axis < x.rank);
    assert(batch_dims <= axis and batch_dims <= positions.rank);
    var g = begin(x, positions, axis, mode, kind);
    const k = positions.rank - batch_dims;
    assert(updates.rank == x.rank - 1 + k);
    for (0..axis) |a| {
        const index_stride = if (a < batch_dims) positions.strides[a] else 0;
        g.groups.append(x.dims[a], .{ x.strides[a], index_stride, updates.strides[a] });
    }
    for (0..k) |a| {
        const stride = positions.strides[batch_dims + a];
        const extent = positions.dims[batch_dims + a];
        g.positions.append(extent, .{ 0, stride, updates.strides[axis + a] });
    }
    for (axis + 1..x.rank) |a| {
        g.inner.append(x.dims[a], .{ x.strides[a], 0, updates.strides[a + k - 1] });
    }
    cut(&g);
    return g;
}

/// index and updates of equal extents, x's but along `axis`. ptrs: result, x, index, updates.
pub fn planScatterAlongAxis(
    x: *const Operand,
    positions: *const Operand,
    updates: *const Operand,
    axis: u32,
    mode: Mode,
    kind: Kind,
) Geometry {
    assert(axis < x.rank);
    assert(positions.rank == x.rank and updates.rank == x.rank);
    var g = begin(x, positions, axis, mode, kind);
    for (0..x.rank) |a| {
        const axes = if (a < axis) &g.groups else if (a == axis) &g.positions else &g.inner;
        const x_stride = if (a == axis) 0 else x.strides[a];
        axes.append(positions.dims[a], .{ x_stride, positions.strides[a], updates.strides[a] });
    }
    g.own_positions = g.inner.count() != 1;
    cut(&g);
    return g;
}

fn begin(
    x: *const Operand,
    positions: *const Operand,
    axis: u32,
    mode: Mode,
    kind: Kind,
) Geometry {
    assert(positions.dtype.isInteger());
    assert(x.dtype != .bool or kind == .set or kind == .max or kind == .min);
    var g = std.mem.zeroes(Geometry);
    g.kind = kind;
    g.mode = mode;
    g.dtype = x.dtype;
    g.index_dtype = positions.dtype;
    g.size = x.dtype.bytes();
    g.x_is_dense = x.isContiguous();
    g.widens = kind != .set and (x.dtype == .f16 or x.dtype == .bf16);
    g.axis = axis;
    g.extent = x.dims[axis];
    g.axis_stride = x.strides[axis];
    g.groups = .empty;
    g.positions = .empty;
    g.inner = .empty;
    return g;
}

/// Cuts the result into units. Every range of rows runs through all positions, so rows are only
/// cut where a row is long enough to pay for that.
fn cut(g: *Geometry) void {
    g.position_count = g.positions.count();
    g.inner_count = g.inner.count();
    const n = g.extent;
    const longest: u64 = if (g.own_positions) own_strip_length else strip_length_max;
    g.strip = @max(@min(g.inner_count, longest), 1);
    g.strip_count = (g.inner_count + g.strip - 1) / g.strip;
    const elements = (n + g.position_count) * g.strip;
    const pays = if (g.own_positions) 1 else @max(g.strip / 4, 1);
    g.range_count = @min((elements + task_elements - 1) / task_elements, pays);
    g.rows = divideUp(n, @max(g.range_count, 1));
    if (g.widens) g.rows = @min(g.rows, task_elements / g.strip);
    g.rows = @max(g.rows, 1);
    g.range_count = divideUp(n, g.rows);
    if (n == 0 and g.position_count > 0) g.range_count = 1; // the positions are still checked
    g.unit_count = g.groups.count() * g.range_count * g.strip_count;
    g.units_per_task = @max(1, task_elements / @max(elements / @max(g.range_count, 1), 1));
    g.work.task_count = divideUp(g.unit_count, g.units_per_task);
    g.work.scratch_bytes = rowBytes(g);
    if (g.widens) g.work.scratch_bytes += flagBytes(g) + g.rows * g.strip * 4;
    g.work.cost_ns = g.unit_count * (elements / 4 + 2 * g.position_count + 20);
}

/// A gathered row at the start of scratch; the flags of touched rows and the wide rows follow.
fn rowBytes(g: *const Geometry) u64 {
    return std.mem.alignForward(u64, g.strip * g.size, 64);
}

fn flagBytes(g: *const Geometry) u64 {
    return std.mem.alignForward(u64, g.rows, 64);
}

fn divideUp(a: u64, b: u64) u64 {
    return (a + b - 1) / b;
}

pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const start = task * g.units_per_task;
    for (start..@min(start + g.units_per_task, g.unit_count)) |unit| {
        if (ctx.isCancelled()) return;
        const u: Unit = .init(g, ptrs, unit, ctx);
        if (!u.update()) return;
        u.finish();
    }
}

const Unit = struct {
    g: *const Geometry,
    f: ?*const fold.Functions,
    ctx: *kernel_abi.TaskContext,
    size: u64,
    /// Elements of x, of the index and of the updates at the first row and column of the unit.
    x: [*]const u8,
    positions: [*]const u8,
    updates: [*]const u8,
    /// Row 0 of the unit in the result.
    result: [*]u8,
    /// Where rows are updated, and the elements between two of them.
    target: [*]u8,
    pitch: u64,
    flags: [*]u8,
    first_row: u64,
    row_count: u64,
    column: u64,
    columns: u64,
    in_place: bool,

    fn init(
        g: *const Geometry,
        ptrs: [*]const [*]u8,
        unit: u64,
        ctx: *kernel_abi.TaskContext,
    ) Unit {
        const strip = unit % g.strip_count;
        const range = unit / g.strip_count % g.range_count;
        const group = unit / g.strip_count / g.range_count;
        const offsets = g.groups.cursor(group).offsets;
        const size: i64 = g.size;
        const first_row = range * g.rows;
        const column = strip * g.strip;
        const along_x = @as(i64, @intCast(first_row)) * g.axis_stride;
        const at = (group * g.extent + first_row) * g.inner_count + column;
        const flags = ctx.scratch + rowBytes(g);
        var u: Unit = .{
            .g = g,
            .f = functionsFor(g),
            .ctx = ctx,
            .size = g.size,
            .x = view.at(u8, ptrs[1], (offsets[0] + along_x) * size),
            .positions = view.at(u8, ptrs[2], offsets[1] * g.index_dtype.bytes()),
            .updates = view.at(u8, ptrs[3], offsets[2] * size),
            .result = ptrs[0] + at * g.size,
            .target = undefined,
            .pitch = g.inner_count,
            .flags = flags,
            .first_row = first_row,
            .row_count = @min(g.rows, g.extent - first_row),
            .column = column,
            .columns = @min(g.strip, g.inner_count - column),
            .in_place = ptrs[0] == ptrs[1] and g.x_is_dense,
        };
        u.target = u.result;
        if (g.widens) {
            u.target = flags + flagBytes(g);
            u.pitch = u.columns;
            @memset(flags[0..u.row_count], 0);
        } else if (!u.in_place) {
            for (0..u.row_count) |row| u.copyRow(row);
        }
        return u;
    }

    fn functionsFor(g: *const Geometry) ?*const fold.Functions {
        const op: lanes.Op = switch (g.kind) {
            .set => return null,
            .add => .sum,
            .multiply => .prod,
            .max => .max,
            .min => .min,
        };
        return fold.functions(op, lanes.canonical(op, g.dtype));
    }

    fn resultRow(u: *const Unit, row: u64) [*]u8 {
        return u.result + row * u.g.inner_count * u.size;
    }

    fn copyRow(u: *const Unit, row: u64) void {
        u.gatherRow(0, u.resultRow(row), u.xRow(row));
    }

    fn xRow(u: *const Unit, row: u64) [*]const u8 {
        const offset = @as(i64, @intCast(row)) * u.g.axis_stride;
        return view.at(u8, u.x, offset * @as(i64, u.g.size));
    }

    /// The columns of the unit in a row of x (operand 0) or of the updates (2), densely.
    fn gatherRow(u: *const Unit, comptime operand: u32, to: [*]u8, row: [*]const u8) void {
        var cursor = u.g.inner.cursor(u.column);
        const stride = u.g.inner.innerStride(operand);
        var done: u64 = 0;
        while (done < u.columns) {
            const n = @min(cursor.run(), u.columns - done);
            const from = view.at(u8, row, cursor.offsets[operand] * @as(i64, u.g.size));
            view.gatherLineOf(u.size, to + done * u.size, from, stride, n);
            cursor.advance(n);
            done += n;
        }
    }

    /// The columns of the unit in a row of the updates, in place if they are dense there.
    fn updateRow(u: *const Unit, row: [*]const u8) [*]const u8 {
        if (u.g.inner.isDense(2)) return row + u.column * u.size;
        u.gatherRow(2, u.ctx.scratch, row);
        return u.ctx.scratch;
    }

    /// Widens a row before its first update.
    fn touch(u: *const Unit, row: u64) void {
        if (u.flags[row] != 0) return;
        u.flags[row] = 1;
        const wide = u.target + row * u.pitch * 4;
        if (u.in_place) return u.f.?.addRow(wide, u.resultRow(row), u.columns, true);
        u.gatherRow(0, u.ctx.scratch, u.xRow(row));
        u.f.?.addRow(wide, u.ctx.scratch, u.columns, true);
    }

    /// Rounds the rows that were updated in float32, copies the others.
    fn finish(u: *const Unit) void {
        if (!u.g.widens) return;
        for (0..u.row_count) |row| {
            if (u.flags[row] != 0) {
                const wide = u.target + row * u.pitch * 4;
                fold.narrow(u.g.dtype, u.resultRow(row), wide, u.columns);
            } else if (!u.in_place) {
                u.copyRow(row);
            }
        }
    }

    /// Applies all updates that fall into the unit; false if a position is an error.
    fn update(u: *const Unit) bool {
        var cursor = u.g.positions.cursor(0);
        const size: i64 = u.g.size;
        const index_bytes: i64 = u.g.index_dtype.bytes();
        const index_step = u.g.positions.innerStride(1);
        const step = u.g.positions.innerStride(2);
        var resolved: [batch_length]i64 = undefined;
        var done: u64 = 0;
        while (done < u.g.position_count) {
            const positions = view.at(u8, u.positions, cursor.offsets[1] * index_bytes);
            const updates = view.at(u8, u.updates, cursor.offsets[2] * size);
            if (u.g.own_positions) {
                if (!u.updateColumns(&resolved, positions, updates)) return false;
                cursor.advance(1);
                done += 1;
                continue;
            }
            const n: u64 = @min(cursor.run(), u.g.position_count - done, batch_length);
            if (!u.resolve(&resolved, positions, index_step, n)) return false;
            if (u.g.inner_count == 1) {
                u.apply(&resolved, n, updates, step, 0);
            } else for (resolved[0..n], 0..) |row, i| {
                if (row < 0) continue;
                const offset = @as(i64, @intCast(i)) * step * size;
                u.applyRow(@intCast(row), view.at(u8, updates, offset));
            }
            cursor.advance(n);
            done += n;
        }
        return true;
    }

    /// One line of positions and updates across the columns of the unit.
    fn updateColumns(
        u: *const Unit,
        resolved: *[batch_length]i64,
        positions: [*]const u8,
        updates: [*]const u8,
    ) bool {
        var cursor = u.g.inner.cursor(u.column);
        const index_bytes: i64 = u.g.index_dtype.bytes();
        const index_step = u.g.inner.innerStride(1);
        const step = u.g.inner.innerStride(2);
        var done: u64 = 0;
        while (done < u.columns) {
            const n: u64 = @min(cursor.run(), u.columns - done, batch_length);
            const from = view.at(u8, positions, cursor.offsets[1] * index_bytes);
            if (!u.resolve(resolved, from, index_step, n)) return false;
            const update_line = view.at(u8, updates, cursor.offsets[2] * @as(i64, u.g.size));
            u.apply(resolved, n, update_line, step, done);
            cursor.advance(n);
            done += n;
        }
        return true;
    }

    /// Loads positions as rows of the unit, negative where they are none of them.
    fn resolve(u: *const Unit, to: *[batch_length]i64, from: [*]const u8, step: i64, n: u64) bool {
        const g = u.g;
        index.load(g.index_dtype, to, from, step, n);
        if (!index.resolveAll(to, n, g.extent, g.axis, g.mode, u.ctx.status)) return false;
        const first: i64 = @intCast(u.first_row);
        const count: i64 = @intCast(u.row_count);
        if (first == 0 and count == g.extent) return true;
        const W = 8;
        const V = @Vector(W, i64);
        // Whole vectors: what lies beyond the last position is never looked at.
        var i: u64 = 0;
        while (i < n) : (i += W) {
            const row = @as(V, to[i..][0..W].*) -% @as(V, @splat(first));
            const inside = (row >= @as(V, @splat(0))) & (row < @as(V, @splat(count)));
            to[i..][0..W].* = @select(i64, inside, row, @as(V, @splat(-1)));
        }
        return true;
    }

    fn applyRow(u: *const Unit, row: u64, updates: [*]const u8) void {
        if (u.g.widens) u.touch(row); // before the update is gathered: both pass through scratch
        const from = u.updateRow(updates);
        if (u.f) |f| {
            const wide: u64 = if (u.g.widens) 4 else u.size;
            f.addRow(u.target + row * u.pitch * wide, from, u.columns, false);
        } else {
            @memcpy(u.resultRow(row), from[0 .. u.columns * u.size]);
        }
    }

    /// Single elements: number i at column `column + i` if columns have positions of their own.
    fn apply(
        u: *const Unit,
        rows: *const [batch_length]i64,
        n: u64,
        updates: [*]const u8,
        step: i64,
        column: u64,
    ) void {
        const s: fold.Scattered = .{
            .positions = rows,
            .updates = updates,
            .n = n,
            .update_step = step,
            .row_step = u.pitch,
            .lane_step = @intFromBool(u.g.own_positions),
        };
        const f = u.f orelse {
            return setElements(u.size, u.target + column * u.size, &s);
        };
        if (u.g.widens) for (rows[0..n]) |row| {
            if (row >= 0) u.touch(@intCast(row));
        };
        const wide: u64 = if (u.g.widens) 4 else u.size;
        f.scatter(u.target + column * wide, &s);
    }
};

fn setElements(element_bytes: u64, to: [*]u8, s: *const fold.Scattered) void {
    switch (element_bytes) {
        inline 1, 2, 4, 8 => |size| {
            const T = view.Unit(size);
            const target: [*]T = @ptrCast(@alignCast(to));
            var update: [*]const T = @ptrCast(@alignCast(s.updates));
            for (0..s.n) |i| {
                const position = s.positions[i];
                if (position >= 0) {
                    const row: u64 = @intCast(position);
                    target[row * s.row_step + i * s.lane_step] = update[0];
                }
                update = view.at(T, update, s.update_step);
            }
        },
        else => unreachable,
    }
}
