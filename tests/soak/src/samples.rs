//! The resources that servers, watched processes and this program hold, sampled each second.

use std::{
    collections::BTreeMap,
    fmt, fs,
    sync::{Arc, atomic::AtomicU32, atomic::Ordering},
    time::Duration,
};

use rustix::process::{Pid, getpid};
use tokio::{
    runtime::Handle,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{descriptors::open_descriptors, fit::Sample, inspect::Inspected, outside::WatchedProcess, server::Server};

/// Number of bytes of a MiB.
pub(crate) const MIB: f64 = 1_048_576.0;

/// A resource whose growth is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// Resident memory, in MiB.
    Memory,
    Descriptors,
    Threads,
    Tasks,
    Regions,
    Connections,
    /// Number of buffers for the data of calls.
    Buffers,
    /// Memory that is kept for further buffers, in MiB.
    Kept,
}

impl Resource {
    /// Returns the maximum growth per hour, in the unit of the resource. [`README.md`](../README.md) gives the reasons.
    pub(crate) fn bound(self) -> f64 {
        match self {
            Self::Memory | Self::Kept => 32.0,
            Self::Descriptors | Self::Threads | Self::Tasks | Self::Connections | Self::Buffers => 12.0,
            Self::Regions => 6.0,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "memory (MiB)",
            Self::Descriptors => "descriptors",
            Self::Threads => "threads",
            Self::Tasks => "tasks",
            Self::Regions => "regions",
            Self::Connections => "connections",
            Self::Buffers => "buffers",
            Self::Kept => "kept (MiB)",
        })
    }
}

/// The samples, by the name of the process and the resource.
pub(crate) type Series = BTreeMap<(String, Resource), Vec<Sample>>;

/// A sampler of the resources of servers, watched processes and this program.
#[derive(Debug)]
pub(crate) struct Sampler {
    pub(crate) servers: Vec<Arc<Server>>,
    /// Processes that the user has named, which this program did not start.
    pub(crate) processes: Vec<WatchedProcess>,
    /// Number of exposed memory regions of each worker's connection.
    pub(crate) regions: Vec<Arc<AtomicU32>>,
    pub(crate) begun: Instant,
}

impl Sampler {
    /// Samples the resources of servers, watched processes and this program every second until `end`. Servers that are
    /// killed from time to time are left out.
    pub(crate) async fn sample_until(self, end: Instant) -> Series {
        let mut series = Series::new();
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut inspected: Vec<Inspected> = Vec::new();
        let steady: Vec<_> = self.servers.iter().filter(|server| !server.is_killed).collect();
        for server in &steady {
            inspected.push(Inspected::new(server).await);
        }
        while Instant::now() < end {
            ticks.tick().await;
            for (server, inspected) in steady.iter().zip(&inspected) {
                // A server that is stopped is sampled as well, without what it tells itself.
                let Ok(process) = server.process().await.pid() else { continue };
                self.add(&mut series, server.name(), of_process(process));
                let told = inspected.resources(server).await;
                self.add(&mut series, server.name(), told);
            }
            for WatchedProcess { name, process } in &self.processes {
                self.add(&mut series, name, of_process(*process));
            }
            let mut own = of_process(getpid());
            own.push((Resource::Tasks, Handle::current().metrics().num_alive_tasks() as f64));
            let regions = self.regions.iter().map(|regions| regions.load(Ordering::Relaxed)).sum::<u32>();
            own.push((Resource::Regions, f64::from(regions)));
            self.add(&mut series, "clients", own);
        }
        series
    }

    fn add(&self, series: &mut Series, name: &str, values: Vec<(Resource, f64)>) {
        let time = self.begun.elapsed().as_secs_f64();
        for (resource, value) in values {
            series.entry((name.to_owned(), resource)).or_default().push((time, value));
        }
    }
}

/// Returns the resources that the kernel reports for a process: memory, threads and descriptors.
fn of_process(process: Pid) -> Vec<(Resource, f64)> {
    let mut values = Vec::new();
    if let Ok(status) = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())) {
        values.extend(in_status(&status));
    }
    values.extend(open_descriptors(process).map(|open| (Resource::Descriptors, open as f64)));
    values
}

/// Reads the resident memory and the number of threads from the text of `/proc/PID/status`.
fn in_status(status: &str) -> impl Iterator<Item = (Resource, f64)> {
    let of = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let memory = of("VmRSS:").map(|kib| (Resource::Memory, kib / 1024.0));
    memory.into_iter().chain(of("Threads:").map(|threads| (Resource::Threads, threads)))
}

/// Reads the counts that the counters server prints, for example `12 tasks, 3 regions, 4 connections, 5 buffers`. Bytes
/// are converted to MiB.
pub(crate) fn in_report(line: &str) -> Vec<(Resource, f64)> {
    let parts = line.split(", ").filter_map(|part| part.split_once(' '));
    let resource = |name: &str| match name {
        "tasks" => Some(Resource::Tasks),
        "regions" => Some(Resource::Regions),
        "connections" => Some(Resource::Connections),
        "buffers" => Some(Resource::Buffers),
        "bytes kept" => Some(Resource::Kept),
        _ => None,
    };
    let value = |(count, name): (&str, &str)| {
        let (resource, count) = (resource(name)?, count.parse::<f64>().ok()?);
        Some((resource, if resource == Resource::Kept { count / MIB } else { count }))
    };
    parts.filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read() {
        let status = "Name:\tnfs3d\nVmRSS:\t    2048 kB\nThreads:\t7\n";
        let values: Vec<_> = in_status(status).collect();
        assert_eq!(values, [(Resource::Memory, 2.0), (Resource::Threads, 7.0)]);
        let values = in_report("12 tasks, 3 regions, 4 connections, 5 others, 1048576 bytes kept");
        let expected =
            [(Resource::Tasks, 12.0), (Resource::Regions, 3.0), (Resource::Connections, 4.0), (Resource::Kept, 1.0)];
        assert_eq!(values, expected);
    }
}
