//! Executables: a plan, shared and immutable, and the buffers bound to some of its inputs.
const std = @import("std");
const abi = @import("../abi_types.zig");
const failure = @import("failure.zig");
const handles = @import("handle.zig");
const memory = @import("memory.zig");
const os = @import("../os.zig");
const Buffer = @import("buffer.zig").Buffer;
const Failure = failure.Failure;
const Handle = abi.Handle;
const Plan = @import("../plan.zig").Plan;
const Runtime = @import("runtime.zig").Runtime;

pub const SharedPlan = struct {
    refs: handles.Refs = .{},
    plan: Plan,

    pub fn create(plan: Plan) error{OutOfMemory}!*SharedPlan {
        const shared = try memory.gpa.create(SharedPlan);
        shared.* = .{ .plan = plan };
        return shared;
    }

    pub fn drop(shared: *SharedPlan) void {
        if (!shared.refs.drop()) return;
        shared.plan.deinit();
        memory.gpa.destroy(shared);
    }
};

pub const Executable = struct {
    pub const handle_kind: handles.Kind = .executable;
    refs: handles.Refs = .{},
    runtime: *Runtime,
    shared: *SharedPlan,
    /// Guards `bound` and `unbound_count`.
    mutex: os.Mutex = .{},
    /// By input; a binding holds a reference.
    bound: []?*Buffer,
    unbound_count: u32,
    /// Donations that could not be written in place because of an export or another owner.
    donations_copied: std.atomic.Value(u64) = .init(0),

    /// An executable with nothing bound. Takes over the reference of `shared`, also on failure.
    pub fn create(runtime: *Runtime, shared: *SharedPlan) error{OutOfMemory}!*Executable {
        errdefer shared.drop();
        const bound = try memory.gpa.alloc(?*Buffer, shared.plan.inputs.len);
        errdefer memory.gpa.free(bound);
        const executable = try memory.gpa.create(Executable);
        @memset(bound, null);
        runtime.refs.add();
        _ = runtime.executables.fetchAdd(1, .monotonic);
        executable.* = .{
            .runtime = runtime,
            .shared = shared,
            .bound = bound,
            .unbound_count = @intCast(bound.len),
        };
        return executable;
    }

    pub fn drop(executable: *Executable) void {
        if (!executable.refs.drop()) return;
        const runtime = executable.runtime;
        for (executable.bound) |bound| if (bound) |buffer| buffer.drop();
        memory.gpa.free(executable.bound);
        executable.shared.drop();
        memory.gpa.destroy(executable);
        _ = runtime.executables.fetchSub(1, .monotonic);
        runtime.drop();
    }

    pub fn bind(executable: *Executable, input: u32, handle: Handle) Failure!void {
        const inputs = executable.shared.plan.inputs;
        if (input >= inputs.len or inputs[input].donated) return error.InvalidArgument;
        const buffer = handles.table.acquire(Buffer, handle) orelse return error.InvalidHandle;
        errdefer buffer.drop();
        if (buffer.bytes < inputs[input].bytes or buffer.claimed) return error.InvalidArgument;
        if (inputs[input].dtype == .bool) buffer.normaliseBooleans();
        handles.table.mutex.lock(); // a fork waits for this one, and so finds the next one free
        defer handles.table.mutex.unlock();
        executable.mutex.lock();
        defer executable.mutex.unlock();
        if (executable.bound[input] != null) return error.InvalidArgument;
        executable.bound[input] = buffer;
        executable.unbound_count -= 1;
    }

    pub fn info(executable: *Executable) abi.ExecutableInfo {
        const plan = &executable.shared.plan;
        var output_bytes: u64 = 0;
        for (plan.outputs) |output| output_bytes += output.bytes;
        handles.table.mutex.lock();
        defer handles.table.mutex.unlock();
        executable.mutex.lock();
        defer executable.mutex.unlock();
        return .{
            .inputs = @intCast(plan.inputs.len),
            .unbound_inputs = executable.unbound_count,
            .outputs = @intCast(plan.outputs.len),
            .instructions = plan.program_instructions,
            .planned_instructions = @intCast(plan.instructions.len),
            .commit_point = plan.commit_point,
            .arena_bytes = plan.arena_bytes,
            .constant_bytes = plan.constants.len,
            .output_bytes = output_bytes,
            .scratch_bytes = plan.scratch_bytes,
            .cost_ns = plan.cost_ns,
            .compile_ns = plan.compile_ns,
        };
    }
};
