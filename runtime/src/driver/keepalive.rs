//! Keep-alive probes of a silent peer.
//!
//! A probe is a call of procedure 0, which any RPC server answers at once. RPC-over-RDMA version 2 has no other message
//! that a peer has to answer: a grant of credits without a payload (RPC-over-RDMA v2 §4.2.1.2, §6.3.2) is not
//! acknowledged.

use std::time::{Duration, Instant};

use crate::{
    engine::{CallId, CallPolicy, ChunkItems, OutgoingCall, ReplyResources},
    memory::MessageBuf,
    xdr::Output as _,
};

/// Maximum length of a reply to a probe, in bytes: a refusal with the longest verifier (RFC 5531 §8.2).
const MAX_REPLY: u64 = 36 + 400;
/// Shortest time without a byte from the peer after which it is probed while calls are in flight, unless the configured
/// interval is shorter.
const MIN_QUIET: Duration = Duration::from_millis(250);
/// Number of round trips without a byte from the peer after which it is probed while calls are in flight, if these
/// round trips take longer than [`MIN_QUIET`].
const QUIET_ROUND_TRIPS: u32 = 4;
/// Longest time between the probes of an idle connection, as a multiple of the configured interval.
const MAX_IDLE_INTERVALS: u32 = 8;

/// The interval and the timeout of probes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepaliveConfig {
    /// Longest time between probes while calls are in flight, and the time before the first probe of an idle
    /// connection.
    pub(crate) interval: Duration,
    /// Time without a byte from the peer, while a probe is in flight, after which the connection counts as lost.
    pub(crate) timeout: Duration,
}

/// A program and version whose procedure 0 is called as a probe. The keep-alive check uses those of the first call that
/// the local side made on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProbedProgram {
    program: u32,
    version: u32,
}

impl ProbedProgram {
    /// Reads the program and the version of an encoded call. Returns `None` if `message` is too short.
    // RFC 5531 §9: XID, message type, RPC version, program, version, procedure.
    pub(super) fn of(message: &[u8]) -> Option<Self> {
        let word = |at: usize| message.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        Some(Self { program: word(12)?, version: word(16)? })
    }

    /// Returns a call of the program's procedure 0, without a credential.
    pub(crate) fn null_call(self) -> OutgoingCall {
        // RFC 5531 §9, after the XID: CALL, RPC version 2, program, version, procedure, and credential and verifier of
        // AUTH_NONE.
        let mut header = [0; 40];
        header[8..12].copy_from_slice(&2_u32.to_be_bytes());
        header[12..16].copy_from_slice(&self.program.to_be_bytes());
        header[16..20].copy_from_slice(&self.version.to_be_bytes());
        let mut message = MessageBuf::new(vec![0; header.len()].into(), 0);
        message.append(&header);
        OutgoingCall {
            message,
            reduced: ChunkItems::new(),
            reply: ReplyResources { max_inline: MAX_REPLY, chunks: ChunkItems::new() },
            deadline: None,
            policy: CallPolicy { idempotent: true, urgent: true, ..CallPolicy::default() },
        }
    }

    /// Returns `true` if `message` is a call of procedure 0, which may be a probe.
    #[inline]
    pub(super) fn is_probe(message: &[u8]) -> bool {
        message.get(20..24) == Some(&[0; 4])
    }
}

/// The action that follows from a keep-alive check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepaliveStep {
    Wait,
    /// Sends a probe: a call of procedure 0 of this program.
    Probe(ProbedProgram),
    /// Cancels this probe, because nothing has arrived from the peer for the timeout. If the probe was sent, the
    /// connection is lost.
    GiveUp(CallId),
}

/// A probe that has no reply yet.
#[derive(Debug)]
struct Probe {
    id: CallId,
    sent: Instant,
    /// Time of the last check that found new bytes from the peer. Initially, the time of the probe.
    heard: Instant,
}

/// Decides when the peer is probed, and when it counts as silent.
///
/// Every byte from the peer is a sign of life. New bytes are looked for only at the time of the next check. Calls move
/// that time only if it is far away, so that a call on a busy connection costs only a comparison.
#[derive(Debug)]
pub(super) struct Keepalive {
    config: Option<KeepaliveConfig>,
    /// The program to probe. `None` before the first call. Until then, the peer is not probed.
    program: Option<ProbedProgram>,
    next: Option<Instant>,
    /// `true` if a call was started since the last check without a probe in flight, or if probes are disabled.
    is_used: bool,
    /// Number of bytes received from the peer at the last check.
    received: u64,
    /// Time from which silence is counted: the last check that found new bytes, the end of a probe, or a later call.
    heard: Instant,
    /// Time without a byte from the peer before the next probe.
    quiet: Duration,
    probe: Option<Probe>,
    round_trip: Duration,
}

impl Keepalive {
    pub(super) fn new(config: Option<KeepaliveConfig>, now: Instant) -> Self {
        Self {
            config,
            program: None,
            next: None,
            // Without probes, a call need not be looked at.
            is_used: config.is_none(),
            received: 0,
            heard: now,
            quiet: Duration::ZERO,
            probe: None,
            round_trip: Duration::ZERO,
        }
    }

    /// Returns the time of the next check.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns `true` if the next call is to be [noted](Self::call_started).
    #[inline]
    pub(super) fn notes_call(&self) -> bool {
        !self.is_used
    }

    /// Records the first call that is started after a check. `message` is the encoded call.
    #[cold]
    pub(super) fn call_started(&mut self, message: &[u8], now: Instant) {
        let Some(config) = self.config else { return };
        self.is_used = true;
        self.program = self.program.or_else(|| ProbedProgram::of(message));
        self.quiet = (self.round_trip * QUIET_ROUND_TRIPS).max(MIN_QUIET).min(config.interval);
        let soon = now.checked_add(self.quiet);
        if self.probe.is_none() && self.next.is_none_or(|next| soon.is_some_and(|soon| soon < next)) {
            self.heard = now;
            self.next = soon;
        }
    }

    /// Records that the probe `id` was sent at `now`.
    pub(super) fn probed(&mut self, id: CallId, now: Instant) {
        self.probe = Some(Probe { id, sent: now, heard: now });
        self.next = self.config.and_then(|config| now.checked_add(config.timeout));
    }

    /// Records that the probe has ended. `is_answered` is `true` if it got a reply. `received` is the number of bytes
    /// received so far.
    pub(super) fn ended(&mut self, is_answered: bool, received: u64, now: Instant) {
        let (Some(config), Some(Probe { sent, .. })) = (self.config, self.probe.take()) else { return };
        if is_answered {
            self.round_trip = now.saturating_duration_since(sent);
        }
        (self.heard, self.received) = (now, received);
        self.next = now.checked_add(self.quiet.min(config.interval));
    }

    /// Ends the checks, because the connection is being closed.
    pub(super) fn end(&mut self) {
        (self.config, self.probe, self.next, self.is_used) = (None, None, None, true);
    }

    /// Returns `true` if `id` is the call of the probe in flight.
    #[inline]
    pub(super) fn is_probe(&self, id: CallId) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.id == id)
    }

    /// Checks the connection at `now`, and sets the time of the next check, unless a probe is to be sent. `received` is
    /// the number of bytes received from the peer. `is_idle` is `true` if no call is in flight.
    pub(super) fn check(&mut self, received: u64, is_idle: bool, now: Instant) -> KeepaliveStep {
        let (Some(config), Some(program)) = (self.config, self.program) else {
            self.next = None;
            return KeepaliveStep::Wait;
        };
        let is_alive = std::mem::replace(&mut self.received, received) != received;
        if let Some(probe) = &mut self.probe {
            if is_alive {
                probe.heard = now;
            }
            let due = probe.heard.checked_add(config.timeout);
            if due.is_some_and(|due| due <= now) {
                self.next = None;
                return KeepaliveStep::GiveUp(probe.id);
            }
            self.next = due;
            return KeepaliveStep::Wait;
        }
        if is_alive {
            self.heard = now;
        }
        // The next call sets the check sooner if it has to be.
        self.is_used = false;
        let quiet = if is_idle { self.quiet.max(config.interval) } else { self.quiet.min(config.interval) };
        let due = self.heard.checked_add(quiet);
        if due.is_some_and(|due| due <= now) {
            // A peer that answers probes only is busy or idle.
            self.quiet = quiet.saturating_mul(2).min(config.interval.saturating_mul(MAX_IDLE_INTERVALS));
            return KeepaliveStep::Probe(program);
        }
        self.next = due;
        KeepaliveStep::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: KeepaliveConfig = KeepaliveConfig { interval: secs(30), timeout: secs(10) };
    const PROGRAM: ProbedProgram = ProbedProgram { program: 7, version: 3 };
    const PROBE: CallId = CallId(9);

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn call() -> OutgoingCall {
        PROGRAM.null_call()
    }

    /// Returns the keep-alive state of a connection with a call that was started at `begin`.
    fn in_use(begin: Instant) -> Keepalive {
        let mut keepalive = Keepalive::new(Some(CONFIG), begin);
        keepalive.call_started(&call().message, begin);
        keepalive
    }

    #[test]
    fn a_probe_is_a_call_of_procedure_0() {
        let probe = call();
        assert_eq!(ProbedProgram::of(&probe.message), Some(PROGRAM));
        assert!(ProbedProgram::is_probe(&probe.message));
        let mut other = probe.message;
        other[23] = 1;
        assert!(!ProbedProgram::is_probe(&other));
        assert!(!ProbedProgram::is_probe(&other[..20]));
        assert_eq!(ProbedProgram::of(&other[..19]), None);
    }

    #[test]
    fn nothing_is_probed_without_a_call_or_a_configuration() {
        let begin = Instant::now();
        let mut unused = Keepalive::new(Some(CONFIG), begin);
        assert_eq!((unused.next(), unused.check(0, true, begin + secs(100))), (None, KeepaliveStep::Wait));
        let mut without = Keepalive::new(None, begin);
        assert!(!without.notes_call());
        without.call_started(&call().message, begin);
        assert_eq!((without.next(), without.check(0, false, begin + secs(100))), (None, KeepaliveStep::Wait));
    }

    /// Returns the intervals before the first ten probes of a peer that answers at once. The first interval begins with
    /// the call.
    fn times(is_idle: bool) -> Vec<Duration> {
        let begin = Instant::now();
        let mut keepalive = in_use(begin);
        let (mut last, mut times) = (begin, Vec::new());
        while times.len() < 10 {
            let now = keepalive.next().unwrap();
            if keepalive.check(0, is_idle, now) == KeepaliveStep::Probe(PROGRAM) {
                keepalive.probed(PROBE, now);
                assert!(keepalive.is_probe(PROBE) && !keepalive.is_probe(CallId(1)));
                keepalive.ended(true, 0, now);
                times.push(now - last);
                last = now;
            }
        }
        times
    }

    #[test]
    fn probes_become_rare() {
        let in_flight = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000].map(Duration::from_millis);
        assert_eq!(times(false), in_flight);
        assert_eq!(times(true), [30, 60, 120, 240, 240, 240, 240, 240, 240, 240].map(secs));
    }

    /// Each new byte delays the next probe or, after a probe, the loss of the connection.
    #[test]
    fn bytes_are_signs_of_life() {
        let begin = Instant::now();
        let mut keepalive = in_use(begin);
        let mut received = 0;
        for _ in 0..100 {
            received += 1;
            let now = keepalive.next().unwrap();
            assert_eq!(keepalive.check(received, false, now), KeepaliveStep::Wait);
            assert_eq!(keepalive.next(), Some(now + MIN_QUIET));
        }
        let now = keepalive.next().unwrap();
        assert_eq!(keepalive.check(received, false, now), KeepaliveStep::Probe(PROGRAM));
        keepalive.probed(PROBE, now);
        assert_eq!(keepalive.check(received, false, now + secs(9)), KeepaliveStep::Wait);
        assert_eq!(keepalive.next(), Some(now + secs(10)));
        assert_eq!(keepalive.check(received + 1, false, now + secs(10)), KeepaliveStep::Wait);
        assert_eq!(keepalive.check(received + 1, false, now + secs(19)), KeepaliveStep::Wait);
        assert_eq!(keepalive.check(received + 1, false, now + secs(20)), KeepaliveStep::GiveUp(PROBE));
    }

    /// After a long idle time, a call brings the next check forward. Further calls before that check do not.
    #[test]
    fn a_call_moves_a_late_check() {
        let begin = Instant::now();
        let mut keepalive = in_use(begin);
        assert_eq!(keepalive.check(1, true, begin + secs(1)), KeepaliveStep::Wait);
        assert_eq!(keepalive.next(), Some(begin + secs(31)));
        assert!(keepalive.notes_call());
        keepalive.call_started(&call().message, begin + secs(20));
        assert!(!keepalive.notes_call());
        assert_eq!(keepalive.next(), Some(begin + secs(20) + MIN_QUIET));
        // The peer has said nothing for 20 s, because it was not asked.
        assert_eq!(keepalive.check(1, false, begin + secs(20) + MIN_QUIET / 2), KeepaliveStep::Wait);
    }

    /// On a slow network, the first probe after a call waits for four round trips without a byte from the peer.
    #[test]
    fn the_first_probe_waits_for_round_trips() {
        let begin = Instant::now();
        let mut keepalive = in_use(begin);
        keepalive.probed(PROBE, begin);
        keepalive.ended(true, 1, begin + secs(1));
        assert_eq!(keepalive.check(2, true, begin + secs(2)), KeepaliveStep::Wait);
        keepalive.call_started(&call().message, begin + secs(2));
        assert_eq!(keepalive.next(), Some(begin + secs(6)));
    }
}
