//! The servers of a run, which can be killed and started again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rpcrdma::{
    Server,
    gss::{GssAuthenticator, GssServerConfig},
    security::StandardAuthenticator,
    server::{BindError, DuplicateRequests, LimitScope, Limits, ServerHandle},
};
use rpcrdma_specs::nfs3::nfs_v3::{self, NfsV3Server};
use tokio::{
    sync::{Mutex, Semaphore, mpsc::UnboundedSender},
    task::JoinHandle,
};

use crate::{
    disk::{SharedDisk, SharedHost},
    fairness::{NotingAuthenticator, Queues},
    fault::FaultKind,
    file_tree::FileService,
    generated::{self, RandomServices},
    insecure_test_mechanism::InsecureTestMechanism,
    log::{EventLog, event},
    network::{Host, Network},
    protocol::simulated_v1::{PROGRAM, SimulatedV1Server},
    random::Choices,
    scenario::ServerPlan,
    service::SimulatedServer,
};

/// Timeout of callbacks to clients.
pub const CALLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The key of the security mechanism, which clients and servers share.
pub(crate) const KEY: u64 = 0x7e57_0000_5ec2_e7aa;

/// The time that a shutdown gives the calls in progress.
const DRAIN: Duration = Duration::from_secs(5);
/// Maximum time from the end of [`DRAIN`] to the end of a shutdown. Clients close their sides in this time.
const MAX_SHUTDOWN: Duration = Duration::from_secs(6);

/// A simulated host, whose server can be killed and started again.
#[derive(Clone)]
pub struct ServerHost {
    /// Number of the host.
    pub host: Host,
    /// The disk with the data of the service. It outlives the server. Several hosts may share it.
    pub disk: SharedDisk,
    /// The state of the host, which faults change. It outlives the server.
    pub state: SharedHost,
    plan: ServerPlan,
    /// `true` if nothing disturbs the queues of calls, so that their order is checked.
    checks_order: bool,
    network: Network,
    choices: Choices,
    log: EventLog,
    crashes: UnboundedSender<(Host, FaultKind)>,
    running: Arc<Mutex<Option<RunningServer>>>,
}

struct RunningServer {
    handle: ServerHandle,
    mechanism: InsecureTestMechanism,
    task: JoinHandle<()>,
    gone: Arc<Semaphore>,
}

/// Returns the URL with which a client connects to a server. `version` 1 or 2 adds the option `version`, unless the
/// scheme is `sim-tcp`.
#[must_use]
pub fn url(scheme: &str, server: Host, client: Host, version: u8) -> String {
    let port = if scheme == "sim-tcp" { 2000 } else { 1000 } + u16::from(server);
    let version = match version {
        1 | 2 if scheme != "sim-tcp" => format!("&version={version}"),
        _ => String::new(),
    };
    format!("{scheme}://10.0.0.{server}:{port}?from={client}{version}")
}

impl ServerHost {
    /// Creates a host whose server does not run.
    #[must_use]
    pub fn new(
        host: Host,
        disk: SharedDisk,
        (plan, checks_order): (ServerPlan, bool),
        network: Network,
        choices: Choices,
        log: EventLog,
        crashes: UnboundedSender<(Host, FaultKind)>,
    ) -> Self {
        let (state, running) = Default::default();
        Self { host, disk, state, plan, checks_order, network, choices, log, crashes, running }
    }

    /// Starts the server, unless it runs.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid or the server cannot listen.
    pub async fn start(&self) -> Result<(), BindError> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        let epoch = {
            let mut state = self.state.lock();
            state.epoch += 1;
            state.epoch
        };
        let gone = Arc::new(Semaphore::new(0));
        let plan = &self.plan;
        let has_limits = plan.handlers > 0 || plan.per_caller > 0;
        let queues = Queues::new(self.checks_order && has_limits);
        let service = SimulatedServer {
            host: self.host,
            epoch,
            disk: self.disk.clone(),
            state: self.state.clone(),
            queues: queues.clone(),
            choices: self.choices.fork(),
            log: self.log.clone(),
            network: self.network.clone(),
            limits: (self.plan.handlers, self.plan.per_caller),
            in_progress: Arc::default(),
            gone: Arc::clone(&gone),
            crashes: self.crashes.clone(),
        };
        let lifetime = Duration::from_millis(plan.lifetime);
        let mechanism = InsecureTestMechanism::new(KEY, "server");
        let authenticator =
            GssAuthenticator::with_config(mechanism.clone(), GssServerConfig::new().max_lifetime(lifetime))?;
        let inner = authenticator.or(StandardAuthenticator);
        let duplicates = DuplicateRequests::new().store(self.disk.clone());
        let builder = Server::builder()
            .authenticator(NotingAuthenticator { inner, queues })
            .service(NfsV3Server::new(FileService(service.clone())))
            .duplicate_requests(nfs_v3::PROGRAM, duplicates.clone())
            .duplicate_requests(PROGRAM, duplicates);
        let mut builder = generated::serve(builder, RandomServices(service.clone()))
            .service(SimulatedV1Server::new(service))
            .credits(plan.credits)
            .inline_size(plan.inline)
            .max_memory(plan.memory)
            .idle_timeout(Duration::from_millis(plan.idle))
            .callback_timeout(CALLBACK_TIMEOUT)
            .drain_timeout(DRAIN);
        if has_limits {
            let mut limits = Limits::new().queue(1000);
            if plan.handlers > 0 {
                limits = limits.concurrency(plan.handlers);
            }
            if plan.per_caller > 0 {
                limits = limits.per_caller(plan.per_caller);
            }
            builder = builder.limits(LimitScope::Program(PROGRAM), limits);
        }
        for scheme in ["sim-rdma", "sim-tcp"] {
            let url = url(scheme, self.host, 0, 0);
            builder = builder.listen(url.split('?').next().unwrap_or_default());
        }
        let server = builder.bind().await?;
        let handle = server.handle();
        *running = Some(RunningServer { handle, mechanism, task: tokio::spawn(server.serve()), gone });
        drop(running);
        // Clients that did not notice the end of the earlier server get a reset when their messages arrive here.
        self.network.end_isolation(|link| link.server == self.host);
        self.network.set_down(self.host, false);
        event!(self.log, "server {} starts", self.host);
        Ok(())
    }

    /// Kills the server because of a fault of the kind `kind`. The handlers of the server have no more effect, and
    /// nothing that the server sends arrives. Except for [`FaultKind::HostDown`], the host resets the connections at
    /// once.
    pub async fn kill(&self, kind: FaultKind) {
        let Some(RunningServer { handle, task, gone, .. }) = self.running.lock().await.take() else { return };
        self.state.lock().epoch += 1;
        self.network.set_down(self.host, true);
        let links: Vec<_> = self.network.links().into_iter().filter(|link| link.server == self.host).collect();
        links.iter().for_each(|link| link.isolate(true));
        event!(self.log, "server {} is killed with {} connections", self.host, links.len());
        if !links.is_empty() {
            self.network.hit(kind);
        }
        handle.shutdown_within(Duration::ZERO);
        // The task ends, because there is no grace.
        let _ = task.await;
        self.note(&handle);
        gone.close();
        if kind != FaultKind::HostDown {
            links.iter().for_each(|link| link.isolate(false));
        }
    }

    /// Shuts the server down in an orderly way. Adds a violation to the log if the shutdown takes too long and the
    /// clock has not jumped.
    pub async fn shut_down(&self) {
        let Some(RunningServer { handle, task, gone, .. }) = self.running.lock().await.take() else { return };
        if handle.stats().open > 0 {
            self.network.hit(FaultKind::Restart);
        }
        event!(self.log, "server {} shuts down", self.host);
        let start = self.log.elapsed();
        handle.shutdown();
        // A panic of the product is reported by the hook of the run.
        let _ = task.await;
        self.note(&handle);
        gone.close();
        let took = self.log.elapsed() - start;
        let has_jumped = self.network.hits().contains_key(&FaultKind::ClockJump);
        if took > DRAIN + MAX_SHUTDOWN && !has_jumped {
            self.log.add_wrong(format!("the shutdown of server {} took {took:?}", self.host));
        }
        event!(self.log, "server {} has shut down", self.host);
    }

    /// Notes the effects of faults that the counters of the server show, such as a lost connection.
    fn note(&self, handle: &ServerHandle) {
        let stats = handle.stats();
        let (ended, counters) = (stats.ended, stats.counters);
        for (count, what) in [
            (ended.lost, "server: connection lost"),
            (ended.client_violation, "server: client violated the protocol"),
            (ended.reported_by_client, "server: client reported a violation"),
            (ended.negotiation_failed, "server: negotiation failed"),
            (stats.setup_failed, "server: set-up failed"),
            (counters.errors_sent, "server: transport error sent"),
            (counters.messages_discarded, "server: message discarded"),
            (counters.calls_resent, "server: call in the reverse direction resent"),
        ] {
            if count > 0 {
                self.log.note(what.to_owned());
            }
        }
        for stats in handle.duplicate_requests() {
            if stats.hits > 0 {
                self.log.note("server: call recognized that was executed".to_owned());
            }
            if stats.waits > 0 {
                self.log.note("server: call recognized that was in progress".to_owned());
            }
        }
    }

    /// Lets all security contexts of the running server expire.
    pub async fn expire_contexts(&self) {
        if let Some(running) = &*self.running.lock().await {
            if running.mechanism.started.load(Ordering::Relaxed) > 0 {
                self.network.hit(FaultKind::ContextsExpire);
            }
            running.mechanism.expire_contexts();
        }
    }

    /// Returns the handle of the server, or `None` if it does not run.
    pub async fn handle(&self) -> Option<ServerHandle> {
        self.running.lock().await.as_ref().map(|running| running.handle.clone())
    }
}
