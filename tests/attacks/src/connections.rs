//! Attacks with connections: idle connections, half-open connections, and slow set-ups.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::{
    memory::ARRIVAL,
    raw::{ATTACKER, connect_many, fates, write},
    raw_iwarp::{IwarpPeer, mpa_request},
    report::Findings,
    server::NfsServer,
    trial::{Form, Plan, Trial},
    victim::Victim,
};

/// Memory limit of the servers, in bytes. It equals the default of `nfs3d`.
const MAX_MEMORY: u64 = 1 << 30;

/// Returns the connection limit of the server, and the number of connections that the attackers make. The attackers
/// exceed the limit.
fn limits(form: Form) -> (usize, usize) {
    form.either((128, 192), (1024, 1200))
}

/// Measures the victim alone, lets the attackers connect, and measures the victim on a connection that it makes during
/// the attack. Checks that the server closes the connections beyond its limit.
async fn crowd(
    plan: &Plan,
    transport: &str,
    attack: impl AsyncFnOnce(&NfsServer, usize) -> anyhow::Result<Vec<TcpStream>>,
) -> anyhow::Result<Findings> {
    let (limit, count) = limits(plan.form);
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &["--max-connections", &limit.to_string()]).await?;
    let victim = Victim::of_nfs(&server, transport).await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    drop(victim);
    let attackers = attack(&server, count).await?;
    tokio::time::sleep(ARRIVAL).await;
    let victim = Victim::of_crowded_nfs(&server, transport).await?;
    trial.measure(&victim).await;
    let (closed, outcome) = fates(&attackers);
    trial.expect(closed >= count - limit, || format!("the server keeps more than {limit} connections"));
    drop(attackers);
    Ok(trial.finish(&mut server.process, &victim, outcome).await)
}

/// Opens more idle connections than the server allows, all from one host. Over iWARP, the attackers complete the MPA
/// set-up unless the server closes the connection before.
pub(crate) async fn idle(plan: &Plan, transport: &'static str) -> anyhow::Result<Findings> {
    crowd(plan, transport, async |server, count| {
        let mut attackers = Vec::new();
        if transport == "tcp" {
            return connect_many(count, server.tcp).await;
        }
        for _ in 0..count {
            // At the limit, the server may close a connection instead of setting it up.
            match IwarpPeer::connect(ATTACKER, server.iwarp).await {
                Ok(attacker) => attackers.push(attacker.stream),
                Err(_) => attackers.extend(connect_many(1, server.iwarp).await?),
            }
        }
        Ok(attackers)
    })
    .await
}

/// Opens connections that send nothing over TCP, or only the first half of an MPA request over iWARP.
pub(crate) async fn half_open(plan: &Plan, transport: &'static str) -> anyhow::Result<Findings> {
    crowd(plan, transport, async |server, count| {
        let mut attackers = connect_many(count, server.address(transport)).await?;
        if transport == "iwarp" {
            let request = mpa_request();
            for attacker in &mut attackers {
                // Fails on connections that the server has closed already.
                let _ = write(attacker, &request[..request.len() / 2]).await;
            }
        }
        Ok(attackers)
    })
    .await
}

/// Number of connections that send their MPA request slowly.
const SLOW: usize = 64;

/// Opens connections that send one byte of their MPA request each second.
pub(crate) async fn slow_handshakes(plan: &Plan) -> anyhow::Result<Findings> {
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &[]).await?;
    let victim = Victim::of_nfs(&server, "iwarp").await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    drop(victim);
    let mut attackers = connect_many(SLOW, server.iwarp).await?;
    let (seconds, request) = (plan.form.either(3, 12), mpa_request());
    let mut victim = Victim::of_crowded_nfs(&server, "iwarp").await?;
    for byte in request.iter().take(seconds) {
        for attacker in &mut attackers {
            let _ = write(attacker, &[*byte]).await;
        }
        // Every second a new connection of the victim.
        victim = Victim::of_crowded_nfs(&server, "iwarp").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    trial.measure(&victim).await;
    let (_, fates) = fates(&attackers);
    drop(attackers);
    Ok(trial.finish(&mut server.process, &victim, format!("{fates}, after {seconds} s")).await)
}
