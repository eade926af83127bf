//! Buffers: the memory of arrays, counted and recycled. The header lies in front of the data in one
//! block, so a buffer is one allocation. Freed blocks are kept, up to a limit, for buffers of about
//! the same size: fresh pages from the operating system cost more than most kernels.
const std = @import("std");
const assert = std.debug.assert;
const abi = @import("../abi_types.zig");
const handles = @import("handle.zig");
const memory = @import("memory.zig");
const os = @import("../os.zig");

/// Bytes of the header, so that the data is as aligned as the block.
pub const header_bytes = 128;

/// What buffers of one runtime share. It outlives the runtime as long as a buffer does.
pub const Store = struct {
    refs: handles.Refs = .{},
    mutex: os.Mutex = .{},
    /// Kept blocks, oldest first.
    kept: [kept_max]Kept = undefined,
    kept_count: u32 = 0,
    kept_bytes: u64 = 0,
    kept_bytes_max: u64,

    buffers_live: std.atomic.Value(u64) = .init(0),
    bytes_live: std.atomic.Value(u64) = .init(0),
    bytes_peak: std.atomic.Value(u64) = .init(0),
    allocations: std.atomic.Value(u64) = .init(0),

    const kept_max = 128;
    /// Smaller blocks are left to the allocator, which is fast at them.
    const kept_block_min = 16 * 1024;
    const Kept = struct { block: [*]align(memory.alignment) u8, capacity: u64 };

    pub fn create(kept_bytes_max: u64) error{OutOfMemory}!*Store {
        const store = try memory.gpa.create(Store);
        store.* = .{ .kept_bytes_max = kept_bytes_max };
        return store;
    }

    pub fn drop(store: *Store) void {
        if (!store.refs.drop()) return;
        assert(store.buffers_live.load(.acquire) == 0);
        store.trim(0);
        memory.gpa.destroy(store);
    }

    /// Frees kept blocks, oldest first, until at most `bytes_max` are left.
    pub fn trim(store: *Store, bytes_max: u64) void {
        store.mutex.lock();
        defer store.mutex.unlock();
        store.trimLocked(bytes_max);
    }

    fn trimLocked(store: *Store, bytes_max: u64) void {
        var index: u32 = 0;
        while (index < store.kept_count and store.kept_bytes > bytes_max) : (index += 1) {
            const oldest = store.kept[index];
            store.kept_bytes -= oldest.capacity;
            memory.freeBlock(oldest.block, oldest.capacity);
        }
        const left = store.kept_count - index;
        @memmove(store.kept[0..left], store.kept[index..store.kept_count]);
        store.kept_count = left;
    }

    /// A kept block of exactly that capacity, the youngest (its pages are the warmest).
    fn reuse(store: *Store, capacity: u64) ?[*]align(memory.alignment) u8 {
        if (capacity < kept_block_min) return null;
        store.mutex.lock();
        defer store.mutex.unlock();
        var index = store.kept_count;
        while (index > 0) {
            index -= 1;
            if (store.kept[index].capacity != capacity) continue;
            const block = store.kept[index].block;
            store.kept_count -= 1;
            const rest = store.kept[index + 1 .. store.kept_count + 1];
            @memmove(store.kept[index..store.kept_count], rest);
            store.kept_bytes -= capacity;
            return block;
        }
        return null;
    }

    fn keep(store: *Store, block: [*]align(memory.alignment) u8, capacity: u64) bool {
        if (capacity < kept_block_min or capacity > store.kept_bytes_max) return false;
        store.mutex.lock();
        defer store.mutex.unlock();
        store.trimLocked(store.kept_bytes_max - capacity);
        if (store.kept_count == kept_max) store.trimLocked(store.kept_bytes - 1);
        store.kept[store.kept_count] = .{ .block = block, .capacity = capacity };
        store.kept_count += 1;
        store.kept_bytes += capacity;
        return true;
    }

    fn count(store: *Store, bytes: u64) void {
        _ = store.buffers_live.fetchAdd(1, .monotonic);
        _ = store.allocations.fetchAdd(1, .monotonic);
        const live = store.bytes_live.fetchAdd(bytes, .monotonic) + bytes;
        _ = store.bytes_peak.fetchMax(live, .monotonic);
    }
};

pub const Buffer = struct {
    pub const handle_kind: handles.Kind = .buffer;
    /// One for the handle, one for each export, binding and run that uses it.
    refs: handles.Refs,
    store: *Store,
    bytes: u64,
    capacity: u64,
    /// Live exports. Guarded by the table's lock, as `claimed`.
    exports: u32,
    /// A run in flight was given it as a donation: no other run may take it.
    claimed: bool,
    /// Every byte is known to be 0 or 1 as long as nobody outside can write.
    booleans: bool,
    /// Where the data is if another owner lent it. It is never written.
    foreign: ?Foreign,

    pub const Foreign = struct {
        address: [*]u8,
        /// Called once, by whoever drops the last reference, which may be any thread.
        release: abi.Release,
        context: ?*anyopaque,
    };

    /// A buffer with one reference; contents undefined.
    pub fn create(store: *Store, bytes: u64) error{OutOfMemory}!*Buffer {
        if (bytes > bytes_max) return error.OutOfMemory;
        const capacity = memory.blockCapacity(bytes + header_bytes);
        const block = store.reuse(capacity) orelse memory.allocateBlock(capacity) orelse again: {
            store.trim(0); // give kept blocks back before giving up
            break :again memory.allocateBlock(capacity) orelse return error.OutOfMemory;
        };
        store.refs.add();
        store.count(bytes);
        const buffer: *Buffer = @ptrCast(block);
        buffer.* = .{
            .refs = .{},
            .store = store,
            .bytes = bytes,
            .capacity = capacity,
            .exports = 0,
            .claimed = false,
            .booleans = false,
            .foreign = null,
        };
        return buffer;
    }

    /// A buffer with one reference over memory of another owner, which is not counted as ours.
    pub fn import(store: *Store, foreign: Foreign, bytes: u64) error{OutOfMemory}!*Buffer {
        const buffer = try create(store, 0);
        buffer.bytes = bytes;
        buffer.foreign = foreign;
        return buffer;
    }

    pub fn drop(buffer: *Buffer) void {
        if (!buffer.refs.drop()) return;
        const store = buffer.store;
        _ = store.buffers_live.fetchSub(1, .monotonic);
        const foreign = buffer.foreign;
        if (foreign == null) _ = store.bytes_live.fetchSub(buffer.bytes, .monotonic);
        const block: [*]align(memory.alignment) u8 = @ptrCast(@alignCast(buffer));
        const capacity = buffer.capacity;
        if (!store.keep(block, capacity)) memory.freeBlock(block, capacity);
        store.drop();
        if (foreign) |lent| if (lent.release) |release| release(lent.context);
    }

    pub fn data(buffer: *Buffer) [*]u8 {
        if (buffer.foreign) |lent| return lent.address;
        const block: [*]align(memory.alignment) u8 = @ptrCast(@alignCast(buffer));
        return block + header_bytes;
    }

    /// Makes every byte 0 or 1, for a buffer that a program reads as bool and the core did not
    /// compute. Exported memory may be written again, so it is done at every use.
    pub fn normaliseBooleans(buffer: *Buffer) void {
        if (buffer.foreign != null) return; // the lender vouches for them
        if (buffer.booleans and buffer.exports == 0) return;
        for (buffer.data()[0..buffer.bytes]) |*byte| byte.* = @intFromBool(byte.* != 0);
        buffer.booleans = true;
    }

    /// The wire format's limit on one tensor.
    pub const bytes_max: u64 = 1 << 50;
};

comptime {
    assert(@sizeOf(Buffer) <= header_bytes);
    assert(header_bytes % memory.alignment == 0);
    assert(@alignOf(Buffer) <= memory.alignment);
}

test "counters return to zero and blocks of equal size are reused" {
    const store = try Store.create(1 << 20);
    defer store.drop();
    const a = try Buffer.create(store, 100_000);
    const address = a.data();
    try std.testing.expectEqual(@as(usize, 0), @intFromPtr(address) % 64);
    a.drop();
    try std.testing.expectEqual(@as(u64, 0), store.bytes_live.load(.monotonic));
    try std.testing.expect(store.kept_bytes >= 100_000);
    const b = try Buffer.create(store, 100_001);
    try std.testing.expectEqual(address, b.data());
    try std.testing.expectEqual(@as(u64, 0), store.kept_bytes);
    b.drop();
    try std.testing.expectEqual(@as(u64, 100_001), store.bytes_peak.load(.monotonic));
    try std.testing.expectEqual(@as(u64, 2), store.allocations.load(.monotonic));
}

test "kept bytes stay under the limit" {
    const store = try Store.create(100_000);
    defer store.drop();
    for (0..40) |i| {
        const buffer = try Buffer.create(store, 20_000 + i * 4096);
        buffer.drop();
        try std.testing.expect(store.kept_bytes <= 100_000);
    }
}

test "booleans are normalised once, and again while exported" {
    const store = try Store.create(0);
    defer store.drop();
    const buffer = try Buffer.create(store, 3);
    defer buffer.drop();
    @memcpy(buffer.data(), &[_]u8{ 0, 7, 255 });
    buffer.normaliseBooleans();
    try std.testing.expectEqualSlices(u8, &.{ 0, 1, 1 }, buffer.data()[0..3]);
    buffer.data()[0] = 9;
    buffer.exports = 1;
    buffer.normaliseBooleans();
    try std.testing.expectEqualSlices(u8, &.{ 1, 1, 1 }, buffer.data()[0..3]);
}

test "lent memory is not counted, not written, and given back with the last reference" {
    const Lender = struct {
        fn release(context: ?*anyopaque) callconv(.c) void {
            const calls: *u32 = @ptrCast(@alignCast(context.?));
            calls.* += 1;
        }
    };
    const store = try Store.create(1 << 20);
    defer store.drop();
    var calls: u32 = 0;
    var lent = [_]u8{ 0, 7, 255 };
    const buffer = try Buffer.import(store, .{
        .address = &lent,
        .release = Lender.release,
        .context = &calls,
    }, lent.len);
    try std.testing.expectEqual(@as([*]u8, &lent), buffer.data());
    try std.testing.expectEqual(@as(u64, 0), store.bytes_live.load(.monotonic));
    buffer.normaliseBooleans();
    buffer.refs.add();
    buffer.drop();
    try std.testing.expectEqual(@as(u32, 0), calls);
    buffer.drop();
    try std.testing.expectEqual(@as(u32, 1), calls);
    try std.testing.expectEqualSlices(u8, &.{ 0, 7, 255 }, &lent);
    try std.testing.expectEqual(@as(u64, 0), store.buffers_live.load(.monotonic));
}
