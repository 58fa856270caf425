//! A workaround for iWARP peers that do not notice the first message of a connection.
//!
//! In about one connection of a hundred (Linux 6.1) or of six (Linux 7.3), `siw` notices the initiator's first FPDU
//! only when a second one arrives. The initiator sends no second message on its own: a client has one credit until the
//! first reply (RFC 8166 §3.3.3, RPC-over-RDMA version 2 §4.2.3). The initiator would wait until its negotiation or its
//! call times out. The provider therefore sends an FPDU that has no effect at the peer: a zero-length RDMA Write (RFC
//! 5040 §5.1).

use std::{future::Future, pin::Pin, task::Context, time::Duration};

/// The time that an initiator waits for the first reply before it sends the extra FPDU. Most replies arrive sooner. An
/// extra FPDU to a peer that is still processing the message costs one frame.
const SILENCE: Duration = Duration::from_millis(250);

/// The state of the wait for the peer's first message, with a timer of the provider's runtime.
#[derive(Debug)]
pub enum PeerActivity<T> {
    /// The initiator has neither sent nor received a message.
    Idle,
    /// The first message was sent, and the timer is running.
    Waiting(Pin<Box<T>>),
    /// No extra FPDU is needed any more: the connection is an acceptor's, the peer has sent a message, or the extra
    /// FPDU was already requested.
    Done,
}

impl<T: Future<Output = ()>> PeerActivity<T> {
    /// Creates the state of a new connection. An acceptor needs no timer because it does not send first.
    #[must_use]
    pub fn new(initiator: bool) -> Self {
        if initiator { Self::Idle } else { Self::Done }
    }

    /// Returns `true` if the extra FPDU must be sent now.
    ///
    /// `sent` is `true` if a message has been sent on this connection, and `heard` is `true` if one has been received.
    /// `sleep` starts a timer.
    pub fn poll(&mut self, cx: &mut Context<'_>, sent: bool, heard: bool, sleep: fn(Duration) -> T) -> bool {
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
    use std::{
        future::{Ready, ready},
        task::{Poll, Waker},
    };

    use super::*;

    /// A timer that ends when it is polled for the second time.
    struct SecondPoll(bool);

    impl Future for SecondPoll {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    fn second_poll(time: Duration) -> SecondPoll {
        assert_eq!(time, SILENCE);
        SecondPoll(false)
    }

    #[test]
    fn once_and_only_after_silence() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut silence = PeerActivity::new(true);
        for _ in 0..3 {
            assert!(!silence.poll(cx, false, false, second_poll), "no message was sent");
        }
        assert!(!silence.poll(cx, true, false, second_poll), "the timer has not ended");
        assert!(silence.poll(cx, true, false, second_poll));
        for _ in 0..3 {
            assert!(!silence.poll(cx, true, false, second_poll), "requested a second time");
        }
    }

    #[test]
    fn never_if_the_peer_was_heard() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut answered = PeerActivity::new(true);
        assert!(!answered.poll(cx, true, false, second_poll));
        assert!(!answered.poll(cx, true, true, second_poll));
        assert!(!answered.poll(cx, true, false, second_poll));
        let sleep: fn(Duration) -> Ready<()> = |_| ready(());
        assert!(!PeerActivity::new(false).poll(cx, true, false, sleep), "an acceptor does not send first");
    }
}
