//! Cases for the end of connections, and for handles.

use super::*;

/// Requests posted before `disconnect` arrive. Then both sides report which side closed the connection.
pub async fn disconnect_in_order<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let data = pattern(1_000_000, 4);
    let target = pair.server.sink(data.len(), Access::RemoteWrite);
    pair.announce().await;
    let write = pair.client.write(data.clone(), target, 0);
    let send = pair.client.send(b"bye", None);
    assert!(pair.client.qp().is_open());
    pair.client.qp().disconnect();
    assert!(matches!(pair.client().await, Completion::Written { id } if id == write));
    assert!(matches!(pair.client().await, Completion::Sent { id } if id == send));
    assert_eq!(pair.server_received().await, b"bye");
    let (client, server) = pair.both_end().await;
    assert_eq!((client, server), (DisconnectReason::Local, DisconnectReason::Remote));
    let id = pair.server.invalidate(target.handle);
    assert!(sink_of(pair.server().await, id) == data, "data differs");
}

/// After the connection has ended, requests are flushed, registrations fail, and memory can still be invalidated.
pub async fn after_disconnect<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.client.sink(16, Access::RemoteWrite);
    pair.server.qp().disconnect();
    let (client, server) = pair.both_end().await;
    assert_eq!((client, server), (DisconnectReason::Remote, DisconnectReason::Local));
    let send = pair.client.send(b"too late", None);
    match pair.client().await {
        Completion::Failed { id, error } => assert_eq!((id, error), (send, WorkError::Flushed)),
        other => panic!("{other:?}"),
    }
    assert!(!pair.client.qp().is_open());
    assert!(pair.client.qp().register(RegisterableMemory::Source(Bytes::new()), Access::RemoteRead).is_err());
    let id = pair.client.invalidate(sink.handle);
    assert_eq!(sink_of(pair.client().await, id), vec![0xee; 16]);
}

/// If the peer is dropped, an RDMA Read in flight is flushed or refused. The Invalidate that was posted after the Read
/// does not complete before the Read. At the end, `Disconnected` is reported.
pub async fn peer_dropped<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let sink = pair.client.sink(16, Access::ReadSink);
    // The peer has no such region, but the Read may be refused before the peer is dropped.
    let read = pair.client.read(sink, 0, Region { handle: MemoryHandle(5), base: 0 }, 0, 16);
    let send = pair.client.send(b"?", None);
    let back = pair.client.invalidate(sink.handle);
    pair.server.queue_pair = None;
    let mut flushed = Vec::new();
    let reason = loop {
        match pair.client().await {
            Completion::Failed { id, error: WorkError::Flushed | WorkError::RemoteAccess(_) } => flushed.push(id),
            Completion::Sent { id } => assert_eq!(id, send),
            Completion::Invalidated { id, .. } => assert_eq!((id, &flushed[..1]), (back, &[read][..])),
            Completion::Disconnected { reason } => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(flushed.contains(&read));
    let refused = matches!(reason, DisconnectReason::RemoteAccess(_));
    assert!(refused || matches!(reason, DisconnectReason::Remote | DisconnectReason::Transport(_)), "{reason:?}");
}

/// Handles are not predictable from earlier handles: 200 consecutive handles do not increase in regular steps. All of
/// them are different, although the memory of each is invalidated.
pub async fn handles_are_unpredictable<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let mut handles: Vec<u32> = (0..200)
        .map(|_| {
            let region = pair.client.source(vec![0; 8]);
            pair.client.invalidate(region.handle);
            region.handle.0
        })
        .collect();
    let steps: Vec<u32> = handles.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    let repeated = steps.iter().filter(|step| steps.iter().filter(|s| s == step).count() > 2).count();
    assert!(repeated < 20, "handles increase in regular steps");
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), 200, "a handle was reused too soon");
}
