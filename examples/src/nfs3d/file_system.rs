//! The procedures FSSTAT (RFC 1813 §3.3.18), FSINFO (§3.3.19) and PATHCONF (§3.3.20).

use rpcrdma_specs::nfs3::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, Fsinfo3args, Fsinfo3res, Fsinfo3resfail, Fsinfo3resok,
    Fsstat3args, Fsstat3res, Fsstat3resfail, Fsstat3resok, Nfstime3, Pathconf3args, Pathconf3res, Pathconf3resfail,
    Pathconf3resok, PostOpAttr,
};
use rustix::fs::StatVfs;

use super::{export::Export, name::NAME_MAX, object::Object, status::NfsResult};

/// Maximum number of data bytes in a READ or WRITE. The server of Linux 7.3 offers the same maximum. The client of
/// Linux requests up to 1 MiB.
pub const DATA_MAX: u32 = 4 << 20;
/// The smallest limit that [`with_max_transfer`](Export::with_max_transfer) sets, in bytes. It is the size of a page.
const DATA_MIN: u32 = 4096;
/// Maximum size of a READDIR or READDIRPLUS reply, in bytes.
pub(super) const DIRECTORY_MAX: u32 = 1 << 20;
/// Maximum file size, in bytes. It follows from the signed offsets of the system. A file system with a lower limit
/// enforces that itself.
pub(super) const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Preferred size of a READDIR reply, in bytes.
const DIRECTORY_PREFERRED: u32 = 64 << 10;
/// Maximum number of links to a file that PATHCONF reports. Common file systems allow more (65000 on ext4, more on XFS
/// and Btrfs).
const LINK_MAX: u32 = 32_000;

impl Export {
    /// Sets the maximum number of data bytes in a READ or WRITE, which FSINFO offers. It is `bytes`, rounded down to a
    /// multiple of 4096, but at least 4096 and at most [`DATA_MAX`], which is the default. A longer READ or WRITE
    /// transfers only the first part of its data.
    #[must_use]
    pub fn with_max_transfer(mut self, bytes: u64) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(DATA_MIN, DATA_MAX);
        self.max_transfer = bytes - bytes % DATA_MIN;
        self
    }

    /// Performs FSSTAT. The available space in the result is the space for unprivileged users.
    pub fn fsstat(&self, args: &Fsstat3args) -> Fsstat3res {
        match self.find(&args.fsroot).and_then(|object| Ok((statvfs(&object)?, object))) {
            Ok((of, object)) => Fsstat3res::Ok(Fsstat3resok {
                obj_attributes: PostOpAttr::True(object.stat.attributes(self.fsid)),
                tbytes: of.f_blocks.saturating_mul(of.f_frsize),
                fbytes: of.f_bfree.saturating_mul(of.f_frsize),
                abytes: of.f_bavail.saturating_mul(of.f_frsize),
                tfiles: of.f_files,
                ffiles: of.f_ffree,
                afiles: of.f_favail,
                // The values may change at any time.
                invarsec: 0,
            }),
            Err(refusal) => Fsstat3res::Default(refusal.0, Fsstat3resfail { obj_attributes: PostOpAttr::False }),
        }
    }

    /// Performs FSINFO. The maximum and preferred sizes of READ and WRITE are the limit of
    /// [`with_max_transfer`](Self::with_max_transfer).
    pub fn fsinfo(&self, args: &Fsinfo3args) -> Fsinfo3res {
        match self.find(&args.fsroot) {
            Ok(object) => Fsinfo3res::Ok(Fsinfo3resok {
                obj_attributes: PostOpAttr::True(object.stat.attributes(self.fsid)),
                rtmax: self.max_transfer,
                rtpref: self.max_transfer,
                rtmult: 4096,
                wtmax: self.max_transfer,
                wtpref: self.max_transfer,
                wtmult: 4096,
                dtpref: DIRECTORY_PREFERRED,
                maxfilesize: FILE_SIZE_MAX,
                time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
                properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
            }),
            Err(refusal) => Fsinfo3res::Default(refusal.0, Fsinfo3resfail { obj_attributes: PostOpAttr::False }),
        }
    }

    /// Performs PATHCONF. The maximum length of names is that of the file system, but at most [`NAME_MAX`].
    pub fn pathconf(&self, args: &Pathconf3args) -> Pathconf3res {
        match self.find(&args.object).and_then(|object| Ok((statvfs(&object)?, object))) {
            Ok((of, object)) => Pathconf3res::Ok(Pathconf3resok {
                obj_attributes: PostOpAttr::True(object.stat.attributes(self.fsid)),
                linkmax: LINK_MAX,
                name_max: of.f_namemax.min(NAME_MAX as u64) as u32,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
            Err(refusal) => Pathconf3res::Default(refusal.0, Pathconf3resfail { obj_attributes: PostOpAttr::False }),
        }
    }
}

fn statvfs(object: &Object) -> NfsResult<StatVfs> {
    Ok(rustix::fs::fstatvfs(object)?)
}
