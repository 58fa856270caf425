//! Arbitrary data from a client to a server with TLS: from the start of the connection, or after a probe and its reply.
#![no_main]

use std::sync::LazyLock;

use rpcrdma::tls::{
    TlsServerConfig,
    rustls::{ServerConfig, pki_types::PrivateKeyDer, version::TLS13},
};
use tokio::runtime::{Builder, Runtime};

/// The runtime whose clock measures the time limits, and the configuration of a server with a self-signed certificate.
static SERVER: LazyLock<(Runtime, TlsServerConfig)> = LazyLock::new(|| {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_protocol_versions(&[&TLS13]).with_no_client_auth();
    let mut config = config.with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"sunrpc".to_vec()];
    let config = TlsServerConfig::builder().rustls(config.into()).build().unwrap();
    (Builder::new_current_thread().enable_time().build().unwrap(), config)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (runtime, config) = &*SERVER;
    let _clock = runtime.enter();
    rpcrdma::fuzzing::tls_accept(config, bytes);
});
