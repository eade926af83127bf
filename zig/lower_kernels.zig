//! Lowering of single instructions: views become views, everything else asks its kernel family for a
//! geometry. One short function per family; the exhaustive switch names them all.
const std = @import("std");
const assert = std.debug.assert;
const dot = @import("cpu/dot.zig");
const elementwise_plan = @import("cpu/elementwise_plan.zig");
const ir = @import("ir.zig");
const lowering = @import("lower.zig");
const op = @import("op.zig");
const reduce = @import("cpu/reduce.zig");
const regions = @import("lower_region.zig");
const softmax = @import("cpu/softmax.zig");
const views = @import("lower_view.zig");
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;
const ValueId = ir.ValueId;

/// Lowers the instruction `l.origin`.
pub fn lowerInstruction(l: *Lowering) Error!void {
    const code = l.program.code(l.origin);
    switch (code) {
        .reshape, .transpose, .broadcast_to, .slice, .bitcast, .barrier => return lowerView(l, code),
        .reduce_sum => return lowerReduce(l, .sum),
        .reduce_prod => return lowerReduce(l, .prod),
        .reduce_max => return lowerReduce(l, .max),
        .reduce_min => return lowerReduce(l, .min),
        .dot_general => return lowerDot(l),
        .softmax => return lowerSoftmax(l, .softmax),
        .log_softmax => return lowerSoftmax(l, .log_softmax),
        else => return l.unsupported("{s}: no kernel", .{code.info().name}),
    }
}

/// Writes the elements of a value, whatever its view, densely to `to`.
pub fn copy(l: *Lowering, v: ValueId, to: Ref) Error!void {
    const t = l.typeOf(v);
    var extents: [ir.rank_max]u64 = undefined;
    for (t.dims, extents[0..t.dims.len]) |d, *extent| extent.* = @intCast(d);
    const geometry = elementwise_plan.planCopy(l.shape(v), extents[0..t.dims.len]) catch |e| switch (e) {
        error.RegionFull => return error.OutOfMemory, // one load and one store always fit
    };
    try l.emitStruct(.elementwise, &geometry, &.{to}, &.{l.ref(v)}, .{});
}

fn lowerView(l: *Lowering, code: op.Code) Error!void {
    if (code == .barrier) {
        for (l.program.operandsOf(l.origin), 0..) |v, k| l.values[l.result(k).index()] = l.view(v);
        return;
    }
    const x = l.operand(0);
    const y = l.result(0);
    const from = l.typeOf(x).dims;
    const to = l.typeOf(y).dims;
    const view = l.view(x);
    l.values[y.index()] = switch (code) {
        .bitcast => view,
        .transpose => try views.transpose(l.gpa, view, from, l.attr("axes")),
        .broadcast_to => try views.broadcast(l.gpa, view, from, to),
        .slice => try views.slice(l.gpa, view, from, l.attr("starts"), to, l.attr("steps")),
        .reshape => try views.reshape(l.gpa, view, from, to) orelse try l.dense(x),
        else => unreachable,
    };
}

fn lowerReduce(l: *Lowering, kind: reduce.Op) Error!void {
    const x = l.operand(0);
    const shape = l.shape(x);
    const geometry = reduce.plan(kind, &shape, axisMask(l.attr("axes")));
    try l.emitStruct(.reduce, &geometry, &.{try l.define(l.result(0))}, &.{l.ref(x)}, .{});
}

fn axisMask(axes: []const i64) u32 {
    var mask: u32 = 0;
    for (axes) |axis| mask |= @as(u32, 1) << @intCast(axis);
    return mask;
}

fn lowerDot(l: *Lowering) Error!void {
    const lhs = l.operand(0);
    const rhs = l.operand(1);
    const geometry = dot.plan(l.shape(lhs), l.shape(rhs), .{
        .lhs_contract = l.attr("lhs_contract"),
        .rhs_contract = l.attr("rhs_contract"),
        .lhs_batch = l.attr("lhs_batch"),
        .rhs_batch = l.attr("rhs_batch"),
    }, l.isa);
    const result = try l.define(l.result(0));
    try l.emitStruct(.dot, &geometry, &.{result}, &.{ l.ref(lhs), l.ref(rhs) }, .{});
}

fn lowerSoftmax(l: *Lowering, kind: softmax.Op) Error!void {
    const x = l.operand(0);
    const axis: u32 = @intCast(l.attr("axis"));
    const from = if (@hasDecl(softmax, "needs_dense_inputs")) try l.denseRef(x) else l.ref(x);
    const shape = l.denseShape(x);
    const geometry = softmax.plan(kind, &shape, axis);
    try l.emitStruct(.softmax, &geometry, &.{try l.define(l.result(0))}, &.{from}, .{});
}
