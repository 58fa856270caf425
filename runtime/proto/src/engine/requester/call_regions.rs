//! Memory that a requester exposes for one call, and its invalidation.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::{
    engine::{ConnectionCounters, common::work::PostedFor},
    memory::PayloadBuf,
    provider::{Access, MemoryHandle, QueuePair, Region, RegisterError, RegisterableMemory, WorkRequest},
};

/// Purpose of an exposed region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An argument: an item in a Read chunk, or the payload stream in the Position-Zero Read chunk.
    Argument,
    /// A result in the Write chunk with this index.
    Result(usize),
    /// The reply in the Reply chunk.
    Reply,
}

#[derive(Debug)]
enum RegionState {
    Exposed,
    /// The invalidation is in progress.
    Returning,
    /// The invalidation failed. The peer has access until the connection has ended.
    Stuck,
    Returned(Option<RegisterableMemory>),
}

#[derive(Debug)]
struct ExposedRegion {
    region: Region,
    len: u64,
    purpose: Purpose,
    state: RegionState,
}

/// Regions exposed for one call, in the order of registration.
#[derive(Debug, Default)]
pub(in crate::engine) struct CallRegions {
    regions: SmallVec<[ExposedRegion; 1]>,
    /// Number of regions whose memory the provider still holds.
    out: u32,
}

impl CallRegions {
    /// Registers memory for the call. The peer may read it if `purpose` is [`Purpose::Argument`], and otherwise write
    /// it.
    // RPC-over-RDMA v2 §11.1: the peer can only read arguments, and only write results.
    pub(super) fn register(
        &mut self,
        qp: &mut dyn QueuePair,
        memory: RegisterableMemory,
        purpose: Purpose,
        counters: &mut ConnectionCounters,
    ) -> Result<Region, RegisterError> {
        let len = memory.len() as u64;
        let access = if purpose == Purpose::Argument { Access::RemoteRead } else { Access::RemoteWrite };
        let region = qp.register(memory, access)?;
        self.regions.push(ExposedRegion { region, len, purpose, state: RegionState::Exposed });
        self.out += 1;
        counters.registrations += 1;
        counters.exposed_regions += 1;
        counters.registered_bytes += len;
        Ok(region)
    }

    /// Returns `true` if no memory was registered.
    pub(super) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Forgets all regions. Their memory must have been returned.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.regions.clear();
        self.out = 0;
    }

    /// Returns `true` if `handle` belongs to a region of this call, whether or not it is still exposed.
    pub(in crate::engine) fn contains(&self, handle: MemoryHandle) -> bool {
        self.regions.iter().any(|exposed| exposed.region.handle == handle)
    }

    /// Returns the handle that was registered first, if any.
    pub(in crate::engine) fn first(&self) -> Option<MemoryHandle> {
        self.regions.first().map(|exposed| exposed.region.handle)
    }

    /// Returns the region exposed for `purpose` and its length in bytes, or `None` if there is no such region.
    pub(super) fn find(&self, purpose: Purpose) -> Option<(Region, u64)> {
        self.regions.iter().find(|exposed| exposed.purpose == purpose).map(|exposed| (exposed.region, exposed.len))
    }

    /// Returns the number of bytes exposed as arguments.
    pub(super) fn argument_len(&self) -> u64 {
        self.regions.iter().filter(|exposed| exposed.purpose == Purpose::Argument).map(|exposed| exposed.len).sum()
    }

    /// Queues the invalidation of all regions that are still exposed.
    // RPC-over-RDMA v2 §11.1.4: those of Write chunks and of the Reply chunk are among them.
    pub(super) fn take_back(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) {
        for (part, exposed) in self.regions.iter_mut().enumerate() {
            if matches!(exposed.state, RegionState::Exposed) {
                exposed.state = RegionState::Returning;
                // A header has room for far fewer than 2^16 regions.
                let id = PostedFor::CallInvalidate { slot, part: part as u16 }.id();
                out.push_back(WorkRequest::Invalidate { id, handle: exposed.region.handle });
            }
        }
    }

    /// Handles the return of a region's memory. The peer can no longer access it.
    pub(super) fn returned(
        &mut self,
        part: u16,
        memory: Option<RegisterableMemory>,
        counters: &mut ConnectionCounters,
    ) {
        if let Some(exposed) = self.regions.get_mut(usize::from(part))
            && !matches!(exposed.state, RegionState::Returned(_))
        {
            exposed.state = RegionState::Returned(memory);
            self.out -= 1;
            counters.exposed_regions = counters.exposed_regions.saturating_sub(1);
            counters.registered_bytes = counters.registered_bytes.saturating_sub(exposed.len);
        }
    }

    /// Records that the invalidation of region `part` has failed.
    pub(super) fn stuck(&mut self, part: u16) {
        if let Some(exposed) = self.regions.get_mut(usize::from(part)) {
            exposed.state = RegionState::Stuck;
        }
    }

    /// Releases the regions whose invalidation failed. The peer lost access to them with the connection. Returns `true`
    /// if one of them was registered for a part of the reply, whose content is lost.
    pub(super) fn release_stuck(&mut self, counters: &mut ConnectionCounters) -> bool {
        let mut is_reply_lost = false;
        for part in 0..self.regions.len() {
            if matches!(self.regions[part].state, RegionState::Stuck) {
                is_reply_lost |= self.regions[part].purpose != Purpose::Argument;
                self.returned(part as u16, None, counters);
            }
        }
        is_reply_lost
    }

    /// Returns `true` if the provider has returned the memory of all regions.
    pub(super) fn is_over(&self) -> bool {
        self.out == 0
    }

    /// Takes the memory that was exposed for `wanted`, if it has been invalidated.
    pub(super) fn take_sink(&mut self, wanted: Purpose) -> Option<PayloadBuf> {
        let exposed = self.regions.iter_mut().find(|exposed| exposed.purpose == wanted)?;
        match &mut exposed.state {
            RegionState::Returned(memory) => match memory.take() {
                Some(RegisterableMemory::Sink(buf)) => Some(buf),
                _ => None,
            },
            _ => None,
        }
    }

    /// Drops memory that has been invalidated. The handles remain known.
    pub(super) fn drop_returned(&mut self) {
        for exposed in &mut self.regions {
            if let RegionState::Returned(memory) = &mut exposed.state {
                *memory = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        memory::BufferPool,
        provider::sim::{self, SimConfig},
    };

    /// Each region is invalidated once and counted until its memory is returned, even if these steps are repeated.
    #[test]
    fn regions_are_invalidated_once() {
        let (mut qp, _peer, _) = sim::pair(SimConfig::default());
        let (pool, mut counters, mut out) = (BufferPool::default(), ConnectionCounters::default(), VecDeque::new());
        let mut regions = CallRegions::default();
        let source = |len| RegisterableMemory::Source(vec![7; len].into());
        let sink = || RegisterableMemory::Sink(pool.alloc(2000));
        regions.register(&mut qp, source(10), Purpose::Argument, &mut counters).unwrap();
        regions.register(&mut qp, sink(), Purpose::Result(0), &mut counters).unwrap();
        regions.register(&mut qp, sink(), Purpose::Reply, &mut counters).unwrap();
        assert_eq!(regions.argument_len(), 10);
        let counts = |counters: &ConnectionCounters| (counters.exposed_regions, counters.registered_bytes);
        assert_eq!(counts(&counters), (3, 4010));
        for _ in 0..2 {
            regions.take_back(4, &mut out);
            assert_eq!(out.len(), 3);
        }
        regions.stuck(0);
        regions.take_back(4, &mut out);
        assert_eq!(out.len(), 3);
        for _ in 0..2 {
            regions.returned(1, Some(sink()), &mut counters);
            assert_eq!((counts(&counters), regions.is_over()), ((2, 2010), false));
        }
        regions.returned(2, Some(sink()), &mut counters);
        assert!(!regions.release_stuck(&mut counters) && regions.is_over());
        assert_eq!(counts(&counters), (0, 0));
        // The memory of results is released without the regions, whose handles stay known.
        assert!(regions.take_sink(Purpose::Reply).is_some());
        let handle = regions.first().unwrap();
        regions.drop_returned();
        assert!(regions.take_sink(Purpose::Result(0)).is_none() && regions.contains(handle));
    }

    /// The result of a call is lost if the memory for it cannot be invalidated.
    #[test]
    fn results_in_stuck_memory_are_lost() {
        for (purpose, is_lost) in [(Purpose::Argument, false), (Purpose::Result(0), true), (Purpose::Reply, true)] {
            let (mut qp, _peer, _) = sim::pair(SimConfig::default());
            let mut counters = ConnectionCounters::default();
            let mut regions = CallRegions::default();
            let memory = match purpose {
                Purpose::Argument => RegisterableMemory::Source(vec![7; 9].into()),
                _ => RegisterableMemory::Sink(vec![7; 9].into()),
            };
            regions.register(&mut qp, memory, purpose, &mut counters).unwrap();
            regions.take_back(0, &mut VecDeque::new());
            regions.stuck(0);
            assert_eq!(regions.release_stuck(&mut counters), is_lost);
        }
    }
}
