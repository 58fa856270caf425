//! Calls to a service whose discovery fails.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rpcrdma::{
    CallOptions, Channel,
    client::{
        Invoke as _, RetryPolicy, ServiceCaller,
        discover::{Endpoints, Servers},
    },
    service::{Procedure, ReplyBounds},
};
use rpcrdma_proto::ErrorChain;
use tokio::time::Instant;

/// An idempotent procedure without arguments or results.
struct Null;

impl Procedure for Null {
    const PROGRAM: u32 = 0x2000_0777;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 0;
    const NAME: &'static str = "TEST_V1.NULL";
    const IDEMPOTENT: bool = true;
    type Args = ();
    type Reply = ();
    fn reply_bounds(_args: &()) -> ReplyBounds {
        ReplyBounds::default()
    }
}

/// Makes calls to `servers`, each of which must fail, until an error or its causes contain `text`. Panics after 60
/// seconds.
pub(crate) async fn fails_with(servers: Servers, text: &str) {
    let endpoints = Endpoints::new(servers, Channel::builder());
    let caller = ServiceCaller::balanced(endpoints, RetryPolicy::default());
    let begin = Instant::now();
    loop {
        let options = CallOptions::new().timeout(Duration::from_millis(200));
        let error = caller.invoke::<Null>(&(), options).await.unwrap_err();
        let error = ErrorChain(&error).to_string();
        if error.contains(text) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{error}");
    }
}
