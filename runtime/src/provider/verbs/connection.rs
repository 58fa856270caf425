//! A connected queue pair: what is posted, what completes, how it ends.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep};

use super::{
    VerbsConfig,
    cm::{CmId, Events},
    device::Limits,
    device_events::{DeviceEvent, DeviceEvents},
    error::VerbsError,
    exposures::{Exposures, Way},
    ffi::{self, rdma_cm_event_type as cm_event},
    objects::{Armed, Cq, Pd, Qp, Rights},
    queue::{Hold, Kind, Op, Registered, SendQueue, Source},
    regions::Regions,
    slab::{Slab, Slot},
    status,
    wr::{Chain, Local, Request},
};
use crate::{
    memory::{MessageBuf, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, Handle, Memory, QueuePair, Region, RegisterError, SetupParams, WorkError,
        WorkRequest, WrId,
    },
};

/// How long what was posted may take to go out without progress, once the connection is to be closed.
const LINGER: Duration = Duration::from_secs(2);

/// How long the device may take to flush a queue pair that has failed.
const FLUSH: Duration = Duration::from_secs(1);

/// How long to wait for the reason why an iWARP queue pair failed: it comes apart from the flushed requests.
const REASON: Duration = Duration::from_millis(200);

/// Requests in the device's send queue, at most.
const SENDS: u32 = 256;

/// Slots for Sends that do not fit a work request.
const SEND_SLOTS: u32 = 64;

/// Completions taken at a time.
const BATCH: usize = 32;

/// Completions handled in one poll.
const MOST: usize = 512;

/// Marks the number of a Receive.
const RECEIVE: u64 = 1 << 63;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Open,
    /// `disconnect` has been called: what was posted goes out.
    Draining,
    /// The queue pair has failed, by itself or by this end's doing; requests are being flushed.
    Ending(DisconnectReason),
    Closed,
}

/// A queue pair of an RDMA device.
///
/// It belongs to the tokio runtime it was set up in. Dropping it closes the connection without ceremony.
pub struct VerbsQueuePair {
    // Dropped in this order: what uses something before it.
    device_events: Option<DeviceEvents>,
    qp: Option<Qp>,
    /// Posted, in order.
    receives: VecDeque<Slot>,
    queue: SendQueue,
    exposures: Exposures,
    regions: Regions,
    receive_slabs: Vec<Slab>,
    send_slab: Slab,
    cq: Cq,
    pd: Pd,
    id: CmId,
    events: Events,

    limits: Limits,
    /// RDMA Reads under way, at most: as agreed with the peer.
    pub(super) max_reads: u32,
    phase: Phase,
    done: Vec<Completion>,
    chain: Chain,
    sends: usize,
    /// Number of the front of `receives`.
    first_receive: u64,
    receive_size: usize,
    /// Receives that the device's queue has room for.
    receive_room: usize,
    /// Receives that are to be posted when there is room.
    owed: usize,
    /// iWARP: Receives were flushed, and nobody has said why.
    suspect: bool,
    limit: Option<Pin<Box<Sleep>>>,
    progress: u64,
    busy_poll: Duration,
    last_active: Instant,
    copied_payload: u64,
}

impl VerbsQueuePair {
    /// A queue pair for `id`, whose device is known, with its Receives posted.
    pub(super) fn new(
        id: CmId,
        events: Events,
        params: &SetupParams,
        config: &VerbsConfig,
    ) -> Result<Self, VerbsError> {
        let context = id.context().ok_or(VerbsError::NoDevice)?;
        let limits = Limits::of(context, id.port())?;
        let receives = u32::try_from(params.receive_count.max(1)).unwrap_or(u32::MAX);
        // Twice as many as asked for: replies need some while calls are worked on.
        let receive_room = receives.saturating_mul(2).max(64).min(limits.max_queue);
        let receives = receives.min(receive_room);
        let sends = SENDS.min(limits.max_queue);
        let completions = (sends + receive_room).min(limits.max_completions);
        let pd = Pd::new(context)?;
        let mut cq = Cq::new(context, completions)?;
        if let Some((count, microseconds)) = config.moderation {
            cq.moderate(count, microseconds);
        }
        let registering = |source: io::Error| match source.downcast::<VerbsError>() {
            Ok(error) => error,
            Err(source) => VerbsError::os("registering memory", source),
        };
        let slot = params.receive_size.clamp(1 << 10, 1 << 16);
        let send_slab = Slab::new(&pd, SEND_SLOTS, slot).map_err(registering)?;
        let receive_slab = Slab::new(&pd, receives, params.receive_size.max(1)).map_err(registering)?;
        let qp = Qp::new(&id, &pd, &cq, sends, receive_room)?;
        let device_events = DeviceEvents::new(context, &qp, &cq)?;
        let mut made = Self {
            device_events: Some(device_events),
            qp: Some(qp),
            receives: VecDeque::new(),
            queue: SendQueue::default(),
            exposures: Exposures::new(&limits),
            regions: Regions::new(params.pool.clone(), config.max_registered, &limits),
            receive_slabs: vec![receive_slab],
            send_slab,
            cq,
            pd,
            id,
            events,
            limits,
            max_reads: 0,
            phase: Phase::Open,
            done: Vec::new(),
            chain: Chain::default(),
            sends: sends as usize,
            first_receive: 0,
            receive_size: params.receive_size,
            receive_room: receive_room as usize,
            owed: 0,
            suspect: false,
            limit: None,
            progress: 0,
            busy_poll: config.busy_poll,
            last_active: Instant::now(),
            copied_payload: 0,
        };
        made.post_receives(params.receive_count);
        if made.phase == Phase::Open {
            Ok(made)
        } else {
            Err(VerbsError::os("posting Receives", io::Error::other("the device refused them")))
        }
    }

    pub(super) fn id(&self) -> &CmId {
        &self.id
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Hands what waits to the device.
    fn flush(&mut self) {
        let Some(qp) = &self.qp else { return };
        if !matches!(self.phase, Phase::Open | Phase::Draining) {
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
                    let placed = if message.len() <= max_inline {
                        Placed::Inline
                    } else if message.len() <= self.send_slab.slot_len() {
                        match self.send_slab.take() {
                            Some(slot) => Placed::Copied(slot),
                            None => break,
                        }
                    } else {
                        Placed::Registered
                    };
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
                    let placed = if source.len() <= max_inline {
                        self.copied_payload += source.len() as u64;
                        Placed::Inline
                    } else if source.len() <= self.send_slab.slot_len() {
                        match self.send_slab.take() {
                            Some(slot) => {
                                self.copied_payload += source.len() as u64;
                                Placed::Copied(slot)
                            }
                            None => break,
                        }
                    } else {
                        Placed::Registered
                    };
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
            let number = self.queue.post(hold, done);
            self.chain.push(number, request, inline);
            // The last of the chain is looked at again below.
            if self.queue.signal(false) {
                self.chain.signal_last();
            }
        }
        if let Some(error) = wrong {
            let error = WorkError::Local(error.to_string());
            tracing::warn!(target: "rpcrdma", %error, "a work request could not be posted");
            let reason = DisconnectReason::Transport(error.to_string());
            self.queue.skip(Err(error));
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
                let error = WorkError::Local(format!("the device refused a work request: {error}"));
                self.queue.refused(self.chain.len() - taken, &error);
                self.queue.taken(taken);
                self.end(DisconnectReason::Transport(error.to_string()));
            }
        }
        for (window, rkey) in binds {
            // SAFETY: the window is held by its exposure; the library's structure is ours to keep up to date: the next
            // request to bind it says by this field which window is meant.
            unsafe { (**window).rkey = *rkey };
        }
    }

    /// Takes and handles completions.
    fn drain(&mut self) {
        // SAFETY: plain numbers, whose zeros are values.
        let mut batch: [ffi::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        let mut handled = 0;
        while handled < MOST && self.qp.is_some() {
            let taken = match self.cq.take(&mut batch) {
                Ok(taken) => taken.len(),
                Err(error) => {
                    self.end(DisconnectReason::Transport(error.to_string()));
                    return;
                }
            };
            for wc in &batch[..taken] {
                if wc.wr_id & RECEIVE != 0 {
                    self.received(wc);
                } else {
                    self.completed(wc);
                }
            }
            handled += taken;
            if taken > 0 && !self.busy_poll.is_zero() {
                self.last_active = Instant::now();
            }
            if taken < BATCH {
                break;
            }
        }
        self.tell();
    }

    /// A Receive has completed.
    fn received(&mut self, wc: &ffi::ibv_wc) {
        // They complete in the order posted.
        let Some(slot) = self.receives.pop_front() else { return };
        self.first_receive += 1;
        match status::of_receive(wc.status) {
            status::Receive::Message => {}
            status::Receive::Flushed => {
                if self.limits.iwarp {
                    self.suspect = true;
                } else {
                    let reason = "the queue pair failed at a request of its".to_owned();
                    self.end(DisconnectReason::PeerViolation(reason));
                }
                return;
            }
            status::Receive::Violation(what) => return self.end(DisconnectReason::PeerViolation(what)),
            status::Receive::Fault(what) => return self.end(DisconnectReason::Transport(what)),
        }
        let len = (wc.byte_len as usize).min(self.receive_size);
        let invalidated = (wc.wc_flags & self.limits.invalidated_flags() != 0)
            // SAFETY: all variants are numbers; the flag says that this one is meant.
            .then_some(unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey });
        if let Some(handle) = invalidated
            && !self.exposures.invalidated_by_peer(handle)
        {
            // The device found it valid, so it is one of this protection domain's that was not exposed: never told to the
            // peer, or asked for back at the same time.
            tracing::debug!(handle, "the peer invalidated a handle that is not exposed");
        }
        // SAFETY-free from here: the slot is the message's, and returns to its slab with it.
        let memory = PayloadBuf::from_memory(Box::new(slot));
        let message = MessageBuf::received(memory, len);
        self.done.push(Completion::Received { message, invalidated: invalidated.map(Handle) });
        self.post_owed();
    }

    /// A request of the send queue has completed, and all before it.
    fn completed(&mut self, wc: &ffi::ibv_wc) {
        match status::of_request(wc.status) {
            Ok(()) => self.queue.retire(wc.wr_id, Ok(())),
            Err(status::Failure { error, reason }) => {
                self.queue.retire(wc.wr_id, Err(error));
                if let Some(reason) = reason {
                    self.end(reason);
                } else if self.limits.iwarp {
                    self.suspect = true;
                } else {
                    self.end(DisconnectReason::Transport("the queue pair failed".to_owned()));
                }
            }
        }
    }

    /// Tells what has completed, in order.
    fn tell(&mut self) {
        while let Some((id, kind, result)) = self.queue.completed() {
            if let Kind::Read(sink) = kind {
                self.exposures.end_read(sink);
            }
            let Some(id) = id else { continue };
            let completion = match (kind, result) {
                (Kind::Return(handle), result) => {
                    if result.is_ok() {
                        self.exposures.unbound(handle);
                    } else if self.qp.is_some() {
                        // The queue pair has failed: it is destroyed before the memory is given back.
                        self.finish();
                    }
                    self.give_back(id, handle)
                }
                (_, Err(error)) => Completion::Failed { id, error },
                (Kind::Send, Ok(())) => Completion::Sent { id },
                (Kind::Write, Ok(())) => Completion::Written { id },
                (Kind::Read(_), Ok(())) => Completion::Read { id },
                (Kind::Own, Ok(())) => continue,
            };
            self.done.push(completion);
        }
    }

    fn give_back(&mut self, id: WrId, handle: Handle) -> Completion {
        match self.exposures.take(handle) {
            Ok(memory) => Completion::Invalidated { id, memory },
            Err(error) => Completion::Failed { id, error: WorkError::Local(error) },
        }
    }

    /// The connection ends; only the first reason counts.
    fn end(&mut self, reason: DisconnectReason) {
        if !matches!(self.phase, Phase::Open | Phase::Draining) {
            return;
        }
        // What this end was about to close anyway, it closed.
        let reason = if self.phase == Phase::Draining && reason == DisconnectReason::Remote {
            DisconnectReason::Local
        } else {
            reason
        };
        tracing::debug!(%reason, "the connection ends");
        self.phase = Phase::Ending(reason);
        self.limit = None;
        if let Err(error) = self.id.disconnect() {
            tracing::debug!(%error, "disconnect");
        }
        if let Some(qp) = &self.qp {
            qp.fail();
        }
    }

    /// Everything is flushed, or has had the time: the queue pair goes, and nobody can access anything any more.
    fn finish(&mut self) {
        let Phase::Ending(reason) = std::mem::replace(&mut self.phase, Phase::Closed) else { return };
        self.limit = None;
        self.device_events = None;
        self.exposures.free_windows();
        self.qp = None;
        self.receives.clear();
        self.queue.abandon();
        self.tell();
        self.done.push(Completion::Disconnected { reason });
    }

    /// What comes by the connection manager, and from the device.
    fn poll_events(&mut self, cx: &mut Context<'_>) {
        while let Some(Poll::Ready(event)) = self.device_events.as_ref().map(|events| events.poll(cx)) {
            let reason = match event {
                DeviceEvent::Fatal => DisconnectReason::Transport(format!("device {} failed", self.limits.name)),
                DeviceEvent::CompletionsLost => DisconnectReason::Transport("completions were lost".into()),
                DeviceEvent::PeerViolation => DisconnectReason::PeerViolation("the device refused its request".into()),
                // `siw` says so where the header of what arrives is wrong.
                DeviceEvent::QueuePairFailed if self.limits.iwarp => {
                    DisconnectReason::PeerViolation("the device refused its request".into())
                }
                DeviceEvent::QueuePairFailed => DisconnectReason::Transport("the queue pair failed".into()),
            };
            // Messages that came before, and a better reason, if a request's completion has one.
            self.drain();
            self.end(reason);
        }
        while let Poll::Ready(event) = self.events.poll(cx) {
            let reason = match event {
                Ok(event) => match event.kind {
                    cm_event::RDMA_CM_EVENT_DISCONNECTED => {
                        // Messages that came before.
                        self.drain();
                        match &self.qp {
                            // A fabric's queue pair fails by itself only where the peer asks for what it may not have; it is
                            // not touched by the peer's disconnecting.
                            Some(qp) if !self.limits.iwarp && self.phase == Phase::Open && qp.is_in_error() => {
                                DisconnectReason::PeerViolation("the queue pair failed at a request of its".into())
                            }
                            _ => DisconnectReason::Remote,
                        }
                    }
                    cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                        DisconnectReason::Transport(format!("device {} was removed", self.limits.name))
                    }
                    _ => continue,
                },
                Err(error) => DisconnectReason::Transport(error.to_string()),
            };
            self.end(reason);
        }
    }

    /// What is due in the phase the connection is in. `true` if it has changed something.
    fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = match self.phase {
            Phase::Open if self.suspect => REASON,
            Phase::Draining => LINGER,
            Phase::Ending(_) => FLUSH,
            Phase::Open | Phase::Closed => return false,
        };
        match self.phase {
            Phase::Draining if self.queue.is_posted() && self.queue.in_device() == 0 => {
                self.end(DisconnectReason::Local);
                return true;
            }
            Phase::Draining if self.queue.is_posted() && self.queue.is_untold() => {
                self.queue.push(None, Kind::Own, Op::Marker);
                self.flush();
                return true;
            }
            Phase::Ending(_) if self.queue.in_device() == 0 && self.receives.is_empty() => {
                self.finish();
                return true;
            }
            _ => {}
        }
        let fresh = self.limit.is_none();
        let timer = self.limit.get_or_insert_with(|| Box::pin(sleep(limit)));
        if fresh || self.progress != self.queue.retired() {
            self.progress = self.queue.retired();
            timer.as_mut().reset(tokio::time::Instant::now() + limit);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.limit = None;
        match self.phase {
            Phase::Open => self.end(DisconnectReason::Transport("the queue pair failed".into())),
            Phase::Draining => self.end(DisconnectReason::Local),
            Phase::Ending(_) => self.finish(),
            Phase::Closed => {}
        }
        true
    }

    /// Posts the Receives that are owed, as far as there is room.
    fn post_owed(&mut self) {
        let count = self.owed.min(self.receive_room.saturating_sub(self.receives.len()));
        if count == 0 || !matches!(self.phase, Phase::Open | Phase::Draining) {
            return;
        }
        let Some(qp) = &self.qp else { return };
        let mut places = Vec::with_capacity(count);
        let from = self.receives.len();
        for _ in 0..count {
            let slot = match self.receive_slabs.iter().find_map(Slab::take) {
                Some(slot) => slot,
                // The user holds on to messages.
                None => {
                    let more = u32::try_from(self.receive_room / 4).unwrap_or(u32::MAX);
                    match Slab::new(&self.pd, more, self.receive_size.max(1)) {
                        Ok(slab) => {
                            let slot = slab.take();
                            self.receive_slabs.push(slab);
                            let Some(slot) = slot else { break };
                            slot
                        }
                        Err(error) => {
                            tracing::warn!(target: "rpcrdma", %error, "no memory for Receives");
                            break;
                        }
                    }
                }
            };
            let length = u32::try_from(self.receive_size).unwrap_or(u32::MAX);
            places.push(ffi::ibv_sge { addr: slot.address() as u64, length, lkey: slot.lkey() });
            self.receives.push_back(slot);
        }
        let places_at = places.as_mut_ptr();
        let mut requests: Vec<_> = (0..places.len())
            .map(|n| ffi::ibv_recv_wr {
                wr_id: RECEIVE | (self.first_receive + (from + n) as u64),
                next: std::ptr::null_mut(),
                // SAFETY: there are as many places as requests.
                sg_list: unsafe { places_at.add(n) },
                num_sge: 1,
            })
            .collect();
        let requests_at = requests.as_mut_ptr();
        for n in 1..requests.len() {
            // SAFETY: inside the vector.
            requests[n - 1].next = unsafe { requests_at.add(n) };
        }
        if requests.is_empty() {
            return;
        }
        self.owed -= requests.len();
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is live and the chain linked; its slots are held in `receives` until they have completed
        // or the queue pair is destroyed.
        let code = unsafe { ffi::ibv_post_recv(qp.as_ptr(), requests_at, &raw mut bad) };
        if code != 0 {
            let error = io::Error::from_raw_os_error(code.abs());
            self.end(DisconnectReason::Transport(format!("the device refused Receives: {error}")));
        }
    }

    /// A work request was wrong: that ends the connection.
    fn refuse(&mut self, id: WrId, kind: Kind, error: String) {
        self.queue.push_done(id, kind, Err(WorkError::Local(error)));
        self.tell();
        self.end(DisconnectReason::Local);
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
            use crate::memory::LandingMemory as _;
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

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        // Peers lose access before anything is freed.
        self.end(DisconnectReason::Local);
        self.exposures.free_windows();
    }
}

impl QueuePair for VerbsQueuePair {
    fn register(&mut self, memory: Memory, access: Access) -> Result<Region, RegisterError> {
        if !matches!(self.phase, Phase::Open | Phase::Draining) {
            return Err(RegisterError { reason: "the connection is gone".to_owned(), memory });
        }
        match self.exposures.register(&self.pd, &mut self.regions, memory, access) {
            Ok((region, bind, copied)) => {
                self.copied_payload += copied;
                if let Some(bind) = bind {
                    self.queue.push(None, Kind::Own, Op::Bind(bind));
                }
                Ok(region)
            }
            Err((reason, memory)) => Err(RegisterError { reason, memory }),
        }
    }

    fn post(&mut self, request: WorkRequest) {
        let open = self.phase == Phase::Open;
        let most = self.limits.max_transfer;
        match request {
            WorkRequest::Invalidate { id, handle } => match self.exposures.begin_return(handle) {
                Way::Unknown => {
                    let error = WorkError::Local(format!("{handle:?} is not registered"));
                    self.done.push(Completion::Failed { id, error });
                }
                Way::Now => {
                    let completion = self.give_back(id, handle);
                    self.done.push(completion);
                }
                _ if self.phase == Phase::Closed => {
                    let completion = self.give_back(id, handle);
                    self.done.push(completion);
                }
                Way::InTurn => self.queue.push(Some(id), Kind::Return(handle), Op::TakeBack),
                Way::ByRequest => self.queue.push(Some(id), Kind::Return(handle), Op::Invalidate),
            },
            WorkRequest::Send { id, .. } if !open => self.queue.push_done(id, Kind::Send, Err(WorkError::Flushed)),
            WorkRequest::Write { id, .. } if !open => self.queue.push_done(id, Kind::Write, Err(WorkError::Flushed)),
            WorkRequest::Read { id, .. } if !open => self.queue.push_done(id, Kind::Own, Err(WorkError::Flushed)),
            WorkRequest::Send { id, message, .. } if message.len() > most as usize => {
                self.refuse(id, Kind::Send, format!("a Send of {} octets", message.len()));
            }
            WorkRequest::Write { id, source, .. } if source.len() > most as usize => {
                self.refuse(id, Kind::Write, format!("an RDMA Write of {} octets", source.len()));
            }
            WorkRequest::Read { id, len, .. } if len > most => {
                self.refuse(id, Kind::Own, format!("an RDMA Read of {len} octets"));
            }
            WorkRequest::Send { id, message, invalidate, solicited } => {
                self.queue.push(Some(id), Kind::Send, Op::Send { message, invalidate, solicited });
            }
            // What has no octets needs no memory, nor the peer.
            WorkRequest::Write { id, source, .. } if source.is_empty() => {
                self.queue.push(Some(id), Kind::Write, Op::Nothing);
            }
            WorkRequest::Write { id, source, remote } => {
                self.queue.push(Some(id), Kind::Write, Op::Write { source, remote });
            }
            WorkRequest::Read { id, sink, sink_offset, remote, len } => {
                match self.exposures.begin_read(sink, sink_offset, len) {
                    Ok(()) if len == 0 => self.queue.push(Some(id), Kind::Read(sink), Op::Nothing),
                    Ok(()) => {
                        self.queue.push(Some(id), Kind::Read(sink), Op::Read { sink, sink_offset, remote, len });
                    }
                    Err(error) => self.refuse(id, Kind::Own, error),
                }
            }
        }
    }

    fn post_receives(&mut self, count: usize) {
        self.owed = self.owed.saturating_add(count);
        self.post_owed();
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        self.flush();
        loop {
            self.poll_events(cx);
            self.drain();
            self.flush();
            self.tell();
            let changed = self.advance(cx);
            if !self.done.is_empty() {
                completions.append(&mut self.done);
                return Poll::Ready(());
            }
            if changed {
                continue;
            }
            if self.phase == Phase::Closed {
                return Poll::Pending;
            }
            if !self.busy_poll.is_zero() && self.last_active.elapsed() < self.busy_poll {
                std::hint::spin_loop();
                continue;
            }
            match self.cq.poll_event(cx) {
                Ok(Armed::Again) => {}
                Ok(Armed::Wait) => return Poll::Pending,
                Err(error) => self.end(DisconnectReason::Transport(error.to_string())),
            }
        }
    }

    fn disconnect(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.limit = None;
        }
    }

    fn max_reads(&self) -> u32 {
        self.max_reads
    }

    fn max_transfer(&self) -> u32 {
        self.limits.max_transfer
    }

    fn remote_invalidation(&self) -> bool {
        self.exposures.has_windows()
    }

    fn tells_violations(&self) -> bool {
        !self.limits.iwarp
    }

    fn copied_payload(&self) -> u64 {
        self.copied_payload
    }
}

impl fmt::Debug for VerbsQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsQueuePair")
            .field("device", &self.limits.name)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
