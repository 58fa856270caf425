//! The event log of a run. Its hash shows if two runs are equal.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Adds an event to an [`EventLog`], formatted as by `format!`.
macro_rules! event {
    ($log:expr, $($text:tt)*) => {
        $log.add(format_args!($($text)*))
    };
}

/// The events of one run. Clones share them.
#[derive(Clone)]
pub struct EventLog(Arc<Mutex<LogState>>);

struct LogState {
    start: Instant,
    hash: DefaultHasher,
    /// Number of events.
    count: u64,
    /// The events in words, if they are kept.
    lines: Option<Vec<String>>,
    /// Violations that were noticed during the run.
    wrong: Vec<String>,
    /// The noted effects of faults on the product.
    symptoms: BTreeSet<String>,
}

/// A writer that adds text to a hash.
struct HashWriter<'a>(&'a mut DefaultHasher);

impl fmt::Write for HashWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl EventLog {
    /// Creates a log that begins now. `keeps_lines` is `true` to keep the events in words.
    #[must_use]
    pub fn new(keeps_lines: bool) -> Self {
        Self(Arc::new(Mutex::new(LogState {
            start: Instant::now(),
            hash: DefaultHasher::new(),
            count: 0,
            lines: keeps_lines.then(Vec::new),
            wrong: Vec::new(),
            symptoms: BTreeSet::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event with the current virtual time.
    pub fn add(&self, event: fmt::Arguments<'_>) {
        let mut state = self.state();
        let at = state.start.elapsed();
        state.count += 1;
        // Writing to a hash does not fail.
        let _ = writeln!(HashWriter(&mut state.hash), "{} {event}", at.as_nanos());
        if let Some(lines) = &mut state.lines {
            lines.push(format!("{:>9.3} s  {event}", at.as_secs_f64()));
        }
    }

    /// Adds a violation, also as an event.
    pub fn add_wrong(&self, what: String) {
        event!(self, "wrong: {what}");
        self.state().wrong.push(what);
    }

    /// Notes an effect of a fault on the product, such as a lost connection or a kind of failed call.
    pub fn note(&self, symptom: String) {
        self.state().symptoms.insert(symptom);
    }

    /// Returns the noted effects of faults on the product.
    #[must_use]
    pub fn symptoms(&self) -> BTreeSet<String> {
        self.state().symptoms.clone()
    }

    /// Returns the violations that were noticed during the run.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        self.state().wrong.clone()
    }

    /// Returns the virtual time since the beginning of the run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.state().start.elapsed()
    }

    /// Returns the hash of all events, and their number.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        let state = self.state();
        (state.hash.finish(), state.count)
    }

    /// Returns the events in words, or an empty list if they were not kept.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.state().lines.clone().unwrap_or_default()
    }
}

pub(crate) use event;
