//! The command line.

use std::path::PathBuf;

use clap::Parser;
use rpcrdma_examples::{
    command::{Logging, parse_size},
    nfs3d::DATA_MAX,
};

/// An NFS version 3 server over RDMA and TCP, for one directory tree.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER)]
pub(crate) struct Cli {
    /// Directory to export. Other file systems mounted below it are left out
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// Where to serve NFS: rdma://, iwarp:// or tcp://ADDRESS:PORT; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) listen: Vec<String>,
    /// Where to serve MOUNT, by which clients begin: tcp://ADDRESS:PORT
    #[arg(long, value_name = "URL")]
    pub(crate) mount: String,
    /// Path that clients mount the export by; without it, DIR's own. `/` always works
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    pub(crate) export: Option<String>,
    /// Folder that keeps the key of the file handles, so that they outlive a restart. Not in DIR. Without it
    /// $STATE_DIRECTORY, /var/lib/nfs3d (as root), or nfs3d in $XDG_STATE_HOME or ~/.local/state
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state: Option<PathBuf>,
    /// Let a client's root be root here
    #[arg(long, conflicts_with = "all_squash")]
    pub(crate) no_root_squash: bool,
    /// Make every caller the anonymous user
    #[arg(long)]
    pub(crate) all_squash: bool,
    /// The anonymous user's number; without it 65534, or this process's where it is not root
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    pub(crate) anon_uid: Option<u32>,
    /// The anonymous user's group; without it 65534, or this process's where it is not root
    #[arg(long, value_name = "GID", value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    pub(crate) anon_gid: Option<u32>,
    /// Calls that one client has under way at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) credits: u32,
    /// Octets that the data of all clients' calls, WRITEs above all, takes at most; what comes beyond it waits. What READs
    /// return comes beside it, a MiB for each under way. E.g. 512MiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory)]
    pub(crate) max_memory: u64,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

const AFTER: &str = "\
Every call is carried out as the user that it is made by (AUTH_SYS, which clients
are believed), with this machine's permissions. That takes root; a server that
runs as another user serves that user only, or, with --all-squash, everybody as
that user.

Ctrl-C ends it when the calls under way are answered; a second Ctrl-C at once.

Examples:
  nfs3d --root /srv/data --listen rdma://0.0.0.0:20049 --mount tcp://0.0.0.0:20048
  nfs3d --root /srv/data --listen iwarp://0.0.0.0:20049 --listen tcp://0.0.0.0:2049 \\
        --mount tcp://0.0.0.0:20048

and on the client, for /srv/data of the host `server`:
  mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock \\
        server:/srv/data /mnt

iwarp:// is iWARP in user space; a Linux client reaches it with an iWARP device,
such as siw.";

/// At least one call's.
fn memory(text: &str) -> Result<u64, String> {
    let least = 2 * u64::from(DATA_MAX);
    parse_size(text).and_then(|size| if size < least { Err("2MiB or more".to_owned()) } else { Ok(size) })
}

fn absolute(path: &str) -> Result<String, String> {
    match path {
        _ if !path.starts_with('/') => Err("the path begins with /".to_owned()),
        _ if path.len() > 1024 => Err("a path that can be mounted has at most 1024 octets".to_owned()),
        _ => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nobody_is_minus_one() {
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
