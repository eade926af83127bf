//! The inner loops of reductions, one set for each operation and dtype, behind plain pointers: the
//! walk over axes above them (`reduce.zig`) is then compiled once, not once per dtype.
const std = @import("std");
const dtype = @import("../dtype.zig");
const lanes = @import("lanes.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;
const Compute = dtype.Compute;
const Op = lanes.Op;

/// `count` short lists, `step` elements apart, of `length` (at least 1) elements `stride` apart.
pub const Lists = struct { count: u64, step: i64, length: u64, stride: i64 };

/// Elements that go to places of their own: number i to `positions[i] * row_step + i * lane_step`,
/// nowhere if its position is negative.
pub const Scattered = struct {
    positions: [*]const i64,
    updates: [*]const u8,
    n: u64,
    update_step: i64,
    row_step: u64,
    lane_step: u64,
};

/// `to[i] = a[i] op b[i]` for `n` values as computed with; `to` may be either.
pub const Combine = fn (to: [*]u8, a: [*]const u8, b: [*]const u8, n: u64) void;

pub const Functions = struct {
    combine: *const Combine,
    /// Folds `n` dense elements, at most a block, into one value at `to`.
    foldBlock: *const fn (to: [*]u8, from: [*]const u8, n: u64) void,
    /// Folds short lists one element after the other and stores the results.
    foldShort: *const fn (result: [*]u8, from: [*]const u8, lists: *const Lists) void,
    /// Combines eight rows of `n` elements as a tree into `to`, which they replace when `fresh`.
    addRows: *const fn (to: [*]u8, rows: *const [8][*]const u8, n: u64, fresh: bool) void,
    addRow: *const fn (to: [*]u8, row: [*]const u8, n: u64, fresh: bool) void,
    /// Combines elements with values at `to`, in order.
    scatter: *const fn (to: [*]u8, s: *const Scattered) void,
};

/// The functions for an operation on a `lanes.canonical` dtype.
pub fn functions(op: Op, d: DType) *const Functions {
    @setEvalBranchQuota(100_000);
    switch (op) {
        inline else => |o| switch (d) {
            inline .u8, .u16, .u32, .u64, .f16, .bf16, .f32, .f64 => |e| return &Typed(o, e).table,
            inline .i8, .i16, .i32, .i64 => |e| {
                return if (comptime lanes.isOrder(o)) &Typed(o, e).table else unreachable;
            },
            else => unreachable,
        },
    }
}

fn Typed(comptime op: Op, comptime d: DType) type {
    return struct {
        const S = Storage(d);
        const C = Compute(d);
        const W = lanes.lanes(d);
        const table: Functions = .{
            .combine = &combine,
            .foldBlock = &foldBlock,
            .foldShort = &foldShort,
            .addRows = &addRows,
            .addRow = &addRow,
            .scatter = &scatter,
        };

        fn combine(to_bytes: [*]u8, a_bytes: [*]const u8, b_bytes: [*]const u8, n: u64) void {
            const to: [*]C = @ptrCast(@alignCast(to_bytes));
            const a: [*]const C = @ptrCast(@alignCast(a_bytes));
            const b: [*]const C = @ptrCast(@alignCast(b_bytes));
            var j: u64 = 0;
            while (j + W <= n) : (j += W) {
                const va: lanes.Vector(d) = a[j..][0..W].*;
                const vb: lanes.Vector(d) = b[j..][0..W].*;
                to[j..][0..W].* = lanes.combine(op, va, vb);
            }
            while (j < n) : (j += 1) {
                lanes.keepScalar();
                to[j] = lanes.combine(op, a[j], b[j]);
            }
        }

        fn foldBlock(to: [*]u8, from: [*]const u8, n: u64) void {
            const value: *C = @ptrCast(@alignCast(to));
            value.* = lanes.foldBlock(op, d, @ptrCast(@alignCast(from)), n);
        }

        fn foldShort(result_bytes: [*]u8, from: [*]const u8, lists: *const Lists) void {
            const result: [*]S = @ptrCast(@alignCast(result_bytes));
            var base: [*]const S = @ptrCast(@alignCast(from));
            const l = lists.*;
            for (0..l.count) |i| {
                var total = lanes.widen(d, base[0]);
                var p = base;
                for (1..l.length) |_| {
                    lanes.keepScalar();
                    p = view.at(S, p, l.stride);
                    total = lanes.combine(op, total, lanes.widen(d, p[0]));
                }
                result[i] = lanes.narrow(d, total);
                base = view.at(S, base, l.step);
            }
        }

        fn addRows(to: [*]u8, rows: *const [8][*]const u8, n: u64, fresh: bool) void {
            add(8, to, rows, n, fresh);
        }

        fn addRow(to: [*]u8, row: [*]const u8, n: u64, fresh: bool) void {
            add(1, to, &.{row}, n, fresh);
        }

        fn scatter(to_bytes: [*]u8, scattered: *const Scattered) void {
            const to: [*]C = @ptrCast(@alignCast(to_bytes));
            const s = scattered.*;
            var update: [*]const S = @ptrCast(@alignCast(s.updates));
            for (0..s.n) |i| {
                const position = s.positions[i];
                if (position >= 0) {
                    const at = @as(u64, @intCast(position)) * s.row_step + i * s.lane_step;
                    to[at] = lanes.combine(op, to[at], lanes.widen(d, update[0]));
                }
                update = view.at(S, update, s.update_step);
            }
        }

        inline fn add(
            comptime count: u32,
            to_bytes: [*]u8,
            row_bytes: *const [count][*]const u8,
            n: u64,
            fresh: bool,
        ) void {
            const to: [*]C = @ptrCast(@alignCast(to_bytes));
            var rows: [count][*]const S = undefined;
            inline for (0..count) |k| rows[k] = @ptrCast(@alignCast(row_bytes[k]));
            var j: u64 = 0;
            while (j + W <= n) : (j += W) {
                var v: [count]lanes.Vector(d) = undefined;
                inline for (0..count) |k| v[k] = lanes.load(d, rows[k] + j);
                const total = tree(count, v);
                const old: lanes.Vector(d) = to[j..][0..W].*;
                to[j..][0..W].* = if (fresh) total else lanes.combine(op, old, total);
            }
            while (j < n) : (j += 1) {
                lanes.keepScalar();
                var v: [count]C = undefined;
                inline for (0..count) |k| v[k] = lanes.widen(d, rows[k][j]);
                const total = tree(count, v);
                to[j] = if (fresh) total else lanes.combine(op, to[j], total);
            }
        }

        inline fn tree(comptime count: u32, v: anytype) @TypeOf(v[0]) {
            if (count == 1) return v[0];
            var half: [count / 2]@TypeOf(v[0]) = undefined;
            inline for (0..count / 2) |k| half[k] = lanes.combine(op, v[2 * k], v[2 * k + 1]);
            return tree(count / 2, half);
        }
    };
}

/// Elements of a block, 4 KiB of what the dtype computes in.
pub fn blockLength(d: DType) u64 {
    return switch (d) {
        inline else => |e| if (comptime e.isValid()) lanes.blockLength(e) else unreachable,
        _ => unreachable,
    };
}

/// Stores `n` values as computed with, rounding half types once.
pub fn narrow(d: DType, to: [*]u8, from: [*]const u8, n: u64) void {
    switch (d) {
        inline .f16, .bf16 => |e| {
            const wide: [*]const f32 = @ptrCast(@alignCast(from));
            const result: [*]Storage(e) = @ptrCast(@alignCast(to));
            const W = lanes.lanes(e);
            var j: u64 = 0;
            while (j + W <= n) : (j += W) lanes.store(e, result + j, wide[j..][0..W].*);
            while (j < n) : (j += 1) {
                lanes.keepScalar();
                result[j] = lanes.narrow(e, wide[j]);
            }
        },
        else => @memcpy(to, from[0 .. n * d.bytes()]),
    }
}

/// The stored bits of `op` over nothing. `is_bool` says that `d` stands for bool.
pub fn identityBits(op: Op, d: DType, is_bool: bool) u64 {
    if (is_bool) return @intFromBool(op == .min);
    switch (op) {
        inline else => |o| switch (d) {
            inline .u8, .i8, .u16, .i16, .u32, .i32, .u64, .i64, .f16, .bf16, .f32, .f64 => |e| {
                const value = lanes.narrow(e, lanes.identity(o, Compute(e)));
                const bits: @Int(.unsigned, @bitSizeOf(Storage(e))) = @bitCast(value);
                return bits;
            },
            else => unreachable,
        },
    }
}

test "an identity changes nothing" {
    inline for (.{ Op.sum, Op.prod, Op.max, Op.min }) |op| {
        const bits: u16 = @intCast(identityBits(op, .bf16, false));
        const none = (dtype.Bf16{ .bits = bits }).toF32();
        try std.testing.expectEqual(@as(f32, -3), lanes.combine(op, @as(f32, -3), none));
    }
    try std.testing.expectEqual(@as(u64, 0), identityBits(.max, .u8, true));
    try std.testing.expectEqual(@as(u64, 1), identityBits(.min, .u8, true));
}
