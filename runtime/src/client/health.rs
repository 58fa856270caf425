//! The health of a server, as a client watches it.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

use super::{call::CallOptions, channel::Channel, error::CallError};
use crate::{
    health::protocol::{
        HealthChange, HealthReport, HealthService, HealthStatus,
        health_callback_v1::{HealthCallbackV1, HealthCallbackV1Server},
        health_v1::HealthV1Client,
    },
    session::{Context, HandlerError, Service},
};

/// The default of [`HealthCheck::interval`].
const INTERVAL: Duration = Duration::from_secs(10);
/// The default of [`HealthCheck::timeout`].
const TIMEOUT: Duration = Duration::from_secs(5);

/// The service whose health a client watches, with the interval and the timeout of the queries to the server. See
/// [`health`](crate::health).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct HealthCheck {
    service: HealthService,
    interval: Duration,
    timeout: Duration,
}

impl HealthCheck {
    /// Creates a check of the server as a whole.
    pub fn server() -> Self {
        Self { service: HealthService::SERVER, interval: INTERVAL, timeout: TIMEOUT }
    }

    /// Creates a check of a version of a program.
    pub fn service(program: u32, version: u32) -> Self {
        Self { service: HealthService { program, version }, ..Self::server() }
    }

    /// Sets the time between two queries to the server. Default 10 s. A server that calls back at each change is
    /// queried as well: it may have had no room for the watch, or a callback may have been lost.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the timeout of each query to the server. Default 5 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// A watch of the health of a service over a [`Channel`].
///
/// The server calls the channel back at each change. The server cannot do so if the channel does not serve
/// [`callbacks`](Self::callbacks) or has lost its connection. The watch therefore asks the server again after each
/// [interval](HealthCheck::interval).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma::{Channel, client::{HealthCheck, HealthWatch}, health::HealthStatus};
///
/// let mut watch = HealthWatch::new(HealthCheck::server());
/// let channel = Channel::builder().service(watch.callbacks()).connect("iwarp://server:20100").await?;
/// while watch.changed(&channel).await? != HealthStatus::Serving {}
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct HealthWatch {
    check: HealthCheck,
    /// The last report that the server has made by a callback since the last query.
    reports: watch::Receiver<Option<HealthReport>>,
    sender: watch::Sender<Option<HealthReport>>,
    /// The state that [`changed`](Self::changed) returned last.
    last: Option<HealthStatus>,
    /// The time of the next query. `None` if the query is due.
    next: Option<Instant>,
}

impl HealthWatch {
    /// Creates a watch of the service that `check` names. Nothing is sent until [`changed`](Self::changed) is called.
    #[must_use]
    pub fn new(check: HealthCheck) -> Self {
        let (sender, reports) = watch::channel(None);
        Self { check, reports, sender, last: None, next: None }
    }

    /// Returns the callback service through which the server reports changes. Add it to the channel by
    /// [`ChannelBuilder::service`](super::ChannelBuilder::service).
    #[must_use]
    pub fn callbacks(&self) -> impl Service + use<> {
        let reports = self.sender.clone();
        HealthCallbackV1Server::new(HealthReports { service: self.check.service.clone(), reports })
    }

    /// Forgets the state of the service, so that [`changed`](Self::changed) asks the server at once. Call it after the
    /// connection was lost.
    pub fn reset(&mut self) {
        (self.last, self.next) = (None, None);
    }

    /// Waits until the state of the service differs from the state that the last call returned, and returns the new
    /// state. The first call returns the current state. Dropping the future loses no change.
    ///
    /// # Errors
    /// See [`CallError`]: the server could not be asked, or does not offer the program. A later call of this method
    /// asks the server again only after the [interval](HealthCheck::interval).
    pub async fn changed(&mut self, channel: &Channel) -> Result<HealthStatus, CallError> {
        loop {
            let status = match self.next {
                None => self.ask(channel).await?,
                Some(next) => tokio::select! {
                    biased;
                    reported = reported(&mut self.reports) => reported.status,
                    () = tokio::time::sleep_until(next) => {
                        self.next = None;
                        continue;
                    }
                },
            };
            if self.last.replace(status) != Some(status) {
                return Ok(status);
            }
        }
    }

    /// Asks the server for the state, and to call back at each change.
    async fn ask(&mut self, channel: &Channel) -> Result<HealthStatus, CallError> {
        self.sender.send_replace(None);
        self.reports.mark_unchanged();
        let client = HealthV1Client::new(channel.clone());
        let options = CallOptions::new().timeout(self.check.timeout);
        let watched = client.watch_with(&self.check.service, options).await;
        // After an error as well, so that a server that refuses is not asked again and again.
        let now = Instant::now();
        self.next = Some(now.checked_add(self.check.interval).unwrap_or(now + INTERVAL));
        let answer = watched?.report;
        // A call back may be faster than the reply to the question.
        let newer = self.reports.borrow_and_update().clone().filter(|report| report.sequence > answer.sequence);
        Ok(newer.unwrap_or(answer).status)
    }
}

/// Waits for the next report by a callback.
async fn reported(reports: &mut watch::Receiver<Option<HealthReport>>) -> HealthReport {
    loop {
        // The watch itself keeps a sender.
        if reports.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if let Some(report) = reports.borrow_and_update().clone() {
            return report;
        }
    }
}

/// The callback service of a watch. It passes the server's reports on to the watch.
struct HealthReports {
    service: HealthService,
    reports: watch::Sender<Option<HealthReport>>,
}

impl HealthCallbackV1 for HealthReports {
    async fn changed(&self, _cx: &Context, change: HealthChange) -> Result<(), HandlerError> {
        if change.service.key() == self.service.key() {
            self.reports.send_replace(Some(change.report));
        }
        Ok(())
    }
}
