//! Lowering of the linear algebra opcodes: one kernel for all of them, on operands of any strides.
const linalg = @import("cpu/linalg.zig");
const lowering = @import("lower.zig");
const Error = lowering.Error;
const Lowering = lowering.Lowering;
const Ref = lowering.Ref;

pub fn lower(l: *Lowering, kind: linalg.Op) Error!void {
    const values = l.program.operandsOf(l.origin);
    const a = l.shape(values[0]);
    const b = if (values.len > 1) l.shape(values[1]) else null;
    const options: linalg.Options = switch (kind) {
        .triangular_solve => .{
            .lower = l.attr("lower"),
            .transpose = l.attr("transpose"),
            .unit_diagonal = l.attr("unit_diagonal"),
        },
        .qr => .{ .complete = l.attr("complete") },
        // The vectors cost several times the values: they are computed for a reader only.
        .eigh => .{ .vectors = isRead(l, 1) },
        .svd => .{ .vectors = isRead(l, 0) or isRead(l, 2) },
        .lu, .cholesky => .{},
    };
    const geometry = linalg.plan(kind, &a, if (b) |*rhs| rhs else null, options);
    const results = try l.gpa.alloc(Ref, l.program.resultCount(l.origin));
    for (results, 0..) |*r, k| r.* = try l.define(l.result(k));
    const operands = try l.gpa.alloc(Ref, values.len);
    for (operands, values) |*r, v| r.* = l.ref(v);
    try l.emitStruct(.linalg, &geometry, results, operands, .{});
}

fn isRead(l: *const Lowering, result: usize) bool {
    return l.needs.isStored(l.result(result));
}
