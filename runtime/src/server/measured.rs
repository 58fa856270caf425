//! Metrics of duplicate request caches and limits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::metrics::{counter, gauge};

use super::{
    duplicates::{DuplicateRequestCache, DuplicateRequestStats},
    limits::{LimitScope, LimitStats, Limiter},
};
use crate::{
    metrics::{self, describe},
    service::ProcedureId,
};

/// The servers of the process whose caches and limits are measured.
static SERVERS: Mutex<MeasuredServers> =
    Mutex::new(MeasuredServers { next: 0, open: BTreeMap::new(), caches: BTreeMap::new(), limits: BTreeMap::new() });

struct MeasuredServers {
    next: u64,
    open: BTreeMap<u64, MeasuredParts>,
    /// The sums of the counters of dropped servers, by program. `limits` has the sums by scope.
    caches: BTreeMap<u32, DuplicateRequestStats>,
    limits: BTreeMap<LimitScope, LimitStats>,
}

/// The parts of a server that have metrics.
struct MeasuredParts {
    caches: Vec<Arc<DuplicateRequestCache>>,
    limiters: Vec<Arc<Limiter>>,
}

fn servers() -> MutexGuard<'static, MeasuredServers> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registration of a measured server. Dropping it ends the measurement, and keeps the counters of the server.
#[derive(Debug)]
pub(super) struct MeasuredServer(u64);

/// Starts to measure the caches and limits of a server.
pub(super) fn server(caches: &[Arc<DuplicateRequestCache>], limiters: &[Arc<Limiter>]) -> MeasuredServer {
    metrics::add_source(record);
    let mut all = servers();
    let id = all.next;
    all.next += 1;
    all.open.insert(id, MeasuredParts { caches: caches.to_vec(), limiters: limiters.to_vec() });
    MeasuredServer(id)
}

impl Drop for MeasuredServer {
    fn drop(&mut self) {
        let mut all = servers();
        let Some(parts) = all.open.remove(&self.0) else { return };
        for cache in parts.caches {
            let last = DuplicateRequestStats { entries: 0, bytes: 0, in_progress: 0, ..cache.stats() };
            add_cache(&mut all.caches, last);
        }
        for limiter in parts.limiters {
            let last = LimitStats { running: 0, waiting: 0, ..limiter.stats() };
            add_limits(&mut all.limits, last);
        }
    }
}

fn add_cache(sums: &mut BTreeMap<u32, DuplicateRequestStats>, stats: DuplicateRequestStats) {
    let sum = sums
        .entry(stats.program)
        .or_insert_with(|| DuplicateRequestStats { program: stats.program, ..DuplicateRequestStats::default() });
    sum.entries += stats.entries;
    sum.bytes += stats.bytes;
    sum.in_progress += stats.in_progress;
    sum.hits += stats.hits;
    sum.waits += stats.waits;
    sum.misses += stats.misses;
    sum.evicted += stats.evicted;
}

fn add_limits(sums: &mut BTreeMap<LimitScope, LimitStats>, stats: LimitStats) {
    let sum = sums.entry(stats.scope).or_insert_with(|| LimitStats::new(stats.scope));
    sum.running += stats.running;
    sum.waiting += stats.waiting;
    sum.executed += stats.executed;
    sum.refused += stats.refused;
    sum.timed_out += stats.timed_out;
    sum.cancelled += stats.cancelled;
}

/// Records the statistics of the caches and limits of all servers of the process, including dropped servers, as
/// metrics.
fn record() {
    let (mut caches, mut limits) = {
        let all = servers();
        let (mut caches, mut limits) = (all.caches.clone(), all.limits.clone());
        for parts in all.open.values() {
            parts.caches.iter().for_each(|cache| add_cache(&mut caches, cache.stats()));
            parts.limiters.iter().for_each(|limiter| add_limits(&mut limits, limiter.stats()));
        }
        (caches, limits)
    };
    while let Some((program, stats)) = caches.pop_first() {
        let program = format!("{program:#010x}");
        let set = |name, value: f64| gauge!(name, "rpcrdma.program" => program.clone()).set(value);
        set(describe::DUPLICATES_ENTRIES, stats.entries as f64);
        set(describe::DUPLICATES_MEMORY, stats.bytes as f64);
        set(describe::DUPLICATES_IN_PROGRESS, stats.in_progress as f64);
        for (outcome, value) in [("hit", stats.hits), ("wait", stats.waits), ("miss", stats.misses)] {
            counter!(
                describe::DUPLICATES_CALLS,
                "rpcrdma.program" => program.clone(), "rpcrdma.duplicates.outcome" => outcome
            )
            .absolute(value);
        }
        counter!(describe::DUPLICATES_EVICTED, "rpcrdma.program" => program).absolute(stats.evicted);
    }
    while let Some((scope, stats)) = limits.pop_first() {
        let scope = scope_name(scope);
        let set = |name, value: usize| gauge!(name, "rpcrdma.limits.scope" => scope.clone()).set(value as f64);
        set(describe::LIMITS_RUNNING, stats.running);
        set(describe::LIMITS_WAITING, stats.waiting);
        let outcomes = [
            ("executed", stats.executed),
            ("refused", stats.refused),
            ("timed_out", stats.timed_out),
            ("cancelled", stats.cancelled),
        ];
        for (outcome, value) in outcomes {
            counter!(
                describe::LIMITS_CALLS,
                "rpcrdma.limits.scope" => scope.clone(), "rpcrdma.limits.outcome" => outcome
            )
            .absolute(value);
        }
    }
}

fn scope_name(scope: LimitScope) -> String {
    match scope {
        LimitScope::Server => "server".to_owned(),
        LimitScope::Program(program) => format!("{program:#010x}"),
        LimitScope::Procedure(ProcedureId { program, version, procedure, .. }) => {
            format!("{program:#010x}.{version}.{procedure}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{duplicates::DuplicateRequests, limits::Limits};

    #[test]
    fn servers_add_up() {
        let cache = DuplicateRequestStats {
            program: 7,
            entries: 1,
            bytes: 2,
            in_progress: 3,
            hits: 4,
            waits: 5,
            misses: 6,
            evicted: 7,
        };
        let scope = LimitScope::Program(7);
        let limits = LimitStats { scope, running: 1, waiting: 2, executed: 3, refused: 4, timed_out: 5, cancelled: 6 };
        let (mut caches, mut scopes) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..2 {
            add_cache(&mut caches, cache);
            add_limits(&mut scopes, limits);
            add_limits(&mut scopes, LimitStats { scope: LimitScope::Server, ..limits });
        }
        let twice = DuplicateRequestStats {
            program: 7,
            entries: 2,
            bytes: 4,
            in_progress: 6,
            hits: 8,
            waits: 10,
            misses: 12,
            evicted: 14,
        };
        assert_eq!(caches, [(7, twice)].into());
        let twice = LimitStats { scope, running: 2, waiting: 4, executed: 6, refused: 8, timed_out: 10, cancelled: 12 };
        let server = LimitStats { scope: LimitScope::Server, ..twice };
        assert_eq!(scopes, [(LimitScope::Server, server), (scope, twice)].into());
    }

    /// When a server is dropped, the counters of its caches and limits are added to the sums of dropped servers.
    #[test]
    fn counters_outlast_their_server() {
        const PROGRAM: u32 = 0x2fff_fff1;
        let cache = Arc::new(DuplicateRequestCache::new(PROGRAM, DuplicateRequests::new()));
        let scope = LimitScope::Program(PROGRAM);
        let limiter = Arc::new(Limiter::new(scope, Limits::new()));
        let measured = server(&[cache], &[limiter]);
        let is_kept = || {
            let all = servers();
            (all.caches.contains_key(&PROGRAM), all.limits.contains_key(&scope))
        };
        assert_eq!(is_kept(), (false, false));
        drop(measured);
        assert_eq!(is_kept(), (true, true));
    }
}
