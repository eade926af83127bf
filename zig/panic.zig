//! What every object of the library does when a check fails: one line on the error stream, then
//! abort. The standard handler prints stack traces, for which it needs files, threads and sockets.
const std = @import("std");

pub const handler = std.debug.FullPanic(onPanic);

extern "c" fn write(file: c_int, bytes: [*]const u8, count: usize) isize;
extern "c" fn abort() noreturn;

fn onPanic(message: []const u8, return_address: ?usize) noreturn {
    @branchHint(.cold);
    _ = return_address;
    const prefix = "pyeffect_torch core: ";
    _ = write(2, prefix, prefix.len);
    _ = write(2, message.ptr, message.len);
    _ = write(2, "\n", 1);
    abort();
}
