//! Reconnection of channels, retries of calls after a lost connection, lazy channels, and channels over local sockets.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::net_support::*;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, ConnectError, Reconnect},
    engine::Versions,
    error::{CallFailure, CloseReason},
    memory::LandingPool,
    server::{Server, ServerBuilder},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Behavior of the path to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A connection takes 150 ms to reach the server.
    Slow,
    /// Open connections are cut.
    Cut,
    /// New connections get no response.
    Silent,
}

/// Numbers of opened and closed connections on a path.
#[derive(Debug, Default)]
struct Seen {
    opened: AtomicUsize,
    ended: AtomicUsize,
}

/// Starts a proxy to the server at `to`. Returns the address of the proxy, a sender that sets its behavior, and its
/// counts. The initial behavior is [`Way::Slow`].
async fn way(to: SocketAddr) -> (SocketAddr, watch::Sender<Way>, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, seen) = (listener.local_addr().unwrap(), Arc::new(Seen::default()));
    let (set, is) = watch::channel(Way::Slow);
    let counts = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            counts.opened.fetch_add(1, Ordering::SeqCst);
            let (mut now, counts) = (is.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                if *now.borrow_and_update() == Way::Silent {
                    let _ = near.read_to_end(&mut Vec::new()).await;
                } else {
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    let mut far = TcpStream::connect(to).await.unwrap();
                    near.set_nodelay(true).unwrap();
                    far.set_nodelay(true).unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = now.wait_for(|way| *way == Way::Cut) => {}
                    }
                }
                counts.ended.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    (addr, set, seen)
}

fn within(millis: u64) -> CallOptions {
    CallOptions::new().timeout(Duration::from_millis(millis))
}

/// Opens a channel to a server through a proxy, and cuts its connection.
async fn lost() -> (Running, Channel, watch::Sender<Way>, Arc<Seen>) {
    let server = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
    let (addr, way, seen) = way(server.addr).await;
    let builder = Channel::builder().reconnect(Reconnect::on_demand()).connect_timeout(Duration::from_secs(60));
    let channel = builder.connect(&format!("iwarp://{addr}")).await.unwrap();
    call::<Null>(&channel, &()).await.unwrap();
    way.send_replace(Way::Cut);
    channel.closed().await;
    (server, channel, way, seen)
}

/// Calls whose deadline is shorter than a connection attempt fail, but the attempt continues for later calls.
#[tokio::test]
async fn reconnection_outlives_short_deadlines() {
    timed(in_step(async {
        let (_server, channel, way, seen) = lost().await;
        way.send_replace(Way::Slow);
        let error = channel.call::<Null>(&(), within(50)).await.unwrap_err();
        assert!(matches!(&error, CallError::Connect { error: ConnectError::Late { last: None }, .. }), "{error}");
        // Far more attempts than needed.
        for _ in 0..100 {
            if channel.call::<Null>(&(), within(50)).await.is_ok() {
                break;
            }
        }
        assert_eq!((channel.close_reason(), seen.opened.load(Ordering::SeqCst)), (None, 2));
    }))
    .await;
}

/// A connection attempt ends when the channel is closed or dropped, not with its own timeout.
#[tokio::test]
async fn reconnection_ends_with_the_channel() {
    for closes in [false, true] {
        timed(in_step(async {
            let (_server, channel, way, seen) = lost().await;
            way.send_replace(Way::Silent);
            channel.call::<Null>(&(), within(50)).await.unwrap_err();
            eventually(|| seen.opened.load(Ordering::SeqCst) == 2).await;
            let waits = tokio::spawn({
                let channel = channel.clone();
                async move { call::<Null>(&channel, &()).await }
            });
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(seen.ended.load(Ordering::SeqCst) < 2 && !waits.is_finished());
            if closes {
                channel.close().await;
                assert!(waits.await.unwrap().unwrap_err().is_connection_loss());
            } else {
                waits.abort();
                assert!(waits.await.unwrap_err().is_cancelled());
                drop(channel);
            }
            eventually(|| seen.ended.load(Ordering::SeqCst) == 2).await;
        }))
        .await;
    }
}

/// If the runtime in which a connection attempt began is shut down, the next call connects again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnection_after_another_runtime_ended() {
    timed(async {
        let (_server, channel, way, seen) = lost().await;
        way.send_replace(Way::Silent);
        let (elsewhere, seen_there) = (channel.clone(), Arc::clone(&seen));
        let gone = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    result = call::<Null>(&elsewhere, &()) => panic!("the silent path let a call through: {result:?}"),
                    () = eventually(|| seen_there.opened.load(Ordering::SeqCst) == 2) => {}
                }
            });
        });
        tokio::task::spawn_blocking(|| gone.join()).await.unwrap().unwrap();
        way.send_replace(Way::Slow);
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!((channel.close_reason(), seen.opened.load(Ordering::SeqCst)), (None, 3));
    })
    .await;
}

/// Starts a server, and connects a channel with default settings through a proxy that can cut the connection.
async fn through_a_way(server: ServerBuilder) -> (Running, Arc<State>, Channel, watch::Sender<Way>) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = Transport::Iwarp.serve(server.service(service)).await;
    let (addr, way, _) = way(running.addr).await;
    let channel = Channel::connect(&format!("iwarp://{addr}")).await.unwrap();
    (running, state, channel, way)
}

/// Calls Gate, which is not idempotent, and cuts the connection while the handler waits.
async fn cut_during_gate(state: &State, channel: &Channel, way: &watch::Sender<Way>) -> CallError {
    let gate = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &1).await }
    });
    state.wait_started(1).await;
    way.send_replace(Way::Cut);
    channel.closed().await;
    way.send_replace(Way::Slow);
    gate.await.unwrap().unwrap_err()
}

/// A call that was sent and is not idempotent is not sent again. Later calls make a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sent_call_is_not_retried() {
    timed(async {
        for versions in [Versions::V1, Versions::V2] {
            let (_server, state, channel, way) = through_a_way(Server::builder().versions(versions)).await;
            call::<Null>(&channel, &()).await.unwrap();
            let error = cut_during_gate(&state, &channel, &way).await;
            assert!(error.is_connection_loss() && !error.is_retry_safe(), "{error}");
            assert!(error.to_string().contains("may have been executed"), "{error}");
            call::<Null>(&channel, &()).await.unwrap();
            assert_eq!(state.started.load(Ordering::SeqCst), 1, "it was sent again");
        }
    })
    .await;
}

/// The first call of a channel to a server of version 1 only: the connection is lost after the call was sent in version
/// 1, and before a reply made the version certain. Falling back to version 1 on a new connection must not send the call
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sent_call_is_not_sent_again_in_version_1() {
    timed(async {
        let (_server, state, channel, way) = through_a_way(Server::builder().versions(Versions::V1)).await;
        let error = cut_during_gate(&state, &channel, &way).await;
        let failure = match &error {
            CallError::Transport { failure, .. } => failure,
            other => panic!("{other}"),
        };
        let negotiating =
            matches!(failure, CallFailure::Closed { reason: CloseReason::NegotiationFailed { .. }, sent: true });
        assert!(negotiating && !error.is_retry_safe(), "{failure:?}");
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!((channel.info().version, state.started.load(Ordering::SeqCst)), (Some(1), 1));
    })
    .await;
}

/// An idempotent call is retried on a new connection. A call with a landing pool connects again after a lost
/// connection.
#[tokio::test]
async fn an_idempotent_call_is_retried() {
    timed(in_step(async {
        let (_server, state, channel, way) = through_a_way(Server::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        let slept = tokio::spawn({
            let channel = channel.clone();
            async move { call::<Sleep>(&channel, &300).await }
        });
        state.wait_started(1).await;
        way.send_replace(Way::Cut);
        channel.closed().await;
        way.send_replace(Way::Slow);
        assert_eq!(slept.await.unwrap().unwrap(), 300);
        assert_eq!(state.started.load(Ordering::SeqCst), 2);

        way.send_replace(Way::Cut);
        channel.closed().await;
        way.send_replace(Way::Slow);
        let landing = LandingPool::new(channel.pool(), 10_000);
        let options = CallOptions::new().landing_from(&landing);
        assert_eq!(channel.call::<Get>(&Range(1, 10_000), options).await.unwrap().0, pattern(1, 10_000));
    }))
    .await;
}

/// The caller of a single call may allow it to be executed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeatable_call_is_retried() {
    timed(async {
        let (_server, state, channel, way) = through_a_way(Server::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        let gate = tokio::spawn({
            let channel = channel.clone();
            async move { channel.call::<Gate>(&1, CallOptions::new().repeatable()).await }
        });
        state.wait_started(1).await;
        way.send_replace(Way::Cut);
        channel.closed().await;
        way.send_replace(Way::Slow);
        state.wait_started(2).await;
        state.gate.add_permits(2);
        assert_eq!(gate.await.unwrap().unwrap(), 1);
    })
    .await;
}

/// Starts a server and connects a channel to it, then stops the server.
async fn stopped(reconnect: Reconnect) -> (Running, Channel) {
    let (running, _, channel) = start_with(Transport::Iwarp, Channel::builder().reconnect(reconnect)).await;
    call::<Null>(&channel, &()).await.unwrap();
    running.handle.shutdown_within(Duration::ZERO);
    eventually(|| running.task.is_finished()).await;
    channel.closed().await;
    (running, channel)
}

/// A call that finds no server waits until a pause ends, and then connects.
#[tokio::test]
async fn waits_for_a_server_that_restarts() {
    timed(in_step(async {
        let (running, channel) = stopped(Reconnect::on_demand()).await;
        let waits = tokio::spawn(async move { call::<Gate>(&channel, &1).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waits.is_finished());
        let service = TestService::default();
        service.0.gate.add_permits(1);
        let server = Server::builder().service(service).listen(format!("iwarp://{}", running.addr));
        spawn_server(server.bind().await.unwrap());
        assert_eq!(waits.await.unwrap().unwrap(), 1);
    }))
    .await;
}

/// Retries are bounded by number, by the call's deadline and by the end of the channel. The first pause is longer than
/// a deadline of 90 ms, and the pauses of a call without a deadline take at least 300 ms.
#[tokio::test]
async fn retries_end() {
    timed(in_step(async {
        // The pause would outlast the deadline.
        let (_running, channel) = stopped(Reconnect::on_demand()).await;
        let error = channel.call::<Null>(&(), within(90)).await.unwrap_err();
        assert!(matches!(error, CallError::Connect { .. }) && error.is_retry_safe(), "{error}");

        let (_running, channel) = stopped(Reconnect::on_demand()).await;
        let begin = tokio::time::Instant::now();
        let error = call::<Null>(&channel, &()).await.unwrap_err();
        assert!(matches!(error, CallError::Connect { .. }), "{error}");
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());

        // The pause is longer than the test may take.
        let hour = Duration::from_secs(3600);
        let (_running, channel) =
            stopped(Reconnect::OnDemand { min_backoff: hour, max_backoff: hour, retries: 3 }).await;
        let waits = tokio::spawn({
            let channel = channel.clone();
            async move { channel.call::<Null>(&(), CallOptions::new().timeout(4 * hour)).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waits.is_finished());
        channel.close().await;
        assert!(waits.await.unwrap().unwrap_err().is_connection_loss());
    }))
    .await;
}

/// A retried call that is denied is not retry-safe: the first server, now disconnected, may have executed it.
#[tokio::test]
async fn denied_retry_is_not_retry_safe() {
    timed(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for again in [false, true] {
                let (mut stream, _) = listener.accept().await.unwrap();
                // A record marker, ten words of header, and one of arguments.
                let mut record = [0; 4 + 44];
                stream.read_exact(&mut record).await.unwrap();
                if again {
                    // REPLY, MSG_DENIED, AUTH_ERROR, AUTH_REJECTEDCRED (RFC 5531 §9).
                    let rest = [1_u32, 1, 1, 2].iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
                    let marker = ((1_u32 << 31) | 20).to_be_bytes();
                    stream.write_all(&[&marker, &record[4..8], &rest].concat()).await.unwrap();
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            }
        });
        let builder = Channel::builder().reconnect(Reconnect::on_demand());
        let channel = builder.connect(&format!("tcp://{addr}")).await.unwrap();
        let error = call::<Sleep>(&channel, &0).await.unwrap_err();
        assert!(!error.is_retry_safe(), "{error}");
    })
    .await;
}

/// The server may have executed the first attempt of a call, so the error of a deadline that passes during a retry must
/// not say otherwise.
#[tokio::test]
async fn a_deadline_during_a_retry_does_not_hide_an_earlier_attempt() {
    timed(in_step(async {
        let (_server, state, channel, way) = through_a_way(Server::builder()).await;
        call::<Null>(&channel, &()).await.unwrap();
        let slept = tokio::spawn({
            let channel = channel.clone();
            async move { channel.call::<Sleep>(&20_000, within(1500)).await }
        });
        state.wait_started(1).await;
        way.send_replace(Way::Cut);
        channel.closed().await;
        way.send_replace(Way::Silent);
        let error = slept.await.unwrap().unwrap_err();
        let failure = CallFailure::DeadlineExceeded { sent: true };
        assert!(matches!(&error, CallError::Transport { failure: why, .. } if *why == failure), "{error:?}");
        assert!(!error.is_retry_safe());
    }))
    .await;
}

/// Only one attempt can use a landing buffer of the caller, so such a call is not retried, not even if it was not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_with_a_landing_buffer_is_not_retried() {
    timed(async {
        let hour = Duration::from_secs(3600);
        let (_running, channel) =
            stopped(Reconnect::OnDemand { min_backoff: hour, max_backoff: hour, retries: 3 }).await;
        let options = CallOptions::new().timeout(4 * hour).landing(channel.pool().alloc(100));
        // With a retry, the call would wait for an hour.
        let error = channel.call::<Get>(&Range(1, 100), options).await.unwrap_err();
        assert!(matches!(error, CallError::Connect { .. }) && error.is_retry_safe(), "{error:?}");
    })
    .await;
}

/// A lazy channel connects once even with `Reconnect::Never`. Its addresses are unspecified until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lazy_channels() {
    timed(async {
        let (running, channel) = stopped(Reconnect::Never).await;
        drop(channel);
        let url = format!("iwarp://{}", running.addr);
        let lazy = Channel::builder().reconnect(Reconnect::Never).connect_lazy(&url).unwrap();
        assert!(lazy.close_reason().is_some() && lazy.info().peer_addr.ip().is_unspecified());
        let error = call::<Null>(&lazy, &()).await.unwrap_err();
        assert!(matches!(error, CallError::Connect { .. }) && error.is_retry_safe(), "{error:?}");
        let server = Server::builder().service(TestService::default()).listen(&url).bind().await.unwrap();
        let handle = server.handle();
        spawn_server(server);
        call::<Null>(&lazy, &()).await.unwrap();
        assert_eq!((lazy.close_reason(), lazy.info().peer_addr), (None, running.addr));
        handle.shutdown_within(Duration::ZERO);
        lazy.closed().await;
        let error = call::<Null>(&lazy, &()).await.unwrap_err();
        assert!(matches!(error, CallError::Transport { failure: CallFailure::Closed { .. }, .. }), "{error:?}");
        assert!(Channel::builder().connect_lazy("iwarp://host").is_err());
    })
    .await;
}

/// A channel makes calls over a local socket, which a task forwards to a TCP server.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_sockets() {
    timed(async {
        let server = Transport::Tcp.serve(Server::builder().service(TestService::default())).await;
        let name = format!("rpcrdma-test-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let error = Channel::builder().connect_unix(&path).await.unwrap_err();
        assert!(error.to_string().contains(".sock"), "{error}");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let to = server.addr;
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = TcpStream::connect(to).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        });
        let channel = Channel::builder().connect_unix(&path).await.unwrap();
        assert_eq!(call::<Get>(&channel, &Range(1, 100_000)).await.unwrap().0, pattern(1, 100_000));
        assert!(channel.info().peer_addr.ip().is_unspecified());
        channel.close().await;
        std::fs::remove_file(&path).unwrap();
    })
    .await;
}
