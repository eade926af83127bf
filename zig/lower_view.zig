//! Views: how a value lies in the memory of another. Reshape, transpose, slice, broadcast and
//! barrier make no instruction; they make a view. This file is the arithmetic of their strides.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const DType = @import("dtype.zig").DType;
const kernel_abi = @import("cpu/kernel_abi.zig");
const rank_max = kernel_abi.rank_max;

/// Where a value is. Offsets and strides in elements.
pub const View = struct {
    storage: u32,
    /// Element 0, from the start of the storage; never negative for a value with elements.
    offset: i64 = 0,
    /// Null: dense row-major.
    strides: ?[]const i64 = null,

    pub fn isDense(v: View) bool {
        return v.strides == null;
    }
};

pub const Strides = [rank_max]i64;

/// Row-major strides of a dense array.
pub fn denseStrides(dims: []const i64) Strides {
    var strides: Strides = undefined;
    var stride: i64 = 1;
    var axis = dims.len;
    while (axis > 0) {
        axis -= 1;
        strides[axis] = stride;
        stride *= dims[axis];
    }
    return strides;
}

pub fn stridesOf(view: View, dims: []const i64) Strides {
    const given = view.strides orelse return denseStrides(dims);
    var strides: Strides = undefined;
    @memcpy(strides[0..dims.len], given);
    return strides;
}

/// The strides to keep: null if they say dense. Axes of extent 1 have no say.
pub fn keep(gpa: Allocator, dims: []const i64, strides: []const i64) Allocator.Error!?[]const i64 {
    const dense = denseStrides(dims);
    for (dims, strides, dense[0..dims.len]) |extent, stride, expected| {
        if (extent == 0) return null;
        if (extent != 1 and stride != expected) break;
    } else return null;
    for (dims) |extent| if (extent == 0) return null;
    return try gpa.dupe(i64, strides);
}

/// The operand a kernel's `plan` is asked with.
pub fn operand(dtype: DType, dims: []const i64, view: View) kernel_abi.Operand {
    var o: kernel_abi.Operand = .{ .dtype = dtype, .rank = @intCast(dims.len) };
    for (dims, 0..) |extent, axis| o.dims[axis] = @intCast(extent);
    o.strides = stridesOf(view, dims);
    return o;
}

pub fn transpose(
    gpa: Allocator,
    view: View,
    dims: []const i64,
    axes: []const i64,
) Allocator.Error!View {
    assert(dims.len == axes.len);
    const from = stridesOf(view, dims);
    var strides: Strides = undefined;
    var to_dims: Strides = undefined;
    for (axes, 0..) |axis, i| {
        strides[i] = from[@intCast(axis)];
        to_dims[i] = dims[@intCast(axis)];
    }
    const kept = try keep(gpa, to_dims[0..axes.len], strides[0..axes.len]);
    return .{ .storage = view.storage, .offset = view.offset, .strides = kept };
}

/// `dims` right-aligned against `to_dims`; new and stretched axes get stride 0.
pub fn broadcast(
    gpa: Allocator,
    view: View,
    dims: []const i64,
    to_dims: []const i64,
) Allocator.Error!View {
    const strides = broadcastStrides(view, dims, to_dims);
    const kept = try keep(gpa, to_dims, strides[0..to_dims.len]);
    return .{ .storage = view.storage, .offset = view.offset, .strides = kept };
}

pub fn broadcastStrides(view: View, dims: []const i64, to_dims: []const i64) Strides {
    assert(dims.len <= to_dims.len);
    const from = stridesOf(view, dims);
    const lead = to_dims.len - dims.len;
    var strides: Strides = @splat(0);
    for (dims, 0..) |extent, axis| {
        if (extent == to_dims[lead + axis] and extent != 1) strides[lead + axis] = from[axis];
    }
    return strides;
}

/// Element i of each axis is element start + i * step.
pub fn slice(
    gpa: Allocator,
    view: View,
    dims: []const i64,
    starts: []const i64,
    to_dims: []const i64,
    steps: []const i64,
) Allocator.Error!View {
    const from = stridesOf(view, dims);
    var strides: Strides = undefined;
    var offset = view.offset;
    var empty = false;
    for (dims, starts, steps, to_dims, 0..) |_, start, step, extent, axis| {
        if (extent == 0) empty = true;
        offset += start * from[axis];
        // The product of an axis with one element is never used and may be anything.
        strides[axis] = if (extent <= 1) from[axis] else from[axis] * step;
    }
    const kept = try keep(gpa, to_dims, strides[0..dims.len]);
    return .{ .storage = view.storage, .offset = if (empty) 0 else offset, .strides = kept };
}

/// Windows on some axes: their offsets are new axes at the end. Elements of overlapping windows are
/// the same memory.
pub fn window(
    gpa: Allocator,
    view: View,
    dims: []const i64,
    to_dims: []const i64,
    axes: []const i64,
    steps: []const i64,
    dilations: []const i64,
) Allocator.Error!View {
    assert(to_dims.len == dims.len + axes.len);
    var strides = stridesOf(view, dims);
    for (axes, steps, dilations, dims.len..) |axis_word, step, dilation, added| {
        const axis: usize = @intCast(axis_word);
        const stride = strides[axis];
        // Products of an axis with one element are never used.
        strides[added] = if (to_dims[added] <= 1) stride else stride * dilation;
        if (to_dims[axis] > 1) strides[axis] = stride * step;
    }
    const kept = try keep(gpa, to_dims, strides[0..to_dims.len]);
    return .{ .storage = view.storage, .offset = view.offset, .strides = kept };
}

/// The same elements in the same order under other extents; null if that takes a copy.
pub fn reshape(
    gpa: Allocator,
    view: View,
    dims: []const i64,
    to_dims: []const i64,
) Allocator.Error!?View {
    if (view.isDense()) return view;
    const from = stridesOf(view, dims);
    var strides: Strides = @splat(1);
    const fits = reshapeStrides(dims, from[0..dims.len], to_dims, strides[0..to_dims.len]);
    if (!fits) return null;
    const kept = try keep(gpa, to_dims, strides[0..to_dims.len]);
    return .{ .storage = view.storage, .offset = view.offset, .strides = kept };
}

/// Matches groups of old axes with groups of new axes of equal product; each old group must walk
/// memory with one step.
fn reshapeStrides(
    dims_all: []const i64,
    from_all: []const i64,
    to_dims: []const i64,
    strides: []i64,
) bool {
    var dims: Strides = undefined;
    var from: Strides = undefined;
    var rank: usize = 0;
    for (dims_all, from_all) |extent, stride| {
        if (extent == 0) return true;
        if (extent == 1) continue;
        dims[rank] = extent;
        from[rank] = stride;
        rank += 1;
    }
    var old: usize = 0;
    var new: usize = 0;
    while (old < rank and new < to_dims.len) {
        var old_end = old + 1;
        var new_end = new + 1;
        var old_count = dims[old];
        var new_count = to_dims[new];
        while (old_count != new_count) {
            if (old_count < new_count) {
                old_count *= dims[old_end];
                old_end += 1;
            } else {
                if (new_end == to_dims.len) return false;
                new_count *= to_dims[new_end];
                new_end += 1;
            }
        }
        for (old..old_end - 1) |axis| {
            if (from[axis] != from[axis + 1] * dims[axis + 1]) return false;
        }
        var axis = new_end;
        var stride = from[old_end - 1];
        while (axis > new) {
            axis -= 1;
            strides[axis] = stride;
            stride *= to_dims[axis];
        }
        old = old_end;
        new = new_end;
    }
    return true;
}

const testing = std.testing;

/// Reads all elements of a view of 0, 1, 2, ...
fn elements(view: View, dims: []const i64, out: []i64) []i64 {
    const strides = stridesOf(view, dims);
    var count: usize = 1;
    for (dims) |d| count *= @intCast(d);
    for (0..count) |flat| {
        var rest: i64 = @intCast(flat);
        var position = view.offset;
        var axis = dims.len;
        while (axis > 0) {
            axis -= 1;
            position += @mod(rest, dims[axis]) * strides[axis];
            rest = @divTrunc(rest, dims[axis]);
        }
        out[flat] = position;
    }
    return out[0..count];
}

test "views address the elements NumPy does" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const gpa = arena_state.allocator();
    var buffer: [64]i64 = undefined;
    const base: View = .{ .storage = 0 };
    const t = try transpose(gpa, base, &.{ 2, 3 }, &.{ 1, 0 });
    try testing.expectEqualSlices(i64, &.{ 0, 3, 1, 4, 2, 5 }, elements(t, &.{ 3, 2 }, &buffer));
    const s = try slice(gpa, base, &.{ 2, 3 }, &.{ 1, 2 }, &.{ 2, 2 }, &.{ -1, -2 });
    try testing.expectEqualSlices(i64, &.{ 5, 3, 2, 0 }, elements(s, &.{ 2, 2 }, &buffer));
    const b = try broadcast(gpa, base, &.{ 2, 1 }, &.{ 2, 2, 2 });
    const repeated = elements(b, &.{ 2, 2, 2 }, &buffer);
    try testing.expectEqualSlices(i64, &.{ 0, 0, 1, 1, 0, 0, 1, 1 }, repeated);
}

test "windows overlap in memory" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const gpa = arena_state.allocator();
    var buffer: [64]i64 = undefined;
    const base: View = .{ .storage = 0 };
    const line = try window(gpa, base, &.{5}, &.{ 3, 3 }, &.{0}, &.{1}, &.{1});
    const overlapping = [_]i64{ 0, 1, 2, 1, 2, 3, 2, 3, 4 };
    try testing.expectEqualSlices(i64, &overlapping, elements(line, &.{ 3, 3 }, &buffer));
    const apart = try window(gpa, base, &.{6}, &.{ 2, 3 }, &.{0}, &.{3}, &.{1});
    try testing.expect(apart.isDense());
    // Of [2, 5]: the last axis by 2, two elements 2 apart.
    const wide = try window(gpa, base, &.{ 2, 5 }, &.{ 2, 2, 2 }, &.{1}, &.{2}, &.{2});
    const dilated = [_]i64{ 0, 2, 2, 4, 5, 7, 7, 9 };
    try testing.expectEqualSlices(i64, &dilated, elements(wide, &.{ 2, 2, 2 }, &buffer));
    const large = std.math.maxInt(i64);
    const one = try window(gpa, base, &.{3}, &.{ 1, 1 }, &.{0}, &.{large}, &.{large});
    try testing.expectEqualSlices(i64, &.{0}, elements(one, &.{ 1, 1 }, &buffer));
}

test "a strided view is reshaped without a copy exactly when it can be" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const gpa = arena_state.allocator();
    const base: View = .{ .storage = 0 };
    const t = try transpose(gpa, base, &.{ 2, 3, 4 }, &.{ 1, 0, 2 });
    try testing.expect(try reshape(gpa, t, &.{ 3, 2, 4 }, &.{ 6, 4 }) == null);
    const split = (try reshape(gpa, t, &.{ 3, 2, 4 }, &.{ 3, 2, 2, 2 })).?;
    var before: [64]i64 = undefined;
    var after: [64]i64 = undefined;
    try testing.expectEqualSlices(
        i64,
        elements(t, &.{ 3, 2, 4 }, &before),
        elements(split, &.{ 3, 2, 2, 2 }, &after),
    );
    const rows = try slice(gpa, base, &.{ 4, 6 }, &.{ 1, 0 }, &.{ 2, 6 }, &.{ 1, 1 });
    try testing.expect(rows.isDense());
    try testing.expectEqual(@as(i64, 6), rows.offset);
    const ones = (try reshape(gpa, t, &.{ 3, 2, 4 }, &.{ 3, 1, 2, 4, 1 })).?;
    const spread = elements(ones, &.{ 3, 1, 2, 4, 1 }, &after);
    try testing.expectEqualSlices(i64, elements(t, &.{ 3, 2, 4 }, &before), spread);
}
