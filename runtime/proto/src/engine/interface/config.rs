//! Configuration of an engine.

use std::{sync::Arc, time::Duration};

use super::{
    chunk_items::SpareItems, extension::ExtensionFactory, failed_calls::PeerFailedCalls, host_auth::HostAuth,
    properties::ReverseDirection, types::ResultChunk, versions::Versions,
};
use crate::{
    memory::{BufferPool, MemoryAccount},
    xdr::{ReducedItem, WriteChunk},
};

/// Configuration of an engine, for all versions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineConfig {
    /// Credits of the forward direction: the number that a server grants and that a client requests. Default 32.
    pub credits: u32,
    /// `true` to reserve one credit for urgent calls ([`CallPolicy::urgent`]) if the peer grants at least eight. A peer
    /// that does not reply to other calls can then still be probed. Default `false`.
    ///
    /// [`CallPolicy::urgent`]: crate::engine::CallPolicy::urgent
    pub keeps_credit: bool,
    /// Credits of the reverse direction, which are counted separately (RFC 8167 §4.1): the number that a client grants
    /// to its server and that a server requests. Each credit needs a Receive. 0 disables the reverse direction: a
    /// client discards the calls of its server (RFC 8167 §6), and a server makes none. Default 8.
    pub reverse_credits: u32,
    /// Maximum length in bytes of a message that is sent inline, unless the peer's limit is lower. Default 4096.
    pub send_size: u32,
    /// Size in bytes of the local Receives, as announced to the peer. The Receives have at least 4096 bytes, even if a
    /// smaller size is announced. Default 4096.
    pub receive_size: u32,
    /// Minimum length in bytes of an eligible item that is reduced. Shorter arguments, and results with a smaller
    /// maximum length, stay inline if they fit. Default 1024.
    pub min_reduce: usize,
    /// Maximum length in bytes of a local segment. A chunk has as many segments as it needs. Default 1 GiB.
    pub max_segment_len: u32,
    /// Maximum number of segments accepted in a received message. Default 256.
    pub max_segments: u32,
    /// Maximum number of Read chunks, and of Write chunks, accepted in one message. A chunk that conveys a whole
    /// message does not count. A service that needs more (`Service::max_chunks` of the crate `rpcrdma`) raises the
    /// limit to that number. Default 16.
    pub max_chunks: u32,
    /// Maximum number of bytes that a responder fetches for one call (Read chunks), or that a requester allocates for
    /// one reply. A call whose eligible results may be longer, by the maxima of their types or `@ddp(max = ...)`, fails
    /// before it is sent ([`CallFailure::TooLarge`](crate::engine::CallFailure::TooLarge)). Raise this limit for it, or
    /// supply memory for the results ([`ResultChunk::landing`]), which does not count. Default 64 MiB.
    pub max_call_len: u64,
    /// Maximum number of bytes on the connection that are being fetched, or were fetched for calls that have no reply
    /// yet. Default 256 MiB.
    pub max_fetched: u64,
    /// Time after which the connection is closed if RDMA Reads of the peer's Read chunks make no progress, or if the
    /// rest of a partially received message does not arrive (version 2). Both hold memory. Default 60 seconds.
    pub fetch_timeout: Duration,
    /// Minimum rate in bytes per second of the transfers that `fetch_timeout` limits, and of the replies over RDMA that
    /// `reply_timeout` limits. A transfer that is slower fails, at the latest after the timeout plus the time that it
    /// takes at this rate. With 0, any byte counts as progress. Default 64 KiB per second.
    pub min_rate: u64,
    /// Time after which the connection is closed if the peer accepts no part of the pending replies. Pending replies
    /// hold their results in memory, and the connection counts against the limits of its server. Every completed Send
    /// or RDMA Write counts as progress, and so do bytes that leave the host, over RDMA only at `min_rate` or more.
    /// After progress by bytes alone, detection may take up to twice this time. In version 2 the time without credit
    /// from the peer counts too. Default 60 seconds.
    pub reply_timeout: Duration,
    /// Version 2: maximum length in bytes of a payload stream that goes in several Sends (Message Continuation) rather
    /// than by RDMA (Special Format), and maximum length of a reply for which no Reply chunk is provided. Default 64
    /// KiB.
    pub max_continued: u32,
    /// Versions of RPC-over-RDMA to offer and accept. Default both.
    pub versions: Versions,
    /// Maximum time for the negotiation of version and properties. Default 10 seconds.
    pub negotiation_timeout: Duration,
    /// Version 2: level of reverse-direction support that a client announces, unless `reverse_credits` is 0. Default
    /// [`ReverseDirection::General`].
    pub reverse_direction: ReverseDirection,
    /// Version 2: mutual authentication of the hosts. Default none.
    pub host_auth: Option<Arc<dyn HostAuth>>,
    /// Version 2: header types, properties and errors that the application adds. Default none.
    pub extensions: Vec<Arc<dyn ExtensionFactory>>,
    /// Time for which the memory of an abandoned call (cancelled, or past its deadline) stays registered, so that the
    /// peer can still complete its reply. An invalidation while the peer accesses the memory breaks the connection. 0
    /// invalidates immediately and accepts that risk. Default 5 seconds.
    pub abandoned_call_timeout: Duration,
    /// Pool for message buffers, and for the memory of chunks.
    pub pool: BufferPool,
    /// Account of the connection with the memory budget of its server. Without it, only the limits of the connection
    /// apply.
    #[doc(hidden)]
    pub budget: Option<MemoryAccount>,
    /// Calls of the peer that ended earlier connections. Without them, a call that is sent again may end every
    /// connection.
    #[doc(hidden)]
    pub failed_calls: Option<PeerFailedCalls>,
    #[doc(hidden)]
    pub spare: SpareLists,
}

/// Memory for the lists of later messages of a connection. Clones share it.
#[derive(Debug, Clone, Default)]
#[doc(hidden)]
pub struct SpareLists {
    #[doc(hidden)]
    pub reduced: Arc<SpareItems<ReducedItem>>,
    #[doc(hidden)]
    pub results: Arc<SpareItems<ResultChunk>>,
    #[doc(hidden)]
    pub writes: Arc<SpareItems<WriteChunk>>,
}

impl EngineConfig {
    /// Returns a copy for one connection. The copy does not share memory for reuse with other connections.
    #[doc(hidden)]
    pub fn for_connection(&self) -> Self {
        Self { pool: self.pool.for_connection(), spare: SpareLists::default(), ..self.clone() }
    }
}

/// Default of [`EngineConfig::min_reduce`].
#[doc(hidden)]
pub const DEFAULT_MIN_REDUCE: usize = 1024;

/// Default of [`EngineConfig::max_continued`].
#[doc(hidden)]
pub const DEFAULT_CONTINUED: u32 = 64 << 10;

impl Default for EngineConfig {
    // RFC 8267 §6.4.2: the limits on chunks and segments admit what an NFS client may send to any server.
    fn default() -> Self {
        Self {
            credits: 32,
            keeps_credit: false,
            reverse_credits: 8,
            send_size: 4096,
            receive_size: 4096,
            min_reduce: DEFAULT_MIN_REDUCE,
            max_segment_len: 1 << 30,
            max_segments: 256,
            max_chunks: 16,
            max_call_len: 64 << 20,
            max_fetched: 256 << 20,
            fetch_timeout: Duration::from_secs(60),
            min_rate: 64 << 10,
            reply_timeout: Duration::from_secs(60),
            max_continued: DEFAULT_CONTINUED,
            versions: Versions::default(),
            negotiation_timeout: Duration::from_secs(10),
            reverse_direction: ReverseDirection::default(),
            host_auth: None,
            extensions: Vec::new(),
            abandoned_call_timeout: Duration::from_secs(5),
            pool: BufferPool::default(),
            budget: None,
            failed_calls: None,
            spare: SpareLists::default(),
        }
    }
}
