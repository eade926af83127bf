//! Fused elementwise regions: a tile interpreter. A region is a list of micro-operations over
//! registers of one tile (up to 4096 bytes each); all its results have the same shape and are
//! dense, so the index space is the linear index of the result, cut into tiles and those into
//! tasks.
//!
//! Operands come in four classes. Dense ones (the result's shape, row-major) are read where they
//! are. Strided ones are fetched tile by tile, and read in place where a tile lies in one dense
//! run. Periodic ones (scalars, a bias over the last axes) are fetched once a task. Counters are
//! made.
//!
//! Aliasing: a result may have the memory of a dense operand of the region if both have the same
//! address, shape and element size; everything a tile reads from such an operand is read before
//! that part of the result is written. Any other overlap of a result with an operand is illegal.
//!
//! The planner's side is `Builder` (elementwise_plan.zig); `run` is compiled in the kernel
//! objects.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const dtype = @import("../dtype.zig");
const tile_ops = @import("tile_ops.zig");
const fetch = @import("elementwise_fetch.zig");
const transpose = @import("elementwise_transpose.zig");
const DType = dtype.DType;
const TaskContext = kernel_abi.TaskContext;
const Work = kernel_abi.Work;

pub const TileOp = tile_ops.TileOp;
pub const isLegal = tile_ops.isLegal;
pub const Builder = @import("elementwise_plan.zig").Builder;
pub const Register = @import("elementwise_plan.zig").Register;
pub const Error = @import("elementwise_plan.zig").Error;

/// Capacities of one region; `Builder` returns `error.RegionFull` beyond them.
pub const load_max = 16;
pub const store_max = 8;
pub const op_max = 128;
pub const constant_max = 32;
pub const axis_max = 64;
/// Registers alive at the same time: their tiles should stay in the second level cache.
pub const slot_max = 48;

/// Bytes of a register, and the distance between two: a multiple of 4096 would make equal offsets
/// of different registers collide in the cache.
pub const slot_bytes = 4096;
pub const slot_stride = slot_bytes + 128;
/// Room for the last, short part of a tile of one operand.
pub const stage_bytes = tile_ops.granule * 8;

/// Register numbers: slots, then loads, then stores.
pub const load_base = 64;
pub const store_base = load_base + load_max;
pub const register_count = store_base + store_max;

pub const Class = enum(u8) {
    dense = 0,
    strided = 1,
    periodic = 2,
    counter = 3,
    periodic_counter = 4,
};

pub const Axis = extern struct {
    extent: u64,
    /// In elements.
    stride: i64,
};

pub const Load = extern struct {
    /// Index in the kernel's `ptrs`; unused for counters.
    ptr_index: u16,
    class: Class,
    /// Bytes of an element.
    bytes: u8,
    /// Where its tile is kept; unused for dense operands.
    slot: u8,
    /// Its axes in `Geometry.axes`, outermost first, merged. A counter has one: the extent of the
    /// counted axis, and as stride the number of elements inside it.
    first_axis: u8,
    rank: u8,
    reserved: u8 = 0,
};

pub const Store = extern struct { ptr_index: u16, bytes: u8, reserved: u8 = 0 };

/// A value repeated over a slot for the whole task.
pub const Constant = extern struct { bits: u64, bytes: u8, slot: u8, reserved: [6]u8 = @splat(0) };

pub const MicroOp = extern struct {
    code: TileOp,
    /// Kind of the sources (of the branches, for `where`).
    kind: DType,
    dst: u8,
    /// Registers; a `load` has the load's index in the first.
    sources: [3]u8,
    /// Index in `Geometry.immediates`, for operations that have one.
    immediate: u8,
    reserved: u8 = 0,
};

pub const Mode = enum(u32) { interpret = 0, transpose = 1 };

pub const Geometry = extern struct {
    work: Work,
    mode: Mode,
    load_count: u32,
    store_count: u32,
    constant_count: u32,
    op_count: u32,
    slot_count: u32,
    /// Elements of each result.
    count: u64,
    /// Tiles do not cross multiples of `row`; a row is cut into pieces of `chunk`.
    row: u64,
    chunk: u64,
    tile_count: u64,
    tiles_per_task: u64,
    transposed: transpose.Shape,
    loads: [load_max]Load,
    stores: [store_max]Store,
    constants: [constant_max]Constant,
    immediates: [8]i64,
    axes: [axis_max]Axis,
    ops: [op_max]MicroOp,
};

comptime {
    assert(@sizeOf(Load) == 8 and @sizeOf(Store) == 4 and @sizeOf(MicroOp) == 8);
    assert(slot_stride % 64 == 0 and slot_max <= load_base);
    assert(register_count <= 256);
}

/// A task's view of its geometry: the address of every register.
const Frame = struct {
    geometry: *const Geometry,
    ptrs: [*]const [*]u8,
    slots: [*]u8,
    stages: [*]u8,
    registers: [register_count][*]u8,

    fn slot(frame: *const Frame, index: u8) [*]u8 {
        return frame.slots + @as(usize, index) * slot_stride;
    }
};

/// Runs one task; see `kernel_abi.KernelFn`.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    assert(task < g.work.task_count);
    if (g.mode == .transpose) {
        const load = g.loads[0];
        transpose.run(
            &g.transposed,
            load.bytes,
            ptrs[g.stores[0].ptr_index],
            ptrs[load.ptr_index],
            task,
        );
        return;
    }
    var frame: Frame = .{
        .geometry = g,
        .ptrs = ptrs,
        .slots = ctx.scratch,
        .stages = ctx.scratch + @as(usize, g.slot_count) * slot_stride,
        .registers = undefined,
    };
    for (0..g.slot_count) |s| frame.registers[s] = frame.slot(@intCast(s));
    hoist(&frame);
    const first = task * g.tiles_per_task;
    const last = @min(first + g.tiles_per_task, g.tile_count);
    for (first..last) |tile| {
        if (ctx.isCancelled()) return;
        const span = tileSpan(g, tile);
        const granule = tile_ops.granule;
        const whole = (span.end - span.start) / granule * granule;
        if (whole > 0) pass(&frame, span.start, whole, 0, false);
        const middle = span.start + whole;
        if (middle < span.end) pass(&frame, middle, span.end - middle, whole, true);
    }
}

const Span = struct { start: u64, end: u64 };

fn tileSpan(g: *const Geometry, tile: u64) Span {
    const pieces = std.math.divCeil(u64, g.row, g.chunk) catch 1;
    const row_start = tile / pieces * g.row;
    const inside = tile % pieces * g.chunk;
    const start = row_start + inside;
    return .{ .start = start, .end = @min(row_start + @min(inside + g.chunk, g.row), g.count) };
}

/// Fetches what is the same in every tile, for the longest tile. Every tile starts at a multiple
/// of the period, so it may be fetched as from element 0; a periodic operand repeats along its
/// outermost axis, so reading on past a short result is no reading past the operand.
fn hoist(frame: *Frame) void {
    const g = frame.geometry;
    const padded = std.mem.alignForward(u64, g.chunk, tile_ops.granule);
    for (g.constants[0..g.constant_count]) |constant| {
        fetch.fill(
            constant.bytes,
            frame.slot(constant.slot),
            constant.bits,
            padded * constant.bytes,
        );
    }
    for (g.loads[0..g.load_count]) |load| {
        if (load.class == .periodic) {
            const axes = g.axes[load.first_axis..][0..load.rank];
            fetch.gather(
                load.bytes,
                frame.slot(load.slot),
                frame.ptrs[load.ptr_index],
                axes,
                0,
                g.chunk,
            );
        } else if (load.class == .periodic_counter) {
            fetch.count(frame.slot(load.slot), g.axes[load.first_axis], 0, g.chunk);
        }
    }
}

/// The program over elements [start, start + length). `length` is a multiple of the granule, or
/// `staged` is set and it is less than one: then operands and results pass through buffers that may
/// be read and written beyond it. `offset` is the distance from the start of the tile.
fn pass(frame: *Frame, start: u64, length: u64, offset: u64, staged: bool) void {
    const g = frame.geometry;
    assert(if (staged) length < tile_ops.granule else length % tile_ops.granule == 0);
    for (g.loads[0..g.load_count], 0..) |load, i| {
        frame.registers[load_base + i] = switch (load.class) {
            .dense => dense: {
                const from = frame.ptrs[load.ptr_index] + start * load.bytes;
                if (!staged) break :dense from;
                const stage = frame.stages + i * stage_bytes;
                @memcpy(stage[0 .. length * load.bytes], from[0 .. length * load.bytes]);
                break :dense stage;
            },
            .periodic, .periodic_counter => frame.slot(load.slot) + offset * load.bytes,
            .strided, .counter => frame.slot(load.slot),
        };
    }
    for (g.stores[0..g.store_count], 0..) |store, i| {
        frame.registers[store_base + i] = if (staged)
            frame.stages + (g.load_count + i) * stage_bytes
        else
            frame.ptrs[store.ptr_index] + start * store.bytes;
    }
    interpret(frame, start, length, staged);
    if (!staged) return;
    for (g.stores[0..g.store_count], 0..) |store, i| {
        const to = frame.ptrs[store.ptr_index] + start * store.bytes;
        const bytes = length * store.bytes;
        @memcpy(to[0..bytes], frame.registers[store_base + i][0..bytes]);
    }
}

fn interpret(frame: *Frame, start: u64, length: u64, staged: bool) void {
    const g = frame.geometry;
    const padded = std.mem.alignForward(u64, length, tile_ops.granule);
    const r = &frame.registers;
    for (g.ops[0..g.op_count]) |op| {
        if (op.code == .load) {
            loadTile(frame, op, start, length, staged);
            continue;
        }
        const function = tile_ops.table[@backingInt(op.code)][@backingInt(op.kind)] orelse {
            // The builder emits no operation without a function.
            assert(false);
            return;
        };
        const immediate = g.immediates[op.immediate];
        function(
            r[op.dst],
            r[op.sources[0]],
            r[op.sources[1]],
            r[op.sources[2]],
            padded,
            immediate,
        );
    }
}

fn loadTile(frame: *Frame, op: MicroOp, start: u64, length: u64, staged: bool) void {
    const g = frame.geometry;
    const load = g.loads[op.sources[0]];
    const register = load_base + @as(usize, op.sources[0]);
    if (load.class == .counter) {
        fetch.count(frame.slot(load.slot), g.axes[load.first_axis], start, length);
        return;
    }
    const axes = g.axes[load.first_axis..][0..load.rank];
    const base = frame.ptrs[load.ptr_index];
    const to_result = op.dst >= store_base;
    if (!staged and !to_result) {
        if (fetch.inPlace(load.bytes, base, axes, start, length)) |address| {
            frame.registers[register] = address;
            return;
        }
    }
    const to = frame.registers[op.dst];
    fetch.gather(load.bytes, to, base, axes, start, length);
    frame.registers[register] = to;
}

test {
    _ = tile_ops;
    _ = fetch;
    _ = transpose;
    _ = @import("elementwise_plan.zig");
    _ = @import("elementwise_test.zig");
    _ = @import("elementwise_region_test.zig");
}
