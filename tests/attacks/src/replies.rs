//! Attacks on the duplicate request cache.

use std::{fs, net::Ipv4Addr};

use anyhow::{Context as _, ensure};
use futures_util::future::join_all;
use rpcrdma::rpc::Credential;
use rpcrdma_examples::nfs3::no_changes;
use rpcrdma_specs::nfs3::{
    Mkdir3args, NfsFh3, Nfsstat3, Remove3args, Remove3res,
    nfs_v3::{Nfsproc3Mkdir, Nfsproc3Remove},
};
use tokio::net::TcpStream;

use crate::{
    raw::{ATTACKER, call, connect, read_record, record, results, write},
    report::Findings,
    server::NfsServer,
    trial::{Plan, Trial},
    victim::{VICTIM, Victim, entry, mount, own_credential},
};

const MAX_MEMORY: u64 = 1 << 30;
/// Number of failing calls of each of two kinds. It exceeds the number of entries in the cache.
const FLOOD: u32 = 8200;
/// Number of calls that an attacker sends before it reads their replies.
const BATCH: u32 = 32;
/// The XID of the call that is sent again.
const XID: u32 = 0x5eed_0001;

/// Sends an encoded REMOVE, and returns its status.
async fn remove(stream: &mut TcpStream, call: &[u8]) -> anyhow::Result<Nfsstat3> {
    write(stream, &record(call)).await?;
    let reply = read_record(stream).await?;
    Ok(match results::<Nfsproc3Remove>(&reply, XID)? {
        Remove3res::Ok(_) => Nfsstat3::Ok,
        Remove3res::Default(status, _) => status,
    })
}

/// Creates a file, and encodes a call that removes the file.
fn removal(server: &NfsServer, root: &NfsFh3) -> anyhow::Result<Vec<u8>> {
    fs::write(server.root.join("once"), "x")?;
    call::<Nfsproc3Remove>(XID, &own_credential(), &Remove3args { object: entry(root, "once") })
}

/// Makes more calls fail than the cache has entries. The victim repeats a REMOVE that it made before the attack, and
/// must get the reply of the first one.
pub(crate) async fn failing_calls(plan: &Plan) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &[]).await?;
    let victim = Victim::of_nfs(&server, "tcp").await?;
    let root = mount(&server).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let removal = removal(&server, &root)?;
    let first = remove(&mut connect(VICTIM, server.tcp, None).await?, &removal).await?;
    ensure!(first == Nfsstat3::Ok, "the victim's REMOVE failed: {first:?}");
    let attack = async {
        // The second kind is recorded by the cache, although it fails.
        let remove = Remove3args { object: entry(&root, "missing") };
        let mkdir = Mkdir3args { r#where: entry(&root, "large"), attributes: no_changes() };
        let mut attacker = connect(ATTACKER, server.tcp, None).await?;
        for batch in (0..2 * FLOOD).collect::<Vec<_>>().chunks(BATCH as usize) {
            let mut records = Vec::new();
            for xid in batch {
                records.extend(record(&if xid % 2 == 0 {
                    call::<Nfsproc3Remove>(*xid, &Credential::None, &remove)?
                } else {
                    call::<Nfsproc3Mkdir>(*xid, &Credential::None, &mkdir)?
                }));
            }
            write(&mut attacker, &records).await?;
            for _ in batch {
                read_record(&mut attacker).await?;
            }
        }
        anyhow::Ok(())
    };
    let (flooded, ()) = tokio::join!(attack, trial.measure(&victim));
    flooded.context("the flood was not played")?;
    let again = remove(&mut connect(VICTIM, server.tcp, None).await?, &removal).await?;
    trial.expect(again == Nfsstat3::Ok, || format!("the repeated REMOVE returned {again:?}"));
    Ok(trial.finish(&mut server.process, &victim, format!("{} calls failed", 2 * FLOOD)).await)
}

/// Sends the same REMOVE on many connections of one client at once. The server must execute the call only once, so no
/// reply may report that the file is missing.
pub(crate) async fn replayed_call(plan: &Plan) -> anyhow::Result<Findings> {
    const CONNECTIONS: usize = 16;
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &[]).await?;
    let victim = Victim::of_nfs(&server, "tcp").await?;
    let root = mount(&server).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let removal = removal(&server, &root)?;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push(connect(Ipv4Addr::new(127, 0, 0, 4), server.tcp, None).await?);
    }
    let replies = join_all(streams.iter_mut().map(|stream| remove(stream, &removal))).await;
    trial.measure(&victim).await;
    let is_ok = |reply: &&anyhow::Result<Nfsstat3>| matches!(reply, Ok(Nfsstat3::Ok));
    let ok = replies.iter().filter(is_ok).count();
    let other: Vec<_> = replies.iter().filter(|reply| !is_ok(reply)).collect();
    trial.expect(other.is_empty(), || format!("not all copies got the first reply: {other:?}"));
    let outcome = format!("{ok} of {CONNECTIONS} copies got the first reply");
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}
