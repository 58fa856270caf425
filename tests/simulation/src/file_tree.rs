//! A file system in memory, and an NFS version 3 service on it.
//!
//! The procedures of `nfs3d` work on file descriptors, on threads for blocking work, with the identities of the system.
//! They cannot run on a tree in memory, so this service implements the program of `rpcrdma-specs` by itself. Clients
//! create, write, rename and remove files in one or two directories. The file ID of a new file is the verifier of its
//! CREATE, so that a model knows it without the reply.

use std::collections::BTreeMap;

use bytes::Bytes;
use rpcrdma::server::{Context, HandlerError};
use rpcrdma_specs::nfs3::{
    Access3args, Access3res, Access3resfail, Commit3args, Commit3res, Commit3resfail, Create3args, Create3res,
    Create3resfail, Create3resok, Createhow3, Dirlist3, Diropargs3, Entry3, Filename3, Fsinfo3args, Fsinfo3res,
    Fsinfo3resfail, Fsstat3args, Fsstat3res, Fsstat3resfail, Getattr3args, Getattr3res, Link3args, Link3res,
    Link3resfail, Lookup3args, Lookup3res, Lookup3resfail, Lookup3resok, Mkdir3args, Mkdir3res, Mkdir3resfail,
    Mknod3args, Mknod3res, Mknod3resfail, NfsFh3, Nfsstat3, Pathconf3args, Pathconf3res, Pathconf3resfail, PostOpAttr,
    PostOpFh3, PreOpAttr, Read3args, Read3res, Read3resfail, Read3resok, Readdir3args, Readdir3res, Readdir3resfail,
    Readdir3resok, Readdirplus3args, Readdirplus3res, Readdirplus3resfail, Readlink3args, Readlink3res,
    Readlink3resfail, Remove3args, Remove3res, Remove3resfail, Remove3resok, Rename3args, Rename3res, Rename3resfail,
    Rename3resok, Rmdir3args, Rmdir3res, Rmdir3resfail, Setattr3args, Setattr3res, Setattr3resfail, StableHow,
    Symlink3args, Symlink3res, Symlink3resfail, WccData, Write3args, Write3res, Write3resfail, Write3resok,
    nfs_v3::{NfsV3, Nfsproc3Create, Nfsproc3Remove, Nfsproc3Rename, Nfsproc3Write},
};

use crate::service::SimulatedServer;

const NO_WCC: WccData = WccData { before: PreOpAttr::False, after: PostOpAttr::False };

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The files of a server, in directories.
#[derive(Debug, Default)]
pub struct FileTree {
    /// The IDs of files, by directory and name.
    names: BTreeMap<(u64, Vec<u8>), u64>,
    /// The contents of files.
    files: BTreeMap<u64, Vec<u8>>,
}

/// Returns the handle of a file or directory.
#[must_use]
pub fn handle(id: u64) -> NfsFh3 {
    NfsFh3 { data: Bytes::copy_from_slice(&id.to_be_bytes()) }
}

/// Returns the ID of the file or directory that a handle refers to.
fn id(handle: &NfsFh3) -> Result<u64, Nfsstat3> {
    handle.data[..].try_into().map(u64::from_be_bytes).map_err(|_| Nfsstat3::Badhandle)
}

fn place(place: &Diropargs3) -> Result<(u64, Vec<u8>), Nfsstat3> {
    Ok((id(&place.dir)?, place.name.0.as_bytes().to_vec()))
}

impl FileTree {
    fn look_up(&self, at: &Diropargs3) -> Result<u64, Nfsstat3> {
        self.names.get(&place(at)?).copied().ok_or(Nfsstat3::Noent)
    }

    /// Creates a file whose ID is the verifier. A repeated call with this verifier returns the ID of the existing file.
    /// Fails if the call is not EXCLUSIVE, if the directory handle is malformed, or if another file has the name.
    fn create(&mut self, args: &Create3args) -> Result<u64, Nfsstat3> {
        let Createhow3::Exclusive(verifier) = &args.how else { return Err(Nfsstat3::Notsupp) };
        let file = u64::from_be_bytes(verifier.0);
        let earlier = self.names.entry(place(&args.r#where)?).or_insert(file);
        if *earlier != file {
            return Err(Nfsstat3::Exist);
        }
        self.files.entry(file).or_default();
        Ok(file)
    }

    fn remove(&mut self, at: &Diropargs3) -> Result<(), Nfsstat3> {
        let file = self.names.remove(&place(at)?).ok_or(Nfsstat3::Noent)?;
        self.files.remove(&file);
        Ok(())
    }

    fn rename(&mut self, args: &Rename3args) -> Result<(), Nfsstat3> {
        let (from, to) = (place(&args.from)?, place(&args.to)?);
        let file = self.names.remove(&from).ok_or(Nfsstat3::Noent)?;
        if let Some(replaced) = self.names.insert(to, file)
            && replaced != file
        {
            self.files.remove(&replaced);
        }
        Ok(())
    }

    fn list(&self, args: &Readdir3args) -> Result<Dirlist3, Nfsstat3> {
        let directory = id(&args.dir)?;
        let files = self.names.iter().filter(|((of, _), _)| *of == directory);
        let entry = |(cookie, ((_, name), file)): (u64, (&(u64, Vec<u8>), &u64))| Entry3 {
            fileid: *file,
            name: Filename3(Bytes::copy_from_slice(name).into()),
            cookie,
        };
        Ok(Dirlist3 { entries: (1..).zip(files).map(entry).collect(), eof: true })
    }

    fn read(&self, args: &Read3args) -> Result<Read3resok, Nfsstat3> {
        let contents = self.files.get(&id(&args.file)?).ok_or(Nfsstat3::Stale)?;
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let data =
            Bytes::copy_from_slice(&contents[at(args.offset)..at(args.offset.saturating_add(args.count.into()))]);
        let eof = args.offset + data.len() as u64 >= contents.len() as u64;
        Ok(Read3resok { file_attributes: PostOpAttr::False, count: data.len() as u32, eof, data })
    }

    fn write(&mut self, args: &Write3args) -> Result<u32, Nfsstat3> {
        let contents = self.files.get_mut(&id(&args.file)?).ok_or(Nfsstat3::Stale)?;
        let end = args.offset.saturating_add(args.data.len() as u64);
        if end > MAX_FILE {
            return Err(Nfsstat3::Fbig);
        }
        let (start, end) = (args.offset as usize, end as usize);
        contents.resize(contents.len().max(end), 0);
        contents[start..end].copy_from_slice(&args.data);
        Ok(args.count)
    }
}

/// The NFS service of a server.
#[derive(Clone)]
pub struct FileService(pub(crate) SimulatedServer);

/// Implements procedures that the simulation does not call. They fail with NFS3ERR_NOTSUPP.
macro_rules! not_supported {
    ($($procedure:ident($args:ty) -> $res:ident { $fail:expr })*) => {$(
        async fn $procedure(&self, _cx: &Context, _args: $args) -> Result<$res, HandlerError> {
            Ok($res::Default(Nfsstat3::Notsupp, $fail))
        }
    )*};
}

impl NfsV3 for FileService {
    async fn nfsproc3_getattr(&self, _cx: &Context, _args: Getattr3args) -> Result<Getattr3res, HandlerError> {
        Ok(Getattr3res::Default(Nfsstat3::Notsupp))
    }

    async fn nfsproc3_lookup(&self, _cx: &Context, args: Lookup3args) -> Result<Lookup3res, HandlerError> {
        let found = self.0.disk().await?.files.look_up(&args.what);
        let dir_attributes = PostOpAttr::False;
        Ok(match found {
            Ok(file) => {
                let (object, obj_attributes) = (handle(file), PostOpAttr::False);
                Lookup3res::Ok(Lookup3resok { object, obj_attributes, dir_attributes })
            }
            Err(status) => Lookup3res::Default(status, Lookup3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_read(&self, _cx: &Context, args: Read3args) -> Result<Read3res, HandlerError> {
        let read = self.0.disk().await?.files.read(&args);
        Ok(read.map_or_else(
            |status| Read3res::Default(status, Read3resfail { file_attributes: PostOpAttr::False }),
            Read3res::Ok,
        ))
    }

    async fn nfsproc3_readdir(&self, _cx: &Context, args: Readdir3args) -> Result<Readdir3res, HandlerError> {
        let listed = self.0.disk().await?.files.list(&args);
        let dir_attributes = PostOpAttr::False;
        Ok(match listed {
            Ok(reply) => Readdir3res::Ok(Readdir3resok { dir_attributes, cookieverf: args.cookieverf, reply }),
            Err(status) => Readdir3res::Default(status, Readdir3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_write(&self, cx: &Context, args: Write3args) -> Result<Write3res, HandlerError> {
        self.0
            .change::<Nfsproc3Write>(cx, |disk| match disk.files.write(&args) {
                Ok(count) => {
                    let (committed, verf) = (StableHow::FileSync, Default::default());
                    (Write3res::Ok(Write3resok { file_wcc: NO_WCC, count, committed, verf }), true)
                }
                Err(status) => (Write3res::Default(status, Write3resfail { file_wcc: NO_WCC }), false),
            })
            .await
    }

    async fn nfsproc3_create(&self, cx: &Context, args: Create3args) -> Result<Create3res, HandlerError> {
        self.0
            .change::<Nfsproc3Create>(cx, |disk| match disk.files.create(&args) {
                Ok(file) => {
                    let (obj, obj_attributes) = (PostOpFh3::True(handle(file)), PostOpAttr::False);
                    (Create3res::Ok(Create3resok { obj, obj_attributes, dir_wcc: NO_WCC }), true)
                }
                Err(status) => (Create3res::Default(status, Create3resfail { dir_wcc: NO_WCC }), false),
            })
            .await
    }

    async fn nfsproc3_remove(&self, cx: &Context, args: Remove3args) -> Result<Remove3res, HandlerError> {
        self.0
            .change::<Nfsproc3Remove>(cx, |disk| match disk.files.remove(&args.object) {
                Ok(()) => (Remove3res::Ok(Remove3resok { dir_wcc: NO_WCC }), true),
                Err(status) => (Remove3res::Default(status, Remove3resfail { dir_wcc: NO_WCC }), false),
            })
            .await
    }

    async fn nfsproc3_rename(&self, cx: &Context, args: Rename3args) -> Result<Rename3res, HandlerError> {
        let (fromdir_wcc, todir_wcc) = (NO_WCC, NO_WCC);
        self.0
            .change::<Nfsproc3Rename>(cx, |disk| match disk.files.rename(&args) {
                Ok(()) => (Rename3res::Ok(Rename3resok { fromdir_wcc, todir_wcc }), true),
                Err(status) => (Rename3res::Default(status, Rename3resfail { fromdir_wcc, todir_wcc }), false),
            })
            .await
    }

    not_supported! {
        nfsproc3_setattr(Setattr3args) -> Setattr3res { Setattr3resfail { obj_wcc: NO_WCC } }
        nfsproc3_access(Access3args) -> Access3res { Access3resfail { obj_attributes: PostOpAttr::False } }
        nfsproc3_readlink(Readlink3args) -> Readlink3res { Readlink3resfail { symlink_attributes: PostOpAttr::False } }
        nfsproc3_mkdir(Mkdir3args) -> Mkdir3res { Mkdir3resfail { dir_wcc: NO_WCC } }
        nfsproc3_symlink(Symlink3args) -> Symlink3res { Symlink3resfail { dir_wcc: NO_WCC } }
        nfsproc3_mknod(Mknod3args) -> Mknod3res { Mknod3resfail { dir_wcc: NO_WCC } }
        nfsproc3_rmdir(Rmdir3args) -> Rmdir3res { Rmdir3resfail { dir_wcc: NO_WCC } }
        nfsproc3_link(Link3args) -> Link3res { Link3resfail { file_attributes: PostOpAttr::False, linkdir_wcc: NO_WCC } }
        nfsproc3_readdirplus(Readdirplus3args) -> Readdirplus3res {
            Readdirplus3resfail { dir_attributes: PostOpAttr::False }
        }
        nfsproc3_fsstat(Fsstat3args) -> Fsstat3res { Fsstat3resfail { obj_attributes: PostOpAttr::False } }
        nfsproc3_fsinfo(Fsinfo3args) -> Fsinfo3res { Fsinfo3resfail { obj_attributes: PostOpAttr::False } }
        nfsproc3_pathconf(Pathconf3args) -> Pathconf3res { Pathconf3resfail { obj_attributes: PostOpAttr::False } }
        nfsproc3_commit(Commit3args) -> Commit3res { Commit3resfail { file_wcc: NO_WCC } }
    }
}
