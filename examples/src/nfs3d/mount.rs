//! The MOUNT version 3 service (RFC 1813, appendix I), which gives clients their first handle.
//!
//! MOUNT is served over TCP, because none of its items are eligible (RFC 8267 §5.1), and the client of Linux does not
//! use RDMA for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rpcrdma::{
    rpc::{AuthStat, Credential},
    server::{Context, HandlerError},
    xdr::XdrString,
};
use rpcrdma_specs::{
    mount3::{
        Dirpath, Exportnode, Exports, Fhandle3, Groups, MNTNAMLEN, Mountbody, Mountlist, Mountres3, Mountres3Ok,
        Mountstat3, Name, mount_v3::MountV3,
    },
    nfs3::{Filename3, Nfsstat3},
};
use tokio::task::spawn_blocking;

use super::{
    export::Export,
    identity::{Caller, Identity},
    name::Component,
    object::Object,
    principals::LookupError,
    status::{NfsError, NfsResult},
};
use crate::command::Flavor;

/// Maximum number of mounts that are remembered for DUMP, whose result is informational. The limit is necessary because
/// clients that crash never unmount.
const MAX_MOUNTS: usize = 1024;

/// The MOUNT service for one [`Export`].
#[derive(Debug)]
pub struct MountService {
    export: Arc<Export>,
    name: Vec<u8>,
    mounts: Mutex<VecDeque<(Vec<u8>, Vec<u8>)>>,
}

impl MountService {
    /// Creates a service. Clients mount `export` by the absolute path `name`, by a path below it, or by `/`.
    #[must_use]
    pub fn new(export: Arc<Export>, name: impl Into<Vec<u8>>) -> Self {
        let mut name = name.into();
        while name.len() > 1 && name.ends_with(b"/") {
            name.pop();
        }
        Self { export, name, mounts: Mutex::default() }
    }

    fn mounts(&self) -> MutexGuard<'_, VecDeque<(Vec<u8>, Vec<u8>)>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the part of a requested path below the export's root. Returns `None` if the path is outside of the
    /// export.
    fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        if path == b"/" {
            return Some(b"");
        }
        let rest = path.strip_prefix(self.name.as_slice())?;
        (rest.is_empty() || rest.starts_with(b"/") || self.name == b"/").then_some(rest)
    }
}

/// Returns the host name in the caller's credential, or the caller's address.
fn host(cx: &Context) -> Vec<u8> {
    let mut host = match cx.credential() {
        Credential::Sys(caller) if !caller.machinename.is_empty() => caller.machinename.as_bytes().to_vec(),
        _ => cx.peer_addr().ip().to_string().into_bytes(),
    };
    host.truncate(MNTNAMLEN as usize);
    host
}

fn text(bytes: &[u8]) -> XdrString {
    bytes::Bytes::copy_from_slice(bytes).into()
}

/// Looks up a directory as `who`, component by component and without following links. The caller needs permission for
/// the whole path, because a handle bypasses the directories above it. A server that cannot act as other users uses its
/// own permissions instead.
fn descend(export: &Export, who: &Identity, path: &[u8]) -> NfsResult<Object> {
    let mut at = export.tree.find(export.tree.root().id)?;
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        at = match Component::parse(&Filename3(text(name)))? {
            Component::Current => at,
            Component::Parent => return Err(NfsError(Nfsstat3::Acces)),
            Component::Entry(name) => {
                let at = at.directory()?;
                // A server that cannot act as other users refuses the later calls with the handle instead.
                let _acting = if export.identities.enforced() { Some(export.identities.assume(who)?) } else { None };
                export.tree.enter(&at, &name)?
            }
        };
    }
    at.directory()
}

impl MountV3 for MountService {
    async fn mountproc3_mnt(&self, cx: &Context, args: Dirpath) -> Result<Mountres3, HandlerError> {
        // MNT requires AUTH_UNIX authentication or better (RFC 1813 §5.2.1).
        if matches!(cx.credential(), Credential::None) {
            return Err(HandlerError::Rejected(AuthStat::AuthTooweak.into()));
        }
        let Some(below) = self.below(args.as_bytes()) else {
            tracing::info!(peer = %cx.peer_addr(), path = %args.as_bytes().escape_ascii(), "not exported");
            return Ok(Mountres3::Default(Mountstat3::Acces));
        };
        let identities = self.export.identities();
        // Clients use AUTH_SYS for MOUNT whatever the flavor of their NFS calls. Where AUTH_SYS is not accepted, its
        // users prove nothing, so a path below the export needs the permissions of the anonymous user.
        let caller = if self.export.accepts(cx.credential(), cx.principal()) {
            identities.caller(cx.credential(), cx.principal()).map_err(HandlerError::Rejected)?
        } else {
            Caller::Known(identities.anonymous())
        };
        let (export, below) = (Arc::clone(&self.export), below.to_vec());
        let found = spawn_blocking(move || {
            let who = export.identities().identity(caller)?;
            Ok::<_, LookupError>(descend(&export, &who, &below).map(|object| export.sealer.seal(object.id)))
        })
        .await??;
        match found {
            Ok(handle) => {
                tracing::info!(peer = %cx.peer_addr(), path = %args.as_bytes().escape_ascii(), "mounted");
                let mount = (host(cx), args.as_bytes().to_vec());
                let mut mounts = self.mounts();
                mounts.retain(|known| *known != mount);
                if mounts.len() == MAX_MOUNTS {
                    mounts.pop_front();
                }
                mounts.push_back(mount);
                // RFC 1813 §5.2.1: the flavors of the NFS calls, in the order of preference.
                let auth_flavors = self.export.flavors().iter().map(Flavor::number).collect();
                let ok = Mountres3Ok { fhandle: Fhandle3(handle.data), auth_flavors };
                Ok(Mountres3::Ok(ok))
            }
            Err(refusal) => Ok(Mountres3::Default(mount_status(refusal))),
        }
    }

    async fn mountproc3_dump(&self, _cx: &Context) -> Result<Mountlist, HandlerError> {
        let mount = |(host, path): &(Vec<u8>, Vec<u8>)| Mountbody {
            ml_hostname: Name(text(host)),
            ml_directory: Dirpath(text(path)),
        };
        Ok(Mountlist(self.mounts().iter().map(mount).collect()))
    }

    async fn mountproc3_umnt(&self, cx: &Context, args: Dirpath) -> Result<(), HandlerError> {
        let mount = (host(cx), args.as_bytes().to_vec());
        self.mounts().retain(|known| *known != mount);
        Ok(())
    }

    async fn mountproc3_umntall(&self, cx: &Context) -> Result<(), HandlerError> {
        let caller = host(cx);
        self.mounts().retain(|(host, _)| *host != caller);
        Ok(())
    }

    async fn mountproc3_export(&self, _cx: &Context) -> Result<Exports, HandlerError> {
        // An empty list of groups means that every host may mount the export.
        let export = Exportnode { ex_dir: Dirpath(text(&self.name)), ex_groups: Groups(Vec::new()) };
        Ok(Exports(vec![export]))
    }
}

/// Converts an NFS status to the equivalent MOUNT status (RFC 1813 §5.1.5), or to MNT3ERR_SERVERFAULT if there is none.
fn mount_status(refusal: NfsError) -> Mountstat3 {
    match refusal.0 {
        Nfsstat3::Perm => Mountstat3::Perm,
        Nfsstat3::Noent => Mountstat3::Noent,
        Nfsstat3::Io => Mountstat3::Io,
        Nfsstat3::Acces => Mountstat3::Acces,
        Nfsstat3::Notdir => Mountstat3::Notdir,
        Nfsstat3::Inval => Mountstat3::Inval,
        Nfsstat3::Nametoolong => Mountstat3::Nametoolong,
        _ => Mountstat3::Serverfault,
    }
}
