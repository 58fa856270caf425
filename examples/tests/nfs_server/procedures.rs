//! The procedures of the NFS and MOUNT programs of the in-memory server.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use bytes::Bytes;
use rpcrdma::{
    rpc::{AuthFailure, Credential},
    server::{Context, HandlerError},
};
use rpcrdma_specs::{
    mount3::{self, mount_v3::MountV3},
    nfs3::{
        self, Createhow3, Dirlist3, Dirlistplus3, Entry3, Entryplus3, Nfsstat3, Nfstime3, PostOpAttr, PostOpFh3,
        SetMode3, nfs_v3::NfsV3,
    },
};

use super::{Data, EXPORT, Fake, Kind, Listed, NO_WCC, ROOT, handle, id};

/// The server as a service for the generated dispatchers.
#[derive(Debug)]
pub(super) struct Shared(pub(super) Arc<Fake>);

/// Refuses a call without AUTH_SYS, as Linux does.
fn sys(cx: &Context) -> Result<(), HandlerError> {
    match cx.credential() {
        Credential::Sys(_) => Ok(()),
        _ => Err(HandlerError::Rejected(AuthFailure::from(rpcrdma::rpc::AuthStat::AuthTooweak))),
    }
}

macro_rules! unsupported {
    ($($name:ident($args:ty) -> $reply:ty = $failure:expr;)*) => {
        $(async fn $name(&self, _cx: &Context, _args: $args) -> Result<$reply, HandlerError> {
            Ok(<$reply>::Default(Nfsstat3::Notsupp, $failure))
        })*
    };
}

impl NfsV3 for Shared {
    async fn nfsproc3_getattr(
        &self,
        cx: &Context,
        args: nfs3::Getattr3args,
    ) -> Result<nfs3::Getattr3res, HandlerError> {
        sys(cx)?;
        let found = id(&args.object).and_then(|id| self.0.attributes(id));
        Ok(match found {
            Ok(obj_attributes) => nfs3::Getattr3res::Ok(nfs3::Getattr3resok { obj_attributes }),
            Err(status) => nfs3::Getattr3res::Default(status),
        })
    }

    async fn nfsproc3_setattr(
        &self,
        cx: &Context,
        args: nfs3::Setattr3args,
    ) -> Result<nfs3::Setattr3res, HandlerError> {
        sys(cx)?;
        Ok(match id(&args.object).and_then(|id| self.0.set(id, &args.new_attributes)) {
            Ok(()) => nfs3::Setattr3res::Ok(nfs3::Setattr3resok { obj_wcc: NO_WCC }),
            Err(status) => nfs3::Setattr3res::Default(status, nfs3::Setattr3resfail { obj_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_lookup(&self, cx: &Context, args: nfs3::Lookup3args) -> Result<nfs3::Lookup3res, HandlerError> {
        sys(cx)?;
        let found = id(&args.what.dir).and_then(|dir| self.0.child(dir, &args.what.name.0.0));
        let dir_attributes = PostOpAttr::False;
        Ok(match found {
            Ok(id) => nfs3::Lookup3res::Ok(nfs3::Lookup3resok {
                object: handle(id),
                obj_attributes: PostOpAttr::False,
                dir_attributes,
            }),
            Err(status) => nfs3::Lookup3res::Default(status, nfs3::Lookup3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_readlink(
        &self,
        cx: &Context,
        args: nfs3::Readlink3args,
    ) -> Result<nfs3::Readlink3res, HandlerError> {
        sys(cx)?;
        let symlink_attributes = PostOpAttr::False;
        let inode = id(&args.symlink).ok().and_then(|id| self.0.inodes.lock().unwrap().get(&id).cloned());
        Ok(match inode.map(|inode| inode.kind) {
            Some(Kind::Link(text)) => nfs3::Readlink3res::Ok(nfs3::Readlink3resok {
                symlink_attributes,
                data: nfs3::Nfspath3(Bytes::from(text).into()),
            }),
            _ => nfs3::Readlink3res::Default(Nfsstat3::Inval, nfs3::Readlink3resfail { symlink_attributes }),
        })
    }

    async fn nfsproc3_read(&self, cx: &Context, args: nfs3::Read3args) -> Result<nfs3::Read3res, HandlerError> {
        sys(cx)?;
        let calls = self.0.reads.fetch_add(1, SeqCst);
        assert!(args.count <= self.0.max_transfer(), "a READ exceeds rtmax");
        let inode = id(&args.file).ok().and_then(|id| self.0.inodes.lock().unwrap().get(&id).cloned());
        let Some(Kind::File(data)) = inode.map(|inode| inode.kind) else {
            let failure = nfs3::Read3resfail { file_attributes: PostOpAttr::False };
            return Ok(nfs3::Read3res::Default(Nfsstat3::Inval, failure));
        };
        let data = data.now;
        let start = (args.offset as usize).min(data.len());
        // Every fifth READ returns less than requested.
        let count = if calls % 5 == 4 { args.count.div_ceil(2) } else { args.count };
        let end = (start + count as usize).min(data.len());
        let mut part = data[start..end].to_vec();
        if self.0.rotten.load(SeqCst)
            && let Some(byte) = part.last_mut()
        {
            *byte ^= u8::from(calls.is_multiple_of(2));
        }
        Ok(nfs3::Read3res::Ok(nfs3::Read3resok {
            file_attributes: PostOpAttr::False,
            count: part.len() as u32,
            eof: end == data.len(),
            data: Bytes::from(part),
        }))
    }

    async fn nfsproc3_write(&self, cx: &Context, args: nfs3::Write3args) -> Result<nfs3::Write3res, HandlerError> {
        sys(cx)?;
        Ok(match self.0.write_data(&args) {
            Ok(ok) => nfs3::Write3res::Ok(ok),
            Err(status) => nfs3::Write3res::Default(status, nfs3::Write3resfail { file_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_commit(&self, cx: &Context, args: nfs3::Commit3args) -> Result<nfs3::Commit3res, HandlerError> {
        sys(cx)?;
        self.0.commits.fetch_add(1, SeqCst);
        if self.0.always_loses.load(SeqCst) {
            self.0.crash();
        }
        let verf = nfs3::Writeverf3(self.0.verifier.load(SeqCst).to_be_bytes());
        if let Some(inode) = id(&args.file).ok().and_then(|id| self.0.inodes.lock().unwrap().get_mut(&id).cloned())
            && let Kind::File(mut data) = inode.kind
        {
            data.stable.clone_from(&data.now);
            if let Ok(id) = id(&args.file)
                && let Some(inode) = self.0.inodes.lock().unwrap().get_mut(&id)
            {
                inode.kind = Kind::File(data);
            }
        }
        Ok(nfs3::Commit3res::Ok(nfs3::Commit3resok { file_wcc: NO_WCC, verf }))
    }

    async fn nfsproc3_create(&self, cx: &Context, args: nfs3::Create3args) -> Result<nfs3::Create3res, HandlerError> {
        sys(cx)?;
        let Createhow3::Unchecked(new) = &args.how else {
            let failure = nfs3::Create3resfail { dir_wcc: NO_WCC };
            return Ok(nfs3::Create3res::Default(Nfsstat3::Notsupp, failure));
        };
        // Like Linux, return an existing object of any type, and truncate files.
        let there = id(&args.r#where.dir).and_then(|dir| self.0.child(dir, &args.r#where.name.0.0));
        let made = match there {
            Ok(id) => {
                let size = nfs3::Sattr3 { mode: SetMode3::False, ..new.clone() };
                let set = self.0.set(id, &size).and_then(|()| self.0.attributes(id));
                set.map(|attributes| (PostOpFh3::True(handle(id)), PostOpAttr::True(attributes)))
            }
            Err(_) => self.0.new_entry(&args.r#where, Kind::File(Data::default()), &new.mode),
        };
        Ok(match made {
            Ok((obj, obj_attributes)) => {
                nfs3::Create3res::Ok(nfs3::Create3resok { obj, obj_attributes, dir_wcc: NO_WCC })
            }
            Err(status) => nfs3::Create3res::Default(status, nfs3::Create3resfail { dir_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_mkdir(&self, cx: &Context, args: nfs3::Mkdir3args) -> Result<nfs3::Mkdir3res, HandlerError> {
        sys(cx)?;
        Ok(match self.0.new_entry(&args.r#where, Kind::Dir(BTreeMap::new()), &args.attributes.mode) {
            Ok((obj, obj_attributes)) => {
                nfs3::Mkdir3res::Ok(nfs3::Mkdir3resok { obj, obj_attributes, dir_wcc: NO_WCC })
            }
            Err(status) => nfs3::Mkdir3res::Default(status, nfs3::Mkdir3resfail { dir_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_symlink(
        &self,
        cx: &Context,
        args: nfs3::Symlink3args,
    ) -> Result<nfs3::Symlink3res, HandlerError> {
        sys(cx)?;
        let kind = Kind::Link(args.symlink.symlink_data.0.to_vec());
        Ok(match self.0.new_entry(&args.r#where, kind, &args.symlink.symlink_attributes.mode) {
            Ok((obj, obj_attributes)) => {
                nfs3::Symlink3res::Ok(nfs3::Symlink3resok { obj, obj_attributes, dir_wcc: NO_WCC })
            }
            Err(status) => nfs3::Symlink3res::Default(status, nfs3::Symlink3resfail { dir_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_remove(&self, cx: &Context, args: nfs3::Remove3args) -> Result<nfs3::Remove3res, HandlerError> {
        sys(cx)?;
        let mut inodes = self.0.inodes.lock().unwrap();
        let dir = id(&args.object.dir).ok().and_then(|id| inodes.get_mut(&id));
        let removed = match dir.map(|inode| &mut inode.kind) {
            Some(Kind::Dir(entries)) => entries.remove(&args.object.name.0.0[..]).is_some(),
            _ => false,
        };
        Ok(if removed {
            nfs3::Remove3res::Ok(nfs3::Remove3resok { dir_wcc: NO_WCC })
        } else {
            nfs3::Remove3res::Default(Nfsstat3::Noent, nfs3::Remove3resfail { dir_wcc: NO_WCC })
        })
    }

    async fn nfsproc3_readdir(
        &self,
        cx: &Context,
        args: nfs3::Readdir3args,
    ) -> Result<nfs3::Readdir3res, HandlerError> {
        sys(cx)?;
        let dir_attributes = PostOpAttr::False;
        Ok(match self.0.page(&args.dir, args.cookie, args.count as usize) {
            Ok((entries, eof)) => {
                let entry =
                    |(name, fileid, cookie)| Entry3 { fileid, name: nfs3::Filename3(Bytes::from(name).into()), cookie };
                nfs3::Readdir3res::Ok(nfs3::Readdir3resok {
                    dir_attributes,
                    cookieverf: args.cookieverf,
                    reply: Dirlist3 { entries: entries.into_iter().map(entry).collect(), eof },
                })
            }
            Err(status) => nfs3::Readdir3res::Default(status, nfs3::Readdir3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_readdirplus(
        &self,
        cx: &Context,
        args: nfs3::Readdirplus3args,
    ) -> Result<nfs3::Readdirplus3res, HandlerError> {
        sys(cx)?;
        let dir_attributes = PostOpAttr::False;
        if self.0.no_readdirplus.load(SeqCst) {
            let failure = nfs3::Readdirplus3resfail { dir_attributes };
            return Ok(nfs3::Readdirplus3res::Default(Nfsstat3::Notsupp, failure));
        }
        Ok(match self.0.page(&args.dir, args.cookie, args.maxcount as usize) {
            Ok((entries, eof)) => {
                // Every third entry has no attributes.
                let entry = |(name, id, cookie): Listed| Entryplus3 {
                    fileid: id,
                    name: nfs3::Filename3(Bytes::from(name).into()),
                    cookie,
                    name_attributes: match self.0.attributes(id) {
                        Ok(attributes) if cookie % 3 != 0 => PostOpAttr::True(attributes),
                        _ => PostOpAttr::False,
                    },
                    name_handle: PostOpFh3::True(handle(id)),
                };
                nfs3::Readdirplus3res::Ok(nfs3::Readdirplus3resok {
                    dir_attributes,
                    cookieverf: args.cookieverf,
                    reply: Dirlistplus3 { entries: entries.into_iter().map(entry).collect(), eof },
                })
            }
            Err(status) => nfs3::Readdirplus3res::Default(status, nfs3::Readdirplus3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_fsinfo(&self, _cx: &Context, _args: nfs3::Fsinfo3args) -> Result<nfs3::Fsinfo3res, HandlerError> {
        let max = self.0.max.load(SeqCst);
        Ok(nfs3::Fsinfo3res::Ok(nfs3::Fsinfo3resok {
            obj_attributes: PostOpAttr::False,
            rtmax: max,
            rtpref: max,
            rtmult: 1,
            wtmax: max,
            wtpref: max,
            wtmult: 1,
            dtpref: 4096,
            maxfilesize: 1 << 40,
            time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
            properties: 0x1b,
        }))
    }

    unsupported! {
        nfsproc3_access(nfs3::Access3args) -> nfs3::Access3res = nfs3::Access3resfail { obj_attributes: PostOpAttr::False };
        nfsproc3_mknod(nfs3::Mknod3args) -> nfs3::Mknod3res = nfs3::Mknod3resfail { dir_wcc: NO_WCC };
        nfsproc3_rmdir(nfs3::Rmdir3args) -> nfs3::Rmdir3res = nfs3::Rmdir3resfail { dir_wcc: NO_WCC };
        nfsproc3_rename(nfs3::Rename3args) -> nfs3::Rename3res =
            nfs3::Rename3resfail { fromdir_wcc: NO_WCC, todir_wcc: NO_WCC };
        nfsproc3_link(nfs3::Link3args) -> nfs3::Link3res =
            nfs3::Link3resfail { file_attributes: PostOpAttr::False, linkdir_wcc: NO_WCC };
        nfsproc3_fsstat(nfs3::Fsstat3args) -> nfs3::Fsstat3res = nfs3::Fsstat3resfail { obj_attributes: PostOpAttr::False };
        nfsproc3_pathconf(nfs3::Pathconf3args) -> nfs3::Pathconf3res =
            nfs3::Pathconf3resfail { obj_attributes: PostOpAttr::False };
    }
}

impl MountV3 for Shared {
    async fn mountproc3_mnt(&self, _cx: &Context, path: mount3::Dirpath) -> Result<mount3::Mountres3, HandlerError> {
        self.0.mount_call().await;
        if path.0 != EXPORT {
            return Ok(mount3::Mountres3::Default(mount3::Mountstat3::Acces));
        }
        let (fhandle, auth_flavors) = (mount3::Fhandle3(handle(ROOT).data), vec![1]);
        Ok(mount3::Mountres3::Ok(mount3::Mountres3Ok { fhandle, auth_flavors }))
    }

    async fn mountproc3_dump(&self, _cx: &Context) -> Result<mount3::Mountlist, HandlerError> {
        Ok(mount3::Mountlist(Vec::new()))
    }

    async fn mountproc3_umnt(&self, _cx: &Context, _path: mount3::Dirpath) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn mountproc3_umntall(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn mountproc3_export(&self, _cx: &Context) -> Result<mount3::Exports, HandlerError> {
        if !self.0.lists.load(SeqCst) {
            return Err(HandlerError::ProcedureUnavailable);
        }
        self.0.mount_call().await;
        let export = |path: &str| mount3::Exportnode {
            ex_dir: mount3::Dirpath(path.into()),
            ex_groups: mount3::Groups(Vec::new()),
        };
        // The list includes shorter, longer and similar paths.
        Ok(mount3::Exports(vec![export("/srv"), export(EXPORT), export("/srv/exp"), export("/srv/export/sub/deeper")]))
    }
}
