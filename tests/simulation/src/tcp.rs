//! The URL scheme `sim-tcp`: byte streams with limited buffers, in which bytes arrive in pieces of any size.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use rpcrdma::transport::{Scheme, SchemeError, StreamListener, StreamProvider, UrlOption, UrlOptions};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{
        Mutex as AsyncMutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

use crate::{
    network::{Direction, Host, Medium, Network},
    rdma,
};

/// The sender of new connections to a listening port.
pub(crate) type TcpListening = UnboundedSender<(SimulatedStream, SocketAddr)>;

/// One direction of a connection.
#[derive(Default)]
struct Flow {
    /// Bytes that have been written and have not arrived.
    sent: VecDeque<u8>,
    /// Bytes that have arrived and have not been read.
    arrived: VecDeque<u8>,
    /// `true` if the writer has closed its side.
    is_shut: bool,
    /// `true` if the reader knows that the writer has closed its side.
    has_ended: bool,
    is_stalled: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Flow {
    /// Returns `true` if bytes, or the end of the stream, can arrive at the reader.
    fn can_move(&self) -> bool {
        !self.is_stalled && (!self.sent.is_empty() || (self.is_shut && !self.has_ended))
    }
}

struct LinkState {
    /// The flows, indexed by [`Direction`].
    flows: [Flow; 2],
    /// Maximum number of bytes of one direction that have not been read.
    capacity: usize,
    isolated: bool,
    /// `true` if the connection was reset, for the client and for the server.
    reset: [bool; 2],
    /// `true` if the stream was dropped, for the client and for the server.
    dropped: [bool; 2],
    carrier: Option<Waker>,
}

/// A simulated TCP connection.
pub struct TcpLink(Mutex<LinkState>);

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl LinkState {
    /// Resets the connection for one end: 0 for the client, 1 for the server.
    fn reset(&mut self, end: usize) {
        self.reset[end] = true;
        wake(&mut self.flows[end].writer);
        wake(&mut self.flows[1 - end].reader);
        wake(&mut self.carrier);
    }

    /// Returns the index of a direction in which bytes, or the end of the stream, can arrive.
    fn movable(&self) -> Option<usize> {
        if self.isolated || self.reset.iter().all(|reset| *reset) {
            return None;
        }
        (0..2).find(|index| self.flows[*index].can_move())
    }

    fn is_in_use(&self) -> bool {
        (0..2).any(|end| !self.reset[end] && !self.dropped[end])
    }
}

impl TcpLink {
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cut(&self) {
        let mut state = self.lock();
        (0..2).for_each(|end| state.reset(end));
    }

    pub(crate) fn isolate(&self, isolated: bool) {
        let mut state = self.lock();
        state.isolated = isolated;
        if !isolated {
            for end in 0..2 {
                if state.dropped[end] || state.reset[end] {
                    state.reset(1 - end);
                }
            }
        }
        wake(&mut state.carrier);
    }

    pub(crate) fn stall(&self, direction: Direction, stalled: bool) {
        let mut state = self.lock();
        state.flows[direction as usize].is_stalled = stalled;
        wake(&mut state.carrier);
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.lock().is_in_use()
    }

    /// Waits until bytes, or the end of a stream, can arrive in a direction. Returns `false` when the connection has
    /// ended for both ends.
    fn poll_movable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.lock();
        if !state.is_in_use() {
            return Poll::Ready(false);
        }
        if state.movable().is_some() {
            return Poll::Ready(true);
        }
        state.carrier = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Moves bytes, or the end of the stream, in one direction. `share`/256 of the sent bytes arrive together, but at
    /// least one. If both directions can move, `prefers_other` selects the direction from the server to the client. If
    /// bytes cannot arrive because the reader has dropped its stream, resets the connection for the writer.
    fn step(&self, share: u64, prefers_other: bool) {
        let mut state = self.lock();
        let Some(first) = state.movable() else { return };
        let other = 1 - first;
        let index = if prefers_other && state.flows[other].can_move() { other } else { first };
        if state.dropped[1 - index] && !state.flows[index].sent.is_empty() {
            // Nobody reads these bytes.
            return state.reset(index);
        }
        let flow = &mut state.flows[index];
        if flow.sent.is_empty() {
            flow.has_ended = true;
        } else {
            let len = (flow.sent.len() as u64 * share / 256).max(1) as usize;
            let moved: Vec<u8> = flow.sent.drain(..len).collect();
            flow.arrived.extend(moved);
        }
        wake(&mut flow.reader);
        wake(&mut flow.writer);
    }
}

/// An end of a simulated TCP connection.
pub(crate) struct SimulatedStream {
    link: Arc<TcpLink>,
    /// 0 for the client, 1 for the server. Also the index of the direction in which this end writes.
    end: usize,
}

impl AsyncRead for SimulatedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.link.lock();
        if state.reset[self.end] {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let flow = &mut state.flows[1 - self.end];
        if flow.arrived.is_empty() && !flow.has_ended {
            flow.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (front, _) = flow.arrived.as_slices();
        let len = front.len().min(buf.remaining());
        buf.put_slice(&front[..len]);
        flow.arrived.drain(..len);
        wake(&mut flow.writer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.link.lock();
        if state.reset[self.end] {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let capacity = state.capacity;
        let flow = &mut state.flows[self.end];
        let room = capacity.saturating_sub(flow.sent.len() + flow.arrived.len());
        if room == 0 {
            flow.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let len = room.min(bytes.len());
        flow.sent.extend(&bytes[..len]);
        wake(&mut state.carrier);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.link.lock();
        state.flows[self.end].is_shut = true;
        wake(&mut state.carrier);
        Poll::Ready(Ok(()))
    }
}

/// Dropping an end closes it. The other end receives the bytes that were sent before. If the dropped end has not read
/// everything, the connection is reset instead. The other end notices neither while the connection is isolated.
impl Drop for SimulatedStream {
    fn drop(&mut self) {
        let mut state = self.link.lock();
        state.dropped[self.end] = true;
        let has_unread = {
            let flow = &state.flows[1 - self.end];
            !flow.arrived.is_empty() || !flow.sent.is_empty()
        };
        if !state.isolated {
            if has_unread {
                state.reset(1 - self.end);
            }
            state.flows[self.end].is_shut = true;
        }
        // Nobody reads what arrives here.
        state.flows[1 - self.end].arrived.clear();
        wake(&mut state.carrier);
    }
}

struct SimulatedTcp;

impl StreamProvider for SimulatedTcp {
    type Stream = SimulatedStream;
    type Listener = SimulatedListener;

    fn options(&self) -> &'static [UrlOption] {
        &[rdma::FROM]
    }

    async fn connect(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<SimulatedStream> {
        let network = rdma::network()?;
        let (client, server) = (rdma::client(options), Network::host(addr));
        if !network.request(client, server).await {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let capacity = network.choices().one_of(&[4096, 65536, 1 << 20]);
        let state = LinkState {
            flows: Default::default(),
            capacity,
            isolated: false,
            reset: [false; 2],
            dropped: [false; 2],
            carrier: None,
        };
        let link = Arc::new(TcpLink(Mutex::new(state)));
        let [near, far] = [0, 1].map(|end| SimulatedStream { link: Arc::clone(&link), end });
        let listening = network.with_tcp(|ports| ports.get(&addr.port()).cloned());
        let number = network.add(client, server, Medium::Tcp(Arc::clone(&link))).number;
        let from = SocketAddr::new(Network::ip(client), 40_000 + (number % 20_000) as u16);
        let is_accepted = listening.is_some_and(|listening| listening.send((far, from)).is_ok());
        if !is_accepted {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        tokio::spawn(carry(network.clone(), client, server, link));
        network.delay(client, server).await;
        Ok(near)
    }

    fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<SimulatedListener> {
        rdma::network()?.with_tcp(|ports| {
            if ports.get(&addr.port()).is_some_and(|listening| !listening.is_closed()) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let (sender, receiver) = unbounded_channel();
            ports.insert(addr.port(), sender);
            Ok(SimulatedListener { addr, incoming: AsyncMutex::new(receiver) })
        })
    }
}

/// Carries the bytes that both ends send.
async fn carry(network: Network, client: Host, server: Host, link: Arc<TcpLink>) {
    while poll_fn(|cx| link.poll_movable(cx)).await {
        network.delay(client, server).await;
        if network.is_cut(client, server) {
            link.cut();
            continue;
        }
        let choices = network.choices();
        let share = if choices.chance(70) { 256 } else { choices.within(1..=256) };
        link.step(share, choices.chance(50));
    }
}

/// A listener of simulated TCP connections.
pub(crate) struct SimulatedListener {
    addr: SocketAddr,
    incoming: AsyncMutex<UnboundedReceiver<(SimulatedStream, SocketAddr)>>,
}

impl StreamListener for SimulatedListener {
    type Stream = SimulatedStream;

    async fn accept(&self) -> io::Result<(SimulatedStream, SocketAddr)> {
        self.incoming.lock().await.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Returns the URL scheme `sim-tcp`. The first call registers it in this process.
///
/// # Errors
/// Returns the error of the registration.
pub(crate) fn scheme() -> Result<Scheme, SchemeError> {
    static SCHEME: LazyLock<Result<Scheme, SchemeError>> =
        LazyLock::new(|| Scheme::register_stream("sim-tcp", SimulatedTcp));
    SCHEME.clone()
}
