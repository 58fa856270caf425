//! Notifications to the service manager that started the process, such as systemd.

#[cfg(target_os = "linux")]
use sd_notify::NotifyState;

/// Reports that the service accepts connections. Does nothing if the process has no `NOTIFY_SOCKET`.
#[cfg(target_os = "linux")]
pub(super) fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that the service is stopping. Does nothing if the process has no `NOTIFY_SOCKET`.
#[cfg(target_os = "linux")]
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("waiting for the calls in progress")]);
}

#[cfg(target_os = "linux")]
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify the service manager (NOTIFY_SOCKET)");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn notify_ready() {}

#[cfg(not(target_os = "linux"))]
pub(super) fn notify_stopping() {}
