use std::{
    future::Future as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::{
    driver::{
        command::{CallResult, CommandQueue, DriverCommand, ResultSlot},
        port::DriverPort,
    },
    engine::{CallFailure, CloseReason, IncomingReply, MessageFormat, MessagePayload, OutgoingCall, ReplyResources},
    memory::MessageBuf,
    provider::DisconnectReason,
};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn call() -> OutgoingCall {
    OutgoingCall {
        message: MessageBuf::new(vec![0; 64].into(), 0),
        reduced: Default::default(),
        reply: ReplyResources::default(),
        deadline: None,
        policy: Default::default(),
    }
}

pub(super) fn reply() -> CallResult {
    let payload = MessagePayload::Inline(MessageBuf::new(vec![0; 64].into(), 0));
    Ok(IncomingReply {
        payload,
        writes: Default::default(),
        format: MessageFormat::Short,
        reason: Default::default(),
        call: Default::default(),
    })
}

fn start(port: &DriverPort) -> ResultSlot {
    port.start(port.try_reserve().unwrap(), call(), Waker::noop()).unwrap()
}

fn taken(port: &DriverPort) -> Vec<String> {
    let mut commands = CommandQueue::default();
    port.take(&mut commands);
    let name = |command: DriverCommand| match command {
        DriverCommand::Start { slot } => format!("start {}", slot.0),
        DriverCommand::Cancel { slot } => format!("cancel {}", slot.0),
        other => format!("{other:?}"),
    };
    std::iter::from_fn(|| commands.pop()).map(name).collect()
}

/// One wake-up covers all commands that are queued until the driver takes them.
#[test]
fn wakes_the_driver_once() {
    let port = DriverPort::new(100);
    let woken = Arc::new(Count::default());
    let slots: Vec<ResultSlot> = (0..3).map(|_| start(&port)).collect();
    // The first poll of the driver's task takes what was queued before.
    port.set_task(&Waker::from(Arc::clone(&woken)));
    assert_eq!(taken(&port).len(), 3);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    for _ in 0..2 {
        start(&port);
        slots.iter().for_each(|&slot| port.send(DriverCommand::Cancel { slot }));
        start(&port);
        assert_eq!(taken(&port).len(), 5);
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
}

/// Slots are reused, and the cancellation of a call never affects the next call in its slot.
#[test]
fn slots_are_used_again() {
    let port = DriverPort::new(2);
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut wakers = Vec::new();

    let slot = start(&port);
    assert!(port.poll_result(slot, &mut cx).is_pending());
    port.deliver(&mut vec![(slot, reply())], &mut wakers);
    wakers.drain(..).for_each(Waker::wake);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(matches!(port.poll_result(slot, &mut cx), Poll::Ready(Ok(_))));

    // The caller is dropped. The slot is free only once the call has ended.
    let again = start(&port);
    assert_eq!(again, slot);
    port.abandon(again);
    let other = start(&port);
    assert_ne!(other, slot);
    assert!(port.try_reserve().is_none(), "both slots are in use");
    port.deliver(&mut vec![(again, reply())], &mut wakers);
    assert!(wakers.is_empty());
    assert_eq!(start(&port), slot);
    assert_eq!(taken(&port), ["start 0", "start 0", "cancel 0", "start 1", "start 0"]);

    // The caller is dropped after its result was delivered.
    port.deliver(&mut vec![(other, reply())], &mut wakers);
    port.abandon(other);
    assert!(port.try_reserve().is_some());
    assert!(taken(&port).is_empty());
}

/// After a close, the error of a call has the reason of the first close, and reports whether part of the call may have
/// reached the peer.
#[test]
fn closed() {
    let port = DriverPort::new(10);
    let mut cx = Context::from_waker(Waker::noop());
    let sent = start(&port);
    assert_eq!(taken(&port), ["start 0"]);
    let unsent = start(&port);
    let mut over = Box::pin(port.closed());
    assert!(over.as_mut().poll(&mut cx).is_pending());
    let reason = CloseReason::Disconnected(DisconnectReason::Remote);
    port.close(&reason);
    port.close(&CloseReason::Disconnected(DisconnectReason::Local));
    for (slot, was_sent) in [(sent, true), (unsent, false)] {
        let Poll::Ready(Err(CallFailure::Closed { reason: why, sent })) = port.poll_result(slot, &mut cx) else {
            panic!("the call did not fail with a close");
        };
        assert_eq!((why, sent), (reason.clone(), was_sent));
    }
    assert!(port.is_closed() && port.try_reserve().is_none());
    assert_eq!(over.as_mut().poll(&mut cx), Poll::Ready(reason));
}

/// Callers that wait for a slot get one in the order in which they began to wait, before callers that come later. A
/// waiter that gives up leaks no slot.
#[test]
fn waiters_are_served_in_order() {
    let port = DriverPort::new(2);
    let mut cx = Context::from_waker(Waker::noop());
    let (one, two) = (port.try_reserve().unwrap(), port.try_reserve().unwrap());
    let (mut first, mut second) = (Box::pin(port.reserve()), Box::pin(port.reserve()));
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    drop(one);
    assert!(port.try_reserve().is_none(), "the slot belongs to the first waiter");
    assert!(second.as_mut().poll(&mut cx).is_pending());
    // The slot of the first waiter goes to the second.
    drop(first);
    assert!(port.try_reserve().is_none(), "the slot belongs to the second waiter");
    let Poll::Ready(Ok(third)) = second.as_mut().poll(&mut cx) else { panic!("the second waiter got no slot") };
    drop(second);

    // A slot that a waiter got and never took is free again.
    let mut last = Box::pin(port.reserve());
    assert!(last.as_mut().poll(&mut cx).is_pending());
    drop(two);
    drop(last);
    drop(third);
    let all = (port.try_reserve(), port.try_reserve(), port.try_reserve());
    assert!(matches!(all, (Some(_), Some(_), None)));
}
