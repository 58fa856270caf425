//! A connected queue pair: requests, completions and teardown.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

use super::{
    VerbsConfig,
    cm::{CmEvents, CmId},
    completion_hub::SharedQueues,
    connection_queues::{ConnectionQueues, QueuePairParts},
    device::DeviceLimits,
    device_events::DeviceEvents,
    error::VerbsError,
    event_readiness::EventReadiness,
    exposures::{Exposures, InvalidationMethod},
    ffi,
    objects::{EventWait, Pd, Qp},
    queue::{PostedKind, SendQueue, VerbsOp},
    receives::RECEIVE,
    regions::PooledRegions,
    slab::SlotPool,
    status,
    wr::RequestChain,
};
use crate::{
    memory::{MessageBuf, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, PeerActivity, QueuePair, Region, RegisterError,
        RegisterableMemory, SetupParams, WorkError, WorkRequest, WrId,
    },
};

/// The RNR timer code of 0.64 ms (InfiniBand Architecture, table 45).
const RNR_TIMER: u8 = 12;

/// Maximum number of completions fetched at a time.
const COMPLETION_BATCH: usize = 32;

/// Maximum number of completions that one call of [`VerbsQueuePair::drain`] processes.
const MAX_PROCESSED: usize = 512;

/// Maximum number of completion checks while busy polling, between checks of the time and of other events.
const BUSY_CHECKS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VerbsPhase {
    Open,
    /// `disconnect` was called, and posted requests are still being sent.
    Draining,
    /// The queue pair has failed or was moved to the error state, and requests are being flushed.
    Ending(DisconnectReason),
    Closed,
}

/// A queue pair of an RDMA device.
///
/// The queue pair belongs to the tokio runtime in which it was set up. Dropping it closes the connection at once,
/// without sending posted requests.
pub struct VerbsQueuePair {
    // The fields are dropped in this order: users before the objects that they use.
    pub(super) device_events: Option<DeviceEvents>,
    pub(super) qp: Option<Qp>,
    pub(super) queue: SendQueue,
    pub(super) exposures: Exposures,
    pub(super) regions: PooledRegions,
    pub(super) send_slots: Arc<SlotPool>,
    pub(super) queues: ConnectionQueues,
    pub(super) pd: Arc<Pd>,
    pub(super) id: CmId,
    pub(super) events: CmEvents,
    /// Readiness of the connection manager's events and of the device's.
    pub(super) event_readiness: EventReadiness,

    pub(super) limits: DeviceLimits,
    /// Maximum number of local RDMA Reads in flight, as agreed with the peer.
    pub(super) max_reads: u32,
    pub(super) phase: VerbsPhase,
    pub(super) done: Vec<Completion>,
    /// Buffer for the device's completions.
    batch: Vec<ffi::ibv_wc>,
    /// `true` if the completion queue was empty when it was last checked.
    drained: bool,
    pub(super) chain: RequestChain,
    pub(super) sends: usize,
    /// The device number of the last posted request other than a bind or an invalidation, plus 1.
    pub(super) transfers_end: u64,
    /// `true` if requests or Receives were flushed on iWARP and the cause is not known yet.
    pub(super) awaits_cause: bool,
    pub(super) limit: Option<Pin<Box<Sleep>>>,
    pub(super) progress: u64,
    peer_activity: PeerActivity<tokio::time::Sleep>,
    /// `true` once a message was posted.
    has_sent: bool,
    /// `true` once a message was received.
    has_received: bool,
    busy_poll: Duration,
    may_busy_poll: bool,
    last_active: Instant,
    pub(super) copied_payload: u64,
}

impl VerbsQueuePair {
    /// Creates a queue pair for `id`, whose device is known, and posts its Receives. `shared` contains the queues that
    /// the connections of a listener share, if they share any.
    pub(super) fn new(
        id: CmId,
        events: CmEvents,
        params: &SetupParams,
        config: &VerbsConfig,
        shared: Option<&SharedQueues>,
    ) -> Result<Self, VerbsError> {
        // `rdma_destroy_id` writes to the channel, so the identifier must be dropped first. Locals are dropped in
        // reverse order, so the channel is declared first. Parameters would be dropped in the wrong order.
        let (events, id) = (events, id);
        let context = id.context().ok_or_else(VerbsError::none_found)?;
        let limits = DeviceLimits::query(context, id.port())?;
        if let Some(exponent) = config.ack_timeout.filter(|_| !limits.iwarp) {
            id.set_ack_timeout(exponent)?;
        }
        let parts = QueuePairParts::new(context, &limits, params, config, shared)?;
        // The domain is dropped last if the rest fails.
        let QueuePairParts { pd, send_slots, mut queues, sends } = parts;
        // SAFETY: the queues are live, and belong to the device of the identifier. The fields of the queue pair are
        // dropped in the right order.
        let qp = unsafe { Qp::new(&id, &pd, queues.cq(), sends, queues.receive_queue()) }?;
        queues.enter(&qp);
        let device_events = DeviceEvents::new(context, queues.event_subjects(&qp))?;
        let mut made = Self {
            device_events: Some(device_events),
            qp: Some(qp),
            queue: SendQueue::default(),
            exposures: Exposures::new(&limits),
            regions: PooledRegions::new(params.pool.clone(), config.max_registered, &limits),
            send_slots,
            queues,
            pd,
            id,
            events,
            event_readiness: EventReadiness::new(),
            limits,
            max_reads: 0,
            phase: VerbsPhase::Open,
            done: Vec::new(),
            // SAFETY: plain integers, for which zeros are valid.
            batch: std::iter::repeat_with(|| unsafe { std::mem::zeroed() }).take(COMPLETION_BATCH).collect(),
            drained: false,
            chain: RequestChain::default(),
            sends: sends as usize,
            transfers_end: 0,
            awaits_cause: false,
            limit: None,
            progress: 0,
            peer_activity: PeerActivity::new(false),
            has_sent: false,
            has_received: false,
            busy_poll: config.busy_poll,
            may_busy_poll: true,
            last_active: Instant::now(),
            copied_payload: 0,
        };
        made.post_receives(params.receive_count);
        if made.phase == VerbsPhase::Open {
            Ok(made)
        } else {
            Err(VerbsError::os("posting of Receives", io::Error::other("the device refused the Receives")))
        }
    }

    pub(super) fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns `true` if the Receives are shared with other connections.
    pub(super) fn shares_receives(&self) -> bool {
        self.queues.are_shared()
    }

    /// Shortens the time after which the peer repeats a Send that found no shared Receive, from the connection
    /// manager's default of 655 ms. Does nothing if the Receives are not shared.
    pub(super) fn set_rnr_timer(&self) {
        if let Some(qp) = self.qp.as_ref().filter(|_| self.shares_receives()) {
            qp.set_rnr_timer(RNR_TIMER);
        }
    }

    /// Marks the local side as initiator. On iWARP, the initiator sends a marker if its first message gets no reply for
    /// some time.
    pub(super) fn set_initiator(&mut self) {
        self.peer_activity = PeerActivity::new(self.limits.iwarp);
    }

    pub(super) fn events(&self) -> &CmEvents {
        &self.events
    }

    pub(super) fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// Fetches and processes completions. Returns `true` if there were any.
    pub(super) fn drain(&mut self) -> bool {
        // A buffer on the stack would have to be zeroed each time.
        let mut batch = std::mem::take(&mut self.batch);
        let mut handled = 0;
        self.drained = false;
        while handled < MAX_PROCESSED && self.qp.is_some() {
            let taken = match self.queues.take(&mut batch) {
                Ok(taken) => taken,
                Err(error) => {
                    self.end(DisconnectReason::Transport(error.into()));
                    break;
                }
            };
            for wc in taken {
                if wc.wr_id & RECEIVE != 0 {
                    self.received(wc);
                } else {
                    self.completed(wc);
                }
            }
            handled += taken.len();
            if taken.len() < COMPLETION_BATCH {
                self.drained = true;
                break;
            }
        }
        self.batch = batch;
        if self.queues.take_overrun() {
            self.end(DisconnectReason::PeerViolation("a message without a Receive".into()));
        }
        if handled > 0 && !self.busy_poll.is_zero() {
            self.last_active = Instant::now();
        }
        self.report_completions();
        handled > 0
    }

    /// Processes the completion of a Receive.
    fn received(&mut self, wc: &ffi::ibv_wc) {
        let Some(slot) = self.queues.complete_receive() else { return };
        match status::receive_outcome(wc.status) {
            status::ReceiveOutcome::Message => {}
            status::ReceiveOutcome::Flushed => {
                if self.limits.iwarp {
                    self.awaits_cause = true;
                } else {
                    let reason = "the queue pair failed on a request of the peer".to_owned();
                    self.end(DisconnectReason::PeerViolation(reason));
                }
                return;
            }
            status::ReceiveOutcome::Violation(what) => return self.end(DisconnectReason::PeerViolation(what)),
            status::ReceiveOutcome::Fault(what) => return self.end(DisconnectReason::Transport(what.into())),
        }
        let len = (wc.byte_len as usize).min(self.queues.receive_size());
        let invalidated = (wc.wc_flags & self.limits.invalidated_flags() != 0)
            // SAFETY: all variants are integers, and the flag selects this one.
            .then_some(unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey });
        if let Some(handle) = invalidated
            && !self.exposures.invalidated_by_peer(handle)
        {
            // The device accepted the handle, so it belongs to this protection domain but is not exposed: it was never
            // sent to the peer, or is being invalidated locally at the same time.
            tracing::debug!(handle, "peer invalidated a handle that is not exposed");
        }
        self.has_received = true;
        // The message owns the slot, which returns to its slab when the message is dropped.
        let memory = PayloadBuf::from_memory(Box::new(slot));
        let message = MessageBuf::received(memory, len);
        self.done.push(Completion::Received { message, invalidated: invalidated.map(MemoryHandle) });
        self.post_permitted();
    }

    /// Processes the completion of a request of the send queue.
    fn completed(&mut self, wc: &ffi::ibv_wc) {
        match status::request_result(wc.status) {
            Ok(()) => self.queue.retire(wc.wr_id, Ok(())),
            Err(status::RequestFailure { error, reason }) => {
                self.queue.retire(wc.wr_id, Err(error));
                if let Some(reason) = reason {
                    self.end(reason);
                } else if self.limits.iwarp {
                    self.awaits_cause = true;
                } else {
                    self.end(DisconnectReason::Transport("the queue pair failed".into()));
                }
            }
        }
    }

    /// Reports completed requests in order.
    pub(super) fn report_completions(&mut self) {
        while let Some((id, kind, result)) = self.queue.completed() {
            if let PostedKind::Read(sink) = kind {
                self.exposures.end_read(sink);
            }
            let Some(id) = id else { continue };
            let completion = match (kind, result) {
                (PostedKind::Return(handle), result) => {
                    if result.is_ok() {
                        self.exposures.unbound(handle);
                    } else if self.qp.is_some() {
                        // The queue pair has failed, so it is destroyed before the memory is returned. (An iWARP
                        // connection stays open until the cause is known, but the memory does not wait for that.)
                        self.end(DisconnectReason::Transport("the queue pair failed".into()));
                        self.finish();
                    }
                    self.return_memory(id, handle)
                }
                (_, Err(error)) => Completion::Failed { id, error },
                (PostedKind::Send, Ok(())) => Completion::Sent { id },
                (PostedKind::Write, Ok(())) => Completion::Written { id },
                (PostedKind::Read(_), Ok(())) => Completion::Read { id },
                (PostedKind::Own, Ok(())) => continue,
            };
            self.done.push(completion);
        }
    }

    fn return_memory(&mut self, id: WrId, handle: MemoryHandle) -> Completion {
        match self.exposures.take(handle) {
            Ok(memory) => Completion::Invalidated { id, memory },
            Err(error) => Completion::Failed { id, error: WorkError::Local(error) },
        }
    }

    /// Posts the Receives that are permitted.
    fn post_permitted(&mut self) {
        let Some(qp) = &self.qp else { return };
        if self.is_open()
            && let Err(error) = self.queues.post_permitted(&self.pd, qp)
        {
            self.end_without_receives(error);
        }
    }

    fn end_without_receives(&mut self, source: io::Error) {
        self.end(DisconnectReason::Transport(VerbsError::Os { doing: "posting of Receives", source }.into()));
    }

    /// Processes completions, unless the queue is known to be empty and armed. Returns the result of waiting for an
    /// event, and `true` if there were completions.
    fn check_completions(&mut self, cx: &mut Context<'_>) -> io::Result<(EventWait, bool)> {
        // A queue that was empty after it was armed reports the next completion. This shortcut is not used while the
        // connection is closing.
        let will_report =
            self.queues.is_armed() && self.drained && self.phase == VerbsPhase::Open && !self.awaits_cause;
        if will_report && self.queues.poll_event(cx)? == EventWait::Registered {
            return Ok((EventWait::Registered, false));
        }
        Ok((EventWait::Again, self.drain()))
    }

    /// Arms the completion queue, so that the next completion wakes the task.
    fn wait(&mut self, cx: &mut Context<'_>) -> io::Result<EventWait> {
        // Completions that arrived before the queue was armed are not reported.
        if self.queues.arm()? && self.drain() {
            return Ok(EventWait::Again);
        }
        self.queues.poll_event(cx)
    }

    /// Ends the connection, because the completion queue cannot be polled or armed. If the connection is already
    /// ending, destroys the queue pair at once: a queue that has failed, as that of a removed device, reports no
    /// flushed requests and causes no events, so there is nothing to wait for.
    fn queue_failed(&mut self, error: io::Error) {
        match self.phase {
            VerbsPhase::Ending(_) => self.finish(),
            _ => self.end(DisconnectReason::Transport(error.into())),
        }
    }

    /// Fails an invalid work request and ends the connection.
    fn fail_request(&mut self, id: WrId, kind: PostedKind, error: String) {
        self.queue.push_done(id, kind, Err(WorkError::Local(error)));
        self.report_completions();
        self.end(DisconnectReason::Local);
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        // End the peer's access before anything is freed.
        self.end(DisconnectReason::Local);
        self.exposures.free_windows();
    }
}

impl QueuePair for VerbsQueuePair {
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        if !self.is_open() {
            return Err(RegisterError { source: "connection has ended".into(), memory });
        }
        match self.exposures.register(&self.pd, &mut self.regions, memory, access) {
            Ok((region, bind, copied)) => {
                self.copied_payload += copied;
                if let Some(bind) = bind {
                    self.queue.push(None, PostedKind::Own, VerbsOp::Bind(bind));
                }
                Ok(region)
            }
            Err((source, memory)) => Err(RegisterError { source, memory }),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, VerbsPhase::Open | VerbsPhase::Draining)
    }

    fn post(&mut self, request: WorkRequest) {
        let open = self.phase == VerbsPhase::Open;
        let max_transfer = self.limits.max_transfer;
        match request {
            WorkRequest::Invalidate { id, handle } => match self.exposures.begin_invalidate(handle) {
                InvalidationMethod::Unknown => {
                    let error = WorkError::Local(format!("{handle:?} is not registered"));
                    self.done.push(Completion::Failed { id, error });
                }
                InvalidationMethod::Now => {
                    let completion = self.return_memory(id, handle);
                    self.done.push(completion);
                }
                _ if self.phase == VerbsPhase::Closed => {
                    let completion = self.return_memory(id, handle);
                    self.done.push(completion);
                }
                InvalidationMethod::InTurn => {
                    self.queue.push(Some(id), PostedKind::Return(handle), VerbsOp::ReturnMemory)
                }
                InvalidationMethod::ByRequest => {
                    self.queue.push(Some(id), PostedKind::Return(handle), VerbsOp::Invalidate)
                }
            },
            WorkRequest::Send { id, .. } if !open => {
                self.queue.push_done(id, PostedKind::Send, Err(WorkError::Flushed))
            }
            WorkRequest::Write { id, .. } if !open => {
                self.queue.push_done(id, PostedKind::Write, Err(WorkError::Flushed))
            }
            WorkRequest::Read { id, .. } if !open => self.queue.push_done(id, PostedKind::Own, Err(WorkError::Flushed)),
            WorkRequest::Send { id, message, .. } if message.len() > max_transfer as usize => {
                self.fail_request(
                    id,
                    PostedKind::Send,
                    format!("Send of {} bytes exceeds the device's limit of {max_transfer}", message.len()),
                );
            }
            WorkRequest::Write { id, source, .. } if source.len() > max_transfer as usize => {
                self.fail_request(
                    id,
                    PostedKind::Write,
                    format!("RDMA Write of {} bytes exceeds the device's limit of {max_transfer}", source.len()),
                );
            }
            WorkRequest::Read { id, .. } if self.max_reads == 0 => {
                self.fail_request(id, PostedKind::Own, "peer does not serve RDMA Reads".to_owned());
            }
            WorkRequest::Read { id, len, .. } if len > max_transfer => {
                self.fail_request(
                    id,
                    PostedKind::Own,
                    format!("RDMA Read of {len} bytes exceeds the device's limit of {max_transfer}"),
                );
            }
            WorkRequest::Send { id, message, invalidate, solicited, signaled } => {
                self.has_sent = true;
                // The success of the provider's own requests is not reported either.
                let kind = if signaled { PostedKind::Send } else { PostedKind::Own };
                self.queue.push(Some(id), kind, VerbsOp::Send { message, invalidate, solicited });
            }
            // Zero-length requests need neither memory nor the peer.
            WorkRequest::Write { id, source, .. } if source.is_empty() => {
                self.queue.push(Some(id), PostedKind::Write, VerbsOp::Nothing);
            }
            WorkRequest::Write { id, source, remote } => {
                self.queue.push(Some(id), PostedKind::Write, VerbsOp::Write { source, remote });
            }
            WorkRequest::Read { id, sink, sink_offset, remote, len } => {
                match self.exposures.begin_read(sink, sink_offset, len) {
                    Ok(()) if len == 0 => self.queue.push(Some(id), PostedKind::Read(sink), VerbsOp::Nothing),
                    Ok(()) => {
                        self.queue.push(
                            Some(id),
                            PostedKind::Read(sink),
                            VerbsOp::Read { sink, sink_offset, remote, len },
                        );
                    }
                    Err(error) => self.fail_request(id, PostedKind::Own, error),
                }
            }
        }
    }

    fn post_receives(&mut self, count: usize) {
        match self.queues.permit(count) {
            Ok(()) => self.post_permitted(),
            Err(error) => self.end_without_receives(error),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        loop {
            self.flush();
            // Events come before completions, because they give the most precise cause of flushed requests.
            let mut changed = self.poll_events(cx);
            // Requests that are already done can be reported without checking the device.
            self.report_completions();
            let mut waited_for = EventWait::Again;
            if self.done.is_empty() {
                match self.check_completions(cx) {
                    Ok((waited, handled)) => {
                        waited_for = waited;
                        // Requests may have waited for the slots or the entries that these completions have freed. No
                        // further completion would wake the task for them.
                        changed |= handled && !self.queue.is_posted();
                    }
                    Err(error) => self.queue_failed(error),
                }
            }
            if !self.done.is_empty() {
                completions.append(&mut self.done);
                return Poll::Ready(());
            }
            if self.phase == VerbsPhase::Open
                && self.peer_activity.poll(cx, self.has_sent, self.has_received, tokio::time::sleep)
            {
                self.queue.push(None, PostedKind::Own, VerbsOp::Marker);
                changed = true;
            }
            if self.advance(cx) || changed {
                continue;
            }
            if self.phase == VerbsPhase::Closed {
                return Poll::Pending;
            }
            if !self.busy_poll.is_zero() && self.last_active.elapsed() < self.busy_poll {
                if !self.may_busy_poll {
                    // Let other tasks run first, then poll again.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                for _ in 0..BUSY_CHECKS {
                    if self.drain() {
                        break;
                    }
                    std::hint::spin_loop();
                }
                continue;
            }
            if waited_for == EventWait::Registered {
                return Poll::Pending;
            }
            match self.wait(cx) {
                Ok(EventWait::Again) => {}
                Ok(EventWait::Registered) => return Poll::Pending,
                Err(error) => self.queue_failed(error),
            }
        }
    }

    fn set_busy_poll(&mut self, may: bool) {
        self.may_busy_poll = may;
    }

    fn disconnect(&mut self) {
        if self.phase == VerbsPhase::Open {
            self.phase = VerbsPhase::Draining;
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

    fn reports_violations(&self) -> bool {
        !self.limits.iwarp
    }

    fn copied_payload_bytes(&self) -> u64 {
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
