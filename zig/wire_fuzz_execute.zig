//! The last step of the fuzzer: a program that type-checks is compiled with and without
//! optimisation and each plan is run twice on the same random inputs, under small limits. Every
//! buffer is followed by bytes that no kernel may touch. The two runs of a plan differ in what
//! fresh memory holds and in whether outputs take the memory of donated inputs, and must give the
//! same bits; so must the two plans if the program computes with integers only.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("abi_types.zig");
const compile = @import("compile.zig");
const executor = @import("cpu/executor.zig");
const kernel_abi = @import("cpu/kernel_abi.zig");
const ir = @import("ir.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const plans = @import("plan.zig");
const wire_fuzz_generate = @import("wire_fuzz_generate.zig");
const Control = @import("runtime/control.zig").Control;
const Pool = @import("cpu/pool.zig").Pool;

/// Arena, scratch, inputs and outputs together, in bytes.
const memory_bytes_max = 16 << 20;
/// The planner's own estimate of the run.
const cost_ns_max = 20_000_000;
const guard_bytes = 64;
const guard_value = 0xa5;

pub const Outcome = enum {
    /// The compiler said no.
    refused,
    /// Compiled, but above the limits here.
    too_large,
    completed,
    /// The run ended with an error that it is allowed to end with.
    failed,
    /// It took too long and was cancelled: a loop that was broken need not end.
    cancelled,
    /// A kernel wrote behind its memory.
    overrun,
    /// Two runs that must give the same bits did not.
    differs,
};

/// What one run left behind.
const Result = struct {
    outcome: Outcome,
    outputs: []const []const u8,
    /// Which calls in which order on which data.
    host_calls: u64 = 0,
};

const RunOptions = struct { fill: u8, in_place: bool };

pub const Executor = struct {
    pool: Pool,
    kernels: kernel_table.Choice,

    pub fn init() Executor {
        return .{ .pool = .init(1), .kernels = kernel_table.choose() };
    }

    pub fn deinit(x: *Executor) void {
        x.pool.deinit();
    }

    /// Compiles and runs `bytes`, which hold `program`.
    pub fn execute(
        x: *Executor,
        gpa: Allocator,
        random: std.Random,
        bytes: []const u8,
        program: *const ir.Program,
    ) Allocator.Error!Outcome {
        var arena: std.heap.ArenaAllocator = .init(gpa);
        defer arena.deinit();
        var inputs: ?[]const []const u8 = null;
        var last: ?Result = null;
        for ([_]bool{ false, true }) |optimize| {
            var plan = (try x.compiled(gpa, bytes, optimize)) orelse return .refused;
            defer plan.deinit();
            if (!isSmall(&plan)) return .too_large;
            if (inputs == null) inputs = try randomInputs(arena.allocator(), random, &plan);
            const fresh: RunOptions = .{ .fill = 0xff, .in_place = false };
            const reused: RunOptions = .{ .fill = 0, .in_place = true };
            const first = try x.run(arena.allocator(), &plan, inputs.?, fresh);
            const second = try x.run(arena.allocator(), &plan, inputs.?, reused);
            for ([_]Result{ first, second }) |result| switch (result.outcome) {
                .overrun, .cancelled => return result.outcome,
                else => {},
            };
            if (!areEqual(first, second)) return .differs;
            if (last) |result| {
                if (isExact(program) and !areEqual(result, first)) return .differs;
            }
            last = first;
        }
        return last.?.outcome;
    }

    fn compiled(
        x: *Executor,
        gpa: Allocator,
        bytes: []const u8,
        optimize: bool,
    ) Allocator.Error!?plans.Plan {
        var control: Control = .{};
        var details: abi.Error = .{};
        return compile.compile(gpa, bytes, .{
            .optimize = optimize,
            .verify_passes = true,
            .kernels = x.kernels,
            .control = &control,
        }, &details) catch |failure| switch (failure) {
            error.OutOfMemory => error.OutOfMemory,
            else => null,
        };
    }

    fn run(
        x: *Executor,
        arena: Allocator,
        plan: *const plans.Plan,
        inputs: []const []const u8,
        options: RunOptions,
    ) Allocator.Error!Result {
        var memory: Memory = .{ .arena = arena, .fill = options.fill };
        const bases = try arena.alloc([*]u8, plan.baseCount());
        bases[0] = (try memory.take(plan.arena_bytes)).ptr;
        bases[1] = @constCast(plan.constants.ptr);
        for (inputs, 0..) |input, i| {
            const copy = try memory.take(input.len);
            @memcpy(copy, input);
            bases[plans.Plan.inputBase(i)] = copy.ptr;
        }
        const outputs = try arena.alloc([]const u8, plan.outputs.len);
        for (outputs, plan.outputs, 0..) |*to, output, i| {
            const in_place = options.in_place and output.alias != plans.no_alias;
            to.* = if (in_place)
                bases[plans.Plan.inputBase(output.alias)][0..@intCast(output.bytes)]
            else
                try memory.take(output.bytes);
            bases[plan.outputBase(i)] = @constCast(to.ptr);
        }
        const stride = std.mem.alignForward(u64, plan.scratch_bytes, 64);
        const scratch = try memory.take(2 * stride);
        var control: Control = .{};
        var host: HostLog = .{};
        watchdog.watch(&control);
        defer watchdog.stop();
        var execution: executor.Execution = .{
            .plan = plan,
            .table = x.kernels.table,
            .pool = &x.pool,
            .control = &control,
            .host = .{ .context = &host, .call = HostLog.note },
            .bases = bases,
            .words = try arena.alloc(u64, @intCast(plan.table_words)),
            .scratch = scratch.ptr,
            .scratch_stride = stride,
            .worker_count = 1,
        };
        const outcome = execution.run();
        if (!memory.isWhole()) return .{ .outcome = .overrun, .outputs = &.{} };
        return switch (outcome) {
            .completed => .{ .outcome = .completed, .outputs = outputs, .host_calls = host.hash },
            .cancelled => .{ .outcome = .cancelled, .outputs = &.{} },
            // What was called before the failure depends on the order of the plan.
            .failed => .{ .outcome = .failed, .outputs = &.{} },
        };
    }
};

/// Answers every call and remembers what it was.
const HostLog = struct {
    hash: u64 = 0,

    fn note(context: *anyopaque, request: executor.HostRequest) kernel_abi.Status {
        const log: *HostLog = @ptrCast(@alignCast(context));
        var hasher: std.hash.Wyhash = .init(log.hash);
        hasher.update(std.mem.asBytes(&request.call.id));
        for (request.call.operands, request.operands) |operand, data| {
            const t: ir.Type = .{ .dtype = operand.dtype, .dims = operand.dims };
            hasher.update(data[0..@intCast(t.byteCount())]);
        }
        log.hash = hasher.final();
        return .{};
    }
};

/// Cancels a run after a moment, by the signal of a timer that the fuzzer's own alarm leaves free.
pub const watchdog = struct {
    const run_ms_max = 200;
    var watched: std.atomic.Value(?*Control) = .init(null);

    const Time = extern struct { seconds: c_long, microseconds: c_long };
    const Timer = extern struct { interval: Time, value: Time };
    extern "c" fn setitimer(which: c_int, new: *const Timer, old: ?*Timer) c_int;

    fn watch(control: *Control) void {
        watched.store(control, .release);
        set(run_ms_max);
    }

    fn stop() void {
        set(0);
        watched.store(null, .release);
    }

    fn set(milliseconds: c_long) void {
        const zero: Time = .{ .seconds = 0, .microseconds = 0 };
        const value: Time = .{ .seconds = 0, .microseconds = milliseconds * 1000 };
        const virtual = 1; // counts the time this process computes
        _ = setitimer(virtual, &.{ .interval = zero, .value = value }, null);
    }

    /// For a signal handler.
    pub fn bark() void {
        if (watched.load(.acquire)) |control| _ = control.cancel();
    }
};

/// Buffers of one run, each with guard bytes behind it.
const Memory = struct {
    arena: Allocator,
    /// What fresh memory holds.
    fill: u8,
    guards: std.ArrayList([]const u8) = .empty,

    fn take(m: *Memory, bytes: u64) Allocator.Error![]align(64) u8 {
        const count: usize = @intCast(bytes);
        const block = try m.arena.alignedAlloc(u8, .@"64", count + guard_bytes);
        @memset(block[0..count], m.fill);
        @memset(block[count..], guard_value);
        try m.guards.append(m.arena, block[count..]);
        return block[0..count];
    }

    fn isWhole(m: *const Memory) bool {
        for (m.guards.items, 0..) |guard, n| {
            if (std.mem.allEqual(u8, guard, guard_value)) continue;
            std.debug.print("overrun of memory {d}: arena, inputs, outputs, scratch\n", .{n});
            return false;
        }
        return true;
    }
};

fn randomInputs(
    arena: Allocator,
    random: std.Random,
    plan: *const plans.Plan,
) Allocator.Error![]const []const u8 {
    const inputs = try arena.alloc([]const u8, plan.inputs.len);
    for (inputs, plan.inputs) |*to, input| {
        const count: i64 = @intCast(input.bytes / input.dtype.bytes());
        const t: ir.Type = .{ .dtype = input.dtype, .dims = &.{count} };
        to.* = try wire_fuzz_generate.randomBytes(arena, random, t);
    }
    return inputs;
}

fn areEqual(a: Result, b: Result) bool {
    if (a.outcome != b.outcome) return false;
    if (a.host_calls != b.host_calls) {
        std.debug.print("host calls differ\n", .{});
        return false;
    }
    for (a.outputs, b.outputs, 0..) |x, y, n| {
        if (std.mem.eql(u8, x, y)) continue;
        std.debug.print("output {d} differs\n", .{n});
        return false;
    }
    return true;
}

/// No value is a float, so that every plan gives the same bits.
fn isExact(program: *const ir.Program) bool {
    for (program.blocks) |*block| if (!isExact(block)) return false;
    for (program.value_types) |t| {
        if (program.types[t.index()].dtype.isFloat()) return false;
    }
    return true;
}

fn isSmall(plan: *const plans.Plan) bool {
    var total = plan.arena_bytes +| plan.scratch_bytes;
    for (plan.inputs) |input| total +|= input.bytes;
    for (plan.outputs) |output| total +|= output.bytes;
    return total <= memory_bytes_max and plan.cost_ns <= cost_ns_max;
}
