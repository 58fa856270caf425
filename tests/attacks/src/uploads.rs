//! Attacks on the slots of `blobstore`: uploads, commits and watches.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use rpcrdma::{client::Channel, rpc::Credential};
use rpcrdma_examples::blobstore::{
    protocol::{
        BeginArgs, BeginRes, BlobDigest, BlobName, BlobStatus, CommitArgs, StatRes, WatchArgs, WriteArgs,
        blob_watcher_v1::BlobWatcherV1Server,
        blobstore_v1::{BlobstoreV1Client, Watch},
    },
    watch::Watcher,
};
use tokio::net::TcpStream;

use crate::{
    raw::{ATTACKER, call, connect_many, fates, read_record, record, results, write},
    report::Findings,
    server::BlobServer,
    trial::{Plan, Trial},
    victim::{self, DEADLINE, VICTIM, Victim, own_credential},
};

const MAX_MEMORY: u64 = 1 << 30;
/// Announced size of the attackers' uploads, in bytes. It is the largest size that the server allows. The uploads are
/// sparse.
const SPARSE: u64 = 1 << 40;
/// Number of uploads that the attackers ask for.
const UPLOADS: usize = 64;
/// Number of connections on which the attackers ask for uploads.
const UPLOAD_CONNECTIONS: usize = 8;
/// Number of watches that the attackers ask for.
const WATCHES: usize = 1024;
/// Number of connections on which the attackers ask for watches.
const WATCH_CONNECTIONS: usize = 16;

/// Asks for uploads and writes the last byte of each. Returns the identifiers of the uploads that the server allowed.
async fn take_uploads(clients: &[BlobstoreV1Client]) -> anyhow::Result<Vec<u64>> {
    let mut uploads = Vec::new();
    for nth in 0..UPLOADS {
        let client = &clients[nth % clients.len()];
        let name = BlobName(format!("sparse-{nth}").as_str().into());
        match client.begin(&BeginArgs { name, size: SPARSE, attachment: Bytes::new() }).await? {
            BeginRes::BlobOk(upload) => {
                let args = WriteArgs { upload, offset: SPARSE - 1, data: Bytes::from_static(b"x") };
                // Some file systems have no files of this size.
                let _ = client.write(&args).await?;
                uploads.push(upload);
            }
            BeginRes::Default(BlobStatus::BlobBusy) => {}
            BeginRes::Default(status) => bail!("BEGIN: {status:?}"),
        }
    }
    Ok(uploads)
}

/// Asks for watches on connections that never reply to the server's calls. Returns the connections and the number of
/// watches that the server allowed.
async fn take_watches(server: &BlobServer) -> anyhow::Result<(Vec<TcpStream>, usize)> {
    let mut streams = connect_many(WATCH_CONNECTIONS, server.tcp).await?;
    let mut watches = 0;
    for xid in 0..WATCHES as u32 {
        let stream = &mut streams[xid as usize % WATCH_CONNECTIONS];
        let call = call::<Watch>(xid, &Credential::None, &WatchArgs { prefix: "".into() })?;
        write(stream, &record(&call)).await?;
        let reply = read_record(stream).await?;
        watches += usize::from(results::<Watch>(&reply, xid)? == BlobStatus::BlobOk);
    }
    Ok((streams, watches))
}

/// Stores a blob by BEGIN, WRITE and COMMIT.
async fn upload(client: &BlobstoreV1Client, name: &str) -> anyhow::Result<()> {
    let data = Bytes::from(vec![3; 64 << 10]);
    let args = BeginArgs { name: BlobName(name.into()), size: data.len() as u64, attachment: Bytes::new() };
    let upload = match client.begin(&args).await? {
        BeginRes::BlobOk(upload) => upload,
        BeginRes::Default(status) => bail!("BEGIN: {status:?}"),
    };
    let digest = BlobDigest(*blake3::hash(&data).as_bytes());
    let written = client.write(&WriteArgs { upload, offset: 0, data }).await?;
    ensure!(written == BlobStatus::BlobOk, "WRITE: {written:?}");
    let committed = client.commit(&CommitArgs { upload, digest }).await?;
    ensure!(matches!(committed, StatRes::BlobOk(_)), "COMMIT: {committed:?}");
    Ok(())
}

/// Checks that a watch of the victim reports the victim's next upload.
async fn watch(server: &BlobServer, client: &BlobstoreV1Client, name: &str) -> anyhow::Result<()> {
    let (watcher, mut changes) = Watcher::new(64);
    let url = format!("tcp://{}?local={VICTIM}", server.tcp);
    let builder = Channel::builder().call_timeout(DEADLINE).service(BlobWatcherV1Server::new(watcher));
    let watching = BlobstoreV1Client::new(builder.connect(&url).await?);
    let status = watching.watch(&WatchArgs { prefix: name.into() }).await?;
    ensure!(status == BlobStatus::BlobOk, "WATCH: {status:?}");
    upload(client, name).await?;
    let change = tokio::time::timeout(DEADLINE, changes.recv()).await.context("the watch reported nothing")?;
    ensure!(change.is_some(), "the watch ended");
    Ok(())
}

/// Asks from one host for all upload slots, with uploads of 1 TiB each, commits half of the uploads, and asks for all
/// watch slots. Then the host leaves. The victim must be able to upload and watch during the attack, and to upload
/// after it.
pub(crate) async fn all_slots(plan: &Plan) -> anyhow::Result<Findings> {
    let mut server = BlobServer::start(&plan.programs, MAX_MEMORY).await?;
    let victim = Victim::of_blobs(&server).await?;
    let other = BlobstoreV1Client::new(victim::connect(VICTIM, "tcp", server.tcp, &own_credential()).await?);
    let mut trial = Trial::start(plan.form, &victim).await?;
    let mut clients = Vec::new();
    for _ in 0..UPLOAD_CONNECTIONS {
        clients.push(BlobstoreV1Client::new(victim::connect(ATTACKER, "tcp", server.tcp, &own_credential()).await?));
    }
    let uploads = take_uploads(&clients).await?;
    let (streams, watches) = take_watches(&server).await?;
    // The replies to the commits are not waited for.
    let commits: Vec<_> = uploads
        .iter()
        .take(uploads.len() / 2)
        .zip(clients.iter().cycle())
        .map(|(&upload, client)| {
            let client = client.clone();
            tokio::spawn(async move { client.commit(&CommitArgs { upload, digest: BlobDigest([0; 32]) }).await })
        })
        .collect();
    trial.measure(&victim).await;
    for (what, done) in
        [("upload", upload(&other, "during").await), ("watch", watch(&server, &other, "during-watched").await)]
    {
        if let Err(error) = done {
            trial.fault(format!("the victim's {what} failed during the attack: {error:#}"));
        }
    }
    let (_, fates) = fates(&streams);
    let committed = commits.iter().filter(|commit| commit.is_finished()).count();
    commits.iter().for_each(tokio::task::JoinHandle::abort);
    drop((clients, streams));
    // What the attackers held is released only after a while, but must not be missed.
    for nth in 0..4 {
        if let Err(error) = upload(&other, &format!("after-{nth}")).await {
            trial.fault(format!("the victim's upload failed after the attack: {error:#}"));
        }
    }
    let outcome = format!(
        "{} of {UPLOADS} uploads, {committed} commits ended, {watches} of {WATCHES} watches; {fates}",
        uploads.len()
    );
    trial.expect(uploads.len() < UPLOADS && watches < WATCHES, || "one host got all slots".to_owned());
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}
