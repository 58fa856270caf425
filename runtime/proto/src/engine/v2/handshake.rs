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
        Properties, Role,
        common::{shared::EngineShared, work::PostedFor},
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
    /// The message is malformed, or an extension refuses a property in it. The response is RDMA2_ERR_BAD_PROPVAL
    /// (RPC-over-RDMA v2 §7.2.2).
    Bad,
    /// Host authentication failed, and the connection is closed.
    Refused(HostAuthError),
}

/// The progress of the messages in one direction. Local messages count as soon as they are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangeProgress {
    /// No message was packed or received.
    NotStarted,
    /// The first message was packed or received, and more messages follow.
    Started,
    /// The last message was packed or received.
    Finished,
}

/// The state of host authentication (RPC-over-RDMA v2 §5.2.6).
#[derive(Debug)]
enum AuthenticationState {
    /// The authenticator has not been started.
    NotStarted(Box<dyn HostAuthenticator>),
    /// The authenticator expects material of the peer.
    InProgress(Box<dyn HostAuthenticator>),
    /// The authenticator is done, the peer has sent all its material, or no authenticator is configured.
    Done,
    /// The authenticator rejected the peer, and the connection is closed.
    Rejected,
}

/// The state of the exchange of properties, and of host authentication.
#[derive(Debug)]
pub(super) struct Handshake {
    role: Role,
    /// XID of the local messages. The error of a server without version 2 carries it.
    xid: u32,
    /// Local properties not yet packed into messages.
    queue: VecDeque<Rpcrdma2Propval>,
    /// Messages ready to be sent: flags and body.
    ready: VecDeque<(u32, Bytes)>,
    /// Progress of the local messages. The first is sent at once, because a peer always has a credit for it.
    local: ExchangeProgress,
    /// Progress of the peer's messages.
    remote: ExchangeProgress,
    authentication: AuthenticationState,
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
            local: ExchangeProgress::NotStarted,
            remote: ExchangeProgress::NotStarted,
            authentication: authenticator.map_or(AuthenticationState::Done, AuthenticationState::NotStarted),
            peer: Properties::default(),
            due: None,
        }
    }

    /// Returns `true` if both peers have sent all their properties, so that calls may start.
    // RPC-over-RDMA v2 §6.2.2.3.
    pub(super) fn is_done(&self) -> bool {
        self.local == ExchangeProgress::Finished && self.peer_finished() && self.ready.is_empty()
    }

    /// Returns `true` if the first local message of the exchange has been packed. It is sent at once.
    pub(super) fn has_started(&self) -> bool {
        self.local != ExchangeProgress::NotStarted
    }

    /// Returns the properties received from the peer so far.
    pub(super) fn peer(&self) -> &Properties {
        &self.peer
    }

    /// Returns the XID of the local messages.
    pub(super) fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the time at which the exchange times out. Returns `None` if the exchange has not started or is complete.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_done())
    }

    /// Packs the queued properties into messages, and sends the messages for which there are credits. A server starts
    /// after the first message of its client. Fails if the authenticator rejects the connection.
    // RPC-over-RDMA v2 §4.2.3.1: its first message has version 2, as all others.
    pub(super) fn poll(
        &mut self,
        has_received: bool,
        now: Instant,
        qp: &mut dyn QueuePair,
        outbox: &mut Outbox,
        shared: &mut EngineShared,
    ) -> Result<(), HostAuthError> {
        if self.is_done() || (self.role == Role::Server && !has_received) {
            return Ok(());
        }
        if self.due.is_none() {
            self.due = now.checked_add(shared.config.negotiation_timeout);
        }
        self.start_authentication()?;
        self.make_messages(shared);
        while outbox.is_ready() {
            let Some((flags, body)) = self.ready.pop_front() else { break };
            // RPC-over-RDMA v2 §6.2.2.1: RDMA2_F_RESPONSE is clear, because the XID is the sender's.
            let fields = PrefixFields::new(self.xid, RDMA2_CONNPROP, flags);
            outbox.send(qp, shared, fields, &body, None, PostedFor::ControlSend, None);
        }
        Ok(())
    }

    fn start_authentication(&mut self) -> Result<(), HostAuthError> {
        self.authentication = match std::mem::replace(&mut self.authentication, AuthenticationState::Rejected) {
            AuthenticationState::NotStarted(mut authenticator) => {
                let step = authenticator.start()?;
                self.take_step(step, authenticator)
            }
            other => other,
        };
        Ok(())
    }

    /// Queues the material of a step, and returns the state of the authentication after the step.
    fn take_step(&mut self, step: HostAuthStep, authenticator: Box<dyn HostAuthenticator>) -> AuthenticationState {
        let HostAuthStep { send, done } = step;
        self.queue.extend(send.map(host_auth));
        if done { AuthenticationState::Done } else { AuthenticationState::InProgress(authenticator) }
    }

    fn is_authenticated(&self) -> bool {
        matches!(self.authentication, AuthenticationState::Done)
    }

    /// Packs queued properties into messages.
    fn make_messages(&mut self, shared: &EngineShared) {
        // RPC-over-RDMA v2 §4.2.2, §6.3.4: the default applies until the peer announces its receive size.
        let size = shared.config.send_size.clamp(MIN_SIZE, DEFAULT_PROPERTIES.receive_size);
        let max = size as usize - PREFIX_LEN;
        let mut first = self.local == ExchangeProgress::NotStarted;
        while self.local != ExchangeProgress::Finished && (first || !self.queue.is_empty() || self.is_authenticated()) {
            // RPC-over-RDMA v2 §4.2.3: the first message must fit the Receives of a version 1 server.
            let room = if first { MIN_SIZE as usize - PREFIX_LEN } else { max };
            let body = self.pack(room, first);
            first = false;
            // RPC-over-RDMA v2 §6.2.2.3: the flag is clear only in the last message.
            let is_last = self.queue.is_empty() && self.is_authenticated();
            self.local = if is_last { ExchangeProgress::Finished } else { ExchangeProgress::Started };
            let more = if is_last { 0 } else { RDMA2_F_TPMORE };
            // A property too large for one message is continued (RPC-over-RDMA v2 §6.2.2.2, appendix C.5).
            let mut rest = body;
            while rest.len() > max {
                self.ready.push_back((more | RDMA2_F_MORE, rest.split_to(continued_len(max))));
            }
            self.ready.push_back((more, rest));
        }
    }

    /// Packs the next propset that fits in `room` bytes. A property that exceeds `room` is packed alone, but not in the
    /// first message.
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

    /// Handles a message of the peer's exchange. `more` is `true` if more messages follow.
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
        self.remote = if more { ExchangeProgress::Started } else { ExchangeProgress::Finished };
        match self.authenticate(received.host_auth) {
            Ok(()) => HandshakeStep::Go(messages),
            Err(error) => HandshakeStep::Refused(error),
        }
    }

    /// Passes the material of a message to the authenticator, and informs the authenticator when the peer's exchange is
    /// complete. Fails if the authenticator rejects the connection.
    // RPC-over-RDMA v2 §5.2.6, §11.1.1: the local policy decides about a peer that sends none.
    fn authenticate(&mut self, materials: Vec<Bytes>) -> Result<(), HostAuthError> {
        self.start_authentication()?;
        let mut state = std::mem::replace(&mut self.authentication, AuthenticationState::Rejected);
        for material in materials {
            let AuthenticationState::InProgress(mut authenticator) = state else { break };
            let step = authenticator.received(&material)?;
            state = self.take_step(step, authenticator);
        }
        if self.peer_finished()
            && let AuthenticationState::InProgress(authenticator) = &mut state
        {
            authenticator.peer_finished()?;
            state = AuthenticationState::Done;
        }
        self.authentication = state;
        Ok(())
    }

    /// Returns `true` if the peer has sent its last message of the exchange.
    pub(super) fn peer_finished(&self) -> bool {
        self.remote == ExchangeProgress::Finished
    }
}

/// Passes a property to the extensions, until one of them recognizes it. Returns the messages to send in response, or
/// `None` if the extension refuses the property. An unknown property is ignored (RPC-over-RDMA v2 §5.1).
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
