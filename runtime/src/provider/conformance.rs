//! What every provider must do: one suite, run over each (feature `conformance`).
//!
//! In a test file: `rpcrdma::provider_conformance!(make())`, where `make()` is a future of a connector and a listener
//! that the connector reaches at the listener's address. Each case panics with what went wrong.
#![allow(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, clippy::expect_used)]

use std::{collections::VecDeque, future::poll_fn, task::Poll, time::Duration};

use bytes::Bytes;

use super::{
    Access, Completion, ConnectRequest, Connected, Connector, DisconnectReason, Handle, Incoming, Listener, Memory,
    QueuePair, Region, RemoteMemory, SetupError, SetupParams, WorkError, WorkRequest, WrId,
};
use crate::memory::{MessageBuf, Output, PayloadBuf};

const LIMIT: Duration = Duration::from_secs(20);

/// Makes one `#[tokio::test]` of each case of the suite. `$make` is evaluated anew for each.
#[macro_export]
macro_rules! provider_conformance {
    ($make:expr) => {
        $crate::provider_conformance!(@cases $make;
            private_data_goes_both_ways, rejection_carries_private_data, sends_arrive_in_order,
            empty_and_full_messages, solicited_sends, send_with_invalidate, write_is_there_before_the_send,
            write_of_no_octets_to_nowhere, writes_at_every_offset, read_large, more_reads_than_depth, read_of_no_octets,
            completions_keep_order, both_directions_at_once, write_out_of_bounds, write_that_wraps, write_to_source,
            write_to_unknown, write_to_read_sink, write_after_invalidate, read_out_of_bounds, read_of_sink,
            read_of_unknown, invalidate_of_unknown, invalidate_of_read_sink, send_without_receive,
            send_longer_than_receive, local_error_in_read, memory_must_suit_access, disconnect_in_order,
            after_disconnect, peer_dropped, handles_are_unpredictable, invalidate_waits_for_reads
        );
    };
    (@cases $make:expr; $($case:ident),*) => {$(
        #[tokio::test]
        async fn $case() {
            let (connector, listener) = $make.await;
            $crate::provider::conformance::$case(connector, listener).await;
        }
    )*};
}

/// One end, and the completions that have not been looked at.
pub struct End<Q> {
    pub queue_pair: Option<Q>,
    pub completions: VecDeque<Completion>,
    next_id: u64,
}

impl<Q: QueuePair> End<Q> {
    fn new(queue_pair: Q) -> Self {
        Self { queue_pair: Some(queue_pair), completions: VecDeque::new(), next_id: 1 }
    }

    fn qp(&mut self) -> &mut Q {
        self.queue_pair.as_mut().expect("the queue pair was dropped")
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    pub fn sink(&mut self, len: usize, access: Access) -> Region {
        self.qp().register(Memory::Sink(vec![0xee; len].into()), access).expect("register a sink")
    }

    pub fn source(&mut self, octets: impl Into<Bytes>) -> Region {
        self.qp().register(Memory::Source(octets.into()), Access::RemoteRead).expect("register a source")
    }

    pub fn send(&mut self, octets: &[u8], invalidate: Option<Handle>) -> WrId {
        let (id, message) = (self.id(), message(octets));
        self.qp().post(WorkRequest::Send { id, message, invalidate, solicited: false });
        id
    }

    pub fn write(&mut self, octets: impl Into<Bytes>, region: Region, at: u64) -> WrId {
        let (id, source) = (self.id(), octets.into());
        self.qp().post(WorkRequest::Write { id, source, remote: remote(region, at) });
        id
    }

    pub fn read(&mut self, sink: Region, sink_offset: u64, from: Region, at: u64, len: u32) -> WrId {
        let id = self.id();
        self.qp().post(WorkRequest::Read { id, sink: sink.handle, sink_offset, remote: remote(from, at), len });
        id
    }

    pub fn invalidate(&mut self, handle: Handle) -> WrId {
        let id = self.id();
        self.qp().post(WorkRequest::Invalidate { id, handle });
        id
    }

    fn poll(&mut self, cx: &mut std::task::Context<'_>) {
        let Some(queue_pair) = &mut self.queue_pair else { return };
        let mut completions = Vec::new();
        while queue_pair.poll(cx, &mut completions).is_ready() {
            assert!(!completions.is_empty(), "Ready without a completion");
            self.completions.extend(completions.drain(..));
        }
        assert!(completions.is_empty(), "Pending with a completion");
    }
}

/// The peer's memory, `at` octets from a region's start.
#[must_use]
pub fn remote(region: Region, at: u64) -> RemoteMemory {
    RemoteMemory { handle: region.handle, offset: region.base.wrapping_add(at) }
}

/// A message with these octets.
#[must_use]
pub fn message(octets: &[u8]) -> MessageBuf {
    let mut message = MessageBuf::new(PayloadBuf::from(vec![0; octets.len()]), 0);
    message.append(octets);
    message
}

/// Octets that tell where they come from.
#[must_use]
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251 + seed * 7) % 256) as u8).collect()
}

/// Both ends of a connection, driven together.
pub struct Pair<A, B> {
    pub client: End<A>,
    pub server: End<B>,
}

impl<A: QueuePair, B: QueuePair> Pair<A, B> {
    pub async fn client(&mut self) -> Completion {
        self.next(|pair| &mut pair.client.completions).await
    }

    pub async fn server(&mut self) -> Completion {
        self.next(|pair| &mut pair.server.completions).await
    }

    async fn next(&mut self, queue: impl Fn(&mut Self) -> &mut VecDeque<Completion>) -> Completion {
        let next = poll_fn(|cx| {
            self.client.poll(cx);
            self.server.poll(cx);
            queue(self).pop_front().map_or(Poll::Pending, Poll::Ready)
        });
        tokio::time::timeout(LIMIT, next).await.expect("a completion in time")
    }

    async fn client_received(&mut self) -> Vec<u8> {
        match self.client().await {
            Completion::Received { message, .. } => message.to_vec(),
            other => panic!("a message was due at the client, {other:?} came"),
        }
    }

    async fn server_received(&mut self) -> Vec<u8> {
        match self.server().await {
            Completion::Received { message, .. } => message.to_vec(),
            other => panic!("a message was due at the server, {other:?} came"),
        }
    }

    /// The connection ends at both ends; what each says. Anything but failures in between is a fault.
    async fn both_end(&mut self) -> (DisconnectReason, DisconnectReason) {
        let mut reasons = Vec::new();
        for at_client in [true, false] {
            reasons.push(loop {
                match if at_client { self.client().await } else { self.server().await } {
                    Completion::Disconnected { reason } => break reason,
                    Completion::Failed { .. } | Completion::Sent { .. } | Completion::Written { .. } => {}
                    other => panic!("the end was due, {other:?} came"),
                }
            });
        }
        let server = reasons.pop().unwrap();
        (reasons.pop().unwrap(), server)
    }

    /// The server refuses what the client did.
    async fn server_refuses(&mut self) {
        let (client, server) = self.both_end().await;
        assert!(matches!(server, DisconnectReason::PeerViolation(_)), "the server says: {server:?}");
        let told = matches!(client, DisconnectReason::ReportedByPeer(_) | DisconnectReason::Transport(_));
        assert!(told || client == DisconnectReason::Remote, "the client says: {client:?}");
    }
}

fn params() -> SetupParams {
    SetupParams { timeout: LIMIT, ..SetupParams::default() }
}

/// Connects and accepts.
pub async fn connect<C: Connector, L: Listener>(
    connector: &C,
    listener: &L,
    client: SetupParams,
    server: SetupParams,
) -> (Connected<C::QueuePair>, Connected<L::QueuePair>) {
    let accept = async {
        let incoming = listener.accept().await.expect("accept");
        incoming.request(LIMIT).await.expect("request").accept(server).await.expect("accepted")
    };
    let (client, server) = tokio::join!(connector.connect(listener.local_addr(), client), accept);
    (client.expect("connect"), server)
}

async fn pair<C: Connector, L: Listener>(connector: C, listener: L) -> Pair<C::QueuePair, L::QueuePair> {
    pair_with(connector, listener, params(), params()).await
}

async fn pair_with<C: Connector, L: Listener>(
    connector: C,
    listener: L,
    client: SetupParams,
    server: SetupParams,
) -> Pair<C::QueuePair, L::QueuePair> {
    let (client, server) = connect(&connector, &listener, client, server).await;
    Pair { client: End::new(client.queue_pair), server: End::new(server.queue_pair) }
}

fn sink_of(completion: Completion, id: WrId) -> Vec<u8> {
    match completion {
        Completion::Invalidated { id: got, memory: Memory::Sink(sink) } if got == id => sink.to_vec(),
        other => panic!("the sink of {id:?} was due back, {other:?} came"),
    }
}

pub async fn private_data_goes_both_ways<C: Connector, L: Listener>(connector: C, listener: L) {
    let client = SetupParams { private_data: Bytes::from(vec![1; 196]), ..params() };
    let server = SetupParams { private_data: Bytes::from_static(b"hello"), ..params() };
    let (client, server) = connect(&connector, &listener, client, server).await;
    assert_eq!(client.private_data, b"hello"[..]);
    assert_eq!(server.private_data, [1; 196][..]);
    assert_eq!(client.peer_addr, listener.local_addr());
    assert_eq!(client.local_addr, server.peer_addr);
}

pub async fn rejection_carries_private_data<C: Connector, L: Listener>(connector: C, listener: L) {
    let reject = async {
        let request = listener.accept().await.expect("accept").request(LIMIT).await.expect("request");
        assert_eq!(request.private_data(), b"let me in");
        request.reject(Bytes::from_static(b"no room")).await.expect("reject");
    };
    let client = SetupParams { private_data: Bytes::from_static(b"let me in"), ..params() };
    let (result, ()) = tokio::join!(connector.connect(listener.local_addr(), client), reject);
    match result {
        Err(SetupError::Rejected { private_data }) => assert_eq!(private_data, b"no room"[..]),
        other => panic!("rejection was due, {:?} came", other.map(|_| ())),
    }
}

pub async fn sends_arrive_in_order<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    for round in 0..8 {
        let ids: Vec<_> = (0..32).map(|i| pair.client.send(&pattern(i * 40, round), None)).collect();
        for i in 0..32 {
            assert_eq!(pair.server_received().await, pattern(i * 40, round));
        }
        for id in ids {
            assert!(matches!(pair.client().await, Completion::Sent { id: got } if got == id));
        }
        pair.server.qp().post_receives(32);
        let id = pair.server.send(b"more", None);
        assert_eq!(pair.client_received().await, b"more");
        assert!(matches!(pair.server().await, Completion::Sent { id: got } if got == id));
        pair.client.qp().post_receives(1);
    }
}

pub async fn empty_and_full_messages<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = SetupParams { receive_size: 300_000, receive_count: 4, ..params() };
    let mut pair = pair_with(connector, listener, params(), server).await;
    for len in [0, 1, 299_999, 300_000] {
        pair.client.send(&pattern(len, 1), None);
        assert!(matches!(pair.client().await, Completion::Sent { .. }));
        assert_eq!(pair.server_received().await, pattern(len, 1));
    }
}

pub async fn solicited_sends<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(8, Access::RemoteWrite);
    for invalidate in [None, Some(region.handle)] {
        let request = WorkRequest::Send { id: WrId(900), message: message(b"wake up"), invalidate, solicited: true };
        pair.client.qp().post(request);
        match pair.server().await {
            Completion::Received { message, invalidated } => {
                assert_eq!(*message, b"wake up"[..]);
                assert_eq!(invalidated, invalidate);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub async fn send_with_invalidate<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    if !pair.client.qp().remote_invalidation() {
        return;
    }
    let region = pair.client.sink(100, Access::RemoteWrite);
    pair.client.send(b"write here", None);
    assert_eq!(pair.server_received().await, b"write here");
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    pair.server.write(vec![5; 100], region, 0);
    pair.server.send(b"done", Some(region.handle));
    match pair.client().await {
        Completion::Received { message, invalidated } => {
            assert_eq!(*message, b"done"[..]);
            assert_eq!(invalidated, Some(region.handle));
        }
        other => panic!("{other:?}"),
    }
    let id = pair.client.invalidate(region.handle);
    assert_eq!(sink_of(pair.client().await, id), vec![5; 100]);
    // A second invalidation names nothing any more.
    for _ in 0..2 {
        assert!(matches!(pair.server().await, Completion::Written { .. } | Completion::Sent { .. }));
    }
    pair.server.send(b"again", Some(region.handle));
    let (client, _) = pair.both_end().await;
    assert!(matches!(client, DisconnectReason::PeerViolation(_)), "{client:?}");
}

pub async fn write_is_there_before_the_send<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(3_000_001, 3);
    let region = pair.server.sink(data.len(), Access::RemoteWrite);
    pair.client.write(data.clone(), region, 0);
    pair.client.send(b"there", None);
    assert_eq!(pair.server_received().await, b"there");
    let id = pair.server.invalidate(region.handle);
    assert!(sink_of(pair.server().await, id) == data, "the octets differ");
    assert!(matches!(pair.client().await, Completion::Written { .. }));
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    assert_eq!(pair.client.qp().copied_payload(), 0, "payload copied at the source");
    assert_eq!(pair.server.qp().copied_payload(), 0, "payload copied at the sink");
}

pub async fn write_of_no_octets_to_nowhere<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let nowhere = Region { handle: Handle(1), base: u64::MAX };
    pair.client.write(Bytes::new(), nowhere, 0);
    assert!(matches!(pair.client().await, Completion::Written { .. }));
    pair.client.send(b"still here", None);
    assert_eq!(pair.server_received().await, b"still here");
}

pub async fn writes_at_every_offset<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(64, Access::RemoteWrite);
    let mut expected = vec![0xee; 64];
    for at in 0..64_usize {
        let octets = pattern((at * 5) % (64 - at) + 1, at);
        expected[at..at + octets.len()].copy_from_slice(&octets);
        pair.client.write(octets, region, at as u64);
    }
    pair.client.send(b"", None);
    assert_eq!(pair.server_received().await, b"");
    let id = pair.server.invalidate(region.handle);
    assert_eq!(sink_of(pair.server().await, id), expected);
}

pub async fn read_large<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(2_500_003, 9);
    let source = pair.server.source(data.clone());
    let sink = pair.client.sink(data.len() + 10, Access::ReadSink);
    let id = pair.client.read(sink, 7, source, 0, data.len() as u32);
    assert!(matches!(pair.client().await, Completion::Read { id: got } if got == id));
    let id = pair.client.invalidate(sink.handle);
    let landed = sink_of(pair.client().await, id);
    assert!(landed[7..7 + data.len()] == data, "the octets differ");
    assert_eq!((&landed[..7], &landed[7 + data.len()..]), (&[0xee; 7][..], &[0xee; 3][..]));
    let id = pair.server.invalidate(source.handle);
    match pair.server().await {
        Completion::Invalidated { id: got, memory: Memory::Source(memory) } if got == id => assert!(memory == data),
        other => panic!("{other:?}"),
    }
    assert_eq!(pair.client.qp().copied_payload() + pair.server.qp().copied_payload(), 0, "payload copied");
}

pub async fn more_reads_than_depth<C: Connector, L: Listener>(connector: C, listener: L) {
    let client = SetupParams { initiator_depth: 3, ..params() };
    let server = SetupParams { responder_resources: 2, ..params() };
    let mut pair = pair_with(connector, listener, client, server).await;
    let depth = pair.client.qp().max_reads();
    assert!((1..=2).contains(&depth), "{depth} RDMA Reads under way, and the peer serves 2");
    let data = pattern(50_000, 2);
    let source = pair.server.source(data.clone());
    let sink = pair.client.sink(data.len(), Access::ReadSink);
    let ids: Vec<_> = (0..50).map(|i| pair.client.read(sink, i * 1000, source, i * 1000, 1000)).collect();
    for id in ids {
        assert!(matches!(pair.client().await, Completion::Read { id: got } if got == id));
    }
    let id = pair.client.invalidate(sink.handle);
    assert!(sink_of(pair.client().await, id) == data, "the octets differ");
}

pub async fn read_of_no_octets<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.client.sink(4, Access::ReadSink);
    let id = pair.client.read(sink, 4, Region { handle: Handle(77), base: 99 }, 0, 0);
    assert!(matches!(pair.client().await, Completion::Read { id: got } if got == id));
}

pub async fn completions_keep_order<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let source = pair.server.source(pattern(400_000, 0));
    let sink = pair.client.sink(400_000, Access::ReadSink);
    let target = pair.server.sink(10, Access::RemoteWrite);
    let read = pair.client.read(sink, 0, source, 0, 400_000);
    let write = pair.client.write(vec![1; 10], target, 0);
    let send = pair.client.send(b"last", None);
    assert!(matches!(pair.client().await, Completion::Read { id } if id == read));
    assert!(matches!(pair.client().await, Completion::Written { id } if id == write));
    assert!(matches!(pair.client().await, Completion::Sent { id } if id == send));
    assert_eq!(pair.server_received().await, b"last");
}

pub async fn both_directions_at_once<C: Connector, L: Listener>(connector: C, listener: L) {
    const LEN: usize = 700_001;
    let mut pair = pair(connector, listener).await;
    for round in 0..6 {
        let (c_source, s_source) =
            (pair.client.source(pattern(LEN, round)), pair.server.source(pattern(LEN, round + 1)));
        let (c_sink, s_sink) = (pair.client.sink(LEN, Access::ReadSink), pair.server.sink(LEN, Access::ReadSink));
        let (c_target, s_target) =
            (pair.client.sink(LEN, Access::RemoteWrite), pair.server.sink(LEN, Access::RemoteWrite));
        pair.client.read(c_sink, 0, s_source, 0, LEN as u32);
        pair.server.read(s_sink, 0, c_source, 0, LEN as u32);
        pair.client.write(pattern(LEN, round + 2), s_target, 0);
        pair.server.write(pattern(LEN, round + 3), c_target, 0);
        pair.client.send(b"from the client", None);
        pair.server.send(b"from the server", None);
        for at_client in [true, false] {
            let (mut read, mut written, mut sent, mut received) = (0, 0, 0, 0);
            for _ in 0..4 {
                match if at_client { pair.client().await } else { pair.server().await } {
                    Completion::Read { .. } => read += 1,
                    Completion::Written { .. } => written += 1,
                    Completion::Sent { .. } => sent += 1,
                    Completion::Received { .. } => received += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((read, written, sent, received), (1, 1, 1, 1));
        }
        let id = pair.client.invalidate(c_sink.handle);
        assert!(sink_of(pair.client().await, id) == pattern(LEN, round + 1));
        let id = pair.server.invalidate(s_sink.handle);
        assert!(sink_of(pair.server().await, id) == pattern(LEN, round));
        let id = pair.client.invalidate(c_target.handle);
        assert!(sink_of(pair.client().await, id) == pattern(LEN, round + 3));
        let id = pair.server.invalidate(s_target.handle);
        assert!(sink_of(pair.server().await, id) == pattern(LEN, round + 2));
        pair.client.qp().post_receives(1);
        pair.server.qp().post_receives(1);
    }
    assert_eq!(pair.client.qp().copied_payload() + pair.server.qp().copied_payload(), 0, "payload copied");
}

/// The client writes where it may not; the server refuses, and the memory is as it was.
async fn bad_write<A: QueuePair, B: QueuePair>(mut pair: Pair<A, B>, to: Region, at: u64, witness: Option<Region>) {
    pair.client.write(vec![9; 20], to, at);
    pair.server_refuses().await;
    if let Some(witness) = witness {
        let id = pair.server.invalidate(witness.handle);
        assert_eq!(sink_of(pair.server().await, id), vec![0xee; 32], "memory was changed");
    }
}

pub async fn write_out_of_bounds<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    bad_write(pair, region, 13, Some(region)).await;
}

pub async fn write_that_wraps<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    let at = (u64::MAX - 9).wrapping_sub(region.base);
    bad_write(pair, region, at, Some(region)).await;
}

pub async fn write_to_source<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.source(vec![0; 32]);
    bad_write(pair, region, 0, None).await;
}

pub async fn write_to_unknown<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    let other = Region { handle: Handle(region.handle.0 ^ 0x0101_0101), ..region };
    bad_write(pair, other, 0, Some(region)).await;
}

pub async fn write_to_read_sink<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::ReadSink);
    bad_write(pair, region, 0, Some(region)).await;
}

pub async fn write_after_invalidate<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    let id = pair.server.invalidate(region.handle);
    assert_eq!(sink_of(pair.server().await, id), vec![0xee; 32]);
    bad_write(pair, region, 0, None).await;
}

async fn bad_read<A: QueuePair, B: QueuePair>(mut pair: Pair<A, B>, from: Region, at: u64) {
    let sink = pair.client.sink(32, Access::ReadSink);
    let read = pair.client.read(sink, 0, from, at, 20);
    match pair.client().await {
        Completion::Failed { id, error: WorkError::RemoteAccess(_) | WorkError::Flushed } => assert_eq!(id, read),
        other => panic!("{other:?}"),
    }
    pair.server_refuses().await;
    let id = pair.client.invalidate(sink.handle);
    assert_eq!(sink_of(pair.client().await, id), vec![0xee; 32]);
}

pub async fn read_out_of_bounds<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.source(vec![1; 32]);
    bad_read(pair, region, 13).await;
}

pub async fn read_of_sink<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    bad_read(pair, region, 0).await;
}

pub async fn read_of_unknown<C: Connector, L: Listener>(connector: C, listener: L) {
    let pair = pair(connector, listener).await;
    bad_read(pair, Region { handle: Handle(3), base: 0 }, 0).await;
}

pub async fn invalidate_of_unknown<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    pair.client.send(b"x", Some(Handle(12345)));
    pair.server_refuses().await;
}

pub async fn invalidate_of_read_sink<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.server.sink(32, Access::ReadSink);
    pair.client.send(b"x", Some(sink.handle));
    pair.server_refuses().await;
}

pub async fn send_without_receive<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = SetupParams { receive_count: 1, ..params() };
    let mut pair = pair_with(connector, listener, params(), server).await;
    pair.client.send(b"one", None);
    assert_eq!(pair.server_received().await, b"one");
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    pair.client.send(b"two", None);
    pair.server_refuses().await;
}

pub async fn send_longer_than_receive<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = SetupParams { receive_size: 64, ..params() };
    let mut pair = pair_with(connector, listener, params(), server).await;
    pair.client.send(&[1; 64], None);
    assert_eq!(pair.server_received().await, [1; 64]);
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    pair.client.send(&[1; 65], None);
    pair.server_refuses().await;
}

pub async fn local_error_in_read<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let source = pair.server.source(vec![1; 32]);
    let sink = pair.client.sink(32, Access::ReadSink);
    let read = pair.client.read(sink, 16, source, 0, 17);
    match pair.client().await {
        Completion::Failed { id, error: WorkError::Local(_) } => assert_eq!(id, read),
        other => panic!("{other:?}"),
    }
    let (client, _) = pair.both_end().await;
    assert_eq!(client, DisconnectReason::Local);
}

pub async fn memory_must_suit_access<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    for access in [Access::RemoteWrite, Access::ReadSink] {
        let error = pair.client.qp().register(Memory::Source(Bytes::from_static(b"const")), access).unwrap_err();
        assert!(matches!(error.memory, Memory::Source(memory) if memory == b"const"[..]));
    }
}

pub async fn disconnect_in_order<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(1_000_000, 4);
    let target = pair.server.sink(data.len(), Access::RemoteWrite);
    let write = pair.client.write(data.clone(), target, 0);
    let send = pair.client.send(b"bye", None);
    pair.client.qp().disconnect();
    assert!(matches!(pair.client().await, Completion::Written { id } if id == write));
    assert!(matches!(pair.client().await, Completion::Sent { id } if id == send));
    assert_eq!(pair.server_received().await, b"bye");
    let (client, server) = pair.both_end().await;
    assert_eq!((client, server), (DisconnectReason::Local, DisconnectReason::Remote));
    let id = pair.server.invalidate(target.handle);
    assert!(sink_of(pair.server().await, id) == data, "the octets differ");
}

pub async fn after_disconnect<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.client.sink(16, Access::RemoteWrite);
    pair.server.qp().disconnect();
    let (client, server) = pair.both_end().await;
    assert_eq!((client, server), (DisconnectReason::Remote, DisconnectReason::Local));
    let send = pair.client.send(b"too late", None);
    match pair.client().await {
        Completion::Failed { id, error } => assert_eq!((id, error), (send, WorkError::Flushed)),
        other => panic!("{other:?}"),
    }
    assert!(pair.client.qp().register(Memory::Source(Bytes::new()), Access::RemoteRead).is_err());
    let id = pair.client.invalidate(sink.handle);
    assert_eq!(sink_of(pair.client().await, id), vec![0xee; 16]);
}

pub async fn peer_dropped<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.client.sink(16, Access::ReadSink);
    // Nobody serves this one.
    let read = pair.client.read(sink, 0, Region { handle: Handle(5), base: 0 }, 0, 16);
    let send = pair.client.send(b"?", None);
    let back = pair.client.invalidate(sink.handle);
    pair.server.queue_pair = None;
    let mut flushed = Vec::new();
    let reason = loop {
        match pair.client().await {
            Completion::Failed { id, error: WorkError::Flushed } => flushed.push(id),
            Completion::Sent { id } => assert_eq!(id, send),
            Completion::Invalidated { id, .. } => assert_eq!((id, &flushed[..1]), (back, &[read][..])),
            Completion::Disconnected { reason } => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(flushed.contains(&read));
    assert!(matches!(reason, DisconnectReason::Remote | DisconnectReason::Transport(_)), "{reason:?}");
}

pub async fn handles_are_unpredictable<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let mut handles: Vec<u32> = (0..200)
        .map(|_| {
            let region = pair.client.source(vec![0; 8]);
            pair.client.invalidate(region.handle);
            region.handle.0
        })
        .collect();
    let steps: Vec<u32> = handles.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    let repeated = steps.iter().filter(|step| steps.iter().filter(|s| s == step).count() > 2).count();
    assert!(repeated < 20, "handles follow each other in regular steps");
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), 200, "a handle came again too soon");
}

pub async fn invalidate_waits_for_reads<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(5_000_000, 8);
    let source = pair.server.source(data.clone());
    let sink = pair.client.sink(data.len(), Access::ReadSink);
    let read = pair.client.read(sink, 0, source, 0, data.len() as u32);
    let back = pair.client.invalidate(sink.handle);
    assert!(matches!(pair.client().await, Completion::Read { id } if id == read), "the Read completes first");
    assert!(sink_of(pair.client().await, back) == data, "the octets differ");
}
