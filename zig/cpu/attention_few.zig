//! `attention` for a few queries (a step of decoding): the register tile would be mostly padding,
//! and reading k and v once is the bound, so scores are plain dot products along k as it lies and
//! the result is a sum of multiples of rows of v, one query after the other.
//!
//! Numerics: as `attention.zig`; a score is summed in lanes and folded as a tree, rows of v are
//! added in order within a tile of keys.
const std = @import("std");
const DType = @import("../dtype.zig").DType;
const tile = @import("attention_tile.zig");
const gemm = @import("gemm.zig");
const gemm_pack = @import("gemm_pack.zig");
const multiplyAdd = @import("gemm_micro.zig").multiplyAdd;
const math = @import("math.zig");
const fold = @import("lanes.zig").fold;
const at = @import("view.zig").at;
const TaskContext = @import("kernel_abi.zig").TaskContext;
const key_tile = tile.key_tile;

/// Queries up to which this is faster than the tiles.
pub const queries_max = 4;

/// Elements of scratch.
pub fn scratchElements(width: u64, value_width: u64) u64 {
    return tile.roundUp(width, 16) + tile.roundUp(value_width, 16) + key_tile;
}

pub fn Few(comptime d: DType) type {
    return struct {
        const t = tile.Tile(d);
        const T = t.T;
        const V = t.V;
        const lanes = t.lanes;
        const packer = gemm_pack.Pack(d);
        /// Keys that are worked on together: independent chains, and fewer visits of the sums.
        const together = 4;

        const Row = struct {
            g: *const tile.Geometry,
            q: [*]T,
            scores: *[key_tile]T,
            sums: [*]T,
            k: [*]const t.S,
            v: [*]const t.S,
            /// Mask of this query.
            mask: [*]const u8,
            maximum: T = -t.infinity,
            total: T = 0,
        };

        /// All queries of one head. Pointers as for `attention.run`.
        pub fn run(
            g: *const tile.Geometry,
            ptrs: [*]const [*]u8,
            task: u64,
            ctx: *TaskContext,
        ) void {
            const batch = task / g.heads;
            const head = task % g.heads;
            const key_head = head / (g.heads / g.key_heads);
            const memory: [*]T = @ptrCast(ctx.scratch);
            const sums = memory + tile.roundUp(g.width, 16);
            const mask = t.maskOf(g, ptrs[if (g.mask_kind == .none) 0 else 5], batch, head);
            const scale: T = @floatCast(g.scale);
            for (0..g.queries) |query| {
                const offset = @as(i64, @intCast(query)) * g.mask[2];
                const size: i64 = if (g.mask_kind == .added) @sizeOf(t.S) else 1;
                var row: Row = .{
                    .g = g,
                    .q = memory,
                    .scores = @ptrCast(sums + tile.roundUp(g.value_width, 16)),
                    .sums = sums,
                    .k = t.head(ptrs[3], g.k, batch, key_head),
                    .v = t.head(ptrs[4], g.v, batch, key_head),
                    .mask = at(u8, mask, offset * size),
                };
                const q = t.head(ptrs[2], g.q, batch, head);
                t.loadRows(q, g.q, query, 1, g.width, row.q, g.width);
                for (row.q[0..g.width]) |*x| x.* *= scale;
                @memset(sums[0..g.value_width], 0);
                const range = g.keyRange(query, query + 1);
                var key = range.low;
                while (key < range.high) : (key += key_tile) {
                    if (ctx.isCancelled()) return;
                    visitKeys(&row, key, @min(key_tile, range.high - key));
                }
                const index = (batch * g.heads + head) * g.queries + query;
                const out = @as([*]t.S, @ptrCast(@alignCast(ptrs[0]))) + index * g.value_width;
                const lse: [*]T = @ptrCast(@alignCast(ptrs[1]));
                const none = row.total == 0;
                const inverse = if (none) 0 else 1 / row.total;
                for (sums[0..g.value_width]) |*x| x.* *= inverse;
                gemm.storeRow(d, out, sums, g.value_width);
                const log = math.log(@as(@Vector(1, T), .{row.total}))[0];
                lse[index] = if (none) -t.infinity else row.maximum + log;
            }
        }

        fn visitKeys(row: *Row, key: u64, count: u64) void {
            var j: u64 = 0;
            while (j < count) : (j += together) score(row, key + j, j, @min(together, count - j));
            applyMask(row, key, count);
            const whole = tile.roundUp(count, lanes);
            @memset(row.scores[count..whole], -t.infinity);

            const before = row.maximum;
            var top: V = @splat(before);
            j = 0;
            while (j < whole) : (j += lanes) {
                const x: V = row.scores[j..][0..lanes].*;
                top = @select(T, x > top, x, top);
            }
            row.maximum = @reduce(.Max, top);
            const shift: V = @splat(if (row.maximum == -t.infinity) 0 else row.maximum);
            var total: V = @splat(0);
            j = 0;
            while (j < whole) : (j += lanes) {
                const x: V = row.scores[j..][0..lanes].*;
                const e = t.weight(x - shift);
                row.scores[j..][0..lanes].* = e;
                total += e;
            }
            const factor = t.weight(@as(V, @splat(before)) - shift)[0];
            row.total = row.total * factor + fold(.sum, total);
            if (factor != 1) for (row.sums[0..row.g.value_width]) |*x| {
                x.* *= factor;
            };
            j = 0;
            while (j < count) : (j += together) addRows(row, key + j, j, @min(together, count - j));
        }

        const Rows = [together][*]const t.S;

        /// Rows of k or v; past the last, it again.
        inline fn rowsOf(p: [*]const t.S, stride: i64, key: u64, count: u64) Rows {
            var rows: Rows = undefined;
            inline for (0..together) |i| {
                rows[i] = at(t.S, p, @as(i64, @intCast(key + @min(i, count - 1))) * stride);
            }
            return rows;
        }

        fn score(row: *Row, key: u64, place: u64, count: u64) void {
            const rows = rowsOf(row.k, row.g.k[2], key, count);
            const width = row.g.width;
            var acc: [together]V = @splat(@splat(0));
            var i: u64 = 0;
            while (i + lanes <= width) : (i += lanes) {
                const x: V = row.q[i..][0..lanes].*;
                inline for (0..together) |r| {
                    acc[r] = multiplyAdd(x, packer.load(rows[r] + i), acc[r]);
                }
            }
            inline for (0..together) |r| {
                var total = fold(.sum, acc[r]);
                for (i..width) |c| total = multiplyAdd(row.q[c], packer.widen(rows[r][c]), total);
                if (r < count) row.scores[place + r] = total;
            }
        }

        fn applyMask(row: *Row, key: u64, count: u64) void {
            const stride = row.g.mask[3];
            const first: i64 = @intCast(key);
            switch (row.g.mask_kind) {
                .none => {},
                .boolean => for (row.scores[0..count], 0..) |*x, j| {
                    const seen = at(u8, row.mask, (first + @as(i64, @intCast(j))) * stride)[0];
                    if (seen == 0) x.* = -t.infinity;
                },
                .added => {
                    const mask: [*]const t.S = @ptrCast(@alignCast(row.mask));
                    for (row.scores[0..count], 0..) |*x, j| {
                        const offset = (first + @as(i64, @intCast(j))) * stride;
                        x.* += packer.widen(at(t.S, mask, offset)[0]);
                    }
                },
            }
        }

        fn addRows(row: *Row, key: u64, place: u64, count: u64) void {
            const rows = rowsOf(row.v, row.g.v[2], key, count);
            const width = row.g.value_width;
            var weights: [together]T = @splat(0);
            for (0..count) |r| weights[r] = row.scores[place + r];
            var i: u64 = 0;
            while (i + lanes <= width) : (i += lanes) {
                var sum: V = row.sums[i..][0..lanes].*;
                inline for (0..together) |r| {
                    if (r < count) {
                        const w: V = @splat(weights[r]);
                        sum = multiplyAdd(w, packer.load(rows[r] + i), sum);
                    }
                }
                row.sums[i..][0..lanes].* = sum;
            }
            while (i < width) : (i += 1) for (0..count) |r| {
                row.sums[i] = multiplyAdd(weights[r], packer.widen(rows[r][i]), row.sums[i]);
            };
        }
    };
}
