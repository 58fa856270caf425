//! Cases for clients of version 1 (RFC 8166, RFC 8167, RFC 8797).

mod calls;
mod chunks;
mod replies;
mod session;

use std::future::Future;

use self::session::{Call, End, GRANT, Session};
use super::{ClientUnderTest, nfs};
use crate::case::{Case, Finding, Part, Steps};

/// Returns all cases.
pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [calls::cases(), replies::cases(), chunks::cases()].into_iter().flatten().collect()
}

/// Creates a case.
fn steps<F: Future<Output = Steps> + Send + 'static>(
    id: &'static str,
    rules: &'static [&'static str],
    sent: &'static str,
    expected: impl Into<String>,
    steps: fn(ClientUnderTest) -> F,
) -> Case<ClientUnderTest> {
    Case::new((Part::V1Client, id), rules, sent, expected, move |client: &ClientUnderTest| steps(client.clone()))
}

/// Judges a client that should succeed.
fn should_succeed(end: End) -> Finding {
    match end {
        End::Succeeded => Finding::conforming("the client succeeded"),
        End::Failed => Finding::unusual("the call failed"),
        End::Ended(reason) => Finding::unusual(reason),
        End::Waits => Finding::wrong("the client waits"),
    }
}

/// Judges a client that must succeed.
fn must_succeed(end: End) -> Finding {
    match should_succeed(end) {
        Finding { verdict: crate::Verdict::Unusual, came } => Finding::wrong(came),
        finding => finding,
    }
}

/// Judges a client that must not succeed.
fn must_fail(end: End) -> Finding {
    match end {
        End::Succeeded => Finding::wrong("the client succeeded"),
        End::Failed => Finding::conforming("the call failed"),
        End::Ended(reason) => Finding::conforming(reason),
        End::Waits => Finding::wrong("the client waits"),
    }
}
