//! Ranges of files: regions with data, and pieces for single calls.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

/// Maximum number of extents to look for. The rest of the file is treated as one more extent, including its holes.
const MAX_EXTENTS: usize = 1 << 16;

/// Returns the regions of a file of `size` bytes that contain data. The rest are holes, as far as the file system
/// reports them.
pub(super) fn extents(file: &File, size: u64) -> Vec<Range<u64>> {
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size && extents.len() < MAX_EXTENTS {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No more data.
            Err(Errno::NXIO) => return extents,
            // The file system does not report holes.
            Err(_) => break,
        };
        let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        if start < at || end <= start {
            break;
        }
        extents.push(start..end);
        at = end;
    }
    if at < size && extents.last().is_none_or(|last| last.end <= at) {
        extents.push(at..size);
    }
    extents
}

/// Splits `range` into pieces of at most `len` bytes. Each piece is a pair of an offset and a length.
pub(super) fn chunks_of(range: Range<u64>, len: u32) -> impl Iterator<Item = (u64, u32)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
        let piece = (at, u32::try_from(left).unwrap_or(u32::MAX).min(len.max(1)));
        at += u64::from(piece.1);
        Some(piece)
    })
}

/// The granularity of holes, in bytes. It is the common block size of file systems.
const BLOCK: usize = 4096;

/// Writes `data` at `offset`. If `sparse` is `true`, skips blocks of zeros, which leaves holes.
pub(super) fn write_at(file: &File, data: &[u8], offset: u64, sparse: bool) -> io::Result<()> {
    if !sparse {
        return file.write_all_at(data, offset);
    }
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut at = 0;
    while at < data.len() {
        let blocks = data[at..].chunks(BLOCK);
        let zeros: usize = blocks.take_while(|block| is_zero(block)).map(<[u8]>::len).sum();
        let blocks = data[at + zeros..].chunks(BLOCK);
        let len: usize = blocks.take_while(|block| !is_zero(block)).map(<[u8]>::len).sum();
        let start = at + zeros;
        file.write_all_at(&data[start..start + len], offset + start as u64)?;
        at = start + len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn pieces_cover_a_range_once() {
        let all = |range, len| chunks_of(range, len).collect::<Vec<_>>();
        assert_eq!(all(0..0, 5), []);
        assert_eq!(all(3..4, 5), [(3, 1)]);
        assert_eq!(all(0..10, 5), [(0, 5), (5, 5)]);
        assert_eq!(all(1..12, 5), [(1, 5), (6, 5), (11, 1)]);
        assert_eq!(chunks_of(0..u64::MAX, u32::MAX).next(), Some((0, u32::MAX)));
    }

    #[test]
    fn data_is_found_between_holes() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(extents(&file, 0), []);
        file.write_all_at(&[1; 100], 0).unwrap();
        file.write_all_at(&[2; 100], 1 << 20).unwrap();
        file.set_len(3 << 20).unwrap();
        let found = extents(&file, 3 << 20);
        // File systems without holes report data everywhere.
        assert!(found.iter().any(|range| range.contains(&0)) && found.iter().any(|range| range.contains(&(1 << 20))));
        assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert!(matches!(&extents(&file, 50)[..], [whole] if *whole == (0..50)));
    }

    #[test]
    fn blocks_of_zeros_are_skipped() {
        for len in [0, 1, BLOCK, 3 * BLOCK + 7] {
            for (first, second) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                let data: Vec<u8> = [vec![first; BLOCK], vec![second; len], vec![0; BLOCK]].concat();
                let mut file = tempfile::tempfile().unwrap();
                file.set_len(data.len() as u64).unwrap();
                write_at(&file, &data, 0, true).unwrap();
                let mut read = Vec::new();
                file.read_to_end(&mut read).unwrap();
                assert!(read == data, "{len} {first} {second}");
            }
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        write_at(&file, &vec![0; 1 << 20], 0, true).unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }
}
