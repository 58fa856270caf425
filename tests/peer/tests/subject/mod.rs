//! This project's server and client as implementations under test.

mod nfs;

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{
    client::{Channel, ChannelBuilder, ConnectError, Reconnect},
    config::ConnectionConfig,
    provider::{
        Listener,
        iwarp::{IwarpConfig, IwarpListener},
    },
    server::{Server, ServerBuilder},
};
use rpcrdma_peer::{
    case::Limits,
    client::{ClientUnderTest, Start},
    server::{NfsFile, ServerUnderTest},
    transport::{Fabric, Target},
};
use rpcrdma_specs::nfs3::{
    NfsFh3, Read3args, Read3res, StableHow, Write3args, Write3res,
    nfs_v3::{NfsV3Client, NfsV3Server},
};

use self::nfs::OneFile;

/// Call timeout of the client, which no test reaches.
const LONG: Duration = Duration::from_secs(60);

/// Returns the file that the server under test serves.
fn file() -> NfsFile {
    NfsFile { handle: "file".into() }
}

/// Returns time limits that a slow machine does not exceed.
pub(crate) fn limits() -> Limits {
    Limits { patience: Duration::from_secs(30), settle: Duration::from_millis(20) }
}

/// Starts an NFS 3 server on this project's iWARP provider.
pub(crate) async fn server() -> ServerUnderTest {
    server_over(IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.unwrap()).await
}

/// Starts an NFS 3 server on a listener of an iWARP provider.
pub(crate) async fn server_over(listener: impl Listener) -> ServerUnderTest {
    serve(builder().listen_with(listener)).await
}

fn builder() -> ServerBuilder {
    Server::builder()
        .connection(ConnectionConfig::new().max_segments(100))
        .service(NfsV3Server::new(OneFile::default()))
}

async fn serve(builder: ServerBuilder) -> ServerUnderTest {
    let server = builder.bind().await.unwrap();
    let target = Target { fabric: Fabric::Iwarp, addr: server.local_addrs()[0] };
    tokio::spawn(server.serve());
    ServerUnderTest { target, program: (100_003, 3), nfs: Some(file()), limits: limits() }
}

/// Returns a client under test that `start` runs.
pub(crate) fn client_of(start: Start) -> ClientUnderTest {
    let listen = Target { fabric: Fabric::Iwarp, addr: "127.0.0.1:0".parse().unwrap() };
    ClientUnderTest { listen, start: Some(start), limits: limits() }
}

/// Returns a builder for the client's channel, which never reconnects.
pub(crate) fn channel() -> ChannelBuilder {
    Channel::builder().reconnect(Reconnect::Never).call_timeout(LONG)
}

/// Makes four concurrent NULL calls, two concurrent READ calls with Write chunks, a WRITE call with a Read chunk, and a
/// last NULL call.
///
/// # Errors
/// Returns an error if the connection or a call fails, or if a result is wrong.
pub(crate) async fn use_file(channel: Result<Channel, ConnectError>) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = NfsV3Client::new(channel?);
    let nulls = (nfs.nfsproc3_null(), nfs.nfsproc3_null(), nfs.nfsproc3_null(), nfs.nfsproc3_null());
    tokio::try_join!(nulls.0, nulls.1, nulls.2, nulls.3)?;
    let file = || NfsFh3 { data: "file".into() };
    let read = Read3args { file: file(), offset: 100, count: 9_999 };
    let (first, second) = tokio::try_join!(nfs.nfsproc3_read(&read), nfs.nfsproc3_read(&read))?;
    for result in [first, second] {
        let Read3res::Ok(result) = result else { return Err("READ failed".into()) };
        let expected: Vec<_> = (100..100 + 9_999_u32).map(|at| (at % 251) as u8).collect();
        if result.data != expected {
            return Err("READ returned other data".into());
        }
    }
    let data = Bytes::from(vec![7; 9_999]);
    let write = Write3args { file: file(), offset: 0, count: 9_999, stable: StableHow::FileSync, data };
    match nfs.nfsproc3_write(&write).await? {
        Write3res::Ok(result) if result.count == 9_999 => {}
        _ => return Err("WRITE failed".into()),
    }
    nfs.nfsproc3_null().await?;
    Ok(())
}
