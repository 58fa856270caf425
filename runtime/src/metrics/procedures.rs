//! The procedures of the process, and the values of their calls.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metrics::histogram;

use super::{
    clock::Stopwatch,
    describe,
    values::{NewValues, ProcedureId, ReportedValues, Shard, Sizes},
};

/// The value of `rpc.system.name`.
pub(super) const SYSTEM: &str = "onc_rpc";

/// The value of `rpc.method` for procedures without a known name, and for procedures beyond `MAX_PROCEDURES`.
pub(super) const OTHER: &str = "_OTHER";

/// The status of a successful reply.
const SUCCESS: &str = "SUCCESS";

/// Maximum number of procedures that have values of their own. Further procedures share the values of [`OTHER`].
const MAX_PROCEDURES: usize = 2048;

/// The side on which a call is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn duration(self) -> &'static str {
        match self {
            Self::Client => describe::CLIENT_DURATION,
            Self::Server => describe::SERVER_DURATION,
        }
    }

    pub(super) fn request(self) -> &'static str {
        match self {
            Self::Client => describe::CLIENT_REQUEST,
            Self::Server => describe::SERVER_REQUEST,
        }
    }

    pub(super) fn response(self) -> &'static str {
        match self {
            Self::Client => describe::CLIENT_RESPONSE,
            Self::Server => describe::SERVER_RESPONSE,
        }
    }
}

/// Returns the side and the name of a procedure.
fn name(id: ProcedureId) -> (Side, &'static str) {
    procedures().get(id).map_or((Side::Server, OTHER), |procedure| (procedure.side, procedure.method))
}

/// A procedure on one side, with the values of its calls.
struct Procedure {
    side: Side,
    method: &'static str,
    /// All shards of the procedure. Those in `free` belong to no thread.
    shards: Vec<&'static Shard>,
    free: Vec<&'static Shard>,
    /// The values that were already reported. Created with the first shard, because most procedures of most programs
    /// are never called.
    reported_values: Option<ReportedValues>,
}

impl Procedure {
    /// Returns a shard for the calling thread. A shard is never freed, and is reused after its thread has ended.
    fn acquire(&mut self, id: ProcedureId, method: &'static str) -> &'static Shard {
        if let Some(index) = self.free.iter().position(|shard| std::ptr::eq(shard.method, method)) {
            return self.free.swap_remove(index);
        }
        let shard: &'static Shard = Box::leak(Box::new(Shard::new(id, method)));
        self.shards.push(shard);
        self.reported_values.get_or_insert_with(ReportedValues::new);
        shard
    }
}

/// The procedures of the process, by number and by name.
struct Procedures {
    all: Vec<Procedure>,
    by_name: BTreeMap<(Side, &'static str), ProcedureId>,
}

static PROCEDURES: Mutex<Procedures> = Mutex::new(Procedures { all: Vec::new(), by_name: BTreeMap::new() });

fn procedures() -> MutexGuard<'static, Procedures> {
    PROCEDURES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Procedures {
    fn get(&mut self, id: ProcedureId) -> Option<&mut Procedure> {
        self.all.get_mut(id.0 as usize)
    }

    fn id(&mut self, side: Side, method: &'static str) -> ProcedureId {
        if let Some(id) = self.by_name.get(&(side, method)) {
            return *id;
        }
        if self.all.len() >= MAX_PROCEDURES && method != OTHER {
            return self.id(side, OTHER);
        }
        let id = ProcedureId(self.all.len() as u32);
        self.all.push(Procedure { side, method, shards: Vec::new(), free: Vec::new(), reported_values: None });
        self.by_name.insert((side, method), id);
        id
    }
}

/// Returns the identifier of the procedure `method`, or of [`OTHER`] if the process has too many procedures.
pub(super) fn procedure(side: Side, method: &'static str) -> ProcedureId {
    procedures().id(side, method)
}

/// Returns a shard of a procedure for this thread alone, until it [releases](release) the shard. `method` is the name
/// by which the thread finds the procedure, or `None` if it uses the identifier.
pub(super) fn acquire(id: ProcedureId, method: Option<&'static str>) -> Option<&'static Shard> {
    let mut procedures = procedures();
    let procedure = procedures.get(id)?;
    Some(procedure.acquire(id, method.unwrap_or(procedure.method)))
}

/// Returns the number of shards of a procedure.
#[cfg(test)]
pub(super) fn shards(id: ProcedureId) -> usize {
    procedures().get(id).map_or(0, |procedure| procedure.shards.len())
}

/// Releases the shards for use by other threads.
pub(super) fn release(shards: impl IntoIterator<Item = &'static Shard>) {
    let mut procedures = procedures();
    for shard in shards {
        if let Some(procedure) = procedures.get(shard.id) {
            procedure.free.push(shard);
        }
    }
}

/// Takes the new values of the procedures for which `is_wanted` returns `true`.
pub(super) fn take(is_wanted: impl Fn(Side, &'static str) -> bool) -> Vec<(Side, &'static str, NewValues)> {
    let mut procedures = procedures();
    let wanted = procedures.all.iter_mut().filter(|procedure| is_wanted(procedure.side, procedure.method));
    let taken = wanted.filter_map(|procedure| {
        let new = procedure.reported_values.as_mut()?.take(&procedure.shards);
        Some((procedure.side, procedure.method, new))
    });
    taken.collect()
}

/// Hands the values of all successful calls since the last hand-over to the recorder.
pub(super) fn hand_over() {
    // The lock is released by now, because a recorder may do anything.
    for (side, method, NewValues { durations, requests, responses }) in take(|_, _| true) {
        if !durations.is_empty() {
            let histogram = histogram!(
                side.duration(),
                "rpc.system.name" => SYSTEM, "rpc.method" => method, "rpc.response.status_code" => SUCCESS
            );
            let stopwatch = Stopwatch::shared();
            for (ticks, count) in durations {
                histogram.record_many(stopwatch.seconds(ticks), count as usize);
            }
        }
        for (name, sizes) in [(side.request(), requests), (side.response(), responses)] {
            if !sizes.is_empty() {
                let histogram = histogram!(name, "rpc.system.name" => SYSTEM, "rpc.method" => method);
                sizes.into_iter().for_each(|(bytes, count)| histogram.record_many(bytes, count as usize));
            }
        }
    }
}

/// Records a failed call, with the sizes of its messages if there were any. `started` is in ticks. `has_reply` is
/// `true` if `error_type` is the status of a reply. Failures are rare, so they go to the recorder at once.
#[cold]
#[inline(never)]
pub(super) fn record_failure(id: ProcedureId, started: u64, sizes: Sizes, error_type: &'static str, has_reply: bool) {
    let (side, method) = name(id);
    let duration = if has_reply {
        histogram!(
            side.duration(),
            "rpc.system.name" => SYSTEM, "rpc.method" => method, "rpc.response.status_code" => error_type,
            "error.type" => error_type
        )
    } else {
        histogram!(side.duration(), "rpc.system.name" => SYSTEM, "rpc.method" => method, "error.type" => error_type)
    };
    duration.record(Stopwatch::shared().elapsed(started));
    record_sizes(id, sizes);
}

/// Records the sizes of a failed attempt of a call.
#[cold]
#[inline(never)]
pub(super) fn record_sizes(id: ProcedureId, sizes: Sizes) {
    let (side, method) = name(id);
    for (name, bytes) in [(side.request(), sizes.request), (side.response(), sizes.response)] {
        if bytes != 0 {
            histogram!(name, "rpc.system.name" => SYSTEM, "rpc.method" => method).record(bytes as f64);
        }
    }
}
