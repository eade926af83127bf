//! One arena for all intermediate values: each block gets an offset such that blocks whose
//! lifetimes overlap never share a byte. Blocks are placed in the order of their definition, best
//! fit among the gaps; a block may take over the place of an operand that dies where it is born.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;

/// Offsets and sizes are multiples of this many bytes.
pub const alignment = 64;
pub const none: u32 = 0xffff_ffff;

pub const Block = struct {
    bytes: u64,
    /// The instructions that define it and that use it last. Both ends count: an operand and a
    /// result of one instruction overlap.
    first: u32,
    last: u32,
    /// A block that dies at `first` and whose place this one takes if the sizes agree; or `none`.
    inherits: u32 = none,
    /// The answer.
    offset: u64 = 0,
};

const Gap = struct { offset: u64, bytes: u64 };

const Planner = struct {
    gpa: Allocator,
    /// Sorted by offset, none empty, no two adjacent.
    gaps: std.ArrayList(Gap) = .empty,
    end: u64 = 0,

    fn place(p: *Planner, bytes: u64) Allocator.Error!u64 {
        assert(bytes > 0);
        var best: ?usize = null;
        for (p.gaps.items, 0..) |gap, index| {
            if (gap.bytes < bytes) continue;
            if (best == null or gap.bytes < p.gaps.items[best.?].bytes) best = index;
            if (gap.bytes == bytes) break;
        }
        if (best) |index| {
            const gap = &p.gaps.items[index];
            const offset = gap.offset;
            gap.offset += bytes;
            gap.bytes -= bytes;
            if (gap.bytes == 0) _ = p.gaps.orderedRemove(index);
            return offset;
        }
        // Grow the end; a gap that touches it is used up first.
        if (p.gaps.items.len > 0) {
            const last = p.gaps.items[p.gaps.items.len - 1];
            if (last.offset + last.bytes == p.end) {
                p.gaps.items.len -= 1;
                p.end = last.offset + bytes;
                return last.offset;
            }
        }
        const offset = p.end;
        p.end += bytes;
        return offset;
    }

    fn free(p: *Planner, offset: u64, bytes: u64) Allocator.Error!void {
        const gaps = p.gaps.items;
        const index = std.sort.lowerBound(Gap, gaps, offset, compareOffset);
        const joins_next = index < gaps.len and gaps[index].offset == offset + bytes;
        if (index > 0 and gaps[index - 1].offset + gaps[index - 1].bytes == offset) {
            gaps[index - 1].bytes += bytes;
            if (!joins_next) return;
            gaps[index - 1].bytes += gaps[index].bytes;
            _ = p.gaps.orderedRemove(index);
        } else if (joins_next) {
            gaps[index].offset = offset;
            gaps[index].bytes += bytes;
        } else {
            try p.gaps.insert(p.gpa, index, .{ .offset = offset, .bytes = bytes });
        }
    }

    fn compareOffset(offset: u64, gap: Gap) std.math.Order {
        return std.math.order(offset, gap.offset);
    }
};

/// Sets the offset of every block; returns the bytes of the arena. `blocks` are in the order of
/// `first`; lifetimes lie in 0 .. time_count - 1. Scratch comes from `gpa` (an arena).
pub fn assign(gpa: Allocator, blocks: []Block, time_count: u32) Allocator.Error!u64 {
    var planner: Planner = .{ .gpa = gpa };
    // Chains of the blocks that die at each time.
    const dying = try gpa.alloc(u32, time_count);
    @memset(dying, none);
    const next_dying = try gpa.alloc(u32, blocks.len);
    const inherited = try gpa.alloc(bool, blocks.len);
    @memset(inherited, false);
    var time: u32 = 0;
    for (blocks, 0..) |*block, index| {
        assert(block.first <= block.last and block.last < time_count);
        while (time < block.first) : (time += 1) {
            try freeChain(&planner, blocks, dying[time], next_dying, inherited);
        }
        assert(time == block.first);
        next_dying[index] = dying[block.last];
        dying[block.last] = @intCast(index);
        if (block.bytes == 0) continue;
        const bytes = std.mem.alignForward(u64, block.bytes, alignment);
        if (block.inherits != none and !inherited[block.inherits]) {
            const from = &blocks[block.inherits];
            assert(from.last == block.first);
            if (std.mem.alignForward(u64, from.bytes, alignment) == bytes) {
                inherited[block.inherits] = true;
                block.offset = from.offset;
                continue;
            }
        }
        block.offset = try planner.place(bytes);
    }
    return planner.end;
}

fn freeChain(
    planner: *Planner,
    blocks: []const Block,
    first: u32,
    next: []const u32,
    inherited: []const bool,
) Allocator.Error!void {
    var at = first;
    while (at != none) : (at = next[at]) {
        const block = &blocks[at];
        if (inherited[at] or block.bytes == 0) continue;
        try planner.free(block.offset, std.mem.alignForward(u64, block.bytes, alignment));
    }
}

/// No two blocks alive at the same time share a byte, except where one inherits from the other.
fn expectDisjoint(blocks: []const Block, arena_bytes: u64) !void {
    for (blocks, 0..) |a, i| {
        try std.testing.expect(a.bytes == 0 or a.offset + a.bytes <= arena_bytes);
        for (blocks[0..i], 0..) |b, j| {
            if (a.first > b.last or b.first > a.last or a.bytes == 0 or b.bytes == 0) continue;
            if (a.inherits == j and a.offset == b.offset) continue;
            const apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset;
            try std.testing.expect(apart);
        }
    }
}

test "random lifetimes never overlap, and dead memory is used again" {
    var arena_state: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena_state.deinit();
    var prng: std.Random.DefaultPrng = .init(7);
    const random = prng.random();
    for (0..50) |_| {
        var blocks: [200]Block = undefined;
        var sum: u64 = 0;
        for (&blocks, 0..) |*block, i| {
            const first: u32 = @intCast(i);
            block.* = .{
                .bytes = random.uintLessThan(u64, 5000),
                .first = first,
                .last = @min(199, first + random.uintLessThan(u32, 10)),
            };
            sum += block.bytes;
            if (i > 0 and blocks[i - 1].last == first) block.inherits = @intCast(i - 1);
        }
        const bytes = try assign(arena_state.allocator(), &blocks, 200);
        try expectDisjoint(&blocks, bytes);
        try std.testing.expect(bytes < sum / 4);
    }
}

test "a chain that inherits needs one block" {
    var arena_state: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena_state.deinit();
    var blocks: [10]Block = undefined;
    for (&blocks, 0..) |*block, i| block.* = .{
        .bytes = 1000,
        .first = @intCast(i),
        .last = @intCast(@min(9, i + 1)),
        .inherits = if (i > 0) @intCast(i - 1) else none,
    };
    try std.testing.expectEqual(@as(u64, 1024), try assign(arena_state.allocator(), &blocks, 10));
}

test "an empty list needs nothing" {
    try std.testing.expectEqual(@as(u64, 0), try assign(std.testing.allocator, &.{}, 0));
}
