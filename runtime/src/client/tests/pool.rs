#![allow(clippy::unwrap_used)]

use std::{pin::Pin, sync::Arc, task::Poll, time::Duration};

use tokio::time::{Instant, advance, sleep};

use super::fakes::*;
use crate::{
    client::{
        call::CallOptions,
        channel::Channel,
        error::{CallError, Retries},
        invoke::Invoke as _,
        pool::ChannelPool,
        reconnect::Reconnect,
    },
    driver::DriverPort,
    engine::{CallFailure, CloseReason},
    provider::DisconnectReason,
    service::ReplyBounds,
    session::{ChannelConfig, ResendableXids},
};

type PooledCall<'a> = Pin<Box<dyn Future<Output = Result<(), CallError>> + 'a>>;

/// Returns a pool of `N` channels that cannot connect again, and the ports of their connections.
fn connected<const N: usize>(reconnect: Reconnect) -> (ChannelPool, [Arc<DriverPort>; N]) {
    let links = [(); N].map(|()| link(0));
    let ports = links.each_ref().map(|link| Arc::clone(&link.port));
    (ChannelPool::new(links.map(|link| Channel::over(None, link, config(), reconnect))), ports)
}

/// Begins a call that must not be executed twice, and checks that the call is pending.
fn begin(pool: &ChannelPool, options: CallOptions) -> PooledCall<'_> {
    let mut call: PooledCall<'_> = Box::pin(pool.invoke::<Harmful>(&(), options));
    assert!(poll(&mut call).is_pending());
    call
}

fn in_flight(pool: &ChannelPool) -> Vec<usize> {
    pool.in_flight().collect()
}

fn closed() -> CloseReason {
    CloseReason::Disconnected(DisconnectReason::Local)
}

fn retries(error: CallError) -> Retries {
    match error {
        CallError::Transport { retries, .. } | CallError::Connect { retries, .. } => retries,
        other => panic!("{other:?}"),
    }
}

/// A new connection gets one call until its server has replied. Otherwise, calls go to the connection with the least
/// load.
#[tokio::test(start_paused = true)]
async fn new_connections_get_one_call() {
    let (pool, [new, old]) = connected(Reconnect::on_demand());
    old.publish_replies(1);
    let large = || CallOptions::new().reply_bounds(ReplyBounds::new(1 << 20, &[]));
    let mut calls = vec![begin(&pool, CallOptions::new())];
    assert_eq!(in_flight(&pool), [1, 0]);
    calls.push(begin(&pool, large()));
    assert_eq!(in_flight(&pool), [1, 1]);
    calls.push(begin(&pool, CallOptions::new()));
    assert_eq!(in_flight(&pool), [1, 2]);
    new.publish_replies(1);
    calls.push(begin(&pool, CallOptions::new()));
    assert_eq!(in_flight(&pool), [2, 2]);
    calls.clear();
    assert_eq!(in_flight(&pool), [0, 0]);
}

/// A pool of a single channel behaves like the channel. If the pause before the next connection attempt is long, a call
/// fails at once. If the pause is short, a call waits until it is over.
#[tokio::test(start_paused = true)]
async fn a_single_connection() {
    let pause = Duration::from_secs(10);
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause, retries: 3 };
    let pool = ChannelPool::new([lazy(&Script::new([Outcome::Fails]), reconnect)]);
    let start = Instant::now();
    pool.invoke::<Harmful>(&(), CallOptions::new()).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);

    let script = Script::new([Outcome::Fails, Outcome::Connects(0)]);
    let pool = ChannelPool::new([lazy(&script, Reconnect::on_demand())]);
    let call = tokio::spawn({
        let pool = pool.clone();
        async move { pool.invoke::<Harmful>(&(), CallOptions::new()).await }
    });
    sleep(Duration::from_millis(150)).await;
    assert_eq!((call.is_finished(), sent(&script.port()).len()), (false, 1));
    call.abort();
}

/// A call with a landing buffer of its own does not move to another connection, because it has no memory for a second
/// attempt. A call with pooled landing memory moves.
#[tokio::test(start_paused = true)]
async fn calls_with_landing_buffers_stay() {
    for (pooled, moves) in [(false, false), (true, true)] {
        let (pool, [first, _second]) = connected(Reconnect::on_demand());
        let options = CallOptions::new().reply_bounds(ReplyBounds::new(0, &[8]));
        let options = if pooled { options.landing_pooled() } else { options.landing(vec![0; 8].into()) };
        let mut call = begin(&pool, options);
        first.close(&closed());
        assert_eq!((poll(&mut call).is_pending(), in_flight(&pool)), (moves, vec![0, usize::from(moves)]));
    }
}

/// The first three retries follow at once, and later retries after pauses. The error has the number of the retries and
/// the time that they took.
#[tokio::test(start_paused = true)]
async fn retries_are_paced_and_counted() {
    let [min_backoff, max_backoff] = [100, 1000].map(Duration::from_millis);
    let (pool, ports) = connected::<6>(Reconnect::OnDemand { min_backoff, max_backoff, retries: 5 });
    let mut call = begin(&pool, CallOptions::new());
    let member = || pool.in_flight().position(|calls| calls > 0);
    for (index, port) in ports.iter().enumerate() {
        assert_eq!(member(), Some(index));
        port.close(&closed());
        match poll(&mut call) {
            Poll::Ready(result) => {
                let made = retries(result.unwrap_err());
                assert_eq!((index, made.count()), (5, 5));
                // A half of the pauses of 100 and 200 ms at least.
                assert!(made.elapsed() >= Duration::from_millis(150));
            }
            Poll::Pending if index < 3 => {}
            Poll::Pending => {
                advance(min_backoff / 2 - Duration::from_millis(1)).await;
                assert!(poll(&mut call).is_pending() && member().is_none());
                advance(Duration::from_millis(152)).await;
                assert!(poll(&mut call).is_pending());
            }
        }
    }
    assert_eq!(member(), None);
}

/// Without a runtime, calls use all connections that are open, and fail with the error of the first connection if no
/// connection is open.
#[test]
fn outside_of_a_runtime() {
    let (pool, ports) = connected::<2>(Reconnect::on_demand());
    let calls = [(), ()].map(|()| begin(&pool, CallOptions::new()));
    assert_eq!(in_flight(&pool), [1, 1]);
    drop(calls);
    let idle = CloseReason::Idle(Duration::from_secs(7));
    for (port, reason) in ports.iter().zip([idle.clone(), closed()]) {
        port.close(&reason);
    }
    let mut call: PooledCall<'_> = Box::pin(pool.invoke::<Harmful>(&(), CallOptions::new()));
    let Poll::Ready(Err(CallError::Transport { failure: CallFailure::Closed { reason, .. }, .. })) = poll(&mut call)
    else {
        panic!("the call does not fail")
    };
    assert_eq!(reason.to_string(), idle.to_string());
}

/// A connection on which a call has reached its deadline without a reply gets no calls while another connection is
/// open.
#[tokio::test(start_paused = true)]
async fn silent_connections_are_avoided() {
    let (pool, [silent, _other]) = connected(Reconnect::on_demand());
    let mut call = begin(&pool, CallOptions::new());
    let [slot] = sent(&silent)[..] else { panic!("not one call") };
    deliver(&silent, slot, Err(CallFailure::DeadlineExceeded { sent: true }));
    assert!(poll(&mut call).is_ready());
    let calls = [(), ()].map(|()| begin(&pool, CallOptions::new()));
    assert_eq!(in_flight(&pool), [0, 2]);
    drop(calls);
}

/// A pool makes calls as long as one connection is open. It starts no tasks to replace connections if its channels
/// cannot reconnect.
#[tokio::test(start_paused = true)]
async fn a_pool_ends_with_its_last_connection() {
    let (pool, ports) = connected::<2>(Reconnect::on_demand());
    let mut call = begin(&pool, CallOptions::new());
    for (port, moves) in ports.iter().zip([true, false]) {
        port.close(&closed());
        assert_eq!((poll(&mut call).is_pending(), in_flight(&pool)), (moves, vec![0, usize::from(moves)]));
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    }
}

/// A call that was sent, and that the server would recognize as a retransmission, stays with its channel even if an
/// attempt to reconnect fails meanwhile.
#[tokio::test(start_paused = true)]
async fn recognized_calls_stay_with_their_channel() {
    let resendable = Some(Arc::new(ResendableXids::new(None, 1, Duration::from_secs(100))));
    let config = Arc::new(ChannelConfig { resendable, ..(*config()).clone() });
    let script = Script::new([Outcome::Fails, Outcome::Connects(0)]);
    let links = [link(0), link(0)];
    let port = Arc::clone(&links[0].port);
    let dialed = |link| Channel::dialed(Box::new(script.clone()), link, Arc::clone(&config), Reconnect::on_demand());
    let pool = ChannelPool::new(links.map(dialed));
    let call = tokio::spawn({
        let pool = pool.clone();
        async move { pool.invoke::<Harmful>(&(), CallOptions::new()).await }
    });
    settle().await;
    assert_eq!((sent(&port).len(), in_flight(&pool)), (1, vec![1, 0]));
    lose(&port);
    sleep(Duration::from_millis(200)).await;
    assert_eq!((call.is_finished(), in_flight(&pool)), (false, vec![1, 0]));
    assert_eq!((script.ranks(), sent(&script.port()).len()), (vec![None, None], 1));
    call.abort();
}
