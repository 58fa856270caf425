//! `Channel::call` works with executors other than tokio's, in threads without a runtime.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::iwarp_common::{REPLY, REQUEST, Raw, fpdu, mpa, send};
use crate::net_support::{Null, Transport, call, released};
use rpcrdma::{
    client::{CallError, Channel},
    engine::Versions,
};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpListener,
    runtime::{Builder, Runtime},
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The time after which a call counts as hanging.
const MAX_DURATION: Duration = Duration::from_secs(100);

fn block_on<F: Future>(future: F) -> F::Output {
    let end = Instant::now() + MAX_DURATION;
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                let left = end.saturating_duration_since(Instant::now());
                assert!(!left.is_zero(), "call not woken");
                thread::park_timeout(left);
            }
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Makes a call in another thread, over an idle connection.
fn call_elsewhere(channel: Channel) -> Result<(), CallError> {
    thread::sleep(Duration::from_millis(100));
    thread::spawn(move || block_on(call::<Null>(&channel, &()))).join().expect("the caller does not panic")
}

fn answered(transport: Transport) {
    let runtime = runtime();
    let builder = Channel::builder().versions(Versions::V1);
    let (_running, _state, channel) = runtime.block_on(crate::net_support::start_with(transport, builder));
    for _ in 0..3 {
        call_elsewhere(channel.clone()).unwrap();
    }
    runtime.block_on(released());
}

#[test]
fn tcp() {
    answered(Transport::Tcp);
}

#[test]
fn sim() {
    answered(Transport::sim());
}

#[test]
fn iwarp() {
    answered(Transport::Iwarp);
}

/// A call in a thread without a runtime fails if the peer violates the protocol, although the shutdown of the
/// connection needs timers.
#[test]
fn iwarp_peer_violates_the_protocol() {
    let runtime = runtime();
    let channel = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("iwarp://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut raw = Raw(stream);
            raw.frame(REQUEST).await;
            raw.write(&mpa(REPLY, 0x50, 2, &[0, 16, 0, 16])).await;
            raw.ulpdu().await;
            let mut damaged = fpdu(&send(1, b"damaged"));
            damaged[22] ^= 1;
            raw.write(&damaged).await;
            let _ = raw.0.read_to_end(&mut Vec::new()).await;
        });
        Channel::builder().versions(Versions::V1).connect(&url).await.unwrap()
    });
    let error = call_elsewhere(channel).unwrap_err();
    assert!(matches!(error, CallError::Transport { .. }), "{error}");
}
