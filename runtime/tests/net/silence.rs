//! Servers that fall silent, refuse calls or restart: how soon clients notice that, and how their calls end. The tests
//! use a virtual clock.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::net_support::*;
use rpcrdma::{
    CallError, CallOptions, Channel, Server,
    client::{ChannelBuilder, ChannelPool, ConnectError, Invoke, Reconnect},
    config::ConnectionConfig,
    error::{CallFailure, CloseReason},
    provider::{
        ConnectRequest as _, Connected, Connector, Incoming as _, Listener as _, SetupError, SetupParams,
        sim::{SimConfig, SimConnector, SimEnd, SimFabric, SimNetwork, SimQueuePair},
    },
};
use tokio::{io::AsyncReadExt as _, time::Instant};

/// The default of `ConnectionConfig::keepalive_timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The default of `ConnectionConfig::keepalive_interval`.
const INTERVAL: Duration = Duration::from_secs(30);

/// A connector whose connections can fall silent.
#[derive(Debug, Clone)]
struct SilentConnector {
    inner: SimConnector,
    networks: Arc<Mutex<Vec<SimNetwork>>>,
    connects: Arc<AtomicUsize>,
    /// `true` if new connections are silent as well.
    stays_silent: Arc<AtomicBool>,
}

impl SilentConnector {
    fn new(fabric: &SimFabric) -> Self {
        Self {
            inner: fabric.connector(),
            networks: Arc::default(),
            connects: Arc::default(),
            stays_silent: Arc::default(),
        }
    }

    /// Lets nothing through on the connections made so far.
    fn silence(&self) {
        for network in &*self.networks.lock().unwrap() {
            network.stall(SimEnd::A, true);
            network.stall(SimEnd::B, true);
        }
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }
}

impl Connector for SilentConnector {
    type QueuePair = SimQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        self.connects.fetch_add(1, Ordering::SeqCst);
        let connected = self.inner.connect(peer, params).await?;
        self.networks.lock().unwrap().push(connected.queue_pair.network().clone());
        if self.stays_silent.load(Ordering::SeqCst) {
            self.silence();
        }
        Ok(connected)
    }
}

/// Starts a server of the test service, and connects to it.
async fn connected(builder: ChannelBuilder) -> (Arc<State>, SilentConnector, Channel) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let fabric = SimFabric::new(SimConfig::default());
    let running = Transport::Sim(fabric.clone()).serve(Server::builder().service(service)).await;
    let connector = SilentConnector::new(&fabric);
    let channel = builder.connect_with(connector.clone(), running.addr).await.unwrap();
    (state, connector, channel)
}

fn spawn_gate(channel: &Channel) -> tokio::task::JoinHandle<Result<u32, CallError>> {
    let channel = channel.clone();
    tokio::spawn(async move { call::<Gate>(&channel, &1).await })
}

fn silent(error: &CallError) -> Option<(Duration, bool)> {
    match error {
        CallError::Transport { failure: CallFailure::Closed { reason: CloseReason::Silent(after), sent }, .. } => {
            Some((*after, *sent))
        }
        _ => None,
    }
}

/// A call without a deadline ends when its server has fallen silent, soon after the time-out.
#[tokio::test(start_paused = true)]
async fn a_call_ends_when_its_server_is_silent() {
    timed(async {
        let (state, connector, channel) = connected(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        let gate = spawn_gate(&channel);
        state.wait_started(1).await;
        connector.silence();
        let begun = Instant::now();
        let error = gate.await.unwrap().unwrap_err();
        assert_eq!(silent(&error), Some((TIMEOUT, true)), "{error}");
        let elapsed = begun.elapsed();
        assert!(elapsed >= TIMEOUT && elapsed < TIMEOUT + Duration::from_secs(1), "{elapsed:?}");
        // The same channel goes on, over another connection.
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(connector.connects(), 2);
    })
    .await;
}

/// Idempotent calls move to a new connection, and succeed within one second after the keep-alive time-out.
#[tokio::test(start_paused = true)]
async fn repeatable_calls_move_when_a_server_is_silent() {
    timed(async {
        let (_, connector, channel) = connected(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        connector.silence();
        let begun = Instant::now();
        let calls: Vec<_> = (0..8_u32)
            .map(|n| {
                let channel = channel.clone();
                tokio::spawn(async move { call::<Sleep>(&channel, &n).await })
            })
            .collect();
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap().unwrap(), n);
        }
        assert!(begun.elapsed() < TIMEOUT + Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(connector.connects(), 2);
    })
    .await;
}

/// A connection that is made while the server is silent is given up, even if a probe would find no credit.
#[tokio::test(start_paused = true)]
async fn a_new_connection_to_a_silent_server_is_given_up() {
    timed(async {
        for versions in [rpcrdma::engine::Versions::V1, rpcrdma::engine::Versions::V2] {
            let connection = ConnectionConfig::new().versions(versions);
            let (_, connector, channel) = connected(Channel::builder().connection(connection)).await;
            call::<Null>(&channel, &()).await.unwrap();
            connector.silence();
            connector.stays_silent.store(true, Ordering::SeqCst);
            let begun = Instant::now();
            let waiting = tokio::spawn({
                let channel = channel.clone();
                async move { call::<Sleep>(&channel, &1).await }
            });
            tokio::time::sleep(Duration::from_secs(25)).await;
            connector.stays_silent.store(false, Ordering::SeqCst);
            assert_eq!(waiting.await.unwrap().unwrap(), 1);
            assert!(begun.elapsed() < Duration::from_secs(35), "{:?}", begun.elapsed());
        }
    })
    .await;
}

/// While one connection of a pool is silent, the others are used, and no call fails.
#[tokio::test(start_paused = true)]
async fn a_pool_leaves_its_silent_connection() {
    timed(async {
        let service = TestService::default();
        let fabric = SimFabric::new(SimConfig::default());
        let running = Transport::Sim(fabric.clone()).serve(Server::builder().service(service)).await;
        let [quiet, healthy] = [(); 2].map(|()| SilentConnector::new(&fabric));
        let mut channels = Vec::new();
        for connector in [&quiet, &healthy] {
            channels.push(Channel::builder().connect_with(connector.clone(), running.addr).await.unwrap());
        }
        let pool = ChannelPool::new(channels);
        for _ in 0..4 {
            pool.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
        }
        quiet.silence();
        let begun = Instant::now();
        let calls: Vec<_> = (0..20_u32)
            .map(|n| {
                let pool = pool.clone();
                tokio::spawn(async move { pool.invoke::<Sleep>(&n, CallOptions::new()).await })
            })
            .collect();
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap().unwrap(), n);
        }
        assert!(begun.elapsed() < TIMEOUT + Duration::from_secs(1), "{:?}", begun.elapsed());
        // The client has made a new connection in place of the lost one.
        eventually(|| quiet.connects() == 2).await;
    })
    .await;
}

/// Accepts connections and reads the calls on them without a reply. Sends the number of each connection to `seen`, with
/// `false` when it is accepted, and with `true` for each call that is not a probe.
async fn never_reply(listener: tokio::net::TcpListener, seen: tokio::sync::mpsc::UnboundedSender<(usize, bool)>) {
    for number in 0.. {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = seen.send((number, false));
        let seen = seen.clone();
        tokio::spawn(async move {
            // RFC 5531 §11: the length of a record. The highest bit marks the last fragment.
            while let Ok(mark) = stream.read_u32().await {
                let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
                if stream.read_exact(&mut record).await.is_ok() && record[20..24] != [0; 4] {
                    let _ = seen.send((number, true));
                }
            }
        });
    }
}

/// After a server was silent, a pool makes no call on a new connection to it before the server has replied to a probe.
/// The server therefore delays few calls.
#[tokio::test]
async fn a_pool_calls_a_silent_path_only_once_it_answers() {
    timed(in_step(async {
        let service = TestService::default();
        let running = Transport::Tcp.serve(Server::builder().service(service)).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let urls = [listener.local_addr().unwrap(), running.addr].map(|addr| format!("tcp://{addr}"));
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let silent = tokio::spawn(never_reply(listener, sender));
        let config = ConnectionConfig::new().keepalive_timeout(Duration::from_millis(300));
        let pool = Channel::builder().connection(config).connect_pool(urls).await.unwrap();
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let pool = pool.clone();
            callers.spawn(async move {
                loop {
                    pool.invoke::<Sleep>(&20, CallOptions::new()).await.unwrap();
                }
            });
        }
        // The pool gives up each connection, and makes another one.
        loop {
            let (number, is_call) =
                tokio::time::timeout(4 * TIMEOUT, seen.recv()).await.expect("the path is not tried again").unwrap();
            assert!(!is_call || number == 0, "a call on connection {number}, which has not answered");
            if number == 3 {
                break;
            }
        }
        callers.abort_all();
        silent.abort();
    }))
    .await;
}

/// An idle connection to a server that has fallen silent is given up, so that the next call makes a new connection at
/// once.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_probed() {
    timed(async {
        let (_, connector, channel) = connected(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        connector.silence();
        let begun = Instant::now();
        assert_eq!(channel.closed().await, CloseReason::Silent(TIMEOUT));
        let elapsed = begun.elapsed();
        assert!(elapsed >= INTERVAL + TIMEOUT && elapsed <= INTERVAL + TIMEOUT + Duration::from_secs(1), "{elapsed:?}");
        let begun = Instant::now();
        call::<Null>(&channel, &()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    })
    .await;
}

/// A server that is slow with its replies, but answers probes, keeps its connection. The probes become rare.
#[tokio::test(start_paused = true)]
async fn a_slow_server_keeps_its_connection() {
    timed(async {
        let (state, connector, channel) = connected(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        let gate = spawn_gate(&channel);
        state.wait_started(1).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let probes = channel.counters().replies_received - 1;
        // The pauses between probes are 0.25, 0.5 .. 16 s, and then 30 s.
        assert!((110..=130).contains(&probes), "{probes} probes");
        state.gate.add_permits(1);
        assert_eq!(gate.await.unwrap().unwrap(), 1);
        assert_eq!(connector.connects(), 1);
    })
    .await;
}

/// If calls hold all credits, no probe can be sent, and the client does not treat the server as silent.
#[tokio::test(start_paused = true)]
async fn a_probe_that_cannot_be_sent_proves_nothing() {
    timed(async {
        let connection = ConnectionConfig::new().credits(2);
        let (state, connector, channel) = connected(Channel::builder().connection(connection)).await;
        call::<Null>(&channel, &()).await.unwrap();
        let gates = [(); 2].map(|()| spawn_gate(&channel));
        state.wait_started(2).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        state.gate.add_permits(2);
        for gate in gates {
            assert_eq!(gate.await.unwrap().unwrap(), 1);
        }
        assert_eq!(connector.connects(), 1);
    })
    .await;
}

/// With eight credits or more, calls leave one credit for a probe, however many calls wait.
#[tokio::test(start_paused = true)]
async fn calls_leave_a_credit_for_probes() {
    timed(async {
        for versions in [rpcrdma::engine::Versions::V1, rpcrdma::engine::Versions::V2] {
            for credits in [8, 32] {
                let connection = ConnectionConfig::new().credits(credits).versions(versions);
                let (state, connector, channel) = connected(Channel::builder().connection(connection)).await;
                call::<Null>(&channel, &()).await.unwrap();
                let gates: Vec<_> = (0..2 * credits).map(|_| spawn_gate(&channel)).collect();
                state.wait_started(credits as usize - 1).await;
                tokio::time::sleep(Duration::from_secs(600)).await;
                // Probes were answered meanwhile, and no other call took their credit.
                assert_eq!(state.started.load(Ordering::SeqCst), credits as usize - 1);
                assert!(channel.counters().replies_received > 10 && connector.connects() == 1);
                connector.silence();
                state.gate.add_permits(1000);
                let begun = Instant::now();
                let mut lost = 0;
                for gate in gates {
                    // Calls that were not sent are made on the next connection.
                    if let Err(error) = gate.await.unwrap() {
                        assert!(silent(&error).is_some(), "{error}");
                        lost += 1;
                    }
                }
                assert_eq!(lost, credits - 1);
                assert!(begun.elapsed() < INTERVAL + TIMEOUT + Duration::from_secs(1), "{:?}", begun.elapsed());
            }
        }
    })
    .await;
}

/// Calls over TCP leave room for a probe, however many calls wait, so the client notices a server that never replies.
#[tokio::test]
async fn calls_over_tcp_leave_room_for_probes() {
    timed(in_step(async {
        // The kernel accepts connections and data for a server that never reads them.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = ConnectionConfig::new()
            .credits(8)
            .keepalive_interval(Duration::from_millis(200))
            .keepalive_timeout(Duration::from_millis(300));
        let builder = Channel::builder().connection(connection).reconnect(Reconnect::Never);
        let channel = builder.connect(&format!("tcp://{}", listener.local_addr().unwrap())).await.unwrap();
        let gates: Vec<_> = (0..16).map(|_| spawn_gate(&channel)).collect();
        for gate in gates {
            let error = tokio::time::timeout(TIMEOUT, gate).await.expect("nothing notices the silence");
            let error = error.unwrap().unwrap_err();
            assert!(silent(&error).is_some(), "{error}");
        }
    }))
    .await;
}

/// Without probes, a client does not notice that its server has fallen silent.
#[tokio::test(start_paused = true)]
async fn probes_can_be_disabled() {
    timed(async {
        let connection = ConnectionConfig::new().keepalive_interval(Duration::MAX);
        let (state, connector, channel) = connected(Channel::builder().connection(connection)).await;
        call::<Null>(&channel, &()).await.unwrap();
        let gate = spawn_gate(&channel);
        state.wait_started(1).await;
        connector.silence();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!gate.is_finished());
    })
    .await;
}

/// Probes do not count as use of a connection: a server closes a connection with nothing but probes within one second
/// after the idle time-out.
#[tokio::test(start_paused = true)]
async fn probes_do_not_keep_an_idle_connection() {
    timed(async {
        let (service, timeout) = (TestService::default(), Duration::from_secs(100));
        let fabric = SimFabric::new(SimConfig::default());
        let server = Server::builder().service(service).idle_timeout(timeout);
        let running = Transport::Sim(fabric.clone()).serve(server).await;
        let channel = running.connect(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        call::<Sleep>(&channel, &1).await.unwrap();
        let begun = Instant::now();
        channel.closed().await;
        let elapsed = begun.elapsed();
        assert!(channel.counters().replies_received >= 4, "probes were sent");
        assert!(elapsed >= timeout && elapsed < timeout + Duration::from_secs(1), "{elapsed:?}");
    })
    .await;
}

/// A client of a server that accepts connections and closes them connects rarely, and its error says that the server
/// closes its connections.
#[tokio::test(start_paused = true)]
async fn connections_that_are_closed_at_once_are_not_made_in_a_loop() {
    timed(async {
        let fabric = SimFabric::new(SimConfig::default());
        let listener = fabric.listen(0).unwrap();
        let addr = listener.local_addr();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok(incoming) = listener.accept().await {
                let request = incoming.request(TIMEOUT).await.unwrap();
                drop(request.accept(SetupParams::default()).await);
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let config = ConnectionConfig::new().versions(rpcrdma::engine::Versions::V1);
        let channel = Channel::builder().connection(config).connect_with(fabric.connector(), addr).await.unwrap();
        let until = Instant::now() + Duration::from_secs(3);
        let mut last = None;
        while Instant::now() < until {
            let calls: Vec<_> = (0..10_u32)
                .map(|_| {
                    let (channel, options) = (channel.clone(), CallOptions::new().deadline(until.into_std()));
                    tokio::spawn(async move { channel.call::<Null>(&(), options).await })
                })
                .collect();
            for call in calls {
                last = Some(call.await.unwrap().unwrap_err());
            }
            // A call whose next attempt would be too late fails at once.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let accepted = accepted.load(Ordering::SeqCst);
        assert!((3..=50).contains(&accepted), "{accepted} connections in 3 s");
        let error = last.unwrap();
        let text = error.to_string();
        assert!(text.contains("closed the connection before its first reply"), "{text}");
    })
    .await;
}

/// A call between an incompatible client and server fails soon instead of being retried until its deadline.
#[tokio::test(start_paused = true)]
async fn permanent_failures_end_a_call_soon() {
    timed(async {
        let fabric = SimFabric::new(SimConfig::default());
        let server = Server::builder().service(TestService::default()).versions(rpcrdma::engine::Versions::V1);
        let running = Transport::Sim(fabric.clone()).serve(server).await;
        let channel = running.connect(Channel::builder().versions(rpcrdma::engine::Versions::V2)).await;
        let begun = Instant::now();
        let options = CallOptions::new().deadline((begun + Duration::from_secs(60)).into_std());
        let error = channel.call::<Null>(&(), options).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(!error.to_string().contains(", after"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("version negotiation failed"), "{cause}");
    })
    .await;
}

/// The time of a call's retries does not include its first attempt.
#[tokio::test(start_paused = true)]
async fn retries_are_timed_from_the_first_failure() {
    timed(async {
        let fabric = SimFabric::new(SimConfig::default());
        let running = Transport::Sim(fabric.clone()).serve(Server::builder().service(TestService::default())).await;
        let attempt = Duration::from_secs(7);
        let pause = Duration::from_millis(1);
        let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause, retries: 3 };
        let channel = running.connect(Channel::builder().connect_timeout(attempt).reconnect(reconnect)).await;
        running.handle.shutdown();
        running.task.await.unwrap();
        // A listener that accepts no connection.
        let _silent = fabric.listen(running.addr.port()).unwrap();
        // This call finds the old connection closed. The next one makes its first attempt on a new connection.
        call::<Null>(&channel, &()).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let begun = Instant::now();
        let error = channel.call::<Null>(&(), CallOptions::new()).await.unwrap_err();
        let CallError::Connect { retries, .. } = &error else { panic!("{error}") };
        assert!(retries.count() > 0, "{error}");
        assert_eq!((begun.elapsed() - retries.elapsed()).as_secs(), attempt.as_secs(), "{error}");
    })
    .await;
}

/// A call whose deadline is late enough outlives the restart of its server. A call without a deadline fails after a few
/// retries.
#[tokio::test(start_paused = true)]
async fn a_call_outlives_a_restart_within_its_deadline() {
    timed(async {
        let fabric = SimFabric::new(SimConfig::default());
        let service = TestService::default();
        let running = Transport::Sim(fabric.clone()).serve(Server::builder().service(service.clone())).await;
        let channel = running.connect(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        running.handle.shutdown();
        running.task.await.unwrap();
        let port = running.addr.port();
        let restarting = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let server =
                Server::builder().service(service).listen_with(fabric.listen(port).unwrap()).bind().await.unwrap();
            server.serve().await;
        });
        // Without a deadline, the client retries only a few times.
        let error = channel.call::<Null>(&(), CallOptions::new()).await.unwrap_err();
        let CallError::Connect { retries, .. } = &error else { panic!("{error}") };
        assert!(retries.count() == 3 && retries.elapsed() >= Duration::from_millis(200), "{retries:?}");
        let said = error.to_string();
        assert!(
            said.contains("start the server, or check the port") && said.contains(", after 3 retries in "),
            "{said}"
        );
        assert!(
            matches!(
                error,
                CallError::Connect { error: ConnectError::Setup { .. } | ConnectError::BackOff { .. }, .. }
            ),
            "{error}"
        );
        let begun = Instant::now();
        let options = CallOptions::new().deadline((begun + Duration::from_secs(10)).into_std());
        channel.call::<Null>(&(), options).await.unwrap();
        assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
        restarting.abort();
    })
    .await;
}
