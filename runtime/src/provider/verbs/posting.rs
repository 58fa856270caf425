//! Posting: work requests become chains, and their octets get to the device.

use std::{io, sync::Arc};

use super::{
    connection::VerbsQueuePair,
    error::VerbsError,
    ffi,
    objects::{Pd, Rights},
    queue::{Hold, Kind, Op, Registered, Source, Told},
    regions::Regions,
    slab::{Slab, Slot},
    wr::{Local, Request},
};
use crate::{
    chain::Chain,
    memory::LandingMemory as _,
    provider::{DisconnectReason, QueuePair as _, WorkError},
};

impl VerbsQueuePair {
    /// Hands what waits to the device.
    pub(super) fn flush(&mut self) {
        let Some(qp) = &self.qp else { return };
        if !self.is_open() || self.queue.is_posted() {
            return;
        }
        let max_inline = qp.max_inline as usize;
        self.chain.clear();
        let mut binds = Vec::new();
        let mut wrong = None;
        while self.queue.in_device() < self.sends {
            let Some((_, op)) = self.queue.waiting() else { break };
            let (request, hold, done) = match op {
                Op::Nothing | Op::TakeBack => {
                    self.queue.skip(Ok(()));
                    continue;
                }
                Op::Marker => (Request::Write { local: Local::default(), remote: 0, rkey: 0 }, Hold::Nothing, false),
                Op::Invalidate => {
                    let Some((Kind::Return(handle), _)) = self.queue.waiting() else { continue };
                    (Request::Invalidate { rkey: handle.0 }, Hold::Nothing, false)
                }
                Op::Bind(request) => {
                    if let Request::Bind { window, rkey, .. } = *request {
                        binds.push((window, rkey));
                    }
                    (*request, Hold::Nothing, !self.exposures.awaits_binding())
                }
                Op::Read { sink, sink_offset, remote, len } => {
                    match self.exposures.read_place(*sink, *sink_offset, *len) {
                        Some(local) => {
                            let request = Request::Read { local, remote: remote.offset, rkey: remote.handle.0 };
                            (request, Hold::Nothing, false)
                        }
                        // There is nothing to read, or nowhere to put it: then there was nothing.
                        None => {
                            self.queue.skip(Ok(()));
                            continue;
                        }
                    }
                }
                Op::Send { message, invalidate, solicited } => {
                    let (invalidate, solicited) = (invalidate.map(|handle| handle.0), *solicited);
                    let Some(placed) = self.send_slab.placed(message.len(), max_inline) else { break };
                    let Op::Send { message, .. } = std::mem::replace(op, Op::Nothing) else { continue };
                    match place(&self.pd, &mut self.regions, placed, Source::Message(message)) {
                        Ok((local, hold, done)) => (Request::Send { local, invalidate, solicited }, hold, done),
                        Err(error) => {
                            wrong = Some(error);
                            break;
                        }
                    }
                }
                Op::Write { source, remote } => {
                    let (remote, rkey) = (remote.offset, remote.handle.0);
                    let Some(placed) = self.send_slab.placed(source.len(), max_inline) else { break };
                    if !matches!(placed, Placed::Registered) {
                        self.copied_payload += source.len() as u64;
                    }
                    let Op::Write { source, .. } = std::mem::replace(op, Op::Nothing) else { continue };
                    match place(&self.pd, &mut self.regions, placed, Source::Payload(source)) {
                        Ok((local, hold, done)) => (Request::Write { local, remote, rkey }, hold, done),
                        Err(error) => {
                            wrong = Some(error);
                            break;
                        }
                    }
                }
            };
            let inline = matches!(hold, Hold::Message(_) | Hold::Payload(_));
            let by_itself =
                matches!(request, Request::Read { .. }) || matches!(hold, Hold::Slot(_) | Hold::Registered(_));
            let told = if self.limits.iwarp && by_itself { Told::Itself } else { Told::Later };
            let number = self.queue.post(hold, done, told);
            self.chain.push(number, request, inline);
            // The last of the chain is looked at again below.
            if self.queue.signal(false) {
                self.chain.signal_last();
            }
        }
        if let Some(error) = wrong {
            tracing::warn!(target: "rpcrdma", error = %Chain(&error), "a work request could not be posted");
            self.queue.skip(Err(WorkError::Local(Chain(&error).to_string())));
            let reason = DisconnectReason::Transport(error.into());
            self.submit(&binds);
            self.end(reason);
        } else {
            self.submit(&binds);
        }
    }

    /// Posts the chain.
    fn submit(&mut self, binds: &[(*mut ffi::ibv_mw, u32)]) {
        let Some(qp) = &self.qp else { return };
        if self.chain.is_empty() {
            return;
        }
        if self.queue.signal(true) {
            self.chain.signal_last();
        }
        // SAFETY: what the requests refer to is held by the queue's entries, the slabs, and the exposures until they have
        // completed or the queue pair is destroyed; sinks are owned by the exposures, and not looked at meanwhile.
        let posted = unsafe { self.chain.post(qp) };
        match posted {
            Ok(()) => self.queue.taken(self.chain.len()),
            Err((taken, error)) => {
                let failed = WorkError::Local(format!("the device refused a work request: {error}"));
                self.queue.refused(self.chain.len() - taken, &failed);
                self.queue.taken(taken);
                let error = VerbsError::Os { doing: "posting a work request", source: error };
                self.end(DisconnectReason::Transport(error.into()));
            }
        }
        for (window, rkey) in binds {
            // SAFETY: the window is held by its exposure; the library's structure is ours to keep up to date: the next
            // request to bind it says by this field which window is meant.
            unsafe { (**window).rkey = *rkey };
        }
    }
}

/// How the octets of a request get to the device.
enum Placed {
    Inline,
    Copied(Slot),
    Registered,
}

/// Places them; what holds them; whether their memory is free when the request has been handed over.
fn place(pd: &Pd, regions: &mut Regions, placed: Placed, source: Source) -> io::Result<(Local, Hold, bool)> {
    let octets: &[u8] = match &source {
        Source::Message(message) => message,
        Source::Payload(payload) => payload,
    };
    let len = u32::try_from(octets.len()).map_err(|_| io::Error::other("longer than 2^32 octets"))?;
    let address = octets.as_ptr();
    Ok(match placed {
        Placed::Inline => {
            let hold = match source {
                Source::Message(message) => Hold::Message(message),
                Source::Payload(payload) => Hold::Payload(payload),
            };
            (Local { address: address as u64, len, lkey: 0 }, hold, true)
        }
        Placed::Copied(mut slot) => {
            slot.as_mut_slice()[..octets.len()].copy_from_slice(octets);
            let local = Local { address: slot.address() as u64, len, lkey: slot.lkey() };
            (local, Hold::Slot(slot), true)
        }
        Placed::Registered => {
            let region = match regions.home(address, octets.len()) {
                Some(home) => regions.of(pd, home)?,
                // SAFETY: the octets are held with the region, which is dropped first; they are only read.
                None => Arc::new(unsafe { pd.register(address, octets.len(), Rights::LocalRead) }?),
            };
            let local = Local { address: address as u64, len, lkey: region.lkey() };
            (local, Hold::Registered(Registered { _region: region, _memory: source }), false)
        }
    })
}

impl Slab {
    /// How so many octets get to the device; `None` where that has to wait for a slot.
    fn placed(&self, len: usize, max_inline: usize) -> Option<Placed> {
        if len <= max_inline {
            Some(Placed::Inline)
        } else if len <= self.slot_len() {
            self.take().map(Placed::Copied)
        } else {
            Some(Placed::Registered)
        }
    }
}
