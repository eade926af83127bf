//! Common subexpressions: of instructions with equal opcode, attributes and operands only the first
//! is kept. Every opcode is a pure function of its operands, random ones of their key, so equal
//! ones give equal values; what has an effect is left alone. A barrier is never merged: its results
//! are values of their own, and so is whatever is computed from them.
const std = @import("std");
const Allocator = std.mem.Allocator;
const ir = @import("../ir.zig");
const op = @import("../op.zig");
const Builder = ir.Builder;
const Program = ir.Program;

/// An instruction of the program being written; what it is lies in the builder's lists.
const Entry = struct {
    hash: u64,
    operand_start: u32,
    attr_start: u32,
    operand_count: u32,
    attr_count: u32,
    code: op.Code,
    result_type: ir.TypeId,
    first_result: Builder.Value,
};

const Context = struct {
    b: *const Builder,

    pub fn hash(_: Context, e: Entry) u64 {
        return e.hash;
    }

    pub fn eql(c: Context, x: Entry, y: Entry) bool {
        if (x.hash != y.hash or x.code != y.code or x.result_type != y.result_type) return false;
        if (x.operand_count != y.operand_count or x.attr_count != y.attr_count) return false;
        const operands = c.b.operands.items;
        const xs = operands[x.operand_start..][0..x.operand_count];
        const ys = operands[y.operand_start..][0..y.operand_count];
        if (!std.mem.eql(Builder.Value, xs, ys)) return false;
        const attrs = c.b.attrs.items;
        const xa = attrs[x.attr_start..][0..x.attr_count];
        return std.mem.eql(i64, xa, attrs[y.attr_start..][0..y.attr_count]);
    }
};

/// The program without repetitions. Linear in its size.
pub fn run(gpa: Allocator, program: *const Program) Allocator.Error!Program {
    var b: Builder = try .initFrom(gpa, program);
    var seen: std.HashMapUnmanaged(Entry, void, Context, 70) = .empty;
    try seen.ensureTotalCapacityContext(gpa, @intCast(program.instructionCount()), .{ .b = &b });
    for (0..program.instructionCount()) |index| {
        const i: ir.InstructionId = .at(index);
        const operand_start: u32 = @intCast(b.operands.items.len);
        const attr_start: u32 = @intCast(b.attrs.items.len);
        const first = try b.copy(i);
        if (program.code(i).traits().barrier or program.hasEffect(i)) continue;
        if (program.resultCount(i) == 0) continue;
        if (program.code(i).traits().commutative) sortPair(b.operands.items[operand_start..]);
        const entry = describe(&b, program, i, operand_start, attr_start, first);
        const found = seen.getOrPutAssumeCapacityContext(entry, .{ .b = &b });
        if (!found.found_existing) continue;
        removeLast(&b, program, i, operand_start, attr_start);
        for (0..program.resultCount(i)) |k| {
            const same: u32 = @intCast(found.key_ptr.first_result.index() + k);
            b.replace(program.result(i, k), @fromBackingInt(same));
        }
    }
    return b.finish(try b.mappedOutputs());
}

fn sortPair(pair: []Builder.Value) void {
    if (pair[0].index() > pair[1].index()) std.mem.swap(Builder.Value, &pair[0], &pair[1]);
}

fn describe(
    b: *const Builder,
    program: *const Program,
    i: ir.InstructionId,
    operand_start: u32,
    attr_start: u32,
    first: Builder.Value,
) Entry {
    const operands = b.operands.items[operand_start..];
    const attrs = b.attrs.items[attr_start..];
    var hasher = std.hash.Wyhash.init(@backingInt(program.code(i)));
    hasher.update(std.mem.sliceAsBytes(operands));
    hasher.update(std.mem.sliceAsBytes(attrs));
    return .{
        .hash = hasher.final(),
        .operand_start = operand_start,
        .attr_start = attr_start,
        .operand_count = @intCast(operands.len),
        .attr_count = @intCast(attrs.len),
        .code = program.code(i),
        .result_type = program.typeId(program.result(i, 0)),
        .first_result = first,
    };
}

/// Takes the instruction just copied back out of the builder.
fn removeLast(
    b: *Builder,
    program: *const Program,
    i: ir.InstructionId,
    operand_start: u32,
    attr_start: u32,
) void {
    b.operands.shrinkRetainingCapacity(operand_start);
    b.attrs.shrinkRetainingCapacity(attr_start);
    b.codes.items.len -= 1;
    b.operand_start.items.len -= 1;
    b.attr_start.items.len -= 1;
    b.result_counts.items.len -= 1;
    b.sources.items.len -= 1;
    b.values.len -= program.resultCount(i);
}

const testing = std.testing;
const words = @import("../ir_builder.zig").attrWords;

test "equal instructions merge, through commutation; barriers keep theirs apart" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    var b: Builder = .init(arena);
    const t = try b.internType(.f32, &.{4});
    const x = try b.addInput(t, .{});
    const y = try b.addInput(t, .{});
    const types = [_]ir.TypeId{t};
    const s = try b.emit(.{ .code = .add, .operands = &.{ x, y }, .result_types = &types });
    const r = try b.emit(.{ .code = .add, .operands = &.{ y, x }, .result_types = &types });
    const p = try b.emit(.{ .code = .multiply, .operands = &.{ s, r }, .result_types = &types });
    const g = try b.emit(.{ .code = .barrier, .operands = &.{x}, .result_types = &types });
    const h = try b.emit(.{ .code = .barrier, .operands = &.{x}, .result_types = &types });
    const e1 = try b.emit(.{ .code = .exp, .operands = &.{g}, .result_types = &types });
    const e2 = try b.emit(.{ .code = .exp, .operands = &.{h}, .result_types = &types });
    const program = try b.finish(&.{ .{ .value = p }, .{ .value = e1 }, .{ .value = e2 } });
    const merged = try run(arena, &program);
    try testing.expectEqualSlices(
        op.Code,
        &.{ .add, .multiply, .barrier, .barrier, .exp, .exp },
        merged.codes,
    );
    try testing.expectEqual(merged.operands[2], merged.operands[3]);
}
