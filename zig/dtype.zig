//! Element types: their numbers on the wire, their sizes, and the Zig type that stores each.
//! A bfloat16 has no Zig type and is kept as its 16 bits (`Bf16`).
const std = @import("std");
const assert = std.debug.assert;

/// The numbers are part of the wire format and append-only. Open: any byte from outside is legal.
pub const DType = enum(u8) {
    bool = 0,
    u8 = 1,
    i8 = 2,
    u16 = 3,
    i16 = 4,
    u32 = 5,
    i32 = 6,
    u64 = 7,
    i64 = 8,
    f16 = 9,
    bf16 = 10,
    f32 = 11,
    f64 = 12,
    _,

    pub const count = 13;

    pub fn isValid(d: DType) bool {
        return @backingInt(d) < count;
    }

    pub fn bytes(d: DType) u8 {
        return switch (d) {
            .bool, .u8, .i8 => 1,
            .u16, .i16, .f16, .bf16 => 2,
            .u32, .i32, .f32 => 4,
            .u64, .i64, .f64 => 8,
            _ => unreachable,
        };
    }

    pub fn isFloat(d: DType) bool {
        return @backingInt(d) >= @backingInt(DType.f16);
    }

    /// Integers of either sign; bool is not one.
    pub fn isInteger(d: DType) bool {
        return d != .bool and @backingInt(d) <= @backingInt(DType.i64);
    }

    pub fn isSigned(d: DType) bool {
        return switch (d) {
            .i8, .i16, .i32, .i64 => true,
            else => d.isFloat(),
        };
    }

    /// The numpy name, as messages print it.
    pub fn name(d: DType) []const u8 {
        return switch (d) {
            .bool => "bool",
            .u8 => "uint8",
            .i8 => "int8",
            .u16 => "uint16",
            .i16 => "int16",
            .u32 => "uint32",
            .i32 => "int32",
            .u64 => "uint64",
            .i64 => "int64",
            .f16 => "float16",
            .bf16 => "bfloat16",
            .f32 => "float32",
            .f64 => "float64",
            _ => "invalid",
        };
    }
};

/// The bits of a bfloat16, a type of its own so that kernels can tell it from uint16.
pub const Bf16 = packed struct(u16) {
    bits: u16,

    pub inline fn toF32(h: Bf16) f32 {
        return @bitCast(@as(u32, h.bits) << 16);
    }

    /// Rounds to nearest even; a NaN stays a (quiet) NaN.
    pub inline fn fromF32(x: f32) Bf16 {
        const u: u32 = @bitCast(x);
        if (u & 0x7fffffff > 0x7f800000) return .{ .bits = @intCast((u >> 16) | 0x40) };
        return .{ .bits = @intCast((u + 0x7fff + ((u >> 16) & 1)) >> 16) };
    }
};

/// What one element is in memory. A bool is a byte, 0 or 1.
pub fn Storage(comptime d: DType) type {
    return switch (d) {
        .bool, .u8 => u8,
        .i8 => i8,
        .u16 => u16,
        .i16 => i16,
        .u32 => u32,
        .i32 => i32,
        .u64 => u64,
        .i64 => i64,
        .f16 => f16,
        .bf16 => Bf16,
        .f32 => f32,
        .f64 => f64,
        _ => unreachable,
    };
}

/// The type that arithmetic on `d` is done in: half types widen to float32 and round once, at the
/// store.
pub fn Compute(comptime d: DType) type {
    return switch (d) {
        .f16, .bf16 => f32,
        else => Storage(d),
    };
}

comptime {
    assert(@sizeOf(Bf16) == 2);
    for (0..DType.count) |i| {
        const d: DType = @fromBackingInt(@intCast(i));
        assert(@sizeOf(Storage(d)) == d.bytes());
    }
}

test "bfloat16 rounds to nearest even and keeps NaN" {
    try std.testing.expectEqual(@as(u16, 0x3f80), Bf16.fromF32(1.0).bits);
    try std.testing.expectEqual(@as(u16, 0x3f80), Bf16.fromF32(1.00390625).bits); // tie, even below
    try std.testing.expectEqual(@as(u16, 0x3f82), Bf16.fromF32(1.01171875).bits); // tie, even above
    try std.testing.expect(std.math.isNan(Bf16.fromF32(std.math.nan(f32)).toF32()));
}
