//! Index arrays of any integer dtype as int64, wrapped, clipped or checked against an extent.
const std = @import("std");
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;

/// What happens to an index outside the axis.
pub const Mode = enum(u32) {
    /// Negative indices count from the end; anything else outside is an error.
    checked = 0,
    /// The nearest position; negative indices are clipped to 0, not counted from the end.
    clip = 1,
    /// Anything outside, negative indices too, is no position (`outside`).
    fill = 2,
    /// As `checked`, but nothing counts from the end: a negative index is an error too.
    strict = 3,
};

/// No position: take fills there, scatter drops.
pub const outside: i64 = -1;

/// Loads `n` indices `stride` elements apart. A uint64 beyond int64 becomes the largest int64,
/// which no extent reaches.
pub fn load(d: DType, to: [*]i64, from: [*]const u8, stride: i64, n: u64) void {
    switch (d) {
        inline .u8, .i8, .u16, .i16, .u32, .i32, .u64, .i64 => |e| {
            const source: [*]const Storage(e) = @ptrCast(@alignCast(from));
            var offset: i64 = 0;
            for (0..n) |i| {
                const x = view.at(Storage(e), source, offset)[0];
                to[i] = if (e == .u64) @intCast(@min(x, std.math.maxInt(i64))) else x;
                offset += stride;
            }
        },
        else => unreachable,
    }
}

/// The position that `index` means in `[0, extent)`, `outside` in `fill` mode, or null: an error.
/// An axis of extent 0 has nothing to clip to, so `clip` gives `outside` there.
pub inline fn resolve(index: i64, extent: i64, mode: Mode) ?i64 {
    switch (mode) {
        .clip => {
            if (extent == 0) return outside;
            return @max(0, @min(index, extent - 1));
        },
        .checked => {
            const wrapped = if (index < 0) index +% extent else index;
            return if (wrapped >= 0 and wrapped < extent) wrapped else null;
        },
        .fill => return if (index >= 0 and index < extent) index else outside,
        .strict => return if (index >= 0 and index < extent) index else null,
    }
}

/// Resolves `n` indices in place; false, with the status set, at the first that is an error.
pub fn resolveAll(
    indices: [*]i64,
    n: u64,
    extent: u64,
    axis: u32,
    mode: Mode,
    status: *kernel_abi.Status,
) bool {
    const limit: i64 = @intCast(extent);
    const W = 8;
    const V = @Vector(W, i64);
    const zero: V = @splat(0);
    const limits: V = @splat(limit);
    const wrap: V = if (mode == .checked) limits else zero;
    var i: u64 = 0;
    while ((mode == .checked or mode == .strict) and i + W <= n) : (i += W) {
        const v: V = indices[i..][0..W].*;
        const wrapped = @select(i64, v < zero, v +% wrap, v);
        if (@reduce(.Or, (wrapped < zero) | (wrapped >= limits))) break;
        indices[i..][0..W].* = wrapped;
    }
    for (indices[i..n]) |*index| {
        index.* = resolve(index.*, limit, mode) orelse {
            status.* = outOfBounds(index.*, axis, limit);
            return false;
        };
    }
    return true;
}

pub fn outOfBounds(value: i64, axis: u32, extent: i64) kernel_abi.Status {
    return .{ .fault = .index_out_of_bounds, .axis = axis, .value = value, .extent = extent };
}

test "indices wrap, clip, fill and fail" {
    try std.testing.expectEqual(@as(?i64, 4), resolve(-1, 5, .checked));
    try std.testing.expectEqual(@as(?i64, null), resolve(-6, 5, .checked));
    try std.testing.expectEqual(@as(?i64, null), resolve(5, 5, .checked));
    try std.testing.expectEqual(@as(?i64, 0), resolve(-6, 5, .clip));
    try std.testing.expectEqual(@as(?i64, 0), resolve(-1, 5, .clip));
    try std.testing.expectEqual(@as(?i64, 4), resolve(99, 5, .clip));
    try std.testing.expectEqual(@as(?i64, outside), resolve(99, 5, .fill));
    try std.testing.expectEqual(@as(?i64, outside), resolve(-2, 5, .fill));
    try std.testing.expectEqual(@as(?i64, outside), resolve(0, 0, .clip));
    try std.testing.expectEqual(@as(?i64, null), resolve(std.math.minInt(i64), 5, .checked));
    try std.testing.expectEqual(@as(?i64, null), resolve(-1, 5, .strict));
    try std.testing.expectEqual(@as(?i64, null), resolve(5, 5, .strict));
    try std.testing.expectEqual(@as(?i64, 4), resolve(4, 5, .strict));
    const wide = [_]u64{ 7, std.math.maxInt(u64) };
    var out: [2]i64 = undefined;
    load(.u64, &out, @ptrCast(&wide), 1, 2);
    try std.testing.expectEqualSlices(i64, &.{ 7, std.math.maxInt(i64) }, &out);
    var status: kernel_abi.Status = .{};
    try std.testing.expect(!resolveAll(&out, 2, 8, 3, .checked, &status));
    try std.testing.expectEqual(@as(u32, 3), status.axis);
    try std.testing.expectEqual(@as(i64, 8), status.extent);
    var row = [_]i64{ 0, 1, 2, 3, 4, 5, 6, 7, 0, -2 };
    try std.testing.expect(resolveAll(&row, 9, 8, 0, .strict, &status));
    try std.testing.expect(!resolveAll(&row, 10, 8, 0, .strict, &status));
    try std.testing.expectEqual(@as(i64, -2), status.value);
}
