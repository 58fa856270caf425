//! Small file systems in memory, which can be filled.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

/// A file system of 128 MiB. Dropping this value unmounts the file system.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system at a directory.
    pub(crate) fn mount(at: &Path) -> anyhow::Result<Self> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", at, "tmpfs", flags, Some(c"size=128m,mode=755")).context("cannot mount a file system")?;
        Ok(Self(at.to_owned()))
    }

    /// Fills the disk, until the result is dropped.
    pub(crate) fn fill(&self) -> anyhow::Result<Ballast> {
        let path = self.0.join(".ballast");
        let file = File::create(&path).context("cannot fill the disk")?;
        let (ballast, mut end) = (Ballast(path), 0);
        for step in [1 << 20, 4 << 10] {
            loop {
                match fallocate(&file, FallocateFlags::empty(), end, step) {
                    Ok(()) => end += step,
                    Err(Errno::NOSPC) => break,
                    Err(error) => return Err(error).context("cannot fill the disk"),
                }
            }
        }
        Ok(ballast)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Servers that were just killed may still have open files.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A file that fills a disk. Dropping this value removes the file.
#[derive(Debug)]
pub(crate) struct Ballast(PathBuf);

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
