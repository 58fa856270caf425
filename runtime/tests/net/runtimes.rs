//! Servers whose connections are served by several runtimes (`ServerBuilder::runtimes`).

use std::{
    collections::BTreeMap,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::net_support::*;
use rpcrdma::{
    client::{Channel, Reconnect},
    server::{HandlerError, InboundCall, ReplyFuture, Server, ServerBuilder, Service},
    service::{Procedure, ProcedureInfo, ReplyBounds},
};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A procedure that returns the number of the thread in which its handler runs.
#[derive(Debug)]
struct Thread;

impl Procedure for Thread {
    const PROGRAM: u32 = 0x2000_0778;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "THREAD";
    const IDEMPOTENT: bool = true;
    /// `true` if the handler waits.
    type Args = bool;
    type Reply = u32;
    fn reply_bounds(_: &bool) -> ReplyBounds {
        ReplyBounds::new(4, &[])
    }
}

fn current_thread() -> Option<u32> {
    thread::current().name()?.strip_prefix("serving-")?.parse().ok()
}

#[derive(Debug, Clone)]
struct ThreadService;

impl Service for ThreadService {
    fn program(&self) -> u32 {
        Thread::PROGRAM
    }
    fn version(&self) -> u32 {
        Thread::VERSION
    }
    fn name(&self) -> &'static str {
        "THREAD"
    }
    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        (number == Thread::NUMBER).then(ProcedureInfo::of::<Thread>)
    }
    fn dispatch(&self, mut call: InboundCall) -> ReplyFuture {
        Box::pin(async move {
            let waits = match call.decode::<Thread>() {
                Ok(waits) => waits,
                Err(reply) => return reply,
            };
            let first = current_thread();
            if waits {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let thread = first.filter(|_| first == current_thread());
            call.finish::<Thread>(thread.ok_or_else(|| HandlerError::system("not a thread of the server")))
        })
    }
}

/// Threads, each with a runtime of its own.
struct Threads(Vec<RuntimeThread>);

struct RuntimeThread {
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Shuts the runtime down, and waits until it has ended.
    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        self.end();
    }
}

impl Threads {
    fn start(count: u32) -> Self {
        let start = |number| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
            let serve = move || {
                let _ = runtime.block_on(stopped);
            };
            let thread = thread::Builder::new().name(format!("serving-{number}")).spawn(serve).unwrap();
            RuntimeThread { runtime: handle, stop: Some(stop), thread: Some(thread) }
        };
        Self((0..count).map(start).collect())
    }

    fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|thread| thread.runtime.clone()).collect()
    }

    /// Returns the configuration of a server whose connections these threads serve.
    fn server(&self, service: TestService) -> ServerBuilder {
        Server::builder().service(ThreadService).service(service).runtimes(self.handles())
    }
}

/// Connects `count` channels, one after the other.
async fn connect(running: &Running, count: usize) -> Vec<Channel> {
    let mut channels = Vec::new();
    for _ in 0..count {
        channels.push(running.connect(Channel::builder()).await);
    }
    channels
}

/// Returns the number of channels that each thread serves, by the number of the thread.
async fn threads_of(channels: &[Channel]) -> BTreeMap<u32, usize> {
    let mut threads = BTreeMap::new();
    for channel in channels {
        *threads.entry(call::<Thread>(channel, &false).await.unwrap()).or_default() += 1;
    }
    threads
}

async fn assert_spread(channels: &[Channel], running: &Running) {
    assert_eq!(threads_of(channels).await, [(0, 4), (1, 4), (2, 4)].into());
    for channel in channels {
        let thread = call::<Thread>(channel, &false).await.unwrap();
        assert_eq!(call::<Thread>(channel, &true).await.unwrap(), thread, "a handler that waits stays in its runtime");
        let sent = pattern(3, 70_001);
        let sum = sent.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        assert_eq!(call::<Put>(channel, &Data(sent.into())).await.unwrap(), sum);
        assert_eq!(call::<Get>(channel, &Range(5, 200_000)).await.unwrap().0, pattern(5, 200_000));
    }
    let mut runtimes = BTreeMap::new();
    for connection in running.handle.connections() {
        *runtimes.entry(connection.runtime.unwrap()).or_default() += 1;
    }
    assert_eq!(runtimes, [(0, 4), (1, 4), (2, 4)].into());
}

/// Shuts the server down, and waits until it has ended.
async fn end(running: Running) {
    running.handle.shutdown();
    ended(running).await;
}

async fn ended(running: Running) {
    running.task.await.unwrap();
    let stats = running.handle.stats();
    assert_eq!((stats.open, stats.counters.exposed_regions, stats.counters.registered_bytes), (0, 0, 0));
}

over_each! {
    connections_are_spread
    a_new_connection_goes_to_the_emptiest_runtime
    a_shutdown_drains_all_runtimes
    a_shutdown_aborts_handlers_of_all_runtimes
    the_connection_limit_is_that_of_all_runtimes
    runtimes_may_end
    blocked_runtimes_are_passed_over
    connections_outlive_the_runtime_that_accepts
}

async fn connections_are_spread(transport: Transport) {
    let threads = Threads::start(3);
    let running = transport.serve(threads.server(TestService::default())).await;
    assert_spread(&connect(&running, 12).await, &running).await;
    end(running).await;
}

/// Connections with TLS are spread over the runtimes as well.
#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_connections_are_spread() {
    timed(async {
        let (threads, authority) = (Threads::start(3), crate::tls_support::Authority::new());
        let tls = authority.server().build().unwrap();
        let running = Transport::Tcp.serve(threads.server(TestService::default()).tls(tls)).await;
        let mut channels = Vec::new();
        for _ in 0..12 {
            channels.push(running.connect(Channel::builder().tls(authority.client().build().unwrap())).await);
        }
        assert!(channels[0].info().tls.is_some());
        assert_spread(&channels, &running).await;
        end(running).await;
    })
    .await;
}

/// The runtime that accepts the connections of a server may also be one of the runtimes that serve them.
#[tokio::test]
async fn the_accepting_runtime_may_serve() {
    timed(async {
        let threads = Threads::start(1);
        let runtimes = threads.handles().into_iter().chain([Handle::current()]);
        let server = Server::builder().service(TestService::default()).runtimes(runtimes);
        let running = Transport::Iwarp.serve(server).await;
        let channels = connect(&running, 4).await;
        for channel in &channels {
            assert_eq!(call::<Get>(channel, &Range(5, 9000)).await.unwrap().0, pattern(5, 9000));
        }
        let mut runtimes: Vec<_> = running.handle.connections().iter().map(|connection| connection.runtime).collect();
        runtimes.sort_unstable();
        assert_eq!(runtimes, [Some(0), Some(0), Some(1), Some(1)]);
        end(running).await;
    })
    .await;
}

/// If no runtimes are configured, connections are served by the runtime that accepts them.
#[tokio::test]
async fn without_runtimes() {
    timed(async {
        let service = TestService::default();
        let running = Transport::Tcp.serve(Server::builder().service(service).runtimes([])).await;
        let channel = running.connect(Channel::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(running.handle.connections()[0].runtime, None);
    })
    .await;
}

async fn a_new_connection_goes_to_the_emptiest_runtime(transport: Transport) {
    let threads = Threads::start(3);
    let running = transport.serve(threads.server(TestService::default())).await;
    let mut kept = Vec::new();
    let mut closed = 0;
    for channel in connect(&running, 9).await {
        if call::<Thread>(&channel, &false).await.unwrap() == 1 {
            channel.close().await;
            closed += 1;
        } else {
            kept.push(channel);
        }
    }
    assert_eq!(closed, 3);
    eventually(|| running.handle.connections().len() == 6).await;
    assert_eq!(threads_of(&connect(&running, 3).await).await, [(1, 3)].into());
    end(running).await;
}

async fn a_shutdown_drains_all_runtimes(transport: Transport) {
    let threads = Threads::start(2);
    let service = TestService::default();
    let running = transport.serve(threads.server(service.clone())).await;
    let mut calls = tokio::task::JoinSet::new();
    for channel in connect(&running, 6).await {
        calls.spawn(async move { call::<Gate>(&channel, &7).await });
    }
    service.0.wait_started(6).await;
    running.handle.shutdown();
    running.handle.unready().await;
    assert!(!running.task.is_finished());
    service.0.gate.add_permits(6);
    while let Some(reply) = calls.join_next().await {
        assert_eq!(reply.unwrap().unwrap(), 7);
    }
    ended(running).await;
}

async fn a_shutdown_aborts_handlers_of_all_runtimes(transport: Transport) {
    let threads = Threads::start(2);
    let service = TestService::default();
    let running = transport.serve(threads.server(service.clone())).await;
    let mut calls = tokio::task::JoinSet::new();
    for channel in connect(&running, 4).await {
        calls.spawn(async move { call::<Gate>(&channel, &7).await });
    }
    service.0.wait_started(4).await;
    running.handle.shutdown_within(Duration::from_millis(10));
    ended(running).await;
    while let Some(reply) = calls.join_next().await {
        reply.unwrap().unwrap_err();
    }
}

async fn the_connection_limit_is_that_of_all_runtimes(transport: Transport) {
    let threads = Threads::start(2);
    let running = transport.serve(threads.server(TestService::default()).max_connections(3)).await;
    let mut channels = connect(&running, 3).await;
    assert_eq!(threads_of(&channels).await.values().sum::<usize>(), 3);
    let further = async || {
        let channel = running.try_connect(Channel::builder()).await.ok()?;
        call::<Thread>(&channel, &false).await.ok()
    };
    assert_eq!(further().await, None);
    eventually(|| running.handle.stats().setup_failed > 0).await;
    channels.pop().unwrap().close().await;
    eventually(|| running.handle.connections().len() == 2).await;
    assert!(further().await.is_some());
    end(running).await;
}

/// When a runtime ends, only its connections are lost, and the other runtime gets new ones. When all runtimes have
/// ended, connections are rejected.
async fn runtimes_may_end(transport: Transport) {
    let mut threads = Threads::start(2);
    let running = transport.serve(threads.server(TestService::default())).await;
    let channels = connect(&running, 4).await;
    assert_eq!(threads_of(&channels).await, [(0, 2), (1, 2)].into());
    threads.0[1].end();
    eventually(|| running.handle.connections().len() == 2).await;
    // The channels that lost their connections reconnect, to the other runtime.
    assert_eq!(threads_of(&channels).await, [(0, 4)].into());
    assert_eq!(threads_of(&connect(&running, 3).await).await, [(0, 3)].into());

    threads.0[0].end();
    eventually(|| running.handle.connections().is_empty()).await;
    let failed = running.handle.stats().setup_failed;
    if let Ok(channel) = running.try_connect(Channel::builder()).await {
        call::<Thread>(&channel, &false).await.unwrap_err();
    }
    eventually(|| running.handle.stats().setup_failed > failed).await;
    assert!(!running.task.is_finished());
    end(running).await;
}

/// A connection survives the end of the runtime that has accepted it, because another runtime serves it.
async fn connections_outlive_the_runtime_that_accepts(transport: Transport) {
    let (threads, mut accepting) = (Threads::start(1), Threads::start(1));
    let serve = {
        let (server, transport) = (threads.server(TestService::default()), transport.clone());
        async move { transport.serve(server).await }
    };
    let running = accepting.0[0].runtime.spawn(serve).await.unwrap();
    let channel = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
    assert_eq!(call::<Thread>(&channel, &true).await.unwrap(), 0);
    accepting.0[0].end();
    for waits in [false, true] {
        assert_eq!(call::<Thread>(&channel, &waits).await.unwrap(), 0);
    }
    channel.close().await;
    eventually(|| running.handle.connections().is_empty()).await;
}

/// A runtime whose only thread is blocked gets no connections until it runs again.
async fn blocked_runtimes_are_passed_over(transport: Transport) {
    let threads = Threads::start(2);
    let running = transport.serve(threads.server(TestService::default())).await;
    let (release, released) = mpsc::channel::<()>();
    let (blocks, blocked) = oneshot::channel();
    threads.0[0].runtime.spawn(async move {
        blocks.send(()).unwrap();
        let _ = released.recv();
    });
    blocked.await.unwrap();
    let channels = connect(&running, 4).await;
    assert_eq!(threads_of(&channels).await, [(1, 4)].into());
    drop(release);
    let mut further = Vec::new();
    while !threads_of(&further).await.contains_key(&0) {
        further.extend(connect(&running, 1).await);
    }
    // The runtimes have the same number of connections when the first one has caught up.
    further.extend(connect(&running, 16).await);
    assert!(threads_of(&further).await[&0] >= 6, "{:?}", threads_of(&further).await);
    end(running).await;
}
