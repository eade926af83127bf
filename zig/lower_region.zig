//! Lowering of elementwise regions: members become one micro-program of the tile interpreter. What
//! only members use is never stored. A region that turns out too large is cut in two.
const std = @import("std");
const assert = std.debug.assert;
const elementwise = @import("cpu/elementwise.zig");
const ir = @import("ir.zig");
const lowering = @import("lower.zig");
const map_reduce = @import("cpu/map_reduce.zig");
const op = @import("op.zig");
const reduce = @import("cpu/reduce.zig");
const DType = @import("dtype.zig").DType;
const Error = lowering.Error;
const InstructionId = ir.InstructionId;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;
const TileOp = elementwise.TileOp;
const ValueId = ir.ValueId;

/// Says "no register" in `Lowering.registers`.
pub const no_register: u16 = 0xffff;

/// By opcode (dense index): the micro-operation of the same name.
const tile_ops: [op.count]?TileOp = table: {
    @setEvalBranchQuota(200_000);
    var found: [op.count]?TileOp = @splat(null);
    for (op.table, 0..) |info, index| {
        if (info.traits.elementwise) found[index] = std.meta.stringToEnum(TileOp, info.name).?;
    }
    break :table found;
};

const touched_max = elementwise.op_max + elementwise.load_max + elementwise.constant_max;

const Region = struct {
    l: *Lowering,
    builder: elementwise.Builder,
    /// Values with an entry in `Lowering.registers`, to be taken out again.
    touched: [touched_max]ValueId = undefined,
    touched_count: u32 = 0,
    results: [elementwise.store_max]Ref = undefined,
    result_count: u16 = 0,
    operands: [elementwise.load_max]Ref = undefined,
    operand_values: [elementwise.load_max]ValueId = undefined,
    operand_count: u16 = 0,

    fn setRegister(r: *Region, v: ValueId, register: u16) error{RegionFull}!void {
        if (r.touched_count == r.touched.len) return error.RegionFull;
        r.touched[r.touched_count] = v;
        r.touched_count += 1;
        r.l.registers[v.index()] = register;
    }

    fn clear(r: *Region) void {
        for (r.touched[0..r.touched_count]) |v| r.l.registers[v.index()] = no_register;
    }
};

/// `clones` are computed for the members only and never stored.
pub fn lowerRegion(
    l: *Lowering,
    clones: []const InstructionId,
    members: []const InstructionId,
) Error!void {
    const dims = l.typeOf(l.program.result(members[0], 0)).dims;
    var extents: [ir.rank_max]u64 = undefined;
    for (dims, extents[0..dims.len]) |d, *extent| extent.* = @intCast(d);
    var region: Region = .{ .l = l, .builder = .init(extents[0..dims.len]) };
    const geometry = build(&region, clones, members) catch |e| {
        region.clear();
        switch (e) {
            error.RegionFull => {
                assert(members.len > 1); // one instruction and its clones always fit
                const half = members.len / 2;
                l.needs.cut(members[0..half], members[half..]);
                try lowerRegion(l, clones, members[0..half]);
                return lowerRegion(l, clones, members[half..]);
            },
        }
    };
    region.clear();
    l.origin = members[members.len - 1];
    var reductions: Reductions = .find(l, members);
    const combined = reductions.plan(&geometry, region.result_count + region.operand_count);
    var next: u16 = 0;
    for (members) |i| {
        const v = l.program.result(i, 0);
        if (!l.needs.isStored(v)) continue;
        region.results[next] = try l.define(reductions.resultOf(l, next) orelse v);
        next += 1;
    }
    assert(next == region.result_count);
    for (clones) |i| try l.noteMember(i);
    for (members) |i| try l.noteMember(i);
    for (reductions.instructions[0..reductions.count]) |i| try l.noteMember(i);
    // Operations are last in the geometry: what is not used need not be kept.
    const ops_bytes = geometry.op_count * @sizeOf(elementwise.MicroOp);
    const used = @offsetOf(elementwise.Geometry, "ops") + ops_bytes;
    const results = region.results[0..region.result_count];
    const operands = region.operands[0..region.operand_count];
    const options: lowering.Options = .{ .in_place = inPlace(&region, dims) };
    if (combined) |*g| {
        const bytes = std.mem.asBytes(g)[0 .. @offsetOf(map_reduce.Geometry, "map") + used];
        try l.emit(.map_reduce, bytes, results, operands, options);
    } else {
        try l.emit(.elementwise, std.mem.asBytes(&geometry)[0..used], results, operands, options);
    }
}

/// Reductions that are done with the region instead of after it: of values nobody else uses, over
/// all axes or the innermost ones, of one row length.
const Reductions = struct {
    requests: [map_reduce.reduction_max]map_reduce.Request = undefined,
    instructions: [map_reduce.reduction_max]InstructionId = undefined,
    count: u32 = 0,
    row: u64 = 0,

    fn find(l: *Lowering, members: []const InstructionId) Reductions {
        var found: Reductions = .{};
        var pointer: u16 = 0;
        for (members) |i| {
            const v = l.program.result(i, 0);
            if (!l.needs.isStored(v)) continue;
            found.add(l, v, pointer);
            pointer += 1;
        }
        return found;
    }

    fn add(found: *Reductions, l: *Lowering, v: ValueId, pointer: u16) void {
        const reducer = l.needs.reducer[v.index()];
        if (reducer == lowering.none or l.needs.outside[v.index()] != 1) return;
        if (found.count == found.requests.len) return;
        const i: InstructionId = .at(reducer);
        const t = l.typeOf(v);
        const row = rowOf(t.dims, l.program.attr(i, "axes")) orelse return;
        if (found.count > 0 and row != found.row) return;
        const kind: reduce.Op = switch (l.program.code(i)) {
            .reduce_sum => .sum,
            .reduce_prod => .prod,
            .reduce_max => .max,
            .reduce_min => .min,
            else => return,
        };
        // Partial results would be rounded to the half type in between.
        const adds = kind == .sum or kind == .prod;
        if (row == 0 and adds and (t.dtype == .f16 or t.dtype == .bf16)) return;
        found.row = row;
        found.requests[found.count] = .{ .op = kind, .pointer = pointer, .dtype = t.dtype };
        found.instructions[found.count] = i;
        found.count += 1;
    }

    /// Elements reduced to one, 0 for all; null if the axes are not the innermost ones.
    fn rowOf(dims: []const i64, axes: []const i64) ?u64 {
        if (axes.len == dims.len) return 0;
        var row: u64 = 1;
        for (dims[dims.len - axes.len ..], dims.len - axes.len..) |extent, axis| {
            if (std.mem.findScalar(i64, axes, @intCast(axis)) == null) return null;
            row *= @intCast(extent);
        }
        return if (row == 0) null else row;
    }

    /// The geometry of the whole, or null, and then there are no reductions any more.
    fn plan(
        found: *Reductions,
        geometry: *const elementwise.Geometry,
        pointer_count: u64,
    ) ?map_reduce.Geometry {
        if (found.count == 0) return null;
        const requests = found.requests[0..found.count];
        const g = map_reduce.plan(geometry, requests, found.row, pointer_count);
        if (g == null) found.count = 0;
        return g;
    }

    /// The value that result `pointer` is instead of the member's.
    fn resultOf(found: *const Reductions, l: *Lowering, pointer: u16) ?ValueId {
        for (found.requests[0..found.count], found.instructions[0..found.count]) |request, i| {
            if (request.pointer != pointer) continue;
            l.reduced[i.index()] = true;
            return l.program.result(i, 0);
        }
        return null;
    }
};

fn build(
    r: *Region,
    clones: []const InstructionId,
    members: []const InstructionId,
) error{RegionFull}!elementwise.Geometry {
    const l = r.l;
    // Pointers are results first, and how many there are is known before any operand is added.
    for (members) |i| {
        if (l.needs.isStored(l.program.result(i, 0))) r.result_count += 1;
    }
    if (r.result_count > elementwise.store_max) return error.RegionFull;
    for (clones) |i| try r.setRegister(l.program.result(i, 0), try operation(r, i));
    var next: u16 = 0;
    for (members) |i| {
        const v = l.program.result(i, 0);
        try r.setRegister(v, try operation(r, i));
        if (!l.needs.isStored(v)) continue;
        try r.builder.addStore(l.registers[v.index()], l.typeOf(v).dtype, next);
        next += 1;
    }
    return r.builder.finish();
}

fn operation(r: *Region, i: InstructionId) error{RegionFull}!u16 {
    const l = r.l;
    const code = l.program.code(i);
    const result = l.typeOf(l.program.result(i, 0)).dtype;
    if (code == .iota) {
        const axis: u32 = @intCast(l.program.attr(i, "axis"));
        const counter = try r.builder.addIota(axis);
        if (result == .i64) return counter;
        return r.builder.addOp(.cast, .i64, result, &.{counter}, 0);
    }
    const operands = l.program.operandsOf(i);
    var sources: [3]u16 = undefined;
    for (operands, 0..) |v, k| sources[k] = try sourceOf(r, v);
    const from = l.typeOf(operands[operands.len - 1]).dtype;
    const immediate = switch (code) {
        .integer_power => l.program.attr(i, "exponent"),
        .polygamma, .bessel_i => l.program.attr(i, "order"),
        else => 0,
    };
    const tile_op = tile_ops[code.denseIndex()].?;
    return r.builder.addOp(tile_op, from, result, sources[0..operands.len], immediate);
}

/// The register of an operand: a member's result, a constant, or a load.
fn sourceOf(r: *Region, v: ValueId) error{RegionFull}!u16 {
    const l = r.l;
    if (l.registers[v.index()] != no_register) return l.registers[v.index()];
    const t = l.typeOf(v);
    const register = constant: {
        if (t.elementCount() == 1) if (l.program.knownBytes(v)) |bytes| {
            var bits: [8]u8 = @splat(0);
            @memcpy(bits[0..bytes.len], bytes);
            const word = std.mem.readInt(u64, &bits, .little);
            break :constant try r.builder.addConstant(t.dtype, word);
        };
        if (r.operand_count == r.operands.len) return error.RegionFull;
        const pointer = r.result_count + r.operand_count;
        const register = try r.builder.addLoad(l.shape(v), pointer);
        r.operands[r.operand_count] = l.ref(v);
        r.operand_values[r.operand_count] = v;
        r.operand_count += 1;
        break :constant register;
    };
    try r.setRegister(v, register);
    return register;
}

/// Operands a result may take over: dense, of the region's shape, in memory that no other operand
/// reads in another way.
fn inPlace(r: *const Region, dims: []const i64) u64 {
    const l = r.l;
    var mask: u64 = 0;
    const values = r.operand_values[0..r.operand_count];
    for (values, 0..) |v, k| {
        const view = l.view(v);
        if (!view.isDense() or !std.mem.eql(i64, l.typeOf(v).dims, dims)) continue;
        const alone = for (values) |other| {
            const seen = l.view(other);
            if (seen.storage != view.storage) continue;
            const same = seen.isDense() and seen.offset == view.offset and
                std.mem.eql(i64, l.typeOf(other).dims, dims) and
                l.typeOf(other).dtype.bytes() == l.typeOf(v).dtype.bytes();
            if (!same) break false;
        } else true;
        if (alone) mask |= @as(u64, 1) << @intCast(k);
    }
    return mask;
}
