//! Canonical form: instructions that give back an operand disappear. Only rewrites that keep every
//! bit: `x * 1` is one, `x + 0.0` is not (it turns -0 into 0). Chains of views stay as they are:
//! they cost nothing once lowered.
const std = @import("std");
const Allocator = std.mem.Allocator;
const ir = @import("../ir.zig");
const op = @import("../op.zig");
const DType = @import("../dtype.zig").DType;
const Builder = ir.Builder;
const Program = ir.Program;
const ValueId = ir.ValueId;
const InstructionId = ir.InstructionId;

/// Linear in the size of the program. Instructions whose results lose their last use stay, for the
/// dead code pass.
pub fn run(gpa: Allocator, program: *const Program) Allocator.Error!Program {
    var b: Builder = try .initFrom(gpa, program);
    for (0..program.instructionCount()) |index| {
        const i: InstructionId = .at(index);
        if (identityOf(program, i)) |same| {
            b.replace(program.result(i, 0), try b.mapped(same));
        } else {
            _ = try b.copy(i);
        }
    }
    return b.finish(try b.mappedOutputs());
}

/// The operand that instruction `i` gives back unchanged, if it does.
fn identityOf(p: *const Program, i: InstructionId) ?ValueId {
    const code = p.code(i);
    if (code.traits().barrier or p.resultCount(i) != 1) return null;
    const same: ?ValueId = switch (code) {
        .reshape, .broadcast_to, .cast, .bitcast => p.operand(i, 0),
        .transpose => if (isIdentity(p.attr(i, "axes"))) p.operand(i, 0) else null,
        .slice => if (allEqual(p.attr(i, "steps"), 1)) p.operand(i, 0) else null,
        .pad => if (padsNothing(p, i)) p.operand(i, 0) else null,
        .concatenate => if (p.operandsOf(i).len == 1) p.operand(i, 0) else null,
        .reduce_sum, .reduce_prod, .reduce_max, .reduce_min => if (p.attr(i, "axes").len == 0)
            p.operand(i, 0)
        else
            null,
        .integer_power => if (p.attr(i, "exponent") == 1) p.operand(i, 0) else null,
        .negative => twice(p, i, .negative),
        .bitwise_not => twice(p, i, .bitwise_not),
        .logical_not => twice(p, i, .logical_not),
        .multiply => neutral(p, i, 1, true),
        .divide => neutral(p, i, 1, false),
        .subtract => neutral(p, i, 0, false),
        .add => if (p.typeOf(p.result(i, 0)).dtype.isInteger()) neutral(p, i, 0, true) else null,
        else => null,
    };
    const found = same orelse return null;
    return if (p.typeId(found) == p.typeId(p.result(i, 0))) found else null;
}

fn isIdentity(axes: []const i64) bool {
    for (axes, 0..) |axis, i| if (axis != i) return false;
    return true;
}

fn allEqual(words: []const i64, value: i64) bool {
    for (words) |word| if (word != value) return false;
    return true;
}

fn padsNothing(p: *const Program, i: InstructionId) bool {
    return allEqual(p.attr(i, "low"), 0) and allEqual(p.attr(i, "high"), 0) and
        allEqual(p.attr(i, "interior"), 0);
}

/// `f(f(x))` of an involution.
fn twice(p: *const Program, i: InstructionId, code: op.Code) ?ValueId {
    switch (p.definitionOf(p.operand(i, 0))) {
        .result => |result| if (p.code(result.instruction) == code) {
            return p.operand(result.instruction, 0);
        },
        else => {},
    }
    return null;
}

/// The other operand if one is a known scalar `value`: the right one, or either.
fn neutral(p: *const Program, i: InstructionId, value: f64, either: bool) ?ValueId {
    if (isScalar(p, p.operand(i, 1), value)) return p.operand(i, 0);
    if (either and isScalar(p, p.operand(i, 0), value)) return p.operand(i, 1);
    return null;
}

/// A literal of one element equal to `value`; for 0 the positive one.
fn isScalar(p: *const Program, v: ValueId, value: f64) bool {
    const literal = switch (p.definitionOf(v)) {
        .literal => |l| p.literals[l.index()],
        else => return false,
    };
    const t = p.typeOf(v);
    if (t.elementCount() != 1) return false;
    switch (t.dtype) {
        .f32 => return read(f32, literal) == @as(u32, @bitCast(@as(f32, @floatCast(value)))),
        .f64 => return read(f64, literal) == @as(u64, @bitCast(value)),
        .f16 => return read(f16, literal) == @as(u16, @bitCast(@as(f16, @floatCast(value)))),
        .bf16 => return read(u16, literal) == @as(u32, @bitCast(@as(f32, @floatCast(value)))) >> 16,
        .bool => return false,
        else => {
            const expected: u64 = @trunc(value);
            var bytes: [8]u8 = @splat(0);
            @memcpy(bytes[0..literal.len], literal);
            return std.mem.readInt(u64, &bytes, .little) == expected;
        },
    }
}

/// The bits of one element.
fn read(comptime T: type, bytes: []const u8) @Int(.unsigned, @bitSizeOf(T)) {
    return std.mem.readInt(@Int(.unsigned, @bitSizeOf(T)), bytes[0..@sizeOf(T)], .little);
}

const testing = std.testing;

test "identities vanish and minus zero survives" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    var b: Builder = .init(arena);
    const t = try b.internType(.f32, &.{4});
    const s = try b.internType(.f32, &.{});
    const types = [_]ir.TypeId{t};
    const x = try b.addInput(t, .{});
    const one align(8) = @as([4]u8, @bitCast(@as(f32, 1)));
    const zero align(8) = @as([4]u8, @bitCast(@as(f32, 0)));
    const u = try b.addLiteral(s, &one);
    const z = try b.addLiteral(s, &zero);
    const m = try b.emit(.{ .code = .multiply, .operands = &.{ u, x }, .result_types = &types });
    const d = try b.emit(.{ .code = .subtract, .operands = &.{ m, z }, .result_types = &types });
    const a = try b.emit(.{ .code = .add, .operands = &.{ d, z }, .result_types = &types });
    const n = try b.emit(.{ .code = .negative, .operands = &.{a}, .result_types = &types });
    const q = try b.emit(.{ .code = .negative, .operands = &.{n}, .result_types = &types });
    const program = try b.finish(&.{ .{ .value = q }, .{ .value = m } });
    const rewritten = try run(arena, &program);
    try testing.expectEqualSlices(op.Code, &.{ .add, .negative }, rewritten.codes);
    try testing.expectEqual(rewritten.result(.at(0), 0), rewritten.outputs[0].value);
    try testing.expectEqual(rewritten.inputValue(.at(0)), rewritten.outputs[1].value);
}
