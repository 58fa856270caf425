//! Cases for clients of version 1 (RFC 8166, RFC 8167, RFC 8797).

mod calls;
mod chunks;
mod replies;
mod session;

use self::session::{Call, GRANT, Session};
use super::{
    ClientUnderTest, nfs,
    running::{End, ServedSession, must_fail, must_succeed},
};
use crate::case::{Case, Part};

/// The part that these cases belong to.
const PART: Part = Part::V1Client;

/// Returns all cases for clients of version 1.
pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [calls::cases(), replies::cases(), chunks::cases()].into_iter().flatten().collect()
}
