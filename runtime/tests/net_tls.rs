//! RPC-with-TLS on `tcp://` (RFC 9289): sessions that succeed.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
#[path = "net_support/keep_alive.rs"]
mod keep_alive;
mod net_support;
#[path = "net_support/tls.rs"]
mod tls_support;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use net_support::*;
use rpcrdma::{
    client::{Channel, ChannelBuilder, Reconnect},
    rpc::{AuthStat, OpaqueAuth},
    security::{
        Authentication, Authenticator, CallSecurity, ReceivedCall, Seal, Secured, Security, SecurityError,
        SecurityFuture, SecurityLink, StandardAuthenticator,
    },
    server::{Server, ServerBuilder},
    service::ProcedureId,
    tls::{TlsClientBuilder, TlsPolicy, TlsServerBuilder, TlsServerConfig, TlsSession},
};
use tls_support::{Authority, Issued};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

fn server(tls: &TlsServerConfig) -> ServerBuilder {
    Server::builder().service(TestService::default()).tls(tls.clone())
}

fn channel(tls: TlsClientBuilder) -> ChannelBuilder {
    Channel::builder().tls(tls.build().unwrap())
}

async fn serve(tls: TlsServerBuilder) -> Running {
    Transport::Tcp.serve(server(&tls.build().unwrap())).await
}

/// Checks that data of several lengths moves in both directions, and that concurrent calls share the session.
async fn exchange(channel: &Channel) {
    for len in [0, 5, 4096, 16_384, 70_001, 3 << 20] {
        let sent = pattern(3, len);
        let sum = sent.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        assert_eq!(call::<Put>(channel, &Data(sent.into())).await.unwrap(), sum, "put of {len}");
        assert_eq!(call::<Get>(channel, &Range(5, len)).await.unwrap().0, pattern(5, len), "get of {len}");
    }
    let (a, b) = (Range(1, 200_000), Range(2, 300_000));
    let (a, b) = tokio::join!(call::<Get>(channel, &a), call::<Get>(channel, &b));
    assert_eq!((a.unwrap().0, b.unwrap().0), (pattern(1, 200_000).into(), pattern(2, 300_000).into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_authentication() {
    timed(async {
        let authority = Authority::new();
        let running = serve(authority.server()).await;
        let channel = running.connect(channel(authority.client())).await;
        exchange(&channel).await;
        let info = channel.info();
        let session = info.tls.as_deref().unwrap();
        let identity = session.identity().unwrap();
        assert_eq!(identity.dns_names, ["localhost"]);
        assert!(identity.to_string().starts_with("localhost (serial number "), "{identity}");
        assert_eq!(session.certificates().len(), 1);
        assert!(session.cipher_suite().starts_with("TLS13_"), "{}", session.cipher_suite());
        channel.close().await;
        eventually(|| running.handle.stats().ended.by_client == 1).await;
    })
    .await;
}

/// With TLS too, client and server enable TCP keep-alive, which detects dead hosts.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_ask_for_a_sign_of_life() {
    timed(async {
        let authority = Authority::new();
        let running = serve(authority.server()).await;
        let channel = running.connect(channel(authority.client())).await;
        call::<Null>(&channel, &()).await.unwrap();
        eventually(|| keep_alive::both_ask(running.addr.port())).await;
    })
    .await;
}

/// A server whose URL turns TLS off does not offer it, although it has a certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_turns_tls_off() {
    timed(async {
        let authority = Authority::new();
        let tls = authority.server().policy(TlsPolicy::Opportunistic).build().unwrap();
        let server = server(&tls).listen("tcp://127.0.0.1:0?tls=off").bind().await.unwrap();
        let addr = server.local_addrs()[0];
        let serving = spawn_server(server);
        let with_tls = channel(authority.client()).connect(&format!("tcp://{addr}")).await;
        assert!(with_tls.is_err());
        let plain = Channel::connect(&format!("tcp://{addr}")).await.unwrap();
        call::<Null>(&plain, &()).await.unwrap();
        assert!(plain.info().tls.is_none());
        drop(serving);
    })
    .await;
}

/// The server of each path has to prove its identity. If it cannot, the channel uses the next path, and lists the
/// failed path as a better one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_prove_their_identity() {
    timed(async {
        let (trusted, other) = (Authority::new(), Authority::new());
        let mut servers = Vec::new();
        for authority in [&other, &trusted] {
            servers.push(serve(authority.server()).await);
        }
        let refused = servers[0].try_connect(channel(trusted.client())).await.unwrap_err();
        assert!(chain(&refused).contains("certificate"), "{}", chain(&refused));
        let target = format!("tcp://{},tcp://{}", servers[0].addr, servers[1].addr);
        let channel = channel(trusted.client()).connect(&target).await.unwrap();
        exchange(&channel).await;
        assert_eq!(channel.info().peer_addr, servers[1].addr);
        assert!(channel.info().tls.is_some());
        let [unused] = &channel.better_paths()[..] else { panic!("one path is better") };
        assert_eq!(unused.url.to_string(), format!("tcp://{}", servers[0].addr));
        assert_eq!(servers[0].handle.stats().counters.calls_received, 0, "no call without an identity");
    })
    .await;
}

/// The session of the last accepted call, and the serial number of the certificate that is denied.
#[derive(Debug, Default)]
struct Hosts {
    last: Mutex<Option<TlsSession>>,
    denied: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct ByHost(Arc<Hosts>);

impl Authenticator for ByHost {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        let Some(identity) = call.tls.and_then(TlsSession::identity) else {
            return Authentication::Rejected(AuthStat::AuthTooweak.into());
        };
        if identity.serial == *self.0.denied.lock().unwrap() {
            return Authentication::Rejected(AuthStat::AuthRejectedcred.into());
        }
        *self.0.last.lock().unwrap() = call.tls.cloned();
        StandardAuthenticator.authenticate(call)
    }
}

/// The server sees the certificate of the client, and can deny the client on this basis. Both sides compute the same
/// channel binding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_authentication() {
    timed(async {
        let (authority, clients) = (Authority::new(), Authority::new());
        let hosts = Arc::new(Hosts::default());
        let tls = authority.server().client_ca(clients.ca()).build().unwrap();
        let running = Transport::Tcp.serve(server(&tls).authenticator(ByHost(Arc::clone(&hosts)))).await;
        let issued = clients.issue("client", &["client.example"]);
        let Issued { certificate, key } = &issued;
        let channel = running.connect(channel(authority.client().certificate(certificate, key))).await;
        exchange(&channel).await;
        let seen = hosts.last.lock().unwrap().clone().unwrap();
        assert_eq!(seen.identity().unwrap().dns_names, ["client.example"]);
        assert_eq!(seen.channel_binding(), channel.info().tls.unwrap().channel_binding());
        assert_ne!(seen.channel_binding(), &[0; 32]);

        hosts.denied.lock().unwrap().clone_from(&seen.identity().unwrap().serial);
        let error = call::<Null>(&channel, &()).await.unwrap_err();
        tls_support::assert_denied(&error, AuthStat::AuthRejectedcred);
    })
    .await;
}

/// If the server allows it, a client without a certificate connects, and its calls have no identity. The calls of a
/// client with a certificate have an identity.
#[tokio::test]
async fn anonymous_clients() {
    timed(async {
        let authority = Authority::new();
        let hosts = Arc::new(Hosts::default());
        let tls = authority.server().client_ca(authority.ca()).allow_anonymous_clients(true).build().unwrap();
        let running = Transport::Tcp.serve(server(&tls).authenticator(ByHost(Arc::clone(&hosts)))).await;
        let anonymous = running.connect(channel(authority.client())).await;
        let error = call::<Null>(&anonymous, &()).await.unwrap_err();
        tls_support::assert_denied(&error, AuthStat::AuthTooweak);
        let issued = authority.issue("client", &["client.example"]);
        call::<Null>(&running.connect(channel(authority.client_with(&issued))).await, &()).await.unwrap();
    })
    .await;
}

/// Opportunistic peers work with peers that use TLS and with peers that do not.
#[tokio::test]
async fn opportunistic_peers() {
    timed(async {
        let authority = Authority::new();
        let opportunistic = TlsPolicy::Opportunistic;
        let running = serve(authority.server().policy(opportunistic)).await;
        for (policy, is_protected) in [(TlsPolicy::Off, false), (opportunistic, true), (TlsPolicy::Required, true)] {
            let channel = running.connect(channel(authority.client().policy(policy))).await;
            exchange(&channel).await;
            assert_eq!(channel.info().tls.is_some(), is_protected, "{policy}");
        }
        // A server without TLS.
        let plain = Transport::Tcp.serve(Server::builder().service(TestService::default())).await;
        let channel = plain.connect(channel(authority.client().policy(opportunistic))).await;
        exchange(&channel).await;
        assert!(channel.info().tls.is_none());
    })
    .await;
}

/// The option of a URL takes precedence over the policy of the configuration.
#[tokio::test]
async fn policy_of_the_url() {
    timed(async {
        let authority = Authority::new();
        let builder = server(&authority.server().policy(TlsPolicy::Off).build().unwrap());
        let server = builder.listen("tcp://127.0.0.1:0?tls=required").listen("tcp://127.0.0.1:0").bind().await.unwrap();
        let urls = server.urls().to_vec();
        spawn_server(server);
        let client = channel(authority.client().policy(TlsPolicy::Off));
        let protected = client.clone().connect(&urls[0]).await.unwrap();
        call::<Null>(&protected, &()).await.unwrap();
        assert!(protected.info().tls.is_some());
        let plain = client.connect(&urls[1]).await.unwrap();
        call::<Null>(&plain, &()).await.unwrap();
        assert!(plain.info().tls.is_none());
    })
    .await;
}

/// New connections get the new certificate, open ones keep their session, and a broken file changes nothing.
#[tokio::test]
async fn certificates_are_reloaded() {
    timed(async {
        let authority = Authority::new();
        let tls = authority.server().build().unwrap();
        let running = Transport::Tcp.serve(server(&tls)).await;
        let builder = channel(authority.client());
        let first = running.connect(builder.clone()).await;
        authority.issue("server", &["localhost", "127.0.0.1", "renewed.example"]);
        let before = running.connect(builder.clone()).await;
        tls.reload().unwrap();
        let second = running.connect(builder.clone()).await;
        std::fs::write(authority.path("server.pem"), "nothing").unwrap();
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains("server.pem contains no certificate"), "{error}");
        let third = running.connect(builder).await;
        let names = |channel: &Channel| channel.info().tls.unwrap().identity().unwrap().dns_names.len();
        assert_eq!([names(&first), names(&before), names(&second), names(&third)], [1, 1, 2, 2]);
        for channel in [first, second, third] {
            call::<Null>(&channel, &()).await.unwrap();
        }
    })
    .await;
}

/// New connections of a client use its new files, open ones keep their session, and a broken file changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_client_are_reloaded() {
    timed(async {
        let (authority, clients) = (Authority::new(), Authority::new());
        let hosts = Arc::new(Hosts::default());
        let tls = authority.server().client_ca(clients.ca()).build().unwrap();
        let running = Transport::Tcp.serve(server(&tls).authenticator(ByHost(Arc::clone(&hosts)))).await;
        let tls = authority.client_with(&clients.issue("client", &["client.example"])).build().unwrap();
        let builder = Channel::builder().tls(tls.clone()).reconnect(Reconnect::Never);
        let first = running.connect(builder.clone()).await;
        clients.issue("client", &["renewed.example"]);
        let before = running.connect(builder.clone()).await;
        tls.reload().unwrap();
        let second = running.connect(builder.clone()).await;
        std::fs::write(clients.path("client.pem"), "nothing").unwrap();
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains("client.pem contains no certificate"), "{error}");
        let third = running.connect(builder.clone()).await;
        let (old, new) = ("client.example", "renewed.example");
        for (channel, name) in [(&first, old), (&before, old), (&second, new), (&third, new)] {
            call::<Null>(channel, &()).await.unwrap();
            let session = hosts.last.lock().unwrap().clone().unwrap();
            assert_eq!(session.identity().unwrap().dns_names, [name]);
        }

        // The certificates of authorities are read again, too.
        clients.issue("client", &["client.example"]);
        std::fs::copy(clients.ca(), authority.ca()).unwrap();
        running.connect(builder.clone()).await;
        tls.reload().unwrap();
        let error = running.try_connect(builder).await.unwrap_err();
        assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    })
    .await;
}

/// A channel starts TLS again after a reconnect.
#[tokio::test]
async fn reconnected_channels_are_protected() {
    timed(async {
        let authority = Authority::new();
        let running = serve(authority.server()).await;
        let proxy = Proxy::to(running.addr).await;
        let builder = channel(authority.client()).reconnect(Reconnect::on_demand());
        let channel = builder.connect(&format!("tcp://{}", proxy.addr)).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        let first = *channel.info().tls.unwrap().channel_binding();
        proxy.cut();
        channel.closed().await;
        call::<Null>(&channel, &()).await.unwrap();
        assert_ne!(*channel.info().tls.unwrap().channel_binding(), first);
    })
    .await;
}

/// A proxy that records the bytes of both directions.
struct Proxy {
    addr: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Proxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, seen) = (listener.local_addr().unwrap(), Arc::default());
        let tasks: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let (seen_by_proxy, copies) = (Arc::clone(&seen), Arc::clone(&tasks));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = TcpStream::connect(server).await.unwrap().into_split();
                let mut copies = copies.lock().unwrap();
                copies.spawn(record(from_client, to_server, Arc::clone(&seen_by_proxy)));
                copies.spawn(record(from_server, to_client, Arc::clone(&seen_by_proxy)));
            }
        });
        Self { addr, seen, tasks }
    }

    /// Closes all connections.
    fn cut(&self) {
        self.tasks.lock().unwrap().abort_all();
    }

    fn saw(&self, text: &[u8]) -> bool {
        self.seen.lock().unwrap().windows(text.len()).any(|window| window == text)
    }
}

async fn record(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, seen: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        seen.lock().unwrap().extend_from_slice(&bytes[..len]);
        if to.write_all(&bytes[..len]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// With TLS, the token of the offer is readable on the network, but the arguments and results of calls are not.
#[tokio::test]
async fn plaintext_does_not_appear_on_the_network() {
    timed(async {
        const SECRET: &[u8] = b"a sentence that nobody else may read";
        let authority = Authority::new();
        let running = serve(authority.server().policy(TlsPolicy::Opportunistic)).await;
        for (policy, is_visible) in [(TlsPolicy::Off, true), (TlsPolicy::Required, false)] {
            let proxy = Proxy::to(running.addr).await;
            let builder = channel(authority.client().policy(policy));
            let channel = builder.connect(&format!("tcp://{}", proxy.addr)).await.unwrap();
            assert_eq!(call::<Echo>(&channel, &Bytes::from_static(SECRET)).await.unwrap(), SECRET);
            assert_eq!((proxy.saw(SECRET), proxy.saw(b"STARTTLS")), (is_visible, !is_visible), "{policy}");
        }
    })
    .await;
}

/// A list of servers can strengthen the policy of a client, but cannot weaken it.
#[cfg(feature = "discover")]
#[tokio::test]
async fn discovered_urls_only_strengthen_the_policy() {
    use TlsPolicy::{Off, Opportunistic, Required};
    use rpcrdma::{
        CallOptions,
        client::{
            Invoke as _, RetryPolicy, ServiceCaller,
            discover::{Endpoints, Servers},
        },
    };

    timed(async {
        const SECRET: &[u8] = b"a sentence that nobody else may read";
        let authority = Authority::new();
        let running = serve(authority.server().policy(Opportunistic)).await;
        for (configured, listed, is_visible) in [
            (Required, "?tls=off", false),
            (Required, "?tls=opportunistic", false),
            (Required, "", false),
            (Opportunistic, "?tls=off", false),
            (Off, "?tls=required", false),
            (Off, "?tls=off", true),
            (Off, "", true),
        ] {
            let proxy = Proxy::to(running.addr).await;
            let servers = Servers::fixed([format!("tcp://{}{listed}", proxy.addr)]);
            let endpoints = Endpoints::new(servers, channel(authority.client().policy(configured)));
            let caller = ServiceCaller::balanced(endpoints, RetryPolicy::default());
            let echoed = caller.invoke::<Echo>(&Bytes::from_static(SECRET), CallOptions::new()).await.unwrap();
            assert_eq!((echoed.as_ref(), proxy.saw(SECRET)), (SECRET, is_visible), "{configured}, {listed}");
        }
    })
    .await;
}

mod ring {
    rpcrdma::xdr! {
        program RING { version RING_V1 { unsigned int ASK(unsigned int) = 1; } = 1; } = 0x20000601;
        program BELL { version BELL_V1 { unsigned int CHIME(unsigned int) = 1; } = 1; } = 0x20000602;
    }
}
use ring::{
    bell_v1::{BellV1, BellV1Client, BellV1Server},
    ring_v1::{RingV1, RingV1Client, RingV1Server},
};
use rpcrdma::{Context, HandlerError};

struct Asked;

impl RingV1 for Asked {
    async fn ask(&self, cx: &Context, number: u32) -> Result<u32, HandlerError> {
        if cx.tls().is_none() {
            return Err(HandlerError::Rejected(AuthStat::AuthTooweak.into()));
        }
        Ok(cx.callback::<BellV1Client>().chime(number).await? + 1)
    }
}

struct Chimes;

impl BellV1 for Chimes {
    async fn chime(&self, cx: &Context, number: u32) -> Result<u32, HandlerError> {
        // The client's handler sees the certificate of the server.
        let identity = cx.tls().and_then(TlsSession::identity);
        Ok(number * 10 + identity.map_or(0, |identity| identity.dns_names.len() as u32))
    }
}

/// Callbacks use the session of their connection (RFC 9289 §5.1.1), and handlers see it.
#[tokio::test]
async fn callbacks() {
    timed(async {
        let authority = Authority::new();
        let tls = authority.server().policy(TlsPolicy::Opportunistic).build().unwrap();
        let running = Transport::Tcp.serve(Server::builder().service(RingV1Server::new(Asked)).tls(tls)).await;
        let client = channel(authority.client()).service(BellV1Server::new(Chimes));
        let asked = RingV1Client::new(running.connect(client).await);
        assert_eq!(asked.ask(4).await.unwrap(), 42);
        let client = Channel::builder().service(BellV1Server::new(Chimes));
        let asked = RingV1Client::new(running.connect(client).await);
        let error = asked.ask(4).await.unwrap_err();
        tls_support::assert_denied(&error, AuthStat::AuthTooweak);
    })
    .await;
}

/// A security that seals nothing, and records the names in the server's certificate.
#[derive(Debug, Default, Clone)]
struct SeenServers(Arc<Mutex<Vec<Vec<String>>>>);

#[derive(Debug)]
struct Unsealed;

impl Seal for Unsealed {
    fn seal(&self, _header: &[u8]) -> Result<OpaqueAuth, SecurityError> {
        Ok(OpaqueAuth::none())
    }
}

impl CallSecurity for Unsealed {
    fn verify(&self, _verifier: &OpaqueAuth) -> Result<(), SecurityError> {
        Ok(())
    }
}

impl Security for SeenServers {
    fn secure<'a>(
        &'a self,
        _call: ProcedureId,
        link: SecurityLink<'a>,
    ) -> SecurityFuture<'a, Result<Secured, SecurityError>> {
        let names = link.tls().and_then(TlsSession::identity).map(|identity| identity.dns_names.clone());
        self.0.lock().unwrap().push(names.unwrap_or_default());
        Box::pin(async { Ok(Secured { credential: OpaqueAuth::none(), call: Arc::new(Unsealed) }) })
    }
}

#[tokio::test]
async fn securities_see_the_certificate_of_the_server() {
    timed(async {
        let authority = Authority::new();
        let seen = SeenServers::default();
        let running = serve(authority.server()).await;
        let secured = running.connect(channel(authority.client()).security(seen.clone())).await;
        call::<Null>(&secured, &()).await.unwrap();
        assert_eq!(*seen.0.lock().unwrap(), [["localhost"]]);
    })
    .await;
}
