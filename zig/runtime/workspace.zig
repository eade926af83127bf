//! Workspaces: the memory a run needs besides its inputs and outputs (arena, scratch of each
//! worker, pointer tables). Leased for the length of a run and reused; growing happens only at a
//! lease, so a warmed-up run allocates nothing here.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const memory = @import("memory.zig");
const os = @import("../os.zig");

/// Blocks are taken raw: a checked allocation is filled with a pattern, which for gigabytes
/// takes seconds, in the thread that submits the run.
const block_alignment: std.mem.Alignment = .fromByteUnits(memory.alignment);
/// Idle workspaces kept; more come back only after that many runs at once.
const idle_max = 8;

pub const Workspace = struct {
    block: []align(memory.alignment) u8 = &.{},
    /// Tables of addresses and handles.
    words: []u64 = &.{},

    fn fits(w: *const Workspace, bytes: u64, words: u64) bool {
        return w.block.len >= bytes and w.words.len >= words;
    }
};

pub const Pool = struct {
    mutex: os.Mutex = .{},
    allocator: Allocator,
    idle: [idle_max]Workspace = undefined,
    idle_count: u32 = 0,
    /// Bytes of all workspaces, leased or idle.
    bytes: std.atomic.Value(u64) = .init(0),

    pub fn deinit(pool: *Pool) void {
        pool.trim();
    }

    /// Frees the idle ones.
    pub fn trim(pool: *Pool) void {
        pool.mutex.lock();
        defer pool.mutex.unlock();
        for (pool.idle[0..pool.idle_count]) |*w| pool.free(w);
        pool.idle_count = 0;
    }

    /// A workspace of at least that much. The smallest idle one that fits; else the largest idle
    /// one is replaced by one that does.
    pub fn lease(pool: *Pool, bytes: u64, words: u64) error{OutOfMemory}!Workspace {
        var w = pool.take(bytes, words);
        if (w.fits(bytes, words)) return w;
        errdefer pool.free(&w);
        if (w.block.len < bytes) {
            pool.freeBlock(&w);
            const raw = pool.allocator.rawAlloc(bytes, block_alignment, @returnAddress());
            w.block = @alignCast((raw orelse return error.OutOfMemory)[0..bytes]);
            _ = pool.bytes.fetchAdd(bytes, .monotonic);
        }
        if (w.words.len < words) {
            pool.freeWords(&w);
            w.words = try pool.allocator.alloc(u64, words);
            _ = pool.bytes.fetchAdd(words * @sizeOf(u64), .monotonic);
        }
        return w;
    }

    fn take(pool: *Pool, bytes: u64, words: u64) Workspace {
        pool.mutex.lock();
        defer pool.mutex.unlock();
        if (pool.idle_count == 0) return .{};
        var best: u32 = 0;
        for (pool.idle[1..pool.idle_count], 1..) |*w, index| {
            const current = &pool.idle[best];
            const better = if (current.fits(bytes, words))
                w.fits(bytes, words) and w.block.len < current.block.len
            else
                w.fits(bytes, words) or w.block.len > current.block.len;
            if (better) best = @intCast(index);
        }
        const w = pool.idle[best];
        pool.idle_count -= 1;
        pool.idle[best] = pool.idle[pool.idle_count];
        return w;
    }

    /// Ends a lease.
    pub fn giveBack(pool: *Pool, workspace: Workspace) void {
        var w = workspace;
        {
            pool.mutex.lock();
            defer pool.mutex.unlock();
            if (pool.idle_count < idle_max) {
                pool.idle[pool.idle_count] = w;
                pool.idle_count += 1;
                return;
            }
        }
        pool.free(&w);
    }

    fn free(pool: *Pool, w: *Workspace) void {
        pool.freeBlock(w);
        pool.freeWords(w);
    }

    fn freeBlock(pool: *Pool, w: *Workspace) void {
        _ = pool.bytes.fetchSub(w.block.len, .monotonic);
        if (w.block.len > 0) pool.allocator.rawFree(w.block, block_alignment, @returnAddress());
        w.block = &.{};
    }

    fn freeWords(pool: *Pool, w: *Workspace) void {
        _ = pool.bytes.fetchSub(w.words.len * @sizeOf(u64), .monotonic);
        pool.allocator.free(w.words);
        w.words = &.{};
    }
};

test "the second lease of the same size allocates nothing" {
    var failing: std.testing.FailingAllocator = .init(std.testing.allocator, .{});
    var pool: Pool = .{ .allocator = failing.allocator() };
    defer pool.deinit();
    pool.giveBack(try pool.lease(1000, 10));
    failing.fail_index = failing.alloc_index;
    const again = try pool.lease(900, 10);
    try std.testing.expect(again.block.len >= 900);
    try std.testing.expectError(error.OutOfMemory, pool.lease(64, 1));
    pool.giveBack(again);
    try std.testing.expectEqual(@as(u64, 1080), pool.bytes.load(.monotonic));
}

test "the smallest that fits is leased, and bytes return to zero" {
    var pool: Pool = .{ .allocator = std.testing.allocator };
    const small = try pool.lease(100, 1);
    const large = try pool.lease(10_000, 1);
    pool.giveBack(large);
    pool.giveBack(small);
    const w = try pool.lease(64, 1);
    try std.testing.expectEqual(@as(usize, 100), w.block.len);
    pool.giveBack(w);
    pool.deinit();
    try std.testing.expectEqual(@as(u64, 0), pool.bytes.load(.monotonic));
}

test "a lease does not touch the memory" {
    var pool: Pool = .{ .allocator = memory.gpa };
    defer pool.deinit();
    const w = try pool.lease(8 << 20, 1);
    defer pool.giveBack(w);
    try std.testing.expect(std.mem.allEqual(u8, w.block, 0)); // pages of its own, as they come
}
