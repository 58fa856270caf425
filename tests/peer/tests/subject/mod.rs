//! This project's server and client as implementations under test.

use std::time::Duration;

use rpcrdma::server::Server;
use rpcrdma_peer::{
    case::Limits,
    server::ServerUnderTest,
    transport::{Fabric, Target},
};

/// Time limits that a slow machine does not exceed.
pub(crate) fn limits() -> Limits {
    Limits { patience: Duration::from_secs(30), settle: Duration::from_millis(20) }
}

/// Starts a server without any service.
pub(crate) async fn server() -> ServerUnderTest {
    let server = Server::builder().listen("iwarp://127.0.0.1:0").bind().await.unwrap();
    let target = Target { fabric: Fabric::Iwarp, addr: server.local_addrs()[0] };
    tokio::spawn(server.serve());
    ServerUnderTest { target, program: (100_003, 3), limits: limits() }
}
