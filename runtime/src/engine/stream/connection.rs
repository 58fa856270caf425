//! Calls and replies of one connection over a byte stream.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io::IoSlice,
    time::Instant,
};

use bytes::{Bytes, BytesMut, buf::Limit};
use smallvec::SmallVec;

use super::{Assembler, StreamConfig, StreamError, output::Output};
use crate::{
    engine::{
        CallFailure, CallId, Choice, CloseReason, Counters, EngineConfig, Event, Format, FormatReason, IncomingCall,
        IncomingReply, OutgoingCall, OutgoingReply, Payload, ReplyPlan, ReplyToken, Role, deadlines::Deadlines, seal,
    },
    memory::{Charge, MessageBuf, Share},
    provider::DisconnectReason,
};

/// Records up to this many octets are copied out of the memory they were received into, so that what is kept of a small
/// one does not hold it.
const SMALL: usize = 4096;
/// Octets waiting to go out with which no further call is begun: until then it can be cancelled as if never made.
const OUTPUT_ENOUGH: usize = 256 << 10;
/// Most calls of the peer's that are put by. A peer that keeps to as many as this end has credits for meets no limit.
const MOST_PARKED: usize = 1024;

#[derive(Debug)]
enum State {
    Open,
    /// What is queued goes out, then this end's side is closed.
    Closing(CloseReason),
    /// This end's side is closed, the peer's is not.
    HalfClosed(CloseReason),
    /// The stream is over; [`Event::Closed`] is still to be given.
    Gone(CloseReason),
    /// [`Event::Closed`] has been given.
    Closed(CloseReason),
}

/// A call that has gone out, or begun to.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// Its caller has given it up; until then its reply is expected all the same.
    abandoned_until: Option<Instant>,
}

/// A call of the peer's whose reply has not gone out.
#[derive(Debug, Clone, Copy)]
struct Held {
    octets: usize,
    /// The reply is on its way out.
    answered: bool,
}

/// A record under way, and since when: to see to it that it does not take for ever.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    number: u64,
    since: Instant,
}

impl UnderWay {
    /// What is known of the record of this `number` at `now`.
    fn follow(known: Option<Self>, number: Option<u64>, now: Instant) -> Option<Self> {
        let number = number?;
        known.filter(|known| known.number == number).or(Some(Self { number, since: now }))
    }
}

/// One connection over a byte stream: requester of its own calls, and responder of its peer's.
///
/// The calls of the end that accepted, in the reverse direction, go as those of the other do, if both ends have
/// [`EngineConfig::reverse_credits`]: a stream is as good one way as the other (RFC 5531 §11), and a record says
/// whether it is a call. A client without discards them.
///
/// Call order: any of [`start_call`](Self::start_call), [`cancel_call`](Self::cancel_call), [`reply`](Self::reply),
/// [`receive`](Self::receive), [`handle_timeout`](Self::handle_timeout); then [`poll_work`](Self::poll_work); then
/// [`poll_event`](Self::poll_event) until `None`; then send what [`output`](Self::output) has, say how much went out
/// with [`sent`](Self::sent), and wait.
///
/// # Examples
/// A call and its reply:
///
/// ```
/// use std::time::Instant;
/// use rpcrdma::{
///     engine::{EngineConfig, Event, OutgoingCall, OutgoingReply, Role, stream::{StreamConfig, StreamConnection}},
///     memory::{MessageBuf, Output},
/// };
///
/// // An RPC message: its XID, which the engine of the client writes, a call or a reply, and what follows.
/// let message = |xid: u32, msg_type: u32| {
///     let mut message = MessageBuf::new(EngineConfig::default().pool.alloc(64), 4);
///     [xid, msg_type, 42].iter().for_each(|word| message.append(&word.to_be_bytes()));
///     message
/// };
/// let carry = |from: &mut StreamConnection, to: &mut StreamConnection| {
///     from.poll_work(Instant::now());
///     let octets: Vec<u8> = from.output().iter().flat_map(|slice| slice.to_vec()).collect();
///     from.sent(octets.len());
///     to.receive(&octets);
///     to.handle_records(8);
/// };
/// let mut client = StreamConnection::new(Role::Client, EngineConfig::default(), StreamConfig::default(), 7);
/// let mut server = StreamConnection::new(Role::Server, EngineConfig::default(), StreamConfig::default(), 0);
///
/// let id = client.start_call(OutgoingCall {
///     message: message(0, 0), reduced: Default::default(), reply: Default::default(), deadline: None,
///     policy: Default::default(), seal: None,
/// });
/// carry(&mut client, &mut server);
/// let Some(Event::CallArrived(call)) = server.poll_event() else { panic!() };
/// server.reply(call.token, OutgoingReply { message: message(call.xid, 1), reduced: Default::default() });
/// carry(&mut server, &mut client);
/// let Some(Event::CallFinished { id: finished, result: Ok(_) }) = client.poll_event() else { panic!() };
/// assert_eq!(finished, id);
/// ```
#[derive(Debug)]
pub struct StreamConnection {
    config: EngineConfig,
    stream: StreamConfig,
    state: State,
    fault: Option<CloseReason>,
    counters: Counters,
    events: VecDeque<Event>,

    input: Assembler,
    /// Something has arrived that has not been looked at.
    unparsed: bool,
    receiving: Option<UnderWay>,
    output: Output,
    sending: Option<UnderWay>,

    // Calls of this end's.
    /// Most under way at a time; none with 0.
    most_calls: usize,
    xid_seed: u32,
    next_id: u64,
    queued: BTreeMap<u64, OutgoingCall>,
    calls: HashMap<u64, Sent>,
    abandoned: u32,
    deadlines: Deadlines,

    // Calls of the peer's.
    /// Most that are handed over and not answered; none with 0.
    most_held: usize,
    next_token: u64,
    /// Calls whose replies have not gone out.
    held: HashMap<u64, Held>,
    /// Calls that have come ahead of a reply that this end waits for, and wait until others are answered.
    parked: VecDeque<(Bytes, Charge)>,
    /// Octets of both.
    held_octets: u64,
    /// What they may hold of the server's memory, and what the record under way does.
    memory: Share,
    arriving: Charge,
}

impl StreamConnection {
    /// A connection just made. This end's XIDs start at `xid_seed`, which should be random.
    #[must_use]
    pub fn new(role: Role, config: EngineConfig, stream: StreamConfig, xid_seed: u32) -> Self {
        let (forward, reverse) = (config.credits.max(1), config.reverse_credits);
        let (calls, held) = if role == Role::Client { (forward, reverse) } else { (reverse, forward) };
        Self {
            state: State::Open,
            fault: None,
            counters: Counters { credits_granted: calls, ..Counters::default() },
            events: VecDeque::new(),
            input: Assembler::new(stream),
            unparsed: false,
            receiving: None,
            output: Output::default(),
            sending: None,
            most_calls: calls as usize,
            xid_seed,
            next_id: 0,
            queued: BTreeMap::new(),
            calls: HashMap::new(),
            abandoned: 0,
            deadlines: Deadlines::default(),
            most_held: held as usize,
            next_token: 0,
            held: HashMap::new(),
            parked: VecDeque::new(),
            held_octets: 0,
            memory: Share::of(config.budget.clone()),
            arriving: Charge::default(),
            config,
            stream,
        }
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { calls_queued: self.queued.len() as u32, calls_abandoned: self.abandoned, ..self.counters }
    }

    pub(crate) fn memory(&self) -> &Share {
        &self.memory
    }

    /// Why the connection is over or about to be, if it is.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Open => self.fault.as_ref(),
            State::Closing(reason) | State::HalfClosed(reason) | State::Gone(reason) | State::Closed(reason) => {
                Some(reason)
            }
        }
    }

    /// Makes a call. It goes out, in order of making, when fewer than [`EngineConfig::credits`] are under way, of a server's
    /// [`EngineConfig::reverse_credits`]; an [`Event::CallFinished`] follows in any case.
    pub fn start_call(&mut self, call: OutgoingCall) -> CallId {
        let id = self.next_id;
        self.next_id += 1;
        if let Some(reason) = self.close_reason().cloned() {
            self.finish(id, Err(CallFailure::Closed { reason, sent: false }));
            return CallId(id);
        }
        if self.most_calls == 0 {
            self.finish(id, Err(CallFailure::NoReverse));
            return CallId(id);
        }
        if let Some(deadline) = call.deadline {
            let Self { queued, calls, deadlines, .. } = self;
            let alive = |key| calls.contains_key(&key) || queued.contains_key(&key);
            deadlines.insert(deadline, id, queued.len() + calls.len(), alive);
        }
        self.queued.insert(id, call);
        CallId(id)
    }

    /// Gives a call up: [`CallFailure::Cancelled`]. If it has gone out, its place is taken until its reply comes or
    /// [`EngineConfig::abandon_grace`] is over, so that callers who give up do not overrun the server.
    pub fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.give_up(id.0, now, |sent| CallFailure::Cancelled { sent });
    }

    fn give_up(&mut self, id: u64, now: Instant, failure: impl Fn(bool) -> CallFailure) {
        if self.queued.remove(&id).is_some() {
            self.finish(id, Err(failure(false)));
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        match call.abandoned_until {
            None => {
                let until = now.checked_add(self.config.abandon_grace).unwrap_or(now);
                call.abandoned_until = Some(until);
                self.abandoned += 1;
                self.finish(id, Err(failure(true)));
                let Self { queued, calls, deadlines, .. } = self;
                let alive = |key| calls.contains_key(&key) || queued.contains_key(&key);
                deadlines.insert(until, id, queued.len() + calls.len(), alive);
            }
            // The server has had its time.
            Some(until) if until <= now => {
                self.calls.remove(&id);
                self.abandoned -= 1;
            }
            Some(_) => {}
        }
    }

    fn finish(&mut self, id: u64, result: Result<IncomingReply, CallFailure>) {
        self.events.push_back(Event::CallFinished { id: CallId(id), result });
    }

    /// Replies to a call; an [`Event::ReplySent`] follows. Nothing happens where one has been given already.
    pub fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        let Some(held) = self.held.get_mut(&token.0).filter(|held| !held.answered) else { return };
        held.answered = true;
        if !matches!(self.state, State::Open) {
            self.release(token, false);
            return;
        }
        self.counters.replies_sent += 1;
        self.output.push(reply.message, &reply.reduced, Some(token), self.stream.fragment_size);
    }

    /// Does not reply to a call: a byte stream has no RDMA_ERROR. An [`Event::ReplySent`] follows.
    pub fn refuse(&mut self, token: ReplyToken) {
        if self.held.get(&token.0).is_some_and(|held| !held.answered) {
            self.release(token, false);
        }
    }

    fn release(&mut self, token: ReplyToken, delivered: bool) {
        if let Some(held) = self.held.remove(&token.0) {
            self.held_octets = self.held_octets.saturating_sub(held.octets as u64);
            self.events.push_back(Event::ReplySent { token, delivered });
            if matches!(self.state, State::Open)
                && let Some((record, charge)) = self.parked.pop_front()
            {
                self.hand_over(record, charge);
            }
        }
    }

    /// Closes the connection in order: what is queued goes out, then [`wants_shutdown`](Self::wants_shutdown) holds; when
    /// the peer has closed its side as well, calls fail and [`Event::Closed`] comes.
    pub fn close_with(&mut self, reason: CloseReason) {
        if matches!(self.state, State::Open) {
            self.fail_queued(&reason);
            self.refuse_memory();
            self.state = State::Closing(reason);
        }
    }

    /// Everything is sent that will be: this end's side of the stream is to be closed.
    #[must_use]
    pub fn wants_shutdown(&self) -> bool {
        matches!(self.state, State::Closing(_)) && self.output.is_empty()
    }

    /// This end's side of the stream has been closed.
    pub fn shut_down(&mut self) {
        if let State::Closing(reason) = &self.state {
            self.state = State::HalfClosed(reason.clone());
        }
    }

    /// Whether octets of the peer's are wanted. Not while as many of its calls are unanswered as are allowed, or its server
    /// has no memory for the next: then the stream's flow control holds it back. While a call of this end's waits for its reply, which may be what they are
    /// unanswered for, calls that come ahead of it are put by, as long as there is room for them.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        match self.state {
            State::Open => {
                let room = if self.calls.is_empty() {
                    !self.memory.waits() && self.parked.is_empty() && self.held.len() < self.most_held.max(1)
                } else {
                    self.parked.len() < MOST_PARKED
                };
                self.fault.is_none() && room && (self.held_octets < self.config.max_pulled || self.held.is_empty())
            }
            // Until the peer closes its side.
            State::Closing(_) | State::HalfClosed(_) => true,
            State::Gone(_) | State::Closed(_) => false,
        }
    }

    /// Whether [`handle_records`](Self::handle_records) has something to do.
    pub(crate) fn has_input(&self) -> bool {
        self.unparsed && self.wants_input()
    }

    /// Whether it will have a step to make without hearing anything.
    pub(crate) fn is_pending(&self) -> bool {
        !self.events.is_empty()
            || self.fault.is_some()
            || matches!(self.state, State::Gone(_))
            || (!self.queued.is_empty() && self.has_room())
    }

    /// Takes octets that have arrived.
    pub fn receive(&mut self, octets: &[u8]) {
        self.input.extend(octets);
        self.received(octets.len());
    }

    /// Where octets may be received to; [`received`](Self::received) says how many were.
    pub(crate) fn room(&mut self) -> Limit<&mut BytesMut> {
        self.input.room()
    }

    pub(crate) fn received(&mut self, len: usize) {
        self.counters.received += len as u64;
        self.unparsed = true;
    }

    /// Octets missing of a fragment that has begun to arrive.
    pub(crate) fn missing(&self) -> usize {
        self.input.missing()
    }

    /// Handles at most `most` records that have arrived.
    pub fn handle_records(&mut self, most: usize) {
        if !matches!(self.state, State::Open) {
            // Nothing that arrives now is answered, or waited for.
            self.input.clear();
            self.unparsed = false;
            return;
        }
        for _ in 0..most {
            if !self.wants_input() {
                return;
            }
            match self.admit().and_then(|admitted| if admitted { self.input.next_record() } else { Ok(None) }) {
                Ok(Some(record)) => self.handle_record(record),
                Ok(None) if self.memory.waits() => return,
                Ok(None) => {
                    self.unparsed = false;
                    return;
                }
                Err(error) => self.fault = Some(error.into()),
            }
        }
    }

    /// Takes memory for the record under way, all of it before most has arrived: records half here that wait for each other's
    /// memory would wait for ever. Whether it may go on.
    fn admit(&mut self) -> Result<bool, StreamError> {
        let Some(octets) = self.input.expected()? else { return Ok(true) };
        // Small ones are what goes inline by RDMA: as many as there are credits for each connection, whatever the others do.
        if octets <= self.arriving.octets().max(SMALL as u64) {
            return Ok(true);
        }
        if !self.calls.is_empty() {
            // A reply that this end waits for may be behind it.
            self.memory.stop_waiting();
            self.arriving = self.memory.take_anyway(octets);
            return Ok(true);
        }
        Ok(self.memory.take(octets).map(|charge| self.arriving = charge).is_some())
    }

    /// Nothing more that arrives is kept.
    fn refuse_memory(&mut self) {
        self.memory.stop_waiting();
        self.arriving = Charge::default();
    }

    fn handle_record(&mut self, record: Bytes) {
        let mut charge = std::mem::take(&mut self.arriving);
        charge.shrink(record.len() as u64);
        let word = |at: usize| record.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
        // RFC 5531 §9: the XID, then CALL or REPLY. XIDs of calls and of replies have nothing to do with each other.
        match (word(0), word(4)) {
            (Some(_), Some(0)) if self.most_held > 0 => self.handle_call(record, charge),
            (Some(xid), Some(1)) if self.most_calls > 0 => self.handle_reply(xid, record),
            // Calls to an end that takes none, replies to one that makes none.
            (Some(_), Some(0 | 1)) => self.counters.discarded += 1,
            _ => self.fault = Some(StreamError::NotAMessage { len: record.len() }.into()),
        }
    }

    fn handle_call(&mut self, record: Bytes, charge: Charge) {
        self.counters.calls_received += 1;
        self.held_octets += record.len() as u64;
        if self.held.len() < self.most_held {
            self.hand_over(record, charge);
        } else {
            self.parked.push_back((record, charge));
        }
    }

    fn hand_over(&mut self, record: Bytes, charge: Charge) {
        let token = ReplyToken(self.next_token);
        self.next_token += 1;
        self.held.insert(token.0, Held { octets: record.len(), answered: false });
        let xid = record.first_chunk().copied().map_or(0, u32::from_be_bytes);
        let (payload, reads) = (self.payload(record), SmallVec::new());
        self.events.push_back(Event::CallArrived(IncomingCall {
            token,
            xid,
            payload,
            format: Format::Record,
            reads,
            reply: ReplyPlan::default(),
            charge,
        }));
    }

    fn handle_reply(&mut self, xid: u32, record: Bytes) {
        // Calls under way are among the last 2^32: the XID tells which.
        let back = (self.next_id as u32).wrapping_add(self.xid_seed).wrapping_sub(xid);
        let id = self.next_id.checked_sub(u64::from(back));
        let Some((id, call)) = id.and_then(|id| Some((id, self.calls.remove(&id)?))) else {
            // Of a call that was given up long ago, or of none.
            self.counters.discarded += 1;
            return;
        };
        self.counters.replies_received += 1;
        if call.abandoned_until.is_some() {
            self.abandoned -= 1;
            return;
        }
        let payload = self.payload(record);
        self.finish(
            id,
            Ok(IncomingReply {
                payload,
                writes: SmallVec::new(),
                format: Format::Record,
                reason: FormatReason::Stream,
                call: Choice { format: Format::Record, reason: FormatReason::Stream },
            }),
        );
    }

    fn payload(&self, record: Bytes) -> Payload {
        if record.len() > SMALL {
            return Payload::Long(record);
        }
        let mut memory = self.config.pool.alloc(record.len());
        memory.copy_from_slice(&record);
        Payload::Inline(MessageBuf::received(memory, record.len()))
    }

    /// The peer has closed its side.
    pub fn ended(&mut self) {
        let reason = match self.input.begun() {
            Some(received) => StreamError::EndedInRecord { received }.into(),
            None => CloseReason::Disconnected(DisconnectReason::Remote),
        };
        self.lost(reason);
    }

    /// The stream is over.
    pub fn lost(&mut self, reason: CloseReason) {
        if matches!(self.state, State::Gone(_) | State::Closed(_)) {
            return;
        }
        let reason = self.close_reason().cloned().unwrap_or(reason);
        self.fail_queued(&reason);
        for (id, call) in std::mem::take(&mut self.calls) {
            if call.abandoned_until.is_none() {
                self.finish(id, Err(CallFailure::Closed { reason: reason.clone(), sent: true }));
            }
        }
        self.abandoned = 0;
        self.held_octets = 0;
        self.refuse_memory();
        self.parked.clear();
        for (token, _) in std::mem::take(&mut self.held) {
            self.events.push_back(Event::ReplySent { token: ReplyToken(token), delivered: false });
        }
        self.output.clear();
        self.input.clear();
        self.state = State::Gone(reason);
    }

    fn fail_queued(&mut self, reason: &CloseReason) {
        for (id, _) in std::mem::take(&mut self.queued) {
            self.finish(id, Err(CallFailure::Closed { reason: reason.clone(), sent: false }));
        }
    }

    /// Gives up the calls whose deadline is not after `now`, and the connection whose peer takes too long for a record.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.deadlines.pop_due(now) {
            self.give_up(id, now, |sent| CallFailure::DeadlineExceeded { sent });
        }
        let timeout = self.stream.record_timeout;
        let late = |record: Option<UnderWay>| record.is_some_and(|record| now.duration_since(record.since) >= timeout);
        if late(self.receiving) {
            self.fault.get_or_insert(StreamError::ReceiveTimedOut { timeout }.into());
        } else if late(self.sending) {
            self.fault.get_or_insert(StreamError::SendTimedOut { timeout }.into());
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        if matches!(self.state, State::Gone(_) | State::Closed(_)) {
            return None;
        }
        let Self { queued, calls, deadlines, .. } = self;
        let deadline = deadlines.next(|key| calls.contains_key(&key) || queued.contains_key(&key));
        let records = [self.receiving, self.sending].into_iter().flatten();
        let late = records.filter_map(|record| record.since.checked_add(self.stream.record_timeout));
        late.chain(deadline).min()
    }

    /// Whether one more call may go out.
    fn has_room(&self) -> bool {
        self.calls.len() < self.most_calls && self.output.queued() < OUTPUT_ENOUGH
    }

    /// Makes records of what is due.
    pub fn poll_work(&mut self, now: Instant) {
        if let Some(fault) = self.fault.clone() {
            self.lost(fault);
            self.fault = None;
        }
        match &self.state {
            State::Open => {
                if self.memory.is_called()
                    && let Err(error) = self.admit()
                {
                    self.fault = Some(error.into());
                }
                while self.has_room()
                    && let Some((id, call)) = self.queued.pop_first()
                {
                    self.send_call(id, call, now);
                }
            }
            State::Gone(reason) => {
                let reason = reason.clone();
                self.events.push_back(Event::Closed(reason.clone()));
                self.state = State::Closed(reason);
                return;
            }
            _ => {}
        }
        // The time during which this end does not read is not the peer's.
        let receiving = self.input.begun().filter(|_| self.wants_input()).map(|_| self.input.complete());
        self.receiving = UnderWay::follow(self.receiving, receiving, now);
        let sending = (!self.output.is_empty()).then(|| self.output.complete());
        self.sending = UnderWay::follow(self.sending, sending, now);
    }

    fn send_call(&mut self, id: u64, call: OutgoingCall, now: Instant) {
        let OutgoingCall { mut message, mut reduced, deadline, seal, .. } = call;
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.finish(id, Err(CallFailure::DeadlineExceeded { sent: false }));
            return;
        }
        let xid = self.xid_seed.wrapping_add(id as u32);
        if let Some(at) = message.first_chunk_mut() {
            *at = xid.to_be_bytes();
        }
        if let Some(sealer) = seal {
            match seal::seal(message, &mut reduced, &*sealer, &self.config.pool) {
                Ok(sealed) => message = sealed,
                Err(failure) => return self.finish(id, Err(failure)),
            }
        }
        self.counters.calls_sent += 1;
        self.calls.insert(id, Sent { abandoned_until: None });
        self.output.push(message, &reduced, None, self.stream.fragment_size);
    }

    /// What is to go out next.
    #[must_use]
    pub fn output(&self) -> SmallVec<[IoSlice<'_>; 64]> {
        self.output.slices()
    }

    /// So many octets of it have gone out.
    pub fn sent(&mut self, len: usize) {
        self.counters.sent += len as u64;
        let mut replied: SmallVec<[ReplyToken; 8]> = SmallVec::new();
        self.output.advance(len, |token| replied.push(token));
        replied.into_iter().for_each(|token| self.release(token, true));
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
