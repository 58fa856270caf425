//! Networks that drop or delay packets.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::{
    calls::{Callers, Kind, Load},
    process::Process,
    report::Findings,
    trial::{HEALTHY, Plan, Trial},
};

/// The packets that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    ToServer,
    FromServer,
    Both,
}

/// Runs the scenario of a network that drops packets for a time.
pub(crate) async fn hole(plan: &Plan, scheme: &'static str, dropped: Dropped) -> anyhow::Result<Findings> {
    let filter = match plan.network.filter() {
        Ok(filter) => filter,
        Err(error) => return Ok(Findings::not_run(format!("{error:#}"))),
    };
    let mut trial = Trial::start(plan, "no call with a deadline fails, calls flow within seconds")?;
    let server = trial.server(1, &[scheme], &[]).await?;
    let channel = plan.builder().connect(&server.url(0)).await?;
    let load = Load::start(&channel, plan.callers());
    sleep(HEALTHY).await;
    let port = server.address(0)?.port();
    if dropped != Dropped::FromServer {
        filter.received_by(port, "drop")?;
    }
    if dropped != Dropped::ToServer {
        filter.sent_by(port, "drop")?;
    }
    trial.last_until_noticed().await;
    filter.heal()?;
    trial.healed(&load, Instant::now()).await;
    sleep(HEALTHY).await;
    let calls = trial.finish_calls(load, plan.max_lost(plan.silence()), &[Kind::Deadline]).await?;
    trial.add(calls);
    trial.finish(None).await
}

/// The delay in each direction.
const DELAY: Duration = Duration::from_millis(200);
/// The time in which calls are made with a delay.
const DELAYED: Duration = Duration::from_secs(2);

/// Returns the callers for networks with a delay. They are few, because a proxy and a slow machine add to the delay.
fn callers(plan: &Plan) -> Callers {
    Callers { deadline: 20, no_deadline: 4, ..plan.callers() }
}

/// Makes calls over a network with a delay, and counts the connections.
async fn delayed(
    mut trial: Trial<'_>,
    server: &Process,
    proxy: Option<&Process>,
    scheme: &str,
) -> anyhow::Result<Findings> {
    let plan = trial.plan;
    let url = match proxy {
        Some(proxy) => format!("{scheme}://{}", proxy.address(0)?),
        None => server.url(0),
    };
    let channel = plan.builder().connect_timeout(Duration::from_secs(5)).connect(&url).await?;
    let load = Load::start(&channel, callers(plan));
    sleep(DELAYED).await;
    let calls = trial.finish_calls(load, 0, &[Kind::Deadline, Kind::NoDeadline]).await?;
    trial.add(calls);
    let connects = proxy.map(Process::accepted).or_else(|| trial.connects());
    trial.expect(connects.is_none_or(|connects| connects == 1), || "the connection was lost".to_owned());
    trial.finish(connects).await
}

/// Runs the scenario of a proxy that delays all data.
pub(crate) async fn delayed_by_proxy(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let trial = Trial::start(plan, "no call fails, no connection is lost")?;
    let server = trial.server(1, &[scheme], &[]).await?;
    let proxy = trial.proxy(server.address(0)?, 1, DELAY).await?;
    delayed(trial, &server, Some(&proxy), scheme).await
}

/// Runs the scenario of a network that delays all packets.
pub(crate) async fn delayed_by_network(plan: &Plan, scheme: &'static str) -> anyhow::Result<Findings> {
    let _delay = match plan.network.delay("200ms") {
        Ok(delay) => delay,
        Err(error) => return Ok(Findings::not_run(format!("{error:#}"))),
    };
    let trial = Trial::start(plan, "no call fails, no connection is lost")?;
    let server = trial.server(1, &[scheme], &[]).await?;
    delayed(trial, &server, None, scheme).await
}
