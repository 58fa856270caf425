//! Faults of RPC-over-RDMA version 1 clients.

use super::{
    fault::{Effect, Fault, fault, set, words},
    message::Seen,
};

/// Returns `true` if the message has version 1 and the type RDMA_MSG. The payload may be a call or a reply.
fn is_msg(seen: &Seen) -> bool {
    seen.vers() == 1 && seen.word(3) == 0
}

/// Returns `true` if the message is a call of version 1.
fn is_call(seen: &Seen) -> bool {
    is_msg(seen) && seen.payload(1) == 0
}

/// Returns `true` if the payload is a successful reply with the XID of the transport header.
fn is_success(seen: &Seen) -> bool {
    seen.payload(0) == seen.word(0) && seen.payload(1) == 1 && seen.payload(5) == 0
}

/// Returns `true` if the message is a reverse-direction call.
fn is_reverse(seen: &Seen) -> bool {
    is_call(seen) && seen.payload(3) == 0x4000_0000
}

/// Replaces a message with a plain successful reply.
fn to_success(message: &mut Vec<u8>) {
    let xid = Seen::new(message, 0, &[]).word(0);
    *message = words(&[xid, 1, 32, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0]);
}

/// Number of words in a reply to READ before the data: the RPC header, the status, the attributes of the file, the
/// count, the EOF flag, and the length of the data.
const READ_REPLY_WORDS: usize = 6 + 1 + 22 + 3;

/// Replaces the Write list of a READ reply with the one from its call, and removes inline data. The segment lengths add
/// up to the length of the data that the reply reports, up to the size of the call's chunks.
fn trust_write_list(seen: &Seen, message: &mut Vec<u8>) {
    let (Some(call), Some(lists)) = (&seen.about, &seen.lists) else { return };
    let payload = &seen.words[lists.payload..];
    let mut left = payload[payload.len().min(READ_REPLY_WORDS) - 1];
    let mut out = seen.words[..4].to_vec();
    out.push(0);
    for chunk in call.lists.iter().flat_map(|lists| &lists.writes) {
        out.extend([1, chunk.len() as u32]);
        for segment in chunk {
            let used = left.min(segment.1);
            left -= used;
            out.extend([segment.0, used, (segment.2 >> 32) as u32, segment.2 as u32]);
        }
    }
    out.extend([0, 0]);
    out.extend(&payload[..READ_REPLY_WORDS]);
    *message = words(&out);
}

/// Returns `true` if the message is a successful reply to a READ with Write chunks, and `differs` returns `true` for
/// the reply and its call.
fn is_read_reply(seen: &Seen, differs: fn(&Seen, &Seen) -> bool) -> bool {
    let Some(call) = &seen.about else { return false };
    is_msg(seen) && is_success(seen) && call.payload(5) == 6 && !call.writes().is_empty() && differs(seen, call)
}

pub(crate) const FAULTS: &[Fault] = &[
    fault("calls request no credits", &["v1/client/call-header"], is_call, Effect::Send(|m| set(m, 2, 0))),
    fault(
        "reserved flags are set",
        &["v1/client/private-data"],
        |_| false,
        Effect::PrivateData(|data| data[5] |= 0x80),
    ),
    fault("calls are sent twice", &["v1/client/first-call-alone"], |s| is_call(s) && s.count < 2, Effect::Double)
        .broad(),
    fault(
        "grants are exceeded",
        &["v1/client/calls-within-grant"],
        |s| is_msg(s) && s.word(2) == 2,
        Effect::Accept(|m| set(m, 2, 32)),
    ),
    fault(
        "sizes in private data are ignored",
        &["v1/client/calls-within-message-size"],
        |s| is_call(s) && s.receives_little,
        Effect::Send(|m| m.resize(1100, 0)),
    ),
    fault(
        "the XID of replies is not compared",
        &["v1/client/reply-xid-mismatch"],
        |s| is_msg(s) && s.payload(1) == 1 && s.payload(0) ^ s.word(0) == 1 << 31,
        Effect::Accept(to_success),
    ),
    fault(
        "the version of replies is not compared",
        &["v1/client/reply-version"],
        |s| s.vers() == 9,
        Effect::Accept(|m| set(m, 1, 1)),
    ),
    fault(
        "Read lists of replies are ignored",
        &["v1/client/reply-read-list"],
        |s| is_msg(s) && s.reads() == [(24, 64)],
        Effect::Accept(to_success),
    ),
    fault(
        "additional Write chunks are ignored",
        &["v1/client/reply-write-list"],
        |s| is_msg(s) && s.payload(1) == 1 && s.writes() == [vec![64]],
        Effect::Accept(to_success),
    ),
    fault(
        "any non-zero word counts as TRUE",
        &["v1/client/reply-discriminator"],
        |s| is_msg(s) && s.word(4) == 2,
        Effect::Accept(to_success),
    ),
    fault(
        "RDMA_MSGP is accepted",
        &["v1/client/reply-msgp"],
        |s| s.vers() == 1 && s.word(3) == 2,
        Effect::Accept(to_success),
    ),
    fault(
        "RDMA_NOMSG without chunks is accepted",
        &["v1/client/reply-nomsg"],
        |s| s.vers() == 1 && s.word(3) == 1,
        Effect::Accept(to_success),
    ),
    fault(
        "a message without a payload is accepted",
        &["v1/client/reply-empty"],
        |s| is_msg(s) && s.len == 28,
        Effect::Accept(to_success),
    ),
    fault(
        "XIDs are compared in part",
        &["v1/client/unknown-xid"],
        |s| is_msg(s) && s.payload(5) == 5 && s.about.as_ref().is_some_and(|call| call.word(0) != s.word(0)),
        Effect::AcceptFor(|seen, m| {
            let xid = seen.word(0) ^ (1 << 31);
            set(m, 0, xid);
            set(m, 7, xid);
        }),
    ),
    fault("a short message ends the connection", &["v1/client/short-message"], |s| s.len == 16, Effect::Disconnect),
    fault("an empty message ends the connection", &["v1/client/empty-message"], |s| s.len == 0, Effect::Disconnect),
    fault(
        "RDMA_DONE ends the connection",
        &["v1/client/done"],
        |s| s.vers() == 1 && s.word(3) == 3,
        Effect::Disconnect,
    ),
    fault(
        "an error for another call ends the connection",
        &["v1/client/error-for-unknown-call"],
        |s| s.len == 20 && s.about.as_ref().is_some_and(|call| call.word(0) != s.word(0)),
        Effect::Disconnect,
    ),
    fault(
        "unknown errors count as ERR_CHUNK",
        &["v1/client/malformed-error"],
        |s| s.vers() == 1 && s.word(3) == 4 && s.word(4) == 7,
        Effect::Accept(|m| {
            set(m, 4, 2);
            m.truncate(20);
        }),
    ),
    fault(
        "a repeated reply ends the connection",
        &["v1/client/duplicate-reply"],
        |s| is_msg(s) && s.is_repeated && is_success(s),
        Effect::Disconnect,
    ),
    fault(
        "ERR_CHUNK is ignored",
        &["v1/client/err-chunk"],
        |s| s.len == 20 && s.vers() == 1 && s.word(3) == 4,
        Effect::Ignore,
    ),
    fault(
        "ERR_VERS is ignored",
        &["v1/client/err-vers"],
        |s| s.vers() == 1 && s.word(3) == 4 && s.word(5) == 7,
        Effect::Ignore,
    ),
    fault(
        "a grant of zero stops the client",
        &["v1/client/grant-of-zero"],
        |s| is_msg(s) && s.word(2) == 0,
        Effect::Mute,
    ),
    fault(
        "a large grant stops the client",
        &["v1/client/grant-of-max"],
        |s| is_msg(s) && s.word(2) == u32::MAX,
        Effect::Mute,
    ),
    fault(
        "a reverse-direction call ends the connection",
        &["v1/client/reverse-call"],
        |s| is_reverse(s) && s.is_bare() && s.about.is_none(),
        Effect::Disconnect,
    ),
    fault(
        "a call with the XID of a local one ends the connection",
        &["v1/client/reverse-call-same-xid"],
        |s| is_reverse(s) && s.about.is_some(),
        Effect::Disconnect,
    ),
    fault(
        "a reverse-direction call with chunks ends the connection",
        &["v1/client/reverse-call-chunks"],
        |s| is_reverse(s) && !s.is_bare(),
        Effect::Disconnect,
    ),
    fault(
        "Write chunks are too short",
        &["v1/client/read"],
        |s| is_call(s) && s.payload(5) == 6,
        Effect::Send(|m| {
            let len = Seen::new(m, 0, &[]).first_write().map_or(0, |segment| segment.1);
            set(m, 8, len - 4);
        }),
    )
    .broad(),
    fault(
        "handles of returned chunks are not compared",
        &["v1/client/read-other-handle"],
        |s| {
            is_read_reply(s, |reply, call| {
                reply.first_write().zip(call.first_write()).is_some_and(|(found, sent)| found.0 ^ sent.0 == 0x5500)
            })
        },
        Effect::AcceptFor(trust_write_list),
    ),
    fault(
        "lengths of returned chunks are not compared",
        &["v1/client/read-chunk-too-long"],
        |s| is_read_reply(s, |reply, _| reply.first_write().is_some_and(|first| first.1 > 1 << 31)),
        Effect::AcceptFor(trust_write_list),
    ),
    fault(
        "the length of data is not compared",
        &["v1/client/read-chunk-too-short"],
        |s| is_read_reply(s, |reply, _| reply.writes() == [vec![9_995]]),
        Effect::AcceptFor(trust_write_list),
    ),
    fault(
        "the number of segments is not compared",
        &["v1/client/read-more-segments"],
        |s| is_read_reply(s, |reply, call| reply.writes()[0].len() > call.writes()[0].len()),
        Effect::AcceptFor(trust_write_list),
    ),
    fault(
        "data may be inline",
        &["v1/client/read-data-inline"],
        |s| is_read_reply(s, |reply, _| reply.len > 1000),
        Effect::AcceptFor(trust_write_list),
    ),
    fault(
        "the chunk of another call is accepted",
        &["v1/client/read-chunk-of-another-call"],
        |s| {
            is_read_reply(s, |reply, call| {
                reply
                    .first_write()
                    .zip(call.first_write())
                    .is_some_and(|(found, sent)| found.0 != sent.0 && found.0 ^ sent.0 != 0x5500)
            })
        },
        Effect::AcceptFor(trust_write_list),
    ),
    fault(
        "positions of Read chunks are 4 too high",
        &["v1/client/write"],
        |s| is_call(s) && s.payload(5) == 7,
        Effect::Send(|m| {
            let position = Seen::new(m, 0, &[]).reads()[0].0;
            set(m, 5, position + 4);
        }),
    )
    .broad(),
];
