//! `rpcrdma-mutants`: changes the code in many places, and shows which changes the tests notice. See `CONTRIBUTING.md`.
#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use rpcrdma_conformance::{
    CopyFolders, default_jobs, exit_code,
    mutants::{
        areas::{AREAS, Area, test_targets},
        changed::{ChangedLines, changed_lines, is_changed},
        compile::{Compiled, Mutant, compile},
        mutate::mutations,
        reach::{Measured, measure, trial},
        record::{AreaRun, Record, Survivor},
    },
    programs::{TestTarget, features_of},
    record::date_and_commit,
    repository,
    switch::MAX_MUTANT,
    trial::{Verdict, run_all},
};

/// Path of the record of mutants, relative to the root of the repository.
const RECORD: &str = "tests/conformance/mutants.toml";

/// Change the code in many places, and show which changes the tests notice
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-mutants", version)]
struct Cli {
    /// Areas: codec, engine, session, gss, client or server, or folders of packages. Default: these six areas
    areas: Vec<String>,
    /// Only files whose path contains one of these
    #[arg(long, value_name = "PART")]
    path: Vec<String>,
    /// Only mutants on lines that have changed since the merge base with this Git revision
    #[arg(long, value_name = "REVISION")]
    changed: Option<String>,
    /// Only the survivors in the record. With --record, remove those that the tests now notice
    #[arg(long)]
    survivors: bool,
    /// At most this many mutants, drawn at random
    #[arg(long, value_name = "COUNT")]
    random: Option<usize>,
    /// Seed of the random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of test programs that run at a time
    #[arg(long)]
    jobs: Option<usize>,
    /// Maximum number of tests that run for one mutant
    #[arg(long, value_name = "COUNT", default_value_t = 60)]
    max_tests: usize,
    /// Run only these integration tests, in addition to the unit tests
    #[arg(long, value_name = "NAME")]
    test: Vec<String>,
    /// Print the selected mutants, and exit
    #[arg(long)]
    list: bool,
    /// Write scores and survivors to the record that the page shows. Needs all mutants of the areas
    #[arg(long, conflicts_with_all = ["path", "changed", "random", "test"])]
    record: bool,
    #[command(flatten)]
    folders: CopyFolders,
}

fn main() -> ExitCode {
    exit_code("rpcrdma-mutants", run(&Cli::parse()))
}

/// Returns `true` if the tests noticed every mutant that they reach, except those that the record explains.
fn run(cli: &Cli) -> anyhow::Result<bool> {
    let root = repository();
    let areas: Vec<Area> = match &cli.areas[..] {
        [] => AREAS.iter().map(|(name, _)| Area::named(&root, name)).collect::<Result<_, _>>()?,
        names => names.iter().map(|name| Area::named(&root, name)).collect::<Result<_, _>>()?,
    };
    let mutants = mutants(&root, &areas, cli)?;
    if cli.list {
        mutants.iter().for_each(|mutant| println!("{}", describe(mutant)));
        return Ok(true);
    }
    if mutants.is_empty() {
        println!("no line can be changed");
        return Ok(true);
    }
    let (folder, target) = cli.folders.of(&root, "mutants");
    let start = Instant::now();
    let Compiled { programs, dropped } =
        compile(&root, &folder.join("tree"), &target, &mutants, &targets(&root, &mutants, &cli.test)?)?;
    println!("{} mutants are compiled in {} s", mutants.len() - dropped.len(), start.elapsed().as_secs());

    let jobs = cli.jobs.unwrap_or_else(default_jobs);
    let start = Instant::now();
    let Measured { tests, failed, slow } = measure(&programs, &folder.join("reached"), jobs)?;
    println!("{} tests can be used, measured in {} s", tests.len(), start.elapsed().as_secs());
    for (tests, reason) in [(failed, "they fail without a mutant"), (slow, "they take long")] {
        if !tests.is_empty() {
            println!("not used, because {reason}: {}", tests.join(", "));
        }
    }

    let mut outcomes: BTreeMap<u32, Outcome> = dropped.iter().map(|number| (*number, Outcome::Dropped)).collect();
    let by_number: BTreeMap<_, _> = mutants.iter().map(|mutant| (mutant.number, mutant)).collect();
    let mut trials = Vec::new();
    for mutant in mutants.iter().filter(|mutant| !dropped.contains(&mutant.number)) {
        match trial(mutant, &tests, cli.max_tests) {
            Some(trial) => trials.push(trial),
            None => drop(outcomes.insert(mutant.number, Outcome::NotReached)),
        }
    }
    let durations = Mutex::new(BTreeMap::<u32, Duration>::new());
    let verdicts = run_all(&trials, &programs, jobs, |trial, verdict, duration| {
        let description = by_number.get(&trial.number).map_or_else(String::new, |mutant| describe(mutant));
        match verdict {
            Verdict::Noticed(tests) => println!("noticed  {description}: {}", tests.join(", ")),
            Verdict::Missed => println!("SURVIVED {description}"),
            Verdict::Hung => println!("timeout  {description}"),
        }
        durations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(trial.number, duration);
    })?;
    outcomes.extend(trials.iter().zip(verdicts).map(|(trial, verdict)| (trial.number, Outcome::Tested(verdict))));
    for mutant in mutants.iter().filter(|mutant| matches!(outcomes.get(&mutant.number), Some(Outcome::NotReached))) {
        println!("unreached {}", describe(mutant));
    }
    let durations = durations.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    report(&root, &areas, &mutants, &outcomes, &durations, cli)
}

/// The outcome of a mutant. A mutant is dropped if it does not compile.
#[derive(Debug)]
enum Outcome {
    Dropped,
    NotReached,
    Tested(Verdict),
}

/// Prints the figures of each area and the survivors, and writes them to the record with `--record`. Returns `true` if
/// the record explains all survivors.
fn report(
    root: &Path,
    areas: &[Area],
    mutants: &[Mutant],
    outcomes: &BTreeMap<u32, Outcome>,
    durations: &BTreeMap<u32, Duration>,
    cli: &Cli,
) -> anyhow::Result<bool> {
    let path = root.join(RECORD);
    let mut record = Record::read(&path)?;
    let has_survived =
        |mutant: &&Mutant| matches!(outcomes.get(&mutant.number), Some(Outcome::Tested(Verdict::Missed)));
    let mut survivors: Vec<_> = mutants.iter().filter(has_survived).map(Survivor::new).collect();
    record.explain(&mut survivors);
    println!();
    for Survivor { at, function, mutation, equivalent, .. } in &survivors {
        let reason = equivalent.as_ref().map(|reason| format!(" (equivalent: {reason})")).unwrap_or_default();
        println!("{at} {function}: {mutation}{reason}");
    }
    let (date, commit) = date_and_commit(root)?;
    let mut runs = Vec::new();
    for area in areas {
        let own: Vec<_> = mutants.iter().filter(|mutant| mutant.area == area.name).collect();
        let count =
            |is: fn(&Outcome) -> bool| own.iter().filter(|mutant| outcomes.get(&mutant.number).is_some_and(is)).count();
        let timed_out = count(|outcome| matches!(outcome, Outcome::Tested(Verdict::Hung)));
        let seconds: Duration = own.iter().filter_map(|mutant| durations.get(&mutant.number)).sum();
        let run = AreaRun {
            name: area.name.clone(),
            date: date.clone(),
            commit: commit.clone(),
            caught: count(|outcome| matches!(outcome, Outcome::Tested(Verdict::Noticed(_)))) + timed_out,
            timed_out,
            survived: count(|outcome| matches!(outcome, Outcome::Tested(Verdict::Missed))),
            not_reached: count(|outcome| matches!(outcome, Outcome::NotReached)),
            dropped: count(|outcome| matches!(outcome, Outcome::Dropped)),
            seconds: seconds.as_secs(),
        };
        println!(
            "{}: {} noticed ({timed_out} by time-out), {} survived, {} not reached, {} do not compile, in {} s of tests",
            run.name, run.caught, run.survived, run.not_reached, run.dropped, run.seconds
        );
        runs.push(run);
    }
    let are_explained = survivors.iter().all(|survivor| survivor.equivalent.is_some());
    if cli.record {
        if cli.survivors {
            runs.iter_mut().for_each(|run| record.add_to_last(run));
        }
        record.update(runs, survivors);
        record.write(&path)?;
    }
    Ok(are_explained)
}

/// Returns the mutants that the options select, with their numbers.
fn mutants(root: &Path, areas: &[Area], cli: &Cli) -> anyhow::Result<Vec<Mutant>> {
    let changed: Option<ChangedLines> =
        cli.changed.as_ref().map(|revision| changed_lines(root, revision)).transpose()?;
    let known = cli.survivors.then(|| Record::read(&root.join(RECORD))).transpose()?;
    let mut mutants = Vec::new();
    for area in areas {
        let features: Vec<_> = features_of(&area.manifest).unwrap_or("").split(',').collect();
        for file in area.source_files(root, &features)? {
            let is_chosen = cli.path.is_empty() || cli.path.iter().any(|part| file.to_string_lossy().contains(part));
            if !is_chosen {
                continue;
            }
            let text = fs::read_to_string(root.join(&file))?;
            let found = mutations(&text, &features).with_context(|| format!("{} is not Rust", file.display()))?;
            for mutation in found {
                if changed.as_ref().is_none_or(|changed| is_changed(changed, &file, mutation.lines)) {
                    let (area, manifest, file) = (area.name.clone(), area.manifest.clone(), file.clone());
                    mutants.push(Mutant { number: 0, area, manifest, file, mutation });
                }
            }
        }
    }
    if let Some(known) = known {
        mutants.retain(|mutant| known.has_survivor(mutant));
    }
    if let Some(count) = cli.random {
        let mut chosen: Vec<_> = (0..mutants.len()).collect();
        fastrand::Rng::with_seed(cli.seed).shuffle(&mut chosen);
        chosen.truncate(count);
        let chosen: BTreeSet<_> = chosen.into_iter().collect();
        let mut index = 0..;
        mutants.retain(|_| index.next().is_some_and(|index| chosen.contains(&index)));
    }
    ensure!(mutants.len() <= MAX_MUTANT as usize, "{} mutants are more than the switch has", mutants.len());
    for (number, mutant) in (1..).zip(&mut mutants) {
        mutant.number = number;
    }
    Ok(mutants)
}

/// Returns the test programs of the mutants' packages. If `integrations` is not empty, the result contains only these
/// integration tests, in addition to the unit tests.
fn targets(root: &Path, mutants: &[Mutant], integrations: &[String]) -> anyhow::Result<BTreeSet<TestTarget>> {
    let manifests: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.manifest).collect();
    let mut targets = BTreeSet::new();
    for manifest in manifests {
        targets.extend(test_targets(root, manifest)?);
    }
    if !integrations.is_empty() {
        targets.retain(|target| target.integration.as_ref().is_none_or(|name| integrations.contains(name)));
    }
    Ok(targets)
}

fn describe(mutant: &Mutant) -> String {
    let Mutant { file, mutation, .. } = mutant;
    format!("{}:{} {}: {}", file.display(), mutation.lines.0, mutation.function, mutation.change)
}
