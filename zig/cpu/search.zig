//! searchsorted: for each value how many elements of a sorted row come before it (or not after it),
//! by bisection, in the order that sorts use (`sort_key.zig`): NaN after everything, equal to
//! itself. Both operands have any strides. A row that is not sorted gives some position in it.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const view = @import("view.zig");
const Order = @import("sort_key.zig").Order;
const Operand = kernel_abi.Operand;

/// Values of a task: about 60 us in rows of some thousand elements.
const task_values = 1 << 11;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    order: Order,
    /// Equal elements count as well.
    right: bool,
    /// The axes of the values, strides of the rows and of the values.
    axes: view.Axes(2),
    length: u64,
    stride: i64,
    value_count: u64,
};

/// rows `[batch.., n]`, values `[batch.., v..]`; the result is as they are.
/// ptrs: result, rows, values.
pub fn plan(rows: *const Operand, values: *const Operand, right: bool) Geometry {
    assert(rows.rank > 0 and rows.rank - 1 <= values.rank);
    assert(rows.dtype == values.dtype);
    var g = std.mem.zeroes(Geometry);
    g.order = .of(rows.dtype, false);
    g.right = right;
    g.length = rows.dims[rows.rank - 1];
    g.stride = rows.strides[rows.rank - 1];
    g.axes = .empty;
    for (0..values.rank) |a| {
        const row_stride = if (a < rows.rank - 1) rows.strides[a] else 0;
        g.axes.append(values.dims[a], .{ row_stride, values.strides[a] });
    }
    g.value_count = g.axes.count();
    g.work.task_count = (g.value_count + task_values - 1) / task_values;
    g.work.cost_ns = g.value_count * (10 + 3 * @as(u64, std.math.log2_int(u64, g.length + 1)));
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
    switch (g.order.size) {
        inline 1, 2, 4, 8 => |size| switch (g.order.form) {
            inline else => |form| {
                // Known here, so that the loops do not ask.
                var order = g.order;
                order.form = form;
                order.descending = false;
                search(view.Unit(size), g, order, ptrs, task);
            },
        },
        else => unreachable,
    }
}

inline fn search(
    comptime K: type,
    g: *const Geometry,
    order: Order,
    ptrs: [*]const [*]u8,
    task: u64,
) void {
    const result: [*]i64 = @ptrCast(@alignCast(ptrs[0]));
    const rows: [*]const K = @ptrCast(@alignCast(ptrs[1]));
    const values: [*]const K = @ptrCast(@alignCast(ptrs[2]));
    const start = task * task_values;
    var cursor = g.axes.cursor(start);
    for (start..@min(start + task_values, g.value_count)) |i| {
        const wanted = order.key(K, view.at(K, values, cursor.offsets[1])[0]);
        const row = view.at(K, rows, cursor.offsets[0]);
        var low: u64 = 0;
        var n = g.length;
        while (n > 0) {
            const half = n / 2;
            const middle: i64 = @intCast(low + half);
            const key = order.key(K, view.at(K, row, middle * g.stride)[0]);
            const is_before = if (g.right) key <= wanted else key < wanted;
            low = if (is_before) low + half + 1 else low;
            n = if (is_before) n - half - 1 else half;
        }
        result[i] = @intCast(low);
        cursor.advance(1);
    }
}

const harness = @import("harness.zig");
const DType = dtype.DType;

const View = harness.View;

fn expectPositions(comptime d: DType, rows: *const View, values: *const View) !void {
    for ([_]bool{ false, true }) |right| {
        const g = plan(&rows.operand, &values.operand, right);
        const result = try harness.makeView(.i64, &.{g.value_count}, .dense);
        defer result.deinit();
        _ = try harness.executeViews(run, &g, &result, &.{ rows, values });
        const row_count = rows.operand.elementCount() / @max(g.length, 1);
        for (0..g.value_count) |i| {
            const line = if (rows.operand.rank == 1) 0 else i / (g.value_count / row_count);
            const value = values.get(d, i);
            var count: i64 = 0;
            for (0..g.length) |k| {
                const x = rows.get(d, line * g.length + k);
                const is_nan = value != value;
                const less = if (is_nan) x == x else x < value;
                const equal = if (is_nan) x != x else x == value;
                count += @intFromBool(less or (right and equal));
            }
            try std.testing.expectEqual(count, result.raw(.i64, i));
        }
    }
}

test "counts what is before, for every dtype and layout, batched or not, NaN last" {
    var prng: std.Random.DefaultPrng = .init(10);
    const random = prng.random();
    inline for (harness.all_dtypes) |d| {
        for (harness.all_layouts) |layout| {
            const rows = try harness.randomView(random, d, &.{ 3, 50 }, .dense);
            defer rows.deinit();
            const elements: []dtype.Storage(d) = @ptrCast(@alignCast(rows.memory));
            if (comptime d.isFloat()) {
                const nan = @import("lanes.zig").narrow(d, std.math.nan(dtype.Compute(d)));
                for ([_]u64{ 3, 60, 61, 149 }) |i| elements[i] = nan;
            }
            for (0..3) |line| {
                std.mem.sort(dtype.Storage(d), elements[line * 50 ..][0..50], {}, lessThan(d));
            }
            const values = try harness.randomView(random, d, &.{ 3, 4, 5 }, layout);
            defer values.deinit();
            if (comptime d.isFloat()) values.set(d, 7, elements[49]);
            try expectPositions(d, &rows, &values);
            var one = rows;
            one.operand = Operand.contiguous(d, &.{50});
            try expectPositions(d, &one, &values);
            one.operand = Operand.contiguous(d, &.{0});
            try expectPositions(d, &one, &values);
        }
    }
}

fn lessThan(comptime d: DType) fn (void, dtype.Storage(d), dtype.Storage(d)) bool {
    return struct {
        fn less(_: void, a: dtype.Storage(d), b: dtype.Storage(d)) bool {
            const K = view.Unit(@sizeOf(dtype.Storage(d)));
            const order: Order = .of(d, false);
            return order.key(K, @bitCast(a)) < order.key(K, @bitCast(b));
        }
    }.less;
}

test "rows of any length have a cost" {
    for (0..48) |bits| {
        const rows = Operand.contiguous(.f32, &.{(@as(u64, 1) << @intCast(bits)) - 1});
        const values = Operand.contiguous(.f32, &.{2});
        const g = plan(&rows, &values, false);
        try std.testing.expectEqual(2 * (10 + 3 * bits), g.work.cost_ns);
    }
}
