//! Random bits by Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy
//! as 1, 2, 3", 2011). Element i of a draw is the cipher of the 64-bit counter i under the key, so
//! every task computes its own part and the bits never depend on how the work is cut.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const view = @import("view.zig");

/// Blocks of a task, about 30 us.
const task_blocks = 1 << 14;
/// Blocks computed side by side.
const width = 32;
const Words = @Vector(width, u32);

pub const Op = enum(u32) { bits, fold_in };

/// What becomes of the two words of a block.
pub const Form = enum(u32) {
    /// uint32: their exclusive or.
    word = 0,
    /// uint64: the first word is the high half.
    double_word = 1,
    /// Two uint32 on a new last axis.
    pair = 2,
};

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    form: Form,
    /// The key's batch axes (for `fold_in` with the data's strides beside).
    batch: view.Axes(2),
    /// Elements between the words of a key.
    word_stride: i64,
    /// Blocks of one key, and of all.
    blocks_per_key: u64,
    block_count: u64,
};

/// `key` is uint32 `[batch.., 2]`; `count` is the number of elements of the attribute `shape`.
pub fn plan(key: *const kernel_abi.Operand, count: u64, form: Form) Geometry {
    return planWith(.bits, key, null, count, form);
}

/// `key` is uint32 `[batch.., 2]`, `data` uint32 `[batch..]`.
pub fn planFoldIn(key: *const kernel_abi.Operand, data: *const kernel_abi.Operand) Geometry {
    assert(data.rank + 1 == key.rank);
    return planWith(.fold_in, key, data, 1, .pair);
}

fn planWith(
    op: Op,
    key: *const kernel_abi.Operand,
    data: ?*const kernel_abi.Operand,
    count: u64,
    form: Form,
) Geometry {
    assert(key.rank > 0);
    assert(key.dims[key.rank - 1] == 2);
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.form = form;
    g.batch = .empty;
    for (0..key.rank - 1) |axis| {
        const data_stride = if (data) |d| d.strides[axis] else 0;
        g.batch.append(key.dims[axis], .{ key.strides[axis], data_stride });
    }
    g.word_stride = key.strides[key.rank - 1];
    g.blocks_per_key = count;
    g.block_count = g.batch.count() * count;
    g.work.task_count = (g.block_count + task_blocks - 1) / task_blocks;
    g.work.cost_ns = 2 * g.block_count;
    return g;
}

/// ptrs: result, key, and data for `fold_in`.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const keys: [*]const u32 = @ptrCast(@alignCast(ptrs[1]));
    const start = task * task_blocks;
    const end = @min(start + task_blocks, g.block_count);
    if (start == end or ctx.isCancelled()) return;
    var cursor = g.batch.cursor(start / g.blocks_per_key);
    var position = start;
    while (position < end) {
        const words = view.at(u32, keys, cursor.offsets[0]);
        const key = [2]u32{ words[0], view.at(u32, words, g.word_stride)[0] };
        const first = position % g.blocks_per_key;
        const n = @min(g.blocks_per_key - first, end - position);
        var counter = first;
        if (g.op == .fold_in) {
            const data: [*]const u32 = @ptrCast(@alignCast(ptrs[2]));
            counter = view.at(u32, data, cursor.offsets[1])[0];
        }
        switch (g.form) {
            inline else => |form| fill(form, ptrs[0], position, key, counter, n),
        }
        position += n;
        cursor.advance(1);
    }
}

/// Blocks `[counter, counter + n)` under one key, to the elements from `position` on.
fn fill(comptime form: Form, result: [*]u8, position: u64, key: [2]u32, counter: u64, n: u64) void {
    var done: u64 = 0;
    while (done < n) {
        const count: u64 = @min(width, n - done);
        const offsets: @Vector(width, u64) = std.simd.iota(u64, width);
        const counters = offsets +% @as(@Vector(width, u64), @splat(counter +% done));
        const high: Words = @truncate(counters >> @splat(32));
        const low: Words = @truncate(counters);
        const block = threefry(key, high, low);
        const at = position + done;
        switch (form) {
            .word => {
                const to = @as([*]u32, @ptrCast(@alignCast(result))) + at;
                put(u32, width, to, block[0] ^ block[1], count);
            },
            .double_word => {
                const to = @as([*]u64, @ptrCast(@alignCast(result))) + at;
                const top: @Vector(width, u64) = block[0];
                put(u64, width, to, (top << @splat(32)) | block[1], count);
            },
            .pair => {
                const to = @as([*]u32, @ptrCast(@alignCast(result))) + 2 * at;
                const both = std.simd.interlace(.{ block[0], block[1] });
                put(u32, 2 * width, to, both, 2 * count);
            },
        }
        done += count;
    }
}

inline fn put(comptime T: type, comptime n: u32, to: [*]T, v: @Vector(n, T), count: u64) void {
    if (count == n) {
        to[0..n].* = v;
        return;
    }
    const all: [n]T = v;
    @memcpy(to[0..count], all[0..count]);
}

/// The cipher of the blocks (x0, x1) under a key.
inline fn threefry(key: [2]u32, x0: Words, x1: Words) [2]Words {
    const schedule = [3]u32{ key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda };
    const rotations = [2][4]u5{ .{ 13, 15, 26, 6 }, .{ 17, 29, 16, 24 } };
    var a = x0 +% @as(Words, @splat(schedule[0]));
    var b = x1 +% @as(Words, @splat(schedule[1]));
    inline for (0..5) |group| {
        inline for (rotations[group % 2]) |rotation| {
            a +%= b;
            b = (b << @splat(rotation)) | (b >> @splat(32 - @as(u6, rotation)));
            b ^= a;
        }
        a +%= @splat(schedule[(group + 1) % 3]);
        b +%= @splat(schedule[(group + 2) % 3] +% @as(u32, group + 1));
    }
    return .{ a, b };
}

const harness = @import("harness.zig");

test "the published vectors of Threefry-2x32-20" {
    const cases = [_][6]u32{
        .{ 0, 0, 0, 0, 0x6b200159, 0x99ba4efe },
        .{ ~@as(u32, 0), ~@as(u32, 0), ~@as(u32, 0), ~@as(u32, 0), 0x1cb996fc, 0xbb002be7 },
        .{ 0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3, 0xc4923a9c, 0x483df7a0 },
    };
    for (cases) |c| {
        const got = threefry(.{ c[0], c[1] }, @splat(c[2]), @splat(c[3]));
        try std.testing.expectEqual(c[4], got[0][5]);
        try std.testing.expectEqual(c[5], got[1][5]);
    }
}

test "every form, batched and strided keys, counters over several tasks" {
    const batch = 2;
    const count = task_blocks + 37;
    const gpa = std.testing.allocator;
    var memory = [_]u32{ 5, 6, 7, 8 };
    const key: kernel_abi.Operand = operand: {
        var o = kernel_abi.Operand.contiguous(.u32, &.{ batch, 2 });
        o.strides[0] = 1;
        o.strides[1] = 2;
        break :operand o;
    };
    const out = try gpa.alignedAlloc(u64, .@"64", batch * count);
    defer gpa.free(out);
    for ([_]Form{ .word, .double_word, .pair }) |form| {
        const g = plan(&key, count, form);
        _ = try harness.execute(run, &g, &.{ @ptrCast(out.ptr), @ptrCast(&memory) });
        const words: [*]const u32 = @ptrCast(out.ptr);
        for (0..batch) |b| for ([_]u64{ 0, 1, 15, 16, 17, count / 2, count - 1 }) |i| {
            const block = threefry(.{ memory[b], memory[b + 2] }, @splat(0), @splat(@intCast(i)));
            const at = b * count + i;
            switch (form) {
                .word => try std.testing.expectEqual(block[0][0] ^ block[1][0], words[at]),
                .double_word => {
                    const expected = @as(u64, block[0][0]) << 32 | block[1][0];
                    try std.testing.expectEqual(expected, out[at]);
                },
                .pair => {
                    try std.testing.expectEqual(block[0][0], words[2 * at]);
                    try std.testing.expectEqual(block[1][0], words[2 * at + 1]);
                },
            }
        };
    }
}

test "counters beyond 32 bits carry into the high word" {
    var out: [2]u32 = undefined;
    fill(.pair, @ptrCast(&out), 0, .{ 1, 2 }, 0x5_0000_0003, 1);
    const block = threefry(.{ 1, 2 }, @splat(5), @splat(3));
    try std.testing.expectEqualSlices(u32, &.{ block[0][0], block[1][0] }, &out);
}

test "fold_in is the cipher of (0, data), for each key of a batch" {
    var keys = [_]u32{ 1, 2, 3, 4, 5, 6 };
    var data = [_]u32{ 9, 0xffff_ffff, 7 };
    var out: [6]u32 = undefined;
    const key = kernel_abi.Operand.contiguous(.u32, &.{ 3, 2 });
    const datum = kernel_abi.Operand.contiguous(.u32, &.{3});
    const g = planFoldIn(&key, &datum);
    _ = try harness.execute(run, &g, &.{ @ptrCast(&out), @ptrCast(&keys), @ptrCast(&data) });
    for (0..3) |b| {
        const block = threefry(.{ keys[2 * b], keys[2 * b + 1] }, @splat(0), @splat(data[b]));
        try std.testing.expectEqual(block[0][0], out[2 * b]);
        try std.testing.expectEqual(block[1][0], out[2 * b + 1]);
    }
}
