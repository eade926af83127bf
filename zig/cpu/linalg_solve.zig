//! LU with partial pivoting, Cholesky, and the solution of triangular systems. All three are sums
//! of products along rows: each element is finished by one subtraction of a sum and at most one
//! division, in float64.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const vector = @import("linalg_vector.zig");
const TaskContext = kernel_abi.TaskContext;

/// Right-hand sides that are solved side by side.
pub const side_by_side = 4;

/// Replaces `a` `[n, n]` by L (unit diagonal, below) and U, `a[permutation] = L U`; returns the
/// sign of the permutation. The pivot is the largest magnitude, the first of several; a column of
/// zeros is left as it is. `column` holds n elements.
pub fn factor(
    n: u64,
    a: [*]f64,
    permutation: [*]i64,
    column: [*]f64,
    ctx: *const TaskContext,
) f64 {
    var sign: f64 = 1;
    for (0..n) |i| permutation[i] = @intCast(i);
    for (0..n) |j| {
        if (ctx.isCancelled()) return sign;
        for (0..n) |i| column[i] = a[i * n + j];
        for (1..@max(n, 1)) |i| column[i] -= vector.dot(@min(i, j), a + i * n, column);
        var pivot = j;
        for (j + 1..n) |i| {
            if (@abs(column[i]) > @abs(column[pivot])) pivot = i;
        }
        if (pivot != j) {
            sign = -sign;
            std.mem.swap(i64, &permutation[pivot], &permutation[j]);
            std.mem.swap(f64, &column[pivot], &column[j]);
            for (a[j * n ..][0..n], a[pivot * n ..][0..n]) |*x, *y| std.mem.swap(f64, x, y);
        }
        const divisor = if (column[j] == 0) 1 else column[j];
        for (0..n) |i| a[i * n + j] = if (i > j) column[i] / divisor else column[i];
    }
    return sign;
}

/// Replaces the lower triangle of `a` by L, `a = L L^T`; false if `a` is not positive definite.
pub fn cholesky(n: u64, a: [*]f64, ctx: *const TaskContext) bool {
    for (0..n) |i| {
        if (ctx.isCancelled()) return false;
        const row = a + i * n;
        for (0..i) |j| {
            const other = a + j * n;
            row[j] = (row[j] - vector.dot(j, row, other)) / other[j];
        }
        const square = row[i] - vector.dot(i, row, row);
        if (!(square > 0)) return false;
        row[i] = @sqrt(square);
    }
    return true;
}

/// Replaces each of `count` rows x (of n elements, a multiple of `side_by_side` of them) by the
/// solution of `t y = x`, with t lower triangular.
pub fn solveLower(
    n: u64,
    t: [*]const f64,
    unit_diagonal: bool,
    count: u64,
    x: [*]f64,
    ctx: *const TaskContext,
) void {
    assert(count % side_by_side == 0);
    var start: u64 = 0;
    while (start < count) : (start += side_by_side) {
        if (ctx.isCancelled()) return;
        for (0..n) |i| {
            const sums = dots(i, t + i * n, x + start * n, n);
            const divisor = if (unit_diagonal) 1 else t[i * n + i];
            inline for (0..side_by_side) |k| {
                const e = &x[(start + k) * n + i];
                e.* = (e.* - sums[k]) / divisor;
            }
        }
    }
}

/// The sums of products of `t` with the first n elements of neighbouring rows of `x`.
fn dots(n: u64, t: [*]const f64, x: [*]const f64, row: u64) [side_by_side]f64 {
    const W = lanes.width(f64);
    const V = @Vector(W, f64);
    var wide: [side_by_side]V = @splat(@splat(0));
    var i: u64 = 0;
    while (i + W <= n) : (i += W) {
        const a: V = t[i..][0..W].*;
        inline for (&wide, 0..) |*sum, k| {
            const b: V = x[k * row + i ..][0..W].*;
            sum.* += a * b;
        }
    }
    var sums: [side_by_side]f64 = undefined;
    inline for (&sums, wide) |*sum, w| sum.* = lanes.fold(.sum, w);
    while (i < n) : (i += 1) {
        lanes.keepScalar();
        inline for (&sums, 0..) |*sum, k| sum.* += t[i] * x[k * row + i];
    }
    return sums;
}
