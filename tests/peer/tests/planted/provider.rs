//! A provider with a planted fault, which wraps the iWARP provider. Its queue pairs change what the implementation
//! above them receives and sends.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::{
    memory::{MessageBuf, PayloadBuf},
    provider::{
        Access, Completion, ConnectRequest, Connected, Connector, Incoming, Listener, MemoryHandle, QueuePair, Region,
        RegisterError, RegisterableMemory, SetupError, SetupParams, WorkRequest, WrId,
        iwarp::{IwarpConnector, IwarpIncoming, IwarpListener, IwarpQueuePair, IwarpRequest},
    },
};

use super::{
    fault::{Effect, Fault},
    message::Seen,
};

/// The ID of work requests that the fault posts.
const OWN: WrId = WrId(u64::MAX);

/// A queue pair of an implementation in which a fault is planted.
pub(crate) struct FaultyQueuePair {
    inner: IwarpQueuePair,
    fault: &'static Fault,
    /// The peer's private data.
    private_data: Bytes,
    /// Messages that were received, by XID.
    received: HashMap<u32, Seen>,
    /// Messages that were sent, by XID.
    sent: HashMap<u32, Seen>,
    count: usize,
    /// `true` if sent messages are lost.
    is_mute: bool,
    /// Completions of Sends that the fault dropped.
    extra: VecDeque<Completion>,
}

fn buffer(bytes: Vec<u8>) -> MessageBuf {
    let len = bytes.len();
    MessageBuf::received(PayloadBuf::from(bytes), len)
}

impl FaultyQueuePair {
    fn new(inner: IwarpQueuePair, fault: &'static Fault, private_data: Bytes) -> Self {
        let (received, sent, count, is_mute, extra) = Default::default();
        Self { inner, fault, private_data, received, sent, count, is_mute, extra }
    }

    fn post_own(&mut self, bytes: Vec<u8>) {
        let message = buffer(bytes);
        self.inner.post(WorkRequest::Send { id: OWN, message, invalidate: None, solicited: false, signaled: false });
    }

    /// Applies the fault to a received message. Returns the message that the implementation gets, if any.
    fn receive(&mut self, message: MessageBuf) -> Option<MessageBuf> {
        self.count += 1;
        let mut seen = Seen::new(&message, self.count, &self.private_data);
        let before = seen.xid().and_then(|xid| self.received.get(&xid));
        seen.is_repeated = before.is_some_and(|before| before.len == seen.len);
        // Cases change the upper bit of an XID to make one that is not known.
        let is_about = |xid: &u32| self.sent.contains_key(xid);
        let about = seen.xid().and_then(|xid| [xid, xid ^ 0x8000_0000].into_iter().find(is_about));
        seen.about = about.and_then(|xid| self.sent.get(&xid).cloned()).map(Box::new);
        let applies = (self.fault.when)(&seen);
        let mut bytes = message.to_vec();
        let result = match self.fault.effect {
            Effect::Ignore if applies => None,
            Effect::Accept(change) if applies => {
                change(&mut bytes);
                Some(buffer(bytes))
            }
            Effect::AcceptFor(change) if applies => {
                change(&seen, &mut bytes);
                Some(buffer(bytes))
            }
            Effect::Mute if applies => {
                self.is_mute = true;
                Some(message)
            }
            Effect::Answer(answer) if applies => {
                self.post_own(answer(&seen));
                None
            }
            Effect::Disconnect if applies => {
                self.inner.disconnect();
                None
            }
            _ => Some(message),
        };
        if let Some(xid) = seen.xid() {
            self.received.insert(xid, seen);
        }
        if result.is_none() {
            self.inner.post_receives(1);
        }
        result
    }

    /// Applies the fault to a work request. Returns the request to post in its place, if any.
    fn send(&mut self, request: WorkRequest) -> Option<WorkRequest> {
        match request {
            WorkRequest::Send { id, message, mut invalidate, solicited, signaled } => {
                let mut bytes = message.to_vec();
                let about = bytes.first_chunk().and_then(|xid| self.received.get(&u32::from_be_bytes(*xid)).cloned());
                let mut own = Seen::new(&bytes, self.count, &self.private_data);
                own.is_repeated = own.xid().is_some_and(|xid| self.sent.contains_key(&xid));
                match (self.fault.effect, &about) {
                    (Effect::Reply(change), Some(call)) if (self.fault.when)(call) => change(call, &mut bytes),
                    (Effect::Send(change), _) if (self.fault.when)(&own) => change(&mut bytes),
                    (Effect::Invalidate(handle), Some(call)) if (self.fault.when)(call) => {
                        invalidate = Some(MemoryHandle(handle(call)));
                    }
                    _ => {}
                }
                if matches!(self.fault.effect, Effect::Double) && (self.fault.when)(&own) {
                    self.post_own(bytes.clone());
                }
                if let Some(xid) = own.xid() {
                    self.sent.insert(xid, own);
                }
                if self.is_mute {
                    bytes.clear();
                }
                if bytes.is_empty() {
                    if signaled {
                        self.extra.push_back(Completion::Sent { id });
                    }
                    return None;
                }
                Some(WorkRequest::Send { id, message: buffer(bytes), invalidate, solicited, signaled })
            }
            WorkRequest::Write { id, source, remote } => {
                let source = match self.fault.effect {
                    Effect::Write(change) => change(source),
                    _ => source,
                };
                Some(WorkRequest::Write { id, source, remote })
            }
            other => Some(other),
        }
    }
}

impl QueuePair for FaultyQueuePair {
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        self.inner.register(memory, access)
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    fn post(&mut self, request: WorkRequest) {
        if let Some(request) = self.send(request) {
            self.inner.post(request);
        }
    }

    fn post_receives(&mut self, count: usize) {
        self.inner.post_receives(count);
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        let len = completions.len();
        completions.extend(self.extra.drain(..));
        loop {
            let mut found = Vec::new();
            let poll = self.inner.poll(cx, &mut found);
            for completion in found {
                match completion {
                    Completion::Received { message, invalidated } => {
                        if let Some(message) = self.receive(message) {
                            completions.push(Completion::Received { message, invalidated });
                        }
                    }
                    Completion::Sent { id: OWN } | Completion::Failed { id: OWN, .. } => {}
                    other => completions.push(other),
                }
            }
            if completions.len() > len {
                return Poll::Ready(());
            }
            if poll.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn max_reads(&self) -> u32 {
        self.inner.max_reads()
    }

    fn max_transfer(&self) -> u32 {
        self.inner.max_transfer()
    }

    fn remote_invalidation(&self) -> bool {
        self.inner.remote_invalidation()
    }

    fn copied_payload_bytes(&self) -> u64 {
        self.inner.copied_payload_bytes()
    }
}

/// Applies the fault to the parameters of a connection: to its private data, and to the size and number of its
/// Receives.
fn faulty_params(fault: &Fault, mut params: SetupParams) -> SetupParams {
    if let Effect::PrivateData(change) = fault.effect {
        for data in [&mut params.private_data, &mut params.private_data_without_invalidation] {
            let mut changed = data.to_vec();
            change(&mut changed);
            *data = changed.into();
        }
    }
    if let Some(size) = fault.receive_size {
        (params.receive_size, params.receive_count) = (size, 1024);
    }
    params
}

fn faulty(connected: Connected<IwarpQueuePair>, fault: &'static Fault, offered: Bytes) -> Connected<FaultyQueuePair> {
    let Connected { queue_pair, private_data, local_addr, peer_addr } = connected;
    let queue_pair = FaultyQueuePair::new(queue_pair, fault, offered);
    Connected { queue_pair, private_data, local_addr, peer_addr }
}

/// A connector of faulty clients.
pub(crate) struct FaultyConnector(pub(crate) &'static Fault);

impl Connector for FaultyConnector {
    type QueuePair = FaultyQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<FaultyQueuePair>, SetupError> {
        let params = faulty_params(self.0, params);
        let connected = IwarpConnector::default().connect(peer, params).await?;
        let offered = connected.private_data.clone();
        Ok(faulty(connected, self.0, offered))
    }
}

/// A listener of a faulty server.
pub(crate) struct FaultyListener(pub(crate) IwarpListener, pub(crate) &'static Fault);

/// An incoming connection of a faulty server.
pub(crate) struct FaultyIncoming(IwarpIncoming, &'static Fault);

/// A connection request to a faulty server.
pub(crate) struct FaultyRequest(IwarpRequest, &'static Fault);

impl Listener for FaultyListener {
    type QueuePair = FaultyQueuePair;
    type IncomingConnection = FaultyIncoming;

    async fn accept(&self) -> std::io::Result<FaultyIncoming> {
        self.0.accept().await.map(|incoming| FaultyIncoming(incoming, self.1))
    }

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }
}

impl Incoming for FaultyIncoming {
    type QueuePair = FaultyQueuePair;
    type Request = FaultyRequest;

    fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    async fn request(self, timeout: Duration) -> Result<FaultyRequest, SetupError> {
        self.0.request(timeout).await.map(|request| FaultyRequest(request, self.1))
    }
}

impl ConnectRequest for FaultyRequest {
    type QueuePair = FaultyQueuePair;

    fn private_data(&self) -> &[u8] {
        self.0.private_data()
    }

    async fn accept(self, params: SetupParams) -> Result<Connected<FaultyQueuePair>, SetupError> {
        let offered = Bytes::copy_from_slice(self.0.private_data());
        if let Effect::Refuse(refuses) = self.1.effect
            && refuses(&offered)
        {
            self.0.reject(Bytes::new()).await?;
            return Err(SetupError::Rejected { private_data: Bytes::new() });
        }
        let connected = self.0.accept(faulty_params(self.1, params)).await?;
        Ok(faulty(connected, self.1, offered))
    }

    async fn reject(self, private_data: Bytes) -> Result<(), SetupError> {
        self.0.reject(private_data).await
    }
}
