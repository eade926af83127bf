//! Walking strided views: a list of axes shared by several operands, kept in its shortest form, and
//! a cursor that visits the index space in row-major order in runs along the innermost axis.
//! The moves at the end are generic over the element size, never over the dtype.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const rank_max = kernel_abi.rank_max;

/// The pointer `offset` elements after `base`; negative offsets are legal.
pub inline fn at(comptime T: type, base: [*]const T, offset: i64) [*]const T {
    return @ptrFromInt(@intFromPtr(base) +% @as(usize, @bitCast(offset *% @sizeOf(T))));
}

/// As `at`, for memory that is written.
pub inline fn atMutable(comptime T: type, base: [*]T, offset: i64) [*]T {
    return @ptrFromInt(@intFromPtr(base) +% @as(usize, @bitCast(offset *% @sizeOf(T))));
}

/// Axes, outermost first, with one stride (in elements) for each of `operand_count` operands.
/// Axes of extent 1 are dropped and neighbours that every operand walks as one are merged.
pub fn Axes(comptime operand_count: u32) type {
    return extern struct {
        const Self = @This();
        pub const empty: Self = .{
            .rank = 0,
            .dims = @splat(0),
            .strides = @splat(@splat(0)),
        };

        rank: u64,
        dims: [rank_max]u64,
        strides: [operand_count][rank_max]i64,

        /// Adds an axis inside the ones already there.
        pub fn append(axes: *Self, extent: u64, strides: [operand_count]i64) void {
            if (extent == 1) return;
            if (axes.rank > 0) {
                const last = axes.rank - 1;
                var mergeable = true;
                for (0..operand_count) |o| {
                    const walked = strides[o] *% @as(i64, @intCast(extent));
                    if (axes.strides[o][last] != walked) mergeable = false;
                }
                if (mergeable) {
                    axes.dims[last] *= extent;
                    for (0..operand_count) |o| axes.strides[o][last] = strides[o];
                    return;
                }
            }
            assert(axes.rank < rank_max);
            axes.dims[axes.rank] = extent;
            for (0..operand_count) |o| axes.strides[o][axes.rank] = strides[o];
            axes.rank += 1;
        }

        pub fn count(axes: *const Self) u64 {
            var n: u64 = 1;
            for (axes.dims[0..axes.rank]) |d| n *= d;
            return n;
        }

        /// The stride of operand `o` along the innermost axis; 0 when there is no axis.
        pub inline fn innerStride(axes: *const Self, o: u32) i64 {
            return if (axes.rank == 0) 0 else axes.strides[o][axes.rank - 1];
        }

        /// Whether operand `o` lies dense in memory in the order of the axes.
        pub fn isDense(axes: *const Self, o: u32) bool {
            return axes.rank == 0 or (axes.rank == 1 and axes.strides[o][0] == 1);
        }

        /// A cursor at a row-major position below `count()`.
        pub fn cursor(axes: *const Self, position: u64) Cursor(operand_count) {
            var c: Cursor(operand_count) = .{
                .axes = axes,
                .index = undefined,
                .offsets = @splat(0),
            };
            var rest = position;
            var axis = axes.rank;
            while (axis > 0) {
                axis -= 1;
                const extent = @max(axes.dims[axis], 1);
                c.index[axis] = rest % extent;
                rest /= extent;
                for (0..operand_count) |o| {
                    c.offsets[o] += @as(i64, @intCast(c.index[axis])) * axes.strides[o][axis];
                }
            }
            return c;
        }
    };
}

/// A position in an index space and each operand's element offset there.
pub fn Cursor(comptime operand_count: u32) type {
    return struct {
        const Self = @This();
        axes: *const Axes(operand_count),
        index: [rank_max]u64,
        offsets: [operand_count]i64,

        /// How many positions from here on lie on the same innermost line.
        pub inline fn run(c: *const Self) u64 {
            if (c.axes.rank == 0) return 1;
            return c.axes.dims[c.axes.rank - 1] - c.index[c.axes.rank - 1];
        }

        /// Moves `n` positions on, `n <= run()`.
        pub inline fn advance(c: *Self, n: u64) void {
            if (c.axes.rank == 0) return;
            const last = c.axes.rank - 1;
            c.index[last] += n;
            inline for (0..operand_count) |o| {
                c.offsets[o] += @as(i64, @intCast(n)) * c.axes.strides[o][last];
            }
            if (c.index[last] == c.axes.dims[last]) c.carry();
        }

        fn carry(c: *Self) void {
            var axis = c.axes.rank - 1;
            while (axis > 0 and c.index[axis] == c.axes.dims[axis]) {
                const extent: i64 = @intCast(c.axes.dims[axis]);
                c.index[axis] = 0;
                c.index[axis - 1] += 1;
                for (0..operand_count) |o| {
                    c.offsets[o] += c.axes.strides[o][axis - 1] - extent * c.axes.strides[o][axis];
                }
                axis -= 1;
            }
        }
    };
}

/// The axes of one operand in its own order.
pub fn axesOf(operand: *const kernel_abi.Operand) Axes(1) {
    var axes: Axes(1) = .empty;
    for (operand.dims[0..operand.rank], operand.strides[0..operand.rank]) |extent, stride| {
        axes.append(extent, .{stride});
    }
    return axes;
}

/// The unsigned integer that moves elements of `size` bytes.
pub fn Unit(comptime size: u8) type {
    return @Int(.unsigned, @as(u16, size) * 8);
}

/// Copies `n` elements from a line of stride `stride` to dense memory.
pub inline fn gatherLine(comptime T: type, dst: [*]T, src: [*]const T, stride: i64, n: u64) void {
    if (stride == 1) {
        @memcpy(dst[0..n], src[0..n]);
    } else if (stride == 0) {
        @memset(dst[0..n], src[0]);
    } else {
        const done = if (stride == 2) gatherEven(T, dst, src, n) else 0;
        var offset: i64 = @as(i64, @intCast(done)) * stride;
        for (done..n) |i| {
            dst[i] = at(T, src, offset)[0];
            offset += stride;
        }
    }
}

/// Every second element, vector by vector; returns how many of the `n` were copied. The element
/// behind the last one is not read: it need not exist.
fn gatherEven(comptime T: type, dst: [*]T, src: [*]const T, n: u64) u64 {
    const width = 32 / @sizeOf(T);
    const even = std.simd.iota(i32, width) * @as(@Vector(width, i32), @splat(2));
    var i: u64 = 0;
    while (i + width < n) : (i += width) {
        const both: @Vector(2 * width, T) = src[2 * i ..][0 .. 2 * width].*;
        dst[i..][0..width].* = @shuffle(T, both, undefined, even);
    }
    return i;
}

/// `gatherLine` of elements of `size` bytes.
pub fn gatherLineOf(size: u64, dst: [*]u8, src: [*]const u8, stride: i64, n: u64) void {
    switch (size) {
        inline 1, 2, 4, 8 => |bytes| {
            const T = Unit(bytes);
            gatherLine(T, @ptrCast(@alignCast(dst)), @ptrCast(@alignCast(src)), stride, n);
        },
        else => unreachable,
    }
}

/// Copies the next `n` elements of `size` bytes under a cursor to dense memory and moves it on.
pub fn gatherRun(size: u64, dst: [*]u8, base: [*]const u8, cursor: *Cursor(1), n: u64) void {
    switch (size) {
        inline 1, 2, 4, 8 => |bytes| {
            const T = Unit(bytes);
            const to: [*]T = @ptrCast(@alignCast(dst));
            const from: [*]const T = @ptrCast(@alignCast(base));
            const stride = cursor.axes.innerStride(0);
            var done: u64 = 0;
            while (done < n) {
                const run = @min(cursor.run(), n - done);
                gatherLine(T, to + done, at(T, from, cursor.offsets[0]), stride, run);
                cursor.advance(run);
                done += run;
            }
        },
        else => unreachable,
    }
}

test "axes merge, and a cursor visits every offset in order" {
    var axes: Axes(1) = .empty;
    axes.append(2, .{12});
    axes.append(1, .{77});
    axes.append(3, .{4});
    axes.append(4, .{1});
    try std.testing.expectEqual(@as(u64, 1), axes.rank);
    try std.testing.expect(axes.isDense(0));

    var turned: Axes(2) = .empty;
    turned.append(3, .{ 1, 8 });
    turned.append(2, .{ -3, 4 });
    turned.append(4, .{ 6, 1 });
    try std.testing.expectEqual(@as(u64, 3), turned.rank);
    var c = turned.cursor(0);
    for (0..24) |position| {
        const i: i64 = @intCast(position / 8);
        const j: i64 = @intCast(position / 4 % 2);
        const k: i64 = @intCast(position % 4);
        try std.testing.expectEqual(i - 3 * j + 6 * k, c.offsets[0]);
        try std.testing.expectEqual(8 * i + 4 * j + k, c.offsets[1]);
        try std.testing.expectEqual(c.offsets, turned.cursor(position).offsets);
        c.advance(1);
    }
}

test "gather reads any layout" {
    const source = [_]u16{ 0, 1, 2, 3, 4, 5 };
    var axes: Axes(1) = .empty;
    axes.append(3, .{1});
    axes.append(2, .{3});
    var out: [4]u16 = undefined;
    var cursor = axes.cursor(1);
    gatherRun(2, @ptrCast(&out), @ptrCast(&source), &cursor, 4);
    try std.testing.expectEqualSlices(u16, &.{ 3, 1, 4, 2 }, &out);
    var back: Axes(1) = .empty;
    back.append(6, .{-1});
    var reverse = back.cursor(0);
    gatherRun(2, @ptrCast(&out), @ptrCast(source[5..]), &reverse, 4);
    try std.testing.expectEqualSlices(u16, &.{ 5, 4, 3, 2 }, &out);
    var long: [99]u64 = undefined;
    for (&long, 0..) |*x, i| x.* = i;
    var halves: [50]u64 = undefined;
    gatherLineOf(8, @ptrCast(&halves), @ptrCast(&long), 2, 50);
    for (halves, 0..) |x, i| try std.testing.expectEqual(2 * i, x);
}
