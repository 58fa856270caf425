//! The program `nfs41cb`, which receives reverse-direction calls from an NFS version 4.1 server, such as the Linux
//! server.
//!
//! The program creates a session whose fore channel and backchannel share one connection (RFC 8167, RFC 8881 §2.10.3),
//! and opens a file with a read delegation. When another client writes to the file, the server recalls the delegation,
//! and the program returns it.
#![forbid(unsafe_code)]

mod callbacks;
mod session;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Error, anyhow, bail};
use clap::Parser;
use rpcrdma::{client::Channel, rpc::Credential};
use rpcrdma_examples::command::{self, Logging, explain_connect_error, unless_stopped};
use rpcrdma_examples::say;
use rpcrdma_specs::nfs4::{OpenDelegation4, nfs_cb::NfsCbServer};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    callbacks::{CallbackEvent, Callbacks, Delegation, SLOTS, Serving},
    session::Session,
};

/// Open a file of an NFS 4.1 export with a read delegation, and return the delegation when the server recalls it
#[derive(Debug, Parser)]
#[command(
    name = "nfs41cb",
    version,
    after_help = "Example:\n  nfs41cb iwarp://server:20049 file\n\nTo trigger the recall, write to the file \
                                 from another client while nfs41cb waits."
)]
struct Cli {
    /// Server URL, e.g. iwarp://server:20049
    url: String,
    /// File in the root of the export
    file: String,
    /// Seconds to wait for a delegation, and for its recall
    #[arg(long, value_name = "S", default_value_t = 60)]
    wait: u64,
    /// Time limit of each call, in seconds
    #[arg(long, value_name = "S", default_value_t = 20)]
    call_timeout: u64,
    #[command(flatten)]
    logging: Logging,
}

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    command::run("nfs41cb", unless_stopped(run(cli)))
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let (callbacks, mut called) = Callbacks::new();
    let callbacks = Arc::new(callbacks);
    let channel = Channel::builder()
        .service(NfsCbServer::new(Serving(Arc::clone(&callbacks))))
        .reverse_credits(SLOTS)
        .credential(Credential::sys("nfs41cb", 0, 0, []).to_opaque()?)
        .call_timeout(Duration::from_secs(cli.call_timeout))
        .connect(&cli.url)
        .await
        .map_err(|error| anyhow!(explain_connect_error(&error)))?;
    say!("connected {} over {}", channel.info().peer_addr, channel.info().transport);

    let mut session = Session::create(channel.clone(), &callbacks).await?;
    let started = Instant::now();
    let (opened, delegation) = loop {
        let opened = session.open(&cli.file).await?;
        if let OpenDelegation4::Read(read) = &opened.delegation {
            let delegation = Delegation { stateid: read.stateid.clone(), handle: opened.handle.clone() };
            break (opened, delegation);
        }
        // A server grants no delegations during its grace period, nor during that of its lock manager.
        let refused = format!("{:?}", opened.delegation);
        session.close(opened).await?;
        if started.elapsed() > Duration::from_secs(cli.wait) {
            bail!("the server granted no read delegation for {}: {refused}", cli.file);
        }
        sleep(Duration::from_secs(1)).await;
    };
    callbacks.set_delegation(delegation.clone());
    say!("delegated {}", cli.file);

    let wait = Duration::from_secs(cli.wait);
    let recalled = loop {
        let next = tokio::select! {
            next = timeout(wait, called.recv()) => next.context("the server did not recall the delegation in time")?,
            reason = channel.closed() => return Err(Error::new(reason).context("connection lost while waiting for the recall")),
        };
        match next {
            Some(CallbackEvent::Null) => say!("CB_NULL"),
            Some(CallbackEvent::Recall(at)) => break at,
            None => bail!("the callback service has stopped"),
        }
    };
    say!("CB_RECALL");
    session.return_delegation(&delegation).await?;
    say!("returned  {:?} after the recall", recalled.elapsed());
    session.close(opened).await?;
    session.end().await?;
    let counters = channel.counters();
    say!(
        "ended     {} calls sent, {} calls received, {} replies sent, on one connection",
        counters.calls_sent,
        counters.calls_received,
        counters.replies_sent
    );
    Ok(())
}
