//! `blobstore watch`: changes as the server tells them.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Error};
use rpcrdma_examples::blobstore::{
    Name,
    protocol::{BlobChange, BlobStatus, ChangeDetail},
    transfer::{Refusal, TransferError},
    watch::Watcher,
};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use crate::{
    cli::WatchArgs,
    connect::{Connection, explain},
    files, show,
};

/// Changes that wait to be printed before the server waits.
const ROOM: usize = 64;

/// `blobstore watch`
pub(crate) async fn run(args: WatchArgs) -> anyhow::Result<()> {
    if let Some(dir) = &args.into {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let (watcher, mut changes) = Watcher::new(ROOM);
    let connection = Connection::open_watching(&args.server, args.moving, watcher).await?;
    let failed = |error| explain(error, &args.server.url);
    connection.blobs().watch(&args.prefix).await.map_err(failed).context("not watching")?;
    // For who waits for it; what is told is on standard output.
    eprintln!("watching {}", args.server.url);
    let mut told = 0;
    while args.count.is_none_or(|count| told < count) {
        let change = tokio::select! {
            change = changes.recv() => change.context("the watcher has ended")?,
            reason = connection.channel().disconnected() => return Err(Error::new(reason).context(args.server.url.clone())),
        };
        told += 1;
        let line = line(&change);
        if let Some(dir) = &args.into {
            let name =
                Name::parse(change.name.0.as_bytes()).context("the server told of a name that no blob may have")?;
            let followed = follow(&connection, dir, &name, &change.detail).await;
            followed.map_err(|error| error.context(format!("cannot follow: {line}")))?;
        }
        match writeln!(io::stdout(), "{line}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written?,
        }
    }
    connection.channel().close().await;
    Ok(())
}

fn line(change: &BlobChange) -> String {
    let missed = if change.missed == 0 { String::new() } else { format!("  ({} changes missed)", change.missed) };
    let name = String::from_utf8_lossy(change.name.0.as_bytes());
    match &change.detail {
        ChangeDetail::BlobStored(stat) => {
            format!("stored   {:.16}  {:>14}  {name}{missed}", show::digest(&stat.digest.0), stat.size)
        }
        ChangeDetail::BlobDeleted => format!("deleted  {:16}  {:>14}  {name}{missed}", "-", "-"),
    }
}

/// Makes `dir` have what the store has. What has changed again by then is told again, and followed then.
async fn follow(connection: &Connection, dir: &Path, name: &Name, detail: &ChangeDetail) -> anyhow::Result<()> {
    // Parts of a name are neither empty nor "." nor "..".
    let path: PathBuf = dir.join(name.as_str());
    match detail {
        ChangeDetail::BlobStored(_) => {
            let parent = path.parent().unwrap_or(dir).to_owned();
            fs::create_dir_all(&parent)?;
            let partial = NamedTempFile::new_in(parent)?;
            match connection.blobs().download(name, partial, |_, _| {}).await {
                Ok((partial, _, _)) => spawn_blocking(move || files::keep(partial, &path)).await?,
                // Deleted or replaced meanwhile.
                Err(TransferError::Refused(Refusal(BlobStatus::BlobNoSuchBlob | BlobStatus::BlobChanged))) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        ChangeDetail::BlobDeleted => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        },
    }
}
