//! A scenario with a server that listens on iWARP and TCP. Its iWARP port is blocked for a time.

use std::time::{Duration, Instant};

use rpcrdma::{Channel, transport::Transport};
use tokio::time::{sleep, timeout};

use crate::{
    calls::{Kind, Load},
    report::Findings,
    trial::{HEALTHY, Plan, Trial},
};

/// Maximum time for the channel to change its transport, on a busy machine.
const MAX_MOVE: Duration = Duration::from_secs(60);

/// Waits until a channel uses a transport, and returns the time until then. Returns `None` after [`MAX_MOVE`].
async fn uses(channel: &Channel, transport: Transport) -> Option<Duration> {
    let begun = Instant::now();
    let used = async {
        while channel.info().transport != transport || channel.close_reason().is_some() {
            sleep(Duration::from_millis(5)).await;
        }
        begun.elapsed()
    };
    timeout(MAX_MOVE, used).await.ok()
}

/// Makes calls over a channel with an iWARP and a TCP URL, and blocks the iWARP port for a time. The packet filter
/// applies `verdict` to packets to the port, and, if `verdict` is `drop`, also to packets from the port. The channel
/// must fall back to TCP, and return to iWARP after the outage.
pub(crate) async fn fall_back(plan: &Plan, verdict: &'static str) -> anyhow::Result<Findings> {
    let filter = match plan.network.filter() {
        Ok(filter) => filter,
        Err(error) => return Ok(Findings::not_run(format!("{error:#}"))),
    };
    let mut trial = Trial::start(plan, "no idempotent call fails, none is executed twice, iWARP is used again")?;
    let server = trial.server(1, &["iwarp", "tcp"], &[]).await?;
    let channel = plan.builder().connect(&format!("{},{}", server.url(0), server.url(1))).await?;
    let is_best = channel.info().transport == Transport::Rdma;
    trial.expect(is_best, || "the first connection is not the best one".to_owned());
    let load = Load::start(&channel, plan.callers());
    sleep(HEALTHY).await;

    let port = server.address(0)?.port();
    filter.received_by(port, verdict)?;
    if verdict == "drop" {
        filter.sent_by(port, verdict)?;
    }
    let blocked = Instant::now();
    match uses(&channel, Transport::Tcp).await {
        Some(after) => trial.note(format!("TCP after {:.1} s", after.as_secs_f64())),
        None => trial.fault("the channel does not fall back to TCP"),
    }
    let flows = load.answered(Instant::now(), MAX_MOVE).await;
    trial.expect(flows.is_some(), || "no call succeeds over TCP".to_owned());
    sleep(plan.silence().saturating_sub(blocked.elapsed())).await;

    filter.heal()?;
    let healed = Instant::now();
    trial.healed(&load, healed).await;
    match uses(&channel, Transport::Rdma).await {
        Some(_) => trial.note(format!("iWARP {:.1} s after healing", healed.elapsed().as_secs_f64())),
        None => trial.fault("the channel does not return to iWARP"),
    }
    sleep(HEALTHY).await;
    let unfailing = [Kind::Deadline, Kind::NoDeadline];
    let calls = trial.finish_calls(load, plan.max_lost(plan.silence()), &unfailing).await?;
    trial.add(calls);
    trial.finish(None).await
}
