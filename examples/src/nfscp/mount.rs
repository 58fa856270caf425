//! Lookup of the ports of NFS and MOUNT with rpcbind, and mounting of an export with MOUNT version 3. Calls to rpcbind
//! and MOUNT use TCP. RFC 8267 §5.1 requires servers to support MOUNT over TCP.

use std::time::Duration;

use rpcrdma::{
    client::{CallError, Channel},
    error::CallFailure,
    rpc::OpaqueAuth,
    transport::{TlsPolicy, Transport},
};
use rpcrdma_specs::{
    mount3::{Dirpath, MNTPATHLEN, Mountres3, Mountstat3, mount_v3, mount_v3::MountV3Client},
    nfs3::{NfsFh3, nfs_v3},
    rpcbind::{Netid, Rpcbind},
};

use super::{
    error::{CopyError, MountStatus},
    location::NfsUrl,
};
use crate::command::{ClientTls, Flavor, chain};

/// The options for calls to MOUNT and to rpcbind.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MountOptions {
    /// The TCP port of MOUNT. By default, rpcbind is asked for the port.
    pub port: Option<u16>,
    /// The TCP port of rpcbind. The default is 111.
    pub rpcbind_port: u16,
    /// The time limit for connecting and for each call. The default is 10 s.
    pub timeout: Duration,
    /// The credential of the calls to MOUNT. The default is AUTH_NONE, which calls to rpcbind always have.
    pub credential: OpaqueAuth,
    /// The TLS configuration of the connection to MOUNT. The connection to rpcbind does not use TLS.
    pub tls: ClientTls,
    /// The policy for the use of TLS with MOUNT, in place of the policy in `tls`. `None` keeps the latter.
    pub tls_policy: Option<TlsPolicy>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            port: None,
            rpcbind_port: 111,
            timeout: Duration::from_secs(10),
            credential: OpaqueAuth::none(),
            tls: ClientTls::default(),
            tls_policy: None,
        }
    }
}

/// An export that stays mounted until [`unmount`](Self::unmount).
#[derive(Debug)]
pub struct Mounted {
    /// The handle of the export's root directory.
    pub root: NfsFh3,
    /// The path of the export on the server.
    pub export: Vec<u8>,
    /// The numbers of the security flavors that the server accepts for the export, in order of preference. Empty if
    /// they are unknown.
    pub flavors: Vec<i32>,
    /// The URL of MOUNT. `None` if the root handle was given and MOUNT was not called.
    url: Option<String>,
    options: MountOptions,
}

impl Mounted {
    /// Creates an export from a known root handle, without MOUNT. Paths are relative to the directory of this handle.
    #[must_use]
    pub fn known(root: NfsFh3) -> Self {
        Self { root, export: vec![b'/'], flavors: Vec::new(), url: None, options: MountOptions::default() }
    }

    /// Mounts the export that contains the path of `url`.
    ///
    /// The function tries the matching paths in the server's list, the longest first. If none matches, it tries the
    /// path itself and then each directory above it. It uses the first one that the server accepts.
    ///
    /// # Errors
    /// Fails if rpcbind does not provide the port, or if MOUNT is unreachable or refuses all paths.
    pub async fn mount(url: &NfsUrl, options: MountOptions) -> Result<Self, CopyError> {
        let port = match options.port {
            Some(port) => port,
            None => mount_port(url, &options).await?,
        };
        let mut mount_url = url.tcp_url(port);
        if let Some(policy) = options.tls_policy {
            mount_url.push_str(&format!("?tls={policy}"));
        }
        let client = connect(&mount_url, &options).await.map(MountV3Client::new)?;
        let path = normal(url.path());
        let listed = match twice(|| client.mountproc3_export()).await {
            Ok(exports) => exports.0.into_iter().map(|export| normal(export.ex_dir.0.as_bytes())).collect(),
            // A server may refuse to list its exports.
            Err(CallError::Rpc { .. }) => Vec::new(),
            Err(error) => return Err(no_reply(&mount_url, error)),
        };
        let mut candidates: Vec<_> = listed.into_iter().filter(|export| below(&path, export).is_some()).collect();
        candidates.sort_by_key(|export| std::cmp::Reverse(export.len()));
        if candidates.is_empty() {
            candidates = ancestors(&path);
        }
        let mut refused = None;
        for export in candidates.into_iter().filter(|export| export.len() <= MNTPATHLEN as usize) {
            let dirpath = Dirpath(bytes::Bytes::copy_from_slice(&export).into());
            let mounted = twice(|| client.mountproc3_mnt(&dirpath)).await.map_err(|error| match error {
                CallError::Transport { .. } => no_reply(&mount_url, error),
                error => error.into(),
            });
            match mounted? {
                Mountres3::Ok(ok) => {
                    let root = NfsFh3 { data: ok.fhandle.0 };
                    return Ok(Self { root, export, flavors: ok.auth_flavors, url: Some(mount_url), options });
                }
                // The first refusal concerns the longest path and is the most informative.
                Mountres3::Default(status) => refused = refused.or(Some((export, status))),
            }
        }
        let (export, status) = refused.unwrap_or((path, Mountstat3::Nametoolong));
        Err(CopyError::Mount { path: String::from_utf8_lossy(&export).into_owned(), status: MountStatus(status) })
    }

    /// Returns the security flavor for the export: `wanted`, or by default the server's first flavor that this program
    /// supports. If the server's flavors are unknown, the default is AUTH_SYS.
    ///
    /// # Errors
    /// Fails if the server does not accept the wanted flavor (RFC 1813 §5.2.1), or if there is no common flavor.
    pub fn flavor(&self, wanted: Option<Flavor>) -> Result<Flavor, CopyError> {
        choose(&self.flavors, wanted)
    }

    /// Returns the part of `path` below the export, or `None` if `path` is outside of it.
    #[must_use]
    pub fn inside(&self, path: &[u8]) -> Option<Vec<u8>> {
        below(&normal(path), &self.export)
    }

    /// Tells the server that the export is unmounted. Ignores failures, because the server only keeps an informational
    /// list of mounts (RFC 1813 §5.2.3).
    pub async fn unmount(self) {
        let Some(url) = self.url else { return };
        let Ok(channel) = connect(&url, &self.options).await else { return };
        let dirpath = Dirpath(bytes::Bytes::from(self.export).into());
        if let Err(error) = MountV3Client::new(channel).mountproc3_umnt(&dirpath).await {
            tracing::debug!(error = chain(&error), "UMNT");
        }
    }
}

/// Makes a call, and makes it again if it got no reply. nfs-ganesha loses the first call of some TLS sessions.
async fn twice<T, F: Future<Output = Result<T, CallError>>>(call: impl Fn() -> F) -> Result<T, CallError> {
    match call().await {
        Err(CallError::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. }) => {
            tracing::warn!("MOUNT did not answer, calling it once more");
            call().await
        }
        result => result,
    }
}

fn no_reply(url: &str, error: CallError) -> CopyError {
    CopyError::NoMount { what: format!("no reply from MOUNT at {url}"), source: Some(error.into()) }
}

async fn connect(url: &str, options: &MountOptions) -> Result<Channel, CopyError> {
    let builder = Channel::builder().connect_timeout(options.timeout).call_timeout(options.timeout);
    let connecting = options.tls.apply(builder.credential(options.credential.clone())).connect(url);
    let what = "cannot connect to MOUNT, which provides file handles";
    connecting.await.map_err(|error| CopyError::NoMount { what: what.to_owned(), source: Some(error.into()) })
}

/// Maximum time to wait for the port of NFS from rpcbind. The wait is short because NFS has default ports.
const NFS_PORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the URL of the NFS server for [`Channel::connect`].
///
/// If `url` has no port, this function asks rpcbind for NFS version 3 over the transport of `url`. The netids are `tcp`
/// and `tcp6`, or `rdma` and `rdma6` (RFC 5665 §5.1, RFC 8166 §5). If rpcbind does not answer or lists no such server,
/// the URL has the default port.
pub(super) async fn nfs_url(url: &NfsUrl, options: &MountOptions) -> String {
    if url.has_port() {
        return url.transport_url();
    }
    let found = tokio::time::timeout(options.timeout.min(NFS_PORT_TIMEOUT), nfs_port(url, options)).await;
    let port = found.unwrap_or_else(|_| {
        tracing::debug!(host = url.host(), "rpcbind does not answer");
        None
    });
    port.map_or_else(|| url.transport_url(), |port| url.transport_url_at(port))
}

/// Asks rpcbind for the port of NFS. Returns `None` if rpcbind is unreachable or lists no such server.
async fn nfs_port(url: &NfsUrl, options: &MountOptions) -> Option<u16> {
    let log =
        |error: &(dyn std::error::Error + 'static)| tracing::debug!(error = chain(error), "rpcbind does not know NFS");
    let channel = connect_rpcbind(url, options).await.inspect_err(|error| log(error)).ok()?;
    // The server may be registered for one address family, and listen on both.
    let mut netids = if url.is_tcp() { [Netid::Tcp, Netid::Tcp6] } else { [Netid::Rdma, Netid::Rdma6] };
    if channel.info().peer_addr.is_ipv6() {
        netids.reverse();
    }
    let rpcbind = Rpcbind::new(channel);
    for netid in netids {
        let found = rpcbind.lookup(nfs_v3::PROGRAM, nfs_v3::VERSION, netid).await;
        if let Some(addr) = found.inspect_err(|error| log(error)).ok()? {
            return Some(addr.port());
        }
    }
    None
}

async fn connect_rpcbind(url: &NfsUrl, options: &MountOptions) -> Result<Channel, rpcrdma::client::ConnectError> {
    let builder = Channel::builder().connect_timeout(options.timeout).call_timeout(options.timeout);
    builder.connect(&url.tcp_url(options.rpcbind_port)).await
}

/// Asks rpcbind for the TCP port of MOUNT. Fails if rpcbind is unreachable or lists no MOUNT version 3.
async fn mount_port(url: &NfsUrl, options: &MountOptions) -> Result<u16, CopyError> {
    let rpcbind = connect_rpcbind(url, options).await;
    let what = "cannot connect to rpcbind, which knows the port of MOUNT";
    let channel = rpcbind.map_err(|error| CopyError::NoMount { what: what.to_owned(), source: Some(error.into()) })?;
    let peer = channel.info().peer_addr;
    let netid = Netid::of(Transport::Tcp, peer.ip());
    let found = Rpcbind::new(channel).lookup(mount_v3::PROGRAM, mount_v3::VERSION, netid).await?;
    let unknown =
        || CopyError::NoMount { what: format!("rpcbind on {peer} lists no MOUNT version 3 over TCP"), source: None };
    found.map(|addr| addr.port()).ok_or_else(unknown)
}

fn choose(flavors: &[i32], wanted: Option<Flavor>) -> Result<Flavor, CopyError> {
    let known = || flavors.iter().filter_map(|flavor| Flavor::from_number(*flavor));
    let chosen = match wanted {
        _ if flavors.is_empty() => return Ok(wanted.unwrap_or(Flavor::Sys)),
        Some(wanted) => known().find(|flavor| *flavor == wanted),
        None => known().find(|flavor| flavor.is_supported()),
    };
    chosen.ok_or_else(|| {
        let names: Vec<_> = flavors
            .iter()
            .map(|number| Flavor::from_number(*number).map_or_else(|| number.to_string(), |flavor| flavor.to_string()))
            .collect();
        let names = names.join(":");
        let advice = match wanted {
            Some(wanted) => format!("not {wanted}; choose another one with --sec"),
            None if known().next().is_some() => {
                "and this program was built without Kerberos, build it with `--features gss`".to_owned()
            }
            None => "none of which this program supports".to_owned(),
        };
        CopyError::InvalidTarget(format!("the export accepts the security flavors {names}, {advice}"))
    })
}

/// Returns a path as an absolute path without `.`, and without repeated or trailing slashes. Keeps `..`, which the
/// server interprets.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len() + 1);
    for part in path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
        normal.push(b'/');
        normal.extend_from_slice(part);
    }
    if normal.is_empty() { vec![b'/'] } else { normal }
}

/// Returns the part of `path` below `dir`. Returns `None` if `path` is outside of `dir`. Both must be normalized.
fn below(path: &[u8], dir: &[u8]) -> Option<Vec<u8>> {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    let rest = path.strip_prefix(dir)?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| rest.to_vec())
}

/// Returns a normalized path and its ancestors, longest first.
fn ancestors(path: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![path.to_vec()];
    let mut path = path;
    while let Some(slash) = path.iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0) {
        path = &path[..slash];
        all.push(path.to_vec());
    }
    if all.last().is_some_and(|path| path != b"/") {
        all.push(vec![b'/']);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(normal(b"//a/./b//"), b"/a/b");
        assert_eq!(normal(b"/"), b"/");
        assert_eq!(below(b"/a/b", b"/a"), Some(b"/b".to_vec()));
        assert_eq!(below(b"/a", b"/a"), Some(vec![]));
        assert_eq!(below(b"/a/b", b"/"), Some(b"/a/b".to_vec()));
        assert_eq!(below(b"/ab", b"/a"), None);
        assert_eq!(ancestors(b"/a/b"), [&b"/a/b"[..], b"/a", b"/"]);
        assert_eq!(ancestors(b"/"), [b"/"]);
    }

    #[test]
    fn flavors() {
        let refused = |flavors: &[i32], wanted| choose(flavors, wanted).unwrap_err().to_string();
        assert_eq!(choose(&[], None).unwrap(), Flavor::Sys);
        assert_eq!(choose(&[], Some(Flavor::Krb5p)).unwrap(), Flavor::Krb5p);
        assert_eq!(choose(&[0, 1, 390_003], None).unwrap(), Flavor::Sys);
        assert_eq!(choose(&[1, 390_005], Some(Flavor::Krb5p)).unwrap(), Flavor::Krb5p);
        let first = if cfg!(feature = "gss") { Flavor::Krb5i } else { Flavor::Sys };
        assert_eq!(choose(&[6, 390_004, 1], None).unwrap(), first);
        let text = refused(&[390_003, 390_005], Some(Flavor::Sys));
        assert!(text.contains("krb5:krb5p, not sys"), "{text}");
        assert!(refused(&[6], None).contains("none of which"), "{}", refused(&[6], None));
        if !cfg!(feature = "gss") {
            assert!(refused(&[390_003], None).contains("`--features gss`"));
        }
    }
}
