//! The error of calls that no server can take.

use std::{
    error::Error,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::health::{EndpointFailure, HealthEvents, LastFailure};
use crate::client::target::Target;

/// The latest error of service discovery, shared with the sender of the list of servers. `None` if there was none, or
/// if the servers have been listed since.
pub(in crate::client) type SharedFailure = Arc<Mutex<Option<Arc<dyn Error + Send + Sync>>>>;

/// The reason why no server of a balancer takes calls.
#[derive(Debug, Clone)]
pub(in crate::client) struct NoServerError {
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl NoServerError {
    fn new(list: ListState, failure: Option<Arc<dyn Error + Send + Sync>>, last: LastFailure) -> Self {
        let has_failed = failure.is_some();
        let (message, source) = match (list.listed, list.invalid, last) {
            (None, ..) if has_failed => ("service discovery fails, and has listed no server yet".to_owned(), failure),
            (None, ..) => ("service discovery has not listed the servers yet".to_owned(), None),
            (Some(0), ..) if has_failed => (
                "service discovery listed no server before it failed, check that servers are registered".to_owned(),
                failure,
            ),
            (Some(0), ..) => ("service discovery lists no server, check that servers are registered".to_owned(), None),
            (Some(listed), Some(url), _) => {
                let source = Target::parse(&url).err().map(|error| Arc::new(error) as _);
                (format!("none of the {listed} listed servers has a valid URL"), source)
            }
            (Some(listed), None, LastFailure { url, failure: last }) => {
                let stale =
                    if has_failed { ", and service discovery fails, so the list may be out of date" } else { "" };
                let reason = match (&url, &last) {
                    (Some(url), Some(EndpointFailure::Silent)) => format!(", {url} does not reply"),
                    (Some(url), Some(EndpointFailure::NotServing)) => format!(", {url} says that it is not serving"),
                    _ => String::new(),
                };
                let message = format!("none of the {listed} listed servers takes calls{stale}{reason}");
                let source = match last {
                    Some(EndpointFailure::NotConnected(error)) => Some(Arc::new(error) as _),
                    _ => None,
                };
                (message, source.or(failure))
            }
        };
        Self { message, source }
    }
}

impl fmt::Display for NoServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for NoServerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

/// State that a balancer shares with its callers. It tells the callers whether calls wait for a server, and why.
#[derive(Debug)]
pub(in crate::client) struct Outage {
    is_waiting: AtomicBool,
    list: Mutex<ListState>,
    events: Arc<HealthEvents>,
    discovery: SharedFailure,
}

/// A summary of a list of servers.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct ListState {
    /// Number of listed servers, or `None` if the servers have not been listed yet.
    pub(in crate::client) listed: Option<usize>,
    /// The first URL in the list, if none of the URLs is valid.
    pub(in crate::client) invalid: Option<String>,
}

impl Outage {
    pub(in crate::client) fn new(events: Arc<HealthEvents>, discovery: SharedFailure) -> Self {
        Self { is_waiting: AtomicBool::new(false), list: Mutex::default(), events, discovery }
    }

    /// Records that calls wait for a server.
    pub(in crate::client) fn begin(&self, list: ListState) {
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list;
        self.is_waiting.store(true, Ordering::Release);
    }

    /// Records that a server takes calls.
    pub(in crate::client) fn end(&self) {
        if self.is_waiting.load(Ordering::Relaxed) {
            self.is_waiting.store(false, Ordering::Release);
        }
    }

    /// Returns the reason why calls wait, or `None` if they do not wait.
    pub(in crate::client) fn reason(&self) -> Option<NoServerError> {
        if !self.is_waiting.load(Ordering::Acquire) {
            return None;
        }
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failure = self.discovery.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(NoServerError::new(list, failure, self.events.last_failure()))
    }
}
