//! Tests of protected messages that an attacker between client and server changes. Used by the tests with the test
//! mechanism and by the tests with Kerberos.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    ops::Range as Bits,
    time::{Duration, Instant},
};

use rpcrdma::{
    client::{CallError, CallOptions, Channel, ChannelBuilder},
    rpc::{CallHeader, ReplyHeader},
    security::{ProtectionLevel, Security},
    xdr::Decoder,
};

use super::{
    net_support::*,
    proxy::{Direction, Flip, Framing, Proxy},
};

/// The parts of a message, in bits.
struct Parts {
    /// The header with its verifier, without the XID.
    header: Bits<usize>,
    /// The protected body.
    body: Bits<usize>,
}

fn parts(direction: Direction, message: &[u8]) -> Parts {
    let mut decoder = Decoder::new(message);
    let header = match direction {
        // The XID is the first word. A changed XID could be that of another call.
        Direction::ToServer => {
            CallHeader::decode(&mut decoder).unwrap();
            4..decoder.consumed()
        }
        Direction::ToClient => {
            ReplyHeader::decode(&mut decoder).unwrap();
            4..decoder.consumed()
        }
    };
    Parts { header: header.start * 8..header.end * 8, body: header.end * 8..message.len() * 8 }
}

/// Changes the bits of a call and of its reply that `select` selects, one at a time. With
/// [`ProtectionLevel::Authentication`], changes only the headers. Returns the number of changes without an effect.
///
/// RFC 2203 protects a call by checksums of its header and, with integrity and privacy, of its body. It protects a
/// reply by checksums of the sequence number of its call and of its body. Therefore, for each bit:
///
/// * The service is called with the arguments of the client, or not at all.
/// * The client receives the right result, or an error. It receives the result if the server denied the changed call,
///   because the client then sends it again with a new context (§5.3.3.3).
/// * Other calls on the connection do not fail.
///
/// The XID of a reply, the types of the messages, the record marks and the headers below RPC have no protection, and
/// are not changed here. Neither is the XID of a call, because the new XID could be that of another call.
pub async fn flipped_bits(
    server: &Running,
    state: &State,
    builder: ChannelBuilder,
    level: ProtectionLevel,
    len: u32,
    select: impl Fn(Direction, usize) -> bool,
) -> u32 {
    let (framing, scheme) = match server.transport {
        Transport::Iwarp => (Framing::Iwarp, "iwarp"),
        _ => (Framing::Records, "tcp"),
    };
    let proxy = Proxy::start_with(server.addr, framing).await;
    let channel = builder.connect(&format!("{scheme}://{}", proxy.addr)).await.unwrap();
    let data = Data(pattern(9, len).into());
    let put = async |timeout| channel.call::<Put>(&data, CallOptions::new().timeout(timeout)).await;
    let patient = Duration::from_secs(60);
    let started = Instant::now();
    let sum = put(patient).await.unwrap();
    // Some changed calls get no reply. Others need a new context, as this call did: on a busy machine, both take
    // longer.
    let brief = (started.elapsed() * 20).clamp(Duration::from_millis(500), Duration::from_secs(5));

    // This call is in progress the whole time.
    let bystander = tokio::spawn({
        let channel = channel.clone();
        async move { channel.call::<Gate>(&5, CallOptions::new().timeout(patient * 4)).await }
    });
    eventually(|| state.started.load(std::sync::atomic::Ordering::SeqCst) > 0).await;
    proxy.records();
    assert_eq!(put(patient).await.unwrap(), sum);
    let records = proxy.records();
    let [(Direction::ToServer, request), (Direction::ToClient, response)] = &records[..] else { panic!("{records:?}") };

    let (mut failed, mut resent, mut ineffective, mut in_header) = (0, 0, 0, false);
    for (direction, message) in [(Direction::ToServer, request), (Direction::ToClient, response)] {
        let Parts { header, body } = parts(direction, message);
        let end = if level == ProtectionLevel::Authentication { header.end } else { body.end };
        // The second word is the type of the message.
        let bits = (header.start + 32..end).filter(|bit| select(direction, bit - header.start));
        for bit in bits {
            in_header |= direction == Direction::ToServer && bit < header.end;
            let before = state.put_bytes.load(std::sync::atomic::Ordering::SeqCst);
            proxy.flip(Flip { direction, bit });
            let outcome = put(brief).await;
            assert!(proxy.has_flipped(), "{direction:?} {bit}");
            let executed = state.put_bytes.load(std::sync::atomic::Ordering::SeqCst) - before;
            assert!(*state.last_put.lock().unwrap() == data.0, "{direction:?} {bit}: the service got other arguments");
            match outcome {
                Ok(result) => {
                    assert_eq!(result, sum, "{direction:?} {bit}");
                    assert_eq!(executed, u64::from(len), "{direction:?} {bit}");
                    if proxy.records().len() > 2 {
                        resent += 1;
                    } else {
                        println!("{direction:?} {bit}: the change has no effect");
                        ineffective += 1;
                    }
                }
                Err(error) => {
                    // The server executed the call only if its reply was changed, or if it was repeated too late.
                    let is_late = error.to_string().contains("deadline");
                    let most = if direction == Direction::ToClient || is_late { u64::from(len) } else { 0 };
                    assert!(executed <= most, "{direction:?} {bit}: {error}");
                    assert!(!matches!(error, CallError::Connect { .. }), "{direction:?} {bit}: {error}");
                    failed += 1;
                }
            }
            proxy.records();
            call::<Null>(&channel, &()).await.unwrap_or_else(|error| panic!("{direction:?} {bit}: {error}"));
            proxy.records();
        }
    }
    assert!(failed > 0 && (resent > 0) == in_header, "{failed} calls failed, {resent} were repeated");
    assert_eq!(proxy.connections(), 1, "a change ended the connection");
    state.gate.add_permits(1);
    assert_eq!(bystander.await.unwrap().unwrap(), 5, "another call failed");
    println!("{level:?}, {len} bytes: {failed} calls failed, {resent} were sent again with a new context");
    ineffective
}

/// Returns `true` if known plaintext is visible between client and server.
pub async fn is_visible(server: &Running, security: impl Security) -> bool {
    let proxy = Proxy::start(server.addr).await;
    let channel = Channel::builder().security(security).connect(&format!("tcp://{}", proxy.addr)).await.unwrap();
    let plaintext = pattern(77, 100_000);
    call::<Put>(&channel, &Data(plaintext.clone().into())).await.unwrap();
    assert!(call::<Get>(&channel, &Range(77, 100_000)).await.unwrap().0 == plaintext);
    let records = proxy.records();
    let visible = |direction| {
        let mut records = records.iter().filter(|(of, _)| *of == direction);
        // Any 16 bytes at the start, in the middle or at the end.
        records.any(|(_, record)| [0, 50_000, 99_984].iter().any(|&at| find(record, &plaintext[at..at + 16])))
    };
    let [call, reply] = [visible(Direction::ToServer), visible(Direction::ToClient)];
    assert_eq!(call, reply);
    call
}

fn find(record: &[u8], wanted: &[u8]) -> bool {
    record.windows(wanted.len()).any(|window| window == wanted)
}
