//! How a product is cut into tasks and fed: the numbers of `gemm.Geometry`. Runs once per
//! instruction, in root code; knows extents, strides, the instruction set, never data or threads.
const std = @import("std");
const assert = std.debug.assert;
const DType = @import("../dtype.zig").DType;
const Isa = @import("isa.zig").Isa;
const shapes = @import("gemm_shapes.zig");
const gemm = @import("gemm.zig");
const gemm_pack = @import("gemm_pack.zig");
const gemm_thin = @import("gemm_thin.zig");
const Geometry = gemm.Geometry;
const ceilDivide = gemm.ceilDivide;

/// Tasks of a large product: enough to balance 16 threads.
const task_count_aim: u64 = 64;
/// Multiply-adds of a task: not worth a hand-over below, coarse for cancellation above.
const task_work_min: u64 = 2 << 20;
const task_work_max: u64 = 128 << 20;
/// Largest rectangle of C of a task: its block of A (256 deep) fills about a quarter of 2 MiB.
const task_rows_max: u64 = 448;
const task_cols_max: u64 = 512;
/// With few rows B is read from memory once and little else happens: tasks take at least so many
/// columns that the runs they read are a quarter of a page.
const skinny_rows_max: u64 = 64;
const skinny_cols_min: u64 = 256;
/// Fewer columns would read all of A too often (64 cost half as much again on 256 channels).
const folded_cols_min: u64 = 256;
/// k is split into parts of at least this many terms and multiply-adds.
const split_depth_min: u64 = 1024;
const split_work_min: u64 = 512 << 10;
/// Elements a packing task moves, and a thin task reads: about 30-100 us.
const pack_elements: u64 = 128 << 10;
const thin_elements: u64 = 256 << 10;
const combine_elements: u64 = 64 << 10;
/// A is read in place if it has few rows, or rows that follow each other this closely: measured,
/// packing only pays once the rows of a tile lie in as many pages.
const direct_rows_max: u64 = 32;
const direct_stride_bytes_max: u64 = 3072;
/// Bytes of B up to which reading it in place is no slower than packing.
const direct_b_bytes_max: u64 = 32 << 10;

/// Fills in everything but the axes, dtype and C's strides, which must be there. `pairs_wanted`:
/// the kernels have bfloat16 pairs and are to use them.
pub fn complete(g: *Geometry, isa: Isa, pairs_wanted: bool) void {
    const d: DType = @fromBackingInt(@as(u8, @intCast(g.dtype)));
    const kind: shapes.Kind = .of(d);
    const shape = shapes.shapeOf(isa, kind);
    g.k_elements = g.k;
    const cost = costNs(g, d, shape);
    const pairs = d == .bf16 and g.mode == .blocked and pairs_wanted;
    g.paired = @intFromBool(pairs);
    if (pairs) g.k = ceilDivide(g.k, 2);
    g.splits = 1;
    g.split_depth = g.k;
    g.batch_per_task = 1;
    g.elements_per_task = combine_elements;
    g.work = .{ .task_count = 0, .scratch_bytes = 0, .cost_ns = if (pairs) cost / 2 else cost };
    if (g.batch * g.m * g.n == 0) return empty(g);
    if (g.mode == .blocked) blocked(g, d, shape) else thin(g, kind);
}

fn empty(g: *Geometry) void {
    g.m_tasks = 1;
    g.n_tasks = 1;
    g.rows_per_task = @max(1, g.m);
    g.cols_per_task = @max(1, g.n);
}

fn costNs(g: *const Geometry, d: DType, shape: shapes.Shape) u64 {
    const work = g.batch *| g.m *| g.n *| g.k;
    const moved = g.batch *| (g.m *| g.k +| g.n *| g.k +| g.m *| g.n) *| d.bytes();
    return work / shape.rate +| moved / 10;
}

/// The way B's columns can be streamed without packing, if any.
pub fn thinMode(g: *const Geometry) ?gemm.Mode {
    const n = g.group(.n, &g.b_strides);
    const k = g.group(.k, &g.b_strides);
    if (n.rank <= 1 and k.rank == 1 and k.strides[0] == 1) return .thin_depth;
    if (k.rank <= 1 and n.rank == 1 and n.strides[0] == 1) return .thin_cols;
    return null;
}

fn thin(g: *Geometry, kind: shapes.Kind) void {
    assert(g.m <= gemm_thin.rowsMax(kind));
    g.rows_per_task = g.m;
    g.m_tasks = 1;
    if (g.mode == .thin_depth) {
        const depth = @min(@max(1, g.k), 64 << 10);
        g.split_depth = depth;
        g.cols_per_task = @min(g.n, @max(4, thin_elements / depth / 4 * 4));
    } else {
        // The sums of a task stay in the first-level cache.
        g.cols_per_task = @min(g.n, std.math.clamp(8192 / g.m, 512, 2048));
        const depth = @max(64, thin_elements / g.cols_per_task);
        g.split_depth = @min(@max(1, g.k), depth);
    }
    g.split_depth = @max(g.split_depth, ceilDivide(g.k, task_count_aim));
    g.n_tasks = ceilDivide(g.n, g.cols_per_task);
    g.splits = @max(1, ceilDivide(g.k, g.split_depth));
    if (g.n_tasks == 1 and g.splits == 1) {
        g.batch_per_task = @max(1, thin_elements / @max(1, g.n * g.k));
    }
    g.work.scratch_bytes = gemm_thin.scratchElements(g.cols_per_task) * kind.bytes();
    finishTasks(g, kind);
}

fn blocked(g: *Geometry, d: DType, shape: shapes.Shape) void {
    const kind: shapes.Kind = .of(d);
    g.stores_direct = @intFromBool(d.bytes() == kind.bytes() and g.c_col_stride == 1);
    cutC(g, shape);
    g.depth_block = evenBlock(@max(1, g.split_depth), shapes.depth_max);
    g.a_source = sourceA(g, d);
    g.b_source = sourceB(g, d, shape);
    g.work.scratch_bytes = gemm.Scratch.of(g, shape).total * kind.bytes();
    if (g.splits == 1) {
        const a_panels = if (g.a_source == .shared) g.batch * ceilDivide(g.m, shape.rows) else 0;
        const b_panels = if (g.b_source == .shared) g.batch * ceilDivide(g.n, shape.cols()) else 0;
        const wide = @max(shape.panelStride(), shape.cols());
        g.panels_per_task = @max(1, pack_elements / @max(1, g.k * wide));
        g.work.phase_task_count = ceilDivide(a_panels + b_panels, g.panels_per_task);
        const elements = a_panels * shape.panelStride() + b_panels * shape.cols();
        g.work.shared_bytes = elements * g.k * kind.bytes();
    }
    finishTasks(g, kind);
}

/// The count of tasks, and the second phase if k is split.
fn finishTasks(g: *Geometry, kind: shapes.Kind) void {
    const batches = ceilDivide(g.batch, g.batch_per_task);
    const products = batches * g.splits * g.m_tasks * g.n_tasks;
    if (g.splits > 1) {
        const elements = g.batch * g.m * g.n;
        g.work.shared_bytes = g.splits * elements * kind.bytes();
        g.work.phase_task_count = products;
        g.work.task_count = products + ceilDivide(elements, g.elements_per_task);
    } else {
        g.work.task_count = g.work.phase_task_count + products;
    }
}

/// Chooses the rectangle of C of a task, batches together, and parts of k.
fn cutC(g: *Geometry, shape: shapes.Shape) void {
    const depth = @max(1, g.k);
    const each = g.m *| g.n *| depth;
    const total = each *| g.batch;
    const aim = std.math.clamp(total / task_count_aim, task_work_min, task_work_max);
    g.rows_per_task = g.m;
    g.cols_per_task = g.n;
    const small = g.m <= task_rows_max and g.n <= task_cols_max;
    if (small and each <= aim) {
        g.batch_per_task = std.math.clamp(aim / each, 1, g.batch);
    } else {
        const area = @max(aim / depth, @as(u64, shape.rows) * shape.cols());
        // Square in elements, then give what one side can't use to the other.
        const side = std.math.sqrt(area);
        var rows: u64 = @min(g.m, side, task_rows_max);
        const least = if (g.m <= skinny_rows_max) skinny_cols_min else shape.cols();
        var cols = @min(g.n, @max(area / rows, least), task_cols_max);
        rows = @min(g.m, @max(area / cols, shape.rows), task_rows_max);
        if (g.m <= skinny_rows_max) rows = g.m;
        if (g.m <= task_rows_max and isFolded(g)) {
            rows = g.m;
            cols = @min(g.n, @max(area / rows, folded_cols_min), task_cols_max);
        }
        g.rows_per_task = evenMultiple(g.m, rows, shape.rows);
        g.cols_per_task = evenMultiple(g.n, cols, shape.cols());
    }
    g.m_tasks = ceilDivide(g.m, g.rows_per_task);
    g.n_tasks = ceilDivide(g.n, g.cols_per_task);
    const tasks = g.m_tasks * g.n_tasks * ceilDivide(g.batch, g.batch_per_task);
    if (tasks * 2 > task_count_aim or g.k < 2 * split_depth_min) return;
    const useful = total / split_work_min / tasks;
    const splits = @min(task_count_aim / tasks, g.k / split_depth_min, useful);
    if (splits < 2 or g.batch_per_task != 1) return;
    g.split_depth = ceilDivide(ceilDivide(g.k, splits), shapes.depth_max) * shapes.depth_max;
    g.splits = ceilDivide(g.k, g.split_depth);
}

/// Whether B is windows of an image, or the like: larger than the memory it is read from, and dear
/// to pack. Each task then takes all rows and packs its own columns, which stay in the cache.
fn isFolded(g: *const Geometry) bool {
    return g.group(.n, &g.b_strides).rank > 1 and g.group(.k, &g.b_strides).rank > 1;
}

/// `whole` cut into equal parts of at most about `part`, each a multiple of `unit` (or the whole).
fn evenMultiple(whole: u64, part: u64, unit: u64) u64 {
    if (whole <= part) return whole;
    const units = ceilDivide(whole, unit);
    const units_per_part = @max(1, part / unit);
    const parts = ceilDivide(units, units_per_part);
    return @min(whole, ceilDivide(units, parts) * unit);
}

fn evenBlock(whole: u64, most: u64) u64 {
    return ceilDivide(whole, ceilDivide(whole, most));
}

fn sourceA(g: *const Geometry, d: DType) gemm.Source {
    const m = g.group(.m, &g.a_strides);
    const k = g.group(.k, &g.a_strides);
    const plain = d.bytes() == shapes.Kind.of(d).bytes() and m.rank <= 1 and k.rank <= 1;
    const few = g.rows_per_task <= direct_rows_max;
    if (plain and m.inner() >= 0 and k.inner() >= 0) {
        const m_unit = m.rank == 0 or m.inner() == 1;
        const k_unit = k.rank == 0 or k.inner() == 1;
        const near = direct_stride_bytes_max / d.bytes();
        if (k_unit and (few or m.inner() <= near)) return .direct;
        if (m_unit and (few or k.inner() <= near)) return .direct_rows;
    }
    if (g.splits > 1 or g.n_tasks == 1 or g.cols_per_task >= task_cols_max) return .local;
    // Few rows: packing them again costs little next to the panels of B.
    if (g.rows_per_task * 8 <= g.cols_per_task and g.m_tasks == 1) return .local;
    return .shared;
}

fn sourceB(g: *const Geometry, d: DType, shape: shapes.Shape) gemm.Source {
    const n = g.group(.n, &g.b_strides);
    const k = g.group(.k, &g.b_strides);
    const same = d.bytes() == shapes.Kind.of(d).bytes();
    if (same and n.rank == 1 and n.strides[0] == 1 and k.rank <= 1 and k.inner() >= 0) {
        const span = @as(u64, @intCast(k.inner())) * g.depth_block * d.bytes();
        if (span <= direct_b_bytes_max or g.rows_per_task <= shape.rows / 2) return .direct;
    }
    if (g.splits > 1 or g.m_tasks == 1 or g.rows_per_task >= task_rows_max) return .local;
    return .shared;
}
