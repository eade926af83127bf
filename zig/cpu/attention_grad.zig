//! `attention_grad`: the cotangents of q, k and v. A task owns one key head of one batch (or, where
//! those are few, a part of its keys) and walks tiles of keys; for each it visits the tiles of
//! queries of all heads that share the keys, computes the weights again from the log-sum-exp, and
//! adds to dk and dv in scratch and to dq in memory. When the keys of a head are split, every part
//! has its own dq and a second phase adds those in order.
//!
//! Numerics: as `attention.zig`; every sum is taken in a fixed order. Rows with log-sum-exp -inf
//! have weights zero.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const kernel_abi = @import("kernel_abi.zig");
const Operand = kernel_abi.Operand;
const TaskContext = kernel_abi.TaskContext;
const Isa = @import("isa.zig").Isa;
const shapes = @import("gemm_shapes.zig");
const tile = @import("attention_tile.zig");
const gemm = @import("gemm.zig");

pub const Geometry = tile.Geometry;
pub const Attributes = tile.Attributes;
const key_tile = tile.key_tile;

/// Tasks worth having, and the most copies of dq that may be kept for them.
const task_count_aim = 32;
const chunk_count_max = 16;
/// Elements of dq that a task of the second phase adds.
const elements_per_task = 64 << 10;

/// Parts of the scratch in elements. Rows are padded to whole register tiles so that they can be
/// the second operand of a product.
const Scratch = struct {
    /// `[query_tile][width]`, the same turned, `[query_tile][value_width]`, the same turned.
    q: u64,
    q_turned: u64,
    ct: u64,
    ct_turned: u64,
    keys: u64,
    values: u64,
    dk: u64,
    dv: u64,
    /// `[key_tile][query_tile]`: weights, and the cotangents of scores.
    weights: u64,
    scores: u64,
    lse: u64,
    inner: u64,
    spare: u64,
    total: u64,

    fn of(g: *const Geometry, cols: u64) Scratch {
        var s: Scratch = undefined;
        var used: u64 = 0;
        const width = tile.roundUp(g.width, cols);
        const value_width = tile.roundUp(g.value_width, cols);
        const mask = key_tile * @max(cols, shapes.cols_max);
        const parts = .{
            .{ &s.q, g.query_tile * width },
            .{ &s.q_turned, g.query_tile * width },
            .{ &s.ct, g.query_tile * value_width },
            .{ &s.ct_turned, g.query_tile * value_width },
            .{ &s.keys, key_tile * width },
            .{ &s.values, key_tile * value_width },
            .{ &s.dk, key_tile * width },
            .{ &s.dv, key_tile * value_width },
            .{ &s.weights, key_tile * g.query_tile },
            .{ &s.scores, key_tile * g.query_tile },
            .{ &s.lse, g.query_tile },
            .{ &s.inner, g.query_tile },
            .{ &s.spare, @max(mask, g.query_tile * value_width) },
        };
        inline for (parts) |part| {
            part[0].* = used;
            used = tile.roundUp(used + part[1], 16);
        }
        s.total = used;
        return s;
    }
};

/// Operands as the opcode has them; see `attention.plan`. out and ct are `[B, H, L, Dv]`, lse is
/// `[B, H, L]`.
pub fn plan(
    q: Operand,
    k: Operand,
    v: Operand,
    out: Operand,
    lse: Operand,
    ct: Operand,
    mask: ?Operand,
    attributes: Attributes,
    isa: Isa,
) Geometry {
    const mask_pointer = if (mask) |*m| m else null;
    var g = tile.describe(&q, &k, &v, mask_pointer, attributes, isa);
    const kind: shapes.Kind = .of(q.dtype);
    const shape = shapes.shapeOf(isa, kind);
    g.out = out.strides[0..4].*;
    g.ct = ct.strides[0..4].*;
    g.lse = .{ lse.strides[0], lse.strides[1], lse.strides[2], 0 };
    const owners = g.batch * g.key_heads;
    if (owners > 0 and g.key_tiles > 0) {
        const wanted = @min(gemm.ceilDivide(task_count_aim, owners), chunk_count_max, g.key_tiles);
        g.tiles_per_chunk = gemm.ceilDivide(g.key_tiles, wanted);
        g.chunks = gemm.ceilDivide(g.key_tiles, g.tiles_per_chunk);
    }
    const dq_elements = g.batch * g.heads * g.queries * tile.roundUp(g.width, shape.cols());
    const same = q.dtype.bytes() == kind.bytes();
    const fits = same and g.chunks == 1 and g.width % shape.cols() == 0;
    const in_place = fits or dq_elements == 0;
    g.dq_in_place = @intFromBool(in_place);
    const width_sum = 3 *| g.width +| 2 *| g.value_width +| 24;
    g.work = .{
        .task_count = owners * g.chunks,
        .scratch_bytes = Scratch.of(&g, shape.cols()).total * kind.bytes(),
        .cost_ns = tile.costNs(&g, width_sum, shape.rate, q.dtype.bytes()),
    };
    if (!in_place) {
        g.work.shared_bytes = dq_elements * g.chunks * kind.bytes();
        g.work.phase_task_count = g.work.task_count;
        g.work.task_count += gemm.ceilDivide(dq_elements, elements_per_task);
    }
    return g;
}

/// One task. Pointers: dq, dk, dv, q, k, v, out, log-sum-exp, ct, the mask if there is one, the
/// shared memory if the work asks for some.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const d: DType = @fromBackingInt(@as(u8, @intCast(g.dtype)));
    switch (d) {
        inline .f16, .bf16, .f32, .f64 => |c| Backward(c).run(g, ptrs, task, ctx),
        else => unreachable,
    }
}

fn Backward(comptime d: DType) type {
    return struct {
        const t = tile.Tile(d);
        const T = t.T;
        const V = t.V;

        const Work = struct {
            g: *const Geometry,
            ptrs: [*]const [*]u8,
            batch: u64,
            key_head: u64,
            memory: [*]T,
            parts: Scratch,
            /// Rows in scratch and in `dq`.
            width: u64,
            value_width: u64,
            /// `[B, H, L, width]`.
            dq: [*]T,
        };

        /// The pair of tiles at hand.
        const Pair = struct {
            head: u64,
            query: u64,
            query_count: u64,
            key: u64,
            key_count: u64,
        };

        fn run(g: *const Geometry, ptrs: [*]const [*]u8, task: u64, ctx: *TaskContext) void {
            if (g.dq_in_place == 0 and task >= g.work.phase_task_count) {
                return addParts(g, ptrs, task - g.work.phase_task_count);
            }
            const chunk = task % g.chunks;
            const owner = task / g.chunks;
            var w: Work = .{
                .g = g,
                .ptrs = ptrs,
                .batch = owner / g.key_heads,
                .key_head = owner % g.key_heads,
                .memory = @ptrCast(@alignCast(ctx.scratch)),
                .parts = .of(g, t.cols),
                .width = tile.roundUp(g.width, t.cols),
                .value_width = tile.roundUp(g.value_width, t.cols),
                .dq = undefined,
            };
            if (g.dq_in_place == 1) {
                w.dq = @ptrCast(@alignCast(ptrs[0]));
            } else {
                const size = g.batch * g.heads * g.queries * w.width;
                w.dq = sharedOf(g, ptrs) + chunk * size;
            }
            const group = g.heads / g.key_heads;
            const rows = group * g.queries * w.width;
            @memset((w.dq + (w.batch * g.key_heads + w.key_head) * rows)[0..rows], 0);
            const first = chunk * g.tiles_per_chunk;
            for (first..@min(first + g.tiles_per_chunk, g.key_tiles)) |index| {
                const key = index * key_tile;
                if (!visitKeys(&w, key, @min(key_tile, g.keys - key), ctx)) return;
            }
        }

        fn sharedOf(g: *const Geometry, ptrs: [*]const [*]u8) [*]T {
            return @ptrCast(@alignCast(ptrs[if (g.mask_kind == .none) 9 else 10]));
        }

        /// False if the run was cancelled.
        fn visitKeys(w: *const Work, key: u64, count: u64, ctx: *TaskContext) bool {
            const g = w.g;
            const m = w.memory;
            const k = t.head(w.ptrs[4], g.k, w.batch, w.key_head);
            const v = t.head(w.ptrs[5], g.v, w.batch, w.key_head);
            t.loadRows(k, g.k, key, count, g.width, m + w.parts.keys, w.width);
            t.loadRows(v, g.v, key, count, g.value_width, m + w.parts.values, w.value_width);
            @memset((m + w.parts.dk)[0 .. count * w.width], 0);
            @memset((m + w.parts.dv)[0 .. count * w.value_width], 0);
            const group = g.heads / g.key_heads;
            for (w.key_head * group..(w.key_head + 1) * group) |head| {
                var query: u64 = 0;
                while (query < g.queries) : (query += g.query_tile) {
                    if (ctx.isCancelled()) return false;
                    const query_count = @min(g.query_tile, g.queries - query);
                    const range = g.keyRange(query, query + query_count);
                    if (range.high <= key or range.low >= key + count) continue;
                    visitPair(w, .{
                        .head = head,
                        .query = query,
                        .query_count = query_count,
                        .key = key,
                        .key_count = @min(count, range.high - key),
                    });
                }
            }
            const row = (w.batch * g.key_heads + w.key_head) * g.keys + key;
            store(w.ptrs[1], row, count, g.width, m + w.parts.dk, w.width);
            store(w.ptrs[2], row, count, g.value_width, m + w.parts.dv, w.value_width);
            return true;
        }

        fn store(p: [*]u8, row: u64, count: u64, width: u64, from: [*]const T, step: u64) void {
            const to = @as([*]t.S, @ptrCast(@alignCast(p))) + row * width;
            for (0..count) |r| gemm.storeRow(d, to + r * width, from + r * step, width);
        }

        fn visitPair(w: *const Work, pair: Pair) void {
            const g = w.g;
            const m = w.memory;
            loadQueries(w, pair);
            const tiles = tile.roundUp(pair.query_count, t.cols);
            const weights: t.Target = .{ .at = m + w.parts.weights, .step = g.query_tile };
            const scores: t.Target = .{ .at = m + w.parts.scores, .step = g.query_tile };
            const keys: t.Left = .{ .at = m + w.parts.keys, .step = w.width };
            const values: t.Left = .{ .at = m + w.parts.values, .step = w.value_width };
            const q: t.Right = .{
                .at = m + w.parts.q_turned,
                .step = t.cols,
                .panel = g.width * t.cols,
            };
            const ct: t.Right = .{
                .at = m + w.parts.ct_turned,
                .step = t.cols,
                .panel = g.value_width * t.cols,
            };
            t.product(true, pair.key_count, tiles, g.width, keys, q, weights, false);
            t.product(true, pair.key_count, tiles, g.value_width, values, ct, scores, false);
            weigh(w, pair);

            const dv: t.Target = .{ .at = m + w.parts.dv, .step = w.value_width };
            const dk: t.Target = .{ .at = m + w.parts.dk, .step = w.width };
            const weight_rows: t.Left = .{ .at = weights.at, .step = weights.step };
            const score_rows: t.Left = .{ .at = scores.at, .step = scores.step };
            const ct_rows: t.Right = .{
                .at = m + w.parts.ct,
                .step = w.value_width,
                .panel = t.cols,
            };
            const q_rows: t.Right = .{ .at = m + w.parts.q, .step = w.width, .panel = t.cols };
            const key_rows: t.Right = .{ .at = m + w.parts.keys, .step = w.width, .panel = t.cols };
            const depth = pair.query_count;
            t.product(true, pair.key_count, w.value_width, depth, weight_rows, ct_rows, dv, true);
            t.product(true, pair.key_count, w.width, depth, score_rows, q_rows, dk, true);
            const row = (w.batch * g.heads + pair.head) * g.queries + pair.query;
            const dq: t.Target = .{ .at = w.dq + row * w.width, .step = w.width };
            const count = pair.key_count;
            t.product(false, pair.query_count, w.width, count, score_rows, key_rows, dq, true);
        }

        /// q and ct of the tile, by rows and turned; log-sum-exp; and the inner products of ct and
        /// out.
        fn loadQueries(w: *const Work, pair: Pair) void {
            const g = w.g;
            const m = w.memory;
            const count = pair.query_count;
            const q = t.head(w.ptrs[3], g.q, w.batch, pair.head);
            const out = t.head(w.ptrs[6], g.out, w.batch, pair.head);
            const ct = t.head(w.ptrs[8], g.ct, w.batch, pair.head);
            const q_rows = m + w.parts.q;
            const ct_rows = m + w.parts.ct;
            const out_rows = m + w.parts.spare;
            t.loadRows(q, g.q, pair.query, count, g.width, q_rows, w.width);
            t.loadRows(ct, g.ct, pair.query, count, g.value_width, ct_rows, w.value_width);
            t.loadRows(out, g.out, pair.query, count, g.value_width, out_rows, w.value_width);
            t.transpose(q_rows, w.width, count, g.width, m + w.parts.q_turned);
            t.transpose(ct_rows, w.value_width, count, g.value_width, m + w.parts.ct_turned);
            const base: [*]const T = @ptrCast(@alignCast(w.ptrs[7]));
            const b: i64 = @intCast(w.batch);
            const h: i64 = @intCast(pair.head);
            const inner = m + w.parts.inner;
            const lse = m + w.parts.lse;
            // Queries that see nothing, and those that do not exist, get weights exp(-inf).
            @memset(lse[0..g.query_tile], t.infinity);
            @memset(inner[0..g.query_tile], 0);
            for (0..count) |i| {
                const row: i64 = @intCast(pair.query + i);
                const offset = b * g.lse[0] + h * g.lse[1] + row * g.lse[2];
                const x = @import("view.zig").at(T, base, offset)[0];
                if (x != -t.infinity) lse[i] = x;
                var sum: V = @splat(0);
                var column: u64 = 0;
                while (column < w.value_width) : (column += t.lanes) {
                    const place = i * w.value_width + column;
                    const y: V = ct_rows[place..][0..t.lanes].*;
                    const z: V = out_rows[place..][0..t.lanes].*;
                    sum += y * z;
                }
                inner[i] = @import("lanes.zig").fold(.sum, sum);
            }
        }

        /// Raw scores to weights, and cotangents of weights to cotangents of raw scores.
        fn weigh(w: *const Work, pair: Pair) void {
            const g = w.g;
            const m = w.memory;
            const step = g.query_tile;
            const scale: V = @splat(@as(T, @floatCast(g.scale)));
            const has_mask = g.mask_kind != .none;
            const mask = t.maskOf(g, w.ptrs[if (has_mask) 9 else 0], w.batch, pair.head);
            var column: u64 = 0;
            while (column < pair.query_count) : (column += t.cols) {
                const weights = m + w.parts.weights + column;
                const scores = m + w.parts.scores + column;
                for (0..pair.key_count) |key| inline for (0..t.cols / t.lanes) |j| {
                    const p = weights + key * step + j * t.lanes;
                    const x: V = p[0..t.lanes].*;
                    p[0..t.lanes].* = x * scale;
                };
                t.applyMask(g, .{
                    .at = weights,
                    .step = step,
                    .key_begin = pair.key,
                    .key_count = pair.key_count,
                    .query_begin = pair.query + column,
                    .query_count = @min(t.cols, pair.query_count - column),
                }, mask, m + w.parts.spare);
                inline for (0..t.cols / t.lanes) |j| {
                    const lse: V = (m + w.parts.lse + column + j * t.lanes)[0..t.lanes].*;
                    const inner: V = (m + w.parts.inner + column + j * t.lanes)[0..t.lanes].*;
                    for (0..pair.key_count) |key| {
                        const p = weights + key * step + j * t.lanes;
                        const c = scores + key * step + j * t.lanes;
                        const x: V = p[0..t.lanes].*;
                        const y: V = c[0..t.lanes].*;
                        const weight = t.weight(x - lse);
                        p[0..t.lanes].* = weight;
                        c[0..t.lanes].* = weight * (y - inner) * scale;
                    }
                }
            }
        }

        /// Second phase: the parts of dq, in order.
        fn addParts(g: *const Geometry, ptrs: [*]const [*]u8, task: u64) void {
            const width = tile.roundUp(g.width, t.cols);
            const total = g.batch * g.heads * g.queries * width;
            const shared: [*]const T = sharedOf(g, ptrs);
            const dq: [*]t.S = @ptrCast(@alignCast(ptrs[0]));
            const begin = task * elements_per_task;
            for (begin..@min(begin + elements_per_task, total)) |i| {
                const column = i % width;
                if (column >= g.width) continue;
                var sum: T = 0;
                for (0..g.chunks) |chunk| sum += shared[chunk * total + i];
                dq[i / width * g.width + column] = gemm.narrow(d, sum);
            }
        }
    };
}
