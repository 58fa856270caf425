//! Wrappers of the types of a provider that count the Sends, the RDMA operations and the memory registrations of its
//! queue pairs.

use std::{
    io,
    net::SocketAddr,
    ops::Sub,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::provider::{
    Access, Completion, ConnectRequest, Connected, Connector, Incoming, Listener, QueuePair, Region, RegisterError,
    RegisterableMemory, SetupError, SetupParams, WorkRequest,
};

/// Counters of Sends and RDMA operations, of the bytes that they send and write, and of memory registrations, for
/// client and server together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sends: AtomicU64,
    sent: AtomicU64,
    writes: AtomicU64,
    written: AtomicU64,
    reads: AtomicU64,
    registrations: AtomicU64,
}

/// A snapshot of a [`Tally`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of Sends.
    pub(crate) sends: u64,
    /// Number of bytes sent by Send.
    pub(crate) sent: u64,
    /// Number of RDMA Writes.
    pub(crate) writes: u64,
    /// Number of bytes written by RDMA Write.
    pub(crate) written: u64,
    pub(crate) reads: u64,
    pub(crate) registrations: u64,
}

impl Tally {
    pub(crate) fn now(&self) -> Counts {
        Counts {
            sends: self.sends.load(Relaxed),
            sent: self.sent.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written: self.written.load(Relaxed),
            reads: self.reads.load(Relaxed),
            registrations: self.registrations.load(Relaxed),
        }
    }

    fn count(&self, request: &WorkRequest) {
        match request {
            WorkRequest::Send { message, .. } => {
                self.sends.fetch_add(1, Relaxed);
                self.sent.fetch_add(message.len() as u64, Relaxed);
            }
            WorkRequest::Write { source, .. } => {
                self.writes.fetch_add(1, Relaxed);
                self.written.fetch_add(source.len() as u64, Relaxed);
            }
            WorkRequest::Read { .. } => {
                self.reads.fetch_add(1, Relaxed);
            }
            WorkRequest::Invalidate { .. } => {}
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            sends: self.sends - before.sends,
            sent: self.sent - before.sent,
            writes: self.writes - before.writes,
            written: self.written - before.written,
            reads: self.reads - before.reads,
            registrations: self.registrations - before.registrations,
        }
    }
}

/// A wrapper of a provider's type that counts Sends, RDMA operations and memory registrations in a shared [`Tally`].
pub(crate) struct Counting<T>(pub(crate) T, pub(crate) Arc<Tally>);

impl<Q: QueuePair> QueuePair for Counting<Q> {
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        self.1.registrations.fetch_add(1, Relaxed);
        self.0.register(memory, access)
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn post(&mut self, request: WorkRequest) {
        self.1.count(&request);
        self.0.post(request);
    }

    fn post_receives(&mut self, count: usize) {
        self.0.post_receives(count);
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        self.0.poll(cx, completions)
    }

    fn disconnect(&mut self) {
        self.0.disconnect();
    }

    fn max_reads(&self) -> u32 {
        self.0.max_reads()
    }

    fn max_transfer(&self) -> u32 {
        self.0.max_transfer()
    }

    fn remote_invalidation(&self) -> bool {
        self.0.remote_invalidation()
    }

    fn copied_payload_bytes(&self) -> u64 {
        self.0.copied_payload_bytes()
    }
}

fn counted<Q: QueuePair>(connected: Connected<Q>, tally: &Arc<Tally>) -> Connected<Counting<Q>> {
    let Connected { queue_pair, private_data, local_addr, peer_addr } = connected;
    Connected { queue_pair: Counting(queue_pair, Arc::clone(tally)), private_data, local_addr, peer_addr }
}

impl<C: Connector> Connector for Counting<C> {
    type QueuePair = Counting<C::QueuePair>;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        self.0.connect(peer, params).await.map(|connected| counted(connected, &self.1))
    }
}

impl<L: Listener> Listener for Counting<L> {
    type QueuePair = Counting<L::QueuePair>;
    type IncomingConnection = Counting<L::IncomingConnection>;

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    async fn accept(&self) -> io::Result<Self::IncomingConnection> {
        Ok(Counting(self.0.accept().await?, Arc::clone(&self.1)))
    }
}

impl<I: Incoming> Incoming for Counting<I> {
    type QueuePair = Counting<I::QueuePair>;
    type Request = Counting<I::Request>;

    fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    async fn request(self, timeout: Duration) -> Result<Self::Request, SetupError> {
        Ok(Counting(self.0.request(timeout).await?, self.1))
    }
}

impl<R: ConnectRequest> ConnectRequest for Counting<R> {
    type QueuePair = Counting<R::QueuePair>;

    fn private_data(&self) -> &[u8] {
        self.0.private_data()
    }

    async fn accept(self, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        self.0.accept(params).await.map(|connected| counted(connected, &self.1))
    }

    async fn reject(self, private_data: Bytes) -> Result<(), SetupError> {
        self.0.reject(private_data).await
    }
}
