//! The blocks of a program: each is a complete program of its own, decoded by a decoder of its own,
//! with the locations of the root. What runs a block comes after it in the file.
const std = @import("std");
const assert = std.debug.assert;
const ir = @import("ir.zig");
const wire = @import("wire.zig");
const wire_format = @import("wire_format.zig");

const Decoder = wire.Decoder;
const Error = wire.Error;
const Header = wire_format.Header;
const SectionId = wire_format.SectionId;

/// The programs of section `blocks`. `locations` are those of the root.
pub fn read(d: *Decoder, locations: []const ir.Location) Error![]const ir.Program {
    const contents = d.sections[@backingInt(SectionId.blocks)];
    assert(!d.is_block or contents.len == 0);
    const count = try countBlocks(d, contents);
    const blocks = try d.arena.alloc(ir.Program, count);
    var start: usize = 0;
    for (blocks, 0..) |*block, k| {
        const bytes = contents[start..][0..blockBytes(contents, start).?];
        block.* = try decodeBlock(d, @alignCast(bytes), k);
        block.locations = locations;
        start += bytes.len;
    }
    assert(start == contents.len);
    try readSources(d, blocks, locations.len);
    return blocks;
}

/// The length that the block at `start` says it has; null if that is no length.
fn blockBytes(contents: []const u8, start: usize) ?usize {
    const left = contents.len - start;
    if (left < @sizeOf(Header)) return null;
    const header = std.mem.bytesToValue(Header, contents[start..][0..@sizeOf(Header)]);
    if (header.total_bytes < @sizeOf(Header) or header.total_bytes > left) return null;
    if (header.total_bytes % wire_format.section_alignment != 0) return null;
    return @intCast(header.total_bytes);
}

fn countBlocks(d: *Decoder, contents: []const u8) Error!usize {
    var start: usize = 0;
    var count: usize = 0;
    while (start < contents.len) : (count += 1) {
        start += blockBytes(contents, start) orelse
            return d.failAt(.block_out_of_bounds, .blocks, 1, start);
    }
    if (count > d.limits.block_count_max) return d.failAt(.too_many_blocks, .blocks, 1, 0);
    return count;
}

fn decodeBlock(d: *Decoder, bytes: []align(8) const u8, k: usize) Error!ir.Program {
    var inner: Decoder = .{
        .arena = d.arena,
        .bytes = bytes,
        .limits = d.limits,
        .diagnostic = d.diagnostic,
        .header = undefined,
        .is_block = true,
    };
    return inner.decodeAll() catch |e| {
        // Places are counted from the start of the whole program.
        d.diagnostic.offset += @intFromPtr(bytes.ptr) - @intFromPtr(d.bytes.ptr);
        d.diagnostic.block = @intCast(k);
        return e;
    };
}

/// Every block that an instruction of the root or of a block runs comes before, and not too many
/// run inside each other.
pub fn checkNumbers(d: *Decoder, root: *const ir.Program) Error!void {
    const depths = try d.arena.alloc(u64, root.blocks.len);
    for (root.blocks, depths, 0..) |*block, *depth, k| {
        errdefer d.diagnostic.block = @intCast(k);
        depth.* = 1 + try depthInside(d, block, depths[0..k]);
        if (depth.* > d.limits.block_depth_max) return d.failAt(.block_depth, .blocks, 1, 0);
    }
    _ = try depthInside(d, root, depths);
}

/// The depth of the deepest block that `program` runs, of those with `depths`.
fn depthInside(d: *Decoder, program: *const ir.Program, depths: []const u64) Error!u64 {
    var deepest: u64 = 0;
    for (0..program.instructionCount()) |i| {
        var numbers = program.blockNumbers(.at(i));
        while (numbers.next()) |number| {
            if (number < 0 or number >= depths.len) {
                d.diagnostic.instruction = @intCast(i);
                return d.fail(.bad_block, .attrs, 0);
            }
            deepest = @max(deepest, depths[@intCast(number)]);
        }
    }
    return deepest;
}

/// One location index for each instruction of each block.
fn readSources(d: *Decoder, blocks: []ir.Program, location_count: usize) Error!void {
    const sources = try d.records(u32, .block_sources);
    if (sources.len == 0) return;
    var next: usize = 0;
    for (blocks) |*block| {
        const count = block.instructionCount();
        if (count > sources.len - next) return d.failAt(.section_size, .block_sources, 4, next);
        block.sources = sources[next..][0..count];
        next += count;
    }
    if (next != sources.len) return d.failAt(.section_size, .block_sources, 4, next);
    for (sources, 0..) |source, i| {
        if (source > location_count) return d.failAt(.source_out_of_range, .block_sources, 4, i);
    }
}
