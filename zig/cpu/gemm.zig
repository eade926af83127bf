//! Batched matrix multiply, C[b, i, j] = sum over k of A[b, i, k] * B[b, k, j], over any strides.
//!
//! C is cut into tasks of `rows_per_task` x `cols_per_task`. A task walks k in blocks of
//! `depth_block`; for each it brings one panel of B after the other into the first-level cache and
//! runs the register tile down the rows of A. How A and B reach the tile is the planner's choice
//! for each (`Source`): packed once for everybody by a first phase of tasks, packed by every task
//! for itself, or read where they lie. When C has few elements but k is long, k is split over tasks
//! (`splits`) that leave partial products, and a second phase adds those.
//!
//! Numerics: half types are widened and the sum is float32, rounded once at the end; integers wrap.
//! The order of summation depends only on the geometry, never on threads.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const kernel_abi = @import("kernel_abi.zig");
const TaskContext = kernel_abi.TaskContext;
const shapes = @import("gemm_shapes.zig");
const gemm_micro = @import("gemm_micro.zig");
const gemm_pack = @import("gemm_pack.zig");
const gemm_pair = @import("gemm_pair.zig");
const gemm_store = @import("gemm_store.zig");
const at = @import("view.zig").at;

pub const Mode = enum(u32) {
    blocked,
    /// At most `thin_rows_max` rows, B contiguous along k.
    thin_depth,
    /// At most `thin_rows_max` rows, B contiguous along its columns.
    thin_cols,
};

pub const Source = enum(u32) {
    /// Packed by the first phase.
    shared,
    /// Packed by every task.
    local,
    /// Read in place: B contiguous along columns, A contiguous along k.
    direct,
    /// Read in place: A contiguous along its rows.
    direct_rows,
};

pub const plus = gemm_store.plus;
pub const narrow = gemm_store.narrow;
pub const storeRow = gemm_store.storeRow;

/// Distinct axes of the product: batch, rows, columns and k together.
pub const axes_max = 2 * kernel_abi.rank_max;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    /// Storage of A, B and C, one of those that `gemm_pack.packable` lists.
    dtype: u32,
    mode: Mode,
    /// Extents of the product; A is `[batch, m, k]`, B is `[batch, k, n]`. Where bfloat16 is
    /// multiplied in pairs `k` counts pairs, and `k_elements` may be odd.
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
    k_elements: u64,
    /// Ranks of the four groups of axes, which follow each other in the arrays below.
    batch_rank: u32,
    m_rank: u32,
    n_rank: u32,
    k_rank: u32,
    dims: [axes_max]u64,
    a_strides: [axes_max]i64,
    b_strides: [axes_max]i64,
    /// 1 if A is the second operand and B the first (C is then stored by columns).
    swapped: u32,
    a_source: Source,
    b_source: Source,
    /// 1 if products go to C as they are, without a tile in scratch.
    stores_direct: u32,
    /// 1 if bfloat16 is multiplied in pairs.
    paired: u32,
    reserved: u32,
    /// Elements between neighbours of a column and of a row of C; C[b] is at b * m * n.
    c_row_stride: u64,
    c_col_stride: u64,

    batch_per_task: u64,
    rows_per_task: u64,
    cols_per_task: u64,
    m_tasks: u64,
    n_tasks: u64,
    /// Parts of k, each `split_depth` long but the last.
    splits: u64,
    split_depth: u64,
    depth_block: u64,
    /// First-phase tasks (`shared`): panels each packs; panels of A, then of B, batch by batch.
    panels_per_task: u64,
    /// Second-phase tasks (`splits > 1`): elements of C each adds up.
    elements_per_task: u64,

    const Which = enum { batch, m, n, k };

    /// One of the four groups of axes with A's or B's strides.
    pub fn group(g: *const Geometry, which: Which, strides: [*]const i64) gemm_pack.Group {
        const ranks = [_]u32{ g.batch_rank, g.m_rank, g.n_rank, g.k_rank };
        var start: usize = 0;
        for (ranks[0..@backingInt(which)]) |rank| start += rank;
        return .{
            .rank = ranks[@backingInt(which)],
            .dims = @as([*]const u64, &g.dims) + start,
            .strides = strides + start,
        };
    }

    /// Elements of the packed A of all batches, where packed B begins.
    pub fn sharedElementsA(g: *const Geometry, shape: shapes.Shape) u64 {
        if (g.a_source != .shared) return 0;
        return g.batch * ceilDivide(g.m, shape.rows) * g.k * shape.panelStride();
    }
};

/// Columns of B a task packs at a time when it packs for itself; a multiple of every tile's.
pub const group_cols = 384;

pub fn ceilDivide(a: u64, b: u64) u64 {
    return if (a == 0) 0 else (a - 1) / b + 1;
}

/// Bytes of scratch of a blocked task, and where the parts are.
pub const Scratch = struct {
    b: u64,
    edge: u64,
    c: u64,
    total: u64,

    /// In elements of the multiply; A's block is first.
    pub fn of(g: *const Geometry, shape: shapes.Shape) Scratch {
        const a_elements = if (g.a_source == .local)
            ceilDivide(g.rows_per_task, shape.rows) * shape.panelStride() * g.depth_block
        else
            0;
        const whole_cols = ceilDivide(g.cols_per_task, shape.cols()) * shape.cols();
        const group = @min(whole_cols, group_cols);
        const b_elements = if (g.b_source == .shared) 0 else g.depth_block * group;
        const edge_elements: u64 = shape.rows * shape.cols();
        const c_elements = if (g.stores_direct == 1 or g.splits > 1)
            0
        else
            g.rows_per_task * whole_cols;
        const edge = a_elements + b_elements;
        const c = edge + edge_elements;
        return .{ .b = a_elements, .edge = edge, .c = c, .total = c + c_elements };
    }
};

/// Operands of a run in the geometry's order.
pub const Pointers = struct {
    c: [*]u8,
    a: [*]const u8,
    b: [*]const u8,
    /// Packed panels or partial products; undefined if the geometry asked for none.
    shared: [*]u8,

    pub fn of(g: *const Geometry, ptrs: [*]const [*]u8) Pointers {
        const swapped = g.swapped == 1;
        return .{
            .c = ptrs[0],
            .a = if (swapped) ptrs[2] else ptrs[1],
            .b = if (swapped) ptrs[1] else ptrs[2],
            .shared = if (g.work.shared_bytes > 0) ptrs[3] else undefined,
        };
    }
};

/// Which part of the product a task computes.
pub const Part = struct {
    batch_begin: u64,
    batch_end: u64,
    split: u64,
    row_begin: u64,
    row_end: u64,
    col_begin: u64,
    col_end: u64,
    depth_begin: u64,
    depth_end: u64,

    pub fn of(g: *const Geometry, index: u64) Part {
        var rest = index;
        const col = rest % g.n_tasks;
        rest /= g.n_tasks;
        const row = rest % g.m_tasks;
        rest /= g.m_tasks;
        const split = rest % g.splits;
        const batch_begin = rest / g.splits * g.batch_per_task;
        const depth_begin = split * g.split_depth;
        return .{
            .batch_begin = batch_begin,
            .batch_end = @min(batch_begin + g.batch_per_task, g.batch),
            .split = split,
            .row_begin = row * g.rows_per_task,
            .row_end = @min((row + 1) * g.rows_per_task, g.m),
            .col_begin = col * g.cols_per_task,
            .col_end = @min((col + 1) * g.cols_per_task, g.n),
            .depth_begin = depth_begin,
            .depth_end = @min(depth_begin + g.split_depth, g.k),
        };
    }
};

pub const Views = struct { a: gemm_pack.View, b: gemm_pack.View };

/// A and B of one batch.
pub fn views(comptime S: type, g: *const Geometry, p: Pointers, batch: u64) Views {
    const a: [*]const S = @ptrCast(@alignCast(p.a));
    const b: [*]const S = @ptrCast(@alignCast(p.b));
    return .{
        .a = .{
            .base = @ptrCast(at(S, a, g.group(.batch, &g.a_strides).offset(batch))),
            .lane = g.group(.m, &g.a_strides),
            .depth = g.group(.k, &g.a_strides),
        },
        .b = .{
            .base = @ptrCast(at(S, b, g.group(.batch, &g.b_strides).offset(batch))),
            .lane = g.group(.n, &g.b_strides),
            .depth = g.group(.k, &g.b_strides),
        },
    };
}

/// `pairs`: bfloat16 goes through the kernels for pairs along k.
pub fn Blocked(comptime d: DType, comptime pairs: bool) type {
    return struct {
        const S = Storage(d);
        const kind = shapes.Kind.of(d);
        const T = kind.Type();
        const micro = gemm_micro.Micro(kind);
        const by_rows = if (pairs) micro.by_rows_pairs else micro.by_rows;
        const shape = shapes.shapeOf(shapes.here, kind);

        inline fn pack(
            g: *const Geometry,
            view: gemm_pack.View,
            piece: gemm_pack.Piece,
            to: [*]T,
        ) void {
            if (pairs) return gemm_pair.panel(view, piece, g.k_elements, @ptrCast(to));
            gemm_pack.Pack(d).panel(view, piece, to);
        }

        pub fn run(g: *const Geometry, ptrs: [*]const [*]u8, task: u64, ctx: *TaskContext) void {
            const p: Pointers = .of(g, ptrs);
            if (g.splits > 1) {
                if (task < g.work.phase_task_count) return multiplyPart(g, p, task, ctx);
                return combine(d, g, p, task - g.work.phase_task_count, ctx);
            }
            if (task < g.work.phase_task_count) return packPanels(g, p, task, ctx);
            multiplyPart(g, p, task - g.work.phase_task_count, ctx);
        }

        /// First phase: some panels of A and B, whole k.
        fn packPanels(g: *const Geometry, p: Pointers, task: u64, ctx: *TaskContext) void {
            const a_panels = if (g.a_source == .shared) ceilDivide(g.m, micro.rows) else 0;
            const b_panels = if (g.b_source == .shared) ceilDivide(g.n, micro.cols) else 0;
            const shared: [*]T = @ptrCast(@alignCast(p.shared));
            const shared_b = shared + g.sharedElementsA(shape);
            const total = g.batch * (a_panels + b_panels);
            const first = task * g.panels_per_task;
            for (first..@min(first + g.panels_per_task, total)) |index| {
                if (ctx.isCancelled()) return;
                const is_a = index < g.batch * a_panels;
                const flat = if (is_a) index else index - g.batch * a_panels;
                const batch = flat / if (is_a) a_panels else b_panels;
                const view = views(S, g, p, batch);
                const width: u32 = if (is_a) micro.panel_stride else micro.cols;
                const height: u32 = if (is_a) micro.rows else micro.cols;
                const lane = flat % (if (is_a) a_panels else b_panels) * height;
                const left = (if (is_a) g.m else g.n) - lane;
                pack(g, if (is_a) view.a else view.b, .{
                    .lane_start = lane,
                    .lane_count = @intCast(@min(left, height)),
                    .lanes_left = left,
                    .depth_start = 0,
                    .depth_count = g.k,
                    .width = width,
                }, (if (is_a) shared else shared_b) + flat * g.k * width);
            }
        }

        fn multiplyPart(g: *const Geometry, p: Pointers, index: u64, ctx: *TaskContext) void {
            const part: Part = .of(g, index);
            const scratch: Scratch = .of(g, shape);
            const memory: [*]T = @ptrCast(ctx.scratch);
            for (part.batch_begin..part.batch_end) |batch| {
                var block: Block = .{
                    .g = g,
                    .p = p,
                    .view_a = views(S, g, p, batch).a,
                    .view_b = views(S, g, p, batch).b,
                    .batch = batch,
                    .part = part,
                    .local_a = memory,
                    .local_b = memory + scratch.b,
                    .edge = memory + scratch.edge,
                    .c = undefined,
                    .c_step = g.n,
                    .in_tile = false,
                };
                const corner = batch * g.m * g.n + part.row_begin * g.n + part.col_begin;
                if (g.splits > 1) {
                    const partial: [*]T = @ptrCast(@alignCast(p.shared));
                    block.c = partial + part.split * g.batch * g.m * g.n + corner;
                } else if (g.stores_direct == 1) {
                    block.c = @as([*]T, @ptrCast(@alignCast(p.c))) + corner;
                } else {
                    block.c = memory + scratch.c;
                    block.c_step = ceilDivide(g.cols_per_task, micro.cols) * micro.cols;
                    block.in_tile = true;
                }
                if (!block.run(ctx)) return;
                if (block.in_tile) storeTile(g, p, batch, part, block.c, block.c_step);
            }
        }

        fn storeTile(
            g: *const Geometry,
            p: Pointers,
            batch: u64,
            part: Part,
            tile: [*]const T,
            step: u64,
        ) void {
            const c = @as([*]S, @ptrCast(@alignCast(p.c))) + batch * g.m * g.n;
            for (part.row_begin..part.row_end) |i| {
                const from = tile + (i - part.row_begin) * step;
                const to = c + i * g.c_row_stride + part.col_begin * g.c_col_stride;
                const count = part.col_end - part.col_begin;
                if (g.c_col_stride == 1) {
                    storeRow(d, to, from, count);
                } else {
                    for (0..count) |j| to[j * g.c_col_stride] = narrow(d, from[j]);
                }
            }
        }

        /// One rectangle of C of one batch.
        const Block = struct {
            g: *const Geometry,
            p: Pointers,
            view_a: gemm_pack.View,
            view_b: gemm_pack.View,
            batch: u64,
            part: Part,
            local_a: [*]T,
            local_b: [*]T,
            edge: [*]T,
            c: [*]T,
            c_step: u64,
            /// `c` is scratch with whole register tiles, so edges may be overwritten.
            in_tile: bool,

            /// False if the run was cancelled.
            fn run(block: *const Block, ctx: *TaskContext) bool {
                const part = block.part;
                const g = block.g;
                var depth = part.depth_begin;
                while (true) {
                    const count = @min(g.depth_block, part.depth_end - depth);
                    const accumulate = depth > part.depth_begin;
                    if (g.a_source == .local) block.packA(depth, count);
                    var col = part.col_begin;
                    while (col < part.col_end) : (col += micro.cols) {
                        if (ctx.isCancelled()) return false;
                        const in_group = (col - part.col_begin) % group_cols;
                        if (in_group == 0 and g.b_source != .shared) {
                            block.packB(depth, count, col);
                        }
                        var b_step: usize = micro.cols;
                        const b = block.panelB(depth, count, col, in_group, &b_step);
                        block.panel(depth, count, col, b, b_step, accumulate);
                    }
                    depth += count;
                    if (depth >= part.depth_end) return true;
                }
            }

            /// Packs the columns of a group from `col` on that can't be read in place.
            fn packB(block: *const Block, depth: u64, count: u64, col: u64) void {
                const g = block.g;
                const end = @min(col + group_cols, block.part.col_end);
                const full = (end - col) / micro.cols;
                var piece: gemm_pack.Piece = .{
                    .lane_start = col,
                    .lane_count = micro.cols,
                    .lanes_left = g.n - col,
                    .depth_start = depth,
                    .depth_count = count,
                    .width = micro.cols,
                };
                const unit = block.view_b.lane.rank == 1 and block.view_b.lane.inner() == 1;
                var packed_panels: u64 = 0;
                if (g.b_source == .direct) {
                    packed_panels = full;
                } else if (unit and full > 0) {
                    piece.panel_count = full;
                    pack(block.g, block.view_b, piece, block.local_b);
                    packed_panels = full;
                }
                piece.panel_count = 1;
                while (col + packed_panels * micro.cols < end) : (packed_panels += 1) {
                    piece.lane_start = col + packed_panels * micro.cols;
                    piece.lanes_left = g.n - piece.lane_start;
                    piece.lane_count = @intCast(@min(end - piece.lane_start, micro.cols));
                    const to = block.local_b + packed_panels * count * micro.cols;
                    pack(block.g, block.view_b, piece, to);
                }
            }

            /// The panel of B at `col`, and the elements from k to k in it.
            fn panelB(
                block: *const Block,
                depth: u64,
                count: u64,
                col: u64,
                in_group: u64,
                step: *usize,
            ) [*]const T {
                const g = block.g;
                if (g.b_source == .shared) {
                    const panels = ceilDivide(g.n, micro.cols);
                    const flat = block.batch * panels + col / micro.cols;
                    const all: [*]const T = @ptrCast(@alignCast(block.p.shared));
                    return all + g.sharedElementsA(shape) + (flat * g.k + depth) * micro.cols;
                }
                if (g.b_source == .direct and block.part.col_end - col >= micro.cols) {
                    step.* = @intCast(block.view_b.depth.inner());
                    const base: [*]const T = @ptrCast(@alignCast(block.view_b.base));
                    return base + depth * step.* + col;
                }
                return block.local_b + in_group * count;
            }

            fn packA(block: *const Block, depth: u64, count: u64) void {
                var row = block.part.row_begin;
                var to = block.local_a;
                while (row < block.part.row_end) : (row += micro.rows) {
                    pack(block.g, block.view_a, .{
                        .lane_start = row,
                        .lane_count = @intCast(@min(block.part.row_end - row, micro.rows)),
                        .lanes_left = block.g.m - row,
                        .depth_start = depth,
                        .depth_count = count,
                        .width = micro.panel_stride,
                    }, to);
                    to += count * micro.panel_stride;
                }
            }

            /// All rows of the block by one panel of B, `count` terms from `depth` on.
            fn panel(
                block: *const Block,
                depth: u64,
                count: u64,
                col: u64,
                b: [*]const T,
                b_step: usize,
                accumulate: bool,
            ) void {
                const part = block.part;
                const cols = @min(part.col_end - col, micro.cols);
                const corner = block.c + (col - part.col_begin);
                // A short panel would write past its columns.
                const to_edge = cols < micro.cols and !block.in_tile;
                const by_row = block.g.a_source == .direct;
                const height: u64 = if (by_row) micro.direct_rows else micro.rows;
                var row = part.row_begin;
                while (row < part.row_end) : (row += height) {
                    const rows = @min(part.row_end - row, height);
                    const a = block.panelA(depth, count, row);
                    const kernel = if (by_row) micro.by_rows_direct[rows] else by_rows[rows];
                    const c = corner + (row - part.row_begin) * block.c_step;
                    if (to_edge) {
                        kernel(count, a.at, a.step, b, b_step, block.edge, micro.cols, false);
                        copyEdge(block.edge, c, block.c_step, rows, cols, accumulate);
                    } else {
                        kernel(count, a.at, a.step, b, b_step, c, block.c_step, accumulate);
                    }
                }
            }

            const PanelA = struct { at: [*]const T, step: usize };

            fn panelA(block: *const Block, depth: u64, count: u64, row: u64) PanelA {
                const g = block.g;
                switch (g.a_source) {
                    .local => {
                        const index = (row - block.part.row_begin) / micro.rows;
                        const stride = micro.panel_stride;
                        return .{ .at = block.local_a + index * count * stride, .step = stride };
                    },
                    .shared => {
                        const panels = ceilDivide(g.m, micro.rows);
                        const flat = block.batch * panels + row / micro.rows;
                        const all: [*]const T = @ptrCast(@alignCast(block.p.shared));
                        const stride = micro.panel_stride;
                        return .{ .at = all + (flat * g.k + depth) * stride, .step = stride };
                    },
                    .direct => {
                        const base: [*]const T = @ptrCast(@alignCast(block.view_a.base));
                        const step: usize = @intCast(block.view_a.lane.inner());
                        return .{ .at = base + row * step + depth, .step = step };
                    },
                    .direct_rows => {
                        const base: [*]const T = @ptrCast(@alignCast(block.view_a.base));
                        const step: usize = @intCast(block.view_a.depth.inner());
                        return .{ .at = base + row + depth * step, .step = step };
                    },
                }
            }
        };

        fn copyEdge(
            edge: [*]const T,
            c: [*]T,
            c_step: u64,
            rows: u64,
            cols: u64,
            accumulate: bool,
        ) void {
            for (0..rows) |i| for (0..cols) |j| {
                const x = edge[i * micro.cols + j];
                const to = &c[i * c_step + j];
                to.* = if (accumulate) plus(to.*, x) else x;
            };
        }
    };
}

/// Second phase of a product whose k is split: some elements of C, partial products in order.
pub fn combine(
    comptime d: DType,
    g: *const Geometry,
    p: Pointers,
    task: u64,
    ctx: *TaskContext,
) void {
    const T = (comptime shapes.Kind.of(d)).Type();
    const c: [*]Storage(d) = @ptrCast(@alignCast(p.c));
    const partial: [*]const T = @ptrCast(@alignCast(p.shared));
    const total = g.batch * g.m * g.n;
    const begin = task * g.elements_per_task;
    const end = @min(begin + g.elements_per_task, total);
    const chunk = 128;
    var at_element = begin;
    while (at_element < end) {
        if (ctx.isCancelled()) return;
        const count = @min(chunk, end - at_element);
        var sums: [chunk]T = @splat(0);
        for (0..g.splits) |split| {
            const from = partial + split * total + at_element;
            for (0..count) |i| sums[i] = plus(sums[i], from[i]);
        }
        for (0..count) |i| {
            const flat = at_element + i;
            const inside = flat % (g.m * g.n);
            const row = inside / g.n;
            const col = inside % g.n;
            c[flat - inside + row * g.c_row_stride + col * g.c_col_stride] = narrow(d, sums[i]);
        }
        at_element += count;
    }
}
