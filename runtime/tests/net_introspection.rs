//! The program that reports the state of a server.
#![allow(clippy::unwrap_used, missing_docs)]

mod net_support;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use net_support::{Null, Transport, eventually, timed};
use rpcrdma::{
    Channel, Context, HandlerError, Server,
    client::{CallError, CallOptions},
    introspection::protocol::{
        InspectProceduresArgs, InspectTransport,
        introspection_v1::{IntrospectionV1Client, PROGRAM},
    },
    rpc::{AuthStat, Credential, RpcError},
    server::{InboundCall, LimitScope, Limits, ReplyFuture, ServerBuilder, Service},
    service::ProcedureInfo,
};
use tokio::sync::Semaphore;

mod many {
    rpcrdma::xdr! {
        struct blob { @ddp opaque data<1000>; };
        program MANY {
            version MANY_V1 {
                @idempotent unsigned int ECHO(unsigned int) = 1;
                unsigned int WAIT(unsigned int) = 7;
                blob TAKE(blob) = 900;
            } = 1;
        } = 0x20000777;
    }
}
use many::{
    Blob,
    many_v1::{ManyV1, ManyV1Client, ManyV1Server},
};

struct Many(Arc<Semaphore>);

impl ManyV1 for Many {
    async fn echo(&self, _cx: &Context, n: u32) -> Result<u32, HandlerError> {
        tokio::time::sleep(Duration::from_millis(n.into())).await;
        Ok(n)
    }

    async fn wait(&self, _cx: &Context, n: u32) -> Result<u32, HandlerError> {
        self.0.acquire().await?.forget();
        Err(HandlerError::system(format!("{n}")))
    }

    async fn take(&self, _cx: &Context, blob: Blob) -> Result<Blob, HandlerError> {
        Ok(blob)
    }
}

fn server(gate: &Arc<Semaphore>) -> ServerBuilder {
    Server::builder().service(ManyV1Server::new(Many(Arc::clone(gate))))
}

async fn reports(transport: Transport) {
    let gate = Arc::new(Semaphore::new(0));
    let running = transport.serve(server(&gate).introspection(|_| true)).await;
    let channel = running.connect(Channel::builder()).await;
    let client = ManyV1Client::new(channel.clone());
    let inspector = IntrospectionV1Client::new(channel.clone());
    for n in [0, 0, 60] {
        client.echo(n).await.unwrap();
    }
    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { ManyV1Client::new(channel).wait(1).await }
    });

    // Both programs, in order.
    let services = inspector.services(0).await.unwrap();
    let listed: Vec<_> = services.services.iter().map(|it| (it.program, it.version, it.name.to_string())).collect();
    assert_eq!(listed, [(0x2000_0777, 1, "MANY_V1".into()), (0x2052_5043, 1, "INTROSPECTION_V1".into())]);
    assert!(services.last);
    let after = inspector.services(1).await.unwrap();
    assert!(after.services.len() == 1 && after.last);
    assert!(inspector.services(u32::MAX).await.unwrap().services.is_empty());

    // The procedures with their bindings and their calls.
    let procedures = |first| {
        let inspector = &inspector;
        async move {
            let args = InspectProceduresArgs { program: 0x2000_0777, version: 1, first };
            inspector.procedures(&args).await.unwrap()
        }
    };
    while procedures(0).await.procedures[1].active != 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let page = procedures(0).await;
    assert!(page.last);
    let [echo, wait, take] = &page.procedures[..] else { panic!("{page:?}") };
    assert_eq!((echo.number, echo.name.to_string(), echo.idempotent), (1, "MANY_V1.ECHO".into(), true));
    assert_eq!((echo.calls, echo.failed, echo.active), (3, 0, 0));
    assert!(echo.max_time >= 60_000_000 && echo.total_time >= echo.max_time, "{echo:?}");
    assert_eq!((wait.number, wait.calls, wait.idempotent), (7, 0, false));
    assert_eq!(take.number, 900);
    assert_eq!((take.arguments.max_eligible, take.results.max_eligible), (1, 1));
    assert_eq!((take.arguments.max_inline, echo.arguments.max_inline), (4, 4));
    for (first, count) in [(7, 2), (8, 1), (900, 1)] {
        assert_eq!(procedures(first).await.procedures.len(), count);
    }
    assert!(procedures(901).await.procedures.is_empty());
    let unknown = inspector.procedures(&InspectProceduresArgs { program: 1, version: 1, first: 0 }).await.unwrap();
    assert!(unknown.procedures.is_empty() && unknown.last);

    // The slowest calls, the slowest first. A call that ends is counted.
    gate.add_permits(1);
    waiting.await.unwrap().unwrap_err();
    let slowest = inspector.slowest().await.unwrap().calls;
    let echo = slowest.iter().find(|call| call.procedure == 1 && call.duration >= 60_000_000).unwrap();
    assert!(!echo.failed && echo.name == "MANY_V1.ECHO");
    assert!(slowest.iter().any(|call| call.name == "MANY_V1.WAIT" && call.failed));
    assert!(slowest.is_sorted_by(|a, b| a.duration >= b.duration));
    let page = procedures(0).await;
    assert_eq!((page.procedures[1].calls, page.procedures[1].failed, page.procedures[1].active), (1, 1, 0));

    // The server and its connection.
    let state = inspector.server().await.unwrap();
    assert_eq!((state.accepted, state.open, state.closed, state.setup_failed), (1, 1, 0, 0));
    assert_eq!((state.draining, state.memory_limit, state.credits), (false, 1 << 30, 32));
    assert!(state.uptime > 0 && state.counters.calls_received > 5);
    // Each program counts its own calls.
    assert_eq!(procedures(0).await.procedures[0].calls, 3);
    let own = inspector.procedures(&InspectProceduresArgs { program: PROGRAM, version: 1, first: 1 }).await.unwrap();
    assert_eq!((own.procedures[0].number, own.procedures[0].calls, own.procedures[0].failed), (1, 1, 0));
    let connections = inspector.connections(0).await.unwrap();
    let [connection] = &connections.connections[..] else { panic!() };
    assert!(connections.last && connection.age > 0);
    assert_eq!(connection.local, running.addr.to_string().as_str());
    let is_tcp = matches!(transport, Transport::Tcp);
    let expected = if is_tcp { (InspectTransport::InspectTcp, 0) } else { (InspectTransport::InspectRdma, 2) };
    assert_eq!((connection.transport, connection.version), expected);
    assert!(inspector.connections(connection.id + 1).await.unwrap().connections.is_empty());
}

/// A version of program 1, with 64 procedures.
struct Numbered(u32);

impl Service for Numbered {
    fn program(&self) -> u32 {
        1
    }
    fn version(&self) -> u32 {
        self.0
    }
    fn name(&self) -> &'static str {
        "NUMBERED"
    }
    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        (number < 64).then(ProcedureInfo::of::<Null>)
    }
    fn dispatch(&self, _: InboundCall) -> ReplyFuture {
        unreachable!("no calls are made")
    }
}

/// Connections, services and procedures are reported in pages of at most 32, and each item is in one page.
async fn pages(transport: Transport) {
    let gate = Arc::new(Semaphore::new(0));
    let server = (1..=62).rev().fold(server(&gate), |server, version| server.service(Numbered(version)));
    let running = transport.serve(server.introspection(|_| true)).await;
    let mut channels = Vec::new();
    for _ in 0..70 {
        channels.push(running.connect(Channel::builder()).await);
    }
    eventually(|| running.handle.connections().len() == 70).await;
    let inspector = IntrospectionV1Client::new(channels[0].clone());
    let (mut first, mut seen, mut sizes) = (0, BTreeSet::new(), Vec::new());
    loop {
        let page = inspector.connections(first).await.unwrap();
        sizes.push(page.connections.len());
        assert!(page.connections.iter().all(|connection| seen.insert(connection.id)));
        if page.last {
            break;
        }
        first = page.connections.last().unwrap().id + 1;
    }
    assert_eq!((sizes, seen.len()), (vec![32, 32, 6], 70));
    // A page that is full may be the last one.
    let page = inspector.connections(38).await.unwrap();
    assert_eq!((page.connections.len(), page.last), (32, true));
    let mut listed = Vec::new();
    for (skip, is_last) in [(0, false), (32, true)] {
        let page = inspector.services(skip).await.unwrap();
        assert_eq!((page.services.len(), page.last), (32, is_last));
        listed.extend(page.services.iter().map(|service| (service.program, service.version)));
        let procedures = InspectProceduresArgs { program: 1, version: 7, first: skip };
        let page = inspector.procedures(&procedures).await.unwrap();
        let numbers: Vec<_> = page.procedures.iter().map(|procedure| procedure.number).collect();
        assert_eq!((numbers, page.last), ((skip..skip + 32).collect(), is_last));
    }
    assert!(listed.is_sorted() && listed.contains(&(PROGRAM, 1)) && listed.contains(&(1, 62)));
}

/// The filter permits or refuses calls by the credential of the caller. A server without `ServerBuilder::introspection`
/// does not have the program.
async fn access(transport: Transport) {
    let gate = Arc::new(Semaphore::new(0));
    let root_only = |cx: &Context| matches!(cx.credential(), Credential::Sys(sys) if sys.uid == 0);
    let running = transport.serve(server(&gate).introspection(root_only)).await;
    let inspector = IntrospectionV1Client::new(running.connect(Channel::builder()).await);
    let denied = inspector.server().await.unwrap_err();
    assert!(
        matches!(denied, CallError::Rpc { source: RpcError::Authentication(failure), .. } if failure.stat() == Some(AuthStat::AuthTooweak)),
        "{denied:?}"
    );
    let root = Credential::sys("client", 0, 0, []).to_opaque().unwrap();
    let inspector = IntrospectionV1Client::new(running.connect(Channel::builder().credential(root)).await);
    inspector.server().await.unwrap();

    let running = transport.serve(server(&gate)).await;
    let channel = running.connect(Channel::builder()).await;
    let absent = channel.call_null(0x2052_5043, 1, CallOptions::new()).await.unwrap_err();
    assert!(matches!(absent, CallError::Rpc { source: RpcError::ProgramUnavailable, .. }), "{absent:?}");
}

/// A server at its limit of concurrent calls can still be inspected. Limits for the introspection program itself apply.
async fn saturated(transport: Transport) {
    let gate = Arc::new(Semaphore::new(0));
    let one = || Limits::new().concurrency(1).queue(0);
    let running = transport.serve(server(&gate).introspection(|_| true).limits(LimitScope::Server, one())).await;
    let channel = running.connect(Channel::builder()).await;
    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { ManyV1Client::new(channel).wait(1).await }
    });
    eventually(|| running.handle.limits()[0].running == 1).await;
    let refused = ManyV1Client::new(channel.clone()).echo(1).await.unwrap_err();
    assert!(matches!(refused, CallError::Rpc { source: RpcError::Unavailable, .. }), "{refused:?}");
    assert_eq!(IntrospectionV1Client::new(channel).server().await.unwrap().open, 1);
    gate.add_permits(1);
    waiting.await.unwrap().unwrap_err();

    let limits = Limits::new().concurrency(1).queue(0);
    let limited = server(&gate).introspection(|_| true).limits(LimitScope::Program(PROGRAM), limits);
    let running = transport.serve(limited).await;
    let inspector = IntrospectionV1Client::new(running.connect(Channel::builder()).await);
    inspector.server().await.unwrap();
    assert_eq!(running.handle.limits()[0].executed, 1);
}

net_support::over_each! { reports pages access saturated }
