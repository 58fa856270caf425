//! The report at the end of a run: services, disturbances, slopes of resources, and faults.

use std::{process::ExitCode, time::Duration};

use rpcrdma_examples::{command::human_bytes, say};
use tokio::time::Instant;

use crate::{
    disturb::{Kind, Tally},
    fit::fit,
    ledger::Ledger,
    samples::{Resource, Series},
};

/// Maximum number of kinds of errors that are printed for each service.
const MAX_ERRORS: usize = 8;
/// Fraction of a run, from its beginning, in which caches and pools grow. Samples of this part are left out of the
/// slopes.
const WARM_UP: f64 = 0.4;
/// Maximum duration of the part of a run in which caches and pools grow, in seconds.
const MAX_WARM_UP: f64 = 600.0;
/// Shortest run whose slopes are checked.
const MIN_CHECKED: Duration = Duration::from_secs(300);
/// Shortest run in which the slope of memory is checked: caches grow for many minutes.
const MIN_MEMORY_CHECKED: Duration = Duration::from_secs(1800);
/// Shortest run in which each kind of disturbance must happen.
const MIN_COMPLETE: Duration = Duration::from_secs(60);

/// Prints a line for each service, followed by its errors. Returns the faults of all services. A service without
/// acknowledged effects, verified effects or compared bytes is a fault, too.
pub(crate) fn print_services<'a>(ledgers: impl IntoIterator<Item = (&'a str, &'a Ledger)>) -> Vec<String> {
    let mut faults = Vec::new();
    say!(
        "{:12} {:>10} {:>14} {:>13} {:>10} {:>8}",
        "service",
        "calls",
        "bytes compared",
        "acknowledged",
        "verified",
        "errors"
    );
    for (name, ledger) in ledgers {
        let totals = ledger.read();
        let errors: u64 = totals.errors.values().sum();
        let bytes = human_bytes(totals.bytes);
        let (calls, acknowledged, verified) = (totals.calls, totals.acknowledged, totals.verified);
        say!("{name:12} {calls:>10} {bytes:>14} {acknowledged:>13} {verified:>10} {errors:>8}");
        let mut errors: Vec<_> = totals.errors.into_iter().collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let others: u64 = errors.iter().skip(MAX_ERRORS).map(|(_, count)| count).sum();
        for (error, count) in errors.iter().take(MAX_ERRORS) {
            say!("    {count} x {error}");
        }
        if others > 0 {
            say!("    {others} x other errors");
        }
        if acknowledged == 0 || verified == 0 || totals.bytes == 0 {
            faults.push(format!("{name}: nothing was acknowledged, or nothing verified"));
        }
        faults.extend(totals.faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    faults
}

/// Prints a line for each kind of disturbance. Returns a fault for each kind that never happened, if the run is long
/// enough.
pub(crate) fn print_disturbances(tally: &Tally, duration: Duration) -> Vec<String> {
    say!("");
    say!("{:34} {:>6} {:>16}", "disturbance", "count", "longest resume");
    for kind in Kind::OF_PROCESSES.into_iter().chain(Kind::OF_NETWORKS) {
        let (name, happened) = (kind.name(), tally.read(kind));
        match tally.not_run.get(&kind) {
            Some(reason) => say!("{name:34} NOT RUN: {reason}"),
            None => say!("{name:34} {:>6} {:>14.2} s", happened.count, happened.resumed.as_secs_f64()),
        }
    }
    let missing = if duration < MIN_COMPLETE { Vec::new() } else { tally.missing() };
    missing.into_iter().map(|kind| format!("never happened: {}", kind.name())).collect()
}

/// Prints a line for each resource of each process. If the run is long enough, returns a fault for each resource that
/// grows significantly faster than its bound.
pub(crate) fn print_slopes(series: &Series, duration: Duration) -> Vec<String> {
    let warm_up = (duration.as_secs_f64() * WARM_UP).min(MAX_WARM_UP);
    let checks = |resource: Resource| {
        let is_memory = matches!(resource, Resource::Memory | Resource::Kept);
        duration >= if is_memory { MIN_MEMORY_CHECKED } else { MIN_CHECKED }
    };
    let how = match (checks(Resource::Memory), checks(Resource::Regions)) {
        (true, _) => "checked",
        (false, true) => "checked except memory, the run is short",
        (false, false) => "printed only, the run is short",
    };
    say!("");
    say!("slopes after {warm_up:.0} s, {how}");
    say!(
        "{:14} {:14} {:>8} {:>10} {:>10} {:>12} {:>12} {:>8}",
        "process",
        "resource",
        "points",
        "first",
        "last",
        "slope/h",
        "std. error",
        "bound/h"
    );
    let mut faults = Vec::new();
    for ((name, resource), samples) in series {
        let warm = samples.partition_point(|(time, _)| *time < warm_up);
        let bound = resource.bound();
        let Some(fit) = fit(&samples[warm..]) else {
            say!("{name:14} {resource:14} {:>8}", "too few");
            continue;
        };
        let (first, last) = fit.ends;
        let is_growing = checks(*resource) && fit.exceeds(bound);
        say!(
            "{name:14} {resource:14} {:>8} {first:>10.1} {last:>10.1} {:>12.2} {:>12.2} {bound:>8.0}{}",
            fit.points,
            fit.slope,
            fit.error,
            if is_growing { "  GROWS" } else { "" }
        );
        if is_growing {
            faults.push(format!("{name}: {resource} grows by {:.1} per hour, more than {bound}", fit.slope));
        }
    }
    faults
}

/// Prints faults and the result. Returns the exit code.
pub(crate) fn print_faults(faults: &[String], begun: Instant, seed: u64) -> ExitCode {
    say!("");
    for fault in faults {
        say!("FAIL: {fault}");
    }
    let result = if faults.is_empty() { "passed".to_owned() } else { format!("{} faults", faults.len()) };
    say!("soak of {} s, --seed {seed}: {result}", begun.elapsed().as_secs());
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_fails_long_runs_only() {
        let samples = (0..1800).map(|second| (f64::from(second), f64::from(second) / 10.0)).collect();
        let series = Series::from([(("nfs3d 1".to_owned(), Resource::Descriptors), samples)]);
        assert_eq!(print_slopes(&series, Duration::from_secs(60)), Vec::<String>::new());
        let faults = print_slopes(&series, Duration::from_secs(600));
        assert_eq!(faults, ["nfs3d 1: descriptors grows by 360.0 per hour, more than 12"]);
        let series =
            Series::from([(("nfs3d 1".to_owned(), Resource::Memory), series.into_values().flatten().collect())]);
        assert!(print_slopes(&series, Duration::from_secs(600)).is_empty());
        assert_eq!(print_slopes(&series, Duration::from_secs(1800)).len(), 1);
    }

    #[test]
    fn services_without_effects_and_kinds_that_never_happened_fail() {
        let ledger = Ledger::default();
        assert_eq!(print_services([("counters", &ledger)]).len(), 1);
        ledger.acknowledged();
        ledger.verified();
        ledger.compared(8);
        assert!(print_services([("counters", &ledger)]).is_empty());
        assert_eq!(print_disturbances(&Tally::default(), Duration::from_secs(60)).len(), 9);
        assert!(print_disturbances(&Tally::default(), Duration::from_secs(59)).is_empty());
    }
}
