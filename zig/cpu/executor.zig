//! Runs a plan: one pass over its instructions, each cut into tasks that run here or on the pool;
//! blocks run inside their instruction (`executor_control.zig`). Nothing is allocated. The control
//! is looked at before every instruction and by the tasks; from the commit point on the run can no
//! longer be cancelled.
const std = @import("std");
const assert = std.debug.assert;
const executor_control = @import("executor_control.zig");
const kernel_abi = @import("kernel_abi.zig");
const abi = @import("../abi_types.zig");
const plans = @import("../plan.zig");
const KernelTable = @import("kernel_table.zig").KernelTable;
const Pool = @import("pool.zig").Pool;
const Plan = @import("../plan.zig").Plan;
const Instruction = @import("../plan.zig").Instruction;
const Control = @import("../runtime/control.zig").Control;
const os = @import("../os.zig");

/// Instructions cheaper than this stay on one thread, in nanoseconds: waking a sleeping worker
/// costs 5 to 10 microseconds, a spinning one 2.
const inline_cost_ns_max = 12_000;

const never_cancelled: u32 = 0;

pub const Outcome = union(enum) {
    completed,
    cancelled,
    /// The instruction, of the plan or of one of its blocks, and what its task reported.
    failed: struct { instruction: *const Instruction, status: kernel_abi.Status },
};

/// A plan that runs, or a block of it, and where its memory is.
pub const Frame = struct {
    plan: *const Plan,
    /// Addresses by `plan.Base`.
    bases: [][*]u8,
    /// Room for the addresses of one instruction.
    pointers: [][*]u8,
    /// Room for the frames inside.
    rest: []u64,
    /// By instruction; none when nobody asks for times.
    records: []abi.Record,
};

pub const HostRequest = struct {
    call: *const plans.HostCall,
    instruction: *const Instruction,
    operands: []const [*]u8,
};

/// Who answers host calls. Called on the thread of the run, which waits for the answer: a status
/// without a fault to go on, else the fault that ends the run.
pub const Host = struct {
    context: *anyopaque,
    call: *const fn (context: *anyopaque, request: HostRequest) kernel_abi.Status,
};

/// Memory and threads of one run.
pub const Execution = struct {
    plan: *const Plan,
    table: *const KernelTable,
    pool: *Pool,
    control: *Control,
    /// Addresses by `plan.Base`.
    bases: [][*]u8,
    /// `plan.table_words` at least.
    words: []u64,
    /// `plan.recordCount()` of them, or none.
    records: []abi.Record = &.{},
    /// May be left out if the plan calls no host.
    host: ?Host = null,
    /// The instruction a fault came from.
    culprit: ?*const Instruction = null,
    /// `worker_count` pieces of `scratch_stride` bytes, and one more that any workers beyond that
    /// number (the pool grew since the lease) take turns in.
    scratch: [*]align(64) u8,
    scratch_stride: u64,
    worker_count: u32,
    overflow: os.Mutex = .{},

    pub fn run(x: *Execution) Outcome {
        const plan = x.plan;
        const frame: Frame = .{
            .plan = plan,
            .bases = x.bases,
            .pointers = @ptrCast(x.words[0..plan.pointer_count_max]),
            .rest = x.words[plan.pointer_count_max..],
            .records = if (x.records.len > 0) x.records[0..plan.instructions.len] else &.{},
        };
        for (plan.instructions, 0..) |*instruction, index| {
            if (index == plan.commit_point) {
                if (!x.control.decide()) return .cancelled;
            } else if (x.control.isCancelled()) return .cancelled;
            const committed = index >= plan.commit_point;
            const status = x.runTimed(&frame, instruction, index, committed);
            if (status.fault != .none and status.fault != .cancelled) {
                assert(!committed);
                return .{ .failed = .{ .instruction = x.culprit.?, .status = status } };
            }
        }
        return if (x.control.decide()) .completed else .cancelled;
    }

    /// Runs a block whose frame is complete.
    pub fn runBlock(x: *Execution, frame: *const Frame) kernel_abi.Status {
        for (frame.plan.instructions, 0..) |*instruction, index| {
            if (x.control.isCancelled()) return .{ .fault = .cancelled };
            const status = x.runTimed(frame, instruction, index, false);
            if (status.fault != .none) return status;
        }
        return .{};
    }

    /// The records of a block; none when nobody asks for times.
    pub fn recordsOf(x: *const Execution, block: usize) []abi.Record {
        if (x.records.len == 0) return &.{};
        return x.records[x.plan.recordStart(block)..][0..x.plan.blocks[block].instructions.len];
    }

    fn runTimed(
        x: *Execution,
        frame: *const Frame,
        instruction: *const Instruction,
        index: usize,
        committed: bool,
    ) kernel_abi.Status {
        if (frame.records.len == 0) return x.runInstruction(frame, instruction, committed);
        const begun_ns = os.monotonicNs();
        const status = x.runInstruction(frame, instruction, committed);
        const record = &frame.records[index];
        if (record.calls == 0) record.start_ns = begun_ns;
        record.ns += os.monotonicNs() - begun_ns;
        record.calls += 1;
        return status;
    }

    fn runInstruction(
        x: *Execution,
        frame: *const Frame,
        instruction: *const Instruction,
        committed: bool,
    ) kernel_abi.Status {
        const plan = frame.plan;
        const refs = plan.pointers[instruction.pointer_start..][0..instruction.pointer_count];
        for (frame.pointers[0..refs.len], refs) |*to, ref| {
            to.* = frame.bases[ref.base] + ref.offset;
        }
        const status = if (instruction.kernel == .control)
            executor_control.run(x, frame, instruction)
        else
            x.runKernel(frame, instruction, committed);
        if (status.fault != .none and x.culprit == null) x.culprit = instruction;
        return status;
    }

    fn runKernel(
        x: *Execution,
        frame: *const Frame,
        instruction: *const Instruction,
        committed: bool,
    ) kernel_abi.Status {
        const plan = frame.plan;
        var region: Region = .{
            .execution = x,
            .pointers = frame.pointers.ptr,
            .kernel = x.table.get(instruction.kernel),
            .geometry = @ptrCast(&plan.geometries[instruction.geometry]),
            .cancel = if (committed) &never_cancelled else &x.control.flag,
        };
        const work = &instruction.work;
        assert(work.phase_task_count <= work.task_count);
        const parallel = work.cost_ns > inline_cost_ns_max;
        region.runTasks(0, work.phase_task_count, parallel);
        region.runTasks(work.phase_task_count, work.task_count, parallel);
        return region.status;
    }
};

/// The tasks of one instruction, and the fault of the lowest of them.
const Region = struct {
    execution: *Execution,
    pointers: [*]const [*]u8,
    kernel: kernel_abi.KernelFn,
    geometry: *const anyopaque,
    cancel: *const u32,
    mutex: os.Mutex = .{},
    fault_task: u64 = std.math.maxInt(u64),
    status: kernel_abi.Status = .{},

    fn runTasks(r: *Region, begin: u64, end: u64, parallel: bool) void {
        if (begin == end or r.status.fault != .none) return;
        if (parallel and end - begin > 1) {
            return r.execution.pool.run(.{
                .run = runOne,
                .context = r,
                .cancel = r.cancel,
                .begin = begin,
                .end = end,
            });
        }
        var task = begin;
        while (task < end and @atomicLoad(u32, r.cancel, .monotonic) == 0) : (task += 1) {
            r.runTask(task, 0);
        }
    }

    fn runOne(context: *anyopaque, task: u64, worker: u32) void {
        const r: *Region = @ptrCast(@alignCast(context));
        const x = r.execution;
        if (worker < x.worker_count) return r.runTask(task, worker);
        x.overflow.lock();
        defer x.overflow.unlock();
        r.runTask(task, x.worker_count);
    }

    fn runTask(r: *Region, task: u64, slot: u32) void {
        const x = r.execution;
        var status: kernel_abi.Status = .{};
        var context: kernel_abi.TaskContext = .{
            .scratch = @alignCast(x.scratch + slot * x.scratch_stride),
            .cancel = r.cancel,
            .status = &status,
        };
        r.kernel(r.geometry, r.pointers, task, &context);
        if (status.fault == .none) return;
        r.mutex.lock();
        defer r.mutex.unlock();
        if (task > r.fault_task) return;
        r.fault_task = task;
        r.status = status;
    }
};
