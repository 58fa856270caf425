//! Runs the plans of hostile clients against a server.

use std::time::Duration;

use rpcrdma::{
    Server,
    config::ConnectionConfig,
    gss::{GssAuthenticator, GssServerConfig},
    security::StandardAuthenticator,
    server::{DuplicateRequests, LimitScope, Limits, ServerBuilder, ServerHandle},
};
use tokio::time::timeout;

use crate::{
    RELEASE, Summary, Wire,
    attack::{Attack, Entrance, idle, is_v2, network},
    gss::KEY,
    healthy::Healthy,
    insecure_test_mechanism::InsecureTestMechanism,
    network::{ATTACKED, Host},
    plan::{Plan, Setup},
    protocol::fuzzed_v1::{FuzzedV1Server, PROGRAM},
    service::FuzzedService,
};

/// The hosts of healthy clients: one client connects before the attack, and one after it.
const HEALTHY: [Host; 2] = [2, 3];
/// The time that a shutdown gives to calls in progress.
const DRAIN: Duration = Duration::from_secs(3);
/// Maximum time from the end of [`DRAIN`] to the end of a shutdown.
const MAX_SHUTDOWN: Duration = Duration::from_secs(6);

/// Returns the builder of a server with small limits, which hostile peers reach.
pub(crate) fn builder(setup: Setup) -> Result<ServerBuilder, String> {
    let config = ConnectionConfig::new()
        .credits(6)
        .inline_size(if setup.number & 4 == 0 { 1024 } else { 4096 })
        .fetch_timeout(Duration::from_secs(4))
        .reply_timeout(Duration::from_secs(4))
        .record_timeout(Duration::from_secs(8))
        .max_continued(64 << 10)
        .max_fetched(128 << 10)
        .reverse_credits(4);
    let mechanism = InsecureTestMechanism::new(KEY, "server");
    let authenticator = GssAuthenticator::with_config(mechanism, GssServerConfig::new())
        .map_err(|error| format!("the authenticator failed: {error:?}"))?;
    Ok(Server::builder()
        .connection(config)
        .authenticator(authenticator.or(StandardAuthenticator))
        .service(FuzzedV1Server::new(FuzzedService))
        .duplicate_requests(PROGRAM, DuplicateRequests::new())
        .limits(LimitScope::Program(PROGRAM), Limits::new().concurrency(8).queue(64))
        .max_memory(768 << 10)
        .max_connections(10)
        .connect_timeout(Duration::from_secs(2))
        .first_call_timeout(Duration::from_secs(10))
        .idle_timeout(Duration::from_secs(45))
        .callback_timeout(Duration::from_secs(2))
        .drain_timeout(DRAIN))
}

/// Runs a plan against a server. The error describes the first violation.
pub(crate) async fn play(wire: Wire, plan: &Plan) -> Result<Summary, String> {
    let setup = plan.setup;
    let (network, is_v2) = (network(wire, setup), is_v2(wire, setup));
    let _current = network.enter();
    let builder = network.listen(builder(setup)?, ATTACKED).map_err(|error| format!("cannot listen: {error}"))?;
    let server = builder.bind().await.map_err(|error| format!("the server does not start: {error:?}"))?;
    let handle = server.handle();
    let serving = tokio::spawn(server.serve());
    let mut healthy = Healthy::connect(&network, (HEALTHY[0], ATTACKED), is_v2, setup).await?;
    let mut attack = Attack::new(wire, setup, Entrance::connecting(&network, setup));
    attack.play(plan, &mut healthy, |_| {}).await?;
    attack.end();
    healthy.call_all().await.map_err(|wrong| format!("after the attack: {wrong}"))?;
    let another = Healthy::connect(&network, (HEALTHY[1], ATTACKED), is_v2, setup).await;
    let another = another.map_err(|wrong| format!("after the attack, another client: {wrong}"))?;
    let healthy = healthy.close().await? + another.close().await?;
    check_release(&handle).await?;
    if attack.entrance.registered() > 0 {
        return Err(format!("{} regions of the server are registered", attack.entrance.registered()));
    }
    end(&handle, serving).await?;
    Ok(Summary { healthy, received: attack.peer.received, calls: (0, 0) })
}

/// Checks that a server without clients holds no connections and no memory, and exposes no memory.
async fn check_release(handle: &ServerHandle) -> Result<(), String> {
    let holds_nothing = || handle.stats().open == 0 && handle.memory().held == 0;
    let is_released = idle(holds_nothing, RELEASE).await;
    let (stats, memory) = (handle.stats(), handle.memory());
    if !is_released || stats.counters.exposed_regions > 0 || stats.counters.registered_bytes > 0 {
        return Err(format!("the server holds {memory:?} after the end of all connections: {stats:?}"));
    }
    Ok(())
}

/// Shuts a server down, and waits until it has ended.
pub(crate) async fn end(handle: &ServerHandle, serving: tokio::task::JoinHandle<()>) -> Result<(), String> {
    handle.shutdown();
    match timeout(DRAIN + MAX_SHUTDOWN, serving).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("the server failed: {error}")),
        Err(_) => Err("the server did not shut down in time".into()),
    }
}
