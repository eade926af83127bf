//! Tests of the type rules: for each opcode what it accepts, with the result it must infer, and one
//! refusal for each way to be wrong.
const std = @import("std");
const testing = std.testing;
const Allocator = std.mem.Allocator;
const dtype = @import("dtype.zig");
const ir = @import("ir.zig");
const ir_builder = @import("ir_builder.zig");
const op = @import("op.zig");
const verify = @import("verify.zig");
const wire_body = @import("wire_body.zig");
const wire_test = @import("wire_test.zig");
const DType = dtype.DType;
const Message = verify.Message;
const Type = ir.Type;

fn t(element: DType, dims: []const i64) Type {
    return .{ .dtype = element, .dims = dims };
}

fn run(code: op.Code, operands: []const Type, attrs: []const i64) !verify.Check {
    // What the decoder guarantees before the verifier sees an instruction.
    try testing.expectEqual(@as(?Message, null), wire_body.checkAttributes(code, attrs));
    try testing.expect(operands.len >= code.info().operands_min);
    try testing.expect(operands.len <= code.info().operands_max);
    for (operands) |operand| try testing.expect(operand.isLegal());
    var check: verify.Check = .{ .code = code, .operands = operands, .attrs = attrs };
    verify.infer(&check) catch |err| {
        try testing.expectEqual(error.InvalidProgram, err);
        try testing.expect(check.message != .none);
    };
    return check;
}

fn accept(
    code: op.Code,
    operands: []const Type,
    attrs: []const i64,
    results: []const Type,
) !void {
    errdefer std.debug.print("{t} must be accepted\n", .{code});
    const check = try run(code, operands, attrs);
    try testing.expectEqual(Message.none, check.message);
    try testing.expectEqual(results.len, check.result_count);
    for (results, 0..) |expected, k| {
        const found = check.resultAt(k);
        try testing.expectEqual(expected.dtype, found.dtype);
        try testing.expectEqualSlices(i64, expected.dims, found.dims.slice());
    }
}

fn refuse(code: op.Code, operands: []const Type, attrs: []const i64, message: Message) !void {
    errdefer std.debug.print("{t} must be refused\n", .{code});
    const check = try run(code, operands, attrs);
    try testing.expectEqual(message, check.message);
}

fn bits(x: f64) i64 {
    return @bitCast(x);
}

test "structure: iota, reshape, transpose, broadcast_to" {
    try accept(.iota, &.{}, &.{ 2, 3, 4, 11, 1 }, &.{t(.f32, &.{ 3, 4 })});
    try refuse(.iota, &.{}, &.{ 2, 3, 4, 0, 1 }, .attr_dtype);
    try refuse(.iota, &.{}, &.{ 2, 3, 4, 11, 2 }, .axis_out_of_range);
    try refuse(.iota, &.{}, &.{ 0, 11, 0 }, .axis_out_of_range);
    try refuse(.iota, &.{}, &.{ 1, -1, 11, 0 }, .negative_extent);
    try refuse(.iota, &.{}, &.{ 1, (1 << 48) + 1, 1, 0 }, .shape_overflow);
    try accept(.iota, &.{}, &.{ 1, 1 << 48, 1, 0 }, &.{t(.u8, &.{1 << 48})});
    try refuse(.iota, &.{}, &.{ 1, 1 << 48, 12, 0 }, .shape_overflow);

    const x = t(.i8, &.{ 2, 3 });
    try accept(.reshape, &.{x}, &.{ 3, 1, 6, 1 }, &.{t(.i8, &.{ 1, 6, 1 })});
    try accept(.reshape, &.{t(.i8, &.{ 2, 0 })}, &.{ 1, 0 }, &.{t(.i8, &.{0})});
    try accept(.reshape, &.{t(.i8, &.{1})}, &.{0}, &.{t(.i8, &.{})});
    try refuse(.reshape, &.{x}, &.{ 1, 5 }, .element_counts_differ);
    try refuse(.reshape, &.{x}, &.{ 2, -2, -3 }, .negative_extent);
    try refuse(.reshape, &.{x}, &.{ 2, 1 << 62, 1 << 62 }, .shape_overflow);
    const deep = [_]i64{17} ++ @as([17]i64, @splat(1));
    try refuse(.reshape, &.{t(.i8, &.{})}, &deep, .shape_overflow);

    try accept(.transpose, &.{x}, &.{ 2, 1, 0 }, &.{t(.i8, &.{ 3, 2 })});
    try refuse(.transpose, &.{x}, &.{ 1, 0 }, .not_a_permutation);
    try refuse(.transpose, &.{x}, &.{ 2, 1, 1 }, .axis_repeated);
    try refuse(.transpose, &.{x}, &.{ 2, 1, 2 }, .axis_out_of_range);
    try refuse(.transpose, &.{x}, &.{ 2, 1, -1 }, .axis_out_of_range);

    const column = t(.f16, &.{ 3, 1 });
    try accept(.broadcast_to, &.{column}, &.{ 3, 2, 3, 0 }, &.{t(.f16, &.{ 2, 3, 0 })});
    try refuse(.broadcast_to, &.{x}, &.{ 1, 3 }, .not_broadcastable);
    try refuse(.broadcast_to, &.{x}, &.{ 2, 4, 3 }, .not_broadcastable);
    try refuse(.broadcast_to, &.{t(.u8, &.{})}, &.{ 2, 1 << 40, 1 << 9 }, .shape_overflow);
}

fn slice1(n: i64, start: i64, size: i64, step: i64, message: Message) !void {
    const attrs = [_]i64{ 1, start, 1, size, 1, step };
    if (message == .none) {
        try accept(.slice, &.{t(.f32, &.{n})}, &attrs, &.{t(.f32, &.{size})});
    } else try refuse(.slice, &.{t(.f32, &.{n})}, &attrs, message);
}

test "structure: slice" {
    try slice1(10, 0, 10, 1, .none);
    try slice1(10, 9, 10, -1, .none);
    try slice1(10, 1, 5, 2, .none);
    try slice1(10, 0, 1, 10, .none);
    try slice1(10, 10, 0, 1, .none);
    try slice1(0, 0, 0, 1, .none);
    try slice1(0, 0, 0, -1, .none);
    try slice1(10, 10, 1, 1, .slice_out_of_bounds);
    try slice1(10, 1, 10, 1, .slice_out_of_bounds);
    try slice1(10, 2, 5, 2, .slice_out_of_bounds);
    try slice1(10, 8, 10, -1, .slice_out_of_bounds);
    try slice1(10, -1, 0, -1, .none);
    try slice1(10, -2, 0, -1, .slice_out_of_bounds);
    try slice1(10, -1, 1, -1, .slice_out_of_bounds);
    try slice1(10, 11, 0, 1, .slice_out_of_bounds);
    try slice1(0, 0, 1, 1, .slice_out_of_bounds);
    try slice1(10, 0, -1, 1, .negative_extent);
    try slice1(10, 0, 1, 0, .slice_step);
    try slice1(10, 3, 1, std.math.minInt(i64), .none);
    try slice1(10, 3, 2, std.math.minInt(i64), .slice_out_of_bounds);
    try slice1(10, 9, 3, std.math.maxInt(i64), .slice_out_of_bounds);
    try slice1(10, std.math.maxInt(i64), 0, 1, .slice_out_of_bounds);
    const n = 1 << 45;
    try slice1(n, 0, n, n, .slice_out_of_bounds);
    try slice1(n, n - 1, n, -n, .slice_out_of_bounds);
    try slice1(n, 0, std.math.maxInt(i64), 1, .slice_out_of_bounds);
    try refuse(.slice, &.{t(.f32, &.{ 2, 2 })}, &.{ 1, 0, 2, 1, 1, 2, 1, 1 }, .axes_count);
}

test "structure: concatenate, pad, cast, bitcast" {
    const x = t(.f32, &.{ 2, 3 });
    const wide = t(.f32, &.{ 2, 5 });
    try accept(.concatenate, &.{ x, wide, x }, &.{1}, &.{t(.f32, &.{ 2, 11 })});
    try accept(.concatenate, &.{x}, &.{0}, &.{x});
    try refuse(.concatenate, &.{ x, wide }, &.{0}, .operand_shape);
    try refuse(.concatenate, &.{ x, t(.f64, &.{ 2, 5 }) }, &.{1}, .operand_dtypes_differ);
    try refuse(.concatenate, &.{ x, t(.f32, &.{2}) }, &.{1}, .operand_rank);
    try refuse(.concatenate, &.{ x, x }, &.{2}, .axis_out_of_range);
    try refuse(.concatenate, &.{t(.f32, &.{})}, &.{0}, .axis_out_of_range);
    const huge = t(.u8, &.{1 << 48});
    try refuse(.concatenate, &.{ huge, huge }, &.{0}, .shape_overflow);
    const many: [40_000]Type = @splat(huge);
    try refuse(.concatenate, &many, &.{0}, .shape_overflow);

    const value = t(.f32, &.{});
    const attrs = [_]i64{ 2, 1, 0, 2, 2, 0, 2, 0, 3 };
    try accept(.pad, &.{ x, value }, &attrs, &.{t(.f32, &.{ 5, 9 })});
    try accept(.pad, &.{ t(.f32, &.{0}), value }, &.{ 1, 1, 1, 2, 1, 9 }, &.{t(.f32, &.{3})});
    try refuse(.pad, &.{ x, t(.f32, &.{1}) }, &attrs, .operand_rank);
    try refuse(.pad, &.{ x, t(.i32, &.{}) }, &attrs, .operand_dtypes_differ);
    try refuse(.pad, &.{ x, value }, &.{ 1, 0, 1, 0, 1, 0 }, .axes_count);
    try refuse(.pad, &.{ t(.f32, &.{4}), value }, &.{ 1, -1, 1, 2, 1, 0 }, .negative_amount);
    const large = std.math.maxInt(i64);
    try refuse(.pad, &.{ t(.f32, &.{4}), value }, &.{ 1, large, 1, 2, 1, 0 }, .shape_overflow);
    try refuse(.pad, &.{ t(.f32, &.{4}), value }, &.{ 1, 0, 1, 0, 1, large }, .shape_overflow);
    try refuse(.pad, &.{ t(.f32, &.{1}), value }, &.{ 1, 0, 1, 0, 1, large }, .shape_overflow);

    try accept(.cast, &.{x}, &.{0}, &.{t(.bool, &.{ 2, 3 })});
    try accept(.bitcast, &.{x}, &.{5}, &.{t(.u32, &.{ 2, 3 })});
    try accept(.bitcast, &.{t(.bool, &.{1})}, &.{1}, &.{t(.u8, &.{1})});
    try refuse(.bitcast, &.{x}, &.{7}, .element_sizes_differ);
    try refuse(.bitcast, &.{t(.u8, &.{1})}, &.{0}, .cast_to_bool);
}

test "structure: window and window_sum" {
    const x = t(.f32, &.{ 2, 9, 5 });
    // axes 1 and 2, sizes 3 and 2, strides 2 and 1, dilations 1 and 4
    const attrs = [_]i64{ 2, 1, 2, 2, 3, 2, 2, 2, 1, 2, 1, 4 };
    const y = t(.f32, &.{ 2, 4, 1, 3, 2 });
    try accept(.window, &.{x}, &attrs, &.{y});
    try accept(.window_sum, &.{y}, &(attrs ++ [_]i64{ 2, 9, 5 }), &.{x});
    const none = [_]i64{ 0, 0, 0, 0 };
    try accept(.window, &.{t(.bool, &.{})}, &none, &.{t(.bool, &.{})});
    try accept(.window_sum, &.{t(.u8, &.{3})}, &(none ++ [_]i64{0}), &.{t(.u8, &.{3})});
    try refuse(.window_sum, &.{t(.bool, &.{3})}, &(none ++ [_]i64{0}), .operand_dtype);
    // Too short for one window: none.
    const one = [_]i64{ 1, 0, 1, 3, 1, 2, 1, 1 };
    for ([_]i64{ 0, 2 }) |n| {
        try accept(.window, &.{t(.i8, &.{n})}, &one, &.{t(.i8, &.{ 0, 3 })});
        const short = t(.i8, &.{n});
        try accept(.window_sum, &.{t(.i8, &.{ 0, 3 })}, &(one ++ [_]i64{ 1, n }), &.{short});
    }
    try refuse(.window_sum, &.{t(.i8, &.{ 0, 3 })}, &(one ++ [_]i64{ 1, 3 }), .bad_window_extent);
    try refuse(.window_sum, &.{t(.i8, &.{ 0, 3 })}, &(one ++ [_]i64{ 1, -1 }), .negative_extent);
    try refuse(.window_sum, &.{t(.i8, &.{ 0, 2 })}, &(one ++ [_]i64{ 1, 0 }), .operand_shape);
    try refuse(.window_sum, &.{t(.i8, &.{ 0, 3 })}, &(one ++ [_]i64{0}), .axes_count);
    try refuse(.window_sum, &.{t(.i8, &.{})}, &(one ++ [_]i64{ 1, 1 }), .operand_rank);
    try refuse(.window, &.{x}, &.{ 1, 3, 1, 1, 1, 1, 1, 1 }, .axis_out_of_range);
    try refuse(.window, &.{x}, &.{ 2, 1, 1, 2, 1, 1, 2, 1, 1, 2, 1, 1 }, .axis_repeated);
    try refuse(.window, &.{x}, &.{ 1, 0, 2, 1, 1, 1, 1, 1, 1 }, .axes_count);
    const large = (1 << 48) + 1;
    for ([_][3]i64{ .{ 0, 1, 1 }, .{ 1, 0, 1 }, .{ 1, 1, 0 }, .{ 1, 1, -1 } }) |w| {
        try refuse(.window, &.{x}, &.{ 1, 0, 1, w[0], 1, w[1], 1, w[2] }, .bad_window);
    }
    try refuse(.window, &.{x}, &.{ 1, 0, 1, 1, 1, large, 1, 1 }, .bad_window);
    try accept(
        .window,
        &.{t(.u8, &.{1})},
        &.{ 1, 0, 1, 1 << 48, 1, 1 << 48, 1, 1 << 48 },
        &.{t(.u8, &.{ 0, 1 << 48 })},
    );
    const deep = t(.u8, &@as([15]i64, @splat(1)));
    try refuse(.window, &.{deep}, &.{ 2, 0, 1, 2, 1, 1, 2, 1, 1, 2, 1, 1 }, .shape_overflow);
}

test "elementwise: every opcode takes its domain and nothing else" {
    for (op.table) |info| {
        if (info.group != .unary and info.group != .binary) continue;
        for (0..DType.count) |n| {
            const element: DType = @fromBackingInt(@intCast(n));
            const legal = switch (info.domain) {
                .any => true,
                .numeric => element != .bool,
                .floating => element.isFloat(),
                .integer => element.isInteger(),
                .bits => element.isInteger() or element == .bool,
                .boolean => element == .bool,
            };
            const x = t(element, &.{ 2, 3 });
            const operands = [_]Type{ x, x };
            const used = operands[0..info.operands_min];
            const attrs: []const i64 = if (info.attributes.len > 0) &.{2} else &.{};
            const result: DType = if (info.traits.bool_result) .bool else element;
            if (legal) {
                try accept(info.code, used, attrs, &.{t(result, &.{ 2, 3 })});
            } else try refuse(info.code, used, attrs, .operand_dtype);
        }
    }
}

test "elementwise: broadcasting and dtypes" {
    const column = t(.f32, &.{ 3, 1 });
    try accept(.add, &.{ column, t(.f32, &.{4}) }, &.{}, &.{t(.f32, &.{ 3, 4 })});
    try accept(.less, &.{ t(.f32, &.{4}), column }, &.{}, &.{t(.bool, &.{ 3, 4 })});
    try accept(.add, &.{ t(.f32, &.{}), t(.f32, &.{0}) }, &.{}, &.{t(.f32, &.{0})});
    try refuse(.add, &.{ t(.f32, &.{2}), t(.f32, &.{3}) }, &.{}, .not_broadcastable);
    try refuse(.add, &.{ t(.f32, &.{2}), t(.f64, &.{2}) }, &.{}, .operand_dtypes_differ);
    const tall = t(.u8, &.{ 1 << 40, 1 });
    try refuse(.add, &.{ tall, t(.u8, &.{1 << 40}) }, &.{}, .shape_overflow);
    try accept(.integer_power, &.{column}, &.{-3}, &.{column});
    try refuse(.integer_power, &.{t(.i32, &.{})}, &.{-1}, .bad_exponent);
    try refuse(.integer_power, &.{column}, &.{std.math.minInt(i64)}, .bad_exponent);
    try refuse(.integer_power, &.{column}, &.{(1 << 53) + 1}, .bad_exponent);
    try accept(.integer_power, &.{column}, &.{1 << 53}, &.{column});
    try accept(.integer_power, &.{t(.i32, &.{})}, &.{0}, &.{t(.i32, &.{})});

    try accept(.polygamma, &.{column}, &.{0}, &.{column});
    try accept(.bessel_i, &.{column}, &.{170}, &.{column});
    try refuse(.polygamma, &.{column}, &.{171}, .bad_exponent);
    try refuse(.bessel_i, &.{column}, &.{-1}, .bad_exponent);

    const condition = t(.bool, &.{ 2, 1, 1 });
    try accept(.where, &.{ condition, column, t(.f32, &.{4}) }, &.{}, &.{t(.f32, &.{ 2, 3, 4 })});
    try refuse(.where, &.{ column, column, column }, &.{}, .operand_dtype);
    try refuse(.where, &.{ condition, column, t(.f16, &.{}) }, &.{}, .operand_dtypes_differ);
    const other = t(.f32, &.{ 3, 3, 1 });
    try refuse(.where, &.{ condition, column, other }, &.{}, .not_broadcastable);
}

test "reductions" {
    const x = t(.f32, &.{ 2, 3, 4 });
    try accept(.reduce_sum, &.{x}, &.{ 2, 2, 0 }, &.{t(.f32, &.{3})});
    try accept(.reduce_max, &.{t(.bool, &.{ 2, 0 })}, &.{ 1, 1 }, &.{t(.bool, &.{2})});
    try accept(.reduce_min, &.{x}, &.{0}, &.{x});
    try refuse(.reduce_sum, &.{t(.bool, &.{2})}, &.{ 1, 0 }, .operand_dtype);
    try refuse(.reduce_prod, &.{t(.bool, &.{2})}, &.{ 1, 0 }, .operand_dtype);
    try refuse(.reduce_sum, &.{x}, &.{ 1, 3 }, .axis_out_of_range);
    try refuse(.reduce_sum, &.{x}, &.{ 1, -1 }, .axis_out_of_range);
    try refuse(.reduce_sum, &.{x}, &.{ 2, 1, 1 }, .axis_repeated);
    try accept(.argmax, &.{x}, &.{1}, &.{t(.i64, &.{ 2, 4 })});
    try accept(.argmin, &.{t(.bool, &.{3})}, &.{0}, &.{t(.i64, &.{})});
    try accept(.argmax, &.{t(.f32, &.{ 0, 0 })}, &.{0}, &.{t(.i64, &.{0})});
    try refuse(.argmax, &.{t(.f32, &.{ 2, 0 })}, &.{1}, .empty_axis);
    try refuse(.argmax, &.{t(.f32, &.{})}, &.{0}, .axis_out_of_range);
    try accept(.cumsum, &.{x}, &.{ 2, 1 }, &.{x});
    try refuse(.cumsum, &.{x}, &.{ 3, 0 }, .axis_out_of_range);
    try refuse(.cumprod, &.{t(.bool, &.{2})}, &.{ 0, 0 }, .operand_dtype);
    try accept(.cummax, &.{t(.bool, &.{2})}, &.{ 0, 0 }, &.{t(.bool, &.{2})});
}

test "order" {
    const x = t(.f32, &.{ 2, 3, 4 });
    try accept(.sort, &.{x}, &.{ 1, 0, 3 }, &.{ x, t(.i64, &.{ 2, 3, 4 }) });
    const two = .{ t(.bool, &.{2}), t(.i64, &.{2}) };
    try accept(.sort, &.{t(.bool, &.{5})}, &.{ 0, 1, 2 }, &two);
    try refuse(.sort, &.{x}, &.{ 1, 0, 4 }, .bad_count);
    try refuse(.sort, &.{x}, &.{ 1, 0, -1 }, .bad_count);
    try refuse(.sort, &.{x}, &.{ 3, 0, 1 }, .axis_out_of_range);
    try accept(.searchsorted, &.{ x, t(.f32, &.{ 2, 3 }) }, &.{0}, &.{t(.i64, &.{ 2, 3 })});
    const many = t(.f32, &.{ 2, 3, 0, 7 });
    try accept(.searchsorted, &.{ x, many }, &.{1}, &.{t(.i64, &.{ 2, 3, 0, 7 })});
    try refuse(.searchsorted, &.{ x, t(.f32, &.{2}) }, &.{0}, .operand_rank);
    try refuse(.searchsorted, &.{ t(.f32, &.{}), x }, &.{0}, .operand_rank);
    try refuse(.searchsorted, &.{ x, t(.f32, &.{ 3, 2 }) }, &.{0}, .operand_shape);
    try refuse(.searchsorted, &.{ x, t(.f64, &.{ 2, 3 }) }, &.{0}, .operand_dtypes_differ);
}

test "dot_general" {
    const x = t(.f32, &.{ 7, 2, 3, 5 });
    const y = t(.f32, &.{ 5, 7, 4, 2 });
    // contract 3 with 0; batch (1, 3) and (0, 1)
    const attrs = [_]i64{ 1, 3, 1, 0, 2, 1, 0, 2, 3, 1 };
    try accept(.dot_general, &.{ x, y }, &attrs, &.{t(.f32, &.{ 2, 7, 3, 4 })});
    const v = t(.i8, &.{3});
    try accept(.dot_general, &.{ v, v }, &.{ 1, 0, 1, 0, 0, 0 }, &.{t(.i8, &.{})});
    try accept(.dot_general, &.{ v, v }, &.{ 0, 0, 0, 0 }, &.{t(.i8, &.{ 3, 3 })});
    try refuse(.dot_general, &.{ v, t(.i8, &.{4}) }, &.{ 1, 0, 1, 0, 0, 0 }, .operand_shape);
    try refuse(.dot_general, &.{ v, t(.i8, &.{4}) }, &.{ 0, 0, 1, 0, 1, 0 }, .operand_shape);
    try refuse(.dot_general, &.{ v, v }, &.{ 1, 0, 1, 0, 1, 0, 1, 0 }, .axis_repeated);
    try refuse(.dot_general, &.{ v, v }, &.{ 1, 0, 0, 0, 0 }, .axes_count);
    try refuse(.dot_general, &.{ v, v }, &.{ 0, 0, 1, 0, 0 }, .axes_count);
    try refuse(.dot_general, &.{ v, v }, &.{ 1, 1, 1, 0, 0, 0 }, .axis_out_of_range);
    const u = t(.u8, &.{3});
    try refuse(.dot_general, &.{ v, u }, &.{ 1, 0, 1, 0, 0, 0 }, .operand_dtypes_differ);
    const b = t(.bool, &.{3});
    try refuse(.dot_general, &.{ b, b }, &.{ 1, 0, 1, 0, 0, 0 }, .operand_dtype);
    const deep = t(.f32, &@as([9]i64, @splat(1)));
    try refuse(.dot_general, &.{ deep, deep }, &.{ 0, 0, 0, 0 }, .shape_overflow);
}

test "indexing: take and scatter" {
    const x = t(.f32, &.{ 2, 3, 8, 5 });
    const index = t(.u16, &.{ 2, 4, 6 });
    // axis, batch_dims, mode, kind
    try accept(.take, &.{ x, index }, &.{ 2, 1, 0 }, &.{t(.f32, &.{ 2, 3, 4, 6, 5 })});
    try accept(.take, &.{ x, t(.i64, &.{}) }, &.{ 3, 0, 2 }, &.{t(.f32, &.{ 2, 3, 8 })});
    try refuse(.take, &.{ x, t(.f32, &.{}) }, &.{ 3, 0, 2 }, .operand_dtype);
    try refuse(.take, &.{ x, t(.bool, &.{}) }, &.{ 3, 0, 2 }, .operand_dtype);
    try refuse(.take, &.{ x, index }, &.{ 4, 0, 0 }, .axis_out_of_range);
    try refuse(.take, &.{ x, index }, &.{ 0, 1, 0 }, .batch_dims_out_of_range);
    try refuse(.take, &.{ x, index }, &.{ 2, -1, 0 }, .batch_dims_out_of_range);
    try refuse(.take, &.{ x, t(.i8, &.{2}) }, &.{ 3, 2, 0 }, .batch_dims_out_of_range);
    try refuse(.take, &.{ x, t(.i8, &.{3}) }, &.{ 2, 1, 0 }, .operand_shape);
    try refuse(.take, &.{ x, index }, &.{ 2, 1, 4 }, .bad_mode);
    try refuse(.take, &.{ x, index }, &.{ 2, 1, -1 }, .bad_mode);
    const empty = t(.f32, &.{0});
    try refuse(.take, &.{ empty, t(.i8, &.{3}) }, &.{ 0, 0, 1 }, .empty_axis);
    try accept(.take, &.{ empty, t(.i8, &.{0}) }, &.{ 0, 0, 1 }, &.{empty});
    try accept(.take, &.{ empty, t(.i8, &.{3}) }, &.{ 0, 0, 0 }, &.{t(.f32, &.{3})});
    const deep = t(.i8, &@as([16]i64, @splat(1)));
    try refuse(.take, &.{ x, deep }, &.{ 2, 0, 0 }, .shape_overflow);

    const updates = t(.f32, &.{ 2, 3, 4, 6, 5 });
    try accept(.scatter, &.{ x, index, updates }, &.{ 2, 1, 0, 4 }, &.{x});
    try refuse(.scatter, &.{ x, index, updates }, &.{ 2, 1, 0, 5 }, .bad_kind);
    try refuse(.scatter, &.{ x, index, x }, &.{ 2, 1, 0, 0 }, .operand_rank);
    const narrow = t(.f32, &.{ 2, 3, 4, 6, 4 });
    try refuse(.scatter, &.{ x, index, narrow }, &.{ 2, 1, 0, 0 }, .operand_shape);
    const wrong = t(.f64, &.{ 2, 3, 4, 6, 5 });
    try refuse(.scatter, &.{ x, index, wrong }, &.{ 2, 1, 0, 0 }, .operand_dtypes_differ);
    const flags = t(.bool, &.{4});
    try refuse(.scatter, &.{ flags, t(.i8, &.{4}), flags }, &.{ 0, 0, 0, 0 }, .bad_kind);
    try accept(.scatter, &.{ flags, t(.i8, &.{4}), flags }, &.{ 0, 0, 0, 2 }, &.{flags});
}

test "indexing: along an axis, dynamic slices, checks" {
    const x = t(.f32, &.{ 2, 8 });
    const index = t(.i32, &.{ 2, 3 });
    try accept(.take_along_axis, &.{ x, index }, &.{ 1, 0 }, &.{t(.f32, &.{ 2, 3 })});
    try refuse(.take_along_axis, &.{ x, index }, &.{ 0, 0 }, .operand_shape);
    try refuse(.take_along_axis, &.{ x, t(.i32, &.{3}) }, &.{ 1, 0 }, .operand_rank);
    try refuse(.take_along_axis, &.{ x, t(.f32, &.{ 2, 3 }) }, &.{ 1, 0 }, .operand_dtype);
    try refuse(.take_along_axis, &.{ x, index }, &.{ 2, 0 }, .axis_out_of_range);
    try refuse(.take_along_axis, &.{ x, index }, &.{ 1, 7 }, .bad_mode);
    const updates = t(.f32, &.{ 2, 3 });
    try accept(.scatter_along_axis, &.{ x, index, updates }, &.{ 1, 2, 1 }, &.{x});
    try refuse(.scatter_along_axis, &.{ x, index, x }, &.{ 1, 2, 1 }, .operand_shape);
    try refuse(.scatter_along_axis, &.{ x, index, updates }, &.{ 1, 2, -1 }, .bad_kind);

    const starts = t(.i64, &.{2});
    try accept(.dynamic_slice, &.{ x, starts }, &.{ 2, 2, 0 }, &.{t(.f32, &.{ 2, 0 })});
    try refuse(.dynamic_slice, &.{ x, starts }, &.{ 2, 3, 1 }, .slice_out_of_bounds);
    try refuse(.dynamic_slice, &.{ x, starts }, &.{ 2, -1, 1 }, .negative_extent);
    try refuse(.dynamic_slice, &.{ x, starts }, &.{ 1, 1 }, .axes_count);
    try refuse(.dynamic_slice, &.{ x, t(.i32, &.{2}) }, &.{ 2, 1, 1 }, .operand_dtype);
    try refuse(.dynamic_slice, &.{ x, t(.i64, &.{3}) }, &.{ 2, 1, 1 }, .operand_shape);
    try accept(.dynamic_update_slice, &.{ x, updates, starts }, &.{}, &.{x});
    try refuse(.dynamic_update_slice, &.{ updates, x, starts }, &.{}, .operand_shape);
    try refuse(.dynamic_update_slice, &.{ x, t(.f32, &.{3}), starts }, &.{}, .operand_rank);
    try refuse(.dynamic_update_slice, &.{ x, index, starts }, &.{}, .operand_dtypes_differ);

    try accept(.check_index, &.{t(.u8, &.{ 2, 3 })}, &.{ 9, 1, 0 }, &.{t(.i64, &.{ 2, 3 })});
    try refuse(.check_index, &.{t(.u8, &.{})}, &.{ -1, 1, 0 }, .bad_extent);
    try refuse(.check_index, &.{t(.u8, &.{})}, &.{ (1 << 48) + 1, 1, 0 }, .bad_extent);
    try refuse(.check_index, &.{t(.u8, &.{})}, &.{ 9, -1, 0 }, .axis_out_of_range);
    try refuse(.check_index, &.{t(.u8, &.{})}, &.{ 9, 0, 4 }, .bad_mode);
    try refuse(.check_index, &.{t(.u8, &.{})}, &.{ 0, 0, 1 }, .empty_axis);
    try refuse(.check_index, &.{x}, &.{ 9, 0, 0 }, .operand_dtype);
    try accept(.check, &.{ x, t(.bool, &.{}) }, &.{1}, &.{x});
    try refuse(.check, &.{ x, t(.bool, &.{1}) }, &.{1}, .operand_rank);
    try refuse(.check, &.{ x, t(.u8, &.{}) }, &.{1}, .operand_dtype);
}

test "random" {
    const key = t(.u32, &.{ 3, 2 });
    try accept(.random_bits, &.{key}, &.{ 2, 4, 5, 0 }, &.{t(.u32, &.{ 3, 4, 5 })});
    try accept(.random_bits, &.{key}, &.{ 1, 4, 1 }, &.{t(.u64, &.{ 3, 4 })});
    try accept(.random_bits, &.{key}, &.{ 0, 2 }, &.{t(.u32, &.{ 3, 2 })});
    try refuse(.random_bits, &.{key}, &.{ 1, 4, 3 }, .bad_form);
    try refuse(.random_bits, &.{key}, &.{ 1, -4, 0 }, .negative_extent);
    try refuse(.random_bits, &.{t(.u32, &.{3})}, &.{ 1, 4, 0 }, .operand_shape);
    try refuse(.random_bits, &.{t(.u32, &.{})}, &.{ 1, 4, 0 }, .operand_rank);
    try refuse(.random_bits, &.{t(.i32, &.{2})}, &.{ 1, 4, 0 }, .operand_dtype);
    const deep = t(.u32, &(@as([15]i64, @splat(1)) ++ .{2}));
    try refuse(.random_bits, &.{deep}, &.{ 2, 4, 4, 0 }, .shape_overflow);
    try refuse(.random_bits, &.{deep}, &.{ 1, 4, 2 }, .shape_overflow);
    try accept(.random_bits, &.{deep}, &.{ 0, 2 }, &.{deep});
    try accept(.random_fold_in, &.{ key, t(.u32, &.{3}) }, &.{}, &.{key});
    try refuse(.random_fold_in, &.{ key, t(.u32, &.{}) }, &.{}, .operand_rank);
    try refuse(.random_fold_in, &.{ key, t(.u64, &.{3}) }, &.{}, .operand_dtype);
}

test "neural: rows" {
    const x = t(.bf16, &.{ 2, 3 });
    const w = t(.bf16, &.{3});
    try accept(.softmax, &.{x}, &.{1}, &.{x});
    try refuse(.softmax, &.{x}, &.{2}, .axis_out_of_range);
    try refuse(.log_softmax, &.{t(.i32, &.{3})}, &.{0}, .operand_dtype);
    const eps = bits(1e-5);
    try accept(.layer_norm, &.{ x, w, w }, &.{eps}, &.{x});
    try refuse(.layer_norm, &.{ x, w, t(.bf16, &.{2}) }, &.{eps}, .operand_shape);
    try refuse(.layer_norm, &.{ x, t(.f32, &.{3}), w }, &.{eps}, .operand_dtypes_differ);
    try refuse(.layer_norm, &.{ x, w, w }, &.{bits(std.math.nan(f64))}, .bad_float);
    try refuse(.rms_norm, &.{ x, w }, &.{bits(-1e-9)}, .bad_float);
    try refuse(.rms_norm, &.{ x, x }, &.{eps}, .operand_rank);
    try refuse(.rms_norm, &.{ t(.bf16, &.{}), w }, &.{eps}, .operand_rank);
    try refuse(.rms_norm, &.{ t(.u8, &.{3}), t(.u8, &.{3}) }, &.{eps}, .operand_dtype);

    const labels = t(.i32, &.{2});
    const losses = t(.bf16, &.{2});
    try accept(.cross_entropy, &.{ x, labels }, &.{-100}, &.{losses});
    try refuse(.cross_entropy, &.{ x, w }, &.{-100}, .operand_dtype);
    try refuse(.cross_entropy, &.{ x, t(.i32, &.{3}) }, &.{-100}, .operand_shape);
    try refuse(.cross_entropy, &.{ t(.f32, &.{}), labels }, &.{-100}, .operand_rank);
    try accept(.cross_entropy_grad, &.{ x, labels, losses }, &.{-100}, &.{x});
    try refuse(.cross_entropy_grad, &.{ x, labels, w }, &.{-100}, .operand_shape);
    try refuse(.cross_entropy_grad, &.{ x, labels, t(.f32, &.{2}) }, &.{0}, .operand_dtypes_differ);
}

test "neural: attention" {
    const q = t(.f16, &.{ 2, 6, 5, 8 });
    const k = t(.f16, &.{ 2, 3, 7, 8 });
    const v = t(.f16, &.{ 2, 3, 7, 4 });
    const out = t(.f16, &.{ 2, 6, 5, 4 });
    const lse = t(.f32, &.{ 2, 6, 5 });
    const attrs = [_]i64{ bits(0.35), 1, 0 };
    try accept(.attention, &.{ q, k, v }, &attrs, &.{ out, lse });
    const mask = t(.bool, &.{ 1, 1, 5, 7 });
    try accept(.attention, &.{ q, k, v, mask }, &attrs, &.{ out, lse });
    try accept(.attention, &.{ q, k, v, t(.f16, &.{ 2, 6, 1, 1 }) }, &attrs, &.{ out, lse });
    const added = t(.f32, &.{ 1, 1, 5, 7 });
    try refuse(.attention, &.{ q, k, v, added }, &attrs, .operand_dtypes_differ);
    try refuse(.attention, &.{ q, k, v, t(.bool, &.{ 5, 7 }) }, &attrs, .operand_rank);
    try refuse(.attention, &.{ q, k, v, t(.bool, &.{ 1, 1, 5, 8 }) }, &attrs, .operand_shape);
    try refuse(.attention, &.{ q, t(.f16, &.{ 2, 3, 7, 9 }), v }, &attrs, .operand_shape);
    try refuse(.attention, &.{ q, k, t(.f16, &.{ 2, 3, 6, 4 }) }, &attrs, .operand_shape);
    try refuse(.attention, &.{ q, k, t(.f32, &.{ 2, 3, 7, 4 }) }, &attrs, .operand_dtypes_differ);
    try refuse(.attention, &.{ q, k, t(.f16, &.{ 3, 7, 4 }) }, &attrs, .operand_rank);
    const odd = t(.f16, &.{ 2, 5, 5, 8 });
    try refuse(.attention, &.{ odd, k, v }, &attrs, .heads_not_multiple);
    const none = t(.f16, &.{ 2, 0, 7, 8 });
    try refuse(.attention, &.{ q, none, none }, &attrs, .heads_not_multiple);
    try refuse(.attention, &.{ q, k, v }, &.{ bits(std.math.inf(f64)), 1, 0 }, .bad_float);
    try refuse(.attention, &.{ q, k, v }, &.{ bits(1), 1, -1 }, .bad_window);
    try refuse(.attention, &.{ q, k, v }, &.{ bits(1), 1, (1 << 48) + 1 }, .bad_window);
    const wide = t(.f64, &.{ 1, 1, 1, 1 });
    const wide_lse = t(.f64, &.{ 1, 1, 1 });
    try accept(.attention, &.{ wide, wide, wide }, &attrs, &.{ wide, wide_lse });

    try accept(.attention_grad, &.{ q, k, v, out, lse, out }, &attrs, &.{ q, k, v });
    try accept(.attention_grad, &.{ q, k, v, out, lse, out, mask }, &attrs, &.{ q, k, v });
    try refuse(.attention_grad, &.{ q, k, v, q, lse, out }, &attrs, .operand_shape);
    try refuse(.attention_grad, &.{ q, k, v, out, lse, q }, &attrs, .operand_shape);
    const half_lse = t(.f16, &.{ 2, 6, 5 });
    try refuse(.attention_grad, &.{ q, k, v, out, half_lse, out }, &attrs, .operand_dtype);
    const flat = t(.f32, &.{ 2, 6 });
    try refuse(.attention_grad, &.{ q, k, v, out, flat, out }, &attrs, .operand_rank);
}

test "matrices" {
    const a = t(.f32, &.{ 2, 3, 3 });
    const sign = t(.f32, &.{2});
    try accept(.lu, &.{a}, &.{}, &.{ a, t(.i64, &.{ 2, 3 }), sign });
    try accept(.cholesky, &.{a}, &.{}, &.{a});
    try accept(.eigh, &.{a}, &.{}, &.{ t(.f32, &.{ 2, 3 }), a });
    for ([_]op.Code{ .lu, .cholesky, .eigh }) |code| {
        try refuse(code, &.{t(.f16, &.{ 3, 3 })}, &.{}, .operand_dtype);
        try refuse(code, &.{t(.i64, &.{ 3, 3 })}, &.{}, .operand_dtype);
        try refuse(code, &.{t(.f64, &.{3})}, &.{}, .operand_rank);
        try refuse(code, &.{t(.f64, &.{ 3, 4 })}, &.{}, .operand_shape);
    }
    const tall = t(.f64, &.{ 5, 3 });
    const small = t(.f64, &.{ 3, 3 });
    try accept(.qr, &.{tall}, &.{0}, &.{ tall, small });
    try accept(.qr, &.{tall}, &.{1}, &.{ t(.f64, &.{ 5, 5 }), tall });
    try accept(.svd, &.{tall}, &.{}, &.{ tall, t(.f64, &.{3}), small });
    const wide = t(.f64, &.{ 3, 5 });
    try accept(.qr, &.{wide}, &.{0}, &.{ small, wide });
    try accept(.svd, &.{wide}, &.{}, &.{ small, t(.f64, &.{3}), wide });
    try refuse(.qr, &.{t(.bf16, &.{ 3, 3 })}, &.{0}, .operand_dtype);
    try refuse(.svd, &.{t(.f32, &.{})}, &.{}, .operand_rank);

    const b = t(.f32, &.{ 2, 3, 7 });
    const flags = [_]i64{ 1, 0, 1 };
    try accept(.triangular_solve, &.{ a, b }, &flags, &.{b});
    try refuse(.triangular_solve, &.{ a, t(.f64, &.{ 2, 3, 7 }) }, &flags, .operand_dtypes_differ);
    try refuse(.triangular_solve, &.{ a, t(.f32, &.{ 2, 4, 7 }) }, &flags, .operand_shape);
    try refuse(.triangular_solve, &.{ a, t(.f32, &.{ 3, 7 }) }, &flags, .operand_rank);
    try refuse(.triangular_solve, &.{ a, t(.f32, &.{3}) }, &flags, .operand_rank);
    try refuse(.triangular_solve, &.{ tall, tall }, &flags, .operand_shape);
}

fn expectFault(p: *const ir.Program, message: Message) !void {
    var diagnostic: verify.Diagnostic = .{};
    const result = verify.verify(testing.allocator, p, &diagnostic);
    try testing.expectEqual(message, diagnostic.message);
    if (message == .none) return result;
    try testing.expectError(error.InvalidProgram, result);
}

test "programs: declared types, inputs and outputs" {
    var arena_state: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena_state.deinit();
    const arena = arena_state.allocator();
    const good = try wire_test.sample(arena);
    try expectFault(&good, .none);

    // Each result in turn is declared with another type.
    for (good.firstResult()..good.valueCount()) |v| {
        const types = try arena.dupe(ir.TypeId, good.value_types);
        types[v] = if (types[v] == ir.TypeId.at(2)) .at(1) else .at(2);
        var p = good;
        p.value_types = types;
        var diagnostic: verify.Diagnostic = .{};
        const result = verify.verify(testing.allocator, &p, &diagnostic);
        try testing.expectError(error.InvalidProgram, result);
        try testing.expectEqual(Message.result_type, diagnostic.message);
        const definition = good.definitionOf(.at(v)).result;
        try testing.expectEqual(definition.instruction.index(), diagnostic.instruction.?);
        try testing.expectEqual(definition.index, diagnostic.operand.?);
    }

    const aliased = struct {
        fn outputs(p: ir.Program, list: []const ir.Output) ir.Program {
            var changed = p;
            changed.outputs = list;
            return changed;
        }
    }.outputs;
    const sum = good.outputs[1].value;
    const total = good.outputs[0].value;
    try expectFault(&aliased(good, &.{.{ .value = sum, .alias = .at(1) }}), .alias_not_donated);
    try expectFault(&aliased(good, &.{.{ .value = total, .alias = .at(0) }}), .alias_type);
    const twice: ir.Output = .{ .value = sum, .alias = .at(0) };
    try expectFault(&aliased(good, &.{ twice, twice }), .alias_twice);
    try expectFault(&aliased(good, &.{}), .none);

    const Flags = struct { flags: ir.InputFlags, message: Message };
    for ([_]Flags{
        .{ .flags = .{ .rng_key = true }, .message = .rng_key_type },
        .{ .flags = .{ .scalar_slot = true }, .message = .scalar_slot_rank },
    }) |case| {
        const inputs = try arena.dupe(ir.Input, good.inputs);
        inputs[1].flags = case.flags;
        var p = good;
        p.inputs = inputs;
        try expectFault(&p, case.message);
    }
    var b: ir.Builder = .init(arena);
    const key = try b.internType(.u32, &.{2});
    _ = try b.addInput(key, .{ .flags = .{ .rng_key = true } });
    const one = try b.finish(&.{});
    try expectFault(&one, .none);
    b = .init(arena);
    _ = try b.internType(.u32, &.{2});
    _ = try b.addInput(key, .{ .flags = .{ .rng_key = true } });
    _ = try b.addInput(key, .{ .flags = .{ .rng_key = true } });
    const two = try b.finish(&.{});
    try expectFault(&two, .rng_key_twice);
}
