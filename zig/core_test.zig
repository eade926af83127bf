//! The core from outside: programs go in as bytes through the exported functions, values come out.
const std = @import("std");
const testing = std.testing;
const abi = @import("abi.zig");
const abi_types = @import("abi_types.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const wire_encode = @import("wire_encode.zig");
const DType = @import("dtype.zig").DType;
const Builder = ir.Builder;
const Handle = abi_types.Handle;
const Status = abi_types.Status;

fn expectStatus(expected: Status, actual: u32) !void {
    try testing.expectEqual(@backingInt(expected), actual);
}

/// A runtime, and an arena for programs under construction.
pub const Core = struct {
    arena_state: std.heap.ArenaAllocator,
    runtime: Handle,

    pub fn init(thread_count: u32) !Core {
        var runtime: Handle = 0;
        const options: abi_types.RuntimeOptions = .{ .thread_count = thread_count };
        try expectStatus(.ok, abi.pet_runtime_create(&options, &runtime));
        return .{ .arena_state = .init(testing.allocator), .runtime = runtime };
    }

    pub fn deinit(core: *Core) void {
        core.arena_state.deinit();
        testing.expectEqual(@as(u32, 0), abi.pet_runtime_destroy(core.runtime)) catch |e| {
            std.debug.panic("the runtime is gone: {t}", .{e});
        };
    }

    pub fn arena(core: *Core) std.mem.Allocator {
        return core.arena_state.allocator();
    }

    pub fn compile(core: *Core, program: *const ir.Program, optimize: bool) !Handle {
        return core.compileBytes(try wire_encode.encode(core.arena(), program), optimize);
    }

    pub fn compileBytes(core: *Core, bytes: []const u8, optimize: bool) !Handle {
        const options: abi_types.CompileOptions = .{ .optimize = @intFromBool(optimize) };
        var job: Handle = 0;
        var e: abi_types.Error = .{};
        const submit = abi.pet_compile_submit;
        try expectStatus(.ok, submit(core.runtime, bytes.ptr, bytes.len, &options, 0, &job));
        defer _ = abi.pet_job_release(job);
        try finish(job, &e);
        var executable: [1]Handle = .{0};
        try expectStatus(.ok, abi.pet_job_result(job, &executable, 1));
        return executable[0];
    }

    pub fn upload(core: *Core, comptime T: type, values: []const T) !Handle {
        var handle: Handle = 0;
        var data: ?[*]u8 = null;
        const bytes = std.mem.sliceAsBytes(values);
        try expectStatus(.ok, abi.pet_buffer_create(core.runtime, bytes.len, &handle, &data));
        @memcpy(data.?[0..bytes.len], bytes);
        return handle;
    }

    pub fn stats(core: *Core) !abi_types.RuntimeStats {
        var s: abi_types.RuntimeStats = .{};
        try expectStatus(.ok, abi.pet_runtime_stats(core.runtime, &s));
        return s;
    }
};

fn finish(job: Handle, e: *abi_types.Error) !void {
    var done: u32 = 0;
    while (done == 0) {
        const status = abi.pet_job_wait(job, 20, &done, e);
        if (status != 0) return error.JobFailed;
    }
}

/// Runs to the end, however long the program is planned to take.
pub fn run(
    executable: Handle,
    inputs: []const Handle,
    outputs: []Handle,
    e: *abi_types.Error,
) !void {
    var job: Handle = 0;
    const n_in: u32 = @intCast(inputs.len);
    const n_out: u32 = @intCast(outputs.len);
    const status = abi.pet_run_submit(executable, inputs.ptr, n_in, outputs.ptr, n_out, 0, &job, e);
    if (status != 0) return error.RunFailed;
    if (job == 0) return;
    defer _ = abi.pet_job_release(job);
    try finish(job, e);
    try expectStatus(.ok, abi.pet_job_result(job, outputs.ptr, n_out));
}

pub fn view(comptime T: type, handle: Handle) ![]align(64) T {
    var data: ?[*]u8 = null;
    var bytes: u64 = 0;
    try expectStatus(.ok, abi.pet_buffer_data(handle, &data, &bytes));
    const typed: [*]align(64) T = @ptrCast(@alignCast(data.?));
    return typed[0..@intCast(bytes / @sizeOf(T))];
}

const float: [4]u8 = @bitCast(@as(f32, 0.5));
const half align(8) = float;

/// `y = x * 0.5 + x`, `x` donated if asked, the output aliased to it.
fn halves(core: *Core, count: i64, donated: bool) !ir.Program {
    var b: Builder = .init(core.arena());
    const t = try b.internType(.f32, &.{count});
    const s = try b.internType(.f32, &.{});
    const x = try b.addInput(t, .{ .flags = .{ .donated = donated } });
    const c = try b.addLiteral(s, &half);
    const m = try b.emit(.{ .code = .multiply, .operands = &.{ x, c }, .result_types = &.{t} });
    const y = try b.emit(.{ .code = .add, .operands = &.{ m, x }, .result_types = &.{t} });
    return b.finish(&.{.{ .value = y, .alias = if (donated) .at(0) else null }});
}

test "core: a program runs, optimised and not, on any number of threads" {
    for ([_]u32{ 1, 2, 3 }) |threads| {
        var core: Core = try .init(threads);
        defer core.deinit();
        const program = try halves(&core, 5000, false);
        for ([_]bool{ true, false }) |optimize| {
            const executable = try core.compile(&program, optimize);
            defer _ = abi.pet_executable_release(executable);
            var values: [5000]f32 = undefined;
            for (&values, 0..) |*v, i| v.* = @floatFromInt(i);
            const x = try core.upload(f32, &values);
            defer _ = abi.pet_buffer_release(x);
            var out: [1]Handle = .{0};
            var e: abi_types.Error = .{};
            try run(executable, &.{x}, &out, &e);
            defer _ = abi.pet_buffer_release(out[0]);
            for (try view(f32, out[0]), values) |y, v| try testing.expectEqual(v * 0.5 + v, y);
            try testing.expectEqualSlices(f32, &values, try view(f32, x));
        }
    }
}

test "core: dead handles, wrong kinds and wrong counts are statuses" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try halves(&core, 4, false);
    const executable = try core.compile(&program, true);
    const x = try core.upload(f32, &.{ 1, 2, 3, 4 });
    var out: [1]Handle = .{0};
    var job: Handle = 0;
    var e: abi_types.Error = .{};
    const submit = abi.pet_run_submit;
    try expectStatus(.invalid_handle, submit(x, &.{x}, 1, &out, 1, 0, &job, &e));
    try expectStatus(.invalid_handle, submit(executable, &.{executable}, 1, &out, 1, 0, &job, &e));
    try expectStatus(.invalid_argument, submit(executable, &.{x}, 0, &out, 1, 0, &job, &e));
    try expectStatus(.invalid_argument, submit(executable, &.{x}, 1, &out, 0, 0, &job, &e));
    try testing.expect(std.mem.findPos(u8, &e.message, 0, "1 outputs") != null);
    const short = try core.upload(f32, &.{ 1, 2 });
    try expectStatus(.invalid_argument, submit(executable, &.{short}, 1, &out, 1, 0, &job, &e));
    try expectStatus(.invalid_handle, submit(executable, &.{x}, 1, &out, 1, 99, &job, &e));
    try expectStatus(.ok, abi.pet_buffer_release(short));
    try expectStatus(.invalid_handle, abi.pet_buffer_release(short));
    try expectStatus(.ok, abi.pet_buffer_release(x));
    try expectStatus(.invalid_handle, submit(executable, &.{x}, 1, &out, 1, 0, &job, &e));
    try expectStatus(.ok, abi.pet_executable_release(executable));
    try expectStatus(.invalid_handle, submit(executable, &.{x}, 1, &out, 1, 0, &job, &e));
    try expectStatus(.invalid_argument, abi.pet_runtime_stats(core.runtime, null));
    try testing.expectEqual(@as(u64, 0), (try core.stats()).buffers_live);
    try testing.expectEqual(@as(u64, 0), (try core.stats()).executables);
}

test "core: a donated buffer is written in place and its handle dies; an exported one is copied" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try halves(&core, 4, true);
    for ([_]bool{ true, false }) |optimize| {
        const executable = try core.compile(&program, optimize);
        defer _ = abi.pet_executable_release(executable);
        var info: abi_types.ExecutableInfo = .{};
        try expectStatus(.ok, abi.pet_executable_info(executable, &info));
        try testing.expectEqual(info.planned_instructions - 1, info.commit_point);
        var e: abi_types.Error = .{};
        var out: [1]Handle = .{0};
        const x = try core.upload(f32, &.{ 1, 2, 3, 4 });
        const address = (try view(f32, x)).ptr;
        const before = (try core.stats()).output_allocations;
        try run(executable, &.{x}, &out, &e);
        try testing.expectEqual(before, (try core.stats()).output_allocations);
        try testing.expectEqual(address, (try view(f32, out[0])).ptr);
        try testing.expectEqualSlices(f32, &.{ 1.5, 3, 4.5, 6 }, try view(f32, out[0]));
        try expectStatus(.invalid_handle, abi.pet_buffer_release(x));

        var exported: Handle = 0;
        try expectStatus(.ok, abi.pet_buffer_export(out[0], &exported));
        var next: [1]Handle = .{0};
        try run(executable, &out, &next, &e);
        try testing.expectEqualSlices(f32, &.{ 1.5, 3, 4.5, 6 }, address[0..4]);
        try testing.expectEqualSlices(f32, &.{ 2.25, 4.5, 6.75, 9 }, try view(f32, next[0]));
        try expectStatus(.invalid_handle, abi.pet_buffer_release(out[0]));
        var text: [4096]u8 = undefined;
        var needed: u64 = 0;
        try expectStatus(.ok, abi.pet_executable_explain(executable, &text, text.len, &needed));
        const copied = "\"donations_copied\":1,";
        try testing.expect(std.mem.findPos(u8, text[0..@intCast(needed)], 0, copied) != null);
        try expectStatus(.ok, abi.pet_buffer_unexport(exported));
        try expectStatus(.ok, abi.pet_buffer_release(next[0]));
        try testing.expectEqual(@as(u64, 0), (try core.stats()).buffers_live);
    }
}

test "core: lent memory is never written, not even as a donation, and is given back" {
    const Lender = struct {
        fn release(context: ?*anyopaque) callconv(.c) void {
            const calls: *u32 = @ptrCast(@alignCast(context.?));
            calls.* += 1;
        }
    };
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try halves(&core, 4, true);
    const executable = try core.compile(&program, true);
    defer _ = abi.pet_executable_release(executable);
    var calls: u32 = 0;
    var lent = [_]f32{ 1, 2, 3, 4 };
    const bytes: [*]u8 = @ptrCast(&lent);
    var x: Handle = 0;
    const import = abi.pet_buffer_import;
    try expectStatus(.invalid_argument, import(core.runtime, null, 16, null, null, &x));
    try expectStatus(.invalid_handle, import(99, bytes, 16, Lender.release, &calls, &x));
    try expectStatus(.ok, import(core.runtime, bytes, 16, Lender.release, &calls, &x));
    var out: [1]Handle = .{0};
    var e: abi_types.Error = .{};
    try run(executable, &.{x}, &out, &e);
    try testing.expectEqualSlices(f32, &.{ 1, 2, 3, 4 }, &lent);
    try testing.expectEqualSlices(f32, &.{ 1.5, 3, 4.5, 6 }, try view(f32, out[0]));
    try testing.expectEqual(@as(u32, 1), calls);
    try expectStatus(.invalid_handle, abi.pet_buffer_release(x));
    try expectStatus(.ok, abi.pet_buffer_release(out[0]));
    try testing.expectEqual(@as(u64, 0), (try core.stats()).buffers_live);
}

test "core: donating twice in one call is refused and leaves the buffer alive" {
    var core: Core = try .init(1);
    defer core.deinit();
    var b: Builder = .init(core.arena());
    const t = try b.internType(.f32, &.{2});
    const x = try b.addInput(t, .{ .flags = .{ .donated = true } });
    const y = try b.addInput(t, .{ .flags = .{ .donated = true } });
    const z = try b.emit(.{ .code = .add, .operands = &.{ x, y }, .result_types = &.{t} });
    const program = try b.finish(&.{.{ .value = z, .alias = .at(0) }});
    const executable = try core.compile(&program, true);
    defer _ = abi.pet_executable_release(executable);
    const h = try core.upload(f32, &.{ 1, 2 });
    var out: [1]Handle = .{0};
    var e: abi_types.Error = .{};
    try testing.expectError(error.RunFailed, run(executable, &.{ h, h }, &out, &e));
    try expectStatus(.invalid_argument, e.status);
    const g = try core.upload(f32, &.{ 10, 20 });
    try run(executable, &.{ h, g }, &out, &e);
    try testing.expectEqualSlices(f32, &.{ 11, 22 }, try view(f32, out[0]));
    try expectStatus(.ok, abi.pet_buffer_release(out[0]));
    try testing.expectEqual(@as(u64, 0), (try core.stats()).buffers_live);
}

/// `check(x, flag)` then a donated update: the failure must come before the update.
fn checked(core: *Core) !ir.Program {
    var b: Builder = .init(core.arena());
    const t = try b.internType(.f32, &.{2});
    const s = try b.internType(.bool, &.{});
    const x = try b.addInput(t, .{ .flags = .{ .donated = true } });
    const flag = try b.addInput(s, .{});
    const y = try b.emit(.{ .code = .add, .operands = &.{ x, x }, .result_types = &.{t} });
    const attrs = try ir_builder.attrWords(core.arena(), .check, .{ .code = 7 });
    const c = try b.emit(.{
        .code = .check,
        .operands = &.{ x, flag },
        .attrs = attrs,
        .result_types = &.{t},
    });
    const z = try b.emit(.{ .code = .negative, .operands = &.{c}, .result_types = &.{t} });
    return b.finish(&.{ .{ .value = y, .alias = .at(0) }, .{ .value = z } });
}

test "core: a failed check names its instruction and leaves donated inputs valid" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try checked(&core);
    for ([_]bool{ true, false }) |optimize| {
        const executable = try core.compile(&program, optimize);
        defer _ = abi.pet_executable_release(executable);
        const x = try core.upload(f32, &.{ 1, 2 });
        const no = try core.upload(u8, &.{0});
        defer _ = abi.pet_buffer_release(no);
        const yes = try core.upload(u8, &.{255});
        defer _ = abi.pet_buffer_release(yes);
        var out: [2]Handle = @splat(0);
        var e: abi_types.Error = .{};
        try testing.expectError(error.RunFailed, run(executable, &.{ x, no }, &out, &e));
        try expectStatus(.execution_failed, e.status);
        try testing.expectEqual(@as(u32, 1), e.instruction);
        try testing.expectEqual(@as(i64, 7), e.value);
        try testing.expectEqualSlices(f32, &.{ 1, 2 }, try view(f32, x));
        try run(executable, &.{ x, yes }, &out, &e);
        try testing.expectEqualSlices(f32, &.{ 2, 4 }, try view(f32, out[0]));
        try testing.expectEqualSlices(f32, &.{ -1, -2 }, try view(f32, out[1]));
        for (out) |h| try expectStatus(.ok, abi.pet_buffer_release(h));
    }
}

test "core: a warmed-up run allocates its outputs and nothing else" {
    var core: Core = try .init(2);
    defer core.deinit();
    for ([_]i64{ 100, 20_000_000 }) |count| {
        const program = try halves(&core, count, false);
        const executable = try core.compile(&program, false);
        defer _ = abi.pet_executable_release(executable);
        var x: Handle = 0;
        const bytes: u64 = @intCast(4 * count);
        try expectStatus(.ok, abi.pet_buffer_create(core.runtime, bytes, &x, null));
        defer _ = abi.pet_buffer_release(x);
        @memset(try view(f32, x), 2);
        var out: [1]Handle = .{0};
        var e: abi_types.Error = .{};
        try run(executable, &.{x}, &out, &e);
        try expectStatus(.ok, abi.pet_buffer_release(out[0]));
        try expectStatus(.ok, abi.pet_debug_fail_allocations(1));
        defer _ = abi.pet_debug_fail_allocations(0);
        const before = try core.stats();
        for (0..3) |_| {
            try run(executable, &.{x}, &out, &e);
            try testing.expectEqual(@as(f32, 3), (try view(f32, out[0]))[@intCast(count - 1)]);
            try expectStatus(.ok, abi.pet_buffer_release(out[0]));
        }
        const after = try core.stats();
        try testing.expectEqual(before.output_allocations + 3, after.output_allocations);
        try testing.expectEqual(before.workspace_bytes, after.workspace_bytes);
    }
}

test "core: a cancelled token stops runs before and during, and donated inputs stay valid" {
    var core: Core = try .init(2);
    defer core.deinit();
    for ([_]i64{ 100, 20_000_000 }) |count| {
        const program = try halves(&core, count, true);
        const executable = try core.compile(&program, true);
        defer _ = abi.pet_executable_release(executable);
        var x: Handle = 0;
        try expectStatus(.ok, abi.pet_buffer_create(core.runtime, @intCast(4 * count), &x, null));
        defer _ = abi.pet_buffer_release(x);
        var token: Handle = 0;
        try expectStatus(.ok, abi.pet_token_create(&token));
        defer _ = abi.pet_token_release(token);
        try expectStatus(.ok, abi.pet_token_cancel(token));
        var out: [1]Handle = .{0};
        var job: Handle = 0;
        var e: abi_types.Error = .{};
        var status = abi.pet_run_submit(executable, &.{x}, 1, &out, 1, token, &job, &e);
        if (job != 0) {
            var done: u32 = 0;
            while (done == 0) status = abi.pet_job_wait(job, 20, &done, &e);
            try expectStatus(.not_ready, abi.pet_job_result(job, &out, 1));
            try expectStatus(.ok, abi.pet_job_release(job));
        }
        try expectStatus(.cancelled, status);
        try testing.expectEqual(@as(usize, @intCast(count)), (try view(f32, x)).len);
    }
}

test "core: results nobody takes are freed with the job" {
    var core: Core = try .init(2);
    defer core.deinit();
    const count = 20_000_000;
    const program = try halves(&core, count, false);
    const executable = try core.compile(&program, true);
    defer _ = abi.pet_executable_release(executable);
    var x: Handle = 0;
    try expectStatus(.ok, abi.pet_buffer_create(core.runtime, 4 * count, &x, null));
    defer _ = abi.pet_buffer_release(x);
    for (0..4) |round| {
        var out: [1]Handle = .{0};
        var job: Handle = 0;
        var e: abi_types.Error = .{};
        const inputs = [_]Handle{x};
        try expectStatus(.ok, abi.pet_run_submit(executable, &inputs, 1, &out, 1, 0, &job, &e));
        try testing.expect(job != 0);
        var done: u32 = 0;
        if (round % 2 == 0) while (done == 0) {
            try expectStatus(.ok, abi.pet_job_wait(job, 20, &done, &e));
        };
        try expectStatus(.ok, abi.pet_job_release(job));
    }
    // A job released while it ran frees its result when it ends.
    var live: u64 = 0;
    for (0..10_000) |_| {
        live = (try core.stats()).buffers_live;
        if (live == 1) break;
        @import("os.zig").futexWaitFor(&std.atomic.Value(u32).init(0), 0, 1_000_000);
    }
    try testing.expectEqual(@as(u64, 1), live);
}

test "core: bound inputs are left out, and clones start unbound" {
    var core: Core = try .init(1);
    defer core.deinit();
    var b: Builder = .init(core.arena());
    const t = try b.internType(.f32, &.{2});
    const w = try b.addInput(t, .{});
    const x = try b.addInput(t, .{});
    const y = try b.emit(.{ .code = .multiply, .operands = &.{ w, x }, .result_types = &.{t} });
    const program = try b.finish(&.{.{ .value = y }});
    const executable = try core.compile(&program, true);
    defer _ = abi.pet_executable_release(executable);
    const weight = try core.upload(f32, &.{ 2, 3 });
    try expectStatus(.ok, abi.pet_executable_bind(executable, 0, weight));
    try expectStatus(.invalid_argument, abi.pet_executable_bind(executable, 0, weight));
    try expectStatus(.invalid_argument, abi.pet_executable_bind(executable, 5, weight));
    var clone: Handle = 0;
    try expectStatus(.ok, abi.pet_executable_clone(executable, &clone));
    defer _ = abi.pet_executable_release(clone);
    const h = try core.upload(f32, &.{ 10, 100 });
    defer _ = abi.pet_buffer_release(h);
    var out: [1]Handle = .{0};
    var e: abi_types.Error = .{};
    try run(clone, &.{ h, h }, &out, &e);
    try testing.expectEqualSlices(f32, &.{ 100, 10000 }, try view(f32, out[0]));
    try expectStatus(.ok, abi.pet_buffer_release(out[0]));
    try expectStatus(.ok, abi.pet_buffer_release(weight));
    try run(executable, &.{h}, &out, &e);
    try testing.expectEqualSlices(f32, &.{ 20, 300 }, try view(f32, out[0]));
    try expectStatus(.ok, abi.pet_buffer_release(out[0]));
}

test "core: malformed bytes and programs are statuses with a place" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try halves(&core, 4, false);
    const bytes = try wire_encode.encode(core.arena(), &program);
    try testing.expectError(error.JobFailed, core.compileBytes(bytes[0 .. bytes.len - 8], true));
    try testing.expectError(error.JobFailed, core.compileBytes(bytes[0..3], true));
    const broken = try core.arena().dupe(u8, bytes);
    broken[100] ^= 1;
    try testing.expectError(error.JobFailed, core.compileBytes(broken, true));
    var job: Handle = 0;
    const status = abi.pet_compile_submit(core.runtime, null, 0, null, 0, &job);
    try expectStatus(.invalid_argument, status);
    try testing.expectEqual(@as(u64, 0), (try core.stats()).executables);
}

test "core: explain writes valid JSON and says what it needs" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try halves(&core, 4, true);
    const executable = try core.compile(&program, true);
    defer _ = abi.pet_executable_release(executable);
    var needed: u64 = 0;
    try expectStatus(.ok, abi.pet_executable_explain(executable, null, 0, &needed));
    const text = try core.arena().alloc(u8, @intCast(needed));
    try expectStatus(.ok, abi.pet_executable_explain(executable, text.ptr, text.len, &needed));
    const parsed = try std.json.parseFromSliceLeaky(std.json.Value, core.arena(), text, .{});
    try testing.expectEqual(@as(i64, 2), parsed.object.get("program_instructions").?.integer);
    try testing.expectEqual(@as(i64, 1), parsed.object.get("instructions").?.integer);
    try testing.expectEqual(@as(usize, 1), parsed.object.get("regions").?.array.items.len);
    const kernel = parsed.object.get("kernels").?.array.items[0].object;
    try testing.expectEqual(@as(usize, 2), kernel.get("members").?.array.items.len);
}

/// `reduce_sum(x * x, axes)` of a float32 matrix.
fn sumOfSquares(core: *Core, dims: [2]i64, axes: []const i64, result: []const i64) !ir.Program {
    var b: Builder = .init(core.arena());
    const t = try b.internType(.f32, &dims);
    const r = try b.internType(.f32, result);
    const x = try b.addInput(t, .{});
    const q = try b.emit(.{ .code = .multiply, .operands = &.{ x, x }, .result_types = &.{t} });
    const s = try b.emit(.{
        .code = .reduce_sum,
        .operands = &.{q},
        .attrs = try ir_builder.attrWords(core.arena(), .reduce_sum, .{ .axes = axes }),
        .result_types = &.{r},
    });
    return b.finish(&.{.{ .value = s }});
}

test "core: reductions are done with their region, over all axes and over rows" {
    var core: Core = try .init(2);
    defer core.deinit();
    const shapes = [_][2]i64{ .{ 300, 700 }, .{ 1, 5 }, .{ 70_000, 3 }, .{ 2, 40_000 } };
    for (shapes) |dims| for ([_]bool{ true, false }) |whole| {
        const axes: []const i64 = if (whole) &.{ 0, 1 } else &.{1};
        const result: []const i64 = if (whole) &.{} else dims[0..1];
        const program = try sumOfSquares(&core, dims, axes, result);
        const executable = try core.compile(&program, true);
        defer _ = abi.pet_executable_release(executable);
        var info: abi_types.ExecutableInfo = .{};
        try expectStatus(.ok, abi.pet_executable_info(executable, &info));
        // Partial results are all that is kept, unless rows are too long to be taken whole.
        if (whole or dims[1] < 4096) {
            try testing.expectEqual(@as(u32, 1), info.planned_instructions);
            try testing.expect(info.arena_bytes <= 4096);
        }
        const values = try core.arena().alloc(f32, @intCast(dims[0] * dims[1]));
        for (values, 0..) |*v, i| v.* = @floatFromInt(i % 8);
        const x = try core.upload(f32, values);
        defer _ = abi.pet_buffer_release(x);
        var out: [1]Handle = .{0};
        var e: abi_types.Error = .{};
        try run(executable, &.{x}, &out, &e);
        defer _ = abi.pet_buffer_release(out[0]);
        // Squares of small integers: their sums are exact in float32.
        const row: usize = if (whole) values.len else @intCast(dims[1]);
        for (try view(f32, out[0]), 0..) |sum, r| {
            var expected: f32 = 0;
            for (values[r * row ..][0..row]) |v| expected += v * v;
            try testing.expectEqual(expected, sum);
        }
    };
}

test "core: a profile has a record for each kernel, and wants room for all" {
    var core: Core = try .init(2);
    defer core.deinit();
    const program = try halves(&core, 100_000, false);
    const executable = try core.compile(&program, false);
    defer _ = abi.pet_executable_release(executable);
    const x = try core.upload(f32, &@as([100_000]f32, @splat(1)));
    defer _ = abi.pet_buffer_release(x);
    var out: [1]Handle = .{0};
    var job: Handle = 0;
    var e: abi_types.Error = .{};
    var records: [3]abi_types.Record = @splat(.{ .calls = 99 });
    const profile = abi.pet_run_profile;
    const wrong = profile(executable, &.{x}, 1, &out, 1, 0, &records, 3, &job, &e);
    try expectStatus(.invalid_argument, wrong);
    const none = profile(executable, &.{x}, 1, &out, 1, 0, null, 2, &job, &e);
    try expectStatus(.invalid_argument, none);
    for (0..2) |_| {
        try expectStatus(.ok, profile(executable, &.{x}, 1, &out, 1, 0, &records, 2, &job, &e));
        if (job != 0) {
            defer _ = abi.pet_job_release(job);
            try finish(job, &e);
            try expectStatus(.ok, abi.pet_job_result(job, &out, 1));
        }
        try expectStatus(.ok, abi.pet_buffer_release(out[0]));
        try testing.expectEqual(@as(u64, 1), records[0].calls);
        try testing.expectEqual(@as(u64, 1), records[1].calls);
        try testing.expect(records[0].ns > 0);
        try testing.expect(records[1].start_ns >= records[0].start_ns + records[0].ns);
    }
    try testing.expectEqual(@as(u64, 99), records[2].calls); // not ours to write
}

test "core: trimming gives kept memory back" {
    var core: Core = try .init(1);
    defer core.deinit();
    const program = try halves(&core, 100_000, false);
    const executable = try core.compile(&program, false);
    defer _ = abi.pet_executable_release(executable);
    const x = try core.upload(f32, &@as([100_000]f32, @splat(1)));
    var out: [1]Handle = .{0};
    var e: abi_types.Error = .{};
    try run(executable, &.{x}, &out, &e);
    try expectStatus(.ok, abi.pet_buffer_release(out[0]));
    try expectStatus(.ok, abi.pet_buffer_release(x));
    var s = try core.stats();
    try testing.expect(s.cached_bytes > 0 and s.workspace_bytes > 0);
    try expectStatus(.ok, abi.pet_runtime_trim(core.runtime));
    s = try core.stats();
    try testing.expectEqual(@as(u64, 0), s.cached_bytes + s.workspace_bytes);
}
