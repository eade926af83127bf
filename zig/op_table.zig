//! The rows of the opcode table (`op.zig` says what the fields mean), in the order of `op.Code`.
const std = @import("std");
const op = @import("op.zig");
const Attribute = op.Attribute;
const Code = op.Code;
const Domain = op.Domain;
const Group = op.Group;
const Info = op.Info;
const Kind = op.Kind;
const Traits = op.Traits;
const results_declared = op.results_declared;
const results_equal_operands = op.results_equal_operands;

/// What the rows below leave at their defaults.
const Options = struct {
    operands: [2]u16 = .{ 1, 1 },
    results: u16 = 1,
    attributes: []const u8 = "",
    domain: Domain = .any,
    traits: Traits = .{},
    in_place: ?u8 = null,
};

const any_count = op.operands_unlimited;

/// One row per opcode, in the order of `Code`.
pub const table = rows: {
    @setEvalBranchQuota(200_000);
    break :rows [_]Info{
        row(.iota, .structure, .{
            .operands = .{ 0, 0 },
            .attributes = "shape:ints, dtype:dtype, axis:int",
            .domain = .numeric,
        }),
        row(.reshape, .structure, .{
            .attributes = "shape:ints",
            .traits = .{ .view = true, .structural = true },
        }),
        row(.transpose, .structure, .{
            .attributes = "axes:ints",
            .traits = .{ .view = true, .structural = true },
        }),
        row(.broadcast_to, .structure, .{
            .attributes = "shape:ints",
            .traits = .{ .view = true, .structural = true },
        }),
        row(.slice, .structure, .{
            .attributes = "starts:ints, sizes:ints, steps:ints",
            .traits = .{ .view = true, .structural = true },
        }),
        row(.concatenate, .structure, .{
            .operands = .{ 1, any_count },
            .attributes = "axis:int",
            .traits = .{ .structural = true },
        }),
        row(.pad, .structure, .{
            .operands = .{ 2, 2 },
            .attributes = "low:ints, high:ints, interior:ints",
            .traits = .{ .structural = true },
        }),
        row(.cast, .structure, .{
            .attributes = "dtype:dtype",
            .traits = .{ .elementwise = true },
            .in_place = 0,
        }),
        row(.bitcast, .structure, .{
            .attributes = "dtype:dtype",
            .traits = .{ .view = true, .structural = true },
            .in_place = 0,
        }),
        row(.barrier, .structure, .{
            .operands = .{ 1, any_count },
            .results = results_equal_operands,
            .traits = .{ .barrier = true },
        }),
        row(.window, .structure, .{
            .attributes = "axes:ints, sizes:ints, strides:ints, dilations:ints",
            .traits = .{ .view = true, .structural = true },
        }),
        row(.window_sum, .structure, .{
            .attributes = "axes:ints, sizes:ints, strides:ints, dilations:ints, extents:ints",
            .domain = .numeric,
        }),
        elementwise(.negative, .unary, .numeric, .{}),
        elementwise(.abs, .unary, .numeric, .{}),
        elementwise(.sign, .unary, .numeric, .{}),
        elementwise(.sqrt, .unary, .floating, .{}),
        elementwise(.rsqrt, .unary, .floating, .{}),
        elementwise(.cbrt, .unary, .floating, .{}),
        elementwise(.square, .unary, .numeric, .{}),
        elementwise(.reciprocal, .unary, .floating, .{}),
        elementwise(.exp, .unary, .floating, .{}),
        elementwise(.exp2, .unary, .floating, .{}),
        elementwise(.expm1, .unary, .floating, .{}),
        elementwise(.log, .unary, .floating, .{}),
        elementwise(.log1p, .unary, .floating, .{}),
        elementwise(.log2, .unary, .floating, .{}),
        elementwise(.log10, .unary, .floating, .{}),
        elementwise(.sin, .unary, .floating, .{}),
        elementwise(.cos, .unary, .floating, .{}),
        elementwise(.tan, .unary, .floating, .{}),
        elementwise(.arcsin, .unary, .floating, .{}),
        elementwise(.arccos, .unary, .floating, .{}),
        elementwise(.arctan, .unary, .floating, .{}),
        elementwise(.sinh, .unary, .floating, .{}),
        elementwise(.cosh, .unary, .floating, .{}),
        elementwise(.tanh, .unary, .floating, .{}),
        elementwise(.arcsinh, .unary, .floating, .{}),
        elementwise(.arccosh, .unary, .floating, .{}),
        elementwise(.arctanh, .unary, .floating, .{}),
        elementwise(.erf, .unary, .floating, .{}),
        elementwise(.erfc, .unary, .floating, .{}),
        elementwise(.sigmoid, .unary, .floating, .{}),
        elementwise(.floor, .unary, .floating, .{}),
        elementwise(.ceil, .unary, .floating, .{}),
        elementwise(.trunc, .unary, .floating, .{}),
        elementwise(.round, .unary, .floating, .{}),
        elementwise(.isnan, .unary, .floating, .{ .bool_result = true }),
        elementwise(.isinf, .unary, .floating, .{ .bool_result = true }),
        elementwise(.isfinite, .unary, .floating, .{ .bool_result = true }),
        elementwise(.logical_not, .unary, .boolean, .{ .bool_result = true }),
        elementwise(.bitwise_not, .unary, .bits, .{}),
        elementwise(.integer_power, .unary, .numeric, .{ .attributes = "exponent:int" }),
        elementwise(.erfinv, .unary, .floating, .{}),
        elementwise(.lgamma, .unary, .floating, .{}),
        elementwise(.polygamma, .unary, .floating, .{ .attributes = "order:int" }),
        elementwise(.bessel_i, .unary, .floating, .{ .attributes = "order:int" }),
        elementwise(.add, .binary, .numeric, .{ .commutative = true }),
        elementwise(.subtract, .binary, .numeric, .{}),
        elementwise(.multiply, .binary, .numeric, .{ .commutative = true }),
        elementwise(.divide, .binary, .floating, .{}),
        elementwise(.floor_divide, .binary, .numeric, .{}),
        elementwise(.remainder, .binary, .numeric, .{}),
        elementwise(.power, .binary, .numeric, .{}),
        elementwise(.maximum, .binary, .any, .{ .commutative = true }),
        elementwise(.minimum, .binary, .any, .{ .commutative = true }),
        elementwise(.arctan2, .binary, .floating, .{}),
        elementwise(.equal, .binary, .any, .{ .commutative = true, .bool_result = true }),
        elementwise(.not_equal, .binary, .any, .{ .commutative = true, .bool_result = true }),
        elementwise(.less, .binary, .any, .{ .bool_result = true }),
        elementwise(.less_equal, .binary, .any, .{ .bool_result = true }),
        elementwise(.greater, .binary, .any, .{ .bool_result = true }),
        elementwise(.greater_equal, .binary, .any, .{ .bool_result = true }),
        elementwise(.logical_and, .binary, .boolean, .{ .commutative = true, .bool_result = true }),
        elementwise(.logical_or, .binary, .boolean, .{ .commutative = true, .bool_result = true }),
        elementwise(.logical_xor, .binary, .boolean, .{ .commutative = true, .bool_result = true }),
        elementwise(.bitwise_and, .binary, .bits, .{ .commutative = true }),
        elementwise(.bitwise_or, .binary, .bits, .{ .commutative = true }),
        elementwise(.bitwise_xor, .binary, .bits, .{ .commutative = true }),
        elementwise(.left_shift, .binary, .integer, .{}),
        elementwise(.right_shift, .binary, .integer, .{}),
        elementwise(.gcd, .binary, .integer, .{ .commutative = true }),
        row(.where, .ternary, .{
            .operands = .{ 3, 3 },
            .traits = .{ .elementwise = true },
            .in_place = 0,
        }),
        row(.reduce_sum, .reduction, .{
            .attributes = "axes:ints",
            .domain = .numeric,
            .traits = .{ .reduction = true },
        }),
        row(.reduce_prod, .reduction, .{
            .attributes = "axes:ints",
            .domain = .numeric,
            .traits = .{ .reduction = true },
        }),
        row(.reduce_max, .reduction, .{
            .attributes = "axes:ints",
            .traits = .{ .reduction = true },
        }),
        row(.reduce_min, .reduction, .{
            .attributes = "axes:ints",
            .traits = .{ .reduction = true },
        }),
        row(.argmax, .reduction, .{ .attributes = "axis:int", .traits = .{ .reduction = true } }),
        row(.argmin, .reduction, .{ .attributes = "axis:int", .traits = .{ .reduction = true } }),
        row(.cumsum, .cumulative, .{ .attributes = "axis:int, reverse:bool", .domain = .numeric }),
        row(.cumprod, .cumulative, .{ .attributes = "axis:int, reverse:bool", .domain = .numeric }),
        row(.cummax, .cumulative, .{ .attributes = "axis:int, reverse:bool" }),
        row(.cummin, .cumulative, .{ .attributes = "axis:int, reverse:bool" }),
        row(.sort, .order, .{
            .results = 2,
            .attributes = "axis:int, descending:bool, count:int",
        }),
        row(.searchsorted, .order, .{
            .operands = .{ 2, 2 },
            .attributes = "right:bool",
        }),
        row(.dot_general, .contraction, .{
            .operands = .{ 2, 2 },
            .attributes = "lhs_contract:ints, rhs_contract:ints, lhs_batch:ints, rhs_batch:ints",
            .domain = .numeric,
            .traits = .{ .heavy = true },
        }),
        row(.take, .indexing, .{
            .operands = .{ 2, 2 },
            .attributes = "axis:int, batch_dims:int, mode:int",
            .traits = .{ .structural = true, .gather = true, .may_fail = true },
        }),
        row(.take_along_axis, .indexing, .{
            .operands = .{ 2, 2 },
            .attributes = "axis:int, mode:int",
            .traits = .{ .structural = true, .gather = true, .may_fail = true },
        }),
        row(.scatter, .indexing, .{
            .operands = .{ 3, 3 },
            .attributes = "axis:int, batch_dims:int, mode:int, kind:int",
            .traits = .{ .scatter = true, .may_fail = true },
            .in_place = 0,
        }),
        row(.scatter_along_axis, .indexing, .{
            .operands = .{ 3, 3 },
            .attributes = "axis:int, mode:int, kind:int",
            .traits = .{ .scatter = true, .may_fail = true },
            .in_place = 0,
        }),
        row(.dynamic_slice, .indexing, .{
            .operands = .{ 2, 2 },
            .attributes = "sizes:ints",
            .traits = .{ .structural = true, .gather = true, .may_fail = true },
        }),
        row(.dynamic_update_slice, .indexing, .{
            .operands = .{ 3, 3 },
            .traits = .{ .structural = true, .scatter = true, .may_fail = true },
            .in_place = 0,
        }),
        row(.check_index, .indexing, .{
            .attributes = "extent:int, axis:int, mode:int",
            .domain = .integer,
            .traits = .{ .may_fail = true },
            .in_place = 0,
        }),
        row(.check, .check, .{
            .operands = .{ 2, 2 },
            .attributes = "code:int",
            .traits = .{ .may_fail = true },
            .in_place = 0,
        }),
        row(.random_bits, .random, .{
            .attributes = "shape:ints, form:int",
            .domain = .integer,
            .traits = .{ .random = true },
        }),
        row(.random_fold_in, .random, .{
            .operands = .{ 2, 2 },
            .domain = .integer,
            .traits = .{ .random = true },
        }),
        row(.softmax, .neural, .{ .attributes = "axis:int", .domain = .floating, .in_place = 0 }),
        row(.log_softmax, .neural, .{
            .attributes = "axis:int",
            .domain = .floating,
            .in_place = 0,
        }),
        row(.layer_norm, .neural, .{
            .operands = .{ 3, 3 },
            .attributes = "eps:float",
            .domain = .floating,
            .in_place = 0,
        }),
        row(.rms_norm, .neural, .{
            .operands = .{ 2, 2 },
            .attributes = "eps:float",
            .domain = .floating,
            .in_place = 0,
        }),
        row(.cross_entropy, .neural, .{
            .operands = .{ 2, 2 },
            .attributes = "ignore_index:int",
            .domain = .floating,
            .traits = .{ .may_fail = true },
        }),
        row(.cross_entropy_grad, .neural, .{
            .operands = .{ 3, 3 },
            .attributes = "ignore_index:int",
            .domain = .floating,
            .traits = .{ .may_fail = true },
        }),
        row(.attention, .neural, .{
            .operands = .{ 3, 4 },
            .results = 2,
            .attributes = "scale:float, causal:bool, window:int",
            .domain = .floating,
            .traits = .{ .heavy = true },
        }),
        row(.attention_grad, .neural, .{
            .operands = .{ 6, 7 },
            .results = 3,
            .attributes = "scale:float, causal:bool, window:int",
            .domain = .floating,
            .traits = .{ .heavy = true },
        }),
        matrices(.lu, .{ .results = 3 }),
        matrices(.triangular_solve, .{
            .operands = .{ 2, 2 },
            .attributes = "lower:bool, transpose:bool, unit_diagonal:bool",
        }),
        matrices(.cholesky, .{}),
        matrices(.qr, .{ .results = 2, .attributes = "complete:bool" }),
        matrices(.eigh, .{ .results = 2 }),
        matrices(.svd, .{ .results = 3 }),
        row(.@"switch", .control, .{
            .operands = .{ 1, any_count },
            .results = results_declared,
            .attributes = "blocks:ints",
            .traits = .{ .may_fail = true, .region = true },
        }),
        row(.@"while", .control, .{
            .operands = .{ 0, any_count },
            .results = results_declared,
            .attributes = "condition:int, body:int, captures:int",
            .traits = .{ .may_fail = true, .region = true },
        }),
        row(.scan, .control, .{
            .operands = .{ 0, any_count },
            .results = results_declared,
            .attributes = "body:int, captures:int, carries:int, length:int, reverse:bool",
            .traits = .{ .may_fail = true, .region = true },
        }),
        row(.host_call, .control, .{
            .operands = .{ 0, any_count },
            .results = 0,
            .attributes = "id:int",
            .traits = .{ .may_fail = true, .effect = true },
        }),
    };
};

fn elementwise(comptime code: Code, group: Group, domain: Domain, comptime options: struct {
    commutative: bool = false,
    bool_result: bool = false,
    attributes: []const u8 = "",
}) Info {
    const arity: u16 = if (group == .unary) 1 else 2;
    return row(code, group, .{
        .operands = .{ arity, arity },
        .domain = domain,
        .attributes = options.attributes,
        .traits = .{
            .elementwise = true,
            .commutative = options.commutative,
            .bool_result = options.bool_result,
        },
        .in_place = 0,
    });
}

fn matrices(comptime code: Code, comptime options: Options) Info {
    var all = options;
    all.domain = .floating;
    all.traits = .{ .heavy = true };
    return row(code, .linalg, all);
}

fn row(comptime code: Code, group: Group, comptime options: Options) Info {
    @setEvalBranchQuota(10_000);
    const name = @tagName(code);
    const results = switch (options.results) {
        results_equal_operands => "n",
        results_declared => "*",
        else => |count| decimal(count),
    };
    const arity = decimal(options.operands[0]) ++ ".." ++ decimal(options.operands[1]);
    const signature = name ++ "(" ++ arity ++ " operands; " ++ results ++ "; " ++
        options.attributes ++ ")";
    return .{
        .code = code,
        .name = name,
        .group = group,
        .domain = options.domain,
        .operands_min = options.operands[0],
        .operands_max = options.operands[1],
        .results = options.results,
        .attributes = parseSchema(options.attributes),
        .traits = options.traits,
        .in_place_operand = options.in_place,
        .digest = std.hash.Fnv1a_64.hash(signature),
        .signature = signature,
    };
}

fn decimal(comptime n: u16) []const u8 {
    const digit = [_]u8{'0' + n % 10};
    return if (n < 10) &digit else decimal(n / 10) ++ digit;
}

/// `name:kind, name:kind` as attributes.
fn parseSchema(comptime text: []const u8) []const Attribute {
    comptime {
        if (text.len == 0) return &.{};
        var attributes: []const Attribute = &.{};
        var parts = std.mem.splitSequence(u8, text, ", ");
        while (parts.next()) |part| {
            const colon = std.mem.findScalar(u8, part, ':').?;
            const kind = std.meta.stringToEnum(Kind, part[colon + 1 ..]).?;
            attributes = attributes ++ [_]Attribute{.{ .name = part[0..colon], .kind = kind }};
        }
        return attributes;
    }
}
