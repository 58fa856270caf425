//! Cases for clients of version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).

mod replies;
mod session;
mod setup;

use std::future::Future;

use self::session::{Call, Session};
use super::ClientUnderTest;
use crate::case::{Case, Part, Steps};

/// Returns all cases.
pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [setup::cases(), replies::cases()].into_iter().flatten().collect()
}

/// Creates a case.
fn steps<F: Future<Output = Steps> + Send + 'static>(
    id: &'static str,
    rules: &'static [&'static str],
    sent: &'static str,
    expected: impl Into<String>,
    steps: fn(ClientUnderTest) -> F,
) -> Case<ClientUnderTest> {
    Case::new((Part::V2Client, id), rules, sent, expected, move |client: &ClientUnderTest| steps(client.clone()))
}
