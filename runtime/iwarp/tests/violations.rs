//! Peers that violate MPA, DDP or RDMAP, and invalid local requests. Checks the bytes of each Terminate, and the reason
//! reported locally.

mod iwarp_common;

use bytes::Bytes;
use iwarp_common::*;
use rpcrdma_proto::provider::{
    Access, Completion, DisconnectReason, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory, SetupParams,
    WorkError, WorkRequest, WrId,
};

fn params() -> SetupParams {
    let mut params = SetupParams::default();
    (params.receive_count, params.receive_size, params.responder_resources) = (4, 64, 2);
    params
}

/// Returns the DDP segment of a Terminate with this payload.
fn terminate(header: &[u8]) -> Vec<u8> {
    untagged(TERMINATE, 0, 2, 1, 0, header)
}

/// Returns a Terminate with the segment length and the DDP header of `offender`. `types` is the byte with the layer and
/// the error type. The Terminate also has the RDMA Read Request header if `with_read` is `true`.
fn terminate_with(types: u8, code: u8, offender: &[u8], with_read: bool) -> Vec<u8> {
    let ddp_len = if offender[0] & 0x80 != 0 { 14 } else { 18 };
    let mut out = vec![types, code, if with_read { 0xe0 } else { 0xc0 }, 0];
    out.extend_from_slice(&u16::try_from(offender.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&offender[..ddp_len + if with_read { 28 } else { 0 }]);
    terminate(&out)
}

/// The STags of three memory regions of 32 bytes: one that the peer may write, one that it may read, and a sink of
/// local RDMA Reads.
#[derive(Clone, Copy)]
struct Stags {
    sink: u32,
    source: u32,
    landing: u32,
}

/// Sends FPDUs that violate the protocol. `build` returns them and the expected Terminate. Checks the Terminate that
/// the peer receives, that the local disconnect reason contains `words`, and that no payload was copied. Returns the
/// completions.
async fn violation(build: impl FnOnce(Stags) -> (Vec<Vec<u8>>, Vec<u8>), words: &str) -> Vec<Completion> {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let sink =
        queue_pair.register(RegisterableMemory::Sink(vec![0xee; 32].into()), Access::RemoteWrite).unwrap().handle;
    let source =
        queue_pair.register(RegisterableMemory::Source(vec![1; 32].into()), Access::RemoteRead).unwrap().handle;
    let landing =
        queue_pair.register(RegisterableMemory::Sink(vec![0xee; 32].into()), Access::ReadSink).unwrap().handle;
    let (bytes, expected) = build(Stags { sink: sink.0, source: source.0, landing: landing.0 });
    let peer = async {
        raw.write(&bytes.concat()).await;
        assert_eq!(raw.ulpdu().await, expected, "Terminate");
        raw.end().await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    match reason {
        DisconnectReason::PeerViolation(text) => assert!(text.contains(words), "{text:?} does not contain {words:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(queue_pair.copied_payload_bytes(), 0);
    completions
}

/// Sends one segment that the provider must refuse with a Terminate. `types` is the byte with the layer and the error
/// type, and `code` is the error code. Checks that the local disconnect reason contains `words`.
async fn refused(types: u8, code: u8, segment: impl FnOnce(Stags) -> Vec<u8>, words: &str) {
    let build = |stags: Stags| {
        let segment = segment(stags);
        let expected = terminate_with(types, code, &segment, types == 0x01 && segment[1] == 0x41);
        (vec![fpdu(&segment)], expected)
    };
    violation(build, words).await;
}

#[tokio::test]
async fn wrong_crc() {
    type Build = fn(Stags) -> Vec<u8>;
    let builds: [Build; 5] = [
        |_| send(1, b"damaged"),
        |_| untagged([0x41, 0x45], 0, 0, 1, 0, b"damaged"),
        |stags| untagged([0x41, 0x44], stags.source, 0, 1, 0, b"damaged"),
        |stags| read_request(1, (1, 0), 4, (stags.source, 0)),
        |stags| tagged(WRITE, stags.sink, 0, b"damaged"),
    ];
    for build in builds {
        // The field itself, and the last byte before it.
        for from_end in [1, 4, 5] {
            let build = |stags| {
                let mut bytes = fpdu(&build(stags));
                let at = bytes.len() - from_end;
                bytes[at] ^= 1;
                (vec![bytes], terminate(&[0x20, 0x02, 0, 0]))
            };
            let completions = violation(build, "wrong CRC").await;
            assert!(completions.is_empty(), "{completions:?}");
        }
    }
}

/// RFC 5044 §8, RFC 5041 §7.1: nothing is delivered after an error. RFC 5040 §6.2.1: the socket is closed after the
/// peer has closed its own, so the Terminate arrives.
#[tokio::test]
async fn nothing_is_delivered_after_an_error() {
    let mut damaged = fpdu(&send(1, b"damaged"));
    damaged[23] ^= 1;
    for first in [damaged, fpdu(&send(2, b"wrong"))] {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        let source = queue_pair.register(RegisterableMemory::Source(vec![1; 32].into()), Access::RemoteRead).unwrap();
        let peer = async {
            raw.write(&first).await;
            assert_eq!(raw.ulpdu().await[1], 0x47);
            raw.end().await;
            for _ in 0..2 {
                let late = [send(1, b"late"), read_request(1, (1, 0), 4, (source.handle.0, 0))];
                raw.fpdus(&[&late[0], &late[1], &send(2, b"late")]).await;
                tokio::task::yield_now().await;
            }
            raw.end().await;
            drop(raw);
        };
        let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        assert!(matches!(reason, DisconnectReason::PeerViolation(_)), "{reason:?}");
        assert!(completions.is_empty(), "{completions:?}");
    }
}

/// RFC 5040 §7.1: an invalid work request fails and ends the connection. The Terminate is sent only if the peer has
/// sent an FPDU.
#[tokio::test]
async fn invalid_requests_end_the_connection() {
    for received in [true, false] {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        if received {
            raw.fpdus(&[&send(1, b"go")]).await;
            completions(&mut queue_pair).await;
        }
        let remote = RemoteMemory { handle: MemoryHandle(1), offset: 0 };
        queue_pair.post(WorkRequest::Read { id: WrId(7), sink: MemoryHandle(2), sink_offset: 0, remote, len: 4 });
        let peer = async {
            // RFC 5044 §7.1.2: the responder sends nothing before the first FPDU has arrived.
            if received {
                assert_eq!(raw.ulpdu().await, terminate(&[0, 0, 0, 0]));
            }
            raw.end().await;
            drop(raw);
        };
        let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        assert_eq!(reason, DisconnectReason::Local);
        assert!(
            matches!(completions[..], [Completion::Failed { id: WrId(7), error: WorkError::Local(_) }]),
            "{completions:?}"
        );
    }
}

/// RFC 5040 §4.1, §4.8: reserved bits, and the Invalidate STag of messages that invalidate nothing, are ignored.
#[tokio::test]
async fn meaningless_fields_are_ignored() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let source =
        queue_pair.register(RegisterableMemory::Source(vec![1; 32].into()), Access::RemoteRead).unwrap().handle.0;
    let peer = async {
        let mut request = read_request(1, (9, 0), 4, (source, 0));
        request[2..6].copy_from_slice(&source.to_be_bytes());
        raw.fpdus(&[
            &untagged([0x7d, 0x73], source, 0, 1, 0, b"x"),
            &untagged([0x41, 0x45], source, 0, 2, 0, b"x"),
            &untagged([0x01, 0x75], source, 0, 3, 0, b"x"),
            &untagged([0x7d, 0x45], 1, 0, 3, 1, b"x"),
            &request,
        ])
        .await;
        assert_eq!(raw.ulpdu().await, tagged(READ_RESPONSE, 9, 0, &[1; 4]), "the memory is still valid");
        raw.fpdus(&[&untagged([0x7d, 0x77], source, 2, 1, 0, &[0x12, 0x02, 0x1f, 0xff])]).await;
        raw.end().await;
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(matches!(reason, DisconnectReason::ReportedByPeer(_)), "{reason:?}");
    assert_eq!(completions.len(), 3);
    let is_plain = |one: &Completion| matches!(one, Completion::Received { invalidated: None, .. });
    assert!(completions.iter().all(is_plain), "{completions:?}");
}

/// RFC 5040 §5.5: RDMA Reads complete in the order posted, each when its whole response has arrived. A response for the
/// sink of a later RDMA Read is refused.
#[tokio::test]
async fn read_responses_arrive_in_order() {
    for order in [[0, 1], [1, 0]] {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        let sinks = [(); 2].map(|()| {
            queue_pair.register(RegisterableMemory::Sink(vec![0; 16].into()), Access::ReadSink).unwrap().handle
        });
        let remote = RemoteMemory { handle: MemoryHandle(0xabcd), offset: 0 };
        for (id, sink) in (0..).zip(sinks) {
            queue_pair.post(WorkRequest::Read { id: WrId(id), sink, sink_offset: 0, remote, len: 16 });
        }
        let in_order = order == [0, 1];
        let peer = async {
            raw.fpdus(&[&send(1, b"")]).await;
            raw.ulpdu().await;
            raw.ulpdu().await;
            let segments: Vec<_> = order
                .iter()
                .flat_map(|sink| {
                    let stag = sinks[*sink].0;
                    [
                        tagged([0x81, 0x42], stag, 0, &[1; 15]),
                        tagged([0x81, 0x42], stag, 15, &[]),
                        send(2 + *sink as u32, b""),
                        tagged(READ_RESPONSE, stag, 15, &[1; 1]),
                    ]
                })
                .collect();
            if in_order {
                raw.fpdus(&segments.iter().map(|one| &one[..]).collect::<Vec<_>>()).await;
            } else {
                raw.fpdus(&[&segments[0]]).await;
                assert_eq!(raw.ulpdu().await, terminate_with(0x11, 0x00, &segments[0], false));
            }
            drop(raw);
        };
        let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
        use Completion::{Failed, Read, Received};
        if in_order {
            assert!(
                matches!(
                    completions[..],
                    [Received { .. }, Received { .. }, Read { id: WrId(0) }, Received { .. }, Read { id: WrId(1) }]
                ),
                "{completions:?}"
            );
        } else {
            assert!(
                matches!(completions[..], [Received { .. }, Failed { id: WrId(0), .. }, Failed { id: WrId(1), .. }]),
                "{completions:?}"
            );
        }
    }
}

/// RFC 5042 §6.2.2: an RDMA Write does not change memory after the memory was invalidated, even if a part of the RDMA
/// Write arrived before.
#[tokio::test]
async fn memory_invalidated_meanwhile() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let memory = RegisterableMemory::Sink(vec![0xee; 32].into());
    let handle = queue_pair.register(memory, Access::RemoteWrite).unwrap().handle;
    let segment = tagged(WRITE, handle.0, 0, &[7; 32]);
    let bytes = fpdu(&segment);
    let (first, rest) = bytes.split_at(26);
    raw.write(&[&fpdu(&send(1, b"")), first].concat()).await;
    let received = completions(&mut queue_pair).await;
    assert!(matches!(received[..], [Completion::Received { .. }]), "{received:?}");
    queue_pair.post(WorkRequest::Invalidate { id: WrId(1), handle });
    let invalidated = completions(&mut queue_pair).await;
    let [Completion::Invalidated { memory: RegisterableMemory::Sink(memory), .. }] = &invalidated[..] else {
        panic!("{invalidated:?}")
    };
    let peer = async {
        raw.write(rest).await;
        assert_eq!(raw.ulpdu().await, terminate_with(0x11, 0x00, &segment, false));
        raw.end().await;
        drop(raw);
    };
    let ((), (_, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(matches!(reason, DisconnectReason::PeerViolation(_)), "{reason:?}");
    assert_eq!(memory[10..], [0xee; 22]);
}

/// RFC 5042 §6.1.1: an STag of one connection is unknown on another connection.
#[tokio::test]
async fn stags_belong_to_their_connection() {
    let (_raw, mut other) = accepted(params()).await;
    let sink = other.register(RegisterableMemory::Sink(vec![0; 32].into()), Access::RemoteWrite).unwrap().handle.0;
    let source = other.register(RegisterableMemory::Source(vec![1; 32].into()), Access::RemoteRead).unwrap().handle.0;
    refused(0x11, 0x00, |_| tagged(WRITE, sink, 0, &[1; 4]), "RDMA Write").await;
    refused(0x01, 0x00, |_| read_request(1, (1, 0), 4, (source, 0)), "RDMA Read").await;
    refused(0x01, 0x09, |_| untagged([0x41, 0x44], source, 0, 1, 0, b"x"), "invalidate").await;
}

#[tokio::test]
async fn wrong_crc_hides_what_else_is_wrong() {
    let build = |_: Stags| {
        let mut bytes = fpdu(&tagged(WRITE, 0x1234_5678, 0, b"damaged"));
        let last = bytes.len() - 1;
        bytes[last] ^= 0x80;
        (vec![bytes], terminate(&[0x20, 0x02, 0, 0]))
    };
    violation(build, "wrong CRC").await;
}

#[tokio::test]
async fn length_shorter_than_a_header() {
    for len in [0, 1, 13] {
        let ulpdu = vec![0xc1; len];
        violation(|_| (vec![fpdu(&ulpdu)], terminate(&[0x02, 0x07, 0, 0])), "shorter than its DDP header").await;
    }
    // Long enough for a tagged header, but untagged.
    let ulpdu = vec![0x41; 17];
    violation(|_| (vec![fpdu(&ulpdu)], terminate(&[0x02, 0x07, 0, 0])), "shorter than its DDP header").await;
}

#[tokio::test]
async fn write_to_unknown_stag() {
    refused(0x11, 0x00, |stags| tagged(WRITE, stags.sink ^ 0x8000_0001, 0, &[1; 9]), "RDMA Write").await;
}

#[tokio::test]
async fn write_without_the_right() {
    refused(0x11, 0x00, |stags| tagged(WRITE, stags.source, 0, &[1; 9]), "RDMA Write").await;
    refused(0x11, 0x00, |stags| tagged(WRITE, stags.landing, 0, &[1; 9]), "RDMA Write").await;
}

#[tokio::test]
async fn write_out_of_bounds() {
    refused(0x11, 0x01, |stags| tagged(WRITE, stags.sink, 24, &[1; 9]), "9 bytes at 0x18").await;
    refused(0x11, 0x01, |stags| tagged(WRITE, stags.sink, 1 << 40, &[1; 1]), "RDMA Write").await;
}

#[tokio::test]
async fn write_that_wraps() {
    refused(0x11, 0x03, |stags| tagged(WRITE, stags.sink, u64::MAX - 7, &[1; 9]), "RDMA Write").await;
}

#[tokio::test]
async fn wrong_ddp_version() {
    for version in [0, 2, 3] {
        refused(0x11, 0x04, |stags| tagged([0xc0 | version, 0x40], stags.sink, 0, &[1; 4]), "DDP version").await;
        refused(0x12, 0x06, |_| untagged([0x40 | version, 0x43], 0, 0, 1, 0, b"x"), "DDP version").await;
    }
}

#[tokio::test]
async fn wrong_rdmap_version() {
    for version in [0, 2, 3] {
        let words = format!("RDMAP version {version}");
        refused(0x02, 0x05, |stags| tagged([0xc1, version << 6], stags.sink, 0, &[1; 4]), &words).await;
        refused(0x02, 0x05, |_| untagged([0x41, version << 6 | 3], 0, 0, 1, 0, b"x"), &words).await;
    }
}

#[tokio::test]
async fn unexpected_opcode() {
    // Reserved opcodes, tagged and untagged; a tagged opcode on a queue; an opcode of another queue.
    refused(0x02, 0x06, |stags| tagged([0xc1, 0x4f], stags.sink, 0, &[1; 4]), "opcode 0xf").await;
    refused(0x02, 0x06, |_| untagged([0x41, 0x48], 0, 0, 1, 0, b"x"), "opcode 0x8").await;
    refused(0x02, 0x06, |_| untagged([0x41, 0x40], 0, 0, 1, 0, b"x"), "queue 0").await;
    refused(0x02, 0x06, |_| untagged([0x41, 0x43], 0, 1, 1, 0, &[0; 28]), "queue 1").await;
    refused(0x02, 0x06, |_| untagged([0x41, 0x43], 0, 2, 1, 0, &[0; 4]), "queue 2").await;
    refused(0x02, 0x06, |stags| tagged([0xc1, 0x43], stags.sink, 0, &[1; 4]), "tagged").await;
}

#[tokio::test]
async fn read_response_without_a_read() {
    refused(0x02, 0x06, |stags| tagged(READ_RESPONSE, stags.landing, 0, &[1; 4]), "without an RDMA Read").await;
}

#[tokio::test]
async fn invalid_queue() {
    refused(0x12, 0x01, |_| untagged(SEND, 0, 3, 1, 0, b"x"), "queue 3").await;
}

/// Checks every opcode on the queues that do not accept it, including some queues that RDMAP does not use (RFC 5040
/// §4.1, figure 4). The length of the message does not change the reason, so each message is also sent longer than any
/// buffer of its queue.
#[tokio::test]
async fn each_queue_accepts_its_own_opcodes_only() {
    const SENDS: [u8; 4] = [3, 4, 5, 6];
    for queue in [0, 1, 2, 3, 4, u32::MAX] {
        for opcode in 0..16 {
            let (types, code, words) = match (queue, opcode) {
                (0, opcode) if SENDS.contains(&opcode) => continue,
                (1, 1) | (2, 7) => continue,
                (0..=2, 0..=7) => (0x02, 0x06, format!("opcode {opcode:#x} on queue {queue}")),
                (0..=2, _) => (0x02, 0x06, format!("opcode {opcode:#x}, which is reserved")),
                _ => (0x12, 0x01, format!("queue {queue}")),
            };
            for len in [0, 1, 28, 65, 1000] {
                let segment = untagged([0x41, 0x40 | opcode], 0, queue, 1, 0, &vec![0; len]);
                refused(types, code, |_| segment, &words).await;
            }
        }
    }
}

/// A wrong opcode is reported even if the queue has no buffer for the message.
#[tokio::test]
async fn wrong_opcode_on_a_queue_without_buffers() {
    for (queue, opcode) in [(0, 1), (0, 7), (1, 3), (1, 7)] {
        let mut params = params();
        (params.receive_count, params.responder_resources) = (0, 0);
        let (mut raw, mut queue_pair) = accepted(params).await;
        let segment = untagged([0x41, 0x40 | opcode], 0, queue, 1, 0, &[0; 28]);
        let peer = async {
            raw.fpdus(&[&segment]).await;
            assert_eq!(
                raw.ulpdu().await,
                terminate_with(0x02, 0x06, &segment, false),
                "opcode {opcode} on queue {queue}"
            );
            raw.end().await;
            drop(raw);
        };
        let ((), (_, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        assert!(matches!(reason, DisconnectReason::PeerViolation(_)), "{reason:?}");
    }
}

#[tokio::test]
async fn wrong_sequence_number() {
    for msn in [0, 2, u32::MAX] {
        refused(0x12, 0x03, |_| send(msn, b"x"), "sequence number").await;
    }
    for msn in [0, 2, 7] {
        refused(0x12, 0x03, |_| read_request(msn, (1, 0), 0, (0, 0)), "sequence number").await;
        refused(0x12, 0x03, |_| untagged(TERMINATE, 0, 2, msn, 0, &[0; 4]), "sequence number").await;
    }
}

#[tokio::test]
async fn sequence_number_repeated() {
    let build = |_: Stags| {
        let twice = send(1, b"again");
        (vec![fpdu(&twice), fpdu(&twice)], terminate_with(0x12, 0x03, &twice, false))
    };
    let completions = violation(build, "sequence number 1 where 2").await;
    assert!(matches!(&completions[..], [Completion::Received { message, .. }] if **message == b"again"[..]));
}

#[tokio::test]
async fn wrong_message_offset() {
    refused(0x12, 0x04, |_| untagged(SEND, 0, 0, 1, 4, b"x"), "message offset 4").await;
    refused(0x12, 0x04, |_| untagged(READ_REQUEST, 0, 1, 1, 4, &[0; 28]), "message offset 4").await;
    refused(0x12, 0x04, |_| untagged(TERMINATE, 0, 2, 1, 4, &[0; 4]), "message offset 4").await;
    // A gap between the segments of a message, and segments that overlap.
    for mo in [5, 3, 0] {
        let build = |_: Stags| {
            let other = untagged(SEND, 0, 0, 1, mo, b"ef");
            let first = untagged([0x01, 0x43], 0, 0, 1, 0, b"abcd");
            (vec![fpdu(&first), fpdu(&other)], terminate_with(0x12, 0x04, &other, false))
        };
        violation(build, &format!("message offset {mo} where 4")).await;
    }
}

#[tokio::test]
async fn opcode_changes_in_a_message() {
    let build = |_: Stags| {
        let other = untagged([0x41, 0x45], 0, 0, 1, 4, b"ef");
        (
            vec![fpdu(&untagged([0x01, 0x43], 0, 0, 1, 0, b"abcd")), fpdu(&other)],
            terminate_with(0x02, 0x06, &other, false),
        )
    };
    violation(build, "middle of another message").await;
}

#[tokio::test]
async fn message_too_long() {
    refused(0x12, 0x05, |_| send(1, &[1; 65]), "longer than the 64 bytes").await;
    // Messages of exactly that length fit.
    let build = |_: Stags| {
        let third = untagged([0x41, 0x45], 0, 0, 3, 0, &[1; 65]);
        let fit = [fpdu(&send(1, &[1; 64])), fpdu(&untagged([0x41, 0x45], 0, 0, 2, 0, &[1; 64]))].concat();
        (vec![fit, fpdu(&third)], terminate_with(0x12, 0x05, &third, false))
    };
    let completions = violation(build, "longer than the 64 bytes").await;
    assert_eq!(completions.len(), 2, "{completions:?}");
    let build = |_: Stags| {
        let second = untagged(SEND, 0, 0, 1, 60, &[2; 5]);
        (
            vec![fpdu(&untagged([0x01, 0x43], 0, 0, 1, 0, &[1; 60])), fpdu(&second)],
            terminate_with(0x12, 0x05, &second, false),
        )
    };
    violation(build, "longer than the 64 bytes").await;
}

/// Each Send consumes a Receive, even if it has no payload, so the fifth Send to four Receives is refused. Plain Sends
/// and Sends with Solicited Event are tested because they are delivered by different code.
#[tokio::test]
async fn no_receive_posted() {
    for control in [[0x41, 0x43], [0x41, 0x45]] {
        let one = |msn: u32| untagged(control, 0, 0, msn, 0, &[1; 2][..msn as usize % 2]);
        let build = |_: Stags| {
            let fifth = untagged(control, 0, 0, 5, 0, b"one too many");
            let mut bytes: Vec<_> = (1..=4).map(|msn| fpdu(&one(msn))).collect();
            bytes.push(fpdu(&fifth));
            (bytes, terminate_with(0x12, 0x02, &fifth, false))
        };
        let completions = violation(build, "no Receive").await;
        assert_eq!(completions.len(), 4);
    }
}

#[tokio::test]
async fn reads_beyond_the_depth() {
    let build = |_: Stags| {
        let third = read_request(3, (1, 0), 0, (0, 0));
        let bytes =
            vec![fpdu(&read_request(1, (1, 0), 0, (0, 0))), fpdu(&read_request(2, (1, 0), 0, (0, 0))), fpdu(&third)];
        (bytes, terminate_with(0x12, 0x02, &third, false))
    };
    violation(build, "than the 2 negotiated").await;
}

#[tokio::test]
async fn reads_that_are_not_allowed() {
    refused(0x01, 0x00, |stags| read_request(1, (1, 0), 4, (stags.source ^ 1, 0)), "RDMA Read").await;
    refused(0x01, 0x01, |stags| read_request(1, (1, 0), 5, (stags.source, 28)), "5 bytes at 0x1c").await;
    refused(0x01, 0x01, |stags| read_request(1, (1, 0), u32::MAX, (stags.source, 0)), "RDMA Read").await;
    refused(0x01, 0x02, |stags| read_request(1, (1, 0), 4, (stags.sink, 0)), "RDMA Read").await;
    refused(0x01, 0x02, |stags| read_request(1, (1, 0), 4, (stags.landing, 0)), "RDMA Read").await;
    refused(0x01, 0x04, |stags| read_request(1, (1, 0), 4, (stags.source, u64::MAX - 2)), "RDMA Read").await;
}

#[tokio::test]
async fn read_requests_of_wrong_size() {
    refused(0x12, 0x05, |_| untagged(READ_REQUEST, 0, 1, 1, 0, &[0; 29]), "29 bytes").await;
    refused(0x02, 0xff, |_| untagged(READ_REQUEST, 0, 1, 1, 0, &[0; 27]), "incomplete").await;
    refused(0x02, 0xff, |_| untagged([0x01, 0x41], 0, 1, 1, 0, &[0; 28]), "incomplete").await;
}

#[tokio::test]
async fn stag_that_cannot_be_invalidated() {
    refused(0x01, 0x09, |_| untagged([0x41, 0x44], 99, 0, 1, 0, b"x"), "invalidate").await;
    refused(0x01, 0x09, |stags| untagged([0x41, 0x46], stags.landing, 0, 1, 0, b"x"), "invalidate").await;
}

#[tokio::test]
async fn terminate_too_long() {
    refused(0x12, 0x05, |_| untagged(TERMINATE, 0, 2, 1, 0, &[0; 65]), "Terminate of 65").await;
}

/// Data after the first error is dropped, and only the first error is reported (RFC 5040 §7.1 rule 4).
#[tokio::test]
async fn first_error_is_reported() {
    let build = |_: Stags| {
        let first = send(9, b"wrong");
        (vec![fpdu(&first), fpdu(&send(1, b"late")), vec![0xff; 5000]], terminate_with(0x12, 0x03, &first, false))
    };
    let completions = violation(build, "sequence number 9").await;
    assert!(completions.is_empty(), "{completions:?}");
}

/// An RDMA Read Response is refused unless it goes to the sink of the RDMA Read, from front to back, and has the length
/// of the RDMA Read.
#[tokio::test]
async fn wrong_read_responses() {
    type Build = fn(u32, u32) -> Vec<u8>;
    let cases: [(u8, u8, Build); 8] = [
        (0x11, 0x00, |sink, _| tagged(READ_RESPONSE, sink ^ 1, 4, &[7; 16])),
        (0x11, 0x00, |_, other| tagged(READ_RESPONSE, other, 4, &[7; 16])),
        (0x11, 0x01, |sink, _| tagged(READ_RESPONSE, sink, 0, &[7; 16])),
        (0x11, 0x01, |sink, _| tagged(READ_RESPONSE, sink, 5, &[7; 15])),
        (0x11, 0x01, |sink, _| tagged(READ_RESPONSE, sink, 4, &[7; 17])),
        (0x11, 0x03, |sink, _| tagged(READ_RESPONSE, sink, u64::MAX, &[7; 16])),
        (0x02, 0xff, |sink, _| tagged(READ_RESPONSE, sink, 4, &[7; 15])),
        (0x02, 0xff, |_, _| tagged(READ_RESPONSE, 0, 0, &[])),
    ];
    for (types, code, build) in cases {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        let [sink, other] = [(); 2].map(|()| {
            queue_pair.register(RegisterableMemory::Sink(vec![0xee; 32].into()), Access::ReadSink).unwrap().handle
        });
        let remote = RemoteMemory { handle: MemoryHandle(0xabcd), offset: 0x99 };
        queue_pair.post(WorkRequest::Read { id: WrId(5), sink, sink_offset: 4, remote, len: 16 });
        let peer = async {
            // The responder may send once it has received.
            raw.fpdus(&[&send(1, b"")]).await;
            assert_eq!(raw.ulpdu().await, read_request(1, (sink.0, 4), 16, (0xabcd, 0x99)));
            let response = build(sink.0, other.0);
            raw.fpdus(&[&response]).await;
            assert_eq!(raw.ulpdu().await, terminate_with(types, code, &response, false));
            raw.end().await;
            drop(raw);
        };
        let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        assert!(matches!(reason, DisconnectReason::PeerViolation(_)), "{reason:?}");
        assert!(
            matches!(&completions[..], [Completion::Received { .. }, Completion::Failed { .. }]),
            "{completions:?}"
        );
        assert_eq!(queue_pair.copied_payload_bytes(), 0);
    }
}

/// The STag and the offset are not checked in zero-length tagged messages (RFC 5041 §5.2) and in zero-length RDMA Read
/// Requests (RFC 5040 §5.2.1).
#[tokio::test]
async fn empty_messages_are_not_checked() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    queue_pair.register(RegisterableMemory::Source(Bytes::from_static(b"x")), Access::RemoteRead).unwrap();
    let peer = async {
        raw.fpdus(&[
            &tagged(WRITE, 0xffff_ffff, u64::MAX, &[]),
            &read_request(1, (0x1234, 0x5678), 0, (0xffff_ffff, u64::MAX)),
            &send(1, &[]),
        ])
        .await;
        assert_eq!(raw.ulpdu().await, tagged(READ_RESPONSE, 0x1234, 0x5678, &[]));
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(
        matches!(&completions[..], [Completion::Received { message, .. }] if message.is_empty()),
        "{completions:?}"
    );
    assert_eq!(reason, DisconnectReason::Remote);
}
