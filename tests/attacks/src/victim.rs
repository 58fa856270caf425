//! The victim: a client that makes usual calls, one after the other, and measures their latencies.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use rpcrdma::{client::Channel, rpc::Credential};
use rpcrdma_examples::blobstore::protocol::{
    BlobDigest, BlobName, GetArgs, GetRes, PutArgs, StatRes, blobstore_v1::BlobstoreV1Client,
};
use rpcrdma_specs::{
    mount3::{Dirpath, Mountres3, mount_v3::MountV3Client},
    nfs3::{
        Diropargs3, Filename3, Lookup3args, Lookup3res, NfsFh3, Read3args, Read3res, StableHow, Write3args, Write3res,
        nfs_v3::NfsV3Client,
    },
};
use tokio::time::{sleep, timeout};

use crate::server::{BlobServer, FILE_LEN, NfsServer, VICTIM_FILE};

/// The local address of the victim.
pub(crate) const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// Timeout of each call of a client, and of each attempt of the victim to connect to a crowded server.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Number of bytes of data in a call.
const LEN: usize = 8 << 10;

/// Latencies of successful calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds the latencies of further calls.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the latency that 99 of 100 calls do not exceed.
    pub(crate) fn p99(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// A connected client that makes usual calls.
#[derive(Debug)]
pub(crate) enum Victim {
    Nfs { client: NfsV3Client, file: NfsFh3 },
    Blobs(BlobstoreV1Client),
}

/// Returns the credential of the user that runs this program.
pub(crate) fn own_credential() -> Credential {
    Credential::sys("victim", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), [])
}

/// Connects a channel from a local address.
pub(crate) async fn connect(
    from: Ipv4Addr,
    transport: &str,
    to: SocketAddr,
    credential: &Credential,
) -> anyhow::Result<Channel> {
    let builder = Channel::builder().credential(credential.to_opaque()?).call_timeout(DEADLINE);
    Ok(builder.connect(&format!("{transport}://{to}?local={from}")).await?)
}

/// Returns the handle of the exported directory.
pub(crate) async fn mount(server: &NfsServer) -> anyhow::Result<NfsFh3> {
    let channel = connect(VICTIM, "tcp", server.mount, &own_credential()).await.context("cannot connect to MOUNT")?;
    let mounted = MountV3Client::new(channel).mountproc3_mnt(&Dirpath("/".into())).await?;
    let Mountres3::Ok(ok) = mounted else { bail!("the server refused to be mounted: {mounted:?}") };
    Ok(NfsFh3 { data: ok.fhandle.0 })
}

/// Returns the arguments that name an entry of a directory.
pub(crate) fn entry(dir: &NfsFh3, name: &str) -> Diropargs3 {
    Diropargs3 { dir: dir.clone(), name: Filename3(name.into()) }
}

/// Looks up an entry of a directory, and returns its handle. Fails if there is no such entry.
pub(crate) async fn look_up(client: &NfsV3Client, dir: &NfsFh3, name: &str) -> anyhow::Result<NfsFh3> {
    let found = client.nfsproc3_lookup(&Lookup3args { what: entry(dir, name) }).await?;
    let Lookup3res::Ok(ok) = found else { bail!("cannot look up {name}: {found:?}") };
    Ok(ok.object)
}

impl Victim {
    /// Connects to `nfs3d` and finds the victim's file.
    pub(crate) async fn of_nfs(server: &NfsServer, transport: &str) -> anyhow::Result<Self> {
        let root = mount(server).await?;
        let channel = connect(VICTIM, transport, server.address(transport), &own_credential()).await?;
        let client = NfsV3Client::new(channel);
        let file = look_up(&client, &root, VICTIM_FILE).await?;
        Ok(Self::Nfs { client, file })
    }

    /// Connects to `nfs3d`. Tries again until the deadline, because the server may refuse a connection while it makes
    /// room.
    pub(crate) async fn of_crowded_nfs(server: &NfsServer, transport: &str) -> anyhow::Result<Self> {
        let started = Instant::now();
        loop {
            match timeout(DEADLINE, Self::of_nfs(server, transport)).await {
                Ok(Ok(victim)) => return Ok(victim),
                failed if started.elapsed() > DEADLINE => {
                    let failed = failed.map(|failed| failed.err());
                    bail!("the victim could not connect in {} s: {failed:?}", DEADLINE.as_secs());
                }
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    pub(crate) async fn of_blobs(server: &BlobServer) -> anyhow::Result<Self> {
        let channel = connect(VICTIM, "tcp", server.tcp, &own_credential()).await?;
        Ok(Self::Blobs(BlobstoreV1Client::new(channel)))
    }

    /// Makes `calls` calls, and returns their latencies. Half of the calls send data to the server, and half receive
    /// data.
    pub(crate) async fn measure(&self, calls: usize) -> anyhow::Result<Latencies> {
        let mut latencies = Latencies::default();
        for nth in 0..calls {
            let started = Instant::now();
            let called = timeout(DEADLINE, self.call(nth)).await;
            let failed = || format!("the victim's call {nth} failed");
            called.with_context(failed)?.with_context(failed)?;
            latencies.0.push(started.elapsed());
        }
        Ok(latencies)
    }

    /// Stores data if `nth` is even, and reads data otherwise.
    async fn call(&self, nth: usize) -> anyhow::Result<()> {
        let round = nth / 2;
        let data = Bytes::from(vec![round as u8; LEN]);
        match self {
            Self::Nfs { client, file } => {
                let (file, offset) = (file.clone(), (round * LEN % FILE_LEN) as u64);
                if nth.is_multiple_of(2) {
                    let args = Write3args { file, offset, count: LEN as u32, stable: StableHow::Unstable, data };
                    let written = client.nfsproc3_write(&args).await?;
                    let is_whole = matches!(&written, Write3res::Ok(ok) if ok.count == LEN as u32);
                    ensure!(is_whole, "WRITE: {written:?}");
                } else {
                    match client.nfsproc3_read(&Read3args { file, offset, count: LEN as u32 }).await? {
                        Read3res::Ok(ok) => ensure!(ok.data == data, "READ returned other data"),
                        Read3res::Default(status, _) => bail!("READ: {status:?}"),
                    }
                }
            }
            Self::Blobs(client) => {
                let name = BlobName(format!("victim-{}", round % 16).as_str().into());
                if nth.is_multiple_of(2) {
                    let digest = BlobDigest(*blake3::hash(&data).as_bytes());
                    let stored = client.put(&PutArgs { name, digest, attachment: Bytes::new(), data }).await?;
                    ensure!(matches!(stored, StatRes::BlobOk(_)), "PUT: {stored:?}");
                } else {
                    let args = GetArgs { name, offset: 0, count: LEN as u32, expect: 0 };
                    match client.get(&args).await? {
                        GetRes::BlobOk(ok) => ensure!(ok.data == data, "GET returned other data"),
                        GetRes::Default(status) => bail!("GET: {status:?}"),
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_ignores_one_of_a_hundred() {
        let millis = |range: std::ops::RangeInclusive<u64>| Latencies(range.map(Duration::from_millis).collect());
        assert_eq!(millis(1..=100).p99(), Duration::from_millis(99));
        assert_eq!(millis(1..=1).p99(), Duration::from_millis(1));
        assert_eq!(Latencies::default().p99(), Duration::ZERO);
    }
}
