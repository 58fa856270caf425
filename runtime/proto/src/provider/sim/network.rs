//! The network between two simulated queue pairs. It performs one step at a time.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{SimConfig, SimEnd, SimEndConfig, SimFault, registry::SimRegistry, rng::Rng};
use crate::{
    memory::{MessageBuf, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, Region, RegisterError, RegisterableMemory, RemoteMemory,
        WorkError, WorkRequest, WrId,
    },
};

/// An RDMA Read in flight.
#[derive(Debug)]
struct SimRead {
    id: WrId,
    sink: MemoryHandle,
    sink_offset: u64,
    remote: RemoteMemory,
    len: u32,
}

#[derive(Debug)]
struct NetworkSide {
    config: SimEndConfig,
    registry: SimRegistry,
    requests: VecDeque<WorkRequest>,
    reading: VecDeque<SimRead>,
    receives: usize,
    completions: VecDeque<Completion>,
    waker: Option<Waker>,
    /// `true` if the connection is closed once all requests have been sent.
    closing: bool,
    stalled: bool,
    up: bool,
    sends: u64,
    registrations: u64,
    invalidations: u64,
}

#[derive(Debug)]
struct NetworkInner {
    sides: [NetworkSide; 2],
    faults: Vec<SimFault>,
    rng: Rng,
    steps: u64,
    stepped: bool,
    /// `true` if nothing passes between the sides. Neither side then learns that the other has ended.
    isolated: bool,
    /// The waker of the task that waits until a step is possible.
    stepper: Option<Waker>,
}

/// A possible next step.
#[derive(Debug, Clone, Copy)]
enum NetworkStep {
    /// The first queued work request of this side is executed.
    Request(SimEnd),
    /// The peer responds to the oldest RDMA Read of this side.
    Response(SimEnd),
    /// This side closes the connection.
    Close(SimEnd),
}

/// The network between two simulated queue pairs. Clones refer to the same network.
#[derive(Clone)]
pub struct SimNetwork(Arc<Mutex<NetworkInner>>);

impl fmt::Debug for SimNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Network").field("steps", &inner.steps).field("up", &inner.is_up()).finish()
    }
}

impl SimNetwork {
    pub(super) fn new(config: SimConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let sides = config.ends.map(|end| NetworkSide {
            receives: end.receives,
            config: end,
            registry: SimRegistry::new(rng.next()),
            requests: VecDeque::new(),
            reading: VecDeque::new(),
            completions: VecDeque::new(),
            waker: None,
            closing: false,
            stalled: false,
            up: true,
            sends: 0,
            registrations: 0,
            invalidations: 0,
        });
        Self(Arc::new(Mutex::new(NetworkInner {
            sides,
            faults: config.faults,
            rng,
            steps: 0,
            stepped: config.stepped,
            isolated: false,
            stepper: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, NetworkInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs one randomly chosen step. Returns `false` if no step is possible.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// Waits until a step is possible, and then returns `true`. Only the last task that waits is woken. Returns `false`
    /// when the connection has ended for both sides.
    pub fn poll_step(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut inner = self.lock();
        if !inner.sides.iter().any(|side| side.up) {
            return Poll::Ready(false);
        }
        if inner.is_up() && !inner.possible().is_empty() {
            return Poll::Ready(true);
        }
        inner.stepper = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns the number of steps performed so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Breaks the connection now. If the sides are isolated from each other, only side A learns of it.
    pub fn cut(&self) {
        self.lock().disconnect_with_error("cut");
    }

    /// Suspends the execution of this side's work requests if `stalled` is `true`, as if its peer had stopped reading.
    /// Otherwise resumes it.
    pub fn stall(&self, end: SimEnd, stalled: bool) {
        let mut inner = self.lock();
        inner.sides[end.index()].stalled = stalled;
        inner.wake_stepper();
    }

    /// Separates the sides if `isolated` is `true`, as if the network between them carried nothing. Otherwise reunites
    /// them. A side that ends while the sides are separated does not tell the other side, which learns of the end when
    /// they are reunited.
    pub fn isolate(&self, isolated: bool) {
        let mut inner = self.lock();
        inner.isolated = isolated;
        if !isolated {
            for end in [SimEnd::A, SimEnd::B] {
                if !inner.side(end.other()).up {
                    inner.end_side(end, DisconnectReason::Remote);
                }
            }
        }
        inner.wake_stepper();
    }

    /// Refuses the next registration of this side.
    pub fn refuse_registration(&self, end: SimEnd) {
        let mut inner = self.lock();
        let nth = inner.side(end).registrations;
        inner.faults.push(SimFault::RefuseRegistration { end, nth });
    }

    /// Makes the next invalidation of this side fail, if the connection has not ended by then. The memory stays
    /// registered until the connection ends.
    pub fn refuse_invalidation(&self, end: SimEnd) {
        let mut inner = self.lock();
        let nth = inner.side(end).invalidations;
        inner.faults.push(SimFault::RefuseInvalidation { end, nth });
    }

    /// Returns `true` until the connection has ended for both sides.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.lock().sides.iter().any(|side| side.up)
    }

    /// Returns the number of this side's regions that are currently registered.
    #[must_use]
    pub fn registered(&self, end: SimEnd) -> usize {
        self.lock().sides[end.index()].registry.len()
    }

    /// Returns the number of this side's posted Receives that no message has consumed.
    #[must_use]
    pub fn receives(&self, end: SimEnd) -> usize {
        self.lock().sides[end.index()].receives
    }

    pub(super) fn is_up(&self, end: SimEnd) -> bool {
        self.lock().sides[end.index()].up
    }

    pub(super) fn register(
        &self,
        end: SimEnd,
        memory: RegisterableMemory,
        access: Access,
    ) -> Result<Region, RegisterError> {
        let mut inner = self.lock();
        let side = &mut inner.sides[end.index()];
        let up = side.up;
        let nth = side.registrations;
        side.registrations += 1;
        let refused = inner.faults.contains(&SimFault::RefuseRegistration { end, nth });
        let reason = match SimRegistry::refusal(&memory, access) {
            Some(reason) => reason,
            None if !up => "connection has ended",
            None if refused => "out of handles",
            None => return Ok(inner.sides[end.index()].registry.register(memory, access)),
        };
        Err(RegisterError { source: reason.into(), memory })
    }

    pub(super) fn post(&self, end: SimEnd, request: WorkRequest) {
        let mut inner = self.lock();
        inner.sides[end.index()].requests.push_back(request);
        if !inner.sides[end.index()].up {
            inner.flush(end);
        }
        inner.wake_stepper();
    }

    pub(super) fn post_receives(&self, end: SimEnd, count: usize) {
        self.lock().sides[end.index()].receives += count;
    }

    /// Performs all pending work, unless the network is stepped. Appends the completions and returns `true`, or stores
    /// the waker and returns `false` if there are no completions.
    pub(super) fn poll(&self, end: SimEnd, waker: &Waker, completions: &mut Vec<Completion>) -> bool {
        let mut inner = self.lock();
        if !inner.stepped {
            while inner.step() {}
        }
        let side = &mut inner.sides[end.index()];
        if side.completions.is_empty() {
            side.waker = Some(waker.clone());
            return false;
        }
        completions.extend(side.completions.drain(..));
        true
    }

    pub(super) fn disconnect(&self, end: SimEnd) {
        let mut inner = self.lock();
        inner.sides[end.index()].closing = true;
        if inner.isolated {
            inner.end_side(end, DisconnectReason::Local);
        }
        inner.wake_stepper();
    }

    /// Ends the connection because a queue pair was dropped.
    pub(super) fn drop_queue_pair(&self, end: SimEnd) {
        let mut inner = self.lock();
        // Its work requests and memory are dropped with it.
        inner.sides[end.index()].requests.clear();
        inner.down(end, DisconnectReason::Local, DisconnectReason::Remote);
        inner.sides[end.index()].waker = None;
    }

    pub(super) fn with_config<T>(&self, end: SimEnd, read: impl FnOnce(&SimEndConfig) -> T) -> T {
        read(&self.lock().sides[end.index()].config)
    }
}

impl NetworkInner {
    fn side(&mut self, end: SimEnd) -> &mut NetworkSide {
        &mut self.sides[end.index()]
    }

    /// Returns `true` while both sides are connected.
    fn is_up(&self) -> bool {
        self.sides.iter().all(|side| side.up)
    }

    fn wake_stepper(&mut self) {
        if let Some(stepper) = self.stepper.take() {
            stepper.wake();
        }
    }

    fn complete(&mut self, end: SimEnd, completion: Completion) {
        let side = self.side(end);
        side.completions.push_back(completion);
        if let Some(waker) = side.waker.take() {
            waker.wake();
        }
    }

    fn possible(&self) -> Vec<NetworkStep> {
        let mut steps = Vec::new();
        if self.isolated {
            return steps;
        }
        for end in [SimEnd::A, SimEnd::B] {
            let side = &self.sides[end.index()];
            match side.requests.front() {
                _ if side.stalled => {}
                // Memory is not returned while an RDMA Read into it is in flight.
                Some(WorkRequest::Invalidate { handle, .. })
                    if side.reading.iter().any(|reading| reading.sink == *handle) => {}
                // An RDMA Read that exceeds the limit delays later requests.
                Some(WorkRequest::Read { .. }) if side.reading.len() >= side.config.max_reads as usize => {}
                Some(_) => steps.push(NetworkStep::Request(end)),
                None if side.closing && side.reading.is_empty() => steps.push(NetworkStep::Close(end)),
                None => {}
            }
            if !side.reading.is_empty() {
                steps.push(NetworkStep::Response(end));
            }
        }
        steps
    }

    fn step(&mut self) -> bool {
        if !self.is_up() {
            return false;
        }
        let steps = self.possible();
        if steps.is_empty() {
            return false;
        }
        let now = self.steps;
        self.steps += 1;
        if self.faults.contains(&SimFault::Disconnect(now)) {
            self.disconnect_with_error("simulated loss");
            return true;
        }
        let chosen = self.rng.below(steps.len());
        match steps[chosen] {
            NetworkStep::Request(end) => {
                if let Some(request) = self.side(end).requests.pop_front() {
                    self.carry_out(end, request);
                }
            }
            NetworkStep::Response(end) => {
                if let Some(reading) = self.side(end).reading.pop_front() {
                    self.respond(end, reading);
                }
            }
            NetworkStep::Close(end) => self.down(end, DisconnectReason::Local, DisconnectReason::Remote),
        }
        true
    }

    fn carry_out(&mut self, end: SimEnd, request: WorkRequest) {
        let max = self.side(end).config.max_transfer;
        match request {
            WorkRequest::Invalidate { id, handle } => self.invalidate(end, id, handle),
            WorkRequest::Send { id, message, invalidate, signaled, .. } => {
                if self.send(end, id, message, invalidate) && signaled {
                    self.complete(end, Completion::Sent { id });
                }
            }
            WorkRequest::Write { id, source, remote } => {
                if source.len() > max as usize {
                    return self.local_error(end, id, "transfer exceeds the maximum length");
                }
                match self.side(end.other()).registry.write(remote, &source) {
                    Ok(()) => self.complete(end, Completion::Written { id }),
                    Err(what) => self.remote_access_error(end, id, what),
                }
            }
            WorkRequest::Read { id, sink, sink_offset, remote, len } => {
                if len > max {
                    return self.local_error(end, id, "transfer exceeds the maximum length");
                }
                self.side(end).reading.push_back(SimRead { id, sink, sink_offset, remote, len });
            }
        }
    }

    fn respond(&mut self, end: SimEnd, reading: SimRead) {
        let data = match self.side(end.other()).registry.read(reading.remote, reading.len) {
            Ok(data) => data,
            Err(what) => return self.remote_access_error(end, reading.id, what),
        };
        match self.side(end).registry.place(reading.sink, reading.sink_offset, &data) {
            Ok(()) => self.complete(end, Completion::Read { id: reading.id }),
            Err(what) => self.local_error(end, reading.id, &what),
        }
    }

    /// Delivers a message to the peer, altered by the simulated faults. Returns `true` on success, and otherwise ends
    /// the connection.
    fn send(&mut self, end: SimEnd, id: WrId, message: MessageBuf, invalidate: Option<MemoryHandle>) -> bool {
        let nth = self.side(end).sends;
        self.side(end).sends += 1;
        let mut bytes = message.to_vec();
        for fault in &self.faults {
            match *fault {
                SimFault::Truncate { end: who, nth: n, len } if (who, n) == (end, nth) => bytes.truncate(len),
                SimFault::Garble { end: who, nth: n, at, mask } if (who, n) == (end, nth) => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= mask;
                    }
                }
                _ => {}
            }
        }
        let peer = self.side(end.other());
        if peer.receives == 0 {
            self.disconnect_with_error("no Receive was posted for a Send");
            return false;
        }
        if bytes.len() > peer.config.receive_size {
            self.disconnect_with_error("a Send was longer than the Receive");
            return false;
        }
        if let Some(handle) = invalidate
            && !(peer.config.remote_invalidation && peer.registry.invalidate(handle))
        {
            self.remote_access_error(end, id, format!("{handle:?} cannot be invalidated"));
            return false;
        }
        peer.receives -= 1;
        let mut memory: PayloadBuf = peer.config.pool.alloc(peer.config.receive_size);
        memory[..bytes.len()].copy_from_slice(&bytes);
        let message = MessageBuf::received(memory, bytes.len());
        self.complete(end.other(), Completion::Received { message, invalidated: invalidate });
        true
    }

    fn invalidate(&mut self, end: SimEnd, id: WrId, handle: MemoryHandle) {
        let nth = self.side(end).invalidations;
        self.side(end).invalidations += 1;
        // After the end of the connection, invalidation always works.
        if self.side(end).up && self.faults.contains(&SimFault::RefuseInvalidation { end, nth }) {
            self.complete(end, Completion::Failed { id, error: WorkError::Local("invalidation failed".into()) });
            self.side(end).registry.keep_after_failed_invalidation(handle);
            return;
        }
        let completion = match self.side(end).registry.remove(handle) {
            Some(memory) => Completion::Invalidated { id, memory },
            None => Completion::Failed { id, error: WorkError::Local(format!("{handle:?} is not registered")) },
        };
        self.complete(end, completion);
    }

    fn local_error(&mut self, end: SimEnd, id: WrId, what: &str) {
        self.complete(end, Completion::Failed { id, error: WorkError::Local(what.into()) });
        self.down(end, DisconnectReason::Local, DisconnectReason::Remote);
    }

    fn remote_access_error(&mut self, end: SimEnd, id: WrId, what: String) {
        self.complete(end, Completion::Failed { id, error: WorkError::RemoteAccess(what.clone()) });
        self.down(end, DisconnectReason::RemoteAccess(what.clone()), DisconnectReason::PeerViolation(what));
    }

    fn disconnect_with_error(&mut self, why: &str) {
        let reason = DisconnectReason::Transport(why.into());
        self.down(SimEnd::A, reason.clone(), reason);
    }

    /// Ends the connection. `end` reports the reason `here`. Its peer reports the reason `there`, unless the sides are
    /// isolated from each other.
    fn down(&mut self, end: SimEnd, here: DisconnectReason, there: DisconnectReason) {
        self.end_side(end, here);
        if !self.isolated {
            self.end_side(end.other(), there);
        }
    }

    /// Ends the connection for one side: flushes its requests, and reports the reason. Does nothing if the connection
    /// has already ended for this side.
    fn end_side(&mut self, end: SimEnd, reason: DisconnectReason) {
        if !std::mem::replace(&mut self.side(end).up, false) {
            return;
        }
        for reading in std::mem::take(&mut self.side(end).reading) {
            self.complete(end, Completion::Failed { id: reading.id, error: WorkError::Flushed });
        }
        self.flush(end);
        self.side(end).registry.drop_stranded();
        self.complete(end, Completion::Disconnected { reason });
        self.wake_stepper();
    }

    /// Flushes the requests posted on a connection that has ended. Only invalidation still works.
    fn flush(&mut self, end: SimEnd) {
        for request in std::mem::take(&mut self.side(end).requests) {
            match request {
                WorkRequest::Invalidate { id, handle } => self.invalidate(end, id, handle),
                request => self.complete(end, request.completion(Err(WorkError::Flushed))),
            }
        }
    }
}
