//! Channels with several paths to one service: the choice of a path, the moves between paths, and the reports about
//! them.

use std::{
    collections::HashMap,
    future::pending,
    io,
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use crate::net_support::*;
use rpcrdma::{
    CallOptions, Channel, ConnectError, Server,
    client::Invoke,
    error::SetupError,
    provider::{
        Connected, Connector, SetupParams,
        sim::{SimConnector, SimEnd, SimFabric, SimListener, SimNetwork, SimQueuePair},
    },
    transport::{Scheme, SchemeProvider, UrlOptions},
};
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    Up,
    /// Attempts to connect are refused.
    Refused,
    /// Attempts to connect get no response, and open connections carry nothing.
    Silent,
    /// Connections are made, and then nothing gets through.
    Mute,
}

/// A network with a path to each port. Tests control a path by its port number.
#[derive(Debug, Clone, Default)]
struct Paths {
    fabric: SimFabric,
    states: Arc<Mutex<HashMap<u16, PathState>>>,
    networks: Arc<Mutex<Vec<(u16, SimNetwork)>>>,
}

impl Paths {
    fn set(&self, port: u16, state: PathState) {
        self.states.lock().unwrap().insert(port, state);
        for (_, network) in self.networks.lock().unwrap().iter().filter(|(to, _)| *to == port) {
            match state {
                PathState::Up => {}
                PathState::Refused => network.cut(),
                PathState::Silent | PathState::Mute => {
                    [SimEnd::A, SimEnd::B].into_iter().for_each(|end| network.stall(end, true))
                }
            }
        }
    }
}

#[derive(Debug)]
struct PathConnector(Paths, SimConnector);

impl Connector for PathConnector {
    type QueuePair = SimQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        let state = self.0.states.lock().unwrap().get(&peer.port()).copied();
        match state.unwrap_or(PathState::Up) {
            PathState::Up | PathState::Mute => {}
            PathState::Refused => return Err(SetupError::Io(io::ErrorKind::ConnectionRefused.into())),
            PathState::Silent => pending().await,
        }
        let connected = self.1.connect(peer, params).await?;
        let network = connected.queue_pair.network();
        if state == Some(PathState::Mute) {
            [SimEnd::A, SimEnd::B].into_iter().for_each(|end| network.stall(end, true));
        }
        self.0.networks.lock().unwrap().push((peer.port(), network.clone()));
        Ok(connected)
    }
}

impl SchemeProvider for Paths {
    type Connector = PathConnector;
    type Listener = SimListener;

    fn connector(&self, _options: &UrlOptions) -> PathConnector {
        PathConnector(self.clone(), self.fabric.connector())
    }

    fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
        self.fabric.listen(addr.port())
    }
}

static PATHS: LazyLock<Paths> = LazyLock::new(Paths::default);
static SCHEME: LazyLock<Scheme> = LazyLock::new(|| Scheme::register("x-path", PATHS.clone()).unwrap());

/// Starts one server with two ports. Returns the ports, the URLs of the server as one target, and the state of its
/// service.
async fn serve() -> ([u16; 2], String, Arc<State>) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let any = format!("{}://127.0.0.1:0", *SCHEME);
    let server = Server::builder().service(service).listen(&any).listen(&any).bind().await.unwrap();
    let ports = [0, 1].map(|index| server.local_addrs()[index].port());
    // Servers of other tests may have had these ports.
    for port in ports {
        PATHS.states.lock().unwrap().remove(&port);
    }
    PATHS.networks.lock().unwrap().retain(|(to, _)| !ports.contains(to));
    let target = server.urls().join(",");
    spawn_server(server);
    (ports, target, state)
}

fn port(channel: &Channel) -> u16 {
    channel.info().peer_addr.port()
}

/// Waits until the channel uses a port, and returns the time that this took.
async fn moved_to(channel: &Channel, to: u16) -> Duration {
    let begun = Instant::now();
    while port(channel) != to {
        assert!(begun.elapsed() < Duration::from_secs(600), "not moved to {to}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_best_path_is_used() {
    timed(async {
        let ([best, _], target, _) = serve().await;
        let channel = Channel::connect(&target).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(port(&channel), best);
        assert!(channel.better_paths().is_empty());
    })
    .await;
}

/// A refused path costs no time, and a silent path costs the delay between attempts. The channel reports why it uses
/// another path.
#[tokio::test(start_paused = true)]
async fn another_path_is_used_meanwhile() {
    timed(async {
        for (state, delay, says) in [
            (PathState::Refused, Duration::ZERO, Some("refused")),
            // The attempt is given up as soon as there is another connection.
            (PathState::Silent, Duration::from_millis(250), None),
        ] {
            let ([best, other], target, _) = serve().await;
            PATHS.set(best, state);
            let begun = Instant::now();
            let channel = Channel::connect(&target).await.unwrap();
            let elapsed = begun.elapsed();
            assert!(elapsed >= delay && elapsed < delay + Duration::from_millis(50), "{elapsed:?}");
            call::<Null>(&channel, &()).await.unwrap();
            assert_eq!(port(&channel), other);
            let better = channel.better_paths();
            let text: Vec<_> = better.iter().map(ToString::to_string).collect();
            match says {
                Some(says) => assert!(text.len() == 1 && text[0].contains(says), "{text:?}"),
                None => assert!(text.len() == 1 && text[0].contains("another path was connected"), "{text:?}"),
            }
        }
    })
    .await;
}

/// A channel whose path is lost uses the next path, and returns when the better path works again. Calls in flight
/// finish on the path that they use.
#[tokio::test(start_paused = true)]
async fn the_channel_returns_to_the_best_path() {
    timed(async {
        let ([best, other], target, state) = serve().await;
        let channel = Channel::connect(&target).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        PATHS.set(best, PathState::Refused);
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(port(&channel), other);
        let gate = {
            let channel = channel.clone();
            tokio::spawn(async move { call::<Gate>(&channel, &7).await })
        };
        state.wait_started(1).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(port(&channel), other);
        PATHS.set(best, PathState::Up);
        let took = moved_to(&channel, best).await;
        assert!(took <= Duration::from_secs(60), "{took:?}");
        assert!(channel.better_paths().is_empty());
        call::<Null>(&channel, &()).await.unwrap();
        state.gate.add_permits(1);
        assert_eq!(gate.await.unwrap().unwrap(), 7);
    })
    .await;
}

/// A connection of a pool also moves to its best path.
#[tokio::test(start_paused = true)]
async fn a_pool_moves_to_the_best_path() {
    timed(async {
        let ([best, other], target, _) = serve().await;
        PATHS.set(best, PathState::Refused);
        let pool = Channel::builder().connect_pool([&target]).await.unwrap();
        pool.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
        assert_eq!(port(pool.first()), other);
        PATHS.set(best, PathState::Up);
        let took = moved_to(pool.first(), best).await;
        assert!(took <= Duration::from_secs(60), "{took:?}");
        pool.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
    })
    .await;
}

/// Calls that may be repeated survive a path that falls silent. Other calls fail, and are not made again over the other
/// path.
#[tokio::test(start_paused = true)]
async fn a_silent_path_is_left() {
    timed(async {
        let ([best, other], target, state) = serve().await;
        let channel = Channel::connect(&target).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        let gate = {
            let channel = channel.clone();
            tokio::spawn(async move { call::<Gate>(&channel, &7).await })
        };
        state.wait_started(1).await;
        PATHS.set(best, PathState::Silent);
        let begun = Instant::now();
        call::<Sleep>(&channel, &1).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
        assert_eq!(port(&channel), other);
        let error = gate.await.unwrap().unwrap_err();
        assert!(!error.is_retry_safe(), "{error}");
        assert_eq!(state.started.load(std::sync::atomic::Ordering::SeqCst), 2);
    })
    .await;
}

/// A path that accepts connections and then stays silent does not replace a path that works.
#[tokio::test(start_paused = true)]
async fn a_path_has_to_answer_before_it_replaces_another() {
    timed(async {
        let ([best, other], target, _) = serve().await;
        let channel = Channel::connect(&target).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        PATHS.set(best, PathState::Mute);
        let begun = Instant::now();
        call::<Sleep>(&channel, &1).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
        assert_eq!(port(&channel), other);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(200) {
            let called = Instant::now();
            call::<Sleep>(&channel, &1).await.unwrap();
            assert!(called.elapsed() < Duration::from_secs(1) && port(&channel) == other);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        PATHS.set(best, PathState::Up);
        moved_to(&channel, best).await;
    })
    .await;
}

/// If no path works, the error is the error of the best path.
#[tokio::test(start_paused = true)]
async fn no_path() {
    timed(async {
        let ([best, other], target, _) = serve().await;
        PATHS.set(best, PathState::Refused);
        PATHS.set(other, PathState::Refused);
        let error = Channel::connect(&target).await.unwrap_err();
        assert!(matches!(error, ConnectError::Setup { peer, .. } if peer.port() == best), "{error}");
        let lazy = Channel::builder().connect_lazy(&target).unwrap();
        let deadline = (Instant::now() + Duration::from_secs(1)).into_std();
        let error = lazy.call::<Null>(&(), CallOptions::new().deadline(deadline)).await.unwrap_err();
        assert!(error.to_string().contains(&best.to_string()), "{error}");
    })
    .await;
}

/// A better path is not tried for a channel that was dropped.
#[tokio::test(start_paused = true)]
async fn a_dropped_channel_tries_nothing() {
    timed(async {
        let ([best, _], target, _) = serve().await;
        PATHS.set(best, PathState::Refused);
        let channel = Channel::connect(&target).await.unwrap();
        drop(channel);
        PATHS.set(best, PathState::Up);
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(PATHS.networks.lock().unwrap().iter().all(|(to, _)| *to != best));
    })
    .await;
}
