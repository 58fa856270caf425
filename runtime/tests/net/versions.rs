//! Negotiation of the RPC-over-RDMA version between channel and server (RPC-over-RDMA v2 §4.2.3).

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, Channel, Reconnect},
    engine::Versions,
    error::{CallFailure, CloseReason},
    provider::{
        Completion, ConnectRequest, Connected, Incoming, Listener, QueuePair, SetupError, SetupParams,
        sim::{SimConfig, SimFabric},
    },
    server::Server,
};

/// A queue pair that disconnects when it receives something other than a version 1 message, like a server that only
/// knows version 1.
struct Strict<Q>(Q);

impl<Q: QueuePair> QueuePair for Strict<Q> {
    forward_to_queue_pair!(0);

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        let before = completions.len();
        let polled = self.0.poll(cx, completions);
        let is_other = |completion: &Completion| match completion {
            Completion::Received { message, .. } => message.get(4..8) != Some(&[0, 0, 0, 1]),
            _ => false,
        };
        if completions[before..].iter().any(is_other) {
            self.0.disconnect();
            completions.retain(|completion| !is_other(completion));
        }
        polled
    }
}

impl<I: Incoming> Incoming for Strict<I> {
    type QueuePair = Strict<I::QueuePair>;
    type Request = Strict<I::Request>;

    fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    async fn request(self, timeout: Duration) -> Result<Self::Request, SetupError> {
        self.0.request(timeout).await.map(Strict)
    }
}

impl<R: ConnectRequest> ConnectRequest for Strict<R> {
    type QueuePair = Strict<R::QueuePair>;

    fn private_data(&self) -> &[u8] {
        self.0.private_data()
    }

    async fn accept(self, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        let Connected { queue_pair, private_data, local_addr, peer_addr } = self.0.accept(params).await?;
        Ok(Connected { queue_pair: Strict(queue_pair), private_data, local_addr, peer_addr })
    }

    async fn reject(self, private_data: Bytes) -> Result<(), SetupError> {
        self.0.reject(private_data).await
    }
}

struct StrictListener<L> {
    listener: L,
    accepted: Arc<AtomicUsize>,
}

impl<L: Listener> Listener for StrictListener<L> {
    type QueuePair = Strict<L::QueuePair>;
    type IncomingConnection = Strict<L::IncomingConnection>;

    fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    async fn accept(&self) -> io::Result<Self::IncomingConnection> {
        let incoming = self.listener.accept().await?;
        // A client that offers version 2 again and again would never stop.
        let earlier = self.accepted.fetch_add(1, Ordering::SeqCst);
        assert!(earlier < 10, "the client keeps offering version 2");
        Ok(Strict(incoming))
    }
}

async fn versions(transport: Transport, client: Versions, server: Versions) -> (Running, Channel) {
    let running = transport.serve(Server::builder().service(TestService::default()).versions(server)).await;
    let channel = running.connect(Channel::builder().versions(client)).await;
    (running, channel)
}

/// Client and server use the highest common version, on a single connection.
#[tokio::test]
async fn highest_common_version() {
    timed(async {
        for transport in [Transport::sim(), Transport::Iwarp] {
            for (client, server, version) in [
                (Versions::Both, Versions::Both, 2),
                (Versions::V1, Versions::Both, 1),
                (Versions::Both, Versions::V1, 1),
                (Versions::V2, Versions::V2, 2),
                (Versions::Both, Versions::V2, 2),
            ] {
                let both = (client, server);
                let (running, channel) = versions(transport.clone(), client, server).await;
                let data = Data(pattern(1, 100_000).into());
                let calls = (0..20).map(|_| async { call::<Put>(&channel, &data).await.map(|_| ()) });
                for result in futures_join(calls).await {
                    result.unwrap_or_else(|error| panic!("{both:?}: {error}"));
                }
                assert!(call::<Get>(&channel, &Range(1, 70_000)).await.unwrap().0 == pattern(1, 70_000));
                let info = channel.info();
                assert_eq!((info.version, info.properties.is_some()), (Some(version), version == 2), "{both:?}");
                let formats = channel.formats();
                assert_eq!((formats.calls.chunked, formats.calls.short), (20, 1), "{both:?}: {formats:?}");
                assert_eq!((formats.replies.chunked, formats.replies.short), (1, 20), "{both:?}: {formats:?}");
                assert_eq!(running.handle.connections().len(), 1);
                assert_eq!(channel.counters().exposed_regions, 0);
            }
        }
    })
    .await;
}

/// Awaits all futures concurrently in one task.
async fn futures_join<F: Future>(calls: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut calls: Vec<_> = calls.map(|call| (Box::pin(call), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (call, output) in &mut calls {
            if output.is_none() {
                match call.as_mut().poll(cx) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    calls.into_iter().filter_map(|(_, output)| output).collect()
}

/// RPC-over-RDMA v2 §4.2.3.2: the client remembers a server that only supports version 1, and the next channel does not
/// try version 2.
#[tokio::test]
async fn a_server_of_version_1_is_remembered() {
    timed(async {
        let (running, channel) = versions(Transport::Iwarp, Versions::Both, Versions::V1).await;
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!((channel.info().version, channel.counters().errors_received), (Some(1), 1));
        let again = running.connect(Channel::builder()).await;
        call::<Null>(&again, &()).await.unwrap();
        assert_eq!((again.info().version, again.counters().errors_received), (Some(1), 0));
    })
    .await;
}

/// Without a common version, calls fail with an error that says so, and the client does not loop.
#[tokio::test]
async fn no_common_version() {
    timed(async {
        let (running, channel) = versions(Transport::sim(), Versions::V2, Versions::V1).await;
        let error = call::<Null>(&channel, &()).await.unwrap_err();
        let reason = |error: &CallError| match error {
            CallError::Transport { failure: CallFailure::Closed { reason, sent: false }, .. } => reason.clone(),
            other => panic!("{other}"),
        };
        assert!(matches!(reason(&error), CloseReason::NegotiationFailed { versions: Some((1, 1)), .. }), "{error}");
        assert!(error.is_retry_safe());
        let error = call::<Null>(&channel, &()).await.unwrap_err();
        assert!(matches!(reason(&error), CloseReason::NegotiationFailed { .. }), "{error}");
        eventually(|| running.handle.connections().is_empty()).await;
    })
    .await;
}

/// RPC-over-RDMA v2 §4.2.3.2: if a server disconnects because of version 2, the client reconnects once with version 1.
/// Callers do not notice, even with [`Reconnect::Never`] and with many calls.
#[tokio::test]
async fn server_disconnects_over_version_2() {
    timed(async {
        for reconnect in [Reconnect::Never, Reconnect::on_demand()] {
            let fabric = SimFabric::new(SimConfig::default());
            let accepted = Arc::new(AtomicUsize::new(0));
            let listener = StrictListener { listener: fabric.listen(0).unwrap(), accepted: Arc::clone(&accepted) };
            let server = Server::builder().service(TestService::default()).listen_with(listener).bind().await.unwrap();
            let addr = server.local_addrs()[0];
            let handle = server.handle();
            spawn_server(server);
            let builder = Channel::builder().reconnect(reconnect);
            let channel = builder.connect_with(fabric.connector(), addr).await.unwrap();
            let calls = (0..50).map(|n| {
                let channel = channel.clone();
                async move { call::<Get>(&channel, &Range(n, 3000)).await }
            });
            for (n, result) in (0..).zip(futures_join(calls).await) {
                assert!(result.unwrap().0 == pattern(n, 3000));
            }
            assert_eq!((channel.info().version, accepted.load(Ordering::SeqCst)), (Some(1), 2));
            assert_eq!(handle.connections().len(), 1);
        }
    })
    .await;
}

/// If a channel is closed before it has reconnected with version 1, its calls fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_after_the_server_hung_up() {
    timed(async {
        let fabric = SimFabric::new(SimConfig::default());
        let listener = StrictListener { listener: fabric.listen(0).unwrap(), accepted: Arc::default() };
        let server = Server::builder().service(TestService::default()).listen_with(listener).bind().await.unwrap();
        let addr = server.local_addrs()[0];
        spawn_server(server);
        let channel = Channel::connect_with(fabric.connector(), addr).await.unwrap();
        let reason = channel.closed().await;
        assert!(matches!(reason, CloseReason::NegotiationFailed { .. }), "{reason}");
        channel.close().await;
        let error = tokio::spawn(async move { call::<Null>(&channel, &()).await }).await.unwrap().unwrap_err();
        assert!(error.is_connection_loss() && error.is_retry_safe(), "{error}");
    })
    .await;
}

/// `?version=` in a URL overrides the builder.
#[tokio::test]
async fn version_in_url() {
    timed(async {
        let running = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
        for version in [1, 2] {
            let url = format!("iwarp://{}?version={version}", running.addr);
            let channel = Channel::builder().versions(Versions::Both).connect(&url).await.unwrap();
            call::<Null>(&channel, &()).await.unwrap();
            assert_eq!(channel.info().version, Some(version));
        }
    })
    .await;
}
