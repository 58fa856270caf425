//! Asynchronous device events: failures of the device, its ports, queue pairs and other queues, and the end of a failed
//! queue pair's use of a shared receive queue.
//!
//! A device has one event stream for the whole process. Each connection waits on a duplicate of its file descriptor.
//! The connection that wakes first reads the events, and delivers them to the connections that they concern.

use std::{
    collections::HashMap,
    io, iter,
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::io::unix::AsyncFd;

use super::{
    cm::register_fd,
    error::VerbsError,
    ffi::{self, ibv_event_type as kind},
};

/// An event of a device that concerns a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceEvent {
    /// The device failed.
    Fatal,
    /// The completion queue overflowed, which is a local error.
    CompletionsLost,
    /// The queue pair failed.
    QueuePairFailed,
    /// The peer requested a forbidden operation.
    PeerViolation,
    /// The shared receive queue failed.
    ReceivesFailed,
    /// The failed queue pair takes no more Receives from its shared queue.
    ReceivesDone,
}

#[derive(Debug, Default)]
struct EventInbox {
    events: Vec<DeviceEvent>,
    waker: Option<Waker>,
}

/// The subject of an event: the address of a device's context, a queue pair, a completion queue or a shared receive
/// queue.
pub(super) type EventKey = usize;

/// The inboxes of connections, by the subjects that concern them.
static INBOXES: OnceLock<Mutex<EventInboxes>> = OnceLock::new();

type EventInboxes = HashMap<EventKey, Vec<Arc<Mutex<EventInbox>>>>;

fn inboxes() -> MutexGuard<'static, EventInboxes> {
    INBOXES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The subscription of one connection to events of its device.
#[derive(Debug)]
pub(super) struct DeviceEvents {
    fd: AsyncFd<OwnedFd>,
    context: NonNull<ffi::ibv_context>,
    keys: Vec<EventKey>,
    inbox: Arc<Mutex<EventInbox>>,
}

// SAFETY: libibverbs' calls on a context may be made from any thread.
unsafe impl Send for DeviceEvents {}

impl DeviceEvents {
    /// Subscribes to the events of a device, and of `subjects`, its objects. The device must outlive the returned
    /// value.
    pub(super) fn new(
        context: NonNull<ffi::ibv_context>,
        subjects: impl IntoIterator<Item = EventKey>,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the context is that of an open device, which keeps the file descriptor open.
        let fd = unsafe { BorrowedFd::borrow_raw((*context.as_ptr()).async_fd) };
        let fd = fd
            .try_clone_to_owned()
            // SAFETY: the value owns the file descriptor. Its blocking mode is shared with the original.
            .and_then(|fd| unsafe { register_fd(fd) })
            .map_err(|source| VerbsError::os("registration for device events", source))?;
        let keys: Vec<_> = iter::once(context.as_ptr() as EventKey).chain(subjects).collect();
        let inbox = Arc::new(Mutex::default());
        let mut all = inboxes();
        for &key in &keys {
            all.entry(key).or_default().push(Arc::clone(&inbox));
        }
        drop(all);
        Ok(Self { fd, context, keys, inbox })
    }

    /// Polls for the next event that concerns this connection.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<DeviceEvent> {
        while let Poll::Ready(Ok(mut ready)) = self.fd.poll_read_ready(cx) {
            while self.read() {}
            ready.clear_ready();
        }
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if !inbox.events.is_empty() {
            return Poll::Ready(inbox.events.remove(0));
        }
        if !inbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inbox.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Reads one event and delivers it. Returns `false` if there is none or the read fails, and `true` without an event
    /// if a signal interrupts the read.
    fn read(&self) -> bool {
        let mut event = MaybeUninit::<ffi::ibv_async_event>::zeroed();
        // SAFETY: the context is live and the event writable.
        if unsafe { ffi::ibv_get_async_event(self.context.as_ptr(), event.as_mut_ptr()) } != 0 {
            return io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        }
        // SAFETY: the call succeeded and filled in the event. The type is read as an integer, because a newer library
        // may have values that the enumeration lacks. The element is read as an address: all variants except the port
        // number are pointers.
        let (number, element) = unsafe {
            let event = event.as_ptr();
            ((&raw const (*event).event_type).cast::<u32>().read(), (*event).element.qp as EventKey)
        };
        let context = self.context.as_ptr() as EventKey;
        match classify(number) {
            Some((event, EventSubject::Element)) => deliver(element, event),
            Some((event, EventSubject::Device)) => deliver(context, event),
            None if number == kind::IBV_EVENT_PORT_ERR as u32 => {
                // Connections detect a permanent failure on their own.
                tracing::warn!(target: "rpcrdma", port = element, "the RDMA device's port is down");
            }
            None => tracing::debug!(number, "ignored device event"),
        }
        // Acknowledge only after delivery. Until then the subject is not destroyed, so no other object has its address.
        // SAFETY: fetched above and acknowledged once.
        unsafe { ffi::ibv_ack_async_event(event.as_mut_ptr()) };
        true
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        let mut all = inboxes();
        for key in &self.keys {
            if let Some(entries) = all.get_mut(key) {
                entries.retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
                if entries.is_empty() {
                    all.remove(key);
                }
            }
        }
    }
}

enum EventSubject {
    Device,
    Element,
}

/// Returns the event with this number in libibverbs, and the kind of its subject. Returns `None` for an event that
/// connections do not process.
fn classify(number: u32) -> Option<(DeviceEvent, EventSubject)> {
    const FATAL: u32 = kind::IBV_EVENT_DEVICE_FATAL as u32;
    const CQ: u32 = kind::IBV_EVENT_CQ_ERR as u32;
    const QP: u32 = kind::IBV_EVENT_QP_FATAL as u32;
    const REQUEST: u32 = kind::IBV_EVENT_QP_REQ_ERR as u32;
    const ACCESS: u32 = kind::IBV_EVENT_QP_ACCESS_ERR as u32;
    const SRQ: u32 = kind::IBV_EVENT_SRQ_ERR as u32;
    const LAST: u32 = kind::IBV_EVENT_QP_LAST_WQE_REACHED as u32;
    Some(match number {
        FATAL => (DeviceEvent::Fatal, EventSubject::Device),
        CQ => (DeviceEvent::CompletionsLost, EventSubject::Element),
        QP => (DeviceEvent::QueuePairFailed, EventSubject::Element),
        REQUEST | ACCESS => (DeviceEvent::PeerViolation, EventSubject::Element),
        SRQ => (DeviceEvent::ReceivesFailed, EventSubject::Element),
        LAST => (DeviceEvent::ReceivesDone, EventSubject::Element),
        _ => return None,
    })
}

fn deliver(key: EventKey, event: DeviceEvent) {
    let wakers: Vec<_> = {
        let all = inboxes();
        let concerned = all.get(&key).into_iter().flatten();
        concerned
            .filter_map(|inbox| {
                let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
                inbox.events.push(event);
                inbox.waker.take()
            })
            .collect()
    };
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_reach_their_connections() {
        let inbox = Arc::new(Mutex::new(EventInbox::default()));
        // No object has this address.
        inboxes().entry(3).or_default().push(Arc::clone(&inbox));
        deliver(3, DeviceEvent::Fatal);
        deliver(5, DeviceEvent::PeerViolation);
        assert_eq!(inbox.lock().unwrap().events, [DeviceEvent::Fatal]);
        inboxes().remove(&3);
    }

    #[test]
    fn kinds() {
        assert!(matches!(classify(8), Some((DeviceEvent::Fatal, EventSubject::Device))));
        assert!(matches!(classify(3), Some((DeviceEvent::PeerViolation, EventSubject::Element))));
        assert!(matches!(classify(16), Some((DeviceEvent::ReceivesDone, EventSubject::Element))));
        assert!(classify(10).is_none() && classify(u32::MAX).is_none());
    }
}
