//! How an internal error becomes a status and a filled `abi.Error`.
const std = @import("std");
const abi = @import("../abi_types.zig");

/// Every way an operation of the runtime can fail. The details are in an `abi.Error`.
pub const Failure = error{
    InvalidArgument,
    InvalidHandle,
    OutOfMemory,
    BadProgram,
    Unsupported,
    ExecutionFailed,
    IndexOutOfBounds,
    Cancelled,
    Closed,
    NotReady,
    ThreadFailed,
    HostCallFailed,
};

pub fn statusOf(failure: Failure) abi.Status {
    return switch (failure) {
        error.InvalidArgument => .invalid_argument,
        error.InvalidHandle => .invalid_handle,
        error.OutOfMemory => .out_of_memory,
        error.BadProgram => .bad_program,
        error.Unsupported => .unsupported,
        error.ExecutionFailed => .execution_failed,
        error.IndexOutOfBounds => .index_out_of_bounds,
        error.Cancelled => .cancelled,
        error.Closed => .closed,
        error.NotReady => .not_ready,
        error.ThreadFailed => .thread_failed,
        error.HostCallFailed => .host_call_failed,
    };
}

/// What to say when nobody said more.
pub fn plainMessage(failure: Failure) []const u8 {
    return switch (failure) {
        error.InvalidArgument => "an argument is not acceptable",
        error.InvalidHandle => "the handle is not alive or is of another kind",
        error.OutOfMemory => "out of memory",
        error.BadProgram => "the program is malformed",
        error.Unsupported => "the program needs a kernel this runtime does not have",
        error.ExecutionFailed => "a check of the program failed",
        error.IndexOutOfBounds => "an index is out of bounds",
        error.Cancelled => "cancelled",
        error.Closed => "the runtime was closed",
        error.NotReady => "the job is not finished, or its result was taken",
        error.ThreadFailed => "no thread could be started",
        error.HostCallFailed => "a host call ended the run",
    };
}

/// Fills the message (cut if too long) and the phase; returns the failure, to be returned.
pub fn say(
    out: *abi.Error,
    failure: Failure,
    phase: abi.Phase,
    comptime format: []const u8,
    arguments: anytype,
) Failure {
    note(out, phase, format, arguments);
    return failure;
}

/// As `say`, without the failure.
pub fn note(
    out: *abi.Error,
    phase: abi.Phase,
    comptime format: []const u8,
    arguments: anytype,
) void {
    out.phase = @backingInt(phase);
    var writer: std.Io.Writer = .fixed(out.message[0 .. out.message.len - 1]);
    // The buffer is the limit: what does not fit is cut, and what fits is there.
    writer.print(format, arguments) catch {};
    out.message[writer.buffered().len] = 0;
}

/// Completes an error that is about to leave the library.
pub fn finish(out: *abi.Error, failure: Failure) abi.Status {
    const status = statusOf(failure);
    out.status = @backingInt(status);
    if (out.message[0] == 0) {
        const text = plainMessage(failure);
        @memcpy(out.message[0..text.len], text);
        out.message[text.len] = 0;
    }
    return status;
}

test "messages are cut at the end of the buffer and stay terminated" {
    var e: abi.Error = .{};
    const long: [400]u8 = @splat('x');
    const failure = say(&e, error.BadProgram, .verify, "{s}", .{&long});
    try std.testing.expectEqual(abi.Status.bad_program, finish(&e, failure));
    try std.testing.expectEqual(@as(u8, 0), e.message[255]);
    try std.testing.expectEqual(@as(u8, 'x'), e.message[254]);
    var f: abi.Error = .{};
    try std.testing.expectEqual(abi.Status.cancelled, finish(&f, error.Cancelled));
    try std.testing.expectEqualStrings("cancelled", std.mem.sliceTo(&f.message, 0));
}
