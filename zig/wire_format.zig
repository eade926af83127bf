//! The constants and record layouts of the wire format (`docs/wire.md`), shared by the decoder, the
//! encoder of the tests and the generator of the Python tables.
const std = @import("std");
const assert = std.debug.assert;
const builtin = @import("builtin");
const ir = @import("ir.zig");

pub const magic: u32 = 0x50544550;
pub const version: u16 = 1;

/// Section ids below this one are hashed.
pub const hashed_id_end = 64;
/// Every section starts at a multiple of this.
pub const section_alignment = 8;
pub const literal_alignment = 8;
/// Constants start at multiples of this from the start of their section.
pub const constant_alignment = 64;
/// The digest covers the bytes from here to `Header.hashed_bytes`.
pub const digest_start = 32;

/// Every limit of the format. All are inclusive.
pub const Limits = struct {
    section_count_max: u64 = 16,
    /// The whole program without its constants.
    program_bytes_max: u64 = 1 << 30,
    rank_max: u64 = ir.rank_max,
    value_count_max: u64 = 1 << 24,
    /// Operands, results and attribute words of one instruction.
    operand_count_max: u64 = 65_535,
    result_count_max: u64 = 65_535,
    attr_words_max: u64 = 65_535,
    literal_bytes_max: u64 = 4096,
    element_count_max: u64 = ir.element_count_max,
    tensor_bytes_max: u64 = ir.tensor_bytes_max,
    block_count_max: u64 = 1 << 16,
    /// Blocks that run inside each other, the root not counted.
    block_depth_max: u64 = 64,
};

pub const limits: Limits = .{};

/// Ids below `hashed_id_end` that are not named here are refused, others are skipped.
pub const SectionId = enum(u32) {
    opcodes = 1,
    types = 2,
    dims = 3,
    value_types = 4,
    inputs = 5,
    literals = 6,
    instructions = 7,
    operands = 8,
    attrs = 9,
    outputs = 10,
    constants = 11,
    blocks = 12,
    strings = 64,
    sources = 65,
    meta = 66,
    block_sources = 67,
    /// Not a section: what a diagnostic about the header or the section table says.
    header = 0,
    _,

    pub fn isKnown(id: SectionId) bool {
        const n = @backingInt(id);
        return (n >= 1 and n <= 12) or (n >= 64 and n <= 67);
    }
};

pub const Header = extern struct {
    magic: u32 = magic,
    version: u16 = version,
    section_count: u16,
    total_bytes: u64,
    digest: [16]u8 = @splat(0),
    hashed_bytes: u64,
    value_count: u32,
    input_count: u32,
    literal_count: u32,
    instruction_count: u32,
    output_count: u32,
    reserved: u32 = 0,
};

pub const Section = extern struct { id: u32, reserved: u32 = 0, offset: u32, bytes: u32 };
pub const OpcodeEntry = extern struct { opcode: u32, reserved: u32 = 0, digest: u64 };
pub const TypeEntry = extern struct { dtype: u8, encoding: u8 = 0, rank: u16, dim_start: u32 };
pub const InputEntry = extern struct { flags: u32, data_index: u32 };
pub const InstructionEntry = extern struct {
    opcode: u16,
    result_count: u16,
    operand_count: u16,
    attr_words: u16,
};
pub const OutputEntry = extern struct { value: u32, alias: u32 };
pub const SourcesHeader = extern struct { count: u32, reserved: u32 = 0 };
pub const LocationEntry = extern struct {
    file_offset: u32,
    file_bytes: u32,
    function_offset: u32,
    function_bytes: u32,
    line: u32,
    reserved: u32 = 0,
};

comptime {
    assert(builtin.cpu.arch.endian() == .little); // records are read in place
    assert(@sizeOf(Header) == 64);
    assert(@offsetOf(Header, "hashed_bytes") == digest_start);
    assert(@sizeOf(Section) == 16);
    assert(@sizeOf(OpcodeEntry) == 16);
    assert(@sizeOf(TypeEntry) == 8);
    assert(@sizeOf(InputEntry) == 8);
    assert(@sizeOf(InstructionEntry) == 8);
    assert(@sizeOf(OutputEntry) == 8);
    assert(@sizeOf(SourcesHeader) == 8);
    assert(@sizeOf(LocationEntry) == 24);
    for (.{ "bytes", "offset" }) |name| assert(@FieldType(Section, name) == u32);
}
