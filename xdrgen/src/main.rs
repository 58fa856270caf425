//! The `xdrgen` command.
fn main() {}
