//! Cases for clients of version 1 (RFC 8166, RFC 8167, RFC 8797).

mod calls;
mod chunks;
mod replies;
mod session;

use std::future::Future;

use self::session::{Call, GRANT, Session};
use super::{
    ClientUnderTest, nfs,
    running::{End, must_fail, must_succeed},
};
use crate::case::{Case, Part, Steps};

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
