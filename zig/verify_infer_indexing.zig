//! Type rules of the indexing group and of `check`.
const std = @import("std");
const assert = std.debug.assert;
const ir = @import("ir.zig");
const shape = @import("shape.zig");
const infer_file = @import("verify_infer.zig");
const Check = infer_file.Check;
const Error = infer_file.Error;

pub fn take(c: *Check) Error!void {
    try c.give(c.operands[0].dtype, try takeDims(c));
}

/// The shape of `take(x, index)`, which is also that of the updates of `scatter`:
/// x `[batch.., pre.., n, post..]`, index `[batch.., k..]` -> `[batch.., pre.., k.., post..]`.
fn takeDims(c: *Check) Error!shape.Dims {
    const x = c.operands[0];
    const index = c.operands[1];
    try c.wantInteger(1);
    const axis = try c.axisOf(c.attr("axis"), x.rank());
    const batch_dims = c.attr("batch_dims");
    if (batch_dims < 0 or batch_dims > axis or batch_dims > index.rank()) {
        return c.fail(.batch_dims_out_of_range);
    }
    const batch: usize = @intCast(batch_dims);
    for (x.dims[0..batch], index.dims[0..batch]) |a, b| {
        if (a != b) return c.failOperand(.operand_shape, 1);
    }
    try wantMode(c, x.dims[axis], index);
    if (x.rank() - 1 + index.rank() - batch > shape.rank_max) return c.fail(.shape_overflow);
    var dims: shape.Dims = .{};
    for (x.dims[0..axis]) |extent| dims.append(extent);
    for (index.dims[batch..]) |extent| dims.append(extent);
    for (x.dims[axis + 1 ..]) |extent| dims.append(extent);
    return dims;
}

/// The mode exists, and a clipped index into an axis of this extent has somewhere to go.
fn wantMode(c: *Check, extent: i64, index: ir.Type) Error!void {
    const mode = std.enums.fromInt(ir.IndexMode, c.attr("mode")) orelse return c.fail(.bad_mode);
    if (mode == .clip and extent == 0 and index.elementCount() != 0) return c.fail(.empty_axis);
}

pub fn takeAlongAxis(c: *Check) Error!void {
    try wantAlongAxis(c);
    try c.giveLike(c.operands[0].dtype, c.operands[1].dims);
}

fn wantAlongAxis(c: *Check) Error!void {
    const x = c.operands[0];
    const index = c.operands[1];
    try c.wantInteger(1);
    try c.wantRank(1, x.rank());
    const axis = try c.axisOf(c.attr("axis"), x.rank());
    for (x.dims, index.dims, 0..) |a, b, k| {
        if (k != axis and a != b) return c.failOperand(.operand_shape, 1);
    }
    try wantMode(c, x.dims[axis], index);
}

pub fn scatter(c: *Check) Error!void {
    const x = c.operands[0];
    try wantKind(c);
    const dims = try takeDims(c);
    try c.wantSameDType(2, 0);
    try c.wantDims(2, dims.slice());
    try c.giveLike(x.dtype, x.dims);
}

pub fn scatterAlongAxis(c: *Check) Error!void {
    const x = c.operands[0];
    try wantKind(c);
    try wantAlongAxis(c);
    try c.wantSameDType(2, 0);
    try c.wantDims(2, c.operands[1].dims);
    try c.giveLike(x.dtype, x.dims);
}

fn wantKind(c: *Check) Error!void {
    const kind = std.enums.fromInt(ir.ScatterKind, c.attr("kind")) orelse return c.fail(.bad_kind);
    const is_bool = c.operands[0].dtype == .bool;
    if (is_bool and (kind == .add or kind == .multiply)) return c.fail(.bad_kind);
}

pub fn dynamicSlice(c: *Check) Error!void {
    const x = c.operands[0];
    const sizes = c.attr("sizes");
    if (sizes.len != x.rank()) return c.fail(.axes_count);
    try wantStarts(c, 1);
    for (sizes, x.dims) |size, n| {
        if (size < 0) return c.fail(.negative_extent);
        if (size > n) return c.fail(.slice_out_of_bounds);
    }
    try c.giveLike(x.dtype, sizes);
}

pub fn dynamicUpdateSlice(c: *Check) Error!void {
    const x = c.operands[0];
    const update = c.operands[1];
    try c.wantSameDType(1, 0);
    try c.wantRank(1, x.rank());
    for (update.dims, x.dims) |size, n| {
        if (size > n) return c.failOperand(.operand_shape, 1);
    }
    try wantStarts(c, 2);
    try c.giveLike(x.dtype, x.dims);
}

/// One int64 for each axis of operand 0.
fn wantStarts(c: *Check, operand: usize) Error!void {
    try c.wantDType(operand, .i64);
    try c.wantDims(operand, &.{@intCast(c.operands[0].rank())});
}

pub fn checkIndex(c: *Check) Error!void {
    const index = c.operands[0];
    try c.wantInteger(0);
    const extent = c.attr("extent");
    if (extent < 0 or extent > ir.element_count_max) return c.fail(.bad_extent);
    if (c.attr("axis") < 0 or c.attr("axis") >= shape.rank_max) return c.fail(.axis_out_of_range);
    try wantMode(c, extent, index);
    try c.giveLike(.i64, index.dims);
}

pub fn check(c: *Check) Error!void {
    try c.wantDType(1, .bool);
    try c.wantRank(1, 0);
    try c.giveLike(c.operands[0].dtype, c.operands[0].dims);
}
