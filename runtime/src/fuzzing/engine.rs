//! An engine between a peer and a provider that do what a fuzzer says.
//!
//! The first octet chooses the engine's role and configuration; then octets are read one at a time, each for one thing
//! that happens. The provider is as good as its contract: it delivers no more than there are Receives, completes in
//! order, and says `Disconnected` last. The peer may send anything.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::RangeInclusive,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    engine::{
        CallId, CallPolicy, Connection, Engine, EngineConfig, Event, OutgoingCall, OutgoingReply, PrivateData,
        ReplyPlan, ReplyResources, ReplyToken, ResultChunk, Role, Setup, message_buf,
    },
    memory::{BufferPool, MessageBuf, Output},
    provider::{
        Access, Completion, DisconnectReason, Handle, Memory, QueuePair, Region, RegisterError, WorkError, WorkRequest,
    },
    xdr::Reduced,
};

/// The first XID, so that a fuzzer can find those of the calls under way.
const XID: u32 = 0x1000;

/// Most octets that a peer may make this end allocate for its calls.
const MAX_PULLED: u64 = 1 << 16;

/// What is registered.
struct Registered {
    memory: Memory,
    access: Access,
    /// By the peer's Send with Invalidate.
    invalid: bool,
}

/// A provider whose handles count from 1, and that completes what is posted when it is told to.
#[derive(Default)]
struct Provider {
    receives: usize,
    last_handle: u32,
    registered: BTreeMap<u32, Registered>,
    posted: VecDeque<WorkRequest>,
    disconnecting: bool,
    gone: bool,
    send_threshold: usize,
}

impl QueuePair for Provider {
    fn register(&mut self, memory: Memory, access: Access) -> Result<Region, RegisterError> {
        // Handles run out now and then.
        if self.gone || self.registered.len() > 40 {
            return Err(RegisterError { source: "no more".into(), memory });
        }
        self.last_handle += 1;
        self.registered.insert(self.last_handle, Registered { memory, access, invalid: false });
        let pulled = self.registered.values().filter(|region| region.access == Access::ReadSink);
        let pulled: usize = pulled.map(|region| region.memory.len()).sum();
        assert!(pulled as u64 <= MAX_PULLED, "{pulled} octets of sinks, by a peer's words alone");
        Ok(Region { handle: Handle(self.last_handle), base: 0 })
    }

    fn is_open(&self) -> bool {
        !self.gone
    }

    fn post(&mut self, request: WorkRequest) {
        match &request {
            WorkRequest::Send { message, .. } => assert!(message.len() <= self.send_threshold, "too long for the peer"),
            WorkRequest::Read { sink, sink_offset, len, .. } => {
                let region = self.registered.get(&sink.0).expect("a sink that is registered");
                assert_eq!(region.access, Access::ReadSink);
                assert!(sink_offset.saturating_add((*len).into()) <= region.memory.len() as u64, "beyond the sink");
            }
            WorkRequest::Write { .. } => {}
            WorkRequest::Invalidate { handle, .. } => {
                assert!(self.registered.contains_key(&handle.0), "{handle:?} is not registered");
            }
        }
        self.posted.push_back(request);
    }

    fn post_receives(&mut self, count: usize) {
        self.receives += count;
    }

    fn poll(&mut self, _: &mut Context<'_>, _: &mut Vec<Completion>) -> Poll<()> {
        Poll::Pending
    }

    fn disconnect(&mut self) {
        self.disconnecting = true;
    }

    fn max_reads(&self) -> u32 {
        4
    }

    fn remote_invalidation(&self) -> bool {
        true
    }

    fn copied_payload(&self) -> u64 {
        0
    }
}

impl Provider {
    /// The next completion of what is posted, in order.
    fn complete(&mut self, failure: Option<WorkError>) -> Option<Completion> {
        let request = self.posted.pop_front()?;
        Some(match (request, failure) {
            // What is taken back is taken back, whatever becomes of the connection.
            (WorkRequest::Invalidate { id, handle }, _) => match self.registered.remove(&handle.0) {
                Some(region) => Completion::Invalidated { id, memory: region.memory },
                None => Completion::Failed { id, error: WorkError::Local("not registered".into()) },
            },
            (
                WorkRequest::Send { id, .. } | WorkRequest::Read { id, .. } | WorkRequest::Write { id, .. },
                Some(error),
            ) => Completion::Failed { id, error },
            (WorkRequest::Send { id, .. }, None) => Completion::Sent { id },
            (WorkRequest::Read { id, .. }, None) => Completion::Read { id },
            (WorkRequest::Write { id, .. }, None) => Completion::Written { id },
        })
    }
}

/// Octets to read, one at a time or by the word.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn octet(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A message of two words and zeros.
pub(super) fn message(words: [u32; 2], len: usize) -> MessageBuf {
    let mut message = message_buf(&BufferPool::default(), 8);
    words.iter().for_each(|word| message.append(&word.to_be_bytes()));
    message.append(&vec![0; len.next_multiple_of(4)]);
    message
}

struct World {
    /// Whether both ends make calls.
    symmetric: bool,
    engine: Connection,
    provider: Provider,
    now: Instant,
    /// Calls of this end's that are not over.
    calls: BTreeSet<CallId>,
    /// Calls of the peer's that are not answered.
    arrived: VecDeque<(ReplyToken, ReplyPlan)>,
    closed: bool,
}

/// Runs an engine as `octets` say, to its end.
///
/// # Panics
/// When the engine breaks a promise: a call that is not over once and once only, memory that is not taken back, more
/// memory for a peer's call than is configured, a message longer than the peer takes.
pub fn engine(octets: &[u8]) {
    run(octets, 1..=1);
}

/// [`engine`], for a connection that may come to have version 2, in which both ends make calls.
pub fn engine_v2(octets: &[u8]) {
    run(octets, 1..=2);
}

fn run(octets: &[u8], versions: RangeInclusive<u32>) {
    let mut input = Input(octets);
    let Some(mode) = input.octet() else { return };
    let role = if mode & 1 == 0 { Role::Server } else { Role::Client };
    let mut config = EngineConfig { max_call_len: MAX_PULLED / 2, max_pulled: MAX_PULLED, ..EngineConfig::default() };
    config.versions = versions;
    config.continued = 5000;
    config.credits = 1 + u32::from(mode >> 4);
    config.min_reduce = if mode & 2 == 0 { 1 } else { 100 };
    config.max_segment_len = if mode & 4 == 0 { 1 << 30 } else { 64 };
    let says = PrivateData::new(&config, mode & 8 != 0);
    let setup = Setup { local: says, peer: says, xid_seed: XID };
    let provider = Provider {
        receives: Connection::setup_params(&config, true).receive_count,
        send_threshold: config.send_size as usize,
        ..Provider::default()
    };
    let mut world = World {
        symmetric: config.versions.contains(&2),
        engine: Connection::new(role, config, setup),
        provider,
        now: Instant::now(),
        calls: BTreeSet::new(),
        arrived: VecDeque::new(),
        closed: false,
    };
    while let Some(step) = input.octet() {
        world.step(step, &mut input);
        world.settle();
    }
    world.end();
}

impl World {
    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 12 {
            0..=2 => self.receive(None, input),
            3 => {
                let handle = input.octet().map(u32::from).unwrap_or_default();
                let exposed = self.provider.registered.get_mut(&handle);
                if let Some(region) = exposed.filter(|region| region.access != Access::ReadSink && !region.invalid) {
                    region.invalid = true;
                    self.receive(Some(Handle(handle)), input);
                }
            }
            4 | 5 => {
                if let Some(completion) = self.provider.complete(None) {
                    self.engine.handle_completion(completion);
                }
            }
            6 => self.disconnect(),
            7 if self.symmetric => self.call(input),
            8 if self.symmetric => self.reply(input),
            7 | 8 if self.engine.role() == Role::Client => self.call(input),
            7 | 8 => self.reply(input),
            9 => match (self.calls.first(), self.arrived.pop_front()) {
                (Some(id), _) => self.engine.cancel_call(*id, self.now),
                (_, Some((token, _))) => self.engine.reply_error(token),
                _ => {}
            },
            10 => {
                self.now += Duration::from_millis(input.octet().unwrap_or_default().into()) * 100;
                self.engine.handle_timeout(self.now);
            }
            _ => {
                // Once in a while: it ends everything.
                if input.octet() == Some(0) {
                    self.engine.close();
                }
            }
        }
    }

    /// A message of the peer's: an octet says how many words, then come the words.
    fn receive(&mut self, invalidated: Option<Handle>, input: &mut Input<'_>) {
        let words = usize::from(input.octet().unwrap_or_default());
        let octets = input.take(words * 4).to_vec();
        if self.provider.gone || self.provider.receives == 0 {
            return;
        }
        self.provider.receives -= 1;
        let len = octets.len();
        let message = MessageBuf::received(octets.into(), len);
        self.engine.handle_completion(Completion::Received { message, invalidated });
    }

    /// What the peer's end of the connection does to what is posted.
    fn disconnect(&mut self) {
        if self.provider.gone {
            return;
        }
        while let Some(completion) = self.provider.complete(Some(WorkError::Flushed)) {
            self.engine.handle_completion(completion);
        }
        self.provider.gone = true;
        self.engine.handle_completion(Completion::Disconnected { reason: DisconnectReason::Remote });
    }

    /// A call with up to three eligible arguments and up to three eligible results.
    fn call(&mut self, input: &mut Input<'_>) {
        let [shape, inline, item, result, reply] = [(); 5].map(|()| usize::from(input.octet().unwrap_or_default()));
        let mut position = 8;
        let reduced = (0..shape & 3).map(|chunk| {
            let data = Bytes::from(vec![7; item * (chunk + 1)]);
            let item = Reduced { position, chunk, data };
            position += item.data.len().next_multiple_of(4) as u64 + 4;
            item
        });
        let reduced = reduced.collect();
        let landing = |_| ResultChunk { max_len: 16 * result as u64, landing: None };
        let call = OutgoingCall {
            message: message([0, 0], inline * 32),
            reduced,
            reply: ReplyResources { max_inline: reply as u64 * 64, chunks: (0..shape >> 2 & 3).map(landing).collect() },
            deadline: (shape & 0x10 != 0).then(|| self.now + Duration::from_secs(1)),
            policy: CallPolicy { idempotent: shape & 0x20 != 0, protected: shape & 0x40 != 0 },
            seal: None,
        };
        assert!(self.calls.insert(self.engine.start_call(call)), "a call id that is in use");
    }

    /// A reply to the call that arrived first, with an item for each of its Write chunks.
    fn reply(&mut self, input: &mut Input<'_>) {
        let [inline, item] = [(); 2].map(|()| usize::from(input.octet().unwrap_or_default()));
        let Some((token, plan)) = self.arrived.pop_front() else { return };
        let reduced = plan.write_chunks.iter().enumerate().filter_map(|(chunk, capacity)| {
            // Most often what fits, sometimes more.
            let len = if item == 255 { 1 << 16 } else { usize::try_from((*capacity)?).ok()?.min(item * 4) };
            Some(Reduced { position: 8, chunk, data: Bytes::from(vec![7; len]) })
        });
        let reduced = reduced.collect();
        self.engine.reply(token, OutgoingReply { message: message([XID, 1], inline * 32), reduced });
    }

    /// Lets the engine do what is due.
    fn settle(&mut self) {
        self.engine.poll_work(&mut self.provider, self.now);
        while let Some(event) = self.engine.poll_event() {
            // A call that is made too late is over at once.
            assert!(!self.closed || matches!(event, Event::CallFinished { .. }), "{event:?} after the end");
            match event {
                Event::CallFinished { id, .. } => assert!(self.calls.remove(&id), "{id:?} is over already"),
                Event::CallArrived(call) => self.arrived.push_back((call.token, call.reply)),
                Event::ReplySent { .. } => {}
                Event::Closed(_) => self.closed = true,
            }
        }
        if self.provider.disconnecting {
            self.disconnect();
        }
    }

    /// The connection ends, and everything with it.
    fn end(mut self) {
        self.disconnect();
        // Each turn takes memory back, or is the last.
        for _ in 0..1000 {
            self.settle();
            let Some(completion) = self.provider.complete(Some(WorkError::Flushed)) else { break };
            self.engine.handle_completion(completion);
        }
        self.settle();
        self.settle();
        assert!(self.closed, "the connection has no end: {:?}", self.engine.counters());
        assert!(self.calls.is_empty(), "{:?} are not over", self.calls);
        assert_eq!(self.provider.registered.len(), 0, "memory is left registered");
        assert_eq!(self.engine.counters().exposed, 0);
    }
}
