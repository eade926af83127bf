//! What compiling produces and all an executor may read: one flat list of instructions whose
//! geometries, operand addresses and memory are settled. A plan is immutable and knows no program.
const std = @import("std");
const assert = std.debug.assert;
const DType = @import("dtype.zig").DType;
const kernel_abi = @import("cpu/kernel_abi.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const op = @import("op.zig");

/// Memory an operand lives in. The executor keeps one base address for each; the numbers above
/// `first_input` are the inputs in order, then the outputs in order.
pub const Base = enum(u32) {
    /// The leased workspace; contents undefined between instructions that do not share a value.
    arena = 0,
    /// Literals, folded values and baked constants; read only.
    constants = 1,
    _,

    pub const first_input: u32 = 2;
};

/// Element 0 of an operand: `base address + offset` (bytes).
pub const Pointer = struct { base: u32, offset: u64 };

pub const Instruction = struct {
    kernel: kernel_table.Kernel,
    pointer_start: u32,
    pointer_count: u32,
    /// Byte offset in `Plan.geometries`, 64-byte aligned.
    geometry: u32,
    /// Instruction of the program it came from (the last one of a fused region).
    origin: u32,
    /// Where that instruction is: 0 for the program itself, k + 1 for block k.
    block: u32,
    /// Index in the program's table of source locations, or `abi.none_index`.
    source: u32,
    /// Copied from the head of the geometry.
    work: kernel_abi.Work,
};

/// What the executor does itself. The pointers of such an instruction are its results, its
/// operands (all dense), and memory of its own for blocks.
pub const Control = union(enum) {
    choose: Choose,
    loop: Loop,
    scan: Scan,
    host_call: HostCall,
};

/// Operands are the index and the inputs of the branches; results are the outputs of one.
pub const Choose = struct {
    blocks: []const u32,
    result_count: u32,
};

/// Operands are captures and carries; results are carries.
pub const Loop = struct {
    condition: u32,
    body: u32,
    capture_count: u32,
    carries: []const Carry,
    /// Where in the instruction's memory the condition goes.
    condition_offset: u64,
};

/// Operands are captures, carries and stacks; results are carries and stacks.
pub const Scan = struct {
    body: u32,
    capture_count: u32,
    carries: []const Carry,
    reads: []const Stack,
    writes: []const Stack,
    length: u64,
    reverse: bool,
};

/// A value handed from step to step.
pub const Carry = struct {
    bytes: u64,
    /// The body may write it where it reads it.
    in_place: bool,
    /// Where in the instruction's memory every other step writes it, if not in place.
    spare: u64,
    /// The position among `Scan.writes` of the stack whose slice it is, or `no_mirror`: then no
    /// step writes it elsewhere.
    mirror: u32 = no_mirror,

    pub const no_mirror = std.math.maxInt(u32);
};

/// One slice a step; bytes from the slice of one step to that of the next.
pub const Stack = struct { stride: i64 };

pub const HostCall = struct {
    id: i64,
    operands: []const HostOperand,
};

pub const HostOperand = struct { dtype: DType, dims: []const i64 };

/// The geometry of an instruction of kernel `control`.
pub const ControlGeometry = extern struct {
    work: kernel_abi.Work,
    /// Position in `Plan.controls`.
    index: u32,
    reserved: u32 = 0,
};

pub const Input = struct {
    bytes: u64,
    dtype: DType,
    donated: bool,
};

pub const no_alias: u32 = 0xffff_ffff;

/// Why an output has memory of its own, or that it may take a donated input's.
pub const InPlace = enum {
    /// The program does not ask for it.
    not_asked,
    possible,
    /// The output is an input, a constant or a view: it is copied.
    not_computed,
    sizes_differ,
    /// Another output takes that input.
    taken,
    /// The run could still fail once the input is overwritten.
    may_fail_later,
    /// The input is still read after, or in another order while, the output is written.
    read_later,
};

pub const Output = struct {
    bytes: u64,
    dtype: DType,
    /// Index of the donated input whose memory it may take, or `no_alias`. The list of
    /// instructions is right in both cases: in place, and with a buffer of its own.
    alias: u32,
    in_place: InPlace,
    /// Of a block: another output that is the same value; this one is not written.
    same_as: ?u32 = null,
};

/// One piece of memory, as `explain` prints it.
pub const StorageInfo = struct {
    place: enum { arena, constants, input, output },
    /// Byte offset in the arena or the constants; number of the input or output.
    index: u64,
    bytes: u64,
    /// Planned instructions that use it first and last; `first` is 0xffffffff if none does.
    first: u32,
    last: u32,
};

pub const Pass = struct { name: []const u8, ns: u64, instructions: u32 };

/// A fused region: the names of its opcodes in order.
pub const Region = struct { block: u32, instruction: u32, codes: []const op.Code };

pub const Plan = struct {
    /// Owns everything below.
    arena: std.heap.ArenaAllocator,
    instructions: []const Instruction,
    pointers: []const Pointer,
    geometries: []align(64) const u8,
    controls: []const Control,
    /// By block: its plan. Only the plan of a whole program has them; blocks that nothing runs
    /// are `empty`.
    blocks: []const Plan = &.{},
    constants: []align(64) const u8,
    inputs: []const Input,
    outputs: []const Output,
    /// Index of the first instruction that overwrites the memory of a donated input;
    /// `instructions.len` if there is none. No instruction from here on can fail.
    commit_point: u32,
    arena_bytes: u64,
    /// Largest scratch of any instruction; each worker gets as much.
    scratch_bytes: u64,
    /// Largest number of operands and results of any instruction.
    pointer_count_max: u32,
    /// Words of tables a run needs besides its bases: the addresses of one instruction, and
    /// likewise bases and tables for the blocks inside.
    table_words: u64,
    /// It or a block in it calls the host: never on the caller's thread, who has to answer.
    calls_host: bool,
    /// Sum over the instructions; decides whether a run stays on the caller's thread.
    cost_ns: u64,
    /// Instructions of the program the plan was made from.
    program_instructions: u32,
    compile_ns: u64,
    /// For `explain` only, as what follows.
    storages: []const StorageInfo,
    passes: []const Pass,
    regions: []const Region,
    /// By instruction: the instructions of its program (`Instruction.block`) that it does.
    members: []const []const u32,
    /// By instruction: the bytes of the value that it copies, instead of doing any; else 0.
    copied_bytes: []const u64,

    pub const empty: Plan = .{
        .arena = undefined, // owns nothing
        .instructions = &.{},
        .pointers = &.{},
        .geometries = &.{},
        .controls = &.{},
        .constants = &.{},
        .inputs = &.{},
        .outputs = &.{},
        .commit_point = 0,
        .arena_bytes = 0,
        .scratch_bytes = 0,
        .pointer_count_max = 0,
        .table_words = 0,
        .calls_host = false,
        .cost_ns = 0,
        .program_instructions = 0,
        .compile_ns = 0,
        .storages = &.{},
        .passes = &.{},
        .regions = &.{},
        .members = &.{},
        .copied_bytes = &.{},
    };

    /// Of an instruction of kernel `control`.
    pub fn controlOf(plan: *const Plan, instruction: *const Instruction) *const Control {
        assert(instruction.kernel == .control);
        const bytes = &plan.geometries[instruction.geometry];
        const geometry: *const ControlGeometry = @ptrCast(@alignCast(bytes));
        return &plan.controls[geometry.index];
    }

    pub fn deinit(plan: *Plan) void {
        var arena = plan.arena;
        arena.deinit();
    }

    /// Instructions of the plan and of its blocks, in this order: what a profile has a record for.
    pub fn recordCount(plan: *const Plan) usize {
        return plan.recordStart(plan.blocks.len);
    }

    /// The first record of a block.
    pub fn recordStart(plan: *const Plan, block: usize) usize {
        var count = plan.instructions.len;
        for (plan.blocks[0..block]) |*inner| count += inner.instructions.len;
        return count;
    }

    pub fn baseCount(plan: *const Plan) usize {
        return Base.first_input + plan.inputs.len + plan.outputs.len;
    }

    pub fn inputBase(index: usize) u32 {
        return @intCast(Base.first_input + index);
    }

    pub fn outputBase(plan: *const Plan, index: usize) u32 {
        assert(index < plan.outputs.len);
        return @intCast(Base.first_input + plan.inputs.len + index);
    }
};
