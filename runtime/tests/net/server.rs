//! Servers: programs and versions, limits and shutdown; and clients that lose their server.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, ConnectError, Reconnect},
    config::ConnectionConfig,
    error::{CallFailure, CloseReason},
    rpc::{AuthStat, Credential, OpaqueAuth, RpcError},
    security::{AuthenticatedCaller, Authentication, Authenticator, ReceivedCall},
    server::{BindError, InboundCall, ReplyFuture, Server, Service},
    service::{Procedure, ReplyBounds},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Defines procedure 0 of a program and version.
macro_rules! null_of {
    ($name:ident, $program:expr, $version:expr) => {
        #[derive(Debug)]
        struct $name;
        impl Procedure for $name {
            const PROGRAM: u32 = $program;
            const VERSION: u32 = $version;
            const NUMBER: u32 = 0;
            const NAME: &'static str = stringify!($name);
            type Args = ();
            type Reply = ();
            fn reply_bounds(_args: &()) -> ReplyBounds {
                ReplyBounds::default()
            }
        }
    };
}
null_of!(OtherProgram, PROGRAM + 1, 1);
null_of!(LowVersion, PROGRAM, 1);
null_of!(HighVersion, PROGRAM, 4);

/// A service with procedure 0 only. The fields are its program and its version.
struct Small(u32, u32);

impl Service for Small {
    fn program(&self) -> u32 {
        self.0
    }
    fn version(&self) -> u32 {
        self.1
    }
    fn name(&self) -> &'static str {
        "SMALL"
    }
    fn dispatch(&self, mut call: InboundCall) -> ReplyFuture {
        Box::pin(async move {
            match call.decode::<Null>() {
                Ok(()) => call.finish::<Null>(Ok(())),
                Err(reply) => reply,
            }
        })
    }
}

fn rpc_error(error: CallError) -> RpcError {
    match error {
        CallError::Rpc { source, .. } => source,
        other => panic!("{other}"),
    }
}

async fn programs_and_versions(transport: Transport) {
    let server = Server::builder().service(Small(PROGRAM, 4)).service(TestService::default());
    let running = transport.serve(server).await;
    let channel = running.connect(Channel::builder()).await;
    call::<Null>(&channel, &()).await.unwrap();
    call::<HighVersion>(&channel, &()).await.unwrap();
    let error = call::<OtherProgram>(&channel, &()).await.unwrap_err();
    assert!(error.is_retry_safe());
    assert_eq!(rpc_error(error), RpcError::ProgramUnavailable);
    let error = call::<LowVersion>(&channel, &()).await.unwrap_err();
    assert_eq!(rpc_error(error), RpcError::ProgramMismatch { low: VERSION, high: 4 });

    let twice = Server::builder().service(Small(1, 1)).service(Small(1, 1)).listen("iwarp://127.0.0.1:0");
    assert!(matches!(twice.bind().await, Err(BindError::DuplicateService { program: 1, version: 1 })));
    assert!(matches!(Server::builder().service(Small(1, 1)).bind().await, Err(BindError::NoListener)));
    if cfg!(not(any(feature = "verbs", feature = "verbs-dlopen"))) {
        let unknown = Server::builder().listen("rdma://127.0.0.1:0").bind().await.unwrap_err().to_string();
        // Other tests register schemes of their own.
        assert!(unknown.contains("expected one of iwarp, tcp"), "{unknown}");
        assert!(unknown.contains("; verbs are not part of this build"), "{unknown}");
    }
}

/// An authenticator that accepts only user 7.
#[derive(Debug)]
struct UserSeven;

impl Authenticator for UserSeven {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        match Credential::from_opaque(&call.header.credential) {
            Ok(Credential::Sys(parms)) if parms.uid == 7 => {
                Authentication::Accepted(AuthenticatedCaller::new(Credential::Sys(parms)))
            }
            Ok(Credential::Sys(_)) => Authentication::Rejected(AuthStat::AuthRejectedcred.into()),
            Ok(_) => Authentication::Rejected(AuthStat::AuthTooweak.into()),
            Err(failure) => Authentication::Rejected(failure),
        }
    }
}

async fn credentials(transport: Transport) {
    let running = transport.serve(Server::builder().service(TestService::default()).authenticator(UserSeven)).await;
    let user = |uid| Credential::sys("client", uid, 1, [2, 3]).to_opaque().unwrap();
    let channel = running.connect(Channel::builder().credential(user(7))).await;
    call::<Null>(&channel, &()).await.unwrap();
    let as_other = CallOptions::new().credential(user(8));
    let error = channel.call::<Null>(&(), as_other).await.unwrap_err();
    assert_eq!(rpc_error(error), RpcError::Authentication(AuthStat::AuthRejectedcred.into()));
    let nobody = CallOptions::new().credential(OpaqueAuth::none());
    let error = channel.call::<Null>(&(), nobody).await.unwrap_err();
    assert_eq!(rpc_error(error), RpcError::Authentication(AuthStat::AuthTooweak.into()));
}

/// On shutdown, calls in progress finish and get a reply, and later calls are not started.
async fn shutdown_with_calls_in_flight(transport: Transport) {
    let (running, state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    let idle = running.connect(Channel::builder()).await;
    let in_flight = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &3).await }
    });
    state.wait_started(1).await;
    running.handle.shutdown();
    eventually(|| idle.close_reason().is_some()).await;
    // Over TCP, the kernel accepts connections until the listener is closed, which may be after `idle` is closed.
    let connect = || running.try_connect(Channel::builder().connect_timeout(Duration::from_millis(500)));
    while connect().await.is_ok() {}
    assert!(!running.task.is_finished());
    let late = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &4).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    state.gate.add_permits(10);
    assert_eq!(in_flight.await.unwrap().unwrap(), 3);
    assert!(late.await.unwrap().unwrap_err().is_connection_loss());
    running.task.await.unwrap();
    assert_eq!(state.started.load(Ordering::SeqCst), 1);
}

/// Calls that take longer than the grace period are aborted.
async fn shutdown_after_the_grace_period(transport: Transport) {
    let (running, state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    let in_flight = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &3).await }
    });
    state.wait_started(1).await;
    let begin = tokio::time::Instant::now();
    running.handle.shutdown_within(Duration::from_millis(50));
    running.task.await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let error = in_flight.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Transport { failure: CallFailure::Closed { sent: true, .. }, .. }), "{error}");
    // The handler was dropped at the gate.
    state.gate.add_permits(1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(state.finished.load(Ordering::SeqCst), 0);
}

/// Dropping the future of `serve` closes no connection. The handle can still shut down the connections.
async fn shutdown_after_serve_was_dropped(transport: Transport) {
    let (running, state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    // Like `select! { () = server.serve() => {}, _ = ctrl_c() => {} }`.
    running.task.abort();
    assert!(running.task.await.unwrap_err().is_cancelled());
    call::<Null>(&channel, &()).await.expect("connection lost with `serve`");
    let in_flight = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &3).await }
    });
    state.wait_started(1).await;
    running.handle.shutdown_within(Duration::from_millis(50));
    channel.closed().await;
    assert!(in_flight.await.unwrap().unwrap_err().is_connection_loss());
    eventually(|| running.handle.connections().is_empty()).await;
}

/// If a client disconnects during a call, the handler runs to its end.
async fn client_disconnects(transport: Transport) {
    let (running, state, channel) = start(transport).await;
    let in_flight = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &3).await }
    });
    state.wait_started(1).await;
    in_flight.abort();
    let _ = in_flight.await;
    drop(channel);
    eventually(|| running.handle.connections().is_empty()).await;
    assert_eq!(state.finished.load(Ordering::SeqCst), 0);
    state.gate.add_permits(1);
    eventually(|| state.finished.load(Ordering::SeqCst) == 1).await;
    let second = running.connect(Channel::builder()).await;
    call::<Null>(&second, &()).await.unwrap();
}

/// While the server is gone, calls in progress fail, including an idempotent call that is retried. The errors state
/// that the calls may have been executed. With [`Reconnect::OnDemand`], the next call to the restarted server
/// reconnects.
async fn server_disconnects(transport: Transport) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = transport.serve(Server::builder().service(service.clone())).await;
    let reconnect = Reconnect::OnDemand {
        min_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(20),
        retries: 200,
    };
    let channel = running.connect(Channel::builder().reconnect(reconnect)).await;
    call::<Null>(&channel, &()).await.unwrap();
    let gated = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &3).await }
    });
    let slept = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Sleep>(&channel, &200).await }
    });
    state.wait_started(2).await;
    running.handle.shutdown_within(Duration::ZERO);
    running.task.await.unwrap();
    // The call was sent and is not idempotent, so the caller has to decide.
    let error = gated.await.unwrap().unwrap_err();
    assert!(error.is_connection_loss() && !error.is_retry_safe(), "{error}");
    // The call is idempotent and was retried, but the server is not back yet.
    let error = slept.await.unwrap().unwrap_err();
    // The retry does not change that the first attempt may have been executed.
    assert!(matches!(error, CallError::Transport { failure: CallFailure::Closed { sent: true, .. }, .. }), "{error}");
    assert!(error.is_connection_loss() && !error.is_retry_safe(), "{error}");

    let server = Server::builder().service(service);
    let server = match &running.transport {
        Transport::Sim(fabric) => server.listen_with(fabric.listen(running.addr.port()).unwrap()),
        Transport::Iwarp => server.listen(format!("iwarp://{}", running.addr)),
        Transport::Tcp => server.listen(format!("tcp://{}", running.addr)),
    };
    let server = server.bind().await.unwrap();
    spawn_server(server);
    call::<Null>(&channel, &()).await.unwrap();
    assert_eq!(channel.close_reason(), None);
}

async fn no_reconnect(transport: Transport) {
    let (running, _state, channel) = start_with(transport, Channel::builder().reconnect(Reconnect::Never)).await;
    call::<Null>(&channel, &()).await.unwrap();
    running.handle.shutdown();
    running.task.await.unwrap();
    let stats = running.handle.stats();
    assert_eq!((stats.accepted, stats.open, stats.ended.by_server), (1, 0, 1), "{stats}");
    eventually(|| channel.close_reason().is_some()).await;
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    assert!(error.is_connection_loss() && error.is_retry_safe(), "{error}");
}

async fn connection_limit(transport: Transport) {
    let running = transport.serve(Server::builder().service(TestService::default()).max_connections(2)).await;
    let first = running.connect(Channel::builder()).await;
    let second = running.connect(Channel::builder()).await;
    call::<Null>(&first, &()).await.unwrap();
    call::<Null>(&second, &()).await.unwrap();
    let third = running.try_connect(Channel::builder().connect_timeout(Duration::from_secs(1))).await;
    assert!(matches!(third, Err(ConnectError::Setup { .. })), "{third:?}");
    // Over some transports, the client retries, and more than one set-up fails.
    eventually(|| running.handle.stats().setup_failed > 0).await;
    let stats = running.handle.stats();
    assert_eq!((stats.accepted, stats.open), (2, 2), "{stats}");
    drop(first);
    eventually(|| running.handle.connections().len() == 1).await;
    let fourth = running.connect(Channel::builder()).await;
    call::<Null>(&fourth, &()).await.unwrap();
}

async fn many_connections(transport: Transport) {
    let running = transport.serve(Server::builder().service(TestService::default())).await;
    let running = Arc::new(running);
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..40_u32 {
        let running = Arc::clone(&running);
        clients.spawn(async move {
            let channel = running.connect(unprobed()).await;
            for m in 0..5 {
                let got = call::<Get>(&channel, &Range(n + m, 10_000)).await.unwrap();
                assert_eq!(got.0, pattern(n + m, 10_000));
            }
            channel.close().await;
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    eventually(|| running.handle.connections().is_empty()).await;
    let stats = running.handle.stats();
    assert_eq!((stats.accepted, stats.open, stats.setup_failed), (40, 0, 0));
    assert_eq!((stats.ended.by_client, stats.ended.total()), (40, 40), "{stats}");
    assert_eq!((stats.counters.calls_received, stats.counters.replies_sent), (200, 200));
    assert_eq!((stats.counters.exposed_regions, stats.counters.registered_bytes), (0, 0));
}

async fn idle_connections(transport: Transport) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let server = Server::builder().service(service).idle_timeout(Duration::from_millis(100));
    let running = transport.serve(server).await;
    let channel = running.connect(Channel::builder()).await;
    let in_flight = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &3).await }
    });
    state.wait_started(1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(channel.close_reason(), None, "closed while a call is in flight");
    state.gate.add_permits(1);
    in_flight.await.unwrap().unwrap();
    eventually(|| channel.close_reason().is_some()).await;
    eventually(|| running.handle.connections().is_empty()).await;

    let config = ConnectionConfig::new().idle_timeout(Duration::from_millis(50));
    let running = running.transport.serve(Server::builder().service(TestService::default())).await;
    let channel = running.connect(Channel::builder().connection(config)).await;
    call::<Null>(&channel, &()).await.unwrap();
    eventually(|| channel.close_reason() == Some(CloseReason::Idle(Duration::from_millis(50)))).await;
}

/// Concurrent calls succeed although their arguments together exceed the memory that one connection may use.
async fn fetched_memory(transport: Transport) {
    let service = TestService::default();
    let running = transport.serve(Server::builder().service(service).max_fetched(300_000)).await;
    let channel = running.connect(Channel::builder()).await;
    call::<Null>(&channel, &()).await.unwrap();
    let data = Data(Bytes::from(pattern(1, 100_000)));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (channel, data) = (channel.clone(), data.clone());
        calls.spawn(async move { call::<Put>(&channel, &data).await.unwrap() });
    }
    let results = calls.join_all().await;
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]) && results.len() == 20);
}

/// With `max_calls(1)`, a second call waits for the first one, and fails unsent at its deadline.
async fn deadline_while_waiting_for_a_slot(transport: Transport) {
    let (running, state, _) = start(transport).await;
    let channel = running.connect(Channel::builder().max_calls(1)).await;
    let first = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &1).await }
    });
    state.wait_started(1).await;
    let options = CallOptions::new().timeout(Duration::from_millis(30));
    let error = channel.call::<Null>(&(), options).await.unwrap_err();
    assert!(
        matches!(error, CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: false }, .. }),
        "{error}"
    );
    state.gate.add_permits(1);
    first.await.unwrap().unwrap();
    call::<Null>(&channel, &()).await.unwrap();
}

/// A second shutdown request shortens the grace period.
async fn shutdown_again_sooner(transport: Transport) {
    let (running, state, channel) = start(transport).await;
    let in_flight = tokio::spawn(async move { call::<Gate>(&channel, &3).await });
    state.wait_started(1).await;
    running.handle.shutdown_within(Duration::from_secs(3600));
    tokio::time::sleep(Duration::from_millis(20)).await;
    running.handle.shutdown_within(Duration::ZERO);
    running.task.await.unwrap();
    assert!(in_flight.await.unwrap().unwrap_err().is_connection_loss());
}

over! {
    // An RDMA client learns during connection set-up that it was rejected; a TCP client with its first call (`tcp.rs`).
    rdma: connection_limit;
    all: programs_and_versions credentials shutdown_after_serve_was_dropped
        client_disconnects no_reconnect many_connections fetched_memory;
}

over_each_in_step! {
    server_disconnects shutdown_with_calls_in_flight shutdown_again_sooner shutdown_after_the_grace_period idle_connections
    deadline_while_waiting_for_a_slot
}

#[tokio::test]
async fn no_server() {
    timed(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let error = Channel::connect(&format!("iwarp://{addr}")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Setup { peer, .. } if peer == addr), "{error}");
        assert!(matches!(Channel::connect("nonsense").await, Err(ConnectError::Url(_))));
        assert!(matches!(Channel::connect("iwarp://no.such.host.invalid:1").await, Err(ConnectError::Resolve { .. })));
    })
    .await;
}

/// Connection set-up fails if the peer is a server of another protocol, sends nothing, or disconnects.
#[tokio::test]
async fn peer_speaks_another_protocol() {
    for greeting in [Some(&b"SSH-2.0-OpenSSH_9.2 and some more text than a frame has\r\n"[..]), Some(&[]), None] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("iwarp://{}", listener.local_addr().unwrap());
        let other = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                if let Some(greeting) = greeting {
                    socket.write_all(greeting).await.unwrap();
                    let mut sink = Vec::new();
                    let _ = socket.read_to_end(&mut sink).await;
                }
            }
        });
        let builder = Channel::builder().connect_timeout(Duration::from_millis(300));
        let error = timed(builder.connect(&url)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Setup { .. }), "{error}");
        other.abort();
    }
}

/// A client that connects and sends nothing occupies its place only until the set-up timeout.
#[tokio::test]
async fn silent_client() {
    let server =
        Server::builder().service(TestService::default()).max_connections(1).connect_timeout(Duration::from_millis(50));
    timed(in_step(async move {
        let running = Transport::Iwarp.serve(server).await;
        let mut silent = tokio::net::TcpStream::connect(running.addr).await.unwrap();
        let mut sink = Vec::new();
        silent.read_to_end(&mut sink).await.ok();
        let channel = loop {
            match running.try_connect(Channel::builder()).await {
                Ok(channel) => break channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        call::<Null>(&channel, &()).await.unwrap();
    }))
    .await;
}

/// Garbage on a TCP connection closes only that connection.
#[tokio::test]
async fn garbage_client() {
    let running = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
    let channel = running.connect(Channel::builder()).await;
    let mut client = tokio::net::TcpStream::connect(running.addr).await.unwrap();
    let _ = client.write_all(&[0xa5; 4096]).await;
    timed(async move {
        let mut sink = Vec::new();
        client.read_to_end(&mut sink).await.ok();
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(running.handle.connections().len(), 1);
    })
    .await;
}

/// Servers and channels accept URLs with IPv6 addresses, host names and options.
#[tokio::test]
async fn urls() {
    timed(async {
        let server = Server::builder()
            .service(TestService::default())
            .listen("iwarp://[::1]:0?crc=off")
            .listen("iwarp://127.0.0.1:0")
            .bind()
            .await
            .unwrap();
        let addrs = server.local_addrs();
        assert_eq!(server.urls(), [format!("iwarp://{}?crc=off", addrs[0]), format!("iwarp://{}", addrs[1])]);
        spawn_server(server);
        for url in [
            format!("iwarp://{}", addrs[0]),
            format!("iwarp://{}?crc=off", addrs[0]),
            format!("iwarp://localhost:{}", addrs[1].port()),
        ] {
            let channel = Channel::connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(call::<Get>(&channel, &Range(1, 9000)).await.unwrap().0, pattern(1, 9000));
            let info = channel.info();
            assert!(
                info.remote_invalidation && info.send_threshold == 4096 && info.receive_threshold == 4096,
                "{info:?}"
            );
        }
    })
    .await;
}

/// Servers that share a port each get a part of the connections. A server without `share_ports` cannot listen on this
/// port.
#[tokio::test]
async fn servers_share_a_port() {
    timed(async {
        for scheme in ["iwarp", "tcp"] {
            let bind = async |url: &str, share: bool| {
                Server::builder().service(TestService::default()).listen(url).share_ports(share).bind().await
            };
            let first = bind(&format!("{scheme}://127.0.0.1:0"), true).await.unwrap();
            let url = first.urls()[0].clone();
            let alone = bind(&url, false).await.unwrap_err();
            assert!(
                matches!(&alone, BindError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse),
                "{alone}"
            );
            let second = bind(&url, true).await.unwrap();
            let handles = [first.handle(), second.handle()];
            spawn_server(first);
            spawn_server(second);
            let mut channels = Vec::new();
            for _ in 0..64 {
                let channel = Channel::connect(&url).await.unwrap();
                call::<Null>(&channel, &()).await.unwrap();
                channels.push(channel);
            }
            let connections = handles.map(|handle| handle.connections().len());
            assert_eq!(connections.iter().sum::<usize>(), 64);
            assert!(connections.iter().all(|&connections| connections > 0), "{connections:?}");
        }
    })
    .await;
}
