//! Root of the library: the exported functions and the panic handler.
const std = @import("std");

pub const panic = @import("panic.zig").handler;

pub const std_options: std.Options = .{
    // Nothing here asks for stack traces or logs; their defaults would pull in half of std.
    .enable_segfault_handler = false,
};

comptime {
    _ = @import("abi.zig");
}
