//! Loop-invariant code: what a body computes from captures alone moves in front of the loop, and
//! out of the loops around it. Only what cannot fail and has no effect moves, since the loop may
//! run no step; nothing moves out of the branches of a switch, which mostly do not run.
//!
//! Views and counters move only with something that is worth it: where they are made they cost
//! nothing. Elementwise work moves if its result is not larger than what it reads.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const ir = @import("../ir.zig");
const modules = @import("../compile_blocks.zig");
const Builder = ir.Builder;
const InstructionId = ir.InstructionId;
const Module = modules.Module;
const Program = ir.Program;
const ValueId = ir.ValueId;

/// Captures that one block may get at most: an instruction has room for 65,535 operands.
const new_captures_max = 1024;

/// Inner loops first, so that what leaves them can leave the loops around them too.
pub fn run(gpa: Allocator, module: *Module) Allocator.Error!void {
    // Which blocks have one user: that stays so when the user moves.
    const sites = try module.findSites(gpa);
    for (module.programs, 0..) |*program, n| {
        var moved: Moved = .{ .gpa = gpa, .module = module };
        try moved.find(sites, n);
        if (moved.plans.items.len == 0) continue;
        program.* = try moved.rewrite(n);
    }
}

/// What leaves one block.
const Plan = struct {
    /// The loop, and which of its blocks this is.
    loop: InstructionId,
    block: usize,
    /// By instruction of the block: it is computed in front of the loop, it stays in the block.
    leaves: []const bool,
    stays: []const bool,
    /// Values that the rest of the block reads.
    captures: []const ValueId,
};

const Moved = struct {
    gpa: Allocator,
    module: *Module,
    plans: std.ArrayList(Plan) = .empty,

    fn find(m: *Moved, sites: []const ?modules.Site, n: usize) Allocator.Error!void {
        const program = &m.module.programs[n];
        for (0..program.instructionCount()) |index| {
            const i: InstructionId = .at(index);
            const code = program.code(i);
            if (code != .@"while" and code != .scan) continue;
            var numbers = program.blockNumbers(i);
            while (numbers.next()) |k| {
                const block: usize = @intCast(k);
                if (sites[block] == null) break;
                try m.findIn(i, block, @intCast(program.attr(i, "captures")));
            }
        }
    }

    fn findIn(
        m: *Moved,
        loop: InstructionId,
        block: usize,
        captures: usize,
    ) Allocator.Error!void {
        const program = &m.module.programs[block];
        const count = program.instructionCount();
        const fixed = try m.gpa.alloc(bool, program.valueCount());
        for (fixed, 0..) |*f, v| {
            f.* = v < captures or (v >= program.inputs.len and v < program.firstResult());
        }
        const can_leave = try m.gpa.alloc(bool, count);
        const leaves = try m.gpa.alloc(bool, count);
        @memset(leaves, false);
        var any = false;
        for (can_leave, leaves, 0..) |*can, *leave, index| {
            const i: InstructionId = .at(index);
            can.* = isMovable(program, i) and areFixed(program, i, fixed);
            if (!can.*) continue;
            for (0..program.resultCount(i)) |k| fixed[program.result(i, k).index()] = true;
            leave.* = isWorthIt(program, i);
            any = any or leave.*;
        }
        if (!any) return;
        addOperands(program, can_leave, leaves);
        try m.addPlan(loop, block, leaves);
    }

    /// Finds what stays and what it reads from outside.
    fn addPlan(
        m: *Moved,
        loop: InstructionId,
        block: usize,
        leaves: []const bool,
    ) Allocator.Error!void {
        const program = &m.module.programs[block];
        const is_read = try m.gpa.alloc(bool, program.valueCount());
        @memset(is_read, false);
        for (program.outputs) |output| is_read[output.value.index()] = true;
        const stays = try m.gpa.alloc(bool, leaves.len);
        var captures: std.ArrayList(ValueId) = .empty;
        var index = leaves.len;
        while (index > 0) {
            index -= 1;
            const i: InstructionId = .at(index);
            var read = false;
            for (0..program.resultCount(i)) |k| {
                read = read or is_read[program.result(i, k).index()];
            }
            // What costs nothing is made on both sides.
            stays[index] = !leaves[index] or (read and isFree(program, i));
            if (stays[index]) {
                for (program.operandsOf(i)) |v| is_read[v.index()] = true;
            } else for (0..program.resultCount(i)) |k| {
                const v = program.result(i, k);
                if (is_read[v.index()]) try captures.append(m.gpa, v);
            }
        }
        if (captures.items.len > new_captures_max) return;
        std.mem.reverse(ValueId, captures.items);
        try m.plans.append(m.gpa, .{
            .loop = loop,
            .block = block,
            .leaves = leaves,
            .stays = stays,
            .captures = captures.items,
        });
    }

    /// Rewrites program `n`, whose loops the plans are about, and their blocks.
    fn rewrite(m: *Moved, n: usize) Allocator.Error!Program {
        const program = &m.module.programs[n];
        var b: Builder = try .initFrom(m.gpa, program);
        var next: usize = 0;
        for (0..program.instructionCount()) |index| {
            const i: InstructionId = .at(index);
            const start = next;
            while (next < m.plans.items.len and m.plans.items[next].loop == i) next += 1;
            if (start == next) {
                _ = try b.copy(i);
            } else try m.rewriteLoop(&b, program, m.plans.items[start..next]);
        }
        assert(next == m.plans.items.len);
        return b.finish(try b.mappedOutputs());
    }

    fn rewriteLoop(
        m: *Moved,
        b: *Builder,
        program: *const Program,
        plans: []const Plan,
    ) Allocator.Error!void {
        const i = plans[0].loop;
        const old: usize = @intCast(program.attr(i, "captures"));
        var operands: std.ArrayList(Builder.Value) = .empty;
        for (program.operandsOf(i)[0..old]) |v| try operands.append(m.gpa, try b.mapped(v));
        var types: std.ArrayList(ir.Type) = .empty;
        for (plans) |plan| {
            const inner = &m.module.programs[plan.block];
            const made = try emitLeaving(m.gpa, b, inner, plan, operands.items[0..old]);
            for (plan.captures) |v| {
                try operands.append(m.gpa, made[v.index()]);
                try types.append(m.gpa, inner.typeOf(v));
            }
        }
        for (program.operandsOf(i)[old..]) |v| try operands.append(m.gpa, try b.mapped(v));
        var numbers = program.blockNumbers(i);
        while (numbers.next()) |k| {
            const inner = &m.module.programs[@intCast(k)];
            inner.* = try withCaptures(m.gpa, inner, old, types.items, plans, @intCast(k));
        }
        const words = try m.gpa.dupe(i64, program.attrWords(i));
        const position: usize = if (program.code(i) == .scan) 1 else 2;
        words[position] = @intCast(old + types.items.len);
        const results = try m.gpa.alloc(ir.TypeId, program.resultCount(i));
        for (results, 0..) |*t, k| t.* = program.typeId(program.result(i, k));
        const first = try b.emit(.{
            .code = program.code(i),
            .operands = operands.items,
            .attrs = words,
            .result_types = results,
            .source = program.sources[i.index()],
        });
        for (0..results.len) |k| b.replace(program.result(i, k), Builder.resultOf(first, k));
    }
};

/// Cannot fail, has no effect, and gives the same wherever it stands.
fn isMovable(program: *const Program, i: InstructionId) bool {
    return !program.code(i).traits().barrier and !program.mayFail(i) and !program.hasEffect(i) and
        program.resultCount(i) > 0;
}

fn areFixed(program: *const Program, i: InstructionId, fixed: []const bool) bool {
    for (program.operandsOf(i)) |v| if (!fixed[v.index()]) return false;
    return true;
}

fn isFree(program: *const Program, i: InstructionId) bool {
    return program.code(i).traits().view or program.code(i) == .iota;
}

fn isWorthIt(program: *const Program, i: InstructionId) bool {
    if (isFree(program, i)) return false;
    if (!program.code(i).traits().elementwise) return true;
    var bytes_read: u64 = 0;
    for (program.operandsOf(i)) |v| bytes_read += program.typeOf(v).byteCount();
    return program.typeOf(program.result(i, 0)).byteCount() <= bytes_read;
}

/// What leaves takes along what it is computed from.
fn addOperands(program: *const Program, can_leave: []const bool, leaves: []bool) void {
    const first = program.firstResult();
    var index = leaves.len;
    while (index > 0) {
        index -= 1;
        if (!leaves[index]) continue;
        for (program.operandsOf(.at(index))) |v| {
            if (v.index() < first) continue;
            const maker = program.result_instruction[v.index() - first].index();
            assert(can_leave[maker]);
            leaves[maker] = true;
        }
    }
}

/// Emits what leaves a block in front of its loop; by value of the block: what it is there.
fn emitLeaving(
    gpa: Allocator,
    b: *Builder,
    inner: *const Program,
    plan: Plan,
    captures: []const Builder.Value,
) Allocator.Error![]const Builder.Value {
    const made = try gpa.alloc(Builder.Value, inner.valueCount());
    @memset(made, .none);
    @memcpy(made[0..captures.len], captures);
    for (plan.leaves, 0..) |leave, index| {
        if (!leave) continue;
        const i: InstructionId = .at(index);
        const operands = try gpa.alloc(Builder.Value, inner.operandsOf(i).len);
        for (operands, inner.operandsOf(i)) |*to, v| {
            if (made[v.index()] == .none) {
                const literal = inner.definitionOf(v).literal;
                const t = try typeIn(b, inner.typeOf(v));
                const bytes = inner.literals[literal.index()];
                made[v.index()] = try b.addLiteralUnaligned(t, bytes);
            }
            to.* = made[v.index()];
        }
        const types = try gpa.alloc(ir.TypeId, inner.resultCount(i));
        for (types, 0..) |*t, k| t.* = try typeIn(b, inner.typeOf(inner.result(i, k)));
        const first = try b.emit(.{
            .code = inner.code(i),
            .operands = operands,
            .attrs = inner.attrWords(i),
            .result_types = types,
            .source = inner.sources[i.index()],
        });
        for (0..types.len) |k| made[inner.result(i, k).index()] = Builder.resultOf(first, k);
    }
    return made;
}

fn typeIn(b: *Builder, t: ir.Type) Allocator.Error!ir.TypeId {
    return b.internType(t.dtype, t.dims);
}

/// The block `number` with new captures behind the `old` ones, of which those of its own plan stand
/// for what has left.
fn withCaptures(
    gpa: Allocator,
    inner: *const Program,
    old: usize,
    types: []const ir.Type,
    plans: []const Plan,
    number: usize,
) Allocator.Error!Program {
    var b: Builder = try .initBare(gpa, inner);
    for (0..old) |j| _ = try b.keepInput(.at(j));
    const new = try gpa.alloc(Builder.Value, types.len);
    for (new, types) |*to, t| to.* = try b.addInput(try typeIn(&b, t), .{});
    for (old..inner.inputs.len) |j| _ = try b.keepInput(.at(j));
    var start: usize = 0;
    const own: ?Plan = for (plans) |plan| {
        if (plan.block == number) break plan;
        start += plan.captures.len;
    } else null;
    if (own) |plan| for (plan.captures, new[start..][0..plan.captures.len]) |v, capture| {
        b.replace(v, capture);
    };
    for (0..inner.instructionCount()) |index| {
        if (own == null or own.?.stays[index]) _ = try b.copy(.at(index));
    }
    return b.finish(try b.mappedOutputs());
}
