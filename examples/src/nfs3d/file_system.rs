//! FSSTAT (RFC 1813 §3.3.18), FSINFO (§3.3.19), PATHCONF (§3.3.20).

use rpcrdma_specs::nfs3::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, Fsinfo3args, Fsinfo3res, Fsinfo3resfail, Fsinfo3resok,
    Fsstat3args, Fsstat3res, Fsstat3resfail, Fsstat3resok, Nfstime3, Pathconf3args, Pathconf3res, Pathconf3resfail,
    Pathconf3resok, PostOpAttr,
};
use rustix::fs::StatVfs;

use super::{export::Export, name::NAME_MAX, object::Object, status::Outcome};

/// Most octets of data in one READ, WRITE or reply of READDIR: what Linux's client asks for at most.
pub const DATA_MAX: u32 = 1 << 20;
/// Largest size of a file, as the system's offsets are signed. That of the file system may be smaller; then it is the one
/// to refuse.
pub(super) const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Octets that READDIR is best asked for.
const DIRECTORY_PREFERRED: u32 = 64 << 10;
/// Links that a file can have on the least of file systems in use (ext4 65000, XFS and Btrfs more).
const LINK_MAX: u32 = 32_000;

impl Export {
    /// FSSTAT. What is available is what is available to users.
    pub fn fsstat(&self, args: &Fsstat3args) -> Fsstat3res {
        match self.find(&args.fsroot).and_then(|object| Ok((statvfs(&object)?, object))) {
            Ok((of, object)) => Fsstat3res::Ok(Fsstat3resok {
                obj_attributes: self.post_op(&object),
                tbytes: of.f_blocks.saturating_mul(of.f_frsize),
                fbytes: of.f_bfree.saturating_mul(of.f_frsize),
                abytes: of.f_bavail.saturating_mul(of.f_frsize),
                tfiles: of.f_files,
                ffiles: of.f_ffree,
                afiles: of.f_favail,
                // It can change at any time.
                invarsec: 0,
            }),
            Err(refusal) => Fsstat3res::Default(refusal.0, Fsstat3resfail { obj_attributes: PostOpAttr::False }),
        }
    }

    /// FSINFO.
    pub fn fsinfo(&self, args: &Fsinfo3args) -> Fsinfo3res {
        match self.find(&args.fsroot) {
            Ok(object) => Fsinfo3res::Ok(Fsinfo3resok {
                obj_attributes: PostOpAttr::True(object.stat.attributes(self.fsid)),
                rtmax: DATA_MAX,
                rtpref: DATA_MAX,
                rtmult: 4096,
                wtmax: DATA_MAX,
                wtpref: DATA_MAX,
                wtmult: 4096,
                dtpref: DIRECTORY_PREFERRED,
                maxfilesize: FILE_SIZE_MAX,
                time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
                properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
            }),
            Err(refusal) => Fsinfo3res::Default(refusal.0, Fsinfo3resfail { obj_attributes: PostOpAttr::False }),
        }
    }

    /// PATHCONF.
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

fn statvfs(object: &Object) -> Outcome<StatVfs> {
    Ok(rustix::fs::fstatvfs(object)?)
}
