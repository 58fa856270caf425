use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use crate::{
    driver::{
        catch_up::{CATCH_UP, SUSPENDED},
        command::ResultSlot,
        core::{DriverConfig, DriverCore},
        inbound_calls::NoInboundCalls,
        io::EngineIo,
        port::DriverPort,
        timer::Timer,
    },
    engine::{
        CallId, CloseReason, ConnectionCounters, Engine, EngineEvent, OutgoingCall, OutgoingReply, ReplyToken,
        TransportError,
    },
    memory::MemoryShare,
    provider::DisconnectReason,
};

/// An engine that follows the test's script. By default, no input arrives, and no call gets a reply.
#[derive(Default)]
struct Scripted {
    share: MemoryShare,
    state: Arc<Mutex<Script>>,
}

/// The I/O of a scripted connection.
struct ScriptedIo {
    port: (),
}

#[derive(Default)]
struct Script {
    /// `true` if every poll finds input.
    floods: bool,
    /// `true` if the next poll finds input. Handling the input clears the engine's deadline.
    input: bool,
    taken: bool,
    /// The call whose reply is the next input.
    received: Option<CallId>,
    /// The engine's deadline. Handling the deadline sets `handled`.
    due: Option<Instant>,
    handled: bool,
    started: usize,
    /// Calls that have finished and were not reported to the driver yet. `replies` counts the reported calls.
    finished: Vec<CallId>,
    replies: u64,
    /// The port whose first slot must have no result when the counters are read next.
    watched: Option<Arc<DriverPort>>,
    /// `true` once the driver has closed the connection.
    closing: bool,
    closed: bool,
}

impl Scripted {
    fn core(state: &Arc<Mutex<Script>>, slots: usize) -> DriverCore<ScriptedIo, NoInboundCalls> {
        Self::configured(state, slots, DriverConfig::default())
    }

    fn configured(
        state: &Arc<Mutex<Script>>,
        slots: usize,
        config: DriverConfig,
    ) -> DriverCore<ScriptedIo, NoInboundCalls> {
        let engine = Self { share: MemoryShare::default(), state: Arc::clone(state) };
        DriverCore::new(engine, ScriptedIo { port: () }, NoInboundCalls, Arc::new(DriverPort::new(slots)), config)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Script> {
        self.state.lock().unwrap()
    }
}

impl Engine for Scripted {
    type Port = ();

    fn start_call(&mut self, _call: OutgoingCall) -> CallId {
        let mut state = self.state();
        state.started += 1;
        CallId(state.started as u64)
    }
    fn cancel_call(&mut self, _id: CallId, _now: Instant) {}
    fn reply(&mut self, _token: ReplyToken, _reply: OutgoingReply) {}
    fn reply_error(&mut self, _token: ReplyToken, _error: TransportError) {}
    fn close_with(&mut self, _reason: CloseReason) {
        self.state().closing = true;
    }
    fn close_reason(&self) -> Option<&CloseReason> {
        None
    }
    fn connection_lost(&mut self, _reason: DisconnectReason) {}
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.state().due
    }
    fn handle_timeout(&mut self, _now: Instant) {
        let mut state = self.state();
        (state.due, state.handled) = (None, true);
    }
    fn poll_work(&mut self, _port: &mut (), _now: Instant) {}
    fn poll_event(&mut self) -> Option<EngineEvent> {
        let mut state = self.state();
        if let Some(id) = state.finished.pop() {
            state.replies += 1;
            return Some(EngineEvent::CallFinished { id, result: super::port::reply() });
        }
        state.closed.then(|| EngineEvent::Closed(CloseReason::Disconnected(DisconnectReason::Remote)))
    }
    fn copy_counters(&self, counters: &mut ConnectionCounters) {
        let mut state = self.state();
        if let Some(port) = state.watched.take() {
            let result = port.poll_result(ResultSlot(0), &mut Context::from_waker(Waker::noop()));
            assert!(result.is_pending(), "a result was delivered before the counters that include it");
        }
        counters.replies_received = state.replies;
    }
    fn memory(&self) -> &MemoryShare {
        &self.share
    }
}

impl EngineIo for ScriptedIo {
    type Engine = Scripted;

    fn port(&mut self) -> &mut () {
        &mut self.port
    }
    fn poll(&mut self, engine: &mut Scripted, _cx: &mut Context<'_>, _others: bool, _is_first: bool) -> Poll<()> {
        if self.has_input(engine) { Poll::Ready(()) } else { Poll::Pending }
    }
    fn has_input(&self, engine: &Scripted) -> bool {
        let state = engine.state();
        state.floods || state.input
    }
    fn handle_input(&mut self, engine: &mut Scripted, _most: usize) {
        let mut state = engine.state();
        if std::mem::take(&mut state.input) {
            (state.due, state.taken) = (None, true);
            let received = state.received.take();
            state.finished.extend(received);
        }
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A connection with endless input yields to other tasks, and wakes its own task to be polled again.
#[tokio::test]
async fn endless_input_yields_to_other_tasks() {
    let mut core = Scripted::core(&Arc::new(Mutex::new(Script { floods: true, ..Script::default() })), 1);
    let woken = Arc::new(Count::default());
    poll(&mut core, &Waker::from(Arc::clone(&woken)));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}

/// A call that the driver took from the queue but did not start on the engine is reported as unsent.
#[tokio::test]
async fn calls_not_started_are_reported_as_unsent() {
    let state = Arc::new(Mutex::new(Script { closed: true, ..Script::default() }));
    let mut core = Scripted::core(&state, 64);
    let port = Arc::clone(core.port());
    let slots: Vec<ResultSlot> =
        (0..40).map(|_| port.start(port.try_reserve().unwrap(), super::port::call(), Waker::noop()).unwrap()).collect();
    assert!(core.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(core);
    let started = state.lock().unwrap().started;
    assert_eq!(started, 32);
    let mut unsent = 0;
    for slot in slots {
        match port.poll_result(slot, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(crate::engine::CallFailure::Closed { sent, .. })) => unsent += usize::from(!sent),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(unsent, 40 - started, "calls reported as unsent");
}

/// A caller that has its result finds it in the counters: they are published before the result is delivered.
#[tokio::test]
async fn counters_are_published_before_results() {
    let state = Arc::new(Mutex::new(Script::default()));
    let mut core = Scripted::core(&state, 1);
    let port = Arc::clone(core.port());
    let slot = port.start(port.try_reserve().unwrap(), super::port::call(), Waker::noop()).unwrap();
    poll(&mut core, Waker::noop());
    {
        let mut state = state.lock().unwrap();
        (state.finished, state.watched, state.input) = (vec![CallId(1)], Some(Arc::clone(&port)), true);
    }
    poll(&mut core, Waker::noop());
    assert!(port.poll_result(slot, &mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(port.counters().replies_received, 1);
}

/// Returns a connection whose deadline passed so long ago that the process must have been suspended. `input` is `true`
/// if input arrived during the suspension.
async fn suspended(input: bool) -> (Arc<Mutex<Script>>, DriverCore<ScriptedIo, NoInboundCalls>) {
    let due = Some(Timer::now());
    tokio::time::advance(2 * SUSPENDED).await;
    let state = Arc::new(Mutex::new(Script { due, input, ..Script::default() }));
    let core = Scripted::core(&state, 1);
    (state, core)
}

fn poll(core: &mut DriverCore<ScriptedIo, NoInboundCalls>, task: &Waker) {
    assert!(core.poll(&mut Context::from_waker(task)).is_pending());
}

/// Input that arrived during a suspension is processed before an overdue deadline.
#[tokio::test(start_paused = true)]
async fn input_is_processed_before_an_overdue_deadline() {
    let (state, mut core) = suspended(true).await;
    poll(&mut core, Waker::noop());
    let state = state.lock().unwrap();
    assert!(state.taken && !state.handled);
}

/// Input that the runtime reports shortly after a suspension is processed before an overdue deadline as well.
#[tokio::test(start_paused = true)]
async fn input_reported_after_a_suspension_is_not_late() {
    let (state, mut core) = suspended(false).await;
    poll(&mut core, Waker::noop());
    assert!(!state.lock().unwrap().handled, "the deadline was handled before input could be reported");
    state.lock().unwrap().input = true;
    poll(&mut core, Waker::noop());
    tokio::time::advance(CATCH_UP).await;
    poll(&mut core, Waker::noop());
    assert!(!state.lock().unwrap().handled);
}

/// A process that is suspended again during the catch-up delay gets another delay.
#[tokio::test(start_paused = true)]
async fn a_suspension_during_the_catch_up_delay() {
    let (state, mut core) = suspended(false).await;
    poll(&mut core, Waker::noop());
    tokio::time::advance(2 * SUSPENDED).await;
    poll(&mut core, Waker::noop());
    assert!(!state.lock().unwrap().handled, "the deadline was handled before input could be reported");
    tokio::time::advance(CATCH_UP).await;
    poll(&mut core, Waker::noop());
    assert!(state.lock().unwrap().handled);
}

/// An overdue deadline is handled after the catch-up delay if no input has arrived. The driver's task is woken at the
/// end of the delay.
#[tokio::test(start_paused = true)]
async fn a_deadline_is_handled_after_the_catch_up_delay() {
    let (state, mut core) = suspended(false).await;
    let woken = Arc::new(Count::default());
    let task = Waker::from(Arc::clone(&woken));
    poll(&mut core, &task);
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    tokio::time::sleep(2 * CATCH_UP).await;
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    poll(&mut core, &task);
    assert!(state.lock().unwrap().handled);
}

/// An idle connection is closed after a suspension, unless a reply arrived during the suspension.
#[tokio::test(start_paused = true)]
async fn input_during_a_suspension_ends_idleness() {
    for input in [false, true] {
        let state = Arc::new(Mutex::new(Script { input, received: Some(CallId(9)), ..Script::default() }));
        let idle = DriverConfig { idle_timeout: Some(SUSPENDED), ..DriverConfig::default() };
        let mut core = Scripted::configured(&state, 1, idle);
        tokio::time::advance(3 * SUSPENDED).await;
        poll(&mut core, Waker::noop());
        assert!(!state.lock().unwrap().closing);
        tokio::time::advance(CATCH_UP).await;
        poll(&mut core, Waker::noop());
        assert_eq!(state.lock().unwrap().closing, !input);
    }
}
