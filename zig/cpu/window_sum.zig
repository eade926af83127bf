//! The transpose of `window`: overlapping windows are added back to the array they lie on. As a
//! gather: each row of the result sums what the windows hold for it, window offset after window
//! offset, so nothing is written twice and no order depends on tasks. Any strides.
//!
//! Numerics: half types accumulate in float32 and round once; integers wrap; floats add in order of
//! the window offsets.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;
const Operand = kernel_abi.Operand;
const rank_max = kernel_abi.rank_max;

/// Additions of a task, about 30 us.
const task_additions = 1 << 16;
/// Columns of a row that are summed at a time: they stay in the first-level cache.
const columns_max = 2048;

/// The attributes of the opcode, as the program has them, but for the sizes.
pub const Attributes = struct {
    axes: []const i64,
    strides: []const i64,
    dilations: []const i64,
    extents: []const i64,
};

/// One axis of the result. Element `window * step + offset * dilation` of it gets what lies
/// `window * window_stride + offset * offset_stride` after element 0 of the operand. An axis
/// without windows has step 1 and one offset.
const Axis = extern struct {
    extent: u64,
    windows: u64,
    window_stride: i64,
    size: u64,
    offset_stride: i64,
    step: u64,
    dilation: u64,

    fn isPlain(axis: *const Axis) bool {
        return axis.size == 1 and axis.step == 1 and axis.windows == axis.extent;
    }

    /// The window that has `position` at this offset, if there is one.
    fn windowAt(axis: *const Axis, position: u64, offset: u64) ?u64 {
        const from_start = position -% offset * axis.dilation;
        if (from_start > position or from_start % axis.step != 0) return null;
        const window = from_start / axis.step;
        return if (window < axis.windows) window else null;
    }
};

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    dtype: DType,
    rank: u64,
    axes: [rank_max]Axis,
    /// All axes but the last, and how the last one is cut.
    row_count: u64,
    rows_per_task: u64,
    cuts: u64,
    columns_per_task: u64,
};

/// ptrs: result, x.
pub fn plan(x: *const Operand, attributes: Attributes) Geometry {
    assert(x.rank >= attributes.axes.len);
    assert(attributes.axes.len == attributes.extents.len);
    const rank = x.rank - attributes.axes.len;
    var g = std.mem.zeroes(Geometry);
    g.dtype = lanes.canonical(.sum, x.dtype);
    const empty = x.elementCount() == 0;
    var taps: u64 = 1;
    for (0..rank) |a| {
        var axis: Axis = .{
            .extent = x.dims[a],
            .windows = x.dims[a],
            .window_stride = x.strides[a],
            .size = 1,
            .offset_stride = 0,
            .step = 1,
            .dilation = 1,
        };
        for (attributes.axes, rank.., 0..) |listed, added, k| {
            if (listed != @as(i64, @intCast(a))) continue;
            axis.extent = @intCast(attributes.extents[k]);
            axis.size = if (empty) 0 else x.dims[added]; // which may be large where nothing is
            axis.offset_stride = x.strides[added];
            axis.step = @intCast(attributes.strides[k]);
            axis.dilation = @intCast(attributes.dilations[k]);
        }
        taps *= @max(axis.size, 1);
        append(&g, axis);
    }
    if (g.rank == 0) {
        g.rank = 1;
        g.axes[0] = std.mem.zeroes(Axis);
        g.axes[0].extent = 1;
        g.axes[0].windows = 1;
        g.axes[0].size = 1;
        g.axes[0].step = 1;
    }
    cut(&g, taps);
    g.work.cost_ns = x.elementCount() / 2 + g.row_count * taps * 4;
    return g;
}

/// Adds an inner axis, merged with the one before if neither has windows and both are walked as
/// one.
fn append(g: *Geometry, axis: Axis) void {
    if (g.rank > 0) {
        const outer = &g.axes[g.rank - 1];
        const walked = axis.window_stride *% @as(i64, @intCast(axis.extent));
        if (outer.isPlain() and axis.isPlain() and outer.window_stride == walked) {
            outer.extent *= axis.extent;
            outer.windows = outer.extent;
            outer.window_stride = axis.window_stride;
            return;
        }
    }
    g.axes[g.rank] = axis;
    g.rank += 1;
}

fn cut(g: *Geometry, taps: u64) void {
    g.row_count = 1;
    for (g.axes[0 .. g.rank - 1]) |*axis| g.row_count *= axis.extent;
    const row = g.axes[g.rank - 1].extent;
    g.columns_per_task = @min(row, @max(64, @min(columns_max, task_additions / taps)));
    g.cuts = if (row == 0) 0 else (row - 1) / g.columns_per_task + 1;
    g.rows_per_task = @max(1, task_additions / (@max(g.columns_per_task, 1) * taps));
    g.work.task_count = (g.row_count + g.rows_per_task - 1) / g.rows_per_task * g.cuts;
    g.work.scratch_bytes = if (isHalf(g.dtype)) g.columns_per_task * 4 else 0;
}

fn isHalf(d: DType) bool {
    return d == .f16 or d == .bf16;
}

pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    if (ctx.isCancelled()) return;
    switch (g.dtype) {
        inline .u8, .u16, .u32, .u64, .f16, .bf16, .f32, .f64 => |d| {
            const begin = task / g.cuts * g.rows_per_task;
            const column = task % g.cuts * g.columns_per_task;
            var rows: Rows(d) = .{
                .g = g,
                .x = @ptrCast(@alignCast(ptrs[1])),
                .column = column,
                .column_end = @min(column + g.columns_per_task, g.axes[g.rank - 1].extent),
                .sums = @ptrCast(@alignCast(ctx.scratch)),
                .index = undefined,
            };
            const result: [*]Storage(d) = @ptrCast(@alignCast(ptrs[0]));
            for (begin..@min(begin + g.rows_per_task, g.row_count)) |row| rows.one(row, result);
        },
        else => unreachable,
    }
}

fn Rows(comptime d: DType) type {
    return struct {
        const S = Storage(d);
        const C = Compute(d);

        g: *const Geometry,
        x: [*]const S,
        column: u64,
        column_end: u64,
        /// Sums of a row: scratch of half types, the result itself of others.
        sums: [*]C,
        index: [rank_max]u64,

        fn one(r: *@This(), row: u64, result: [*]S) void {
            const g = r.g;
            var rest = row;
            var a = g.rank - 1;
            while (a > 0) {
                a -= 1;
                r.index[a] = rest % g.axes[a].extent;
                rest /= g.axes[a].extent;
            }
            const count = r.column_end - r.column;
            const to = result + row * g.axes[g.rank - 1].extent + r.column;
            if (S == C) r.sums = to;
            @memset(r.sums[0..count], 0);
            r.outer(0, 0);
            if (S != C) narrow(to, r.sums, count);
        }

        /// All windows over the axes from `a` on, given those before.
        fn outer(r: *const @This(), a: u64, offset: i64) void {
            const axis = &r.g.axes[a];
            if (a == r.g.rank - 1) return r.inner(axis, offset);
            for (0..axis.size) |k| {
                const window = axis.windowAt(r.index[a], k) orelse continue;
                const along = @as(i64, @intCast(window)) * axis.window_stride;
                r.outer(a + 1, offset + along + @as(i64, @intCast(k)) * axis.offset_stride);
            }
        }

        fn inner(r: *const @This(), axis: *const Axis, offset: i64) void {
            for (0..axis.size) |k| {
                const shift = k * axis.dilation;
                const first = firstWindow(axis, shift, r.column);
                const end = @min(firstWindow(axis, shift, r.column_end), axis.windows);
                if (first >= end) continue;
                const along = @as(i64, @intCast(first)) * axis.window_stride;
                const from = offset + along + @as(i64, @intCast(k)) * axis.offset_stride;
                const to = r.sums + (first * axis.step + shift - r.column);
                addLine(to, axis.step, view.at(S, r.x, from), axis.window_stride, end - first);
            }
        }

        /// The first window whose element at this shift lies at or behind `column`.
        fn firstWindow(axis: *const Axis, shift: u64, column: u64) u64 {
            return if (column <= shift) 0 else (column - shift - 1) / axis.step + 1;
        }

        fn addLine(to: [*]C, step: u64, from: [*]const S, stride: i64, n: u64) void {
            const width = lanes.lanes(d);
            var i: u64 = 0;
            if (step == 1 and stride == 1) {
                while (i + width <= n) : (i += width) {
                    const sum: lanes.Vector(d) = to[i..][0..width].*;
                    to[i..][0..width].* = lanes.combine(.sum, sum, lanes.load(d, from + i));
                }
            }
            while (i < n) : (i += 1) {
                lanes.keepScalar();
                const term = view.at(S, from, @as(i64, @intCast(i)) * stride)[0];
                to[i * step] = lanes.combine(.sum, to[i * step], lanes.widen(d, term));
            }
        }

        fn narrow(to: [*]S, from: [*]const C, n: u64) void {
            const width = lanes.lanes(d);
            var i: u64 = 0;
            while (i + width <= n) : (i += width) lanes.store(d, to + i, from[i..][0..width].*);
            while (i < n) : (i += 1) to[i] = lanes.narrow(d, from[i]);
        }
    };
}

const harness = @import("harness.zig");
const testing = std.testing;

const Case = struct {
    extents: [3]u64,
    sizes: [2]u64,
    strides: [2]u64,
    dilations: [2]u64,

    fn of(extents: [3]u64, sizes: [2]u64, strides: [2]u64, dilations: [2]u64) Case {
        return .{ .extents = extents, .sizes = sizes, .strides = strides, .dilations = dilations };
    }
};

fn windowCount(n: u64, size: u64, stride: u64, dilation: u64) u64 {
    const reach = (size - 1) * dilation;
    return if (n <= reach) 0 else (n - reach - 1) / stride + 1;
}

/// Windows on axes 0 and 2 (or 0 and 1, in the other order) of a result of rank 3, added one by
/// one; the sample values make every sum exact.
fn check(comptime d: DType, random: std.Random, case: Case, layout: harness.Layout) !void {
    for ([_][2]usize{ .{ 0, 2 }, .{ 1, 0 } }) |axes| {
        var dims = [_]u64{ case.extents[0], case.extents[1], case.extents[2], 0, 0 };
        for (axes, 0..) |axis, k| {
            const size = case.sizes[k];
            dims[axis] = windowCount(dims[axis], size, case.strides[k], case.dilations[k]);
            dims[3 + k] = size;
        }
        const x = try harness.randomView(random, d, &dims, layout);
        defer x.deinit();
        const result = try harness.makeView(d, &case.extents, .dense);
        defer result.deinit();
        @memset(result.memory, 0x77);
        const listed = [_]i64{ @intCast(axes[0]), @intCast(axes[1]) };
        const extents = [_]i64{ @intCast(case.extents[axes[0]]), @intCast(case.extents[axes[1]]) };
        const g = plan(&x.operand, .{
            .axes = &listed,
            .strides = &.{ @intCast(case.strides[0]), @intCast(case.strides[1]) },
            .dilations = &.{ @intCast(case.dilations[0]), @intCast(case.dilations[1]) },
            .extents = &extents,
        });
        _ = try harness.executeViews(run, &g, &result, &.{&x});
        const count = case.extents[0] * case.extents[1] * case.extents[2];
        const want = try testing.allocator.alloc(Compute(d), count);
        defer testing.allocator.free(want);
        @memset(want, 0);
        for (0..x.operand.elementCount()) |flat| {
            var rest = flat;
            var at: [5]u64 = undefined;
            for (0..5) |back| {
                at[4 - back] = rest % dims[4 - back];
                rest /= dims[4 - back];
            }
            for (axes, 0..) |axis, k| {
                at[axis] = at[axis] * case.strides[k] + at[3 + k] * case.dilations[k];
            }
            const place = (at[0] * case.extents[1] + at[1]) * case.extents[2] + at[2];
            want[place] = lanes.combine(.sum, want[place], x.get(d, flat));
        }
        for (want, 0..) |sum, place| {
            try testing.expectEqual(lanes.narrow(d, sum), result.raw(d, place));
        }
    }
}

test "windows of any stride and dilation, every dtype and layout" {
    var prng: std.Random.DefaultPrng = .init(5);
    const random = prng.random();
    const cases = [_]Case{
        .of(.{ 5, 4, 70 }, .{ 3, 3 }, .{ 1, 1 }, .{ 1, 1 }),
        .of(.{ 7, 6, 9 }, .{ 2, 3 }, .{ 2, 3 }, .{ 1, 2 }),
        .of(.{ 6, 5, 8 }, .{ 1, 2 }, .{ 3, 1 }, .{ 4, 3 }),
        .of(.{ 2, 3, 3 }, .{ 4, 1 }, .{ 1, 1 }, .{ 1, 1 }),
        .of(.{ 0, 4, 3 }, .{ 1, 2 }, .{ 1, 1 }, .{ 1, 1 }),
        .of(.{ 3, 0, 3 }, .{ 1, 2 }, .{ 1, 1 }, .{ 1, 1 }),
    };
    inline for (harness.all_dtypes) |d| {
        if (d == .bool) continue;
        for (cases) |case| for (harness.all_layouts) |layout| try check(d, random, case, layout);
    }
}

test "long rows are cut, axes without windows are merged, rank 0 is a copy" {
    var prng: std.Random.DefaultPrng = .init(6);
    const random = prng.random();
    const long: Case = .of(.{ 3, 2, 9000 }, .{ 2, 7 }, .{ 1, 3 }, .{ 1, 2 });
    inline for (.{ .f32, .f16, .i16 }) |d| try check(d, random, long, .dense);
    const channels_last = Operand.contiguous(.f32, &.{ 4, 6, 8, 3 });
    const g = plan(&channels_last, .{
        .axes = &.{0},
        .strides = &.{1},
        .dilations = &.{1},
        .extents = &.{6},
    });
    // The last operand axis is the offset: x is [windows, 6, 8, 3].
    try testing.expectEqual(@as(u64, 2), g.rank);
    try testing.expectEqual(@as(u64, 48), g.axes[1].extent);
    const x = try harness.randomView(random, .bf16, &.{}, .dense);
    defer x.deinit();
    const result = try harness.makeView(.bf16, &.{}, .dense);
    defer result.deinit();
    const copied = plan(&x.operand, .{
        .axes = &.{},
        .strides = &.{},
        .dilations = &.{},
        .extents = &.{},
    });
    _ = try harness.executeViews(run, &copied, &result, &.{&x});
    try testing.expectEqual(x.raw(.bf16, 0), result.raw(.bf16, 0));
}
