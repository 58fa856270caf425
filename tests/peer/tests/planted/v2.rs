//! Faults of RPC-over-RDMA version 2 servers and clients.

use super::{
    fault::{Effect, Fault, fault, set, words},
    message::Seen,
};

const RESPONSE: u32 = 1;
const MORE: u32 = 2;
const TPMORE: u32 = 4;
/// A property identifier that the draft does not assign.
const UNKNOWN: u32 = 0x7fff_fff1;

fn is_v2(seen: &Seen, htype: u32) -> bool {
    seen.vers() == 2 && seen.word(3) == htype
}

/// Returns `true` if the message is an RDMA2_MSG without flags.
fn is_call(seen: &Seen) -> bool {
    is_v2(seen, 0) && seen.word(4) == 0
}

fn error(seen: &Seen, code: u32) -> Vec<u8> {
    words(&[seen.word(0), 2, 64 << 16 | 1, 4, RESPONSE, code])
}

fn bad_xdr(seen: &Seen) -> Vec<u8> {
    error(seen, 2)
}

/// Encodes RDMA2_CONNPROP without properties.
fn version_2(seen: &Seen) -> Vec<u8> {
    words(&[seen.word(0), 2, 64 << 16 | 1, 5, 0, 0])
}

fn to_bad_xdr(seen: &Seen, reply: &mut Vec<u8>) {
    *reply = bad_xdr(seen);
}

/// Replaces a message with a plain call of NULL.
fn to_call(message: &mut Vec<u8>) {
    let xid = Seen::new(message, 0, &[]).word(0);
    *message = words(&[xid, 2, 64 << 16 | 1, 0, 0, 0, 0, 0, 0, xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
}

/// Replaces a message with a plain successful reply.
fn to_success(message: &mut Vec<u8>) {
    let xid = Seen::new(message, 0, &[]).word(0);
    *message = words(&[xid, 2, 64 << 16 | 1, 0, RESPONSE, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0]);
}

/// Returns `true` if the message is an RDMA2_NOMSG with a position-zero Read chunk of segments of these lengths.
fn is_special(seen: &Seen, lens: &[u32]) -> bool {
    is_v2(seen, 1) && seen.reads().iter().map(|(_, len)| *len).eq(lens.iter().copied()) && seen.reads()[0].0 == 0
}

fn wraps(seen: &Seen) -> bool {
    seen.first_read().1 > 1 << 63
}

pub(crate) const SERVER: &[Fault] = &[
    fault(
        "unknown flags are set",
        &["v2/server/properties"],
        |s| is_v2(s, 5),
        Effect::Send(|m| {
            let flags = Seen::new(m, 0, &[]).word(4);
            set(m, 4, flags | 0x100);
        }),
    ),
    fault(
        "the first message grants nothing",
        &["v2/server/grant"],
        |s| is_v2(s, 5),
        Effect::Send(|m| set(m, 2, 32 << 16)),
    ),
    fault(
        "unknown properties are refused",
        &["v2/server/unknown-property"],
        |s| s.word(6) == UNKNOWN,
        Effect::Answer(|s| error(s, 3)),
    ),
    fault(
        "properties without data are refused",
        &["v2/server/default-property"],
        |s| is_v2(s, 5) && s.word(5) == 1 && s.word(7) == 0,
        Effect::Answer(|s| error(s, 3)),
    ),
    fault(
        "a message without properties is ignored",
        &["v2/server/no-properties"],
        |s| is_v2(s, 5) && s.word(5) == 0,
        Effect::Ignore,
    ),
    fault(
        "a second message with properties ends the connection",
        &["v2/server/properties-in-two-messages", "v2/server/call-before-properties"],
        |s| is_v2(s, 5) && s.word(5) == 2,
        Effect::Disconnect,
    ),
    fault(
        "short properties are ignored",
        &["v2/server/property-short"],
        |s| is_v2(s, 5) && s.word(7) == 2,
        Effect::Ignore,
    ),
    fault(
        "properties that are too long are ignored",
        &["v2/server/property-beyond-message"],
        |s| is_v2(s, 5) && s.word(7) == 4000,
        Effect::Ignore,
    ),
    fault(
        "properties are accepted at any time",
        &["v2/server/properties-again"],
        |s| is_v2(s, 5) && s.count > 1 && s.word(5) == 3,
        Effect::Ignore,
    ),
    fault(
        "calls before the last properties are lost",
        &["v2/server/call-before-properties"],
        |s| is_v2(s, 4) && s.words.last() == Some(&100),
        Effect::Send(Vec::clear),
    ),
    fault(
        "replies have unknown flags",
        &["v2/server/reply-header"],
        |s| is_v2(s, 0),
        Effect::Send(|m| set(m, 4, RESPONSE | 0x100)),
    ),
    fault("version 0 is ignored", &["v2/server/version-0"], |s| s.vers() == 0, Effect::Ignore),
    fault("ERR_VERS has version 2", &["v2/server/version-3"], |s| s.vers() == 3, Effect::Reply(|_, m| set(m, 1, 2))),
    fault("header type 2 is ignored", &["v2/server/type-2"], |s| is_v2(s, 2), Effect::Ignore),
    fault(
        "unknown header types count as RDMA2_MSG",
        &["v2/server/type-max"],
        |s| s.len > 60 && is_v2(s, u32::MAX),
        Effect::Accept(|m| set(m, 3, 0)),
    ),
    fault(
        "reserved flags are refused",
        &["v2/server/reserved-flags"],
        |s| is_v2(s, 0) && s.word(4) > 7,
        Effect::Answer(bad_xdr),
    ),
    fault(
        "RDMA2_F_TPMORE is ignored",
        &["v2/server/more-properties-flag"],
        |s| is_v2(s, 0) && s.word(4) == TPMORE,
        Effect::Accept(|m| set(m, 4, 0)),
    ),
    fault(
        "RDMA2_F_RESPONSE is ignored",
        &["v2/server/response-flag"],
        |s| is_v2(s, 0) && s.word(4) == RESPONSE && s.payload(1) == 0,
        Effect::Accept(|m| set(m, 4, 0)),
    ),
    fault(
        "any non-zero word counts as TRUE",
        &["v2/server/read-list-discriminator"],
        |s| is_call(s) && s.word(6) == 2,
        Effect::Accept(|m| set(m, 6, 0)),
    ),
    fault(
        "a bad Write list is ignored",
        &["v2/server/write-list-discriminator"],
        |s| is_call(s) && s.word(6) == 0 && s.word(7) == 2,
        Effect::Ignore,
    ),
    fault("a header that ends early is ignored", &["v2/server/header-ends-early"], |s| s.len == 28, Effect::Ignore),
    fault(
        "a message without a payload is ignored",
        &["v2/server/msg-without-payload"],
        |s| is_call(s) && s.len == 36,
        Effect::Ignore,
    ),
    fault(
        "the XID of the header is not compared",
        &["v2/server/xid-mismatch"],
        |s| is_call(s) && s.is_bare() && s.payload(0) ^ s.word(0) == 1 << 31,
        Effect::Accept(to_call),
    ),
    fault(
        "RDMA2_NOMSG without chunks gets ERR_SYSTEM",
        &["v2/server/nomsg-without-chunks"],
        |s| is_v2(s, 1) && s.is_bare() && s.word(0) != 0,
        Effect::Reply(|s, m| *m = error(s, 100)),
    ),
    fault("version 1 is ignored", &["v2/server/version-1"], |s| s.vers() == 1, Effect::Ignore),
    fault("a short message is answered", &["v2/server/short-message"], |s| s.len == 16, Effect::Answer(bad_xdr)),
    fault("an empty message is answered", &["v2/server/empty-message"], |s| s.len == 0, Effect::Answer(bad_xdr)),
    fault("an unknown error is answered", &["v2/server/unknown-error"], |s| is_v2(s, 4), Effect::Answer(bad_xdr)),
    fault(
        "an unknown reply is answered",
        &["v2/server/unknown-reply"],
        |s| is_v2(s, 0) && s.payload(1) == 1,
        Effect::Answer(bad_xdr),
    ),
    fault(
        "a separate grant is answered",
        &["v2/server/separate-grant"],
        |s| is_v2(s, 1) && s.word(0) == 0,
        Effect::Answer(|_| words(&[7, 2, 1, 4, RESPONSE, 2])),
    ),
    fault(
        "continued calls are refused",
        &["v2/server/continued-call"],
        |s| is_v2(s, 0) && s.word(4) & MORE != 0 && s.len == 36 + 12,
        Effect::Answer(|s| error(s, 5)),
    ),
    fault(
        "broken sequences are ignored",
        &["v2/server/continued-with-another-xid"],
        |s| is_v2(s, 0) && s.is_bare() && s.len == 36 + 20 && s.payload(1) == 0 && s.word(4) == 0 && s.count == 4,
        Effect::Ignore,
    )
    .broad(),
    fault(
        "RDMA2_F_MORE is ignored with RDMA2_NOMSG",
        &["v2/server/more-with-nomsg"],
        |s| is_v2(s, 1) && s.word(4) == MORE,
        Effect::Accept(|m| set(m, 4, 0)),
    ),
    fault(
        "RDMA2_F_MORE with chunks is ignored",
        &["v2/server/more-with-chunks"],
        |s| is_v2(s, 0) && s.word(4) == MORE && !s.is_bare(),
        Effect::Ignore,
    ),
    fault("calls beyond 20 are lost", &["v2/server/all-credits"], |s| s.count == 22, Effect::Ignore),
    fault(
        "special calls are refused",
        &["v2/server/special-call"],
        |s| is_special(s, &[40]) && !wraps(s) && s.word(5) == 0 && s.word(4) == 0,
        Effect::Reply(to_bad_xdr),
    )
    .broad(),
    fault(
        "chunks of several segments are refused",
        &["v2/server/special-call-segments"],
        |s| is_special(s, &[10; 4]),
        Effect::Reply(to_bad_xdr),
    ),
    fault(
        "errors about special calls are lost",
        &["v2/server/special-call-xid"],
        |s| is_special(s, &[40]) && !wraps(s) && s.word(4) == 0,
        Effect::Reply(|_, m| {
            if Seen::new(m, 0, &[]).word(3) == 4 {
                m.clear();
            }
        }),
    ),
    fault(
        "lengths that overflow are lost",
        &["v2/server/reads-sum-overflow"],
        |s| is_special(s, &[u32::MAX - 15; 2]),
        Effect::Ignore,
    ),
    fault(
        "segments that wrap are lost",
        &["v2/server/read-wraps"],
        |s| is_special(s, &[40]) && wraps(s),
        Effect::Ignore,
    ),
    fault(
        "the alignment of positions is not checked",
        &["v2/server/read-position-unaligned"],
        |s| s.vers() == 2 && s.reads() == [(39, 64)],
        Effect::Accept(to_call),
    ),
    fault(
        "positions beyond the message are accepted",
        &["v2/server/read-position-beyond"],
        |s| s.vers() == 2 && s.reads() == [(4000, 64)],
        Effect::Accept(to_call),
    ),
    fault(
        "chunks that overlap are accepted",
        &["v2/server/reads-overlap"],
        |s| s.vers() == 2 && s.reads() == [(40, 64), (44, 64)],
        Effect::Accept(to_call),
    ),
    fault(
        "ERR_SEGMENTS has another number",
        &["v2/server/segments-beyond-limit"],
        |s| s.reads().len() == 101,
        Effect::Reply(|_, m| set(m, 6, 7)),
    ),
    fault(
        "the unused Reply chunk is returned unchanged",
        &["v2/server/reply-chunk"],
        |s| s.vers() == 2 && s.reply() == Some(vec![1024]),
        Effect::Reply(|_, m| set(m, 11, 1024)),
    ),
    fault(
        "unused Write chunks are returned unchanged",
        &["v2/server/write-unused"],
        |s| s.vers() == 2 && s.writes() == [vec![64], vec![32, 32]],
        Effect::Reply(|_, m| set(m, 10, 64)),
    ),
    fault(
        "handles are invalidated unasked",
        &["v2/server/no-remote-invalidation"],
        |s| is_special(s, &[40]) && s.word(5) == 0 && s.word(4) == 0 && !wraps(s),
        Effect::Invalidate(|s| s.first_read().0),
    ),
    fault(
        "another handle is invalidated",
        &["v2/server/remote-invalidation"],
        |s| is_special(s, &[40]) && s.word(5) == s.first_read().0,
        Effect::Invalidate(|_| 0x1234_5678),
    ),
    fault(
        "the handle is not checked",
        &["v2/server/foreign-invalidation"],
        |s| is_special(s, &[40]) && s.word(5) != 0 && s.word(5) != s.first_read().0,
        Effect::Invalidate(|s| s.word(5)),
    ),
];

pub(crate) const CLIENT: &[Fault] = &[
    fault("unknown flags are set", &["v2/client/first-message"], |s| is_v2(s, 5), Effect::Send(|m| set(m, 4, 0x100))),
    fault("the first message is sent twice", &["v2/client/first-message-alone"], |s| is_v2(s, 5), Effect::Double)
        .broad(),
    fault("calls have unknown flags", &["v2/client/call-header"], |s| is_v2(s, 0), Effect::Send(|m| set(m, 4, 0x100))),
    fault(
        "grants are exceeded",
        &["v2/client/messages-within-grant"],
        |s| is_v2(s, 5) && s.word(2) & 0xffff == 2,
        Effect::Accept(|m| set(m, 2, 64 << 16 | 32)),
    ),
    fault(
        "unknown properties end the connection",
        &["v2/client/unknown-property"],
        |s| s.word(6) == UNKNOWN,
        Effect::Disconnect,
    ),
    fault(
        "short properties are ignored",
        &["v2/client/property-short"],
        |s| is_v2(s, 5) && s.word(7) == 2,
        Effect::Ignore,
    ),
    fault(
        "ERR_VERS is answered in version 2",
        &["v2/client/fallback"],
        |s| is_v2(s, 4) && s.word(5) == 1 && s.word(6) == 1,
        Effect::Answer(version_2),
    ),
    fault(
        "ERR_VERS without a common version is answered",
        &["v2/client/no-common-version"],
        |s| is_v2(s, 4) && s.word(5) == 1 && s.word(6) == 7,
        Effect::Answer(version_2),
    ),
    fault(
        "the XID of replies is not compared",
        &["v2/client/reply-xid-mismatch"],
        |s| is_v2(s, 0) && s.payload(1) == 1 && s.payload(0) ^ s.word(0) == 1 << 31,
        Effect::Accept(to_success),
    ),
    fault(
        "the version of replies is not compared",
        &["v2/client/reply-version"],
        |s| s.vers() == 9,
        Effect::Accept(to_success),
    ),
    fault(
        "RDMA2_F_RESPONSE is not needed",
        &["v2/client/reply-without-flag"],
        |s| is_call(s) && s.payload(1) == 1,
        Effect::Accept(to_success),
    ),
    fault(
        "Read lists of replies are ignored",
        &["v2/client/reply-read-list"],
        |s| is_v2(s, 0) && s.reads() == [(24, 64)],
        Effect::Accept(to_success),
    ),
    fault(
        "additional Write chunks are ignored",
        &["v2/client/reply-write-list"],
        |s| is_v2(s, 0) && s.word(4) == RESPONSE && s.writes() == [vec![64]],
        Effect::Accept(to_success),
    ),
    fault(
        "any non-zero word counts as TRUE",
        &["v2/client/reply-discriminator"],
        |s| is_v2(s, 0) && s.word(6) == 2,
        Effect::Accept(to_success),
    ),
    fault(
        "RDMA2_F_MORE with chunks is accepted",
        &["v2/client/reply-more-with-chunks"],
        |s| is_v2(s, 0) && s.word(4) == RESPONSE | MORE && !s.is_bare(),
        Effect::Accept(to_success),
    ),
    fault(
        "XIDs are compared in part",
        &["v2/client/unknown-xid"],
        |s| is_v2(s, 0) && s.payload(5) == 5 && s.about.as_ref().is_some_and(|call| call.word(0) != s.word(0)),
        Effect::AcceptFor(|seen, m| {
            let xid = seen.word(0) ^ (1 << 31);
            set(m, 0, xid);
            set(m, 9, xid);
        }),
    ),
    fault("a short message ends the connection", &["v2/client/short-message"], |s| s.len == 16, Effect::Disconnect),
    fault(
        "a separate grant ends the connection",
        &["v2/client/separate-grant"],
        |s| is_v2(s, 1) && s.word(0) == 0,
        Effect::Disconnect,
    ),
    fault(
        "unknown errors count as ERR_BAD_XDR",
        &["v2/client/unknown-error"],
        |s| is_v2(s, 4) && s.word(5) == 0x7777,
        Effect::Accept(|m| set(m, 5, 2)),
    ),
    fault(
        "replies with reserved flags are lost",
        &["v2/client/reserved-flags"],
        |s| is_v2(s, 0) && s.word(4) > 7,
        Effect::Ignore,
    ),
    fault(
        "continued replies are lost",
        &["v2/client/continued-reply"],
        |s| is_v2(s, 0) && s.word(4) == RESPONSE | MORE && s.is_bare(),
        Effect::Ignore,
    ),
    fault("unknown header types end the connection", &["v2/client/unknown-type"], |s| is_v2(s, 77), Effect::Disconnect),
    fault("ERR_BAD_XDR is ignored", &["v2/client/bad-xdr"], |s| is_v2(s, 4) && s.word(5) == 2, Effect::Ignore),
    fault("ERR_SYSTEM is ignored", &["v2/client/system-error"], |s| is_v2(s, 4) && s.word(5) == 100, Effect::Ignore),
];
