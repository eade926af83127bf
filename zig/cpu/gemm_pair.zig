//! Packing of bfloat16 for kernels that multiply pairs: a panel as in `gemm_pack.zig`, whose
//! elements are 32 bits, the values at k = 2p (low half) and 2p + 1. A missing last value is zero.
const std = @import("std");
const assert = std.debug.assert;
const shapes = @import("gemm_shapes.zig");
const gemm_pack = @import("gemm_pack.zig");
const Bf16 = @import("../dtype.zig").Bf16;
const at = @import("view.zig").at;

const words = gemm_pack.Pack(.u32);
const lanes = words.width_unit;
const V = @Vector(lanes, u32);

/// Packs one panel, or several side by side where lanes are contiguous. Depths of the piece count
/// pairs; the operand has `k_elements` values along k.
pub fn panel(view: gemm_pack.View, piece: gemm_pack.Piece, k_elements: u64, dst: [*]u32) void {
    assert(piece.width % lanes == 0);
    assert(piece.lane_count <= piece.width);
    const source: [*]const u16 = @ptrCast(@alignCast(view.base));
    var offsets: [shapes.cols_max]i64 = undefined;
    view.lane.fill(piece.lane_start, offsets[0..piece.lane_count]);
    var uniform = view.lane.rank == 1 and view.lane.inner() == 1;
    if (view.depth.rank > 1) uniform = false;
    const stride = view.depth.inner();
    for (0..piece.panel_count) |index| {
        const to = dst + index * piece.depth_count * piece.width;
        if (uniform) {
            const shifted = at(u16, source, offsets[0]) + index * piece.width;
            zipRows(shifted, stride, piece, k_elements, to);
        } else if (view.depth.rank <= 1 and stride == 1) {
            transposePairs(source, &offsets, piece, k_elements, to);
        } else {
            gather(view, &offsets, piece, k_elements, to);
        }
    }
}

inline fn pair(low: u16, high: u16) u32 {
    return low | @as(u32, high) << 16;
}

/// Rows k and k + 1 are contiguous along lanes.
fn zipRows(
    source: [*]const u16,
    stride: i64,
    piece: gemm_pack.Piece,
    k_elements: u64,
    dst: [*]u32,
) void {
    const whole = piece.panel_count > 1 or piece.lanes_left >= piece.width;
    const limit = if (whole) piece.width else piece.lane_count;
    for (0..piece.depth_count) |p| {
        const k = 2 * (piece.depth_start + p);
        const low = at(u16, source, @as(i64, @intCast(k)) * stride);
        const full = k + 1 < k_elements;
        const high = if (full) at(u16, low, stride) else low;
        const to = dst + p * piece.width;
        var i: usize = 0;
        while (i + lanes <= limit) : (i += lanes) {
            const x: V = @as(@Vector(lanes, u16), low[i..][0..lanes].*);
            const y: V = @as(@Vector(lanes, u16), high[i..][0..lanes].*);
            to[i..][0..lanes].* = if (full) x | y << @splat(16) else x;
        }
        while (i < limit) : (i += 1) to[i] = pair(low[i], if (full) high[i] else 0);
        while (i < piece.width) : (i += 1) to[i] = 0;
    }
}

/// Lanes are contiguous along k: whole pairs are words, transposed in registers.
fn transposePairs(
    source: [*]const u16,
    offsets: *const [shapes.cols_max]i64,
    piece: gemm_pack.Piece,
    k_elements: u64,
    dst: [*]u32,
) void {
    @setEvalBranchQuota(10_000);
    const full = @min(piece.depth_count, k_elements / 2 - @min(k_elements / 2, piece.depth_start));
    const whole = full - full % lanes;
    var group: u32 = 0;
    while (group < piece.width) : (group += lanes) {
        const valid = @min(piece.lane_count -| group, lanes);
        var p: u64 = 0;
        while (p < whole) : (p += lanes) {
            var tile: [lanes]V = undefined;
            inline for (0..lanes) |i| {
                const line = at(u16, source, if (i < valid) offsets[group + i] else 0);
                const from = line + 2 * (piece.depth_start + p);
                tile[i] = if (i < valid) @as(*align(2) const V, @ptrCast(from)).* else @splat(0);
            }
            words.transpose(&tile);
            inline for (0..lanes) |i| {
                dst[(p + i) * piece.width + group ..][0..lanes].* = tile[i];
            }
        }
    }
    for (whole..piece.depth_count) |p| {
        const k = 2 * (piece.depth_start + p);
        const to = dst + p * piece.width;
        for (0..piece.lane_count) |i| {
            const line = at(u16, source, offsets[i]);
            to[i] = pair(line[k], if (k + 1 < k_elements) line[k + 1] else 0);
        }
        for (piece.lane_count..piece.width) |i| to[i] = 0;
    }
}

fn gather(
    view: gemm_pack.View,
    offsets: *const [shapes.cols_max]i64,
    piece: gemm_pack.Piece,
    k_elements: u64,
    dst: [*]u32,
) void {
    const source: [*]const u16 = @ptrCast(@alignCast(view.base));
    var depths: [128]i64 = undefined;
    for (0..piece.depth_count) |p| {
        const in_table = 2 * p % depths.len;
        const k = 2 * (piece.depth_start + p);
        if (in_table == 0) {
            const left = @min(k_elements - k, 2 * (piece.depth_count - p));
            view.depth.fill(k, depths[0..@min(left, depths.len)]);
        }
        const low = at(u16, source, depths[in_table]);
        const full = k + 1 < k_elements;
        const high = if (full) at(u16, source, depths[in_table + 1]) else low;
        const to = dst + p * piece.width;
        for (0..piece.lane_count) |i| {
            const second = if (full) at(u16, high, offsets[i])[0] else 0;
            to[i] = pair(at(u16, low, offsets[i])[0], second);
        }
        for (piece.lane_count..piece.width) |i| to[i] = 0;
    }
}

test "pairs of any strides, odd counts" {
    var source: [4096]u16 = undefined;
    for (&source, 0..) |*s, i| s.* = @truncate(i * 7919);
    const base: [*]const u16 = source[2000..];
    // Strides of lanes, of k, and of an outer axis of k if there is one.
    const cases = [_][3]i64{ .{ 1, 40, 0 }, .{ 50, 1, 0 }, .{ -3, 11, 0 }, .{ 1, 3, 90 } };
    for (cases) |c| {
        const lane_dims = [_]u64{20};
        const lane_strides = [_]i64{c[0]};
        const split = c[2] != 0;
        const depth_dims: []const u64 = if (split) &.{ 5, 7 } else &.{35};
        const depth_strides: []const i64 = if (split) &.{ c[2], c[1] } else &.{c[1]};
        const rank: u32 = @intCast(depth_dims.len);
        const view: gemm_pack.View = .{
            .base = @ptrCast(base),
            .lane = .{ .rank = 1, .dims = &lane_dims, .strides = &lane_strides },
            .depth = .{ .rank = rank, .dims = depth_dims.ptr, .strides = depth_strides.ptr },
        };
        const piece: gemm_pack.Piece = .{
            .lane_start = 2,
            .lane_count = 5,
            .lanes_left = 5,
            .depth_start = 1,
            .depth_count = 17,
            .width = (5 + lanes - 1) / lanes * lanes,
        };
        var dst: [17 * shapes.cols_max]u32 = @splat(1);
        panel(view, piece, 35, &dst);
        for (0..17) |p| for (0..piece.width) |i| {
            var want: u32 = 0;
            if (i < 5) for (0..2) |half| {
                const k = 2 * (1 + p) + half;
                if (k >= 35) continue;
                const offset = view.lane.offset(2 + i) + view.depth.offset(k);
                want |= @as(u32, at(u16, base, offset)[0]) << @intCast(16 * half);
            };
            try std.testing.expectEqual(want, dst[p * piece.width + i]);
        };
    }
}
