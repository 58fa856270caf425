//! What arrives: when it is wanted, the memory that records take, and calls and replies told apart (RFC 5531 §9).

use bytes::{Bytes, BytesMut, buf::Limit};
use smallvec::SmallVec;

use super::{ServedStreamCall, StreamConnection};
use crate::{
    engine::{
        CallFailure, CloseReason, EngineEvent, IncomingCall, MessageFormat, MessagePayload, ReplyPlan, ReplyToken,
        StreamError,
        call::CheckedReply,
        message::{CALL, REPLY, word},
        state::ConnectionState,
        stream::record::{LAST, SMALL},
    },
    memory::{BudgetCharge, MessageBuf},
    provider::DisconnectReason,
};

/// XID and message type, which tell whose a record is (RFC 5531 §9).
const HEAD: u64 = 8;
/// Most calls of the peer's that are put by. A peer that keeps to as many as this end has credits for meets no limit.
const MOST_PARKED: usize = 1024;

impl StreamConnection {
    /// Whether octets of the peer's are wanted. Not while as many of its calls are unanswered as are allowed, or its server
    /// has no memory for the next: then the stream's flow control holds it back. While a call of this end's waits for its
    /// reply, which may be what they are unanswered for, calls that come ahead of it are put by, as long as there is room
    /// for them.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        match self.state {
            ConnectionState::Open => {
                let room = if self.calls.in_flight() == 0 {
                    !self.shared.memory.waits() && self.parked.is_empty() && self.held.len() < self.most_held.max(1)
                } else {
                    self.parked.len() < MOST_PARKED
                };
                let has_memory = self.held_octets < self.shared.config.max_fetched || self.held.len() == 0;
                self.shared.fault.is_none() && room && has_memory
            }
            // Until the peer closes its side.
            ConnectionState::Closing(_) | ConnectionState::Disconnecting(_) => true,
            ConnectionState::Gone(_) | ConnectionState::Closed(_) => false,
        }
    }

    /// Whether [`handle_records`](Self::handle_records) has something to do.
    pub(crate) fn has_input(&self) -> bool {
        self.unparsed && self.wants_input()
    }

    /// Takes octets that have arrived.
    pub fn receive(&mut self, octets: &[u8]) {
        self.input.extend(octets);
        self.received(octets.len());
    }

    /// Where octets may be received to; [`bytes_received`](Self::bytes_received) says how many were.
    pub(crate) fn room(&mut self) -> Limit<&mut BytesMut> {
        self.input.room()
    }

    pub(crate) fn received(&mut self, len: usize) {
        self.shared.counters.bytes_received += len as u64;
        self.unparsed = true;
    }

    /// Octets missing of a fragment that has begun to arrive.
    pub(crate) fn missing(&self) -> usize {
        self.input.missing()
    }

    /// Handles at most `most` records that have arrived.
    pub fn handle_records(&mut self, most: usize) {
        if !matches!(self.state, ConnectionState::Open) {
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

    /// Begins to drop a reply that is longer than is taken, at the cost of its call alone: it comes from a server that did
    /// nothing wrong. `false` where too little of it is here to say whose it is.
    ///
    /// # Errors
    /// The same again where it is no reply to a call of this end's: then nothing tells that the peer speaks RPC at all.
    fn skip(&mut self, error: StreamError) -> Result<bool, StreamError> {
        let StreamError::RecordTooLong { len, max, marker } = error else { return Err(error) };
        if len < HEAD || self.shared.counters.calls_sent == 0 {
            return Err(error);
        }
        let Some(head) = self.input.head() else { return Ok(false) };
        let (Some(xid), Some(REPLY)) = (word(&head, 0), word(&head, 1)) else { return Err(error) };
        if !self.calls.has_used(xid) {
            return Err(error);
        }
        self.input.skip();
        // What was taken for the fragments before.
        self.refuse_memory();
        self.shared.counters.messages_discarded += 1;
        if let Some(slot) = self.calls.by_xid(xid) {
            // RFC 5531 §11: more fragments may follow one that is not the last.
            let least = if u32::from_be_bytes(marker) & LAST == 0 { "at least " } else { "" };
            let what = format!("its record is of {least}{len} octets, more than the {max} of StreamConfig::max_record");
            self.calls.answered(slot, Err(CallFailure::BadReply(what)), &mut self.shared);
        }
        Ok(true)
    }

    /// Takes memory for the record under way, all of it before most has arrived: records half here that wait for each other's
    /// memory would wait for ever. Whether it may go on.
    pub(super) fn admit(&mut self) -> Result<bool, StreamError> {
        let Some(octets) = self.input.expected()? else { return Ok(true) };
        // Small ones are what goes inline by RDMA: as many as there are credits for each connection, whatever the others do.
        if octets <= self.arriving.bytes().max(SMALL as u64) {
            return Ok(true);
        }
        if self.calls.in_flight() > 0 {
            // A reply that this end waits for may be behind it.
            self.shared.memory.stop_waiting();
            self.arriving = self.shared.memory.take_anyway(octets);
            return Ok(true);
        }
        Ok(self.shared.memory.take(octets).map(|charge| self.arriving = charge).is_some())
    }

    /// Nothing more that arrives is kept.
    pub(super) fn refuse_memory(&mut self) {
        self.shared.memory.stop_waiting();
        self.arriving = BudgetCharge::default();
    }

    fn handle_record(&mut self, record: Bytes) {
        let mut charge = std::mem::take(&mut self.arriving);
        charge.shrink(record.len() as u64);
        // RFC 5531 §9: the XID, then CALL or REPLY. XIDs of calls and of replies have nothing to do with each other.
        match (word(&record, 0), word(&record, 1)) {
            (Some(_), Some(CALL)) if self.most_held > 0 => self.handle_call(record, charge),
            (Some(xid), Some(REPLY)) if self.most_calls > 0 => self.handle_reply(xid, record),
            // Calls to an end that takes none, replies to one that makes none.
            (Some(_), Some(CALL | REPLY)) => self.shared.discard("direction not in use"),
            _ => self.shared.fault = Some(StreamError::NotAMessage { len: record.len() }.into()),
        }
    }

    fn handle_call(&mut self, record: Bytes, charge: BudgetCharge) {
        self.shared.counters.calls_received += 1;
        self.held_octets += record.len() as u64;
        if self.held.len() < self.most_held {
            self.hand_over(record, charge);
        } else {
            self.parked.push_back((record, charge));
        }
    }

    pub(super) fn hand_over(&mut self, record: Bytes, charge: BudgetCharge) {
        let (_, key) = self.held.insert(ServedStreamCall { octets: record.len(), answered: false });
        let xid = word(&record, 0).unwrap_or_default();
        let (payload, reads) = (self.payload(record), SmallVec::new());
        self.shared.events.push_back(EngineEvent::CallArrived(IncomingCall {
            token: ReplyToken(key),
            xid,
            payload,
            format: MessageFormat::Record,
            reads,
            reply: ReplyPlan::default(),
            charge,
        }));
    }

    fn handle_reply(&mut self, xid: u32, record: Bytes) {
        let Some(slot) = self.calls.by_xid(xid) else { return self.shared.discard("no call in flight has its XID") };
        let answer =
            CheckedReply { inline: Some(self.payload(record)), continued: false, long: 0, writes: SmallVec::new() };
        self.calls.answered(slot, Ok(answer), &mut self.shared);
    }

    fn payload(&self, record: Bytes) -> MessagePayload {
        if record.len() > SMALL {
            return MessagePayload::Long(record);
        }
        // What is kept of a small one does not hold the memory that it was received into.
        let mut memory = self.shared.config.pool.alloc(record.len());
        memory.copy_from_slice(&record);
        MessagePayload::Inline(MessageBuf::received(memory, record.len()))
    }

    /// The peer has closed its side.
    pub fn ended(&mut self) {
        let reason = match (self.input.expected(), self.input.begun()) {
            // Of one that is too long, too little had arrived to say whose it is.
            (Err(error), _) => error.into(),
            (Ok(_), Some(received)) => StreamError::EndedInRecord { received }.into(),
            (Ok(_), None) => CloseReason::Disconnected(DisconnectReason::Remote),
        };
        self.end_with(reason);
    }
}
