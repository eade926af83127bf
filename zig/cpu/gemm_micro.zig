//! The innermost matrix multiply: a register tile of C, `rows` x `cols` of `gemm_shapes`, over a
//! run of k. One generic kernel; an instance for each number of rows, so a short last panel costs
//! what its rows cost.
//!
//! Numerics: each element is a chain of multiply-adds (fused where the hardware has it) in order of
//! k, begun at zero for each call, then added to C once. Independent of tile position.
const std = @import("std");
const builtin = @import("builtin");
const shapes = @import("gemm_shapes.zig");

const has_fma = switch (builtin.cpu.arch) {
    .aarch64 => true,
    .x86_64 => builtin.cpu.has(.x86, .fma),
    else => false,
};

/// a * b + c; wraps for integers. Without the instruction `@mulAdd` would call a function per lane.
pub inline fn multiplyAdd(a: anytype, b: @TypeOf(a), c: @TypeOf(a)) @TypeOf(a) {
    const info = @typeInfo(@TypeOf(a));
    const E = if (info == .vector) info.vector.child else @TypeOf(a);
    if (@typeInfo(E) != .float) return a *% b +% c;
    return if (has_fma) @mulAdd(@TypeOf(a), a, b, c) else a * b + c;
}

/// How A is laid out for a kernel.
const Layout = enum { panels, direct, pairs };

/// acc + a.low * b.low + a.high * b.high of the two bfloat16 in each lane. Subnormal inputs and
/// sums count as zero.
inline fn addPairs(acc: @Vector(16, f32), a: @Vector(16, f32), b: @Vector(16, f32)) @TypeOf(acc) {
    return asm ("vdpbf16ps %[b], %[a], %[acc]"
        : [acc] "=v" (-> @Vector(16, f32)),
        : [a] "v" (a),
          [b] "v" (b),
          [in] "0" (acc),
    );
}

/// The register tile of `kind` in this object.
pub fn Micro(comptime kind: shapes.Kind) type {
    const T = kind.Type();
    const shape = shapes.shapeOf(shapes.here, kind);
    return struct {
        pub const rows = shape.rows;
        pub const cols = shape.cols();
        pub const lanes = shape.lanes;
        pub const panel_stride = shape.panelStride();
        const vectors = shape.vectors;
        const V = @Vector(lanes, T);

        /// C[r, :] (+)= sum over k of A[r, k] * B[k, :], `depth` terms, `cols` columns.
        /// `a_step`: see the two tables. `b_step`, `c_step`: elements from row to row of B and C.
        pub const Kernel = *const fn (
            depth: usize,
            a: [*]const T,
            a_step: usize,
            b: [*]const T,
            b_step: usize,
            c: [*]T,
            c_step: usize,
            accumulate: bool,
        ) void;

        /// By number of rows (entry 0 is unused). A[r, k] is at `a[k * a_step + r]`: a packed
        /// panel, or a matrix whose rows are the contiguous axis.
        pub const by_rows: [rows + 1]Kernel = table(rows, .panels);
        /// A[r, k] is at `a[r * a_step + k]`: a row-major matrix, unpacked.
        pub const by_rows_direct: [direct_rows + 1]Kernel = table(direct_rows, .direct);
        /// As `by_rows`, but every element of A and B is two bfloat16, neighbours along k. Only
        /// where `shapes.has_pairs`.
        pub const by_rows_pairs: [rows + 1]Kernel = table(rows, .pairs);
        /// A row-major A needs an address register for each row: more rows would spill.
        pub const direct_rows = @min(rows, 8);

        fn table(comptime count: comptime_int, comptime layout: Layout) [count + 1]Kernel {
            @setEvalBranchQuota(100_000);
            var kernels: [count + 1]Kernel = undefined;
            for (1..count + 1) |r| kernels[r] = Instance(r, layout).run;
            kernels[0] = kernels[1];
            return kernels;
        }

        fn Instance(comptime r: comptime_int, comptime layout: Layout) type {
            const direct = layout == .direct;
            return struct {
                fn run(
                    depth: usize,
                    a: [*]const T,
                    a_step: usize,
                    b: [*]const T,
                    b_step: usize,
                    c: [*]T,
                    c_step: usize,
                    accumulate: bool,
                ) void {
                    @setEvalBranchQuota(100_000);
                    if (accumulate) inline for (0..r) |i| {
                        @prefetch(c + i * c_step, .{ .rw = .write, .locality = 3 });
                        @prefetch(c + i * c_step + cols - 1, .{ .rw = .write, .locality = 3 });
                    };
                    var acc: [r][vectors]V = @splat(@splat(@splat(0)));
                    var ap = a;
                    var bp = b;
                    var left = depth;
                    const unroll = 4;
                    while (left >= unroll) : (left -= unroll) {
                        inline for (0..unroll) |u| {
                            const ar = if (direct) ap + u else ap + u * a_step;
                            step(r, layout, &acc, ar, a_step, bp + u * b_step);
                        }
                        ap += if (direct) unroll else unroll * a_step;
                        bp += unroll * b_step;
                    }
                    while (left > 0) : (left -= 1) {
                        step(r, layout, &acc, ap, a_step, bp);
                        ap += if (direct) 1 else a_step;
                        bp += b_step;
                    }
                    inline for (0..r) |i| inline for (0..vectors) |j| {
                        const p = c + i * c_step + j * lanes;
                        const old: V = if (accumulate) p[0..lanes].* else @splat(0);
                        const is_float = @typeInfo(T) == .float;
                        p[0..lanes].* = if (is_float) old + acc[i][j] else old +% acc[i][j];
                    };
                }
            };
        }

        inline fn step(
            comptime r: comptime_int,
            comptime layout: Layout,
            acc: *[r][vectors]V,
            a: [*]const T,
            a_step: usize,
            b: [*]const T,
        ) void {
            var row: [vectors]V = undefined;
            inline for (0..vectors) |j| row[j] = b[j * lanes ..][0..lanes].*;
            inline for (0..r) |i| {
                const element: V = @splat(if (layout == .direct) a[i * a_step] else a[i]);
                inline for (0..vectors) |j| {
                    acc[i][j] = if (layout == .pairs)
                        addPairs(acc[i][j], element, row[j])
                    else
                        multiplyAdd(element, row[j], acc[i][j]);
                }
            }
        }
    };
}

fn small(comptime T: type, n: u64) T {
    return if (@typeInfo(T) == .float) @floatFromInt(n) else @truncate(n);
}

fn checkKind(comptime kind: shapes.Kind) !void {
    const T = kind.Type();
    const M = Micro(kind);
    const depth = 7;
    var a: [(depth + 1) * 64]T = undefined;
    var b: [depth * 64]T = undefined;
    for (&a, 0..) |*x, i| x.* = small(T, i * 7 % 11);
    for (&b, 0..) |*x, i| x.* = small(T, i * 5 % 13);
    inline for (.{ false, true }) |direct| {
        const table_rows = if (direct) M.direct_rows else M.rows;
        for (1..table_rows + 1) |r| {
            var c: [M.rows * M.cols]T = @splat(3);
            const kernel = if (direct) M.by_rows_direct[r] else M.by_rows[r];
            const a_step: usize = if (direct) depth else M.panel_stride;
            kernel(depth, &a, a_step, &b, M.cols, &c, M.cols, true);
            for (0..M.rows) |i| for (0..M.cols) |j| {
                var want: T = 3;
                if (i < r) for (0..depth) |k| {
                    const x = if (direct) a[i * a_step + k] else a[k * a_step + i];
                    want += x * b[k * M.cols + j];
                };
                try std.testing.expectEqual(want, c[i * M.cols + j]); // small integers: exact
            };
        }
    }
}

test "register tiles of every height, packed and direct" {
    inline for (.{ .f32, .f64, .u32, .u64 }) |kind| try checkKind(kind);
}
