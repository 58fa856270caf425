//! Tests of the program HEALTH: requests for the status of a service, and callbacks that report a changed status.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::net_support::{
    Gate, PROGRAM, Running, TestService, Transport, VERSION, eventually, in_step, over_each_in_step, timed,
};
use rpcrdma::{
    Channel, Context, HandlerError, Server,
    client::{CallError, CallOptions, HealthCheck, HealthWatch},
    health::{
        Health,
        HealthStatus::{self, NotServing, ServiceUnknown, Serving},
        protocol::{
            HealthChange, HealthService,
            health_callback_v1::{HealthCallbackV1, HealthCallbackV1Server},
            health_v1::{HealthV1Client, PROGRAM as HEALTH},
        },
    },
    rpc::RpcError,
    server::{LimitScope, Limits, ServerBuilder},
};
use tokio::{sync::Semaphore, time::Instant};

/// A drain delay, or an interval between status requests to a server, that does not pass during a test.
const LONG: Duration = Duration::from_secs(100_000);

fn service(program: u32, version: u32) -> HealthService {
    HealthService { program, version }
}

fn server(health: &Health) -> ServerBuilder {
    Server::builder().service(TestService::default()).health(health)
}

async fn status(channel: &Channel, program: u32, version: u32) -> HealthStatus {
    HealthV1Client::new(channel.clone()).check(&service(program, version)).await.unwrap().status
}

/// Watches the test service over a new channel. The watch asks the server again after each `interval`.
async fn watching(running: &Running, interval: Duration) -> (HealthWatch, Channel) {
    let check = HealthCheck::service(PROGRAM, VERSION).interval(interval);
    let mut watch = HealthWatch::new(check);
    let channel = running.connect(Channel::builder().service(watch.callbacks())).await;
    assert_eq!(watch.changed(&channel).await.unwrap(), Serving);
    (watch, channel)
}

async fn answers(transport: Transport) {
    let health = Health::new();
    let running = transport.serve(server(&health).drain_delay(LONG)).await;
    let channel = running.connect(Channel::builder()).await;
    for (program, version, expected) in [
        (0, 0, Serving),
        (0, 9, Serving),
        (PROGRAM, VERSION, Serving),
        (PROGRAM, VERSION + 1, ServiceUnknown),
        (PROGRAM + 1, VERSION, ServiceUnknown),
        (HEALTH, 1, ServiceUnknown),
    ] {
        assert_eq!(status(&channel, program, version).await, expected, "{program} {version}");
    }
    health.set_service(PROGRAM, VERSION, false);
    health.set_service(PROGRAM, VERSION + 1, true);
    assert_eq!(status(&channel, PROGRAM, VERSION).await, NotServing);
    assert_eq!(status(&channel, PROGRAM, VERSION + 1).await, Serving);
    assert_eq!(status(&channel, 0, 0).await, Serving);
    running.handle.shutdown();
    assert_eq!(status(&channel, 0, 0).await, NotServing);
    assert_eq!(status(&channel, PROGRAM, VERSION + 1).await, NotServing);
    assert_eq!(status(&channel, PROGRAM + 1, VERSION).await, ServiceUnknown);
    running.handle.shutdown_within(Duration::ZERO);
}

/// A server reports changes of its state and its shutdown at once. After several changes in a row, the client learns
/// the latest state.
async fn changes_are_reported(transport: Transport) {
    let health = Health::new();
    let running = transport.serve(server(&health).drain_delay(LONG)).await;
    let (mut watch, channel) = watching(&running, LONG).await;
    let started = Instant::now();
    for is_serving in [false, true, false, true] {
        health.set_service(PROGRAM, VERSION, is_serving);
        let expected = if is_serving { Serving } else { NotServing };
        assert_eq!(watch.changed(&channel).await.unwrap(), expected);
    }
    // The watch ignores changes of other services, and learns only the last of many changes of the server.
    health.set_service(PROGRAM + 1, 1, false);
    for number in 0..100 {
        health.set_server(number % 2 == 0);
    }
    assert_eq!(watch.changed(&channel).await.unwrap(), NotServing);
    health.set_server(true);
    assert_eq!(watch.changed(&channel).await.unwrap(), Serving);
    running.handle.shutdown();
    assert_eq!(watch.changed(&channel).await.unwrap(), NotServing);
    assert!(started.elapsed() < Duration::from_secs(1000), "the server was asked again");
    running.handle.shutdown_within(Duration::ZERO);
}

/// A client without callbacks asks the server again after each interval, and at once after a reset.
async fn without_callbacks_the_server_is_asked(transport: Transport) {
    let health = Health::new();
    let running = transport.serve(server(&health)).await;
    let interval = Duration::from_secs(20);
    let mut watch = HealthWatch::new(HealthCheck::server().interval(interval));
    let channel = running.connect(Channel::builder()).await;
    for is_serving in [true, false, true] {
        health.set_server(is_serving);
        let expected = if is_serving { Serving } else { NotServing };
        let asked = Instant::now();
        assert_eq!(watch.changed(&channel).await.unwrap(), expected);
        assert!(asked.elapsed() < interval + Duration::from_secs(1));
    }
    // After a reset, the watch asks the server at once.
    watch.reset();
    let asked = Instant::now();
    assert_eq!(watch.changed(&channel).await.unwrap(), Serving);
    assert!(asked.elapsed() < interval);
}

/// The error of a server without the program HEALTH is reported at most once per interval.
async fn servers_without_the_program(transport: Transport) {
    let running = transport.serve(Server::builder().service(TestService::default())).await;
    let interval = Duration::from_secs(20);
    let mut watch = HealthWatch::new(HealthCheck::server().interval(interval));
    let channel = running.connect(Channel::builder().service(watch.callbacks())).await;
    let asked = Instant::now();
    for times in 0..3 {
        let error = watch.changed(&channel).await.unwrap_err();
        assert!(matches!(error, CallError::Rpc { source: RpcError::ProgramUnavailable, .. }), "{error:?}");
        assert!(asked.elapsed() >= times * interval);
    }
}

/// A client that records reported changes. Its handlers reply after the test has added a permit to `gate`.
#[derive(Clone)]
struct SlowClient {
    gate: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    max_running: Arc<AtomicUsize>,
    reports: Arc<std::sync::Mutex<Vec<HealthChange>>>,
}

impl HealthCallbackV1 for SlowClient {
    async fn changed(&self, _cx: &Context, change: HealthChange) -> Result<(), HandlerError> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_running.fetch_max(running, Ordering::SeqCst);
        self.reports.lock().unwrap().push(change);
        self.gate.acquire().await?.forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A server has at most one callback to a slow client in flight, and reports the latest state after the client has
/// replied. A client that does not reply is not called again until it sends another WATCH.
async fn slow_clients(transport: Transport) {
    let health = Health::new();
    let timeout = Duration::from_secs(40);
    let running = transport.serve(server(&health).callback_timeout(timeout)).await;
    let slow = SlowClient {
        gate: Arc::new(Semaphore::new(0)),
        running: Arc::default(),
        max_running: Arc::default(),
        reports: Arc::default(),
    };
    let channel = running.connect(Channel::builder().service(HealthCallbackV1Server::new(slow.clone()))).await;
    let client = HealthV1Client::new(channel.clone());
    let reported = || slow.reports.lock().unwrap().len();
    for program in [0, PROGRAM] {
        assert!(client.watch(&service(program, VERSION)).await.unwrap().is_watching);
    }
    for number in 0..10 {
        health.set_server(number % 2 == 1);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    health.set_server(false);
    assert_eq!(reported(), 1, "one call is in flight");
    slow.gate.add_permits(2);
    eventually(|| reported() == 2).await;
    eventually(|| slow.running.load(Ordering::SeqCst) == 0).await;
    // Both services were reported once, in their latest state.
    assert!(slow.reports.lock().unwrap().iter().all(|change| change.report.status == NotServing));
    assert_eq!(slow.max_running.load(Ordering::SeqCst), 1);
    health.set_server(true);
    eventually(|| reported() == 3).await;
    tokio::time::sleep(timeout + Duration::from_secs(1)).await;
    health.set_server(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reported(), 3, "the client is not called again");
    slow.gate.add_permits(100);
    let watched = client.watch(&service(0, 0)).await.unwrap();
    assert_eq!((watched.report.status, watched.is_watching), (NotServing, true));
    health.set_server(true);
    eventually(|| reported() == 4).await;
}

/// A connection can watch at most 16 services. Other connections can watch services as well, before and after this
/// connection has closed.
async fn greedy_clients(transport: Transport) {
    let health = Health::new();
    let running = transport.serve(server(&health)).await;
    let mut channels = Vec::new();
    for _ in 0..2 {
        let watch = HealthWatch::new(HealthCheck::server());
        let channel = running.connect(Channel::builder().service(watch.callbacks())).await;
        let client = HealthV1Client::new(channel.clone());
        for _ in 0..2 {
            for program in 0..100 {
                let watched = client.watch(&service(program, VERSION)).await.unwrap();
                assert_eq!(watched.is_watching, program < 16, "{program}");
            }
        }
        channels.push(channel);
    }
    for channel in channels {
        channel.close().await;
    }
    let (_watch, channel) = watching(&running, LONG).await;
    channel.close().await;
}

/// The limits of the whole server do not apply to the program HEALTH, so that a saturated server answers.
async fn saturated_servers_answer(transport: Transport) {
    let health = Health::new();
    let limits = Limits::new().concurrency(1);
    let tested = TestService::default();
    let state = Arc::clone(&tested.0);
    let builder = Server::builder().service(tested).health(&health).limits(LimitScope::Server, limits);
    let running = transport.serve(builder).await;
    let channel = running.connect(Channel::builder()).await;
    let blocked = {
        let channel = channel.clone();
        tokio::spawn(async move { channel.call::<Gate>(&1, CallOptions::new()).await })
    };
    eventually(|| running.handle.limits()[0].running == 1).await;
    assert_eq!(status(&channel, PROGRAM, VERSION).await, Serving);
    state.gate.add_permits(1);
    blocked.await.unwrap().unwrap();
}

over_each_in_step! {
    answers changes_are_reported without_callbacks_the_server_is_asked servers_without_the_program slow_clients
    greedy_clients saturated_servers_answer
}
