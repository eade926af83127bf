//! Moves that make a new array from pieces: concatenate, pad and iota. Results are dense, operands
//! have any strides; moves are generic over the element size.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Operand = kernel_abi.Operand;
const rank_max = kernel_abi.rank_max;

/// Bytes a task writes, about 30 us.
const task_bytes = 1 << 18;

pub const Op = enum(u32) { concatenate, pad, iota };

/// The result as rows that are cut into columns only when one is longer than a task.
const Cut = extern struct {
    rows: u64,
    row_elements: u64,
    rows_per_task: u64,
    columns: u64,
    column_elements: u64,

    const Part = struct { row: u64, row_end: u64, column: u64, column_end: u64 };

    fn init(rows: u64, row_elements: u64, size: u64) Cut {
        const target = task_bytes / size;
        const cuts = @max(1, (row_elements + target - 1) / target);
        return .{
            .rows = if (row_elements == 0) 0 else rows,
            .row_elements = row_elements,
            .rows_per_task = @max(1, target / @max(row_elements, 1)),
            .columns = cuts,
            .column_elements = (row_elements + cuts - 1) / cuts,
        };
    }

    fn taskCount(c: *const Cut) u64 {
        return (c.rows + c.rows_per_task - 1) / c.rows_per_task * c.columns;
    }

    fn part(c: *const Cut, task: u64) Part {
        const row = task / c.columns * c.rows_per_task;
        const column = task % c.columns * c.column_elements;
        return .{
            .row = row,
            .row_end = @min(row + c.rows_per_task, c.rows),
            .column = @min(column, c.row_elements),
            .column_end = @min(column + c.column_elements, c.row_elements),
        };
    }
};

/// One axis of a padded result: element i of the operand lies at `low + i * step`, for i below
/// `count`, and `stride` elements after its neighbour.
const PadAxis = extern struct { extent: u64, low: u64, step: u64, count: u64, stride: i64 };

/// One operand of concatenate: where its part of a result row begins, and how it is walked.
const Piece = extern struct { start: u64, elements: u64, axes: view.Axes(1) };

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    size: u8,
    cut: Cut,
    /// iota: the extent of its axis and the elements inside it.
    extent: u64,
    inner: u64,
    /// pad: element 0 that is kept, and the axes, the last one along rows.
    origin: i64,
    rank: u64,
    axes: [rank_max]PadAxis,
    /// concatenate: how many `Piece` follow the geometry in memory.
    piece_count: u64,

    fn finish(g: *Geometry) void {
        g.work.task_count = g.cut.taskCount();
        const bytes = g.cut.rows * g.cut.row_elements * g.size;
        g.work.cost_ns = bytes / 8 + g.cut.rows * 4;
    }
};

/// Bytes of the geometry of a concatenation: its pieces follow it.
pub fn concatenateBytes(operand_count: usize) usize {
    return @sizeOf(Geometry) + operand_count * @sizeOf(Piece);
}

/// Plans a concatenation along `axis` into `memory`, `concatenateBytes(operands.len)` long.
/// ptrs: result, operands in order.
pub fn planConcatenate(
    memory: []align(@alignOf(Geometry)) u8,
    operands: []const Operand,
    axis: u32,
) void {
    assert(operands.len > 0);
    assert(memory.len == concatenateBytes(operands.len));
    const first = &operands[0];
    assert(axis < first.rank);
    const g: *Geometry = @ptrCast(memory.ptr);
    const pieces: [*]Piece = @ptrCast(@alignCast(memory.ptr + @sizeOf(Geometry)));
    g.* = std.mem.zeroes(Geometry);
    g.op = .concatenate;
    g.dtype = first.dtype;
    g.size = first.dtype.bytes();
    g.piece_count = operands.len;
    var rows: u64 = 1;
    for (first.dims[0..axis]) |d| rows *= d;
    var start: u64 = 0;
    for (operands, pieces) |*o, *piece| {
        var elements: u64 = 1;
        for (o.dims[axis..o.rank]) |d| elements *= d;
        piece.* = .{ .start = start, .elements = elements, .axes = view.axesOf(o) };
        start += elements;
    }
    g.cut = .init(rows, start, g.size);
    g.finish();
}

/// `low` and `high` may be negative (they crop); `interior` is not. ptrs: result, x, the 0-d value.
pub fn planPad(
    x: *const Operand,
    low: []const i64,
    high: []const i64,
    interior: []const i64,
) Geometry {
    assert(low.len == x.rank);
    assert(high.len == x.rank and interior.len == x.rank);
    var g = std.mem.zeroes(Geometry);
    g.op = .pad;
    g.dtype = x.dtype;
    g.size = x.dtype.bytes();
    for (0..x.rank) |k| {
        const step = interior[k] + 1;
        const n: i64 = @intCast(x.dims[k]);
        const spread = if (n == 0) 0 else (n - 1) * step + 1;
        const extent = low[k] + spread + high[k];
        assert(step > 0);
        assert(extent >= 0);
        // The first kept element is the first whose place is not negative.
        const skipped = if (low[k] < 0) @divFloor(-low[k] + step - 1, step) else 0;
        const place = low[k] + skipped * step;
        const room = if (place >= extent) 0 else @divFloor(extent - place - 1, step) + 1;
        const count = @max(0, @min(n - skipped, room));
        if (count > 0) g.origin += skipped * x.strides[k];
        appendPadAxis(&g, .{
            .extent = @intCast(extent),
            .low = @intCast(if (count > 0) place else 0),
            .step = @intCast(step),
            .count = @intCast(count),
            .stride = x.strides[k],
        });
    }
    var rows: u64 = 1;
    for (g.axes[0..g.rank -| 1]) |a| rows *= a.extent;
    g.cut = .init(rows, if (g.rank == 0) 1 else g.axes[g.rank - 1].extent, g.size);
    if (g.rank == 0) g.axes[0] = .{ .extent = 1, .low = 0, .step = 1, .count = 1, .stride = 0 };
    g.rank = @max(g.rank, 1);
    g.finish();
    return g;
}

/// Adds an inner axis, merged with the one before if it is whole and both are walked as one.
fn appendPadAxis(g: *Geometry, inner: PadAxis) void {
    if (g.rank > 0) {
        const outer = &g.axes[g.rank - 1];
        const whole = inner.low == 0 and inner.step == 1 and inner.count == inner.extent;
        const follows = outer.stride == inner.stride * @as(i64, @intCast(inner.extent));
        if (whole and outer.step == 1 and follows) {
            outer.* = .{
                .extent = outer.extent * inner.extent,
                .low = outer.low * inner.extent,
                .step = 1,
                .count = outer.count * inner.extent,
                .stride = inner.stride,
            };
            return;
        }
    }
    g.axes[g.rank] = inner;
    g.rank += 1;
}

/// Positions along `axis` of an array of the given extents. ptrs: result.
pub fn planIota(d: DType, dims: []const u64, axis: u32) Geometry {
    assert(axis < dims.len);
    var g = std.mem.zeroes(Geometry);
    g.op = .iota;
    g.dtype = d;
    g.size = d.bytes();
    g.extent = dims[axis];
    g.inner = 1;
    for (dims[axis + 1 ..]) |extent| g.inner *= extent;
    var elements: u64 = 1;
    for (dims) |extent| elements *= extent;
    g.cut = .init(1, elements, g.size);
    g.finish();
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
    const part = g.cut.part(task);
    switch (g.op) {
        .concatenate => concatenate(g, ptrs, part),
        .pad => switch (g.size) {
            inline 1, 2, 4, 8 => |size| pad(view.Unit(size), g, ptrs, part),
            else => unreachable,
        },
        .iota => switch (g.dtype) {
            _ => unreachable,
            inline else => |d| iota(d, g, ptrs[0], part.column, part.column_end),
        },
    }
}

/// Piece after piece, each over all rows of the part.
fn concatenate(g: *const Geometry, ptrs: [*]const [*]u8, part: Cut.Part) void {
    const after: [*]const u8 = @as([*]const u8, @ptrCast(g)) + @sizeOf(Geometry);
    const pieces: [*]const Piece = @ptrCast(@alignCast(after));
    for (pieces[0..g.piece_count], 1..) |*piece, operand| {
        const start = @max(part.column, piece.start);
        const end = @min(part.column_end, piece.start + piece.elements);
        if (start >= end) continue;
        var cursor = piece.axes.cursor(part.row * piece.elements + (start - piece.start));
        for (part.row..part.row_end) |row| {
            const to = ptrs[0] + (row * g.cut.row_elements + start) * g.size;
            view.gatherRun(g.size, to, ptrs[operand], &cursor, end - start);
        }
    }
}

fn pad(comptime T: type, g: *const Geometry, ptrs: [*]const [*]u8, part: Cut.Part) void {
    const result: [*]T = @ptrCast(@alignCast(ptrs[0]));
    const x = view.at(T, @ptrCast(@alignCast(ptrs[1])), g.origin);
    const value = @as([*]const T, @ptrCast(@alignCast(ptrs[2])))[0];
    const outer = g.axes[0 .. g.rank - 1];
    var index: [rank_max]u64 = undefined;
    var rest = part.row;
    var k = outer.len;
    while (k > 0) {
        k -= 1;
        index[k] = rest % outer[k].extent;
        rest /= outer[k].extent;
    }
    for (part.row..part.row_end) |row| {
        var inside = true;
        var offset: i64 = 0;
        for (outer, index[0..outer.len]) |*axis, i| {
            const distance = i -% axis.low;
            const within = distance < axis.count * axis.step; // false for i below low, it wraps
            inside = inside and within and (axis.step == 1 or distance % axis.step == 0);
            if (inside) offset += @as(i64, @intCast(distance / axis.step)) * axis.stride;
        }
        const to = result + row * g.cut.row_elements;
        if (inside) {
            padRow(T, to, view.at(T, x, offset), &g.axes[g.rank - 1], value, part);
        } else {
            @memset(to[part.column..part.column_end], value);
        }
        k = outer.len;
        while (k > 0) {
            k -= 1;
            index[k] += 1;
            if (index[k] < outer[k].extent) break;
            index[k] = 0;
        }
    }
}

/// The columns of a part of one row that has elements of the operand, which begin at `from`.
fn padRow(
    comptime T: type,
    to: [*]T,
    from: [*]const T,
    axis: *const PadAxis,
    value: T,
    part: Cut.Part,
) void {
    if (axis.step > 1) @memset(to[part.column..part.column_end], value);
    // The elements whose places lie in the part.
    const first = if (part.column <= axis.low)
        0
    else
        @min((part.column - axis.low + axis.step - 1) / axis.step, axis.count);
    const last = if (part.column_end <= axis.low)
        0
    else
        @min((part.column_end - axis.low + axis.step - 1) / axis.step, axis.count);
    const source = view.at(T, from, @as(i64, @intCast(first)) * axis.stride);
    if (axis.step == 1) {
        const start = @min(@max(axis.low + first, part.column), part.column_end);
        const end = @max(start, axis.low + last);
        if (last <= first) return @memset(to[part.column..part.column_end], value);
        @memset(to[part.column..start], value);
        view.gatherLine(T, to + start, source, axis.stride, last - first);
        @memset(to[end..part.column_end], value);
        return;
    }
    var place = axis.low + first * axis.step;
    var offset: i64 = 0;
    for (first..@max(first, last)) |_| {
        to[place] = view.at(T, source, offset)[0];
        place += axis.step;
        offset += axis.stride;
    }
}

/// Elements `[start, end)` of the flat result.
fn iota(comptime d: DType, g: *const Geometry, result: [*]u8, start: u64, end: u64) void {
    const to: [*]Storage(d) = @ptrCast(@alignCast(result));
    var position = start;
    while (position < end) {
        const index = position / g.inner % g.extent;
        if (g.inner == 1) {
            const n = @min(g.extent - index, end - position);
            for (to[position..][0..n], index..) |*e, i| e.* = convert(d, i);
            position += n;
        } else {
            const n = @min(g.inner - position % g.inner, end - position);
            @memset(to[position..][0..n], convert(d, index));
            position += n;
        }
    }
}

/// An index as an element: integers wrap, floats round to nearest (bfloat16 by way of float32).
inline fn convert(comptime d: DType, index: u64) Storage(d) {
    return switch (d) {
        .bool => @intFromBool(index != 0),
        .u64 => index,
        .i64 => @bitCast(index),
        .u8, .u16, .u32 => @truncate(index),
        .i8, .i16, .i32 => @truncate(@as(i64, @bitCast(index))),
        .f16 => @floatCast(@as(f64, @floatFromInt(index))),
        .bf16, .f32 => lanes.narrow(d, @as(f32, @floatFromInt(index))),
        .f64 => @floatFromInt(index),
        _ => unreachable,
    };
}

const harness = @import("harness.zig");
const testing = std.testing;

test "concatenate takes any layout, along every axis" {
    var prng: std.Random.DefaultPrng = .init(8);
    const random = prng.random();
    inline for (.{ DType.u8, DType.f16, DType.f32, DType.i64 }) |d| {
        for (harness.all_layouts) |layout| for (0..3) |axis| {
            var views: [3]harness.View = undefined;
            var operands: [3]Operand = undefined;
            var total = [_]u64{ 3, 4, 5 };
            total[axis] = 0;
            for (&views, &operands, [_]u64{ 2, 0, 7 }) |*v, *o, extent| {
                var dims = [_]u64{ 3, 4, 5 };
                dims[axis] = extent;
                total[axis] += extent;
                v.* = try harness.randomView(random, d, &dims, layout);
                o.* = v.operand;
            }
            defer for (views) |v| v.deinit();
            const result = try harness.makeView(d, &total, .dense);
            defer result.deinit();
            const memory = try testing.allocator.alignedAlloc(u8, .@"64", concatenateBytes(3));
            defer testing.allocator.free(memory);
            planConcatenate(memory, &operands, @intCast(axis));
            const g: *const Geometry = @ptrCast(memory.ptr);
            _ = try harness.executeViews(run, g, &result, &.{ &views[0], &views[1], &views[2] });
            for (0..result.operand.elementCount()) |position| {
                const line = position / total[2];
                var at = [_]u64{ line / total[1], line % total[1], position % total[2] };
                const which: usize = if (at[axis] < 2) 0 else 2;
                if (which == 2) at[axis] -= 2;
                const dims = views[which].operand.dims;
                const from = (at[0] * dims[1] + at[1]) * dims[2] + at[2];
                try testing.expectEqual(views[which].raw(d, from), result.raw(d, position));
            }
        };
    }
}

test "concatenate of long rows in several tasks" {
    const n = 100_000;
    const a = try harness.makeView(.i32, &.{n}, .dense);
    defer a.deinit();
    const b = try harness.makeView(.i32, &.{2 * n}, .reversed);
    defer b.deinit();
    for (0..n) |i| a.set(.i32, i, @intCast(i));
    for (0..2 * n) |i| b.set(.i32, i, @intCast(n + i));
    const result = try harness.makeView(.i32, &.{3 * n}, .dense);
    defer result.deinit();
    const memory = try testing.allocator.alignedAlloc(u8, .@"64", concatenateBytes(2));
    defer testing.allocator.free(memory);
    planConcatenate(memory, &.{ a.operand, b.operand }, 0);
    const g: *const Geometry = @ptrCast(memory.ptr);
    try testing.expect(g.work.task_count > 2);
    _ = try harness.executeViews(run, g, &result, &.{ &a, &b });
    for (0..3 * n) |i| try testing.expectEqual(@as(i32, @intCast(i)), result.raw(.i32, i));
}

const PadCase = struct { low: [2]i64, high: [2]i64, interior: [2]i64 };

fn expectPad(comptime d: DType, x: *const harness.View, c: *const PadCase) !void {
    const value = try harness.makeView(d, &.{}, .dense);
    defer value.deinit();
    value.set(d, 0, lanes.narrow(d, 77));
    var extents: [2]u64 = undefined;
    const dims = x.operand.dims;
    for (&extents, 0..) |*e, k| {
        const n: i64 = @intCast(dims[k]);
        const spread = if (n == 0) 0 else (n - 1) * (c.interior[k] + 1) + 1;
        e.* = @intCast(c.low[k] + spread + c.high[k]);
    }
    const result = try harness.makeView(d, &extents, .dense);
    defer result.deinit();
    const g = planPad(&x.operand, &c.low, &c.high, &c.interior);
    _ = try harness.executeViews(run, &g, &result, &.{ x, &value });
    for (0..extents[0]) |i| for (0..extents[1]) |j| {
        var expected = value.raw(d, 0);
        const p = @as(i64, @intCast(i)) - c.low[0];
        const q = @as(i64, @intCast(j)) - c.low[1];
        const steps = .{ c.interior[0] + 1, c.interior[1] + 1 };
        if (p >= 0 and q >= 0 and @mod(p, steps[0]) == 0 and @mod(q, steps[1]) == 0) {
            const from = .{ @divExact(p, steps[0]), @divExact(q, steps[1]) };
            if (from[0] < dims[0] and from[1] < dims[1]) {
                expected = x.raw(d, @intCast(from[0] * @as(i64, @intCast(dims[1])) + from[1]));
            }
        }
        try testing.expectEqual(expected, result.raw(d, i * extents[1] + j));
    };
}

test "pad grows, crops and spreads" {
    var prng: std.Random.DefaultPrng = .init(9);
    const cases = [_]PadCase{
        .{ .low = .{ 1, 2 }, .high = .{ 0, 3 }, .interior = .{ 0, 0 } },
        .{ .low = .{ 2, 0 }, .high = .{ 1, 0 }, .interior = .{ 0, 0 } },
        .{ .low = .{ 0, 1 }, .high = .{ 2, 0 }, .interior = .{ 2, 1 } },
        .{ .low = .{ -1, -2 }, .high = .{ -1, 3 }, .interior = .{ 0, 0 } },
        .{ .low = .{ -1, -3 }, .high = .{ 2, -1 }, .interior = .{ 1, 2 } },
        .{ .low = .{ 0, 0 }, .high = .{ 0, 0 }, .interior = .{ 0, 0 } },
        .{ .low = .{ 5, -4 }, .high = .{ -6, 4 }, .interior = .{ 0, 0 } },
    };
    inline for (.{ DType.i8, DType.bf16, DType.f32, DType.f64 }) |d| {
        for (harness.all_layouts) |layout| for (&cases) |*c| {
            const x = try harness.randomView(prng.random(), d, &.{ 4, 5 }, layout);
            defer x.deinit();
            try expectPad(d, &x, c);
        };
    }
    const empty = try harness.makeView(.f32, &.{ 0, 3 }, .dense);
    defer empty.deinit();
    try expectPad(.f32, &empty, &cases[0]);
    const long = try harness.randomView(prng.random(), .f32, &.{ 2, 100_000 }, .dense);
    defer long.deinit();
    try expectPad(.f32, &long, &cases[0]);
    try expectPad(.f32, &long, &cases[4]);
}

test "iota counts along its axis in every dtype" {
    inline for (harness.all_dtypes) |d| for (0..3) |axis| {
        const dims = [_]u64{ 3, 300, 2 };
        const result = try harness.makeView(d, &dims, .dense);
        defer result.deinit();
        const g = planIota(d, &dims, @intCast(axis));
        _ = try harness.executeViews(run, &g, &result, &.{});
        for (0..result.operand.elementCount()) |p| {
            const index = [_]u64{ p / 600, p / 2 % 300, p % 2 };
            try testing.expectEqual(convert(d, index[axis]), result.raw(d, p));
        }
    };
    try testing.expectEqual(@as(u8, 44), convert(.u8, 300));
    try testing.expectEqual(@as(f16, 2048), convert(.f16, 2049));
    const empty = planIota(.f32, &.{ 0, 4 }, 1);
    try testing.expectEqual(@as(u64, 0), empty.work.task_count);
}
