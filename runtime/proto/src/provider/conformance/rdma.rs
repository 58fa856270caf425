//! Conformance cases for RDMA Write and RDMA Read.

use super::*;

/// The data of an RDMA Write is in place when a Send that was posted later is delivered.
pub async fn write_precedes_send<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(3_000_001, 3);
    let region = pair.server.sink(data.len(), Access::RemoteWrite);
    pair.announce().await;
    pair.client.write(data.clone(), region, 0);
    pair.client.send(b"there", None);
    assert_eq!(pair.server_received().await, b"there");
    let id = pair.server.invalidate(region.handle);
    assert!(sink_of(pair.server().await, id) == data, "data differs");
    assert!(matches!(pair.client().await, Completion::Written { .. }));
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    assert_eq!(pair.client.qp().copied_payload_bytes(), 0, "payload copied at the source");
    assert_eq!(pair.server.qp().copied_payload_bytes(), 0, "payload copied at the sink");
}

/// Pool buffers can be exposed, written, read and returned repeatedly.
pub async fn pooled_memory<C: Connector, L: Listener>(connector: C, listener: L) {
    let (client, server) = (params(), params());
    let (client_pool, server_pool) = (client.pool.clone(), server.pool.clone());
    let mut pair = pair_with(connector, listener, client, server).await;
    for round in 0..30_usize {
        // Use the full buffer in some rounds, and part of it in others.
        let len = if round % 3 == 0 { 1 << 16 } else { (1 << 16) - 1000 + round };
        let mut data = client_pool.alloc(len);
        data.copy_from_slice(&pattern(len, round));
        let data = data.freeze();
        let region = pair.server.register(RegisterableMemory::Sink(server_pool.alloc(len)), Access::RemoteWrite);
        pair.announce().await;
        pair.client.write(data.clone(), region, 0);
        pair.client.send(b"written", None);
        assert_eq!(pair.server_received().await, b"written");
        let id = pair.server.invalidate(region.handle);
        assert!(sink_of(pair.server().await, id) == data, "written data differs");
        let source = pair.client.register(RegisterableMemory::Source(data.clone()), Access::RemoteRead);
        let sink = pair.server.register(RegisterableMemory::Sink(server_pool.alloc(len)), Access::ReadSink);
        pair.announce().await;
        let read = pair.server.read(sink, 0, source, 0, len as u32);
        assert!(matches!(pair.server().await, Completion::Read { id } if id == read));
        let id = pair.server.invalidate(sink.handle);
        assert!(sink_of(pair.server().await, id) == data, "read data differs");
        let id = pair.client.invalidate(source.handle);
        loop {
            match pair.client().await {
                Completion::Invalidated { id: got, .. } if got == id => break,
                Completion::Written { .. } | Completion::Sent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        pair.server.qp().post_receives(1);
    }
    assert_eq!(pair.client.qp().copied_payload_bytes() + pair.server.qp().copied_payload_bytes(), 0, "payload copied");
}

/// Memory in a static constant can be the source of an RDMA Read.
pub async fn read_of_constants<C: Connector, L: Listener>(connector: C, listener: L) {
    static CONSTANT: [u8; 20_000] = [0x5a; 20_000];
    let mut pair = pair(connector, listener).await;
    let source = pair.server.source(Bytes::from_static(&CONSTANT));
    let sink = pair.client.sink(20_000, Access::ReadSink);
    pair.announce().await;
    let read = pair.client.read(sink, 0, source, 0, 20_000);
    assert!(matches!(pair.client().await, Completion::Read { id } if id == read));
    let id = pair.client.invalidate(sink.handle);
    assert!(sink_of(pair.client().await, id) == CONSTANT, "data differs");
    let id = pair.server.invalidate(source.handle);
    assert!(matches!(pair.server().await, Completion::Invalidated { id: got, .. } if got == id));
}

/// A zero-length RDMA Write needs no memory at the peer.
pub async fn empty_write_to_unknown_handle<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let unknown = Region { handle: MemoryHandle(1), base: u64::MAX };
    pair.client.write(Bytes::new(), unknown, 0);
    assert!(matches!(pair.client().await, Completion::Written { .. }));
    pair.client.send(b"still here", None);
    assert_eq!(pair.server_received().await, b"still here");
}

/// An RDMA Write changes only the bytes in its range.
pub async fn writes_at_every_offset<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(64, Access::RemoteWrite);
    pair.announce().await;
    let mut expected = vec![0xee; 64];
    for at in 0..64_usize {
        let bytes = pattern((at * 5) % (64 - at) + 1, at);
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
        pair.client.write(bytes, region, at as u64);
    }
    pair.client.send(b"", None);
    assert_eq!(pair.server_received().await, b"");
    let id = pair.server.invalidate(region.handle);
    assert_eq!(sink_of(pair.server().await, id), expected);
}

/// A large RDMA Read is placed at the requested position, and changes nothing around it.
pub async fn read_large<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(2_500_003, 9);
    let source = pair.server.source(data.clone());
    let sink = pair.client.sink(data.len() + 10, Access::ReadSink);
    pair.announce().await;
    let id = pair.client.read(sink, 7, source, 0, data.len() as u32);
    assert!(matches!(pair.client().await, Completion::Read { id: got } if got == id));
    let id = pair.client.invalidate(sink.handle);
    let landed = sink_of(pair.client().await, id);
    assert!(landed[7..7 + data.len()] == data, "data differs");
    assert_eq!((&landed[..7], &landed[7 + data.len()..]), (&[0xee; 7][..], &[0xee; 3][..]));
    let id = pair.server.invalidate(source.handle);
    match pair.server().await {
        Completion::Invalidated { id: got, memory: RegisterableMemory::Source(memory) } if got == id => {
            assert!(memory == data)
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pair.client.qp().copied_payload_bytes() + pair.server.qp().copied_payload_bytes(), 0, "payload copied");
}

/// RDMA Reads beyond the negotiated depth wait. All RDMA Reads complete in the order in which they were posted.
pub async fn more_reads_than_depth<C: Connector, L: Listener>(connector: C, listener: L) {
    let client = SetupParams { initiator_depth: 3, ..params() };
    let server = SetupParams { responder_resources: 2, ..params() };
    let mut pair = pair_with(connector, listener, client, server).await;
    let depth = pair.client.qp().max_reads();
    // The depth is 2, unless the peer's device serves as many as requested (Linux's `siw` does).
    assert!((1..=3).contains(&depth), "depth is {depth}, but the peer serves 2 RDMA Reads");
    let data = pattern(50_000, 2);
    let source = pair.server.source(data.clone());
    let sink = pair.client.sink(data.len(), Access::ReadSink);
    pair.announce().await;
    let ids: Vec<_> = (0..50).map(|i| pair.client.read(sink, i * 1000, source, i * 1000, 1000)).collect();
    for id in ids {
        assert!(matches!(pair.client().await, Completion::Read { id: got } if got == id));
    }
    let id = pair.client.invalidate(sink.handle);
    assert!(sink_of(pair.client().await, id) == data, "data differs");
}

/// A zero-length RDMA Read needs no memory at the peer.
pub async fn empty_read<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.client.sink(4, Access::ReadSink);
    let id = pair.client.read(sink, 4, Region { handle: MemoryHandle(77), base: 99 }, 0, 0);
    assert!(matches!(pair.client().await, Completion::Read { id: got } if got == id));
}

/// Requests posted after an RDMA Read complete after it.
pub async fn completions_keep_order<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let source = pair.server.source(pattern(400_000, 0));
    let sink = pair.client.sink(400_000, Access::ReadSink);
    let target = pair.server.sink(10, Access::RemoteWrite);
    pair.announce().await;
    let read = pair.client.read(sink, 0, source, 0, 400_000);
    let write = pair.client.write(vec![1; 10], target, 0);
    let send = pair.client.send(b"last", None);
    assert!(matches!(pair.client().await, Completion::Read { id } if id == read));
    assert!(matches!(pair.client().await, Completion::Written { id } if id == write));
    assert!(matches!(pair.client().await, Completion::Sent { id } if id == send));
    assert_eq!(pair.server_received().await, b"last");
}

/// RDMA Reads, RDMA Writes and Sends of both sides do not interfere with each other.
pub async fn both_directions_at_once<C: Connector, L: Listener>(connector: C, listener: L) {
    const LEN: usize = 700_001;
    let mut pair = pair(connector, listener).await;
    for round in 0..6 {
        let (c_source, s_source) =
            (pair.client.source(pattern(LEN, round)), pair.server.source(pattern(LEN, round + 1)));
        let (c_sink, s_sink) = (pair.client.sink(LEN, Access::ReadSink), pair.server.sink(LEN, Access::ReadSink));
        let (c_target, s_target) =
            (pair.client.sink(LEN, Access::RemoteWrite), pair.server.sink(LEN, Access::RemoteWrite));
        pair.announce().await;
        pair.client.read(c_sink, 0, s_source, 0, LEN as u32);
        pair.server.read(s_sink, 0, c_source, 0, LEN as u32);
        pair.client.write(pattern(LEN, round + 2), s_target, 0);
        pair.server.write(pattern(LEN, round + 3), c_target, 0);
        pair.client.send(b"from the client", None);
        pair.server.send(b"from the server", None);
        for at_client in [true, false] {
            let (mut read, mut written, mut sent, mut received) = (0, 0, 0, 0);
            for _ in 0..4 {
                match if at_client { pair.client().await } else { pair.server().await } {
                    Completion::Read { .. } => read += 1,
                    Completion::Written { .. } => written += 1,
                    Completion::Sent { .. } => sent += 1,
                    Completion::Received { .. } => received += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((read, written, sent, received), (1, 1, 1, 1));
        }
        let id = pair.client.invalidate(c_sink.handle);
        assert!(sink_of(pair.client().await, id) == pattern(LEN, round + 1));
        let id = pair.server.invalidate(s_sink.handle);
        assert!(sink_of(pair.server().await, id) == pattern(LEN, round));
        let id = pair.client.invalidate(c_target.handle);
        assert!(sink_of(pair.client().await, id) == pattern(LEN, round + 3));
        let id = pair.server.invalidate(s_target.handle);
        assert!(sink_of(pair.server().await, id) == pattern(LEN, round + 2));
        pair.client.qp().post_receives(1);
        pair.server.qp().post_receives(1);
    }
    assert_eq!(pair.client.qp().copied_payload_bytes() + pair.server.qp().copied_payload_bytes(), 0, "payload copied");
}

/// An Invalidate that is posted after an RDMA Read into its memory completes after the RDMA Read.
pub async fn invalidate_waits_for_reads<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(5_000_000, 8);
    let source = pair.server.source(data.clone());
    let sink = pair.client.sink(data.len(), Access::ReadSink);
    pair.announce().await;
    let read = pair.client.read(sink, 0, source, 0, data.len() as u32);
    let back = pair.client.invalidate(sink.handle);
    assert!(matches!(pair.client().await, Completion::Read { id } if id == read), "the Read completes first");
    assert!(sink_of(pair.client().await, back) == data, "data differs");
}
