//! Permission to lock a file.

use std::time::Duration;

use rpcrdma::server::Context;
use rpcrdma_specs::{
    nfs3::{ACCESS3_MODIFY, ACCESS3_READ, NfsFh3, Nfsstat3},
    nlm4::{Netobj, Nlm4Stats},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::manager::LockManager;
use crate::nfs3d::{
    export::Export,
    handle::FileId,
    identity::{Caller, Identity},
    status::{NfsError, NfsResult},
};

/// Maximum time that a call waits for the search for its file.
const SEARCH: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

impl Export {
    /// Returns the identity of a regular file if `who` owns the file, or may read or write it. If `who` is `None`,
    /// checks no permission.
    fn lockable(&self, who: Option<&Identity>, handle: &NfsFh3) -> NfsResult<FileId> {
        let object = self.find(handle)?.regular()?;
        match who {
            Some(who)
                if who.uid() != object.stat.0.stx_uid
                    && self.granted(who, &object, ACCESS3_READ | ACCESS3_MODIFY) == 0 =>
            {
                Err(NfsError(Nfsstat3::Acces))
            }
            _ => Ok(object.id),
        }
    }
}

impl LockManager {
    /// Returns the identity of the file to which `handle` refers, even if the file has been removed.
    pub(super) fn file(&self, handle: &Netobj) -> Result<FileId, Nlm4Stats> {
        self.export().sealer.open(&NfsFh3 { data: handle.0.clone() }).map_err(|_| Nlm4Stats::StaleFh)
    }

    /// Returns the identity of the file to which `handle` refers if the caller may lock the file. If the file is still
    /// being searched for, waits up to [`SEARCH`].
    ///
    /// Linux's client uses AUTH_SYS for NLM whatever the flavor of its NFS calls. If the export does not accept
    /// AUTH_SYS, the credential proves nothing, and permissions are not checked. A lock gives no access to the file.
    pub(super) async fn lockable(&self, cx: &Context, handle: &Netobj) -> Result<FileId, Nlm4Stats> {
        let export = self.export();
        let caller = if export.accepts(cx.credential(), cx.principal()) {
            Some(export.identities().caller(cx.credential(), cx.principal()).map_err(|_| Nlm4Stats::Failed)?)
        } else {
            None
        };
        let deadline = Instant::now() + SEARCH;
        loop {
            let (export, caller, handle) = (export.clone(), caller.clone(), NfsFh3 { data: handle.0.clone() });
            let work = move || {
                let identity = |caller: Caller| export.identities().identity(caller);
                let who = caller.map(identity).transpose().map_err(|_| NfsError(Nfsstat3::Serverfault))?;
                export.lockable(who.as_ref(), &handle)
            };
            match spawn_blocking(work).await {
                Ok(Ok(file)) => return Ok(file),
                // The file is being searched for, as happens after a restart.
                Ok(Err(NfsError(Nfsstat3::Jukebox))) if Instant::now() < deadline => sleep(PAUSE).await,
                Ok(Err(NfsError(Nfsstat3::Stale | Nfsstat3::Badhandle))) => return Err(Nlm4Stats::StaleFh),
                Ok(Err(_)) | Err(_) => return Err(Nlm4Stats::Failed),
            }
        }
    }
}
