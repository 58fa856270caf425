//! The option `--rpcrdma-version`.

use clap::Args;
use rpcrdma::engine::Versions;

/// RPC-over-RDMA version selected on the command line.
#[derive(Debug, Args, Clone, Copy, Default, PartialEq, Eq)]
pub struct RpcRdmaVersion {
    /// RPC-over-RDMA version to use. Default: the highest version that client and server support
    #[arg(long, value_name = "1|2")]
    pub rpcrdma_version: Option<Versions>,
}

impl RpcRdmaVersion {
    /// Returns the allowed versions: the version that the option names, or both without the option. Pass them to
    /// [`ChannelBuilder::versions`](rpcrdma::client::ChannelBuilder::versions) or
    /// [`ServerBuilder::versions`](rpcrdma::server::ServerBuilder::versions).
    #[must_use]
    pub fn allowed(self) -> Versions {
        self.rpcrdma_version.unwrap_or_default()
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
        assert_eq!(parse(&[]).unwrap(), Versions::Both);
        assert_eq!(parse(&["--rpcrdma-version", "1"]).unwrap(), Versions::V1);
        assert_eq!(parse(&["--rpcrdma-version=2"]).unwrap(), Versions::V2);
        for wrong in ["0", "3", "2..=1"] {
            assert!(parse(&["--rpcrdma-version", wrong]).is_err());
        }
    }
}
