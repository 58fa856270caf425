//! This project's server and client as implementations under test.

mod nfs;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rpcrdma::{
    client::{Channel, Reconnect},
    engine::Versions,
    provider::Listener,
    server::{Server, ServerBuilder},
};
use rpcrdma_peer::{
    case::Limits,
    client::{ClientUnderTest, Start},
    server::{NfsFile, ServerUnderTest},
    transport::{Fabric, Target},
};
use rpcrdma_specs::nfs3::nfs_v3::{NfsV3Client, NfsV3Server};

use self::nfs::OneFile;

/// A time limit of the client that no test reaches.
const LONG: Duration = Duration::from_secs(60);

/// Returns the file of the server.
fn file() -> NfsFile {
    NfsFile { handle: "file".into() }
}

/// Time limits that a slow machine does not exceed.
pub(crate) fn limits() -> Limits {
    Limits { patience: Duration::from_secs(30), settle: Duration::from_millis(20) }
}

/// Starts a server of NFS 3.
pub(crate) async fn server() -> ServerUnderTest {
    serve(builder().listen("iwarp://127.0.0.1:0")).await
}

/// Starts a server of NFS 3 over another provider.
pub(crate) async fn server_over(listener: impl Listener) -> ServerUnderTest {
    serve(builder().listen_with(listener)).await
}

fn builder() -> ServerBuilder {
    Server::builder().service(NfsV3Server::new(OneFile::default()))
}

async fn serve(builder: ServerBuilder) -> ServerUnderTest {
    let server = builder.bind().await.unwrap();
    let target = Target { fabric: Fabric::Iwarp, addr: server.local_addrs()[0] };
    tokio::spawn(server.serve());
    ServerUnderTest { target, program: (100_003, 3), nfs: Some(file()), limits: limits() }
}

/// Returns a client that makes one NULL call.
pub(crate) fn client() -> ClientUnderTest {
    let listen = Target { fabric: Fabric::Iwarp, addr: "127.0.0.1:0".parse().unwrap() };
    let start: Start = Arc::new(|addr| Box::pin(async move { null(addr).await.is_ok() }));
    ClientUnderTest { listen, start: Some(start), limits: limits() }
}

async fn null(addr: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    let builder = Channel::builder().versions(Versions::V1).reconnect(Reconnect::Never).call_timeout(LONG);
    let channel = builder.connect(&format!("iwarp://{addr}")).await?;
    NfsV3Client::new(channel).nfsproc3_null().await?;
    Ok(())
}
