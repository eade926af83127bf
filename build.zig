//! Builds the native library: `zig/root.zig` (checked, small panic handler) linked with one object
//! of `zig/kernels.zig` (fast) for each instruction set; the runtime chooses among those by CPU.
//!
//!   zig build                      library and C header, into zig-out or `-p DIR`
//!   zig build -Dkernels=native     the same with only this machine's best kernels: quicker
//!   zig build test                 the unit tests of zig/tests.zig
//!   zig build fuzz -- --count N    mutated programs against decoder, verifier, compiler and run
//!   zig build gen                  rewrites the committed files that follow from the Zig types
//!   zig build gen-fresh            the same files, into zig-out or `-p DIR`, to compare
//!   zig build fmt                  fails on a file that is not formatted
const std = @import("std");
const builtin = @import("builtin");
const Compile = std.Build.Step.Compile;
const Feature = std.Target.Cpu.Feature;

/// The language still moves: exactly the version that pyproject.toml pins.
const zig_version = "0.17.1";

comptime {
    if (!std.mem.eql(u8, builtin.zig_version_string, zig_version)) {
        @compileError("this project builds with Zig " ++ zig_version ++ ", not " ++
            builtin.zig_version_string ++ ": run `python -m ziglang` of ziglang==" ++ zig_version);
    }
}

/// One compilation of the kernels. `suffix` names its table, `pet_kernels_<suffix>`.
const Variant = struct {
    suffix: []const u8,
    model: *const std.Target.Cpu.Model,
    features: Feature.Set = .empty,
    /// What a machine must have. A model also has tuning flags, which say nothing about that.
    needed: Feature.Set = .empty,
};

const x86 = std.Target.x86;
const aarch64 = std.Target.aarch64;

// From the poorest to the richest, as in zig/cpu/isa.zig.
const x86_variants = [_]Variant{
    .{ .suffix = "v2", .model = &x86.cpu.x86_64_v2 },
    .{
        .suffix = "v3",
        .model = &x86.cpu.x86_64_v3,
        .needed = x86.featureSet(&.{ .avx2, .bmi, .bmi2, .f16c, .fma, .lzcnt, .movbe }),
    },
    .{
        .suffix = "v4",
        .model = &x86.cpu.x86_64_v4,
        .needed = x86.featureSet(&.{ .avx512f, .avx512bw, .avx512cd, .avx512dq, .avx512vl }),
    },
    .{
        .suffix = "v4b",
        .model = &x86.cpu.x86_64_v4,
        .features = x86.featureSet(&.{ .avx512bf16, .avx512vnni }),
        .needed = x86.featureSet(&.{ .avx512bf16, .avx512vnni }),
    },
};
const aarch64_variants = [_]Variant{
    .{ .suffix = "base", .model = &aarch64.cpu.generic },
    .{
        .suffix = "bf16",
        .model = &aarch64.cpu.generic,
        .features = aarch64.featureSet(&.{ .bf16, .i8mm, .dotprod }),
        .needed = aarch64.featureSet(&.{ .bf16, .i8mm, .dotprod }),
    },
};

/// What zig/gen.zig writes.
const opcodes_path = "pyeffect_torch/runtime/native/opcodes.py";
const header_path = "include/pyeffect_torch.h";

/// `all` is what ships. `native` holds one variant, the best this machine runs: for development.
const Kernels = enum { all, native };

const Settings = struct {
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    variants: []const Variant,
};

pub fn build(b: *std.Build) void {
    const target = chooseTarget(b);
    const kernels = b.option(
        Kernels,
        "kernels",
        "all (default), or native: only this machine's best",
    ) orelse .all;
    const settings: Settings = .{
        .target = target,
        .optimize = b.option(
            std.builtin.Optimize,
            "optimize",
            "how to build all but the kernels (default: safe)",
        ) orelse .safe,
        .variants = chooseVariants(b, target.result, kernels),
    };
    const objects = b.allocator.alloc(*Compile, settings.variants.len) catch @panic("OOM");
    for (settings.variants, objects) |variant, *object| object.* = addKernels(b, target, variant);

    addLibrary(b, settings, objects);
    addTests(b, settings, objects);
    addFuzzer(b, settings, objects);
    addGenerated(b);
    const check = b.addFmt(.{ .paths = &.{ b.path("build.zig"), b.path("zig") }, .check = true });
    b.step("fmt", "Fail on a file that `zig fmt` would change").dependOn(&check.step);
}

/// The host's own CPU must not leak into a wheel: without `-Dcpu` an x86-64 is an x86-64-v2.
fn chooseTarget(b: *std.Build) std.Build.ResolvedTarget {
    var query = b.standardTargetOptionsQueryOnly(.{});
    if (query.cpu_model == .determined_by_arch_os) {
        const arch = query.cpu_arch orelse b.graph.host.result.cpu.arch;
        query.cpu_model = if (arch == .x86_64) .{ .explicit = &x86.cpu.x86_64_v2 } else .baseline;
    }
    return b.resolveTargetQuery(query);
}

fn chooseVariants(b: *std.Build, target: std.Target, kernels: Kernels) []const Variant {
    const every: []const Variant = switch (target.cpu.arch) {
        .x86_64 => &x86_variants,
        .aarch64 => &aarch64_variants,
        else => @panic("there are kernels for x86_64 and aarch64 only"),
    };
    const host = b.graph.host.result.cpu;
    if (kernels == .all or host.arch != target.cpu.arch) return every;
    var best: usize = 0;
    for (every, 0..) |variant, index| {
        if (!host.features.isSuperSetOf(variant.needed)) break;
        best = index;
    }
    return every[best..][0..1];
}

/// The kernels for one instruction set. Their callers check every bound beforehand.
fn addKernels(b: *std.Build, base: std.Build.ResolvedTarget, variant: Variant) *Compile {
    var query = base.query;
    // A native query leaves these null, and an explicit CPU would then not fix the target.
    query.cpu_arch = base.result.cpu.arch;
    query.os_tag = base.result.os.tag;
    query.abi = base.result.abi;
    // Objects are not linked against it, and without it every wheel of a system shares them.
    query.glibc_version = null;
    query.cpu_model = .{ .explicit = variant.model };
    query.cpu_features_add = variant.features;
    query.cpu_features_sub = .empty;
    const module = b.createModule(.{
        .root_source_file = b.path("zig/kernels.zig"),
        .target = b.resolveTargetQuery(query),
        .optimize = .fast,
        .link_libc = true,
        .pic = true,
        .strip = true,
    });
    const options = b.addOptions();
    options.addOption([]const u8, "suffix", variant.suffix);
    module.addOptions("cfg", options);
    return b.addObject(.{
        .name = b.fmt("pet_kernels_{s}", .{variant.suffix}),
        .root_module = module,
        .use_llvm = true,
    });
}

/// A module of root code that may refer to the kernel tables; `@import("cfg").kernels` lists the
/// suffixes of those linked.
fn addRootModule(
    b: *std.Build,
    settings: Settings,
    objects: []const *Compile,
    path: []const u8,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
) *std.Build.Module {
    const module = b.createModule(.{
        .root_source_file = b.path(path),
        .target = target,
        .optimize = optimize,
        .link_libc = true,
        .pic = true,
        .strip = optimize != .debug,
    });
    const suffixes = b.allocator.alloc([]const u8, settings.variants.len) catch @panic("OOM");
    for (settings.variants, suffixes) |variant, *suffix| suffix.* = variant.suffix;
    const options = b.addOptions();
    options.addOption([]const []const u8, "kernels", suffixes);
    module.addOptions("cfg", options);
    for (objects) |object| module.addObject(object);
    return module;
}

fn addLibrary(b: *std.Build, settings: Settings, objects: []const *Compile) void {
    const root = addRootModule(
        b,
        settings,
        objects,
        "zig/root.zig",
        settings.target,
        settings.optimize,
    );
    const library = b.addLibrary(.{
        .name = "pet_cpu",
        .linkage = .dynamic,
        .root_module = root,
        .use_llvm = true,
    });
    library.link_gc_sections = true;
    if (settings.target.result.os.tag == .macos) library.install_name = "@rpath/libpet_cpu.dylib";
    // `.lib` on every system: Python looks in one folder, and Windows would say `bin`.
    const install = b.addInstallArtifact(library, .{
        .dest_dir = .{ .override = .lib },
        .implib_dir = .disabled,
        .pdb_dir = .disabled,
    });
    b.getInstallStep().dependOn(&install.step);
    const header = b.addInstallHeaderFile(b.path(header_path), std.fs.path.basename(header_path));
    b.getInstallStep().dependOn(&header.step);
}

fn addTests(b: *std.Build, settings: Settings, objects: []const *Compile) void {
    const filter = b.option(
        []const u8,
        "test-filter",
        "run only the tests with this in their name",
    );
    // The kernels' own tests are compiled for this machine, so that they cover its widest vectors.
    const host = b.graph.host.result;
    const target = settings.target.result;
    const runs_here = target.cpu.arch == host.cpu.arch and target.os.tag == host.os.tag and
        target.abi == host.abi;
    const chosen = if (runs_here) b.graph.host else settings.target;
    // Debug: every check of safe mode, and compiled in a third of its time.
    const optimize = b.option(
        std.builtin.Optimize,
        "test-optimize",
        "how to build the tests (default: debug)",
    ) orelse .debug;
    const root = addRootModule(b, settings, objects, "zig/tests.zig", chosen, optimize);
    const unit = b.addTest(.{
        .root_module = root,
        .use_llvm = true,
        .filters = if (filter) |text| b.dupeStrings(&.{text}) else &.{},
    });
    b.step("test", "Run the unit tests").dependOn(&b.addRunArtifact(unit).step);
}

fn addFuzzer(b: *std.Build, settings: Settings, objects: []const *Compile) void {
    const path = "zig/wire_fuzz.zig";
    const fuzzer = b.addExecutable(.{
        .name = "wire_fuzz",
        .root_module = addRootModule(b, settings, objects, path, settings.target, .safe),
        .use_llvm = true,
    });
    const run = b.addRunArtifact(fuzzer);
    run.stdio = .inherit;
    run.addPassthruArgs();
    b.step("fuzz", "Run the mutation fuzzer with the arguments after --").dependOn(&run.step);
}

fn addGenerated(b: *std.Build) void {
    const generator = b.addExecutable(.{
        .name = "gen",
        .root_module = b.createModule(.{
            .root_source_file = b.path("zig/gen.zig"),
            .target = b.graph.host,
            .optimize = .debug,
        }),
    });
    const run = b.addRunArtifact(generator);
    const opcodes = run.addOutputFileArg(std.fs.path.basename(opcodes_path));
    const header = run.addOutputFileArg(std.fs.path.basename(header_path));

    const update = b.addUpdateSourceFiles();
    update.addCopyFileToSource(opcodes, opcodes_path);
    update.addCopyFileToSource(header, header_path);
    const gen = b.step("gen", "Rewrite the committed files that follow from the Zig types");
    gen.dependOn(&update.step);

    const fresh = b.step("gen-fresh", "Write the same files under the prefix");
    fresh.dependOn(&b.addInstallFile(opcodes, opcodes_path).step);
    fresh.dependOn(&b.addInstallFile(header, header_path).step);
}
