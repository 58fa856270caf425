//! Metrics of calls.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Instant,
};

use metrics::{Counter, Histogram, counter, histogram};

use super::describe::{self, describe};
use crate::{
    driver::ReplyCommand,
    engine::{IncomingCall, IncomingReply, OutgoingCall},
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
            duration: histogram!(
                names.duration,
                "rpc.system.name" => SYSTEM, "rpc.method" => method, "rpc.response.status_code" => SUCCESS
            ),
            request: sizes(names.request),
            response: sizes(names.response),
            retries: OnceLock::new(),
        }
    }

    fn succeed(&self, begun: Instant) {
        self.duration.record(begun.elapsed());
    }

    /// Records a failed call. Failures are rare, so that their handles are not kept.
    #[cold]
    fn fail(&self, begun: Instant, error_type: &'static str, has_reply: bool) {
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
        duration.record(begun.elapsed());
    }
}

/// Number of lists of a [`Procedures`].
const LISTS: usize = 32;

/// Longest list. The handles of further procedures are not kept, but looked up for each call.
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

    /// Returns the handles of a procedure. Names are constants, so that their addresses identify them. A name that has two
    /// addresses has two entries with equal handles.
    fn find(&self, method: &'static str) -> Arc<ProcedureMetrics> {
        let address = method.as_ptr() as usize;
        let mut entry = self.lists.get((address ^ (address >> 5)) % LISTS).and_then(OnceLock::get);
        while let Some(found) = entry {
            if std::ptr::eq(found.method, method) {
                return Arc::clone(&found.metrics);
            }
            entry = found.next.get();
        }
        self.add(method, address)
    }

    #[cold]
    fn add(&self, method: &'static str, address: usize) -> Arc<ProcedureMetrics> {
        describe();
        let metrics = Arc::new(ProcedureMetrics::new(self.names, method));
        let mut place = self.lists.get((address ^ (address >> 5)) % LISTS);
        for _ in 0..LONGEST {
            let Some(list) = place else { break };
            let entry =
                list.get_or_init(|| Box::new(Entry { method, metrics: Arc::clone(&metrics), next: OnceLock::new() }));
            if std::ptr::eq(entry.method, method) {
                return Arc::clone(&entry.metrics);
            }
            place = Some(&entry.next);
        }
        metrics
    }

    fn other(&self) -> Arc<ProcedureMetrics> {
        let new = || {
            describe();
            Arc::new(ProcedureMetrics::new(self.names, OTHER))
        };
        Arc::clone(self.other.get_or_init(new))
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
    pub(crate) fn client(&self, name: &'static str) -> ClientCall {
        let [client, _] = &*self.0;
        ClientCall(Some((client.find(name), Instant::now())))
    }

    /// Begins an inbound call. `name` returns the name of its procedure.
    pub(crate) fn server(&self, name: impl FnOnce() -> Option<&'static str>) -> ServerCall {
        let [_, server] = &*self.0;
        let metrics = name().map_or_else(|| server.other(), |name| server.find(name));
        ServerCall(Some((metrics, Instant::now())))
    }

    /// Records an inbound call that was refused before its service was found.
    pub(crate) fn refused(&self, status: &'static str) {
        let [_, server] = &*self.0;
        server.other().fail(Instant::now(), status, true);
    }
}

/// An outbound call in progress. Dropping it records that the call was cancelled.
#[must_use]
pub(crate) struct ClientCall(Option<(Arc<ProcedureMetrics>, Instant)>);

impl ClientCall {
    /// Records the size of one attempt.
    pub(crate) fn sent(&self, call: &OutgoingCall) {
        if let Some((metrics, _)) = &self.0 {
            let chunks = call.reduced.iter().map(|item| item.data.len());
            metrics.request.record(sum(call.message.len(), chunks));
        }
    }

    /// Records the size of a reply.
    pub(crate) fn replied(&self, reply: &IncomingReply) {
        if let Some((metrics, _)) = &self.0 {
            let chunks = reply.writes.iter().map(|chunk| chunk.data.len());
            metrics.response.record(sum(reply.payload.as_slice().len(), chunks));
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
    pub(crate) fn succeed(mut self) {
        if let Some((metrics, begun)) = self.0.take() {
            metrics.succeed(begun);
        }
    }

    /// Ends a failed call. `error_type` is the status of the reply if `has_reply` is `true`.
    pub(crate) fn fail(mut self, error_type: &'static str, has_reply: bool) {
        if let Some((metrics, begun)) = self.0.take() {
            metrics.fail(begun, error_type, has_reply);
        }
    }
}

impl Drop for ClientCall {
    fn drop(&mut self) {
        if let Some((metrics, begun)) = self.0.take() {
            metrics.fail(begun, CANCELLED, false);
        }
    }
}

/// An inbound call in progress. Dropping it records that the handler was cancelled.
#[must_use]
pub(crate) struct ServerCall(Option<(Arc<ProcedureMetrics>, Instant)>);

impl ServerCall {
    /// Records the size of the call.
    pub(crate) fn arrived(&self, call: &IncomingCall) {
        if let Some((metrics, _)) = &self.0 {
            let chunks = call.reads.iter().map(|chunk| chunk.data.len());
            metrics.request.record(sum(call.payload.as_slice().len(), chunks));
        }
    }

    /// Moves the call to the outermost of its handlers. The others measure nothing.
    pub(crate) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Ends the call with its reply. `unprotected` is the length of the results that still have to be protected, in bytes.
    pub(crate) fn finish(&mut self, reply: &ReplyCommand, unprotected: usize) {
        let Some((metrics, begun)) = self.0.take() else { return };
        let status = match reply {
            ReplyCommand::Reply(reply) => {
                let chunks = reply.reduced.iter().map(|item| item.data.len());
                metrics.response.record(sum(reply.message.len(), chunks) + unprotected as f64);
                status(&reply.message)
            }
            ReplyCommand::ChunkError => "ERR_CHUNK",
            ReplyCommand::Discard => return metrics.fail(begun, "discarded", false),
        };
        if status == SUCCESS {
            metrics.succeed(begun);
        } else {
            metrics.fail(begun, status, true);
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

/// Returns a size in bytes.
fn sum(bytes: usize, chunks: impl Iterator<Item = usize>) -> f64 {
    chunks.fold(bytes, usize::saturating_add) as f64
}

/// Returns the status of an encoded reply (RFC 5531 §9).
fn status(reply: &[u8]) -> &'static str {
    let word = |at: usize| reply.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let stat = || {
        // The XID, the message type, and the status of the reply.
        match word(8)? {
            0 => {
                let verifier = (word(16)? as usize).checked_next_multiple_of(4)?;
                Some(match word(verifier.checked_add(20)?)? {
                    0 => SUCCESS,
                    1 => "PROG_UNAVAIL",
                    2 => "PROG_MISMATCH",
                    3 => "PROC_UNAVAIL",
                    4 => "GARBAGE_ARGS",
                    _ => "SYSTEM_ERR",
                })
            }
            _ => Some(if word(12)? == 0 { "RPC_MISMATCH" } else { "AUTH_ERROR" }),
        }
    };
    // Replies are encoded locally, so that they are complete.
    stat().unwrap_or("SYSTEM_ERR")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rpc::{AuthStat, OpaqueAuth, ReplyHeader, RpcError},
        xdr::FlatSink,
    };

    fn encoded(header: &ReplyHeader) -> Vec<u8> {
        let mut message = Vec::new();
        header.encode(&mut FlatSink::new(&mut message)).unwrap();
        message
    }

    /// The status read from the bytes of a reply is that of its header, with verifiers of any length.
    #[test]
    fn status_of_encoded_replies() {
        let errors = [
            RpcError::ProgramUnavailable,
            RpcError::ProgramMismatch { low: 1, high: 2 },
            RpcError::ProcedureUnavailable,
            RpcError::GarbageArguments,
            RpcError::SystemError,
            RpcError::RpcMismatch { low: 2, high: 2 },
            RpcError::Authentication(AuthStat::AuthTooweak.into()),
        ];
        for len in [0, 1, 4, 37, 400] {
            let verifier = OpaqueAuth { flavor: 6, body: vec![0; len].into() };
            assert_eq!(status(&encoded(&ReplyHeader::success(7).with_verifier(verifier.clone()))), SUCCESS);
            for error in errors {
                let header = ReplyHeader::failure(7, error).with_verifier(verifier.clone());
                assert_eq!(status(&encoded(&header)), error.status());
            }
        }
        assert_eq!(status(&[]), "SYSTEM_ERR");
    }

    /// The same name has the same handles, and the number of kept handles is bounded.
    #[test]
    fn handles_are_kept() {
        let procedures = Procedures::new(&CLIENT);
        let first = procedures.find("P.A");
        assert!(Arc::ptr_eq(&first, &procedures.find("P.A")));
        assert!(!Arc::ptr_eq(&first, &procedures.find("P.B")));
        for number in 0..LISTS * LONGEST * 2 {
            procedures.find(String::leak(format!("P.{number}")));
        }
        let length = |list: &OnceLock<Box<Entry>>| std::iter::successors(list.get(), |entry| entry.next.get()).count();
        assert!(procedures.lists.iter().map(length).all(|length| length <= LONGEST));
        assert!(Arc::ptr_eq(&first, &procedures.find("P.A")));
    }
}
