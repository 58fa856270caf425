//! Metrics for Prometheus over HTTP.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rpcrdma::metrics::{DURATION_BUCKETS, SIZE_BUCKETS, sample};
use tokio::net::TcpListener;

/// Maximum duration of an HTTP connection, which serves one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Records metrics, and serves them under `/metrics`. Returns the address of the HTTP server.
pub async fn start(address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let recorded = PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(Matcher::Suffix("duration".to_owned()), &DURATION_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("size".to_owned()), &SIZE_BUCKETS)?
        .install_recorder()?;
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, recorded));
    Ok(address)
}

/// Serves one HTTP connection at a time, which is enough for one Prometheus server.
async fn serve(listener: TcpListener, recorded: PrometheusHandle) {
    loop {
        if let Err(error) = serve_next(&listener, &recorded).await {
            tracing::warn!(%error, "cannot accept an HTTP connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn serve_next(listener: &TcpListener, recorded: &PrometheusHandle) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    let respond = service_fn(|request| {
        let response = respond(&request, recorded);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), respond);
    match tokio::time::timeout(REQUEST_TIMEOUT, served).await {
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection failed"),
        Err(_) => tracing::debug!("HTTP connection timed out"),
        Ok(Ok(())) => {}
    }
    Ok(())
}

fn respond<B>(request: &Request<B>, recorded: &PrometheusHandle) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        let mut response = Response::new(Full::from("use /metrics\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    // Hands the calls since the last request over to the recorder.
    sample();
    Response::new(Full::from(recorded.render()))
}
