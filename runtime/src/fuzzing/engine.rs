//! Drives an engine over any transport with events from a fuzzer's bytes.
//!
//! Each byte selects one event. More bytes may follow as its parameters. Each transport defines its events and their
//! numbers.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    engine::{
        CallId, CallPolicy, Engine, EngineEvent, IncomingCall, OutgoingCall, OutgoingReply, ReplyResources, ReplyToken,
        ResultChunk, TransportError, message_buf,
    },
    memory::{BufferPool, MessageBuf, Output},
    xdr::ReducedItem,
};

/// The first XID of the engine's calls. Fixed, so that a fuzzer can guess the XIDs of calls in flight.
pub(super) const XID: u32 = 0x1000;

/// Reader of the fuzzer's bytes.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Reads `N` numbers of one byte each. Numbers after the end of the input are 0.
    pub(super) fn numbers<const N: usize>(&mut self) -> [usize; N] {
        [(); N].map(|()| self.byte().unwrap_or_default().into())
    }

    pub(super) fn number(&mut self) -> usize {
        let [number] = self.numbers();
        number
    }

    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// The transport and the peer of an engine.
pub(super) trait Network: Sized {
    type Engine: Engine;

    /// Returns the port to which the engine posts its work.
    fn port(&mut self) -> &mut <Self::Engine as Engine>::Port;

    /// Performs the event with this number.
    fn step(world: &mut World<Self>, step: u8, input: &mut Input<'_>);

    /// Performs the actions that the engine requested, and checks its limits.
    fn check(world: &mut World<Self>);

    /// Closes the connection and completes all posted work.
    fn end(&mut self, engine: &mut Self::Engine);
}

/// An engine, its transport, and the expected state of its calls.
pub(super) struct World<N: Network> {
    pub(super) engine: N::Engine,
    pub(super) network: N,
    now: Instant,
    /// Local calls in flight.
    calls: BTreeSet<CallId>,
    /// `true` once a local call was made.
    pub(super) has_called: bool,
    /// Calls of the peer without a reply.
    arrived: VecDeque<IncomingCall>,
    /// Calls of the peer whose replies have not been sent.
    pub(super) unsent: BTreeSet<ReplyToken>,
    pub(super) closed: bool,
}

impl<N: Network> World<N> {
    /// Performs all events of `input`, then ends the connection.
    ///
    /// # Panics
    /// Panics if the engine violates its contract.
    pub(super) fn run(engine: N::Engine, network: N, mut input: Input<'_>) {
        let mut world = Self {
            engine,
            network,
            now: Instant::now(),
            calls: BTreeSet::new(),
            has_called: false,
            arrived: VecDeque::new(),
            unsent: BTreeSet::new(),
            closed: false,
        };
        while let Some(step) = input.byte() {
            N::step(&mut world, step, &mut input);
            world.settle();
        }
        world.end();
    }

    /// Makes a call with up to three eligible arguments and up to three eligible results. The bits of `shape` hold the
    /// numbers of these items, and select a deadline and some of the call's policies. The other parameters determine
    /// the lengths. Two values of `result` also select a policy each.
    pub(super) fn call(&mut self, [shape, inline, item, result, reply]: [usize; 5]) {
        let mut position = 8;
        let reduced = (0..shape & 3).map(|chunk| {
            let data = Bytes::from(vec![7; item * (chunk + 1)]);
            let item = ReducedItem { position, chunk, data };
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
            policy: CallPolicy {
                idempotent: shape & 0x20 != 0,
                protected: shape & 0x40 != 0,
                sealed: shape & 0x80 != 0,
                unanswered: result == 7,
                urgent: result == 6,
                xid: None,
            },
        };
        self.has_called = true;
        assert!(self.calls.insert(self.engine.start_call(call)), "the call id is in use");
    }

    /// Replies to the oldest call of the peer without a reply, with an item for each of its Write chunks that has a
    /// capacity. `len` is the length of the results in bytes, without the items. `item` determines the length of the
    /// items.
    pub(super) fn reply(&mut self, len: usize, item: usize) {
        let Some(call) = self.arrived.pop_front() else { return };
        let reduced = call.write_chunks().iter().enumerate().filter_map(|(chunk, capacity)| {
            // The item usually fits, but sometimes it is longer.
            let len = if item == 255 { 1 << 16 } else { usize::try_from((*capacity)?).ok()?.min(item * 4) };
            Some(ReducedItem { position: 8, chunk, data: Bytes::from(vec![7; len]) })
        });
        let reduced = reduced.collect();
        self.engine.reply(call.token, OutgoingReply { message: message([XID, 1], len), reduced });
    }

    /// Rejects the peer's oldest unanswered call with a transport error.
    pub(super) fn reply_error(&mut self) {
        if let Some(call) = self.arrived.pop_front() {
            self.engine.reply_error(call.token, TransportError::BadXdr);
        }
    }

    /// Cancels the local call with the lowest identifier. Returns `false` if no call is in flight.
    pub(super) fn cancel(&mut self) -> bool {
        let first = self.calls.first();
        first.map(|id| self.engine.cancel_call(*id, self.now)).is_some()
    }

    /// Advances the clock by `tenths` times 100 ms, and handles the deadlines of the engine.
    pub(super) fn wait(&mut self, tenths: usize) {
        self.now += Duration::from_millis(tenths as u64 * 100);
        self.engine.handle_timeout(self.now);
    }

    /// Polls the engine for work and events, and checks the events. Then makes the [checks](Network::check) of the
    /// network.
    fn settle(&mut self) {
        self.engine.poll_work(self.network.port(), self.now);
        while let Some(event) = self.engine.poll_event() {
            // A call that starts after the end finishes at once.
            assert!(!self.closed || matches!(event, EngineEvent::CallFinished { .. }), "{event:?} after the end");
            match event {
                EngineEvent::CallFinished { id, .. } => {
                    assert!(self.calls.remove(&id), "{id:?} is unknown or finished twice")
                }
                EngineEvent::CallArrived(call) => {
                    assert!(self.unsent.insert(call.token), "{:?} is in use", call.token);
                    self.arrived.push_back(call);
                }
                EngineEvent::ReplySent { token, .. } => {
                    assert!(self.unsent.remove(&token), "{token:?} is unknown or was already sent");
                    self.arrived.retain(|call| call.token != token);
                }
                EngineEvent::Closed(_) => self.closed = true,
            }
        }
        N::check(self);
    }

    /// Ends the connection, and checks that it closes, that no local call is left, and that the end of each reply was
    /// reported.
    fn end(mut self) {
        // Each iteration releases memory, except the last.
        for _ in 0..1000 {
            self.network.end(&mut self.engine);
            self.settle();
            if self.closed {
                break;
            }
        }
        assert!(self.closed, "the connection does not close: {:?}", self.engine.counters());
        assert!(self.calls.is_empty(), "{:?} did not finish", self.calls);
        assert!(self.unsent.is_empty(), "{:?} were not reported as sent or lost", self.unsent);
    }
}

/// Returns a message of two words and `len` zero bytes, rounded up to a multiple of four bytes.
fn message(words: [u32; 2], len: usize) -> MessageBuf {
    let mut message = message_buf(&BufferPool::default(), 8);
    words.iter().for_each(|word| message.append(&word.to_be_bytes()));
    message.append(&vec![0; len.next_multiple_of(4)]);
    message
}
