//! Packing: a panel of an operand, `width` lanes (rows of A or columns of B) by a run of k, copied
//! to `[k][width]` in the type of the multiply. Reads any strides; the contiguous directions are
//! vector copies or register transposes, everything else goes element by element.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const shapes = @import("gemm_shapes.zig");
const at = @import("view.zig").at;
const rank_max = @import("kernel_abi.zig").rank_max;

/// Axes that act as one, outermost first. No axes: extent 1.
pub const Group = struct {
    rank: u32,
    dims: [*]const u64,
    strides: [*]const i64,

    pub fn offset(group: Group, index: u64) i64 {
        if (group.rank == 1) return @as(i64, @intCast(index)) * group.strides[0];
        var rest = index;
        var total: i64 = 0;
        var axis = group.rank;
        while (axis > 0) {
            axis -= 1;
            total += @as(i64, @intCast(rest % group.dims[axis])) * group.strides[axis];
            rest /= group.dims[axis];
        }
        return total;
    }

    /// The offsets of `out.len` indices from `first` on, walked without divisions.
    pub fn fill(group: Group, first: u64, out: []i64) void {
        if (out.len == 0) return;
        var index: [2 * rank_max]u64 = undefined;
        var rest = first;
        var axis = group.rank;
        while (axis > 0) {
            axis -= 1;
            index[axis] = rest % group.dims[axis];
            rest /= group.dims[axis];
        }
        var at_now = group.offset(first);
        for (out) |*o| {
            o.* = at_now;
            axis = group.rank;
            while (axis > 0) {
                axis -= 1;
                index[axis] += 1;
                at_now += group.strides[axis];
                if (index[axis] < group.dims[axis]) break;
                at_now -= @as(i64, @intCast(group.dims[axis])) * group.strides[axis];
                index[axis] = 0;
            }
        }
    }

    /// The innermost stride; 0 without axes.
    pub fn inner(group: Group) i64 {
        return if (group.rank == 0) 0 else group.strides[group.rank - 1];
    }
};

/// One operand of one product: `lane` are the rows of A or the columns of B, `depth` is k.
pub const View = struct {
    base: [*]const u8,
    lane: Group,
    depth: Group,
};

/// The part of a view that goes into a panel, and where.
pub const Piece = struct {
    lane_start: u64,
    /// Lanes that exist, at most `width`; the rest of the panel is zero or unspecified finite data.
    lane_count: u32,
    /// Lanes of the operand from `lane_start` on, `>= lane_count`.
    lanes_left: u64,
    depth_start: u64,
    depth_count: u64,
    /// Lanes of the panel, whole vectors, at most `cols_max`.
    width: u32,
    /// Full panels to make side by side (`lane_count` is one panel's); more than one only where
    /// lanes are contiguous, so that long runs of memory are read.
    panel_count: u64 = 1,
};

/// The storage types that pack differently, for `kind`. Same-size integers move as bits.
pub fn packable(comptime kind: shapes.Kind) []const DType {
    return switch (kind) {
        .f32 => &.{ .f16, .bf16, .f32 },
        .f64 => &.{.f64},
        .u32 => &.{ .u8, .u16, .u32 },
        .u64 => &.{.u64},
    };
}

/// The dtype of `packable` whose packing serves `d`.
pub fn canonical(d: DType) DType {
    return switch (d) {
        .bool, .i8 => .u8,
        .i16 => .u16,
        .i32 => .u32,
        .i64 => .u64,
        else => d,
    };
}

pub fn Pack(comptime d: DType) type {
    return struct {
        /// Rows ahead that are asked for while one is copied.
        const prefetch_rows = 4;
        const S = Storage(d);
        const kind = shapes.Kind.of(d);
        const T = kind.Type();
        const lanes = shapes.shapeOf(shapes.here, kind).lanes;
        const V = @Vector(lanes, T);

        /// Widths of panels are multiples of this.
        pub const width_unit = lanes;

        /// Packs one panel.
        pub fn panel(view: View, piece: Piece, dst: [*]T) void {
            assert(piece.width % lanes == 0);
            assert(piece.lane_count <= piece.width);
            assert(piece.lane_count <= piece.lanes_left);
            assert(piece.panel_count == 1 or piece.lane_count == piece.width);
            const source: [*]const S = @ptrCast(@alignCast(view.base));
            var offsets: [shapes.cols_max]i64 = undefined;
            view.lane.fill(piece.lane_start, offsets[0..piece.lane_count]);
            const runs: Runs = .of(offsets[0..piece.lane_count], piece.width);
            const stride = view.depth.inner();
            const extent = if (view.depth.rank == 0) 1 else view.depth.dims[view.depth.rank - 1];
            const is_line = runs.count == 1 and view.lane.inner() == 1;
            assert(is_line or piece.panel_count == 1);
            // Whole vectors may run on into lanes of the next panel.
            const whole = view.lane.rank == 1 and piece.lanes_left >= piece.width;
            const by_depth = is_line or (stride == 1 and !runs.areLong());
            if (extent < lanes and piece.panel_count == 1 and view.depth.rank > 1 or !by_depth) {
                return byRows(view, source, &offsets, &runs, piece, dst);
            }
            var done: u64 = 0;
            while (done < piece.depth_count) {
                const k = piece.depth_start + done;
                const count = @min(piece.depth_count - done, extent - k % extent);
                const from = at(S, source, view.depth.offset(k));
                const to = dst + done * piece.width;
                if (is_line) {
                    copyRows(at(S, from, offsets[0]), stride, count, piece, whole, to);
                } else {
                    transposeRows(from, &offsets, count, piece, to);
                }
                done += count;
            }
        }

        /// Lanes that follow each other in memory: windows of an image have a few runs of them.
        const Runs = struct {
            count: u32 = 0,
            starts: [shapes.cols_max + 1]u32 = undefined,
            offsets: [shapes.cols_max]i64 = undefined,
            /// Whole vectors may be read and written: what lies behind the run is memory of the
            /// operand as well, and lanes that come later or are nobody's.
            whole: [shapes.cols_max]bool = undefined,

            fn of(offsets: []const i64, width: u32) Runs {
                var runs: Runs = .{};
                for (offsets, 0..) |offset, i| {
                    if (i > 0 and offset == offsets[i - 1] + 1) continue;
                    runs.starts[runs.count] = @intCast(i);
                    runs.offsets[runs.count] = offset;
                    runs.count += 1;
                }
                runs.starts[runs.count] = @intCast(offsets.len);
                var last = offsets[0];
                for (offsets) |offset| last = @max(last, offset);
                for (0..runs.count) |r| {
                    const n = std.mem.alignForward(u32, runs.starts[r + 1] - runs.starts[r], lanes);
                    runs.whole[r] = runs.offsets[r] + n <= last + 1 and runs.starts[r] + n <= width;
                }
                return runs;
            }

            /// Copying by runs is cheaper than a register transpose.
            fn areLong(runs: *const Runs) bool {
                return runs.count * 4 <= runs.starts[runs.count];
            }
        };

        /// One row of the panel after the other, whatever the axes.
        fn byRows(
            view: View,
            source: [*]const S,
            offsets: *const [shapes.cols_max]i64,
            runs: *const Runs,
            piece: Piece,
            dst: [*]T,
        ) void {
            const scattered = runs.count * 2 > piece.lane_count;
            var depths: [64]i64 = undefined;
            var done: u64 = 0;
            while (done < piece.depth_count) {
                const count = @min(piece.depth_count - done, depths.len);
                view.depth.fill(piece.depth_start + done, depths[0..count]);
                for (depths[0..count], done..) |along, k| {
                    const from = at(S, source, along);
                    const to = dst + k * piece.width;
                    if (scattered) {
                        gatherRow(from, offsets, piece, to);
                        continue;
                    }
                    for (runs.offsets[0..runs.count], 0..) |offset, r| {
                        const start = runs.starts[r];
                        const n = runs.starts[r + 1] - start;
                        copyRun(to + start, at(S, from, offset), n, runs.whole[r]);
                    }
                    for (piece.lane_count..piece.width) |i| to[i] = 0;
                }
                done += count;
            }
        }

        inline fn copyRun(to: [*]T, from: [*]const S, n: u32, whole: bool) void {
            var i: u32 = 0;
            if (whole) {
                while (i < n) : (i += lanes) to[i..][0..lanes].* = load(from + i);
                return;
            }
            while (i + lanes <= n) : (i += lanes) to[i..][0..lanes].* = load(from + i);
            if (i == n) return;
            if (n >= lanes) {
                // The last whole vector, some of it a second time.
                to[n - lanes ..][0..lanes].* = load(from + (n - lanes));
                return;
            }
            comptime var half = lanes / 2;
            inline while (half > 0) : (half /= 2) {
                if (n & half != 0) {
                    to[i..][0..half].* = loadSome(half, from + i);
                    i += half;
                }
            }
        }

        fn copyRows(
            from: [*]const S,
            stride: i64,
            count: u64,
            piece: Piece,
            whole: bool,
            dst: [*]T,
        ) void {
            const limit = if (whole) piece.width else piece.lane_count;
            for (0..count) |k| {
                const row = at(S, from, @as(i64, @intCast(k)) * stride);
                const ahead = at(S, row, prefetch_rows * stride);
                for (0..piece.panel_count) |panel_index| {
                    const line = row + panel_index * piece.width;
                    const to = dst + (panel_index * piece.depth_count + k) * piece.width;
                    var i: usize = 0;
                    while (i + lanes <= limit) : (i += lanes) {
                        const next = ahead + panel_index * piece.width + i;
                        @prefetch(next, .{ .rw = .read, .locality = 3, .cache = .data });
                        to[i..][0..lanes].* = load(line + i);
                    }
                    while (i < limit) : (i += 1) to[i] = widen(line[i]);
                    while (i < piece.width) : (i += 1) to[i] = 0;
                }
            }
        }

        fn transposeRows(
            from: [*]const S,
            offsets: *const [shapes.cols_max]i64,
            count: u64,
            piece: Piece,
            dst: [*]T,
        ) void {
            @setEvalBranchQuota(10_000);
            const whole = count - count % lanes;
            var group: u32 = 0;
            while (group < piece.width) : (group += lanes) {
                const valid = @min(piece.lane_count -| group, lanes);
                var k: u64 = 0;
                while (k < whole) : (k += lanes) {
                    var tile: [lanes]V = undefined;
                    inline for (0..lanes) |i| {
                        const line = at(S, from, if (i < valid) offsets[group + i] else 0);
                        tile[i] = if (i < valid) load(line + k) else @splat(0);
                    }
                    transpose(&tile);
                    inline for (0..lanes) |i| {
                        dst[(k + i) * piece.width + group ..][0..lanes].* = tile[i];
                    }
                }
            }
            for (whole..count) |k| gatherRow(from + k, offsets, piece, dst + k * piece.width);
        }

        inline fn gatherRow(
            from: [*]const S,
            offsets: *const [shapes.cols_max]i64,
            piece: Piece,
            to: [*]T,
        ) void {
            for (0..piece.lane_count) |i| to[i] = widen(at(S, from, offsets[i])[0]);
            for (piece.lane_count..piece.width) |i| to[i] = 0;
        }

        /// log2(lanes) rounds of interleaving the first half of the rows with the second.
        pub inline fn transpose(tile: *[lanes]V) void {
            comptime var round = 1;
            inline while (round < lanes) : (round *= 2) {
                const old = tile.*;
                const half = lanes / 2;
                inline for (0..half) |i| {
                    tile[2 * i] = @shuffle(T, old[i], old[i + half], interleave(0));
                    tile[2 * i + 1] = @shuffle(T, old[i], old[i + half], interleave(half));
                }
            }
        }

        fn interleave(comptime first: comptime_int) @Vector(lanes, i32) {
            var mask: [lanes]i32 = undefined;
            for (0..lanes / 2) |i| {
                mask[2 * i] = first + i;
                mask[2 * i + 1] = ~@as(i32, first + i);
            }
            return mask;
        }

        pub inline fn widen(x: S) T {
            return switch (d) {
                .bf16 => x.toF32(),
                .f16 => @floatCast(x),
                else => x,
            };
        }

        pub inline fn load(p: [*]const S) V {
            return loadSome(lanes, p);
        }

        inline fn loadSome(comptime n: u32, p: [*]const S) @Vector(n, T) {
            switch (d) {
                .bf16 => {
                    const bits = @as(*align(2) const @Vector(n, u16), @ptrCast(p)).*;
                    const wide: @Vector(n, u32) = bits;
                    return @bitCast(wide << @splat(16));
                },
                .f16 => {
                    const half: @Vector(n, f16) = p[0..n].*;
                    return @floatCast(half);
                },
                else => {
                    const v: @Vector(n, S) = p[0..n].*;
                    return v;
                },
            }
        }
    };
}

const TestGroup = struct { dims: []const u64, strides: []const i64 };

fn groupOf(g: TestGroup) Group {
    return .{ .rank = @intCast(g.dims.len), .dims = g.dims.ptr, .strides = g.strides.ptr };
}

fn checkPack(comptime d: DType, lanes: TestGroup, depths: TestGroup) !void {
    const P = Pack(d);
    var source: [8192]P.S = undefined;
    for (&source, 0..) |*s, i| s.* = switch (d) {
        .bf16 => dtype.Bf16.fromF32(@floatFromInt(i % 251)),
        .f16, .f32, .f64 => @floatFromInt(i % 251),
        else => @truncate(i % 251),
    };
    const lane = groupOf(lanes);
    const depth = groupOf(depths);
    const base: [*]const P.S = source[4000..];
    var dst: [shapes.cols_max * 40]P.T = @splat(99);
    const piece: Piece = .{
        .lane_start = 3,
        .lane_count = 7,
        .lanes_left = 7,
        .depth_start = 2,
        .depth_count = 37,
        .width = (7 + P.lanes - 1) / P.lanes * P.lanes,
    };
    P.panel(.{ .base = @ptrCast(base), .lane = lane, .depth = depth }, piece, &dst);
    for (0..37) |k| for (0..piece.width) |i| {
        const offset = lane.offset(3 + i) + depth.offset(2 + k);
        const want: P.T = if (i < 7) P.widen(at(P.S, base, offset)[0]) else 0;
        try std.testing.expectEqual(want, dst[k * piece.width + i]);
    };
}

test "panels of any strides" {
    const ten = [_]u64{10};
    const forty = [_]u64{40};
    const line: TestGroup = .{ .dims = &forty, .strides = &.{1} };
    const folded: TestGroup = .{ .dims = &.{ 3, 5 }, .strides = &.{ 400, 20 } };
    inline for (.{ .u8, .u16, .u32, .u64, .f16, .bf16, .f32, .f64 }) |d| {
        const steps: TestGroup = .{ .dims = &forty, .strides = &.{40} };
        const backward: TestGroup = .{ .dims = &forty, .strides = &.{-11} };
        try checkPack(d, .{ .dims = &ten, .strides = &.{1} }, steps);
        try checkPack(d, .{ .dims = &ten, .strides = &.{50} }, line);
        try checkPack(d, .{ .dims = &ten, .strides = &.{-7} }, backward);
        try checkPack(d, .{ .dims = &ten, .strides = &.{0} }, line);
        const unit: TestGroup = .{ .dims = &.{ 3, 5 }, .strides = &.{ 400, 1 } };
        try checkPack(d, unit, .{ .dims = &.{ 8, 5 }, .strides = &.{ 90, 9 } });
        try checkPack(d, folded, .{ .dims = &.{ 2, 20 }, .strides = &.{ 90, 1 } });
        // Windows of an image: overlapping, in runs of several lengths.
        const taps: TestGroup = .{ .dims = &.{ 7, 3, 3 }, .strides = &.{ 100, 12, 1 } };
        for ([_]u64{ 2, 3, 6, 10 }) |width| {
            const rows = [_]u64{ 10, width };
            try checkPack(d, .{ .dims = &rows, .strides = &.{ 12, 1 } }, taps);
            try checkPack(d, .{ .dims = &rows, .strides = &.{ 24, 2 } }, taps);
            try checkPack(d, taps, .{ .dims = &.{ 20, width }, .strides = &.{ 12, 1 } });
        }
    }
}
