//! The program `nfscp`, which copies files and directory trees to or from an NFS version 3 server. See `nfscp --help`.
#![forbid(unsafe_code)]

mod cli;
mod show;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use rpcrdma::client::ConnectError;
use rpcrdma_examples::{
    command::{self, unless_stopped},
    nfscp::{
        copy::CopyOptions,
        error::CopyError,
        location::{Location, NfsUrl},
        session::Session,
    },
};

use crate::{
    cli::Cli,
    show::{FinalReport, ProgressReporter},
};

const NAME: &str = "nfscp";

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    // Reads the umask, so it must run before any thread starts.
    let options = cli.copy_options();
    let jobs = match jobs(&cli) {
        Ok(jobs) => jobs,
        Err(error) => {
            command::print_error(NAME, format_args!("{error:#}"));
            return ExitCode::from(2);
        }
    };
    command::run(NAME, unless_stopped(run(&cli, &jobs, options)))
}

/// The copies that the command line requests.
enum Jobs {
    Upload(Vec<PathBuf>, NfsUrl),
    Download(Vec<NfsUrl>, PathBuf),
}

impl Jobs {
    /// Returns one of the URLs. All of them must name the same server.
    fn url(&self) -> Option<&NfsUrl> {
        match self {
            Self::Upload(_, url) => Some(url),
            Self::Download(urls, _) => urls.first(),
        }
    }
}

fn jobs(cli: &Cli) -> anyhow::Result<Jobs> {
    let places: Result<Vec<_>, _> = cli.places.iter().cloned().map(Location::parse).collect();
    let mut places = places?;
    let target = places.pop().context("nothing to copy")?;
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    for place in places {
        match place {
            Location::Local(path) => local.push(path),
            Location::Remote(url) => remote.push(url),
        }
    }
    match target {
        Location::Remote(url) if remote.is_empty() => Ok(Jobs::Upload(local, url)),
        Location::Remote(_) => bail!("cannot copy from server to server: copy to a local directory first"),
        Location::Local(path) if local.is_empty() => Ok(Jobs::Download(remote, path)),
        Location::Local(_) if remote.is_empty() => bail!("no path is on a server: use `cp` for local files"),
        Location::Local(_) => bail!("cannot mix local and remote sources"),
    }
}

async fn run(cli: &Cli, jobs: &Jobs, options: CopyOptions) -> anyhow::Result<ExitCode> {
    let url = jobs.url().context("nothing to copy")?;
    let (nfs, mount) = cli.options()?;
    let begin = Instant::now();
    let connected = Session::connect(url, nfs, mount, cli.sec.clone(), cli.root_handle.clone()).await;
    if let Err(CopyError::Connect(ConnectError::Url(error))) = &connected {
        command::print_error(NAME, error);
        return Ok(ExitCode::from(2));
    }
    let mut session = connected
        .map_err(|error| match &error {
            CopyError::Connect(error) => anyhow!(command::explain_connect_error(error)),
            _ => error.into(),
        })
        .with_context(|| format!("cannot use {}", url.transport_url()))?;
    let show = ProgressReporter::new(cli);
    let copied = match jobs {
        Jobs::Upload(sources, target) => session.upload(sources, target, options, &show).await,
        Jobs::Download(sources, target) => session.download(sources, target, options, &show).await,
    };
    show.finish();
    let done = FinalReport {
        url: session.url().to_owned(),
        took: begin.elapsed(),
        most_in_flight: session.most_in_flight(),
        counters: session.server().channels().counters(),
        formats: session.server().channels().formats(),
        info: session.server().channels().first().info(),
        counts: copied.as_ref().copied().unwrap_or_default(),
        error: copied.as_ref().err().map(|error| command::chain(error)),
    };
    // Ignore write errors: the reader of standard output may have exited.
    let _ = if cli.json {
        done.print_json()
    } else if cli.quiet || copied.is_err() {
        Ok(())
    } else {
        done.print()
    };
    // No call is in flight any more, and the server may be unreachable, so the wait is bounded.
    let _ = tokio::time::timeout(Duration::from_secs(2), session.close()).await;
    Ok(if copied?.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
