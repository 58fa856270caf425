//! Channels back to the callers of inbound calls, over connections that the channel does not own.

use std::sync::Arc;

use super::{channel::Channel, link::ChannelLink, reconnect::Reconnect};
use crate::{
    driver::DriverPort,
    session::{ChannelConfig, ChannelInfo, Context, ServedConnection},
};

impl Channel {
    /// Creates a channel over a connection that it does not own. The channel neither closes the connection nor makes a
    /// new connection. While the channel exists, the connection is not closed for being idle.
    fn to_caller(port: &Arc<DriverPort>, info: ChannelInfo, config: &Arc<ChannelConfig>) -> Self {
        port.hold();
        let link = ChannelLink::new(Arc::clone(port), info, false);
        Self::over(None, Arc::new(link), Arc::clone(config), Reconnect::Never)
    }
}

impl Context {
    /// Returns a client for calls back to the caller, over the connection on which this call arrived. `C` is the
    /// generated client of a program that the caller serves
    /// ([`ChannelBuilder::service`](crate::client::ChannelBuilder::service)), or a [`Channel`].
    ///
    /// The caller must have announced that it accepts such calls, for example by making this call (RFC 8167 §6). A
    /// caller that does not accept them might not reply at all. A server's calls back to a client have the timeout
    /// [`ServerBuilder::callback_timeout`](crate::server::ServerBuilder::callback_timeout) unless a call sets its own.
    ///
    /// In RPC-over-RDMA version 1, a server's calls and their replies must fit one inline message, and nothing in them
    /// is placed directly (RFC 8167 §5.3). A longer call fails with
    /// [`ReverseTooLong`](crate::engine::CallFailure::ReverseTooLong). In version 2, the caller announces whether it
    /// supports longer messages and direct placement
    /// ([`ConnectionConfig::reverse_direction`](crate::config::ConnectionConfig::reverse_direction)).
    ///
    /// You may keep the returned client after the call has ended. It does not own the connection, and the caller may
    /// close the connection at any time. While the returned client exists, the connection is not closed for being idle.
    /// Once the connection is closed, all calls of the returned client fail with
    /// [`CallFailure::Closed`](crate::engine::CallFailure::Closed). After a reconnect, the caller has to announce
    /// itself again with another call.
    #[must_use]
    pub fn callback<C: From<Channel>>(&self) -> C {
        let ServedConnection { info, port, back, .. } = &*self.connection;
        C::from(Channel::to_caller(port, info.clone(), back))
    }
}
