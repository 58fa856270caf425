//! The command line.
// What stands in brackets is optional, and clap shows it as it is.
#![allow(rustdoc::broken_intra_doc_links)]

use std::{ffi::OsString, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::{Parser, builder::ValueParser};
use rpcrdma::rpc::Credential;
use rpcrdma_examples::{
    command::{Logging, parse_seconds, parse_size},
    nfscp::{client::Options, copy::CopyOptions, mount::MountOptions},
};

/// Copy files and trees from and to an export of NFS version 3, over RDMA or TCP.
///
/// Either the sources or the destination are on the server. Several sources, and all that is to keep its name, go to a
/// directory that is there. Symbolic links are copied as such, except those named on the command line.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, override_usage = "nfscp [OPTIONS] SRC.. DST")]
pub(crate) struct Cli {
    /// From where.., and to where: nfs3+rdma://HOST[:PORT]/PATH, nfs3+iwarp://.., nfs3+tcp://.., or a local path
    #[arg(value_name = "SRC.. DST", num_args = 2.., required = true)]
    pub(crate) places: Vec<OsString>,
    /// Copy directories, with all below them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep modes and times
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Read source and copy again, compare their BLAKE3 digests, and print them
    #[arg(long)]
    pub(crate) verify: bool,
    /// READs and WRITEs under way at most; the server's credits limit it further
    #[arg(short, long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: u16,
    /// Octets in one READ or WRITE at most, e.g. 256KiB; the server's FSINFO limits it further
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = ValueParser::new(parse_chunk))]
    pub(crate) chunk_size: u32,
    /// User that the calls are made for (AUTH_SYS). Default: yours
    #[arg(long, value_name = "N")]
    pub(crate) uid: Option<u32>,
    /// Group that the calls are made for. Default: yours
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,
    /// More groups, at most 16. Default: yours, unless --uid or --gid say who it is
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub(crate) groups: Option<Vec<u32>>,
    /// TCP port of MOUNT. Default: rpcbind is asked
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) mount_port: Option<u16>,
    /// TCP port of rpcbind
    #[arg(long, value_name = "PORT", default_value_t = 111, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rpcbind_port: u16,
    /// Do without MOUNT: the file handle, in hexadecimal, that paths start from
    #[arg(long, value_name = "HEX", value_parser = ValueParser::new(parse_handle), conflicts_with = "mount_port")]
    pub(crate) root_handle: Option<Bytes>,
    /// Seconds that connecting, and each call, may take
    #[arg(long, value_name = "S", default_value = "30", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) timeout: Duration,
    /// Seconds to go on trying after the connection is lost or a call is not answered
    #[arg(long, value_name = "S", default_value = "60", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) retry: Duration,
    /// Print JSON in the end: what was done, and the connection's counters
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress, no summary
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  nfscp data.bin nfs3+rdma://server/export/incoming/
  nfscp -rp nfs3+rdma://server:20049/export/tree ./copy
  nfscp -r --verify tree nfs3+iwarp://server/export --mount-port 20048

A file on the server is written in place; a local one appears when it is
complete. In URLs, %20 is a space and %25 a %.

Exit code: 0 all was copied; 1 something was not, which is told; 2 the command
line is wrong.";

impl Cli {
    pub(crate) fn copy_options(&self) -> CopyOptions {
        let mut options = CopyOptions::default();
        options.recursive = self.recursive;
        options.preserve = self.preserve;
        options.verify = self.verify;
        options.umask = umask();
        options
    }

    /// The user that the calls are made for.
    pub(crate) fn user(&self) -> u32 {
        self.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// How the server is talked to, and MOUNT.
    pub(crate) fn options(&self) -> anyhow::Result<(Options, MountOptions)> {
        let groups = match &self.groups {
            Some(groups) if groups.len() > 16 => bail!("--groups: AUTH_SYS has room for 16"),
            Some(groups) => groups.clone(),
            // Of a user that one merely names, nothing is known.
            None if self.uid.is_some() || self.gid.is_some() => Vec::new(),
            None => own_groups()?,
        };
        let uid = self.user();
        let gid = self.gid.unwrap_or_else(|| rustix::process::getegid().as_raw());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let credential = Credential::sys(host, uid, gid, groups).to_opaque().context("AUTH_SYS")?;
        let mut options = Options::default();
        options.jobs = self.jobs.into();
        options.chunk = self.chunk_size;
        options.call_timeout = self.timeout;
        options.connect_timeout = self.timeout.min(options.connect_timeout);
        options.patience = self.retry;
        options.credential = credential.clone();
        let mut mount = MountOptions::default();
        mount.port = self.mount_port;
        mount.rpcbind_port = self.rpcbind_port;
        mount.timeout = self.timeout.min(mount.timeout);
        mount.credential = credential;
        Ok((options, mount))
    }
}

/// The first 16 of the groups that this process has.
fn own_groups() -> anyhow::Result<Vec<u32>> {
    let groups = rustix::process::getgroups().context("cannot read the process's groups")?;
    Ok(groups.iter().take(16).map(|group| group.as_raw()).collect())
}

/// The process's umask. To be read, it has to be set; no other thread makes files yet.
fn umask() -> u32 {
    use rustix::{fs::Mode, process::umask};
    let mask = umask(Mode::from_raw_mode(0o077));
    umask(mask);
    mask.as_raw_mode()
}

fn parse_chunk(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        size @ 1..=67_108_864 => u32::try_from(size).map_err(|error| error.to_string()),
        _ => Err("from 1 octet to 64MiB".into()),
    }
}

fn parse_handle(text: &str) -> Result<Bytes, String> {
    let wrong = || "2 to 128 hexadecimal digits, two for each octet".to_owned();
    if !(2..=128).contains(&text.len()) || !text.is_ascii() {
        return Err(wrong());
    }
    let octets = text.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'));
        u8::from_str_radix(digits?, 16).ok()
    });
    octets.collect::<Option<Vec<u8>>>().map(Bytes::from).ok_or_else(wrong)
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
    fn the_umask_is_left_as_it_is() {
        assert_eq!(umask(), umask());
    }
}
