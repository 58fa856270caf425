//! The calls of a run with their results, and the checks of what servers and clients promise.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    disk::Applied,
    fault::{Fault, FaultKind},
    files::FileReply,
    network::Host,
    scenario::{CallKind, Operation, Scenario},
    server::CALLBACK_TIMEOUT,
};

/// Maximum time between the deadline of a call and its end.
const MAX_OVERTIME: Duration = Duration::from_millis(5);
/// Maximum duration of a call while there is no fault.
const MAX_DURATION: Duration = Duration::from_secs(2);
/// Shortest deadline of a call.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest duration of a call that waits until a callback times out, or until its own deadline.
const MAX_BLOCKED: Duration = CALLBACK_TIMEOUT.saturating_add(MAX_DURATION);
/// Idle time-out of a server below which the server can close a connection while a call is on its way.
const MIN_IDLE: Duration = Duration::from_secs(100);
/// The shortest deadline with which an idempotent call of a balancer has to succeed while one server is healthy.
const MIN_DEADLINE: Duration = Duration::from_secs(60);
/// The longest time in which a client connects, or waits for a connection.
const CONNECTING: Duration = Duration::from_secs(3);
/// Additional time after a jump of the clock, in which a connection reads what has arrived before it handles deadlines.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The category of a failed call's error. The check of the history accepts an error only if an injected fault can cause
/// its category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The server was not reached, its connection was lost, a time limit passed, or the client ended the call.
    Unreachable,
    /// The server replied that it cannot execute the call now.
    Unavailable,
    /// The server replied with SYSTEM_ERR.
    SystemError,
    /// The client could not register memory, or the server refused the call with a transport error, as it does without
    /// memory for the call.
    Registration,
    /// No security context could be created, or the reply failed its check.
    Security,
    /// Any other error, which no fault causes.
    Other,
}

/// The result of a call.
#[derive(Debug, Clone)]
pub enum CallOutcome {
    /// The call is in progress.
    InProgress,
    /// A number: a sum, a value, the version of a blob whose data is correct, or a checksum.
    Done(u64),
    /// The result of a call to the NFS service.
    FileDone(FileReply),
    /// The reply is wrong, for this reason.
    Wrong(String),
    /// The client was killed, or gave up the call, before it had a result.
    Killed,
    /// The call failed with an error.
    Failed {
        /// The error in words.
        error: String,
        /// `true` if the client reports that the call was not executed.
        is_retry_safe: bool,
        /// The category of the error.
        cause: FailureCause,
    },
}

impl CallOutcome {
    /// Returns `true` if the call has a correct result.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done(_) | Self::FileDone(_))
    }
}

/// A call of a run.
#[derive(Debug, Clone)]
pub struct Record {
    /// The client that made the call.
    pub client: Host,
    /// The server that may have received the call. `None` if it may be any server.
    pub server: Option<Host>,
    /// The planned call.
    pub operation: Operation,
    /// Start of the call, relative to the beginning of the run.
    pub start: Duration,
    /// End of the call, relative to the beginning of the run. `Duration::MAX` if the call has not ended.
    pub end: Duration,
    /// The result of the call.
    pub outcome: CallOutcome,
}

/// All calls of a run. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Vec<Record>>>);

impl History {
    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call that begins at `now`. Returns the index of the call.
    pub fn begin(&self, client: Host, server: Option<Host>, operation: Operation, now: Duration) -> usize {
        let mut records = self.lock();
        let outcome = CallOutcome::InProgress;
        records.push(Record { client, server, operation, start: now, end: Duration::MAX, outcome });
        records.len() - 1
    }

    /// Sets the result and the end of a call.
    pub fn end(&self, index: usize, outcome: CallOutcome, now: Duration) {
        let record = &mut self.lock()[index];
        record.outcome = outcome;
        record.end = now;
    }

    /// Records that a client was killed. Its calls in progress get no result.
    pub fn kill(&self, client: Host, now: Duration) {
        for record in self.lock().iter_mut() {
            if record.client == client && matches!(record.outcome, CallOutcome::InProgress) {
                record.outcome = CallOutcome::Killed;
                record.end = now;
            }
        }
    }

    /// Returns all calls so far.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }
}

/// A time in which calls may fail, because of a fault or of its consequences.
#[derive(Debug, Clone)]
pub struct Excuse {
    /// The fault that explains failures.
    pub fault: Fault,
    /// The beginning of the fault.
    pub from: Duration,
    /// The end of the excuse. Calls that begin later have to succeed.
    pub until: Duration,
}

impl Excuse {
    /// Returns `true` if the time of the excuse and the time of the call overlap.
    fn overlaps(&self, record: &Record) -> bool {
        record.start <= self.until && record.end >= self.from
    }

    /// Returns `true` if the fault only makes a server unreachable, so that another server can execute the call.
    fn concerns_one_server(&self) -> bool {
        matches!(
            self.fault.kind,
            FaultKind::Cut
                | FaultKind::Separate
                | FaultKind::OneWay
                | FaultKind::Kill
                | FaultKind::HostDown
                | FaultKind::Restart
                | FaultKind::Refuse
        )
    }

    /// Returns `true` if the fault explains that a call failed, or took a long time.
    fn explains(&self, record: &Record) -> bool {
        let is_in_time = self.overlaps(record);
        let fault = &self.fault;
        let is_its_server = record.server.is_none_or(|server| server == fault.server);
        let is_its_client = match fault.kind {
            FaultKind::Cut
            | FaultKind::Separate
            | FaultKind::OneWay
            | FaultKind::KillClient
            | FaultKind::NoRegistration
            | FaultKind::NoInvalidation => record.client == fault.client,
            _ => true,
        };
        is_in_time && (fault.kind.concerns_all() || (is_its_server && is_its_client)) && self.can_cause(&record.outcome)
    }

    /// Returns `true` if the fault can lead to this outcome. Any fault can delay a call that succeeds.
    fn can_cause(&self, outcome: &CallOutcome) -> bool {
        let CallOutcome::Failed { cause, .. } = outcome else { return true };
        match self.fault.kind {
            FaultKind::DiskFull => *cause == FailureCause::Unavailable,
            // Clients create new contexts, and no call fails.
            FaultKind::ContextsExpire => false,
            FaultKind::TornWrite => !matches!(cause, FailureCause::Registration | FailureCause::Other),
            // A callback that cannot be made is an error of the server.
            FaultKind::NoRegistration => !matches!(cause, FailureCause::Unavailable | FailureCause::Other),
            // Their calls back fail, and become errors of the server.
            _ => matches!(cause, FailureCause::Unreachable | FailureCause::SystemError | FailureCause::Security),
        }
    }
}

/// Returns `true` if a call must not fail, because a balancer had a healthy server during the whole call.
fn has_healthy_server(record: &Record, excuses: &[Excuse], servers: &[Host]) -> bool {
    let call = record.operation.call;
    let is_repeatable = call.is_idempotent() && !matches!(call, CallKind::AskBack { .. });
    let deadline = Duration::from_millis(record.operation.timeout);
    let mut overlapping = excuses.iter().filter(|excuse| excuse.overlaps(record));
    let has_time = deadline >= MIN_DEADLINE && record.end - record.start >= deadline;
    let is_healthy =
        |server: &Host| !excuses.iter().any(|excuse| excuse.overlaps(record) && excuse.fault.server == *server);
    record.server.is_none()
        && is_repeatable
        && has_time
        && servers.iter().any(is_healthy)
        && overlapping.all(Excuse::concerns_one_server)
}

/// Returns `true` if a server may close a connection for being idle when the call is on its way, and nobody may repeat
/// the call. A balancer does not repeat a call that must not be executed twice.
fn meets_idle_close(record: &Record, scenario: &Scenario) -> bool {
    let is_short = scenario.server.idle < MIN_IDLE.as_millis() as u64;
    is_short && record.server.is_none() && !record.operation.call.is_idempotent()
}

/// Returns `true` if calls may wait for one another until a callback times out. A handler waits for a reply over TCP
/// that is behind a call. That call waits for memory, and the calls that hold the memory wait for a handler.
fn meets_blocked_callback(record: &Record, records: &[Record], scenario: &Scenario) -> bool {
    let plan = &scenario.server;
    let is_tcp = |host| scenario.clients.iter().any(|client| client.host == host && client.scheme == "sim-tcp");
    let overlaps = |other: &&Record| other.start <= record.end && record.start <= other.end;
    plan.memory < 1 << 20
        && (plan.handlers > 0 || plan.per_caller > 0)
        && records
            .iter()
            .filter(overlaps)
            .any(|other| matches!(other.operation.call, CallKind::AskBack { .. }) && is_tcp(other.client))
}

/// Returns `true` if a call failed before its deadline for lack of a connection, although its client was allowed to
/// retry.
///
/// Two cases are allowed. A balancer has a budget for retries, and does not repeat a call that must not be executed
/// twice. A server whose disk is full, or whose recorded reply is damaged, replies to a repeated call that it does not
/// execute it, and no retry follows a reply.
fn gives_up_early(record: &Record, excuses: &[Excuse], scenario: &Scenario) -> bool {
    let refuses = |excuse: &Excuse| {
        matches!(excuse.fault.kind, FaultKind::DiskFull | FaultKind::TornWrite) && excuse.overlaps(record)
    };
    if excuses.iter().any(refuses) {
        return false;
    }
    let Some(client) = scenario.clients.iter().find(|client| client.host == record.client) else { return false };
    let CallOutcome::Failed { cause: FailureCause::Unreachable, .. } = record.outcome else { return false };
    // A call fails at once if the pause before the next attempt ends after its deadline.
    let time = record.end - record.start + Duration::from_millis(client.backoff.1);
    client.retries > 0 && record.server.is_some() && time < Duration::from_millis(record.operation.timeout)
}

/// Returns the maximum duration of a call without a deadline, if only silence delays it. Returns `None` if there is no
/// such maximum.
///
/// There is no such maximum over RDMA, because a call that holds the only credit leaves no credit for a probe.
fn silence_limit(record: &Record, excuses: &[Excuse], scenario: &Scenario) -> Option<Duration> {
    let client = scenario.clients.iter().find(|client| client.host == record.client)?;
    let is_silence = |kind| matches!(kind, FaultKind::Separate | FaultKind::OneWay | FaultKind::HostDown);
    let mut overlapping = excuses.iter().filter(|excuse| excuse.overlaps(record));
    let is_limited = client.scheme == "sim-tcp"
        && record.server.is_some()
        && record.operation.timeout == 0
        && record.end != Duration::MAX
        && overlapping.all(|excuse| is_silence(excuse.fault.kind));
    let attempt = client.keepalive.0 + client.keepalive.1 + client.backoff.1;
    let attempt = Duration::from_millis(attempt) + CONNECTING;
    is_limited.then(|| attempt * (client.retries + 1) + MAX_DURATION)
}

/// Returns `true` if the last call of a client must succeed, because no effect of a fault is left and the client may
/// retry.
fn must_resume(record: &Record, excuses: &[Excuse], scenario: &Scenario) -> bool {
    let may_retry = scenario.clients.iter().any(|client| client.host == record.client && client.retries > 0);
    // A refusal waits for the next registration or invalidation.
    let is_left = |kind| matches!(kind, FaultKind::NoRegistration | FaultKind::NoInvalidation);
    may_retry && !excuses.iter().any(|excuse| is_left(excuse.fault.kind) && excuse.fault.client == record.client)
}

/// Returns the violations in the calls of a run on `servers`.
#[must_use]
pub fn check(
    records: &[Record],
    excuses: &[Excuse],
    applied: &BTreeMap<u64, Applied>,
    servers: &[Host],
    scenario: &Scenario,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for record in records {
        let Record { client, operation, start, end, outcome, .. } = record;
        let name = format!("operation {} of client {client}, {:?}", operation.number, operation.call);
        match outcome {
            CallOutcome::InProgress => wrong.push(format!("{name}, which began at {start:?}, never ended")),
            CallOutcome::Wrong(what) => wrong.push(format!("{name}: {what}")),
            CallOutcome::Failed { .. } if meets_idle_close(record, scenario) => {}
            CallOutcome::Failed { .. } | CallOutcome::Done(_) | CallOutcome::FileDone(_)
                if !operation.is_last
                    && (MIN_TIMEOUT..=MAX_BLOCKED).contains(&(*end - *start))
                    && meets_blocked_callback(record, records, scenario) => {}
            CallOutcome::Failed { error, .. } if operation.is_last && must_resume(record, excuses, scenario) => {
                wrong.push(format!("{name} failed after all faults were repaired: {error}"));
            }
            CallOutcome::Failed { error, .. } if !excuses.iter().any(|excuse| excuse.explains(record)) => {
                wrong.push(format!("{name} failed from {start:?} to {end:?}, but no fault explains it: {error}"));
            }
            CallOutcome::Failed { error, .. } if has_healthy_server(record, excuses, servers) => {
                wrong.push(format!("{name} failed although a server was healthy: {error}"));
            }
            CallOutcome::Done(_) | CallOutcome::FileDone(_)
                if *end - *start > MAX_DURATION && !excuses.iter().any(|excuse| excuse.explains(record)) =>
            {
                wrong.push(format!("{name} took from {start:?} to {end:?}, but no fault explains it"));
            }
            CallOutcome::Failed { error, .. } if gives_up_early(record, excuses, scenario) => {
                let (timeout, took) = (Duration::from_millis(operation.timeout), *end - *start);
                wrong.push(format!("{name} gave up after {took:?}, with {timeout:?} for retries: {error}"));
            }
            CallOutcome::Failed { .. } | CallOutcome::Killed | CallOutcome::Done(_) | CallOutcome::FileDone(_) => {}
        }
        if let Some(limit) = silence_limit(record, excuses, scenario)
            && *end - *start > limit
        {
            wrong.push(format!(
                "{name} took from {start:?} to {end:?}, although a silent server is noticed within {limit:?}"
            ));
        }
        let limit = Duration::from_millis(operation.timeout);
        let jumps = excuses.iter().filter(|excuse| excuse.fault.kind == FaultKind::ClockJump);
        let jumped: Duration = jumps.map(|excuse| Duration::from_millis(excuse.fault.number) + CATCH_UP).sum();
        if !limit.is_zero() && *end != Duration::MAX {
            let late = (*end - *start).saturating_sub(limit);
            if late > MAX_OVERTIME + jumped {
                wrong.push(format!("{name} ended {late:?} after its deadline"));
            }
        }
        if let CallKind::Add { .. } = operation.call {
            check_addition(record, &name, applied.get(&operation.number), &mut wrong);
        }
    }
    wrong
}

fn check_addition(record: &Record, name: &str, applied: Option<&Applied>, wrong: &mut Vec<String>) {
    let times = applied.map_or(0, |applied| applied.times);
    if times > 1 {
        wrong.push(format!("{name} was executed {times} times"));
    }
    match &record.outcome {
        CallOutcome::Done(_) if times == 0 => wrong.push(format!("{name} was acknowledged, but not executed")),
        CallOutcome::Done(sum) if applied.is_some_and(|applied| applied.sum != *sum) => {
            wrong.push(format!("{name} returned {sum} instead of {applied:?}"));
        }
        CallOutcome::Failed { error, is_retry_safe: true, .. } if times > 0 => {
            wrong.push(format!("{name} was executed, but its error says that a retry is safe: {error}"));
        }
        _ => {}
    }
}
