//! The kernels of one instruction set: compiled once for each, without safety checks, into an
//! object that exports nothing but its table (hidden: visible inside the library only).
const std = @import("std");
const kernel_table = @import("cpu/kernel_table.zig");
const KernelTable = kernel_table.KernelTable;
const Kernel = kernel_table.Kernel;

/// This object's own handler; the default one would bring in files, threads and sockets.
pub const panic = @import("panic.zig").handler;

const table: KernelTable = .{ .run = entries() };

fn entries() [Kernel.count]@import("cpu/kernel_abi.zig").KernelFn {
    var run: [Kernel.count]@import("cpu/kernel_abi.zig").KernelFn = undefined;
    for (std.enums.values(Kernel)) |kernel| {
        if (kernel != .control) run[@backingInt(kernel)] = family(kernel).run;
    }
    return run;
}

fn family(comptime kernel: Kernel) type {
    return switch (kernel) {
        .elementwise => @import("cpu/elementwise.zig"),
        .map_reduce => @import("cpu/map_reduce.zig"),
        .reduce => @import("cpu/reduce.zig"),
        .dot => @import("cpu/dot.zig"),
        .softmax => @import("cpu/softmax.zig"),
        .arg_reduce => @import("cpu/arg_reduce.zig"),
        .scan_axis => @import("cpu/scan_axis.zig"),
        .sort => @import("cpu/sort.zig"),
        .search => @import("cpu/search.zig"),
        .check => @import("cpu/check.zig"),
        .random => @import("cpu/random.zig"),
        .norm => @import("cpu/norm.zig"),
        .structure => @import("cpu/structure.zig"),
        .indexing => @import("cpu/indexing.zig"),
        .scatter => @import("cpu/scatter.zig"),
        .attention => @import("cpu/attention.zig"),
        .attention_grad => @import("cpu/attention_grad.zig"),
        .cross_entropy => @import("cpu/cross_entropy.zig"),
        .linalg => @import("cpu/linalg.zig"),
        .control => @compileError("not a kernel"),
        .window_sum => @import("cpu/window_sum.zig"),
    };
}

comptime {
    @setEvalBranchQuota(100_000);
    @export(&table, .{
        .name = kernel_table.symbol(@import("cfg").suffix),
        .visibility = .hidden,
    });
}
