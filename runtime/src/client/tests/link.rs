#![allow(clippy::unwrap_used)]

use std::sync::{Arc, atomic::Ordering};

use crate::{
    client::link::{ChannelLink, LinkFate},
    driver::{CommandQueue, DriverCommand, DriverPort},
    engine::{CallFailure, CloseReason},
    provider::DisconnectReason,
    session::ChannelInfo,
    transport::Transport,
};

fn link() -> (Arc<DriverPort>, ChannelLink) {
    let port = Arc::new(DriverPort::new(1));
    (Arc::clone(&port), ChannelLink::new(port, ChannelInfo::unconnected(Transport::Tcp), false))
}

/// A link reports once whether its connection ended before or after the first reply. A close by the client is not
/// reported.
#[tokio::test(start_paused = true)]
async fn fates() {
    let (port, link) = link();
    assert!(link.fate().is_none(), "it is open");
    let opened = tokio::time::Instant::now();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    port.close(&CloseReason::Disconnected(DisconnectReason::Remote));
    let Some(LinkFate::Unserved(error, at)) = link.fate() else { panic!("no fate") };
    assert_eq!(at, opened);
    assert!(link.fate().is_none());
    assert!(!link.has_served());

    // The failure of a call is that of its connection, if the server has closed it without a reply.
    let failure = |reason, sent| CallFailure::Closed { reason, sent };
    let remote = || CloseReason::Disconnected(DisconnectReason::Remote);
    for sent in [false, true] {
        let unserved = link.unserved(&failure(remote(), sent)).unwrap();
        let sent_error = error.to_string().contains("may have been executed");
        assert_eq!((unserved.to_string().contains("may have been executed"), sent_error), (sent, false));
    }
    let local = CloseReason::Disconnected(DisconnectReason::Local);
    assert!(link.unserved(&failure(local.clone(), true)).is_none());
    assert!(link.unserved(&CallFailure::DeadlineExceeded { sent: true }).is_none());

    let (port, link) = self::link();
    assert!(!link.has_served());
    port.publish_replies(1);
    assert!(link.has_served());
    port.close(&remote());
    assert!(link.unserved(&failure(remote(), true)).is_none());
    assert!(matches!(link.fate(), Some(LinkFate::Served)) && link.fate().is_none());

    let (port, link) = self::link();
    port.close(&local);
    assert!(link.fate().is_none(), "the client has closed it");
}

/// The XIDs of sealed calls skip 0 after the largest number.
#[test]
fn sealed_xids() {
    let (_port, link) = link();
    link.sealed_xid.store(u32::MAX, Ordering::Relaxed);
    assert_eq!([(); 3].map(|()| link.sealed_xid()), [u32::MAX, 1, 2]);
    assert_eq!((link.rank(), ChannelLink::unconnected(Transport::Tcp).port.is_closed()), (0, true));
}

/// Dropping a link disconnects only a connection that the link owns.
#[test]
fn owned_connections_end() {
    let disconnects = |port: &DriverPort| {
        let mut commands = CommandQueue::default();
        port.take(&mut commands);
        std::iter::from_fn(|| commands.pop()).any(|command| matches!(command, DriverCommand::Disconnect))
    };
    let (port, link) = link();
    drop(link.dialed(None));
    assert!(disconnects(&port));
    let (port, link) = self::link();
    port.hold();
    port.hold();
    drop(link);
    assert!(!disconnects(&port));
}
