//! Runs of tests with one fault or mutant selected, or none.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use crate::{
    programs::{CitedTest, TestProgram, TestTarget},
    switch,
};

/// Time after which the tests of a fault count as hanging. It is above the time limits of the tests themselves.
const MAX_DURATION: Duration = Duration::from_secs(300);

/// Interval at which the end of a test program is checked after its output has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The outcome of the tests of one fault or mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The names of the tests that failed. For a test program that failed without naming a test, its exit status.
    Noticed(Vec<String>),
    /// All tests passed.
    Missed,
    /// A test program did not end in time, and no test of another program failed.
    Hung,
}

/// One fault or mutant, or none, and the tests to run with it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The number of the fault or mutant. 0 for none.
    pub number: u32,
    /// The tests, in the order in which they run.
    pub steps: Vec<Step>,
    /// `true` to end at the first failure, to run one test at a time, and to limit the memory.
    pub is_brief: bool,
    /// The file to which the numbers of reached mutants are written.
    pub reached: Option<PathBuf>,
}

/// Tests that run in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The program that contains the tests.
    pub target: TestTarget,
    /// The names of the tests.
    pub names: Vec<String>,
    /// Time after which the tests count as hanging.
    pub limit: Duration,
}

impl Trial {
    /// Creates a trial with these cited tests.
    ///
    /// # Errors
    ///
    /// Fails if a test does not exist, or if its program was not compiled.
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
        Ok(Self::all(number, tests))
    }

    /// Creates a trial that runs all of these tests.
    pub fn all(number: u32, tests: BTreeMap<TestTarget, Vec<String>>) -> Self {
        let steps = tests.into_iter().map(|(target, names)| Step { target, names, limit: MAX_DURATION }).collect();
        Self { number, steps, is_brief: false, reached: None }
    }

    /// Runs the tests with the fault or mutant, and returns the verdict.
    ///
    /// # Errors
    ///
    /// Fails if a program was not compiled, or cannot be started.
    pub fn run(&self, programs: &BTreeMap<TestTarget, TestProgram>) -> anyhow::Result<Verdict> {
        let mut hung = false;
        let mut failed = Vec::new();
        for step in &self.steps {
            let program = programs.get(&step.target).with_context(|| format!("not compiled: {:?}", step.target))?;
            match self.run_step(step, program)? {
                Some(names) => failed.extend(names),
                None => hung = true,
            }
            if self.is_brief && (hung || !failed.is_empty()) {
                break;
            }
        }
        Ok(match failed.is_empty() {
            false => Verdict::Noticed(failed),
            true if hung => Verdict::Hung,
            true => Verdict::Missed,
        })
    }

    /// Runs the tests of one step. Returns the tests that failed, or `None` if the program did not end in time.
    fn run_step(&self, step: &Step, program: &TestProgram) -> anyhow::Result<Option<Vec<String>>> {
        let mut command = if self.is_brief { program.limited_command() } else { program.command() };
        command.arg("--exact").args(&step.names).env(switch::SELECTED, self.number.to_string());
        if self.is_brief {
            command.args(["--test-threads", "1"]);
        }
        if let Some(reached) = &self.reached {
            command.env(switch::REACHED, reached);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let deadline = Instant::now() + step.limit;
        let mut child = command.spawn().with_context(|| format!("failed to run {}", program.executable.display()))?;
        let failures = failures(&mut child);
        let mut failed = Vec::new();
        loop {
            match failures.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(name) => {
                    failed.push(name);
                    if self.is_brief {
                        end(&mut child)?;
                        return Ok(Some(failed));
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    end(&mut child)?;
                    return Ok(None);
                }
            }
        }
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                end(&mut child)?;
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        };
        if !status.success() && failed.is_empty() {
            failed.push(format!("the test program: {status}"));
        }
        Ok(Some(failed))
    }
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Returns a channel of the names of the tests that fail. A name arrives as soon as the test program has printed it.
fn failures(child: &mut Child) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line);
                if let Some(name) =
                    text.strip_prefix("test ").and_then(|rest| rest.trim_end().strip_suffix(" ... FAILED"))
                {
                    let _ = send.send(name.split(" - ").next().unwrap_or(name).to_owned());
                }
                line.clear();
            }
        });
    }
    receive
}

/// Runs trials, `jobs` at a time. Calls `report` with each outcome and its duration as it arrives. Returns the outcomes
/// in the order of the trials.
///
/// # Errors
///
/// Fails if a test program was not compiled, or cannot be started.
pub fn run_all(
    trials: &[Trial],
    programs: &BTreeMap<TestTarget, TestProgram>,
    jobs: usize,
    report: impl Fn(&Trial, &Verdict, Duration) + Sync,
) -> anyhow::Result<Vec<Verdict>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(index) else { return anyhow::Ok(done) };
            let start = Instant::now();
            let verdict = trial.run(programs)?;
            report(trial, &verdict, start.elapsed());
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
