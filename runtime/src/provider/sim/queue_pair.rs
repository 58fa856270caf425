//! A simulated queue pair.

use std::task::{Context, Poll};

use super::{End, Network};
use crate::provider::{Access, Completion, Memory, QueuePair, Region, RegisterError, WorkRequest};

/// One side of a simulated connection. Dropping it ends the connection.
#[derive(Debug)]
pub struct SimQueuePair {
    network: Network,
    end: End,
}

impl SimQueuePair {
    pub(super) fn new(network: Network, end: End) -> Self {
        Self { network, end }
    }

    /// Returns the network between the queue pairs.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        self.network.hang_up(self.end);
    }
}

impl QueuePair for SimQueuePair {
    fn register(&mut self, memory: Memory, access: Access) -> Result<Region, RegisterError> {
        self.network.register(self.end, memory, access)
    }

    fn is_open(&self) -> bool {
        self.network.is_up()
    }

    fn post(&mut self, request: WorkRequest) {
        self.network.post(self.end, request);
    }

    fn post_receives(&mut self, count: usize) {
        self.network.post_receives(self.end, count);
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        if self.network.poll(self.end, cx.waker(), completions) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn disconnect(&mut self) {
        self.network.disconnect(self.end);
    }

    fn max_reads(&self) -> u32 {
        self.network.with_config(self.end, |config| config.max_reads)
    }

    fn max_transfer(&self) -> u32 {
        self.network.with_config(self.end, |config| config.max_transfer)
    }

    fn remote_invalidation(&self) -> bool {
        self.network.with_config(self.end, |config| config.remote_invalidation)
    }

    fn copied_payload(&self) -> u64 {
        // The copies made here stand for the network transfer.
        0
    }
}
