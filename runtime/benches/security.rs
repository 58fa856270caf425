//! The cost of Kerberos and TLS: `cargo bench -p rpcrdma --features gss,tls --bench security [-- --quick]`.
//!
//! Measures null calls, and gets and puts of 1 MiB, one call at a time, over iWARP and TCP on loopback. The variants
//! are no security, the three services of RPCSEC_GSS and, over TCP only, TLS. The variants alternate, round after
//! round, so that other load on the machine affects all of them. The table for each transport has the median ratios to
//! the times without security, and the median times. The benchmark needs a KDC (`tests/krb5/realm`), and asserts
//! nothing.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/net_support/mod.rs"]
mod net_support;
#[path = "../tests/net_support/realm.rs"]
mod realm;
#[path = "../tests/net_support/tls.rs"]
mod tls_support;

use std::{process::ExitCode, time::Instant};

use bytes::Bytes;
use net_support::*;
use rpcrdma::{
    client::{Channel, ChannelBuilder},
    gss::{GssAuthenticator, GssSecurity, KerberosClient, KerberosServer},
    security::{ProtectionLevel, StandardAuthenticator},
    server::{InboundCall, ReplyFuture, Server, Service},
    tls::TlsPolicy,
};
use tls_support::Authority;

const MIB: u32 = 1 << 20;

/// A service that returns and accepts data without looking at it.
struct Fast(Bytes);

impl Service for Fast {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "FAST"
    }

    fn dispatch(&self, mut call: InboundCall) -> ReplyFuture {
        let data = self.0.clone();
        Box::pin(async move {
            match call.procedure() {
                0 => call.decode::<Null>().map_or_else(|reply| reply, |()| call.finish::<Null>(Ok(()))),
                2 => {
                    call.decode::<Put>().map_or_else(|reply| reply, |args| call.finish::<Put>(Ok(args.0.len() as u64)))
                }
                3 => call.decode::<Get>().map_or_else(|reply| reply, |_| call.finish::<Get>(Ok(Data(data)))),
                _ => call.procedure_unavailable(),
            }
        })
    }
}

/// Microseconds per call of the null procedure, get and put.
type Times = [f64; 3];

fn main() -> ExitCode {
    realm::run_in_realm(|| {
        realm::kinit("1h");
        let is_quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
        let (rounds, calls) = if is_quick { (1, 2) } else { (15, 40) };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        for (name, transport) in [("iwarp://", Transport::Iwarp), ("tcp://", Transport::Tcp)] {
            runtime.block_on(table(name, &transport, rounds, calls));
        }
    })
}

async fn table(name: &str, transport: &Transport, rounds: usize, calls: u32) {
    let authority = Authority::new();
    let authenticator = GssAuthenticator::new(KerberosServer::new()).or(StandardAuthenticator);
    let server = Server::builder()
        .service(Fast(pattern(1, MIB).into()))
        .authenticator(authenticator)
        .tls(authority.server().policy(TlsPolicy::Opportunistic).build().unwrap());
    let server = transport.serve(server).await;
    let kerberos = |level| Channel::builder().security(GssSecurity::new(KerberosClient::new("nfs@localhost"), level));
    let mut arms: Vec<(&str, ChannelBuilder)> = vec![
        ("none", Channel::builder()),
        ("krb5", kerberos(ProtectionLevel::Authentication)),
        ("krb5i", kerberos(ProtectionLevel::Integrity)),
        ("krb5p", kerberos(ProtectionLevel::Privacy)),
    ];
    if matches!(transport, Transport::Tcp) {
        arms.push(("TLS", Channel::builder().tls(authority.client().build().unwrap())));
    }
    let mut names = Vec::new();
    let mut channels = Vec::new();
    for (arm, builder) in arms {
        let channel = server.connect(builder).await;
        // Creates the context, and fills caches.
        measure(&channel, 5).await;
        names.push(arm);
        channels.push(channel);
    }
    let mut measured: Vec<Vec<Times>> = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        for (channel, times) in channels.iter().zip(&mut measured) {
            times.push(measure(channel, calls).await);
        }
    }
    println!("\n| {name} | null | get of 1 MiB | put of 1 MiB |\n| --- | --- | --- | --- |");
    for (arm, times) in names.iter().zip(&measured) {
        print!("| {arm} |");
        for kind in 0..3 {
            let median = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let ratio = median(times.iter().zip(&measured[0]).map(|(times, none)| times[kind] / none[kind]).collect());
            let time = median(times.iter().map(|times| times[kind]).collect());
            print!(" {ratio:.2} ({time:.0} us) |");
        }
        println!();
    }
}

async fn measure(channel: &Channel, calls: u32) -> Times {
    let data = Data(pattern(1, MIB).into());
    let started = Instant::now();
    for _ in 0..calls * 10 {
        call::<Null>(channel, &()).await.unwrap();
    }
    let null = started.elapsed() / (calls * 10);
    let started = Instant::now();
    for _ in 0..calls {
        call::<Get>(channel, &Range(1, MIB)).await.unwrap();
    }
    let get = started.elapsed() / calls;
    let started = Instant::now();
    for _ in 0..calls {
        call::<Put>(channel, &data).await.unwrap();
    }
    [null, get, started.elapsed() / calls].map(|time| time.as_secs_f64() * 1e6)
}
