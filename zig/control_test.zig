//! Blocks from outside: switches, loops and scans go in as bytes and give values.
const std = @import("std");
const testing = std.testing;
const abi = @import("abi.zig");
const abi_types = @import("abi_types.zig");
const core_test = @import("core_test.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const DType = @import("dtype.zig").DType;
const Allocator = std.mem.Allocator;
const Builder = ir.Builder;
const Core = core_test.Core;
const Handle = abi_types.Handle;
const Program = ir.Program;
const Value = Builder.Value;
const attrWords = ir_builder.attrWords;

/// A builder with the few words these programs need.
const Maker = struct {
    b: Builder,

    fn init(arena: Allocator) Maker {
        return .{ .b = .init(arena) };
    }

    fn input(m: *Maker, element: DType, dims: []const i64) !Value {
        return m.b.addInput(try m.b.internType(element, dims), .{});
    }

    fn literal(m: *Maker, comptime T: type, element: DType, value: T) !Value {
        const bytes = try m.b.arena.alignedAlloc(u8, .@"8", @sizeOf(T));
        @memcpy(bytes, std.mem.asBytes(&value));
        return m.b.addLiteral(try m.b.internType(element, &.{}), bytes);
    }

    /// An instruction whose result is like its operand `like`.
    fn plain(m: *Maker, code: op.Code, operands: []const Value, like: Value) !Value {
        const t = m.b.typeId(like);
        return m.b.emit(.{ .code = code, .operands = operands, .result_types = &.{t} });
    }

    fn compare(m: *Maker, code: op.Code, operands: []const Value) !Value {
        const t = try m.b.internType(.bool, &.{});
        return m.b.emit(.{ .code = code, .operands = operands, .result_types = &.{t} });
    }

    fn finish(m: *Maker, outputs: []const Value) !Program {
        const list = try m.b.arena.alloc(Builder.Output, outputs.len);
        for (list, outputs) |*to, value| to.* = .{ .value = value };
        return m.b.finish(list);
    }

    fn resultOf(first: Value, k: usize) Value {
        return @fromBackingInt(@intCast(@as(u32, @intCast(first.index() + k))));
    }
};

/// Runs a program on buffers of its inputs, with and without optimisation; checks one output.
fn expectRun(
    core: *Core,
    comptime T: type,
    program: *const Program,
    inputs: []const Handle,
    expected: []const []const T,
) !void {
    for ([_]bool{ false, true }) |optimize| {
        const executable = try core.compile(program, optimize);
        defer _ = abi.pet_executable_release(executable);
        // Twice: a run leaves nothing behind that the next one sees.
        for (0..2) |_| {
            var out: [4]Handle = @splat(0);
            var e: abi_types.Error = .{};
            errdefer std.debug.print("{s}\n", .{std.mem.sliceTo(&e.message, 0)});
            try core_test.run(executable, inputs, out[0..expected.len], &e);
            for (expected, out[0..expected.len]) |values, handle| {
                defer _ = abi.pet_buffer_release(handle);
                try testing.expectEqualSlices(T, values, try core_test.view(T, handle));
            }
        }
    }
}

/// Block: c, x -> c * w + x, and the old c as a stack; w is captured.
fn hornerBody(arena: Allocator, dims: []const i64) !Program {
    var m: Maker = .init(arena);
    const w = try m.input(.f32, dims);
    const c = try m.input(.f32, dims);
    const x = try m.input(.f32, dims);
    const product = try m.plain(.multiply, &.{ c, w }, c);
    const next = try m.plain(.add, &.{ product, x }, c);
    return m.finish(&.{ next, c });
}

fn horner(core: *Core, length: i64, reverse: bool) !Program {
    const arena = core.arena();
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{try hornerBody(arena, &.{3})});
    const w = try m.input(.f32, &.{3});
    const c = try m.input(.f32, &.{3});
    const xs = try m.input(.f32, &.{ length, 3 });
    const first = try m.b.emit(.{
        .code = .scan,
        .operands = &.{ w, c, xs },
        .attrs = try attrWords(arena, .scan, .{
            .body = 0,
            .captures = 1,
            .carries = 1,
            .length = length,
            .reverse = reverse,
        }),
        .result_types = &.{ m.b.typeId(c), m.b.typeId(xs) },
    });
    return m.finish(&.{ first, Maker.resultOf(first, 1) });
}

test "control: a scan carries, reads slices and stacks, in both directions and for no steps" {
    for ([_]u32{ 1, 3 }) |threads| {
        var core: Core = try .init(threads);
        defer core.deinit();
        for ([_]i64{ 0, 1, 2, 5 }) |length| for ([_]bool{ false, true }) |reverse| {
            const program = try horner(&core, length, reverse);
            const count: usize = @intCast(length);
            const xs = try core.arena().alloc(f32, 3 * count);
            for (xs, 0..) |*x, i| x.* = @floatFromInt(i % 5);
            var c: [3]f32 = .{ 1, 2, 3 };
            const w: [3]f32 = .{ 2, 1, -1 };
            const inputs = [_]Handle{
                try core.upload(f32, &w),
                try core.upload(f32, &c),
                try core.upload(f32, xs),
            };
            defer for (inputs) |handle| {
                _ = abi.pet_buffer_release(handle);
            };
            const ys = try core.arena().alloc(f32, 3 * count);
            for (0..count) |step| {
                const t = if (reverse) count - 1 - step else step;
                @memcpy(ys[3 * t ..][0..3], &c);
                for (&c, w, xs[3 * t ..][0..3]) |*to, a, b| to.* = to.* * a + b;
            }
            try expectRun(&core, f32, &program, &inputs, &.{ &c, ys });
        };
    }
}

/// while (n < limit) { n += 1, f *= n }: captures limit; carries n, f.
fn factorial(core: *Core) !Program {
    const arena = core.arena();
    var condition: Maker = .init(arena);
    {
        const limit = try condition.input(.i64, &.{});
        const n = try condition.input(.i64, &.{});
        _ = try condition.input(.i64, &.{});
        _ = limit;
        _ = n;
    }
    const limit_value: Value = @fromBackingInt(0);
    const n_value: Value = @fromBackingInt(1);
    const goes_on = try condition.compare(.less, &.{ n_value, limit_value });
    var body: Maker = .init(arena);
    _ = try body.input(.i64, &.{});
    const n = try body.input(.i64, &.{});
    const f = try body.input(.i64, &.{});
    const one = try body.literal(i64, .i64, 1);
    const next = try body.plain(.add, &.{ n, one }, n);
    const product = try body.plain(.multiply, &.{ f, next }, f);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{
        try condition.finish(&.{goes_on}),
        try body.finish(&.{ next, product }),
    });
    const limit = try m.input(.i64, &.{});
    const zero = try m.literal(i64, .i64, 0);
    const start = try m.literal(i64, .i64, 1);
    const t = m.b.typeId(limit);
    const first = try m.b.emit(.{
        .code = .@"while",
        .operands = &.{ limit, zero, start },
        .attrs = try attrWords(arena, .@"while", .{ .condition = 0, .body = 1, .captures = 1 }),
        .result_types = &.{ t, t },
    });
    return m.finish(&.{ first, Maker.resultOf(first, 1) });
}

test "control: a loop runs until its condition fails, also not at all" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try factorial(&core);
    const expected = [_]i64{ 1, 1, 2, 6, 24, 120 };
    for (expected, 0..) |product, n| {
        const limit = try core.upload(i64, &.{@intCast(n)});
        defer _ = abi.pet_buffer_release(limit);
        try expectRun(&core, i64, &program, &.{limit}, &.{ &.{@intCast(n)}, &.{product} });
    }
}

/// Branches of x: sin is left out on purpose, so that results are exact.
fn branches(core: *Core) !Program {
    const arena = core.arena();
    const blocks = try arena.alloc(Program, 3);
    for (blocks, [_]op.Code{ .negative, .square, .abs }) |*block, code| {
        var m: Maker = .init(arena);
        const x = try m.input(.f32, &.{2});
        block.* = try m.finish(&.{ try m.plain(code, &.{x}, x), x });
    }
    var m: Maker = .init(arena);
    m.b.blocks = blocks;
    const index = try m.input(.i64, &.{});
    const x = try m.input(.f32, &.{2});
    const t = m.b.typeId(x);
    const first = try m.b.emit(.{
        .code = .@"switch",
        .operands = &.{ index, x },
        .attrs = try attrWords(arena, .@"switch", .{ .blocks = &.{ 0, 1, 2 } }),
        .result_types = &.{ t, t },
    });
    return m.finish(&.{ first, Maker.resultOf(first, 1) });
}

test "control: a switch runs one branch, the index clamped" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try branches(&core);
    const x = try core.upload(f32, &.{ -3, 2 });
    defer _ = abi.pet_buffer_release(x);
    const cases = [_]struct { i64, [2]f32 }{
        .{ 0, .{ 3, -2 } },                   .{ 1, .{ 9, 4 } },
        .{ 2, .{ 3, 2 } },                    .{ -7, .{ 3, -2 } },
        .{ std.math.maxInt(i64), .{ 3, 2 } },
    };
    for (cases) |case| {
        const index = try core.upload(i64, &.{case[0]});
        defer _ = abi.pet_buffer_release(index);
        try expectRun(&core, f32, &program, &.{ index, x }, &.{ &case[1], &.{ -3, 2 } });
    }
}
