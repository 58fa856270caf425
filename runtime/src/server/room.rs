//! The limits on the number of connections, and the choice of connections that make room for others.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::AbortHandle;

use super::sync::{Mutex, MutexGuard, PoisonError};
use crate::{
    driver::{DriverCommand, DriverPort},
    security::HostAddr,
};

/// Time that a connection must have been idle before it makes room for a new connection whatever the numbers of
/// connections of the two hosts are.
const LONG_IDLE: Duration = Duration::from_secs(60);

/// Lower bound of the limit on connections that are closing to make room. The limit is an eighth of the maximum number
/// of connections, but at least this number. At the limit, new connections for which there is no room are refused.
const MIN_LEAVING: usize = 16;

/// Minimum time between two warnings about connections that are refused or cannot be accepted.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the current time of tokio's clock, which drivers use as well, and which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The limits on the connections of a server, and the connections that count.
pub(super) struct ConnectionRoom {
    max: usize,
    max_per_host: usize,
    state: Mutex<RoomState>,
}

#[derive(Default)]
struct RoomState {
    next_id: u64,
    hosts: BTreeMap<HostAddr, BTreeMap<u64, Occupant>>,
    /// Number of connections that do not have to leave.
    staying: usize,
    /// Number of connections that have to leave and are not closed yet.
    leaving: usize,
    warned: Option<Instant>,
}

struct Occupant {
    since: Instant,
    stage: OccupantStage,
}

enum OccupantStage {
    /// In set-up. The handle belongs to the task that sets the connection up. `None` before the task has started.
    SettingUp(Option<AbortHandle>),
    Open(Arc<DriverPort>),
    /// The server closes the connection to make room.
    Leaving,
}

impl Occupant {
    /// Returns the time since which the connection has been idle. `None` if it is in use or leaves, or if the task for
    /// its set-up has not started.
    fn idle_since(&self) -> Option<Instant> {
        match &self.stage {
            // The peer has not done its part.
            OccupantStage::SettingUp(task) => task.as_ref().map(|_| self.since),
            OccupantStage::Open(port) => port.idle_since(),
            OccupantStage::Leaving => None,
        }
    }
}

/// The place of an admitted connection within the limits. Dropping it frees the place.
pub(super) struct RoomPermit {
    room: Arc<ConnectionRoom>,
    host: HostAddr,
    id: u64,
}

/// The reason why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    #[error("the server has {0} connections, and none of them is idle")]
    Server(usize),
    #[error("the host has {0} connections, and none of them is idle")]
    Host(usize),
}

impl ConnectionRoom {
    pub(super) fn new(max: usize, max_per_host: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_host, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection. If there is no room, an idle connection has to leave, or the new connection is refused. The
    /// first choice is the longest idle connection of the host with the most connections, among the hosts that have an
    /// idle connection and more connections than the host of the new one would have. The second choice is the
    /// connection that has been idle for longest, if it has been idle for [`LONG_IDLE`] or more. At the limit of a
    /// host, only the second choice applies, among connections of that host.
    pub(super) fn enter(self: &Arc<Self>, host: HostAddr) -> Result<RoomPermit, NoRoom> {
        let now = now();
        let mut state = self.state();
        if state.count(host) >= self.max_per_host {
            let idle = state.longest_idle([host], now.checked_sub(LONG_IDLE));
            state.dismiss(idle, self.max).ok_or(NoRoom::Host(self.max_per_host))?;
        } else if state.staying >= self.max {
            let own = state.count(host) + 1;
            let idle = state.idle_of_larger_host(own);
            let hosts: Vec<_> = state.hosts.keys().copied().collect();
            let idle = idle.or_else(|| state.longest_idle(hosts, now.checked_sub(LONG_IDLE)));
            state.dismiss(idle, self.max).ok_or(NoRoom::Server(self.max))?;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.staying += 1;
        let occupant = Occupant { since: now, stage: OccupantStage::SettingUp(None) };
        state.hosts.entry(host).or_default().insert(id, occupant);
        Ok(RoomPermit { room: Arc::clone(self), host, id })
    }

    /// Makes an idle connection leave, because the process or the system has run out of file descriptors. Chooses the
    /// longest idle connection of the host with the most connections, among the hosts that have an idle connection.
    pub(super) fn free_descriptor(&self) {
        let mut state = self.state();
        let idle = state.idle_of_larger_host(0);
        // There is none, or some are leaving already.
        let _ = state.dismiss(idle, self.max);
    }

    /// Returns `true` if a refusal or an error of a listener should be logged as a warning: the first one, and then at
    /// most one in each minute.
    pub(super) fn should_warn(&self) -> bool {
        let now = now();
        let mut state = self.state();
        let is_due = state.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_INTERVAL);
        if is_due {
            state.warned = Some(now);
        }
        is_due
    }
}

impl RoomState {
    /// Returns the number of connections of a host that do not have to leave.
    fn count(&self, host: HostAddr) -> usize {
        let occupants = self.hosts.get(&host).into_iter().flat_map(BTreeMap::values);
        occupants.filter(|occupant| !matches!(occupant.stage, OccupantStage::Leaving)).count()
    }

    /// Returns the longest idle connection of the host with the most connections. Only hosts that have an idle
    /// connection, and more than `own` connections, are considered.
    fn idle_of_larger_host(&self, own: usize) -> Option<(HostAddr, u64)> {
        let mut larger: Vec<_> = self.hosts.keys().map(|&host| (self.count(host), host)).collect();
        larger.retain(|&(count, _)| count > own);
        larger.sort_unstable_by_key(|&(count, _)| std::cmp::Reverse(count));
        larger.into_iter().find_map(|(_, host)| self.longest_idle([host], Some(now())))
    }

    /// Returns the connection of these hosts that has been idle for longest. It must have been idle since `latest` or
    /// before. Returns `None` if there is no such connection, or if `latest` is `None`.
    fn longest_idle(
        &self,
        hosts: impl IntoIterator<Item = HostAddr>,
        latest: Option<Instant>,
    ) -> Option<(HostAddr, u64)> {
        let latest = latest?;
        let occupants = hosts.into_iter().flat_map(|host| {
            let occupants = self.hosts.get(&host).into_iter().flatten();
            occupants.map(move |(&id, occupant)| (host, id, occupant))
        });
        let idle = occupants.filter_map(|(host, id, occupant)| Some((occupant.idle_since()?, host, id)));
        let longest = idle.filter(|(since, ..)| *since <= latest).min_by_key(|(since, ..)| *since)?;
        Some((longest.1, longest.2))
    }

    /// Makes the connection `idle` leave. Returns `None` if `idle` is `None`, or if too many connections are leaving
    /// already. `max` is the maximum number of connections.
    fn dismiss(&mut self, idle: Option<(HostAddr, u64)>, max: usize) -> Option<()> {
        let (host, id) = idle?;
        if self.leaving >= MIN_LEAVING.max(max / 8) {
            return None;
        }
        let occupant = self.hosts.get_mut(&host)?.get_mut(&id)?;
        match std::mem::replace(&mut occupant.stage, OccupantStage::Leaving) {
            OccupantStage::SettingUp(task) => task.iter().for_each(AbortHandle::abort),
            OccupantStage::Open(port) => port.send(DriverCommand::Disconnect),
            OccupantStage::Leaving => return None,
        }
        tracing::debug!(target: "rpcrdma", ?host, "an idle connection leaves for a new one");
        self.staying -= 1;
        self.leaving += 1;
        Some(())
    }
}

impl RoomPermit {
    /// Returns the host of the connection.
    pub(super) fn host(&self) -> HostAddr {
        self.host
    }

    /// Returns a reference to the entry of the connection. It serves to record the task that sets the connection up.
    pub(super) fn place(&self) -> RoomPlace {
        RoomPlace { room: Arc::clone(&self.room), host: self.host, id: self.id }
    }

    /// Records that the connection is set up. If the connection was told to leave during its set-up, closes it instead:
    /// the set-up may finish although its task was aborted.
    pub(super) fn opened(&self, port: &Arc<DriverPort>) {
        let mut state = self.room.state();
        let occupant = state.hosts.get_mut(&self.host).and_then(|occupants| occupants.get_mut(&self.id));
        let Some(occupant) = occupant else { return };
        match occupant.stage {
            OccupantStage::Leaving => port.send(DriverCommand::Disconnect),
            _ => occupant.stage = OccupantStage::Open(Arc::clone(port)),
        }
    }
}

impl Drop for RoomPermit {
    fn drop(&mut self) {
        let mut state = self.room.state();
        let RoomState { hosts, staying, leaving, .. } = &mut *state;
        let Some(occupants) = hosts.get_mut(&self.host) else { return };
        match occupants.remove(&self.id).map(|occupant| occupant.stage) {
            Some(OccupantStage::Leaving) => *leaving -= 1,
            Some(_) => *staying -= 1,
            None => {}
        }
        if occupants.is_empty() {
            hosts.remove(&self.host);
        }
    }
}

/// A reference to the entry of a connection in set-up.
pub(super) struct RoomPlace {
    room: Arc<ConnectionRoom>,
    host: HostAddr,
    id: u64,
}

impl RoomPlace {
    /// Records the task that sets the connection up, unless the set-up has already ended.
    pub(super) fn is_set_up_by(&self, task: AbortHandle) {
        let mut state = self.room.state();
        let occupant = state.hosts.get_mut(&self.host).and_then(|occupants| occupants.get_mut(&self.id));
        if let Some(Occupant { stage: OccupantStage::SettingUp(by), .. }) = occupant {
            *by = Some(task);
        }
    }
}

#[cfg(test)]
impl ConnectionRoom {
    /// Returns the numbers of connections that stay and that leave.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.staying, state.leaving)
    }

    /// Returns `true` if no connection is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.counts() == (0, 0) && self.state().hosts.is_empty()
    }
}

#[cfg(test)]
impl RoomPermit {
    /// Returns `true` if the connection does not have to leave.
    pub(super) fn stays(&self) -> bool {
        let state = self.room.state();
        let occupant = state.hosts.get(&self.host).and_then(|occupants| occupants.get(&self.id));
        occupant.is_some_and(|occupant| !matches!(occupant.stage, OccupantStage::Leaving))
    }
}
