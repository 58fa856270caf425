//! Servers listed in the EndpointSlices of Kubernetes.

mod api;
mod error;
mod slices;

use std::{sync::Arc, time::Duration};

use kube::Client;
use rpcrdma::client::discover::{Servers, ServersSender};
use rpcrdma_proto::ErrorChain;
use tokio::time::Instant;

pub use self::error::KubernetesError;
use self::{
    api::{Api, Change},
    slices::{PortChoice, Slices},
};

/// A service whose servers are the pods of a Kubernetes Service.
///
/// The client reads the EndpointSlices of the Service (`discovery.k8s.io/v1`), and watches them. A pod is listed while
/// it is ready and not terminating. Its URL consists of its first address in the EndpointSlice and a port.
/// [`port`](Self::port) selects the port by its name. By default, these rules select it:
///
/// - The field `appProtocol` of a port, or its name up to the first `-`, is a URL scheme, as in `iwarp`, `rdma-files`
///   or `tcp`. Other ports, for example of metrics, are not used.
/// - Of several such ports, `rdma` comes first, then `iwarp`, then registered schemes, and `tcp` last. Of several ports
///   with equal preference, the lowest port number is used.
///
/// A pod with addresses of both families is listed with its IPv4 address.
///
/// With TLS, the certificate of each server must have the name `SERVICE.NAMESPACE.svc`. The URLs of the servers have
/// this name as the [option `name`](rpcrdma::transport::Url), if their scheme has the option and the options of
/// [`port`](Self::port) do not set another one.
///
/// If the API server is unreachable, the servers stay as they are, and the client tries again after 1 s to 30 s. The
/// account of the client needs the verbs `list` and `watch` for `endpointslices` in the API group `discovery.k8s.io`.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma_discover::KubernetesService;
///
/// let servers = KubernetesService::new("blobs")?.servers().await?;
/// # drop(servers); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct KubernetesService {
    service: String,
    namespace: Option<String>,
    port: PortChoice,
    client: Option<Client>,
}

/// The minimum and the maximum pause after failures. The pause doubles with each failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl std::fmt::Debug for KubernetesService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesService")
            .field("service", &self.service)
            .field("namespace", &self.namespace)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Checks that `name` consists of 1 to 253 lower-case letters, digits, `-` and `.`, and does not start with `.`, so
/// that it cannot change the path of a request.
fn check(name: &str) -> Result<(), KubernetesError> {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if name.is_empty() || name.len() > 253 || name.starts_with('.') || !name.bytes().all(is_valid) {
        return Err(KubernetesError::Name { name: name.to_owned() });
    }
    Ok(())
}

impl KubernetesService {
    /// Creates a service from the name of a Kubernetes Service. The Kubernetes Service may be headless.
    ///
    /// # Errors
    /// Returns [`KubernetesError::Name`] if the name is invalid.
    pub fn new(service: impl Into<String>) -> Result<Self, KubernetesError> {
        let service = service.into();
        check(&service)?;
        Ok(Self { service, namespace: None, port: PortChoice::ByScheme, client: None })
    }

    /// Sets the namespace of the Kubernetes Service. Default: the namespace in the client's configuration. In a pod,
    /// this is the namespace of the pod.
    ///
    /// # Errors
    /// Returns [`KubernetesError::Name`] if the name is invalid.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Result<Self, KubernetesError> {
        let namespace = namespace.into();
        check(&namespace)?;
        self.namespace = Some(namespace);
        Ok(self)
    }

    /// Selects the port with this name. `scheme` is the scheme of the servers' URLs, and may be followed by options, as
    /// in `iwarp?crc=off`.
    ///
    /// # Errors
    /// Returns [`KubernetesError::Url`] if the scheme or an option is invalid.
    pub fn port(mut self, name: impl Into<String>, scheme: &str) -> Result<Self, KubernetesError> {
        let (scheme, options) = scheme.split_once('?').unwrap_or((scheme, ""));
        let url = format!("{scheme}://pod:0?{options}").parse().map_err(KubernetesError::Url)?;
        self.port = PortChoice::Named { name: name.into(), url };
        Ok(self)
    }

    /// Sets the Kubernetes client. Default: a client with the configuration in `KUBECONFIG` or `~/.kube/config`, or
    /// else with the configuration of the pod.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Reads the EndpointSlices, and watches them until the returned list is dropped.
    ///
    /// # Errors
    /// Returns [`KubernetesError::Config`] if there is no valid client configuration, [`KubernetesError::Name`] if the
    /// default namespace is invalid, and [`KubernetesError::Request`] or [`KubernetesError::Refused`] if the
    /// EndpointSlices cannot be listed. A Service that does not exist is not an error.
    pub async fn servers(self) -> Result<Servers, KubernetesError> {
        let client = match self.client {
            Some(client) => client,
            None => Client::try_default().await.map_err(|error| KubernetesError::Config(Arc::new(error)))?,
        };
        let namespace = self.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        check(&namespace)?;
        let certified = format!("{}.{namespace}.svc", self.service);
        let api = Api::new(client, &namespace, &self.service);
        let slices = Slices::new(self.port, certified);
        let (sender, servers) = Servers::channel();
        let mut follower = Follower { api, slices, version: String::new() };
        follower.list(&sender).await?;
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = follower.follow(&sender) => {}
            }
        });
        Ok(servers)
    }
}

/// The state of the task that follows the EndpointSlices of a Service.
struct Follower {
    api: Api,
    slices: Slices,
    /// The resource version up to which all changes are known.
    version: String,
}

impl Follower {
    /// Reads all EndpointSlices, and sets the list of servers.
    async fn list(&mut self, sender: &ServersSender) -> Result<(), KubernetesError> {
        let mut slices = self.slices.empty();
        self.version = self.api.list(|slice| slices.set(slice)).await?;
        self.slices = slices;
        sender.set(self.slices.urls());
        Ok(())
    }

    /// Watches the EndpointSlices and applies their changes to the list of servers. Never returns.
    async fn follow(&mut self, sender: &ServersSender) {
        let service = self.api.service().to_owned();
        let mut pause = PAUSES.0;
        loop {
            let begin = Instant::now();
            let ended = self.watch(sender).await;
            // A watch that ended in order goes on where it ended. Otherwise the changes in between may be unknown.
            let mut lists = false;
            match ended {
                Ok(()) => pause = PAUSES.0,
                Err(WatchEnd::Gone) => lists = true,
                Err(WatchEnd::Failed(error)) => {
                    tracing::warn!(target: "rpcrdma", %service, error = %ErrorChain(&error), ?pause, "lost the watch of Kubernetes");
                    sender.fail(error);
                    lists = true;
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(PAUSES.1);
                }
            }
            // No more than one request in a second, whatever the server does.
            tokio::time::sleep_until(begin + PAUSES.0).await;
            if lists {
                pause = self.list_again(sender, pause).await;
            }
        }
    }

    /// Reads all EndpointSlices, and retries until this succeeds. `pause` is the pause after the first failure. Returns
    /// the pause to use after the next failure.
    async fn list_again(&mut self, sender: &ServersSender, mut pause: Duration) -> Duration {
        let service = self.api.service().to_owned();
        while let Err(error) = self.list(sender).await {
            tracing::warn!(target: "rpcrdma", %service, error = %ErrorChain(&error), ?pause, "cannot list Kubernetes");
            sender.fail(error);
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSES.1);
        }
        pause
    }

    /// Applies the changes of one watch to the list of servers. Returns `Ok` if the watch has ended and another one can
    /// continue after the last change.
    async fn watch(&mut self, sender: &ServersSender) -> Result<(), WatchEnd> {
        let mut watch = self.api.watch(&self.version).await?;
        while let Some(change) = watch.next().await? {
            match change {
                Change::Set(slice, version) => {
                    self.slices.set(slice);
                    self.version = version;
                    sender.set(self.slices.urls());
                }
                Change::Removed(name, version) => {
                    self.slices.remove(&name);
                    self.version = version;
                    sender.set(self.slices.urls());
                }
                Change::Bookmark(version) => self.version = version,
            }
        }
        Ok(())
    }
}

/// The reason why a watch cannot continue.
enum WatchEnd {
    /// The API server no longer has the changes after the resource version (status 410).
    Gone,
    Failed(KubernetesError),
}

impl From<KubernetesError> for WatchEnd {
    fn from(error: KubernetesError) -> Self {
        match error {
            KubernetesError::Refused { code: 410, .. } => Self::Gone,
            error => Self::Failed(error),
        }
    }
}
