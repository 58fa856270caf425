//! The spans of client and server, exported by OpenTelemetry, belong to one trace.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use rpcrdma::{
    Channel, Context, HandlerError, Server, client::ChannelBuilder, rpc::Credential, server::ServerBuilder,
    trace::TraceContext,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

#[allow(missing_docs)]
mod echo {
    rpcrdma::xdr! {
        program ECHO {
            version ECHO_V1 {
                unsigned hyper ECHO(unsigned hyper) = 1;
            } = 1;
        } = 0x20000055;
    }
}
use echo::echo_v1::{EchoV1, EchoV1Client, EchoV1Server};

struct Echo;

impl EchoV1 for Echo {
    async fn echo(&self, _cx: &Context, value: u64) -> Result<u64, HandlerError> {
        tracing::info_span!(target: "handler", "work").in_scope(|| Ok(value))
    }
}

/// Returns the trace context of a client's span, or `None` if its OpenTelemetry context is not valid.
fn context(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let span = context.span().span_context().clone();
    span.is_valid().then(|| TraceContext {
        trace_id: span.trace_id().to_bytes(),
        span_id: span.span_id().to_bytes(),
        flags: span.trace_flags().to_u8(),
    })
}

/// Makes the span of a client the parent of the server's span.
fn join(span: &Span, context: TraceContext) {
    let TraceContext { trace_id, span_id, flags } = context;
    let parent = {
        let (trace, span) = (TraceId::from_bytes(trace_id), SpanId::from_bytes(span_id));
        SpanContext::new(trace, span, TraceFlags::new(flags), true, TraceState::default())
    };
    span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent)).unwrap();
}

/// Makes one call to a server at `url`. Returns the spans that were exported.
fn spans(url: &str, server: ServerBuilder, client: ChannelBuilder) -> Vec<SpanData> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let filter = tracing_subscriber::filter::Targets::new()
        .with_target("rpcrdma::call", tracing::Level::DEBUG)
        .with_target("handler", tracing::Level::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let calls = async {
        let server = server.service(EchoV1Server::new(Echo)).listen(url).bind().await.unwrap();
        let (url, handle) = (server.urls()[0].clone(), server.handle());
        let serving = tokio::spawn(server.serve());
        let client = EchoV1Client::new(client.connect(&url).await.unwrap());
        assert_eq!(client.echo(7).await.unwrap(), 7);
        drop(client);
        handle.shutdown();
        serving.await.unwrap();
    };
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), calls).await.unwrap() });
    });
    exporter.get_finished_spans().unwrap()
}

fn of_kind(spans: &[SpanData], kind: SpanKind) -> &SpanData {
    let [span] = &spans.iter().filter(|span| span.span_kind == kind).collect::<Vec<_>>()[..] else {
        panic!("{spans:?}")
    };
    span
}

const URLS: [&str; 2] = ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"];

#[test]
fn spans_are_joined() {
    for url in URLS {
        for credential in [Credential::None, Credential::sys("client", 1000, 100, [4, 24])] {
            let client = Channel::builder().credential(credential.to_opaque().unwrap()).trace_context(context);
            let spans = spans(url, Server::builder().trace_context(join), client);
            let (client, server) = (of_kind(&spans, SpanKind::Client), of_kind(&spans, SpanKind::Server));
            let handler = of_kind(&spans, SpanKind::Internal);
            assert_eq!(server.name, "ECHO_V1.ECHO");
            assert_eq!(server.parent_span_id, client.span_context.span_id());
            assert!(server.parent_span_is_remote);
            assert_eq!(handler.parent_span_id, server.span_context.span_id());
            for span in [server, handler] {
                assert_eq!(span.span_context.trace_id(), client.span_context.trace_id());
            }
        }
    }
}

/// The spans belong to one trace only if client and server have the option `trace_context`. A server without the option
/// serves calls with a trace context.
#[test]
fn spans_are_separate_by_default() {
    for url in URLS {
        let sent = || Channel::builder().trace_context(context);
        let settings = [
            (Server::builder(), Channel::builder()),
            (Server::builder().trace_context(join), Channel::builder()),
            (Server::builder(), sent()),
        ];
        for (server, client) in settings {
            let spans = spans(url, server, client);
            let (client, server) = (of_kind(&spans, SpanKind::Client), of_kind(&spans, SpanKind::Server));
            assert_eq!(server.parent_span_id, SpanId::INVALID);
            assert_ne!(server.span_context.trace_id(), client.span_context.trace_id());
        }
    }
}
