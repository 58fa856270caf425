//! Tests that simulated queue pairs fulfil the contract of [`QueuePair`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;

use super::{SimConfig, SimEnd, SimEndConfig, SimFault, SimNetwork, SimQueuePair, pair};
use crate::{
    memory::{MessageBuf, Output, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory, WorkError,
        WorkRequest, WrId,
    },
};

fn poll(qp: &mut SimQueuePair) -> Vec<Completion> {
    let mut completions = Vec::new();
    while let Poll::Ready(()) = qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions) {}
    completions
}

fn send(qp: &mut SimQueuePair, bytes: &[u8], invalidate: Option<MemoryHandle>) {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    message.append(bytes);
    qp.post(WorkRequest::Send { id: WrId(9), message, invalidate, solicited: false, signaled: true });
}

/// Data written before a Send is present when the Send arrives. Invalidation of the sink returns the data.
#[test]
fn write_then_send() {
    let (mut a, mut b, network) = pair(SimConfig::default());
    let region = a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).unwrap();
    let remote = RemoteMemory { handle: region.handle, offset: region.base + 2 };
    b.post(WorkRequest::Write { id: WrId(1), source: Bytes::from_static(b"abc"), remote });
    send(&mut b, b"done", Some(region.handle));
    assert!(matches!(poll(&mut b)[..], [Completion::Written { id: WrId(1) }, Completion::Sent { id: WrId(9) }]));
    let received = poll(&mut a);
    let [Completion::Received { message, invalidated }] = &received[..] else { panic!("{received:?}") };
    assert_eq!((&message[..], *invalidated), (&b"done"[..], Some(region.handle)));
    a.post(WorkRequest::Invalidate { id: WrId(2), handle: region.handle });
    let returned = poll(&mut a);
    let [Completion::Invalidated { memory: RegisterableMemory::Sink(buf), .. }] = &returned[..] else {
        panic!("{returned:?}")
    };
    assert_eq!(&buf[..], b"\0\0abc\0\0\0");
    assert_eq!(network.registered(SimEnd::A), 0);
}

#[test]
fn read() {
    let (mut a, mut b, _) = pair(SimConfig::default());
    let source = a.register(RegisterableMemory::Source(Bytes::from_static(b"0123456789")), Access::RemoteRead).unwrap();
    let sink = b.register(RegisterableMemory::Sink(vec![0; 4].into()), Access::ReadSink).unwrap();
    let remote = RemoteMemory { handle: source.handle, offset: source.base + 7 };
    b.post(WorkRequest::Read { id: WrId(3), sink: sink.handle, sink_offset: 1, remote, len: 3 });
    assert!(matches!(poll(&mut b)[..], [Completion::Read { id: WrId(3) }]));
    b.post(WorkRequest::Invalidate { id: WrId(4), handle: sink.handle });
    let returned = poll(&mut b);
    let [Completion::Invalidated { memory: RegisterableMemory::Sink(buf), .. }] = &returned[..] else {
        panic!("{returned:?}")
    };
    assert_eq!(&buf[..], b"\x00789");
}

/// Both sides lose the connection after access outside a region, without the access right, or with an invalidated
/// handle.
#[test]
fn access_is_checked() {
    for case in 0..5 {
        let (mut a, mut b, _) = pair(SimConfig::default());
        let source = a.register(RegisterableMemory::Source(Bytes::from_static(b"0123")), Access::RemoteRead).unwrap();
        let sink = b.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap();
        let (offset, len) = match case {
            0 => (source.base, 5),
            1 => (source.base - 1, 1),
            2 => (u64::MAX, 2),
            _ => (source.base, 4),
        };
        let remote = RemoteMemory { handle: source.handle, offset };
        if case == 3 {
            b.post(WorkRequest::Write { id: WrId(1), source: Bytes::from_static(b"xxxx"), remote });
        } else {
            if case == 4 {
                a.post(WorkRequest::Invalidate { id: WrId(1), handle: source.handle });
                poll(&mut a);
            }
            b.post(WorkRequest::Read { id: WrId(1), sink: sink.handle, sink_offset: 0, remote, len });
        }
        let completions = poll(&mut b);
        assert!(
            matches!(
                completions[..],
                [
                    Completion::Failed { id: WrId(1), error: WorkError::RemoteAccess(_) },
                    Completion::Disconnected { reason: DisconnectReason::RemoteAccess(_) }
                ]
            ),
            "case {case}: {completions:?}"
        );
        let told = poll(&mut a);
        assert!(matches!(told[..], [Completion::Disconnected { reason: DisconnectReason::PeerViolation(_) }]));
    }
}

#[test]
fn registration_is_checked() {
    let mut config = SimConfig::default();
    config.faults.push(SimFault::RefuseRegistration { end: SimEnd::A, nth: 2 });
    let (mut a, _b, _) = pair(config);
    assert!(a.register(RegisterableMemory::Sink(PayloadBuf::from(Vec::new())), Access::RemoteWrite).is_err());
    assert!(a.register(RegisterableMemory::Source(Bytes::from_static(b"x")), Access::RemoteWrite).is_err());
    assert!(a.register(RegisterableMemory::Source(Bytes::from_static(b"x")), Access::RemoteRead).is_err());
    assert!(a.register(RegisterableMemory::Source(Bytes::from_static(b"x")), Access::RemoteRead).is_ok());
}

/// A Send ends the connection if the peer has posted no Receive, or if the Receive is too small.
#[test]
fn receives_are_counted() {
    for (receives, size) in [(2, 3), (3, 2)] {
        let mut config = SimConfig::default();
        config.ends[1].receives = receives;
        config.ends[1].receive_size = size;
        let (mut a, mut b, network) = pair(config);
        for _ in 0..3 {
            send(&mut a, b"abc", None);
        }
        let completions = poll(&mut b);
        assert_eq!(network.receives(SimEnd::B), receives + 1 - completions.len());
        assert!(matches!(completions.last(), Some(Completion::Disconnected { .. })));
    }
}

/// After the connection has ended, requests are flushed, and invalidation still works.
#[test]
fn invalidation_outlives_the_connection() {
    let (mut a, mut b, network) = pair(SimConfig { stepped: true, ..SimConfig::default() });
    let region = a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).unwrap();
    send(&mut a, b"never", None);
    network.cut();
    a.post(WorkRequest::Invalidate { id: WrId(2), handle: region.handle });
    let completions = poll(&mut a);
    assert!(
        matches!(
            completions[..],
            [
                Completion::Failed { id: WrId(9), error: WorkError::Flushed },
                Completion::Disconnected { reason: DisconnectReason::Transport(_) },
                Completion::Invalidated { id: WrId(2), .. }
            ]
        ),
        "{completions:?}"
    );
    assert!(matches!(poll(&mut b)[..], [Completion::Disconnected { .. }]));
    assert!(a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).is_err());
}

/// Closing waits for posted requests.
#[test]
fn close_in_order() {
    let (mut a, mut b, _) = pair(SimConfig::default());
    send(&mut a, b"last", None);
    a.disconnect();
    let completions = poll(&mut b);
    assert!(
        matches!(
            completions[..],
            [Completion::Received { .. }, Completion::Disconnected { reason: DisconnectReason::Remote }]
        ),
        "{completions:?}"
    );
    let told = poll(&mut a);
    assert!(matches!(told[..], [_, Completion::Disconnected { reason: DisconnectReason::Local }]));
}

/// RDMA Reads beyond the limit on RDMA Reads in flight are not lost: they complete as well.
#[test]
fn read_depth() {
    let mut config = SimConfig::default();
    config.ends[1].max_reads = 1;
    let (mut a, mut b, _) = pair(config);
    let source = a.register(RegisterableMemory::Source(Bytes::from_static(b"0123")), Access::RemoteRead).unwrap();
    let sink = b.register(RegisterableMemory::Sink(vec![0; 4].into()), Access::ReadSink).unwrap();
    let remote = RemoteMemory { handle: source.handle, offset: source.base };
    for id in 0..3 {
        b.post(WorkRequest::Read { id: WrId(id), sink: sink.handle, sink_offset: 0, remote, len: 4 });
    }
    let ids: Vec<_> = poll(&mut b).into_iter().map(|c| matches!(c, Completion::Read { .. })).collect();
    assert_eq!(ids, [true; 3]);
}

/// Separated sides exchange nothing. If one side ends, the other learns it when they are reunited.
#[test]
fn isolation() {
    for dropped in [false, true] {
        let (mut a, mut b, network) = pair(SimConfig::default());
        network.isolate(true);
        send(&mut a, b"unheard", None);
        assert!(poll(&mut a).is_empty() && poll(&mut b).is_empty() && !network.step());
        network.isolate(false);
        assert_eq!((poll(&mut a).len(), poll(&mut b).len()), (1, 1));

        network.isolate(true);
        send(&mut b, b"in flight", None);
        let mut a = Some(a);
        if dropped {
            a = None;
        } else {
            a.as_mut().unwrap().disconnect();
        }
        let ended = a.as_mut().map(poll);
        assert!(
            matches!(ended.as_deref(), None | Some([Completion::Disconnected { reason: DisconnectReason::Local }])),
            "{ended:?}"
        );
        assert!(poll(&mut b).is_empty() && b.is_open() && network.is_in_use());
        network.isolate(false);
        let ended = poll(&mut b);
        assert!(
            matches!(
                ended[..],
                [
                    Completion::Failed { id: WrId(9), error: WorkError::Flushed },
                    Completion::Disconnected { reason: DisconnectReason::Remote }
                ]
            ),
            "{ended:?}"
        );
        assert!(!b.is_open() && !network.is_in_use());
    }
}

/// A waker that counts its calls.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The task that performs the steps is woken when a step may have become possible.
#[test]
fn steps_are_announced() {
    let config = SimConfig { stepped: true, ..SimConfig::default() };
    let (mut a, mut b, network) = pair(config);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let wakes = || woken.0.load(Ordering::Relaxed);
    let wait = || network.poll_step(&mut Context::from_waker(&waker)) == Poll::Ready(true);
    assert!(!wait());
    send(&mut a, b"one", None);
    assert!(wakes() == 1 && wait() && network.step() && !wait());
    network.stall(SimEnd::B, true);
    // A waker is used once.
    assert!(!wait());
    let before = wakes();
    send(&mut b, b"two", None);
    assert!(wakes() == before + 1 && !wait());
    network.stall(SimEnd::B, false);
    assert!(wakes() == before + 2 && wait() && network.step() && !wait());
    network.isolate(true);
    a.disconnect();
    assert!(!wait());
    drop(b);
    assert_eq!(network.poll_step(&mut Context::from_waker(&waker)), Poll::Ready(false));
    assert!(!network.is_in_use());
}

/// The next registration or invalidation fails on request, and later registrations and invalidations succeed.
#[test]
fn refusals_on_request() {
    let (mut a, _b, network) = pair(SimConfig::default());
    let register = |a: &mut SimQueuePair| a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite);
    let [first, second] = [register(&mut a).unwrap(), register(&mut a).unwrap()];
    network.refuse_registration(SimEnd::A);
    register(&mut a).unwrap_err();
    register(&mut a).unwrap();
    network.refuse_invalidation(SimEnd::A);
    for (region, fails) in [(first, true), (second, false)] {
        a.post(WorkRequest::Invalidate { id: WrId(1), handle: region.handle });
        let completions = poll(&mut a);
        assert_eq!(matches!(completions[..], [Completion::Failed { .. }]), fails, "{completions:?}");
    }
    assert_eq!(network.registered(SimEnd::A), 2);
}

fn stepped(change: impl FnOnce(&mut SimConfig)) -> (SimQueuePair, SimQueuePair, SimNetwork) {
    let mut config = SimConfig { stepped: true, ..SimConfig::default() };
    change(&mut config);
    pair(config)
}

/// In stepped mode, nothing happens without a step. A completion calls the waker of the last poll once.
#[test]
fn completions_wake() {
    let (mut a, mut b, network) = stepped(|_| {});
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut completions = Vec::new();
    assert!(b.poll(&mut Context::from_waker(&waker), &mut completions).is_pending());
    send(&mut a, b"one", None);
    send(&mut a, b"two", None);
    assert!(b.poll(&mut Context::from_waker(&waker), &mut completions).is_pending());
    assert_eq!((woken.0.load(Ordering::Relaxed), network.steps()), (0, 0));
    assert!(network.step());
    assert_eq!((woken.0.load(Ordering::Relaxed), network.steps()), (1, 1));
    assert!(network.step() && !network.step());
    assert_eq!((woken.0.load(Ordering::Relaxed), network.steps()), (1, 2), "nobody has polled again");
    assert!(b.poll(&mut Context::from_waker(&waker), &mut completions).is_ready());
    assert_eq!((completions.len(), a.bytes_sent(), a.copied_payload_bytes()), (2, 0, 0));
}

/// Faults count Sends and steps from zero.
#[test]
fn faults_are_counted_from_zero() {
    for (nth, texts) in [(0, ["o", "two"]), (1, ["one", "t"])] {
        let fault = SimFault::Truncate { end: SimEnd::A, nth, len: 1 };
        let (mut a, mut b, network) = stepped(|config| config.faults.push(fault));
        send(&mut a, b"one", None);
        send(&mut a, b"two", None);
        while network.step() {}
        let received: Vec<_> = poll(&mut b)
            .into_iter()
            .map(|completion| match completion {
                Completion::Received { message, .. } => String::from_utf8(message.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(received, texts);
    }
    for nth in 0..2 {
        let (mut a, mut b, network) = stepped(|config| config.faults.push(SimFault::Disconnect(nth)));
        send(&mut a, b"one", None);
        send(&mut a, b"two", None);
        while network.step() {}
        assert_eq!(poll(&mut b).len() as u64, nth + 1);
        // It is lost once.
        network.cut();
        assert!(poll(&mut b).is_empty());
    }
}

#[test]
fn dropping_a_queue_pair_ends_the_connection() {
    let (a, mut b, network) = stepped(|_| {});
    drop(a);
    assert!(matches!(poll(&mut b)[..], [Completion::Disconnected { reason: DisconnectReason::Remote }]));
    assert!(!b.is_open() && !network.step());
}

/// The provider applies its limits on the length of transfers and on RDMA Reads in flight.
#[test]
fn limits_of_transfers() {
    for (len, fits) in [(4, true), (5, false)] {
        for is_read in [true, false] {
            let (mut a, mut b, _) = pair(SimConfig {
                ends: std::array::from_fn(|_| SimEndConfig { max_transfer: 4, ..Default::default() }),
                ..SimConfig::default()
            });
            let there = match is_read {
                false => a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).unwrap(),
                true => a.register(RegisterableMemory::Source(vec![7; 8].into()), Access::RemoteRead).unwrap(),
            };
            let remote = RemoteMemory { handle: there.handle, offset: there.base };
            if is_read {
                let sink = b.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap();
                b.post(WorkRequest::Read { id: WrId(1), sink: sink.handle, sink_offset: 0, remote, len });
            } else {
                b.post(WorkRequest::Write { id: WrId(1), source: vec![7; len as usize].into(), remote });
            }
            let completions = poll(&mut b);
            let failed = matches!(completions[0], Completion::Failed { error: WorkError::Local(_), .. });
            assert_eq!((failed, b.is_open()), (!fits, fits), "{len}, {completions:?}");
        }
    }
    let (mut a, mut b, network) = stepped(|config| config.ends[1].max_reads = 1);
    let source = a.register(RegisterableMemory::Source(Bytes::from_static(b"0123")), Access::RemoteRead).unwrap();
    let sinks = [0; 2].map(|_| b.register(RegisterableMemory::Sink(vec![0; 4].into()), Access::ReadSink).unwrap());
    let remote = RemoteMemory { handle: source.handle, offset: source.base };
    let read =
        |n: usize| WorkRequest::Read { id: WrId(n as u64), sink: sinks[n].handle, sink_offset: 0, remote, len: 4 };
    // The second one waits for the first.
    b.post(read(0));
    b.post(read(1));
    assert!(network.step());
    assert!(poll(&mut b).is_empty());
    assert!(network.step());
    assert!(matches!(poll(&mut b)[..], [Completion::Read { id: WrId(0) }]));
}

/// An RDMA Read in flight delays only the invalidation of its own sink, and the end of the connection.
#[test]
fn reads_in_flight_delay_only_their_own_sinks() {
    let mut orders = std::collections::HashSet::new();
    for seed in 0..20 {
        let (mut a, mut b, network) = stepped(|config| config.seed = seed);
        let source = a.register(RegisterableMemory::Source(Bytes::from_static(b"0123")), Access::RemoteRead).unwrap();
        let sinks = [0; 2].map(|_| b.register(RegisterableMemory::Sink(vec![0; 4].into()), Access::ReadSink).unwrap());
        let remote = RemoteMemory { handle: source.handle, offset: source.base };
        b.post(WorkRequest::Read { id: WrId(0), sink: sinks[0].handle, sink_offset: 0, remote, len: 4 });
        b.post(WorkRequest::Invalidate { id: WrId(8), handle: sinks[1].handle });
        b.disconnect();
        while network.step() {}
        let completions = poll(&mut b);
        let kinds: String = completions
            .iter()
            .map(|completion| match completion {
                Completion::Read { .. } => 'r',
                Completion::Invalidated { .. } => 'i',
                Completion::Disconnected { .. } => 'd',
                other => panic!("{other:?}"),
            })
            .collect();
        orders.insert(kinds);
    }
    assert_eq!(orders, ["rid", "ird"].map(String::from).into());
}

/// The success of an unsignaled Send is not reported. A Send with Invalidate ends the connection if the handle is
/// unknown, or if the receiver does not support such Sends. Otherwise, it revokes access to the memory.
#[test]
fn sends_and_invalidation() {
    let (mut a, mut b, _) = pair(SimConfig::default());
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    message.append(b"quiet");
    a.post(WorkRequest::Send { id: WrId(3), message, invalidate: None, solicited: false, signaled: false });
    assert_eq!((poll(&mut a).len(), poll(&mut b).len()), (0, 1));
    for (is_supported, is_known) in [(true, true), (true, false), (false, true)] {
        let mut config = SimConfig::default();
        config.ends[1].remote_invalidation = is_supported;
        let (mut a, mut b, _) = pair(config);
        let region = b.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).unwrap();
        let handle = if is_known { region.handle } else { MemoryHandle(region.handle.0 ^ 1) };
        send(&mut a, b"last", Some(handle));
        let received = poll(&mut b);
        assert_eq!(matches!(received[..], [Completion::Received { .. }]), is_supported && is_known, "{received:?}");
        assert_eq!(b.is_open(), is_supported && is_known);
        if b.is_open() {
            let remote = RemoteMemory { handle, offset: region.base };
            a.post(WorkRequest::Write { id: WrId(1), source: Bytes::from_static(b"late"), remote });
            poll(&mut a);
            assert!(!b.is_open(), "the memory is still exposed");
        }
    }
}

/// A garbled Send differs in one byte if it is long enough. Other Sends do not differ.
#[test]
fn sends_are_garbled() {
    for (nth, at, texts) in [(0, 1, ["oNe", "two"]), (1, 0, ["one", "Two"]), (0, 3, ["one", "two"])] {
        let fault = SimFault::Garble { end: SimEnd::A, nth, at, mask: 0x20 };
        let (mut a, mut b, network) = stepped(|config| config.faults.push(fault));
        send(&mut a, b"one", None);
        send(&mut a, b"two", None);
        while network.step() {}
        for (completion, text) in poll(&mut b).iter().zip(texts) {
            assert!(
                matches!(completion, Completion::Received { message, .. } if &message[..] == text.as_bytes()),
                "{completion:?}"
            );
        }
    }
}

/// RDMA Reads in flight fail when the connection is lost, before its end is reported.
#[test]
fn reads_in_flight_fail_with_the_connection() {
    let (mut a, mut b, network) = stepped(|_| {});
    let source = a.register(RegisterableMemory::Source(Bytes::from_static(b"0123")), Access::RemoteRead).unwrap();
    let sink = b.register(RegisterableMemory::Sink(vec![0; 4].into()), Access::ReadSink).unwrap();
    let remote = RemoteMemory { handle: source.handle, offset: source.base };
    b.post(WorkRequest::Read { id: WrId(5), sink: sink.handle, sink_offset: 0, remote, len: 4 });
    assert!(network.step());
    network.cut();
    let completions = poll(&mut b);
    assert!(
        matches!(
            completions[..],
            [Completion::Failed { id: WrId(5), error: WorkError::Flushed }, Completion::Disconnected { .. }]
        ),
        "{completions:?}"
    );
}

/// The peer cannot read memory that it may only write.
#[test]
fn sinks_are_not_readable() {
    let (mut a, mut b, _) = pair(SimConfig::default());
    let there = a.register(RegisterableMemory::Sink(vec![7; 4].into()), Access::RemoteWrite).unwrap();
    let sink = b.register(RegisterableMemory::Sink(vec![0; 4].into()), Access::ReadSink).unwrap();
    let remote = RemoteMemory { handle: there.handle, offset: there.base };
    b.post(WorkRequest::Read { id: WrId(5), sink: sink.handle, sink_offset: 0, remote, len: 4 });
    let completions = poll(&mut b);
    assert!(matches!(completions[0], Completion::Failed { error: WorkError::RemoteAccess(_), .. }), "{completions:?}");
}
