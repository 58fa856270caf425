//! The connections that a channel makes later: the first connection of a lazy channel, a new connection after a loss,
//! and a connection over a better path.

use std::{
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::{runtime::Handle, sync::OwnedMutexGuard};
use tracing::{Instrument as _, Span};

use super::{Channel, ChannelInner};
use crate::{
    ErrorChain,
    client::{
        dial::DialRules,
        error::ConnectError,
        link::{ChannelLink, LinkFate},
        reconnect::{Backoff, Reconnect, jittered},
    },
    engine::{CallFailure, CloseReason},
    metrics::{self, ConnectionRole},
    provider::DisconnectReason,
};

impl Channel {
    /// Connects if there is no connection, and retries with pauses until an attempt succeeds. Passes the error of each
    /// attempt to `report`. Returns an error only if the channel cannot connect again.
    pub(in crate::client) async fn connected(&self, report: impl Fn(ConnectError)) -> Result<(), CallFailure> {
        loop {
            let retry_at = match self.reconnect().await {
                Ok(_) => return Ok(()),
                Err(LinkError::Closed(failure)) => return Err(failure),
                Err(LinkError::Failed(error, retry_at)) => {
                    report(error);
                    retry_at
                }
            };
            tokio::select! {
                biased;
                () = self.0.closing.find(|| self.is_closed().then_some(())) => {}
                () = tokio::time::sleep_until(retry_at) => {}
            }
        }
    }

    pub(super) async fn reconnect(&self) -> Result<Arc<ChannelLink>, LinkError> {
        // The fallback to version 1 is part of connecting, so it happens even with `Reconnect::Never`.
        let falls_back = self.0.version_1_only.load(Ordering::Relaxed)
            && matches!(self.close_reason(), Some(CloseReason::NegotiationFailed { .. }));
        let (min_backoff, max_backoff) = match self.0.reconnect {
            Reconnect::OnDemand { min_backoff, max_backoff, .. } => (min_backoff, max_backoff),
            Reconnect::Never if falls_back || self.0.unconnected.load(Ordering::Relaxed) => {
                (Duration::ZERO, Duration::ZERO)
            }
            Reconnect::Never => return Err(self.failure()),
        };
        let Some(dial) = &self.0.dial else { return Err(self.failure()) };
        // Connecting needs a tokio runtime. A caller on another executor gets the error of the lost connection.
        if Handle::try_current().is_err() {
            return Err(self.failure());
        }
        let mut backoff = Arc::clone(&self.0.redial).lock_owned().await;
        if let Some(link) = self.live() {
            return Ok(link);
        }
        let redialed = {
            let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.closed {
                drop(current);
                return Err(self.failure());
            }
            // A connection that is made again with another version does not count as failed.
            match current.link.fate().filter(|_| !falls_back) {
                Some(LinkFate::Served) => backoff.succeed(),
                Some(LinkFate::Unserved(error, opened)) => {
                    metrics::connection_failed(ConnectionRole::Client);
                    backoff.fail(error, opened, min_backoff, max_backoff);
                }
                None => {}
            }
            backoff.check().map_err(|(error, until)| LinkError::Failed(error, until))?;
            let (dial, config, inner) = (Arc::clone(dial), Arc::clone(&self.0.config), Arc::downgrade(&self.0));
            let rules = DialRules {
                version_1_only: self.0.version_1_only.load(Ordering::Relaxed),
                // The server may still be silent.
                must_answer: matches!(current.link.port.close_reason(), Some(CloseReason::Silent(_))),
            };
            // Connecting runs in its own task. If the caller gives up, the next caller gets the connection or the
            // error. The task holds no channel, and is aborted with the last one.
            let redialed = tokio::spawn(
                async move {
                    let dialed = dial.dial(&config, rules).await;
                    Some(Self(inner.upgrade()?).redialed(dialed, backoff, min_backoff, max_backoff))
                }
                .instrument(Span::none()),
            );
            current.redialing = Some(redialed.abort_handle());
            redialed
        };
        redialed.await.ok().flatten().unwrap_or_else(|| Err(self.failure()))
    }

    /// Uses the new connection after a successful attempt to reconnect, or records the error of a failed one.
    ///
    /// # Errors
    /// Fails if the attempt failed, or if the channel was closed meanwhile.
    fn redialed(
        &self,
        dialed: Result<Arc<ChannelLink>, ConnectError>,
        mut backoff: OwnedMutexGuard<Backoff>,
        min_backoff: Duration,
        max_backoff: Duration,
    ) -> Result<Arc<ChannelLink>, LinkError> {
        match dialed {
            Ok(link) => {
                let peer = link.info.peer_addr;
                if self.0.unconnected.swap(false, Ordering::Relaxed) {
                    tracing::info!(target: "rpcrdma", %peer, "connected");
                } else {
                    metrics::reconnected();
                    tracing::info!(target: "rpcrdma", %peer, "reconnected");
                }
                let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
                if current.closed {
                    drop(current);
                    return Err(self.failure());
                }
                current.error = None;
                let old = std::mem::replace(&mut current.link, Arc::clone(&link));
                drop(current);
                drop(old);
                self.improve();
                Ok(link)
            }
            Err(error) => {
                metrics::connection_failed(ConnectionRole::Client);
                self.0.current.lock().unwrap_or_else(PoisonError::into_inner).error = Some(Box::new(error.clone()));
                let retry_at = backoff.fail(error.clone(), tokio::time::Instant::now(), min_backoff, max_backoff);
                let pause = retry_at.saturating_duration_since(tokio::time::Instant::now());
                tracing::info!(target: "rpcrdma", error = %ErrorChain(&error), ?pause, "cannot reconnect");
                Err(LinkError::Failed(error, retry_at))
            }
        }
    }

    /// Looks for a better path than the current path in a task of its own, if there can be a better path.
    pub(super) fn improve(&self) {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = current.improving.take() {
            done.abort();
        }
        if current.closed || current.link.rank() == 0 {
            return;
        }
        let improving = improve(Arc::downgrade(&self.0), Arc::downgrade(&current.link));
        current.improving = Some(tokio::spawn(improving.instrument(Span::none())).abort_handle());
    }

    fn failure(&self) -> LinkError {
        let reason = self.close_reason().unwrap_or(CloseReason::Disconnected(DisconnectReason::Local));
        LinkError::Closed(CallFailure::Closed { reason, sent: false })
    }
}

/// The pause before the first attempt to use a better path. The pause doubles with each further attempt, up to
/// [`MAX_IMPROVE_PAUSE`]. A random part of up to one half is subtracted from each pause.
const MIN_IMPROVE_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between attempts to use a better path.
const MAX_IMPROVE_PAUSE: Duration = Duration::from_secs(60);

/// Tries the paths that are better than the path of `link`, until the channel uses one of them. Ends with the channel,
/// or with the connection.
async fn improve(channel: Weak<ChannelInner>, link: Weak<ChannelLink>) {
    let mut pause = MIN_IMPROVE_PAUSE;
    loop {
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(MAX_IMPROVE_PAUSE);
        let Some((dial, config, rank, rules)) = channel.upgrade().zip(link.upgrade()).and_then(|(channel, link)| {
            let dial = channel.dial.clone().filter(|_| !link.port.is_closed())?;
            let version_1_only = channel.version_1_only.load(Ordering::Relaxed);
            // Calls leave a connection that works.
            Some((dial, Arc::clone(&channel.config), link.rank(), DialRules { version_1_only, must_answer: true }))
        }) else {
            return;
        };
        let Ok(better) = dial.dial_better(rank, &config, rules).await else { continue };
        let (Some(channel), Some(link)) = (channel.upgrade(), link.upgrade()) else { return };
        let mut current = channel.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.closed || !Arc::ptr_eq(&current.link, &link) {
            return;
        }
        tracing::info!(target: "rpcrdma", peer = %better.info.peer_addr, transport = ?better.info.transport, "moved to a better path");
        // Calls in flight keep the old connection until they have ended.
        let old = std::mem::replace(&mut current.link, better);
        drop(current);
        drop((old, link));
        // The next one is looked for on behalf of the new connection.
        Channel(channel).improve();
        return;
    }
}

/// The error of a channel that has no connection.
pub(super) enum LinkError {
    Closed(CallFailure),
    /// The last attempt to connect failed. The next attempt is not made before this time.
    Failed(ConnectError, tokio::time::Instant),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{future::ready, sync::OnceLock};

    use super::*;
    use crate::{
        client::{
            dial::{Dial, DialFuture},
            tests::fakes::{Outcome, Script, config, link, settle},
        },
        session::ChannelConfig,
        transport::Transport,
    };

    type Change = fn(&Channel);

    /// A dialer that changes its channel while it makes a connection, as another thread may.
    struct Interference {
        channel: Arc<OnceLock<Weak<ChannelInner>>>,
        change: Change,
        made: Arc<ChannelLink>,
    }

    impl Dial for Interference {
        fn dial<'a>(&'a self, _: &'a Arc<ChannelConfig>, _: DialRules) -> DialFuture<'a> {
            (self.change)(&Channel(self.channel.get().unwrap().upgrade().unwrap()));
            Box::pin(ready(Ok(Arc::clone(&self.made))))
        }

        fn dial_better<'a>(&'a self, _: usize, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
            self.dial(config, rules)
        }
    }

    fn mark_closed(channel: &Channel) {
        channel.0.current.lock().unwrap().closed = true;
    }

    /// A new connection is not used if the channel was closed or got another connection meanwhile.
    #[tokio::test(start_paused = true)]
    async fn connections_that_come_too_late() {
        let changes: [(Change, bool); 3] =
            [(|_| {}, true), (mark_closed, false), (|channel| channel.0.current.lock().unwrap().link = link(0), false)];
        for (change, is_used) in changes {
            let (made, first, slot) = (link(0), link(1), Arc::<OnceLock<_>>::default());
            let dial = || Box::new(Interference { channel: Arc::clone(&slot), change, made: Arc::clone(&made) });
            let better = Channel::dialed(dial(), Arc::clone(&first), config(), Reconnect::on_demand());
            slot.set(Arc::downgrade(&better.0)).unwrap();
            tokio::time::sleep(MIN_IMPROVE_PAUSE).await;
            settle().await;
            assert_eq!(Arc::ptr_eq(&better.current(), &made), is_used);
        }
        for (change, is_used) in &changes[..2] {
            let (made, slot) = (link(0), Arc::<OnceLock<_>>::default());
            let dial = Interference { channel: Arc::clone(&slot), change: *change, made: Arc::clone(&made) };
            let channel = Channel::lazy(Box::new(dial), Transport::Tcp, config(), Reconnect::on_demand());
            slot.set(Arc::downgrade(&channel.0)).unwrap();
            assert_eq!(
                (channel.reconnect().await.is_ok(), Arc::ptr_eq(&channel.current(), &made)),
                (*is_used, *is_used)
            );
        }
    }

    /// One task at a time looks for a better path, and no task does so for a channel that is closed.
    #[tokio::test(start_paused = true)]
    async fn one_task_looks_for_a_better_path() {
        let dial = Box::new(Script::new([Outcome::Hangs]));
        let channel = Channel::dialed(dial, link(1), config(), Reconnect::on_demand());
        let task = || channel.0.current.lock().unwrap().improving.clone();
        let first = task().unwrap();
        tokio::time::sleep(2 * MIN_IMPROVE_PAUSE).await;
        channel.improve();
        settle().await;
        let second = task().unwrap();
        assert!(first.is_finished() && !second.is_finished());
        mark_closed(&channel);
        channel.improve();
        settle().await;
        assert!(second.is_finished() && task().is_none());
    }

    /// A connection that the server closes before its first reply counts as an attempt that failed.
    #[cfg(feature = "metrics")]
    #[test]
    fn connections_that_serve_nothing_have_failed() {
        use metrics_util::debugging::{DebugValue, DebuggingRecorder};

        for (has_served, failures) in [(true, None), (false, Some(1))] {
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            ::metrics::with_local_recorder(&recorder, || {
                runtime.block_on(async {
                    let first = link(0);
                    if has_served {
                        first.port.publish_replies(1);
                    }
                    first.port.close(&CloseReason::Disconnected(DisconnectReason::Remote));
                    let dial = Box::new(Script::new([Outcome::Connects(0)]));
                    let channel = Channel::dialed(dial, first, config(), Reconnect::on_demand());
                    channel.connected(|_| {}).await.unwrap();
                });
            });
            let metrics = snapshotter.snapshot().into_vec();
            let failed = metrics.iter().find(|(key, ..)| key.key().name() == "rpcrdma.connections.failed");
            let failed = failed.map(|(.., value)| match value {
                DebugValue::Counter(count) => *count,
                other => panic!("{other:?}"),
            });
            assert_eq!(failed, failures);
        }
    }
}
