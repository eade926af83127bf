//! From drafts to a plan: outputs get their storage, overwrites of donated inputs go last, every
//! storage gets its place in memory, and refs become base and offset.
const std = @import("std");
const assert = std.debug.assert;
const Allocator = std.mem.Allocator;
const abi = @import("abi_types.zig");
const ir = @import("ir.zig");
const kernels = @import("lower_kernels.zig");
const lowering = @import("lower.zig");
const plan_memory = @import("plan_memory.zig");
const plans = @import("plan.zig");
const Draft = lowering.Draft;
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;
const none = lowering.none;

/// Where a storage is first written and last used, in the final order.
const Life = struct { first: u32 = none, last: u32 = 0 };

/// A block's outputs and carries belong to the run: nothing is committed there.
pub const Role = enum { program, block };

const Finisher = struct {
    l: *Lowering,
    role: Role,
    gpa: Allocator,
    inputs: []plans.Input,
    outputs: []plans.Output,
    /// By output: its storage.
    output_storages: []u32,
    /// Drafts in the final order.
    order: []u32,
    /// By draft: its place in the order.
    position: []u32,
    lives: []Life,
    commit_point: u32 = 0,

    fn drafts(f: *const Finisher) []const Draft {
        return f.l.drafts.items;
    }

    fn operandsOf(f: *const Finisher, draft: *const Draft) []const Ref {
        return f.l.refsOf(draft)[draft.result_count..][0..draft.operand_count];
    }

    fn resultsOf(f: *const Finisher, draft: *const Draft) []const Ref {
        return f.l.refsOf(draft)[0..draft.result_count];
    }
};

/// What the executor needs, without timings and diagnostics. `gpa` owns it.
pub fn finish(l: *Lowering, role: Role) Error!plans.Plan {
    var f: Finisher = .{
        .l = l,
        .role = role,
        .gpa = l.gpa,
        .inputs = try listInputs(l),
        .outputs = try l.gpa.alloc(plans.Output, l.program.outputs.len),
        .output_storages = try l.gpa.alloc(u32, l.program.outputs.len),
        .order = &.{},
        .position = &.{},
        .lives = &.{},
    };
    try placeOutputs(&f);
    try dropImpossibleAliases(&f);
    try orderDrafts(&f);
    try dropLateAliases(&f);
    findCommitPoint(&f);
    try findLives(&f);
    const arena_bytes = try placeArena(&f);
    return assemble(&f, arena_bytes);
}

fn listInputs(l: *Lowering) Error![]plans.Input {
    var inputs: std.ArrayList(plans.Input) = .empty;
    for (l.program.inputs, 0..) |input, index| {
        if (input.data != null) continue;
        const t = l.typeOf(l.program.inputValue(.at(index)));
        try inputs.append(l.gpa, .{
            .bytes = t.byteCount(),
            .dtype = t.dtype,
            .donated = input.flags.donated,
        });
    }
    return inputs.items;
}

/// The number of a program's input among the plan's, which leave baked constants out.
fn planInput(l: *const Lowering, input: ir.InputId) u32 {
    const storage = l.values[l.program.inputValue(input).index()].storage;
    assert(l.storages.items[storage].place == .input);
    return @intCast(l.storages.items[storage].index);
}

/// A dense value that a draft makes moves into the output as it is; everything else (inputs,
/// constants, views, a value that is an output twice) is copied there.
fn placeOutputs(f: *Finisher) Error!void {
    const l = f.l;
    for (l.program.outputs, f.outputs, f.output_storages, 0..) |output, *to, *storage, index| {
        const t = l.typeOf(output.value);
        const view = l.view(output.value);
        to.* = .{
            .bytes = t.byteCount(),
            .dtype = t.dtype,
            .alias = if (output.alias) |input| planInput(l, input) else plans.no_alias,
            .in_place = if (output.alias != null) .possible else .not_asked,
            .same_as = output.same_as,
        };
        storage.* = none;
        if (output.same_as != null) continue;
        const own = &l.storages.items[view.storage];
        if (own.place == .arena and view.isDense() and view.offset == 0 and own.bytes == to.bytes) {
            own.place = .output;
            own.index = index;
            storage.* = view.storage;
        } else {
            storage.* = try l.addStorage(.{ .place = .output, .index = index, .bytes = to.bytes });
            if (l.program.definitionOf(output.value) == .result) {
                l.origin = l.program.definitionOf(output.value).result.instruction;
            }
            try kernels.copy(l, output.value, .{ .storage = storage.*, .offset = 0 });
        }
    }
}

/// An output may not be written in place where the run could still fail afterwards (or while it is
/// written; in a block that does no harm), nor where sizes differ or the input was taken by another
/// output.
fn dropImpossibleAliases(f: *Finisher) Error!void {
    const l = f.l;
    const fragile = try f.gpa.alloc(bool, l.storages.items.len);
    @memset(fragile, false);
    var index = if (f.role == .program) f.drafts().len else 0;
    while (index > 0) {
        index -= 1;
        const draft = &f.drafts()[index];
        var fails = draft.may_fail;
        for (f.resultsOf(draft)) |r| fails = fails or fragile[r.storage];
        if (!fails) continue;
        for (f.operandsOf(draft)) |r| fragile[r.storage] = true;
        for (f.resultsOf(draft)) |r| fragile[r.storage] = true;
    }
    const taken = try f.gpa.alloc(bool, f.inputs.len);
    @memset(taken, false);
    for (f.outputs, f.output_storages) |*output, storage| {
        if (output.alias == plans.no_alias) continue;
        const input = &f.inputs[output.alias];
        assert(input.donated); // the verifier checks it
        if (l.storages.items[storage].writer == none) {
            refuse(output, .not_computed);
        } else if (input.bytes != output.bytes) {
            refuse(output, .sizes_differ);
        } else if (taken[output.alias]) {
            refuse(output, .taken);
        } else if (fragile[storage]) {
            refuse(output, .may_fail_later);
        } else {
            taken[output.alias] = true;
        }
    }
}

fn refuse(output: *plans.Output, reason: plans.InPlace) void {
    output.alias = plans.no_alias;
    output.in_place = reason;
}

/// Drafts that overwrite a donated input, and all that follow from them, go to the end; effects
/// behind such an effect too.
fn orderDrafts(f: *Finisher) Error!void {
    const l = f.l;
    const late = try f.gpa.alloc(bool, l.storages.items.len);
    @memset(late, false);
    for (f.outputs, f.output_storages) |output, storage| {
        if (output.alias != plans.no_alias) late[storage] = true;
    }
    const count = f.drafts().len;
    f.order = try f.gpa.alloc(u32, count);
    f.position = try f.gpa.alloc(u32, count);
    const tail = try f.gpa.alloc(u32, count);
    var early_count: u32 = 0;
    var tail_count: u32 = 0;
    var is_effect_late = false;
    for (f.drafts(), 0..) |*draft, index| {
        var is_late = draft.has_effect and is_effect_late;
        for (f.l.refsOf(draft)) |r| is_late = is_late or late[r.storage];
        if (is_late) {
            is_effect_late = is_effect_late or draft.has_effect;
            for (f.resultsOf(draft)) |r| late[r.storage] = true;
            tail[tail_count] = @intCast(index);
            tail_count += 1;
        } else {
            f.order[early_count] = @intCast(index);
            early_count += 1;
        }
    }
    @memcpy(f.order[early_count..], tail[0..tail_count]);
    for (f.order, 0..) |draft, at| f.position[draft] = @intCast(at);
}

/// The memory of a donated input may be overwritten only by its last reader or after it.
fn dropLateAliases(f: *Finisher) Error!void {
    const l = f.l;
    // By input: the place of its last reader plus 1.
    const read_end = try f.gpa.alloc(u32, f.inputs.len);
    @memset(read_end, 0);
    for (f.drafts(), f.position) |*draft, at| {
        for (f.operandsOf(draft)) |r| {
            const from = &l.storages.items[r.storage];
            if (from.place == .input) read_end[from.index] = @max(read_end[from.index], at + 1);
        }
    }
    for (f.outputs, f.output_storages, 0..) |*output, storage, index| {
        if (output.alias == plans.no_alias) continue;
        const writer = l.storages.items[storage].writer;
        const end = read_end[output.alias];
        if (end <= f.position[writer]) continue;
        const is_last = end == f.position[writer] + 1;
        if (is_last and takesOver(f, writer, @intCast(index), storage)) continue;
        refuse(output, .read_later);
    }
}

/// Whether draft `writer` may write output `index` over every operand that reads its alias.
fn takesOver(f: *const Finisher, writer: u32, index: u32, storage: u32) bool {
    const draft = &f.drafts()[writer];
    const output = f.outputs[index];
    for (f.operandsOf(draft), 0..) |r, k| {
        const from = &f.l.storages.items[r.storage];
        if (from.place != .input or from.index != output.alias) continue;
        const result = for (f.resultsOf(draft), 0..) |to, n| {
            if (to.storage == storage) break n;
        } else unreachable; // the draft writes it
        if (!draft.mayTake(result, k) or r.offset != 0 or from.bytes != output.bytes) return false;
    }
    return true;
}

fn findCommitPoint(f: *Finisher) void {
    f.commit_point = @intCast(f.order.len);
    if (f.role == .block) return;
    for (f.outputs, f.output_storages) |output, storage| {
        if (output.alias == plans.no_alias) continue;
        const writer = f.l.storages.items[storage].writer;
        f.commit_point = @min(f.commit_point, f.position[writer]);
    }
    for (f.order[f.commit_point..]) |draft| assert(!f.drafts()[draft].may_fail);
}

fn findLives(f: *Finisher) Error!void {
    f.lives = try f.gpa.alloc(Life, f.l.storages.items.len);
    @memset(f.lives, .{});
    for (f.order, 0..) |draft, at| {
        for (f.l.refsOf(&f.drafts()[draft])) |r| {
            const life = &f.lives[r.storage];
            if (life.first == none) life.first = @intCast(at);
            life.last = @intCast(at);
        }
    }
}

/// Places the storages of the arena: `index` becomes the byte offset.
fn placeArena(f: *Finisher) Error!u64 {
    const l = f.l;
    const block_of = try f.gpa.alloc(u32, l.storages.items.len);
    @memset(block_of, none);
    var blocks: std.ArrayList(plan_memory.Block) = .empty;
    var owners: std.ArrayList(u32) = .empty;
    for (f.order, 0..) |draft_index, at| {
        const draft = &f.drafts()[draft_index];
        for (l.refsOf(draft), 0..) |r, k| {
            const storage = &l.storages.items[r.storage];
            const life = f.lives[r.storage];
            if (storage.place != .arena or life.first != at) continue;
            if (block_of[r.storage] != none) continue;
            block_of[r.storage] = @intCast(blocks.items.len);
            const is_result = k < draft.result_count;
            try owners.append(f.gpa, r.storage);
            try blocks.append(f.gpa, .{
                .bytes = storage.bytes,
                .first = life.first,
                .last = life.last,
                .inherits = if (is_result)
                    inheritance(f, draft, k, at, block_of, storage.bytes)
                else
                    none,
            });
        }
    }
    const bytes = try plan_memory.assign(f.gpa, blocks.items, @intCast(f.order.len));
    for (owners.items, blocks.items) |storage, block| {
        l.storages.items[storage].index = block.offset;
    }
    return bytes;
}

/// The block of an operand that dies here and that a result of this size may take over.
fn inheritance(
    f: *const Finisher,
    draft: *const Draft,
    result: usize,
    at: usize,
    block_of: []const u32,
    bytes: u64,
) u32 {
    for (f.operandsOf(draft), 0..) |r, k| {
        if (!draft.mayTake(result, k)) continue;
        const storage = &f.l.storages.items[r.storage];
        if (storage.place != .arena or storage.bytes != bytes or r.offset != 0) continue;
        if (f.lives[r.storage].last == at) return block_of[r.storage];
    }
    return none;
}

fn assemble(f: *Finisher, arena_bytes: u64) Error!plans.Plan {
    const l = f.l;
    const instructions = try f.gpa.alloc(plans.Instruction, f.order.len);
    const members = try f.gpa.alloc([]const u32, f.order.len);
    const copied = try f.gpa.alloc(u64, f.order.len);
    const pointers = try f.gpa.alloc(plans.Pointer, l.refs.items.len);
    var next: u32 = 0;
    var scratch_bytes: u64 = 0;
    var pointers_max: u32 = 0;
    var cost_ns: u64 = 0;
    for (f.order, instructions, members, copied) |draft_index, *instruction, *list, *bytes| {
        const draft = &f.drafts()[draft_index];
        const refs = l.refsOf(draft);
        bytes.* = draft.copied_bytes;
        list.* = l.members.items[draft.members_start..][0..draft.members_count];
        instruction.* = .{
            .kernel = draft.kernel,
            .pointer_count = @intCast(refs.len),
            .pointer_start = next,
            .geometry = draft.geometry,
            .origin = draft.origin,
            .block = 0,
            .source = abi.none_index,
            .work = draft.work,
        };
        for (refs) |r| {
            pointers[next] = pointerOf(f, r);
            next += 1;
        }
        scratch_bytes = @max(scratch_bytes, draft.work.scratch_bytes);
        pointers_max = @max(pointers_max, instruction.pointer_count);
        cost_ns +|= draft.work.cost_ns;
    }
    const inner = innerNeeds(l);
    return .{
        .arena = undefined, // set by the owner of the allocator
        .instructions = instructions,
        .pointers = pointers[0..next],
        .geometries = l.geometries.items,
        .controls = l.controls.items,
        .constants = l.constants.items,
        .inputs = f.inputs,
        .outputs = f.outputs,
        .commit_point = f.commit_point,
        .arena_bytes = std.mem.alignForward(u64, arena_bytes, 64),
        .scratch_bytes = std.mem.alignForward(u64, scratch_bytes, 64),
        .pointer_count_max = pointers_max,
        .table_words = pointers_max + inner.words,
        .calls_host = inner.calls_host,
        // Dispatching an instruction takes about 50 ns on top of its kernel.
        .cost_ns = cost_ns +| 50 * f.order.len,
        .program_instructions = @intCast(l.program.instructionCount()),
        .compile_ns = 0,
        .storages = try describeStorages(f),
        .passes = &.{},
        .regions = &.{},
        .members = members,
        .copied_bytes = copied,
    };
}

/// What the blocks inside need: words for the tables of those that run at the same time.
fn innerNeeds(l: *const Lowering) struct { words: u64, calls_host: bool } {
    var words: u64 = 0;
    var calls_host = false;
    for (l.controls.items) |control| {
        var own: u64 = 0;
        switch (control) {
            .choose => |choose| for (choose.blocks) |k| {
                own = @max(own, tableWords(l, k));
            },
            .loop => |loop| own = tableWords(l, loop.condition) + tableWords(l, loop.body),
            .scan => |scan| own = tableWords(l, scan.body),
            .host_call => calls_host = true,
        }
        words = @max(words, own);
    }
    for (l.program.codes, 0..) |_, i| {
        var numbers = l.program.blockNumbers(.at(i));
        while (numbers.next()) |k| {
            calls_host = calls_host or l.target.blocks[@intCast(k)].calls_host;
        }
    }
    return .{ .words = words, .calls_host = calls_host };
}

fn tableWords(l: *const Lowering, block: u32) u64 {
    const plan = &l.target.blocks[block];
    return plan.baseCount() + plan.table_words;
}

fn pointerOf(f: *const Finisher, r: Ref) plans.Pointer {
    const storage = &f.l.storages.items[r.storage];
    assert(r.offset >= 0);
    const offset: u64 = @intCast(r.offset);
    return switch (storage.place) {
        .arena => .{ .base = @backingInt(plans.Base.arena), .offset = storage.index + offset },
        .constants => .{
            .base = @backingInt(plans.Base.constants),
            .offset = storage.index + offset,
        },
        .input => .{ .base = plans.Plan.inputBase(storage.index), .offset = offset },
        .output => .{
            .base = @intCast(plans.Base.first_input + f.inputs.len + storage.index),
            .offset = offset,
        },
    };
}

fn describeStorages(f: *const Finisher) Error![]plans.StorageInfo {
    const items = f.l.storages.items;
    const infos = try f.gpa.alloc(plans.StorageInfo, items.len);
    for (infos, items, f.lives) |*info, storage, life| info.* = .{
        .place = @fromBackingInt(@intCast(@backingInt(storage.place))),
        .index = storage.index,
        .bytes = storage.bytes,
        .first = life.first,
        .last = life.last,
    };
    return infos;
}
