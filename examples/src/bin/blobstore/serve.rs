//! `blobstore serve`, and the server process of `blobstore demo`.

use std::{future::Future, io::Write as _, path::Path, sync::Arc};

use anyhow::Context as _;
use rpcrdma::{
    server::Server,
    transport::{Scheme, Url},
};
use rpcrdma_examples::blobstore::{
    protocol::blobstore_v1::BlobstoreV1Server,
    service::BlobService,
    store::{Store, StoreOptions},
};
use tokio::{io::AsyncReadExt as _, signal};

use crate::cli::{DemoServerArgs, ServeArgs};

/// `blobstore serve`
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let server = Running::start(&args.root, StoreOptions::default().with_max_blob(args.max_blob), &args.listen).await?;
    for url in server.urls() {
        println!("listening on {url}");
    }
    server.until(stop_signal()).await
}

/// What `blobstore demo` starts: prints its URL, and ends when its standard input does, as the pipe to the parent breaks
/// however the parent ends.
pub(crate) async fn run_for_demo(args: DemoServerArgs) -> anyhow::Result<()> {
    let server = Running::start(&args.root, StoreOptions::default(), &["iwarp://127.0.0.1:0".to_owned()]).await?;
    for url in server.urls() {
        println!("{url}");
    }
    std::io::stdout().flush()?;
    let parent_gone = async {
        let mut octet = [0];
        while matches!(tokio::io::stdin().read(&mut octet).await, Ok(1..)) {}
    };
    server.until(parent_gone).await
}

struct Running {
    server: Server,
}

impl Running {
    async fn start(root: &Path, options: StoreOptions, listen: &[String]) -> anyhow::Result<Self> {
        let open = {
            let root = root.to_owned();
            move || Store::open(&root, options)
        };
        let store = tokio::task::spawn_blocking(open).await?;
        let store = store.with_context(|| format!("cannot open the store in {}", root.display()))?;
        let service = BlobstoreV1Server::new(BlobService::new(Arc::new(store)));
        let mut builder = Server::builder().service(service);
        for url in listen {
            builder = builder.listen(url);
        }
        let server = builder.bind().await?;
        Ok(Self { server })
    }

    fn urls(&self) -> Vec<String> {
        self.server.local_addrs().into_iter().map(|addr| Url::new(Scheme::Iwarp, addr).to_string()).collect()
    }

    /// Serves until `stop`, then finishes the calls under way.
    async fn until(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let handle = self.server.handle();
        let serving = self.server.serve();
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => return Ok(()),
            () = stop => handle.shutdown(),
        }
        tracing::info!("shutting down");
        tokio::select! {
            () = &mut serving => {}
            () = stop_signal() => tracing::warn!("calls under way are cut off"),
        }
        Ok(())
    }
}

/// Ctrl-C, or on Unix the signal by which service managers ask a process to end.
async fn stop_signal() {
    #[cfg(unix)]
    {
        use signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Where no signal can be awaited, the server runs until it is killed: the store is made for that.
    if signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
