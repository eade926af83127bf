//! Lowering: a program becomes drafts of instructions (kernel, geometry, operands) over storages.
//! Values that are views of others make no draft. What a draft reads and writes is known here, when
//! and where in memory is decided afterwards (`lower_finish.zig`). One draft per instruction, or
//! per fused region; a copy where a kernel needs dense operands or an output is a view.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("abi_types.zig");
const failure = @import("runtime/failure.zig");
const fuse = @import("pass/fuse.zig");
const ir = @import("ir.zig");
const kernel_abi = @import("cpu/kernel_abi.zig");
const kernels = @import("lower_kernels.zig");
const needs_file = @import("lower_needs.zig");
const op = @import("op.zig");
const plans = @import("plan.zig");
const regions = @import("lower_region.zig");
const views = @import("lower_view.zig");
const Isa = @import("cpu/isa.zig").Isa;
const Kernel = @import("cpu/kernel_table.zig").Kernel;
const Program = ir.Program;
const ValueId = ir.ValueId;
const InstructionId = ir.InstructionId;
const View = views.View;

pub const Error = error{ OutOfMemory, Unsupported };
pub const none: u32 = 0xffff_ffff;

pub const Place = enum { arena, constants, input, output };

/// A piece of memory that holds one value (and the views of it).
pub const Storage = struct {
    place: Place,
    /// Which input or output; byte offset in the constants.
    index: u64 = 0,
    bytes: u64,
    /// The draft that writes it; `none` for inputs and constants.
    writer: u32 = none,
};

/// An operand or result of a draft: byte `offset` of a storage.
pub const Ref = struct { storage: u32, offset: i64 };

pub const Draft = struct {
    kernel: Kernel,
    result_count: u16,
    operand_count: u16,
    /// Results, then operands, then the shared memory if the kernel wants some.
    refs_start: u32,
    geometry: u32,
    work: kernel_abi.Work,
    origin: u32,
    /// The part of `Lowering.members` that it does.
    members_start: u32,
    members_count: u32,
    copied_bytes: u64,
    may_fail: bool,
    /// Keeps its place among the other drafts that say so.
    has_effect: bool,
    /// Bit k: a result of equal size may take the place of operand k. In a draft with pairs: result
    /// k may take the place of operand `pair_first` + k.
    in_place: u64,
    pair_first: u32,

    pub fn mayTake(draft: *const Draft, result: usize, operand: usize) bool {
        if (draft.pair_first == none) {
            return operand < 64 and draft.in_place >> @intCast(operand) & 1 == 1;
        }
        return result < 64 and operand == draft.pair_first + result and
            draft.in_place >> @intCast(result) & 1 == 1;
    }
};

pub const Options = struct {
    /// Bits of `in_place`; operands beyond 64 are never taken over.
    in_place: u64 = 0,
    pair_first: u32 = none,
    may_fail: bool = false,
    has_effect: bool = false,
    /// Of the value, if all it does is to copy one.
    copied_bytes: u64 = 0,
};

pub const Target = struct {
    isa: Isa,
    /// Owns the contents of controls.
    kept: Allocator,
    /// Plans of the blocks that the program may run.
    blocks: []const plans.Plan = &.{},
};

pub const Lowering = struct {
    /// Owns what becomes part of the plan, and everything else until the compile ends.
    gpa: Allocator,
    program: *const Program,
    isa: Isa,
    target: Target,
    e: *abi.Error,
    /// By value; storage `none` until it is defined.
    values: []View,
    /// Dense copies made so far, by value; storage `none` if there is none.
    copies: []u32,
    /// What is stored, and what is not even computed.
    needs: needs_file.Needs,
    /// By instruction: a region does this reduction as well.
    reduced: []bool,
    /// By value: its register in the region being lowered.
    registers: []u16,
    storages: std.ArrayList(Storage) = .empty,
    drafts: std.ArrayList(Draft) = .empty,
    refs: std.ArrayList(Ref) = .empty,
    geometries: std.array_list.Aligned(u8, .@"64") = .empty,
    /// Hash of a geometry's bytes to its offset.
    geometry_map: std.AutoHashMapUnmanaged(u64, u32) = .empty,
    constants: std.array_list.Aligned(u8, .@"64") = .empty,
    controls: std.ArrayList(plans.Control) = .empty,
    /// Instructions by draft. A lowering that does more than `origin` appends before it emits.
    members: std.ArrayList(u32) = .empty,
    /// Where the members of the next draft begin.
    members_end: u32 = 0,
    /// The instruction being lowered.
    origin: InstructionId = .at(0),

    pub fn typeOf(l: *const Lowering, v: ValueId) ir.Type {
        return l.program.typeOf(v);
    }

    pub fn view(l: *const Lowering, v: ValueId) View {
        const found = l.values[v.index()];
        assert(found.storage != none);
        return found;
    }

    /// Operand k of the instruction being lowered.
    pub fn operand(l: *const Lowering, k: usize) ValueId {
        return l.program.operand(l.origin, k);
    }

    pub fn result(l: *const Lowering, k: usize) ValueId {
        return l.program.result(l.origin, k);
    }

    pub fn attr(
        l: *const Lowering,
        comptime name: []const u8,
    ) op.KindType(op.kindOf(name)) {
        return l.program.attr(l.origin, name);
    }

    /// What a family's `plan` is asked with.
    pub fn shape(l: *const Lowering, v: ValueId) kernel_abi.Operand {
        const t = l.typeOf(v);
        return views.operand(t.dtype, t.dims, l.view(v));
    }

    /// The dense type of a value, for results.
    pub fn denseShape(l: *const Lowering, v: ValueId) kernel_abi.Operand {
        const t = l.typeOf(v);
        return views.operand(t.dtype, t.dims, .{ .storage = 0 });
    }

    pub fn refOf(l: *const Lowering, v: ValueId, from: View) Ref {
        return .{
            .storage = from.storage,
            .offset = from.offset * l.typeOf(v).dtype.bytes(),
        };
    }

    pub fn ref(l: *const Lowering, v: ValueId) Ref {
        return l.refOf(v, l.view(v));
    }

    /// A dense view of the value: its own, or that of a copy, made at most once.
    pub fn dense(l: *Lowering, v: ValueId) Error!View {
        const own = l.view(v);
        if (own.isDense()) return own;
        if (l.copies[v.index()] == none) {
            const t = l.typeOf(v);
            const storage = try l.addStorage(.{ .place = .arena, .bytes = t.byteCount() });
            try kernels.copy(l, v, .{ .storage = storage, .offset = 0 });
            l.copies[v.index()] = storage;
        }
        return .{ .storage = l.copies[v.index()] };
    }

    /// Makes a value dense for good, for kernels that insist.
    pub fn denseRef(l: *Lowering, v: ValueId) Error!Ref {
        return l.refOf(v, try l.dense(v));
    }

    pub fn addStorage(l: *Lowering, storage: Storage) Error!u32 {
        try l.storages.append(l.gpa, storage);
        return @intCast(l.storages.items.len - 1);
    }

    /// Gives the value memory of its own, to be written by the next draft.
    pub fn define(l: *Lowering, v: ValueId) Error!Ref {
        assert(l.values[v.index()].storage == none);
        const storage = try l.addStorage(.{ .place = .arena, .bytes = l.typeOf(v).byteCount() });
        l.values[v.index()] = .{ .storage = storage };
        return .{ .storage = storage, .offset = 0 };
    }

    /// `Options.in_place` for a kernel whose result may take the place of its first operand, which
    /// is dense: allowed unless another operand reads the same memory.
    pub fn overFirst(operands: []const Ref) u64 {
        for (operands[1..]) |other| if (other.storage == operands[0].storage) return 0;
        return 1;
    }

    /// Appends a draft. `geometry` points to a family's Geometry, or to any bytes that begin with
    /// a `Work`.
    pub fn emit(
        l: *Lowering,
        kernel: Kernel,
        geometry: []const u8,
        results: []const Ref,
        operands: []const Ref,
        options: Options,
    ) Error!void {
        const work = std.mem.bytesToValue(kernel_abi.Work, geometry[0..@sizeOf(kernel_abi.Work)]);
        const index: u32 = @intCast(l.drafts.items.len);
        const start: u32 = @intCast(l.refs.items.len);
        try l.refs.appendSlice(l.gpa, results);
        try l.refs.appendSlice(l.gpa, operands);
        for (results) |r| {
            assert(l.storages.items[r.storage].writer == none);
            l.storages.items[r.storage].writer = index;
        }
        if (work.shared_bytes > 0) {
            const shared = try l.addStorage(.{
                .place = .arena,
                .bytes = work.shared_bytes,
                .writer = index,
            });
            try l.refs.append(l.gpa, .{ .storage = shared, .offset = 0 });
        }
        const at = try l.addGeometry(geometry);
        const members_start = l.members_end;
        const is_copy = options.copied_bytes > 0;
        if (l.members.items.len == members_start and !is_copy) try l.noteMember(l.origin);
        l.members_end = @intCast(l.members.items.len);
        try l.drafts.append(l.gpa, .{
            .kernel = kernel,
            .result_count = @intCast(results.len),
            .operand_count = @intCast(operands.len),
            .refs_start = start,
            .geometry = at,
            .work = work,
            .origin = @intCast(l.origin.index()),
            .members_start = members_start,
            .members_count = l.members_end - members_start,
            .copied_bytes = options.copied_bytes,
            .may_fail = options.may_fail,
            .has_effect = options.has_effect,
            .in_place = options.in_place,
            .pair_first = options.pair_first,
        });
    }

    /// The next draft does this instruction.
    pub fn noteMember(l: *Lowering, i: InstructionId) error{OutOfMemory}!void {
        try l.members.append(l.gpa, @intCast(i.index()));
    }

    /// Where the geometry is among all of them. Layers of a model have equal ones: each is kept
    /// once.
    fn addGeometry(l: *Lowering, geometry: []const u8) Error!u32 {
        const key = std.hash.Wyhash.hash(geometry.len, geometry);
        const found = try l.geometry_map.getOrPut(l.gpa, key);
        if (found.found_existing) {
            const at = found.value_ptr.*;
            const end = at + geometry.len;
            if (end <= l.geometries.items.len and
                std.mem.eql(u8, l.geometries.items[at..end], geometry)) return at;
        }
        const at = std.mem.alignForward(usize, l.geometries.items.len, 64);
        if (at > std.math.maxInt(u32)) return error.OutOfMemory;
        try l.geometries.ensureTotalCapacity(l.gpa, at + geometry.len);
        l.geometries.items.len = at + geometry.len;
        @memcpy(l.geometries.items[at..], geometry);
        found.value_ptr.* = @intCast(at);
        return @intCast(at);
    }

    /// As `emit` with a geometry that is one struct.
    pub fn emitStruct(
        l: *Lowering,
        kernel: Kernel,
        geometry: anytype,
        results: []const Ref,
        operands: []const Ref,
        options: Options,
    ) Error!void {
        return l.emit(kernel, std.mem.asBytes(geometry), results, operands, options);
    }

    /// Refs of a draft: results, operands and shared memory.
    pub fn refsOf(l: *const Lowering, draft: *const Draft) []const Ref {
        const count = @as(u32, draft.result_count) + draft.operand_count;
        const shared = @intFromBool(draft.work.shared_bytes > 0);
        return l.refs.items[draft.refs_start..][0 .. count + shared];
    }

    pub fn unsupported(l: *Lowering, comptime text: []const u8, arguments: anytype) Error {
        l.e.instruction = @intCast(l.origin.index());
        failure.note(l.e, .compile, text, arguments);
        return error.Unsupported;
    }

    fn addConstant(l: *Lowering, bytes: []const u8) Error!u32 {
        // Vectors are read from large constants; small ones need their element's alignment.
        const alignment: usize = if (bytes.len >= 64) 64 else 8;
        const at = std.mem.alignForward(usize, l.constants.items.len, alignment);
        try l.constants.resize(l.gpa, at + bytes.len);
        @memcpy(l.constants.items[at..], bytes);
        return l.addStorage(.{ .place = .constants, .index = at, .bytes = bytes.len });
    }
};

/// Drafts for the whole program, unit after unit.
pub fn lower(
    gpa: Allocator,
    program: *const Program,
    region_table: *const fuse.Regions,
    target: Target,
    e: *abi.Error,
) Error!Lowering {
    const values = try gpa.alloc(View, program.valueCount());
    @memset(values, .{ .storage = none });
    const copies = try gpa.alloc(u32, program.valueCount());
    @memset(copies, none);
    const registers = try gpa.alloc(u16, program.valueCount());
    @memset(registers, regions.no_register);
    const reduced = try gpa.alloc(bool, program.instructionCount());
    @memset(reduced, false);
    var l: Lowering = .{
        .gpa = gpa,
        .program = program,
        .isa = target.isa,
        .target = target,
        .e = e,
        .values = values,
        .copies = copies,
        .needs = try .find(gpa, program, region_table),
        .registers = registers,
        .reduced = reduced,
    };
    try l.drafts.ensureTotalCapacity(gpa, program.instructionCount());
    try placeKnown(&l);
    for (region_table.units) |unit| {
        const members = region_table.members(unit);
        l.origin = members[members.len - 1];
        if (fuse.isFusible(program, members[0])) {
            const needed = try l.needs.filter(gpa, members);
            if (needed.len == 0) continue;
            try regions.lowerRegion(&l, region_table.clones(unit), needed);
        } else {
            assert(members.len == 1);
            if (reduced[members[0].index()]) continue;
            try kernels.lowerInstruction(&l);
        }
    }
    return l;
}

/// Storages for inputs and literals.
fn placeKnown(l: *Lowering) Error!void {
    const program = l.program;
    var number: u64 = 0;
    for (program.inputs, 0..) |input, index| {
        const v = program.inputValue(.at(index));
        const storage = if (input.data) |bytes| try l.addConstant(bytes) else try l.addStorage(.{
            .place = .input,
            .index = number,
            .bytes = l.typeOf(v).byteCount(),
        });
        if (input.data == null) number += 1;
        l.values[v.index()] = .{ .storage = storage };
    }
    for (program.literals, 0..) |bytes, index| {
        const v = program.literalValue(.at(index));
        l.values[v.index()] = .{ .storage = try l.addConstant(bytes) };
    }
}
