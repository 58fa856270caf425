use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::{
    engine::ReplyResources,
    memory::{BufferPool, MessageBuf},
    transport::Transport,
};

/// A driver whose connection is busy from the second look on.
#[derive(Default)]
struct Busy {
    leads: AtomicUsize,
    led: AtomicBool,
}

impl Drive for Busy {
    fn try_drive(&self) -> bool {
        false
    }

    fn try_lead(&self, _slot: Slot, _waker: &Waker) -> bool {
        let first = self.leads.fetch_add(1, Ordering::Relaxed) == 0;
        if first {
            self.led.store(true, Ordering::Relaxed);
        }
        first
    }

    fn stop_leading(&self) {
        self.led.store(false, Ordering::Relaxed);
    }
}

/// A caller that is woken to drive and finds the connection busy hands it back: whoever has it may only be looking
/// whether somebody leads, and would leave what has happened to a caller that is not woken again.
#[test]
fn a_caller_that_cannot_drive_does_not_lead() {
    let drive = Arc::new(Busy::default());
    let any = ([127, 0, 0, 1], 1).into();
    let info = ChannelInfo {
        transport: Transport::Rdma,
        peer_addr: any,
        local_addr: any,
        private_data: Default::default(),
        send_threshold: 1024,
        receive_threshold: 1024,
        remote_invalidation: false,
        version: None,
        properties: None,
    };
    let driver = Some(Arc::clone(&drive) as Arc<dyn Drive>);
    let link = Link { driver, port: Arc::new(Port::new(1)), info, negotiates: false.into() };
    let mut cx = Context::from_waker(Waker::noop());
    let reserve = std::pin::pin!(link.port.reserve());
    let Poll::Ready(Ok(permit)) = reserve.poll(&mut cx) else { panic!("there is room") };
    let call = OutgoingCall {
        message: MessageBuf::new(BufferPool::default().alloc(64), 0),
        reduced: Default::default(),
        reply: ReplyResources::default(),
        deadline: None,
        policy: Default::default(),
        seal: None,
    };
    let mut waiting = link.call(permit, call).expect("open");
    assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
    assert!(drive.led.load(Ordering::Relaxed) && waiting.leads);
    assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
    assert_eq!(drive.leads.load(Ordering::Relaxed), 2);
    assert!(!waiting.leads && !drive.led.load(Ordering::Relaxed));
}
