//! Conformance cases for connection set-up and messages.

use super::*;

/// Each side receives the peer's private data, and the addresses are correct.
pub async fn private_data_is_exchanged<C: Connector, L: Listener>(connector: C, listener: L) {
    let sent = vec![1; connector.max_private_data()];
    let client = SetupParams { private_data: Bytes::from(sent.clone()), ..params() };
    let server = SetupParams { private_data: Bytes::from_static(b"hello"), ..params() };
    let (client, server) = connect(&connector, &listener, client, server).await;
    assert!(is_padded(&client.private_data, b"hello"), "{:?}", client.private_data);
    assert!(is_padded(&server.private_data, &sent), "{:?}", server.private_data);
    assert_eq!(client.peer_addr, listener.local_addr());
    assert_eq!(client.local_addr, server.peer_addr);
}

/// A rejected connection is distinguishable from a failed one, and carries the responder's private data.
pub async fn rejection_carries_private_data<C: Connector, L: Listener>(connector: C, listener: L) {
    let reject = async {
        let request = listener
            .accept()
            .await
            .expect("accept failed")
            .request(LIMIT)
            .await
            .expect("received no connection request");
        assert!(is_padded(request.private_data(), b"let me in"), "{:?}", request.private_data());
        request.reject(Bytes::from_static(b"no room")).await.expect("reject failed");
    };
    let client = SetupParams { private_data: Bytes::from_static(b"let me in"), ..params() };
    let (result, ()) = join(connector.connect(listener.local_addr(), client), reject).await;
    match result {
        Err(SetupError::Rejected { private_data }) => assert!(is_padded(&private_data, b"no room"), "{private_data:?}"),
        other => panic!("expected a rejection, got {:?}", other.map(|_| ())),
    }
}

/// Sends of many sizes arrive and complete in the order in which they were posted. Each of them uses one Receive.
pub async fn sends_arrive_in_order<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    for round in 0..8 {
        let ids: Vec<_> = (0..32).map(|i| pair.client.send(&pattern(i * 40, round), None)).collect();
        for i in 0..32 {
            assert_eq!(pair.server_received().await, pattern(i * 40, round));
        }
        for id in ids {
            assert!(matches!(pair.client().await, Completion::Sent { id: got } if got == id));
        }
        pair.server.qp().post_receives(32);
        let id = pair.server.send(b"more", None);
        assert_eq!(pair.client_received().await, b"more");
        assert!(matches!(pair.server().await, Completion::Sent { id: got } if got == id));
        pair.client.qp().post_receives(1);
    }
}

/// Messages may be empty, or fill a Receive completely.
pub async fn empty_and_full_messages<C: Connector, L: Listener>(connector: C, listener: L) {
    let server = SetupParams { receive_size: 300_000, receive_count: 4, ..params() };
    let mut pair = pair_with(connector, listener, params(), server).await;
    for len in [0, 1, 299_999, 300_000] {
        pair.client.send(&pattern(len, 1), None);
        assert!(matches!(pair.client().await, Completion::Sent { .. }));
        assert_eq!(pair.server_received().await, pattern(len, 1));
    }
}

/// The solicited-event flag of a Send does not change the delivered message.
pub async fn solicited_sends<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    let region = pair.server.sink(8, Access::RemoteWrite);
    pair.announce().await;
    let handle = pair.server.qp().remote_invalidation().then_some(region.handle);
    for invalidate in [None, handle] {
        let request = WorkRequest::Send {
            id: WrId(900),
            message: message(b"wake up"),
            invalidate,
            solicited: true,
            signaled: true,
        };
        pair.client.qp().post(request);
        match pair.server().await {
            Completion::Received { message, invalidated } => {
                assert_eq!(*message, b"wake up"[..]);
                assert_eq!(invalidated, invalidate);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An unsignaled Send is delivered like any other Send, and its success is not reported.
pub async fn unsignaled_sends<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    for round in 0..3 {
        let message = message(&[round; 10]);
        pair.client.qp().post(WorkRequest::Send {
            id: WrId(900),
            message,
            invalidate: None,
            solicited: false,
            signaled: false,
        });
        let id = pair.client.send(b"signaled", None);
        assert_eq!(pair.server_received().await, [round; 10]);
        assert_eq!(pair.server_received().await, b"signaled");
        assert!(matches!(pair.client().await, Completion::Sent { id: got } if got == id));
    }
}

/// A queue pair that needs no further poll wakes its caller for the next message. It needs a poll again after a post.
/// The same rules apply after `poll_requests`.
pub async fn settled_queue_pairs_are_woken<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    for round in 0..20u8 {
        pair.client.send(&[round; 10], None);
        let ConnectedPair { client, server } = &mut pair;
        poll_fn(|cx| {
            client.poll(cx);
            let mut completions = Vec::new();
            loop {
                let polled = server.qp().poll(cx, &mut completions);
                if polled.is_pending() || !server.qp().needs_poll() {
                    break;
                }
            }
            let _ = server.qp().poll_requests(cx, &mut completions);
            let arrived = completions.iter().any(|completion| matches!(completion, Completion::Received { .. }));
            if arrived { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        server.send(&[round; 10], None);
        assert!(server.qp().needs_poll(), "a request was posted");
        assert_eq!(pair.client_received_after_sent().await, [round; 10]);
        pair.server.completions.clear();
        pair.client.qp().post_receives(1);
        pair.server.qp().post_receives(1);
    }
}

/// Send with Invalidate invalidates the memory before the message is delivered. A second Send with Invalidate of this
/// memory is refused.
pub async fn send_with_invalidate<C: Connector, L: Listener>(connector: C, listener: L) {
    let mut pair = pair(connector, listener).await;
    if !pair.client.qp().remote_invalidation() {
        return;
    }
    let region = pair.client.sink(100, Access::RemoteWrite);
    pair.announce().await;
    pair.client.send(b"write here", None);
    assert_eq!(pair.server_received().await, b"write here");
    assert!(matches!(pair.client().await, Completion::Sent { .. }));
    pair.server.write(vec![5; 100], region, 0);
    pair.server.send(b"done", Some(region.handle));
    match pair.client().await {
        Completion::Received { message, invalidated } => {
            assert_eq!(*message, b"done"[..]);
            assert_eq!(invalidated, Some(region.handle));
        }
        other => panic!("{other:?}"),
    }
    let id = pair.client.invalidate(region.handle);
    assert_eq!(sink_of(pair.client().await, id), vec![5; 100]);
    // The handle of a second invalidation is unknown.
    for _ in 0..2 {
        assert!(matches!(pair.server().await, Completion::Written { .. } | Completion::Sent { .. }));
    }
    pair.server.send(b"again", Some(region.handle));
    let (client, _) = pair.both_end().await;
    assert!(matches!(client, DisconnectReason::PeerViolation(_)), "{client:?}");
}
