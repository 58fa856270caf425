//! The replacement of the module `metrics` if the feature `metrics` is off.

/// Options for metrics and health: none without the feature `metrics`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct MetricsArgs {}

impl MetricsArgs {
    /// Does nothing, because no metrics are recorded or served.
    ///
    /// # Errors
    /// Never fails.
    // The same signature as with metrics.
    #[allow(clippy::unused_async)]
    pub async fn start(&self) -> anyhow::Result<Health> {
        Ok(Health)
    }
}

/// The readiness of the process, which is not reported.
#[derive(Debug, Clone, Copy)]
pub struct Health;

impl Health {
    /// Returns `None`, because no metrics are served.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        None
    }

    /// Does nothing, because the readiness is not reported.
    pub(super) fn set_ready(&self) {}

    /// Does nothing, because the readiness is not reported.
    pub(super) fn set_unready(&self) {}
}
