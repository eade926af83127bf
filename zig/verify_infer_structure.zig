//! Type rules of the structure group: shapes change, elements are moved, cast or reinterpreted.
const std = @import("std");
const assert = std.debug.assert;
const ir = @import("ir.zig");
const shape = @import("shape.zig");
const infer_file = @import("verify_infer.zig");
const Check = infer_file.Check;
const Error = infer_file.Error;

pub fn iota(c: *Check) Error!void {
    const element = c.attr("dtype");
    if (element == .bool) return c.fail(.attr_dtype);
    const dims = try c.dimsOf(c.attr("shape"));
    _ = try c.axisOf(c.attr("axis"), dims.len);
    try c.give(element, dims);
}

pub fn reshape(c: *Check) Error!void {
    const x = c.operands[0];
    const dims = try c.dimsOf(c.attr("shape"));
    const count = shape.elementCount(dims.slice()) orelse return c.fail(.shape_overflow);
    if (count != x.elementCount()) return c.fail(.element_counts_differ);
    try c.give(x.dtype, dims);
}

pub fn transpose(c: *Check) Error!void {
    const x = c.operands[0];
    const axes = c.attr("axes");
    if (axes.len != x.rank()) return c.fail(.not_a_permutation);
    _ = try c.axesOf(axes, x.rank());
    var dims: shape.Dims = .{};
    for (axes) |axis| dims.append(x.dims[@intCast(axis)]);
    try c.give(x.dtype, dims);
}

pub fn broadcastTo(c: *Check) Error!void {
    const x = c.operands[0];
    const dims = try c.dimsOf(c.attr("shape"));
    if (!shape.broadcastsTo(x.dims, dims.slice())) return c.fail(.not_broadcastable);
    try c.give(x.dtype, dims);
}

pub fn slice(c: *Check) Error!void {
    const x = c.operands[0];
    const starts = c.attr("starts");
    const sizes = c.attr("sizes");
    const steps = c.attr("steps");
    if (starts.len != x.rank() or sizes.len != x.rank() or steps.len != x.rank()) {
        return c.fail(.axes_count);
    }
    for (x.dims, starts, sizes, steps) |n, start, size, step| {
        try sliceAxis(c, n, start, size, step);
    }
    try c.giveLike(x.dtype, sizes);
}

/// One axis of extent n: the first and the last element exist.
fn sliceAxis(c: *Check, n: i64, start: i64, size: i64, step: i64) Error!void {
    if (size < 0) return c.fail(.negative_extent);
    if (step == 0) return c.fail(.slice_step);
    if (size == 0) {
        // Where Python's slices may begin that contain nothing.
        if (start < -1 or start > n) return c.fail(.slice_out_of_bounds);
        return;
    }
    if (start < 0 or start >= n) return c.fail(.slice_out_of_bounds);
    // With one element the step is never taken and may be anything.
    const span = std.math.mul(i64, size - 1, step) catch return c.fail(.slice_out_of_bounds);
    const last = std.math.add(i64, start, span) catch return c.fail(.slice_out_of_bounds);
    if (last < 0 or last >= n) return c.fail(.slice_out_of_bounds);
}

pub fn concatenate(c: *Check) Error!void {
    const first = c.operands[0];
    const axis = try c.axisOf(c.attr("axis"), first.rank());
    var dims: shape.Dims = .from(first.dims);
    for (c.operands[1..], 1..) |x, k| {
        try c.wantSameDType(k, 0);
        try c.wantRank(k, first.rank());
        for (x.dims, first.dims, 0..) |extent, expected, a| {
            if (a != axis and extent != expected) return c.failOperand(.operand_shape, k);
        }
        dims.buffer[axis] = std.math.add(i64, dims.buffer[axis], x.dims[axis]) catch
            return c.fail(.shape_overflow);
    }
    try c.give(first.dtype, dims);
}

pub fn pad(c: *Check) Error!void {
    const x = c.operands[0];
    const low = c.attr("low");
    const high = c.attr("high");
    const interior = c.attr("interior");
    if (low.len != x.rank() or high.len != x.rank() or interior.len != x.rank()) {
        return c.fail(.axes_count);
    }
    try c.wantSameDType(1, 0);
    try c.wantRank(1, 0);
    var dims: shape.Dims = .{};
    for (x.dims, low, high, interior) |n, before, after, between| {
        if (before < 0 or after < 0 or between < 0) return c.fail(.negative_amount);
        // Also where nothing lies between: positions are computed all the same.
        if (between > ir.element_count_max) return c.fail(.shape_overflow);
        const gaps = std.math.mul(i64, @max(n - 1, 0), between) catch
            return c.fail(.shape_overflow);
        var extent = std.math.add(i64, n, gaps) catch return c.fail(.shape_overflow);
        extent = std.math.add(i64, extent, before) catch return c.fail(.shape_overflow);
        extent = std.math.add(i64, extent, after) catch return c.fail(.shape_overflow);
        dims.append(extent);
    }
    try c.give(x.dtype, dims);
}

pub fn cast(c: *Check) Error!void {
    try c.giveLike(c.attr("dtype"), c.operands[0].dims);
}

pub fn bitcast(c: *Check) Error!void {
    const x = c.operands[0];
    const element = c.attr("dtype");
    if (element.bytes() != x.dtype.bytes()) return c.fail(.element_sizes_differ);
    if (element == .bool and x.dtype != .bool) return c.fail(.cast_to_bool);
    try c.giveLike(element, x.dims);
}

/// Attributes that say how windows lie on the listed axes, all of one length.
const Windows = struct {
    axes: []const i64,
    sizes: []const i64,
    strides: []const i64,
    dilations: []const i64,

    fn of(c: *Check, rank: usize) Error!Windows {
        const w: Windows = .{
            .axes = c.attr("axes"),
            .sizes = c.attr("sizes"),
            .strides = c.attr("strides"),
            .dilations = c.attr("dilations"),
        };
        const count = w.axes.len;
        if (w.sizes.len != count or w.strides.len != count or w.dilations.len != count) {
            return c.fail(.axes_count);
        }
        _ = try c.axesOf(w.axes, rank);
        for (w.sizes, w.strides, w.dilations) |size, stride, dilation| {
            const least = @min(size, stride, dilation);
            const most = @max(size, stride, dilation);
            if (least < 1 or most > ir.element_count_max) return c.fail(.bad_window);
        }
        return w;
    }

    /// How many windows fit into an axis of extent n.
    fn fitting(w: Windows, k: usize, n: i64) i64 {
        const reach = std.math.mul(i64, w.sizes[k] - 1, w.dilations[k]) catch return 0;
        if (n <= reach) return 0;
        return @divTrunc(n - reach - 1, w.strides[k]) + 1;
    }
};

pub fn window(c: *Check) Error!void {
    const x = c.operands[0];
    const w: Windows = try .of(c, x.rank());
    if (x.rank() + w.axes.len > shape.rank_max) return c.fail(.shape_overflow);
    var dims: shape.Dims = .from(x.dims);
    for (w.axes, w.sizes, 0..) |axis, size, k| {
        const extent = &dims.buffer[@intCast(axis)];
        extent.* = w.fitting(k, extent.*);
        dims.append(size);
    }
    try c.give(x.dtype, dims);
}

pub fn windowSum(c: *Check) Error!void {
    const x = c.operands[0];
    try c.wantDomain(0);
    const listed = c.attr("axes").len;
    if (listed > x.rank()) return c.failOperand(.operand_rank, 0);
    const rank = x.rank() - listed;
    const w: Windows = try .of(c, rank);
    const extents = c.attr("extents");
    if (extents.len != listed) return c.fail(.axes_count);
    var dims: shape.Dims = .from(x.dims[0..rank]);
    for (w.axes, extents, 0..) |axis, extent, k| {
        if (extent < 0) return c.fail(.negative_extent);
        if (x.dims[rank + k] != w.sizes[k]) return c.failOperand(.operand_shape, 0);
        const kept = &dims.buffer[@intCast(axis)];
        if (kept.* != w.fitting(k, extent)) return c.fail(.bad_window_extent);
        kept.* = extent;
    }
    try c.give(x.dtype, dims);
}
