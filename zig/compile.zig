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
const hoist = @import("pass/hoist.zig");
const ir = @import("ir.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const lower = @import("lower.zig");
const lower_finish = @import("lower_finish.zig");
const op = @import("op.zig");
const os = @import("os.zig");
const plans = @import("plan.zig");
const rematerialise = @import("pass/rematerialise.zig");
const sink = @import("pass/sink.zig");
const trim = @import("pass/trim.zig");
const verify = @import("verify.zig");
const wire = @import("wire.zig");
const modules = @import("compile_blocks.zig");
const Control = @import("runtime/control.zig").Control;
const Failure = failure.Failure;
const Module = modules.Module;
const Program = ir.Program;

pub const Options = struct {
    /// False: every instruction its own kernel, nothing merged or folded.
    optimize: bool = true,
    /// Whether what the passes made is verified again, as tests and the fuzzer do.
    verify_passes: bool = false,
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

    /// What went by since the last call was spent on the pass, on one program or more.
    fn done(c: *Clock, name: []const u8, instructions: usize) Failure!void {
        const now = os.monotonicNs();
        const pass = for (c.passes.items) |*pass| {
            if (std.mem.eql(u8, pass.name, name)) break pass;
        } else new: {
            const pass = try c.passes.addOne(c.gpa);
            pass.* = .{ .name = name, .ns = 0, .instructions = 0 };
            break :new pass;
        };
        pass.ns += now - c.last_ns;
        pass.instructions += @intCast(instructions);
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
                const owner = if (diagnostic.block) |k| &program.blocks[k] else &program;
                const source = owner.sources[i];
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
    if (diagnostic.block) |k| e.block = k + 1;
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
    var c: Compiler = .{
        .kept = kept,
        .scratch = scratch,
        .module = try .init(scratch, original),
        .options = options,
        .e = e,
        .clock = clock,
    };
    if (options.optimize) try c.rewrite();
    if (options.verify_passes) try c.verifyAgain();
    try c.module.markCarries(scratch, options.optimize);
    const is_run = try c.module.findRun(scratch);
    const planned = try kept.alloc(plans.Plan, original.blocks.len);
    @memset(planned, .empty);
    for (planned, c.module.blocks(), is_run[0..planned.len]) |*block, *program, wanted| {
        if (wanted) block.* = try c.plan(program, planned, .block);
    }
    var plan = try c.plan(c.module.root(), planned, .program);
    plan.program_instructions = c.module.instruction_count;
    plan.blocks = planned;
    return plan;
}

const Compiler = struct {
    kept: Allocator,
    scratch: Allocator,
    module: Module,
    options: Options,
    e: *abi.Error,
    clock: *Clock,

    /// Every pass goes through all programs before the next one begins.
    fn rewrite(c: *Compiler) Failure!void {
        const module = &c.module;
        for (module.programs) |*program| program.* = try canonicalise.run(c.scratch, program);
        try c.clock.done("canonicalise", module.instructionCount());
        for (module.programs) |*program| program.* = try cse.run(c.scratch, program);
        try c.clock.done("cse", module.instructionCount());
        if (module.programs.len > 1) try c.rewriteBlocks();
        for (module.programs) |*program| {
            program.* = try fold.run(c.scratch, program, c.options.kernels, c.e);
        }
        try c.clock.done("fold", module.instructionCount());
    }

    fn verifyAgain(c: *Compiler) Failure!void {
        var diagnostic: diagnostic_file.Diagnostic = .{};
        for (c.module.programs, 0..) |*program, n| {
            verify.verifyOne(c.scratch, program, c.module.programs[0..n], &diagnostic) catch |f| {
                switch (f) {
                    error.OutOfMemory => return error.OutOfMemory,
                    error.InvalidProgram => std.debug.panic("program {d}, {f}", .{ n, diagnostic }),
                }
            };
        }
    }

    /// What looks at blocks and the instructions that run them together.
    fn rewriteBlocks(c: *Compiler) Failure!void {
        const module = &c.module;
        try trim.run(c.scratch, module);
        try c.clock.done("trim", module.instructionCount());
        try hoist.run(c.scratch, module);
        try c.clock.done("hoist", module.instructionCount());
        try sink.run(c.scratch, module);
        try c.clock.done("sink", module.instructionCount());
        // Captures may have lost their last reader, and what left two blocks may be the same.
        try trim.run(c.scratch, module);
        try c.clock.done("trim", module.instructionCount());
        for (module.programs) |*program| program.* = try cse.run(c.scratch, program);
        try c.clock.done("cse", module.instructionCount());
    }

    /// The plan of one program; those of the blocks it runs are in `planned`.
    fn plan(
        c: *Compiler,
        program: *const Program,
        planned: []const plans.Plan,
        role: lower_finish.Role,
    ) Failure!plans.Plan {
        const scratch = c.scratch;
        const live = try dead.run(scratch, program);
        try c.clock.done("dead", program.instructionCount());
        var regions = if (c.options.optimize)
            try fuse.run(scratch, program, live)
        else
            try fuse.single(scratch, program, live);
        try c.clock.done("fuse", regions.units.len);
        if (c.options.optimize) {
            regions = try rematerialise.run(scratch, program, &regions);
            try c.clock.done("rematerialise", regions.units.len);
        }
        const target: lower.Target = .{
            .isa = c.options.kernels.isa,
            .kept = c.kept,
            .blocks = planned,
        };
        var lowered = lower.lower(scratch, program, &regions, target, c.e) catch |f| {
            c.nameOrigin(program);
            return f;
        };
        try c.clock.done("lower", lowered.drafts.items.len);
        var finished = try lower_finish.finish(&lowered, role);
        finished.regions = try c.describeRegions(program, &regions);
        try c.keep(&finished, program);
        try c.clock.done("plan memory", finished.instructions.len);
        return finished;
    }

    /// Turns an instruction of a rewritten program in the error into one of the file.
    fn nameOrigin(c: *Compiler, program: *const Program) void {
        if (c.e.instruction == abi.none_index) return;
        const origin = c.module.origin(program.sources[c.e.instruction]);
        c.e.block = origin.block;
        c.e.instruction = origin.instruction;
        c.e.source = origin.source;
    }

    /// Copies what the plan refers to out of the scratch memory, origins translated.
    fn keep(c: *Compiler, finished: *plans.Plan, program: *const Program) Allocator.Error!void {
        const kept = c.kept;
        const instructions = try kept.dupe(plans.Instruction, finished.instructions);
        for (instructions) |*instruction| {
            // Copies of inputs and literals in a program without instructions: nothing to name.
            const origin: modules.Origin = if (program.sources.len == 0) .{
                .block = 0,
                .instruction = abi.none_index,
                .source = abi.none_index,
            } else c.module.origin(program.sources[instruction.origin]);
            instruction.block = origin.block;
            instruction.origin = origin.instruction;
            instruction.source = origin.source;
        }
        finished.copied_bytes = try kept.dupe(u64, finished.copied_bytes);
        finished.members = try c.keepMembers(finished, program);
        finished.instructions = instructions;
        finished.pointers = try kept.dupe(plans.Pointer, finished.pointers);
        finished.geometries = try dupeAligned(kept, finished.geometries);
        finished.controls = try kept.dupe(plans.Control, finished.controls);
        finished.constants = try dupeAligned(kept, finished.constants);
        finished.inputs = try kept.dupe(plans.Input, finished.inputs);
        finished.outputs = try kept.dupe(plans.Output, finished.outputs);
        finished.storages = try kept.dupe(plans.StorageInfo, finished.storages);
    }

    fn keepMembers(
        c: *Compiler,
        finished: *const plans.Plan,
        program: *const Program,
    ) Allocator.Error![]const []const u32 {
        const lists = try c.kept.alloc([]const u32, finished.members.len);
        for (lists, finished.members) |*to, from| {
            const list = try c.kept.alloc(u32, if (program.sources.len == 0) 0 else from.len);
            for (list, from[0..list.len]) |*member, i| {
                member.* = c.module.origin(program.sources[i]).instruction;
            }
            to.* = list;
        }
        return lists;
    }

    fn describeRegions(
        c: *Compiler,
        program: *const Program,
        regions: *const fuse.Regions,
    ) Allocator.Error![]const plans.Region {
        var list: std.ArrayList(plans.Region) = .empty;
        for (regions.units) |unit| {
            const clones = regions.clones(unit);
            const members = regions.members(unit);
            if (clones.len + members.len < 2) continue;
            const codes = try c.kept.alloc(op.Code, clones.len + members.len);
            for (codes[0..clones.len], clones) |*code, clone| code.* = program.code(clone);
            for (codes[clones.len..], members) |*code, member| code.* = program.code(member);
            const origin = c.module.origin(program.sources[members[members.len - 1].index()]);
            try list.append(c.kept, .{
                .block = origin.block,
                .instruction = origin.instruction,
                .codes = codes,
            });
        }
        return list.items;
    }
};

fn dupeAligned(kept: Allocator, bytes: []align(64) const u8) Allocator.Error![]align(64) const u8 {
    const copy = try kept.alignedAlloc(u8, .@"64", bytes.len);
    @memcpy(copy, bytes);
    return copy;
}
