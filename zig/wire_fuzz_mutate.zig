//! Breaks valid programs in ways that know the format: most changes keep the layout whole and make
//! one field wrong, so that they get past the decoder; some tear the layout itself.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const dtype = @import("dtype.zig");
const ir = @import("ir.zig");
const op = @import("op.zig");
const wire_encode = @import("wire_encode.zig");
const wire_format = @import("wire_format.zig");

const Header = wire_format.Header;
const Section = wire_format.Section;
const SectionId = wire_format.SectionId;

/// Numbers that arithmetic on sizes gets wrong.
const edges = [_]i64{
    0,                    1,                        -1,                   2,
    15,                   16,                       17,                   255,
    256,                  65_535,                   65_536,               (1 << 24) + 1,
    std.math.maxInt(i32), std.math.minInt(i32),     std.math.maxInt(u32), 1 << 32,
    1 << 48,              (1 << 48) + 1,            1 << 62,              std.math.maxInt(i64),
    std.math.minInt(i64), std.math.minInt(i64) + 1, -2,                   -1 << 48,
};

/// A changed copy of `bytes`, which are a valid program, or close to one.
pub fn mutate(
    arena: Allocator,
    random: std.Random,
    bytes: []const u8,
) Allocator.Error![]align(8) u8 {
    var m: Mutator = .{ .arena = arena, .random = random, .header = undefined };
    if (!try m.take(bytes)) return flipped(arena, random, bytes);
    // One change mostly: two wrong things rarely get further than one.
    var changes = 1 + random.uintLessThan(usize, 12) / 9;
    const tear = random.uintLessThan(u8, 5) == 0;
    while (changes > 0) : (changes -= 1) {
        if (random.boolean() and try m.changeBlock()) continue;
        if (tear) try m.tear() else try m.change();
    }
    try m.listOpcodes();
    const out = try wire_encode.assemble(arena, m.header, m.sections.items);
    if (random.uintLessThan(u8, 16) == 0) {
        const again = random.uintLessThan(u8, 4) != 0;
        return tornLayout(random, out, again);
    }
    return out;
}

/// A few bits of a copy turned over, the digest left as it is.
fn flipped(arena: Allocator, random: std.Random, bytes: []const u8) Allocator.Error![]align(8) u8 {
    const copy = try arena.alignedAlloc(u8, .@"8", bytes.len);
    @memcpy(copy, bytes);
    if (copy.len == 0) return copy;
    for (0..1 + random.uintLessThan(usize, 4)) |_| {
        copy[random.uintLessThan(usize, copy.len)] ^= @as(u8, 1) << random.int(u3);
    }
    return copy;
}

/// Breaks header, table or length of the finished bytes.
fn tornLayout(random: std.Random, bytes: []align(8) u8, seal: bool) []align(8) u8 {
    const head_bytes = @sizeOf(Header) + wire_format.limits.section_count_max * @sizeOf(Section);
    const head = @min(bytes.len, head_bytes);
    switch (random.uintLessThan(u8, 4)) {
        0 => {
            const at = random.uintLessThan(usize, head / 4) * 4;
            const edge = edges[random.uintLessThan(usize, edges.len)];
            std.mem.writeInt(u32, bytes[at..][0..4], @truncate(@as(u64, @bitCast(edge))), .little);
        },
        1 => bytes[random.uintLessThan(usize, head)] ^= @as(u8, 1) << random.int(u3),
        2 => return bytes[0..random.uintLessThan(usize, bytes.len)],
        else => bytes[random.uintLessThan(usize, bytes.len)] = random.int(u8),
    }
    if (seal) wire_encode.seal(bytes);
    return bytes;
}

const Mutator = struct {
    arena: Allocator,
    random: std.Random,
    header: Header,
    sections: std.ArrayList(wire_encode.Contents) = .empty,
    /// The opcode section no longer follows from the instructions.
    keep_opcodes: bool = false,

    /// Takes the program apart, sections copied; false if its layout is not whole.
    fn take(m: *Mutator, bytes: []const u8) Allocator.Error!bool {
        if (bytes.len < @sizeOf(Header)) return false;
        m.header = std.mem.bytesToValue(Header, bytes[0..@sizeOf(Header)]);
        if (m.header.section_count > wire_format.limits.section_count_max) return false;
        for (0..m.header.section_count) |n| {
            const at = @sizeOf(Header) + n * @sizeOf(Section);
            if (at + @sizeOf(Section) > bytes.len) return false;
            const entry = std.mem.bytesToValue(Section, bytes[at..][0..@sizeOf(Section)]);
            const end = @as(u64, entry.offset) + entry.bytes;
            if (end > bytes.len) return false;
            try m.sections.append(m.arena, .{
                .id = entry.id,
                .bytes = try m.arena.dupe(u8, bytes[entry.offset..@intCast(end)]),
            });
        }
        return m.sections.items.len > 0;
    }

    fn contents(m: *Mutator, id: SectionId) ?[]u8 {
        for (m.sections.items) |s| {
            if (s.id == @backingInt(id) and s.bytes.len > 0) return @constCast(s.bytes);
        }
        return null;
    }

    /// One field wrong, or only other data, in a whole layout.
    fn change(m: *Mutator) Allocator.Error!void {
        const r = m.random;
        switch (r.uintLessThan(u8, 16)) {
            0, 1, 2 => m.setWord(.attrs, i64, m.smallOrEdge(i64)),
            3, 4, 5 => m.setWord(.operands, u32, r.uintAtMost(u32, m.header.value_count)),
            6, 7 => m.setWord(.dims, i64, m.smallOrEdge(i64)),
            8 => m.setWord(.value_types, u32, m.typeIndex()),
            9 => m.changeOpcode(),
            10 => m.changeType(),
            11 => m.setWord(.inputs, u32, r.uintLessThan(u32, 33)),
            12 => m.setWord(.outputs, u32, r.uintAtMost(u32, m.header.value_count)),
            13, 14 => m.changeData(),
            else => m.setWord(.instructions, u16, m.smallOrEdge(u16)),
        }
    }

    /// A block changed as programs are; false if there is none.
    fn changeBlock(m: *Mutator) Allocator.Error!bool {
        const all = m.contents(.blocks) orelse return false;
        var starts: std.ArrayList(usize) = .empty;
        var at: usize = 0;
        while (at + @sizeOf(Header) <= all.len) {
            const header = std.mem.bytesToValue(Header, all[at..][0..@sizeOf(Header)]);
            if (header.total_bytes < @sizeOf(Header) or header.total_bytes > all.len - at) break;
            try starts.append(m.arena, at);
            at += @intCast(header.total_bytes);
        }
        if (starts.items.len == 0 or at != all.len) return false;
        const n = m.random.uintLessThan(usize, starts.items.len);
        const start = starts.items[n];
        const end = if (n + 1 < starts.items.len) starts.items[n + 1] else all.len;
        const changed = try mutate(m.arena, m.random, all[start..end]);
        const parts = [_][]const u8{ all[0..start], changed, all[end..] };
        for (m.sections.items) |*s| {
            if (s.id != @backingInt(SectionId.blocks)) continue;
            s.bytes = try std.mem.concat(m.arena, u8, &parts);
        }
        return true;
    }

    fn setWord(m: *Mutator, id: SectionId, comptime T: type, value: T) void {
        const bytes = m.contents(id) orelse return;
        const count = bytes.len / @sizeOf(T);
        if (count == 0) return;
        const at = m.random.uintLessThan(usize, count) * @sizeOf(T);
        std.mem.writeInt(T, bytes[at..][0..@sizeOf(T)], value, .little);
    }

    fn smallOrEdge(m: *Mutator, comptime T: type) T {
        const edge: u64 = @bitCast(edges[m.random.uintLessThan(usize, edges.len)]);
        const small: u64 = @bitCast(m.random.intRangeAtMost(i64, -2, 8));
        const bits = if (m.random.uintLessThan(u8, 3) == 0) edge else small;
        const Bits = @Int(.unsigned, @bitSizeOf(T));
        return @bitCast(@as(Bits, @truncate(bits)));
    }

    fn typeIndex(m: *Mutator) u32 {
        const bytes = m.contents(.types) orelse return 0;
        return m.random.uintAtMost(u32, @intCast(bytes.len / @sizeOf(wire_format.TypeEntry)));
    }

    /// Another opcode of the same arity, results and schema where there is one.
    fn changeOpcode(m: *Mutator) void {
        const bytes = m.contents(.instructions) orelse return;
        const size = @sizeOf(wire_format.InstructionEntry);
        const at = m.random.uintLessThan(usize, bytes.len / size) * size;
        const entry = std.mem.bytesToValue(wire_format.InstructionEntry, bytes[at..][0..size]);
        var number = m.random.uintAtMost(u16, op.number_max + 1);
        for (0..64) |_| {
            const info = op.table[m.random.uintLessThan(usize, op.count)];
            if (entry.operand_count < info.operands_min) continue;
            if (entry.operand_count > info.operands_max) continue;
            if ((info.attributes.len == 0) != (entry.attr_words == 0)) continue;
            number = @backingInt(info.code);
            break;
        }
        std.mem.writeInt(u16, bytes[at..][0..2], number, .little);
    }

    fn changeType(m: *Mutator) void {
        const bytes = m.contents(.types) orelse return;
        const size = @sizeOf(wire_format.TypeEntry);
        const at = m.random.uintLessThan(usize, bytes.len / size) * size;
        switch (m.random.uintLessThan(u8, 4)) {
            0, 1 => bytes[at] = m.random.uintAtMost(u8, dtype.DType.count),
            2 => bytes[at + 2] = m.random.uintLessThan(u8, 18),
            else => bytes[at + 4] = m.random.int(u8),
        }
    }

    /// Other values in literals or constants: still a valid program, mostly.
    fn changeData(m: *Mutator) void {
        const id: SectionId = if (m.random.boolean()) .literals else .constants;
        const bytes = m.contents(id) orelse return;
        for (0..1 + m.random.uintLessThan(usize, 8)) |_| {
            const n = m.random.uintLessThan(usize, bytes.len);
            bytes[n] = if (m.random.boolean()) m.random.int(u8) else bytes[n] ^ 1;
        }
    }

    /// Sections of the wrong size, in the wrong order, or of the wrong number.
    fn tear(m: *Mutator) Allocator.Error!void {
        const r = m.random;
        const n = r.uintLessThan(usize, m.sections.items.len);
        const s = &m.sections.items[n];
        switch (r.uintLessThan(u8, 8)) {
            0 => {
                const size = r.uintLessThan(usize, 2 * s.bytes.len + 16);
                const resized = try m.arena.alloc(u8, size);
                @memset(resized, 0);
                const kept = @min(size, s.bytes.len);
                @memcpy(resized[0..kept], s.bytes[0..kept]);
                s.bytes = resized;
                m.keep_opcodes = true;
            },
            1 => {
                const other = r.uintLessThan(usize, m.sections.items.len);
                std.mem.swap(wire_encode.Contents, s, &m.sections.items[other]);
                m.keep_opcodes = true;
            },
            2 => s.id = r.uintLessThan(u32, 70),
            3 => _ = m.sections.orderedRemove(n),
            4 => {
                const at = @offsetOf(Header, "value_count") + 4 * r.uintLessThan(usize, 6);
                const field = std.mem.asBytes(&m.header)[at..][0..4];
                std.mem.writeInt(u32, field, m.smallOrEdge(u32), .little);
            },
            5 => if (s.bytes.len > 0) {
                const bytes = @constCast(s.bytes);
                bytes[r.uintLessThan(usize, bytes.len)] ^= @as(u8, 1) << r.int(u3);
                m.keep_opcodes = true;
            },
            6 => m.setWord(.sources, u32, m.smallOrEdge(u32)),
            else => m.setWord(.opcodes, u32, m.smallOrEdge(u32)),
        }
        if (m.sections.items.len == 0) try m.sections.append(m.arena, .{ .id = 7, .bytes = &.{} });
    }

    /// Lists every opcode, so that a changed one is not refused for that alone.
    fn listOpcodes(m: *Mutator) Allocator.Error!void {
        if (m.keep_opcodes or m.random.uintLessThan(u8, 8) == 0) return;
        for (m.sections.items) |*s| {
            if (s.id != @backingInt(SectionId.opcodes)) continue;
            const entries = try m.arena.alloc(wire_format.OpcodeEntry, op.count);
            for (entries, op.table) |*entry, info| {
                entry.* = .{ .opcode = @backingInt(info.code), .digest = info.digest };
            }
            s.bytes = std.mem.sliceAsBytes(entries);
        }
    }
};
