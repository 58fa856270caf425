//! The texts of the errors for several ways in which a service can be unreachable. Each text says what failed and what
//! to do.
#![cfg(feature = "tls")]
#![allow(missing_docs)]

mod net_support;
#[path = "net_support/tls.rs"]
mod tls_support;

use std::{error::Error, net::SocketAddr, time::Duration};

use net_support::*;
use rpcrdma::{
    CallError, CallOptions, Channel, Server,
    client::{ChannelBuilder, Reconnect},
    config::ConnectionConfig,
};
use tls_support::Authority;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Returns the messages of an error and its causes, with `SERVER` in place of addresses on this host.
fn text(error: &(dyn Error + 'static)) -> String {
    let mut messages = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        messages.push(error.to_string());
        cause = error.source();
    }
    let text = messages.join(": ");
    let mut parts = text.split("127.0.0.1:");
    let mut shown = parts.next().unwrap().to_owned();
    for part in parts {
        shown.push_str("SERVER");
        shown.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    shown
}

fn builder() -> ChannelBuilder {
    Channel::builder().reconnect(Reconnect::Never)
}

/// Makes a call with a new channel, and returns the text of its error.
async fn fails(builder: ChannelBuilder, url: &str, options: CallOptions) -> String {
    let channel = builder.connect_lazy(url).unwrap();
    text(&channel.call::<Null>(&(), options).await.unwrap_err())
}

/// Starts a server that handles each connection with `serve`.
async fn scripted<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    addr
}

async fn silent() -> SocketAddr {
    scripted(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await
}

fn soon() -> CallOptions {
    CallOptions::new().timeout(Duration::from_secs(2))
}

fn check(name: &str, got: String, wanted: &str) -> bool {
    // What follows depends on the system, or on which side closes first.
    let same = match wanted.strip_suffix("...") {
        Some(start) => got.starts_with(start),
        None => got == wanted,
    };
    if same {
        return true;
    }
    eprintln!("{name}:\n  got    {got}\n  wanted {wanted}");
    false
}

#[tokio::test]
async fn texts() {
    timed(async {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let iwarp = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
    let tcp = Transport::Tcp.serve(Server::builder().service(TestService::default())).await;
    let web = scripted(|mut stream| async move {
        // Unread data would make the system reset the connection.
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let closing = scripted(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
    })
    .await;
    let quiet = silent().await;
    let authority = Authority::new();
    let stranger = Authority::new();
    let with_tls = Server::builder()
        .service(TestService::default())
        .tls(authority.server().client_ca(authority.ca()).build().unwrap());
    let protected = Transport::Tcp.serve(with_tls).await;
    let tls = |authority: &Authority| builder().tls(authority.client().build().unwrap());
    let probing = ConnectionConfig::new().keepalive_timeout(Duration::from_millis(50));
    let mut all = true;
    for (name, got, wanted) in [
        (
            "nobody listens",
            fails(builder(), &format!("tcp://{free}"), CallOptions::new()).await,
            "TEST_V2.Null: cannot connect to SERVER: start the server, or check the port: Connection refused (os error 111)",
        ),
        (
            "the host is unknown",
            fails(builder(), "tcp://no-such-host.invalid:1", CallOptions::new()).await,
            "TEST_V2.Null: cannot resolve no-such-host.invalid: check the name: ...",
        ),
        (
            "the host is silent",
            in_step(fails(builder(), &format!("iwarp://{quiet}"), soon())).await,
            "TEST_V2.Null: the deadline passed during the attempt to connect: check the address, or set a longer deadline",
        ),
        (
            "a silent server",
            in_step(fails(builder().connection(probing), &format!("tcp://{quiet}"), CallOptions::new())).await,
            "TEST_V2.Null: connection closed, the call was sent and may have been executed, retry only an idempotent procedure: the peer is silent: nothing arrived for 50ms after a probe",
        ),
        (
            "a slow server",
            in_step(fails(builder(), &format!("tcp://{quiet}"), soon())).await,
            "TEST_V2.Null: deadline passed, the call was sent and may have been executed, retry only an idempotent procedure",
        ),
        (
            "TCP to iWARP",
            fails(builder(), &format!("tcp://{}", iwarp.addr), CallOptions::new()).await,
            "TEST_V2.Null: SERVER closed the connection before its first reply: check the port, the scheme and what the server demands, and note that the call may have been executed: ...",
        ),
        (
            "iWARP to TCP",
            fails(builder(), &format!("iwarp://{}", tcp.addr), CallOptions::new()).await,
            "TEST_V2.Null: cannot connect to SERVER: check the scheme and the port: peer does not speak iWARP (MPA over TCP): ...",
        ),
        (
            "iWARP to a web server",
            fails(builder(), &format!("iwarp://{web}"), CallOptions::new()).await,
            "TEST_V2.Null: cannot connect to SERVER: check the scheme and the port: peer does not speak iWARP (MPA over TCP): it sent \"HTTP/1.1 400 Bad\" instead of the MPA key \"MPA ID Rep Frame\"",
        ),
        (
            "TCP to a web server",
            fails(builder(), &format!("tcp://{web}"), CallOptions::new()).await,
            "TEST_V2.Null: connection closed, the call was sent and may have been executed, retry only an idempotent procedure: the peer announced an RPC record of at least 1213486160 bytes, 68157440 are allowed; the fragment's marker is the text `HTTP`",
        ),
        (
            "a server that closes",
            fails(builder(), &format!("tcp://{closing}"), CallOptions::new()).await,
            "TEST_V2.Null: SERVER closed the connection before its first reply: check the port, the scheme and what the server demands, and note that the call may have been executed: closed by the peer",
        ),
        (
            "plain to TLS",
            fails(builder(), &format!("tcp://{}", protected.addr), CallOptions::new()).await,
            "TEST_V2.Null: the server returned an error: the server rejected the caller (AUTH_ERROR): stronger authentication is required, such as TLS or Kerberos (AUTH_TOOWEAK)",
        ),
        (
            "TLS to plain",
            fails(tls(&authority), &format!("tcp://{}", tcp.addr), CallOptions::new()).await,
            "TEST_V2.Null: cannot connect to SERVER: TLS is required, but the server does not offer it, set it up there: its reply to the AUTH_TLS probe is `the server rejected the caller (AUTH_ERROR): bad credential (AUTH_BADCRED)`",
        ),
        (
            "an unknown authority",
            fails(tls(&stranger), &format!("tcp://{}", protected.addr), CallOptions::new()).await,
            "TEST_V2.Null: cannot connect to SERVER: the TLS handshake failed: check the certificates and authorities of both sides: invalid peer certificate: UnknownIssuer",
        ),
        (
            "no client certificate",
            fails(tls(&authority), &format!("tcp://{}", protected.addr), CallOptions::new()).await,
            "TEST_V2.Null: SERVER closed the connection before its first reply: check the port, the scheme and what the server demands, and note that the call may have been executed: ...",
        ),
    ] {
        all &= check(name, got, wanted);
    }
    assert!(all, "a text has changed: see above");
    let missing = {
        let channel = Channel::connect(&format!("tcp://{}", tcp.addr)).await.unwrap();
        channel.call_null(7, 1, CallOptions::new()).await.unwrap_err()
    };
    assert!(matches!(missing, CallError::Rpc { .. }));
}).await;
}
