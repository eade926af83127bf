//! The second half of the decoder: from checked sections to a program. `wire.zig` has the header,
//! the section table and the digest behind it when it comes here.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const dtype = @import("dtype.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const wire = @import("wire.zig");
const wire_blocks = @import("wire_blocks.zig");
const wire_format = @import("wire_format.zig");

const DType = dtype.DType;
const Decoder = wire.Decoder;
const Error = wire.Error;
const Message = wire.Message;
const SectionId = wire_format.SectionId;

pub fn decode(d: *Decoder) Error!ir.Program {
    const h = d.header;
    try checkCounts(d);
    var listed: [op.count]bool = @splat(false);
    try readOpcodes(d, &listed);
    const types = try readTypes(d);
    const value_types = try readValueTypes(d, types);
    const inputs = try readInputs(d, types.types, value_types);
    const literals = try readLiterals(d, types.types, value_types);
    const body = try readInstructions(d, &listed);
    const outputs = try readOutputs(d);
    const sources = try readSources(d);
    const blocks = try wire_blocks.read(d, sources.locations);
    assert(body.codes.len == h.instruction_count);
    assert(sources.sources.len == h.instruction_count);
    const program: ir.Program = .{
        .types = types.types,
        .value_types = value_types,
        .inputs = inputs,
        .literals = literals,
        .codes = body.codes,
        .operand_start = body.operand_start,
        .operands = body.operands,
        .attr_start = body.attr_start,
        .attrs = body.attrs,
        .result_start = body.results.start,
        .result_instruction = body.results.instruction,
        .outputs = outputs,
        .sources = sources.sources,
        .locations = sources.locations,
        .blocks = blocks,
        .digest = h.digest,
    };
    if (!d.is_block) try wire_blocks.checkNumbers(d, &program);
    return program;
}

fn checkCounts(d: *Decoder) Error!void {
    const h = d.header;
    const place = @offsetOf(wire_format.Header, "value_count");
    if (h.value_count > d.limits.value_count_max) return d.fail(.too_many_values, .header, place);
    const given = @as(u64, h.input_count) + h.literal_count;
    if (given > h.value_count) return d.fail(.count_mismatch, .header, place);
}

fn readOpcodes(d: *Decoder, listed: *[op.count]bool) Error!void {
    const size = @sizeOf(wire_format.OpcodeEntry);
    var last: u32 = 0;
    for (try d.records(wire_format.OpcodeEntry, .opcodes), 0..) |entry, i| {
        if (i > 0 and entry.opcode <= last) return d.failAt(.opcode_order, .opcodes, size, i);
        if (entry.reserved != 0) return d.failAt(.reserved_not_zero, .opcodes, size, i);
        last = entry.opcode;
        const number = std.math.cast(u16, entry.opcode) orelse
            return d.failAt(.unknown_opcode, .opcodes, size, i);
        const code = op.Code.fromNumber(number) orelse
            return d.failAt(.unknown_opcode, .opcodes, size, i);
        if (entry.digest != code.info().digest) {
            return d.failAt(.opcode_digest_mismatch, .opcodes, size, i);
        }
        listed[code.denseIndex()] = true;
    }
}

const Types = struct {
    types: []const ir.Type,
    /// By type index of the file: the interned type; null if all of them differ.
    interned: ?[]const ir.TypeId,
};

fn readTypes(d: *Decoder) Error!Types {
    const size = @sizeOf(wire_format.TypeEntry);
    const dims = try d.records(i64, .dims);
    const entries = try d.records(wire_format.TypeEntry, .types);
    const types = try d.arena.alloc(ir.Type, entries.len);
    const interned = try d.arena.alloc(ir.TypeId, entries.len);
    var map: ir.TypeMap = .empty;
    try map.ensureTotalCapacity(d.arena, @intCast(entries.len));
    var distinct: usize = 0;
    for (entries, 0..) |entry, i| {
        const element: DType = @fromBackingInt(@intCast(entry.dtype));
        if (!element.isValid()) return d.failAt(.bad_dtype, .types, size, i);
        if (entry.encoding != 0) return d.failAt(.bad_encoding, .types, size, i);
        if (entry.rank > d.limits.rank_max) return d.failAt(.rank_too_large, .types, size, i);
        if (entry.dim_start > dims.len or entry.rank > dims.len - entry.dim_start) {
            return d.failAt(.dims_out_of_bounds, .types, size, i);
        }
        const t: ir.Type = .{ .dtype = element, .dims = dims[entry.dim_start..][0..entry.rank] };
        for (t.dims) |extent| {
            if (extent < 0) return d.failAt(.negative_extent, .types, size, i);
        }
        if (!isSmallEnough(d, t)) return d.failAt(.value_too_large, .types, size, i);
        const found = map.getOrPutAssumeCapacity(t);
        if (!found.found_existing) {
            found.value_ptr.* = .at(distinct);
            types[distinct] = t;
            distinct += 1;
        }
        interned[i] = found.value_ptr.*;
    }
    return .{
        .types = types[0..distinct],
        .interned = if (distinct == entries.len) null else interned,
    };
}

fn isSmallEnough(d: *const Decoder, t: ir.Type) bool {
    assert(d.limits.element_count_max <= ir.element_count_max);
    if (!t.isLegal()) return false;
    var count: u64 = 1;
    for (t.dims) |extent| count *= @max(1, @as(u64, @intCast(extent)));
    return count <= d.limits.element_count_max and
        count * t.dtype.bytes() <= d.limits.tensor_bytes_max;
}

fn readValueTypes(d: *Decoder, types: Types) Error![]const ir.TypeId {
    const entries = try d.recordsExactly(u32, .value_types, d.header.value_count);
    const count = if (types.interned) |interned| interned.len else types.types.len;
    for (entries, 0..) |entry, v| {
        if (entry >= count) return d.failAt(.type_out_of_range, .value_types, 4, v);
    }
    const interned = types.interned orelse return @ptrCast(entries);
    const value_types = try d.arena.alloc(ir.TypeId, entries.len);
    for (value_types, entries) |*to, from| to.* = interned[from];
    return value_types;
}

fn readInputs(
    d: *Decoder,
    types: []const ir.Type,
    value_types: []const ir.TypeId,
) Error![]const ir.Input {
    const size = @sizeOf(wire_format.InputEntry);
    const entries = try d.recordsExactly(wire_format.InputEntry, .inputs, d.header.input_count);
    const constants = d.sections[@backingInt(SectionId.constants)];
    const inputs = try d.arena.alloc(ir.Input, entries.len);
    var constant_count: u32 = 0;
    var next: u64 = 0;
    for (inputs, entries, value_types[0..entries.len], 0..) |*input, entry, t, i| {
        const flags: ir.InputFlags = @bitCast(entry.flags);
        if (!areFlagsLegal(flags) or (d.is_block and entry.flags != 0)) {
            return d.failAt(.bad_flags, .inputs, size, i);
        }
        input.* = .{ .flags = flags };
        if (entry.data_index != (if (flags.constant) constant_count else 0)) {
            return d.failAt(.bad_data_index, .inputs, size, i);
        }
        if (!flags.constant) continue;
        constant_count += 1;
        const alignment = wire_format.constant_alignment;
        input.data = try readData(d, .constants, constants, &next, types[t.index()], alignment);
    }
    if (next != constants.len) return d.failAt(.section_size, .constants, 1, next);
    return inputs;
}

fn areFlagsLegal(flags: ir.InputFlags) bool {
    if (flags.unused != 0) return false;
    const special = @as(u32, @intFromBool(flags.constant)) + @intFromBool(flags.rng_key) +
        @intFromBool(flags.scalar_slot);
    return special == 0 or (special == 1 and !flags.donated and !flags.state);
}

/// The bytes of one literal or constant from `next.*` on, which moves behind its padding.
fn readData(
    d: *Decoder,
    section: SectionId,
    contents: []align(8) const u8,
    next: *u64,
    t: ir.Type,
    alignment: u64,
) Error![]const u8 {
    const bytes = t.byteCount();
    assert(next.* <= contents.len);
    assert(next.* % alignment == 0);
    if (bytes > contents.len - next.*) return d.failAt(.section_size, section, 1, next.*);
    const padded = std.mem.alignForward(u64, next.* + bytes, alignment);
    if (padded > contents.len) return d.failAt(.section_size, section, 1, next.*);
    const data = contents[@intCast(next.*)..][0..@intCast(bytes)];
    for (contents[@intCast(next.* + bytes)..@intCast(padded)]) |byte| {
        if (byte != 0) return d.failAt(.padding_not_zero, section, 1, next.* + bytes);
    }
    if (t.dtype == .bool) {
        var bits: u8 = 0;
        for (data) |byte| bits |= byte;
        if (bits > 1) return d.failAt(.bool_not_0_or_1, section, 1, next.*);
    }
    next.* = padded;
    return data;
}

fn readLiterals(
    d: *Decoder,
    types: []const ir.Type,
    value_types: []const ir.TypeId,
) Error![]const []const u8 {
    const contents = d.sections[@backingInt(SectionId.literals)];
    const literals = try d.arena.alloc([]const u8, d.header.literal_count);
    var next: u64 = 0;
    for (literals, value_types[d.header.input_count..][0..literals.len]) |*literal, id| {
        const t = types[id.index()];
        if (t.byteCount() > d.limits.literal_bytes_max) {
            return d.failAt(.literal_too_large, .literals, 1, next);
        }
        const alignment = wire_format.literal_alignment;
        literal.* = try readData(d, .literals, contents, &next, t, alignment);
    }
    if (next != contents.len) return d.failAt(.section_size, .literals, 1, next);
    return literals;
}

const Body = struct {
    codes: []op.Code,
    operand_start: []u32,
    operands: []const ir.ValueId,
    attr_start: []u32,
    attrs: []const i64,
    results: ir_builder.ResultTables,
};

fn readInstructions(d: *Decoder, listed: *const [op.count]bool) Error!Body {
    const h = d.header;
    const Entry = wire_format.InstructionEntry;
    const entries = try d.recordsExactly(Entry, .instructions, h.instruction_count);
    const operands = try d.records(u32, .operands);
    const attrs = try d.records(i64, .attrs);
    const n = entries.len;
    const codes = try d.arena.alloc(op.Code, n);
    const operand_start = try d.arena.alloc(u32, n + 1);
    const attr_start = try d.arena.alloc(u32, n + 1);
    const result_counts = try d.arena.alloc(u32, n);
    var operand: usize = 0;
    var word: usize = 0;
    var value: u64 = h.input_count + h.literal_count;
    for (entries, 0..) |entry, i| {
        const code = op.Code.fromNumber(entry.opcode) orelse
            return failInstruction(d, .unknown_opcode, i);
        if (!listed[code.denseIndex()]) return failInstruction(d, .opcode_not_listed, i);
        try checkEntry(d, entry, code, i);
        if (entry.operand_count > operands.len - operand) {
            return failInstruction(d, .operands_out_of_bounds, i);
        }
        if (entry.attr_words > attrs.len - word) {
            return failInstruction(d, .attrs_out_of_bounds, i);
        }
        for (operands[operand..][0..entry.operand_count]) |v| {
            if (v >= value) return failInstruction(d, .operand_not_defined, i);
        }
        if (checkAttributes(code, attrs[word..][0..entry.attr_words])) |message| {
            return failInstruction(d, message, i);
        }
        codes[i] = code;
        operand_start[i] = @intCast(operand);
        attr_start[i] = @intCast(word);
        result_counts[i] = entry.result_count;
        operand += entry.operand_count;
        word += entry.attr_words;
        value += entry.result_count;
        if (value > h.value_count) return failInstruction(d, .count_mismatch, i);
    }
    if (value != h.value_count) return d.failAt(.count_mismatch, .instructions, 8, n);
    if (operand != operands.len) return d.failAt(.operands_out_of_bounds, .operands, 4, operand);
    if (word != attrs.len) return d.failAt(.attrs_out_of_bounds, .attrs, 8, word);
    operand_start[n] = @intCast(operand);
    attr_start[n] = @intCast(word);
    const first_result = h.input_count + h.literal_count;
    return .{
        .codes = codes,
        .operand_start = operand_start,
        .operands = @ptrCast(operands),
        .attr_start = attr_start,
        .attrs = attrs,
        .results = try ir_builder.resultTables(d.arena, result_counts, first_result, h.value_count),
    };
}

fn failInstruction(d: *Decoder, message: Message, i: usize) Error {
    const failure = d.failAt(message, .instructions, @sizeOf(wire_format.InstructionEntry), i);
    d.diagnostic.instruction = @intCast(i);
    return failure;
}

fn checkEntry(
    d: *Decoder,
    entry: wire_format.InstructionEntry,
    code: op.Code,
    i: usize,
) Error!void {
    const info = code.info();
    if (entry.operand_count < info.operands_min or entry.operand_count > info.operands_max or
        entry.operand_count > d.limits.operand_count_max)
    {
        return failInstruction(d, .operand_count, i);
    }
    const result_count = code.resultCount(entry.operand_count) orelse entry.result_count;
    if (entry.result_count != result_count or entry.result_count > d.limits.result_count_max) {
        return failInstruction(d, .result_count, i);
    }
    if (entry.attr_words > d.limits.attr_words_max) return failInstruction(d, .attr_words, i);
}

/// Null if the words follow the schema of the opcode.
pub fn checkAttributes(code: op.Code, words: []const i64) ?Message {
    var next: usize = 0;
    for (code.info().attributes) |attribute| {
        if (next == words.len) return .attr_words;
        const word = words[next];
        next += 1;
        switch (attribute.kind) {
            .int, .float => {},
            .bool => if (word != 0 and word != 1) return .attr_bool,
            .dtype => if (word < 0 or word >= DType.count) return .attr_dtype,
            .ints => {
                if (word < 0 or word > words.len - next) return .attr_words;
                next += @intCast(word);
            },
        }
    }
    return if (next == words.len) null else .attr_words;
}

fn readOutputs(d: *Decoder) Error![]const ir.Output {
    const size = @sizeOf(wire_format.OutputEntry);
    const entries = try d.recordsExactly(wire_format.OutputEntry, .outputs, d.header.output_count);
    const outputs = try d.arena.alloc(ir.Output, entries.len);
    for (outputs, entries, 0..) |*output, entry, i| {
        if (entry.value >= d.header.value_count) {
            return d.failAt(.output_out_of_range, .outputs, size, i);
        }
        if (entry.alias > d.header.input_count or (d.is_block and entry.alias != 0)) {
            return d.failAt(.alias_out_of_range, .outputs, size, i);
        }
        output.* = .{
            .value = .at(entry.value),
            .alias = if (entry.alias == 0) null else .at(entry.alias - 1),
        };
    }
    return outputs;
}

const Sources = struct { sources: []const u32, locations: []const ir.Location };

fn readSources(d: *Decoder) Error!Sources {
    const contents = d.sections[@backingInt(SectionId.sources)];
    const n = d.header.instruction_count;
    if (contents.len == 0) {
        const sources = try d.arena.alloc(u32, n);
        @memset(sources, ir.no_source);
        return .{ .sources = sources, .locations = &.{} };
    }
    const Entry = wire_format.LocationEntry;
    const head_bytes = @sizeOf(wire_format.SourcesHeader);
    if (contents.len < head_bytes) return d.failAt(.section_size, .sources, 1, 0);
    const head: *const wire_format.SourcesHeader = @ptrCast(contents[0..head_bytes]);
    if (head.reserved != 0) return d.failAt(.reserved_not_zero, .sources, 1, 4);
    const table_bytes = @as(u64, head.count) * @sizeOf(Entry);
    if (contents.len != head_bytes + table_bytes + 4 * @as(u64, n)) {
        return d.failAt(.section_size, .sources, 1, contents.len);
    }
    const table_end = head_bytes + @as(usize, @intCast(table_bytes));
    const entries: []const Entry = @ptrCast(@alignCast(contents[head_bytes..table_end]));
    const locations = try d.arena.alloc(ir.Location, entries.len);
    for (locations, entries, 0..) |*location, entry, i| {
        if (entry.reserved != 0) {
            return d.failAt(.reserved_not_zero, .sources, @sizeOf(Entry), i);
        }
        location.* = .{
            .file = try readString(d, entry.file_offset, entry.file_bytes),
            .function = try readString(d, entry.function_offset, entry.function_bytes),
            .line = entry.line,
        };
    }
    const sources: []const u32 = @ptrCast(@alignCast(contents[table_end..]));
    for (sources, 0..) |source, i| {
        if (source > entries.len) {
            return d.failAt(.source_out_of_range, .sources, 1, table_end + 4 * i);
        }
    }
    return .{ .sources = sources, .locations = locations };
}

fn readString(d: *Decoder, offset: u32, bytes: u32) Error![]const u8 {
    const strings = d.sections[@backingInt(SectionId.strings)];
    if (offset > strings.len or bytes > strings.len - offset) {
        return d.failAt(.string_out_of_bounds, .strings, 1, strings.len);
    }
    const text = strings[offset..][0..bytes];
    if (!std.unicode.utf8ValidateSlice(text)) {
        return d.failAt(.string_not_utf8, .strings, 1, offset);
    }
    return text;
}
