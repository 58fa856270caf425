//! Established connections against scripted peers: segmentation of the stream, markers, the order of messages,
//! Terminates, silent peers, and teardown.

mod iwarp_common;

use std::time::Duration;

use bytes::Bytes;
use iwarp_common::*;
use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_proto::memory::MessageBuf;
use rpcrdma_proto::provider::{
    Access, Completion, Connector, DisconnectReason, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory,
    WorkError, WorkRequest, WrId,
    conformance::{message, pattern},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

fn send_request(id: u64, bytes: &[u8]) -> WorkRequest {
    WorkRequest::Send { id: WrId(id), message: message(bytes), invalidate: None, solicited: false, signaled: true }
}

fn read_work(id: u64, sink: MemoryHandle, len: u32) -> WorkRequest {
    let remote = RemoteMemory { handle: MemoryHandle(0x77), offset: 0 };
    WorkRequest::Read { id: WrId(id), sink, sink_offset: 0, remote, len }
}

/// Tagged data is placed without a copy, however TCP splits the stream.
#[tokio::test]
async fn delivery_in_pieces() {
    for piece in [1, 2, 3, 5, 15, 16, 17, 20, 23, 64, 509, 70_000] {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        let sink =
            queue_pair.register(RegisterableMemory::Sink(vec![0; 700].into()), Access::RemoteWrite).unwrap().handle;
        let landing =
            queue_pair.register(RegisterableMemory::Sink(vec![0; 700].into()), Access::ReadSink).unwrap().handle;
        queue_pair.post(read_work(1, landing, 501));
        let data = pattern(700, piece);
        let response = pattern(501, piece + 1);
        let stream = [
            send(1, b"first"),
            tagged([0x81, 0x40], sink.0, 0, &data[..333]),
            tagged(WRITE, sink.0, 333, &data[333..]),
            send(2, &[]),
            tagged([0x81, 0x42], landing.0, 0, &response[..500]),
            tagged(READ_RESPONSE, landing.0, 500, &response[500..]),
            untagged([0x01, 0x43], 0, 0, 3, 0, &data[..50]),
            untagged([0x01, 0x43], 0, 0, 3, 50, &[]),
            untagged(SEND, 0, 0, 3, 50, &data[50..100]),
        ];
        let peer = async {
            raw.fpdus(&[&stream[0]]).await;
            assert_eq!(raw.ulpdu().await, read_request(1, (landing.0, 0), 501, (0x77, 0)));
            let bytes: Vec<u8> = stream[1..].iter().flat_map(|ulpdu| fpdu(ulpdu)).collect();
            for piece in bytes.chunks(piece) {
                raw.write(piece).await;
                tokio::task::yield_now().await;
            }
            raw.0.shutdown().await.unwrap();
        };
        let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        assert_eq!(reason, DisconnectReason::Remote);
        let received: Vec<&[u8]> = completions
            .iter()
            .filter_map(|completion| match completion {
                Completion::Received { message, .. } => Some(&**message),
                _ => None,
            })
            .collect();
        assert_eq!(received, [b"first", &[][..], &data[..100]]);
        assert!(completions.iter().any(|completion| matches!(completion, Completion::Read { id: WrId(1) })));
        assert_eq!(queue_pair.copied_payload_bytes(), 0, "payload was copied with pieces of {piece} bytes");
        for (handle, expected) in [(sink, &data[..]), (landing, &response)] {
            queue_pair.post(WorkRequest::Invalidate { id: WrId(9), handle });
            match completions_of(&mut queue_pair).await {
                Completion::Invalidated { memory: RegisterableMemory::Sink(memory), .. } => {
                    assert_eq!(&memory[..expected.len()], expected);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn completions_of(queue_pair: &mut rpcrdma_iwarp::IwarpQueuePair) -> Completion {
    completions(queue_pair).await.pop().expect("no completion")
}

/// 50 small messages that have arrived are received in at most two polls, and 50 Sends complete in one poll.
#[tokio::test]
async fn small_messages_are_packed() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let messages: Vec<_> = (1..=50).map(|msn| send(msn, &pattern(60, msn as usize))).collect();
    raw.fpdus(&messages.iter().map(|m| &m[..]).collect::<Vec<_>>()).await;
    let mut received = Vec::new();
    let mut polls = 0;
    while received.len() < 50 {
        polls += 1;
        for completion in completions(&mut queue_pair).await {
            match completion {
                Completion::Received { message, .. } => received.push(message.to_vec()),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(polls <= 2, "50 waiting messages took {polls} polls");
    for (bytes, id) in received.iter().zip(0..) {
        queue_pair.post(send_request(id, bytes));
    }
    let sent = completions(&mut queue_pair).await;
    assert_eq!(sent.len(), 50, "messages were not batched");
    for message in &messages {
        assert_eq!(&raw.ulpdu().await, message);
    }
}

/// A long message is segmented, with correct offsets and last flags. Each kind of Send has its opcode.
#[tokio::test]
async fn segment_encoding() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let data = pattern(64_750 + 100, 1);
    queue_pair.post(send_request(1, &data));
    let remote = RemoteMemory { handle: MemoryHandle(0x0a0b_0c0d), offset: 1 << 40 };
    queue_pair.post(WorkRequest::Write { id: WrId(2), source: Bytes::from(data.clone()), remote });
    let remote = Some(MemoryHandle(0x0102_0304));
    queue_pair.post(WorkRequest::Send {
        id: WrId(3),
        message: message(b"x"),
        invalidate: remote,
        solicited: false,
        signaled: true,
    });
    queue_pair.post(WorkRequest::Send {
        id: WrId(4),
        message: message(b"y"),
        invalidate: remote,
        solicited: true,
        signaled: true,
    });
    queue_pair.post(WorkRequest::Send {
        id: WrId(5),
        message: message(b""),
        invalidate: None,
        solicited: true,
        signaled: true,
    });
    let peer = async {
        raw.fpdus(&[&send(1, b"go")]).await;
        for expected in [
            untagged([0x01, 0x43], 0, 0, 1, 0, &data[..64_750]),
            untagged([0x41, 0x43], 0, 0, 1, 64_750, &data[64_750..]),
            tagged([0x81, 0x40], 0x0a0b_0c0d, 1 << 40, &data[..64_754]),
            tagged([0xc1, 0x40], 0x0a0b_0c0d, (1 << 40) + 64_754, &data[64_754..]),
            untagged([0x41, 0x44], 0x0102_0304, 0, 2, 0, b"x"),
            untagged([0x41, 0x46], 0x0102_0304, 0, 3, 0, b"y"),
            untagged([0x41, 0x45], 0, 0, 4, 0, b""),
        ] {
            assert!(raw.ulpdu().await == expected, "{:02x?}...", &expected[..18]);
        }
        drop(raw);
    };
    let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
    let done = completions.iter().filter(|c| matches!(c, Completion::Sent { .. } | Completion::Written { .. })).count();
    assert_eq!(done, 5);
}

/// RFC 5044 §4.3: if the peer requires markers, the stream has a marker every 512 bytes from the first FPDU on.
#[tokio::test]
async fn markers_when_asked_for() {
    let (mut raw, mut queue_pair) = accepted_from(&mpa(REQUEST, 0xd0, 2, &[0, 1, 0, 1]), params()).await;
    let data = pattern(100_000, 3);
    let mut expected = Vec::new();
    for (id, len) in (1..).zip([0, 1, 2, 3, 470, 486, 487, 488, 2047, 2049, 5000]) {
        queue_pair.post(send_request(id, &data[..len]));
        expected.push(send(u32::try_from(id).unwrap(), &data[..len]));
    }
    let remote = RemoteMemory { handle: MemoryHandle(7), offset: 0 };
    queue_pair.post(WorkRequest::Write { id: WrId(99), source: Bytes::from(data.clone()), remote });
    expected.push(tagged([0x81, 0x40], 7, 0, &data[..64_754]));
    expected.push(tagged(WRITE, 7, 64_754, &data[64_754..]));
    let peer = async {
        raw.fpdus(&[&send(1, b"go")]).await;
        let mut position = 0;
        for expected in &expected {
            let start = position;
            let mut bytes = Vec::new();
            // The FPDU without markers, and the bytes that its CRC covers.
            let mut plain = Vec::new();
            let wanted = (2 + expected.len()).next_multiple_of(4);
            let mut fpdu_start = None;
            while plain.len() < wanted || position % 512 == 0 {
                if position % 512 == 0 {
                    let marker = raw.read(4).await;
                    let pointer = fpdu_start.map_or(0, |start| position - start);
                    assert_eq!(marker, [0, 0, (pointer >> 8) as u8, pointer as u8], "marker at {position}");
                    bytes.extend(marker);
                    position += 4;
                    continue;
                }
                fpdu_start.get_or_insert(position);
                let word = raw.read(4).await;
                bytes.extend_from_slice(&word);
                plain.extend(word);
                position += 4;
            }
            assert!(plain[..2] == u16::try_from(expected.len()).unwrap().to_be_bytes(), "length at {start}");
            assert!(plain[2..2 + expected.len()] == expected[..], "ULPDU at {start}");
            assert_eq!(raw.read(4).await, crc32c(&bytes).to_le_bytes(), "CRC of the FPDU at {start}");
            position += 4;
        }
        drop(raw);
    };
    let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(completions.iter().any(|c| matches!(c, Completion::Written { id: WrId(99) })));
}

/// Sends `bytes` and closes the connection. Checks that the disconnect reason contains `words`, and that requests are
/// flushed.
async fn end_after(bytes: &[u8], words: &str) {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let sink = queue_pair.register(RegisterableMemory::Sink(vec![0; 100].into()), Access::ReadSink).unwrap().handle;
    queue_pair.post(read_work(1, sink, 10));
    queue_pair.post(send_request(2, b"never"));
    queue_pair.post(WorkRequest::Invalidate { id: WrId(3), handle: sink });
    let peer = async {
        raw.write(bytes).await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    match reason {
        DisconnectReason::Transport(error) => {
            assert!(error.to_string().contains(words), "{error:?} does not contain {words:?}");
        }
        other => panic!("{other:?}"),
    }
    // Requests are flushed in order. The Invalidate waited for the Read.
    assert!(
        matches!(
            &completions[..],
            [
                Completion::Failed { id: WrId(1), error: WorkError::Flushed },
                Completion::Failed { id: WrId(2), error: WorkError::Flushed },
                Completion::Invalidated { id: WrId(3), .. }
            ]
        ),
        "{completions:?}"
    );
}

#[tokio::test]
async fn ends_in_the_middle() {
    let bytes = fpdu(&send(1, b"0123456789"));
    end_after(&bytes[..1], "inside an FPDU's header, after 1 bytes").await;
    end_after(&bytes[..19], "inside an FPDU's header, after 19 bytes").await;
    end_after(&bytes[..25], "inside an FPDU, after 5 of 10 bytes").await;
    end_after(&bytes[..bytes.len() - 1], "inside an FPDU, after 10 of 10 bytes").await;
}

#[tokio::test]
async fn reset_by_the_peer() {
    let (raw, mut queue_pair) = accepted(params()).await;
    raw.0.set_zero_linger().expect("linger");
    drop(raw);
    let (_, reason) = until_end(&mut queue_pair).await;
    assert!(matches!(reason, DisconnectReason::Transport(_)), "{reason:?}");
}

#[tokio::test]
async fn terminates_that_arrive() {
    for (header, words) in [
        (&[0x11, 0x00, 0, 0][..], "DDP: tagged buffer error, invalid STag"),
        (&[0x11, 0x01, 0, 0], "DDP: tagged buffer error, base or bounds violation"),
        (&[0x01, 0x00, 0, 0], "RDMAP: remote protection error, invalid STag"),
        (&[0x12, 0x02, 0, 0], "DDP: untagged buffer error, no buffer available"),
        (&[0x20, 0x02, 0, 0], "MPA: CRC error"),
        // `siw` swaps layer and type on little-endian machines.
        (&[0x21, 0x02, 0, 0], "DDP: untagged buffer error, no buffer available (layer and type swapped, as siw does)"),
        (&[0x10, 0x01, 0, 0], "RDMAP: remote protection error, base or bounds violation (layer and type swapped"),
        (
            &[0x20, 0x06, 0, 0],
            "MPA: insufficient IRD resources (or, from siw, RDMAP: remote operation error, unexpected",
        ),
        (&[0xff, 0xff, 0, 0], "the specifications do not define"),
        (&[0x12, 0x02], "without an error code"),
    ] {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        let peer = async {
            // Nothing behind a Terminate is delivered.
            raw.fpdus(&[&untagged(TERMINATE, 0, 2, 1, 0, header), &send(1, b"late"), &send(2, b"late")]).await;
            // The local side closes without sending a Terminate.
            raw.end().await;
        };
        let ((), (_, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        let (text, is_refusal) = match reason {
            DisconnectReason::RemoteAccess(text) => (text, true),
            DisconnectReason::ReportedByPeer(text) => (text, false),
            other => panic!("{other:?}"),
        };
        assert!(text.contains(words), "{text:?} does not contain {words:?}");
        // The peer refused access to its memory.
        assert_eq!(is_refusal, words.contains("remote protection") || words.contains("DDP: tagged"), "{text}");
    }
}

/// Scripts a peer that sends one message, receives two, and sends a Terminate about the second. The Terminate repeats
/// at most `most` bytes of the second message.
async fn terminates_second(raw: &mut Raw, control: [u8; 4], most: usize) {
    raw.fpdus(&[&send(1, b"")]).await;
    raw.ulpdu().await;
    let second = raw.ulpdu().await;
    let len = u16::try_from(second.len()).unwrap().to_be_bytes();
    let repeated = &second[..most.min(second.len())];
    let terminate = [&control[..], &len, repeated].concat();
    raw.fpdus(&[&untagged(TERMINATE, 0, 2, 1, 0, &terminate)]).await;
    raw.end().await;
}

/// Returns `true` if the completions behind the received message report that the first RDMA Read was flushed and the
/// second refused.
fn blames_second(completions: &[Completion]) -> bool {
    matches!(
        &completions[1..],
        [
            Completion::Failed { id: WrId(1), error: WorkError::Flushed },
            Completion::Failed { id: WrId(2), error: WorkError::RemoteAccess(_) }
        ]
    )
}

/// The RDMA Read named by a Terminate fails with a remote access error, and the other RDMA Reads are flushed.
#[tokio::test]
async fn terminate_names_the_read() {
    for swapped in [false, true] {
        let (mut raw, mut queue_pair) = accepted(params()).await;
        let sinks: Vec<_> = (0..2)
            .map(|_| queue_pair.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap().handle)
            .collect();
        queue_pair.post(read_work(1, sinks[0], 8));
        queue_pair.post(read_work(2, sinks[1], 8));
        let types = if swapped { 0x10 } else { 0x01 };
        let peer = terminates_second(&mut raw, [types, 0x02, 0xe0, 0], usize::MAX);
        let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
        assert!(blames_second(&completions), "{completions:?}");
    }
}

/// A peer that does not read blocks only outgoing data, and cannot delay the end of the connection forever.
#[tokio::test]
async fn peer_that_stops_reading() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let source = Bytes::from(vec![1; 8 << 20]);
    for id in 0..8 {
        let remote = RemoteMemory { handle: MemoryHandle(7), offset: 0 };
        queue_pair.post(WorkRequest::Write { id: WrId(id), source: source.clone(), remote });
    }
    let served =
        queue_pair.register(RegisterableMemory::Source(Bytes::from(vec![2; 4096])), Access::RemoteRead).unwrap().handle;
    let mut written = 0;
    for msn in 1..=20 {
        raw.fpdus(&[&send(msn, b"still talking")]).await;
        loop {
            let all = completions(&mut queue_pair).await;
            written += all.iter().filter(|c| matches!(c, Completion::Written { .. })).count();
            if all.iter().any(|c| matches!(c, Completion::Received { .. })) {
                break;
            }
        }
    }
    assert!(written < 8, "the socket accepted 64 MiB although the peer does not read");
    // The peer's Read waits, and so does an Invalidate of its source, until the connection ends.
    raw.fpdus(&[&read_request(1, (1, 0), 4096, (served.0, 0)), &send(21, b"")]).await;
    assert!(matches!(completions_of(&mut queue_pair).await, Completion::Received { .. }));
    queue_pair.post(WorkRequest::Invalidate { id: WrId(100), handle: served });
    let early = tokio::time::timeout(Duration::from_millis(50), completions(&mut queue_pair)).await;
    assert!(early.is_err(), "{early:?}");
    queue_pair.disconnect();
    let (completions, reason) = until_end(&mut queue_pair).await;
    assert_eq!(reason, DisconnectReason::Local);
    assert!(matches!(completions.last(), Some(Completion::Invalidated { id: WrId(100), .. })), "{completions:?}");
    drop(raw);
}

/// Memory that is invalidated while it is being sent is returned once it has been written completely. Later RDMA Reads
/// of it are refused.
#[tokio::test]
async fn invalidate_waits_for_the_response() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let data = Bytes::from(pattern(16 << 20, 5));
    let served = queue_pair.register(RegisterableMemory::Source(data.clone()), Access::RemoteRead).unwrap().handle;
    raw.fpdus(&[&read_request(1, (9, 0), data.len() as u32, (served.0, 0)), &send(1, b"")]).await;
    assert!(matches!(completions_of(&mut queue_pair).await, Completion::Received { .. }));
    queue_pair.post(WorkRequest::Invalidate { id: WrId(1), handle: served });
    let early = tokio::time::timeout(Duration::from_millis(30), completions(&mut queue_pair)).await;
    assert!(early.is_err(), "{early:?}");
    // No further Read of it is accepted.
    raw.fpdus(&[&read_request(2, (9, 0), 4, (served.0, 0))]).await;
    let peer = async {
        let mut got = Vec::new();
        raw.0.read_to_end(&mut got).await.unwrap();
        got
    };
    let (got, (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(matches!(reason, DisconnectReason::PeerViolation(_)), "{reason:?}");
    assert!(matches!(&completions[..], [Completion::Invalidated { id: WrId(1), .. }]), "{completions:?}");
    // The last FPDU is the complete Terminate.
    let second = read_request(2, (9, 0), 4, (served.0, 0));
    let mut header = vec![0x01, 0x00, 0xe0, 0, 0, 46];
    header.extend_from_slice(&second);
    assert!(got.ends_with(&fpdu(&untagged(TERMINATE, 0, 2, 1, 0, &header))));
}

/// RDMA Read Responses and Sends take turns, message by message.
#[tokio::test]
async fn responses_and_sends_take_turns() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let served =
        queue_pair.register(RegisterableMemory::Source(Bytes::from(vec![2; 100])), Access::RemoteRead).unwrap().handle;
    for id in 0..4 {
        queue_pair.post(send_request(id, b"send"));
    }
    let peer = async {
        let requests: Vec<_> = (1..=4).map(|msn| read_request(msn, (msn, 0), 10, (served.0, 0))).collect();
        raw.fpdus(&requests.iter().map(|r| &r[..]).collect::<Vec<_>>()).await;
        let mut kinds = Vec::new();
        for _ in 0..8 {
            kinds.push(raw.ulpdu().await[1]);
        }
        drop(raw);
        kinds
    };
    let (kinds, _) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(kinds, [0x43, 0x42, 0x43, 0x42, 0x43, 0x42, 0x43, 0x42]);
}

/// If the peer does not reply to the first message (`siw` misses about one in a hundred), it receives an extra FPDU: a
/// zero-length RDMA Write, which causes no completion.
#[tokio::test]
async fn silent_peer_gets_one_extra_fpdu() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let peer = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut raw = Raw(stream);
        raw.frame(REQUEST).await;
        raw.write(&mpa(REPLY, 0x50, 2, &[0, 16, 0, 16])).await;
        raw
    };
    let connector = IwarpConnector::default();
    let (mut raw, connected) = tokio::join!(peer, connector.connect(to, params()));
    let mut queue_pair = connected.unwrap().queue_pair;
    queue_pair.post(send_request(1, b"anybody?"));
    let peer = async {
        assert_eq!(raw.ulpdu().await, send(1, b"anybody?"));
        assert_eq!(raw.ulpdu().await, tagged(WRITE, 0, 0, &[]));
        raw.fpdus(&[&send(1, b"yes")]).await;
        raw.0.shutdown().await.unwrap();
        raw.end().await;
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(reason, DisconnectReason::Remote);
    let [Completion::Sent { id: WrId(1) }, Completion::Received { message, .. }] = &completions[..] else {
        panic!("{completions:?}")
    };
    assert_eq!(message[..], *b"yes");
}

/// A Terminate about a Send with Invalidate does not refuse the RDMA Read in flight, which is flushed.
#[tokio::test]
async fn terminate_about_an_invalidation_blames_no_read() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let sink = queue_pair.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap().handle;
    queue_pair.post(read_work(1, sink, 8));
    let message = MessageBuf::received(vec![7; 8].into(), 8);
    queue_pair.post(WorkRequest::Send {
        id: WrId(2),
        message,
        invalidate: Some(MemoryHandle(0xbad)),
        solicited: false,
        signaled: true,
    });
    let peer = terminates_second(&mut raw, [0x01, 0x09, 0xc0, 0], 18);
    let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(
        matches!(&completions[1..], [Completion::Failed { id: WrId(1), error: WorkError::Flushed }, ..]),
        "{completions:?}"
    );
}

/// A Terminate that names the second of two RDMA Reads with the same sink fails the second RDMA Read.
#[tokio::test]
async fn terminate_names_the_read_of_a_shared_sink() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let sink = queue_pair.register(RegisterableMemory::Sink(vec![0; 16].into()), Access::ReadSink).unwrap().handle;
    for (id, sink_offset) in [(1, 0), (2, 8)] {
        let remote = RemoteMemory { handle: MemoryHandle(7), offset: 0 };
        queue_pair.post(WorkRequest::Read { id: WrId(id), sink, sink_offset, remote, len: 8 });
    }
    let peer = terminates_second(&mut raw, [0x01, 0x02, 0xe0, 0], usize::MAX);
    let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(blames_second(&completions), "{completions:?}");
}

/// Requests posted after `disconnect` are flushed, so the queue pair is not open.
#[tokio::test]
async fn is_open_after_disconnect() {
    let (_raw, mut queue_pair) = accepted(params()).await;
    queue_pair.post(send_request(1, b"before"));
    queue_pair.disconnect();
    let open = queue_pair.is_open();
    queue_pair.post(send_request(2, b"after"));
    let (completions, _) = until_end(&mut queue_pair).await;
    assert!(completions.iter().any(|c| matches!(c, Completion::Failed { id: WrId(2), error: WorkError::Flushed })));
    assert!(!open, "is_open returned true, but the request was flushed");
}

/// If the peer closes the stream inside a message, after one complete FPDU of the message, the connection ends with a
/// transport error.
#[tokio::test]
async fn ends_inside_a_message() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let peer = async {
        raw.fpdus(&[&untagged([0x01, 0x43], 0, 0, 1, 0, b"half a mess")]).await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert!(completions.is_empty(), "{completions:?}");
    assert!(
        matches!(&reason, DisconnectReason::Transport(error) if error.to_string().contains("inside a message")),
        "{reason:?}"
    );
}
