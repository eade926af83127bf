//! Fetching tiles of operands that are not dense: gathering along merged axes, filling with a
//! constant, and counting along an axis. Generic over the size of an element, never over its
//! dtype.
const std = @import("std");
const assert = std.debug.assert;
const elementwise = @import("elementwise.zig");
const Axis = elementwise.Axis;

fn Unit(comptime bytes: u8) type {
    return @Int(.unsigned, 8 * @as(u16, bytes));
}

inline fn offsetPointer(base: [*]const u8, offset: i64, bytes: u8) [*]u8 {
    const distance = offset *% @as(i64, bytes);
    return @ptrFromInt(@intFromPtr(base) +% @as(usize, @bitCast(distance)));
}

/// Fills `total_bytes` of `to` with the element whose bits are the low ones of `bits`.
pub fn fill(bytes: u8, to: [*]u8, bits: u64, total_bytes: u64) void {
    switch (bytes) {
        inline 1, 2, 4, 8 => |size| {
            const elements: [*]Unit(size) = @ptrCast(@alignCast(to));
            @memset(elements[0 .. total_bytes / size], @truncate(bits));
        },
        else => unreachable,
    }
}

/// `to[i] = (start + i) / inside % extent` as int64.
pub fn count(to: [*]u8, axis: Axis, start: u64, length: u64) void {
    const out: [*]i64 = @ptrCast(@alignCast(to));
    const inside: u64 = @intCast(axis.stride);
    var value = start / inside % axis.extent;
    var left = inside - start % inside;
    for (out[0..length]) |*element| {
        element.* = @intCast(value);
        left -= 1;
        if (left == 0) {
            left = inside;
            value += 1;
            if (value == axis.extent) value = 0;
        }
    }
}

/// Position in an index space: the index on each axis and the offset of that element.
const Cursor = struct {
    axes: []const Axis,
    index: [16]u64,
    offset: i64,

    fn init(axes: []const Axis, linear: u64) Cursor {
        assert(axes.len >= 1 and axes.len <= 16);
        var c: Cursor = .{ .axes = axes, .index = undefined, .offset = 0 };
        var rest = linear;
        var k = axes.len;
        while (k > 1) {
            k -= 1;
            c.index[k] = rest % axes[k].extent;
            rest /= axes[k].extent;
            c.offset += @as(i64, @intCast(c.index[k])) * axes[k].stride;
        }
        c.index[0] = rest;
        c.offset += @as(i64, @intCast(rest)) * axes[0].stride;
        return c;
    }

    /// Elements left on the innermost axis.
    fn run(c: *const Cursor) u64 {
        const last = c.axes.len - 1;
        return c.axes[last].extent - c.index[last];
    }

    /// Moves past the end of the innermost run.
    fn nextRow(c: *Cursor) void {
        var k = c.axes.len - 1;
        c.offset -= @as(i64, @intCast(c.index[k])) * c.axes[k].stride;
        c.index[k] = 0;
        while (k > 0) {
            k -= 1;
            c.index[k] += 1;
            c.offset += c.axes[k].stride;
            if (c.index[k] < c.axes[k].extent or k == 0) return;
            c.offset -= @as(i64, @intCast(c.axes[k].extent)) * c.axes[k].stride;
            c.index[k] = 0;
        }
    }
};

/// Elements [start, start + length) of a strided operand, densely to `to`.
pub fn gather(
    bytes: u8,
    to: [*]u8,
    base: [*]const u8,
    axes: []const Axis,
    start: u64,
    length: u64,
) void {
    switch (bytes) {
        inline 1, 2, 4, 8 => |size| gatherUnits(
            Unit(size),
            @ptrCast(@alignCast(to)),
            base,
            axes,
            start,
            length,
        ),
        else => unreachable,
    }
}

fn gatherUnits(
    comptime T: type,
    to: [*]T,
    base: [*]const u8,
    axes: []const Axis,
    start: u64,
    length: u64,
) void {
    if (axes.len == 0) {
        const only: *const T = @ptrCast(@alignCast(base));
        @memset(to[0..length], only.*);
        return;
    }
    var cursor: Cursor = .init(axes, start);
    const stride = axes[axes.len - 1].stride;
    var done: u64 = 0;
    while (true) {
        const n = @min(cursor.run(), length - done);
        const from: [*]const T = @ptrCast(
            @alignCast(offsetPointer(base, cursor.offset, @sizeOf(T))),
        );
        moveRow(T, to + done, from, stride, n);
        done += n;
        if (done == length) return;
        cursor.nextRow();
    }
}

inline fn moveRow(comptime T: type, to: [*]T, from: [*]const T, stride: i64, n: u64) void {
    if (stride == 1) {
        // Short rows are not worth a call.
        if (n < 16) {
            for (0..n) |i| to[i] = from[i];
        } else {
            @memcpy(to[0..n], from[0..n]);
        }
    } else if (stride == 0) {
        const value = from[0];
        if (n < 16) {
            for (0..n) |i| to[i] = value;
        } else {
            @memset(to[0..n], value);
        }
    } else {
        const step: usize = @bitCast(stride *% @sizeOf(T));
        var address = @intFromPtr(from);
        for (0..n) |i| {
            to[i] = @as(*const T, @ptrFromInt(address)).*;
            address +%= step;
        }
    }
}

/// The address of the tile if it lies densely in memory, else null.
pub fn inPlace(bytes: u8, base: [*]const u8, axes: []const Axis, start: u64, length: u64) ?[*]u8 {
    if (axes.len == 0 or axes[axes.len - 1].stride != 1) return null;
    const cursor: Cursor = .init(axes, start);
    if (cursor.run() < length) return null;
    return offsetPointer(base, cursor.offset, bytes);
}

test "gather walks negative, zero and unit strides" {
    var source: [24]u16 = undefined;
    for (&source, 0..) |*s, i| s.* = @intCast(i);
    // [2, 3, 4] of a [4, 6] array read backwards on the second axis, the first axis repeated.
    const axes = [_]Axis{
        .{ .extent = 2, .stride = 0 },
        .{ .extent = 3, .stride = -6 },
        .{ .extent = 4, .stride = 1 },
    };
    var out: [24]u16 = @splat(0xffff);
    const base: [*]const u8 = @ptrCast(&source[12]);
    gather(2, @ptrCast(&out), base, &axes, 5, 14);
    for (0..14) |i| {
        const linear = i + 5;
        const expected = 12 - linear / 4 % 3 * 6 + linear % 4;
        try std.testing.expectEqual(@as(u16, @intCast(expected)), out[i]);
    }
    try std.testing.expectEqual(@as(u16, 0xffff), out[14]);
}

test "a counter counts its axis" {
    var out: [10]i64 = undefined;
    count(@ptrCast(&out), .{ .extent = 3, .stride = 2 }, 3, 10);
    try std.testing.expectEqualSlices(i64, &.{ 1, 2, 2, 0, 0, 1, 1, 2, 2, 0 }, &out);
}
