//! Matrix times a few vectors (and dot products): products with at most eight rows of A. They
//! are bound by reading B once, so B is streamed as it lies: along k (each column of B is a
//! contiguous run; sums are reduced across lanes) or along columns (each k adds a multiple of a row
//! of B to a row of C, in strips of rows so that several pages stream at once).
//!
//! Numerics: along k, each chunk of 1024 to 4096 terms is summed in lanes and folded as a tree, and
//! chunks are added in order; along columns, strips of 16 terms are summed and added in order.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const kernel_abi = @import("kernel_abi.zig");
const TaskContext = kernel_abi.TaskContext;
const shapes = @import("gemm_shapes.zig");
const gemm = @import("gemm.zig");
const Geometry = gemm.Geometry;
const gemm_pack = @import("gemm_pack.zig");
const multiplyAdd = @import("gemm_micro.zig").multiplyAdd;
const fold = @import("lanes.zig").fold;
const at = @import("view.zig").at;

/// Rows of A this path takes: none of integers, which would be code for little use. At 16 rows the
/// broadcasts and the folds already cost more than packing B.
pub fn rowsMax(kind: shapes.Kind) u64 {
    return switch (kind) {
        .f32 => rows_max,
        .f64 => 4,
        .u32, .u64 => 0,
    };
}

const rows_max = 8;
/// Elements of A at hand: all rows of a chunk of k stay in the first-level cache.
const chunk_elements = 8192;
const chunk_max = 4096;
/// Rows of B that are added to C together.
const strip = 16;

/// Elements of scratch: a chunk of A, then the sums of the task.
pub fn scratchElements(cols_per_task: u64) u64 {
    return chunk_elements + rows_max * cols_per_task;
}

pub fn Thin(comptime d: DType) type {
    return struct {
        const S = dtype.Storage(d);
        const kind = shapes.Kind.of(d);
        const T = kind.Type();
        const packer = gemm_pack.Pack(d);
        const lanes = shapes.shapeOf(shapes.here, kind).lanes;
        const V = @Vector(lanes, T);
        /// Sums kept in registers: half of them or so.
        const budget = if (shapes.register_count >= 32) 16 else 8;

        const most = rowsMax(kind);

        pub fn run(g: *const Geometry, ptrs: [*]const [*]u8, task: u64, ctx: *TaskContext) void {
            const p: gemm.Pointers = .of(g, ptrs);
            if (g.splits > 1 and task >= g.work.phase_task_count) {
                return gemm.combine(d, g, p, task - g.work.phase_task_count, ctx);
            }
            const part: gemm.Part = .of(g, task);
            for (part.batch_begin..part.batch_end) |batch| {
                if (ctx.isCancelled()) return;
                // The number of rows is rounded up to an instance; the last row is then repeated.
                const finished = switch (g.m) {
                    1 => Rows(1).product(g, p, part, batch, ctx),
                    2, 3, 4 => Rows(4).product(g, p, part, batch, ctx),
                    // float64 has no instance of eight.
                    5...rows_max => Rows(most).product(g, p, part, batch, ctx),
                    else => unreachable,
                };
                if (!finished) return;
            }
        }

        fn Rows(comptime rows: comptime_int) type {
            return struct {
                const chunk = @min(chunk_elements / rows, chunk_max);
                const width_max = @max(1, @min(4, budget / rows));
                /// Where each row of A begins, for the chunk at hand.
                const Lines = [rows][*]const T;

                fn product(
                    g: *const Geometry,
                    p: gemm.Pointers,
                    part: gemm.Part,
                    batch: u64,
                    ctx: *TaskContext,
                ) bool {
                    const both = gemm.views(S, g, p, batch);
                    const memory: [*]T = @ptrCast(ctx.scratch);
                    const sums = memory + chunk_elements;
                    const cols = part.col_end - part.col_begin;
                    @memset(sums[0 .. rows * cols], 0);
                    const col_stride = both.b.lane.inner();
                    const depth_stride = both.b.depth.inner();
                    const first = @as(i64, @intCast(part.col_begin)) * col_stride;
                    const base = at(S, @ptrCast(@alignCast(both.b.base)), first);
                    var depth = part.depth_begin;
                    while (depth < part.depth_end) {
                        if (ctx.isCancelled()) return false;
                        const count = @min(chunk, part.depth_end - depth);
                        const a = loadRows(both.a, g.m, depth, count, memory);
                        const b = at(S, base, @as(i64, @intCast(depth)) * depth_stride);
                        if (g.mode == .thin_depth) {
                            alongDepth(b, col_stride, count, a, sums, cols);
                        } else {
                            alongCols(b, depth_stride, count, a, sums, cols);
                        }
                        depth += count;
                    }
                    store(g, p, part, batch, sums);
                    return true;
                }

                /// `count` terms of the rows of A: in place, or copied to `scratch`.
                fn loadRows(
                    view: gemm_pack.View,
                    m: u64,
                    depth: u64,
                    count: u64,
                    scratch: [*]T,
                ) Lines {
                    const a: [*]const S = @ptrCast(@alignCast(view.base));
                    var lines: Lines = undefined;
                    const unit = view.depth.rank == 1 and view.depth.inner() == 1;
                    for (0..rows) |r| {
                        const row = at(S, a, view.lane.offset(@min(r, m - 1)));
                        if (S == T and unit) {
                            lines[r] = row + depth;
                            continue;
                        }
                        const line = scratch + r * chunk;
                        lines[r] = line;
                        if (unit) {
                            for (line[0..count], row[depth..][0..count]) |*x, y| {
                                x.* = packer.widen(y);
                            }
                        } else for (0..count) |k| {
                            line[k] = packer.widen(at(S, row, view.depth.offset(depth + k))[0]);
                        }
                    }
                    return lines;
                }

                fn store(
                    g: *const Geometry,
                    p: gemm.Pointers,
                    part: gemm.Part,
                    batch: u64,
                    sums: [*]const T,
                ) void {
                    const cols = part.col_end - part.col_begin;
                    const size = g.m * g.n;
                    if (g.splits > 1) {
                        const partial: [*]T = @ptrCast(@alignCast(p.shared));
                        const corner = (part.split * g.batch + batch) * size + part.col_begin;
                        for (0..g.m) |r| {
                            const to = partial + corner + r * g.n;
                            @memcpy(to[0..cols], sums[r * cols ..][0..cols]);
                        }
                        return;
                    }
                    const c = @as([*]S, @ptrCast(@alignCast(p.c))) + batch * size;
                    for (0..g.m) |r| {
                        const to = c + r * g.c_row_stride + part.col_begin * g.c_col_stride;
                        const from = sums + r * cols;
                        if (g.c_col_stride == 1) {
                            gemm.storeRow(d, to, from, cols);
                        } else for (0..cols) |j| {
                            to[j * g.c_col_stride] = gemm.narrow(d, from[j]);
                        }
                    }
                }

                fn alongDepth(
                    b: [*]const S,
                    stride: i64,
                    count: u64,
                    a: Lines,
                    sums: [*]T,
                    cols: u64,
                ) void {
                    @setEvalBranchQuota(20_000);
                    var col: u64 = 0;
                    while (col < cols) : (col += width_max) {
                        dots(b, stride, col, count, &a, sums, cols);
                    }
                }

                /// `width_max` neighbouring columns of B by all rows of A. Past the last column it
                /// is read again.
                fn dots(
                    b: [*]const S,
                    stride: i64,
                    col: u64,
                    count: u64,
                    a: *const Lines,
                    sums: [*]T,
                    cols: u64,
                ) void {
                    const width = width_max;
                    // Independent chains enough to cover the latency of a multiply-add.
                    const unroll = @max(1, 8 / (width * rows));
                    var line: [width][*]const S = undefined;
                    inline for (0..width) |w| {
                        const column: i64 = @intCast(@min(col + w, cols - 1));
                        line[w] = at(S, b, column * stride);
                    }
                    var acc: [unroll][rows][width]V = @splat(@splat(@splat(@splat(0))));
                    var k: u64 = 0;
                    while (k + unroll * lanes <= count) : (k += unroll * lanes) {
                        inline for (0..unroll) |u| {
                            var y: [width]V = undefined;
                            inline for (0..width) |w| y[w] = packer.load(line[w] + k + u * lanes);
                            inline for (0..rows) |r| {
                                const x: V = a[r][k + u * lanes ..][0..lanes].*;
                                inline for (0..width) |w| {
                                    acc[u][r][w] = multiplyAdd(x, y[w], acc[u][r][w]);
                                }
                            }
                        }
                    }
                    // A copy in memory, so that what is left can be a loop.
                    var partial: [rows][width]V = acc[0];
                    inline for (1..unroll) |u| {
                        inline for (0..rows) |r| inline for (0..width) |w| {
                            partial[r][w] += acc[u][r][w];
                        };
                    }
                    for (0..rows) |r| for (0..@min(width, cols - col)) |w| {
                        var total = fold(.sum, partial[r][w]);
                        for (k..count) |i| {
                            total = multiplyAdd(packer.widen(line[w][i]), a[r][i], total);
                        }
                        sums[r * cols + col + w] += total;
                    };
                }

                fn alongCols(
                    b: [*]const S,
                    stride: i64,
                    count: u64,
                    a: Lines,
                    sums: [*]T,
                    cols: u64,
                ) void {
                    @setEvalBranchQuota(20_000);
                    var k: u64 = 0;
                    while (k < count) : (k += strip) {
                        const height = @min(strip, count - k);
                        const from = at(S, b, @as(i64, @intCast(k)) * stride);
                        var lines: Lines = undefined;
                        inline for (0..rows) |r| lines[r] = a[r] + k;
                        var col: u64 = 0;
                        while (col + width_max * lanes <= cols) : (col += width_max * lanes) {
                            add(width_max, from + col, stride, height, &lines, sums + col, cols);
                        }
                        if (width_max > 1) while (col + lanes <= cols) : (col += lanes) {
                            add(1, from + col, stride, height, &lines, sums + col, cols);
                        };
                        while (col < cols) : (col += 1) for (0..rows) |r| {
                            var total: T = 0;
                            for (0..height) |i| {
                                const y = at(S, from + col, @as(i64, @intCast(i)) * stride)[0];
                                total = multiplyAdd(packer.widen(y), lines[r][i], total);
                            }
                            sums[r * cols + col] += total;
                        };
                    }
                }

                inline fn add(
                    comptime width: comptime_int,
                    b: [*]const S,
                    stride: i64,
                    height: u64,
                    a: *const Lines,
                    sums: [*]T,
                    cols: u64,
                ) void {
                    var acc: [rows][width]V = @splat(@splat(@splat(0)));
                    var row = b;
                    for (0..height) |i| {
                        var y: [width]V = undefined;
                        inline for (0..width) |w| y[w] = packer.load(row + w * lanes);
                        inline for (0..rows) |r| {
                            const x: V = @splat(a[r][i]);
                            inline for (0..width) |w| acc[r][w] = multiplyAdd(x, y[w], acc[r][w]);
                        }
                        row = at(S, row, stride);
                    }
                    inline for (0..rows) |r| inline for (0..width) |w| {
                        const to = sums + r * cols + w * lanes;
                        const old: V = to[0..lanes].*;
                        to[0..lanes].* = old + acc[r][w];
                    };
                }
            };
        }
    };
}
