//! Lookup of the port of a program with rpcbind.

use rpcrdma::transport::{Scheme, Url};
use rpcrdma_specs::rpcbind::{Netid, Rpcbind};

use crate::{
    cli::Cli,
    failure::{self, Failure, Kind},
};

/// Returns the URL of the server. If the user gave no port, the URL has the port that rpcbind on the host lists for the
/// program.
pub(crate) async fn find(cli: &Cli) -> Result<String, Failure> {
    let Some(url) = without_port(&cli.url) else { return Ok(cli.url.clone()) };
    let late = |_| Failure { kind: Kind::NoReply, message: format!("no reply from rpcbind on {}", url.host()) };
    tokio::time::timeout(cli.timeout, ask(cli, &url)).await.map_err(late)?
}

async fn ask(cli: &Cli, url: &Url) -> Result<String, Failure> {
    let Cli { program, version, .. } = *cli;
    let host = url.host();
    let rpcbind = Rpcbind::connect(host).await.map_err(|error| {
        let Failure { kind, message } = failure::connect_failure(&error);
        Failure { kind, message: format!("the URL has no port, and rpcbind does not answer: {message}") }
    })?;
    let netids = if url.scheme() == Scheme::TCP { [Netid::Tcp, Netid::Tcp6] } else { [Netid::Rdma, Netid::Rdma6] };
    for netid in netids {
        let found = rpcbind.lookup(program, version, netid).await;
        if let Some(addr) = found.map_err(|error| failure::call_failure(&error, 0, cli))? {
            return Ok(with_port(&cli.url, addr.port()));
        }
    }
    let [first, second] = netids;
    let message = format!("rpcbind on {host} lists no program {program} version {version} over {first} or {second}");
    Err(Failure { kind: Kind::Refused, message })
}

/// Returns the URL with the placeholder port 0 if the text lacks a port. Returns `None` if the text is a complete or an
/// invalid URL.
fn without_port(text: &str) -> Option<Url> {
    if text.parse::<Url>().is_ok() { None } else { with_port(text, 0).parse().ok() }
}

/// Adds `port` to the host of the URL `text`, which has no port.
fn with_port(text: &str, port: u16) -> String {
    let (server, options) = text.split_at(text.find('?').unwrap_or(text.len()));
    format!("{}:{port}{options}", server.strip_suffix('/').unwrap_or(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        assert_eq!(with_port("tcp://host/", 111), "tcp://host:111");
        assert_eq!(with_port("iwarp://[::1]?crc=off", 7), "iwarp://[::1]:7?crc=off");
        for text in ["tcp://host", "iwarp://[::1]?crc=off"] {
            assert!(without_port(text).is_some(), "{text}");
        }
        for text in ["tcp://host:1", "tcp://host:x", "host", "tcp://host?no", "tcp://::1"] {
            assert!(without_port(text).is_none(), "{text}");
        }
    }
}
