//! Memory that a requester exposes for one call, and how it is taken back.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{ConnectionCounters, work::PostedFor};
use crate::{
    memory::PayloadBuf,
    provider::{Access, MemoryHandle, QueuePair, Region, RegisterError, RegisterableMemory, WorkRequest},
};

/// What a region is exposed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An argument: an item in a Read chunk, or the whole call in the Position-Zero one.
    Argument,
    /// Result `.0`, by Write chunk.
    Result(usize),
    /// The reply, by Reply chunk.
    Reply,
}

#[derive(Debug)]
enum RegionState {
    Exposed,
    /// Invalidation is under way.
    Returning,
    /// Invalidation failed: the peer has access until the connection is gone.
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

/// The regions exposed for one call, in the order registered.
#[derive(Debug, Default)]
pub(super) struct CallRegions {
    regions: SmallVec<[ExposedRegion; 3]>,
    /// Regions whose memory is not back.
    out: u32,
}

impl CallRegions {
    /// Registers memory for the call.
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

    /// Whether `handle` names a region of this call, exposed still or taken back already.
    pub(super) fn contains(&self, handle: MemoryHandle) -> bool {
        self.regions.iter().any(|exposed| exposed.region.handle == handle)
    }

    /// The first handle registered.
    pub(super) fn first(&self) -> Option<MemoryHandle> {
        self.regions.first().map(|exposed| exposed.region.handle)
    }

    /// The region exposed for `purpose`, and its length in octets.
    pub(super) fn find(&self, purpose: Purpose) -> Option<(Region, u64)> {
        self.regions.iter().find(|exposed| exposed.purpose == purpose).map(|exposed| (exposed.region, exposed.len))
    }

    /// Octets exposed as arguments.
    pub(super) fn argument_len(&self) -> u64 {
        self.regions.iter().filter(|exposed| exposed.purpose == Purpose::Argument).map(|exposed| exposed.len).sum()
    }

    /// Asks for all regions back that have not been asked for.
    pub(super) fn take_back(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) {
        for (part, exposed) in self.regions.iter_mut().enumerate() {
            if matches!(exposed.state, RegionState::Exposed) {
                exposed.state = RegionState::Returning;
                // Far fewer regions than 2^16 fit a header.
                let id = PostedFor::CallInvalidate { slot, part: part as u16 }.id();
                out.push_back(WorkRequest::Invalidate { id, handle: exposed.region.handle });
            }
        }
    }

    /// A region is back: nobody but this end can access its memory any more.
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

    /// A region could not be invalidated.
    pub(super) fn stuck(&mut self, part: u16) {
        if let Some(exposed) = self.regions.get_mut(usize::from(part)) {
            exposed.state = RegionState::Stuck;
        }
    }

    /// The connection is gone, and with it all access through regions that could not be invalidated.
    pub(super) fn release_stuck(&mut self, counters: &mut ConnectionCounters) {
        for part in 0..self.regions.len() {
            if matches!(self.regions[part].state, RegionState::Stuck) {
                self.returned(part as u16, None, counters);
            }
        }
    }

    /// Whether nothing is exposed.
    pub(super) fn is_over(&self) -> bool {
        self.out == 0
    }

    /// The memory that was exposed for `purpose`, once it is back.
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

    /// Lets go of memory that is back; the handles stay known.
    pub(super) fn drop_returned(&mut self) {
        for exposed in &mut self.regions {
            if let RegionState::Returned(memory) = &mut exposed.state {
                *memory = None;
            }
        }
    }
}
