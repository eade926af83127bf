//! The mutation fuzzer of the wire format, an executable:
//!
//!     wire_fuzz [--seed N] [--first N] [--count N] [--corpus DIR] [--save FILE]
//!
//! Each case takes a generated program or a file of the corpus, breaks it (or leaves it as it is)
//! and takes it as far as it goes: decoder, verifier, compiler, run. Nothing may panic, crash, hang
//! or write behind its memory. A case depends on the seed and its number only: a crash prints both,
//! and `--first` starts there; `--save` writes the bytes of each case, so of the last one.
//!
//! At the end it prints how far the cases came; fewer than 30 % past the decoder or 1 % through a
//! run means that the mutations no longer fit the format, and fails too. Built without kernels
//! (`cfg.kernels` empty), it ends after the verifier.
const std = @import("std");
const Allocator = std.mem.Allocator;
const verify = @import("verify.zig");
const wire = @import("wire.zig");
const wire_encode = @import("wire_encode.zig");
const wire_fuzz_execute = @import("wire_fuzz_execute.zig");
const wire_fuzz_generate = @import("wire_fuzz_generate.zig");
const wire_fuzz_mutate = @import("wire_fuzz_mutate.zig");

pub const panic = std.debug.FullPanic(onPanic);

/// Kernel objects are linked in.
const executes = @import("cfg").kernels.len > 0;
const Executor = if (executes) wire_fuzz_execute.Executor else void;

const decoded_percent_min = 30;
const executed_percent_min = 1;
/// Instructions of a generated program at most.
const instruction_count_max = 24;
const corpus_file_bytes_max = 1 << 22;
/// A case that takes longer hangs; a slow one takes a tenth of a second.
const case_seconds_max = 60;

const Error = error{
    /// An argument that is not one of those above.
    BadArguments,
    /// A kernel wrote behind its memory; the case was printed.
    Overrun,
    /// Two runs that must give the same bits did not; the case was printed.
    Differs,
    /// The program that was generated is refused; the case was printed.
    GeneratedRefused,
    /// Too few cases came far enough.
    TooShallow,
};

const Options = struct {
    seed: u64 = 1,
    first: u64 = 0,
    count: u64 = 10_000,
    corpus: ?[]const u8 = null,
    save: ?[]const u8 = null,
};

const Statistics = struct {
    cases: u64 = 0,
    decoded: u64 = 0,
    verified: u64 = 0,
    compiled: u64 = 0,
    completed: u64 = 0,
    failed: u64 = 0,
};

/// What a panic prints.
var current_seed: u64 = 0;
var current_case: u64 = 0;

extern "c" fn abort() noreturn;
extern "c" fn alarm(seconds: c_uint) c_uint;

fn onPanic(message: []const u8, return_address: ?usize) noreturn {
    std.debug.print("--seed {d} --first {d} --count 1\n", .{ current_seed, current_case });
    std.debug.defaultPanic(message, return_address);
}

fn onSignal(signal: std.posix.SIG) callconv(.c) void {
    std.debug.print("signal {t}: --seed {d} --first {d} --count 1\n", .{
        signal, current_seed, current_case,
    });
    abort();
}

fn onTimer(_: std.posix.SIG) callconv(.c) void {
    if (executes) wire_fuzz_execute.watchdog.bark();
}

pub fn main(init: std.process.Init) !void {
    const arena = init.arena.allocator();
    const options = try parse(try init.minimal.args.toSlice(arena));
    installHandlers();
    const corpus = if (options.corpus) |path| try readCorpus(arena, init.io, path) else &.{};
    var statistics: Statistics = .{};
    var executor: Executor = if (executes) .init() else {};
    defer if (executes) executor.deinit();
    current_seed = options.seed;
    for (options.first..options.first + options.count) |case| {
        current_case = case;
        _ = alarm(case_seconds_max);
        var case_arena: std.heap.ArenaAllocator = .init(std.heap.smp_allocator);
        defer case_arena.deinit();
        const chosen = try chooseCase(case_arena.allocator(), corpus);
        if (options.save) |path| {
            try std.Io.Dir.cwd().writeFile(init.io, .{ .sub_path = path, .data = chosen.bytes });
        }
        runCase(case_arena.allocator(), chosen, &executor, &statistics) catch |err| {
            std.debug.print("{t}: --seed {d} --first {d} --count 1\n", .{
                err, options.seed, case,
            });
            return err;
        };
    }
    try report(options, &statistics);
}

fn parse(arguments: []const [:0]const u8) Error!Options {
    var options: Options = .{};
    var n: usize = 1;
    while (n < arguments.len) : (n += 2) {
        if (n + 1 == arguments.len) return error.BadArguments;
        const name = arguments[n];
        const value = arguments[n + 1];
        if (std.mem.eql(u8, name, "--corpus")) {
            options.corpus = value;
            continue;
        }
        if (std.mem.eql(u8, name, "--save")) {
            options.save = value;
            continue;
        }
        const number = std.fmt.parseInt(u64, value, 0) catch return error.BadArguments;
        if (std.mem.eql(u8, name, "--seed")) {
            options.seed = number;
        } else if (std.mem.eql(u8, name, "--first")) {
            options.first = number;
        } else if (std.mem.eql(u8, name, "--count")) {
            options.count = number;
        } else return error.BadArguments;
    }
    return options;
}

fn installHandlers() void {
    const action: std.posix.Sigaction = .{
        .handler = .{ .handler = onSignal },
        .mask = std.posix.sigemptyset(),
        .flags = std.posix.SA.RESETHAND,
    };
    const bark: std.posix.Sigaction = .{
        .handler = .{ .handler = onTimer },
        .mask = std.posix.sigemptyset(),
        .flags = std.posix.SA.RESTART,
    };
    std.posix.sigaction(.VTALRM, &bark, null);
    for ([_]std.posix.SIG{ .SEGV, .BUS, .ILL, .FPE, .ALRM }) |signal| {
        std.posix.sigaction(signal, &action, null);
    }
}

fn readCorpus(arena: Allocator, io: std.Io, path: []const u8) ![]const []const u8 {
    var files: std.ArrayList([]const u8) = .empty;
    var directory = try std.Io.Dir.cwd().openDir(io, path, .{ .iterate = true });
    defer directory.close(io);
    var names: std.ArrayList([]const u8) = .empty;
    var entries = directory.iterate();
    while (try entries.next(io)) |entry| {
        if (entry.kind == .file) try names.append(arena, try arena.dupe(u8, entry.name));
    }
    // The order of a directory is anyone's; cases must not depend on it.
    std.mem.sort([]const u8, names.items, {}, lessThan);
    for (names.items) |name| {
        const limit: std.Io.Limit = .limited(corpus_file_bytes_max);
        try files.append(arena, try directory.readFileAlloc(io, name, arena, limit));
    }
    return files.items;
}

fn lessThan(_: void, a: []const u8, b: []const u8) bool {
    return std.mem.order(u8, a, b) == .lt;
}

const Case = struct {
    bytes: []const u8,
    /// Generated and left whole: nothing may refuse it.
    is_valid: bool,
};

fn chooseCase(arena: Allocator, corpus: []const []const u8) Allocator.Error!Case {
    var prng: std.Random.DefaultPrng = .init(caseSeed());
    const random = prng.random();
    const from_corpus = corpus.len > 0 and random.boolean();
    const whole: []const u8 = if (from_corpus)
        corpus[random.uintLessThan(usize, corpus.len)]
    else generated: {
        const count = random.uintAtMost(usize, instruction_count_max);
        const program = try wire_fuzz_generate.program(arena, random, count);
        break :generated try wire_encode.encode(arena, &program);
    };
    const is_whole = random.uintLessThan(u8, 8) == 0;
    return .{
        .bytes = if (is_whole) whole else try wire_fuzz_mutate.mutate(arena, random, whole),
        .is_valid = is_whole and !from_corpus,
    };
}

fn caseSeed() u64 {
    return current_seed *% 0x9e37_79b9_7f4a_7c15 +% current_case;
}

fn runCase(
    arena: Allocator,
    case: Case,
    executor: *Executor,
    statistics: *Statistics,
) (Error || Allocator.Error)!void {
    const bytes = case.bytes;
    statistics.cases += 1;
    var diagnostic: wire.Diagnostic = .{};
    const program = wire.decode(arena, bytes, &diagnostic) catch |err| {
        if (err == error.OutOfMemory) return error.OutOfMemory;
        return refused(case.is_valid, diagnostic);
    };
    statistics.decoded += 1;
    verify.verify(arena, &program, &diagnostic) catch |err| {
        if (err == error.OutOfMemory) return error.OutOfMemory;
        return refused(case.is_valid, diagnostic);
    };
    statistics.verified += 1;
    if (!executes) return;
    var prng: std.Random.DefaultPrng = .init(~caseSeed());
    switch (try executor.execute(std.heap.smp_allocator, prng.random(), bytes, &program)) {
        .refused => return,
        .too_large => {},
        .completed => statistics.completed += 1,
        .failed, .cancelled => statistics.failed += 1,
        .overrun => return error.Overrun,
        .differs => return error.Differs,
    }
    statistics.compiled += 1;
}

fn refused(is_valid: bool, diagnostic: wire.Diagnostic) Error!void {
    if (diagnostic.message == .none) @panic("refused without a reason");
    if (!is_valid) return;
    std.debug.print("{f}\n", .{diagnostic});
    return error.GeneratedRefused;
}

fn report(options: Options, s: *const Statistics) Error!void {
    std.debug.print(
        "seed {d}: {d} cases, {d} decoded, {d} verified, {d} compiled, {d} completed, " ++
            "{d} ended with an error\n",
        .{ options.seed, s.cases, s.decoded, s.verified, s.compiled, s.completed, s.failed },
    );
    if (s.cases < 1000) return; // too few for percentages
    if (s.decoded * 100 < s.cases * decoded_percent_min) return error.TooShallow;
    if (!executes) return;
    const executed = s.completed + s.failed;
    if (executed * 100 < s.cases * executed_percent_min) return error.TooShallow;
}
