//! The course of all workers: they make calls, and then verify all acknowledged effects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use rpcrdma::{Channel, client::ChannelBuilder, config::ConnectionConfig, rpc::Credential};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use crate::ledger::{Ledger, Trouble};

/// Time limit of calls for which a worker sets no shorter one.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum duration of a step, which is a few calls, and of the check of one effect.
const MAX_STEP: Duration = Duration::from_secs(120);
/// Time from the beginning of [`Phase::Verify`] in which failed checks are repeated. Nothing disturbs the servers in
/// this phase.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two attempts to verify an effect.
const RETRY: Duration = Duration::from_millis(200);
/// Exclusive upper bound of the pause between two steps, in milliseconds.
const MAX_PAUSE: u64 = 60;

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Workers make calls.
    Work,
    /// Workers verify all effects. The number increases with each verification.
    Verify(u32),
}

/// The counts of a server's restarts and of its workers' successful steps.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Name of the server.
    pub(crate) name: String,
    restarts: AtomicU64,
    successes: AtomicU64,
}

impl Progress {
    pub(crate) fn new(name: String) -> Self {
        Self { name, restarts: AtomicU64::new(0), successes: AtomicU64::new(0) }
    }

    /// Returns the number of restarts of the server.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Records that the server was restarted.
    pub(crate) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a step of a worker has succeeded.
    pub(crate) fn succeeded(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of successful steps.
    pub(crate) fn successes(&self) -> u64 {
        self.successes.load(Ordering::Relaxed)
    }
}

/// The parts of a run that a worker uses.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) progress: Arc<Progress>,
    pub(crate) ledger: Arc<Ledger>,
    /// Number of the worker, which is unique.
    pub(crate) id: u64,
    pub(crate) random: fastrand::Rng,
    /// Number of memory regions of the worker's connections that servers could access after the worker's last step.
    pub(crate) regions: Arc<AtomicU32>,
}

impl Surroundings {
    pub(crate) fn builder(&self) -> anyhow::Result<ChannelBuilder> {
        let connection = ConnectionConfig::new()
            .keepalive_interval(Duration::from_secs(3))
            .keepalive_timeout(Duration::from_secs(1))
            .connect_timeout(Duration::from_secs(2));
        let credential = own_credential(self.id).to_opaque()?;
        Ok(Channel::builder().connection(connection).credential(credential).call_timeout(CALL_TIMEOUT))
    }
}

/// Returns the credential of the user that runs this program, with a host name of its own for each worker.
pub(crate) fn own_credential(id: u64) -> Credential {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Credential::sys(format!("soak-{id}"), uid, gid, [])
}

/// A worker that uses one service.
pub(crate) trait Work: Send + 'static {
    fn surroundings(&mut self) -> &mut Surroundings;

    /// Makes a few calls.
    fn step(&mut self) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Returns the number of acknowledged effects that can be verified.
    fn effects(&self) -> usize;

    /// Verifies the effect at the index `effect`, which is below [`effects`](Self::effects).
    fn check(&mut self, effect: usize) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Returns the number of memory regions that servers can access.
    fn regions(&self) -> u32;
}

/// Runs a worker. In [`Phase::Work`], also verifies the effects after each restart of the server. Sends a message after
/// the verification of each [`Phase::Verify`]. Returns if the sender of phases is dropped after a verification, or if
/// the message cannot be sent.
pub(crate) async fn drive(mut work: impl Work, mut phase: watch::Receiver<Phase>, done: mpsc::Sender<()>) {
    let mut restarts = 0;
    let mut verified = Phase::Work;
    loop {
        let now = *phase.borrow_and_update();
        if now == Phase::Work {
            let now = work.surroundings().progress.restarts();
            if now != restarts {
                restarts = now;
                verify(&mut work, None).await;
            }
            step(&mut work).await;
            let pause = work.surroundings().random.u64(MAX_PAUSE / 4..MAX_PAUSE);
            sleep(Duration::from_millis(pause)).await;
        } else if now != verified {
            verified = now;
            verify(&mut work, Some(Instant::now() + PATIENCE)).await;
            if done.send(()).await.is_err() {
                return;
            }
        } else if phase.changed().await.is_err() {
            return;
        }
    }
}

async fn step(work: &mut impl Work) {
    let done = timeout(MAX_STEP, work.step()).await;
    let regions = work.regions();
    let Surroundings { progress, ledger, regions: shown, .. } = work.surroundings();
    shown.store(regions, Ordering::Relaxed);
    match done {
        Ok(Ok(())) => progress.succeeded(),
        Ok(Err(trouble)) => ledger.failed(&trouble),
        Err(_) => ledger.fault(format!("calls to {} go on after {} s", progress.name, MAX_STEP.as_secs())),
    }
}

/// Verifies all effects. Failed checks are repeated until `deadline`, and are faults if they still fail then. Without a
/// deadline, failed checks are not repeated and are not faults. A check that finds wrong data is always a fault.
async fn verify(work: &mut impl Work, deadline: Option<Instant>) {
    for effect in 0..work.effects() {
        loop {
            let checked = timeout(MAX_STEP, work.check(effect)).await;
            let checked = checked.unwrap_or_else(|_| Err(Trouble::Failed("the check did not end".to_owned())));
            let Surroundings { progress, ledger, .. } = work.surroundings();
            match (checked, deadline) {
                (Ok(()), _) => {
                    ledger.verified();
                    break;
                }
                (Err(trouble @ Trouble::Wrong(_)), _) | (Err(trouble), None) => {
                    ledger.failed(&trouble);
                    break;
                }
                (Err(Trouble::Failed(error)), Some(deadline)) if Instant::now() > deadline => {
                    ledger.fault(format!("an effect at {} cannot be verified: {error}", progress.name));
                    break;
                }
                (Err(trouble), Some(_)) => ledger.failed(&trouble),
            }
            sleep(RETRY).await;
        }
    }
}
