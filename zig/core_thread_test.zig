//! The core under several threads, under a fork, and while it is being closed.
const std = @import("std");
const builtin = @import("builtin");
const testing = std.testing;
const abi = @import("abi.zig");
const abi_types = @import("abi_types.zig");
const core_test = @import("core_test.zig");
const ir = @import("ir.zig");
const Builder = ir.Builder;
const Core = core_test.Core;
const Handle = abi_types.Handle;

/// `y = tanh(x) + x` of `count` elements.
fn program(core: *Core, count: i64, donated: bool) !ir.Program {
    var b: Builder = .init(core.arena());
    const t = try b.internType(.f32, &.{count});
    const x = try b.addInput(t, .{ .flags = .{ .donated = donated } });
    const h = try b.emit(.{ .code = .tanh, .operands = &.{x}, .result_types = &.{t} });
    const y = try b.emit(.{ .code = .add, .operands = &.{ h, x }, .result_types = &.{t} });
    return b.finish(&.{.{ .value = y, .alias = if (donated) .at(0) else null }});
}

const Shared = struct {
    core: *Core,
    executable: Handle,
    input: Handle,
    failures: std.atomic.Value(u32) = .init(0),

    fn work(s: *Shared, rounds: u32) void {
        for (0..rounds) |_| s.once() catch {
            _ = s.failures.fetchAdd(1, .monotonic);
        };
    }

    fn once(s: *Shared) !void {
        var out: [1]Handle = .{0};
        var e: abi_types.Error = .{};
        try core_test.run(s.executable, &.{s.input}, &out, &e);
        defer _ = abi.pet_buffer_release(out[0]);
        const x = try core_test.view(f32, s.input);
        const y = try core_test.view(f32, out[0]);
        for (x, y) |a, b| try testing.expectApproxEqRel(std.math.tanh(a) + a, b, 1e-6);
    }
};

test "core: threads share a runtime, an executable and its inputs" {
    var core: Core = try .init(2);
    defer core.deinit();
    for ([_]i64{ 300, 600_000 }) |count| {
        const p = try program(&core, count, false);
        const executable = try core.compile(&p, true);
        defer _ = abi.pet_executable_release(executable);
        const values = try core.arena().alloc(f32, @intCast(count));
        for (values, 0..) |*v, i| v.* = @as(f32, @floatFromInt(i % 1000)) / 250 - 2;
        const input = try core.upload(f32, values);
        defer _ = abi.pet_buffer_release(input);
        var shared: Shared = .{ .core = &core, .executable = executable, .input = input };
        const rounds: u32 = if (count < 1000) 200 else 3;
        var threads: [4]std.Thread = undefined;
        for (&threads) |*t| t.* = try .spawn(.{}, Shared.work, .{ &shared, rounds });
        for (0..3) |n| try testing.expectEqual(
            @as(u32, 0),
            abi.pet_runtime_set_threads(core.runtime, @intCast(1 + n)),
        );
        for (threads) |t| t.join();
        try testing.expectEqual(@as(u32, 0), shared.failures.load(.monotonic));
    }
    try testing.expectEqual(@as(u64, 0), (try core.stats()).buffers_live);
}

const Donors = struct {
    executable: Handle,
    input: Handle,
    wins: std.atomic.Value(u32) = .init(0),

    fn work(d: *Donors) void {
        var out: [1]Handle = .{0};
        var e: abi_types.Error = .{};
        core_test.run(d.executable, &.{d.input}, &out, &e) catch return;
        _ = d.wins.fetchAdd(1, .monotonic);
        _ = abi.pet_buffer_release(out[0]);
    }
};

test "core: of many donations of one buffer at most one succeeds" {
    var core: Core = try .init(1);
    defer core.deinit();
    const p = try program(&core, 64, true);
    const executable = try core.compile(&p, true);
    defer _ = abi.pet_executable_release(executable);
    for (0..100) |_| {
        const values: [64]f32 = @splat(0.5);
        var donors: Donors = .{ .executable = executable, .input = try core.upload(f32, &values) };
        var threads: [3]std.Thread = undefined;
        for (&threads) |*t| t.* = try .spawn(.{}, Donors.work, .{&donors});
        for (threads) |t| t.join();
        try testing.expectEqual(@as(u32, 1), donors.wins.load(.monotonic));
    }
    try testing.expectEqual(@as(u64, 0), (try core.stats()).buffers_live);
}

test "core: destroying a runtime cancels and drains what is running" {
    var core: Core = try .init(2);
    const count = 30_000_000;
    const p = try program(&core, count, false);
    const executable = try core.compile(&p, true);
    var x: Handle = 0;
    try testing.expectEqual(@as(u32, 0), abi.pet_buffer_create(core.runtime, 4 * count, &x, null));
    @memset(try core_test.view(f32, x), 1);
    var jobs: [3]Handle = @splat(0);
    var out: [1]Handle = .{0};
    const inputs = [_]Handle{x};
    for (&jobs) |*job| {
        const status = abi.pet_run_submit(executable, &inputs, 1, &out, 1, 0, job, null);
        try testing.expectEqual(@as(u32, 0), status);
    }
    core.deinit();
    for (jobs) |job| {
        var done: u32 = 0;
        const status = abi.pet_job_wait(job, 0, &done, null);
        try testing.expectEqual(@as(u32, 1), done);
        try testing.expect(status == 0 or status == @backingInt(abi_types.Status.cancelled));
        try testing.expectEqual(@as(u32, 0), abi.pet_job_release(job));
    }
    // Buffers outlive the runtime.
    try testing.expectEqual(@as(f32, 1), (try core_test.view(f32, x))[count - 1]);
    try testing.expectEqual(@as(u32, 0), abi.pet_buffer_release(x));
    try testing.expectEqual(@as(u32, 0), abi.pet_executable_release(executable));
}

extern "c" fn fork() c_int;
extern "c" fn waitpid(pid: c_int, status: *c_int, options: c_int) c_int;
extern "c" fn _exit(status: c_int) noreturn;

test "core: a forked child computes, on its own threads" {
    if (builtin.os.tag == .windows) return error.SkipZigTest;
    var core: Core = try .init(2);
    defer core.deinit();
    const count = 3_000_000;
    const p = try program(&core, count, false);
    const executable = try core.compile(&p, true);
    defer _ = abi.pet_executable_release(executable);
    var x: Handle = 0;
    try testing.expectEqual(@as(u32, 0), abi.pet_buffer_create(core.runtime, 4 * count, &x, null));
    defer _ = abi.pet_buffer_release(x);
    @memset(try core_test.view(f32, x), 0.25);
    var shared: Shared = .{ .core = &core, .executable = executable, .input = x };
    shared.work(1);
    const child = fork();
    try testing.expect(child >= 0);
    if (child == 0) {
        shared.work(2);
        _exit(if (shared.failures.load(.monotonic) == 0) 0 else 1);
    }
    var status: c_int = -1;
    try testing.expectEqual(child, waitpid(child, &status, 0));
    try testing.expectEqual(@as(c_int, 0), status);
    shared.work(1);
    try testing.expectEqual(@as(u32, 0), shared.failures.load(.monotonic));
}
