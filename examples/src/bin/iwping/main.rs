//! The program `iwping`, a client and server of the rdma-core `rping` protocol on the userspace iWARP provider.
//!
//! `iwping` interoperates with `rping` on a kernel iWARP device. It also shows how to use the provider traits without
//! RPC: connection setup, Send and Receive, RDMA Read and Write, registration and invalidation.
//!
//! ```text
//! iwping server 192.0.2.1:7174          rping -c -V -a 192.0.2.1 -C 10
//! iwping client 192.0.2.2:7174 -n 10    rping -s -a 192.0.2.2
//! ```

mod ping;
mod queue;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use rpcrdma::provider::{
    ConnectRequest, Connector, Incoming, Listener, SetupParams,
    iwarp::{FpduSize, IwarpConfig, IwarpConnector, IwarpIncoming, IwarpListener},
};
use rpcrdma_examples::command::{self, Logging, unless_stopped};
use rpcrdma_examples::say;
use tokio::task::JoinSet;

use crate::{
    ping::{Pings, Report},
    queue::Queue,
};

/// Exchange rping messages over userspace iWARP
#[derive(Debug, Parser)]
#[command(name = "iwping", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

const EXAMPLES: &str = "\
Examples:
  iwping server 192.0.2.1:7174               serve `rping -c -V -a 192.0.2.1 -C 10`
  iwping client 192.0.2.2:7174 -n 10         ping `rping -s -a 192.0.2.2`
  iwping client 192.0.2.1:7174 --size 65536  ping another iwping";

#[derive(Debug, Subcommand)]
enum Role {
    /// Send pings and check the replies
    Client {
        /// Server address; rping listens on port 7174
        server: SocketAddr,
        /// Number of pings on each connection
        #[arg(short = 'n', long, default_value_t = 10)]
        count: u32,
        /// Bytes per ping. rping accepts 28 to 65535, limited by its server's -S option
        #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(28..=(1 << 30)))]
        size: u32,
        /// Number of connections, opened one after the other
        #[arg(short, long, default_value_t = 1)]
        connections: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Answer pings
    Server {
        /// Address to listen on; port 0 selects a free port
        listen: SocketAddr,
        /// Largest ping to answer, in bytes
        #[arg(long, default_value_t = 1 << 20)]
        max_size: u32,
        /// Exit after this many connections. Default: serve until interrupted
        #[arg(short, long)]
        connections: Option<u32>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Args, Clone)]
struct Common {
    /// Do not request CRCs; they are still used if the peer requests them
    #[arg(long)]
    no_crc: bool,
    /// ULPDU size of each FPDU in bytes, or `segment` for the largest that fits a TCP segment. Default: as large as
    /// possible
    #[arg(long, value_parser = parse_fpdu_size)]
    fpdu: Option<FpduSize>,
    /// Time limit of each step, in seconds
    #[arg(long, default_value_t = 5)]
    timeout: u64,
    /// Print each ping
    #[arg(short, long)]
    verbose: bool,
}

fn parse_fpdu_size(text: &str) -> Result<FpduSize, String> {
    match text {
        "segment" => Ok(FpduSize::Segment),
        _ => text.parse().map(FpduSize::Ulpdu).map_err(|error| format!("expected `segment` or a size: {error}")),
    }
}

impl Common {
    fn config(&self) -> IwarpConfig {
        let mut config = IwarpConfig::default();
        config.crc = !self.no_crc;
        config.fpdu_size = self.fpdu.unwrap_or_default();
        config
    }

    /// Returns the connection parameters that rping expects. Like rping, iwping sends one message at a time, and no
    /// private data.
    fn params(&self) -> SetupParams {
        let mut params = SetupParams::default();
        params.receive_count = 2;
        params.receive_size = ping::INFO_LEN;
        params.initiator_depth = 1;
        params.responder_resources = 1;
        params.timeout = self.limit();
        params
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

const NAME: &str = "iwping";

fn main() -> ExitCode {
    let role = command::parse::<Cli>().role;
    // -v prints pings, as it does in rping. RUST_LOG controls logging.
    Logging::default().start();
    command::run(NAME, unless_stopped(run(role)))
}

async fn run(role: Role) -> anyhow::Result<()> {
    match role {
        Role::Client { server, count, size, connections, common } => {
            for _ in 0..connections {
                client(server, Pings { count, size }, &common).await?;
            }
            Ok(())
        }
        Role::Server { listen, max_size, connections, common } => serve(listen, max_size, connections, &common).await,
    }
}

async fn client(server: SocketAddr, pings: Pings, common: &Common) -> anyhow::Result<()> {
    let connected = IwarpConnector::new(common.config())
        .connect(server, common.params())
        .await
        .with_context(|| format!("cannot connect to {server}"))?;
    let mut queue = Queue::new(connected.queue_pair, common.limit());
    let report = ping::send_pings(&mut queue, pings, common.verbose).await?;
    queue.close().await?;
    say!("{server}: {report}");
    Ok(())
}

async fn serve(listen: SocketAddr, max_size: u32, connections: Option<u32>, common: &Common) -> anyhow::Result<()> {
    let listener =
        IwarpListener::bind(listen, common.config()).await.with_context(|| format!("cannot listen on {listen}"))?;
    say!("listening on {}", listener.local_addr());
    let mut running = JoinSet::new();
    let mut failed = 0;
    let mut accepted = 0;
    while connections.is_none_or(|limit| accepted < limit) {
        tokio::select! {
            incoming = listener.accept() => {
                accepted += 1;
                let (incoming, common) = (incoming?, common.clone());
                running.spawn(async move { answer(incoming, max_size, &common).await });
            }
            Some(ended) = running.join_next() => failed += u32::from(!print_outcome(ended?)),
        }
    }
    while let Some(ended) = running.join_next().await {
        failed += u32::from(!print_outcome(ended?));
    }
    if failed > 0 {
        bail!("{failed} of {accepted} connections failed");
    }
    Ok(())
}

/// Serves one connection until the peer closes it.
async fn answer(incoming: IwarpIncoming, max_size: u32, common: &Common) -> (SocketAddr, anyhow::Result<Report>) {
    let peer = incoming.peer_addr();
    let pings = async {
        let request = incoming.request(common.limit()).await?;
        let connected = request.accept(common.params()).await?;
        let mut queue = Queue::new(connected.queue_pair, common.limit());
        ping::serve_pings(&mut queue, max_size, common.verbose).await
    };
    (peer, pings.await)
}

/// Prints the outcome of a connection, and returns `true` if it succeeded.
fn print_outcome((peer, result): (SocketAddr, anyhow::Result<Report>)) -> bool {
    match result {
        Ok(report) => say!("{peer}: {report}"),
        Err(error) => {
            command::print_error(NAME, format_args!("{peer}: {error:#}"));
            return false;
        }
    }
    true
}
