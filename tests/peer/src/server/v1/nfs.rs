//! Cases for servers: chunks with data, READ and WRITE of NFS 3 (RFC 1813, RFC 8267) on one file of the server.

use std::future::Future;

use bytes::Bytes;
use rpcrdma_specs::nfs3::{Diropargs3, Lookup3args, Lookup3res, NfsFh3, Read3args, StableHow, Write3args};
use rpcrdma_xdr::{
    rpc::Credential,
    xdr::{Decoder, XdrDecode},
};

use super::{
    ERR_CHUNK, GARBAGE_ARGS,
    session::{Sent, Session},
};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Early, Finding, Limits, Part, Steps},
    link::Segment,
    rpc::{self, Reply},
    server::{NfsFile, ServerUnderTest},
    transport::Target,
    v1::{Body, CREDITS, Lists, Message, message},
};

const LOOKUP: (u32, u32, u32) = (100_003, 3, 3);
const READ: (u32, u32, u32) = (100_003, 3, 6);
const WRITE: (u32, u32, u32) = (100_003, 3, 7);
/// Number of bytes that most cases read and write.
const LEN: u32 = 10_000;
/// Maximum length in bytes of a reply to READ without its data.
const READ_RESULT: usize = 256;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    [reads(), writes()].into_iter().flatten().collect()
}

fn nfs<F: Future<Output = Steps> + Send + 'static>(
    id: &'static str,
    rules: &'static [&'static str],
    sent: &'static str,
    expected: impl Into<String>,
    steps: impl Fn(Nfs) -> F + Send + Sync + Clone + 'static,
) -> Case<ServerUnderTest> {
    Case::new((Part::V1Nfs, id), rules, sent, expected, move |server: &ServerUnderTest| {
        let (server, steps) = (server.clone(), steps.clone());
        async move {
            let file = server.nfs.clone().ok_or_else(|| Finding::not_supported("no file: see --mount and --handle"))?;
            steps(Nfs { session: Session::open(&server).await?, file }).await
        }
    })
}

/// A connection, and a file at the server.
struct Nfs {
    session: Session,
    file: NfsFile,
}

/// The results of READ without their data.
#[derive(Debug)]
struct ReadResult {
    status: u32,
    count: u32,
    /// The length of the data in bytes.
    len: u32,
    /// The data, if it is inline.
    data: Bytes,
}

impl ReadResult {
    fn decode(results: &Bytes) -> Option<Self> {
        let words = rpc::to_words(results);
        let (status, has_attributes) = (*words.first()?, *words.get(1)?);
        let at = 2 + if has_attributes == 1 { 21 } else { 0 };
        if status != 0 {
            return Some(Self { status, count: 0, len: 0, data: Bytes::new() });
        }
        let (count, len) = (*words.get(at)?, *words.get(at + 2)?);
        Some(Self { status, count, len, data: results.slice(4 * (at + 3)..) })
    }
}

impl Nfs {
    fn credential() -> Credential {
        Credential::sys("rpcrdma-peer", 0, 0, [])
    }

    fn read_call(&self, offset: u64, count: u32) -> (u32, Vec<u8>) {
        let xid = rpc::next_xid();
        let args = Read3args { file: NfsFh3 { data: self.file.handle.clone() }, offset, count };
        (xid, rpc::call(xid, READ, &Self::credential(), &rpc::encode(&args)))
    }

    /// Returns the XID of a WRITE, and the call without its data. The last word of the call is the length of the data.
    fn write_call(&self, offset: u64, len: u32) -> (u32, Vec<u8>) {
        let xid = rpc::next_xid();
        let file = NfsFh3 { data: self.file.handle.clone() };
        let args = Write3args { file, offset, count: len, stable: StableHow::FileSync, data: Bytes::new() };
        let mut args = rpc::encode(&args);
        args.truncate(args.len() - 4);
        args.extend_from_slice(&len.to_be_bytes());
        (xid, rpc::call(xid, WRITE, &Self::credential(), &args))
    }

    /// Makes a READ with these chunks. Returns the kind of the answer, the message, and the results if they are inline.
    async fn read(&mut self, offset: u64, count: u32, lists: Lists) -> (Came, Option<Message>, Option<ReadResult>) {
        let (xid, call) = self.read_call(offset, count);
        let sent = Sent::with_lists((xid, message(xid, CREDITS, &lists, Some(&call))), lists);
        let (came, arrived) = self.session.exchange(&sent, true).await;
        let message = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok());
        let results = message.as_ref().and_then(|message| match &message.body {
            Body::Msg(_, payload) => Reply::decode(payload).ok().and_then(|reply| ReadResult::decode(&reply.results)),
            _ => None,
        });
        (came, message, results)
    }

    /// Reads a part of the file through a Write chunk that is larger than necessary. Returns `None` if that fails.
    async fn contents(&mut self, offset: u64, count: u32) -> Option<Bytes> {
        let chunk = self.session.link.sink(count as usize + READ_RESULT);
        let (_, message, results) = self.read(offset, count, Lists::writes(vec![vec![chunk]])).await;
        let (message, results) = (message?, results?);
        let deadline = self.session.deadline();
        let data = self.session.link.take(chunk, deadline).await?;
        let len = message.lists()?.writes.first()?.first()?.len;
        (results.status == 0 && results.len == len && len == count).then(|| data.slice(..len as usize))
    }

    /// Makes a WRITE whose data is in the Read chunks of `lists`. Returns the kind of the answer, and the NFS status if
    /// the answer is inline.
    async fn write(&mut self, (xid, call): (u32, Vec<u8>), lists: &Lists, is_long: bool) -> (Came, Option<u32>) {
        let payload = if is_long { None } else { Some(&call[..]) };
        let (came, arrived) =
            self.session.exchange(&Sent::call((xid, message(xid, CREDITS, lists, payload))), true).await;
        let message = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok());
        let status = message.and_then(|message| match message.body {
            Body::Msg(_, payload) => rpc::to_words(&Reply::decode(&payload).ok()?.results).first().copied(),
            _ => None,
        });
        (came, status)
    }
}

/// Looks a file up in a folder, and returns its handle.
pub(in crate::server) async fn look_up(target: Target, folder: &[u8], name: &str) -> anyhow::Result<Vec<u8>> {
    let server = ServerUnderTest { target, program: (LOOKUP.0, LOOKUP.1), nfs: None, limits: Limits::default() };
    let mut session =
        Session::open(&server).await.map_err(|Early(finding)| anyhow::anyhow!("LOOKUP: {}", finding.came))?;
    let dir = NfsFh3 { data: Bytes::copy_from_slice(folder) };
    let args = Lookup3args { what: Diropargs3 { dir, name: name.into() } };
    let xid = rpc::next_xid();
    let call = rpc::call(xid, LOOKUP, &Nfs::credential(), &rpc::encode(&args));
    let sent = Sent::call((xid, message(xid, CREDITS, &Lists::default(), Some(&call))));
    let (came, arrived) = session.exchange(&sent, true).await;
    let message = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok()).map(|message| message.body);
    let Some(Body::Msg(_, payload)) = message else { anyhow::bail!("LOOKUP of {name} got {came}") };
    let results = Reply::decode(&payload).map_err(anyhow::Error::msg)?.results;
    match Lookup3res::decode(&mut Decoder::shared(&results))? {
        Lookup3res::Ok(found) => Ok(found.object.data.to_vec()),
        Lookup3res::Default(status, _) => anyhow::bail!("LOOKUP of {name}: {status:?}"),
    }
}

/// Returns the data that a case writes at an offset.
fn pattern(offset: u64, len: u32) -> Vec<u8> {
    (offset..offset + u64::from(len)).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}

fn reads() -> Vec<Case<ServerUnderTest>> {
    let placed = "a reply whose Write chunk has the length of the data, which is in the chunk";
    vec![
        nfs(
            "v1/nfs/read-chunk",
            &["RFC 8166 4.3.2#1", "RFC 8166 3.4.6#2", "RFC 8166 3.4.6.2#3"],
            "READ of 10000 bytes with a Write chunk of 10000 bytes",
            placed,
            |nfs| read_chunk(nfs, LEN, LEN, |whole| vec![whole]),
        ),
        nfs(
            "v1/nfs/read-segments",
            &["RFC 8166 3.4.6#a", "RFC 8166 3.4.6#2"],
            "READ of 10000 bytes with a Write chunk of four segments, of 3001 bytes and less",
            placed,
            |nfs| read_chunk(nfs, LEN, LEN, |whole| whole.split(3001)),
        ),
        nfs(
            "v1/nfs/read-larger-chunk",
            &["RFC 8166 3.4.6.2#3", "RFC 8166 3.4.6#2"],
            "READ of 10000 bytes with a Write chunk of 16384 bytes in segments of 4096",
            placed,
            |nfs| read_chunk(nfs, LEN, 16_384, |whole| whole.split(4096)),
        ),
        nfs(
            "v1/nfs/read-unaligned",
            &["RFC 8166 3.4.6.2#2", "RFC 8166 3.4.6.2#3"],
            "READ of 9999 bytes with a Write chunk of 10000 bytes",
            "a reply whose Write chunk has the length 9999. The last byte of the chunk is not written",
            |nfs| read_chunk(nfs, LEN - 1, LEN, |whole| vec![whole]),
        ),
        nfs(
            "v1/nfs/read-two-chunks",
            &["RFC 8166 4.3.2.2#3", "RFC 8166 3.4.4.4#1"],
            "READ of 10000 bytes with two Write chunks",
            "a reply with the data in the first chunk. The second one has the length zero",
            read_two_chunks,
        ),
        nfs(
            "v1/nfs/read-without-data",
            &["RFC 8166 4.3.2.2#3"],
            "READ behind the end of the file, with a Write chunk",
            "a reply whose Write chunk has the length zero",
            read_without_data,
        ),
        nfs(
            "v1/nfs/read-inline",
            &["RFC 8166 4.3.2#a"],
            "READ of 100 bytes without chunks",
            "a reply with the data inline",
            |nfs| read_inline(nfs, Vec::new()),
        ),
        nfs(
            "v1/nfs/read-empty-chunk",
            &["RFC 8166 4.3.2.3#1"],
            "READ of 100 bytes with a Write chunk without segments",
            "a reply with the data inline, and the empty chunk",
            |nfs| read_inline(nfs, vec![vec![]]),
        ),
        nfs(
            "v1/nfs/read-reply-chunk",
            &["RFC 8166 3.5.3#3", "RFC 8166 3.5.3#4"],
            "READ of 10000 bytes with a Reply chunk only",
            "RDMA_NOMSG with all of the reply in the chunk",
            read_reply_chunk,
        ),
        nfs(
            "v1/nfs/read-chunk-too-small",
            &["RFC 8166 4.5.3#b"],
            "READ of 10000 bytes with a Write chunk of 4096 bytes",
            "ERR_CHUNK, or an RPC reply without the data (unusual: the end of the connection)",
            read_chunk_too_small,
        ),
        nfs(
            "v1/nfs/read-without-chunk",
            &["RFC 8166 3.5.3#3", "RFC 8166 4.5.4#2"],
            "READ of 60000 bytes without chunks",
            "ERR_CHUNK, the end of the connection, or an RPC reply with less data or an error",
            read_without_chunk,
        ),
    ]
}

async fn read_chunk(mut nfs: Nfs, count: u32, room: u32, split: fn(Segment) -> Vec<Segment>) -> Steps {
    let expected =
        nfs.contents(0, count).await.ok_or_else(|| Finding::wrong("a plain READ with a Write chunk failed"))?;
    let chunk = nfs.session.link.sink(room as usize);
    let segments = split(chunk);
    let (came, message, results) = nfs.read(0, count, Lists::writes(vec![segments.clone()])).await;
    let (Some(message), Some(results)) = (message, results) else { return Ok(Finding::wrong(came.to_string())) };
    let Some([returned]) = message.lists().map(|lists| &lists.writes[..]) else {
        return Ok(Finding::wrong("a reply without the Write chunk"));
    };
    if results.status != 0 || results.count != count || results.len != count {
        return Ok(Finding::wrong(format!("a reply with the status {} and {} bytes", results.status, results.len)));
    }
    if !results.data.is_empty() {
        return Ok(Finding::wrong("a reply with data inline"));
    }
    let mut left = count;
    let filled: Vec<_> = segments
        .iter()
        .map(|segment| {
            let used = left.min(segment.len);
            left -= used;
            segment.part(0, used)
        })
        .collect();
    if *returned != filled {
        let lens: Vec<_> = returned.iter().map(|segment| segment.len).collect();
        return Ok(Finding::wrong(format!("a Write chunk whose segments have the lengths {lens:?}")));
    }
    let deadline = nfs.session.deadline();
    let data = nfs.session.link.take(chunk, deadline).await.unwrap_or_default();
    Ok(match data.split_at_checked(count as usize) {
        Some((data, _)) if data != expected => Finding::wrong("a chunk with other data"),
        // Memory of the peer is filled with this byte.
        Some((_, rest)) if rest.iter().any(|byte| *byte != 0xee) => Finding::wrong("a chunk with padding or more data"),
        Some(_) => Finding::conforming("the data in the chunk"),
        None => Finding::wrong("no memory returned"),
    })
}

async fn read_two_chunks(mut nfs: Nfs) -> Steps {
    let whole = nfs.session.link.sink(2 * LEN as usize);
    let provided = vec![vec![whole.part(0, LEN)], vec![whole.part(LEN, LEN)]];
    let (came, message, results) = nfs.read(0, LEN, Lists::writes(provided.clone())).await;
    let (Some(message), Some(results)) = (message, results) else { return Ok(Finding::wrong(came.to_string())) };
    let expected = [provided[0].clone(), vec![whole.part(LEN, 0)]];
    Ok(match message.lists() {
        Some(lists) if lists.writes == expected && results.len == LEN => {
            Finding::conforming("the data in the first chunk")
        }
        Some(lists) => Finding::wrong(format!("a reply with the Write chunks {:?}", lists.writes)),
        None => Finding::wrong(came.to_string()),
    })
}

async fn read_without_data(mut nfs: Nfs) -> Steps {
    let chunk = nfs.session.link.sink(1024);
    let (came, message, results) = nfs.read(1 << 40, 1024, Lists::writes(vec![vec![chunk]])).await;
    let (Some(message), Some(results)) = (message, results) else { return Ok(Finding::wrong(came.to_string())) };
    Ok(match message.lists().map(|lists| &lists.writes[..]) {
        Some([returned]) if results.len == 0 && *returned == [chunk.part(0, 0)] => {
            Finding::conforming("the chunk with the length zero")
        }
        Some([]) => Finding::unusual("a reply without a Write list"),
        other => Finding::wrong(format!("a reply with the Write chunks {other:?}")),
    })
}

async fn read_inline(mut nfs: Nfs, writes: Vec<Vec<Segment>>) -> Steps {
    let expected =
        nfs.contents(0, 100).await.ok_or_else(|| Finding::wrong("a plain READ with a Write chunk failed"))?;
    let (came, message, results) = nfs.read(0, 100, Lists::writes(writes.clone())).await;
    let (Some(message), Some(results)) = (message, results) else { return Ok(Finding::wrong(came.to_string())) };
    let returned = message.lists().map(|lists| &lists.writes);
    Ok(match results.data == expected {
        false => Finding::wrong("a reply with other data inline"),
        true if returned == Some(&writes) => Finding::conforming("the data inline"),
        true if returned.is_some_and(Vec::is_empty) => Finding::unusual("the data inline, without the Write chunk"),
        true => Finding::wrong(format!("a reply with the Write chunks {returned:?}")),
    })
}

async fn read_reply_chunk(mut nfs: Nfs) -> Steps {
    let expected =
        nfs.contents(0, LEN).await.ok_or_else(|| Finding::wrong("a plain READ with a Write chunk failed"))?;
    let chunk = nfs.session.link.sink(LEN as usize + READ_RESULT);
    let (xid, call) = nfs.read_call(0, LEN);
    let lists = Lists::reply(&[chunk]);
    let sent = Sent::call((xid, message(xid, CREDITS, &lists, Some(&call))));
    nfs.session.link.send(&sent.messages[0]);
    let deadline = nfs.session.deadline();
    let arrived = match nfs.session.link.next(deadline).await {
        crate::link::Next::Message(arrived) => arrived,
        other => return Ok(Finding::wrong(format!("{other:?}"))),
    };
    let message = Message::decode(&arrived.bytes).map_err(Finding::wrong)?;
    let (Body::Nomsg(lists), true) = (&message.body, message.xid == xid) else {
        return Ok(Finding::wrong("another message than RDMA_NOMSG"));
    };
    let len: u32 = lists.reply.iter().flatten().map(|segment| segment.len).sum();
    let memory = nfs.session.link.take(chunk, deadline).await.unwrap_or_default();
    let reply = memory.get(..len as usize).and_then(|reply| Reply::decode(&Bytes::copy_from_slice(reply)).ok());
    let results = reply.and_then(|reply| ReadResult::decode(&reply.results));
    Ok(match results {
        Some(results) if results.data == expected => Finding::conforming("all of the reply in the chunk"),
        _ => Finding::wrong(format!("a Reply chunk of {len} bytes without the data")),
    })
}

async fn read_chunk_too_small(mut nfs: Nfs) -> Steps {
    let whole = nfs.session.link.sink(LEN as usize);
    let (came, _, results) = nfs.read(0, LEN, Lists::writes(vec![vec![whole.part(0, 4096)]])).await;
    Ok(match (&came, results) {
        (Came::Error("ERR_CHUNK"), _) => Finding::conforming("ERR_CHUNK"),
        (Came::Reply("SUCCESS"), Some(results)) if results.status == 0 && results.len > 4096 => {
            Finding::wrong(format!("a reply with {} bytes", results.len))
        }
        (Came::Reply(_), _) => Finding::conforming("an RPC reply without the data"),
        (Came::Ended(_), _) => Finding::unusual(came.to_string()),
        _ => Finding::wrong(came.to_string()),
    })
}

async fn read_without_chunk(mut nfs: Nfs) -> Steps {
    let (came, _, results) = nfs.read(0, 60_000, Lists::default()).await;
    Ok(match (&came, results) {
        (Came::Error("ERR_CHUNK") | Came::Ended(_) | Came::Reply(_), None) => Finding::conforming(came.to_string()),
        (Came::Reply(_), Some(results)) if results.data.len() <= 8192 => {
            Finding::conforming(format!("an RPC reply with {} bytes", results.data.len()))
        }
        _ => Finding::wrong(came.to_string()),
    })
}

fn writes() -> Vec<Case<ServerUnderTest>> {
    let written = "a successful reply, and the data is in the file";
    let refused = Accepted::only(&[ERR_CHUNK, GARBAGE_ARGS]).or_unusually(&[Kind::Ended]);
    vec![
        nfs("v1/nfs/write-chunk", &["RFC 8166 3.4.5#1"], "WRITE of 10000 bytes in a Read chunk", written, |nfs| {
            write_chunk(nfs, 0, LEN, 0, |whole| vec![whole])
        }),
        nfs(
            "v1/nfs/write-segments",
            &["RFC 8166 3.4.5#a"],
            "WRITE of 10000 bytes in a Read chunk of four segments, of 3001 bytes and less",
            written,
            |nfs| write_chunk(nfs, 1, LEN, 0, |whole| whole.split(3001)),
        ),
        nfs(
            "v1/nfs/write-unpadded",
            &["RFC 8166 3.4.5.2#3"],
            "WRITE of 9999 bytes in a Read chunk of 9999 bytes",
            written,
            |nfs| write_chunk(nfs, 2, LEN - 1, 0, |whole| vec![whole]),
        ),
        nfs(
            "v1/nfs/write-padded",
            &["RFC 8166 3.4.5.2#2"],
            "WRITE of 9999 bytes in a Read chunk of 10000 bytes, with padding",
            written,
            |nfs| write_chunk(nfs, 3, LEN - 1, 1, |whole| vec![whole]),
        ),
        nfs(
            "v1/nfs/write-long-call",
            &["RFC 8166 3.5.3#2", "RFC 8166 3.4.5#1"],
            "WRITE of 10000 bytes in a Read chunk, with the rest of the call in a Read chunk at position zero",
            written,
            write_long_call,
        ),
        nfs(
            "v1/nfs/write-chunk-too-short",
            &["RFC 8166 3.4.5.2#3", "RFC 8166 4.5.2#2"],
            "WRITE of 10000 bytes with a Read chunk of 8000 bytes",
            refused.to_string(),
            move |nfs| write_refused(nfs, refused, |whole, at| vec![(at, whole.part(0, 8000))]),
        ),
        nfs(
            "v1/nfs/write-position-early",
            &["RFC 8166 3.4.5#1", "RFC 8166 4.5.2#2"],
            "WRITE of 10000 bytes with a Read chunk whose position is 4 too low",
            refused.to_string(),
            move |nfs| write_refused(nfs, refused, |whole, at| vec![(at - 4, whole)]),
        ),
        nfs(
            "v1/nfs/write-overlapping",
            &["RFC 8166 3.4.4.4#1", "RFC 8166 4.5.2#1"],
            "WRITE of 10000 bytes with Read chunks at its data and 5000 bytes later, which overlap",
            refused.to_string(),
            move |nfs| write_refused(nfs, refused, |whole, at| vec![(at, whole), (at + 5000, whole.part(0, 5000))]),
        ),
    ]
}

/// Returns the offset in the file at which a case writes. Cases that read back the data that they wrote have different
/// slots, which do not overlap.
fn place(slot: u64) -> u64 {
    (1 << 16) + slot * (1 << 14)
}

async fn write_chunk(mut nfs: Nfs, slot: u64, len: u32, padding: usize, split: fn(Segment) -> Vec<Segment>) -> Steps {
    let mut data = pattern(place(slot), len);
    data.resize(data.len() + padding, 0);
    let chunk = nfs.session.link.expose(data);
    let call = nfs.write_call(place(slot), len);
    let lists = Lists::reads(call.1.len() as u32, &split(chunk));
    let (came, status) = nfs.write(call, &lists, false).await;
    written(nfs, slot, len, (came, status)).await
}

async fn write_long_call(mut nfs: Nfs) -> Steps {
    let chunk = nfs.session.link.expose(pattern(place(4), LEN));
    let (xid, call) = nfs.write_call(place(4), LEN);
    let position = call.len() as u32;
    let rest = nfs.session.link.expose(call);
    let lists = Lists { reads: vec![(0, rest), (position, chunk)], ..Lists::default() };
    let (came, status) = nfs.write((xid, Vec::new()), &lists, true).await;
    written(nfs, 4, LEN, (came, status)).await
}

/// Checks that a WRITE succeeded, and that the file then contains its data.
async fn written(mut nfs: Nfs, slot: u64, len: u32, result: (Came, Option<u32>)) -> Steps {
    match result {
        (Came::Reply("SUCCESS"), Some(0)) => {}
        (Came::Reply("SUCCESS"), status) => {
            return Ok(Finding::wrong(format!("a reply with the NFS status {status:?}")));
        }
        (came, _) => return Ok(Finding::wrong(came.to_string())),
    }
    Ok(match nfs.contents(place(slot), len).await {
        Some(found) if found == pattern(place(slot), len) => Finding::conforming("the data is in the file"),
        Some(_) => Finding::wrong("the file has other data"),
        None => Finding::wrong("the file cannot be read"),
    })
}

async fn write_refused(mut nfs: Nfs, accepted: Accepted, reads: fn(Segment, u32) -> Vec<(u32, Segment)>) -> Steps {
    let chunk = nfs.session.link.expose(pattern(place(5), LEN));
    let call = nfs.write_call(place(5), LEN);
    let lists = Lists { reads: reads(chunk, call.1.len() as u32), ..Lists::default() };
    let (came, _) = nfs.write(call, &lists, false).await;
    Ok(accepted.judge(&came))
}
