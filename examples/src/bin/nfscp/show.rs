//! Output of progress, warnings and the final report.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use indicatif::ProgressBar;
use rpcrdma::{
    client::{CallFormats, ChannelInfo},
    engine::ConnectionCounters,
    transport::Transport,
};
use rpcrdma_examples::{
    command::{self, progress_bar},
    nfscp::{
        copy::{CopyObserver, Counts},
        error::CopyError,
    },
};
use rpcrdma_specs::nfs3::Nfsstat3;
use serde_json::json;

use crate::{NAME, cli::Cli};

/// The progress bar and the warnings of a copy.
pub(crate) struct ProgressReporter {
    bar: ProgressBar,
    digests: bool,
    /// `true` until the hint about root squashing has been printed. Always `false` if the calls are not made as root.
    root: AtomicBool,
}

impl ProgressReporter {
    pub(crate) fn new(cli: &Cli) -> Self {
        let bar = if cli.quiet { ProgressBar::hidden() } else { progress_bar("", 0) };
        Self { bar, digests: !cli.json && !cli.quiet, root: AtomicBool::new(cli.user() == 0) }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn complain(&self, what: std::fmt::Arguments<'_>) {
        self.bar.suspend(|| {
            command::print_error(NAME, what);
        });
    }
}

/// Returns a path as text that is safe to print. The server chooses names, and terminals interpret control characters.
fn plain(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "\u{fffd}")
}

impl CopyObserver for ProgressReporter {
    fn found(&self, path: &Path, bytes: u64) {
        self.bar.inc_length(bytes);
        self.bar.set_message(plain(Path::new(path.file_name().unwrap_or_default())));
    }

    fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn verified(&self, path: &Path, digest: &blake3::Hash) {
        if self.digests {
            self.bar.suspend(|| {
                let _ = writeln!(io::stdout(), "{digest}  {}", plain(path));
            });
        }
    }

    fn skipped(&self, path: &Path, why: &str) {
        self.complain(format_args!("{} skipped: {why}", plain(path)));
    }

    fn failed(&self, path: &Path, error: &CopyError) {
        self.complain(format_args!("{}: {}", plain(path), command::chain(error)));
        let denied = matches!(error.status(), Some(Nfsstat3::Acces | Nfsstat3::Perm));
        if denied && self.root.swap(false, Ordering::Relaxed) {
            self.complain(format_args!(
                "most servers map root to an anonymous user (no_root_squash disables this); use --uid and --gid to call as another user"
            ));
        }
    }
}

/// The results of a run of `nfscp`, which are printed as text or as JSON.
pub(crate) struct FinalReport {
    pub(crate) url: String,
    pub(crate) took: Duration,
    /// Largest number of READs and WRITEs that were in flight at the same time.
    pub(crate) most_in_flight: usize,
    pub(crate) counters: ConnectionCounters,
    pub(crate) formats: CallFormats,
    pub(crate) info: ChannelInfo,
    pub(crate) counts: Counts,
    pub(crate) error: Option<String>,
}

impl FinalReport {
    fn per_second(&self) -> f64 {
        self.counts.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        let Counts { files, directories, symlinks, failed, bytes, sent_again, .. } = self.counts;
        let mut out = io::stdout().lock();
        write!(out, "{files} files")?;
        for (count, what) in [(directories, "directories"), (symlinks, "symbolic links")] {
            if count > 0 {
                write!(out, ", {count} {what}")?;
            }
        }
        let (seconds, rate) = (self.took.as_secs_f64(), command::human_bytes(self.per_second() as u64));
        writeln!(out, ": {} in {seconds:.2} s, {rate}/s", command::human_bytes(bytes))?;
        if sent_again > 0 {
            writeln!(out, "{} sent again because the server lost uncommitted data", command::human_bytes(sent_again))?;
        }
        if failed > 0 {
            writeln!(out, "{failed} could not be copied")?;
        }
        out.flush()
    }

    pub(crate) fn print_json(&self) -> io::Result<()> {
        let counters = &self.counters;
        let report = json!({
            "url": self.url,
            "copied": self.counts,
            "seconds": self.took.as_secs_f64(),
            "bytes_per_second": self.per_second(),
            "most_in_flight": self.most_in_flight,
            "connection": {
                "transport": if self.info.transport == Transport::Rdma { "rdma" } else { "tcp" },
                "peer": self.info.peer_addr.to_string(),
                "credits": counters.credits_granted,
                "calls": counters.calls_sent,
                "replies": counters.replies_received,
                "read_by_peer_bytes": counters.read_by_peer_bytes,
                "written_by_peer_bytes": counters.written_by_peer_bytes,
                "copied_eligible_bytes": counters.copied_eligible_bytes,
                "chunked_calls": self.formats.calls.chunked,
                "chunked_replies": self.formats.replies.chunked,
                "registrations": counters.registrations,
                "remote_invalidations": counters.remote_invalidations,
                "exposed": counters.exposed_regions,
                "calls_abandoned": counters.calls_abandoned,
                "errors_received": counters.errors_received,
            },
            "error": self.error,
        });
        writeln!(io::stdout(), "{report:#}")
    }
}
