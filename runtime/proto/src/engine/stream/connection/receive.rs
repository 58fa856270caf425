//! Incoming records: flow control, memory, and dispatch to calls and replies (RFC 5531 §9).

use bytes::{Bytes, BytesMut, buf::Limit};
use smallvec::SmallVec;

use super::{ServedStreamCall, StreamConnection};
use crate::{
    engine::{
        CallFailure, CloseReason, EngineEvent, IncomingCall, MessageFault, MessageFormat, MessagePayload, ReplyToken,
        StreamError,
        common::{
            message::{CALL, REPLY},
            state::ConnectionState,
        },
        interface::incoming::CallChunks,
        requester::call::{CheckedReply, LocalCall},
        stream::record::{LAST, READ, SMALL},
    },
    memory::{BudgetCharge, MessageBuf},
    provider::DisconnectReason,
    rpc::peek_words,
};

/// Length in bytes of the XID and the message type, which distinguishes calls from replies (RFC 5531 §9).
const HEAD: u64 = 8;
/// Maximum number of calls of the peer that are parked. A peer that respects the local credits never reaches this
/// limit.
const MAX_PARKED: usize = 1024;
/// Number of bytes of a record that must have arrived before memory is reserved for all of it.
const PROVEN: u64 = READ as u64 / 2;

impl StreamConnection {
    /// Returns `true` if the driver should read more input from the peer.
    ///
    /// The engine stops reading while too many calls of the peer are unanswered, or while the server has no memory for
    /// the next one. The stream's flow control then holds the peer back. While a local call waits for its reply, the
    /// engine keeps reading and parks the calls that arrive before the reply, as long as there is memory, because the
    /// unanswered calls may depend on that reply.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        match self.state {
            ConnectionState::Open => {
                let room = if self.calls.in_flight() == 0 {
                    // One call more, which may be a probe that must not wait for the others.
                    self.parked.is_empty() && self.held.len() <= self.max_held.max(1)
                } else {
                    self.parked.len() < MAX_PARKED
                };
                let has_memory = self.held_bytes < self.shared.config.max_fetched || self.held.len() == 0;
                self.shared.fault.is_none() && room && has_memory && !self.shared.memory.waits()
            }
            // Read until the peer closes its side.
            ConnectionState::Closing(_) | ConnectionState::Disconnecting(_) => true,
            ConnectionState::Gone(_) | ConnectionState::Closed(_) => false,
        }
    }

    /// Returns `true` if [`handle_records`](Self::handle_records) has something to do.
    #[doc(hidden)]
    pub fn has_input(&self) -> bool {
        self.unparsed && self.wants_input()
    }

    /// Appends bytes that have arrived.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        self.received(bytes.len());
    }

    /// Returns the buffer to receive into. Report the bytes received with [`received`](Self::received).
    #[doc(hidden)]
    pub fn room(&mut self) -> Limit<&mut BytesMut> {
        // Bytes that are not charged yet arrive in small steps.
        let is_charged = !self.shared.memory.is_limited() || self.arriving.bytes() > 0;
        self.input.room(if is_charged { usize::MAX } else { READ })
    }

    #[doc(hidden)]
    pub fn received(&mut self, len: usize) {
        self.shared.counters.bytes_received += len as u64;
        self.unparsed = true;
    }

    /// Returns the number of bytes missing from a fragment that has begun to arrive.
    #[doc(hidden)]
    pub fn missing(&self) -> usize {
        self.input.missing()
    }

    /// Handles at most `max` records that have arrived. Drops all input if the connection is not open.
    pub fn handle_records(&mut self, max: usize) {
        if !matches!(self.state, ConnectionState::Open) {
            // The connection is closing: nothing that arrives now is answered or waited for.
            self.input.clear();
            self.unparsed = false;
            return;
        }
        for _ in 0..max {
            if !self.wants_input() {
                return;
            }
            match self.admit().and_then(|admitted| if admitted { self.input.next_record() } else { Ok(None) }) {
                Ok(Some(record)) => self.handle_record(record),
                Ok(None) if self.shared.memory.waits() => return,
                Ok(None) => {
                    self.unparsed = false;
                    return;
                }
                Err(error) => match self.skip(error) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.unparsed = false;
                        return;
                    }
                    Err(error) => self.shared.fault = Some(error.into()),
                },
            }
        }
    }

    /// Starts to drop a reply that exceeds
    /// [`StreamConfig::max_record`](crate::engine::stream::StreamConfig::max_record), and fails only its call, because
    /// the server did nothing wrong. Returns `false` if too little of the reply has arrived to identify its call.
    ///
    /// # Errors
    /// Returns `error` unless it is [`StreamError::RecordTooLong`] and the record is a reply to a local call. Without
    /// that match, nothing shows that the peer speaks RPC at all.
    fn skip(&mut self, error: StreamError) -> Result<bool, StreamError> {
        let StreamError::RecordTooLong { len, max, marker } = error else { return Err(error) };
        if len < HEAD || self.shared.counters.calls_sent == 0 {
            return Err(error);
        }
        let Some(head) = self.input.head() else { return Ok(false) };
        let Some([xid, REPLY]) = peek_words(&head) else { return Err(error) };
        if !self.calls.has_used(xid) {
            return Err(error);
        }
        self.input.skip();
        // Release the memory reserved for earlier fragments.
        self.refuse_memory();
        self.shared.counters.messages_discarded += 1;
        if let Some(slot) = self.calls.by_xid(xid) {
            // RFC 5531 §11: more fragments may follow one that is not the last.
            let is_complete = u32::from_be_bytes(marker) & LAST != 0;
            let fault = MessageFault::RecordTooLong { len, max, is_complete };
            self.calls.answered(slot, Err(CallFailure::BadReply(fault)), &mut self.shared);
        }
        Ok(true)
    }

    /// Reserves memory for the whole record in progress when a part of it has arrived. An announced length alone
    /// therefore takes no memory, and partial records that wait for each other's memory cannot deadlock. Returns `true`
    /// if reading may continue.
    pub(super) fn admit(&mut self) -> Result<bool, StreamError> {
        let Some(bytes) = self.input.expected()? else { return Ok(true) };
        // Small records correspond to inline messages over RDMA. Each connection may have as many as it has credits,
        // independent of other connections.
        if bytes <= self.arriving.bytes().max(SMALL as u64) {
            return Ok(true);
        }
        if self.shared.memory.is_limited() && self.input.in_progress().unwrap_or(0) < bytes.min(PROVEN) {
            return Ok(true);
        }
        if self.is_awaited(bytes) {
            self.shared.memory.stop_waiting();
            self.arriving = self.shared.memory.overcommit(bytes);
            return Ok(true);
        }
        Ok(self.shared.memory.take(bytes).map(|charge| self.arriving = charge).is_some())
    }

    /// Returns `true` if the record in progress, of `bytes` bytes, must not wait for memory. This is the case for a
    /// reply to a local call that is no longer than the call has provided for, because the call may hold the memory
    /// that the reply needs.
    ///
    /// All other records wait: longer replies, and calls of the peer even if an awaited reply follows them. Otherwise,
    /// peers that do not reply could take memory without limit.
    fn is_awaited(&self, bytes: u64) -> bool {
        if self.calls.in_flight() == 0 {
            return false;
        }
        let Some([xid, REPLY]) = self.input.head().and_then(|head| peek_words(&head)) else { return false };
        self.calls.longest_reply(xid).is_some_and(|longest| bytes <= longest)
    }

    /// Stops waiting for memory and releases the charge of the record in progress.
    pub(super) fn refuse_memory(&mut self) {
        self.shared.memory.stop_waiting();
        self.arriving = BudgetCharge::default();
    }

    fn handle_record(&mut self, record: Bytes) {
        let mut charge = std::mem::take(&mut self.arriving);
        charge.shrink(record.len() as u64);
        // RFC 5531 §9: the XID, then CALL or REPLY. XIDs of calls and of replies are independent.
        match peek_words(&record) {
            Some([_, CALL]) if self.max_held > 0 => self.handle_call(record, charge),
            Some([xid, REPLY]) if self.max_calls > 0 => self.handle_reply(xid, record),
            // Calls to a side that serves none, or replies to one that makes none.
            Some([_, CALL | REPLY]) => self.shared.discard("direction not in use"),
            _ => self.shared.fault = Some(StreamError::NotAMessage { len: record.len() }.into()),
        }
    }

    fn handle_call(&mut self, record: Bytes, charge: BudgetCharge) {
        self.shared.counters.calls_received += 1;
        self.held_bytes += record.len() as u64;
        let is_null = || matches!(peek_words(&record), Some([_, _, _, _, _, 0]));
        if self.held.len() < self.max_held || (self.held.len() == self.max_held && is_null()) {
            self.hand_over(record, charge);
        } else {
            self.parked.push_back((record, charge));
        }
    }

    pub(super) fn hand_over(&mut self, record: Bytes, charge: BudgetCharge) {
        let (_, key) = self.held.insert(ServedStreamCall { bytes: record.len(), answered: false });
        let [xid] = peek_words(&record).unwrap_or_default();
        let payload = self.payload(record);
        let chunks = CallChunks::new(SmallVec::new(), SmallVec::new(), None, charge, &self.spare_chunks);
        self.shared.events.push_back(EngineEvent::CallArrived(IncomingCall {
            token: ReplyToken(key),
            xid,
            payload,
            format: MessageFormat::Record,
            max_inline: 0,
            chunks,
            continues: false,
        }));
    }

    fn handle_reply(&mut self, xid: u32, record: Bytes) {
        let Some(slot) = self.calls.by_xid(xid) else { return self.shared.discard("no call in flight has its XID") };
        let payload = self.payload(record);
        if self.calls.get(slot).is_some_and(LocalCall::is_plain) {
            return self.calls.answered_plain(slot, payload, &mut self.shared);
        }
        let reply = CheckedReply { inline: Some(payload), continued: false, long: 0, writes: SmallVec::new() };
        self.calls.answered(slot, Ok(reply), &mut self.shared);
    }

    fn payload(&self, record: Bytes) -> MessagePayload {
        if record.len() > SMALL {
            return MessagePayload::Long(record);
        }
        // Copied, so that a small payload does not keep the whole receive buffer alive.
        let mut memory = self.shared.config.pool.alloc(record.len());
        memory.copy_from_slice(&record);
        MessagePayload::Inline(MessageBuf::received(memory, record.len()))
    }

    /// Ends the connection, because the peer has closed its side of the stream.
    pub fn ended(&mut self) {
        let reason = match (self.input.expected(), self.input.in_progress()) {
            // A record that is too long, of which too little arrived to identify its call.
            (Err(error), _) => error.into(),
            (Ok(_), Some(received)) => StreamError::EndedInRecord { received }.into(),
            (Ok(_), None) => CloseReason::Disconnected(DisconnectReason::Remote),
        };
        self.end_with(reason);
    }
}
