//! The options and the HTTP server for metrics and health.

use std::{
    convert::Infallible,
    future::Future as _,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rpcrdma::metrics::{self, DURATION_BUCKETS, SIZE_BUCKETS};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    time::Sleep,
};

/// Maximum number of concurrent HTTP connections. Further connections wait.
const MAX_CONNECTIONS: usize = 64;

/// Time limit for a client to send the header of its request, and for an idle connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after which a client that reads nothing of its response is disconnected, so that it does not block other
/// clients.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of the send buffer of a connection in the kernel, in bytes.
const SEND_BUFFER: u32 = 64 << 10;

/// Interval at which the recorded values are moved to their buckets, so that they do not accumulate between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Options for metrics and health.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MetricsArgs {
    /// Address to serve metrics and health on, e.g. 127.0.0.1:9464: /metrics for Prometheus, /healthz and /readyz. Port
    /// 0 selects a free port. Not for untrusted networks
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Installs the recorder of metrics, and serves metrics and health over HTTP. Call this once per process, before
    /// you create servers and channels. Without `--metrics`, does nothing but return a [`Health`].
    ///
    /// # Errors
    /// Fails if the address cannot be used, or if the process has a recorder already.
    pub async fn start(&self) -> anyhow::Result<Health> {
        let ready = Arc::new(AtomicBool::new(false));
        let health = |url| Health { ready: Arc::clone(&ready), url };
        let Some(addr) = self.metrics else { return Ok(health(None)) };
        let listener = listen(addr).with_context(|| format!("cannot serve metrics on {addr}"))?;
        let url = format!("http://{}/metrics", listener.local_addr()?);
        let exporter = Exporter { recorded: install_recorder()?, ready: Arc::clone(&ready) };
        tokio::spawn(serve(listener, Arc::new(exporter)));
        Ok(health(Some(url)))
    }
}

/// Binds the socket of the HTTP server.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Elsewhere, the option lets several programs use an address.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(addr)?;
    socket.listen(128)
}

/// Installs the recorder for the Prometheus format.
///
/// # Errors
/// Fails if the process has a recorder already.
fn install_recorder() -> anyhow::Result<PrometheusHandle> {
    PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(Matcher::Suffix("duration".to_owned()), &DURATION_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("size".to_owned()), &SIZE_BUCKETS)?
        .install_recorder()
        .context("cannot install the recorder of metrics")
}

/// The readiness of the process, as `/readyz` reports it. Not ready at first.
#[derive(Debug, Clone)]
pub struct Health {
    ready: Arc<AtomicBool>,
    url: Option<String>,
}

impl Health {
    /// Returns the URL of the metrics, if they are served.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Makes `/readyz` report that the process serves calls.
    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Makes `/readyz` report that the process no longer serves calls.
    pub(super) fn set_unready(&self) {
        self.ready.store(false, Ordering::Relaxed);
    }
}

/// The state that the HTTP server reports: the recorded metrics and the readiness.
struct Exporter {
    recorded: PrometheusHandle,
    ready: Arc<AtomicBool>,
}

/// Serves HTTP until the runtime ends.
async fn serve(listener: TcpListener, exporter: Arc<Exporter>) {
    let recorded = exporter.recorded.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            recorded.run_upkeep();
        }
    });
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let exporter = Arc::clone(&exporter);
        tokio::spawn(async move {
            let respond = service_fn(|request| {
                let response = exporter.respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_TIMEOUT)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(TimedStream { stream, blocked: None }), respond);
            if let Err(error) = served.await {
                tracing::debug!(%error, "HTTP connection failed");
            }
            drop(permit);
        });
    }
}

/// A connection whose writes fail if the peer reads nothing for [`WRITE_TIMEOUT`].
struct TimedStream {
    stream: TcpStream,
    /// The timer for [`WRITE_TIMEOUT`]. It exists only while writing is blocked.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    /// Returns the outcome of a write, or an error if writing has been blocked for too long.
    fn timed<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let timer = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.timed(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.timed(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Exporter {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        }
        match request.uri().path() {
            "/metrics" => {
                metrics::sample();
                text(StatusCode::OK, self.recorded.render())
            }
            "/healthz" => text(StatusCode::OK, "healthy\n"),
            "/readyz" if self.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ready\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            _ => text(StatusCode::NOT_FOUND, "use /metrics, /healthz or /readyz\n"),
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
