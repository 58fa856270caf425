//! `blobstore serve`, and the server process of `blobstore demo`.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use anyhow::Context as _;
use rpcrdma::server::{Server, ServerBuilder, ServerHandle};
use rpcrdma_examples::{
    blobstore::{
        protocol::blobstore_v1::BlobstoreV1Server,
        service::BlobService,
        store::{Store, StoreOptions},
    },
    command::{self, Health, RpcRdmaVersion, Stop},
    say,
};
use tokio::{io::AsyncReadExt as _, runtime::Builder, sync::oneshot, task::spawn_blocking};

use crate::cli::{DemoServerArgs, ServeArgs};

/// Runs `blobstore serve`.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let health = args.metrics.start().await?;
    let options = StoreOptions::default().with_max_blob(args.max_blob);
    let (server, others) = start(&args.root, options, &args.listen, args.rpcrdma, args.threads.servers(), {
        let secure = args.sec.authenticator(true)?;
        let tls = args.tls.read()?;
        move |builder| args.drain.apply(args.introspection.apply(tls.apply(secure(builder))))
    })
    .await?;
    #[cfg(unix)]
    let registered = {
        use rpcrdma_examples::blobstore::protocol::blobstore_v1::{PROGRAM, VERSION};
        let programs = [(PROGRAM, VERSION)];
        args.register.register(&programs, server.urls(), &server.handle()).await?
    };
    until_stopped(server, others, &health).await?;
    #[cfg(unix)]
    registered.removed().await;
    Ok(())
}

/// A server with a thread and a runtime of its own.
pub(crate) struct OtherServer {
    handle: ServerHandle,
    thread: JoinHandle<()>,
}

/// Binds `count` servers that share their ports. The first one is for the current runtime; each of the others runs in a new
/// thread with a runtime of its own.
pub(crate) async fn bind_all(
    builder: impl Fn() -> ServerBuilder,
    listen: &[String],
    count: usize,
) -> anyhow::Result<(Server, Vec<OtherServer>)> {
    let share = count > 1;
    let server = listen.iter().fold(builder().share_ports(share), ServerBuilder::listen).bind().await?;
    let mut others = Vec::new();
    for _ in 1..count {
        // The URLs of the first server, because these have the ports that it got for port 0.
        others.push(spawn_server(server.urls().iter().fold(builder().share_ports(true), ServerBuilder::listen)).await?);
    }
    Ok((server, others))
}

/// Binds a server in a new thread, in whose runtime it then serves until it is shut down.
async fn spawn_server(builder: ServerBuilder) -> anyhow::Result<OtherServer> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (bound, binding) = oneshot::channel();
    let serve = async move {
        match builder.bind().await {
            Ok(server) => {
                let _ = bound.send(Ok(server.handle()));
                server.serve().await;
            }
            Err(error) => {
                let _ = bound.send(Err(error));
            }
        }
    };
    let thread = thread::Builder::new().name("server".into()).spawn(move || runtime.block_on(serve))?;
    Ok(OtherServer { handle: binding.await??, thread })
}

/// Prints the URLs of `server`, and serves until a signal stops all servers.
pub(crate) async fn until_stopped(server: Server, others: Vec<OtherServer>, health: &Health) -> anyhow::Result<()> {
    // Install the signal handlers before printing the URLs: whoever reads them may send a signal at once.
    let stop = Stop::new().context("cannot catch signals")?;
    for url in server.urls() {
        say!("listening on {url}");
    }
    if let Some(url) = health.url() {
        say!("metrics on {url}");
    }
    let mut handles = vec![server.handle()];
    let mut threads = Vec::new();
    for other in others {
        handles.push(other.handle);
        threads.push(other.thread);
    }
    let serving = async {
        server.serve().await;
        for thread in threads {
            // A panic in a server's thread has been printed.
            let _ = spawn_blocking(move || thread.join()).await;
        }
    };
    command::serve(serving, stop, health, || handles.iter().for_each(ServerHandle::shutdown)).await;
    Ok(())
}

/// Runs the server process of `blobstore demo`: prints its URL, and exits when its standard input closes. The pipe
/// closes however the parent process ends.
pub(crate) async fn run_for_demo(args: DemoServerArgs) -> anyhow::Result<()> {
    let listen = ["iwarp://127.0.0.1:0".to_owned()];
    let (options, version) = (StoreOptions::default(), RpcRdmaVersion::default());
    let (server, _) = start(&args.root, options, &listen, version, 1, |builder| builder).await?;
    for url in server.urls() {
        say!("{url}");
    }
    io::stdout().flush()?;
    let parent_gone = async {
        let mut byte = [0];
        while matches!(tokio::io::stdin().read(&mut byte).await, Ok(1..)) {}
    };
    let (handle, serving) = (server.handle(), server.serve());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = parent_gone => {
            handle.shutdown();
            serving.await;
        }
    }
    Ok(())
}

/// Opens the store in `root` and binds its servers.
async fn start(
    root: &Path,
    options: StoreOptions,
    listen: &[String],
    rpcrdma: RpcRdmaVersion,
    servers: usize,
    configure: impl Fn(ServerBuilder) -> ServerBuilder,
) -> anyhow::Result<(Server, Vec<OtherServer>)> {
    let open = {
        let root = root.to_owned();
        move || Store::open(&root, options)
    };
    let store = spawn_blocking(open).await?;
    let store = store.with_context(|| format!("cannot open the store in {}", root.display()))?;
    let service = BlobstoreV1Server::new(BlobService::new(Arc::new(store)));
    let builder = || configure(Server::builder().service(service.clone())).versions(rpcrdma.allowed());
    bind_all(builder, listen, servers).await
}
