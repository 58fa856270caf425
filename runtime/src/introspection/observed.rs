//! The calls of a server, by procedure, and the slowest of them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    service::ProcedureInfo,
    session::{EncodedReply, InboundCall, ReplyFuture, Service},
};

/// Exclusive upper bound of the numbers of procedures whose calls are counted.
const COUNTED_NUMBERS: u32 = 1024;

/// Maximum number of calls that are reported as the slowest calls.
const MAX_SLOWEST: usize = 32;

/// Length of a window, in which the slowest calls are collected.
const WINDOW: Duration = Duration::from_secs(60);

/// A procedure and the counters of its calls.
pub(crate) struct ProcedureCalls {
    pub(crate) number: u32,
    pub(crate) info: ProcedureInfo,
    /// Number of calls that ended.
    pub(crate) calls: AtomicU64,
    /// Number of calls that ended without a result.
    pub(crate) failed: AtomicU64,
    /// Sum of the durations of calls that ended, in nanoseconds.
    pub(crate) total_time: AtomicU64,
    /// Longest duration of a call, in nanoseconds.
    pub(crate) max_time: AtomicU64,
    /// Number of calls in progress.
    pub(crate) active: AtomicU32,
}

/// One service and the counters of its calls.
pub(crate) struct ObservedCalls {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) name: &'static str,
    /// The procedures, in ascending order of their numbers.
    pub(crate) procedures: Vec<ProcedureCalls>,
    slowest: Arc<SlowestCalls>,
}

impl ObservedCalls {
    /// Returns the slowest calls of the server in the current and the previous window, the slowest first.
    pub(crate) fn slowest(&self) -> Vec<SlowCall> {
        self.slowest.report(Instant::now())
    }

    /// Creates counters for the calls of `services`, with one common list of the slowest calls.
    pub(crate) fn of(services: &[Arc<dyn Service>]) -> Vec<Arc<Self>> {
        let slowest = Arc::new(SlowestCalls::new());
        let calls = |service: &Arc<dyn Service>| {
            let procedure = |number| {
                let info = service.procedure(number)?;
                Some(ProcedureCalls {
                    number,
                    info,
                    calls: AtomicU64::new(0),
                    failed: AtomicU64::new(0),
                    total_time: AtomicU64::new(0),
                    max_time: AtomicU64::new(0),
                    active: AtomicU32::new(0),
                })
            };
            Arc::new(Self {
                program: service.program(),
                version: service.version(),
                name: service.name(),
                procedures: (0..COUNTED_NUMBERS).filter_map(procedure).collect(),
                slowest: Arc::clone(&slowest),
            })
        };
        services.iter().map(calls).collect()
    }

    #[inline]
    pub(crate) fn start(self: &Arc<Self>, call: &InboundCall) -> CountedCall {
        let context = call.context();
        let procedure = self.procedures.binary_search_by_key(&call.procedure(), |procedure| procedure.number).ok();
        let active = CountedCall {
            calls: Arc::clone(self),
            number: call.procedure(),
            procedure,
            peer: context.peer_addr(),
            xid: context.xid(),
            started: Instant::now(),
            failed: true,
        };
        if let Some(procedure) = active.procedure() {
            procedure.active.fetch_add(1, Ordering::Relaxed);
        }
        active
    }
}

/// A call in progress. Dropping it counts the call, as failed unless [`finish`](Self::finish) got a successful reply.
pub(crate) struct CountedCall {
    calls: Arc<ObservedCalls>,
    /// The procedure number.
    number: u32,
    /// Index of the procedure in `calls`. `None` if its calls are not counted.
    procedure: Option<usize>,
    peer: SocketAddr,
    xid: u32,
    started: Instant,
    failed: bool,
}

impl CountedCall {
    fn procedure(&self) -> Option<&ProcedureCalls> {
        self.calls.procedures.get(self.procedure?)
    }

    /// Counts the end of the call, whose reply is `reply`.
    #[inline]
    pub(crate) fn finish(mut self, reply: &EncodedReply) {
        self.failed = !reply.is_success();
    }

    /// Waits for the reply of a handler that was polled before, and counts the end of the call.
    pub(crate) async fn wait(self, rest: ReplyFuture) -> EncodedReply {
        let reply = rest.await;
        self.finish(&reply);
        reply
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        let now = Instant::now();
        let duration = now.duration_since(self.started);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let found = self.procedure();
        if let Some(procedure) = found {
            procedure.active.fetch_sub(1, Ordering::Relaxed);
            procedure.calls.fetch_add(1, Ordering::Relaxed);
            procedure.failed.fetch_add(self.failed.into(), Ordering::Relaxed);
            procedure.total_time.fetch_add(nanos, Ordering::Relaxed);
            procedure.max_time.fetch_max(nanos, Ordering::Relaxed);
        }
        self.calls.slowest.record(nanos, now, || SlowCall {
            program: self.calls.program,
            version: self.calls.version,
            procedure: self.number,
            name: found.map_or(self.calls.name, |procedure| procedure.info.name),
            peer: self.peer,
            xid: self.xid,
            duration,
            ended: now,
            failed: self.failed,
        });
    }
}

/// The description of a call that ended, for the list of the slowest calls.
#[derive(Debug, Clone)]
pub(crate) struct SlowCall {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) name: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) xid: u32,
    pub(crate) duration: Duration,
    pub(crate) ended: Instant,
    pub(crate) failed: bool,
}

/// The slowest calls of a server in the current window and in the previous window.
struct SlowestCalls {
    started: Instant,
    /// Duration in nanoseconds that a call must exceed to be one of the slowest.
    threshold: AtomicU64,
    /// The end of the current window, in nanoseconds since `started`.
    window_end: AtomicU64,
    windows: Mutex<[Vec<SlowCall>; 2]>,
}

impl SlowestCalls {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            threshold: AtomicU64::new(0),
            window_end: AtomicU64::new(WINDOW.as_nanos() as u64),
            windows: Mutex::default(),
        }
    }

    /// Records a call if it is one of the slowest. `call` returns its description.
    fn record(&self, nanos: u64, now: Instant, call: impl FnOnce() -> SlowCall) {
        if nanos <= self.threshold.load(Ordering::Relaxed) && !self.is_over(now) {
            return;
        }
        let mut windows = self.windows(now);
        let [current, _] = &mut *windows;
        let at = current.partition_point(|other| other.duration.as_nanos() >= u128::from(nanos));
        if at < MAX_SLOWEST {
            current.truncate(MAX_SLOWEST - 1);
            current.insert(at, call());
        }
        if let (MAX_SLOWEST, Some(fastest)) = (current.len(), current.last()) {
            let threshold = u64::try_from(fastest.duration.as_nanos()).unwrap_or(u64::MAX);
            self.threshold.store(threshold, Ordering::Relaxed);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.started).as_nanos() >= u128::from(self.window_end.load(Ordering::Relaxed))
    }

    /// Returns the windows. Starts a new window first if the current one is over.
    fn windows(&self, now: Instant) -> MutexGuard<'_, [Vec<SlowCall>; 2]> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_over(now) {
            let [current, previous] = &mut *windows;
            *previous = std::mem::take(current);
            previous.retain(|call| now.duration_since(call.ended) < 2 * WINDOW);
            self.threshold.store(0, Ordering::Relaxed);
            let end = now.duration_since(self.started).saturating_add(WINDOW);
            self.window_end.store(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        windows
    }

    fn report(&self, now: Instant) -> Vec<SlowCall> {
        let windows = self.windows(now);
        let mut calls: Vec<_> = windows.iter().flatten().cloned().collect();
        drop(windows);
        calls.sort_by_key(|call| std::cmp::Reverse(call.duration));
        calls.truncate(MAX_SLOWEST);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(slowest: &SlowestCalls, millis: u64, now: Instant) {
        let duration = Duration::from_millis(millis);
        slowest.record(duration.as_nanos() as u64, now, || SlowCall {
            program: 1,
            version: 1,
            procedure: 1,
            name: "P.A",
            peer: ([127, 0, 0, 1], 1).into(),
            xid: millis as u32,
            duration,
            ended: now,
            failed: false,
        });
    }

    fn reported(slowest: &SlowestCalls, now: Instant) -> Vec<u32> {
        slowest.report(now).into_iter().map(|call| call.xid).collect()
    }

    #[test]
    fn the_slowest_calls_are_kept_in_order() {
        let slowest = SlowestCalls::new();
        for millis in (1..=100).rev().chain(200..300).chain([50, 1]) {
            record(&slowest, millis, slowest.started);
        }
        assert_eq!(reported(&slowest, slowest.started), (268..300).rev().collect::<Vec<_>>());
    }

    /// Calls of the previous window are reported, and older calls are not, even if no later call is recorded.
    #[test]
    fn windows_end() {
        let slowest = SlowestCalls::new();
        let at = |seconds| slowest.started + Duration::from_secs(seconds);
        (1000..1040).for_each(|millis| record(&slowest, millis, at(10)));
        (1..5).for_each(|millis| record(&slowest, millis, at(20)));
        assert_eq!(reported(&slowest, at(30)).len(), MAX_SLOWEST);
        record(&slowest, 3, at(70));
        assert_eq!(reported(&slowest, at(75)), (1009..1040).rev().chain([1008]).collect::<Vec<_>>());
        record(&slowest, 4, at(140));
        assert_eq!(reported(&slowest, at(141)), [4, 3]);
        assert!(reported(&slowest, at(1000)).is_empty(), "old calls are not reported");
    }
}
