//! Blocks from outside: switches, loops and scans go in as bytes and give values.
const std = @import("std");
const testing = std.testing;
const abi = @import("abi.zig");
const abi_types = @import("abi_types.zig");
const core_test = @import("core_test.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const Allocator = std.mem.Allocator;
const DType = @import("dtype.zig").DType;
const Builder = ir.Builder;
const Core = core_test.Core;
const Handle = abi_types.Handle;
const Program = ir.Program;
const Maker = @import("control_maker.zig").Maker;
const Value = Builder.Value;
const attrWords = ir_builder.attrWords;

fn expectStatus(expected: abi_types.Status, actual: u32) !void {
    try testing.expectEqual(@backingInt(expected), actual);
}

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
    const counts: Maker.Counts = .{ .captures = 1, .length = length, .reverse = reverse };
    const first = try m.scan(&.{ w, c, xs }, counts, &.{ c, xs });
    return m.finish(&.{ first, Builder.resultOf(first, 1) });
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
    const end = try condition.input(.i64, &.{});
    const count = try condition.input(.i64, &.{});
    _ = try condition.input(.i64, &.{});
    const goes_on = try condition.compare(.less, &.{ count, end });
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
    return m.finish(&.{ first, Builder.resultOf(first, 1) });
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
    return m.finish(&.{ first, Builder.resultOf(first, 1) });
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

/// while (true) n += 1.
fn endless(core: *Core) !Program {
    const arena = core.arena();
    var condition: Maker = .init(arena);
    _ = try condition.input(.i64, &.{});
    const yes = try condition.literal(u8, .bool, 1);
    var body: Maker = .init(arena);
    const n = try body.input(.i64, &.{});
    const one = try body.literal(i64, .i64, 1);
    const next = try body.plain(.add, &.{ n, one }, n);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{
        try condition.finish(&.{yes}),
        try body.finish(&.{next}),
    });
    const start = try m.input(.i64, &.{});
    return m.finish(&.{try m.b.emit(.{
        .code = .@"while",
        .operands = &.{start},
        .attrs = try attrWords(arena, .@"while", .{ .condition = 0, .body = 1, .captures = 0 }),
        .result_types = &.{m.b.typeId(start)},
    })});
}

test "control: a loop that never ends is a job, and a cancel ends it" {
    var core: Core = try .init(2);
    defer core.deinit();
    const program = try endless(&core);
    for ([_]bool{ false, true }) |optimize| {
        const executable = try core.compile(&program, optimize);
        defer _ = abi.pet_executable_release(executable);
        const start = try core.upload(i64, &.{0});
        defer _ = abi.pet_buffer_release(start);
        var out: [1]Handle = .{0};
        var job: Handle = 0;
        var e: abi_types.Error = .{};
        const inputs = [_]Handle{start};
        try expectStatus(.ok, abi.pet_run_submit(executable, &inputs, 1, &out, 1, 0, &job, &e));
        try testing.expect(job != 0);
        defer _ = abi.pet_job_release(job);
        var done: u32 = 0;
        try expectStatus(.ok, abi.pet_job_wait(job, 5, &done, &e));
        try testing.expectEqual(@as(u32, 0), done);
        try expectStatus(.ok, abi.pet_job_cancel(job));
        var status: u32 = 0;
        while (done == 0) status = abi.pet_job_wait(job, 20, &done, &e);
        try expectStatus(.cancelled, status);
    }
}

/// Block: c, x, index -> take(c, index), x; captures c, index; the take fails outside.
fn taking(core: *Core, length: i64) !Program {
    const arena = core.arena();
    var body: Maker = .init(arena);
    const c = try body.input(.f32, &.{3});
    const index = try body.input(.i64, &.{});
    const sum = try body.input(.f32, &.{});
    const t = body.b.typeId(sum);
    const negated = try body.plain(.negative, &.{sum}, sum);
    const taken = try body.b.emit(.{
        .code = .take,
        .operands = &.{ c, index },
        .attrs = try attrWords(arena, .take, .{ .axis = 0, .batch_dims = 0, .mode = 0 }),
        .result_types = &.{t},
    });
    const next = try body.plain(.add, &.{ negated, taken }, sum);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{try body.finish(&.{next})});
    const array = try m.input(.f32, &.{3});
    const position = try m.input(.i64, &.{});
    const zero = try m.literal(f32, .f32, 0);
    const counts: Maker.Counts = .{ .captures = 2, .length = length };
    return m.finish(&.{try m.scan(&.{ array, position, zero }, counts, &.{zero})});
}

test "control: what can fail stays in the loop, and a fault names block and instruction" {
    var core: Core = try .init(1);
    defer core.deinit();
    const array = try core.upload(f32, &.{ 1, 2, 4 });
    defer _ = abi.pet_buffer_release(array);
    const outside = try core.upload(i64, &.{3});
    defer _ = abi.pet_buffer_release(outside);
    const inside = try core.upload(i64, &.{2});
    defer _ = abi.pet_buffer_release(inside);
    try expectRun(&core, f32, &try taking(&core, 3), &.{ array, inside }, &.{&.{4}});
    try expectRun(&core, f32, &try taking(&core, 0), &.{ array, outside }, &.{&.{0}});
    const program = try taking(&core, 2);
    for ([_]bool{ false, true }) |optimize| {
        const executable = try core.compile(&program, optimize);
        defer _ = abi.pet_executable_release(executable);
        var out: [1]Handle = .{0};
        var e: abi_types.Error = .{};
        const run = core_test.run(executable, &.{ array, outside }, &out, &e);
        try testing.expectError(error.RunFailed, run);
        try expectStatus(.index_out_of_bounds, e.status);
        try testing.expectEqual(@as(u32, 1), e.block);
        try testing.expectEqual(@as(u32, 1), e.instruction);
        try testing.expectEqual(@as(i64, 3), e.value);
    }
}

/// A scan in a scan: outer carry c `[n]`, inner sums products of its elements with a captured w.
fn nested(core: *Core, n: i64) !Program {
    const arena = core.arena();
    var inner: Maker = .init(arena);
    const w = try inner.input(.f32, &.{n});
    const c = try inner.input(.f32, &.{n});
    const product = try inner.plain(.multiply, &.{ c, w }, c);
    const sum = try inner.plain(.add, &.{ product, c }, c);
    var outer: Maker = .init(arena);
    const v = try outer.input(.f32, &.{n});
    const d = try outer.input(.f32, &.{n});
    const after = try outer.scan(&.{ v, d }, .{ .captures = 1, .length = 3 }, &.{d});
    const next = try outer.plain(.subtract, &.{ after, d }, d);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{
        try inner.finish(&.{sum}),
        try outer.finish(&.{ next, after }),
    });
    const x = try m.input(.f32, &.{n});
    const y = try m.input(.f32, &.{n});
    const stack = try m.b.internType(.f32, &.{ 4, n });
    const counts: Maker.Counts = .{ .body = 1, .captures = 1, .length = 4 };
    const first = try m.scanOf(&.{ x, y }, counts, &.{ m.b.typeId(y), stack });
    return m.finish(&.{ first, Builder.resultOf(first, 1) });
}

test "control: loops allocate nothing, and threads change no bit" {
    const n = 70_001;
    var results: [2][]const u8 = undefined;
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    for (&results, [_]u32{ 1, 3 }) |*result, threads| {
        var core: Core = try .init(threads);
        defer core.deinit();
        const program = try nested(&core, n);
        const executable = try core.compile(&program, true);
        defer _ = abi.pet_executable_release(executable);
        const values = try core.arena().alloc(f32, n);
        for (values, 0..) |*value, i| value.* = @as(f32, @floatFromInt(i % 1000)) * 1e-3;
        const x = try core.upload(f32, values);
        defer _ = abi.pet_buffer_release(x);
        var out: [2]Handle = .{ 0, 0 };
        var e: abi_types.Error = .{};
        try core_test.run(executable, &.{ x, x }, &out, &e);
        for (out) |handle| try expectStatus(.ok, abi.pet_buffer_release(handle));
        try expectStatus(.ok, abi.pet_debug_fail_allocations(1));
        defer _ = abi.pet_debug_fail_allocations(0);
        try core_test.run(executable, &.{ x, x }, &out, &e);
        result.* = try arena_state.allocator().dupe(u8, try core_test.view(u8, out[1]));
        for (out) |handle| try expectStatus(.ok, abi.pet_buffer_release(handle));
    }
    try testing.expectEqualSlices(u8, results[0], results[1]);
}

/// c, p, q, starts, element -> c with the element set, q, p.
fn updates(core: *Core, length: i64) !Program {
    const arena = core.arena();
    var body: Maker = .init(arena);
    const array = try body.input(.i32, &.{6});
    const p = try body.input(.i32, &.{2});
    const q = try body.input(.i32, &.{2});
    const starts = try body.input(.i64, &.{1});
    const element = try body.input(.i32, &.{1});
    const set = try body.plain(.dynamic_update_slice, &.{ array, element, starts }, array);
    var m: Maker = .init(arena);
    m.b.blocks = try arena.dupe(Program, &.{try body.finish(&.{ set, q, p })});
    const x = try m.input(.i32, &.{6});
    const y = try m.input(.i32, &.{2});
    const z = try m.input(.i32, &.{2});
    const positions = try m.input(.i64, &.{ length, 1 });
    const elements = try m.input(.i32, &.{ length, 1 });
    const counts: Maker.Counts = .{ .carries = 3, .length = length };
    const first = try m.scan(&.{ x, y, z, positions, elements }, counts, &.{ x, y, z });
    return m.finish(&.{ first, Builder.resultOf(first, 1), Builder.resultOf(first, 2) });
}

test "control: carries in place and in two places by turns" {
    var core: Core = try .init(1);
    defer core.deinit();
    const positions = [_]i64{ 5, 0, 3, 5 };
    const elements = [_]i32{ 10, 20, 30, 40 };
    for (0..5) |count| {
        const program = try updates(&core, @intCast(count));
        var expected = [_]i32{ 1, 2, 3, 4, 5, 6 };
        for (positions[0..count], elements[0..count]) |at, value| expected[@intCast(at)] = value;
        const pairs = [2][2]i32{ .{ 7, 8 }, .{ 9, -1 } };
        const inputs = [_]Handle{
            try core.upload(i32, &.{ 1, 2, 3, 4, 5, 6 }),
            try core.upload(i32, &pairs[0]),
            try core.upload(i32, &pairs[1]),
            try core.upload(i64, positions[0..count]),
            try core.upload(i32, elements[0..count]),
        };
        defer for (inputs) |handle| {
            _ = abi.pet_buffer_release(handle);
        };
        const swap = count % 2;
        const results = [_][]const i32{ &expected, &pairs[swap], &pairs[1 - swap] };
        try expectRun(&core, i32, &program, &inputs, &results);
    }
}

/// Tells 1 the carry, runs a branch that tells 2 it doubled or nothing, adds 1; three times.
fn telling(core: *Core) !Program {
    const arena = core.arena();
    const blocks = try arena.alloc(Program, 3);
    for (blocks[0..2], 0..) |*block, k| {
        var m: Maker = .init(arena);
        const c = try m.input(.i64, &.{});
        const twice = try m.plain(.add, &.{ c, c }, c);
        if (k == 1) try hostCall(&m, 2, &.{ twice, c });
        block.* = try m.finish(&.{});
    }
    var body: Maker = .init(arena);
    const c = try body.input(.i64, &.{});
    try hostCall(&body, 1, &.{c});
    _ = try body.b.emit(.{
        .code = .@"switch",
        .operands = &.{ c, c },
        .attrs = try attrWords(arena, .@"switch", .{ .blocks = &.{ 0, 1 } }),
        .result_types = &.{},
    });
    const one = try body.literal(i64, .i64, 1);
    blocks[2] = try body.finish(&.{try body.plain(.add, &.{ c, one }, c)});
    var m: Maker = .init(arena);
    m.b.blocks = blocks;
    const start = try m.input(.i64, &.{});
    const last = try m.scan(&.{start}, .{ .body = 2, .length = 3 }, &.{start});
    try hostCall(&m, 3, &.{});
    return m.finish(&.{last});
}

fn hostCall(m: *Maker, id: i64, operands: []const Value) !void {
    _ = try m.b.emit(.{
        .code = .host_call,
        .operands = operands,
        .attrs = try attrWords(m.b.arena, .host_call, .{ .id = id }),
        .result_types = &.{},
    });
}

/// Starts a job that asks something.
fn ask(core: *Core, executable: Handle, start: i64, token: Handle) !Handle {
    const input = try core.upload(i64, &.{start});
    defer _ = abi.pet_buffer_release(input);
    var out: [1]Handle = .{0};
    var job: Handle = 0;
    var e: abi_types.Error = .{};
    const inputs = [_]Handle{input};
    const submit = abi.pet_run_submit;
    try expectStatus(.ok, submit(executable, &inputs, 1, &out, 1, token, &job, &e));
    try testing.expect(job != 0);
    return job;
}

/// Answers until the job is done; what it asked, as id and first operand.
fn answerAll(job: Handle, seen: *std.ArrayList([2]i64), arena: Allocator, last: i64) !u32 {
    var done: u32 = 0;
    var e: abi_types.Error = .{};
    while (true) {
        const status = abi.pet_job_wait(job, 20, &done, &e);
        if (done != 0) return status;
        if (status == 0) continue;
        try expectStatus(.host_call_pending, status);
        var call: abi_types.HostCall = .{};
        var operands: [2]abi_types.HostOperand = @splat(.{});
        try expectStatus(.ok, abi.pet_job_host_call(job, &call, null, 0));
        try expectStatus(.ok, abi.pet_job_host_call(job, &call, &operands, 2));
        var value: i64 = 0;
        for (operands[0..call.operand_count]) |operand| {
            try testing.expectEqual(@as(u32, 0), operand.rank);
            try testing.expectEqual(@as(u64, 8), operand.bytes);
            try testing.expectEqual(@backingInt(DType.i64), operand.dtype);
        }
        if (call.operand_count > 0) value = std.mem.readInt(i64, operands[0].data.?[0..8], .little);
        try seen.append(arena, .{ call.id, value });
        const answer: i64 = if (call.id == last) 77 else 0;
        try expectStatus(.ok, abi.pet_job_answer(job, answer));
    }
}

test "control: host calls come in order from loops and branches" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try telling(&core);
    for ([_]bool{ false, true }) |optimize| {
        const executable = try core.compile(&program, optimize);
        defer _ = abi.pet_executable_release(executable);
        const job = try ask(&core, executable, -1, 0);
        defer _ = abi.pet_job_release(job);
        var seen: std.ArrayList([2]i64) = .empty;
        try expectStatus(.ok, try answerAll(job, &seen, core.arena(), 99));
        const expected = [_][2]i64{ .{ 1, -1 }, .{ 1, 0 }, .{ 1, 1 }, .{ 2, 2 }, .{ 3, 0 } };
        try testing.expectEqualSlices([2]i64, &expected, seen.items);
        var out: [1]Handle = .{0};
        try expectStatus(.ok, abi.pet_job_result(job, &out, 1));
        try testing.expectEqualSlices(i64, &.{2}, try core_test.view(i64, out[0]));
        try expectStatus(.ok, abi.pet_buffer_release(out[0]));
        try expectStatus(.not_ready, abi.pet_job_answer(job, 0));
        var call: abi_types.HostCall = .{};
        try expectStatus(.not_ready, abi.pet_job_host_call(job, &call, null, 0));
    }
}

test "control: a host call that is refused, cancelled or left alone ends the run" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try telling(&core);
    const executable = try core.compile(&program, true);
    defer _ = abi.pet_executable_release(executable);
    var seen: std.ArrayList([2]i64) = .empty;
    const refused = try ask(&core, executable, 0, 0);
    try expectStatus(.host_call_failed, try answerAll(refused, &seen, core.arena(), 2));
    var e: abi_types.Error = .{};
    var done: u32 = 0;
    try expectStatus(.host_call_failed, abi.pet_job_wait(refused, 0, &done, &e));
    try testing.expectEqual(@as(i64, 77), e.value);
    try testing.expectEqual(@as(u32, 2), e.block);
    try testing.expectEqual(@as(u32, 1), e.instruction);
    try expectStatus(.ok, abi.pet_job_release(refused));

    // A cancel takes the question back; once it was looked at the answer is waited for.
    for ([_]bool{ false, true }) |looked_at| {
        var token: Handle = 0;
        try expectStatus(.ok, abi.pet_token_create(&token));
        defer _ = abi.pet_token_release(token);
        const job = try ask(&core, executable, 0, token);
        var status: u32 = 0;
        while (status == 0) status = abi.pet_job_wait(job, 20, &done, &e);
        try expectStatus(.host_call_pending, status);
        var call: abi_types.HostCall = .{};
        if (looked_at) try expectStatus(.ok, abi.pet_job_host_call(job, &call, null, 0));
        try expectStatus(.ok, abi.pet_token_cancel(token));
        if (looked_at) {
            try expectStatus(.host_call_pending, abi.pet_job_wait(job, 5, &done, &e));
            try expectStatus(.ok, abi.pet_job_answer(job, 0));
        }
        done = 0;
        while (done == 0) status = abi.pet_job_wait(job, 20, &done, &e);
        try expectStatus(.cancelled, status);
        try expectStatus(.ok, abi.pet_job_release(job));
    }
    // Nobody answers: the release ends it, and so does the end of the runtime.
    try expectStatus(.ok, abi.pet_job_release(try ask(&core, executable, 0, 0)));
    const left = try ask(&core, executable, 0, 0);
    defer _ = abi.pet_job_release(left);
}

test "control: blocks run inside each other as deep as the format allows" {
    var core: Core = try .init(1);
    defer core.deinit();
    const arena = core.arena();
    const depth = 64;
    const blocks = try arena.alloc(Program, depth);
    for (blocks, 0..) |*block, k| {
        var m: Maker = .init(arena);
        const c = try m.input(.i64, &.{});
        const one = try m.literal(i64, .i64, 1);
        var next = try m.plain(.add, &.{ c, one }, c);
        const counts: Maker.Counts = .{ .body = @as(i64, @intCast(k)) - 1, .length = 1 };
        if (k > 0) next = try m.scan(&.{next}, counts, &.{c});
        block.* = try m.finish(&.{next});
    }
    var m: Maker = .init(arena);
    m.b.blocks = blocks;
    const start = try m.input(.i64, &.{});
    const counts: Maker.Counts = .{ .body = depth - 1, .length = 2 };
    const program = try m.finish(&.{try m.scan(&.{start}, counts, &.{start})});
    const zero = try core.upload(i64, &.{0});
    defer _ = abi.pet_buffer_release(zero);
    try expectRun(&core, i64, &program, &.{zero}, &.{&.{2 * depth}});
}
