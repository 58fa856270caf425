//! The part of a hostile peer that carries out its plan.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{
    provider::{
        ConnectRequest as _, Connector as _, Incoming as _, Listener as _, SetupParams,
        sim::{SimEnd, SimNetwork},
    },
    transport::StreamListener as _,
};
use tokio::{
    io::DuplexStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    Wire,
    healthy::Healthy,
    iwarp::IwarpLink,
    link::{Link, RdmaLink, TcpLink},
    network::{ATTACKED, Host, Network, addr},
    peer::Peer,
    plan::{Exchange, MAX_STEPS, Plan, Setup, Step},
};

/// The host of hostile peers.
const HOSTILE: Host = 66;
/// Maximum number of rounds in which the tasks of the product run before the next step.
const ROUNDS: u32 = 40;
/// Maximum number of connections of a hostile peer at a time.
const MAX_CONNECTIONS: usize = 6;
/// Interval at which [`idle`] checks its condition.
const INTERVAL: Duration = Duration::from_millis(200);
/// Durations of pauses in milliseconds.
const PAUSES: [u64; 8] = [1, 10, 100, 500, 1000, 3000, 7000, 20_000];

impl Setup {
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & 1 << flag != 0
    }

    /// Returns the private data of the peer. Bits 1 and 2 of the flags select valid private data of version 1, none, or
    /// up to 59 copies of one byte.
    fn private_data(self) -> Vec<u8> {
        match self.flags & 6 {
            0 => vec![0xf6, 0xab, 0x0e, 0x18, 1, self.number & 1, 3, 3],
            2 => Vec::new(),
            _ => vec![self.number; usize::from(self.number % 60)],
        }
    }

    fn params(self) -> SetupParams {
        let mut params = SetupParams::default();
        params.private_data = Bytes::from(self.private_data());
        params.timeout = Duration::from_secs(2);
        params
    }
}

/// Returns `true` if a plan uses version 2.
pub(crate) fn is_v2(wire: Wire, setup: Setup) -> bool {
    wire == Wire::V2 || (wire == Wire::Iwarp && setup.has(0))
}

/// Creates the network of a plan. Bit 5 of its flags selects stream buffers of 512 bytes in place of 64 KiB, and bit 6
/// selects CRCs.
pub(crate) fn network(wire: Wire, setup: Setup) -> Network {
    Network::new(wire, if setup.has(5) { 512 } else { 1 << 16 }, setup.has(6))
}

/// Waits in virtual time until a condition holds. Returns `false` if it does not hold within `limit`.
pub(crate) async fn idle(is_idle: impl Fn() -> bool, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while !is_idle() {
        if Instant::now() > end {
            return false;
        }
        sleep(INTERVAL).await;
    }
    true
}

/// The source of a hostile peer's connections.
pub(crate) struct Entrance {
    network: Network,
    setup: Setup,
    /// The accepted connections, and the task that accepts them. `None` for a hostile client, which connects itself.
    accepted: Option<(UnboundedReceiver<Link>, JoinHandle<()>)>,
    /// The networks of the connections over the simulated provider.
    fabrics: Vec<SimNetwork>,
}

impl Entrance {
    /// Creates the entrance of a hostile client.
    pub(crate) fn connecting(network: &Network, setup: Setup) -> Self {
        Self { network: network.clone(), setup, accepted: None, fabrics: Vec::new() }
    }

    /// Creates the entrance of a hostile server, which listens.
    pub(crate) fn listening(network: &Network, setup: Setup) -> std::io::Result<Self> {
        let (sender, receiver) = unbounded_channel();
        let task = match network {
            Network::Rdma(fabric) => tokio::spawn(accept_rdma(fabric.listen(ATTACKED)?, setup, sender)),
            Network::Iwarp(streams, _) | Network::Tcp(streams) => {
                let (listener, is_tcp) = (streams.listen(ATTACKED)?, matches!(network, Network::Tcp(_)));
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await
                        && sender.send(stream_link(stream, setup, is_tcp, false)).is_ok()
                    {}
                })
            }
        };
        Ok(Self { network: network.clone(), setup, accepted: Some((receiver, task)), fabrics: Vec::new() })
    }

    /// Accepts or makes a connection. Returns `None` if no connection waits to be accepted, or if none can be made.
    async fn next(&mut self) -> Option<Link> {
        let link = match &mut self.accepted {
            Some((accepted, _)) => accepted.try_recv().ok()?,
            None => match &self.network {
                Network::Rdma(fabric) => {
                    let connector = fabric.connector().from_addr(addr(HOSTILE, 0).ip());
                    let connected = connector.connect(addr(0, ATTACKED), self.setup.params()).await.ok()?;
                    Link::Rdma(RdmaLink::new(connected.queue_pair))
                }
                Network::Iwarp(streams, _) | Network::Tcp(streams) => {
                    let is_tcp = matches!(self.network, Network::Tcp(_));
                    stream_link(streams.connect(HOSTILE, ATTACKED).ok()?, self.setup, is_tcp, true)
                }
            },
        };
        if let Link::Rdma(link) = &link {
            self.fabrics.push(link.queue_pair.network().clone());
        }
        Some(link)
    }

    /// Returns the number of regions that the product has registered at its ends of all connections over the simulated
    /// provider.
    pub(crate) fn registered(&self) -> usize {
        let end = if self.accepted.is_some() { SimEnd::A } else { SimEnd::B };
        self.fabrics.iter().map(|network| network.registered(end)).sum()
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.accepted {
            task.abort();
        }
    }
}

fn stream_link(stream: DuplexStream, setup: Setup, is_tcp: bool, is_initiator: bool) -> Link {
    if is_tcp {
        Link::Tcp(TcpLink::new(stream))
    } else {
        let form = if setup.has(7) { setup.number } else { 0 };
        Link::Iwarp(IwarpLink::new(stream, is_initiator, setup.has(6), form, &setup.private_data()))
    }
}

/// Accepts connections over the simulated provider. If bit 7 of the flags is set, rejects the first one.
async fn accept_rdma(listener: rpcrdma::provider::sim::SimListener, setup: Setup, accepted: UnboundedSender<Link>) {
    let mut refuses = setup.has(7);
    while let Ok(incoming) = listener.accept().await {
        let Ok(request) = incoming.request(Duration::from_secs(1)).await else { continue };
        if std::mem::take(&mut refuses) {
            // The client may have left.
            let _ = request.reject(Bytes::from(setup.private_data())).await;
            continue;
        }
        let Ok(connected) = request.accept(setup.params()).await else { continue };
        if accepted.send(Link::Rdma(RdmaLink::new(connected.queue_pair))).is_err() {
            return;
        }
    }
}

/// A hostile peer with its connections.
pub(crate) struct Attack {
    pub(crate) peer: Peer,
    pub(crate) entrance: Entrance,
    /// Connections that the peer no longer uses and has not dropped.
    parked: Vec<Link>,
}

impl Attack {
    pub(crate) fn new(wire: Wire, setup: Setup, entrance: Entrance) -> Self {
        let peer = Peer::new(wire, is_v2(wire, setup), entrance.accepted.is_some());
        Self { peer, entrance, parked: Vec::new() }
    }

    /// Makes or accepts a connection, if one is possible, and uses it from now on.
    async fn connect(&mut self) {
        let setup = self.entrance.setup;
        if let Some(mut link) = self.entrance.next().await {
            if setup.has(4) {
                link.set_receiving(false);
            }
            self.peer.link = Some(link);
            if self.peer.is_v2 && !setup.has(3) {
                self.peer.greet();
            }
        }
    }

    /// Lets the product run, accepts a connection if the peer has none, and receives. Ends when nothing happens any
    /// more, or after [`ROUNDS`] rounds.
    async fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
            if self.peer.link.is_none() && self.entrance.accepted.is_some() {
                self.connect().await;
            }
            quiet = if self.peer.poll() { 0 } else { quiet + 1 };
            if quiet > 6 {
                return;
            }
        }
    }

    /// Carries out a plan. `begin` begins a call of the product. The healthy client makes a call after each step.
    ///
    /// # Errors
    ///
    /// Fails with a description if a call of the healthy client fails.
    pub(crate) async fn play(
        &mut self,
        plan: &Plan,
        healthy: &mut Healthy,
        mut begin: impl FnMut(&Exchange),
    ) -> Result<(), String> {
        self.connect().await;
        self.settle().await;
        for step in plan.steps.iter().take(MAX_STEPS) {
            self.step(step, &mut begin).await;
            self.settle().await;
            healthy.call().await.map_err(|wrong| format!("after {step:?}: {wrong}"))?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step, begin: &mut impl FnMut(&Exchange)) {
        let peer = &mut self.peer;
        match step {
            Step::Call(exchange) => peer.call(exchange),
            Step::Answer(exchange) => peer.answer(exchange),
            Step::Begin(exchange) => begin(exchange),
            Step::Message(message) => peer.message(message),
            Step::Again { nth, at, mask } => peer.again(*nth, *at, *mask),
            Step::Write(span) => peer.write(*span),
            Step::Read(span) => peer.read(*span),
            Step::Segment(segment) => peer.segment(segment),
            Step::Bytes(bytes) => peer.raw(bytes),
            Step::Properties(properties) => peer.properties(properties),
            Step::Wait(number) => self.wait(PAUSES[usize::from(*number) % PAUSES.len()]).await,
            Step::Receive(is_receiving) => {
                if let Some(link) = &mut peer.link {
                    link.set_receiving(*is_receiving);
                }
            }
            Step::Respond(is_responding) => {
                if let Some(Link::Iwarp(link)) = &mut peer.link {
                    link.is_responding = *is_responding;
                }
            }
            Step::Close(is_orderly) => match peer.link.take() {
                Some(mut link) if *is_orderly => {
                    link.shut_down();
                    self.park(link);
                }
                _ => {}
            },
            Step::Connect(is_parked) => {
                if let Some(link) = peer.link.take()
                    && *is_parked
                {
                    self.park(link);
                }
                self.connect().await;
            }
        }
    }

    fn park(&mut self, mut link: Link) {
        link.poll();
        self.parked.push(link);
        if self.parked.len() >= MAX_CONNECTIONS {
            self.parked.remove(0);
        }
    }

    /// Lets time pass, during which the peer receives and responds.
    async fn wait(&mut self, millis: u64) {
        for _ in 0..4 {
            sleep(Duration::from_millis(millis.div_ceil(4))).await;
            self.settle().await;
        }
    }

    /// Closes all connections, and stops accepting new ones.
    pub(crate) fn end(&mut self) {
        self.peer.link = None;
        self.parked.clear();
        if let Some((accepted, task)) = &mut self.entrance.accepted {
            task.abort();
            accepted.close();
            while accepted.try_recv().is_ok() {}
        }
    }
}
