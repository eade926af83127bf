//! Compiling programs with blocks: what leaves a loop, what is removed, what is written in place.
const std = @import("std");
const testing = std.testing;
const abi_types = @import("abi_types.zig");
const compile = @import("compile.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const plans = @import("plan.zig");
const wire_encode = @import("wire_encode.zig");
const Allocator = std.mem.Allocator;
const Builder = ir.Builder;
const Control = @import("runtime/control.zig").Control;
const Maker = @import("control_maker.zig").Maker;
const Program = ir.Program;
const attrWords = ir_builder.attrWords;

fn compiled(gpa: Allocator, program: *const Program, optimize: bool) !plans.Plan {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const bytes = try wire_encode.encode(arena_state.allocator(), program);
    return compileBytes(gpa, bytes, optimize);
}

fn compileBytes(gpa: Allocator, bytes: []const u8, optimize: bool) !plans.Plan {
    var control: Control = .{};
    var e: abi_types.Error = .{};
    return compile.compile(gpa, bytes, .{
        .optimize = optimize,
        .verify_passes = true,
        .kernels = kernel_table.choose(),
        .control = &control,
    }, &e);
}

fn compileOnce(gpa: Allocator, bytes: []const u8, optimize: bool) !void {
    var plan = try compileBytes(gpa, bytes, optimize);
    plan.deinit();
}

/// The only scan of a plan.
fn scanOf(plan: *const plans.Plan) *const plans.Scan {
    for (plan.controls) |*control| if (control.* == .scan) return &control.scan;
    @panic("no scan");
}

/// Two scans inside each other; the inner body adds w @ w + exp(w) to its carry, w captured.
fn invariant(arena: Allocator) !Program {
    const dims = [_]i64{ 4, 4 };
    var inner: Maker = .init(arena);
    const w = try inner.input(.f32, &dims);
    const c = try inner.input(.f32, &dims);
    const square = try inner.b.emit(.{
        .code = .dot_general,
        .operands = &.{ w, w },
        .attrs = try attrWords(arena, .dot_general, .{
            .lhs_contract = &.{1},
            .rhs_contract = &.{0},
            .lhs_batch = &.{},
            .rhs_batch = &.{},
        }),
        .result_types = &.{inner.b.typeId(w)},
    });
    const power = try inner.plain(.exp, &.{w}, w);
    const sum = try inner.plain(.add, &.{ square, power }, w);
    const next = try inner.plain(.add, &.{ c, sum }, c);
    var outer: Maker = .init(arena);
    const v = try outer.input(.f32, &dims);
    const d = try outer.input(.f32, &dims);
    const after = try outer.scan(&.{ v, d }, .{ .captures = 1, .length = 3 }, &.{d});
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{
        try inner.finish(&.{next}),
        try outer.finish(&.{after}),
    });
    const x = try m.input(.f32, &dims);
    const y = try m.input(.f32, &dims);
    const counts: Maker.Counts = .{ .body = 1, .captures = 1, .length = 5 };
    return m.finish(&.{try m.scan(&.{ x, y }, counts, &.{y})});
}

test "compile: what depends on captures alone leaves all loops" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try invariant(arena_state.allocator());
    var plan = try compiled(testing.allocator, &program, true);
    defer plan.deinit();
    // In front: the product, then exp and sum as one region. Inside: one addition.
    try testing.expectEqual(@as(usize, 3), plan.instructions.len);
    try testing.expectEqual(kernel_table.Kernel.dot, plan.instructions[0].kernel);
    try testing.expectEqual(@as(u32, 1), plan.instructions[0].block);
    try testing.expectEqual(@as(u32, 0), plan.instructions[0].origin);
    try testing.expectEqual(@as(usize, 1), plan.blocks[1].instructions.len);
    try testing.expectEqual(@as(usize, 1), plan.blocks[0].instructions.len);
    try testing.expectEqual(@as(u32, 3), plan.blocks[0].instructions[0].pointer_count);
    try testing.expectEqual(@as(u32, 1), scanOf(&plan).capture_count);
    var naive = try compiled(testing.allocator, &program, false);
    defer naive.deinit();
    try testing.expectEqual(@as(usize, 4), naive.blocks[0].instructions.len);
}

/// A scan of which only the second carry is used: carries a (feeds only itself), b, and k (handed
/// on as it is and added to b); stacks read: one for a, one for b; written: one of each.
fn wasteful(arena: Allocator) !Program {
    var body: Maker = .init(arena);
    const unused = try body.input(.f32, &.{2});
    const a = try body.input(.f32, &.{2});
    const b = try body.input(.f32, &.{2});
    const k = try body.input(.f32, &.{2});
    const x = try body.input(.f32, &.{2});
    const y = try body.input(.f32, &.{2});
    _ = unused;
    const ax = try body.plain(.multiply, &.{ a, x }, a);
    const by = try body.plain(.multiply, &.{ b, y }, b);
    const next = try body.plain(.add, &.{ by, k }, b);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{try body.finish(&.{ ax, next, k, ax, by })});
    const v = try m.input(.f32, &.{2});
    const s = try m.input(.f32, &.{ 4, 2 });
    const negated = try m.plain(.negative, &.{s}, s);
    const counts: Maker.Counts = .{ .captures = 1, .carries = 3, .length = 4 };
    const first = try m.scan(&.{ v, v, v, v, negated, s }, counts, &.{ v, v, v, s, s });
    return m.finish(&.{ Builder.resultOf(first, 1), Builder.resultOf(first, 2) });
}

test "compile: unused results, operands and carries go, and a constant carry is a capture" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try wasteful(arena_state.allocator());
    var plan = try compiled(testing.allocator, &program, true);
    defer plan.deinit();
    const scan = scanOf(&plan);
    try testing.expectEqual(@as(u32, 1), scan.capture_count);
    try testing.expectEqual(@as(usize, 1), scan.carries.len);
    try testing.expectEqual(@as(usize, 1), scan.reads.len);
    try testing.expectEqual(@as(usize, 0), scan.writes.len);
    try testing.expectEqual(@as(usize, 1), plan.blocks[0].instructions.len);
    // The scan, and the copy of the constant carry; the negation has nobody to read it.
    try testing.expectEqual(@as(usize, 2), plan.instructions.len);
}

/// A switch on a transposed matrix, inside a scan that captures a row broadcast to it.
fn views(arena: Allocator) !Program {
    const dims = [_]i64{ 64, 64 };
    const blocks = try arena.alloc(Program, 3);
    for (blocks[0..2], [_]@import("op.zig").Code{ .negative, .square }) |*block, code| {
        var m: Maker = .init(arena);
        const x = try m.input(.f32, &dims);
        block.* = try m.finish(&.{try m.plain(code, &.{x}, x)});
    }
    var body: Maker = .init(arena);
    const row = try body.input(.f32, &dims);
    const c = try body.input(.f32, &dims);
    const turned = try body.b.emit(.{
        .code = .transpose,
        .operands = &.{c},
        .attrs = try attrWords(arena, .transpose, .{ .axes = &.{ 1, 0 } }),
        .result_types = &.{body.b.typeId(c)},
    });
    const one = try body.literal(i64, .i64, 1);
    const chosen = try body.b.emit(.{
        .code = .@"switch",
        .operands = &.{ one, turned },
        .attrs = try attrWords(arena, .@"switch", .{ .blocks = &.{ 0, 1 } }),
        .result_types = &.{body.b.typeId(c)},
    });
    blocks[2] = try body.finish(&.{try body.plain(.add, &.{ chosen, row }, c)});
    var m: Maker = .init(arena);
    m.b.blocks = blocks;
    const x = try m.input(.f32, &dims);
    const y = try m.input(.f32, &.{64});
    const wide = try m.b.emit(.{
        .code = .broadcast_to,
        .operands = &.{y},
        .attrs = try attrWords(arena, .broadcast_to, .{ .shape = &dims }),
        .result_types = &.{m.b.typeId(x)},
    });
    const counts: Maker.Counts = .{ .body = 2, .captures = 1, .length = 3 };
    return m.finish(&.{try m.scan(&.{ wide, x }, counts, &.{x})});
}

/// One scan of block 0 that is run, and one, in a block that is not, which uses more of it.
fn idle(arena: Allocator) !Program {
    var body: Maker = .init(arena);
    const w = try body.input(.f32, &.{2});
    const a = try body.input(.f32, &.{2});
    const b = try body.input(.f32, &.{2});
    const power = try body.plain(.exp, &.{w}, w);
    const next = try body.plain(.add, &.{ a, power }, a);
    const unused = try body.plain(.multiply, &.{ b, b }, b);
    const counts: Maker.Counts = .{ .captures = 1, .carries = 2, .length = 3 };
    var other: Maker = .init(arena);
    const y = try other.input(.f32, &.{2});
    const both = try other.scan(&.{ y, y, y }, counts, &.{ y, y });
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{
        try body.finish(&.{ next, unused }),
        try other.finish(&.{ both, Builder.resultOf(both, 1) }),
    });
    const x = try m.input(.f32, &.{2});
    return m.finish(&.{try m.scan(&.{ x, x, x }, counts, &.{ x, x })});
}

test "compile: a block that nothing runs stands in the way of nothing" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try idle(arena_state.allocator());
    var plan = try compiled(testing.allocator, &program, true);
    defer plan.deinit();
    const scan = scanOf(&plan);
    try testing.expectEqual(@as(usize, 1), scan.carries.len);
    try testing.expectEqual(@as(u32, 1), scan.capture_count);
    // In front: exp, then the scan, which adds.
    try testing.expectEqual(kernel_table.Kernel.elementwise, plan.instructions[0].kernel);
    try testing.expectEqual(@as(usize, 1), plan.blocks[0].instructions.len);
    try testing.expectEqual(@as(usize, 0), plan.blocks[1].instructions.len);
}

test "compile: views for blocks are not copied" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try views(arena_state.allocator());
    var plan = try compiled(testing.allocator, &program, true);
    defer plan.deinit();
    try testing.expectEqual(@as(usize, 1), plan.instructions.len);
    try testing.expectEqual(@as(u64, 64 * 4), plan.inputs[1].bytes);
    // The switch and the sum; the transposition is read inside the branch.
    try testing.expectEqual(@as(usize, 2), plan.blocks[2].instructions.len);
    var naive = try compiled(testing.allocator, &program, false);
    defer naive.deinit();
    try testing.expectEqual(@as(usize, 2), naive.instructions.len);
    try testing.expectEqual(@as(usize, 3), naive.blocks[2].instructions.len);
}

/// A carry whose elements are set one by one, and one that is swapped with another.
fn updates(arena: Allocator) !Program {
    var body: Maker = .init(arena);
    const array = try body.input(.f32, &.{64});
    const p = try body.input(.f32, &.{2});
    const q = try body.input(.f32, &.{2});
    const starts = try body.input(.i64, &.{1});
    const element = try body.input(.f32, &.{1});
    const set = try body.plain(.dynamic_update_slice, &.{ array, element, starts }, array);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{try body.finish(&.{ set, q, p })});
    const x = try m.input(.f32, &.{64});
    const y = try m.input(.f32, &.{2});
    const positions = try m.input(.i64, &.{ 8, 1 });
    const elements = try m.input(.f32, &.{ 8, 1 });
    const counts: Maker.Counts = .{ .carries = 3, .length = 8 };
    const first = try m.scan(&.{ x, y, y, positions, elements }, counts, &.{ x, y, y });
    return m.finish(&.{ first, Builder.resultOf(first, 1), Builder.resultOf(first, 2) });
}

test "compile: a carry is updated in place, of two that change places one" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try updates(arena_state.allocator());
    for ([_]bool{ false, true }) |optimize| {
        var plan = try compiled(testing.allocator, &program, optimize);
        defer plan.deinit();
        const carries = scanOf(&plan).carries;
        try testing.expect(carries[0].in_place);
        try testing.expect(carries[1].in_place != carries[2].in_place);
    }
}

/// A scan in a scan that sets elements of one array.
fn nestedUpdates(arena: Allocator) !Program {
    var inner: Maker = .init(arena);
    const array = try inner.input(.f32, &.{64});
    const start = try inner.input(.i64, &.{1});
    const element = try inner.b.emit(.{
        .code = .slice,
        .operands = &.{array},
        .attrs = try attrWords(arena, .slice, .{
            .starts = &.{3},
            .sizes = &.{1},
            .steps = &.{1},
        }),
        .result_types = &.{try inner.b.internType(.f32, &.{1})},
    });
    const more = try inner.plain(.exp, &.{element}, element);
    const set = try inner.plain(.dynamic_update_slice, &.{ array, more, start }, array);
    var outer: Maker = .init(arena);
    const c = try outer.input(.f32, &.{64});
    const starts = try outer.input(.i64, &.{ 4, 1 });
    const after = try outer.scan(&.{ c, starts }, .{ .length = 4 }, &.{c});
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{
        try inner.finish(&.{set}),
        try outer.finish(&.{after}),
    });
    const x = try m.input(.f32, &.{64});
    const all = try m.input(.i64, &.{ 5, 4, 1 });
    return m.finish(&.{try m.scan(&.{ x, all }, .{ .body = 1, .length = 5 }, &.{x})});
}

test "compile: loops inside each other update one array in place" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const program = try nestedUpdates(arena_state.allocator());
    var plan = try compiled(testing.allocator, &program, true);
    defer plan.deinit();
    try testing.expect(scanOf(&plan).carries[0].in_place);
    try testing.expect(scanOf(&plan.blocks[1]).carries[0].in_place);
    try testing.expectEqual(@as(usize, 1), plan.blocks[1].instructions.len);
    // Nothing of the array's size is kept besides the result.
    try testing.expect(plan.arena_bytes < 64 * 4);
}

test "compile: every allocation may fail without a leak, with blocks too" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    const programs = [_]Program{
        try invariant(arena),     try wasteful(arena), try updates(arena), try views(arena),
        try nestedUpdates(arena),
    };
    for (&programs) |*program| for ([_]bool{ true, false }) |optimize| {
        const bytes = try wire_encode.encode(arena, program);
        const arguments = .{ @as([]const u8, bytes), optimize };
        try testing.checkAllAllocationFailures(testing.allocator, compileOnce, arguments);
    };
}
