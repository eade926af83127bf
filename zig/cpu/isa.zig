//! Which compiled variant of the kernels this machine can run. Asked once, at the first runtime.
//! `PYEFFECT_ISA` may name a lower variant, so that each can be tested on one machine; a variant
//! the machine lacks is never chosen.
const std = @import("std");
const builtin = @import("builtin");

pub const Isa = switch (builtin.cpu.arch) {
    .x86_64 => enum { v2, v3, v4, v4b },
    .aarch64 => enum { base, bf16 },
    else => @compileError("no kernels for this architecture"),
};

extern "c" fn getenv(name: [*:0]const u8) ?[*:0]const u8;

/// The best variant, or the one the environment asks for if that is not better than the machine.
pub fn detect() Isa {
    const best = hardware();
    const wish = getenv("PYEFFECT_ISA") orelse return best;
    const wanted = std.meta.stringToEnum(Isa, std.mem.span(wish)) orelse return best;
    return if (@backingInt(wanted) <= @backingInt(best)) wanted else best;
}

const hardware = switch (builtin.cpu.arch) {
    .x86_64 => hardwareX86,
    .aarch64 => hardwareAarch64,
    else => unreachable,
};

const Registers = struct { eax: u32, ebx: u32, ecx: u32, edx: u32 };

fn cpuid(leaf: u32, sub: u32) Registers {
    var a: u32 = undefined;
    var b: u32 = undefined;
    var c: u32 = undefined;
    var d: u32 = undefined;
    asm volatile ("cpuid"
        : [a] "={eax}" (a),
          [b] "={ebx}" (b),
          [c] "={ecx}" (c),
          [d] "={edx}" (d),
        : [l] "{eax}" (leaf),
          [s] "{ecx}" (sub),
    );
    return .{ .eax = a, .ebx = b, .ecx = c, .edx = d };
}

/// Which register files the operating system saves (XCR0).
fn savedState() u32 {
    var lo: u32 = undefined;
    var hi: u32 = undefined;
    asm volatile ("xgetbv"
        : [lo] "={eax}" (lo),
          [hi] "={edx}" (hi),
        : [c] "{ecx}" (@as(u32, 0)),
    );
    return lo;
}

fn all(word: u32, comptime bits: []const u5) bool {
    inline for (bits) |bit| if (word & (@as(u32, 1) << bit) == 0) return false;
    return true;
}

fn hardwareX86() Isa {
    if (cpuid(0, 0).eax < 7) return .v2;
    const one = cpuid(1, 0);
    // fma, movbe, osxsave, avx, f16c: the parts of x86-64-v3 in leaf 1.
    if (!all(one.ecx, &.{ 12, 22, 27, 28, 29 })) return .v2;
    const state = savedState();
    if (state & 0x6 != 0x6) return .v2;
    const seven = cpuid(7, 0);
    // bmi1, avx2, bmi2.
    if (!all(seven.ebx, &.{ 3, 5, 8 })) return .v2;
    if (cpuid(0x8000_0000, 0).eax < 0x8000_0001) return .v2;
    if (!all(cpuid(0x8000_0001, 0).ecx, &.{5})) return .v2; // lzcnt
    // avx512 f, dq, cd, bw, vl, and the operating system saves the wide registers.
    if (state & 0xe6 != 0xe6 or !all(seven.ebx, &.{ 16, 17, 28, 30, 31 })) return .v3;
    const vnni = all(seven.ecx, &.{11});
    const bf16 = seven.eax >= 1 and all(cpuid(7, 1).eax, &.{5});
    return if (vnni and bf16) .v4b else .v4;
}

extern "c" fn getauxval(kind: c_ulong) c_ulong;
extern "c" fn sysctlbyname(
    name: [*:0]const u8,
    old: *u32,
    size: *usize,
    new: ?*const anyopaque,
    new_size: usize,
) c_int;

fn hardwareAarch64() Isa {
    switch (builtin.os.tag) {
        .linux => {
            const hwcap = getauxval(16);
            const hwcap2 = getauxval(26);
            const dot_product = hwcap & (1 << 20) != 0;
            const i8mm = hwcap2 & (1 << 13) != 0;
            const bf16 = hwcap2 & (1 << 14) != 0;
            return if (dot_product and i8mm and bf16) .bf16 else .base;
        },
        .macos => {
            const names = [_][*:0]const u8{
                "hw.optional.arm.FEAT_BF16",
                "hw.optional.arm.FEAT_I8MM",
            };
            for (names) |name| {
                var value: u32 = 0;
                var size: usize = @sizeOf(u32);
                if (sysctlbyname(name, &value, &size, null, 0) != 0 or value == 0) return .base;
            }
            return .bf16;
        },
        else => return .base,
    }
}

test "a variant is found, and it is at least the baseline" {
    const found = detect();
    try std.testing.expect(@backingInt(found) <= @backingInt(hardware()));
}
