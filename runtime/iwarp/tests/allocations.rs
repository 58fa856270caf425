//! A connection that has warmed up allocates no memory for messages, FPDUs or registrations, and copies no tagged
//! payload.

use std::{future::poll_fn, task::Poll, time::Duration};

use bytes::Bytes;
use rpcrdma_iwarp::{IwarpConfig, IwarpConnector, IwarpListener, IwarpQueuePair};
use rpcrdma_proto::{
    memory::{BufferPool, MessageBuf, Output},
    provider::{
        Access, Completion, ConnectRequest, Connector, Incoming, Listener, MemoryHandle, QueuePair, RegisterableMemory,
        RemoteMemory, SetupParams, WorkRequest, WrId,
    },
};

const LEN: usize = 300_000;

/// Both sides of a connection, and the memory that they reuse.
struct Ends {
    client: IwarpQueuePair,
    server: IwarpQueuePair,
    completions: [Vec<Completion>; 2],
    pool: BufferPool,
    sinks: [Option<RegisterableMemory>; 2],
    source: Bytes,
}

impl Ends {
    async fn connect() -> Self {
        let limit = Duration::from_secs(60);
        let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.unwrap();
        let connector = IwarpConnector::default();
        let accept = async {
            let request = listener.accept().await.unwrap().request(limit).await.unwrap();
            request.accept(SetupParams::default()).await.unwrap().queue_pair
        };
        let (client, server) = tokio::join!(connector.connect(listener.local_addr(), SetupParams::default()), accept);
        Self {
            client: client.unwrap().queue_pair,
            server,
            completions: [Vec::new(), Vec::new()],
            pool: BufferPool::default(),
            sinks: [0, 1].map(|_| Some(RegisterableMemory::Sink(vec![0; LEN].into()))),
            source: Bytes::from(vec![7; LEN]),
        }
    }

    fn send(&self, bytes: &[u8]) -> WorkRequest {
        let mut message = MessageBuf::new(self.pool.alloc(bytes.len()), 0);
        message.append(bytes);
        WorkRequest::Send { id: WrId(0), message, invalidate: None, solicited: false, signaled: true }
    }

    /// Waits until the client has `client` completions and the server has `server`. Keeps the returned sinks.
    async fn complete(&mut self, client: usize, server: usize) {
        let Self { client: client_qp, server: server_qp, completions, .. } = self;
        let [client_done, server_done] = completions;
        let all = poll_fn(|cx| {
            while client_qp.poll(cx, client_done).is_ready() {}
            while server_qp.poll(cx, server_done).is_ready() {}
            let all = client_done.len() >= client && server_done.len() >= server;
            if all { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("timed out waiting for completions");
        for (completions, sink) in completions.iter_mut().zip(&mut self.sinks) {
            for completion in completions.drain(..) {
                match completion {
                    Completion::Invalidated { memory: memory @ RegisterableMemory::Sink(_), .. } => {
                        *sink = Some(memory)
                    }
                    Completion::Failed { .. } | Completion::Disconnected { .. } => panic!("{completion:?}"),
                    _ => {}
                }
            }
        }
    }

    /// Registers memory, performs an RDMA Write and an RDMA Read of [`LEN`] bytes and three Sends, and invalidates the
    /// memory.
    async fn round(&mut self) {
        let target = self.server.register(self.sinks[1].take().unwrap(), Access::RemoteWrite).unwrap();
        let landing = self.client.register(self.sinks[0].take().unwrap(), Access::ReadSink).unwrap();
        let source = self.server.register(RegisterableMemory::Source(self.source.clone()), Access::RemoteRead).unwrap();
        let remote = |handle: MemoryHandle| RemoteMemory { handle, offset: 0 };
        self.client.post(WorkRequest::Write {
            id: WrId(1),
            source: self.source.clone(),
            remote: remote(target.handle),
        });
        self.client.post(WorkRequest::Read {
            id: WrId(2),
            sink: landing.handle,
            sink_offset: 0,
            remote: remote(source.handle),
            len: LEN as u32,
        });
        self.client.post(self.send(b"a small message"));
        self.client.post(self.send(&[1; 3000]));
        self.complete(4, 2).await;
        self.server.post_receives(2);
        for handle in [target.handle, source.handle] {
            self.server.post(WorkRequest::Invalidate { id: WrId(3), handle });
        }
        self.client.post(WorkRequest::Invalidate { id: WrId(3), handle: landing.handle });
        self.server.post(self.send(b"an answer"));
        self.complete(2, 3).await;
        self.client.post_receives(1);
    }
}

#[test]
fn a_warm_connection_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut ends = runtime.block_on(Ends::connect());
    runtime.block_on(async {
        for _ in 0..300 {
            ends.round().await;
        }
    });
    let taken = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..100 {
                ends.round().await;
            }
        });
    });
    assert_eq!(taken.count_total, 0, "{taken:?}");
    assert_eq!(ends.client.copied_payload_bytes() + ends.server.copied_payload_bytes(), 0);
}
