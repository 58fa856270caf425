//! Exchange of properties before the first call (RPC-over-RDMA v2 §4.2.3, §6.2.2.3, §6.3.4).

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;

use super::{
    format::{DEFAULT_PROPERTIES, MIN_SIZE, PREFIX_LEN, PROPERTY_COUNT_LEN, continued_len, property_len},
    header::{RDMA2_CONNPROP, RDMA2_F_MORE, RDMA2_F_TPMORE, Rpcrdma2Propset, Rpcrdma2Propval},
    outbox::{Outbox, PrefixFields},
    properties::host_auth,
};
use crate::{
    engine::{
        EngineConfig, Extension, ExtensionMessage, ExtensionOutcome, HostAuthError, HostAuthStep, HostAuthenticator,
        Properties, Role, shared::EngineShared, work::PostedFor,
    },
    provider::QueuePair,
    xdr::{FlatSink, XdrEncode},
};

/// Maximum length in bytes of a continued RDMA2_CONNPROP that is reassembled.
pub(super) const MAX_LEN: u64 = 256 << 10;

/// The result of handling a message of the exchange.
#[derive(Debug)]
pub(super) enum HandshakeStep {
    Go(Vec<ExtensionMessage>),
    /// The message is malformed and gets RDMA2_ERR_BAD_PROPVAL (RPC-over-RDMA v2 §7.2.2).
    Bad,
    /// Host authentication failed, and the connection is closed.
    Refused(HostAuthError),
}

/// The state of the exchange.
#[derive(Debug)]
pub(super) struct Handshake {
    role: Role,
    /// XID of the local messages. The error of a server without version 2 carries it.
    xid: u32,
    /// Local properties not yet packed into messages.
    queue: VecDeque<Rpcrdma2Propval>,
    /// Messages ready to be sent: flags and body.
    ready: VecDeque<(u32, Bytes)>,
    /// Set once the authenticator has started.
    begun: bool,
    /// Set once the first message has been packed.
    said: bool,
    /// Set once the first message has been sent.
    sent_first: bool,
    /// Set once the last local message has been packed.
    finished: bool,
    /// Set once the peer's last message has arrived.
    peer_finished: bool,
    authenticator: Option<Box<dyn HostAuthenticator>>,
    authenticated: bool,
    peer: Properties,
    due: Option<Instant>,
}

impl Handshake {
    pub(super) fn new(role: Role, config: &EngineConfig, xid: u32, extensions: &mut [Box<dyn Extension>]) -> Self {
        let mut queue: VecDeque<_> = Properties::local(role, config).values().into();
        for property in extensions.iter_mut().flat_map(|extension| extension.properties()) {
            queue.push_back(Rpcrdma2Propval { rdma_which: property.which, rdma_data: property.value });
        }
        let authenticator = config.host_auth.as_ref().map(|host_auth| host_auth.authenticator(role));
        Self {
            role,
            xid,
            queue,
            ready: VecDeque::new(),
            begun: false,
            said: false,
            sent_first: false,
            finished: false,
            peer_finished: false,
            authenticated: authenticator.is_none(),
            authenticator,
            peer: Properties::default(),
            due: None,
        }
    }

    /// Returns whether both peers have sent all their properties, so that calls may start.
    // RPC-over-RDMA v2 §6.2.2.3.
    pub(super) fn is_done(&self) -> bool {
        self.finished && self.peer_finished && self.ready.is_empty()
    }

    /// Returns whether the first message of the exchange has been sent.
    pub(super) fn has_begun(&self) -> bool {
        self.sent_first
    }

    /// Returns the properties received from the peer so far.
    pub(super) fn peer(&self) -> &Properties {
        &self.peer
    }

    /// Returns the XID of the local messages.
    pub(super) fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the time at which the exchange times out, unless it is complete.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_done())
    }

    /// Sends the messages that are ready. A server starts after the first message of its client.
    pub(super) fn poll(
        &mut self,
        heard: bool,
        now: Instant,
        qp: &mut dyn QueuePair,
        outbox: &mut Outbox,
        shared: &mut EngineShared,
    ) -> Result<(), HostAuthError> {
        if self.is_done() || (self.role == Role::Server && !heard) {
            return Ok(());
        }
        if self.due.is_none() {
            self.due = now.checked_add(shared.config.negotiation_timeout);
        }
        self.begin()?;
        self.make_messages(shared);
        while outbox.is_ready() {
            let Some((flags, body)) = self.ready.pop_front() else { break };
            let fields = PrefixFields::new(self.xid, RDMA2_CONNPROP, flags);
            outbox.send(qp, shared, fields, &body, None, PostedFor::AsideSend, None);
            self.sent_first = true;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), HostAuthError> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        let step = self.authenticator.as_mut().map(|authenticator| authenticator.start()).transpose()?;
        self.stepped(step);
        Ok(())
    }

    fn stepped(&mut self, step: Option<HostAuthStep>) {
        let Some(HostAuthStep { send: say, done }) = step else { return };
        self.queue.extend(say.map(host_auth));
        self.authenticated |= done;
    }

    /// Packs queued properties into messages.
    fn make_messages(&mut self, shared: &EngineShared) {
        // RPC-over-RDMA v2 §4.2.2: the default applies until the peer announces its receive size.
        let size = shared.config.send_size.clamp(MIN_SIZE, DEFAULT_PROPERTIES.receive_size);
        let max = size as usize - PREFIX_LEN;
        let mut first = !self.said;
        while !self.finished && (first || !self.queue.is_empty() || self.authenticated) {
            // RPC-over-RDMA v2 §4.2.3: the first message must fit the Receives of a version 1 server.
            let room = if first { MIN_SIZE as usize - PREFIX_LEN } else { max };
            let body = self.pack(room, first);
            first = false;
            // RPC-over-RDMA v2 §6.2.2.3: the flag is clear only in the last message.
            self.finished = self.queue.is_empty() && self.authenticated;
            let more = if self.finished { 0 } else { RDMA2_F_TPMORE };
            // A property too large for one message is continued (RPC-over-RDMA v2 §6.2.2.2, appendix C.5).
            let mut rest = body;
            while rest.len() > max {
                self.ready.push_back((more | RDMA2_F_MORE, rest.split_to(continued_len(max))));
            }
            self.ready.push_back((more, rest));
            self.said = true;
        }
    }

    /// Packs the next propset that fits in `room` bytes. A property that exceeds `room` is packed alone, but not in the first
    /// message.
    fn pack(&mut self, room: usize, first: bool) -> Bytes {
        let mut props = Vec::new();
        let mut len = PROPERTY_COUNT_LEN;
        while let Some(next) = self.queue.front() {
            let more = property_len(next.rdma_data.len());
            if len + more > room && (first || !props.is_empty()) {
                break;
            }
            len += more;
            props.extend(self.queue.pop_front());
        }
        let mut bytes = Vec::with_capacity(len);
        // Encoding fails only for an array of 2^32 properties.
        if Rpcrdma2Propset(props).encode(&mut FlatSink::new(&mut bytes)).is_err() {
            bytes.clear();
        }
        bytes.into()
    }

    /// Handles a message of the peer's exchange. `more` says whether others follow.
    pub(super) fn receive(&mut self, body: &[u8], more: bool, extensions: &mut [Box<dyn Extension>]) -> HandshakeStep {
        let Ok(received) = self.peer.read(body) else { return HandshakeStep::Bad };
        // RPC-over-RDMA v2 §7.2.2: if one property is malformed, none is applied.
        let others = &received.others;
        if !others.iter().all(|(which, value)| extensions.iter().all(|one| one.check_property(*which, value))) {
            return HandshakeStep::Bad;
        }
        let mut messages = Vec::new();
        for (which, value) in others {
            match property(extensions, *which, value) {
                Some(made) => messages.extend(made),
                None => return HandshakeStep::Bad,
            }
        }
        self.peer = received.properties;
        self.peer_finished = !more;
        match self.authenticate(received.host_auth) {
            Ok(()) => HandshakeStep::Go(messages),
            Err(error) => HandshakeStep::Refused(error),
        }
    }

    fn authenticate(&mut self, materials: Vec<Bytes>) -> Result<(), HostAuthError> {
        self.begin()?;
        for material in materials {
            let Some(authenticator) = self.authenticator.as_mut().filter(|_| !self.authenticated) else { break };
            let step = authenticator.received(&material)?;
            self.stepped(Some(step));
        }
        if let Some(authenticator) = self.authenticator.as_mut().filter(|_| self.peer_finished && !self.authenticated) {
            authenticator.peer_finished()?;
            self.authenticated = true;
        }
        Ok(())
    }

    /// Returns whether the peer has sent its last message of the exchange.
    pub(super) fn peer_finished(&self) -> bool {
        self.peer_finished
    }
}

/// Passes a property to the extensions. Returns `None` if one refuses it. An unknown property is ignored (RPC-over-RDMA v2
/// §5.1).
fn property(extensions: &mut [Box<dyn Extension>], which: u32, value: &[u8]) -> Option<Vec<ExtensionMessage>> {
    for extension in extensions {
        match extension.property(which, value) {
            ExtensionOutcome::Unknown => {}
            ExtensionOutcome::Done(messages) => return Some(messages),
            ExtensionOutcome::Conveys(_) => return Some(Vec::new()),
            ExtensionOutcome::Refused(_) => return None,
        }
    }
    Some(Vec::new())
}
