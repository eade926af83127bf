//! Reductions (sum, product, maximum, minimum) over any set of axes of any strided operand.
//!
//! Two layouts. `rows`: each output folds a list of elements, read in blocks, dense or gathered.
//! `columns`: the innermost kept axis is dense, and whole rows are combined side by side.
//! When there are few outputs the reduced range is cut into chunks, whose partial results a second
//! phase combines.
//!
//! Numerics: float sums and products use a fixed tree (at most 16 additions in a row, then
//! balanced, so the error grows with log n). Half types accumulate in float32 and round once. max
//! and min propagate NaN; over no elements they give the lowest and highest value of the dtype
//! (-inf and inf for floats), a sum 0, a product 1. Integers wrap. On bool max is any, min is all.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const fold = @import("fold.zig");
const DType = dtype.DType;
const Work = kernel_abi.Work;
pub const Op = lanes.Op;

const Layout = enum(u32) { rows, columns };

/// Elements a task reads, about 30 us from memory.
const task_elements = 1 << 17;
/// Columns combined at a time: their accumulators stay in the first-level cache.
const strip_length = 512;
/// Rows combined before the cascade gets a partial result.
const rows_per_partial = 64;
/// Lists up to this length are folded one after the other, without blocks.
const short_length = 16;
/// Elements of a window up to which its rows are gathered side by side.
const window_max = 128;
/// A gathered block of the `rows` layout, at the start of scratch; the cascade follows it.
const block_bytes = 4096;
/// With at least this many independent tasks the reduced range is not cut.
const tasks_enough = 8;

pub const Geometry = extern struct {
    work: Work,
    op: Op,
    dtype: DType,
    is_bool: bool,
    layout: Layout,
    /// Element 0 of the view once reduced axes are walked in rising order.
    origin: i64,
    /// Kept axes; in the `columns` layout without the innermost.
    kept: view.Axes(1),
    reduced: view.Axes(1),
    reduced_count: u64,
    output_count: u64,
    /// Extent of the dense kept axis, the length of its strips and their number (`columns`).
    width: u64,
    strip: u64,
    strip_count: u64,
    /// Elements between neighbours of a row (`columns`); not 1: rows are gathered first.
    row_stride: i64,
    /// Narrow dense rows are combined this many (a power of two) at a time as one long row.
    stacked: u64,
    /// Independent pieces of output: outputs, or strips.
    unit_count: u64,
    units_per_task: u64,
    /// Pieces of the reduced range; more than one means two phases.
    chunk_count: u64,
    chunk_length: u64,
    cascade_levels: u64,
};

/// How to reduce the axes whose bit is set in `axes`. The result is dense, those axes removed.
pub fn plan(op: Op, x: *const kernel_abi.Operand, axes: u32) Geometry {
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = lanes.canonical(op, x.dtype);
    g.is_bool = x.dtype == .bool;
    g.kept = .empty;
    g.output_count = 1;
    for (0..x.rank) |axis| {
        if (axes >> @intCast(axis) & 1 == 1) continue;
        g.kept.append(x.dims[axis], .{x.strides[axis]});
        g.output_count *= x.dims[axis];
    }
    planReduced(&g, x, axes);
    // Windows of an image: few elements in several runs for each output, and outputs side by side.
    const is_window = g.reduced.rank > 1 and g.reduced_count <= window_max;
    const is_wide = g.kept.rank > 0 and g.kept.dims[g.kept.rank - 1] >= 4;
    if (is_wide and g.reduced_count > 0 and (g.kept.innerStride(0) == 1 or is_window)) {
        planColumns(&g);
    } else {
        planRows(&g);
    }
    const bytes = @as(u64, x.dtype.bytes()) * g.output_count * @max(g.reduced_count, 1);
    g.work.cost_ns = bytes / 8 + g.output_count;
    assert(g.work.phase_task_count <= g.work.task_count);
    return g;
}

/// The reduced axes, reordered so that the innermost is the densest and none runs backwards.
fn planReduced(g: *Geometry, x: *const kernel_abi.Operand, axes: u32) void {
    var order: [kernel_abi.rank_max]u32 = undefined;
    var rank: u32 = 0;
    g.reduced_count = 1;
    for (0..x.rank) |axis| {
        if (axes >> @intCast(axis) & 1 == 0) continue;
        g.reduced_count *= x.dims[axis];
        var slot = rank;
        while (slot > 0 and reach(x, order[slot - 1]) < reach(x, @intCast(axis))) : (slot -= 1) {
            order[slot] = order[slot - 1];
        }
        order[slot] = @intCast(axis);
        rank += 1;
    }
    g.reduced = .empty;
    for (order[0..rank]) |axis| {
        const extent = x.dims[axis];
        const stride = x.strides[axis];
        if (stride < 0 and extent > 0) g.origin += stride * @as(i64, @intCast(extent - 1));
        g.reduced.append(extent, .{@intCast(@abs(stride))});
    }
}

/// Sort key of an axis: a broadcast axis goes outermost.
fn reach(x: *const kernel_abi.Operand, axis: u32) u64 {
    const stride = @abs(x.strides[axis]);
    return if (stride == 0) std.math.maxInt(u64) else stride;
}

fn planRows(g: *Geometry) void {
    g.layout = .rows;
    const each = @max(g.reduced_count, 1);
    g.unit_count = g.output_count;
    g.units_per_task = @max(1, task_elements / each);
    const tasks = divideUp(g.unit_count, g.units_per_task);
    g.chunk_count = 1;
    g.chunk_length = each;
    if (tasks < tasks_enough and each >= 2 * task_elements and g.unit_count > 0) {
        g.chunk_count = @min(divideUp(each, task_elements), 4096);
        g.chunk_length = std.mem.alignForward(u64, divideUp(each, g.chunk_count), 4096);
        g.chunk_count = divideUp(each, g.chunk_length);
        g.units_per_task = 1;
    }
    planPhases(g);
    const blocks = divideUp(g.chunk_length, fold.blockLength(g.dtype));
    g.cascade_levels = levelsFor(@max(blocks, g.chunk_count));
    g.work.scratch_bytes = block_bytes + (g.cascade_levels + 1) * computeBytes(g.dtype);
}

fn planColumns(g: *Geometry) void {
    g.layout = .columns;
    g.kept.rank -= 1;
    g.width = g.kept.dims[g.kept.rank];
    g.row_stride = g.kept.strides[0][g.kept.rank];
    g.strip = @min(g.width, strip_length);
    g.strip_count = divideUp(g.width, g.strip);
    g.unit_count = g.kept.count() * g.strip_count;
    const each = g.reduced_count * g.strip;
    g.units_per_task = @max(1, task_elements / each);
    const tasks = divideUp(g.unit_count, g.units_per_task);
    g.chunk_count = 1;
    g.chunk_length = g.reduced_count;
    if (tasks < tasks_enough and each >= 2 * task_elements) {
        const rows = std.mem.alignForward(u64, @max(task_elements / g.strip, 1), rows_per_partial);
        g.chunk_length = @max(rows, divideUp(g.reduced_count, 4096));
        g.chunk_count = divideUp(g.reduced_count, g.chunk_length);
        g.units_per_task = 1;
    }
    planPhases(g);
    g.stacked = 1;
    const follows = g.row_stride == 1 and g.reduced.rank == 1 and
        g.reduced.innerStride(0) == @as(i64, @intCast(g.width));
    if (follows and g.width <= strip_length / 4) {
        g.stacked = std.math.floorPowerOfTwo(u64, strip_length / g.width);
    }
    const partials = divideUp(g.chunk_length, rows_per_partial);
    g.cascade_levels = levelsFor(@max(partials, g.chunk_count));
    g.work.scratch_bytes = (g.cascade_levels + 1) * g.strip * g.stacked * computeBytes(g.dtype);
    if (g.row_stride != 1) g.work.scratch_bytes += g.strip * g.dtype.bytes();
}

fn planPhases(g: *Geometry) void {
    const tasks = divideUp(g.unit_count, g.units_per_task);
    g.work.task_count = tasks;
    if (g.chunk_count == 1) return;
    g.work.phase_task_count = tasks * g.chunk_count;
    g.work.task_count = g.work.phase_task_count + tasks;
    g.work.shared_bytes = g.chunk_count * g.output_count * computeBytes(g.dtype);
}

/// Levels of a cascade into which `pushed` rows go.
fn levelsFor(pushed: u64) u64 {
    return 64 - @clz(pushed);
}

fn divideUp(a: u64, b: u64) u64 {
    return (a + b - 1) / b;
}

fn computeBytes(d: DType) u64 {
    return if (d.isFloat() and d != .f64) 4 else d.bytes();
}

/// ptrs: result, x, and the partial results when there are chunks.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const d: Driver = .{
        .g = g,
        .f = fold.functions(g.op, g.dtype),
        .size = g.dtype.bytes(),
        .wide = computeBytes(g.dtype),
        .result = ptrs[0],
        .x = view.at(u8, ptrs[1], g.origin * g.dtype.bytes()),
        .ctx = ctx,
    };
    if (g.reduced_count == 0) return d.fillNone(task);
    if (g.chunk_count == 1) {
        const start = task * g.units_per_task;
        const end = @min(start + g.units_per_task, g.unit_count);
        switch (g.layout) {
            .rows => d.rows(start, end),
            .columns => for (start..end) |unit| {
                if (unit & 63 == 63 and ctx.isCancelled()) return;
                const s = d.stripOf(unit);
                d.store(s.output, d.foldStrip(s, 0), s.length);
            },
        }
        return;
    }
    const partials = ptrs[2];
    if (task < g.work.phase_task_count) {
        const chunk = task % g.chunk_count;
        d.partial(task / g.chunk_count, chunk, partials + chunk * g.output_count * d.wide);
    } else {
        d.combineChunks(task - g.work.phase_task_count, partials);
    }
}

/// One task: the geometry, the functions of its dtype, and memory by bytes.
const Driver = struct {
    g: *const Geometry,
    f: *const fold.Functions,
    /// Bytes of an element, and of what it is computed in.
    size: u64,
    wide: u64,
    result: [*]u8,
    x: [*]const u8,
    ctx: *kernel_abi.TaskContext,

    const Strip = struct { base: [*]const u8, output: u64, length: u64 };

    fn element(d: Driver, base: [*]const u8, offset: i64) [*]const u8 {
        return view.at(u8, base, offset * @as(i64, @intCast(d.size)));
    }

    fn store(d: Driver, output: u64, from: [*]const u8, n: u64) void {
        fold.narrow(d.g.dtype, d.result + output * d.size, from, n);
    }

    fn fillNone(d: Driver, task: u64) void {
        const start = task * d.g.units_per_task;
        const end = @min(start + d.g.units_per_task, d.g.output_count);
        const none = fold.identityBits(d.g.op, d.g.dtype, d.g.is_bool);
        const bytes: [8]u8 = @bitCast(none);
        for (start..end) |o| @memcpy(d.result + o * d.size, bytes[0..d.size]);
    }

    /// Outputs `[start, end)` of the `rows` layout.
    fn rows(d: Driver, start: u64, end: u64) void {
        const g = d.g;
        const short = g.reduced.rank <= 1 and g.reduced_count <= short_length;
        var cursor = g.kept.cursor(start);
        var output = start;
        while (output < end) {
            const base = d.element(d.x, cursor.offsets[0]);
            if (short) {
                const count = @min(cursor.run(), end - output);
                d.f.foldShort(d.result + output * d.size, base, &.{
                    .count = count,
                    .step = g.kept.innerStride(0),
                    .length = g.reduced_count,
                    .stride = g.reduced.innerStride(0),
                });
                cursor.advance(count);
                output += count;
            } else {
                if (output & 63 == 63 and d.ctx.isCancelled()) return;
                d.store(output, d.foldRow(base, 0), 1);
                cursor.advance(1);
                output += 1;
            }
        }
    }

    /// Phase one: a chunk of a unit, to its row of the partial results.
    fn partial(d: Driver, unit: u64, chunk: u64, to: [*]u8) void {
        switch (d.g.layout) {
            .rows => {
                const base = d.element(d.x, d.g.kept.cursor(unit).offsets[0]);
                @memcpy(to + unit * d.wide, d.foldRow(base, chunk)[0..d.wide]);
            },
            .columns => {
                const s = d.stripOf(unit);
                const bytes = s.length * d.wide;
                @memcpy(to + s.output * d.wide, d.foldStrip(s, chunk)[0..bytes]);
            },
        }
    }

    /// Phase two: the partial results of a unit in chunk order.
    fn combineChunks(d: Driver, unit: u64, partials: [*]u8) void {
        const row = d.g.output_count * d.wide;
        const s: Strip = switch (d.g.layout) {
            .rows => .{ .base = partials, .output = unit, .length = 1 },
            .columns => d.stripOf(unit),
        };
        var levels = d.cascade(d.ctx.scratch, s.length);
        for (0..d.g.chunk_count) |chunk| {
            const from = partials + chunk * row + s.output * d.wide;
            @memcpy(levels.partial(), from[0 .. s.length * d.wide]);
            levels.push();
        }
        d.store(s.output, levels.finish(), s.length);
    }

    fn cascade(d: Driver, memory: [*]u8, n: u64) Cascade {
        return .{ .combine = d.f.combine, .memory = memory, .n = n, .row_bytes = n * d.wide };
    }

    /// One chunk of the list of one output in the `rows` layout; the total lies in scratch.
    fn foldRow(d: Driver, base: [*]const u8, chunk: u64) [*]const u8 {
        const g = d.g;
        const block = fold.blockLength(g.dtype);
        const start = chunk * g.chunk_length;
        const end = @min(start + g.chunk_length, g.reduced_count);
        const dense = g.reduced.isDense(0);
        const gathered = d.ctx.scratch;
        var levels = d.cascade(d.ctx.scratch + block_bytes, 1);
        var cursor = g.reduced.cursor(start);
        var i = start;
        while (i < end) {
            const n = @min(block, end - i);
            if (dense) {
                d.f.foldBlock(levels.partial(), base + i * d.size, n);
            } else {
                view.gatherRun(d.size, gathered, base, &cursor, n);
                d.f.foldBlock(levels.partial(), gathered, n);
            }
            levels.push();
            i += n;
        }
        return levels.finish();
    }

    fn stripOf(d: Driver, unit: u64) Strip {
        const outer = unit / d.g.strip_count;
        const column = unit % d.g.strip_count * d.g.strip;
        const along = @as(i64, @intCast(column)) * d.g.row_stride;
        const offset = d.g.kept.cursor(outer).offsets[0] + along;
        return .{
            .base = d.element(d.x, offset),
            .output = outer * d.g.width + column,
            .length = @min(d.g.strip, d.g.width - column),
        };
    }

    /// One chunk of the rows of one strip in the `columns` layout; the totals lie in scratch.
    fn foldStrip(d: Driver, s: Strip, chunk: u64) [*]const u8 {
        const g = d.g;
        const start = chunk * g.chunk_length;
        const end = @min(start + g.chunk_length, g.reduced_count);
        const stacks = (end - start) / g.stacked;
        if (g.stacked == 1 or stacks < 4) {
            return d.foldRows(s.base, &g.reduced, start, end, s.length);
        }
        // Narrow rows that follow each other: many at a time as one long row, whose pieces are then
        // combined by halves.
        const base = s.base + start * g.width * d.size;
        const long = g.stacked * g.width;
        var axes: view.Axes(1) = .empty;
        axes.append(stacks, .{@intCast(long)});
        const total = d.foldRows(base, &axes, 0, stacks, long);
        var half = long / 2;
        while (half >= g.width) : (half /= 2) {
            d.f.combine(total, total, total + half * d.wide, half);
        }
        for (stacks * g.stacked..end - start) |row| {
            d.f.addRow(total, base + row * g.width * d.size, g.width, false);
        }
        return total;
    }

    /// A row whose elements lie apart, brought together behind the cascade.
    fn gather(d: Driver, from: [*]const u8, n: u64) [*]const u8 {
        const to = d.ctx.scratch + d.g.work.scratch_bytes - d.g.strip * d.size;
        view.gatherLineOf(d.size, to, from, d.g.row_stride, n);
        return to;
    }

    /// Combines rows `[start, end)` (`start < end`) of `n` dense elements each.
    fn foldRows(
        d: Driver,
        base: [*]const u8,
        axes: *const view.Axes(1),
        start: u64,
        end: u64,
        n: u64,
    ) [*]u8 {
        var cursor = axes.cursor(start);
        var levels = d.cascade(d.ctx.scratch, n);
        var row = start;
        while (row < end) {
            const stop = @min(row + rows_per_partial, end);
            var fresh = true;
            while (row < stop) {
                var sources: [8][*]const u8 = undefined;
                const count: u64 = if (stop - row >= 8 and d.g.row_stride == 1) 8 else 1;
                for (0..count) |k| {
                    sources[k] = d.element(base, cursor.offsets[0]);
                    cursor.advance(1);
                }
                if (d.g.row_stride != 1) sources[0] = d.gather(sources[0], n);
                if (count == 8) {
                    d.f.addRows(levels.partial(), &sources, n, fresh);
                } else {
                    d.f.addRow(levels.partial(), sources[0], n, fresh);
                }
                fresh = false;
                row += count;
            }
            levels.push();
        }
        return levels.finish();
    }
};

/// A stream of rows of `n` values combined as a balanced tree: as a binary counter, level k (row
/// k + 1 of the memory) holds 2^k of them. Row 0 is where the next one is made.
const Cascade = struct {
    combine: *const fold.Combine,
    memory: [*]u8,
    n: u64,
    row_bytes: u64,
    pushed: u64 = 0,

    fn partial(c: *const Cascade) [*]u8 {
        return c.memory;
    }

    fn level(c: *const Cascade, k: u64) [*]u8 {
        return c.memory + (k + 1) * c.row_bytes;
    }

    fn push(c: *Cascade) void {
        var k: u64 = 0;
        var bits = c.pushed;
        while (bits & 1 == 1) : (bits >>= 1) {
            c.combine(c.memory, c.level(k), c.memory, c.n);
            k += 1;
        }
        c.pushed += 1;
        @memcpy(c.level(k), c.memory[0..c.row_bytes]);
    }

    /// The total of everything pushed, at least once.
    fn finish(c: *const Cascade) [*]u8 {
        var k: u64 = @ctz(c.pushed);
        const total = c.level(k);
        k += 1;
        while (c.pushed >> @intCast(k) != 0) : (k += 1) {
            if (c.pushed >> @intCast(k) & 1 == 1) c.combine(total, c.level(k), total, c.n);
        }
        return total;
    }
};
