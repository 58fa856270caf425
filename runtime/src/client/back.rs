//! Channels back to the callers of inbound calls, over connections that the channel does not own.

use std::sync::Arc;

use super::{
    channel::Channel,
    link::{Link, Placement},
    reconnect::Reconnect,
};
use crate::{
    driver::Port,
    engine::{Role, v2::ReverseDirection},
    session::{ChannelConfig, ChannelInfo, Context, ServedConnection},
    transport::Transport,
};

impl Channel {
    /// Creates a channel over a connection that it does not own. It neither closes the connection nor makes a new one, but while
    /// it exists, an idle connection stays open. `forward`: whether the local side made the connection.
    fn back(port: &Arc<Port>, info: ChannelInfo, config: &Arc<ChannelConfig>, forward: bool) -> Self {
        let placement = match (info.transport, forward) {
            (Transport::Tcp, _) => Placement::Record,
            (Transport::Rdma, true) => Placement::Chunks,
            // RPC-over-RDMA v2 §5.2.5: as in the forward direction, if the peer takes it.
            (Transport::Rdma, false) if takes_chunks(port) => Placement::Chunks,
            // RFC 8167 §5.3: no chunks in the reverse direction.
            (Transport::Rdma, false) => Placement::Inline,
        };
        port.hold();
        let link = Link { is_owned: false, port: Arc::clone(port), info, placement, negotiates: false.into() };
        Self::over(None, Arc::new(link), Arc::clone(config), Reconnect::Never)
    }
}

impl Context {
    /// Returns a client for calls back to the caller, over the connection that this call came by. `C` is the generated client of
    /// a program that the caller serves ([`ChannelBuilder::serve`](crate::client::ChannelBuilder::serve)), or a [`Channel`].
    ///
    /// The caller must have told that it is prepared for such calls, for example by making this call (RFC 8167 §6). A caller
    /// that is not prepared may not answer at all. A server's calls back to a client have the timeout
    /// [`ServerBuilder::callback_timeout`](crate::server::ServerBuilder::callback_timeout) unless a call sets its own. Over RDMA,
    /// a server's calls and their replies must fit one inline message, and nothing in them is placed directly (RFC 8167 §5.3).
    /// A longer message fails with [`ReverseTooLong`](crate::engine::CallFailure::ReverseTooLong).
    ///
    /// The client may be kept beyond the call. It does not keep the connection open: the connection belongs to whoever made it.
    /// But while the client exists, the connection is not closed for being idle. After the connection has closed, calls fail
    /// with [`CallFailure::Closed`](crate::engine::CallFailure::Closed), and keep failing: after a reconnect, the caller has
    /// to announce itself again with another call.
    #[must_use]
    pub fn callback<C: From<Channel>>(&self) -> C {
        let ServedConnection { info, role, port, back, .. } = self.connection();
        C::from(Channel::back(port, info.clone(), back, *role == Role::Client))
    }
}

/// Whether the peer accepts chunks in calls of the reverse direction. The peer has called, so the version is known.
fn takes_chunks(port: &Port) -> bool {
    port.agreement().properties.is_some_and(|peer| peer.reverse >= ReverseDirection::General)
}
