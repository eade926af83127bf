//! What crosses the C ABI: status codes, extern structs, and the table of functions with their
//! documentation. `gen.zig` makes the C header from this file; `abi.zig` proves at compile time
//! that the functions it exports have exactly these signatures. No logic lives here.
const std = @import("std");
const assert = std.debug.assert;

/// Bumped when a struct or a signature changes; Python refuses another number.
pub const abi_version: u32 = 2;

/// `generation << 32 | index`; 0 is never a handle. Every use is checked.
pub const Handle = u64;

/// Gives lent memory back; its argument is what was passed with it. Null: nobody waits for it.
pub const Release = ?*const fn (context: ?*anyopaque) callconv(.c) void;

/// Every function returns one of these as a u32. Append-only.
pub const Status = enum(u32) {
    ok = 0,
    /// A count, a length, an index or a pointer is not acceptable.
    invalid_argument = 1,
    /// Never issued, already released, donated, or of another kind.
    invalid_handle = 2,
    out_of_memory = 3,
    /// The bytes are not a program of this version, or the program does not type-check.
    bad_program = 4,
    /// A well-formed program this runtime has no kernel for.
    unsupported = 5,
    /// A `check` failed while the program ran; `value` is its code.
    execution_failed = 6,
    /// `value` is the index, `axis` and `extent` say where it was out of range.
    index_out_of_bounds = 7,
    cancelled = 8,
    /// The runtime was destroyed, or the process forked while a job was in flight.
    closed = 9,
    /// The job is not finished yet, or its result was already taken.
    not_ready = 10,
    /// No thread could be started.
    thread_failed = 11,
    /// Not an error: the job waits for the answer to a host call.
    host_call_pending = 12,
    /// The answer to a host call was to end the run; `value` is what it said.
    host_call_failed = 13,
};

/// Where in the life of a program an error arose.
pub const Phase = enum(u32) {
    none = 0,
    decode = 1,
    verify = 2,
    compile = 3,
    run = 4,
    handle = 5,
};

/// Says "no instruction" and "no source location" in `Error`.
pub const none_index: u32 = 0xffff_ffff;

/// Caller-owned; filled whenever a function that takes one does not return `ok`.
pub const Error = extern struct {
    status: u32 = 0,
    phase: u32 = 0,
    /// Index of the instruction in its block, or `none_index`.
    instruction: u32 = none_index,
    /// Index in the program's table of source locations, or `none_index`.
    source: u32 = none_index,
    /// `kernel_abi.Fault` of a failed run.
    fault: u32 = 0,
    axis: u32 = 0,
    /// Where the instruction is: 0 for the program itself, k + 1 for its block k.
    block: u32 = 0,
    reserved: u32 = 0,
    value: i64 = 0,
    extent: i64 = 0,
    /// UTF-8, zero terminated, cut if longer.
    message: [256]u8 = @splat(0),
};

/// A call of the host that a run waits for.
pub const HostCall = extern struct {
    id: i64 = 0,
    operand_count: u32 = 0,
    /// As in `Error`.
    block: u32 = 0,
    instruction: u32 = none_index,
    source: u32 = none_index,
};

/// What a host call hands over: a dense array, valid until the answer.
pub const HostOperand = extern struct {
    dtype: u32 = 0,
    rank: u32 = 0,
    data: ?[*]const u8 = null,
    bytes: u64 = 0,
    /// Extents, outermost first; zero from `rank` on.
    dims: [16]i64 = @splat(0),
};

pub const LibraryInfo = extern struct {
    abi_version: u32 = 0,
    wire_version: u32 = 0,
    /// Digest over the signatures of all opcodes in order.
    opcode_digest: u64 = 0,
    opcode_count: u32 = 0,
    reserved: u32 = 0,
    /// The instruction set the kernels were chosen for, zero terminated: v2, v3, v4, v4b, base,
    /// bf16.
    isa: [16]u8 = @splat(0),
    /// Version of the compiler that built the library, zero terminated.
    zig_version: [16]u8 = @splat(0),
};

pub const RuntimeOptions = extern struct {
    /// 0: as many as the affinity mask allows.
    thread_count: u32 = 0,
    reserved: u32 = 0,
    /// Freed buffers kept for reuse, in bytes at most; 0 picks the default.
    cache_bytes_max: u64 = 0,
};

pub const RuntimeStats = extern struct {
    buffers_live: u64 = 0,
    bytes_live: u64 = 0,
    /// Highest `bytes_live` since the runtime was created.
    bytes_peak: u64 = 0,
    /// All workspaces, leased or idle.
    workspace_bytes: u64 = 0,
    /// Freed buffers kept for reuse.
    cached_bytes: u64 = 0,
    executables: u64 = 0,
    /// Buffers ever created, for outputs and for uploads.
    output_allocations: u64 = 0,
    runs: u64 = 0,
    threads: u32 = 0,
    reserved: u32 = 0,
};

pub const CompileOptions = extern struct {
    /// 0: every instruction its own kernel, no merging; the oracle of the optimised path.
    optimize: u32 = 1,
    reserved: u32 = 0,
};

pub const ExecutableInfo = extern struct {
    /// Inputs of the program, without baked constants.
    inputs: u32 = 0,
    /// Inputs a run takes: `inputs` less those bound.
    unbound_inputs: u32 = 0,
    outputs: u32 = 0,
    /// Instructions of the program, and of the plan.
    instructions: u32 = 0,
    planned_instructions: u32 = 0,
    /// Index of the first planned instruction that overwrites a donated input;
    /// `planned_instructions` if none does.
    commit_point: u32 = 0,
    arena_bytes: u64 = 0,
    constant_bytes: u64 = 0,
    output_bytes: u64 = 0,
    scratch_bytes: u64 = 0,
    /// Estimated cost on one core.
    cost_ns: u64 = 0,
    compile_ns: u64 = 0,
};

/// The times of one planned instruction in one run; one in a block may have been called often.
pub const Record = extern struct {
    /// When its first call began, on a monotonic clock.
    start_ns: u64 = 0,
    /// In all its calls; of one that runs blocks, theirs included.
    ns: u64 = 0,
    calls: u64 = 0,
};

pub const Parameter = struct { name: []const u8, T: type };

pub const Function = struct {
    name: []const u8,
    doc: []const u8,
    parameters: []const Parameter,
};

fn p(comptime name: []const u8, comptime T: type) Parameter {
    return .{ .name = name, .T = T };
}

/// Every exported function, in the order of the header. All return a `Status` as u32.
/// A pointer written `?` may be null; every other one must not be.
pub const functions = [_]Function{
    .{
        .name = "pet_library_info",
        .doc = "What this library is: versions, opcode table, instruction set.",
        .parameters = &.{p("out", ?*LibraryInfo)},
    },
    .{
        .name = "pet_runtime_create",
        .doc = "Make a runtime. No thread starts before it is needed. options may be null.",
        .parameters = &.{
            p("options", ?*const RuntimeOptions),
            p("out", ?*Handle),
        },
    },
    .{
        .name = "pet_runtime_destroy",
        .doc = "Cancel and drain the runtime's jobs and release it; its buffers stay valid " ++
            "until released.",
        .parameters = &.{p("runtime", Handle)},
    },
    .{
        .name = "pet_runtime_set_threads",
        .doc = "Change the number of compute threads, the caller's included; 0 restores the " ++
            "default.",
        .parameters = &.{
            p("runtime", Handle),
            p("thread_count", u32),
        },
    },
    .{
        .name = "pet_runtime_stats",
        .doc = "Counters of the runtime.",
        .parameters = &.{
            p("runtime", Handle),
            p("out", ?*RuntimeStats),
        },
    },
    .{
        .name = "pet_runtime_trim",
        .doc = "Give memory that is kept for reuse (freed buffers, idle workspaces) back.",
        .parameters = &.{p("runtime", Handle)},
    },
    .{
        .name = "pet_buffer_create",
        .doc = "Make a buffer of `bytes` bytes, 64-byte aligned, contents undefined. " ++
            "out_data may be null.",
        .parameters = &.{
            p("runtime", Handle),
            p("bytes", u64),
            p("out", ?*Handle),
            p("out_data", ?*?[*]u8),
        },
    },
    .{
        .name = "pet_buffer_import",
        .doc = "Make a buffer over memory of the caller, aligned for its elements; bools are 0 " ++
            "and 1. It is read, never written, and must not change while a program runs on " ++
            "it. release(context), if not null, is called once when nothing uses the memory any " ++
            "more, on any thread; not if this fails.",
        .parameters = &.{
            p("runtime", Handle),
            p("data", ?[*]u8),
            p("bytes", u64),
            p("release", Release),
            p("context", ?*anyopaque),
            p("out", ?*Handle),
        },
    },
    .{
        .name = "pet_buffer_retain",
        .doc = "Count one more owner of the handle. A buffer with two owners is never reused " ++
            "in place.",
        .parameters = &.{p("buffer", Handle)},
    },
    .{
        .name = "pet_buffer_release",
        .doc = "Count one owner less; the last one frees the memory once no run and no " ++
            "export uses it.",
        .parameters = &.{p("buffer", Handle)},
    },
    .{
        .name = "pet_buffer_data",
        .doc = "Address and length of a buffer; valid while the handle or an export lives.",
        .parameters = &.{
            p("buffer", Handle),
            p("out_data", ?*?[*]u8),
            p("out_bytes", ?*u64),
        },
    },
    .{
        .name = "pet_buffer_export",
        .doc = "Make an export: the memory outlives the buffer's handle and is not reused in " ++
            "place.",
        .parameters = &.{
            p("buffer", Handle),
            p("out", ?*Handle),
        },
    },
    .{
        .name = "pet_buffer_unexport",
        .doc = "End an export.",
        .parameters = &.{p("exported", Handle)},
    },
    .{
        .name = "pet_token_create",
        .doc = "Make a cancellation token. One token may be given to any number of jobs.",
        .parameters = &.{p("out", ?*Handle)},
    },
    .{
        .name = "pet_token_cancel",
        .doc = "Cancel every job the token was given to, now or later.",
        .parameters = &.{p("token", Handle)},
    },
    .{
        .name = "pet_token_release",
        .doc = "Release the token; jobs that run under it are not affected.",
        .parameters = &.{p("token", Handle)},
    },
    .{
        .name = "pet_compile_submit",
        .doc = "Compile a program; its bytes must stay valid until the job is done or " ++
            "released. Small programs compile in this call. The job's result is one " ++
            "executable. token may be 0, options null.",
        .parameters = &.{
            p("runtime", Handle),
            p("bytes", ?[*]const u8),
            p("byte_count", u64),
            p("options", ?*const CompileOptions),
            p("token", Handle),
            p("out_job", ?*Handle),
        },
    },
    .{
        .name = "pet_run_submit",
        .doc = "Run an executable on its unbound inputs in order. A short program runs in " ++
            "this call: *out_job is 0 and outputs are written. A long one goes to a " ++
            "service thread: *out_job is a job, whose result are the outputs. On success " ++
            "the handles of donated inputs are released. token may be 0, error null.",
        .parameters = &.{
            p("executable", Handle),
            p("inputs", ?[*]const Handle),
            p("input_count", u32),
            p("outputs", ?[*]Handle),
            p("output_count", u32),
            p("token", Handle),
            p("out_job", ?*Handle),
            p("out_error", ?*Error),
        },
    },
    .{
        .name = "pet_run_profile",
        .doc = "As pet_run_submit, and write one record for each kernel that " ++
            "pet_executable_explain lists, in its order: record_count must be their number. " ++
            "The records must stay valid until the run is done.",
        .parameters = &.{
            p("executable", Handle),
            p("inputs", ?[*]const Handle),
            p("input_count", u32),
            p("outputs", ?[*]Handle),
            p("output_count", u32),
            p("token", Handle),
            p("records", ?[*]Record),
            p("record_count", u32),
            p("out_job", ?*Handle),
            p("out_error", ?*Error),
        },
    },
    .{
        .name = "pet_job_wait",
        .doc = "Wait at most slice_ms milliseconds. Writes 1 to *done and returns the job's " ++
            "status once it is finished, else writes 0 and returns ok, or host_call_pending " ++
            "if the run waits for the answer to a host call.",
        .parameters = &.{
            p("job", Handle),
            p("slice_ms", u32),
            p("done", ?*u32),
            p("out_error", ?*Error),
        },
    },
    .{
        .name = "pet_job_host_call",
        .doc = "What a job asks that waits for the answer to a host call; operands are written " ++
            "as far as capacity goes, and their memory stays until the answer. A call that was " ++
            "looked at must be answered, or its job released: until then not even a cancel " ++
            "ends the run. Without such a call: not_ready.",
        .parameters = &.{
            p("job", Handle),
            p("out", ?*HostCall),
            p("operands", ?[*]HostOperand),
            p("capacity", u32),
        },
    },
    .{
        .name = "pet_job_answer",
        .doc = "Answer the host call of a job: 0 lets it go on, anything else ends the run with " ++
            "host_call_failed and that value. Once for each call; not_ready if there is none.",
        .parameters = &.{
            p("job", Handle),
            p("answer", i64),
        },
    },
    .{
        .name = "pet_job_cancel",
        .doc = "Ask for cancellation; the job decides once whether it is cancelled or " ++
            "completed.",
        .parameters = &.{p("job", Handle)},
    },
    .{
        .name = "pet_job_result",
        .doc = "Take the handles a finished job made: capacity must be at least their " ++
            "number. Only once.",
        .parameters = &.{
            p("job", Handle),
            p("out", ?[*]Handle),
            p("capacity", u32),
        },
    },
    .{
        .name = "pet_job_release",
        .doc = "Release a job: cancels it if it still runs, frees a result nobody took.",
        .parameters = &.{p("job", Handle)},
    },
    .{
        .name = "pet_executable_bind",
        .doc = "Bind a buffer to an input for good; runs then leave that input out. A buffer " ++
            "handle may be released afterwards.",
        .parameters = &.{
            p("executable", Handle),
            p("input", u32),
            p("buffer", Handle),
        },
    },
    .{
        .name = "pet_executable_clone",
        .doc = "Another executable of the same plan, with nothing bound.",
        .parameters = &.{
            p("executable", Handle),
            p("out", ?*Handle),
        },
    },
    .{
        .name = "pet_executable_info",
        .doc = "Sizes and counts of an executable.",
        .parameters = &.{
            p("executable", Handle),
            p("out", ?*ExecutableInfo),
        },
    },
    .{
        .name = "pet_executable_explain",
        .doc = "Write a JSON description (passes, regions, kernels, arena map); *needed is " ++
            "its length, written whole only if capacity suffices. text may be null when " ++
            "capacity is 0.",
        .parameters = &.{
            p("executable", Handle),
            p("text", ?[*]u8),
            p("capacity", u64),
            p("needed", ?*u64),
        },
    },
    .{
        .name = "pet_executable_release",
        .doc = "Release an executable; runs in flight finish.",
        .parameters = &.{p("executable", Handle)},
    },
    .{
        .name = "pet_debug_fail_allocations",
        .doc = "While enabled, every allocation but that of a buffer's memory fails. For " ++
            "tests.",
        .parameters = &.{p("enable", u32)},
    },
};

comptime {
    assert(@sizeOf(Error) == 32 + 16 + 256);
    assert(@sizeOf(HostCall) == 24);
    assert(@sizeOf(HostOperand) == 24 + 128);
    assert(@sizeOf(LibraryInfo) == 24 + 32);
    assert(@sizeOf(RuntimeOptions) == 16);
    assert(@sizeOf(RuntimeStats) == 72);
    assert(@sizeOf(CompileOptions) == 8);
    assert(@sizeOf(ExecutableInfo) == 72);
    assert(@sizeOf(Record) == 24);
}
