//! Factorisations of matrices, and solutions of triangular systems: one matrix of a stack, or a
//! block of right-hand sides, is a unit; a task does as many units as take some 50 us.
//!
//! Numerics: float32 and float64 alike are computed in float64 and rounded once. Signs and orders
//! are LAPACK's where they are not free: pivots of LU, reflections of QR, eigenvalues ascending,
//! singular values descending. An eigenvector, and a left singular vector, has its element of
//! largest magnitude positive. An element that is infinite or NaN makes the results of qr, eigh and
//! svd NaN, as does a matrix that is not positive definite those of cholesky.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const eigh = @import("linalg_eigh.zig");
const matrix = @import("linalg_matrix.zig");
const qr = @import("linalg_qr.zig");
const solve = @import("linalg_solve.zig");
const svd = @import("linalg_svd.zig");
const vector = @import("linalg_vector.zig");
const DType = dtype.DType;
const Memory = matrix.Memory;
const Operand = kernel_abi.Operand;
const Queue = vector.Queue;
const Stack = matrix.Stack;
const Target = matrix.Target;
const TaskContext = kernel_abi.TaskContext;

pub const Op = enum(u32) { lu, triangular_solve, cholesky, qr, eigh, svd };

/// What differs between instructions of one op.
pub const Options = packed struct(u32) {
    /// triangular_solve: the operand is lower triangular; is transposed first; has a diagonal of 1.
    lower: bool = false,
    transpose: bool = false,
    unit_diagonal: bool = false,
    /// qr: all columns of Q.
    complete: bool = false,
    /// eigh, svd: somebody reads the vectors.
    vectors: bool = false,
    unused: u27 = 0,
};

/// Nanoseconds of a task.
const task_ns = 50_000;
/// Right-hand sides of a unit; each unit reads the whole triangle.
const block_columns = 32;

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    op: Op,
    dtype: DType,
    options: Options,
    a: Stack,
    /// The right-hand sides of triangular_solve.
    b: Stack,
    blocks: u64,
    unit_count: u64,
    units_per_task: u64,
};

/// `rhs` is given for triangular_solve only; it has the leading axes of `a`.
pub fn plan(op: Op, a: *const Operand, rhs: ?*const Operand, options: Options) Geometry {
    assert(a.dtype == .f32 or a.dtype == .f64);
    assert((rhs != null) == (op == .triangular_solve));
    var g = std.mem.zeroes(Geometry);
    g.op = op;
    g.dtype = a.dtype;
    g.options = options;
    g.a = .of(a);
    g.b = .of(rhs orelse a);
    g.blocks = if (rhs == null) 1 else (g.b.columns + block_columns - 1) / block_columns;
    g.unit_count = g.a.lead.count() * g.blocks;
    const each = costOf(&g);
    g.units_per_task = @max(1, task_ns / each);
    g.work.task_count = (g.unit_count + g.units_per_task - 1) / g.units_per_task;
    g.work.scratch_bytes = scratchWords(&g) * @sizeOf(f64);
    g.work.cost_ns = each *| g.unit_count;
    return g;
}

/// Nanoseconds of a unit, at two operations in one; what would not fit 64 bits is the largest.
fn costOf(g: *const Geometry) u64 {
    const m = g.a.rows;
    const n = g.a.columns;
    const small = @min(m, n);
    const cube = n *| n *| n;
    const sum: u64 = switch (g.op) {
        .lu => cube / 3,
        .cholesky => cube / 6,
        .triangular_solve => n *| n *| @min(g.b.columns, block_columns) / 2,
        .qr => 2 *| m *| small *| @max(n, small),
        .eigh => if (g.options.vectors) 5 *| cube else cube,
        .svd => (if (g.options.vectors) @as(u64, 7) else 2) *| m *| n *| small,
    };
    return 200 +| m *| n +| sum;
}

/// Elements of float64. No operand or result has more than 2^48 elements, so the sums fit.
fn scratchWords(g: *const Geometry) u64 {
    const m = g.a.rows;
    const n = g.a.columns;
    const small = @min(m, n);
    const large = @max(m, n);
    return switch (g.op) {
        .lu => n * n + n,
        .cholesky => n * n,
        .triangular_solve => n * n + n * block_columns,
        .qr => m * n + small + m * columnsOfQ(g),
        .eigh => 2 * n * n + 5 * n + Queue.wordsFor(n),
        .svd => m * n + small * (m + n) + 6 * small + large + 2 * Queue.wordsFor(small),
    };
}

fn columnsOfQ(g: *const Geometry) u64 {
    return if (g.options.complete) g.a.rows else @min(g.a.rows, g.a.columns);
}

/// ptrs: the results, the matrix, the right-hand sides of triangular_solve.
pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const start = task * g.units_per_task;
    for (start..@min(start + g.units_per_task, g.unit_count)) |unit| {
        if (ctx.isCancelled()) return;
        var memory: Memory = .{ .next = @ptrCast(ctx.scratch) };
        switch (g.op) {
            .lu => runLu(g, ptrs, unit, &memory, ctx),
            .triangular_solve => runTriangularSolve(g, ptrs, unit, &memory, ctx),
            .cholesky => runCholesky(g, ptrs, unit, &memory, ctx),
            .qr => runQr(g, ptrs, unit, &memory, ctx),
            .eigh => runEigh(g, ptrs, unit, &memory, ctx),
            .svd => runSvd(g, ptrs, unit, &memory, ctx),
        }
    }
}

/// Results: L and U in one matrix, the permutation of the rows, its sign.
fn runLu(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    memory: *Memory,
    ctx: *TaskContext,
) void {
    const n = g.a.rows;
    const a = memory.take(n * n);
    g.a.at(g.dtype, ptrs[3], unit).read(a);
    const permutation: [*]i64 = @ptrCast(@alignCast(ptrs[1]));
    const sign = solve.factor(n, a, permutation + unit * n, memory.take(n), ctx);
    Target.of(g.dtype, ptrs[0], unit, n, n).store(n, n, a, .{ n, 1 }, 1, .whole);
    Target.of(g.dtype, ptrs[2], unit, 1, 1).fill(1, 1, sign);
}

fn runTriangularSolve(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    memory: *Memory,
    ctx: *TaskContext,
) void {
    const n = g.a.rows;
    const index = unit / g.blocks;
    const first = unit % g.blocks * block_columns;
    const count = @min(block_columns, g.b.columns - first);
    var t = g.a.at(g.dtype, ptrs[1], index);
    var b = g.b.at(g.dtype, ptrs[2], index).columnsFrom(first, count);
    if (g.options.transpose) t = t.transposed();
    // An upper triangle is a lower one with rows and columns in the opposite order.
    const upper = g.options.lower == g.options.transpose;
    if (upper) {
        t = t.reversed().transposed().reversed().transposed();
        b = b.reversed();
    }
    const triangle = memory.take(n * n);
    t.readLower(triangle);
    const x = memory.take(n * block_columns);
    b.transposed().read(x);
    const rounded = std.mem.alignForward(u64, count, solve.side_by_side);
    @memset(x[n * count .. n * rounded], 0);
    solve.solveLower(n, triangle, g.options.unit_diagonal, rounded, x, ctx);
    if (upper) for (0..count) |k| std.mem.reverse(f64, x[k * n ..][0..n]);
    const to = Target.of(g.dtype, ptrs[0], index, n, g.b.columns).from(0, first);
    to.store(n, count, x, .{ 1, n }, 1, .whole);
}

fn runCholesky(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    memory: *Memory,
    ctx: *TaskContext,
) void {
    const n = g.a.rows;
    const a = readSymmetric(g, ptrs[1], unit, memory);
    if (!solve.cholesky(n, a, ctx)) {
        for (0..n) |i| @memset(a[i * n ..][0 .. i + 1], std.math.nan(f64));
    }
    Target.of(g.dtype, ptrs[0], unit, n, n).store(n, n, a, .{ n, 1 }, 1, .whole);
}

/// The lower triangle of a matrix, with zeros above it.
fn readSymmetric(g: *const Geometry, from: [*]const u8, unit: u64, memory: *Memory) [*]f64 {
    const n = g.a.rows;
    const a = memory.take(n * n);
    @memset(a[0 .. n * n], 0);
    g.a.at(g.dtype, from, unit).readLower(a);
    return a;
}

/// Results: Q, R.
fn runQr(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    memory: *Memory,
    ctx: *TaskContext,
) void {
    const m = g.a.rows;
    const n = g.a.columns;
    const wanted = columnsOfQ(g);
    const to_q: Target = .of(g.dtype, ptrs[0], unit, m, wanted);
    const to_r: Target = .of(g.dtype, ptrs[1], unit, wanted, n);
    const a = memory.take(m * n);
    g.a.at(g.dtype, ptrs[2], unit).transposed().read(a);
    const size = vector.balance(a[0 .. m * n]) orelse {
        to_q.fill(m, wanted, std.math.nan(f64));
        to_r.fill(wanted, n, std.math.nan(f64));
        return;
    };
    const taus = memory.take(@min(m, n));
    qr.factor(m, n, a, taus, ctx);
    to_r.store(wanted, n, a, .{ 1, m }, size, .upper);
    const q = memory.take(m * wanted);
    qr.orthogonal(m, n, wanted, a, taus, q, ctx);
    to_q.store(m, wanted, q, .{ 1, m }, 1, .whole);
}

/// Results: the eigenvalues, the eigenvectors as columns.
fn runEigh(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    memory: *Memory,
    ctx: *TaskContext,
) void {
    const n = g.a.rows;
    const to_values: Target = .of(g.dtype, ptrs[0], unit, 1, n);
    const to_vectors: Target = .of(g.dtype, ptrs[1], unit, n, n);
    const a = readSymmetric(g, ptrs[2], unit, memory);
    const size = vector.balance(a[0 .. n * n]);
    const d, const e, const taus, const work = memory.takeFour(n);
    const z = memory.take(n * n);
    const width = if (g.options.vectors) n else 0;
    var queue: Queue = .init(memory.take(Queue.wordsFor(n)), n, z, width, ctx);
    if (size != null) {
        eigh.tridiagonalise(n, a, d, e, taus, work, ctx);
        if (g.options.vectors) eigh.accumulate(n, a, taus, z, ctx);
    }
    if (size == null or !eigh.diagonalise(n, d, e, &queue, ctx)) {
        to_values.fill(1, n, std.math.nan(f64));
        return to_vectors.fill(n, n, std.math.nan(f64));
    }
    const order: [*]u64 = @ptrCast(memory.take(n));
    vector.sortedPositions(d[0..n], order, false);
    for (0..n) |k| {
        to_values.from(0, k).fill(1, 1, d[order[k]] * size.?);
        if (!g.options.vectors) continue;
        const line = z + order[k] * n;
        const sign = vector.signOfLargest(line[0..n]);
        to_vectors.from(0, k).store(n, 1, line, .{ 1, 0 }, sign, .whole);
    }
}

/// Results: the left vectors as columns, the singular values, the right vectors as rows.
fn runSvd(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    memory: *Memory,
    ctx: *TaskContext,
) void {
    // Of a wide matrix the transpose is decomposed.
    const wide = g.a.rows < g.a.columns;
    const m = @max(g.a.rows, g.a.columns);
    const n = @min(g.a.rows, g.a.columns);
    const a = memory.take(m * n);
    const from = g.a.at(g.dtype, ptrs[3], unit);
    (if (wide) from.transposed() else from).read(a);
    const size = vector.balance(a[0 .. m * n]) orelse return failSvd(g, ptrs, unit);
    const d, const e, const left, const right = memory.takeFour(n);
    const b: svd.Bidiagonal = .{
        .rows = m,
        .columns = n,
        .a = a,
        .d = d,
        .e = e,
        .left = left,
        .right = right,
        .v = memory.take(m),
        .w = memory.take(n),
    };
    const u = memory.take(n * m);
    const vt = memory.take(n * n);
    const words = Queue.wordsFor(n);
    const vectors = g.options.vectors;
    var turn_u: Queue = .init(memory.take(words), n, u, if (vectors) m else 0, ctx);
    var turn_vt: Queue = .init(memory.take(words), n, vt, if (vectors) n else 0, ctx);
    b.reduce(ctx);
    if (vectors) b.accumulate(u, vt, ctx);
    if (!b.diagonalise(&turn_u, &turn_vt, ctx)) return failSvd(g, ptrs, unit);
    for (0..n) |k| if (d[k] < 0) {
        d[k] = -d[k];
        if (vectors) vector.scale(n, -1, vt + k * n);
    };
    const order: [*]u64 = @ptrCast(memory.take(n));
    vector.sortedPositions(d[0..n], order, true);
    const values: Target = .of(g.dtype, ptrs[1], unit, 1, n);
    for (0..n) |k| values.from(0, k).fill(1, 1, d[order[k]] * size);
    if (!vectors) return;
    const rows = if (wide) .{ vt, u } else .{ u, vt };
    storeVectors(g, ptrs, unit, order, rows[0], rows[1]);
}

/// Left vectors are rows of `left` and become columns, right vectors rows of `right` and stay it.
fn storeVectors(
    g: *const Geometry,
    ptrs: [*]const [*]u8,
    unit: u64,
    order: [*]const u64,
    left: [*]const f64,
    right: [*]const f64,
) void {
    const m = g.a.rows;
    const n = g.a.columns;
    const count = @min(m, n);
    const to_left: Target = .of(g.dtype, ptrs[0], unit, m, count);
    const to_right: Target = .of(g.dtype, ptrs[2], unit, count, n);
    for (0..count) |k| {
        const x = left + order[k] * m;
        const sign = vector.signOfLargest(x[0..m]);
        to_left.from(0, k).store(m, 1, x, .{ 1, 0 }, sign, .whole);
        to_right.from(k, 0).store(1, n, right + order[k] * n, .{ 0, 1 }, sign, .whole);
    }
}

fn failSvd(g: *const Geometry, ptrs: [*]const [*]u8, unit: u64) void {
    const m = g.a.rows;
    const n = g.a.columns;
    const count = @min(m, n);
    const nan = std.math.nan(f64);
    Target.of(g.dtype, ptrs[0], unit, m, count).fill(m, count, nan);
    Target.of(g.dtype, ptrs[1], unit, 1, count).fill(1, count, nan);
    Target.of(g.dtype, ptrs[2], unit, count, n).fill(count, n, nan);
}
