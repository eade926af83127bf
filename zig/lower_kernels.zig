//! Lowering of single instructions: views become views, everything else asks its kernel family for
//! a geometry. One short function per family; the exhaustive switch names them all.
const std = @import("std");
const assert = std.debug.assert;
const arg_reduce = @import("cpu/arg_reduce.zig");
const check = @import("cpu/check.zig");
const control = @import("lower_control.zig");
const dot = @import("cpu/dot.zig");
const elementwise_plan = @import("cpu/elementwise_plan.zig");
const ir = @import("ir.zig");
const kernel_abi = @import("cpu/kernel_abi.zig");
const lowering = @import("lower.zig");
const indexing = @import("lower_indexing.zig");
const linalg = @import("lower_linalg.zig");
const neural = @import("lower_neural.zig");
const op = @import("op.zig");
const random = @import("cpu/random.zig");
const reduce = @import("cpu/reduce.zig");
const scan_axis = @import("cpu/scan_axis.zig");
const search = @import("cpu/search.zig");
const sort = @import("cpu/sort.zig");
const structure = @import("cpu/structure.zig");
const views = @import("lower_view.zig");
const window_sum = @import("cpu/window_sum.zig");
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;
const ValueId = ir.ValueId;

/// Lowers the instruction `l.origin`.
pub fn lowerInstruction(l: *Lowering) Error!void {
    const code = l.program.code(l.origin);
    switch (code) {
        .reshape,
        .transpose,
        .broadcast_to,
        .slice,
        .bitcast,
        .barrier,
        .window,
        => return lowerView(l, code),
        .concatenate => return lowerConcatenate(l),
        .pad => return lowerPad(l),
        .window_sum => return lowerWindowSum(l),
        .reduce_sum => return lowerReduce(l, .sum),
        .reduce_prod => return lowerReduce(l, .prod),
        .reduce_max => return lowerReduce(l, .max),
        .reduce_min => return lowerReduce(l, .min),
        .dot_general => return lowerDot(l),
        .argmax => return lowerArgReduce(l, .argmax),
        .argmin => return lowerArgReduce(l, .argmin),
        .cumsum => return lowerScan(l, .sum),
        .cumprod => return lowerScan(l, .prod),
        .cummax => return lowerScan(l, .max),
        .cummin => return lowerScan(l, .min),
        .sort => return lowerSort(l),
        .searchsorted => return lowerSearch(l),
        .take, .take_along_axis => return indexing.lowerTake(l, code),
        .scatter, .scatter_along_axis => return indexing.lowerScatter(l, code),
        .dynamic_slice => return indexing.lowerDynamicSlice(l),
        .dynamic_update_slice => return indexing.lowerDynamicUpdateSlice(l),
        .check_index => return indexing.lowerCheckIndex(l),
        .check => return lowerCheck(l),
        .random_bits => return lowerRandomBits(l),
        .random_fold_in => return lowerFoldIn(l),
        .softmax => return neural.lowerSoftmax(l, .softmax),
        .log_softmax => return neural.lowerSoftmax(l, .log_softmax),
        .layer_norm => return neural.lowerNorm(l, .layer_norm),
        .rms_norm => return neural.lowerNorm(l, .rms_norm),
        .cross_entropy => return neural.lowerCrossEntropy(l, .loss),
        .cross_entropy_grad => return neural.lowerCrossEntropy(l, .gradient),
        .attention => return neural.lowerAttention(l),
        .attention_grad => return neural.lowerAttentionGrad(l),
        .lu => return linalg.lower(l, .lu),
        .triangular_solve => return linalg.lower(l, .triangular_solve),
        .cholesky => return linalg.lower(l, .cholesky),
        .qr => return linalg.lower(l, .qr),
        .eigh => return linalg.lower(l, .eigh),
        .svd => return linalg.lower(l, .svd),
        .@"switch" => return control.lowerSwitch(l),
        .@"while" => return control.lowerWhile(l),
        .scan => return control.lowerScan(l),
        .host_call => return control.lowerHostCall(l),
        // The rest is elementwise and was lowered as a region.
        else => return l.unsupported("{s}: no kernel", .{code.info().name}),
    }
}

/// Writes the elements of a value, whatever its view, densely to `to`.
pub fn copy(l: *Lowering, v: ValueId, to: Ref) Error!void {
    const t = l.typeOf(v);
    var extents: [ir.rank_max]u64 = undefined;
    for (t.dims, extents[0..t.dims.len]) |d, *extent| extent.* = @intCast(d);
    const dims = extents[0..t.dims.len];
    const geometry = elementwise_plan.planCopy(l.shape(v), dims) catch |e| switch (e) {
        error.RegionFull => return error.OutOfMemory, // one load and one store always fit
    };
    try l.emitStruct(.elementwise, &geometry, &.{to}, &.{l.ref(v)}, .{
        .copied_bytes = t.byteCount(),
    });
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
        .window => try views.window(
            l.gpa,
            view,
            from,
            to,
            l.attr("axes"),
            l.attr("strides"),
            l.attr("dilations"),
        ),
        else => unreachable,
    };
}

fn lowerConcatenate(l: *Lowering) Error!void {
    const values = l.program.operandsOf(l.origin);
    const shapes = try l.gpa.alloc(kernel_abi.Operand, values.len);
    const refs = try l.gpa.alloc(Ref, values.len);
    for (values, shapes, refs) |v, *shape, *r| {
        shape.* = l.shape(v);
        r.* = l.ref(v);
    }
    const bytes = structure.concatenateBytes(values.len);
    const geometry = try l.gpa.alignedAlloc(u8, .of(structure.Geometry), bytes);
    structure.planConcatenate(geometry, shapes, @intCast(l.attr("axis")));
    try l.emit(.structure, geometry, &.{try l.define(l.result(0))}, refs, .{});
}

fn lowerPad(l: *Lowering) Error!void {
    const x = l.operand(0);
    const shape = l.shape(x);
    const geometry = structure.planPad(&shape, l.attr("low"), l.attr("high"), l.attr("interior"));
    const operands: []const Ref = &.{ l.ref(x), l.ref(l.operand(1)) };
    try l.emitStruct(.structure, &geometry, &.{try l.define(l.result(0))}, operands, .{});
}

fn lowerWindowSum(l: *Lowering) Error!void {
    const x = l.operand(0);
    const shape = l.shape(x);
    const geometry = window_sum.plan(&shape, .{
        .axes = l.attr("axes"),
        .strides = l.attr("strides"),
        .dilations = l.attr("dilations"),
        .extents = l.attr("extents"),
    });
    try l.emitStruct(.window_sum, &geometry, &.{try l.define(l.result(0))}, &.{l.ref(x)}, .{});
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

fn lowerArgReduce(l: *Lowering, kind: arg_reduce.Op) Error!void {
    const x = l.operand(0);
    const shape = l.shape(x);
    const geometry = arg_reduce.plan(kind, &shape, @intCast(l.attr("axis")));
    try l.emitStruct(.arg_reduce, &geometry, &.{try l.define(l.result(0))}, &.{l.ref(x)}, .{});
}

fn lowerScan(l: *Lowering, kind: scan_axis.Op) Error!void {
    const x = l.operand(0);
    const shape = l.shape(x);
    const axis: u32 = @intCast(l.attr("axis"));
    const geometry = scan_axis.plan(kind, &shape, axis, l.attr("reverse"));
    try l.emitStruct(.scan_axis, &geometry, &.{try l.define(l.result(0))}, &.{l.ref(x)}, .{});
}

fn lowerSort(l: *Lowering) Error!void {
    const x = l.operand(0);
    const shape = l.shape(x);
    const axis: u32 = @intCast(l.attr("axis"));
    const geometry = sort.plan(&shape, axis, l.attr("descending"), @intCast(l.attr("count")));
    const results: []const Ref = &.{ try l.define(l.result(0)), try l.define(l.result(1)) };
    try l.emitStruct(.sort, &geometry, results, &.{l.ref(x)}, .{});
}

fn lowerSearch(l: *Lowering) Error!void {
    const rows = l.shape(l.operand(0));
    const values = l.shape(l.operand(1));
    const geometry = search.plan(&rows, &values, l.attr("right"));
    const operands: []const Ref = &.{ l.ref(l.operand(0)), l.ref(l.operand(1)) };
    try l.emitStruct(.search, &geometry, &.{try l.define(l.result(0))}, operands, .{});
}

/// The result is the memory of the operand; what can fail has no result.
fn lowerCheck(l: *Lowering) Error!void {
    const geometry = check.planCondition(l.attr("code"));
    l.values[l.result(0).index()] = l.view(l.operand(0));
    try l.emitStruct(.check, &geometry, &.{}, &.{l.ref(l.operand(1))}, .{ .may_fail = true });
}

fn lowerRandomBits(l: *Lowering) Error!void {
    const key = l.operand(0);
    const shape = l.shape(key);
    var count: u64 = 1;
    for (l.attr("shape")) |d| count *= @intCast(d);
    const form: ir.RandomForm = @fromBackingInt(@intCast(l.attr("form")));
    const geometry = random.plan(&shape, count, switch (form) {
        .u32 => .word,
        .u64 => .double_word,
        .u32_pair => .pair,
    });
    try l.emitStruct(.random, &geometry, &.{try l.define(l.result(0))}, &.{l.ref(key)}, .{});
}

fn lowerFoldIn(l: *Lowering) Error!void {
    const key = l.operand(0);
    const data = l.operand(1);
    const key_shape = l.shape(key);
    const data_shape = l.shape(data);
    const geometry = random.planFoldIn(&key_shape, &data_shape);
    const result = try l.define(l.result(0));
    try l.emitStruct(.random, &geometry, &.{result}, &.{ l.ref(key), l.ref(data) }, .{});
}
