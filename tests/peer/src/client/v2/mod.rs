//! Cases for clients of version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).

mod replies;
mod session;
mod setup;

use self::session::{Call, Session};
use super::ClientUnderTest;
use crate::case::{Case, Part};

/// The part that these cases belong to.
const PART: Part = Part::V2Client;

/// Returns all cases for clients of version 2.
pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [setup::cases(), replies::cases()].into_iter().flatten().collect()
}
