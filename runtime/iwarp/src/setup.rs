//! Connection set-up and its negotiation (RFC 5044 §7.1, RFC 6581).

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::{Instant, timeout, timeout_at},
};

#[cfg(feature = "simulation")]
use super::memory_stream::{Dialer, MemoryStream};
use super::{
    FpduSize, IwarpConfig, IwarpQueuePair, MAX_PRIVATE_DATA,
    endpoint::NegotiatedParams,
    mpa::{
        fpdu,
        frames::{EnhancedData, FrameError, FrameHeader, FrameKind, HEADER, MpaFrame, UNNEGOTIATED},
    },
    socket,
    stream::SetupStream,
    terminate::TerminateCode,
};
use crate::provider::{
    ConnectRequest, Connected, Connector, DisconnectReason, Incoming, Listener, QueuePair, SetupError, SetupParams,
};

/// Limit on local RDMA Reads in flight if the peer's frame has no enhanced data, and so does not announce how many the
/// peer serves. Every peer that serves RDMA Reads serves at least one.
const UNNEGOTIATED_READS: u32 = 1;

/// A connector for iWARP over TCP.
#[derive(Debug, Clone, Default)]
pub struct IwarpConnector {
    config: IwarpConfig,
    /// The function that creates byte streams in memory, or `None` to make TCP connections.
    #[cfg(feature = "simulation")]
    dialer: Option<Dialer>,
}

impl IwarpConnector {
    /// Creates a connector with this configuration.
    #[must_use]
    pub fn new(config: IwarpConfig) -> Self {
        Self {
            config,
            #[cfg(feature = "simulation")]
            dialer: None,
        }
    }

    /// Creates a connector whose connections are byte streams in memory, which `dial` creates.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn over<F>(config: IwarpConfig, dial: impl Fn(SocketAddr) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<MemoryStream>> + Send + 'static,
    {
        Self { config, dialer: Some(Dialer::new(dial)) }
    }

    /// Creates the TCP connection, or the stream in memory.
    async fn dial(&self, peer: SocketAddr) -> io::Result<SetupStream> {
        #[cfg(feature = "simulation")]
        if let Some(dialer) = &self.dialer {
            return dialer.dial(peer).await.map(SetupStream::Memory);
        }
        let stream = socket::connect_in_class(peer, self.config.local, self.config.traffic_class).await?;
        socket::prepare(&stream)?;
        Ok(SetupStream::Tcp(stream))
    }

    /// Attempts connection set-up once, as initiator, with an MPA request of this revision.
    async fn attempt(
        &self,
        peer: SocketAddr,
        params: &SetupParams,
        revision: u8,
        deadline: Instant,
    ) -> Result<Connected<IwarpQueuePair>, SetupFailure> {
        let mut stream = timeout_at(deadline, self.dial(peer)).await.map_err(|_| SetupFailure::TimedOut)??;
        let request = MpaFrame {
            kind: FrameKind::Request,
            markers: false,
            crc: self.config.crc,
            reject: false,
            revision,
            // In the client-server model the initiator always sends first, so it requests no ready-to-receive
            // indication.
            enhanced: (revision >= 2).then(|| EnhancedData {
                ird: depth(params.responder_resources),
                ord: depth(params.initiator_depth),
                ..EnhancedData::default()
            }),
        };
        let bytes = request.encode(&params.private_data).ok_or_else(private_data_too_long)?;
        let mut reader = FrameReader::new(FrameKind::Reply);
        let exchange = async {
            stream.write_all(&bytes).await?;
            reader.read(&mut stream).await
        };
        let (reply, private_data) = match timeout_at(deadline, exchange).await {
            Ok(result) => result?,
            Err(_) if reader.is_empty() => return Err(SetupFailure::Silent),
            Err(_) => return Err(SetupFailure::TimedOut),
        };
        if reply.reject {
            return Err(SetupError::Rejected { private_data }.into());
        }
        let (ird, ord) = self.read_depths(&request, &reply, params)?;
        let agreement = NegotiatedParams {
            // RFC 5044 §4.4, §7.1.1: CRCs are used if either side requests them.
            use_crc: request.crc || reply.crc,
            markers: reply.markers,
            max_ulpdu: max_ulpdu(self.config.fpdu_size, &stream, reply.markers),
            initiator: true,
            ird,
            ord,
            receive_count: params.receive_count,
            receive_size: params.receive_size,
            pool: params.pool.clone(),
        };
        let (local_addr, peer_addr) = (stream.local_addr()?, stream.peer_addr()?);
        let mut queue_pair = IwarpQueuePair::new(stream, agreement, self.config.busy_poll);
        // RFC 6581 §9.1: the initiator sends a Terminate if the reply requires a larger IRD than it has.
        if let Some(asked) = reply.enhanced.map(|e| e.ord).filter(|ord| *ord != UNNEGOTIATED && u32::from(*ord) > ird) {
            let detail = format!("requires an IRD of {asked}, but {ird} was offered");
            queue_pair.endpoint().end_with(TerminateCode::INSUFFICIENT_IRD, None, DisconnectReason::Local);
            let _ = timeout_at(deadline, until_closed(&mut queue_pair)).await;
            return Err(SetupFailure::Protocol(detail));
        }
        Ok(Connected { queue_pair, private_data, local_addr, peer_addr })
    }

    /// Returns the local IRD and ORD that result from the reply (RFC 6581 §9.1). Fails if the request is enhanced, and
    /// the reply is not enhanced or selects peer-to-peer mode.
    fn read_depths(
        &self,
        request: &MpaFrame,
        reply: &MpaFrame,
        params: &SetupParams,
    ) -> Result<(u32, u32), SetupFailure> {
        match (request.enhanced, reply.enhanced) {
            (Some(mine), Some(theirs)) => {
                // RFC 6581 §9.2: A is 0 in the reply if it is 0 in the request.
                if theirs.peer_to_peer {
                    return Err(SetupFailure::Protocol(
                        "replied to a client-server request with peer-to-peer mode".into(),
                    ));
                }
                // RFC 6581 §9.1: at most the responder's IRD, or unchanged if the IRD is not negotiated.
                let ord = if theirs.ird == UNNEGOTIATED { mine.ord } else { mine.ord.min(theirs.ird) };
                Ok((mine.ird.into(), ord.into()))
            }
            // RFC 6581 §10: the reply to an enhanced request is enhanced, or absent.
            (Some(_), None) if reply.revision == 1 => Err(SetupFailure::OldRevision),
            (Some(_), None) => {
                Err(SetupFailure::Protocol("replied to an enhanced MPA request without enhanced data".into()))
            }
            (None, _) => Ok((params.responder_resources, params.initiator_depth.min(UNNEGOTIATED_READS))),
        }
    }
}

impl Connector for IwarpConnector {
    type QueuePair = IwarpQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        // Longer timeouts could overflow `Instant`.
        const LONGEST: Duration = Duration::from_secs(1 << 30);
        let deadline = Instant::now() + params.timeout.min(LONGEST);
        let mut result = self.attempt(peer, &params, 2, deadline).await;
        // RFC 6581 §10: a responder of revision 1 closes the connection on an enhanced request. The initiator may then
        // retry with an unenhanced one.
        let tried = match &result {
            Err(SetupFailure::Closed | SetupFailure::OldRevision) if self.config.fall_back_to_revision_1 => {
                tracing::debug!(%peer, "peer does not support MPA revision 2, trying revision 1");
                result = self.attempt(peer, &params, 1, deadline).await;
                "revisions 2 and 1"
            }
            _ => "revision 2",
        };
        result.map_err(|trouble| trouble.into_error(params.timeout, tried))
    }
}

/// A listener for iWARP over TCP.
#[derive(Debug)]
pub struct IwarpListener {
    listener: TcpListener,
    local_addr: SocketAddr,
    config: IwarpConfig,
}

impl IwarpListener {
    /// Listens on `addr`. Port 0 selects any free port.
    ///
    /// # Errors
    /// Returns the error of the operating system, for example if the address is in use or the traffic class cannot be
    /// set.
    pub async fn bind(addr: SocketAddr, config: IwarpConfig) -> io::Result<Self> {
        Self::from_tcp(socket::listen(addr, false)?, config)
    }

    /// Creates a listener from a TCP socket that is already listening.
    ///
    /// # Errors
    /// Returns the error of the operating system if the socket has no local address or its traffic class cannot be set.
    pub fn from_tcp(listener: TcpListener, config: IwarpConfig) -> io::Result<Self> {
        let local_addr = listener.local_addr()?;
        // For the packets before the connection is accepted.
        socket::set_traffic_class(SockRef::from(&listener), config.traffic_class)?;
        Ok(Self { listener, local_addr, config })
    }
}

impl Listener for IwarpListener {
    type QueuePair = IwarpQueuePair;
    type IncomingConnection = IwarpIncoming;

    async fn accept(&self) -> io::Result<Self::IncomingConnection> {
        let (stream, peer_addr) = self.listener.accept().await?;
        socket::prepare(&stream)?;
        socket::set_traffic_class(SockRef::from(&stream), self.config.traffic_class)?;
        Ok(IwarpIncoming { stream: SetupStream::Tcp(stream), peer_addr, config: self.config.clone() })
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

/// An accepted TCP connection whose MPA request has not been read yet.
#[derive(Debug)]
pub struct IwarpIncoming {
    stream: SetupStream,
    peer_addr: SocketAddr,
    config: IwarpConfig,
}

#[cfg(feature = "simulation")]
impl IwarpIncoming {
    /// Creates an incoming connection from a byte stream in memory instead of a TCP connection.
    #[must_use]
    pub fn over(stream: MemoryStream, config: IwarpConfig) -> Self {
        Self { peer_addr: stream.addrs()[1], stream: SetupStream::Memory(stream), config }
    }
}

impl Incoming for IwarpIncoming {
    type QueuePair = IwarpQueuePair;
    type Request = IwarpRequest;

    fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    fn move_to_current_runtime(self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.move_to_current_runtime()?, ..self })
    }

    async fn request(mut self, limit: Duration) -> Result<Self::Request, SetupError> {
        // RFC 5044 §7.1.2 rules 8 and 10: the wait for the request is bounded.
        let mut reader = FrameReader::new(FrameKind::Request);
        match timeout(limit, reader.read(&mut self.stream)).await {
            // RFC 5044 §8, §7.1.2 rule 2: an improper request closes the connection. Dropping the stream does that.
            Ok(result) => {
                let (frame, private_data) = result.map_err(|trouble| trouble.into_error(limit, "a request"))?;
                Ok(IwarpRequest { incoming: self, frame, private_data })
            }
            Err(_) => Err(SetupError::TimedOut(limit)),
        }
    }
}

/// An MPA request that has not been accepted or rejected yet.
#[derive(Debug)]
pub struct IwarpRequest {
    incoming: IwarpIncoming,
    frame: MpaFrame,
    private_data: Bytes,
}

impl IwarpRequest {
    /// Returns the reply, and the local IRD and ORD (RFC 6581 §9.1). The IRD limits the RDMA Reads of the peer (RFC
    /// 5040 §6.1, §8.1.1, RFC 5042 §6.4.3.3). A peer that requires CRCs gets them (RFC 5044 §4.4).
    fn reply(&self, reject: bool, responder_resources: u32, initiator_depth: u32) -> (MpaFrame, u32, u32) {
        let (mut ird, mut ord) = (responder_resources, initiator_depth.min(UNNEGOTIATED_READS));
        let enhanced = self.frame.enhanced.map(|theirs| {
            let (my_ird, mut my_ord) = (depth(responder_resources), depth(initiator_depth));
            if theirs.ird != UNNEGOTIATED {
                // RFC 6581 §9.1: the responder's ORD is at most the initiator's IRD.
                my_ord = my_ord.min(theirs.ird);
            }
            (ird, ord) = (my_ird.into(), my_ord.into());
            let (wants_write, wants_read) = (theirs.rtr_write, theirs.rtr_read && my_ird > 0);
            // RFC 6581 §9.2: the requested options that are supported, or all supported options if there are none.
            let neither = !wants_write && !wants_read;
            EnhancedData {
                // RFC 6581 §9.1: the reply repeats that a depth is not negotiated.
                ird: if theirs.ord == UNNEGOTIATED { UNNEGOTIATED } else { my_ird },
                ord: if theirs.ird == UNNEGOTIATED { UNNEGOTIATED } else { my_ord },
                peer_to_peer: theirs.peer_to_peer,
                rtr_send: false,
                rtr_write: wants_write || neither,
                rtr_read: wants_read || neither && my_ird > 0,
            }
        });
        let frame = MpaFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc: self.incoming.config.crc || self.frame.crc,
            reject,
            // RFC 6581 §6, §10: the reply has the revision of the request, and is enhanced if the request is.
            revision: self.frame.revision,
            enhanced,
        };
        (frame, ird, ord)
    }
}

impl ConnectRequest for IwarpRequest {
    type QueuePair = IwarpQueuePair;

    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    async fn accept(mut self, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        let (reply, ird, ord) = self.reply(false, params.responder_resources, params.initiator_depth);
        let bytes = reply.encode(&params.private_data).ok_or_else(private_data_too_long)?;
        let stream = &mut self.incoming.stream;
        timeout(params.timeout, stream.write_all(&bytes)).await.map_err(|_| SetupError::TimedOut(params.timeout))??;
        let markers = self.frame.markers;
        let agreement = NegotiatedParams {
            // RFC 5044 §4.4, §7.1.1: CRCs are used if either side requests them.
            use_crc: self.frame.crc || reply.crc,
            markers,
            max_ulpdu: max_ulpdu(self.incoming.config.fpdu_size, stream, markers),
            initiator: false,
            ird,
            ord,
            receive_count: params.receive_count,
            receive_size: params.receive_size,
            pool: params.pool,
        };
        let (local_addr, peer_addr) = (stream.local_addr()?, self.incoming.peer_addr);
        let busy_poll = self.incoming.config.busy_poll;
        let queue_pair = IwarpQueuePair::new(self.incoming.stream, agreement, busy_poll);
        Ok(Connected { queue_pair, private_data: self.private_data, local_addr, peer_addr })
    }

    async fn reject(mut self, private_data: Bytes) -> Result<(), SetupError> {
        const LIMIT: Duration = Duration::from_secs(5);
        let (reply, ..) = self.reply(true, 0, 0);
        let bytes = reply.encode(&private_data).ok_or_else(private_data_too_long)?;
        let stream = &mut self.incoming.stream;
        let send = async {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        };
        timeout(LIMIT, send).await.map_err(|_| SetupError::TimedOut(LIMIT))??;
        Ok(())
    }
}

/// Converts a number of RDMA Reads to the value of a 14-bit field. Clamps it to 0x3ffe, because 0x3fff means "not
/// negotiated" (RFC 6581 §9.1).
fn depth(reads: u32) -> u16 {
    u16::try_from(reads).unwrap_or(u16::MAX).min(UNNEGOTIATED - 1)
}

/// Returns the TCP segment size in bytes (RFC 5044 §5.1), or a typical one if the system does not report it.
fn emss(stream: &SetupStream) -> usize {
    const LIKELY: usize = 1448;
    stream.mss().unwrap_or(LIKELY)
}

/// Returns the size of the largest ULPDU to send, in bytes (RFC 5044 §3, §4.5, §5.1).
fn max_ulpdu(size: FpduSize, stream: &SetupStream, markers: bool) -> usize {
    match size {
        FpduSize::Largest => fpdu::MAX_ULPDU,
        FpduSize::Segment => fpdu::mulpdu(emss(stream), markers),
        // The endpoint clamps it.
        FpduSize::Ulpdu(len) => len.into(),
    }
}

fn private_data_too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("private data is longer than {MAX_PRIVATE_DATA} bytes"))
}

/// Drives a queue pair until it is closed.
fn until_closed(queue_pair: &mut IwarpQueuePair) -> impl Future<Output = ()> + '_ {
    let mut completions = Vec::new();
    poll_fn(move |cx| {
        loop {
            if queue_pair.endpoint().is_closed() {
                return Poll::Ready(());
            }
            if queue_pair.poll(cx, &mut completions).is_pending() {
                return Poll::Pending;
            }
        }
    })
}

/// A failed attempt at connection set-up.
enum SetupFailure {
    Setup(SetupError),
    TimedOut,
    /// TCP connected, but the peer sent nothing within the time limit.
    Silent,
    /// The peer closed the connection before it sent anything.
    Closed,
    /// The peer closed the connection in the middle of its frame, after this many bytes.
    ClosedEarly(usize),
    /// The peer replied with a revision 1 frame to a request of revision 2.
    OldRevision,
    /// The peer sent a frame of this unsupported revision.
    Revision(u8),
    Protocol(String),
}

impl SetupFailure {
    fn into_error(self, limit: Duration, tried: &str) -> SetupError {
        const IWARP: &str = "iWARP (MPA over TCP)";
        const REVISION: &str = "a supported revision of MPA (iWARP)";
        let (expected, detail) = match self {
            Self::Setup(error) => return error,
            Self::TimedOut => return SetupError::TimedOut(limit),
            Self::OldRevision => (REVISION, "it speaks revision 1 only, which the settings exclude".to_owned()),
            Self::Revision(revision) => (REVISION, format!("it speaks revision {revision}, and 1 and 2 are supported")),
            Self::Silent => (IWARP, format!("it accepted the TCP connection, but sent nothing for {limit:?}")),
            Self::Closed => {
                let what = "it closed the connection and sent nothing, as a server without room for connections does";
                (IWARP, format!("{what} (MPA: {tried})"))
            }
            Self::ClosedEarly(len) => (IWARP, format!("it closed the connection after {len} bytes of an MPA frame")),
            Self::Protocol(detail) => (IWARP, format!("it {detail}")),
        };
        SetupError::NotOurProtocol { expected, detail }
    }
}

impl From<io::Error> for SetupFailure {
    fn from(error: io::Error) -> Self {
        Self::Setup(error.into())
    }
}

impl From<SetupError> for SetupFailure {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl From<FrameError> for SetupFailure {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Revision(revision) => Self::Revision(revision),
            error => Self::Protocol(error.to_string()),
        }
    }
}

/// A reader of one frame. It reads no further, because FPDUs may follow.
struct FrameReader {
    kind: FrameKind,
    bytes: Vec<u8>,
}

impl FrameReader {
    fn new(kind: FrameKind) -> Self {
        Self { kind, bytes: Vec::with_capacity(HEADER) }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    async fn read(&mut self, stream: &mut SetupStream) -> Result<(MpaFrame, Bytes), SetupFailure> {
        loop {
            // Fail as soon as the bytes cannot be an MPA frame, because peers of other protocols wait for more bytes.
            FrameHeader::check_key(self.kind, &self.bytes)?;
            let mut missing = HEADER.saturating_sub(self.bytes.len());
            if let Some((head, private_data)) = self.bytes.split_first_chunk::<HEADER>() {
                let head = FrameHeader::decode(self.kind, head)?;
                missing = head.private_data_len().saturating_sub(private_data.len());
                if missing == 0 {
                    return Ok(head.with_private_data(private_data));
                }
            }
            match stream.take(missing as u64).read_buf(&mut self.bytes).await {
                Ok(len) if len > 0 => {}
                Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error.into()),
                _ if self.is_empty() => return Err(SetupFailure::Closed),
                _ => return Err(SetupFailure::ClosedEarly(self.bytes.len())),
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    /// Returns the traffic class of a socket's packets, as the operating system reports it.
    fn traffic_class(stream: &TcpStream) -> u32 {
        let socket = SockRef::from(stream);
        if stream.local_addr().unwrap().is_ipv6() { socket.tclass_v6().unwrap() } else { socket.tos_v4().unwrap() }
    }

    async fn connected(addr: &str, classes: [Option<u8>; 2]) -> [u32; 2] {
        let [client, server] = classes.map(|traffic_class| IwarpConfig { traffic_class, ..IwarpConfig::default() });
        let listener = IwarpListener::bind(addr.parse().unwrap(), server).await.unwrap();
        let accepting = async {
            let incoming = listener.accept().await.unwrap();
            let request = incoming.request(Duration::from_secs(10)).await.unwrap();
            request.accept(SetupParams::default()).await.unwrap()
        };
        let connector = IwarpConnector::new(client);
        let connecting = connector.connect(listener.local_addr(), SetupParams::default());
        let (accepted, connected) = tokio::join!(accepting, connecting);
        [connected.unwrap().queue_pair.stream(), accepted.queue_pair.stream()].map(traffic_class)
    }

    #[tokio::test]
    async fn packets_have_the_traffic_class() {
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            assert_eq!(connected(addr, [None, None]).await, [0, 0], "{addr}");
            assert_eq!(connected(addr, [Some(0x68), None]).await, [0x68, 0], "{addr}");
            assert_eq!(connected(addr, [Some(0xb8), Some(0x28)]).await, [0xb8, 0x28], "{addr}");
        }
    }
}
