//! Instructions that run blocks, for the generator of programs: operands are values that exist, and
//! blocks for them are generated as programs are. Loops count, so that they end.
const std = @import("std");
const Allocator = std.mem.Allocator;
const generate = @import("wire_fuzz_generate.zig");
const ir = @import("ir.zig");
const op = @import("op.zig");
const shape = @import("shape.zig");

const Builder = ir.Builder;
const Generator = generate.Generator;
const Value = Builder.Value;

/// Blocks inside each other.
pub const depth_max = 3;
/// Instructions of a block at most, those of its blocks not counted.
const instruction_count_max = 5;

/// Operands and attribute words for `code`; the blocks are made first.
pub fn choose(g: *Generator, code: op.Code) Allocator.Error!void {
    switch (code) {
        .@"switch" => try chooseSwitch(g),
        .@"while" => try chooseWhile(g),
        .scan => try chooseScan(g),
        else => {
            std.debug.assert(code == .host_call);
            for (0..g.random.uintLessThan(usize, 4)) |_| try g.push(try g.anyValue(.any, 0));
            try g.word(g.small(0, 3));
        },
    }
}

/// Types of the operands from number `first` on, without the leading axis from `stacks` on.
fn inputTypes(g: *Generator, first: usize, stacks: usize) Allocator.Error![]ir.Type {
    const values = g.operands.items;
    const types = try g.arena.alloc(ir.Type, values.len - first);
    for (types, values[first..], first..) |*t, v, k| {
        t.* = g.b.typeOf(v);
        if (k >= stacks) t.dims = t.dims[1..];
    }
    return types;
}

fn pushAny(g: *Generator, count_max: usize) Allocator.Error!usize {
    const count = g.random.uintAtMost(usize, count_max);
    for (0..count) |_| try g.push(try g.anyValue(.any, 0));
    return count;
}

fn chooseSwitch(g: *Generator) Allocator.Error!void {
    try g.pushType(.i64, .{});
    _ = try pushAny(g, 3);
    const inputs = try inputTypes(g, 1, std.math.maxInt(usize));
    const count = 1 + g.random.uintLessThan(usize, 3);
    const numbers = try g.arena.alloc(i64, count);
    var outputs: []ir.Type = &.{};
    for (numbers, 0..) |*number, n| {
        var block = try begin(g, inputs);
        var values: std.ArrayList(Value) = .empty;
        if (n == 0) {
            outputs = try g.arena.alloc(ir.Type, g.random.uintLessThan(usize, 3));
            for (outputs) |*t| {
                try values.append(g.arena, try block.anyValue(.any, 0));
                t.* = block.b.typeOf(values.getLast());
            }
        } else for (outputs) |t| try values.append(g.arena, try valueOf(&block, t));
        number.* = try finish(g, &block, values.items);
    }
    try g.ints(numbers);
}

fn chooseWhile(g: *Generator) Allocator.Error!void {
    const captures = try pushAny(g, 2);
    try g.push(try integer(g, g.small(-2, 3)));
    _ = try pushAny(g, 2);
    const inputs = try inputTypes(g, 0, std.math.maxInt(usize));
    var condition = try begin(g, inputs);
    const limit = try integer(&condition, g.small(-1, 4));
    const truth = try condition.b.internType(.bool, &.{});
    const goes_on = try condition.b.emit(.{
        .code = .less,
        .operands = &.{ condition.inputs.items[captures], limit },
        .result_types = &.{truth},
    });
    const condition_number = try finish(g, &condition, &.{goes_on});
    var body = try begin(g, inputs);
    const counter = body.inputs.items[captures];
    const one = try integer(&body, 1);
    const next = try body.b.emit(.{
        .code = .add,
        .operands = &.{ counter, one },
        .result_types = &.{body.b.typeId(counter)},
    });
    var values: std.ArrayList(Value) = .empty;
    try values.append(g.arena, next);
    for (inputs[captures + 1 ..]) |t| try values.append(g.arena, try valueOf(&body, t));
    try g.word(condition_number);
    try g.word(try finish(g, &body, values.items));
    try g.word(@intCast(captures));
}

fn chooseScan(g: *Generator) Allocator.Error!void {
    const length = g.small(0, 4);
    const captures = try pushAny(g, 2);
    const carries = try pushAny(g, 2);
    const stacks = g.operands.items.len;
    for (0..g.random.uintLessThan(usize, 3)) |_| {
        var dims: shape.Dims = .from(&.{length});
        for (g.anyDims(2).slice()) |extent| dims.append(extent);
        try g.pushType(g.anyDType(.any), dims);
    }
    const inputs = try inputTypes(g, 0, stacks);
    var body = try begin(g, inputs);
    var values: std.ArrayList(Value) = .empty;
    for (inputs[captures..][0..carries]) |t| try values.append(g.arena, try valueOf(&body, t));
    for (0..g.random.uintLessThan(usize, 3)) |_| {
        try values.append(g.arena, try body.anyValue(.any, 0));
    }
    try g.word(try finish(g, &body, values.items));
    try g.word(@intCast(captures));
    try g.word(@intCast(carries));
    try g.word(length);
    try g.word(g.small(0, 1));
}

/// A block with inputs of these types and some instructions.
fn begin(g: *Generator, inputs: []const ir.Type) Allocator.Error!Generator {
    var block: Generator = .{
        .arena = g.arena,
        .random = g.random,
        .b = .init(g.arena),
        .blocks = g.blocks,
        .depth = g.depth + 1,
    };
    for (inputs) |t| {
        const v = try block.b.addInput(try block.b.internType(t.dtype, t.dims), .{});
        try block.inputs.append(g.arena, v);
        try block.values.append(g.arena, v);
    }
    if (inputs.len == 0) _ = try block.values.append(g.arena, try integer(&block, 1));
    for (0..g.random.uintAtMost(usize, instruction_count_max)) |_| try block.addInstruction();
    return block;
}

/// Adds the block to the program; its number.
fn finish(g: *Generator, block: *Generator, outputs: []const Value) Allocator.Error!i64 {
    const list = try g.arena.alloc(Builder.Output, outputs.len);
    for (list, outputs) |*to, v| to.* = .{ .value = v };
    try g.blocks.append(g.arena, try block.b.finish(list));
    return @intCast(g.blocks.items.len - 1);
}

/// One of the values of this type, or a new one.
fn valueOf(g: *Generator, t: ir.Type) Allocator.Error!Value {
    const before = g.operands.items.len;
    try g.pushType(t.dtype, .from(t.dims));
    defer g.operands.shrinkRetainingCapacity(before);
    return g.operands.getLast();
}

fn integer(g: *Generator, value: i64) Allocator.Error!Value {
    const bytes = try g.arena.alignedAlloc(u8, .@"8", 8);
    std.mem.writeInt(i64, bytes[0..8], value, .little);
    return g.b.addLiteral(try g.b.internType(.i64, &.{}), bytes);
}
