//! Writes programs in the wire format from Zig: for the tests and the fuzzer, which need valid
//! bytes to break. Python has its own encoder.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const Blake2b128 = std.crypto.hash.blake2.Blake2b128;
const ir = @import("ir.zig");
const op = @import("op.zig");
const wire_format = @import("wire_format.zig");
const Header = wire_format.Header;
const Section = wire_format.Section;
const SectionId = wire_format.SectionId;

const Bytes = std.array_list.Aligned(u8, .@"8");

/// The bytes of a program, sealed. Every section is present but strings, sources and meta when the
/// program has no locations, and blocks when it has none.
pub fn encode(arena: Allocator, p: *const ir.Program) Allocator.Error![]align(8) u8 {
    return encodeOne(arena, p, false);
}

fn encodeOne(
    arena: Allocator,
    p: *const ir.Program,
    is_block: bool,
) Allocator.Error![]align(8) u8 {
    var sections: [wire_format.limits.section_count_max]Contents = undefined;
    var count: usize = 0;
    const ids = [_]SectionId{
        .opcodes,      .types,    .dims,          .value_types, .inputs,    .literals,
        .instructions, .operands, .attrs,         .outputs,     .constants, .blocks,
        .strings,      .sources,  .block_sources,
    };
    for (ids) |id| {
        const hashed = @backingInt(id) < wire_format.hashed_id_end;
        if (!hashed and (is_block or p.locations.len == 0)) continue;
        const needs_blocks = id == .blocks or id == .block_sources;
        if (needs_blocks and p.blocks.len == 0) continue;
        sections[count] = .{ .id = @backingInt(id), .bytes = try section(arena, p, id) };
        count += 1;
    }
    return assemble(arena, .{
        .section_count = @intCast(count),
        .total_bytes = 0,
        .hashed_bytes = 0,
        .value_count = @intCast(p.valueCount()),
        .input_count = @intCast(p.inputs.len),
        .literal_count = @intCast(p.literals.len),
        .instruction_count = @intCast(p.instructionCount()),
        .output_count = @intCast(p.outputs.len),
    }, sections[0..count]);
}

pub const Contents = struct { id: u32, bytes: []const u8 };

/// Header, table and sections put together and sealed; lengths in `header` are filled in.
pub fn assemble(
    arena: Allocator,
    header: Header,
    sections: []const Contents,
) Allocator.Error![]align(8) u8 {
    var bytes: Bytes = .empty;
    try bytes.appendNTimes(arena, 0, @sizeOf(Header) + sections.len * @sizeOf(Section));
    var table: std.ArrayList(Section) = .empty;
    var hashed: ?u64 = null;
    for (sections) |s| {
        if (s.id >= wire_format.hashed_id_end and hashed == null) hashed = bytes.items.len;
        try table.append(arena, .{
            .id = s.id,
            .offset = @intCast(bytes.items.len),
            .bytes = @intCast(s.bytes.len),
        });
        try bytes.appendSlice(arena, s.bytes);
        try pad(arena, &bytes, wire_format.section_alignment);
    }
    var head = header;
    head.section_count = @intCast(sections.len);
    head.total_bytes = bytes.items.len;
    head.hashed_bytes = hashed orelse bytes.items.len;
    @memcpy(bytes.items[0..@sizeOf(Header)], std.mem.asBytes(&head));
    const table_bytes = std.mem.sliceAsBytes(table.items);
    @memcpy(bytes.items[@sizeOf(Header)..][0..table_bytes.len], table_bytes);
    seal(bytes.items);
    return bytes.items;
}

/// Makes the digest that of the bytes, if the header allows it at all.
pub fn seal(bytes: []align(8) u8) void {
    if (bytes.len < @sizeOf(Header)) return;
    const header: *Header = @ptrCast(bytes[0..@sizeOf(Header)]);
    const end = @min(header.hashed_bytes, bytes.len);
    if (end < wire_format.digest_start) return;
    Blake2b128.hash(bytes[wire_format.digest_start..@intCast(end)], &header.digest, .{});
}

fn pad(arena: Allocator, bytes: *Bytes, alignment: usize) Allocator.Error!void {
    const end = std.mem.alignForward(usize, bytes.items.len, alignment);
    try bytes.appendNTimes(arena, 0, end - bytes.items.len);
}

fn section(arena: Allocator, p: *const ir.Program, id: SectionId) Allocator.Error![]const u8 {
    var out: Bytes = .empty;
    switch (id) {
        .opcodes => try writeOpcodes(arena, &out, p),
        .types => {
            var start: u32 = 0;
            for (p.types) |t| {
                try put(arena, &out, wire_format.TypeEntry{
                    .dtype = @backingInt(t.dtype),
                    .rank = @intCast(t.dims.len),
                    .dim_start = start,
                });
                start += @intCast(t.dims.len);
            }
        },
        .dims => for (p.types) |t| try out.appendSlice(arena, std.mem.sliceAsBytes(t.dims)),
        .value_types => try out.appendSlice(arena, std.mem.sliceAsBytes(p.value_types)),
        .inputs => {
            var constants: u32 = 0;
            for (p.inputs) |input| {
                try put(arena, &out, wire_format.InputEntry{
                    .flags = @bitCast(input.flags),
                    .data_index = if (input.flags.constant) constants else 0,
                });
                constants += @intFromBool(input.flags.constant);
            }
        },
        .literals => for (p.literals) |literal| {
            try out.appendSlice(arena, literal);
            try pad(arena, &out, wire_format.literal_alignment);
        },
        .instructions => for (p.codes, 0..) |code, n| {
            const i: ir.InstructionId = .at(n);
            try put(arena, &out, wire_format.InstructionEntry{
                .opcode = @backingInt(code),
                .result_count = @intCast(p.resultCount(i)),
                .operand_count = @intCast(p.operandsOf(i).len),
                .attr_words = @intCast(p.attrWords(i).len),
            });
        },
        .operands => try out.appendSlice(arena, std.mem.sliceAsBytes(p.operands)),
        .attrs => try out.appendSlice(arena, std.mem.sliceAsBytes(p.attrs)),
        .outputs => for (p.outputs) |output| {
            const alias: u32 = if (output.alias) |input| @intCast(input.index() + 1) else 0;
            const value: u32 = @intCast(output.value.index());
            try put(arena, &out, wire_format.OutputEntry{ .value = value, .alias = alias });
        },
        .constants => for (p.inputs) |input| {
            const data = input.data orelse continue;
            try out.appendSlice(arena, data);
            try pad(arena, &out, wire_format.constant_alignment);
        },
        .strings => for (p.locations) |location| {
            try out.appendSlice(arena, location.file);
            try out.appendSlice(arena, location.function);
        },
        .sources => try writeSources(arena, &out, p),
        .blocks => for (p.blocks) |*block| {
            try out.appendSlice(arena, try encodeOne(arena, block, true));
        },
        .block_sources => for (p.blocks) |*block| {
            try out.appendSlice(arena, std.mem.sliceAsBytes(block.sources));
        },
        .meta, .header, _ => {},
    }
    return out.items;
}

fn put(arena: Allocator, out: *Bytes, record: anytype) Allocator.Error!void {
    try out.appendSlice(arena, std.mem.asBytes(&record));
}

fn writeOpcodes(arena: Allocator, out: *Bytes, p: *const ir.Program) Allocator.Error!void {
    var used: [op.count]bool = @splat(false);
    for (p.codes) |code| used[code.denseIndex()] = true;
    for (op.table, used) |info, is_used| {
        if (!is_used) continue;
        try put(arena, out, wire_format.OpcodeEntry{
            .opcode = @backingInt(info.code),
            .digest = info.digest,
        });
    }
}

fn writeSources(arena: Allocator, out: *Bytes, p: *const ir.Program) Allocator.Error!void {
    try put(arena, out, wire_format.SourcesHeader{ .count = @intCast(p.locations.len) });
    var offset: u32 = 0;
    for (p.locations) |location| {
        const file_bytes: u32 = @intCast(location.file.len);
        const function_bytes: u32 = @intCast(location.function.len);
        try put(arena, out, wire_format.LocationEntry{
            .file_offset = offset,
            .file_bytes = file_bytes,
            .function_offset = offset + file_bytes,
            .function_bytes = function_bytes,
            .line = location.line,
        });
        offset += file_bytes + function_bytes;
    }
    try out.appendSlice(arena, std.mem.sliceAsBytes(p.sources));
}
