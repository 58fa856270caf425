//! A proxy of TCP connections, which can delay, cut and corrupt them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Maximum number of connections in the backlog of a proxy's listener.
const BACKLOG: u32 = 1024;
/// Maximum number of pieces of data that a proxy holds for each direction of a connection.
const PIECES: usize = 1024;
/// Number of bytes at the beginning of each direction of a connection that are never corrupted. The set-up of an iWARP
/// connection (MPA requests and replies, RFC 5044 §7.1) has no checksum, and negotiates the use of CRCs.
const UNCORRUPTED: u64 = 4096;

/// The route of a proxy's connections to the server, with faults that can change while connections are open.
#[derive(Debug)]
pub struct Link {
    /// Address of the server. `None` while the server is down.
    to: Mutex<Option<SocketAddr>>,
    /// Local address of the connections to the server.
    local: IpAddr,
    delay_micros: AtomicU64,
    to_flip: AtomicU64,
    flipped: AtomicU64,
    open: AtomicU64,
    cut: Notify,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            to: Mutex::default(),
            local: Ipv4Addr::LOCALHOST.into(),
            delay_micros: AtomicU64::default(),
            to_flip: AtomicU64::default(),
            flipped: AtomicU64::default(),
            open: AtomicU64::default(),
            cut: Notify::default(),
        }
    }
}

impl Link {
    /// Creates a link without a server and without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the local address of the connections to the server. Default: 127.0.0.1.
    #[must_use]
    pub fn with_local(self, local: IpAddr) -> Self {
        Self { local, ..self }
    }

    /// Sets the address of the server for new connections. With `None`, the proxy closes new connections.
    pub fn lead_to(&self, server: Option<SocketAddr>) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Sets the delay of data in each direction. It applies to data that arrives from now on.
    pub fn set_delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.delay_micros.store(micros, Ordering::Relaxed);
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_micros.load(Ordering::Relaxed))
    }

    /// Closes all connections. Returns their number.
    pub fn cut(&self) -> u64 {
        let open = self.open.load(Ordering::Relaxed);
        self.cut.notify_waiters();
        open
    }

    /// Flips a bit in each of the next `count` pieces of data, except in the first 4 KiB of each direction of a
    /// connection. Replaces the count of an earlier call.
    pub fn corrupt(&self, count: u64) {
        self.to_flip.store(count, Ordering::Relaxed);
    }

    /// Returns the number of bits that were flipped.
    pub fn flipped(&self) -> u64 {
        self.flipped.load(Ordering::Relaxed)
    }

    /// Flips a bit of a piece of data, if flips that [`corrupt`](Self::corrupt) requested are left.
    fn flip_in(&self, piece: &mut [u8]) {
        let next = |left: u64| left.checked_sub(1);
        if !piece.is_empty() && self.to_flip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            let at = fastrand::usize(..piece.len());
            piece[at] ^= 1 << fastrand::u8(..8);
            self.flipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connects to the server and forwards data in both directions, until one side closes its connection or the link is
    /// cut.
    async fn forward(&self, client: TcpStream) -> io::Result<()> {
        let to = *self.to.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = to else { return Ok(()) };
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.local, 0).into())?;
        let server = socket.connect(to).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let _open = OpenConnection::new(&self.open);
        // A connection that one end has closed is closed at the other end too, and not half-closed.
        tokio::select! {
            ended = self.copy(from_client, to_server) => ended,
            ended = self.copy(from_server, to_client) => ended,
            () = self.cut.notified() => Ok(()),
        }
    }

    /// Copies data in one direction. Each piece waits for the delay that was set when it arrived.
    async fn copy(&self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
        let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
        let read = async move {
            let mut passed = 0;
            loop {
                let mut piece = Vec::with_capacity(16 << 10);
                if from.read_buf(&mut piece).await? == 0 {
                    return Ok(());
                }
                if passed >= UNCORRUPTED {
                    self.flip_in(&mut piece);
                }
                passed += piece.len() as u64;
                if sender.send((Instant::now() + self.delay(), piece)).await.is_err() {
                    return Ok(());
                }
            }
        };
        let write = async move {
            while let Some((due, piece)) = pieces.recv().await {
                sleep_until(due).await;
                to.write_all(&piece).await?;
            }
            Ok(())
        };
        tokio::try_join!(read, write).map(|_| ())
    }
}

/// A guard that counts an open connection.
struct OpenConnection<'a>(&'a AtomicU64);

impl<'a> OpenConnection<'a> {
    fn new(open: &'a AtomicU64) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A proxy on a free port of 127.0.0.1.
#[derive(Debug)]
pub struct Proxy {
    listener: TcpListener,
    link: Arc<Link>,
}

impl Proxy {
    /// Binds a proxy to a free port of 127.0.0.1. The proxy connects to the server of `link`.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub fn bind(link: Arc<Link>) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { listener: socket.listen(BACKLOG)?, link })
    }

    /// Returns the address that clients connect to.
    ///
    /// # Errors
    /// Fails if the system does not report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Forwards connections, and calls `accepted` for each. Closes them when the future is dropped.
    ///
    /// # Errors
    /// Fails if the system accepts no more connections.
    pub async fn serve(self, accepted: impl Fn()) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                client = self.listener.accept() => {
                    let (client, _) = client?;
                    accepted();
                    let link = Arc::clone(&self.link);
                    connections.spawn(async move {
                        // A client whose server cannot be reached sees a connection that is accepted and then closed.
                        let _ = link.forward(client).await;
                    });
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `data` over a link, and returns what arrives.
    async fn sent_over(link: Arc<Link>, data: Vec<u8>) -> Vec<u8> {
        let (mut client, proxy) = tokio::io::duplex(64);
        let (other, mut server) = tokio::io::duplex(64);
        let copying = tokio::spawn(async move { link.copy(proxy, other).await });
        let sending = tokio::spawn(async move { client.write_all(&data).await });
        let mut arrived = Vec::new();
        server.read_to_end(&mut arrived).await.unwrap();
        copying.await.unwrap().unwrap();
        sending.await.unwrap().unwrap();
        arrived
    }

    #[tokio::test]
    async fn data_is_copied_after_the_delay() {
        let link = Link::new();
        link.set_delay(Duration::from_millis(50));
        let begun = Instant::now();
        assert_eq!(sent_over(Arc::new(link), b"hello".to_vec()).await, b"hello");
        assert!(begun.elapsed() >= Duration::from_millis(50));
    }

    #[tokio::test]
    async fn bits_are_flipped_after_the_beginning() {
        let (link, data) = (Arc::new(Link::new()), vec![7; 10_000]);
        link.corrupt(3);
        let arrived = sent_over(Arc::clone(&link), data.clone()).await;
        let differing = arrived.iter().zip(&data).map(|(is, was)| (is ^ was).count_ones()).sum::<u32>();
        assert_eq!((arrived.len(), differing, link.flipped()), (data.len(), 3, 3));
        assert_eq!(arrived[..4096], data[..4096]);
        assert_eq!(sent_over(Arc::clone(&link), data.clone()).await, data, "no more than asked for");
    }

    #[tokio::test]
    async fn connections_are_cut_and_lead_to_another_server() {
        let link = Arc::new(Link::new());
        let proxy = Proxy::bind(Arc::clone(&link)).unwrap();
        let address = proxy.address().unwrap();
        let serving = tokio::spawn(proxy.serve(|| ()));
        let mut refused = TcpStream::connect(address).await.unwrap();
        assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0, "there is no server");
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        link.lead_to(Some(server.local_addr().unwrap()));
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        accepted.read_exact(&mut [0]).await.unwrap();
        assert_eq!(link.cut(), 1);
        assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
        assert_eq!(accepted.read(&mut [0]).await.unwrap_or(0), 0);
        serving.abort();
    }
}
