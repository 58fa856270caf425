//! The number of allocations per call after a warm-up. Each expected allocation has a named constant or a comment here.
#![allow(missing_docs)]

mod net_support;

use std::time::Duration;

use bytes::Bytes;
use net_support::*;
use rpcrdma::{
    client::{CallOptions, Channel},
    engine::Versions,
    memory::LandingPool,
    server::{DuplicateRequests, LimitScope, Limits, Server, ServerBuilder},
    service::{Procedure, ProcedureId},
};

/// Number of allocations for the box around a service's handler future.
const HANDLER: u64 = 1;
/// Number of allocations on the server for the bounds of a result whose type is unbounded.
const BOUNDS: u64 = 1;
/// Number of allocations for the owner of a `Bytes` in pooled memory, which the caller or the handler keeps.
const OWNER: u64 = 1;
/// Number of allocations for each vector of a received chunk list. The list is a vector, and each Write chunk in it is
/// another one, as the XDR declares them.
const LIST: u64 = 1;

const CALLS: u64 = 400;

/// Returns the number of allocations per call, after a warm-up.
fn allocations<P: Procedure>(transport: Transport, args: P::Args) -> f64
where
    P::Args: Sync,
{
    allocations_with::<P>(transport, args, |_| CallOptions::default()).0
}

/// Returns the number of allocations per call to a server that `hook` configures, after a warm-up.
fn allocations_within<P: Procedure>(hook: impl FnOnce(ServerBuilder) -> ServerBuilder, args: P::Args) -> f64
where
    P::Args: Sync,
{
    count::<P>(Transport::Iwarp, hook, args, |_| CallOptions::default()).0
}

/// Returns the number of allocations per call, after a warm-up, and the eligible bytes that the client has copied.
/// `options` creates each call's options; it may take landing memory from the pool.
fn allocations_with<P: Procedure>(
    transport: Transport,
    args: P::Args,
    options: impl Fn(&LandingPool) -> CallOptions,
) -> (f64, u64)
where
    P::Args: Sync,
{
    count::<P>(transport, |server| server, args, options)
}

fn count<P: Procedure>(
    transport: Transport,
    hook: impl FnOnce(ServerBuilder) -> ServerBuilder,
    args: P::Args,
    options: impl Fn(&LandingPool) -> CallOptions,
) -> (f64, u64)
where
    P::Args: Sync,
{
    // The counter counts allocations of one thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (running, channel) = runtime.block_on(async {
        let running = transport.serve(hook(Server::builder().service(TestService::default()))).await;
        let channel = running.connect(Channel::builder().versions(Versions::V1)).await;
        (running, channel)
    });
    let landing = LandingPool::new(channel.pool(), 100_000);
    let calls = async |channel: &Channel| {
        for _ in 0..CALLS {
            channel.call::<P>(&args, options(&landing)).await.unwrap();
        }
    };
    runtime.block_on(calls(&channel));
    let counted = allocation_counter::measure(|| runtime.block_on(calls(&channel)));
    let copied = channel.counters().copied_eligible_bytes;
    assert!(landing.allocated() <= 1, "one call at a time needs one buffer");
    drop((running, channel));
    runtime.block_on(released());
    (counted.count_total as f64 / CALLS as f64, copied)
}

fn assert_allocations(found: f64, expected: u64) {
    // Tolerate the occasional growth of a hash table.
    assert!((found - expected as f64).abs() < 0.05, "{found} allocations per call, {expected} expected");
}

// Only over iwarp: the provider `sim` allocates for every work request.
#[test]
fn allocations_of_warm_calls() {
    assert_allocations(allocations::<Null>(Transport::Iwarp, ()), HANDLER);
    // A short opaque is copied out of the Receive by client and server.
    assert_allocations(allocations::<Echo>(Transport::Iwarp, Bytes::from(pattern(1, 100))), HANDLER + 2 + BOUNDS);
    let data = Data(Bytes::from(pattern(1, 100_000)));
    assert_allocations(allocations::<Put>(Transport::Iwarp, data), HANDLER + OWNER + LIST);
    // The Write list is in the call and in the reply; the result has an owner at client and server.
    assert_allocations(
        allocations::<Get>(Transport::Iwarp, Range(1, 100_000)),
        HANDLER + BOUNDS + 2 * (OWNER + 2 * LIST),
    );
}

/// Limits and introspection add no allocations to a call that they do not delay. A layer adds one allocation, and the
/// duplicate request cache adds two.
#[test]
fn warm_calls_within_hooks() {
    let limits = Limits::new().concurrency(8).per_caller(8).deadline(Duration::from_secs(3600)).cancel_on_disconnect();
    let limited = |server: ServerBuilder| server.limits(LimitScope::Server, limits);
    assert_allocations(allocations_within::<Null>(limited, ()), HANDLER);
    #[cfg(feature = "introspection")]
    assert_allocations(allocations_within::<Null>(|server| server.introspection(|_| true), ()), HANDLER);
    // The innermost service returns a boxed future, and a layer that returns the same future adds none.
    #[cfg(feature = "tower")]
    {
        let identity = |server: ServerBuilder| server.layer(tower::layer::util::Identity::new());
        assert_allocations(allocations_within::<Null>(identity, ()), HANDLER + 1);
    }
    // The entry of the cache, and the recorded result.
    let settings = DuplicateRequests::new().cover(ProcedureId::of::<Echo>(), true);
    let cached = |server: ServerBuilder| server.duplicate_requests(PROGRAM, settings);
    assert_allocations(allocations_within::<Echo>(cached, Bytes::from(pattern(1, 100))), HANDLER + 2 + BOUNDS + 2);
}

/// A result in a landing buffer of the caller needs no allocation for an owner at the client, and is not copied.
#[test]
fn warm_calls_with_landing_buffers() {
    let options = |landing: &LandingPool| CallOptions::new().landing_from(landing);
    let (found, copied) = allocations_with::<Get>(Transport::Iwarp, Range(1, 100_000), options);
    assert_allocations(found, HANDLER + BOUNDS + OWNER + 2 * 2 * LIST);
    assert_eq!(copied, 0);
}
