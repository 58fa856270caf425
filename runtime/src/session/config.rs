//! The configuration of a channel and its calls.

use std::{sync::Arc, time::Duration};

use crate::{
    config::ConnectionConfig,
    metrics::CallMetrics,
    rpc::{OpaqueAuth, Security},
};

/// The settings of a channel's connection, and of the calls over it. A server has one for the calls back to its clients.
#[derive(Debug, Clone)]
pub(crate) struct ChannelConfig {
    pub(crate) connection: ConnectionConfig,
    /// Maximum number of calls that are in flight or waiting for a credit.
    pub(crate) max_calls: usize,
    /// The timeout of calls without a deadline of their own.
    pub(crate) call_timeout: Option<Duration>,
    /// The credential of calls without their own. Not used if `security` is set.
    pub(crate) credential: OpaqueAuth,
    pub(crate) security: Option<Arc<dyn Security>>,
    pub(crate) metrics: CallMetrics,
}
