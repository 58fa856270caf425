//! Bugs above the engine that the simulation has to find, and the search for the first seed that shows one.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    ops::Range,
    path::Path,
    process::{Child, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::{programs::TestProgram, switch, table::Fault};

/// Path of the table of bugs, relative to the root of the repository.
pub const TABLE: &str = "tests/simulation/bugs.toml";

/// Path of the record of the last search for each bug, relative to the root of the repository.
pub const RECORD: &str = "tests/simulation/bugs_found.toml";

/// Distance between the first seeds of consecutive searches for one bug.
const SEARCH_DISTANCE: u64 = 1_000_000;

/// Interval at which the end of a run is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum number of seeds that one process runs.
const MAX_BATCH: u64 = 64;

/// Maximum length of the description of a failure, in characters. Longer descriptions are truncated.
const MAX_TEXT: usize = 160;

/// The contents of [`TABLE`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BugTable {
    #[serde(rename = "bug")]
    bugs: Vec<Bug>,
}

/// A mistake that a programmer could make above the engine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// The unique name.
    pub name: String,
    /// The mistake, in one sentence.
    pub what: String,
    /// The change of the code that makes the mistake.
    pub fault: Fault,
    /// The reason why the simulation does not find the bug. Empty if it does.
    #[serde(default)]
    pub missed_because: String,
}

/// Reads [`TABLE`] in the repository `root`.
///
/// # Errors
///
/// Fails if the file cannot be read or is not a table, or if two bugs have the same name.
pub fn read(root: &Path) -> anyhow::Result<Vec<Bug>> {
    let text = fs::read_to_string(root.join(TABLE)).with_context(|| format!("failed to read {TABLE}"))?;
    let BugTable { bugs } = toml::from_str(&text).with_context(|| format!("{TABLE} is not a table"))?;
    let mut names = BTreeSet::new();
    for bug in &bugs {
        ensure!(names.insert(&bug.name), "two bugs have the name {}", bug.name);
    }
    Ok(bugs)
}

/// Bounds of the searches.
#[derive(Debug, Clone, Copy)]
pub struct SearchLimits {
    /// Number of searches for a bug, each of which begins with a different seed.
    pub searches: u64,
    /// Maximum number of seeds of a search.
    pub seeds: u64,
    /// Real time after which the run of a seed counts as hanging.
    pub run: Duration,
}

/// The result of the searches for one bug.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct FoundBug {
    /// Name of the bug.
    pub name: String,
    /// Number of seeds up to the first one that shows the bug, for each search that found the bug. Sorted.
    pub seeds: Vec<u64>,
    /// Number of searches that did not find the bug.
    pub missed: u64,
    /// Maximum number of seeds of a search.
    pub max_seeds: u64,
    /// The violation, the panic or the hang that showed the bug, in the first search that found it. Empty if no search
    /// did.
    pub noticed: String,
}

impl FoundBug {
    /// Returns the median number of seeds. `None` if half of the searches or more did not find the bug.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        let searches = self.seeds.len() + usize::try_from(self.missed).unwrap_or(usize::MAX);
        self.seeds.get(searches / 2).copied()
    }
}

/// Results of the last search for each bug.
#[derive(Debug, Deserialize, Serialize)]
pub struct BugRun {
    /// Day of the last search, such as `2026-11-28`.
    pub date: String,
    /// Commit that was checked out at the last search.
    pub commit: String,
    /// Number of bugs with results.
    pub bugs: usize,
    /// Number of bugs that more than half of their searches found.
    pub found: usize,
    /// The bugs, in the order of the table.
    #[serde(rename = "bug")]
    pub results: Vec<FoundBug>,
}

impl BugRun {
    /// Creates the record of results. For other bugs of the table, it keeps the results of `earlier`.
    #[must_use]
    pub fn new((date, commit): (String, String), table: &[Bug], results: &[FoundBug], earlier: Option<&Self>) -> Self {
        let earlier = earlier.map(|run| run.results.as_slice()).unwrap_or_default();
        let of = |bug: &Bug| results.iter().chain(earlier).find(|found| found.name == bug.name).cloned();
        let results: Vec<_> = table.iter().filter_map(of).collect();
        let found = results.iter().filter(|found| found.median().is_some()).count();
        Self { date, commit, bugs: results.len(), found, results }
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is not a record.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a record", path.display()))
    }

    /// Writes the record.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = format!("# Written by `rpcrdma-bugs --record`.\n{}", toml::to_string(self)?);
        fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    }
}

/// Searches for a bug. The program is the simulation with all bugs, and `number` selects one.
///
/// # Errors
///
/// Fails if the program cannot be run.
pub fn search(program: &TestProgram, number: u32, name: &str, limits: SearchLimits) -> anyhow::Result<FoundBug> {
    let (seeds, noticed) = Default::default();
    let mut found = FoundBug { name: name.to_owned(), seeds, missed: 0, max_seeds: limits.seeds, noticed };
    for index in 0..limits.searches {
        match first_seed(program, number, index * SEARCH_DISTANCE, limits)? {
            Some((count, noticed)) => {
                found.seeds.push(count);
                if found.noticed.is_empty() {
                    found.noticed = noticed;
                }
            }
            None => found.missed += 1,
        }
    }
    found.seeds.sort_unstable();
    Ok(found)
}

/// Returns the number of seeds from `start` up to the first one that shows the bug, and a description of the failure. A
/// seed that fails without the bug, too, does not show it. Returns `None` if no seed shows the bug.
fn first_seed(
    program: &TestProgram,
    number: u32,
    start: u64,
    limits: SearchLimits,
) -> anyhow::Result<Option<(u64, String)>> {
    let (end, mut batch, mut next) = (start + limits.seeds, 1, start);
    while next < end {
        let seeds = next..end.min(next + batch);
        (next, batch) = (seeds.end, MAX_BATCH.min(2 * batch));
        if play(program, number, seeds.clone(), limits.run)?.is_none() {
            continue;
        }
        for seed in seeds {
            let one = seed..seed + 1;
            let Some(noticed) = play(program, number, one.clone(), limits.run)? else { continue };
            // A seed that fails without the bug says nothing about it.
            if play(program, 0, one, limits.run)?.is_none() {
                return Ok(Some((seed - start + 1, noticed)));
            }
        }
    }
    Ok(None)
}

/// Runs the simulation with `seeds` in a separate process, because a process has at most one bug, and a bug can make it
/// hang. `number` selects the bug, and 0 selects none. Kills the process after `limit`.
///
/// Returns a description of the first failure, a hang included, or `None` if there was none.
///
/// # Errors
///
/// Fails if the program cannot be run.
pub fn play(program: &TestProgram, number: u32, seeds: Range<u64>, limit: Duration) -> anyhow::Result<Option<String>> {
    let mut command = program.limited_command();
    let count = seeds.end.saturating_sub(seeds.start);
    command.args(["--jobs", "1", "--seed", &seeds.start.to_string(), "--seeds", &count.to_string()]);
    command.env(switch::SELECTED, number.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("failed to run {}", program.executable.display()))?;
    let (output, errors) = (text(child.stdout.take()), text(child.stderr.take()));
    let status = end_within(&mut child, limit)?;
    let [output, errors] = [output, errors].map(|reader| reader.join().unwrap_or_default());
    let Some(status) = status else { return Ok(Some(format!("hangs: no end within {} s", limit.as_secs()))) };
    // The name of the thread, and the place in the source, differ from build to build.
    let mut panics = errors.lines().skip_while(|line| !line.contains("panicked at"));
    if panics.next().is_some() {
        return Ok(Some(shortened(&format!("panics: {}", panics.next().unwrap_or_default()))));
    }
    let violation = |line: &'_ str| {
        let (seed, violation) = line.strip_prefix("seed ")?.split_once(": ")?;
        seed.parse().is_ok_and(|seed| seeds.contains(&seed)).then(|| shortened(violation))
    };
    if let Some(violation) = output.lines().find_map(violation) {
        return Ok(Some(violation));
    }
    Ok((!status.success()).then(|| format!("the simulation ends: {status}")))
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Reads a pipe in a thread, so that it does not fill.
fn text(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The part before an error is of use as well.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a process. Returns its status, or kills it at the limit and returns `None`.
fn end_within(child: &mut Child, limit: Duration) -> anyhow::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Creates a shell script that stands for the simulation with a bug: it prints a violation, panics, hangs, or
    /// succeeds.
    fn program(script: &str) -> (tempfile::TempDir, TestProgram) {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("program");
        fs::write(&executable, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&executable, mode).unwrap();
        let program = TestProgram { executable, folder: PathBuf::from(folder.path()), tests: Vec::new() };
        (folder, program)
    }

    #[test]
    fn a_bug_shows_by_a_violation_a_panic_or_a_hang() {
        let noticed = |script, limit| {
            let (_folder, program) = program(script);
            play(&program, 3, 7..8, limit).unwrap()
        };
        let long = Duration::from_secs(60);
        assert_eq!(noticed("exit 0", long), None);
        assert_eq!(noticed("echo \"seed 7: $RPCRDMA_FAULT tasks\"; exit 1", long).unwrap(), "3 tasks");
        assert_eq!(
            noticed("echo \"thread 'a' panicked at b.rs:1:1:\" >&2; echo c >&2; exit 0", long).unwrap(),
            "panics: c"
        );
        assert_eq!(noticed("exec sleep 600", Duration::ZERO).unwrap(), "hangs: no end within 0 s");
        assert_eq!(noticed("exit 2", long).unwrap(), "the simulation ends: exit status: 2");
    }

    #[test]
    fn seeds_are_counted_unless_they_fail_without_the_bug() {
        // Seeds 1 and 4 fail: the first one always, the other one with the bug only.
        let script = "from=$4 to=$(($4 + $6))
            fails() { if [ $from -le $1 ] && [ $1 -lt $to ]; then echo \"seed $1: wrong\"; exit 1; fi; }
            fails 1
            if [ $RPCRDMA_FAULT = 5 ]; then fails 4; fi";
        let (_folder, program) = program(script);
        let limits = SearchLimits { searches: 2, seeds: 6, run: Duration::from_secs(60) };
        let found = search(&program, 5, "a bug", limits).unwrap();
        assert_eq!((found.seeds.as_slice(), found.missed, found.noticed.as_str()), ([5].as_slice(), 1, "wrong"));
        assert_eq!(found.median(), None);
    }

    #[test]
    fn the_median_counts_searches_that_found_nothing() {
        let found = |seeds: &[u64], missed| FoundBug {
            name: String::new(),
            seeds: seeds.to_vec(),
            missed,
            max_seeds: 9,
            noticed: String::new(),
        };
        assert_eq!(found(&[1, 5, 9], 0).median(), Some(5));
        assert_eq!(found(&[1, 5], 1).median(), Some(5));
        assert_eq!(found(&[1], 2).median(), None);
    }

    #[test]
    fn a_record_keeps_the_results_of_other_bugs_of_the_table() {
        let bug = |name: &str| Bug {
            name: name.to_owned(),
            what: String::new(),
            fault: Fault { within: String::new(), replace: String::new(), with: String::new() },
            missed_because: String::new(),
        };
        let found = |name: &str, seeds: &[u64]| FoundBug {
            name: name.to_owned(),
            seeds: seeds.to_vec(),
            missed: 0,
            max_seeds: 9,
            noticed: String::new(),
        };
        let (table, when) = ([bug("a"), bug("b"), bug("c")], || ("today".to_owned(), "commit".to_owned()));
        let first = BugRun::new(when(), &[bug("b"), bug("d")], &[found("b", &[1]), found("d", &[])], None);
        let run = BugRun::new(when(), &table, &[found("c", &[2]), found("a", &[3])], Some(&first));
        let seeds: Vec<_> = run.results.iter().map(|found| (found.name.as_str(), found.median())).collect();
        assert_eq!(seeds, [("a", Some(3)), ("b", Some(1)), ("c", Some(2))]);
        assert_eq!((first.bugs, first.found, run.bugs, run.found), (2, 1, 3, 3));
    }
}
