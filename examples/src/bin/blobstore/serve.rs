//! `blobstore serve`, and the server process of `blobstore demo`.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;
use rpcrdma::server::{Server, ServerBuilder};
use rpcrdma_examples::{
    blobstore::{
        protocol::blobstore_v1::BlobstoreV1Server,
        service::BlobService,
        store::{Store, StoreOptions},
    },
    command::{self, RpcRdmaVersion, Stop},
    say,
};
use tokio::{io::AsyncReadExt as _, task::spawn_blocking};

use crate::cli::{DemoServerArgs, ServeArgs};

/// Runs `blobstore serve`.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let options = StoreOptions::default().with_max_blob(args.max_blob);
    let server = start(&args.root, options, &args.listen, args.rpcrdma).await?;
    until_stopped(server).await
}

/// Prints the server's URLs, and serves until a signal stops it.
pub(crate) async fn until_stopped(server: Server) -> anyhow::Result<()> {
    // Install the signal handlers before printing the URLs: whoever reads them may send a signal at once.
    let stop = Stop::new().context("cannot catch signals")?;
    for url in server.urls() {
        say!("listening on {url}");
    }
    let handle = server.handle();
    command::serve(server.serve(), stop, || handle.shutdown()).await;
    Ok(())
}

/// Runs the server process of `blobstore demo`: prints its URL, and exits when its standard input closes. The pipe
/// closes however the parent process ends.
pub(crate) async fn run_for_demo(args: DemoServerArgs) -> anyhow::Result<()> {
    let server =
        start(&args.root, StoreOptions::default(), &["iwarp://127.0.0.1:0".to_owned()], RpcRdmaVersion::default())
            .await?;
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

/// Opens the store in `root` and binds the server.
async fn start(
    root: &Path,
    options: StoreOptions,
    listen: &[String],
    rpcrdma: RpcRdmaVersion,
) -> anyhow::Result<Server> {
    let open = {
        let root = root.to_owned();
        move || Store::open(&root, options)
    };
    let store = spawn_blocking(open).await?;
    let store = store.with_context(|| format!("cannot open the store in {}", root.display()))?;
    let service = BlobstoreV1Server::new(BlobService::new(Arc::new(store)));
    let builder = Server::builder().service(service).versions(rpcrdma.allowed());
    Ok(listen.iter().fold(builder, ServerBuilder::listen).bind().await?)
}
