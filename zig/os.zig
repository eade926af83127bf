//! The operating system as the library sees it: waiting on a word, the clock, the number of usable
//! cores, pages, the process id and the environment. Everything is a libc (or kernel32) call
//! declared by hand, because `std.Io` would pull sockets and processes into the library.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;

const tag = builtin.os.tag;
const is_darwin = tag.isDarwin();

comptime {
    const supported = tag == .linux or tag == .windows or is_darwin;
    if (!supported) @compileError("unsupported operating system");
}

// ---- waiting on a word -------------------------------------------------------------------------

/// Sleeps while `word` holds `expected`, until a wake. May return early for any reason.
pub fn futexWait(word: *const std.atomic.Value(u32), expected: u32) void {
    futexWaitFor(word, expected, null);
}

/// As `futexWait`, and returns after about `timeout_ns` nanoseconds at the latest.
pub fn futexWaitFor(word: *const std.atomic.Value(u32), expected: u32, timeout_ns: ?u64) void {
    if (tag == .linux) {
        var limit: linux.timespec = undefined;
        if (timeout_ns) |ns| {
            limit = .{ .sec = @intCast(ns / ns_per_s), .nsec = @intCast(ns % ns_per_s) };
        }
        const limit_pointer: ?*const linux.timespec = if (timeout_ns != null) &limit else null;
        _ = linux.futex_4arg(word, .{ .cmd = .WAIT, .private = true }, expected, limit_pointer);
    } else if (is_darwin) {
        // 0 is "for ever"; the unit is microseconds.
        const us: u64 = if (timeout_ns) |ns| @max(1, ns / 1000) else 0;
        const limit: u32 = @intCast(@min(us, std.math.maxInt(u32)));
        _ = __ulock_wait(ulock_compare_and_wait, word, expected, limit);
    } else {
        const ms: u64 = if (timeout_ns) |ns| @max(1, ns / 1_000_000) else std.math.maxInt(u32);
        _ = WaitOnAddress(word, &expected, 4, @intCast(@min(ms, std.math.maxInt(u32))));
    }
}

/// Wakes at most `count` threads that wait on `word`.
pub fn futexWake(word: *const std.atomic.Value(u32), count: u32) void {
    assert(count > 0);
    if (tag == .linux) {
        const limit: u32 = @min(count, std.math.maxInt(i32));
        _ = linux.futex_3arg(word, .{ .cmd = .WAKE, .private = true }, limit);
    } else if (is_darwin) {
        const all: u32 = if (count > 1) ulock_wake_all else 0;
        _ = __ulock_wake(ulock_compare_and_wait | all, word, 0);
    } else if (count == 1) {
        WakeByAddressSingle(word);
    } else {
        WakeByAddressAll(word);
    }
}

/// A lock of one word. Zero-initialised is unlocked; the holder must not lock again.
pub const Mutex = struct {
    /// 0 free, 1 held, 2 held and somebody may sleep.
    state: std.atomic.Value(u32) = .init(0),

    pub fn tryLock(m: *Mutex) bool {
        return m.state.cmpxchgStrong(0, 1, .acquire, .monotonic) == null;
    }

    pub fn lock(m: *Mutex) void {
        if (m.tryLock()) return;
        while (m.state.swap(2, .acquire) != 0) futexWait(&m.state, 2);
    }

    pub fn unlock(m: *Mutex) void {
        const before = m.state.swap(0, .release);
        assert(before != 0);
        if (before == 2) futexWake(&m.state, 1);
    }
};

// ---- clock -------------------------------------------------------------------------------------

pub const ns_per_s: u64 = 1_000_000_000;

/// Nanoseconds of a clock that never goes back; its zero means nothing.
pub fn monotonicNs() u64 {
    if (tag == .windows) {
        var ticks: i64 = 0;
        var frequency: i64 = 1;
        _ = QueryPerformanceCounter(&ticks);
        _ = QueryPerformanceFrequency(&frequency);
        const wide: u128 = @as(u128, @intCast(ticks)) * ns_per_s;
        return @truncate(wide / @as(u128, @intCast(@max(1, frequency))));
    }
    var now: Timespec = .{ .sec = 0, .nsec = 0 };
    _ = clock_gettime(if (is_darwin) 6 else 1, &now); // CLOCK_MONOTONIC
    return @as(u64, @intCast(now.sec)) * ns_per_s + @as(u64, @intCast(now.nsec));
}

// ---- cores -------------------------------------------------------------------------------------

/// Cores this process may use: the affinity mask, cut by the cgroup's cpu quota (rounded up). >= 1.
pub fn usableCoreCount() u32 {
    if (tag == .linux) {
        const allowed = affinityCoreCount();
        const quota = cgroupCoreCount() orelse allowed;
        return @max(1, @min(allowed, quota));
    }
    if (is_darwin) {
        const count = sysconf(58); // _SC_NPROCESSORS_ONLN
        return if (count > 0) @intCast(@min(count, 4096)) else 1;
    }
    return @max(1, GetActiveProcessorCount(0xffff)); // all groups
}

fn affinityCoreCount() u32 {
    // 8192 cores, the largest mask a Linux kernel can be built for.
    var mask: [128]u64 = @splat(0);
    if (sched_getaffinity(0, @sizeOf(@TypeOf(mask)), &mask) < 0) return 1;
    var count: u32 = 0;
    for (mask) |word| count += @popCount(word);
    return @max(1, count);
}

const path_bytes_max = 1024;

fn cgroupCoreCount() ?u32 {
    var buffer: [4096]u8 = undefined;
    const text = readSmallFile("/proc/self/cgroup", &buffer) orelse return null;
    return quotaOfGroups("/sys/fs/cgroup", text);
}

/// The tightest quota among the groups of `text` (as /proc/self/cgroup has them) and their
/// ancestors below `root`, in whole cores; null if none.
fn quotaOfGroups(root: []const u8, text: []const u8) ?u32 {
    var best: ?u32 = null;
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |line| {
        // hierarchy:controllers:path; version 2 has no controllers
        var fields = std.mem.splitScalar(u8, line, ':');
        const hierarchy = fields.next() orelse continue;
        const controllers = fields.next() orelse continue;
        const path = fields.rest();
        const unified = std.mem.eql(u8, hierarchy, "0") and controllers.len == 0;
        if (!unified and !hasController(controllers, "cpu")) continue;
        const found = tightestQuota(root, unified, path) orelse continue;
        best = if (best) |b| @min(b, found) else found;
    }
    return best;
}

fn hasController(list: []const u8, name: []const u8) bool {
    var names = std.mem.splitScalar(u8, list, ',');
    while (names.next()) |n| if (std.mem.eql(u8, n, name)) return true;
    return false;
}

fn tightestQuota(root: []const u8, unified: bool, path: []const u8) ?u32 {
    var best: ?u32 = null;
    var rest = std.mem.trim(u8, path, "/");
    while (true) {
        const found = if (unified) quotaUnified(root, rest) else quotaLegacy(root, rest);
        if (found) |f| best = if (best) |b| @min(b, f) else f;
        if (rest.len == 0) return best;
        rest = rest[0 .. std.mem.findScalarLast(u8, rest, '/') orelse 0];
    }
}

fn quotaUnified(root: []const u8, path: []const u8) ?u32 {
    var buffer: [128]u8 = undefined;
    const text = readGroupFile(&.{ root, "/", path, "/cpu.max" }, &buffer) orelse return null;
    return parseQuota(text);
}

fn quotaLegacy(root: []const u8, path: []const u8) ?u32 {
    var quota_buffer: [64]u8 = undefined;
    var period_buffer: [64]u8 = undefined;
    const quota_path = .{ root, "/cpu/", path, "/cpu.cfs_quota_us" };
    const period_path = .{ root, "/cpu/", path, "/cpu.cfs_period_us" };
    const quota = readGroupFile(&quota_path, &quota_buffer) orelse return null;
    const period = readGroupFile(&period_path, &period_buffer) orelse return null;
    return quotaCores(quota, period);
}

/// "max 100000" or "150000 100000", microseconds of cpu time in each period.
fn parseQuota(text: []const u8) ?u32 {
    var words = std.mem.tokenizeAny(u8, text, " \n");
    const quota = words.next() orelse return null;
    const period = words.next() orelse return null;
    return quotaCores(quota, period);
}

fn quotaCores(quota_text: []const u8, period_text: []const u8) ?u32 {
    const blank = " \n";
    const quota_word = std.mem.trim(u8, quota_text, blank);
    const period_word = std.mem.trim(u8, period_text, blank);
    const quota = std.fmt.parseInt(i64, quota_word, 10) catch return null;
    const period = std.fmt.parseInt(i64, period_word, 10) catch return null;
    if (quota <= 0 or period <= 0) return null;
    const cores = @divTrunc(quota - 1, period) + 1;
    return @intCast(@min(cores, 8192));
}

fn readGroupFile(parts: []const []const u8, buffer: []u8) ?[]const u8 {
    var full: [path_bytes_max]u8 = undefined;
    return readSmallFile(joined(&full, parts) orelse return null, buffer);
}

/// The parts one after the other, zero terminated, or null if they do not fit.
fn joined(buffer: []u8, parts: []const []const u8) ?[*:0]const u8 {
    var used: usize = 0;
    for (parts) |part| {
        if (part.len >= buffer.len - used) return null;
        @memcpy(buffer[used..][0..part.len], part);
        used += part.len;
    }
    buffer[used] = 0;
    return @ptrCast(buffer.ptr);
}

/// The first `buffer.len` bytes of a file, or null if it can't be read.
fn readSmallFile(path: [*:0]const u8, buffer: []u8) ?[]const u8 {
    const file = open(path, 0); // O_RDONLY
    if (file < 0) return null;
    defer _ = close(file);
    var used: usize = 0;
    while (used < buffer.len) {
        const got = read(file, buffer.ptr + used, buffer.len - used);
        if (got <= 0) break;
        used += @intCast(got);
    }
    return buffer[0..used];
}

// ---- pages -------------------------------------------------------------------------------------

/// Regions are aligned to this many bytes at least: the largest page of the supported systems.
pub const page_bytes = if (tag == .linux and builtin.cpu.arch == .x86_64) 4096 else 16384;

pub const MapError = error{OutOfMemory};

/// Zeroed memory of its own pages. Large regions ask for huge pages where the system has them.
pub fn mapPages(bytes: usize) MapError![]align(4096) u8 {
    assert(bytes > 0);
    if (tag == .windows) {
        const address = VirtualAlloc(null, bytes, 0x3000, 4) orelse return error.OutOfMemory;
        return @as([*]align(4096) u8, @ptrCast(@alignCast(address)))[0..bytes];
    }
    const anonymous: c_int = if (is_darwin) 0x1000 else 0x20;
    const address = mmap(null, bytes, 3, 2 | anonymous, -1, 0); // read | write, private
    if (address == std.math.maxInt(usize)) return error.OutOfMemory;
    const pointer: [*]align(4096) u8 = @ptrFromInt(address);
    if (tag == .linux and bytes >= 4 << 20) _ = madvise(pointer, bytes, 14); // MADV_HUGEPAGE
    return pointer[0..bytes];
}

/// Gives back a whole region of `mapPages`.
pub fn unmapPages(region: []align(4096) u8) void {
    if (tag == .windows) {
        _ = VirtualFree(region.ptr, 0, 0x8000);
    } else {
        const code = munmap(region.ptr, region.len);
        assert(code == 0);
    }
}

// ---- process -----------------------------------------------------------------------------------

/// The process id; differs in a forked child.
pub fn processId() u32 {
    return if (tag == .windows) GetCurrentProcessId() else @intCast(getpid());
}

/// An environment variable, or null. The bytes belong to the environment and die with `setenv`.
pub fn environment(name: [*:0]const u8) ?[]const u8 {
    const value = getenv(name) orelse return null;
    return std.mem.span(value);
}

const linux = std.os.linux;
const ulock_compare_and_wait: u32 = 1;
const ulock_wake_all: u32 = 0x100;
const Timespec = extern struct { sec: c_long, nsec: c_long };

const Any = *const anyopaque;
extern "c" fn __ulock_wait(operation: u32, word: Any, value: u64, timeout_us: u32) c_int;
extern "c" fn __ulock_wake(operation: u32, word: Any, value: u64) c_int;
extern "c" fn clock_gettime(clock: c_int, now: *Timespec) c_int;
extern "c" fn sysconf(name: c_int) c_long;
extern "c" fn sched_getaffinity(pid: c_int, bytes: usize, mask: *anyopaque) c_int;
extern "c" fn open(path: [*:0]const u8, flags: c_int, ...) c_int;
extern "c" fn read(file: c_int, buffer: [*]u8, bytes: usize) isize;
extern "c" fn close(file: c_int) c_int;
extern "c" fn mmap(
    address: ?*anyopaque,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) usize;
extern "c" fn munmap(address: *anyopaque, bytes: usize) c_int;
extern "c" fn madvise(address: *anyopaque, bytes: usize, advice: c_int) c_int;
extern "c" fn getpid() c_int;
extern "c" fn getenv(name: [*:0]const u8) ?[*:0]const u8;

extern "synchronization" fn WaitOnAddress(word: Any, compare: Any, bytes: usize, ms: u32) c_int;
extern "synchronization" fn WakeByAddressSingle(word: Any) void;
extern "synchronization" fn WakeByAddressAll(word: Any) void;
extern "kernel32" fn QueryPerformanceCounter(ticks: *i64) c_int;
extern "kernel32" fn QueryPerformanceFrequency(frequency: *i64) c_int;
extern "kernel32" fn GetActiveProcessorCount(group: u16) u32;
extern "kernel32" fn GetCurrentProcessId() u32;
extern "kernel32" fn VirtualAlloc(at: ?*anyopaque, bytes: usize, kind: u32, mode: u32) ?*anyopaque;
extern "kernel32" fn VirtualFree(at: *anyopaque, bytes: usize, kind: u32) c_int;

test "quota text" {
    try std.testing.expectEqual(@as(?u32, null), parseQuota("max 100000\n"));
    try std.testing.expectEqual(@as(?u32, 2), parseQuota("150000 100000\n"));
    try std.testing.expectEqual(@as(?u32, 2), parseQuota("200000 100000"));
    try std.testing.expectEqual(@as(?u32, 1), parseQuota("1 100000"));
    try std.testing.expectEqual(@as(?u32, null), parseQuota("x"));
    try std.testing.expect(hasController("cpu,cpuacct", "cpu"));
    try std.testing.expect(!hasController("cpuset,cpuacct", "cpu"));
}

extern "c" fn mkdtemp(template: [*:0]u8) ?[*:0]u8;
extern "c" fn mkdir(path: [*:0]const u8, mode: c_uint) c_int;
extern "c" fn creat(path: [*:0]const u8, mode: c_uint) c_int;
extern "c" fn write(file: c_int, bytes: [*]const u8, count: usize) isize;
extern "c" fn unlink(path: [*:0]const u8) c_int;
extern "c" fn rmdir(path: [*:0]const u8) c_int;

/// A folder that looks like /sys/fs/cgroup, for the tests below.
const Groups = struct {
    template: [20:0]u8 = ("./.cgroup-test" ++ "XX" ++ "XX" ++ "XX").*,
    root: []const u8 = "",

    const folders = [_][]const u8{ "/cpu", "/cpu/a", "/cpu/a/b", "/one", "/one/two" };
    const files = [_][2][]const u8{
        .{ "/cpu/a/cpu.cfs_quota_us", "250000\n" },
        .{ "/cpu/a/cpu.cfs_period_us", "100000\n" },
        .{ "/cpu/a/b/cpu.cfs_quota_us", "-1\n" },
        .{ "/cpu/a/b/cpu.cfs_period_us", "100000\n" },
        .{ "/one/cpu.max", "400000 100000\n" },
        .{ "/one/two/cpu.max", "max 100000\n" },
    };

    fn make(g: *Groups) !void {
        g.root = std.mem.span(mkdtemp(&g.template) orelse return error.NoFolder);
        var path: [path_bytes_max]u8 = undefined;
        for (folders) |name| {
            if (mkdir(joined(&path, &.{ g.root, name }).?, 0o700) != 0) return error.NoFolder;
        }
        for (files) |file| {
            const made = creat(joined(&path, &.{ g.root, file[0] }).?, 0o600);
            if (made < 0) return error.NoFile;
            defer _ = close(made);
            const count = write(made, file[1].ptr, file[1].len);
            try std.testing.expectEqual(@as(isize, @intCast(file[1].len)), count);
        }
    }

    fn remove(g: *Groups) void {
        var path: [path_bytes_max]u8 = undefined;
        for (files) |file| _ = unlink(joined(&path, &.{ g.root, file[0] }).?);
        var index = folders.len;
        while (index > 0) {
            index -= 1;
            _ = rmdir(joined(&path, &.{ g.root, folders[index] }).?);
        }
        _ = rmdir(joined(&path, &.{g.root}).?);
    }
};

test "the tightest quota of a group and its ancestors counts" {
    if (tag == .windows) return error.SkipZigTest;
    var groups: Groups = .{};
    try groups.make();
    defer groups.remove();
    const cases = [_]struct { text: []const u8, cores: ?u32 }{
        .{ .text = "3:cpu,cpuacct:/a/b\n2:cpuset:/a\n", .cores = 3 }, // 2.5, of the parent
        .{ .text = "0::/one/two\n", .cores = 4 },
        .{ .text = "0::/one/two/gone\n", .cores = 4 }, // a path of the host, seen in a container
        .{ .text = "1:cpu:/a\n0::/one\n", .cores = 3 },
        .{ .text = "0::/\n", .cores = null },
        .{ .text = "2:cpuset:/a\n", .cores = null },
        .{ .text = "", .cores = null },
    };
    for (cases) |case| {
        try std.testing.expectEqual(case.cores, quotaOfGroups(groups.root, case.text));
    }
    var small: [4]u8 = undefined;
    try std.testing.expectEqual(@as(?[*:0]const u8, null), joined(&small, &.{ "ab", "cd" }));
    try std.testing.expectEqualStrings("abc", std.mem.span(joined(&small, &.{ "ab", "c" }).?));
}

test "cores, clock and pages" {
    try std.testing.expect(usableCoreCount() >= 1);
    const before = monotonicNs();
    try std.testing.expect(monotonicNs() >= before);
    const region = try mapPages(3 * page_bytes);
    defer unmapPages(region);
    try std.testing.expectEqual(@as(u8, 0), region[region.len - 1]);
    region[0] = 1;
    try std.testing.expectEqual(@as(usize, 0), @intFromPtr(region.ptr) % page_bytes);
    try std.testing.expect(environment("A_NAME_NOBODY_SETS_42") == null);
    try std.testing.expect(processId() != 0);
}

test "a timed wait on an unchanged word returns" {
    var word: std.atomic.Value(u32) = .init(7);
    futexWaitFor(&word, 7, 1000);
    futexWait(&word, 8); // differs: returns at once
    futexWake(&word, 1);
    var mutex: Mutex = .{};
    mutex.lock();
    try std.testing.expect(!mutex.tryLock());
    mutex.unlock();
    try std.testing.expect(mutex.tryLock());
}
