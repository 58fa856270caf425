//! The use of a context by a client: sequence numbers, credentials and verifiers (RFC 2203 §5.3.1, §5.4).

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    body::BodyProtection,
    creation::CreatedContext,
    credential::{GssCredential, flavor, gss_auth, service},
    mechanism::GssContext,
    sync::{AtomicBool, Mutex, MutexGuard, Notify, Ordering, PoisonError},
    wire::{MAXSEQ, RpcGssProcT},
};
use crate::rpc::{AuthFailure, AuthStat, OpaqueAuth};
use crate::security::{
    BlockingQueue, CallSecurity, ControlCall, Protection, ProtectionLevel, Seal, Secured, SecurityError,
};

/// Maximum length of the interval at the end of a context's lifetime in which no call is secured with the context. For
/// lifetimes of less than twice this length, the interval is half of the lifetime. A server may also stop accepting
/// calls before the end.
const EXPIRY_MARGIN: Duration = Duration::from_secs(20);

/// Exclusive upper bound of the sequence numbers of calls. The last number below MAXSEQ is for the destruction of the
/// context.
const END_OF_CALLS: u32 = MAXSEQ - 1;

/// An established context of a client.
#[derive(Debug)]
pub(super) struct ClientContext {
    gss: Arc<dyn GssContext>,
    queue: BlockingQueue,
    handle: Bytes,
    window: u32,
    program: u32,
    version: u32,
    /// The time from which no more calls are secured with the context. `None` if the context does not expire.
    expires: Option<Instant>,
    /// `true` if the server has denied a call because of the context, or a call has found the context expired.
    is_dead: AtomicBool,
    numbers: Mutex<SequenceNumbers>,
    /// Notifies waiting tasks when a call has ended.
    ended: Notify,
}

/// The sequence numbers of a context.
#[derive(Debug)]
struct SequenceNumbers {
    next: u32,
    /// The numbers of calls that have not ended.
    outstanding: BTreeSet<u32>,
}

/// The reason why a context has no sequence number for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoNumber {
    /// The window is full. A call has to end first.
    WindowFull,
    /// All numbers are used up.
    Exhausted,
}

impl ClientContext {
    pub(super) fn new(created: CreatedContext, program: u32, version: u32, now: Instant) -> Self {
        let CreatedContext { context: gss, handle, window } = created;
        let expires = gss.lifetime().and_then(|lifetime| {
            // The second half of a short lifetime, as in a test, is for the replies.
            now.checked_add(lifetime.saturating_sub(EXPIRY_MARGIN.min(lifetime / 2)))
        });
        let numbers = Mutex::new(SequenceNumbers { next: 1, outstanding: BTreeSet::new() });
        let (is_dead, ended) = (AtomicBool::new(false), Notify::new());
        let queue = BlockingQueue::new();
        Self { gss, queue, handle, window, program, version, expires, is_dead, numbers, ended }
    }

    fn numbers(&self) -> MutexGuard<'_, SequenceNumbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if calls may be secured with the context.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        !self.is_dead() && self.expires.is_none_or(|at| now < at)
    }

    /// Returns `true` if the server has denied a call because of the context, or a call has found the context expired.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Returns `true` if all calls have ended.
    pub(super) fn is_idle(&self) -> bool {
        self.numbers().outstanding.is_empty()
    }

    /// Waits until all calls have ended.
    pub(super) async fn idle(&self) {
        loop {
            // Created before the calls are counted, so that the end of a call in between is not lost.
            let ended = self.ended.notified();
            if self.is_idle() {
                return;
            }
            ended.await;
        }
    }

    /// Takes the next sequence number for a call. The number is below `end`, and outstanding until the call has ended.
    // RFC 2203 §5.3.1: numbers increase, and stay below MAXSEQ. §5.3.3.1: the server discards a number below its
    // window. So no number is used that would move the window beyond a call that is outstanding, even if that call is
    // overtaken by others.
    fn next_number(&self, end: u32) -> Result<u32, NoNumber> {
        let mut numbers = self.numbers();
        // RFC 2203 §5.2.3.1, §5.3.3.2: the server has signed its window, and signs the number of each call, without
        // anything else. So its signature of the window would pass as the verifier of the reply to the call with this
        // number.
        if numbers.next == self.window {
            numbers.next += 1;
        }
        let SequenceNumbers { next, ref outstanding } = *numbers;
        if outstanding.first().is_some_and(|first| next - first >= self.window) {
            return Err(NoNumber::WindowFull);
        }
        if next >= end {
            return Err(NoNumber::Exhausted);
        }
        numbers.next += 1;
        numbers.outstanding.insert(next);
        Ok(next)
    }

    /// Secures a call with the next sequence number. The inner error means that no number is available, and the outer
    /// error that the context handle is too long.
    pub(super) fn secure(self: &Arc<Self>, level: ProtectionLevel) -> Result<Result<Secured, NoNumber>, SecurityError> {
        let sequence = match self.next_number(END_OF_CALLS) {
            Ok(sequence) => sequence,
            Err(none) => return Ok(Err(none)),
        };
        let call = Arc::new(GssCall {
            context: Arc::clone(self),
            sequence,
            // RFC 2203 §5.3.2.2: the body has the sequence number of the credential.
            protection: BodyProtection::of(&self.gss, &self.queue, sequence, level),
        });
        match self.credential(RpcGssProcT::RpcsecGssData, sequence, level) {
            Ok(credential) => Ok(Ok(Secured { credential, call })),
            Err(error) => {
                call.ended();
                Err(error)
            }
        }
    }

    /// Secures a call as [`secure`](Self::secure) does. If the window is full, waits until a call has ended, and then
    /// returns [`NoNumber::WindowFull`], because the context may no longer be usable. The caller has to try again.
    pub(super) async fn secure_in_turn(
        self: &Arc<Self>,
        level: ProtectionLevel,
    ) -> Result<Result<Secured, NoNumber>, SecurityError> {
        // Created before the attempt, so that the end of a call in between is not lost.
        let ended = self.ended.notified();
        let secured = self.secure(level)?;
        if matches!(secured, Err(NoNumber::WindowFull)) {
            ended.await;
        }
        Ok(secured)
    }

    fn credential(
        &self,
        procedure: RpcGssProcT,
        sequence: u32,
        level: ProtectionLevel,
    ) -> Result<OpaqueAuth, SecurityError> {
        let credential = GssCredential { procedure, sequence, service: service(level), handle: self.handle.clone() };
        credential.encode().map_err(|error| SecurityError(format!("the context handle is too long: {error}")))
    }

    /// Returns the call that destroys the context at the server, and the security that checks its reply. Returns `None`
    /// if no sequence number is available, or if the handle is too long.
    // RFC 2203 §5.4: formulated like a data request, without arguments.
    pub(super) fn destruction(self: &Arc<Self>) -> Option<(ControlCall, Arc<dyn CallSecurity>)> {
        let level = ProtectionLevel::Authentication;
        let sequence = self.next_number(MAXSEQ).ok()?;
        let call = Arc::new(GssCall { context: Arc::clone(self), sequence, protection: None });
        let credential = self.credential(RpcGssProcT::RpcsecGssDestroy, sequence, level);
        let control = ControlCall {
            program: self.program,
            version: self.version,
            credential: credential.inspect_err(|_| call.ended()).ok()?,
            seal: Some(Arc::clone(&call) as Arc<dyn Seal>),
            arguments: Bytes::new(),
            max_results: 0,
        };
        let security: Arc<dyn CallSecurity> = call;
        Some((control, security))
    }
}

/// The security of one call.
#[derive(Debug)]
struct GssCall {
    context: Arc<ClientContext>,
    sequence: u32,
    protection: Option<Arc<dyn Protection>>,
}

impl Seal for GssCall {
    // RFC 2203 §5.3.1: the checksum of the header.
    fn seal(&self, header: &[u8]) -> Result<OpaqueAuth, SecurityError> {
        match self.context.gss.get_mic(header) {
            Ok(mic) => Ok(gss_auth(mic.into())),
            Err(error) => Err(SecurityError(format!("the call cannot be signed: {error}"))),
        }
    }

    fn queue(&self) -> Option<BlockingQueue> {
        Some(self.context.queue.clone())
    }
}

impl CallSecurity for GssCall {
    // RFC 2203 §5.3.3.2: the checksum of the sequence number.
    fn verify(&self, verifier: &OpaqueAuth) -> Result<(), SecurityError> {
        if verifier.flavor != flavor() {
            return Err(SecurityError("the reply has no RPCSEC_GSS verifier".into()));
        }
        let checked = self.context.gss.verify_mic(&self.sequence.to_be_bytes(), &verifier.body);
        checked.map_err(|error| SecurityError(format!("the verifier of the reply is wrong: {error}")))
    }

    fn protection(&self) -> Option<Arc<dyn Protection>> {
        self.protection.clone()
    }

    fn expired(&self) -> bool {
        let has_expired = self.context.gss.lifetime().is_some_and(|left| left.is_zero());
        if has_expired {
            self.context.is_dead.store(true, Ordering::Relaxed);
        }
        has_expired
    }

    // RFC 2203 §5.3.3.3: after these two errors the client must refresh the context and try again. After others it must
    // not.
    fn denied(&self, failure: AuthFailure) -> bool {
        let is_stale = matches!(failure.stat(), Some(AuthStat::RpcsecGssCredproblem | AuthStat::RpcsecGssCtxproblem));
        if is_stale {
            self.context.is_dead.store(true, Ordering::Relaxed);
        }
        is_stale
    }

    fn ended(&self) {
        self.context.numbers().outstanding.remove(&self.sequence);
        self.context.ended.notify_waiters();
    }
}

#[cfg(test)]
impl ClientContext {
    /// Sets the sequence number of the next call.
    pub(super) fn set_next(&self, next: u32) {
        self.numbers().next = next;
    }
}
