//! `rpcrdma-faults`: plants faults in a copy of the project, and shows which of them the tests notice. See
//! `CONTRIBUTING.md`.
#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use rpcrdma_conformance::{
    CopyFolders, copy, default_jobs, exit_code,
    plant::planted_files,
    programs::{self, Built, CitedTest, TestTarget},
    record::{self, FullRun},
    repository,
    table::{Fault, Rule, Table, read_tables},
    trial::{Trial, Verdict, run_all},
};

/// Plant faults in a copy of the project, and show which of them the tests notice
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-faults", version)]
struct Cli {
    /// Only rules whose name contains one of these, such as "rfc8166 3.3.1"
    filters: Vec<String>,
    /// At most this many faults, drawn at random
    #[arg(long, value_name = "COUNT")]
    random: Option<usize>,
    /// With --random, draw faults of this many test programs, or of more if these have too few. Fewer programs compile
    /// faster
    #[arg(long, value_name = "COUNT", requires = "random")]
    programs: Option<usize>,
    /// Seed of the random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of test programs that run at a time
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the names of the selected rules with faults, and exit
    #[arg(long)]
    list: bool,
    /// Write the figures to the record that the page shows. Needs all faults
    #[arg(long, conflicts_with_all = ["filters", "random"])]
    record: bool,
    #[command(flatten)]
    folders: CopyFolders,
}

/// A fault with its number, its rule and the tests that have to notice it.
struct Planted<'a> {
    number: u32,
    name: String,
    rule: &'a Rule,
    fault: &'a Fault,
    tests: Vec<(TestTarget, CitedTest)>,
}

fn main() -> ExitCode {
    exit_code("rpcrdma-faults", run(&Cli::parse()))
}

/// Plants all faults, runs the tests of the chosen ones, and prints the results. Returns `true` if the tests noticed
/// every chosen fault.
fn run(cli: &Cli) -> anyhow::Result<bool> {
    let root = repository();
    let tables = read_tables(&root.join("tests/conformance/tables"))?;
    let all = planted(&root, &tables)?;
    let chosen = choose(&all, cli);
    if cli.list {
        chosen.iter().for_each(|planted| println!("{}: {}", planted.name, planted.rule.what));
        return Ok(true);
    }
    ensure!(!chosen.is_empty(), "no rule with a fault has such a name: --list prints all names");
    let (folder, target) = cli.folders.of(&root, "faults");
    let copy = folder.join("tree");
    let faults: Vec<_> = all.iter().map(|planted| (planted.number, planted.fault)).collect();
    copy::write(&root, &copy, &planted_files(&root, &faults)?)?;
    let targets: BTreeSet<_> =
        chosen.iter().flat_map(|planted| planted.tests.iter().map(|(target, _)| target.clone())).collect();
    let start = Instant::now();
    let programs = match programs::build(&copy.canonicalize()?, &target, &targets)? {
        Built::Programs(programs) => programs,
        Built::Failed(errors) => {
            errors.iter().for_each(|error| eprintln!("{}", error.rendered));
            bail!("the project does not compile with the faults");
        }
    };
    let build_seconds = start.elapsed().as_secs();
    println!("{} faults are planted, {} test programs are compiled in {build_seconds} s", all.len(), programs.len());

    let trials: Vec<_> = chosen
        .iter()
        .map(|planted| Trial::new(planted.number, &planted.tests, &programs).with_context(|| planted.name.clone()))
        .collect::<Result<_, _>>()?;
    let jobs = cli.jobs.unwrap_or_else(default_jobs);
    let start = Instant::now();
    pass_without_faults(&trials, &programs, jobs)?;
    let names: BTreeMap<_, _> = chosen.iter().map(|planted| (planted.number, planted)).collect();
    let verdicts = run_all(&trials, &programs, jobs, |trial, verdict, _| {
        let name = names.get(&trial.number).map_or("", |planted| &planted.name);
        match verdict {
            Verdict::Noticed(tests) => println!("noticed  {name}: {}", tests.join(", ")),
            Verdict::Missed => println!("MISSED   {name}"),
            Verdict::Hung => println!("HUNG     {name}"),
        }
    })?;
    let test_seconds = start.elapsed().as_secs();
    let missed: Vec<_> =
        chosen.iter().zip(&verdicts).filter(|(_, verdict)| !matches!(verdict, Verdict::Noticed(_))).collect();
    for (planted, verdict) in &missed {
        let Fault { within, replace, with } = planted.fault;
        println!("\n{} ({verdict:?}): {}\n  in {within}\n  - {replace}\n  + {with}", planted.name, planted.rule.what);
    }
    println!("\n{} of {} faults are noticed, in {test_seconds} s", chosen.len() - missed.len(), chosen.len());
    if cli.record {
        let missed = missed.iter().map(|(planted, _)| planted.name.clone()).collect();
        let (date, commit) = record::date_and_commit(&root)?;
        let run = FullRun { date, commit, faults: all.len(), build_seconds, test_seconds, missed };
        record::write(&root.join("tests/conformance/last_run.toml"), &run)?;
    }
    Ok(missed.is_empty())
}

/// Runs the cited tests once without a fault, because a test that fails anyway would seem to notice every fault.
fn pass_without_faults(
    trials: &[Trial],
    programs: &BTreeMap<TestTarget, programs::TestProgram>,
    jobs: usize,
) -> anyhow::Result<()> {
    let mut tests: BTreeMap<TestTarget, BTreeSet<String>> = BTreeMap::new();
    for step in trials.iter().flat_map(|trial| &trial.steps) {
        tests.entry(step.target.clone()).or_default().extend(step.names.iter().cloned());
    }
    let sound: Vec<_> = tests
        .into_iter()
        .map(|(target, names)| Trial::all(0, BTreeMap::from([(target, names.into_iter().collect())])))
        .collect();
    for verdict in run_all(&sound, programs, jobs, |_, _, _| {})? {
        match verdict {
            Verdict::Missed => {}
            Verdict::Noticed(tests) => bail!("these tests fail without a fault: {}", tests.join(", ")),
            Verdict::Hung => bail!("tests hang without a fault"),
        }
    }
    Ok(())
}

impl Planted<'_> {
    /// Returns the test programs of the fault.
    fn targets(&self) -> impl Iterator<Item = &TestTarget> {
        self.tests.iter().map(|(target, _)| target)
    }
}

/// Returns the faults of all tables, with their numbers.
fn planted<'a>(root: &Path, tables: &'a [Table]) -> anyhow::Result<Vec<Planted<'a>>> {
    let mut all = Vec::new();
    for (table, rule) in tables.iter().flat_map(|table| table.rules.iter().map(move |rule| (table, rule))) {
        for fault in &rule.faults {
            let name = format!("{} {}", table.name, rule.id());
            let tests = rule
                .tests
                .iter()
                .map(|test| {
                    let cited = CitedTest::parse(test);
                    Ok((cited.target(root)?, cited))
                })
                .collect::<anyhow::Result<_>>()
                .with_context(|| name.clone())?;
            let number = u32::try_from(all.len())? + 1;
            all.push(Planted { number, name, rule, fault, tests });
        }
    }
    Ok(all)
}

fn choose<'a, 'b>(all: &'b [Planted<'a>], cli: &Cli) -> Vec<&'b Planted<'a>> {
    let is_chosen = |planted: &&Planted<'_>| {
        cli.filters.is_empty() || cli.filters.iter().any(|filter| planted.name.contains(filter.as_str()))
    };
    let mut chosen: Vec<_> = all.iter().filter(is_chosen).collect();
    if let Some(count) = cli.random {
        let mut random = fastrand::Rng::with_seed(cli.seed);
        if let Some(programs) = cli.programs {
            let targets: BTreeSet<_> = chosen.iter().flat_map(|planted| planted.targets()).collect();
            let mut targets = Vec::from_iter(targets);
            random.shuffle(&mut targets);
            chosen = of_programs(chosen, &targets, programs, count);
        }
        random.shuffle(&mut chosen);
        chosen.truncate(count);
    }
    chosen
}

/// Returns the chosen faults whose tests are all in the first `programs` test programs of `targets`. Takes more
/// programs if these have fewer than `count` faults.
fn of_programs<'a, 'b>(
    chosen: Vec<&'b Planted<'a>>,
    targets: &[&TestTarget],
    programs: usize,
    count: usize,
) -> Vec<&'b Planted<'a>> {
    let in_first = |first: usize| {
        let first = targets.get(..first).unwrap_or(targets);
        let is_there = |planted: &&&Planted<'_>| planted.targets().all(|target| first.contains(&target));
        chosen.iter().filter(is_there).copied().collect::<Vec<_>>()
    };
    let enough = (programs..targets.len()).map(in_first).find(|faults| faults.len() >= count);
    enough.unwrap_or_else(|| chosen.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `--programs`, a random choice of faults needs few test programs, but has as many faults as requested.
    #[test]
    fn random_faults_need_few_programs() {
        let tables = read_tables(&repository().join("tests/conformance/tables")).unwrap();
        let all = planted(&repository(), &tables).unwrap();
        for seed in 0..20 {
            let seed = seed.to_string();
            let cli = Cli::parse_from(["rpcrdma-faults", "--random", "20", "--programs", "8", "--seed", &seed]);
            let chosen = choose(&all, &cli);
            let programs: BTreeSet<_> = chosen.iter().flat_map(|planted| planted.targets()).collect();
            assert_eq!(chosen.len(), 20);
            assert!(programs.len() <= 14, "{} programs", programs.len());
        }
        let other =
            |arguments: &[&str]| choose(&all, &Cli::parse_from([&["rpcrdma-faults"], arguments].concat())).len();
        assert_eq!(other(&["--random", "20"]), 20);
        assert_eq!(other(&["--random", "100000", "--programs", "1"]), all.len());
        assert_eq!(other(&[]), all.len());
    }
}
