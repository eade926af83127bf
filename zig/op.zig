//! The opcode table: every opcode of the wire format with its number, arity, attribute schema,
//! dtype domain, traits and digest. Passes, the verifier and the planner ask for traits here and
//! never compare names; the Python table (`opcodes.py`) is generated from this file by `gen.zig`.
//!
//! To add an opcode: append a number to `Code` (numbers are never reused or changed), add its row
//! to `op_table.zig` at the same position, and extend the exhaustive switches that then fail
//! to compile.
const std = @import("std");
const assert = std.debug.assert;

/// Opcode numbers as they stand in a program. Append-only.
pub const Code = enum(u16) {
    // structure
    iota = 1,
    reshape = 2,
    transpose = 3,
    broadcast_to = 4,
    slice = 5,
    concatenate = 6,
    pad = 7,
    cast = 8,
    bitcast = 9,
    barrier = 10,
    window = 11,
    window_sum = 12,
    // unary
    negative = 32,
    abs = 33,
    sign = 34,
    sqrt = 35,
    rsqrt = 36,
    cbrt = 37,
    square = 38,
    reciprocal = 39,
    exp = 40,
    exp2 = 41,
    expm1 = 42,
    log = 43,
    log1p = 44,
    log2 = 45,
    log10 = 46,
    sin = 47,
    cos = 48,
    tan = 49,
    arcsin = 50,
    arccos = 51,
    arctan = 52,
    sinh = 53,
    cosh = 54,
    tanh = 55,
    arcsinh = 56,
    arccosh = 57,
    arctanh = 58,
    erf = 59,
    erfc = 60,
    sigmoid = 61,
    floor = 62,
    ceil = 63,
    trunc = 64,
    round = 65,
    isnan = 66,
    isinf = 67,
    isfinite = 68,
    logical_not = 69,
    bitwise_not = 70,
    integer_power = 71,
    erfinv = 72,
    lgamma = 73,
    polygamma = 74,
    bessel_i = 75,
    // binary
    add = 96,
    subtract = 97,
    multiply = 98,
    divide = 99,
    floor_divide = 100,
    remainder = 101,
    power = 102,
    maximum = 103,
    minimum = 104,
    arctan2 = 105,
    equal = 106,
    not_equal = 107,
    less = 108,
    less_equal = 109,
    greater = 110,
    greater_equal = 111,
    logical_and = 112,
    logical_or = 113,
    logical_xor = 114,
    bitwise_and = 115,
    bitwise_or = 116,
    bitwise_xor = 117,
    left_shift = 118,
    right_shift = 119,
    gcd = 120,
    // ternary
    where = 144,
    // reduction
    reduce_sum = 160,
    reduce_prod = 161,
    reduce_max = 162,
    reduce_min = 163,
    argmax = 164,
    argmin = 165,
    // scan
    cumsum = 176,
    cumprod = 177,
    cummax = 178,
    cummin = 179,
    // order
    sort = 180,
    searchsorted = 181,
    // contraction
    dot_general = 192,
    // indexing
    take = 208,
    take_along_axis = 209,
    scatter = 210,
    scatter_along_axis = 211,
    dynamic_slice = 212,
    dynamic_update_slice = 213,
    check_index = 214,
    // check
    check = 224,
    // random
    random_bits = 232,
    random_fold_in = 233,
    // neural
    softmax = 240,
    log_softmax = 241,
    layer_norm = 242,
    rms_norm = 243,
    cross_entropy = 244,
    cross_entropy_grad = 245,
    attention = 246,
    attention_grad = 247,
    // linalg
    lu = 256,
    triangular_solve = 257,
    cholesky = 258,
    qr = 259,
    eigh = 260,
    svd = 261,
    // control
    @"switch" = 280,
    @"while" = 281,
    scan = 282,
    host_call = 283,

    /// The opcode with this number, or null if there is none.
    pub fn fromNumber(number: u16) ?Code {
        if (number > number_max or !defined[number]) return null;
        return @fromBackingInt(@intCast(number));
    }

    /// The row of the table.
    pub inline fn info(code: Code) *const Info {
        return &table[code.denseIndex()];
    }

    /// Position in `table`, 0 .. count - 1.
    pub inline fn denseIndex(code: Code) usize {
        return dense[@backingInt(code)];
    }

    pub inline fn traits(code: Code) Traits {
        return code.info().traits;
    }

    /// Result count of an instruction with this opcode and `operand_count` operands; null if the
    /// instruction itself says it and its blocks must agree.
    pub inline fn resultCount(code: Code, operand_count: usize) ?usize {
        const results = code.info().results;
        if (results == results_declared) return null;
        return if (results == results_equal_operands) operand_count else results;
    }
};

/// How an attribute is laid out in the attribute words.
pub const Kind = enum(u8) {
    /// One word.
    int = 0,
    /// One word, 0 or 1.
    bool = 1,
    /// One word, a dtype number.
    dtype = 2,
    /// One word, the bits of a float64.
    float = 3,
    /// A word n, then n words.
    ints = 4,
};

pub const Attribute = struct { name: []const u8, kind: Kind };

pub const Group = enum {
    structure,
    unary,
    binary,
    ternary,
    reduction,
    /// Cumulative reductions along one axis; the result has the shape of the operand.
    cumulative,
    /// Sorting, and searching in what is sorted.
    order,
    contraction,
    indexing,
    check,
    random,
    neural,
    /// Matrices in the last two axes, float32 or float64.
    linalg,
    /// Instructions that run blocks, and calls of the host.
    control,
};

/// Which dtypes the operands (for `where` and the indexing group: the data operands) may have.
pub const Domain = enum {
    any,
    /// Integers and floats, no bool.
    numeric,
    floating,
    integer,
    /// Integers and bool.
    bits,
    boolean,
};

pub const Traits = packed struct(u16) {
    /// Operands broadcast against each other; each result element depends on one element of each.
    elementwise: bool = false,
    /// Swapping the two operands changes nothing.
    commutative: bool = false,
    /// The result is bool whatever the operands are.
    bool_result: bool = false,
    /// The result can be a strided view of operand 0 (reshape: if operand 0 is dense).
    view: bool = false,
    /// Elements are moved or chosen, never computed.
    structural: bool = false,
    /// Removes axes by combining elements along them.
    reduction: bool = false,
    /// Some attribute values make this an instruction that can end a run with an error; ask
    /// `Program.mayFail` for one instruction. Never hoisted, never executed speculatively.
    may_fail: bool = false,
    /// The bits depend on a key operand.
    random: bool = false,
    /// Keeps its operands' values apart from equal ones: never merged, folded or looked through.
    barrier: bool = false,
    /// Costs more than one pass over its operands (contractions, attention).
    heavy: bool = false,
    /// Reads memory at run-time positions.
    gather: bool = false,
    /// Writes memory at run-time positions.
    scatter: bool = false,
    /// Runs blocks: nested programs, named by number in the attributes.
    region: bool = false,
    /// Does something besides giving results: never removed, merged, moved past another effect.
    effect: bool = false,
    unused: u2 = 0,
};

/// `Info.results` of an opcode that has one result for each operand.
pub const results_equal_operands = 0xffff;
/// `Info.results` of an opcode whose instructions say how many results they have.
pub const results_declared = 0xfffe;
/// `Info.operands_max` of an opcode that takes any number of operands.
pub const operands_unlimited = 0xffff;

pub const Info = struct {
    code: Code,
    name: []const u8,
    group: Group,
    domain: Domain,
    operands_min: u16,
    operands_max: u16,
    results: u16,
    attributes: []const Attribute,
    traits: Traits,
    /// The operand whose memory a result of equal type may take over, if that operand dies here.
    /// Elementwise opcodes may take over any operand and say 0.
    in_place_operand: ?u8,
    /// FNV-1a 64 of `signature`.
    digest: u64,
    /// `name(min..max operands; results; attr:kind, ...)`; results is `n` if equal to the operands,
    /// `*` if the instruction says how many.
    signature: []const u8,

    /// Number of operands if it is fixed.
    pub inline fn fixedOperands(info: *const Info) ?u16 {
        return if (info.operands_min == info.operands_max) info.operands_min else null;
    }
};

/// One row per opcode, in the order of `Code`.
pub const table = @import("op_table.zig").table;
pub const count = table.len;
pub const number_max = @backingInt(table[count - 1].code);
/// FNV-1a 64 of all signatures in order, each ended by a newline. The package and the library are
/// compared by it when the library is loaded.
pub const table_digest: u64 = digest: {
    @setEvalBranchQuota(200_000);
    var hasher: std.hash.Fnv1a_64 = .init();
    for (table) |info| {
        hasher.update(info.signature);
        hasher.update("\n");
    }
    break :digest hasher.final();
};

/// The longest attribute list of any opcode.
pub const attributes_max = max: {
    var n = 0;
    for (table) |info| n = @max(n, info.attributes.len);
    break :max n;
};

const defined: [number_max + 1]bool = flags: {
    var flags: [number_max + 1]bool = @splat(false);
    for (table) |info| flags[@backingInt(info.code)] = true;
    break :flags flags;
};

const dense: [number_max + 1]u8 = positions: {
    var positions: [number_max + 1]u8 = @splat(0xff);
    for (table, 0..) |info, i| positions[@backingInt(info.code)] = i;
    break :positions positions;
};

/// The kind of the attribute called `name`. A name has one kind in all schemas that use it.
pub fn kindOf(comptime name: []const u8) Kind {
    return comptime findKind(name);
}

fn findKind(comptime name: []const u8) Kind {
    @setEvalBranchQuota(100_000);
    for (table) |info| {
        for (info.attributes) |attribute| {
            if (std.mem.eql(u8, attribute.name, name)) return attribute.kind;
        }
    }
    @compileError("no opcode has an attribute '" ++ name ++ "'");
}

/// The Zig type that an attribute of this kind is read as.
pub fn KindType(comptime kind: Kind) type {
    return switch (kind) {
        .int => i64,
        .bool => bool,
        .dtype => @import("dtype.zig").DType,
        .float => f64,
        .ints => []const i64,
    };
}

/// For each opcode, by `denseIndex`, the position of attribute `name` in its schema; 0xff: absent.
pub fn positionsOf(comptime name: []const u8) *const [count]u8 {
    const Holder = struct {
        const positions: [count]u8 = findPositions(name);
    };
    return &Holder.positions;
}

fn findPositions(comptime name: []const u8) [count]u8 {
    @setEvalBranchQuota(100_000);
    var positions: [count]u8 = @splat(0xff);
    for (table, 0..) |info, i| {
        for (info.attributes, 0..) |attribute, k| {
            if (std.mem.eql(u8, attribute.name, name)) positions[i] = k;
        }
    }
    return positions;
}

comptime {
    @setEvalBranchQuota(400_000);
    const values = std.enums.values(Code);
    assert(values.len == count); // every opcode has a row
    assert(count < 0xff); // positions fit the tables of bytes
    for (table, values) |info, value| assert(info.code == value);
    for (table, 0..) |info, i| {
        assert(info.operands_min <= info.operands_max);
        for (table[0..i]) |other| assert(other.digest != info.digest);
        for (info.attributes) |attribute| assert(attribute.kind == kindOf(attribute.name));
    }
}

test "numbers, digests and lookups agree" {
    try std.testing.expectEqual(Code.add, Code.fromNumber(96).?);
    try std.testing.expectEqual(@as(?Code, null), Code.fromNumber(0));
    try std.testing.expectEqual(@as(?Code, null), Code.fromNumber(31));
    try std.testing.expectEqual(@as(?Code, null), Code.fromNumber(0xffff));
    try std.testing.expectEqualStrings(
        "slice(1..1 operands; 1; starts:ints, sizes:ints, steps:ints)",
        Code.slice.info().signature,
    );
    const signature = "barrier(1..65535 operands; n; )";
    try std.testing.expectEqualStrings(signature, Code.barrier.info().signature);
    try std.testing.expectEqual(7, Code.barrier.resultCount(7));
    try std.testing.expectEqual(2, Code.attention.resultCount(4));
    try std.testing.expectEqual(null, Code.scan.resultCount(4));
    try std.testing.expectEqual(std.hash.Fnv1a_64.hash(signature), Code.barrier.info().digest);
}

test "attribute names are found by opcode" {
    try std.testing.expectEqual(Kind.ints, kindOf("axes"));
    try std.testing.expectEqual(@as(u8, 2), positionsOf("axis")[Code.iota.denseIndex()]);
    try std.testing.expectEqual(@as(u8, 0xff), positionsOf("axis")[Code.add.denseIndex()]);
}
