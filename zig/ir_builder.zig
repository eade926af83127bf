//! Writes a `Program`. Values get builder numbers in the order they are made, literals among them,
//! because a pass may find a new constant at any time; `finish` numbers them as a program does
//! (inputs, literals, results) and leaves out literals that nothing uses.
//!
//! A pass goes through the old program once: `copy` takes an instruction over, `replace` says that
//! an old value is another one from now on, `emit` writes a new instruction.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const op = @import("op.zig");
const ir = @import("ir.zig");
const DType = @import("dtype.zig").DType;
const Program = ir.Program;
const Type = ir.Type;
const TypeId = ir.TypeId;

pub const Builder = struct {
    /// Owns everything the finished program holds; nothing is freed one by one.
    arena: Allocator,
    /// The program that is being rewritten, if there is one.
    source: ?*const Program,
    /// By value of `source`: what it has become.
    remap: []Value,
    types: std.ArrayList(Type) = .empty,
    type_map: ir.TypeMap = .empty,
    values: std.MultiArrayList(Entry) = .empty,
    inputs: std.ArrayList(ir.Input) = .empty,
    literals: std.ArrayList([]const u8) = .empty,
    codes: std.ArrayList(op.Code) = .empty,
    operand_start: std.ArrayList(u32) = .empty,
    operands: std.ArrayList(Value) = .empty,
    attr_start: std.ArrayList(u32) = .empty,
    attrs: std.ArrayList(i64) = .empty,
    result_counts: std.ArrayList(u32) = .empty,
    sources: std.ArrayList(u32) = .empty,
    locations: []const ir.Location = &.{},
    blocks: []const Program = &.{},
    block_facts: []const ir.BlockFacts = &.{},
    digest: [16]u8 = @splat(0),

    /// A value of the program being written; not its number in the finished program.
    pub const Value = enum(u32) {
        none = std.math.maxInt(u32),
        _,

        pub inline fn index(v: Value) usize {
            assert(v != .none);
            return @backingInt(v);
        }
    };

    const Entry = struct { type: TypeId, literal: u32 };
    const not_literal = std.math.maxInt(u32);

    pub const Output = struct { value: Value, alias: ?ir.InputId = null };

    pub const Instruction = struct {
        code: op.Code,
        operands: []const Value,
        /// Words by the opcode's schema; see `ir_builder.attrWords`.
        attrs: []const i64 = &.{},
        result_types: []const TypeId,
        source: u32 = ir.no_source,
    };

    /// An empty program.
    pub fn init(arena: Allocator) Builder {
        return .{ .arena = arena, .source = null, .remap = &.{} };
    }

    /// A program with the inputs, types and locations of `source` and no instruction yet. Input
    /// numbers and `TypeId`s stay the same.
    pub fn initFrom(arena: Allocator, source: *const Program) Allocator.Error!Builder {
        var b: Builder = try .initBare(arena, source);
        for (0..source.inputs.len) |i| _ = try b.keepInput(.at(i));
        return b;
    }

    /// As `initFrom` without the inputs, which `keepInput` and `addInput` then give.
    pub fn initBare(arena: Allocator, source: *const Program) Allocator.Error!Builder {
        var b: Builder = .init(arena);
        b.source = source;
        b.locations = source.locations;
        b.blocks = source.blocks;
        b.block_facts = source.block_facts;
        b.digest = source.digest;
        try b.types.appendSlice(arena, source.types);
        try b.type_map.ensureTotalCapacity(arena, @intCast(source.types.len));
        for (source.types, 0..) |t, i| b.type_map.putAssumeCapacity(t, .at(i));
        try b.codes.ensureTotalCapacity(arena, source.codes.len);
        try b.operands.ensureTotalCapacity(arena, source.operands.len);
        try b.attrs.ensureTotalCapacity(arena, source.attrs.len);
        try b.values.ensureTotalCapacity(arena, source.valueCount());
        b.remap = try arena.alloc(Value, source.valueCount());
        @memset(b.remap, .none);
        return b;
    }

    /// Input `i` of `source` becomes the next one here.
    pub fn keepInput(b: *Builder, i: ir.InputId) Allocator.Error!Value {
        const source = b.source.?;
        const v = source.inputValue(i);
        const kept = try b.addInput(source.typeId(v), source.inputs[i.index()]);
        b.remap[v.index()] = kept;
        return kept;
    }

    pub fn internType(b: *Builder, dtype: DType, dims: []const i64) Allocator.Error!TypeId {
        const entry = try b.type_map.getOrPut(b.arena, .{ .dtype = dtype, .dims = dims });
        if (!entry.found_existing) {
            const t: Type = .{ .dtype = dtype, .dims = try b.arena.dupe(i64, dims) };
            assert(t.isLegal());
            entry.key_ptr.* = t;
            entry.value_ptr.* = .at(b.types.items.len);
            try b.types.append(b.arena, t);
        }
        return entry.value_ptr.*;
    }

    pub fn typeId(b: *const Builder, v: Value) TypeId {
        return b.values.items(.type)[v.index()];
    }

    pub fn typeOf(b: *const Builder, v: Value) Type {
        return b.types.items[b.typeId(v).index()];
    }

    /// Inputs come before anything else.
    pub fn addInput(b: *Builder, t: TypeId, input: ir.Input) Allocator.Error!Value {
        assert(b.values.len == b.inputs.items.len);
        try b.inputs.append(b.arena, input);
        return b.addValue(t, not_literal);
    }

    /// A value known now; `bytes` are dense row-major, 8-byte aligned and outlive the program.
    pub fn addLiteral(b: *Builder, t: TypeId, bytes: []align(8) const u8) Allocator.Error!Value {
        assert(bytes.len == b.types.items[t.index()].byteCount());
        return b.addLiteralUnaligned(t, bytes);
    }

    /// As `addLiteral`, of bytes that a program holds already.
    pub fn addLiteralUnaligned(b: *Builder, t: TypeId, bytes: []const u8) Allocator.Error!Value {
        const literal: u32 = @intCast(b.literals.items.len);
        try b.literals.append(b.arena, bytes);
        return b.addValue(t, literal);
    }

    fn addValue(b: *Builder, t: TypeId, literal: u32) Allocator.Error!Value {
        assert(t.index() < b.types.items.len);
        const v: Value = @fromBackingInt(@intCast(@as(u32, @intCast(b.values.len))));
        assert(v != .none);
        try b.values.append(b.arena, .{ .type = t, .literal = literal });
        return v;
    }

    /// Appends an instruction; returns its first result, the others follow it.
    pub fn emit(b: *Builder, instruction: Instruction) Allocator.Error!Value {
        const results = instruction.result_types.len;
        const expected = instruction.code.resultCount(instruction.operands.len) orelse results;
        assert(results == expected);
        try b.codes.append(b.arena, instruction.code);
        try b.operand_start.append(b.arena, @intCast(b.operands.items.len));
        try b.operands.appendSlice(b.arena, instruction.operands);
        try b.attr_start.append(b.arena, @intCast(b.attrs.items.len));
        try b.attrs.appendSlice(b.arena, instruction.attrs);
        try b.result_counts.append(b.arena, @intCast(results));
        try b.sources.append(b.arena, instruction.source);
        const first: Value = @fromBackingInt(@intCast(@as(u32, @intCast(b.values.len))));
        for (instruction.operands) |v| assert(v.index() < first.index());
        for (instruction.result_types) |t| _ = try b.addValue(t, not_literal);
        return first;
    }

    /// The value k behind the first result of an instruction.
    pub fn resultOf(first: Value, k: usize) Value {
        return @fromBackingInt(@intCast(@as(u32, @intCast(first.index() + k))));
    }

    /// What a value of `source` has become. A literal is taken over when it is first asked for.
    pub fn mapped(b: *Builder, v: ir.ValueId) Allocator.Error!Value {
        const source = b.source.?;
        if (b.remap[v.index()] == .none) {
            const n = v.index() - source.inputs.len;
            assert(n < source.literals.len); // operands are mapped before their users are copied
            b.remap[v.index()] = try b.addLiteralUnaligned(source.typeId(v), source.literals[n]);
        }
        return b.remap[v.index()];
    }

    /// From now on the old value `v` is `replacement`, which has its type.
    pub fn replace(b: *Builder, v: ir.ValueId, replacement: Value) void {
        assert(b.typeId(replacement) == b.source.?.typeId(v));
        b.remap[v.index()] = replacement;
    }

    /// Takes instruction `i` of `source` over, operands remapped; returns its first result.
    pub fn copy(b: *Builder, i: ir.InstructionId) Allocator.Error!Value {
        const source = b.source.?;
        const code = source.code(i);
        try b.codes.append(b.arena, code);
        try b.operand_start.append(b.arena, @intCast(b.operands.items.len));
        for (source.operandsOf(i)) |v| try b.operands.append(b.arena, try b.mapped(v));
        try b.attr_start.append(b.arena, @intCast(b.attrs.items.len));
        try b.attrs.appendSlice(b.arena, source.attrWords(i));
        const results = source.resultCount(i);
        try b.result_counts.append(b.arena, @intCast(results));
        try b.sources.append(b.arena, source.sources[i.index()]);
        const first: Value = @fromBackingInt(@intCast(@as(u32, @intCast(b.values.len))));
        for (0..results) |k| {
            const v = source.result(i, k);
            b.remap[v.index()] = try b.addValue(source.typeId(v), not_literal);
        }
        return first;
    }

    /// The outputs of `source`, remapped, with their aliases.
    pub fn mappedOutputs(b: *Builder) Allocator.Error![]Output {
        const source = b.source.?;
        const outputs = try b.arena.alloc(Output, source.outputs.len);
        for (outputs, source.outputs) |*to, from| {
            to.* = .{ .value = try b.mapped(from.value), .alias = from.alias };
        }
        return outputs;
    }

    /// The finished program. The builder must not be used afterwards.
    pub fn finish(b: *Builder, outputs: []const Output) Allocator.Error!Program {
        const arena = b.arena;
        const n = b.codes.items.len;
        try b.operand_start.append(arena, @intCast(b.operands.items.len));
        try b.attr_start.append(arena, @intCast(b.attrs.items.len));
        const used = try b.usedLiterals(outputs);
        const numbers = try arena.alloc(ir.ValueId, b.values.len);
        const unused = b.literals.items.len - used.count;
        const value_types = try arena.alloc(TypeId, b.values.len - unused);
        const value_literals = b.values.items(.literal);
        const first_result = b.inputs.items.len + used.count;
        var next_literal = b.inputs.items.len;
        var next_result = first_result;
        for (numbers, value_literals, b.values.items(.type), 0..) |*number, literal, t, v| {
            const next = if (v < b.inputs.items.len) v else if (literal == not_literal) take: {
                next_result += 1;
                break :take next_result - 1;
            } else if (used.flags[literal]) take: {
                next_literal += 1;
                break :take next_literal - 1;
            } else continue;
            number.* = .at(next);
            value_types[next] = t;
        }
        assert(next_literal == first_result);
        assert(next_result == value_types.len);

        const operands = try arena.alloc(ir.ValueId, b.operands.items.len);
        for (operands, b.operands.items) |*to, from| to.* = numbers[from.index()];
        const results = try resultTables(arena, b.result_counts.items, first_result, next_result);
        const final_outputs = try arena.alloc(ir.Output, outputs.len);
        for (final_outputs, outputs) |*to, from| {
            to.* = .{ .value = numbers[from.value.index()], .alias = from.alias };
        }
        assert(b.sources.items.len == n);
        return .{
            .types = b.types.items,
            .value_types = value_types,
            .inputs = b.inputs.items,
            .literals = used.bytes,
            .codes = b.codes.items,
            .operand_start = b.operand_start.items,
            .operands = operands,
            .attr_start = b.attr_start.items,
            .attrs = b.attrs.items,
            .result_start = results.start,
            .result_instruction = results.instruction,
            .outputs = final_outputs,
            .sources = b.sources.items,
            .locations = b.locations,
            .blocks = b.blocks,
            .block_facts = b.block_facts,
            .digest = b.digest,
        };
    }

    const UsedLiterals = struct { flags: []const bool, bytes: []const []const u8, count: usize };

    fn usedLiterals(b: *const Builder, outputs: []const Output) Allocator.Error!UsedLiterals {
        const flags = try b.arena.alloc(bool, b.literals.items.len);
        @memset(flags, false);
        const literals = b.values.items(.literal);
        for (b.operands.items) |v| {
            if (literals[v.index()] != not_literal) flags[literals[v.index()]] = true;
        }
        for (outputs) |output| {
            const literal = literals[output.value.index()];
            if (literal != not_literal) flags[literal] = true;
        }
        var bytes: std.ArrayList([]const u8) = .empty;
        for (flags, b.literals.items) |used, literal| {
            if (used) try bytes.append(b.arena, literal);
        }
        return .{ .flags = flags, .bytes = bytes.items, .count = bytes.items.len };
    }
};

pub const ResultTables = struct { start: []u32, instruction: []ir.InstructionId };

/// `Program.result_start` and `Program.result_instruction` from the result counts of the
/// instructions.
pub fn resultTables(
    arena: Allocator,
    counts: []const u32,
    first_result: usize,
    value_count: usize,
) Allocator.Error!ResultTables {
    const start = try arena.alloc(u32, counts.len + 1);
    const instruction = try arena.alloc(ir.InstructionId, value_count - first_result);
    var next = first_result;
    for (counts, 0..) |count, i| {
        start[i] = @intCast(next);
        @memset(instruction[next - first_result ..][0..count], .at(i));
        next += count;
    }
    start[counts.len] = @intCast(next);
    assert(next == value_count);
    return .{ .start = start, .instruction = instruction };
}

/// The attribute words of an instruction from a struct with one field per attribute of the schema:
/// `attrWords(arena, .reduce_sum, .{ .axes = &.{0} })`.
pub fn attrWords(
    arena: Allocator,
    comptime code: op.Code,
    attributes: anytype,
) Allocator.Error![]i64 {
    const schema = comptime code.info().attributes;
    comptime assert(@typeInfo(@TypeOf(attributes)).@"struct".field_names.len == schema.len);
    var words: std.ArrayList(i64) = .empty;
    inline for (schema) |attribute| {
        const value: op.KindType(attribute.kind) = @field(attributes, attribute.name);
        switch (attribute.kind) {
            .int => try words.append(arena, value),
            .bool => try words.append(arena, @intFromBool(value)),
            .dtype => try words.append(arena, @backingInt(value)),
            .float => try words.append(arena, @bitCast(value)),
            .ints => {
                try words.append(arena, @intCast(value.len));
                try words.appendSlice(arena, value);
            },
        }
    }
    return words.items;
}

test "a program is rewritten with literals in place" {
    var arena_state: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();

    var first: Builder = .init(arena);
    const vector = try first.internType(.f32, &.{4});
    const x = try first.addInput(vector, .{});
    const bytes: [16]u8 align(8) = @splat(0);
    const unused = try first.addLiteral(vector, &bytes);
    _ = unused;
    const y = try first.emit(.{ .code = .sin, .operands = &.{x}, .result_types = &.{vector} });
    const zero = try first.addLiteral(vector, &bytes);
    const z = try first.emit(.{
        .code = .add,
        .operands = &.{ y, zero },
        .result_types = &.{vector},
    });
    const scalar = try first.internType(.f32, &.{});
    const s = try first.emit(.{
        .code = .reduce_sum,
        .operands = &.{z},
        .attrs = try attrWords(arena, .reduce_sum, .{ .axes = &.{0} }),
        .result_types = &.{scalar},
    });
    const p = try first.finish(&.{ .{ .value = s }, .{ .value = z } });

    try std.testing.expectEqual(@as(usize, 1), p.literals.len);
    try std.testing.expectEqual(@as(usize, 5), p.valueCount());
    try std.testing.expectEqual(@as(usize, 2), p.operand(.at(0), 0).index() + 2);
    try std.testing.expectEqualSlices(i64, &.{0}, p.attr(.at(2), "axes"));
    try std.testing.expectEqual(@as(usize, 0), p.typeOf(p.result(.at(2), 0)).rank());
    try std.testing.expectEqual(ir.InstructionId.at(1), p.definitionOf(.at(3)).result.instruction);

    // x + 0 -> x
    var second: Builder = try .initFrom(arena, &p);
    _ = try second.copy(.at(0));
    second.replace(p.result(.at(1), 0), try second.mapped(p.result(.at(0), 0)));
    _ = try second.copy(.at(2));
    const q = try second.finish(try second.mappedOutputs());
    try std.testing.expectEqual(@as(usize, 0), q.literals.len);
    try std.testing.expectEqual(@as(usize, 2), q.instructionCount());
    try std.testing.expectEqualSlices(op.Code, &.{ .sin, .reduce_sum }, q.codes);
    try std.testing.expectEqual(q.result(.at(0), 0), q.operand(.at(1), 0));
    try std.testing.expectEqual(q.result(.at(0), 0), q.outputs[1].value);
}
