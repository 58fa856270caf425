//! The limits on the nested levels of recursive types.

use super::EncodeError;

/// Maximum stack use of the values of nested levels, in bytes. A thread has 2 MiB, and unoptimized code copies each
/// value several times.
pub(super) const MAX_FRAMES: usize = 128 << 10;

/// Default maximum number of nested levels of recursive types.
pub(super) const MAX_DEPTH: u32 = 100;

/// A counter of nested levels, with the same limits for encoders and, by default, decoders. The equal limits ensure
/// that a peer with these limits can decode each value that was encoded. The limits protect the stack (RFC 4506 §8).
#[derive(Debug, Clone, Copy, Default)]
#[doc(hidden)]
pub struct NestedLevels {
    depth: u32,
    /// Size of the values of all open levels, in bytes.
    frames: usize,
}

impl NestedLevels {
    /// See [`Sink::enter`](super::Sink::enter).
    ///
    /// # Errors
    /// Returns [`EncodeError::TooDeep`] if there are too many levels, or if their values use too much stack.
    pub fn enter(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.enter_within(bytes, MAX_DEPTH).map_err(|max| EncodeError::TooDeep { max })
    }

    /// Enters a level. Fails if there are `max_depth` levels already, or if the values of several levels use too much
    /// stack. The error is the maximum number of levels that would have been accepted.
    #[inline]
    pub(super) fn enter_within(&mut self, bytes: usize, max_depth: u32) -> Result<(), u32> {
        if self.depth >= max_depth {
            return Err(max_depth);
        }
        self.frames = self.frames.saturating_add(bytes);
        if self.frames > MAX_FRAMES && self.depth > 0 {
            return Err(self.depth);
        }
        self.depth += 1;
        Ok(())
    }

    /// See [`Sink::leave`](super::Sink::leave).
    #[inline]
    pub fn leave(&mut self, bytes: usize) {
        self.frames = self.frames.saturating_sub(bytes);
        self.depth = self.depth.saturating_sub(1);
    }
}
