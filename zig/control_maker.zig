//! Programs with blocks for the tests: a builder with the few words they need.
const std = @import("std");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const Allocator = std.mem.Allocator;
const Builder = ir.Builder;
const DType = @import("dtype.zig").DType;
const Program = ir.Program;
const attrWords = ir_builder.attrWords;

pub const Value = Builder.Value;

pub const Maker = struct {
    b: Builder,

    pub fn init(arena: Allocator) Maker {
        return .{ .b = .init(arena) };
    }

    pub fn input(m: *Maker, element: DType, dims: []const i64) !Value {
        return m.b.addInput(try m.b.internType(element, dims), .{});
    }

    pub fn literal(m: *Maker, comptime T: type, element: DType, value: T) !Value {
        const bytes = try m.b.arena.alignedAlloc(u8, .@"8", @sizeOf(T));
        @memcpy(bytes, std.mem.asBytes(&value));
        return m.b.addLiteral(try m.b.internType(element, &.{}), bytes);
    }

    /// An instruction whose result is like its operand `like`.
    pub fn plain(m: *Maker, code: op.Code, operands: []const Value, like: Value) !Value {
        const t = m.b.typeId(like);
        return m.b.emit(.{ .code = code, .operands = operands, .result_types = &.{t} });
    }

    pub fn compare(m: *Maker, code: op.Code, operands: []const Value) !Value {
        const t = try m.b.internType(.bool, &.{});
        return m.b.emit(.{ .code = code, .operands = operands, .result_types = &.{t} });
    }

    pub fn finish(m: *Maker, outputs: []const Value) !Program {
        const list = try m.b.arena.alloc(Builder.Output, outputs.len);
        for (list, outputs) |*to, value| to.* = .{ .value = value };
        return m.b.finish(list);
    }

    /// A scan of block 0.
    pub fn scan(m: *Maker, operands: []const Value, counts: Counts, results: []const Value) !Value {
        const types = try m.b.arena.alloc(ir.TypeId, results.len);
        for (types, results) |*t, like| t.* = m.b.typeId(like);
        return m.scanOf(operands, counts, types);
    }

    pub fn scanOf(
        m: *Maker,
        operands: []const Value,
        counts: Counts,
        types: []const ir.TypeId,
    ) !Value {
        return m.b.emit(.{
            .code = .scan,
            .operands = operands,
            .attrs = try attrWords(m.b.arena, .scan, .{
                .body = counts.body,
                .captures = counts.captures,
                .carries = counts.carries,
                .length = counts.length,
                .reverse = counts.reverse,
            }),
            .result_types = types,
        });
    }

    pub const Counts = struct {
        body: i64 = 0,
        captures: i64 = 0,
        carries: i64 = 1,
        length: i64,
        reverse: bool = false,
    };
};
