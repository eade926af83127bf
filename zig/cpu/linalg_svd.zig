//! Singular values and vectors of a matrix with at least as many rows as columns: reflections to
//! bidiagonal form, then the implicit QR iteration of Golub and Kahan. Errors are a small multiple
//! of the rounding of the largest singular value. The number of steps is bounded; beyond it there
//! is no result.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const vector = @import("linalg_vector.zig");
const Queue = vector.Queue;
const Rotation = vector.Rotation;
const TaskContext = kernel_abi.TaskContext;

/// Steps of the iteration for each singular value; two to three are usual.
const steps_per_value = 60;
const epsilon = std.math.floatEps(f64);

/// Reduces `a` `[rows, columns]` to an upper bidiagonal matrix with diagonal `d` and `e` above it.
/// Column k of `a` keeps the vector of the k-th reflection from the left, row k, right of the
/// diagonal, that of the k-th from the right. `v` holds `rows` elements, `w` `columns`.
pub const Bidiagonal = struct {
    rows: u64,
    columns: u64,
    a: [*]f64,
    d: [*]f64,
    e: [*]f64,
    left: [*]f64,
    right: [*]f64,
    v: [*]f64,
    w: [*]f64,

    pub fn reduce(b: *const Bidiagonal, ctx: *const TaskContext) void {
        assert(b.rows >= b.columns);
        for (0..b.columns) |k| {
            if (ctx.isCancelled()) return;
            const n = b.columns - k - 1;
            for (k..b.rows) |i| b.v[i] = b.a[i * b.columns + k];
            const from_left = vector.reflect(b.rows - k, b.v + k);
            b.d[k] = from_left.beta;
            b.left[k] = from_left.tau;
            // What the reflection subtracts from row i is v[i] times w.
            @memset(b.w[0..n], 0);
            for (k..b.rows) |i| vector.addScaled(n, b.v[i], b.row(i, k + 1), b.w);
            vector.scale(n, from_left.tau, b.w);
            const u = b.row(k, k + 1);
            vector.addScaled(n, -1, b.w, u);
            const from_right = vector.reflect(n, u);
            b.e[k] = from_right.beta;
            b.right[k] = from_right.tau;
            for (k + 1..b.rows) |i| {
                const line = b.row(i, k + 1);
                vector.addScaled(n, -b.v[i], b.w, line);
                vector.applyReflection(n, from_right.tau, u, line);
            }
            for (k..b.rows) |i| b.a[i * b.columns + k] = b.v[i];
        }
    }

    fn row(b: *const Bidiagonal, i: u64, j: u64) [*]f64 {
        return b.a + i * b.columns + j;
    }

    /// Writes the left vectors as rows of `u` `[columns, rows]`, the right ones as rows of `vt`
    /// `[columns, columns]`, of the bidiagonal matrix that is the diagonal one.
    pub fn accumulate(b: *const Bidiagonal, u: [*]f64, vt: [*]f64, ctx: *const TaskContext) void {
        unit(b.columns, b.rows, u);
        unit(b.columns, b.columns, vt);
        var k = b.columns;
        while (k > 0) {
            k -= 1;
            if (ctx.isCancelled()) return;
            for (k..b.rows) |i| b.v[i] = b.a[i * b.columns + k];
            for (k..b.columns) |j| {
                vector.applyReflection(b.rows - k, b.left[k], b.v + k, u + j * b.rows + k);
            }
            for (k + 1..b.columns) |j| {
                const line = vt + j * b.columns + k + 1;
                vector.applyReflection(b.columns - k - 1, b.right[k], b.row(k, k + 1), line);
            }
        }
    }

    fn unit(rows: u64, columns: u64, to: [*]f64) void {
        @memset(to[0 .. rows * columns], 0);
        for (0..rows) |i| to[i * columns + i] = 1;
    }

    /// Makes the matrix diagonal; false if that takes too many steps. The diagonal may be negative.
    pub fn diagonalise(
        b: *const Bidiagonal,
        left: *Queue,
        right: *Queue,
        ctx: *const TaskContext,
    ) bool {
        const n = b.columns;
        if (n == 0) return true;
        var largest: f64 = 0;
        for (b.d[0..n], b.e[0..n]) |d, e| largest = @max(largest, @max(@abs(d), @abs(e)));
        var high = n - 1;
        var steps: u64 = 0;
        while (high > 0) {
            const low = b.blockStart(high);
            if (low == high) {
                high -= 1;
                steps = 0;
                continue;
            }
            if (steps == steps_per_value or ctx.isCancelled()) return false;
            steps += 1;
            const zero = for (low..high + 1) |i| {
                if (@abs(b.d[i]) <= epsilon * largest) break i;
            } else null;
            if (zero) |i| {
                b.d[i] = 0;
                if (i < high) b.clearRow(i, high, left) else b.clearColumn(low, high, right);
                steps -= 1; // each of these ends with an element that is zero for good
            } else {
                b.step(low, high, left, right);
            }
        }
        left.flush();
        right.flush();
        return true;
    }

    /// The first row of the unreduced block that ends with `high`; what is negligible becomes 0.
    fn blockStart(b: *const Bidiagonal, high: u64) u64 {
        var i = high;
        while (i > 0) : (i -= 1) {
            const size = @abs(b.d[i - 1]) + @abs(b.d[i]);
            if (@abs(b.e[i - 1]) <= epsilon * size) {
                b.e[i - 1] = 0;
                return i;
            }
        }
        return 0;
    }

    /// d[i] is 0: rotates row i with those below it until nothing is left of it.
    fn clearRow(b: *const Bidiagonal, i: u64, high: u64, left: *Queue) void {
        var f = b.e[i];
        b.e[i] = 0;
        for (i + 1..high + 1) |j| {
            if (f == 0) return;
            const rotation: Rotation = .of(b.d[j], f);
            b.d[j] = rotation.r;
            left.push(j, i, rotation);
            if (j == high) return;
            f = -rotation.s * b.e[j];
            b.e[j] *= rotation.c;
        }
    }

    /// d[high] is 0: rotates column `high` with those before it until nothing is left of it.
    fn clearColumn(b: *const Bidiagonal, low: u64, high: u64, right: *Queue) void {
        var f = b.e[high - 1];
        b.e[high - 1] = 0;
        var j = high;
        while (j > low and f != 0) {
            j -= 1;
            const rotation: Rotation = .of(b.d[j], f);
            b.d[j] = rotation.r;
            right.push(j, high, rotation);
            if (j == low) return;
            f = -rotation.s * b.e[j - 1];
            b.e[j - 1] *= rotation.c;
        }
    }

    /// One QR step on rows `low` to `high`.
    fn step(b: *const Bidiagonal, low: u64, high: u64, left: *Queue, right: *Queue) void {
        const d = b.d;
        const e = b.e;
        // In units of the block's first element (d[low] is not negligible), so that the difference
        // of squares is one of numbers near 1.
        var y = d[low] - b.shift(low, high) / d[low];
        var z = e[low];
        for (low..high) |k| {
            const across: Rotation = .of(y, z);
            if (k > low) e[k - 1] = across.r;
            right.push(k, k + 1, across);
            y = across.c * d[k] + across.s * e[k];
            e[k] = across.c * e[k] - across.s * d[k];
            z = across.s * d[k + 1];
            d[k + 1] *= across.c;
            const down: Rotation = .of(y, z);
            d[k] = down.r;
            left.push(k, k + 1, down);
            y = down.c * e[k] + down.s * d[k + 1];
            d[k + 1] = down.c * d[k + 1] - down.s * e[k];
            if (k + 1 < high) {
                z = down.s * e[k + 1];
                e[k + 1] *= down.c;
            }
        }
        e[high - 1] = y;
    }

    /// The eigenvalue of the last 2 x 2 block of `B^T B` that is nearer to its last element.
    fn shift(b: *const Bidiagonal, low: u64, high: u64) f64 {
        const above = if (high - 1 > low) b.e[high - 2] else 0;
        const p = b.d[high - 1] * b.d[high - 1] + above * above;
        const q = b.d[high - 1] * b.e[high - 1];
        const r = b.d[high] * b.d[high] + b.e[high - 1] * b.e[high - 1];
        if (q == 0) return r;
        const half = (p - r) / (2 * q);
        return r - q / (half + std.math.copysign(@sqrt(half * half + 1), half));
    }
};
