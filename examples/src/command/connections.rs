//! The options that limit a server's connections and memory, and the file descriptors that connections need.

use std::time::Duration;

use clap::{Args, value_parser};
use rpcrdma::{memory::BufferPool, server::ServerBuilder};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::units::{parse_seconds, parse_size};

/// Number of file descriptors of a connection over a socket.
const SOCKET_DESCRIPTORS: u64 = 1;
/// Maximum number of file descriptors of a connection over an RDMA device. They belong to its event channel, to its
/// completion channel, and to its subscription to device events.
const DEVICE_DESCRIPTORS: u64 = 3;
/// Number of file descriptors that connections leave for other uses, such as open files.
const RESERVED_DESCRIPTORS: u64 = 256;

/// Options for the connections and the memory of a server.
#[derive(Debug, Clone, Copy, Args)]
pub struct ConnectionArgs {
    /// Maximum number of connections. At the limit, a new connection replaces an idle one, preferably of the host with
    /// the most connections, or is refused. If necessary, the limit of open files (ulimit -n) is raised as far as
    /// permitted
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
    /// Maximum number of connections of one host. Default: no other limit
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    max_connections_per_host: Option<u32>,
    /// Seconds without a call after which a connection is closed; 0: never. Clients connect again with their next call
    #[arg(long, value_name = "S", default_value = "360", value_parser = clap::builder::ValueParser::new(parse_seconds))]
    idle_timeout: Duration,
    /// Limit on the memory for the data of all clients' calls and replies, e.g. 512MiB; the minimum is 3MiB. Calls that
    /// exceed the share of their host or connection wait
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = clap::builder::ValueParser::new(parse_memory))]
    max_memory: u64,
    /// Take the memory for the data of calls from huge pages: those that the system has reserved (vm.nr_hugepages), or
    /// else transparent ones. For rdma:// URLs
    #[cfg(all(target_os = "linux", any(feature = "verbs", feature = "verbs-dlopen")))]
    #[arg(long)]
    huge_pages: bool,
}

/// Numerator of the maximum share of the memory (3/8) for the data of one call in one direction. With its header, a
/// call may take 7/16 of the memory: see [`ServerBuilder::max_memory`].
const DATA_SHARE: u64 = 3;
/// Denominator of the share whose numerator is [`DATA_SHARE`].
const MEMORY_SHARES: u64 = 8;

/// Parses the size `--max-memory`, and returns it in bytes. The minimum of 3 MiB has room for the data of one call of 1
/// MiB.
fn parse_memory(text: &str) -> Result<u64, String> {
    parse_size(text).and_then(|size| if size < 3 << 20 { Err("the minimum is 3MiB".to_owned()) } else { Ok(size) })
}

impl ConnectionArgs {
    /// Checks that `largest` bytes, the data of one call in one direction, fit into the memory.
    ///
    /// # Errors
    /// Returns an error with a message for the user if the memory is too small.
    pub fn check_memory(&self, largest: u64) -> anyhow::Result<()> {
        let least = largest.div_ceil(DATA_SHARE).saturating_mul(MEMORY_SHARES).next_multiple_of(1 << 20);
        anyhow::ensure!(self.max_memory >= least, "--max-memory: the minimum of this program is {}MiB", least >> 20);
        Ok(())
    }

    /// Creates the pool of memory for the data of calls. The memory consists of huge pages if the options request them.
    #[must_use]
    pub fn pool(&self) -> BufferPool {
        #[cfg(all(target_os = "linux", any(feature = "verbs", feature = "verbs-dlopen")))]
        if self.huge_pages {
            let pages = rpcrdma::provider::verbs::HugePages::new();
            return BufferPool::with_source(BufferPool::DEFAULT_MAX_KEPT, pages);
        }
        BufferPool::default()
    }

    /// Returns the maximum length of the data of one call, in one direction, that fits into the memory, in bytes.
    #[must_use]
    pub fn max_data(&self) -> u64 {
        self.max_memory / MEMORY_SHARES * DATA_SHARE
    }

    /// Sets the limits of a server that listens on `urls`. Raises the process's limit of file descriptors. Allows fewer
    /// connections if the limit does not suffice.
    pub fn apply(self, server: ServerBuilder, urls: &[String]) -> ServerBuilder {
        let wanted = u64::from(self.max_connections);
        let uses_devices = urls.iter().any(|url| url.starts_with("rdma:"));
        let each = if uses_devices { DEVICE_DESCRIPTORS } else { SOCKET_DESCRIPTORS };
        let descriptors = raise_descriptor_limit(wanted * each + RESERVED_DESCRIPTORS);
        let possible = possible_connections(wanted, each, descriptors);
        if possible < wanted {
            tracing::warn!(
                descriptors,
                connections = possible,
                "the limit of open files allows fewer connections (ulimit -n)"
            );
        }
        let idle = if self.idle_timeout.is_zero() { Duration::MAX } else { self.idle_timeout };
        let per_host = self.max_connections_per_host.map_or(usize::MAX, |limit| limit as usize);
        server
            .max_connections(usize::try_from(possible).unwrap_or(usize::MAX))
            .max_connections_per_host(per_host)
            .idle_timeout(idle)
            .max_memory(self.max_memory)
    }
}

/// Returns the number of connections, from 1 to `wanted`, for which the file descriptors suffice. Each connection needs
/// `each` descriptors. Up to [`RESERVED_DESCRIPTORS`] are left for other uses.
fn possible_connections(wanted: u64, each: u64, descriptors: u64) -> u64 {
    // At least half of the descriptors are for connections, however few there are.
    let reserved = RESERVED_DESCRIPTORS.min(descriptors / 2);
    wanted.min(((descriptors - reserved) / each).max(1))
}

/// Raises the soft limit of open files to `wanted`, as far as the hard limit allows. Returns the resulting soft limit.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return u64::MAX };
    let raised = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if raised <= current {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of open files");
            current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_work() {
        for (wanted, descriptors, possible) in [
            (1024, u64::MAX, 1024),
            (1024, 1024 * 3 + 256, 1024),
            (1024, 1024, 256),
            (1024, 256, 42),
            (10, 1024, 10),
            (1024, 4, 1),
            (1024, 0, 1),
        ] {
            assert_eq!(possible_connections(wanted, 3, descriptors), possible, "{descriptors} descriptors");
        }
        assert_eq!(possible_connections(10_000, 1, 20_000), 10_000);
    }

    #[test]
    fn the_limit_is_raised_within_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let Some(current) = before.current else { return };
        assert_eq!(raise_descriptor_limit(current.saturating_sub(1)), current, "never lowered");
        let raised = raise_descriptor_limit(current + 10);
        assert_eq!(raised, before.maximum.map_or(current + 10, |maximum| maximum.min(current + 10)));
        assert_eq!(getrlimit(Resource::Nofile).current, Some(raised));
    }
}
