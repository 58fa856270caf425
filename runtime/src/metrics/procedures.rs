//! The handles of the metrics of procedures.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, Histogram, counter, histogram};
use quanta::Clock;

use super::describe::{self, describe};

/// The value of `rpc.system.name`.
pub(super) const SYSTEM: &str = "onc_rpc";

/// The value of `rpc.method` for procedures without a known name.
const OTHER: &str = "_OTHER";

/// The status of a successful reply.
const SUCCESS: &str = "SUCCESS";

/// The names of the metrics of one side.
#[derive(Debug)]
pub(super) struct Names {
    duration: &'static str,
    request: &'static str,
    response: &'static str,
}

pub(super) static CLIENT: Names = Names {
    duration: describe::CLIENT_DURATION,
    request: describe::CLIENT_REQUEST,
    response: describe::CLIENT_RESPONSE,
};

pub(super) static SERVER: Names = Names {
    duration: describe::SERVER_DURATION,
    request: describe::SERVER_REQUEST,
    response: describe::SERVER_RESPONSE,
};

/// The time stamp counter of the processor, where it can be used, and the system's clock elsewhere. Reading the counter costs less.
struct Stopwatch {
    clock: Clock,
    /// One multiplication of floating-point numbers costs less than the conversion of the clock.
    seconds_per_tick: f64,
}

impl Stopwatch {
    fn new() -> Self {
        /// Long enough that rounding to nanoseconds does not matter.
        const TICKS: u64 = 1 << 40;
        let clock = Clock::new();
        let seconds_per_tick = clock.delta_as_nanos(0, TICKS) as f64 * 1e-9 / TICKS as f64;
        Self { clock, seconds_per_tick }
    }

    /// Returns the time in ticks.
    #[inline]
    fn now(&self) -> u64 {
        self.clock.raw()
    }

    /// Returns the time since `begun` in seconds.
    #[inline]
    fn elapsed(&self, begun: u64) -> f64 {
        // The counters of two processors can differ a little. A signed conversion is one instruction.
        self.now().saturating_sub(begun) as i64 as f64 * self.seconds_per_tick
    }
}

/// The handles of one procedure on one side.
pub(super) struct ProcedureMetrics {
    names: &'static Names,
    method: &'static str,
    stopwatch: Stopwatch,
    /// Durations of successful calls.
    duration: Histogram,
    request: Histogram,
    response: Histogram,
    /// Registered by the first retry.
    retries: OnceLock<Counter>,
}

impl ProcedureMetrics {
    fn new(names: &'static Names, method: &'static str) -> Self {
        let sizes = |name| histogram!(name, "rpc.system.name" => SYSTEM, "rpc.method" => method);
        Self {
            names,
            method,
            stopwatch: Stopwatch::new(),
            duration: histogram!(
                names.duration,
                "rpc.system.name" => SYSTEM, "rpc.method" => method, "rpc.response.status_code" => SUCCESS
            ),
            request: sizes(names.request),
            response: sizes(names.response),
            retries: OnceLock::new(),
        }
    }

    /// Returns the time in ticks, for [`succeed`](Self::succeed) and [`fail`](Self::fail).
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.stopwatch.now()
    }

    /// Records the size of a call.
    #[inline]
    pub(super) fn request(&self, size: f64) {
        self.request.record(size);
    }

    /// Records the size of a reply.
    #[inline]
    pub(super) fn response(&self, size: f64) {
        self.response.record(size);
    }

    /// Records a successful call.
    #[inline]
    pub(super) fn succeed(&self, begun: u64) {
        self.duration.record(self.stopwatch.elapsed(begun));
    }

    /// Records a failed call. Failures are rare, so that their handles are not kept.
    #[cold]
    pub(super) fn fail(&self, begun: u64, error_type: &'static str, has_reply: bool) {
        let Self { names, method, .. } = *self;
        let duration = if has_reply {
            histogram!(
                names.duration,
                "rpc.system.name" => SYSTEM, "rpc.method" => method, "rpc.response.status_code" => error_type,
                "error.type" => error_type
            )
        } else {
            histogram!(
                names.duration,
                "rpc.system.name" => SYSTEM, "rpc.method" => method, "error.type" => error_type
            )
        };
        duration.record(self.stopwatch.elapsed(begun));
    }

    /// Counts a retry.
    #[cold]
    pub(super) fn retried(&self) {
        let new = || counter!(describe::RETRIES, "rpc.system.name" => SYSTEM, "rpc.method" => self.method);
        self.retries.get_or_init(new).increment(1);
    }
}

/// Number of lists of a [`Procedures`].
const LISTS: usize = 32;

/// Longest list. Further procedures have the handles of [`OTHER`].
const LONGEST: usize = 64;

/// The handles of the procedures of one side, by name. Reading takes no lock.
pub(super) struct Procedures {
    names: &'static Names,
    lists: [OnceLock<Box<Entry>>; LISTS],
    other: OnceLock<Arc<ProcedureMetrics>>,
}

/// An entry of a list.
struct Entry {
    method: &'static str,
    metrics: Arc<ProcedureMetrics>,
    next: OnceLock<Box<Self>>,
}

impl Procedures {
    pub(super) fn new(names: &'static Names) -> Self {
        Self { names, lists: [const { OnceLock::new() }; LISTS], other: OnceLock::new() }
    }

    #[inline]
    fn list(&self, address: usize) -> Option<&OnceLock<Box<Entry>>> {
        self.lists.get((address ^ (address >> 5)) % LISTS)
    }

    /// Returns the handles of a procedure. Names are constants, so that their addresses identify them. A name that has two
    /// addresses has two entries with equal handles.
    #[inline]
    pub(super) fn find(&self, method: &'static str) -> &Arc<ProcedureMetrics> {
        let mut entry = self.list(method.as_ptr() as usize).and_then(OnceLock::get);
        while let Some(found) = entry {
            if std::ptr::eq(found.method, method) {
                return &found.metrics;
            }
            entry = found.next.get();
        }
        self.add(method).unwrap_or_else(|| self.other())
    }

    /// Adds a procedure. Returns `None` if the list is full.
    #[cold]
    #[inline(never)]
    fn add(&self, method: &'static str) -> Option<&Arc<ProcedureMetrics>> {
        let mut place = self.list(method.as_ptr() as usize)?;
        for _ in 0..LONGEST {
            let entry = place.get_or_init(|| {
                describe();
                Box::new(Entry {
                    method,
                    metrics: Arc::new(ProcedureMetrics::new(self.names, method)),
                    next: OnceLock::new(),
                })
            });
            if std::ptr::eq(entry.method, method) {
                return Some(&entry.metrics);
            }
            place = &entry.next;
        }
        None
    }

    /// Returns the handles of all procedures without a known name.
    #[cold]
    #[inline(never)]
    pub(super) fn other(&self) -> &Arc<ProcedureMetrics> {
        self.other.get_or_init(|| {
            describe();
            Arc::new(ProcedureMetrics::new(self.names, OTHER))
        })
    }
}

/// Number of procedures of a service whose handles are found by number. The handles of further ones are found by name.
const NUMBERED: usize = 32;

/// The handles of the procedures of a service of a server, by number. Reading takes no lock. Clones share the handles.
#[derive(Clone)]
pub(crate) struct ServiceMetrics(Arc<[OnceLock<Arc<ProcedureMetrics>>; NUMBERED]>);

impl Default for ServiceMetrics {
    fn default() -> Self {
        Self(Arc::new([const { OnceLock::new() }; NUMBERED]))
    }
}

impl ServiceMetrics {
    /// Returns the handles of a procedure. `name` returns its name, and `all` has the handles by name.
    #[inline]
    pub(super) fn find<'a>(
        &'a self,
        number: u32,
        name: impl FnOnce() -> Option<&'static str>,
        all: &'a Procedures,
    ) -> &'a Arc<ProcedureMetrics> {
        let place = self.0.get(number as usize);
        match place.and_then(OnceLock::get) {
            Some(metrics) => metrics,
            None => Self::add(place, name(), all),
        }
    }

    #[cold]
    #[inline(never)]
    fn add<'a>(
        place: Option<&'a OnceLock<Arc<ProcedureMetrics>>>,
        name: Option<&'static str>,
        all: &'a Procedures,
    ) -> &'a Arc<ProcedureMetrics> {
        let metrics = name.map_or_else(|| all.other(), |name| all.find(name));
        place.map_or(metrics, |place| place.get_or_init(|| Arc::clone(metrics)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same name has the same handles, and the number of kept handles is bounded.
    #[test]
    fn handles_are_kept() {
        let procedures = Procedures::new(&CLIENT);
        let first = procedures.find("P.A");
        assert!(Arc::ptr_eq(first, procedures.find("P.A")));
        assert!(!Arc::ptr_eq(first, procedures.find("P.B")));
        for number in 0..LISTS * LONGEST * 2 {
            procedures.find(String::leak(format!("P.{number}")));
        }
        let length = |list: &OnceLock<Box<Entry>>| std::iter::successors(list.get(), |entry| entry.next.get()).count();
        assert!(procedures.lists.iter().map(length).all(|length| length <= LONGEST));
        assert!(Arc::ptr_eq(first, procedures.find("P.A")));
    }

    /// A procedure has the handles of its name, whatever its number. The name is asked for once if the number is small.
    #[test]
    fn handles_are_found_by_number() {
        let (all, service) = (Procedures::new(&SERVER), ServiceMetrics::default());
        for number in [0, NUMBERED as u32 - 1, NUMBERED as u32, u32::MAX] {
            let name: &'static str = String::leak(format!("P.{number}"));
            assert!(Arc::ptr_eq(service.find(number, || Some(name), &all), all.find(name)));
        }
        assert!(Arc::ptr_eq(service.clone().find(0, || panic!("asked twice"), &all), service.find(0, || None, &all)));
        for number in [1, u32::MAX] {
            assert!(Arc::ptr_eq(service.find(number, || None, &all), all.other()));
        }
    }

    /// Durations are those of the clock.
    #[test]
    fn durations_are_in_seconds() {
        let (clock, mock) = Clock::mock();
        let stopwatch = Stopwatch { seconds_per_tick: 1e-9, clock };
        let begun = stopwatch.now();
        mock.increment(1_500_000_000_u64);
        assert!((stopwatch.elapsed(begun) - 1.5).abs() < 1e-9);
        assert!(stopwatch.elapsed(begun + 3_000_000_000) == 0.0);

        let real = Stopwatch::new();
        for nanos in [1_000_u64, 1_000_000, 10_000_000_000] {
            let ticks = (nanos as f64 * 1e-9 / real.seconds_per_tick) as u64;
            let expected = real.clock.delta_as_nanos(0, ticks) as f64;
            assert!((ticks as f64 * real.seconds_per_tick * 1e9 - expected).abs() <= 1.0 + expected * 1e-6);
        }
    }
}
