//! What is wrong with a program: one message of a closed list and the place it is about. Filled by
//! the decoder and the verifier, turned into text by whoever reports it.
const std = @import("std");
const SectionId = @import("wire_format.zig").SectionId;

pub const Message = enum {
    none,

    // The decoder: header and sections.
    truncated,
    bad_magic,
    unsupported_version,
    wrong_total_bytes,
    reserved_not_zero,
    too_many_sections,
    program_too_large,
    section_unknown,
    section_order,
    section_not_contiguous,
    section_out_of_bounds,
    section_size,
    padding_not_zero,
    wrong_hashed_bytes,
    digest_mismatch,
    // The decoder: contents.
    count_mismatch,
    too_many_values,
    unknown_opcode,
    opcode_order,
    opcode_digest_mismatch,
    opcode_not_listed,
    bad_dtype,
    bad_encoding,
    rank_too_large,
    dims_out_of_bounds,
    negative_extent,
    value_too_large,
    type_out_of_range,
    bad_flags,
    bad_data_index,
    literal_too_large,
    bool_not_0_or_1,
    operand_count,
    result_count,
    operands_out_of_bounds,
    operand_not_defined,
    attrs_out_of_bounds,
    attr_words,
    attr_bool,
    attr_dtype,
    output_out_of_range,
    alias_out_of_range,
    source_out_of_range,
    string_out_of_bounds,
    string_not_utf8,
    too_many_blocks,
    section_in_block,
    block_out_of_bounds,
    block_depth,

    // The verifier.
    alias_not_donated,
    alias_type,
    alias_twice,
    rng_key_type,
    rng_key_twice,
    scalar_slot_rank,
    result_type,
    operand_dtype,
    operand_dtypes_differ,
    operand_rank,
    operand_ranks_differ,
    operand_shape,
    not_broadcastable,
    axis_out_of_range,
    axis_repeated,
    axes_count,
    batch_dims_out_of_range,
    element_counts_differ,
    element_sizes_differ,
    cast_to_bool,
    negative_amount,
    shape_overflow,
    slice_out_of_bounds,
    slice_step,
    not_a_permutation,
    empty_axis,
    bad_mode,
    bad_kind,
    bad_form,
    bad_exponent,
    bad_extent,
    bad_float,
    bad_window,
    bad_window_extent,
    heads_not_multiple,
    bad_count,
    bad_block,
    block_inputs,
    block_outputs,
    bad_split,
    bad_length,

    /// One sentence, without the place.
    pub fn text(m: Message) []const u8 {
        return texts.get(m);
    }
};

/// Does not compile with a message left out.
const texts: std.enums.EnumArray(Message, []const u8) = .init(.{
    .none = "no error",
    .truncated = "the bytes end before the program does",
    .bad_magic = "these bytes are not a program",
    .unsupported_version = "the format version is another one than this library's",
    .wrong_total_bytes = "the header's length is not the length of the bytes",
    .reserved_not_zero = "a reserved field is not zero",
    .too_many_sections = "more sections than the limit",
    .program_too_large = "more bytes than the limit",
    .section_unknown = "a hashed section this library does not know",
    .section_order = "section ids do not ascend",
    .section_not_contiguous = "a section does not start where the one before ended",
    .section_out_of_bounds = "a section ends behind the program",
    .section_size = "a section's size does not fit its records or the header's counts",
    .padding_not_zero = "padding bytes are not zero",
    .wrong_hashed_bytes = "the hashed length is not the end of the hashed sections",
    .digest_mismatch = "the digest is not that of the bytes",
    .count_mismatch = "the counts of the header do not agree with the instructions",
    .too_many_values = "more values than the limit",
    .unknown_opcode = "an opcode this library does not know",
    .opcode_order = "listed opcodes do not ascend",
    .opcode_digest_mismatch = "an opcode has another signature than in this library",
    .opcode_not_listed = "an opcode that is used is not listed",
    .bad_dtype = "not a dtype",
    .bad_encoding = "not an encoding of this version",
    .rank_too_large = "rank above the limit",
    .dims_out_of_bounds = "the extents of a type lie outside their section",
    .negative_extent = "a negative extent",
    .value_too_large = "more elements or bytes than the limit",
    .type_out_of_range = "a type index out of range",
    .bad_flags = "input flags that do not exist or exclude each other",
    .bad_data_index = "a data index that is not the constant's position",
    .literal_too_large = "a literal above the size limit",
    .bool_not_0_or_1 = "a bool byte that is neither 0 nor 1",
    .operand_count = "a number of operands that the opcode does not take",
    .result_count = "a number of results that the opcode does not give",
    .operands_out_of_bounds = "the operands do not fill their section exactly",
    .operand_not_defined = "an operand that is not defined before its use",
    .attrs_out_of_bounds = "the attributes do not fill their section exactly",
    .attr_words = "attribute words that do not follow the opcode's schema",
    .attr_bool = "a bool attribute that is neither 0 nor 1",
    .attr_dtype = "a dtype attribute that is no dtype",
    .output_out_of_range = "an output that is not a value",
    .alias_out_of_range = "an alias that is not an input",
    .source_out_of_range = "a source location out of range",
    .string_out_of_bounds = "a string outside its section",
    .string_not_utf8 = "a string that is not UTF-8",
    .too_many_blocks = "more blocks than the limit",
    .section_in_block = "a section that a block does not have",
    .block_out_of_bounds = "a block ends behind its section",
    .alias_not_donated = "the alias of an output is not a donated input",
    .alias_type = "an output and its alias have different types",
    .alias_twice = "an input is the alias of two outputs",
    .rng_key_type = "the key input is not uint32 [2]",
    .rng_key_twice = "two inputs are flagged as key",
    .scalar_slot_rank = "a scalar slot has axes",
    .result_type = "the declared result type is not the inferred one",
    .operand_dtype = "a dtype the opcode is not defined for",
    .operand_dtypes_differ = "operands of different dtypes",
    .operand_rank = "an operand of the wrong rank",
    .operand_ranks_differ = "operands of different ranks",
    .operand_shape = "an operand with the wrong extents",
    .not_broadcastable = "shapes that do not broadcast",
    .axis_out_of_range = "an axis out of range",
    .axis_repeated = "an axis given twice",
    .axes_count = "an attribute with the wrong number of entries",
    .batch_dims_out_of_range = "more batch axes than the operands or the axis allow",
    .element_counts_differ = "shapes with different numbers of elements",
    .element_sizes_differ = "dtypes of different sizes",
    .cast_to_bool = "bits cannot be read as bool",
    .negative_amount = "a negative amount",
    .shape_overflow = "a result above the size limit",
    .slice_out_of_bounds = "a slice outside its operand",
    .slice_step = "a step that is 0",
    .not_a_permutation = "axes that are not a permutation",
    .empty_axis = "an empty axis where an element is needed",
    .bad_mode = "an index mode that does not exist",
    .bad_kind = "a scatter kind that does not exist or does not fit the dtype",
    .bad_form = "a form of random bits that does not exist",
    .bad_exponent = "an exponent or order out of range, or a negative exponent of integers",
    .bad_extent = "an extent to check against that no axis has",
    .bad_float = "a number that must be finite and not negative",
    .bad_window = "a window out of range",
    .bad_window_extent = "an extent that does not have this number of windows",
    .heads_not_multiple = "query heads are not a multiple of key heads",
    .bad_count = "a number of elements to keep that the axis does not have",
    .bad_block = "a block that does not exist or does not come before its user",
    .block_inputs = "a block whose inputs are not what the instruction gives it",
    .block_outputs = "a block whose outputs are not what the instruction needs",
    .block_depth = "blocks inside each other above the limit",
    .bad_split = "more captures or carries than operands, or a negative number of them",
    .bad_length = "a number of steps out of range",
});

pub const Diagnostic = struct {
    message: Message = .none,
    /// The section that is wrong; `.header` also stands for the section table.
    section: SectionId = .header,
    /// Byte in the whole program where the fault was seen; 0 in the verifier.
    offset: u64 = 0,
    instruction: ?u32 = null,
    /// The block that is wrong; null: the program itself.
    block: ?u32 = null,
    /// In the verifier: the operand or, for `result_type`, the result that is wrong.
    operand: ?u32 = null,

    /// `instruction 3, operand 1: operands of different dtypes`, or
    /// `section operands, byte 320: ...`.
    pub fn format(d: Diagnostic, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        if (d.block) |k| try writer.print("block {d}, ", .{k});
        if (d.offset != 0) {
            const name = std.enums.tagName(SectionId, d.section) orelse "unknown";
            try writer.print("section {s}, byte {d}", .{ name, d.offset });
            if (d.instruction) |i| try writer.print(", instruction {d}", .{i});
            try writer.writeAll(": ");
        } else if (d.instruction) |i| {
            try writer.print("instruction {d}", .{i});
            const noun = if (d.message == .result_type) "result" else "operand";
            if (d.operand) |k| try writer.print(", {s} {d}", .{ noun, k });
            try writer.writeAll(": ");
        }
        try writer.writeAll(d.message.text());
    }
};

test "messages have text and diagnostics print their place" {
    for (std.enums.values(Message)) |m| try std.testing.expect(m.text().len > 0);
    var buffer: [128]u8 = undefined;
    const d: Diagnostic = .{ .message = .axis_repeated, .instruction = 3, .operand = 1 };
    try std.testing.expectEqualStrings(
        "instruction 3, operand 1: an axis given twice",
        try std.fmt.bufPrint(&buffer, "{f}", .{d}),
    );
    const w: Diagnostic = .{ .message = .bad_dtype, .section = .types, .offset = 96 };
    try std.testing.expectEqualStrings(
        "section types, byte 96: not a dtype",
        try std.fmt.bufPrint(&buffer, "{f}", .{w}),
    );
}
