#![allow(clippy::unwrap_used)]

use std::{net::SocketAddr, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::fakes::*;
use crate::{
    client::{
        call::CallOptions, channel::Channel, error::CallError, link::ChannelLink, reconnect::Reconnect,
        version_1_servers,
    },
    engine::{CallFailure, PeerLimits},
    rpc::{OpaqueAuth, ReplyHeader},
    security::{CallSecurity, ControlCall, Seal, Secured, Security, SecurityError, SecurityFuture, SecurityLink},
    service::{Procedure as _, ProcedureId},
    session::{ChannelConfig, ResendableXids},
    trace::log::Log,
    transport::Scheme,
};

fn resendable() -> Arc<ChannelConfig> {
    let program = Harmful::PROGRAM;
    let resendable = Some(Arc::new(ResendableXids::new(Some(vec![program]), 1, Duration::from_secs(100))));
    Arc::new(ChannelConfig { resendable, ..(*config()).clone() })
}

fn dialed(script: &Script, link: Arc<ChannelLink>, config: Arc<ChannelConfig>) -> Channel {
    Channel::dialed(Box::new(script.clone()), link, config, Reconnect::on_demand())
}

fn spawn(channel: &Channel, options: CallOptions) -> JoinHandle<Result<(), CallError>> {
    let channel = channel.clone();
    tokio::spawn(async move { channel.call::<Harmful>(&(), options).await })
}

/// Returns the error of a call that fails at once.
async fn failed(call: JoinHandle<Result<(), CallError>>) -> CallError {
    timeout(Duration::from_secs(1), call).await.unwrap().unwrap().unwrap_err()
}

/// A call that must not be executed twice is retried as long as it was not sent.
#[tokio::test(start_paused = true)]
async fn calls_are_retried_until_they_are_sent() {
    let script = Script::new([Outcome::Connects(0)]);
    let first = link(0);
    let mut port = Arc::clone(&first.port);
    let channel = dialed(&script, first, config());
    let call = spawn(&channel, CallOptions::new());
    for _ in 0..3 {
        settle().await;
        lose(&port);
        settle().await;
        assert_eq!((call.is_finished(), script.ranks()), (false, vec![None]));
        port = script.port();
    }
    assert_eq!(sent(&port).len(), 1);
    lose(&port);
    assert!(!failed(call).await.is_retry_safe());
    assert_eq!(script.ranks(), []);
}

/// The time within which a server recognizes a call begins with the first attempt that was sent. The client connects
/// after 60 s, loses the connection, and connects again after another 60 s.
#[tokio::test(start_paused = true)]
async fn the_time_begins_with_the_first_attempt_that_was_sent() {
    let pause = Duration::from_secs(60);
    let script = Script::new([Outcome::Fails, Outcome::Connects(0), Outcome::Fails, Outcome::Connects(0)]);
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause, retries: 3 };
    let transport = crate::transport::Transport::Tcp;
    let channel = Channel::lazy(Box::new(script.clone()), transport, resendable(), reconnect);
    let call = spawn(&channel, CallOptions::new().timeout(Duration::from_secs(1000)));
    for is_lost in [true, false] {
        sleep(pause + Duration::from_secs(1)).await;
        assert!(!call.is_finished());
        assert_eq!((script.ranks().len(), sent(&script.port()).len()), (2, 1));
        if is_lost {
            lose(&script.port());
        }
    }
    call.abort();
}

/// A call that may be executed twice is also sent to another server, although that server does not recognize it.
#[tokio::test(start_paused = true)]
async fn repeatable_calls_need_no_recognition() {
    for (options, moves) in [(CallOptions::new().repeatable(), true), (CallOptions::new(), false)] {
        let script = Script::new([Outcome::Connects(0)]);
        let first = link_to(([192, 0, 2, 9], 1).into());
        let port = Arc::clone(&first.port);
        let channel = dialed(&script, first, resendable());
        let call = spawn(&channel, options);
        settle().await;
        assert_eq!(sent(&port).len(), 1);
        lose(&port);
        settle().await;
        assert_eq!((call.is_finished(), sent(&script.port()).len()), (!moves, usize::from(moves)));
        call.abort();
    }
}

/// A [`Security`] that sends empty verifiers and accepts every verifier of a reply.
#[derive(Debug)]
struct Unsealed {
    /// `true` to make a control call before a call is secured.
    asks: bool,
}

impl Security for Unsealed {
    fn secure<'a>(
        &'a self,
        _: ProcedureId,
        link: SecurityLink<'a>,
    ) -> SecurityFuture<'a, Result<Secured, SecurityError>> {
        Box::pin(async move {
            if self.asks {
                let (credential, arguments) = (OpaqueAuth::none(), Bytes::new());
                let question =
                    ControlCall { program: 1, version: 1, credential, seal: None, arguments, max_results: 0 };
                link.call(question).await?;
            }
            Ok(Secured { credential: OpaqueAuth::none(), call: Arc::new(Self { asks: false }) })
        })
    }
}

impl Seal for Unsealed {
    fn seal(&self, _: &[u8]) -> Result<OpaqueAuth, SecurityError> {
        Ok(OpaqueAuth::none())
    }
}

impl CallSecurity for Unsealed {
    fn verify(&self, _: &OpaqueAuth) -> Result<(), SecurityError> {
        Ok(())
    }
}

fn secured(asks: bool) -> Arc<ChannelConfig> {
    Arc::new(ChannelConfig { security: Some(Arc::new(Unsealed { asks })), ..(*config()).clone() })
}

/// Makes a call over `link`, on which the engine reports `version`. The call gets a reply if `has_reply` is `true`, and
/// reaches its deadline otherwise.
fn exchange(channel: &Channel, link: &ChannelLink, version: Option<u32>, has_reply: bool) {
    let mut call = Box::pin(channel.call_null(1, 1, CallOptions::new()));
    assert!(poll(&mut call).is_pending());
    let [slot] = sent(&link.port)[..] else { panic!("not one call") };
    let mut limits = PeerLimits::default();
    limits.version = version;
    link.port.set_limits(limits);
    let late = CallFailure::DeadlineExceeded { sent: true };
    let result = if has_reply { Ok(reply(&ReplyHeader::success(1), &[])) } else { Err(late) };
    deliver(&link.port, slot, result);
    match poll(&mut call) {
        Poll::Ready(result) => assert_eq!(result.is_ok(), has_reply, "{result:?}"),
        Poll::Pending => panic!("no result"),
    }
}

/// The first reply shows whether a server supports only version 1, for secured calls and for other calls. A call
/// without a reply shows nothing.
#[tokio::test(start_paused = true)]
async fn servers_with_version_1_are_remembered() {
    for (port, (config, version, expected)) in
        (1..).zip([(config(), 1, true), (config(), 2, false), (secured(false), 1, true), (secured(false), 2, false)])
    {
        let peer = SocketAddr::from(([192, 0, 2, 2], port));
        let link = link_to(peer);
        let channel = Channel::over(None, Arc::clone(&link), config, Reconnect::on_demand());
        let is_known = || version_1_servers::has_version_1_only(Scheme::IWARP, peer);
        exchange(&channel, &link, None, false);
        assert!(!is_known());
        exchange(&channel, &link, Some(version), true);
        assert_eq!(is_known(), expected);
    }
}

/// The span of a secured call has the sizes of the call and of its reply, and the port of the server.
#[test]
fn secured_calls_are_observed() {
    Log::of(|log| {
        let link = link_to(([192, 0, 2, 3], 1).into());
        let channel = Channel::over(None, Arc::clone(&link), secured(false), Reconnect::on_demand());
        exchange(&channel, &link, None, true);
        let sizes = log.last(["rpcrdma.call.size", "rpcrdma.reply.size", "network.peer.port"]);
        assert!(sizes.iter().all(Option::is_some), "{sizes:?}");
    });
}

/// A call is retried if its connection is lost while its security waits for a reply, because the call was not sent.
#[tokio::test(start_paused = true)]
async fn the_loss_of_a_control_call_is_that_of_its_call() {
    let script = Script::new([Outcome::Connects(0)]);
    let first = link(0);
    let port = Arc::clone(&first.port);
    let channel = dialed(&script, first, secured(true));
    let call = spawn(&channel, CallOptions::new());
    settle().await;
    assert_eq!(sent(&port).len(), 1);
    lose(&port);
    settle().await;
    assert_eq!((call.is_finished(), sent(&script.port()).len()), (false, 1));
    call.abort();
}

/// The size of a failed attempt is recorded while the call goes on.
#[cfg(feature = "metrics")]
#[test]
fn attempts_have_sizes() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let script = Script::new([Outcome::Connects(0)]);
            let first = link(0);
            let port = Arc::clone(&first.port);
            let channel = dialed(&script, first, config());
            let call = spawn(&channel, CallOptions::new());
            settle().await;
            lose(&port);
            settle().await;
            let metrics = snapshotter.snapshot().into_vec();
            let size = metrics.iter().find(|(key, ..)| key.key().name() == "rpc.client.request.size");
            match size {
                Some((.., DebugValue::Histogram(sizes))) => assert_eq!(sizes.len(), 1),
                other => panic!("{other:?}"),
            }
            call.abort();
        });
    });
}
