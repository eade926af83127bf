//! Tests of the linear algebra kernels by what they must satisfy: products give the matrix back,
//! factors have their form. Over both dtypes, all layouts, stacks, and extents from 0 up.
const std = @import("std");
const harness = @import("harness.zig");
const kernel_abi = @import("kernel_abi.zig");
const linalg = @import("linalg.zig");
const matrix = @import("linalg_matrix.zig");
const DType = @import("../dtype.zig").DType;
const View = harness.View;
const testing = std.testing;

const float_dtypes = [_]DType{ .f32, .f64 };

fn epsilon(d: DType) f64 {
    return if (d == .f32) 0x1p-23 else 0x1p-52;
}

/// An operand with elements in [-1, 1).
fn randomMatrix(
    random: std.Random,
    comptime d: DType,
    dims: []const u64,
    layout: harness.Layout,
) !View {
    const v = try harness.makeView(d, dims, layout);
    for (0..v.operand.elementCount()) |i| {
        v.set(d, i, @floatCast(2 * random.float(f64) - 1));
    }
    return v;
}

/// Adds `shift` to the diagonals of a stack of square matrices.
fn shiftDiagonal(comptime d: DType, v: *const View, n: u64, shift: f64) void {
    if (v.operand.strides[v.operand.rank - 1] == 0) return; // one element is many
    for (0..v.operand.elementCount() / @max(n * n, 1)) |s| for (0..n) |i| {
        const at = s * n * n + i * n + i;
        v.set(d, at, @floatCast(v.get(d, at) + shift));
    };
}

const Dense = struct {
    rows: u64,
    columns: u64,
    x: []f64,

    fn of(comptime d: DType, v: *const View, index: u64, rows: u64, columns: u64) !Dense {
        const m = try zeros(rows, columns);
        for (m.x, 0..) |*e, i| e.* = v.get(d, index * rows * columns + i);
        return m;
    }

    fn zeros(rows: u64, columns: u64) !Dense {
        const x = try testing.allocator.alloc(f64, rows * columns);
        @memset(x, 0);
        return .{ .rows = rows, .columns = columns, .x = x };
    }

    fn deinit(m: Dense) void {
        testing.allocator.free(m.x);
    }

    fn at(m: Dense, i: u64, j: u64) *f64 {
        return &m.x[i * m.columns + j];
    }

    fn times(a: Dense, b: Dense) !Dense {
        const c = try zeros(a.rows, b.columns);
        for (0..a.rows) |i| for (0..b.columns) |j| for (0..a.columns) |k| {
            c.at(i, j).* += a.at(i, k).* * b.at(k, j).*;
        };
        return c;
    }

    fn transposed(a: Dense) !Dense {
        const t = try zeros(a.columns, a.rows);
        for (0..a.rows) |i| for (0..a.columns) |j| {
            t.at(j, i).* = a.at(i, j).*;
        };
        return t;
    }
};

fn expectClose(expected: Dense, got: Dense, tolerance: f64) !void {
    for (expected.x, got.x) |e, x| try testing.expectApproxEqAbs(e, x, tolerance);
}

/// `m^T m` is the unit matrix.
fn expectOrthonormal(m: Dense, tolerance: f64) !void {
    const t = try m.transposed();
    defer t.deinit();
    const product = try t.times(m);
    defer product.deinit();
    const one = try Dense.zeros(m.columns, m.columns);
    defer one.deinit();
    for (0..m.columns) |i| one.at(i, i).* = 1;
    try expectClose(one, product, tolerance);
}

const squares = [_][]const u64{
    &.{ 0, 0 },       &.{ 1, 1 }, &.{ 2, 3, 3 }, &.{ 0, 4, 4 },
    &.{ 2, 2, 5, 5 }, &.{ 9, 9 }, &.{ 37, 37 },
};
const oblongs = [_][]const u64{
    &.{ 0, 3 }, &.{ 3, 0 },       &.{ 1, 1 },  &.{ 2, 5, 3 }, &.{ 2, 3, 5 },
    &.{ 1, 6 }, &.{ 2, 3, 4, 1 }, &.{ 41, 9 }, &.{ 9, 41 },   &.{ 36, 36 },
};

fn executeLu(comptime d: DType, dims: []const u64, layout: harness.Layout) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len);
    const n = dims[dims.len - 1];
    const a = try randomMatrix(prng.random(), d, dims, layout);
    defer a.deinit();
    const packed_lu = try harness.makeView(d, dims, .dense);
    defer packed_lu.deinit();
    const permutation = try harness.makeView(.i64, dims[0 .. dims.len - 1], .dense);
    defer permutation.deinit();
    const sign = try harness.makeView(d, dims[0 .. dims.len - 2], .dense);
    defer sign.deinit();
    const g = linalg.plan(.lu, &a.operand, null, .{});
    const operands = [_][*]u8{
        packed_lu.pointer(), permutation.pointer(), sign.pointer(), a.pointer(),
    };
    _ = try harness.execute(linalg.run, &g, &operands);
    if (layout == .broadcast and n > 1) return; // singular: nothing to compare but that it ends
    for (0..a.operand.elementCount() / @max(n * n, 1)) |s| {
        const whole = try Dense.of(d, &packed_lu, s, n, n);
        defer whole.deinit();
        const lower = try Dense.zeros(n, n);
        defer lower.deinit();
        for (0..n) |i| for (0..n) |j| {
            if (i == j) lower.at(i, j).* = 1;
            if (i > j) {
                try testing.expect(@abs(whole.at(i, j).*) <= 1);
                lower.at(i, j).* = whole.at(i, j).*;
                whole.at(i, j).* = 0;
            }
        };
        const product = try lower.times(whole);
        defer product.deinit();
        const expected = try Dense.of(d, &a, s, n, n);
        defer expected.deinit();
        var inversions: u64 = 0;
        for (0..n) |i| {
            const from: u64 = @intCast(permutation.get(.i64, s * n + i));
            for (0..i) |k| {
                if (permutation.get(.i64, s * n + k) > from) inversions += 1;
            }
            const tolerance = 8 * @as(f64, @floatFromInt(n)) * epsilon(d);
            for (expected.x[from * n ..][0..n], product.x[i * n ..][0..n]) |e, x| {
                try testing.expectApproxEqAbs(e, x, tolerance);
            }
        }
        const expected_sign: f64 = if (inversions % 2 == 0) 1 else -1;
        try testing.expectEqual(expected_sign, @as(f64, sign.get(d, s)));
    }
}

test "lu: the permuted matrix is the product" {
    inline for (float_dtypes) |d| for (squares) |dims| for (harness.all_layouts) |layout| {
        try executeLu(d, dims, layout);
    };
}

fn executeSolve(
    comptime d: DType,
    n: u64,
    k: u64,
    layout: harness.Layout,
    options: linalg.Options,
) !void {
    var prng: std.Random.DefaultPrng = .init(n + k);
    const random = prng.random();
    const t = try randomMatrix(random, d, &.{ 2, n, n }, layout);
    defer t.deinit();
    shiftDiagonal(d, &t, n, 4);
    if (layout == .broadcast) for (0..2) |s| for (0..n) |i| {
        t.set(d, s * n * n + i * n, 2); // its diagonal as well
    };
    const b = try randomMatrix(random, d, &.{ 2, n, k }, layout);
    defer b.deinit();
    const x = try harness.makeView(d, &.{ 2, n, k }, .dense);
    defer x.deinit();
    const g = linalg.plan(.triangular_solve, &t.operand, &b.operand, options);
    _ = try harness.executeViews(linalg.run, &g, &x, &.{ &t, &b });
    for (0..2) |s| {
        var triangle = try Dense.of(d, &t, s, n, n);
        defer triangle.deinit();
        for (0..n) |i| for (0..n) |j| {
            if (if (options.lower) j > i else j < i) triangle.at(i, j).* = 0;
            if (i == j and options.unit_diagonal) triangle.at(i, j).* = 1;
        };
        const turned = try triangle.transposed();
        defer turned.deinit();
        const solution = try Dense.of(d, &x, s, n, k);
        defer solution.deinit();
        const product = try (if (options.transpose) turned else triangle).times(solution);
        defer product.deinit();
        const expected = try Dense.of(d, &b, s, n, k);
        defer expected.deinit();
        var largest: f64 = 1;
        for (solution.x) |e| largest = @max(largest, @abs(e));
        const count: f64 = @floatFromInt(n + 4);
        try expectClose(expected, product, 8 * count * epsilon(d) * largest);
    }
}

test "triangular_solve: the product is the right-hand side" {
    inline for (float_dtypes) |d| for (harness.all_layouts) |layout| {
        for ([_]u64{ 0, 1, 2, 9 }) |n| for ([_]u64{ 0, 1, 5, 70 }) |k| for (0..8) |bits| {
            try executeSolve(d, n, k, layout, .{
                .lower = bits & 1 != 0,
                .transpose = bits & 2 != 0,
                .unit_diagonal = bits & 4 != 0,
            });
        };
    };
}

fn executeCholesky(comptime d: DType, dims: []const u64, layout: harness.Layout, shift: f64) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len);
    const n = dims[dims.len - 1];
    const a = try randomMatrix(prng.random(), d, dims, layout);
    defer a.deinit();
    shiftDiagonal(d, &a, n, shift);
    const result = try harness.makeView(d, dims, .dense);
    defer result.deinit();
    const g = linalg.plan(.cholesky, &a.operand, null, .{});
    _ = try harness.executeViews(linalg.run, &g, &result, &.{&a});
    for (0..a.operand.elementCount() / @max(n * n, 1)) |s| {
        const lower = try Dense.of(d, &result, s, n, n);
        defer lower.deinit();
        const turned = try lower.transposed();
        defer turned.deinit();
        const product = try lower.times(turned);
        defer product.deinit();
        for (0..n) |i| for (0..n) |j| {
            if (j > i) {
                try testing.expectEqual(0, lower.at(i, j).*);
            } else if (shift < 0) {
                try testing.expect(std.math.isNan(lower.at(i, j).*));
            } else {
                const expected: f64 = a.get(d, s * n * n + i * n + j);
                const tolerance = 8 * (@as(f64, @floatFromInt(n)) + shift) * epsilon(d);
                try testing.expectApproxEqAbs(expected, product.at(i, j).*, tolerance);
            }
        };
    }
}

test "cholesky: the product is the matrix; without a factor, NaN" {
    inline for (float_dtypes) |d| for (squares) |dims| for (harness.all_layouts) |layout| {
        if (layout == .broadcast) continue;
        const n: f64 = @floatFromInt(dims[dims.len - 1]);
        try executeCholesky(d, dims, layout, n + 1);
        try executeCholesky(d, dims, layout, -n - 1);
    };
}

fn executeQr(comptime d: DType, dims: []const u64, layout: harness.Layout, complete: bool) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len);
    const lead = dims[0 .. dims.len - 2];
    const m = dims[dims.len - 2];
    const n = dims[dims.len - 1];
    const k = if (complete) m else @min(m, n);
    const a = try randomMatrix(prng.random(), d, dims, layout);
    defer a.deinit();
    var shape: [4]u64 = undefined;
    @memcpy(shape[0..lead.len], lead);
    shape[lead.len..][0..2].* = .{ m, k };
    const q = try harness.makeView(d, shape[0..dims.len], .dense);
    defer q.deinit();
    shape[lead.len..][0..2].* = .{ k, n };
    const r = try harness.makeView(d, shape[0..dims.len], .dense);
    defer r.deinit();
    const g = linalg.plan(.qr, &a.operand, null, .{ .complete = complete });
    _ = try harness.execute(linalg.run, &g, &.{ q.pointer(), r.pointer(), a.pointer() });
    const tolerance = 16 * @as(f64, @floatFromInt(m + 1)) * epsilon(d);
    for (0..a.operand.elementCount() / @max(m * n, 1)) |s| {
        const left = try Dense.of(d, &q, s, m, k);
        defer left.deinit();
        try expectOrthonormal(left, tolerance);
        const right = try Dense.of(d, &r, s, k, n);
        defer right.deinit();
        for (0..k) |i| for (0..@min(i, n)) |j| try testing.expectEqual(0, right.at(i, j).*);
        const product = try left.times(right);
        defer product.deinit();
        const expected = try Dense.of(d, &a, s, m, n);
        defer expected.deinit();
        try expectClose(expected, product, tolerance);
        // The sign that the first element of the first column has not.
        if (m > 1 and n > 0) try testing.expect(right.at(0, 0).* * expected.at(0, 0).* <= 0);
    }
}

test "qr: Q is orthonormal, R triangular, and their product the matrix" {
    inline for (float_dtypes) |d| for (oblongs) |dims| for (harness.all_layouts) |layout| {
        try executeQr(d, dims, layout, false);
        try executeQr(d, dims, layout, true);
    };
}

fn executeEigh(comptime d: DType, dims: []const u64, layout: harness.Layout, size: f64) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len);
    const n = dims[dims.len - 1];
    const a = try randomMatrix(prng.random(), d, dims, layout);
    defer a.deinit();
    for (0..a.operand.elementCount()) |i| a.set(d, i, @floatCast(a.get(d, i) * size));
    const values = try harness.makeView(d, dims[0 .. dims.len - 1], .dense);
    defer values.deinit();
    const alone = try harness.makeView(d, dims[0 .. dims.len - 1], .dense);
    defer alone.deinit();
    const vectors = try harness.makeView(d, dims, .dense);
    defer vectors.deinit();
    const g = linalg.plan(.eigh, &a.operand, null, .{ .vectors = true });
    _ = try harness.execute(linalg.run, &g, &.{ values.pointer(), vectors.pointer(), a.pointer() });
    const bare = linalg.plan(.eigh, &a.operand, null, .{});
    const unread = try harness.makeView(d, dims, .dense);
    defer unread.deinit();
    _ = try harness.execute(
        linalg.run,
        &bare,
        &.{ alone.pointer(), unread.pointer(), a.pointer() },
    );
    const tolerance = 8 * @as(f64, @floatFromInt(n + 2)) * epsilon(d);
    for (0..a.operand.elementCount() / @max(n * n, 1)) |s| {
        const v = try Dense.of(d, &vectors, s, n, n);
        defer v.deinit();
        try expectOrthonormal(v, tolerance);
        const symmetric = try Dense.of(d, &a, s, n, n);
        defer symmetric.deinit();
        for (0..n) |i| for (0..i) |j| {
            symmetric.at(j, i).* = symmetric.at(i, j).*;
        };
        const image = try symmetric.times(v);
        defer image.deinit();
        for (0..n) |k| {
            const value: f64 = values.get(d, s * n + k);
            try testing.expectEqual(value, @as(f64, alone.get(d, s * n + k)));
            if (k > 0) try testing.expect(@as(f64, values.get(d, s * n + k - 1)) <= value);
            for (0..n) |i| {
                const expected = value * v.at(i, k).*;
                try testing.expectApproxEqAbs(expected, image.at(i, k).*, tolerance * size);
            }
        }
    }
}

test "eigh: the matrix only stretches its orthonormal vectors; of any size" {
    inline for (float_dtypes) |d| for (squares) |dims| for (harness.all_layouts) |layout| {
        try executeEigh(d, dims, layout, 1);
    };
    for (squares) |dims| {
        try executeEigh(.f64, dims, .dense, 0x1p1000);
        try executeEigh(.f64, dims, .dense, 0x1p-1000);
    }
}

fn executeSvd(comptime d: DType, dims: []const u64, layout: harness.Layout, size: f64) !void {
    var prng: std.Random.DefaultPrng = .init(dims.len);
    const lead = dims[0 .. dims.len - 2];
    const m = dims[dims.len - 2];
    const n = dims[dims.len - 1];
    const k = @min(m, n);
    const a = try randomMatrix(prng.random(), d, dims, layout);
    defer a.deinit();
    for (0..a.operand.elementCount()) |i| a.set(d, i, @floatCast(a.get(d, i) * size));
    var shape: [4]u64 = undefined;
    @memcpy(shape[0..lead.len], lead);
    shape[lead.len..][0..2].* = .{ m, k };
    const u = try harness.makeView(d, shape[0..dims.len], .dense);
    defer u.deinit();
    shape[lead.len..][0..2].* = .{ k, n };
    const vt = try harness.makeView(d, shape[0..dims.len], .dense);
    defer vt.deinit();
    shape[lead.len] = k;
    const values = try harness.makeView(d, shape[0 .. lead.len + 1], .dense);
    defer values.deinit();
    const g = linalg.plan(.svd, &a.operand, null, .{ .vectors = true });
    _ = try harness.execute(
        linalg.run,
        &g,
        &.{ u.pointer(), values.pointer(), vt.pointer(), a.pointer() },
    );
    const tolerance = 8 * @as(f64, @floatFromInt(m + n)) * epsilon(d);
    for (0..a.operand.elementCount() / @max(m * n, 1)) |s| {
        const left = try Dense.of(d, &u, s, m, k);
        defer left.deinit();
        try expectOrthonormal(left, tolerance);
        const right = try Dense.of(d, &vt, s, k, n);
        defer right.deinit();
        const turned = try right.transposed();
        defer turned.deinit();
        try expectOrthonormal(turned, tolerance);
        for (0..k) |j| {
            const value: f64 = values.get(d, s * k + j);
            try testing.expect(value >= 0);
            if (j > 0) try testing.expect(@as(f64, values.get(d, s * k + j - 1)) >= value);
            for (0..m) |i| left.at(i, j).* *= value;
        }
        const product = try left.times(right);
        defer product.deinit();
        const expected = try Dense.of(d, &a, s, m, n);
        defer expected.deinit();
        try expectClose(expected, product, tolerance * size);
    }
}

test "svd: vectors are orthonormal, values descend, and the product is the matrix; of any size" {
    inline for (float_dtypes) |d| for (oblongs) |dims| for (harness.all_layouts) |layout| {
        try executeSvd(d, dims, layout, 1);
    };
    for (oblongs) |dims| {
        try executeSvd(.f64, dims, .dense, 0x1p1000);
        try executeSvd(.f64, dims, .dense, 0x1p-1000);
    }
}

/// Singular values and their vectors of a 4 x 4 matrix.
fn smallSvd(elements: [16]f64, u: *[16]f64, s: *[4]f64, vt: *[16]f64) !void {
    var a = elements;
    const g = linalg.plan(.svd, &.contiguous(.f64, &.{ 4, 4 }), null, .{ .vectors = true });
    const operands = [_][*]u8{ @ptrCast(u), @ptrCast(s), @ptrCast(vt), @ptrCast(&a) };
    _ = try harness.execute(linalg.run, &g, &operands);
}

fn smallEigh(elements: [16]f64, w: *[4]f64, v: *[16]f64) !void {
    var a = elements;
    const g = linalg.plan(.eigh, &.contiguous(.f64, &.{ 4, 4 }), null, .{ .vectors = true });
    _ = try harness.execute(linalg.run, &g, &.{ @ptrCast(w), @ptrCast(v), @ptrCast(&a) });
}

test "zeros on the diagonals of the iterations, and equal values" {
    var u: [16]f64 = undefined;
    var s: [4]f64 = undefined;
    var vt: [16]f64 = undefined;
    // Bidiagonal already: zeros first, in the middle and last; nothing at all; all alike.
    const zeros_at = [_][4]f64{
        .{ 0, 1, 2, 3 }, .{ 1, 0, 2, 3 }, .{ 1, 2, 3, 0 }, .{ 0, 0, 0, 0 }, .{ 0, 2, 0, 0 },
    };
    for (zeros_at) |diagonal| for ([_]f64{ 0, 1 }) |beside| {
        var a: [16]f64 = @splat(0);
        for (0..4) |i| a[5 * i] = diagonal[i];
        for (0..3) |i| a[5 * i + 1] = beside;
        try smallSvd(a, &u, &s, &vt);
        for (0..4) |i| for (0..4) |j| {
            var product: f64 = 0;
            var angle: f64 = 0;
            for (0..4) |k| {
                product += u[4 * i + k] * s[k] * vt[4 * k + j];
                angle += u[4 * k + i] * u[4 * k + j];
            }
            try testing.expectApproxEqAbs(a[4 * i + j], product, 0x1p-48);
            try testing.expectApproxEqAbs(@as(f64, if (i == j) 1 else 0), angle, 0x1p-48);
        };
        var w: [4]f64 = undefined;
        var symmetric = a;
        for (0..3) |i| symmetric[5 * i + 4] = beside;
        try smallEigh(symmetric, &w, &u);
        for (0..4) |i| for (0..4) |j| {
            var product: f64 = 0;
            for (0..4) |k| product += u[4 * i + k] * w[k] * u[4 * j + k];
            try testing.expectApproxEqAbs(symmetric[4 * @max(i, j) + @min(i, j)], product, 0x1p-48);
        };
    };
}

test "what is not finite gives NaN, and ends" {
    var u: [16]f64 = undefined;
    var s: [4]f64 = undefined;
    var vt: [16]f64 = undefined;
    for ([_]f64{ std.math.nan(f64), std.math.inf(f64) }) |bad| for (0..16) |at| {
        var a: [16]f64 = @splat(0.5);
        a[at] = bad;
        try smallSvd(a, &u, &s, &vt);
        for (u ++ s ++ vt) |e| try testing.expect(std.math.isNan(e));
        if (at / 4 < at % 4) continue; // above the diagonal: not read
        try smallEigh(a, &s, &u);
        for (u ++ s) |e| try testing.expect(std.math.isNan(e));
    };
}

test "few matrices of many are a task" {
    const g = linalg.plan(.lu, &.contiguous(.f32, &.{ 1000, 3, 3 }), null, .{});
    try testing.expect(g.work.task_count > 1 and g.work.task_count < 100);
    const b: kernel_abi.Operand = .contiguous(.f32, &.{ 300, 3000 });
    const a: kernel_abi.Operand = .contiguous(.f32, &.{ 300, 300 });
    const solve = linalg.plan(.triangular_solve, &a, &b, .{});
    try testing.expect(solve.work.task_count > 10);
}

test "matrices of any extent have a cost" {
    const huge: kernel_abi.Operand = .contiguous(.f64, &.{ 1 << 24, 1 << 24 });
    for (std.enums.values(linalg.Op)) |op| {
        const rhs = if (op == .triangular_solve) &huge else null;
        const g = linalg.plan(op, &huge, rhs, .{ .vectors = true });
        try testing.expect(g.work.cost_ns > 1 << 60);
    }
}

test "rows without columns take no time, however many" {
    var value: [1]f64 = .{7};
    const rows: u64 = 1 << 48;
    const none: matrix.Matrix = .{
        .base = @ptrCast(&value),
        .rows = rows,
        .columns = 0,
        .row_stride = 0,
        .column_stride = 1,
        .dtype = .f64,
    };
    none.read(&value);
    const to: matrix.Target = .of(.f64, @ptrCast(&value), 0, rows, 0);
    to.store(rows, 0, &value, .{ 0, 1 }, 1, .whole);
    try testing.expectEqual(7, value[0]);
}
