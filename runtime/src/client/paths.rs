//! Several ways to reach one service, the best first: RDMA, or TCP where RDMA is missing or broken.
//!
//! New connections are raced as Happy Eyeballs does (RFC 8305 §5). The attempts begin in the order of preference, each
//! a short time after the attempt before it, or as soon as that attempt has failed. The first connection that is made
//! is used. If its path is not the best, the channel tries the better paths again from time to time.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    dial::{Dial, DialFuture, DialRules, UrlDialer},
    error::{ConnectError, UnusedPath},
    link::ChannelLink,
};
use crate::{ErrorChain, metrics, session::ChannelConfig};

/// The time after which the next path is tried as well.
// RFC 8305 §5: the recommended Connection Attempt Delay.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A running attempt to connect over one path.
struct Attempt<'a> {
    rank: usize,
    begun: Instant,
    dialing: DialFuture<'a>,
}

/// A dialer for several paths. The best path is tried first, and the first path that connects is used.
pub(super) struct PathsDialer {
    /// The paths, the best first. There is at least one.
    paths: Box<[UrlDialer]>,
    /// The errors of the last attempts, by path.
    errors: Mutex<Box<[Option<ConnectError>]>>,
}

impl PathsDialer {
    pub(super) fn new(paths: Vec<UrlDialer>) -> Self {
        let errors = paths.iter().map(|_| None).collect();
        Self { paths: paths.into(), errors: Mutex::new(errors) }
    }

    /// Races the first `count` paths, and returns the first connection that is made. If all attempts fail, returns the
    /// error of the best path.
    async fn race(
        &self,
        count: usize,
        config: &Arc<ChannelConfig>,
        rules: DialRules,
    ) -> Result<Arc<ChannelLink>, ConnectError> {
        let mut waiting = self.paths.iter().take(count).enumerate();
        let mut attempts = Vec::new();
        let mut first_error = None;
        loop {
            let Some((rank, path)) = waiting.next() else {
                // All have begun.
                let Some((rank, result)) = self.finished(&mut attempts, None).await else { break };
                match result {
                    Ok(link) => return Ok(self.used(rank, link, &attempts)),
                    Err(error) => first_error = self.failed(rank, error, first_error),
                }
                continue;
            };
            let begun = Instant::now();
            attempts.push(Attempt { rank, begun, dialing: path.dial(config, rules) });
            let next = begun + ATTEMPT_DELAY;
            match self.finished(&mut attempts, Some(next)).await {
                Some((rank, Ok(link))) => return Ok(self.used(rank, link, &attempts)),
                Some((rank, Err(error))) => first_error = self.failed(rank, error, first_error),
                None => {}
            }
        }
        // Of several errors, that of the best path says most.
        Err(first_error.map_or(ConnectError::EmptyPool, |(_, error)| error))
    }

    /// Waits for the end of an attempt, removes it, and returns its rank and its result. Returns `None` if there is no
    /// attempt, or at the time `until`.
    async fn finished(
        &self,
        attempts: &mut Vec<Attempt<'_>>,
        until: Option<Instant>,
    ) -> Option<(usize, Result<Arc<ChannelLink>, ConnectError>)> {
        if attempts.is_empty() {
            return None;
        }
        let any = poll_fn(|cx| {
            // The attempts are in the order of preference.
            for (index, attempt) in attempts.iter_mut().enumerate() {
                if let Poll::Ready(result) = attempt.dialing.as_mut().poll(cx) {
                    return Poll::Ready((index, attempt.rank, result));
                }
            }
            Poll::Pending
        });
        let (index, rank, result) = match until {
            None => any.await,
            Some(until) => tokio::select! {
                biased;
                finished = any => finished,
                () = sleep_until(until) => return None,
            },
        };
        drop(attempts.remove(index));
        Some((rank, result))
    }

    /// Records that the path `rank` is used, and that `others` are given up. Returns `link`.
    fn used(&self, rank: usize, link: Arc<ChannelLink>, others: &[Attempt<'_>]) -> Arc<ChannelLink> {
        link.set_rank(rank);
        let mut errors = self.errors();
        errors[rank] = None;
        for Attempt { rank, begun, .. } in others {
            errors[*rank] = Some(ConnectError::Overtaken { after: begun.elapsed() });
        }
        drop(errors);
        if rank > 0 {
            tracing::warn!(target: "rpcrdma", path = %self.paths[rank].url, best = %self.paths[0].url, "connected over a path that is not the best");
        }
        link
    }

    /// Records the error of the path `rank`. Returns this error or `first`, whichever belongs to the better path.
    fn failed(
        &self,
        rank: usize,
        error: ConnectError,
        first: Option<(usize, ConnectError)>,
    ) -> Option<(usize, ConnectError)> {
        let url = &self.paths[rank].url;
        tracing::debug!(target: "rpcrdma", %url, error = %ErrorChain(&error), "path failed");
        metrics::path_failed(url.scheme().as_str());
        self.errors()[rank] = Some(error.clone());
        match first {
            Some(first) if first.0 < rank => Some(first),
            _ => Some((rank, error)),
        }
    }

    fn errors(&self) -> std::sync::MutexGuard<'_, Box<[Option<ConnectError>]>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for PathsDialer {
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
        Box::pin(self.race(self.paths.len(), config, rules))
    }

    fn dial_better<'a>(&'a self, rank: usize, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
        Box::pin(self.race(rank, config, rules))
    }

    fn better_paths(&self, rank: usize) -> Vec<UnusedPath> {
        let errors = self.errors();
        let better = self.paths.iter().zip(errors.iter()).take(rank);
        better.filter_map(|(path, error)| Some(UnusedPath { url: path.url.clone(), error: error.clone()? })).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        client::{target::Target, tests::fakes},
        engine::Versions,
        trace::log::Log,
    };

    fn dialer() -> PathsDialer {
        let dialer = |url| UrlDialer {
            url,
            versions: Versions::Both,
            callbacks: None,
            #[cfg(feature = "tls")]
            tls: None,
        };
        PathsDialer::new(Target::parse("iwarp://a:1,iwarp://b:1,tcp://c:1").unwrap().into_iter().map(dialer).collect())
    }

    /// The error of the best path is returned, whatever the order of the failures is.
    #[test]
    fn the_error_of_the_best_path() {
        let dialer = dialer();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let failed = order.into_iter().fold(None, |first, rank| {
                let error = ConnectError::Overtaken { after: Duration::from_secs(rank as u64) };
                dialer.failed(rank, error, first)
            });
            assert!(matches!(failed, Some((0, ConnectError::Overtaken { after: Duration::ZERO }))), "{order:?}");
        }
    }

    /// The use of a path other than the best path is logged.
    #[test]
    fn paths_that_are_not_the_best_are_reported() {
        Log::of(|log| {
            let dialer = dialer();
            for rank in 0..3 {
                assert_eq!(dialer.used(rank, fakes::link(0), &[]).rank(), rank);
                assert_eq!(log.take_messages().len(), usize::from(rank > 0), "{rank}");
            }
        });
    }
}
