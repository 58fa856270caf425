//! Tests of deadlines, silent servers, pools and connection limits in combination with other features.

use rpcrdma::{
    client::{ChannelPool, Invoke as _, Reconnect},
    config::ConnectionConfig,
    error::CloseReason,
    server::{DuplicateRequests, Server},
};
use tokio::time::Instant;

use super::*;

fn cached() -> ServerBuilder {
    Server::builder().duplicate_requests(PROGRAM, DuplicateRequests::new())
}

/// A call to a silent server ends at its deadline, and the connection is given up later although no call is in flight.
#[tokio::test(start_paused = true)]
async fn a_deadline_is_sooner_than_silence() {
    timed(async {
        let site = Site::new(Server::builder()).await;
        let (channel, wires) = site.wired(Channel::builder()).await;
        wires.silence();
        let begun = Instant::now();
        let error = channel.call::<Sleep>(&1, CallOptions::new().timeout(3 * SECOND)).await.unwrap_err();
        assert_eq!(failure(error), CallFailure::DeadlineExceeded { sent: true });
        assert!(begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
        assert_eq!(channel.close_reason(), None);
        assert_eq!(channel.closed().await, CloseReason::Silent(SILENCE));
        assert!((SILENCE..SILENCE + SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        // The next call makes a new connection.
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(wires.connects(), 2);
    })
    .await;
}

/// The time-out of a pool's channels limits a call over all its attempts, not each attempt.
#[tokio::test(start_paused = true)]
async fn a_time_out_covers_all_attempts_of_a_pool() {
    timed(async {
        for is_lost in [false, true] {
            let site = Site::new(Server::builder()).await;
            let mut wires = Vec::new();
            let mut channels = Vec::new();
            for _ in 0..2 {
                let (channel, wire) = site.wired(Channel::builder().call_timeout(SECOND)).await;
                channels.push(channel);
                wires.push(wire);
            }
            let pool = ChannelPool::new(channels);
            let begun = Instant::now();
            let sleeping = tokio::spawn({
                let pool = pool.clone();
                async move { pool.invoke::<Sleep>(&700, CallOptions::new()).await }
            });
            site.state.wait_started(1).await;
            tokio::time::sleep(SECOND / 2).await;
            if is_lost {
                let busy = pool.in_flight().position(|calls| calls == 1).unwrap();
                wires[busy].cut();
                site.state.wait_started(2).await;
                let error = sleeping.await.unwrap().unwrap_err();
                assert!(!error.is_retry_safe());
                assert_eq!(failure(error), CallFailure::DeadlineExceeded { sent: true });
                assert!((SECOND..SECOND + SECOND / 10).contains(&begun.elapsed()), "{:?}", begun.elapsed());
            } else {
                assert_eq!(sleeping.await.unwrap().unwrap(), 700);
            }
        }
    })
    .await;
}

/// Calls that were given up are not sent again after a reconnection. A later call is sent again, and gets its own
/// reply.
#[tokio::test(start_paused = true)]
async fn calls_given_up_are_not_those_sent_again() {
    timed(async {
        let site = Site::new(cached()).await;
        let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM])).await;
        let options = CallOptions::new().timeout(SECOND);
        let late = spawn_with::<Gate>(&channel, 1, options);
        site.state.wait_started(1).await;
        let dropped = spawn::<Gate>(&channel, 2);
        site.state.wait_started(2).await;
        dropped.abort();
        late.await.unwrap().unwrap_err();
        let third = spawn::<Gate>(&channel, 3);
        site.state.wait_started(3).await;
        wires.cut();
        eventually(|| site.duplicates().waits == 1).await;
        // Only the call that is still wanted was sent again.
        site.state.gate.add_permits(3);
        assert_eq!(third.await.unwrap().unwrap(), 3);
        eventually(|| site.duplicates().in_progress == 0).await;
        let stats = site.duplicates();
        assert_eq!((stats.misses, stats.waits, stats.hits, stats.entries), (3, 1, 1, 3));
        assert_eq!(site.started(), 3);
    })
    .await;
}

/// A call that its caller gives up while the channel reconnects is not sent again.
#[tokio::test(start_paused = true)]
async fn calls_given_up_between_attempts_are_not_sent_again() {
    timed(async {
        let site = Site::new(cached()).await;
        let pause = 5 * SECOND;
        let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause, retries: 3 };
        let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM]).reconnect(reconnect)).await;
        let options = || CallOptions::new().timeout(60 * SECOND);
        let gate = spawn_with::<Gate>(&channel, 1, options());
        site.state.wait_started(1).await;
        wires.cut();
        eventually(|| site.duplicates().waits == 1).await;
        // This connection got no reply, so the client pauses before it makes the next one.
        wires.cut();
        tokio::time::sleep(SECOND).await;
        gate.abort();
        assert!(gate.await.unwrap_err().is_cancelled());
        let late = channel.call::<Gate>(&2, CallOptions::new().timeout(SECOND)).await.unwrap_err();
        assert!(late.is_retry_safe(), "{late}");
        tokio::time::sleep(2 * pause).await;
        site.state.gate.add_permits(2);
        assert_eq!(channel.call::<Gate>(&3, options()).await.unwrap(), 3);
        let stats = site.duplicates();
        assert_eq!((stats.misses, stats.waits, site.started()), (2, 1, 2));
    })
    .await;
}

/// A call that the server recognizes moves to a new connection when the old one is silent, and is executed once.
#[tokio::test(start_paused = true)]
async fn recognized_calls_move_when_a_server_is_silent() {
    timed(async {
        let site = Site::new(cached()).await;
        let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM])).await;
        let gates = [1, 2, 3].map(|n| spawn::<Gate>(&channel, n));
        site.state.wait_started(3).await;
        wires.silence();
        let begun = Instant::now();
        eventually(|| site.duplicates().waits == 3).await;
        assert!((SILENCE..SILENCE + SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        site.state.gate.add_permits(3);
        for (n, gate) in (1..).zip(gates) {
            assert_eq!(gate.await.unwrap().unwrap(), n);
        }
        assert_eq!((site.started(), site.duplicates().entries, wires.connects()), (3, 3, 2));
    })
    .await;
}

/// A connection that carries only probes is idle. A server at its connection limit closes such a connection to accept
/// another one.
#[tokio::test(start_paused = true)]
async fn probed_connections_leave_for_others() {
    timed(async {
        let site = Site::new(Server::builder().max_connections(1)).await;
        let (idle, wires) = site.wired(Channel::builder()).await;
        call::<Sleep>(&idle, &1).await.unwrap();
        tokio::time::sleep(100 * SECOND).await;
        assert!(idle.counters().replies_received >= 4, "probes were sent");
        let other = site.connect(Channel::builder()).await;
        assert_eq!(call::<Sleep>(&other, &1).await.unwrap(), 1);
        assert!(matches!(idle.closed().await, CloseReason::Disconnected(_)));
        // The second connection counts as in use, so the server does not close it for another one.
        let error = call::<Sleep>(&idle, &1).await.unwrap_err();
        assert!(error.is_connection_loss() && error.is_retry_safe(), "{error}");
        assert_eq!((wires.connects() > 1, other.close_reason()), (true, None));
    })
    .await;
}

/// While a long result is being sent, a connection is in use, although the handler has ended: a server at its
/// connection limit closes the connection for another one only after the result has been sent.
#[tokio::test(start_paused = true)]
async fn connections_that_send_results_stay() {
    timed(async {
        for is_sent in [false, true] {
            // A long time limit, so that only the connection limit can end the connection.
            let config = ConnectionConfig::new().reply_timeout(1000 * SECOND);
            let site = Site::new(Server::builder().connection(config).max_connections(1)).await;
            let (first, wires) = site.wired(unprobed()).await;
            wires.stall(SimEnd::B, true);
            let get = spawn::<Get>(&first, Range(3, 200_000));
            eventually(|| site.state.got_bytes.load(Ordering::SeqCst) == 200_000).await;
            wires.stall(SimEnd::B, !is_sent);
            tokio::time::sleep(100 * SECOND).await;
            let second = site.running.try_connect(unprobed().connect_timeout(SECOND)).await;
            assert_eq!(second.is_ok(), is_sent, "{second:?}");
            wires.stall(SimEnd::B, false);
            assert_eq!(get.is_finished(), is_sent);
            if !is_sent {
                assert_eq!(get.await.unwrap().unwrap().0, pattern(3, 200_000));
            }
        }
    })
    .await;
}

/// A pool works with fewer connections than requested if the server limits the number of connections per host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_has_fewer_connections_than_wanted() {
    timed(async {
        let server = Server::builder().service(TestService::default()).max_connections_per_host(1);
        let running = Transport::Iwarp.serve(server).await;
        let url = format!("iwarp://{}", running.addr);
        let pool = Channel::builder().connect_pool([&url, &url]).await.unwrap();
        for n in 0..50 {
            assert_eq!(pool.invoke::<Sleep>(&(n % 2), CallOptions::new()).await.unwrap(), n % 2);
        }
        assert_eq!(running.handle.connections().len(), 1);
        let served: Vec<_> = pool.channels().map(|channel| channel.counters().replies_received).collect();
        assert_eq!(served.iter().filter(|&&replies| replies == 0).count(), 1, "{served:?}");
    })
    .await;
}
