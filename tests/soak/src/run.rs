//! The course of a run: servers are started, workers and disturbances run for the given time, and all effects are
//! verified twice.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use anyhow::Context as _;
use rpcrdma_examples::{
    command::{human_bytes, raise_descriptor_limit},
    say,
};
use rpcrdma_trials::process::programs;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    additions::CounterWork,
    blobs::BlobWork,
    copies::{CopyWork, Order, Orders},
    disturb::{Kind, Lane, Tally},
    files::FileWork,
    ledger::{Ledger, Totals},
    report::{print_disturbances, print_faults, print_services, print_slopes},
    samples::Sampler,
    server::{Scheme, Server, Service},
    work::{Phase, Surroundings, Work, drive},
};

/// Number of file descriptors that this program needs.
pub(crate) const DESCRIPTORS: u64 = 4096;
/// Maximum time for the last disturbances to end.
const MAX_LAST: Duration = Duration::from_secs(120);
/// Maximum time for all workers to verify their effects.
const MAX_VERIFICATION: Duration = Duration::from_secs(300);
/// The transports of the workers of each server, by service.
const WORKERS: [(Service, &[Scheme]); 4] = [
    (Service::Blobstore, &[Scheme::Iwarp, Scheme::Iwarp, Scheme::Tcp]),
    (Service::Nfs3d, &[Scheme::Iwarp, Scheme::Tcp]),
    (Service::Nfscp, &[Scheme::Iwarp]),
    (Service::Counters, &[Scheme::Iwarp, Scheme::Iwarp, Scheme::Tcp]),
];

/// Options of all runs, whether or not this program starts the servers.
#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// Duration, in minutes. The verification at the end takes some seconds more
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// Seed of the order of disturbances and of the workers' choices. Default: a random one, which is printed
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

impl CommonArgs {
    /// Chooses a random seed if none is given. Prints and returns the seed and the duration.
    pub(crate) fn begin(&self) -> (u64, Duration) {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        say!("soak of {} minutes, --seed {seed}", self.minutes);
        (seed, Duration::from_secs_f64(self.minutes * 60.0))
    }
}

/// Options of a run with servers that this program starts and disturbs.
#[derive(Debug, clap::Args)]
pub(crate) struct SoakArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Directory of the programs blobstore, nfs3d and nfscp. Default: that of this program
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Run only this service. May be repeated
    #[arg(long, value_name = "SERVICE")]
    only: Vec<Service>,
    /// Internal: this program has a mount namespace of its own
    #[arg(long, hide = true)]
    pub(crate) isolated: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.1..=100_000.0).contains(&minutes) => Ok(minutes),
        _ => Err("expected a number of minutes, at least 0.1".to_owned()),
    }
}

impl SoakArgs {
    fn includes(&self, service: Service) -> bool {
        self.only.is_empty() || self.only.contains(&service)
    }

    /// Returns `true` if servers of the service are needed. `Nfscp` uses the servers of `Nfs3d`.
    fn serves(&self, service: Service) -> bool {
        match service {
            Service::Nfscp => false,
            Service::Nfs3d => self.includes(Service::Nfs3d) || self.includes(Service::Nfscp),
            _ => self.includes(service),
        }
    }
}

/// The workers of a run. They stop when this value is dropped.
pub(crate) struct Workers {
    tasks: JoinSet<()>,
    phase: watch::Sender<Phase>,
    subscribed: watch::Receiver<Phase>,
    done: mpsc::Sender<()>,
    is_done: mpsc::Receiver<()>,
    pub(crate) regions: Vec<Arc<AtomicU32>>,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let (phase, subscribed) = watch::channel(Phase::Work);
        let (done, is_done) = mpsc::channel(64);
        Self { tasks: JoinSet::new(), phase, subscribed, done, is_done, regions: Vec::new() }
    }

    pub(crate) fn spawn(&mut self, work: impl Work) {
        self.tasks.spawn(drive(work, self.subscribed.clone(), self.done.clone()));
    }

    /// Lets all workers verify their effects. Returns a fault if not all do so in time, or if a worker has ended.
    pub(crate) async fn verify(&mut self, number: u32) -> Option<String> {
        self.phase.send_replace(Phase::Verify(number));
        let all = self.tasks.len();
        let verified = async {
            for _ in 0..all {
                tokio::select! {
                    Some(()) = self.is_done.recv() => {}
                    Some(ended) = self.tasks.join_next() => return Some(format!("a worker has ended: {ended:?}")),
                }
            }
            None
        };
        timeout(MAX_VERIFICATION, verified)
            .await
            .unwrap_or_else(|_| Some(format!("the effects are not verified after {} s", MAX_VERIFICATION.as_secs())))
    }
}

/// Runs servers, workers and disturbances with files in `folder`, and prints the report. `reason` is the reason for the
/// lack of a mount namespace.
pub(crate) async fn soak(arguments: SoakArgs, reason: String, folder: &Path) -> anyhow::Result<ExitCode> {
    let descriptors = raise_descriptor_limit(DESCRIPTORS);
    anyhow::ensure!(
        descriptors >= DESCRIPTORS,
        "this program needs {DESCRIPTORS} open files, and the limit is {descriptors}: raise it (ulimit -Hn)"
    );
    let programs = programs(arguments.programs.clone())?;
    let (seed, duration) = arguments.common.begin();

    let ledgers: BTreeMap<Service, Arc<Ledger>> = Service::ALL
        .into_iter()
        .filter(|service| arguments.includes(*service))
        .map(|service| (service, Arc::default()))
        .collect();
    let mut servers = Vec::new();
    for service in Service::ALL.into_iter().filter(|service| arguments.serves(*service)) {
        // nfs3d may run for nfscp only.
        let ledger = ledgers.get(&service).or_else(|| ledgers.get(&Service::Nfscp)).context("there is no service")?;
        for (number, is_killed) in [(1, false), (2, true)] {
            let place = folder.join(format!("{}-{number}", service.name()));
            let started =
                Server::start((service, number), is_killed, &programs, place, arguments.isolated, Arc::clone(ledger));
            servers.push(Arc::new(started.await?));
        }
    }
    let (orders, next_order) = mpsc::channel(1);
    let mut workers = Workers::new();
    start_workers(&arguments, &servers, &ledgers, (&programs, folder, next_order), seed, &mut workers)?;

    let tally = Arc::new(tally(&arguments, reason));
    let begun = Instant::now();
    let end = begun + duration;
    let mut lanes = JoinSet::new();
    for (kinds, seed) in [(&Kind::OF_PROCESSES[..], seed), (&Kind::OF_NETWORKS[..], seed.rotate_left(32) ^ 1)] {
        let (servers, orders, tally) = (servers.clone(), orders.clone(), Arc::clone(&tally));
        let lane = Lane { kinds, servers, orders, tally, random: fastrand::Rng::with_seed(seed) };
        lanes.spawn(lane.play_until(end));
    }
    lanes.spawn(show_progress(ledgers.values().cloned().collect(), begun, end));
    let sampler = Sampler { servers: servers.clone(), processes: Vec::new(), regions: workers.regions.clone(), begun };
    let series = tokio::spawn(sampler.sample_until(end)).await.context("the samples are lost")?;
    let mut faults = Vec::new();
    while let Some(ended) = timeout(MAX_LAST, lanes.join_next()).await.context("the disturbances do not end")? {
        if let Err(error) = ended {
            faults.push(format!("the disturbances have ended: {error}"));
        }
    }

    // Nothing disturbs any more. All effects must be found, also after another restart.
    faults.extend(workers.verify(1).await);
    for server in &servers {
        if let Err(error) = server.shut_down_and_start().await {
            faults.push(format!("{error:#}"));
        }
    }
    faults.extend(workers.verify(2).await);
    for server in &servers {
        if let Err(error) = server.process().await.check() {
            server.ledger.fault(format!("{}: {error:#}", server.name()));
        }
    }
    drop(workers);

    faults.extend(print_services(ledgers.iter().map(|(service, ledger)| (service.name(), &**ledger))));
    faults.extend(print_disturbances(&tally, duration));
    faults.extend(print_slopes(&series, duration));
    Ok(print_faults(&faults, begun, seed))
}

/// Prints the totals of all workers each minute until `end`. Faults are only counted, because they are printed in full
/// at the end of the run.
pub(crate) async fn show_progress(ledgers: Vec<Arc<Ledger>>, begun: Instant, end: Instant) {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut next = begun + MINUTE;
    while next < end {
        sleep_until(next).await;
        next += MINUTE;
        let totals: Vec<Totals> = ledgers.iter().map(|ledger| ledger.read()).collect();
        let sum = |of: fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
        let (calls, bytes) = (sum(|totals| totals.calls), human_bytes(sum(|totals| totals.bytes)));
        let (acknowledged, faults) = (sum(|totals| totals.acknowledged), sum(|totals| totals.faults.len() as u64));
        let minutes = begun.elapsed().as_secs() / 60;
        say!("{minutes} min: {calls} calls, {bytes} compared, {acknowledged} effects acknowledged, {faults} faults");
    }
}

fn start_workers(
    arguments: &SoakArgs,
    servers: &[Arc<Server>],
    ledgers: &BTreeMap<Service, Arc<Ledger>>,
    (programs, folder, orders): (&Path, &Path, mpsc::Receiver<Order>),
    seed: u64,
    workers: &mut Workers,
) -> anyhow::Result<()> {
    let orders: Arc<Orders> = Arc::new(Mutex::new(orders));
    let mut id = 0;
    for (service, schemes) in WORKERS.into_iter().filter(|(service, _)| arguments.includes(*service)) {
        let of = if service == Service::Nfscp { Service::Nfs3d } else { service };
        for server in servers.iter().filter(|server| server.service == of) {
            for scheme in schemes {
                id += 1;
                let regions = Arc::<AtomicU32>::default();
                workers.regions.push(Arc::clone(&regions));
                let surroundings = Surroundings {
                    progress: Arc::clone(&server.progress),
                    ledger: Arc::clone(&ledgers[&service]),
                    id,
                    random: fastrand::Rng::with_seed(seed.wrapping_add(id)),
                    regions,
                };
                let url = server.url(*scheme);
                match service {
                    Service::Blobstore => workers.spawn(BlobWork::new(surroundings, &url)?),
                    Service::Nfs3d => {
                        let (url, mount_port) = server.nfs_url(*scheme, "");
                        workers.spawn(FileWork::new(surroundings, url, Some(mount_port)));
                    }
                    Service::Nfscp => {
                        let of = (Arc::clone(server), *scheme);
                        workers.spawn(CopyWork::new(surroundings, of, programs, folder, Arc::clone(&orders))?);
                    }
                    Service::Counters => workers.spawn(CounterWork::new(surroundings, &url)?),
                }
            }
        }
    }
    Ok(())
}

/// Returns a tally with the kinds of disturbances that are not possible in this run.
fn tally(arguments: &SoakArgs, reason: String) -> Tally {
    let mut tally = Tally::default();
    if !arguments.isolated {
        tally.not_run.insert(Kind::FullDisk, format!("no mount namespace: {reason}"));
    }
    if !arguments.includes(Service::Nfscp) {
        for kind in [Kind::KillCopy, Kind::StopCopy] {
            tally.not_run.insert(kind, "nfscp does not run".to_owned());
        }
    }
    tally
}
