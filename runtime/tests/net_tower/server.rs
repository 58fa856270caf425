//! `tower` layers around the handlers of a server.

use std::{
    sync::Mutex,
    task::{Context as TaskContext, Poll},
};

use bytes::Bytes;
use rpcrdma::{
    engine::{MessageFormat, Versions},
    rpc::{AuthFailure, AuthStat, Credential},
    server::{Context, Dispatch, DispatchFuture, DispatchRequest, DispatchStatus, HandlerError, Limits},
    service::{ProcedureId, ProcedureInfo, ReplyBounds},
};
use tower::{Layer, layer::layer_fn};

use super::{
    tower_program::{
        Blob,
        tower_v1::{TowerV1, TowerV1Client, TowerV1Server},
    },
    *,
};

struct Tower;

impl TowerV1 for Tower {
    async fn echo(&self, _cx: &Context, args: Blob) -> Result<Blob, HandlerError> {
        Ok(args)
    }

    async fn fail(&self, _cx: &Context, args: u32) -> Result<(), HandlerError> {
        match args {
            0 => Err(HandlerError::GarbageArguments),
            1 => Err(HandlerError::Rejected(AuthStat::AuthTooweak.into())),
            _ => panic!("the test's handler panics"),
        }
    }
}

/// A call as a layer sees it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    layer: &'static str,
    info: Option<ProcedureInfo>,
    numbers: [u32; 3],
    is_sys: bool,
    call: (u64, MessageFormat),
    status: DispatchStatus,
    reply: (u64, MessageFormat),
}

type Log = Arc<Mutex<Vec<Seen>>>;

#[derive(Clone)]
struct Recorder<S> {
    inner: S,
    name: &'static str,
    log: Log,
}

impl<S> Service<DispatchRequest> for Recorder<S>
where
    S: Service<
            DispatchRequest,
            Response = rpcrdma::server::DispatchResponse,
            Error = BoxError,
            Future = DispatchFuture,
        >,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = DispatchFuture;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: DispatchRequest) -> DispatchFuture {
        let (layer, log) = (self.name, Arc::clone(&self.log));
        let (info, is_sys) = (request.info(), matches!(request.context().credential(), Credential::Sys(_)));
        let numbers = [request.program(), request.version(), request.procedure()];
        let call = (request.reduced_len(), request.format());
        assert!(request.inline_len() >= 40 && request.context().peer_addr().port() > 0);
        let called = self.inner.call(request);
        Box::pin(async move {
            let response = called.await?;
            let (status, reply) = (response.status(), (response.reduced_len(), response.format()));
            assert!(status != DispatchStatus::Success || response.inline_len() >= 24);
            log.lock().unwrap().push(Seen { layer, info, numbers, is_sys, call, status, reply });
            Ok(response)
        })
    }
}

fn recorder(name: &'static str, log: &Log) -> impl Layer<Dispatch, Service = Recorder<Dispatch>> + Send + Sync + use<> {
    let log = Arc::clone(log);
    layer_fn(move |inner| Recorder { inner, name, log: Arc::clone(&log) })
}

#[tokio::test]
async fn layers_see_calls_and_replies() {
    timed(async {
        let (log, transport) = (Log::default(), Transport::sim());
        let server = Server::builder()
            .service(TowerV1Server::new(Tower))
            .service(TestService::default())
            .layer(recorder("outer", &log))
            .layer(recorder("inner", &log));
        let running = transport.serve(server).await;
        let sys = Credential::sys("client.example", 1000, 100, [4]).to_opaque().unwrap();
        let channel = running.connect(Channel::builder().credential(sys)).await;
        let client = TowerV1Client::new(channel.clone());

        client.echo(&Blob { data: vec![7; 50_000].into() }).await.unwrap();
        let seen = std::mem::take(&mut *log.lock().unwrap());
        let echo = Seen {
            layer: "inner",
            info: seen[0].info,
            numbers: [0x2000_0778, 1, 1],
            is_sys: true,
            call: (50_000, MessageFormat::Chunked),
            status: DispatchStatus::Success,
            reply: (50_000, MessageFormat::Chunked),
        };
        assert_eq!(seen, [echo.clone(), Seen { layer: "outer", ..echo }]);
        let info = seen[0].info.unwrap();
        assert_eq!((info.name, info.idempotent), ("TOWER_V1.ECHO", true));

        // The reply to a call that fails, or whose handler panics, has the status that the client gets.
        let denied = AuthFailure::from(AuthStat::AuthTooweak);
        let errors = [RpcError::GarbageArguments, RpcError::Authentication(denied), RpcError::SystemError];
        for (n, error) in (0..).zip(errors) {
            let failed = client.fail(n).await.unwrap_err();
            assert!(matches!(failed, CallError::Rpc { source, .. } if source == error), "{failed:?}");
            let seen = std::mem::take(&mut *log.lock().unwrap());
            assert_eq!(seen.iter().map(|seen| seen.layer).collect::<Vec<_>>(), ["inner", "outer"]);
            assert!(seen.iter().all(|seen| seen.status == DispatchStatus::Error(error)), "{seen:?}");
            assert_eq!(seen[0].reply, (0, MessageFormat::Short));
        }
        // Another service, and a procedure that it does not have.
        call::<Echo>(&channel, &Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(log.lock().unwrap().pop().unwrap().info.unwrap().name, "TEST_V2.Echo");
        call::<Missing>(&channel, &()).await.unwrap_err();
        let missing = log.lock().unwrap().pop().unwrap();
        assert!(missing.info.is_none());
        assert_eq!(missing.status, DispatchStatus::Error(RpcError::ProcedureUnavailable));
    })
    .await;
}

/// A layer sees the deadline of the limits in force.
#[tokio::test]
async fn layers_see_the_deadline() {
    timed(async {
        let deadlines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&deadlines);
        let note = move |request: DispatchRequest| {
            seen.lock().unwrap().push(request.deadline());
            request
        };
        let hour = Duration::from_secs(3600);
        let server = Server::builder()
            .service(TestService::default())
            .limits(ProcedureId::of::<Echo>(), Limits::new().deadline(hour))
            .layer(ServiceBuilder::new().map_request(note).into_inner());
        let channel = Transport::sim().serve(server).await.connect(Channel::builder()).await;
        let before = std::time::Instant::now();
        call::<Echo>(&channel, &Bytes::from_static(b"x")).await.unwrap();
        let after = std::time::Instant::now();
        call::<Sleep>(&channel, &0).await.unwrap();
        let [Some(deadline), None] = deadlines.lock().unwrap()[..] else { panic!("{deadlines:?}") };
        assert!(before + hour <= deadline && deadline <= after + hour);
    })
    .await;
}

/// The format of a reply that fits neither inline nor into the chunks of the call: version 2 continues it, and version
/// 1 sends a transport error.
#[tokio::test]
async fn formats_of_replies_that_are_too_long() {
    timed(async {
        for (version, format) in [(1, MessageFormat::Short), (2, MessageFormat::Continued)] {
            let log = Log::default();
            let server = Server::builder().service(TestService::default()).layer(recorder("only", &log));
            let builder = Channel::builder().versions(Versions::try_from(version).unwrap());
            let channel = Transport::sim().serve(server).await.connect(builder).await;
            // The caller promises a shorter reply, so the call provides no Reply chunk.
            let options = CallOptions::new().reply_bounds(ReplyBounds::new(100, &[]));
            let echoed = channel.call::<Echo>(&vec![1; 6000].into(), options).await;
            assert_eq!(echoed.is_err(), version == 1, "{echoed:?}");
            assert_eq!(log.lock().unwrap()[0].reply, (0, format), "version {version}");
        }
    })
    .await;
}

/// Starts a server of the test service within `layer`. Returns it with its state and a channel to it.
async fn layered<L>(layer: L) -> (Running, Arc<State>, Channel)
where
    L: Layer<Dispatch> + Send + Sync + 'static,
    L::Service: Service<
            DispatchRequest,
            Response = rpcrdma::server::DispatchResponse,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = Transport::sim().serve(Server::builder().service(service).layer(layer)).await;
    let channel = running.connect(Channel::builder()).await;
    (running, state, channel)
}

fn status(error: &CallError) -> RpcError {
    let CallError::Rpc { source, .. } = error else { panic!("{error:?}") };
    *source
}

#[tokio::test(start_paused = true)]
async fn a_handler_times_out() {
    timed(async {
        let layer = ServiceBuilder::new().timeout(Duration::from_secs(1)).into_inner();
        let (_server, state, channel) = layered(layer).await;
        assert_eq!(call::<Echo>(&channel, &"in time".into()).await.unwrap(), "in time");
        assert_eq!(status(&call::<Gate>(&channel, &1).await.unwrap_err()), RpcError::SystemError);
        state.gate.add_permits(1);
        assert_eq!(call::<Gate>(&channel, &2).await.unwrap(), 2, "the first handler was dropped");
        assert_eq!(state.finished.load(Ordering::SeqCst), 1);
    })
    .await;
}

/// The name of a caller, as a layer knows it.
#[derive(Debug, Clone, PartialEq)]
struct Name(String);

/// A service that returns the caller's name.
struct Greeter;

impl TowerV1 for Greeter {
    async fn echo(&self, cx: &Context, _args: Blob) -> Result<Blob, HandlerError> {
        // Also in clones, and after other calls had their turn.
        let cx = cx.clone();
        tokio::task::yield_now().await;
        let Some(Name(name)) = cx.extensions().get() else {
            return Err(HandlerError::Rejected(AuthStat::AuthTooweak.into()));
        };
        assert_eq!(cx.extensions().get::<String>(), None);
        Ok(Blob { data: name.clone().into() })
    }

    async fn fail(&self, _cx: &Context, _args: u32) -> Result<(), HandlerError> {
        Ok(())
    }
}

/// A layer passes the name of the caller to the handler as an extension of the call. An inner layer can change the
/// extension. Other calls of the connection do not have it.
#[tokio::test(start_paused = true)]
async fn layers_add_extensions() {
    timed(async {
        let identify = tower::util::MapRequestLayer::new(|mut request: DispatchRequest| {
            if let Credential::Sys(sys) = request.context().credential() {
                let name = Name(format!("user {}", sys.uid));
                assert_eq!(request.extensions_mut().insert(name), None);
            }
            request
        });
        let rename = tower::util::MapRequestLayer::new(|mut request: DispatchRequest| {
            if let Some(Name(name)) = request.extensions_mut().get_mut()
                && name == "user 0"
            {
                *name = "nobody".to_owned();
            }
            request
        });
        let server = Server::builder().service(TowerV1Server::new(Greeter)).layer(identify).layer(rename);
        let running = Transport::sim().serve(server).await;
        let client = TowerV1Client::new(running.connect(Channel::builder()).await);
        let greet = |uid: Option<u32>| {
            let client = client.clone();
            async move {
                let sys = uid.map(|uid| Credential::sys("client", uid, 1, []).to_opaque().unwrap());
                let options = sys.map_or_else(CallOptions::new, |sys| CallOptions::new().credential(sys));
                client.echo_with(&Blob::default(), options).await.map(|blob| blob.data)
            }
        };
        for _ in 0..2 {
            let (seven, eight, nobody, none) =
                tokio::join!(greet(Some(7)), greet(Some(8)), greet(Some(0)), greet(None));
            assert_eq!((&seven.unwrap()[..], &eight.unwrap()[..]), (&b"user 7"[..], &b"user 8"[..]));
            assert_eq!(&nobody.unwrap()[..], b"nobody");
            assert_eq!(status(&none.unwrap_err()), RpcError::Authentication(AuthStat::AuthTooweak.into()));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn handlers_are_limited() {
    timed(async {
        let (_server, state, channel) = layered(ServiceBuilder::new().concurrency_limit(2).into_inner()).await;
        let calls: Vec<_> = (0..6)
            .map(|n| {
                let channel = channel.clone();
                tokio::spawn(async move { call::<Gate>(&channel, &n).await })
            })
            .collect();
        state.wait_started(2).await;
        state.gate.add_permits(6);
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap().unwrap(), n);
        }
        assert_eq!(state.most.load(Ordering::SeqCst), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn excess_calls_are_refused() {
    timed(async {
        let (_server, state, channel) =
            layered(ServiceBuilder::new().load_shed().concurrency_limit(1).into_inner()).await;
        let first = tokio::spawn({
            let channel = channel.clone();
            async move { call::<Gate>(&channel, &1).await }
        });
        state.wait_started(1).await;
        assert_eq!(status(&call::<Gate>(&channel, &2).await.unwrap_err()), RpcError::SystemError);
        state.gate.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_handlers_is_limited() {
    timed(async {
        let layer = ServiceBuilder::new().buffer(8).rate_limit(2, Duration::from_secs(1)).into_inner();
        let (_server, _, channel) = layered(layer).await;
        let started = tokio::time::Instant::now();
        for _ in 0..5 {
            call::<Echo>(&channel, &"x".into()).await.unwrap();
        }
        assert!(started.elapsed() >= Duration::from_secs(2), "five calls need a third period");
    })
    .await;
}

/// A layer that does not call the inner service refuses the call with a status of its choice.
#[tokio::test]
async fn a_layer_refuses_calls() {
    timed(async {
        #[derive(Clone)]
        struct Refuse;
        impl Service<DispatchRequest> for Refuse {
            type Response = rpcrdma::server::DispatchResponse;
            type Error = RpcError;
            type Future = Ready<Result<Self::Response, RpcError>>;
            fn poll_ready(&mut self, _cx: &mut TaskContext<'_>) -> Poll<Result<(), RpcError>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, request: DispatchRequest) -> Self::Future {
                ready(Err(match request.procedure() {
                    1 => AuthFailure::from(AuthStat::AuthTooweak).into(),
                    _ => RpcError::ProcedureUnavailable,
                }))
            }
        }
        let (_server, state, channel) = layered(layer_fn(|_: Dispatch| Refuse)).await;
        let denied = RpcError::Authentication(AuthStat::AuthTooweak.into());
        assert_eq!(status(&call::<Echo>(&channel, &"x".into()).await.unwrap_err()), denied);
        assert_eq!(status(&call::<Gate>(&channel, &1).await.unwrap_err()), RpcError::ProcedureUnavailable);
        assert_eq!(state.started.load(Ordering::SeqCst), 0);
    })
    .await;
}

/// A generated client can use a service that adds a credential to each call.
#[tokio::test]
async fn an_interceptor_adds_a_credential() {
    timed(async {
        let log = Log::default();
        let builder = Server::builder().service(TowerV1Server::new(Tower)).layer(recorder("only", &log));
        let running = Transport::sim().serve(builder).await;
        let sys = Credential::sys("client.example", 1000, 100, [4]).to_opaque().unwrap();
        let service = ServiceBuilder::new()
            .map_request(move |request: CallRequest| request.map_options(|options| options.credential(sys.clone())))
            .service(running.connect(Channel::builder()).await);
        let client = TowerV1Client::new(ServiceCaller::new(service));
        let blob = Blob { data: vec![7; 3000].into() };
        assert_eq!(client.echo(&blob).await.unwrap(), blob);
        assert_eq!(client.echo_view(&blob, CallOptions::new(), |blob| blob.data.len()).await.unwrap(), 3000);
        let seen = log.lock().unwrap();
        assert!(seen.len() == 2 && seen.iter().all(|seen| seen.is_sys), "{seen:?}");
    })
    .await;
}
