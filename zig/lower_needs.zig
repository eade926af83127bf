//! What has to be stored, found from the outputs backwards over the units: a value that only
//! members of its own region use stays in registers, and a member whose value nobody needs any
//! more, because its readers repeat it as a clone, is not computed at all.
const std = @import("std");
const Allocator = std.mem.Allocator;
const fuse = @import("pass/fuse.zig");
const ir = @import("ir.zig");
const InstructionId = ir.InstructionId;
const Program = ir.Program;
const ValueId = ir.ValueId;

pub const Needs = struct {
    program: *const Program,
    /// By value: uses outside of its unit, outputs included.
    outside: []u32,
    /// By instruction: its unit computes it.
    computed: []bool,
    /// By value: the reduction that alone uses it, if the region that makes it may do that as well;
    /// or `none`.
    reducer: []u32,

    pub const none = fuse.none;

    pub fn find(
        gpa: Allocator,
        program: *const Program,
        regions: *const fuse.Regions,
    ) Allocator.Error!Needs {
        const outside = try gpa.alloc(u32, program.valueCount());
        @memset(outside, 0);
        for (program.outputs) |output| outside[output.value.index()] += 1;
        const computed = try gpa.alloc(bool, program.instructionCount());
        @memset(computed, false);
        // By instruction: 2 * unit + 1 if it belongs to the unit looked at, + 2 if that needs it.
        const marks = try gpa.alloc(u64, program.instructionCount());
        @memset(marks, 0);
        const reducer = try gpa.alloc(u32, program.valueCount());
        @memset(reducer, none);
        const needs: Needs = .{
            .program = program,
            .outside = outside,
            .computed = computed,
            .reducer = reducer,
        };
        var unit = regions.units.len;
        while (unit > 0) {
            unit -= 1;
            const members = regions.members(regions.units[unit]);
            const clones = regions.clones(regions.units[unit]);
            const mark = 2 * @as(u64, unit) + 1;
            for (members) |i| marks[i.index()] = mark;
            for (clones) |i| marks[i.index()] = mark;
            const is_region = fuse.isFusible(program, members[0]);
            var k = members.len;
            while (k > 0) {
                k -= 1;
                const i = members[k];
                if (is_region and marks[i.index()] != mark + 1) {
                    if (outside[program.result(i, 0).index()] == 0) continue;
                }
                computed[i.index()] = true;
                needs.visit(i, marks, mark);
            }
            k = clones.len;
            while (k > 0) {
                k -= 1;
                if (marks[clones[k].index()] == mark + 1) needs.visit(clones[k], marks, mark);
            }
        }
        if (regions.fuses_reductions) needs.findReducers(regions);
        return needs;
    }

    fn findReducers(needs: *const Needs, regions: *const fuse.Regions) void {
        const program = needs.program;
        for (regions.units) |unit| {
            const i = regions.members(unit)[0];
            switch (program.code(i)) {
                .reduce_sum, .reduce_prod, .reduce_max, .reduce_min => {},
                else => continue,
            }
            const v = program.operand(i, 0);
            if (needs.computed[i.index()] and needs.outside[v.index()] == 1) {
                needs.reducer[v.index()] = @intCast(i.index());
            }
        }
    }

    fn visit(needs: *const Needs, i: InstructionId, marks: []u64, mark: u64) void {
        const first = needs.program.firstResult();
        for (needs.program.operandsOf(i)) |v| {
            if (v.index() >= first) {
                const maker = needs.program.result_instruction[v.index() - first].index();
                if (marks[maker] == mark or marks[maker] == mark + 1) {
                    marks[maker] = mark + 1;
                    continue;
                }
            }
            needs.outside[v.index()] += 1;
        }
    }

    pub fn isStored(needs: *const Needs, v: ValueId) bool {
        return needs.outside[v.index()] > 0;
    }

    /// The members of a region that it computes.
    pub fn filter(
        needs: *const Needs,
        gpa: Allocator,
        members: []const InstructionId,
    ) Allocator.Error![]const InstructionId {
        for (members) |i| {
            if (!needs.computed[i.index()]) break;
        } else return members;
        var list: std.ArrayList(InstructionId) = .empty;
        for (members) |i| if (needs.computed[i.index()]) try list.append(gpa, i);
        return list.items;
    }

    /// Values of `first` that `second` reads are stored once a region is cut between them.
    pub fn cut(
        needs: *const Needs,
        first: []const InstructionId,
        second: []const InstructionId,
    ) void {
        for (second) |i| for (needs.program.operandsOf(i)) |v| for (first) |maker| {
            if (needs.program.result(maker, 0) == v) needs.outside[v.index()] += 1;
        };
    }
};
