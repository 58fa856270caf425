//! `rpcrdma-simulation`: plays random scenarios. See `README.md`.
#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Parser;
use rpcrdma_simulation::{
    fault::FaultKind,
    minimize::minimize,
    run::{RunReport, run},
    scenario::Scenario,
};

/// Plays random scenarios of clients and servers with faults, in virtual time
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-simulation", version)]
struct Cli {
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 1, conflicts_with = "seconds")]
    seeds: u64,
    /// Play seeds for this number of seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Number of threads, each of which plays one seed at a time
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Print the plan and the events of each run, with the traces that RUST_LOG selects
    #[arg(long)]
    history: bool,
    /// Remove clients, faults and calls from the failed run with the lowest seed, as long as it fails, and print what
    /// is left
    #[arg(long)]
    minimize: bool,
}

/// Prints the smallest failing part of the scenario of a seed.
fn print_minimal(seed: u64) {
    match minimize(&Scenario::of(seed)) {
        Ok(Some((scenario, report))) => {
            println!("the smallest part of seed {seed} that fails: {scenario:#?}");
            for line in report.lines.iter().chain(&report.wrong) {
                println!("{line}");
            }
        }
        Ok(None) => println!("seed {seed} does not fail when it is repeated: the simulation is not deterministic"),
        Err(error) => println!("seed {seed}: {error:#}"),
    }
}

/// A run of at least this many seeds fails if a kind of fault never took effect. With fewer seeds, this can happen by
/// chance.
const MIN_SEEDS_WITH_ALL_FAULTS: u64 = 500;

/// The totals of all runs.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    calls: u64,
    failed: u64,
    faults: BTreeMap<FaultKind, u64>,
    /// Number of checked histories, and number of histories whose check was given up.
    histories: (u64, u64),
    /// Number of runs in which only faults of this kind took effect. The key `None` counts runs in which no fault did.
    alone: BTreeMap<Option<FaultKind>, u64>,
    /// Number of runs in `alone` that noted each effect on the library.
    symptoms: BTreeMap<Option<FaultKind>, BTreeMap<String, u64>>,
    wrong: BTreeMap<u64, Vec<String>>,
    /// Sum of the hashes of the event logs. It shows if two runs of the program with equal seeds are equal.
    digest: u64,
}

impl Totals {
    fn add(&mut self, seed: u64, report: RunReport) {
        self.seeds += 1;
        self.calls += report.calls.0;
        self.failed += report.calls.1;
        self.histories.0 += report.histories.0;
        self.histories.1 += report.histories.1;
        let mut kinds = report.faults.keys();
        if let (kind, None) = (kinds.next().copied(), kinds.next()) {
            *self.alone.entry(kind).or_default() += 1;
            let symptoms = self.symptoms.entry(kind).or_default();
            for symptom in report.symptoms {
                *symptoms.entry(symptom).or_default() += 1;
            }
        }
        for (kind, count) in report.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.digest = self.digest.wrapping_add(report.digest.0);
        if !report.wrong.is_empty() {
            self.wrong.insert(seed, report.wrong);
        }
    }
}

impl Totals {
    /// Prints for each kind of fault the effects on the library in runs in which only this kind took effect. Leaves out
    /// the effects that were also noted in runs in which no fault took effect.
    fn print_reached(&self) {
        let without = self.symptoms.get(&None);
        let runs = |kind| self.alone.get(&kind).copied().unwrap_or_default();
        println!(
            "reached only with faults, in runs in which one kind took effect ({} runs without an effect):",
            runs(None)
        );
        for kind in FaultKind::ALL {
            let symptoms = self.symptoms.get(&Some(kind)).into_iter().flatten();
            let new = symptoms.filter(|(symptom, _)| !without.is_some_and(|without| without.contains_key(*symptom)));
            let new: Vec<_> = new.map(|(symptom, count)| format!("{symptom} ({count})")).collect();
            println!(
                "  {kind}, {} runs: {}",
                runs(Some(kind)),
                if new.is_empty() { "nothing".into() } else { new.join("; ") }
            );
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.history {
        // What clients and servers trace themselves, if RUST_LOG asks for it. Its time would be that of the machine.
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .without_time()
            .with_writer(std::io::stdout)
            .init();
    }
    let start = Instant::now();
    let end = cli.seconds.map(|seconds| start + Duration::from_secs(seconds));
    let (next, totals) = (AtomicU64::new(cli.seed), Mutex::new(Totals::default()));
    let totals_of = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..cli.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end.map_or(seed - cli.seed >= cli.seeds, |end| Instant::now() >= end) {
                        return;
                    }
                    let scenario = Scenario::of(seed);
                    if cli.history {
                        println!("{scenario:#?}");
                    }
                    match run(&scenario, cli.history) {
                        Ok(report) => {
                            for line in &report.lines {
                                println!("{line}");
                            }
                            for wrong in &report.wrong {
                                println!("seed {seed}: {wrong}");
                            }
                            totals_of().add(seed, report);
                        }
                        Err(error) => {
                            println!("seed {seed}: {error:#}");
                            totals_of().wrong.insert(seed, vec![format!("{error:#}")]);
                        }
                    }
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    if cli.minimize
        && let Some(seed) = totals.wrong.keys().next()
    {
        print_minimal(*seed);
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} seeds in {:.1} s, {:.0} in a minute; {} calls, {} of them failed; events {:016x}",
        totals.seeds,
        start.elapsed().as_secs_f64(),
        totals.seeds as f64 / minutes,
        totals.calls,
        totals.failed,
        totals.digest
    );
    let mut is_complete = true;
    for kind in FaultKind::ALL {
        let count = totals.faults.get(&kind).copied().unwrap_or_default();
        println!("  {count:>8}  {kind}");
        is_complete &= count > 0 || totals.seeds < MIN_SEEDS_WITH_ALL_FAULTS;
    }
    let (checked, undecided) = totals.histories;
    println!("{checked} histories are linearizable or noted above, the checks of {undecided} were given up");
    if totals.seeds >= MIN_SEEDS_WITH_ALL_FAULTS {
        totals.print_reached();
    }
    if !is_complete {
        println!("a kind of fault never met anything: it tests nothing");
    }
    if is_complete && totals.wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("{} seeds failed: {:?}", totals.wrong.len(), totals.wrong.keys().take(20).collect::<Vec<_>>());
        ExitCode::FAILURE
    }
}
