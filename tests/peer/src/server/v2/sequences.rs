//! Cases about continued messages and credits (sections 4.2.1, 4.4.2 and 6.2.2.2 of the draft).

use super::{INVAL_CONT, PART, Sent, Session, probe};
use crate::{
    came::{Accepted, Kind},
    case::{Case, Finding, Steps},
    link::Next,
    rpc,
    server::ServerUnderTest,
    v1::Lists,
    v2::{Prefix, RDMA2_F_MORE, RDMA2_MSG, RDMA2_NOMSG, message},
};

const MUST_CONT: Accepted = Accepted::only(&[INVAL_CONT]);

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v2/server/continued-call",
            &["RPC-over-RDMA v2 6.2.2.2#a", "RPC-over-RDMA v2 4.4.2#a"],
            "a NULL call in three messages, of 12, 8 and 20 bytes",
            Accepted::only(&[Kind::Success]),
            |s| {
                let (xid, call) = s.null_call();
                Sent {
                    messages: parts(xid, &[&call[..12], &call[12..20], &call[20..]]),
                    ..Sent::call((xid, Vec::new()))
                }
            },
        ),
        probe(
            "v2/server/continued-with-another-xid",
            &["RPC-over-RDMA v2 6.2.2.2#1", "RPC-over-RDMA v2 7.1.3#1"],
            "a call in two messages with different XIDs",
            MUST_CONT,
            |s| {
                let (xid, call) = s.null_call();
                let first = part(xid, RDMA2_F_MORE, &call[..20]);
                Sent::anonymous(vec![first, part(xid ^ 0x8000_0000, 0, &call[20..])])
            },
        ),
        probe(
            "v2/server/more-with-nomsg",
            &["RPC-over-RDMA v2 6.2.2.2#4"],
            "RDMA2_NOMSG with RDMA2_F_MORE",
            MUST_CONT,
            |s| {
                let (xid, call) = s.null_call();
                let lists = Lists::reads(0, &[s.link.expose(call)]);
                Sent::call((xid, message(Prefix::new(xid, RDMA2_NOMSG, RDMA2_F_MORE), &lists, 0, &[])))
            },
        ),
        probe(
            "v2/server/more-with-chunks",
            &["RPC-over-RDMA v2 6.2.2.2#6"],
            "RDMA2_MSG with RDMA2_F_MORE and a Write chunk",
            MUST_CONT,
            |s| {
                let (xid, call) = s.null_call();
                let lists = Lists::writes(vec![vec![s.link.sink(64)]]);
                Sent::call((xid, message(Prefix::new(xid, RDMA2_MSG, RDMA2_F_MORE), &lists, 0, &call[..20])))
            },
        ),
        PART.steps(
            "v2/server/all-credits",
            &["RPC-over-RDMA v2 4.2.1.1#d", "RPC-over-RDMA v2 4.2.1.1#e"],
            "as many NULL calls at once as the server granted and permits, up to 64",
            "a reply to each call",
            all_credits,
        ),
    ]
}

fn part(xid: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    message(Prefix::new(xid, RDMA2_MSG, flags), &Lists::default(), 0, payload)
}

/// Returns the messages of a sequence, one for each payload.
fn parts(xid: u32, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
    let last = payloads.len() - 1;
    let flags = |nth| if nth == last { 0 } else { RDMA2_F_MORE };
    payloads.iter().enumerate().map(|(nth, payload)| part(xid, flags(nth), payload)).collect()
}

async fn all_credits(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let permitted = session.properties.as_ref().map_or(1, |properties| properties.prefix.credit >> 16);
    let calls = session.credits.min(permitted).clamp(1, 64);
    for _ in 0..calls {
        let (_, call) = session.null();
        session.link.send(&call);
    }
    let (deadline, mut replies) = (session.deadline(), 0);
    while replies < calls {
        match session.link.next(deadline).await {
            Next::Message(arrived) if rpc::to_words(&arrived.bytes).first() == Some(&0) => {}
            Next::Message(_) => replies += 1,
            Next::Ended(reason) => {
                return Ok(Finding::wrong(format!("{replies} replies, then the connection ended: {reason}")));
            }
            Next::TimedOut => return Ok(Finding::wrong(format!("{replies} replies to {calls} calls"))),
        }
    }
    Ok(Finding::conforming(format!("{replies} replies")))
}
