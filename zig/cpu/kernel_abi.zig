//! The contract between the executor (root object, safety on) and the kernel objects (one per
//! instruction set, safety off). Only pointers and scalars cross it: a vector passed by value would
//! change its calling convention with the feature set.
//!
//! A kernel family is one file. Its `Geometry` is computed once, when the program is planned, and
//! never changes; a run resolves operand pointers (arena, inputs, outputs) and calls `run` for each
//! task. How the work is cut into tasks is part of the geometry, never of the thread count, so
//! results do not depend on how many threads there are.
const std = @import("std");
const assert = std.debug.assert;
const DType = @import("../dtype.zig").DType;

/// Highest rank of a value, and of any geometry.
pub const rank_max = 16;

/// What went wrong in a task. The first task (lowest index) of the first failing instruction wins.
pub const Fault = enum(u32) {
    none = 0,
    /// `value` is the index, `axis` and `extent` say where it was out of range.
    index_out_of_bounds = 1,
    /// `value` is the code of a failed `check`.
    check_failed = 2,
    /// The cancellation token was seen.
    cancelled = 3,
    /// The host refused to go on; `value` is what it said.
    host_call_failed = 4,
    _,
};

pub const Status = extern struct {
    fault: Fault = .none,
    axis: u32 = 0,
    value: i64 = 0,
    extent: i64 = 0,
};

/// What a task gets besides its geometry and its pointers. Every worker has its own.
pub const TaskContext = extern struct {
    /// 64-byte aligned, at least the `scratch_bytes` of the geometry; contents undefined at entry.
    scratch: [*]align(64) u8,
    /// Non-zero once the run is cancelled. Long tasks poll it (`isCancelled`) about every 100 us.
    cancel: *const u32,
    status: *Status,

    pub inline fn isCancelled(ctx: *const TaskContext) bool {
        return @atomicLoad(u32, ctx.cancel, .monotonic) != 0;
    }
};

/// One task of one instruction. `ptrs` are the addresses of element 0 of each operand, with the
/// results first.
pub const KernelFn = *const fn (
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *TaskContext,
) callconv(.c) void;

/// How an instruction is cut up. Every family's geometry begins with it.
pub const Work = extern struct {
    /// Tasks are independent of each other and may run in any order, on any thread.
    task_count: u64,
    /// Scratch a worker needs for one task, in bytes.
    scratch_bytes: u64,
    /// A rough cost of the whole instruction in nanoseconds on one core, for the choice between
    /// the caller's thread and the pool.
    cost_ns: u64,
    /// Tasks below this number all finish before any other starts; 0: one phase.
    phase_task_count: u64 = 0,
    /// Memory shared by the tasks of one run of the instruction (64-byte aligned, contents
    /// undefined at entry), for what the first phase hands to the second. When it is not 0 its
    /// address is passed as one more pointer after the last operand's.
    shared_bytes: u64 = 0,
};

/// An operand as the planner knows it when it asks a family for a geometry.
pub const Operand = struct {
    dtype: DType,
    rank: u32,
    /// Extents, outermost first; entries from `rank` on are undefined.
    dims: [rank_max]u64 = undefined,
    /// Strides in elements; 0 (broadcast) and negative are legal.
    strides: [rank_max]i64 = undefined,

    pub fn contiguous(dtype: DType, dims: []const u64) Operand {
        assert(dims.len <= rank_max);
        var o: Operand = .{ .dtype = dtype, .rank = @intCast(dims.len) };
        var stride: u64 = 1;
        var axis = dims.len;
        while (axis > 0) {
            axis -= 1;
            o.dims[axis] = dims[axis];
            o.strides[axis] = @intCast(stride);
            stride *= dims[axis];
        }
        return o;
    }

    pub fn elementCount(o: *const Operand) u64 {
        var n: u64 = 1;
        for (o.dims[0..o.rank]) |d| n *= d;
        return n;
    }

    pub fn isContiguous(o: *const Operand) bool {
        var stride: i64 = 1;
        var axis = o.rank;
        while (axis > 0) {
            axis -= 1;
            if (o.dims[axis] != 1 and o.strides[axis] != stride) return false;
            stride *= @intCast(o.dims[axis]);
        }
        return true;
    }
};
