//! argmax and argmin along one axis of any strided operand: int64 positions, the first on ties; NaN
//! wins over everything, the first NaN over later ones.
//!
//! As in `reduce.zig`, `rows` looks at one list at a time and `columns` at whole rows side by side;
//! few long lists are cut into chunks whose winners meet in a second phase.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;

pub const Op = enum(u32) { argmax, argmin };

const Layout = enum(u32) { rows, columns };

/// Elements of a task, about 30 us.
const task_elements = 1 << 17;
const strip_length = 512;
const tasks_enough = 8;
const block_length = 1024;
const block_bytes = block_length * 8;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    layout: Layout,
    /// Kept axes; in the `columns` layout without the innermost.
    kept: view.Axes(1),
    length: u64,
    stride: i64,
    width: u64,
    strip: u64,
    strip_count: u64,
    /// Lists, or strips.
    unit_count: u64,
    units_per_task: u64,
    chunk_count: u64,
    chunk_length: u64,
};

/// The axis has at least one element unless there is no result.
pub fn plan(op: Op, x: *const kernel_abi.Operand, axis: u32) Geometry {
    assert(axis < x.rank);
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = lanes.canonical(.max, x.dtype);
    g.length = x.dims[axis];
    g.stride = x.strides[axis];
    g.kept = .empty;
    for (0..x.rank) |a| if (a != axis) g.kept.append(x.dims[a], .{x.strides[a]});
    const last = g.kept.rank -| 1;
    g.width = 1;
    g.layout = .rows;
    if (g.kept.rank > 0 and g.kept.strides[0][last] == 1 and g.kept.dims[last] >= 4) {
        g.layout = .columns;
        g.kept.rank -= 1;
        g.width = g.kept.dims[last];
    }
    g.strip = @min(g.width, strip_length);
    g.strip_count = (g.width + g.strip - 1) / g.strip;
    g.unit_count = g.kept.count() * g.strip_count;
    const each = @max(g.length * g.strip, 1);
    g.units_per_task = @max(1, task_elements / each);
    const tasks = (g.unit_count + g.units_per_task - 1) / g.units_per_task;
    g.chunk_count = 1;
    g.chunk_length = g.length;
    g.work.task_count = tasks;
    g.work.scratch_bytes = block_bytes + g.strip * 16;
    g.work.cost_ns = x.elementCount() / 2;
    if (tasks == 0 or tasks >= tasks_enough or each < 2 * task_elements) return g;
    const wanted = @min((each + task_elements - 1) / task_elements, 1024);
    g.chunk_length = (g.length + wanted - 1) / wanted;
    g.chunk_count = (g.length + g.chunk_length - 1) / g.chunk_length;
    g.units_per_task = 1;
    g.work.phase_task_count = g.unit_count * g.chunk_count;
    g.work.task_count = g.work.phase_task_count + g.unit_count;
    g.work.shared_bytes = g.work.phase_task_count * g.strip * 16;
    return g;
}

/// ptrs: result, x, and the winners of the chunks when there are any.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const d: Driver = .{
        .g = g,
        .f = functions(g.op, g.dtype),
        .x = ptrs[1],
        .size = g.dtype.bytes(),
        .scratch = ctx.scratch,
    };
    const result: [*]i64 = @ptrCast(@alignCast(ptrs[0]));
    if (g.chunk_count == 1) {
        const start = task * g.units_per_task;
        for (start..@min(start + g.units_per_task, g.unit_count)) |unit| {
            if (ctx.isCancelled()) return;
            const winners = d.winnersAt(ctx.scratch + block_bytes, unit);
            d.search(unit, 0, winners);
            @memcpy(d.target(result, unit), winners.positions);
        }
        return;
    }
    const bytes = g.strip * 16;
    if (task < g.work.phase_task_count) {
        const unit = task / g.chunk_count;
        return d.search(unit, task % g.chunk_count, d.winnersAt(ptrs[2] + task * bytes, unit));
    }
    const unit = task - g.work.phase_task_count;
    const memory = ptrs[2] + unit * g.chunk_count * bytes;
    const first = d.winnersAt(memory, unit);
    for (1..g.chunk_count) |chunk| d.f.merge(first, d.winnersAt(memory + chunk * bytes, unit));
    @memcpy(d.target(result, unit), first.positions);
}

/// The best value so far (8 bytes each, as computed with) and its position, for every column.
const Winners = struct {
    values: [*]u8,
    positions: []i64,
};

const Driver = struct {
    g: *const Geometry,
    f: *const Functions,
    x: [*]const u8,
    size: u64,
    scratch: [*]u8,

    fn stripLength(d: Driver, unit: u64) u64 {
        return @min(d.g.strip, d.g.width - unit % d.g.strip_count * d.g.strip);
    }

    fn winnersAt(d: Driver, memory: [*]u8, unit: u64) Winners {
        const positions: [*]i64 = @ptrCast(@alignCast(memory + d.g.strip * 8));
        return .{ .values = memory, .positions = positions[0..d.stripLength(unit)] };
    }

    /// Where the positions of a unit go.
    fn target(d: Driver, result: [*]i64, unit: u64) []i64 {
        const column = unit % d.g.strip_count * d.g.strip;
        const to = result + unit / d.g.strip_count * d.g.width + column;
        return to[0..d.stripLength(unit)];
    }

    /// The winners of one chunk of one unit.
    fn search(d: Driver, unit: u64, chunk: u64, winners: Winners) void {
        const g = d.g;
        const size: i64 = @intCast(d.size);
        const start = chunk * g.chunk_length;
        const end = @min(start + g.chunk_length, g.length);
        const column: i64 = @intCast(unit % g.strip_count * g.strip);
        const line = g.kept.cursor(unit / g.strip_count).offsets[0] + column;
        const first = line + @as(i64, @intCast(start)) * g.stride;
        var from = view.at(u8, d.x, first * size);
        if (g.layout == .columns) {
            for (start..end) |i| {
                d.f.row(winners, from, i, i == start);
                from = view.at(u8, from, g.stride * size);
            }
            return;
        }
        var i = start;
        while (i < end) {
            const n: u64 = @min(block_length, end - i);
            if (g.stride == 1) {
                d.f.block(winners, from, n, i, i == start);
            } else {
                var axes: view.Axes(1) = .empty;
                axes.append(n, .{g.stride});
                var cursor = axes.cursor(0);
                view.gatherRun(d.size, d.scratch, from, &cursor, n);
                d.f.block(winners, d.scratch, n, i, i == start);
            }
            from = view.at(u8, from, g.stride * @as(i64, @intCast(n)) * size);
            i += n;
        }
    }
};

/// The loops that depend on operation and dtype.
const Functions = struct {
    /// Lets `n` dense elements from position `position` on compete for the one winner.
    block: *const fn (w: Winners, from: [*]const u8, n: u64, position: u64, fresh: bool) void,
    /// Lets a row compete, each element in its column.
    row: *const fn (w: Winners, from: [*]const u8, position: u64, fresh: bool) void,
    /// Lets the winners of a later chunk compete.
    merge: *const fn (w: Winners, later: Winners) void,
};

fn functions(op: Op, d: DType) *const Functions {
    @setEvalBranchQuota(100_000);
    switch (op) {
        inline else => |o| switch (d) {
            .bool => unreachable,
            _ => unreachable,
            inline else => |e| return &Typed(o, e).table,
        },
    }
}

fn Typed(comptime op: Op, comptime d: DType) type {
    return struct {
        const S = Storage(d);
        const C = Compute(d);
        /// Few enough for the positions beside them.
        const W = @min(lanes.lanes(d), 16);
        const V = @Vector(W, C);
        const table: Functions = .{ .block = &block, .row = &row, .merge = &merge };
        const order: lanes.Op = if (op == .argmax) .max else .min;

        /// Whether `b` takes the place of an earlier `a`.
        inline fn better(a: anytype, b: @TypeOf(a)) @TypeOf(a < b) {
            const ahead = if (op == .argmax) b > a else b < a;
            if (!comptime d.isFloat()) return ahead;
            const news = if (@TypeOf(a) == C) b != b and a == a else (b != b) & (a == a);
            return if (@TypeOf(a) == C) ahead or news else ahead | news;
        }

        fn block(w: Winners, from_bytes: [*]const u8, n: u64, position: u64, fresh: bool) void {
            const from: [*]const S = @ptrCast(@alignCast(from_bytes));
            const best: *C = @ptrCast(@alignCast(w.values));
            const here = lanes.foldBlock(order, d, from, n);
            if (!fresh and !better(best.*, here)) return;
            best.* = here;
            w.positions[0] = @intCast(position + find(from, n, here));
        }

        /// The first of `n` elements that is `value`, or NaN.
        inline fn find(from: [*]const S, n: u64, value: C) u64 {
            const wanted: V = @splat(value);
            var i: u64 = 0;
            while (i + W <= n) : (i += W) {
                const v = loadRow(from + i);
                if (@reduce(.Or, (v == wanted) | (v != v))) break;
            }
            while (i < n) : (i += 1) {
                lanes.keepScalar();
                const x = lanes.widen(d, from[i]);
                if (x == value or x != x) break;
            }
            return i;
        }

        fn row(w: Winners, from_bytes: [*]const u8, position: u64, fresh: bool) void {
            const from: [*]const S = @ptrCast(@alignCast(from_bytes));
            const values: [*]C = @ptrCast(@alignCast(w.values));
            const at: i64 = @intCast(position);
            const n = w.positions.len;
            var j: u64 = 0;
            while (!fresh and j + W <= n) : (j += W) {
                const old: V = values[j..][0..W].*;
                const new = loadRow(from + j);
                const wins = better(old, new);
                values[j..][0..W].* = @select(C, wins, new, old);
                const positions: @Vector(W, i64) = w.positions[j..][0..W].*;
                const news: @Vector(W, i64) = @splat(at);
                w.positions[j..][0..W].* = @select(i64, wins, news, positions);
            }
            while (j < n) : (j += 1) {
                lanes.keepScalar();
                const x = lanes.widen(d, from[j]);
                if (fresh or better(values[j], x)) {
                    values[j] = x;
                    w.positions[j] = at;
                }
            }
        }

        inline fn loadRow(p: [*]const S) V {
            if (W == lanes.lanes(d)) return lanes.load(d, p);
            return p[0..W].*;
        }

        fn merge(w: Winners, later: Winners) void {
            const values: [*]C = @ptrCast(@alignCast(w.values));
            const others: [*]const C = @ptrCast(@alignCast(later.values));
            for (w.positions, later.positions, 0..) |*to, from, j| {
                lanes.keepScalar();
                if (better(values[j], others[j])) {
                    values[j] = others[j];
                    to.* = from;
                }
            }
        }
    };
}

const harness = @import("harness.zig");

fn expectPositions(comptime op: Op, comptime d: DType, x: *const harness.View, axis: u32) !void {
    const dims = x.operand.dims[0..x.operand.rank];
    const g = plan(op, &x.operand, axis);
    const n = dims[axis];
    const lines = x.operand.elementCount() / @max(n, 1);
    const result = try harness.makeView(.i64, &.{lines}, .dense);
    defer result.deinit();
    _ = try harness.executeViews(run, &g, &result, &.{x});
    var inner: u64 = 1;
    for (dims[axis + 1 ..]) |e| inner *= e;
    for (0..lines) |line| {
        const first = line / inner * n * inner + line % inner;
        var best: u64 = 0;
        for (1..n) |i| {
            const a = x.get(d, first + best * inner);
            const b = x.get(d, first + i * inner);
            if (a != a) break;
            if (b != b or (if (op == .argmax) b > a else b < a)) best = i;
        }
        try std.testing.expectEqual(@as(i64, @intCast(best)), result.raw(.i64, line));
    }
}

test "every dtype, layout and axis agrees with a scalar loop, NaN and ties included" {
    var prng: std.Random.DefaultPrng = .init(6);
    const random = prng.random();
    const shapes = [_][]const u64{ &.{ 3, 5, 7 }, &.{ 2, 37 }, &.{ 70, 35 }, &.{ 3, 700 }, &.{1} };
    inline for (harness.all_dtypes) |d| {
        for (shapes) |dims| for (harness.all_layouts) |layout| {
            const x = try harness.randomView(random, d, dims, layout);
            defer x.deinit();
            if (comptime d.isFloat()) {
                const elements: []Storage(d) = @ptrCast(@alignCast(x.memory));
                for (elements) |*e| {
                    if (random.uintLessThan(u8, 30) == 0) {
                        e.* = lanes.narrow(d, std.math.nan(Compute(d)));
                    }
                }
            }
            for (0..dims.len) |axis| {
                if (dims[axis] == 0) continue;
                try expectPositions(.argmax, d, &x, @intCast(axis));
                try expectPositions(.argmin, d, &x, @intCast(axis));
            }
        };
    }
}

test "long lists in two phases" {
    var prng: std.Random.DefaultPrng = .init(7);
    const random = prng.random();
    for ([_][]const u64{ &.{300_000}, &.{ 300_000, 5 } }) |dims| {
        for ([_]harness.Layout{ .dense, .spaced }) |layout| {
            inline for (.{ DType.f32, DType.i8 }) |d| {
                const x = try harness.randomView(random, d, dims, layout);
                defer x.deinit();
                const last = x.operand.elementCount() - 2;
                x.set(d, last, 100);
                const g = plan(.argmax, &x.operand, 0);
                try std.testing.expect(g.work.phase_task_count > 0);
                try expectPositions(.argmax, d, &x, 0);
                try expectPositions(.argmin, d, &x, 0);
            }
        }
    }
}
