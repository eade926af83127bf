//! A fork-join pool of threads. One host thread opens a region of tasks; it and the workers claim
//! tasks one by one from a shared counter, so who runs what varies from run to run. Tasks must not
//! depend on it: they get their index, and a worker number only to find scratch memory.
//!
//! A region belongs to one host thread at a time. Whoever submits while the pool is taken (another
//! host thread, or a task of the open region) runs its own tasks inline, as worker 0 of its own
//! context; nobody waits for a region that isn't theirs, so nesting can't deadlock.
//!
//! Threads start with the first region that can use them, never earlier. A forked child has no
//! workers: the process id is compared at every submit and the child starts its own. Idle workers
//! spin for a short, bounded time and then sleep; at process exit they hold nothing.
const std = @import("std");
const assert = std.debug.assert;
const os = @import("../os.zig");

const Word = std.atomic.Value(u32);

/// More threads than this are never started.
pub const thread_count_max = 256;

/// How long an idle worker watches for the next region before it sleeps. Longer than the gap
/// between two instructions of a program, shorter than a time slice.
const idle_spin_ns = 40_000;
/// How long the submitter watches for the last task of others before it sleeps.
const join_spin_ns = 40_000;
/// Kernels keep their data in scratch, so stacks may be small (musl's default is 128 KiB).
const stack_bytes = 1 << 20;

/// How many tasks a worker may begin between two looks at the cancellation flag. Tasks aim at 20 to
/// 100 us each, and long ones poll the flag themselves.
pub const poll_interval_tasks = 1;

/// The tasks of one region.
pub const Job = struct {
    /// Runs one task. `worker` is below the pool's thread count, and no two tasks that run at the
    /// same time have the same one.
    run: *const fn (context: *anyopaque, task: u64, worker: u32) void,
    context: *anyopaque,
    /// Once non-zero, tasks that have not begun are skipped.
    cancel: *const u32,
    /// Tasks `begin..end` are run.
    begin: u64 = 0,
    end: u64,

    fn isCancelled(job: *const Job) bool {
        return @atomicLoad(u32, job.cancel, .monotonic) != 0;
    }
};

/// Not a process id of any system.
const clearing = std.math.maxInt(u32);

const open_bit: u32 = 1 << 31;
const waiting_bit: u32 = 1 << 30;
const count_mask: u32 = waiting_bit - 1;

pub const Pool = struct {
    /// Held by the host thread whose region is open, and by `setThreads`.
    owner: os.Mutex = .{},
    /// The process that started the workers: 0 before the first region, `clearing` while a forked
    /// child drops what it inherited.
    process: Word = .init(0),
    thread_count: Word,
    /// Workers started, at most `thread_count - 1`.
    worker_count: u32 = 0,
    threads: [thread_count_max]std.Thread = undefined,
    stop: Word = .init(0),

    /// Bumped for every region; workers sleep on it.
    epoch: Word align(128) = .init(0),
    sleeper_count: Word = .init(0),
    /// Open bit, waiting bit (the submitter sleeps on this word), and how many workers are inside.
    state: Word align(128) = .init(0),
    job: Job = undefined,
    /// The next task to claim.
    next: std.atomic.Value(u64) align(128) = .init(0),

    /// A pool of `thread_count` threads, the submitting one included. No thread is started here.
    pub fn init(thread_count: u32) Pool {
        return .{ .thread_count = .init(clampCount(thread_count)) };
    }

    /// Stops and joins the workers. The pool must not be used by anyone.
    pub fn deinit(pool: *Pool) void {
        if (pool.process.load(.acquire) != os.processId()) return; // no workers here
        pool.owner.lock();
        defer pool.owner.unlock();
        pool.joinWorkers();
    }

    pub fn threadCount(pool: *const Pool) u32 {
        return pool.thread_count.load(.monotonic);
    }

    /// Waits for the open region, if any, then changes the size. Not to be called from a task.
    pub fn setThreads(pool: *Pool, thread_count: u32) void {
        while (!pool.adoptProcess()) std.atomic.spinLoopHint();
        pool.owner.lock();
        defer pool.owner.unlock();
        pool.joinWorkers();
        pool.thread_count.store(clampCount(thread_count), .monotonic);
    }

    /// Runs the job's tasks and returns when all of them are done or skipped. Inline, in order, if
    /// there is one thread, one task, or the pool is taken.
    pub fn run(pool: *Pool, job: Job) void {
        assert(job.begin <= job.end);
        const task_count = job.end - job.begin;
        if (task_count <= 1 or pool.threadCount() <= 1) return runInline(job);
        if (!pool.adoptProcess()) return runInline(job);
        if (!pool.owner.tryLock()) return runInline(job);
        defer pool.owner.unlock();
        pool.startWorkers();
        if (pool.worker_count == 0) return runInline(job);

        assert(pool.state.load(.monotonic) == 0);
        pool.job = job;
        pool.next.store(job.begin, .monotonic);
        pool.state.store(open_bit, .release);
        // Sequentially consistent against the worker's "count me a sleeper, then look again".
        _ = pool.epoch.fetchAdd(1, .seq_cst);
        const sleepers = pool.sleeper_count.load(.seq_cst);
        if (sleepers > 0) os.futexWake(&pool.epoch, @intCast(@min(sleepers, task_count - 1)));
        pool.claimTasks(0);
        pool.closeRegion();
    }

    /// No worker may enter any more; waits for those inside.
    fn closeRegion(pool: *Pool) void {
        var state = pool.state.fetchAnd(~open_bit, .acq_rel) & ~open_bit;
        if (state & count_mask != 0) {
            var spin: Spin = .init(join_spin_ns);
            while (state & count_mask != 0 and spin.again()) state = pool.state.load(.acquire);
            if (state & count_mask != 0) {
                state = pool.state.fetchOr(waiting_bit, .acq_rel) | waiting_bit;
                while (state & count_mask != 0) {
                    os.futexWait(&pool.state, state);
                    state = pool.state.load(.acquire);
                }
            }
        }
        pool.state.store(0, .monotonic);
    }

    fn claimTasks(pool: *Pool, worker: u32) void {
        const job = pool.job;
        while (true) {
            const task = pool.next.fetchAdd(1, .monotonic);
            if (task >= job.end or job.isCancelled()) return;
            job.run(job.context, task, worker);
        }
    }

    fn startWorkers(pool: *Pool) void {
        const wanted = pool.threadCount() - 1;
        while (pool.worker_count < wanted) {
            const options: std.Thread.SpawnConfig = .{ .stack_size = stack_bytes };
            const seen = pool.epoch.load(.monotonic);
            const arguments = .{ pool, pool.worker_count + 1, seen };
            // Without threads (a limit was hit) the work is done by those there are.
            const thread = std.Thread.spawn(options, workerMain, arguments) catch return;
            pool.threads[pool.worker_count] = thread;
            pool.worker_count += 1;
        }
    }

    fn joinWorkers(pool: *Pool) void {
        if (pool.worker_count == 0) return;
        pool.stop.store(1, .seq_cst);
        _ = pool.epoch.fetchAdd(1, .seq_cst);
        os.futexWake(&pool.epoch, thread_count_max);
        for (pool.threads[0..pool.worker_count]) |thread| thread.join();
        pool.worker_count = 0;
        pool.stop.store(0, .seq_cst);
        assert(pool.sleeper_count.load(.monotonic) == 0);
    }

    /// True once this process owns the pool. The first caller in a forked child clears what it
    /// inherited (threads that do not exist here, perhaps a held lock); others meanwhile get false
    /// and work inline.
    fn adoptProcess(pool: *Pool) bool {
        const mine = os.processId();
        const known = pool.process.load(.acquire);
        if (known == mine) return true;
        if (known == clearing) return false;
        if (pool.process.cmpxchgStrong(known, clearing, .acq_rel, .monotonic) != null) return false;
        pool.sleeper_count.store(0, .monotonic);
        pool.state.store(0, .monotonic);
        pool.stop.store(0, .monotonic);
        pool.owner = .{};
        pool.worker_count = 0;
        pool.process.store(mine, .release);
        return true;
    }
};

fn clampCount(thread_count: u32) u32 {
    return std.math.clamp(thread_count, 1, thread_count_max);
}

fn runInline(job: Job) void {
    var task = job.begin;
    while (task < job.end) : (task += 1) {
        if (job.isCancelled()) return;
        job.run(job.context, task, 0);
    }
}

/// `seen_at_start` is the epoch before the worker existed, so the region it was started for counts
/// as news.
fn workerMain(pool: *Pool, worker: u32, seen_at_start: u32) void {
    var seen = seen_at_start;
    while (true) {
        seen = awaitEpoch(pool, seen);
        if (pool.stop.load(.acquire) != 0) return;
        var state = pool.state.load(.acquire);
        while (state & open_bit != 0) {
            state = pool.state.cmpxchgWeak(state, state + 1, .acq_rel, .acquire) orelse {
                pool.claimTasks(worker);
                const left = pool.state.fetchSub(1, .acq_rel) - 1;
                if (left == waiting_bit) os.futexWake(&pool.state, 1);
                break;
            };
        }
    }
}

/// The first epoch that is not `seen`.
fn awaitEpoch(pool: *Pool, seen: u32) u32 {
    var spin: Spin = .init(idle_spin_ns);
    while (true) {
        const epoch = pool.epoch.load(.acquire);
        if (epoch != seen) return epoch;
        if (!spin.again()) break;
    }
    _ = pool.sleeper_count.fetchAdd(1, .seq_cst);
    defer _ = pool.sleeper_count.fetchSub(1, .seq_cst);
    while (true) {
        const epoch = pool.epoch.load(.seq_cst);
        if (epoch != seen) return epoch;
        os.futexWait(&pool.epoch, seen);
    }
}

/// A bounded busy wait: looks at the clock every 16 pauses.
const Spin = struct {
    round: u32 = 0,
    deadline_ns: u64,

    fn init(limit_ns: u64) Spin {
        return .{ .deadline_ns = os.monotonicNs() + limit_ns };
    }

    fn again(spin: *Spin) bool {
        std.atomic.spinLoopHint();
        spin.round +%= 1;
        return spin.round % 16 != 0 or os.monotonicNs() < spin.deadline_ns;
    }
};

const never_cancelled: u32 = 0;

const Tally = struct {
    hits: [1000]Word = @splat(.init(0)),
    busy: [thread_count_max]Word = @splat(.init(0)),
    clashes: Word = .init(0),
    pool: ?*Pool = null,

    fn job(t: *Tally, begin: u64, end: u64) Job {
        const cancel = &never_cancelled;
        return .{ .run = hit, .context = t, .cancel = cancel, .begin = begin, .end = end };
    }

    fn hit(context: *anyopaque, task: u64, worker: u32) void {
        const t: *Tally = @ptrCast(@alignCast(context));
        if (t.busy[worker].swap(1, .acquire) != 0) _ = t.clashes.fetchAdd(1, .monotonic);
        _ = t.hits[task].fetchAdd(1, .monotonic);
        t.busy[worker].store(0, .release);
    }

    fn outer(context: *anyopaque, task: u64, worker: u32) void {
        _ = worker;
        const t: *Tally = @ptrCast(@alignCast(context));
        var inner: Tally = .{};
        t.pool.?.run(inner.job(0, 10));
        for (inner.hits[0..10]) |h| if (h.load(.monotonic) != 1) {
            _ = t.clashes.fetchAdd(1, .monotonic);
        };
        _ = t.hits[task].fetchAdd(1, .monotonic);
    }

    fn expectEach(t: *Tally, begin: usize, end: usize, times: u32) !void {
        for (t.hits, 0..) |h, i| {
            const expected: u32 = if (i >= begin and i < end) times else 0;
            try std.testing.expectEqual(expected, h.load(.monotonic));
        }
        try std.testing.expectEqual(@as(u32, 0), t.clashes.load(.monotonic));
    }
};

test "every task runs exactly once, in any number of regions and sizes" {
    for ([_]u32{ 1, 2, 3, 7 }) |threads| {
        var pool: Pool = .init(threads);
        defer pool.deinit();
        var tally: Tally = .{};
        for (0..50) |_| pool.run(tally.job(3, 903));
        try tally.expectEach(3, 903, 50);
        pool.setThreads(threads + 1);
        try std.testing.expectEqual(threads + 1, pool.threadCount());
        pool.run(tally.job(3, 903));
        try tally.expectEach(3, 903, 51);
    }
}

test "a region opened inside a task runs inline" {
    var pool: Pool = .init(3);
    defer pool.deinit();
    var tally: Tally = .{ .pool = &pool };
    pool.run(.{ .run = Tally.outer, .context = &tally, .cancel = &never_cancelled, .end = 100 });
    try tally.expectEach(0, 100, 1);
}

fn submitMany(pool: *Pool, tally: *Tally) void {
    for (0..200) |_| pool.run(tally.job(0, 100));
}

test "host threads that submit at the same time do not wait for each other's tasks" {
    var pool: Pool = .init(2);
    defer pool.deinit();
    var tallies: [3]Tally = @splat(.{});
    var threads: [3]std.Thread = undefined;
    for (&threads, &tallies) |*t, *tally| t.* = try .spawn(.{}, submitMany, .{ &pool, tally });
    for (threads) |t| t.join();
    for (&tallies) |*tally| try tally.expectEach(0, 100, 200);
}

const Canceller = struct {
    cancel: u32 = 0,
    ran: Word = .init(0),
    /// Tasks begun when the flag was set.
    ran_before: u32 = 0,

    fn run(context: *anyopaque, task: u64, worker: u32) void {
        _ = worker;
        const c: *Canceller = @ptrCast(@alignCast(context));
        const ran = c.ran.fetchAdd(1, .seq_cst) + 1;
        if (task == 5) {
            c.ran_before = ran;
            @atomicStore(u32, &c.cancel, 1, .seq_cst);
        }
    }
};

test "after the flag is set a worker begins at most the one task of its poll interval" {
    for (1..4) |thread_count| {
        var pool: Pool = .init(@intCast(thread_count));
        defer pool.deinit();
        var c: Canceller = .{};
        pool.run(.{ .run = Canceller.run, .context = &c, .cancel = &c.cancel, .end = 1_000_000 });
        const ran = c.ran.load(.seq_cst);
        // The worker that set the flag begins none. Each other one may begin a task between the
        // count and the flag, and one more if it polled just before the flag.
        try std.testing.expect(c.ran_before >= 1);
        const others = thread_count - 1;
        try std.testing.expect(ran - c.ran_before <= others * (1 + poll_interval_tasks));
        var tally: Tally = .{};
        pool.run(tally.job(0, 100));
        try tally.expectEach(0, 100, 1);
    }
}

extern "c" fn fork() c_int;
extern "c" fn waitpid(pid: c_int, status: *c_int, options: c_int) c_int;
extern "c" fn _exit(status: c_int) noreturn;

test "a forked child starts its own workers" {
    if (@import("builtin").os.tag == .windows) return error.SkipZigTest;
    var pool: Pool = .init(3);
    defer pool.deinit();
    var tally: Tally = .{};
    pool.run(tally.job(0, 100));
    const child = fork();
    try std.testing.expect(child >= 0);
    if (child == 0) {
        pool.run(tally.job(0, 100));
        tally.expectEach(0, 100, 2) catch _exit(1);
        if (pool.worker_count != 2) _exit(2);
        _exit(0);
    }
    var status: c_int = -1;
    try std.testing.expectEqual(child, waitpid(child, &status, 0));
    try std.testing.expectEqual(@as(c_int, 0), status);
    try tally.expectEach(0, 100, 1);
}
