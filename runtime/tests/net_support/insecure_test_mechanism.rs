//! A mechanism for tests. **It protects nothing**: its key is 64 bits long, its cipher is an exclusive or, and its
//! checksums are a hash that is not made for this purpose.
#![allow(dead_code, unreachable_pub)]

use std::{
    fmt,
    hash::{DefaultHasher, Hasher},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rpcrdma::gss::{ClientMechanism, ContextSetup, GssContext, GssError, ServerMechanism, SetupStep, major};
use tokio::time::Instant;

/// Length in bytes of the longest body that a call protects in its own task.
const MAX_BODY_IN_TASK: usize = 4 << 10;

/// Length of a checksum in bytes.
const MIC: usize = 8;

/// Faults that a test injects.
#[derive(Debug, Default)]
pub struct Faults {
    /// `true` if checksums cannot be made.
    pub get_mic: AtomicBool,
    /// `true` if messages cannot be encrypted.
    pub wrap: AtomicBool,
    /// `true` if messages of more than 500 bytes get wrong checksums.
    pub damage: AtomicBool,
    /// The switch that holds back the encryption and decryption of large messages.
    pub hold: Hold,
    /// The switch that holds back the steps of contexts.
    pub hold_steps: Hold,
    /// Number of the latest expired context, as [`InsecureTestMechanism::started`] counts them. Contexts up to this
    /// number neither accept nor make messages.
    pub expired: AtomicUsize,
    /// Number of the latest stale context. Contexts up to this number make messages but accept none, as expired
    /// Kerberos contexts do.
    pub stale: AtomicUsize,
}

impl InsecureTestMechanism {
    /// Lets all contexts expire that have been created so far. Expired contexts still make messages.
    pub fn expire_contexts(&self) {
        self.faults.stale.store(self.started.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Makes large messages or the steps of a context wait for a test. They wait for a minute at most.
#[derive(Debug, Default)]
pub struct Hold {
    is_held: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Hold {
    /// Holds back messages or steps, or releases them.
    pub fn set(&self, is_held: bool) {
        *self.lock() = is_held;
        self.changed.notify_all();
    }

    /// Returns `true` if messages or steps are held back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        *self.lock()
    }

    /// Returns the number of messages or steps that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let wait = self.changed.wait_timeout_while(self.lock(), Duration::from_secs(60), |is_held| *is_held);
        *wait.unwrap_or_else(PoisonError::into_inner).0 = false;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A key whose debug output does not show its value.
#[derive(Clone, Copy)]
pub struct TestKey(pub u64);

impl fmt::Debug for TestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestKey")
    }
}

/// The mechanism of a client or a server.
#[derive(Debug, Clone)]
pub struct InsecureTestMechanism {
    /// The key that both sides share.
    pub key: TestKey,
    /// The name of the local side.
    pub name: String,
    /// Number of rounds that the server needs to create a context. The client follows the server.
    pub rounds: u8,
    /// Lifetime of a context. `None` if contexts do not expire.
    pub lifetime: Option<Duration>,
    /// Faults of the contexts.
    pub faults: Arc<Faults>,
    /// Number of contexts whose set-up was started.
    pub started: Arc<AtomicUsize>,
}

impl InsecureTestMechanism {
    /// Creates a mechanism with one round and contexts that do not expire.
    #[must_use]
    pub fn new(key: u64, name: &str) -> Self {
        Self {
            key: TestKey(key),
            name: name.into(),
            rounds: 1,
            lifetime: None,
            faults: Arc::default(),
            started: Arc::default(),
        }
    }

    fn context(&self, session: u64, peer: String) -> Arc<dyn GssContext> {
        let until = self.lifetime.map(|lifetime| Instant::now() + lifetime);
        let number = self.started.load(Ordering::Relaxed);
        let (lock, faults) = (Mutex::default(), Arc::clone(&self.faults));
        Arc::new(TestContext { session: TestKey(session), peer, until, number, lock, faults })
    }

    fn block(&self) {
        if self.faults.hold_steps.is_held() {
            self.faults.hold_steps.wait();
        }
    }
}

impl ClientMechanism for InsecureTestMechanism {
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError> {
        static NONCE: AtomicU64 = AtomicU64::new(1);
        self.started.fetch_add(1, Ordering::Relaxed);
        let nonce = NONCE.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Initiator { mechanism: self.clone(), nonce, round: 0 }))
    }
}

impl ServerMechanism for InsecureTestMechanism {
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError> {
        self.started.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Acceptor { mechanism: self.clone(), session: 0, peer: String::new(), round: 0 }))
    }
}

/// Returns the checksum of a message under a key.
fn mac(key: u64, message: &[u8]) -> [u8; MIC] {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(key);
    hasher.write(message);
    hasher.finish().to_be_bytes()
}

/// Appends the checksum of a message.
pub(super) fn signed(key: u64, mut message: Vec<u8>) -> Vec<u8> {
    let mic = mac(key, &message);
    message.extend_from_slice(&mic);
    message
}

/// Checks and removes the checksum of a message.
fn checked(key: u64, message: &[u8]) -> Result<&[u8], GssError> {
    let (message, mic) = message
        .split_last_chunk::<MIC>()
        .ok_or_else(|| GssError::new(major::DEFECTIVE_TOKEN, "a message is too short"))?;
    if *mic == mac(key, message) { Ok(message) } else { Err(GssError::new(major::BAD_MIC, "wrong checksum")) }
}

struct Initiator {
    mechanism: InsecureTestMechanism,
    nonce: u64,
    round: u8,
}

impl ContextSetup for Initiator {
    fn step(&mut self, token: Option<&[u8]>) -> Result<SetupStep, GssError> {
        self.mechanism.block();
        let TestKey(key) = self.mechanism.key;
        let session = key ^ self.nonce.rotate_left(32);
        match token.map(|token| checked(key, token)).transpose()? {
            Some([0, peer @ ..]) => {
                let peer = String::from_utf8_lossy(peer).into_owned();
                return Ok(SetupStep { token: None, context: Some(self.mechanism.context(session, peer)) });
            }
            Some([1]) if self.round > 0 => {}
            None if self.round == 0 => {}
            _ => return Err(GssError::new(major::DEFECTIVE_TOKEN, "unexpected token")),
        }
        self.round += 1;
        let mut token = vec![self.round];
        if self.round == 1 {
            token.extend_from_slice(&self.nonce.to_be_bytes());
            token.extend_from_slice(self.mechanism.name.as_bytes());
        }
        Ok(SetupStep { token: Some(signed(key, token)), context: None })
    }
}

struct Acceptor {
    mechanism: InsecureTestMechanism,
    session: u64,
    peer: String,
    round: u8,
}

impl ContextSetup for Acceptor {
    fn step(&mut self, token: Option<&[u8]>) -> Result<SetupStep, GssError> {
        self.mechanism.block();
        let TestKey(key) = self.mechanism.key;
        let defective = || GssError::new(major::DEFECTIVE_TOKEN, "unexpected token");
        let (round, rest) = checked(key, token.unwrap_or_default())?.split_first().ok_or_else(defective)?;
        if *round != self.round + 1 {
            return Err(defective());
        }
        self.round += 1;
        if self.round == 1 {
            let (nonce, name) = rest.split_first_chunk().ok_or_else(defective)?;
            self.session = key ^ u64::from_be_bytes(*nonce).rotate_left(32);
            self.peer = String::from_utf8_lossy(name).into_owned();
        }
        if self.round < self.mechanism.rounds {
            return Ok(SetupStep { token: Some(signed(key, vec![1])), context: None });
        }
        let token = [&[0][..], self.mechanism.name.as_bytes()].concat();
        let context = self.mechanism.context(self.session, self.peer.clone());
        Ok(SetupStep { token: Some(signed(key, token)), context: Some(context) })
    }
}

#[derive(Debug)]
struct TestContext {
    session: TestKey,
    peer: String,
    until: Option<Instant>,
    number: usize,
    /// A lock that each operation takes, as with a Kerberos context.
    lock: Mutex<()>,
    faults: Arc<Faults>,
}

impl TestContext {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Damages the checksum of a message of more than 500 bytes, if the test has injected that fault.
    fn damage(&self, message: &[u8], made: &mut [u8]) {
        if message.len() > 500
            && self.faults.damage.load(Ordering::Relaxed)
            && let Some(last) = made.last_mut()
        {
            *last ^= 1;
        }
    }

    fn hold(&self, message: &[u8]) {
        if message.len() > MAX_BODY_IN_TASK + 4 {
            self.faults.hold.wait();
        }
    }

    // As with Kerberos, an expired context accepts no messages, but still makes them.
    fn check_time(&self) -> Result<(), GssError> {
        self.check_number()?;
        if self.is_stale() || self.until.is_some_and(|until| until <= Instant::now()) {
            return Err(GssError::new(major::CONTEXT_EXPIRED, "the context has expired"));
        }
        Ok(())
    }

    fn is_stale(&self) -> bool {
        self.number <= self.faults.stale.load(Ordering::Relaxed)
    }

    fn check_number(&self) -> Result<(), GssError> {
        if self.number <= self.faults.expired.load(Ordering::Relaxed) {
            return Err(GssError::new(major::CONTEXT_EXPIRED, "a test let the context expire"));
        }
        Ok(())
    }

    fn scramble(&self, message: &[u8]) -> Vec<u8> {
        message.iter().zip(self.session.0.to_le_bytes().iter().cycle()).map(|(byte, key)| byte ^ key ^ 0xa5).collect()
    }
}

fn injected(fault: &AtomicBool) -> Result<(), GssError> {
    let fails = fault.load(Ordering::Relaxed);
    if fails { Err(GssError::new(major::FAILURE, "a test made it fail")) } else { Ok(()) }
}

impl GssContext for TestContext {
    fn get_mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let _turn = self.lock();
        injected(&self.faults.get_mic)?;
        self.check_number()?;
        let mut mic = mac(self.session.0, message).to_vec();
        self.damage(message, &mut mic);
        Ok(mic)
    }

    fn verify_mic(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        let _turn = self.lock();
        self.check_time()?;
        let is_valid = mic == mac(self.session.0, message);
        if is_valid { Ok(()) } else { Err(GssError::new(major::BAD_MIC, "wrong checksum")) }
    }

    fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let _turn = self.lock();
        self.hold(message);
        injected(&self.faults.wrap)?;
        self.check_number()?;
        let mut wrapped = signed(self.session.0, self.scramble(message));
        self.damage(message, &mut wrapped);
        Ok(wrapped)
    }

    fn unwrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let _turn = self.lock();
        self.hold(message);
        self.check_time()?;
        Ok(self.scramble(checked(self.session.0, message)?))
    }

    fn max_mic(&self) -> usize {
        MIC
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        len.saturating_add(MIC as u64)
    }

    fn lifetime(&self) -> Option<Duration> {
        let _turn = self.lock();
        if self.is_stale() || self.check_number().is_err() {
            return Some(Duration::ZERO);
        }
        Some(self.until?.saturating_duration_since(Instant::now()))
    }

    fn peer(&self) -> &str {
        &self.peer
    }
}
