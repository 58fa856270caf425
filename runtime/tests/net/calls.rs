//! Calls from a channel to a service: arguments and results, errors, deadlines, dropped calls and closed channels. Most
//! of these tests run over every transport that needs no RDMA hardware.

use std::{sync::atomic::Ordering, time::Duration};

use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, Reconnect},
    config::ConnectionConfig,
    engine::Versions,
    error::{CallFailure, TransportError},
    memory::LandingPool,
    rpc::RpcError,
    server::Server,
    service::ReplyBounds,
};

async fn null_and_echo(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    for len in [0, 1, 3, 4, 1000, 3000, 5000, 100_000] {
        let sent = Bytes::from(pattern(9, len));
        assert_eq!(call::<Echo>(&channel, &sent).await.unwrap(), sent, "{len} bytes");
    }
    let counters = channel.counters();
    assert_eq!((counters.calls_sent, counters.replies_received, counters.calls_queued), (9, 9, 0));
    assert_eq!(counters.exposed_regions, 0);
}

/// Eligible items of many sizes arrive intact in both directions. The sizes cover items inline and in chunks.
async fn put_and_get(transport: Transport) {
    let (_running, state, channel) = start(transport).await;
    for len in [0, 1, 5, 100, 1023, 1024, 4000, 4096, 70_001, 1 << 20] {
        let sent = Bytes::from(pattern(3, len));
        call::<Put>(&channel, &Data(sent.clone())).await.unwrap();
        assert_eq!(*state.last_put.lock().unwrap(), sent, "put of {len}");
        let got = call::<Get>(&channel, &Range(5, len)).await.unwrap();
        assert_eq!(got.0, pattern(5, len), "get of {len}");
        let both = call::<Both>(&channel, &Range(1, len)).await.unwrap();
        assert_eq!(both, Two(pattern(1, len).into(), 7, pattern(2, len / 2).into()), "two of {len}");
    }
    let counters = channel.counters();
    assert_eq!(counters.exposed_regions, 0);
    assert!(counters.written_by_peer_bytes > 1 << 20 && counters.read_by_peer_bytes > 1 << 20, "{counters:?}");
}

/// Many sequential calls succeed, so no wake-up is lost between the caller and the driver's task.
async fn sequential_calls(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    let caller = async {
        for _ in 0..1500 {
            let got = call::<Get>(&channel, &Range(5, 40_000)).await.unwrap();
            assert_eq!(got.0.len(), 40_000);
        }
    };
    tokio::time::timeout(Duration::from_secs(100), caller).await.expect("call not woken for its reply");
}

/// Results are placed in memory that the caller provides, and arguments are sent from the caller's memory without a
/// copy.
async fn caller_provided_memory(transport: Transport) {
    let (_running, state, channel) = start(transport).await;
    let len = 1 << 20;
    let landing = channel.pool().alloc(len);
    let at = landing.as_ptr();
    let options = CallOptions::new().landing(landing);
    let got = channel.call::<Get>(&Range(8, len as u32), options).await.unwrap().0;
    assert_eq!(got, pattern(8, len as u32));
    assert_eq!(got.as_ptr(), at, "result not in the caller's memory");

    let (first, second) = (channel.pool().alloc(4096), channel.pool().alloc(4096));
    let at = (first.as_ptr(), second.as_ptr());
    let options = CallOptions::new().landing(first).landing(second);
    let two = channel.call::<Both>(&Range(8, 4096), options).await.unwrap();
    assert_eq!((two.0.as_ptr(), two.2.as_ptr()), at);
    assert_eq!((two.0.len(), two.2.len()), (4096, 2048));

    let mut source = channel.pool().alloc(len);
    source.copy_from_slice(&pattern(4, len as u32));
    call::<Put>(&channel, &Data(source.freeze())).await.unwrap();
    assert_eq!(*state.last_put.lock().unwrap(), pattern(4, len as u32));
    assert_eq!(channel.counters().copied_eligible_bytes, 0);
}

/// The buffers of a landing pool are reused after all views of them were dropped. Results are not copied.
async fn landing_pool(transport: Transport) {
    let (running, _state, channel) = start(transport).await;
    let landing = LandingPool::new(channel.pool(), 100_000);
    let get = async |seed, count| {
        let options = CallOptions::new().landing_from(&landing);
        let got = channel.call::<Get>(&Range(seed, count), options).await.unwrap().0;
        assert!(got == pattern(seed, count), "{seed} {count}");
        got
    };
    let first = get(1, 100_000).await;
    let second = get(2, 50_000).await;
    let at = [first.as_ptr(), second.as_ptr()];
    assert_ne!(at[0], at[1]);
    drop(first);
    let view = second.slice(10..20);
    drop(second);
    for seed in 3..20 {
        assert_eq!(get(seed, 100_000).await.as_ptr(), at[0], "it landed elsewhere");
    }
    assert_eq!((&view[..], landing.allocated()), (&pattern(2, 50_000)[10..20], 2));
    // A call that fails before it is sent takes no buffer.
    let options = CallOptions::new().landing_from(&landing);
    let error = channel.call::<Get>(&Range(0, 100_001), options).await.unwrap_err();
    assert!(matches!(error, CallError::Landing { index: 0, len: 100_000, needed: 100_001, .. }), "{error}");
    // A call can take two buffers, one of them for a short result.
    let options = CallOptions::new().landing_from(&landing).landing_from(&landing);
    drop(view);
    let two = channel.call::<Both>(&Range(8, 4096), options).await.unwrap();
    assert_eq!((two.0.len(), two.2.len(), landing.allocated()), (4096, 2048, 2));
    let server = running.handle.connections()[0].counters;
    assert_eq!((channel.counters().copied_eligible_bytes, server.copied_eligible_bytes), (0, 0));
}

/// Over TCP, no result is placed directly, and the buffer of the landing pool stays free.
#[tokio::test]
async fn landing_pool_over_tcp() {
    timed(async {
        let (_running, _state, channel) = start(Transport::Tcp).await;
        let landing = LandingPool::new(channel.pool(), 10_000);
        for seed in 0..3 {
            let options = CallOptions::new().landing_from(&landing);
            let got = channel.call::<Get>(&Range(seed, 10_000), options).await.unwrap().0;
            assert_eq!(got, pattern(seed, 10_000));
            assert_ne!(landing.alloc().as_ptr(), got.as_ptr());
        }
        assert_eq!(landing.allocated(), 1);
    })
    .await;
}

async fn landing_too_short(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    let options = CallOptions::new().landing(vec![0; 10].into());
    let error = channel.call::<Get>(&Range(0, 11), options).await.unwrap_err();
    assert!(matches!(error, CallError::Landing { index: 0, len: 10, needed: 11, .. }), "{error}");
    assert!(error.is_retry_safe());
    let options = CallOptions::new().landing_pooled().landing(vec![0; 10].into());
    let error = channel.call::<Get>(&Range(0, 11), options).await.unwrap_err();
    assert!(matches!(error, CallError::Landing { index: 1, len: 10, needed: 0, .. }), "{error}");
    assert_eq!(channel.counters().calls_sent, 0);
}

fn transport_failure(error: &CallError) -> &CallFailure {
    match error {
        CallError::Transport { failure, .. } => failure,
        other => panic!("{other}"),
    }
}

/// In version 1, the number of running handlers is limited by the credits. Other calls wait, and each call gets its own
/// reply.
async fn more_calls_than_credits(transport: Transport) {
    let service = TestService::default();
    let state = std::sync::Arc::clone(&service.0);
    let running = transport.serve(Server::builder().service(service).credits(8)).await;
    let channel = running.connect(unprobed().max_calls(60).versions(Versions::V1)).await;
    // The first reply grants the rest of the credits.
    call::<Null>(&channel, &()).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..100_u32 {
        let channel = channel.clone();
        calls.spawn(async move { (n, call::<Gate>(&channel, &n).await.unwrap()) });
    }
    state.wait_started(8).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(state.started.load(Ordering::SeqCst), 8, "more handlers than credits");
    state.gate.add_permits(100);
    while let Some(done) = calls.join_next().await {
        let (n, result) = done.unwrap();
        assert_eq!(n, result);
    }
    assert_eq!(state.most.load(Ordering::SeqCst), 8);
}

async fn replies_out_of_order(transport: Transport) {
    let (_running, state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    let slow = channel.call::<Gate>(&300, CallOptions::default());
    let fast = channel.call::<Sleep>(&1, CallOptions::default());
    tokio::pin!(slow, fast);
    tokio::select! {
        biased;
        _ = &mut slow => panic!("the slow call finished first"),
        fast = &mut fast => assert_eq!(fast.unwrap(), 1),
    }
    state.gate.add_permits(1);
    assert_eq!(slow.await.unwrap(), 300);
}

async fn statuses(transport: Transport) {
    let (running, _state, channel) = start(transport).await;
    let rpc_error = |error: CallError| match error {
        CallError::Rpc { source, .. } => source,
        other => panic!("{other}"),
    };
    assert_eq!(rpc_error(call::<Missing>(&channel, &()).await.unwrap_err()), RpcError::ProcedureUnavailable);
    assert_eq!(rpc_error(call::<Short>(&channel, &1).await.unwrap_err()), RpcError::GarbageArguments);
    for (n, expected) in [
        (0, RpcError::SystemError),
        (1, RpcError::GarbageArguments),
        (2, RpcError::ProcedureUnavailable),
        (3, RpcError::Authentication(rpcrdma::rpc::AuthStat::AuthTooweak.into())),
    ] {
        assert_eq!(rpc_error(call::<Fail>(&channel, &n).await.unwrap_err()), expected);
    }
    // Panics before and after the first await.
    for n in [0, 5] {
        assert_eq!(rpc_error(call::<Panic>(&channel, &n).await.unwrap_err()), RpcError::SystemError);
    }
    call::<Null>(&channel, &()).await.expect("connection lost after a panic");
    assert_eq!(running.handle.connections().len(), 1);
}

/// A server sends no result that is longer than its binding allows. Clients get the same error with every transport.
async fn result_longer_than_the_binding(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    assert_eq!(call::<Exceed>(&channel, &5000).await.unwrap().0, pattern(0, 5000));
    let error = call::<Exceed>(&channel, &5001).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::SystemError, .. }), "{error}");
    assert!(!error.is_retry_safe());
    // Also if the caller has room for more.
    let options = CallOptions::new().reply_bounds(ReplyBounds::new(4, &[10_000]));
    let error = channel.call::<Exceed>(&5001, options).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::SystemError, .. }), "{error}");
    call::<Null>(&channel, &()).await.unwrap();
}

/// A client whose binding has a smaller bound than the server's gets an error, and the connection stays open.
async fn result_longer_than_the_callers_binding(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    assert_eq!(call::<Underestimate>(&channel, &5000).await.unwrap().0, pattern(0, 5000));
    let error = call::<Underestimate>(&channel, &5001).await.unwrap_err();
    // RFC 8166 §4.5.3: ERR_CHUNK only says that the reply does not fit. RPC-over-RDMA v2 §7.3.4 names the chunk and the
    // size.
    let failure = transport_failure(&error);
    assert!(
        matches!(failure, CallFailure::ChunkError | CallFailure::Refused(TransportError::WriteResource { .. })),
        "{error}"
    );
    assert!(!error.is_retry_safe());
    call::<Null>(&channel, &()).await.unwrap();
}

/// RFC 8166 §6.1: a call fails if the peers disagree about the eligible items of its arguments or of its result, or if
/// a chunk does not have the length of its item.
async fn placement_violations(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    // The server returns an item inline that should be in its Write chunk: a permanent error for the caller.
    let error = call::<Unreduced>(&channel, &Range(1, 6000)).await.unwrap_err();
    assert!(matches!(error, CallError::DirectPlacement { .. }), "{error}");
    assert!(!error.is_retry_safe() && error.to_string().contains("TEST_V2.Unreduced"), "{error}");
    // The client reduces an argument that is not eligible: the server refuses the call with ERR_CHUNK or BAD_XDR.
    let error = call::<EchoReduced>(&channel, &Data(pattern(1, 5000).into())).await.unwrap_err();
    let failure = transport_failure(&error);
    assert!(matches!(failure, CallFailure::ChunkError | CallFailure::Refused(TransportError::BadXdr)), "{error}");
    assert_eq!(channel.counters().errors_received, 1);
    // The server reduces a result that is not eligible for the client.
    let error = call::<GetCount>(&channel, &Range(1, 6000)).await.unwrap_err();
    assert!(matches!(error, CallError::DirectPlacement { .. }) && !error.is_retry_safe(), "{error}");
    // RFC 8166 §4.5.2: the length of a chunk differs from that of its item, so the arguments are malformed.
    let error = call::<PutMisstated>(&channel, &MisstatedData(pattern(1, 5000).into())).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::GarbageArguments, .. }), "{error}");
    // The same argument inline is valid.
    assert_eq!(call::<EchoReduced>(&channel, &Data(pattern(1, 50).into())).await.unwrap(), pattern(1, 50));
    assert_eq!(channel.counters().exposed_regions, 0);
}

async fn deadlines(transport: Transport) {
    let (_running, state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    let begin = tokio::time::Instant::now();
    let options = CallOptions::new().timeout(Duration::from_millis(50));
    let error = channel.call::<Gate>(&1, options).await.unwrap_err();
    assert!(
        matches!(error, CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: true }, .. }),
        "{error}"
    );
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(channel.counters().exposed_regions, 0);
    // A call whose deadline has passed is not sent.
    let options = CallOptions::new().deadline(tokio::time::Instant::now().into_std());
    let error = channel.call::<Gate>(&1, options).await.unwrap_err();
    assert!(error.is_retry_safe(), "{error}");
    // The late reply is discarded.
    state.gate.add_permits(1);
    call::<Null>(&channel, &()).await.unwrap();
}

/// A call that is started but not polled still meets its deadline, and other calls proceed.
async fn call_that_is_not_polled(transport: Transport) {
    let (_running, state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    let options = CallOptions::new().timeout(Duration::from_millis(50));
    let mut held = Box::pin(channel.call::<Gate>(&1, options));
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(held.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
    state.wait_started(1).await;
    call::<Null>(&channel, &()).await.unwrap();
    eventually(|| channel.counters().calls_abandoned == 1).await;
    let error = held.await.unwrap_err();
    assert!(
        matches!(error, CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: true }, .. }),
        "{error}"
    );
}

/// A dropped call leaves memory exposed only until its reply arrives, and does not affect other calls.
async fn dropped_calls(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    drop_calls(&channel).await;
    let gate = channel.call::<Gate>(&1, CallOptions::default());
    let _ = tokio::time::timeout(Duration::from_micros(300), gate).await;
    call::<Null>(&channel, &()).await.unwrap();
    assert_eq!(channel.close_reason(), None);
    assert_eq!(channel.counters().calls_queued, 0);
}

/// With a grace period of zero, memory of dropped calls is invalidated at once. An RDMA Write to an invalidated chunk
/// ends the connection (RFC 8166 §8.1.4), so the channel reconnects.
async fn dropped_calls_invalidated_at_once(transport: Transport) {
    let running = transport.serve(Server::builder().service(TestService::default())).await;
    let config = ConnectionConfig::new().abandoned_call_timeout(Duration::ZERO);
    let channel = running.connect(Channel::builder().connection(config).reconnect(Reconnect::on_demand())).await;
    call::<Null>(&channel, &()).await.unwrap();
    drop_calls(&channel).await;
}

async fn drop_calls(channel: &Channel) {
    let data = Data(Bytes::from(pattern(1, 100_000)));
    for delay in 0..30 {
        let put = channel.call::<Put>(&data, CallOptions::default());
        let get = channel.call::<Get>(&Range(1, 100_000), CallOptions::default());
        let all = async { tokio::join!(put, get) };
        let _ = tokio::time::timeout(Duration::from_micros(delay * 50), all).await;
        eventually(|| channel.counters().exposed_regions == 0).await;
    }
    assert_eq!(call::<Get>(channel, &Range(3, 5000)).await.unwrap().0, pattern(3, 5000));
    assert_eq!(channel.counters().exposed_regions, 0);
}

/// A call that is dropped after 0 to 11 polls leaves no memory exposed, and later calls succeed.
async fn dropped_after_polls(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    for polls in 0..12 {
        let mut call = Box::pin(channel.call::<Get>(&Range(1, 50_000), CallOptions::default()));
        for _ in 0..polls {
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
            if polled.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        eventually(|| channel.counters().exposed_regions == 0).await;
    }
    assert_eq!(call::<Get>(&channel, &Range(2, 50_000)).await.unwrap().0, pattern(2, 50_000));
}

async fn close_in_order(transport: Transport) {
    let (running, state, channel) = start(transport).await;
    let task = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Gate>(&channel, &5).await }
    });
    state.wait_started(1).await;
    let closing = tokio::spawn({
        let channel = channel.clone();
        async move { channel.close().await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!closing.is_finished(), "closed while a call is in flight");
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    assert!(error.is_retry_safe(), "{error}");
    state.gate.add_permits(1);
    assert_eq!(task.await.unwrap().unwrap(), 5);
    closing.await.unwrap();
    assert!(channel.close_reason().is_some());
    eventually(|| running.handle.connections().is_empty()).await;
}

async fn last_channel_dropped(transport: Transport) {
    let (running, _state, channel) = start(transport).await;
    let second = channel.clone();
    call::<Null>(&second, &()).await.unwrap();
    drop(channel);
    call::<Null>(&second, &()).await.unwrap();
    assert_eq!(running.handle.connections().len(), 1);
    drop(second);
    eventually(|| running.handle.connections().is_empty()).await;
}

over! {
    // Tests of direct data placement.
    rdma: put_and_get sequential_calls caller_provided_memory landing_pool result_longer_than_the_callers_binding placement_violations dropped_calls_invalidated_at_once;
    all: null_and_echo result_longer_than_the_binding landing_too_short replies_out_of_order statuses
        dropped_calls dropped_after_polls last_channel_dropped;
}

over_each_in_step! { more_calls_than_credits deadlines call_that_is_not_polled close_in_order }
