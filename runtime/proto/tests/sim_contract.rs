//! Parts of the provider contract that only these tests check for `sim`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use rpcrdma_proto::provider::{
    Access, Completion, ConnectRequest, Connector, Incoming, Listener, QueuePair, RegisterableMemory, RemoteMemory,
    SetupParams, WorkRequest, WrId,
    sim::{SimConfig, SimFabric, pair},
};

/// A provider without Send with Invalidate uses the private data for that case.
#[tokio::test]
async fn private_data_without_invalidation() {
    let mut config = SimConfig::default();
    config.ends[0].remote_invalidation = false;
    config.ends[1].remote_invalidation = false;
    let fabric = SimFabric::new(config);
    let listener = fabric.listen(0).unwrap();
    let mut params = SetupParams::default();
    params.private_data = Bytes::from_static(b"with");
    params.private_data_without_invalidation = Bytes::from_static(b"without");
    let (there, to) = (params.clone(), listener.local_addr());
    let server = async {
        let request = listener.accept().await.unwrap().request(Duration::from_secs(1)).await.unwrap();
        let seen = request.private_data().to_vec();
        (seen, request.accept(there).await.unwrap())
    };
    let connector = fabric.connector();
    let ((seen, server), client) = tokio::join!(server, connector.connect(to, params));
    let client = client.unwrap();
    assert!(!client.queue_pair.remote_invalidation() && !server.queue_pair.remote_invalidation());
    assert_eq!((&seen[..], &client.private_data[..]), (&b"without"[..], &b"without"[..]));
}

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
        poll_fn(|cx| a.poll(cx, &mut done)).await;
        let in_order = matches!(done[..], [Completion::Read { .. }, Completion::Invalidated { .. }]);
        assert!(in_order, "seed {seed}: {done:?}");
    }
}
