//! Tests of served calls without a connection.
#![allow(clippy::unwrap_used)]

use std::{
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;

use super::*;
use crate::{
    engine::{
        CloseReason, EngineConfig, ProtocolViolation, Role,
        common::{
            chunks::RdmaSegment,
            lists::{ReadSegment, SinkChunk},
            shared::ConnectionRules,
            work::PostedFor,
        },
        message_buf,
        responder::{
            arrivals::CallRejection,
            responses::{ReadyReply, ReadyResponse},
        },
    },
    memory::{MemoryBudget, MemoryShare, Output as _},
    provider::{
        Access, Completion,
        sim::{self, SimConfig, SimQueuePair},
    },
};

fn message(len: usize) -> MessageBuf {
    let mut message = message_buf(&EngineConfig::default().pool, len);
    message.append_zeros(len);
    message
}

/// Accepts and answers calls with these XIDs. Returns their slots.
fn answered(xids: &[u32], served: &mut ServedCalls, shared: &mut EngineShared) -> Vec<u32> {
    for &xid in xids {
        assert!(served.take_plain(xid, message(24), 100, shared));
        let Some(EngineEvent::CallArrived(call)) = shared.events.pop_front() else { panic!("no call") };
        let reply = OutgoingReply { message: message(24), reduced: Default::default() };
        served.set_response(call.token, OutgoingResponse::Reply(reply));
    }
    let slots: Vec<_> = xids.iter().map(|_| served.take_plain_reply().unwrap().0).collect();
    assert!(!served.is_next_answered());
    slots
}

fn delivered(shared: &mut EngineShared) -> Vec<bool> {
    let events = shared.events.drain(..).map(|event| match event {
        EngineEvent::ReplySent { delivered, .. } => delivered,
        other => panic!("{other:?}"),
    });
    events.collect()
}

/// The completion of a Send ends the replies whose Sends were posted before. Only the reply of a failed Send is lost.
#[test]
fn a_completion_ends_earlier_replies() {
    let mut shared = EngineShared::new(EngineConfig::default(), ConnectionRules::without_header(Role::Server));
    let mut served = ServedCalls::default();
    let slots = answered(&[1, 2, 3, 4], &mut served, &mut shared);
    assert_eq!(served.sent(slots[2], true, &mut shared), 3);
    assert_eq!(delivered(&mut shared), [true; 3]);
    assert_eq!(served.sent(slots[3], true, &mut shared), 1);
    assert_eq!(delivered(&mut shared), [true]);

    let slots = answered(&[1, 2, 3], &mut served, &mut shared);
    assert_eq!((served.sent(slots[1], false, &mut shared), delivered(&mut shared)), (2, vec![true, false]));
    served.disconnected(&mut shared);
    assert_eq!(delivered(&mut shared), [false]);
    // A completion that comes after the loss of the connection ends nothing.
    assert_eq!(served.sent(slots[2], false, &mut shared), 0);
    assert!(served.is_idle() && shared.events.is_empty());
}

/// A reply is plain if it is long enough for an RPC message and fits in one Send.
#[test]
fn plain_replies_fit_in_one_send() {
    let mut shared = EngineShared::new(EngineConfig::default(), ConnectionRules::without_header(Role::Server));
    let mut served = ServedCalls::default();
    for (len, is_plain) in [(4, false), (8, true), (100, true), (101, false)] {
        assert!(served.take_plain(len, message(24), 100, &mut shared));
        let Some(EngineEvent::CallArrived(call)) = shared.events.pop_front() else { panic!("no call") };
        let reply = OutgoingReply { message: message(len as usize), reduced: Default::default() };
        served.set_response(call.token, OutgoingResponse::Reply(reply));
        assert!(served.is_next_answered());
        assert_eq!(served.take_plain_reply().is_some(), is_plain, "{len} bytes");
        assert_eq!(served.waiting(), usize::from(!is_plain));
        served.outgoing.clear();
    }
}

/// A responder and the queue pair of its requester.
struct Responder {
    served: ServedCalls,
    shared: EngineShared,
    qp: SimQueuePair,
    peer: SimQueuePair,
}

impl Responder {
    fn new(max_reads: u32, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let mut config = EngineConfig::default();
        change(&mut config);
        let rules = ConnectionRules { lists_offset: 16, ..ConnectionRules::without_header(Role::Server) };
        let mut shared = EngineShared::new(config, rules);
        (shared.send_threshold, shared.max_transfer) = (4096, u32::MAX);
        let mut sim = SimConfig::default();
        sim.ends[0].max_reads = max_reads;
        let (qp, peer, _) = sim::pair(sim);
        Self { served: ServedCalls::default(), shared, qp, peer }
    }

    /// Returns a segment of `data`, which the responder may read.
    fn source(&mut self, data: Vec<u8>) -> RdmaSegment {
        let length = data.len() as u32;
        let region = self.peer.register(RegisterableMemory::Source(data.into()), Access::RemoteRead).unwrap();
        RdmaSegment { handle: region.handle, length, offset: region.base }
    }

    /// Delivers a call with this payload stream and these chunks.
    fn accept(
        &mut self,
        xid: u32,
        inline: Option<MessageBuf>,
        continued: bool,
        reads: &[(u32, RdmaSegment)],
        writes: &[RdmaSegment],
    ) -> Result<(), CallRejection> {
        let reads = reads.iter().map(|&(position, segment)| ReadSegment { position, segment }).collect();
        let writes = writes.iter().map(|&segment| [segment].into_iter().collect::<SinkChunk>()).collect();
        let lists = ChunkLists { reads, writes, reply: None };
        self.served.accept(ArrivingCall { xid, inline, continued, lists, invalidate: None }, &mut self.shared)
    }

    /// Delivers a call with an inline payload stream and a Read chunk.
    fn read_call(&mut self, xid: u32, len: usize) {
        let segment = self.source(vec![xid as u8; len]);
        self.accept(xid, Some(call_message(xid, 40)), false, &[(20, segment)], &[]).unwrap();
    }

    fn fetch(&mut self) {
        self.served.fetch_chunks(&mut self.qp, &mut self.shared);
    }

    fn completions(&mut self) -> Vec<Completion> {
        self.shared.flush(&mut self.qp);
        let mut completions = Vec::new();
        let _ = self.qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions);
        completions
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Read { id } => match PostedFor::of(id) {
                Some(PostedFor::FetchRead { slot, part }) => self.served.read_done(slot, part, &mut self.shared),
                other => panic!("{other:?}"),
            },
            Completion::Invalidated { id, memory } => match PostedFor::of(id) {
                Some(PostedFor::FetchInvalidate { slot, part }) => {
                    if self.served.sink_returned(slot, part, Some(memory), &mut self.shared) {
                        self.served.arrived(slot, &mut self.shared);
                    }
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Fetches Read chunks while there is memory for them. Returns the number of RDMA Reads.
    fn fetch_all(&mut self) -> usize {
        let mut reads = 0;
        loop {
            self.fetch();
            let completions = self.completions();
            if completions.is_empty() {
                return reads;
            }
            for completion in completions {
                reads += usize::from(matches!(completion, Completion::Read { .. }));
                self.complete(completion);
            }
        }
    }

    fn arrived(&mut self) -> Option<IncomingCall> {
        match self.shared.events.pop_front()? {
            EngineEvent::CallArrived(call) => Some(call),
            other => panic!("{other:?}"),
        }
    }

    /// Passes a reply to the call, and takes the reply as the next response to send. Returns the slot of the call.
    fn answer(&mut self, token: ReplyToken) -> u32 {
        let reply = OutgoingReply { message: message(24), reduced: Default::default() };
        self.served.set_response(token, OutgoingResponse::Reply(reply));
        match self.served.next_response(1, &mut self.qp, &mut self.shared) {
            Some(ReadyResponse::Reply(ReadyReply { slot, .. })) => slot,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a payload stream of `len` bytes that is a call.
fn call_message(xid: u32, len: usize) -> MessageBuf {
    let mut message = message_buf(&EngineConfig::default().pool, len);
    [xid, CALL].iter().for_each(|word| message.append_u32(*word));
    message.append_zeros(len - 8);
    message
}

/// Fetched data counts against the limit of the connection from the RDMA Reads to the reply, and against the memory
/// budget until it is dropped. A message that arrived in several Sends counts as well. Other calls do not count.
#[test]
fn fetched_data_counts_until_the_reply() {
    let budget = MemoryBudget::new(80_000);
    let mut server = Responder::new(16, |config| config.budget = Some(budget.account(1)));
    server.read_call(1, 50);
    assert_eq!((server.served.fetched(), server.served.held()), (0, 1));
    assert!(server.served.has_fetches() && server.served.is_receiving());
    server.fetch();
    assert_eq!((server.served.fetched(), budget.held()), (50, 50));
    assert!(!server.served.is_idle() && server.served.is_receiving());
    assert_eq!(server.fetch_all(), 1);
    assert!(server.served.is_idle() && !server.served.is_receiving() && !server.served.has_fetches());
    let first = server.arrived().unwrap();
    assert_eq!((first.reads()[0].position, &first.reads()[0].data), (20, &Bytes::from(vec![1; 50])));
    assert_eq!((server.served.fetched(), budget.held()), (50, 50));
    // A call without chunks, and one that has only a Write chunk.
    server.served.accept_plain(2, call_message(2, 40), &mut server.shared).unwrap();
    let sink = server.source(vec![0; 8]);
    server.accept(3, Some(call_message(3, 40)), false, &[], &[sink]).unwrap();
    assert!(!server.served.has_fetches());
    for _ in 0..2 {
        let plain = server.arrived().unwrap();
        assert_eq!(plain.payload.as_slice().len(), 40);
        server.answer(plain.token);
    }
    assert_eq!((server.served.fetched(), server.served.held()), (50, 1));
    server.answer(first.token);
    assert_eq!((server.served.fetched(), server.served.held(), budget.held()), (0, 0, 50));
    drop(first);
    assert_eq!(budget.held(), 0);

    // A message that arrived in several Sends, without and with a Read chunk.
    server.accept(4, Some(call_message(4, 300)), true, &[], &[]).unwrap();
    assert_eq!((server.served.fetched(), budget.held()), (300, 300));
    let plain = server.arrived().unwrap();
    server.answer(plain.token);
    drop(plain);
    assert_eq!((server.served.fetched(), budget.held()), (0, 0));
    let segment = server.source(vec![5; 1]);
    server.accept(5, Some(call_message(5, 300)), true, &[(20, segment)], &[]).unwrap();
    assert_eq!((server.served.fetched(), budget.held()), (300, 0));
    server.fetch();
    assert_eq!((server.served.fetched(), budget.held()), (301, 301));
    assert!(server.arrived().is_none());
    server.fetch_all();
    let call = server.arrived().unwrap();
    assert_eq!((&call.reads()[0].data[..], call.format), (&[5][..], MessageFormat::Continued));
    server.answer(call.token);
    assert_eq!(server.served.fetched(), 0);
}

/// Calls are fetched up to the limit of the connection, to the byte. If the server has no memory, the connection waits
/// in the queue of the memory budget, unless the connection has reached its own limit.
#[test]
fn fetched_data_is_bounded() {
    let mut server = Responder::new(16, |config| config.max_fetched = 100);
    server.read_call(1, 60);
    server.read_call(2, 40);
    server.read_call(3, 1);
    server.fetch_all();
    assert_eq!(server.served.fetched(), 100);
    let calls = [server.arrived().unwrap(), server.arrived().unwrap()];
    assert!(server.arrived().is_none() && server.served.has_fetches());
    server.answer(calls[1].token);
    server.fetch_all();
    assert_eq!((server.arrived().unwrap().xid, server.served.fetched()), (3, 61));

    let budget = MemoryBudget::new(800);
    let others = MemoryShare::of(Some(budget.account(2))).overcommit(800);
    let mut server = Responder::new(16, |config| {
        (config.max_fetched, config.budget) = (100, Some(budget.account(1)));
    });
    let segment = server.source(vec![1; 60]);
    server.accept(1, Some(call_message(1, 40)), false, &[(20, segment)], &[]).unwrap();
    server.fetch();
    // The part for small amounts is too small for it.
    assert_eq!((budget.waiting(), server.served.fetched()), (1, 0));
    server.accept(2, Some(call_message(2, 48)), true, &[], &[]).unwrap();
    server.fetch();
    assert_eq!((budget.waiting(), server.served.fetched()), (0, 48));
    let other = server.arrived().unwrap();
    server.answer(other.token);
    server.fetch();
    assert_eq!(budget.waiting(), 1);
    drop((others, other));
    server.fetch_all();
    assert_eq!((server.arrived().unwrap().xid, budget.waiting()), (1, 0));
}

/// `max_call_len` bounds the data of a call with Read chunks. `max_continued` bounds the message of such a call if it
/// arrives in several Sends, but 64 KiB are always accepted.
#[test]
fn data_of_a_call_is_bounded() {
    let accepts = |continued: Option<usize>, read: u32, max_call_len: u64, max_continued: u32| {
        let mut server = Responder::new(16, |config| {
            (config.max_call_len, config.max_continued) = (max_call_len, max_continued);
        });
        let segment = RdmaSegment { handle: MemoryHandle(7), length: read, offset: 0 };
        let message = call_message(1, continued.unwrap_or(40));
        match server.accept(1, Some(message), continued.is_some(), &[(20, segment)], &[]) {
            Ok(()) => true,
            Err((TransportError::System, _)) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    const ALWAYS: usize = 64 << 10;
    assert!(accepts(None, 5000, 5000, 0) && !accepts(None, 5001, 5000, 0));
    assert!(accepts(Some(ALWAYS), 1, 1 << 20, 0) && !accepts(Some(ALWAYS + 4), 1, 1 << 20, 0));
    assert!(accepts(Some(100_000), 8, 1 << 20, 100_000) && !accepts(Some(100_004), 8, 1 << 20, 100_000));
    assert!(accepts(Some(1000), 4000, 5000, 0) && !accepts(Some(1000), 4001, 5000, 0));
}

/// RDMA Reads are no longer than the provider allows. A Read chunk of more than 8 MiB takes several RDMA Reads, so that
/// each completion shows progress.
#[test]
fn rdma_reads_are_split() {
    for (max_transfer, len, reads) in [(1000, 2500, 3), (1000, 1000, 1), (u32::MAX, (8 << 20) + 1, 2)] {
        let mut server = Responder::new(16, |_| {});
        server.shared.max_transfer = max_transfer;
        server.read_call(1, len);
        assert_eq!(server.fetch_all(), reads, "{len} bytes");
        assert!(server.arrived().unwrap().reads()[0].data == vec![1; len], "{len} bytes");
        assert_eq!(server.shared.counters.rdma_read_bytes, len as u64);
    }
}

/// The deadline of RDMA Reads runs until the last of them has completed, even if it has not been posted yet.
#[test]
fn the_deadline_ends_with_the_last_rdma_read() {
    let now = Instant::now();
    for max_reads in [1, 2] {
        let mut server = Responder::new(max_reads, |config| config.fetch_timeout = Duration::from_secs(9));
        server.shared.max_transfer = 10;
        let empty = RdmaSegment { handle: MemoryHandle(9), length: 0, offset: 0 };
        let reads = [(20, server.source(vec![1; 20])), (40, empty)];
        server.accept(1, Some(call_message(1, 40)), false, &reads, &[]).unwrap();
        server.fetch();
        assert_eq!(server.served.stalled_at(), None);
        server.served.watch_fetches(now, &server.shared);
        assert_eq!(server.served.stalled_at(), Some(now + Duration::from_secs(9)));
        let mut completions = server.completions();
        assert_eq!(completions.len(), max_reads as usize);
        server.complete(completions.remove(0));
        assert_eq!(server.served.stalled_at(), Some(now + Duration::from_secs(9)), "{max_reads}");
        if max_reads == 1 {
            server.fetch();
            completions = server.completions();
        }
        server.complete(completions.remove(0));
        assert_eq!(server.served.stalled_at(), None, "{max_reads}");
    }
}

/// Nothing is left of the calls of a lost connection after their memory has been deregistered.
#[test]
fn lost_connections_leave_nothing() {
    let budget = MemoryBudget::new(80_000);
    let mut server = Responder::new(1, |config| config.budget = Some(budget.account(1)));
    server.served.accept_plain(1, call_message(1, 40), &mut server.shared).unwrap();
    server.read_call(2, 10);
    server.fetch_all();
    let calls = [server.arrived().unwrap(), server.arrived().unwrap()];
    server.served.accept_plain(3, call_message(3, 40), &mut server.shared).unwrap();
    let plain = server.arrived().unwrap();
    let reply = OutgoingReply { message: message(24), reduced: Default::default() };
    server.served.set_response(plain.token, OutgoingResponse::Reply(reply));
    // One is being read, one has registered memory, and one waits for memory.
    let others = MemoryShare::of(Some(budget.account(2)));
    server.read_call(4, 20);
    server.read_call(5, 20);
    server.fetch();
    server.served.watch_fetches(Instant::now(), &server.shared);
    let held = others.overcommit(80_000);
    let segment = server.source(vec![1; 10_000]);
    server.accept(6, Some(call_message(6, 300)), true, &[(20, segment)], &[]).unwrap();
    server.fetch();
    assert_eq!((budget.waiting(), server.served.waiting(), server.served.held()), (1, 1, 6));
    assert!(server.served.stalled_at().is_some());

    server.served.disconnected(&mut server.shared);
    assert_eq!(delivered(&mut server.shared), [false; 3]);
    let served = &server.served;
    assert_eq!((budget.waiting(), served.waiting(), served.held(), served.fetched()), (0, 0, 0, 0));
    assert!(!served.has_fetches() && served.stalled_at().is_none());
    assert!((1..7).all(|xid| !served.has_xid(xid)));
    // Only the calls whose memory is registered are left.
    assert_eq!((served.calls.len(), served.is_idle()), (2, false));
    server.qp.disconnect();
    for completion in server.completions() {
        if let Completion::Invalidated { .. } = completion {
            server.complete(completion);
        }
    }
    assert_eq!((server.served.calls.len(), server.served.is_idle()), (0, true));
    assert!(server.shared.events.is_empty());
    drop((calls, plain, held));
    assert_eq!(budget.held(), 0);
    // A reply to a call that is lost has no effect.
    let reply = OutgoingReply { message: message(24), reduced: Default::default() };
    server.served.set_response(ReplyToken(0), OutgoingResponse::Reply(reply));
    assert_eq!(server.served.waiting(), 0);
}

/// A call with the XID of a call in progress is discarded, whether or not it has chunks.
#[test]
fn xids_in_progress_are_discarded() {
    let mut server = Responder::new(16, |_| {});
    server.read_call(7, 10);
    server.read_call(7, 10);
    server.served.accept_plain(7, call_message(7, 40), &mut server.shared).unwrap();
    assert_eq!((server.shared.counters.messages_discarded, server.shared.counters.calls_received), (2, 1));
    server.fetch_all();
    let call = server.arrived().unwrap();
    assert!(server.served.has_xid(7) && !server.served.has_xid(8) && server.arrived().is_none());
    server.answer(call.token);
    assert!(!server.served.has_xid(7));
}

/// Only the first response to a call counts.
#[test]
fn calls_have_one_response() {
    let mut server = Responder::new(16, |_| {});
    server.served.accept_plain(1, call_message(1, 40), &mut server.shared).unwrap();
    let call = server.arrived().unwrap();
    let slot = server.answer(call.token);
    for _ in 0..2 {
        server.served.set_response(call.token, OutgoingResponse::Refusal(TransportError::System));
        assert_eq!(server.served.waiting(), 0);
    }
    assert_eq!(server.served.sent(slot, true, &mut server.shared), 1);
    assert_eq!(delivered(&mut server.shared), [true]);
    server.served.accept_plain(2, call_message(2, 40), &mut server.shared).unwrap();
    let call = server.arrived().unwrap();
    for _ in 0..2 {
        server.served.set_response(call.token, OutgoingResponse::Refusal(TransportError::System));
        assert_eq!((server.served.waiting(), server.served.held()), (1, 1));
    }
}

/// RFC 8166 §4.5.3: the last four calls whose replies were written to memory of the peer and sent are known, and so are
/// calls whose Sends have not completed.
#[test]
fn the_last_written_replies_are_known() {
    let mut server = Responder::new(16, |_| {});
    let sink = server.source(vec![0; 8]);
    let mut reply = |xid, writes: &[RdmaSegment], is_sent| {
        server.accept(xid, Some(call_message(xid, 40)), false, &[], writes).unwrap();
        let call = server.arrived().unwrap();
        let slot = server.answer(call.token);
        if is_sent {
            server.served.sent(slot, true, &mut server.shared);
            assert_eq!(delivered(&mut server.shared), [true]);
        }
        server.served.written().collect::<Vec<_>>()
    };
    assert_eq!(reply(1, &[sink], true), [1]);
    assert_eq!(reply(2, &[], true), [1], "nothing was written");
    for xid in 3..6 {
        reply(xid, &[sink], true);
    }
    assert_eq!(reply(6, &[sink], true), [3, 4, 5, 6]);
    assert_eq!(reply(7, &[sink], false), [3, 4, 5, 6, 7]);

    // A Reply chunk alone.
    let mut server = Responder::new(16, |_| {});
    let lists = ChunkLists { reply: Some([sink].into_iter().collect()), ..ChunkLists::default() };
    let (inline, continued, invalidate) = (Some(call_message(1, 40)), false, None);
    server.served.accept(ArrivingCall { xid: 1, inline, continued, lists, invalidate }, &mut server.shared).unwrap();
    let call = server.arrived().unwrap();
    let slot = server.answer(call.token);
    server.served.sent(slot, true, &mut server.shared);
    assert_eq!(server.served.written().collect::<Vec<_>>(), [1]);
}

/// RFC 8166 §4.5: a reply in a Position-Zero Read chunk is discarded without an error, and its call is removed.
#[test]
fn replies_in_read_chunks_are_forgotten() {
    let mut server = Responder::new(16, |_| {});
    for (xid, msg_type) in [(1_u32, 1_u32), (2, CALL), (3, 1)] {
        let payload = [xid, msg_type, 9].iter().flat_map(|word| word.to_be_bytes()).collect();
        let segment = server.source(payload);
        server.accept(xid, None, false, &[(0, segment)], &[]).unwrap();
    }
    server.fetch_all();
    let call = server.arrived().unwrap();
    assert_eq!((call.xid, call.format), (2, MessageFormat::Long));
    assert_eq!((server.served.held(), server.served.fetched(), server.served.waiting()), (1, 12, 0));
    assert_eq!((server.served.calls.len(), server.shared.counters.messages_discarded), (1, 2));
    assert!(!server.served.has_xid(1) && server.served.has_xid(2));
}

/// An error closes the connection if the number of queued messages exceeds twice the sum of the credits and 16 spare
/// errors.
#[test]
fn queued_errors_are_bounded() {
    let mut server = Responder::new(16, |config| config.credits = 2);
    for xid in 0..37 {
        server.served.refuse((xid, 1), TransportError::BadXdr, "malformed", &mut server.shared);
    }
    assert_eq!((server.served.waiting(), &server.shared.fault), (37, &None));
    server.served.refuse((37, 1), TransportError::BadXdr, "malformed", &mut server.shared);
    let violation = CloseReason::PeerViolation(ProtocolViolation::TooManyErrors);
    assert_eq!((server.served.waiting(), server.shared.fault), (37, Some(violation)));
}

/// A call that ended an earlier connection is refused once, whether or not it has chunks.
#[test]
fn calls_that_ended_a_connection_are_refused() {
    use crate::engine::interface::failed_calls::{FailedCalls, RefusedCalls};
    let peer = Arc::<FailedCalls>::default().of_peer(1);
    peer.add(1);
    peer.add(2);
    let mut server = Responder::new(16, |_| {});
    server.shared.refused_calls = RefusedCalls::of(Some(&peer));
    let refused = server.served.accept_plain(1, call_message(1, 40), &mut server.shared);
    assert!(matches!(refused, Err((TransportError::System, _))));
    let sink = server.source(vec![0; 8]);
    let refused = server.accept(2, Some(call_message(2, 40)), false, &[], &[sink]);
    assert!(matches!(refused, Err((TransportError::System, _))));
    for xid in 1..3 {
        server.served.accept_plain(xid, call_message(xid, 40), &mut server.shared).unwrap();
    }
    assert_eq!(server.served.held(), 2);
}

/// RFC 8166 §4.3.2.2: a call is served if the header of its reply fits in a Send, with or without room for a payload
/// stream.
#[test]
fn headers_of_replies_fit() {
    for (threshold, is_served) in [(52, true), (51, false)] {
        let mut server = Responder::new(16, |_| {});
        server.shared.send_threshold = threshold;
        let sink = server.source(vec![0; 8]);
        assert_eq!(server.accept(1, Some(call_message(1, 40)), false, &[], &[sink]).is_ok(), is_served, "{threshold}");
    }
    // The upper layer learns what there is for the reply.
    let mut server = Responder::new(16, |_| {});
    let sink = server.source(vec![0; 8]);
    let lists = ChunkLists { reply: Some([sink].into_iter().collect()), ..ChunkLists::default() };
    let (inline, continued, invalidate) = (Some(call_message(1, 40)), false, None);
    server.served.accept(ArrivingCall { xid: 1, inline, continued, lists, invalidate }, &mut server.shared).unwrap();
    let call = server.arrived().unwrap();
    assert_eq!((call.reply().reply_chunk, call.max_inline), (Some(8), 4096 - 28 - 20));
}
