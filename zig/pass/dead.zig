//! Dead code: which instructions an output or an effect needs. An instruction nobody needs is not
//! run, so it raises nothing either. The answer is a table; the program stays as it is.
const std = @import("std");
const Allocator = std.mem.Allocator;
const ir = @import("../ir.zig");
const Program = ir.Program;

/// By instruction: true if it has an effect, or if some output or effect depends on it.
pub fn run(gpa: Allocator, program: *const Program) Allocator.Error![]bool {
    const live = try gpa.alloc(bool, program.instructionCount());
    @memset(live, false);
    const first_result = program.firstResult();
    for (program.outputs) |output| mark(program, live, first_result, output.value);
    var index = live.len;
    while (index > 0) {
        index -= 1;
        if (!live[index] and !program.hasEffect(.at(index))) continue;
        live[index] = true;
        for (program.operandsOf(.at(index))) |v| mark(program, live, first_result, v);
    }
    return live;
}

fn mark(program: *const Program, live: []bool, first_result: usize, v: ir.ValueId) void {
    if (v.index() < first_result) return;
    live[program.result_instruction[v.index() - first_result].index()] = true;
}
