//! Runs all cases against this project's own servers and clients, and checks that nothing is wrong.
#![allow(missing_docs, clippy::unwrap_used)]

mod subject;

use std::sync::Arc;

use rpcrdma_peer::{
    Verdict, cases,
    client::Start,
    report,
    run::{Choice, Ran, run},
};

#[tokio::test(flavor = "multi_thread")]
async fn our_server_conforms() {
    let server = subject::server().await;
    let choice = Choice { dangerous: true, ..Choice::default() };
    nothing_is_wrong(&run(cases::of_servers(), server, &choice, 8, |_| {}).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_client_conforms() {
    let choice = Choice { dangerous: true, ..Choice::default() };
    let start: Start = Arc::new(|addr| {
        Box::pin(async move {
            let channel = subject::channel().connect(&format!("iwarp://{addr}")).await;
            subject::use_file(channel).await.is_ok()
        })
    });
    nothing_is_wrong(&run(cases::of_clients(), subject::client_of(start), &choice, 8, |_| {}).await);
}

/// Checks that every case ran, and that nothing is wrong.
fn nothing_is_wrong(all: &[Ran]) {
    all.iter().for_each(|ran| print!("{}", report::text(ran, true)));
    let wrong = all.iter().filter(|ran| matches!(ran.finding.verdict, Verdict::Wrong | Verdict::NotRun));
    let wrong: Vec<_> = wrong.map(|ran| ran.id).collect();
    assert!(!all.is_empty() && wrong.is_empty(), "{wrong:#?}");
}
