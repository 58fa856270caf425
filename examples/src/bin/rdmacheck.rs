//! The program `rdmacheck`, which runs the provider conformance suite on RDMA devices of this machine.

use std::{
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use rpcrdma::provider::{
    conformance,
    verbs::{VerbsConfig, VerbsConnector, VerbsListener, devices},
};
use rpcrdma_examples::command::{self, Logging, unless_stopped};
use rpcrdma_examples::say;

/// Check RDMA devices of this machine with the provider conformance suite, with both endpoints in this process
#[derive(Parser)]
#[command(name = "rdmacheck", version, after_help = "Example:\n  rdmacheck 192.168.1.7 --case read --case write")]
struct Args {
    /// Addresses of the network interfaces of RDMA devices; each is tested separately
    #[arg(required = true)]
    addresses: Vec<IpAddr>,
    /// Run only cases whose name contains this text. May be repeated
    #[arg(long = "case", value_name = "TEXT")]
    cases: Vec<String>,
    /// Case that may fail because of a known driver bug. May be repeated
    #[arg(long, value_name = "CASE")]
    known: Vec<String>,
    /// Number of times to run the selected cases
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Microseconds to poll for completions before waiting for an event
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS")]
    busy: u64,
    /// Number of Receives that the connections of the listener share; 0: each has its own
    #[arg(long, default_value_t = 0, value_name = "N")]
    shared_receives: u32,
    #[command(flatten)]
    logging: Logging,
}

const NAME: &str = "rdmacheck";

fn main() -> ExitCode {
    let args: Args = command::parse();
    args.logging.start();
    command::run(NAME, unless_stopped(check(args)))
}

async fn check(args: Args) -> anyhow::Result<ExitCode> {
    match devices() {
        Ok(devices) => devices.iter().for_each(|device| say!("device {}: {:?}", device.name, device.protocol)),
        Err(error) => {
            command::print_error(NAME, command::chain(&error));
            return Ok(ExitCode::from(2));
        }
    }
    let mut config = VerbsConfig::default();
    config.busy_poll = std::time::Duration::from_micros(args.busy);
    config.shared_receives = args.shared_receives;
    let (mut passed, mut failed, mut excused) = (0, 0, 0);
    for _ in 0..args.rounds {
        for address in &args.addresses {
            for (name, case) in conformance::cases::<VerbsConnector, VerbsListener>() {
                if !args.cases.is_empty() && !args.cases.iter().any(|part| name.contains(part.as_str())) {
                    continue;
                }
                let listener = match VerbsListener::bind(SocketAddr::new(*address, 0), config.clone()) {
                    Ok(listener) => listener,
                    Err(error) => {
                        command::print_error(
                            NAME,
                            format_args!("cannot listen on {address}: {}", command::chain(&error)),
                        );
                        return Ok(ExitCode::from(2));
                    }
                };
                let started = Instant::now();
                // A failing case panics and prints the reason.
                let ended = tokio::spawn(case(VerbsConnector::new(config.clone()), listener)).await;
                let verdict = match ended {
                    Ok(()) => "pass",
                    Err(_) if args.known.iter().any(|known| known == name) => "known",
                    Err(_) => "FAIL",
                };
                say!("{verdict} {address} {name} ({} ms)", started.elapsed().as_millis());
                match verdict {
                    "pass" => passed += 1,
                    "FAIL" => failed += 1,
                    _ => excused += 1,
                }
            }
        }
    }
    say!("{passed} passed, {failed} failed, {excused} known failures");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
