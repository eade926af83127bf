//! Cancellation. A `Control` belongs to one compile or run; its phase goes from open to either
//! cancelled or decided, exactly once, so a late cancel never undoes a result and a cancelled run
//! never publishes one. A `Token` cancels any number of controls, also those attached later.
const std = @import("std");
const assert = std.debug.assert;
const handles = @import("handle.zig");
const memory = @import("memory.zig");
const os = @import("../os.zig");

pub const Phase = enum(u32) { open = 0, cancelled = 1, decided = 2 };

pub const Control = struct {
    phase: std.atomic.Value(u32) = .init(@backingInt(Phase.open)),
    /// What kernels poll. Set only by the cancel that won the phase.
    flag: u32 = 0,
    /// Bumped by the cancel and by whoever has news for a run that sleeps on it.
    signal: std.atomic.Value(u32) = .init(0),
    token: ?*Token = null,
    previous: ?*Control = null,
    next: ?*Control = null,

    /// True if this call is the one that cancelled.
    pub fn cancel(c: *Control) bool {
        if (!c.move(.cancelled)) return false;
        @atomicStore(u32, &c.flag, 1, .release);
        c.wake();
        return true;
    }

    pub fn wake(c: *Control) void {
        _ = c.signal.fetchAdd(1, .release);
        os.futexWake(&c.signal, std.math.maxInt(u32));
    }

    /// Takes the decision for a result (or for the first overwrite of a donated input). False if
    /// it was cancelled before; true if decided, now or earlier.
    pub fn decide(c: *Control) bool {
        return c.move(.decided) or c.phase.load(.acquire) == @backingInt(Phase.decided);
    }

    pub fn isCancelled(c: *const Control) bool {
        return c.phase.load(.acquire) == @backingInt(Phase.cancelled);
    }

    fn move(c: *Control, to: Phase) bool {
        const open = @backingInt(Phase.open);
        return c.phase.cmpxchgStrong(open, @backingInt(to), .acq_rel, .acquire) == null;
    }

    /// Ends the token's hold on this control; to be called before the control goes away.
    pub fn detach(c: *Control) void {
        const token = c.token orelse return;
        token.mutex.lock();
        if (c.previous) |previous| previous.next = c.next else token.first = c.next;
        if (c.next) |next| next.previous = c.previous;
        token.mutex.unlock();
        c.token = null;
        token.drop();
    }
};

pub const Token = struct {
    pub const handle_kind: handles.Kind = .token;
    refs: handles.Refs = .{},
    mutex: os.Mutex = .{},
    cancelled: bool = false,
    first: ?*Control = null,

    pub fn create() error{OutOfMemory}!*Token {
        const token = try memory.gpa.create(Token);
        token.* = .{};
        return token;
    }

    pub fn drop(token: *Token) void {
        if (!token.refs.drop()) return;
        assert(token.first == null);
        memory.gpa.destroy(token);
    }

    /// Puts a control under this token, whose reference the control takes over.
    pub fn attach(token: *Token, control: *Control) void {
        assert(control.token == null);
        token.mutex.lock();
        defer token.mutex.unlock();
        control.token = token;
        control.previous = null;
        control.next = token.first;
        if (token.first) |first| first.previous = control;
        token.first = control;
        if (token.cancelled) _ = control.cancel();
    }

    pub fn cancel(token: *Token) void {
        token.mutex.lock();
        defer token.mutex.unlock();
        token.cancelled = true;
        var at = token.first;
        while (at) |control| : (at = control.next) _ = control.cancel();
    }
};

test "cancel and decide have one winner" {
    var c: Control = .{};
    try std.testing.expect(c.decide());
    try std.testing.expect(!c.cancel());
    try std.testing.expect(c.decide());
    try std.testing.expectEqual(@as(u32, 0), c.flag);
    var d: Control = .{};
    try std.testing.expect(d.cancel());
    try std.testing.expect(!d.cancel());
    try std.testing.expect(!d.decide());
    try std.testing.expectEqual(@as(u32, 1), d.flag);
}

test "a thousand races between cancel and decide have exactly one winner each" {
    const Race = struct {
        fn cancelAll(controls: []Control, wins: *u32) void {
            for (controls) |*c| wins.* += @intFromBool(c.cancel());
        }
    };
    var controls: [1000]Control = @splat(.{});
    var cancelled: u32 = 0;
    const thread = try std.Thread.spawn(.{}, Race.cancelAll, .{ &controls, &cancelled });
    var decided: u32 = 0;
    for (&controls) |*c| decided += @intFromBool(c.decide());
    thread.join();
    try std.testing.expectEqual(@as(u32, 1000), cancelled + decided);
}

test "a token reaches controls attached before and after" {
    const token = try Token.create();
    token.refs.add();
    token.refs.add();
    var before: Control = .{};
    var after: Control = .{};
    token.attach(&before);
    token.cancel();
    token.attach(&after);
    try std.testing.expect(before.isCancelled() and after.isCancelled());
    before.detach();
    after.detach();
    token.drop();
}
