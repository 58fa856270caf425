//! Outgoing messages against scripted peers: their segments, and the order of messages.

mod iwarp_common;

use std::io::ErrorKind;

use bytes::Bytes;
use iwarp_common::*;
use rpcrdma_iwarp::{FpduSize, IwarpConfig, IwarpQueuePair};
use rpcrdma_proto::provider::{
    Access, Completion, DisconnectReason, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory, WorkError,
    WorkRequest, WrId,
    conformance::{message, pattern},
};
use socket2::SockRef;

fn send_request(id: u64, bytes: &[u8]) -> WorkRequest {
    WorkRequest::Send { id: WrId(id), message: message(bytes), invalidate: None, solicited: false, signaled: true }
}

fn write_request(id: u64, bytes: &[u8], stag: u32, offset: u64) -> WorkRequest {
    let remote = RemoteMemory { handle: MemoryHandle(stag), offset };
    WorkRequest::Write { id: WrId(id), source: Bytes::copy_from_slice(bytes), remote }
}

fn read_work(id: u64, sink: MemoryHandle, len: u32) -> WorkRequest {
    let remote = RemoteMemory { handle: MemoryHandle(0x77), offset: 0 };
    WorkRequest::Read { id: WrId(id), sink, sink_offset: 0, remote, len }
}

fn sink(queue_pair: &mut IwarpQueuePair, len: usize) -> MemoryHandle {
    queue_pair.register(RegisterableMemory::Sink(vec![0; len].into()), Access::ReadSink).unwrap().handle
}

fn source(queue_pair: &mut IwarpQueuePair, bytes: Vec<u8>) -> MemoryHandle {
    queue_pair.register(RegisterableMemory::Source(bytes.into()), Access::RemoteRead).unwrap().handle
}

/// Sends the first message from the peer and waits for its arrival. The queue pair, which is the responder, may then
/// send.
async fn first_message(raw: &mut Raw, queue_pair: &mut IwarpQueuePair) {
    raw.fpdus(&[&send(1, b"go")]).await;
    let received = completions(queue_pair).await;
    assert!(matches!(received[..], [Completion::Received { .. }]), "{received:?}");
}

/// Returns the segments of a Send, each with at most `max` bytes of payload. `kind` is the opcode and the STag to
/// invalidate.
fn send_segments(kind: (u8, u32), msn: u32, bytes: &[u8], max: usize) -> Vec<Vec<u8>> {
    let last = bytes.len().saturating_sub(1) / max;
    let control = |index| [if index == last { 0x41 } else { 0x01 }, 0x40 | kind.0];
    let part = |index| &bytes[index * max..bytes.len().min((index + 1) * max)];
    (0..=last).map(|index| untagged(control(index), kind.1, 0, msn, (index * max) as u32, part(index))).collect()
}

/// Returns the segments of a tagged message, each with at most `max` bytes of payload.
fn tagged_segments(opcode: u8, stag: u32, offset: u64, bytes: &[u8], max: usize) -> Vec<Vec<u8>> {
    let last = bytes.len().saturating_sub(1) / max;
    let control = |index| [if index == last { 0xc1 } else { 0x81 }, opcode];
    let part = |index| &bytes[index * max..bytes.len().min((index + 1) * max)];
    (0..=last).map(|index| tagged(control(index), stag, offset + (index * max) as u64, part(index))).collect()
}

/// RFC 5041 §5.2: all segments of a message except the last have the maximum size, and no message is cut short.
#[tokio::test]
async fn segments_have_the_configured_size() {
    let mut config = IwarpConfig::default();
    config.fpdu_size = FpduSize::Ulpdu(128);
    let (mut raw, mut queue_pair) = accepted_with(config, &mpa(REQUEST, 0x50, 2, &[0, 16, 0, 16]), params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    let data = pattern(1000, 9);
    let served = source(&mut queue_pair, data.clone());
    let mut expected = Vec::new();
    for (msn, len) in (1..).zip([0, 1, 109, 110, 111, 220, 221, 330, 1000]) {
        queue_pair.post(send_request(1, &data[..len]));
        expected.extend(send_segments((3, 0), msn, &data[..len], 110));
    }
    queue_pair.post(WorkRequest::Send {
        id: WrId(1),
        message: message(&data),
        invalidate: Some(MemoryHandle(0xa1)),
        solicited: true,
        signaled: true,
    });
    expected.extend(send_segments((6, 0xa1), 10, &data, 110));
    for len in [0, 1, 113, 114, 115, 228, 229, 1000] {
        queue_pair.post(write_request(2, &data[..len], 0x0102_0304, 1 << 33));
        expected.extend(tagged_segments(0x40, 0x0102_0304, 1 << 33, &data[..len], 114));
    }
    let peer = async {
        for expected in &expected {
            assert_eq!(raw.ulpdu().await, *expected);
        }
        for (msn, len) in (1..).zip([0, 1, 114, 115, 228, 229, 997_usize]) {
            raw.fpdus(&[&read_request(msn, (0xdead_beef, 7), len as u32, (served.0, 3))]).await;
            for expected in tagged_segments(0x42, 0xdead_beef, 7, &data[3..3 + len], 114) {
                assert_eq!(raw.ulpdu().await, expected);
            }
        }
        drop(raw);
    };
    tokio::join!(peer, until_end(&mut queue_pair));
}

/// RFC 5044 §3: the MULPDU is between 128 and 64768 bytes.
#[tokio::test]
async fn configured_sizes_have_bounds() {
    let data = pattern(70_000, 9);
    for (configured, size) in [(0, 128), (127, 128), (129, 129), (64_768, 64_768), (u16::MAX, 64_768)] {
        let mut config = IwarpConfig::default();
        config.fpdu_size = FpduSize::Ulpdu(configured);
        let (mut raw, mut queue_pair) = accepted_with(config, &mpa(REQUEST, 0x50, 2, &[0, 16, 0, 16]), params()).await;
        first_message(&mut raw, &mut queue_pair).await;
        queue_pair.post(write_request(1, &data, 7, 0));
        let peer = async {
            assert_eq!(raw.ulpdu().await.len(), size, "{configured}");
            drop(raw);
        };
        tokio::join!(peer, until_end(&mut queue_pair));
    }
}

/// RFC 5040 §5.2.1: the buffer of an RDMA Read Request is free again when its response has been sent.
#[tokio::test]
async fn served_reads_free_their_buffers() {
    let mut params = params();
    params.responder_resources = 2;
    let (mut raw, mut queue_pair) = accepted(params).await;
    let served = source(&mut queue_pair, vec![3; 100]);
    let peer = async {
        for msn in (1..20).step_by(2) {
            let requests = [msn, msn + 1].map(|msn| read_request(msn, (msn, 0), msn % 3, (served.0, 0)));
            raw.fpdus(&[&requests[0], &requests[1]]).await;
            for msn in [msn, msn + 1] {
                assert_eq!(raw.ulpdu().await, tagged(READ_RESPONSE, msn, 0, &[3; 2][..msn as usize % 3]));
            }
        }
        drop(raw);
    };
    let ((), (_, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(reason, DisconnectReason::Remote);
}

/// RFC 5044 §4.5: with [`FpduSize::Segment`], an FPDU fits a TCP segment.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn fpdus_fit_tcp_segments() {
    use rpcrdma_iwarp::IwarpListener;
    use rpcrdma_proto::provider::{ConnectRequest, Incoming, Listener};
    use tokio::net::TcpSocket;

    for (markers, flags) in [(false, 0x50), (true, 0xd0)] {
        let mut config = IwarpConfig::default();
        config.fpdu_size = FpduSize::Segment;
        let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        SockRef::from(&socket).set_tcp_mss(1001).unwrap();
        let peer = async {
            let mut raw = Raw(socket.connect(listener.local_addr()).await.unwrap());
            raw.write(&mpa(REQUEST, flags, 2, &[0, 16, 0, 16])).await;
            raw.frame(REPLY).await;
            raw
        };
        let accept = async {
            let request = listener.accept().await.unwrap().request(LIMIT).await.unwrap();
            request.accept(params()).await.unwrap().queue_pair
        };
        let (mut raw, mut queue_pair) = tokio::join!(peer, accept);
        first_message(&mut raw, &mut queue_pair).await;
        let emss = SockRef::from(&raw.0).tcp_mss().unwrap() as usize;
        assert!(emss <= 1001, "{emss}");
        queue_pair.post(write_request(1, &[1; 2000], 7, 0));
        let peer = async {
            let overhead = 6 + emss % 4 + if markers { 4 * emss.div_ceil(512) } else { 0 };
            // The first marker precedes the first FPDU.
            if markers {
                assert_eq!(raw.read(4).await, [0; 4]);
            }
            let length = raw.read(2).await;
            assert_eq!(usize::from(u16::from_be_bytes([length[0], length[1]])), emss - overhead);
            drop(raw);
        };
        tokio::join!(peer, until_end(&mut queue_pair));
    }
}

/// RFC 5040 §6.1, §5.5: an RDMA Read waits while the negotiated number of RDMA Reads is in flight, and the requests
/// behind it wait as well.
#[tokio::test]
async fn requests_wait_behind_reads() {
    // The peer serves two RDMA Reads at a time.
    let (mut raw, mut queue_pair) = accepted_from(&mpa(REQUEST, 0x50, 2, &[0, 2, 0, 2]), params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    let sinks: Vec<_> = (0..3).map(|_| sink(&mut queue_pair, 8)).collect();
    for (id, sink) in (1..).zip(&sinks) {
        queue_pair.post(read_work(id, *sink, 8));
    }
    let response = |index: usize| tagged(READ_RESPONSE, sinks[index].0, 0, &[index as u8; 8]);
    let peer = async {
        for (msn, sink) in (1..).zip(&sinks[..2]) {
            assert_eq!(raw.ulpdu().await, read_request(msn, (sink.0, 0), 8, (0x77, 0)));
        }
        raw.fpdus(&[&send(2, b"two reads are in flight")]).await;
    };
    let received = async {
        let received = completions(&mut queue_pair).await;
        assert!(matches!(received[..], [Completion::Received { .. }]), "{received:?}");
        queue_pair.post(send_request(4, b"behind"));
        queue_pair.post(write_request(5, b"behind", 9, 0));
    };
    tokio::join!(peer, received);
    raw.fpdus(&[&send(3, b"")]).await;
    let received = completions(&mut queue_pair).await;
    assert!(matches!(received[..], [Completion::Received { .. }]), "{received:?}");
    let early = SockRef::from(&raw.0).peek(&mut [std::mem::MaybeUninit::uninit()]);
    assert!(early.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the third Read was sent");
    let peer = async {
        raw.fpdus(&[&response(0)]).await;
        assert_eq!(raw.ulpdu().await, read_request(3, (sinks[2].0, 0), 8, (0x77, 0)));
        assert_eq!(raw.ulpdu().await, send(1, b"behind"));
        assert_eq!(raw.ulpdu().await, tagged(WRITE, 9, 0, b"behind"));
        raw.fpdus(&[&response(1), &response(2)]).await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(reason, DisconnectReason::Remote);
    // RFC 5040 §5.5: requests complete in the order posted.
    let ids: Vec<_> = completions
        .iter()
        .filter_map(|completion| match completion {
            Completion::Read { id } | Completion::Sent { id } | Completion::Written { id } => Some(id.0),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

/// Sends that are framed when they are posted have the same encoding as Sends that are framed later.
#[tokio::test]
async fn sends_have_one_encoding() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    let data = pattern(3000, 4);
    let mut expected = Vec::new();
    let mut msn = 0;
    // The third Send is too long to be copied. Those behind it are framed later.
    for len in [5, 6, 3000, 7] {
        for (opcode, solicited, invalidate) in
            [(3, false, None), (4, false, Some(0xa1)), (5, true, None), (6, true, Some(1))]
        {
            msn += 1;
            queue_pair.post(WorkRequest::Send {
                id: WrId(0),
                message: message(&data[..len]),
                invalidate: invalidate.map(MemoryHandle),
                solicited,
                signaled: true,
            });
            expected.push(untagged([0x41, 0x40 | opcode], invalidate.unwrap_or(0), 0, msn, 0, &data[..len]));
        }
    }
    let peer = async {
        for expected in &expected {
            assert_eq!(raw.ulpdu().await, *expected);
        }
        drop(raw);
    };
    let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(completions.len(), expected.len());
}

/// RFC 5041 §6.2.1: requests posted before `disconnect` are sent, and so are the responses to the peer's RDMA Reads.
/// Later requests fail.
#[tokio::test]
async fn disconnect_sends_what_was_posted() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    let data = pattern(3_000_000, 2);
    let served = source(&mut queue_pair, data.clone());
    raw.fpdus(&[&read_request(1, (5, 0), data.len() as u32, (served.0, 0)), &send(2, b"")]).await;
    let received = completions(&mut queue_pair).await;
    assert!(matches!(received[..], [Completion::Received { .. }]), "{received:?}");
    queue_pair.post(write_request(1, &data, 6, 0));
    queue_pair.post(send_request(2, b"last"));
    queue_pair.disconnect();
    queue_pair.post(send_request(3, b"late"));
    let peer = async {
        let (mut response, mut written, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        while response.len() < data.len() || messages.is_empty() {
            let ulpdu = raw.ulpdu().await;
            match ulpdu[1] {
                0x40 => written.extend_from_slice(&ulpdu[14..]),
                0x42 => response.extend_from_slice(&ulpdu[14..]),
                _ => messages.push(ulpdu),
            }
        }
        assert!(response == data && written == data);
        assert_eq!(messages, [send(1, b"last")]);
        raw.end().await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(reason, DisconnectReason::Local);
    assert!(
        matches!(
            completions[..],
            [
                Completion::Written { id: WrId(1) },
                Completion::Sent { id: WrId(2) },
                Completion::Failed { id: WrId(3), error: WorkError::Flushed },
            ]
        ),
        "{completions:?}"
    );
}

/// RDMA Reads in flight complete after `disconnect`.
#[tokio::test]
async fn disconnect_waits_for_reads() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    let sink = sink(&mut queue_pair, 8);
    queue_pair.post(read_work(1, sink, 8));
    queue_pair.disconnect();
    let peer = async {
        assert_eq!(raw.ulpdu().await, read_request(1, (sink.0, 0), 8, (0x77, 0)));
        // The local side has sent everything that it can.
        tokio::task::yield_now().await;
        raw.fpdus(&[&tagged(READ_RESPONSE, sink.0, 0, &[1; 8])]).await;
        raw.end().await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(reason, DisconnectReason::Local);
    assert!(matches!(completions[..], [Completion::Read { id: WrId(1) }]), "{completions:?}");
}

/// Memory that is invalidated during a transfer is returned when the transfer is complete.
#[tokio::test]
async fn invalidate_completes_after_the_transfer() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    // More than the buffers of the sockets hold.
    const LEN: usize = 16 << 20;
    let served = source(&mut queue_pair, vec![7; LEN]);
    let sink = sink(&mut queue_pair, 8);
    queue_pair.post(read_work(1, sink, 8));
    raw.fpdus(&[&read_request(1, (5, 0), LEN as u32, (served.0, 0)), &send(2, b"")]).await;
    let received = completions(&mut queue_pair).await;
    assert!(matches!(received[..], [Completion::Received { .. }]), "{received:?}");
    for (id, handle) in [(2, sink), (3, served)] {
        queue_pair.post(WorkRequest::Invalidate { id: WrId(id), handle });
    }
    let mut done = Vec::new();
    let peer = async {
        assert_eq!(raw.ulpdu().await, read_request(1, (sink.0, 0), 8, (0x77, 0)));
        let mut left = LEN;
        while left > 0 {
            let length = raw.read(2).await;
            let len = usize::from(u16::from_be_bytes([length[0], length[1]]));
            raw.read((2 + len).next_multiple_of(4) + 2).await;
            left -= len - 14;
        }
        raw.fpdus(&[&tagged(READ_RESPONSE, sink.0, 0, &[1; 8])]).await;
    };
    let local = async {
        while done.len() < 3 {
            done.extend(completions(&mut queue_pair).await);
        }
    };
    tokio::join!(peer, local);
    assert!(
        matches!(
            done[..],
            [
                Completion::Invalidated { id: WrId(3), .. },
                Completion::Read { id: WrId(1) },
                Completion::Invalidated { id: WrId(2), .. },
            ]
        ),
        "{done:?}"
    );
}

/// A Send that could be framed when it is posted fails after `disconnect`.
#[tokio::test]
async fn requests_fail_after_disconnect() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    first_message(&mut raw, &mut queue_pair).await;
    queue_pair.disconnect();
    queue_pair.post(send_request(1, b"late"));
    let peer = async {
        raw.end().await;
        drop(raw);
    };
    let ((), (completions, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
    assert_eq!(reason, DisconnectReason::Local);
    assert!(
        matches!(completions[..], [Completion::Failed { id: WrId(1), error: WorkError::Flushed }]),
        "{completions:?}"
    );
}

/// RFC 5040 §5.2.2: responses are sent in the order of the requests, each once.
#[tokio::test]
async fn responses_follow_the_order_of_requests() {
    let (mut raw, mut queue_pair) = accepted(params()).await;
    let data = pattern(400, 1);
    let served = source(&mut queue_pair, data.clone());
    let peer = async {
        let requests: Vec<_> =
            (1..=4).map(|msn| read_request(msn, (msn, 0), 100 - msn, (served.0, u64::from(msn)))).collect();
        raw.fpdus(&requests.iter().map(|request| &request[..]).collect::<Vec<_>>()).await;
        for msn in 1..=4_u32 {
            let data = &data[msn as usize..100];
            assert_eq!(raw.ulpdu().await, tagged(READ_RESPONSE, msn, 0, data));
        }
        drop(raw);
    };
    let ((), (completions, _)) = tokio::join!(peer, until_end(&mut queue_pair));
    // RFC 5040 §5.2.1: the upper layer does not see them.
    assert!(completions.is_empty(), "{completions:?}");
}
