//! The processes of a scenario: a server that records the calls that it executes, and a proxy. This program starts
//! itself as either.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use rpcrdma::{
    Server,
    server::{Context, HandlerError},
};
use rpcrdma_examples::say;
use rpcrdma_trials::{
    process::end_with_parent,
    proxy::{Link, Proxy},
};
use tokio::time::sleep;

use self::protocol::{
    AnsweredBy,
    outages_v1::{OutagesV1, OutagesV1Server},
};

pub(crate) mod protocol {
    //! The protocol of the server.
    #![allow(missing_docs, clippy::all, reason = "generated code")]
    rpcrdma::xdr! {
        /* The server that executed a call, and the address from which the call came. */
        struct answered_by {
            unsigned int server;
            unsigned int peer;
        };

        program OUTAGES {
            version OUTAGES_V1 {
                @idempotent void NULL(void) = 0;

                @idempotent answered_by READ(void) = 1;

                /* Records the identifier of the call. */
                void RECORD(unsigned hyper) = 2;
            } = 1;
        } = 0x20000026;
    }
}

/// The duration of a call at the server. It is long enough for calls of many callers to be in flight at once.
const WORK: Duration = Duration::from_millis(5);

/// Options of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// URL to listen on
    #[arg(long, required = true)]
    listen: Vec<String>,
    /// Number that replies contain
    #[arg(long)]
    number: u32,
    /// File to which the identifiers of executed RECORD calls are appended
    #[arg(long)]
    record: PathBuf,
    /// Maximum number of connections
    #[arg(long, default_value_t = 1024)]
    max_connections: usize,
}

/// Options of the proxy.
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyArgs {
    /// Address of the server
    #[arg(long)]
    to: SocketAddr,
    /// Local address of the connections to the server
    #[arg(long)]
    local: IpAddr,
    /// Delay of all data in each direction, in milliseconds
    #[arg(long, default_value_t = 0)]
    delay: u64,
}

struct Recorder {
    number: u32,
    record: File,
}

impl OutagesV1 for Recorder {
    async fn read(&self, cx: &Context) -> Result<AnsweredBy, HandlerError> {
        sleep(WORK).await;
        let peer = match cx.peer_addr().ip() {
            IpAddr::V4(peer) => peer.to_bits(),
            IpAddr::V6(_) => 0,
        };
        Ok(AnsweredBy { server: self.number, peer })
    }

    async fn record(&self, _cx: &Context, id: u64) -> Result<(), HandlerError> {
        // One write to a file that is opened for appending is atomic. It is short enough for an async thread.
        (&self.record).write_all(&id.to_be_bytes())?;
        sleep(WORK).await;
        Ok(())
    }
}

/// Returns the identifiers of the calls that servers have recorded in a file. The result is empty if the file does not
/// exist.
pub(crate) fn recorded(path: &Path) -> anyhow::Result<Vec<u64>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes.as_chunks().0.iter().map(|id| u64::from_be_bytes(*id)).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot read the record of calls"),
    }
}

/// Serves until the process is killed.
pub(crate) async fn serve(arguments: ServeArgs) -> anyhow::Result<()> {
    end_with_parent()?;
    let ServeArgs { listen, number, record, max_connections } = arguments;
    let record =
        OpenOptions::new().append(true).create(true).open(record).context("cannot open the record of calls")?;
    let service = OutagesV1Server::new(Recorder { number, record });
    let mut server = Server::builder().service(service).max_connections(max_connections);
    for url in listen {
        server = server.listen(&url);
    }
    let server = server.bind().await?;
    for url in server.urls() {
        say!("listening on {url}");
    }
    server.serve().await;
    Ok(())
}

/// Forwards connections until the process is killed. Prints a line for each.
pub(crate) async fn proxy(arguments: ProxyArgs) -> anyhow::Result<()> {
    end_with_parent()?;
    let link = Link::new().with_local(arguments.local);
    link.lead_to(Some(arguments.to));
    link.set_delay(Duration::from_millis(arguments.delay));
    let proxy = Proxy::bind(Arc::new(link))?;
    say!("listening on tcp://{}", proxy.address()?);
    Ok(proxy.serve(|| say!("accepted")).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        assert!(recorded(&path).unwrap().is_empty());
        std::fs::write(&path, [7_u64.to_be_bytes(), 8_u64.to_be_bytes()].concat()).unwrap();
        assert_eq!(recorded(&path).unwrap(), [7, 8]);
    }
}
