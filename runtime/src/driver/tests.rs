use std::{
    sync::atomic::AtomicUsize,
    task::Wake,
    time::{Duration, Instant},
};

use super::{timer::Timer, *};
use crate::{
    engine::{CallId, Counters, Engine, Event, OutgoingCall, OutgoingReply, ReplyToken},
    memory::Share,
};

/// A connection that does as a test says: by itself nothing comes in, and no call is answered.
#[derive(Default)]
struct Scripted {
    share: Share,
    state: Arc<Mutex<Script>>,
}

/// The I/O of such a connection.
struct ScriptedIo {
    port: (),
}

#[derive(Default)]
struct Script {
    /// Something comes in whenever somebody looks.
    floods: bool,
    /// What comes in at the next look, once: the engine has no deadline any more.
    input: bool,
    taken: bool,
    /// The engine's deadline, and whether it was handled.
    due: Option<Instant>,
    handled: bool,
    /// How long the next look takes.
    slow: Option<Duration>,
    started: usize,
    /// This end has closed the connection.
    closing: bool,
    closed: bool,
}

impl Scripted {
    fn core(state: &Arc<Mutex<Script>>, slots: usize) -> Core<ScriptedIo, NoUpcalls> {
        Self::configured(state, slots, DriverConfig::default())
    }

    fn configured(state: &Arc<Mutex<Script>>, slots: usize, config: DriverConfig) -> Core<ScriptedIo, NoUpcalls> {
        let engine = Self { share: Share::default(), state: Arc::clone(state) };
        let io = ScriptedIo { port: () };
        Core::new(engine, io, NoUpcalls, Arc::new(Port::new(slots)), config)
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
    fn reply_error(&mut self, _token: ReplyToken) {}
    fn close_with(&mut self, _reason: CloseReason) {
        self.state().closing = true;
    }
    fn close_reason(&self) -> Option<&CloseReason> {
        None
    }
    fn lost(&mut self, _reason: DisconnectReason) {}
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.state().due
    }
    fn handle_timeout(&mut self, _now: Instant) {
        let mut state = self.state();
        (state.due, state.handled) = (None, true);
    }
    fn poll_work(&mut self, _port: &mut (), _now: Instant) {}
    fn poll_event(&mut self) -> Option<Event> {
        self.state().closed.then(|| Event::Closed(CloseReason::Disconnected(DisconnectReason::Remote)))
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn memory(&self) -> &Share {
        &self.share
    }
}

impl EngineIo for ScriptedIo {
    type Engine = Scripted;

    fn port(&mut self) -> &mut () {
        &mut self.port
    }
    fn poll(&mut self, engine: &mut Scripted, _cx: &mut Context<'_>, _others: bool) -> Poll<()> {
        let slow = engine.state().slow.take();
        if let Some(slow) = slow {
            std::thread::sleep(slow);
        }
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

fn flooded() -> Core<ScriptedIo, NoUpcalls> {
    Scripted::core(&Arc::new(Mutex::new(Script { floods: true, ..Script::default() })), 1)
}

/// A caller that has driven for as long as it may and is not polled again: the driver's task looks after the connection.
#[tokio::test]
async fn who_leads_may_not_come_to_it() {
    let mut core = flooded();
    core.prepare();
    let woken = Arc::new(Count::default());
    let task = Waker::from(Arc::clone(&woken));
    assert!(core.drive(&mut Context::from_waker(Waker::noop()), &task, Some(Slot(0))).is_pending());
    for _ in 0..1000 {
        if woken.0.load(Ordering::SeqCst) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody is woken");
}

/// Nobody leads before there is the timer that a leader's deadline needs: what a leader has been told of, the driver's task
/// leaves to it.
#[tokio::test]
async fn leads_when_there_is_a_timer() {
    let core = flooded();
    let shared = Arc::new(Shared::new(core));
    let held = shared.core.lock().unwrap();
    let task = std::thread::spawn({
        let (shared, runtime) = (Arc::clone(&shared), tokio::runtime::Handle::current());
        move || {
            let _within = runtime.enter();
            shared.poll(&mut Context::from_waker(Waker::noop())).is_pending()
        }
    });
    // It waits for the lock, or will.
    std::thread::sleep(Duration::from_millis(50));
    assert!(shared.port.task().is_none());
    drop(held);
    assert!(task.join().unwrap());
    assert!(shared.port.task().is_some());
}

/// A deadline that passes while a caller drives is seen to by the driver's task, although that caller leads.
#[test]
fn a_deadline_that_passes_while_a_caller_drives() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let state = Arc::new(Mutex::new(Script::default()));
    let core = Scripted::core(&state, 4);
    runtime.block_on(async {
        // Other timers of the same runtime, so that its clock goes on.
        tokio::spawn(async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let port = Arc::clone(core.port());
        let drive = spawn(core, tracing::Span::none());
        while port.task().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        {
            let mut state = state.lock().unwrap();
            state.due = Some(Timer::now() + Duration::from_millis(500));
            state.slow = Some(Duration::from_millis(50));
        }
        assert!(drive.try_lead(Slot(0), Waker::noop()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(state.lock().unwrap().handled, "2 s later the deadline has not been seen to");
    });
}

/// A call that the driver had taken from the queue, and not given to the engine, was not sent.
#[tokio::test]
async fn calls_that_the_engine_never_saw_were_not_sent() {
    let state = Arc::new(Mutex::new(Script { closed: true, ..Script::default() }));
    let mut core = Scripted::core(&state, 64);
    let port = Arc::clone(core.port());
    core.prepare();
    let slots: Vec<Slot> = (0..40)
        .map(|_| port.start(port.try_reserve().unwrap(), crate::driver::port::tests::call()).unwrap().0)
        .collect();
    assert!(core.drive(&mut Context::from_waker(Waker::noop()), Waker::noop(), None).is_ready());
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
    assert_eq!(unsent, 40 - started, "calls told to be unsent");
}

/// A connection with something due for so long that this end must have been away, and its core.
async fn away(input: bool) -> (Arc<Mutex<Script>>, Core<ScriptedIo, NoUpcalls>) {
    let due = Some(Timer::now());
    tokio::time::advance(2 * core::AWAY).await;
    let state = Arc::new(Mutex::new(Script { due, input, ..Script::default() }));
    let mut core = Scripted::core(&state, 1);
    core.prepare();
    (state, core)
}

fn drive(core: &mut Core<ScriptedIo, NoUpcalls>, task: &Waker) {
    assert!(core.drive(&mut Context::from_waker(Waker::noop()), task, None).is_pending());
}

/// What had come in before somebody looked is not late, however late that is.
#[tokio::test(start_paused = true)]
async fn what_is_there_is_not_late() {
    let (state, mut core) = away(true).await;
    drive(&mut core, Waker::noop());
    let state = state.lock().unwrap();
    assert!(state.taken && !state.handled);
}

/// Nor what the runtime hears of only after this end was polled again.
#[tokio::test(start_paused = true)]
async fn what_the_runtime_hears_of_a_little_later_is_not_late() {
    let (state, mut core) = away(false).await;
    drive(&mut core, Waker::noop());
    assert!(!state.lock().unwrap().handled, "as if nothing could come any more");
    state.lock().unwrap().input = true;
    drive(&mut core, Waker::noop());
    tokio::time::advance(core::CATCH_UP).await;
    drive(&mut core, Waker::noop());
    assert!(!state.lock().unwrap().handled);
}

/// A peer that has sent nothing is found out all the same, and the driver's task woken for it.
#[tokio::test(start_paused = true)]
async fn what_is_late_is_late_for_an_end_that_was_away() {
    let (state, mut core) = away(false).await;
    let woken = Arc::new(Count::default());
    let task = Waker::from(Arc::clone(&woken));
    drive(&mut core, &task);
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    tokio::time::sleep(2 * core::CATCH_UP).await;
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    drive(&mut core, &task);
    assert!(state.lock().unwrap().handled);
}

/// A connection that was idle while this end was away is closed, but not with a call that has come in meanwhile.
#[tokio::test(start_paused = true)]
async fn what_is_there_ends_idleness() {
    for input in [false, true] {
        let state = Arc::new(Mutex::new(Script { input, ..Script::default() }));
        let idle = DriverConfig { idle_timeout: Some(core::AWAY), ..DriverConfig::default() };
        let mut core = Scripted::configured(&state, 1, idle);
        core.prepare();
        tokio::time::advance(3 * core::AWAY).await;
        drive(&mut core, Waker::noop());
        assert!(!state.lock().unwrap().closing);
        tokio::time::advance(core::CATCH_UP).await;
        drive(&mut core, Waker::noop());
        assert_eq!(state.lock().unwrap().closing, !input);
    }
}
