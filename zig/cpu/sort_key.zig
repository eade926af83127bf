//! Elements as unsigned integers of their size that compare as sorts want them: ascending or
//! descending, -0.0 equal to 0.0, every NaN equal to every other and after everything else. What
//! sorts and searches needs no other knowledge of the dtype.
const std = @import("std");
const dtype = @import("../dtype.zig");
const DType = dtype.DType;

const Form = enum(u8) { unsigned, signed, floating };

/// How the bits of a dtype become keys; part of a geometry.
pub const Order = extern struct {
    form: Form,
    size: u8,
    descending: bool,
    /// The bits of positive infinity; a larger magnitude is NaN.
    infinity: u64,

    pub fn of(d: DType, descending: bool) Order {
        return .{
            .form = if (d.isFloat()) .floating else if (d.isSigned()) .signed else .unsigned,
            .size = d.bytes(),
            .descending = descending,
            .infinity = switch (d) {
                .f16 => 0x7c00,
                .bf16 => 0x7f80,
                .f32 => 0x7f80_0000,
                .f64 => 0x7ff0_0000_0000_0000,
                else => 0,
            },
        };
    }

    /// The key of an element's bits.
    pub inline fn key(o: Order, comptime K: type, bits: K) K {
        const top: K = 1 << (@bitSizeOf(K) - 1);
        const ascending = switch (o.form) {
            .unsigned => bits,
            .signed => bits ^ top,
            .floating => float: {
                const magnitude = bits & ~top;
                if (magnitude > @as(K, @truncate(o.infinity))) return std.math.maxInt(K);
                if (magnitude == 0) break :float top;
                break :float if (bits & top != 0) ~bits else bits | top;
            },
        };
        return if (o.descending) ~ascending else ascending;
    }
};

test "keys compare as their numbers, NaN last both ways" {
    const nan = std.math.nan(f32);
    const inf = std.math.inf(f32);
    const ascending = [_]f32{ -inf, -2.5, -1e-44, 0, 1e-44, 3, inf, nan };
    for ([_]bool{ false, true }) |descending| {
        const o: Order = .of(.f32, descending);
        for (ascending[0..7], ascending[1..8], 0..) |a, b, i| {
            const before = o.key(u32, @bitCast(a)) < o.key(u32, @bitCast(b));
            try std.testing.expectEqual(!descending or i == 6, before);
        }
        try std.testing.expectEqual(o.key(u32, @bitCast(@as(f32, -0.0))), o.key(u32, 0));
        try std.testing.expectEqual(o.key(u32, @bitCast(-nan)), o.key(u32, @bitCast(nan)));
    }
    const half: Order = .of(.bf16, false);
    try std.testing.expectEqual(@as(u16, 0xffff), half.key(u16, 0x7f81));
    try std.testing.expect(half.key(u16, 0x7f80) < 0xffff);
    const signed: Order = .of(.i8, false);
    try std.testing.expect(signed.key(u8, 0x80) < signed.key(u8, 0xff));
    try std.testing.expect(signed.key(u8, 0xff) < signed.key(u8, 0));
    const turned: Order = .of(.bool, true);
    try std.testing.expect(turned.key(u8, 1) < turned.key(u8, 0));
}
