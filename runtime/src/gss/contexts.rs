//! The contexts of a server, established and in creation (RFC 2203 §5.3.3.3, §5.4), and the configuration of their
//! limits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    mechanism::{ContextSetup, GssContext, GssError, major},
    window::{Position, SequenceWindow},
};
use crate::{
    config::{ConfigError, whole_millis},
    random,
    security::{BlockingQueue, HostAddr, Principal, ProtectionLevel},
};

/// The limits and the policy of a server with RPCSEC_GSS.
/// [`GssAuthenticator::with_config`](super::GssAuthenticator::with_config) checks them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct GssServerConfig {
    pub(super) max_contexts: usize,
    pub(super) max_contexts_per_address: usize,
    pub(super) max_setups: usize,
    pub(super) max_setups_per_address: usize,
    pub(super) max_rounds: u32,
    pub(super) setup_timeout: Duration,
    pub(super) max_token: usize,
    pub(super) max_lifetime: Duration,
    pub(super) sequence_window: u32,
    pub(super) min_level: ProtectionLevel,
}

impl Default for GssServerConfig {
    fn default() -> Self {
        Self {
            max_contexts: 4096,
            max_contexts_per_address: 1024,
            max_setups: 64,
            max_setups_per_address: 16,
            max_rounds: 8,
            setup_timeout: Duration::from_secs(30),
            max_token: 64 << 10,
            max_lifetime: Duration::from_secs(24 * 3600),
            sequence_window: 2048,
            min_level: ProtectionLevel::Authentication,
        }
    }
}

impl GssServerConfig {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of established contexts, at least 1. At the limit, expired contexts are destroyed or, if
    /// there are none, the least recently used context. A client whose context was destroyed creates a new one with the
    /// next call (RFC 2203 §5.3.3.3). Default 4096.
    pub fn max_contexts(mut self, contexts: usize) -> Self {
        self.max_contexts = contexts;
        self
    }

    /// Sets the maximum number of established contexts that clients at one address have created, at least 1. At the
    /// limit, expired contexts are destroyed or, if there are none, the least recently used context of the address, so
    /// that one host cannot displace the contexts of all other hosts. IPv6 addresses with the same first 64 bits count
    /// as one address. Default 1024.
    pub fn max_contexts_per_address(mut self, contexts: usize) -> Self {
        self.max_contexts_per_address = contexts;
        self
    }

    /// Sets the maximum number of contexts that wait for another token from their clients, at least 1. At the limit,
    /// the oldest of these contexts is dropped. This is also the maximum number of steps that the mechanism executes at
    /// a time. Default 64.
    pub fn max_setups(mut self, setups: usize) -> Self {
        self.max_setups = setups;
        self
    }

    /// Sets the share of one address in [`max_setups`](Self::max_setups), at least 1. At the limit, the oldest context
    /// of the address that waits for a token is dropped, and further steps of the mechanism wait. IPv6 addresses with
    /// the same first 64 bits count as one address. Default 16.
    pub fn max_setups_per_address(mut self, setups: usize) -> Self {
        self.max_setups_per_address = setups;
        self
    }

    /// Sets the maximum number of rounds for the creation of a context, at least 1. Default 8.
    pub fn max_rounds(mut self, rounds: u32) -> Self {
        self.max_rounds = rounds;
        self
    }

    /// Sets the time that the creation of a context may take, from the first token to the last, greater than zero.
    /// Default 30 s.
    pub fn setup_timeout(mut self, timeout: Duration) -> Self {
        self.setup_timeout = timeout;
        self
    }

    /// Sets the length in bytes of the longest token that is accepted, at least 1. Default 64 KiB.
    pub fn max_token(mut self, bytes: usize) -> Self {
        self.max_token = bytes;
        self
    }

    /// Sets the maximum lifetime of a context, greater than zero. A context with a shorter lifetime in the mechanism
    /// expires earlier. Calls are refused in the last 10 s of the lifetime, or in its last tenth if that is shorter.
    /// Default 24 h.
    pub fn max_lifetime(mut self, lifetime: Duration) -> Self {
        self.max_lifetime = lifetime;
        self
    }

    /// Sets the length of the window of sequence numbers, at least 1: the maximum number of calls that a client may
    /// have outstanding on one context (RFC 2203 §5.2.3.1). Each context takes one bit of memory for each number.
    /// Default 2048.
    pub fn sequence_window(mut self, calls: u32) -> Self {
        self.sequence_window = calls;
        self
    }

    /// Sets the weakest protection that is accepted. Calls with weaker protection get AUTH_TOOWEAK. Default
    /// [`ProtectionLevel::Authentication`].
    pub fn min_level(mut self, level: ProtectionLevel) -> Self {
        self.min_level = level;
        self
    }

    /// Checks the settings against their ranges.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (setting, value) in [
            ("GssServerConfig::max_contexts", self.max_contexts as u64),
            ("GssServerConfig::max_contexts_per_address", self.max_contexts_per_address as u64),
            ("GssServerConfig::max_setups", self.max_setups as u64),
            ("GssServerConfig::max_setups_per_address", self.max_setups_per_address as u64),
            ("GssServerConfig::max_rounds", self.max_rounds.into()),
            ("GssServerConfig::sequence_window", self.sequence_window.into()),
            ("GssServerConfig::max_token", self.max_token as u64),
            ("GssServerConfig::setup_timeout", whole_millis(self.setup_timeout)),
            ("GssServerConfig::max_lifetime", whole_millis(self.max_lifetime)),
        ] {
            ConfigError::check(setting, value, 1..=u64::MAX)?;
        }
        Ok(())
    }
}

/// Maximum length of the interval at the end of a context's lifetime in which no call is accepted, so that accepted
/// calls can still be answered. The interval is a tenth of the lifetime if that is shorter.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

/// The identifier of a context. Random, so that a handle from before a restart of the server does not match the context
/// of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ContextHandle(pub(super) [u8; 16]);

impl ContextHandle {
    fn random() -> Result<Self, GssError> {
        let mut bytes = [0; 16];
        random::fill(&mut bytes)
            .map_err(|error| GssError::new(major::FAILURE, format!("no random context handle: {error}")))?;
        Ok(Self(bytes))
    }

    /// Converts the handle in a credential. Returns `None` if `bytes` has another length than 16.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// An established context.
#[derive(Debug)]
pub(super) struct ServerContext {
    pub(super) gss: Arc<dyn GssContext>,
    pub(super) queue: BlockingQueue,
    /// The identity of the client, once for each level of protection in ascending order.
    principals: [Arc<Principal>; 3],
    window: Mutex<SequenceWindow>,
    expires: Option<Instant>,
    /// The host that created the context.
    host: HostAddr,
    /// The value of the table's clock at the latest use, or at the creation.
    last_used: AtomicU64,
}

impl ServerContext {
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    pub(super) fn principal(&self, level: ProtectionLevel) -> Arc<Principal> {
        let [authentication, integrity, privacy] = &self.principals;
        Arc::clone(match level {
            ProtectionLevel::Authentication => authentication,
            ProtectionLevel::Integrity => integrity,
            ProtectionLevel::Privacy => privacy,
        })
    }

    fn window(&self) -> MutexGuard<'_, SequenceWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn position(&self, sequence: u32) -> Position {
        self.window().position(sequence)
    }

    /// Records a sequence number. Returns `false` if it was seen before, or is below the window.
    pub(super) fn record(&self, sequence: u32) -> bool {
        self.window().record(sequence)
    }
}

/// A context in creation that waits for the next token of its client.
pub(super) struct PendingSetup {
    pub(super) setup: Box<dyn ContextSetup>,
    /// Number of completed rounds.
    pub(super) rounds: u32,
    pub(super) started: Instant,
    /// The host that sent the first token.
    pub(super) host: HostAddr,
}

/// The contexts of a server: established contexts, and contexts in creation.
pub(super) struct ContextTable {
    established: RwLock<HashMap<ContextHandle, Arc<ServerContext>>>,
    setups: Mutex<HashMap<ContextHandle, PendingSetup>>,
    /// Number of creations and uses of all contexts so far. It serves as the clock for the least recently used context.
    clock: AtomicU64,
}

impl ContextTable {
    pub(super) fn new() -> Self {
        Self { established: RwLock::default(), setups: Mutex::default(), clock: AtomicU64::new(0) }
    }

    /// Returns an established context, or `None` if no established context has this handle.
    pub(super) fn find(&self, handle: ContextHandle) -> Option<Arc<ServerContext>> {
        let contexts = self.established.read().unwrap_or_else(PoisonError::into_inner);
        contexts.get(&handle).map(Arc::clone)
    }

    /// Records the use of a context by an authentic call.
    pub(super) fn touch(&self, context: &ServerContext) {
        context.last_used.store(self.tick(), Ordering::Relaxed);
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Destroys a context. Calls in progress keep it until they have been answered.
    pub(super) fn destroy(&self, handle: ContextHandle) {
        self.established.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Adds an established context. Returns its handle, which is new if `handle` is `None`. At the limits of `config`,
    /// removes expired contexts and then the least recently used ones.
    // RFC 2203 §5.2.2: the handle does not change during the creation.
    pub(super) fn establish(
        &self,
        handle: Option<ContextHandle>,
        gss: Arc<dyn GssContext>,
        host: HostAddr,
        config: &GssServerConfig,
        now: Instant,
    ) -> Result<ContextHandle, GssError> {
        let handle = handle.map_or_else(ContextHandle::random, Ok)?;
        let lifetime = gss.lifetime().map_or(config.max_lifetime, |lifetime| lifetime.min(config.max_lifetime));
        let lifetime = lifetime.saturating_sub(EXPIRY_MARGIN.min(lifetime / 10));
        let principals = [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy]
            .map(|level| Arc::new(Principal::new(gss.peer(), level)));
        let context = ServerContext {
            gss,
            queue: BlockingQueue::new(),
            principals,
            // RFC 2203 §5.3.3.1: the length that the client is told.
            window: Mutex::new(SequenceWindow::new(config.sequence_window)),
            expires: now.checked_add(lifetime),
            host,
            last_used: self.tick().into(),
        };
        let mut contexts = self.established.write().unwrap_or_else(PoisonError::into_inner);
        // RFC 2203 §5.4: LRU, because clients may never destroy their contexts.
        let (all, of_host) = (config.max_contexts, config.max_contexts_per_address);
        let expired = |context: &Arc<ServerContext>| context.has_expired(now);
        let last_used = |context: &Arc<ServerContext>| context.last_used.load(Ordering::Relaxed);
        make_room(&mut contexts, of_host, |context| context.host == host, expired, last_used);
        make_room(&mut contexts, all, |_| true, expired, last_used);
        contexts.insert(handle, Arc::new(context));
        Ok(handle)
    }

    /// Takes the context in creation with this handle, unless its time limit has passed. Until [`wait`](Self::wait)
    /// puts the context back, another request with the handle finds nothing.
    pub(super) fn take_setup(
        &self,
        handle: ContextHandle,
        config: &GssServerConfig,
        now: Instant,
    ) -> Option<PendingSetup> {
        let mut setups = self.setups.lock().unwrap_or_else(PoisonError::into_inner);
        setups.remove(&handle).filter(|setup| !is_late(setup, config, now))
    }

    /// Keeps a context in creation until its client sends another token. Returns its handle, which is new if `handle`
    /// is `None`. Removes contexts that have been in creation for too long and, at the limits of `config`, the oldest
    /// ones.
    pub(super) fn wait(
        &self,
        handle: Option<ContextHandle>,
        setup: PendingSetup,
        config: &GssServerConfig,
        now: Instant,
    ) -> Result<ContextHandle, GssError> {
        let handle = handle.map_or_else(ContextHandle::random, Ok)?;
        let mut setups = self.setups.lock().unwrap_or_else(PoisonError::into_inner);
        setups.retain(|_, setup| !is_late(setup, config, now));
        let (host, started) = (setup.host, |setup: &PendingSetup| setup.started);
        make_room(&mut setups, config.max_setups_per_address, |setup| setup.host == host, |_| false, started);
        make_room(&mut setups, config.max_setups, |_| true, |_| false, started);
        setups.insert(handle, setup);
        Ok(handle)
    }

    /// Returns the numbers of established contexts and of contexts in creation.
    pub(super) fn counts(&self) -> (usize, usize) {
        let established = self.established.read().unwrap_or_else(PoisonError::into_inner).len();
        (established, self.setups.lock().unwrap_or_else(PoisonError::into_inner).len())
    }
}

/// Makes room for one more of the entries that `counts` selects, so that there are at most `most` of them. If there is
/// no room, removes the entries for which `is_over` returns `true`. If that is not enough, removes the selected entries
/// with the smallest keys.
fn make_room<T, K: Ord>(
    entries: &mut HashMap<ContextHandle, T>,
    most: usize,
    counts: impl Fn(&T) -> bool,
    is_over: impl Fn(&T) -> bool,
    key: impl Fn(&T) -> K,
) {
    let is_full = |entries: &HashMap<_, T>| {
        entries.len() >= most && entries.values().filter(|entry| counts(entry)).count() >= most
    };
    if is_full(entries) {
        entries.retain(|_, entry| !is_over(entry));
    }
    while is_full(entries) {
        let oldest = entries.iter().filter(|(_, entry)| counts(entry)).min_by_key(|(_, entry)| key(entry));
        let Some(oldest) = oldest.map(|(handle, _)| *handle) else { break };
        entries.remove(&oldest);
    }
}

fn is_late(setup: &PendingSetup, config: &GssServerConfig, now: Instant) -> bool {
    now.saturating_duration_since(setup.started) > config.setup_timeout
}
