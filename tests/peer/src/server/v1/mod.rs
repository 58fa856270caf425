//! Cases for servers of version 1 (RFC 8166, RFC 8797, RFC 8167).

mod chunks;
mod credits;
mod headers;
mod nfs;
mod session;
mod setup;

pub(super) use self::nfs::look_up;

use self::session::{Sent, Session};
use super::ServerUnderTest;
use crate::{
    came::{Accepted, Kind},
    case::{Case, Part},
};

const ERR_CHUNK: Kind = Kind::Error("ERR_CHUNK");
const ERR_VERS: Kind = Kind::Error("ERR_VERS");
const GARBAGE_ARGS: Kind = Kind::Status("GARBAGE_ARGS");

/// The part that these cases belong to.
const PART: Part = Part::V1Server;

/// Returns all cases for servers of version 1.
pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let all = [headers::cases(), credits::cases(), chunks::cases(), setup::cases(), nfs::cases()];
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
