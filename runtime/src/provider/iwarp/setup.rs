//! Connection set-up (RFC 5044 §7.1, RFC 6581): who asks for what, and what is agreed.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
#[cfg(unix)]
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout, timeout_at},
};

use super::{
    FpduSize, IwarpConfig, IwarpQueuePair, MAX_PRIVATE_DATA,
    endpoint::Agreement,
    mpa::{
        fpdu,
        frames::{Enhanced, Frame, FrameError, HEADER, Head, Kind, UNNEGOTIATED},
    },
    rdmap::terminate::Code,
};
use crate::provider::{
    ConnectRequest, Connected, Connector, DisconnectReason, Incoming, Listener, QueuePair, SetupError, SetupParams,
    socket,
};

/// RDMA Reads under way with a peer that has not said how many it serves: one is the least that any peer does that
/// serves RDMA Reads at all.
const UNNEGOTIATED_READS: u32 = 1;

/// Makes outgoing connections.
#[derive(Debug, Clone, Default)]
pub struct IwarpConnector {
    config: IwarpConfig,
}

impl IwarpConnector {
    /// A connector with this configuration.
    #[must_use]
    pub fn new(config: IwarpConfig) -> Self {
        Self { config }
    }

    /// One attempt at set-up as initiator, with an MPA request of this revision.
    async fn attempt(
        &self,
        peer: SocketAddr,
        params: &SetupParams,
        revision: u8,
        deadline: Instant,
    ) -> Result<Connected<IwarpQueuePair>, Trouble> {
        let mut stream = timeout_at(deadline, TcpStream::connect(peer)).await.map_err(|_| Trouble::TimedOut)??;
        socket::prepare(&stream)?;
        let request = Frame {
            kind: Kind::Request,
            markers: false,
            crc: self.config.crc,
            reject: false,
            revision,
            // The client-server model: this end always sends first, so it asks for no ready-to-receive indication.
            enhanced: (revision >= 2).then(|| Enhanced {
                ird: depth(params.responder_resources),
                ord: depth(params.initiator_depth),
                ..Enhanced::default()
            }),
        };
        let octets = request.encode(&params.private_data).ok_or_else(private_data_too_long)?;
        let mut reader = FrameReader::new(Kind::Reply);
        let exchange = async {
            stream.write_all(&octets).await?;
            reader.read(&mut stream).await
        };
        let (reply, private_data) = match timeout_at(deadline, exchange).await {
            Ok(result) => result?,
            Err(_) if reader.is_empty() => return Err(Trouble::Silent),
            Err(_) => return Err(Trouble::TimedOut),
        };
        if reply.reject {
            return Err(SetupError::Rejected { private_data }.into());
        }
        let (ird, ord) = self.read_depths(&request, &reply, params)?;
        let agreement = Agreement {
            // RFC 5044 §7.1.1: used if either end asks.
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
        let mut queue_pair = IwarpQueuePair::new(stream, agreement);
        // RFC 6581 §9.1: an IRD that the initiator does not have is answered with a Terminate.
        if let Some(asked) = reply.enhanced.map(|e| e.ord).filter(|ord| *ord != UNNEGOTIATED && u32::from(*ord) > ird) {
            let detail = format!("wants {asked} RDMA Reads under way, and this end offered to serve {ird}");
            queue_pair.endpoint().end_with(Code::INSUFFICIENT_IRD, None, DisconnectReason::Local);
            let _ = timeout_at(deadline, until_closed(&mut queue_pair)).await;
            return Err(Trouble::Protocol(detail));
        }
        Ok(Connected { queue_pair, private_data, local_addr, peer_addr })
    }

    /// This end's IRD and ORD after the reply (RFC 6581 §9.1).
    fn read_depths(&self, request: &Frame, reply: &Frame, params: &SetupParams) -> Result<(u32, u32), Trouble> {
        match (request.enhanced, reply.enhanced) {
            (Some(mine), Some(theirs)) => {
                // RFC 6581 §9.2: A is 0 in the reply if it is in the request.
                if theirs.peer_to_peer {
                    return Err(Trouble::Protocol("answers a client-server request with peer-to-peer mode".into()));
                }
                // RFC 6581 §9.1: at most the responder's IRD, or unchanged where that is not negotiated.
                let ord = if theirs.ird == UNNEGOTIATED { mine.ord } else { mine.ord.min(theirs.ird) };
                Ok((mine.ird.into(), ord.into()))
            }
            // RFC 6581 §10: an enhanced request is answered with an enhanced reply, or not at all.
            (Some(_), None) if reply.revision == 1 => Err(Trouble::OldRevision),
            (Some(_), None) => Err(Trouble::Protocol("answers an enhanced MPA request without enhanced data".into())),
            (None, _) => Ok((params.responder_resources, params.initiator_depth.min(UNNEGOTIATED_READS))),
        }
    }
}

impl Connector for IwarpConnector {
    type QueuePair = IwarpQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        // Longer is as good as for ever, and an `Instant` does not go as far.
        const LONGEST: Duration = Duration::from_secs(1 << 30);
        let deadline = Instant::now() + params.timeout.min(LONGEST);
        let mut result = self.attempt(peer, &params, 2, deadline).await;
        // RFC 6581 §10: a responder of revision 1 closes the connection on an enhanced request; the initiator may
        // then try again without.
        let tried = match &result {
            Err(Trouble::Closed | Trouble::OldRevision) if self.config.fall_back => {
                tracing::debug!(%peer, "no answer to MPA revision 2, trying revision 1");
                result = self.attempt(peer, &params, 1, deadline).await;
                "revisions 2 and 1"
            }
            _ => "revision 2",
        };
        result.map_err(|trouble| trouble.into_error(params.timeout, tried))
    }
}

/// Takes incoming connections.
#[derive(Debug)]
pub struct IwarpListener {
    listener: TcpListener,
    local_addr: SocketAddr,
    config: IwarpConfig,
}

impl IwarpListener {
    /// Listens on `addr`; port 0 takes any free one.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub async fn bind(addr: SocketAddr, config: IwarpConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let local_addr = listener.local_addr()?;
        Ok(Self { listener, local_addr, config })
    }
}

impl Listener for IwarpListener {
    type QueuePair = IwarpQueuePair;
    type Incoming = IwarpIncoming;

    async fn accept(&self) -> io::Result<Self::Incoming> {
        let (stream, peer_addr) = self.listener.accept().await?;
        socket::prepare(&stream)?;
        Ok(IwarpIncoming { stream, peer_addr, config: self.config.clone() })
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

/// A TCP connection that has been accepted, and should bring an MPA request.
#[derive(Debug)]
pub struct IwarpIncoming {
    stream: TcpStream,
    peer_addr: SocketAddr,
    config: IwarpConfig,
}

impl Incoming for IwarpIncoming {
    type QueuePair = IwarpQueuePair;
    type Request = IwarpRequest;

    fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    async fn request(mut self, limit: Duration) -> Result<Self::Request, SetupError> {
        // RFC 5044 §7.1.2 rules 8 and 10: the wait for the request has a limit.
        let mut reader = FrameReader::new(Kind::Request);
        match timeout(limit, reader.read(&mut self.stream)).await {
            // RFC 5044 §7.1.2 rule 2: an improper request closes the connection, by the stream's being dropped.
            Ok(result) => {
                let (frame, private_data) = result.map_err(|trouble| trouble.into_error(limit, "a request"))?;
                Ok(IwarpRequest { incoming: self, frame, private_data })
            }
            Err(_) => Err(SetupError::TimedOut(limit)),
        }
    }
}

/// An MPA request that waits for an answer.
#[derive(Debug)]
pub struct IwarpRequest {
    incoming: IwarpIncoming,
    frame: Frame,
    private_data: Bytes,
}

impl IwarpRequest {
    /// The reply, and this end's IRD and ORD (RFC 6581 §9.1).
    fn reply(&self, reject: bool, responder_resources: u32, initiator_depth: u32) -> (Frame, u32, u32) {
        let (mut ird, mut ord) = (responder_resources, initiator_depth.min(UNNEGOTIATED_READS));
        let enhanced = self.frame.enhanced.map(|theirs| {
            let (my_ird, mut my_ord) = (depth(responder_resources), depth(initiator_depth));
            if theirs.ird != UNNEGOTIATED {
                // RFC 6581 §9.1: the responder's ORD is at most the initiator's IRD.
                my_ord = my_ord.min(theirs.ird);
            }
            (ird, ord) = (my_ird.into(), my_ord.into());
            let (wants_write, wants_read) = (theirs.rtr_write, theirs.rtr_read && my_ird > 0);
            // RFC 6581 §9.2: those asked for that are supported; where there are none, those that are supported.
            let neither = !wants_write && !wants_read;
            Enhanced {
                // RFC 6581 §9.1: what the initiator does not negotiate is answered so.
                ird: if theirs.ord == UNNEGOTIATED { UNNEGOTIATED } else { my_ird },
                ord: if theirs.ird == UNNEGOTIATED { UNNEGOTIATED } else { my_ord },
                peer_to_peer: theirs.peer_to_peer,
                rtr_send: false,
                rtr_write: wants_write || neither,
                rtr_read: wants_read || neither && my_ird > 0,
            }
        });
        let frame = Frame {
            kind: Kind::Reply,
            markers: false,
            crc: self.incoming.config.crc || self.frame.crc,
            reject,
            // RFC 6581 §6, §10: an old request gets an old reply, an enhanced one an enhanced one.
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
        let octets = reply.encode(&params.private_data).ok_or_else(private_data_too_long)?;
        let stream = &mut self.incoming.stream;
        timeout(params.timeout, stream.write_all(&octets))
            .await
            .map_err(|_| SetupError::TimedOut(params.timeout))??;
        let markers = self.frame.markers;
        let agreement = Agreement {
            // RFC 5044 §7.1.1: used if either end asks.
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
        let queue_pair = IwarpQueuePair::new(self.incoming.stream, agreement);
        Ok(Connected { queue_pair, private_data: self.private_data, local_addr, peer_addr })
    }

    async fn reject(mut self, private_data: Bytes) -> Result<(), SetupError> {
        const LIMIT: Duration = Duration::from_secs(5);
        let (reply, ..) = self.reply(true, 0, 0);
        let octets = reply.encode(&private_data).ok_or_else(private_data_too_long)?;
        let stream = &mut self.incoming.stream;
        let send = async {
            stream.write_all(&octets).await?;
            stream.shutdown().await
        };
        timeout(LIMIT, send).await.map_err(|_| SetupError::TimedOut(LIMIT))??;
        Ok(())
    }
}

/// A number of RDMA Reads as a 14-bit field has it; its highest value means something else (RFC 6581 §9.1).
fn depth(reads: u32) -> u16 {
    u16::try_from(reads).unwrap_or(u16::MAX).min(UNNEGOTIATED - 1)
}

/// Octets of a TCP segment (RFC 5044 §5.1): what TCP tells, or what is likely.
fn emss(stream: &TcpStream) -> usize {
    const LIKELY: usize = 1448;
    #[cfg(unix)]
    let told = SockRef::from(stream).tcp_mss().ok().and_then(|emss| usize::try_from(emss).ok());
    #[cfg(not(unix))]
    let told = None;
    told.unwrap_or(LIKELY)
}

/// Largest ULPDU to send.
fn max_ulpdu(size: FpduSize, stream: &TcpStream, markers: bool) -> usize {
    match size {
        FpduSize::Largest => fpdu::MAX_ULPDU,
        FpduSize::Segment => fpdu::mulpdu(emss(stream), markers),
        FpduSize::Ulpdu(len) => usize::from(len).clamp(fpdu::MIN_MULPDU, fpdu::MAX_ULPDU),
    }
}

fn private_data_too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MAX_PRIVATE_DATA} octets of private data"))
}

/// Drives a queue pair that is being ended.
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

/// Why an attempt at set-up came to nothing.
enum Trouble {
    Setup(SetupError),
    TimedOut,
    /// TCP connected, and then nothing arrived until time was up.
    Silent,
    /// The peer closed the connection before it sent anything.
    Closed,
    /// The peer closed the connection inside its frame.
    ClosedEarly(usize),
    /// The peer answered with a revision 1 frame.
    OldRevision,
    Protocol(String),
}

impl Trouble {
    fn into_error(self, limit: Duration, tried: &str) -> SetupError {
        let detail = match self {
            Self::Setup(error) => return error,
            Self::TimedOut => return SetupError::TimedOut(limit),
            Self::Silent => format!("it accepted the TCP connection, but sent nothing for {limit:?}"),
            Self::Closed => format!("it closed the connection and sent nothing (MPA: {tried})"),
            Self::ClosedEarly(len) => format!("it closed the connection after {len} octets of an MPA frame"),
            Self::OldRevision => "it speaks MPA revision 1 only".to_owned(),
            Self::Protocol(detail) => format!("it {detail}"),
        };
        SetupError::NotOurProtocol { expected: "iWARP (MPA over TCP)", detail }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Setup(error.into())
    }
}

impl From<SetupError> for Trouble {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl From<FrameError> for Trouble {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// Reads one frame, and not an octet more: FPDUs may follow.
struct FrameReader {
    kind: Kind,
    octets: Vec<u8>,
}

impl FrameReader {
    fn new(kind: Kind) -> Self {
        Self { kind, octets: Vec::with_capacity(HEADER) }
    }

    fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    async fn read(&mut self, stream: &mut TcpStream) -> Result<(Frame, Bytes), Trouble> {
        loop {
            // As soon as the octets cannot become an MPA frame, say so: other protocols wait for more from us.
            Head::check_key(self.kind, &self.octets)?;
            let mut missing = HEADER.saturating_sub(self.octets.len());
            if let Some((head, private_data)) = self.octets.split_first_chunk::<HEADER>() {
                let head = Head::decode(self.kind, head)?;
                missing = head.private_data_len().saturating_sub(private_data.len());
                if missing == 0 {
                    return Ok(head.with_private_data(private_data));
                }
            }
            match stream.take(missing as u64).read_buf(&mut self.octets).await {
                Ok(len) if len > 0 => {}
                Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error.into()),
                _ if self.is_empty() => return Err(Trouble::Closed),
                _ => return Err(Trouble::ClosedEarly(self.octets.len())),
            }
        }
    }
}
