//! The URL scheme `sim-rdma`: connectors and listeners of the simulated RDMA network.

use std::{future::poll_fn, io, net::SocketAddr, sync::LazyLock};

use rpcrdma::{
    provider::{
        Connected, Connector, SetupError, SetupParams,
        sim::{SimListener, SimNetwork, SimQueuePair},
    },
    transport::{Scheme, SchemeError, SchemeProvider, UrlOption, UrlOptions},
};

use crate::network::{Host, Medium, Network};

/// The URL option that contains the client's host.
pub(crate) const FROM: UrlOption = UrlOption::new("from", "HOST", |value| value.parse::<Host>().is_ok());

/// Returns the client's host from the options of a URL, or 0 if they do not contain it.
pub(crate) fn client(options: &UrlOptions) -> Host {
    options.get("from").and_then(|host| host.parse().ok()).unwrap_or_default()
}

/// Returns the network of this thread, or an error outside of a run.
pub(crate) fn network() -> io::Result<Network> {
    Network::current().ok_or_else(|| io::Error::other("no simulation runs in this thread"))
}

struct SimulatedRdma;

impl SchemeProvider for SimulatedRdma {
    type Connector = SimulatedConnector;
    type Listener = SimListener;

    fn options(&self) -> &'static [UrlOption] {
        &[FROM]
    }

    fn connector(&self, options: &UrlOptions) -> SimulatedConnector {
        SimulatedConnector(client(options))
    }

    fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
        network()?.fabric().listen(addr.port())
    }
}

/// Returns the URL scheme `sim-rdma`. The first call registers it in this process.
///
/// # Errors
/// Returns the error of the registration.
pub(crate) fn scheme() -> Result<Scheme, SchemeError> {
    static SCHEME: LazyLock<Result<Scheme, SchemeError>> =
        LazyLock::new(|| Scheme::register("sim-rdma", SimulatedRdma));
    SCHEME.clone()
}

struct SimulatedConnector(Host);

impl Connector for SimulatedConnector {
    type QueuePair = SimQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        let network = network()?;
        let (client, server) = (self.0, Network::host(peer));
        if !network.request(client, server).await {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let connector = network.fabric().connector().from_addr(Network::ip(client));
        let connected = connector.connect(peer, params).await?;
        let medium = connected.queue_pair.network().clone();
        network.add(client, server, Medium::Rdma(medium.clone()));
        tokio::spawn(carry(network.clone(), client, server, medium));
        network.delay(client, server).await;
        Ok(connected)
    }
}

/// Carries the messages and RDMA operations of both ends, one step after the other.
async fn carry(network: Network, client: Host, server: Host, medium: SimNetwork) {
    while poll_fn(|cx| medium.poll_step(cx)).await {
        network.delay(client, server).await;
        if network.is_cut(client, server) {
            medium.cut();
            continue;
        }
        medium.step();
    }
}
