//! Cases for requests that the peer or the local side must refuse.

use super::*;

/// Posts a forbidden RDMA Write at the client. Checks that the server refuses it and that the memory of `witness` is
/// unchanged.
async fn bad_write<A: QueuePair, B: QueuePair>(
    mut pair: ConnectedPair<A, B>,
    to: Region,
    at: u64,
    witness: Option<Region>,
) {
    pair.announce().await;
    pair.client.write(vec![9; 20], to, at);
    pair.server_refuses().await;
    if let Some(witness) = witness {
        let id = pair.server.invalidate(witness.handle);
        assert_eq!(sink_of(pair.server().await, id), vec![0xee; 32], "memory was changed");
    }
}

/// An RDMA Write beyond the end of registered memory is refused.
pub async fn write_out_of_bounds<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    bad_write(pair, region, 13, Some(region)).await;
}

/// An RDMA Write beyond the end of registered memory is refused, even if the memory is part of a larger pool buffer.
pub async fn write_beyond_pooled<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = params();
    let mut sink = server.pool.alloc(2000);
    sink.fill(0xee);
    let mut pair = pair_with(connector, listener, params(), server).await;
    let region = pair.server.register(RegisterableMemory::Sink(sink), Access::RemoteWrite);
    pair.announce().await;
    pair.client.write(vec![9; 20], region, 1981);
    pair.server_refuses().await;
    let id = pair.server.invalidate(region.handle);
    assert_eq!(sink_of(pair.server().await, id), vec![0xee; 2000], "memory was changed");
}

/// An RDMA Write is refused if its offset plus its length exceeds 64 bits.
pub async fn write_that_wraps<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    let at = (u64::MAX - 9).wrapping_sub(region.base);
    bad_write(pair, region, at, Some(region)).await;
}

/// An RDMA Write to memory registered for reading is refused.
pub async fn write_to_source<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.source(vec![0; 32]);
    bad_write(pair, region, 0, None).await;
}

/// An RDMA Write to an unknown handle is refused.
pub async fn write_to_unknown<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    let other = Region { handle: MemoryHandle(region.handle.0 ^ 0x0101_0101), ..region };
    bad_write(pair, other, 0, Some(region)).await;
}

/// An RDMA Write to the sink of an RDMA Read is refused.
pub async fn write_to_read_sink<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::ReadSink);
    bad_write(pair, region, 0, Some(region)).await;
}

/// An RDMA Write to invalidated memory is refused.
pub async fn write_after_invalidate<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    let id = pair.server.invalidate(region.handle);
    assert_eq!(sink_of(pair.server().await, id), vec![0xee; 32]);
    bad_write(pair, region, 0, None).await;
}

async fn bad_read<A: QueuePair, B: QueuePair>(mut pair: ConnectedPair<A, B>, from: Region, at: u64) {
    let sink = pair.client.sink(32, Access::ReadSink);
    pair.announce().await;
    let read = pair.client.read(sink, 0, from, at, 20);
    match pair.client().await {
        Completion::Failed { id, error: WorkError::RemoteAccess(_) | WorkError::Flushed } => assert_eq!(id, read),
        other => panic!("{other:?}"),
    }
    pair.server_refuses().await;
    let id = pair.client.invalidate(sink.handle);
    assert_eq!(sink_of(pair.client().await, id), vec![0xee; 32]);
}

/// An RDMA Read beyond the end of registered memory is refused.
pub async fn read_out_of_bounds<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.source(vec![1; 32]);
    bad_read(pair, region, 13).await;
}

/// An RDMA Read of memory registered for writing is refused.
pub async fn read_of_sink<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(32, Access::RemoteWrite);
    bad_read(pair, region, 0).await;
}

/// An RDMA Read of an unknown handle is refused.
pub async fn read_of_unknown<C: Connector, L: Listener>(connector: C, listener: L) {
    let pair = pair(connector, listener).await;
    bad_read(pair, Region { handle: MemoryHandle(3), base: 0 }, 0).await;
}

/// Send with Invalidate of an unknown handle is refused.
pub async fn invalidate_of_unknown<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    pair.client.send(b"x", Some(MemoryHandle(12345)));
    pair.server_refuses().await;
}

/// Send with Invalidate of the sink of an RDMA Read is refused.
pub async fn invalidate_of_read_sink<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.server.sink(32, Access::ReadSink);
    pair.announce().await;
    pair.client.send(b"x", Some(sink.handle));
    pair.server_refuses().await;
}

/// A Send for which the receiver has posted no Receive is refused.
pub async fn send_without_receive<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = SetupParams { receive_count: 1, ..params() };
    let mut pair = pair_with(connector, listener, params(), server).await;
    pair.client.send(b"one", None);
    assert_eq!(pair.server_received().await, b"one");
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    pair.client.send(b"two", None);
    let tells = pair.server.qp().reports_violations();
    // An InfiniBand receiver asks the sender to retry. The sender gives up, and knows the cause.
    match pair.both_end().await {
        (DisconnectReason::ReportedByPeer(_), DisconnectReason::Remote) => {}
        (client, server) => refused(tells, &client, &server),
    }
}

/// A Send longer than the Receive is refused.
pub async fn send_longer_than_receive<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = SetupParams { receive_size: 64, ..params() };
    let mut pair = pair_with(connector, listener, params(), server).await;
    pair.client.send(&[1; 64], None);
    assert_eq!(pair.server_received().await, [1; 64]);
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    pair.client.send(&[1; 65], None);
    pair.server_refuses().await;
}

/// An RDMA Read into a range outside its sink fails locally.
pub async fn local_error_in_read<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let source = pair.server.source(vec![1; 32]);
    let sink = pair.client.sink(32, Access::ReadSink);
    pair.announce().await;
    let read = pair.client.read(sink, 16, source, 0, 17);
    match pair.client().await {
        Completion::Failed { id, error: WorkError::Local(_) } => assert_eq!(id, read),
        other => panic!("{other:?}"),
    }
    let (client, _) = pair.both_end().await;
    assert_eq!(client, DisconnectReason::Local);
}

/// Registration of read-only memory for writing fails, and the error contains the memory.
pub async fn memory_must_suit_access<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    for access in [Access::RemoteWrite, Access::ReadSink] {
        let error =
            pair.client.qp().register(RegisterableMemory::Source(Bytes::from_static(b"const")), access).unwrap_err();
        assert!(matches!(error.memory, RegisterableMemory::Source(memory) if memory == b"const"[..]));
    }
}
