//! Tests of `indexing.zig` against element-wise models.
const std = @import("std");
const dtype = @import("../dtype.zig");
const harness = @import("harness.zig");
const indexing = @import("indexing.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const DType = dtype.DType;
const View = harness.View;
const testing = std.testing;
const run = indexing.run;
const Mode = indexing.Mode;

/// Indices from 2 below `[-extent, extent)` to 2 above, or inside it.
fn randomIndex(
    random: std.Random,
    comptime d: DType,
    dims: []const u64,
    layout: harness.Layout,
    extent: i64,
    mode: Mode,
) !View {
    const v = try harness.makeView(d, dims, layout);
    const slack: i64 = if (mode == .checked or mode == .strict) 0 else 2;
    const lowest = if (d.isSigned() and mode != .strict) -extent - slack else 0;
    for (0..v.operand.elementCount()) |i| {
        const value = random.intRangeLessThan(i64, lowest, extent + slack);
        v.set(d, i, @intCast(value));
    }
    return v;
}

fn resolved(value: i64, extent: i64, mode: Mode) ?u64 {
    switch (mode) {
        .checked => return @intCast(if (value < 0) value + extent else value),
        .clip => return @intCast(std.math.clamp(value, 0, extent - 1)),
        .fill => return if (value < 0 or value >= extent) null else @intCast(value),
        .strict => return @intCast(value),
    }
}

fn expectElement(
    comptime d: DType,
    x: *const View,
    from: ?u64,
    result: *const View,
    at: u64,
) !void {
    const got = result.get(d, at);
    if (from) |position| {
        try testing.expectEqual(x.get(d, position), got);
    } else if (comptime d.isFloat()) {
        try testing.expect(std.math.isNan(got));
    } else {
        try testing.expectEqual(@as(dtype.Compute(d), 0), got);
    }
}

/// take of x `[2, 3, 5, 4]` along axis 2 with index `[2, 3, 2]` and `batch_dims` batch axes.
fn expectTake(
    random: std.Random,
    comptime d: DType,
    comptime e: DType,
    layout: harness.Layout,
    mode: Mode,
) !void {
    for (0..2) |batch_dims| {
        const x = try harness.randomView(random, d, &.{ 2, 3, 5, 4 }, layout);
        defer x.deinit();
        const positions = try randomIndex(random, e, &.{ 2, 3, 2 }, layout, 5, mode);
        defer positions.deinit();
        const batch: u32 = @intCast(batch_dims);
        const g = indexing.planTake(&x.operand, &positions.operand, 2, batch, mode);
        // With one batch axis [2, 3, (3, 2), 4], with none [2, 3, (2, 3, 2), 4].
        const k: u64 = if (batch == 1) 6 else 12;
        const result = try harness.makeView(d, &.{ 2, 3, k, 4 }, .dense);
        defer result.deinit();
        const status = try harness.executeViews(run, &g, &result, &.{ &x, &positions });
        try testing.expectEqual(kernel_abi.Fault.none, status.fault);
        for (0..6 * k * 4) |at| {
            const row = at / 4 / k;
            const which = at / 4 % k + if (batch == 1) row / 3 * 6 else 0;
            const position = resolved(@intCast(positions.raw(e, which)), 5, mode);
            const from = if (position) |p| (row * 5 + p) * 4 + at % 4 else null;
            try expectElement(d, &x, from, &result, at);
        }
    }
}

test "take in every mode, layout and size" {
    var prng: std.Random.DefaultPrng = .init(10);
    const random = prng.random();
    for (harness.all_layouts) |layout| for ([_]Mode{ .checked, .clip, .fill, .strict }) |mode| {
        try expectTake(random, .u8, .i8, layout, mode);
        try expectTake(random, .bf16, .u64, layout, mode);
        try expectTake(random, .f32, .i64, layout, mode);
        try expectTake(random, .f64, .i32, layout, mode);
        try expectTake(random, .f16, .u16, layout, mode);
    };
}

test "take along the last axis, with long rows and with none" {
    var prng: std.Random.DefaultPrng = .init(11);
    const random = prng.random();
    const x = try harness.randomView(random, .f32, &.{ 3, 100_000 }, .dense);
    defer x.deinit();
    const rows = try randomIndex(random, .i32, &.{4}, .dense, 3, .checked);
    defer rows.deinit();
    const g = indexing.planTake(&x.operand, &rows.operand, 0, 0, .checked);
    try testing.expect(g.columns > 1);
    const result = try harness.makeView(.f32, &.{ 4, 100_000 }, .dense);
    defer result.deinit();
    _ = try harness.executeViews(run, &g, &result, &.{ &x, &rows });
    for (0..400_000) |at| {
        const row = resolved(rows.raw(.i32, at / 100_000), 3, .checked).?;
        try testing.expectEqual(x.raw(.f32, row * 100_000 + at % 100_000), result.raw(.f32, at));
    }
    const columns = try randomIndex(random, .i64, &.{70_000}, .dense, 100_000, .checked);
    defer columns.deinit();
    const h = indexing.planTake(&x.operand, &columns.operand, 1, 0, .checked);
    const taken = try harness.makeView(.f32, &.{ 3, 70_000 }, .dense);
    defer taken.deinit();
    _ = try harness.executeViews(run, &h, &taken, &.{ &x, &columns });
    for (0..210_000) |at| {
        const column = resolved(columns.raw(.i64, at % 70_000), 100_000, .checked).?;
        try testing.expectEqual(x.raw(.f32, at / 70_000 * 100_000 + column), taken.raw(.f32, at));
    }
    const none = kernel_abi.Operand.contiguous(.i32, &.{0});
    const empty = indexing.planTake(&x.operand, &none, 0, 0, .checked);
    try testing.expectEqual(@as(u64, 0), empty.work.task_count);
}

test "take_along_axis agrees with its definition" {
    var prng: std.Random.DefaultPrng = .init(12);
    const random = prng.random();
    inline for (.{ DType.i16, DType.f32 }) |d| for (harness.all_layouts) |layout| {
        for ([_]Mode{ .checked, .clip, .fill, .strict }) |mode| for (0..3) |axis| {
            const dims = [_]u64{ 3, 4, 5 };
            var index_dims = dims;
            index_dims[axis] = 6;
            const extent: i64 = @intCast(dims[axis]);
            const x = try harness.randomView(random, d, &dims, layout);
            defer x.deinit();
            const positions = try randomIndex(random, .i16, &index_dims, layout, extent, mode);
            defer positions.deinit();
            const result = try harness.makeView(d, &index_dims, .dense);
            defer result.deinit();
            const a: u32 = @intCast(axis);
            const g = indexing.planTakeAlongAxis(&x.operand, &positions.operand, a, mode);
            _ = try harness.executeViews(run, &g, &result, &.{ &x, &positions });
            for (0..result.operand.elementCount()) |at| {
                const row = at / index_dims[2];
                var where = [_]u64{ row / index_dims[1], row % index_dims[1], at % index_dims[2] };
                var from: ?u64 = null;
                if (resolved(positions.raw(.i16, at), extent, mode)) |p| {
                    where[axis] = p;
                    from = (where[0] * 4 + where[1]) * 5 + where[2];
                }
                try expectElement(d, &x, from, &result, at);
            }
        };
    };
}

test "an index out of range names itself, its axis and the extent" {
    var x: [12]f32 = @splat(0);
    var out: [12]f32 = undefined;
    const operand = kernel_abi.Operand.contiguous(.f32, &.{ 4, 3 });
    const three = kernel_abi.Operand.contiguous(.i32, &.{3});
    var positions = [_]i32{ 0, -5, 7 };
    const g = indexing.planTake(&operand, &three, 0, 0, .checked);
    const pointers = [_][*]u8{ @ptrCast(&out), @ptrCast(&x), @ptrCast(&positions) };
    const status = try harness.execute(run, &g, &pointers);
    try testing.expectEqual(kernel_abi.Fault.index_out_of_bounds, status.fault);
    try testing.expectEqual(@as(i64, -5), status.value);
    try testing.expectEqual(@as(u32, 0), status.axis);
    try testing.expectEqual(@as(i64, 4), status.extent);
}

test "check_index wraps, clips and fails" {
    const three = kernel_abi.Operand.contiguous(.i8, &.{3});
    var positions = [_]i8{ 0, -5, 4 };
    var out: [3]i64 = undefined;
    const pointers = [_][*]u8{ @ptrCast(&out), @ptrCast(&positions) };
    const wrapping = indexing.planCheckIndex(&three, 5, 2, .checked);
    try testing.expectEqual(.none, (try harness.execute(run, &wrapping, &pointers)).fault);
    try testing.expectEqualSlices(i64, &.{ 0, 0, 4 }, &out);
    const clipping = indexing.planCheckIndex(&three, 4, 2, .clip);
    try testing.expectEqual(.none, (try harness.execute(run, &clipping, &pointers)).fault);
    try testing.expectEqualSlices(i64, &.{ 0, 0, 3 }, &out);
    const failing = indexing.planCheckIndex(&three, 4, 2, .checked);
    const status = try harness.execute(run, &failing, &pointers);
    try testing.expectEqual(@as(i64, -5), status.value);
    try testing.expectEqual(@as(u32, 2), status.axis);
}

test "dynamic windows are read and written, in any layout and in place" {
    var prng: std.Random.DefaultPrng = .init(13);
    const random = prng.random();
    const dims = [_]u64{ 4, 5, 6 };
    const sizes = [_]u64{ 2, 5, 3 };
    var starts = [_]i64{ 2, 0, 1 };
    const start_operand = kernel_abi.Operand.contiguous(.i64, &.{3});
    inline for (.{ DType.bool, DType.f16, DType.f32, DType.i64 }) |d| {
        for (harness.all_layouts) |layout| {
            const x = try harness.randomView(random, d, &dims, layout);
            defer x.deinit();
            const update = try harness.randomView(random, d, &sizes, layout);
            defer update.deinit();
            const window = try harness.makeView(d, &sizes, .dense);
            defer window.deinit();
            const g = indexing.planDynamicSlice(&x.operand, &start_operand, &sizes);
            const read = [_][*]u8{ window.pointer(), x.pointer(), @ptrCast(&starts) };
            _ = try harness.execute(run, &g, &read);
            const result = try harness.makeView(d, &dims, .dense);
            defer result.deinit();
            const h = indexing.planDynamicUpdateSlice(&x.operand, &update.operand, &start_operand);
            _ = try harness.execute(run, &h, &.{
                result.pointer(), x.pointer(), update.pointer(), @ptrCast(&starts),
            });
            for (0..4 * 5 * 6) |at| {
                const i = at / 30;
                const j = at / 6 % 5;
                const k = at % 6;
                var expected = x.raw(d, at);
                if (i >= 2 and k >= 1 and k < 4) {
                    const inside = ((i - 2) * 5 + j) * 3 + k - 1;
                    try testing.expectEqual(expected, window.raw(d, inside));
                    expected = update.raw(d, inside);
                }
                try testing.expectEqual(expected, result.raw(d, at));
            }
        }
    }
    starts[2] = 4;
    var memory: [120]f32 = @splat(1);
    var update: [30]f32 = @splat(2);
    const x = kernel_abi.Operand.contiguous(.f32, &dims);
    const small = kernel_abi.Operand.contiguous(.f32, &sizes);
    const g = indexing.planDynamicUpdateSlice(&x, &small, &start_operand);
    const p: [*]u8 = @ptrCast(&memory);
    const pointers = [_][*]u8{ p, p, @ptrCast(&update), @ptrCast(&starts) };
    const status = try harness.execute(run, &g, &pointers);
    try testing.expectEqual(@as(i64, 4), status.value);
    try testing.expectEqual(@as(u32, 2), status.axis);
    try testing.expectEqual(@as(i64, 4), status.extent);
    for (memory) |m| try testing.expectEqual(@as(f32, 1), m);
    starts[2] = 3;
    try testing.expectEqual(.none, (try harness.execute(run, &g, &pointers)).fault);
    var replaced: u32 = 0;
    for (memory) |m| replaced += @intFromBool(m == 2);
    try testing.expectEqual(@as(u32, 30), replaced);
}
