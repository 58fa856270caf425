//! RPC-with-TLS on `tcp://` (RFC 9289): connections that are refused, on either side, and peers that violate the
//! protocol.
#![allow(missing_docs)]

mod net_support;
#[path = "net_support/tls_peers.rs"]
mod tls_peers;
#[path = "net_support/tls.rs"]
mod tls_support;

use std::{sync::Arc, time::Duration};

use net_support::*;
use rpcrdma::{
    client::{CallOptions, Channel, ChannelBuilder, ConnectError, Reconnect},
    rpc::{AuthStat, Credential},
    security::{AuthenticatedCaller, Authentication, Authenticator, ReceivedCall},
    server::Server,
    tls::{TlsClientConfig, TlsConfigError, TlsPolicy, TlsServerBuilder, TlsServerConfig, rustls::ALL_VERSIONS},
};
use tls_peers::{
    LAST, POLICIES, channel, handshake, null_call, offer, scripted, serve, server_config, still_serves, words,
};
use tls_support::{Authority, Issued};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

async fn refused(running: &Running, builder: ChannelBuilder) -> String {
    chain(&running.try_connect(builder).await.unwrap_err())
}

/// Returns what the peer sends until it closes the stream.
async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset also closes the stream.
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

#[tokio::test]
async fn certificates_that_the_client_refuses() {
    timed(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let running = serve(authority.server()).await;
        let error = refused(&running, channel(other.client())).await;
        assert!(error.contains("handshake failed") && error.contains("UnknownIssuer"), "{error}");
        let error = refused(&running, channel(authority.client().server_name("other.example"))).await;
        assert!(error.contains("not valid for name"), "{error}");
        // The name in the URL counts before the host, and that of the configuration before both.
        let url = |name| format!("tcp://{}?name={name}", running.addr);
        let error = chain(&channel(authority.client()).connect(&url("other.example")).await.unwrap_err());
        assert!(error.contains("not valid for name"), "{error}");
        channel(authority.client().server_name("127.0.0.1")).connect(&url("other.example")).await.unwrap();
        channel(authority.client()).connect(&url("127.0.0.1")).await.unwrap();
        still_serves(&running, &authority).await;

        let Issued { certificate, key } = authority.issue_expired("expired", &["127.0.0.1"]);
        let running = serve(TlsServerConfig::builder().certificate(certificate, key)).await;
        let error = refused(&running, channel(authority.client())).await;
        assert!(error.contains("expired"), "{error}");

        // RFC 9289 §5.2.1: no wildcards.
        let Issued { certificate, key } = authority.issue("wildcard", &["127.0.0.1", "*.example.com"]);
        let running = serve(TlsServerConfig::builder().certificate(certificate, key)).await;
        let error = refused(&running, channel(authority.client())).await;
        assert!(error.contains("wildcard"), "{error}");
        eventually(|| running.handle.stats().setup_failed + running.handle.stats().ended.total() == 1).await;
    })
    .await;
}

/// In TLS 1.3, a client learns after its handshake that the server has refused its certificate.
#[tokio::test]
async fn certificates_that_the_server_refuses() {
    timed(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let running = serve(authority.server().client_ca(authority.ca())).await;
        let foreign = other.issue("client", &["client.example"]);
        let expired = authority.issue_expired("expired", &["client.example"]);
        let wildcard = authority.issue("wildcard", &["*.example.com"]);
        let clients = [None, Some(foreign), Some(expired), Some(wildcard)];
        for (number, client) in (1..).zip(&clients) {
            let tls =
                client.iter().fold(authority.client(), |tls, files| tls.certificate(&files.certificate, &files.key));
            let refusal = match running.try_connect(channel(tls)).await {
                Err(error) => chain(&error),
                Ok(channel) => chain(&call::<Null>(&channel, &()).await.unwrap_err()),
            };
            println!("{client:?}: {refusal}");
            eventually(|| running.handle.stats().setup_failed == number).await;
        }
        // The refusal is final, however much time the call has.
        let patient = Channel::builder().tls(authority.client().build().unwrap());
        if let Ok(channel) = running.try_connect(patient).await {
            let options = CallOptions::new().timeout(Duration::from_secs(600));
            let refusal = chain(&channel.call::<Null>(&(), options).await.unwrap_err());
            assert!(refusal.contains("CertificateRequired"), "{refusal}");
        }
        assert_eq!(running.handle.stats().accepted, 0);
        let issued = authority.issue("client", &["client.example"]);
        call::<Null>(&running.connect(channel(authority.client_with(&issued))).await, &()).await.unwrap();
    })
    .await;
}

/// A peer without TLS is refused if TLS is required.
#[tokio::test]
async fn plaintext_is_refused() {
    timed(async {
        let authority = Authority::new();
        let plain = Transport::Tcp.serve(Server::builder().service(TestService::default())).await;
        let error = refused(&plain, channel(authority.client())).await;
        assert!(error.contains("TLS is required, but the server does not offer it"), "{error}");
        assert!(error.contains("AUTH_BADCRED"), "{error}");

        let running = serve(authority.server()).await;
        for len in [0, 100_000] {
            let channel = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
            let error = call::<Put>(&channel, &Data(pattern(1, len).into())).await.unwrap_err();
            tls_support::assert_denied(&error, AuthStat::AuthTooweak);
        }
        eventually(|| running.handle.stats().setup_failed == 2).await;
        assert_eq!(running.handle.stats().accepted, 0);
        still_serves(&running, &authority).await;
    })
    .await;
}

/// An authenticator that accepts calls of every flavor.
#[derive(Debug)]
struct AcceptAll;

impl Authenticator for AcceptAll {
    fn authenticate(&self, _: &ReceivedCall<'_>) -> Authentication {
        Authentication::Accepted(AuthenticatedCaller::new(Credential::None))
    }
}

async fn serve_all(tls: TlsServerBuilder) -> Running {
    let server = Server::builder().service(TestService::default()).authenticator(AcceptAll);
    Transport::Tcp.serve(server.tls(tls.build().unwrap())).await
}

/// Calls with AUTH_TLS that are not a probe get AUTH_BADCRED (RFC 9289 §4.1).
#[tokio::test]
async fn misplaced_probes() {
    timed(async {
        const BAD_CREDENTIAL: [u32; 5] = [LAST | 20, 9, 1, 1, 1];
        let authority = Authority::new();
        let denied = words(&[&BAD_CREDENTIAL[..], &[1]].concat());
        // With a credential and arguments of these lengths.
        let with = |number, credential: u32, arguments: u32| {
            let len = 40 + credential + arguments;
            let head = words(&[LAST | len, 9, 0, 2, PROGRAM, VERSION, number, 7, credential]);
            [head, vec![0; len as usize - 32]].concat()
        };
        for policy in [TlsPolicy::Required, TlsPolicy::Opportunistic] {
            let running = serve_all(authority.server().policy(policy)).await;
            for (number, credential, arguments) in
                [(1, 0, 0), (2, 0, 0), (u32::MAX, 0, 0), (0, 0, 4), (1, 0, 4), (1, 0, 1000), (0, 4, 0), (1, 400, 4)]
            {
                let mut stream = TcpStream::connect(running.addr).await.unwrap();
                stream.write_all(&with(number, credential, arguments)).await.unwrap();
                let mut reply = [0; 24];
                stream.read_exact(&mut reply).await.unwrap();
                assert_eq!(reply[..], denied, "{policy}: {number}, {credential}, {arguments}");
            }
        }
        // A second call of a connection is no probe.
        let running = serve_all(authority.server().policy(TlsPolicy::Opportunistic)).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(&null_call(0)).await.unwrap();
        let mut reply = [0; 28];
        stream.read_exact(&mut reply).await.unwrap();
        stream.write_all(&null_call(7)).await.unwrap();
        stream.read_exact(&mut reply[..24]).await.unwrap();
        assert_eq!(reply[..24], denied);
        // Nor is a call within a session.
        let mut stream = handshake(running.addr, &authority, &[b"sunrpc"]).await.unwrap();
        for (number, credential, arguments) in [(0, 0, 0), (1, 0, 0), (1, 0, 4), (0, 4, 0), (1, 8, 4)] {
            stream.write_all(&with(number, credential, arguments)).await.unwrap();
            stream.read_exact(&mut reply[..24]).await.unwrap();
            assert_eq!(reply[..24], denied, "{number}, {credential}, {arguments}");
        }
    })
    .await;
}

/// A server that loses the first ClientHello, as nfs-ganesha does, gets another one on a second connection, which has a
/// time limit. It does not get a third ClientHello.
#[tokio::test]
async fn lost_client_hellos() {
    timed(in_step(async {
        let authority = Authority::new();
        for lost in [1, 2] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("tcp://{}", listener.local_addr().unwrap());
            let config = Arc::new(server_config(&authority, ALL_VERSIONS));
            let server = tokio::spawn(async move {
                let mut open = Vec::new();
                for number in 1..=2 {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut probe = [0; 44];
                    stream.read_exact(&mut probe).await.unwrap();
                    let mut offer = offer();
                    offer[4..8].copy_from_slice(&probe[4..8]);
                    stream.write_all(&offer).await.unwrap();
                    if number <= lost {
                        // Kept open, and never answered.
                        open.push(stream);
                        continue;
                    }
                    let mut stream = TlsAcceptor::from(Arc::clone(&config)).accept(stream).await.unwrap();
                    let _ = stream.read(&mut [0]).await;
                }
                // A third connection would be accepted here.
                assert!(lost < 2 || tokio::time::timeout(Duration::from_millis(500), listener.accept()).await.is_err());
                // Not closed before the client has given up.
                open
            });
            let tls = authority.client().allow_missing_alpn(true).handshake_timeout(Duration::from_secs(3));
            match channel(tls).connect(&url).await {
                Ok(connected) => {
                    assert_eq!(lost, 1);
                    drop(connected);
                }
                Err(error) => {
                    assert_eq!(lost, 2);
                    assert!(chain(&error).contains("within 3s"), "{}", chain(&error));
                }
            }
            drop(server.await.unwrap());
        }
    }))
    .await;
}

/// A man in the middle cannot make a reply seem protected by sending it behind the offer.
#[tokio::test]
async fn data_behind_the_offer() {
    timed(async {
        let authority = Authority::new();
        let reply = words(&[LAST | 24, 1, 1, 0, 0, 0, 0]);
        for (policy, data) in POLICIES.into_iter().flat_map(|policy| [(policy, reply.clone()), (policy, vec![22])]) {
            let config = server_config(&authority, ALL_VERSIONS);
            let scripted = scripted(|mut stream, offer| async move {
                stream.write_all(&[offer, data].concat()).await.unwrap();
                // The client does not go on without the data.
                assert!(TlsAcceptor::from(Arc::new(config)).accept(stream).await.is_err());
            });
            let (url, server) = scripted.await;
            let error = chain(&channel(authority.client().policy(policy)).connect(&url).await.unwrap_err());
            assert!(error.contains("unprotected data"), "{policy}: {error}");
            server.await.unwrap();
        }
    })
    .await;
}

/// Data between the probe and the handshake gets no response (RFC 9289 §5.1.1).
#[tokio::test]
async fn data_behind_the_probe() {
    timed(async {
        let authority = Authority::new();
        for policy in POLICIES {
            let running = serve(authority.server().policy(policy)).await;
            // Calls, another probe, and the beginning of a handshake that comes too early.
            for data in [null_call(0), null_call(7), vec![22]] {
                let mut stream = TcpStream::connect(running.addr).await.unwrap();
                stream.write_all(&[null_call(7), data].concat()).await.unwrap();
                assert_eq!(rest(stream).await, b"", "{policy}");
            }
            for data in [null_call(0), null_call(7)] {
                let mut stream = TcpStream::connect(running.addr).await.unwrap();
                stream.write_all(&null_call(7)).await.unwrap();
                stream.read_exact(&mut vec![0; offer().len()]).await.unwrap();
                stream.write_all(&data).await.unwrap();
                assert_eq!(rest(stream).await, b"", "{policy}");
            }
            eventually(|| running.handle.stats().setup_failed == 5).await;
            still_serves(&running, &authority).await;
        }
    })
    .await;
}

/// A client does not start TLS if the response to its probe does not offer TLS: a reply whose offer a man in the middle
/// has removed, a denial, or a message that is not the reply.
#[tokio::test]
async fn stripped_offers() {
    timed(async {
        let authority = Authority::new();
        let with = |flavor, token: &[u8]| {
            let padding = vec![0; token.len().next_multiple_of(4) - token.len()];
            let head = words(&[1, 0, flavor, token.len() as u32]);
            (0, [&head[..], token, &padding, &words(&[0])].concat(), "success without an offer")
        };
        let cases = [
            with(0, b""),
            with(7, b"STARTTLS"),
            with(6, b"STARTTLS"),
            with(0, b"STARTTL"),
            with(0, b"STARTTLS2"),
            with(0, b"starttls"),
            (0, words(&[1, 1, 1, 1]), "AUTH_BADCRED"),
            (0, words(&[1, 0, 0, 0, 1]), "PROG_UNAVAIL"),
            (0, words(&[0, 2, 1]), "malformed"),
            (0, words(&[1, 0, 0, 0, 0, 7]), "does not match"),
            // The offer to another call.
            (1, offer()[8..].to_vec(), "does not match"),
        ];
        let cases = POLICIES.into_iter().flat_map(|policy| cases.iter().map(move |case| (policy, case.clone())));
        for (policy, (flip, body, reason)) in cases {
            let scripted = scripted(move |mut stream, mut offer| async move {
                let marker = words(&[LAST | (body.len() as u32 + 4)]);
                offer[7] ^= flip;
                stream.write_all(&[&marker[..], &offer[4..8], &body[..]].concat()).await.unwrap();
                assert_eq!(rest(stream).await, b"", "the client sends nothing more");
            });
            let (url, server) = scripted.await;
            let is_reply = !["malformed", "does not match"].contains(&reason);
            match channel(authority.client().policy(policy)).connect(&url).await {
                Ok(channel) => {
                    assert!(is_reply && policy == TlsPolicy::Opportunistic && channel.info().tls.is_none(), "{reason}");
                    channel.close().await;
                }
                Err(error) => {
                    let error = chain(&error);
                    assert!(!is_reply || policy == TlsPolicy::Required, "{reason}: {error}");
                    assert!(error.contains(reason), "{error}");
                }
            }
            server.await.unwrap();
        }
    })
    .await;
}

/// The server limits the time and the number of handshakes in progress. Further handshakes wait.
#[tokio::test]
async fn handshakes_that_never_finish() {
    timed(in_step(async {
        let authority = Authority::new();
        let limit = Duration::from_millis(700);
        let running = serve(authority.server().handshake_timeout(limit).max_handshakes(1)).await;
        let silent = TcpStream::connect(running.addr).await.unwrap();
        let mut probing = TcpStream::connect(running.addr).await.unwrap();
        probing.write_all(&null_call(7)).await.unwrap();
        // Occupies the only place.
        let mut stalled = TcpStream::connect(running.addr).await.unwrap();
        stalled.write_all(&null_call(7)).await.unwrap();
        stalled.read_exact(&mut vec![0; offer().len()]).await.unwrap();
        stalled.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        tokio::time::sleep(limit / 2).await;
        still_serves(&running, &authority).await;
        eventually(|| running.handle.stats().setup_failed == 3).await;
        assert_eq!(rest(silent).await, b"");
        assert_eq!(rest(probing).await, offer());
    }))
    .await;
}

/// Stalled handshakes of one host do not delay the handshakes of another host.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn stalled_handshakes_of_another_host() {
    timed(in_step(async {
        let authority = Authority::new();
        let running = serve(authority.server().max_handshakes(2).max_handshakes_per_address(1)).await;
        let mut stalled = Vec::new();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(running.addr).await.unwrap();
            stream.write_all(&null_call(7)).await.unwrap();
            stream.read_exact(&mut vec![0; offer().len()]).await.unwrap();
            stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
            stalled.push(stream);
        }
        // The stalled handshakes have ten seconds.
        let url = format!("tcp://{}?local=127.0.0.2", running.addr);
        let channel = channel(authority.client().handshake_timeout(Duration::from_secs(5)));
        call::<Null>(&channel.connect(&url).await.unwrap(), &()).await.unwrap();
        assert_eq!(running.handle.stats().setup_failed, 0, "the others still wait");
    }))
    .await;
}

/// If TLS is not required, a client without TLS may make its first call after the handshake timeout.
#[tokio::test]
async fn late_first_calls() {
    timed(in_step(async {
        let authority = Authority::new();
        let limit = Duration::from_millis(100);
        let tls = authority.server().policy(TlsPolicy::Opportunistic).handshake_timeout(limit);
        let running = serve(tls).await;
        let channel = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
        tokio::time::sleep(limit * 3).await;
        call::<Null>(&channel, &()).await.unwrap();
    }))
    .await;
}

#[tokio::test]
async fn configurations_that_cannot_work() {
    timed(async {
        let authority = Authority::new();
        let missing = authority.path("missing.pem");
        let error = TlsClientConfig::builder().ca(&missing).build().unwrap_err();
        assert!(matches!(error, TlsConfigError::Read { .. }) && chain(&error).contains("missing.pem"), "{error:?}");
        assert!(matches!(TlsClientConfig::builder().build().unwrap_err(), TlsConfigError::NoCa));
        assert!(matches!(TlsServerConfig::builder().build().unwrap_err(), TlsConfigError::NoServerCertificate));
        let (a, b) = (authority.issue("a", &["a.example"]), authority.issue("b", &["b.example"]));
        // Neither does one setting stand for the other.
        let client = TlsClientConfig::builder().certificate(&a.certificate, &a.key);
        assert!(matches!(client.build().unwrap_err(), TlsConfigError::NoCa));
        let server = TlsServerConfig::builder().client_ca(authority.ca());
        assert!(matches!(server.build().unwrap_err(), TlsConfigError::NoServerCertificate));
        let error = TlsServerConfig::builder().certificate(&a.certificate, &b.key).build().unwrap_err();
        assert!(matches!(error, TlsConfigError::Rejected { .. }), "{error:?}");
        let error = Server::builder().listen("tcp://127.0.0.1:0?tls=required").bind().await.unwrap_err().to_string();
        assert!(error.contains("ServerBuilder::tls"), "{error}");
        let error = Channel::connect("tcp://127.0.0.1:1?tls=required").await.unwrap_err();
        assert!(matches!(error, ConnectError::NoTlsConfig { .. }), "{error:?}");
        let error = channel(authority.client()).connect("iwarp://127.0.0.1:1").await.unwrap_err();
        assert!(matches!(error, ConnectError::NoTlsTransport { .. }), "{error:?}");
        let secret = std::fs::read_to_string(&a.key).unwrap();
        let debug =
            format!("{:?} {:?}", authority.server().build().unwrap(), authority.client_with(&a).build().unwrap());
        assert!(debug.contains("server.key") && !secret.lines().any(|line| debug.contains(line)), "{debug}");
    })
    .await;
}
