//! Calls and replies of one connection over a byte stream.

mod receive;

use std::{collections::VecDeque, io::IoSlice, sync::Arc, time::Instant};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{RecordAssembler, StreamConfig, output::RecordOutput};
use crate::{
    engine::{
        CallFailure, CallId, ChunkItems, CloseReason, ConnectionCounters, Engine, EngineConfig, EngineEvent,
        FormatChoice, FormatReason, MessageFormat, OutgoingCall, OutgoingReply, ReplyToken, Role, StreamError,
        TransportError,
        common::{
            shared::{ConnectionRules, EngineShared},
            slots::GenerationalSlab,
            state::ConnectionState,
        },
        interface::incoming::SpareChunks,
        requester::{calls::LocalCalls, plan::insert},
    },
    memory::{BudgetCharge, MemoryShare, MessageBuf},
    provider::DisconnectReason,
    xdr::ReducedItem,
};

/// Number of queued output bytes at which no further call is started. A call that has not started can be cancelled
/// before anything is sent.
const OUTPUT_ENOUGH: usize = 256 << 10;

/// A call from the peer whose reply has not been sent completely.
#[derive(Debug, Clone, Copy)]
struct ServedStreamCall {
    bytes: usize,
    /// `true` if the reply has been queued.
    answered: bool,
}

/// The record in progress and its start time, for the record timeout.
#[derive(Debug, Clone, Copy)]
struct RecordProgress {
    number: u64,
    since: Instant,
}

impl RecordProgress {
    /// Returns the progress of record `number` at `now`. The start time is kept while the number stays the same.
    fn follow(known: Option<Self>, number: Option<u64>, now: Instant) -> Option<Self> {
        let number = number?;
        known.filter(|known| known.number == number).or(Some(Self { number, since: now }))
    }
}

/// One connection over a byte stream: requester of local calls, and responder to the calls of the peer.
///
/// Calls in the reverse direction, from the side that accepted the connection, work like those in the forward direction
/// if both sides set [`EngineConfig::reverse_credits`]. A stream carries records both ways (RFC 5531 §11), and the
/// message type in each record distinguishes calls from replies. A client without reverse credits discards calls.
///
/// [`Engine`] documents the methods and the order in which to call them. The engine's own input methods are
/// [`receive`](Self::receive), followed by [`handle_records`](Self::handle_records), and [`ended`](Self::ended). After
/// [`poll_event`](Self::poll_event) has returned `None`, send the bytes that [`output`](Self::output) returns, report
/// the bytes sent with [`sent`](Self::sent), and wait.
///
/// # Examples
/// A call and its reply:
///
/// ```
/// use std::time::Instant;
/// use rpcrdma_proto::{
///     engine::{
///         Engine, EngineConfig, EngineEvent, OutgoingCall, OutgoingReply, Role,
///         stream::{StreamConfig, StreamConnection},
///     },
///     memory::{MessageBuf, Output},
/// };
///
/// // An RPC message: its XID, which the client's engine sets, the message type, and a body.
/// let message = |xid: u32, msg_type: u32| {
///     let mut message = MessageBuf::new(EngineConfig::default().pool.alloc(64), 4);
///     [xid, msg_type, 42].iter().for_each(|word| message.append(&word.to_be_bytes()));
///     message
/// };
/// let carry = |from: &mut StreamConnection, to: &mut StreamConnection| {
///     from.poll_work(&mut (), Instant::now());
///     let bytes: Vec<u8> = from.output().iter().flat_map(|slice| slice.to_vec()).collect();
///     from.sent(bytes.len());
///     to.receive(&bytes);
///     to.handle_records(8);
/// };
/// let mut client = StreamConnection::new(Role::Client, EngineConfig::default(), StreamConfig::default(), 7);
/// let mut server = StreamConnection::new(Role::Server, EngineConfig::default(), StreamConfig::default(), 0);
///
/// let id = client.start_call(OutgoingCall {
///     message: message(0, 0), reduced: Default::default(), reply: Default::default(), deadline: None,
///     policy: Default::default(),
/// });
/// carry(&mut client, &mut server);
/// let Some(EngineEvent::CallArrived(call)) = server.poll_event() else { panic!() };
/// server.reply(call.token, OutgoingReply { message: message(call.xid, 1), reduced: Default::default() });
/// carry(&mut server, &mut client);
/// let Some(EngineEvent::CallFinished { id: finished, result: Ok(_) }) = client.poll_event() else { panic!() };
/// assert_eq!(finished, id);
/// ```
#[derive(Debug)]
pub struct StreamConnection {
    stream: StreamConfig,
    state: ConnectionState,
    shared: EngineShared,

    pub(super) input: RecordAssembler,
    /// `true` if input has arrived that has not been parsed.
    unparsed: bool,
    receiving: Option<RecordProgress>,
    output: RecordOutput,
    sending: Option<RecordProgress>,

    /// Calls that the local peer makes.
    calls: LocalCalls,
    /// Maximum number of local calls in flight. With 0, local calls fail.
    max_calls: usize,

    // Calls of the peer.
    /// Maximum number of calls delivered and not answered, except for one more NULL call. With 0, calls are discarded.
    max_held: usize,
    /// Calls whose replies have not been sent.
    held: GenerationalSlab<ServedStreamCall>,
    /// Calls that arrived while `max_held` calls were unanswered: at most one, or any number up to a bound while a
    /// local call waits for its reply. They are delivered as earlier calls are answered.
    parked: VecDeque<(Bytes, BudgetCharge)>,
    /// Memory for the charges of calls that are passed to the upper layer.
    spare_chunks: Arc<SpareChunks>,
    /// Total length of the calls in `held` and `parked`, in bytes.
    held_bytes: u64,
    /// Charge of the record in progress against the memory budget.
    arriving: BudgetCharge,
}

impl StreamConnection {
    /// Creates the engine of a new connection. Local XIDs start at `xid_seed`, which should be random.
    #[must_use]
    pub fn new(role: Role, config: EngineConfig, stream: StreamConfig, xid_seed: u32) -> Self {
        let (forward, reverse) = (config.credits.max(1), config.reverse_credits);
        let (calls, held) = if role == Role::Client { (forward, reverse) } else { (reverse, forward) };
        let mut shared = EngineShared::new(config, ConnectionRules::without_header(role));
        shared.counters.credits_granted = calls;
        Self {
            stream,
            state: ConnectionState::Open,
            shared,
            input: RecordAssembler::new(stream),
            unparsed: false,
            receiving: None,
            output: RecordOutput::default(),
            sending: None,
            calls: LocalCalls::new(role == Role::Server, xid_seed),
            max_calls: calls as usize,
            max_held: held as usize,
            held: GenerationalSlab::default(),
            parked: VecDeque::new(),
            spare_chunks: Arc::default(),
            held_bytes: 0,
            arriving: BudgetCharge::default(),
        }
    }

    /// Marks a call of the peer as answered. Returns `false` if it is unknown or was answered before.
    fn set_answered(&mut self, token: ReplyToken) -> bool {
        let held = self.held.index(token.0).and_then(|slot| self.held.get_mut(slot));
        held.is_some_and(|held| !std::mem::replace(&mut held.answered, true))
    }

    fn release(&mut self, token: ReplyToken, delivered: bool) {
        if let Some(slot) = self.held.index(token.0) {
            let bytes = self.held.get(slot).map_or(0, |held| held.bytes as u64);
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            self.held.remove(slot);
            self.shared.events.push_back(EngineEvent::ReplySent { token, delivered });
            if matches!(self.state, ConnectionState::Open)
                && self.held.len() < self.max_held
                && let Some((record, charge)) = self.parked.pop_front()
            {
                self.hand_over(record, charge);
            }
        }
    }

    /// Returns `true` if the connection is closing and all output has been sent, so that the local side of the stream
    /// can be closed.
    #[must_use]
    pub fn wants_shutdown(&self) -> bool {
        matches!(self.state, ConnectionState::Closing(_)) && self.output.is_empty()
    }

    /// Reports that the local side of the stream has been closed.
    pub fn shut_down(&mut self) {
        if let ConnectionState::Closing(reason) = &self.state {
            self.state = ConnectionState::Disconnecting(reason.clone());
        }
    }

    /// Returns `true` if the engine can make progress without further input.
    #[doc(hidden)]
    pub fn is_pending(&self) -> bool {
        !self.shared.events.is_empty()
            || self.shared.fault.is_some()
            || matches!(self.state, ConnectionState::Gone(_))
            || (self.shared.counters.calls_queued > 0 && self.has_room())
    }

    /// Reports the end of the stream. `reason` is used unless the connection is already closing for another reason.
    pub fn end_with(&mut self, reason: CloseReason) {
        if matches!(self.state, ConnectionState::Gone(_) | ConnectionState::Closed(_)) {
            return;
        }
        let reason = self.close_reason().cloned().unwrap_or(reason);
        self.calls.disconnected(&reason, &mut self.shared);
        self.held_bytes = 0;
        self.refuse_memory();
        self.parked.clear();
        let held = std::mem::take(&mut self.held);
        let tokens = held.indices().map(|slot| ReplyToken(held.key(slot)));
        self.shared.events.extend(tokens.map(|token| EngineEvent::ReplySent { token, delivered: false }));
        self.output.clear();
        self.input.clear();
        self.state = ConnectionState::Gone(reason);
    }

    /// Returns `true` if another call may be sent.
    fn has_room(&self) -> bool {
        let kept = self.calls.kept_credits(self.max_calls, &self.shared);
        // A byte stream has no credits, so that an urgent call need not wait for one.
        let most = self.max_calls + usize::from(self.calls.is_next_urgent());
        self.calls.in_flight() + kept < most && self.output.queued < OUTPUT_ENOUGH
    }

    fn post_call(&mut self, slot: u32) -> Result<(), CallFailure> {
        let Self { calls, shared, .. } = self;
        let xid = calls.xid_for(slot)?;
        let Some(call) = calls.get_mut(slot) else { return Ok(()) };
        let Some(mut message) = call.take_message(xid)? else { return Ok(()) };
        put_back_small(&mut message, &mut call.reduced, shared)?;
        call.choice = FormatChoice { format: MessageFormat::Record, reason: FormatReason::Stream };
        self.output.push(message, &std::mem::take(&mut call.reduced), None, self.stream.fragment_size);
        calls.sending(slot, xid, shared);
        Ok(())
    }

    /// Returns `true` if [`output`](Self::output) has bytes to send.
    #[doc(hidden)]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns the numbers of bytes sent and received.
    #[doc(hidden)]
    pub fn bytes_moved(&self) -> (u64, u64) {
        (self.shared.counters.bytes_sent, self.shared.counters.bytes_received)
    }

    /// Returns the bytes to send next.
    #[must_use]
    pub fn output(&self) -> SmallVec<[IoSlice<'_>; 64]> {
        self.output.slices()
    }

    /// Reports that the first `len` bytes of [`output`](Self::output) have been sent.
    pub fn sent(&mut self, len: usize) {
        self.shared.counters.bytes_sent += len as u64;
        if len > 0 {
            self.shared.reply_stall.restart();
        }
        let mut replied: SmallVec<[ReplyToken; 8]> = SmallVec::new();
        self.output.advance(len, |token| replied.push(token));
        replied.into_iter().for_each(|token| self.release(token, true));
    }
}

/// Puts eligible items shorter than [`EngineConfig::min_reduce`] back into the payload stream: copying them costs less
/// than a separate piece of the record for each.
fn put_back_small(
    message: &mut MessageBuf,
    reduced: &mut ChunkItems<ReducedItem>,
    shared: &mut EngineShared,
) -> Result<(), CallFailure> {
    if reduced.is_empty() {
        return Ok(());
    }
    let min = shared.config.min_reduce;
    insert(message, reduced, |item| item.data.len() < min, &mut shared.counters)
}

impl Engine for StreamConnection {
    type Port = ();

    fn start_call(&mut self, call: OutgoingCall) -> CallId {
        let id = self.calls.start(call, &mut self.shared);
        if self.max_calls == 0 {
            self.calls.refuse_queued(&CallFailure::ReverseDisabled, &mut self.shared);
        }
        if let Some(reason) = self.close_reason().cloned() {
            self.calls.fail_queued(&reason, &mut self.shared);
        }
        id
    }

    fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.calls.cancel(id, now, &mut self.shared);
    }

    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        let OutgoingReply { mut message, mut reduced } = reply;
        if !self.set_answered(token) {
            return;
        }
        if !matches!(self.state, ConnectionState::Open)
            || put_back_small(&mut message, &mut reduced, &mut self.shared).is_err()
        {
            self.release(token, false);
            return;
        }
        self.shared.counters.replies_sent += 1;
        self.output.push(message, &reduced, Some(token), self.stream.fragment_size);
    }

    fn reply_error(&mut self, token: ReplyToken, _error: TransportError) {
        if self.set_answered(token) {
            self.release(token, false);
        }
    }

    fn close_with(&mut self, reason: CloseReason) {
        if matches!(self.state, ConnectionState::Open) {
            self.calls.fail_queued(&reason, &mut self.shared);
            self.refuse_memory();
            self.state = ConnectionState::Closing(reason);
        }
    }

    fn connection_lost(&mut self, reason: DisconnectReason) {
        self.end_with(CloseReason::Disconnected(reason));
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        self.state.reason().or(self.shared.fault.as_ref())
    }

    fn handle_timeout(&mut self, now: Instant) {
        // A byte stream has no credits that could run out.
        self.calls.handle_timeout(now, true, &mut self.shared);
        let timeout = self.stream.record_timeout;
        let late =
            |record: Option<RecordProgress>| record.is_some_and(|record| now.duration_since(record.since) >= timeout);
        if late(self.receiving) {
            self.shared.fault.get_or_insert(StreamError::ReceiveTimedOut { timeout }.into());
        } else if late(self.sending) {
            self.shared.fault.get_or_insert(StreamError::SendTimedOut { timeout }.into());
        }
        self.shared.reply_stall.handle_timeout(now);
        let sent = self.shared.counters.bytes_sent;
        self.shared.check_reply_stall(|| sent);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        if matches!(self.state, ConnectionState::Gone(_) | ConnectionState::Closed(_)) {
            return None;
        }
        let deadline = self.calls.next_deadline();
        let records = [self.receiving, self.sending].into_iter().flatten();
        let late = records.filter_map(|record| record.since.checked_add(self.stream.record_timeout));
        late.chain(deadline).chain(self.shared.reply_stall.due()).min()
    }

    fn poll_work(&mut self, _port: &mut (), now: Instant) {
        if let Some(fault) = self.shared.fault.take() {
            self.end_with(fault);
        }
        match &self.state {
            ConnectionState::Open => {
                if self.shared.memory.is_called()
                    && let Err(error) = self.admit()
                {
                    self.shared.fault = Some(error.into());
                }
                while self.calls.has_queued()
                    && self.has_room()
                    && let Some(slot) = self.calls.next_queued(now, &mut self.shared)
                {
                    let posted = self.post_call(slot);
                    self.calls.posted(slot, posted, now, &mut self.shared);
                }
            }
            ConnectionState::Gone(reason) => {
                let reason = reason.clone();
                self.shared.events.push_back(EngineEvent::Closed(reason.clone()));
                self.state = ConnectionState::Closed(reason);
                return;
            }
            _ => {}
        }
        // The record timeout does not run while the engine itself does not read.
        let receiving = self.input.in_progress().filter(|_| self.wants_input()).map(|_| self.input.complete());
        self.receiving = RecordProgress::follow(self.receiving, receiving, now);
        let sending = (!self.output.is_empty()).then(|| self.output.complete());
        self.sending = RecordProgress::follow(self.sending, sending, now);
        let sent = self.shared.counters.bytes_sent;
        self.shared.watch_replies(self.output.has_replies(), || sent, now);
    }

    fn poll_event(&mut self) -> Option<EngineEvent> {
        self.shared.events.pop_front()
    }

    fn copy_counters(&self, counters: &mut ConnectionCounters) {
        counters.clone_from(&self.shared.counters);
        counters.calls_abandoned = self.calls.abandoned();
    }

    fn is_receiving(&self) -> bool {
        self.input.in_progress().is_some()
    }

    fn memory(&self) -> &MemoryShare {
        &self.shared.memory
    }
}
