//! Exhaustion of a server's file descriptors. The limit is lowered to little more than the number of open descriptors,
//! and connections take the rest.

use std::{fs, net::SocketAddr};

use anyhow::Context as _;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::net::TcpStream;

/// Number of connections. Each accepted connection takes a descriptor of the server.
const CONNECTIONS: usize = 32;
/// Number of descriptors that the lowered limit allows beyond the open ones.
const LEFT: u64 = 2;

/// Returns the number of open descriptors of a process, or `None` if they cannot be listed.
pub(crate) fn open_descriptors(process: Pid) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).ok()?.count() as u64)
}

/// A server whose descriptors are exhausted. Dropping this value restores the limit and closes the connections.
#[derive(Debug)]
pub(crate) struct Exhausted {
    process: Pid,
    before: Rlimit,
    connections: Vec<TcpStream>,
}

/// Lowers the descriptor limit of the server `process`, and opens connections to its address `server`.
pub(crate) async fn exhaust(process: Pid, server: SocketAddr) -> anyhow::Result<Exhausted> {
    let open = open_descriptors(process).context("the server has ended")?;
    // The limit is that of the next descriptor's number. There may be lower numbers that are free, which the
    // connections take. The hard limit is inherited from this program.
    let lowered = Rlimit { current: Some(open + LEFT), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(process), Resource::Nofile, lowered);
    let before = before.context("cannot change the limit of a server's open files")?;
    let mut exhausted = Exhausted { process, before, connections: Vec::new() };
    for _ in 0..CONNECTIONS {
        // The kernel completes connections that the server does not accept.
        exhausted.connections.push(TcpStream::connect(server).await.context("cannot connect to a server")?);
    }
    Ok(exhausted)
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        // The server may have ended meanwhile.
        let _ = prlimit(Some(self.process), Resource::Nofile, self.before);
    }
}
