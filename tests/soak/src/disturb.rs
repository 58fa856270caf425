//! The disturbances, in two lanes: one for processes, and one for networks. A seed determines the order of kinds in
//! each lane.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};

use crate::{
    copies::Order,
    descriptors::exhaust,
    server::{Server, Way},
};

/// Maximum time from the end of a disturbance to the next successful step of a worker of the server.
const MAX_RESUME: Duration = Duration::from_secs(40);
/// Maximum time until a worker with nfscp takes an order, and from then until it has executed the order. The duration
/// of a stop is added.
const MAX_ORDER: Duration = Duration::from_secs(5);
/// Maximum time to wait for data that can be corrupted.
const MAX_CORRUPTING: Duration = Duration::from_secs(4);

/// A kind of disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    KillServer,
    StopServer,
    FullDisk,
    Descriptors,
    KillCopy,
    StopCopy,
    Delay,
    Cut,
    Corrupt,
}

impl Kind {
    /// The kinds that concern processes.
    pub(crate) const OF_PROCESSES: [Self; 6] =
        [Self::KillServer, Self::StopServer, Self::FullDisk, Self::Descriptors, Self::KillCopy, Self::StopCopy];
    /// The kinds that concern networks.
    pub(crate) const OF_NETWORKS: [Self; 3] = [Self::Delay, Self::Cut, Self::Corrupt];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillServer => "SIGKILL and restart of a server",
            Self::StopServer => "SIGSTOP and SIGCONT of a server",
            Self::FullDisk => "full disk",
            Self::Descriptors => "exhausted descriptors",
            Self::KillCopy => "SIGKILL of nfscp",
            Self::StopCopy => "SIGSTOP and SIGCONT of nfscp",
            Self::Delay => "delay by a proxy",
            Self::Cut => "connections cut by a proxy",
            Self::Corrupt => "bits flipped by a proxy (iwarp)",
        }
    }
}

/// The number of disturbances of a kind, and their longest effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) count: u64,
    /// Longest time until a worker succeeded again.
    pub(crate) resumed: Duration,
}

/// The disturbances of a run, by kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    happened: Mutex<BTreeMap<Kind, Happened>>,
    /// Kinds that are not possible in this run, with the reasons.
    pub(crate) not_run: BTreeMap<Kind, String>,
}

impl Tally {
    /// Counts a disturbance. `resumed` is the time until a worker succeeded again.
    fn happened(&self, kind: Kind, resumed: Duration) {
        let mut happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = happened.entry(kind).or_default();
        of_kind.count += 1;
        of_kind.resumed = of_kind.resumed.max(resumed);
    }

    pub(crate) fn read(&self, kind: Kind) -> Happened {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).copied().unwrap_or_default()
    }

    /// Returns the kinds that never happened although they could.
    pub(crate) fn missing(&self) -> Vec<Kind> {
        let all = Kind::OF_PROCESSES.into_iter().chain(Kind::OF_NETWORKS);
        all.filter(|kind| self.read(*kind).count == 0 && !self.not_run.contains_key(kind)).collect()
    }
}

/// A sequence of disturbances, one at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) kinds: &'static [Kind],
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) random: fastrand::Rng,
}

impl Lane {
    /// Plays disturbances until the end of the run, in rounds. Each kind that is possible in this run occurs once in
    /// every round.
    pub(crate) async fn play_until(mut self, end: Instant) {
        loop {
            let mut round: Vec<Kind> =
                self.kinds.iter().copied().filter(|kind| !self.tally.not_run.contains_key(kind)).collect();
            if round.is_empty() {
                return;
            }
            self.random.shuffle(&mut round);
            for kind in round {
                self.pause(200..1000).await;
                if Instant::now() >= end {
                    return;
                }
                self.play(kind).await;
            }
        }
    }

    fn random_time(&mut self, millis: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(millis))
    }

    async fn pause(&mut self, millis: std::ops::Range<u64>) {
        let pause = self.random_time(millis);
        sleep(pause).await;
    }

    /// Chooses a random server for which `qualifies` returns `true`.
    fn server(&mut self, qualifies: impl Fn(&Server) -> bool) -> Option<Arc<Server>> {
        let servers: Vec<_> = self.servers.iter().filter(|server| qualifies(server)).collect();
        self.random.choice(servers).cloned()
    }

    /// Plays a disturbance and records it. After a disturbance of a server or a network, waits until a worker succeeds
    /// again, and checks the process of the server.
    async fn play(&mut self, kind: Kind) {
        if let Kind::KillCopy | Kind::StopCopy = kind {
            return self.disturb_copy(kind).await;
        }
        let chosen = self.server(|server| match kind {
            Kind::KillServer => server.is_killed,
            Kind::FullDisk => server.disk.is_some(),
            _ => true,
        });
        let Some(server) = chosen else { return };
        let played = if Kind::OF_NETWORKS.contains(&kind) {
            self.disturb_network(kind, &server).await
        } else {
            self.disturb_server(kind, &server).await.map(|()| true)
        };
        match played {
            Ok(true) => {
                let resumed = resumed(&server, kind).await;
                self.tally.happened(kind, resumed);
            }
            Ok(false) => {}
            Err(error) => server.ledger.fault(format!("{} at {}: {error:#}", kind.name(), server.name())),
        }
        if let Err(error) = server.process().await.check() {
            server.ledger.fault(format!("{}: {error:#}", server.name()));
        }
    }

    async fn disturb_server(&mut self, kind: Kind, server: &Server) -> anyhow::Result<()> {
        let duration = self.random_time(300..2500);
        match kind {
            Kind::KillServer => return server.restart(duration / 5).await,
            Kind::StopServer => {
                let process = server.process().await;
                process.stop()?;
                sleep(duration).await;
                process.resume()?;
            }
            Kind::FullDisk => {
                let _ballast = server.disk.as_ref().context("the server has no disk of its own")?.fill()?;
                sleep(duration).await;
            }
            _ => {
                let (process, address) = {
                    let process = server.process().await;
                    (process.pid()?, process.address(0)?)
                };
                let _exhausted = exhaust(process, address).await?;
                // Connections that are lost now cannot be replaced.
                server.ways[1].link.cut();
                sleep(duration).await;
            }
        }
        Ok(())
    }

    /// Disturbs the network of a server. Returns `false` if there were no connections to cut, or no data to corrupt.
    async fn disturb_network(&mut self, kind: Kind, server: &Server) -> anyhow::Result<bool> {
        let is_corrupting = kind == Kind::Corrupt;
        let ways = server.ways.iter().filter(|way| way.is_checked || !is_corrupting);
        let Way { link, .. } = self.random.choice(ways.collect::<Vec<_>>()).context("the server has no proxy")?;
        match kind {
            Kind::Cut => return Ok(link.cut() > 0),
            Kind::Delay => {
                link.set_delay(self.random_time(5..300));
                self.pause(500..3000).await;
                link.set_delay(Duration::ZERO);
            }
            _ => {
                let before = link.flipped();
                link.corrupt(self.random.u64(1..4));
                let end = Instant::now() + MAX_CORRUPTING;
                while link.flipped() == before && Instant::now() < end {
                    sleep(Duration::from_millis(10)).await;
                }
                link.corrupt(0);
                return Ok(link.flipped() > before);
            }
        }
        Ok(true)
    }

    /// Kills a running nfscp, or stops it for a while. Counts the disturbance if a worker has carried out the order in
    /// time.
    async fn disturb_copy(&mut self, kind: Kind) {
        let (done, is_done) = oneshot::channel();
        let duration = self.random_time(300..2500);
        let order = if kind == Kind::KillCopy { Order::Kill(done) } else { Order::Stop(duration, done) };
        // A worker between two copies takes the order with its next one.
        if timeout(MAX_ORDER, self.orders.send(order)).await.is_ok_and(|sent| sent.is_ok())
            && timeout(MAX_ORDER + duration, is_done).await.is_ok_and(|done| done.is_ok())
        {
            self.tally.happened(kind, Duration::ZERO);
        }
    }
}

/// Waits until a worker of the server succeeds, and returns the time until then. It is a fault if this takes longer
/// than [`MAX_RESUME`].
async fn resumed(server: &Server, kind: Kind) -> Duration {
    let (begun, before) = (Instant::now(), server.progress.successes());
    while server.progress.successes() == before {
        if begun.elapsed() > MAX_RESUME {
            let seconds = MAX_RESUME.as_secs();
            server.ledger.fault(format!("{} does not go on {seconds} s after {}", server.name(), kind.name()));
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_never_happened_are_missing() {
        let mut tally = Tally::default();
        tally.not_run.insert(Kind::FullDisk, "no namespace".to_owned());
        for kind in Kind::OF_PROCESSES.into_iter().chain([Kind::Delay, Kind::Delay, Kind::Cut]) {
            if kind != Kind::FullDisk {
                tally.happened(kind, Duration::from_millis(7));
            }
        }
        assert_eq!(tally.missing(), [Kind::Corrupt]);
        assert_eq!(tally.read(Kind::Delay), Happened { count: 2, resumed: Duration::from_millis(7) });
    }
}
