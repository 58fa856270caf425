//! The endpoints of a service, for a load balancer.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    convert::Infallible,
    fmt,
    hash::BuildHasher as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;
use tokio::{
    runtime::Handle,
    time::{Instant, Sleep},
};
use tower::discover::Change;

use super::{
    super::service::{
        health::{EndpointHealth, HealthEvents, HealthState},
        outage::{ListState, Outage, SharedFailure},
        serving::ServingCheck,
    },
    super::{ChannelBuilder, Endpoint, HealthCheck, HealthWatch},
    servers::Servers,
    subset::{self, Standing, Subset},
};
#[cfg(doc)]
use crate::transport::Url;
use crate::{ErrorChain, client::target::Target, random::KeyedHash};

/// The default of [`Endpoints::max_open`].
const MAX_OPEN: usize = 32;
/// The time after which an endpoint that is still connecting counts as failed, so that other servers are tried at the
/// same time.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time for which an endpoint that has failed is tried again while other failed endpoints wait for their turn.
const TURN: Duration = Duration::from_secs(1);

/// The endpoints of the servers in a [list](Servers), by URL: a stream of `tower::discover::Change`, and therefore a
/// `tower::discover::Discover`.
///
/// A server gets an [`Endpoint`] with a channel that connects when the balancer first polls it. A server that
/// disappears gets no more calls. Its calls in flight finish, and then its connection is closed. A URL that is not
/// valid is traced and skipped. The option `tls` of a URL can only strengthen the policy of the channels' TLS
/// configuration.
///
/// Only some servers of the list have endpoints at a time:
///
/// - servers of one priority: the lowest priority number (option `priority` of a [`Url`]) with a server that can be
///   reached. Servers with lower numbers are tried again meanwhile. If no server can be reached, servers of all
///   priorities are tried;
/// - at most [`max_open`](Self::max_open) servers. A client chooses the servers at random, and keeps its choice as long
///   as they can be reached. Another server takes the place of one that cannot be reached.
///
/// Wrap the endpoints in `tower::load::PendingRequestsDiscover` or `tower::load::PeakEwmaDiscover` to measure their
/// load.
#[must_use]
pub struct Endpoints {
    /// The list of servers. `None` when the list does not change any more.
    servers: Option<Servers>,
    /// The latest error of the source of the list, if any.
    failure: SharedFailure,
    builder: ChannelBuilder,
    max_open: usize,
    health_check: Option<HealthCheck>,
    /// The keyed hash that puts the servers in a random order. Its keys differ between clients, and so does the order.
    order: KeyedHash,
    /// The servers in the list, in the order of their use. `None` until the list is known.
    candidates: Option<BTreeMap<Rank, Candidate>>,
    /// The URLs in the list that are not valid.
    invalid: BTreeSet<String>,
    changes: VecDeque<Change<String, Endpoint>>,
    events: Arc<HealthEvents>,
    /// A timer for the next time at which the choice may change. `None` if only an event can change the choice.
    timer: Option<Pin<Box<Sleep>>>,
    /// The time at which the next failed endpoint may get its turn.
    next_turn: Instant,
    /// Number of times that an endpoint was closed after a failure.
    parked: u64,
}

/// The place of a server in the order of use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: u16,
    /// `true` if the weight of the server is 0. Such a server is hardly used if there are servers with a weight (RFC
    /// 2782).
    has_no_weight: bool,
    /// A random number that is stable for a URL, so that a client keeps its servers when the list changes.
    hash: u64,
    url: Arc<str>,
}

/// A server in the list.
#[derive(Debug, Default)]
struct Candidate {
    weight: u32,
    /// The health of the server's endpoint. `None` if no endpoint is open.
    health: Option<Arc<EndpointHealth>>,
    has_failed: bool,
    /// `true` if the server is not used as long as it stays in the list.
    is_excluded: bool,
    /// The value of `Endpoints::parked` when the server's endpoint was last closed after a failure. 0 if it never was.
    parked: u64,
}

impl Candidate {
    /// Returns the time at which a server that is still connecting counts as failed.
    fn slow_at(&self) -> Option<Instant> {
        let health = self.health.as_ref().filter(|health| health.state() == HealthState::Connecting)?;
        health.since().checked_add(PATIENCE)
    }

    /// Updates the state of the server from the health of its endpoint.
    fn look(&mut self, now: Instant) {
        let Some(health) = &self.health else { return };
        match health.state() {
            HealthState::Connecting if self.slow_at().is_some_and(|slow_at| now < slow_at) => {}
            HealthState::Connecting | HealthState::Failed => self.has_failed = true,
            HealthState::Usable => self.has_failed = false,
            HealthState::Ended => self.is_excluded = true,
        }
    }
}

impl Endpoints {
    /// Returns the timeout of calls without a deadline of their own.
    pub(super) fn call_timeout(&self) -> Option<Duration> {
        self.builder.default_call_timeout()
    }

    /// Creates endpoints whose channels are made by `builder`.
    pub fn new(servers: Servers, builder: ChannelBuilder) -> Self {
        let failure = servers.failure();
        Self {
            servers: Some(servers),
            failure,
            builder,
            max_open: MAX_OPEN,
            health_check: None,
            order: KeyedHash::default(),
            candidates: None,
            invalid: BTreeSet::new(),
            changes: VecDeque::new(),
            events: Arc::default(),
            timer: None,
            next_turn: Instant::now(),
            parked: 0,
        }
    }

    /// Sets the maximum number of endpoints that are open at a time. Default 32. At least 2: one endpoint takes calls
    /// while an endpoint that has failed is tried again.
    ///
    /// A connection costs memory for its Receives at both ends, and a server has a limit of connections. Without this
    /// limit, each client would connect to each server. With 32, a client hardly notices that one server is slow or
    /// fails, and 1000 servers with 1000 clients have about 32 connections each. Raise it for few clients with much
    /// load on many servers.
    pub fn max_open(mut self, endpoints: usize) -> Self {
        self.max_open = endpoints.max(2);
        self
    }

    /// Watches the health of each server by the program HEALTH ([`health`](crate::health)), and uses only servers that
    /// are serving. Default: none, and every server that is connected is used.
    ///
    /// An endpoint takes calls once its server has answered, and stops when the server says that it is not serving, for
    /// example because it shuts down. Other endpoints are opened in its place, as if it could not be reached. A server
    /// counts as serving if it does not offer the program, or does not answer the first query. Later silence does not
    /// change the state. [`Endpoint`] describes how silence is noticed.
    ///
    /// The channels serve the callbacks of the program, so that the server can report changes at once, and have no idle
    /// timeout. Outside of a tokio runtime, nothing is checked.
    ///
    /// ```no_run
    /// # use rpcrdma::{client::{HealthCheck, discover::{Endpoints, Servers}}, Channel};
    /// let servers = Servers::fixed(["iwarp://one:20100", "iwarp://two:20100"]);
    /// let endpoints = Endpoints::new(servers, Channel::builder()).health_check(HealthCheck::service(0x2000_0001, 1));
    /// ```
    pub fn health_check(mut self, check: HealthCheck) -> Self {
        self.health_check = Some(check);
        self
    }

    /// Replaces the list of servers.
    fn update(&mut self, listed: BTreeSet<String>) {
        let mut old: BTreeMap<Arc<str>, Candidate> = BTreeMap::new();
        for (rank, candidate) in self.candidates.take().unwrap_or_default() {
            old.insert(rank.url, candidate);
        }
        let mut shares: BTreeMap<Arc<str>, (u16, u32)> = BTreeMap::new();
        let mut invalid = BTreeSet::new();
        for text in listed {
            match Target::parse(&text) {
                Ok(target) => {
                    let share = target.share();
                    shares.insert(target.without_priority().to_string().into(), share);
                }
                Err(error) => {
                    if !self.invalid.contains(&text) {
                        tracing::warn!(target: "rpcrdma", server = %text, error = %ErrorChain(&error), "server skipped");
                    }
                    invalid.insert(text);
                }
            }
        }
        self.invalid = invalid;
        let mut candidates = BTreeMap::new();
        for (url, (priority, weight)) in shares {
            let candidate = match old.entry(Arc::clone(&url)) {
                Entry::Occupied(known) => {
                    let mut known = known.remove();
                    known.weight = weight;
                    known.health.iter().for_each(|health| health.set_share(priority, weight));
                    known
                }
                Entry::Vacant(_) => {
                    tracing::info!(target: "rpcrdma", server = %url, priority, weight, "server added");
                    Candidate { weight, ..Candidate::default() }
                }
            };
            let hash = self.order.hash_one(&*url);
            candidates.insert(Rank { priority, has_no_weight: weight == 0, hash, url }, candidate);
        }
        for (url, gone) in old {
            tracing::info!(target: "rpcrdma", server = %url, "server removed");
            if gone.health.is_some() {
                self.changes.push_back(Change::Remove(url.to_string()));
            }
        }
        self.candidates = Some(candidates);
    }

    /// Chooses the servers to use, opens and closes endpoints accordingly, and sets the timer.
    fn choose(&mut self) {
        let now = Instant::now();
        let mut candidates = self.candidates.take().unwrap_or_default();
        loop {
            candidates.values_mut().for_each(|candidate| candidate.look(now));
            let mut usable: Vec<_> = candidates.iter_mut().filter(|(_, candidate)| !candidate.is_excluded).collect();
            let standings = |usable: &[(&Rank, &mut Candidate)]| -> Vec<_> {
                let standing = |(rank, candidate): &(&Rank, &mut Candidate)| Standing {
                    priority: rank.priority,
                    is_open: candidate.health.is_some(),
                    has_failed: candidate.has_failed,
                    parked: candidate.parked,
                };
                usable.iter().map(standing).collect()
            };
            let Subset { mut chosen, mut rotated } = subset::choose(&standings(&usable), self.max_open);
            if let Some(index) = rotated.filter(|_| now >= self.next_turn) {
                self.next_turn = now + TURN;
                let (rank, candidate) = &mut usable[index];
                if candidate.health.take().is_some() {
                    self.parked += 1;
                    candidate.parked = self.parked;
                    self.changes.push_back(Change::Remove(rank.url.to_string()));
                    Subset { chosen, rotated } = subset::choose(&standings(&usable), self.max_open);
                }
            }
            let chosen: BTreeSet<_> = chosen.into_iter().collect();
            let mut is_final = true;
            for (index, (rank, candidate)) in usable.iter_mut().enumerate() {
                match (chosen.contains(&index), candidate.health.is_some()) {
                    (false, true) => {
                        candidate.health = None;
                        if candidate.has_failed {
                            self.parked += 1;
                            candidate.parked = self.parked;
                        }
                        self.changes.push_back(Change::Remove(rank.url.to_string()));
                    }
                    (true, false) => is_final &= self.open(rank, candidate),
                    _ => {}
                }
            }
            if !is_final {
                continue;
            }
            let slow_at = candidates.values().filter_map(Candidate::slow_at).filter(|slow_at| *slow_at > now).min();
            let next = slow_at.into_iter().chain(rotated.map(|_| self.next_turn)).min();
            self.timer =
                next.filter(|_| Handle::try_current().is_ok()).map(|at| Box::pin(tokio::time::sleep_until(at)));
            break;
        }
        self.candidates = Some(candidates);
    }

    /// Opens an endpoint. Returns `false` if its channel cannot be created, for example because the URL does not match
    /// the settings of the channels.
    fn open(&mut self, rank: &Rank, candidate: &mut Candidate) -> bool {
        let check = self.health_check.as_ref().filter(|_| Handle::try_current().is_ok());
        let watch = check.map(|check| HealthWatch::new(check.clone()));
        let mut builder = self.builder.clone();
        if let Some(watch) = &watch {
            builder = builder.service(watch.callbacks());
        }
        match builder.connect_discovered(&rank.url) {
            Ok(channel) => {
                let events = Arc::clone(&self.events);
                let health = EndpointHealth::new(Arc::clone(&rank.url), rank.priority, candidate.weight, events);
                let health = Arc::new(health);
                let mut endpoint = Endpoint::new(channel.clone()).with_health(Arc::clone(&health));
                if let Some(watch) = watch {
                    endpoint = endpoint.with_serving_check(ServingCheck::start(channel, watch, Arc::clone(&health)));
                }
                candidate.health = Some(health);
                self.changes.push_back(Change::Insert(rank.url.to_string(), endpoint));
                true
            }
            Err(error) => {
                tracing::warn!(target: "rpcrdma", server = %rank.url, error = %ErrorChain(&error), "server skipped");
                self.events.record(&rank.url, error);
                candidate.is_excluded = true;
                false
            }
        }
    }

    /// Returns the record of the reasons why calls wait. A balancer shares the record with its callers.
    pub(super) fn outage(&self) -> Outage {
        Outage::new(Arc::clone(&self.events), Arc::clone(&self.failure))
    }

    /// Returns the number of listed servers, and an invalid URL if there is no valid one.
    pub(super) fn list_state(&self) -> ListState {
        let Some(candidates) = &self.candidates else { return ListState::default() };
        let invalid = self.invalid.first().filter(|_| candidates.is_empty());
        ListState { listed: Some(candidates.len() + self.invalid.len()), invalid: invalid.cloned() }
    }
}

impl Stream for Endpoints {
    type Item = Result<Change<String, Endpoint>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(change) = this.changes.pop_front() {
                return Poll::Ready(Some(Ok(change)));
            }
            let mut is_due = this.events.take(cx);
            while let Some(servers) = &mut this.servers {
                match Pin::new(servers).poll_next(cx) {
                    Poll::Ready(Some(listed)) => {
                        this.update(listed);
                        is_due = true;
                    }
                    Poll::Ready(None) => this.servers = None,
                    Poll::Pending => break,
                }
            }
            if let Some(timer) = &mut this.timer
                && timer.as_mut().poll(cx).is_ready()
            {
                is_due = true;
            }
            if !is_due {
                let is_empty = this.candidates.as_ref().is_none_or(BTreeMap::is_empty);
                return if this.servers.is_none() && is_empty { Poll::Ready(None) } else { Poll::Pending };
            }
            this.choose();
        }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = |(rank, candidate): (&Rank, &Candidate)| candidate.health.as_ref().map(|_| Arc::clone(&rank.url));
        let open: Vec<_> = self.candidates.iter().flatten().filter_map(open).collect();
        let listed = self.candidates.as_ref().map(BTreeMap::len);
        f.debug_struct("Endpoints").field("listed", &listed).field("open", &open).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
