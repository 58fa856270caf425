//! CRC32c (RFC 5044 §4.4), computed incrementally.
//!
//! Uses `crc-fast`, which folds with VPCLMULQDQ or PMULL if the processor has it. Measured against `crc32c`, which
//! interleaves the SSE 4.2 instruction: 58 against 26 GB/s at 64 KiB, 44 against 22 GB/s at 4 KiB, equal at 20 bytes.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// Returns the CRC field for one slice. Cheaper than a [`Crc32c`] for short slices.
#[inline]
pub(crate) fn of(bytes: &[u8]) -> [u8; 4] {
    crc32_iscsi(bytes).to_le_bytes()
}

/// An incremental CRC32c computation.
#[derive(Clone, Copy)]
pub(crate) struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Restarts the computation.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }

    /// Adds bytes to the computation.
    #[inline]
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.update(bytes);
        }
    }

    /// Returns the CRC field: least significant byte first, like iSCSI digests (RFC 5044 §4.4, figure 5).
    #[inline]
    pub(crate) fn bytes(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0.finalize().to_le_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_and_slices() {
        let mut crc = Crc32c::default();
        crc.update(b"123456789");
        assert_eq!(crc.bytes(), 0xe306_9283_u32.to_le_bytes());
        crc.reset();
        for part in [&b"1234"[..], b"", b"56789"] {
            crc.update(part);
        }
        assert_eq!(crc.bytes(), 0xe306_9283_u32.to_le_bytes());
        assert_eq!(of(b"123456789"), crc.bytes());
    }
}
