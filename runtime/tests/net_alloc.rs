//! Once warm, a call allocates nothing in codec, engine, driver and provider. What remains is counted here exactly, and named.
#![allow(missing_docs)]

mod net_support;

use bytes::Bytes;
use net_support::*;
use rpcrdma::{client::Channel, service::Procedure};

/// The box that a service returns its handler in.
const HANDLER: u64 = 1;
/// What owns the pooled memory of a `Bytes`, for whom the caller or the handler keeps it.
const OWNER: u64 = 1;
/// A chunk list in a header that is received, and each of its Write chunks: vectors, as the XDR declares them.
const LIST: u64 = 1;

/// Allocations per call of `calls` calls, after as many to warm up.
fn allocations<P: Procedure>(transport: Transport, args: P::Args) -> f64
where
    P::Args: Sync,
{
    const CALLS: u64 = 400;
    // One thread: the counter's allocations are a thread's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (running, _state, channel) = runtime.block_on(start_with(transport, Channel::builder().versions(1..=1)));
    let calls = async |channel: &Channel| {
        for _ in 0..CALLS {
            call::<P>(channel, &args).await.unwrap();
        }
    };
    runtime.block_on(calls(&channel));
    let counted = allocation_counter::measure(|| runtime.block_on(calls(&channel)));
    drop((running, channel));
    counted.count_total as f64 / CALLS as f64
}

fn assert_allocations(found: f64, expected: u64) {
    // A table that is rehashed now and then is not a call's.
    assert!((found - expected as f64).abs() < 0.05, "{found} allocations per call, {expected} expected");
}

// Over iwarp only: sim, which is made for tests, allocates for every work request.
#[test]
fn warm_calls() {
    assert_allocations(allocations::<Null>(Transport::Iwarp, ()), HANDLER);
    // A short opaque is copied out of the Receive, at both ends.
    assert_allocations(allocations::<Echo>(Transport::Iwarp, Bytes::from(pattern(1, 100))), HANDLER + 2);
    let data = Data(Bytes::from(pattern(1, 100_000)));
    assert_allocations(allocations::<Put>(Transport::Iwarp, data), HANDLER + OWNER + LIST);
    // The Write list goes to the server and comes back; the result has an owner at both ends.
    assert_allocations(allocations::<Get>(Transport::Iwarp, Range(1, 100_000)), HANDLER + 2 * (OWNER + 2 * LIST));
}
