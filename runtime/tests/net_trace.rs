//! The tracing spans of calls at client and server.
#![allow(clippy::unwrap_used, missing_docs)]

mod net_support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use net_support::{Data, Fail, Get, Null, Put, Range, Sleep, Transport, call, pattern, start, timed};
use rpcrdma::client::CallOptions;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{Interest, with_default},
};

type Fields = BTreeMap<&'static str, String>;

struct Keep<'a>(&'a mut Fields);

impl Visit for Keep<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// A subscriber that stores the spans of calls with their fields.
#[derive(Clone, Default)]
struct Calls {
    next: Arc<AtomicU64>,
    spans: Arc<Mutex<BTreeMap<u64, Fields>>>,
}

impl Subscriber for Calls {
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "rpcrdma::call"
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::from([("span", attributes.metadata().name().to_owned())]);
        attributes.record(&mut Keep(&mut fields));
        self.spans.lock().unwrap().insert(id, fields);
        span::Id::from_u64(id)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Keep(spans.get_mut(&span.into_u64()).unwrap()));
    }

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn event(&self, _event: &Event<'_>) {}
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

impl Calls {
    /// Returns the spans of one kind and procedure.
    fn of(&self, kind: &str, procedure: u32) -> Vec<Fields> {
        let spans = self.spans.lock().unwrap();
        let number = procedure.to_string();
        let of = |fields: &&Fields| fields["otel.kind"] == kind && fields["onc_rpc.procedure.number"] == number;
        spans.values().filter(of).cloned().collect()
    }
}

#[track_caller]
fn assert_fields(fields: &Fields, expected: &[(&'static str, &str)]) {
    for (name, value) in expected {
        assert_eq!(fields.get(name).map(String::as_str), Some(*value), "{name} of {fields:?}");
    }
}

/// Runs client and server on this thread with `Calls` as subscriber.
fn traced(transport: fn() -> Transport) {
    let calls = Calls::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    with_default(calls.clone(), || runtime.block_on(timed(body(transport(), calls.clone()))));
}

async fn body(transport: Transport, calls: Calls) {
    let (running, _, channel) = start(transport.clone()).await;
    call::<Null>(&channel, &()).await.unwrap();
    call::<Put>(&channel, &Data(pattern(1, 100_000).into())).await.unwrap();
    call::<Get>(&channel, &Range(1, 50_000)).await.unwrap();
    call::<Fail>(&channel, &1).await.unwrap_err();
    let options = CallOptions::new().timeout(std::time::Duration::from_millis(5));
    channel.call::<Sleep>(&10_000, options).await.unwrap_err();

    let rdma = !matches!(transport, Transport::Tcp);
    let (peer, port) = (running.addr.ip().to_string(), running.addr.port().to_string());
    let common = [
        ("span", "call"),
        ("rpc.system.name", "onc_rpc"),
        ("onc_rpc.program.number", "536872823"),
        ("onc_rpc.version", "2"),
    ];
    for kind in ["client", "server"] {
        let [put] = &calls.of(kind, 2)[..] else { panic!() };
        assert_fields(put, &common);
        assert_fields(put, &[("otel.name", "TEST_V2.Put"), ("rpc.method", "TEST_V2.Put")]);
        // 40 bytes of header, and 4 for the length of the data.
        assert_fields(put, &[("rpcrdma.call.size", "100044"), ("rpcrdma.reply.size", "32")]);
        assert_fields(put, &[("rpcrdma.reply.write_chunks", "0"), ("rpcrdma.call.write_chunks", "0")]);
        let [get] = &calls.of(kind, 3)[..] else { panic!() };
        assert_fields(get, &common);
        assert_fields(get, &[("rpcrdma.call.size", "48"), ("rpcrdma.reply.size", "50028")]);
        assert!(!get.contains_key("error.type"), "{get:?}");
        if rdma {
            assert_fields(put, &[("rpcrdma.call.read_chunks", "1"), ("rpcrdma.call.format", "Chunked")]);
            assert_fields(get, &[("rpcrdma.call.write_chunks", "1"), ("rpcrdma.reply.write_chunks", "1")]);
        } else {
            assert_fields(put, &[("rpcrdma.call.format", "Record")]);
        }
    }
    let [client, server] = ["client", "server"].map(|kind| calls.of(kind, 3).remove(0));
    assert_eq!(client["rpcrdma.xid"], server["rpcrdma.xid"]);
    assert_fields(&client, &[("network.peer.address", &peer), ("network.peer.port", &port)]);
    assert_eq!(server["network.peer.address"], peer);
    assert_fields(&client, &[("rpcrdma.reply.format", if rdma { "Chunked" } else { "Record" })]);
    assert_fields(&calls.of("client", 0)[0], &common);
    assert_fields(&calls.of("client", 7)[0], &[("error.type", "GARBAGE_ARGS"), ("otel.status_code", "ERROR")]);
    assert_fields(&calls.of("client", 11)[0], &[("error.type", "deadline")]);
}

#[test]
fn sim() {
    traced(Transport::sim);
}

#[test]
fn iwarp() {
    traced(|| Transport::Iwarp);
}

#[test]
fn tcp() {
    traced(|| Transport::Tcp);
}
