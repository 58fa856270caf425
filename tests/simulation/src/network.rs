//! The simulated network: hosts, the links between them, and the faults of links.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rpcrdma::provider::sim::{SimConfig, SimEnd, SimFabric, SimNetwork};

use crate::{
    fault::FaultKind,
    log::{EventLog, event},
    random::Choices,
    tcp::{TcpLink, TcpListening},
};

/// Number of a host. Servers have the lowest numbers.
pub type Host = u8;

thread_local! {
    /// The network of the run in this thread, over which the URL schemes of the simulation connect.
    static CURRENT: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// The medium of a connection.
#[derive(Clone)]
pub enum Medium {
    /// A simulated RDMA network. The client is side A.
    Rdma(SimNetwork),
    /// A simulated TCP connection.
    Tcp(Arc<TcpLink>),
}

/// A connection of a client's host to a server's host.
#[derive(Clone)]
pub struct Link {
    /// Number of the connection.
    pub number: u64,
    /// The client's host.
    pub client: Host,
    /// The server's host.
    pub server: Host,
    /// The medium that carries the connection.
    pub medium: Medium,
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::ToServer, Self::ToClient];

    const fn sender(self) -> SimEnd {
        match self {
            Self::ToServer => SimEnd::A,
            Self::ToClient => SimEnd::B,
        }
    }
}

impl Link {
    /// Breaks the connection. Both ends notice.
    pub fn cut(&self) {
        match &self.medium {
            Medium::Rdma(network) => network.cut(),
            Medium::Tcp(link) => link.cut(),
        }
    }

    /// Separates the ends if `isolated` is `true`, and reunites them otherwise. If an end closes while they are
    /// separated, the other end learns it when they are reunited.
    pub fn isolate(&self, isolated: bool) {
        match &self.medium {
            Medium::Rdma(network) => network.isolate(isolated),
            Medium::Tcp(link) => link.isolate(isolated),
        }
    }

    /// Stops the messages in one direction if `stalled` is `true`, and otherwise lets them continue.
    fn stall(&self, direction: Direction, stalled: bool) {
        match &self.medium {
            Medium::Rdma(network) => network.stall(direction.sender(), stalled),
            Medium::Tcp(link) => link.stall(direction, stalled),
        }
    }

    /// Returns `true` until the connection has ended for both ends.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        match &self.medium {
            Medium::Rdma(network) => network.is_in_use(),
            Medium::Tcp(link) => link.is_in_use(),
        }
    }

    /// Returns the number of memory regions that an end has registered. It is 0 over TCP.
    #[must_use]
    pub fn registered(&self, end: SimEnd) -> usize {
        match &self.medium {
            Medium::Rdma(network) => network.registered(end),
            Medium::Tcp(_) => 0,
        }
    }
}

#[derive(Default)]
struct NetworkState {
    links: Vec<Link>,
    /// Number of connections so far.
    connections: u64,
    /// Number of connections so far, by the hosts of client and server.
    connections_between: BTreeMap<(Host, Host), u64>,
    /// Times of the connection requests, by the hosts of client and server.
    requests: BTreeMap<(Host, Host), Vec<Duration>>,
    /// Pairs of a client's and a server's host that are separated, with the number of separations.
    separated: BTreeMap<(Host, Host), u32>,
    /// Directions that are stopped, with the hosts of client and server.
    stalled: BTreeSet<(Host, Host, Direction)>,
    /// Factors of the delays on the way to and from a host.
    slowness: BTreeMap<Host, u32>,
    /// Hosts that refuse connections although their servers run.
    refusing: BTreeSet<Host>,
    /// Hosts whose servers were killed.
    down: BTreeSet<Host>,
    /// Number of steps between two hosts after which one of their connections is lost.
    cuts: BTreeMap<(Host, Host), u64>,
    tcp: BTreeMap<u16, TcpListening>,
    /// Number of times that each kind of fault took effect.
    hits: BTreeMap<FaultKind, u64>,
}

/// The network of one run. Clones share it.
#[derive(Clone)]
pub struct Network(Arc<NetworkInner>);

struct NetworkInner {
    state: Mutex<NetworkState>,
    fabric: SimFabric,
    choices: Choices,
    log: EventLog,
}

impl Network {
    /// Creates a network without hosts.
    #[must_use]
    pub fn new(choices: Choices, log: EventLog) -> Self {
        let mut config = SimConfig::default();
        config.seed = choices.number();
        config.stepped = true;
        for end in &mut config.ends {
            end.max_reads = choices.one_of(&[1, 2, 16]);
        }
        let remote_invalidation = choices.chance(80);
        config.ends[0].remote_invalidation = remote_invalidation;
        config.ends[1].remote_invalidation = remote_invalidation;
        let state = Mutex::default();
        Self(Arc::new(NetworkInner { state, fabric: SimFabric::new(config), choices, log }))
    }

    /// Makes the URL schemes use this network in this thread, until the guard is dropped.
    pub fn enter(&self) -> impl Drop + use<> {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        CURRENT.set(Some(self.clone()));
        Leave
    }

    /// Returns the network of the run in this thread. `None` outside of a run.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn fabric(&self) -> &SimFabric {
        &self.0.fabric
    }

    pub(crate) fn choices(&self) -> &Choices {
        &self.0.choices
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with_tcp<T>(&self, with: impl FnOnce(&mut BTreeMap<u16, TcpListening>) -> T) -> T {
        with(&mut self.state().tcp)
    }

    /// Returns the address of a host.
    #[must_use]
    pub fn ip(host: Host) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, host).into()
    }

    /// Returns the host that an address belongs to. [`ip`](Self::ip) returns such addresses.
    #[must_use]
    pub fn host(addr: SocketAddr) -> Host {
        match addr.ip() {
            IpAddr::V4(ip) => u32::from(ip) as Host,
            IpAddr::V6(_) => 0,
        }
    }

    /// Waits for the random time that a message is on its way between two hosts. A slow host multiplies the time.
    pub(crate) async fn delay(&self, one: Host, other: Host) {
        let choices = &self.0.choices;
        let factor = {
            let state = self.state();
            [one, other].iter().map(|host| state.slowness.get(host).copied().unwrap_or(1)).max().unwrap_or(1)
        };
        if factor > 1 {
            self.hit(FaultKind::Slow);
        }
        let delay = match choices.within(0..=99) {
            // The clock's resolution is a millisecond. In most cases, something else runs first, but no time passes.
            0..=79 if factor == 1 => {
                for _ in 0..choices.within(0..=3) {
                    tokio::task::yield_now().await;
                }
                return;
            }
            0..=94 => 1,
            _ => choices.within(2..=10),
        };
        tokio::time::sleep(Duration::from_millis(delay * u64::from(factor))).await;
    }

    /// Waits until a connection request has arrived at `server`. If the request is lost, waits forever.
    ///
    /// Returns `false` if the server refuses the connection.
    pub(crate) async fn request(&self, client: Host, server: Host) -> bool {
        self.state().requests.entry((client, server)).or_default().push(self.0.log.elapsed());
        self.delay(client, server).await;
        let lost = {
            let state = self.state();
            let is_stalled = |direction: Direction| state.stalled.contains(&(client, server, direction));
            if state.separated.contains_key(&(client, server)) {
                Some(FaultKind::Separate)
            } else if Direction::ALL.into_iter().any(is_stalled) {
                Some(FaultKind::OneWay)
            } else {
                None
            }
        };
        if let Some(kind) = lost {
            self.hit(kind);
            std::future::pending::<()>().await;
        }
        let refuses = self.state().refusing.contains(&server);
        if refuses {
            self.hit(FaultKind::Refuse);
        }
        !refuses && !self.state().down.contains(&server)
    }

    /// Returns the number of connections that a client has made to each server, in ascending order of the servers.
    /// Leaves out servers without a connection.
    #[must_use]
    pub fn connections(&self, client: Host) -> Vec<u64> {
        let state = self.state();
        let between = state.connections_between.iter();
        between.filter(|((from, _), _)| *from == client).map(|(_, count)| *count).collect()
    }

    /// Returns the times of a client's connection requests to each server, in ascending order of the servers. Leaves
    /// out servers without a request.
    #[must_use]
    pub fn requests(&self, client: Host) -> Vec<Vec<Duration>> {
        let state = self.state();
        let between = state.requests.iter();
        between.filter(|((from, _), _)| *from == client).map(|(_, times)| times.clone()).collect()
    }

    /// Counts a fault that took effect.
    pub(crate) fn hit(&self, kind: FaultKind) {
        *self.state().hits.entry(kind).or_default() += 1;
    }

    /// Returns the number of times that each kind of fault took effect.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<FaultKind, u64> {
        self.state().hits.clone()
    }

    /// Adds a new connection. Faults between its hosts apply to it.
    pub(crate) fn add(&self, client: Host, server: Host, medium: Medium) -> Link {
        let mut state = self.state();
        state.connections += 1;
        *state.connections_between.entry((client, server)).or_default() += 1;
        let link = Link { number: state.connections, client, server, medium };
        if state.separated.contains_key(&(client, server)) {
            link.isolate(true);
        }
        for direction in Direction::ALL {
            link.stall(direction, state.stalled.contains(&(client, server, direction)));
        }
        state.links.retain(Link::is_in_use);
        state.links.push(link.clone());
        event!(self.0.log, "connection {} from host {client} to host {server}", link.number);
        link
    }

    /// Returns the connections that have not ended for both ends.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        let mut state = self.state();
        state.links.retain(Link::is_in_use);
        state.links.clone()
    }

    /// Returns the connections between two hosts.
    fn between(&self, client: Host, server: Host) -> Vec<Link> {
        let links = self.links().into_iter();
        links.filter(|link| (link.client, link.server) == (client, server)).collect()
    }

    /// Separates two hosts, so that nothing passes between them. Each call needs a call of [`reunite`](Self::reunite).
    pub fn separate(&self, client: Host, server: Host) {
        *self.state().separated.entry((client, server)).or_default() += 1;
        for link in self.between(client, server) {
            link.isolate(true);
            self.hit(FaultKind::Separate);
        }
    }

    /// Ends one separation. Messages pass again when none is left.
    pub fn reunite(&self, client: Host, server: Host) {
        {
            let mut state = self.state();
            let Some(count) = state.separated.get_mut(&(client, server)) else { return };
            *count -= 1;
            if *count > 0 {
                return;
            }
            state.separated.remove(&(client, server));
        }
        self.between(client, server).iter().for_each(|link| link.isolate(false));
    }

    /// Lets messages of the chosen connections pass again, unless their hosts are separated.
    pub fn end_isolation(&self, is_chosen: impl Fn(&Link) -> bool) {
        for link in self.links().into_iter().filter(is_chosen) {
            let is_separated = self.state().separated.contains_key(&(link.client, link.server));
            link.isolate(is_separated);
        }
    }

    /// Stops one direction between two hosts if `stalled` is `true`, and otherwise lets it continue.
    pub fn stall(&self, client: Host, server: Host, direction: Direction, stalled: bool) {
        {
            let mut state = self.state();
            let key = (client, server, direction);
            if stalled {
                state.stalled.insert(key)
            } else {
                state.stalled.remove(&key)
            };
        }
        for link in self.between(client, server) {
            link.stall(direction, stalled);
            if stalled {
                self.hit(FaultKind::OneWay);
            }
        }
    }

    /// Sets the factor that multiplies the delays of messages from and to a host.
    pub fn slow_down(&self, host: Host, factor: u32) {
        self.state().slowness.insert(host, factor);
    }

    /// Makes a connection between two hosts end after a number of steps, which all their connections take together.
    pub fn cut_after(&self, client: Host, server: Host, steps: u64) {
        self.state().cuts.insert((client, server), steps);
    }

    /// Cancels the losses that [`cut_after`](Self::cut_after) has requested and that have not happened yet.
    pub fn cancel_cuts(&self) {
        self.state().cuts.clear();
    }

    /// Counts a step between two hosts. Returns `true` if the connection is lost before this step.
    pub(crate) fn is_cut(&self, client: Host, server: Host) -> bool {
        let mut state = self.state();
        match state.cuts.get_mut(&(client, server)) {
            None => false,
            Some(0) => {
                state.cuts.remove(&(client, server));
                *state.hits.entry(FaultKind::Cut).or_default() += 1;
                event!(self.0.log, "a connection between {client} and {server} is lost");
                true
            }
            Some(steps) => {
                *steps -= 1;
                false
            }
        }
    }

    /// Makes a host refuse connections if `refuses` is `true`, and otherwise accept them again.
    pub fn refuse(&self, host: Host, refuses: bool) {
        let mut state = self.state();
        if refuses {
            state.refusing.insert(host)
        } else {
            state.refusing.remove(&host)
        };
    }

    /// Notes that the server of a host was killed if `is_down` is `true`, and otherwise that it runs. A host without a
    /// server refuses connections.
    pub fn set_down(&self, host: Host, is_down: bool) {
        let mut state = self.state();
        if is_down {
            state.down.insert(host)
        } else {
            state.down.remove(&host)
        };
    }
}
