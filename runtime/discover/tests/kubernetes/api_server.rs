//! An HTTP server in place of the Kubernetes API server. A test decides when and how it responds to each request.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

/// The error at the end of a body that is cut off.
type Cut = std::io::Error;
type Body = BoxBody<Bytes, Cut>;

/// A server that passes each request to the test, which answers it.
pub(crate) struct ApiServer {
    pub(crate) url: String,
    requests: mpsc::UnboundedReceiver<Exchange>,
}

/// A request that has not been answered yet.
pub(crate) struct Exchange {
    /// The path and the query.
    pub(crate) target: String,
    /// The header `authorization`.
    pub(crate) authorization: Option<String>,
    answer: oneshot::Sender<Response<Body>>,
}

impl ApiServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, sender.clone()));
            }
        });
        Self { url, requests }
    }

    /// Starts a server with TLS.
    pub(crate) async fn start_with_tls(acceptor: tokio_rustls::TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate ends the handshake.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, sender).await;
                    }
                });
            }
        });
        Self { url, requests }
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.url.parse().unwrap());
        config.default_namespace = "prod".to_owned();
        config
    }

    pub(crate) fn client(&self) -> Client {
        self.config().try_into().unwrap()
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Exchange {
        tokio::time::timeout(crate::HANG, self.requests.recv()).await.expect("no request").unwrap()
    }

    /// Waits for a request, which must be for a list.
    pub(crate) async fn next_list(&mut self) -> Exchange {
        let exchange = self.next().await;
        assert!(!exchange.target.contains("watch=true"), "{}", exchange.target);
        exchange
    }

    /// Waits for a request, which must be for a watch of the changes after `version`.
    pub(crate) async fn next_watch(&mut self, version: &str) -> Exchange {
        let exchange = self.next().await;
        let target = &exchange.target;
        assert!(target.contains("watch=true") && target.contains("allowWatchBookmarks=true"), "{target}");
        assert!(target.ends_with(&format!("&resourceVersion={version}")), "{target}");
        exchange
    }
}

async fn serve<S>(stream: S, requests: mpsc::UnboundedSender<Exchange>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, answered) = oneshot::channel();
        let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let target = request.uri().to_string();
        let _ = requests.send(Exchange { target, authorization, answer });
        async move { answered.await.map_err(|_| Cut::other("the test has ended")) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Exchange {
    /// Answers with `status` and a whole body.
    pub(crate) fn answer(self, status: u16, body: impl Into<Bytes>) {
        let body = Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed();
        let response = Response::builder().status(status).header("content-type", "application/json").body(body);
        let _ = self.answer.send(response.unwrap());
    }

    /// Answers with a body that the test sends in pieces.
    pub(crate) fn stream(self) -> Stream {
        let (sender, mut receiver) = mpsc::unbounded_channel::<Result<Bytes, Cut>>();
        let pieces = futures_util::stream::poll_fn(move |cx| {
            receiver.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
        });
        let body = BodyExt::boxed(StreamBody::new(pieces));
        let response = Response::builder().header("content-type", "application/json").body(body);
        let _ = self.answer.send(response.unwrap());
        Stream(sender)
    }
}

/// A response body that the test sends in pieces. Dropping this value completes the body, unlike [`cut`](Self::cut).
pub(crate) struct Stream(mpsc::UnboundedSender<Result<Bytes, Cut>>);

impl Stream {
    pub(crate) fn send(&self, text: &str) {
        let _ = self.0.send(Ok(Bytes::copy_from_slice(text.as_bytes())));
    }

    /// Sends an event and the end of its line.
    pub(crate) fn event(&self, kind: &str, object: &str) {
        let object: String = object.lines().map(str::trim).collect();
        self.send(&format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Closes the connection before the body is complete.
    pub(crate) fn cut(self) {
        let _ = self.0.send(Err(Cut::other("cut")));
    }
}
