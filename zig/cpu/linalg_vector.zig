//! Rows of float64 that the factorisations are made of: sums of products, updates, reflections and
//! rotations. None is inlined: each is called from a dozen places, and code is multiplied by the
//! number of instruction sets. A sum of products is four running vectors and a tree, so its error
//! grows with n / 32.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const lanes = @import("lanes.zig");
const TaskContext = kernel_abi.TaskContext;

const W = lanes.width(f64);
const V = @Vector(W, f64);

/// The sum of `x[i] * y[i]`.
pub noinline fn dot(n: u64, x: [*]const f64, y: [*]const f64) f64 {
    var sums: [4]V = @splat(@splat(0));
    var i: u64 = 0;
    while (i + 4 * W <= n) : (i += 4 * W) {
        inline for (&sums, 0..) |*sum, k| {
            const a: V = x[i + k * W ..][0..W].*;
            const b: V = y[i + k * W ..][0..W].*;
            sum.* += a * b;
        }
    }
    while (i + W <= n) : (i += W) {
        const a: V = x[i..][0..W].*;
        const b: V = y[i..][0..W].*;
        sums[0] += a * b;
    }
    var total = lanes.fold(.sum, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    while (i < n) : (i += 1) {
        lanes.keepScalar();
        total += x[i] * y[i];
    }
    return total;
}

/// `y += factor * x`; the two do not overlap.
pub noinline fn addScaled(n: u64, factor: f64, noalias x: [*]const f64, noalias y: [*]f64) void {
    const wide: V = @splat(factor);
    var i: u64 = 0;
    while (i + W <= n) : (i += W) {
        const a: V = x[i..][0..W].*;
        const b: V = y[i..][0..W].*;
        y[i..][0..W].* = b + wide * a;
    }
    while (i < n) : (i += 1) {
        lanes.keepScalar();
        y[i] += factor * x[i];
    }
}

/// `x *= factor`.
pub noinline fn scale(n: u64, factor: f64, x: [*]f64) void {
    for (x[0..n]) |*e| e.* *= factor;
}

/// The reflection `I - tau v v^T` with `v[0] = 1` that takes a vector to `beta` times the first
/// unit vector.
pub const Reflection = struct { tau: f64, beta: f64 };

/// Replaces `x` by the vector v of the reflection that takes it to a multiple of the first unit
/// vector. As in LAPACK, beta has the sign that x[0] has not, and x that is zero beyond its first
/// element is left alone (tau = 0).
pub noinline fn reflect(n: u64, x: [*]f64) Reflection {
    if (n == 0) return .{ .tau = 0, .beta = 0 };
    const alpha = x[0];
    x[0] = 1;
    const rest = dot(n - 1, x + 1, x + 1);
    if (rest == 0) return .{ .tau = 0, .beta = alpha };
    const beta = -std.math.copysign(@sqrt(alpha * alpha + rest), alpha);
    scale(n - 1, 1 / (alpha - beta), x + 1);
    return .{ .tau = (beta - alpha) / beta, .beta = beta };
}

/// Applies a reflection to `x`.
pub noinline fn applyReflection(n: u64, tau: f64, v: [*]const f64, x: [*]f64) void {
    if (tau != 0) addScaled(n, -tau * dot(n, v, x), v, x);
}

/// A rotation in a plane: `x' = c x + s y`, `y' = c y - s x`.
pub const Rotation = struct {
    c: f64,
    s: f64,
    /// What becomes of x, where the rotation was made to take y to zero.
    r: f64,

    /// The rotation that takes (x, y) to (r, 0).
    pub fn of(x: f64, y: f64) Rotation {
        if (y == 0) return .{ .c = 1, .s = 0, .r = x };
        const r = @sqrt(x * x + y * y);
        if (r == 0) return .{ .c = 1, .s = 0, .r = 0 };
        return .{ .c = x / r, .s = y / r, .r = r };
    }
};

/// Rotations of pairs of rows of a matrix, collected and then applied to a strip of columns at a
/// time, which stays in the cache: one at a time they would stream the whole matrix through it
/// again and again.
pub const Queue = struct {
    const strip = 32;
    const Entry = extern struct { x: u64, y: u64, c: f64, s: f64 };

    entries: [*]Entry,
    capacity: u64,
    count: u64 = 0,
    rows: [*]f64,
    columns: u64,
    ctx: *const TaskContext,

    /// How many rotations a queue for n rows holds; several sweeps of an iteration.
    pub fn capacityFor(n: u64) u64 {
        return 8 * n + 8;
    }

    /// Float64s that the queue takes.
    pub fn wordsFor(n: u64) u64 {
        return capacityFor(n) * (@sizeOf(Entry) / @sizeOf(f64));
    }

    /// A queue in `memory` for the rows of a matrix; of no columns, it forgets what it is given.
    pub fn init(
        memory: [*]f64,
        n: u64,
        rows: [*]f64,
        columns: u64,
        ctx: *const TaskContext,
    ) Queue {
        return .{
            .entries = @ptrCast(memory),
            .capacity = capacityFor(n),
            .rows = rows,
            .columns = columns,
            .ctx = ctx,
        };
    }

    pub noinline fn push(q: *Queue, x: u64, y: u64, rotation: Rotation) void {
        if (q.columns == 0) return;
        if (q.count == q.capacity) q.flush();
        q.entries[q.count] = .{ .x = x, .y = y, .c = rotation.c, .s = rotation.s };
        q.count += 1;
    }

    pub noinline fn flush(q: *Queue) void {
        var start: u64 = 0;
        while (start < q.columns and !q.ctx.isCancelled()) : (start += strip) {
            const n = @min(strip, q.columns - start);
            for (q.entries[0..q.count]) |e| {
                const x = q.rows + e.x * q.columns + start;
                const y = q.rows + e.y * q.columns + start;
                rotate(n, x, y, e.c, e.s);
            }
        }
        q.count = 0;
    }

    fn rotate(n: u64, noalias x: [*]f64, noalias y: [*]f64, c: f64, s: f64) void {
        const wide_c: V = @splat(c);
        const wide_s: V = @splat(s);
        var i: u64 = 0;
        while (i + W <= n) : (i += W) {
            const a: V = x[i..][0..W].*;
            const b: V = y[i..][0..W].*;
            x[i..][0..W].* = wide_c * a + wide_s * b;
            y[i..][0..W].* = wide_c * b - wide_s * a;
        }
        while (i < n) : (i += 1) {
            lanes.keepScalar();
            const a = x[i];
            x[i] = c * a + s * y[i];
            y[i] = c * y[i] - s * a;
        }
    }
};

/// The power of two that brings the largest magnitude of a matrix into [1/2, 1), so that no square
/// over- or underflows; null if an element is infinite or NaN.
pub noinline fn balance(x: []f64) ?f64 {
    var largest: f64 = 0;
    for (x) |e| {
        if (!std.math.isFinite(e)) return null;
        largest = @max(largest, @abs(e));
    }
    if (largest == 0) return 1;
    const exponent = std.math.frexp(largest).exponent;
    const bounded = std.math.clamp(exponent, -1000, 1000);
    const factor = std.math.ldexp(@as(f64, 1), -bounded);
    scale(x.len, factor, x.ptr);
    return std.math.ldexp(@as(f64, 1), bounded);
}

/// Writes the positions of `keys` in ascending (or descending) order; equal ones keep their order.
pub noinline fn sortedPositions(keys: []const f64, positions: [*]u64, descending: bool) void {
    const Order = struct {
        keys: []const f64,
        descending: bool,

        fn before(o: @This(), a: u64, b: u64) bool {
            return if (o.descending) o.keys[a] > o.keys[b] else o.keys[a] < o.keys[b];
        }
    };
    for (0..keys.len) |i| positions[i] = i;
    const order: Order = .{ .keys = keys, .descending = descending };
    std.sort.insertion(u64, positions[0..keys.len], order, Order.before);
}

/// -1 if the element of largest magnitude is negative (the first of several), else 1.
pub noinline fn signOfLargest(x: []const f64) f64 {
    var largest: f64 = 0;
    for (x) |e| {
        if (@abs(e) > @abs(largest)) largest = e;
    }
    return if (largest < 0) -1 else 1;
}

test "a sum of products of any length" {
    var x: [100]f64 = undefined;
    var y: [100]f64 = undefined;
    for (0..100) |i| {
        x[i] = @floatFromInt(i + 1);
        y[i] = if (i % 2 == 0) 1 else -2;
    }
    for ([_]u64{ 0, 1, 7, 8, 31, 32, 33, 63, 100 }) |n| {
        var expected: f64 = 0;
        for (0..n) |i| expected += x[i] * y[i];
        try std.testing.expectEqual(expected, dot(n, &x, &y));
    }
}

test "a reflection takes a vector to a multiple of the first unit vector" {
    var x = [_]f64{ 3, 4, 12 };
    const r = reflect(3, &x);
    try std.testing.expectApproxEqAbs(-13, r.beta, 1e-14);
    var y = [_]f64{ 3, 4, 12 };
    applyReflection(3, r.tau, &x, &y);
    try std.testing.expectApproxEqAbs(-13, y[0], 1e-14);
    try std.testing.expectApproxEqAbs(0, y[1], 1e-14);
    try std.testing.expectApproxEqAbs(0, y[2], 1e-14);
    var unit = [_]f64{ -5, 0 };
    try std.testing.expectEqual(Reflection{ .tau = 0, .beta = -5 }, reflect(2, &unit));
}

test "queued rotations are applied in order" {
    var rows: [3 * 50]f64 = undefined;
    var expected: [3 * 50]f64 = undefined;
    for (&rows, &expected, 0..) |*r, *e, i| {
        r.* = @floatFromInt(i % 17);
        e.* = r.*;
    }
    var memory: [Queue.wordsFor(3)]f64 = undefined;
    const cancel: u32 = 0;
    var status: kernel_abi.Status = .{};
    const ctx: TaskContext = .{ .scratch = undefined, .cancel = &cancel, .status = &status };
    var q: Queue = .init(&memory, 3, &rows, 50, &ctx);
    for (0..100) |step| {
        const x = step % 3;
        const y = (step + 1) % 3;
        const rotation: Rotation = .of(3, @floatFromInt(step % 5));
        q.push(x, y, rotation);
        for (0..50) |j| {
            const a = expected[x * 50 + j];
            const b = expected[y * 50 + j];
            expected[x * 50 + j] = rotation.c * a + rotation.s * b;
            expected[y * 50 + j] = rotation.c * b - rotation.s * a;
        }
    }
    q.flush();
    try std.testing.expectEqualSlices(f64, &expected, &rows);
}

test "balancing is exact and refuses what is not finite" {
    var x = [_]f64{ 3e200, -1, 0 };
    const factor = balance(&x).?;
    try std.testing.expect(@abs(x[0]) < 1 and @abs(x[0]) >= 0.5);
    try std.testing.expectEqual(3e200, x[0] * factor);
    var tiny = [_]f64{5e-324};
    try std.testing.expectEqual(5e-324, tiny[0] * 1);
    const small = balance(&tiny).?;
    try std.testing.expectEqual(5e-324, tiny[0] * small);
    var bad = [_]f64{ 1, std.math.nan(f64) };
    try std.testing.expectEqual(@as(?f64, null), balance(&bad));
}
