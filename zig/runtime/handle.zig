//! Handles: 64-bit names for objects that cross the ABI. A handle is a generation and an index into
//! one table; a released slot gets the next generation, so a stale handle is refused, never
//! followed.
//!
//! The table owns one reference of each object it names. `acquire` adds one for the caller while
//! the table is locked, so an object cannot vanish between look-up and use.
const std = @import("std");
const assert = std.debug.assert;
const abi = @import("../abi_types.zig");
const os = @import("../os.zig");
const Handle = abi.Handle;

/// `reserved`: a slot set aside for an output of a run in flight; nobody has its handle yet.
pub const Kind = enum(u8) { free, reserved, runtime, buffer, exported, token, job, executable };

const none: u32 = 0xffff_ffff;

const Slot = struct {
    object: *anyopaque,
    generation: u32,
    kind: Kind,
    /// Owners counted by retain and release, of which a slot starts with one.
    owners: u32,
    next_free: u32,
};

/// The reference count every object embeds as `refs`.
pub const Refs = struct {
    count: std.atomic.Value(u32) = .init(1),

    pub fn add(refs: *Refs) void {
        const before = refs.count.fetchAdd(1, .monotonic);
        assert(before > 0);
        assert(before < none);
    }

    /// True if that was the last one: the caller frees the object.
    pub fn drop(refs: *Refs) bool {
        const before = refs.count.fetchSub(1, .acq_rel);
        assert(before > 0);
        return before == 1;
    }

    pub fn value(refs: *const Refs) u32 {
        return refs.count.load(.acquire);
    }
};

/// Slots grow with the number of handles alive. They come from the same memory as buffers (not
/// subject to the test switch): a handle is part of what an output costs.
pub const Table = struct {
    mutex: os.Mutex = .{},
    slots: std.ArrayList(Slot) = .empty,
    free_head: u32 = none,

    /// Names `object`, whose reference the table takes over.
    pub fn insert(t: *Table, kind: Kind, object: *anyopaque) error{OutOfMemory}!Handle {
        t.mutex.lock();
        defer t.mutex.unlock();
        try t.reserveLocked(1);
        return t.insertLocked(kind, object);
    }

    /// Makes sure that `count` insertions cannot fail.
    pub fn reserveLocked(t: *Table, count: u32) error{OutOfMemory}!void {
        var available: u32 = 0;
        var index = t.free_head;
        while (available < count and index != none) : (available += 1) {
            index = t.slots.items[index].next_free;
        }
        try t.slots.ensureUnusedCapacity(std.heap.c_allocator, count - available);
    }

    pub fn insertLocked(t: *Table, kind: Kind, object: *anyopaque) Handle {
        assert(kind != .free);
        var index = t.free_head;
        if (index == none) {
            index = @intCast(t.slots.items.len);
            t.slots.appendAssumeCapacity(.{
                .object = object,
                .generation = 1,
                .kind = kind,
                .owners = 1,
                .next_free = none,
            });
        } else {
            const slot = &t.slots.items[index];
            assert(slot.kind == .free);
            t.free_head = slot.next_free;
            slot.object = object;
            slot.kind = kind;
            slot.owners = 1;
        }
        return @as(Handle, t.slots.items[index].generation) << 32 | index;
    }

    /// The slot of a live handle of that kind, or null. The table must be locked.
    pub fn findLocked(t: *Table, kind: Kind, handle: Handle) ?*Slot {
        const index: u32 = @truncate(handle);
        if (index >= t.slots.items.len) return null;
        const slot = &t.slots.items[index];
        if (slot.kind != kind or slot.generation != @as(u32, @intCast(handle >> 32))) return null;
        return slot;
    }

    /// The object with one more reference, or null.
    pub fn acquire(t: *Table, comptime T: type, handle: Handle) ?*T {
        t.mutex.lock();
        defer t.mutex.unlock();
        const slot = t.findLocked(T.handle_kind, handle) orelse return null;
        const object: *T = @ptrCast(@alignCast(slot.object));
        object.refs.add();
        return object;
    }

    /// Counts an owner less; at the last one the handle dies and the caller gets the table's
    /// reference, to drop outside the lock. `found` tells a dead handle from a shared one.
    pub fn release(t: *Table, kind: Kind, handle: Handle, found: *bool) ?*anyopaque {
        t.mutex.lock();
        defer t.mutex.unlock();
        const slot = t.findLocked(kind, handle) orelse {
            found.* = false;
            return null;
        };
        found.* = true;
        slot.owners -= 1;
        return if (slot.owners == 0) t.removeLocked(slot) else null;
    }

    /// Kills a live handle whatever its owners; the caller gets the table's reference.
    pub fn removeLocked(t: *Table, slot: *Slot) *anyopaque {
        assert(slot.kind != .free);
        const object = slot.object;
        slot.kind = .free;
        // Generation 0 is skipped, so 0 is never a handle. A slot reused 2^32 times repeats itself.
        slot.generation = if (slot.generation == none) 1 else slot.generation + 1;
        slot.next_free = t.free_head;
        t.free_head = @intCast(slot - t.slots.items.ptr);
        return object;
    }
};

/// The one table of the library.
pub var table: Table = .{};

const TestObject = struct {
    pub const handle_kind: Kind = .token;
    refs: Refs = .{},
};

test "a handle is refused after release, for another kind, and when never issued" {
    var t: Table = .{};
    defer t.slots.deinit(std.heap.c_allocator);
    var object: TestObject = .{};
    const handle = try t.insert(.token, &object);
    try std.testing.expect(handle != 0);
    try std.testing.expectEqual(&object, t.acquire(TestObject, handle).?);
    try std.testing.expectEqual(@as(u32, 2), object.refs.value());
    var found = false;
    try std.testing.expect(t.release(.buffer, handle, &found) == null);
    try std.testing.expect(!found);
    try std.testing.expect(t.release(.token, handle, &found) != null);
    try std.testing.expect(found);
    try std.testing.expect(t.acquire(TestObject, handle) == null);
    try std.testing.expect(t.acquire(TestObject, 0) == null);
    try std.testing.expect(t.acquire(TestObject, 77 << 32 | 5) == null);
    const again = try t.insert(.token, &object);
    try std.testing.expect(again != handle);
    try std.testing.expectEqual(@as(u32, @truncate(handle)), @as(u32, @truncate(again)));
}

test "reserved insertions need no memory" {
    var t: Table = .{};
    defer t.slots.deinit(std.heap.c_allocator);
    var object: TestObject = .{};
    t.mutex.lock();
    try t.reserveLocked(100);
    const capacity = t.slots.capacity;
    for (0..100) |_| _ = t.insertLocked(.token, &object);
    t.mutex.unlock();
    try std.testing.expectEqual(capacity, t.slots.capacity);
}
