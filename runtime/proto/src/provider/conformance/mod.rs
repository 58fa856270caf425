//! A conformance suite for providers.
//!
//! To use it in a test file, call `rpcrdma_proto::provider_conformance!(make())`. `make()` returns a future of a
//! connector and a listener; the connector must be able to reach the listener's address. Each case panics with a
//! description of the failure. The suite depends on no asynchronous runtime: the macro uses the `tokio` of the test's
//! own crate, and programs that call [`cases`] choose their own. Such programs have to limit the time of each case to
//! [`CASE_LIMIT`], as the macro does.
#![allow(clippy::missing_panics_doc)]

mod connections;
mod ending;
mod messages;
mod rdma;
mod refusals;

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join;

use super::{
    Access, Completion, ConnectRequest, Connected, Connector, DisconnectReason, Incoming, Listener, MemoryHandle,
    QueuePair, Region, RegisterableMemory, RemoteMemory, SetupError, SetupParams, WorkError, WorkRequest, WrId,
};
use crate::{
    chain::ErrorChain,
    memory::{MessageBuf, Output, PayloadBuf},
};

// The cases, which the macro names.
#[doc(hidden)]
pub use connections::*;
#[doc(hidden)]
pub use ending::*;
#[doc(hidden)]
pub use messages::*;
#[doc(hidden)]
pub use rdma::*;
#[doc(hidden)]
pub use refusals::*;

/// The time limit of connection set-up in each case.
const LIMIT: Duration = Duration::from_secs(20);

/// The time limit of one case. A case that waits for a completion in vain does not end by itself.
pub const CASE_LIMIT: Duration = Duration::from_secs(60);

/// Creates one `#[tokio::test]` per case of the suite. Each test evaluates `$make`, and awaits the resulting future of
/// a connector and a listener.
#[macro_export]
macro_rules! provider_conformance {
    ($make:expr) => {
        $crate::provider_conformance! { @all tests [$make] }
    };
    (@all $what:ident $args:tt) => {
        $crate::provider_conformance! { @$what $args;
            private_data_is_exchanged, rejection_carries_private_data, sends_arrive_in_order,
            empty_and_full_messages, solicited_sends, unsignaled_sends, settled_queue_pairs_are_woken, send_with_invalidate, write_precedes_send,
            empty_write_to_unknown_handle, writes_at_every_offset, read_large, more_reads_than_depth, empty_read,
            completions_keep_order, both_directions_at_once, write_out_of_bounds, write_that_wraps, write_to_source,
            write_to_unknown, write_to_read_sink, write_after_invalidate, read_out_of_bounds, read_of_sink,
            read_of_unknown, invalidate_of_unknown, invalidate_of_read_sink, send_without_receive,
            send_longer_than_receive, local_error_in_read, memory_must_suit_access, disconnect_in_order,
            after_disconnect, peer_dropped, handles_are_unpredictable, invalidate_waits_for_reads,
            pooled_memory, write_beyond_pooled, read_of_constants, memory_of_another_connection,
            invalidate_of_another_connection, unprocessed_messages, messages_beyond_receives
        }
    };
    (@table []; $($case:ident),*) => {
        vec![$((stringify!($case), (|connector, listener| Box::pin($case(connector, listener))) as ConformanceCase<C, L>)),*]
    };
    (@tests [$make:expr]; $($case:ident),*) => {$(
        #[tokio::test]
        async fn $case() {
            let (connector, listener) = $make.await;
            let case = $crate::provider::conformance::$case(connector, listener);
            let limit = $crate::provider::conformance::CASE_LIMIT;
            tokio::time::timeout(limit, case).await.expect("the case waited in vain, for example for a completion");
        }
    )*};
}

/// A case of the suite. Its future panics with a description of a failure.
pub type ConformanceCase<C, L> = fn(C, L) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns all cases with their names, for programs that run the suite on a machine with the provider's devices.
#[must_use]
pub fn cases<C: Connector, L: Listener>() -> Vec<(&'static str, ConformanceCase<C, L>)> {
    crate::provider_conformance!(@all table [])
}

/// One side of a connection, with its pending completions.
struct TestEnd<Q> {
    /// The queue pair, or `None` once it is dropped.
    queue_pair: Option<Q>,
    /// Completions that no case has consumed, in the order in which they were reported.
    completions: VecDeque<Completion>,
    next_id: u64,
}

impl<Q: QueuePair> TestEnd<Q> {
    fn new(queue_pair: Q) -> Self {
        Self { queue_pair: Some(queue_pair), completions: VecDeque::new(), next_id: 1 }
    }

    fn qp(&mut self) -> &mut Q {
        self.queue_pair.as_mut().expect("queue pair was dropped")
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    /// Registers memory. The peer may use it after [`ConnectedPair::announce`].
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Region {
        self.qp().register(memory, access).expect("registration failed")
    }

    /// Registers `len` bytes of memory, filled with 0xee.
    fn sink(&mut self, len: usize, access: Access) -> Region {
        self.register(RegisterableMemory::Sink(vec![0xee; len].into()), access)
    }

    /// Registers data that the peer may read.
    fn source(&mut self, bytes: impl Into<Bytes>) -> Region {
        self.register(RegisterableMemory::Source(bytes.into()), Access::RemoteRead)
    }

    /// Posts a Send.
    fn send(&mut self, bytes: &[u8], invalidate: Option<MemoryHandle>) -> WrId {
        let (id, message) = (self.id(), message(bytes));
        self.qp().post(WorkRequest::Send { id, message, invalidate, solicited: false, signaled: true });
        id
    }

    /// Posts an RDMA Write to a region, `at` bytes from its start.
    fn write(&mut self, bytes: impl Into<Bytes>, region: Region, at: u64) -> WrId {
        let (id, source) = (self.id(), bytes.into());
        self.qp().post(WorkRequest::Write { id, source, remote: remote(region, at) });
        id
    }

    /// Posts an RDMA Read of `len` bytes from the region `from`, `at` bytes from its start. The data is placed
    /// `sink_offset` bytes from the start of `sink`.
    fn read(&mut self, sink: Region, sink_offset: u64, from: Region, at: u64, len: u32) -> WrId {
        let id = self.id();
        self.qp().post(WorkRequest::Read { id, sink: sink.handle, sink_offset, remote: remote(from, at), len });
        id
    }

    /// Posts an Invalidate.
    fn invalidate(&mut self, handle: MemoryHandle) -> WrId {
        let id = self.id();
        self.qp().post(WorkRequest::Invalidate { id, handle });
        id
    }

    fn poll(&mut self, cx: &mut std::task::Context<'_>) {
        let Some(queue_pair) = &mut self.queue_pair else { return };
        let mut completions = Vec::new();
        while queue_pair.poll(cx, &mut completions).is_ready() {
            assert!(!completions.is_empty(), "poll returned Ready without a completion");
            self.completions.extend(completions.drain(..));
        }
        assert!(completions.is_empty(), "poll returned Pending with a completion");
    }
}

/// Returns the address of the byte of the peer's memory that is `at` bytes from the start of a region.
#[must_use]
fn remote(region: Region, at: u64) -> RemoteMemory {
    RemoteMemory { handle: region.handle, offset: region.base.wrapping_add(at) }
}

/// Returns a message that contains `bytes`.
#[doc(hidden)]
#[must_use]
pub fn message(bytes: &[u8]) -> MessageBuf {
    let mut message = MessageBuf::new(PayloadBuf::from(vec![0; bytes.len()]), 0);
    message.append(bytes);
    message
}

/// Returns `len` bytes of test data. Each byte depends on its position and on `seed`.
#[doc(hidden)]
#[must_use]
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251 + seed * 7) % 256) as u8).collect()
}

/// Both sides of a connection, driven together.
struct ConnectedPair<A, B> {
    /// The side that connected.
    client: TestEnd<A>,
    /// The side that accepted.
    server: TestEnd<B>,
}

impl<A: QueuePair, B: QueuePair> ConnectedPair<A, B> {
    /// Returns the client's next completion.
    async fn client(&mut self) -> Completion {
        self.next(|pair| &mut pair.client.completions).await
    }

    /// Returns the server's next completion.
    async fn server(&mut self) -> Completion {
        self.next(|pair| &mut pair.server.completions).await
    }

    async fn next(&mut self, queue: impl Fn(&mut Self) -> &mut VecDeque<Completion>) -> Completion {
        poll_fn(|cx| {
            self.client.poll(cx);
            self.server.poll(cx);
            queue(self).pop_front().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Announces the regions of both sides by Sends, as protocols do. A provider may defer a registration until then.
    /// Ignores completions of earlier Sends and RDMA Writes.
    async fn announce(&mut self) {
        let sends =
            [self.client.send(b"regions of the client", None), self.server.send(b"regions of the server", None)];
        for (is_client, send) in [true, false].into_iter().zip(sends) {
            let (mut has_received, mut is_sent) = (false, false);
            while !(has_received && is_sent) {
                match if is_client { self.client().await } else { self.server().await } {
                    Completion::Received { .. } => has_received = true,
                    Completion::Sent { id } => is_sent |= id == send,
                    Completion::Written { .. } => {}
                    other => panic!("expected a message and the completion of a Send, got {other:?}"),
                }
            }
        }
        self.client.qp().post_receives(1);
        self.server.qp().post_receives(1);
    }

    async fn client_received(&mut self) -> Vec<u8> {
        match self.client().await {
            Completion::Received { message, .. } => message.to_vec(),
            other => panic!("expected a message at the client, got {other:?}"),
        }
    }

    /// Returns the next message at the client, and ignores completions of Sends.
    async fn client_received_after_sent(&mut self) -> Vec<u8> {
        loop {
            match self.client().await {
                Completion::Received { message, .. } => return message.to_vec(),
                Completion::Sent { .. } => {}
                other => panic!("expected a message at the client, got {other:?}"),
            }
        }
    }

    async fn server_received(&mut self) -> Vec<u8> {
        match self.server().await {
            Completion::Received { message, .. } => message.to_vec(),
            other => panic!("expected a message at the server, got {other:?}"),
        }
    }

    /// Waits until both sides have ended, and returns the reasons of client and server. Panics on a successful
    /// completion other than Sent and Written.
    async fn both_end(&mut self) -> (DisconnectReason, DisconnectReason) {
        let mut reasons = Vec::new();
        for at_client in [true, false] {
            reasons.push(loop {
                match if at_client { self.client().await } else { self.server().await } {
                    Completion::Disconnected { reason } => break reason,
                    Completion::Failed { .. } | Completion::Sent { .. } | Completion::Written { .. } => {}
                    other => panic!("expected the end of the connection, got {other:?}"),
                }
            });
        }
        let server = reasons.pop().unwrap();
        (reasons.pop().unwrap(), server)
    }

    /// Waits until both sides have ended. Checks that the reasons fit a refusal of the client's request by the server.
    async fn server_refuses(&mut self) {
        let tells = self.server.qp().reports_violations();
        let (client, server) = self.both_end().await;
        refused(tells, &client, &server);
    }
}

fn refused(tells: bool, client: &DisconnectReason, server: &DisconnectReason) {
    let silent = !tells && matches!(server, DisconnectReason::Remote | DisconnectReason::Transport(_));
    assert!(
        silent || matches!(server, DisconnectReason::PeerViolation(_)),
        "unexpected reason at the server: {server:?}"
    );
    let told = matches!(
        client,
        DisconnectReason::RemoteAccess(_) | DisconnectReason::ReportedByPeer(_) | DisconnectReason::Transport(_)
    );
    assert!(told || *client == DisconnectReason::Remote, "unexpected reason at the client: {client:?}");
}

fn params() -> SetupParams {
    SetupParams { timeout: LIMIT, ..SetupParams::default() }
}

/// Connects the connector to the listener, and returns both sides.
async fn connect<C: Connector, L: Listener>(
    connector: &C,
    listener: &L,
    client: SetupParams,
    server: SetupParams,
) -> (Connected<C::QueuePair>, Connected<L::QueuePair>) {
    let accept = async {
        let incoming = listener.accept().await.expect("accept failed");
        let request = incoming
            .request(LIMIT)
            .await
            .unwrap_or_else(|error| panic!("received no connection request: {}", ErrorChain(&error)));
        request.accept(server).await.unwrap_or_else(|error| panic!("failed to accept: {}", ErrorChain(&error)))
    };
    // Each future panics on its own, because the other one would wait for it.
    let connect = async {
        let connected = connector.connect(listener.local_addr(), client).await;
        connected.unwrap_or_else(|error| panic!("failed to connect: {}", ErrorChain(&error)))
    };
    join(connect, accept).await
}

async fn pair<C: Connector, L: Listener>(connector: C, listener: L) -> ConnectedPair<C::QueuePair, L::QueuePair> {
    pair_with(connector, listener, params(), params()).await
}

async fn pair_with<C: Connector, L: Listener>(
    connector: C,
    listener: L,
    client: SetupParams,
    server: SetupParams,
) -> ConnectedPair<C::QueuePair, L::QueuePair> {
    let (client, server) = connect(&connector, &listener, client, server).await;
    ConnectedPair { client: TestEnd::new(client.queue_pair), server: TestEnd::new(server.queue_pair) }
}

/// Returns `true` if private data arrived intact, possibly padded with zeros by InfiniBand.
fn is_padded(got: &[u8], sent: &[u8]) -> bool {
    got.strip_prefix(sent).is_some_and(|padding| padding.iter().all(|byte| *byte == 0))
}

fn sink_of(completion: Completion, id: WrId) -> Vec<u8> {
    match completion {
        Completion::Invalidated { id: got, memory: RegisterableMemory::Sink(sink) } if got == id => sink.to_vec(),
        other => panic!("expected the sink of {id:?}, got {other:?}"),
    }
}
