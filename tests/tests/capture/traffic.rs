//! The captured traffic: blobstore's service, and a service for message formats that blobstore does not use.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use rpcrdma::{
    client::{Channel, ChannelBuilder},
    config::ConnectionConfig,
    engine::{ConnectionCounters, Versions},
    server::{Context, HandlerError, Server, ServerHandle},
};
use rpcrdma_examples::blobstore::{
    protocol::{
        BlobDigest, BlobName, FetchArgs, FetchRes, GetArgs, GetOk, GetRes, ListArgs, ListRes, PutArgs, StatRes,
        blobstore_v1::{BlobstoreV1Client, BlobstoreV1Server},
    },
    service::BlobService,
    store::{Store, StoreOptions},
};
use tempfile::TempDir;

pub(crate) mod long {
    //! Arguments and results that are not eligible and too long for a Send.
    rpcrdma::xdr! {
        /* Stays in the payload stream. */
        typedef opaque text<65536>;

        program LONG {
            version LONG_V1 {
                /* Returns its argument. */
                @reply_max(7 + len(args)) text ECHO(text) = 1;
            } = 1;
        } = 0x20100C01;
    }
}
use long::{Text, long_v1};

struct Echo;

impl long_v1::LongV1 for Echo {
    async fn echo(&self, _cx: &Context, args: Text) -> Result<Text, HandlerError> {
        Ok(args)
    }
}

/// Length of a blob's data, in bytes. It is not a multiple of four, so that the data in the chunks of PUT and FETCH has
/// padding, which must not be on the wire.
pub(crate) const DATA: usize = 70_001;
/// Length of a blob's attachment, in bytes. It is not a multiple of four, so that every chunk has padding.
pub(crate) const ATTACHMENT: usize = 5_003;
/// Length of the text in Long messages, in bytes. The lengths of the resulting messages are not multiples of the
/// segment size.
pub(crate) const TEXT: usize = 20_000;
/// Maximum number of names that the client requests from LIST.
pub(crate) const LISTED: u32 = 200;

/// A running server.
pub(crate) struct Served {
    pub(crate) port: u16,
    pub(crate) handle: ServerHandle,
    task: tokio::task::JoinHandle<()>,
    _root: TempDir,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path(), StoreOptions::default()).unwrap();
        let server = Server::builder()
            .service(BlobstoreV1Server::new(BlobService::new(Arc::new(store))))
            .service(long_v1::LongV1Server::new(Echo))
            .listen("iwarp://127.0.0.1:0")
            .bind()
            .await
            .unwrap();
        let port = server.local_addrs()[0].port();
        let handle = server.handle();
        Self { port, handle, task: tokio::spawn(server.serve()), _root: root }
    }

    /// Shuts down and waits until all connections are closed.
    pub(crate) async fn end(self) {
        self.handle.shutdown();
        self.task.await.unwrap();
    }

    pub(crate) async fn connect(&self, builder: ChannelBuilder) -> Channel {
        builder.connect(&format!("iwarp://127.0.0.1:{}", self.port)).await.unwrap()
    }
}

/// Returns a channel configuration for version 1, with default values for everything else.
pub(crate) fn defaults() -> ChannelBuilder {
    // Wireshark cannot dissect version 2.
    Channel::builder().versions(Versions::V1)
}

/// Returns a channel configuration for version 1, with an inline threshold of 1 KiB and segments of at most 16 KiB.
pub(crate) fn segments() -> ChannelBuilder {
    let config = ConnectionConfig::new().max_segment_len(16_384).inline_size(1024);
    Channel::builder().connection(config).versions(Versions::V1)
}

/// Counters of a connection.
pub(crate) struct Account {
    /// The client's port.
    pub(crate) port: u16,
    pub(crate) client: ConnectionCounters,
    pub(crate) server: ConnectionCounters,
}

/// Returns data in which each byte depends on its position and on `seed`.
pub(crate) fn bytes(len: usize, seed: u8) -> Bytes {
    (0..len).map(|i| (i.wrapping_mul(31) ^ i >> 8) as u8 ^ seed).collect()
}

/// Returns the server's counters of the connection with this peer.
fn counters_of(served: &Served, peer: SocketAddr) -> ConnectionCounters {
    let connection = served.handle.connections().into_iter().find(|connection| connection.peer_addr == peer);
    connection.unwrap().counters
}

/// Makes one call of each kind in sequence, and checks the results. Returns the counters of the connection.
pub(crate) async fn calls(served: &Served, builder: ChannelBuilder) -> Account {
    let channel = served.connect(builder).await;
    let blobs = BlobstoreV1Client::new(channel.clone());
    let name = BlobName(Bytes::from_static(b"blob").into());
    let (data, attachment) = (bytes(DATA, 1), bytes(ATTACHMENT, 2));

    blobs.null().await.unwrap();
    let digest = BlobDigest(*blake3::hash(&data).as_bytes());
    let put = PutArgs { name: name.clone(), digest, attachment: attachment.clone(), data: data.clone() };
    let StatRes::BlobOk(stat) = blobs.put(&put).await.unwrap() else { panic!("PUT") };

    // Ask for more than there is.
    let get = GetArgs { name: name.clone(), offset: 1, count: DATA as u32 + 999, expect: 0 };
    let expected = GetRes::BlobOk(GetOk { eof: true, data: data.slice(1..) });
    assert!(blobs.get(&get).await.unwrap() == expected, "GET");

    let fetch = FetchArgs { name: name.clone(), attachment_count: ATTACHMENT as u32, count: DATA as u32 };
    let FetchRes::BlobOk(got) = blobs.fetch(&fetch).await.unwrap() else { panic!("FETCH") };
    assert!((got.stat, got.attachment, got.data) == (stat, attachment, data), "FETCH");

    let list = ListArgs { cookie: Bytes::new().into(), count: LISTED };
    let ListRes::BlobOk(page) = blobs.list(&list).await.unwrap() else { panic!("LIST") };
    assert_eq!((page.entries.len(), page.end), (1, true));

    let text = Text(bytes(TEXT, 3));
    assert!(long_v1::LongV1Client::new(channel.clone()).echo(&text).await.unwrap() == text, "ECHO");

    let (local, client) = (channel.info().local_addr, channel.counters());
    // The server publishes its counters after it has sent the last reply, which the client may already have.
    let mut server = counters_of(served, local);
    for _ in 0..500 {
        if server.replies_sent == client.calls_sent {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        server = counters_of(served, local);
    }
    let account = Account { port: local.port(), client, server };
    channel.close().await;
    account
}
