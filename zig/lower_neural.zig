//! Lowering of the neural opcodes: one kernel each, most of them on dense operands. Softmax, norms
//! and the gradient of cross entropy go through a row vector by vector, each read before it is
//! written, so their results may take the place of their first operand.
const std = @import("std");
const attention = @import("cpu/attention.zig");
const attention_grad = @import("cpu/attention_grad.zig");
const cross_entropy = @import("cpu/cross_entropy.zig");
const ir = @import("ir.zig");
const lowering = @import("lower.zig");
const norm = @import("cpu/norm.zig");
const softmax = @import("cpu/softmax.zig");
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;

pub fn lowerSoftmax(l: *Lowering, kind: softmax.Op) Error!void {
    const x = try l.denseRef(l.operand(0));
    const shape = l.denseShape(l.operand(0));
    const geometry = softmax.plan(kind, &shape, @intCast(l.attr("axis")));
    const options: lowering.Options = .{ .in_place = 1 };
    try l.emitStruct(.softmax, &geometry, &.{try l.define(l.result(0))}, &.{x}, options);
}

pub fn lowerNorm(l: *Lowering, kind: norm.Op) Error!void {
    const shape = l.denseShape(l.operand(0));
    const geometry = norm.plan(kind, &shape, l.attr("eps"));
    const operands = try denseOperands(l);
    const options: lowering.Options = .{ .in_place = Lowering.overFirst(operands) };
    try l.emitStruct(.norm, &geometry, &.{try l.define(l.result(0))}, operands, options);
}

pub fn lowerCrossEntropy(l: *Lowering, kind: cross_entropy.Op) Error!void {
    const logits = l.denseShape(l.operand(0));
    const labels = l.denseShape(l.operand(1));
    const geometry = cross_entropy.plan(kind, &logits, &labels, l.attr("ignore_index"));
    const operands = try denseOperands(l);
    const options: lowering.Options = .{
        .may_fail = true,
        .in_place = if (kind == .gradient) Lowering.overFirst(operands) else 0,
    };
    try l.emitStruct(.cross_entropy, &geometry, &.{try l.define(l.result(0))}, operands, options);
}

/// All operands of the instruction, copied where they are not dense.
fn denseOperands(l: *Lowering) Error![]const Ref {
    const values = l.program.operandsOf(l.origin);
    const refs = try l.gpa.alloc(Ref, values.len);
    for (refs, values) |*r, v| r.* = try l.denseRef(v);
    return refs;
}

fn attentionAttributes(l: *const Lowering) attention.Attributes {
    return .{
        .scale = l.attr("scale"),
        .causal = l.attr("causal"),
        .window = @intCast(l.attr("window")),
    };
}

pub fn lowerAttention(l: *Lowering) Error!void {
    const q = l.shape(l.operand(0));
    const k = l.shape(l.operand(1));
    const v = l.shape(l.operand(2));
    const operands = try refsOfOperands(l);
    const mask = if (operands.len > 3) l.shape(l.operand(3)) else null;
    const geometry = attention.plan(q, k, v, mask, attentionAttributes(l), l.isa);
    const results: []const Ref = &.{ try l.define(l.result(0)), try l.define(l.result(1)) };
    try l.emitStruct(.attention, &geometry, results, operands, .{});
}

pub fn lowerAttentionGrad(l: *Lowering) Error!void {
    const q = l.shape(l.operand(0));
    const k = l.shape(l.operand(1));
    const v = l.shape(l.operand(2));
    const out = l.shape(l.operand(3));
    const lse = l.shape(l.operand(4));
    const ct = l.shape(l.operand(5));
    const operands = try refsOfOperands(l);
    const mask = if (operands.len > 6) l.shape(l.operand(6)) else null;
    const attributes = attentionAttributes(l);
    const geometry = attention_grad.plan(q, k, v, out, lse, ct, mask, attributes, l.isa);
    const results: []const Ref = &.{
        try l.define(l.result(0)),
        try l.define(l.result(1)),
        try l.define(l.result(2)),
    };
    try l.emitStruct(.attention_grad, &geometry, results, operands, .{});
}

fn refsOfOperands(l: *Lowering) Error![]const Ref {
    const values = l.program.operandsOf(l.origin);
    const refs = try l.gpa.alloc(Ref, values.len);
    for (refs, values) |*r, v| r.* = l.ref(v);
    return refs;
}
