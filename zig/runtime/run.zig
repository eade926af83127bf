//! One run of an executable. It leases a workspace, claims its inputs, makes its outputs, executes,
//! and then either commits (publishes outputs, consumes donations) or aborts (everything as
//! before). Its tables live in the workspace: a warmed-up run allocates its outputs and nothing
//! else.
const std = @import("std");
const assert = std.debug.assert;
const abi = @import("../abi_types.zig");
const executor = @import("../cpu/executor.zig");
const failure = @import("failure.zig");
const handles = @import("handle.zig");
const kernel_abi = @import("../cpu/kernel_abi.zig");
const plans = @import("../plan.zig");
const Buffer = @import("buffer.zig").Buffer;
const Control = @import("control.zig").Control;
const Executable = @import("executable.zig").Executable;
const Failure = failure.Failure;
const Handle = abi.Handle;
const Plan = plans.Plan;
const Workspace = @import("workspace.zig").Workspace;

pub const Run = struct {
    /// Holds a reference.
    executable: *Executable,
    workspace: Workspace,
    worker_count: u32,
    bases: [][*]u8,
    /// Tables of the executor.
    words: []u64,
    /// By input; each holds a reference. Null: bound, the executable holds it.
    inputs: []?*Buffer,
    input_handles: []Handle,
    /// Donated inputs below this index are claimed.
    claimed_end: u32,
    /// By output; each holds the reference that its handle will own.
    outputs: []?*Buffer,
    /// Reserved before the run starts, so that publishing cannot fail.
    output_handles: []Handle,
    /// By instruction of the plan and of its blocks, or none: times, in memory of the caller.
    records: []abi.Record = &.{},

    /// Leases, claims and allocates. On failure nothing has changed.
    pub fn begin(executable: *Executable, given: []const Handle, e: *abi.Error) Failure!Run {
        var run = try lease(executable);
        errdefer run.abort();
        try run.claim(given, e);
        for (run.plan().inputs, run.inputs) |input, maybe| {
            if (input.dtype != .bool) continue;
            if (maybe) |buffer| buffer.normaliseBooleans();
        }
        try run.makeOutputs();
        run.setBases();
        return run;
    }

    inline fn plan(run: *const Run) *const Plan {
        return &run.executable.shared.plan;
    }

    fn lease(executable: *Executable) error{OutOfMemory}!Run {
        const p = &executable.shared.plan;
        const runtime = executable.runtime;
        const worker_count = runtime.pool.threadCount();
        const words = p.baseCount() + p.table_words + 2 * (p.inputs.len + p.outputs.len);
        // Never none: a run wants an aligned address even if it keeps nothing there.
        const bytes = @max(64, p.arena_bytes + (worker_count + 1) * p.scratch_bytes);
        const workspace = try runtime.workspaces.lease(bytes, words);
        executable.refs.add();
        var rest = workspace.words[0..words];
        const run: Run = .{
            .executable = executable,
            .workspace = workspace,
            .worker_count = worker_count,
            .bases = @ptrCast(take(&rest, p.baseCount())),
            .words = take(&rest, p.table_words),
            .inputs = @ptrCast(take(&rest, p.inputs.len)),
            .input_handles = take(&rest, p.inputs.len),
            .claimed_end = 0,
            .outputs = @ptrCast(take(&rest, p.outputs.len)),
            .output_handles = take(&rest, p.outputs.len),
        };
        assert(rest.len == 0);
        @memset(run.inputs, null);
        @memset(run.outputs, null);
        @memset(run.output_handles, 0);
        return run;
    }

    fn take(rest: *[]u64, count: u64) []u64 {
        const taken = rest.*[0..count];
        rest.* = rest.*[count..];
        return taken;
    }

    /// Finds the buffers of all unbound inputs under one lock, then claims the donated ones and
    /// decides which of them can be overwritten in place.
    fn claim(run: *Run, given: []const Handle, e: *abi.Error) Failure!void {
        const executable = run.executable;
        handles.table.mutex.lock();
        defer handles.table.mutex.unlock();
        executable.mutex.lock();
        defer executable.mutex.unlock();
        if (given.len != executable.unbound_count) {
            const text = "the program takes {d} unbound inputs, {d} were given";
            const counts = .{ executable.unbound_count, given.len };
            return failure.say(e, error.InvalidArgument, .run, text, counts);
        }
        var next: usize = 0;
        for (executable.bound, 0..) |bound, index| {
            if (bound != null) continue;
            try run.claimInput(index, given[next], e);
            next += 1;
        }
        for (run.plan().inputs, run.inputs, 0..) |input, maybe, index| {
            run.claimed_end = @intCast(index);
            if (!input.donated) continue;
            if (maybe.?.claimed) {
                const text = "input {d}: the same buffer is donated twice";
                return failure.say(e, error.InvalidArgument, .run, text, .{index});
            }
            maybe.?.claimed = true;
        }
        run.claimed_end = @intCast(run.inputs.len);
        run.chooseInPlace();
        try handles.table.reserveLocked(@intCast(run.outputs.len));
        for (run.output_handles) |*handle| {
            handle.* = handles.table.insertLocked(.reserved, run.executable);
        }
    }

    fn claimInput(run: *Run, index: usize, handle: Handle, e: *abi.Error) Failure!void {
        const needed = run.plan().inputs[index].bytes;
        const slot = handles.table.findLocked(.buffer, handle) orelse {
            const text = "input {d}: the buffer was released or donated";
            return failure.say(e, error.InvalidHandle, .run, text, .{index});
        };
        const buffer: *Buffer = @ptrCast(@alignCast(slot.object));
        if (buffer.claimed) {
            const text = "input {d}: the buffer is donated to a run in flight";
            return failure.say(e, error.InvalidHandle, .run, text, .{index});
        }
        if (buffer.bytes < needed) {
            const text = "input {d} needs {d} bytes, the buffer has {d}";
            const values = .{ index, needed, buffer.bytes };
            return failure.say(e, error.InvalidArgument, .run, text, values);
        }
        buffer.refs.add();
        run.inputs[index] = buffer;
        run.input_handles[index] = handle;
    }

    fn chooseInPlace(run: *Run) void {
        for (run.plan().outputs, run.outputs) |output, *to| {
            if (output.alias == plans.no_alias) continue;
            const buffer = run.inputs[output.alias].?;
            const handle = run.input_handles[output.alias];
            const slot = handles.table.findLocked(.buffer, handle).?;
            // The handle's reference and this run's. One more is an export, a binding or a run.
            const exclusive = buffer.refs.value() == 2 and slot.owners == 1;
            const ours = buffer.foreign == null;
            if (!exclusive or !ours or buffer.bytes != output.bytes) {
                _ = run.executable.donations_copied.fetchAdd(1, .monotonic);
                continue;
            }
            buffer.refs.add();
            to.* = buffer;
        }
    }

    fn makeOutputs(run: *Run) error{OutOfMemory}!void {
        const store = run.executable.runtime.store;
        for (run.plan().outputs, run.outputs) |output, *to| {
            if (to.* == null) to.* = try Buffer.create(store, output.bytes);
            to.*.?.booleans = output.dtype == .bool;
        }
    }

    fn setBases(run: *Run) void {
        const p = run.plan();
        run.bases[@backingInt(plans.Base.arena)] = run.workspace.block.ptr;
        run.bases[@backingInt(plans.Base.constants)] = @constCast(p.constants.ptr);
        for (run.inputs, run.executable.bound, 0..) |maybe, bound, index| {
            run.bases[Plan.inputBase(index)] = (maybe orelse bound.?).data();
        }
        for (run.outputs, 0..) |maybe, index| run.bases[p.outputBase(index)] = maybe.?.data();
    }

    /// Runs the plan; `host` may be null if it calls none. Must be followed by `commit` if that
    /// succeeds, by `abort` otherwise.
    pub fn execute(
        run: *Run,
        control: *Control,
        host: ?executor.Host,
        e: *abi.Error,
    ) Failure!void {
        const p = run.plan();
        const runtime = run.executable.runtime;
        var execution: executor.Execution = .{
            .plan = p,
            .table = runtime.kernels.table,
            .pool = &runtime.pool,
            .control = control,
            .bases = run.bases,
            .words = run.words,
            .host = host,
            .records = run.records,
            .scratch = @alignCast(run.workspace.block.ptr + p.arena_bytes),
            .scratch_stride = p.scratch_bytes,
            .worker_count = run.worker_count,
        };
        switch (execution.run()) {
            .completed => _ = runtime.runs.fetchAdd(1, .monotonic),
            .cancelled => return error.Cancelled,
            .failed => |f| return describe(f.instruction, f.status, control, e),
        }
    }

    fn describe(
        instruction: *const plans.Instruction,
        status: kernel_abi.Status,
        control: *Control,
        e: *abi.Error,
    ) Failure {
        // A cancel that came first wins over the fault.
        if (!control.decide()) return error.Cancelled;
        e.block = instruction.block;
        e.instruction = instruction.origin;
        e.source = instruction.source;
        e.fault = @backingInt(status.fault);
        e.axis = status.axis;
        e.value = status.value;
        e.extent = status.extent;
        if (status.fault == .index_out_of_bounds) {
            const text = "index {d} is out of bounds for axis {d} of extent {d}";
            const values = .{ status.value, status.axis, status.extent };
            return failure.say(e, error.IndexOutOfBounds, .run, text, values);
        }
        if (status.fault == .host_call_failed) return error.HostCallFailed;
        return failure.say(e, error.ExecutionFailed, .run, "check {d} failed", .{status.value});
    }

    /// Publishes the outputs and consumes the donated inputs; ends the run. Cannot fail.
    pub fn commit(run: *Run, published: []Handle) void {
        assert(published.len == run.outputs.len);
        {
            handles.table.mutex.lock();
            defer handles.table.mutex.unlock();
            for (run.plan().inputs, run.inputs, run.input_handles) |input, maybe, handle| {
                if (!input.donated) continue;
                maybe.?.claimed = false;
                const slot = handles.table.findLocked(.buffer, handle) orelse continue;
                _ = handles.table.removeLocked(slot);
                const last = maybe.?.refs.drop();
                assert(!last); // this run still holds one
            }
            for (run.outputs, run.output_handles) |*maybe, handle| {
                const slot = handles.table.findLocked(.reserved, handle).?;
                slot.kind = .buffer;
                slot.object = maybe.*.?;
                maybe.* = null; // the handle owns the reference now
            }
        }
        @memcpy(published, run.output_handles);
        run.release();
    }

    /// Undoes the claims and frees the outputs; ends the run. Also serves a run half begun.
    pub fn abort(run: *Run) void {
        {
            handles.table.mutex.lock();
            defer handles.table.mutex.unlock();
            const inputs = run.plan().inputs[0..run.claimed_end];
            for (inputs, run.inputs[0..run.claimed_end]) |input, maybe| {
                if (input.donated) maybe.?.claimed = false;
            }
            for (run.output_handles) |handle| {
                const slot = handles.table.findLocked(.reserved, handle) orelse continue;
                _ = handles.table.removeLocked(slot);
            }
        }
        run.release();
    }

    fn release(run: *Run) void {
        for (run.inputs) |maybe| if (maybe) |buffer| buffer.drop();
        for (run.outputs) |maybe| if (maybe) |buffer| buffer.drop();
        run.executable.runtime.workspaces.giveBack(run.workspace);
        run.executable.drop();
    }
};
