//! The procedures LOOKUP (RFC 1813 §3.3.3) and READLINK (§3.3.5).

use bytes::Bytes;
use rpcrdma_specs::nfs3::{
    Lookup3args, Lookup3res, Lookup3resfail, Lookup3resok, Nfspath3, Nfsstat3, PostOpAttr, Readlink3args, Readlink3res,
    Readlink3resfail, Readlink3resok,
};
use rustix::fs::{Access, AtFlags, FileType};

use super::{
    export::Export,
    identity::Identity,
    name::Component,
    object::Object,
    status::{NfsError, NfsResult},
};

impl Export {
    /// Performs LOOKUP as `who`. At the root of the export, `..` is the root itself.
    pub fn lookup(&self, who: &Identity, args: &Lookup3args) -> Lookup3res {
        let directory = match self.find(&args.what.dir) {
            Ok(directory) => directory,
            Err(refusal) => {
                return Lookup3res::Default(refusal.0, Lookup3resfail { dir_attributes: PostOpAttr::False });
            }
        };
        let dir_attributes = PostOpAttr::True(directory.stat.attributes(self.fsid));
        let found = Component::parse(&args.what.name).and_then(|name| self.look_up(who, directory, &name));
        match found {
            Ok(found) => Lookup3res::Ok(Lookup3resok {
                object: self.sealer.seal(found.id),
                obj_attributes: PostOpAttr::True(found.stat.attributes(self.fsid)),
                dir_attributes,
            }),
            Err(refusal) => Lookup3res::Default(refusal.0, Lookup3resfail { dir_attributes }),
        }
    }

    fn look_up(&self, who: &Identity, directory: Object, name: &Component) -> NfsResult<Object> {
        let directory = directory.directory()?;
        // Every name takes the permission to search the directory.
        let acting = self.identities.assume(who)?;
        if let Component::Entry(name) = name {
            return self.tree.enter(&directory, name);
        }
        rustix::fs::accessat(&directory, c".", Access::EXEC_OK, AtFlags::EACCESS)?;
        // The parent is found as the server, like the files of handles.
        drop(acting);
        match name {
            // Does not lead above the export's root.
            Component::Parent => self.tree.parent(&directory),
            Component::Current | Component::Entry(_) => Ok(directory),
        }
    }

    /// Performs READLINK. The client follows the link. The server never does.
    pub fn readlink(&self, args: &Readlink3args) -> Readlink3res {
        let link = match self.find(&args.symlink) {
            Ok(link) => link,
            Err(refusal) => {
                return Readlink3res::Default(refusal.0, Readlink3resfail { symlink_attributes: PostOpAttr::False });
            }
        };
        let symlink_attributes = PostOpAttr::True(link.stat.attributes(self.fsid));
        match read_link(&link) {
            Ok(text) => Readlink3res::Ok(Readlink3resok { symlink_attributes, data: Nfspath3(text.into()) }),
            Err(refusal) => Readlink3res::Default(refusal.0, Readlink3resfail { symlink_attributes }),
        }
    }
}

fn read_link(link: &Object) -> NfsResult<Bytes> {
    if link.stat.file_type() != FileType::Symlink {
        return Err(NfsError(Nfsstat3::Inval));
    }
    Ok(rustix::fs::readlinkat(link, c"", Vec::new())?.into_bytes().into())
}
