//! The commands `put`, `get`, `ls`, `stat` and `rm`.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rpcrdma_examples::blobstore::{
    ValidName,
    protocol::{BLOB_ATTACHMENT_MAX, BlobStatus},
    transfer::{RefusedStatus, TransferError},
};
use rpcrdma_examples::say;
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use crate::{
    cli::{BlobArgs, GetArgs, LsArgs, PutArgs, TransferArgs},
    connect::{Connection, explain},
    show,
};

impl Default for TransferArgs {
    fn default() -> Self {
        Self { range: 1 << 20, depth: 8 }
    }
}

/// Runs `blobstore put`: stores a file or standard input as a blob.
pub(crate) async fn put(args: PutArgs) -> anyhow::Result<()> {
    let name = &args.blob.name;
    let path = args.file.unwrap_or_else(|| PathBuf::from(name.as_str()));
    let attach = args.attach;
    // Reading from a pipe may block, so it runs on another thread.
    let read = move || {
        let source = open_source(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let attachment = match &attach {
            Some(path) => read_attachment(path).with_context(|| format!("cannot read {}", path.display()))?,
            None => Vec::new(),
        };
        Ok::<_, anyhow::Error>((source, attachment))
    };
    let ((source, size), attachment) = spawn_blocking(read).await??;

    let connection = Connection::open_several(&args.blob.server, args.moving, &args.pool).await?;
    let bar = show::progress_bar(name.as_str(), size);
    let stored = connection.blobs().upload(name, source, size, attachment.into(), |len| bar.inc(len)).await;
    bar.finish_and_clear();
    let stat = stored
        .map_err(|error| explain(error, &args.blob.server.url))
        .with_context(|| format!("cannot store {name}"))?;
    say!("{}  {}", show::digest(&stat.digest.0), name);
    Ok(())
}

/// Runs `blobstore get`: fetches a blob to a file or standard output.
pub(crate) async fn get(args: GetArgs) -> anyhow::Result<()> {
    let name = &args.blob.name;
    let path = args.file.unwrap_or_else(|| PathBuf::from(name.last_part()));
    let connection = Connection::open_several(&args.blob.server, args.moving, &args.pool).await?;
    let bar = show::progress_bar(name.as_str(), 0);
    let progress = |total, done| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let failed = |error| explain(error, &args.blob.server.url).context(format!("cannot fetch {name}"));
    let (stat, attachment) = if path == Path::new("-") {
        let got = connection.blobs().download(name, io::stdout(), progress).await;
        bar.finish_and_clear();
        let (_, stat, attachment) = got.map_err(failed)?;
        (stat, attachment)
    } else {
        let cannot_write = || format!("cannot write {}", path.display());
        // The temporary file is in the target's directory, so that it can be renamed to the target.
        let partial = NamedTempFile::new_in(parent(&path)).with_context(cannot_write)?;
        let got = connection.blobs().download(name, partial, progress).await;
        bar.finish_and_clear();
        let (partial, stat, attachment) = got.map_err(failed)?;
        keep(partial, &path).with_context(cannot_write)?;
        say!("{}  {}", show::digest(&stat.digest.0), path.display());
        (stat, attachment)
    };
    if let Some(path) = args.attachment {
        fs::write(&path, &attachment).with_context(|| format!("cannot write {}", path.display()))?;
    } else if stat.attachment_len > 0 && path != Path::new("-") {
        say!(
            "The blob has an attachment of {}; use --attachment FILE to fetch it.",
            show::human_bytes(stat.attachment_len.into())
        );
    }
    Ok(())
}

/// Runs `blobstore ls`: lists the blobs whose names begin with a prefix.
pub(crate) async fn ls(args: LsArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.server, TransferArgs::default()).await?;
    let failed = |error| explain(error, &args.server.url);
    // The server lists names in byte order, so all names with the prefix follow the prefix. A listing starts after its
    // cookie, so a blob whose name equals the prefix is looked up separately.
    let mut page = Vec::new();
    if let Ok(name) = args.prefix.parse::<ValidName>() {
        match connection.blobs().stat(&name).await {
            Ok(stat) => page.push((name, stat)),
            Err(TransferError::Refused(RefusedStatus(BlobStatus::BlobNoSuchBlob))) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let mut cookie = Some(args.prefix.clone());
    let mut out = io::stdout().lock();
    loop {
        for (name, stat) in page {
            if !name.as_str().starts_with(&args.prefix) {
                return Ok(());
            }
            let line = if args.long {
                let (digest, time) = (show::digest(&stat.digest.0), show::time(stat.modified));
                format!("{digest:.16}  {:>14}  {time}  {name}", stat.size)
            } else {
                name.to_string()
            };
            match writeln!(out, "{line}") {
                // The reader has closed the pipe, as `head` does.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        let Some(at) = cookie else { return Ok(()) };
        let (entries, next) = connection.blobs().list(&at).await.map_err(failed)?;
        page = entries;
        cookie = next;
    }
}

/// Runs `blobstore stat`: prints the properties of a blob.
pub(crate) async fn stat(args: BlobArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.server, TransferArgs::default()).await?;
    let found = connection.blobs().stat(&args.name).await;
    let stat = found.map_err(|error| explain(error, &args.server.url)).with_context(|| args.name.to_string())?;
    say!("name        {}", args.name);
    say!("size        {} ({})", stat.size, show::human_bytes(stat.size));
    say!("attachment  {} ({})", stat.attachment_len, show::human_bytes(stat.attachment_len.into()));
    say!("stored      {}", show::time(stat.modified));
    say!("BLAKE3      {}", show::digest(&stat.digest.0));
    Ok(())
}

/// Runs `blobstore rm`: deletes a blob.
pub(crate) async fn rm(args: BlobArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.server, TransferArgs::default()).await?;
    let deleted = connection.blobs().delete(&args.name).await;
    deleted.map_err(|error| explain(error, &args.server.url)).with_context(|| format!("cannot delete {}", args.name))
}

/// Opens the file to store, and returns it with its length in bytes. `-` is standard input. Standard input, and input
/// of unknown length such as a pipe, is first copied to a temporary file.
fn open_source(path: &Path) -> anyhow::Result<(File, u64)> {
    if path == Path::new("-") {
        return spool(&mut io::stdin().lock());
    }
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        bail!("is a directory");
    }
    if meta.is_file() { Ok((file, meta.len())) } else { spool(&mut file) }
}

fn spool(source: &mut dyn io::Read) -> anyhow::Result<(File, u64)> {
    let mut file = tempfile::tempfile()?;
    let len = io::copy(source, &mut file)?;
    io::Seek::rewind(&mut file)?;
    Ok((file, len))
}

fn read_attachment(path: &Path) -> anyhow::Result<Vec<u8>> {
    let limit = u64::from(BLOB_ATTACHMENT_MAX);
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, limit + 1), &mut bytes)?;
    if bytes.len() as u64 > limit {
        bail!("attachment too large: the limit is {}", show::human_bytes(limit));
    }
    Ok(bytes)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs a complete temporary file, and moves it to `path`. The file gets the permissions that a new file would have.
pub(crate) fn keep(partial: NamedTempFile, path: &Path) -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // A probe file in the same directory shows which permissions the umask leaves.
        let probe =
            tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o666)).tempfile_in(parent(path))?;
        partial.as_file().set_permissions(probe.as_file().metadata()?.permissions())?;
    }
    partial.as_file().sync_all()?;
    partial.persist(path)?;
    Ok(())
}
