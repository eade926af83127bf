//! What the kernel families' tests share: strided views over random data, scalar access to them,
//! and an executor that honours phases, scratch and shared memory. Only tests import this file.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;
const Operand = kernel_abi.Operand;
const Work = kernel_abi.Work;
const gpa = std.testing.allocator;

/// Bytes after scratch and shared memory that no kernel may touch.
const guard = 4096;

pub const Error = std.mem.Allocator.Error;

pub const all_dtypes = [_]DType{
    .bool, .u8, .i8, .u16, .i16, .u32, .i32, .u64, .i64, .f16, .bf16, .f32, .f64,
};
pub const float_dtypes = [_]DType{ .f16, .bf16, .f32, .f64 };

/// How a view lies in its memory.
pub const Layout = enum { dense, transposed, reversed, broadcast, spaced };
pub const all_layouts = [_]Layout{ .dense, .transposed, .reversed, .broadcast, .spaced };

/// An operand together with its memory.
pub const View = struct {
    operand: Operand,
    memory: []align(64) u8,
    /// Element 0, in bytes from the start of the memory.
    origin: u64,

    pub fn deinit(v: View) void {
        gpa.free(v.memory);
    }

    pub fn pointer(v: *const View) [*]u8 {
        return v.memory.ptr + v.origin;
    }

    /// The element at a row-major position, as stored.
    pub fn raw(v: *const View, comptime d: DType, position: u64) Storage(d) {
        return v.address(d, position)[0];
    }

    /// The element at a row-major position, as computed with.
    pub fn get(v: *const View, comptime d: DType, position: u64) Compute(d) {
        return lanes.widen(d, v.raw(d, position));
    }

    pub fn set(v: *const View, comptime d: DType, position: u64, x: Storage(d)) void {
        v.address(d, position)[0] = x;
    }

    fn address(v: *const View, comptime d: DType, position: u64) [*]Storage(d) {
        var rest = position;
        var offset: i64 = 0;
        var axis = v.operand.rank;
        while (axis > 0) {
            axis -= 1;
            const index: i64 = @intCast(rest % v.operand.dims[axis]);
            rest /= v.operand.dims[axis];
            offset += index * v.operand.strides[axis];
        }
        const first: i64 = @intCast(v.origin);
        const byte: u64 = @intCast(first + offset * @sizeOf(Storage(d)));
        return @ptrCast(@alignCast(v.memory.ptr + byte));
    }
};

/// A view of the given extents with undefined elements (zero bytes).
pub fn makeView(d: DType, dims: []const u64, layout: Layout) Error!View {
    var operand = Operand.contiguous(d, dims);
    const rank = dims.len;
    var elements: u64 = @max(operand.elementCount(), 1);
    var origin: u64 = 0;
    switch (layout) {
        .dense => {},
        .transposed => {
            var stride: i64 = 1;
            for (0..rank) |axis| {
                operand.strides[axis] = stride;
                stride *= @intCast(@max(dims[axis], 1));
            }
        },
        .reversed => {
            for (0..rank) |axis| {
                if (dims[axis] == 0) continue;
                const stride: u64 = @intCast(operand.strides[axis]);
                origin += (dims[axis] - 1) * stride;
                operand.strides[axis] = -operand.strides[axis];
            }
            if (operand.elementCount() == 0) origin = 0;
        },
        .broadcast => if (rank > 0) {
            operand.strides[rank - 1] = 0;
        },
        .spaced => {
            for (0..rank) |axis| operand.strides[axis] *= 3;
            elements *= 3;
        },
    }
    const memory = try gpa.alignedAlloc(u8, .@"64", elements * d.bytes());
    @memset(memory, 0);
    return .{ .operand = operand, .memory = memory, .origin = origin * d.bytes() };
}

/// A view filled with values that every dtype holds exactly: small integers, and halves for floats.
pub fn randomView(
    random: std.Random,
    comptime d: DType,
    dims: []const u64,
    layout: Layout,
) Error!View {
    const v = try makeView(d, dims, layout);
    const elements: []Storage(d) = @ptrCast(@alignCast(v.memory));
    for (elements) |*e| e.* = sample(random, d);
    return v;
}

pub fn sample(random: std.Random, comptime d: DType) Storage(d) {
    const n = random.intRangeAtMost(i8, -12, 12);
    return switch (d) {
        .bool => @intFromBool(n > 0),
        .u8, .u16, .u32, .u64 => @as(u8, @abs(n)),
        .i8, .i16, .i32, .i64 => n,
        .f16, .bf16, .f32, .f64 => lanes.narrow(d, @as(Compute(d), @floatFromInt(n)) * 0.5),
        _ => unreachable,
    };
}

/// Runs every task in an order that differs from their numbers but keeps the phases apart, and
/// gives the status of the lowest task that failed.
pub fn execute(
    comptime run: kernel_abi.KernelFn,
    geometry: anytype,
    operands: []const [*]u8,
) Error!kernel_abi.Status {
    const work: Work = geometry.work;
    const scratch = try gpa.alignedAlloc(u8, .@"64", work.scratch_bytes + guard);
    defer gpa.free(scratch);
    const shared = try gpa.alignedAlloc(u8, .@"64", work.shared_bytes + guard);
    defer gpa.free(shared);
    @memset(shared, 0x55);
    @memset(scratch, 0x55);
    var pointers: [20][*]u8 = undefined;
    @memcpy(pointers[0..operands.len], operands);
    if (work.shared_bytes > 0) pointers[operands.len] = shared.ptr;
    var cancel: u32 = 0;
    var first: kernel_abi.Status = .{};
    var first_task: u64 = std.math.maxInt(u64);
    const bounds = [_]u64{ 0, work.phase_task_count, work.task_count };
    for (bounds[0..2], bounds[1..]) |start, end| {
        var task = end;
        while (task > start) {
            task -= 1;
            @memset(scratch, 0x55);
            var status: kernel_abi.Status = .{};
            var ctx: kernel_abi.TaskContext = .{
                .scratch = scratch.ptr,
                .cancel = &cancel,
                .status = &status,
            };
            run(geometry, &pointers, task, &ctx);
            if (status.fault != .none and task < first_task) {
                first = status;
                first_task = task;
            }
        }
        for (scratch[work.scratch_bytes..]) |byte| assert(byte == 0x55);
        for (shared[work.shared_bytes..]) |byte| assert(byte == 0x55);
    }
    return first;
}

/// Runs a family's geometry with one result and reports its status.
pub fn executeViews(
    comptime run: kernel_abi.KernelFn,
    geometry: anytype,
    result: *const View,
    operands: []const *const View,
) Error!kernel_abi.Status {
    var pointers: [8][*]u8 = undefined;
    pointers[0] = result.pointer();
    for (operands, 1..) |o, i| pointers[i] = o.pointer();
    return execute(run, geometry, pointers[0 .. operands.len + 1]);
}
