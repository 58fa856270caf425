//! `blobstore many`, which opens many connections, and stores and fetches different data on all of them concurrently.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use rpcrdma::client::Channel;
use rpcrdma_examples::{
    blobstore::protocol::{
        BLOB_DATA_MAX, BlobDigest, BlobName, BlobStatus, GetArgs, GetRes, PutArgs, StatRes,
        blobstore_v1::BlobstoreV1Client,
    },
    command, say,
};
use tokio::time::sleep;

use crate::{cli::ManyArgs, show};

/// Maximum number of connections that are set up concurrently.
const AT_A_TIME: usize = 32;

/// Number of credits of a connection, which has only one call in flight.
const CREDITS: u32 = 4;

/// Runs `blobstore many`: opens the connections, and checks calls on all of them in each round. Fails at the first
/// wrong result.
pub(crate) async fn run(args: ManyArgs) -> anyhow::Result<()> {
    if args.size > u64::from(BLOB_DATA_MAX) {
        bail!("--size must be at most {}, the limit of one call", show::human_bytes(BLOB_DATA_MAX.into()));
    }
    command::raise_descriptor_limit(2 * u64::from(args.connections) + 256);
    let connecting = (0..args.connections).map(|number| connect(&args, number));
    let connections: Vec<_> = stream::iter(connecting).buffered(AT_A_TIME).try_collect().await?;
    say!("{} connections are open", connections.len());
    sleep(args.idle).await;
    for round in 0..args.rounds {
        let all = connections.iter().zip(0..).map(|(rpc, number)| check(rpc, &args, round, number));
        try_join_all(all).await?;
    }
    say!("the data of {} rounds on {} connections is correct", args.rounds, connections.len());
    sleep(args.idle).await;
    Ok(())
}

async fn connect(args: &ManyArgs, number: u16) -> anyhow::Result<BlobstoreV1Client> {
    let builder = Channel::builder().versions(args.rpcrdma.allowed()).credits(CREDITS);
    let channel = builder.connect(&args.url).await.with_context(|| format!("failed to open connection {number}"))?;
    Ok(BlobstoreV1Client::new(channel))
}

/// Stores, fetches and deletes a blob, and checks the fetched data. The data differs between connections and between
/// rounds.
async fn check(rpc: &BlobstoreV1Client, args: &ManyArgs, round: u16, number: u16) -> anyhow::Result<()> {
    let doing = || format!("connection {number}");
    let mut memory = rpc.channel().pool().alloc(usize::try_from(args.size).unwrap_or(0));
    let seed = [round.to_le_bytes(), number.to_le_bytes()].concat();
    blake3::Hasher::new().update(&seed).finalize_xof().fill(&mut memory);
    let data: Bytes = memory.freeze();
    let name = BlobName(format!("many/{number}").into());
    let put = PutArgs {
        name: name.clone(),
        digest: BlobDigest(*blake3::hash(&data).as_bytes()),
        attachment: Default::default(),
        data: data.clone(),
    };
    if let StatRes::Default(status) = rpc.put(&put).await.with_context(doing)? {
        bail!("connection {number}: PUT returned {status:?}");
    }
    let count = u32::try_from(args.size).unwrap_or(u32::MAX);
    match rpc.get(&GetArgs { name: name.clone(), offset: 0, count, expect: 0 }).await.with_context(doing)? {
        GetRes::BlobOk(ok) => ensure!(ok.data == data, "connection {number}: GET returned other data than was stored"),
        GetRes::Default(status) => bail!("connection {number}: GET returned {status:?}"),
    }
    let deleted = rpc.delete(&name).await.with_context(doing)?;
    ensure!(deleted == BlobStatus::BlobOk, "connection {number}: DELETE returned {deleted:?}");
    Ok(())
}
