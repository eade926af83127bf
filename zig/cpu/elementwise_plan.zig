//! The planner's side of fused elementwise regions: `Builder` takes a region operation by
//! operation and makes its `Geometry`: casts and half types are lowered, multiply-adds paired,
//! registers assigned, operands classed, and the work cut into tiles and tasks. It never touches
//! data.
const std = @import("std");
const assert = std.debug.assert;
const kernel_abi = @import("kernel_abi.zig");
const dtype = @import("../dtype.zig");
const tile_ops = @import("tile_ops.zig");
const elementwise = @import("elementwise.zig");
const lower = @import("elementwise_lower.zig");
const DType = dtype.DType;
const Operand = kernel_abi.Operand;
const TileOp = tile_ops.TileOp;
const rank_max = kernel_abi.rank_max;

/// `RegionFull`: a capacity of elementwise.zig is exhausted; cut the region.
pub const Error = error{RegionFull};

/// A value of the region, as `Builder` numbers them.
pub const Register = u16;

/// Values of one region, before the unused ones are dropped.
pub const value_max = 160;

pub const Source = union(enum) {
    load: u8,
    constant: u8,
    op: Operation,
    /// The same register under another dtype.
    alias: Register,
    /// A tile of an operand kept from before the operations.
    saved,
};

pub const Operation = struct {
    code: TileOp,
    kind: DType,
    sources: [3]Register,
    immediate: i64,
};

pub const Value = struct {
    source: Source,
    /// What the program calls it; a half type is in a float32 register unless `raw`.
    dtype: DType,
    /// Bits of a half type as they are in memory.
    raw: bool = false,
    /// A float32 register that holds nothing but values of the half type `dtype`.
    rounded: bool = false,

    pub fn bytes(v: *const Value) u8 {
        if (v.raw) return v.dtype.bytes();
        return tile_ops.registerKind(v.dtype).bytes();
    }

    pub fn kind(v: *const Value) DType {
        return if (v.raw) v.dtype else tile_ops.registerKind(v.dtype);
    }
};

/// An operand with its axes merged.
pub const LoadPlan = struct {
    ptr_index: u16,
    dtype: DType,
    is_counter: bool,
    rank: u32,
    extents: [rank_max]u64,
    strides: [rank_max]i64,
};

pub const StorePlan = struct { ptr_index: u16, value: Register };
pub const ConstantPlan = struct { bits: u64, bytes: u8 };

pub const Builder = struct {
    rank: u32,
    dims: [rank_max]u64,
    count: u64,
    values: [value_max]Value = undefined,
    value_count: u16 = 0,
    loads: [elementwise.load_max]LoadPlan = undefined,
    load_count: u8 = 0,
    stores: [elementwise.store_max]StorePlan = undefined,
    store_count: u8 = 0,
    constants: [elementwise.constant_max]ConstantPlan = undefined,
    constant_count: u8 = 0,

    /// A region whose results all have shape `dims`.
    pub fn init(dims: []const u64) Builder {
        assert(dims.len <= rank_max);
        var b: Builder = .{ .rank = @intCast(dims.len), .dims = undefined, .count = 1 };
        @memcpy(b.dims[0..dims.len], dims);
        for (dims) |d| b.count *= d;
        return b;
    }

    pub fn dtypeOf(b: *const Builder, r: Register) DType {
        assert(r < b.value_count);
        return b.values[r].dtype;
    }

    /// The operand `ptrs[ptr_index]`, broadcast to the region's shape as NumPy does (right aligned,
    /// extents 1 repeat). Any strides.
    pub fn addLoad(b: *Builder, operand: Operand, ptr_index: u16) Error!Register {
        assert(operand.rank <= b.rank);
        if (b.load_count == elementwise.load_max) return error.RegionFull;
        var plan: LoadPlan = .{
            .ptr_index = ptr_index,
            .dtype = operand.dtype,
            .is_counter = false,
            .rank = 0,
            .extents = undefined,
            .strides = undefined,
        };
        const shift = b.rank - operand.rank;
        for (0..b.rank) |axis| {
            const extent = b.dims[axis];
            const broadcast = axis < shift or operand.dims[axis - shift] != extent;
            if (axis >= shift and broadcast) assert(operand.dims[axis - shift] == 1);
            append(&plan, extent, if (broadcast) 0 else operand.strides[axis - shift]);
        }
        b.loads[b.load_count] = plan;
        b.load_count += 1;
        const half = operand.dtype == .f16 or operand.dtype == .bf16;
        return b.push(.{
            .source = .{ .load = b.load_count - 1 },
            .dtype = operand.dtype,
            .raw = half,
        });
    }

    /// The index along `axis` of the region's shape, int64.
    pub fn addIota(b: *Builder, axis: u32) Error!Register {
        assert(axis < b.rank);
        if (b.load_count == elementwise.load_max) return error.RegionFull;
        var inside: u64 = 1;
        for (b.dims[axis + 1 .. b.rank]) |d| inside *= d;
        var plan: LoadPlan = .{
            .ptr_index = 0,
            .dtype = .i64,
            .is_counter = true,
            .rank = 1,
            .extents = undefined,
            .strides = undefined,
        };
        plan.extents[0] = b.dims[axis];
        plan.strides[0] = @intCast(inside);
        b.loads[b.load_count] = plan;
        b.load_count += 1;
        return b.push(.{ .source = .{ .load = b.load_count - 1 }, .dtype = .i64 });
    }

    /// A value repeated over the shape; `bits` are those of the dtype, in the low bytes.
    pub fn addConstant(b: *Builder, d: DType, bits: u64) Error!Register {
        const kind = tile_ops.registerKind(d);
        const wide: u64 = switch (d) {
            .f16 => @as(u32, @bitCast(@as(f32, @as(f16, @bitCast(@as(u16, @truncate(bits))))))),
            .bf16 => @as(u32, @as(u16, @truncate(bits))) << 16,
            else => bits,
        };
        const index = for (b.constants[0..b.constant_count], 0..) |constant, i| {
            if (constant.bits == wide and constant.bytes == kind.bytes()) break i;
        } else new: {
            if (b.constant_count == elementwise.constant_max) return error.RegionFull;
            b.constants[b.constant_count] = .{ .bits = wide, .bytes = kind.bytes() };
            b.constant_count += 1;
            break :new b.constant_count - 1;
        };
        return b.push(.{ .source = .{ .constant = @intCast(index) }, .dtype = d, .rounded = true });
    }

    /// Applies an operation of the wire format (`isLegal` on `dtype_in`). `dtype_in` is the dtype
    /// of the operands (of the branches for `where`, whose condition comes first), `dtype_out`
    /// that of the result; `immediate` is its exponent or order.
    pub fn addOp(
        b: *Builder,
        op: TileOp,
        dtype_in: DType,
        dtype_out: DType,
        sources: []const Register,
        immediate: i64,
    ) Error!Register {
        assert(sources.len == op.arity());
        assert(tile_ops.isLegal(op, dtype_in));
        assert(b.dtypeOf(sources[sources.len - 1]) == dtype_in);
        const result = try lower.operation(b, op, dtype_in, dtype_out, sources, immediate);
        assert(b.dtypeOf(result) == dtype_out);
        return result;
    }

    /// Result `ptrs[ptr_index]`, dense, of dtype `d` (which is the value's).
    pub fn addStore(b: *Builder, r: Register, d: DType, ptr_index: u16) Error!void {
        assert(b.dtypeOf(r) == d);
        if (b.store_count == elementwise.store_max) return error.RegionFull;
        b.stores[b.store_count] = .{ .ptr_index = ptr_index, .value = r };
        b.store_count += 1;
    }

    /// The geometry of the region. `ptrs` of `run` are as the indices given here say.
    pub fn finish(b: *Builder) Error!elementwise.Geometry {
        assert(b.store_count > 0);
        return @import("elementwise_emit.zig").emit(b);
    }

    /// The value behind aliases.
    pub fn resolve(b: *const Builder, r: Register) Register {
        var v = r;
        while (b.values[v].source == .alias) v = b.values[v].source.alias;
        return v;
    }

    pub fn push(b: *Builder, value: Value) Error!Register {
        if (b.value_count == value_max) return error.RegionFull;
        b.values[b.value_count] = value;
        b.value_count += 1;
        return b.value_count - 1;
    }
};

/// Adds an axis inside those there are, merging it with the last one where one stride serves both.
fn append(plan: *LoadPlan, extent: u64, stride: i64) void {
    if (extent == 1) return;
    if (plan.rank > 0) {
        const last = plan.rank - 1;
        if (plan.strides[last] == stride *% @as(i64, @intCast(extent))) {
            plan.extents[last] *= extent;
            plan.strides[last] = stride;
            return;
        }
    }
    plan.extents[plan.rank] = extent;
    plan.strides[plan.rank] = stride;
    plan.rank += 1;
}

/// One operand copied to one result of the same dtype: a transposition, a slice, a broadcast.
pub fn planCopy(operand: Operand, dims: []const u64) Error!elementwise.Geometry {
    var b: Builder = .init(dims);
    const value = try b.addLoad(operand, 1);
    try b.addStore(value, operand.dtype, 0);
    return b.finish();
}
