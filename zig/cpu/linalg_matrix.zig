//! How the factorisations read and write matrices: operands of any strides and either float type
//! become float64 in scratch, results are rounded once when they are stored.
const std = @import("std");
const assert = std.debug.assert;
const dtype = @import("../dtype.zig");
const kernel_abi = @import("kernel_abi.zig");
const view = @import("view.zig");
const DType = dtype.DType;
const Storage = dtype.Storage;

/// A stack of matrices `[.., rows, columns]` as an operand holds it.
pub const Stack = extern struct {
    rows: u64,
    columns: u64,
    row_stride: i64,
    column_stride: i64,
    lead: view.Axes(1),

    pub fn of(x: *const kernel_abi.Operand) Stack {
        assert(x.rank >= 2);
        const last = x.rank - 1;
        var s: Stack = .{
            .rows = x.dims[last - 1],
            .columns = x.dims[last],
            .row_stride = x.strides[last - 1],
            .column_stride = x.strides[last],
            .lead = .empty,
        };
        for (0..last - 1) |axis| s.lead.append(x.dims[axis], .{x.strides[axis]});
        return s;
    }

    /// One matrix of the stack in memory that starts at `base`.
    pub noinline fn at(s: *const Stack, d: DType, base: [*]const u8, index: u64) Matrix {
        const offset = s.lead.cursor(index).offsets[0] * d.bytes();
        return .{
            .dtype = d,
            .base = view.at(u8, base, offset),
            .rows = s.rows,
            .columns = s.columns,
            .row_stride = s.row_stride,
            .column_stride = s.column_stride,
        };
    }
};

/// A matrix in an operand's memory.
pub const Matrix = struct {
    dtype: DType,
    base: [*]const u8,
    rows: u64,
    columns: u64,
    row_stride: i64,
    column_stride: i64,

    pub fn transposed(m: Matrix) Matrix {
        return .{
            .dtype = m.dtype,
            .base = m.base,
            .rows = m.columns,
            .columns = m.rows,
            .row_stride = m.column_stride,
            .column_stride = m.row_stride,
        };
    }

    /// The rows in the opposite order.
    pub fn reversed(m: Matrix) Matrix {
        if (m.rows == 0) return m;
        var turned = m;
        turned.base = m.address(m.rows - 1, 0);
        turned.row_stride = -m.row_stride;
        return turned;
    }

    /// `count` columns from `start`.
    pub fn columnsFrom(m: Matrix, start: u64, count: u64) Matrix {
        assert(start + count <= m.columns);
        var part = m;
        part.base = m.address(0, start);
        part.columns = count;
        return part;
    }

    noinline fn address(m: Matrix, row: u64, column: u64) [*]const u8 {
        const i: i64 = @intCast(row);
        const j: i64 = @intCast(column);
        const offset = (i * m.row_stride + j * m.column_stride) * m.dtype.bytes();
        return view.at(u8, m.base, offset);
    }

    /// Writes the elements, row after row without a gap, to `to`.
    pub noinline fn read(m: Matrix, to: [*]f64) void {
        if (m.columns == 0) return; // there may be 2^48 rows of nothing
        for (0..m.rows) |i| m.readRow(i, m.columns, to + i * m.columns);
    }

    /// As `read`, but nothing above the diagonal, whose elements in `to` keep their value.
    pub fn readLower(m: Matrix, to: [*]f64) void {
        for (0..m.rows) |i| m.readRow(i, @min(i + 1, m.columns), to + i * m.columns);
    }

    noinline fn readRow(m: Matrix, row: u64, n: u64, to: [*]f64) void {
        switch (m.dtype) {
            inline .f32, .f64 => |d| {
                const from: [*]const Storage(d) = @ptrCast(@alignCast(m.address(row, 0)));
                for (0..n) |j| {
                    to[j] = view.at(Storage(d), from, @as(i64, @intCast(j)) * m.column_stride)[0];
                }
            },
            else => unreachable,
        }
    }
};

/// Which elements of a result are not 0.
pub const Part = enum { whole, upper };

/// Where in a result's memory, which is dense, a matrix or a part of one is written.
pub const Target = struct {
    dtype: DType,
    base: [*]u8,
    /// Elements from row to row.
    stride: u64,

    /// The matrix number `index` of a stack.
    pub fn of(d: DType, to: [*]u8, index: u64, rows: u64, columns: u64) Target {
        return .{ .dtype = d, .base = to + index * rows * columns * d.bytes(), .stride = columns };
    }

    /// What begins with that element.
    pub fn from(t: Target, row: u64, column: u64) Target {
        var part = t;
        part.base += (row * t.stride + column) * t.dtype.bytes();
        return part;
    }

    /// Writes `rows` by `columns` elements: (i, j) is `factor` times
    /// `x[i * strides[0] + j * strides[1]]`.
    pub noinline fn store(
        t: Target,
        rows: u64,
        columns: u64,
        x: [*]const f64,
        strides: [2]u64,
        factor: f64,
        part: Part,
    ) void {
        if (columns == 0) return; // there may be 2^48 rows of nothing
        switch (t.dtype) {
            inline .f32, .f64 => |d| for (0..rows) |i| {
                const line = @as([*]Storage(d), @ptrCast(@alignCast(t.base))) + i * t.stride;
                const zeros = if (part == .upper) @min(i, columns) else 0;
                @memset(line[0..zeros], 0);
                for (zeros..columns) |j| {
                    line[j] = @floatCast(factor * x[i * strides[0] + j * strides[1]]);
                }
            },
            else => unreachable,
        }
    }

    pub fn fill(t: Target, rows: u64, columns: u64, value: f64) void {
        t.store(rows, columns, &[1]f64{value}, .{ 0, 0 }, 1, .whole);
    }
};

/// Scratch, handed out piece by piece.
pub const Memory = struct {
    next: [*]f64,

    pub fn take(m: *Memory, n: u64) [*]f64 {
        const piece = m.next;
        m.next += n;
        return piece;
    }

    pub fn takeFour(m: *Memory, n: u64) [4][*]f64 {
        return .{ m.take(n), m.take(n), m.take(n), m.take(n) };
    }
};
