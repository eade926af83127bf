//! The shapes of the matrix-multiply register tiles, one row per instruction set, and what follows
//! from them. The planner reads the row of the variant it plans for; a kernel object reads its own.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const DType = dtype.DType;
const Isa = @import("isa.zig").Isa;

/// What a multiply is done in. Integers wrap, so their sign does not matter and narrow ones may be
/// widened: the low bits come out the same.
pub const Kind = enum(u32) {
    f32,
    f64,
    u32,
    u64,

    pub fn of(d: DType) Kind {
        return switch (d) {
            .f16, .bf16, .f32 => .f32,
            .f64 => .f64,
            .bool, .u8, .i8, .u16, .i16, .u32, .i32 => .u32,
            .u64, .i64 => .u64,
            _ => unreachable,
        };
    }

    pub fn Type(comptime kind: Kind) type {
        return switch (kind) {
            .f32 => f32,
            .f64 => f64,
            .u32 => u32,
            .u64 => u64,
        };
    }

    pub fn bytes(kind: Kind) u64 {
        return switch (kind) {
            .f32, .u32 => 4,
            .f64, .u64 => 8,
        };
    }

    fn isFloat(kind: Kind) bool {
        return kind == .f32 or kind == .f64;
    }
};

pub const Shape = struct {
    /// Elements of a vector register.
    lanes: u32,
    /// Rows of a register tile; each row is one broadcast of an element of A.
    rows: u32,
    /// Vectors in a row of a register tile.
    vectors: u32,
    /// Multiply-adds of one core in a nanosecond, roughly, for cost estimates.
    rate: u32,

    /// Columns of a register tile.
    pub fn cols(shape: Shape) u32 {
        return shape.lanes * shape.vectors;
    }

    /// Elements from one k to the next in a packed panel of A: `rows` rounded up to whole vectors.
    pub fn panelStride(shape: Shape) u32 {
        return (shape.rows + shape.lanes - 1) / shape.lanes * shape.lanes;
    }
};

/// Terms of a dot product between two visits of C. A panel of B this deep just fills a 48 KiB
/// first-level cache at the widest tile, and a block of A stays in the second level; 128 to 384
/// were tried and differ by less than 5 %, the deepest ahead.
pub const depth_max = 384;

/// Upper bounds over all rows of the table.
pub const rows_max = 14;
pub const cols_max = 32;

fn tile(kind: Kind, vector_bytes: u32, rows: u32, vectors: u32, rate_f32: u32) Shape {
    const lanes = vector_bytes / @as(u32, @intCast(kind.bytes()));
    const rate = if (kind.bytes() == 8) @max(1, rate_f32 / 2) else rate_f32;
    if (kind.isFloat()) return .{ .lanes = lanes, .rows = rows, .vectors = vectors, .rate = rate };
    // Integer products are rarer: fewer row variants keep the code small.
    const integer_rows = @min(rows, 4);
    return .{ .lanes = lanes, .rows = integer_rows, .vectors = vectors, .rate = @max(1, rate / 4) };
}

/// 14 x 2 of 32 registers, 6 x 2 or 4 x 2 of 16, 8 x 3 of 32: what is left holds a row of B and
/// a broadcast element of A.
pub fn shapeOf(isa: Isa, kind: Kind) Shape {
    return switch (builtin.cpu.arch) {
        .x86_64 => switch (isa) {
            .v2 => tile(kind, 16, 4, 2, 10),
            .v3 => tile(kind, 32, 6, 2, 40),
            .v4, .v4b => tile(kind, 64, 14, 2, 80),
        },
        .aarch64 => tile(kind, 16, 8, 3, 25),
        else => @compileError("no shapes for this architecture"),
    };
}

/// The variant this object is compiled for.
pub const here: Isa = switch (builtin.cpu.arch) {
    .x86_64 => if (builtin.cpu.has(.x86, .avx512f) and builtin.cpu.has(.x86, .avx512bf16))
        .v4b
    else if (builtin.cpu.has(.x86, .avx512f))
        .v4
    else if (builtin.cpu.has(.x86, .avx2) and builtin.cpu.has(.x86, .fma))
        .v3
    else
        .v2,
    .aarch64 => .base,
    else => @compileError("no shapes for this architecture"),
};

/// Vector registers of that variant.
pub const register_count: u32 = switch (builtin.cpu.arch) {
    .x86_64 => if (builtin.cpu.has(.x86, .avx512f)) 32 else 16,
    else => 32,
};

/// Whether this object has the kernels that multiply bfloat16 in pairs along k.
pub const has_pairs = builtin.cpu.arch == .x86_64 and here == .v4b;

/// Whether such pairs are faster than widening: on AMD they are twice as fast, on Intel (Sapphire
/// Rapids, measured) half as fast, as that maker's unit for bfloat16 is another one.
pub fn pairsPay(isa: Isa) bool {
    if (builtin.cpu.arch != .x86_64) return false;
    return isa == .v4b and vendorWord() == 0x68747541; // "Auth" of AuthenticAMD
}

fn vendorWord() u32 {
    var eax: u32 = undefined;
    var ebx: u32 = undefined;
    var ecx: u32 = undefined;
    var edx: u32 = undefined;
    asm volatile ("cpuid"
        : [a] "={eax}" (eax),
          [b] "={ebx}" (ebx),
          [c] "={ecx}" (ecx),
          [d] "={edx}" (edx),
        : [leaf] "{eax}" (@as(u32, 0)),
          [sub] "{ecx}" (@as(u32, 0)),
    );
    return ebx;
}

comptime {
    for (@typeInfo(Isa).@"enum".field_names) |name| {
        for (@typeInfo(Kind).@"enum".field_names) |kind| {
            const shape = shapeOf(@field(Isa, name), @field(Kind, kind));
            assert(shape.rows <= rows_max);
            assert(shape.cols() <= cols_max);
            assert(shape.panelStride() <= cols_max);
        }
    }
}
