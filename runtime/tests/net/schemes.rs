//! Providers of RDMA and of byte streams from outside the crate, which URLs select by registered schemes.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{LazyLock, Mutex},
    time::Duration,
};

use crate::net_support::*;
use rpcrdma::{
    CallOptions, Channel, ConnectError, Server,
    client::{ChannelBuilder, Invoke as _, Reconnect},
    engine::Versions,
    error::{BindError, SetupError},
    provider::sim::{SimConnector, SimFabric, SimListener},
    server::ServerBuilder,
    transport::{
        Scheme, SchemeError, SchemeProvider, StreamListener, StreamProvider, Transport as Kind, Url, UrlError,
        UrlOption, UrlOptions,
    },
};
use tokio::{
    io::DuplexStream,
    sync::{
        Mutex as AsyncMutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

/// Two simulated networks. The option `network=b` selects the second.
struct TwoNetworks([SimFabric; 2]);

impl TwoNetworks {
    fn of(&self, options: &UrlOptions) -> &SimFabric {
        &self.0[usize::from(options.get("network") == Some("b"))]
    }
}

impl SchemeProvider for TwoNetworks {
    type Connector = SimConnector;
    type Listener = SimListener;

    fn options(&self) -> &'static [UrlOption] {
        const NETWORK: UrlOption = UrlOption::new("network", "a|b", |value| matches!(value, "a" | "b"));
        &[NETWORK]
    }

    fn connector(&self, options: &UrlOptions) -> SimConnector {
        self.of(options).connector()
    }

    fn listen(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
        self.of(options).listen(addr.port())
    }
}

/// The RDMA scheme that the tests of this file share, because a process can register a scheme only once.
static SCHEME: LazyLock<Scheme> =
    LazyLock::new(|| Scheme::register("x-two.networks+sim", TwoNetworks(Default::default())).unwrap());

/// A scheme with networks of its own, which [`SCHEME`] does not reach.
static OTHER_SCHEME: LazyLock<Scheme> =
    LazyLock::new(|| Scheme::register("x-other-networks", TwoNetworks(Default::default())).unwrap());

/// Pipes within the process. The option `buffer` is the size of each pipe, in bytes.
#[derive(Default)]
struct Pipes(Mutex<HashMap<SocketAddr, UnboundedSender<DuplexStream>>>);

struct PipeListener(SocketAddr, AsyncMutex<UnboundedReceiver<DuplexStream>>);

impl StreamProvider for Pipes {
    type Stream = DuplexStream;
    type Listener = PipeListener;

    fn options(&self) -> &'static [UrlOption] {
        const BUFFER: UrlOption = UrlOption::new("buffer", "BYTES", |value| value.parse::<usize>().is_ok());
        &[BUFFER]
    }

    async fn connect(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<DuplexStream> {
        let buffer = options.get("buffer").map_or(4096, |bytes| bytes.parse().unwrap());
        let listener = self.0.lock().unwrap().get(&addr).cloned().ok_or(io::ErrorKind::ConnectionRefused)?;
        let (near, far) = tokio::io::duplex(buffer);
        listener.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        // An attempt to connect to port 9 never ends.
        if addr.port() == 9 { std::future::pending().await } else { Ok(near) }
    }

    fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<PipeListener> {
        let (sender, receiver) = unbounded_channel();
        self.0.lock().unwrap().insert(addr, sender);
        Ok(PipeListener(addr, receiver.into()))
    }
}

impl StreamListener for PipeListener {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
        let stream = self.1.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected)?;
        Ok((stream, ([127, 0, 0, 1], 50_000).into()))
    }

    fn local_addr(&self) -> SocketAddr {
        self.0
    }
}

static PIPES: LazyLock<Scheme> = LazyLock::new(|| Scheme::register_stream("x-pipe", Pipes::default()).unwrap());

fn url(port: u16, options: &str) -> String {
    format!("{}://127.0.0.1:{port}{options}", *SCHEME)
}

/// Starts a server, and returns its URL.
async fn serve_on(url: &str, server: ServerBuilder) -> (Running, String) {
    let server = server.listen(url).bind().await.unwrap();
    let url = server.urls()[0].clone();
    let (addr, handle) = (server.local_addrs()[0], server.handle());
    (Running { addr, handle, transport: Transport::sim(), task: spawn_server(server) }, url)
}

async fn serve(url: &str) -> (Running, String) {
    serve_on(url, Server::builder().service(TestService::default())).await
}

/// Ends a server, and returns when its connections are closed and its port is free.
async fn stop(server: Running) {
    server.handle.shutdown_within(Duration::ZERO);
    server.task.await.unwrap();
}

fn builder() -> ChannelBuilder {
    let [min_backoff, max_backoff] = [5, 20].map(Duration::from_millis);
    Channel::builder().reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: 3 })
}

#[tokio::test]
async fn urls_have_the_options_of_the_provider() {
    timed(async {
        assert_eq!((SCHEME.as_str(), SCHEME.transport()), ("x-two.networks+sim", Kind::Rdma));
        let text = url(7, "?network=b&version=1");
        let parsed: Url =
            text.to_uppercase().replace("NETWORK=B", "network=b").replace("VERSION", "version").parse().unwrap();
        assert_eq!(
            (parsed.scheme(), parsed.options().get("network"), parsed.versions()),
            (*SCHEME, Some("b"), Some(Versions::V1))
        );
        assert_eq!(parsed.to_string(), text);
        for option in ["network=c", "network", "Network=a", "local=127.0.0.1", "busy=1", "tls=off"] {
            let error = url(7, &format!("?{option}")).parse::<Url>().unwrap_err();
            let UrlError::UnknownOption { option: said, expected, .. } = &error else { panic!("{error}") };
            assert_eq!(
                (said.as_str(), expected.as_str()),
                (option, "network=a|b, version=1|2|both, priority=0-65535, weight=NUMBER")
            );
        }
    })
    .await;
}

#[tokio::test]
async fn servers_listen_and_channels_connect() {
    timed(async {
        // Other tests use only ports that a network selects. Those are above this port.
        let (server, url) = serve(&url(77, "?network=b")).await;
        assert_eq!(url, "x-two.networks+sim://127.0.0.1:77?network=b");
        let channel = Channel::connect(&url).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!((channel.info().transport, channel.info().version), (Kind::Rdma, Some(2)));
        let lazy = Channel::builder().connect_lazy(&format!("{url}&version=1")).unwrap();
        assert_eq!(lazy.info().transport, Kind::Rdma);
        call::<Null>(&lazy, &()).await.unwrap();
        assert_eq!(lazy.info().version, Some(1));

        // The other network has no such server. That does not depend on the address.
        let other = url.replace("network=b", "network=a");
        let refused = Channel::connect(&other).await.unwrap_err();
        let ConnectError::Setup { source: SetupError::Io(error), .. } = refused else { panic!("{refused}") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // A port that is in use on one network is free on the other.
        let taken = Server::builder().service(TestService::default()).listen(&url).bind().await.unwrap_err();
        let BindError::Listen { source, .. } = taken else { panic!("{taken}") };
        assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
        let (elsewhere, _) = serve(&other).await;
        stop(elsewhere).await;
        stop(server).await;
    })
    .await;
}

/// Shared ports are refused, because the provider does not implement them.
#[tokio::test]
async fn shared_ports_are_refused() {
    timed(async {
        let shared =
            Server::builder().service(TestService::default()).share_ports(true).listen(url(0, "")).bind().await;
        let BindError::Listen { source, .. } = shared.unwrap_err() else { panic!("another error") };
        assert_eq!(source.kind(), io::ErrorKind::Unsupported);
    })
    .await;
}

/// A channel makes calls, loses its server, and makes calls to the next server at the same URL.
async fn outlasts_its_server(server: Running, url: &str) {
    let channel = builder().connect(url).await.unwrap();
    for _ in 0..3 {
        call::<Null>(&channel, &()).await.unwrap();
    }
    stop(server).await;
    channel.closed().await;
    call::<Null>(&channel, &()).await.unwrap_err();
    let (server, _) = serve(url).await;
    call::<Null>(&channel, &()).await.unwrap();
    stop(server).await;
}

#[tokio::test]
async fn channels_reconnect() {
    timed(async {
        // A port that no other test gets while there is no server.
        let (server, url) = serve(&url(78, "")).await;
        outlasts_its_server(server, &url).await;
    })
    .await;
}

#[tokio::test]
async fn pools_use_several_paths() {
    timed(async {
        let (a, first) = serve(&url(0, "?network=a")).await;
        let (b, second) = serve(&url(0, "?network=b")).await;
        let pool = builder().connect_pool([&first, &second]).await.unwrap();
        for _ in 0..10 {
            pool.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
        }
        let calls: Vec<_> = pool.channels().map(|channel| channel.counters().replies_received).collect();
        assert_eq!(calls, [5, 5]);
        // The pool goes on over the path that is left.
        stop(a).await;
        pool.channels().next().unwrap().closed().await;
        for _ in 0..10 {
            pool.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
        }
        stop(b).await;
    })
    .await;
}

/// Channels to a server that supports only version 1 use version 1. A channel to a server of both versions at the same
/// address, but of another scheme, still uses version 2.
#[tokio::test]
async fn versions_are_negotiated() {
    timed(async {
        let only_1 = Server::builder().versions(Versions::V1).service(TestService::default());
        let (server, url) = serve_on(&url(0, "?network=b"), only_1).await;
        for _ in 0..3 {
            let channel = builder().connect(&url).await.unwrap();
            call::<Null>(&channel, &()).await.unwrap();
            assert_eq!(channel.info().version, Some(1));
        }
        // The same address of another scheme leads to another server, which supports both versions.
        let port = url.split([':', '?']).nth(2).unwrap();
        let (elsewhere, other) = serve(&format!("{}://127.0.0.1:{port}", *OTHER_SCHEME)).await;
        let channel = builder().connect(&other).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(channel.info().version, Some(2));
        stop(elsewhere).await;
        stop(server).await;
    })
    .await;
}

#[cfg(feature = "discover")]
#[tokio::test]
async fn discovery_finds_servers() {
    use rpcrdma::client::{
        RetryPolicy, ServiceCaller,
        discover::{Endpoints, Servers},
    };

    timed(async {
        let (a, first) = serve(&url(0, "?network=a")).await;
        let (b, second) = serve(&url(0, "?network=b")).await;
        let (sender, servers) = Servers::channel();
        sender.set([first.as_str()]);
        let caller = ServiceCaller::balanced(Endpoints::new(servers, builder()), RetryPolicy::default());
        caller.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
        // A server on another network replaces the first one, which may be used until the client has read the new list.
        sender.set([second.as_str()]);
        while b.handle.stats().open == 0 || a.handle.stats().open > 0 {
            caller.invoke::<Null>(&(), CallOptions::new()).await.unwrap();
            tokio::task::yield_now().await;
        }
        stop(a).await;
        stop(b).await;
    })
    .await;
}

/// The byte streams of a provider carry calls of several sizes, with pipe buffers of several sizes. A channel
/// reconnects after its server has been replaced.
#[tokio::test]
async fn streams_carry_records() {
    timed(async {
        let url = format!("{}://127.0.0.1:7", *PIPES);
        let (server, listening) = serve(&url).await;
        assert_eq!((listening.as_str(), PIPES.transport()), ("x-pipe://127.0.0.1:7", Kind::Tcp));
        for options in ["", "?buffer=1", "?buffer=1000000"] {
            let channel = builder().connect(&format!("{url}{options}")).await.unwrap();
            let info = channel.info();
            assert_eq!((info.transport, info.peer_addr.port(), info.version), (Kind::Tcp, 7, None));
            for len in [1, 5_000] {
                let sum = call::<Put>(&channel, &Data(pattern(1, len).into())).await.unwrap();
                assert_eq!(
                    sum,
                    pattern(1, len).iter().fold(0, |sum: u64, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
                );
                assert_eq!(call::<Get>(&channel, &Range(1, len)).await.unwrap().0, pattern(1, len)[..]);
            }
            let [connection] = &server.handle.connections()[..] else { panic!("one connection") };
            assert_eq!((connection.peer_addr.port(), connection.local_addr.port()), (50_000, 7));
            channel.close().await;
            while server.handle.stats().open > 0 {
                tokio::task::yield_now().await;
            }
        }
        // The server closes the stream, and another one takes its place.
        outlasts_its_server(server, &url).await;
    })
    .await;
}

#[tokio::test]
async fn streams_have_limits() {
    timed(async {
        let url = |port: u16| format!("{}://127.0.0.1:{port}", *PIPES);
        let shared = Server::builder().service(TestService::default()).share_ports(true).listen(url(8)).bind().await;
        let BindError::Listen { source, .. } = shared.unwrap_err() else { panic!("another error") };
        assert_eq!(source.kind(), io::ErrorKind::Unsupported);
        // No RPC-over-RDMA, so there are no versions of it, and no other options than the provider's.
        for option in ["version=1", "buffer=many", "tls=required"] {
            let error = format!("{}?{option}", url(8)).parse::<Url>().unwrap_err();
            let UrlError::UnknownOption { expected, .. } = error else { panic!("{error}") };
            assert_eq!(expected, "buffer=BYTES, priority=0-65535, weight=NUMBER");
        }
        let refused = Channel::connect(&url(8)).await.unwrap_err();
        let ConnectError::Setup { source: SetupError::Io(error), .. } = refused else { panic!("{refused}") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let (server, _) = serve(&url(9)).await;
        let limit = Duration::from_millis(20);
        let late = Channel::builder().connect_timeout(limit).connect(&url(9)).await.unwrap_err();
        assert!(
            matches!(&late, ConnectError::Setup { source: SetupError::TimedOut(of), .. } if *of == limit),
            "{late}"
        );
        stop(server).await;
    })
    .await;
}

/// A server with several runtimes serves the byte streams of a provider.
#[tokio::test]
async fn streams_move_to_runtimes() {
    timed(async {
        let runtimes: Vec<_> =
            (0..2).map(|_| tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap()).collect();
        let handles = runtimes.iter().map(|runtime| runtime.handle().clone());
        let server = Server::builder().service(TestService::default()).runtimes(handles);
        let url = format!("{}://127.0.0.1:10", *PIPES);
        let (server, _) = serve_on(&url, server).await;
        for _ in 0..4 {
            call::<Null>(&builder().connect(&url).await.unwrap(), &()).await.unwrap();
        }
        stop(server).await;
        runtimes.into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    })
    .await;
}

#[test]
fn wrong_registrations_are_refused() {
    struct Repeats(&'static [UrlOption]);
    impl SchemeProvider for Repeats {
        type Connector = SimConnector;
        type Listener = SimListener;
        fn options(&self) -> &'static [UrlOption] {
            self.0
        }
        fn connector(&self, _options: &UrlOptions) -> SimConnector {
            SimFabric::global().connector()
        }
        fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
            SimFabric::global().listen(addr.port())
        }
    }

    let register = |name| Scheme::register(name, TwoNetworks(Default::default()));
    for name in ["", "1sim", "+sim", "Sim", "si_m", "sim:", "sim/", "sím", "sim ", "-"] {
        assert_eq!(register(name), Err(SchemeError::BadName { name }));
    }
    for name in ["iwarp", "tcp", "rdma", SCHEME.as_str()] {
        assert_eq!(register(name), Err(SchemeError::Taken { name }));
        assert_eq!(Scheme::register_stream(name, Pipes::default()), Err(SchemeError::Taken { name }));
    }
    // An option must not hide another one of the scheme, or one that every scheme has.
    const ANY: fn(&str) -> bool = |_| true;
    const REPEATED: [(&str, &[UrlOption]); 4] = [
        ("local", &[UrlOption::LOCAL, UrlOption::LOCAL]),
        ("version", &[UrlOption::new("version", "ANY", ANY)]),
        ("priority", &[UrlOption::LOCAL, UrlOption::new("priority", "ANY", ANY)]),
        ("weight", &[UrlOption::new("weight", "ANY", ANY)]),
    ];
    for (option, options) in REPEATED {
        let refused = Scheme::register("repeats", Repeats(options));
        assert_eq!(refused, Err(SchemeError::BadOption { name: "repeats", option }));
    }
    // A refused registration leaves no scheme behind.
    let unknown = "repeats://host:1".parse::<Url>().unwrap_err();
    assert!(matches!(&unknown, UrlError::UnknownScheme { scheme, .. } if scheme == "repeats"), "{unknown}");
    let names = unknown.to_string();
    assert!(names.contains("iwarp, ") && names.contains("x-two.networks+sim"), "{names}");
}
