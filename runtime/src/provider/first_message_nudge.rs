//! A workaround for iWARP peers that do not notice the first message of a connection.
//!
//! In about one connection of a hundred, Linux's `siw` notices the initiator's first FPDU only when a second one arrives.
//! The initiator sends no second message on its own: a client has one credit until the first reply (RFC 8166 §3.3.3,
//! RPC-over-RDMA version 2 §4.2.3). It would wait until its negotiation or its call times out. The provider therefore
//! sends an FPDU that has no effect at the peer: a zero-length RDMA Write (RFC 5040 §5.1).

use std::{future::Future, pin::Pin, task::Context, time::Duration};

use tokio::time::{Sleep, sleep};

/// The time that an initiator waits for the first reply before it sends the extra FPDU. Most replies arrive sooner. An
/// extra FPDU to a peer that is still processing the message costs one frame.
const SILENCE: Duration = Duration::from_millis(250);

/// The state of the wait for the peer's first message.
#[derive(Debug)]
pub(super) enum PeerActivity {
    /// The initiator has neither sent nor received a message.
    Idle,
    /// The first message was sent, and the timer is running.
    Waiting(Pin<Box<Sleep>>),
    /// The peer has sent a message, or the extra FPDU was requested. It is requested at most once.
    Done,
}

impl PeerActivity {
    /// Creates the state of a new connection. An acceptor needs no timer because it does not send first.
    pub(super) fn new(initiator: bool) -> Self {
        if initiator { Self::Idle } else { Self::Done }
    }

    /// Returns `true` if the extra FPDU must be sent now.
    ///
    /// `sent` and `heard` state whether a message has been sent and received on this connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, sent: bool, heard: bool) -> bool {
        match self {
            Self::Done => return false,
            _ if heard => {
                *self = Self::Done;
                return false;
            }
            Self::Idle if sent => *self = Self::Waiting(Box::pin(sleep(SILENCE))),
            Self::Idle | Self::Waiting(_) => {}
        }
        let Self::Waiting(timer) = self else { return false };
        let over = timer.as_mut().poll(cx).is_ready();
        if over {
            *self = Self::Done;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use tokio::time::Instant;

    use super::*;

    /// Returns `true` if the extra FPDU is requested within twice the time.
    async fn reminds(silence: &mut PeerActivity, sent: bool, heard: bool) -> bool {
        let polled = poll_fn(|cx| if silence.poll(cx, sent, heard) { Poll::Ready(()) } else { Poll::Pending });
        tokio::time::timeout(2 * SILENCE, polled).await.is_ok()
    }

    #[tokio::test]
    async fn once_and_only_after_silence() {
        let mut silence = PeerActivity::new(true);
        assert!(!reminds(&mut silence, false, false).await, "no message was sent");
        let start = Instant::now();
        assert!(reminds(&mut silence, true, false).await);
        assert!(start.elapsed() >= SILENCE);
        assert!(!reminds(&mut silence, true, false).await, "requested a second time");

        let mut answered = PeerActivity::new(true);
        assert!(!poll_fn(|cx| Poll::Ready(answered.poll(cx, true, false))).await);
        assert!(!reminds(&mut answered, true, true).await);
        assert!(!reminds(&mut PeerActivity::new(false), true, false).await, "an acceptor does not send first");
    }
}
