//! A simulated queue pair.

use std::task::{Context, Poll};

use super::{SimEnd, SimNetwork};
use crate::provider::{Access, Completion, QueuePair, Region, RegisterError, RegisterableMemory, WorkRequest};

/// One side of a simulated connection. Dropping it ends the connection.
#[derive(Debug)]
pub struct SimQueuePair {
    network: SimNetwork,
    end: SimEnd,
}

impl SimQueuePair {
    pub(super) fn new(network: SimNetwork, end: SimEnd) -> Self {
        Self { network, end }
    }

    /// Returns the network between the queue pairs.
    #[must_use]
    pub fn network(&self) -> &SimNetwork {
        &self.network
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        self.network.drop_queue_pair(self.end);
    }
}

impl QueuePair for SimQueuePair {
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        self.network.register(self.end, memory, access)
    }

    fn is_open(&self) -> bool {
        self.network.is_up(self.end)
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

    fn copied_payload_bytes(&self) -> u64 {
        // The copies made here stand for the network transfer.
        0
    }
}
