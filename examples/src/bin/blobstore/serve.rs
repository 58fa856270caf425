//! `blobstore serve`, and the server process of `blobstore demo`.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;
use rpcrdma::{
    config::ConnectionConfig,
    server::{Server, ServerBuilder},
};
use rpcrdma_examples::{
    blobstore::{
        protocol::{BLOB_ATTACHMENT_MAX, BLOB_DATA_MAX, blobstore_v1::BlobstoreV1Server},
        service::BlobService,
        store::{Store, StoreOptions},
    },
    command::{self, Health, RpcRdmaVersion, RuntimeThreads, Stop, ThreadArgs},
    say,
};
use tokio::{io::AsyncReadExt as _, task::spawn_blocking};

use crate::cli::{DemoServerArgs, ServeArgs};

/// Runs `blobstore serve`: serves until a signal stops the server.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.connections.check_memory(u64::from(BLOB_DATA_MAX) + u64::from(BLOB_ATTACHMENT_MAX))?;
    let health = args.metrics.start().await?;
    let options = StoreOptions::default().with_max_blob(args.max_blob);
    let (server, threads) = start(&args.root, options, &args.listen, args.rpcrdma, args.threads, {
        let secure = args.sec.authenticator(true)?;
        let tls = args.tls.read()?;
        let listen = args.listen.clone();
        move |builder| {
            let builder = builder.connection(ConnectionConfig::new().pool(args.connections.pool()));
            let builder = args.drain.apply(args.introspection.apply(tls.apply(secure(builder))));
            args.connections.apply(builder, &listen)
        }
    })
    .await?;
    #[cfg(unix)]
    let registered = {
        use rpcrdma_examples::blobstore::protocol::blobstore_v1::{PROGRAM, VERSION};
        let programs = [(PROGRAM, VERSION)];
        args.register.register(&programs, server.urls(), &server.handle()).await?
    };
    until_stopped(server, threads, &health).await?;
    #[cfg(unix)]
    registered.removed().await;
    Ok(())
}

/// Prints the URLs of `server`, serves until a signal stops the server, and ends `threads`.
pub(crate) async fn until_stopped(server: Server, threads: RuntimeThreads, health: &Health) -> anyhow::Result<()> {
    // Install the signal handlers before printing the URLs: whoever reads them may send a signal at once.
    let stop = Stop::new().context("cannot catch signals")?;
    for url in server.urls() {
        say!("listening on {url}");
    }
    if let Some(url) = health.url() {
        say!("metrics on {url}");
    }
    let handle = server.handle();
    let serving = async {
        server.serve().await;
        threads.end().await;
    };
    command::serve(serving, stop, health, || handle.shutdown()).await;
    Ok(())
}

/// Runs the server process of `blobstore demo`. It prints its URL, and exits when its standard input closes. The pipe
/// closes in any case when the parent process ends.
pub(crate) async fn run_for_demo(args: DemoServerArgs) -> anyhow::Result<()> {
    let listen = ["iwarp://127.0.0.1:0".to_owned()];
    let (options, version) = (StoreOptions::default(), RpcRdmaVersion::default());
    let (server, _) =
        start(&args.root, options, &listen, version, ThreadArgs::new(1, false), |builder| builder).await?;
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

/// Opens the store in `root`, and binds a server for it.
async fn start(
    root: &Path,
    options: StoreOptions,
    listen: &[String],
    rpcrdma: RpcRdmaVersion,
    threads: ThreadArgs,
    configure: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> anyhow::Result<(Server, RuntimeThreads)> {
    let open = {
        let root = root.to_owned();
        move || Store::open(&root, options)
    };
    let store = spawn_blocking(open).await?;
    let store = store.with_context(|| format!("cannot open the store in {}", root.display()))?;
    let service = BlobstoreV1Server::new(BlobService::new(Arc::new(store)));
    // The store is serving until the shutdown begins.
    let health = rpcrdma::health::Health::new();
    let builder = configure(Server::builder().service(service).health(&health)).versions(rpcrdma.allowed());
    threads.bind(builder, listen).await
}
