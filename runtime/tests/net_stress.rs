//! Random calls that are awaited, dropped, moved between tasks or not polled, on connections that may close. Every call
//! and connection ends, and nothing leaks.
#![allow(missing_docs)]

mod net_support;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use net_support::*;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, Reconnect},
    engine::Versions,
    server::Server,
};

/// Duration of a storm, after which the round in progress is still completed.
const LASTS: Duration = Duration::from_secs(2);
/// Time limit for each operation, generous for a loaded machine.
const TIME_LIMIT: Duration = Duration::from_secs(100);

/// A deterministic generator of random numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn split(&mut self) -> Self {
        Self(self.next() | 1)
    }

    fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.below(below))
    }
}

type Calling = Pin<Box<dyn Future<Output = Result<(), CallError>> + Send>>;

/// Returns a random call, which panics on a wrong result of `Echo` or `Get`.
fn any_call(channel: Channel, numbers: &mut Numbers) -> Calling {
    let len = numbers.one_of(&[0, 100, 3000, 9000, 70_000, 300_000]);
    let n = numbers.next() as u32;
    let mut options = CallOptions::new();
    if numbers.below(4) == 0 {
        options = options.timeout(Duration::from_micros(300));
    }
    match numbers.below(8) {
        0 | 1 => Box::pin(async move { channel.call::<Null>(&(), options).await }),
        2 => Box::pin(async move {
            let data = Bytes::from(pattern(n, len.min(60_000)));
            assert_eq!(channel.call::<Echo>(&data, options).await?, data);
            Ok(())
        }),
        3 | 4 => Box::pin(async move {
            channel.call::<Put>(&Data(pattern(n, len).into()), options).await?;
            Ok(())
        }),
        5 | 6 => Box::pin(async move {
            assert_eq!(channel.call::<Get>(&Range(n, len), options).await?.0, pattern(n, len));
            Ok(())
        }),
        _ => Box::pin(async move {
            channel.call::<Sleep>(&(n % 3), options).await?;
            Ok(())
        }),
    }
}

/// Polls a call up to `times` times. Returns `true` if it has finished.
async fn poll(call: &mut Calling, times: u64) -> bool {
    for _ in 0..times {
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Makes a call, and awaits or abandons it in a random way. The result is ignored, because the connection may be lost.
async fn one(channel: Channel, mut numbers: Numbers) {
    let mut call = any_call(channel, &mut numbers);
    match numbers.below(6) {
        0 | 1 => drop(call.await),
        2 => drop(tokio::time::timeout(numbers.micros(2000), call).await),
        3 => {
            poll(&mut call, numbers.below(4)).await;
        }
        // Start it here, and finish it in another task.
        4 => {
            if !poll(&mut call, 1 + numbers.below(3)).await {
                drop(tokio::spawn(call).await.unwrap());
            }
        }
        // Do not poll it for a while.
        _ => {
            if !poll(&mut call, 1).await {
                tokio::time::sleep(numbers.micros(3000)).await;
                drop(call.await);
            }
        }
    }
}

/// Awaits a future with a time limit.
async fn ends<T>(what: impl std::fmt::Debug, body: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIME_LIMIT, body).await.unwrap_or_else(|_| panic!("timed out: {what:?}"))
}

/// Starts a server and a channel, and makes many calls. The server may shut down meanwhile. Checks that all calls end
/// and that everything is released.
async fn round(transport: &Transport, numbers: &mut Numbers) {
    let credits = numbers.one_of(&[1, 2, 8, 128]);
    let versions = numbers.one_of(&[Versions::V1, Versions::Both]);
    let (tasks, each) = numbers.one_of(&[(1, 200), (2, 200), (40, 1), (500, 1)]);
    let goes = numbers.below(4) == 0;
    let closes = numbers.below(2) == 0;
    let plan = (credits, versions, tasks, goes, closes);

    let running = transport.serve(Server::builder().credits(credits).service(TestService::default())).await;
    let builder = Channel::builder().versions(versions).credits(credits).reconnect(Reconnect::on_demand());
    let channel = running.connect(builder).await;
    let callers: Vec<_> = (0..tasks)
        .map(|_| {
            let (channel, mut numbers) = (channel.clone(), numbers.split());
            tokio::spawn(async move {
                for _ in 0..each {
                    one(channel.clone(), numbers.split()).await;
                }
            })
        })
        .collect();
    if goes {
        tokio::time::sleep(numbers.micros(3000)).await;
        running.handle.shutdown_within(numbers.micros(20_000));
    }
    for caller in callers {
        ends((&plan, "a caller"), caller).await.unwrap();
    }
    if !goes {
        // Later calls succeed, and no resources of earlier calls remain.
        ends((&plan, "a call after all others"), call::<Null>(&channel, &())).await.unwrap();
        let settled = async {
            loop {
                let counters = channel.counters();
                let held = counters.calls_abandoned + counters.calls_queued + counters.exposed_regions;
                if held == 0 && counters.registered_bytes == 0 {
                    return;
                }
                call::<Null>(&channel, &()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        ends((&plan, "what is held", channel.counters()), settled).await;
        if closes {
            ends((&plan, "close"), channel.close()).await;
        }
    }
    drop(channel);
    let emptied = eventually(|| running.handle.connections().is_empty());
    ends((&plan, "connections"), emptied).await;
    // Handlers of abandoned calls run to their end.
    let released = eventually(|| running.handle.memory().held == 0);
    ends((&plan, "memory"), released).await;
    running.handle.shutdown_within(Duration::ZERO);
    ends((&plan, "serve"), running.task).await.unwrap();
}

async fn storm(transport: Transport, seed: u64) {
    let mut numbers = Numbers(seed);
    let end = Instant::now() + LASTS;
    while Instant::now() < end {
        round(&transport, &mut numbers).await;
    }
}

#[tokio::test]
async fn sim() {
    timed(async {
        storm(Transport::sim(), 12_345).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn iwarp() {
    timed(async {
        storm(Transport::Iwarp, 12_346).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tcp() {
    timed(async {
        storm(Transport::Tcp, 12_347).await;
    })
    .await;
}
