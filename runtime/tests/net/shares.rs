//! The shares of hosts and connections in a server's memory. Hostile clients announce large calls but send little, do
//! not serve the server's RDMA Reads, or do not read their replies. Other clients still get their replies.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use crate::iwarp_common::{REPLY, REQUEST, Raw, mpa, send};
use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, Reconnect},
    config::ConnectionConfig,
    memory::BufferPool,
    server::{HandlerError, InboundCall, ReplyFuture, Server, Service},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
};

const MIB: u32 = 1 << 20;
/// Memory limit of the server, in bytes.
const LIMIT: u64 = 12 << 20;
/// Number of hostile connections, all of one host.
const ATTACKERS: usize = 16;

#[derive(Default)]
struct Resources {
    state: Arc<State>,
    pool: BufferPool,
}

/// Starts a server with the memory limit [`LIMIT`]. Returns it with its state and the pool of its results.
async fn serve(scheme: &str) -> (Running, Resources) {
    let resources = Resources::default();
    let config = ConnectionConfig::new().pool(resources.pool.clone()).credits(64);
    let service = TestService(Arc::clone(&resources.state));
    let server = Server::builder().service(service).connection(config).max_memory(LIMIT);
    let server = server.listen(format!("{scheme}://127.0.0.1:0")).bind().await.unwrap();
    let (addr, handle) = (server.local_addrs()[0], server.handle());
    let transport = if scheme == "tcp" { Transport::Tcp } else { Transport::Iwarp };
    (Running { addr, handle, transport, task: spawn_server(server) }, resources)
}

/// Connects a channel from the local address 127.0.0.`host`.
async fn connect_from(host: u8, running: &Running) -> Channel {
    let scheme = if matches!(running.transport, Transport::Tcp) { "tcp" } else { "iwarp" };
    let url = format!("{scheme}://{}?local=127.0.0.{host}", running.addr);
    let channel = Channel::builder().reconnect(Reconnect::Never).connect(&url).await.unwrap();
    call::<Null>(&channel, &()).await.unwrap();
    channel
}

async fn tcp_from(host: u8, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    socket.connect(server).await.unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns the record mark of a record of `len` bytes (RFC 5531 §11).
fn mark(len: u32) -> Vec<u8> {
    words(&[1 << 31 | len])
}

/// Returns the header of a call with AUTH_NONE as credential and verifier (RFC 5531 §9).
fn call_head(xid: u32, procedure: u32) -> [u32; 10] {
    [xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0]
}

/// Checks that clients of the attackers' host and of another host get replies. The other host also makes large calls.
async fn others_are_served(running: &Running) {
    let (neighbour, other) = (connect_from(1, running).await, connect_from(2, running).await);
    for round in 0..4 {
        let small = Data(pattern(round, 8 << 10).into());
        call::<Put>(&neighbour, &small).await.unwrap();
        call::<Put>(&other, &small).await.unwrap();
        assert_eq!(call::<Get>(&neighbour, &Range(round, 8 << 10)).await.unwrap(), small);
        call::<Put>(&other, &Data(pattern(round, MIB).into())).await.unwrap();
        assert_eq!(call::<Get>(&other, &Range(round, MIB)).await.unwrap().0.len(), MIB as usize);
        assert!(running.handle.memory().held <= LIMIT, "{:?}", running.handle.memory());
    }
}

/// Checks that one attacker holds the share of its host, that the other attackers wait for it, and that clients get
/// replies.
async fn one_attacker_holds_memory(running: &Running) {
    eventually(|| running.handle.memory().waiting == ATTACKERS - 1).await;
    assert!((1..=LIMIT).contains(&running.handle.memory().held));
    others_are_served(running).await;
}

/// Checks that all memory is released once the attackers have left, and shuts the server down.
async fn all_is_released(running: Running, resources: &Resources) {
    eventually(|| {
        let memory = running.handle.memory();
        (memory.held, memory.waiting, running.handle.connections().len()) == (0, 0, 0)
    })
    .await;
    let channel = connect_from(1, &running).await;
    let sum = call::<Put>(&channel, &Data(Bytes::from(vec![0; 5 << 20]))).await;
    assert_eq!(sum.unwrap(), 0, "nearly the whole part for arguments is free");
    drop(channel);
    running.handle.shutdown();
    running.task.await.unwrap();
    *resources.state.last_put.lock().unwrap() = Bytes::new();
    assert_eq!(resources.pool.stats().outstanding, 0);
}

/// Records of which only the mark arrives hold no memory. Records of which more arrives hold the share of their host.
#[tokio::test]
async fn announced_records_hold_a_share() {
    timed(async {
        let (running, resources) = serve("tcp").await;
        let mut attackers = Vec::new();
        for _ in 0..ATTACKERS {
            let mut attacker = tcp_from(1, running.addr).await;
            attacker.write_all(&mark(4 * MIB)).await.unwrap();
            attackers.push(attacker);
        }
        eventually(|| running.handle.connections().len() == ATTACKERS).await;
        others_are_served(&running).await;
        eventually(|| running.handle.memory().held == 0).await;
        for attacker in &mut attackers {
            attacker.write_all(&[0; 10 << 10]).await.unwrap();
        }
        one_attacker_holds_memory(&running).await;
        drop(attackers);
        all_is_released(running, &resources).await;
    })
    .await;
}

/// Read chunks that the client does not serve hold the share of its host.
#[tokio::test]
async fn unserved_read_chunks_hold_a_share() {
    timed(async {
        let (running, resources) = serve("iwarp").await;
        let mut attackers = Vec::new();
        for _ in 0..ATTACKERS {
            let mut raw = Raw::connect(running.addr).await;
            raw.write(&mpa(REQUEST, 0x50, 2, &[0, 16, 0, 16])).await;
            raw.frame(REPLY).await;
            // A call with a Read chunk after its header (RFC 8166 §4.2).
            let header = [7, 1, 8, 0, 1, 40, 99, 4 * MIB, 0, 0, 0, 0, 0];
            let message = words(&[&header[..], &call_head(7, 2)].concat());
            raw.fpdus(&[&send(1, &message)]).await;
            attackers.push(raw);
        }
        one_attacker_holds_memory(&running).await;
        drop(attackers);
        all_is_released(running, &resources).await;
    })
    .await;
}

/// Results that nobody reads hold the share of their host, and no more results are read into memory.
#[tokio::test]
async fn unread_results_hold_a_share() {
    timed(async {
        let (running, resources) = serve("tcp").await;
        let mut attackers = Vec::new();
        for _ in 0..ATTACKERS {
            let mut attacker = tcp_from(1, running.addr).await;
            for xid in 0..64 {
                let message = words(&[&call_head(xid, 3)[..], &[xid, MIB]].concat());
                let record = [mark(u32::try_from(message.len()).unwrap()), message].concat();
                attacker.write_all(&record).await.unwrap();
            }
            attackers.push(attacker);
        }
        // Small replies and requests to the kernel aside, everything waits.
        eventually(|| running.handle.memory().waiting > ATTACKERS).await;
        for _ in 0..3 {
            others_are_served(&running).await;
            let memory = running.handle.memory();
            assert!(memory.waiting > ATTACKERS, "{memory:?}");
        }
        // The kernel takes some megabytes for each connection.
        let got = resources.state.got_bytes.load(Ordering::SeqCst);
        assert!(got < LIMIT + ATTACKERS as u64 * (16 << 20), "{got} bytes of results were read into memory");
        drop(attackers);
        all_is_released(running, &resources).await;
    })
    .await;
}

/// A result above the limit is refused at once. A call that waits for memory stops waiting when its client leaves.
#[tokio::test]
async fn results_above_the_limit_are_refused() {
    timed(async {
        let (running, resources) = serve("tcp").await;
        let channel = connect_from(1, &running).await;
        let most = u32::try_from(LIMIT / 16 * 7).unwrap();
        let error = call::<Get>(&channel, &Range(1, most + 1)).await.unwrap_err();
        assert!(matches!(error, CallError::Rpc { .. }), "{error:?}");
        assert_eq!(call::<Get>(&channel, &Range(1, most)).await.unwrap().0.len(), most as usize);
        let message = words(&[&call_head(1, 3)[..], &[1, most]].concat());
        let record = [mark(u32::try_from(message.len()).unwrap()), message].concat();
        let mut attackers = Vec::new();
        for host in [3, 4] {
            let mut attacker = tcp_from(host, running.addr).await;
            attacker.write_all(&record).await.unwrap();
            attackers.push(attacker);
        }
        eventually(|| running.handle.memory().held >= 2 * u64::from(most)).await;
        let other = connect_from(2, &running).await;
        let waits = tokio::spawn(async move { other.call::<Get>(&Range(1, MIB), CallOptions::new()).await });
        eventually(|| running.handle.memory().waiting == 1).await;
        waits.abort();
        eventually(|| running.handle.memory().waiting == 0).await;
        drop((attackers, channel));
        all_is_released(running, &resources).await;
    })
    .await;
}

/// The memory limit holds while many clients of several hosts store and fetch at once.
#[tokio::test]
async fn many_hosts_share_the_memory() {
    timed(async {
        for scheme in ["tcp", "iwarp"] {
            let (running, resources) = serve(scheme).await;
            let mut calls = tokio::task::JoinSet::new();
            for host in 1..=4 {
                for nth in 0..3 {
                    let channel = connect_from(host, &running).await;
                    for round in 0..6_u32 {
                        let channel = channel.clone();
                        let bytes = [100, 5 * MIB, MIB, 70_000, 2 * MIB, 8 << 10][(nth + round) as usize % 6];
                        calls.spawn(async move {
                            call::<Put>(&channel, &Data(vec![0; bytes as usize].into())).await.unwrap();
                            let got = call::<Get>(&channel, &Range(round, bytes)).await.unwrap();
                            assert_eq!(got.0.len(), bytes as usize);
                        });
                    }
                }
            }
            while let Some(ended) = calls.join_next().await {
                ended.unwrap();
                let held = running.handle.memory().held;
                assert!(held <= LIMIT, "{held}");
            }
            all_is_released(running, &resources).await;
        }
    })
    .await;
}

/// A service whose handler stops when its client leaves.
#[derive(Clone, Default)]
struct Leaves(Arc<State>);

impl Service for Leaves {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        9
    }
    fn name(&self) -> &'static str {
        "LEAVES"
    }
    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            state.started.fetch_add(1, Ordering::SeqCst);
            let cx = call.context().clone();
            cx.closed().await;
            let late = cx.reserve_results(100).await;
            assert!(matches!(late, Err(HandlerError::Unavailable)), "{late:?}");
            state.finished.fetch_add(1, Ordering::SeqCst);
            call.finish::<Null>(Ok(()))
        })
    }
}

/// A handler learns that its client has left, and gets no more memory.
#[tokio::test]
async fn handlers_learn_that_their_client_has_left() {
    timed(async {
        let service = Leaves::default();
        let state = Arc::clone(&service.0);
        let running = Transport::Iwarp.serve(Server::builder().service(service)).await;
        let channel = running.connect(Channel::builder()).await;
        let calls = tokio::spawn(async move { channel.call_null(PROGRAM, 9, CallOptions::new()).await });
        state.wait_started(1).await;
        assert_eq!(state.finished.load(Ordering::SeqCst), 0);
        calls.abort();
        eventually(|| state.finished.load(Ordering::SeqCst) == 1).await;
        assert_eq!(running.handle.memory().held, 0);
    })
    .await;
}

/// An open connection holds no memory of the server for calls that have been answered.
#[tokio::test]
async fn answered_calls_hold_nothing() {
    timed(async {
        for scheme in ["tcp", "iwarp"] {
            let (running, _) = serve(scheme).await;
            let channel = connect_from(1, &running).await;
            for round in 0..32 {
                call::<Get>(&channel, &Range(round, MIB)).await.unwrap();
            }
            eventually(|| running.handle.memory().held == 0).await;
        }
    })
    .await;
}
