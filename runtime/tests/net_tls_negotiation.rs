//! RPC-with-TLS on `tcp://` (RFC 9289 §4.2, §5): the negotiation of application protocols and versions, certificates,
//! channel bindings, and closure alerts.
#![allow(missing_docs)]

mod net_support;
#[path = "net_support/tls_peers.rs"]
mod tls_peers;
#[path = "net_support/tls.rs"]
mod tls_support;

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use net_support::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rpcrdma::{
    security::{Authentication, Authenticator, ReceivedCall, StandardAuthenticator},
    server::Server,
    tls::{
        TlsClientBuilder, TlsClientConfig, TlsPolicy, TlsServerConfig,
        rustls::{ALL_VERSIONS, server::Acceptor, version::TLS12},
    },
};
use tls_peers::{
    POLICIES, channel, client_config, handshake, handshake_with, null_call, scripted, scripted_session, serve,
    server_config, still_serves,
};
use tls_support::{Authority, Issued};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor, client::TlsStream};

/// Connects and makes a call. Returns the messages of the error if the connection or the call fails.
async fn attempt(running: &Running, tls: TlsClientBuilder) -> Result<(), String> {
    let channel = running.try_connect(channel(tls)).await.map_err(|error| chain(&error))?;
    call::<Null>(&channel, &()).await.map_err(|error| chain(&error))
}

/// An authenticator that stores the channel binding of the last call.
#[derive(Debug, Clone, Default)]
struct SeenBinding(Arc<Mutex<Option<[u8; 32]>>>);

impl Authenticator for SeenBinding {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        *self.0.lock().unwrap() = call.tls.map(|session| *session.channel_binding());
        StandardAuthenticator.authenticate(call)
    }
}

/// A server computes the channel binding `tls-exporter` as its peer does (RFC 9289 §4.2.1, RFC 9266 §2).
#[tokio::test]
async fn channel_bindings() {
    timed(async {
        let (authority, seen) = (Authority::new(), SeenBinding::default());
        let server = Server::builder().service(TestService::default()).authenticator(seen.clone());
        let running = Transport::Tcp.serve(server.tls(authority.server().build().unwrap())).await;
        let stream = session(&running, &authority).await;
        let session = stream.get_ref().1;
        let binding = session.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(b"")).unwrap();
        assert_eq!(*seen.0.lock().unwrap(), Some(binding));
    })
    .await;
}

/// Clients that offer no application protocol are served only if the server allows that. Clients that offer only other
/// protocols are refused (RFC 9289 §5).
#[tokio::test]
async fn clients_without_alpn() {
    timed(async {
        let authority = Authority::new();
        for (policy, allowed) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
            let running = serve(authority.server().policy(policy).allow_missing_alpn(allowed)).await;
            // The server accepts the handshake, and closes the connection if it must.
            let mut is_served = false;
            if let Ok(mut stream) = handshake(running.addr, &authority, &[]).await {
                let _ = stream.write_all(&null_call(0)).await;
                is_served = stream.read_exact(&mut [0; 28]).await.is_ok();
            }
            assert_eq!(is_served, allowed, "{policy}");
            // The server accepts no other protocol.
            let refused = u64::from(!allowed);
            eventually(|| running.handle.stats().setup_failed == refused).await;
            for (number, other) in (1..).zip([&b"h2"[..], b"sunrp", b"sunrpc2", b"SUNRPC"]) {
                assert!(handshake(running.addr, &authority, &[other]).await.is_err(), "{policy}, {allowed}: {other:?}");
                eventually(|| running.handle.stats().setup_failed == refused + number).await;
            }
            for offered in [[&b"h2"[..], b"sunrpc"], [b"sunrpc", b"h2"]] {
                let stream = handshake(running.addr, &authority, &offered).await.unwrap();
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"sunrpc"[..]));
            }
            still_serves(&running, &authority).await;
        }
    })
    .await;
}

/// A client offers the application protocol and no other one, even with a configuration of the TLS library (RFC 9289
/// §5).
#[tokio::test]
async fn offered_protocols() {
    timed(async {
        let authority = Authority::new();
        let with = |alpn: &[&[u8]]| client_config(&authority, alpn, ALL_VERSIONS).into();
        let own = TlsClientConfig::builder().rustls(with(&[b"h2", b"http/1.1"]));
        let none = TlsClientConfig::builder().rustls(with(&[]));
        for tls in [authority.client(), own, none] {
            let scripted = scripted(|mut stream, offer| async move {
                stream.write_all(&offer).await.unwrap();
                let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.unwrap();
                let offered: Vec<_> = hello.client_hello().alpn().unwrap().map(<[u8]>::to_vec).collect();
                assert_eq!(offered, [b"sunrpc"]);
            });
            let (url, server) = scripted.await;
            channel(tls).connect(&url).await.unwrap_err();
            server.await.unwrap();
        }
    })
    .await;
}

/// No version of TLS before 1.3 is negotiated, and a session of an earlier version is not used even if a configuration
/// of the TLS library allows it (RFC 9289 §5).
#[tokio::test]
async fn old_versions() {
    timed(async {
        let authority = Authority::new();
        let old = &[&TLS12][..];
        let all: Arc<_> = server_config(&authority, ALL_VERSIONS).into();
        for (policy, has_alpn) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
            let client = client_config(&authority, if has_alpn { &[b"sunrpc"] } else { &[] }, old);
            let running = serve(authority.server().policy(policy)).await;
            assert!(handshake_with(running.addr, client.clone()).await.is_err());
            eventually(|| running.handle.stats().setup_failed == 1).await;
            let own = TlsServerConfig::builder().rustls(Arc::clone(&all));
            let running = serve(own.policy(policy).allow_missing_alpn(true)).await;
            if let Ok(mut stream) = handshake_with(running.addr, client).await {
                let _ = stream.write_all(&null_call(0)).await;
                assert!(!matches!(stream.read(&mut [0; 64]).await, Ok(1..)), "{policy}");
            }
            eventually(|| running.handle.stats().setup_failed == 1).await;
        }

        let own = || TlsClientConfig::builder().rustls(client_config(&authority, &[], ALL_VERSIONS).into());
        let opportunistic = TlsPolicy::Opportunistic;
        for (tls, reason) in [
            (authority.client(), "handshake failed"),
            (authority.client().policy(opportunistic), "handshake failed"),
            (own(), "before 1.3"),
            (own().policy(opportunistic).allow_missing_alpn(true), "before 1.3"),
        ] {
            let mut config = server_config(&authority, old);
            config.alpn_protocols = vec![b"sunrpc".to_vec()];
            let (url, server) = scripted_session(config).await;
            let error = chain(&channel(tls).connect(&url).await.unwrap_err());
            assert!(error.contains(reason), "{error}");
            server.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn servers_without_alpn() {
    timed(async {
        let authority = Authority::new();
        for (policy, allowed) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
            let (url, server) = scripted_session(server_config(&authority, ALL_VERSIONS)).await;
            let tls = authority.client().policy(policy).allow_missing_alpn(allowed);
            match channel(tls).connect(&url).await {
                Ok(channel) => {
                    assert!(allowed, "{policy}");
                    drop(channel);
                }
                Err(error) => assert!(!allowed && chain(&error).contains("sunrpc"), "{policy}: {}", chain(&error)),
            }
            server.await.unwrap();
        }
    })
    .await;
}

/// A certificate is refused if any of its DNS names has a wildcard (RFC 9289 §5.2.1).
#[tokio::test]
async fn wildcards() {
    timed(async {
        let authority = Authority::new();
        let names = [
            &["*.example.com"][..],
            &["localhost", "*.example.com"],
            &["*.example.com", "localhost"],
            &["127.0.0.1", "localhost", "www.example.com", "*.example.com"],
        ];
        for (names, policy) in names.into_iter().flat_map(|names| POLICIES.map(|policy| (names, policy))) {
            let issued = authority.issue("wildcard", names);
            for anonymous in [false, true] {
                let server = authority.server().client_ca(authority.ca()).allow_anonymous_clients(anonymous);
                let running = serve(server.policy(policy)).await;
                attempt(&running, authority.client_with(&issued)).await.unwrap_err();
                eventually(|| running.handle.stats().setup_failed == 1).await;
            }
            let running = serve(TlsServerConfig::builder().certificate(&issued.certificate, &issued.key)).await;
            for expected in names.iter().map(|name| name.replace('*', "www")) {
                let tls = authority.client().policy(policy).server_name(expected);
                let error = attempt(&running, tls).await.unwrap_err();
                assert!(error.contains("wildcard"), "{names:?}: {error}");
            }
        }
    })
    .await;
}

/// One of the names in the subject alternative name has to match as a whole. Other names in the certificate do not
/// count (RFC 9289 §5.2.1).
#[tokio::test]
async fn names_of_servers() {
    timed(async {
        let authority = Authority::new();
        let Issued { certificate, key } =
            authority.issue("common.example", &["first.example", "second.example", "127.0.0.1", "192.0.2.1"]);
        let running = serve(TlsServerConfig::builder().certificate(certificate, key)).await;
        for name in ["first.example", "second.example", "SECOND.example", "127.0.0.1", "192.0.2.1"] {
            attempt(&running, authority.client().server_name(name)).await.unwrap();
        }
        // The name of the configuration counts, not the address of the connection.
        for name in [
            "third.example",
            "example",
            "www.first.example",
            "econd.example",
            "common.example",
            "127.0.0.2",
            "192.0.2.11",
            "::ffff:127.0.0.1",
        ] {
            for policy in POLICIES {
                let tls = authority.client().policy(policy).server_name(name);
                let error = attempt(&running, tls).await.unwrap_err();
                assert!(error.contains("not valid for name"), "{name}: {error}");
            }
        }
        // Without a name, the address of the URL counts.
        attempt(&running, authority.client()).await.unwrap();
        let Issued { certificate, key } = authority.issue("other", &["localhost", "127.0.0.2"]);
        let running = serve(TlsServerConfig::builder().certificate(certificate, key)).await;
        let error = attempt(&running, authority.client()).await.unwrap_err();
        assert!(error.contains("not valid for name"), "{error}");
    })
    .await;
}

/// A server with authorities for clients refuses invalid certificates with each policy. It refuses clients without a
/// certificate unless it allows anonymous clients (RFC 9289 §4.2).
#[tokio::test]
async fn clients_of_each_policy() {
    timed(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let clients = [
            None,
            Some(authority.issue("client", &["client.example"])),
            Some(authority.issue_expired("expired", &["client.example"])),
            Some(other.issue("client", &["client.example"])),
        ];
        for (policy, anonymous) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
            let server = authority.server().policy(policy).client_ca(authority.ca());
            let running = serve(server.allow_anonymous_clients(anonymous)).await;
            for (client, is_valid) in clients.iter().zip([anonymous, true, false, false]) {
                let tls = client
                    .iter()
                    .fold(authority.client(), |tls, files| tls.certificate(&files.certificate, &files.key));
                let attempted = attempt(&running, tls).await;
                assert_eq!(attempted.is_ok(), is_valid, "{policy}, {anonymous}, {client:?}: {attempted:?}");
            }
        }
    })
    .await;
}

/// Writes a certificate that `issuer` signs, and its key. The certificates `behind` follow the certificate in its file.
fn issue_by(authority: &Authority, issuer: &CertifiedIssuer<'static, KeyPair>, behind: &[String]) -> Issued {
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap().pem();
    let issued = Issued { certificate: authority.path("chain.pem"), key: authority.path("chain.key") };
    fs::write(&issued.certificate, [&[certificate], behind].concat().concat()).unwrap();
    fs::write(&issued.key, key.serialize_pem()).unwrap();
    issued
}

/// Both sides verify certification paths with an intermediate authority (RFC 9289 §4.2, §5.2.1).
#[tokio::test]
async fn certification_paths() {
    timed(async {
        let authority = Authority::new();
        let intermediate = |is_ca| {
            let mut params = CertificateParams::new(vec!["between.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, "between");
            (params.is_ca, params.key_usages) = (is_ca, vec![KeyUsagePurpose::KeyCertSign]);
            CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), authority.issuer()).unwrap()
        };
        let between = intermediate(IsCa::Ca(BasicConstraints::Unconstrained));
        let no_authority = intermediate(IsCa::ExplicitNoCa);
        for (issuer, behind, is_valid) in [
            (&between, vec![between.pem()], true),
            (&between, vec![], false),
            (&no_authority, vec![no_authority.pem()], false),
        ] {
            let Issued { certificate, key } = issue_by(&authority, issuer, &behind);
            let running = serve(TlsServerConfig::builder().certificate(&certificate, &key)).await;
            let as_server = attempt(&running, authority.client()).await;
            assert_eq!(as_server.is_ok(), is_valid, "{as_server:?}");
            if is_valid {
                // The identity is that of the server, not of an authority.
                let info = running.connect(channel(authority.client())).await.info();
                let session = info.tls.as_deref().unwrap();
                assert_eq!(
                    (session.certificates().len(), &*session.identity().unwrap().dns_names[0]),
                    (2, "localhost")
                );
            }
            let running = serve(authority.server().client_ca(authority.ca())).await;
            let as_client = attempt(&running, authority.client().certificate(certificate, key)).await;
            assert_eq!(
                (as_client.is_ok(), running.handle.stats().accepted),
                (is_valid, is_valid.into()),
                "{as_client:?}"
            );
        }
    })
    .await;
}

/// Client and server trust each certificate in a file of authorities, and no other one.
#[tokio::test]
async fn several_authorities() {
    timed(async {
        let authorities = [(); 3].map(|()| Authority::new());
        let pem = |authority: &Authority| fs::read_to_string(authority.ca()).unwrap();
        let file = authorities[0].path("authorities.pem");
        fs::write(&file, authorities[..2].iter().map(pem).collect::<String>()).unwrap();
        for (authority, is_valid) in authorities.iter().zip([true, true, false]) {
            let running = serve(authority.server()).await;
            let as_server = attempt(&running, TlsClientConfig::builder().ca(&file)).await;
            assert_eq!(as_server.is_ok(), is_valid, "{as_server:?}");
            let running = serve(authority.server().client_ca(&file)).await;
            let issued = authority.issue("client", &["client.example"]);
            let as_client = attempt(&running, authority.client_with(&issued)).await;
            assert_eq!(as_client.is_ok(), is_valid, "{as_client:?}");
        }
    })
    .await;
}

/// Connects over TLS, and makes a first call.
async fn session(running: &Running, authority: &Authority) -> TlsStream<TcpStream> {
    let mut stream = handshake(running.addr, authority, &[b"sunrpc"]).await.unwrap();
    stream.write_all(&null_call(0)).await.unwrap();
    stream.read_exact(&mut [0; 28]).await.unwrap();
    stream
}

/// The peer that closes a connection ends the session with a closure alert (RFC 9289 §5.1.1). Without a closure alert,
/// the end of the stream is an error.
#[tokio::test]
async fn closure_alerts() {
    timed(async {
        let authority = Authority::new();
        let running = serve(authority.server()).await;
        let mut stream = session(&running, &authority).await;
        running.handle.shutdown_within(Duration::ZERO);
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);

        let config = Arc::new(server_config(&authority, ALL_VERSIONS));
        let scripted = scripted(|mut stream, offer| async move {
            stream.write_all(&offer).await.unwrap();
            let mut stream = TlsAcceptor::from(config).accept(stream).await.unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        });
        let (url, server) = scripted.await;
        channel(authority.client().allow_missing_alpn(true)).connect(&url).await.unwrap().close().await;
        server.await.unwrap();
    })
    .await;
}

/// A peer that receives a closure alert also ends its own side of the session with an alert (RFC 8446 §6.1).
#[tokio::test]
async fn closure_alerts_are_answered() {
    timed(async {
        let authority = Authority::new();
        let running = serve(authority.server()).await;
        let mut stream = session(&running, &authority).await;
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);

        let config = Arc::new(server_config(&authority, ALL_VERSIONS));
        let scripted = scripted(|mut stream, offer| async move {
            stream.write_all(&offer).await.unwrap();
            let mut stream = TlsAcceptor::from(config).accept(stream).await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        });
        let (url, server) = scripted.await;
        let client = channel(authority.client().allow_missing_alpn(true)).connect(&url).await.unwrap();
        server.await.unwrap();
        drop(client);
    })
    .await;
}
