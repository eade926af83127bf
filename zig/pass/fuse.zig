//! Fusion: groups elementwise instructions of one iteration space into regions, each of which
//! becomes one kernel. A region is convex: no value leaves it and comes back through another
//! instruction. The regions are side tables over the program, which stays as it is; `units` is the
//! order in which regions and single instructions are lowered.
//!
//! An instruction joins the region of one of its operands' producers, or the last region that reads
//! one of its full-sized operands. Instead of searching for paths, every unit has a level above
//! those of all units it depends on: an operand whose unit has a lower level than the region cannot
//! depend on it. A region's level may rise as long as it stays below that of all its users. Linear.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const elementwise = @import("../cpu/elementwise.zig");
const ir = @import("../ir.zig");
const Program = ir.Program;
const ValueId = ir.ValueId;
const InstructionId = ir.InstructionId;

pub const none: u32 = 0xffff_ffff;

/// Members a region may have: micro-operations are at most about three for each (rounding of half
/// types), and every one may need a register.
const member_max = elementwise.op_max / 4;
/// Values from outside, less than the kernel's loads to leave room for literals that become loads.
const operand_max = elementwise.load_max - 2;
const store_max = elementwise.store_max;

pub const Unit = struct {
    start: u32,
    /// Instructions of other regions that this one repeats for itself; they come first.
    clone_count: u32 = 0,
    count: u32,
};

pub const Regions = struct {
    /// Clones and members of the units, each in the order of the program.
    list: []const InstructionId,
    /// In the order of lowering.
    units: []const Unit,
    /// Whether a region may take over reductions of its values.
    fuses_reductions: bool = false,

    pub fn members(r: *const Regions, unit: Unit) []const InstructionId {
        return r.list[unit.start + unit.clone_count ..][0..unit.count];
    }

    pub fn clones(r: *const Regions, unit: Unit) []const InstructionId {
        return r.list[unit.start..][0..unit.clone_count];
    }
};

/// Every live instruction a unit of its own.
pub fn single(gpa: Allocator, program: *const Program, live: []const bool) Allocator.Error!Regions {
    var list: std.ArrayList(InstructionId) = .empty;
    var units: std.ArrayList(Unit) = .empty;
    for (0..program.instructionCount()) |index| {
        if (!live[index]) continue;
        try units.append(gpa, .{ .start = @intCast(list.items.len), .count = 1 });
        try list.append(gpa, .at(index));
    }
    return .{ .list = list.items, .units = units.items };
}

const Region = struct {
    /// The dims of every member's result.
    type_dims: []const i64,
    level: u32,
    /// The lowest level of a unit outside that uses a member's result.
    user_level_min: u32 = std.math.maxInt(u32),
    member_count: u32 = 0,
    last: u32 = 0,
    operand_count: u32 = 0,
    operands: [operand_max]ValueId = undefined,
    /// Region it was merged into.
    parent: u32,
};

const Fuser = struct {
    gpa: Allocator,
    program: *const Program,
    live: []const bool,
    /// By instruction: its region, or `none`.
    region_of: []u32,
    /// By instruction without a region: its level.
    level_of: []u32,
    /// By value: the last region that reads it as a full-sized operand, or `none`.
    reader_of: []u32,
    regions: std.ArrayList(Region) = .empty,
    /// The level of the last instruction with an effect: the next one depends on it.
    effect_level: u32 = 0,

    fn root(f: *Fuser, region: u32) u32 {
        var at = region;
        while (f.regions.items[at].parent != at) {
            const grandparent = f.regions.items[f.regions.items[at].parent].parent;
            f.regions.items[at].parent = grandparent;
            at = grandparent;
        }
        return at;
    }

    /// The unit that makes a value: its region (or `none`) and level; level 0 is known from the
    /// start.
    fn producer(f: *Fuser, v: ValueId) struct { region: u32, level: u32 } {
        const first = f.program.firstResult();
        if (v.index() < first) return .{ .region = none, .level = 0 };
        const i = f.program.result_instruction[v.index() - first].index();
        if (f.region_of[i] == none) return .{ .region = none, .level = f.level_of[i] };
        const region = f.root(f.region_of[i]);
        return .{ .region = region, .level = f.regions.items[region].level };
    }
};

pub fn run(gpa: Allocator, program: *const Program, live: []const bool) Allocator.Error!Regions {
    const n = program.instructionCount();
    var f: Fuser = .{
        .gpa = gpa,
        .program = program,
        .live = live,
        .region_of = try gpa.alloc(u32, n),
        .level_of = try gpa.alloc(u32, n),
        .reader_of = try gpa.alloc(u32, program.valueCount()),
    };
    @memset(f.region_of, none);
    @memset(f.level_of, 0);
    @memset(f.reader_of, none);
    for (0..n) |index| if (live[index]) try place(&f, .at(index));
    return order(&f);
}

/// Instructions the elementwise kernels do. A counter is one: it is cheaper to make than to read.
pub fn isFusible(program: *const Program, i: InstructionId) bool {
    return program.code(i).traits().elementwise or program.code(i) == .iota;
}

fn place(f: *Fuser, i: InstructionId) Allocator.Error!void {
    const operands = f.program.operandsOf(i);
    if (!isFusible(f.program, i)) {
        var level: u32 = 0;
        for (operands) |v| level = @max(level, f.producer(v).level);
        if (f.program.hasEffect(i)) {
            level = @max(level, f.effect_level);
            f.effect_level = level + 1;
        }
        f.level_of[i.index()] = level + 1;
        for (operands) |v| noteUser(f, v, level + 1);
        return;
    }
    const dims = f.program.typeOf(f.program.result(i, 0)).dims;
    var target: u32 = none;
    for (operands) |v| {
        const made = f.producer(v);
        if (made.region == none or made.region == target) continue;
        target = consider(f, target, made.region, i, dims);
    }
    for (operands) |v| {
        if (f.reader_of[v.index()] == none or !sameDims(f, v, dims)) continue;
        const reader = f.root(f.reader_of[v.index()]);
        if (reader != target) target = consider(f, target, reader, i, dims);
    }
    if (target == none) target = try newRegion(f, dims);
    join(f, target, i);
}

fn sameDims(f: *const Fuser, v: ValueId, dims: []const i64) bool {
    return std.mem.eql(i64, f.program.typeOf(v).dims, dims);
}

fn newRegion(f: *Fuser, dims: []const i64) Allocator.Error!u32 {
    const region: u32 = @intCast(f.regions.items.len);
    try f.regions.append(f.gpa, .{ .type_dims = dims, .level = 0, .parent = region });
    return region;
}

/// The region to join after looking at `candidate`: the candidate, merged with `target` if there is
/// one already, or `target` unchanged if that is not possible.
fn consider(f: *Fuser, target: u32, candidate: u32, i: InstructionId, dims: []const i64) u32 {
    const c = &f.regions.items[candidate];
    if (!std.mem.eql(i64, c.type_dims, dims)) return target;
    var level = c.level;
    var user_level_min = c.user_level_min;
    if (target != none) {
        const t = &f.regions.items[target];
        level = @max(level, t.level);
        user_level_min = @min(user_level_min, t.user_level_min);
    }
    // Every operand from outside must stay below.
    for (f.program.operandsOf(i)) |v| {
        const made = f.producer(v);
        if (made.region != none and (made.region == candidate or made.region == target)) continue;
        level = @max(level, made.level + 1);
    }
    if (level >= user_level_min) return target;
    if (!fits(f, target, candidate, i)) return target;
    if (target == none) {
        c.level = level;
        return candidate;
    }
    merge(f, target, candidate);
    f.regions.items[target].level = level;
    return target;
}

/// Whether the members and operands of both, and of the instruction, stay within a kernel's room.
fn fits(f: *Fuser, target: u32, candidate: u32, i: InstructionId) bool {
    const c = &f.regions.items[candidate];
    var members = c.member_count + 1;
    var extra = countNew(f, c, f.program.operandsOf(i), candidate, target);
    if (target != none) {
        const t = &f.regions.items[target];
        members += t.member_count;
        extra += countNew(f, c, t.operands[0..t.operand_count], candidate, target);
    }
    return members <= member_max and c.operand_count + extra <= operand_max;
}

fn countNew(f: *Fuser, c: *const Region, operands: []const ValueId, a: u32, b: u32) u32 {
    var count: u32 = 0;
    for (operands) |v| {
        const made = f.producer(v).region;
        if (made != none and (made == a or made == b)) continue;
        if (std.mem.findScalar(ValueId, c.operands[0..c.operand_count], v) == null) count += 1;
    }
    return count;
}

fn merge(f: *Fuser, target: u32, candidate: u32) void {
    const c = &f.regions.items[candidate];
    const t = &f.regions.items[target];
    c.parent = target;
    t.member_count += c.member_count;
    t.last = @max(t.last, c.last);
    t.user_level_min = @min(t.user_level_min, c.user_level_min);
    for (c.operands[0..c.operand_count]) |v| addOperand(f, t, target, v);
}

fn addOperand(f: *Fuser, t: *Region, target: u32, v: ValueId) void {
    if (f.producer(v).region == target) return;
    if (std.mem.findScalar(ValueId, t.operands[0..t.operand_count], v) != null) return;
    // A first member may read more than the room leaves only if the room is smaller than 3.
    comptime assert(operand_max >= 3);
    t.operands[t.operand_count] = v;
    t.operand_count += 1;
}

fn join(f: *Fuser, target: u32, i: InstructionId) void {
    const t = &f.regions.items[target];
    f.region_of[i.index()] = target;
    t.member_count += 1;
    t.last = @intCast(i.index());
    for (f.program.operandsOf(i)) |v| {
        const made = f.producer(v);
        if (made.region == target) continue;
        t.level = @max(t.level, made.level + 1);
        addOperand(f, t, target, v);
        if (sameDims(f, v, t.type_dims)) f.reader_of[v.index()] = target;
    }
    assert(t.level < t.user_level_min);
    for (f.program.operandsOf(i)) |v| {
        if (f.producer(v).region != target) noteUser(f, v, t.level);
    }
}

fn noteUser(f: *Fuser, v: ValueId, level: u32) void {
    const made = f.producer(v);
    if (made.region == none) return;
    const region = &f.regions.items[made.region];
    region.user_level_min = @min(region.user_level_min, level);
}

/// Members gathered unit by unit, units in an order that respects every dependency.
fn order(f: *Fuser) Allocator.Error!Regions {
    const program = f.program;
    const n = program.instructionCount();
    // Members by region, chained in the order of the program.
    const unit_of = try f.gpa.alloc(u32, n);
    const region_unit = try f.gpa.alloc(u32, f.regions.items.len);
    @memset(region_unit, none);
    var units: std.ArrayList(Unit) = .empty;
    for (0..n) |index| {
        if (!f.live[index]) continue;
        const region = if (f.region_of[index] == none) none else f.root(f.region_of[index]);
        if (region != none and region_unit[region] != none) {
            unit_of[index] = region_unit[region];
        } else {
            unit_of[index] = @intCast(units.items.len);
            try units.append(f.gpa, .{ .start = 0, .count = 0 });
            if (region != none) region_unit[region] = unit_of[index];
        }
        units.items[unit_of[index]].count += 1;
    }
    var start: u32 = 0;
    for (units.items) |*unit| {
        unit.start = start;
        start += unit.count;
        unit.count = 0;
    }
    const list = try f.gpa.alloc(InstructionId, start);
    for (0..n) |index| {
        if (!f.live[index]) continue;
        const unit = &units.items[unit_of[index]];
        list[unit.start + unit.count] = .at(index);
        unit.count += 1;
    }
    const sorted = try topological(f, units.items, list, unit_of);
    return .{ .list = list, .units = sorted, .fuses_reductions = true };
}

/// Kahn's algorithm; among the units that are ready the one whose last member comes first.
fn topological(
    f: *Fuser,
    units: []const Unit,
    list: []const InstructionId,
    unit_of: []const u32,
) Allocator.Error![]const Unit {
    const program = f.program;
    const first = program.firstResult();
    const waiting = try f.gpa.alloc(u32, units.len);
    @memset(waiting, 0);
    // Users of each unit, as chains of edges.
    const Edge = struct { user: u32, next: u32 };
    var edges: std.ArrayList(Edge) = .empty;
    const heads = try f.gpa.alloc(u32, units.len);
    @memset(heads, none);
    var last_effect: u32 = none;
    for (units, 0..) |unit, user| {
        for (list[unit.start..][0..unit.count]) |i| for (program.operandsOf(i)) |v| {
            if (v.index() < first) continue;
            const maker = unit_of[program.result_instruction[v.index() - first].index()];
            if (maker == user) continue;
            waiting[user] += 1;
            try edges.append(f.gpa, .{ .user = @intCast(user), .next = heads[maker] });
            heads[maker] = @intCast(edges.items.len - 1);
        };
        // Effects are units of their own, in the order of the program here.
        if (!program.hasEffect(list[unit.start])) continue;
        if (last_effect != none) {
            waiting[user] += 1;
            try edges.append(f.gpa, .{ .user = @intCast(user), .next = heads[last_effect] });
            heads[last_effect] = @intCast(edges.items.len - 1);
        }
        last_effect = @intCast(user);
    }
    const Key = struct {
        last: u32,
        unit: u32,

        fn compare(_: void, a: @This(), b: @This()) std.math.Order {
            return std.math.order(a.last, b.last);
        }
    };
    var ready: std.PriorityQueue(Key, void, Key.compare) = .empty;
    for (units, 0..) |unit, index| if (waiting[index] == 0) {
        const last = list[unit.start + unit.count - 1];
        try ready.push(f.gpa, .{ .last = @intCast(last.index()), .unit = @intCast(index) });
    };
    const sorted = try f.gpa.alloc(Unit, units.len);
    var count: usize = 0;
    while (ready.pop()) |key| {
        sorted[count] = units[key.unit];
        count += 1;
        var at = heads[key.unit];
        while (at != none) : (at = edges.items[at].next) {
            const user = edges.items[at].user;
            waiting[user] -= 1;
            if (waiting[user] > 0) continue;
            const unit = units[user];
            const last = list[unit.start + unit.count - 1];
            try ready.push(f.gpa, .{ .last = @intCast(last.index()), .unit = user });
        }
    }
    assert(count == units.len); // regions are convex
    return sorted;
}
