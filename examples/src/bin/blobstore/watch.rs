//! `blobstore watch`, which prints changes as the server reports them.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Error};
use rpcrdma_examples::blobstore::{
    ValidName,
    protocol::{BlobChange, BlobStatus, ChangeDetail},
    transfer::{RefusedStatus, TransferError},
    watch::Watcher,
};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use crate::{
    cli::WatchArgs,
    connect::{Connection, explain},
    files, show,
};

/// Maximum number of changes that wait to be printed. The server waits if there are more.
const ROOM: usize = 64;

/// Runs `blobstore watch`: prints changes to blobs, and mirrors the blobs in a directory on request.
pub(crate) async fn run(args: WatchArgs) -> anyhow::Result<()> {
    if let Some(dir) = &args.into {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let (watcher, mut changes) = Watcher::new(ROOM);
    let connection = Connection::open_watching(&args.server, args.moving, watcher).await?;
    let failed = |error| explain(error, &args.server.url);
    connection.blobs().watch(&args.prefix).await.map_err(failed).context("cannot watch for changes")?;
    // Scripts wait for this line. The changes go to standard output.
    eprintln!("watching {}", args.server.url);
    let mut printed = 0;
    while args.count.is_none_or(|count| printed < count) {
        let change = tokio::select! {
            change = changes.recv() => change.context("the callback service has stopped")?,
            reason = connection.channel().closed() => return Err(Error::new(reason).context(args.server.url.clone())),
        };
        printed += 1;
        let line = line(&change);
        if let Some(dir) = &args.into {
            let name =
                ValidName::parse(change.name.0.as_bytes()).context("the server reported an invalid blob name")?;
            let followed = follow(&connection, dir, &name, &change.detail).await;
            followed.map_err(|error| error.context(format!("cannot apply the change: {line}")))?;
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

/// Applies a change to `dir`. Ignores a stored blob that was deleted or replaced before it was fetched, because the
/// server reports that change as well.
async fn follow(connection: &Connection, dir: &Path, name: &ValidName, detail: &ChangeDetail) -> anyhow::Result<()> {
    // `ValidName` guarantees that no part is empty, "." or "..".
    let path: PathBuf = dir.join(name.as_str());
    match detail {
        ChangeDetail::BlobStored(_) => {
            let parent = path.parent().unwrap_or(dir).to_owned();
            fs::create_dir_all(&parent)?;
            let partial = NamedTempFile::new_in(parent)?;
            match connection.blobs().download(name, partial, |_, _| {}).await {
                Ok((partial, _, _)) => spawn_blocking(move || files::keep(partial, &path)).await?,
                // The blob was deleted or replaced in the meantime.
                Err(TransferError::Refused(RefusedStatus(BlobStatus::BlobNoSuchBlob | BlobStatus::BlobChanged))) => {
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        }
        ChangeDetail::BlobDeleted => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        },
    }
}
