//! Tests of two features at once. Each feature also has tests of its own. `tests/PAIRS.md` lists all pairs.

#[cfg(feature = "discover")]
mod balancer;
mod clients;
mod gss;
mod limits;
mod memory;
mod shutdown;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::net_support::*;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, ChannelBuilder},
    error::CallFailure,
    provider::{
        Connected, Connector, SetupError, SetupParams,
        sim::{SimConfig, SimConnector, SimEnd, SimFabric, SimNetwork, SimQueuePair},
    },
    rpc::RpcError,
    security::Security,
    server::{DuplicateRequestStats, HandlerError, InboundCall, LimitStats, ReplyFuture, ServerBuilder, Service},
    service::{Procedure, ProcedureId, ReplyBounds},
};
use tokio::{sync::Semaphore, task::JoinHandle};

const SECOND: Duration = Duration::from_secs(1);

/// The default of `ConnectionConfig::keepalive_timeout`.
const SILENCE: Duration = Duration::from_secs(10);

fn id<P: Procedure>() -> ProcedureId {
    ProcedureId::of::<P>()
}

/// A connector whose connections a test can cut, silence, or hold back in one direction.
#[derive(Debug, Clone)]
struct Wires {
    inner: SimConnector,
    networks: Arc<Mutex<Vec<SimNetwork>>>,
    connects: Arc<AtomicUsize>,
}

impl Wires {
    fn new(fabric: &SimFabric) -> Self {
        Self { inner: fabric.connector(), networks: Arc::default(), connects: Arc::default() }
    }

    /// Cuts the connections made so far.
    fn cut(&self) {
        self.networks.lock().unwrap().drain(..).for_each(|network| network.cut());
    }

    /// Holds back what one side of the connections sends, or lets it through again.
    fn stall(&self, end: SimEnd, is_stalled: bool) {
        for network in &*self.networks.lock().unwrap() {
            network.stall(end, is_stalled);
            // What was held back arrives now.
            while !is_stalled && network.step() {}
        }
    }

    /// Lets nothing through on the connections made so far.
    fn silence(&self) {
        [SimEnd::A, SimEnd::B].into_iter().for_each(|end| self.stall(end, true));
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }
}

impl Connector for Wires {
    type QueuePair = SimQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        self.connects.fetch_add(1, Ordering::SeqCst);
        let connected = self.inner.connect(peer, params).await?;
        self.networks.lock().unwrap().push(connected.queue_pair.network().clone());
        Ok(connected)
    }
}

/// A server of the test service on a simulated network, and its state.
struct Site {
    fabric: SimFabric,
    running: Running,
    state: Arc<State>,
}

impl Site {
    async fn new(builder: ServerBuilder) -> Self {
        let service = TestService::default();
        let (fabric, state) = (SimFabric::new(SimConfig::default()), Arc::clone(&service.0));
        let running = Transport::Sim(fabric.clone()).serve(builder.service(service)).await;
        Self { fabric, running, state }
    }

    async fn connect(&self, builder: ChannelBuilder) -> Channel {
        self.running.connect(builder).await
    }

    /// Connects over a network that the test controls. Makes a first call.
    async fn wired(&self, builder: ChannelBuilder) -> (Channel, Wires) {
        let wires = Wires::new(&self.fabric);
        let channel = builder.connect_with(wires.clone(), self.running.addr).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        (channel, wires)
    }

    fn limits(&self) -> LimitStats {
        let [stats] = self.running.handle.limits()[..] else { panic!("one scope") };
        stats
    }

    fn duplicates(&self) -> DuplicateRequestStats {
        let [stats] = self.running.handle.duplicate_requests()[..] else { panic!("one cache") };
        stats
    }

    fn held(&self) -> u64 {
        self.running.handle.memory().held
    }

    fn waiting(&self) -> usize {
        self.running.handle.memory().waiting
    }

    fn started(&self) -> usize {
        self.state.started.load(Ordering::SeqCst)
    }
}

/// Starts a call in a task of its own.
fn spawn<P: Procedure<Args: Sync>>(channel: &Channel, args: P::Args) -> JoinHandle<Result<P::Reply, CallError>> {
    spawn_with::<P>(channel, args, CallOptions::new())
}

fn spawn_with<P: Procedure<Args: Sync>>(
    channel: &Channel,
    args: P::Args,
    options: CallOptions,
) -> JoinHandle<Result<P::Reply, CallError>> {
    let channel = channel.clone();
    tokio::spawn(async move { channel.call::<P>(&args, options).await })
}

/// Starts a call that holds `bytes` bytes of arguments until the gate opens.
fn hold(channel: &Channel, bytes: usize) -> JoinHandle<Result<u64, CallError>> {
    spawn::<Hold>(channel, Data(vec![7; bytes].into()))
}

#[track_caller]
fn failure(error: CallError) -> CallFailure {
    match error {
        CallError::Transport { failure, .. } => failure,
        other => panic!("{other}"),
    }
}

#[track_caller]
fn status(error: &CallError) -> RpcError {
    let CallError::Rpc { source, .. } = error else { panic!("{error:?}") };
    *source
}

/// A service whose procedure calls its caller back.
#[derive(Clone)]
struct CallsBack {
    /// One permit for each callback that may be made.
    gate: Arc<Semaphore>,
    started: Arc<AtomicUsize>,
    /// The security of the callbacks.
    security: Option<Arc<dyn Security>>,
}

impl CallsBack {
    fn new(permits: usize) -> Self {
        Self { gate: Arc::new(Semaphore::new(permits)), started: Arc::default(), security: None }
    }
}

/// The procedure of [`CallsBack`]. The argument is the number of bytes that the callback `Echo` carries.
struct AskBack;

impl Procedure for AskBack {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = 9;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "CALLS_BACK.ASK_BACK";
    type Args = u32;
    type Reply = u32;

    fn reply_bounds(_: &u32) -> ReplyBounds {
        ReplyBounds::new(4, &[])
    }
}

impl Service for CallsBack {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        AskBack::VERSION
    }

    fn name(&self) -> &'static str {
        "CALLS_BACK"
    }

    fn dispatch(&self, mut incoming: InboundCall) -> ReplyFuture {
        let this = self.clone();
        Box::pin(async move {
            let len = match incoming.decode::<AskBack>() {
                Ok(len) => len,
                Err(reply) => return reply,
            };
            this.started.fetch_add(1, Ordering::SeqCst);
            this.gate.acquire().await.unwrap().forget();
            let options = this.security.into_iter().fold(CallOptions::new(), CallOptions::security);
            let client: Channel = incoming.context().callback();
            let echoed = client.call::<Echo>(&vec![1; len as usize].into(), options).await;
            incoming.finish::<AskBack>(echoed.map(|echoed| echoed.len() as u32).map_err(HandlerError::system))
        })
    }
}
