//! Passes over one dense row of floats, for softmax, norms and losses: mapped sums as a fixed tree
//! and elementwise stores, vectors with a padded last one. What is applied to the vectors is a
//! context with a method `apply`, inlined.
const std = @import("std");
const dtype = @import("../dtype.zig");
const lanes = @import("lanes.zig");
const math = @import("math.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;

/// Vectors added in a row before the sum becomes part of the tree.
const vectors_per_partial = 32;

/// Loads `n` elements, fewer than a vector; the other lanes are `fill`.
pub inline fn loadPart(
    comptime d: DType,
    p: [*]const Storage(d),
    n: u64,
    fill: Compute(d),
) lanes.Vector(d) {
    const W = lanes.lanes(d);
    var padded: [W]Storage(d) = undefined;
    copyPart(Storage(d), W, &padded, p, n);
    const inside = std.simd.iota(u32, W) < @as(@Vector(W, u32), @splat(@intCast(n)));
    return @select(Compute(d), inside, lanes.load(d, &padded), @as(lanes.Vector(d), @splat(fill)));
}

/// Copies `n < W` elements (W a power of two) in pieces of halving length.
inline fn copyPart(comptime T: type, comptime W: u32, to: [*]T, from: [*]const T, n: u64) void {
    const Bits = @Int(.unsigned, @bitSizeOf(T));
    const target: [*]Bits = @ptrCast(to);
    const source: [*]const Bits = @ptrCast(from);
    var i: u64 = 0;
    comptime var piece = W / 2;
    inline while (piece > 0) : (piece /= 2) {
        if (n & piece != 0) {
            const v: @Vector(piece, Bits) = source[i..][0..piece].*;
            target[i..][0..piece].* = v;
            i += piece;
        }
    }
}

/// Stores the first `n` lanes, fewer than a vector.
pub inline fn storePart(comptime d: DType, p: [*]Storage(d), n: u64, v: lanes.Vector(d)) void {
    var padded: [lanes.lanes(d)]Storage(d) = undefined;
    lanes.store(d, &padded, v);
    copyPart(Storage(d), lanes.lanes(d), p, &padded, n);
}

/// The largest of `n` elements, NaN if one is; -inf if there is none.
pub inline fn maximum(comptime d: DType, p: [*]const Storage(d), n: u64) Compute(d) {
    const W = lanes.lanes(d);
    const lowest = -std.math.inf(Compute(d));
    var a: lanes.Vector(d) = @splat(lowest);
    var b = a;
    var i: u64 = 0;
    while (i + 2 * W <= n) : (i += 2 * W) {
        a = lanes.combine(.max, a, lanes.load(d, p + i));
        b = lanes.combine(.max, b, lanes.load(d, p + i + W));
    }
    if (i + W <= n) {
        a = lanes.combine(.max, a, lanes.load(d, p + i));
        i += W;
    }
    if (i < n) b = lanes.combine(.max, b, loadPart(d, p + i, n - i, lowest));
    return lanes.fold(.max, lanes.combine(.max, a, b));
}

/// The sum of `context.apply(x, i)` over vectors of the row, `i` the position of the first lane.
/// Additions run at most 32 deep in each lane before they become part of a balanced tree.
pub inline fn sum(
    comptime d: DType,
    p: [*]const Storage(d),
    n: u64,
    context: anytype,
) Compute(d) {
    const W = lanes.lanes(d);
    const V = lanes.Vector(d);
    const zero: V = @splat(0);
    var levels: [40]V = undefined;
    var pushed: u64 = 0;
    var i: u64 = 0;
    var tail = zero;
    if (n % W != 0) {
        const rest = n % W;
        const applied = context.apply(loadPart(d, p + (n - rest), rest, 0), n - rest);
        const inside = std.simd.iota(u32, W) < @as(@Vector(W, u32), @splat(@intCast(rest)));
        tail = @select(Compute(d), inside, applied, zero);
    }
    const whole = n - n % W;
    while (i < whole) {
        const stop = @min(i + 2 * W * vectors_per_partial, whole);
        var a = zero;
        var b = zero;
        while (i + 2 * W <= stop) : (i += 2 * W) {
            a += context.apply(lanes.load(d, p + i), i);
            b += context.apply(lanes.load(d, p + i + W), i + W);
        }
        if (i < stop) {
            a += context.apply(lanes.load(d, p + i), i);
            i += W;
        }
        var carried = a + b;
        var level: u32 = 0;
        var bits = pushed;
        while (bits & 1 == 1) : (bits >>= 1) {
            carried += levels[level];
            level += 1;
        }
        levels[level] = carried;
        pushed += 1;
    }
    var total = tail;
    var level: u32 = 0;
    while (pushed >> @intCast(level) != 0) : (level += 1) {
        if (pushed >> @intCast(level) & 1 == 1) total += levels[level];
    }
    return lanes.fold(.sum, total);
}

/// `to[i] = context.apply(from[i], i)` over the row; `to` may be `from`.
pub inline fn map(
    comptime d: DType,
    comptime from_dtype: DType,
    to: [*]Storage(d),
    from: [*]const Storage(from_dtype),
    n: u64,
    context: anytype,
) void {
    const W = lanes.lanes(d);
    var i: u64 = 0;
    while (i + W <= n) : (i += W) {
        lanes.store(d, to + i, context.apply(lanes.load(from_dtype, from + i), i));
    }
    if (i < n) {
        const v = context.apply(loadPart(from_dtype, from + i, n - i, 0), i);
        storePart(d, to + i, n - i, v);
    }
}

/// `exp(x - shift)`, kept at `keep` (a whole number of vectors long) for a later pass.
pub fn ExpAndKeep(comptime d: DType) type {
    return struct {
        shift: Compute(d),
        keep: [*]Compute(d),
        /// Elements that `keep` has room for.
        room: u64,

        pub inline fn apply(c: @This(), x: lanes.Vector(d), i: u64) lanes.Vector(d) {
            const W = lanes.lanes(d);
            const e = math.exp(x - @as(lanes.Vector(d), @splat(c.shift)));
            if (i + W <= c.room) {
                c.keep[i..][0..W].* = e;
            } else {
                const all: [W]Compute(d) = e;
                copyPart(Compute(d), W, c.keep + i, &all, c.room - i);
            }
            return e;
        }
    };
}

/// `exp(x - shift)`.
pub fn Exp(comptime d: DType) type {
    return struct {
        shift: Compute(d),

        pub inline fn apply(c: @This(), x: lanes.Vector(d), _: u64) lanes.Vector(d) {
            return math.exp(x - @as(lanes.Vector(d), @splat(c.shift)));
        }
    };
}

/// The natural logarithm of one number.
pub inline fn logarithm(comptime T: type, x: T) T {
    const v: @Vector(lanes.width(T), T) = @splat(x);
    return math.log(v)[0];
}

test "sums and maxima of every length" {
    var values: [1500]f32 = undefined;
    for (&values, 0..) |*v, i| v.* = @floatFromInt(i % 17);
    const Identity = struct {
        pub inline fn apply(_: @This(), x: @Vector(16, f32), _: u64) @Vector(16, f32) {
            return x + @as(@Vector(16, f32), @splat(1));
        }
    };
    var total: f32 = 0;
    var largest = -std.math.inf(f32);
    for (0..values.len) |n| {
        try std.testing.expectEqual(total, sum(.f32, &values, n, Identity{}));
        try std.testing.expectEqual(largest, maximum(.f32, &values, n));
        total += values[n] + 1;
        largest = @max(largest, values[n]);
    }
    values[700] = std.math.nan(f32);
    try std.testing.expect(std.math.isNan(maximum(.f32, &values, 1000)));
    try std.testing.expectEqual(@as(f32, 16), maximum(.f32, &values, 700));
}
