//! Metrics of calls.

use std::{
    fmt,
    mem::ManuallyDrop,
    sync::{Arc, OnceLock},
};

use metrics::{Counter, Histogram, counter, histogram};
use quanta::Clock;

use super::describe::{self, describe};
use crate::{
    driver::ReplyCommand,
    engine::{IncomingCall, IncomingReply, OutgoingCall},
    rpc,
};

/// The value of `rpc.system.name`.
const SYSTEM: &str = "onc_rpc";

/// The value of `rpc.method` for procedures without a known name.
const OTHER: &str = "_OTHER";

/// The status of a successful reply.
const SUCCESS: &str = "SUCCESS";

/// The kind of error of a call whose future was dropped.
const CANCELLED: &str = "cancelled";

/// The names of the metrics of one side.
#[derive(Debug)]
struct Names {
    duration: &'static str,
    request: &'static str,
    response: &'static str,
}

static CLIENT: Names = Names {
    duration: describe::CLIENT_DURATION,
    request: describe::CLIENT_REQUEST,
    response: describe::CLIENT_RESPONSE,
};

static SERVER: Names = Names {
    duration: describe::SERVER_DURATION,
    request: describe::SERVER_REQUEST,
    response: describe::SERVER_RESPONSE,
};

/// The handles of one procedure on one side.
struct ProcedureMetrics {
    names: &'static Names,
    method: &'static str,
    /// The time stamp counter of the processor, where it can be used. Reading it costs less than the system's clock.
    clock: Clock,
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
            clock: Clock::new(),
            duration: histogram!(
                names.duration,
                "rpc.system.name" => SYSTEM, "rpc.method" => method, "rpc.response.status_code" => SUCCESS
            ),
            request: sizes(names.request),
            response: sizes(names.response),
            retries: OnceLock::new(),
        }
    }

    /// Returns the time since `begun` in seconds.
    #[inline]
    fn elapsed(&self, begun: u64) -> f64 {
        self.clock.delta_as_nanos(begun, self.clock.raw()) as i64 as f64 * 1e-9
    }

    #[inline]
    fn succeed(&self, begun: u64) {
        self.duration.record(self.elapsed(begun));
    }

    /// Records a failed call. Failures are rare, so that their handles are not kept.
    #[cold]
    fn fail(&self, begun: u64, error_type: &'static str, has_reply: bool) {
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
        duration.record(self.elapsed(begun));
    }
}

/// Number of lists of a [`Procedures`].
const LISTS: usize = 32;

/// Longest list. Further procedures have the handles of [`OTHER`].
const LONGEST: usize = 64;

/// The handles of the procedures of one side. Reading takes no lock.
struct Procedures {
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
    fn new(names: &'static Names) -> Self {
        Self { names, lists: [const { OnceLock::new() }; LISTS], other: OnceLock::new() }
    }

    #[inline]
    fn list(&self, address: usize) -> Option<&OnceLock<Box<Entry>>> {
        self.lists.get((address ^ (address >> 5)) % LISTS)
    }

    /// Returns the handles of a procedure. Names are constants, so that their addresses identify them. A name that has two
    /// addresses has two entries with equal handles.
    #[inline]
    fn find(&self, method: &'static str) -> Option<&Arc<ProcedureMetrics>> {
        let mut entry = self.list(method.as_ptr() as usize).and_then(OnceLock::get);
        while let Some(found) = entry {
            if std::ptr::eq(found.method, method) {
                return Some(&found.metrics);
            }
            entry = found.next.get();
        }
        self.add(method)
    }

    /// Adds a procedure. Returns the handles of other procedures if the list is full.
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
        Some(self.other())
    }

    fn other(&self) -> &Arc<ProcedureMetrics> {
        self.other.get_or_init(|| {
            describe();
            Arc::new(ProcedureMetrics::new(self.names, OTHER))
        })
    }
}

/// The metrics of the calls of a channel or a server, in both directions. Clones share the handles.
#[derive(Clone)]
pub(crate) struct CallMetrics(Arc<[Procedures; 2]>);

impl Default for CallMetrics {
    fn default() -> Self {
        Self(Arc::new([Procedures::new(&CLIENT), Procedures::new(&SERVER)]))
    }
}

impl fmt::Debug for CallMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMetrics").finish_non_exhaustive()
    }
}

impl CallMetrics {
    /// Begins an outbound call of the procedure `name`.
    #[inline]
    pub(crate) fn client(&self, name: &'static str) -> ClientCall<'_> {
        let [client, _] = &*self.0;
        let active = client.find(name).map(|metrics| (&**metrics, metrics.clock.raw()));
        ClientCall(active)
    }

    /// Begins an inbound call. `name` returns the name of its procedure.
    #[inline]
    pub(crate) fn server(&self, name: impl FnOnce() -> Option<&'static str>) -> ServerCall {
        let [_, server] = &*self.0;
        let metrics = match name() {
            Some(name) => server.find(name),
            None => Some(server.other()),
        };
        ServerCall(metrics.map(|metrics| (Arc::clone(metrics), metrics.clock.raw())))
    }

    /// Records an inbound call that was refused before its service was found.
    pub(crate) fn refused(&self, status: &'static str) {
        let [_, server] = &*self.0;
        let other = server.other();
        other.fail(other.clock.raw(), status, true);
    }
}

/// An outbound call in progress. Dropping it records that the call was cancelled.
#[must_use]
pub(crate) struct ClientCall<'a>(Option<(&'a ProcedureMetrics, u64)>);

impl ClientCall<'_> {
    /// Records the size of one attempt.
    #[inline]
    pub(crate) fn sent(&self, call: &OutgoingCall) {
        if let Some((metrics, _)) = &self.0 {
            let chunks = call.reduced.iter().map(|item| item.data.len());
            metrics.request.record(sum(call.message.byte_len(), chunks));
        }
    }

    /// Records the size of a reply.
    #[inline]
    pub(crate) fn replied(&self, reply: &IncomingReply) {
        if let Some((metrics, _)) = &self.0 {
            let chunks = reply.writes.iter().map(|chunk| chunk.data.len());
            metrics.response.record(sum(reply.payload.byte_len(), chunks));
        }
    }

    /// Records that the channel tries the call again.
    pub(crate) fn retried(&self) {
        if let Some((metrics, _)) = &self.0 {
            let new = || counter!(describe::RETRIES, "rpc.system.name" => SYSTEM, "rpc.method" => metrics.method);
            metrics.retries.get_or_init(new).increment(1);
        }
    }

    /// Ends a successful call.
    #[inline]
    pub(crate) fn succeed(self) {
        if let Some((metrics, begun)) = ManuallyDrop::new(self).0 {
            metrics.succeed(begun);
        }
    }

    /// Ends a failed call. `error_type` is the status of the reply if `has_reply` is `true`.
    pub(crate) fn fail(self, error_type: &'static str, has_reply: bool) {
        if let Some((metrics, begun)) = ManuallyDrop::new(self).0 {
            metrics.fail(begun, error_type, has_reply);
        }
    }
}

impl Drop for ClientCall<'_> {
    fn drop(&mut self) {
        if let Some((metrics, begun)) = self.0 {
            metrics.fail(begun, CANCELLED, false);
        }
    }
}

/// An inbound call in progress. Dropping it records that the handler was cancelled.
#[must_use]
pub(crate) struct ServerCall(Option<(Arc<ProcedureMetrics>, u64)>);

impl ServerCall {
    /// Records the size of the call.
    #[inline]
    pub(crate) fn arrived(&self, call: &IncomingCall) {
        if let Some((metrics, _)) = &self.0 {
            let chunks = call.reads().iter().map(|chunk| chunk.data.len());
            metrics.request.record(sum(call.payload.byte_len(), chunks));
        }
    }

    /// Moves the call to the outermost of its handlers. The others measure nothing.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Ends the call with its reply. `unprotected` is the length of the results that still have to be protected, in bytes.
    #[inline]
    pub(crate) fn finish(&mut self, reply: &ReplyCommand, unprotected: usize) {
        let Some((metrics, begun)) = self.0.take() else { return };
        let error = match reply {
            ReplyCommand::Reply(reply) => {
                let chunks = reply.reduced.iter().map(|item| item.data.len());
                metrics.response.record(sum(reply.message.byte_len() + unprotected, chunks));
                rpc::encoded_error(&reply.message)
            }
            ReplyCommand::ChunkError => Some("ERR_CHUNK"),
            ReplyCommand::Discard => return metrics.fail(begun, "discarded", false),
        };
        match error {
            None => metrics.succeed(begun),
            Some(error) => metrics.fail(begun, error, true),
        }
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        if let Some((metrics, begun)) = self.0.take() {
            metrics.fail(begun, CANCELLED, false);
        }
    }
}

/// Counts a retry above the channels. Such retries are rare, so that their handles are not kept.
#[cold]
pub(crate) fn retried(method: &'static str) {
    counter!(describe::RETRIES, "rpc.system.name" => SYSTEM, "rpc.method" => method).increment(1);
}

/// Returns a size in bytes.
#[inline]
fn sum(bytes: usize, chunks: impl Iterator<Item = usize>) -> f64 {
    // A signed conversion is one instruction, and memory is shorter than 2^63 bytes.
    chunks.fold(bytes, usize::saturating_add) as i64 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same name has the same handles, and the number of kept handles is bounded.
    #[test]
    fn handles_are_kept() {
        let procedures = Procedures::new(&CLIENT);
        let first = procedures.find("P.A").unwrap();
        assert!(Arc::ptr_eq(first, procedures.find("P.A").unwrap()));
        assert!(!Arc::ptr_eq(first, procedures.find("P.B").unwrap()));
        for number in 0..LISTS * LONGEST * 2 {
            procedures.find(String::leak(format!("P.{number}")));
        }
        let length = |list: &OnceLock<Box<Entry>>| std::iter::successors(list.get(), |entry| entry.next.get()).count();
        assert!(procedures.lists.iter().map(length).all(|length| length <= LONGEST));
        assert!(Arc::ptr_eq(first, procedures.find("P.A").unwrap()));
    }
}
