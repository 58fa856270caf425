//! Servers and paths that are stopped with SIGSTOP or killed.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use rpcrdma::client::{
    RetryPolicy, ServiceCaller,
    discover::{Endpoints, Servers},
};
use tokio::time::sleep;

use crate::{
    calls::{Kind, Load},
    report::Findings,
    trial::{HEALTHY, PATIENCE, Plan, Trial},
};

/// Runs the scenario of one server that is stopped for longer than the keep-alive timeout.
pub(crate) async fn one_server(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let mut trial = Trial::start(plan, "no call with a deadline fails, none is executed twice")?;
    let server = trial.server(1, &[scheme], &[]).await?;
    let channel = plan.builder().connect(&server.url(0)).await?;
    let load = Load::start(&channel, plan.callers());
    sleep(HEALTHY).await;
    server.stop()?;
    trial.last_until_noticed().await;
    server.resume()?;
    trial.healed(&load, Instant::now()).await;
    sleep(HEALTHY).await;
    let calls = trial.finish_calls(load, plan.max_lost(plan.silence()), &[Kind::Deadline]).await?;
    trial.add(calls);
    trial.finish(None).await
}

/// Runs the scenario of a pool of three paths to one server. One of the paths leads through a proxy that is stopped.
pub(crate) async fn pool(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    /// The last byte of the local address that the stopped proxy uses for its connections to the server.
    const SILENT: u8 = 4;
    let limit = plan.max_move();
    let mut trial = Trial::start(plan, format!("no idempotent call fails or takes {} s", limit.as_secs()))?;
    let server = trial.server(1, &[scheme], &[]).await?;
    let proxy = trial.proxy(server.address(0)?, SILENT, Duration::ZERO).await?;
    let direct = |local: u8| format!("{}?local=127.0.0.{local}", server.url(0));
    let urls = [direct(2), direct(3), format!("{scheme}://{}", proxy.address(0)?)];
    let pool = plan.builder().connect_pool(urls).await?;
    let over_silent = Ipv4Addr::new(127, 0, 0, SILENT).to_bits();

    let load = Load::start(&pool, plan.callers());
    sleep(HEALTHY).await;
    let before = load.answered_by(Instant::now(), PATIENCE, |by| by.peer == over_silent).await;
    trial.expect(before.is_some(), || "the pool does not use the path before the outage".to_owned());
    proxy.stop()?;
    sleep(plan.silence()).await;
    // The path stays silent until all calls have ended, so that each of them has left it.
    let unfailing = [Kind::Deadline, Kind::NoDeadline];
    let calls = trial.finish_calls(load, plan.max_lost(plan.silence()), &unfailing).await?;
    let longest = calls.longest().unwrap_or_default();
    trial.expect(longest < limit, || format!("a call took {:.1} s", longest.as_secs_f64()));
    trial.add(calls);

    proxy.resume()?;
    let healed = Instant::now();
    let load = Load::start(&pool, plan.callers());
    match load.answered_by(healed, PATIENCE, |by| by.peer == over_silent).await {
        Some(after) => trial.note(format!("path used again after {:.1} s", after.as_secs_f64())),
        None => trial.fault(format!("the path is not used {} s after the outage", PATIENCE.as_secs())),
    }
    // Connections of the proxy to the server are not the client's.
    let calls = trial.finish_calls(load, 0, &unfailing).await?;
    trial.add(calls);
    let connects = trial.connects().map(|all| all.saturating_sub(proxy.accepted()));
    trial.finish(connects).await
}

/// Runs the scenario of a load balancer over three servers. One server is killed and another is stopped, and then both
/// are restarted.
pub(crate) async fn balancer(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let limit = plan.max_move();
    let mut trial = Trial::start(plan, format!("no idempotent call fails or takes {} s", limit.as_secs()))?;
    let mut servers = Vec::new();
    for number in 1..=3 {
        servers.push(trial.server(number, &[scheme], &[]).await?);
    }
    let listed = Servers::fixed(servers.iter().map(|server| server.url(0)));
    let caller = ServiceCaller::balanced(Endpoints::new(listed, plan.builder()), RetryPolicy::default());

    let load = Load::start(&caller, plan.callers());
    for number in 1..=3 {
        let used = load.answered_by(Instant::now(), PATIENCE, |by| by.server == number).await;
        trial.expect(used.is_some(), || format!("server {number} is not used before the outage"));
    }
    servers[0].kill().await?;
    servers[1].stop()?;
    sleep(plan.silence()).await;
    let unfailing = [Kind::Deadline, Kind::NoDeadline];
    // Those of the killed server as well.
    let max_lost = plan.max_lost(plan.silence()) + plan.callers().not_idempotent;
    let calls = trial.finish_calls(load, max_lost, &unfailing).await?;
    let longest = calls.longest().unwrap_or_default();
    trial.expect(longest < limit, || format!("a call took {:.1} s", longest.as_secs_f64()));
    trial.add(calls);

    servers[1].kill().await?;
    let load = Load::start(&caller, plan.callers());
    for (server, number) in servers.iter_mut().zip(1..=2) {
        server.restart().await?;
        let started = Instant::now();
        match load.answered_by(started, PATIENCE, |by| by.server == number).await {
            Some(after) => trial.note(format!("server {number} used after {:.1} s", after.as_secs_f64())),
            None => trial.fault(format!("server {number} is not used {} s after its start", PATIENCE.as_secs())),
        }
    }
    sleep(HEALTHY).await;
    let calls = trial.finish_calls(load, plan.callers().not_idempotent, &unfailing).await?;
    trial.add(calls);
    trial.finish(None).await
}

/// Runs the scenario of a server that is killed, and restarted within a second. Calls with a deadline have a timeout of
/// 10 s.
pub(crate) async fn restart(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    const DOWN: Duration = Duration::from_millis(700);
    let mut trial = Trial::start(plan, "no idempotent call with 10 s fails, none is executed twice")?;
    let mut server = trial.server(1, &[scheme], &[]).await?;
    let channel = plan.builder().connect(&server.url(0)).await?;
    let callers = crate::calls::Callers { timeout: Duration::from_secs(10), ..plan.callers() };
    let load = Load::start(&channel, callers);
    let restarts = plan.either(1, 3);
    for _ in 0..restarts {
        sleep(HEALTHY).await;
        server.kill().await?;
        sleep(DOWN).await;
        server.restart().await?;
        trial.healed(&load, Instant::now()).await;
    }
    sleep(HEALTHY).await;
    let max_lost = callers.not_idempotent * restarts;
    let calls = trial.finish_calls(load, max_lost, &[Kind::Deadline]).await?;
    trial.add(calls);
    trial.finish(None).await
}
