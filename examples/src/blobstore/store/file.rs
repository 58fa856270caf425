//! Platform-specific file operations: positioned reads and writes, and syncing a directory.

use std::{fs::File, io, path::Path};

/// Reads from `offset` until `buf` is full or the file ends, and returns the number of bytes read.
pub(super) fn read_full_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match read_at(file, rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(unix)]
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

/// Writes all of `data` at `offset`.
#[cfg(unix)]
pub(super) fn write_all_at(file: &File, data: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, data, offset)
}

/// Writes all of `data` at `offset`.
#[cfg(windows)]
pub(super) fn write_all_at(file: &File, mut data: &[u8], mut offset: u64) -> io::Result<()> {
    while !data.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, data, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => {
                data = data.get(len..).unwrap_or_default();
                offset = offset.saturating_add(len as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the creation, renaming and removal of entries in a directory durable.
#[cfg(unix)]
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Does nothing, because Windows journals directory entries and has no call that syncs a directory.
#[cfg(windows)]
pub(super) fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}
