//! Inbound calls from their arrival to their reply, without a driver.

mod arguments;
mod callers;
mod handlers;
#[cfg(feature = "metrics")]
mod measured;
mod replies;
mod secured;
mod services;
mod traces;

use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context as TaskContext, Waker},
    time::Instant,
};

use bytes::Bytes;

use super::{
    CallHandlers, ChannelConfig, ChannelInfo, ConnectionObserver, EncodedReply, HookedService, InboundCall,
    ReplyFuture, ServedConnection, Service, ServiceRegistry, context::HandlerError,
};
use crate::{
    config::ConnectionConfig,
    driver::{DriverPort, InboundCalls as _, ReplyCommand},
    engine::{
        CallFailure, CallPolicy, Connection, Engine as _, EngineEvent, IncomingCall, IncomingReply, MessageFormat,
        MessagePayload, OutgoingCall, OutgoingReply, ReplyResources, ReplyToken, ResultChunk, Role, TransportError,
        Versions, message_buf,
    },
    memory::{BufferPool, Output as _},
    provider::{
        Completion, QueuePair as _,
        sim::{self, SimConfig, SimQueuePair},
    },
    rpc::{CallHeader, OpaqueAuth, ReplyHeader, RpcError},
    security::{Authenticator, StandardAuthenticator},
    service::{Procedure, ReplyBounds},
    transport::Transport,
    xdr::{
        DecodeError, Decoder, EncodeError, FlatSink, ReducingSink, Sink, UNBOUNDED, XdrDecode, XdrEncode, XdrType,
        pad_len, padded_len, put_ddp_opaque, take_ddp_opaque,
    },
};

const PROGRAM: u32 = 7;
const VERSION: u32 = 2;
const XID: u32 = 0x5151;

/// `struct { unsigned int number; @ddp opaque data<>; }`
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item(u32, Bytes);

impl XdrType for Item {
    const MIN_LEN: usize = 8;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = Some(8);
    const MAX_DDP_ITEMS: Option<u32> = Some(1);
}

impl XdrEncode for Item {
    fn encoded_len(&self) -> usize {
        8 + padded_len(self.1.len())
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_u32(self.0);
        put_ddp_opaque(sink, &self.1, UNBOUNDED)
    }
}

impl XdrDecode for Item {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(decoder.read()?, take_ddp_opaque(decoder, UNBOUNDED)?))
    }
}

/// The procedure without arguments and results (RFC 5531 §12.1).
struct Null;

impl Procedure for Null {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION;
    const NUMBER: u32 = 0;
    const NAME: &'static str = "NULL";
    type Args = ();
    type Reply = ();

    fn reply_bounds(_args: &()) -> ReplyBounds {
        ReplyBounds::default()
    }
}

/// A procedure with an eligible argument and an eligible result.
struct Store;

impl Procedure for Store {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "TEST.STORE";
    type Args = Item;
    type Reply = Item;

    fn reply_bounds(args: &Item) -> ReplyBounds {
        ReplyBounds::new(8, &[args.1.len() as u64])
    }
}

/// A result with two eligible items.
struct Twice(Item, Item);

impl XdrType for Twice {
    const MIN_LEN: usize = 16;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = Some(16);
    const MAX_DDP_ITEMS: Option<u32> = Some(2);
}

impl XdrEncode for Twice {
    fn encoded_len(&self) -> usize {
        self.0.encoded_len() + self.1.encoded_len()
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.encode(sink)?;
        self.1.encode(sink)
    }
}

impl XdrDecode for Twice {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(decoder.read()?, decoder.read()?))
    }
}

/// A procedure with two eligible results.
struct Double;

impl Procedure for Double {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION;
    const NUMBER: u32 = 3;
    const NAME: &'static str = "TEST.DOUBLE";
    type Args = Item;
    type Reply = Twice;

    fn reply_bounds(args: &Item) -> ReplyBounds {
        ReplyBounds::new(16, &[args.1.len() as u64; 2])
    }
}

/// A procedure whose arguments are not eligible.
struct Name;

impl Procedure for Name {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION;
    const NUMBER: u32 = 2;
    const NAME: &'static str = "TEST.NAME";
    type Args = Bytes;
    type Reply = u32;

    fn reply_bounds(_args: &Bytes) -> ReplyBounds {
        ReplyBounds::new(4, &[])
    }
}

/// A version of the test program, whose calls `dispatch` handles.
struct TestService<F> {
    version: u32,
    dispatch: F,
}

impl<F: Fn(InboundCall) -> ReplyFuture + Send + Sync + 'static> Service for TestService<F> {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn name(&self) -> &'static str {
        "TEST"
    }

    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        (self.dispatch)(call)
    }
}

/// Returns a service of the test program.
fn service(dispatch: impl Fn(InboundCall) -> ReplyFuture + Send + Sync + 'static) -> Arc<dyn Service> {
    Arc::new(TestService { version: VERSION, dispatch })
}

/// Replies to each call with a result built from its arguments.
fn echo(call: InboundCall) -> ReplyFuture {
    let reply = match call.procedure() {
        Null::NUMBER => answer::<Null>(call, Ok),
        Store::NUMBER => answer::<Store>(call, Ok),
        Double::NUMBER => answer::<Double>(call, |item| Ok(Twice(item.clone(), item))),
        Name::NUMBER => answer::<Name>(call, |name| Ok(name.len() as u32)),
        _ => call.procedure_unavailable(),
    };
    Box::pin(std::future::ready(reply))
}

fn answer<P: Procedure>(
    mut call: InboundCall,
    handler: impl FnOnce(P::Args) -> Result<P::Reply, HandlerError>,
) -> EncodedReply {
    match call.decode::<P>() {
        Ok(arguments) => call.finish::<P>(handler(arguments)),
        Err(reply) => reply,
    }
}

/// A connection whose driver is the test.
struct Served {
    handlers: CallHandlers,
    port: Arc<DriverPort>,
}

impl Served {
    fn new(transport: Transport, service: Arc<dyn Service>) -> Self {
        Self::guarded(transport, service, StandardAuthenticator)
    }

    fn guarded(transport: Transport, service: Arc<dyn Service>, authenticator: impl Authenticator) -> Self {
        let registry = ServiceRegistry::new([HookedService::from(service)], Arc::new(authenticator), None).unwrap();
        Self::with(transport, registry, ConnectionConfig::new())
    }

    fn with(transport: Transport, registry: ServiceRegistry, connection: ConnectionConfig) -> Self {
        Self::observed(transport, registry, connection, None)
    }

    fn observed(
        transport: Transport,
        registry: ServiceRegistry,
        connection: ConnectionConfig,
        observer: Option<Box<dyn ConnectionObserver>>,
    ) -> Self {
        let mut info = ChannelInfo::unconnected(transport);
        (info.peer_addr, info.local_addr) = (peer_addr(), local_addr());
        Self::on(info, registry, connection, observer)
    }

    fn on(
        info: ChannelInfo,
        registry: ServiceRegistry,
        connection: ConnectionConfig,
        observer: Option<Box<dyn ConnectionObserver>>,
    ) -> Self {
        let port = Arc::new(DriverPort::new(1));
        let connection = Arc::new(ServedConnection::new(info, Arc::clone(&port), Arc::new(settings(connection))));
        let handlers = CallHandlers::new(Arc::new(registry), connection, observer);
        Self { handlers, port }
    }

    /// Returns the reply to a call, if its handler does not wait.
    fn call(&mut self, call: IncomingCall) -> Option<ReplyCommand> {
        self.handlers.call(call, &self.port)
    }

    /// Returns the RPC reply to a call that is answered at once.
    fn reply(&mut self, call: IncomingCall) -> (Result<(), RpcError>, Bytes) {
        match self.call(call) {
            Some(ReplyCommand::Reply(reply)) => opened(&whole(&reply)),
            other => panic!("{other:?}"),
        }
    }
}

fn peer_addr() -> SocketAddr {
    ([192, 0, 2, 1], 700).into()
}

fn local_addr() -> SocketAddr {
    ([192, 0, 2, 2], 20049).into()
}

/// Returns the settings of a server's connection.
pub(super) fn settings(connection: ConnectionConfig) -> ChannelConfig {
    ChannelConfig::new(connection, 1)
}

/// Returns the payload stream of a reply, with its eligible items in their places.
fn whole(reply: &OutgoingReply) -> Vec<u8> {
    let mut stream = reply.message.to_vec();
    for item in reply.reduced.iter() {
        let at = item.position as usize;
        let padded = [&item.data[..], &[0; 3][..pad_len(item.data.len())]].concat();
        stream.splice(at..at, padded);
    }
    stream
}

/// Returns the outcome and the encoded results of a reply.
fn opened(message: &[u8]) -> (Result<(), RpcError>, Bytes) {
    let mut decoder = Decoder::new(message);
    let header = ReplyHeader::decode(&mut decoder).unwrap();
    assert_eq!(header.xid, XID);
    (header.outcome, Bytes::copy_from_slice(decoder.rest()))
}

fn header(procedure: u32) -> CallHeader {
    CallHeader::new(XID, PROGRAM, VERSION, procedure)
}

/// Encodes a header, and appends encoded arguments.
fn message(header: &CallHeader, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    header.encode(&mut FlatSink::new(&mut message)).unwrap();
    message.extend_from_slice(arguments);
    message
}

/// Returns a message in the buffer of a Receive.
fn received(message: &[u8]) -> MessagePayload {
    let mut buffer = message_buf(&BufferPool::default(), 4096);
    buffer.append(message);
    MessagePayload::Inline(buffer)
}

/// Returns a call without chunks, as it arrives.
fn arrived(payload: MessagePayload) -> IncomingCall {
    let (token, format) = (ReplyToken(1), MessageFormat::Short);
    IncomingCall { token, payload, max_inline: 4000, chunks: <_>::default(), xid: XID, format, continues: false }
}

/// A client and a server on an RDMA connection in version 1, without drivers.
struct RdmaPair([(Connection, SimQueuePair); 2]);

impl RdmaPair {
    fn new() -> Self {
        let (client, server, _) = sim::pair(SimConfig::default());
        let engine = |role| ConnectionConfig::new().engine(role, Versions::V1, &[], true);
        Self([(engine(Role::Client), client), (engine(Role::Server), server)])
    }

    /// Lets both sides work until one of them has an event.
    fn event(&mut self) -> EngineEvent {
        for _ in 0..100 {
            for (engine, queue_pair) in &mut self.0 {
                let mut completions: Vec<Completion> = Vec::new();
                let _ = queue_pair.poll(&mut TaskContext::from_waker(Waker::noop()), &mut completions);
                completions.into_iter().for_each(|completion| engine.handle_completion(completion));
                engine.poll_work(queue_pair, Instant::now());
                if let Some(event) = engine.poll_event() {
                    return event;
                }
            }
        }
        panic!("nothing happens")
    }

    /// Sends a call whose eligible arguments are in Read chunks, with Write chunks of the lengths `results`.
    fn call(&mut self, procedure: u32, arguments: &impl XdrEncode, results: &[u64]) -> IncomingCall {
        self.call_with(procedure, arguments, results, 500)
    }

    /// Sends a call whose reply has at most `max_inline` bytes without its eligible items.
    fn call_with(
        &mut self,
        procedure: u32,
        arguments: &impl XdrEncode,
        results: &[u64],
        max_inline: u64,
    ) -> IncomingCall {
        let mut message = message_buf(&BufferPool::default(), 512);
        let mut sink = ReducingSink::for_call(&mut message, 1);
        header(procedure).encode(&mut sink).unwrap();
        arguments.encode(&mut sink).unwrap();
        let (reduced, _) = sink.finish();
        let chunks = results.iter().map(|&max_len| ResultChunk { max_len, landing: None }).collect();
        let reply = ReplyResources { max_inline, chunks };
        let policy = CallPolicy { xid: Some(XID), ..CallPolicy::default() };
        let reduced = reduced.into_iter().collect();
        let [(client, _), _] = &mut self.0;
        client.start_call(OutgoingCall { message, reduced, reply, deadline: None, policy });
        loop {
            match self.event() {
                EngineEvent::CallArrived(call) => return call,
                EngineEvent::ReplySent { delivered: true, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends the reply to a call, and returns it as it arrives at the client.
    fn reply(&mut self, token: ReplyToken, command: ReplyCommand) -> Result<IncomingReply, CallFailure> {
        let [_, (server, _)] = &mut self.0;
        match command {
            ReplyCommand::Reply(reply) => server.reply(token, reply),
            ReplyCommand::ChunkError => server.reply_error(token, TransportError::BadXdr),
            ReplyCommand::Discard => server.reply_error(token, TransportError::System),
        }
        loop {
            match self.event() {
                EngineEvent::CallFinished { result, .. } => return result,
                EngineEvent::ReplySent { delivered: true, .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
