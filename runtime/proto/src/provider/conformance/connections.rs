//! Conformance cases for several connections of one listener.

use super::*;

/// Creates two connections to the listener. `first` contains the server's parameters for the first connection.
async fn two<C: Connector, L: Listener>(
    connector: &C,
    listener: &L,
    first: SetupParams,
) -> [ConnectedPair<C::QueuePair, L::QueuePair>; 2] {
    let mut pairs = Vec::new();
    for server in [first, params()] {
        let (client, server) = connect(connector, listener, params(), server).await;
        pairs.push(ConnectedPair { client: TestEnd::new(client.queue_pair), server: TestEnd::new(server.queue_pair) });
    }
    pairs.try_into().ok().expect("there are two")
}

/// Sends `content` in each direction, and checks that it arrives.
async fn exchange<A: QueuePair, B: QueuePair>(pair: &mut ConnectedPair<A, B>, content: &[u8]) {
    pair.client.send(content, None);
    assert_eq!(pair.server_received().await, content);
    pair.server.qp().post_receives(1);
    pair.server.send(content, None);
    assert_eq!(pair.client_received_after_sent().await, content);
    pair.client.qp().post_receives(1);
    assert!(matches!(pair.server().await, Completion::Sent { .. }));
}

/// A peer cannot access the memory that another peer may access (RFC 8166 §8.1).
pub async fn memory_of_another_connection<C: Connector, L: Listener>(connector: C, listener: L) {
    let [mut honest, mut bad] = two(&connector, &listener, params()).await;
    let region = honest.server.sink(32, Access::RemoteWrite);
    honest.announce().await;
    exchange(&mut honest, b"before").await;
    bad.client.write(vec![9; 20], region, 0);
    bad.server_refuses().await;
    exchange(&mut honest, b"after").await;
    let id = honest.server.invalidate(region.handle);
    assert_eq!(sink_of(honest.server().await, id), vec![0xee; 32], "memory was changed");
}

/// A peer cannot invalidate the memory that another peer may access (RFC 5042 §6.4.5).
pub async fn invalidate_of_another_connection<C: Connector, L: Listener>(connector: C, listener: L) {
    let [mut honest, mut bad] = two(&connector, &listener, params()).await;
    let region = honest.server.sink(32, Access::RemoteWrite);
    honest.announce().await;
    exchange(&mut honest, b"before").await;
    bad.client.send(b"x", Some(region.handle));
    let first = bad.server().await;
    assert!(!matches!(first, Completion::Received { .. }), "the invalidation was accepted");
    bad.server.completions.push_front(first);
    bad.server_refuses().await;
    honest.client.write(vec![9; 32], region, 0);
    assert!(matches!(honest.client().await, Completion::Written { .. }));
    exchange(&mut honest, b"after").await;
    let id = honest.server.invalidate(region.handle);
    assert_eq!(sink_of(honest.server().await, id), vec![9; 32]);
}

/// If the messages of a connection are not processed, another connection is not delayed, and no messages are lost.
pub async fn unprocessed_messages<C: Connector, L: Listener>(connector: C, listener: L) {
    const MESSAGES: usize = 200;
    let [mut slow, mut other] = two(&connector, &listener, SetupParams { receive_count: MESSAGES, ..params() }).await;
    for n in 0..MESSAGES {
        slow.client.send(&pattern(100, n), None);
    }
    poll_fn(|cx| {
        slow.client.poll(cx);
        if slow.client.completions.len() == MESSAGES { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    for n in 0..50 {
        exchange(&mut other, &pattern(200, n)).await;
    }
    for n in 0..MESSAGES {
        assert_eq!(slow.server_received().await, pattern(100, n));
    }
}

/// Messages for which a connection has no Receive end that connection. They do not affect another connection.
pub async fn messages_beyond_receives<C: Connector, L: Listener>(connector: C, listener: L) {
    let [mut bad, mut honest] = two(&connector, &listener, SetupParams { receive_count: 1, ..params() }).await;
    exchange(&mut honest, b"before").await;
    for _ in 0..200 {
        bad.client.send(&[7; 100], None);
    }
    let end = async {
        let mut received = 0;
        loop {
            match bad.server().await {
                Completion::Received { .. } => received += 1,
                Completion::Disconnected { .. } => return received,
                other => panic!("{other:?}"),
            }
        }
    };
    let messages = async {
        for n in 0..50_u8 {
            exchange(&mut honest, &[n; 200]).await;
        }
    };
    let (received, ()) = join(end, messages).await;
    assert!(received <= 1, "received {received} messages with one Receive");
}
