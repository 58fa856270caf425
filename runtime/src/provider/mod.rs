//! Providers: what RDMA must give, and who gives it.
//!
//! A provider connects and listens with private data ([`Connector`], [`Listener`]) and yields connected
//! queue pairs ([`QueuePair`]): Send, Send with Invalidate, Receive, RDMA Read, RDMA Write, registration and
//! invalidation of memory, and completions in order. A queue pair and all memory registered on it form one
//! protection domain (RFC 8166 §8.1, RFC 5042).
//!
//! Memory that a provider may write to is owned by the provider from [`QueuePair::register`] until
//! [`Completion::Invalidated`] hands it back, so no Rust reference to it exists meanwhile.

pub mod sim;

use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;

use crate::memory::{BufferPool, MessageBuf, PayloadBuf};

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod io_error;
pub mod iwarp;
mod silence;
pub(crate) mod socket;
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
pub mod verbs;

pub use io_error::IoError;

/// A work request's number, chosen by the poster, returned by its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrId(pub u64);

/// The name of registered memory that is sent to the peer: an iWARP STag or an InfiniBand R_key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Memory to be registered.
pub enum Memory {
    /// The peer (or this end's RDMA Writes) may read it.
    Source(Bytes),
    /// The peer, or a response to this end's RDMA Read, may write it.
    Sink(PayloadBuf),
}

impl Memory {
    /// Length in octets.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Source(bytes) => bytes.len(),
            Self::Sink(buf) => buf.len(),
        }
    }

    /// Whether it has no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Memory {
    /// Not what it contains.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if matches!(self, Self::Source(_)) { "Source" } else { "Sink" };
        f.debug_struct(name).field("len", &self.len()).finish()
    }
}

/// What may be done with registered memory, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The peer may RDMA Read it.
    RemoteRead,
    /// The peer may RDMA Write it.
    RemoteWrite,
    /// Only responses to this end's own RDMA Reads may be placed in it.
    ReadSink,
}

/// Registered memory as the peer names it: an offset `base + n` names octet `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The handle. Unpredictable, and never one that named other memory recently (RFC 5042 §7.1, §8.1).
    pub handle: Handle,
    /// The offset of the first octet.
    pub base: u64,
}

/// Memory of the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The handle the peer sent.
    pub handle: Handle,
    /// The offset the peer sent.
    pub offset: u64,
}

/// What a queue pair is asked to do. Requests are carried out in the order posted, except that an RDMA Read's
/// response may arrive after later requests have gone out.
#[derive(Debug)]
pub enum WorkRequest {
    /// Send a message into one of the peer's Receives.
    Send {
        /// Returned by [`Completion::Sent`].
        id: WrId,
        /// The message. Its memory returns to its pool once sent.
        message: MessageBuf,
        /// A handle of the peer's to be invalidated on arrival (Send with Invalidate).
        invalidate: Option<Handle>,
        /// Ask for an event at the peer (Send with Solicited Event).
        solicited: bool,
    },
    /// RDMA Read from the peer into memory registered with [`Access::ReadSink`].
    Read {
        /// Returned by [`Completion::Read`].
        id: WrId,
        /// The registered sink.
        sink: Handle,
        /// Where in the sink, in octets from its start.
        sink_offset: u64,
        /// The source.
        remote: RemoteMemory,
        /// Octets.
        len: u32,
    },
    /// RDMA Write to the peer. The data goes out from where it lies.
    Write {
        /// Returned by [`Completion::Written`].
        id: WrId,
        /// The data.
        source: Bytes,
        /// The destination.
        remote: RemoteMemory,
    },
    /// Take the registration back. If the peer has done so by Send with Invalidate, only the memory is returned.
    Invalidate {
        /// Returned by [`Completion::Invalidated`].
        id: WrId,
        /// Memory registered on this queue pair.
        handle: Handle,
    },
}

impl WorkRequest {
    /// Returns the number that its completion has.
    pub(crate) fn id(&self) -> WrId {
        match self {
            Self::Send { id, .. } | Self::Read { id, .. } | Self::Write { id, .. } | Self::Invalidate { id, .. } => *id,
        }
    }

    /// Returns its completion. The success of an Invalidate is not told here, because it hands memory back.
    pub(crate) fn completion(&self, result: Result<(), WorkError>) -> Completion {
        let id = self.id();
        match (self, result) {
            (_, Err(error)) => Completion::Failed { id, error },
            (Self::Send { .. }, Ok(())) => Completion::Sent { id },
            (Self::Read { .. }, Ok(())) => Completion::Read { id },
            (Self::Write { .. }, Ok(())) => Completion::Written { id },
            (Self::Invalidate { .. }, Ok(())) => {
                Completion::Failed { id, error: WorkError::Local("not registered".into()) }
            }
        }
    }
}

/// What has happened on a queue pair.
#[derive(Debug)]
pub enum Completion {
    /// A Send has been handed to the transport; its memory is free.
    Sent {
        /// From the work request.
        id: WrId,
    },
    /// All data of an RDMA Read has been placed.
    Read {
        /// From the work request.
        id: WrId,
    },
    /// An RDMA Write's data has been handed to the transport; a Send posted later arrives after it.
    Written {
        /// From the work request.
        id: WrId,
    },
    /// No access to the memory is possible any more.
    Invalidated {
        /// From the work request.
        id: WrId,
        /// What was registered, handed back.
        memory: Memory,
    },
    /// A message arrived and took one posted Receive.
    Received {
        /// The message.
        message: MessageBuf,
        /// The handle that the peer's Send with Invalidate named, already invalid.
        invalidated: Option<Handle>,
    },
    /// A work request failed. An error on a reliable connection ends it: [`Completion::Disconnected`] follows.
    Failed {
        /// From the work request.
        id: WrId,
        /// Why.
        error: WorkError,
    },
    /// The connection is gone. All other requests have completed before this, [`WorkRequest::Invalidate`]
    /// goes on working.
    Disconnected {
        /// Who ended it and why.
        reason: DisconnectReason,
    },
}

/// Why a work request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The connection ended before the request was done.
    #[error("flushed: the connection ended first")]
    Flushed,
    /// The peer refused access to its memory.
    #[error("remote access error: {0}")]
    RemoteAccess(String),
    /// The request itself was wrong: an unknown handle, a range outside the registered memory.
    #[error("local error: {0}")]
    Local(String),
}

/// Who ended a connection, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// This end closed it.
    #[error("closed by this end")]
    Local,
    /// The peer closed it in order.
    #[error("closed by the peer")]
    Remote,
    /// The transport failed under it: an error of the operating system or the device, or a stream that ended too early.
    #[error(transparent)]
    Transport(IoError),
    /// The peer broke the RDMA protocol, and was told so where the protocol has a way to.
    #[error("the peer broke the protocol: {0}")]
    PeerViolation(String),
    /// The peer reported an error of ours (iWARP: Terminate message).
    #[error("the peer reported: {0}")]
    ReportedByPeer(String),
}

/// Why memory could not be registered, and the memory.
#[derive(Debug, thiserror::Error)]
#[error("memory registration failed")]
pub struct RegisterError {
    /// Why.
    pub source: IoError,
    /// Handed back.
    pub memory: Memory,
}

/// A connected, reliable queue pair.
///
/// Call order: [`register`](Self::register), [`post`](Self::post) and [`post_receives`](Self::post_receives) at
/// any time, then [`poll`](Self::poll) until it is pending. Nothing needs to go out before the next `poll`, so
/// all that is posted in between goes out together.
pub trait QueuePair: Send + Unpin + 'static {
    /// Registers memory and takes ownership of it.
    ///
    /// # Errors
    /// When memory or handles have run out, or the connection is ending ([`is_open`](Self::is_open)).
    fn register(&mut self, memory: Memory, access: Access) -> Result<Region, RegisterError>;

    /// Whether requests still go out. Not once the connection is ending, for whatever reason, though
    /// [`Completion::Disconnected`] may still be to come: what is posted then is flushed, and [`register`](Self::register) may fail.
    fn is_open(&self) -> bool;

    /// Queues a work request. What is wrong with it, its completion tells.
    fn post(&mut self, request: WorkRequest);

    /// Posts `count` more Receives of the size agreed at set-up.
    fn post_receives(&mut self, count: usize);

    /// Does all the input and output that can be done without waiting, and appends what has completed.
    ///
    /// `Ready` when `completions` has grown; `Pending` when nothing has happened, with the waker registered.
    /// After [`Completion::Disconnected`] only completions of later requests appear.
    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()>;

    /// Whether the polls that follow may keep the thread while nothing has happened, as far as this provider has been told to
    /// (busy polling): not while other tasks of that thread may have something to do.
    fn may_spin(&mut self, _may: bool) {}

    /// Ends the connection in order after what has been posted has gone out. Completions, and in the end
    /// [`Completion::Disconnected`], still come from [`poll`](Self::poll).
    fn disconnect(&mut self);

    /// Most RDMA Reads this end may have under way: more are queued by the provider.
    fn max_reads(&self) -> u32;

    /// Longest RDMA Read or Write, in octets.
    fn max_transfer(&self) -> u32 {
        u32::MAX
    }

    /// Whether this provider's receiver honours Send with Invalidate.
    fn remote_invalidation(&self) -> bool;

    /// Whether [`DisconnectReason::PeerViolation`] is always told apart from an ordinary end. Some devices refuse what the
    /// peer may not do, and end the connection, without saying so.
    fn tells_violations(&self) -> bool {
        true
    }

    /// Octets that have left for the peer, ever: a number that grows while a long Send or RDMA Write is under way and the peer
    /// takes it. Where a provider does not know, its requests go on when they complete.
    fn octets_out(&self) -> u64 {
        0
    }

    /// Octets of payload this queue pair has copied between buffers of its own and registered memory.
    fn copied_payload(&self) -> u64;
}

/// What an end offers when it sets up a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SetupParams {
    /// Private data for the peer's upper layer (for RPC-over-RDMA version 1: RFC 8797), at most 196 octets in an answer, and
    /// [`Connector::max_private_data`] in a request.
    pub private_data: Bytes,
    /// What to send in place of it where this end's receiver does not honour Send with Invalidate
    /// ([`QueuePair::remote_invalidation`]); empty: the same.
    pub private_data_without_invalidation: Bytes,
    /// Most RDMA Reads this end will have under way (ORD, initiator depth).
    pub initiator_depth: u32,
    /// Most RDMA Reads by the peer this end will serve at a time (IRD, responder resources).
    pub responder_resources: u32,
    /// Receives posted before the first message can arrive.
    pub receive_count: usize,
    /// Size of each, in octets.
    pub receive_size: usize,
    /// Where Receives and staging memory come from.
    pub pool: BufferPool,
    /// How long set-up may take.
    pub timeout: Duration,
}

impl SetupParams {
    /// What to send to the peer, by an end whose receiver honours Send with Invalidate or does not.
    #[must_use]
    pub fn private_data_for(&self, remote_invalidation: bool) -> &Bytes {
        if remote_invalidation || self.private_data_without_invalidation.is_empty() {
            &self.private_data
        } else {
            &self.private_data_without_invalidation
        }
    }
}

impl Default for SetupParams {
    fn default() -> Self {
        Self {
            private_data: Bytes::new(),
            private_data_without_invalidation: Bytes::new(),
            initiator_depth: 16,
            responder_resources: 16,
            receive_count: 32,
            receive_size: 4096,
            pool: BufferPool::default(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// A connection just set up.
#[derive(Debug)]
pub struct Connected<Q> {
    /// The queue pair.
    pub queue_pair: Q,
    /// The peer's private data. InfiniBand fills it up with zeros to a fixed length.
    pub private_data: Bytes,
    /// This end's address.
    pub local_addr: SocketAddr,
    /// The peer's address.
    pub peer_addr: SocketAddr,
}

/// Why a connection could not be set up.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The operating system said no: nothing listens there, no route, address in use.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The peer refused, with its private data.
    #[error("the peer rejected the connection")]
    Rejected {
        /// What it sent along.
        private_data: Bytes,
    },
    /// What answers does not speak the transport's set-up protocol.
    #[error("the peer does not speak {expected}: {detail}")]
    NotOurProtocol {
        /// What was expected.
        expected: &'static str,
        /// What was seen.
        detail: String,
    },
    /// It took longer than allowed.
    #[error("connection set-up took longer than {0:?}")]
    TimedOut(Duration),
}

impl From<std::io::Error> for SetupError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.into())
    }
}

/// Makes outgoing connections.
pub trait Connector: Send + Sync + 'static {
    /// The queue pairs it makes.
    type QueuePair: QueuePair;

    /// Connects to `peer`.
    fn connect(
        &self,
        peer: SocketAddr,
        params: SetupParams,
    ) -> impl Future<Output = Result<Connected<Self::QueuePair>, SetupError>> + Send;

    /// Most octets of private data in a connection request.
    fn max_private_data(&self) -> usize {
        196
    }
}

/// Takes incoming connections.
pub trait Listener: Send + Sync + 'static {
    /// The queue pairs it makes.
    type QueuePair: QueuePair;
    /// A connection being set up.
    type Incoming: Incoming<QueuePair = Self::QueuePair>;

    /// Waits for the next connection. Returns at once when one is there, before the peer has sent anything, so a
    /// slow peer holds nobody up.
    fn accept(&self) -> impl Future<Output = std::io::Result<Self::Incoming>> + Send;

    /// The address listened on.
    fn local_addr(&self) -> SocketAddr;
}

/// A connection that a peer has begun.
pub trait Incoming: Send + 'static {
    /// The queue pair it becomes.
    type QueuePair: QueuePair;
    /// The request, once it has arrived.
    type Request: ConnectRequest<QueuePair = Self::QueuePair>;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// Waits for the peer's connection request, at most `timeout`.
    fn request(self, timeout: Duration) -> impl Future<Output = Result<Self::Request, SetupError>> + Send;
}

/// A peer's connection request.
pub trait ConnectRequest: Send + 'static {
    /// The queue pair it becomes.
    type QueuePair: QueuePair;

    /// The peer's private data. InfiniBand fills it up with zeros to a fixed length.
    fn private_data(&self) -> &[u8];

    /// Accepts it.
    fn accept(self, params: SetupParams)
    -> impl Future<Output = Result<Connected<Self::QueuePair>, SetupError>> + Send;

    /// Refuses it, with private data that tells the peer why.
    fn reject(self, private_data: Bytes) -> impl Future<Output = Result<(), SetupError>> + Send;
}
