use std::{
    future::Future as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Wake,
};

use super::*;
use crate::{
    engine::{Format, Payload, ReplyResources},
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

pub(crate) fn call() -> OutgoingCall {
    OutgoingCall {
        message: MessageBuf::new(vec![0; 64].into(), 0),
        reduced: Default::default(),
        reply: ReplyResources::default(),
        deadline: None,
        policy: Default::default(),
        seal: None,
    }
}

fn reply() -> CallResult {
    let payload = Payload::Inline(MessageBuf::new(vec![0; 64].into(), 0));
    Ok(IncomingReply {
        payload,
        writes: Default::default(),
        format: Format::Short,
        reason: Default::default(),
        call: Default::default(),
    })
}

fn start(port: &Port) -> (Slot, Notify) {
    port.start(port.try_reserve().unwrap(), call()).unwrap()
}

fn taken(port: &Port) -> Vec<String> {
    let mut commands = VecDeque::new();
    port.take(&mut commands);
    let name = |command: Command| match command {
        Command::Start { slot, .. } => format!("start {}", slot.0),
        Command::Cancel { slot } => format!("cancel {}", slot.0),
        other => format!("{other:?}"),
    };
    commands.into_iter().map(name).collect()
}

#[test]
fn who_tells_the_driver() {
    let port = Port::new(100);
    let notified: Vec<Notify> = (0..BATCH).map(|_| start(&port).1).collect();
    // The first sends itself, the next ones find the driver told, one that fills a batch sends the batch.
    assert_eq!(notified[0], Notify::Drive);
    assert!(notified[1..BATCH - 1].iter().all(|&notify| notify == Notify::Nothing), "{notified:?}");
    assert_eq!(notified[BATCH - 1], Notify::Drive);
    assert_eq!(taken(&port).len(), BATCH);
    assert_eq!(start(&port).1, Notify::Wake);
}

/// A slot is used again, and a cancellation never meets the next call in it.
#[test]
fn slots_are_used_again() {
    let port = Port::new(2);
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut wakers = Vec::new();

    let (slot, _) = start(&port);
    assert!(port.poll_result(slot, &mut cx).is_pending());
    port.deliver(slot, reply(), &mut wakers);
    wakers.drain(..).for_each(Waker::wake);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(matches!(port.poll_result(slot, &mut cx), Poll::Ready(Ok(_))));

    // Its caller goes, its call ends, and only then it is free.
    let (again, _) = start(&port);
    assert_eq!(again, slot);
    port.abandon(again);
    let (other, _) = start(&port);
    assert_ne!(other, slot);
    assert!(port.try_reserve().is_none(), "both are taken");
    port.deliver(again, reply(), &mut wakers);
    assert!(wakers.is_empty());
    assert_eq!(start(&port).0, slot);
    assert_eq!(taken(&port), ["start 0", "start 0", "cancel 0", "start 1", "start 0"]);

    // Gone after its result came.
    port.deliver(other, reply(), &mut wakers);
    port.abandon(other);
    assert!(port.try_reserve().is_some());
    assert!(taken(&port).is_empty());
}

/// Callers learn whether anything of their call can have reached the peer.
#[test]
fn closed() {
    let port = Port::new(10);
    let mut cx = Context::from_waker(Waker::noop());
    let (sent, _) = start(&port);
    assert_eq!(taken(&port), ["start 0"]);
    let (unsent, _) = start(&port);
    let mut over = Box::pin(port.wait_closed());
    assert!(over.as_mut().poll(&mut cx).is_pending());
    let reason = CloseReason::Disconnected(DisconnectReason::Remote);
    port.close(&reason);
    port.close(&CloseReason::Disconnected(DisconnectReason::Local));
    for (slot, was_sent) in [(sent, true), (unsent, false)] {
        let Poll::Ready(Err(CallFailure::Closed { reason: why, sent })) = port.poll_result(slot, &mut cx) else {
            panic!("it was not closed");
        };
        assert_eq!((why, sent), (reason.clone(), was_sent));
    }
    assert!(port.is_closed() && port.try_reserve().is_none());
    assert_eq!(over.as_mut().poll(&mut cx), Poll::Ready(reason));
}
