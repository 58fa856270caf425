//! A client with a hostile server, and with calls in progress.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rpcrdma::{
    CallOptions, Channel,
    client::{CallError, ChannelBuilder, Reconnect},
    config::ConnectionConfig,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep, timeout},
};

use crate::{
    RELEASE, Summary, Wire,
    attack::{Attack, Entrance, idle, is_v2, network},
    healthy::{Healthy, versions},
    network::{ATTACKED, HEALTHY, Host, Network},
    plan::{Exchange, Plan, Setup},
    protocol::{Stored, Wanted, fuzzed_back_v1::FuzzedBackV1Server, fuzzed_v1::FuzzedV1Client},
    server,
    service::{self, FuzzedBackService},
};

/// The hosts of the client under attack and of the healthy client.
const HOSTS: [Host; 2] = [4, 5];
/// Time limits of calls.
const TIMEOUTS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(2), Duration::from_secs(12)];
/// Maximum time from the deadline of a call to its end.
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Time after which the caller abandons a call whose `shape` is odd.
const PATIENCE: Duration = Duration::from_millis(5);

/// Numbers of calls of the client under attack, and descriptions of violations.
#[derive(Debug, Default)]
struct Calls {
    begun: u32,
    done: u32,
    failed: u32,
    wrong: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct SharedCalls(Arc<Mutex<Calls>>);

impl SharedCalls {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn have_ended(&self) -> bool {
        let calls = self.lock();
        calls.begun == calls.done + calls.failed
    }
}

fn builder(is_v2: bool, setup: Setup) -> ChannelBuilder {
    let config = ConnectionConfig::new()
        .versions(versions(is_v2))
        .credits(6)
        .inline_size(if setup.number & 4 == 0 { 1024 } else { 4096 })
        .keepalive_interval(Duration::from_secs(3))
        .keepalive_timeout(Duration::from_secs(2))
        .abandoned_call_timeout(Duration::from_secs(3))
        .reply_timeout(Duration::from_secs(4))
        .fetch_timeout(Duration::from_secs(4))
        .record_timeout(Duration::from_secs(8));
    let [min_backoff, max_backoff] = [10, 200].map(Duration::from_millis);
    Channel::builder()
        .connection(config)
        .connect_timeout(Duration::from_secs(2))
        .reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: 2 })
        .service(FuzzedBackV1Server::new(FuzzedBackService))
}

/// Runs a plan against a client. The error describes a violation.
pub(crate) async fn play(wire: Wire, plan: &Plan) -> Result<Summary, String> {
    let setup = plan.setup;
    let (network, is_v2) = (network(wire, setup), is_v2(wire, setup));
    let _current = network.enter();
    let listening = network.listen(server::builder(setup)?, HEALTHY).map_err(|error| format!("{error}"))?;
    let server = listening.bind().await.map_err(|error| format!("the healthy server does not start: {error:?}"))?;
    let handle = server.handle();
    let serving = tokio::spawn(server.serve());
    let mut healthy = Healthy::connect(&network, (HOSTS[1], HEALTHY), is_v2, setup).await?;
    let entrance = Entrance::listening(&network, setup).map_err(|error| format!("cannot listen: {error}"))?;
    let mut attack = Attack::new(wire, setup, entrance);
    let calls = SharedCalls::default();
    let (begin, wanted) = unbounded_channel();
    let caller = tokio::spawn(call_all(network.clone(), builder(is_v2, setup), wanted, calls.clone()));
    let start = |exchange: &Exchange| {
        calls.lock().begun += 1;
        // The caller ends after its sender.
        let _ = begin.send(*exchange);
    };
    for (number, len) in [(0, 0), (1, 3000), (2, 2000), (4, 1200)] {
        start(&Exchange { number, len, amount: 2, ..Exchange::default() });
    }
    let played = attack.play(plan, &mut healthy, start).await;
    drop(begin);
    played?;
    attack.end();
    healthy.call_all().await.map_err(|wrong| format!("after the attack: {wrong}"))?;
    if !idle(|| calls.have_ended(), RELEASE).await {
        return Err(format!("calls do not end: {:?}", calls.lock()));
    }
    match timeout(Duration::from_secs(30), caller).await {
        Ok(Ok(result)) => result?,
        Ok(Err(error)) => return Err(format!("the caller failed: {error}")),
        Err(_) => return Err("the client could not close its connection in time".into()),
    }
    if attack.entrance.registered() > 0 {
        return Err(format!("{} regions of the client are registered", attack.entrance.registered()));
    }
    let healthy = healthy.close().await?;
    server::end(&handle, serving).await?;
    let calls = calls.lock();
    if let Some(wrong) = calls.wrong.first() {
        return Err(wrong.clone());
    }
    Ok(Summary { healthy, received: attack.peer.received, calls: (calls.done, calls.failed) })
}

/// Makes calls, and closes the connection after the last one. Fails if the closed channel still holds memory.
async fn call_all(
    network: Network,
    builder: ChannelBuilder,
    mut wanted: UnboundedReceiver<Exchange>,
    calls: SharedCalls,
) -> Result<(), String> {
    let mut channel = None;
    while let Some(exchange) = wanted.recv().await {
        if channel.is_none() {
            channel = network.connect(builder.clone(), HOSTS[0], ATTACKED).await.ok();
        }
        let Some(channel) = &channel else {
            calls.lock().failed += 1;
            continue;
        };
        tokio::spawn(call(FuzzedV1Client::new(channel.clone()), exchange, calls.clone()));
        tokio::task::yield_now().await;
    }
    let Some(channel) = channel else { return Ok(()) };
    // Calls hold clones of the channel.
    idle(|| calls.have_ended(), RELEASE).await;
    channel.close().await;
    let counters = channel.counters();
    if counters.exposed_regions > 0 || counters.registered_bytes > 0 {
        return Err(format!("the closed channel holds memory: {counters:?}"));
    }
    Ok(())
}

/// Makes a call, and records its result, and whether it ended too late. Some calls are abandoned after [`PATIENCE`],
/// which counts as success.
async fn call(client: FuzzedV1Client, exchange: Exchange, calls: SharedCalls) {
    let limit = TIMEOUTS[usize::from(exchange.amount) % TIMEOUTS.len()];
    let start = Instant::now();
    let result = if exchange.shape & 1 == 0 {
        make(&client, &exchange, limit).await
    } else {
        tokio::select! {
            biased;
            result = make(&client, &exchange, limit) => result,
            () = sleep(PATIENCE) => Ok(()),
        }
    };
    let took = start.elapsed();
    let mut calls = calls.lock();
    if took > limit + MAX_DELAY {
        calls.wrong.push(format!("a call of {limit:?} ended after {took:?} with {result:?}"));
    }
    match result {
        Ok(()) => calls.done += 1,
        Err(_) => calls.failed += 1,
    }
}

async fn make(client: &FuzzedV1Client, exchange: &Exchange, limit: Duration) -> Result<(), CallError> {
    let options = CallOptions::new().timeout(limit);
    let len = u32::from(exchange.len) % 10_000;
    match exchange.number % 7 {
        0 => client.null_with(options).await,
        1 => {
            let data = service::data(7, len);
            client.put_with(&Stored { key: 1, data }, options).await.map(drop)
        }
        2 => client.get_with(&Wanted { seed: 7, len }, options).await.map(drop),
        3 => client.sum_with(&(1..=len / 4).collect::<Vec<_>>().into(), options).await.map(drop),
        4 => client.count_with(len / 4, options).await.map(drop),
        5 => client.ask_back_with(len, options).await.map(drop),
        _ => client.wait_with(len, options).await,
    }
}
