//! Compiling: every allocation may fail, and the passes keep what a program means.
const std = @import("std");
const testing = std.testing;
const abi_types = @import("abi_types.zig");
const compile = @import("compile.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const plans = @import("plan.zig");
const wire_encode = @import("wire_encode.zig");
const Builder = ir.Builder;
const Control = @import("runtime/control.zig").Control;

fn compileOnce(gpa: std.mem.Allocator, bytes: []const u8, optimize: bool) !void {
    var control: Control = .{};
    var e: abi_types.Error = .{};
    var plan = try compile.compile(gpa, bytes, .{
        .optimize = optimize,
        .kernels = kernel_table.choose(),
        .control = &control,
    }, &e);
    plan.deinit();
}

const literal align(8) = @as([4]u8, @bitCast(@as(f32, 3)));

/// Two donated parameters, a product, a reduction, a literal expression and an update of each.
fn step(arena: std.mem.Allocator) !ir.Program {
    var b: Builder = .init(arena);
    const m = try b.internType(.f32, &.{ 4, 4 });
    const s = try b.internType(.f32, &.{});
    const ms = [_]ir.TypeId{m};
    const ss = [_]ir.TypeId{s};
    const w = try b.addInput(m, .{ .flags = .{ .donated = true } });
    const u = try b.addInput(m, .{ .flags = .{ .donated = true } });
    const x = try b.addInput(m, .{});
    const three = try b.addLiteral(s, &literal);
    const nine = try b.emit(.{
        .code = .multiply,
        .operands = &.{ three, three },
        .result_types = &ss,
    });
    const product = try b.emit(.{
        .code = .dot_general,
        .operands = &.{ x, w },
        .attrs = try ir_builder.attrWords(arena, .dot_general, .{
            .lhs_contract = &.{1},
            .rhs_contract = &.{0},
            .lhs_batch = &.{},
            .rhs_batch = &.{},
        }),
        .result_types = &ms,
    });
    const loss = try b.emit(.{
        .code = .reduce_sum,
        .operands = &.{product},
        .attrs = try ir_builder.attrWords(arena, .reduce_sum, .{ .axes = &.{ 0, 1 } }),
        .result_types = &ss,
    });
    const scaled = try b.emit(.{
        .code = .multiply,
        .operands = &.{ product, nine },
        .result_types = &ms,
    });
    const next_w = try b.emit(.{
        .code = .subtract,
        .operands = &.{ w, scaled },
        .result_types = &ms,
    });
    const next_u = try b.emit(.{ .code = .add, .operands = &.{ u, next_w }, .result_types = &ms });
    return b.finish(&.{
        .{ .value = loss },
        .{ .value = next_w, .alias = .at(0) },
        .{ .value = next_u, .alias = .at(1) },
    });
}

test "compile: every allocation may fail without a leak" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try step(arena_state.allocator());
    const bytes = try wire_encode.encode(arena_state.allocator(), &program);
    for ([_]bool{ true, false }) |optimize| {
        const arguments = .{ @as([]const u8, bytes), optimize };
        try testing.checkAllAllocationFailures(testing.allocator, compileOnce, arguments);
    }
}

test "compile: overwrites of donated inputs come last, literals are folded" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try step(arena_state.allocator());
    const bytes = try wire_encode.encode(arena_state.allocator(), &program);
    for ([_]bool{ true, false }) |optimize| {
        var control: Control = .{};
        var e: abi_types.Error = .{};
        var plan = try compile.compile(testing.allocator, bytes, .{
            .optimize = optimize,
            .kernels = kernel_table.choose(),
            .control = &control,
        }, &e);
        defer plan.deinit();
        try testing.expectEqual(@as(u32, 0), plan.outputs[1].alias);
        try testing.expectEqual(@as(u32, 1), plan.outputs[2].alias);
        try testing.expectEqual(plans.no_alias, plan.outputs[0].alias);
        // Optimised: product, loss, both updates as one; else each alone, the fold included.
        const expected: [2]u32 = if (optimize) .{ 3, 2 } else .{ 6, 4 };
        try testing.expectEqual(expected[0], @as(u32, @intCast(plan.instructions.len)));
        try testing.expectEqual(expected[1], plan.commit_point);
    }
}

test "compile: a cancelled control stops between passes" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try step(arena_state.allocator());
    const bytes = try wire_encode.encode(arena_state.allocator(), &program);
    var control: Control = .{};
    try testing.expect(control.cancel());
    var e: abi_types.Error = .{};
    try testing.expectError(error.Cancelled, compile.compile(testing.allocator, bytes, .{
        .kernels = kernel_table.choose(),
        .control = &control,
    }, &e));
}

/// `s = tanh(u) + exp(u)` goes into a product; later `tanh(u)` and `exp(u)` are read again.
fn activation(arena: std.mem.Allocator) !ir.Program {
    var b: Builder = .init(arena);
    const m = try b.internType(.f32, &.{ 8, 8 });
    const ms = [_]ir.TypeId{m};
    const attrs = try ir_builder.attrWords(arena, .dot_general, .{
        .lhs_contract = &.{1},
        .rhs_contract = &.{0},
        .lhs_batch = &.{},
        .rhs_batch = &.{},
    });
    const x = try b.addInput(m, .{});
    const w = try b.addInput(m, .{});
    const u = try b.emit(.{
        .code = .dot_general,
        .operands = &.{ x, w },
        .attrs = attrs,
        .result_types = &ms,
    });
    const t = try b.emit(.{ .code = .tanh, .operands = &.{u}, .result_types = &ms });
    const q = try b.emit(.{ .code = .exp, .operands = &.{u}, .result_types = &ms });
    const s = try b.emit(.{ .code = .add, .operands = &.{ t, q }, .result_types = &ms });
    const y = try b.emit(.{
        .code = .dot_general,
        .operands = &.{ s, w },
        .attrs = attrs,
        .result_types = &ms,
    });
    const yt = try b.emit(.{ .code = .multiply, .operands = &.{ y, t }, .result_types = &ms });
    const z = try b.emit(.{ .code = .multiply, .operands = &.{ yt, q }, .result_types = &ms });
    return b.finish(&.{.{ .value = z }});
}

test "compile: a region repeats what would cost more to keep" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try activation(arena_state.allocator());
    const bytes = try wire_encode.encode(arena_state.allocator(), &program);
    var control: Control = .{};
    var e: abi_types.Error = .{};
    var plan = try compile.compile(testing.allocator, bytes, .{
        .kernels = kernel_table.choose(),
        .control = &control,
    }, &e);
    defer plan.deinit();
    // dot, region, dot, region: the first region stores only the sum, the second reads u and y.
    try testing.expectEqual(@as(usize, 4), plan.instructions.len);
    try testing.expectEqual(@as(u32, 2), plan.instructions[1].pointer_count);
    try testing.expectEqual(@as(u32, 3), plan.instructions[3].pointer_count);
    try testing.expectEqual(@as(usize, 4), plan.regions[1].codes.len);
}
