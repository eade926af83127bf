//! cross_entropy and cross_entropy_grad: the loss of integer labels under the softmax of dense rows
//! of logits, row by row, and its derivative times a cotangent for each row.
//!
//! Numerics: as softmax; half types compute in float32 and round once. A row whose label is
//! `ignore_index` gives 0 and zero gradient; any other label outside the row is an error.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const index = @import("index.zig");
const row = @import("row.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;

pub const needs_dense_inputs = true;

pub const Op = enum(u32) { loss, gradient };

/// Elements of a task, about 40 us.
const task_elements = 1 << 15;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    label_dtype: DType,
    /// The axis that errors name: the last of the logits.
    axis: u32,
    rows: u64,
    classes: u64,
    rows_per_task: u64,
    ignore_index: i64,
};

/// `logits` is `[.., classes]`; labels, losses and cotangents are `[..]`.
pub fn plan(
    op: Op,
    logits: *const kernel_abi.Operand,
    labels: *const kernel_abi.Operand,
    ignore_index: i64,
) Geometry {
    assert(logits.rank > 0);
    assert(logits.dtype.isFloat());
    assert(labels.dtype.isInteger());
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = logits.dtype;
    g.label_dtype = labels.dtype;
    g.axis = logits.rank - 1;
    g.classes = logits.dims[g.axis];
    g.rows = labels.elementCount();
    g.rows_per_task = @max(1, task_elements / @max(g.classes, 64));
    g.ignore_index = ignore_index;
    const half = logits.dtype == .f16 or logits.dtype == .bf16;
    if (op == .gradient and half) g.work.scratch_bytes = g.classes * 4;
    g.work.task_count = (g.rows + g.rows_per_task - 1) / g.rows_per_task;
    g.work.cost_ns = logits.elementCount() + g.rows * 40;
    return g;
}

/// ptrs: result, logits, labels, and the cotangents for the gradient.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    @setEvalBranchQuota(100_000);
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const start = task * g.rows_per_task;
    const end = @min(start + g.rows_per_task, g.rows);
    for (start..end) |r| {
        if (ctx.isCancelled()) return;
        var label: [1]i64 = undefined;
        index.load(g.label_dtype, &label, ptrs[2] + r * g.label_dtype.bytes(), 1, 1);
        const ignored = label[0] == g.ignore_index;
        if (!ignored and (label[0] < 0 or label[0] >= g.classes)) {
            ctx.status.* = index.outOfBounds(label[0], g.axis, @intCast(g.classes));
            return;
        }
        switch (g.dtype) {
            inline .f16, .bf16, .f32, .f64 => |d| {
                const active: ?u64 = if (ignored) null else @intCast(label[0]);
                switch (g.op) {
                    .loss => loss(d, g, ptrs, r, active),
                    .gradient => gradient(d, g, ptrs, r, active, ctx),
                }
            },
            else => unreachable,
        }
    }
}

fn logitsOf(
    comptime d: DType,
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    r: u64,
) [*]const Storage(d) {
    return @as([*]const Storage(d), @ptrCast(@alignCast(ptrs[1]))) + r * g.classes;
}

fn loss(comptime d: DType, g: *const Geometry, ptrs: [*]const [*]u8, r: u64, label: ?u64) void {
    const result: [*]Storage(d) = @ptrCast(@alignCast(ptrs[0]));
    const active = label orelse {
        result[r] = lanes.narrow(d, 0);
        return;
    };
    const x = logitsOf(d, g, ptrs, r);
    const shift = row.maximum(d, x, g.classes);
    const total = row.sum(d, x, g.classes, row.Exp(d){ .shift = shift });
    const value = row.logarithm(Compute(d), total) - (lanes.widen(d, x[active]) - shift);
    result[r] = lanes.narrow(d, value);
}

fn gradient(
    comptime d: DType,
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    r: u64,
    label: ?u64,
    ctx: *kernel_abi.TaskContext,
) void {
    const S = Storage(d);
    const C = Compute(d);
    const n = g.classes;
    const to = @as([*]S, @ptrCast(@alignCast(ptrs[0]))) + r * n;
    const active = label orelse {
        @memset(to[0..n], lanes.narrow(d, 0));
        return;
    };
    const x = logitsOf(d, g, ptrs, r);
    const ct = lanes.widen(d, @as([*]const S, @ptrCast(@alignCast(ptrs[3])))[r]);
    const shift = row.maximum(d, x, n);
    const half = comptime C != S;
    const keep: [*]C = if (half) @ptrCast(@alignCast(ctx.scratch)) else to;
    const total = row.sum(d, x, n, row.ExpAndKeep(d){ .shift = shift, .keep = keep, .room = n });
    const at_label = (keep[active] / total - 1) * ct;
    const wide = comptime if (half) DType.f32 else d;
    row.map(d, wide, to, keep, n, Weighted(d){ .factor = 1 / total, .ct = ct });
    to[active] = lanes.narrow(d, at_label);
}

fn Weighted(comptime d: DType) type {
    return struct {
        factor: Compute(d),
        ct: Compute(d),

        pub inline fn apply(c: @This(), x: lanes.Vector(d), _: u64) lanes.Vector(d) {
            const V = lanes.Vector(d);
            return x * @as(V, @splat(c.factor)) * @as(V, @splat(c.ct));
        }
    };
}

const harness = @import("harness.zig");

fn epsilonOf(d: DType) f64 {
    return switch (d) {
        .f16 => 0x1p-11,
        .bf16 => 0x1p-8,
        .f32 => 0x1p-24,
        else => 0x1p-53,
    };
}

fn expectLosses(comptime d: DType, comptime label_dtype: DType, rows: u64, classes: u64) !void {
    var prng: std.Random.DefaultPrng = .init(rows + classes);
    const random = prng.random();
    const x = try harness.randomView(random, d, &.{ rows, classes }, .dense);
    defer x.deinit();
    const ct = try harness.randomView(random, d, &.{rows}, .dense);
    defer ct.deinit();
    const labels = try harness.makeView(label_dtype, &.{rows}, .dense);
    defer labels.deinit();
    for (0..rows) |r| {
        const label = random.uintLessThan(u64, classes);
        labels.set(label_dtype, r, if (r % 5 == 4) 99 else @intCast(label));
    }
    const losses = try harness.makeView(d, &.{rows}, .dense);
    defer losses.deinit();
    const grads = try harness.makeView(d, &.{ rows, classes }, .dense);
    defer grads.deinit();
    const g = plan(.loss, &x.operand, &labels.operand, 99);
    const h = plan(.gradient, &x.operand, &labels.operand, 99);
    const first = try harness.executeViews(run, &g, &losses, &.{ &x, &labels });
    const second = try harness.executeViews(run, &h, &grads, &.{ &x, &labels, &ct });
    try std.testing.expectEqual(kernel_abi.Fault.none, first.fault);
    try std.testing.expectEqual(kernel_abi.Fault.none, second.fault);
    for (0..rows) |r| {
        const label: u64 = @intCast(labels.raw(label_dtype, r));
        if (label == 99) try std.testing.expectEqual(@as(Compute(d), 0), losses.get(d, r));
        var total: f64 = 0;
        for (0..classes) |i| total += @exp(@as(f64, x.get(d, r * classes + i)));
        if (label != 99) {
            const expected = @log(total) - @as(f64, x.get(d, r * classes + label));
            const got: f64 = losses.get(d, r);
            // A logarithm and two subtractions of values up to 12 + log(classes).
            const slack = epsilonOf(d) * (@abs(expected) + 1) + 0x1p-24 * 40;
            try std.testing.expectApproxEqAbs(expected, got, slack);
        }
        for (0..classes) |i| {
            const p = @exp(@as(f64, x.get(d, r * classes + i))) / total;
            const hot: f64 = if (i == label) 1 else 0;
            const weight: f64 = ct.get(d, r);
            const expected = if (label == 99) 0 else (p - hot) * weight;
            const got: f64 = grads.get(d, r * classes + i);
            const slack = epsilonOf(d) * @abs(expected) + 8 * 0x1p-24 * @abs(weight);
            try std.testing.expectApproxEqAbs(expected, got, slack);
        }
    }
}

test "losses and gradients against float64" {
    inline for (harness.float_dtypes) |d| {
        try expectLosses(d, .i32, 13, 7);
        try expectLosses(d, .u8, 40, 64);
        try expectLosses(d, .i64, 3, 1500);
        try expectLosses(d, .i64, 0, 3);
    }
}

test "a label out of range is an error, unless it is the ignored one" {
    var logits = [_]f32{ 1, 2, 3, 4, 5, 6 };
    var losses: [2]f32 = undefined;
    const x = kernel_abi.Operand.contiguous(.f32, &.{ 2, 3 });
    const label_operand = kernel_abi.Operand.contiguous(.i64, &.{2});
    var labels = [_]i64{ -100, 3 };
    const g = plan(.loss, &x, &label_operand, -100);
    const pointers = [_][*]u8{ @ptrCast(&losses), @ptrCast(&logits), @ptrCast(&labels) };
    const bad = try harness.execute(run, &g, &pointers);
    try std.testing.expectEqual(kernel_abi.Fault.index_out_of_bounds, bad.fault);
    try std.testing.expectEqual(@as(i64, 3), bad.value);
    try std.testing.expectEqual(@as(i64, 3), bad.extent);
    try std.testing.expectEqual(@as(u32, 1), bad.axis);
    labels[1] = -1;
    const negative = try harness.execute(run, &g, &pointers);
    try std.testing.expectEqual(@as(i64, -1), negative.value);
}
