//! From a `Builder` to a `Geometry`: what is unused goes, products join the sums they feed,
//! operands get their class, values their registers, and the index space its tiles and tasks.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const tile_ops = @import("tile_ops.zig");
const elementwise = @import("elementwise.zig");
const plan = @import("elementwise_plan.zig");
const transpose = @import("elementwise_transpose.zig");
const DType = dtype.DType;
const TileOp = tile_ops.TileOp;
const Class = elementwise.Class;
const Error = plan.Error;
const Geometry = elementwise.Geometry;
const Register = plan.Register;

const never = std.math.maxInt(u16);
/// A use by a store, after all operations.
const at_end = never - 1;
const no_register: u8 = 0xff;

/// Nanoseconds a task should take.
const task_ns = 50_000.0;

/// How a store gets its value after the operations: as it is, or narrowed from float32.
const Final = struct { value: Register, narrow: ?TileOp };

const Emitter = struct {
    b: *plan.Builder,
    g: Geometry,
    finals: [elementwise.store_max]Final = undefined,
    used: [plan.value_max]bool = @splat(false),
    uses: [plan.value_max]u16 = @splat(0),
    /// Position of the last use; 0 if unused.
    last_use: [plan.value_max]u16 = @splat(0),
    registers: [plan.value_max]u8 = @splat(no_register),
    classes: [elementwise.load_max]Class = undefined,
    load_index: [elementwise.load_max]u8 = @splat(no_register),
    free: u64 = ~@as(u64, 0),
    immediate_count: u8 = 0,

    fn op(e: *Emitter, i: usize) ?*plan.Operation {
        return switch (e.b.values[i].source) {
            .op => |*o| o,
            else => null,
        };
    }

    /// The load behind a value, if it is one.
    fn loadOf(e: *const Emitter, r: Register) ?u8 {
        return switch (e.b.values[r].source) {
            .load => |l| l,
            else => null,
        };
    }

    fn isClass(e: *const Emitter, r: Register, class: Class) bool {
        const l = e.loadOf(r) orelse return false;
        return e.classes[l] == class;
    }
};

pub fn emit(b: *plan.Builder) Error!Geometry {
    var e: Emitter = .{ .b = b, .g = empty(b.count) };
    if (b.count == 0) return e.g;
    chooseFinals(&e);
    markUsed(&e);
    pairProducts(&e);
    for (b.loads[0..b.load_count], 0..) |*load, l| e.classes[l] = classify(load, b.count);
    cutTiles(&e);
    if (planTranspose(&e)) return e.g;
    try assignLoads(&e);
    findLastUses(&e);
    try emitOperations(&e);
    try emitStores(&e);
    cutTasks(&e);
    const g = &e.g;
    g.work.scratch_bytes = @as(u64, g.slot_count) * elementwise.slot_stride +
        (g.load_count + g.store_count) * elementwise.stage_bytes;
    return e.g;
}

fn empty(count: u64) Geometry {
    var g = std.mem.zeroes(Geometry);
    g.count = count;
    return g;
}

fn chooseFinals(e: *Emitter) void {
    const b = e.b;
    for (b.stores[0..b.store_count], 0..) |store, s| {
        var value = b.resolve(store.value);
        const named = b.values[store.value];
        const half = named.dtype == .f16 or named.dtype == .bf16;
        var narrow: ?TileOp = null;
        if (half and !named.raw) {
            narrow = if (named.dtype == .f16) .narrow_f16 else .narrow_bf16;
            // Narrowing rounds: a rounding just before it is for nothing. With several results an
            // operand is better read early, as one of them may have its memory.
            if (e.op(value)) |o| {
                const source = b.resolve(o.sources[0]);
                const rounds = o.kind == .f32 and (o.code == .round_f16 or o.code == .round_bf16);
                const safe = b.store_count == 1 or b.values[source].source == .op;
                if (rounds and safe) value = source;
            }
        }
        e.finals[s] = .{ .value = value, .narrow = narrow };
    }
}

fn markUsed(e: *Emitter) void {
    const b = e.b;
    for (e.finals[0..b.store_count]) |final| {
        e.used[final.value] = true;
        e.uses[final.value] += 1;
    }
    var i: usize = b.value_count;
    while (i > 0) {
        i -= 1;
        if (!e.used[i]) continue;
        const o = e.op(i) orelse continue;
        for (&o.sources) |*source| source.* = b.resolve(source.*);
        for (o.sources[0..o.code.arity()]) |source| {
            assert(source < i);
            e.used[source] = true;
            e.uses[source] += 1;
        }
    }
}

/// Sums and differences take over the product that only they use: one pass over memory less, with
/// the same two roundings.
fn pairProducts(e: *Emitter) void {
    for (0..e.b.value_count) |i| {
        if (!e.used[i]) continue;
        const o = e.op(i) orelse continue;
        if (o.code != .add and o.code != .subtract or !o.kind.isFloat()) continue;
        for (0..2) |side| {
            const p = o.sources[side];
            const product = e.op(p) orelse continue;
            if (product.code != .multiply and product.code != .square) continue;
            if (product.kind != o.kind or e.uses[p] != 1) continue;
            const x = product.sources[0];
            const y = if (product.code == .square) x else product.sources[1];
            if (product.code == .square) e.uses[x] += 1;
            const other = o.sources[1 - side];
            o.* = .{
                .code = if (o.code == .add)
                    .multiply_add
                else if (side == 0)
                    .multiply_subtract
                else
                    .subtract_multiply,
                .kind = o.kind,
                .sources = .{ x, y, other },
                .immediate = 0,
            };
            e.used[p] = false;
            break;
        }
    }
}

fn classify(load: *const plan.LoadPlan, count: u64) Class {
    if (load.is_counter) {
        const period = load.extents[0] * @as(u64, @intCast(load.strides[0]));
        return if (period < count) .periodic_counter else .counter;
    }
    if (load.rank == 0 or load.rank == 1 and load.strides[0] == 1) return .dense;
    // Axes are merged, so only the outermost may be a leading repetition.
    return if (load.strides[0] == 0) .periodic else .strided;
}

/// Elements after which an operand repeats.
fn periodOf(load: *const plan.LoadPlan) u64 {
    if (load.is_counter) return load.extents[0] * @as(u64, @intCast(load.strides[0]));
    var period: u64 = 1;
    for (load.extents[1..load.rank]) |extent| period *= extent;
    return period;
}

/// Tiles that lie within rows of the operands, so that rows are read in place and repeat in step.
fn cutTiles(e: *Emitter) void {
    const b = e.b;
    const g = &e.g;
    var widest: u64 = 1;
    for (b.values[0..b.value_count], 0..) |*value, i| {
        if (e.used[i]) widest = @max(widest, value.bytes());
    }
    const longest = @min(elementwise.slot_bytes / widest, 1024);
    var inner = g.count;
    for (b.values[0..b.value_count], 0..) |*value, i| {
        if (!e.used[i] or value.source != .load) continue;
        const load = &b.loads[value.source.load];
        const run = switch (e.classes[value.source.load]) {
            .dense, .counter => continue,
            .periodic_counter => periodOf(load),
            .periodic => if (load.rank == 1) continue else load.extents[load.rank - 1],
            .strided => load.extents[load.rank - 1],
        };
        inner = @min(inner, run);
    }
    if (inner >= longest) {
        g.row = inner;
        const pieces = (inner + longest - 1) / longest;
        const even = (inner + pieces - 1) / pieces;
        g.chunk = if (inner == g.count)
            @min(longest, inner)
        else
            @min(std.mem.alignForward(u64, even, tile_ops.granule), longest);
    } else {
        const most = longest / inner;
        var rows = most;
        var k = most;
        while (k > most / 2) : (k -= 1) {
            if (k * inner % tile_ops.granule != 0) continue;
            rows = k;
            break;
        }
        g.row = @min(rows * inner, g.count);
        g.chunk = g.row;
    }
    const pieces = (g.row + g.chunk - 1) / g.chunk;
    const rest = g.count % g.row;
    g.tile_count = g.count / g.row * pieces + (rest + g.chunk - 1) / g.chunk;
    for (b.loads[0..b.load_count], 0..) |*load, l| {
        const class = &e.classes[l];
        if (class.* != .periodic and class.* != .periodic_counter) continue;
        const period = periodOf(load);
        const in_step = g.tile_count == 1 or
            g.row % period == 0 and (g.chunk == g.row or g.chunk % period == 0);
        if (!in_step) class.* = if (class.* == .periodic) .strided else .counter;
    }
}

/// A transposed copy has kernels of its own.
fn planTranspose(e: *Emitter) bool {
    const b = e.b;
    const g = &e.g;
    const final = e.finals[0];
    if (b.store_count != 1 or final.narrow != null) return false;
    if (!e.isClass(final.value, .strided)) return false;
    const load = &b.loads[e.loadOf(final.value).?];
    const extents = load.extents[0..load.rank];
    const shape = transpose.plan(extents, load.strides[0..load.rank]) orelse return false;
    const bytes = load.dtype.bytes();
    g.mode = .transpose;
    g.transposed = shape;
    g.loads[0] = .{
        .ptr_index = load.ptr_index,
        .class = .strided,
        .bytes = bytes,
        .slot = 0,
        .first_axis = 0,
        .rank = 0,
    };
    g.stores[0] = .{ .ptr_index = b.stores[0].ptr_index, .bytes = bytes };
    g.load_count = 1;
    g.store_count = 1;
    g.work = .{
        .task_count = transpose.taskCount(&shape),
        .scratch_bytes = 0,
        .cost_ns = g.count * (4 + 2 * @as(u64, bytes)) / 10,
    };
    return true;
}

/// Numbers the used operands and constants; those fetched once a task keep a slot for good.
fn assignLoads(e: *Emitter) Error!void {
    const b = e.b;
    const g = &e.g;
    var axis_count: usize = 0;
    for (b.values[0..b.value_count], 0..) |*value, i| {
        if (!e.used[i]) continue;
        if (value.source == .constant) {
            try assignConstant(e, @intCast(i));
            continue;
        }
        const l = e.loadOf(@intCast(i)) orelse continue;
        const load = &b.loads[l];
        const class = e.classes[l];
        const index: u8 = @intCast(g.load_count);
        g.load_count += 1;
        e.load_index[l] = index;
        e.registers[i] = elementwise.load_base + index;
        const rank: usize = if (class == .dense) 0 else load.rank;
        if (axis_count + rank > elementwise.axis_max) return error.RegionFull;
        for (g.axes[axis_count..][0..rank], 0..) |*axis, k| {
            axis.* = .{ .extent = load.extents[k], .stride = load.strides[k] };
        }
        const hoisted = class == .periodic or class == .periodic_counter;
        g.loads[index] = .{
            .ptr_index = load.ptr_index,
            .class = class,
            .bytes = load.dtype.bytes(),
            .slot = if (hoisted) try takeSlot(e) else 0,
            .first_axis = @intCast(axis_count),
            .rank = @intCast(rank),
        };
        axis_count += rank;
    }
    g.store_count = b.store_count;
    for (b.stores[0..b.store_count], 0..) |store, s| {
        g.stores[s] = .{
            .ptr_index = store.ptr_index,
            .bytes = b.values[store.value].dtype.bytes(),
        };
    }
}

fn assignConstant(e: *Emitter, value: Register) Error!void {
    const constant = e.b.constants[e.b.values[value].source.constant];
    const g = &e.g;
    for (g.constants[0..g.constant_count]) |known| {
        if (known.bits == constant.bits and known.bytes == constant.bytes) {
            e.registers[value] = known.slot;
            return;
        }
    }
    const slot = try takeSlot(e);
    g.constants[g.constant_count] = .{
        .bits = constant.bits,
        .bytes = constant.bytes,
        .slot = slot,
    };
    g.constant_count += 1;
    e.registers[value] = slot;
}

fn takeSlot(e: *Emitter) Error!u8 {
    const slot: u8 = @ctz(e.free);
    if (slot >= elementwise.slot_max) return error.RegionFull;
    e.free &= ~(@as(u64, 1) << @intCast(slot));
    e.g.slot_count = @max(e.g.slot_count, @as(u32, slot) + 1);
    return slot;
}

fn releaseSlot(e: *Emitter, slot: u8) void {
    const bit = @as(u64, 1) << @intCast(slot);
    assert(e.free & bit == 0);
    e.free |= bit;
}

fn findLastUses(e: *Emitter) void {
    const b = e.b;
    for (0..b.value_count) |i| {
        if (!e.used[i]) continue;
        const o = e.op(i) orelse continue;
        for (o.sources[0..o.code.arity()]) |source| e.last_use[source] = @intCast(i);
    }
    for (e.finals[0..b.store_count]) |final| e.last_use[final.value] = at_end;
}

fn append(e: *Emitter, micro: elementwise.MicroOp) Error!void {
    if (e.g.op_count == elementwise.op_max) return error.RegionFull;
    e.g.ops[e.g.op_count] = micro;
    e.g.op_count += 1;
}

/// The slot of a temporary, or null: operands that stay, results written in place.
fn temporarySlot(e: *const Emitter, r: Register) ?u8 {
    switch (e.b.values[r].source) {
        .load => |l| return switch (e.classes[l]) {
            .strided, .counter => e.g.loads[e.load_index[l]].slot,
            else => null,
        },
        .op => {
            const register = e.registers[r];
            return if (register < elementwise.load_base) register else null;
        },
        else => return null,
    }
}

/// Fetches a strided operand before its first use, to a slot or straight to a result.
fn fetchInto(e: *Emitter, r: Register, to: ?u8) Error!void {
    const index = e.load_index[e.loadOf(r).?];
    const slot = if (to == null) try takeSlot(e) else 0;
    e.g.loads[index].slot = slot;
    try append(e, .{
        .code = .load,
        .kind = e.b.values[r].dtype,
        .dst = to orelse slot,
        .sources = .{ index, 0, 0 },
        .immediate = 0,
    });
}

fn emitOperations(e: *Emitter) Error!void {
    const b = e.b;
    var fetched: [plan.value_max]bool = @splat(false);
    var last_dense_read: usize = 0;
    for (0..b.value_count) |i| {
        if (!e.used[i]) continue;
        const o = e.op(i) orelse continue;
        for (o.sources[0..o.code.arity()]) |s| {
            if (e.isClass(s, .dense)) last_dense_read = i;
        }
    }
    if (b.store_count > 1) try saveCopies(e);
    for (0..b.value_count) |i| {
        if (!e.used[i]) continue;
        const o = e.op(i) orelse continue;
        const sources = o.sources[0..o.code.arity()];
        for (sources) |s| {
            if (fetched[s] or !e.isClass(s, .strided) and !e.isClass(s, .counter)) continue;
            fetched[s] = true;
            try fetchInto(e, s, null);
        }
        const dst = try chooseDestination(e, @intCast(i), i >= last_dense_read);
        e.registers[i] = dst;
        var registers: [3]u8 = @splat(e.registers[sources[0]]);
        for (sources, 0..) |s, k| registers[k] = e.registers[s];
        try append(e, .{
            .code = o.code,
            .kind = o.kind,
            .dst = dst,
            .sources = registers,
            .immediate = try immediateIndex(e, o),
        });
        for (sources, 0..) |s, k| {
            if (e.last_use[s] != i) continue;
            if (std.mem.findScalar(Register, sources[0..k], s) != null) continue;
            const slot = temporarySlot(e, s) orelse continue;
            if (slot != dst) releaseSlot(e, slot);
        }
    }
    for (0..b.value_count) |i| {
        // Remember for the stores what was fetched: a register that is a load is valid then.
        if (fetched[i]) e.uses[i] = never;
    }
}

/// With several results, an operand that is one of them as it stands is saved before any is
/// written.
fn saveCopies(e: *Emitter) Error!void {
    for (e.finals[0..e.b.store_count]) |*final| {
        if (!e.isClass(final.value, .dense)) continue;
        const source = e.registers[final.value];
        const slot = try takeSlot(e);
        try append(e, .{
            .code = .copy,
            .kind = e.b.values[final.value].kind(),
            .dst = slot,
            .sources = @splat(source),
            .immediate = 0,
        });
        const original = e.b.values[final.value];
        const saved = try e.b.push(.{
            .source = .saved,
            .dtype = original.dtype,
            .raw = original.raw,
        });
        e.registers[saved] = slot;
        final.value = saved;
    }
}

/// A result's memory where nothing of an operand is read after, else the slot of a source that
/// dies here and has the same element size, else a new one.
fn chooseDestination(e: *Emitter, i: Register, may_write: bool) Error!u8 {
    const b = e.b;
    if (may_write) {
        for (e.finals[0..b.store_count], 0..) |final, s| {
            if (final.value != i or final.narrow != null) continue;
            return @intCast(elementwise.store_base + s);
        }
    }
    const o = e.op(i).?;
    for (o.sources[0..o.code.arity()]) |s| {
        if (e.last_use[s] != i or b.values[s].bytes() != b.values[i].bytes()) continue;
        if (temporarySlot(e, s)) |slot| return slot;
    }
    return takeSlot(e);
}

fn immediateIndex(e: *Emitter, o: *const plan.Operation) Error!u8 {
    if (!o.code.hasImmediate()) return 0;
    const immediates = &e.g.immediates;
    for (immediates[0..e.immediate_count], 0..) |entry, k| {
        if (entry == o.immediate) return @intCast(k);
    }
    if (e.immediate_count == immediates.len) return error.RegionFull;
    immediates[e.immediate_count] = o.immediate;
    e.immediate_count += 1;
    return @intCast(e.immediate_count - 1);
}

fn emitStores(e: *Emitter) Error!void {
    const b = e.b;
    for (e.finals[0..b.store_count], 0..) |final, s| {
        const dst: u8 = @intCast(elementwise.store_base + s);
        const v = final.value;
        if (e.registers[v] == dst) continue;
        const fetched_late = e.isClass(v, .strided) or e.isClass(v, .counter);
        if (fetched_late and e.uses[v] != never) {
            e.uses[v] = never;
            if (final.narrow == null and e.isClass(v, .strided)) {
                try fetchInto(e, v, dst);
                continue;
            }
            try fetchInto(e, v, null);
        }
        try append(e, .{
            .code = final.narrow orelse .copy,
            .kind = b.values[v].kind(),
            .dst = dst,
            .sources = @splat(e.registers[v]),
            .immediate = 0,
        });
    }
}

fn cutTasks(e: *Emitter) void {
    const g = &e.g;
    // Streams from and to memory, on one core of several.
    var cost: f64 = 0;
    for (g.loads[0..g.load_count]) |load| {
        if (load.class == .dense) cost += 0.05 * @as(f64, @floatFromInt(load.bytes));
    }
    for (g.stores[0..g.store_count]) |store| cost += 0.08 * @as(f64, @floatFromInt(store.bytes));
    for (g.ops[0..g.op_count]) |o| cost += tile_ops.cost(o.code, o.kind);
    // Each operation also starts once a tile.
    const start_ns = 8.0 * @as(f64, @floatFromInt(g.op_count + 2));
    const tile_ns = cost * @as(f64, @floatFromInt(g.chunk)) + start_ns;
    const tiles: f64 = @floatFromInt(g.tile_count);
    g.tiles_per_task = @trunc(std.math.clamp(task_ns / tile_ns, 1, tiles));
    g.work.task_count = (g.tile_count + g.tiles_per_task - 1) / g.tiles_per_task;
    g.work.cost_ns = @trunc(@min(tiles * tile_ns, 1e18));
}
