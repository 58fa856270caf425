//! The calls of a scenario: callers that make calls until they are stopped, and the results of these calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rpcrdma::{CallOptions, client::Invoke};
use rpcrdma_examples::command::chain;
use rpcrdma_trials::without_numbers;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::service::protocol::{
    AnsweredBy,
    outages_v1::{Read, Record},
};

/// The pause of a caller between two calls.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum time from the deadlines of the last calls to the end of all calls.
const MAX_DRAIN: Duration = Duration::from_secs(30);
/// Maximum number of different errors that are printed.
const MAX_ERRORS: usize = 4;

/// The next identifier of a call that is not idempotent. Identifiers are unique in this process, and so in each record
/// of executed calls.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A kind of call: idempotent or not, with or without a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Idempotent calls with a deadline.
    Deadline,
    /// Idempotent calls without a deadline.
    NoDeadline,
    /// Calls with a deadline that must not be executed twice.
    NotIdempotent,
}

/// The number of concurrent callers of each kind, and the time limit of calls with a deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callers {
    pub(crate) deadline: usize,
    pub(crate) no_deadline: usize,
    pub(crate) not_idempotent: usize,
    pub(crate) timeout: Duration,
}

/// A call that has ended.
#[derive(Debug)]
struct Call {
    kind: Kind,
    /// The identifier of a call that is not idempotent. Otherwise 0.
    id: u64,
    begun: Instant,
    ended: Instant,
    /// The error, as text.
    error: Option<String>,
}

/// The time of the latest answer to an idempotent call, by server and by the address from which the call came.
type LastAnswers = Arc<Mutex<HashMap<AnsweredBy, Instant>>>;

/// Callers at work. They are aborted when this value is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    is_stopped: Arc<AtomicBool>,
    last_answers: LastAnswers,
    tasks: JoinSet<Vec<Call>>,
    timeout: Duration,
}

impl Load {
    /// Starts callers that make calls one after the other.
    pub(crate) fn start<I: Invoke + Clone + 'static>(client: &I, callers: Callers) -> Self {
        let Callers { deadline, no_deadline, not_idempotent, timeout } = callers;
        let mut load =
            Self { is_stopped: Arc::default(), last_answers: Arc::default(), tasks: JoinSet::new(), timeout };
        let kinds =
            [(Kind::Deadline, deadline), (Kind::NoDeadline, no_deadline), (Kind::NotIdempotent, not_idempotent)];
        for (kind, count) in kinds {
            for _ in 0..count {
                let (client, is_stopped) = (client.clone(), Arc::clone(&load.is_stopped));
                let last_answers = Arc::clone(&load.last_answers);
                load.tasks.spawn(async move {
                    let mut calls = Vec::new();
                    while !is_stopped.load(Ordering::Relaxed) {
                        calls.push(call(&client, kind, timeout, &last_answers).await);
                        sleep(PAUSE).await;
                    }
                    calls
                });
            }
        }
        load
    }

    /// Waits for a successful idempotent call after `since`, and returns the time from `since` to its end. Returns
    /// `None` if there is none within `limit`.
    pub(crate) async fn answered(&self, since: Instant, limit: Duration) -> Option<Duration> {
        self.answered_by(since, limit, |_| true).await
    }

    /// Waits until a server for which `is_wanted` returns `true` answers an idempotent call after `since`. Returns the
    /// time from `since` to the answer, or `None` if there is no answer within `limit`.
    pub(crate) async fn answered_by(
        &self,
        since: Instant,
        limit: Duration,
        is_wanted: impl Fn(&AnsweredBy) -> bool,
    ) -> Option<Duration> {
        let answered = async {
            loop {
                let last = self.last_answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let mut wanted = last.into_iter().filter(|(by, at)| is_wanted(by) && *at > since);
                if let Some((_, at)) = wanted.next() {
                    return at - since;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit, answered).await.ok()
    }

    /// Stops the callers, and returns their calls once these have ended. Fails if calls are still in progress
    /// [`MAX_DRAIN`] after the last deadline.
    pub(crate) async fn finish(mut self) -> anyhow::Result<Calls> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let stopped = Instant::now();
        let mut calls = Vec::new();
        let all = async {
            while let Some(of_caller) = self.tasks.join_next().await {
                calls.extend(of_caller?);
            }
            anyhow::Ok(())
        };
        let limit = self.timeout + MAX_DRAIN;
        let Ok(ended) = timeout(limit, all).await else {
            anyhow::bail!("{} callers still wait {} s after the last call", self.tasks.len(), limit.as_secs());
        };
        ended?;
        Ok(Calls::new(calls, stopped))
    }
}

/// Makes a call of the kind `kind`, and returns its times and its error, if any. Records the time of the answer to an
/// idempotent call.
async fn call<I: Invoke>(client: &I, kind: Kind, timeout: Duration, last_answers: &LastAnswers) -> Call {
    let options = CallOptions::new();
    let options = if kind == Kind::NoDeadline { options } else { options.timeout(timeout) };
    let begun = Instant::now();
    let (id, result) = if kind == Kind::NotIdempotent {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        (id, client.invoke::<Record>(&id, options).await)
    } else {
        let read = client.invoke::<Read>(&(), options).await;
        let answered = read.map(|by| {
            last_answers.lock().unwrap_or_else(PoisonError::into_inner).insert(by, Instant::now());
        });
        (0, answered)
    };
    Call { kind, id, begun, ended: Instant::now(), error: result.err().map(|error| chain(&error)) }
}

/// Calls that have ended.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    /// The longest time between the ends of two consecutive successful calls, or between the last one and the end of
    /// the callers' work. `None` if no call succeeded before that end.
    gap: Option<Duration>,
}

impl Calls {
    /// Creates the record of the calls of callers that were stopped at the time `stopped`, and determines the gap.
    fn new(calls: Vec<Call>, stopped: Instant) -> Self {
        let succeeded = calls.iter().filter(|call| call.error.is_none() && call.ended < stopped);
        let mut ends: Vec<Instant> = succeeded.map(|call| call.ended).collect();
        ends.sort_unstable();
        // The last calls may wait while no others are made.
        if !ends.is_empty() {
            ends.push(stopped);
        }
        let gap = ends.windows(2).map(|pair| pair[1] - pair[0]).max();
        Self { calls, gap }
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.calls.extend(others.calls);
        self.gap = self.gap.max(others.gap);
    }

    /// Returns the number of calls of a kind, and the number of these calls that failed.
    pub(crate) fn count(&self, kind: Kind) -> (usize, usize) {
        let of_kind = || self.calls.iter().filter(|call| call.kind == kind);
        (of_kind().count(), of_kind().filter(|call| call.error.is_some()).count())
    }

    /// Returns the number of calls of a kind that failed.
    pub(crate) fn failed(&self, kind: Kind) -> usize {
        self.count(kind).1
    }

    /// Returns the duration of the longest idempotent call, or `None` if there was none.
    pub(crate) fn longest(&self) -> Option<Duration> {
        let idempotent = self.calls.iter().filter(|call| call.kind != Kind::NotIdempotent);
        idempotent.map(|call| call.ended - call.begun).max()
    }

    /// Returns the longest time after the first successful call in which callers were at work and no call succeeded.
    /// Returns `None` if no call succeeded in that time.
    pub(crate) fn gap(&self) -> Option<Duration> {
        self.gap
    }

    /// Returns the most frequent errors with their counts, each in one line, and at most [`MAX_ERRORS`]. Errors of one
    /// kind of call that differ only in their numbers count as one.
    pub(crate) fn errors(&self) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in &self.calls {
            if let Some(error) = &call.error {
                *counts.entry(format!("{:?}: {}", call.kind, without_numbers(error))).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.into_iter().take(MAX_ERRORS).map(|(error, count)| format!("{count} x {error}")).collect()
    }

    /// Compares the calls that are not idempotent with the calls that servers have recorded. Returns a fault if they do
    /// not agree.
    pub(crate) fn compare(&self, recorded: &[u64]) -> Option<String> {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for id in recorded {
            *counts.entry(*id).or_default() += 1;
        }
        let repeated = counts.values().filter(|count| **count > 1).count();
        if repeated > 0 {
            return Some(format!("{repeated} calls that are not idempotent were executed more than once"));
        }
        let succeeded = self.calls.iter().filter(|call| call.kind == Kind::NotIdempotent && call.error.is_none());
        let missing = succeeded.filter(|call| !counts.contains_key(&call.id)).count();
        (missing > 0).then(|| format!("{missing} calls succeeded and were not executed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: Kind, id: u64, millis: (u64, u64), error: Option<&str>) -> Call {
        let zero = *ZERO;
        let at = |millis| zero + Duration::from_millis(millis);
        Call { kind, id, begun: at(millis.0), ended: at(millis.1), error: error.map(str::to_owned) }
    }

    static ZERO: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

    #[test]
    fn calls_are_counted() {
        let ended = vec![
            call(Kind::Deadline, 0, (0, 10), None),
            call(Kind::Deadline, 0, (10, 50), Some("after 12 s")),
            call(Kind::NoDeadline, 0, (10, 40), None),
            call(Kind::Deadline, 0, (50, 60), Some("after 345 s")),
            call(Kind::NotIdempotent, 7, (0, 90), None),
        ];
        let calls = Calls::new(ended, *ZERO + Duration::from_millis(85));
        assert_eq!(calls.count(Kind::Deadline), (3, 2));
        assert_eq!(calls.count(Kind::NotIdempotent), (1, 0));
        assert_eq!(calls.longest(), Some(Duration::from_millis(40)));
        assert_eq!(calls.gap(), Some(Duration::from_millis(45)));
        assert_eq!(calls.errors(), ["2 x Deadline: after # s"]);
    }

    #[test]
    fn executions_are_compared() {
        let ended =
            vec![call(Kind::NotIdempotent, 7, (0, 1), None), call(Kind::NotIdempotent, 8, (0, 1), Some("lost"))];
        let calls = Calls::new(ended, Instant::now());
        assert_eq!(calls.compare(&[7]), None);
        assert_eq!(calls.compare(&[8, 7]), None);
        assert!(calls.compare(&[8, 7, 8]).is_some_and(|fault| fault.contains("more than once")));
        assert!(calls.compare(&[8]).is_some_and(|fault| fault.contains("were not executed")));
    }
}
