//! A connection of whatever version both ends have (RPC-over-RDMA v2 §4.2.3, RFC 8166 §4.2.2).

use std::time::Instant;

use super::{
    CallId, CloseReason, Counters, EngineConfig, Event, OutgoingCall, OutgoingReply, ReplyResources, ReplyToken, Role,
    message::word, v1, v2,
};
use crate::{
    memory::{MessageBuf, Share},
    provider::{Completion, QueuePair, SetupParams},
};

/// Messages of versions that this end does not have that are answered; a peer that goes on wants none of them.
const MOST_OTHER_VERSIONS: u32 = 8;

/// Octets of the shortest header of either version.
const LEAST_HEADER: usize = 20;
/// `rdma_proc`, or `rdma_htype`, of an error; fixed for all versions (RFC 8166 §4.2.4).
const PROC_ERROR: u32 = 4;

#[derive(Debug)]
enum Inner {
    V1(Box<v1::Connection>),
    V2(Box<v2::Connection>),
}

/// Whether the version is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// A client has begun with version 2, a server awaits the first message.
    Open,
    /// A client goes on with version 1 and has not been answered: its server has said that it supports these.
    FellBack(u32, u32),
    Agreed,
}

/// A connection that begins with the highest version that [`EngineConfig::versions`] allows and goes on with what its peer
/// has.
///
/// A client that allows both begins with version 2. To a server that has version 1 only, which says so, it makes its calls
/// in version 1, on the same connection: none has gone out before. Where the connection is lost over it,
/// [`CloseReason::Negotiation`] says that a new one should begin with version 1. A server goes by the first message.
///
/// The order of calls is that of [`v1::Connection`], whose methods these are.
///
/// # Examples
/// A client of both versions and a server of version 1 only. The call is made at once, and goes out when the version is certain:
///
/// ```
/// use std::{task::{Context, Waker}, time::Instant};
/// use rpcrdma::{
///     engine::{Connection, EngineConfig, Event, OutgoingCall, OutgoingReply, ReplyResources, Role, v1::{HEADROOM, Setup}},
///     memory::{MessageBuf, Output},
///     provider::{QueuePair, sim},
/// };
///
/// fn turn(engine: &mut Connection, qp: &mut impl QueuePair) -> Option<Event> {
///     let mut completions = Vec::new();
///     let _ = qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions);
///     completions.into_iter().for_each(|completion| engine.handle_completion(completion));
///     engine.poll_work(qp, Instant::now());
///     engine.poll_event()
/// }
///
/// let message = |msg_type: u32| {
///     let mut message = MessageBuf::new(EngineConfig::default().pool.alloc(HEADROOM), HEADROOM);
///     [0, msg_type, 42].iter().for_each(|word| message.append(&word.to_be_bytes()));
///     message
/// };
/// let (mut near, mut far, _) = sim::pair(sim::SimConfig::default());
/// let mut client = Connection::new(Role::Client, EngineConfig::default(), Setup::default());
/// let mut old = EngineConfig::default();
/// old.versions = 1..=1;
/// let mut server = Connection::new(Role::Server, old, Setup::default());
///
/// let reply = ReplyResources { max_inline: 12, ..ReplyResources::default() };
/// let id = client.start_call(OutgoingCall {
///     message: message(0), reduced: Default::default(), reply, deadline: None, policy: Default::default(), seal: None,
/// });
/// assert_eq!(client.version(), None);
/// let finished = loop {
///     if let Some(Event::CallFinished { id, result }) = turn(&mut client, &mut near) {
///         break (id, result.expect("answered"));
///     }
///     if let Some(Event::CallArrived(call)) = turn(&mut server, &mut far) {
///         server.reply(call.token, OutgoingReply { message: message(1), reduced: Default::default() });
///     }
/// };
/// assert_eq!(finished.0, id);
/// assert_eq!(client.version(), Some(1));
/// ```
#[derive(Debug)]
pub struct Connection {
    inner: Inner,
    version: Version,
    /// Messages answered that were of other versions.
    others: u32,
}

/// Calls a method of either version's.
macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match &$self.inner {
            Inner::V1(connection) => connection.$method($($argument),*),
            Inner::V2(connection) => connection.$method($($argument),*),
        }
    };
    (mut $self:ident.$method:ident($($argument:expr),*)) => {
        match &mut $self.inner {
            Inner::V1(connection) => connection.$method($($argument),*),
            Inner::V2(connection) => connection.$method($($argument),*),
        }
    };
}

impl Connection {
    /// What to set a connection up with, whatever version comes of it: [`v1::Connection::setup_params`].
    #[must_use]
    pub fn setup_params(config: &EngineConfig, remote_invalidation: bool) -> SetupParams {
        v1::Connection::setup_params(config, remote_invalidation)
    }

    /// A connection just set up with [`setup_params`](Self::setup_params).
    #[must_use]
    pub fn new(role: Role, config: EngineConfig, setup: v1::Setup) -> Self {
        if config.versions.contains(&2) {
            let inner = Inner::V2(Box::new(v2::Connection::new(role, config, setup)));
            return Self { inner, version: Version::Open, others: 0 };
        }
        let inner = Inner::V1(Box::new(v1::Connection::new(role, config, setup)));
        Self { inner, version: Version::Agreed, others: 0 }
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        either!(self.role())
    }

    /// The version both ends have agreed on; `None` as long as they have not.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        match (self.version, &self.inner) {
            (Version::Open, _) => None,
            (_, Inner::V1(_)) => Some(1),
            (_, Inner::V2(_)) => Some(2),
        }
    }

    /// The connection in version 2, where that is what it is.
    #[must_use]
    pub fn as_v2(&mut self) -> Option<&mut v2::Connection> {
        match &mut self.inner {
            Inner::V1(_) => None,
            Inner::V2(connection) => Some(connection),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        either!(self.config())
    }

    /// Most octets of payload stream that a call with these reply resources conveys in one Send. A call whose whole encoding
    /// is no longer than that is best sent flat, nothing reduced.
    #[must_use]
    pub fn inline_room(&self, reply: &ReplyResources) -> u64 {
        either!(self.inline_room(reply))
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        either!(self.counters())
    }

    /// Counts octets of eligible items that the layer above has copied inline.
    pub fn count_copied(&mut self, octets: u64) {
        either!(mut self.count_copied(octets));
    }

    /// Why the connection is over, once it is; it may still be taking memory back.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        either!(self.close_reason())
    }

    /// Makes a call, a server's in the reverse direction. It goes out, in order of making, when the version is certain and
    /// there is a credit for it; an [`Event::CallFinished`] follows in any case.
    pub fn start_call(&mut self, call: OutgoingCall) -> CallId {
        either!(mut self.start_call(call))
    }

    /// Gives a call up: [`CallFailure::Cancelled`](super::CallFailure::Cancelled). Its memory is the engine's, and registered,
    /// until the reply comes or [`EngineConfig::abandon_grace`] is over. Nothing happens where its outcome is known already.
    pub fn cancel_call(&mut self, id: CallId, now: Instant) {
        either!(mut self.cancel_call(id, now));
    }

    /// Replies to a call; an [`Event::ReplySent`] follows. Nothing happens where one has been given already.
    pub fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        either!(mut self.reply(token, reply));
    }

    /// Refuses a call by an error of the transport's: its chunks stand for items that are not DDP-eligible. An
    /// [`Event::ReplySent`] follows.
    pub fn reply_error(&mut self, token: ReplyToken) {
        either!(mut self.reply_error(token));
    }

    /// Closes the connection in order: what has been posted goes out, then all calls fail, then
    /// [`Event::Closed`] comes. A server that wants its replies delivered closes after their [`Event::ReplySent`].
    pub fn close(&mut self) {
        either!(mut self.close());
    }

    /// [`close`](Self::close), for this reason.
    pub fn close_with(&mut self, reason: CloseReason) {
        either!(mut self.close_with(reason));
    }

    /// Handles what the queue pair has completed.
    pub fn handle_completion(&mut self, completion: Completion) {
        match &completion {
            Completion::Received { message, .. } if self.version != Version::Agreed && self.first_message(message) => {
                return;
            }
            // RPC-over-RDMA v2 §4.2.3.2: dropped after it said that it has no version 2.
            Completion::Disconnected { reason } => {
                if let (Version::FellBack(low, high), None) = (self.version, self.close_reason()) {
                    let reason = CloseReason::Negotiation { why: reason.to_string(), versions: Some((low, high)) };
                    either!(mut self.set_fault(reason));
                }
            }
            _ => {}
        }
        either!(mut self.handle_completion(completion));
    }

    /// Finds out the version by what arrives. Whether nothing more is to be done with it.
    fn first_message(&mut self, message: &MessageBuf) -> bool {
        let (version, Inner::V2(connection)) = (self.version, &mut self.inner) else {
            self.version = Version::Agreed;
            return false;
        };
        if version != Version::Open || connection.close_reason().is_some() {
            return false;
        }
        if connection.role() == Role::Client {
            let Some((low, high)) = connection.other_versions(message) else {
                if connection.is_version_2(message) {
                    self.version = Version::Agreed;
                }
                return false;
            };
            self.fall_back(low, high);
            return true;
        }
        let allowed = connection.config().versions.clone();
        match word(message, 1) {
            // RPC-over-RDMA v2 §7, RFC 8166 §4.5: too short to be trusted, or an answer to nothing.
            _ if message.len() < LEAST_HEADER || word(message, 3) == Some(PROC_ERROR) => {
                connection.take_message(message);
                connection.discard("no message to begin a connection with");
                return true;
            }
            // RPC-over-RDMA v2 §4.2.3.3: the version of the first message is that of the connection.
            Some(2) if connection.is_version_2(message) => self.version = Version::Agreed,
            Some(1) if allowed.contains(&1) => {
                self.inner = Inner::V1(Box::new(connection.take_version_1()));
                self.version = Version::Agreed;
            }
            Some(_) => {
                connection.take_message(message);
                self.others += 1;
                if self.others > MOST_OTHER_VERSIONS {
                    let what = "no message of a version that this end has".to_owned();
                    connection.close_with(CloseReason::PeerViolation(what));
                } else {
                    connection.refuse_version(message);
                }
                return true;
            }
            None => {}
        }
        false
    }

    /// A client's server has said which versions it has.
    // RPC-over-RDMA v2 §4.2.3.2, §7.1.1: one that both have, and none that the server has not.
    fn fall_back(&mut self, low: u32, high: u32) {
        let Inner::V2(connection) = &mut self.inner else { return };
        if connection.config().versions.contains(&1) && low <= 1 && high >= 1 {
            tracing::debug!(low, high, "the server has no version 2; going on with version 1");
            connection.count_refusal();
            self.inner = Inner::V1(Box::new(connection.take_version_1()));
            self.version = Version::FellBack(low, high);
        } else {
            let why = "the peer has none of this end's versions".to_owned();
            connection.close_with(CloseReason::Negotiation { why, versions: Some((low, high)) });
        }
    }

    /// Its share of its server's memory.
    pub(crate) fn memory(&self) -> &Share {
        either!(self.memory())
    }

    /// Gives up the calls whose deadline is not after `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        either!(mut self.handle_timeout(now));
    }

    /// Posts what is due.
    pub fn poll_work(&mut self, qp: &mut impl QueuePair, now: Instant) {
        either!(mut self.poll_work(qp, now));
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        either!(mut self.poll_event())
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        either!(mut self.poll_timeout())
    }
}
