//! Data that can be checked byte by byte without a copy, because it follows from its key, its version and its length.

use bytes::Bytes;

/// Number of 8-byte words at the beginning of data that identify the content: key, version and length.
const NAMING: u64 = 3;

/// The identity of data, from which all its bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) key: u64,
    pub(crate) version: u64,
    pub(crate) len: usize,
}

impl Content {
    /// Returns the word of 8 bytes at `index`.
    fn word(self, index: u64) -> u64 {
        match index {
            0 => self.key,
            1 => self.version,
            2 => self.len as u64,
            _ => {
                // The generator splitmix64, at the place `index` of the sequence that key and version begin.
                let begin = self.key.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ self.version.rotate_left(32);
                let at = begin.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let at = (at ^ (at >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let at = (at ^ (at >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                at ^ (at >> 31)
            }
        }
    }

    /// Returns up to `len` bytes from `offset` on.
    pub(crate) fn bytes(self, offset: usize, len: usize) -> Bytes {
        let end = self.len.min(offset.saturating_add(len));
        let mut data = Vec::with_capacity(end.saturating_sub(offset) + 16);
        let skipped = offset % 8;
        for index in offset / 8..end.div_ceil(8) {
            data.extend_from_slice(&self.word(index as u64).to_le_bytes());
        }
        data.truncate(skipped + end.saturating_sub(offset));
        Bytes::from(data).split_off(skipped)
    }

    /// Returns all bytes of the content.
    pub(crate) fn all(self) -> Bytes {
        self.bytes(0, self.len)
    }

    /// Compares data that was read from `offset` on. The error reports how many bytes are surplus, or how many are
    /// wrong and where the first of them is.
    pub(crate) fn check(self, offset: usize, data: &[u8]) -> Result<(), String> {
        let expected = self.bytes(offset, data.len());
        if expected == data {
            return Ok(());
        }
        if expected.len() < data.len() {
            return Err(format!("{} bytes too many were read of {self:?}", data.len() - expected.len()));
        }
        let wrong = expected.iter().zip(data).position(|(expected, is)| expected != is).unwrap_or_default();
        let count = expected.iter().zip(data).filter(|(expected, is)| expected != is).count();
        let is = if offset == 0 { Self::named_in(data) } else { None };
        let is = is.map_or(String::new(), |is| format!(", the data is that of {is:?}"));
        Err(format!("{count} wrong bytes, the first at {}, in {self:?}{is}", offset + wrong))
    }

    /// Returns the content that the first words of `data` identify, if all of `data` belongs to this content.
    fn named_in(data: &[u8]) -> Option<Self> {
        let (words, _) = data.as_chunks();
        let named = words.get(..NAMING as usize)?;
        let [key, version, len] = [0, 1, 2].map(|index| u64::from_le_bytes(named[index]));
        let this = Self { key, version, len: usize::try_from(len).ok()? };
        (this.bytes(0, data.len()) == data).then_some(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: Content = Content { key: 7, version: 3, len: 1003 };

    #[test]
    fn parts_fit_together() {
        let all = CONTENT.all();
        assert_eq!(all.len(), 1003);
        for (offset, len) in [(0, 8), (1, 1), (5, 100), (996, 7), (1000, 50), (1003, 5), (2000, 1)] {
            let end = 1003.min(offset + len);
            assert_eq!(CONTENT.bytes(offset, len), all.get(offset..end).unwrap_or_default(), "{offset}+{len}");
        }
        assert_eq!(CONTENT.check(10, &all[10..500]), Ok(()));
        assert!(Content { len: 5, ..CONTENT }.all().len() == 5);
    }

    #[test]
    fn wrong_bytes_are_found() {
        let all = CONTENT.all();
        for at in [0, 23, 24, 1002] {
            let mut data = all.to_vec();
            data[at] ^= 1;
            let said = CONTENT.check(0, &data).unwrap_err();
            assert!(said.starts_with(&format!("1 wrong bytes, the first at {at}, ")), "{said}");
        }
        let other = Content { version: 4, ..CONTENT };
        let said = CONTENT.check(0, &other.all()).unwrap_err();
        assert!(said.ends_with(&format!("the data is that of {other:?}")), "{said}");
        let longer = Content { len: 1004, ..CONTENT };
        assert!(CONTENT.check(1000, &longer.bytes(1000, 4)).unwrap_err().starts_with("1 bytes too many"));
    }
}
