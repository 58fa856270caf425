//! The clients of a run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rpcrdma::{
    CallOptions, Channel,
    client::{
        ChannelBuilder, ChannelPool, ConnectError, Invoke, Reconnect, RetryPolicy, ServiceCaller,
        discover::{Attempts, Endpoints, Servers, ServersSender},
    },
    config::ConnectionConfig,
    engine::Versions,
    gss::GssSecurity,
    provider::sim::SimEnd,
    rpc::Credential,
    security::ProtectionLevel,
};
use tokio::{
    sync::{Semaphore, mpsc::UnboundedReceiver},
    task::JoinSet,
};

use rpcrdma_specs::nfs3::nfs_v3;

use crate::{
    calls::{CallReply, Stubs, cause, chain, symptom},
    files::{FileCall, FileReply},
    history::{CallOutcome, History},
    insecure_test_mechanism::InsecureTestMechanism,
    log::{EventLog, event},
    network::{Host, Network},
    protocol::{simulated_back_v1::SimulatedBackV1Server, simulated_v1::PROGRAM},
    random::Choices,
    scenario::{CallKind, ClientPlan, Connections, Operation},
    server,
    service::SimulatedClient,
};

/// The time limit of the last call of each client, after all faults were repaired.
const LAST_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The time limit of each attempt of a hedged client.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Difference between the number of an operation and the number of the LOOKUP before it.
const LOOKUPS: u64 = 1 << 32;

/// A client of a run.
pub struct SimulatedCaller {
    plan: ClientPlan,
    choices: Choices,
    history: History,
    log: EventLog,
    network: Network,
    /// Number of calls in progress.
    in_progress: AtomicUsize,
    /// `true` after a call failed or was given up, or the client was killed. The memory of an unfinished call may stay
    /// registered until its connection ends.
    has_failed: AtomicBool,
}

/// The progress of a client. It is kept when the client is killed and starts again with new connections.
struct Progress<'a> {
    /// Index of the next call.
    next: usize,
    repaired: Arc<Semaphore>,
    kills: &'a mut UnboundedReceiver<()>,
}

impl SimulatedCaller {
    /// Creates a client that has not connected.
    #[must_use]
    pub fn new(plan: ClientPlan, choices: Choices, history: History, log: EventLog, network: Network) -> Self {
        let (in_progress, has_failed) = Default::default();
        Self { plan, choices, history, log, network, in_progress, has_failed }
    }

    fn builder(&self) -> ChannelBuilder {
        let plan = &self.plan;
        let credential = Credential::sys(format!("client{}", plan.host), 1000, 100, []).to_opaque();
        let versions = match plan.version {
            1 => Versions::V1,
            2 => Versions::V2,
            _ => Versions::Both,
        };
        let [interval, timeout] = [plan.keepalive.0, plan.keepalive.1].map(Duration::from_millis);
        let [min_backoff, max_backoff] = [plan.backoff.0, plan.backoff.1].map(Duration::from_millis);
        let config = ConnectionConfig::new()
            .credits(plan.credits)
            .inline_size(plan.inline)
            .versions(versions)
            .keepalive_interval(interval)
            .keepalive_timeout(timeout);
        let builder = Channel::builder()
            .connection(config)
            .connect_timeout(Duration::from_secs(2))
            .reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: plan.retries })
            .deduplicated([PROGRAM, nfs_v3::PROGRAM])
            .service(SimulatedBackV1Server::new(SimulatedClient(self.choices.clone())));
        let level = match plan.protection {
            1 => Some(ProtectionLevel::Authentication),
            2 => Some(ProtectionLevel::Integrity),
            3 => Some(ProtectionLevel::Privacy),
            _ => None,
        };
        let builder = match level {
            Some(level) => {
                let mut mechanism = InsecureTestMechanism::new(server::KEY, &format!("client{}", plan.host));
                mechanism.lifetime = plan.ticket.map(Duration::from_millis);
                builder.security(GssSecurity::new(mechanism, level))
            }
            None => builder,
        };
        match credential {
            Ok(credential) => builder.credential(credential),
            // The name is short.
            Err(_) => builder,
        }
    }

    fn url(&self, server: Host) -> String {
        server::url(self.plan.scheme, server, self.plan.host, self.plan.version)
    }

    /// Makes the calls, waits until the faults are repaired and `repaired` is closed, makes a last call and closes the
    /// connections. After a message of `kills`, drops everything, and continues with the next call over new
    /// connections.
    ///
    /// For a client with a balancer, `lists` is called with the sender of the balancer's server list and the URLs of
    /// the servers.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, which is a bug in the simulation.
    pub async fn run(
        self,
        servers: Vec<Host>,
        lists: impl Fn(ServersSender, Vec<String>),
        repaired: Arc<Semaphore>,
        mut kills: UnboundedReceiver<()>,
    ) -> Result<(), ConnectError> {
        let this = Arc::new(self);
        let url = this.url(this.plan.server);
        let mut progress = Progress { next: 0, repaired, kills: &mut kills };
        loop {
            let is_done = match this.plan.connections {
                Connections::Single => {
                    let channel = this.builder().connect_lazy(&url)?;
                    let is_done = this.calls(channel.clone(), &mut progress).await;
                    if is_done {
                        channel.close().await;
                    }
                    is_done
                }
                Connections::Pool(size) => {
                    let channels =
                        (0..size).map(|_| this.builder().connect_lazy(&url)).collect::<Result<Vec<_>, _>>()?;
                    let pool = ChannelPool::new(channels);
                    let is_done = this.calls(pool.clone(), &mut progress).await;
                    if is_done {
                        pool.close().await;
                    }
                    is_done
                }
                Connections::Balanced | Connections::Hedged => {
                    let (sender, list) = Servers::channel();
                    lists(sender, servers.iter().map(|server| this.url(*server)).collect());
                    let mut attempts = Attempts::new(RetryPolicy::default());
                    if this.plan.connections == Connections::Hedged {
                        attempts = attempts.timeout(ATTEMPT_TIMEOUT).hedged();
                    }
                    let caller = ServiceCaller::balanced(Endpoints::new(list, this.builder()), attempts);
                    this.calls(caller, &mut progress).await
                }
            };
            if is_done {
                return Ok(());
            }
            event!(this.log, "client {} starts again", this.plan.host);
        }
    }

    /// Makes the calls that are left. Returns `false` if the client was killed.
    async fn calls<C: Invoke + Clone + Send + Sync + 'static>(
        self: &Arc<Self>,
        caller: C,
        progress: &mut Progress<'_>,
    ) -> bool {
        let stubs = Stubs::new(caller);
        let mut calls = JoinSet::new();
        let Progress { next, repaired, kills } = progress;
        let is_killed = tokio::select! {
            biased;
            Some(()) = kills.recv() => true,
            () = self.call_all(&stubs, next, repaired, &mut calls) => false,
        };
        if is_killed {
            calls.shutdown().await;
            self.in_progress.store(0, Ordering::Relaxed);
            self.has_failed.store(true, Ordering::Relaxed);
            self.history.kill(self.plan.host, self.log.elapsed());
            event!(self.log, "client {} is killed", self.plan.host);
        }
        !is_killed
    }

    async fn call_all<C: Invoke + Clone + Send + Sync + 'static>(
        self: &Arc<Self>,
        stubs: &Stubs<C>,
        next: &mut usize,
        repaired: &Semaphore,
        calls: &mut JoinSet<()>,
    ) {
        let room = Arc::new(Semaphore::new(self.plan.concurrency));
        while let Some(operation) = self.plan.operations.get(*next) {
            *next += 1;
            tokio::time::sleep(Duration::from_millis(operation.pause)).await;
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let (this, stubs, operation) = (Arc::clone(self), stubs.clone(), *operation);
            calls.spawn(async move {
                this.operate(&stubs, operation).await;
                drop(permit);
            });
        }
        while calls.join_next().await.is_some() {}
        event!(self.log, "client {} has no more calls", self.plan.host);
        // There are no permits: the wait ends with an error.
        let _ = repaired.acquire().await;
        let timeout = LAST_CALL_TIMEOUT.as_millis() as u64;
        let number = u64::MAX - u64::from(self.plan.host);
        self.call(stubs, Operation { number, is_last: true, pause: 0, timeout, patience: 0, call: CallKind::Null })
            .await;
    }

    /// Makes the call of an operation. If the call reads or writes a file, looks the file up first, and does not make
    /// the call if the lookup fails.
    async fn operate<C: Invoke + Clone>(&self, stubs: &Stubs<C>, mut operation: Operation) {
        if let CallKind::File { directory, block_len, call } = operation.call
            && let Some(name) = call.name_to_look_up()
        {
            let of = |call| CallKind::File { directory, block_len, call };
            let number = operation.number + LOOKUPS;
            let lookup = Operation { number, call: of(FileCall::LookUp { name }), ..operation };
            let CallOutcome::FileDone(FileReply::File(file)) = self.call(stubs, lookup).await else { return };
            operation.call = of(call.with_file(file));
        }
        self.call(stubs, operation).await;
    }

    async fn call<C: Invoke + Clone>(&self, stubs: &Stubs<C>, operation: Operation) -> CallOutcome {
        let plan = &self.plan;
        let server = (!plan.connections.is_balanced()).then_some(plan.server);
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        let index = self.history.begin(plan.host, server, operation, self.log.elapsed());
        event!(self.log, "client {} begins operation {}: {:?}", plan.host, operation.number, operation.call);
        let mut options = CallOptions::new();
        if operation.timeout > 0 {
            options = options.timeout(Duration::from_millis(operation.timeout));
        }
        let call = stubs.call(&operation, options);
        let result = if operation.patience == 0 {
            call.await
        } else {
            let Ok(result) = tokio::time::timeout(Duration::from_millis(operation.patience), call).await else {
                event!(self.log, "client {} gives up operation {}", plan.host, operation.number);
                self.history.end(index, CallOutcome::Killed, self.log.elapsed());
                self.in_progress.fetch_sub(1, Ordering::Relaxed);
                // Its memory is invalidated later.
                self.has_failed.store(true, Ordering::Relaxed);
                return CallOutcome::Killed;
            };
            result
        };
        let outcome = match result {
            Ok(Ok(CallReply::Number(number))) => CallOutcome::Done(number),
            Ok(Ok(CallReply::File(reply))) => CallOutcome::FileDone(reply),
            Ok(Err(what)) => CallOutcome::Wrong(what),
            Err(error) => {
                self.log.note(symptom(&error));
                CallOutcome::Failed { error: chain(&error), is_retry_safe: error.is_retry_safe(), cause: cause(&error) }
            }
        };
        event!(self.log, "client {} ends operation {}: {outcome:?}", plan.host, operation.number);
        let is_done = outcome.is_done();
        self.history.end(index, outcome.clone(), self.log.elapsed());
        let is_last = self.in_progress.fetch_sub(1, Ordering::Relaxed) == 1;
        if !is_done {
            self.has_failed.store(true, Ordering::Relaxed);
        } else if is_last && !plan.connections.is_balanced() && !self.has_failed.load(Ordering::Relaxed) {
            self.check_memory();
        }
        outcome
    }

    /// Logs a violation for each connection of the client with registered memory. Call this only while no call is in
    /// progress (RFC 8166 §8.1).
    fn check_memory(&self) {
        for link in self.network.links().into_iter().filter(|link| link.client == self.plan.host) {
            let regions = link.registered(SimEnd::A);
            if regions > 0 {
                self.log.add_wrong(format!(
                    "client {} has {regions} regions on connection {} without a call",
                    self.plan.host, link.number
                ));
            }
        }
    }
}
