//! Calls and replies of one connection over a byte stream.

mod receive;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io::IoSlice,
    time::Instant,
};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Assembler, StreamConfig, output::Output};
use crate::{
    engine::{
        CallFailure, CallId, CloseReason, Counters, Engine, EngineConfig, Event, IncomingReply, OutgoingCall,
        OutgoingReply, ReplyToken, Role, StreamError,
        deadlines::{self, Deadlines},
        plan::insert,
        seal,
        untaken::Untaken,
    },
    memory::{Charge, MessageBuf, Share},
    provider::DisconnectReason,
    xdr::Reduced,
};

/// Octets waiting to go out with which no further call is begun: until then it can be cancelled as if never made.
const OUTPUT_ENOUGH: usize = 256 << 10;

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
///     engine::{Engine, EngineConfig, Event, OutgoingCall, OutgoingReply, Role, stream::{StreamConfig, StreamConnection}},
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
///     from.poll_work(&mut (), Instant::now());
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

    pub(super) input: Assembler,
    /// Something has arrived that has not been looked at.
    unparsed: bool,
    receiving: Option<UnderWay>,
    output: Output,
    sending: Option<UnderWay>,
    /// Whether the peer takes its replies.
    untaken: Untaken,

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
            untaken: Untaken::default(),
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

    fn give_up(&mut self, id: u64, now: Instant, failure: impl Fn(bool) -> CallFailure) {
        if self.queued.remove(&id).is_some() {
            self.finish(id, Err(failure(false)));
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        match call.abandoned_until {
            None => {
                let until = deadlines::after(now, self.config.abandon_grace);
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

    /// Whether it will have a step to make without hearing anything.
    pub(crate) fn is_pending(&self) -> bool {
        !self.events.is_empty()
            || self.fault.is_some()
            || matches!(self.state, State::Gone(_))
            || (!self.queued.is_empty() && self.has_room())
    }

    /// The stream is over.
    pub fn end_with(&mut self, reason: CloseReason) {
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

    /// Whether one more call may go out.
    fn has_room(&self) -> bool {
        self.calls.len() < self.most_calls && self.output.queued() < OUTPUT_ENOUGH
    }

    /// Puts eligible items shorter than [`EngineConfig::min_reduce`] back into the payload stream: to copy them costs less than a
    /// piece of the record each.
    fn put_back_small(
        &mut self,
        message: &mut MessageBuf,
        reduced: &mut SmallVec<[Reduced; 2]>,
    ) -> Result<(), CallFailure> {
        if !reduced.is_empty() {
            let least = self.config.min_reduce;
            self.counters.copied_eligible += insert(message, reduced, |item| item.data.len() < least)?;
        }
        Ok(())
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
        if let Err(failure) = self.put_back_small(&mut message, &mut reduced) {
            return self.finish(id, Err(failure));
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
        if len > 0 {
            self.untaken.go_on();
        }
        let mut replied: SmallVec<[ReplyToken; 8]> = SmallVec::new();
        self.output.advance(len, |token| replied.push(token));
        replied.into_iter().for_each(|token| self.release(token, true));
    }
}

impl Engine for StreamConnection {
    type Port = ();

    fn start_call(&mut self, call: OutgoingCall) -> CallId {
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

    fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.give_up(id.0, now, |sent| CallFailure::Cancelled { sent });
    }

    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        let OutgoingReply { mut message, mut reduced } = reply;
        let Some(held) = self.held.get_mut(&token.0).filter(|held| !held.answered) else { return };
        held.answered = true;
        if !matches!(self.state, State::Open) {
            self.release(token, false);
            return;
        }
        if self.put_back_small(&mut message, &mut reduced).is_err() {
            self.release(token, false);
            return;
        }
        self.counters.replies_sent += 1;
        self.output.push(message, &reduced, Some(token), self.stream.fragment_size);
    }

    fn reply_error(&mut self, token: ReplyToken) {
        if self.held.get(&token.0).is_some_and(|held| !held.answered) {
            self.release(token, false);
        }
    }

    fn close_with(&mut self, reason: CloseReason) {
        if matches!(self.state, State::Open) {
            self.fail_queued(&reason);
            self.refuse_memory();
            self.state = State::Closing(reason);
        }
    }

    fn lost(&mut self, reason: DisconnectReason) {
        self.end_with(CloseReason::Disconnected(reason));
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Open => self.fault.as_ref(),
            State::Closing(reason) | State::HalfClosed(reason) | State::Gone(reason) | State::Closed(reason) => {
                Some(reason)
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
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
        self.untaken.handle_timeout(now);
        if self.untaken.is_over(self.counters.sent) {
            self.fault.get_or_insert(CloseReason::Untaken(self.config.reply_timeout));
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        if matches!(self.state, State::Gone(_) | State::Closed(_)) {
            return None;
        }
        let Self { queued, calls, deadlines, .. } = self;
        let deadline = deadlines.next(|key| calls.contains_key(&key) || queued.contains_key(&key));
        let records = [self.receiving, self.sending].into_iter().flatten();
        let late = records.filter_map(|record| record.since.checked_add(self.stream.record_timeout));
        late.chain(deadline).chain(self.untaken.due()).min()
    }

    fn poll_work(&mut self, _port: &mut (), now: Instant) {
        if let Some(fault) = self.fault.clone() {
            self.end_with(fault);
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
        self.untaken.watch(self.output.has_replies(), self.counters.sent, now, self.config.reply_timeout);
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn counters(&self) -> Counters {
        Counters { calls_queued: self.queued.len() as u32, calls_abandoned: self.abandoned, ..self.counters }
    }

    fn memory(&self) -> &Share {
        &self.memory
    }
}
