//! Transport providers: the RDMA interface that the engine uses, and its implementations.
//!
//! A provider establishes connections, with private data, through [`Connector`] and [`Listener`]. Each connection is a
//! [`QueuePair`]. A queue pair supports Send, Send with Invalidate, Receive, RDMA Read, RDMA Write, memory registration
//! and invalidation, and reports completions in the order of the requests (RFC 8166 §2.2). In the provider [`sim`],
//! later requests may complete before an RDMA Read. A queue pair and the memory registered on it form one protection
//! domain (RFC 8166 §8.1, RFC 5042).
//!
//! The provider owns registered memory from [`QueuePair::register`] until [`Completion::Invalidated`] returns it. No
//! Rust reference to memory that the peer may write exists in between, so the peer never writes to memory that Rust
//! code can read (RFC 8166 §4.4.1).

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
mod first_message_nudge;
mod io_error;

#[doc(hidden)]
pub use first_message_nudge::PeerActivity;
pub use io_error::IoError;

/// A work request identifier. The caller chooses it, and the completion returns it unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrId(pub u64);

/// The identifier of registered memory that is sent to the peer: an iWARP STag or an InfiniBand R_key. Handles have 32
/// bits, and offsets 64 (RFC 8166 §2.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryHandle(pub u32);

impl fmt::Debug for MemoryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Memory to register on a queue pair, as the source or the sink of RDMA operations.
pub enum RegisterableMemory {
    /// Memory that the peer may read.
    Source(Bytes),
    /// Memory that the peer, or a response to a local RDMA Read, may write.
    Sink(PayloadBuf),
}

impl RegisterableMemory {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Source(bytes) => bytes.len(),
            Self::Sink(buf) => buf.len(),
        }
    }

    /// Returns `true` if the memory has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for RegisterableMemory {
    /// Omits the contents, which may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if matches!(self, Self::Source(_)) { "Source" } else { "Sink" };
        f.debug_struct(name).field("len", &self.len()).finish()
    }
}

/// The remote operations allowed on registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The peer may read the memory by RDMA Read.
    RemoteRead,
    /// The peer may write the memory by RDMA Write.
    RemoteWrite,
    /// Only responses to local RDMA Reads may be placed in the memory.
    ReadSink,
}

/// The address of registered memory, as the peer uses it. Byte `n` has the offset `base + n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The handle. It is unpredictable, and differs from recently used handles (RFC 5042 §7.1, §8.1).
    pub handle: MemoryHandle,
    /// The offset of the first byte.
    pub base: u64,
}

/// The address of memory at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The handle that the peer sent.
    pub handle: MemoryHandle,
    /// The offset of the first byte to access: the offset that the peer sent, plus the position within that memory.
    pub offset: u64,
}

/// A request to a queue pair. A queue pair executes requests in the order posted, except that the response to an RDMA
/// Read may arrive after later requests have been sent.
#[derive(Debug)]
pub enum WorkRequest {
    /// Sends a message, which consumes one of the peer's Receives.
    Send {
        /// The identifier returned by [`Completion::Sent`].
        id: WrId,
        /// The message. The provider drops or reuses its buffer once the message is sent.
        message: MessageBuf,
        /// A handle of the peer, which the peer invalidates when the message arrives (Send with Invalidate).
        invalidate: Option<MemoryHandle>,
        /// `true` to request an event at the peer (Send with Solicited Event).
        solicited: bool,
        /// `true` to request [`Completion::Sent`] on success. [`Completion::Failed`] is reported in any case.
        signaled: bool,
    },
    /// Reads the peer's memory into memory registered with [`Access::ReadSink`].
    Read {
        /// The identifier returned by [`Completion::Read`].
        id: WrId,
        /// The handle of the registered sink.
        sink: MemoryHandle,
        /// The offset from the start of the sink, in bytes.
        sink_offset: u64,
        /// The address of the peer's memory.
        remote: RemoteMemory,
        /// The length in bytes, at most [`QueuePair::max_transfer`].
        len: u32,
    },
    /// Writes to the peer's memory by RDMA Write. Copies of the data count in [`QueuePair::copied_payload_bytes`].
    Write {
        /// The identifier returned by [`Completion::Written`].
        id: WrId,
        /// The data, at most [`QueuePair::max_transfer`] bytes.
        source: Bytes,
        /// The address of the peer's memory.
        remote: RemoteMemory,
    },
    /// Invalidates registered memory and returns it. If the peer has already invalidated the memory by Send with
    /// Invalidate, the request only returns it.
    Invalidate {
        /// The identifier returned by [`Completion::Invalidated`].
        id: WrId,
        /// The handle of memory registered on this queue pair.
        handle: MemoryHandle,
    },
}

impl WorkRequest {
    /// Returns the identifier that the completion of the request carries.
    #[doc(hidden)]
    pub fn id(&self) -> WrId {
        match self {
            Self::Send { id, .. } | Self::Read { id, .. } | Self::Write { id, .. } | Self::Invalidate { id, .. } => *id,
        }
    }

    /// Returns the completion of the request with this result. For an Invalidate with `Ok`, returns
    /// [`Completion::Failed`], because the provider has to report a successful Invalidate as
    /// [`Completion::Invalidated`], with the memory.
    #[doc(hidden)]
    pub fn completion(&self, result: Result<(), WorkError>) -> Completion {
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

/// An event on a queue pair.
#[derive(Debug)]
pub enum Completion {
    /// The transport has accepted a Send, and the message buffer is free.
    Sent {
        /// The identifier of the work request.
        id: WrId,
    },
    /// All data of an RDMA Read has been placed.
    Read {
        /// The identifier of the work request.
        id: WrId,
    },
    /// The transport has accepted the data of an RDMA Write. A Send posted later arrives after the data.
    Written {
        /// The identifier of the work request.
        id: WrId,
    },
    /// The memory is invalidated, and the peer can no longer access it.
    Invalidated {
        /// The identifier of the work request.
        id: WrId,
        /// The memory that was registered.
        memory: RegisterableMemory,
    },
    /// A message arrived and consumed one posted Receive.
    Received {
        /// The received message.
        message: MessageBuf,
        /// The handle that the peer's Send with Invalidate named. It is already invalid. `None` if the message arrived
        /// by another kind of Send.
        invalidated: Option<MemoryHandle>,
    },
    /// A work request failed. A failed Send, RDMA Read or RDMA Write ends the connection: [`Completion::Disconnected`]
    /// follows. A failed invalidation, for example of an unknown handle, need not end it.
    Failed {
        /// The identifier of the work request.
        id: WrId,
        /// The cause of the failure.
        error: WorkError,
    },
    /// The connection has ended. All other requests have completed before this event. [`WorkRequest::Invalidate`] still
    /// works after it.
    Disconnected {
        /// The side that ended the connection, and the cause.
        reason: DisconnectReason,
    },
}

/// The cause of a failed work request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The connection ended before the request completed.
    #[error("request flushed because the connection ended")]
    Flushed,
    /// The peer refused access to its memory.
    #[error("peer refused access to its memory: {0}")]
    RemoteAccess(String),
    /// The request is invalid (for example, it has an unknown handle or a range outside the registered memory), or the
    /// local device or operating system could not execute it.
    #[error("invalid work request: {0}")]
    Local(String),
}

/// The side that ended a connection, and the cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The local side closed the connection, for example after an invalid work request.
    #[error("closed locally")]
    Local,
    /// The peer closed the connection in an orderly way.
    #[error("closed by the peer")]
    Remote,
    /// The transport failed, for example because of an error of the operating system or the device, or a truncated
    /// stream.
    #[error(transparent)]
    Transport(IoError),
    /// The peer violated the RDMA protocol. The provider reported the violation to the peer if the protocol allows it.
    #[error("peer violated the protocol: {0}")]
    PeerViolation(String),
    /// The peer refused access to its memory.
    #[error("peer refused access to its memory: {0}")]
    RemoteAccess(String),
    /// The peer reported an error of the connection other than refused access to its memory, for example by an iWARP
    /// Terminate message.
    #[error("peer reported an error: {0}")]
    ReportedByPeer(String),
}

/// A failed memory registration, with the memory.
#[derive(Debug, thiserror::Error)]
#[error("memory registration failed")]
pub struct RegisterError {
    /// The cause of the failure.
    pub source: IoError,
    /// The memory, returned to the caller.
    pub memory: RegisterableMemory,
}

/// A connected, reliable queue pair.
///
/// Callers may use [`register`](Self::register), [`post`](Self::post) and [`post_receives`](Self::post_receives) at any
/// time, and then call [`poll`](Self::poll) until it returns `Pending`. A provider need not send anything before the
/// next `poll`, so it can batch everything posted in between.
pub trait QueuePair: Send + Unpin + 'static {
    /// Registers memory and takes ownership of it. The peer can access the memory at the latest when it receives a Send
    /// that is posted after the registration.
    ///
    /// # Errors
    /// Returns an error, with the memory, if memory or handles are exhausted, if the access does not suit the memory,
    /// or if the connection is ending (see [`is_open`](Self::is_open)).
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError>;

    /// Returns `true` if the queue pair still executes new requests.
    ///
    /// Returns `false` once the connection is ending for any reason, even if [`Completion::Disconnected`] has not been
    /// reported yet. Requests posted from then on are flushed, and [`register`](Self::register) may fail.
    fn is_open(&self) -> bool;

    /// Queues a work request. An invalid request is reported by [`Completion::Failed`].
    fn post(&mut self, request: WorkRequest);

    /// Posts `count` additional Receives of [`SetupParams::receive_size`] bytes each.
    fn post_receives(&mut self, count: usize);

    /// Performs all I/O that is possible without waiting, and appends the completions.
    ///
    /// Returns `Ready` if it appended any completion. Returns `Pending`, with the waker registered, if it appended
    /// none. After [`Completion::Disconnected`], only requests posted later complete.
    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()>;

    /// Returns `true` if the caller has to call [`poll`](Self::poll) again before it waits. Returns `false` if another
    /// `poll` with the same waker would find nothing to do, because the last `poll` registered the waker and no request
    /// was posted since.
    ///
    /// Providers that cannot tell return `true`.
    fn needs_poll(&self) -> bool {
        true
    }

    /// Performs the I/O of requests that were posted since the last [`poll`](Self::poll), and appends the completions
    /// as `poll` does. The caller calls both methods within the same poll of the same task. If `poll` found no more
    /// input, it registered the waker for input, and this method need not look for input again.
    fn poll_requests(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        self.poll(cx, completions)
    }

    /// Permits busy polling in later polls if the argument is `true`, and forbids it otherwise.
    ///
    /// Callers forbid it while other tasks of the same thread may have work to do. Providers that do not busy-poll
    /// ignore this call.
    fn set_busy_poll(&mut self, _may: bool) {}

    /// Returns `true` if [`poll`](Self::poll) should be called again without waiting for its waker, because an event is
    /// expected soon.
    ///
    /// A provider whose `poll` does not busy-poll itself uses this, so that callers can look for other work between
    /// polls. Callers may ignore it.
    fn is_busy_polling(&self) -> bool {
        false
    }

    /// Closes the connection in an orderly way after all posted requests have been sent. Completions, and finally
    /// [`Completion::Disconnected`], are still reported by [`poll`](Self::poll).
    fn disconnect(&mut self);

    /// Returns the maximum number of local RDMA Reads in flight. The provider queues further RDMA Reads.
    fn max_reads(&self) -> u32;

    /// Returns the maximum length of an RDMA Read or RDMA Write, in bytes.
    fn max_transfer(&self) -> u32 {
        u32::MAX
    }

    /// Returns `true` if the local receiver supports Send with Invalidate.
    fn remote_invalidation(&self) -> bool;

    /// Returns `true` if every protocol violation by the peer is reported as [`DisconnectReason::PeerViolation`].
    ///
    /// Some devices refuse a forbidden operation and end the connection without reporting the cause.
    fn reports_violations(&self) -> bool {
        true
    }

    /// Returns the total number of bytes sent to the peer.
    ///
    /// The number grows while a long Send or RDMA Write is in flight and the peer accepts data. Providers that cannot
    /// count bytes return 0; their requests make progress only when they complete.
    fn bytes_sent(&self) -> u64 {
        0
    }

    /// Returns the total number of bytes received from the peer.
    ///
    /// The number grows with any data from the peer, including parts of a long message or of an RDMA operation.
    /// Providers that cannot count bytes return 0; the received messages are then the only signs of life.
    fn bytes_received(&self) -> u64 {
        0
    }

    /// Returns the number of payload bytes that this queue pair has copied between its own buffers and registered
    /// memory.
    fn copied_payload_bytes(&self) -> u64;
}

/// The parameters that one side offers when it sets up a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SetupParams {
    /// Private data for the peer's upper layer (RPC-over-RDMA version 1: RFC 8797). At most
    /// [`Connector::max_private_data`] bytes in a request, and 196 bytes in a reply.
    pub private_data: Bytes,
    /// Private data to send instead if the local receiver does not support Send with Invalidate
    /// ([`QueuePair::remote_invalidation`]). If it is empty, [`private_data`](Self::private_data) is sent in both
    /// cases.
    pub private_data_without_invalidation: Bytes,
    /// Maximum number of local RDMA Reads in flight (ORD, initiator depth). Default 16.
    pub initiator_depth: u32,
    /// Maximum number of the peer's RDMA Reads served at a time (IRD, responder resources). Default 16.
    pub responder_resources: u32,
    /// Number of Receives posted before the first message can arrive. Default 32.
    pub receive_count: usize,
    /// Size of each Receive, in bytes. Default 4096.
    pub receive_size: usize,
    /// The pool that provides Receive buffers and staging memory.
    pub pool: BufferPool,
    /// Time limit for connection set-up. Default 10 seconds.
    pub timeout: Duration,
}

impl SetupParams {
    /// Returns the private data to send, depending on whether the local receiver supports Send with Invalidate.
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

/// A newly established connection.
#[derive(Debug)]
pub struct Connected<Q> {
    /// The queue pair of the connection.
    pub queue_pair: Q,
    /// The peer's private data. InfiniBand pads it with zeros to a fixed length.
    pub private_data: Bytes,
    /// The local address.
    pub local_addr: SocketAddr,
    /// The peer's address.
    pub peer_addr: SocketAddr,
}

/// An error during connection set-up.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// An I/O error of the operating system or of the provider: for example, a refused connection, no route to the
    /// host, an address in use, or a missing RDMA device.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The peer rejected the connection.
    #[error("peer rejected the connection")]
    Rejected {
        /// The private data sent with the rejection.
        private_data: Bytes,
    },
    /// The peer does not speak the transport's set-up protocol.
    #[error("peer does not speak {expected}: {detail}")]
    NotOurProtocol {
        /// The name of the expected protocol.
        expected: &'static str,
        /// A description of the peer's behavior.
        detail: String,
    },
    /// The time limit for connection set-up has expired. The value is the limit.
    #[error("connection set-up timed out after {0:?}")]
    TimedOut(Duration),
    /// A layer above the provider refused the connection during its set-up. For TLS, the error is a `TlsError` of the
    /// crate `rpcrdma`.
    #[error(transparent)]
    Layer(std::sync::Arc<dyn std::error::Error + Send + Sync>),
}

impl From<std::io::Error> for SetupError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.into())
    }
}

/// A provider of outgoing connections.
pub trait Connector: Send + Sync + 'static {
    /// The type of the queue pairs.
    type QueuePair: QueuePair;

    /// Connects to `peer`, within [`SetupParams::timeout`].
    ///
    /// # Errors
    /// See [`SetupError`].
    fn connect(
        &self,
        peer: SocketAddr,
        params: SetupParams,
    ) -> impl Future<Output = Result<Connected<Self::QueuePair>, SetupError>> + Send;

    /// Returns the maximum length of private data in a connection request, in bytes.
    fn max_private_data(&self) -> usize {
        196
    }
}

/// A provider of incoming connections.
pub trait Listener: Send + Sync + 'static {
    /// The type of the queue pairs.
    type QueuePair: QueuePair;
    /// The type of a connection that is being set up.
    type IncomingConnection: Incoming<QueuePair = Self::QueuePair>;

    /// Waits for the next connection. Returns before the peer has sent its request, so a slow peer does not delay
    /// others.
    ///
    /// # Errors
    /// Returns an error of the operating system or of the provider.
    fn accept(&self) -> impl Future<Output = std::io::Result<Self::IncomingConnection>> + Send;

    /// Returns the address that the listener is bound to.
    fn local_addr(&self) -> SocketAddr;
}

/// A connection that a peer has begun to set up.
pub trait Incoming: Send + 'static {
    /// The type of the queue pair that the connection becomes.
    type QueuePair: QueuePair;
    /// The type of the connection request.
    type Request: ConnectRequest<QueuePair = Self::QueuePair>;

    /// Returns the peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// Moves the connection to the current tokio runtime, which sets it up and drives it. A server calls this method
    /// before [`request`](Self::request) if another runtime accepted the connection.
    ///
    /// The default returns the connection unchanged. That suffices if `accept` registered nothing with the I/O driver
    /// of the accepting runtime. A socket of tokio is registered, and needs `into_std` and `from_std`.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    fn move_to_current_runtime(self) -> std::io::Result<Self>
    where
        Self: Sized,
    {
        Ok(self)
    }

    /// Waits at most `timeout` for the peer's connection request.
    ///
    /// # Errors
    /// Returns [`SetupError::TimedOut`] if the request does not arrive in time, and [`SetupError::NotOurProtocol`] or
    /// [`SetupError::Io`] if it is invalid or the connection is lost.
    fn request(self, timeout: Duration) -> impl Future<Output = Result<Self::Request, SetupError>> + Send;
}

/// A peer's connection request.
pub trait ConnectRequest: Send + 'static {
    /// The type of the queue pair of the accepted connection.
    type QueuePair: QueuePair;

    /// Returns the peer's private data. InfiniBand pads it with zeros to a fixed length.
    fn private_data(&self) -> &[u8];

    /// Accepts the connection, and returns its queue pair.
    ///
    /// # Errors
    /// See [`SetupError`].
    fn accept(self, params: SetupParams)
    -> impl Future<Output = Result<Connected<Self::QueuePair>, SetupError>> + Send;

    /// Rejects the connection with private data that tells the peer the cause.
    ///
    /// # Errors
    /// See [`SetupError`].
    fn reject(self, private_data: Bytes) -> impl Future<Output = Result<(), SetupError>> + Send;
}
