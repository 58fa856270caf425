//! Benchmarks of calls, compared with plain TCP:
//! `cargo bench -p rpcrdma-tests --bench transport [-- --json] [-- --quick]`.
//! `-- --profile null|sixteen|small|get|put[-OPTION..] N` only makes N calls of that kind, for a profiler; see
//! `transport/profile.rs`.
//!
//! Every figure is a ratio to a program that moves the same bytes between the same two threads over plain tokio TCP.
//! Each thread is pinned to a core. The two programs alternate, round after round, so that a noisy neighbour affects
//! both. Two processes of idle priority keep the cores awake, because an idle virtual core takes 25 to 300 microseconds
//! to wake. The benchmark reports medians and ranges, and asserts nothing.

#[path = "transport/arms.rs"]
mod arms;
#[path = "transport/bare.rs"]
mod bare;
#[path = "transport/burner.rs"]
mod burner;
#[path = "transport/profile.rs"]
mod profile;
#[path = "transport/report.rs"]
mod report;

use std::{sync::mpsc, thread};

use arms::Addresses;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.iter().any(|arg| arg == "--burn") {
        burner::burn();
    }
    let quick = args.iter().any(|arg| arg == "--quick" || arg == "--test");
    let json = args.iter().any(|arg| arg == "--json");
    let profile = args.iter().position(|arg| arg == "--profile").map(|at| {
        let count = args.get(at + 2).and_then(|count| count.parse().ok()).expect("usage: --profile KIND COUNT");
        (args[at + 1].clone(), count)
    });
    if let Some((kind, count)) = profile {
        let runtime = runtime();
        let clients = runtime.block_on(profile::Clients::prepare(&kind));
        // Most programs have a timer. With one, tokio reads the clock whenever it waits for I/O.
        runtime.spawn(async { tokio::time::sleep(std::time::Duration::from_secs(3600)).await });
        return profile::counted(|| runtime.block_on(clients.run(count)));
    }
    let _burners = burner::start();

    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let (server_core, client_core) = (cores.first().copied(), cores.last().copied());
    let (addresses_to_client, addresses) = mpsc::channel::<Addresses>();
    thread::spawn(move || {
        if let Some(core) = server_core {
            core_affinity::set_for_current(core);
        }
        runtime().block_on(arms::serve(addresses_to_client));
    });
    let addresses = addresses.recv().expect("server thread failed to start");
    if let Some(core) = client_core {
        core_affinity::set_for_current(core);
    }
    let rounds = if quick { 3 } else { 15 };
    // In a task, as the callers of an application are. The future of `block_on` is polled only after tokio has looked
    // for I/O once more, which is an additional system call whenever another task wakes it.
    let results = runtime().block_on(async { tokio::spawn(arms::run(addresses, rounds, quick)).await });
    let results = results.expect("the clients failed");
    if json {
        println!("{}", report::json(&results));
    } else {
        report::table(&results);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime")
}
