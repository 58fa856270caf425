//! Limits on the nesting of recursive types, which encoders and decoders share.

/// Maximum stack use of the values of nested levels, in bytes. A thread has 2 MiB, and unoptimized code copies each value
/// several times.
pub(super) const MAX_FRAMES: usize = 128 << 10;

/// Default maximum number of nested levels of recursive types.
pub(super) const MAX_DEPTH: u32 = 100;
