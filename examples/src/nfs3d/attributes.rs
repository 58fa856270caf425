//! File attributes in replies: `fattr3`, `post_op_attr` and `wcc_data` (RFC 1813 §2.6), and GETATTR (§3.3.1).

use rpcrdma_specs::nfs3::{
    Fattr3, Ftype3, Getattr3args, Getattr3res, Getattr3resok, Nfstime3, PostOpAttr, PreOpAttr, Specdata3, WccAttr,
    WccData,
};
use rustix::fs::{FileType, StatxTimestamp};

use super::{
    export::Export,
    object::{Object, Stat},
};
use crate::nfs3;

impl Stat {
    /// Converts the attributes to `fattr3`, with `fsid` as the file system ID.
    pub(super) fn attributes(&self, fsid: u64) -> Fattr3 {
        let Self(stat) = self;
        Fattr3 {
            r#type: match self.file_type() {
                FileType::Directory => Ftype3::Dir,
                FileType::BlockDevice => Ftype3::Blk,
                FileType::CharacterDevice => Ftype3::Chr,
                FileType::Symlink => Ftype3::Lnk,
                FileType::Socket => Ftype3::Sock,
                FileType::Fifo => Ftype3::Fifo,
                _ => Ftype3::Reg,
            },
            mode: u32::from(stat.stx_mode) & 0o7777,
            nlink: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            used: stat.stx_blocks.saturating_mul(512),
            rdev: Specdata3 { specdata1: stat.stx_rdev_major, specdata2: stat.stx_rdev_minor },
            fsid,
            fileid: stat.stx_ino,
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
        }
    }

    pub(super) fn ctime(&self) -> Nfstime3 {
        time(self.0.stx_ctime)
    }

    pub(super) fn mtime(&self) -> Nfstime3 {
        time(self.0.stx_mtime)
    }

    pub(super) fn atime(&self) -> Nfstime3 {
        time(self.0.stx_atime)
    }

    fn before(&self) -> PreOpAttr {
        PreOpAttr::True(WccAttr { size: self.0.stx_size, mtime: self.mtime(), ctime: self.ctime() })
    }
}

fn time(time: StatxTimestamp) -> Nfstime3 {
    nfs3::time(time.tv_sec, time.tv_nsec)
}

/// The `wcc_data` without attributes, for an object that was not found or whose attributes cannot be read.
pub(super) const NO_WCC: WccData = WccData { before: PreOpAttr::False, after: PostOpAttr::False };

impl Export {
    /// Returns the current attributes of an object, if they are available.
    pub(super) fn post_op(&self, object: &Object) -> PostOpAttr {
        object.stat_now().map_or(PostOpAttr::False, |stat| PostOpAttr::True(stat.attributes(self.fsid)))
    }

    /// Returns the `wcc_data` of an object: the attributes in `before`, and the current ones. The object must have been
    /// locked since `before` was read. Otherwise, the client takes changes by other clients for its own.
    pub(super) fn wcc(&self, before: &Stat, object: &Object) -> WccData {
        WccData { before: before.before(), after: self.post_op(object) }
    }

    /// Performs GETATTR. It needs no permission besides the handle, because `stat` needs no permission on the file.
    pub fn getattr(&self, args: &Getattr3args) -> Getattr3res {
        match self.find(&args.object) {
            Ok(object) => Getattr3res::Ok(Getattr3resok { obj_attributes: object.stat.attributes(self.fsid) }),
            Err(refusal) => Getattr3res::Default(refusal.0),
        }
    }
}
