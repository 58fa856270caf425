//! `rpcrdma-bugs`: plants bugs above the engine in a copy of the project, and shows after how many seeds the simulation
//! finds each.
#![forbid(unsafe_code)]

use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use clap::Parser;
use rpcrdma_conformance::{
    CopyFolders,
    bugs::{self, Bug, BugRun, FoundBug, RECORD, SearchLimits, search},
    copy, default_jobs, exit_code,
    plant::planted_files,
    programs::{TestProgram, build_binary},
    record::date_and_commit,
    repository,
};

/// Plant bugs above the engine in a copy of the project, and show after how many seeds the simulation finds each
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-bugs", version)]
struct Cli {
    /// Only bugs whose name contains one of these
    filters: Vec<String>,
    /// Number of searches for each bug, which begin with different seeds
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    searches: u64,
    /// Maximum number of seeds of a search
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    seeds: u64,
    /// Time in seconds after which the run of a seed counts as hanging
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// Number of bugs that are searched for at a time. Default: the number of processors
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the selected bugs, and exit
    #[arg(long)]
    list: bool,
    /// Write the results to the record, which keeps the results of other bugs
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    folders: CopyFolders,
}

fn main() -> ExitCode {
    exit_code("rpcrdma-bugs", run(&Cli::parse()))
}

/// Plants the bugs, searches for the chosen ones, and prints the results. Returns `true` if the table explains each bug
/// that the simulation did not find.
fn run(cli: &Cli) -> anyhow::Result<bool> {
    let root = repository();
    let all = bugs::read(&root)?;
    let is_chosen = |(_, bug): &(u32, &Bug)| {
        cli.filters.is_empty() || cli.filters.iter().any(|filter| bug.name.contains(filter.as_str()))
    };
    let chosen: Vec<_> = (1..).zip(&all).filter(is_chosen).collect();
    if cli.list {
        chosen.iter().for_each(|(_, bug)| println!("{}: {}", bug.name, bug.what));
        return Ok(true);
    }
    ensure!(!chosen.is_empty(), "no bug has such a name: --list prints all names");
    let (folder, target) = cli.folders.of(&root, "bugs");
    let copy = folder.join("tree");
    let faults: Vec<_> = (1..).zip(all.iter().map(|bug| &bug.fault)).collect();
    copy::write(&root, &copy, &planted_files(&root, &faults)?)?;
    let start = Instant::now();
    let program = match build_binary(&copy.canonicalize()?, &target, "rpcrdma-simulation")? {
        Ok(program) => program,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{}", error.rendered));
            bail!("the project does not compile with the bugs");
        }
    };
    let build_seconds = start.elapsed().as_secs();
    println!("{} bugs are planted and compiled in {build_seconds} s", all.len());

    let limits = SearchLimits { searches: cli.searches, seeds: cli.seeds, run: Duration::from_secs(cli.limit) };
    let start = Instant::now();
    let results = search_all(&program, &chosen, cli.jobs.unwrap_or_else(default_jobs), limits)?;
    let search_seconds = start.elapsed().as_secs();
    let found = results.iter().filter(|result| result.median().is_some()).count();
    println!("\nthe simulation finds {found} of {} bugs, in {search_seconds} s", chosen.len());
    let mut are_explained = true;
    for ((_, bug), _) in chosen.iter().zip(&results).filter(|(_, result)| result.median().is_none()) {
        are_explained &= !bug.missed_because.is_empty();
        println!("\n{}: {}\n  {}", bug.name, bug.what, bug.missed_because);
    }
    if cli.record {
        let path = root.join(RECORD);
        let earlier = if path.exists() { Some(BugRun::read(&path)?) } else { None };
        BugRun::new(date_and_commit(&root)?, &all, &results, earlier.as_ref()).write(&path)?;
    }
    Ok(are_explained)
}

/// Searches for the chosen bugs, `jobs` of them at a time, and prints each result as it arrives.
fn search_all(
    program: &TestProgram,
    chosen: &[(u32, &Bug)],
    jobs: usize,
    limits: SearchLimits,
) -> anyhow::Result<Vec<FoundBug>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((number, bug)) = chosen.get(index) else { return Ok(()) };
            let result = search(program, *number, &bug.name, limits)?;
            match result.median() {
                Some(median) => println!("{median:>5}  {}  {:?}  {}", bug.name, result.seeds, result.noticed),
                None => println!("    -  {}  {:?}  {}", bug.name, result.seeds, result.noticed),
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
