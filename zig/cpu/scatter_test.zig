//! Tests of `scatter.zig` against element-wise models.
const std = @import("std");
const dtype = @import("../dtype.zig");
const harness = @import("harness.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const scatter = @import("scatter.zig");
const Compute = dtype.Compute;
const DType = dtype.DType;
const Kind = scatter.Kind;
const Mode = scatter.Mode;
const View = harness.View;
const testing = std.testing;
const run = scatter.run;

const kinds = [_]Kind{ .add, .set, .max, .min, .multiply };

fn randomIndex(
    random: std.Random,
    dims: []const u64,
    layout: harness.Layout,
    n: i64,
    mode: Mode,
) !View {
    const v = try harness.makeView(.i32, dims, layout);
    const slack: i64 = if (mode == .checked or mode == .strict) 0 else 2;
    const lowest = if (mode == .strict) 0 else -n - slack;
    for (0..v.operand.elementCount()) |i| {
        v.set(.i32, i, @intCast(random.intRangeLessThan(i64, lowest, n + slack)));
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

/// What is at a place after one more update, as computed with.
fn applied(comptime d: DType, kind: Kind, old: Compute(d), update: Compute(d)) Compute(d) {
    return switch (kind) {
        .add => lanes.combine(.sum, old, update),
        .set => update,
        .max => lanes.combine(.max, old, update),
        .min => lanes.combine(.min, old, update),
        .multiply => lanes.combine(.prod, old, update),
    };
}

/// The result, and for x in place once more, against the model; `places[i]` is the row-major
/// position in x of update i.
fn expectScatter(
    comptime d: DType,
    g: *const scatter.Geometry,
    x: *const View,
    positions: *const View,
    updates: *const View,
    places: []const ?u64,
) !void {
    const count = x.operand.elementCount();
    const expected = try testing.allocator.alloc(Compute(d), count);
    defer testing.allocator.free(expected);
    for (expected, 0..) |*e, i| e.* = x.get(d, i);
    for (places, 0..) |place, i| {
        const p = place orelse continue;
        expected[p] = applied(d, g.kind, expected[p], updates.get(d, i));
    }
    const dims = x.operand.dims[0..x.operand.rank];
    const result = try harness.makeView(d, dims, .dense);
    defer result.deinit();
    const operands = [_]*const View{ x, positions, updates };
    const status = try harness.executeViews(run, g, &result, &operands);
    try testing.expectEqual(kernel_abi.Fault.none, status.fault);
    for (expected, 0..) |e, i| {
        try testing.expectEqual(lanes.widen(d, lanes.narrow(d, e)), result.get(d, i));
    }
    if (!g.x_is_dense) return;
    const p = x.pointer();
    _ = try harness.execute(run, g, &.{ p, p, positions.pointer(), updates.pointer() });
    for (0..count) |i| try testing.expectEqual(result.get(d, i), x.get(d, i));
}

/// x `[2, 3, 5, inner]`, index `[2, 4]` along axis 2, with 0 or 1 batch axes.
fn expectPlain(
    random: std.Random,
    comptime d: DType,
    layout: harness.Layout,
    mode: Mode,
    kind: Kind,
    inner: u64,
) !void {
    for (0..2) |batch| {
        const k: u64 = if (batch == 1) 4 else 8;
        const x = try harness.randomView(random, d, &.{ 2, 3, 5, inner }, layout);
        defer x.deinit();
        const positions = try randomIndex(random, &.{ 2, 4 }, layout, 5, mode);
        defer positions.deinit();
        const with_batch = [_]u64{ 2, 3, 4, inner };
        const without = [_]u64{ 2, 3, 2, 4, inner };
        const dims: []const u64 = if (batch == 1) &with_batch else &without;
        const updates = try harness.randomView(random, d, dims, layout);
        defer updates.deinit();
        const places = try testing.allocator.alloc(?u64, 6 * k * inner);
        defer testing.allocator.free(places);
        for (places, 0..) |*place, i| {
            const group = i / inner / k;
            const which = i / inner % k + if (batch == 1) group / 3 * 4 else 0;
            const row = resolved(positions.raw(.i32, which), 5, mode);
            place.* = if (row) |r| (group * 5 + r) * inner + i % inner else null;
        }
        const b: u32 = @intCast(batch);
        const g = scatter.planScatter(
            &x.operand,
            &positions.operand,
            &updates.operand,
            2,
            b,
            mode,
            kind,
        );
        try expectScatter(d, &g, &x, &positions, &updates, places);
    }
}

test "scatter in every kind, mode and layout" {
    @setEvalBranchQuota(10_000);
    var prng: std.Random.DefaultPrng = .init(14);
    const random = prng.random();
    const dtypes = .{ DType.i8, .u32, .i64, .f16, .bf16, .f32, .f64 };
    inline for (dtypes) |chosen| {
        const d: DType = chosen;
        for (harness.all_layouts) |layout| for ([_]Mode{ .checked, .clip, .fill, .strict }) |mode| {
            for (kinds) |kind| {
                try expectPlain(random, d, layout, mode, kind, 1);
                try expectPlain(random, d, layout, mode, kind, 19);
            }
        };
    }
    for ([_]Kind{ .set, .max, .min }) |kind| {
        try expectPlain(random, .bool, .dense, .checked, kind, 3);
    }
}

test "scatter_along_axis in every kind, mode and layout" {
    @setEvalBranchQuota(10_000);
    var prng: std.Random.DefaultPrng = .init(15);
    const random = prng.random();
    const dims = [_]u64{ 3, 4, 70 };
    inline for (.{ DType.u8, DType.i32, DType.bf16, DType.f32 }) |d| {
        for (harness.all_layouts) |layout| for ([_]Mode{ .checked, .clip, .fill, .strict }) |mode| {
            for (kinds, 0..) |kind, turn| {
                const axis = turn % 3;
                var index_dims = dims;
                index_dims[axis] = 6;
                const n: i64 = @intCast(dims[axis]);
                const x = try harness.randomView(random, d, &dims, layout);
                defer x.deinit();
                const positions = try randomIndex(random, &index_dims, layout, n, mode);
                defer positions.deinit();
                const updates = try harness.randomView(random, d, &index_dims, layout);
                defer updates.deinit();
                const places = try testing.allocator.alloc(?u64, updates.operand.elementCount());
                defer testing.allocator.free(places);
                for (places, 0..) |*place, i| {
                    const line = i / index_dims[2];
                    const row_of = .{ line / index_dims[1], line % index_dims[1] };
                    var at = [_]u64{ row_of[0], row_of[1], i % index_dims[2] };
                    place.* = null;
                    if (resolved(positions.raw(.i32, i), n, mode)) |row| {
                        at[axis] = row;
                        place.* = (at[0] * 4 + at[1]) * 70 + at[2];
                    }
                }
                const g = scatter.planScatterAlongAxis(
                    &x.operand,
                    &positions.operand,
                    &updates.operand,
                    @intCast(axis),
                    mode,
                    kind,
                );
                try expectScatter(d, &g, &x, &positions, &updates, places);
            }
        };
    }
}

test "the gradient of an embedding, cut into ranges of rows" {
    var prng: std.Random.DefaultPrng = .init(16);
    const random = prng.random();
    inline for (.{ DType.f32, DType.bf16 }) |d| {
        const x = try harness.makeView(d, &.{ 3000, 128 }, .dense);
        defer x.deinit();
        const positions = try randomIndex(random, &.{500}, .dense, 3000, .checked);
        defer positions.deinit();
        const updates = try harness.randomView(random, d, &.{ 500, 128 }, .dense);
        defer updates.deinit();
        const places = try testing.allocator.alloc(?u64, 500 * 128);
        defer testing.allocator.free(places);
        for (places, 0..) |*place, i| {
            place.* = resolved(positions.raw(.i32, i / 128), 3000, .checked).? * 128 + i % 128;
        }
        const g = scatter.planScatter(
            &x.operand,
            &positions.operand,
            &updates.operand,
            0,
            0,
            .checked,
            .add,
        );
        try testing.expect(g.range_count > 1);
        try expectScatter(d, &g, &x, &positions, &updates, places);
    }
}

test "half types round a sum once" {
    var x = [_]f16{2048};
    var ones: [3]f16 = @splat(1);
    var zeros: [3]i64 = @splat(0);
    var out: [1]f16 = undefined;
    const one = kernel_abi.Operand.contiguous(.f16, &.{1});
    const updates = kernel_abi.Operand.contiguous(.f16, &.{3});
    const positions = kernel_abi.Operand.contiguous(.i64, &.{3});
    const g = scatter.planScatter(&one, &positions, &updates, 0, 0, .checked, .add);
    _ = try harness.execute(run, &g, &.{
        @ptrCast(&out), @ptrCast(&x), @ptrCast(&zeros), @ptrCast(&ones),
    });
    // Rounded at each step it would stay 2048.
    try testing.expectEqual(@as(f16, 2052), out[0]);
}

test "a position out of range is an error, also on an empty axis" {
    var x: [4]f32 = @splat(0);
    var updates: [2]f32 = @splat(1);
    var positions = [_]i8{ 3, -5 };
    var out: [4]f32 = undefined;
    const pointers = [_][*]u8{
        @ptrCast(&out), @ptrCast(&x), @ptrCast(&positions), @ptrCast(&updates),
    };
    const two = kernel_abi.Operand.contiguous(.f32, &.{2});
    const where = kernel_abi.Operand.contiguous(.i8, &.{2});
    for ([_]u64{ 4, 0 }) |n| {
        const operand = kernel_abi.Operand.contiguous(.f32, &.{n});
        const g = scatter.planScatter(&operand, &where, &two, 0, 0, .checked, .add);
        const status = try harness.execute(run, &g, &pointers);
        try testing.expectEqual(kernel_abi.Fault.index_out_of_bounds, status.fault);
        try testing.expectEqual(@as(i64, if (n == 0) 3 else -5), status.value);
        try testing.expectEqual(@as(i64, @intCast(n)), status.extent);
    }
}
