//! The order in which an engine posts work. The queue pair only records the work, and the test decides what completes.

use std::{
    collections::HashMap,
    task::{Context, Poll},
    time::Instant,
};

use rpcrdma_proto::{
    engine::{
        CallFailure, CloseReason, Connection, ConnectionSetup, Engine as _, EngineConfig, EngineEvent, IncomingCall,
        IncomingReply, OutgoingReply, PrivateData, Role, TransportError, Versions,
    },
    memory::{MessageBuf, Output},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, QueuePair, Region, RegisterError, RegisterableMemory,
        WorkError, WorkRequest, WrId,
    },
};

use crate::support::{NO_CHUNKS, Script, plain, with_versions, word};

/// The first XID of the engine.
const XID: u32 = 0x1000;

/// A piece of work that the engine posted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Posted {
    Receives(usize),
    Register,
    /// A Send with its procedure, the fourth word of its header.
    Send(WrId, u32),
    Read(WrId),
    Write(WrId),
    Invalidate(WrId, MemoryHandle),
    Disconnect,
}

impl Posted {
    fn is_send(&self) -> bool {
        matches!(self, Self::Send(..))
    }
}

/// A queue pair that executes nothing.
struct Recorder {
    posted: Vec<Posted>,
    registered: HashMap<MemoryHandle, RegisterableMemory>,
    next_handle: u32,
    max_reads: u32,
    is_open: bool,
    /// Number of payload bytes that the provider reports as copied.
    copied: u64,
}

impl QueuePair for Recorder {
    fn register(&mut self, memory: RegisterableMemory, _access: Access) -> Result<Region, RegisterError> {
        self.next_handle += 1;
        let handle = MemoryHandle(self.next_handle);
        self.registered.insert(handle, memory);
        self.posted.push(Posted::Register);
        Ok(Region { handle, base: 0 })
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn post(&mut self, request: WorkRequest) {
        self.posted.push(match request {
            WorkRequest::Send { id, message, .. } => Posted::Send(id, word(&message, 3)),
            WorkRequest::Read { id, .. } => Posted::Read(id),
            WorkRequest::Write { id, .. } => Posted::Write(id),
            WorkRequest::Invalidate { id, handle } => Posted::Invalidate(id, handle),
        });
    }

    fn post_receives(&mut self, count: usize) {
        self.posted.push(Posted::Receives(count));
    }

    fn poll(&mut self, _cx: &mut Context<'_>, _completions: &mut Vec<Completion>) -> Poll<()> {
        Poll::Pending
    }

    fn disconnect(&mut self) {
        self.posted.push(Posted::Disconnect);
    }

    fn max_reads(&self) -> u32 {
        self.max_reads
    }

    fn remote_invalidation(&self) -> bool {
        true
    }

    fn copied_payload_bytes(&self) -> u64 {
        self.copied
    }
}

/// An engine on a [`Recorder`].
struct RecordedEngine {
    conn: Connection,
    qp: Recorder,
    now: Instant,
}

impl RecordedEngine {
    fn new(role: Role) -> Self {
        Self::with(role, EngineConfig::default())
    }

    fn with(role: Role, config: EngineConfig) -> Self {
        let config = with_versions(config, Versions::V1);
        let says = PrivateData::new(&config, false);
        let conn = Connection::new(role, config, ConnectionSetup { local: says, peer: says, xid_seed: XID });
        let (posted, registered) = (Vec::new(), HashMap::new());
        let qp = Recorder { posted, registered, next_handle: 0, max_reads: 2, is_open: true, copied: 0 };
        Self { conn, qp, now: Instant::now() }
    }

    /// Lets the engine post work, and returns the posted work.
    fn work(&mut self) -> Vec<Posted> {
        self.conn.poll_work(&mut self.qp, self.now);
        std::mem::take(&mut self.qp.posted)
    }

    /// Delivers a message of the peer.
    fn deliver(&mut self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let len = bytes.len();
        let message = MessageBuf::received(bytes.into(), len);
        self.conn.handle_completion(Completion::Received { message, invalidated: None });
    }

    /// Delivers a call of the peer, and returns it as the engine announces it.
    fn call(&mut self, words: &[u32]) -> IncomingCall {
        self.deliver(words);
        match self.conn.poll_event() {
            Some(EngineEvent::CallArrived(call)) => call,
            other => panic!("no call: {other:?}"),
        }
    }

    /// Completes the invalidation of memory.
    fn invalidated(&mut self, posted: &Posted) {
        let &Posted::Invalidate(id, handle) = posted else { panic!("no invalidation: {posted:?}") };
        let memory = self.qp.registered.remove(&handle).expect("not registered");
        self.conn.handle_completion(Completion::Invalidated { id, memory });
    }

    fn finished(&mut self) -> Option<Result<IncomingReply, CallFailure>> {
        match self.conn.poll_event() {
            None => None,
            Some(EngineEvent::CallFinished { result, .. }) => Some(result),
            Some(other) => panic!("{other:?}"),
        }
    }
}

fn reply(len: usize) -> OutgoingReply {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    [0, 1, 9].iter().for_each(|word: &u32| message.append(&word.to_be_bytes()));
    message.append_zeros(len);
    OutgoingReply { message, reduced: Default::default() }
}

/// Returns three calls: one without chunks, one with a Write chunk, and one with a Reply chunk.
fn calls() -> [Vec<u32>; 3] {
    let write = [XID, 1, 8, 0, 0, 1, 1, 7, 100, 0, 0, 0, 0, XID, 0, 2];
    let reply = [XID, 1, 8, 0, 0, 0, 1, 1, 7, 9000, 0, 0, XID, 0, 3];
    [plain(XID, 8, 0, 1), write.to_vec(), reply.to_vec()]
}

/// RFC 8166 §3.3.1: the Receive for the next call is posted before the reply or the error that lets the peer send it.
#[test]
fn receives_are_posted_before_replies() {
    let before_sends = |posted: &[Posted], count| {
        let (mut receives, mut sends) = (0, 0);
        for posted in posted {
            match posted {
                Posted::Receives(more) => receives += more,
                Posted::Send(..) => {
                    sends += 1;
                    assert!(receives >= sends, "Send {sends} comes after {receives} Receives");
                }
                _ => {}
            }
        }
        assert_eq!((receives, sends), (count, count));
    };
    for words in calls() {
        let mut server = RecordedEngine::new(Role::Server);
        let call = server.call(&words);
        assert_eq!(server.work(), []);
        server.conn.reply(call.token, reply(0));
        before_sends(&server.work(), 1);
        // An error in place of a reply.
        let call = server.call(&words);
        server.conn.reply_error(call.token, TransportError::BadXdr);
        before_sends(&server.work(), 1);
    }
    // Errors for messages that are no calls, and several replies at a time.
    let mut server = RecordedEngine::new(Role::Server);
    server.deliver(&[XID, 1, 8, 7, 0, 0, 0]);
    server.deliver(&[XID, 3, 8, 0, 0, 0, 0]);
    before_sends(&server.work(), 2);
    let calls = [1, 2, 3].map(|xid| server.call(&plain(xid, 8, 0, 0)));
    calls.into_iter().for_each(|call| server.conn.reply(call.token, reply(0)));
    before_sends(&server.work(), 3);
}

/// RFC 8166 §3.3.1: the Receive that a reply has consumed is posted again before the next call is sent. A discarded
/// message consumes a Receive as well.
#[test]
fn receives_are_posted_before_calls() {
    let mut client = RecordedEngine::new(Role::Client);
    client.conn.start_call(Script::default().outgoing(&client.conn, client.now));
    assert!(matches!(client.work()[..], [Posted::Send(..)]));
    client.deliver(&plain(XID, 8, 1, 0));
    client.deliver(&[XID + 7, 1, 8, 4, 2]);
    client.conn.start_call(Script::default().outgoing(&client.conn, client.now));
    let posted = client.work();
    assert!(matches!(posted[..], [Posted::Receives(2), Posted::Send(..)]), "{posted:?}");
}

/// RFC 8166 §2.3.2, §3.5.2: RDMA Writes are posted before the Send of their reply, so that the reply arrives after the
/// data.
#[test]
fn writes_are_posted_before_their_reply() {
    let mut server = RecordedEngine::new(Role::Server);
    let chunks = [0, 1, 2, 7, 50, 0, 0, 7, 50, 0, 50, 0, 1, 1, 8, 9000, 0, 0];
    let call = server.call(&[&[XID, 1, 8, 0][..], &chunks, &[XID, 0, 2]].concat());
    let mut long = reply(5000);
    let data = vec![1; 60].into();
    long.reduced.push(rpcrdma::xdr::ReducedItem { position: 8, chunk: 0, data });
    server.conn.reply(call.token, long);
    let posted = server.work();
    let writes = posted.iter().filter(|posted| matches!(posted, Posted::Write(_))).count();
    assert_eq!((writes, posted.iter().position(Posted::is_send)), (3, Some(posted.len() - 1)), "{posted:?}");
}

/// RFC 8166 §3.3.1, §3.4.5.1: no more RDMA Reads are in flight than the provider allows. The call is delivered once all
/// of them have completed and their sinks are invalidated.
#[test]
fn rdma_reads_are_limited() {
    for limit in [1, 2] {
        let mut server = RecordedEngine::new(Role::Server);
        server.qp.max_reads = limit;
        let read = |position, offset| [1, position, 7, 4, 0, offset];
        // A chunk of three segments, and one of two.
        let reads = [read(8, 0), read(8, 4), read(8, 8), read(20, 12), read(20, 16)].concat();
        server.deliver(&[&[XID, 1, 8, 0][..], &reads, &NO_CHUNKS, &[XID, 0]].concat());
        let mut in_flight: Vec<WrId> = Vec::new();
        let (mut completed, mut invalidations) = (0, Vec::new());
        loop {
            for work in server.work() {
                match work {
                    Posted::Read(id) => in_flight.push(id),
                    Posted::Invalidate(..) => {
                        assert_eq!(
                            completed,
                            [3, 5][invalidations.len()],
                            "memory is invalidated before its RDMA Reads"
                        );
                        invalidations.push(work);
                    }
                    Posted::Register => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(in_flight.len() <= limit as usize, "{} RDMA Reads in flight", in_flight.len());
            assert!(server.conn.poll_event().is_none(), "delivered before its data has arrived");
            if in_flight.is_empty() {
                break;
            }
            completed += 1;
            server.conn.handle_completion(Completion::Read { id: in_flight.remove(0) });
        }
        assert_eq!((completed, invalidations.len()), (5, 2));
        server.invalidated(&invalidations[0]);
        assert!(server.conn.poll_event().is_none());
        server.invalidated(&invalidations[1]);
        assert!(matches!(server.conn.poll_event(), Some(EngineEvent::CallArrived(_))));
    }
}

/// RFC 8166 §4.4.1, §8.1.3: memory is registered when its call is sent, not while the call waits for a credit. It is
/// invalidated after the reply. The caller gets the result after the invalidation.
#[test]
fn memory_is_exposed_only_during_its_call() {
    let script = Script { args: vec![5000], reduce: true, results: vec![(0, 6000)], ..Script::default() };
    let mut client = RecordedEngine::new(Role::Client);
    client.conn.start_call(Script::default().outgoing(&client.conn, client.now));
    client.conn.start_call(script.outgoing(&client.conn, client.now));
    assert!(matches!(client.work()[..], [Posted::Send(..)]), "there is one credit");
    assert!(client.qp.registered.is_empty());
    client.deliver(&plain(XID, 8, 1, 0));
    assert!(client.finished().is_some());
    let posted = client.work();
    assert!(matches!(posted[1..], [Posted::Register, Posted::Register, Posted::Send(..)]), "{posted:?}");
    assert_eq!(client.work(), [], "memory is invalidated before the reply");

    client.deliver(&plain(XID + 1, 8, 1, 0));
    let posted = client.work();
    let [argument @ Posted::Invalidate(..), result @ Posted::Invalidate(..), Posted::Receives(1)] = &posted[..] else {
        panic!("{posted:?}")
    };
    assert!(client.finished().is_none(), "two regions are exposed");
    client.invalidated(argument);
    assert!(client.finished().is_none(), "one region is exposed");
    client.invalidated(result);
    assert!(client.finished().expect("finished").is_ok());
}

/// RFC 8166 §4.5.4: after a failed invalidation, the connection is closed. The call finishes when the connection has
/// ended.
#[test]
fn a_call_outlives_the_connection_that_cannot_invalidate_its_memory() {
    let mut client = RecordedEngine::new(Role::Client);
    client
        .conn
        .start_call(Script { args: vec![5000], reduce: true, ..Script::default() }.outgoing(&client.conn, client.now));
    client.work();
    client.deliver(&plain(XID, 8, 1, 0));
    let posted = client.work();
    let Some(&Posted::Invalidate(id, _)) = posted.first() else { panic!("{posted:?}") };
    let error = WorkError::Local("invalidation failed".into());
    client.conn.handle_completion(Completion::Failed { id, error });
    assert_eq!(client.work(), [Posted::Disconnect]);
    assert!(client.finished().is_none(), "the peer can still access the memory");
    client.conn.handle_completion(Completion::Disconnected { reason: DisconnectReason::Local });
    assert!(client.finished().expect("finished").is_ok());
}

/// RFC 8166 §4.5.4: if a reply or an error cannot be sent, the engine closes the connection, unless the provider is
/// already ending it.
#[test]
fn a_reply_that_is_not_sent_closes_the_connection() {
    let failed = |is_open| {
        let mut lost = 0;
        let [plain_call, write, reply_chunk] = calls();
        for (messages, len, is_refused) in [
            (vec![plain_call.clone()], 0, false),
            // The Send of the first reply reports only a failure.
            (vec![plain_call.clone(), plain(XID + 1, 8, 0, 1)], 0, false),
            (vec![plain_call], 0, true),
            (vec![write], 0, false),
            (vec![reply_chunk], 5000, false),
            (vec![vec![XID, 1, 8, 7, 0, 0, 0]], 0, false),
        ] {
            let mut server = RecordedEngine::new(Role::Server);
            messages.iter().for_each(|words| server.deliver(words));
            while let Some(EngineEvent::CallArrived(call)) = server.conn.poll_event() {
                match is_refused {
                    true => server.conn.reply_error(call.token, TransportError::BadXdr),
                    false => server.conn.reply(call.token, reply(len)),
                }
            }
            let posted = server.work();
            // The RDMA Write of a Long reply, and otherwise the Send.
            let id = posted.iter().find_map(|posted| match posted {
                Posted::Write(id) | Posted::Send(id, _) => Some(*id),
                _ => None,
            });
            server.qp.is_open = is_open;
            let error = WorkError::Local("queue full".into());
            server.conn.handle_completion(Completion::Failed { id: id.expect("sent"), error });
            let is_closed = server.work().contains(&Posted::Disconnect);
            assert_eq!(is_closed, server.conn.close_reason().is_some());
            lost += usize::from(is_closed);
            let reason = DisconnectReason::ReportedByPeer("bad handle".into());
            server.conn.handle_completion(Completion::Disconnected { reason: reason.clone() });
            let expected = CloseReason::Disconnected(reason);
            assert_eq!(server.conn.close_reason() == Some(&expected), !is_closed);
        }
        lost
    };
    assert_eq!(failed(true), 6);
    // A provider that is ending the connection reports the reason itself.
    assert_eq!(failed(false), 0);
}

/// A connection is disconnected once. It is reported as closed only when the calls of both directions have no
/// registered memory.
#[test]
fn closed_connections_have_no_memory() {
    for role in [Role::Client, Role::Server] {
        let mut engine = RecordedEngine::new(role);
        engine.qp.copied = 5;
        let invalidation = match role {
            Role::Client => {
                let script = Script { args: vec![5000], reduce: true, ..Script::default() };
                engine.conn.start_call(script.outgoing(&engine.conn, engine.now));
                engine.work();
                engine.conn.handle_completion(Completion::Disconnected { reason: DisconnectReason::Remote });
                engine.work()
            }
            Role::Server => {
                engine.deliver(&[&[XID, 1, 8, 0, 1, 8, 7, 4, 0, 0][..], &NO_CHUNKS, &[XID, 0]].concat());
                assert!(matches!(engine.work()[..], [Posted::Register, Posted::Read(_)]));
                engine.conn.close();
                engine.deliver(&plain(XID + 1, 8, 0, 0));
                assert_eq!(engine.work(), [Posted::Disconnect]);
                assert_eq!(engine.work(), []);
                engine.conn.handle_completion(Completion::Disconnected { reason: DisconnectReason::Local });
                engine.work()
            }
        };
        assert_eq!(invalidation.len(), 1);
        assert!(engine.conn.poll_event().is_none(), "memory is registered");
        engine.invalidated(&invalidation[0]);
        engine.work();
        if role == Role::Client {
            assert!(engine.finished().expect("not finished").is_err());
        }
        assert!(matches!(engine.conn.poll_event(), Some(EngineEvent::Closed(_))));
        engine.work();
        assert!(engine.conn.poll_event().is_none());
        assert_eq!(engine.conn.counters().copied_payload_bytes, 5);
    }
}

/// Failed work does not close the connection if it failed because the connection is ending, or if it was not a
/// response.
#[test]
fn other_failures_are_left_to_the_provider() {
    let mut server = RecordedEngine::new(Role::Server);
    let call = server.call(&plain(XID, 8, 0, 1));
    server.conn.reply(call.token, reply(0));
    let posted = server.work();
    let Some(&Posted::Send(id, _)) = posted.iter().find(|posted| posted.is_send()) else { panic!("{posted:?}") };
    server.conn.handle_completion(Completion::Failed { id, error: WorkError::Flushed });
    assert_eq!((server.work(), server.conn.close_reason()), (vec![], None));

    let mut client = RecordedEngine::new(Role::Client);
    client.conn.start_call(Script::default().outgoing(&client.conn, client.now));
    let posted = client.work();
    let [Posted::Send(id, _)] = posted[..] else { panic!("{posted:?}") };
    client.conn.handle_completion(Completion::Failed { id, error: WorkError::Local("queue full".into()) });
    assert_eq!((client.work(), client.conn.close_reason()), (vec![], None));
}

/// RFC 8166 §3.3.1: the number of responses in flight is bounded by the credits and the spare Receives. With one
/// credit, three responses are sent. The completion of other work permits no further responses. The last response in
/// flight reports its completion, so that more responses can follow.
#[test]
fn responses_in_flight_are_bounded() {
    let mut config = EngineConfig::default();
    config.credits = 1;
    let mut server = RecordedEngine::with(Role::Server, config);
    let calls = (0..5).map(|xid| [XID + xid, 1, 8, 0, 0, 1, 1, 7, 100, 0, 0, 0, 0, XID + xid, 0, 2]);
    for call in calls.map(|words| server.call(&words)).collect::<Vec<_>>() {
        let mut reply = reply(0);
        reply.reduced.push(rpcrdma::xdr::ReducedItem { position: 8, chunk: 0, data: vec![1; 60].into() });
        server.conn.reply(call.token, reply);
    }
    let posted = server.work();
    let sends = |posted: &[Posted]| posted.iter().filter(|posted| posted.is_send()).count();
    assert_eq!(sends(&posted), 3, "{posted:?}");
    let mut last = None;
    for work in posted {
        match work {
            Posted::Write(id) => server.conn.handle_completion(Completion::Written { id }),
            Posted::Send(id, _) => last = Some(id),
            _ => {}
        }
        assert_eq!(sends(&server.work()), 0);
    }
    server.conn.handle_completion(Completion::Sent { id: last.unwrap() });
    let ended = std::iter::from_fn(|| server.conn.poll_event()).count();
    assert_eq!((ended, sends(&server.work())), (3, 2));
}

/// An RDMA Read that completes shows that the peer makes progress, because replies posted after it had to wait.
#[test]
fn rdma_reads_restart_the_timeout_of_replies() {
    let limit = EngineConfig::default().reply_timeout;
    let mut server = RecordedEngine::new(Role::Server);
    let call = server.call(&plain(XID + 1, 8, 0, 1));
    server.deliver(&[&[XID, 1, 8, 0, 1, 8, 7, 4, 0, 0][..], &NO_CHUNKS, &[XID, 0]].concat());
    let posted = server.work();
    let Some(&Posted::Read(id)) = posted.last() else { panic!("{posted:?}") };
    server.conn.reply(call.token, reply(0));
    server.work();
    assert_eq!(server.conn.poll_timeout(), Some(server.now + limit));
    server.now += limit / 2;
    server.conn.handle_completion(Completion::Read { id });
    server.work();
    assert_eq!(server.conn.poll_timeout(), Some(server.now + limit));
}

/// If the provider allows no RDMA Reads, a call with a Read chunk gets RDMA_ERROR in the turn in which it arrives.
#[test]
fn calls_that_cannot_be_fetched_are_refused_at_once() {
    let mut server = RecordedEngine::new(Role::Server);
    server.qp.max_reads = 0;
    server.deliver(&[&[XID, 1, 8, 0, 1, 8, 7, 4, 0, 0][..], &NO_CHUNKS, &[XID, 0]].concat());
    assert!(matches!(server.work()[..], [Posted::Receives(1), Posted::Send(_, 4)]));
}
