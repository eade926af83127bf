//! Stable sorts along one axis of any strided operand: the first `count` of the sorted values and
//! their int64 positions. Equal elements keep their order in either direction, NaN comes last
//! (`sort_key.zig`).
//!
//! A row becomes records of key and position, which are sorted by the bytes of the key, the lowest
//! first (a counting sort each, and none for a byte that all share); short rows by insertion. When
//! only a few are wanted, they are found first, by the highest byte downwards, and sorted alone.
//! One task sorts whole rows, so the result does not depend on threads.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const view = @import("view.zig");
const Order = @import("sort_key.zig").Order;

/// Elements of a task: about 80 us.
const task_elements = 1 << 12;
/// Rows up to here are sorted by insertion: measured, where counting bytes becomes quicker.
const insertion_length = 40;
/// Records between two looks at the cancellation flag.
const poll_records = 1 << 16;
/// What a row needs is scratch of the worker up to here; beyond that memory for each row, or many
/// workers would hold much more than the result does.
const scratch_bytes_max = 1 << 18;
/// A selection reads all records about as often as a sort moves them.
const select_ratio = 4;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    order: Order,
    /// Axes that are not sorted, strides of x and of the results.
    kept: view.Axes(2),
    length: u64,
    count: u64,
    strides: [2]i64,
    row_count: u64,
    rows_per_task: u64,
    row_bytes: u64,
    wide: bool,
};

/// The results have extent `count` along `axis`. ptrs: values, positions, x.
pub fn plan(x: *const kernel_abi.Operand, axis: u32, descending: bool, count: u64) Geometry {
    assert(axis < x.rank);
    assert(count <= x.dims[axis]);
    var g = std.mem.zeroes(Geometry);
    g.order = .of(x.dtype, descending);
    var dims = x.dims;
    dims[axis] = count;
    const result = kernel_abi.Operand.contiguous(x.dtype, dims[0..x.rank]);
    g.length = x.dims[axis];
    g.count = count;
    g.strides = .{ x.strides[axis], result.strides[axis] };
    g.kept = .empty;
    for (0..x.rank) |a| {
        if (a != axis) g.kept.append(x.dims[a], .{ x.strides[a], result.strides[a] });
    }
    g.row_count = if (count == 0) 0 else g.kept.count();
    g.wide = g.length > std.math.maxInt(u32);
    const record: u64 = if (g.wide or g.order.size == 8) 16 else 8;
    g.row_bytes = std.mem.alignForward(u64, 2 * g.length * record, 64);
    g.rows_per_task = @max(1, task_elements / @max(g.length, 1));
    if (g.row_bytes <= scratch_bytes_max) {
        g.work.scratch_bytes = g.row_bytes;
    } else {
        assert(g.rows_per_task == 1);
        g.work.shared_bytes = g.row_bytes * g.row_count;
    }
    g.work.task_count = (g.row_count + g.rows_per_task - 1) / g.rows_per_task;
    g.work.cost_ns = g.row_count * g.length * (10 + 2 * @as(u64, g.order.size));
    return g;
}

/// ptrs: values, positions, x, and the records if they are not in scratch.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const shared = g.work.shared_bytes > 0;
    const memory = if (shared) ptrs[3] + task * g.row_bytes else ctx.scratch;
    switch (g.order.size) {
        inline 1, 2, 4, 8 => |size| {
            const E = view.Unit(size);
            if (g.wide) {
                rows(E, u64, u64, g, ptrs, task, memory, ctx);
            } else {
                rows(E, if (size == 8) u64 else u32, u32, g, ptrs, task, memory, ctx);
            }
        },
        else => unreachable,
    }
}

/// The rows of a task: elements of type `E`, sorted by keys `K` with positions `P`.
fn rows(
    comptime E: type,
    comptime K: type,
    comptime P: type,
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    task: u64,
    memory: [*]u8,
    ctx: *kernel_abi.TaskContext,
) void {
    const Record = Sorter(K, P).Record;
    const first = task * g.rows_per_task;
    const end = @min(first + g.rows_per_task, g.row_count);
    const values: [*]E = @ptrCast(@alignCast(ptrs[0]));
    const positions: [*]i64 = @ptrCast(@alignCast(ptrs[1]));
    const x: [*]const E = @ptrCast(@alignCast(ptrs[2]));
    const records: [*]Record = @ptrCast(@alignCast(memory));
    var cursor = g.kept.cursor(first);
    for (first..end) |_| {
        if (ctx.isCancelled()) return;
        const from = view.at(E, x, cursor.offsets[0]);
        load(E, Record, g, from, records, ctx);
        const sorted = Sorter(K, P).sort(records, g.length, g.count, ctx) orelse return;
        const to = view.atMutable(E, values, cursor.offsets[1]);
        const at = view.atMutable(i64, positions, cursor.offsets[1]);
        store(E, Record, g, from, sorted, to, at, ctx);
        cursor.advance(1);
    }
}

/// The numbers below `count` in pieces of which each takes well below a millisecond; none any more
/// once the run is cancelled, which the caller asks then.
const Pieces = struct {
    count: u64,
    ctx: *const kernel_abi.TaskContext,
    start: u64 = 0,

    const Piece = struct { start: u64, end: u64 };

    fn next(p: *Pieces) ?Piece {
        if (p.start == p.count or p.ctx.isCancelled()) return null;
        const piece: Piece = .{ .start = p.start, .end = @min(p.start + poll_records, p.count) };
        p.start = piece.end;
        return piece;
    }
};

fn load(
    comptime E: type,
    comptime Record: type,
    g: *const Geometry,
    from: [*]const E,
    records: [*]Record,
    ctx: *const kernel_abi.TaskContext,
) void {
    switch (g.order.form) {
        inline else => |form| {
            var order = g.order;
            order.form = form; // known here, so that the loop does not ask
            var offset: i64 = 0;
            var pieces: Pieces = .{ .count = g.length, .ctx = ctx };
            while (pieces.next()) |piece| {
                for (records[piece.start..piece.end], piece.start..) |*record, i| {
                    const bits = view.at(E, from, offset)[0];
                    record.* = .{ .key = order.key(E, bits), .position = @intCast(i) };
                    offset += g.strides[0];
                }
            }
        },
    }
}

/// The values are read once more: keys do not tell zeros and NaNs apart.
fn store(
    comptime E: type,
    comptime Record: type,
    g: *const Geometry,
    from: [*]const E,
    records: [*]const Record,
    values: [*]E,
    positions: [*]i64,
    ctx: *const kernel_abi.TaskContext,
) void {
    var offset: i64 = 0;
    var pieces: Pieces = .{ .count = g.count, .ctx = ctx };
    while (pieces.next()) |piece| {
        for (records[piece.start..piece.end]) |record| {
            const position: i64 = @intCast(record.position);
            view.atMutable(E, values, offset)[0] = view.at(E, from, position * g.strides[0])[0];
            view.atMutable(i64, positions, offset)[0] = position;
            offset += g.strides[1];
        }
    }
}

/// Sorts records of keys `K` and positions `P`. Keys of small elements are widened: a record would
/// not be smaller, and bytes that are always 0 cost next to nothing.
fn Sorter(comptime K: type, comptime P: type) type {
    return struct {
        const Record = extern struct { key: K, position: P };
        const byte_count = @sizeOf(K);
        const Counts = [256]P;
        const Shift = std.math.Log2Int(K);

        /// Sorts `length` records, of which the first `count` are wanted; as many lie behind them
        /// unused. Gives where the sorted ones are, or null if the run is cancelled.
        fn sort(
            a: [*]Record,
            length: u64,
            count: u64,
            ctx: *kernel_abi.TaskContext,
        ) ?[*]Record {
            var n = length;
            if (n > insertion_length and count < n / select_ratio) {
                if (!select(a, n, count, ctx)) return null;
                n = count;
            }
            if (n <= insertion_length) {
                insertionSort(a[0..n]);
                return a;
            }
            var counts: [byte_count]Counts = @splat(@splat(0));
            var pieces: Pieces = .{ .count = n, .ctx = ctx };
            while (pieces.next()) |piece| {
                for (a[piece.start..piece.end]) |record| {
                    inline for (0..byte_count) |byte| counts[byte][digit(record.key, byte)] += 1;
                }
            }
            if (ctx.isCancelled()) return null;
            var source = a;
            var target = a + length;
            for (&counts, 0..) |*places, byte| {
                if (places[digit(source[0].key, byte)] == n) continue;
                if (!distribute(source, target, n, places, byte, ctx)) return null;
                std.mem.swap([*]Record, &source, &target);
            }
            return source;
        }

        inline fn digit(key: K, byte: u64) u8 {
            return @truncate(key >> @as(Shift, @intCast(8 * byte)));
        }

        fn insertionSort(records: []Record) void {
            for (1..records.len) |i| {
                const record = records[i];
                var j = i;
                while (j > 0 and records[j - 1].key > record.key) : (j -= 1) {
                    records[j] = records[j - 1];
                }
                records[j] = record;
            }
        }

        /// Moves all records to `target` in the order of one byte of their keys.
        fn distribute(
            source: [*]const Record,
            target: [*]Record,
            n: u64,
            counts: *Counts,
            byte: u64,
            ctx: *kernel_abi.TaskContext,
        ) bool {
            var start: P = 0;
            for (counts) |*count| {
                const here = count.*;
                count.* = start;
                start += here;
            }
            var pieces: Pieces = .{ .count = n, .ctx = ctx };
            while (pieces.next()) |piece| {
                for (source[piece.start..piece.end]) |record| {
                    const place = &counts[digit(record.key, byte)];
                    target[place.*] = record;
                    place.* += 1;
                }
            }
            return !ctx.isCancelled();
        }

        /// Moves the first `count` records of the sorted order to the front, in the order they
        /// have; false if the run is cancelled.
        fn select(records: [*]Record, n: u64, count: u64, ctx: *kernel_abi.TaskContext) bool {
            assert(count > 0 and count < n);
            var varying: K = 0;
            var pieces: Pieces = .{ .count = n, .ctx = ctx };
            while (pieces.next()) |piece| {
                for (records[piece.start..piece.end]) |r| varying |= r.key ^ records[0].key;
            }
            // The keys whose bits in `mask` are `prefix` hold the last one wanted.
            var prefix: K = 0;
            var mask: K = 0;
            var wanted = count;
            var byte: u64 = byte_count;
            while (byte > 0) {
                byte -= 1;
                const shift: Shift = @intCast(8 * byte);
                const here = @as(K, 0xff) << shift;
                defer mask |= here;
                if (varying & here == 0) {
                    prefix |= records[0].key & here;
                    continue;
                }
                var counts: Counts = @splat(0);
                pieces = .{ .count = n, .ctx = ctx };
                while (pieces.next()) |piece| {
                    for (records[piece.start..piece.end]) |record| {
                        if (record.key & mask == prefix) counts[digit(record.key, byte)] += 1;
                    }
                }
                if (ctx.isCancelled()) return false;
                var bucket: u8 = 0;
                while (counts[bucket] < wanted) : (bucket += 1) wanted -= counts[bucket];
                prefix |= @as(K, bucket) << shift;
                if (counts[bucket] == wanted) break;
            }
            var kept: u64 = 0;
            pieces = .{ .count = n, .ctx = ctx };
            while (pieces.next()) |piece| {
                for (records[piece.start..piece.end]) |record| {
                    const known = record.key & mask;
                    if (known > prefix or (known == prefix and wanted == 0)) continue;
                    if (known == prefix) wanted -= 1;
                    records[kept] = record;
                    kept += 1;
                }
            }
            if (ctx.isCancelled()) return false;
            assert(kept == count);
            return true;
        }
    };
}

const harness = @import("harness.zig");
const DType = dtype.DType;

/// Whether the records of a line are in order, and each position comes from the right element.
fn expectSorted(comptime d: DType, x: *const harness.View, g: *const Geometry, axis: u32) !void {
    const dims = x.operand.dims[0..x.operand.rank];
    var kept = x.operand.dims;
    kept[axis] = g.count;
    const values = try harness.makeView(d, kept[0..dims.len], .dense);
    defer values.deinit();
    const positions = try harness.makeView(.i64, kept[0..dims.len], .dense);
    defer positions.deinit();
    const pointers = [_][*]u8{ values.pointer(), positions.pointer(), x.pointer() };
    _ = try harness.execute(run, g, &pointers);
    var inner: u64 = 1;
    for (dims[axis + 1 ..]) |e| inner *= e;
    const K = view.Unit(@sizeOf(dtype.Storage(d)));
    const seen = try std.testing.allocator.alloc(bool, g.length);
    defer std.testing.allocator.free(seen);
    for (0..x.operand.elementCount() / @max(g.length, 1)) |line| {
        const first = line / inner * g.length * inner + line % inner;
        const first_result = line / inner * g.count * inner + line % inner;
        @memset(seen, false);
        var last: K = 0;
        var last_position: i64 = -1;
        for (0..g.count) |i| {
            const position = positions.raw(.i64, first_result + i * inner);
            const value: K = @bitCast(values.raw(d, first_result + i * inner));
            const source = first + @as(u64, @intCast(position)) * inner;
            try std.testing.expectEqual(@as(K, @bitCast(x.raw(d, source))), value);
            const key = g.order.key(K, value);
            try std.testing.expect(i == 0 or key > last or
                (key == last and position > last_position));
            seen[@intCast(position)] = true;
            last = key;
            last_position = position;
        }
        // What was left out comes after the last that was not.
        for (seen, 0..) |is_in, i| {
            if (is_in or g.count == 0) continue;
            const key = g.order.key(K, @bitCast(x.raw(d, first + i * inner)));
            try std.testing.expect(key > last or (key == last and i > last_position));
        }
    }
}

fn sprinkleNan(random: std.Random, comptime d: DType, x: *const harness.View) void {
    if (comptime !d.isFloat()) return;
    const lanes = @import("lanes.zig");
    const elements: []dtype.Storage(d) = @ptrCast(@alignCast(x.memory));
    const nan = std.math.nan(dtype.Compute(d));
    for (elements) |*e| {
        if (random.uintLessThan(u8, 20) > 0) continue;
        e.* = lanes.narrow(d, if (random.boolean()) nan else -nan);
    }
}

test "every dtype, layout, axis and direction: in order, stable, nothing left out" {
    var prng: std.Random.DefaultPrng = .init(8);
    const random = prng.random();
    const shapes = [_][]const u64{ &.{ 3, 5, 7 }, &.{ 2, 65 }, &.{ 70, 4 }, &.{300}, &.{ 0, 3 } };
    inline for (harness.all_dtypes) |d| {
        for (shapes) |dims| for (harness.all_layouts) |layout| {
            const x = try harness.randomView(random, d, dims, layout);
            defer x.deinit();
            sprinkleNan(random, d, &x);
            for (0..dims.len) |axis| for ([_]bool{ false, true }) |descending| {
                const n = dims[axis];
                for ([_]u64{ n, n / 7, @min(n, 1) }) |count| {
                    const g = plan(&x.operand, @intCast(axis), descending, count);
                    try expectSorted(d, &x, &g, @intCast(axis));
                }
            };
        };
    }
}

test "long rows: all bytes of the keys, memory of their own, wide positions" {
    var prng: std.Random.DefaultPrng = .init(9);
    const random = prng.random();
    inline for (.{ DType.f32, DType.i64, DType.u16, DType.f64 }) |d| {
        const x = try harness.makeView(d, &.{ 2, 20_000 }, .dense);
        defer x.deinit();
        random.bytes(x.memory);
        var g = plan(&x.operand, 1, false, 20_000);
        try std.testing.expect(g.work.shared_bytes > 0);
        try expectSorted(d, &x, &g, 1);
        g = plan(&x.operand, 1, true, 50);
        try expectSorted(d, &x, &g, 1);
        g.wide = true; // as beyond 2^32 elements
        g.row_bytes = 2 * 16 * 20_000;
        g.work.shared_bytes = 2 * g.row_bytes;
        try expectSorted(d, &x, &g, 1);
        const short = try harness.makeView(d, &.{ 3, 100 }, .dense);
        defer short.deinit();
        random.bytes(short.memory);
        const in_scratch = plan(&short.operand, 1, false, 100);
        try std.testing.expect(in_scratch.work.scratch_bytes > 0);
        try expectSorted(d, &short, &in_scratch, 1);
    }
}
