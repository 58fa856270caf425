//! Eligible payload moves between the user's memory and the socket without copies. The tests check the counters of
//! copies, and the addresses of the data.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use rpcrdma::{
    client::{CallOptions, Channel},
    memory::{LandingMemory, PayloadBuf},
    server::{Context, HandlerError, Server, ServerHandle},
};

mod protocol {
    rpcrdma::xdr! {
        struct data { @ddp(max = args) opaque data<>; };
        struct put_args { @ddp opaque data<>; };

        program MOVES {
            version MOVES_V1 {
                data GET(unsigned int) = 1;
                void PUT(put_args) = 2;
            } = 1;
        } = 0x20100C02;
    }
}
use protocol::{
    Data, PutArgs,
    moves_v1::{MovesV1, MovesV1Client, MovesV1Server},
};

const MIB: usize = 1 << 20;

/// A service that returns its data, and keeps the data that it receives.
#[derive(Clone)]
struct Service {
    source: Bytes,
    kept: Arc<Mutex<Vec<Bytes>>>,
}

impl MovesV1 for Service {
    async fn get(&self, _cx: &Context, args: u32) -> Result<Data, HandlerError> {
        Ok(Data { data: self.source.slice(..args as usize) })
    }

    async fn put(&self, _cx: &Context, args: PutArgs) -> Result<(), HandlerError> {
        self.kept.lock().unwrap().push(args.data);
        Ok(())
    }
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + (i >> 8)) as u8).collect()
}

async fn start(options: &str) -> (MovesV1Client, Service, ServerHandle) {
    let service = Service { source: bytes(2 * MIB), kept: Arc::default() };
    let server = Server::builder()
        .service(MovesV1Server::new(service.clone()))
        .listen(format!("iwarp://127.0.0.1:0{options}"))
        .bind()
        .await
        .unwrap();
    let (addr, handle) = (server.local_addrs()[0], server.handle());
    tokio::spawn(server.serve());
    let channel = Channel::connect(&format!("iwarp://{addr}{options}")).await.unwrap();
    (MovesV1Client::new(channel), service, handle)
}

/// Returns the total numbers of bytes that client and server have copied so far: first of eligible items copied into
/// messages, then of payload copied in the provider.
fn copied(client: &MovesV1Client, server: &ServerHandle) -> (u64, u64) {
    let ends = [client.channel().counters(), server.connections()[0].counters];
    (ends.iter().map(|end| end.copied_eligible_bytes).sum(), ends.iter().map(|end| end.copied_payload_bytes).sum())
}

/// No payload is copied, with CRCs and without them, although CRCs read every byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_copied() {
    for options in ["", "?crc=off"] {
        let (client, service, server) = start(options).await;
        // Lengths with padding and longer than an FPDU, several calls at a time.
        let lengths = [MIB, MIB + 1, 1024, 70_001, MIB, MIB - 3, 65_536, 2 * MIB];
        let puts = lengths.map(|len| PutArgs { data: bytes(len) });
        for result in join_all(puts.iter().map(|put| client.put(put))).await {
            result.unwrap();
        }
        for (len, result) in lengths.iter().zip(join_all(lengths.map(|len| client.get(len as u32))).await) {
            assert!(result.unwrap().data == service.source[..*len]);
        }
        let mut kept: Vec<_> = service.kept.lock().unwrap().drain(..).collect();
        kept.sort_by_key(Bytes::len);
        let mut sorted = lengths;
        sorted.sort();
        assert!(kept.iter().map(Bytes::len).eq(sorted) && kept.iter().all(|data| *data == bytes(data.len())));

        let moved: u64 = lengths.iter().map(|len| *len as u64).sum();
        let counters = client.channel().counters();
        assert_eq!(
            (counters.read_by_peer_bytes, counters.written_by_peer_bytes),
            (moved, moved),
            "not all data moved by RDMA"
        );
        assert_eq!(copied(&client, &server), (0, 0), "{options}");
    }
}

/// An item that is too short for a chunk is copied into the message, and counted.
#[tokio::test]
async fn short_items_are_copied_and_counted() {
    let (client, _, server) = start("").await;
    client.put(&PutArgs { data: bytes(100) }).await.unwrap();
    assert_eq!(copied(&client, &server), (100, 0));
    client.get(60).await.unwrap();
    assert_eq!(copied(&client, &server), (160, 0));
}

/// Memory that the caller provides for a result.
struct Own(Box<[u8]>);

impl LandingMemory for Own {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A result is placed in the memory that the caller provided.
#[tokio::test]
async fn results_are_placed_in_the_callers_memory() {
    let (client, service, server) = start("").await;
    for len in [MIB, MIB - 1] {
        let memory = vec![0; MIB].into_boxed_slice();
        let at = memory.as_ptr();
        let options = CallOptions::new().landing(PayloadBuf::from_memory(Box::new(Own(memory))));
        let got = client.get_with(len as u32, options).await.unwrap().data;
        assert_eq!(got.as_ptr(), at, "{len} bytes not in the caller's memory");
        assert!(got == service.source[..len]);
    }
    assert_eq!(copied(&client, &server), (0, 0));
}
