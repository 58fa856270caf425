//! `rpcrdma-outages`: runs scenarios with outages of servers and networks. The servers are separate processes, and the
//! clients must keep working. See `README.md`.
#![forbid(unsafe_code)]

mod calls;
mod holes;
mod network;
mod paths;
mod process;
mod refusals;
mod report;
mod service;
mod silence;
mod trial;

use std::{process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};
use rpcrdma_examples::command::{self, Logging, unless_stopped};
use rpcrdma_trials::{Choice, Trial, namespace::isolate, trials};

use self::{
    holes::Dropped,
    network::Network,
    report::{Measured, print_head, print_row},
    trial::{Form, Plan},
};

/// Maximum duration of one scenario in the short form.
const MAX_SHORT_DURATION: Duration = Duration::from_secs(90);
/// Maximum duration of one scenario in the long form.
const MAX_LONG_DURATION: Duration = Duration::from_secs(300);

/// Run scenarios with outages of servers and networks, in which clients must keep working
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-outages", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    play: PlayArgs,
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct PlayArgs {
    /// Run longer outages, with the default settings of the client
    #[arg(long)]
    long: bool,
    #[command(flatten)]
    choice: Choice,
    /// Internal: this program has a network namespace of its own
    #[arg(long, hide = true)]
    isolated: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Internal: a server
    #[command(hide = true)]
    Serve(service::ServeArgs),
    /// Internal: a proxy
    #[command(hide = true)]
    Proxy(service::ProxyArgs),
}

/// All scenarios, in the order in which they run.
const SCENARIOS: &[Trial<Plan, Measured>] = trials! {
    "one server, SIGSTOP (tcp)": silence::one_server, "tcp";
    "one server, SIGSTOP (iwarp)": silence::one_server, "iwarp";
    "pool of 3 paths, SIGSTOP of a proxy (tcp)": silence::pool, "tcp";
    "pool of 3 paths, SIGSTOP of a proxy (iwarp)": silence::pool, "iwarp";
    "balancer of 3 servers, SIGKILL and SIGSTOP (tcp)": silence::balancer, "tcp";
    "balancer of 3, SIGKILL and SIGSTOP (iwarp)": silence::balancer, "iwarp";
    "server accepts and closes (tcp)": refusals::closing, "tcp";
    "server accepts and closes (iwarp)": refusals::closing, "iwarp";
    "server at its connection limit (tcp)": refusals::at_limit, "tcp";
    "server at its connection limit (iwarp)": refusals::at_limit, "iwarp";
    "proxy whose server is down (tcp)": refusals::proxy_without_server, "tcp";
    "balancer of a refusing server and another (tcp)": refusals::balancer, "tcp";
    "balancer of a refusing server and another (iwarp)": refusals::balancer, "iwarp";
    "server restarts within 1 s (tcp)": silence::restart, "tcp";
    "server restarts within 1 s (iwarp)": silence::restart, "iwarp";
    "packets to the server dropped (tcp)": holes::hole, "tcp", Dropped::ToServer;
    "packets from the server dropped (iwarp)": holes::hole, "iwarp", Dropped::FromServer;
    "packets dropped both ways (tcp)": holes::hole, "tcp", Dropped::Both;
    "packets dropped both ways (iwarp)": holes::hole, "iwarp", Dropped::Both;
    "delay of 200 ms each way, by a proxy (tcp)": holes::delayed_by_proxy, "tcp";
    "delay of 200 ms each way, by a proxy (iwarp)": holes::delayed_by_proxy, "iwarp";
    "delay of 200 ms each way, by netem (iwarp)": holes::delayed_by_network, "iwarp";
    "iwarp,tcp: packets of iWARP dropped": paths::fall_back, "drop";
    "iwarp,tcp: packets of iWARP rejected": paths::fall_back, "reject with tcp reset";
};

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    match cli.command {
        Some(Command::Serve(arguments)) => command::run("rpcrdma-outages", service::serve(arguments)),
        Some(Command::Proxy(arguments)) => command::run("rpcrdma-outages", service::proxy(arguments)),
        None => {
            // Does not return if it succeeds.
            let reason = if cli.play.isolated || cli.play.choice.list { String::new() } else { isolate("--net") };
            command::run("rpcrdma-outages", unless_stopped(play(cli.play, reason)))
        }
    }
}

/// Runs the chosen scenarios, and prints a table with one line for each. `reason` is the reason for the lack of a
/// network namespace. It is empty if this process has one.
async fn play(arguments: PlayArgs, reason: String) -> anyhow::Result<ExitCode> {
    let Some(chosen) = arguments.choice.of(SCENARIOS)? else { return Ok(ExitCode::SUCCESS) };
    let network = Network::new(arguments.isolated, reason)?;
    let (form, limit) =
        if arguments.long { (Form::Long, MAX_LONG_DURATION) } else { (Form::Short, MAX_SHORT_DURATION) };
    let plan = Plan { form, network };
    print_head();
    Ok(rpcrdma_trials::play("scenarios", &chosen, &plan, limit, print_row).await)
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
    fn names_are_unique_and_fit_into_their_column() {
        rpcrdma_trials::assert_names(SCENARIOS, report::NAME_WIDTH);
    }
}
