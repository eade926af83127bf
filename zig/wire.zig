//! The decoder of the wire format: bytes to `ir.Program`. It trusts no byte. What it returns has
//! indices in range, operands defined before their use, operand, result and attribute counts as the
//! opcodes say, attribute words that follow their schemas, and data of the size of its type.
//! Whether the instructions type-check is `verify.zig`'s question.
//!
//! The program borrows the bytes (extents, operands, attributes, literals, constants, strings), and
//! nothing larger than the bytes is ever allocated.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const Blake2b128 = std.crypto.hash.blake2.Blake2b128;
const diagnostic_file = @import("diagnostic.zig");
const wire_body = @import("wire_body.zig");
const wire_format = @import("wire_format.zig");
const ir = @import("ir.zig");

pub const Diagnostic = diagnostic_file.Diagnostic;
pub const Message = diagnostic_file.Message;
const Header = wire_format.Header;
const Section = wire_format.Section;
const SectionId = wire_format.SectionId;

pub const Error = error{
    OutOfMemory,
    /// Not a program of this format version.
    UnsupportedVersion,
    /// A count or a size is above its limit.
    LimitExceeded,
    /// The bytes were changed after the digest was taken.
    DigestMismatch,
    /// An opcode that this library does not know, or knows with another signature.
    OpcodeMismatch,
    /// Anything else.
    Malformed,
};

/// The program in `bytes`, which must live as long as it and not change. On every error but
/// OutOfMemory, `diagnostic` says what and where.
pub fn decode(arena: Allocator, bytes: []const u8, diagnostic: *Diagnostic) Error!ir.Program {
    return decodeWithLimits(arena, bytes, wire_format.limits, diagnostic);
}

/// As `decode`, with smaller limits than the format's.
pub fn decodeWithLimits(
    arena: Allocator,
    bytes: []const u8,
    limits: wire_format.Limits,
    diagnostic: *Diagnostic,
) Error!ir.Program {
    assert(limits.rank_max <= ir.rank_max);
    assert(limits.value_count_max <= std.math.maxInt(u32));
    diagnostic.* = .{};
    var decoder: Decoder = .{
        .arena = arena,
        .bytes = try aligned(arena, bytes),
        .limits = limits,
        .diagnostic = diagnostic,
        .header = undefined,
    };
    return decoder.decodeAll();
}

/// The bytes themselves if records can be read in place, else a copy.
fn aligned(arena: Allocator, bytes: []const u8) Allocator.Error![]align(8) const u8 {
    if (std.mem.isAligned(@intFromPtr(bytes.ptr), 8)) return @alignCast(bytes);
    const copy = try arena.alignedAlloc(u8, .@"8", bytes.len);
    @memcpy(copy, bytes);
    return copy;
}

pub const Decoder = struct {
    arena: Allocator,
    bytes: []align(8) const u8,
    limits: wire_format.Limits,
    diagnostic: *Diagnostic,
    header: Header,
    /// These bytes are a block: a program inside another one.
    is_block: bool = false,
    /// Contents by id; absent sections are empty.
    sections: [section_slots][]align(8) const u8 = @splat(&.{}),

    const section_slots = @backingInt(SectionId.block_sources) + 1;

    pub fn decodeAll(d: *Decoder) Error!ir.Program {
        if (d.bytes.len < @sizeOf(Header)) return d.fail(.truncated, .header, d.bytes.len);
        try d.readHeader();
        try d.readSections();
        try d.checkDigest();
        return wire_body.decode(d);
    }

    /// Fills the diagnostic; `offset` is relative to the whole program.
    pub fn fail(d: *Decoder, message: Message, section: SectionId, offset: u64) Error {
        @branchHint(.cold);
        assert(message != .none);
        d.diagnostic.message = message;
        d.diagnostic.section = section;
        d.diagnostic.offset = offset;
        return switch (message) {
            .bad_magic, .unsupported_version => error.UnsupportedVersion,
            .digest_mismatch => error.DigestMismatch,
            .unknown_opcode, .opcode_digest_mismatch => error.OpcodeMismatch,
            .too_many_sections,
            .program_too_large,
            .too_many_values,
            .rank_too_large,
            .value_too_large,
            .literal_too_large,
            .too_many_blocks,
            .block_depth,
            => error.LimitExceeded,
            else => error.Malformed,
        };
    }

    /// As `fail`, at the record `index` of a section of records of `record_bytes`.
    pub fn failAt(
        d: *Decoder,
        message: Message,
        section: SectionId,
        record_bytes: u64,
        index: u64,
    ) Error {
        const start = @intFromPtr(d.sections[@backingInt(section)].ptr);
        const base = @intFromPtr(d.bytes.ptr);
        const inside = start >= base and start <= base + d.bytes.len;
        return d.fail(message, section, (if (inside) start - base else 0) + record_bytes * index);
    }

    /// The records of a section; its size is a multiple of theirs.
    pub fn records(d: *Decoder, comptime T: type, section: SectionId) Error![]const T {
        comptime assert(@alignOf(T) <= 8);
        const contents = d.sections[@backingInt(section)];
        if (contents.len % @sizeOf(T) != 0) {
            return d.failAt(.section_size, section, 1, contents.len);
        }
        return @ptrCast(contents);
    }

    /// As `records`, and there are exactly `count`.
    pub fn recordsExactly(
        d: *Decoder,
        comptime T: type,
        section: SectionId,
        count: u64,
    ) Error![]const T {
        const all = try d.records(T, section);
        if (all.len != count) return d.failAt(.section_size, section, @sizeOf(T), all.len);
        return all;
    }

    fn readHeader(d: *Decoder) Error!void {
        d.header = @as(*const Header, @ptrCast(d.bytes[0..@sizeOf(Header)])).*;
        const h = &d.header;
        if (h.magic != wire_format.magic) {
            return d.fail(.bad_magic, .header, @offsetOf(Header, "magic"));
        }
        if (h.version != wire_format.version) {
            return d.fail(.unsupported_version, .header, @offsetOf(Header, "version"));
        }
        if (h.total_bytes != d.bytes.len) {
            return d.fail(.wrong_total_bytes, .header, @offsetOf(Header, "total_bytes"));
        }
        if (h.total_bytes > std.math.maxInt(u32)) {
            return d.fail(.program_too_large, .header, @offsetOf(Header, "total_bytes"));
        }
        if (h.section_count > d.limits.section_count_max) {
            return d.fail(.too_many_sections, .header, @offsetOf(Header, "section_count"));
        }
        if (h.reserved != 0) {
            return d.fail(.reserved_not_zero, .header, @offsetOf(Header, "reserved"));
        }
    }

    fn readSections(d: *Decoder) Error!void {
        const table_end = @sizeOf(Header) + @as(usize, d.header.section_count) * @sizeOf(Section);
        if (table_end > d.bytes.len) return d.fail(.truncated, .header, d.bytes.len);
        const table: []const Section = @ptrCast(d.bytes[@sizeOf(Header)..table_end]);
        var end: u64 = table_end;
        var last_id: u32 = 0;
        var hashed_end: ?u64 = null;
        for (table, 0..) |entry, i| {
            const place = @sizeOf(Header) + i * @sizeOf(Section);
            const id: SectionId = @fromBackingInt(@intCast(entry.id));
            if (entry.id <= last_id) return d.fail(.section_order, .header, place);
            if (entry.reserved != 0) return d.fail(.reserved_not_zero, .header, place);
            if (entry.id < wire_format.hashed_id_end and !id.isKnown()) {
                return d.fail(.section_unknown, .header, place);
            }
            if (d.is_block and (id == .blocks or entry.id >= wire_format.hashed_id_end)) {
                return d.fail(.section_in_block, .header, place);
            }
            if (entry.offset != end) return d.fail(.section_not_contiguous, .header, place);
            if (entry.bytes > d.bytes.len - end) {
                return d.fail(.section_out_of_bounds, .header, place);
            }
            if (entry.id >= wire_format.hashed_id_end and hashed_end == null) hashed_end = end;
            const start: usize = @intCast(end);
            if (id.isKnown()) d.sections[entry.id] = @alignCast(d.bytes[start..][0..entry.bytes]);
            end = try d.skipPadding(id, start + entry.bytes);
            last_id = entry.id;
        }
        if (end != d.bytes.len) return d.fail(.wrong_total_bytes, .header, end);
        if (d.header.hashed_bytes != hashed_end orelse end) {
            return d.fail(.wrong_hashed_bytes, .header, @offsetOf(Header, "hashed_bytes"));
        }
        const constants = d.sections[@backingInt(SectionId.constants)];
        if (end - constants.len > d.limits.program_bytes_max) {
            return d.fail(.program_too_large, .header, @offsetOf(Header, "total_bytes"));
        }
    }

    /// The aligned end of a section whose last byte is before `from`.
    fn skipPadding(d: *Decoder, id: SectionId, from: usize) Error!u64 {
        const end = std.mem.alignForward(usize, from, wire_format.section_alignment);
        if (end > d.bytes.len) return d.fail(.section_out_of_bounds, id, from);
        for (d.bytes[from..end], from..) |byte, offset| {
            if (byte != 0) return d.fail(.padding_not_zero, id, offset);
        }
        return end;
    }

    fn checkDigest(d: *Decoder) Error!void {
        assert(d.header.hashed_bytes <= d.bytes.len);
        var digest: [16]u8 = undefined;
        const hashed = d.bytes[wire_format.digest_start..@intCast(d.header.hashed_bytes)];
        Blake2b128.hash(hashed, &digest, .{});
        if (!std.mem.eql(u8, &digest, &d.header.digest)) {
            return d.fail(.digest_mismatch, .header, @offsetOf(Header, "digest"));
        }
    }
};

test {
    _ = wire_body;
    _ = @import("wire_blocks.zig");
    _ = diagnostic_file;
    _ = @import("wire_test.zig");
}
