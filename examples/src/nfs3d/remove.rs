//! The procedures REMOVE (RFC 1813 §3.3.12), RMDIR (§3.3.13), RENAME (§3.3.14) and LINK (§3.3.15).

use rpcrdma_specs::nfs3::{
    Link3args, Link3res, Link3resfail, Link3resok, Nfsstat3, PostOpAttr, Remove3args, Remove3res, Remove3resfail,
    Remove3resok, Rename3args, Rename3res, Rename3resfail, Rename3resok, Rmdir3args, Rmdir3res, Rmdir3resfail,
    Rmdir3resok, WccData,
};
use rustix::{fs::AtFlags, io::Errno};

use super::{
    attributes::NO_WCC,
    export::Export,
    identity::Identity,
    name::{Component, FileName},
    object::Object,
    status::{NfsError, NfsResult},
};

impl Export {
    /// Performs REMOVE. Refuses the names `.` and `..` with NFS3ERR_ISDIR.
    pub fn remove(&self, who: &Identity, args: &Remove3args) -> Remove3res {
        let (dir_wcc, removed) = self.change_directory(&args.object.dir, |directory| {
            // `.` and `..` are directories, which REMOVE does not remove.
            let name = Component::entry(&args.object.name, Nfsstat3::Isdir)?;
            self.unlink(who, directory, &name, AtFlags::empty())
        });
        match removed {
            Ok(()) => Remove3res::Ok(Remove3resok { dir_wcc }),
            Err(refusal) => Remove3res::Default(refusal.0, Remove3resfail { dir_wcc }),
        }
    }

    /// Performs RMDIR. Refuses the name `.` with NFS3ERR_INVAL, and `..` with NFS3ERR_EXIST.
    pub fn rmdir(&self, who: &Identity, args: &Rmdir3args) -> Rmdir3res {
        let (dir_wcc, removed) = self.change_directory(&args.object.dir, |directory| {
            // RFC 1813 §3.3.13 specifies these statuses for `.` and `..`.
            let special = if args.object.name.as_bytes() == b".." { Nfsstat3::Exist } else { Nfsstat3::Inval };
            let name = Component::entry(&args.object.name, special)?;
            self.unlink(who, directory, &name, AtFlags::REMOVEDIR)
        });
        match removed {
            Ok(()) => Rmdir3res::Ok(Rmdir3resok { dir_wcc }),
            Err(refusal) => Rmdir3res::Default(refusal.0, Rmdir3resfail { dir_wcc }),
        }
    }

    fn unlink(&self, who: &Identity, directory: &Object, name: &FileName, flags: AtFlags) -> NfsResult<()> {
        let _changing = self.tree.lock_for_change();
        let acting = self.identities.assume(who)?;
        // Keep the object open during the removal: this identifies the file, and its blocks are freed only after the
        // locks are released.
        let object = self.tree.enter_while_changing(directory, name);
        rustix::fs::unlinkat(directory, name.as_c_str(), flags).map_err(|error| match error {
            // Some file systems return EEXIST for a directory that is not empty, as POSIX allows.
            Errno::EXIST => NfsError(Nfsstat3::Notempty),
            other => other.into(),
        })?;
        drop(acting);
        if let Ok(object) = object {
            self.name_removed(&object, directory, name);
        }
        Ok(())
    }

    /// Records that the name `name` of an object in `directory` was removed. Drops the object from all caches if it is
    /// a directory or has no other name.
    fn name_removed(&self, object: &Object, directory: &Object, name: &FileName) {
        self.tree.remove_place(object.id.ino, directory.id.ino, name.as_bytes());
        if object.is_directory() || object.stat_now().is_ok_and(|stat| stat.0.stx_nlink == 0) {
            self.forget(object.id);
        }
    }

    /// Performs RENAME. Does nothing if both names are links of the same file.
    pub fn rename(&self, who: &Identity, args: &Rename3args) -> Rename3res {
        let (fromdir_wcc, todir_wcc, renamed) = self.rename_wcc(who, args);
        match renamed {
            Ok(()) => Rename3res::Ok(Rename3resok { fromdir_wcc, todir_wcc }),
            Err(refusal) => Rename3res::Default(refusal.0, Rename3resfail { fromdir_wcc, todir_wcc }),
        }
    }

    fn rename_wcc(&self, who: &Identity, args: &Rename3args) -> (WccData, WccData, NfsResult<()>) {
        let directories = self.find(&args.from.dir).and_then(Object::directory).and_then(|from| {
            let to = self.find(&args.to.dir).and_then(Object::directory)?;
            Ok((from, to))
        });
        let (from, to) = match directories {
            Ok(directories) => directories,
            Err(refusal) => return (NO_WCC, NO_WCC, Err(refusal)),
        };
        let locked = self.locks.two(from.id.ino, to.id.ino);
        let before = from.stat_now().and_then(|before| Ok((before, to.stat_now()?)));
        let (from_before, to_before) = match before {
            Ok(before) => before,
            Err(refusal) => return (NO_WCC, NO_WCC, Err(refusal)),
        };
        let renamed = self.rename_entry(who, (&from, &args.from.name), (&to, &args.to.name));
        let (from_wcc, to_wcc) = (self.wcc(&from_before, &from), self.wcc(&to_before, &to));
        drop(locked);
        let synced = renamed
            .and_then(|()| self.sync(&to))
            .and_then(|()| if from.id == to.id { Ok(()) } else { self.sync(&from) });
        (from_wcc, to_wcc, synced)
    }

    fn rename_entry(
        &self,
        who: &Identity,
        (from, from_name): (&Object, &rpcrdma_specs::nfs3::Filename3),
        (to, to_name): (&Object, &rpcrdma_specs::nfs3::Filename3),
    ) -> NfsResult<()> {
        // `.` and `..` cannot be renamed or replaced (RFC 1813 §3.3.14).
        let from_name = Component::entry(from_name, Nfsstat3::Inval)?;
        let to_name = Component::entry(to_name, Nfsstat3::Inval)?;
        let _changing = self.tree.lock_for_change();
        let acting = self.identities.assume(who)?;
        let moved = self.tree.enter_while_changing(from, &from_name)?;
        let replaced = self.tree.enter_while_changing(to, &to_name);
        rustix::fs::renameat(from, from_name.as_c_str(), to, to_name.as_c_str()).map_err(|error| match error {
            // The target is kept if its type differs or if it is a directory that is not empty (RFC 1813 §3.3.14).
            Errno::ISDIR | Errno::NOTDIR => NfsError(Nfsstat3::Exist),
            other => other.into(),
        })?;
        drop(acting);
        match replaced {
            // Both names are links of the same file, so rename does nothing.
            Ok(replaced) if replaced.id == moved.id => return Ok(()),
            Ok(replaced) => self.name_removed(&replaced, to, &to_name),
            Err(_) => {}
        }
        self.tree.remove_place(moved.id.ino, from.id.ino, from_name.as_bytes());
        self.tree.record_place(moved.id.ino, to.id.ino, to_name.as_bytes());
        Ok(())
    }

    /// Performs LINK. Refuses links to directories with NFS3ERR_INVAL.
    pub fn link(&self, who: &Identity, args: &Link3args) -> Link3res {
        let object = self.find(&args.file);
        let (linkdir_wcc, linked) = self.change_directory(&args.link.dir, |directory| {
            let object = object.as_ref().map_err(|refusal| *refusal)?;
            let name = Component::entry(&args.link.name, Nfsstat3::Exist)?;
            // The system's EPERM would suggest that another user may do this.
            if object.is_directory() {
                return Err(NfsError(Nfsstat3::Inval));
            }
            let acting = self.identities.assume(who)?;
            let (folder, descriptor) = self.descriptors.name(object);
            rustix::fs::linkat(folder, descriptor.as_c_str(), directory, name.as_c_str(), AtFlags::SYMLINK_FOLLOW)?;
            drop(acting);
            self.tree.record_place(object.id.ino, directory.id.ino, name.as_bytes());
            Ok(())
        });
        let linked =
            linked.and_then(|()| object.as_ref().map_err(|refusal| *refusal).and_then(|object| self.sync(object)));
        let file_attributes = object.as_ref().map_or(PostOpAttr::False, |object| self.post_op(object));
        match linked {
            Ok(()) => Link3res::Ok(Link3resok { file_attributes, linkdir_wcc }),
            Err(refusal) => Link3res::Default(refusal.0, Link3resfail { file_attributes, linkdir_wcc }),
        }
    }
}
