//! TCP keep-alive detects dead hosts: client and server sockets enable it. `net_tls` has the same test for TLS.

use crate::{
    keep_alive::both_ask,
    net_support::{Null, Transport, call, eventually, start, timed},
};

async fn asks(transport: Transport) {
    let (server, _, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    eventually(|| both_ask(server.addr.port())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tcp() {
    timed(asks(Transport::Tcp)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_iwarp() {
    timed(asks(Transport::Iwarp)).await;
}
