//! Collects the tests of every file.
test {
    _ = @import("abi_types.zig");
}
