//! The rules of instructions that run blocks: what is legal, and each fault of its own.
const std = @import("std");
const testing = std.testing;
const ir = @import("ir.zig");
const op = @import("op.zig");
const verify = @import("verify.zig");
const wire = @import("wire.zig");
const wire_encode = @import("wire_encode.zig");
const Allocator = std.mem.Allocator;
const DType = @import("dtype.zig").DType;
const Maker = @import("control_maker.zig").Maker;
const Message = verify.Message;
const Program = ir.Program;
const Type = ir.Type;

const f: Type = .{ .dtype = .f32, .dims = &.{2} };
const g: Type = .{ .dtype = .f32, .dims = &.{3} };
const rows: Type = .{ .dtype = .f32, .dims = &.{ 5, 2 } };
const index: Type = .{ .dtype = .i64, .dims = &.{} };
const truth: Type = .{ .dtype = .bool, .dims = &.{} };

/// A block that gives some of its inputs back.
fn block(arena: Allocator, inputs: []const Type, outputs: []const usize) !Program {
    var m: Maker = .init(arena);
    const values = try arena.alloc(ir.Builder.Value, inputs.len);
    for (values, inputs) |*v, t| v.* = try m.input(t.dtype, t.dims);
    const chosen = try arena.alloc(ir.Builder.Value, outputs.len);
    for (chosen, outputs) |*v, k| v.* = values[k];
    return m.finish(chosen);
}

const Case = struct {
    code: op.Code,
    blocks: []const Program,
    operands: []const Type,
    words: []const i64,
    results: []const Type,
    message: Message = .none,
    operand: ?u32 = null,
};

fn expectCase(arena: Allocator, case: Case) !void {
    var m: Maker = .init(arena);
    const operands = try arena.alloc(ir.Builder.Value, case.operands.len);
    for (operands, case.operands) |*v, t| v.* = try m.input(t.dtype, t.dims);
    const types = try arena.alloc(ir.TypeId, case.results.len);
    for (types, case.results) |*id, t| id.* = try m.b.internType(t.dtype, t.dims);
    _ = try m.b.emit(.{
        .code = case.code,
        .operands = operands,
        .attrs = case.words,
        .result_types = types,
    });
    m.b.blocks = case.blocks;
    const program = try m.finish(&.{});
    var diagnostic: verify.Diagnostic = .{};
    errdefer std.debug.print("{t} {any}: {f}\n", .{ case.code, case.words, diagnostic });
    const result = verify.verify(testing.allocator, &program, &diagnostic);
    try testing.expectEqual(case.message, diagnostic.message);
    if (case.message == .none) try result else {
        try testing.expectError(error.InvalidProgram, result);
        try testing.expectEqual(case.operand, diagnostic.operand);
    }
}

test "verify: switches" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    const one = try block(arena, &.{ f, g }, &.{0});
    const other = try block(arena, &.{ f, g }, &.{1});
    const short = try block(arena, &.{f}, &.{0});
    const both = try block(arena, &.{ f, g }, &.{ 0, 1 });
    const blocks = [_]Program{ one, other, short, both };
    const base: Case = .{
        .code = .@"switch",
        .blocks = &blocks,
        .operands = &.{ index, f, g },
        .words = &.{ 2, 0, 0 },
        .results = &.{f},
    };
    try expectCase(arena, base);
    var bad = base;
    bad.message = .bad_block;
    for ([_][]const i64{ &.{ 1, -1 }, &.{ 2, 0, 4 }, &.{0} }) |words| {
        bad.words = words;
        try expectCase(arena, bad);
    }
    bad.message = .block_outputs;
    for ([_]i64{ 1, 3 }) |second| {
        bad.words = &.{ 2, 0, second };
        try expectCase(arena, bad);
    }
    bad = base;
    bad.words = &.{ 1, 2 };
    bad.message = .block_inputs;
    try expectCase(arena, bad);
    bad = base;
    bad.operands = &.{ index, f, f };
    bad.message = .block_inputs;
    bad.operand = 2;
    try expectCase(arena, bad);
    bad.operands = &.{ f, f, g };
    bad.message = .operand_dtype;
    bad.operand = 0;
    try expectCase(arena, bad);
    bad = base;
    bad.results = &.{ f, f };
    bad.message = .result_count;
    try expectCase(arena, bad);
    bad.results = &.{g};
    bad.message = .result_type;
    bad.operand = 0;
    try expectCase(arena, bad);
}

test "verify: loops" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    const condition = try block(arena, &.{ truth, f }, &.{0});
    const body = try block(arena, &.{ truth, f }, &.{1});
    const vague = try block(arena, &.{ truth, f }, &.{ 0, 0 });
    const blocks = [_]Program{ condition, body, vague };
    const base: Case = .{
        .code = .@"while",
        .blocks = &blocks,
        .operands = &.{ truth, f },
        .words = &.{ 0, 1, 1 },
        .results = &.{f},
    };
    try expectCase(arena, base);
    const cases = [_]struct { [3]i64, Message }{
        .{ .{ 3, 1, 1 }, .bad_block },
        .{ .{ 0, 3, 1 }, .bad_block },
        .{ .{ 0, 1, 3 }, .bad_split },
        .{ .{ 0, 1, -1 }, .bad_split },
        .{ .{ 1, 1, 1 }, .block_outputs }, // the condition gives no bool
        .{ .{ 2, 1, 1 }, .block_outputs }, // or two
        .{ .{ 0, 0, 1 }, .block_outputs }, // the body gives another type
        .{ .{ 0, 1, 0 }, .block_outputs }, // or too few
    };
    for (cases) |case| {
        var bad = base;
        bad.words = &case[0];
        bad.message = case[1];
        try expectCase(arena, bad);
    }
    var bad = base;
    bad.operands = &.{ truth, g };
    bad.message = .block_inputs;
    bad.operand = 1;
    try expectCase(arena, bad);
    bad = base;
    bad.results = &.{};
    bad.message = .result_count;
    try expectCase(arena, bad);
}

test "verify: scans" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    // Inputs w, c, x; outputs: the carry, then w and x as slices.
    const body = try block(arena, &.{ g, f, f }, &.{ 1, 0, 2 });
    const large: Type = .{ .dtype = .f32, .dims = &.{1 << 40} };
    const huge = try block(arena, &.{large}, &.{0});
    const deep: Type = .{ .dtype = .f32, .dims = &@as([16]i64, @splat(1)) };
    const full = try block(arena, &.{deep}, &.{0});
    const blocks = [_]Program{ body, huge, full };
    const stack: Type = .{ .dtype = .f32, .dims = &.{ 5, 3 } };
    const base: Case = .{
        .code = .scan,
        .blocks = &blocks,
        .operands = &.{ g, f, rows },
        .words = &.{ 0, 1, 1, 5, 0 },
        .results = &.{ f, stack, rows },
    };
    try expectCase(arena, base);
    const cases = [_]struct { [5]i64, Message, ?u32 }{
        .{ .{ 3, 1, 1, 5, 0 }, .bad_block, null },
        .{ .{ 0, 4, 1, 5, 0 }, .bad_split, null },
        .{ .{ 0, 1, 3, 5, 0 }, .bad_split, null },
        .{ .{ 0, 1, -1, 5, 0 }, .bad_split, null },
        .{ .{ 0, 1, 1, -1, 0 }, .bad_length, null },
        .{ .{ 0, 1, 1, (1 << 48) + 1, 0 }, .bad_length, null },
        .{ .{ 0, 1, 1, 4, 0 }, .operand_shape, 2 },
        .{ .{ 0, 1, 2, 5, 0 }, .block_inputs, 2 },
        .{ .{ 0, 0, 1, 5, 0 }, .operand_shape, 1 },
        .{ .{ 0, 0, 2, 5, 0 }, .block_outputs, null },
    };
    for (cases) |case| {
        var bad = base;
        bad.words = &case[0];
        bad.message = case[1];
        bad.operand = case[2];
        errdefer std.debug.print("{any}\n", .{case[0]});
        try expectCase(arena, bad);
    }
    var bad = base;
    bad.operands = &.{ g, f, index };
    bad.message = .operand_rank;
    bad.operand = 2;
    try expectCase(arena, bad);
    for ([_]i64{ 1, 2 }, [_]Type{ large, deep }) |number, t| try expectCase(arena, .{
        .code = .scan,
        .blocks = &blocks,
        .operands = &.{t},
        .words = &.{ number, 1, 0, 1 << 10, 0 },
        .results = &.{t},
        .message = .shape_overflow,
    });
}

test "verify: a fault inside a block names it" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    var m: Maker = .init(arena);
    const x = try m.input(.f32, &.{2});
    const wrong = try m.compare(.add, &.{ x, x });
    const blocks = [_]Program{ try block(arena, &.{f}, &.{0}), try m.finish(&.{wrong}) };
    var root: Maker = .init(arena);
    root.b.blocks = &blocks;
    const program = try root.finish(&.{});
    var diagnostic: verify.Diagnostic = .{};
    const result = verify.verify(testing.allocator, &program, &diagnostic);
    try testing.expectError(error.InvalidProgram, result);
    try testing.expectEqual(@as(u32, 1), diagnostic.block.?);
    try testing.expectEqual(@as(u32, 0), diagnostic.instruction.?);
    var buffer: [128]u8 = undefined;
    try testing.expectEqualStrings(
        "block 1, instruction 0, result 0: the declared result type is not the inferred one",
        try std.fmt.bufPrint(&buffer, "{f}", .{diagnostic}),
    );
}

/// What the decoder says of a program whose block `number` runs block `named`.
fn expectDecode(arena: Allocator, number: usize, named: i64, message: Message) !void {
    const blocks = try arena.alloc(Program, 3);
    for (blocks, 0..) |*b, k| {
        var m: Maker = .init(arena);
        const i = try m.input(.i64, &.{});
        _ = try m.b.emit(.{
            .code = .@"switch",
            .operands = &.{i},
            .attrs = if (k == number) &.{ 1, named } else &.{0},
            .result_types = &.{},
        });
        b.* = try m.finish(&.{});
    }
    var root: Maker = .init(arena);
    root.b.blocks = blocks;
    const program = try root.finish(&.{});
    const bytes = try wire_encode.encode(arena, &program);
    var diagnostic: wire.Diagnostic = .{};
    const result = wire.decode(arena, bytes, &diagnostic);
    try testing.expectEqual(message, diagnostic.message);
    if (message == .none) {
        _ = try result;
    } else {
        try testing.expectError(error.Malformed, result);
        try testing.expectEqual(@as(u32, @intCast(number)), diagnostic.block.?);
        try testing.expectEqual(@as(u32, 0), diagnostic.instruction.?);
    }
}

test "decode: a block runs only blocks before it" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    try expectDecode(arena, 1, 0, .none);
    try expectDecode(arena, 2, 1, .none);
    for ([_]i64{ 1, 2, 3, -1, std.math.maxInt(i64), std.math.minInt(i64) }) |named| {
        try expectDecode(arena, 1, named, .bad_block);
    }
}
