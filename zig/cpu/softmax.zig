//! softmax and log_softmax along any axis of a dense operand.
//!
//! Numerics: exp(x - max) and its sum (a fixed tree; 32 rows at a time when the axis is not the
//! last) in float32 for half types and float32, in float64 for float64; softmax multiplies by the
//! reciprocal of the sum, so it is within 2 ulp of exp/sum. A row of only -inf, and a row with NaN
//! or +inf, gives NaN. The result may be the operand.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const math = @import("math.zig");
const row = @import("row.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;

pub const needs_dense_inputs = true;

pub const Op = enum(u32) { softmax, log_softmax };

/// Elements of a task, about 40 us.
const task_elements = 1 << 15;
/// Columns that are worked on side by side when the axis is not the last.
const strip_length = 64;
/// Rows whose exponentials are added before their sum joins the total of a column.
const rows_per_partial = 32;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    /// The operand is `[outer, length, inner]`.
    outer: u64,
    length: u64,
    inner: u64,
    /// Rows (`inner` is 1) or strips of columns.
    unit_count: u64,
    units_per_task: u64,
    strip_count: u64,
};

pub fn plan(op: Op, x: *const kernel_abi.Operand, axis: u32) Geometry {
    assert(axis < x.rank);
    assert(x.dtype.isFloat());
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = x.dtype;
    g.outer = 1;
    g.inner = 1;
    for (x.dims[0..axis]) |d| g.outer *= d;
    for (x.dims[axis + 1 .. x.rank]) |d| g.inner *= d;
    g.length = x.dims[axis];
    if (g.inner == 1) {
        g.strip_count = 1;
        g.units_per_task = @max(1, task_elements / @max(g.length, 1));
        if (x.dtype == .f16 or x.dtype == .bf16) g.work.scratch_bytes = g.length * 4;
    } else {
        g.strip_count = (g.inner + strip_length - 1) / strip_length;
        const each = @max(g.length, 1) * @min(g.inner, strip_length);
        g.units_per_task = @max(1, task_elements / @max(each, 1));
        g.work.scratch_bytes = 3 * strip_length * 8;
    }
    const elements = x.elementCount();
    g.unit_count = if (elements == 0) 0 else g.outer * g.strip_count;
    g.work.task_count = (g.unit_count + g.units_per_task - 1) / g.units_per_task;
    g.work.cost_ns = elements + g.unit_count * 20;
    return g;
}

/// ptrs: result, x.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    @setEvalBranchQuota(100_000);
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const start = task * g.units_per_task;
    const end = @min(start + g.units_per_task, g.unit_count);
    switch (g.dtype) {
        inline .f16, .bf16, .f32, .f64 => |d| for (start..end) |unit| {
            if (ctx.isCancelled()) return;
            if (g.inner == 1) {
                const to = @as([*]Storage(d), @ptrCast(@alignCast(ptrs[0]))) + unit * g.length;
                const x = @as([*]const Storage(d), @ptrCast(@alignCast(ptrs[1]))) + unit * g.length;
                oneRow(d, g.op, to, x, g.length, ctx);
            } else {
                columns(d, g, ptrs, unit, ctx);
            }
        },
        else => unreachable,
    }
}

fn oneRow(
    comptime d: DType,
    op: Op,
    to: [*]Storage(d),
    x: [*]const Storage(d),
    n: u64,
    ctx: *kernel_abi.TaskContext,
) void {
    const C = Compute(d);
    const shift = row.maximum(d, x, n);
    if (ctx.isCancelled()) return; // a row may be long: asked before each pass over it
    if (op == .log_softmax) {
        const total = row.sum(d, x, n, row.Exp(d){ .shift = shift });
        if (ctx.isCancelled()) return;
        const log_total = row.logarithm(C, total);
        row.map(d, d, to, x, n, LogTerm(d){ .shift = shift, .log_total = log_total });
        return;
    }
    // A float32 row keeps its exponentials in the result, a half row in scratch.
    const half = comptime C != Storage(d);
    const keep: [*]C = if (half) @ptrCast(@alignCast(ctx.scratch)) else to;
    const total = row.sum(d, x, n, row.ExpAndKeep(d){ .shift = shift, .keep = keep, .room = n });
    if (ctx.isCancelled()) return;
    const wide = comptime if (half) DType.f32 else d;
    row.map(d, wide, to, keep, n, Scale(d){ .factor = 1 / total });
}

fn Scale(comptime d: DType) type {
    return struct {
        factor: Compute(d),

        pub inline fn apply(c: @This(), x: lanes.Vector(d), _: u64) lanes.Vector(d) {
            return x * @as(lanes.Vector(d), @splat(c.factor));
        }
    };
}

fn LogTerm(comptime d: DType) type {
    return struct {
        shift: Compute(d),
        log_total: Compute(d),

        pub inline fn apply(c: @This(), x: lanes.Vector(d), _: u64) lanes.Vector(d) {
            const V = lanes.Vector(d);
            return (x - @as(V, @splat(c.shift))) - @as(V, @splat(c.log_total));
        }
    };
}

/// One strip of columns: maxima, sums and factors of the columns lie in scratch; exponentials are
/// computed twice rather than kept.
fn columns(
    comptime d: DType,
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    ctx: *kernel_abi.TaskContext,
) void {
    const S = Storage(d);
    const C = Compute(d);
    const W = lanes.lanes(d);
    const column = unit % g.strip_count * strip_length;
    const base = unit / g.strip_count * g.length * g.inner + column;
    const to = @as([*]S, @ptrCast(@alignCast(ptrs[0]))) + base;
    const x = @as([*]const S, @ptrCast(@alignCast(ptrs[1]))) + base;
    const n = @min(strip_length, g.inner - column);
    const shifts: [*]C = @ptrCast(@alignCast(ctx.scratch));
    const totals = shifts + strip_length;
    const partials = totals + strip_length;
    var j: u64 = 0;
    while (j < n) : (j += W) {
        const part = @min(W, n - j);
        var shift: lanes.Vector(d) = @splat(-std.math.inf(C));
        for (0..g.length) |i| {
            shift = lanes.combine(.max, shift, loadUpTo(d, x + i * g.inner + j, part));
        }
        shifts[j..][0..W].* = shift;
    }
    @memset(totals[0..strip_length], 0);
    var i: u64 = 0;
    while (i < g.length) {
        if (ctx.isCancelled()) return;
        const stop = @min(i + rows_per_partial, g.length);
        @memset(partials[0..strip_length], 0);
        while (i < stop) : (i += 1) {
            j = 0;
            while (j < n) : (j += W) {
                const v = loadUpTo(d, x + i * g.inner + j, @min(W, n - j));
                const shift: lanes.Vector(d) = shifts[j..][0..W].*;
                const old: lanes.Vector(d) = partials[j..][0..W].*;
                partials[j..][0..W].* = old + math.exp(v - shift);
            }
        }
        j = 0;
        while (j < n) : (j += W) {
            const total: lanes.Vector(d) = totals[j..][0..W].*;
            const partial: lanes.Vector(d) = partials[j..][0..W].*;
            totals[j..][0..W].* = total + partial;
        }
    }
    finishColumns(d, g, to, x, n, shifts, totals);
}

fn finishColumns(
    comptime d: DType,
    g: *const Geometry,
    to: [*]Storage(d),
    x: [*]const Storage(d),
    n: u64,
    shifts: [*]const Compute(d),
    totals: [*]Compute(d),
) void {
    const W = lanes.lanes(d);
    const V = lanes.Vector(d);
    var j: u64 = 0;
    while (j < n) : (j += W) {
        const total: V = totals[j..][0..W].*;
        const one: V = @splat(1);
        totals[j..][0..W].* = if (g.op == .softmax) one / total else math.log(total);
    }
    for (0..g.length) |i| {
        j = 0;
        while (j < n) : (j += W) {
            const part = @min(W, n - j);
            const v = loadUpTo(d, x + i * g.inner + j, part);
            const shift: V = shifts[j..][0..W].*;
            const factor: V = totals[j..][0..W].*;
            const y = if (g.op == .softmax)
                math.exp(v - shift) * factor
            else
                (v - shift) - factor;
            const target = to + i * g.inner + j;
            if (part == W) lanes.store(d, target, y) else row.storePart(d, target, part, y);
        }
    }
}

inline fn loadUpTo(comptime d: DType, p: [*]const Storage(d), n: u64) lanes.Vector(d) {
    return if (n == lanes.lanes(d)) lanes.load(d, p) else row.loadPart(d, p, n, 0);
}

const harness = @import("harness.zig");

fn expectSoftmax(comptime d: DType, dims: []const u64, axis: u32, op: Op) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len * 7 + axis);
    const x = try harness.randomView(prng.random(), d, dims, .dense);
    defer x.deinit();
    const result = try harness.makeView(d, dims, .dense);
    defer result.deinit();
    const g = plan(op, &x.operand, axis);
    _ = try harness.executeViews(run, &g, &result, &.{&x});
    const inner = g.inner;
    // Additions that a term goes through: 32 in a row, then the tree.
    const depth: f64 = @floatFromInt(@min(g.length, 32) + 8);
    for (0..g.outer) |o| for (0..inner) |j| {
        const first = o * g.length * inner + j;
        var largest: f64 = -std.math.inf(f64);
        for (0..g.length) |i| largest = @max(largest, @as(f64, x.get(d, first + i * inner)));
        var precise: f128 = 0;
        for (0..g.length) |i| precise += @exp(@as(f64, x.get(d, first + i * inner)) - largest);
        const total: f64 = @floatCast(precise);
        for (0..g.length) |i| {
            const centred = @as(f64, x.get(d, first + i * inner)) - largest;
            const got: f64 = result.get(d, first + i * inner);
            const epsilon: f64 = switch (d) {
                .f16 => 0x1p-11,
                .bf16 => 0x1p-8,
                .f32 => 0x1p-24,
                else => 0x1p-53,
            };
            // The exponential of each term, the sum and two roundings; below the normal range of
            // float16 the spacing no longer shrinks.
            const expected = if (op == .softmax) @exp(centred) / total else centred - @log(total);
            const floor: f64 = if (d == .f16) 0x1p-24 else 0;
            const scale: f64 = if (op == .softmax) 0 else 1;
            const slack = (6 + depth) * epsilon * @max(@abs(expected), scale);
            try std.testing.expectApproxEqAbs(expected, got, slack + floor);
        }
    };
}

test "softmax and log_softmax against float64, along every axis" {
    const shapes = [_][]const u64{
        &.{ 3, 5 },  &.{ 2, 33, 7 }, &.{ 4, 70, 300 }, &.{2100}, &.{ 5, 1 },
        &.{ 2, 48 }, &.{ 0, 3 },     &.{ 3, 0 },
    };
    inline for (harness.float_dtypes) |d| for (shapes) |dims| for (0..dims.len) |axis| {
        try expectSoftmax(d, dims, @intCast(axis), .softmax);
        try expectSoftmax(d, dims, @intCast(axis), .log_softmax);
    };
}

test "a row of -inf is NaN, along either kind of axis; in place" {
    const inf = std.math.inf(f32);
    for ([_]Op{ .softmax, .log_softmax }) |op| for ([_]u32{ 0, 1 }) |axis| {
        var values = [_]f32{ -inf, -inf, -inf, 0 };
        const operand = kernel_abi.Operand.contiguous(.f32, &.{ 2, 2 });
        const g = plan(op, &operand, axis);
        const p: [*]u8 = @ptrCast(&values);
        _ = try harness.execute(run, &g, &.{ p, p });
        try std.testing.expect(std.math.isNan(values[0]));
        const other: f32 = if (op == .softmax) 0 else -inf;
        try std.testing.expectEqual(other, values[if (axis == 1) 2 else 1]);
        try std.testing.expectEqual(@as(f32, if (op == .softmax) 1 else 0), values[3]);
    };
}
