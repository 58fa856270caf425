//! A connected queue pair: an [`Endpoint`] on its TCP socket, with time limits for closing, the workaround for an
//! unnoticed first message ([`PeerActivity`]), and busy polling.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

#[cfg(test)]
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::{
    endpoint::{Endpoint, IoProgress, NegotiatedParams},
    stream::{Link, SetupStream},
};
use crate::provider::{
    Access, Completion, DisconnectReason, PeerActivity, QueuePair, Region, RegisterError, RegisterableMemory,
    WorkRequest,
};

/// The time without progress after which a closing connection is aborted.
const LINGER: Duration = Duration::from_secs(2);
/// The time after which a closing connection is aborted despite progress. It bounds the wait for a peer that transfers
/// single bytes at long intervals. The memory of RDMA Reads and Writes in flight is not returned before the connection
/// ends.
const LONGEST: Duration = Duration::from_secs(10);

/// A queue pair of the iWARP provider.
///
/// The queue pair belongs to the tokio runtime in which it was set up. Dropping it closes the TCP connection at once,
/// without sending posted requests.
pub struct IwarpQueuePair {
    endpoint: Endpoint,
    link: Option<Link>,
    /// The timer of [`LINGER`], which runs while the connection is closing.
    limit: Option<Pin<Box<Sleep>>>,
    /// The time at which the closing connection is aborted despite progress.
    ends: Option<Instant>,
    /// The endpoint's progress when it was last checked.
    progress: u64,
    silence: PeerActivity<Sleep>,
    /// `true` if the last poll has registered its waker for all possible events, and since then no request was posted
    /// and `disconnect` was not called.
    is_settled: bool,
    /// The time after the last activity during which the socket is polled without waiting. Zero disables busy polling.
    busy_poll: Duration,
    /// The time of the last activity. This field and `moved`, the number of bytes moved until then, are only kept for
    /// busy polling.
    last_active: Instant,
    moved: u64,
}

impl IwarpQueuePair {
    pub(super) fn new(stream: SetupStream, agreement: NegotiatedParams, busy_poll: Duration) -> Self {
        let silence = PeerActivity::new(agreement.initiator);
        Self {
            endpoint: Endpoint::new(agreement),
            link: Some(stream.into_link()),
            limit: None,
            ends: None,
            progress: 0,
            silence,
            is_settled: false,
            busy_poll,
            last_active: Instant::now(),
            moved: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &TcpStream {
        match self.link.as_ref().unwrap() {
            Link::Tcp(socket) => socket.stream(),
            #[cfg(feature = "simulation")]
            Link::Memory(_) => panic!("not a socket"),
        }
    }

    /// Returns `true` if the connection is fully open, and was set up or moved bytes within the last `busy_poll`.
    #[inline(never)]
    fn is_recently_active(&self) -> bool {
        self.endpoint.is_fully_open() && self.last_active.elapsed() < self.busy_poll
    }

    /// Makes the socket read without a readiness event while the connection is busy polling, and wait for one
    /// otherwise.
    fn begin_busy_poll(&mut self) {
        let is_busy_polling = self.is_busy_polling();
        if let Some(link) = &mut self.link {
            link.set_reads_unprompted(is_busy_polling);
        }
    }

    /// Records activity, which extends busy polling.
    fn end_busy_poll(&mut self) {
        let moved = self.endpoint.received.wrapping_add(self.endpoint.output.written());
        if moved != self.moved {
            (self.moved, self.last_active) = (moved, Instant::now());
        }
    }

    pub(super) fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Aborts a closing connection if it takes too long, and drops the socket of a closed one.
    #[cold]
    fn poll_end(&mut self, cx: &mut Context<'_>) {
        if self.endpoint.is_closing() {
            self.poll_limit(cx);
        }
        if self.endpoint.is_closed() {
            (self.link, self.limit) = (None, None);
        }
    }

    /// Aborts the connection if closing takes too long.
    fn poll_limit(&mut self, cx: &mut Context<'_>) {
        let now = Instant::now();
        let ends = *self.ends.get_or_insert(now + LONGEST);
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let progress = self.endpoint.progress();
        if progress != self.progress {
            self.progress = progress;
            limit.as_mut().reset(ends.min(now + LINGER));
        }
        if limit.as_mut().poll(cx).is_ready() {
            self.endpoint.finish(DisconnectReason::Local);
        }
    }
}

impl QueuePair for IwarpQueuePair {
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        self.endpoint.register(memory, access)
    }

    fn is_open(&self) -> bool {
        self.endpoint.is_fully_open()
    }

    fn post(&mut self, request: WorkRequest) {
        self.is_settled = false;
        self.endpoint.post(request);
    }

    fn post_receives(&mut self, count: usize) {
        self.endpoint.receives.post(count);
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        self.endpoint.seek_input();
        self.poll_requests(cx, completions)
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        let mut io = IoProgress::Idle;
        if !self.busy_poll.is_zero() {
            self.begin_busy_poll();
        }
        if let Some(link) = &mut self.link {
            io = self.endpoint.poll_io(cx, link);
            if self.silence.poll(cx, self.endpoint.has_sent(), self.endpoint.has_received(), sleep) {
                self.endpoint.send_extra_fpdu();
                io = IoProgress::Busy;
            }
            if !self.endpoint.is_fully_open() {
                self.poll_end(cx);
            }
        }
        if !self.busy_poll.is_zero() {
            self.end_busy_poll();
        }
        self.is_settled = io == IoProgress::Idle && self.endpoint.is_fully_open();
        let done = self.endpoint.completions();
        if !done.is_empty() {
            if completions.is_empty() {
                std::mem::swap(completions, done);
            } else {
                completions.append(done);
            }
            return Poll::Ready(());
        }
        if io == IoProgress::Busy {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn needs_poll(&self) -> bool {
        !self.is_settled
    }

    fn is_busy_polling(&self) -> bool {
        !self.busy_poll.is_zero() && self.is_recently_active()
    }

    fn disconnect(&mut self) {
        self.is_settled = false;
        self.endpoint.disconnect();
    }

    fn max_reads(&self) -> u32 {
        self.endpoint.ord.try_into().unwrap_or(u32::MAX)
    }

    fn remote_invalidation(&self) -> bool {
        true
    }

    fn bytes_sent(&self) -> u64 {
        self.endpoint.output.written()
    }

    fn bytes_received(&self) -> u64 {
        self.endpoint.received
    }

    fn copied_payload_bytes(&self) -> u64 {
        self.endpoint.copied_payload
    }
}

impl fmt::Debug for IwarpQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IwarpQueuePair").field("link", &self.link).finish_non_exhaustive()
    }
}
