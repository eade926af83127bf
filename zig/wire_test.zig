//! Tests of the decoder: a program survives the round trip, and every fault it can name is produced
//! by breaking one thing in good bytes.
const std = @import("std");
const testing = std.testing;
const Allocator = std.mem.Allocator;
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const wire = @import("wire.zig");
const wire_encode = @import("wire_encode.zig");
const wire_format = @import("wire_format.zig");
const Message = wire.Message;
const SectionId = wire_format.SectionId;

/// Two inputs (one donated), a constant, a literal; add, reshape, reduce_sum, barrier; locations.
pub fn sample(arena: Allocator) Allocator.Error!ir.Program {
    var b: ir.Builder = .init(arena);
    const matrix = try b.internType(.f32, &.{ 2, 3 });
    const vector = try b.internType(.f32, &.{3});
    const flags = try b.internType(.bool, &.{3});
    const flat = try b.internType(.f32, &.{6});
    const scalar = try b.internType(.f32, &.{});
    const x = try b.addInput(matrix, .{ .flags = .{ .donated = true } });
    const y = try b.addInput(vector, .{});
    const mask = try b.addInput(flags, .{ .flags = .{ .constant = true }, .data = &.{ 1, 0, 1 } });
    const zeros: [12]u8 align(8) = @splat(0);
    const stored = try arena.alignedAlloc(u8, .@"8", zeros.len);
    @memcpy(stored, &zeros);
    const zero = try b.addLiteral(vector, stored);
    const kept = try b.emit(.{
        .code = .where,
        .operands = &.{ mask, y, zero },
        .result_types = &.{vector},
        .source = 1,
    });
    const sum = try b.emit(.{
        .code = .add,
        .operands = &.{ x, kept },
        .result_types = &.{matrix},
        .source = 2,
    });
    const line = try b.emit(.{
        .code = .reshape,
        .operands = &.{sum},
        .attrs = try ir_builder.attrWords(arena, .reshape, .{ .shape = &.{6} }),
        .result_types = &.{flat},
    });
    const both = try b.emit(.{
        .code = .barrier,
        .operands = &.{ line, sum },
        .result_types = &.{ flat, matrix },
    });
    const total = try b.emit(.{
        .code = .reduce_sum,
        .operands = &.{both},
        .attrs = try ir_builder.attrWords(arena, .reduce_sum, .{ .axes = &.{0} }),
        .result_types = &.{scalar},
    });
    b.locations = &.{
        .{ .file = "a.py", .function = "f", .line = 3 },
        .{ .file = "b.py", .function = "größe", .line = 70_000 },
    };
    return b.finish(&.{ .{ .value = total }, .{ .value = sum, .alias = .at(0) } });
}

/// Good bytes taken apart: sections may be changed before they are put together again.
const Parts = struct {
    arena: Allocator,
    header: wire_format.Header,
    sections: std.ArrayList(wire_encode.Contents),

    fn init(arena: Allocator) !Parts {
        const p = try sample(arena);
        const bytes = try wire_encode.encode(arena, &p);
        const header: *const wire_format.Header = @ptrCast(bytes[0..64]);
        const table: []const wire_format.Section =
            @ptrCast(@alignCast(bytes[64..][0 .. 16 * @as(usize, header.section_count)]));
        var sections: std.ArrayList(wire_encode.Contents) = .empty;
        for (table) |entry| try sections.append(arena, .{
            .id = entry.id,
            .bytes = bytes[entry.offset..][0..entry.bytes],
        });
        return .{ .arena = arena, .header = header.*, .sections = sections };
    }

    fn find(parts: *Parts, id: SectionId) *wire_encode.Contents {
        for (parts.sections.items) |*s| if (s.id == @backingInt(id)) return s;
        @panic("the sample has no such section");
    }

    /// Overwrites bytes of a section from `offset` on with the bytes of `value`.
    fn set(parts: *Parts, id: SectionId, offset: usize, value: anytype) !void {
        const contents = parts.find(id);
        const copy = try parts.arena.dupe(u8, contents.bytes);
        const bytes = std.mem.asBytes(&value);
        @memcpy(copy[offset..][0..bytes.len], bytes);
        contents.bytes = copy;
    }

    fn resize(parts: *Parts, id: SectionId, size: usize) !void {
        const contents = parts.find(id);
        const copy = try parts.arena.alloc(u8, size);
        @memset(copy, 0);
        const kept = @min(size, contents.bytes.len);
        @memcpy(copy[0..kept], contents.bytes[0..kept]);
        contents.bytes = copy;
    }

    fn bytesOf(parts: *Parts) ![]align(8) u8 {
        return wire_encode.assemble(parts.arena, parts.header, parts.sections.items);
    }

    fn expect(parts: *Parts, message: Message, section: SectionId) !void {
        try expectFault(try parts.bytesOf(), .{}, message, section);
    }
};

fn expectFault(
    bytes: []const u8,
    limits: wire_format.Limits,
    message: Message,
    section: SectionId,
) !void {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    var diagnostic: wire.Diagnostic = .{};
    if (wire.decodeWithLimits(arena_state.allocator(), bytes, limits, &diagnostic)) |_| {
        return error.TestUnexpectedResult;
    } else |err| {
        errdefer std.debug.print("{f}\n", .{diagnostic});
        try testing.expect(err != error.OutOfMemory);
        try testing.expectEqual(message, diagnostic.message);
        try testing.expectEqual(section, diagnostic.section);
        try testing.expect(diagnostic.offset <= bytes.len);
    }
}

/// Runs one case in an arena of its own.
fn broken(
    message: Message,
    section: SectionId,
    comptime change: fn (parts: *Parts) anyerror_free!void,
) !void {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    var parts: Parts = try .init(arena_state.allocator());
    try change(&parts);
    try parts.expect(message, section);
}

const anyerror_free = error{OutOfMemory};

test "a program survives the round trip" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    const p = try sample(arena);
    const bytes = try wire_encode.encode(arena, &p);
    var diagnostic: wire.Diagnostic = .{};
    const q = try wire.decode(arena, bytes, &diagnostic);
    try testing.expectEqual(Message.none, diagnostic.message);
    try testing.expectEqualSlices(op.Code, p.codes, q.codes);
    try testing.expectEqualSlices(ir.ValueId, p.operands, q.operands);
    try testing.expectEqualSlices(i64, p.attrs, q.attrs);
    try testing.expectEqualSlices(u32, p.result_start, q.result_start);
    try testing.expectEqualSlices(ir.TypeId, p.value_types, q.value_types);
    for (p.types, q.types) |a, b| try testing.expect(a.eql(b));
    try testing.expectEqualSlices(u8, &.{ 1, 0, 1 }, q.inputs[2].data.?);
    try testing.expectEqual(@as(usize, 12), q.literals[0].len);
    try testing.expectEqual(ir.InputId.at(0), q.outputs[1].alias.?);
    try testing.expectEqualStrings("größe", q.sourceOf(.at(1)).?.function);
    try testing.expectEqual(@as(u32, 70_000), q.sourceOf(.at(1)).?.line);
    try testing.expectEqual(@as(?ir.Location, null), q.sourceOf(.at(2)));
    const again = try wire_encode.encode(arena, &q);
    try testing.expectEqualSlices(u8, bytes, again);
}

test "unaligned bytes are read as well, and every truncation is refused" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    const p = try sample(arena);
    const bytes = try wire_encode.encode(arena, &p);
    const shifted = try arena.alignedAlloc(u8, .@"8", bytes.len + 1);
    @memcpy(shifted[1..], bytes);
    var diagnostic: wire.Diagnostic = .{};
    const q = try wire.decode(arena, shifted[1..], &diagnostic);
    try testing.expectEqual(p.codes.len, q.codes.len);
    for (0..bytes.len) |n| {
        const message: Message = if (n < 64) .truncated else .wrong_total_bytes;
        try expectFault(bytes[0..n], .{}, message, .header);
    }
}

test "equal types become one" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    var parts: Parts = try .init(arena);
    // Type 3 (float32 [6]) once more at the end, and the reshape's result (value 6) has that one.
    const types = parts.find(.types).bytes;
    const more = try std.mem.concat(arena, u8, &.{ types, types[3 * 8 ..][0..8] });
    parts.find(.types).bytes = more;
    try parts.set(.value_types, 4 * 6, @as(u32, 5));
    var diagnostic: wire.Diagnostic = .{};
    const q = try wire.decode(arena, try parts.bytesOf(), &diagnostic);
    try testing.expectEqual(@as(usize, 5), q.types.len);
    try testing.expectEqual(ir.TypeId.at(3), q.value_types[6]);
}

test "faults of the header" {
    const Case = struct { offset: usize, message: Message };
    const cases = [_]Case{
        .{ .offset = 0, .message = .bad_magic },
        .{ .offset = 4, .message = .unsupported_version },
        .{ .offset = 8, .message = .wrong_total_bytes },
        .{ .offset = 16, .message = .digest_mismatch },
        .{ .offset = 32, .message = .wrong_hashed_bytes },
        .{ .offset = 60, .message = .reserved_not_zero },
        .{ .offset = 6, .message = .section_not_contiguous },
    };
    for (cases) |case| {
        var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
        defer arena_state.deinit();
        var parts: Parts = try .init(arena_state.allocator());
        const bytes = try parts.bytesOf();
        bytes[case.offset] ^= 2;
        try expectFault(bytes, .{}, case.message, .header);
    }
}

test "any change of a hashed byte is seen" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    var parts: Parts = try .init(arena_state.allocator());
    const bytes = try parts.bytesOf();
    const header: *const wire_format.Header = @ptrCast(bytes[0..64]);
    const body = 64 + 16 * @as(usize, header.section_count);
    for (body..@intCast(header.hashed_bytes)) |n| {
        bytes[n] ^= 0x40;
        var diagnostic: wire.Diagnostic = .{};
        const result = wire.decode(arena_state.allocator(), bytes, &diagnostic);
        bytes[n] ^= 0x40;
        if (result) |_| return error.TestUnexpectedResult else |err| switch (err) {
            error.DigestMismatch => {},
            // Padding is looked at first.
            else => try testing.expectEqual(Message.padding_not_zero, diagnostic.message),
        }
    }
}

test "faults of the section table" {
    const table = 64;
    const Case = struct { offset: usize, value: u32, message: Message };
    const cases = [_]Case{
        .{ .offset = table, .value = 12, .message = .section_unknown },
        .{ .offset = table, .value = 2, .message = .section_order },
        .{ .offset = table, .value = 0, .message = .section_order },
        .{ .offset = table + 4, .value = 1, .message = .reserved_not_zero },
        .{ .offset = table + 8, .value = 64, .message = .section_not_contiguous },
        .{ .offset = table + 12, .value = 1 << 30, .message = .section_out_of_bounds },
        .{ .offset = table + 16 + 12, .value = 8, .message = .padding_not_zero },
    };
    for (cases) |case| {
        var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
        defer arena_state.deinit();
        var parts: Parts = try .init(arena_state.allocator());
        const bytes = try parts.bytesOf();
        std.mem.writeInt(u32, bytes[case.offset..][0..4], case.value, .little);
        wire_encode.seal(bytes);
        var diagnostic: wire.Diagnostic = .{};
        const result = wire.decode(arena_state.allocator(), bytes, &diagnostic);
        if (result) |_| return error.TestUnexpectedResult else |_| {}
        // The second section's table entry alone does not tell padding from a gap.
        if (case.message == .padding_not_zero) {
            try testing.expectEqual(Message.section_not_contiguous, diagnostic.message);
        } else try testing.expectEqual(case.message, diagnostic.message);
    }
}
