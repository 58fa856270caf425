//! Access control lists with NFSACL version 3, as Linux's client uses it. The protocol has no public definition.
//!
//! The lists are those of the exported file system, in its extended attributes `system.posix_acl_access` and
//! `system.posix_acl_default`. The kernel applies them. Where the file system has no lists, GETACL returns the
//! permission bits as a list, and SETACL fails with NFS3ERR_NOTSUPP.

mod list;
mod service;

use rpcrdma_specs::{
    nfs3::{NfsFh3, Nfsstat3, PostOpAttr},
    nfsacl3::{
        Acl3resfail, Aclent, Getacl3args, Getacl3res, Getacl3resok, NA_ACL, NA_ACLCNT, NA_DFACL, NA_DFACLCNT, Secattr,
        Setacl3args, Setacl3res, Setacl3resok,
    },
};
use rustix::{
    fs::{FileType, XattrFlags},
    io::Errno,
};

use self::list::{AccessList, MAX_ATTRIBUTE};
pub use self::service::AclService;
use super::{
    export::Export,
    identity::Identity,
    object::Object,
    status::{NfsError, NfsResult},
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const ALL: u32 = NA_ACL | NA_ACLCNT | NA_DFACL | NA_DFACLCNT;

impl Export {
    /// Performs GETACL: returns the lists that the mask selects. It needs no permission besides the handle.
    pub fn getacl(&self, args: &Getacl3args) -> Getacl3res {
        let outcome = self.find(&args.fh).and_then(|object| self.lists(&object, args.mask));
        match outcome {
            Ok(acl) => Getacl3res::Ok(Getacl3resok { attr: self.attributes_of(&args.fh), acl }),
            Err(refusal) => Getacl3res::Default(status(refusal), Acl3resfail { attr: self.attributes_of(&args.fh) }),
        }
    }

    /// Performs SETACL as `who`: replaces the lists that the mask selects, on stable storage.
    pub fn setacl(&self, who: &Identity, args: &Setacl3args) -> Setacl3res {
        match self.set_lists(who, &args.fh, &args.acl) {
            Ok(()) => Setacl3res::Ok(Setacl3resok { attr: self.attributes_of(&args.fh) }),
            Err(refusal) => Setacl3res::Default(status(refusal), Acl3resfail { attr: self.attributes_of(&args.fh) }),
        }
    }

    fn attributes_of(&self, handle: &NfsFh3) -> PostOpAttr {
        let found = self.find(handle).and_then(|object| object.stat_now());
        found.map_or(PostOpAttr::False, |stat| PostOpAttr::True(stat.attributes(self.fsid)))
    }

    fn lists(&self, object: &Object, mask: u32) -> NfsResult<Secattr> {
        check(object, mask)?;
        let stat = object.stat_now()?;
        let owner = (stat.0.stx_uid, stat.0.stx_gid);
        let mut acl = Secattr { mask, ..Secattr::default() };
        let counted = |list: &AccessList, is_default, is_wanted: bool| {
            let entries = list.to_entries(owner, is_default);
            let count = entries.len() as u32;
            (count, if is_wanted { entries } else { Vec::new() })
        };
        if mask & (NA_ACL | NA_ACLCNT) != 0 {
            let list = self.list(object, ACCESS)?;
            let list = list.unwrap_or_else(|| AccessList::of_mode(stat.0.stx_mode.into()));
            (acl.aclcnt, acl.aclent) = counted(&list, false, mask & NA_ACL != 0);
        }
        if mask & (NA_DFACL | NA_DFACLCNT) != 0
            && object.is_directory()
            && let Some(list) = self.list(object, DEFAULT)?
        {
            (acl.dfaclcnt, acl.dfaclent) = counted(&list, true, mask & NA_DFACL != 0);
        }
        Ok(acl)
    }

    /// Returns the list in the extended attribute `name` of an object. Returns `None` if the object has no such
    /// attribute, or the file system does not support it.
    fn list(&self, object: &Object, name: &str) -> NfsResult<Option<AccessList>> {
        let mut attribute = vec![0; MAX_ATTRIBUTE];
        match rustix::fs::getxattr(path(object), name, attribute.as_mut_slice()) {
            Ok(len) => match attribute.get(..len).and_then(AccessList::from_attribute) {
                Some(list) => Ok(Some(list)),
                None => Err(NfsError(Nfsstat3::Serverfault)),
            },
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            // The list is longer than clients accept.
            Err(Errno::RANGE) => Err(NfsError(Nfsstat3::Serverfault)),
            Err(error) => Err(error.into()),
        }
    }

    fn set_lists(&self, who: &Identity, handle: &NfsFh3, acl: &Secattr) -> NfsResult<()> {
        let object = self.find(handle)?;
        check(&object, acl.mask)?;
        let parse = |entries: &[Aclent], is_default| {
            AccessList::from_entries(entries, is_default).map_err(|_| NfsError(Nfsstat3::Inval))
        };
        let access = if acl.mask & NA_ACL != 0 { Some(parse(&acl.aclent, false)?) } else { None };
        let default = if acl.mask & NA_DFACL != 0 { Some(parse(&acl.dfaclent, true)?) } else { None };
        let locked = self.locks.one(object.id.ino);
        {
            let _acting = self.identities.assume(who)?;
            if let Some(list) = access {
                set(&object, ACCESS, &list)?;
            }
            match default {
                // Clients send both lists for every object.
                Some(list) if object.is_directory() || !list.is_empty() => set(&object, DEFAULT, &list)?,
                _ => {}
            }
        }
        drop(locked);
        self.sync(&object)
    }
}

/// Checks that an object can have lists, which symbolic links cannot, and that all bits of the mask are known.
fn check(object: &Object, mask: u32) -> NfsResult<()> {
    if mask & !ALL != 0 {
        return Err(NfsError(Nfsstat3::Inval));
    }
    // The path of a symbolic link would lead to its target.
    if object.stat.file_type() == FileType::Symlink { Err(NfsError(Nfsstat3::Notsupp)) } else { Ok(()) }
}

/// Returns the path of an object's descriptor in `/proc`. The descriptors have `O_PATH`, and Linux before 6.13 has no
/// system call for the extended attributes of such a descriptor.
fn path(object: &Object) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", object.fd.as_raw_fd())
}

fn set(object: &Object, name: &str, list: &AccessList) -> NfsResult<()> {
    let set = if list.is_empty() {
        rustix::fs::removexattr(path(object), name)
    } else {
        rustix::fs::setxattr(path(object), name, &list.to_attribute(), XattrFlags::empty())
    };
    match set {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(Errno::OPNOTSUPP) => Err(NfsError(Nfsstat3::Notsupp)),
        Err(error) => Err(error.into()),
    }
}

fn status(refusal: NfsError) -> rpcrdma_specs::nfsacl3::Nfsstat3 {
    use rpcrdma_specs::nfsacl3::Nfsstat3 as Status;
    Status::try_from(refusal.0 as i32).unwrap_or(Status::Serverfault)
}
