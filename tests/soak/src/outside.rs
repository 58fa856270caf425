//! A run with servers that something else starts and disturbs, such as Linux's NFS server, or nfs3d with Linux's
//! client.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    sync::{Arc, atomic::AtomicU32},
};

use anyhow::Context as _;
use rpcrdma_examples::command::raise_descriptor_limit;
use rustix::process::Pid;
use tokio::time::Instant;

use crate::{
    files::FileWork,
    ledger::Ledger,
    mounted::MountedWork,
    report::{print_faults, print_services, print_slopes},
    run::{CommonArgs, DESCRIPTORS, Workers, show_progress},
    samples::Sampler,
    work::{Progress, Surroundings},
};

/// Options of a run with servers that something else starts and disturbs.
#[derive(Debug, clap::Args)]
pub(crate) struct OutsideArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Work in this directory of a mounted file system. May be repeated
    #[arg(long, value_name = "DIR", required_unless_present = "nfs")]
    mounted: Vec<PathBuf>,
    /// Work in this export, whose URL has the form that nfscp accepts. May be repeated
    #[arg(long, value_name = "URL")]
    nfs: Vec<String>,
    /// Number of workers for each directory and export
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    workers: u8,
    /// Check that this process does not grow. May be repeated
    #[arg(long = "process", value_name = "NAME=PID")]
    processes: Vec<WatchedProcess>,
}

/// A process whose resources are sampled, and its name in the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchedProcess {
    pub(crate) name: String,
    pub(crate) process: Pid,
}

impl FromStr for WatchedProcess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('=');
        let parsed = parts.and_then(|(name, id)| Some((name, Pid::from_raw(id.parse().ok().filter(|id| *id > 0)?)?)));
        let (name, process) = parsed.ok_or("expected a name and the number of a process, such as nfs3d=1234")?;
        Ok(Self { name: name.to_owned(), process })
    }
}

/// Runs the workers for the given duration, verifies their effects, and prints the report.
pub(crate) async fn soak_outside(arguments: OutsideArgs) -> anyhow::Result<ExitCode> {
    raise_descriptor_limit(DESCRIPTORS);
    let (seed, duration) = arguments.common.begin();
    let mut ledgers = BTreeMap::new();
    let mut workers = Workers::new();
    let places = arguments.mounted.iter().map(|folder| folder.display().to_string()).chain(arguments.nfs.clone());
    let mut id = 0;
    for (index, place) in places.enumerate() {
        let name = if index < arguments.mounted.len() { "mounted" } else { "nfs" };
        let ledger = ledgers.entry(name).or_insert_with(Arc::<Ledger>::default);
        let progress = Arc::new(Progress::new(place.clone()));
        for _ in 0..arguments.workers {
            id += 1;
            let regions = Arc::<AtomicU32>::default();
            workers.regions.push(Arc::clone(&regions));
            let surroundings = Surroundings {
                progress: Arc::clone(&progress),
                ledger: Arc::clone(ledger),
                id,
                random: fastrand::Rng::with_seed(seed.wrapping_add(id)),
                regions,
            };
            match arguments.mounted.get(index) {
                Some(folder) => {
                    let work = MountedWork::new(surroundings, folder);
                    workers.spawn(work.with_context(|| format!("cannot create a directory in {place}"))?);
                }
                None => workers.spawn(FileWork::new(surroundings, place.clone(), None)),
            }
        }
    }
    let begun = Instant::now();
    let end = begun + duration;
    let progress = tokio::spawn(show_progress(ledgers.values().cloned().collect(), begun, end));
    let (servers, regions, processes) = (Vec::new(), workers.regions.clone(), arguments.processes);
    let sampler = Sampler { servers, processes, regions, begun };
    let series = tokio::spawn(sampler.sample_until(end)).await.context("the samples are lost")?;
    progress.await.context("the report of progress has ended")?;
    let mut faults = Vec::from_iter(workers.verify(1).await);
    drop(workers);
    faults.extend(print_services(ledgers.iter().map(|(name, ledger)| (*name, &**ledger))));
    faults.extend(print_slopes(&series, duration));
    Ok(print_faults(&faults, begun, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named() {
        let process = WatchedProcess { name: "nfs3d".to_owned(), process: Pid::from_raw(7).unwrap() };
        assert_eq!("nfs3d=7".parse(), Ok(process));
        for wrong in ["7", "nfs3d=", "nfs3d=0", "nfs3d=-1", "nfs3d=x"] {
            assert!(wrong.parse::<WatchedProcess>().is_err(), "{wrong}");
        }
    }
}
