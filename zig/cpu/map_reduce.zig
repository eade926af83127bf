//! Elementwise regions that end in reductions: each task runs the region on a piece that fits the
//! cache, and reduces the piece before the next one comes, so the reduced values never reach
//! memory. Either everything is reduced (tasks leave partial results, which one more task
//! combines), or the innermost axes are (a task takes whole rows and has their results).
//!
//! Numerics: as `reduce.zig` within a piece and over the partial results; pieces are fixed when the
//! program is planned.
const std = @import("std");
const assert = std.debug.assert;
const elementwise = @import("elementwise.zig");
const kernel_abi = @import("kernel_abi.zig");
const reduce = @import("reduce.zig");
const view = @import("view.zig");
const DType = @import("../dtype.zig").DType;

/// Reductions of one region.
pub const reduction_max = 4;
/// Elements of a piece: what a task has to itself in the second level cache.
const piece_elements = 1 << 14;
const piece_elements_max = 1 << 16;
/// More partial results than this are not combined by one task.
const partial_count_max = 1 << 17;
const pointer_max = elementwise.load_max + elementwise.store_max + 1;

pub const Reduction = extern struct {
    /// Index of the result among `ptrs`, which the region's store has as well.
    pointer: u64,
    bytes: u64,
    /// Of a whole piece, of the last one, and of the partial results.
    piece: reduce.Geometry,
    last: reduce.Geometry,
    final: reduce.Geometry,
    /// Where the partial results lie in the shared memory.
    partials: u64,
};

pub const Geometry = extern struct {
    work: kernel_abi.Work,
    reduction_count: u64,
    pointer_count: u64,
    /// Elements of a piece, and of everything.
    piece: u64,
    count: u64,
    /// Elements reduced to one; 0: all.
    row: u64,
    reductions: [reduction_max]Reduction,
    /// Last, because its end may be left out.
    map: elementwise.Geometry,
};

/// What is reduced: the store with index `pointer`, of that dtype.
pub const Request = struct { op: reduce.Op, pointer: u16, dtype: DType };

/// `map` is the region with a store for each request; `row` as in the geometry, `pointer_count` the
/// number of `ptrs` without shared memory. Null if the tiles do not fit the rows.
/// ptrs: as the region's, results of reductions in place of the stores that they reduce.
pub fn plan(
    map: *const elementwise.Geometry,
    requests: []const Request,
    row: u64,
    pointer_count: u64,
) ?Geometry {
    assert(requests.len > 0 and requests.len <= reduction_max);
    assert(row == 0 or map.count % row == 0);
    if (map.mode != .interpret or map.count == 0 or row == 1) return null;
    var g = std.mem.zeroes(Geometry);
    g.map = map.*;
    const piece = cutPieces(&g.map, row) orelse return null;
    const task_count = (map.count + piece - 1) / piece;
    if (task_count > partial_count_max) return null;
    g.map.work.task_count = task_count;
    g.reduction_count = requests.len;
    g.pointer_count = pointer_count;
    g.piece = piece;
    g.count = map.count;
    g.row = row;
    g.work.task_count = task_count;
    if (row == 0) {
        g.work.phase_task_count = task_count;
        g.work.task_count += 1;
    }
    for (requests, g.reductions[0..requests.len]) |request, *r| planReduction(&g, request, r);
    planScratch(&g);
    return g;
}

/// Makes the tasks of the region whole rows and whole tiles; returns the elements of one.
fn cutPieces(map: *elementwise.Geometry, row: u64) ?u64 {
    const whole = map.row >= map.count;
    const step = if (whole) map.chunk else map.row;
    const base = if (row == 0) step else step / std.math.gcd(step, row) * row;
    if (base <= piece_elements_max) {
        const piece = base * @max(1, piece_elements / base);
        map.tiles_per_task = piece / step * (divideUp(step, map.chunk));
        return piece;
    }
    // Tiles that are the same everywhere may begin at any element: then they follow the rows.
    if (!whole or row > piece_elements_max) return null;
    for (map.loads[0..map.load_count]) |load| switch (load.class) {
        .periodic, .periodic_counter => return null,
        .dense, .strided, .counter => {},
    };
    const piece = row * @max(1, piece_elements / row);
    map.row = piece;
    map.tiles_per_task = divideUp(piece, map.chunk);
    const rest = map.count % piece;
    map.tile_count = map.count / piece * map.tiles_per_task + divideUp(rest, map.chunk);
    return piece;
}

fn divideUp(a: u64, b: u64) u64 {
    return (a + b - 1) / b;
}

fn planReduction(g: *Geometry, request: Request, r: *Reduction) void {
    const d = request.dtype;
    const last = g.count - (g.map.work.task_count - 1) * g.piece;
    r.pointer = request.pointer;
    r.bytes = d.bytes();
    r.piece = planPiece(request.op, d, g.piece, g.row);
    r.last = planPiece(request.op, d, last, g.row);
    if (g.row > 0) return;
    r.final = planPiece(request.op, d, g.map.work.task_count, 0);
    r.partials = g.work.shared_bytes;
    g.work.shared_bytes += std.mem.alignForward(u64, g.map.work.task_count * r.bytes, 64);
}

fn planPiece(op: reduce.Op, d: DType, count: u64, row: u64) reduce.Geometry {
    const length = if (row == 0) count else row;
    const dims = [2]u64{ count / length, length };
    const operand: kernel_abi.Operand = .contiguous(d, &dims);
    const geometry = reduce.plan(op, &operand, 0b10);
    assert(geometry.work.phase_task_count == 0); // short enough for one phase
    return geometry;
}

fn planScratch(g: *Geometry) void {
    var reduce_bytes: u64 = 0;
    var pieces: u64 = 0;
    g.work.cost_ns = g.map.work.cost_ns;
    for (g.reductions[0..g.reduction_count]) |*r| {
        reduce_bytes = @max(reduce_bytes, r.piece.work.scratch_bytes, r.last.work.scratch_bytes);
        reduce_bytes = @max(reduce_bytes, r.final.work.scratch_bytes);
        pieces += pieceBytes(g, r);
        g.work.cost_ns += g.count * r.bytes / 16;
    }
    g.work.scratch_bytes = pieces + @max(reduce_bytes, g.map.work.scratch_bytes);
}

fn pieceBytes(g: *const Geometry, r: *const Reduction) u64 {
    return std.mem.alignForward(u64, g.piece * r.bytes, 64);
}

pub fn run(
    geometry: *const anyopaque,
    ptrs: [*]const [*]u8,
    task: u64,
    ctx: *kernel_abi.TaskContext,
) callconv(.c) void {
    const g: *const Geometry = @ptrCast(@alignCast(geometry));
    const reductions = g.reductions[0..g.reduction_count];
    if (task == g.map.work.task_count) {
        for (reductions) |*r| {
            const partials = ptrs[g.pointer_count] + r.partials;
            runReduce(&r.final, ptrs[r.pointer], partials, ctx);
        }
        return;
    }
    const start = task * g.piece;
    var local: [pointer_max][*]u8 = undefined;
    assert(g.pointer_count <= pointer_max);
    @memcpy(local[0..g.pointer_count], ptrs[0..g.pointer_count]);
    var inner = ctx.*;
    for (reductions) |*r| {
        // The region stores element `start` at the start of the piece.
        local[r.pointer] = view.atMutable(u8, inner.scratch, -@as(i64, @intCast(start * r.bytes)));
        inner.scratch = @alignCast(inner.scratch + pieceBytes(g, r));
    }
    elementwise.run(&g.map, &local, task, &inner);
    if (ctx.isCancelled()) return;
    const is_last = task + 1 == g.map.work.task_count;
    for (reductions) |*r| {
        const from = view.atMutable(u8, local[r.pointer], @intCast(start * r.bytes));
        const to = if (g.row == 0)
            ptrs[g.pointer_count] + r.partials + task * r.bytes
        else
            ptrs[r.pointer] + start / g.row * r.bytes;
        runReduce(if (is_last) &r.last else &r.piece, to, from, &inner);
    }
}

fn runReduce(
    geometry: *const reduce.Geometry,
    to: [*]u8,
    from: [*]u8,
    ctx: *kernel_abi.TaskContext,
) void {
    const ptrs = [2][*]u8{ to, from };
    for (0..geometry.work.task_count) |task| reduce.run(geometry, &ptrs, task, ctx);
}
