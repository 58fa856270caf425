//! Tests of limits on handlers in combination with other features.

use bytes::Bytes;
use rpcrdma::{
    config::ConnectionConfig,
    server::{DuplicateRequests, LimitScope, Limits, Server},
};

use super::*;

fn gates(limits: Limits) -> ServerBuilder {
    Server::builder().limits(id::<Gate>(), limits)
}

/// Clients whose calls run or wait for long get replies to their probes, although all handlers are busy.
#[tokio::test(start_paused = true)]
async fn busy_handlers_do_not_look_silent() {
    timed(async {
        for scope in [LimitScope::Server, LimitScope::Program(PROGRAM)] {
            for limits in [Limits::new().concurrency(1), Limits::new().per_caller(1)] {
                let site = Site::new(Server::builder().limits(scope, limits)).await;
                let (channel, wires) = site.wired(Channel::builder()).await;
                let (first, second) = (spawn::<Gate>(&channel, 1), spawn::<Gate>(&channel, 2));
                eventually(|| site.limits().waiting == 1).await;
                tokio::time::sleep(30 * SILENCE).await;
                assert!(channel.counters().replies_received > 5, "probes were answered");
                site.state.gate.add_permits(2);
                assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (1, 2));
                assert_eq!((wires.connects(), site.limits().executed), (1, 2));
            }
        }
    })
    .await;
}

/// The limits of the server do not apply to procedure 0. Limits for procedure 0 itself count its calls.
#[tokio::test(start_paused = true)]
async fn procedure_0_can_have_limits() {
    timed(async {
        let server = Limits::new().concurrency(1).queue(0);
        let server = Server::builder().limits(LimitScope::Server, server).limits(id::<Null>(), Limits::new());
        let site = Site::new(server).await;
        let channel = site.connect(unprobed()).await;
        let held = spawn::<Gate>(&channel, 1);
        site.state.wait_started(1).await;
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(status(&call::<Echo>(&channel, &Bytes::new()).await.unwrap_err()), RpcError::Unavailable);
        site.state.gate.add_permits(1);
        held.await.unwrap().unwrap();
        let executed: Vec<_> = site.running.handle.limits().iter().map(|stats| stats.executed).collect();
        assert_eq!(executed, [1, 1]);
    })
    .await;
}

/// A call that waits for a handler holds the memory of its arguments. A refused call releases it.
#[tokio::test(start_paused = true)]
async fn refused_calls_return_their_memory() {
    timed(async {
        let limits = Limits::new().concurrency(1).queue(1);
        let server = Server::builder().max_memory(600_000).limits(id::<Hold>(), limits);
        let site = Site::new(server).await;
        let channel = site.connect(unprobed()).await;
        let running = hold(&channel, 40_000);
        site.state.wait_started(1).await;
        let waiting = hold(&channel, 35_000);
        eventually(|| site.limits().waiting == 1).await;
        let held = site.held();
        assert!((75_000..76_000).contains(&held), "{held}");
        for _ in 0..10 {
            let error = hold(&channel, 30_000).await.unwrap().unwrap_err();
            assert_eq!((status(&error), error.is_retry_safe()), (RpcError::Unavailable, true));
        }
        eventually(|| site.held() == held).await;
        site.state.gate.add_permits(2);
        assert_eq!((running.await.unwrap().unwrap(), waiting.await.unwrap().unwrap()), (40_000, 35_000));
        eventually(|| site.held() == 0).await;
    })
    .await;
}

/// Only calls that are executed count towards the concurrency limit. Calls that get a recorded reply and copies of a
/// call in progress do not.
#[tokio::test(start_paused = true)]
async fn repeated_calls_need_no_slot() {
    timed(async {
        let limits = Limits::new().concurrency(1).queue(0);
        let site = Site::new(gates(limits).duplicate_requests(PROGRAM, DuplicateRequests::new())).await;
        let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM])).await;
        let other = site.connect(unprobed()).await;

        // The slot belongs to the first copy.
        let first = spawn::<Gate>(&channel, 1);
        site.state.wait_started(1).await;
        wires.cut();
        eventually(|| site.duplicates().waits == 1).await;
        assert_eq!((site.limits().running, site.limits().refused), (1, 0));
        site.state.gate.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap(), 1);

        // The reply is lost, and another call has the slot when its call is sent again.
        let hits = site.duplicates().hits;
        let second = spawn::<Gate>(&channel, 2);
        site.state.wait_started(2).await;
        wires.stall(SimEnd::B, true);
        site.state.gate.add_permits(1);
        eventually(|| site.duplicates().entries == 2).await;
        let third = spawn::<Gate>(&other, 3);
        site.state.wait_started(3).await;
        wires.cut();
        assert_eq!(second.await.unwrap().unwrap(), 2);
        assert_eq!((site.duplicates().hits, site.limits().refused), (hits + 1, 0));

        // A call that is refused is neither recorded nor counted as executed.
        let error = call::<Gate>(&channel, &4).await.unwrap_err();
        assert_eq!((status(&error), error.is_retry_safe()), (RpcError::Unavailable, true));
        let stats = site.duplicates();
        assert_eq!((stats.entries, stats.in_progress, stats.misses), (2, 1, 3));
        site.state.gate.add_permits(1);
        assert_eq!(third.await.unwrap().unwrap(), 3);
        assert_eq!((site.duplicates().entries, site.limits().executed), (3, 3));
    })
    .await;
}

/// If a handler is cancelled with its connection, the copy of its call that the client sends on a new connection is
/// executed.
#[tokio::test(start_paused = true)]
async fn a_copy_takes_over_from_a_cancelled_handler() {
    timed(async {
        let limits = Limits::new().concurrency(1).queue(0).cancel_on_disconnect();
        let site = Site::new(gates(limits).duplicate_requests(PROGRAM, DuplicateRequests::new())).await;
        let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM])).await;
        let gate = spawn::<Gate>(&channel, 7);
        site.state.wait_started(1).await;
        wires.cut();
        site.state.wait_started(2).await;
        site.state.gate.add_permits(1);
        assert_eq!(gate.await.unwrap().unwrap(), 7);
        let (limits, duplicates) = (site.limits(), site.duplicates());
        assert_eq!((limits.executed, limits.cancelled, limits.running), (2, 1, 0));
        assert_eq!((duplicates.misses, duplicates.entries, duplicates.in_progress), (2, 1, 0));
    })
    .await;
}

/// A client's service that calls the server before it replies.
struct CallsAgain;

impl Service for CallsAgain {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "CALLS_AGAIN"
    }

    fn dispatch(&self, mut incoming: InboundCall) -> ReplyFuture {
        Box::pin(async move {
            let args = match incoming.decode::<Echo>() {
                Ok(args) => args,
                Err(reply) => return reply,
            };
            let server: Channel = incoming.context().callback();
            let echoed = call::<Echo>(&server, &args).await;
            incoming.finish::<Echo>(echoed.map_err(HandlerError::system))
        })
    }
}

/// A call that results from a callback of a handler waits for a handler like any other call. If no handler is free, the
/// deadline ends both calls.
#[tokio::test(start_paused = true)]
async fn calls_nested_in_callbacks_end_at_the_deadline() {
    timed(async {
        for handlers in [1, 3] {
            let limits = Limits::new().concurrency(handlers).deadline(3 * SECOND);
            let service = CallsBack::new(10);
            let site = Site::new(Server::builder().service(service).limits(LimitScope::Server, limits)).await;
            let channel = site.connect(Channel::builder().service(CallsAgain)).await;
            let begun = tokio::time::Instant::now();
            let asked = call::<AskBack>(&channel, &100).await;
            if handlers == 1 {
                assert_eq!(status(&asked.unwrap_err()), RpcError::HandlerTimedOut);
                assert!(begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
            } else {
                assert_eq!(asked.unwrap(), 100);
            }
            eventually(|| (site.limits().running, site.limits().waiting) == (0, 0)).await;
            // The next call finds a handler.
            call::<Echo>(&channel, &Bytes::new()).await.unwrap();
        }
    })
    .await;
}

/// A call that waits for a handler when a shutdown begins is executed within the grace period. After the grace period,
/// the call is removed from the queue and fails.
#[tokio::test(start_paused = true)]
async fn waiting_calls_are_executed_before_a_shutdown_ends() {
    timed(async {
        for is_in_time in [true, false] {
            let site = Site::new(gates(Limits::new().concurrency(1))).await;
            let channel = site.connect(unprobed()).await;
            let calls = [1, 2, 3].map(|n| spawn::<Gate>(&channel, n));
            eventually(|| site.limits().waiting == 2).await;
            site.running.handle.shutdown_within(5 * SECOND);
            tokio::time::sleep(SECOND).await;
            assert!(!site.running.task.is_finished());
            site.state.gate.add_permits(if is_in_time { 3 } else { 0 });
            for (n, call) in (1..).zip(calls) {
                match call.await.unwrap() {
                    Ok(result) => assert_eq!((result, is_in_time), (n, true)),
                    Err(error) => assert!(error.is_connection_loss() && !is_in_time, "{error}"),
                }
            }
            site.running.task.await.unwrap();
            let [stats] = site.running.handle.limits()[..] else { panic!("one scope") };
            assert_eq!((stats.running, stats.waiting), (0, 0));
            assert_eq!(site.state.started.load(Ordering::SeqCst), if is_in_time { 3 } else { 1 });
        }
    })
    .await;
}

/// A service whose handler yields once before it replies.
struct Yields;

impl Service for Yields {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "YIELDS"
    }

    fn dispatch(&self, incoming: InboundCall) -> ReplyFuture {
        Box::pin(async move {
            tokio::task::yield_now().await;
            incoming.finish::<Null>(Ok(()))
        })
    }
}

/// Probes do not count as use of a connection, even if their handler waits.
#[tokio::test(start_paused = true)]
async fn probes_of_a_slow_handler_do_not_keep_an_idle_connection() {
    timed(async {
        let timeout = Duration::from_secs(100);
        let running = Transport::sim().serve(Server::builder().service(Yields).idle_timeout(timeout)).await;
        let config = ConnectionConfig::new().keepalive_interval(20 * SECOND);
        let channel = running.connect(Channel::builder().connection(config)).await;
        call::<Null>(&channel, &()).await.unwrap();
        // This call is not a probe, so it counts as use of the connection.
        channel.call::<Gate>(&0, CallOptions::new()).await.unwrap_err();
        let begun = tokio::time::Instant::now();
        channel.closed().await;
        let elapsed = begun.elapsed();
        assert!(channel.counters().replies_received >= 4, "probes were sent");
        assert!(elapsed >= timeout && elapsed < timeout + SECOND, "{elapsed:?}");
    })
    .await;
}
