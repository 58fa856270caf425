//! Conversion of file attributes between NFS and the local file system.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt as _,
    time::{Duration, SystemTime},
};

use rpcrdma_specs::nfs3::{Fattr3, Nfstime3, Sattr3, SetAtime, SetMode3, SetMtime, SetSize3};

use crate::nfs3::{self, no_changes};

/// Mode bits that a new file gets from its source.
pub(super) const PERMISSIONS: u32 = 0o777;
/// Mode bits that `-p` preserves. The set-user-ID and set-group-ID bits of files are kept only if the copy has the same
/// owner or group.
pub(super) const ALL_MODE: u32 = 0o7777;

/// Returns the attributes of a SETATTR that sets only the mode.
pub(super) fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: SetMode3::True(mode), ..no_changes() }
}

/// Returns the attributes of a SETATTR that sets only the size, in bytes.
pub(super) fn size(size: u64) -> Sattr3 {
    Sattr3 { size: SetSize3::True(size), ..no_changes() }
}

/// The attributes that `-p` preserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreservedAttributes {
    pub(super) mode: u32,
    pub(super) accessed: SystemTime,
    pub(super) modified: SystemTime,
}

impl From<&Metadata> for PreservedAttributes {
    fn from(meta: &Metadata) -> Self {
        let time = |time: std::io::Result<SystemTime>| time.unwrap_or(SystemTime::UNIX_EPOCH);
        Self { mode: meta.mode() & ALL_MODE, accessed: time(meta.accessed()), modified: time(meta.modified()) }
    }
}

impl From<&Fattr3> for PreservedAttributes {
    fn from(attributes: &Fattr3) -> Self {
        Self {
            mode: attributes.mode & ALL_MODE,
            accessed: from_wire(&attributes.atime),
            modified: from_wire(&attributes.mtime),
        }
    }
}

impl PreservedAttributes {
    /// Returns the attributes that a copy gets. `copy` and `of` are the owners `(uid, gid)` of the copy and of the
    /// source. If the user or the group differs, the set-user-ID or set-group-ID bit is cleared, because the copy must
    /// not run with the rights of another user or group.
    pub(super) fn for_copy(self, copy: (u32, u32), of: (u32, u32)) -> Self {
        let user = if copy.0 == of.0 { 0 } else { 0o4000 };
        let group = if copy.1 == of.1 { 0 } else { 0o2000 };
        Self { mode: self.mode & !(user | group), ..self }
    }

    /// Converts to the attributes of SETATTR. `with_mode` is `false` for symbolic links, whose mode is meaningless.
    pub(super) fn to_wire(self, with_mode: bool) -> Sattr3 {
        Sattr3 {
            mode: if with_mode { SetMode3::True(self.mode) } else { SetMode3::False },
            atime: SetAtime::SetToClientTime(to_wire(self.accessed)),
            mtime: SetMtime::SetToClientTime(to_wire(self.modified)),
            ..no_changes()
        }
    }
}

fn from_wire(time: &Nfstime3) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(time.seconds.into()) + Duration::from_nanos(time.nseconds.into())
}

fn to_wire(time: SystemTime) -> Nfstime3 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => nfs3::time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
        Err(_) => nfs3::time(-1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_kept_for_the_same_owner_only() {
        let of = |copy| {
            let (accessed, modified) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
            PreservedAttributes { mode: 0o7755, accessed, modified }.for_copy(copy, (7, 8)).mode
        };
        assert_eq!([of((7, 8)), of((7, 0)), of((0, 8)), of((0, 0))], [0o7755, 0o5755, 0o3755, 0o1755]);
    }

    #[test]
    fn times_round_trip() {
        for (seconds, nseconds) in [(0, 0), (1, 999_999_999), (u32::MAX, 5)] {
            let wire = Nfstime3 { seconds, nseconds };
            assert_eq!(to_wire(from_wire(&wire)), wire);
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(to_wire(before), Nfstime3 { seconds: 0, nseconds: 0 });
        let after = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 33);
        assert_eq!(to_wire(after), Nfstime3 { seconds: u32::MAX, nseconds: 999_999_999 });
        // A peer may send an invalid number of nanoseconds.
        from_wire(&Nfstime3 { seconds: u32::MAX, nseconds: u32::MAX });
    }
}
