//! Attacks on memory: records and Read chunks that do not arrive, results that nobody reads, and large directories.

use std::{
    fs,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use rpcrdma::rpc::Credential;
use rpcrdma_examples::blobstore::protocol::{
    BlobDigest, BlobName, GetArgs, PutArgs,
    blobstore_v1::{BlobstoreV1Client, Get},
};
use rpcrdma_specs::nfs3::{
    Cookieverf3, NfsFh3, Read3args, Readdir3args, Readdir3res,
    nfs_v3::{NfsV3Client, Nfsproc3Read, Nfsproc3Write},
};
use tokio::{net::TcpStream, task::spawn_blocking};

use crate::{
    raw::{ATTACKER, call, connect, connect_many, fates, header_of, mark, record, write},
    raw_iwarp::{IwarpPeer, message_with_chunk},
    report::Findings,
    server::{BlobServer, LARGE_FILE, NfsServer},
    trial::{Plan, Trial},
    victim::{self, Victim, look_up, mount, own_credential},
};

const MIB: u64 = 1 << 20;
/// Time for the server to receive what attackers have sent, before the victim's calls are measured.
pub(crate) const ARRIVAL: Duration = Duration::from_millis(300);
/// Length in bytes of the header of a call without credentials.
const HEAD_LEN: u32 = 40;
/// Receive buffer of connections that do not read, in bytes.
const SMALL_BUFFER: u32 = 4096;

/// Opens 64 connections. Each announces a record of 65 MiB, and sends only `sent` bytes of the record.
pub(crate) async fn announced_records(plan: &Plan, sent: usize) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, 256 * MIB, &[]).await?;
    let victim = Victim::of_nfs(&server, "tcp").await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let mut attackers = connect_many(64, server.tcp).await?;
    let bytes = [&mark(65 << 20)[..], &vec![0; sent]].concat();
    for attacker in &mut attackers {
        write(attacker, &bytes).await?;
    }
    tokio::time::sleep(ARRIVAL).await;
    trial.measure(&victim).await;
    let (_, outcome) = fates(&attackers);
    drop(attackers);
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Sends calls without credentials and with Read chunks of 64 MiB, of which only `served` bytes are served.
pub(crate) async fn unserved_chunks(plan: &Plan, served: usize) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, 256 * MIB, &[]).await?;
    let victim = Victim::of_nfs(&server, "iwarp").await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let head = header_of::<Nfsproc3Write>(7, &Credential::None)?;
    let message = message_with_chunk(7, HEAD_LEN, (99, 64 << 20), &head);
    let mut attackers = Vec::new();
    for _ in 0..16 {
        let mut attacker = IwarpPeer::connect(ATTACKER, server.iwarp).await?;
        attacker.send(&message).await?;
        attackers.push(attacker);
    }
    let respond = attackers.iter_mut().map(|attacker| async move {
        let Some(request) = attacker.next_read_request(ARRIVAL).await? else { return Ok(false) };
        attacker.respond(request.sink, &vec![0; served], false).await?;
        anyhow::Ok(true)
    });
    let fetched = try_join_all(respond).await?.into_iter().filter(|fetched| *fetched).count();
    trial.measure(&victim).await;
    trial.expect(fetched > 0, || "the server fetched nothing: the attack was not played".to_owned());
    let (_, fates) = fates(attackers.iter().map(|attacker| &attacker.stream));
    let outcome = format!("{fates}; from {fetched} the server reads");
    drop(attackers);
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Opens `count` connections, sends all `calls` on each of them, and reads no replies.
async fn connect_silent(count: usize, to: SocketAddr, calls: &[Vec<u8>]) -> anyhow::Result<Vec<TcpStream>> {
    let calls: Vec<u8> = calls.iter().flat_map(|call| record(call)).collect();
    let mut attackers = Vec::new();
    for _ in 0..count {
        let mut attacker = connect(ATTACKER, to, Some(SMALL_BUFFER)).await?;
        write(&mut attacker, &calls).await?;
        attackers.push(attacker);
    }
    tokio::time::sleep(ARRIVAL).await;
    Ok(attackers)
}

/// Sends 64 READs of `count` bytes on each of 8 connections, and reads no replies. The memory limit of the server is
/// little more than the minimum with which it accepts READs of that size.
pub(crate) async fn unread_results(plan: &Plan, count: u32) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, 3 * u64::from(count), &[]).await?;
    let victim = Victim::of_nfs(&server, "tcp").await?;
    let root = mount(&server).await?;
    let client = NfsV3Client::new(victim::connect(ATTACKER, "tcp", server.tcp, &own_credential()).await?);
    let file = look_up(&client, &root, LARGE_FILE).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let args = Read3args { file, offset: 0, count };
    let calls: Vec<_> =
        (0..64).map(|xid| call::<Nfsproc3Read>(xid, &own_credential(), &args)).collect::<Result<_, _>>()?;
    let attackers = connect_silent(8, server.tcp, &calls).await?;
    trial.measure(&victim).await;
    let (_, outcome) = fates(&attackers);
    drop((attackers, client));
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Asks 8 times for a blob of 4 MiB on each of 24 connections, and reads no replies.
pub(crate) async fn unread_blobs(plan: &Plan) -> anyhow::Result<Findings> {
    let mut server = BlobServer::start(&plan.programs, 14 * MIB).await?;
    let victim = Victim::of_blobs(&server).await?;
    let client = BlobstoreV1Client::new(victim::connect(ATTACKER, "tcp", server.tcp, &own_credential()).await?);
    let (data, name) = (Bytes::from(vec![1; 4 << 20]), BlobName("large".into()));
    let digest = BlobDigest(*blake3::hash(&data).as_bytes());
    client.put(&PutArgs { name: name.clone(), digest, attachment: Bytes::new(), data }).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let args = GetArgs { name, offset: 0, count: 4 << 20, expect: 0 };
    let calls: Vec<_> = (0..8).map(|xid| call::<Get>(xid, &Credential::None, &args)).collect::<Result<_, _>>()?;
    let attackers = connect_silent(24, server.tcp, &calls).await?;
    trial.measure(&victim).await;
    let (_, outcome) = fates(&attackers);
    drop((attackers, client));
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Number of entries in the large directory, in the short and in the full form.
const ENTRIES: (usize, usize) = (20_000, 60_000);
/// Number of READDIRs in flight at once.
const LISTINGS: usize = 64;
/// Number of connections that the READDIRs use.
const LISTING_CONNECTIONS: usize = 4;
/// Minimum number of rounds of listings.
const MIN_ROUNDS: usize = 3;
/// Number of bytes that each READDIR asks for.
const LISTING_LEN: u32 = 64 << 10;

/// Lists a large directory that changes between the rounds, with 64 calls at once.
pub(crate) async fn large_directories(plan: &Plan) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, 3 * MIB, &[]).await?;
    let victim = Victim::of_nfs(&server, "tcp").await?;
    let root = mount(&server).await?;
    let path = server.root.join("crowd");
    let entries = plan.form.either(ENTRIES.0, ENTRIES.1);
    let fill = {
        let path = path.clone();
        move || {
            fs::create_dir(&path)?;
            (0..entries).try_for_each(|nth| fs::File::create(path.join(format!("entry-{nth:05}"))).map(drop))
        }
    };
    spawn_blocking(fill).await?.context("cannot create the entries")?;
    let mut clients = Vec::new();
    for _ in 0..LISTING_CONNECTIONS {
        clients.push(NfsV3Client::new(victim::connect(ATTACKER, "tcp", server.tcp, &own_credential()).await?));
    }
    let [first, ..] = &clients[..] else { bail!("there are no connections") };
    let dir = look_up(first, &root, "crowd").await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let (rounds, mut failed) = (AtomicUsize::new(0), None);
    {
        let attack = async {
            loop {
                fs::write(path.join(format!("new-{}", rounds.load(Relaxed))), "")?;
                let calls = (0..LISTINGS).map(|nth| list(&clients[nth % LISTING_CONNECTIONS], &dir));
                join_all(calls).await.into_iter().collect::<anyhow::Result<()>>()?;
                rounds.fetch_add(1, Relaxed);
            }
            #[expect(unreachable_code, reason = "states the type of the block")]
            anyhow::Ok(())
        };
        tokio::select! {
            () = trial.measure_until(&victim, || rounds.load(Relaxed) >= MIN_ROUNDS) => {}
            ended = attack => failed = ended.err(),
        }
    }
    if let Some(error) = failed {
        trial.fault(format!("{error:#}"));
    }
    let outcome = format!("{} rounds of {LISTINGS} listings", rounds.load(Relaxed));
    drop(clients);
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Reads the first part of a directory.
async fn list(client: &NfsV3Client, dir: &NfsFh3) -> anyhow::Result<()> {
    let args = Readdir3args { dir: dir.clone(), cookie: 0, cookieverf: Cookieverf3::default(), count: LISTING_LEN };
    let listed = client.nfsproc3_readdir(&args).await.context("a READDIR failed")?;
    ensure!(matches!(&listed, Readdir3res::Ok(_)), "a READDIR failed: {listed:?}");
    Ok(())
}
