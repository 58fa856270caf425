//! The mutants that each test reaches, and the tests to run for a mutant.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Mutex,
    time::Duration,
};

use anyhow::Context as _;

use super::compile::Mutant;
use crate::{
    programs::{TestProgram, TestTarget},
    trial::{Step, Trial, Verdict, run_all},
};

/// Duration above which a test is not used.
const MAX_TEST_DURATION: Duration = Duration::from_secs(2);

/// The part of a time limit of tests that does not depend on their duration. See [`LIMIT_FACTOR`].
const MIN_LIMIT: Duration = Duration::from_secs(4);

/// Factor for the duration of tests without a mutant. The product and [`MIN_LIMIT`] together are the time limit of the
/// tests with a mutant.
const LIMIT_FACTOR: u32 = 10;

/// Approximate duration of starting a process. Shorter durations do not tell tests apart.
const PROCESS_DURATION: Duration = Duration::from_millis(20);

/// Number of tests in each of the first groups. The numbers are small, because most mutants are noticed at once. The
/// last group has all other tests. Each test program with tests in a group runs them in one process.
const PROCESS_SIZES: [usize; 2] = [1, 5];

/// A test with its duration and the mutants that it reaches.
#[derive(Clone, Debug)]
pub struct MeasuredTest {
    /// The test program.
    pub target: TestTarget,
    /// The name of the test.
    pub name: String,
    /// The duration of the test's process, without a mutant.
    pub duration: Duration,
    /// Numbers of the mutants that the test reaches.
    pub reached: BTreeSet<u32>,
}

/// Outcome of running every test once.
#[derive(Debug, Default)]
pub struct Measured {
    /// Tests that mutants can be tested with.
    pub tests: Vec<MeasuredTest>,
    /// Names of the tests that failed.
    pub failed: Vec<String>,
    /// Names of the tests that take too long.
    pub slow: Vec<String>,
}

/// Runs every test once in a process of its own, `jobs` at a time. `folder` is for the records of reached mutants, and
/// is emptied first.
///
/// # Errors
///
/// Fails if a test program cannot be started, or a record cannot be read.
pub fn measure(programs: &BTreeMap<TestTarget, TestProgram>, folder: &Path, jobs: usize) -> anyhow::Result<Measured> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    let tests: Vec<_> =
        programs.iter().flat_map(|(target, program)| program.tests.iter().map(move |name| (target, name))).collect();
    let trials: Vec<_> = (0..)
        .zip(&tests)
        .map(|(index, (target, name))| Trial {
            number: 0,
            steps: vec![Step {
                target: (*target).clone(),
                names: vec![(*name).clone()],
                limit: MAX_TEST_DURATION * LIMIT_FACTOR,
            }],
            is_brief: true,
            reached: Some(folder.join(format!("{index}"))),
        })
        .collect();
    let outcomes = Mutex::new(BTreeMap::new());
    run_all(&trials, programs, jobs, |trial, verdict, duration| {
        let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        outcomes.insert(trial.reached.clone(), (verdict.clone(), duration));
    })?;
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut measured = Measured::default();
    for (trial, (target, name)) in trials.iter().zip(tests) {
        match outcomes.get(&trial.reached) {
            Some((Verdict::Missed, duration)) if *duration <= MAX_TEST_DURATION => {
                let reached = trial.reached.as_ref().map_or_else(|| Ok(BTreeSet::new()), |path| numbers(path))?;
                let (target, name, duration) = (target.clone(), name.clone(), *duration);
                measured.tests.push(MeasuredTest { target, name, duration, reached });
            }
            Some((Verdict::Noticed(_), _)) => measured.failed.push(name.clone()),
            _ => measured.slow.push(name.clone()),
        }
    }
    Ok(measured)
}

/// Reads the numbers that the switch has written. A test that reaches no mutant has no file.
fn numbers(path: &Path) -> anyhow::Result<BTreeSet<u32>> {
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let written = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(written.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

/// Returns a trial with at most `max_tests` tests of the mutant's package that reach the mutant, or `None` if no test
/// does.
///
/// The unit tests of the mutant's module come before all others. Within each of these two groups, quick tests that
/// reach few mutants come first, because they are more likely to be about this mutant.
pub fn trial(mutant: &Mutant, tests: &[MeasuredTest], max_tests: usize) -> Option<Trial> {
    let mut tests: Vec<_> = tests
        .iter()
        .filter(|test| test.target.manifest == mutant.manifest && test.reached.contains(&mutant.number))
        .collect();
    let module = module_of(&mutant.file);
    tests.sort_by_key(|test| {
        let is_of_module = test.target.integration.is_none() && test.name.starts_with(&module);
        let cost = test.duration.max(PROCESS_DURATION).as_millis() * (test.reached.len() as u128).pow(2);
        (!is_of_module, cost)
    });
    tests.truncate(max_tests);
    if tests.is_empty() {
        return None;
    }
    let mut steps = Vec::new();
    let mut rest = &tests[..];
    for size in PROCESS_SIZES.into_iter().chain([usize::MAX]) {
        let (now, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        let mut by_target: BTreeMap<&TestTarget, Vec<&MeasuredTest>> = BTreeMap::new();
        for test in now {
            by_target.entry(&test.target).or_default().push(test);
        }
        steps.extend(by_target.into_iter().map(|(target, tests)| Step {
            target: target.clone(),
            names: tests.iter().map(|test| test.name.clone()).collect(),
            limit: MIN_LIMIT + LIMIT_FACTOR * tests.iter().map(|test| test.duration).sum::<Duration>(),
        }));
    }
    Some(Trial { number: mutant.number, steps, is_brief: true, reached: None })
}

/// Returns the path of the module whose folder contains `file`, such as `a::b::`. The names of the unit tests in the
/// module begin with this path. The path of the crate's root is empty.
fn module_of(file: &Path) -> String {
    let folders = file.parent().into_iter().flat_map(Path::components);
    let folders =
        folders.map(|folder| folder.as_os_str().to_string_lossy()).skip_while(|folder| folder != "src").skip(1);
    folders.map(|folder| format!("{folder}::")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::mutate::mutations;

    fn mutant(number: u32) -> Mutant {
        let mutation = mutations("fn a() { b(); c(); }", &[]).unwrap().remove(0);
        let (manifest, file) = ("p/Cargo.toml".into(), "p/src/lib.rs".into());
        Mutant { number, area: "p".to_owned(), manifest, file, mutation }
    }

    fn test(name: &str, milliseconds: u64, reached: &[u32]) -> MeasuredTest {
        let target = TestTarget { manifest: "p/Cargo.toml".into(), integration: None };
        let (duration, reached) = (Duration::from_millis(milliseconds), reached.iter().copied().collect());
        MeasuredTest { target, name: name.to_owned(), duration, reached }
    }

    #[test]
    fn narrow_and_quick_tests_are_first() {
        let mut other = test("other package", 1, &[1]);
        other.target.manifest = "q/Cargo.toml".into();
        let tests = [
            other,
            test("slow", 900, &[1]),
            test("wide", 3, &[1, 2, 3]),
            test("narrow", 5, &[1]),
            test("narrow but slower", 50, &[1]),
            test("elsewhere", 1, &[2]),
        ];
        let trial = |number, max| super::trial(&mutant(number), &tests, max);
        let steps = trial(1, 9).unwrap().steps;
        let names: Vec<_> = steps.iter().map(|step| step.names.join(" ")).collect();
        assert_eq!(names, ["narrow", "narrow but slower wide slow"]);
        assert_eq!(steps[0].limit, MIN_LIMIT + Duration::from_millis(50));
        assert_eq!(trial(1, 2).unwrap().steps[1].names, ["narrow but slower"]);
        assert!(trial(4, 9).is_none());
    }

    /// Unit tests of the module run first, although integration tests may have names like a module.
    #[test]
    fn unit_tests_of_the_module_are_first() {
        let mut integration = test("inner::quick", 1, &[1]);
        integration.target.integration = Some("inner".to_owned());
        let tests = [
            integration,
            test("other::quick", 1, &[1]),
            test("inner::slow", 900, &[1, 2]),
            test("inner::a", 9, &[1, 2]),
        ];
        let mut mutant = mutant(1);
        mutant.file = "p/src/inner/file.rs".into();
        let steps = trial(&mutant, &tests, 3).unwrap().steps;
        let names: Vec<_> = steps.iter().flat_map(|step| &step.names).collect();
        assert_eq!(names, ["inner::a", "inner::slow", "inner::quick"]);
        let module = |file: &str| module_of(Path::new(file));
        assert_eq!([module("p/src/lib.rs"), module("p/q/src/a/b/c.rs")], ["", "a::b::"]);
    }

    #[test]
    fn records_are_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0");
        assert_eq!(numbers(&path).unwrap(), BTreeSet::new());
        // The last number is incomplete: its process was killed.
        fs::write(&path, [3, 1, 0, 0, 2, 0, 0, 0, 9]).unwrap();
        assert_eq!(numbers(&path).unwrap(), BTreeSet::from([2, 259]));
    }
}
