//! Cases for servers: the peer plays the client.

mod exchange;
mod v1;
mod v2;

use std::time::Duration;

use bytes::Bytes;

use crate::{
    case::{Case, Limits},
    transport::Target,
};

/// A file of an NFS server under test.
#[derive(Debug, Clone)]
pub struct NfsFile {
    /// The file handle. The file has at least 256 KiB, is readable and writable, and the cases change its contents.
    pub handle: Bytes,
}

/// A server under test.
#[derive(Debug, Clone)]
pub struct ServerUnderTest {
    /// The address of the server.
    pub target: Target,
    /// The program and its version, whose NULL procedure the cases call. A server without it works as well: every RPC
    /// reply shows that the transport has carried the call.
    pub program: (u32, u32),
    /// A file, if the server serves NFS 3.
    pub nfs: Option<NfsFile>,
    /// Time limits of the cases.
    pub limits: Limits,
}

impl ServerUnderTest {
    /// Returns the time limit for connecting: the patience of the cases, but at least 1 s.
    fn connect_timeout(&self) -> Duration {
        self.limits.patience.max(Duration::from_secs(1))
    }
}

/// Looks a file up in a folder of an NFS 3 server, and returns its handle. Calls LOOKUP over RDMA.
///
/// # Errors
/// Fails if the server cannot be reached, or does not have the file.
pub async fn look_up(target: Target, folder: &[u8], name: &str) -> anyhow::Result<Vec<u8>> {
    v1::look_up(target, folder, name).await
}

/// Returns all cases for servers of RPC-over-RDMA.
pub(crate) fn cases() -> Vec<Case<ServerUnderTest>> {
    [v1::cases(), v2::cases()].into_iter().flatten().collect()
}
