//! Random well-typed programs for the fuzzer. An opcode is drawn, operand types and attributes that
//! its rule takes are made up around a value that exists already, and the verifier's own inference
//! gives the result types, so every opcode turns up and no rule is written twice.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const control = @import("wire_fuzz_generate_control.zig");
const dtype = @import("dtype.zig");
const ir = @import("ir.zig");
const op = @import("op.zig");
const shape = @import("shape.zig");
const verify = @import("verify.zig");
const wire_format = @import("wire_format.zig");

const Builder = ir.Builder;
const DType = dtype.DType;
const Dims = shape.Dims;
const Value = Builder.Value;

/// Elements of a value at most, so that a program runs in well under a millisecond.
const element_count_max = 2048;
/// Extents that shapes are drawn from; few, so that shapes often agree.
const extents = [_]i64{ 1, 2, 3, 4, 5, 8, 16, 0 };

/// A program of about `instruction_count` instructions.
pub fn program(
    arena: Allocator,
    random: std.Random,
    instruction_count: usize,
) Allocator.Error!ir.Program {
    var blocks: std.ArrayList(ir.Program) = .empty;
    var g: Generator = .{
        .arena = arena,
        .random = random,
        .b = .init(arena),
        .blocks = &blocks,
    };
    try g.addInputs();
    for (0..instruction_count) |_| try g.addInstruction();
    return g.finish();
}

pub const Generator = struct {
    arena: Allocator,
    random: std.Random,
    b: Builder,
    /// Blocks of the whole program so far.
    blocks: *std.ArrayList(ir.Program),
    /// 0 in the root, 1 in its blocks.
    depth: u32 = 0,
    values: std.ArrayList(Value) = .empty,
    inputs: std.ArrayList(Value) = .empty,
    operands: std.ArrayList(Value) = .empty,
    words: std.ArrayList(i64) = .empty,

    fn addInputs(g: *Generator) Allocator.Error!void {
        const count = 1 + g.random.uintLessThan(usize, 4);
        for (0..count) |n| {
            var flags: ir.InputFlags = .{};
            var element = g.anyDType(.any);
            var dims = g.anyDims(3);
            switch (g.random.uintLessThan(u8, 8)) {
                0 => flags.donated = true,
                1 => flags.state = true,
                2 => flags.constant = true,
                3 => {
                    flags.scalar_slot = true;
                    dims = .{};
                },
                4 => if (n == 0) {
                    flags.rng_key = true;
                    element = .u32;
                    dims = .from(&.{2});
                },
                else => {},
            }
            const t = try g.b.internType(element, dims.slice());
            const data = if (flags.constant) try g.bytesOf(t) else null;
            const v = try g.b.addInput(t, .{ .flags = flags, .data = data });
            try g.values.append(g.arena, v);
            try g.inputs.append(g.arena, v);
        }
    }

    pub fn addInstruction(g: *Generator) Allocator.Error!void {
        const info = op.table[g.random.uintLessThan(usize, op.count)];
        if (info.traits.region and g.depth == control.depth_max) return;
        g.operands.clearRetainingCapacity();
        g.words.clearRetainingCapacity();
        try g.choose(info);
        var types: std.ArrayList(ir.Type) = .empty;
        for (g.operands.items) |v| try types.append(g.arena, g.b.typeOf(v));
        var check: verify.Check = .{
            .code = info.code,
            .operands = types.items,
            .attrs = g.words.items,
            .blocks = g.blocks.items,
        };
        verify.infer(&check) catch return; // made up badly: this one is left out
        var results: std.ArrayList(ir.TypeId) = .empty;
        for (0..check.result_count) |k| {
            const result = check.resultAt(k);
            const t = result.typeOf();
            if (t.elementCount() > element_count_max) return;
            try results.append(g.arena, try g.b.internType(t.dtype, t.dims));
        }
        const first = try g.b.emit(.{
            .code = info.code,
            .operands = g.operands.items,
            .attrs = g.words.items,
            .result_types = results.items,
        });
        for (0..results.items.len) |k| {
            const v: Value = @fromBackingInt(@intCast(@as(u32, @intCast(first.index() + k))));
            try g.values.append(g.arena, v);
        }
    }

    fn finish(g: *Generator) Allocator.Error!ir.Program {
        var outputs: std.ArrayList(Builder.Output) = .empty;
        const count = 1 + g.random.uintLessThan(usize, 3);
        for (0..count) |_| {
            const v = g.values.items[g.random.uintLessThan(usize, g.values.items.len)];
            try outputs.append(g.arena, .{ .value = v, .alias = g.aliasFor(v, outputs.items) });
        }
        g.b.blocks = g.blocks.items;
        return g.b.finish(outputs.items);
    }

    fn aliasFor(g: *Generator, v: Value, taken: []const Builder.Output) ?ir.InputId {
        for (g.inputs.items, 0..) |input, i| {
            if (!g.b.inputs.items[i].flags.donated) continue;
            if (g.b.typeId(input) != g.b.typeId(v)) continue;
            const is_free = for (taken) |output| {
                if (output.alias == ir.InputId.at(i)) break false;
            } else true;
            if (is_free) return .at(i);
        }
        return null;
    }

    /// Operands and attribute words for an opcode.
    fn choose(g: *Generator, info: op.Info) Allocator.Error!void {
        switch (info.group) {
            .unary, .binary => {
                const x = try g.anyValue(info.domain, 0);
                try g.push(x);
                if (info.group == .binary) try g.pushLike(x, g.stretched(x));
                if (info.attributes.len > 0) try g.word(g.small(-2, 4));
            },
            .ternary => {
                const x = try g.anyValue(.any, 0);
                try g.pushType(.bool, g.stretched(x));
                try g.push(x);
                try g.pushLike(x, g.stretched(x));
            },
            .structure => try g.chooseStructure(info.code),
            .reduction => {
                const x = try g.anyValue(info.domain, 1);
                try g.push(x);
                const is_one = ir.hasAttribute(info.code, "axis");
                if (is_one) try g.word(g.axisOf(x)) else try g.axesOf(x);
            },
            .cumulative => {
                const x = try g.anyValue(info.domain, 1);
                try g.push(x);
                try g.word(g.axisOf(x));
                try g.word(g.small(0, 1));
            },
            .order => {
                const x = try g.anyValue(info.domain, 1);
                const t = g.b.typeOf(x);
                try g.push(x);
                if (info.code == .searchsorted) {
                    var values: Dims = .from(t.dims[0 .. t.rank() - 1]);
                    for (g.anyDims(1).slice()) |extent| values.append(extent);
                    try g.pushLike(x, values);
                    return g.word(g.small(0, 1));
                }
                const axis = g.axisOf(x);
                try g.word(axis);
                try g.word(g.small(0, 1));
                try g.word(g.small(0, t.dims[@intCast(axis)]));
            },
            .contraction => try g.chooseDot(),
            .indexing => try g.chooseIndexing(info.code),
            .check => {
                try g.push(try g.anyValue(.any, 0));
                try g.pushType(.bool, .{});
                try g.word(g.small(0, 3));
            },
            .random => {
                var key = g.anyDims(1);
                const batch = key;
                key.append(2);
                try g.pushType(.u32, key);
                if (info.code == .random_fold_in) return g.pushType(.u32, batch);
                try g.ints(g.anyDims(2).slice());
                try g.word(g.small(0, 2));
            },
            .neural => try g.chooseNeural(info.code),
            .linalg => try g.chooseMatrices(info.code),
            .control => try control.choose(g, info.code),
        }
    }

    fn chooseMatrices(g: *Generator, code: op.Code) Allocator.Error!void {
        const element: DType = if (g.random.boolean()) .f32 else .f64;
        const rows = g.anyExtent();
        var dims = g.anyDims(2);
        var rhs = dims;
        dims.append(rows);
        dims.append(if (code == .qr or code == .svd) g.anyExtent() else rows);
        try g.pushType(element, dims);
        if (code == .qr) try g.word(g.small(0, 1));
        if (code != .triangular_solve) return;
        rhs.append(rows);
        rhs.append(g.anyExtent());
        try g.pushType(element, rhs);
        for (0..3) |_| try g.word(g.small(0, 1));
    }

    fn chooseStructure(g: *Generator, code: op.Code) Allocator.Error!void {
        if (code == .iota) {
            var dims = g.anyDims(2);
            dims.append(3);
            try g.ints(dims.slice());
            try g.word(@backingInt(g.anyDType(.numeric)));
            return g.word(g.small(0, @intCast(dims.len - 1)));
        }
        const x = try g.anyValue(.any, if (code == .concatenate) 1 else 0);
        const t = g.b.typeOf(x);
        try g.push(x);
        switch (code) {
            .reshape => try g.ints(g.reshaped(t).slice()),
            .transpose => try g.ints(g.permutation(t.rank()).slice()),
            .broadcast_to => {
                var dims = g.anyDims(1);
                for (t.dims) |d| dims.append(if (d == 1) g.anyExtent() else d);
                try g.ints(dims.slice());
            },
            .slice => try g.chooseSlice(t),
            .concatenate => {
                const axis = g.axisOf(x);
                for (0..g.random.uintLessThan(usize, 3)) |_| {
                    var dims: Dims = .from(t.dims);
                    dims.buffer[@intCast(axis)] = g.anyExtent();
                    try g.pushLike(x, dims);
                }
                try g.word(axis);
            },
            .pad => {
                try g.pushLike(x, .{});
                for (0..3) |_| {
                    var amounts: Dims = .{};
                    for (t.dims) |_| amounts.append(g.small(0, 2));
                    try g.ints(amounts.slice());
                }
            },
            .cast => try g.word(@backingInt(g.anyDType(.any))),
            .bitcast => try g.word(@backingInt(g.anyDType(.numeric))),
            .window, .window_sum => try g.chooseWindow(code, x),
            else => {
                assert(code == .barrier);
                for (0..g.random.uintLessThan(usize, 3)) |_| try g.push(try g.anyValue(.any, 0));
            },
        }
    }

    /// Windows on the first one or two axes of x; `window_sum` gets an operand that fits instead.
    fn chooseWindow(g: *Generator, code: op.Code, x: Value) Allocator.Error!void {
        const t = g.b.typeOf(x);
        const count = g.random.uintAtMost(usize, @min(t.rank(), shape.rank_max - t.rank(), 2));
        var rows: [5][2]i64 = undefined;
        var dims: Dims = .from(t.dims);
        for (0..count) |k| {
            const size = g.small(1, 3);
            const row = [_]i64{ @intCast(k), size, g.small(1, 2), g.small(1, 2), t.dims[k] };
            for (&rows, row) |*list, entry| list[k] = entry;
            const room = t.dims[k] - (size - 1) * row[3];
            dims.buffer[k] = if (room < 1) 0 else @divTrunc(room - 1, row[2]) + 1;
            dims.append(size);
        }
        if (code == .window_sum) {
            g.operands.clearRetainingCapacity();
            try g.pushLike(x, dims);
        }
        for (rows[0..if (code == .window_sum) 5 else 4]) |*row| try g.ints(row[0..count]);
    }

    fn chooseSlice(g: *Generator, t: ir.Type) Allocator.Error!void {
        var rows: [3][shape.rank_max]i64 = undefined;
        for (t.dims, 0..) |n, axis| {
            const step = if (n > 1) g.small(1, n) else 1;
            const count = if (n == 0) 0 else g.small(0, @divTrunc(n - 1, step) + 1);
            const span = if (count == 0) 0 else (count - 1) * step;
            const low = if (n == 0 or count == 0) 0 else g.small(0, n - 1 - span);
            const is_back = g.random.boolean();
            rows[0][axis] = if (is_back) low + span else low;
            rows[1][axis] = count;
            rows[2][axis] = if (is_back) -step else step;
        }
        for (rows) |row| try g.ints(row[0..t.rank()]);
    }

    /// lhs `[batch.., m.., k..]`, rhs `[batch.., n.., k..]` with the axes of each shuffled.
    fn chooseDot(g: *Generator) Allocator.Error!void {
        const batch = g.anyDims(1);
        const contract = g.anyDims(2);
        const free = [2]Dims{ g.anyDims(1), g.anyDims(1) };
        const element = g.anyDType(.numeric);
        var lists: [2][2]Dims = @splat(@splat(.{}));
        for (&lists, free) |*list, own| {
            const rank = batch.len + contract.len + own.len;
            const order = g.permutation(rank);
            var dims: Dims = .{ .len = rank };
            for (0..rank) |k| {
                const axis: usize = @intCast(order.buffer[k]);
                if (k < batch.len) {
                    dims.buffer[axis] = batch.buffer[k];
                    list[0].append(order.buffer[k]);
                } else if (k < batch.len + contract.len) {
                    dims.buffer[axis] = contract.buffer[k - batch.len];
                    list[1].append(order.buffer[k]);
                } else dims.buffer[axis] = own.buffer[k - batch.len - contract.len];
            }
            try g.pushType(element, dims);
        }
        for ([_]usize{ 1, 0 }) |which| {
            for (&lists) |*list| try g.ints(list[which].slice());
        }
    }

    fn chooseIndexing(g: *Generator, code: op.Code) Allocator.Error!void {
        if (code == .check_index) {
            try g.push(try g.anyValue(.integer, 0));
            try g.word(g.small(0, 300));
            try g.word(g.small(0, 3));
            return g.word(g.small(0, 3));
        }
        const x = try g.anyValue(.any, 1);
        const t = g.b.typeOf(x);
        try g.push(x);
        if (code == .dynamic_slice or code == .dynamic_update_slice) {
            var sizes: Dims = .{};
            for (t.dims) |n| sizes.append(g.small(0, n));
            if (code == .dynamic_slice) try g.ints(sizes.slice()) else try g.pushLike(x, sizes);
            return g.pushType(.i64, .from(&.{@intCast(t.rank())}));
        }
        const axis = g.axisOf(x);
        const a: usize = @intCast(axis);
        const along = code == .take_along_axis or code == .scatter_along_axis;
        const batch: usize = if (along) 0 else g.random.uintAtMost(usize, a);
        var index: Dims = .from(if (along) t.dims else t.dims[0..batch]);
        if (along) index.buffer[a] = g.anyExtent();
        if (!along) for (g.anyDims(2).slice()) |k| index.append(k);
        try g.pushType(g.anyDType(.integer), index);
        if (code == .scatter_along_axis) try g.pushLike(x, index);
        if (code == .scatter) {
            var updates: Dims = .from(t.dims[0..a]);
            for (index.slice()[batch..]) |k| updates.append(k);
            for (t.dims[a + 1 ..]) |n| updates.append(n);
            try g.pushLike(x, updates);
        }
        try g.word(axis);
        if (!along) try g.word(@intCast(batch));
        try g.word(g.small(0, 3));
        if (ir.hasAttribute(code, "kind")) try g.word(g.small(0, 4));
    }

    fn chooseNeural(g: *Generator, code: op.Code) Allocator.Error!void {
        if (code == .attention or code == .attention_grad) return g.chooseAttention(code);
        const x = try g.anyValue(.floating, 1);
        const t = g.b.typeOf(x);
        const rows = t.dims[0 .. t.rank() - 1];
        try g.push(x);
        switch (code) {
            .softmax, .log_softmax => try g.word(g.axisOf(x)),
            .layer_norm, .rms_norm => {
                const weights: usize = if (code == .layer_norm) 2 else 1;
                const last: Dims = .from(t.dims[t.rank() - 1 ..]);
                for (0..weights) |_| try g.pushLike(x, last);
                try g.word(@bitCast(@as(f64, 1e-5)));
            },
            else => {
                try g.pushType(g.anyDType(.integer), .from(rows));
                if (code == .cross_entropy_grad) try g.pushLike(x, .from(rows));
                try g.word(g.small(-1, 2));
            },
        }
    }

    fn chooseAttention(g: *Generator, code: op.Code) Allocator.Error!void {
        const element = g.anyDType(.floating);
        const batch = g.small(0, 2);
        const keys_heads = g.small(1, 2);
        const heads = keys_heads * g.small(1, 2);
        const queries = g.small(0, 5);
        const keys = g.small(0, 5);
        const width = g.small(0, 9);
        const value_width = g.small(0, 9);
        try g.pushType(element, .from(&.{ batch, heads, queries, width }));
        try g.pushType(element, .from(&.{ batch, keys_heads, keys, width }));
        try g.pushType(element, .from(&.{ batch, keys_heads, keys, value_width }));
        if (code == .attention_grad) {
            const out: Dims = .from(&.{ batch, heads, queries, value_width });
            try g.pushType(element, out);
            const sums: DType = if (element == .f64) .f64 else .f32;
            try g.pushType(sums, .from(&.{ batch, heads, queries }));
            try g.pushType(element, out);
        }
        if (g.random.boolean()) {
            var mask: Dims = .from(&.{ batch, heads, queries, keys });
            for (mask.buffer[0..4]) |*extent| if (g.random.boolean()) {
                extent.* = 1;
            };
            try g.pushType(if (g.random.boolean()) .bool else element, mask);
        }
        try g.word(@bitCast(@as(f64, 0.5)));
        try g.word(g.small(0, 1));
        try g.word(g.small(0, 3));
    }

    pub fn push(g: *Generator, v: Value) Allocator.Error!void {
        try g.operands.append(g.arena, v);
    }

    fn pushLike(g: *Generator, x: Value, dims: Dims) Allocator.Error!void {
        try g.pushType(g.b.typeOf(x).dtype, dims);
    }

    /// An operand of exactly this type: one that exists, or a new literal.
    pub fn pushType(g: *Generator, element: DType, dims: Dims) Allocator.Error!void {
        const wanted: ir.Type = .{ .dtype = element, .dims = dims.slice() };
        if (g.random.uintLessThan(u8, 4) != 0) {
            var n = g.values.items.len;
            while (n > 0) {
                n -= 1;
                if (g.b.typeOf(g.values.items[n]).eql(wanted)) return g.push(g.values.items[n]);
            }
        }
        try g.push(try g.newValue(element, dims));
    }

    /// A literal, or a broadcast one where that would be too large.
    fn newValue(g: *Generator, element: DType, dims: Dims) Allocator.Error!Value {
        const t = try g.b.internType(element, dims.slice());
        if (g.b.types.items[t.index()].byteCount() <= wire_format.limits.literal_bytes_max) {
            return g.b.addLiteral(t, try g.bytesOf(t));
        }
        const scalar = try g.b.internType(element, &.{});
        const value = try g.b.addLiteral(scalar, try g.bytesOf(scalar));
        var words: std.ArrayList(i64) = .empty;
        try words.append(g.arena, @intCast(dims.len));
        try words.appendSlice(g.arena, dims.slice());
        return g.b.emit(.{
            .code = .broadcast_to,
            .operands = &.{value},
            .attrs = words.items,
            .result_types = &.{t},
        });
    }

    /// A value of the domain with at least `rank_min` axes.
    pub fn anyValue(g: *Generator, domain: op.Domain, rank_min: usize) Allocator.Error!Value {
        for (0..8) |_| {
            const v = g.values.items[g.random.uintLessThan(usize, g.values.items.len)];
            const t = g.b.typeOf(v);
            if (t.rank() < rank_min or !isIn(t.dtype, domain)) continue;
            return v;
        }
        var dims = g.anyDims(2);
        for (0..rank_min) |_| dims.append(g.anyExtent());
        const v = try g.newValue(g.anyDType(domain), dims);
        try g.values.append(g.arena, v);
        return v;
    }

    pub fn anyDType(g: *Generator, domain: op.Domain) DType {
        if (isIn(.f32, domain) and g.random.boolean()) return .f32;
        while (true) {
            const number = g.random.uintLessThan(u8, DType.count);
            const element: DType = @fromBackingInt(number);
            if (isIn(element, domain)) return element;
        }
    }

    fn anyExtent(g: *Generator) i64 {
        // The last one, 0, less often than the others.
        const n = g.random.uintLessThan(usize, 2 * extents.len - 1);
        return extents[n % extents.len];
    }

    pub fn anyDims(g: *Generator, rank_max: usize) Dims {
        var dims: Dims = .{};
        for (0..g.random.uintAtMost(usize, rank_max)) |_| dims.append(g.anyExtent());
        return dims;
    }

    /// A shape that broadcasts with that of x: some leading axes dropped, some axes 1.
    fn stretched(g: *Generator, x: Value) Dims {
        const dims = g.b.typeOf(x).dims;
        const drop = if (g.random.boolean()) 0 else g.random.uintAtMost(usize, dims.len);
        var out: Dims = .{};
        for (dims[drop..]) |d| out.append(if (g.random.uintLessThan(u8, 4) == 0) 1 else d);
        return out;
    }

    /// Another shape with as many elements: axes merged, or a 1 put in.
    fn reshaped(g: *Generator, t: ir.Type) Dims {
        var out: Dims = .{};
        for (t.dims) |d| {
            const merge = out.len > 0 and g.random.boolean();
            if (merge) out.buffer[out.len - 1] *= d else out.append(d);
        }
        if (g.random.boolean() and out.len < shape.rank_max) out.append(1);
        return out;
    }

    fn permutation(g: *Generator, rank: usize) Dims {
        var out: Dims = .{};
        for (0..rank) |axis| out.append(@intCast(axis));
        g.random.shuffle(i64, out.buffer[0..rank]);
        return out;
    }

    fn axisOf(g: *Generator, x: Value) i64 {
        return g.small(0, @as(i64, @intCast(g.b.typeOf(x).rank())) - 1);
    }

    fn axesOf(g: *Generator, x: Value) Allocator.Error!void {
        const order = g.permutation(g.b.typeOf(x).rank());
        try g.ints(order.buffer[0..g.random.uintAtMost(usize, order.len)]);
    }

    pub fn small(g: *Generator, low: i64, high: i64) i64 {
        return g.random.intRangeAtMost(i64, low, @max(low, high));
    }

    pub fn word(g: *Generator, value: i64) Allocator.Error!void {
        try g.words.append(g.arena, value);
    }

    pub fn ints(g: *Generator, list: []const i64) Allocator.Error!void {
        try g.word(@intCast(list.len));
        try g.words.appendSlice(g.arena, list);
    }

    fn bytesOf(g: *Generator, t: ir.TypeId) Allocator.Error![]align(8) u8 {
        return randomBytes(g.arena, g.random, g.b.types.items[t.index()]);
    }
};

fn isIn(element: DType, domain: op.Domain) bool {
    return @import("verify_infer.zig").isInDomain(element, domain);
}

/// Dense bytes of a value: small integers as often as any bits, and bools that are 0 or 1.
pub fn randomBytes(
    arena: Allocator,
    random: std.Random,
    t: ir.Type,
) Allocator.Error![]align(8) u8 {
    const bytes = try arena.alignedAlloc(u8, .@"8", @intCast(t.byteCount()));
    random.bytes(bytes);
    const size = t.dtype.bytes();
    const is_small = random.boolean();
    for (bytes, 0..) |*byte, n| {
        if (t.dtype == .bool) {
            byte.* &= 1;
        } else if (is_small and t.dtype.isInteger()) {
            byte.* = if (n % size == 0) byte.* % 4 else 0;
        } else if (is_small and n % size == size - 1) {
            // Floats of moderate size: exponents around that of 1.
            byte.* = (byte.* & 0x80) | 0x3f;
        }
    }
    return bytes;
}

test "generated programs are well typed and use every opcode" {
    var prng: std.Random.DefaultPrng = .init(1);
    var seen: [op.count]bool = @splat(false);
    for (0..400) |_| {
        var arena_state: std.heap.ArenaAllocator = .init(std.testing.allocator);
        defer arena_state.deinit();
        const arena = arena_state.allocator();
        const p = try program(arena, prng.random(), 20);
        var diagnostic: verify.Diagnostic = .{};
        try verify.verify(arena, &p, &diagnostic);
        for (p.codes) |code| seen[code.denseIndex()] = true;
    }
    for (seen, op.table) |is_seen, info| {
        errdefer std.debug.print("{s} never came up\n", .{info.name});
        try std.testing.expect(is_seen);
    }
}
