//! Lowering of the indexing opcodes. Scatters and updates may write over their first operand.
const std = @import("std");
const assert = std.debug.assert;
const check = @import("cpu/check.zig");
const gather = @import("cpu/indexing.zig");
const ir = @import("ir.zig");
const lowering = @import("lower.zig");
const Kernel = @import("cpu/kernel_table.zig").Kernel;
const op = @import("op.zig");
const scatter = @import("cpu/scatter.zig");
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;

fn modeOf(l: *const Lowering) gather.Mode {
    return switch (@as(ir.IndexMode, @fromBackingInt(@intCast(l.attr("mode"))))) {
        .raise => .checked,
        .clip => .clip,
        .fill => .fill,
        .strict => .strict,
    };
}

fn optionsOf(l: *const Lowering) lowering.Options {
    return .{ .may_fail = l.program.mayFail(l.origin) };
}

/// For opcodes whose result may have the memory of operand 0: that has to be dense and nobody
/// else's.
fn updateOptionsOf(l: *const Lowering) lowering.Options {
    var options = optionsOf(l);
    const operands: []const Ref = &.{
        l.ref(l.operand(0)),
        l.ref(l.operand(1)),
        l.ref(l.operand(2)),
    };
    if (l.view(l.operand(0)).isDense()) options.in_place = Lowering.overFirst(operands);
    return options;
}

pub fn lowerTake(l: *Lowering, code: op.Code) Error!void {
    const x = l.shape(l.operand(0));
    const positions = l.shape(l.operand(1));
    const axis: u32 = @intCast(l.attr("axis"));
    const geometry = if (code == .take)
        gather.planTake(&x, &positions, axis, @intCast(l.attr("batch_dims")), modeOf(l))
    else
        gather.planTakeAlongAxis(&x, &positions, axis, modeOf(l));
    const operands: []const Ref = &.{ l.ref(l.operand(0)), l.ref(l.operand(1)) };
    const result = try l.define(l.result(0));
    try l.emitStruct(.indexing, &geometry, &.{result}, operands, optionsOf(l));
}

pub fn lowerScatter(l: *Lowering, code: op.Code) Error!void {
    const x = l.shape(l.operand(0));
    const positions = l.shape(l.operand(1));
    const updates = l.shape(l.operand(2));
    const axis: u32 = @intCast(l.attr("axis"));
    const wanted: ir.ScatterKind = @fromBackingInt(@intCast(l.attr("kind")));
    const kind: scatter.Kind = switch (wanted) {
        .add => .add,
        .set => .set,
        .max => .max,
        .min => .min,
        .multiply => .multiply,
    };
    const mode = modeOf(l);
    const geometry = if (code == .scatter) plan: {
        const batch_dims: u32 = @intCast(l.attr("batch_dims"));
        break :plan scatter.planScatter(&x, &positions, &updates, axis, batch_dims, mode, kind);
    } else scatter.planScatterAlongAxis(&x, &positions, &updates, axis, mode, kind);
    try emitUpdate(l, .scatter, &geometry, updateOptionsOf(l));
}

pub fn lowerDynamicSlice(l: *Lowering) Error!void {
    const x = l.shape(l.operand(0));
    const starts = l.shape(l.operand(1));
    var sizes: [ir.rank_max]u64 = undefined;
    for (l.attr("sizes"), sizes[0..x.rank]) |size, *to| to.* = @intCast(size);
    const geometry = gather.planDynamicSlice(&x, &starts, sizes[0..x.rank]);
    const operands: []const Ref = &.{ l.ref(l.operand(0)), l.ref(l.operand(1)) };
    const result = try l.define(l.result(0));
    try l.emitStruct(.indexing, &geometry, &.{result}, operands, optionsOf(l));
}

pub fn lowerDynamicUpdateSlice(l: *Lowering) Error!void {
    const x = l.shape(l.operand(0));
    const update = l.shape(l.operand(1));
    const starts = l.shape(l.operand(2));
    // What can fail comes first and apart, so that the update may write over a donated operand.
    const window = check.planWindow(&x, &starts, update.dims[0..update.rank]);
    const operands: []const Ref = &.{l.ref(l.operand(2))};
    try l.emitStruct(.check, &window, &.{}, operands, .{ .may_fail = true });
    const geometry = gather.planDynamicUpdateSlice(&x, &update, &starts);
    var options = updateOptionsOf(l);
    options.may_fail = false;
    try emitUpdate(l, .indexing, &geometry, options);
}

/// A draft of three operands that may write over the first.
fn emitUpdate(
    l: *Lowering,
    kernel: Kernel,
    geometry: anytype,
    options: lowering.Options,
) Error!void {
    const operands: []const Ref = &.{
        l.ref(l.operand(0)),
        l.ref(l.operand(1)),
        l.ref(l.operand(2)),
    };
    try l.emitStruct(kernel, geometry, &.{try l.define(l.result(0))}, operands, options);
}

pub fn lowerCheckIndex(l: *Lowering) Error!void {
    const positions = l.shape(l.operand(0));
    const extent: u64 = @intCast(l.attr("extent"));
    const axis: u32 = @intCast(l.attr("axis"));
    const geometry = gather.planCheckIndex(&positions, extent, axis, modeOf(l));
    const result = try l.define(l.result(0));
    const operands: []const Ref = &.{l.ref(l.operand(0))};
    try l.emitStruct(.indexing, &geometry, &.{result}, operands, optionsOf(l));
}
