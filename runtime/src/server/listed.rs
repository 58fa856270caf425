//! The entry of a connection in a server's list.

use std::sync::Arc;

use super::handle::ServerShared;
use crate::{engine::CloseReason, session::ConnectionObserver};

/// The entry of one connection in its server's list. Dropping it removes the connection from the list.
pub(super) struct ListedConnection {
    id: u64,
    shared: Arc<ServerShared>,
    /// The reason of the close. `None` while the connection is open, and if the runtime dropped the task of the driver
    /// first.
    reason: Option<CloseReason>,
}

impl ListedConnection {
    pub(super) fn new(id: u64, shared: Arc<ServerShared>) -> Self {
        Self { id, shared, reason: None }
    }
}

impl ConnectionObserver for ListedConnection {
    fn closed(&mut self, reason: &CloseReason) {
        self.reason = Some(reason.clone());
    }

    fn is_aborting(&self) -> bool {
        self.shared.is_aborting()
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.shared.remove(self.id, self.reason.as_ref());
    }
}
