//! The option `--rpcrdma-version`.

use std::ops::RangeInclusive;

use clap::Args;

/// RPC-over-RDMA version selected on the command line.
#[derive(Debug, Args, Clone, Copy, Default, PartialEq, Eq)]
pub struct RpcRdmaVersion {
    /// RPC-over-RDMA version to use. Default: the highest version that client and server support
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub rpcrdma_version: Option<u32>,
}

impl RpcRdmaVersion {
    /// Returns the allowed versions, for [`ChannelBuilder::versions`](rpcrdma::client::ChannelBuilder::versions) and
    /// [`ServerBuilder::versions`](rpcrdma::server::ServerBuilder::versions).
    #[must_use]
    pub fn allowed(self) -> RangeInclusive<u32> {
        self.rpcrdma_version.map_or(1..=2, |version| version..=version)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        version: RpcRdmaVersion,
    }

    #[test]
    fn versions() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["x"], args].concat()).map(|cli| cli.version.allowed());
        assert_eq!(parse(&[]).unwrap(), 1..=2);
        assert_eq!(parse(&["--rpcrdma-version", "1"]).unwrap(), 1..=1);
        assert_eq!(parse(&["--rpcrdma-version=2"]).unwrap(), 2..=2);
        assert!(parse(&["--rpcrdma-version", "3"]).is_err());
    }
}
