//! Peers that do not answer the first message of an iWARP connection.
//!
//! In about one connection of a hundred, Linux's `siw` notices the initiator's first FPDU only when a second one arrives. Nothing
//! follows by itself: a client has one credit until it is answered (RFC 8166 §3.3.3, RPC-over-RDMA v2 §4.2.3), and would wait
//! until its negotiation, or its call, times out. So the provider sends something of its own that changes nothing at the
//! peer: an RDMA Write without octets (RFC 5040 §5.1).

use std::{future::Future, pin::Pin, task::Context, time::Duration};

use tokio::time::{Sleep, sleep};

/// How long an initiator waits for the first answer before it sends something more. Most answers come sooner; to remind a
/// peer that works on one costs a frame.
const SILENCE: Duration = Duration::from_millis(250);

/// Whether an initiator has heard from its peer.
#[derive(Debug)]
pub(super) enum Silence {
    /// Nothing has been sent, or heard.
    Unheard,
    /// Since the first message went out.
    Waiting(Pin<Box<Sleep>>),
    /// It has, or has reminded it, once.
    Over,
}

impl Silence {
    /// Of a new connection. Who accepts one sends nothing first.
    pub(super) fn new(initiator: bool) -> Self {
        if initiator { Self::Unheard } else { Self::Over }
    }

    /// Whether the peer is to be reminded now. `sent` and `heard`: whether a message has gone out, and one has come.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, sent: bool, heard: bool) -> bool {
        match self {
            Self::Over => return false,
            _ if heard => {
                *self = Self::Over;
                return false;
            }
            Self::Unheard if sent => *self = Self::Waiting(Box::pin(sleep(SILENCE))),
            Self::Unheard | Self::Waiting(_) => {}
        }
        let Self::Waiting(timer) = self else { return false };
        let over = timer.as_mut().poll(cx).is_ready();
        if over {
            *self = Self::Over;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use tokio::time::Instant;

    use super::*;

    /// Whether it reminds within twice the time.
    async fn reminds(silence: &mut Silence, sent: bool, heard: bool) -> bool {
        let polled = poll_fn(|cx| if silence.poll(cx, sent, heard) { Poll::Ready(()) } else { Poll::Pending });
        tokio::time::timeout(2 * SILENCE, polled).await.is_ok()
    }

    #[tokio::test]
    async fn once_and_only_after_silence() {
        let mut silence = Silence::new(true);
        assert!(!reminds(&mut silence, false, false).await, "there is nothing to be answered");
        let start = Instant::now();
        assert!(reminds(&mut silence, true, false).await);
        assert!(start.elapsed() >= SILENCE);
        assert!(!reminds(&mut silence, true, false).await, "once");

        let mut answered = Silence::new(true);
        assert!(!poll_fn(|cx| Poll::Ready(answered.poll(cx, true, false))).await);
        assert!(!reminds(&mut answered, true, true).await);
        assert!(!reminds(&mut Silence::new(false), true, false).await, "who accepts speaks second");
    }
}
