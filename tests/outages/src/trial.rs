//! The course of a scenario: its processes, the settings of its client, and the checks of every scenario.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rpcrdma::{Channel, client::ChannelBuilder, config::ConnectionConfig};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    calls::{Callers, Calls, Kind, Load},
    network::Network,
    process::Process,
    report::{Findings, Measured},
    service::recorded,
};

/// Maximum time for an event that does not depend on the settings of the client, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Time in which calls flow before an outage, and after it.
pub(crate) const HEALTHY: Duration = Duration::from_millis(500);
/// Time before the record of calls is read, in which servers execute the calls that have already reached them.
const LATE_CALLS: Duration = Duration::from_millis(100);

/// The length of the outages in a run, and the settings of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Short outages, and a client that notices them soon.
    Short,
    /// Longer outages, and the default settings of the client.
    Long,
}

/// The parameters that all scenarios of a run share: the length of their outages, and their network.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) network: Network,
}

impl Plan {
    /// Returns `short` or `long`, depending on the form.
    pub(crate) fn either<T>(&self, short: T, long: T) -> T {
        if self.form == Form::Short { short } else { long }
    }

    /// Returns the keep-alive timeout of the client.
    pub(crate) fn keepalive_timeout(&self) -> Duration {
        Duration::from_secs(self.either(1, 10))
    }

    /// Returns the duration of an outage that every client notices.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_millis(self.either(2500, 15_000))
    }

    pub(crate) fn builder(&self) -> ChannelBuilder {
        let config = ConnectionConfig::new();
        Channel::builder().connection(match self.form {
            Form::Long => config,
            Form::Short => config
                .keepalive_interval(Duration::from_secs(3))
                .keepalive_timeout(self.keepalive_timeout())
                .connect_timeout(Duration::from_secs(1)),
        })
    }

    /// Returns the callers of most scenarios. There are more callers than a connection has credits.
    pub(crate) fn callers(&self) -> Callers {
        let timeout = Duration::from_secs(self.either(20, 60));
        Callers { deadline: 40, no_deadline: 16, not_idempotent: 8, timeout }
    }

    /// Returns the maximum number of calls that fail in a silence because they may not be repeated. These are the calls
    /// in flight when the silence begins, and the calls of each connection that is made during the silence.
    pub(crate) fn max_lost(&self, silence: Duration) -> usize {
        let connections = silence.as_millis() / self.keepalive_timeout().as_millis();
        self.callers().not_idempotent * (connections as usize + 2)
    }

    /// Returns the maximum time in which a call leaves a silent server, on a busy machine. The expected time is 0.3 s
    /// more than the keep-alive timeout.
    pub(crate) fn max_move(&self) -> Duration {
        self.keepalive_timeout() * 2 + Duration::from_secs(4)
    }
}

/// A scenario in progress.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    pub(crate) plan: &'a Plan,
    folder: TempDir,
    connects_before: Option<u64>,
    findings: Findings,
}

impl<'a> Trial<'a> {
    /// Begins a scenario. `expected` describes the expected result.
    pub(crate) fn start(plan: &'a Plan, expected: impl Into<String>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a directory for servers")?;
        let findings =
            Findings { measured: Measured { expected: expected.into(), ..Measured::default() }, ..Findings::default() };
        Ok(Self { plan, folder, connects_before: plan.network.connects(), findings })
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("record")
    }

    /// Starts the server `number` on free ports of 127.0.0.1, one for each scheme. `options` are further command-line
    /// options.
    pub(crate) async fn server(&self, number: u32, schemes: &[&str], options: &[&str]) -> anyhow::Result<Process> {
        let mut arguments: Vec<OsString> =
            ["serve", "--number", &number.to_string(), "--record"].map(Into::into).into();
        arguments.push(self.record().into());
        arguments.extend(options.iter().map(Into::into));
        let urls: Vec<String> = schemes.iter().map(|scheme| format!("{scheme}://127.0.0.1:0")).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        Process::start(arguments, &urls, urls.len()).await
    }

    /// Starts a proxy of a server. The server sees the connections come from the address 127.0.0.`local`. `delay`
    /// applies to all data in each direction.
    pub(crate) async fn proxy(&self, to: SocketAddr, local: u8, delay: Duration) -> anyhow::Result<Process> {
        let local = format!("127.0.0.{local}");
        let delay = delay.as_millis().to_string();
        let arguments = ["proxy", "--to", &to.to_string(), "--local", &local, "--delay", &delay].map(OsString::from);
        Process::start(arguments.into(), &[], 1).await
    }

    /// Records a fault.
    pub(crate) fn fault(&mut self, fault: impl Into<String>) {
        self.findings.faults.push(fault.into());
    }

    /// Records a fault unless `holds`.
    pub(crate) fn expect(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.fault(fault());
        }
    }

    /// Returns the number of connects in this scenario so far. Returns `None` if connects are not counted.
    pub(crate) fn connects(&self) -> Option<u64> {
        Some(self.plan.network.connects()? - self.connects_before?)
    }

    /// Lets an outage that has just begun last until the client makes another connection, and at least for
    /// [`Plan::silence`]. It is a fault if the client makes no connection within [`PATIENCE`]. If connects are not
    /// counted, only waits for [`Plan::silence`].
    pub(crate) async fn last_until_noticed(&mut self) {
        let (begun, before) = (Instant::now(), self.connects());
        while before.is_some() && self.connects() == before {
            if begun.elapsed() > PATIENCE {
                self.fault(format!("the client does not notice the silence in {} s", PATIENCE.as_secs()));
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        if before.is_some() {
            self.note(format!("noticed after {:.1} s", begun.elapsed().as_secs_f64()));
        }
        sleep(self.plan.silence().saturating_sub(begun.elapsed())).await;
    }

    /// Waits for a successful call after the end of the outage. It is a fault if there is none.
    pub(crate) async fn healed(&mut self, load: &Load, at: Instant) {
        self.findings.measured.healed = load.answered(at, PATIENCE).await;
        let is_healed = self.findings.measured.healed.is_some();
        self.expect(is_healed, || format!("no call succeeds {} s after the outage", PATIENCE.as_secs()));
    }

    /// Stops the callers. Checks that at most `max_lost` calls that may not be repeated have failed, and no call of the
    /// kinds in `unfailing`.
    pub(crate) async fn finish_calls(
        &mut self,
        load: Load,
        max_lost: usize,
        unfailing: &[Kind],
    ) -> anyhow::Result<Calls> {
        let calls = load.finish().await?;
        for kind in unfailing {
            let failed = calls.failed(*kind);
            self.expect(failed == 0, || format!("{failed} calls failed ({kind:?})"));
        }
        let lost = calls.failed(Kind::NotIdempotent);
        self.expect(lost <= max_lost, || format!("{lost} calls that are not idempotent failed, more than {max_lost}"));
        Ok(calls)
    }

    /// Adds calls to the findings.
    pub(crate) fn add(&mut self, calls: Calls) {
        self.findings.measured.calls.extend(calls);
    }

    /// Adds to the description of what happened.
    pub(crate) fn note(&mut self, note: impl AsRef<str>) {
        if !self.findings.outcome.is_empty() {
            self.findings.outcome.push_str(", ");
        }
        self.findings.outcome.push_str(note.as_ref());
    }

    /// Ends the scenario: compares the calls with those that the servers executed, and returns the findings. `connects`
    /// is the number of connects, if the scenario counted them itself.
    pub(crate) async fn finish(mut self, connects: Option<u64>) -> anyhow::Result<Findings> {
        self.findings.measured.connects = connects.or_else(|| self.connects());
        sleep(LATE_CALLS).await;
        let recorded = recorded(&self.record())?;
        if let Some(fault) = self.findings.measured.calls.compare(&recorded) {
            self.fault(fault);
        }
        Ok(self.findings)
    }
}
