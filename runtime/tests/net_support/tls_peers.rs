//! Peers that speak RPC-with-TLS word by word, in place of a client or a server of this crate.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{future::Future, net::SocketAddr, sync::Arc};

use rpcrdma::{
    client::{Channel, ChannelBuilder, Reconnect},
    server::Server,
    tls::{
        TlsClientBuilder, TlsPolicy, TlsServerBuilder,
        rustls::{
            ALL_VERSIONS, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
            pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        },
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use super::{
    net_support::{Null, PROGRAM, Running, TestService, Transport, VERSION, call},
    tls_support::{Authority, Issued},
};

/// The policies that allow TLS.
pub const POLICIES: [TlsPolicy; 2] = [TlsPolicy::Required, TlsPolicy::Opportunistic];

pub async fn serve(tls: TlsServerBuilder) -> Running {
    Transport::Tcp.serve(Server::builder().service(TestService::default()).tls(tls.build().unwrap())).await
}

pub fn channel(tls: TlsClientBuilder) -> ChannelBuilder {
    Channel::builder().tls(tls.build().unwrap()).reconnect(Reconnect::Never)
}

/// Checks that the server serves other clients after a refusal.
pub async fn still_serves(running: &Running, authority: &Authority) {
    call::<Null>(&running.connect(channel(authority.client())).await, &()).await.unwrap();
}

pub const LAST: u32 = 1 << 31;

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns the record of a NULL call with a credential of flavor `flavor`.
pub fn null_call(flavor: u32) -> Vec<u8> {
    words(&[LAST | 40, 9, 0, 2, PROGRAM, VERSION, 0, flavor, 0, 0, 0])
}

/// Returns the reply that offers TLS.
pub fn offer() -> Vec<u8> {
    [&words(&[LAST | 32, 9, 1, 0, 0, 8])[..], b"STARTTLS", &words(&[0])].concat()
}

/// Returns a client configuration with the application protocols `alpn` and the TLS versions `versions`.
pub fn client_config(
    authority: &Authority,
    alpn: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_protocol_versions(versions);
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// Sends the probe and does the handshake with the application protocols `alpn`.
pub async fn handshake(
    addr: SocketAddr,
    authority: &Authority,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    handshake_with(addr, client_config(authority, alpn, ALL_VERSIONS)).await
}

/// Sends the probe and does the handshake with the configuration `config`.
pub async fn handshake_with(addr: SocketAddr, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(&null_call(7)).await?;
    let mut reply = vec![0; offer().len()];
    stream.read_exact(&mut reply).await?;
    assert_eq!(reply, offer());
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await
}

/// Serves one connection with a script, after the probe has been received. `script` gets the reply that offers TLS.
/// Returns the URL and the task, which fails if the script does.
pub async fn scripted<F: Future<Output = ()> + Send + 'static>(
    script: impl FnOnce(TcpStream, Vec<u8>) -> F + Send + 'static,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut probe = [0; 44];
        stream.read_exact(&mut probe).await.unwrap();
        assert_eq!(&probe[8..], &words(&[0, 2, 100_000, 2, 0, 7, 0, 0, 0])[..]);
        let mut offer = offer();
        offer[4..8].copy_from_slice(&probe[4..8]);
        script(stream, offer).await;
    });
    (format!("tcp://{addr}"), task)
}

/// Serves one connection with the TLS library until the client sends data or closes the connection. Returns the URL and
/// the task.
pub async fn scripted_session(config: ServerConfig) -> (String, JoinHandle<()>) {
    scripted(|mut stream, offer| async move {
        stream.write_all(&offer).await.unwrap();
        if let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
            let _ = stream.read(&mut [0]).await;
        }
    })
    .await
}

/// Returns a server configuration with the TLS versions `versions`, without ALPN.
pub fn server_config(authority: &Authority, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    let Issued { certificate, key } = authority.issue("scripted", &["127.0.0.1", "localhost"]);
    let certificate = CertificateDer::from_pem_file(certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let builder = ServerConfig::builder_with_protocol_versions(versions).with_no_client_auth();
    builder.with_single_cert(vec![certificate], key).unwrap()
}
