//! From the bytes of a program to a plan: the ordered list of passes, each timed. Everything is
//! linear or n log n in the size of the program. The control is looked at between passes.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("abi_types.zig");
const canonicalise = @import("pass/canonicalise.zig");
const cse = @import("pass/cse.zig");
const dead = @import("pass/dead.zig");
const diagnostic_file = @import("diagnostic.zig");
const failure = @import("runtime/failure.zig");
const fold = @import("pass/fold.zig");
const fuse = @import("pass/fuse.zig");
const ir = @import("ir.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const lower = @import("lower.zig");
const lower_finish = @import("lower_finish.zig");
const op = @import("op.zig");
const os = @import("os.zig");
const plans = @import("plan.zig");
const rematerialise = @import("pass/rematerialise.zig");
const verify = @import("verify.zig");
const wire = @import("wire.zig");
const Control = @import("runtime/control.zig").Control;
const Failure = failure.Failure;
const Program = ir.Program;

pub const Options = struct {
    /// False: every instruction its own kernel, nothing merged or folded.
    optimize: bool = true,
    kernels: kernel_table.Choice,
    control: *Control,
};

/// Times the passes and asks for cancellation between them.
const Clock = struct {
    gpa: Allocator,
    control: *Control,
    start_ns: u64,
    last_ns: u64,
    passes: std.ArrayList(plans.Pass) = .empty,

    fn init(gpa: Allocator, control: *Control) Clock {
        const now = os.monotonicNs();
        return .{ .gpa = gpa, .control = control, .start_ns = now, .last_ns = now };
    }

    fn done(c: *Clock, name: []const u8, instructions: usize) Failure!void {
        const now = os.monotonicNs();
        try c.passes.append(c.gpa, .{
            .name = name,
            .ns = now - c.last_ns,
            .instructions = @intCast(instructions),
        });
        c.last_ns = now;
        if (c.control.isCancelled()) return error.Cancelled;
    }
};

/// The plan of a program, which owns its memory (from `gpa`). On failure `e` says why.
pub fn compile(
    gpa: Allocator,
    bytes: []const u8,
    options: Options,
    e: *abi.Error,
) Failure!plans.Plan {
    // Kept: the plan. Scratch: the programs and tables of the passes.
    var kept: std.heap.ArenaAllocator = .init(gpa);
    errdefer kept.deinit();
    var scratch: std.heap.ArenaAllocator = .init(gpa);
    defer scratch.deinit();
    var clock: Clock = .init(kept.allocator(), options.control);

    const program = try decode(scratch.allocator(), bytes, e, &clock);
    const kept_allocator = kept.allocator();
    const scratch_allocator = scratch.allocator();
    var plan = try compileProgram(kept_allocator, scratch_allocator, &program, options, e, &clock);
    plan.passes = clock.passes.items;
    plan.compile_ns = os.monotonicNs() - clock.start_ns;
    plan.arena = kept;
    return plan;
}

fn decode(scratch: Allocator, bytes: []const u8, e: *abi.Error, clock: *Clock) Failure!Program {
    var diagnostic: diagnostic_file.Diagnostic = .{};
    const program = wire.decode(scratch, bytes, &diagnostic) catch |f| switch (f) {
        error.OutOfMemory => return error.OutOfMemory,
        error.UnsupportedVersion,
        error.LimitExceeded,
        error.DigestMismatch,
        error.OpcodeMismatch,
        error.Malformed,
        => return refuse(e, .decode, &diagnostic),
    };
    try clock.done("decode", program.instructionCount());
    verify.verify(scratch, &program, &diagnostic) catch |f| switch (f) {
        error.OutOfMemory => return error.OutOfMemory,
        error.InvalidProgram => {
            if (diagnostic.instruction) |i| {
                const source = program.sources[i];
                if (source != ir.no_source) e.source = source - 1;
            }
            return refuse(e, .verify, &diagnostic);
        },
    };
    try clock.done("verify", program.instructionCount());
    return program;
}

fn refuse(e: *abi.Error, phase: abi.Phase, diagnostic: *const diagnostic_file.Diagnostic) Failure {
    if (diagnostic.instruction) |i| e.instruction = i;
    return failure.say(e, error.BadProgram, phase, "{f}", .{diagnostic.*});
}

/// `kept` owns what the plan refers to.
fn compileProgram(
    kept: Allocator,
    scratch: Allocator,
    original: *const Program,
    options: Options,
    e: *abi.Error,
    clock: *Clock,
) Failure!plans.Plan {
    // Passes renumber instructions; until the end, "source" is the original instruction + 1.
    var program = original.*;
    const origins = try scratch.alloc(u32, program.instructionCount());
    for (origins, 0..) |*origin, i| origin.* = @intCast(i + 1);
    program.sources = origins;
    if (options.optimize) {
        program = try canonicalise.run(scratch, &program);
        try clock.done("canonicalise", program.instructionCount());
        program = try cse.run(scratch, &program);
        try clock.done("cse", program.instructionCount());
        program = try fold.run(scratch, &program, options.kernels, e);
        try clock.done("fold", program.instructionCount());
    }
    const live = try dead.run(scratch, &program);
    try clock.done("dead", program.instructionCount());
    var regions = if (options.optimize)
        try fuse.run(scratch, &program, live)
    else
        try fuse.single(scratch, &program, live);
    try clock.done("fuse", regions.units.len);
    if (options.optimize) {
        regions = try rematerialise.run(scratch, &program, &regions);
        try clock.done("rematerialise", regions.units.len);
    }
    var lowered = lower.lower(scratch, &program, &regions, options.kernels.isa, e) catch |f| {
        nameOrigin(e, original, &program);
        return f;
    };
    try clock.done("lower", lowered.drafts.items.len);
    var plan = try lower_finish.finish(&lowered);
    plan.program_instructions = @intCast(original.instructionCount());
    plan.regions = try describeRegions(kept, &program, &regions);
    try keep(kept, &plan, original, &program);
    try clock.done("plan memory", plan.instructions.len);
    return plan;
}

/// Turns an instruction of the rewritten program in `e` into one of the program given.
fn nameOrigin(e: *abi.Error, original: *const Program, program: *const Program) void {
    if (e.instruction == abi.none_index) return;
    e.instruction = program.sources[e.instruction] - 1;
    const source = original.sources[e.instruction];
    if (source != ir.no_source) e.source = source - 1;
}

/// Copies what the plan refers to out of the scratch memory, origins translated.
fn keep(
    kept: Allocator,
    plan: *plans.Plan,
    original: *const Program,
    program: *const Program,
) Allocator.Error!void {
    const instructions = try kept.dupe(plans.Instruction, plan.instructions);
    for (instructions) |*instruction| {
        if (program.sources.len == 0) { // copies of inputs and literals: nothing to name
            instruction.origin = abi.none_index;
            instruction.source = abi.none_index;
            continue;
        }
        const origin = program.sources[instruction.origin] - 1;
        const source = original.sources[origin];
        instruction.origin = origin;
        instruction.source = if (source == ir.no_source) abi.none_index else source - 1;
    }
    plan.instructions = instructions;
    plan.pointers = try kept.dupe(plans.Pointer, plan.pointers);
    plan.geometries = try dupeAligned(kept, plan.geometries);
    plan.constants = try dupeAligned(kept, plan.constants);
    plan.inputs = try kept.dupe(plans.Input, plan.inputs);
    plan.outputs = try kept.dupe(plans.Output, plan.outputs);
    plan.storages = try kept.dupe(plans.StorageInfo, plan.storages);
}

fn dupeAligned(kept: Allocator, bytes: []align(64) const u8) Allocator.Error![]align(64) const u8 {
    const copy = try kept.alignedAlloc(u8, .@"64", bytes.len);
    @memcpy(copy, bytes);
    return copy;
}

fn describeRegions(
    kept: Allocator,
    program: *const Program,
    regions: *const fuse.Regions,
) Allocator.Error![]const plans.Region {
    var list: std.ArrayList(plans.Region) = .empty;
    for (regions.units) |unit| {
        const clones = regions.clones(unit);
        const members = regions.members(unit);
        if (clones.len + members.len < 2) continue;
        const codes = try kept.alloc(op.Code, clones.len + members.len);
        for (codes[0..clones.len], clones) |*code, clone| code.* = program.code(clone);
        for (codes[clones.len..], members) |*code, member| code.* = program.code(member);
        const last = members[members.len - 1];
        const origin = program.sources[last.index()] - 1;
        try list.append(kept, .{ .instruction = origin, .codes = codes });
    }
    return list.items;
}
