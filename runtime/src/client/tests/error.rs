use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use tokio::time::{Instant, advance};

use crate::{
    client::error::{CallError, ConnectError, Retries},
    engine::{CallFailure, CloseReason},
    rpc::RpcError,
};

fn transport(failure: CallFailure) -> CallError {
    CallError::Transport { procedure: "P", failure, retries: Retries::default() }
}

fn closed(sent: bool) -> CallFailure {
    CallFailure::Closed { reason: CloseReason::Idle(Duration::ZERO), sent }
}

fn unserved(sent: bool) -> CallError {
    let reason = CloseReason::Idle(Duration::ZERO);
    let error = ConnectError::Closed { peer: ([127, 0, 0, 1], 1).into(), reason, sent };
    CallError::Connect { procedure: "P", error, retries: Retries::default() }
}

#[tokio::test(start_paused = true)]
async fn retries_are_counted() {
    let since = Instant::now();
    advance(Duration::from_secs(3)).await;
    assert_eq!(Retries::new(0, since), Retries::default());
    assert_eq!((Retries::default().count(), Retries::default().elapsed()), (0, Duration::ZERO));
    for count in [1, 2] {
        let made = Retries::new(count, since);
        assert_eq!((made.count(), made.elapsed()), (count, Duration::from_secs(3)));
        for error in [transport(closed(true)), unserved(true)] {
            match error.retried(made.clone()) {
                CallError::Transport { retries, .. } | CallError::Connect { retries, .. } => assert_eq!(retries, made),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(
        transport(closed(true)).retried(Retries::new(2, since)).to_string(),
        format!("{}, after 2 retries in 3.0s", transport(closed(true)))
    );
}

/// `into_sent` returns a failure only if the server may have executed the attempt.
#[test]
fn attempts_that_were_sent() {
    for (error, sent) in [
        (transport(closed(true)), Some(closed(true))),
        (transport(closed(false)), None),
        (transport(CallFailure::DeadlineExceeded { sent: true }), Some(CallFailure::DeadlineExceeded { sent: true })),
        (transport(CallFailure::XidInUse { xid: 1 }), None),
        (unserved(true), Some(closed(true))),
        (unserved(false), None),
        (CallError::Rpc { procedure: "P", source: RpcError::SystemError }, None),
    ] {
        let text = error.to_string();
        assert_eq!(format!("{:?}", error.into_sent()), format!("{sent:?}"), "{text}");
    }
}

/// Only the error of a refused connection contains the hint to start the server.
#[test]
fn hints() {
    for (kind, hint) in [(ErrorKind::ConnectionRefused, true), (ErrorKind::HostUnreachable, false)] {
        let error = ConnectError::Setup { peer: ([127, 0, 0, 1], 1).into(), source: io::Error::from(kind).into() };
        assert_eq!(error.to_string().contains("start the server"), hint, "{error}");
    }
}

/// TLS errors are permanent, except for a time-out.
#[cfg(feature = "tls")]
#[test]
fn tls_errors_are_permanent() {
    use crate::tls::TlsError;

    for (error, is_permanent) in [(TlsError::NoAlpn, true), (TlsError::TimedOut(Duration::ZERO), false)] {
        let error = ConnectError::Setup { peer: ([127, 0, 0, 1], 1).into(), source: error.into() };
        assert_eq!(error.is_permanent(), is_permanent, "{error:?}");
    }
}
