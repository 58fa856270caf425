//! Tests of threads that share a connection, in random interleavings chosen by `shuttle`.
//!
//! This module compiles the port a second time, with `shuttle`'s primitives in place of the standard library's. The
//! connection is a model of [`DriverCore`](crate::driver::core::DriverCore) without timers: it takes commands, sends
//! calls to a peer in another thread, and delivers the replies. A lost wake-up ends in a deadlock, which `shuttle`
//! reports with the schedule that led to it.

// The module `port` is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, dead_code)]

#[path = "../../pending.rs"]
mod pending;
#[path = "../../port.rs"]
mod port;

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use shuttle::{
    future::block_on,
    sync::{Mutex, mpsc},
    thread,
};

use self::{pending::PendingCall, port::DriverPort};
use crate::{
    driver::{
        command::{self, CallResult, CommandQueue, DriverCommand, ResultSlot},
        formats,
    },
    engine::{CallFailure, CloseReason, IncomingReply, MessageFault, MessagePayload, OutgoingCall},
    memory::{MessageBuf, Output as _},
    provider::DisconnectReason,
    sync::model::{self as sync, check, give_up},
};

/// The input from the peer.
#[derive(Default)]
struct Inbound {
    /// The numbers of the calls that have a reply.
    replies: VecDeque<u8>,
    is_closed: bool,
    /// The waker for the next input.
    waker: Option<Waker>,
}

impl Inbound {
    fn arrive(inbound: &Mutex<Self>, change: impl FnOnce(&mut Self)) {
        let mut inbound = inbound.lock().unwrap();
        change(&mut inbound);
        let waker = inbound.waker.take();
        drop(inbound);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A connection to a peer in another thread.
struct Model {
    port: Arc<DriverPort>,
    commands: CommandQueue,
    in_flight: Vec<(u8, ResultSlot)>,
    /// Calls on their way to the peer.
    outbound: mpsc::Sender<u8>,
    inbound: Arc<Mutex<Inbound>>,
}

impl Model {
    fn take_commands(&mut self, wakers: &mut Vec<Waker>) -> bool {
        self.port.take(&mut self.commands);
        while let Some(command) = self.commands.pop() {
            match command {
                DriverCommand::Start { slot } => {
                    let call = self.commands.next_call().unwrap();
                    let number = number_of(&call.message);
                    self.in_flight.push((number, slot));
                    self.outbound.send(number).ok();
                }
                DriverCommand::Cancel { slot } => {
                    // A call ends once, with its reply or with its cancellation.
                    if let Some(at) = self.in_flight.iter().position(|(_, other)| *other == slot) {
                        self.in_flight.remove(at);
                        let cancelled = Err(CallFailure::BadReply(MessageFault::NotAReply));
                        self.port.deliver(&mut vec![(slot, cancelled)], wakers);
                    }
                }
                _ => return false,
            }
        }
        true
    }

    /// Polls the connection in its task, with the steps of `DriverCore::poll`.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.port.set_task(cx.waker());
        let mut wakers = Vec::new();
        loop {
            let is_open = self.take_commands(&mut wakers);
            wakers.drain(..).for_each(Waker::wake);
            let (replies, is_closed) = {
                let mut inbound = self.inbound.lock().unwrap();
                inbound.waker = Some(cx.waker().clone());
                (std::mem::take(&mut inbound.replies), inbound.is_closed)
            };
            if !is_open || is_closed {
                self.port.close(&CloseReason::Disconnected(DisconnectReason::Remote));
                return Poll::Ready(());
            }
            if replies.is_empty() {
                return Poll::Pending;
            }
            let mut results = Vec::new();
            for number in replies {
                // A missing call was cancelled before.
                let Some(at) = self.in_flight.iter().position(|(other, _)| *other == number) else { continue };
                let (_, slot) = self.in_flight.remove(at);
                results.push((slot, reply(number)));
            }
            self.port.deliver(&mut results, &mut wakers);
            wakers.drain(..).for_each(Waker::wake);
        }
    }
}

fn number_of(message: &MessageBuf) -> u8 {
    message.first().copied().unwrap()
}

fn numbered(number: u8) -> MessageBuf {
    let mut message = MessageBuf::new(vec![0; 8].into(), 0);
    message.append(&[number]);
    message
}

fn call(number: u8) -> OutgoingCall {
    OutgoingCall { message: numbered(number), ..super::port::call() }
}

fn reply(number: u8) -> CallResult {
    super::port::reply().map(|reply| IncomingReply { payload: MessagePayload::Inline(numbered(number)), ..reply })
}

/// A connection, its task and its peer.
struct Setup {
    port: Arc<DriverPort>,
    task: thread::JoinHandle<()>,
    peer: thread::JoinHandle<()>,
}

impl Setup {
    /// Creates a connection for `slots` calls. The peer closes it instead of replying to the call `closes_at`.
    fn new(slots: usize, closes_at: Option<u8>) -> Self {
        let port = Arc::new(DriverPort::new(slots));
        let inbound = Arc::<Mutex<Inbound>>::default();
        let (outbound, calls) = mpsc::channel();
        let mut model = Model {
            port: Arc::clone(&port),
            commands: CommandQueue::default(),
            in_flight: Vec::new(),
            outbound,
            inbound: Arc::clone(&inbound),
        };
        let task = thread::spawn(move || block_on(poll_fn(move |cx| model.poll(cx))));
        let peer = thread::spawn(move || {
            for number in calls {
                if closes_at == Some(number) {
                    return Inbound::arrive(&inbound, |inbound| inbound.is_closed = true);
                }
                Inbound::arrive(&inbound, |inbound| inbound.replies.push_back(number));
            }
        });
        Self { port, task, peer }
    }

    fn caller(&self) -> Caller {
        Caller(Arc::clone(&self.port))
    }

    /// Disconnects, and waits for the task and the peer.
    fn end(self) {
        self.port.send(DriverCommand::Disconnect);
        self.task.join().unwrap();
        self.peer.join().unwrap();
        assert!(self.port.is_closed());
    }
}

struct Caller(Arc<DriverPort>);

impl Caller {
    async fn start(&self, number: u8) -> Result<PendingCall<'_>, CallFailure> {
        let permit = self.0.reserve().await?;
        let mut permit = Some(permit);
        poll_fn(|cx| Poll::Ready(PendingCall::start(&self.0, permit.take().unwrap(), call(number), cx))).await
    }

    /// Makes a call and returns the number in its reply.
    async fn call(&self, number: u8) -> Result<u8, CallFailure> {
        let reply = self.start(number).await?.await?;
        let MessagePayload::Inline(message) = &reply.payload else { panic!("a long reply") };
        Ok(number_of(message))
    }

    /// Makes the calls `numbers` one after the other in a new thread, and checks their replies.
    fn calls(self, numbers: std::ops::Range<u8>) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            for number in numbers {
                let answered = block_on(self.call(number)).expect("the call has a reply");
                assert_eq!(answered, number, "got the reply to another call");
            }
        })
    }

    /// Makes a call in a new thread, polls it up to `polls` times, and drops it.
    fn gives_up(self, number: u8, polls: usize) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            block_on(async {
                let pending = self.start(number).await.expect("the connection is open");
                give_up(pending, polls).await;
            });
        })
    }
}

/// Every caller gets the reply to its own call, alone or concurrently with other callers, in reused slots.
#[test]
fn every_caller_gets_its_reply() {
    check(|| {
        let setup = Setup::new(2, None);
        let callers = [setup.caller().calls(0..2), setup.caller().calls(10..12), setup.caller().calls(20..21)];
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        setup.end();
    });
}

/// Dropped calls, polled or not, do not affect other callers.
#[test]
fn callers_give_up() {
    check(|| {
        let setup = Setup::new(2, None);
        let callers = [
            setup.caller().gives_up(0, 0),
            setup.caller().gives_up(1, 1),
            setup.caller().gives_up(2, 2),
            setup.caller().calls(10..12),
        ];
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        setup.end();
    });
}

/// When the peer closes the connection, calls in flight and later calls fail.
#[test]
fn the_peer_closes() {
    check(|| {
        let setup = Setup::new(2, Some(1));
        let callers = [0, 10].map(|first| {
            let caller = setup.caller();
            thread::spawn(move || {
                let results = [first, first + 1, first + 2].map(|number| (number, block_on(caller.call(number))));
                for (number, result) in &results {
                    match result {
                        Ok(answered) => assert_eq!(answered, number),
                        Err(failure) => assert!(matches!(failure, CallFailure::Closed { .. }), "{failure:?}"),
                    }
                }
                results.map(|(_, result)| result.is_ok())
            })
        });
        let [first, second] = callers.map(|caller| caller.join().unwrap());
        assert_eq!(first, [true, false, false]);
        assert!(second.is_sorted_by(|before, after| before >= after), "a call succeeded after the close: {second:?}");
        setup.end();
    });
}

/// The close of the connection wakes the tasks that wait for it.
#[test]
fn waits_for_the_end() {
    check(|| {
        let setup = Setup::new(1, Some(0));
        let port = Arc::clone(&setup.port);
        let waiting = thread::spawn(move || block_on(port.closed()));
        assert!(block_on(setup.caller().call(0)).is_err());
        assert_eq!(waiting.join().unwrap(), CloseReason::Disconnected(DisconnectReason::Remote));
        setup.end();
    });
}
