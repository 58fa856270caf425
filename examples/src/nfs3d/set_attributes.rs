//! The procedure SETATTR (RFC 1813 §3.3.2), and the setting of attributes from `sattr3` (§2.6).

use rpcrdma_specs::nfs3::{
    Nfsstat3, Nfstime3, Sattr3, Sattrguard3, SetAtime, SetGid3, SetMode3, SetMtime, SetSize3, SetUid3, Setattr3args,
    Setattr3res, Setattr3resfail, Setattr3resok, TimeHow, WccData,
};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid},
    io::Errno,
};

use super::{
    attributes::NO_WCC,
    export::Export,
    identity::Identity,
    object::Object,
    status::{NfsError, NfsResult},
};
use crate::nfs3::no_changes;

impl Export {
    /// Performs SETATTR as `who`. On success, the change is on stable storage.
    pub fn setattr(&self, who: &Identity, args: &Setattr3args) -> Setattr3res {
        let (obj_wcc, outcome) = self.setattr_wcc(who, args);
        match outcome {
            Ok(()) => Setattr3res::Ok(Setattr3resok { obj_wcc }),
            Err(refusal) => Setattr3res::Default(refusal.0, Setattr3resfail { obj_wcc }),
        }
    }

    fn setattr_wcc(&self, who: &Identity, args: &Setattr3args) -> (WccData, NfsResult<()>) {
        let object = match self.find(&args.object) {
            Ok(object) => object,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let locked = self.locks.one(object.id.ino);
        let before = match object.stat_now() {
            Ok(stat) => stat,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let outcome = match &args.guard {
            // The ctime is compared before the change, and under the lock (RFC 1813 §3.3.2).
            Sattrguard3::True(ctime) if *ctime != before.ctime() => Err(NfsError(Nfsstat3::NotSync)),
            _ => self.set(who, &object, &args.new_attributes),
        };
        let wcc = self.wcc(&before, &object);
        drop(locked);
        (wcc, outcome.and_then(|()| self.sync(&object)))
    }

    /// Sets the attributes of `new` as `who`, in this order: size, owner and group, mode, times. The system may clear
    /// mode bits when size or owner change. If one attribute is refused, the attributes before it remain set.
    pub(super) fn set(&self, who: &Identity, object: &Object, new: &Sattr3) -> NfsResult<()> {
        if *new == no_changes() {
            return Ok(());
        }
        if let SetSize3::True(size) = new.size {
            self.set_size(who, object, size)?;
        }
        let acting = self.identities.assume(who)?;
        let uid = match new.uid {
            SetUid3::True(uid) => Some(uid),
            SetUid3::False => None,
        };
        let gid = match new.gid {
            SetGid3::True(gid) => Some(gid),
            SetGid3::False => None,
        };
        if uid.is_some() || gid.is_some() {
            // For the system, -1 means unchanged.
            if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
                return Err(NfsError(Nfsstat3::Inval));
            }
            rustix::fs::chownat(object, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)?;
        }
        let (folder, name) = self.descriptors.name(object);
        if let SetMode3::True(mode) = new.mode
            // Symbolic links have no mode of their own.
            && object.stat.file_type() != FileType::Symlink
        {
            rustix::fs::chmodat(folder, name.as_c_str(), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if let Some(times) = times(new)? {
            rustix::fs::utimensat(folder, name.as_c_str(), &times, AtFlags::empty())?;
        }
        drop(acting);
        Ok(())
    }

    fn set_size(&self, who: &Identity, object: &Object, size: u64) -> NfsResult<()> {
        if object.stat.file_type() != FileType::RegularFile {
            return Err(NfsError(Nfsstat3::Inval));
        }
        let file = self.open_file(who, object, OFlags::WRONLY)?;
        // As for WRITE, root would keep the set-user-ID and set-group-ID bits.
        let _acting = self.identities.assume(who)?;
        rustix::fs::ftruncate(&file, size).map_err(|error| match error {
            // The system returns EINVAL for a size beyond the file system's limit.
            Errno::INVAL => NfsError(Nfsstat3::Fbig),
            other => other.into(),
        })
    }
}

/// Returns the times to set. Returns `None` if `new` has no times.
fn times(new: &Sattr3) -> NfsResult<Option<Timestamps>> {
    let last_access = match &new.atime {
        SetAtime::SetToClientTime(time) => explicit(time)?,
        SetAtime::Default(how) => implied(*how),
    };
    let last_modification = match &new.mtime {
        SetMtime::SetToClientTime(time) => explicit(time)?,
        SetMtime::Default(how) => implied(*how),
    };
    let omitted = last_access.tv_nsec == UTIME_OMIT && last_modification.tv_nsec == UTIME_OMIT;
    Ok((!omitted).then_some(Timestamps { last_access, last_modification }))
}

fn explicit(time: &Nfstime3) -> NfsResult<Timespec> {
    // The system gives some of the larger numbers a special meaning.
    if time.nseconds >= 1_000_000_000 {
        return Err(NfsError(Nfsstat3::Inval));
    }
    Ok(Timespec { tv_sec: time.seconds.into(), tv_nsec: time.nseconds.into() })
}

fn implied(how: TimeHow) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: if how == TimeHow::SetToServerTime { UTIME_NOW } else { UTIME_OMIT } }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn special_nanoseconds_are_rejected() {
        let nseconds =
            |nseconds| Sattr3 { mtime: SetMtime::SetToClientTime(Nfstime3 { seconds: 1, nseconds }), ..no_changes() };
        assert!(times(&no_changes()).unwrap().is_none());
        assert_eq!(times(&nseconds(999_999_999)).unwrap().unwrap().last_modification.tv_nsec, 999_999_999);
        for special in [1_000_000_000, UTIME_NOW as u32, UTIME_OMIT as u32, u32::MAX] {
            assert_eq!(times(&nseconds(special)).err(), Some(NfsError(Nfsstat3::Inval)));
        }
    }
}
