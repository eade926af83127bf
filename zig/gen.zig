//! Generates what other languages must know about the core, from the Zig declarations themselves:
//!
//!     gen OPCODES_PY HEADER_H
//!
//! OPCODES_PY gets the opcode table, dtype numbers, section ids and limits of the wire format;
//! HEADER_H the C declarations of `abi_types.zig`. A test compares the committed files with a fresh
//! run, so they cannot go stale.
const std = @import("std");
const gen_header = @import("gen_header.zig");
const gen_python = @import("gen_python.zig");

pub const Error = error{
    /// Two paths are wanted.
    BadArguments,
} || std.mem.Allocator.Error || std.Io.Writer.Error || std.Io.Dir.WriteFileError;

pub fn main(init: std.process.Init) !void {
    try run(init);
}

fn run(init: std.process.Init) Error!void {
    const arguments = try init.minimal.args.toSlice(init.arena.allocator());
    if (arguments.len != 3) return error.BadArguments;
    try write(init, arguments[1], gen_python.writeOpcodes);
    try write(init, arguments[2], gen_header.writeHeader);
}

fn write(
    init: std.process.Init,
    path: []const u8,
    emit: *const fn (writer: *std.Io.Writer) std.Io.Writer.Error!void,
) Error!void {
    var text: std.Io.Writer.Allocating = .init(init.gpa);
    defer text.deinit();
    try emit(&text.writer);
    try std.Io.Dir.cwd().writeFile(init.io, .{ .sub_path = path, .data = text.written() });
}

test {
    _ = gen_python;
    _ = gen_header;
}
