//! Dead code through blocks: results that nobody uses go, with what computes them in the blocks;
//! inputs that no block reads go, with the operands; a carry goes that feeds only itself. A carry
//! that a body hands on as it is becomes a capture; stacks of the same value are one.
//!
//! What is needed is found from outputs and effects backwards, through all programs at once, each
//! value once. Blocks that several instructions run keep their inputs and outputs.
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

const Place = struct { program: usize, value: ValueId };

const Pass = struct {
    gpa: Allocator,
    module: *Module,
    sites: []const ?modules.Site,
    /// By program, by value.
    needed: []const []bool,
    /// By program, by instruction: it has an effect or a result that is needed.
    live: []const []bool,
    /// By block: what its instruction keeps, at the first of its blocks; found when asked for.
    layouts: []?Layout,
    /// By block, by output: the first output that is the same value, among the slices of a scan.
    first_slices: [][]const u32,
    stack: std.ArrayList(Place) = .empty,

    fn need(p: *Pass, program: usize, v: ValueId) Allocator.Error!void {
        if (p.needed[program][v.index()]) return;
        p.needed[program][v.index()] = true;
        try p.stack.append(p.gpa, .{ .program = program, .value = v });
    }

    fn isNeeded(p: *const Pass, program: usize, v: ValueId) bool {
        return p.needed[program][v.index()];
    }

    fn isLive(p: *const Pass, site: modules.Site) bool {
        return p.live[site.program][site.instruction.index()];
    }

    fn needOutput(p: *Pass, program: usize, k: usize) Allocator.Error!void {
        return p.need(program, p.module.programs[program].outputs[k].value);
    }

    /// The blocks of the instruction are its own: all of them change with it.
    fn ownsBlocks(p: *const Pass, program: *const Program, i: InstructionId) bool {
        var numbers = program.blockNumbers(i);
        const first = numbers.next() orelse return false;
        return p.sites[@intCast(first)] != null;
    }
};

/// Rewrites the programs of the module. Linear in their size.
pub fn run(gpa: Allocator, module: *Module) Allocator.Error!void {
    if (module.programs.len == 1) return; // nothing but plain dead code
    const needed = try gpa.alloc([]bool, module.programs.len);
    const live = try gpa.alloc([]bool, module.programs.len);
    for (module.programs, needed, live) |*program, *values, *instructions| {
        values.* = try gpa.alloc(bool, program.valueCount());
        instructions.* = try gpa.alloc(bool, program.instructionCount());
        @memset(values.*, false);
        @memset(instructions.*, false);
    }
    var p: Pass = .{
        .gpa = gpa,
        .module = module,
        .sites = try module.findSites(gpa),
        .needed = needed,
        .live = live,
        .layouts = try gpa.alloc(?Layout, module.programs.len),
        .first_slices = try gpa.alloc([]const u32, module.programs.len),
    };
    @memset(p.first_slices, &.{});
    @memset(p.layouts, null);
    const is_run = try module.findRun(gpa);
    for (module.programs, is_run, 0..) |*program, wanted, n| if (wanted) {
        try findRoots(&p, program, n);
    };
    while (p.stack.pop()) |place| try visit(&p, place.program, place.value);
    const programs = try gpa.alloc(Program, module.programs.len);
    for (module.programs, programs, is_run, 0..) |*program, *to, wanted, n| {
        const is_dead = if (p.sites[n]) |site| !p.isLive(site) else false;
        to.* = if (wanted and !is_dead) try rewrite(&p, n) else program.*;
    }
    @memcpy(module.programs, programs);
}

/// What is needed whatever the rest of the module is.
fn findRoots(p: *Pass, program: *const Program, n: usize) Allocator.Error!void {
    if (p.sites[n] == null) {
        for (0..program.outputs.len) |k| try p.needOutput(n, k);
    }
    for (0..program.instructionCount()) |i| {
        if (program.hasEffect(.at(i))) try enliven(p, n, .at(i));
    }
}

/// What an instruction reads whichever of its results are needed.
fn enliven(p: *Pass, n: usize, i: InstructionId) Allocator.Error!void {
    if (p.live[n][i.index()]) return;
    p.live[n][i.index()] = true;
    const program = &p.module.programs[n];
    if (!p.ownsBlocks(program, i)) {
        for (program.operandsOf(i)) |v| try p.need(n, v);
        return;
    }
    switch (program.code(i)) {
        .@"switch" => try p.need(n, program.operand(i, 0)),
        .@"while" => try p.needOutput(@intCast(program.attr(i, "condition")), 0),
        .scan => {},
        else => unreachable,
    }
}

fn visit(p: *Pass, n: usize, v: ValueId) Allocator.Error!void {
    const program = &p.module.programs[n];
    switch (program.definitionOf(v)) {
        .literal => {},
        .input => |input| {
            const site = p.sites[n] orelse return;
            try needInput(p, site, input.index());
        },
        .result => |result| {
            const i = result.instruction;
            try enliven(p, n, i);
            if (p.ownsBlocks(program, i)) try needResult(p, n, i, result.index);
        },
    }
}

/// Input `j` of the blocks of an instruction is read.
fn needInput(p: *Pass, site: modules.Site, j: usize) Allocator.Error!void {
    const program = &p.module.programs[site.program];
    const i = site.instruction;
    const loop = Loop.of(program, i) orelse {
        return p.need(site.program, program.operand(i, j + 1));
    };
    if (j >= loop.captures and j < loop.captures + loop.carries) {
        return needCarry(p, site.program, i, loop, j - loop.captures);
    }
    return p.need(site.program, program.operand(i, j));
}

fn needResult(p: *Pass, n: usize, i: InstructionId, k: usize) Allocator.Error!void {
    const program = &p.module.programs[n];
    const loop = Loop.of(program, i) orelse {
        for (program.attr(i, "blocks")) |block| try p.needOutput(@intCast(block), k);
        return;
    };
    if (k < loop.carries) return needCarry(p, n, i, loop, k);
    const first = try firstSlice(p, loop, k);
    try p.need(n, program.result(i, first));
    try p.needOutput(loop.body, first);
}

fn firstSlice(p: *Pass, loop: Loop, k: usize) Allocator.Error!usize {
    const known = &p.first_slices[loop.body];
    if (known.len == 0) {
        const body = &p.module.programs[loop.body];
        const by_value = try p.gpa.alloc(u32, body.valueCount());
        @memset(by_value, std.math.maxInt(u32));
        const firsts = try p.gpa.alloc(u32, body.outputs.len);
        for (body.outputs, firsts, 0..) |output, *first, position| {
            first.* = @intCast(position);
            if (position < loop.carries) continue;
            const seen = &by_value[output.value.index()];
            if (seen.* == std.math.maxInt(u32)) seen.* = first.* else first.* = seen.*;
        }
        known.* = firsts;
    }
    return known.*[k];
}

/// The first value of a carry, and that of the next step.
fn needCarry(p: *Pass, n: usize, i: InstructionId, loop: Loop, c: usize) Allocator.Error!void {
    const program = &p.module.programs[n];
    try p.need(n, program.operand(i, loop.captures + c));
    if (!loop.handsOn(p.module, c)) try p.needOutput(loop.body, c);
}

/// What a loop and a scan have in common.
const Loop = struct {
    condition: ?usize,
    body: usize,
    captures: usize,
    carries: usize,

    fn of(program: *const Program, i: InstructionId) ?Loop {
        return switch (program.code(i)) {
            .@"while" => .{
                .condition = @intCast(program.attr(i, "condition")),
                .body = @intCast(program.attr(i, "body")),
                .captures = @intCast(program.attr(i, "captures")),
                .carries = program.resultCount(i),
            },
            .scan => .{
                .condition = null,
                .body = @intCast(program.attr(i, "body")),
                .captures = @intCast(program.attr(i, "captures")),
                .carries = @intCast(program.attr(i, "carries")),
            },
            else => null,
        };
    }

    /// The body gives the carry back as it is.
    fn handsOn(loop: Loop, module: *const Module, c: usize) bool {
        const body = &module.programs[loop.body];
        return body.outputs[c].value == body.inputValue(.at(loop.captures + c));
    }
};

/// What an instruction and its blocks keep, by numbers from before, in the new order.
const Layout = struct {
    inputs: std.ArrayList(usize) = .empty,
    /// Outputs of the blocks (but of a condition), which are the results as well.
    outputs: std.ArrayList(usize) = .empty,
    captures: usize = 0,
    carries: usize = 0,
};

fn layoutOf(p: *Pass, site: modules.Site) Allocator.Error!Layout {
    var numbers = p.module.programs[site.program].blockNumbers(site.instruction);
    const layout = &p.layouts[@intCast(numbers.next().?)];
    if (layout.* == null) layout.* = try findLayout(p, site);
    return layout.*.?;
}

fn findLayout(p: *Pass, site: modules.Site) Allocator.Error!Layout {
    const program = &p.module.programs[site.program];
    const i = site.instruction;
    var layout: Layout = .{};
    const loop = Loop.of(program, i) orelse {
        for (1..program.operandsOf(i).len) |k| {
            if (isInputNeeded(p, program, i, k - 1)) try layout.inputs.append(p.gpa, k - 1);
        }
        try keepResults(p, &layout, site, 0);
        return layout;
    };
    for (0..loop.captures) |j| {
        if (isInputNeeded(p, program, i, j)) try layout.inputs.append(p.gpa, j);
    }
    for (loop.captures..loop.captures + loop.carries, 0..) |j, c| {
        if (!loop.handsOn(p.module, c)) continue;
        if (isInputNeeded(p, program, i, j)) try layout.inputs.append(p.gpa, j);
    }
    layout.captures = layout.inputs.items.len;
    for (loop.captures..loop.captures + loop.carries, 0..) |j, c| {
        if (loop.handsOn(p.module, c)) continue;
        const is_used = p.isNeeded(site.program, program.result(i, c));
        if (!is_used and !isInputNeeded(p, program, i, j)) continue;
        try layout.inputs.append(p.gpa, j);
        try layout.outputs.append(p.gpa, c);
    }
    layout.carries = layout.outputs.items.len;
    for (loop.captures + loop.carries..program.operandsOf(i).len) |j| {
        if (isInputNeeded(p, program, i, j)) try layout.inputs.append(p.gpa, j);
    }
    try keepResults(p, &layout, site, loop.carries);
    return layout;
}

fn isInputNeeded(p: *const Pass, program: *const Program, i: InstructionId, j: usize) bool {
    var numbers = program.blockNumbers(i);
    while (numbers.next()) |k| {
        const block: usize = @intCast(k);
        if (p.isNeeded(block, p.module.programs[block].inputValue(.at(j)))) return true;
    }
    return false;
}

/// Results from number `first` on that are needed.
fn keepResults(
    p: *Pass,
    layout: *Layout,
    site: modules.Site,
    first: usize,
) Allocator.Error!void {
    const program = &p.module.programs[site.program];
    for (first..program.resultCount(site.instruction)) |k| {
        const v = program.result(site.instruction, k);
        if (!p.isNeeded(site.program, v)) continue;
        const loop = Loop.of(program, site.instruction);
        if (loop) |l| if (try firstSlice(p, l, k) != k) continue;
        try layout.outputs.append(p.gpa, k);
    }
}

fn rewrite(p: *Pass, n: usize) Allocator.Error!Program {
    const program = &p.module.programs[n];
    const site = p.sites[n];
    const layout = if (site) |s| try layoutOf(p, s) else null;
    var b: Builder = try .initBare(p.gpa, program);
    if (layout) |kept| {
        for (kept.inputs.items) |j| _ = try b.keepInput(.at(j));
    } else for (0..program.inputs.len) |j| {
        _ = try b.keepInput(.at(j));
    }
    for (0..program.instructionCount()) |index| {
        const i: InstructionId = .at(index);
        if (!p.live[n][index]) continue;
        if (p.ownsBlocks(program, i)) {
            try emitRegion(p, &b, .{ .program = n, .instruction = i });
        } else _ = try b.copy(i);
    }
    const whole = layout == null or isCondition(p, site.?, n);
    if (whole) return b.finish(try b.mappedOutputs());
    const outputs = try p.gpa.alloc(Builder.Output, layout.?.outputs.items.len);
    for (outputs, layout.?.outputs.items) |*to, k| {
        to.* = .{ .value = try b.mapped(program.outputs[k].value) };
    }
    return b.finish(outputs);
}

fn isCondition(p: *const Pass, site: modules.Site, n: usize) bool {
    const program = &p.module.programs[site.program];
    const loop = Loop.of(program, site.instruction) orelse return false;
    return loop.condition == n;
}

fn emitRegion(p: *Pass, b: *Builder, site: modules.Site) Allocator.Error!void {
    const program = &p.module.programs[site.program];
    const i = site.instruction;
    const layout = try layoutOf(p, site);
    const loop = Loop.of(program, i);
    if (loop) |l| for (0..l.carries) |c| {
        const v = program.result(i, c);
        if (!l.handsOn(p.module, c) or !p.isNeeded(site.program, v)) continue;
        b.replace(v, try b.mapped(program.operand(i, l.captures + c)));
    };
    var operands: std.ArrayList(Builder.Value) = .empty;
    const before: usize = if (loop == null) 1 else 0;
    if (loop == null) try operands.append(p.gpa, try b.mapped(program.operand(i, 0)));
    for (layout.inputs.items) |j| {
        try operands.append(p.gpa, try b.mapped(program.operand(i, j + before)));
    }
    const types = try p.gpa.alloc(ir.TypeId, layout.outputs.items.len);
    for (types, layout.outputs.items) |*t, k| t.* = program.typeId(program.result(i, k));
    const words = try p.gpa.dupe(i64, program.attrWords(i));
    switch (program.code(i)) {
        .@"switch" => {},
        .@"while" => words[2] = @intCast(layout.captures),
        .scan => {
            words[1] = @intCast(layout.captures);
            words[2] = @intCast(layout.carries);
        },
        else => unreachable,
    }
    const first = try b.emit(.{
        .code = program.code(i),
        .operands = operands.items,
        .attrs = words,
        .result_types = types,
        .source = program.sources[i.index()],
    });
    for (layout.outputs.items, 0..) |k, position| {
        b.replace(program.result(i, k), Builder.resultOf(first, position));
    }
    const l = loop orelse return;
    for (l.carries..program.resultCount(i)) |k| {
        const v = program.result(i, k);
        const same = try firstSlice(p, l, k);
        if (same == k or !p.isNeeded(site.program, v)) continue;
        b.replace(v, try b.mapped(program.result(i, same)));
    }
}
