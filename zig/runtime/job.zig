//! Jobs: compiles and long runs that a service thread does while the caller waits in slices.
//! A job is finished once; what it made is taken once, or freed with it.
const std = @import("std");
const assert = std.debug.assert;
const abi = @import("../abi_types.zig");
const compile = @import("../compile.zig");
const executor = @import("../cpu/executor.zig");
const failure = @import("failure.zig");
const handles = @import("handle.zig");
const kernel_abi = @import("../cpu/kernel_abi.zig");
const memory = @import("memory.zig");
const os = @import("../os.zig");
const Control = @import("control.zig").Control;
const executables = @import("executable.zig");
const Failure = failure.Failure;
const Handle = abi.Handle;
const Run = @import("run.zig").Run;
const Runtime = @import("runtime.zig").Runtime;

pub const Work = union(enum) {
    compile: struct { bytes: []const u8, options: abi.CompileOptions },
    run: Run,
};

/// Bumped in a forked child: jobs from before have no thread there.
pub var fork_epoch: std.atomic.Value(u32) = .init(0);

pub const State = enum(u32) {
    running = 0,
    /// Everything in the job is final.
    finished = 1,
    /// The run waits for the answer to a host call.
    asking = 2,
    /// Likewise, and somebody looks at the operands: only an answer ends that, no cancel.
    asked = 3,
    /// Somebody is about to answer.
    answering = 4,
};

pub const Job = struct {
    pub const handle_kind: handles.Kind = .job;
    refs: handles.Refs,
    /// Holds a reference.
    runtime: *Runtime,
    epoch: u32,
    control: Control,
    work: Work,
    /// A `State`; waiters sleep on it.
    state: std.atomic.Value(u32),
    /// What the run asks the host, and what it is told.
    request: executor.HostRequest,
    told: i64,
    err: abi.Error,
    /// Made handles; capacity stays with the job when it is recycled.
    results: []Handle,
    result_count: u32,
    /// Set by whoever takes or frees the results.
    taken: std.atomic.Value(u32),
    /// Links of the service's queue and of its list of unfinished jobs.
    next: ?*Job,
    active_previous: ?*Job,
    active_next: ?*Job,

    /// Does the work on this thread.
    pub fn execute(job: *Job) void {
        job.perform() catch |f| {
            _ = failure.finish(&job.err, f);
        };
        job.control.detach();
        job.become(.finished);
    }

    pub fn stateNow(job: *const Job) State {
        return @fromBackingInt(@intCast(job.state.load(.acquire)));
    }

    /// Sets the state and wakes those who wait for the job.
    fn become(job: *Job, state: State) void {
        job.state.store(@backingInt(state), .release);
        os.futexWake(&job.state, std.math.maxInt(u32));
    }

    /// True if the state was `from`.
    fn move(job: *Job, from: State, to: State) bool {
        const before = @backingInt(from);
        return job.state.cmpxchgStrong(before, @backingInt(to), .acq_rel, .acquire) == null;
    }

    pub fn callsHost(job: *const Job) bool {
        return job.work == .run and job.work.run.executable.shared.plan.calls_host;
    }

    /// Asks the host, on the thread of the run, and sleeps until there is an answer. A cancel
    /// takes the question back as long as nobody looks at it.
    fn ask(context: *anyopaque, request: executor.HostRequest) kernel_abi.Status {
        const job: *Job = @ptrCast(@alignCast(context));
        job.request = request;
        job.told = 0;
        job.runtime.service.pause();
        defer job.runtime.service.unpause();
        job.become(.asking);
        while (true) {
            const seen = job.control.signal.load(.acquire);
            switch (job.stateNow()) {
                .running => break,
                .asking => if (job.control.isCancelled() and job.move(.asking, .running)) {
                    return .{ .fault = .cancelled };
                },
                .asked, .answering => {},
                .finished => unreachable,
            }
            os.futexWait(&job.control.signal, seen);
        }
        if (job.told == 0) return .{};
        return .{ .fault = .host_call_failed, .value = job.told };
    }

    /// What the run asks; it stays asked until `answer`.
    pub fn hostCall(job: *Job) Failure!*const executor.HostRequest {
        if (!job.move(.asking, .asked) and job.stateNow() != .asked) return error.NotReady;
        return &job.request;
    }

    pub fn answer(job: *Job, value: i64) Failure!void {
        if (!job.move(.asking, .answering) and !job.move(.asked, .answering)) {
            return error.NotReady;
        }
        job.told = value;
        job.become(.running);
        job.control.wake();
    }

    fn perform(job: *Job) Failure!void {
        switch (job.work) {
            .compile => |*c| {
                const e = &job.err;
                job.results[0] = try compileNow(job.runtime, c.bytes, c.options, &job.control, e);
                job.result_count = 1;
            },
            .run => |*run| {
                const host: executor.Host = .{ .context = job, .call = ask };
                run.execute(&job.control, host, &job.err) catch |f| {
                    run.abort();
                    return f;
                };
                const count: u32 = @intCast(run.outputs.len);
                run.commit(job.results[0..count]);
                job.result_count = count;
            },
        }
    }

    /// Moves the results out; only the first call of a finished, successful job gets them.
    pub fn takeResults(job: *Job, out: []Handle) Failure!void {
        if (job.stateNow() != .finished or job.err.status != 0) return error.NotReady;
        if (out.len < job.result_count) return error.InvalidArgument;
        if (job.taken.swap(1, .acq_rel) != 0) return error.NotReady;
        @memcpy(out[0..job.result_count], job.results[0..job.result_count]);
    }

    pub fn drop(job: *Job) void {
        if (!job.refs.drop()) return;
        if (job.taken.swap(1, .acq_rel) == 0) {
            for (job.results[0..job.result_count]) |handle| releaseResult(job.work, handle);
        }
        const runtime = job.runtime;
        runtime.recycleJob(job);
        runtime.drop();
    }
};

fn releaseResult(work: Work, handle: Handle) void {
    const buffers = @import("buffer.zig");
    var found = false;
    switch (work) {
        .compile => if (handles.table.release(.executable, handle, &found)) |object| {
            const executable: *executables.Executable = @ptrCast(@alignCast(object));
            executable.drop();
        },
        .run => if (handles.table.release(.buffer, handle, &found)) |object| {
            const buffer: *buffers.Buffer = @ptrCast(@alignCast(object));
            buffer.drop();
        },
    }
}

/// Compiles and makes the executable's handle.
pub fn compileNow(
    runtime: *Runtime,
    bytes: []const u8,
    options: abi.CompileOptions,
    control: *Control,
    e: *abi.Error,
) Failure!Handle {
    var plan = try compile.compile(memory.gpa, bytes, .{
        .optimize = options.optimize != 0,
        .kernels = runtime.kernels,
        .control = control,
    }, e);
    const shared = executables.SharedPlan.create(plan) catch |f| {
        plan.deinit();
        return f;
    };
    const executable = try executables.Executable.create(runtime, shared);
    errdefer executable.drop();
    if (!control.decide()) return error.Cancelled;
    return try handles.table.insert(.executable, executable);
}

/// The threads that execute jobs. They start when a job finds none idle, and stay.
pub const Service = struct {
    mutex: os.Mutex = .{},
    head: ?*Job = null,
    tail: ?*Job = null,
    queued: u32 = 0,
    /// Unfinished jobs, for cancelling all of them.
    active: ?*Job = null,
    idle: u32 = 0,
    /// Threads whose run sleeps until a host call is answered; the answer may need other jobs, so
    /// they do not count against the limit.
    paused: u32 = 0,
    closed: bool = false,
    /// Bumped when there is work or an end; idle threads sleep on it.
    signal: std.atomic.Value(u32) = .init(0),
    thread_count: std.atomic.Value(u32) = .init(0),

    const thread_count_max = 16;
    /// Kernels keep their data in scratch.
    const stack_bytes = 1 << 20;

    /// Hands a job over; the service adds a reference of its own.
    pub fn submit(s: *Service, job: *Job) Failure!void {
        s.mutex.lock();
        defer s.mutex.unlock();
        if (s.closed) return error.Closed;
        if (s.idle <= s.queued) {
            const count = s.thread_count.load(.monotonic);
            if (count < thread_count_max + s.paused) {
                s.startThread() catch |f| if (count == s.paused) return f;
            }
        }
        job.refs.add();
        if (s.tail) |tail| tail.next = job else s.head = job;
        s.tail = job;
        s.queued += 1;
        job.active_previous = null;
        job.active_next = s.active;
        if (s.active) |first| first.active_previous = job;
        s.active = job;
        _ = s.signal.fetchAdd(1, .release);
        os.futexWake(&s.signal, 1);
    }

    fn pause(s: *Service) void {
        s.mutex.lock();
        defer s.mutex.unlock();
        s.paused += 1;
        // Without one more thread the jobs that wait do so until others are done.
        if (s.queued > s.idle and !s.closed) s.startThread() catch {};
    }

    fn unpause(s: *Service) void {
        s.mutex.lock();
        defer s.mutex.unlock();
        s.paused -= 1;
    }

    fn startThread(s: *Service) Failure!void {
        const options: std.Thread.SpawnConfig = .{ .stack_size = stack_bytes };
        _ = s.thread_count.fetchAdd(1, .monotonic);
        const thread = std.Thread.spawn(options, serve, .{s}) catch {
            _ = s.thread_count.fetchSub(1, .monotonic);
            return error.ThreadFailed;
        };
        thread.detach();
    }

    fn serve(s: *Service) void {
        while (s.nextJob()) |job| {
            job.execute();
            s.mutex.lock();
            const next = job.active_next;
            if (job.active_previous) |p| p.active_next = next else s.active = next;
            if (next) |n| n.active_previous = job.active_previous;
            s.mutex.unlock();
            job.drop();
        }
        _ = s.thread_count.fetchSub(1, .release);
        os.futexWake(&s.thread_count, std.math.maxInt(u32));
    }

    fn nextJob(s: *Service) ?*Job {
        s.mutex.lock();
        defer s.mutex.unlock();
        while (true) {
            if (s.head) |job| {
                s.head = job.next;
                if (s.head == null) s.tail = null;
                s.queued -= 1;
                job.next = null;
                return job;
            }
            if (s.closed) return null;
            const seen = s.signal.load(.acquire);
            s.idle += 1;
            s.mutex.unlock();
            os.futexWait(&s.signal, seen);
            s.mutex.lock();
            s.idle -= 1;
        }
    }

    /// Refuses new jobs, cancels all others and waits until every thread has left.
    pub fn close(s: *Service) void {
        s.mutex.lock();
        s.closed = true;
        var at = s.active;
        while (at) |job| : (at = job.active_next) _ = job.control.cancel();
        _ = s.signal.fetchAdd(1, .release);
        s.mutex.unlock();
        os.futexWake(&s.signal, std.math.maxInt(u32));
        while (true) {
            const count = s.thread_count.load(.acquire);
            if (count == 0) return;
            os.futexWait(&s.thread_count, count);
        }
    }

    /// In a forked child: no thread and no job of the parent exists.
    pub fn resetInChild(s: *Service) void {
        s.* = .{ .closed = s.closed };
    }
};
