//! Attacks on a counters server, which records its replies in a database: repeated calls, SIGKILL, and damage of the
//! database.
//!
//! There is no program for this service, so this program starts itself as the server.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use futures_util::future::join_all;
use rpcrdma::{client::Channel, rpc::Credential};
use rpcrdma_examples::counters::protocol::{
    Addition,
    counters_v1::{Add, CountersV1Client, PROGRAM},
};
use rpcrdma_trials::counters::MAX_MEMORY;
use tempfile::TempDir;
use tokio::{net::TcpStream, process::Command};

use crate::{
    raw::{call, connect, read_record, record, results, write},
    report::{Findings, Measured},
    server::ServerProcess,
    trial::Plan,
    victim::{self, VICTIM},
};

/// The XID of the call that is repeated.
const XID: u32 = 0x5eed_0002;

fn store_in(folder: &Path) -> PathBuf {
    folder.join("counters.redb")
}

/// Starts the server in a directory. If `create` is `true`, the server creates its database, and otherwise it opens the
/// database in the directory.
async fn start(folder: TempDir, create: bool) -> anyhow::Result<(ServerProcess, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env_remove("RUST_BACKTRACE");
    command.arg("serve-counters").arg("--store").arg(store_in(folder.path()));
    command.args(create.then_some(OsString::from("--create")));
    let server = ServerProcess::start(command, folder, 1, MAX_MEMORY).await?;
    let address = server.address(0)?;
    Ok((server, address))
}

fn credential() -> Credential {
    Credential::sys("client", 1000, 1000, [])
}

async fn client(to: SocketAddr) -> anyhow::Result<CountersV1Client> {
    let url = format!("tcp://{to}?local={VICTIM}");
    let builder = Channel::builder().deduplicated([PROGRAM]).credential(credential().to_opaque()?);
    Ok(CountersV1Client::new(builder.call_timeout(victim::DEADLINE).connect(&url).await?))
}

/// Counters and their acknowledged values.
type Acknowledged = BTreeMap<String, u64>;

/// Makes one addition to each of the new counters with the numbers `counters`. Returns the sums that the server
/// acknowledged.
async fn acknowledge(client: &CountersV1Client, counters: Range<usize>) -> anyhow::Result<Acknowledged> {
    let mut acknowledged = Acknowledged::new();
    for nth in counters {
        let name = format!("counter-{nth}");
        let sum = client.add(&Addition { name: name.as_str().into(), amount: nth as u64 + 1 }).await?;
        acknowledged.insert(name, sum);
    }
    Ok(acknowledged)
}

/// Returns the number of counters whose value differs from the acknowledged one.
async fn count_lost(to: SocketAddr, acknowledged: &Acknowledged) -> anyhow::Result<usize> {
    let client = client(to).await?;
    let mut lost = 0;
    for (name, sum) in acknowledged {
        lost += usize::from(client.value(&name.as_str().into()).await? != *sum);
    }
    Ok(lost)
}

/// Sends an encoded ADD, and returns the sum in its reply.
async fn add(stream: &mut TcpStream, call: &[u8]) -> anyhow::Result<u64> {
    write(stream, &record(call)).await?;
    results::<Add>(&read_record(stream).await?, XID)
}

/// Sends the same ADD on many connections at once, and once more after the server was killed and restarted. The server
/// must execute the ADD only once.
pub(crate) async fn replayed_call(plan: &Plan) -> anyhow::Result<Findings> {
    const CONNECTIONS: usize = 16;
    let (server, to) = start(tempfile::tempdir()?, true).await?;
    let acknowledged = acknowledge(&client(to).await?, 0..plan.form.calls()).await?;
    let call = call::<Add>(XID, &credential(), &Addition { name: "once".into(), amount: 5 })?;
    let from = Ipv4Addr::new(127, 0, 0, 4);
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push(connect(from, to, None).await?);
    }
    let sums = join_all(streams.iter_mut().map(|stream| add(stream, &call))).await;
    drop(streams);
    let memory = server.growth()?;
    let (mut server, to) = start(server.kill().await?, false).await?;
    let again = add(&mut connect(from, to, None).await?, &call).await?;
    let value = client(to).await?.value(&"once".into()).await?;
    let lost = count_lost(to, &acknowledged).await?;
    server.check()?;
    let mut findings =
        Findings { measured: Measured { memory: Some(memory), ..Measured::default() }, ..Findings::default() };
    let same = sums.iter().filter(|sum| matches!(sum, Ok(5))).count();
    findings.outcome = format!("{same} of {CONNECTIONS} copies got the first reply");
    for (holds, fault) in [
        (same == CONNECTIONS, format!("copies of the call got {sums:?}")),
        (again == 5, format!("the copy after the restart got {again}")),
        (value == 5, format!("the call was not executed once: the counter is {value}")),
        (lost == 0, format!("{lost} of {} acknowledged effects are lost", acknowledged.len())),
        (memory.0 <= memory.1, format!("the server's memory grew by {} MiB", memory.0 >> 20)),
    ] {
        if !holds {
            findings.faults.push(fault);
        }
    }
    Ok(findings)
}

/// Mask of the bit that is flipped in a byte. The flags that redb keeps at the start of the file without a checksum do
/// not use this bit.
const FLIP: u8 = 0x10;

/// A damaged copy of the database.
struct Damage {
    name: String,
    bytes: Vec<u8>,
    /// `true` if the damage certainly loses acknowledged additions. The server must then not start.
    is_fatal: bool,
}

/// Returns damaged copies of the database `whole`, about `flips` of them with one flipped bit. `before` is the database
/// before the last addition.
fn damages(before: &[u8], whole: &[u8], flips: usize) -> Vec<Damage> {
    let mut damages = Vec::new();
    for (name, len) in [
        ("emptied", 0),
        ("truncated", 1),
        ("truncated", 4096),
        ("truncated", whole.len() / 2),
        ("truncated", whole.len().saturating_sub(4096)),
    ] {
        let bytes = whole.iter().copied().take(len).collect();
        damages.push(Damage { name: format!("{name} to {len} bytes"), bytes, is_fatal: true });
    }
    let mut zeroed = whole.to_vec();
    zeroed.iter_mut().skip(4096).for_each(|byte| *byte = 0);
    damages.push(Damage { name: "zeroed".to_owned(), bytes: zeroed, is_fatal: true });
    let mut everywhere = whole.to_vec();
    everywhere.iter_mut().step_by(97).for_each(|byte| *byte ^= FLIP);
    damages.push(Damage { name: "flipped everywhere".to_owned(), bytes: everywhere, is_fatal: true });
    // Half of the single bits are anywhere, and half of them in what the last addition has written.
    let anywhere: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let last: Vec<usize> = anywhere.iter().copied().filter(|at| before.get(*at) != whole.get(*at)).collect();
    for places in [anywhere, last] {
        for at in places.iter().step_by((2 * places.len() / flips).max(1)) {
            let mut bytes = whole.to_vec();
            bytes[*at] ^= FLIP;
            damages.push(Damage { name: format!("bit flipped in byte {at}"), bytes, is_fatal: false });
        }
    }
    damages
}

/// Kills the server after it has acknowledged additions, and starts it with damaged copies of its database. For each
/// copy, the server must report the damage and not start, unless no addition is lost. It must not start without a
/// database either.
pub(crate) async fn damaged_store(plan: &Plan) -> anyhow::Result<Findings> {
    let (server, to) = start(tempfile::tempdir()?, true).await?;
    let (client, calls) = (client(to).await?, plan.form.calls());
    let mut acknowledged = acknowledge(&client, 0..calls).await?;
    let before = fs::read(store_in(server.folder())).context("cannot read the database")?;
    acknowledged.extend(acknowledge(&client, calls..calls + 1).await?);
    let whole = fs::read(store_in(server.kill().await?.path())).context("cannot read the database")?;
    let (mut findings, mut refused, mut harmless) = (Findings::default(), 0, 0);
    let undamaged = Damage { name: "undamaged".to_owned(), bytes: whole.clone(), is_fatal: false };
    let damages = damages(&before, &whole, plan.form.either(24, 150));
    let count = damages.len();
    for Damage { name, bytes, is_fatal } in damages.into_iter().chain([undamaged]) {
        let folder = tempfile::tempdir()?;
        fs::write(store_in(folder.path()), bytes)?;
        match start(folder, false).await {
            Ok((server, to)) => {
                let lost = count_lost(to, &acknowledged).await?;
                drop(server);
                harmless += usize::from(lost == 0 && name != "undamaged");
                if lost > 0 {
                    let all = acknowledged.len();
                    findings
                        .faults
                        .push(format!("{name}: the server starts, and {lost} of {all} acknowledged effects are lost"));
                } else if is_fatal {
                    findings.faults.push(format!("{name}: the server starts"));
                }
            }
            Err(error) => {
                let said = format!("{error:#}");
                if name == "undamaged" {
                    findings.faults.push(format!("the server does not start with the undamaged store: {said}"));
                } else if said.contains("acknowledged additions") {
                    refused += 1;
                } else {
                    findings.faults.push(format!("{name}: the error does not say what is lost: {said}"));
                }
            }
        }
    }
    // A missing file is not taken for a new store.
    let missing = start(tempfile::tempdir()?, false).await;
    ensure!(missing.is_err(), "the server starts without a store");
    findings.outcome = format!("{refused} of {count} damages refused, {harmless} harmless");
    Ok(findings)
}
