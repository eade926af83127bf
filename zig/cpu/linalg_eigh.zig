//! Eigenvalues and eigenvectors of a symmetric matrix: reflections to tridiagonal form, then the
//! implicit QL iteration with Wilkinson's shift. Errors are a small multiple of the rounding of the
//! matrix's norm. The number of steps is bounded; beyond it there is no result.
const std = @import("std");
const kernel_abi = @import("kernel_abi.zig");
const vector = @import("linalg_vector.zig");
const Queue = vector.Queue;
const TaskContext = kernel_abi.TaskContext;

/// Steps of the iteration for each eigenvalue; three are usual.
const steps_per_value = 60;
const epsilon = std.math.floatEps(f64);

/// Reduces the matrix in the lower triangle of `a` to tridiagonal form with diagonal `d` and, below
/// it, `e[1..n]`. Row i of `a` keeps the vector of the i-th reflection, whose last element is 1,
/// `taus[i]` its factor. `work` holds n elements.
pub fn tridiagonalise(
    n: u64,
    a: [*]f64,
    d: [*]f64,
    e: [*]f64,
    taus: [*]f64,
    work: [*]f64,
    ctx: *const TaskContext,
) void {
    var i = n;
    while (i > 0) {
        i -= 1;
        if (ctx.isCancelled()) return;
        const v = a + i * n;
        d[i] = v[i];
        // The reflection keeps the last element: it is made for the reversed row.
        std.mem.reverse(f64, v[0..i]);
        const reflection = vector.reflect(i, v);
        std.mem.reverse(f64, v[0..i]);
        e[i] = reflection.beta;
        taus[i] = reflection.tau;
        if (reflection.tau != 0) reflectBothSides(n, i, a, v, reflection.tau, work);
    }
}

/// `H A H` for the leading `size` rows and columns, of which the lower triangle is kept.
fn reflectBothSides(n: u64, size: u64, a: [*]f64, v: [*]const f64, tau: f64, p: [*]f64) void {
    @memset(p[0..size], 0);
    for (0..size) |i| {
        const row = a + i * n;
        p[i] += vector.dot(i + 1, row, v);
        vector.addScaled(i, v[i], row, p);
    }
    vector.scale(size, tau, p);
    vector.addScaled(size, -0.5 * tau * vector.dot(size, p, v), v, p);
    for (0..size) |i| {
        const row = a + i * n;
        vector.addScaled(i + 1, -v[i], p, row);
        vector.addScaled(i + 1, -p[i], v, row);
    }
}

/// Writes the product of the reflections, transposed, to `z`: row k is what becomes eigenvector k.
pub fn accumulate(
    n: u64,
    a: [*]const f64,
    taus: [*]const f64,
    z: [*]f64,
    ctx: *const TaskContext,
) void {
    @memset(z[0 .. n * n], 0);
    for (0..n) |i| z[i * n + i] = 1;
    for (1..@max(n, 1)) |i| {
        if (ctx.isCancelled()) return;
        for (0..i) |row| vector.applyReflection(i, taus[i], a + i * n, z + row * n);
    }
}

/// Makes the tridiagonal matrix diagonal; false if that takes too many steps. What is done to the
/// columns of the eigenvector matrix is done to the rows of the queue.
pub fn diagonalise(n: u64, d: [*]f64, e: [*]f64, queue: *Queue, ctx: *const TaskContext) bool {
    if (n == 0) return true;
    // From here on e[i] lies between i and i + 1.
    for (1..n) |i| e[i - 1] = e[i];
    e[n - 1] = 0;
    for (0..n) |low| {
        var steps: u32 = 0;
        while (true) {
            const high = blockEnd(n, low, d, e);
            if (high == low) break;
            if (steps == steps_per_value or ctx.isCancelled()) return false;
            steps += 1;
            step(low, high, d, e, queue);
        }
    }
    queue.flush();
    return true;
}

/// The last row of the unreduced block that begins with `low`.
fn blockEnd(n: u64, low: u64, d: [*]const f64, e: [*]const f64) u64 {
    var i = low;
    while (i + 1 < n) : (i += 1) {
        if (@abs(e[i]) <= epsilon * (@abs(d[i]) + @abs(d[i + 1]))) break;
    }
    return i;
}

/// One QL step on rows `low` to `high`.
fn step(low: u64, high: u64, d: [*]f64, e: [*]f64, queue: *Queue) void {
    // The eigenvalue of the leading 2 x 2 block that is nearer to d[low].
    const half = (d[low + 1] - d[low]) / (2 * e[low]);
    const root = std.math.copysign(@sqrt(half * half + 1), half);
    const shift = d[low] - e[low] / (half + root);
    var bulge = d[high] - shift;
    var c: f64 = 1;
    var s: f64 = 1;
    var moved: f64 = 0;
    var i = high;
    while (i > low) {
        i -= 1;
        const f = s * e[i];
        const b = c * e[i];
        const rotation: vector.Rotation = .of(bulge, f);
        const r = @abs(rotation.r);
        e[i + 1] = r;
        if (r == 0) {
            // The matrix falls apart here; the next step goes on with the smaller block.
            d[i + 1] -= moved;
            e[high] = 0;
            return;
        }
        s = f / r;
        c = bulge / r;
        bulge = d[i + 1] - moved;
        const t = (d[i] - bulge) * s + 2 * c * b;
        moved = s * t;
        d[i + 1] = bulge + moved;
        bulge = c * t - b;
        queue.push(i + 1, i, .{ .c = c, .s = s, .r = r });
    }
    d[low] -= moved;
    e[low] = bulge;
    e[high] = 0;
}
