//! Faults of RPC-over-RDMA version 1 servers.

use super::{
    fault::{Effect, Fault, fault, set, words},
    message::Seen,
};

const VERS: usize = 1;
const CREDIT: usize = 2;
const PROC: usize = 3;
const CALL_LEN: u32 = 40;
const OVERFLOW: u32 = u32::MAX - 15;
/// The handle that the cases use for memory that is not registered.
const NOWHERE: u32 = 0x1234_5678;

fn err_chunk(seen: &Seen) -> Vec<u8> {
    words(&[seen.word(0), 1, 32, 4, 2])
}

fn to_err_chunk(seen: &Seen, reply: &mut Vec<u8>) {
    *reply = err_chunk(seen);
}

/// Replaces the chunk lists of an inline call with empty lists.
fn strip(message: &mut Vec<u8>) {
    let seen = Seen::new(message, 0, &[]);
    let payload = seen.lists.map_or(0, |lists| lists.payload) * 4;
    let rest = message.split_off(payload);
    message.truncate(16);
    message.extend_from_slice(&[0; 12]);
    message.extend_from_slice(&rest);
}

/// Encodes a successful reply without results, to a call that is not executed.
fn success(seen: &Seen) -> Vec<u8> {
    words(&[seen.word(0), 1, 32, 0, 0, 0, 0, seen.word(0), 1, 0, 0, 0, 0])
}

/// Encodes a reply that reports 10,000 bytes as written, to a WRITE that is not executed.
fn written(seen: &Seen) -> Vec<u8> {
    let results = words(&[0, 0, 0, 10_000, 2, 0, 0]);
    [success(seen), results].concat()
}

fn is_long(seen: &Seen, reads: &[(u32, u32)]) -> bool {
    seen.word(PROC) == 1 && seen.reads() == reads && seen.first_read().0 != NOWHERE
}

fn is_inline(seen: &Seen, reads: &[(u32, u32)]) -> bool {
    seen.word(PROC) == 0 && seen.payload(3) == 100_003 && seen.payload(5) == 0 && seen.reads() == reads
}

fn wraps(seen: &Seen) -> bool {
    seen.first_read().1 > 1 << 63
}

/// Returns `true` if the call is a READ of `count` bytes.
fn is_read(seen: &Seen, count: u32) -> bool {
    seen.payload(5) == 6 && seen.words.last() == Some(&count)
}

fn is_write(seen: &Seen) -> bool {
    seen.payload(5) == 7
}

/// Sets the length of a segment in a reply. `chunk` is the index of the Write chunk, and `segment` the index of the
/// segment in this chunk.
fn set_write_len(reply: &mut [u8], chunk: usize, segment: usize, len: u32) {
    let seen = Seen::new(reply, 0, &[]);
    let before: usize = seen.writes()[..chunk].iter().map(|chunk| 2 + 4 * chunk.len()).sum();
    set(reply, 4 + 1 + before + 2 + 4 * segment + 1, len);
}

pub(crate) const HEADERS: &[Fault] = &[
    fault(
        "replies have version 2",
        &["v1/server/reply-header"],
        |s| s.count == 2 && s.len == 68 && s.is_bare(),
        Effect::Reply(|_, reply| {
            if Seen::new(reply, 0, &[]).word(PROC) == 0 && Seen::new(reply, 0, &[]).word(VERS) == 1 {
                set(reply, VERS, 2);
            }
        }),
    ),
    fault(
        "ERR_VERS has version 1",
        &["v1/server/first-version"],
        |s| s.word(VERS) == 9,
        Effect::Reply(|_, reply| set(reply, VERS, 1)),
    ),
    fault(
        "version 0 is accepted",
        &["v1/server/version-0"],
        |s| s.word(VERS) == 0,
        Effect::Accept(|m| set(m, VERS, 1)),
    ),
    fault("version 3 is ignored", &["v1/server/version-3"], |s| s.word(VERS) == 3, Effect::Ignore),
    fault(
        "ERR_VERS names the refused version",
        &["v1/server/version-max"],
        |s| s.len == 68 && s.word(VERS) == u32::MAX,
        Effect::Reply(|_, reply| {
            let last = reply.len() / 4 - 1;
            set(reply, last, u32::MAX);
        }),
    ),
    fault("procedure 5 is ignored", &["v1/server/procedure-5"], |s| s.word(PROC) == 5, Effect::Ignore),
    fault(
        "unknown procedures count as RDMA_MSG",
        &["v1/server/procedure-max"],
        |s| s.len == 68 && s.word(PROC) == u32::MAX,
        Effect::Accept(|m| set(m, PROC, 0)),
    ),
    fault(
        "RDMA_MSGP is executed",
        &["v1/server/msgp"],
        |s| s.word(PROC) == 2,
        Effect::Accept(|m| {
            set(m, PROC, 0);
            m.drain(16..24);
        }),
    ),
    fault("RDMA_DONE is answered", &["v1/server/done"], |s| s.word(PROC) == 3, Effect::Answer(err_chunk)),
    fault(
        "any non-zero word counts as TRUE",
        &["v1/server/read-list-discriminator"],
        |s| s.word(4) == 2 && s.word(VERS) == 1 && s.word(PROC) == 0,
        Effect::Accept(|m| set(m, 4, 0)),
    ),
    fault(
        "a bad Write list is ignored",
        &["v1/server/write-list-discriminator"],
        |s| s.word(4) == 0 && s.word(5) == 2 && s.word(PROC) == 0,
        Effect::Ignore,
    ),
    fault(
        "a bad Reply chunk gets ERR_VERS",
        &["v1/server/reply-chunk-discriminator"],
        |s| [s.word(4), s.word(5), s.word(6)] == [0, 0, 2] && s.word(PROC) == 0,
        Effect::Answer(|s| words(&[s.word(0), 1, 32, 4, 1, 2, 2])),
    ),
    fault("a header that ends early is ignored", &["v1/server/read-list-ends-early"], |s| s.len == 32, Effect::Ignore),
    fault(
        "a count of segments that is too high is ignored",
        &["v1/server/write-chunk-count"],
        |s| s.word(6) == 1 << 30,
        Effect::Ignore,
    ),
    fault(
        "RDMA_NOMSG without chunks is ignored",
        &["v1/server/nomsg-without-chunks"],
        |s| s.word(PROC) == 1 && s.is_bare(),
        Effect::Ignore,
    ),
    fault(
        "the XID of the header is not compared",
        &["v1/server/xid-mismatch"],
        |s| s.is_bare() && s.len == 68 && s.payload(0) != s.word(0) && s.payload(1) == 0,
        Effect::Accept(|m| {
            let xid = m[..4].to_vec();
            m[28..32].copy_from_slice(&xid);
        }),
    ),
    fault(
        "a call with more arguments is ignored",
        &["v1/server/arguments-too-long"],
        |s| s.is_bare() && s.len == 76,
        Effect::Ignore,
    ),
    fault("an empty message is answered", &["v1/server/empty-message"], |s| s.len == 0, Effect::Answer(err_chunk)),
    fault(
        "a message of 16 bytes is answered",
        &["v1/server/short-message"],
        |s| s.len == 16,
        Effect::Answer(err_chunk),
    ),
    fault("a message of 24 bytes is answered", &["v1/server/short-header"], |s| s.len == 24, Effect::Answer(err_chunk)),
    fault("an error is answered", &["v1/server/error"], |s| s.word(PROC) == 4, Effect::Answer(err_chunk)),
    fault(
        "an unknown reply is answered",
        &["v1/server/unknown-reply"],
        |s| s.is_bare() && s.payload(1) == 1,
        Effect::Answer(err_chunk),
    ),
    fault(
        "a reply with chunks is answered",
        &["v1/server/reply-with-bad-chunks"],
        |s| !s.reads().is_empty() && s.payload(1) == 1,
        Effect::Answer(err_chunk),
    ),
];

pub(crate) const CREDITS: &[Fault] = &[
    fault(
        "a second reply grants no credits",
        &["v1/server/grant"],
        |s| s.word(CREDIT) == 64 && s.count == 2,
        Effect::Reply(|_, reply| set(reply, CREDIT, 0)),
    ),
    fault(
        "a request of zero is granted",
        &["v1/server/request-of-zero"],
        |s| s.word(CREDIT) == 0,
        Effect::Reply(|_, reply| set(reply, CREDIT, 0)),
    ),
    fault(
        "a large request is refused",
        &["v1/server/request-of-max"],
        |s| s.len == 68 && s.word(CREDIT) == u32::MAX,
        Effect::Ignore,
    ),
    fault("the Receives are one too few", &["v1/server/all-credits"], |s| s.count == 33, Effect::Ignore),
    fault("calls beyond the credits are lost", &["v1/server/beyond-credits"], |s| s.count > 34, Effect::Ignore)
        .with_receives(4097),
    fault("a repeated XID ends the connection", &["v1/server/xid-in-use"], |s| s.is_repeated, Effect::Disconnect),
    fault("messages of 1024 bytes are lost", &["v1/server/message-of-1024"], |s| s.len == 1024, Effect::Ignore),
    fault("messages of the threshold are lost", &["v1/server/message-of-threshold"], |s| s.len == 4096, Effect::Ignore),
    fault(
        "messages above the threshold are lost",
        &["v1/server/message-above-threshold"],
        |s| s.len == 8192,
        Effect::Ignore,
    )
    .with_receives(16_384),
];

pub(crate) const CHUNKS: &[Fault] = &[
    fault(
        "long calls are not supported",
        &["v1/server/long-call", "v1/server/no-remote-invalidation", "v1/server/remote-invalidation"],
        |s| is_long(s, &[(0, CALL_LEN)]) && !wraps(s),
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "chunks of several segments are not supported",
        &["v1/server/long-call-segments"],
        |s| is_long(s, &[(0, 10); 4]),
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "calls with many segments are lost",
        &["v1/server/long-call-many-segments"],
        |s| s.reads().len() == 160,
        Effect::Ignore,
    ),
    fault(
        "calls with empty segments are lost",
        &["v1/server/empty-segment"],
        |s| is_long(s, &[(0, 20), (0, 0), (0, 20)]),
        Effect::Ignore,
    ),
    fault("calls with empty chunks are lost", &["v1/server/empty-chunk"], |s| is_long(s, &[(0, 0)]), Effect::Ignore),
    fault("short calls are lost", &["v1/server/long-call-too-short"], |s| is_long(s, &[(0, 4)]), Effect::Ignore),
    fault(
        "errors about long calls are lost",
        &["v1/server/long-call-xid"],
        |s| is_long(s, &[(0, CALL_LEN)]) && !wraps(s),
        Effect::Reply(|_, reply| {
            if Seen::new(reply, 0, &[]).word(PROC) == 4 {
                reply.clear();
            }
        }),
    ),
    fault(
        "long calls at another position are lost",
        &["v1/server/long-call-not-at-zero"],
        |s| is_long(s, &[(4, CALL_LEN)]),
        Effect::Ignore,
    ),
    fault(
        "lengths that overflow are lost",
        &["v1/server/reads-sum-overflow"],
        |s| is_long(s, &[(0, OVERFLOW); 2]),
        Effect::Ignore,
    ),
    fault("calls of 4 GiB are lost", &["v1/server/read-of-4-gib"], |s| is_long(s, &[(0, u32::MAX)]), Effect::Ignore),
    fault(
        "segments that wrap are lost",
        &["v1/server/read-wraps"],
        |s| is_long(s, &[(0, CALL_LEN)]) && wraps(s),
        Effect::Ignore,
    ),
    fault(
        "calls with bad handles are lost",
        &["v1/server/read-handle"],
        |s| s.word(PROC) == 1 && s.first_read().0 == NOWHERE,
        Effect::Ignore,
    ),
    fault(
        "chunks of items that are not eligible are accepted",
        &["v1/server/read-not-eligible"],
        |s| is_inline(s, &[(40, 64)]),
        Effect::Accept(strip),
    ),
    fault(
        "the alignment of positions is not checked",
        &["v1/server/read-position-unaligned"],
        |s| is_inline(s, &[(39, 64)]),
        Effect::Accept(strip),
    ),
    fault(
        "positions beyond the message are accepted",
        &["v1/server/read-position-beyond"],
        |s| is_inline(s, &[(4000, 64)]),
        Effect::Accept(strip),
    ),
    fault(
        "positions that overflow are accepted",
        &["v1/server/read-position-max"],
        |s| is_inline(s, &[(u32::MAX - 3, 64)]),
        Effect::Accept(strip),
    ),
    fault(
        "chunks that overlap are accepted",
        &["v1/server/reads-overlap"],
        |s| is_inline(s, &[(40, 64), (44, 64)]),
        Effect::Accept(strip),
    ),
    fault(
        "the order of chunks is not checked",
        &["v1/server/reads-out-of-order"],
        |s| is_inline(s, &[(400, 64), (40, 64)]),
        Effect::Accept(strip),
    ),
    fault(
        "the Reply chunk is returned with another handle",
        &["v1/server/reply-chunk"],
        |s| s.reply() == Some(vec![1024]),
        Effect::Reply(|_, reply| {
            if Seen::new(reply, 0, &[]).reply().is_some() {
                set(reply, 8, 7);
            }
        }),
    ),
    fault(
        "the unused Reply chunk is returned unchanged",
        &["v1/server/reply-chunk-segments"],
        |s| s.reply() == Some(vec![16; 4]),
        Effect::Reply(|_, reply| set(reply, 9, 16)),
    ),
    fault(
        "calls with a short Reply chunk are lost",
        &["v1/server/reply-chunk-too-small"],
        |s| s.reply() == Some(vec![4]),
        Effect::Ignore,
    ),
    fault(
        "calls with an empty Reply chunk are lost",
        &["v1/server/reply-chunk-empty"],
        |s| s.reply() == Some(vec![]),
        Effect::Ignore,
    ),
    fault(
        "calls with a Reply chunk that wraps are lost",
        &["v1/server/reply-chunk-wraps"],
        |s| {
            s.lists
                .as_ref()
                .and_then(|lists| lists.reply.as_ref()?.first().copied())
                .is_some_and(|first| first.2 > 1 << 63)
        },
        Effect::Ignore,
    ),
    fault(
        "unused Write chunks are returned unchanged",
        &["v1/server/write-unused"],
        |s| s.writes() == [vec![64], vec![32, 32]],
        Effect::Reply(|_, reply| set_write_len(reply, 1, 1, 32)),
    ),
    fault(
        "empty Write chunks are refused",
        &["v1/server/write-empty"],
        |s| s.writes() == [vec![0; 0]] && s.payload(5) == 0,
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "empty segments are refused",
        &["v1/server/write-empty-segment"],
        |s| s.writes() == [vec![0]],
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "Write chunks of many segments are lost",
        &["v1/server/write-many-segments"],
        |s| s.writes() == [vec![1; 100]],
        Effect::Ignore,
    ),
];

pub(crate) const SETUP: &[Fault] = &[
    fault("private data is required", &["v1/server/no-private-data"], |_| false, Effect::Refuse(<[u8]>::is_empty)),
    fault(
        "other private data is refused",
        &["v1/server/private-data-magic"],
        |_| false,
        Effect::Refuse(|data| data.first() == Some(&0xff)),
    ),
    fault(
        "other versions of private data are refused",
        &["v1/server/private-data-version"],
        |_| false,
        Effect::Refuse(|data| data.get(4) == Some(&0xff)),
    ),
    fault(
        "reserved flags are refused",
        &["v1/server/private-data-flags"],
        |_| false,
        Effect::Refuse(|data| data.get(5) == Some(&0xfe)),
    ),
    fault(
        "short private data is refused",
        &["v1/server/private-data-short"],
        |_| false,
        Effect::Refuse(|data| data.len() == 7),
    ),
    fault(
        "large sizes are refused",
        &["v1/server/private-data-sizes"],
        |_| false,
        Effect::Refuse(|data| data.get(6) == Some(&0xff)),
    ),
    fault(
        "reserved flags are set",
        &["v1/server/own-private-data"],
        |_| false,
        Effect::PrivateData(|data| data[5] |= 0x80),
    ),
    fault(
        "handles are invalidated although the peer does not support it",
        &["v1/server/no-remote-invalidation"],
        |s| is_long(s, &[(0, CALL_LEN)]) && !s.allows_invalidation && !wraps(s),
        Effect::Invalidate(|s| s.first_read().0),
    ),
    fault(
        "a handle of another call is invalidated",
        &["v1/server/remote-invalidation"],
        |s| is_long(s, &[(0, CALL_LEN)]) && s.allows_invalidation,
        Effect::Invalidate(|_| NOWHERE),
    ),
];

pub(crate) const NFS: &[Fault] = &[
    fault(
        "results have a byte too few",
        &["v1/nfs/read-chunk"],
        |s| is_read(s, 10_000) && s.writes() == [vec![10_000]],
        Effect::Reply(|_, reply| set_write_len(reply, 0, 0, 9_999)),
    ),
    fault(
        "a later segment is filled first",
        &["v1/nfs/read-segments"],
        |s| s.writes() == [vec![3001, 3001, 3001, 997]],
        Effect::Reply(|_, reply| set_write_len(reply, 0, 0, 0)),
    ),
    fault(
        "chunks are returned with their room",
        &["v1/nfs/read-larger-chunk"],
        |s| s.writes() == [vec![4096; 4]],
        Effect::Reply(|_, reply| set_write_len(reply, 0, 3, 4096)),
    ),
    fault(
        "padding is written",
        &["v1/nfs/read-unaligned"],
        |_| false,
        Effect::Write(|data| if data.len() == 9_999 { [&data[..], &[0]].concat().into() } else { data }),
    ),
    fault(
        "unused chunks are returned unchanged",
        &["v1/nfs/read-two-chunks"],
        |s| s.writes() == [vec![10_000], vec![10_000]],
        Effect::Reply(|_, reply| set_write_len(reply, 1, 0, 10_000)),
    ),
    fault(
        "chunks without data are returned unchanged",
        &["v1/nfs/read-without-data"],
        |s| is_read(s, 1024),
        Effect::Reply(|_, reply| set_write_len(reply, 0, 0, 1024)),
    ),
    fault(
        "inline data is damaged",
        &["v1/nfs/read-inline"],
        |s| is_read(s, 100) && s.is_bare(),
        Effect::Reply(|_, reply| {
            if let Some(last) = reply.last_mut() {
                *last ^= 1;
            }
        }),
    ),
    fault(
        "data behind empty Write chunks is lost",
        &["v1/nfs/read-empty-chunk"],
        |s| is_read(s, 100) && s.writes() == [vec![0; 0]],
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "long replies are not supported",
        &["v1/nfs/read-reply-chunk"],
        |s| is_read(s, 10_000) && s.reply().is_some(),
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "calls with short Write chunks are lost",
        &["v1/nfs/read-chunk-too-small"],
        |s| s.writes() == [vec![4096]],
        Effect::Ignore,
    ),
    fault(
        "calls without room for their reply are lost",
        &["v1/nfs/read-without-chunk"],
        |s| is_read(s, 60_000),
        Effect::Ignore,
    ),
    fault(
        "data in a Read chunk is not written",
        &["v1/nfs/write-chunk"],
        |s| is_write(s) && lens(s) == [10_000] && s.payload(0) != 0 && is_at(s, 0),
        Effect::Answer(written),
    ),
    fault(
        "chunks of several segments are refused",
        &["v1/nfs/write-segments"],
        |s| is_write(s) && lens(s) == [3001, 3001, 3001, 997],
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "chunks without padding are refused",
        &["v1/nfs/write-unpadded"],
        |s| is_write(s) && lens(s) == [9_999],
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "chunks with padding are refused",
        &["v1/nfs/write-padded"],
        |s| is_write(s) && is_at(s, 3),
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "long calls with chunks are refused",
        &["v1/nfs/write-long-call"],
        |s| s.word(PROC) == 1 && lens(s).get(1) == Some(&10_000),
        Effect::Reply(to_err_chunk),
    ),
    fault(
        "lengths of chunks are not compared",
        &["v1/nfs/write-chunk-too-short"],
        |s| is_write(s) && lens(s) == [8000],
        Effect::Answer(written),
    ),
    fault(
        "positions are not compared",
        &["v1/nfs/write-position-early"],
        |s| is_write(s) && is_early(s),
        Effect::Answer(written),
    ),
    fault(
        "chunks that overlap are written",
        &["v1/nfs/write-overlapping"],
        |s| is_write(s) && lens(s) == [10_000, 5000],
        Effect::Answer(written),
    ),
];

fn lens(seen: &Seen) -> Vec<u32> {
    seen.reads().into_iter().map(|(_, len)| len).collect()
}

/// Returns `true` if the call is a WRITE at the offset that the cases use for `slot`. The offset is the fourth word
/// from the end of the message.
fn is_at(seen: &Seen, slot: u32) -> bool {
    let offset = seen.words.len().checked_sub(4).map(|at| seen.word(at));
    offset == Some((1 << 16) + slot * (1 << 14))
}

/// Returns `true` if the call has one Read chunk, whose position is four bytes before the end of the payload.
fn is_early(seen: &Seen) -> bool {
    let payload = seen.lists.as_ref().map_or(0, |lists| seen.words.len() - lists.payload);
    seen.reads().len() == 1 && seen.reads()[0].0 as usize == payload * 4 - 4
}
