//! All cases against this project's own servers and clients: nothing is wrong.
#![allow(missing_docs, clippy::unwrap_used)]

mod subject;

use rpcrdma_peer::{Verdict, run::{Choice, run}, server};

#[tokio::test(flavor = "multi_thread")]
async fn our_server_conforms() {
    let server = subject::server().await;
    let choice = Choice { dangerous: true, ..Choice::default() };
    let all = run(server::cases(), server, &choice, 8, |_| {}).await;
    for ran in &all {
        println!("{:?}", ran.finding);
    }
    let wrong: Vec<_> = all.iter().filter(|ran| ran.finding.verdict >= Verdict::Wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
