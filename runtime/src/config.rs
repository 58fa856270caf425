//! Configuration of connections over RDMA and TCP: timeouts, credits, sizes and limits.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use crate::{
    driver::KeepaliveConfig,
    engine::{
        Connection, ConnectionSetup, EngineConfig, ExtensionFactory, HostAuth, PrivateData, ReverseDirection, Role,
        Versions,
        stream::{StreamConfig, StreamConnection},
    },
    memory::BufferPool,
    provider::SetupParams,
    random,
    xdr::DecodeLimits,
};

/// Maximum number of credits in each direction. Each credit needs a Receive.
const MAX_CREDITS: u64 = 65_535;

/// A setting that is out of its range.
///
/// Settings are checked when they are used: when a channel is created, a server binds, or an authenticator is created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}, but has to be between {min} and {max}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The type and the method that set the value, such as `ConnectionConfig::credits`.
    pub setting: &'static str,
    /// The rejected value. Durations are in milliseconds.
    pub value: u64,
    /// The minimum of the setting.
    pub min: u64,
    /// The maximum of the setting.
    pub max: u64,
}

impl ConfigError {
    /// Checks that the value of a setting is within its range.
    pub(crate) fn check(setting: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        Err(Self { setting, value, min: *range.start(), max: *range.end() })
    }
}

/// Returns a duration in milliseconds, rounded up, so that only a duration of zero is 0.
pub(crate) fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The settings of connections, at a client or a server. Every setting has a default that suits most uses.
///
/// ```
/// use std::time::Duration;
///
/// use rpcrdma::{Server, config::ConnectionConfig};
///
/// let config = ConnectionConfig::new().min_reduce(8 << 10).idle_timeout(Duration::from_secs(600));
/// let builder = Server::builder().connection(config);
/// # drop(builder);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ConnectionConfig {
    pub(crate) engine: EngineConfig,
    pub(crate) stream: StreamConfig,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    /// The interval and the timeout of keep-alive probes. Used only by clients.
    pub(crate) keepalive: KeepaliveConfig,
    /// Time within which a client's first call must arrive. Only for servers.
    pub(crate) first_call_timeout: Option<Duration>,
    initiator_depth: u32,
    responder_resources: u32,
    remote_invalidation: bool,
    pub(crate) decode_limits: DecodeLimits,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            engine: EngineConfig::default(),
            stream: StreamConfig::default(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: None,
            first_call_timeout: None,
            keepalive: KeepaliveConfig { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) },
            initiator_depth: 16,
            responder_resources: 16,
            remote_invalidation: true,
            decode_limits: DecodeLimits::default(),
        }
    }
}

/// Settings of all connections.
impl ConnectionConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the timeout of connection set-up, and of the negotiation of version and properties that follows
    /// (RPC-over-RDMA v2 §4.2.3). Longer than zero. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self.engine.negotiation_timeout = timeout;
        self
    }

    /// Sets the time without a call in flight after which a connection is closed. Longer than zero. Default: 360 s at a
    /// server, and no limit at a client. A connection that a channel may need for calls in the reverse direction is
    /// never idle (RFC 8167 §5.4).
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Sets the interval of keep-alive probes, with which a client checks a silent server. Longer than zero;
    /// [`Duration::MAX`] disables probes. Default 30 s.
    ///
    /// A probe is a call of procedure 0. While calls are in flight, the first probe is sent after four round trips
    /// without a byte from the server, but not before 250 ms, and not later than this interval. The time to the next
    /// probe doubles, up to this interval. On a connection without calls in flight, the first probe is sent after this
    /// interval. The time to the next probe doubles, up to eight times this interval. Before its first call, a
    /// connection is not probed.
    pub fn keepalive_interval(mut self, interval: Duration) -> Self {
        self.keepalive.interval = interval;
        self
    }

    /// Sets the time that a client waits for a byte from the server after a probe. Each byte that arrives restarts the
    /// time. If none arrives, the connection counts as lost. Its calls fail with
    /// [`CloseReason::Silent`](crate::error::CloseReason::Silent), or are retried. Longer than zero. Default 10 s.
    ///
    /// After such a loss, the next connection is used only after its server has answered a call. If a server grants
    /// eight or more credits, one of them is kept for probes. With fewer credits, calls that hold all of them leave
    /// none for a probe. This includes the first call on the first connection of a channel in version 1, which starts
    /// with one credit. If the server falls silent while all credits are in use, the client notices it only when a call
    /// is given up.
    pub fn keepalive_timeout(mut self, timeout: Duration) -> Self {
        self.keepalive.timeout = timeout;
        self
    }

    /// Sets the maximum number of calls in flight on a connection, which a server grants and a client requests (RFC
    /// 8166 §3.3.1). 1 to 65535. Default 32. Of eight or more credits, a client keeps one for
    /// [probes](Self::keepalive_interval), unless they are disabled.
    pub fn credits(mut self, credits: u32) -> Self {
        self.engine.credits = credits;
        self
    }

    /// Sets the maximum number of calls in flight in the reverse direction, which a client with a service grants and a
    /// server requests (RFC 8167 §4.1). 1 to 65535 at a client. With 0, a server makes no such calls. Default 8.
    pub fn reverse_credits(mut self, credits: u32) -> Self {
        self.engine.reverse_credits = credits;
        self
    }

    /// Sets the maximum number of bytes that a responder fetches for one call, or that a requester allocates for one
    /// reply. Default 64 MiB. Over TCP, [`max_record`](Self::max_record) applies instead.
    ///
    /// A call whose eligible results may be longer, by the maxima of their types or `@ddp(max = ...)`, fails before it
    /// is sent ([`CallFailure::TooLarge`](crate::error::CallFailure::TooLarge)). Raise this limit for it, or supply
    /// [landing memory](crate::CallOptions::landing) for the results, which does not count.
    pub fn max_call_len(mut self, bytes: u64) -> Self {
        self.engine.max_call_len = bytes;
        self
    }

    /// Sets the maximum number of bytes that the calls of a connection hold in arguments received by RDMA Read or over
    /// TCP. Default 256 MiB. Calls that do not fit wait.
    pub fn max_fetched(mut self, bytes: u64) -> Self {
        self.engine.max_fetched = bytes;
        self
    }

    /// Sets the time without progress after which a connection over RDMA is closed while the peer sends arguments: by
    /// its responses to RDMA Reads or, in version 2, in a continued message. Longer than zero. Default 60 s.
    /// [`min_rate`](Self::min_rate) defines progress.
    pub fn fetch_timeout(mut self, timeout: Duration) -> Self {
        self.engine.fetch_timeout = timeout;
        self
    }

    /// Sets the minimum rate, in bytes per second, at which a peer must send arguments and accept replies over RDMA. It
    /// has no effect over TCP. Bytes that arrive extend the deadline of [`fetch_timeout`](Self::fetch_timeout) by the
    /// time that they may take at this rate. A peer thus cannot keep memory in use by sending a few bytes now and then.
    /// Replies count as stalled if they leave the host at a lower rate within [`reply_timeout`](Self::reply_timeout).
    /// With 0, any byte is progress. Default 64 KiB per second.
    pub fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.engine.min_rate = bytes_per_second;
        self
    }

    /// Sets the time after which the connection is closed if the peer accepts no part of the pending replies. Longer
    /// than zero. Default 60 s.
    ///
    /// Every completed Send or RDMA Write counts as progress, and so do bytes that leave the host. After progress by
    /// bytes alone, detection may take up to twice this time. In version 2 the time without credit from the peer counts
    /// too.
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.engine.reply_timeout = timeout;
        self
    }

    /// Sets the pool for message buffers, and for the memory of chunks.
    pub fn pool(mut self, pool: BufferPool) -> Self {
        self.engine.pool = pool;
        self
    }

    /// Sets the limits on memory and nesting when a message is decoded.
    pub fn decode_limits(mut self, limits: DecodeLimits) -> Self {
        self.decode_limits = limits;
        self
    }
}

/// Settings of connections over RDMA.
impl ConnectionConfig {
    /// Sets the versions of RPC-over-RDMA to offer and accept. Default both.
    pub fn versions(mut self, versions: Versions) -> Self {
        self.engine.versions = versions;
        self
    }

    /// Sets the inline threshold of both directions: the maximum length in bytes of a message that is sent or received
    /// in one Send (RFC 8166 §3.3.2, RFC 8797 §4.2, RPC-over-RDMA v2 §5.2.1, §5.2.2). 1 KiB to 256 KiB. Default 4 KiB.
    /// Version 1 rounds the value down to whole KiB. The smaller of the client's and the server's value applies.
    pub fn inline_size(mut self, bytes: u32) -> Self {
        self.engine.send_size = bytes;
        self.engine.receive_size = bytes;
        self
    }

    /// Sets the length in bytes from which an eligible item is reduced. Shorter arguments, and results with a smaller
    /// maximum length, stay inline if they fit. Default 1024.
    pub fn min_reduce(mut self, bytes: usize) -> Self {
        self.engine.min_reduce = bytes;
        self
    }

    /// Sets the maximum length in bytes of a local segment. A chunk has as many segments as it needs. At least 4096.
    /// Default 1 GiB. Lower it for peers that limit the length of a segment.
    pub fn max_segment_len(mut self, bytes: u32) -> Self {
        self.engine.max_segment_len = bytes;
        self
    }

    /// Sets the maximum number of segments accepted in a received message. At least 1. Default 256.
    pub fn max_segments(mut self, segments: u32) -> Self {
        self.engine.max_segments = segments;
        self
    }

    /// Sets the maximum number of Read chunks, and of Write chunks, accepted in one message. A chunk that conveys a
    /// whole message does not count. A service that needs [more](crate::server::Service::max_chunks) raises the limit
    /// to that number. At least 1. Default 16.
    pub fn max_chunks(mut self, chunks: u32) -> Self {
        self.engine.max_chunks = chunks;
        self
    }

    /// Sets, for version 2, the maximum length in bytes of a payload stream that is sent in several Sends (Message
    /// Continuation) rather than by RDMA (Special Format), and the maximum length of a reply for which no Reply chunk
    /// is provided. Default 64 KiB.
    pub fn max_continued(mut self, bytes: u32) -> Self {
        self.engine.max_continued = bytes;
        self
    }

    /// Sets, for version 2, the level of reverse-direction support that a client with a service announces. Default
    /// [`ReverseDirection::General`].
    pub fn reverse_direction(mut self, level: ReverseDirection) -> Self {
        self.engine.reverse_direction = level;
        self
    }

    /// Sets, for version 2, the mutual authentication of the hosts. Default none.
    pub fn host_auth(mut self, auth: impl HostAuth + 'static) -> Self {
        self.engine.host_auth = Some(Arc::new(auth));
        self
    }

    /// Adds, for version 2, header types, properties and errors of the application. Default none.
    pub fn extension(mut self, extension: impl ExtensionFactory + 'static) -> Self {
        self.engine.extensions.push(Arc::new(extension));
        self
    }

    /// Sets the time for which the memory of an abandoned call (cancelled, or past its deadline) stays registered, so
    /// that the peer can still complete its reply. An invalidation while the peer accesses the memory breaks the
    /// connection. 0 invalidates immediately and accepts that risk. Default 5 s.
    pub fn abandoned_call_timeout(mut self, timeout: Duration) -> Self {
        self.engine.abandoned_call_timeout = timeout;
        self
    }

    /// Sets the maximum number of RDMA Reads that the local side has in flight (ORD). Default 16.
    pub fn initiator_depth(mut self, reads: u32) -> Self {
        self.initiator_depth = reads;
        self
    }

    /// Sets the maximum number of the peer's RDMA Reads that are served at a time (IRD). Default 16.
    pub fn responder_resources(mut self, reads: u32) -> Self {
        self.responder_resources = reads;
        self
    }

    /// Enables or disables the announcement of support for Send with Invalidate (the R flag of RFC 8797 §4). Support is
    /// announced only if the provider has it. Default `true`.
    pub fn remote_invalidation(mut self, announce: bool) -> Self {
        self.remote_invalidation = announce;
        self
    }
}

/// Settings of connections over TCP (RFC 5531 §11).
impl ConnectionConfig {
    /// Sets the length in bytes of the longest record accepted from the peer, over all its fragments. At least 1.
    /// Default 65 MiB: 64 MiB of data and the message around it.
    ///
    /// Memory is allocated as bytes arrive, never for the length that a fragment announces. A longer reply is read and
    /// dropped, and fails only its call, with [`CallFailure::BadReply`](crate::error::CallFailure::BadReply). Any other
    /// longer record closes the connection.
    pub fn max_record(mut self, bytes: u64) -> Self {
        self.stream.max_record = bytes;
        self
    }

    /// Sets the maximum number of fragments of one record accepted from the peer, empty ones included. At least 1.
    /// Default 16384.
    pub fn max_fragments(mut self, fragments: u32) -> Self {
        self.stream.max_fragments = fragments;
        self
    }

    /// Sets the longest time for one record from its first byte to its last, in either direction. It bounds how long a
    /// peer that sends or accepts a byte now and then can hold memory. Longer than zero. Default 2 minutes.
    pub fn record_timeout(mut self, timeout: Duration) -> Self {
        self.stream.record_timeout = timeout;
        self
    }

    /// Sets the length of the longest fragment sent, from 1 to 2^31 - 1 bytes. Default 2^31 - 1: each record is one
    /// fragment. Lower it for peers that accept only short fragments.
    pub fn fragment_size(mut self, bytes: u32) -> Self {
        self.stream.fragment_size = bytes;
        self
    }
}

impl ConnectionConfig {
    /// Checks the settings against their ranges.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (engine, stream) = (&self.engine, &self.stream);
        let at_least = |min: u64| min..=u64::MAX;
        for (setting, value, range) in [
            ("ConnectionConfig::connect_timeout", whole_millis(self.connect_timeout), at_least(1)),
            ("ConnectionConfig::idle_timeout", self.idle_timeout.map_or(1, whole_millis), at_least(1)),
            ("ConnectionConfig::keepalive_interval", whole_millis(self.keepalive.interval), at_least(1)),
            ("ConnectionConfig::keepalive_timeout", whole_millis(self.keepalive.timeout), at_least(1)),
            ("ServerBuilder::first_call_timeout", self.first_call_timeout.map_or(1, whole_millis), at_least(1)),
            ("ConnectionConfig::credits", engine.credits.into(), 1..=MAX_CREDITS),
            ("ConnectionConfig::reverse_credits", engine.reverse_credits.into(), 0..=MAX_CREDITS),
            ("ConnectionConfig::fetch_timeout", whole_millis(engine.fetch_timeout), at_least(1)),
            ("ConnectionConfig::reply_timeout", whole_millis(engine.reply_timeout), at_least(1)),
            // RFC 8797 §4.2: the sizes that the private data can express.
            ("ConnectionConfig::inline_size", engine.receive_size.into(), 1 << 10..=256 << 10),
            ("ConnectionConfig::max_segment_len", engine.max_segment_len.into(), at_least(4096)),
            ("ConnectionConfig::max_segments", engine.max_segments.into(), at_least(1)),
            ("ConnectionConfig::max_chunks", engine.max_chunks.into(), at_least(1)),
            ("ConnectionConfig::max_record", stream.max_record, at_least(1)),
            ("ConnectionConfig::max_fragments", stream.max_fragments.into(), at_least(1)),
            ("ConnectionConfig::record_timeout", whole_millis(stream.record_timeout), at_least(1)),
            ("ConnectionConfig::fragment_size", stream.fragment_size.into(), 1..=i32::MAX as u64),
        ] {
            ConfigError::check(setting, value, range)?;
        }
        Ok(())
    }

    /// Returns the interval and the timeout of a client's probes, or `None` if probes are disabled.
    pub(crate) fn keepalive(&self) -> Option<KeepaliveConfig> {
        Some(self.keepalive).filter(|keepalive| keepalive.interval < Duration::MAX)
    }

    /// Returns the parameters of connection set-up that follow from these settings.
    pub(crate) fn setup_params(&self) -> SetupParams {
        let mut params = Connection::setup_params(&self.engine, self.remote_invalidation);
        params.initiator_depth = self.initiator_depth;
        params.responder_resources = self.responder_resources;
        params.timeout = self.connect_timeout;
        params
    }

    /// Creates the engine of a new connection that offers these versions of RPC-over-RDMA. `private_data` is the
    /// private data of the peer. `honours` is `true` if the local queue pair honours Send with Invalidate.
    pub(crate) fn engine(&self, role: Role, versions: Versions, private_data: &[u8], honours: bool) -> Connection {
        let local = PrivateData::new(&self.engine, self.remote_invalidation && honours);
        // RFC 8797 §4: nothing is kept from an earlier connection, because the peer's settings may change with each.
        let peer = PrivateData::find_or_default(private_data);
        let mut config = self.engine.clone();
        config.versions = versions;
        Connection::new(role, config, ConnectionSetup { local, peer, xid_seed: xid_seed() })
    }

    /// Creates the engine of a new byte-stream connection.
    pub(crate) fn stream_engine(&self, role: Role) -> StreamConnection {
        StreamConnection::new(role, self.engine.clone(), self.stream, xid_seed())
    }
}

/// Returns a random number, for example the first XID of a new engine.
pub(crate) fn xid_seed() -> u32 {
    random::number() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine as _;

    /// RFC 8797 §4: the peer's limits come from the private data that the peer sent on this connection, or are the
    /// defaults without private data. Nothing is kept from an earlier connection.
    #[test]
    fn settings_change_with_each_connection() {
        let config = ConnectionConfig::new().inline_size(64 << 10);
        let message = |flags, sizes| [0xf6, 0xab, 0x0e, 0x18, 1, flags, sizes, sizes];
        for role in [Role::Client, Role::Server] {
            let limits = |private_data: &[u8]| {
                let limits = config.engine(role, Versions::V1, private_data, true).peer_limits();
                (limits.remote_invalidation, limits.send_threshold, limits.receive_threshold)
            };
            assert_eq!(limits(&message(1, 3)), (true, 4096, 4096));
            assert_eq!(limits(&message(0, 7)), (false, 8192, 8192));
            assert_eq!(limits(&[]), (false, 1024, 1024));
        }
    }
}
