//! Where memory comes from: one allocator for everything but buffers, with a switch that makes it
//! fail, and the blocks that buffers live in. Tests throw the switch to prove that a warmed-up run
//! allocates its outputs and nothing else.
const std = @import("std");
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

const child = std.heap.c_allocator;

fn allocate(_: *anyopaque, len: usize, a: Alignment, ra: usize) ?[*]u8 {
    if (failing.load(.monotonic) != 0) return null;
    return child.rawAlloc(len, a, ra);
}

fn resize(_: *anyopaque, memory: []u8, a: Alignment, new_len: usize, ra: usize) bool {
    if (failing.load(.monotonic) != 0 and new_len > memory.len) return false;
    return child.rawResize(memory, a, new_len, ra);
}

fn remap(_: *anyopaque, memory: []u8, a: Alignment, new_len: usize, ra: usize) ?[*]u8 {
    if (failing.load(.monotonic) != 0 and new_len > memory.len) return null;
    return child.rawRemap(memory, a, new_len, ra);
}

fn free(_: *anyopaque, memory: []u8, a: Alignment, ra: usize) void {
    child.rawFree(memory, a, ra);
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
    const raw = child.rawAlloc(capacity, .fromByteUnits(alignment), 0) orelse return null;
    return @alignCast(raw);
}

pub fn freeBlock(block: [*]align(alignment) u8, capacity: u64) void {
    child.rawFree(block[0..capacity], .fromByteUnits(alignment), 0);
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

test "the switch fails the general allocator and spares blocks" {
    failAllocations(true);
    defer failAllocations(false);
    try std.testing.expectError(error.OutOfMemory, gpa.alloc(u8, 8));
    const block = allocateBlock(128) orelse return error.TestUnexpectedResult;
    freeBlock(block, 128);
}
