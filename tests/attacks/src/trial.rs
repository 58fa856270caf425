//! The course of an attack: the victim measures alone, then during the attack, and the server's memory is checked at
//! the end.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use crate::{
    report::{Findings, Measured},
    server::ServerProcess,
    victim::{Latencies, Victim},
};

/// Number of calls that the victim makes without a measurement, before and after the attack.
const WARM_UP: usize = 8;
/// Duration after which a measurement ends with a fault if the attack has not reached its goal.
const MAX_MEASUREMENT: Duration = Duration::from_secs(30);
/// Maximum factor by which an attack may increase the p99 latency, in the full form.
const ALLOWED_SLOWDOWN: u32 = 3;
/// p99 latency during an attack that the full form always allows.
const ALLOWED_LATENCY: Duration = Duration::from_millis(50);

/// The form of a run: how many calls and connections are made, and whether latencies are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Fewer calls and connections. Latencies are printed, but not checked.
    Short,
    Full,
}

impl Form {
    /// Returns the number of calls in one measurement of the victim. In the attacks on counters, it is the number of
    /// acknowledged additions before the attack.
    pub(crate) fn calls(self) -> usize {
        self.either(50, 400)
    }

    /// Returns `short` or `full`, depending on the form.
    pub(crate) fn either<T>(self, short: T, full: T) -> T {
        if self == Self::Short { short } else { full }
    }
}

/// The parameters of all attacks.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Directory of the programs under attack.
    pub(crate) programs: PathBuf,
    pub(crate) form: Form,
}

/// An attack in progress, with the latencies of the victim and the faults so far.
#[derive(Debug)]
pub(crate) struct Trial {
    form: Form,
    alone: Latencies,
    attacked: Latencies,
    faults: Vec<String>,
}

impl Trial {
    /// Starts a trial: measures the victim's calls before the attack.
    pub(crate) async fn start(form: Form, victim: &Victim) -> anyhow::Result<Self> {
        victim.measure(WARM_UP).await?;
        let alone = victim.measure(form.calls()).await.context("before the attack")?;
        Ok(Self { form, alone, attacked: Latencies::default(), faults: Vec::new() })
    }

    /// Measures the victim's calls during the attack.
    pub(crate) async fn measure(&mut self, victim: &Victim) {
        self.measure_until(victim, || true).await;
    }

    /// Measures the victim's calls during the attack, at least once and until `is_enough` returns `true`. It is a fault
    /// if that takes longer than [`MAX_MEASUREMENT`].
    pub(crate) async fn measure_until(&mut self, victim: &Victim, is_enough: impl Fn() -> bool) {
        let started = Instant::now();
        loop {
            match victim.measure(self.form.calls()).await {
                Ok(latencies) => self.attacked.extend(latencies),
                Err(error) => return self.fault(format!("{error:#}")),
            }
            if is_enough() {
                return;
            }
            if started.elapsed() > MAX_MEASUREMENT {
                return self.fault("the attack is too slow: it was not played");
            }
        }
    }

    /// Records a fault.
    pub(crate) fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Records a fault unless `holds`.
    pub(crate) fn expect(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.fault(fault());
        }
    }

    /// Ends the trial after the attackers have left. The victim makes some more calls. Then checks the latencies, the
    /// server and its memory, and returns the findings.
    pub(crate) async fn finish(mut self, server: &mut ServerProcess, victim: &Victim, outcome: String) -> Findings {
        if let Err(error) = victim.measure(WARM_UP).await {
            self.fault(format!("after the attack: {error:#}"));
        }
        if let Err(error) = server.check() {
            self.fault(format!("{error:#}"));
        }
        let memory = server.growth();
        match &memory {
            Ok((growth, limit)) if growth > limit => {
                self.fault(format!("the server's memory grew by {} MiB", growth.div_ceil(1 << 20)));
            }
            Ok(_) => {}
            Err(error) => self.fault(format!("{error:#}")),
        }
        let (alone, attacked) = (self.alone.p99(), self.attacked.p99());
        let allowed = allowed_latency(alone);
        if self.form == Form::Full && attacked > allowed {
            self.fault(format!("p99 exceeds {} ms", allowed.as_millis()));
        }
        let measured = Measured { latency: Some((alone, attacked)), memory: memory.ok() };
        Findings { measured, outcome, faults: self.faults, not_run: None }
    }
}

/// Returns the p99 latency that the full form allows during an attack.
fn allowed_latency(alone: Duration) -> Duration {
    (alone * ALLOWED_SLOWDOWN).max(ALLOWED_LATENCY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_latencies_may_grow_more() {
        let millis = Duration::from_millis;
        assert_eq!(allowed_latency(millis(2)), millis(50));
        assert_eq!(allowed_latency(millis(100)), millis(300));
    }
}
