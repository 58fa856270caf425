//! The memory limit for the calls of all connections of a server, [`ServerBuilder::max_memory`].

use std::{sync::Arc, time::Duration};

use crate::net_support::{
    Data, Echo, Hold, HoldFlat, Null, PROGRAM, Put, Running, State, TestService, Transport, call, eventually, in_step,
    over_each, over_each_in_step, pattern, timed,
};
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    config::ConnectionConfig,
    engine::{ReverseDirection, Versions},
    server::{HandlerError, InboundCall, ReplyFuture, Server, Service},
};
use tokio::task::{JoinHandle, JoinSet};

const LIMIT: u64 = 600_000;
/// The part of [`LIMIT`] that arguments may take, in bytes.
const ARGUMENTS: u64 = 262_500;
/// Size of a call, in bytes. Two such calls exceed [`ARGUMENTS`].
const LARGE: usize = 200_000;

async fn serve(transport: &Transport) -> (Running, Arc<State>) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    (transport.serve(Server::builder().service(service).max_memory(LIMIT)).await, state)
}

async fn connect(running: &Running) -> Channel {
    let channel = running.connect(Channel::builder()).await;
    call::<Null>(&channel, &()).await.unwrap();
    channel
}

/// Starts a call that holds `bytes` bytes of arguments until the gate opens.
fn hold(channel: &Channel, bytes: usize) -> JoinHandle<Result<u64, CallError>> {
    let channel = channel.clone();
    tokio::spawn(async move { call::<Hold>(&channel, &Data(vec![7; bytes].into())).await })
}

async fn all_given_back(running: &Running) {
    eventually(|| {
        let memory = running.handle.memory();
        (memory.held, memory.waiting) == (0, 0)
    })
    .await;
}

/// A call waits for memory that a call on another connection holds. Small calls proceed.
async fn calls_wait_for_memory_of_other_connections(transport: Transport) {
    let (running, state) = serve(&transport).await;
    let (a, b, c) = (connect(&running).await, connect(&running).await, connect(&running).await);
    let first = hold(&a, LARGE);
    state.wait_started(1).await;
    let held = running.handle.memory().held;
    assert!((LARGE as u64..LARGE as u64 + 200).contains(&held), "{held}");
    let second = hold(&b, LARGE);
    eventually(|| running.handle.memory().waiting == 1).await;
    call::<Null>(&a, &()).await.unwrap();
    call::<Echo>(&c, &Bytes::from_static(b"short")).await.unwrap();
    if !matches!(transport, Transport::Tcp) {
        call::<Null>(&b, &()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(running.handle.memory().held, held);
    assert!(!second.is_finished());
    state.gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), LARGE as u64);
    // The waiting call proceeds without other activity on its connection.
    state.wait_started(2).await;
    assert_eq!(running.handle.memory().waiting, 0);
    state.gate.add_permits(1);
    assert_eq!(second.await.unwrap().unwrap(), LARGE as u64);
    all_given_back(&running).await;
}

/// A connection that closes while its call waits for memory leaves the queue, over TCP only once the server reads
/// again. A call in progress holds its memory until its handler ends.
async fn disconnected_clients_release_their_memory(transport: Transport) {
    let (running, state) = serve(&transport).await;
    let (a, b, c) = (connect(&running).await, connect(&running).await, connect(&running).await);
    let first = hold(&a, LARGE);
    state.wait_started(1).await;
    let (second, third) = (hold(&b, LARGE), hold(&c, LARGE));
    eventually(|| running.handle.memory().waiting == 2).await;
    second.abort();
    drop(b);
    // Over TCP, a server that does not read notices the disconnection only when it reads again.
    let late = usize::from(matches!(transport, Transport::Tcp));
    eventually(|| running.handle.memory().waiting == 1 + late).await;
    first.abort();
    drop(a);
    eventually(|| running.handle.connections().len() == 1 + late).await;
    // The handler continues, and holds the arguments.
    assert!(running.handle.memory().held >= LARGE as u64);
    assert!(!third.is_finished());
    // Over TCP, the second call may have been sent completely.
    state.gate.add_permits(2 + late);
    assert_eq!(third.await.unwrap().unwrap(), LARGE as u64);
    all_given_back(&running).await;
}

/// A call larger than the part of the limit for arguments is refused, because it would wait forever.
async fn call_above_the_limit_is_refused(transport: Transport) {
    let (running, _) = serve(&transport).await;
    let channel = connect(&running).await;
    let error = call::<Put>(&channel, &Data(vec![7; ARGUMENTS as usize + 1].into())).await.unwrap_err();
    assert!(matches!(error, CallError::Transport { .. }), "{error}");
    assert_eq!(running.handle.memory().held, 0);
    let sum = call::<Put>(&connect(&running).await, &Data(vec![0; ARGUMENTS as usize - 1000].into())).await.unwrap();
    assert_eq!(sum, 0);
}

/// Calls of several sizes on several connections all succeed, and the limit holds.
async fn many(transport: Transport) {
    let (running, _) = serve(&transport).await;
    let mut calls = JoinSet::new();
    for nth in 0..8_u32 {
        let channel = connect(&running).await;
        for round in 0..12 {
            let channel = channel.clone();
            let bytes = [150_000, 262_000, 5_000, 100, 60_000, 250_000][(nth + round) as usize % 6];
            let data = Data(pattern(nth, bytes).into());
            let sum = data.0.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            calls.spawn(async move { assert_eq!(call::<Put>(&channel, &data).await.unwrap(), sum) });
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
        let held = running.handle.memory().held;
        assert!(held <= LIMIT, "{held}");
    }
    all_given_back(&running).await;
}

/// A call that is received in several Sends (RPC-over-RDMA v2 §4.4.2) counts towards the memory limits, like a call
/// whose arguments the server fetches by RDMA Read.
#[tokio::test]
async fn continued_calls_count() {
    timed(async {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).max_fetched(2 * LARGE as u64 - 1).max_memory(3 * LIMIT);
        let running = Transport::sim().serve(server).await;
        let config = ConnectionConfig::new().max_continued(1 << 20);
        let channel = running.connect(Channel::builder().connection(config).versions(Versions::V2)).await;
        call::<Null>(&channel, &()).await.unwrap();
        let hold = || {
            let channel = channel.clone();
            tokio::spawn(async move { call::<HoldFlat>(&channel, &vec![7; LARGE].into()).await })
        };
        let first = hold();
        state.wait_started(1).await;
        assert_eq!(channel.counters().continued_sent, 1);
        let held = running.handle.memory().held;
        assert!((LARGE as u64..LARGE as u64 + 200).contains(&held), "{held}");
        // There is no memory for another call, and a call that has been sent cannot wait.
        let error = hold().await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Transport { .. }), "{error}");
        state.gate.add_permits(2);
        first.await.unwrap().unwrap();
        assert_eq!(hold().await.unwrap().unwrap(), LARGE as u64);
        all_given_back(&running).await;
    })
    .await;
}

/// A connection at the head of the queue that has reached its own limit does not block other connections.
#[tokio::test]
async fn connection_at_its_own_limit_does_not_block_others() {
    timed(async {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).max_fetched(100_000).max_memory(375_000);
        let running = Transport::sim().serve(server).await;
        let (a, b, c) = (connect(&running).await, connect(&running).await, connect(&running).await);
        let first = hold(&b, 100_000);
        state.wait_started(1).await;
        let waits = hold(&a, 80_000);
        eventually(|| running.handle.memory().waiting == 1).await;
        // A continued call does not wait.
        let continued = tokio::spawn(async move { call::<HoldFlat>(&a, &Bytes::from(vec![1; 60_000])).await });
        state.wait_started(2).await;
        state.gate.add_permits(1);
        first.await.unwrap().unwrap();
        call::<Put>(&c, &Data(vec![1; 20_000].into())).await.unwrap();
        state.gate.add_permits(2);
        waits.await.unwrap().unwrap();
        continued.await.unwrap().unwrap();
        all_given_back(&running).await;
    })
    .await;
}

/// A service whose handler calls its caller back and gets a long reply.
#[derive(Default)]
struct CallsBack;

impl Service for CallsBack {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        9
    }
    fn name(&self) -> &'static str {
        "CALLS_BACK"
    }
    fn dispatch(&self, incoming: InboundCall) -> ReplyFuture {
        Box::pin(async move {
            let channel: Channel = incoming.context().callback();
            let echoed = call::<Echo>(&channel, &Bytes::from(vec![1; 100_000])).await;
            incoming.finish::<Null>(echoed.map(|_| ()).map_err(HandlerError::system))
        })
    }
}

/// Replies to the server's callbacks do not wait for memory, because the calls that hold it may be waiting for such a
/// reply.
#[tokio::test]
async fn replies_to_callbacks_do_not_wait() {
    timed(async {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).service(CallsBack).max_memory(240_000);
        let running = Transport::sim().serve(server).await;
        let first = hold(&connect(&running).await, 100_000);
        state.wait_started(1).await;
        let config = ConnectionConfig::new().reverse_direction(ReverseDirection::Continued);
        let channel = running.connect(Channel::builder().connection(config).service(TestService::default())).await;
        channel.call_null(PROGRAM, 9, CallOptions::default()).await.unwrap();
        state.gate.add_permits(1);
        first.await.unwrap().unwrap();
        all_given_back(&running).await;
    })
    .await;
}

over_each_in_step! { calls_wait_for_memory_of_other_connections }

over_each! {
    disconnected_clients_release_their_memory call_above_the_limit_is_refused many
}
