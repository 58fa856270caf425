//! Channels to the callers of calls: over connections that are not theirs.

use std::sync::Arc;

use super::{
    builder::ChannelConfig,
    channel::{Channel, ChannelInfo},
    link::{Link, Placement},
};
use crate::{driver::Port, transport::Transport};

impl Channel {
    /// A channel over a connection that others own: it neither makes a new one nor closes this one, but an idle one is kept
    /// for it. `forward`: whether this end made the connection.
    pub(crate) fn back(port: &Arc<Port>, info: ChannelInfo, config: &Arc<ChannelConfig>, forward: bool) -> Self {
        let placement = match (info.transport, forward) {
            (Transport::Tcp, _) => Placement::Record,
            (Transport::Rdma, true) => Placement::Chunks,
            // RFC 8167 §5.3: no chunks in the reverse direction.
            (Transport::Rdma, false) => Placement::Inline,
        };
        port.hold();
        let link = Link { driver: None, port: Arc::clone(port), info, placement };
        Self::over(None, Arc::new(link), Arc::clone(config))
    }
}
