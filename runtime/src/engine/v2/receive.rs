//! Messages as they arrive: whose they are, and whether they may be there (RPC-over-RDMA v2 §6.1, §6.2, §7).

use super::{
    Connection,
    connection::MOST_EXTENSION_MESSAGES,
    errors::Refusal,
    extension::{ExtensionMessage, Handled},
    format::{self, PREFIX_LEN, Prefix, VERSION},
    handshake,
    header::{
        RDMA2_CONNPROP, RDMA2_ERROR, RDMA2_F_MORE, RDMA2_F_RESPONSE, RDMA2_F_TPMORE, RDMA2_MSG, RDMA2_NOMSG,
        Rpcrdma2ChunkLists,
    },
    reassembly::{self, Step},
};
use crate::{
    engine::CloseReason,
    memory::{MessageBuf, Output},
    provider::Handle,
};

/// Whether a header type is one of the base's (RPC-over-RDMA v2 §6.1, table 2).
pub(super) fn is_base(htype: u32) -> bool {
    matches!(htype, RDMA2_MSG | RDMA2_NOMSG | RDMA2_ERROR | RDMA2_CONNPROP)
}

/// Flags that an extension may set (RPC-over-RDMA v2 appendix B.3).
pub(super) fn extension_flags(flags: u32) -> u32 {
    flags & !(RDMA2_F_RESPONSE | RDMA2_F_MORE | RDMA2_F_TPMORE)
}

impl Connection {
    /// Handles a message.
    pub(super) fn receive(&mut self, mut message: MessageBuf, invalidated: Option<Handle>) {
        // RPC-over-RDMA v2 §7: a message shorter than the prefix is silently discarded.
        let Some(prefix) = Prefix::peek(&message) else {
            self.outbox.grants.consumed();
            return self.shared.discard("shorter than a prefix");
        };
        if prefix.vers != VERSION {
            self.outbox.grants.consumed();
            // RPC-over-RDMA v2 §7.1.1; an error is not answered by another.
            if prefix.htype == RDMA2_ERROR {
                return self.shared.discard("an error of another version");
            }
            return self.refuse(&prefix, Refusal::Version { low: VERSION, high: VERSION }, "not version 2");
        }
        self.heard = true;
        self.outbox.budget.add(prefix.credit);
        if let Some(handle) = invalidated {
            self.shared.counters.remote_invalidations += 1;
            // RPC-over-RDMA v2 §6.2.4: by the last Send of a reply, and what its call offered for that.
            let reply = prefix.is_response() && !prefix.has_more() && matches!(prefix.htype, RDMA2_MSG | RDMA2_NOMSG);
            if !reply || !self.requester.offers(prefix.xid, handle) {
                return self.shared.violation(format!("it invalidated {handle:?}, which no call offered for that"));
            }
        }
        if is_grant(&prefix, &message) {
            // RPC-over-RDMA v2 §4.2.1.2: it takes no credit, but the Receive that is there for it.
            self.shared.counters.grants_received += 1;
            return;
        }
        self.outbox.grants.consumed();
        if prefix.htype == RDMA2_ERROR {
            // RPC-over-RDMA v2 §6.2.2.2, §6.2.2.3: dropped; an error is not answered by another.
            if prefix.has_more() || prefix.has_more_properties() {
                return self.shared.discard("an error that is to go on");
            }
            return self.receive_error(&prefix, &message);
        }
        // RPC-over-RDMA v2 §6.2.2.3.
        if prefix.has_more_properties() && prefix.htype != RDMA2_CONNPROP {
            let why = "RDMA2_F_TPMORE on no RDMA2_CONNPROP";
            if !self.spoils(&prefix, why) {
                return;
            }
            return self.refuse(&prefix, Refusal::HeaderType, why);
        }
        // RPC-over-RDMA v2 §6.2.2.2.
        if prefix.has_more() && !matches!(prefix.htype, RDMA2_MSG | RDMA2_CONNPROP) {
            return self.broken(&prefix, "RDMA2_F_MORE on a header type that is not continued");
        }
        match prefix.htype {
            RDMA2_CONNPROP => {
                message.advance(PREFIX_LEN);
                self.receive_properties(&prefix, message);
            }
            RDMA2_MSG | RDMA2_NOMSG => self.receive_rpc(&prefix, message),
            _ => {
                message.advance(PREFIX_LEN);
                self.receive_extension(&prefix, message);
            }
        }
    }

    /// A message that breaks a sequence.
    fn broken(&mut self, prefix: &Prefix, why: &'static str) {
        let step = self.reassembly.breaks(prefix, why);
        self.not_whole(prefix, step);
    }

    /// Deals with what is not the last message of a sequence in order.
    // RPC-over-RDMA v2 §6.2.2.2: dropped; a responder says so.
    fn not_whole(&mut self, prefix: &Prefix, step: Step) {
        match step {
            Step::Whole(..) | Step::More => {}
            // A reply's last message may invalidate what its call offered for that: the call is over, and its memory taken
            // back, no earlier.
            Step::Ignored(true) if prefix.is_response() => {
                self.requester.spoiled(prefix.xid, "a sequence that was broken", &mut self.shared);
            }
            Step::Ignored(_) => self.shared.discard("the rest of a sequence that was broken"),
            Step::TooMany => self.shared.violation("too many broken sequences"),
            Step::Broken(why) | Step::NoRoom(why) if prefix.is_response() && prefix.has_more() => {
                self.shared.discard(why)
            }
            Step::Broken(why) | Step::NoRoom(why) if prefix.is_response() => {
                self.requester.spoiled(prefix.xid, why, &mut self.shared);
            }
            Step::Broken(why) => self.refuse(prefix, Refusal::Continuation, why),
            Step::NoRoom(why) => self.refuse(prefix, Refusal::System, why),
        }
    }

    /// RDMA2_CONNPROP (RPC-over-RDMA v2 §6.3.4).
    fn receive_properties(&mut self, prefix: &Prefix, body: MessageBuf) {
        // RPC-over-RDMA v2 §6.2.2.3: nothing after the last one.
        if self.handshake.peer_finished() {
            return self.refuse(prefix, Refusal::HeaderType, "RDMA2_CONNPROP after the last one");
        }
        let body = match self.reassembly.take(prefix, body, handshake::MOST, &self.shared) {
            Step::Whole(body, _) => body,
            step => return self.not_whole(prefix, step),
        };
        match self.handshake.receive(&body, prefix.has_more_properties(), &mut self.extensions.list) {
            handshake::Step::Go(messages) => self.queue_extension(messages),
            // RPC-over-RDMA v2 §7.2.2.
            handshake::Step::Bad => self.refuse(prefix, Refusal::BadProperty, "malformed properties"),
            handshake::Step::Refused(error) => {
                self.shared.fault.get_or_insert(error.into());
            }
        }
    }

    /// RDMA2_MSG and RDMA2_NOMSG (RPC-over-RDMA v2 §6.3.1, §6.3.2).
    fn receive_rpc(&mut self, prefix: &Prefix, mut message: MessageBuf) {
        // RPC-over-RDMA v2 §6.2.2.3: no RPC traffic before both ends have said all of their properties.
        if !self.handshake.is_done() {
            return self.refuse(prefix, Refusal::HeaderType, "an RPC message before the last properties");
        }
        let Ok((lists, len)) = format::parse_lists(&message) else {
            return self.bad_xdr(prefix, "malformed chunk lists");
        };
        message.advance(len);
        // RPC-over-RDMA v2 §6.2.2.2: chunks come with the last message of a sequence.
        if prefix.has_more() && !format::is_empty(&lists) {
            return self.broken(prefix, "chunks before the last message of a sequence");
        }
        if prefix.has_more() && !prefix.is_response() && !self.responder.takes_continued() {
            return self.broken(prefix, "a continued call in the reverse direction, where none is taken");
        }
        let payload = match prefix.htype {
            // RPC-over-RDMA v2 §6.3.1: the payload's first word is part of the header type.
            RDMA2_MSG if message.is_empty() => return self.bad_xdr(prefix, "RDMA2_MSG without a payload"),
            RDMA2_MSG => {
                let config = &self.shared.config;
                // What calls hold is bounded, however they came.
                let room = config.max_pulled.saturating_sub(self.responder.served.pulled());
                let room = room.max(reassembly::always_taken(config));
                let most = if prefix.is_response() { config.max_call_len } else { config.max_call_len.min(room) };
                match self.reassembly.take(prefix, message, most, &self.shared) {
                    Step::Whole(message, continued) => Some((message, continued)),
                    step => return self.not_whole(prefix, step),
                }
            }
            // RPC-over-RDMA v2 §7.2, §6.3.2: without chunks it is a grant of credits only where its XID is zero.
            _ if format::is_empty(&lists) => return self.bad_xdr(prefix, "RDMA2_NOMSG without chunks"),
            _ => match self.reassembly.take(prefix, message, 0, &self.shared) {
                Step::Whole(_, false) => None,
                Step::Whole(_, true) => return self.broken(prefix, "a sequence that ends with RDMA2_NOMSG"),
                step => return self.not_whole(prefix, step),
            },
        };
        if payload.as_ref().is_some_and(|(_, continued)| *continued) {
            self.shared.counters.continued_received += 1;
        }
        // RPC-over-RDMA v2 §6.2.2.1: whose XID it is.
        if prefix.is_response() {
            self.requester.receive(prefix, &lists, payload, &mut self.shared);
        } else {
            self.responder.receive(prefix, lists, payload, &mut self.shared);
        }
    }

    /// A header that cannot be parsed.
    // RPC-over-RDMA v2 §7.2.1; a requester only drops it.
    fn bad_xdr(&mut self, prefix: &Prefix, why: &'static str) {
        match self.spoils(prefix, why) {
            true if prefix.is_response() && prefix.has_more() => self.shared.discard(why),
            true if prefix.is_response() => self.requester.spoiled(prefix.xid, why, &mut self.shared),
            true => self.refuse(prefix, Refusal::BadXdr, why),
            false => {}
        }
    }

    /// Ends the sequence that a useless message is part of, if it is of any. `false` where there is nothing more to say of it.
    // RPC-over-RDMA v2 §7.1.3: nothing of it is put together, whatever was wrong with a part of it.
    fn spoils(&mut self, prefix: &Prefix, why: &'static str) -> bool {
        match self.reassembly.spoils(prefix, why) {
            Step::Broken(_) => true,
            step => {
                self.not_whole(prefix, step);
                false
            }
        }
    }

    /// RDMA2_ERROR (RPC-over-RDMA v2 §7).
    fn receive_error(&mut self, prefix: &Prefix, message: &[u8]) {
        let Some(refusal) = message.get(PREFIX_LEN..).and_then(Refusal::decode) else {
            return self.shared.discard("malformed RDMA2_ERROR");
        };
        // RPC-over-RDMA v2 §7: a code that nobody knows is silently discarded.
        if let Refusal::Extension(code) = refusal
            && !self.extensions.list.iter_mut().any(|extension| extension.error(prefix.xid, code))
        {
            return self.shared.discard("RDMA2_ERROR with an unknown code");
        }
        self.shared.counters.errors_received += 1;
        if refusal == Refusal::HeaderType {
            self.extensions.refused.refuse(prefix.xid);
        }
        let known = self.requester.refused(prefix.xid, refusal, &mut self.shared);
        // The peer may have said all of its own properties before: it takes no calls all the same (§6.2.2.3).
        let of_properties =
            prefix.xid == self.handshake.xid() && (refusal == Refusal::BadProperty || !self.handshake.is_done());
        let versions = match refusal {
            Refusal::Version { low, high } => Some((low, high)),
            _ => None,
        };
        let why = match versions {
            // RPC-over-RDMA v2 §7.1.1, §4.2.3.3: not used again; and a connection has one version.
            Some((low, high)) if known && !(low..=high).contains(&VERSION) => {
                "the peer has given up this version".to_owned()
            }
            _ if known => return,
            _ if of_properties => format!("the peer refused the exchange of properties: {refusal}"),
            _ => return tracing::debug!(xid = prefix.xid, %refusal, "error for no call in flight"),
        };
        self.shared.fault.get_or_insert(CloseReason::Negotiation { why, versions });
    }

    /// A header type that the base does not know (RPC-over-RDMA v2 §6.1, appendix B.2).
    fn receive_extension(&mut self, prefix: &Prefix, body: MessageBuf) {
        let message = ExtensionMessage {
            header_type: prefix.htype,
            xid: prefix.xid,
            flags: extension_flags(prefix.flags),
            body: body.freeze(),
        };
        for extension in &mut self.extensions.list {
            match extension.message(&message) {
                Handled::Unknown => {}
                Handled::Done(messages) => return self.queue_extension(messages),
                Handled::Conveys(payload) => return self.receive_conveyed(prefix, &payload),
                Handled::Refused(refusal) => return self.refuse(prefix, refusal, "refused by an extension"),
            }
        }
        self.refuse(prefix, Refusal::HeaderType, "unknown header type");
    }

    /// An RPC message in a header type of an extension's (RPC-over-RDMA v2 appendix B.2).
    fn receive_conveyed(&mut self, prefix: &Prefix, payload: &[u8]) {
        // RPC-over-RDMA v2 §6.2.2.3, as of the base's.
        if !self.handshake.is_done() {
            return self.refuse(prefix, Refusal::HeaderType, "an RPC message before the last properties");
        }
        let mut message = MessageBuf::new(self.shared.config.pool.alloc(payload.len()), 0);
        message.append(payload);
        let (lists, payload) = (format::no_lists(), Some((message, false)));
        if prefix.is_response() {
            self.requester.receive(prefix, &lists, payload, &mut self.shared);
        } else {
            self.responder.receive(prefix, lists, payload, &mut self.shared);
        }
    }

    /// Queues messages of extensions' that the peer's have led to.
    fn queue_extension(&mut self, messages: Vec<ExtensionMessage>) {
        self.extension_messages.extend(messages.into_iter().filter(|message| !is_base(message.header_type)));
        if self.extension_messages.len() > MOST_EXTENSION_MESSAGES {
            self.shared.violation("more messages of extensions than it reads answers to");
        }
    }
}

/// Whether a message only grants credits (RPC-over-RDMA v2 §6.3.2).
fn is_grant(prefix: &Prefix, message: &[u8]) -> bool {
    let empty = |lists: &Rpcrdma2ChunkLists| format::is_empty(lists);
    prefix.htype == RDMA2_NOMSG
        && prefix.xid == 0
        && prefix.flags & (RDMA2_F_MORE | RDMA2_F_TPMORE) == 0
        && format::parse_lists(message).is_ok_and(|(lists, _)| empty(&lists))
}
