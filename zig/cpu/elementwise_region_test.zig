//! Tests of whole regions: operand layouts, several results, results in the memory of operands, and
//! random programs against the same operations one at a time.
const std = @import("std");
const kernel_abi = @import("kernel_abi.zig");
const dtype = @import("../dtype.zig");
const elementwise = @import("elementwise.zig");
const plan = @import("elementwise_plan.zig");
const execute = @import("elementwise_test.zig").execute;
const DType = dtype.DType;
const Operand = kernel_abi.Operand;
const Builder = elementwise.Builder;
const testing = std.testing;

fn pointer(slice: anytype) [*]u8 {
    return @ptrCast(@constCast(slice.ptr));
}

fn strided(d: DType, dims: []const u64, strides: []const i64) Operand {
    var o: Operand = .{ .dtype = d, .rank = @intCast(dims.len) };
    @memcpy(o.dims[0..dims.len], dims);
    @memcpy(o.strides[0..strides.len], strides);
    return o;
}

/// Element `linear` (row-major) of an operand whose element 0 is `base[origin]`.
fn at(comptime T: type, base: []const T, origin: i64, o: *const Operand, linear: u64) T {
    var rest = linear;
    var offset = origin;
    var axis = o.rank;
    while (axis > 0) {
        axis -= 1;
        offset += @as(i64, @intCast(rest % o.dims[axis])) * o.strides[axis];
        rest /= o.dims[axis];
    }
    return base[@intCast(offset)];
}

/// x*2 - y over [outer, inner] with y in many layouts.
fn checkLayout(comptime d: DType, dims: []const u64, strides: []const i64, origin: i64) !void {
    const T = dtype.Storage(d);
    var n: u64 = 1;
    for (dims) |extent| n *= extent;
    const y = try testing.allocator.alloc(T, 1 << 16);
    defer testing.allocator.free(y);
    for (y, 0..) |*e, i| e.* = @intCast(i * 7 % 113);
    const x = try testing.allocator.alloc(T, n);
    defer testing.allocator.free(x);
    for (x, 0..) |*e, i| e.* = @intCast(i % 101);
    const out = try testing.allocator.alloc(T, n + 1);
    defer testing.allocator.free(out);
    out[n] = 77;
    const operand = strided(d, dims, strides);
    const base: [*]u8 = @ptrCast(&y[@intCast(origin)]);
    var b: Builder = .init(dims);
    const rx = try b.addLoad(.contiguous(d, dims), 1);
    const ry = try b.addLoad(operand, 2);
    const two = try b.addConstant(d, 2);
    const product = try b.addOp(.multiply, d, d, &.{ rx, two }, 0);
    const difference = try b.addOp(.subtract, d, d, &.{ product, ry }, 0);
    try b.addStore(difference, d, 0);
    const g = try b.finish();
    try execute(&g, &.{ pointer(out), pointer(x), base });
    for (0..n) |i| {
        try testing.expectEqual(x[i] *% 2 -% at(T, y, origin, &operand, i), out[i]);
    }
    try testing.expectEqual(@as(T, 77), out[n]);
    // The same operand alone: a copy.
    const copy = try plan.planCopy(operand, dims);
    @memset(out[0..n], 0);
    try execute(&copy, &.{ pointer(out), base });
    for (0..n) |i| try testing.expectEqual(at(T, y, origin, &operand, i), out[i]);
    try testing.expectEqual(@as(T, 77), out[n]);
}

test "operands of every layout" {
    inline for (.{ DType.u8, DType.i16, DType.i32, DType.i64 }) |d| {
        // Scalars, biases, columns, negative and large steps, transpositions, short and long rows.
        try checkLayout(d, &.{}, &.{}, 3);
        try checkLayout(d, &.{1}, &.{5}, 3);
        try checkLayout(d, &.{3000}, &.{0}, 3);
        try checkLayout(d, &.{3000}, &.{-3}, 9000);
        try checkLayout(d, &.{ 7, 10 }, &.{ 0, 1 }, 0);
        try checkLayout(d, &.{ 300, 10 }, &.{ 0, 1 }, 0);
        try checkLayout(d, &.{ 300, 7 }, &.{ 1, 0 }, 0);
        try checkLayout(d, &.{ 5, 1536 }, &.{ 0, 1 }, 0);
        try checkLayout(d, &.{ 5, 1537 }, &.{ 2000, 1 }, 0);
        try checkLayout(d, &.{ 5, 768 }, &.{ 1, 0 }, 0);
        try checkLayout(d, &.{ 40, 50 }, &.{ 1, 40 }, 0);
        try checkLayout(d, &.{ 3, 70, 65 }, &.{ 5000, 1, 70 }, 0);
        try checkLayout(d, &.{ 5, 13000 }, &.{ 1, 5 }, 0);
        try checkLayout(d, &.{ 300, 200 }, &.{ 1, 301 }, 0);
        try checkLayout(d, &.{ 3, 33, 4, 31 }, &.{ 31, 1, 4096, 94 }, 0);
        try checkLayout(d, &.{ 64, 96 }, &.{ -1, 64 }, 63);
        try checkLayout(d, &.{ 4, 3, 5, 2, 6 }, &.{ 0, 12, 0, 6, 1 }, 0);
        try checkLayout(d, &.{ 17, 1, 3, 129 }, &.{ -387, 9, 129, -1 }, 17 * 387);
    }
}

test "each power keeps its own exponent, 0 among them" {
    const dims = [_]u64{100};
    var b: Builder = .init(&dims);
    const x = try b.addLoad(.contiguous(.i64, &dims), 1);
    const zeroth = try b.addOp(.integer_power, .i64, .i64, &.{x}, 0);
    const fifth = try b.addOp(.integer_power, .i64, .i64, &.{x}, 5);
    const sum = try b.addOp(.add, .i64, .i64, &.{ zeroth, fifth }, 0);
    try b.addStore(sum, .i64, 0);
    const g = try b.finish();
    var in: [100]i64 = undefined;
    var out: [100]i64 = undefined;
    for (&in, 0..) |*value, i| value.* = @intCast(i);
    try execute(&g, &.{ pointer(@as([]i64, &out)), pointer(@as([]i64, &in)) });
    for (in, out) |value, got| {
        try testing.expectEqual(1 + value * value * value * value * value, got);
    }
}

test "zero extents make no task" {
    var b: Builder = .init(&.{ 3, 0, 2 });
    const x = try b.addLoad(.contiguous(.f32, &.{ 3, 0, 2 }), 1);
    const y = try b.addOp(.exp, .f32, .f32, &.{x}, 0);
    try b.addStore(y, .f32, 0);
    const g = try b.finish();
    try testing.expectEqual(@as(u64, 0), g.work.task_count);
}

test "several results of several dtypes" {
    const n = 2500;
    const dims = [_]u64{n};
    var x: [n]f32 = undefined;
    for (&x, 0..) |*e, i| e.* = @as(f32, @floatFromInt(i)) - 1200;
    var b: Builder = .init(&dims);
    const rx = try b.addLoad(.contiguous(.f32, &dims), 4);
    const zero = try b.addConstant(.f32, 0);
    const positive = try b.addOp(.greater, .f32, .bool, &.{ rx, zero }, 0);
    const relu = try b.addOp(.where, .f32, .f32, &.{ positive, rx, zero }, 0);
    const half = try b.addOp(.cast, .f32, .bf16, &.{relu}, 0);
    const wide = try b.addOp(.cast, .bf16, .f64, &.{half}, 0);
    const index = try b.addIota(0);
    const sum = try b.addOp(.cast, .i64, .f64, &.{index}, 0);
    const total = try b.addOp(.add, .f64, .f64, &.{ wide, sum }, 0);
    try b.addStore(positive, .bool, 0);
    try b.addStore(half, .bf16, 1);
    try b.addStore(total, .f64, 2);
    try b.addStore(rx, .f32, 3);
    const g = try b.finish();
    var masks: [n]u8 = undefined;
    var halves: [n]dtype.Bf16 = undefined;
    var totals: [n]f64 = undefined;
    var copies: [n]f32 = undefined;
    const ptrs = [_][*]u8{
        @ptrCast(&masks), @ptrCast(&halves), @ptrCast(&totals), @ptrCast(&copies), @ptrCast(&x),
    };
    try execute(&g, &ptrs);
    for (0..n) |i| {
        const rounded = dtype.Bf16.fromF32(@max(x[i], 0));
        try testing.expectEqual(@intFromBool(x[i] > 0), @as(u1, @intCast(masks[i])));
        try testing.expectEqual(rounded.bits, halves[i].bits);
        try testing.expectEqual(@as(f64, rounded.toF32()) + @as(f64, @floatFromInt(i)), totals[i]);
        try testing.expectEqual(x[i], copies[i]);
    }
}

test "results in the memory of their operands" {
    // m, v and p of an optimizer step, each in place, with x swapped into another operand's memory.
    const n = 3001;
    const dims = [_]u64{n};
    var p: [n]f32 = undefined;
    var m: [n]f32 = undefined;
    var grad: [n]f32 = undefined;
    for (&p, &m, &grad, 0..) |*a, *b, *c, i| {
        a.* = @floatFromInt(i);
        b.* = @floatFromInt(i % 7);
        c.* = @floatFromInt(i % 11);
    }
    const old_p = p;
    const old_m = m;
    const old_grad = grad;
    var b: Builder = .init(&dims);
    const rp = try b.addLoad(.contiguous(.f32, &dims), 3);
    const rm = try b.addLoad(.contiguous(.f32, &dims), 4);
    const rg = try b.addLoad(.contiguous(.f32, &dims), 5);
    const decay = try b.addConstant(.f32, @as(u32, @bitCast(@as(f32, 0.5))));
    const kept = try b.addOp(.multiply, .f32, .f32, &.{ rm, decay }, 0);
    const new_m = try b.addOp(.add, .f32, .f32, &.{ kept, rg }, 0);
    const step = try b.addOp(.multiply, .f32, .f32, &.{ new_m, decay }, 0);
    const new_p = try b.addOp(.subtract, .f32, .f32, &.{ rp, step }, 0);
    try b.addStore(new_m, .f32, 1);
    try b.addStore(new_p, .f32, 0);
    // The old parameters go where the gradient was.
    try b.addStore(rp, .f32, 2);
    const g = try b.finish();
    const results = [_][*]u8{ @ptrCast(&p), @ptrCast(&m), @ptrCast(&grad) };
    try execute(&g, &(results ++ results));
    for (0..n) |i| {
        const want_m = old_m[i] * 0.5 + old_grad[i];
        try testing.expectEqual(want_m, m[i]);
        try testing.expectEqual(old_p[i] - want_m * 0.5, p[i]);
        try testing.expectEqual(old_p[i], grad[i]);
    }
}

test "capacities are errors" {
    const dims = [_]u64{4};
    var b: Builder = .init(&dims);
    for (0..elementwise.load_max) |i| _ = try b.addLoad(.contiguous(.f32, &dims), @intCast(i));
    try testing.expectError(error.RegionFull, b.addLoad(.contiguous(.f32, &dims), 99));
    for (0..elementwise.constant_max) |i| _ = try b.addConstant(.f32, i);
    try testing.expectError(error.RegionFull, b.addConstant(.f32, 1000));
    // All alive until the sum at the end.
    var wide: Builder = .init(&dims);
    const x = try wide.addLoad(.contiguous(.f32, &dims), 1);
    var values: [elementwise.slot_max + 4]elementwise.Register = undefined;
    for (&values) |*v| v.* = try wide.addOp(.exp, .f32, .f32, &.{x}, 0);
    var sum = values[0];
    for (values[1..]) |v| sum = try wide.addOp(.add, .f32, .f32, &.{ sum, v }, 0);
    try wide.addStore(sum, .f32, 0);
    try testing.expectError(error.RegionFull, wide.finish());
}

const program_length = 12;
const operand_count = 5;

const random_codes = [_]elementwise.TileOp{
    .add,
    .subtract,
    .multiply,
    .multiply,
    .add,
    .maximum,
    .tanh,
    .square,
    .abs,
};

/// A float32 operand of `dims` in a random layout.
fn randomOperand(random: std.Random, dims: [2]u64) Operand {
    const row: i64 = @intCast(dims[1]);
    const column: i64 = @intCast(dims[0]);
    const strides: [2]i64 = switch (random.uintLessThan(u32, 6)) {
        0 => .{ 0, 0 },
        1 => .{ 0, 1 },
        2 => .{ 1, 0 },
        3 => .{ 1, column },
        4 => .{ 2 * row, 2 },
        else => .{ row, 1 },
    };
    return strided(.f32, &dims, &strides);
}

/// One operation in a region of its own, from operands at `sources` to dense float32 at `out`.
fn runAlone(
    code: elementwise.TileOp,
    dims: [2]u64,
    operands: []const Operand,
    sources: [2][*]u8,
    out: [*]u8,
) !void {
    var single: Builder = .init(&dims);
    var registers: [2]elementwise.Register = undefined;
    for (registers[0..operands.len], operands, 1..) |*register, operand, i| {
        register.* = try single.addLoad(operand, @intCast(i));
    }
    const result = try single.addOp(code, .f32, .f32, registers[0..operands.len], 0);
    try single.addStore(result, .f32, 0);
    const g = try single.finish();
    const ptrs = [_][*]u8{ out, sources[0], sources[1] };
    try execute(&g, ptrs[0 .. 1 + operands.len]);
}

fn expectSameBits(want: []const f32, got: []const f32) !void {
    for (want, got) |a, b| {
        if (std.math.isNan(a) and std.math.isNan(b)) continue;
        try testing.expectEqual(@as(u32, @bitCast(a)), @as(u32, @bitCast(b)));
    }
}

/// A random program over float32 operands of mixed layouts, run as one region and as one region for
/// each operation: fusing must not change a bit.
fn checkRandomProgram(random: std.Random) !void {
    const dims = [_]u64{ random.intRangeAtMost(u64, 1, 40), random.intRangeAtMost(u64, 1, 90) };
    const n = dims[0] * dims[1];
    const memory = try testing.allocator.alloc(f32, 8192);
    defer testing.allocator.free(memory);
    for (memory) |*e| e.* = (random.float(f32) - 0.5) * 6;
    const temporaries = try testing.allocator.alloc(f32, n * program_length);
    defer testing.allocator.free(temporaries);
    const fused_out = try testing.allocator.alloc(f32, 2 * n);
    defer testing.allocator.free(fused_out);
    var fused: Builder = .init(&dims);
    // What a step may read: where each operand and each result before it lies, and its register.
    var operands: [operand_count + program_length]Operand = undefined;
    var places: [operand_count + program_length][*]u8 = undefined;
    var registers: [operand_count + program_length]elementwise.Register = undefined;
    for (0..operand_count) |i| {
        operands[i] = randomOperand(random, dims);
        places[i] = pointer(memory);
        registers[i] = try fused.addLoad(operands[i], @intCast(2 + i));
    }
    for (operand_count..operand_count + program_length) |known| {
        const left = random.uintLessThan(usize, known);
        const right = random.uintLessThan(usize, known);
        const code = random_codes[random.uintLessThan(usize, random_codes.len)];
        const arity: usize = if (code.arity() == 2) 2 else 1;
        const pair = [_]elementwise.Register{ registers[left], registers[right] };
        registers[known] = try fused.addOp(code, .f32, .f32, pair[0..arity], 0);
        operands[known] = .contiguous(.f32, &dims);
        places[known] = pointer(temporaries[(known - operand_count) * n ..]);
        const read = [_]Operand{ operands[left], operands[right] };
        const sources = [_][*]u8{ places[left], places[right] };
        try runAlone(code, dims, read[0..arity], sources, places[known]);
    }
    const stored = [_]usize{ program_length - 1, program_length / 2 };
    for (stored, 0..) |step, s| {
        try fused.addStore(registers[operand_count + step], .f32, @intCast(s));
    }
    const g = try fused.finish();
    const outs = [_][*]u8{ pointer(fused_out), pointer(fused_out[n..]) };
    const sources: [operand_count][*]u8 = @splat(pointer(memory));
    try execute(&g, &(outs ++ sources));
    for (stored, 0..) |step, s| {
        try expectSameBits(temporaries[step * n ..][0..n], fused_out[s * n ..][0..n]);
    }
}

test "random programs give the same bits fused and one operation at a time" {
    var prng: std.Random.DefaultPrng = .init(11);
    for (0..60) |_| try checkRandomProgram(prng.random());
}
