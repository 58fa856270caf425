//! Servers that accept connections and close them, or do not accept any.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rpcrdma::{
    CallOptions, Channel,
    client::{
        Invoke as _, RetryPolicy, ServiceCaller,
        discover::{Endpoints, Servers},
    },
};
use tokio::{net::TcpListener, time::sleep};

use crate::{
    calls::{Callers, Kind, Load},
    report::Findings,
    service::protocol::outages_v1::Read,
    trial::{Plan, Trial},
};

/// The time in which connects are counted.
const COUNTED: Duration = Duration::from_secs(3);
/// Maximum number of connects of one client to one server in [`COUNTED`].
const MAX_CONNECTS: u64 = 50;
/// The callers of scenarios in which all calls fail. They pause only briefly between calls, so that only the channel
/// limits the connects.
const CALLERS: Callers =
    Callers { deadline: 16, no_deadline: 8, not_idempotent: 4, timeout: Duration::from_millis(500) };

/// A listener that accepts connections and closes them, until it is dropped.
struct ClosingListener {
    address: std::net::SocketAddr,
    accepted: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for ClosingListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ClosingListener {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, accepted) = (listener.local_addr()?, Arc::<AtomicU64>::default());
        let counter = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                drop(stream);
            }
        });
        Ok(Self { address, accepted, task })
    }

    fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

fn expected() -> String {
    format!("at most {MAX_CONNECTS} connects in {} s", COUNTED.as_secs())
}

/// Makes calls over a channel that cannot connect, and returns the number of connects. Checks that this number is
/// within its bounds, and that the calls with a deadline fail.
async fn count(trial: &mut Trial<'_>, channel: &Channel, connects: impl Fn() -> Option<u64>) -> anyhow::Result<u64> {
    let before = connects().unwrap_or_default();
    let load = Load::start(channel, CALLERS);
    let begun = Instant::now();
    sleep(COUNTED).await;
    let made = connects().unwrap_or_default() - before;
    // A busy machine may sleep longer.
    let allowed = MAX_CONNECTS * (begun.elapsed().as_millis().div_ceil(COUNTED.as_millis()) as u64).max(1);
    trial.expect((2..=allowed).contains(&made), || format!("{made} connects"));
    let calls = load.finish().await?;
    let (made_calls, failed) = calls.count(Kind::Deadline);
    trial.expect(failed == made_calls, || "calls succeed without a server".to_owned());
    trial.add(calls);
    Ok(made)
}

/// Runs the scenario of a server that accepts connections and closes them.
pub(crate) async fn closing(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let mut trial = Trial::start(plan, expected())?;
    let listener = ClosingListener::start().await?;
    let channel = plan.builder().connect_lazy(&format!("{scheme}://{}", listener.address))?;
    let connects = count(&mut trial, &channel, || Some(listener.accepted())).await?;
    trial.finish(Some(connects)).await
}

/// Runs the scenario of a proxy whose server is down.
pub(crate) async fn proxy_without_server(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let mut trial = Trial::start(plan, expected())?;
    let mut server = trial.server(1, &[scheme], &[]).await?;
    let proxy = trial.proxy(server.address(0)?, 1, Duration::ZERO).await?;
    server.kill().await?;
    let channel = plan.builder().connect_lazy(&format!("{scheme}://{}", proxy.address(0)?))?;
    let connects = count(&mut trial, &channel, || Some(proxy.accepted())).await?;
    trial.finish(Some(connects)).await
}

/// Runs the scenario of a server that has the maximum number of connections.
pub(crate) async fn at_limit(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    if plan.network.connects().is_none() {
        return Ok(Findings::not_run("connects are counted in a network namespace, and there is none"));
    }
    let mut trial = Trial::start(plan, expected())?;
    let server = trial.server(1, &[scheme], &["--max-connections", "1"]).await?;
    let other = plan.builder().connect(&server.url(0)).await?;
    other.invoke::<Read>(&(), CallOptions::new()).await?;
    let channel = plan.builder().connect_lazy(&server.url(0))?;
    let connects = count(&mut trial, &channel, || plan.network.connects()).await?;
    let is_open = other.close_reason().is_none();
    trial.expect(is_open, || "the other client lost its connection".to_owned());
    trial.finish(Some(connects)).await
}

/// Runs the scenario of a load balancer over a server that closes connections, and a healthy server.
pub(crate) async fn balancer(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let mut trial = Trial::start(plan, format!("{}, and no idempotent call fails", expected()))?;
    let server = trial.server(1, &[scheme], &[]).await?;
    let listener = ClosingListener::start().await?;
    let listed = Servers::fixed([format!("{scheme}://{}", listener.address), server.url(0)]);
    let caller = ServiceCaller::balanced(Endpoints::new(listed, plan.builder()), RetryPolicy::default());
    let load = Load::start(&caller, plan.callers());
    sleep(COUNTED).await;
    let connects = listener.accepted();
    // Over TCP, a call may be sent before the connection is closed. Then nothing shows that it was not executed.
    let max_lost = plan.callers().not_idempotent;
    let calls = trial.finish_calls(load, max_lost, &[Kind::Deadline, Kind::NoDeadline]).await?;
    trial.expect((1..=MAX_CONNECTS).contains(&connects), || format!("{connects} connects"));
    trial.add(calls);
    trial.finish(Some(connects)).await
}
