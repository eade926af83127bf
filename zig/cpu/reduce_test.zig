//! Tests of `reduce.zig` against scalar loops.
const std = @import("std");
const dtype = @import("../dtype.zig");
const harness = @import("harness.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const reduce = @import("reduce.zig");
const Compute = dtype.Compute;
const DType = dtype.DType;
const Op = reduce.Op;
const Storage = dtype.Storage;
const plan = reduce.plan;
const run = reduce.run;

/// The same reduction, one element after the other, in the widest type.
fn model(
    comptime op: Op,
    comptime d: DType,
    x: *const harness.View,
    axes: u32,
    output: u64,
) Wide(d) {
    const dims = x.operand.dims[0..x.operand.rank];
    var total: Wide(d) = switch (op) {
        .sum => 0,
        .prod => 1,
        .max, .min => if (d == .bool) @intFromBool(op == .min) else lanes.identity(op, Compute(d)),
    };
    for (0..x.operand.elementCount()) |position| {
        var rest: u64 = position;
        var target: u64 = 0;
        var scale: u64 = 1;
        var axis = dims.len;
        while (axis > 0) {
            axis -= 1;
            const index = rest % dims[axis];
            rest /= dims[axis];
            if (axes >> @intCast(axis) & 1 == 1) continue;
            target += index * scale;
            scale *= dims[axis];
        }
        if (target != output) continue;
        total = lanes.combine(op, total, @as(Wide(d), x.get(d, position)));
    }
    return total;
}

fn Wide(comptime d: DType) type {
    return if (d.isFloat()) f64 else Storage(d);
}

fn expectReduction(comptime op: Op, comptime d: DType, x: *const harness.View, axes: u32) !void {
    const g = plan(op, &x.operand, axes);
    const result = try harness.makeView(d, &.{g.output_count}, .dense);
    defer result.deinit();
    _ = try harness.executeViews(run, &g, &result, &.{x});
    for (0..g.output_count) |o| {
        const expected = model(op, d, x, axes, o);
        const got = result.get(d, o);
        if (comptime !d.isFloat()) {
            try std.testing.expectEqual(expected, got);
            continue;
        }
        // Sums of small multiples of one half and products of powers of two are exact in float32;
        // only the store rounds.
        const rounded = lanes.narrow(d, @floatCast(expected));
        try std.testing.expectEqual(lanes.widen(d, rounded), got);
    }
}

test "every dtype, layout and axis set agrees with a scalar loop" {
    @setEvalBranchQuota(100_000);
    var prng: std.Random.DefaultPrng = .init(1);
    const random = prng.random();
    const shapes = [_][]const u64{
        &.{ 3, 5, 7 }, &.{ 2, 1, 33 }, &.{ 70, 5 }, &.{ 4, 0, 3 }, &.{},
    };
    inline for (harness.all_dtypes) |d| {
        inline for (.{ Op.sum, Op.prod, Op.max, Op.min }) |op| {
            if (comptime (d == .bool and !lanes.isOrder(op))) continue;
            for (shapes) |dims| for (harness.all_layouts) |layout| {
                const x = try harness.randomView(random, d, dims, layout);
                defer x.deinit();
                if (comptime (op == .prod and d.isFloat())) {
                    const elements: []Storage(d) = @ptrCast(@alignCast(x.memory));
                    const factors = [_]Compute(d){ 1, -1, 2, 0.5, -0.5 };
                    for (elements) |*e| e.* = lanes.narrow(d, factors[random.uintLessThan(u8, 5)]);
                }
                for (0..@as(u32, 1) << @intCast(dims.len)) |axes| {
                    try expectReduction(op, d, &x, @intCast(axes));
                }
            };
        }
    }
}

test "long reductions in two phases" {
    var prng: std.Random.DefaultPrng = .init(2);
    const random = prng.random();
    const dims = [_]u64{ 300_000, 5 };
    inline for (.{ DType.f32, DType.i32, DType.bf16 }) |d| {
        for ([_]harness.Layout{ .dense, .transposed, .spaced }) |layout| {
            const x = try harness.randomView(random, d, &dims, layout);
            defer x.deinit();
            inline for (.{ Op.sum, Op.max }) |op| {
                for ([_]u32{ 1, 3 }) |axes| {
                    const g = plan(op, &x.operand, axes);
                    const result = try harness.makeView(d, &.{g.output_count}, .dense);
                    defer result.deinit();
                    _ = try harness.executeViews(run, &g, &result, &.{&x});
                    try std.testing.expect(g.work.phase_task_count > 0);
                    try expectTotals(op, d, &x, &result, g.output_count);
                }
            }
        }
    }
}

fn expectTotals(
    comptime op: Op,
    comptime d: DType,
    x: *const harness.View,
    result: *const harness.View,
    outputs: u64,
) !void {
    var totals: [5]f64 = @splat(if (op == .sum) 0 else -1e9);
    for (0..x.operand.elementCount()) |position| {
        const value = x.get(d, position);
        const wide: f64 = if (comptime d.isFloat()) value else @floatFromInt(value);
        const o = position % outputs;
        totals[o] = lanes.combine(op, totals[o], wide);
    }
    for (0..outputs) |o| {
        if (comptime d.isFloat()) {
            const rounded = lanes.narrow(d, @as(f32, @floatCast(totals[o])));
            try std.testing.expectEqual(lanes.widen(d, rounded), result.get(d, o));
        } else {
            try std.testing.expectEqual(@as(Compute(d), @round(totals[o])), result.get(d, o));
        }
    }
}

test "float32 sums are accurate to a few ulp whatever their length" {
    const n = 1 << 20;
    const x = try harness.makeView(.f32, &.{n}, .dense);
    defer x.deinit();
    const values: []f32 = @ptrCast(@alignCast(x.memory));
    for (values) |*v| v.* = 0.1;
    const exact = @as(f64, values[0]) * n;
    for ([_][2]u64{ .{ n, 1 }, .{ n / 16, 16 } }) |dims| {
        const operand = kernel_abi.Operand.contiguous(.f32, &dims);
        const g = plan(.sum, &operand, 1);
        var sums: [16]f32 = undefined;
        _ = try harness.execute(run, &g, &.{ @ptrCast(&sums), x.pointer() });
        const expected = exact / @as(f64, @floatFromInt(dims[1]));
        try std.testing.expectApproxEqRel(expected, @as(f64, sums[0]), 24 * 0x1p-24);
    }
}

test "NaN reaches the result of max and min" {
    const x = try harness.makeView(.f32, &.{ 40, 40 }, .dense);
    defer x.deinit();
    x.set(.f32, 17 * 40 + 39, std.math.nan(f32));
    inline for (.{ Op.max, Op.min }) |op| {
        var out: [40]f32 = undefined;
        for ([_]u32{ 1, 2 }) |axes| {
            const g = plan(op, &x.operand, axes);
            _ = try harness.execute(run, &g, &.{ @ptrCast(&out), x.pointer() });
            for (out, 0..) |o, i| {
                const hit = i == @as(usize, if (axes == 1) 39 else 17);
                try std.testing.expectEqual(hit, std.math.isNan(o));
            }
        }
    }
}

test "windows of an image are reduced side by side" {
    var prng: std.Random.DefaultPrng = .init(9);
    inline for (.{ DType.f32, .bf16, .f64, .u8, .i16 }) |d| {
        var image = try harness.randomView(prng.random(), d, &.{ 9, 11 }, .dense);
        defer image.deinit();
        // [4, 5] windows of 3 x 3, two apart: overlapping.
        image.operand = kernel_abi.Operand.contiguous(d, &.{ 4, 5, 3, 3 });
        image.operand.strides[0..4].* = .{ 22, 2, 11, 1 };
        inline for (.{ Op.sum, Op.max }) |op| {
            const g = plan(op, &image.operand, 0b1100);
            try std.testing.expectEqual(@as(i64, 2), g.row_stride);
            try expectReduction(op, d, &image, 0b1100);
        }
    }
}
