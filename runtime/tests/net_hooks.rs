//! The state that a service has for each connection, behind the hooks of a server.
#![allow(missing_docs)]

mod net_support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use net_support::*;
use rpcrdma::{
    client::Channel,
    server::{
        DuplicateRequests, InboundCall, LimitScope, Limits, ReplyFuture, ReplyStore, RequestKey, Server, ServerBuilder,
        Service, StoreFuture,
    },
    service::{Procedure, ProcedureId, ReplyBounds},
};

/// A procedure that returns the number of calls on its connection, this one included.
#[derive(Debug)]
struct Count;

impl Procedure for Count {
    const PROGRAM: u32 = PROGRAM + 9;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "COUNTED.COUNT";
    type Args = ();
    type Reply = u32;
    fn reply_bounds(_args: &()) -> ReplyBounds {
        ReplyBounds::new(4, &[])
    }
}

/// A service that counts the calls of each connection. If `waits` is `true`, its handlers are pending at their first
/// poll.
#[derive(Default)]
struct Counted {
    calls: Arc<AtomicU32>,
    waits: bool,
}

impl Service for Counted {
    fn program(&self) -> u32 {
        Count::PROGRAM
    }
    fn version(&self) -> u32 {
        Count::VERSION
    }
    fn name(&self) -> &'static str {
        "COUNTED"
    }
    fn for_connection(&self) -> Option<Arc<dyn Service>> {
        Some(Arc::new(Self { calls: Arc::default(), waits: self.waits }))
    }
    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        let (calls, waits) = (Arc::clone(&self.calls), self.waits);
        Box::pin(async move {
            if waits {
                tokio::task::yield_now().await;
            }
            call.finish::<Count>(Ok(calls.fetch_add(1, Ordering::SeqCst) + 1))
        })
    }
}

/// A store that is always empty.
struct Empty;

impl ReplyStore for Empty {
    fn load<'a>(&'a self, _key: &'a RequestKey) -> StoreFuture<'a, Option<rpcrdma::server::RecordedReply>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(None)
        })
    }
}

fn cached(builder: ServerBuilder) -> ServerBuilder {
    builder.duplicate_requests(Count::PROGRAM, DuplicateRequests::new())
}

fn stored(builder: ServerBuilder) -> ServerBuilder {
    builder.duplicate_requests(Count::PROGRAM, DuplicateRequests::new().store(Empty))
}

fn limited(builder: ServerBuilder) -> ServerBuilder {
    builder.limits(LimitScope::Server, Limits::new().concurrency(1).per_caller(1))
}

fn timed_out(builder: ServerBuilder) -> ServerBuilder {
    builder.limits(ProcedureId::of::<Count>(), Limits::new().deadline(Duration::from_secs(3600)).cancel_on_disconnect())
}

#[cfg(feature = "tower")]
fn layered(builder: ServerBuilder) -> ServerBuilder {
    let layer = tower::ServiceBuilder::new().concurrency_limit(1).into_inner();
    builder.layer(layer).layer(tower::layer::util::Identity::new())
}

#[cfg(feature = "introspection")]
fn observed(builder: ServerBuilder) -> ServerBuilder {
    builder.introspection(|_| true)
}

/// A function that adds a hook to a server.
type AddHook = fn(ServerBuilder) -> ServerBuilder;

/// Returns each hook alone, and several of them together, with a name for each case.
fn each_hook() -> &'static [(&'static str, AddHook)] {
    &[
        ("none", |builder| builder),
        ("cache", cached),
        ("store", stored),
        ("limits", limited),
        ("deadline", timed_out),
        #[cfg(feature = "tower")]
        ("layers", layered),
        #[cfg(feature = "introspection")]
        ("introspection", observed),
        #[cfg(all(feature = "tower", feature = "introspection"))]
        ("all", |builder| observed(layered(limited(cached(builder))))),
    ]
}

/// A service behind a hook has one state for each connection, even while its calls wait.
#[tokio::test]
async fn each_connection_has_its_own_service() {
    timed(async {
        for (name, hook) in each_hook() {
            for waits in [false, true] {
                let builder = Server::builder().service(Counted { waits, ..Counted::default() });
                let running = Transport::sim().serve(hook(builder)).await;
                let (first, second) =
                    (running.connect(Channel::builder()).await, running.connect(Channel::builder()).await);
                let mut counts = Vec::new();
                for channel in [&first, &second, &first, &second] {
                    counts.push(call::<Count>(channel, &()).await.unwrap());
                }
                // Two calls at the same time.
                let (third, fourth) = tokio::join!(call::<Count>(&first, &()), call::<Count>(&second, &()));
                counts.extend([third.unwrap(), fourth.unwrap()]);
                assert_eq!(counts, [1, 1, 2, 2, 3, 3], "{name}, waits: {waits}");
            }
        }
    })
    .await;
}
