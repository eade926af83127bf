//! The program in memory: immutable, indexed, one struct of arrays. Everything is reached by typed
//! indices; nothing points at anything. Passes read one `Program` and write another through
//! `Builder` (`ir_builder.zig`); the storage of both belongs to the arena of the compile.
//!
//! Values are numbered: inputs, then literals, then the results of the instructions in order, so an
//! operand is always smaller than the results of its instruction. Types are interned: two values
//! have the same type exactly if their `TypeId`s are equal.
const std = @import("std");
const assert = std.debug.assert;
const op = @import("op.zig");
const DType = @import("dtype.zig").DType;

pub const Builder = @import("ir_builder.zig").Builder;

/// An index type: as wide as u32, mixed up with no other.
fn Id(comptime tag: @EnumLiteral()) type {
    return enum(u32) {
        _,

        const Self = @This();
        /// Tells the index types apart.
        pub const kind = tag;

        pub inline fn at(position: usize) Self {
            return @fromBackingInt(@intCast(@as(u32, @intCast(position))));
        }

        pub inline fn index(id: Self) usize {
            return @backingInt(id);
        }
    };
}

pub const TypeId = Id(.type);
pub const ValueId = Id(.value);
pub const InputId = Id(.input);
pub const LiteralId = Id(.literal);
pub const InstructionId = Id(.instruction);

pub const rank_max = 16;
/// Highest number of elements, extents of 0 counted as 1, so that strides never overflow.
pub const element_count_max: u64 = 1 << 48;
pub const tensor_bytes_max: u64 = 1 << 50;

pub const Type = struct {
    dtype: DType,
    /// Extents, outermost first, none negative, at most `rank_max`.
    dims: []const i64,

    pub inline fn rank(t: Type) usize {
        return t.dims.len;
    }

    pub fn elementCount(t: Type) u64 {
        var n: u64 = 1;
        for (t.dims) |d| n *= @intCast(d);
        return n;
    }

    pub fn byteCount(t: Type) u64 {
        return t.elementCount() * t.dtype.bytes();
    }

    pub fn eql(a: Type, b: Type) bool {
        return a.dtype == b.dtype and std.mem.eql(i64, a.dims, b.dims);
    }

    /// `float32[3,4]`, as messages print it.
    pub fn format(t: Type, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        try writer.print("{s}[", .{t.dtype.name()});
        for (t.dims, 0..) |d, axis| {
            if (axis > 0) try writer.writeByte(',');
            try writer.print("{d}", .{d});
        }
        try writer.writeByte(']');
    }

    /// No negative extent, rank and size within the limits.
    pub fn isLegal(t: Type) bool {
        if (!t.dtype.isValid() or t.dims.len > rank_max) return false;
        var n: u64 = 1;
        for (t.dims) |d| {
            if (d < 0) return false;
            n = std.math.mul(u64, n, @max(1, @as(u64, @intCast(d)))) catch return false;
        }
        return n <= element_count_max and n * t.dtype.bytes() <= tensor_bytes_max;
    }
};

/// Types by content.
pub const TypeMap = std.HashMapUnmanaged(Type, TypeId, TypeContext, 60);

pub const TypeContext = struct {
    pub fn hash(_: TypeContext, t: Type) u64 {
        return std.hash.Wyhash.hash(@backingInt(t.dtype), std.mem.sliceAsBytes(t.dims));
    }

    pub fn eql(_: TypeContext, a: Type, b: Type) bool {
        return a.eql(b);
    }
};

pub const InputFlags = packed struct(u32) {
    /// The call gives the memory away; an output may take it.
    donated: bool = false,
    /// Lives from call to call; committed or rolled back with the run.
    state: bool = false,
    /// Bytes are in the program.
    constant: bool = false,
    /// The key that implicit draws start from: uint32 [2].
    rng_key: bool = false,
    /// A 0-d number that a caller may change without another program.
    scalar_slot: bool = false,
    unused: u27 = 0,
};

pub const Input = struct {
    flags: InputFlags = .{},
    /// Dense row-major bytes of a constant, null for any other input.
    data: ?[]const u8 = null,
};

pub const Output = struct {
    value: ValueId,
    /// The donated input whose memory this output may take.
    alias: ?InputId = null,
    /// Of a scan's body: the number of an output that is the same value and stored anyway.
    same_as: ?u32 = null,
};

pub const Location = struct { file: []const u8, function: []const u8, line: u32 };

/// `Program.sources` of an instruction whose line nobody knows.
pub const no_source: u32 = 0;

/// What running a block can do, the blocks that it runs included.
pub const BlockFacts = struct {
    may_fail: bool,
    has_effect: bool,
};

/// Where a value comes from.
pub const Definition = union(enum) {
    input: InputId,
    literal: LiteralId,
    result: struct { instruction: InstructionId, index: u32 },
};

pub const Program = struct {
    types: []const Type,
    /// By value.
    value_types: []const TypeId,
    inputs: []const Input,
    /// Dense row-major bytes of each literal, 8-byte aligned.
    literals: []const []const u8,
    codes: []const op.Code,
    /// By instruction, and one entry more: the operands of i are
    /// `operands[operand_start[i]..operand_start[i + 1]]`.
    operand_start: []const u32,
    operands: []const ValueId,
    /// Likewise into `attrs`.
    attr_start: []const u32,
    attrs: []const i64,
    /// The value number of the first result of each instruction; the last entry is the value count.
    result_start: []const u32,
    /// By result value (value number less inputs and literals): the instruction that defines it.
    result_instruction: []const InstructionId,
    outputs: []const Output,
    /// By instruction: a location's index + 1, or `no_source`.
    sources: []const u32,
    locations: []const Location,
    /// Programs that instructions run by number. The list of the root serves its blocks as well:
    /// block k runs only blocks below k, and has no list of its own.
    blocks: []const Program = &.{},
    /// What running each block of the root's list can do; passes carry it along.
    block_facts: []const BlockFacts = &.{},
    /// BLAKE2b-128 of the hashed bytes the program was decoded from.
    digest: [16]u8 = @splat(0),

    pub inline fn instructionCount(p: *const Program) usize {
        return p.codes.len;
    }

    pub inline fn valueCount(p: *const Program) usize {
        return p.value_types.len;
    }

    /// Inputs and literals: every value below is one of them, every other is a result.
    pub inline fn firstResult(p: *const Program) usize {
        return p.inputs.len + p.literals.len;
    }

    pub inline fn code(p: *const Program, i: InstructionId) op.Code {
        return p.codes[i.index()];
    }

    pub inline fn operandsOf(p: *const Program, i: InstructionId) []const ValueId {
        return p.operands[p.operand_start[i.index()]..p.operand_start[i.index() + 1]];
    }

    pub inline fn operand(p: *const Program, i: InstructionId, k: usize) ValueId {
        return p.operandsOf(i)[k];
    }

    pub inline fn resultCount(p: *const Program, i: InstructionId) usize {
        return p.result_start[i.index() + 1] - p.result_start[i.index()];
    }

    /// Result k of instruction i.
    pub inline fn result(p: *const Program, i: InstructionId, k: usize) ValueId {
        assert(k < p.resultCount(i));
        return .at(p.result_start[i.index()] + k);
    }

    /// The attribute words of an instruction, by the schema of its opcode.
    pub inline fn attrWords(p: *const Program, i: InstructionId) []const i64 {
        return p.attrs[p.attr_start[i.index()]..p.attr_start[i.index() + 1]];
    }

    /// The attribute called `name`, which the opcode of `i` must have; the Zig type follows from
    /// the attribute's kind: i64, bool, DType, f64 or []const i64.
    pub fn attr(
        p: *const Program,
        i: InstructionId,
        comptime name: []const u8,
    ) op.KindType(op.kindOf(name)) {
        return attrOf(p.code(i), p.attrWords(i), name);
    }

    pub inline fn typeId(p: *const Program, v: ValueId) TypeId {
        return p.value_types[v.index()];
    }

    pub inline fn typeOf(p: *const Program, v: ValueId) Type {
        return p.types[p.typeId(v).index()];
    }

    pub fn definitionOf(p: *const Program, v: ValueId) Definition {
        const n = v.index();
        if (n < p.inputs.len) return .{ .input = .at(n) };
        if (n < p.firstResult()) return .{ .literal = .at(n - p.inputs.len) };
        const i = p.result_instruction[n - p.firstResult()];
        return .{ .result = .{
            .instruction = i,
            .index = @intCast(n - p.result_start[i.index()]),
        } };
    }

    pub inline fn inputValue(p: *const Program, input: InputId) ValueId {
        assert(input.index() < p.inputs.len);
        return .at(input.index());
    }

    pub inline fn literalValue(p: *const Program, literal: LiteralId) ValueId {
        assert(literal.index() < p.literals.len);
        return .at(p.inputs.len + literal.index());
    }

    /// The bytes of a value known before the run: a literal or a constant input.
    pub fn knownBytes(p: *const Program, v: ValueId) ?[]const u8 {
        return switch (p.definitionOf(v)) {
            .input => |input| p.inputs[input.index()].data,
            .literal => |literal| p.literals[literal.index()],
            .result => null,
        };
    }

    /// The user's line an instruction comes from.
    pub fn sourceOf(p: *const Program, i: InstructionId) ?Location {
        const source = p.sources[i.index()];
        return if (source == no_source) null else p.locations[source - 1];
    }

    /// Running the instruction can end the run with an error.
    pub fn mayFail(p: *const Program, i: InstructionId) bool {
        const c = p.code(i);
        if (!c.traits().may_fail) return false;
        // Nobody knows whether a loop ends.
        if (c.traits().region) return c == .@"while" or p.anyBlock(i, "may_fail");
        if (!hasAttribute(c, "mode")) return true;
        const mode = p.attr(i, "mode");
        return mode == @backingInt(IndexMode.raise) or mode == @backingInt(IndexMode.strict);
    }

    /// Running the instruction does something besides giving results.
    pub fn hasEffect(p: *const Program, i: InstructionId) bool {
        const traits = p.code(i).traits();
        return traits.effect or (traits.region and p.anyBlock(i, "has_effect"));
    }

    fn anyBlock(p: *const Program, i: InstructionId, comptime fact: []const u8) bool {
        var numbers = p.blockNumbers(i);
        while (numbers.next()) |k| {
            if (@field(p.block_facts[@intCast(k)], fact)) return true;
        }
        return false;
    }

    /// The blocks that an instruction runs; none if it is no region.
    pub fn blockNumbers(p: *const Program, i: InstructionId) BlockNumbers {
        return .{ .code = p.code(i), .words = p.attrWords(i) };
    }
};

/// Goes through the blocks of an instruction.
pub const BlockNumbers = struct {
    code: op.Code,
    words: []const i64,
    position: usize = 0,

    pub fn next(n: *BlockNumbers) ?i64 {
        const words = switch (n.code) {
            .@"switch" => attrOf(.@"switch", n.words, "blocks"),
            .@"while" => n.words[0..2], // condition and body
            .scan => n.words[0..1],
            else => return null,
        };
        if (n.position == words.len) return null;
        n.position += 1;
        return words[n.position - 1];
    }
};

/// The `mode` attribute of the indexing opcodes.
pub const IndexMode = enum(u8) { raise = 0, clip = 1, fill = 2, strict = 3 };

/// The `kind` attribute of the scatter opcodes.
pub const ScatterKind = enum(u8) { add = 0, set = 1, max = 2, min = 3, multiply = 4 };

/// The `form` attribute of `random_bits`.
pub const RandomForm = enum(u8) { u32 = 0, u64 = 1, u32_pair = 2 };

pub inline fn hasAttribute(code: op.Code, comptime name: []const u8) bool {
    return op.positionsOf(name)[code.denseIndex()] != 0xff;
}

/// Attribute `name` in the words of an instruction with opcode `code`, which must have it.
pub fn attrOf(
    code: op.Code,
    words: []const i64,
    comptime name: []const u8,
) op.KindType(op.kindOf(name)) {
    const position = op.positionsOf(name)[code.denseIndex()];
    assert(position != 0xff); // the opcode has no such attribute
    var word: usize = 0;
    for (code.info().attributes[0..position]) |attribute| {
        word += if (attribute.kind == .ints) 1 + @as(usize, @intCast(words[word])) else 1;
    }
    return switch (comptime op.kindOf(name)) {
        .int => words[word],
        .bool => words[word] != 0,
        .dtype => @fromBackingInt(@intCast(@as(u8, @intCast(words[word])))),
        .float => @bitCast(words[word]),
        .ints => words[word + 1 ..][0..@intCast(words[word])],
    };
}

comptime {
    assert(@sizeOf(ValueId) == 4);
    assert(@as(u32, @bitCast(InputFlags{ .scalar_slot = true })) == 16);
}

test "attributes are read by name" {
    const words = [_]i64{ 2, 3, 4, 11, 1 };
    try std.testing.expectEqualSlices(i64, &.{ 3, 4 }, attrOf(.iota, &words, "shape"));
    try std.testing.expectEqual(DType.f32, attrOf(.iota, &words, "dtype"));
    try std.testing.expectEqual(@as(i64, 1), attrOf(.iota, &words, "axis"));
    const attention = [_]i64{ @bitCast(@as(f64, 0.125)), 1, 0 };
    try std.testing.expectEqual(@as(f64, 0.125), attrOf(.attention, &attention, "scale"));
    try std.testing.expect(attrOf(.attention, &attention, "causal"));
}

test "types know their size and their limits" {
    const t: Type = .{ .dtype = .f64, .dims = &.{ 3, 4 } };
    try std.testing.expectEqual(@as(u64, 96), t.byteCount());
    try std.testing.expect((Type{ .dtype = .u8, .dims = &.{ 1 << 24, 1 << 24 } }).isLegal());
    try std.testing.expect(!(Type{ .dtype = .u8, .dims = &.{ 1 << 24, (1 << 24) + 1 } }).isLegal());
    try std.testing.expect(!(Type{ .dtype = .u8, .dims = &.{ 1 << 60, 0 } }).isLegal());
    try std.testing.expect(!(Type{ .dtype = .u8, .dims = &.{-1} }).isLegal());
    try std.testing.expect(!(Type{ .dtype = .u8, .dims = &@as([17]i64, @splat(1)) }).isLegal());
    try std.testing.expect((Type{ .dtype = .u8, .dims = &@as([16]i64, @splat(1)) }).isLegal());
    var buffer: [32]u8 = undefined;
    try std.testing.expectEqualStrings("float64[3,4]", try std.fmt.bufPrint(&buffer, "{f}", .{t}));
}

test {
    _ = @import("ir_builder.zig");
}
