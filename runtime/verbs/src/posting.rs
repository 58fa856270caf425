//! Posting: turns queued work requests into chains and passes their data to the device.

use std::{io, sync::Arc};

use super::{
    connection::VerbsQueuePair,
    error::VerbsError,
    ffi,
    objects::{Pd, RegionAccess},
    queue::{CompletionMode, HeldResource, PostedKind, RequestRegistration, SendSource, VerbsOp},
    regions::PooledRegions,
    slab::{SlotGuard, SlotPool},
    wr::{LocalSegment, PreparedRequest},
};
use crate::{
    ErrorChain,
    memory::LandingMemory as _,
    provider::{DisconnectReason, QueuePair as _, WorkError},
};

/// Maximum length of data that is copied to a slot, in bytes.
const MAX_COPIED: usize = 1 << 16;

impl VerbsQueuePair {
    /// Posts queued work requests to the device, as many as its send queue and the memory for copies permit. Ends the
    /// connection if a request cannot be posted.
    pub(super) fn flush(&mut self) {
        let Some(qp) = &self.qp else { return };
        if !self.is_open() || self.queue.is_posted() {
            return;
        }
        let max_inline = qp.max_inline as usize;
        let repeats_only_unacknowledged = self.limits.repeats_only_unacknowledged();
        self.chain.clear();
        let mut binds = Vec::new();
        let mut failure = None;
        while self.queue.in_device() < self.sends {
            let may_bind = repeats_only_unacknowledged || self.queue.retired() >= self.transfers_end;
            let Some((_, op)) = self.queue.waiting() else { break };
            let (request, held, done) = match op {
                VerbsOp::Nothing | VerbsOp::ReturnMemory => {
                    self.queue.skip(Ok(()));
                    continue;
                }
                VerbsOp::Marker => (
                    PreparedRequest::Write { local: LocalSegment::default(), remote: 0, rkey: 0 },
                    HeldResource::Nothing,
                    false,
                ),
                VerbsOp::Invalidate => {
                    let Some((PostedKind::Return(handle), _)) = self.queue.waiting() else { continue };
                    (PreparedRequest::Invalidate { rkey: handle.0 }, HeldResource::Nothing, false)
                }
                VerbsOp::Bind(_) if !may_bind => {
                    if self.queue.insert_marker() {
                        continue;
                    }
                    break;
                }
                VerbsOp::Bind(request) => {
                    if let PreparedRequest::Bind { window, rkey, .. } = *request {
                        binds.push((window, rkey));
                    }
                    (*request, HeldResource::Nothing, !self.exposures.awaits_binding())
                }
                VerbsOp::Read { sink, sink_offset, remote, len } => {
                    match self.exposures.read_destination(*sink, *sink_offset, *len) {
                        Some(local) => {
                            let request = PreparedRequest::Read { local, remote: remote.offset, rkey: remote.handle.0 };
                            (request, HeldResource::Nothing, false)
                        }
                        // The sink is empty and has no region, so there is nothing to read.
                        None => {
                            self.queue.skip(Ok(()));
                            continue;
                        }
                    }
                }
                VerbsOp::Send { message, invalidate, solicited } => {
                    let (invalidate, solicited) = (invalidate.map(|handle| handle.0), *solicited);
                    let placement = match self.send_slots.placement(&self.pd, message.len(), max_inline) {
                        Ok(Some(placement)) => placement,
                        Ok(None) => break,
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    };
                    let VerbsOp::Send { message, .. } = std::mem::replace(op, VerbsOp::Nothing) else { continue };
                    match prepare(&self.pd, &mut self.regions, placement, SendSource::Message(message)) {
                        Ok((local, held, done)) => (PreparedRequest::Send { local, invalidate, solicited }, held, done),
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    }
                }
                VerbsOp::Write { source, remote } => {
                    let (remote, rkey) = (remote.offset, remote.handle.0);
                    let placement = match self.send_slots.placement(&self.pd, source.len(), max_inline) {
                        Ok(Some(placement)) => placement,
                        Ok(None) => break,
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    };
                    if !matches!(placement, PayloadPlacement::Registered) {
                        self.copied_payload += source.len() as u64;
                    }
                    let VerbsOp::Write { source, .. } = std::mem::replace(op, VerbsOp::Nothing) else { continue };
                    match prepare(&self.pd, &mut self.regions, placement, SendSource::Payload(source)) {
                        Ok((local, held, done)) => (PreparedRequest::Write { local, remote, rkey }, held, done),
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    }
                }
            };
            let inline = matches!(held, HeldResource::Message(_) | HeldResource::Payload(_));
            let is_individual = matches!(request, PreparedRequest::Read { .. })
                || matches!(held, HeldResource::Slot(_) | HeldResource::Registered(_));
            let completion = if self.limits.iwarp && is_individual {
                CompletionMode::Individual
            } else {
                CompletionMode::Cumulative
            };
            let number = self.queue.post(held, done, completion);
            if !matches!(request, PreparedRequest::Bind { .. } | PreparedRequest::Invalidate { .. }) {
                self.transfers_end = number + 1;
            }
            self.chain.push(number, request, inline);
            // The last request of the chain is signaled in `submit`.
            if self.queue.signal(false) {
                self.chain.signal_last();
            }
        }
        if let Some(error) = failure {
            tracing::warn!(target: "rpcrdma", error = %ErrorChain(&error), "failed to post a work request");
            self.queue.skip(Err(WorkError::Local(ErrorChain(&error).to_string())));
            let reason = DisconnectReason::Transport(error.into());
            self.submit(&binds);
            self.end(reason);
        } else {
            self.submit(&binds);
        }
    }

    /// Posts the chain to the device. `binds` has the windows that the chain binds, with their new handles. Ends the
    /// connection if the device refuses a request.
    fn submit(&mut self, binds: &[(*mut ffi::ibv_mw, u32)]) {
        let Some(qp) = &self.qp else { return };
        if self.chain.is_empty() {
            return;
        }
        if self.queue.signal(true) {
            self.chain.signal_last();
        }
        // SAFETY: the queue's entries, the slabs and the exposures hold all memory of the requests until they have
        // completed or the queue pair is destroyed. The exposures own sinks, which are not accessed meanwhile.
        let posted = unsafe { self.chain.post(qp) };
        match posted {
            Ok(()) => self.queue.accepted(self.chain.len()),
            Err((taken, error)) => {
                let failed = WorkError::Local(format!("the device refused a work request: {error}"));
                self.queue.refused(self.chain.len() - taken, &failed);
                self.queue.accepted(taken);
                let error = VerbsError::Os { doing: "posting of a work request", source: error };
                self.end(DisconnectReason::Transport(error.into()));
            }
        }
        for (window, rkey) in binds {
            // SAFETY: the exposure holds the window. The caller of libibverbs maintains this field of the structure:
            // the next bind request takes the window's current key from it.
            unsafe { (**window).rkey = *rkey };
        }
    }
}

/// The method of passing a request's data to the device.
enum PayloadPlacement {
    Inline,
    Copied(SlotGuard),
    Registered,
}

/// Prepares the data for the device. Returns the location of the data, the resource to hold until the device has
/// finished, and `true` if the request is complete for the caller once it is posted.
fn prepare(
    pd: &Pd,
    regions: &mut PooledRegions,
    placement: PayloadPlacement,
    source: SendSource,
) -> io::Result<(LocalSegment, HeldResource, bool)> {
    let bytes: &[u8] = match &source {
        SendSource::Message(message) => message,
        SendSource::Payload(payload) => payload,
    };
    let len = u32::try_from(bytes.len()).map_err(|_| io::Error::other("request data is longer than 2^32 - 1 bytes"))?;
    let address = bytes.as_ptr();
    Ok(match placement {
        PayloadPlacement::Inline => {
            let held = match source {
                SendSource::Message(message) => HeldResource::Message(message),
                SendSource::Payload(payload) => HeldResource::Payload(payload),
            };
            (LocalSegment { address: address as u64, len, lkey: 0 }, held, true)
        }
        PayloadPlacement::Copied(mut slot) => {
            slot.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
            let local = LocalSegment { address: slot.address() as u64, len, lkey: slot.lkey() };
            (local, HeldResource::Slot(slot), true)
        }
        PayloadPlacement::Registered => {
            let region = match regions.pool_buffer(address, bytes.len()) {
                Some(buffer) => regions.registration(pd, buffer)?,
                // SAFETY: the memory is held together with the region, which is dropped first, and is only read.
                None => Arc::new(unsafe { pd.register(address, bytes.len(), RegionAccess::LocalRead) }?),
            };
            let local = LocalSegment { address: address as u64, len, lkey: region.lkey() };
            (local, HeldResource::Registered(RequestRegistration { _region: region, _memory: source }), false)
        }
    })
}

impl SlotPool {
    /// Returns the method of passing `len` bytes to the device. Returns `None` if the data must wait for a slot.
    fn placement(&self, pd: &Pd, len: usize, max_inline: usize) -> io::Result<Option<PayloadPlacement>> {
        Ok(if len <= max_inline {
            Some(PayloadPlacement::Inline)
        } else if len <= self.slot_len().min(MAX_COPIED) {
            self.take(pd)?.map(PayloadPlacement::Copied)
        } else {
            Some(PayloadPlacement::Registered)
        })
    }
}
