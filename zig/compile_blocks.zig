//! What compiling knows about the programs of one file as a whole: the root and its blocks, what
//! running a block can do, and where an instruction came from before the passes moved it.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("abi_types.zig");
const ir = @import("ir.zig");
const Program = ir.Program;

/// An instruction of the file.
pub const Origin = struct {
    /// 0: the root; k + 1: block k.
    block: u32,
    instruction: u32,
    /// Index in the table of locations, or `abi.none_index`.
    source: u32,
};

/// An instruction of a program of the module.
pub const Site = struct { program: usize, instruction: ir.InstructionId };

pub const Module = struct {
    original: *const Program,
    /// The blocks in order, then the root. While passes work on them, `sources` holds the number
    /// of the instruction in the file, counted through all programs, plus 1.
    programs: []Program,
    /// By program: the number of its first instruction in the file; one entry more.
    starts: []u32,
    instruction_count: u32,

    /// Takes a program that is verified. `scratch` owns what is made.
    pub fn init(scratch: Allocator, original: *const Program) Allocator.Error!Module {
        const count = original.blocks.len + 1;
        const programs = try scratch.alloc(Program, count);
        const starts = try scratch.alloc(u32, count + 1);
        const facts = try scratch.alloc(ir.BlockFacts, original.blocks.len);
        var next: u32 = 0;
        for (programs, 0..) |*program, n| {
            program.* = if (n < facts.len) original.blocks[n] else original.*;
            program.blocks = &.{};
            program.block_facts = facts;
            const numbers = try scratch.alloc(u32, program.instructionCount());
            starts[n] = next;
            for (numbers) |*number| {
                next += 1;
                number.* = next;
            }
            program.sources = numbers;
            if (n < facts.len) facts[n] = factsOf(program);
        }
        starts[count] = next;
        return .{
            .original = original,
            .programs = programs,
            .starts = starts,
            .instruction_count = next,
        };
    }

    pub fn blocks(m: *const Module) []Program {
        return m.programs[0 .. m.programs.len - 1];
    }

    pub fn root(m: *const Module) *Program {
        return &m.programs[m.programs.len - 1];
    }

    /// Instructions of all programs as they are now.
    pub fn instructionCount(m: *const Module) usize {
        var count: usize = 0;
        for (m.programs) |*program| count += program.instructionCount();
        return count;
    }

    /// The instruction with a number of `sources`.
    pub fn origin(m: *const Module, number: u32) Origin {
        assert(number > 0 and number <= m.instruction_count);
        const n = std.sort.upperBound(u32, m.starts, number - 1, order) - 1;
        const is_root = n == m.programs.len - 1;
        const program = if (is_root) m.original else &m.original.blocks[n];
        const instruction = number - 1 - m.starts[n];
        const source = program.sources[instruction];
        return .{
            .block = if (is_root) 0 else @intCast(n + 1),
            .instruction = instruction,
            .source = if (source == ir.no_source) abi.none_index else source - 1,
        };
    }

    fn order(number: u32, start: u32) std.math.Order {
        return std.math.order(number, start);
    }

    /// By block: the only instruction that runs it, if its other blocks are run by it only too.
    /// Such a block may be changed together with the instruction.
    ///
    /// Blocks that nothing runs, or nothing any more, are emptied: an instruction in one of them
    /// does not count, so it must not be there when the block that it names is changed.
    pub fn findSites(m: *Module, gpa: Allocator) Allocator.Error![]?Site {
        const sites = try gpa.alloc(?Site, m.programs.len);
        @memset(sites, null);
        const counts = try gpa.alloc(u32, m.programs.len);
        @memset(counts, 0);
        const is_run = try m.findRun(gpa);
        for (m.programs, is_run, 0..) |*program, counted, n| {
            if (!counted) {
                var b: ir.Builder = try .initBare(gpa, program);
                program.* = try b.finish(&.{});
                continue;
            }
            for (0..program.instructionCount()) |i| {
                var numbers = program.blockNumbers(.at(i));
                while (numbers.next()) |k| {
                    counts[@intCast(k)] += 1;
                    sites[@intCast(k)] = .{ .program = n, .instruction = .at(i) };
                }
            }
        }
        for (m.blocks(), 0..) |_, k| {
            const site = sites[k] orelse continue;
            var numbers = m.programs[site.program].blockNumbers(site.instruction);
            while (numbers.next()) |other| if (counts[@intCast(other)] != 1) {
                sites[k] = null;
            };
        }
        return sites;
    }

    /// Lets bodies write carries over what they read: like donated inputs, as far as a body has the
    /// same carries for all that run it. With `mirror`, a carry that is a slice of a result too is
    /// read from there.
    pub fn markCarries(m: *Module, scratch: Allocator, mirror: bool) Allocator.Error!void {
        const sites = try m.findSites(scratch);
        for (m.programs) |*program| {
            for (0..program.instructionCount()) |n| {
                const i: ir.InstructionId = .at(n);
                switch (program.code(i)) {
                    .@"while" => {
                        const captures: usize = @intCast(program.attr(i, "captures"));
                        const body = &m.programs[@intCast(program.attr(i, "body"))];
                        try markBody(scratch, body, captures, program.resultCount(i));
                    },
                    .scan => {
                        const captures: usize = @intCast(program.attr(i, "captures"));
                        const number: usize = @intCast(program.attr(i, "body"));
                        const body = &m.programs[number];
                        const carries: usize = @intCast(program.attr(i, "carries"));
                        try markBody(scratch, body, captures, carries);
                        if (mirror and sites[number] != null) {
                            try markMirrors(scratch, body, carries);
                        }
                    },
                    else => {},
                }
            }
        }
    }

    fn markBody(
        scratch: Allocator,
        body: *Program,
        captures: usize,
        count: usize,
    ) Allocator.Error!void {
        for (body.inputs) |input| if (input.flags.donated) return; // marked for another loop
        const inputs = try scratch.dupe(ir.Input, body.inputs);
        const outputs = try scratch.dupe(ir.Output, body.outputs);
        for (inputs[captures..][0..count]) |*input| input.flags.donated = true;
        for (outputs[0..count], captures..) |*output, input| output.alias = .at(input);
        body.inputs = inputs;
        body.outputs = outputs;
    }

    fn markMirrors(scratch: Allocator, body: *Program, count: usize) Allocator.Error!void {
        const none = std.math.maxInt(u32);
        const slice_of = try scratch.alloc(u32, body.valueCount());
        @memset(slice_of, none);
        for (body.outputs[count..], count..) |output, k| {
            slice_of[output.value.index()] = @intCast(k);
        }
        const outputs = try scratch.dupe(ir.Output, body.outputs);
        for (outputs[0..count]) |*output| {
            if (slice_of[output.value.index()] == none) continue;
            output.same_as = slice_of[output.value.index()];
            output.alias = null;
        }
        body.outputs = outputs;
    }

    /// By block: the root runs it, or a block that the root runs does.
    pub fn findRun(m: *const Module, gpa: Allocator) Allocator.Error![]bool {
        const is_run = try gpa.alloc(bool, m.programs.len);
        @memset(is_run, false);
        is_run[m.programs.len - 1] = true;
        var n = m.programs.len;
        while (n > 0) {
            n -= 1;
            if (!is_run[n]) continue;
            const program = &m.programs[n];
            for (0..program.instructionCount()) |i| {
                var numbers = program.blockNumbers(.at(i));
                while (numbers.next()) |k| is_run[@intCast(k)] = true;
            }
        }
        return is_run;
    }
};

/// From the facts of the blocks before.
fn factsOf(program: *const Program) ir.BlockFacts {
    var facts: ir.BlockFacts = .{ .may_fail = false, .has_effect = false };
    for (0..program.instructionCount()) |i| {
        facts.may_fail = facts.may_fail or program.mayFail(.at(i));
        facts.has_effect = facts.has_effect or program.hasEffect(.at(i));
    }
    return facts;
}
