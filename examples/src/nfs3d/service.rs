//! The NFS version 3 service.
//!
//! A procedure that depends on the caller's permissions runs with the identity of the caller. The other procedures run
//! with the server's own identity. A call that need not wait may run on a thread of the runtime. All other calls run on
//! blocking threads.

use std::{fmt, sync::Arc};

use rpcrdma::{
    rpc::AuthStat,
    server::{Context, DuplicateRequests, HandlerError},
};
use rpcrdma_specs::nfs3::{
    Access3args, Access3res, Commit3args, Commit3res, Create3args, Create3res, Fsinfo3args, Fsinfo3res, Fsstat3args,
    Fsstat3res, Getattr3args, Getattr3res, Link3args, Link3res, Lookup3args, Lookup3res, Mkdir3args, Mkdir3res,
    Mknod3args, Mknod3res, NfsFh3, Nfsstat3, Pathconf3args, Pathconf3res, Read3args, Read3res, Readdir3args,
    Readdir3res, Readdirplus3args, Readdirplus3res, Readlink3args, Readlink3res, Remove3args, Remove3res, Rename3args,
    Rename3res, Rmdir3args, Rmdir3res, Setattr3args, Setattr3res, Symlink3args, Symlink3res, Write3args, Write3res,
    nfs_v3::NfsV3,
};

use super::{
    counters::{Counters, Procedure},
    export::Export,
    file_system::DIRECTORY_MAX,
    identity::{Caller, Identity},
    prompt::{self, CallWork, SHORT_READ},
};

/// The NFS service for one [`Export`]. Clones share their state.
#[derive(Clone)]
pub struct NfsService {
    export: Arc<Export>,
    counters: Arc<Counters>,
}

/// Returns the settings of the duplicate request cache of an NFS server (RFC 1813 §4.5), for
/// [`ServerBuilder::duplicate_requests`](rpcrdma::server::ServerBuilder::duplicate_requests). The cache covers every
/// procedure that changes something.
///
/// After a lost connection, clients repeat the calls without a reply on the next connection. Without the cache, a
/// repeated REMOVE would not find its file, and a repeated CREATE would find its file.
pub fn duplicate_requests() -> DuplicateRequests {
    // Linux's client before version 5.1 has the time of the call in its stamps.
    DuplicateRequests::new().ignore_stamp()
}

impl NfsService {
    /// Creates a service for `export`.
    #[must_use]
    pub fn new(export: Arc<Export>) -> Self {
        Self { export, counters: Arc::default() }
    }

    /// Returns the counters of the service.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Performs a call. Uses no blocking thread if `kind` permits it and no step has to wait. Rejects the call if the
    /// export does not accept its flavor. If the call panics, or if the user of the caller cannot be looked up, the
    /// reply is SYSTEM_ERR.
    pub(super) async fn run<T, F>(
        &self,
        cx: &Context,
        procedure: Procedure,
        kind: CallWork,
        work: F,
    ) -> Result<T, HandlerError>
    where
        T: Send + 'static,
        F: Fn(&Export, &Identity) -> T + Send + 'static,
    {
        self.counters.called(procedure);
        if !self.export.accepts(cx.credential(), cx.principal()) {
            return Err(HandlerError::Rejected(AuthStat::AuthTooweak.into()));
        }
        let caller = self.export.identities().caller(cx.credential(), cx.principal());
        let caller = caller.map_err(HandlerError::Rejected)?;
        if let Caller::Known(identity) = &caller
            && self.export.is_prompt(kind)
            && (kind == CallWork::Inspect || self.export.identities().is_prompt(identity))
            && let Some(result) = prompt::attempt(|| work(&self.export, identity))
        {
            return Ok(result);
        }
        let export = Arc::clone(&self.export);
        let work = move || export.identities().identity(caller).map(|who| work(&export, &who));
        Ok(tokio::task::spawn_blocking(work).await??)
    }

    /// Performs a call that clients make when they mount an export. Accepts every flavor for calls on the root
    /// directory, because the client may not have the credentials of a user yet (RFC 2623 §2.3.2).
    async fn run_at_mount<T, F>(
        &self,
        cx: &Context,
        procedure: Procedure,
        handle: &NfsFh3,
        work: F,
    ) -> Result<T, HandlerError>
    where
        T: Send + 'static,
        F: Fn(&Export) -> T + Send + 'static,
    {
        if self.export.accepts(cx.credential(), cx.principal()) || !self.export.is_root(handle) {
            return self.run(cx, procedure, CallWork::Inspect, move |export, _| work(export)).await;
        }
        self.counters.called(procedure);
        let export = Arc::clone(&self.export);
        Ok(tokio::task::spawn_blocking(move || work(&export)).await?)
    }
}

/// Returns `true` if a REMOVE, RMDIR or RENAME that fails with `status` has changed nothing. After other failures, the
/// change may have been made, but may not be permanent.
fn precedes_effects(status: Nfsstat3) -> bool {
    matches!(
        status,
        Nfsstat3::Acces
            | Nfsstat3::Badhandle
            | Nfsstat3::Exist
            | Nfsstat3::Isdir
            | Nfsstat3::Nametoolong
            | Nfsstat3::Noent
            | Nfsstat3::Notdir
            | Nfsstat3::Notempty
            | Nfsstat3::Perm
            | Nfsstat3::Stale
            | Nfsstat3::Xdev
    )
}

impl fmt::Debug for NfsService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NfsService").field("root", &self.export.path()).finish_non_exhaustive()
    }
}

impl NfsV3 for NfsService {
    async fn nfsproc3_getattr(&self, cx: &Context, args: Getattr3args) -> Result<Getattr3res, HandlerError> {
        let object = args.object.clone();
        self.run_at_mount(cx, Procedure::Getattr, &object, move |export| export.getattr(&args)).await
    }

    async fn nfsproc3_setattr(&self, cx: &Context, args: Setattr3args) -> Result<Setattr3res, HandlerError> {
        self.run(cx, Procedure::Setattr, CallWork::Change, move |export, who| export.setattr(who, &args)).await
    }

    async fn nfsproc3_lookup(&self, cx: &Context, args: Lookup3args) -> Result<Lookup3res, HandlerError> {
        self.run(cx, Procedure::Lookup, CallWork::LookUp, move |export, who| export.lookup(who, &args)).await
    }

    async fn nfsproc3_access(&self, cx: &Context, args: Access3args) -> Result<Access3res, HandlerError> {
        self.run(cx, Procedure::Access, CallWork::LookUp, move |export, who| export.access(who, &args)).await
    }

    async fn nfsproc3_readlink(&self, cx: &Context, args: Readlink3args) -> Result<Readlink3res, HandlerError> {
        self.run(cx, Procedure::Readlink, CallWork::Change, move |export, _| export.readlink(&args)).await
    }

    async fn nfsproc3_read(&self, cx: &Context, args: Read3args) -> Result<Read3res, HandlerError> {
        let pool = cx.pool().clone();
        let kind = if args.count <= SHORT_READ { CallWork::ShortRead } else { CallWork::Transfer };
        cx.reserve_results(args.count.min(self.export.max_transfer).into()).await?;
        let result = self.run(cx, Procedure::Read, kind, move |export, who| export.read(who, &pool, &args)).await?;
        let mut len = 0;
        if let Read3res::Ok(ok) = &result {
            len = ok.data.len();
            self.counters.read(len);
        }
        cx.shrink_results(len as u64);
        Ok(result)
    }

    async fn nfsproc3_write(&self, cx: &Context, args: Write3args) -> Result<Write3res, HandlerError> {
        let result =
            self.run(cx, Procedure::Write, CallWork::Transfer, move |export, who| export.write(who, &args)).await?;
        if let Write3res::Ok(ok) = &result {
            self.counters.written(ok.count as usize);
        }
        Ok(result)
    }

    async fn nfsproc3_create(&self, cx: &Context, args: Create3args) -> Result<Create3res, HandlerError> {
        self.run(cx, Procedure::Create, CallWork::Change, move |export, who| export.create(who, &args)).await
    }

    async fn nfsproc3_mkdir(&self, cx: &Context, args: Mkdir3args) -> Result<Mkdir3res, HandlerError> {
        self.run(cx, Procedure::Mkdir, CallWork::Change, move |export, who| export.mkdir(who, &args)).await
    }

    async fn nfsproc3_symlink(&self, cx: &Context, args: Symlink3args) -> Result<Symlink3res, HandlerError> {
        self.run(cx, Procedure::Symlink, CallWork::Change, move |export, who| export.symlink(who, &args)).await
    }

    async fn nfsproc3_mknod(&self, cx: &Context, args: Mknod3args) -> Result<Mknod3res, HandlerError> {
        self.run(cx, Procedure::Mknod, CallWork::Change, move |export, who| export.mknod(who, &args)).await
    }

    async fn nfsproc3_remove(&self, cx: &Context, args: Remove3args) -> Result<Remove3res, HandlerError> {
        let result =
            self.run(cx, Procedure::Remove, CallWork::Change, move |export, who| export.remove(who, &args)).await?;
        if let Remove3res::Default(status, _) = &result
            && precedes_effects(*status)
        {
            cx.had_no_effect();
        }
        Ok(result)
    }

    async fn nfsproc3_rmdir(&self, cx: &Context, args: Rmdir3args) -> Result<Rmdir3res, HandlerError> {
        let result =
            self.run(cx, Procedure::Rmdir, CallWork::Change, move |export, who| export.rmdir(who, &args)).await?;
        if let Rmdir3res::Default(status, _) = &result
            && precedes_effects(*status)
        {
            cx.had_no_effect();
        }
        Ok(result)
    }

    async fn nfsproc3_rename(&self, cx: &Context, args: Rename3args) -> Result<Rename3res, HandlerError> {
        let result =
            self.run(cx, Procedure::Rename, CallWork::Change, move |export, who| export.rename(who, &args)).await?;
        if let Rename3res::Default(status, _) = &result
            && precedes_effects(*status)
        {
            cx.had_no_effect();
        }
        Ok(result)
    }

    async fn nfsproc3_link(&self, cx: &Context, args: Link3args) -> Result<Link3res, HandlerError> {
        self.run(cx, Procedure::Link, CallWork::Change, move |export, who| export.link(who, &args)).await
    }

    async fn nfsproc3_readdir(&self, cx: &Context, args: Readdir3args) -> Result<Readdir3res, HandlerError> {
        cx.reserve_results(args.count.min(DIRECTORY_MAX).into()).await?;
        self.run(cx, Procedure::Readdir, CallWork::Change, move |export, who| export.readdir(who, &args)).await
    }

    async fn nfsproc3_readdirplus(
        &self,
        cx: &Context,
        args: Readdirplus3args,
    ) -> Result<Readdirplus3res, HandlerError> {
        cx.reserve_results(args.maxcount.min(DIRECTORY_MAX).into()).await?;
        self.run(cx, Procedure::Readdirplus, CallWork::Change, move |export, who| export.readdirplus(who, &args)).await
    }

    async fn nfsproc3_fsstat(&self, cx: &Context, args: Fsstat3args) -> Result<Fsstat3res, HandlerError> {
        self.run(cx, Procedure::Fsstat, CallWork::Inspect, move |export, _| export.fsstat(&args)).await
    }

    async fn nfsproc3_fsinfo(&self, cx: &Context, args: Fsinfo3args) -> Result<Fsinfo3res, HandlerError> {
        let root = args.fsroot.clone();
        self.run_at_mount(cx, Procedure::Fsinfo, &root, move |export| export.fsinfo(&args)).await
    }

    async fn nfsproc3_pathconf(&self, cx: &Context, args: Pathconf3args) -> Result<Pathconf3res, HandlerError> {
        self.run(cx, Procedure::Pathconf, CallWork::Inspect, move |export, _| export.pathconf(&args)).await
    }

    async fn nfsproc3_commit(&self, cx: &Context, args: Commit3args) -> Result<Commit3res, HandlerError> {
        self.run(cx, Procedure::Commit, CallWork::Transfer, move |export, _| export.commit(&args)).await
    }
}
