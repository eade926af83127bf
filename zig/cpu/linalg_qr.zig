//! QR by Householder reflections, with LAPACK's signs. The matrix lies transposed, so that each
//! column is a row of memory.
const kernel_abi = @import("kernel_abi.zig");
const vector = @import("linalg_vector.zig");
const TaskContext = kernel_abi.TaskContext;

/// Replaces the columns of `a` `[columns][rows]` by R on and above the diagonal and the vectors of
/// the reflections below it (their first element, 1, is not kept); `taus` holds one element for
/// each of the smaller extent.
pub fn factor(rows: u64, columns: u64, a: [*]f64, taus: [*]f64, ctx: *const TaskContext) void {
    for (0..@min(rows, columns)) |k| {
        if (ctx.isCancelled()) return;
        const v = a + k * rows + k;
        const reflection = vector.reflect(rows - k, v);
        taus[k] = reflection.tau;
        for (k + 1..columns) |j| {
            vector.applyReflection(rows - k, reflection.tau, v, a + j * rows + k);
        }
        v[0] = reflection.beta;
    }
}

/// Writes the first `wanted` columns of Q to `q` `[wanted][rows]`; `wanted` is at least the number
/// of reflections. `a` loses its diagonal.
pub fn orthogonal(
    rows: u64,
    columns: u64,
    wanted: u64,
    a: [*]f64,
    taus: [*]const f64,
    q: [*]f64,
    ctx: *const TaskContext,
) void {
    @memset(q[0 .. wanted * rows], 0);
    for (0..wanted) |j| q[j * rows + j] = 1;
    var k = @min(rows, columns);
    while (k > 0) {
        k -= 1;
        if (ctx.isCancelled()) return;
        const v = a + k * rows + k;
        v[0] = 1;
        for (k..wanted) |j| vector.applyReflection(rows - k, taus[k], v, q + j * rows + k);
    }
}
