//! The exported functions. Each checks its pointers, finds its objects, calls one method and turns
//! the outcome into a status; nothing else happens here. Signatures and documentation are in
//! `abi_types.zig`.
const std = @import("std");
const abi = @import("abi_types.zig");
const builtin = @import("builtin");
const failure = @import("runtime/failure.zig");
const handles = @import("runtime/handle.zig");
const executor = @import("cpu/executor.zig");
const explain = @import("explain.zig");
const ir = @import("ir.zig");
const kernel_table = @import("cpu/kernel_table.zig");
const jobs = @import("runtime/job.zig");
const memory = @import("runtime/memory.zig");
const op = @import("op.zig");
const os = @import("os.zig");
const submission = @import("runtime/submission.zig");
const wire_format = @import("wire_format.zig");
const Buffer = @import("runtime/buffer.zig").Buffer;
const Executable = @import("runtime/executable.zig").Executable;
const Failure = failure.Failure;
const Handle = abi.Handle;
const Job = jobs.Job;
const Runtime = @import("runtime/runtime.zig").Runtime;
const Token = @import("runtime/control.zig").Token;
const table = &handles.table;

fn code(result: Failure!void) u32 {
    result catch |f| return @backingInt(failure.statusOf(f));
    return 0;
}

fn find(comptime T: type, handle: Handle) Failure!*T {
    return table.acquire(T, handle) orelse error.InvalidHandle;
}

fn given(pointer: anytype) Failure!@typeInfo(@TypeOf(pointer)).optional.child {
    return pointer orelse error.InvalidArgument;
}

/// Releases one owner of a handle, and the object with the last.
fn releaseHandle(comptime T: type, kind: handles.Kind, handle: Handle) Failure!?*T {
    var found = false;
    const object = table.release(kind, handle, &found);
    if (!found) return error.InvalidHandle;
    return @ptrCast(@alignCast(object));
}

pub export fn pet_library_info(out: ?*abi.LibraryInfo) callconv(.c) u32 {
    const info = out orelse return code(error.InvalidArgument);
    info.* = .{
        .abi_version = abi.abi_version,
        .wire_version = wire_format.version,
        .opcode_digest = op.table_digest,
        .opcode_count = op.count,
    };
    const name = @tagName(kernel_table.choose().isa);
    @memcpy(info.isa[0..name.len], name);
    @memcpy(info.zig_version[0..builtin.zig_version_string.len], builtin.zig_version_string);
    return 0;
}

pub export fn pet_runtime_create(
    options: ?*const abi.RuntimeOptions,
    out: ?*Handle,
) callconv(.c) u32 {
    return code(runtimeCreate(options, out));
}

fn runtimeCreate(options: ?*const abi.RuntimeOptions, out: ?*Handle) Failure!void {
    const to = try given(out);
    const runtime = try Runtime.create(if (options) |o| o.* else .{});
    errdefer runtime.drop();
    to.* = try table.insert(.runtime, runtime);
}

pub export fn pet_runtime_destroy(handle: Handle) callconv(.c) u32 {
    const runtime = (releaseHandle(Runtime, .runtime, handle) catch |f| return code(f)).?;
    runtime.close();
    runtime.drop();
    return 0;
}

pub export fn pet_runtime_set_threads(handle: Handle, thread_count: u32) callconv(.c) u32 {
    const runtime = find(Runtime, handle) catch |f| return code(f);
    defer runtime.drop();
    runtime.setThreads(thread_count);
    return 0;
}

pub export fn pet_runtime_stats(handle: Handle, out: ?*abi.RuntimeStats) callconv(.c) u32 {
    const to = out orelse return code(error.InvalidArgument);
    const runtime = find(Runtime, handle) catch |f| return code(f);
    defer runtime.drop();
    to.* = runtime.stats();
    return 0;
}

pub export fn pet_runtime_trim(handle: Handle) callconv(.c) u32 {
    const runtime = find(Runtime, handle) catch |f| return code(f);
    defer runtime.drop();
    runtime.trim();
    return 0;
}

pub export fn pet_buffer_create(
    runtime: Handle,
    bytes: u64,
    out: ?*Handle,
    out_data: ?*?[*]u8,
) callconv(.c) u32 {
    return code(bufferCreate(runtime, bytes, out, out_data));
}

fn bufferCreate(handle: Handle, bytes: u64, out: ?*Handle, out_data: ?*?[*]u8) Failure!void {
    const to = try given(out);
    const runtime = try find(Runtime, handle);
    defer runtime.drop();
    const buffer = try Buffer.create(runtime.store, bytes);
    errdefer buffer.drop();
    to.* = try table.insert(.buffer, buffer);
    if (out_data) |data| data.* = buffer.data();
}

pub export fn pet_buffer_import(
    runtime: Handle,
    data: ?[*]u8,
    bytes: u64,
    release: abi.Release,
    context: ?*anyopaque,
    out: ?*Handle,
) callconv(.c) u32 {
    const address = data orelse return code(error.InvalidArgument);
    const lent: Buffer.Foreign = .{ .address = address, .release = release, .context = context };
    return code(bufferImport(runtime, lent, bytes, out));
}

fn bufferImport(handle: Handle, lent: Buffer.Foreign, bytes: u64, out: ?*Handle) Failure!void {
    const to = try given(out);
    if (bytes > Buffer.bytes_max) return error.InvalidArgument;
    const runtime = try find(Runtime, handle);
    defer runtime.drop();
    const buffer = try Buffer.import(runtime.store, lent, bytes);
    errdefer {
        buffer.foreign = null; // a failure leaves the memory with the caller
        buffer.bytes = 0;
        buffer.drop();
    }
    to.* = try table.insert(.buffer, buffer);
}

pub export fn pet_buffer_retain(handle: Handle) callconv(.c) u32 {
    table.mutex.lock();
    defer table.mutex.unlock();
    const slot = table.findLocked(.buffer, handle) orelse return code(error.InvalidHandle);
    slot.owners += 1;
    return 0;
}

pub export fn pet_buffer_release(handle: Handle) callconv(.c) u32 {
    const buffer = releaseHandle(Buffer, .buffer, handle) catch |f| return code(f);
    if (buffer) |b| b.drop();
    return 0;
}

pub export fn pet_buffer_data(
    handle: Handle,
    out_data: ?*?[*]u8,
    out_bytes: ?*u64,
) callconv(.c) u32 {
    const buffer = find(Buffer, handle) catch |f| return code(f);
    defer buffer.drop();
    if (out_data) |data| data.* = buffer.data();
    if (out_bytes) |bytes| bytes.* = buffer.bytes;
    return 0;
}

pub export fn pet_buffer_export(handle: Handle, out: ?*Handle) callconv(.c) u32 {
    return code(bufferExport(handle, out));
}

fn bufferExport(handle: Handle, out: ?*Handle) Failure!void {
    const to = try given(out);
    table.mutex.lock();
    defer table.mutex.unlock();
    const slot = table.findLocked(.buffer, handle) orelse return error.InvalidHandle;
    const buffer: *Buffer = @ptrCast(@alignCast(slot.object));
    if (buffer.claimed) return error.InvalidHandle;
    try table.reserveLocked(1);
    buffer.refs.add();
    buffer.exports += 1;
    to.* = table.insertLocked(.exported, buffer);
}

pub export fn pet_buffer_unexport(handle: Handle) callconv(.c) u32 {
    const buffer = (releaseHandle(Buffer, .exported, handle) catch |f| return code(f)).?;
    table.mutex.lock();
    buffer.exports -= 1;
    table.mutex.unlock();
    buffer.drop();
    return 0;
}

pub export fn pet_token_create(out: ?*Handle) callconv(.c) u32 {
    return code(tokenCreate(out));
}

fn tokenCreate(out: ?*Handle) Failure!void {
    const to = try given(out);
    const token = try Token.create();
    errdefer token.drop();
    to.* = try table.insert(.token, token);
}

pub export fn pet_token_cancel(handle: Handle) callconv(.c) u32 {
    const token = find(Token, handle) catch |f| return code(f);
    defer token.drop();
    token.cancel();
    return 0;
}

pub export fn pet_token_release(handle: Handle) callconv(.c) u32 {
    const token = (releaseHandle(Token, .token, handle) catch |f| return code(f)).?;
    token.drop();
    return 0;
}

pub export fn pet_compile_submit(
    runtime: Handle,
    bytes: ?[*]const u8,
    byte_count: u64,
    options: ?*const abi.CompileOptions,
    token: Handle,
    out_job: ?*Handle,
) callconv(.c) u32 {
    const pointer = bytes orelse return code(error.InvalidArgument);
    const to = out_job orelse return code(error.InvalidArgument);
    const program = pointer[0..byte_count];
    return code(submission.compile(runtime, program, if (options) |o| o.* else .{}, token, to));
}

pub export fn pet_run_submit(
    executable: Handle,
    inputs: ?[*]const Handle,
    input_count: u32,
    outputs: ?[*]Handle,
    output_count: u32,
    token: Handle,
    out_job: ?*Handle,
    out_error: ?*abi.Error,
) callconv(.c) u32 {
    return submitRun(.{
        .executable = executable,
        .inputs = inputs,
        .input_count = input_count,
        .outputs = outputs,
        .output_count = output_count,
        .token = token,
    }, out_job, out_error);
}

pub export fn pet_run_profile(
    executable: Handle,
    inputs: ?[*]const Handle,
    input_count: u32,
    outputs: ?[*]Handle,
    output_count: u32,
    token: Handle,
    records: ?[*]abi.Record,
    record_count: u32,
    out_job: ?*Handle,
    out_error: ?*abi.Error,
) callconv(.c) u32 {
    if (record_count > 0 and records == null) return code(error.InvalidArgument);
    return submitRun(.{
        .executable = executable,
        .inputs = inputs,
        .input_count = input_count,
        .outputs = outputs,
        .output_count = output_count,
        .token = token,
        .records = if (record_count > 0) records.?[0..record_count] else &.{},
    }, out_job, out_error);
}

const RunRequest = struct {
    executable: Handle,
    inputs: ?[*]const Handle,
    input_count: u32,
    outputs: ?[*]Handle,
    output_count: u32,
    token: Handle,
    records: []abi.Record = &.{},
};

fn submitRun(r: RunRequest, out_job: ?*Handle, out_error: ?*abi.Error) u32 {
    var local: abi.Error = undefined;
    const e = out_error orelse &local;
    e.* = .{};
    const to = out_job orelse return code(error.InvalidArgument);
    to.* = 0;
    if (r.input_count > 0 and r.inputs == null) return code(error.InvalidArgument);
    if (r.output_count > 0 and r.outputs == null) return code(error.InvalidArgument);
    const from: []const Handle = if (r.input_count > 0) r.inputs.?[0..r.input_count] else &.{};
    const made: []Handle = if (r.output_count > 0) r.outputs.?[0..r.output_count] else &.{};
    submission.run(r.executable, from, made, r.token, r.records, to, e) catch |f| {
        return @backingInt(failure.finish(e, f));
    };
    return 0;
}

pub export fn pet_job_wait(
    handle: Handle,
    slice_ms: u32,
    done: ?*u32,
    out_error: ?*abi.Error,
) callconv(.c) u32 {
    const flag = done orelse return code(error.InvalidArgument);
    flag.* = 0;
    const job = find(Job, handle) catch |f| return code(f);
    defer job.drop();
    return submission.wait(job, slice_ms, flag, out_error);
}

pub export fn pet_job_host_call(
    handle: Handle,
    out: ?*abi.HostCall,
    operands: ?[*]abi.HostOperand,
    capacity: u32,
) callconv(.c) u32 {
    const to = out orelse return code(error.InvalidArgument);
    const job = find(Job, handle) catch |f| return code(f);
    defer job.drop();
    if (capacity > 0 and operands == null) return code(error.InvalidArgument);
    const room: []abi.HostOperand = if (capacity > 0) operands.?[0..capacity] else &.{};
    const request = job.hostCall() catch |f| return code(f);
    describeHostCall(request, to, room);
    return 0;
}

fn describeHostCall(
    request: *const executor.HostRequest,
    to: *abi.HostCall,
    room: []abi.HostOperand,
) void {
    const call = request.call;
    to.* = .{
        .id = call.id,
        .operand_count = @intCast(call.operands.len),
        .block = request.instruction.block,
        .instruction = request.instruction.origin,
        .source = request.instruction.source,
    };
    const count = @min(room.len, call.operands.len);
    const wanted = call.operands[0..count];
    for (room[0..count], wanted, request.operands[0..count]) |*out, operand, data| {
        const t: ir.Type = .{ .dtype = operand.dtype, .dims = operand.dims };
        out.* = .{
            .dtype = @backingInt(operand.dtype),
            .rank = @intCast(t.rank()),
            .data = data,
            .bytes = t.byteCount(),
        };
        @memcpy(out.dims[0..t.rank()], t.dims);
    }
}

pub export fn pet_job_answer(handle: Handle, answer: i64) callconv(.c) u32 {
    const job = find(Job, handle) catch |f| return code(f);
    defer job.drop();
    return code(job.answer(answer));
}

pub export fn pet_job_cancel(handle: Handle) callconv(.c) u32 {
    const job = find(Job, handle) catch |f| return code(f);
    defer job.drop();
    _ = job.control.cancel();
    return 0;
}

pub export fn pet_job_result(handle: Handle, out: ?[*]Handle, capacity: u32) callconv(.c) u32 {
    const job = find(Job, handle) catch |f| return code(f);
    defer job.drop();
    if (capacity > 0 and out == null) return code(error.InvalidArgument);
    return code(job.takeResults(if (capacity > 0) out.?[0..capacity] else &.{}));
}

pub export fn pet_job_release(handle: Handle) callconv(.c) u32 {
    const job = (releaseHandle(Job, .job, handle) catch |f| return code(f)).?;
    submission.release(job);
    return 0;
}

pub export fn pet_executable_bind(handle: Handle, input: u32, buffer: Handle) callconv(.c) u32 {
    const executable = find(Executable, handle) catch |f| return code(f);
    defer executable.drop();
    return code(executable.bind(input, buffer));
}

pub export fn pet_executable_clone(handle: Handle, out: ?*Handle) callconv(.c) u32 {
    return code(executableClone(handle, out));
}

fn executableClone(handle: Handle, out: ?*Handle) Failure!void {
    const to = try given(out);
    const executable = try find(Executable, handle);
    defer executable.drop();
    executable.shared.refs.add();
    const clone = try Executable.create(executable.runtime, executable.shared);
    errdefer clone.drop();
    to.* = try table.insert(.executable, clone);
}

pub export fn pet_executable_info(handle: Handle, out: ?*abi.ExecutableInfo) callconv(.c) u32 {
    const to = out orelse return code(error.InvalidArgument);
    const executable = find(Executable, handle) catch |f| return code(f);
    defer executable.drop();
    to.* = executable.info();
    return 0;
}

pub export fn pet_executable_explain(
    handle: Handle,
    text: ?[*]u8,
    capacity: u64,
    needed: ?*u64,
) callconv(.c) u32 {
    return code(executableExplain(handle, text, capacity, needed));
}

fn executableExplain(handle: Handle, text: ?[*]u8, capacity: u64, needed: ?*u64) Failure!void {
    const length = try given(needed);
    const executable = try find(Executable, handle);
    defer executable.drop();
    var writer: std.Io.Writer.Allocating = .init(memory.gpa);
    defer writer.deinit();
    const copied = executable.donations_copied.load(.monotonic);
    explain.write(&executable.shared.plan, copied, &writer.writer) catch return error.OutOfMemory;
    const json = writer.written();
    length.* = json.len;
    if (capacity == 0 or json.len > capacity) return;
    @memcpy((try given(text))[0..json.len], json);
}

pub export fn pet_executable_release(handle: Handle) callconv(.c) u32 {
    const executable = (releaseHandle(Executable, .executable, handle) catch |f| return code(f)).?;
    executable.drop();
    return 0;
}

pub export fn pet_debug_fail_allocations(enable: u32) callconv(.c) u32 {
    memory.failAllocations(enable != 0);
    return 0;
}

comptime {
    @setEvalBranchQuota(10_000);
    for (abi.functions) |function| {
        const signature = @typeInfo(@TypeOf(@field(@This(), function.name))).@"fn";
        if (signature.return_type != u32) @compileError(function.name ++ " must return a status");
        for (function.parameters, signature.param_types) |parameter, T| {
            if (parameter.T != T) @compileError(function.name ++ ": type of " ++ parameter.name);
        }
    }
}
