//! Type rules of reductions, cumulative reductions, sorts and contractions.
const std = @import("std");
const assert = std.debug.assert;
const shape = @import("shape.zig");
const infer_file = @import("verify_infer.zig");
const Check = infer_file.Check;
const Error = infer_file.Error;

pub fn reduction(c: *Check) Error!void {
    const x = c.operands[0];
    try c.wantDomain(0);
    const removed = try c.axesOf(c.attr("axes"), x.rank());
    try c.give(x.dtype, without(x.dims, removed));
}

fn without(dims: []const i64, removed: shape.AxisSet) shape.Dims {
    var kept: shape.Dims = .{};
    for (dims, 0..) |extent, axis| {
        if (!removed.isSet(axis)) kept.append(extent);
    }
    return kept;
}

pub fn argReduction(c: *Check) Error!void {
    const x = c.operands[0];
    try c.wantDomain(0);
    const axis = try c.axisOf(c.attr("axis"), x.rank());
    var removed: shape.AxisSet = .empty;
    removed.set(axis);
    const dims = without(x.dims, removed);
    // No position can be the answer.
    if (x.dims[axis] == 0 and shape.elementCount(dims.slice()) != 0) return c.fail(.empty_axis);
    try c.give(.i64, dims);
}

pub fn cumulative(c: *Check) Error!void {
    const x = c.operands[0];
    try c.wantDomain(0);
    _ = try c.axisOf(c.attr("axis"), x.rank());
    try c.giveLike(x.dtype, x.dims);
}

/// The first `count` along the axis, and their positions.
pub fn sort(c: *Check) Error!void {
    const x = c.operands[0];
    const axis = try c.axisOf(c.attr("axis"), x.rank());
    const count = c.attr("count");
    if (count < 0 or count > x.dims[axis]) return c.fail(.bad_count);
    var dims: shape.Dims = .from(x.dims);
    dims.buffer[axis] = count;
    try c.give(x.dtype, dims);
    try c.give(.i64, dims);
}

/// rows `[batch.., n]`, values `[batch.., v..]` -> `[batch.., v..]`.
pub fn searchsorted(c: *Check) Error!void {
    const rows = c.operands[0];
    const values = c.operands[1];
    try c.wantSameDType(1, 0);
    if (rows.rank() == 0) return c.failOperand(.operand_rank, 0);
    const batch = rows.rank() - 1;
    if (values.rank() < batch) return c.failOperand(.operand_rank, 1);
    if (!std.mem.eql(i64, rows.dims[0..batch], values.dims[0..batch])) {
        return c.failOperand(.operand_shape, 1);
    }
    try c.giveLike(.i64, values.dims);
}

pub fn dotGeneral(c: *Check) Error!void {
    const lhs = c.operands[0];
    const rhs = c.operands[1];
    try c.wantDomain(0);
    try c.wantSameDType(1, 0);
    const lhs_batch = c.attr("lhs_batch");
    const rhs_batch = c.attr("rhs_batch");
    const lhs_contract = c.attr("lhs_contract");
    const rhs_contract = c.attr("rhs_contract");
    if (lhs_batch.len != rhs_batch.len) return c.fail(.axes_count);
    if (lhs_contract.len != rhs_contract.len) return c.fail(.axes_count);
    const lhs_used = try usedAxes(c, lhs_batch, lhs_contract, lhs.rank());
    const rhs_used = try usedAxes(c, rhs_batch, rhs_contract, rhs.rank());
    try wantEqualExtents(c, lhs_batch, rhs_batch);
    try wantEqualExtents(c, lhs_contract, rhs_contract);
    const lhs_free = lhs.rank() - lhs_used.count();
    const rhs_free = rhs.rank() - rhs_used.count();
    if (lhs_batch.len + lhs_free + rhs_free > shape.rank_max) return c.fail(.shape_overflow);
    var dims: shape.Dims = .{};
    for (lhs_batch) |axis| dims.append(lhs.dims[@intCast(axis)]);
    for (without(lhs.dims, lhs_used).slice()) |extent| dims.append(extent);
    for (without(rhs.dims, rhs_used).slice()) |extent| dims.append(extent);
    try c.give(lhs.dtype, dims);
}

/// The union of two lists of axes in which no axis comes twice.
fn usedAxes(c: *Check, batch: []const i64, contract: []const i64, rank: usize) Error!shape.AxisSet {
    const a = try c.axesOf(batch, rank);
    const b = try c.axesOf(contract, rank);
    if (a.intersectWith(b).count() != 0) return c.fail(.axis_repeated);
    return a.unionWith(b);
}

fn wantEqualExtents(c: *Check, lhs_axes: []const i64, rhs_axes: []const i64) Error!void {
    assert(lhs_axes.len == rhs_axes.len);
    for (lhs_axes, rhs_axes) |a, b| {
        if (c.operands[0].dims[@intCast(a)] != c.operands[1].dims[@intCast(b)]) {
            return c.failOperand(.operand_shape, 1);
        }
    }
}
