//! The conditions under which a call is sent again to a duplicate request cache.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::time::Instant;

use super::link::ChannelLink;
use crate::{engine::CallFailure, session::ChannelInfo};

/// The first attempt of a call that the server may have executed.
///
/// The server recognizes the call if it is sent again to the same server, from the same address, before the server forgets the reply.
#[derive(Debug)]
pub(super) struct FirstAttempt {
    local: IpAddr,
    peer: SocketAddr,
    /// The end of the time in which the server remembers the reply. `None` stands for no end.
    until: Option<Instant>,
    pub(super) failure: CallFailure,
}

/// The reason for which a call is not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotResent {
    OtherServer,
    OtherClient,
    TooLate,
}

impl FirstAttempt {
    /// Records an attempt that began at `begun` and failed on `link`.
    pub(super) fn new(link: &ChannelLink, begun: Instant, window: Duration, failure: CallFailure) -> Self {
        let ChannelInfo { local_addr, peer_addr, .. } = link.info;
        Self { local: local_addr.ip(), peer: peer_addr, until: begun.checked_add(window), failure }
    }

    /// Returns an error if the server at the end of `link` might not recognize the call.
    pub(super) fn check(&self, link: &ChannelLink) -> Result<(), NotResent> {
        let ChannelInfo { local_addr, peer_addr, .. } = link.info;
        if peer_addr != self.peer {
            return Err(NotResent::OtherServer);
        }
        // The client's address is part of the server's key. Its port is not.
        if local_addr.ip() != self.local {
            return Err(NotResent::OtherClient);
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(NotResent::TooLate);
        }
        Ok(())
    }
}

impl fmt::Display for NotResent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherServer => "the new connection leads to another address",
            Self::OtherClient => "the new connection has another local address",
            Self::TooLate => "the server may have forgotten the reply",
        })
    }
}
