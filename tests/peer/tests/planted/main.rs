//! Planted faults: each is found by the cases that are built for it.
//!
//! The faulty implementations are this project's own server and client. A provider that wraps the iWARP provider, or a
//! proxy, changes what they receive and send. The cases of one group run against each fault of the group, and only the
//! expected cases may find anything wrong. A few faults are broad: other cases notice their consequences, too.
#![allow(missing_docs, clippy::unwrap_used)]

mod fault;
mod iwarp;
mod message;
mod provider;
mod proxy;
#[path = "../subject/mod.rs"]
mod subject;
mod v1_client;
mod v1_server;
mod v2;

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use rpcrdma::provider::iwarp::{IwarpConfig, IwarpListener};
use rpcrdma_peer::{
    Verdict,
    case::Limits,
    cases,
    client::{ClientUnderTest, Start},
    run::{Choice, Ran, run},
    server::ServerUnderTest,
    transport::{Fabric, Target},
};
use tokio::{sync::Semaphore, task::JoinSet};

use self::{
    fault::Fault,
    provider::{FaultyConnector, FaultyListener},
    proxy::IwarpFault,
};

/// Maximum number of cases that run at a time against one faulty implementation.
const JOBS: usize = 4;
/// Permits for faulty implementations that run at the same time, in all tests.
static FAULTS: Semaphore = Semaphore::const_new(24);
/// Maximum number of faults in a group. The cases of a group run against each of its faults.
const GROUP: usize = 12;
/// Cases for which no fault is planted. The proxy cannot plant faults for them, because it only changes or drops whole
/// frames, or the case never finds anything wrong.
const UNPLANTED: [&str; 8] = [
    "iwarp/connector/bytewise",
    "iwarp/connector/bytewise-reply",
    "iwarp/connector/crc-flag",
    "iwarp/connector/early-reply",
    "iwarp/listener/bytewise",
    "iwarp/listener/bytewise-request",
    "iwarp/listener/half-close",
    "iwarp/listener/silent-before-first-segment",
];

/// Returns the time limits of the cases. The patience is shorter than in [`subject::limits`], because some faulty
/// implementations are silent.
fn limits() -> Limits {
    Limits { patience: Duration::from_secs(6), settle: Duration::from_millis(50) }
}

fn choice(names: &[String]) -> Choice {
    Choice { names: names.to_vec(), dangerous: true, ..Choice::default() }
}

/// Compares the cases that found a fault with the expected ones. Returns a description of the difference, or `None` if
/// there is none. Other cases may find a broad fault, too.
fn compare(what: &str, expected: &[&'static str], is_broad: bool, all: &[Ran]) -> Option<String> {
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    let found: BTreeSet<_> = all.iter().filter(|ran| ran.finding.verdict == Verdict::Wrong).map(|ran| ran.id).collect();
    let is_found = if is_broad { found.is_superset(&expected) } else { found == expected };
    let shown = |ran: &&Ran| found.contains(ran.id) || expected.contains(ran.id);
    let came: Vec<_> = all.iter().filter(shown).map(|ran| (ran.id, &ran.finding)).collect();
    (!is_found).then(|| format!("{what}: expected {expected:?}, came {came:?}"))
}

/// Checks faults at the same time, as far as there are permits in `FAULTS`.
async fn check_all<F, C>(faults: &'static [F], check: impl Fn(&'static F) -> C)
where
    C: Future<Output = Option<String>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for fault in faults {
        let check = check(fault);
        tasks.spawn(async move {
            let _permit = FAULTS.acquire().await;
            check.await
        });
    }
    let wrong: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the names of the cases that find the faults of a group.
fn names(faults: &[Fault]) -> Arc<Vec<String>> {
    Arc::new(faults.iter().flat_map(|fault| fault.found_by).map(|name| (*name).to_owned()).collect())
}

fn iwarp_names(faults: &[IwarpFault]) -> Arc<Vec<String>> {
    Arc::new(faults.iter().map(|fault| fault.found_by.to_owned()).collect())
}

async fn check_servers(faults: &'static [Fault]) {
    let names = names(faults);
    let check = |fault: &'static Fault| {
        let names = Arc::clone(&names);
        async move {
            let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.unwrap();
            let server = subject::server_over(FaultyListener(listener, fault)).await;
            let server = ServerUnderTest { limits: limits(), ..server };
            let all = run(cases::of_servers(), server, &choice(&names), JOBS, |_| {}).await;
            compare(fault.what, fault.found_by, fault.is_broad, &all)
        }
    };
    check_all(faults, check).await;
}

async fn check_clients(faults: &'static [Fault]) {
    let names = names(faults);
    let check = |fault: &'static Fault| {
        let names = Arc::clone(&names);
        async move {
            let start: Start = Arc::new(move |addr| {
                Box::pin(async move {
                    let channel = subject::channel().connect_with(FaultyConnector(fault), addr).await;
                    subject::use_file(channel).await.is_ok()
                })
            });
            let client = ClientUnderTest { limits: limits(), ..subject::client_of(start) };
            let all = run(cases::of_clients(), client, &choice(&names), JOBS, |_| {}).await;
            compare(fault.what, fault.found_by, fault.is_broad, &all)
        }
    };
    check_all(faults, check).await;
}

async fn check_listeners(faults: &'static [IwarpFault]) {
    let names = iwarp_names(faults);
    let check = |fault: &'static IwarpFault| {
        let names = Arc::clone(&names);
        async move {
            let server = subject::server().await;
            let target = Target { fabric: Fabric::Iwarp, addr: proxy::start(server.target.addr, fault, false).await };
            let server = ServerUnderTest { target, limits: limits(), ..server };
            let all = run(cases::of_servers(), server, &choice(&names), JOBS, |_| {}).await;
            compare(fault.what, &[fault.found_by], false, &all)
        }
    };
    check_all(faults, check).await;
}

async fn check_connectors(faults: &'static [IwarpFault]) {
    let names = iwarp_names(faults);
    let check = |fault: &'static IwarpFault| {
        let names = Arc::clone(&names);
        async move {
            let start: Start = Arc::new(move |addr| {
                Box::pin(async move {
                    let proxy = proxy::start(addr, fault, true).await;
                    let channel = subject::channel().connect(&format!("iwarp://{proxy}")).await;
                    subject::use_file(channel).await.is_ok()
                })
            });
            let client = ClientUnderTest { limits: limits(), ..subject::client_of(start) };
            let all = run(cases::of_clients(), client, &choice(&names), JOBS, |_| {}).await;
            compare(fault.what, &[fault.found_by], false, &all)
        }
    };
    check_all(faults, check).await;
}

/// Creates a test for each list of faults. The test checks the faults in groups.
macro_rules! groups {
    ($($name:ident $check:ident $faults:expr;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for group in $faults.chunks(GROUP) {
                $check(group).await;
            }
        })*
    };
}

groups! {
    v1_server_headers check_servers v1_server::HEADERS;
    v1_server_credits check_servers v1_server::CREDITS;
    v1_server_chunks check_servers v1_server::CHUNKS;
    v1_server_setup check_servers v1_server::SETUP;
    v1_server_data check_servers v1_server::NFS;
    v2_server check_servers v2::SERVER;
    v1_client check_clients v1_client::FAULTS;
    v2_client check_clients v2::CLIENT;
    iwarp_listener check_listeners iwarp::LISTENER;
    iwarp_listener_setup check_listeners iwarp::LISTENER_SETUP;
    iwarp_connector check_connectors iwarp::CONNECTOR;
    iwarp_connector_setup check_connectors iwarp::CONNECTOR_SETUP;
    client_memory check_connectors iwarp::CLIENT_MEMORY;
}

/// For every case, there is a planted fault that the case must find, except for the cases in [`UNPLANTED`]. A case that
/// finds no fault might never fail. The names of cases are unique.
#[test]
fn every_case_finds_a_fault() {
    let servers =
        [v1_server::HEADERS, v1_server::CREDITS, v1_server::CHUNKS, v1_server::SETUP, v1_server::NFS, v2::SERVER];
    let faults = servers.into_iter().chain([v1_client::FAULTS, v2::CLIENT]).flatten();
    let of_iwarp =
        [iwarp::LISTENER, iwarp::LISTENER_SETUP, iwarp::CONNECTOR, iwarp::CONNECTOR_SETUP, iwarp::CLIENT_MEMORY];
    let found = faults.flat_map(|fault| fault.found_by).copied();
    let found = found.chain(of_iwarp.into_iter().flatten().map(|fault| fault.found_by)).chain(UNPLANTED);
    let found: BTreeSet<_> = found.collect();
    let (of_servers, of_clients) = (cases::of_servers(), cases::of_clients());
    let ids: Vec<_> = of_servers.iter().map(|case| case.id).chain(of_clients.iter().map(|case| case.id)).collect();
    let unique: BTreeSet<_> = ids.iter().copied().collect();
    assert_eq!((unique.len(), &found), (ids.len(), &unique), "names are unique, and each has a fault");
}
