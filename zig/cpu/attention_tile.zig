//! What attention and its gradient share: the geometry, the tiles of keys by queries, the products
//! of tiles on the register kernels of `gemm_micro.zig`, and masking.
//!
//! Scores are kept transposed, `[keys][queries]`: the softmax of a query then runs down a column,
//! so maxima, exponentials and sums are plain vector operations over many queries, and each product
//! of the method reads its operands without a transpose except q (and in the gradient, ct).
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const kernel_abi = @import("kernel_abi.zig");
const Operand = kernel_abi.Operand;
const Isa = @import("isa.zig").Isa;
const shapes = @import("gemm_shapes.zig");
const gemm_micro = @import("gemm_micro.zig");
const gemm_pack = @import("gemm_pack.zig");
const math = @import("math.zig");
const at = @import("view.zig").at;

/// Keys of a tile: scores of a panel of queries stay in the first-level cache.
pub const key_tile = 128;
/// Queries of a tile, roughly: whole panels of the register tile.
const query_tile_aim = 64;

pub const Attributes = struct {
    scale: f64,
    causal: bool,
    /// Keys a query sees, the one at its own position included; 0: all.
    window: u64,
};

pub const MaskKind = enum(u32) { none, boolean, added };

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    dtype: u32,
    mask_kind: MaskKind,
    causal: u32,
    /// Gradient: 1 if dq is summed in its own memory.
    dq_in_place: u32,
    /// Forward: 1 if there are so few queries that `attention_few.zig` takes them.
    few_queries: u32,
    reserved: u32,
    window: i64,
    scale: f64,
    batch: u64,
    heads: u64,
    key_heads: u64,
    queries: u64,
    keys: u64,
    /// Extent of a row of q and k, and of a row of v.
    width: u64,
    value_width: u64,
    /// Strides in elements over batch, head, row and column; 0 where the mask is broadcast.
    q: [4]i64,
    k: [4]i64,
    v: [4]i64,
    mask: [4]i64,
    out: [4]i64,
    lse: [4]i64,
    ct: [4]i64,
    query_tile: u64,
    query_tiles: u64,
    key_tiles: u64,
    /// Gradient: parts the key tiles are cut into, and tiles of each.
    chunks: u64,
    tiles_per_chunk: u64,

    /// The position of a query among the keys (the last query sees the last key).
    pub inline fn positionOf(g: *const Geometry, query: u64) i64 {
        const from_end: i64 = @intCast(g.queries - query);
        return @as(i64, @intCast(g.keys)) - from_end;
    }

    /// Keys that causality and the window leave to the query at `position`: from `low` up to and
    /// without `high`, not cut to the keys there are.
    pub inline fn limits(g: *const Geometry, position: i64) struct { low: i64, high: i64 } {
        const far = 1 << 60;
        const ahead = if (g.causal == 1) 1 else if (g.window > 0) g.window else far;
        return .{
            .low = if (g.window > 0) position - g.window + 1 else -far,
            .high = if (g.causal == 1 or g.window > 0) position + ahead else far,
        };
    }

    /// Keys that any of the queries `begin..end` may see; empty if `low >= high`.
    pub fn keyRange(g: *const Geometry, begin: u64, end: u64) struct { low: u64, high: u64 } {
        assert(begin < end);
        const low = g.limits(g.positionOf(begin)).low;
        const high = g.limits(g.positionOf(end - 1)).high;
        const count: i64 = @intCast(g.keys);
        return .{
            .low = @intCast(std.math.clamp(low, 0, count)),
            .high = @intCast(std.math.clamp(high, 0, count)),
        };
    }
};

/// Queries of a tile for kernels compiled for `isa`.
pub fn queryTile(isa: Isa, kind: shapes.Kind) u64 {
    const cols = shapes.shapeOf(isa, kind).cols();
    return @max(1, query_tile_aim / cols) * cols;
}

pub fn roundUp(n: u64, unit: u64) u64 {
    return (n + unit - 1) / unit * unit;
}

/// The parts of the geometry that both directions need.
pub fn describe(
    q: *const Operand,
    k: *const Operand,
    v: *const Operand,
    mask: ?*const Operand,
    attributes: Attributes,
    isa: Isa,
) Geometry {
    assert(q.rank == 4);
    assert(k.rank == 4);
    assert(v.rank == 4);
    assert(q.dtype.isFloat());
    var g = std.mem.zeroes(Geometry);
    const kind: shapes.Kind = .of(q.dtype);
    g.dtype = @backingInt(q.dtype);
    g.causal = @intFromBool(attributes.causal);
    g.window = @intCast(@min(attributes.window, std.math.maxInt(i32)));
    g.scale = attributes.scale;
    g.batch = q.dims[0];
    g.heads = q.dims[1];
    g.queries = q.dims[2];
    g.width = q.dims[3];
    g.key_heads = k.dims[1];
    g.keys = k.dims[2];
    g.value_width = v.dims[3];
    g.q = q.strides[0..4].*;
    g.k = k.strides[0..4].*;
    g.v = v.strides[0..4].*;
    if (mask) |m| {
        assert(m.rank == 4);
        g.mask_kind = if (m.dtype == .bool) .boolean else .added;
        for (0..4) |axis| g.mask[axis] = if (m.dims[axis] == 1) 0 else m.strides[axis];
    }
    g.query_tile = queryTile(isa, kind);
    g.query_tiles = (g.queries + g.query_tile - 1) / g.query_tile;
    g.key_tiles = (g.keys + key_tile - 1) / key_tile;
    g.chunks = 1;
    g.tiles_per_chunk = g.key_tiles;
    return g;
}

/// Multiply-adds of one product of all queries with all keys they may see, over a unit width.
pub fn pairCount(g: *const Geometry) u64 {
    const rows = g.batch *| g.heads *| g.queries;
    const all = rows *| g.keys;
    const seen = if (g.window > 0) @min(all, rows *| @as(u64, @intCast(g.window))) else all;
    return if (g.causal == 1 and g.window == 0 and g.keys == g.queries) seen / 2 + rows else seen;
}

/// A rough cost in nanoseconds: `work` operations for each pair, and reading keys and values.
pub fn costNs(g: *const Geometry, work: u64, rate: u64, element_bytes: u64) u64 {
    const elements = g.batch *| g.key_heads *| g.keys *| (g.width +| g.value_width);
    return pairCount(g) *| work / rate +| elements *| element_bytes / 20;
}

/// Tiles in the computing type of `d`.
pub fn Tile(comptime d: DType) type {
    return struct {
        pub const S = dtype.Storage(d);
        pub const kind = shapes.Kind.of(d);
        pub const T = kind.Type();
        pub const micro = gemm_micro.Micro(kind);
        pub const lanes = micro.lanes;
        pub const cols = micro.cols;
        pub const V = @Vector(lanes, T);
        const source = gemm_pack.Pack(d);
        const same = gemm_pack.Pack(if (T == f32) .f32 else .f64);
        const bytes = gemm_pack.Pack(.u8);
        /// Elements from key to key in a packed mask.
        pub const mask_step = roundUp(cols, @max(bytes.width_unit, lanes));

        pub const infinity = std.math.inf(T);

        /// Where a matrix of a head begins.
        pub inline fn head(p: [*]const u8, strides: [4]i64, batch: u64, index: u64) [*]const S {
            const base: [*]const S = @ptrCast(@alignCast(p));
            const b: i64 = @intCast(batch);
            const h: i64 = @intCast(index);
            return at(S, base, b * strides[0] + h * strides[1]);
        }

        /// Rows `begin..begin + count` of a matrix in the computing type, `[count][step]`, zero
        /// beyond `width`.
        pub fn loadRows(
            matrix: [*]const S,
            strides: [4]i64,
            begin: u64,
            count: u64,
            width: u64,
            to: [*]T,
            step: u64,
        ) void {
            for (0..count) |r| {
                const row = at(S, matrix, @as(i64, @intCast(begin + r)) * strides[2]);
                const line = to + r * step;
                var i: u64 = 0;
                if (strides[3] == 1) {
                    while (i + lanes <= width) : (i += lanes) {
                        line[i..][0..lanes].* = source.load(row + i);
                    }
                }
                while (i < width) : (i += 1) {
                    line[i] = source.widen(at(S, row, @as(i64, @intCast(i)) * strides[3])[0]);
                }
                while (i < step) : (i += 1) line[i] = 0;
            }
        }

        /// `[count rows][width]` of elements of `row_step` to panels `[panel][width][cols]`.
        pub fn transpose(rows: [*]const T, row_step: u64, count: u64, width: u64, to: [*]T) void {
            const dims = [_]u64{ count, width };
            const strides = [_]i64{ @intCast(row_step), 1 };
            const view: gemm_pack.View = .{
                .base = @ptrCast(rows),
                .lane = .{ .rank = 1, .dims = &dims, .strides = &strides },
                .depth = .{ .rank = 1, .dims = dims[1..], .strides = strides[1..] },
            };
            var row: u64 = 0;
            while (row < count) : (row += cols) {
                same.panel(view, .{
                    .lane_start = row,
                    .lane_count = @intCast(@min(count - row, cols)),
                    .lanes_left = count - row,
                    .depth_start = 0,
                    .depth_count = width,
                    .width = cols,
                }, to + row * width);
            }
        }

        /// A matrix as the first operand: by rows (`direct`), or with its rows contiguous.
        pub const Left = struct { at: [*]const T, step: u64 };
        /// As the second: rows `step` apart, panels of `cols` columns `panel` apart.
        pub const Right = struct { at: [*]const T, step: u64, panel: u64 };
        pub const Target = struct { at: [*]T, step: u64 };

        /// target `[m][n]` (+)= left `[m][depth]` * right `[depth][n]`; n whole panels.
        pub fn product(
            comptime direct: bool,
            m: u64,
            n: u64,
            depth: u64,
            left: Left,
            right: Right,
            target: Target,
            accumulate: bool,
        ) void {
            assert(n % cols == 0);
            const height = if (direct) micro.direct_rows else micro.rows;
            const table = if (direct) &micro.by_rows_direct else &micro.by_rows;
            for (0..n / cols) |panel| {
                const b = right.at + panel * right.panel;
                var row: u64 = 0;
                while (row < m) : (row += height) {
                    const a = left.at + row * (if (direct) left.step else 1);
                    const c = target.at + row * target.step + panel * cols;
                    const kernel = table[@min(height, m - row)];
                    kernel(depth, a, left.step, b, right.step, c, target.step, accumulate);
                }
            }
        }

        /// e^x for x <= 0, zero where that would be subnormal: next to the largest weight of a row,
        /// which is of the order of 1, it could not be seen, and hardware is slow on subnormals.
        pub inline fn weight(x: V) V {
            const least: V = @splat(if (T == f32) -87.0 else -708.0);
            const vanishes = x < least;
            const e = math.exp(@select(T, vanishes, least, x));
            return @select(T, vanishes, @as(V, @splat(0)), e);
        }

        /// One panel of transposed scores and where it is in the whole.
        pub const Scores = struct {
            at: [*]T,
            step: u64,
            key_begin: u64,
            key_count: u64,
            query_begin: u64,
            /// Queries there are, at most `cols`.
            query_count: u64,
        };

        /// Adds the mask and sets what may not be seen to -inf. `scratch` holds `key_tile` rows of
        /// `mask_step`; `mask` is the head's mask.
        pub fn applyMask(g: *const Geometry, s: Scores, mask: [*]const u8, scratch: [*]T) void {
            switch (g.mask_kind) {
                .none => {},
                .boolean => applyBoolean(g, s, mask, scratch),
                .added => applyAdded(g, s, mask, scratch),
            }
            if (g.causal == 0 and g.window == 0) return;
            // Inside for all queries?
            const first = g.limits(g.positionOf(s.query_begin));
            const last = g.limits(g.positionOf(s.query_begin + s.query_count - 1));
            const begin: i64 = @intCast(s.key_begin);
            const end = begin + @as(i64, @intCast(s.key_count));
            if (last.low <= begin and first.high >= end) return;
            const I = @Vector(lanes, i32);
            inline for (0..cols / lanes) |j| {
                const offset: I = std.simd.iota(i32, lanes) + @as(I, @splat(j * lanes));
                // Limits relative to the first key of the tile, for the first query of this vector.
                const low = relative(first.low - begin) + offset;
                const high = relative(first.high - begin) + offset;
                for (0..s.key_count) |key| {
                    const p = s.at + key * s.step + j * lanes;
                    const at_key: I = @splat(@intCast(key));
                    const hidden: V = @splat(-infinity);
                    const x: V = p[0..lanes].*;
                    const seen = @select(T, at_key >= low, x, hidden);
                    p[0..lanes].* = @select(T, at_key < high, seen, hidden);
                }
            }
        }

        inline fn relative(x: i64) @Vector(lanes, i32) {
            const bound = 1 << 30;
            return @splat(@intCast(std.math.clamp(x, -bound, bound)));
        }

        fn maskView(
            mask: [*]const u8,
            dims: *const [2]u64,
            strides: *const [2]i64,
        ) gemm_pack.View {
            return .{
                .base = mask,
                .lane = .{ .rank = 1, .dims = dims, .strides = strides },
                .depth = .{ .rank = 1, .dims = dims[1..], .strides = strides[1..] },
            };
        }

        fn maskPiece(s: Scores) gemm_pack.Piece {
            return .{
                .lane_start = s.query_begin,
                .lane_count = @intCast(s.query_count),
                .lanes_left = s.query_count,
                .depth_start = s.key_begin,
                .depth_count = s.key_count,
                .width = @intCast(mask_step),
            };
        }

        fn applyBoolean(g: *const Geometry, s: Scores, mask: [*]const u8, scratch: [*]T) void {
            const dims = [_]u64{ g.queries, g.keys };
            const strides = [_]i64{ g.mask[2], g.mask[3] };
            const words: [*]u32 = @ptrCast(scratch);
            bytes.panel(maskView(mask, &dims, &strides), maskPiece(s), words);
            for (0..s.key_count) |key| inline for (0..cols / lanes) |j| {
                const p = s.at + key * s.step + j * lanes;
                const x: V = p[0..lanes].*;
                const seen: @Vector(lanes, u32) = words[key * mask_step + j * lanes ..][0..lanes].*;
                const none: @Vector(lanes, u32) = @splat(0);
                p[0..lanes].* = @select(T, seen != none, x, @as(V, @splat(-infinity)));
            };
        }

        fn applyAdded(g: *const Geometry, s: Scores, mask: [*]const u8, scratch: [*]T) void {
            const dims = [_]u64{ g.queries, g.keys };
            const strides = [_]i64{ g.mask[2], g.mask[3] };
            source.panel(maskView(mask, &dims, &strides), maskPiece(s), scratch);
            for (0..s.key_count) |key| inline for (0..cols / lanes) |j| {
                const p = s.at + key * s.step + j * lanes;
                const x: V = p[0..lanes].*;
                const more: V = scratch[key * mask_step + j * lanes ..][0..lanes].*;
                p[0..lanes].* = x + more;
            };
        }

        /// The mask of a head; any address if there is none.
        pub inline fn maskOf(
            g: *const Geometry,
            p: [*]const u8,
            batch: u64,
            index: u64,
        ) [*]const u8 {
            const b: i64 = @intCast(batch);
            const h: i64 = @intCast(index);
            const offset = b * g.mask[0] + h * g.mask[1];
            return switch (g.mask_kind) {
                .none => p,
                .boolean => at(u8, p, offset),
                .added => @ptrCast(at(S, @ptrCast(@alignCast(p)), offset)),
            };
        }
    };
}
