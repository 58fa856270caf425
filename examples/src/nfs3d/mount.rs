//! MOUNT version 3 (RFC 1813, appendix I): where clients get their first handle.
//!
//! RFC 8267 §5.1 leaves it to TCP: no item is eligible, and Linux's client does not call it otherwise.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rpcrdma::{
    rpc::{AuthStat, Credential},
    server::{Context, Failure},
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
    identity::Identity,
    name::Component,
    object::Object,
    status::{Outcome, Refusal},
};

/// Flavors that NFS calls are taken with: AUTH_SYS.
const FLAVORS: [i32; 1] = [1];
/// Most mounts remembered for DUMP. It is for people to look at, and clients that crash never leave.
const MOST_MOUNTS: usize = 1024;

/// Serves the handles of one [`Export`].
#[derive(Debug)]
pub struct MountService {
    export: Arc<Export>,
    name: Vec<u8>,
    mounts: Mutex<VecDeque<(Vec<u8>, Vec<u8>)>>,
}

impl MountService {
    /// Clients mount `export` as `name`, an absolute path, or a directory below it, or `/` for short.
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

    /// The path below the root that a client means.
    fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        if path == b"/" {
            return Some(b"");
        }
        let rest = path.strip_prefix(self.name.as_slice())?;
        (rest.is_empty() || rest.starts_with(b"/") || self.name == b"/").then_some(rest)
    }
}

/// The host that a caller says it is, or the address that it calls from.
fn host(cx: &Context) -> Vec<u8> {
    let mut host = match cx.credential() {
        Credential::Sys(caller) if !caller.machinename.is_empty() => caller.machinename.as_bytes().to_vec(),
        _ => cx.peer_addr().ip().to_string().into_bytes(),
    };
    host.truncate(MNTNAMLEN as usize);
    host
}

fn text(octets: &[u8]) -> XdrString {
    bytes::Bytes::copy_from_slice(octets).into()
}

/// Goes down to a directory name by name, following no links, as `who`: a handle passes by the permissions above it.
fn descend(export: &Export, who: &Identity, path: &[u8]) -> Outcome<Object> {
    let mut at = export.tree.find(export.tree.root().id)?;
    for name in path.split(|&octet| octet == b'/').filter(|name| !name.is_empty()) {
        at = match Component::parse(&Filename3(text(name)))? {
            Component::Current => at,
            Component::Parent => return Err(Refusal(Nfsstat3::Acces)),
            Component::Entry(name) => {
                let at = at.directory()?;
                // Where the server can act as nobody else, it is the calls by the handle that are refused.
                let _acting = if export.identities.enforced() { Some(export.identities.assume(who)?) } else { None };
                export.tree.enter(&at, &name)?
            }
        };
    }
    at.directory()
}

impl MountV3 for MountService {
    async fn mountproc3_mnt(&self, cx: &Context, args: Dirpath) -> Result<Mountres3, Failure> {
        // RFC 1813 §5.2.1: AUTH_UNIX authentication or better is required.
        if matches!(cx.credential(), Credential::None) {
            return Err(Failure::Denied(AuthStat::AuthTooweak.into()));
        }
        let Some(below) = self.below(args.as_bytes()) else {
            tracing::info!(peer = %cx.peer_addr(), path = %args.as_bytes().escape_ascii(), "not exported");
            return Ok(Mountres3::Default(Mountstat3::Acces));
        };
        let who = self.export.identities().of(cx.credential()).map_err(Failure::Denied)?;
        let (export, below) = (Arc::clone(&self.export), below.to_vec());
        let found =
            spawn_blocking(move || descend(&export, &who, &below).map(|object| export.sealer.seal(object.id))).await?;
        match found {
            Ok(handle) => {
                tracing::info!(peer = %cx.peer_addr(), path = %args.as_bytes().escape_ascii(), "mounted");
                let mount = (host(cx), args.as_bytes().to_vec());
                let mut mounts = self.mounts();
                mounts.retain(|known| *known != mount);
                if mounts.len() == MOST_MOUNTS {
                    mounts.pop_front();
                }
                mounts.push_back(mount);
                let ok = Mountres3Ok { fhandle: Fhandle3(handle.data), auth_flavors: FLAVORS.to_vec() };
                Ok(Mountres3::Ok(ok))
            }
            Err(refusal) => Ok(Mountres3::Default(mount_status(refusal))),
        }
    }

    async fn mountproc3_dump(&self, _cx: &Context) -> Result<Mountlist, Failure> {
        let mount = |(host, path): &(Vec<u8>, Vec<u8>)| Mountbody {
            ml_hostname: Name(text(host)),
            ml_directory: Dirpath(text(path)),
        };
        Ok(Mountlist(self.mounts().iter().map(mount).collect()))
    }

    async fn mountproc3_umnt(&self, cx: &Context, args: Dirpath) -> Result<(), Failure> {
        let mount = (host(cx), args.as_bytes().to_vec());
        self.mounts().retain(|known| *known != mount);
        Ok(())
    }

    async fn mountproc3_umntall(&self, cx: &Context) -> Result<(), Failure> {
        let caller = host(cx);
        self.mounts().retain(|(host, _)| *host != caller);
        Ok(())
    }

    async fn mountproc3_export(&self, _cx: &Context) -> Result<Exports, Failure> {
        // No groups: everybody.
        let export = Exportnode { ex_dir: Dirpath(text(&self.name)), ex_groups: Groups(Vec::new()) };
        Ok(Exports(vec![export]))
    }
}

/// The same errors by their other names (§5.1.5).
fn mount_status(refusal: Refusal) -> Mountstat3 {
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
