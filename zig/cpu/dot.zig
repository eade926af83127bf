//! `dot_general`: two operands and four lists of axes become one batched product over strides
//! (`gemm.zig`). Axes of a group that both operands walk as one are merged; what can't be merged is
//! walked by the packing, so no layout needs a copy first.
//!
//! The result is dense, `[batch.., lhs free.., rhs free..]`. Numerics: see `gemm.zig`.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const kernel_abi = @import("kernel_abi.zig");
const Operand = kernel_abi.Operand;
const TaskContext = kernel_abi.TaskContext;
const Isa = @import("isa.zig").Isa;
const shapes = @import("gemm_shapes.zig");
const gemm = @import("gemm.zig");
const gemm_pack = @import("gemm_pack.zig");
const gemm_plan = @import("gemm_plan.zig");
const gemm_thin = @import("gemm_thin.zig");

pub const Geometry = gemm.Geometry;

/// The attributes of the opcode, as the program has them.
pub const Attributes = struct {
    lhs_contract: []const i64,
    rhs_contract: []const i64,
    lhs_batch: []const i64,
    rhs_batch: []const i64,
};

/// Axes of one group while they are collected: extents, and strides of both operands.
const Group = struct {
    rank: u32 = 0,
    extent: u64 = 1,
    dims: [kernel_abi.rank_max]u64 = undefined,
    lhs: [kernel_abi.rank_max]i64 = undefined,
    rhs: [kernel_abi.rank_max]i64 = undefined,

    fn append(group: *Group, extent: u64, lhs: i64, rhs: i64) void {
        group.extent *= extent;
        if (extent == 1) return;
        if (group.rank > 0) {
            const last = group.rank - 1;
            const count: i64 = @intCast(extent);
            if (group.lhs[last] == lhs *% count and group.rhs[last] == rhs *% count) {
                group.dims[last] *= extent;
                group.lhs[last] = lhs;
                group.rhs[last] = rhs;
                return;
            }
        }
        group.dims[group.rank] = extent;
        group.lhs[group.rank] = lhs;
        group.rhs[group.rank] = rhs;
        group.rank += 1;
    }
};

const Groups = struct {
    batch: Group = .{},
    m: Group = .{},
    n: Group = .{},
    k: Group = .{},

    fn of(lhs: *const Operand, rhs: *const Operand, attributes: Attributes) Groups {
        assert(attributes.lhs_contract.len == attributes.rhs_contract.len);
        assert(attributes.lhs_batch.len == attributes.rhs_batch.len);
        var groups: Groups = .{};
        for (attributes.lhs_batch, attributes.rhs_batch) |l, r| {
            const i: usize = @intCast(l);
            assert(lhs.dims[i] == rhs.dims[@intCast(r)]);
            groups.batch.append(lhs.dims[i], lhs.strides[i], rhs.strides[@intCast(r)]);
        }
        for (0..lhs.rank) |axis| {
            if (has(attributes.lhs_contract, axis) or has(attributes.lhs_batch, axis)) continue;
            groups.m.append(lhs.dims[axis], lhs.strides[axis], 0);
        }
        for (0..rhs.rank) |axis| {
            if (has(attributes.rhs_contract, axis) or has(attributes.rhs_batch, axis)) continue;
            groups.n.append(rhs.dims[axis], 0, rhs.strides[axis]);
        }
        appendContracted(&groups.k, lhs, rhs, attributes);
        return groups;
    }

    /// A sum may be taken in any order of its axes: outermost the widest stride of lhs, so that as
    /// many as possible merge.
    fn appendContracted(
        k: *Group,
        lhs: *const Operand,
        rhs: *const Operand,
        attributes: Attributes,
    ) void {
        const count = attributes.lhs_contract.len;
        var order: [kernel_abi.rank_max]usize = undefined;
        for (0..count) |i| {
            var place = i;
            while (place > 0) : (place -= 1) {
                const before = lhs.strides[@intCast(attributes.lhs_contract[order[place - 1]])];
                const mine = lhs.strides[@intCast(attributes.lhs_contract[i])];
                if (@abs(before) >= @abs(mine)) break;
                order[place] = order[place - 1];
            }
            order[place] = i;
        }
        for (order[0..count]) |i| {
            const l: usize = @intCast(attributes.lhs_contract[i]);
            const r: usize = @intCast(attributes.rhs_contract[i]);
            assert(lhs.dims[l] == rhs.dims[r]);
            k.append(lhs.dims[l], lhs.strides[l], rhs.strides[r]);
        }
    }
};

fn has(list: []const i64, axis: usize) bool {
    for (list) |x| if (x == @as(i64, @intCast(axis))) return true;
    return false;
}

/// The geometry of the product for kernels compiled for `isa`. Operands have one dtype, which is
/// the result's; axis lists are valid for them.
pub fn plan(lhs: Operand, rhs: Operand, attributes: Attributes, isa: Isa) Geometry {
    return planWith(lhs, rhs, attributes, isa, shapes.pairsPay(isa));
}

fn planWith(
    lhs: Operand,
    rhs: Operand,
    attributes: Attributes,
    isa: Isa,
    pairs_wanted: bool,
) Geometry {
    assert(lhs.dtype == rhs.dtype);
    const groups: Groups = .of(&lhs, &rhs, attributes);
    const kind: shapes.Kind = .of(lhs.dtype);
    var g = assemble(&groups, lhs.dtype, false);
    var turned = assemble(&groups, lhs.dtype, true);
    const thin = gemm_plan.thinMode(&g);
    const thin_turned = gemm_plan.thinMode(&turned);
    const thin_rows = gemm_thin.rowsMax(kind);
    if (g.m <= thin_rows and thin != null) {
        g.mode = thin.?;
    } else if (turned.m <= thin_rows and thin_turned != null) {
        turned.mode = thin_turned.?;
        g = turned;
    } else if (wastes(&g, &turned, shapes.shapeOf(isa, kind))) {
        g = turned;
    }
    gemm_plan.complete(&g, isa, pairs_wanted);
    return g;
}

/// Whether register tiles fit the transposed product clearly better.
fn wastes(g: *const Geometry, turned: *const Geometry, shape: shapes.Shape) bool {
    if (g.n >= shape.cols()) return false;
    const width = gemm.ceilDivide(g.n, shape.cols()) * shape.cols();
    const width_turned = gemm.ceilDivide(turned.n, shape.cols()) * shape.cols();
    // width / n > 1.25 * width_turned / turned.n
    return 4 * width * turned.n > 5 * width_turned * g.n;
}

fn assemble(groups: *const Groups, d: DType, swapped: bool) Geometry {
    var g: Geometry = std.mem.zeroes(Geometry);
    g.dtype = @backingInt(gemm_pack.canonical(d));
    g.swapped = @intFromBool(swapped);
    const rows = if (swapped) &groups.n else &groups.m;
    const cols = if (swapped) &groups.m else &groups.n;
    g.batch = groups.batch.extent;
    g.m = rows.extent;
    g.n = cols.extent;
    g.k = groups.k.extent;
    g.batch_rank = groups.batch.rank;
    g.m_rank = rows.rank;
    g.n_rank = cols.rank;
    g.k_rank = groups.k.rank;
    g.c_row_stride = if (swapped) 1 else g.n;
    g.c_col_stride = if (swapped) g.m else 1;
    var axis: usize = 0;
    for ([_]*const Group{ &groups.batch, rows, cols, &groups.k }) |group| {
        for (0..group.rank) |i| {
            g.dims[axis] = group.dims[i];
            g.a_strides[axis] = if (swapped) group.rhs[i] else group.lhs[i];
            g.b_strides[axis] = if (swapped) group.lhs[i] else group.rhs[i];
            axis += 1;
        }
    }
    return g;
}

/// One task. Pointers: result, lhs, rhs, and the shared memory if the work asks for some.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const d: DType = @fromBackingInt(@as(u8, @intCast(g.dtype)));
    switch (d) {
        inline .u8, .u16, .u32, .u64, .f16, .bf16, .f32, .f64 => |c| {
            if (c == .bf16 and shapes.has_pairs and g.paired == 1) {
                return gemm.Blocked(c, true).run(g, ptrs, task, ctx);
            }
            if (g.mode == .blocked) return gemm.Blocked(c, false).run(g, ptrs, task, ctx);
            if (comptime !c.isFloat()) unreachable; // `gemm_thin.rowsMax`
            gemm_thin.Thin(c).run(g, ptrs, task, ctx);
        },
        else => unreachable,
    }
}

const harness = @import("harness.zig");
const lanes = @import("lanes.zig");
const testing = std.testing;

/// Row-major position of the element of `operand` at the given index along each axis.
fn position(operand: *const Operand, index: []const u64) u64 {
    var flat: u64 = 0;
    for (operand.dims[0..operand.rank], index) |extent, i| flat = flat * extent + i;
    return flat;
}

/// Splits a row-major number over some axes of `operand`, into `index`.
fn spread(operand: *const Operand, axes: []const i64, number: u64, index: []u64) void {
    var rest = number;
    var i = axes.len;
    while (i > 0) {
        i -= 1;
        const axis: usize = @intCast(axes[i]);
        index[axis] = rest % operand.dims[axis];
        rest /= operand.dims[axis];
    }
}

fn freeAxes(rank: u32, contract: []const i64, batch: []const i64, out: *[16]i64) []const i64 {
    var count: usize = 0;
    for (0..rank) |axis| if (!has(contract, axis) and !has(batch, axis)) {
        out[count] = @intCast(axis);
        count += 1;
    };
    return out[0..count];
}

fn extentOf(operand: *const Operand, axes: []const i64) u64 {
    var n: u64 = 1;
    for (axes) |axis| n *= operand.dims[@intCast(axis)];
    return n;
}

/// Compares with sums taken one by one; the sample values make every sum exact in float32.
fn check(comptime d: DType, lhs: harness.View, rhs: harness.View, attributes: Attributes) !void {
    try checkWith(d, lhs, rhs, attributes, false);
    if (d == .bf16 and shapes.has_pairs) try checkWith(d, lhs, rhs, attributes, true);
}

fn checkWith(
    comptime d: DType,
    lhs: harness.View,
    rhs: harness.View,
    attributes: Attributes,
    pairs_wanted: bool,
) !void {
    var lhs_free: [16]i64 = undefined;
    var rhs_free: [16]i64 = undefined;
    const l = &lhs.operand;
    const r = &rhs.operand;
    const m_axes = freeAxes(l.rank, attributes.lhs_contract, attributes.lhs_batch, &lhs_free);
    const n_axes = freeAxes(r.rank, attributes.rhs_contract, attributes.rhs_batch, &rhs_free);
    const batch = extentOf(l, attributes.lhs_batch);
    const m = extentOf(l, m_axes);
    const n = extentOf(r, n_axes);
    const k = extentOf(l, attributes.lhs_contract);
    const result = try harness.makeView(d, &.{ batch, m, n }, .dense);
    defer result.deinit();
    @memset(result.memory, 0x33);
    const g = planWith(l.*, r.*, attributes, shapes.here, pairs_wanted);
    const status = try harness.executeViews(run, &g, &result, &.{ &lhs, &rhs });
    try testing.expectEqual(kernel_abi.Fault.none, status.fault);
    const C = dtype.Compute(d);
    var li: [16]u64 = undefined;
    var ri: [16]u64 = undefined;
    for (0..batch) |b| for (0..m) |i| for (0..n) |j| {
        var want: C = 0;
        for (0..k) |kk| {
            spread(l, attributes.lhs_batch, b, &li);
            spread(r, attributes.rhs_batch, b, &ri);
            spread(l, m_axes, i, &li);
            spread(r, n_axes, j, &ri);
            spread(l, attributes.lhs_contract, kk, &li);
            spread(r, attributes.rhs_contract, kk, &ri);
            const x = lhs.get(d, position(l, li[0..l.rank]));
            const y = rhs.get(d, position(r, ri[0..r.rank]));
            want = if (@typeInfo(C) == .float) want + x * y else want +% x *% y;
        }
        const got = result.get(d, (b * m + i) * n + j);
        try testing.expectEqual(lanes.widen(d, lanes.narrow(d, want)), got);
    };
}

const matmul: Attributes = .{
    .lhs_contract = &.{1},
    .rhs_contract = &.{0},
    .lhs_batch = &.{},
    .rhs_batch = &.{},
};

const matmul_turned: Attributes = .{
    .lhs_contract = &.{0},
    .rhs_contract = &.{1},
    .lhs_batch = &.{},
    .rhs_batch = &.{},
};

fn checkMatrices(comptime d: DType, random: std.Random, m: u64, n: u64, k: u64) !void {
    inline for (.{ harness.Layout.dense, .transposed, .reversed, .spaced }) |ll| {
        inline for (.{ harness.Layout.dense, .transposed, .broadcast }) |rl| {
            const lhs = try harness.randomView(random, d, &.{ m, k }, ll);
            defer lhs.deinit();
            const rhs = try harness.randomView(random, d, &.{ k, n }, rl);
            defer rhs.deinit();
            try check(d, lhs, rhs, matmul);
        }
    }
}

test "matrices of every dtype, several layouts and ragged sizes" {
    var prng: std.Random.DefaultPrng = .init(1);
    const random = prng.random();
    const sizes = [_][3]u64{
        .{ 1, 1, 1 }, .{ 1, 70, 33 },  .{ 70, 1, 33 },  .{ 3, 200, 40 }, .{ 45, 2, 19 },
        .{ 5, 5, 5 }, .{ 33, 35, 70 }, .{ 64, 64, 64 }, .{ 90, 10, 7 },  .{ 17, 40, 1 },
        .{ 0, 3, 2 }, .{ 3, 0, 2 },    .{ 3, 4, 0 },    .{ 1, 4, 0 },    .{ 15, 65, 300 },
    };
    for (sizes) |s| try checkMatrices(.f32, random, s[0], s[1], s[2]);
    inline for (.{ .u8, .i8, .u16, .i16, .u32, .i32, .u64, .i64, .f16, .bf16, .f64 }) |d| {
        try checkMatrices(d, random, 1, 37, 18);
        try checkMatrices(d, random, 16, 35, 19);
        if (d == .bf16) try checkMatrices(d, random, 20, 50, 67);
    }
}

test "batches, several free and contracted axes, any axis order" {
    var prng: std.Random.DefaultPrng = .init(2);
    const random = prng.random();
    inline for (.{ .f32, .bf16, .i16 }) |d| {
        inline for (harness.all_layouts) |layout| {
            const lhs = try harness.randomView(random, d, &.{ 3, 4, 5, 2, 6 }, layout);
            defer lhs.deinit();
            const rhs = try harness.randomView(random, d, &.{ 2, 6, 7, 3, 3, 5 }, layout);
            defer rhs.deinit();
            try check(d, lhs, rhs, .{
                .lhs_contract = &.{ 4, 2 },
                .rhs_contract = &.{ 1, 5 },
                .lhs_batch = &.{ 3, 0 },
                .rhs_batch = &.{ 0, 4 },
            });
            try check(d, lhs, rhs, .{
                .lhs_contract = &.{ 0, 3 },
                .rhs_contract = &.{ 3, 0 },
                .lhs_batch = &.{4},
                .rhs_batch = &.{1},
            });
            try check(d, lhs, rhs, .{
                .lhs_contract = &.{},
                .rhs_contract = &.{},
                .lhs_batch = &.{ 4, 3, 2 },
                .rhs_batch = &.{ 1, 0, 5 },
            });
        }
    }
}

fn planDense(d: DType, m: u64, n: u64, k: u64, isa: Isa) Geometry {
    return plan(.contiguous(d, &.{ m, k }), .contiguous(d, &.{ k, n }), matmul, isa);
}

test "the plan takes every path" {
    const isa = shapes.here;
    const large = planDense(.f32, 130, 140, 800, isa);
    try testing.expectEqual(gemm.Source.shared, large.a_source);
    try testing.expectEqual(gemm.Source.shared, large.b_source);
    try testing.expect(large.work.phase_task_count > 0);
    const deep = planDense(.f32, 9, 40, 9000, isa);
    try testing.expectEqual(gemm.Mode.blocked, deep.mode);
    try testing.expect(deep.splits > 1);
    try testing.expectEqual(gemm.Mode.thin_cols, planDense(.f32, 2, 2100, 300, isa).mode);
    try testing.expectEqual(gemm.Mode.thin_depth, planDense(.f32, 2100, 1, 300, isa).mode);
    try testing.expectEqual(gemm.Mode.blocked, planDense(.u8, 1, 1, 150_000, isa).mode);
    const turns = shapes.shapeOf(isa, .f32).cols() > 10;
    const narrow = planDense(.f32, 4000, 10, 300, isa);
    try testing.expectEqual(@intFromBool(turns), narrow.swapped);
    try testing.expectEqual(@as(u64, 0), planDense(.f32, 0, 10, 300, isa).work.task_count);
}

test "shared packing, split k and thin products in several tasks" {
    var prng: std.Random.DefaultPrng = .init(3);
    const random = prng.random();
    // Packs in a first phase, splits k, is thin in both ways, is a dot product.
    const sizes = [_][3]u64{
        .{ 130, 140, 800 },
        .{ 9, 40, 9000 },
        .{ 2, 2100, 300 },
        .{ 1, 1, 150_000 },
    };
    inline for (.{ .f32, .u8 }) |d| for (sizes) |s| {
        if (d == .f32 and s[2] > 9000) continue; // sums would not be exact
        const lhs = try harness.randomView(random, d, &.{ s[0], s[2] }, .dense);
        defer lhs.deinit();
        const rhs = try harness.randomView(random, d, &.{ s[2], s[1] }, .dense);
        defer rhs.deinit();
        try check(d, lhs, rhs, matmul);
        try check(d, rhs, lhs, matmul_turned);
    };
}
