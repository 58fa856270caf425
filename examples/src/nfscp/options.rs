//! The options of the client, and the limits that follow from them.

use std::time::Duration;

use rpcrdma::rpc::OpaqueAuth;

use crate::command::{ClientTls, Kerberos};

/// The options of an NFS client: connections, limits and security.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Maximum number of READs and WRITEs in flight. The server's credits limit it further. All their data together is
    /// limited to this number of MiB, or to the size of two calls (one if `jobs` is 1) if that is more. The default is
    /// 32.
    pub jobs: usize,
    /// Number of connections that share the calls. The default is 1.
    pub connections: usize,
    /// Maximum number of bytes in a READ or WRITE. FSINFO limits it further. The default, `None`, means 4 MiB, or 1 MiB
    /// over TCP, where larger calls are slower.
    pub chunk: Option<u32>,
    /// Time limit for connecting. The default is 10 s.
    pub connect_timeout: Duration,
    /// Time limit of a call. The default is 30 s.
    pub call_timeout: Duration,
    /// Time limit for retrying calls that lost their connection, got no reply, or failed with NFS3ERR_JUKEBOX. The
    /// default is 60 s.
    pub retry_for: Duration,
    /// The credential of calls without Kerberos, usually AUTH_SYS. The default is AUTH_NONE.
    pub credential: OpaqueAuth,
    /// The Kerberos settings for the calls. The default is `None`, which means no Kerberos.
    pub kerberos: Option<Kerberos>,
    /// The TLS configuration for connections over TCP.
    pub tls: ClientTls,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jobs: 32,
            connections: 1,
            chunk: None,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(60),
            credential: OpaqueAuth::none(),
            kerberos: None,
            tls: ClientTls::default(),
        }
    }
}

impl Options {
    /// Returns the maximum number of bytes in a READ or WRITE: the option, or the default over RDMA.
    pub(super) fn chunk(&self) -> u32 {
        self.chunk.unwrap_or(RDMA_CHUNK)
    }

    /// Returns the total number of permits for the data in flight. Each permit is for [`PERMIT`] bytes.
    pub(super) fn data_in_flight(&self) -> u32 {
        let (jobs, chunk) = (self.jobs.clamp(1, 1 << 14) as u32, self.chunk().div_ceil(PERMIT));
        (jobs * 1024).max(jobs.min(2) * chunk)
    }

    /// Returns the number of permits for `len` bytes of data, at most the number of all permits.
    pub(super) fn permits(&self, len: u32) -> u32 {
        len.div_ceil(PERMIT).min(self.data_in_flight())
    }
}

/// The default maximum number of bytes in a READ or WRITE over RDMA. `TCP_CHUNK` is the default over TCP.
const RDMA_CHUNK: u32 = 4 << 20;
pub(super) const TCP_CHUNK: u32 = 1 << 20;

/// Amount of data for each permit of a semaphore that limits data, in bytes.
const PERMIT: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_in_flight_follows_the_number_and_the_size_of_calls() {
        for (jobs, chunk, kibibytes) in [
            (32, 4 << 20, 32 << 10),
            (32, 1, 32 << 10),
            (1, 4 << 20, 4 << 10),
            (2, 4 << 20, 8 << 10),
            (5, 4 << 20, 8 << 10),
            (1, 1, 1 << 10),
            (32, 64 << 20, 128 << 10),
        ] {
            let options = Options { jobs, chunk: Some(chunk), ..Options::default() };
            assert_eq!(options.data_in_flight(), kibibytes, "{jobs} calls of {chunk} bytes");
            // No call waits for more than there is.
            assert_eq!(options.permits(u32::MAX), kibibytes);
            assert_eq!([0, 1, 1024, 1025].map(|len| options.permits(len)), [0, 1, 1, 2].map(|n: u32| n.min(kibibytes)));
        }
    }
}
