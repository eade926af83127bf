//! The kernels of one instruction set as one table of functions. Each kernel object exports one
//! (`kernels.zig`); the library links all of them and picks one at the first runtime. Adding a
//! family is a name here, a line in `kernels.zig`, and a call of its `plan` in the lowering.
const std = @import("std");
const kernel_abi = @import("kernel_abi.zig");
const isa = @import("isa.zig");

/// A kernel family's entry point. The numbers live only inside one build of the library.
pub const Kernel = enum(u16) {
    elementwise,
    map_reduce,
    reduce,
    dot,
    softmax,
    arg_reduce,
    scan_axis,
    sort,
    search,
    check,
    random,
    norm,
    cross_entropy,
    structure,
    indexing,
    scatter,
    attention,
    attention_grad,
    linalg,
    window_sum,
    /// No kernel: the executor runs blocks, or the host is asked (`plan.Control`).
    control = 0xffff,

    pub const count = @typeInfo(Kernel).@"enum".field_names.len - 1;
};

pub const KernelTable = extern struct {
    run: [Kernel.count]kernel_abi.KernelFn,

    pub inline fn get(table: *const KernelTable, kernel: Kernel) kernel_abi.KernelFn {
        return table.run[@backingInt(kernel)];
    }
};

/// The name under which the object for an instruction set exports its table.
pub fn symbol(comptime suffix: []const u8) []const u8 {
    return "pet_kernels_" ++ suffix;
}

/// The kernels of this process: those of the best variant that is linked in and not better than the
/// machine (or `PYEFFECT_ISA`) allows; the poorest one linked in if all are better.
pub const Choice = struct { isa: isa.Isa, table: *const KernelTable };

pub fn choose() Choice {
    const limit = @backingInt(isa.detect());
    var best: Choice = choiceOf(linked[0]);
    inline for (linked) |suffix| {
        if (@backingInt(@field(isa.Isa, suffix)) <= limit) best = choiceOf(suffix);
    }
    return best;
}

/// Suffixes of the kernel objects in this library, from the poorest to the richest.
const linked = @import("cfg").kernels;

fn choiceOf(comptime suffix: []const u8) Choice {
    return .{
        .isa = @field(isa.Isa, suffix),
        .table = @extern(*const KernelTable, .{ .name = symbol(suffix) }),
    };
}
