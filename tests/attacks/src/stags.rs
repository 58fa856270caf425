//! RDMA Writes, Reads and responses with an STag that belongs to another connection, or to none.

use anyhow::{Context as _, bail, ensure};
use rpcrdma_specs::nfs3::{
    StableHow, Write3args, Write3res,
    nfs_v3::{NfsV3Client, Nfsproc3Write},
};

use crate::{
    raw::{ATTACKER, PATIENCE, call, closes, results},
    raw_iwarp::{IwarpPeer, Place, message_with_chunk},
    report::Findings,
    server::{LARGE_FILE, NfsServer},
    trial::{Plan, Trial},
    victim::{self, VICTIM, Victim, look_up, mount, own_credential},
};

const MAX_MEMORY: u64 = 256 << 20;
/// Number of bytes of data in the call whose memory is attacked.
const LEN: u32 = 4096;
/// STag of the Read chunk in the attacked call. It names memory of the client that makes the call.
const CHUNK: u32 = 99;
/// Number of invented STags that are tried. Each access is on a new connection.
const INVENTED: u32 = 16;

/// An operation in which an attacker uses an STag.
#[derive(Debug, Clone, Copy)]
enum Access {
    Write,
    Read,
    Respond,
}

/// Accesses the memory at `place` from a new connection. The server must close this connection.
async fn access(server: &NfsServer, how: Access, place: Place) -> anyhow::Result<()> {
    let mut attacker = IwarpPeer::connect(ATTACKER, server.iwarp).await?;
    let data = [b'B'; LEN as usize / 4];
    match how {
        Access::Write => attacker.rdma_write(place, &data).await?,
        Access::Read => attacker.rdma_read(place, LEN).await?,
        Access::Respond => attacker.respond(place, &data, true).await?,
    }
    ensure!(closes(&mut attacker.stream).await, "the server kept a connection after a {how:?} of a foreign STag");
    Ok(())
}

/// Attacks a WRITE of another client while the server waits for the data of its Read chunk: from other connections,
/// attackers access the server's memory for this data. They try invented STags, too. The server must close these
/// connections, and store the data of the WRITE unchanged.
pub(crate) async fn foreign(plan: &Plan) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &[]).await?;
    let victim = Victim::of_nfs(&server, "iwarp").await?;
    let root = mount(&server).await?;
    let client = NfsV3Client::new(victim::connect(VICTIM, "tcp", server.tcp, &own_credential()).await?);
    let file = look_up(&client, &root, LARGE_FILE).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;

    // A call whose data is in a Read chunk. Its client serves the chunk only after the attack.
    let mut slow = IwarpPeer::connect(VICTIM, server.iwarp).await?;
    let args =
        Write3args { file, offset: 0, count: LEN, stable: StableHow::FileSync, data: vec![b'A'; LEN as usize].into() };
    let mut whole = call::<Nfsproc3Write>(7, &own_credential(), &args)?;
    whole.truncate(whole.len() - LEN as usize);
    slow.send(&message_with_chunk(7, whole.len() as u32, (CHUNK, LEN), &whole)).await?;
    let request = slow.next_read_request(PATIENCE).await?.context("the server does not read the chunk")?;
    ensure!(request.len == LEN, "the server reads {} bytes", request.len);

    let invented = (1..=INVENTED).map(|nth| (nth.wrapping_mul(0x9e37_79b9), 0));
    let places = std::iter::once(request.sink).chain(invented).filter(|(stag, _)| *stag != 0);
    let attack = async {
        let mut ended = 0;
        for place in places {
            for how in [Access::Write, Access::Read, Access::Respond] {
                access(&server, how, place).await?;
                ended += 1;
            }
        }
        anyhow::Ok(ended)
    };
    let (attacked, ()) = tokio::join!(attack, trial.measure(&victim));
    let outcome = match attacked {
        Ok(ended) => format!("{ended} of {ended} connections closed"),
        Err(error) => {
            trial.fault(format!("{error:#}"));
            "an access was not refused".to_owned()
        }
    };
    if let Err(error) = complete(&server, &mut slow, request.sink).await {
        trial.fault(format!("the attacked call: {error:#}"));
    }
    drop((slow, client));
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Serves the Read chunk of the attacked WRITE. Checks that the server stores the data that the client of the WRITE
/// sent.
async fn complete(server: &NfsServer, slow: &mut IwarpPeer, sink: Place) -> anyhow::Result<()> {
    slow.respond(sink, &[b'A'; LEN as usize], true).await?;
    match results::<Nfsproc3Write>(&slow.next_reply().await?, 7)? {
        Write3res::Ok(ok) => ensure!(ok.count == LEN, "{} bytes were written", ok.count),
        Write3res::Default(status, _) => bail!("WRITE: {status:?}"),
    }
    let stored = std::fs::read(server.root.join(LARGE_FILE))?;
    ensure!(stored.iter().take(LEN as usize).all(|byte| *byte == b'A'), "data of an attacker was stored");
    Ok(())
}
