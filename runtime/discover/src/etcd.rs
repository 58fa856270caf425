//! Registration of servers in etcd, and their discovery by clients.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, Identity, PutOptions, TlsOptions,
    Txn, TxnOp, WatchOptions,
};
use rpcrdma::client::discover::{Servers, ServersSender};
use rpcrdma_proto::ErrorChain;
use tokio::sync::watch;

/// A service whose servers are registered in etcd. The keys of the servers have a common prefix, and the value of each
/// key is the URL of the server. The options `priority` and `weight` of the [URL](rpcrdma::transport::Url) determine
/// how a balancer uses the server.
///
/// Clients [watch](Self::servers) the keys. Servers [register](Self::register) themselves with a lease, so that the key
/// of a server that crashes disappears when its lease ends.
///
/// If etcd becomes unreachable, the list of servers stays as it is, and the client tries again after 1 s to 30 s.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma_discover::EtcdService;
///
/// let service = EtcdService::new(["https://etcd:2379"], "/services/blobs/");
/// let password = std::fs::read_to_string("/etc/blobs/password")?;
/// let service = service.ca("/etc/etcd/ca.pem").user("blobs", password.trim_end());
/// let servers = service.servers().await?;
/// # drop(servers); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct EtcdService {
    endpoints: Vec<String>,
    prefix: String,
    user: Option<(String, String)>,
    ca: Option<PathBuf>,
    /// The files of the client's certificate and of its key.
    certificate: Option<(PathBuf, PathBuf)>,
}

/// Shows everything but the password.
impl fmt::Debug for EtcdService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdService")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .finish()
    }
}

/// An error of an [`EtcdService`]: an invalid setting, or a failed request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// A request failed or timed out.
    #[error("a request to etcd failed")]
    Request(#[source] Arc<dyn Error + Send + Sync>),
    /// A file of the TLS settings cannot be read.
    #[error("cannot read {} for TLS with etcd", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// The service has an `https` URL and no CA, or TLS settings and a URL that is not `https`.
    #[error(
        "`{url}` does not match the TLS settings: an https URL needs EtcdService::ca, and a CA or certificate needs an https URL"
    )]
    Tls {
        /// The URL of etcd.
        url: String,
    },
}

impl EtcdError {
    fn request(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Request(Arc::new(error))
    }

    /// Returns `true` if etcd cannot be reached, and may come back. Otherwise another attempt would fail as well.
    fn is_unreachable(&self) -> bool {
        let Self::Request(error) = self else { return false };
        if error.is::<tokio::time::error::Elapsed>() {
            return true;
        }
        let Some(etcd_client::Error::GRpcStatus(status)) = error.downcast_ref() else { return false };
        // A certificate that is refused has the same status.
        let mut causes = std::iter::successors(status.source(), |&error| error.source());
        let is_invalid = |error: &std::io::Error| error.kind() == std::io::ErrorKind::InvalidData;
        status.code() as i32 == UNAVAILABLE && !causes.any(|error| error.downcast_ref().is_some_and(is_invalid))
    }
}

impl From<etcd_client::Error> for EtcdError {
    fn from(error: etcd_client::Error) -> Self {
        Self::request(error)
    }
}

/// The status of gRPC for a server that cannot be reached, or that cannot answer now.
const UNAVAILABLE: i32 = 14;
/// Maximum number of servers in the list.
const MAX_SERVERS: usize = ServersSender::MAX_SERVERS;
const MAX_URL_LEN: usize = ServersSender::MAX_URL_LEN;
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The minimum and the maximum pause after failures. The pause before the servers are read again doubles with each
/// failure. A registration is always tried again after the minimum.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Limits the time of a request to [`TIMEOUT`].
async fn limited<T>(request: impl Future<Output = Result<T, etcd_client::Error>>) -> Result<T, EtcdError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(result) => Ok(result?),
        Err(elapsed) => Err(EtcdError::request(elapsed)),
    }
}

impl EtcdService {
    /// Creates a service with the URLs of etcd, and the prefix of the servers' keys.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>, prefix: impl Into<String>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        Self { endpoints, prefix: prefix.into(), user: None, ca: None, certificate: None }
    }

    /// Sets the name and the password of a user of etcd. Use `https` URLs, because the password is sent to etcd.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets the file of the CA certificates, in PEM, one of which must have signed etcd's certificate. `https` URLs
    /// require this setting.
    ///
    /// The files of TLS are read for each connection to etcd, so that they can be renewed.
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Sets the file of the client's certificate chain and the file of its private key, both in PEM. Requires
    /// [`ca`](Self::ca).
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((certificate.into(), key.into()));
        self
    }

    async fn connect(&self) -> Result<Client, EtcdError> {
        // A watch sends nothing for a long time. Without keep-alive, the loss of etcd would remain unnoticed.
        let mut options = ConnectOptions::new()
            .with_connect_timeout(TIMEOUT)
            .with_keep_alive(Duration::from_secs(10), TIMEOUT)
            .with_keep_alive_while_idle(true);
        if let Some((name, password)) = &self.user {
            // Tokens expire within minutes if they are not used.
            options = options.with_user(name, password).with_auto_token_refresh(true);
        }
        let is_tls = self.ca.is_some();
        let has_only_certificate = self.certificate.is_some() && !is_tls;
        let is_wrong = |url: &&String| has_only_certificate || url.starts_with("https:") != is_tls;
        if let Some(url) = self.endpoints.iter().find(is_wrong) {
            return Err(EtcdError::Tls { url: url.clone() });
        }
        if let Some(ca) = &self.ca {
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca).await?));
            if let Some((certificate, key)) = &self.certificate {
                tls = tls.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
            }
            options = options.with_tls(tls);
        }
        limited(Client::connect(&self.endpoints, Some(options))).await
    }

    /// Reads the servers, and watches them as long as the list is used.
    ///
    /// # Errors
    /// Returns an [`EtcdError`] if the first attempt to read the servers fails. Each request times out after 5 s.
    pub async fn servers(self) -> Result<Servers, EtcdError> {
        let (sender, servers) = Servers::channel();
        let mut state = self.read(&sender).await?;
        tokio::spawn(async move {
            let mut pause = PAUSES.0;
            loop {
                let lost = tokio::select! {
                    () = sender.closed() => return,
                    lost = self.follow(&mut state, &sender) => lost,
                };
                if let Err(error) = lost {
                    tracing::warn!(target: "rpcrdma", prefix = %self.prefix, error = %ErrorChain(&error), "lost the watch of etcd");
                }
                state = loop {
                    tokio::select! {
                        () = sender.closed() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    match self.read(&sender).await {
                        Ok(state) => break state,
                        Err(error) => {
                            tracing::warn!(target: "rpcrdma", prefix = %self.prefix, error = %ErrorChain(&error), ?pause, "cannot read etcd");
                            sender.fail(error);
                            pause = pause.saturating_mul(2).min(PAUSES.1);
                        }
                    }
                };
                pause = PAUSES.0;
            }
        });
        Ok(servers)
    }

    /// Reads all keys with the prefix, and sets the list of servers.
    async fn read(&self, sender: &ServersSender) -> Result<Known, EtcdError> {
        let mut client = self.connect().await?;
        let found = limited(client.get(self.prefix.as_str(), Some(GetOptions::new().with_prefix()))).await?;
        let mut servers = BTreeMap::new();
        found.kvs().iter().for_each(|kv| put(&mut servers, kv.key(), kv.value()));
        sender.set(servers.values().cloned());
        let revision = found.header().map_or(0, |header| header.revision());
        Ok(Known { client, servers, revision })
    }

    /// Applies the changes that follow a [`read`](Self::read) to the list of servers, until the watch ends.
    async fn follow(&self, known: &mut Known, sender: &ServersSender) -> Result<(), EtcdError> {
        let Known { client, servers, revision } = known;
        let options = WatchOptions::new().with_prefix().with_start_revision(*revision + 1);
        let mut watch = limited(client.watch(self.prefix.as_str(), Some(options))).await?;
        while let Some(changes) = watch.message().await? {
            if changes.canceled() {
                break;
            }
            for event in changes.events() {
                let Some(kv) = event.kv() else { continue };
                match event.event_type() {
                    EventType::Put => put(servers, kv.key(), kv.value()),
                    EventType::Delete => drop(servers.remove(kv.key())),
                }
            }
            sender.set(servers.values().cloned());
        }
        Ok(())
    }

    /// Registers a server: sets the key `PREFIX` + `name` to the value `url` with a lease of `ttl` in whole seconds, at
    /// least 3 s, and keeps the lease alive. A registration that etcd has lost is made again. If etcd cannot be reached
    /// at first, the function logs a warning, and the server is registered once etcd is back.
    ///
    /// # Errors
    /// Returns an [`EtcdError`] if etcd refuses the registration, or if the settings are wrong.
    pub async fn register(&self, name: &str, url: &str, ttl: Duration) -> Result<EtcdRegistration, EtcdError> {
        let (key, url) = (format!("{}{name}", self.prefix), url.to_owned());
        let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(3);
        let service = self.clone();
        let mut lease = match service.grant(&key, &url, ttl).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_unreachable() => {
                tracing::warn!(
                    target: "rpcrdma", %key, error = %ErrorChain(&error),
                    "cannot register in etcd, the server serves without, and registers when etcd is back"
                );
                None
            }
            Err(error) => return Err(error),
        };
        let (end, mut ended) = watch::channel(());
        let task = tokio::spawn(async move {
            loop {
                if let Some(mut lease) = lease {
                    let lost = tokio::select! {
                        // An error means that the registration was dropped without being removed. The lease then ends
                        // by itself.
                        removed = ended.changed() => {
                            if removed.is_ok() {
                                let _ = limited(lease.client.lease_revoke(lease.id)).await;
                            }
                            return;
                        }
                        lost = lease.keep(ttl) => lost,
                    };
                    tracing::warn!(
                        target: "rpcrdma", %key, error = %ErrorChain(&lost), "lost a lease of etcd, registering again when etcd is back"
                    );
                }
                lease = loop {
                    let granted = async {
                        tokio::time::sleep(PAUSES.0).await;
                        service.grant(&key, &url, ttl).await
                    };
                    tokio::select! {
                        removed = ended.changed() => {
                            // etcd may have kept the key while it was down.
                            if removed.is_ok() {
                                let _ = service.delete(&key, &url).await;
                            }
                            return;
                        }
                        granted = granted => if let Ok(granted) = granted {
                            break Some(granted);
                        },
                    }
                };
                tracing::info!(target: "rpcrdma", %key, "registered in etcd");
            }
        });
        Ok(EtcdRegistration { end, task })
    }

    /// Deletes `key` if its value is `url`, so that the registration of another server stays.
    async fn delete(&self, key: &str, url: &str) -> Result<(), EtcdError> {
        let is_ours = Compare::value(key, CompareOp::Equal, url);
        let deletion = Txn::new().when([is_ours]).and_then([TxnOp::delete(key, None)]);
        limited(self.connect().await?.txn(deletion)).await.map(drop)
    }

    async fn grant(&self, key: &str, url: &str, ttl: i64) -> Result<Lease, EtcdError> {
        let mut client = self.connect().await?;
        let id = limited(client.lease_grant(ttl, None)).await?.id();
        limited(client.put(key, url, Some(PutOptions::new().with_lease(id)))).await?;
        Ok(Lease { client, id })
    }
}

/// The registered servers by key, the revision of etcd at which they were read, and the client that has read them.
struct Known {
    client: Client,
    servers: BTreeMap<Vec<u8>, String>,
    revision: i64,
}

/// The error of a lease that etcd has ended.
#[derive(Debug, thiserror::Error)]
#[error("the lease has ended")]
struct LeaseEnded;

struct Lease {
    client: Client,
    id: i64,
}

impl Lease {
    /// Keeps the lease of `ttl` seconds alive until it is lost. Returns the cause.
    async fn keep(&mut self, ttl: i64) -> EtcdError {
        let kept = async {
            let (mut keeper, mut replies) = limited(self.client.lease_keep_alive(self.id)).await?;
            loop {
                limited(keeper.keep_alive()).await?;
                match limited(replies.message()).await? {
                    Some(reply) if reply.ttl() > 0 => {}
                    _ => return Err(EtcdError::request(LeaseEnded)),
                }
                tokio::time::sleep(Duration::from_secs(ttl.unsigned_abs()) / 3).await;
            }
        };
        let Err::<std::convert::Infallible, _>(error) = kept.await;
        error
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, EtcdError> {
    let file = tokio::fs::read(path).await;
    file.map_err(|error| EtcdError::File { path: path.to_owned(), source: Arc::new(error) })
}

/// Adds or replaces a server. A new server is skipped if the list is full. A server whose URL is too long is skipped or
/// removed.
fn put(servers: &mut BTreeMap<Vec<u8>, String>, key: &[u8], value: &[u8]) {
    servers.remove(key);
    if servers.len() < MAX_SERVERS && value.len() <= MAX_URL_LEN {
        servers.insert(key.to_vec(), String::from_utf8_lossy(value).into_owned());
    } else {
        tracing::warn!(target: "rpcrdma", "skipped a key of etcd: more than {MAX_SERVERS} keys, or {MAX_URL_LEN} bytes of a URL");
    }
}

/// The registration of a server in etcd, made by [`EtcdService::register`].
///
/// When this value is dropped, the server stays registered until its lease has ended. Call
/// [`unregister`](Self::unregister) to remove the registration at once.
#[derive(Debug)]
#[must_use]
pub struct EtcdRegistration {
    end: watch::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl EtcdRegistration {
    /// Removes the registration, and waits until etcd has replied or the request has failed. Errors are ignored,
    /// because the lease ends by itself.
    pub async fn unregister(self) {
        self.end.send_replace(());
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_bounds() {
        let mut servers = BTreeMap::new();
        for n in 0..2 * MAX_SERVERS {
            put(&mut servers, &n.to_be_bytes(), b"tcp://[::1]:1");
        }
        assert_eq!(servers.len(), MAX_SERVERS);
        // A known key stays, unless its URL is too long.
        put(&mut servers, &7_usize.to_be_bytes(), b"tcp://[::1]:2");
        assert_eq!((servers.len(), servers[&7_usize.to_be_bytes()[..]].as_str()), (MAX_SERVERS, "tcp://[::1]:2"));
        put(&mut servers, &7_usize.to_be_bytes(), &[b'x'; MAX_URL_LEN + 1]);
        assert_eq!(servers.len(), MAX_SERVERS - 1);
    }
}
