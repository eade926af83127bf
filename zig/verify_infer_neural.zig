//! Type rules of the random and neural groups.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("dtype.zig");
const ir = @import("ir.zig");
const shape = @import("shape.zig");
const infer_file = @import("verify_infer.zig");
const Check = infer_file.Check;
const Error = infer_file.Error;

const DType = dtype.DType;

/// Words of a key.
const key_words = 2;

/// The leading axes of a key operand uint32 `[batch.., 2]`.
fn keyBatch(c: *Check, operand: usize) Error![]const i64 {
    const key = c.operands[operand];
    try c.wantDType(operand, .u32);
    if (key.rank() == 0) return c.failOperand(.operand_rank, operand);
    const last = key.rank() - 1;
    if (key.dims[last] != key_words) return c.failOperand(.operand_shape, operand);
    return key.dims[0..last];
}

pub fn randomBits(c: *Check) Error!void {
    const batch = try keyBatch(c, 0);
    const form = std.enums.fromInt(ir.RandomForm, c.attr("form")) orelse return c.fail(.bad_form);
    const drawn = try c.dimsOf(c.attr("shape"));
    const pair_axes: usize = if (form == .u32_pair) 1 else 0;
    if (batch.len + drawn.len + pair_axes > shape.rank_max) return c.fail(.shape_overflow);
    var dims: shape.Dims = .from(batch);
    for (drawn.slice()) |extent| dims.append(extent);
    if (form == .u32_pair) dims.append(key_words);
    try c.give(if (form == .u64) .u64 else .u32, dims);
}

pub fn randomFoldIn(c: *Check) Error!void {
    const batch = try keyBatch(c, 0);
    try c.wantDType(1, .u32);
    try c.wantDims(1, batch);
    try c.giveLike(.u32, c.operands[0].dims);
}

pub fn softmax(c: *Check) Error!void {
    const x = c.operands[0];
    try c.wantDomain(0);
    _ = try c.axisOf(c.attr("axis"), x.rank());
    try c.giveLike(x.dtype, x.dims);
}

pub fn layerNorm(c: *Check) Error!void {
    try norm(c);
    try wantLastAxis(c, 2);
}

pub fn rmsNorm(c: *Check) Error!void {
    try norm(c);
}

fn norm(c: *Check) Error!void {
    const x = c.operands[0];
    try c.wantDomain(0);
    if (x.rank() == 0) return c.failOperand(.operand_rank, 0);
    try wantLastAxis(c, 1);
    const eps = c.attr("eps");
    if (!std.math.isFinite(eps) or eps < 0) return c.fail(.bad_float);
    try c.giveLike(x.dtype, x.dims);
}

/// The operand has the dtype of operand 0 and one element for each of its last axis.
fn wantLastAxis(c: *Check, operand: usize) Error!void {
    const x = c.operands[0];
    try c.wantSameDType(operand, 0);
    try c.wantDims(operand, x.dims[x.rank() - 1 ..]);
}

pub fn crossEntropy(c: *Check) Error!void {
    const rows = try wantLabels(c);
    try c.giveLike(c.operands[0].dtype, rows);
}

pub fn crossEntropyGrad(c: *Check) Error!void {
    const rows = try wantLabels(c);
    try c.wantSameDType(2, 0);
    try c.wantDims(2, rows);
    try c.giveLike(c.operands[0].dtype, c.operands[0].dims);
}

/// Logits `[.., C]` and integer labels `[..]`; returns the extents of the labels.
fn wantLabels(c: *Check) Error![]const i64 {
    const logits = c.operands[0];
    try c.wantDomain(0);
    if (logits.rank() == 0) return c.failOperand(.operand_rank, 0);
    const rows = logits.dims[0 .. logits.rank() - 1];
    try c.wantInteger(1);
    try c.wantDims(1, rows);
    return rows;
}

/// q `[B, H, L, D]`, k `[B, Hk, S, D]`, v `[B, Hk, S, Dv]`.
const Heads = struct { batch: i64, heads: i64, queries: i64, keys: i64, value_width: i64 };

pub fn attention(c: *Check) Error!void {
    const heads = try wantHeads(c);
    if (c.operands.len > 3) try wantMask(c, 3, heads);
    const element = c.operands[0].dtype;
    const rows = [_]i64{ heads.batch, heads.heads, heads.queries };
    try c.giveLike(element, &(rows ++ .{heads.value_width}));
    try c.giveLike(sumDType(element), &rows);
}

pub fn attentionGrad(c: *Check) Error!void {
    const heads = try wantHeads(c);
    const rows = [_]i64{ heads.batch, heads.heads, heads.queries };
    const out_dims = rows ++ .{heads.value_width};
    try c.wantSameDType(3, 0);
    try c.wantDims(3, &out_dims);
    try c.wantDType(4, sumDType(c.operands[0].dtype));
    try c.wantDims(4, &rows);
    try c.wantSameDType(5, 0);
    try c.wantDims(5, &out_dims);
    if (c.operands.len > 6) try wantMask(c, 6, heads);
    for (c.operands[0..3]) |x| try c.giveLike(x.dtype, x.dims);
}

/// The dtype that the log-sum-exp of rows of this dtype is kept in.
fn sumDType(element: DType) DType {
    return if (element == .f64) .f64 else .f32;
}

fn wantHeads(c: *Check) Error!Heads {
    try c.wantDomain(0);
    for (0..3) |k| {
        try c.wantSameDType(k, 0);
        try c.wantRank(k, 4);
    }
    const q = c.operands[0].dims;
    const k = c.operands[1].dims;
    const v = c.operands[2].dims;
    if (k[0] != q[0] or k[3] != q[3]) return c.failOperand(.operand_shape, 1);
    if (v[0] != k[0] or v[1] != k[1] or v[2] != k[2]) return c.failOperand(.operand_shape, 2);
    const is_multiple = if (k[1] == 0) q[1] == 0 else @rem(q[1], k[1]) == 0;
    if (!is_multiple) return c.fail(.heads_not_multiple);
    if (!std.math.isFinite(c.attr("scale"))) return c.fail(.bad_float);
    const window = c.attr("window");
    if (window < 0 or window > ir.element_count_max) return c.fail(.bad_window);
    return .{
        .batch = q[0],
        .heads = q[1],
        .queries = q[2],
        .keys = k[2],
        .value_width = v[3],
    };
}

/// A mask, bool or of the dtype of q, that stretches to `[B, H, L, S]`.
fn wantMask(c: *Check, operand: usize, heads: Heads) Error!void {
    const mask = c.operands[operand];
    if (mask.dtype != .bool) try c.wantSameDType(operand, 0);
    try c.wantRank(operand, 4);
    const full = [_]i64{ heads.batch, heads.heads, heads.queries, heads.keys };
    if (!shape.broadcastsTo(mask.dims, &full)) return c.failOperand(.operand_shape, operand);
}
