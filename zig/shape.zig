//! Shape arithmetic: broadcasting, element counts, axis lists. Extents are i64 and not negative,
//! ranks at most `ir.rank_max`; nothing here allocates.
const std = @import("std");
const assert = std.debug.assert;
const ir = @import("ir.zig");

pub const rank_max = ir.rank_max;

/// A set of axes, one bit each.
pub const AxisSet = std.StaticBitSet(rank_max);

/// Extents with their own storage.
pub const Dims = struct {
    buffer: [rank_max]i64 = undefined,
    len: usize = 0,

    pub fn from(dims: []const i64) Dims {
        var d: Dims = .{};
        for (dims) |extent| d.append(extent);
        return d;
    }

    pub inline fn slice(d: *const Dims) []const i64 {
        return d.buffer[0..d.len];
    }

    /// The caller knows that the rank stays within `rank_max`.
    pub inline fn append(d: *Dims, extent: i64) void {
        assert(d.len < rank_max);
        assert(extent >= 0);
        d.buffer[d.len] = extent;
        d.len += 1;
    }
};

/// Product of the extents, or null if it does not fit a u64. Overflow that a zero extent undoes is
/// still overflow: the extents are not those of a legal value.
pub fn elementCount(dims: []const i64) ?u64 {
    var n: u64 = 1;
    var is_empty = false;
    for (dims) |d| {
        if (d < 0) return null;
        if (d == 0) is_empty = true;
        n = std.math.mul(u64, n, @max(1, @as(u64, @intCast(d)))) catch return null;
    }
    return if (is_empty) 0 else n;
}

/// `accumulated` broadcast with `dims` (NumPy's rule: right aligned, 1 stretches); false if they
/// do not fit, and then `accumulated` is undefined.
pub fn broadcast(accumulated: *Dims, dims: []const i64) bool {
    assert(dims.len <= rank_max);
    if (dims.len > accumulated.len) {
        const grow = dims.len - accumulated.len;
        const old = accumulated.len;
        @memmove(accumulated.buffer[grow..][0..old], accumulated.buffer[0..old]);
        @memcpy(accumulated.buffer[0..grow], dims[0..grow]);
        accumulated.len = dims.len;
        return broadcastTail(accumulated, dims, old);
    }
    return broadcastTail(accumulated, dims, dims.len);
}

/// Broadcasts the last `count` axes of both.
fn broadcastTail(accumulated: *Dims, dims: []const i64, count: usize) bool {
    const target = accumulated.buffer[accumulated.len - count ..][0..count];
    for (target, dims[dims.len - count ..]) |*a, b| {
        if (a.* == b or b == 1) continue;
        if (a.* != 1) return false;
        a.* = b;
    }
    return true;
}

/// `dims` can be stretched to `target`.
pub fn broadcastsTo(dims: []const i64, target: []const i64) bool {
    if (dims.len > target.len) return false;
    for (dims, target[target.len - dims.len ..]) |from, to| {
        if (from != to and from != 1) return false;
    }
    return true;
}

test "broadcasting" {
    var d: Dims = .from(&.{ 3, 1 });
    try std.testing.expect(broadcast(&d, &.{ 2, 1, 4 }));
    try std.testing.expectEqualSlices(i64, &.{ 2, 3, 4 }, d.slice());
    d = .from(&.{ 2, 1, 4 });
    try std.testing.expect(broadcast(&d, &.{ 3, 1 }));
    try std.testing.expectEqualSlices(i64, &.{ 2, 3, 4 }, d.slice());
    d = .from(&.{});
    try std.testing.expect(broadcast(&d, &.{ 0, 5 }));
    try std.testing.expectEqualSlices(i64, &.{ 0, 5 }, d.slice());
    d = .from(&.{ 1, 5 });
    try std.testing.expect(broadcast(&d, &.{ 0, 1 }));
    try std.testing.expectEqualSlices(i64, &.{ 0, 5 }, d.slice());
    d = .from(&.{0});
    try std.testing.expect(!broadcast(&d, &.{2}));
    d = .from(&.{ 3, 2 });
    try std.testing.expect(!broadcast(&d, &.{3}));
    try std.testing.expect(broadcastsTo(&.{1}, &.{ 2, 0 }));
    try std.testing.expect(!broadcastsTo(&.{ 2, 2 }, &.{2}));
    try std.testing.expect(!broadcastsTo(&.{2}, &.{1}));
}

test "element counts" {
    try std.testing.expectEqual(@as(?u64, 1), elementCount(&.{}));
    try std.testing.expectEqual(@as(?u64, 0), elementCount(&.{ 3, 0 }));
    try std.testing.expectEqual(@as(?u64, null), elementCount(&.{ 1 << 40, 1 << 40 }));
    try std.testing.expectEqual(@as(?u64, null), elementCount(&.{-1}));
}
