//! The procedures CREATE (RFC 1813 §3.3.8), MKDIR (§3.3.9), SYMLINK (§3.3.10) and MKNOD (§3.3.11).

use std::ffi::CString;

use rpcrdma_specs::nfs3::{
    Create3args, Create3res, Create3resfail, Create3resok, Createhow3, Createverf3, Devicedata3, Mkdir3args, Mkdir3res,
    Mkdir3resfail, Mkdir3resok, Mknod3args, Mknod3res, Mknod3resfail, Mknod3resok, Mknoddata3, Nfsstat3, Nfstime3,
    PostOpAttr, PostOpFh3, Sattr3, SetAtime, SetMode3, SetMtime, SetSize3, Symlink3args, Symlink3res, Symlink3resfail,
    Symlink3resok,
};
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    export::Export,
    identity::Identity,
    name::{Component, FileName},
    object::{Object, Stat},
    status::{NfsError, NfsResult},
};
use crate::nfs3::no_changes;

/// Maximum length of a symbolic link's target, in bytes.
const LINK_MAX: usize = 4095;

impl Export {
    /// Performs CREATE as `who`, in the mode of the arguments: UNCHECKED, GUARDED or EXCLUSIVE.
    pub fn create(&self, who: &Identity, args: &Create3args) -> Create3res {
        let (dir_wcc, made) = self.change_directory(&args.r#where.dir, |directory| {
            // `.` and `..` always exist (RFC 1813 §3.2).
            let name = Component::entry(&args.r#where.name, Nfsstat3::Exist)?;
            match &args.how {
                Createhow3::Unchecked(attributes) => self.create_unchecked(who, directory, &name, attributes),
                Createhow3::Guarded(attributes) => self.create_new(who, directory, &name, attributes),
                Createhow3::Exclusive(verifier) => self.create_exclusive(who, directory, &name, verifier),
            }
        });
        match made {
            Ok(object) => {
                let (obj, obj_attributes) = self.made(&object);
                Create3res::Ok(Create3resok { obj, obj_attributes, dir_wcc })
            }
            Err(refusal) => Create3res::Default(refusal.0, Create3resfail { dir_wcc }),
        }
    }

    /// Performs CREATE UNCHECKED. If the file exists, sets only its size. Fails with NFS3ERR_EXIST if an object of
    /// another type has the name.
    fn create_unchecked(&self, who: &Identity, directory: &Object, name: &FileName, new: &Sattr3) -> NfsResult<Object> {
        match self.create_new(who, directory, name, new) {
            Err(NfsError(Nfsstat3::Exist)) => {}
            made => return made,
        }
        let acting = self.identities.assume(who)?;
        let object = self.tree.enter(directory, name)?;
        drop(acting);
        if object.stat.file_type() != FileType::RegularFile {
            return Err(NfsError(Nfsstat3::Exist));
        }
        if let SetSize3::True(_) = new.size {
            let size = Sattr3 { size: new.size.clone(), ..no_changes() };
            // No lock on the file is needed: the reply contains only the directory's wcc_data.
            self.set(who, &object, &size)?;
            self.sync(&object)?;
        }
        Ok(object)
    }

    /// Performs CREATE GUARDED, which creates a file or fails with NFS3ERR_EXIST.
    fn create_new(&self, who: &Identity, directory: &Object, name: &FileName, new: &Sattr3) -> NfsResult<Object> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let acting = self.identities.assume(who)?;
        let file = rustix::fs::openat(directory, name.as_c_str(), flags, mode(new, 0o644))?;
        drop(acting);
        let object = self.tree.object(file)?;
        self.tree.record_place(object.id.ino, directory.id.ino, name.as_bytes());
        self.keep_writable(&object);
        // The file has its mode, but the system clears these bits when size or group change, so they are set again.
        let set_id = matches!(new.mode, SetMode3::True(mode) if mode & 0o6000 != 0);
        let mode = if set_id { new.mode.clone() } else { SetMode3::False };
        self.set(who, &object, &Sattr3 { mode, ..new.clone() })?;
        self.sync(&object)?;
        Ok(object)
    }

    /// Performs CREATE EXCLUSIVE. Creates a file, or accepts a file that an earlier call with the same verifier
    /// created, because the reply to that call may have been lost.
    ///
    /// As RFC 1813 §3.3.8 proposes, the verifier is stored in the file's times until the client sets them. It therefore
    /// survives a restart.
    fn create_exclusive(
        &self,
        who: &Identity,
        directory: &Object,
        name: &FileName,
        verifier: &Createverf3,
    ) -> NfsResult<Object> {
        let (atime, mtime) = verifier_times(verifier);
        let new = Sattr3 {
            // Deny access to others until the client has set the mode.
            mode: SetMode3::True(0o600),
            atime: SetAtime::SetToClientTime(atime.clone()),
            mtime: SetMtime::SetToClientTime(mtime.clone()),
            ..no_changes()
        };
        match self.create_new(who, directory, name, &new) {
            Err(NfsError(Nfsstat3::Exist)) => {}
            made => return made,
        }
        let acting = self.identities.assume(who)?;
        let object = self.tree.enter(directory, name)?;
        drop(acting);
        let stat: &Stat = &object.stat;
        let same = stat.file_type() == FileType::RegularFile
            && stat.0.stx_size == 0
            && (stat.atime(), stat.mtime()) == (atime, mtime);
        if same { Ok(object) } else { Err(NfsError(Nfsstat3::Exist)) }
    }

    /// Performs MKDIR as `who`.
    pub fn mkdir(&self, who: &Identity, args: &Mkdir3args) -> Mkdir3res {
        let (dir_wcc, made) = self.change_directory(&args.r#where.dir, |directory| {
            let name = Component::entry(&args.r#where.name, Nfsstat3::Exist)?;
            let mode = mode(&args.attributes, 0o755);
            self.make(who, directory, &name, &args.attributes, || rustix::fs::mkdirat(directory, name.as_c_str(), mode))
        });
        match made {
            Ok(object) => {
                let (obj, obj_attributes) = self.made(&object);
                Mkdir3res::Ok(Mkdir3resok { obj, obj_attributes, dir_wcc })
            }
            Err(refusal) => Mkdir3res::Default(refusal.0, Mkdir3resfail { dir_wcc }),
        }
    }

    /// Performs SYMLINK as `who`. Targets of more than 4095 bytes fail with NFS3ERR_NAMETOOLONG.
    pub fn symlink(&self, who: &Identity, args: &Symlink3args) -> Symlink3res {
        let (dir_wcc, made) = self.change_directory(&args.r#where.dir, |directory| {
            let name = Component::entry(&args.r#where.name, Nfsstat3::Exist)?;
            let text = args.symlink.symlink_data.as_bytes();
            if text.len() > LINK_MAX {
                return Err(NfsError(Nfsstat3::Nametoolong));
            }
            // The system supports neither empty targets nor targets with NUL.
            let text = CString::new(text).ok().filter(|text| !text.is_empty());
            let text = text.ok_or(NfsError(Nfsstat3::Inval))?;
            self.make(who, directory, &name, &args.symlink.symlink_attributes, || {
                rustix::fs::symlinkat(&text, directory, name.as_c_str())
            })
        });
        match made {
            Ok(object) => {
                let (obj, obj_attributes) = self.made(&object);
                Symlink3res::Ok(Symlink3resok { obj, obj_attributes, dir_wcc })
            }
            Err(refusal) => Symlink3res::Default(refusal.0, Symlink3resfail { dir_wcc }),
        }
    }

    /// Performs MKNOD as `who`. Creating a device requires CAP_MKNOD, so only an unsquashed root caller may do it.
    pub fn mknod(&self, who: &Identity, args: &Mknod3args) -> Mknod3res {
        let (dir_wcc, made) = self.change_directory(&args.r#where.dir, |directory| {
            let name = Component::entry(&args.r#where.name, Nfsstat3::Exist)?;
            let device = |data: &Devicedata3| {
                // Linux device numbers have 12 and 20 bits.
                let (major, minor) = (data.spec.specdata1, data.spec.specdata2);
                if major >= 1 << 12 || minor >= 1 << 20 {
                    return Err(NfsError(Nfsstat3::Inval));
                }
                Ok(rustix::fs::makedev(major, minor))
            };
            let (kind, device, attributes) = match &args.what {
                Mknoddata3::Chr(data) => (FileType::CharacterDevice, device(data)?, &data.dev_attributes),
                Mknoddata3::Blk(data) => (FileType::BlockDevice, device(data)?, &data.dev_attributes),
                Mknoddata3::Sock(attributes) => (FileType::Socket, 0, attributes),
                Mknoddata3::Fifo(attributes) => (FileType::Fifo, 0, attributes),
                // Regular files, directories and links have procedures of their own (RFC 1813 §3.3.11).
                Mknoddata3::Default(_) => return Err(NfsError(Nfsstat3::Badtype)),
            };
            self.make(who, directory, &name, attributes, || {
                rustix::fs::mknodat(directory, name.as_c_str(), kind, mode(attributes, 0o644), device)
            })
        });
        match made {
            Ok(object) => {
                let (obj, obj_attributes) = self.made(&object);
                Mknod3res::Ok(Mknod3resok { obj, obj_attributes, dir_wcc })
            }
            Err(refusal) => Mknod3res::Default(refusal.0, Mknod3resfail { dir_wcc }),
        }
    }

    /// Creates an object with `make`, as `who`. `make` also sets the permissions. Then sets the other attributes in
    /// `new`, except the size, and returns the object.
    fn make(
        &self,
        who: &Identity,
        directory: &Object,
        name: &FileName,
        new: &Sattr3,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> NfsResult<Object> {
        let acting = self.identities.assume(who)?;
        make()?;
        let object = self.tree.enter(directory, name)?;
        drop(acting);
        let mut new = new.clone();
        // Only regular files have a size to set.
        new.size = SetSize3::False;
        let set_id = matches!(new.mode, SetMode3::True(mode) if mode & 0o7000 != 0);
        // mkdir does not set the mode bits above the permissions. An inherited set-group-ID bit is kept.
        if !(object.is_directory() && set_id) {
            new.mode = SetMode3::False;
        } else if let SetMode3::True(mode) = &mut new.mode {
            *mode |= u32::from(object.stat.0.stx_mode) & 0o2000;
        }
        self.set(who, &object, &new)?;
        // For objects other than directories, syncing the parent directory suffices.
        if object.is_directory() {
            self.sync(&object)?;
        }
        Ok(object)
    }

    fn made(&self, object: &Object) -> (PostOpFh3, PostOpAttr) {
        (PostOpFh3::True(self.sealer.seal(object.id)), self.post_op(object))
    }
}

fn mode(new: &Sattr3, default: u32) -> Mode {
    Mode::from_raw_mode(match new.mode {
        SetMode3::True(mode) => mode & 0o7777,
        SetMode3::False => default,
    })
}

/// Encodes a verifier as two times with 31 bits each, which all file systems can store.
fn verifier_times(verifier: &Createverf3) -> (Nfstime3, Nfstime3) {
    let [a, b, c, d, e, f, g, h] = verifier.0;
    let time = |bytes| Nfstime3 { seconds: u32::from_be_bytes(bytes) & 0x7fff_ffff, nseconds: 0 };
    (time([a, b, c, d]), time([e, f, g, h]))
}
