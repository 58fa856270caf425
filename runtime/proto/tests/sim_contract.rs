//! The order of completions in the provider `sim`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use rpcrdma_proto::provider::{
    Access, Completion, DisconnectReason, QueuePair, RegisterableMemory, RemoteMemory, WorkError, WorkRequest, WrId,
    sim::{SimConfig, pair},
};

/// An Invalidate posted after an RDMA Read waits for the Read, as in the other providers.
#[tokio::test]
async fn invalidate_waits_for_a_read() {
    for seed in 0..20 {
        let mut config = SimConfig::default();
        config.seed = seed;
        let (mut a, mut b, _network) = pair(config);
        let source =
            b.register(RegisterableMemory::Source(Bytes::from_static(b"12345678")), Access::RemoteRead).unwrap();
        let sink = a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap();
        let remote = RemoteMemory { handle: source.handle, offset: source.base };
        a.post(WorkRequest::Read { id: WrId(1), sink: sink.handle, sink_offset: 0, remote, len: 8 });
        a.post(WorkRequest::Invalidate { id: WrId(2), handle: sink.handle });
        let mut done = Vec::new();
        let polled = poll_fn(|cx| a.poll(cx, &mut done));
        tokio::time::timeout(Duration::from_secs(60), polled).await.expect("timed out waiting for completions");
        let in_order = matches!(done[..], [Completion::Read { .. }, Completion::Invalidated { .. }]);
        assert!(in_order, "seed {seed}: {done:?}");
    }
}

/// An RDMA Read beyond the end of its sink is a local error, as in the other providers.
#[tokio::test]
async fn a_read_beyond_its_sink_is_a_local_error() {
    let (mut a, mut b, _network) = pair(SimConfig::default());
    let source = b.register(RegisterableMemory::Source(Bytes::from_static(b"12345678")), Access::RemoteRead).unwrap();
    let sink = a.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap();
    let remote = RemoteMemory { handle: source.handle, offset: source.base };
    a.post(WorkRequest::Read { id: WrId(1), sink: sink.handle, sink_offset: 4, remote, len: 8 });
    let mut done = Vec::new();
    while done.len() < 2 {
        let polled = poll_fn(|cx| a.poll(cx, &mut done));
        tokio::time::timeout(Duration::from_secs(60), polled).await.expect("timed out waiting for completions");
    }
    let is_local = matches!(
        done[..],
        [
            Completion::Failed { id: WrId(1), error: WorkError::Local(_) },
            Completion::Disconnected { reason: DisconnectReason::Local }
        ]
    );
    assert!(is_local, "{done:?}");
}
