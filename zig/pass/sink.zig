//! Views into blocks: a block reads operands where they are, but they have to be dense. Where an
//! operand is a view that would have to be copied for that, the block gets what it is a view of and
//! makes the view itself, at no cost. For the branches of a switch, which may not even run, any
//! view is worth it; for a loop, which pays for the copy once, only one that repeats elements.
const std = @import("std");
const Allocator = std.mem.Allocator;
const ir = @import("../ir.zig");
const modules = @import("../compile_blocks.zig");
const Builder = ir.Builder;
const InstructionId = ir.InstructionId;
const Module = modules.Module;
const Program = ir.Program;
const ValueId = ir.ValueId;

/// Views of views that are followed.
const chain_max = 8;

/// Outer programs first, so that a view sinks as deep as it is used. Linear.
pub fn run(gpa: Allocator, module: *Module) Allocator.Error!void {
    const sites = try module.findSites(gpa);
    var n = module.programs.len;
    while (n > 0) {
        n -= 1;
        var sunk: Sunk = .{ .gpa = gpa, .program = &module.programs[n] };
        for (0..sunk.program.instructionCount()) |i| try sunk.find(sites, .at(i));
        if (sunk.views.items.len == 0) continue;
        try sunk.rewriteBlocks(module);
        module.programs[n] = try sunk.rewrite();
    }
}

/// An operand of an instruction that is a view.
const View = struct {
    instruction: InstructionId,
    operand: usize,
    /// Which input of the blocks it is.
    input: usize,
    base: ValueId,
    /// From the base to the operand.
    chain: []const InstructionId,
};

const Sunk = struct {
    gpa: Allocator,
    program: *const Program,
    /// In the order of the instructions.
    views: std.ArrayList(View) = .empty,

    fn find(s: *Sunk, sites: []const ?modules.Site, i: InstructionId) Allocator.Error!void {
        const program = s.program;
        var numbers = program.blockNumbers(i);
        const first = numbers.next() orelse return;
        if (sites[@intCast(first)] == null) return;
        const is_switch = program.code(i) == .@"switch";
        const begin: usize = @intFromBool(is_switch);
        const end: usize = if (is_switch)
            program.operandsOf(i).len
        else
            @intCast(program.attr(i, "captures"));
        for (begin..end) |k| {
            const v = program.operand(i, k);
            var chain: [chain_max]InstructionId = undefined;
            var length: usize = 0;
            var base = v;
            while (length < chain_max) : (length += 1) {
                chain[length] = viewOf(program, base) orelse break;
                base = program.operand(chain[length], 0);
            }
            if (length == 0) continue;
            const repeats = program.typeOf(v).byteCount() > program.typeOf(base).byteCount();
            if (!is_switch and !repeats) continue;
            std.mem.reverse(InstructionId, chain[0..length]);
            try s.views.append(s.gpa, .{
                .instruction = i,
                .operand = k,
                .input = k - begin,
                .base = base,
                .chain = try s.gpa.dupe(InstructionId, chain[0..length]),
            });
        }
    }

    /// The instruction that makes `v` a view of its operand.
    fn viewOf(program: *const Program, v: ValueId) ?InstructionId {
        return switch (program.definitionOf(v)) {
            .result => |result| if (program.code(result.instruction).traits().view)
                result.instruction
            else
                null,
            else => null,
        };
    }

    fn rewriteBlocks(s: *Sunk, module: *Module) Allocator.Error!void {
        var start: usize = 0;
        while (start < s.views.items.len) {
            const i = s.views.items[start].instruction;
            var end = start;
            while (end < s.views.items.len and s.views.items[end].instruction == i) end += 1;
            var numbers = s.program.blockNumbers(i);
            while (numbers.next()) |k| {
                const block = &module.programs[@intCast(k)];
                block.* = try s.withViews(block, s.views.items[start..end]);
            }
            start = end;
        }
    }

    fn withViews(s: *Sunk, block: *const Program, views: []const View) Allocator.Error!Program {
        var b: Builder = try .initBare(s.gpa, block);
        const bases = try s.gpa.alloc(Builder.Value, views.len);
        var next: usize = 0;
        for (0..block.inputs.len) |j| {
            if (next < views.len and views[next].input == j) {
                const t = s.program.typeOf(views[next].base);
                bases[next] = try b.addInput(try b.internType(t.dtype, t.dims), .{});
                next += 1;
            } else _ = try b.keepInput(.at(j));
        }
        for (views, bases) |view, base| {
            var made = base;
            for (view.chain) |i| {
                const t = s.program.typeOf(s.program.result(i, 0));
                made = try b.emit(.{
                    .code = s.program.code(i),
                    .operands = &.{made},
                    .attrs = s.program.attrWords(i),
                    .result_types = &.{try b.internType(t.dtype, t.dims)},
                    .source = s.program.sources[i.index()],
                });
            }
            b.replace(block.inputValue(.at(view.input)), made);
        }
        for (0..block.instructionCount()) |i| _ = try b.copy(.at(i));
        return b.finish(try b.mappedOutputs());
    }

    /// The program with the bases as operands; views that nobody uses any more are dead code.
    fn rewrite(s: *Sunk) Allocator.Error!Program {
        var b: Builder = try .initFrom(s.gpa, s.program);
        var next: usize = 0;
        for (0..s.program.instructionCount()) |index| {
            const i: InstructionId = .at(index);
            const start = b.operands.items.len;
            _ = try b.copy(i);
            for (s.views.items[next..]) |view| {
                if (view.instruction != i) break;
                next += 1;
                b.operands.items[start + view.operand] = try b.mapped(view.base);
            }
        }
        return b.finish(try b.mappedOutputs());
    }
};
