//! Rematerialisation: a region that reads values another region would have to store for it computes
//! them again instead, where that keeps fewer bytes alive. The derivative of an activation is the
//! common case: it reads five or six intermediates of the forward pass, all of which follow from
//! one.
//!
//! The members that a region repeats are its clones. They are never stored by it; the region they
//! come from stores only what somebody still reads. One walk over the units in their order.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const elementwise = @import("../cpu/elementwise.zig");
const fuse = @import("fuse.zig");
const ir = @import("../ir.zig");
const InstructionId = ir.InstructionId;
const Program = ir.Program;
const Regions = fuse.Regions;
const Unit = fuse.Unit;
const ValueId = ir.ValueId;

/// Instructions one region may repeat: with one member more they still fit any kernel.
const clone_max = 24;
/// Exponents have a small table of their own in a kernel.
const power_max = 4;
const load_max = elementwise.load_max - 2;
const none = fuse.none;
/// More than one unit uses the value, or one that needs it in memory.
const many: u32 = none - 1;

const Pass = struct {
    gpa: Allocator,
    program: *const Program,
    units: []Unit,
    lists: std.ArrayList(InstructionId),
    /// By instruction: the unit it is a member of, or `none`.
    unit_of: []u32,
    /// By value: the only region outside its own that uses it, `many`, or `none`.
    user_of: []u32,
    /// By value: the last unit that uses it.
    last_use: []u32,
    /// By instruction: stamped while it is in the region looked at, or in the set to clone.
    seen: []u32,
    stamp: u32 = 0,
    /// By unit: it makes an output in the memory of a donated input, or follows from one that does.
    late: []bool,

    fn makerOf(p: *const Pass, v: ValueId) ?InstructionId {
        const first = p.program.firstResult();
        return if (v.index() < first) null else p.program.result_instruction[v.index() - first];
    }

    fn membersOf(p: *const Pass, unit: u32) []const InstructionId {
        const u = p.units[unit];
        return p.lists.items[u.start + u.clone_count ..][0..u.count];
    }

    fn allOf(p: *const Pass, unit: u32) []const InstructionId {
        const u = p.units[unit];
        return p.lists.items[u.start..][0 .. u.clone_count + u.count];
    }

    fn isRegion(p: *const Pass, unit: u32) bool {
        return fuse.isFusible(p.program, p.membersOf(unit)[0]);
    }

    fn dimsOf(p: *const Pass, unit: u32) []const i64 {
        return p.program.typeOf(p.program.result(p.membersOf(unit)[0], 0)).dims;
    }
};

/// The same units, some with clones.
pub fn run(
    gpa: Allocator,
    program: *const Program,
    regions: *const Regions,
) Allocator.Error!Regions {
    var p: Pass = .{
        .gpa = gpa,
        .program = program,
        .units = try gpa.dupe(Unit, regions.units),
        .lists = .empty,
        .unit_of = try gpa.alloc(u32, program.instructionCount()),
        .user_of = try gpa.alloc(u32, program.valueCount()),
        .last_use = try gpa.alloc(u32, program.valueCount()),
        .seen = try gpa.alloc(u32, program.instructionCount()),
        .late = try gpa.alloc(bool, regions.units.len),
    };
    try p.lists.appendSlice(gpa, regions.list);
    @memset(p.unit_of, none);
    @memset(p.user_of, none);
    @memset(p.last_use, 0);
    @memset(p.seen, 0);
    @memset(p.late, false);
    index(&p);
    for (0..p.units.len) |unit| {
        if (p.isRegion(@intCast(unit))) try improve(&p, @intCast(unit));
    }
    return .{
        .list = p.lists.items,
        .units = p.units,
        .fuses_reductions = regions.fuses_reductions,
    };
}

fn index(p: *Pass) void {
    for (0..p.units.len) |unit| {
        for (p.membersOf(@intCast(unit))) |i| p.unit_of[i.index()] = @intCast(unit);
    }
    for (p.program.outputs) |output| {
        const maker = p.makerOf(output.value) orelse continue;
        if (output.alias != null) p.late[p.unit_of[maker.index()]] = true;
    }
    for (0..p.units.len) |n| {
        const unit: u32 = @intCast(n);
        const is_region = p.isRegion(unit);
        for (p.membersOf(unit)) |i| for (p.program.operandsOf(i)) |v| {
            const maker = p.makerOf(v) orelse continue;
            p.last_use[v.index()] = unit;
            if (p.late[p.unit_of[maker.index()]]) p.late[unit] = true;
            if (p.unit_of[maker.index()] == unit) continue;
            const fits = is_region and
                std.mem.eql(i64, p.program.typeOf(v).dims, p.dimsOf(unit));
            const user = &p.user_of[v.index()];
            user.* = if (fits and (user.* == none or user.* == unit)) unit else many;
        };
    }
    for (p.program.outputs) |output| p.user_of[output.value.index()] = many;
}

/// Looks at every region that stores something for `unit` alone.
fn improve(p: *Pass, unit: u32) Allocator.Error!void {
    // The makers are few; each is looked at when the first of its values is met.
    var makers: [load_max]u32 = undefined;
    var maker_count: u32 = 0;
    for (p.membersOf(unit)) |i| for (p.program.operandsOf(i)) |v| {
        if (p.user_of[v.index()] != unit) continue;
        const maker = p.unit_of[p.makerOf(v).?.index()];
        if (maker == unit or !p.isRegion(maker)) continue;
        if (std.mem.findScalar(u32, makers[0..maker_count], maker) != null) continue;
        if (maker_count == makers.len) return;
        makers[maker_count] = maker;
        maker_count += 1;
    };
    for (makers[0..maker_count]) |maker| try consider(p, unit, maker);
}

/// What cloning would take and give.
const Candidate = struct {
    clones: [clone_max]InstructionId = undefined,
    clone_count: u32 = 0,
    powers: u32 = 0,
    /// Values from outside that the clones read.
    leaves: [load_max]ValueId = undefined,
    leaf_count: u32 = 0,
    /// Values that the maker need not store any more.
    removed: [load_max]ValueId = undefined,
    removed_count: u32 = 0,
    bytes_removed: u64 = 0,
};

fn consider(p: *Pass, unit: u32, maker: u32) Allocator.Error!void {
    // Two stamps: members of the maker, and those of them that are to be cloned.
    p.stamp += 2;
    for (p.allOf(maker)) |i| p.seen[i.index()] = p.stamp;
    var c: Candidate = .{};
    for (p.membersOf(unit)) |i| for (p.program.operandsOf(i)) |v| {
        if (p.user_of[v.index()] != unit) continue;
        if (p.unit_of[p.makerOf(v).?.index()] != maker) continue;
        if (std.mem.findScalar(ValueId, c.removed[0..c.removed_count], v) != null) continue;
        if (c.removed_count == load_max) return;
        c.removed[c.removed_count] = v;
        c.removed_count += 1;
        c.bytes_removed += p.program.typeOf(v).byteCount();
        if (!collect(p, &c, v)) return;
    };
    if (p.late[unit] and readsDonated(p, &c)) return;
    if (!pays(p, &c, unit)) return;
    try adopt(p, &c, unit);
}

/// Adds what makes `v`, back to the values from outside its region; false if that is too much.
fn collect(p: *Pass, c: *Candidate, v: ValueId) bool {
    const i = p.makerOf(v) orelse return addLeaf(c, v);
    const seen = &p.seen[i.index()];
    if (seen.* == p.stamp + 1) return true;
    if (seen.* != p.stamp) return addLeaf(c, v);
    seen.* = p.stamp + 1;
    if (c.clone_count == clone_max) return false;
    // Depth is bounded by the number of clones.
    c.clones[c.clone_count] = i;
    c.clone_count += 1;
    switch (p.program.code(i)) {
        .integer_power, .polygamma, .bessel_i => c.powers += 1,
        else => {},
    }
    if (c.powers > power_max) return false;
    for (p.program.operandsOf(i)) |operand| if (!collect(p, c, operand)) return false;
    return true;
}

/// What runs after donated inputs are overwritten must not read them.
fn readsDonated(p: *const Pass, c: *const Candidate) bool {
    const inputs = p.program.inputs;
    for (c.leaves[0..c.leaf_count]) |v| {
        if (v.index() < inputs.len and inputs[v.index()].flags.donated) return true;
    }
    return false;
}

fn addLeaf(c: *Candidate, v: ValueId) bool {
    if (std.mem.findScalar(ValueId, c.leaves[0..c.leaf_count], v) != null) return true;
    if (c.leaf_count == load_max) return false;
    c.leaves[c.leaf_count] = v;
    c.leaf_count += 1;
    return true;
}

/// Fewer bytes are kept, and the kernel has room for the operands.
fn pays(p: *Pass, c: *const Candidate, unit: u32) bool {
    const u = p.units[unit];
    if (c.clone_count + u.clone_count > clone_max) return false;
    var bytes_added: u64 = 0;
    for (c.leaves[0..c.leaf_count]) |v| {
        if (p.makerOf(v) == null or p.last_use[v.index()] >= unit) continue;
        bytes_added += p.program.typeOf(v).byteCount();
    }
    if (c.bytes_removed <= bytes_added) return false;
    return loadCount(p, c, unit) <= load_max;
}

/// Distinct values from outside that the region would read.
fn loadCount(p: *Pass, c: *const Candidate, unit: u32) u32 {
    var loads: [2 * load_max]ValueId = undefined;
    @memcpy(loads[0..c.leaf_count], c.leaves[0..c.leaf_count]);
    var count = c.leaf_count;
    for (p.allOf(unit)) |i| for (p.program.operandsOf(i)) |v| {
        if (p.makerOf(v)) |maker| {
            if (p.unit_of[maker.index()] == unit) continue;
            if (std.mem.findScalar(InstructionId, p.allOf(unit), maker) != null) continue;
            const clones = c.clones[0..c.clone_count];
            if (std.mem.findScalar(InstructionId, clones, maker) != null) continue;
        }
        if (std.mem.findScalar(ValueId, loads[0..count], v) != null) continue;
        if (count == loads.len) return std.math.maxInt(u32);
        loads[count] = v;
        count += 1;
    };
    return count;
}

/// Gives the region its clones, in the order of the program, in a list of its own.
fn adopt(p: *Pass, c: *Candidate, unit: u32) Allocator.Error!void {
    const u = &p.units[unit];
    const start: u32 = @intCast(p.lists.items.len);
    const old = try p.gpa.dupe(InstructionId, p.allOf(unit));
    var clones: [clone_max]InstructionId = undefined;
    @memcpy(clones[0..u.clone_count], old[0..u.clone_count]);
    var count = u.clone_count;
    for (c.clones[0..c.clone_count]) |i| {
        if (std.mem.findScalar(InstructionId, clones[0..count], i) != null) continue;
        clones[count] = i;
        count += 1;
    }
    std.mem.sort(InstructionId, clones[0..count], {}, isBefore);
    try p.lists.appendSlice(p.gpa, clones[0..count]);
    try p.lists.appendSlice(p.gpa, old[u.clone_count..]);
    u.* = .{ .start = start, .clone_count = count, .count = u.count };
    for (c.leaves[0..c.leaf_count]) |v| {
        p.user_of[v.index()] = many;
        p.last_use[v.index()] = @max(p.last_use[v.index()], unit);
    }
}

fn isBefore(_: void, a: InstructionId, b: InstructionId) bool {
    return a.index() < b.index();
}
