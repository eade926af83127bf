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

/// Three blocks of one input: -x, x * x, and one of them by an index of 1.
fn blocks(arena: Allocator) ![]const ir.Program {
    const made = try arena.alloc(ir.Program, 3);
    for (made[0..2], [_]op.Code{ .negative, .square }) |*block, code| {
        var b: ir.Builder = .init(arena);
        const t = try b.internType(.f32, &.{});
        const x = try b.addInput(t, .{});
        const y = try b.emit(.{
            .code = code,
            .operands = &.{x},
            .result_types = &.{t},
            .source = 2,
        });
        block.* = try b.finish(&.{.{ .value = y }});
    }
    var b: ir.Builder = .init(arena);
    const t = try b.internType(.f32, &.{});
    const integer = try b.internType(.i64, &.{});
    const x = try b.addInput(t, .{});
    const one = try arena.alignedAlloc(u8, .@"8", 8);
    std.mem.writeInt(i64, one[0..8], 1, .little);
    const index = try b.addLiteral(integer, one);
    const y = try b.emit(.{
        .code = .@"switch",
        .operands = &.{ index, x },
        .attrs = try ir_builder.attrWords(arena, .@"switch", .{ .blocks = &.{ 0, 1 } }),
        .result_types = &.{t},
        .source = 1,
    });
    made[2] = try b.finish(&.{.{ .value = y }});
    return made;
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
    const Flip = struct { offset: usize, message: Message };
    const flips = [_]Flip{
        .{ .offset = 0, .message = .bad_magic },
        .{ .offset = 4, .message = .unsupported_version },
        .{ .offset = 8, .message = .wrong_total_bytes },
        .{ .offset = 16, .message = .digest_mismatch },
        .{ .offset = 32, .message = .wrong_hashed_bytes },
        .{ .offset = 60, .message = .reserved_not_zero },
        .{ .offset = 6, .message = .section_not_contiguous },
    };
    for (flips) |flip| {
        var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
        defer arena_state.deinit();
        var parts: Parts = try .init(arena_state.allocator());
        const bytes = try parts.bytesOf();
        bytes[flip.offset] ^= 2;
        try expectFault(bytes, .{}, flip.message, .header);
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

/// One thing to break: bytes written over a section (or, for `.header`, over the whole program), or
/// a section cut or grown with zeros.
const Change = union(enum) {
    set: struct { id: SectionId, at: usize, bytes: []const u8 },
    resize: struct { id: SectionId, bytes: usize },

    fn word(id: SectionId, at: usize, comptime value: u32) Change {
        const bytes = comptime std.mem.toBytes(value);
        return .{ .set = .{ .id = id, .at = at, .bytes = &bytes } };
    }

    fn long(id: SectionId, at: usize, comptime value: i64) Change {
        const bytes = comptime std.mem.toBytes(value);
        return .{ .set = .{ .id = id, .at = at, .bytes = &bytes } };
    }

    fn byte(id: SectionId, at: usize, comptime value: u8) Change {
        return .{ .set = .{ .id = id, .at = at, .bytes = &.{value} } };
    }

    fn size(id: SectionId, bytes: usize) Change {
        return .{ .resize = .{ .id = id, .bytes = bytes } };
    }

    fn apply(change: Change, arena: Allocator) ![]align(8) u8 {
        var parts: Parts = try .init(arena);
        switch (change) {
            .set => |c| {
                if (c.id != .header) {
                    const contents = parts.find(c.id);
                    const copy = try arena.dupe(u8, contents.bytes);
                    @memcpy(copy[c.at..][0..c.bytes.len], c.bytes);
                    contents.bytes = copy;
                }
                const bytes = try parts.bytesOf();
                if (c.id == .header) @memcpy(bytes[c.at..][0..c.bytes.len], c.bytes);
                wire_encode.seal(bytes);
                return bytes;
            },
            .resize => |c| {
                try parts.resize(c.id, c.bytes);
                return parts.bytesOf();
            },
        }
    }
};

const Case = struct {
    change: Change,
    message: Message,
    /// Where the fault is reported.
    section: SectionId,
};

fn case(change: Change, message: Message, section: SectionId) Case {
    return .{ .change = change, .message = message, .section = section };
}

fn expectCases(cases: []const Case) !void {
    for (cases, 0..) |c, n| {
        errdefer std.debug.print("case {d}\n", .{n});
        var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
        defer arena_state.deinit();
        const bytes = try c.change.apply(arena_state.allocator());
        try expectFault(bytes, .{}, c.message, c.section);
    }
}

test "faults of the section table" {
    const table = 64;
    try expectCases(&.{
        case(.word(.header, table, 13), .section_unknown, .header),
        case(.word(.header, table, 0), .section_order, .header),
        case(.word(.header, table + 16, 1), .section_order, .header),
        case(.word(.header, table + 4, 1), .reserved_not_zero, .header),
        case(.word(.header, table + 8, 64), .section_not_contiguous, .header),
        case(.word(.header, table + 12, 1 << 30), .section_out_of_bounds, .header),
        // Section 4 (value_types, 40 bytes) one byte shorter: its last byte becomes padding.
        case(.byte(.header, table + 3 * 16 + 12, 35), .padding_not_zero, .value_types),
        case(.byte(.header, 6, 17), .too_many_sections, .header),
    });
}

test "unknown sections are skipped behind the digest only" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    var parts: Parts = try .init(arena_state.allocator());
    try parts.sections.append(parts.arena, .{ .id = 99, .bytes = "later" });
    var diagnostic: wire.Diagnostic = .{};
    _ = try wire.decode(parts.arena, try parts.bytesOf(), &diagnostic);
}

test "faults of opcodes, types and values" {
    try expectCases(&.{
        // Entries of `opcodes` are in the order reshape, barrier, add, where, reduce_sum.
        case(.word(.opcodes, 0, 31), .unknown_opcode, .opcodes),
        case(.word(.opcodes, 0, 0x10001), .unknown_opcode, .opcodes),
        case(.word(.opcodes, 4, 1), .reserved_not_zero, .opcodes),
        case(.byte(.opcodes, 8, 0), .opcode_digest_mismatch, .opcodes),
        case(.word(.opcodes, 16, 2), .opcode_order, .opcodes),
        case(.size(.opcodes, 64), .opcode_not_listed, .instructions),
        case(.size(.opcodes, 72), .section_size, .opcodes),
        case(.byte(.types, 0, 13), .bad_dtype, .types),
        case(.byte(.types, 1, 1), .bad_encoding, .types),
        case(.byte(.types, 2, 17), .rank_too_large, .types),
        case(.byte(.types, 2, 6), .dims_out_of_bounds, .types),
        case(.word(.types, 4, 0xffff_ffff), .dims_out_of_bounds, .types),
        case(.size(.types, 39), .section_size, .types),
        case(.size(.dims, 39), .section_size, .dims),
        case(.long(.dims, 0, -1), .negative_extent, .types),
        case(.long(.dims, 0, 1 << 47), .value_too_large, .types),
        case(.word(.value_types, 0, 5), .type_out_of_range, .value_types),
        case(.size(.value_types, 36), .section_size, .value_types),
        case(.word(.header, 40, 11), .section_size, .value_types),
        case(.word(.header, 40, 3), .count_mismatch, .header),
        case(.word(.header, 44, 11), .count_mismatch, .header),
        case(.word(.header, 40, (1 << 24) + 1), .too_many_values, .header),
    });
}

test "faults of inputs, literals and constants" {
    try expectCases(&.{
        case(.word(.inputs, 0, 32), .bad_flags, .inputs),
        case(.word(.inputs, 0, 1 | 8), .bad_flags, .inputs),
        case(.word(.inputs, 16, 4 | 16), .bad_flags, .inputs),
        case(.word(.inputs, 4, 1), .bad_data_index, .inputs),
        case(.word(.inputs, 20, 1), .bad_data_index, .inputs),
        case(.size(.inputs, 16), .section_size, .inputs),
        case(.word(.inputs, 16, 0), .section_size, .constants),
        case(.byte(.constants, 1, 2), .bool_not_0_or_1, .constants),
        case(.byte(.constants, 3, 1), .padding_not_zero, .constants),
        case(.size(.constants, 2), .section_size, .constants),
        case(.size(.constants, 8), .section_size, .constants),
        case(.size(.constants, 128), .section_size, .constants),
        case(.byte(.literals, 12, 1), .padding_not_zero, .literals),
        case(.size(.literals, 8), .section_size, .literals),
        case(.size(.literals, 12), .section_size, .literals),
        case(.size(.literals, 24), .section_size, .literals),
        case(.long(.dims, 16, 1025), .literal_too_large, .literals),
    });
}

test "faults of instructions" {
    const id: SectionId = .instructions;
    const add = 8;
    const reshape = 16;
    const barrier = 24;
    try expectCases(&.{
        case(.byte(id, add, 31), .unknown_opcode, id),
        case(.byte(id, add, 97), .opcode_not_listed, id),
        case(.byte(id, add + 4, 1), .operand_count, id),
        case(.byte(id, add + 4, 3), .operand_count, id),
        case(.byte(id, add + 2, 2), .result_count, id),
        case(.byte(id, barrier + 2, 1), .result_count, id),
        case(.byte(id, add + 6, 1), .attr_words, id),
        case(.byte(id, reshape + 6, 1), .attr_words, id),
        case(.byte(id, reshape + 6, 0), .attr_words, id),
        case(.size(id, 32), .section_size, id),
        case(.word(.operands, 0, 4), .operand_not_defined, id),
        case(.size(.operands, 32), .operands_out_of_bounds, id),
        case(.size(.operands, 40), .operands_out_of_bounds, .operands),
        case(.size(.attrs, 24), .attrs_out_of_bounds, id),
        case(.size(.attrs, 40), .attrs_out_of_bounds, .attrs),
        case(.long(.attrs, 0, -1), .attr_words, id),
        case(.long(.attrs, 0, 2), .attr_words, id),
        case(.long(.attrs, 0, std.math.maxInt(i64)), .attr_words, id),
        case(.word(.header, 52, 4), .section_size, id),
    });
}

test "faults of outputs and sources" {
    try expectCases(&.{
        case(.word(.outputs, 0, 10), .output_out_of_range, .outputs),
        case(.word(.outputs, 4, 4), .alias_out_of_range, .outputs),
        case(.size(.outputs, 8), .section_size, .outputs),
        case(.word(.sources, 0, 1), .section_size, .sources),
        case(.word(.sources, 0, 0xffff_ffff), .section_size, .sources),
        case(.word(.sources, 4, 1), .reserved_not_zero, .sources),
        case(.word(.sources, 28, 1), .reserved_not_zero, .sources),
        case(.word(.sources, 56, 3), .source_out_of_range, .sources),
        case(.size(.sources, 4), .section_size, .sources),
        case(.word(.sources, 8, 100), .string_out_of_bounds, .strings),
        case(.word(.sources, 12, 0xffff_ffff), .string_out_of_bounds, .strings),
        case(.byte(.strings, 0, 0xff), .string_not_utf8, .strings),
    });
}

test "attribute words follow their schema" {
    const check = @import("wire_body.zig").checkAttributes;
    try testing.expectEqual(@as(?Message, null), check(.cumsum, &.{ 5, 1 }));
    try testing.expectEqual(Message.attr_bool, check(.cumsum, &.{ 5, 2 }).?);
    try testing.expectEqual(@as(?Message, null), check(.cast, &.{12}));
    try testing.expectEqual(Message.attr_dtype, check(.cast, &.{13}).?);
    try testing.expectEqual(Message.attr_dtype, check(.cast, &.{-1}).?);
    try testing.expectEqual(Message.attr_words, check(.cast, &.{ 1, 1 }).?);
    try testing.expectEqual(@as(?Message, null), check(.iota, &.{ 0, 11, 0 }));
}

test "limits hold at n and refuse n + 1" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    var p = try sample(arena);
    p.blocks = try blocks(arena);
    const bytes = try wire_encode.encode(arena, &p);
    // The highest of each quantity in the sample; constants do not count as program bytes.
    const exact: wire_format.Limits = .{
        .section_count_max = 15,
        .program_bytes_max = bytes.len - 64,
        .rank_max = 2,
        .value_count_max = 10,
        .operand_count_max = 3,
        .result_count_max = 2,
        .attr_words_max = 3,
        .literal_bytes_max = 12,
        .element_count_max = 6,
        .tensor_bytes_max = 24,
        .block_count_max = 3,
        .block_depth_max = 2,
    };
    var diagnostic: wire.Diagnostic = .{};
    _ = try wire.decodeWithLimits(arena, bytes, exact, &diagnostic);
    const faults = .{
        .section_count_max = .{ Message.too_many_sections, SectionId.header },
        .program_bytes_max = .{ Message.program_too_large, SectionId.header },
        .rank_max = .{ Message.rank_too_large, SectionId.types },
        .value_count_max = .{ Message.too_many_values, SectionId.header },
        .operand_count_max = .{ Message.operand_count, SectionId.instructions },
        .result_count_max = .{ Message.result_count, SectionId.instructions },
        .attr_words_max = .{ Message.attr_words, SectionId.instructions },
        .literal_bytes_max = .{ Message.literal_too_large, SectionId.literals },
        .element_count_max = .{ Message.value_too_large, SectionId.types },
        .tensor_bytes_max = .{ Message.value_too_large, SectionId.types },
        .block_count_max = .{ Message.too_many_blocks, SectionId.blocks },
        .block_depth_max = .{ Message.block_depth, SectionId.blocks },
    };
    inline for (@typeInfo(wire_format.Limits).@"struct".field_names) |name| {
        errdefer std.debug.print("{s}\n", .{name});
        var less = exact;
        @field(less, name) -= 1;
        const fault = @field(faults, name);
        try expectFault(bytes, less, fault[0], fault[1]);
    }
}

fn decodeOnce(gpa: Allocator, bytes: []const u8) !void {
    var arena_state: std.heap.ArenaAllocator = .init(gpa);
    defer arena_state.deinit();
    var diagnostic: wire.Diagnostic = .{};
    _ = try wire.decode(arena_state.allocator(), bytes, &diagnostic);
}

test "running out of memory is an error at every step" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const p = try sample(arena_state.allocator());
    const bytes = try wire_encode.encode(arena_state.allocator(), &p);
    try testing.checkAllAllocationFailures(testing.allocator, decodeOnce, .{bytes});
}
