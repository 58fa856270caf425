//! Floods of messages that are malformed, or that no procedure accepts.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use rpcrdma::rpc::Credential;
use rpcrdma_specs::nfs3::nfs_v3::{Nfsproc3Read, PROGRAM, VERSION};
use tokio::task::JoinSet;

use crate::{
    raw::{ATTACKER, connect, header, header_of, is_closed, mark, read_record, record, write},
    raw_iwarp::{IwarpPeer, frame, inline_message, words},
    report::Findings,
    server::NfsServer,
    trial::{Plan, Trial},
    victim::Victim,
};

const MAX_MEMORY: u64 = 256 << 20;
/// Number of concurrent attackers.
const ATTACKERS: usize = 4;
/// Maximum time for a connection to end after a violation of the protocol.
const MAX_END: Duration = Duration::from_secs(20);

/// Minimum number of messages that the server refuses before the flood ends.
const MIN_REFUSED: u64 = 200;

/// Counters that the attackers of one flood share.
#[derive(Debug, Default)]
struct Flood {
    sent: AtomicU64,
    /// Number of connections that the server has closed, or of calls that it has rejected.
    refused: AtomicU64,
}

/// Floods the server with the messages of `attack` while the victim makes its calls, and until the server has refused
/// [`MIN_REFUSED`] messages. `noun` describes refused messages in the outcome. An error of an attacker is reported as a
/// fault.
async fn flood<F>(
    plan: &Plan,
    transport: &'static str,
    noun: &str,
    attack: impl Fn(SocketAddr, Arc<Flood>, usize) -> F,
) -> anyhow::Result<Findings>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &[]).await?;
    let victim = Victim::of_nfs(&server, transport).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let counters = Arc::new(Flood::default());
    let mut attackers = JoinSet::new();
    for nth in 0..ATTACKERS {
        attackers.spawn(attack(server.address(transport), Arc::clone(&counters), nth));
    }
    trial.measure_until(&victim, || counters.refused.load(Ordering::Relaxed) >= MIN_REFUSED).await;
    while let Some(ended) = attackers.try_join_next() {
        if let Err(error) = ended? {
            trial.fault(format!("{error:#}"));
        }
    }
    attackers.shutdown().await;
    let (sent, refused) = (counters.sent.load(Ordering::Relaxed), counters.refused.load(Ordering::Relaxed));
    let outcome = format!("{sent} messages sent, {refused} {noun}");
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Waits for the server to close a connection after a violation. Fails if it does not within [`MAX_END`].
async fn expect_end(stream: &mut tokio::net::TcpStream, what: &str) -> anyhow::Result<()> {
    let ended = tokio::time::timeout(MAX_END, async {
        while !is_closed(stream) {
            stream.readable().await?;
        }
        anyhow::Ok(())
    });
    ensure!(ended.await.is_ok(), "the server did not close a connection after {what}");
    Ok(())
}

/// Returns the malformed messages of TCP, with their descriptions. Each of them ends the connection.
fn malformed_records() -> Vec<(&'static str, Vec<u8>)> {
    // Replies to no call are ignored, as those to calls that the server has given up.
    let reply = record(&words(&[1, 1, 0, 0, 0, 0]));
    vec![
        ("a record without a call", record(b"GET / HTTP/1.1\r\n\r\n..")),
        ("a reply to no call and an empty record", [reply, record(b"")].concat()),
        ("a record with an XID only", record(&words(&[1]))),
        ("an announced record of 2 GiB", mark(i32::MAX as u32).to_vec()),
    ]
}

/// Returns the malformed frames of iWARP, with their descriptions. Each of them ends the connection.
fn malformed_frames() -> Vec<(&'static str, Vec<u8>)> {
    let send = |payload: &[u8]| [&[0x41, 0x43][..], &words(&[0, 0, 1, 0]), payload].concat();
    let mut damaged = frame(&send(&inline_message(&words(&[1, 0, 2, PROGRAM, VERSION, 0, 0, 0, 0, 0]))));
    if let Some(byte) = damaged.get_mut(30) {
        *byte ^= 1;
    }
    let wrong_queue = [&[0x41, 0x43][..], &words(&[0, 9, 1, 0]), b"data"].concat();
    let wrong_number = [&[0x41, 0x43][..], &words(&[0, 0, 77, 0]), b"data"].concat();
    let wrong_opcode = [&[0x41, 0x4f][..], &words(&[0, 0, 1, 0]), b"data"].concat();
    vec![
        ("a damaged frame", damaged),
        ("a segment of an unknown queue", frame(&wrong_queue)),
        ("a segment with a wrong number", frame(&wrong_number)),
        ("an unknown operation", frame(&wrong_opcode)),
        ("a segment that is too short", frame(&[0x41])),
    ]
}

/// Sends malformed messages, each on a new connection, which the server must close.
pub(crate) async fn malformed(plan: &Plan, transport: &'static str) -> anyhow::Result<Findings> {
    flood(plan, transport, "connections closed", |to, counters, nth| async move {
        let messages = if transport == "tcp" { malformed_records() } else { malformed_frames() };
        for (what, message) in messages.iter().cycle().skip(nth) {
            let mut stream = match transport {
                "tcp" => connect(ATTACKER, to, None).await?,
                _ => IwarpPeer::connect(ATTACKER, to).await?.stream,
            };
            counters.sent.fetch_add(1, Ordering::Relaxed);
            write(&mut stream, message).await?;
            expect_end(&mut stream, what).await?;
            counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
    .await
}

/// Returns calls that the server must reject: READs with arguments that cannot be decoded, unknown programs, versions
/// and procedures, and malformed headers.
fn rejected_calls() -> anyhow::Result<Vec<Vec<u8>>> {
    let none = Credential::None;
    let garbage = [words(&[u32::MAX]), vec![0xff; 60]].concat();
    Ok(vec![
        [header_of::<Nfsproc3Read>(1, &none)?, garbage].concat(),
        header_of::<Nfsproc3Read>(2, &none)?,
        header(3, (PROGRAM + 1, VERSION, 0), &none)?,
        header(4, (PROGRAM, 77, 0), &none)?,
        header(5, (PROGRAM, VERSION, 999), &none)?,
        // A header that ends too early, and one whose credential has 4 GiB.
        words(&[6, 0, 2]),
        words(&[7, 0, 2, PROGRAM, VERSION, 0, 1, u32::MAX, 0, 0]),
    ])
}

/// Returns `true` if the message is a reply that denies the call, or that accepts it with a status other than SUCCESS.
fn is_rejection(reply: &[u8]) -> bool {
    // XID, REPLY, MSG_ACCEPTED, the verifier's flavor and length, the status (RFC 5531 section 9).
    let word = |index: usize| {
        reply
            .get(4 * index..4 * index + 4)
            .map_or(u32::MAX, |word| word.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    word(1) == 1 && (word(2) == 1 || word(5) != 0)
}

/// Sends calls that the server must reject. Each attacker sends its next call as soon as the previous one is rejected.
pub(crate) async fn garbage(plan: &Plan, transport: &'static str) -> anyhow::Result<Findings> {
    let calls = rejected_calls()?;
    flood(plan, transport, "calls rejected", |to, counters, nth| {
        let calls = calls.clone();
        async move {
            let mut tcp = connect(ATTACKER, to, None).await?;
            let mut iwarp = if transport == "tcp" { None } else { Some(IwarpPeer::connect(ATTACKER, to).await?) };
            for call in calls.iter().cycle().skip(nth) {
                counters.sent.fetch_add(1, Ordering::Relaxed);
                let reply = match &mut iwarp {
                    Some(peer) => {
                        peer.send(&inline_message(call)).await?;
                        peer.next_reply().await?
                    }
                    None => {
                        write(&mut tcp, &record(call)).await?;
                        read_record(&mut tcp).await?
                    }
                };
                ensure!(is_rejection(&reply), "the server executed a call that it must reject: {reply:x?}");
                counters.refused.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    })
    .await
}
