//! Runs of tests with one fault selected.

use std::{
    collections::BTreeMap,
    io::Read as _,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use crate::{
    plant::SWITCH_VARIABLE,
    programs::{CitedTest, TestProgram, TestTarget},
};

/// Time after which tests count as hanging. It is above the time limits of the tests themselves.
const MAX_DURATION: Duration = Duration::from_secs(300);

/// Interval at which a test program is asked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The outcome of the tests of one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These tests failed, or their program ended by a signal.
    Noticed(Vec<String>),
    /// All tests passed.
    Missed,
    /// A test program did not end in time.
    Hung,
}

/// One fault, or none, and the tests to run with it.
#[derive(Debug)]
pub struct Trial {
    /// The number of the fault. 0 for none.
    pub number: u32,
    /// The tests by program.
    pub tests: BTreeMap<TestTarget, Vec<String>>,
}

impl Trial {
    /// Creates a trial with these cited tests.
    ///
    /// # Errors
    ///
    /// If a test does not exist.
    pub fn new(
        number: u32,
        cited: &[(TestTarget, CitedTest)],
        programs: &BTreeMap<TestTarget, TestProgram>,
    ) -> anyhow::Result<Self> {
        let mut tests: BTreeMap<TestTarget, Vec<String>> = BTreeMap::new();
        for (target, cited) in cited {
            let program = programs.get(target).with_context(|| format!("not compiled: {target:?}"))?;
            tests.entry(target.clone()).or_default().extend(program.names(cited)?);
        }
        Ok(Self { number, tests })
    }

    /// Runs the tests.
    ///
    /// # Errors
    ///
    /// If a program cannot be started.
    pub fn run(&self, programs: &BTreeMap<TestTarget, TestProgram>) -> anyhow::Result<Verdict> {
        let mut hung = false;
        let mut failed = Vec::new();
        for (target, names) in &self.tests {
            let program = programs.get(target).with_context(|| format!("not compiled: {target:?}"))?;
            match run(program, names, self.number)? {
                Some(names) => failed.extend(names),
                None => hung = true,
            }
        }
        Ok(match failed.is_empty() {
            false => Verdict::Noticed(failed),
            true if hung => Verdict::Hung,
            true => Verdict::Missed,
        })
    }
}

/// Runs these tests and returns those that failed, or `None` if the program did not end in time.
fn run(program: &TestProgram, names: &[String], number: u32) -> anyhow::Result<Option<Vec<String>>> {
    let mut command = program.command();
    command.arg("--exact").args(names).env(SWITCH_VARIABLE, number.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("failed to run {}", program.executable.display()))?;
    let output = child.stdout.take().map(|mut output| {
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = output.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > MAX_DURATION {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    };
    if status.success() {
        return Ok(Some(Vec::new()));
    }
    let text = output.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let failed: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(|name| name.split(" - ").next().unwrap_or(name).to_owned())
        .collect();
    Ok(Some(if failed.is_empty() { vec![format!("the test program: {status}")] } else { failed }))
}

/// Runs trials, several at a time, and hands each outcome to `report` as it arrives.
///
/// # Errors
///
/// If a test program cannot be started.
pub fn run_all(
    trials: &[Trial],
    programs: &BTreeMap<TestTarget, TestProgram>,
    jobs: usize,
    report: impl Fn(&Trial, &Verdict) + Sync,
) -> anyhow::Result<Vec<Verdict>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(index) else { return anyhow::Ok(done) };
            let verdict = trial.run(programs)?;
            report(trial, &verdict);
            done.push((index, verdict));
        }
    };
    let mut verdicts = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let mut verdicts = Vec::new();
        for worker in workers {
            verdicts.extend(worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??);
        }
        anyhow::Ok(verdicts)
    })?;
    verdicts.sort_by_key(|(index, _)| *index);
    Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}
