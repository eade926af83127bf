//! Type rules of the linear algebra group: matrices in the last two axes, float32 or float64.
const shape = @import("shape.zig");
const infer_file = @import("verify_infer.zig");
const Check = infer_file.Check;
const Error = infer_file.Error;

/// An operand `[.., rows, columns]`.
const Matrices = struct {
    lead: []const i64,
    rows: i64,
    columns: i64,

    fn small(m: Matrices) i64 {
        return @min(m.rows, m.columns);
    }

    /// The leading axes and those.
    fn with(m: Matrices, extents: []const i64) shape.Dims {
        var dims: shape.Dims = .from(m.lead);
        for (extents) |extent| dims.append(extent);
        return dims;
    }
};

fn wantMatrices(c: *Check, operand: usize) Error!Matrices {
    const x = c.operands[operand];
    if (x.dtype != .f32 and x.dtype != .f64) return c.failOperand(.operand_dtype, operand);
    if (x.rank() < 2) return c.failOperand(.operand_rank, operand);
    const lead = x.rank() - 2;
    return .{ .lead = x.dims[0..lead], .rows = x.dims[lead], .columns = x.dims[lead + 1] };
}

fn wantSquare(c: *Check) Error!Matrices {
    const m = try wantMatrices(c, 0);
    if (m.rows != m.columns) return c.failOperand(.operand_shape, 0);
    return m;
}

/// L and U in one matrix, the permutation of the rows, its sign.
pub fn lu(c: *Check) Error!void {
    const m = try wantSquare(c);
    const element = c.operands[0].dtype;
    try c.giveLike(element, c.operands[0].dims);
    try c.give(.i64, m.with(&.{m.rows}));
    try c.giveLike(element, m.lead);
}

/// A triangle `[.., n, n]` and right-hand sides `[.., n, k]` with the same leading axes.
pub fn triangularSolve(c: *Check) Error!void {
    const m = try wantSquare(c);
    try c.wantSameDType(1, 0);
    const b = try wantMatrices(c, 1);
    try c.wantDims(1, m.with(&.{ m.rows, b.columns }).slice());
    try c.giveLike(c.operands[1].dtype, c.operands[1].dims);
}

pub fn cholesky(c: *Check) Error!void {
    _ = try wantSquare(c);
    try c.giveLike(c.operands[0].dtype, c.operands[0].dims);
}

/// Q `[.., m, k]`, R `[.., k, n]`; k is m if complete, else the smaller of m and n.
pub fn qr(c: *Check) Error!void {
    const m = try wantMatrices(c, 0);
    const k = if (c.attr("complete")) m.rows else m.small();
    try c.give(c.operands[0].dtype, m.with(&.{ m.rows, k }));
    try c.give(c.operands[0].dtype, m.with(&.{ k, m.columns }));
}

/// Eigenvalues and, as columns, eigenvectors.
pub fn eigh(c: *Check) Error!void {
    const m = try wantSquare(c);
    try c.give(c.operands[0].dtype, m.with(&.{m.rows}));
    try c.giveLike(c.operands[0].dtype, c.operands[0].dims);
}

/// Left vectors as columns, singular values, right vectors as rows.
pub fn svd(c: *Check) Error!void {
    const m = try wantMatrices(c, 0);
    const k = m.small();
    try c.give(c.operands[0].dtype, m.with(&.{ m.rows, k }));
    try c.give(c.operands[0].dtype, m.with(&.{k}));
    try c.give(c.operands[0].dtype, m.with(&.{ k, m.columns }));
}
