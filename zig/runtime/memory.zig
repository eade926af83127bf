//! Where memory comes from: one allocator for everything but buffers, with a switch that makes it
//! fail, and the blocks that buffers live in. Tests throw the switch to prove that a warmed-up run
//! allocates its outputs and nothing else.
const std = @import("std");
const os = @import("../os.zig");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const Alignment = std.mem.Alignment;

/// Alignment of every buffer, arena and constant, in bytes: a cache line, and the widest vector.
pub const alignment = 64;

var failing: std.atomic.Value(u32) = .init(0);

/// While on, `gpa` refuses every request. Blocks of buffers are not affected.
pub fn failAllocations(enable: bool) void {
    failing.store(@intFromBool(enable), .seq_cst);
}

/// Anything of this size has pages of its own, huge ones where the system has them: fewer faults
/// at first use, and fewer address translations later.
const mapped_bytes_min = 4 << 20;
const page_alignment: Alignment = .fromByteUnits(4096);

const child = std.heap.c_allocator;

fn take(len: usize, a: Alignment) ?[*]u8 {
    if (!isMapped(len, a)) return child.rawAlloc(len, a, 0);
    const region = os.mapPages(len) catch return null;
    return region.ptr;
}

fn give(memory: []u8, a: Alignment) void {
    if (isMapped(memory.len, a)) {
        os.unmapPages(@alignCast(memory));
    } else {
        child.rawFree(memory, a, 0);
    }
}

fn isMapped(len: usize, a: Alignment) bool {
    return len >= mapped_bytes_min and !a.compare(.gt, page_alignment);
}

fn allocate(_: *anyopaque, len: usize, a: Alignment, _: usize) ?[*]u8 {
    if (failing.load(.monotonic) != 0) return null;
    return take(len, a);
}

fn resize(_: *anyopaque, memory: []u8, a: Alignment, new_len: usize, ra: usize) bool {
    if (failing.load(.monotonic) != 0 and new_len > memory.len) return false;
    if (isMapped(memory.len, a) or isMapped(new_len, a)) return false;
    return child.rawResize(memory, a, new_len, ra);
}

fn remap(_: *anyopaque, memory: []u8, a: Alignment, new_len: usize, ra: usize) ?[*]u8 {
    if (failing.load(.monotonic) != 0 and new_len > memory.len) return null;
    if (isMapped(memory.len, a) or isMapped(new_len, a)) return null;
    return child.rawRemap(memory, a, new_len, ra);
}

fn free(_: *anyopaque, memory: []u8, a: Alignment, _: usize) void {
    give(memory, a);
}

const vtable: Allocator.VTable = .{
    .alloc = allocate,
    .resize = resize,
    .remap = remap,
    .free = free,
};

/// The library's general allocator; safe from any thread.
pub const gpa: Allocator = .{ .ptr = undefined, .vtable = &vtable };

/// A block for a buffer, or null. Not subject to the switch. `capacity` must be `blockCapacity` of
/// the bytes wanted.
pub fn allocateBlock(capacity: u64) ?[*]align(alignment) u8 {
    assert(capacity % alignment == 0);
    const raw = take(capacity, .fromByteUnits(alignment)) orelse return null;
    return @alignCast(raw);
}

pub fn freeBlock(block: [*]align(alignment) u8, capacity: u64) void {
    give(block[0..capacity], .fromByteUnits(alignment));
}

/// Rounds a size up so that blocks of nearly equal sizes can stand in for each other: multiples of
/// 64 bytes up to 4 KiB, then eight steps to each power of two (at most 1/8 is wasted).
pub fn blockCapacity(bytes: u64) u64 {
    if (bytes <= 4096) return std.mem.alignForward(u64, @max(bytes, alignment), alignment);
    const step = @as(u64, 1) << @intCast(std.math.log2_int(u64, bytes) - 3);
    return std.mem.alignForward(u64, bytes, step);
}

test "capacities are aligned, enough, and waste at most an eighth" {
    var bytes: u64 = 1;
    while (bytes < 1 << 40) : (bytes = bytes * 5 / 3 + 1) {
        const capacity = blockCapacity(bytes);
        try std.testing.expect(capacity >= bytes and capacity % alignment == 0);
        if (bytes > 4096) try std.testing.expect(capacity - bytes <= bytes / 8);
    }
}

test "large memory has pages of its own and grows by moving" {
    var list: std.ArrayList(u64) = .empty;
    defer list.deinit(gpa);
    const count = 2 * mapped_bytes_min / @sizeOf(u64);
    for (0..count) |i| try list.append(gpa, i);
    for (list.items, 0..) |x, i| try std.testing.expectEqual(i, x);
    list.shrinkAndFree(gpa, 10);
    try std.testing.expectEqualSlices(u64, &.{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, list.items);
}

test "the switch fails the general allocator and spares blocks" {
    failAllocations(true);
    defer failAllocations(false);
    try std.testing.expectError(error.OutOfMemory, gpa.alloc(u8, 8));
    const block = allocateBlock(128) orelse return error.TestUnexpectedResult;
    freeBlock(block, 128);
}
