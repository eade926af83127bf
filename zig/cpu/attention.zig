//! `attention`: out = softmax(scale * q k^T + mask) v and the log-sum-exp of each row, one tile of
//! queries at a time over tiles of keys, with the running maximum and sum of each query (online
//! softmax). Tiles that causality or the window hide altogether are skipped.
//!
//! Numerics: float32 for half types and float32, float64 for float64. The order of tiles is fixed,
//! so results do not depend on threads. A row that sees no key is zeros with log-sum-exp -inf.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const kernel_abi = @import("kernel_abi.zig");
const Operand = kernel_abi.Operand;
const TaskContext = kernel_abi.TaskContext;
const Isa = @import("isa.zig").Isa;
const shapes = @import("gemm_shapes.zig");
const tile = @import("attention_tile.zig");
const attention_few = @import("attention_few.zig");
const gemm = @import("gemm.zig");
const math = @import("math.zig");

pub const Geometry = tile.Geometry;
pub const Attributes = tile.Attributes;
const key_tile = tile.key_tile;

/// Parts of the scratch, in elements of the computing type, for `cols` columns of a register tile.
const Scratch = struct {
    q: u64,
    scores: u64,
    out: u64,
    maximum: u64,
    sum: u64,
    keys: u64,
    values: u64,
    spare: u64,
    total: u64,

    fn of(g: *const Geometry, cols: u64) Scratch {
        var s: Scratch = undefined;
        var used: u64 = 0;
        const mask_step = @max(cols, shapes.cols_max);
        const turned = tile.roundUp(g.value_width, cols) * g.query_tile;
        const parts = .{
            .{ &s.q, g.query_tile * g.width },
            .{ &s.scores, key_tile * cols },
            .{ &s.out, g.query_tile * g.value_width },
            .{ &s.maximum, g.query_tile },
            .{ &s.sum, g.query_tile },
            .{ &s.keys, key_tile * g.width },
            .{ &s.values, key_tile * g.value_width },
            // Rows of q, then masks, then the turned result.
            .{ &s.spare, @max(g.query_tile * g.width, key_tile * mask_step, turned) },
        };
        inline for (parts) |part| {
            part[0].* = used;
            used = tile.roundUp(used + part[1], 16);
        }
        s.total = used;
        return s;
    }
};

/// Operands as the opcode has them: q `[B, H, L, D]`, k `[B, Hk, S, D]`, v `[B, Hk, S, Dv]`, mask
/// with extents that are those of the scores or 1.
pub fn plan(
    q: Operand,
    k: Operand,
    v: Operand,
    mask: ?Operand,
    attributes: Attributes,
    isa: Isa,
) Geometry {
    const mask_pointer = if (mask) |*m| m else null;
    var g = tile.describe(&q, &k, &v, mask_pointer, attributes, isa);
    const shape = shapes.shapeOf(isa, .of(q.dtype));
    const bytes = shapes.Kind.of(q.dtype).bytes();
    const in_rows = k.strides[3] == 1 and v.strides[3] == 1;
    const few = in_rows and g.queries <= attention_few.queries_max;
    g.few_queries = @intFromBool(few);
    const elements = if (few)
        attention_few.scratchElements(g.width, g.value_width)
    else
        Scratch.of(&g, shape.cols()).total;
    g.work = .{
        .task_count = g.batch * g.heads * g.query_tiles,
        .scratch_bytes = elements * bytes,
        .cost_ns = tile.costNs(&g, g.width +| g.value_width +| 16, shape.rate, q.dtype.bytes()),
    };
    return g;
}

/// One task. Pointers: out, log-sum-exp, q, k, v and the mask if there is one.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const d: DType = @fromBackingInt(@as(u8, @intCast(g.dtype)));
    switch (d) {
        inline .f16, .bf16, .f32, .f64 => |c| {
            if (g.few_queries == 1) return attention_few.Few(c).run(g, ptrs, task, ctx);
            Forward(c).run(g, ptrs, task, ctx);
        },
        else => unreachable,
    }
}

fn Forward(comptime d: DType) type {
    return struct {
        const t = tile.Tile(d);
        const T = t.T;
        const V = t.V;
        const vectors = t.cols / t.lanes;

        const Work = struct {
            g: *const Geometry,
            ptrs: [*]const [*]u8,
            batch: u64,
            head: u64,
            query_begin: u64,
            query_count: u64,
            memory: [*]T,
            parts: Scratch,
        };

        fn run(g: *const Geometry, ptrs: [*]const [*]u8, task: u64, ctx: *TaskContext) void {
            // The last queries first: with causality they see the most keys.
            const query_begin = (g.query_tiles - 1 - task % g.query_tiles) * g.query_tile;
            const flat = task / g.query_tiles;
            const w: Work = .{
                .g = g,
                .ptrs = ptrs,
                .batch = flat / g.heads,
                .head = flat % g.heads,
                .query_begin = query_begin,
                .query_count = @min(g.query_tile, g.queries - query_begin),
                .memory = @ptrCast(@alignCast(ctx.scratch)),
                .parts = .of(g, t.cols),
            };
            begin(&w);
            const range = g.keyRange(query_begin, query_begin + w.query_count);
            var key = range.low / key_tile * key_tile;
            while (key < range.high) : (key += key_tile) {
                if (ctx.isCancelled()) return;
                visitKeys(&w, key, @min(key_tile, range.high - key));
            }
            finish(&w);
        }

        /// Loads and scales q, clears the running values.
        fn begin(w: *const Work) void {
            const g = w.g;
            const q = t.head(w.ptrs[2], g.q, w.batch, w.head);
            const rows = w.memory + w.parts.spare;
            t.loadRows(q, g.q, w.query_begin, w.query_count, g.width, rows, g.width);
            const scale: T = @floatCast(g.scale);
            for (rows[0 .. w.query_count * g.width]) |*x| x.* *= scale;
            t.transpose(rows, g.width, w.query_count, g.width, w.memory + w.parts.q);
            @memset((w.memory + w.parts.out)[0 .. g.query_tile * g.value_width], 0);
            @memset((w.memory + w.parts.maximum)[0..g.query_tile], -t.infinity);
            @memset((w.memory + w.parts.sum)[0..g.query_tile], 0);
        }

        fn visitKeys(w: *const Work, key: u64, count: u64) void {
            const g = w.g;
            const key_head = w.head / (g.heads / g.key_heads);
            const k = operand(w, 3, g.k, key_head, key, count, g.width, w.parts.keys);
            const v = operand(w, 4, g.v, key_head, key, count, g.value_width, w.parts.values);
            const has_mask = g.mask_kind != .none;
            const mask = t.maskOf(g, w.ptrs[if (has_mask) 5 else 0], w.batch, w.head);
            var column: u64 = 0;
            while (column < w.query_count) : (column += t.cols) {
                const scores: t.Scores = .{
                    .at = w.memory + w.parts.scores,
                    .step = t.cols,
                    .key_begin = key,
                    .key_count = count,
                    .query_begin = w.query_begin + column,
                    .query_count = @min(t.cols, w.query_count - column),
                };
                const first = scores.query_begin;
                const range = g.keyRange(first, first + scores.query_count);
                if (range.high <= key or range.low >= key + count) continue;
                const q: t.Right = .{
                    .at = w.memory + w.parts.q + column * g.width,
                    .step = t.cols,
                    .panel = 0,
                };
                const to: t.Target = .{ .at = scores.at, .step = t.cols };
                t.product(true, count, t.cols, g.width, k, q, to, false);
                t.applyMask(g, scores, mask, w.memory + w.parts.spare);
                softmax(w, scores, column);
                const p: t.Right = .{ .at = scores.at, .step = t.cols, .panel = 0 };
                const out: t.Target = .{
                    .at = w.memory + w.parts.out + column * g.value_width,
                    .step = t.cols,
                };
                t.product(false, g.value_width, t.cols, count, v, p, out, true);
            }
        }

        /// Rows of k or v of a tile: in place if they are contiguous, else loaded to scratch.
        fn operand(
            w: *const Work,
            index: usize,
            strides: [4]i64,
            head: u64,
            key: u64,
            count: u64,
            width: u64,
            part: u64,
        ) t.Left {
            const matrix = t.head(w.ptrs[index], strides, w.batch, head);
            if (t.S == T and strides[3] == 1 and strides[2] >= 0) {
                const step: u64 = @intCast(strides[2]);
                return .{ .at = matrix + key * step, .step = step };
            }
            const to = w.memory + part;
            t.loadRows(matrix, strides, key, count, width, to, width);
            return .{ .at = to, .step = width };
        }

        /// Scores to exponentials; brings maximum, sum and the result so far to the new maximum.
        fn softmax(w: *const Work, s: t.Scores, column: u64) void {
            const maxima = w.memory + w.parts.maximum + column;
            const sums = w.memory + w.parts.sum + column;
            const out = w.memory + w.parts.out + column * w.g.value_width;
            inline for (0..vectors) |j| {
                const before: V = maxima[j * t.lanes ..][0..t.lanes].*;
                var top = before;
                for (0..s.key_count) |key| {
                    const x: V = s.at[key * t.cols + j * t.lanes ..][0..t.lanes].*;
                    top = @select(T, x > top, x, top);
                }
                const none = top == @as(V, @splat(-t.infinity));
                const shift = @select(T, none, @as(V, @splat(0)), top);
                var total: V = @splat(0);
                for (0..s.key_count) |key| {
                    const p = s.at + key * t.cols + j * t.lanes;
                    const x: V = p[0..t.lanes].*;
                    const e = t.weight(x - shift);
                    p[0..t.lanes].* = e;
                    total += e;
                }
                const factor = t.weight(before - shift);
                const sum: V = sums[j * t.lanes ..][0..t.lanes].*;
                sums[j * t.lanes ..][0..t.lanes].* = sum * factor + total;
                maxima[j * t.lanes ..][0..t.lanes].* = top;
                if (@reduce(.Or, factor != @as(V, @splat(1)))) for (0..w.g.value_width) |i| {
                    const p = out + i * t.cols + j * t.lanes;
                    const x: V = p[0..t.lanes].*;
                    p[0..t.lanes].* = x * factor;
                };
            }
        }

        /// Divides by the sums, turns the result and stores it with the log-sum-exp.
        fn finish(w: *const Work) void {
            const g = w.g;
            const row = (w.batch * g.heads + w.head) * g.queries + w.query_begin;
            const out = @as([*]t.S, @ptrCast(@alignCast(w.ptrs[0]))) + row * g.value_width;
            const lse = @as([*]T, @ptrCast(@alignCast(w.ptrs[1]))) + row;
            const sums = w.memory + w.parts.sum;
            const maxima = w.memory + w.parts.maximum;
            const turned = w.memory + w.parts.spare;
            var column: u64 = 0;
            while (column < w.query_count) : (column += t.cols) {
                const from = w.memory + w.parts.out + column * g.value_width;
                const count = @min(t.cols, w.query_count - column);
                // Panels of `cols` value columns: `[panel][query][cols]`.
                t.transpose(from, t.cols, g.value_width, t.cols, turned);
                for (0..count) |i| {
                    const query = column + i;
                    const inverse = if (sums[query] == 0) 0 else 1 / sums[query];
                    const row_out = out + query * g.value_width;
                    var x: u64 = 0;
                    while (x < g.value_width) : (x += t.cols) {
                        const line = turned + x * t.cols + i * t.cols;
                        for (line[0..t.cols]) |*y| y.* *= inverse;
                        gemm.storeRow(d, row_out + x, line, @min(t.cols, g.value_width - x));
                    }
                }
            }
            for (0..w.query_count) |i| {
                const total: @Vector(1, T) = .{sums[i]};
                lse[i] = if (sums[i] == 0) -t.infinity else maxima[i] + math.log(total)[0];
            }
        }
    };
}
