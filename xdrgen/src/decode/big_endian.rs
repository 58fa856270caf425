//! Reading of big-endian numbers from captured bytes.

/// Returns the 32-bit big-endian number at the byte offset `at`. Returns `None` if `bytes` is too short.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the 64-bit big-endian number at the byte offset `at`. Returns `None` if `bytes` is too short.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_be_bytes)
}
