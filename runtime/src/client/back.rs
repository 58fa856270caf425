//! Channels to the callers of calls: over connections that are not theirs.

use std::sync::Arc;

use super::{
    builder::ChannelConfig,
    channel::{Channel, ChannelInfo},
    link::{Link, Placement},
};
use crate::{driver::Port, engine::v2::ReverseDirection, transport::Transport};

impl Channel {
    /// A channel over a connection that others own: it neither makes a new one nor closes this one, but an idle one is kept
    /// for it. `forward`: whether this end made the connection.
    pub(crate) fn back(port: &Arc<Port>, info: ChannelInfo, config: &Arc<ChannelConfig>, forward: bool) -> Self {
        let placement = match (info.transport, forward) {
            (Transport::Tcp, _) => Placement::Record,
            (Transport::Rdma, true) => Placement::Chunks,
            // RPC-over-RDMA v2 §5.2.5: as in the forward direction, if the peer takes it.
            (Transport::Rdma, false) if takes_chunks(port) => Placement::Chunks,
            // RFC 8167 §5.3: no chunks in the reverse direction.
            (Transport::Rdma, false) => Placement::Inline,
        };
        port.hold();
        let link = Link { driver: None, port: Arc::clone(port), info, placement, negotiates: false.into() };
        Self::over(None, Arc::new(link), Arc::clone(config))
    }
}

/// Whether the peer takes chunks in calls of the reverse direction. It has called, so the version is certain.
fn takes_chunks(port: &Port) -> bool {
    port.agreement().properties.is_some_and(|peer| peer.reverse >= ReverseDirection::General)
}
