//! cumsum, cumprod, cummax and cummin along one axis of any strided operand, in either direction.
//!
//! `lines` scans element after element; `columns` scans whole rows side by side when the innermost
//! axis is dense and is not the scanned one. When there are few lines they are cut into chunks: a
//! first phase folds each chunk, a second starts each from the total of those before it.
//!
//! Numerics: half types accumulate in float32 and round each result once; NaN is propagated by all
//! four; integers wrap. float sums add in order, within vectors as a tree.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const fold = @import("fold.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;
pub const Op = lanes.Op;

const Layout = enum(u32) { lines, columns };

/// Elements of a task, about 40 us.
const task_elements = 1 << 16;
const strip_length = 512;
const tasks_enough = 8;
/// A gathered block, and one value beside it.
const block_bytes = 4096;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    layout: Layout,
    /// First element of the scan, for a reversed one the last: x, result.
    origins: [2]i64,
    /// Axes that are not scanned (`columns`: without the innermost), strides of x and result.
    kept: view.Axes(2),
    length: u64,
    strides: [2]i64,
    width: u64,
    strip: u64,
    strip_count: u64,
    /// Lines, or strips.
    unit_count: u64,
    units_per_task: u64,
    chunk_count: u64,
    chunk_length: u64,
};

pub fn plan(op: Op, x: *const kernel_abi.Operand, axis: u32, reverse: bool) Geometry {
    assert(axis < x.rank);
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = lanes.canonical(op, x.dtype);
    const result = kernel_abi.Operand.contiguous(x.dtype, x.dims[0..x.rank]);
    g.length = x.dims[axis];
    g.strides = .{ x.strides[axis], result.strides[axis] };
    if (reverse and g.length > 0) {
        for (&g.origins, &g.strides) |*origin, *stride| {
            origin.* = stride.* * @as(i64, @intCast(g.length - 1));
            stride.* = -stride.*;
        }
    }
    g.kept = .empty;
    for (0..x.rank) |a| {
        if (a != axis) g.kept.append(x.dims[a], .{ x.strides[a], result.strides[a] });
    }
    const last = g.kept.rank -| 1;
    if (g.kept.rank > 0 and g.kept.strides[0][last] == 1 and g.kept.strides[1][last] == 1 and
        g.kept.dims[last] >= 4)
    {
        g.layout = .columns;
        g.kept.rank -= 1;
        g.width = g.kept.dims[last];
    } else {
        g.layout = .lines;
        g.width = 1;
    }
    planTasks(&g);
    g.work.cost_ns = 2 * x.elementCount();
    return g;
}

fn planTasks(g: *Geometry) void {
    g.strip = @min(g.width, strip_length);
    g.strip_count = (g.width + @max(g.strip, 1) - 1) / @max(g.strip, 1);
    g.unit_count = if (g.length == 0) 0 else g.kept.count() * g.strip_count;
    const each = @max(g.length * g.strip, 1);
    g.units_per_task = @max(1, task_elements / each);
    const tasks = (g.unit_count + g.units_per_task - 1) / g.units_per_task;
    g.chunk_count = 1;
    g.chunk_length = g.length;
    g.work.task_count = tasks;
    g.work.scratch_bytes = block_bytes + g.strip * 8;
    if (tasks == 0 or tasks >= tasks_enough or each < 2 * task_elements) return;
    const wanted = @min((each + task_elements - 1) / task_elements, 1024);
    g.chunk_length = (g.length + wanted - 1) / wanted;
    g.chunk_count = (g.length + g.chunk_length - 1) / g.chunk_length;
    g.units_per_task = 1;
    g.work.phase_task_count = g.unit_count * g.chunk_count;
    g.work.task_count = 2 * g.work.phase_task_count;
    g.work.shared_bytes = g.work.phase_task_count * g.strip * 8;
}

/// ptrs: result, x, and the totals of the chunks when there are any.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const size: i64 = g.dtype.bytes();
    var d: Driver = .{
        .g = g,
        .f = functions(g.op, g.dtype),
        .totals = fold.functions(g.op, g.dtype),
        .result = view.atMutable(u8, ptrs[0], g.origins[1] * size),
        .x = view.at(u8, ptrs[1], g.origins[0] * size),
        .size = size,
        .scratch = ctx.scratch,
    };
    const carry: [*]u8 = ctx.scratch + block_bytes;
    if (g.chunk_count == 1) {
        const start = task * g.units_per_task;
        for (start..@min(start + g.units_per_task, g.unit_count)) |unit| {
            if (ctx.isCancelled()) return;
            d.f.begin(carry, g.strip);
            d.scan(unit, 0, carry);
        }
        return;
    }
    const row = g.strip * 8;
    const number = task % g.work.phase_task_count;
    const unit = number / g.chunk_count;
    const chunk = number % g.chunk_count;
    if (task < g.work.phase_task_count) {
        d.total(unit, chunk, ptrs[2] + number * row);
        return;
    }
    d.f.begin(carry, g.strip);
    for (0..chunk) |before| {
        const totals = ptrs[2] + (unit * g.chunk_count + before) * row;
        d.totals.combine(carry, carry, totals, d.stripLength(unit));
    }
    d.scan(unit, chunk, carry);
}

const Driver = struct {
    g: *const Geometry,
    f: *const Functions,
    totals: *const fold.Functions,
    result: [*]u8,
    x: [*]const u8,
    size: i64,
    scratch: [*]u8,

    fn stripLength(d: *const Driver, unit: u64) u64 {
        const column = unit % d.g.strip_count * d.g.strip;
        return @min(d.g.strip, d.g.width - column);
    }

    /// Byte offset of the first element of a chunk of a unit in operand `o`.
    fn offset(d: *const Driver, unit: u64, chunk: u64, o: u32) i64 {
        const cursor = d.g.kept.cursor(unit / d.g.strip_count);
        const column: i64 = @intCast(unit % d.g.strip_count * d.g.strip);
        const along = @as(i64, @intCast(chunk * d.g.chunk_length)) * d.g.strides[o];
        return (cursor.offsets[o] + column + along) * d.size;
    }

    fn chunkLength(d: *const Driver, chunk: u64) u64 {
        return @min(d.g.chunk_length, d.g.length - chunk * d.g.chunk_length);
    }

    /// Scans a chunk from the values in `carry` on.
    fn scan(d: *const Driver, unit: u64, chunk: u64, carry: [*]u8) void {
        var to = view.atMutable(u8, d.result, d.offset(unit, chunk, 1));
        var from = view.at(u8, d.x, d.offset(unit, chunk, 0));
        const n = d.chunkLength(chunk);
        if (d.g.layout == .lines) return d.f.line(to, from, &d.g.strides, n, carry);
        const length = d.stripLength(unit);
        for (0..n) |_| {
            d.f.row(to, from, length, carry);
            to = view.atMutable(u8, to, d.g.strides[1] * d.size);
            from = view.at(u8, from, d.g.strides[0] * d.size);
        }
    }

    /// Folds a chunk.
    fn total(d: *const Driver, unit: u64, chunk: u64, to: [*]u8) void {
        var from = view.at(u8, d.x, d.offset(unit, chunk, 0));
        const n = d.chunkLength(chunk);
        if (d.g.layout == .columns) {
            const length = d.stripLength(unit);
            for (0..n) |i| {
                d.totals.addRow(to, from, length, i == 0);
                from = view.at(u8, from, d.g.strides[0] * d.size);
            }
            return;
        }
        const block = fold.blockLength(d.g.dtype);
        var axes: view.Axes(1) = .empty;
        axes.append(n, .{d.g.strides[0]});
        var cursor = axes.cursor(0);
        const partial = d.scratch + block_bytes;
        d.f.begin(to, 1);
        var done: u64 = 0;
        while (done < n) {
            const count = @min(block, n - done);
            view.gatherRun(@intCast(d.size), d.scratch, from, &cursor, count);
            d.totals.foldBlock(partial, d.scratch, count);
            d.totals.combine(to, to, partial, 1);
            done += count;
        }
    }
};

/// The loops that depend on operation and dtype, behind plain pointers.
const Functions = struct {
    /// Sets `n` values, as computed with, to what changes nothing.
    begin: *const fn (carry: [*]u8, n: u64) void,
    /// Scans a line; `strides` in elements, x and result.
    line: *const fn (
        to: [*]u8,
        from: [*]const u8,
        strides: *const [2]i64,
        n: u64,
        carry: [*]u8,
    ) void,
    /// Adds a row to the carried values and stores them.
    row: *const fn (to: [*]u8, from: [*]const u8, n: u64, carry: [*]u8) void,
};

fn functions(op: Op, d: DType) *const Functions {
    switch (op) {
        inline else => |o| switch (d) {
            inline .u8, .u16, .u32, .u64, .f16, .bf16, .f32, .f64 => |e| return &Typed(o, e).table,
            inline .i8, .i16, .i32, .i64 => |e| {
                return if (comptime lanes.isOrder(o)) &Typed(o, e).table else unreachable;
            },
            else => unreachable,
        },
    }
}

fn Typed(comptime op: Op, comptime d: DType) type {
    return struct {
        const S = Storage(d);
        const C = Compute(d);
        const W = lanes.lanes(d);
        const V = lanes.Vector(d);
        const table: Functions = .{ .begin = &begin, .line = &line, .row = &row };
        /// -0 rather than 0, so that a scan that begins with -0 keeps its sign.
        const nothing: C = if (op == .sum and d.isFloat()) -0.0 else lanes.identity(op, C);
        /// Long chains of 4- and 8-byte elements are worth the shuffles.
        const by_vectors = @sizeOf(S) >= 4;

        fn begin(carry: [*]u8, n: u64) void {
            const values: [*]C = @ptrCast(@alignCast(carry));
            for (0..n) |i| {
                lanes.keepScalar();
                values[i] = nothing;
            }
        }

        fn line(
            to_bytes: [*]u8,
            from_bytes: [*]const u8,
            strides: *const [2]i64,
            n: u64,
            carry: [*]u8,
        ) void {
            var to: [*]S = @ptrCast(@alignCast(to_bytes));
            var from: [*]const S = @ptrCast(@alignCast(from_bytes));
            const start: *C = @ptrCast(@alignCast(carry));
            var running = start.*;
            var i: u64 = 0;
            if (by_vectors and strides[0] == 1 and strides[1] == 1) {
                while (i + W <= n) : (i += W) {
                    const scanned = prefix(lanes.load(d, from));
                    const v = lanes.combine(op, @as(V, @splat(running)), scanned);
                    lanes.store(d, to, v);
                    running = v[W - 1];
                    to += W;
                    from += W;
                }
            }
            while (i < n) : (i += 1) {
                lanes.keepScalar();
                running = lanes.combine(op, running, lanes.widen(d, from[0]));
                to[0] = lanes.narrow(d, running);
                to = view.atMutable(S, to, strides[1]);
                from = view.at(S, from, strides[0]);
            }
        }

        /// The inclusive scan of the lanes, by doubling.
        inline fn prefix(v: V) V {
            @setEvalBranchQuota(10_000);
            const none: V = @splat(nothing);
            var scanned = v;
            comptime var step = 1;
            inline while (step < W) : (step *= 2) {
                const mask = comptime moved: {
                    var m: [W]i32 = undefined;
                    for (&m, 0..) |*e, i| e.* = if (i < step) ~@as(i32, 0) else @as(i32, i) - step;
                    break :moved m;
                };
                scanned = lanes.combine(op, @shuffle(C, scanned, none, mask), scanned);
            }
            return scanned;
        }

        fn row(to_bytes: [*]u8, from_bytes: [*]const u8, n: u64, carry_bytes: [*]u8) void {
            const to: [*]S = @ptrCast(@alignCast(to_bytes));
            const from: [*]const S = @ptrCast(@alignCast(from_bytes));
            const carry: [*]C = @ptrCast(@alignCast(carry_bytes));
            var j: u64 = 0;
            while (j + W <= n) : (j += W) {
                const old: V = carry[j..][0..W].*;
                const v = lanes.combine(op, old, lanes.load(d, from + j));
                carry[j..][0..W].* = v;
                lanes.store(d, to + j, v);
            }
            while (j < n) : (j += 1) {
                lanes.keepScalar();
                carry[j] = lanes.combine(op, carry[j], lanes.widen(d, from[j]));
                to[j] = lanes.narrow(d, carry[j]);
            }
        }
    };
}

const harness = @import("harness.zig");

fn expectScan(
    comptime op: Op,
    comptime d: DType,
    x: *const harness.View,
    axis: u32,
    reverse: bool,
) !void {
    const dims = x.operand.dims[0..x.operand.rank];
    const result = try harness.makeView(d, dims, .dense);
    defer result.deinit();
    const g = plan(op, &x.operand, axis, reverse);
    _ = try harness.executeViews(run, &g, &result, &.{x});
    const inner: u64 = @intCast(result.operand.strides[axis]);
    const n = dims[axis];
    const lines = x.operand.elementCount() / @max(n, 1);
    for (0..lines) |line| {
        const first = line / inner * n * inner + line % inner;
        var running = Typed(op, d).nothing;
        for (0..n) |i| {
            const at = first + (if (reverse) n - 1 - i else i) * inner;
            running = lanes.combine(op, running, x.get(d, at));
            const expected = lanes.widen(d, lanes.narrow(d, running));
            try std.testing.expectEqual(expected, result.get(d, at));
        }
    }
}

test "every operation, dtype, layout, axis and direction agrees with a scalar loop" {
    @setEvalBranchQuota(100_000);
    var prng: std.Random.DefaultPrng = .init(4);
    const random = prng.random();
    const shapes = [_][]const u64{ &.{ 3, 5, 7 }, &.{ 2, 37 }, &.{ 3, 700 }, &.{ 4, 0, 3 }, &.{1} };
    inline for (harness.all_dtypes) |d| {
        inline for (.{ Op.sum, Op.prod, Op.max, Op.min }) |op| {
            if (comptime (d == .bool and !lanes.isOrder(op))) continue;
            for (shapes) |dims| for (harness.all_layouts) |layout| {
                const x = try harness.randomView(random, d, dims, layout);
                defer x.deinit();
                if (comptime (op == .prod and d.isFloat())) {
                    const elements: []Storage(d) = @ptrCast(@alignCast(x.memory));
                    const factors = [_]Compute(d){ 1, -1, 2, 0.5 };
                    for (elements) |*e| e.* = lanes.narrow(d, factors[random.uintLessThan(u8, 4)]);
                }
                for (0..dims.len) |axis| {
                    try expectScan(op, d, &x, @intCast(axis), false);
                    try expectScan(op, d, &x, @intCast(axis), true);
                }
            };
        }
    }
}

test "long scans in two phases" {
    var prng: std.Random.DefaultPrng = .init(5);
    const random = prng.random();
    for ([_][]const u64{ &.{200_000}, &.{ 150_000, 5 }, &.{ 2, 140_000 } }) |dims| {
        for ([_]harness.Layout{ .dense, .spaced, .reversed }) |layout| {
            const x = try harness.randomView(random, .i32, dims, layout);
            defer x.deinit();
            const axis: u32 = if (dims[0] < 10) 1 else 0;
            const g = plan(.sum, &x.operand, axis, false);
            try std.testing.expect(g.work.phase_task_count > 0);
            try expectScan(.sum, .i32, &x, axis, false);
            try expectScan(.max, .i32, &x, axis, true);
        }
    }
}

test "NaN is carried on" {
    var values: [40]f32 = @splat(1);
    values[20] = std.math.nan(f32);
    var out: [40]f32 = undefined;
    const x = kernel_abi.Operand.contiguous(.f32, &.{40});
    inline for (.{ Op.sum, Op.max, Op.min }) |op| {
        const g = plan(op, &x, 0, false);
        _ = try harness.execute(run, &g, &.{ @ptrCast(&out), @ptrCast(&values) });
        for (out, 0..) |o, i| try std.testing.expectEqual(i >= 20, std.math.isNan(o));
    }
}
