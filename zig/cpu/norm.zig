//! layer_norm and rms_norm over the last axis of a dense operand.
//!
//! Numerics: two passes (the mean, then the mean of squared deviations, biased), sums as fixed
//! trees in float32 (float64 for float64); half types round once at the end. The result may be the
//! operand.
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

pub const Op = enum(u32) { layer_norm, rms_norm };

/// Elements of a task, about 30 us.
const task_elements = 1 << 16;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    rows: u64,
    length: u64,
    rows_per_task: u64,
    eps: f64,
};

/// `x` has rank 1 at least; weight (and bias) are as long as its last axis and of its dtype.
pub fn plan(op: Op, x: *const kernel_abi.Operand, eps: f64) Geometry {
    assert(x.rank > 0);
    assert(x.dtype.isFloat());
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = x.dtype;
    g.eps = eps;
    g.length = x.dims[x.rank - 1];
    g.rows = 1;
    for (x.dims[0 .. x.rank - 1]) |d| g.rows *= d;
    if (g.length == 0) g.rows = 0;
    g.rows_per_task = @max(1, task_elements / @max(g.length, 1));
    g.work.task_count = (g.rows + g.rows_per_task - 1) / g.rows_per_task;
    g.work.cost_ns = x.elementCount() / 2 + g.rows * 30;
    return g;
}

/// ptrs: result, x, weight, and bias for layer_norm.
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
    switch (g.dtype) {
        inline .f16, .bf16, .f32, .f64 => |d| for (start..end) |r| {
            if (ctx.isCancelled()) return;
            const S = Storage(d);
            const to = @as([*]S, @ptrCast(@alignCast(ptrs[0]))) + r * g.length;
            const x = @as([*]const S, @ptrCast(@alignCast(ptrs[1]))) + r * g.length;
            const weight: [*]const S = @ptrCast(@alignCast(ptrs[2]));
            switch (g.op) {
                .layer_norm => layerNorm(d, g, to, x, weight, @ptrCast(@alignCast(ptrs[3]))),
                .rms_norm => rmsNorm(d, g, to, x, weight),
            }
        },
        else => unreachable,
    }
}

fn layerNorm(
    comptime d: DType,
    g: *const Geometry,
    to: [*]Storage(d),
    x: [*]const Storage(d),
    weight: [*]const Storage(d),
    bias: [*]const Storage(d),
) void {
    const C = Compute(d);
    const n: C = @floatFromInt(g.length);
    const mean = row.sum(d, x, g.length, Value(d){}) / n;
    const variance = row.sum(d, x, g.length, SquaredDeviation(d){ .mean = mean }) / n;
    const factor = 1 / @sqrt(variance + @as(C, @floatCast(g.eps)));
    row.map(d, d, to, x, g.length, Normalised(d){
        .mean = mean,
        .factor = factor,
        .weight = weight,
        .bias = bias,
        .n = g.length,
    });
}

fn rmsNorm(
    comptime d: DType,
    g: *const Geometry,
    to: [*]Storage(d),
    x: [*]const Storage(d),
    weight: [*]const Storage(d),
) void {
    const C = Compute(d);
    const n: C = @floatFromInt(g.length);
    const square = row.sum(d, x, g.length, SquaredDeviation(d){ .mean = 0 }) / n;
    const factor = 1 / @sqrt(square + @as(C, @floatCast(g.eps)));
    row.map(d, d, to, x, g.length, Scaled(d){ .factor = factor, .weight = weight, .n = g.length });
}

fn Value(comptime d: DType) type {
    return struct {
        pub inline fn apply(_: @This(), x: lanes.Vector(d), _: u64) lanes.Vector(d) {
            return x;
        }
    };
}

fn SquaredDeviation(comptime d: DType) type {
    return struct {
        mean: Compute(d),

        pub inline fn apply(c: @This(), x: lanes.Vector(d), _: u64) lanes.Vector(d) {
            const deviation = x - @as(lanes.Vector(d), @splat(c.mean));
            return deviation * deviation;
        }
    };
}

/// The vector at element `i` of a parameter of `n` elements.
inline fn parameter(comptime d: DType, p: [*]const Storage(d), i: u64, n: u64) lanes.Vector(d) {
    if (i + lanes.lanes(d) <= n) return lanes.load(d, p + i);
    return row.loadPart(d, p + i, n - i, 0);
}

fn Normalised(comptime d: DType) type {
    return struct {
        mean: Compute(d),
        factor: Compute(d),
        weight: [*]const Storage(d),
        bias: [*]const Storage(d),
        n: u64,

        pub inline fn apply(c: @This(), x: lanes.Vector(d), i: u64) lanes.Vector(d) {
            const V = lanes.Vector(d);
            const normal = (x - @as(V, @splat(c.mean))) * @as(V, @splat(c.factor));
            const weight = parameter(d, c.weight, i, c.n);
            return math.fma(normal, weight, parameter(d, c.bias, i, c.n));
        }
    };
}

fn Scaled(comptime d: DType) type {
    return struct {
        factor: Compute(d),
        weight: [*]const Storage(d),
        n: u64,

        pub inline fn apply(c: @This(), x: lanes.Vector(d), i: u64) lanes.Vector(d) {
            const normal = x * @as(lanes.Vector(d), @splat(c.factor));
            return normal * parameter(d, c.weight, i, c.n);
        }
    };
}

const harness = @import("harness.zig");

fn expectNorm(comptime d: DType, op: Op, dims: []const u64, eps: f64) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len);
    const random = prng.random();
    const n = dims[dims.len - 1];
    const x = try harness.randomView(random, d, dims, .dense);
    defer x.deinit();
    const weight = try harness.randomView(random, d, &.{n}, .dense);
    defer weight.deinit();
    const bias = try harness.randomView(random, d, &.{n}, .dense);
    defer bias.deinit();
    const result = try harness.makeView(d, dims, .dense);
    defer result.deinit();
    const g = plan(op, &x.operand, eps);
    _ = try harness.executeViews(run, &g, &result, &.{ &x, &weight, &bias });
    const length: f128 = @floatFromInt(n);
    for (0..g.rows) |r| {
        var mean: f128 = 0;
        var square: f128 = 0;
        if (op == .layer_norm) {
            for (0..n) |i| mean += @as(f128, x.get(d, r * n + i)) / length;
        }
        for (0..n) |i| {
            const deviation = @as(f128, x.get(d, r * n + i)) - mean;
            square += deviation * deviation / length;
        }
        const factor = 1 / @sqrt(square + eps);
        for (0..n) |i| {
            const normal = (@as(f128, x.get(d, r * n + i)) - mean) * factor;
            const b: f128 = if (op == .layer_norm) bias.get(d, i) else 0;
            const product = normal * @as(f128, weight.get(d, i));
            const got: f128 = result.get(d, r * n + i);
            const epsilon: f64 = switch (d) {
                .f16 => 0x1p-11,
                .bf16 => 0x1p-8,
                .f32 => 0x1p-24,
                else => 0x1p-53,
            };
            // Deviation, factor, two products and a sum, each rounded once, of values up to 12
            // times a weight up to 6.
            const slack = 8 * epsilon * (@abs(product) + @abs(b) + 1);
            try std.testing.expectApproxEqAbs(product + b, got, slack);
        }
    }
}

test "norms against float128" {
    const shapes = [_][]const u64{
        &.{ 3, 5 }, &.{ 2, 3, 64 }, &.{ 2, 1, 2100 }, &.{7}, &.{ 0, 4 }, &.{ 4, 0 }, &.{ 5, 1 },
    };
    inline for (harness.float_dtypes) |d| for (shapes) |dims| {
        try expectNorm(d, .layer_norm, dims, 1e-5);
        try expectNorm(d, .rms_norm, dims, 1e-6);
    };
}

test "a large mean does not spoil the variance" {
    var values: [64]f32 = undefined;
    for (&values, 0..) |*v, i| v.* = 10_000 + @as(f32, @floatFromInt(i % 2));
    const ones: [64]f32 = @splat(1);
    const zeros: [64]f32 = @splat(0);
    const operand = kernel_abi.Operand.contiguous(.f32, &.{64});
    const g = plan(.layer_norm, &operand, 0);
    const p: [*]u8 = @ptrCast(&values);
    const weight: [*]u8 = @ptrCast(@constCast(&ones));
    const bias: [*]u8 = @ptrCast(@constCast(&zeros));
    _ = try harness.execute(run, &g, &.{ p, p, weight, bias });
    for (values, 0..) |v, i| try std.testing.expectEqual(@as(f32, if (i % 2 == 0) -1 else 1), v);
}
