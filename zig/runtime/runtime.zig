//! A runtime: the compute pool, the store of buffers, the workspaces and the service threads that
//! executables share. It is a counted object; destroying its handle stops its threads, and the
//! memory goes when the last executable or job of it does.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;
const abi = @import("../abi_types.zig");
const handles = @import("handle.zig");
const jobs = @import("job.zig");
const kernel_table = @import("../cpu/kernel_table.zig");
const memory = @import("memory.zig");
const os = @import("../os.zig");
const workspaces = @import("workspace.zig");
const Control = @import("control.zig").Control;
const Failure = @import("failure.zig").Failure;
const Job = jobs.Job;
const Pool = @import("../cpu/pool.zig").Pool;
const Store = @import("buffer.zig").Store;
const Token = @import("control.zig").Token;

/// Freed buffers kept by default. A training step frees and makes the same sizes again and again;
/// more than this is better given back to the system.
const cache_bytes_default = 256 << 20;

pub const Runtime = struct {
    pub const handle_kind: handles.Kind = .runtime;
    refs: handles.Refs = .{},
    kernels: kernel_table.Choice,
    pool: Pool,
    store: *Store,
    workspaces: workspaces.Pool,
    service: jobs.Service = .{},
    executables: std.atomic.Value(u64) = .init(0),
    runs: std.atomic.Value(u64) = .init(0),
    /// Finished jobs, to be used again: their result tables are warm.
    job_mutex: os.Mutex = .{},
    job_idle: ?*Job = null,
    /// Links of the registry of runtimes, which exists for `fork`.
    registry_next: ?*Runtime = null,
    registry_previous: ?*Runtime = null,

    pub fn create(options: abi.RuntimeOptions) Failure!*Runtime {
        registerForkHandlers();
        const cache_bytes = options.cache_bytes_max;
        const store = try Store.create(if (cache_bytes == 0) cache_bytes_default else cache_bytes);
        errdefer store.drop();
        const runtime = try memory.gpa.create(Runtime);
        runtime.* = .{
            .kernels = kernel_table.choose(),
            .pool = .init(threadCount(options.thread_count)),
            .store = store,
            .workspaces = .{ .allocator = memory.gpa },
        };
        registry.add(runtime);
        return runtime;
    }

    /// Stops the threads; jobs in flight end as cancelled.
    pub fn close(runtime: *Runtime) void {
        runtime.service.close();
    }

    pub fn drop(runtime: *Runtime) void {
        if (!runtime.refs.drop()) return;
        registry.remove(runtime);
        runtime.service.close();
        runtime.pool.deinit();
        runtime.workspaces.deinit();
        while (runtime.job_idle) |job| {
            runtime.job_idle = job.next;
            memory.gpa.free(job.results);
            memory.gpa.destroy(job);
        }
        runtime.store.drop();
        memory.gpa.destroy(runtime);
    }

    pub fn setThreads(runtime: *Runtime, count: u32) void {
        runtime.pool.setThreads(threadCount(count));
    }

    fn threadCount(wanted: u32) u32 {
        return if (wanted == 0) os.usableCoreCount() else wanted;
    }

    /// Gives kept buffers and idle workspaces back to the system.
    pub fn trim(runtime: *Runtime) void {
        runtime.store.trim(0);
        runtime.workspaces.trim();
    }

    pub fn stats(runtime: *Runtime) abi.RuntimeStats {
        const store = runtime.store;
        store.mutex.lock();
        const kept_bytes = store.kept_bytes;
        store.mutex.unlock();
        return .{
            .buffers_live = store.buffers_live.load(.monotonic),
            .bytes_live = store.bytes_live.load(.monotonic),
            .bytes_peak = store.bytes_peak.load(.monotonic),
            .workspace_bytes = runtime.workspaces.bytes.load(.monotonic),
            .cached_bytes = kept_bytes,
            .executables = runtime.executables.load(.monotonic),
            .output_allocations = store.allocations.load(.monotonic),
            .runs = runtime.runs.load(.monotonic),
            .threads = runtime.pool.threadCount(),
        };
    }

    /// A job with one reference and room for that many results, not yet submitted.
    pub fn makeJob(runtime: *Runtime, work: jobs.Work, result_count: u32) error{OutOfMemory}!*Job {
        const job = runtime.idleJob(result_count) orelse fresh: {
            // A service thread gives its job back a moment after its caller has seen it done, so
            // one caller may need a second one.
            const spare = try createJob(result_count);
            runtime.recycleJob(spare);
            break :fresh try createJob(result_count);
        };
        runtime.refs.add();
        job.* = .{
            .refs = .{},
            .runtime = runtime,
            .epoch = jobs.fork_epoch.load(.monotonic),
            .control = .{},
            .work = work,
            .state = .init(0),
            .request = undefined,
            .told = 0,
            .err = .{},
            .results = job.results,
            .result_count = 0,
            .taken = .init(0),
            .next = null,
            .active_previous = null,
            .active_next = null,
        };
        return job;
    }

    fn createJob(result_count: u32) error{OutOfMemory}!*Job {
        const job = try memory.gpa.create(Job);
        errdefer memory.gpa.destroy(job);
        job.results = try memory.gpa.alloc(abi.Handle, @max(result_count, 16));
        return job;
    }

    /// An idle job with enough room, or null.
    fn idleJob(runtime: *Runtime, result_count: u32) ?*Job {
        runtime.job_mutex.lock();
        defer runtime.job_mutex.unlock();
        var link = &runtime.job_idle;
        while (link.*) |job| : (link = &job.next) {
            if (job.results.len < result_count) continue;
            link.* = job.next;
            return job;
        }
        return null;
    }

    pub fn recycleJob(runtime: *Runtime, job: *Job) void {
        runtime.job_mutex.lock();
        defer runtime.job_mutex.unlock();
        job.next = runtime.job_idle;
        runtime.job_idle = job;
    }
};

/// All runtimes alive, so that a fork finds their locks free.
const Registry = struct {
    mutex: os.Mutex = .{},
    first: ?*Runtime = null,

    fn add(r: *Registry, runtime: *Runtime) void {
        r.mutex.lock();
        defer r.mutex.unlock();
        runtime.registry_next = r.first;
        if (r.first) |first| first.registry_previous = runtime;
        r.first = runtime;
    }

    fn remove(r: *Registry, runtime: *Runtime) void {
        r.mutex.lock();
        defer r.mutex.unlock();
        const previous = runtime.registry_previous;
        const next = runtime.registry_next;
        if (previous) |p| p.registry_next = next else r.first = next;
        if (next) |n| n.registry_previous = previous;
    }
};

var registry: Registry = .{};
var fork_registered: std.atomic.Value(u32) = .init(0);

const Handler = *const fn () callconv(.c) void;
extern "c" fn pthread_atfork(prepare: ?Handler, parent: ?Handler, child: ?Handler) c_int;

fn registerForkHandlers() void {
    if (builtin.os.tag == .windows) return;
    if (fork_registered.swap(1, .acq_rel) != 0) return;
    const code = pthread_atfork(beforeFork, afterForkParent, afterForkChild);
    assert(code == 0 or code == 12); // ENOMEM: a fork during a call may then hang the child
}

/// Each lock is held alone elsewhere, so taking them one after the other cannot deadlock.
fn beforeFork() callconv(.c) void {
    registry.mutex.lock();
    var at = registry.first;
    while (at) |runtime| : (at = runtime.registry_next) {
        runtime.store.mutex.lock();
        runtime.workspaces.mutex.lock();
        runtime.job_mutex.lock();
        runtime.service.mutex.lock();
    }
    handles.table.mutex.lock();
}

fn afterForkParent() callconv(.c) void {
    unlockAll(false);
}

fn afterForkChild() callconv(.c) void {
    _ = jobs.fork_epoch.fetchAdd(1, .monotonic);
    unlockAll(true);
}

fn unlockAll(in_child: bool) void {
    handles.table.mutex.unlock();
    var at = registry.first;
    while (at) |runtime| : (at = runtime.registry_next) {
        runtime.service.mutex.unlock();
        if (in_child) runtime.service.resetInChild();
        runtime.job_mutex.unlock();
        runtime.workspaces.mutex.unlock();
        runtime.store.mutex.unlock();
    }
    registry.mutex.unlock();
}
