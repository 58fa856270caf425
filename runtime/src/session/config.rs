//! The configuration of a channel and its calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{config::ConnectionConfig, metrics::CallMetrics, rpc::OpaqueAuth, security::Security, trace::TraceSource};

/// The settings of a channel's connection, and of the calls over it. A server has such settings for the calls back to
/// its clients.
#[derive(Debug, Clone)]
pub(crate) struct ChannelConfig {
    pub(crate) connection: ConnectionConfig,
    /// Maximum number of calls that are in flight or waiting for a credit.
    pub(crate) max_calls: usize,
    /// The timeout of calls without a deadline of their own.
    pub(crate) call_timeout: Option<Duration>,
    /// The credential of calls without a credential of their own. Not used if `security` is set.
    pub(crate) credential: OpaqueAuth,
    pub(crate) security: Option<Arc<dyn Security>>,
    pub(crate) metrics: CallMetrics,
    pub(crate) trace: Option<TraceSource>,
    /// The XIDs of calls that the server recognizes if they are sent again.
    pub(crate) resendable: Option<Arc<ResendableXids>>,
}

impl ChannelConfig {
    /// Returns settings without a credential, a security, a time limit, tracing, or recognition of repeated calls.
    pub(crate) fn new(connection: ConnectionConfig, max_calls: usize) -> Self {
        Self {
            connection,
            max_calls,
            call_timeout: None,
            credential: OpaqueAuth::none(),
            security: None,
            metrics: CallMetrics::default(),
            trace: None,
            resendable: None,
        }
    }

    /// Returns the settings of one connection of a server. The connection gets spare memory of its own.
    pub(crate) fn for_connection(&self) -> Self {
        let mut config = self.clone();
        config.connection.engine = config.connection.engine.for_connection();
        config
    }
}

/// The XIDs of the calls of a channel that its server recognizes if they are sent again. The first XID is random, and
/// no XID repeats within almost 2^32 calls.
#[derive(Debug)]
pub(crate) struct ResendableXids {
    /// The programs whose calls the server recognizes. `None` stands for all programs.
    programs: Option<Vec<u32>>,
    next: AtomicU32,
    /// The time after the first attempt of a call during which the call may be sent again.
    window: Duration,
}

impl ResendableXids {
    pub(crate) fn new(programs: Option<Vec<u32>>, first: u32, window: Duration) -> Self {
        Self { programs, next: AtomicU32::new(first), window }
    }

    /// Returns the time after the first attempt of a call during which the call may be sent again.
    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// Returns `true` if the server recognizes calls of a program.
    pub(crate) fn covers(&self, program: u32) -> bool {
        self.programs.as_ref().is_none_or(|programs| programs.contains(&program))
    }

    /// Returns the XID for the next call of a program. `None` if the server does not recognize calls of the program.
    pub(crate) fn next(&self, program: u32) -> Option<u32> {
        if !self.covers(program) {
            return None;
        }
        // RPC-over-RDMA v2 §6.3.2: XID 0 never identifies a transaction.
        std::iter::repeat_with(|| self.next.fetch_add(1, Ordering::Relaxed)).find(|&xid| xid != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections do not share memory for reuse.
    #[test]
    fn connections_have_memory_of_their_own() {
        let config = crate::session::tests::settings(ConnectionConfig::new());
        let spare = |config: &ChannelConfig| Arc::as_ptr(&config.connection.engine.spare.reduced);
        assert_eq!(spare(&config.clone()), spare(&config));
        assert_ne!(spare(&config.for_connection()), spare(&config));
    }

    #[test]
    fn xids_are_consecutive_without_zero() {
        let xids = ResendableXids::new(Some(vec![7, 9]), u32::MAX - 1, Duration::ZERO);
        assert_eq!([7, 9, 7, 9].map(|program| xids.next(program)), [u32::MAX - 1, u32::MAX, 1, 2].map(Some));
        assert_eq!(xids.next(8), None);
        assert_eq!(ResendableXids::new(None, 5, Duration::ZERO).next(8), Some(5));
    }
}
