//! The command-line arguments of `nfscp`.
// Brackets mark optional parts of a URL. clap prints them as they are.
#![allow(rustdoc::broken_intra_doc_links)]

use std::{ffi::OsString, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::{Parser, builder::ValueParser};
use rpcrdma::rpc::Credential;
use rpcrdma_examples::{
    command::{ClientSec, Logging, TlsClientArgs, parse_seconds, parse_size},
    nfscp::{client::Options, copy::CopyOptions, mount::MountOptions},
};
use rpcrdma_specs::{mount3::mount_v3, nfs3::nfs_v3};

/// Copy files and directory trees to or from an NFS version 3 server, over RDMA or TCP
///
/// Either all sources or the destination must be on the server. If there are several sources, the destination must be
/// an existing directory. Symbolic links are copied as links, except for those named on the command line.
#[derive(Debug, Parser)]
#[command(name = "nfscp", version, after_help = EXAMPLES, override_usage = "nfscp [OPTIONS] SRC.. DST")]
pub(crate) struct Cli {
    /// Sources and destination: nfs3+rdma://HOST[:PORT]/PATH, nfs3+iwarp://.., nfs3+tcp://.., or a local path
    #[arg(value_name = "SRC.. DST", num_args = 2.., required = true)]
    pub(crate) places: Vec<OsString>,
    /// Copy directories recursively
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Preserve modes and times
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Read source and copy again, compare their BLAKE3 digests, and print them
    #[arg(long)]
    pub(crate) verify: bool,
    /// Maximum number of READs and WRITEs in flight; the server's credits limit it further. Their data has at most as
    /// many MiB in all, or the size of two calls if that is more
    #[arg(short, long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: u16,
    /// Number of connections to the server, which share the calls
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: u16,
    /// Maximum bytes per READ or WRITE, e.g. 256KiB; the server's FSINFO limits it further. Default: 4MiB, or 1MiB over
    /// TCP
    #[arg(long, value_name = "SIZE", value_parser = ValueParser::new(parse_chunk))]
    pub(crate) chunk_size: Option<u32>,
    /// User ID for the calls (AUTH_SYS). Default: yours
    #[arg(long, value_name = "N")]
    pub(crate) uid: Option<u32>,
    /// Group ID for the calls. Default: yours
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,
    /// Supplementary group IDs for the calls, at most 16. Default: yours, or none with --uid or --gid
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub(crate) groups: Option<Vec<u32>>,
    #[command(flatten)]
    pub(crate) sec: ClientSec,
    /// TCP port of MOUNT. Default: ask rpcbind
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) mount_port: Option<u16>,
    /// TCP port of rpcbind
    #[arg(long, value_name = "PORT", default_value_t = 111, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rpcbind_port: u16,
    /// Root file handle in hexadecimal, used instead of the MOUNT protocol
    #[arg(long, value_name = "HEX", value_parser = ValueParser::new(parse_handle), conflicts_with = "mount_port")]
    pub(crate) root_handle: Option<Bytes>,
    /// Time limit of each NFS call, in seconds. Connecting and MOUNT calls have the same limit, but at most 10
    #[arg(long, value_name = "S", default_value = "30", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) timeout: Duration,
    /// Seconds to keep retrying after a lost connection, a call without a reply, or NFS3ERR_JUKEBOX
    #[arg(long, value_name = "S", default_value = "60", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) retry: Duration,
    /// Print a JSON report at the end: what was copied, and the connection's counters
    #[arg(long)]
    pub(crate) json: bool,
    /// Print neither progress nor a summary
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) tls: TlsClientArgs,
    /// Use of TLS for MOUNT, if not that of --tls. Linux's rpc.mountd does not offer TLS
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "POLICY", requires = "tls_ca")]
    pub(crate) mount_tls: Option<rpcrdma::tls::TlsPolicy>,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  nfscp data.bin nfs3+rdma://server/export/incoming/
  nfscp -rp nfs3+rdma://server:20049/export/tree ./copy
  nfscp --sec krb5p data.bin nfs3+tcp://server/export/
  nfscp -r --verify tree nfs3+iwarp://server/export --mount-port 20048

Without --sec, nfscp uses the first security flavor in the server's list that it
supports. If a URL has no port, nfscp asks rpcbind for the port of NFS. If rpcbind
does not know it, the port is 20049 for RDMA and 2049 for TCP.

Files on the server are written in place. A local file appears when it is
complete. URLs are percent-encoded: %20 is a space, and %25 is a %.

Exit status: 0 if everything was copied; 1 if something was not, as reported on
standard error; 2 if the command line is invalid.";

impl Cli {
    pub(crate) fn copy_options(&self) -> CopyOptions {
        let mut options = CopyOptions::default();
        options.recursive = self.recursive;
        options.preserve = self.preserve;
        options.verify = self.verify;
        options.umask = umask();
        options
    }

    /// Returns the user ID for the calls: `--uid`, or by default the effective user ID of this process.
    pub(crate) fn user(&self) -> u32 {
        self.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// Returns the options for NFS and for MOUNT. Fails for example if `--groups` has more than 16 groups.
    pub(crate) fn options(&self) -> anyhow::Result<(Options, MountOptions)> {
        let groups = match &self.groups {
            Some(groups) if groups.len() > 16 => bail!("--groups: AUTH_SYS holds at most 16 groups"),
            Some(groups) => groups.clone(),
            // The groups of a user given by --uid or --gid are unknown.
            None if self.uid.is_some() || self.gid.is_some() => Vec::new(),
            None => own_groups()?,
        };
        let uid = self.user();
        let gid = self.gid.unwrap_or_else(|| rustix::process::getegid().as_raw());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let credential =
            Credential::sys(host, uid, gid, groups).to_opaque().context("cannot create the AUTH_SYS credential")?;
        let mut options = Options::default();
        options.jobs = self.jobs.into();
        options.connections = self.connections.into();
        options.chunk = self.chunk_size;
        options.call_timeout = self.timeout;
        options.connect_timeout = self.timeout.min(options.connect_timeout);
        options.retry_for = self.retry;
        options.credential = credential.clone();
        options.tls = self.tls.read(nfs_v3::PROGRAM, nfs_v3::VERSION)?;
        let mut mount = MountOptions::default();
        mount.port = self.mount_port;
        mount.rpcbind_port = self.rpcbind_port;
        mount.timeout = self.timeout.min(mount.timeout);
        mount.credential = credential;
        mount.tls = self.tls.read(mount_v3::PROGRAM, mount_v3::VERSION)?;
        #[cfg(feature = "tls")]
        {
            mount.tls_policy = self.mount_tls;
        }
        Ok((options, mount))
    }
}

/// Returns the supplementary groups of this process, at most 16, the limit of AUTH_SYS.
fn own_groups() -> anyhow::Result<Vec<u32>> {
    let groups = rustix::process::getgroups().context("cannot read the process's groups")?;
    Ok(groups.iter().take(16).map(|group| group.as_raw()).collect())
}

/// Returns the umask of this process. Reading it requires setting it, so no other thread may create files at the same
/// time.
fn umask() -> u32 {
    use rustix::{fs::Mode, process::umask};
    let mask = umask(Mode::from_raw_mode(0o077));
    umask(mask);
    mask.as_raw_mode()
}

fn parse_chunk(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        size @ 1..=67_108_864 => u32::try_from(size).map_err(|error| error.to_string()),
        _ => Err("expected a size from 1 byte to 64MiB".into()),
    }
}

fn parse_handle(text: &str) -> Result<Bytes, String> {
    let wrong = || "expected 2 to 128 hexadecimal digits, two for each byte".to_owned();
    if !(2..=128).contains(&text.len()) || !text.is_ascii() {
        return Err(wrong());
    }
    let bytes = text.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'));
        u8::from_str_radix(digits?, 16).ok()
    });
    bytes.collect::<Option<Vec<u8>>>().map(Bytes::from).ok_or_else(wrong)
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
    fn values() {
        assert_eq!(parse_handle("0100010000000000"), Ok(Bytes::from_static(&[1, 0, 1, 0, 0, 0, 0, 0])));
        for bad in ["", "0", "0x01", "01 2", "+1+1", "gg", "é1"] {
            assert!(parse_handle(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_chunk("64MiB"), Ok(64 << 20));
        assert!(parse_chunk("0").is_err() && parse_chunk("65MiB").is_err());
        assert!(Cli::try_parse_from(["nfscp", "a"]).is_err());
        let cli = Cli::try_parse_from(["nfscp", "-rp", "a", "b", "nfs3+tcp://h/x"]).unwrap();
        assert!(cli.recursive && cli.preserve && cli.places.len() == 3);
    }

    #[test]
    fn reading_the_umask_does_not_change_it() {
        assert_eq!(umask(), umask());
    }
}
