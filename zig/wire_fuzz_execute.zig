//! The last step of the fuzzer: a program that type-checks is compiled and run on random inputs,
//! under small limits. Every buffer is followed by bytes that no kernel may touch.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("abi_types.zig");
const compile = @import("compile.zig");
const executor = @import("cpu/executor.zig");
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
    /// A kernel wrote behind its memory.
    overrun,
};

pub const Executor = struct {
    pool: Pool,
    kernels: kernel_table.Choice,

    pub fn init() Executor {
        return .{ .pool = .init(1), .kernels = kernel_table.choose() };
    }

    pub fn deinit(x: *Executor) void {
        x.pool.deinit();
    }

    /// Compiles and runs `bytes`.
    pub fn execute(
        x: *Executor,
        gpa: Allocator,
        random: std.Random,
        bytes: []const u8,
        optimize: bool,
    ) Allocator.Error!Outcome {
        var control: Control = .{};
        var details: abi.Error = .{};
        var plan = compile.compile(gpa, bytes, .{
            .optimize = optimize,
            .kernels = x.kernels,
            .control = &control,
        }, &details) catch |failure| switch (failure) {
            error.OutOfMemory => return error.OutOfMemory,
            else => return .refused,
        };
        defer plan.deinit();
        if (!isSmall(&plan)) return .too_large;
        var arena: std.heap.ArenaAllocator = .init(gpa);
        defer arena.deinit();
        return x.run(arena.allocator(), random, &plan, &control);
    }

    fn run(
        x: *Executor,
        arena: Allocator,
        random: std.Random,
        plan: *const plans.Plan,
        control: *Control,
    ) Allocator.Error!Outcome {
        const bases = try arena.alloc([*]u8, plan.baseCount());
        var guarded: std.ArrayList([]u8) = .empty;
        bases[0] = (try guardedBytes(arena, &guarded, plan.arena_bytes)).ptr;
        bases[1] = @constCast(plan.constants.ptr);
        for (plan.inputs, 0..) |input, i| {
            const memory = try guardedBytes(arena, &guarded, input.bytes);
            const count: i64 = @intCast(input.bytes / input.dtype.bytes());
            const values = try wire_fuzz_generate.randomBytes(arena, random, .{
                .dtype = input.dtype,
                .dims = &.{count},
            });
            @memcpy(memory[0..values.len], values);
            bases[plans.Plan.inputBase(i)] = memory.ptr;
        }
        for (plan.outputs, 0..) |output, i| {
            const in_place = output.alias != plans.no_alias and random.boolean();
            bases[plan.outputBase(i)] = if (in_place)
                bases[plans.Plan.inputBase(output.alias)]
            else
                (try guardedBytes(arena, &guarded, output.bytes)).ptr;
        }
        const stride = std.mem.alignForward(u64, plan.scratch_bytes, 64);
        const scratch = try guardedBytes(arena, &guarded, 2 * stride);
        var execution: executor.Execution = .{
            .plan = plan,
            .table = x.kernels.table,
            .pool = &x.pool,
            .control = control,
            .bases = bases,
            .pointers = try arena.alloc([*]u8, plan.pointer_count_max),
            .scratch = scratch.ptr,
            .scratch_stride = stride,
            .worker_count = 1,
        };
        const outcome = execution.run();
        for (guarded.items, 0..) |guard, n| {
            if (std.mem.allEqual(u8, guard, guard_value)) continue;
            std.debug.print("overrun of memory {d}: arena, inputs, outputs, scratch\n", .{n});
            return .overrun;
        }
        return switch (outcome) {
            .completed => .completed,
            .cancelled, .failed => .failed,
        };
    }
};

fn isSmall(plan: *const plans.Plan) bool {
    var total = plan.arena_bytes +| plan.scratch_bytes;
    for (plan.inputs) |input| total +|= input.bytes;
    for (plan.outputs) |output| total +|= output.bytes;
    return total <= memory_bytes_max and plan.cost_ns <= cost_ns_max;
}

fn guardedBytes(
    arena: Allocator,
    guarded: *std.ArrayList([]u8),
    bytes: u64,
) Allocator.Error![]align(64) u8 {
    const count: usize = @intCast(bytes);
    const memory = try arena.alignedAlloc(u8, .@"64", count + guard_bytes);
    // Undefined memory is anything: make it something that is no valid float or index.
    @memset(memory[0..count], 0xff);
    @memset(memory[count..], guard_value);
    try guarded.append(arena, memory[count..]);
    return memory;
}
