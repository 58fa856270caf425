//! Cases for servers of version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).

mod chunks;
mod headers;
mod properties;
mod sequences;
mod session;

use self::session::{Sent, Session};
use super::ServerUnderTest;
use crate::{
    came::{Accepted, Kind},
    case::{Case, Part},
};

const BAD_XDR: Kind = Kind::Error("ERR_BAD_XDR");
const INVAL_HTYPE: Kind = Kind::Error("ERR_INVAL_HTYPE");
const INVAL_CONT: Kind = Kind::Error("ERR_INVAL_CONT");
const GARBAGE_ARGS: Kind = Kind::Status("GARBAGE_ARGS");
const MUST_DISCARD: Accepted = Accepted::only(&[Kind::Nothing]);

/// The part that these cases belong to.
const PART: Part = Part::V2Server;

/// Returns all cases for servers of version 2.
pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let all = [properties::cases(), headers::cases(), sequences::cases(), chunks::cases()];
    all.into_iter().flatten().collect()
}

/// Creates a case that sends messages after a first call, and compares the answer with the accepted ones.
fn probe(
    id: &'static str,
    rules: &'static [&'static str],
    sent: &'static str,
    accepted: Accepted,
    build: fn(&mut Session) -> Sent,
) -> Case<ServerUnderTest> {
    Case::new((PART, id), rules, sent, accepted.to_string(), move |server: &ServerUnderTest| {
        let server = server.clone();
        async move {
            let mut session = Session::open(&server).await?;
            let sent = build(&mut session);
            let came = session.observe(&sent, accepted.waits()).await;
            Ok(accepted.judge(&came))
        }
    })
}
