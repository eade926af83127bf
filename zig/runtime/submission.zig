//! Submitting, waiting for and releasing work: what is short runs on the caller's thread at once,
//! what is long becomes a job of the service threads.
const std = @import("std");
const abi = @import("../abi_types.zig");
const failure = @import("failure.zig");
const handles = @import("handle.zig");
const jobs = @import("job.zig");
const os = @import("../os.zig");
const Control = @import("control.zig").Control;
const Executable = @import("executable.zig").Executable;
const Failure = failure.Failure;
const Handle = abi.Handle;
const Job = jobs.Job;
const Run = @import("run.zig").Run;
const Runtime = @import("runtime.zig").Runtime;
const Token = @import("control.zig").Token;

/// Programs planned at less than this run on the caller's thread, in nanoseconds.
pub const caller_cost_ns_max = 1_000_000;
/// Programs of at most this many bytes compile on the caller's thread (about 1 ms).
const caller_compile_bytes_max = 48 * 1024;

/// Puts the control under the token, if there is one.
fn attach(control: *Control, token: Handle) Failure!void {
    if (token == 0) return;
    const object = handles.table.acquire(Token, token) orelse return error.InvalidHandle;
    object.attach(control);
}

pub fn compile(
    runtime_handle: Handle,
    bytes: []const u8,
    options: abi.CompileOptions,
    token: Handle,
    out_job: *Handle,
) Failure!void {
    const runtime = handles.table.acquire(Runtime, runtime_handle) orelse
        return error.InvalidHandle;
    defer runtime.drop();
    const job = try runtime.makeJob(.{ .compile = .{ .bytes = bytes, .options = options } }, 1);
    errdefer job.drop();
    const handle = try handles.table.insert(.job, job);
    errdefer forget(handle);
    try attach(&job.control, token);
    if (bytes.len <= caller_compile_bytes_max) {
        job.execute();
    } else {
        errdefer job.control.detach();
        try hand(runtime, job);
    }
    out_job.* = handle;
}

/// Gives the job to a service thread; where none can be started it is done here and now, unless
/// this thread would have to answer itself.
fn hand(runtime: *Runtime, job: *Job) Failure!void {
    runtime.service.submit(job) catch |f| switch (f) {
        error.ThreadFailed => if (job.callsHost()) return f else job.execute(),
        else => return f,
    };
}

/// Takes back a handle nobody was given; the reference stays with the caller.
fn forget(handle: Handle) void {
    handles.table.mutex.lock();
    defer handles.table.mutex.unlock();
    const slot = handles.table.findLocked(.job, handle) orelse return;
    _ = handles.table.removeLocked(slot);
}

pub fn run(
    executable_handle: Handle,
    inputs: []const Handle,
    outputs: []Handle,
    token: Handle,
    records: []abi.Record,
    out_job: *Handle,
    e: *abi.Error,
) Failure!void {
    const executable = handles.table.acquire(Executable, executable_handle) orelse
        return failure.say(e, error.InvalidHandle, .run, "the executable was released", .{});
    defer executable.drop();
    const plan = &executable.shared.plan;
    if (outputs.len != plan.outputs.len) {
        const text = "the program has {d} outputs, room for {d} was given";
        const counts = .{ plan.outputs.len, outputs.len };
        return failure.say(e, error.InvalidArgument, .run, text, counts);
    }
    if (records.len > 0) {
        if (records.len != plan.recordCount()) {
            const text = "the plan has {d} instructions, {d} records were given";
            const counts = .{ plan.recordCount(), records.len };
            return failure.say(e, error.InvalidArgument, .run, text, counts);
        }
        @memset(records, .{});
    }
    if (plan.cost_ns >= caller_cost_ns_max or plan.calls_host) {
        return submitRun(executable, inputs, token, records, out_job, e);
    }
    var control: Control = .{};
    try attach(&control, token);
    defer control.detach();
    var one = try Run.begin(executable, inputs, e);
    one.records = records;
    one.execute(&control, null, e) catch |f| {
        one.abort();
        return f;
    };
    one.commit(outputs);
}

fn submitRun(
    executable: *Executable,
    inputs: []const Handle,
    token: Handle,
    records: []abi.Record,
    out_job: *Handle,
    e: *abi.Error,
) Failure!void {
    const runtime = executable.runtime;
    var one = try Run.begin(executable, inputs, e);
    one.records = records;
    errdefer one.abort();
    const job = try runtime.makeJob(.{ .run = one }, @intCast(one.outputs.len));
    errdefer job.drop();
    const handle = try handles.table.insert(.job, job);
    errdefer forget(handle);
    try attach(&job.control, token);
    errdefer job.control.detach();
    try hand(runtime, job);
    out_job.* = handle;
}

/// Waits at most one slice. Returns the job's status once it is done, or that it asks something.
pub fn wait(job: *Job, slice_ms: u32, done: *u32, out_error: ?*abi.Error) u32 {
    if (job.stateNow() != .finished) {
        if (job.epoch != jobs.fork_epoch.load(.monotonic)) {
            var e: abi.Error = .{};
            const status = failure.finish(&e, error.Closed);
            if (out_error) |to| to.* = e;
            done.* = 1;
            return @backingInt(status);
        }
        const slice_ns = @as(u64, slice_ms) * 1_000_000;
        const deadline_ns = os.monotonicNs() + slice_ns;
        var left_ns = slice_ns;
        const running = @backingInt(jobs.State.running);
        while (job.stateNow() == .running and left_ns > 0) {
            os.futexWaitFor(&job.state, running, left_ns);
            left_ns = deadline_ns -| os.monotonicNs();
        }
        switch (job.stateNow()) {
            .running, .answering => return 0,
            .asking, .asked => return @backingInt(abi.Status.host_call_pending),
            .finished => {},
        }
    }
    done.* = 1;
    if (out_error) |to| to.* = job.err;
    return job.err.status;
}

/// Gives the caller's reference up. A compile still reads the caller's bytes, so it is waited for;
/// a run is left to end by itself, and its outputs are freed. A host call ends with the run.
pub fn release(job: *Job) void {
    const stale = job.epoch != jobs.fork_epoch.load(.monotonic);
    if (job.stateNow() != .finished and !stale) {
        _ = job.control.cancel();
        job.answer(1) catch {}; // mostly it asks nothing
        if (job.work == .compile) {
            const running = @backingInt(jobs.State.running);
            while (job.stateNow() == .running) os.futexWait(&job.state, running);
        }
    }
    job.drop();
}
