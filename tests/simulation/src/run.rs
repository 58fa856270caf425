//! Plays a scenario, and checks the calls, the histories and the released resources.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rpcrdma::{client::discover::ServersSender, provider::sim::SimEnd};
use tokio::{
    runtime::Handle,
    sync::{
        Semaphore,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinSet,
};

use crate::{
    client::SimulatedCaller,
    disk::{Applied, SharedDisk, TornPart},
    fault::{Fault, FaultKind},
    history::{Excuse, History, check},
    log::{EventLog, event},
    network::{Direction, Host, Medium, Network},
    panics,
    random::Choices,
    rdma,
    registers::check_histories,
    scenario::{ClientPlan, Connections, Scenario},
    server::ServerHost,
    tcp,
};

/// Maximum virtual duration of a run, without jumps of the clock.
const MAX_DURATION: Duration = Duration::from_secs(1200);
/// Time after the repair of a fault in which its consequences may still make calls fail: pauses before reconnects, and
/// time-outs.
const AFTERMATH: Duration = Duration::from_secs(20);
/// Interval of the checks of the servers' memory limits.
const MONITOR_INTERVAL: Duration = Duration::from_millis(20);
/// Smallest minimum back-off, in milliseconds, for which the number of a client's attempts to connect is checked.
const MIN_BACKOFF: u64 = 100;
/// Maximum number of attempts of a channel to connect to a server in [`REQUEST_WINDOW`].
const MAX_REQUESTS: usize = 20;
/// Time in which a channel may make [`MAX_REQUESTS`] attempts.
const REQUEST_WINDOW: Duration = Duration::from_secs(3);
/// Maximum time for the release of connections, memory and tasks at the end of a run.
const RELEASE: Duration = Duration::from_secs(30);

/// The result of a run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The violations that were found.
    pub wrong: Vec<String>,
    /// The hash of all events, and the number of events.
    pub digest: (u64, u64),
    /// Number of times that faults took effect, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The effects of faults on the product, such as lost connections and kinds of failed calls.
    pub symptoms: BTreeSet<String>,
    /// Number of calls, and number of calls without a correct result.
    pub calls: (u64, u64),
    /// Number of objects whose histories were checked, and number of histories whose check was given up.
    pub histories: (u64, u64),
    /// The events in words, if they were kept.
    pub lines: Vec<String>,
}

/// The state that the parts of a run share.
struct Run {
    scenario: Scenario,
    network: Network,
    log: EventLog,
    history: History,
    servers: Vec<ServerHost>,
    excuses: Mutex<Vec<Excuse>>,
    /// Senders whose messages kill a client, by the client's host.
    kills: Mutex<BTreeMap<Host, UnboundedSender<()>>>,
    /// The sender of each balancer's list of servers and the true URLs of the servers, by client.
    lists: Mutex<BTreeMap<Host, (ServersSender, Vec<String>)>>,
}

/// Plays a scenario, and checks the run. `keeps_lines` is `true` to keep the events in words.
///
/// # Errors
/// Returns an error if the simulation itself fails.
pub fn run(scenario: &Scenario, keeps_lines: bool) -> anyhow::Result<RunReport> {
    rdma::scheme()?;
    tcp::scheme()?;
    rpcrdma::seed_random_numbers(Some(scenario.seed));
    panics::watch();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let report = runtime.block_on(async {
        let jumps = scenario.faults.iter().filter(|fault| fault.kind == FaultKind::ClockJump);
        let limit = MAX_DURATION + Duration::from_millis(jumps.map(|fault| fault.number).sum());
        let choices = Choices::new(scenario.seed);
        let log = EventLog::new(keeps_lines);
        let network = Network::new(choices.fork(), log.clone());
        let _current = network.enter();
        let (crashes, crashed) = unbounded_channel();
        let shared = SharedDisk::default();
        let checks_order = has_undisturbed_queues(scenario);
        let servers = scenario.server_hosts().map(|host| {
            ServerHost::new(
                host,
                if scenario.shares_disk { shared.clone() } else { SharedDisk::default() },
                (scenario.server.clone(), checks_order),
                network.clone(),
                choices.fork(),
                log.clone(),
                crashes.clone(),
            )
        });
        let (history, excuses, lists, kills) = Default::default();
        let run = Arc::new(Run {
            servers: servers.collect(),
            scenario: scenario.clone(),
            network,
            log: log.clone(),
            history,
            excuses,
            kills,
            lists,
        });
        let played = tokio::time::timeout(limit, run.play(&choices, crashed)).await;
        let mut wrong = match played {
            Ok(result) => result?,
            Err(_) => vec![format!("the run did not end within {limit:?}")],
        };
        let records = run.history.records();
        let excuses = run.excuses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut applied: BTreeMap<u64, Applied> = BTreeMap::new();
        let disks = if scenario.shares_disk { &run.servers[..1] } else { &run.servers };
        for server in disks {
            for (number, one) in &server.disk.lock().applied {
                applied.entry(*number).and_modify(|all| all.times += one.times).or_insert(*one);
            }
        }
        wrong.extend(log.wrong());
        let servers: Vec<_> = scenario.server_hosts().collect();
        wrong.extend(check(&records, &excuses, &applied, &servers, scenario));
        let histories = check_histories(&records, scenario.shares_disk);
        wrong.extend(histories.wrong);
        let failed = records.iter().filter(|record| !record.outcome.is_done());
        let calls = (records.len() as u64, failed.count() as u64);
        let faults = run.network.hits();
        run.note_reconnects();
        wrong.extend(scenario.clients.iter().filter_map(|client| run.check_requests(client)));
        anyhow::Ok((wrong, calls, (histories.checked, histories.undecided), faults, log))
    });
    let alive = runtime.metrics().num_alive_tasks();
    drop(runtime);
    rpcrdma::seed_random_numbers(None);
    let panics = panics::take();
    let (mut wrong, calls, histories, faults, log) = report?;
    wrong.extend(panics.into_iter().map(|panic| format!("a task panicked: {panic}")));
    if alive > 0 && wrong.is_empty() {
        wrong.push(format!("{alive} tasks are left"));
    }
    let (digest, lines, symptoms) = (log.digest(), log.lines(), log.symptoms());
    Ok(RunReport { wrong, digest, faults, symptoms, calls, histories, lines })
}

/// Returns `true` if every call that arrives at a server is executed, because no connection is lost and no caller gives
/// up a call.
fn has_undisturbed_queues(scenario: &Scenario) -> bool {
    let clients = &scenario.clients;
    scenario.faults.is_empty()
        && clients.iter().all(|client| client.connections != Connections::Hedged)
        && clients.iter().flat_map(|client| &client.operations).all(|operation| operation.patience == 0)
}

impl Run {
    async fn play(
        self: &Arc<Self>,
        choices: &Choices,
        crashed: UnboundedReceiver<(Host, FaultKind)>,
    ) -> anyhow::Result<Vec<String>> {
        for server in &self.servers {
            server.start().await?;
        }
        // Not `watch`, which wakes its receivers in a random order.
        let repaired = Arc::new(Semaphore::new(0));
        let mut clients = JoinSet::new();
        for plan in &self.scenario.clients {
            let caller = SimulatedCaller::new(
                plan.clone(),
                choices.fork(),
                self.history.clone(),
                self.log.clone(),
                self.network.clone(),
            );
            let (this, host, repaired) = (Arc::clone(self), plan.host, Arc::clone(&repaired));
            let servers = self.scenario.server_hosts().collect();
            let (kill, kills) = unbounded_channel();
            self.kills.lock().unwrap_or_else(PoisonError::into_inner).insert(host, kill);
            clients.spawn(async move {
                let lists = |sender: ServersSender, urls: Vec<String>| {
                    sender.set(urls.clone());
                    let mut lists = this.lists.lock().unwrap_or_else(PoisonError::into_inner);
                    lists.insert(host, (sender, urls));
                };
                caller.run(servers, lists, repaired, kills).await
            });
        }
        let monitor = tokio::spawn(Arc::clone(self).monitor());
        let restarts = tokio::spawn(Arc::clone(self).restart_crashed(crashed));
        let mut faults = JoinSet::new();
        for fault in &self.scenario.faults {
            let (this, fault) = (Arc::clone(self), fault.clone());
            faults.spawn(async move {
                tokio::time::sleep(Duration::from_millis(fault.at)).await;
                this.fault(&fault).await;
            });
        }
        faults.join_all().await;
        for server in &self.servers {
            let mut state = server.state.lock();
            (state.crashes_after_effect, state.torn) = (false, None);
        }
        self.network.cancel_cuts();
        // A server that crashed at the last moment starts again.
        tokio::time::sleep(Duration::from_millis(200)).await;
        event!(self.log, "all faults are repaired");
        repaired.close();
        let mut wrong = Vec::new();
        for ended in clients.join_all().await {
            ended?;
        }
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.check_release(&mut wrong).await;
        restarts.abort();
        monitor.abort();
        for server in &self.servers {
            let handle = server.handle().await;
            server.shut_down().await;
            let Some(handle) = handle else { continue };
            let (stats, memory) = (handle.stats(), handle.memory());
            if stats.open > 0 || stats.counters.exposed_regions > 0 || stats.counters.registered_bytes > 0 {
                wrong.push(format!("server {} ended with {stats:?}", server.host));
            }
            if memory.held > 0 {
                wrong.push(format!("server {} ended with {memory:?}", server.host));
            }
        }
        // Handlers run to their end, even if nobody waits for the reply. The tasks that carried the connections end
        // when both ends have.
        let end = self.log.elapsed() + RELEASE;
        while Handle::current().metrics().num_alive_tasks() > 0 && self.log.elapsed() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(wrong)
    }

    /// Kills each server that reports a crash, and starts the server again 100 ms later.
    async fn restart_crashed(self: Arc<Self>, mut crashed: UnboundedReceiver<(Host, FaultKind)>) {
        while let Some((host, kind)) = crashed.recv().await {
            let Some(server) = self.servers.iter().find(|server| server.host == host) else { continue };
            server.kill(kind).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            if let Err(error) = server.start().await {
                event!(self.log, "server {host} does not start: {error}");
            }
        }
    }

    /// Checks at intervals that the calls of each server do not exceed its memory limit.
    async fn monitor(self: Arc<Self>) {
        loop {
            tokio::time::sleep(MONITOR_INTERVAL).await;
            for server in &self.servers {
                let Some(handle) = server.handle().await else { continue };
                let memory = handle.memory();
                if memory.held > self.scenario.server.memory {
                    self.log.add_wrong(format!("server {} exceeds its limit: {memory:?}", server.host));
                }
            }
        }
    }

    /// Waits until clients and servers have released connections and memory. Adds what is left after [`RELEASE`] to
    /// `wrong`.
    async fn check_release(&self, wrong: &mut Vec<String>) {
        let end = self.log.elapsed() + RELEASE;
        loop {
            let mut held = Vec::new();
            for server in &self.servers {
                let Some(handle) = server.handle().await else { continue };
                let (stats, memory) = (handle.stats(), handle.memory());
                if stats.open > 0 || memory.held > 0 {
                    held.push(format!("server {} holds {} connections, {memory:?}", server.host, stats.open));
                }
            }
            for link in self.network.links() {
                let registered = [SimEnd::A, SimEnd::B].map(|end| link.registered(end));
                held.push(format!("connection {} is not closed, with {registered:?} regions", link.number));
            }
            if held.is_empty() {
                return;
            }
            if self.log.elapsed() > end {
                wrong.extend(held);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Notes in the log if a client had to connect again.
    fn note_reconnects(&self) {
        for client in &self.scenario.clients {
            let channels = client.connections.channels() as u64;
            let counts = self.network.connections(client.host);
            if counts.into_iter().any(|count| count > channels) {
                self.log.note("client: connected again".to_owned());
            }
        }
    }

    /// Checks that a client pauses between its attempts to connect, even if its connections are accepted and then
    /// closed. Returns a description of the violation, or `None` if there is none. Checks nothing if the clock jumps,
    /// the client is killed, or its minimum back-off is shorter than [`MIN_BACKOFF`].
    fn check_requests(&self, client: &ClientPlan) -> Option<String> {
        let faults = &self.scenario.faults;
        let starts_again = |fault: &Fault| match fault.kind {
            // Time passes, or a new process knows nothing of earlier attempts.
            FaultKind::ClockJump => true,
            FaultKind::KillClient => fault.client == client.host,
            _ => false,
        };
        if client.backoff.0 < MIN_BACKOFF || faults.iter().any(starts_again) {
            return None;
        }
        let max = MAX_REQUESTS * client.connections.channels();
        let is_too_many = |times: &[Duration]| times[max] - times[0] < REQUEST_WINDOW;
        let many = self.network.requests(client.host).into_iter().find(|times| times.windows(max + 1).any(is_too_many));
        many.map(|_| {
            format!("client {} tried to connect to a server more than {max} times in {REQUEST_WINDOW:?}", client.host)
        })
    }

    fn server(&self, host: Host) -> Option<&ServerHost> {
        self.servers.iter().find(|server| server.host == host)
    }

    /// Plays a fault, from its beginning to its repair.
    async fn fault(&self, fault: &Fault) {
        let Some(server) = self.server(fault.server) else { return };
        let (client, host) = (fault.client, fault.server);
        event!(self.log, "fault: {fault}");
        let index = {
            let mut excuses = self.excuses.lock().unwrap_or_else(PoisonError::into_inner);
            excuses.push(Excuse { fault: fault.clone(), from: self.log.elapsed(), until: Duration::MAX });
            excuses.len() - 1
        };
        let pause = tokio::time::sleep(Duration::from_millis(fault.len));
        match fault.kind {
            FaultKind::Cut => self.network.cut_after(client, host, fault.number),
            FaultKind::Separate => {
                self.network.separate(client, host);
                pause.await;
                self.network.reunite(client, host);
            }
            FaultKind::OneWay => {
                self.network.stall(client, host, fault.direction, true);
                pause.await;
                self.network.stall(client, host, fault.direction, false);
            }
            FaultKind::Slow => {
                self.network.slow_down(host, fault.number as u32);
                pause.await;
                self.network.slow_down(host, 1);
            }
            FaultKind::KillClient => {
                let links: Vec<_> = self.network.links().into_iter().filter(|link| link.client == client).collect();
                links.iter().for_each(|link| link.isolate(true));
                let kill = self.kills.lock().unwrap_or_else(PoisonError::into_inner).get(&client).cloned();
                if kill.is_some_and(|kill| kill.send(()).is_ok()) {
                    self.network.hit(fault.kind);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.network.end_isolation(|link| link.client == client);
            }
            FaultKind::Kill | FaultKind::HostDown => {
                server.kill(fault.kind).await;
                pause.await;
                self.start(server).await;
            }
            FaultKind::Restart => {
                server.shut_down().await;
                pause.await;
                self.start(server).await;
            }
            FaultKind::CrashAfterEffect => {
                server.state.lock().crashes_after_effect = true;
                pause.await;
                server.state.lock().crashes_after_effect = false;
            }
            FaultKind::TornWrite => {
                let part = if fault.number == 0 { TornPart::All } else { TornPart::Reply };
                server.state.lock().torn = Some(part);
                pause.await;
                server.state.lock().torn = None;
            }
            FaultKind::ContextsExpire => server.expire_contexts().await,
            FaultKind::DiskFull => {
                server.state.lock().is_full = true;
                pause.await;
                server.state.lock().is_full = false;
            }
            FaultKind::SlowHandlers => {
                server.state.lock().handler_pause = fault.number;
                pause.await;
                server.state.lock().handler_pause = 0;
            }
            FaultKind::NoRegistration | FaultKind::NoInvalidation => {
                let end = if fault.direction == Direction::ToServer { SimEnd::A } else { SimEnd::B };
                let links = self.network.links().into_iter();
                for link in links.filter(|link| (link.client, link.server) == (client, host)) {
                    if let Medium::Rdma(network) = &link.medium {
                        self.network.hit(fault.kind);
                        if fault.kind == FaultKind::NoRegistration {
                            network.refuse_registration(end);
                        } else {
                            network.refuse_invalidation(end);
                        }
                    }
                }
            }
            FaultKind::Refuse => {
                self.network.refuse(host, true);
                pause.await;
                self.network.refuse(host, false);
            }
            FaultKind::ClockJump => {
                self.network.hit(fault.kind);
                tokio::time::advance(Duration::from_millis(fault.number)).await;
            }
            FaultKind::FalseList => {
                let known = self
                    .lists
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get(&client)
                    .map(|(_, urls)| urls.clone());
                if let Some(urls) = known {
                    self.network.hit(fault.kind);
                    // The first one is missing, and one is listed where no server runs.
                    let absent = urls.first().map(|url| url.replacen("00", "90", 1));
                    self.set_list(client, urls.iter().skip(1).cloned().chain(absent).collect());
                    pause.await;
                    self.set_list(client, urls);
                }
            }
        }
        event!(self.log, "end of fault: {fault}");
        let until = match fault.kind {
            // They wait for the next registration or invalidation.
            FaultKind::NoRegistration | FaultKind::NoInvalidation => Duration::MAX,
            _ => self.log.elapsed() + AFTERMATH,
        };
        self.excuses.lock().unwrap_or_else(PoisonError::into_inner)[index].until = until;
    }

    fn set_list(&self, client: Host, urls: Vec<String>) {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((sender, _)) = lists.get(&client) {
            sender.set(urls);
        }
    }

    async fn start(&self, server: &ServerHost) {
        if let Err(error) = server.start().await {
            event!(self.log, "server {} does not start: {error}", server.host);
        }
    }
}
