//! A handwritten service, equivalent to generated code, with servers and channels for it, and macros that define a test
//! for each transport.
#![allow(dead_code, missing_docs, unreachable_pub, unused_imports)]

mod clock;
mod release;

use std::{
    error::Error,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
pub use clock::{ManualClock, in_step};
pub use release::{released, spawn_server, timed};
use rpcrdma::{
    client::{CallError, CallOptions, Channel, ChannelBuilder, ConnectError},
    config::ConnectionConfig,
    provider::sim::{SimConfig, SimFabric},
    server::{
        Context, EncodedReply, HandlerError, InboundCall, ReplyFuture, Server, ServerBuilder, ServerHandle, Service,
    },
    service::{Procedure, ProcedureInfo, ReplyBounds},
    xdr::{
        DecodeError, Decoder, EncodeError, Sink, UNBOUNDED, XdrDecode, XdrEncode, XdrType, opaque_len, put_ddp_opaque,
        take_ddp_opaque,
    },
};
use tokio::{sync::Semaphore, task::JoinHandle};

pub const PROGRAM: u32 = 0x2000_0777;
pub const VERSION: u32 = 2;

/// `struct data { @ddp opaque data<>; }`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Data(pub Bytes);

/// `struct two { @ddp opaque a<>; unsigned int mid; @ddp opaque b<>; }`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Two(pub Bytes, pub u32, pub Bytes);

/// [`Data`] whose count is larger than its contents by four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisstatedData(pub Bytes);

/// `struct range { unsigned int seed; unsigned int count; }`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range(pub u32, pub u32);

macro_rules! bounds {
    ($ty:ty, $min:expr, $items:expr) => {
        impl XdrType for $ty {
            const MIN_LEN: usize = $min;
            const MAX_LEN: Option<u64> = None;
            const MAX_INLINE: Option<u64> = Some($min);
            const MAX_DDP_ITEMS: Option<u32> = Some($items);
        }
    };
}
bounds!(Data, 4, 1);
bounds!(MisstatedData, 4, 1);
bounds!(Two, 12, 2);
bounds!(Range, 8, 0);

impl XdrEncode for Data {
    fn encoded_len(&self) -> usize {
        opaque_len(self.0.len())
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_ddp_opaque(sink, &self.0, UNBOUNDED)
    }
}
impl XdrDecode for Data {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        take_ddp_opaque(decoder, UNBOUNDED).map(Self)
    }
}
impl XdrEncode for MisstatedData {
    fn encoded_len(&self) -> usize {
        opaque_len(self.0.len())
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_u32(self.0.len() as u32 + 4);
        if !sink.reduce(&self.0) {
            sink.put(&self.0);
            sink.put_padding(self.0.len());
        }
        Ok(())
    }
}
impl XdrDecode for MisstatedData {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        take_ddp_opaque(decoder, UNBOUNDED).map(Self)
    }
}
impl XdrEncode for Two {
    fn encoded_len(&self) -> usize {
        opaque_len(self.0.len()) + 4 + opaque_len(self.2.len())
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_ddp_opaque(sink, &self.0, UNBOUNDED)?;
        self.1.encode(sink)?;
        put_ddp_opaque(sink, &self.2, UNBOUNDED)
    }
}
impl XdrDecode for Two {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(take_ddp_opaque(decoder, UNBOUNDED)?, decoder.read()?, take_ddp_opaque(decoder, UNBOUNDED)?))
    }
}
impl XdrEncode for Range {
    fn encoded_len(&self) -> usize {
        8
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_u32(self.0);
        sink.put_u32(self.1);
        Ok(())
    }
}
impl XdrDecode for Range {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self(decoder.read()?, decoder.read()?))
    }
}

macro_rules! procedures {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $args:ty => $reply:ty, $idempotent:literal, |$a:ident| $bounds:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;
        impl Procedure for $name {
            const PROGRAM: u32 = PROGRAM;
            const VERSION: u32 = VERSION;
            const NUMBER: u32 = $number;
            const NAME: &'static str = concat!("TEST_V2.", stringify!($name));
            const IDEMPOTENT: bool = $idempotent;
            type Args = $args;
            type Reply = $reply;
            fn reply_bounds($a: &$args) -> ReplyBounds {
                let (inline, chunks): (u64, &[u64]) = $bounds;
                ReplyBounds::new(inline, chunks)
            }
        }
    )*};
}

procedures! {
    Null = 0, () => (), true, |_a| (0, &[]);
    Echo = 1, Bytes => Bytes, true, |a| (opaque_len(a.len()) as u64, &[]);
    Put = 2, Data => u64, false, |_a| (8, &[]);
    /// Sends arguments whose length differs from their count.
    PutMisstated = 2, MisstatedData => u64, false, |_a| (8, &[]);
    /// Calls `Get`, and decodes only the count of the data. The data itself is in a chunk.
    GetCount = 3, Range => u32, true, |a| (4, &[u64::from(a.1)]);
    Get = 3, Range => Data, true, |a| (4, &[u64::from(a.1)]);
    Both = 4, Range => Two, true, |a| (12, &[u64::from(a.1), u64::from(a.1)]);
    /// Waits for a permit of the service's gate, then replies.
    Gate = 5, u32 => u32, false, |_a| (4, &[]);
    Panic = 6, u32 => (), false, |_a| (0, &[]);
    Fail = 7, u32 => (), false, |_a| (0, &[]);
    /// Returns as many bytes as its argument states. The bounds of the procedure allow 5000.
    Exceed = 8, u32 => Data, false, |_a| (4, &[5000]);
    /// Calls `Bound`, with the bound of `Exceed`.
    Underestimate = 15, u32 => Data, false, |_a| (4, &[5000]);
    /// The binding by which the service implements `Underestimate`.
    Bound = 15, u32 => Data, false, |a| (4, &[u64::from(*a)]);
    /// A procedure that the service does not implement.
    Missing = 9, () => (), false, |_a| (0, &[]);
    /// Sends arguments that the service decodes as a longer type.
    Short = 10, u32 => (), false, |_a| (0, &[]);
    /// Gets its result inline although the call provides a Write chunk for the result.
    Unreduced = 12, Range => Data, false, |a| (4, &[u64::from(a.1)]);
    /// The binding by which the service implements `Unreduced`.
    Flat = 12, Range => Bytes, false, |a| (opaque_len(a.1 as usize) as u64, &[]);
    /// Calls `Echo` with arguments that are not eligible there.
    EchoReduced = 1, Data => Bytes, false, |a| (opaque_len(a.0.len()) as u64, &[]);
    /// Holds its arguments until the service's gate opens. Returns their length in bytes.
    Hold = 13, Data => u64, false, |_a| (8, &[]);
    /// Does the same as `Hold`, with arguments that are not eligible.
    HoldFlat = 14, Bytes => u64, false, |_a| (8, &[]);
    /// Replies after the time in its argument, in milliseconds.
    Sleep = 11, u32 => u32, true, |_a| (4, &[]);
}

/// The state of the service, which tests inspect.
#[derive(Debug)]
pub struct State {
    pub gate: Semaphore,
    pub started: AtomicUsize,
    pub finished: AtomicUsize,
    pub most: AtomicUsize,
    pub put_bytes: AtomicU64,
    pub last_put: std::sync::Mutex<Bytes>,
    /// Number of bytes in all results of `Get`.
    pub got_bytes: AtomicU64,
    /// `true` to fail all calls of `Sleep`.
    pub is_broken: AtomicBool,
    /// Time in milliseconds that is added to each call of `Sleep`.
    pub delay: AtomicU64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            gate: Semaphore::new(0),
            started: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            put_bytes: AtomicU64::new(0),
            last_put: std::sync::Mutex::default(),
            got_bytes: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            delay: AtomicU64::new(0),
        }
    }
}

impl State {
    pub async fn wait_started(&self, n: usize) {
        eventually(|| self.started.load(Ordering::SeqCst) >= n).await;
    }
}

/// Waits until a condition becomes true. Panics after 60,000 checks, which take at least a minute.
pub async fn eventually(condition: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("condition not true in time");
}

/// Returns byte `i` of the results of `Get` and `Both`.
fn byte(seed: u32, i: u32) -> u8 {
    i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed) as u8
}

/// Returns the bytes of the results of `Get` and `Both`.
pub fn pattern(seed: u32, count: u32) -> Vec<u8> {
    (0..count).map(|i| byte(seed, i)).collect()
}

#[derive(Debug, Clone, Default)]
pub struct TestService(pub Arc<State>);

impl TestService {
    async fn gate(&self, n: u32) -> u32 {
        let started = self.0.started.fetch_add(1, Ordering::SeqCst) + 1;
        let now = started - self.0.finished.load(Ordering::SeqCst);
        self.0.most.fetch_max(now, Ordering::SeqCst);
        self.0.gate.acquire().await.unwrap().forget();
        self.0.finished.fetch_add(1, Ordering::SeqCst);
        n
    }
}

async fn answer<P: Procedure, F: Future<Output = Result<P::Reply, HandlerError>>>(
    mut call: InboundCall,
    handler: impl FnOnce(Context, P::Args) -> F,
) -> EncodedReply {
    let args = match call.decode::<P>() {
        Ok(args) => args,
        Err(reply) => return reply,
    };
    let result = handler(call.context().clone(), args).await;
    call.finish::<P>(result)
}

fn filled(cx: &Context, range: Range) -> Bytes {
    let mut memory = cx.pool().alloc(range.1 as usize);
    (0..).zip(memory.iter_mut()).for_each(|(i, at)| *at = byte(range.0, i));
    memory.freeze()
}

impl Service for TestService {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        VERSION
    }
    fn name(&self) -> &'static str {
        "TEST_V2"
    }
    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        Some(match number {
            0 => ProcedureInfo::of::<Null>(),
            1 => ProcedureInfo::of::<Echo>(),
            2 => ProcedureInfo::of::<Put>(),
            3 => ProcedureInfo::of::<Get>(),
            4 => ProcedureInfo::of::<Both>(),
            5 => ProcedureInfo::of::<Gate>(),
            6 => ProcedureInfo::of::<Panic>(),
            7 => ProcedureInfo::of::<Fail>(),
            8 => ProcedureInfo::of::<Exceed>(),
            15 => ProcedureInfo::of::<Bound>(),
            11 => ProcedureInfo::of::<Sleep>(),
            12 => ProcedureInfo::of::<Flat>(),
            13 => ProcedureInfo::of::<Hold>(),
            14 => ProcedureInfo::of::<HoldFlat>(),
            _ => return None,
        })
    }
    fn dispatch(&self, mut call: InboundCall) -> ReplyFuture {
        let this = self.clone();
        match call.procedure() {
            0 => Box::pin(answer::<Null, _>(call, |_, ()| async { Ok(()) })),
            1 => Box::pin(answer::<Echo, _>(call, |_, args| async { Ok(args) })),
            2 => Box::pin(answer::<Put, _>(call, |_, args| async move {
                let sum = args.0.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
                this.0.put_bytes.fetch_add(args.0.len() as u64, Ordering::SeqCst);
                *this.0.last_put.lock().unwrap() = args.0;
                Ok(sum)
            })),
            3 => Box::pin(answer::<Get, _>(call, |cx, range| async move {
                cx.reserve_results(range.1.into()).await?;
                this.0.got_bytes.fetch_add(range.1.into(), Ordering::SeqCst);
                Ok(Data(filled(&cx, range)))
            })),
            4 => Box::pin(answer::<Both, _>(call, |cx, range| async move {
                Ok(Two(filled(&cx, range), 7, filled(&cx, Range(range.0 + 1, range.1 / 2))))
            })),
            5 => Box::pin(answer::<Gate, _>(call, |_, n| async move { Ok(this.gate(n).await) })),
            6 => Box::pin(answer::<Panic, _>(call, |_, n| async move {
                if n > 0 {
                    tokio::time::sleep(Duration::from_millis(n.into())).await;
                }
                panic!("the test's handler panics");
            })),
            7 => Box::pin(answer::<Fail, _>(call, |_, n| async move {
                match n {
                    0 => Err(std::io::Error::other("disk gone"))?,
                    1 => Err(HandlerError::GarbageArguments),
                    2 => Err(HandlerError::ProcedureUnavailable),
                    _ => Err(HandlerError::Rejected(rpcrdma::rpc::AuthStat::AuthTooweak.into())),
                }
            })),
            8 => Box::pin(answer::<Exceed, _>(call, |cx, n| async move { Ok(Data(filled(&cx, Range(0, n)))) })),
            15 => Box::pin(answer::<Bound, _>(call, |cx, n| async move { Ok(Data(filled(&cx, Range(0, n)))) })),
            10 => Box::pin(async move {
                match call.decode::<Get>() {
                    Err(reply) => reply,
                    Ok(_) => call.procedure_unavailable(),
                }
            }),
            // Return half of the maximum.
            12 => Box::pin(answer::<Flat, _>(call, |_, range| async move { Ok(pattern(range.0, range.1 / 2).into()) })),
            11 => Box::pin(answer::<Sleep, _>(call, |_, n| async move {
                this.0.started.fetch_add(1, Ordering::SeqCst);
                if this.0.is_broken.load(Ordering::SeqCst) {
                    Err(std::io::Error::other("broken"))?;
                }
                let delay = this.0.delay.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(delay + u64::from(n))).await;
                Ok(n)
            })),
            13 => Box::pin(answer::<Hold, _>(call, |_, args| async move {
                this.gate(0).await;
                Ok(args.0.len() as u64)
            })),
            14 => Box::pin(answer::<HoldFlat, _>(call, |_, args| async move {
                this.gate(0).await;
                Ok(args.len() as u64)
            })),
            _ => Box::pin(async move { call.procedure_unavailable() }),
        }
    }
}

/// The transport of a test.
#[derive(Debug, Clone)]
pub enum Transport {
    Sim(SimFabric),
    Iwarp,
    /// Records over TCP, without RDMA.
    Tcp,
}

impl Transport {
    pub fn sim() -> Self {
        Self::Sim(SimFabric::new(SimConfig::default()))
    }

    /// Binds `server` to any port and runs it.
    pub async fn serve(&self, server: ServerBuilder) -> Running {
        let server = match self {
            Self::Sim(fabric) => server.listen_with(fabric.listen(0).unwrap()),
            Self::Iwarp => server.listen("iwarp://127.0.0.1:0"),
            Self::Tcp => server.listen("tcp://127.0.0.1:0"),
        };
        let server = server.bind().await.unwrap();
        let addr = server.local_addrs()[0];
        let handle = server.handle();
        Running { addr, handle, transport: self.clone(), task: spawn_server(server) }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    pub addr: SocketAddr,
    pub handle: ServerHandle,
    pub transport: Transport,
    pub task: JoinHandle<()>,
}

impl Running {
    pub async fn try_connect(&self, builder: ChannelBuilder) -> Result<Channel, ConnectError> {
        match &self.transport {
            Transport::Sim(fabric) => builder.connect_with(fabric.connector(), self.addr).await,
            Transport::Iwarp => builder.connect(&format!("iwarp://{}", self.addr)).await,
            Transport::Tcp => builder.connect(&format!("tcp://{}", self.addr)).await,
        }
    }

    pub async fn connect(&self, builder: ChannelBuilder) -> Channel {
        self.try_connect(builder).await.unwrap()
    }
}

/// Returns a builder of channels that send no probes, for tests that count calls.
pub fn unprobed() -> ChannelBuilder {
    Channel::builder().connection(ConnectionConfig::new().keepalive_interval(Duration::MAX))
}

/// Starts a server of the test service with default settings. Returns it with its state and a channel to it, which
/// sends no probes.
pub async fn start(transport: Transport) -> (Running, Arc<State>, Channel) {
    start_with(transport, unprobed()).await
}

/// Starts a server as [`start`] does, with a channel that `builder` configures.
pub async fn start_with(transport: Transport, builder: ChannelBuilder) -> (Running, Arc<State>, Channel) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = transport.serve(Server::builder().service(service)).await;
    let channel = running.connect(builder).await;
    (running, state, channel)
}

/// Returns the messages of an error and its causes, separated by colons.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Calls procedure `P` with default options.
pub async fn call<P: Procedure>(channel: &Channel, args: &P::Args) -> Result<P::Reply, CallError>
where
    P::Args: Sync,
{
    channel.call::<P>(args, CallOptions::default()).await
}

/// Defines tests that run over RDMA transports only, and tests that run over all transports.
#[allow(unused_macros)]
macro_rules! over {
    (rdma: $($rdma:ident)*; all: $($all:ident)*;) => {
        mod sim {
            $(#[tokio::test]
            async fn $rdma() {
                super::timed(super::$rdma(super::Transport::sim())).await;
            })*
            $(#[tokio::test]
            async fn $all() {
                super::timed(super::$all(super::Transport::sim())).await;
            })*
        }
        mod iwarp {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rdma() {
                super::timed(super::$rdma(super::Transport::Iwarp)).await;
            })*
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $all() {
                super::timed(super::$all(super::Transport::Iwarp)).await;
            })*
        }
        mod tcp {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $all() {
                super::timed(super::$all(super::Transport::Tcp)).await;
            })*
        }
    };
}
#[allow(unused_imports)]
pub(crate) use over;

/// Defines a test for each transport.
#[allow(unused_macros)]
macro_rules! over_each {
    ($($(#[$attribute:meta])* $name:ident)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;

            #[tokio::test]
            async fn sim() {
                timed(super::$name(Transport::sim())).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn iwarp() {
                timed(super::$name(Transport::Iwarp)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tcp() {
                timed(super::$name(Transport::Tcp)).await;
            }
        }
    )*};
}
#[allow(unused_imports)]
pub(crate) use over_each;

/// Defines a test for each transport, which runs by the clock of [`in_step`].
#[allow(unused_macros)]
macro_rules! over_each_in_step {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn sim() {
                timed(in_step(super::$name(Transport::sim()))).await;
            }

            #[tokio::test]
            async fn iwarp() {
                timed(in_step(super::$name(Transport::Iwarp))).await;
            }

            #[tokio::test]
            async fn tcp() {
                timed(in_step(super::$name(Transport::Tcp))).await;
            }
        }
    )*};
}
#[allow(unused_imports)]
pub(crate) use over_each_in_step;

/// Forwards `max_transfer` and the required methods of `QueuePair`, except `poll`, to the field `$inner`. The other
/// methods have their defaults.
#[allow(unused_macros)]
macro_rules! forward_to_queue_pair {
    ($inner:tt) => {
        fn register(
            &mut self,
            memory: rpcrdma::provider::RegisterableMemory,
            access: rpcrdma::provider::Access,
        ) -> Result<rpcrdma::provider::Region, rpcrdma::provider::RegisterError> {
            self.$inner.register(memory, access)
        }

        fn is_open(&self) -> bool {
            self.$inner.is_open()
        }

        fn post(&mut self, request: rpcrdma::provider::WorkRequest) {
            self.$inner.post(request);
        }

        fn post_receives(&mut self, count: usize) {
            self.$inner.post_receives(count);
        }

        fn disconnect(&mut self) {
            self.$inner.disconnect();
        }

        fn max_reads(&self) -> u32 {
            self.$inner.max_reads()
        }

        fn max_transfer(&self) -> u32 {
            self.$inner.max_transfer()
        }

        fn remote_invalidation(&self) -> bool {
            self.$inner.remote_invalidation()
        }

        fn copied_payload_bytes(&self) -> u64 {
            self.$inner.copied_payload_bytes()
        }
    };
}
#[allow(unused_imports)]
pub(crate) use forward_to_queue_pair;
