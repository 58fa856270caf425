//! The record at the end of each blob file, which describes the blob.
//!
//! A file consists of the data, the attachment and the record. The data starts at offset 0, so offsets in the blob
//! equal offsets in the file.

use super::Stat;
use crate::blobstore::ValidName;

/// Length of a record, in bytes.
pub(super) const RECORD_LEN: usize = 512;
const MAGIC: &[u8; 8] = b"rrblob01";
const SEAL_AT: usize = RECORD_LEN - 32;
const NAME_AT: usize = 72;

/// Encodes a record. Numbers are big-endian, and unused bytes are zero. A digest of all preceding bytes is at the end.
pub(super) fn encode(name: &ValidName, stat: &Stat) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    let name = name.as_str().as_bytes();
    let parts: [&[u8]; 7] = [
        MAGIC,
        &stat.size.to_be_bytes(),
        &u64::from(stat.attachment_len).to_be_bytes(),
        &stat.modified.to_be_bytes(),
        &stat.digest,
        &(name.len() as u64).to_be_bytes(),
        name,
    ];
    let mut at = 0;
    for part in parts {
        record[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let seal = blake3::hash(&record[..SEAL_AT]);
    record[SEAL_AT..].copy_from_slice(seal.as_bytes());
    record
}

/// Decodes a record. Returns `None` if it is invalid or does not match a file of `file_len` bytes.
pub(super) fn decode(record: &[u8; RECORD_LEN], file_len: u64) -> Option<(ValidName, Stat)> {
    let number = |at: usize| record.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
    let sealed = blake3::hash(&record[..SEAL_AT]).as_bytes() == &record[SEAL_AT..];
    if !sealed || !record.starts_with(MAGIC) {
        return None;
    }
    let stat = Stat {
        size: number(8)?,
        attachment_len: u32::try_from(number(16)?).ok()?,
        modified: number(24)?,
        digest: record.get(32..64)?.try_into().ok()?,
    };
    let name_len = usize::try_from(number(64)?).ok()?;
    let name = ValidName::parse(record[NAME_AT..SEAL_AT].get(..name_len)?).ok()?;
    (stat.file_len()? == file_len).then_some((name, stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_a_damaged_one_does_not() {
        let name = ValidName::parse("x/".repeat(127).trim_end_matches('/').as_bytes()).unwrap();
        let stat = Stat { size: 7, attachment_len: 5, modified: u64::MAX, digest: [3; 32] };
        let record = encode(&name, &stat);
        assert_eq!(decode(&record, 524), Some((name, stat)));
        assert_eq!(decode(&record, 525), None, "a truncated or extended file");
        for at in 0..RECORD_LEN {
            let mut damaged = record;
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged, 524), None, "byte {at}");
        }
    }
}
