//! attention and its gradient against sums taken one by one in float64.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const kernel_abi = @import("kernel_abi.zig");
const harness = @import("harness.zig");
const lanes = @import("lanes.zig");
const shapes = @import("gemm_shapes.zig");
const attention = @import("attention.zig");
const attention_grad = @import("attention_grad.zig");
const testing = std.testing;
const gpa = testing.allocator;

const Case = struct {
    batch: u64 = 1,
    heads: u64 = 1,
    key_heads: u64 = 1,
    queries: u64,
    keys: u64,
    width: u64 = 8,
    value_width: u64 = 8,
    causal: bool = false,
    window: u64 = 0,
    mask: enum { none, boolean, added } = .none,
    /// Extents of the mask that are not 1.
    mask_axes: [4]bool = @splat(true),
    layout: harness.Layout = .dense,
};

/// Everything about a case in float64.
const Reference = struct {
    case: Case,
    weights: []f64,
    out: []f64,
    lse: []f64,

    fn deinit(r: Reference) void {
        gpa.free(r.weights);
        gpa.free(r.out);
        gpa.free(r.lse);
    }
};

fn wide(comptime d: DType, view: *const harness.View, index: [4]u64) f64 {
    var flat: u64 = 0;
    for (view.operand.dims[0..4], index) |extent, i| flat = flat * extent + @min(i, extent - 1);
    const x = view.get(d, flat);
    return if (d == .bool) @floatFromInt(x) else x;
}

fn visible(c: Case, query: u64, key: u64) bool {
    const behind = @as(i64, @intCast(query + c.keys)) - @as(i64, @intCast(c.queries + key));
    const window: i64 = @intCast(c.window);
    if (c.causal and behind < 0) return false;
    if (c.window > 0 and behind >= window) return false;
    return c.causal or c.window == 0 or behind > -window;
}

const scale = 0.3;

fn reference(
    comptime d: DType,
    c: Case,
    q: *const harness.View,
    k: *const harness.View,
    v: *const harness.View,
    mask: ?*const harness.View,
) !Reference {
    const rows = c.batch * c.heads * c.queries;
    const r: Reference = .{
        .case = c,
        .weights = try gpa.alloc(f64, rows * c.keys),
        .out = try gpa.alloc(f64, rows * c.value_width),
        .lse = try gpa.alloc(f64, rows),
    };
    for (0..rows) |row| {
        const b = row / (c.heads * c.queries);
        const h = row / c.queries % c.heads;
        const l = row % c.queries;
        const hk = h / (c.heads / c.key_heads);
        const weights = r.weights[row * c.keys ..][0..c.keys];
        var top = -std.math.inf(f64);
        for (weights, 0..) |*w, s| {
            w.* = 0;
            for (0..c.width) |i| w.* += wide(d, q, .{ b, h, l, i }) * wide(d, k, .{ b, hk, s, i });
            w.* *= scale;
            if (c.mask == .added) w.* += wide(d, mask.?, .{ b, h, l, s });
            const hidden = c.mask == .boolean and wide(.bool, mask.?, .{ b, h, l, s }) == 0;
            if (hidden or !visible(c, l, s)) w.* = -std.math.inf(f64);
            top = @max(top, w.*);
        }
        var sum: f64 = 0;
        for (weights) |*w| {
            w.* = if (top == -std.math.inf(f64)) 0 else @exp(w.* - top);
            sum += w.*;
        }
        r.lse[row] = if (sum == 0) -std.math.inf(f64) else top + @log(sum);
        for (weights) |*w| w.* = if (sum == 0) 0 else w.* / sum;
        for (0..c.value_width) |i| {
            var total: f64 = 0;
            for (weights, 0..) |w, s| total += w * wide(d, v, .{ b, hk, s, i });
            r.out[row * c.value_width + i] = total;
        }
    }
    return r;
}

/// Inputs are below 6 in size with `width` terms a score: an absolute error of a score of about
/// width * 36 * scale * eps moves weights, and values below 6, by as much relatively.
fn tolerance(comptime d: DType, c: Case, magnitude: f64) f64 {
    const T = dtype.Compute(d);
    const eps: f64 = std.math.floatEps(T);
    const width: f64 = @floatFromInt(c.width + 16);
    const storage: f64 = switch (d) {
        .f16 => 0x1p-11,
        .bf16 => 0x1p-8,
        else => 0,
    };
    return magnitude * (width * 36 * scale * eps + storage) + 1e-30;
}

fn expectNear(want: f64, got: f64, allowed: f64) !void {
    if (want == got) return;
    if (!(@abs(want - got) <= allowed)) {
        std.debug.print("want {d} got {d} allowed {d}\n", .{ want, got, allowed });
        return error.TestExpectedApproxEqAbs;
    }
}

fn maskView(comptime d: DType, c: Case, random: std.Random) !?harness.View {
    const full = [4]u64{ c.batch, c.heads, c.queries, c.keys };
    var dims: [4]u64 = undefined;
    for (&dims, full, c.mask_axes) |*to, extent, kept| to.* = if (kept) extent else 1;
    return switch (c.mask) {
        .none => null,
        .boolean => try harness.randomView(random, .bool, &dims, .dense),
        .added => try harness.randomView(random, d, &dims, .transposed),
    };
}

fn attributesOf(c: Case) attention.Attributes {
    return .{ .scale = scale, .causal = c.causal, .window = c.window };
}

fn check(comptime d: DType, c: Case) !void {
    var prng: std.Random.DefaultPrng = .init(c.queries * 31 + c.keys);
    const random = prng.random();
    const L = c.layout;
    const value_dims = [_]u64{ c.batch, c.key_heads, c.keys, c.value_width };
    const q = try harness.randomView(random, d, &.{ c.batch, c.heads, c.queries, c.width }, L);
    defer q.deinit();
    const k = try harness.randomView(random, d, &.{ c.batch, c.key_heads, c.keys, c.width }, L);
    defer k.deinit();
    const v = try harness.randomView(random, d, &value_dims, L);
    defer v.deinit();
    const mask = try maskView(d, c, random);
    defer if (mask) |m| m.deinit();
    const lse_dtype: DType = if (d == .f64) .f64 else .f32;
    const rows = [_]u64{ c.batch, c.heads, c.queries };
    const out = try harness.makeView(d, &(rows ++ .{c.value_width}), .dense);
    defer out.deinit();
    const lse = try harness.makeView(lse_dtype, &rows, .dense);
    defer lse.deinit();
    const attributes = attributesOf(c);
    const mask_operand = if (mask) |m| m.operand else null;
    const isa = shapes.here;
    const g = attention.plan(q.operand, k.operand, v.operand, mask_operand, attributes, isa);
    var pointers: [10][*]u8 = undefined;
    const order = [_]*const harness.View{ &out, &lse, &q, &k, &v };
    for (order, 0..) |view, i| pointers[i] = view.pointer();
    if (mask) |m| pointers[5] = m.pointer();
    const count: usize = if (mask != null) 6 else 5;
    const status = try harness.execute(attention.run, &g, pointers[0..count]);
    try testing.expectEqual(kernel_abi.Fault.none, status.fault);

    const r = try reference(d, c, &q, &k, &v, if (mask) |*m| m else null);
    defer r.deinit();
    for (r.out, 0..) |want, i| try expectNear(want, out.get(d, i), tolerance(d, c, 12));
    for (r.lse, 0..) |want, i| try expectNear(want, lse.get(lse_dtype, i), 12 * tolerance(d, c, 1));
    try checkGrad(d, c, &r, &q, &k, &v, &out, &lse, if (mask) |*m| m else null, random);
}

/// Derivatives by the three operands in float64, dense.
const Gradients = struct {
    q: []f64,
    k: []f64,
    v: []f64,

    fn deinit(g: Gradients) void {
        gpa.free(g.q);
        gpa.free(g.k);
        gpa.free(g.v);
    }
};

fn referenceGrad(
    comptime d: DType,
    r: *const Reference,
    q: *const harness.View,
    k: *const harness.View,
    v: *const harness.View,
    out: *const harness.View,
    ct: *const harness.View,
) !Gradients {
    const c = r.case;
    const want: Gradients = .{
        .q = try gpa.alloc(f64, c.batch * c.heads * c.queries * c.width),
        .k = try gpa.alloc(f64, c.batch * c.key_heads * c.keys * c.width),
        .v = try gpa.alloc(f64, c.batch * c.key_heads * c.keys * c.value_width),
    };
    for ([_][]f64{ want.q, want.k, want.v }) |x| @memset(x, 0);
    for (0..c.batch * c.heads * c.queries) |row| {
        const b = row / (c.heads * c.queries);
        const h = row / c.queries % c.heads;
        const l = row % c.queries;
        const hk = h / (c.heads / c.key_heads);
        var inner: f64 = 0;
        for (0..c.value_width) |i| {
            inner += wide(d, ct, .{ b, h, l, i }) * wide(d, out, .{ b, h, l, i });
        }
        for (0..c.keys) |s| {
            const w = r.weights[row * c.keys + s];
            var dp: f64 = 0;
            const key_row = (b * c.key_heads + hk) * c.keys + s;
            for (0..c.value_width) |i| {
                dp += wide(d, ct, .{ b, h, l, i }) * wide(d, v, .{ b, hk, s, i });
                want.v[key_row * c.value_width + i] += w * wide(d, ct, .{ b, h, l, i });
            }
            const ds = w * (dp - inner) * scale;
            for (0..c.width) |i| {
                want.q[row * c.width + i] += ds * wide(d, k, .{ b, hk, s, i });
                want.k[key_row * c.width + i] += ds * wide(d, q, .{ b, h, l, i });
            }
        }
    }
    return want;
}

fn checkGrad(
    comptime d: DType,
    c: Case,
    r: *const Reference,
    q: *const harness.View,
    k: *const harness.View,
    v: *const harness.View,
    out: *const harness.View,
    lse: *const harness.View,
    mask: ?*const harness.View,
    random: std.Random,
) !void {
    const ct = try harness.randomView(random, d, out.operand.dims[0..4], .transposed);
    defer ct.deinit();
    const dq = try harness.makeView(d, q.operand.dims[0..4], .dense);
    defer dq.deinit();
    const dk = try harness.makeView(d, k.operand.dims[0..4], .dense);
    defer dk.deinit();
    const dv = try harness.makeView(d, v.operand.dims[0..4], .dense);
    defer dv.deinit();
    for ([_]*const harness.View{ &dq, &dk, &dv }) |x| @memset(x.memory, 0x33);
    const g = attention_grad.plan(
        q.operand,
        k.operand,
        v.operand,
        out.operand,
        lse.operand,
        ct.operand,
        if (mask) |m| m.operand else null,
        attributesOf(c),
        shapes.here,
    );
    var pointers: [10][*]u8 = undefined;
    const order = [_]*const harness.View{ &dq, &dk, &dv, q, k, v, out, lse, &ct };
    for (order, 0..) |view, i| pointers[i] = view.pointer();
    if (mask) |m| pointers[9] = m.pointer();
    const count: usize = if (mask != null) 10 else 9;
    const status = try harness.execute(attention_grad.run, &g, pointers[0..count]);
    try testing.expectEqual(kernel_abi.Fault.none, status.fault);

    const want = try referenceGrad(d, r, q, k, v, out, &ct);
    defer want.deinit();
    // |dp - inner| is below 2 * 36 * value_width, weights of a row add to 1, rows to `queries`.
    const value: f64 = @floatFromInt(c.value_width);
    const shared: f64 = @floatFromInt(c.queries * c.heads / c.key_heads);
    const each = 72 * value * scale * 6;
    const of_k = each * @sqrt(shared);
    const of_v = 12 * @sqrt(shared);
    for (want.q, 0..) |x, i| try expectNear(x, dq.get(d, i), tolerance(d, c, each));
    for (want.k, 0..) |x, i| try expectNear(x, dk.get(d, i), tolerance(d, c, of_k + @abs(x)));
    for (want.v, 0..) |x, i| try expectNear(x, dv.get(d, i), tolerance(d, c, of_v + @abs(x)));
}

test "plain attention of every dtype, ragged tiles" {
    inline for (harness.float_dtypes) |d| {
        try check(d, .{ .queries = 5, .keys = 7 });
        try check(d, .{ .queries = 70, .keys = 133, .width = 12, .value_width = 19 });
        try check(d, .{
            .batch = 2,
            .heads = 2,
            .key_heads = 2,
            .queries = 33,
            .keys = 40,
            .width = 32,
            .value_width = 64,
        });
    }
}

test "causality, windows, and more keys or queries" {
    inline for (.{ .f32, .f64 }) |d| {
        for ([_][2]u64{ .{ 66, 66 }, .{ 3, 200 }, .{ 150, 140 }, .{ 1, 130 }, .{ 300, 300 } }) |n| {
            try check(d, .{ .queries = n[0], .keys = n[1], .causal = true });
            try check(d, .{ .queries = n[0], .keys = n[1], .causal = true, .window = 20 });
            try check(d, .{ .queries = n[0], .keys = n[1], .window = 9 });
        }
    }
}

test "masks of every broadcast, and rows that see nothing" {
    inline for (.{ .f32, .f64, .bf16 }) |d| {
        inline for (.{ .boolean, .added }) |mask| {
            const base: Case = .{
                .batch = 2,
                .heads = 2,
                .queries = 35,
                .keys = 37,
                .mask = mask,
            };
            for (0..16) |bits| {
                var c = base;
                for (&c.mask_axes, 0..) |*axis, i| axis.* = bits >> @intCast(i) & 1 == 1;
                try check(d, c);
            }
            var c = base;
            c.causal = true;
            c.keys = 3; // earlier queries see no key
            try check(d, c);
        }
    }
}

test "heads in groups, strided operands" {
    inline for (.{ harness.Layout.transposed, .reversed, .spaced, .broadcast }) |layout| {
        try check(.f32, .{
            .batch = 2,
            .heads = 4,
            .key_heads = 2,
            .queries = 40,
            .keys = 150,
            .layout = layout,
        });
        try check(.f16, .{ .heads = 3, .queries = 9, .keys = 12, .layout = layout });
    }
}

test "a few queries: every dtype and mask, no whole vectors, groups" {
    inline for (harness.float_dtypes) |d| {
        inline for (.{ .none, .boolean, .added }) |mask| {
            try check(d, .{
                .batch = 2,
                .heads = 4,
                .key_heads = 2,
                .queries = 3,
                .keys = 275,
                .width = 21,
                .value_width = 37,
                .mask = mask,
                .mask_axes = .{ true, false, true, true },
                .causal = true,
            });
        }
        try check(d, .{ .queries = 1, .keys = 6, .width = 64, .value_width = 64, .window = 4 });
        try check(d, .{ .queries = 4, .keys = 2, .causal = true }); // two queries see nothing
    }
}

test "no queries, no keys" {
    try check(.f32, .{ .queries = 0, .keys = 4 });
    try check(.f32, .{ .queries = 4, .keys = 0 });
}
