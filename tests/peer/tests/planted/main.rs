//! Planted faults: each is found by the cases that are built for it, and by no others.
//!
//! The faulty implementations are this project's own server and client, over a provider that changes what they receive and send.
#![allow(missing_docs, clippy::unwrap_used)]

mod fault;
mod message;
mod provider;
#[path = "../subject/mod.rs"]
mod subject;
mod v1_server;

use std::{collections::BTreeSet, time::Duration};

use rpcrdma::provider::iwarp::{IwarpConfig, IwarpListener};
use rpcrdma_peer::{
    Part, Verdict,
    case::Limits,
    run::{Choice, Ran, run},
    server,
};
use tokio::task::JoinSet;

use self::{fault::Fault, provider::FaultyListener};

/// Number of cases that run at a time.
const JOBS: usize = 8;

/// Returns the time limits of cases in which faulty implementations are silent.
fn limits() -> Limits {
    Limits { patience: Duration::from_secs(4), settle: Duration::from_millis(20) }
}

/// Returns the names of cases that found something wrong.
fn wrong(all: &[Ran]) -> BTreeSet<&'static str> {
    all.iter().filter(|ran| ran.finding.verdict == Verdict::Wrong).map(|ran| ran.id).collect()
}

/// Runs these cases against a faulty server, and returns a description if others than expected find the fault.
async fn check_server(fault: &'static Fault, names: Vec<String>) -> Option<String> {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.unwrap();
    let server = subject::server_over(FaultyListener(listener, fault)).await;
    let server = server::ServerUnderTest { limits: limits(), ..server };
    let choice = Choice { names, dangerous: true, ..Choice::default() };
    compare(fault, &run(server::cases(), server, &choice, JOBS, |_| {}).await)
}

/// Returns a description if others than the expected cases found the fault.
fn compare(fault: &Fault, all: &[Ran]) -> Option<String> {
    let expected: BTreeSet<_> = fault.found_by.iter().copied().collect();
    let found = wrong(all);
    let came: Vec<_> = all.iter().filter(|ran| found.contains(ran.id)).map(|ran| (ran.id, &ran.finding.came)).collect();
    (found != expected).then(|| format!("{}: expected {expected:?}, found {came:?}", fault.what))
}

/// Checks that each fault of a group is found by its cases, and by no others of the group.
async fn check_all(faults: &'static [Fault]) {
    let names: Vec<String> = faults.iter().flat_map(|fault| fault.found_by).map(|name| (*name).to_owned()).collect();
    let mut tasks = JoinSet::new();
    let (mut left, mut wrong) = (faults.iter(), Vec::new());
    loop {
        while tasks.len() < 4
            && let Some(fault) = left.next()
        {
            tasks.spawn(check_server(fault, names.clone()));
        }
        match tasks.join_next().await {
            Some(result) => wrong.extend(result.unwrap()),
            None => break,
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_headers_are_found() {
    check_all(v1_server::HEADERS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_credits_are_found() {
    check_all(v1_server::CREDITS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_chunks_are_found() {
    check_all(v1_server::CHUNKS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_setup_are_found() {
    check_all(v1_server::SETUP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_data_are_found() {
    check_all(v1_server::NFS).await;
}

/// Every case of a part finds a fault, so that none is there which cannot fail.
#[test]
fn every_case_finds_a_fault() {
    let all = [v1_server::HEADERS, v1_server::CREDITS, v1_server::CHUNKS, v1_server::SETUP, v1_server::NFS];
    let found: BTreeSet<_> = all.iter().flat_map(|faults| faults.iter()).flat_map(|fault| fault.found_by).collect();
    let parts = [Part::V1Server, Part::V1Nfs];
    let cases = server::cases();
    let ids: BTreeSet<_> = cases.iter().filter(|case| parts.contains(&case.part)).map(|case| &case.id).collect();
    assert_eq!(found, ids);
}
