//! iWARP peers that violate the protocol, against a complete server and a complete client. The tests of the server
//! check its response to the peer, and that other connections are not affected. Those of the client check the results
//! and errors that the user gets.
//!
//! The rules of single layers have their own tests: `runtime/iwarp/tests/violations.rs`, `runtime/proto/tests/engine`.
#![allow(clippy::unwrap_used)]

mod client;
#[path = "../../../runtime/iwarp/tests/iwarp_common/mod.rs"]
mod raw;
mod server;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use rpcrdma::{
    client::{Channel, Reconnect},
    config::ConnectionConfig,
    engine::Versions,
    server::{Context, HandlerError, Server, ServerHandle},
};
use tokio::sync::Semaphore;

pub(crate) mod protocol {
    rpcrdma::xdr! {
        typedef opaque text<8192>;
        struct range { @ddp(max = args) opaque data<>; };
        struct put_args { @ddp opaque data<>; };

        program BAD {
            version BAD_V1 {
                void NULL(void) = 0;
                /* Returns this many bytes. */
                range GET(unsigned int) = 1;
                /* Returns the length of the data. */
                unsigned int PUT(put_args) = 2;
                /* Waits until the test opens the gate. */
                unsigned int WAIT(unsigned int) = 3;
                /* Returns its argument. */
                @reply_max(7 + len(args)) text ECHO(text) = 4;
            } = 1;
        } = 0x20100BAD;
    }
}
use protocol::{
    PutArgs, Range, Text,
    bad_v1::{BadV1, BadV1Client, BadV1Server},
};

pub(crate) const PROGRAM: u32 = 0x2010_0BAD;

/// The implementation of the program BAD. WAIT waits for a permit of the gate.
#[derive(Clone)]
struct Service(Arc<Semaphore>);

impl BadV1 for Service {
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn get(&self, _cx: &Context, args: u32) -> Result<Range, HandlerError> {
        Ok(Range { data: vec![7; args as usize].into() })
    }

    async fn put(&self, _cx: &Context, args: PutArgs) -> Result<u32, HandlerError> {
        Ok(args.data.len() as u32)
    }

    async fn wait(&self, _cx: &Context, args: u32) -> Result<u32, HandlerError> {
        self.0.acquire().await.map_err(std::io::Error::other)?.forget();
        Ok(args)
    }

    async fn echo(&self, _cx: &Context, args: Text) -> Result<Text, HandlerError> {
        Ok(args)
    }
}

/// A server with a well-behaved client that has a call in flight.
pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    pub(crate) handle: ServerHandle,
    gate: Arc<Semaphore>,
    neighbour: BadV1Client,
    waiting: tokio::task::JoinHandle<u32>,
}

impl Served {
    pub(crate) async fn start(config: ConnectionConfig) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let service = BadV1Server::new(Service(Arc::clone(&gate)));
        let server = Server::builder().connection(config).service(service).listen("iwarp://127.0.0.1:0");
        let server = server.bind().await.unwrap();
        let (addr, handle) = (server.local_addrs()[0], server.handle());
        tokio::spawn(server.serve());
        let neighbour = BadV1Client::new(connect(addr).await.unwrap());
        // The first reply grants credits for more than one call.
        neighbour.null().await.unwrap();
        let waits = neighbour.clone();
        let waiting = tokio::spawn(async move { waits.wait(42).await.unwrap() });
        Self { addr, handle, gate, neighbour, waiting }
    }

    /// Checks that the well-behaved client is not affected: its connection, its call in flight, and later calls by
    /// RDMA. Also checks that a new client is served.
    pub(crate) async fn unharmed(self) {
        let put = PutArgs { data: Bytes::from(vec![1; 100_000]) };
        assert_eq!(limited(self.neighbour.put(&put)).await.unwrap(), 100_000);
        assert_eq!(limited(self.neighbour.get(50_000)).await.unwrap().data, vec![7; 50_000]);
        self.gate.add_permits(1);
        assert_eq!(limited(self.waiting).await.unwrap(), 42);
        let counters = self.neighbour.channel().counters();
        assert_eq!((counters.errors_received, counters.messages_discarded, counters.exposed_regions), (0, 0, 0));
        // New clients are served, too.
        BadV1Client::new(connect(self.addr).await.unwrap()).null().await.unwrap();
    }
}

pub(crate) async fn connect(addr: SocketAddr) -> Result<Channel, rpcrdma::client::ConnectError> {
    // The violations are of version 1.
    let builder =
        Channel::builder().versions(Versions::V1).call_timeout(Duration::from_secs(60)).reconnect(Reconnect::Never);
    builder.connect_timeout(Duration::from_secs(60)).connect(&format!("iwarp://{addr}")).await
}

pub(crate) async fn limited<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(100), future).await.expect("timed out")
}

/// Converts words to big-endian bytes.
pub(crate) fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// Returns the payload of an untagged segment.
pub(crate) fn payload(ulpdu: &[u8]) -> &[u8] {
    &ulpdu[18..]
}
