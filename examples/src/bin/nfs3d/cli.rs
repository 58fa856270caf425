//! The command-line arguments of `nfs3d`.

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use rpcrdma_examples::command::{
    ConnectionArgs, DrainArgs, IntrospectionArgs, Logging, MetricsArgs, RegisterArgs, ServerSec, ThreadArgs,
    TlsServerArgs, parse_seconds,
};

/// Export a directory tree with NFS version 3, over RDMA and TCP
#[derive(Debug, Parser)]
#[command(name = "nfs3d", version, after_help = AFTER)]
pub(crate) struct Cli {
    /// Directory to export; file systems mounted below it are excluded
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// URL to serve NFS on: rdma://, iwarp:// or tcp://ADDRESS:PORT; port 0 selects a free port. May be repeated
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) listen: Vec<String>,
    /// URL to serve the MOUNT protocol on: tcp://ADDRESS:PORT
    #[arg(long, value_name = "URL")]
    pub(crate) mount: String,
    /// URL to serve locks on, by NLM and NSM: tcp://ADDRESS:PORT. NSM is served over UDP as well. Needs --rpcbind for
    /// Linux's client
    #[arg(long, value_name = "URL")]
    pub(crate) locks: Option<String>,
    /// Seconds after a restart in which clients reclaim their locks, and no other locks are granted
    #[arg(long, value_name = "S", default_value = "45", value_parser = clap::builder::ValueParser::new(parse_seconds))]
    pub(crate) grace: Duration,
    /// Also serve access control lists (NFSACL), on the same URLs as NFS
    #[arg(long)]
    pub(crate) acl: bool,
    /// Path that clients mount. Default: the path of DIR. `/` is always accepted
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    pub(crate) export: Option<String>,
    /// Directory for the file handle key, which keeps file handles valid across restarts, and for the list of clients
    /// with locks; must be outside DIR. Default: $STATE_DIRECTORY, /var/lib/nfs3d (as root), or nfs3d in
    /// $XDG_STATE_HOME or ~/.local/state
    #[arg(long, value_name = "STATE_DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Do not map root on clients to the anonymous user
    #[arg(long, conflicts_with = "all_squash")]
    pub(crate) no_root_squash: bool,
    /// Map all users to the anonymous user
    #[arg(long)]
    pub(crate) all_squash: bool,
    /// UID of the anonymous user. Default: 65534, or the server's UID if it cannot act as other users
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    pub(crate) anon_uid: Option<u32>,
    /// GID of the anonymous user. Default: 65534, or the server's GID if it cannot act as other users
    #[arg(long, value_name = "GID", value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    pub(crate) anon_gid: Option<u32>,
    #[command(flatten)]
    pub(crate) sec: ServerSec,
    /// File with the users of Kerberos principals: lines with PRINCIPAL UID GID [GROUP..]. Default: the local user of
    /// the principal, or the anonymous user if there is none
    #[arg(long, value_name = "FILE", requires = "sec")]
    pub(crate) principals: Option<PathBuf>,
    /// Number of calls that each client connection may have in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) credits: u32,
    #[command(flatten)]
    pub(crate) tls: TlsServerArgs,
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) drain: DrainArgs,
    #[command(flatten)]
    pub(crate) register: RegisterArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) introspection: IntrospectionArgs,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

const AFTER: &str = "\
The server performs each call as the user in its AUTH_SYS credential, with the
permissions of this machine. It trusts the user IDs that clients send, unless
--sec allows only Kerberos. Acting as other users requires root.
Otherwise the server accepts calls of its own user only, or, with --all-squash,
performs all calls as its own user.

Limits: the options bound connections, calls, memory and time, and each client
host gets a share. Besides, 262144 entries of directories are kept in memory, or
one larger directory, and 4 large directories are read at a time. A READ or WRITE
transfers at most 4 MiB, or 3/8 of --max-memory if that is less.

Locks: with --locks and --rpcbind, clients can mount without `nolock`. A client
address may have 8192 locks, 256 of them blocked, and all clients 131072. The
host of the server must not run another lock manager or status monitor (rpc.statd),
so do not mount NFS 3 there without `nolock`.

Ctrl-C stops the server once the calls in progress have completed; a second
Ctrl-C stops it at once.

Examples:
  nfs3d --root /srv/data --listen rdma://0.0.0.0:20049 --mount tcp://0.0.0.0:20048
  nfs3d --root /srv/data --listen rdma://0.0.0.0:20049 --mount tcp://0.0.0.0:20048 \\
        --locks tcp://0.0.0.0:20051 --rpcbind
  nfs3d --root /srv/data --listen iwarp://0.0.0.0:20049 --listen tcp://0.0.0.0:2049 \\
        --mount tcp://0.0.0.0:20048

To mount /srv/data of the host `server` on a Linux client:
  mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock \\
        server:/srv/data /mnt
Leave out `nolock` if the server has --locks.

iwarp:// is a userspace implementation of iWARP. A Linux client connects to it
with an iWARP device, such as siw.";

fn absolute(path: &str) -> Result<String, String> {
    match path {
        _ if !path.starts_with('/') => Err("the path must begin with /".to_owned()),
        _ if path.len() > 1024 => Err("the path is longer than 1024 bytes, the limit of the MOUNT protocol".to_owned()),
        _ => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rpcrdma_examples::nfs3d::{DATA_MAX, MAX_ENTRIES, READERS, locking::LockLimits};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_states_the_limits() {
        let (entries, readers) = (MAX_ENTRIES, READERS);
        let help = AFTER.replace('\n', " ");
        assert!(
            help.contains(&format!("Besides, {entries} entries of")) && help.contains(&format!("and {readers} large"))
        );
        assert!(help.contains(&format!("WRITE transfers at most {} MiB, or", DATA_MAX >> 20)));
        let LockLimits { per_client, waiting_per_client, total, .. } = LockLimits::default();
        let locks =
            format!("may have {per_client} locks, {waiting_per_client} of them blocked, and all clients {total}.");
        assert!(help.contains(&locks));
    }

    #[test]
    fn anonymous_uid_cannot_be_minus_one() {
        let parse = |uid: &str| {
            Cli::try_parse_from([
                "nfs3d",
                "--root",
                "/",
                "--listen",
                "tcp://:1",
                "--mount",
                "tcp://:2",
                "--anon-uid",
                uid,
            ])
        };
        assert!(parse("65534").is_ok());
        assert!(parse("4294967295").is_err());
    }
}
