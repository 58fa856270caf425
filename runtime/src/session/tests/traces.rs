//! The spans and events of inbound calls.

use std::{future::ready, sync::Mutex};

use tracing::subscriber::{NoSubscriber, with_default};

use super::*;
use crate::{
    rpc::AuthStat,
    service::ProcedureInfo,
    trace::{TraceContext, TraceJoin, log::Log},
};

/// A service that names only one of its procedures.
struct Named;

impl Service for Named {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "TEST"
    }

    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        (number == Name::NUMBER).then(ProcedureInfo::of::<Name>)
    }

    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        echo(call)
    }
}

/// The span of a call has the name of the procedure, if the service knows the name, and the sizes of call and reply.
/// Procedure 0 has a name in every program (RFC 5531 §12.1).
#[test]
fn spans_have_names_and_sizes() {
    Log::of(|log| {
        for service in [Arc::new(Named) as Arc<dyn Service>, service(echo)] {
            let is_named = service.procedure(Name::NUMBER).is_some();
            let mut served = Served::new(Transport::Tcp, service);
            for (number, name) in [(0, Some("NULL")), (Name::NUMBER, is_named.then_some(Name::NAME)), (99, None)] {
                let call = message(&header(number), &[0; 4]);
                served.call(arrived(received(&call))).unwrap();
                let name = name.map(|name| format!("{name:?}"));
                let [otel, method, xid, size] =
                    log.last(["otel.name", "rpc.method", "rpcrdma.xid", "rpcrdma.call.size"]);
                assert_eq!((&otel, &method), (&name, &name), "{number}");
                assert_eq!((xid, size), (Some(XID.to_string()), Some(call.len().to_string())));
                let [size, chunks] = log.last(["rpcrdma.reply.size", "rpcrdma.reply.write_chunks"]);
                assert_eq!((size.is_some(), chunks.as_deref()), (true, Some("0")), "{number}");
            }
        }
    });
}

/// The span of a call joins the trace of its caller, if the call carries a trace context.
#[test]
fn spans_join_the_traces_of_callers() {
    let context = TraceContext { trace_id: [1; 16], span_id: [2; 8], flags: 1 };
    Log::of(|_| {
        let joined = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&joined);
        let join = TraceJoin::new(move |span, context| seen.lock().unwrap().push((span.is_disabled(), context)));
        let services = [HookedService::from(service(echo))];
        let registry = ServiceRegistry::new(services, Arc::new(StandardAuthenticator), Some(join)).unwrap();
        let mut served = Served::with(Transport::Tcp, registry.for_connection(), ConnectionConfig::new());
        for verifier in [OpaqueAuth::none(), context.verifier()] {
            let mut header = header(0);
            header.verifier = verifier;
            assert_eq!(served.reply(arrived(received(&message(&header, &[])))).0, Ok(()));
        }
        assert_eq!(*joined.lock().unwrap(), [(false, context)]);
    });
}

/// Only a reply that could not be delivered is traced.
#[test]
fn undelivered_replies_are_traced() {
    Log::of(|log| {
        let mut served = Served::new(Transport::Tcp, service(echo));
        served.handlers.replied(ReplyToken(1), true);
        assert!(log.take_messages().is_empty());
        served.handlers.replied(ReplyToken(1), false);
        assert_eq!(log.take_messages(), ["reply could not be delivered"]);
    });
}

/// The message of a panic is traced, and not sent to the peer.
#[test]
fn panics_are_traced() {
    Log::of(|log| {
        for (panics, text) in [
            ((|| panic!("a test")) as fn(), r#": "a test""#),
            (|| panic!("{}", 7), r#": "7""#),
            (|| std::panic::panic_any(7), ""),
        ] {
            let handler = move |call: InboundCall| -> ReplyFuture {
                panics();
                echo(call)
            };
            let mut served = Served::new(Transport::Tcp, service(handler));
            let reply = served.reply(arrived(received(&message(&header(0), &[]))));
            assert_eq!(reply, (Err(RpcError::SystemError), Bytes::new()));
            assert_eq!(log.take_messages(), [format!("handler panicked{text}")]);
        }
    });
}

/// A call whose span is disabled carries no span, so that it costs less.
#[test]
fn disabled_spans_are_absent() {
    let is_absent = |call: InboundCall| -> ReplyFuture {
        assert!(call.span.is_none());
        echo(call)
    };
    let is_present = |call: InboundCall| -> ReplyFuture {
        assert!(call.span.is_some());
        Box::pin(ready(answer::<Null>(call, |()| Err(HandlerError::Rejected(AuthStat::AuthTooweak.into())))))
    };
    let call = || arrived(received(&message(&header(0), &[])));
    with_default(NoSubscriber::new(), || {
        assert_eq!(Served::new(Transport::Tcp, service(is_absent)).reply(call()).0, Ok(()));
    });
    Log::of(|_| {
        let denied = RpcError::Authentication(AuthStat::AuthTooweak.into());
        assert_eq!(Served::new(Transport::Tcp, service(is_present)).reply(call()).0, Err(denied));
    });
}
