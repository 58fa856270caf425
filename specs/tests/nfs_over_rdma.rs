//! Tests of NFS version 4 over iWARP on the loopback interface, and of the items that its Upper-Layer Binding lets move
//! by RDMA (RFC 8267).
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    config::ConnectionConfig,
    engine::Versions,
    error::CallFailure,
    server::{Context, HandlerError, Server},
    service::{Procedure, ReplyBounds},
};
use rpcrdma_specs::nfs4::{
    Attrlist4, Bitmap4, Compound4args, Compound4res, FATTR4_ACL, Fattr4, Getattr4args, Getattr4res, Getattr4resok,
    Illegal4res, NfsArgop4 as Op, NfsResop4 as Res, Nfsstat4, Putrootfh4res, Read4args, Read4res, Read4resok,
    Readlink4res, Readlink4resok, StableHow4, Stateid4, Utf8string, Verifier4, Write4args, Write4res, Write4resok,
    nfs_v4::{NfsV4, NfsV4Client, NfsV4Server, Nfsproc4Compound},
};

/// A server with a single file of [`SIZE`] bytes, in which byte `n` is `n` modulo 251. READ and WRITE access this file
/// without a file handle, and with any state ID. WRITE accepts only the data that the file has.
struct Files;

const SIZE: u64 = 100_000;

/// Size of the file's attributes, in bytes. It exceeds the room that clients provide by default.
const ATTRIBUTES: u64 = 40_000;

fn contents(offset: u64, len: u64) -> Bytes {
    (offset..SIZE.min(offset.saturating_add(len))).map(|n| (n % 251) as u8).collect()
}

impl NfsV4 for Files {
    /// Executes the operations in order, up to the first that fails (RFC 8881 section 2.3).
    async fn nfsproc4_compound(&self, _cx: &Context, args: Compound4args) -> Result<Compound4res, HandlerError> {
        let mut reply = Compound4res { status: Nfsstat4::Ok, tag: args.tag, resarray: Vec::new() };
        for operation in args.argarray {
            let (status, result) = match operation {
                Op::Read(read) if read.offset > SIZE => {
                    (Nfsstat4::Inval, Res::Read(Read4res::Default(Nfsstat4::Inval)))
                }
                Op::Read(read) => {
                    let data = contents(read.offset, u64::from(read.count));
                    let eof = read.offset + data.len() as u64 == SIZE;
                    (Nfsstat4::Ok, Res::Read(Read4res::Ok(Read4resok { eof, data })))
                }
                Op::Readlink => {
                    let link = rpcrdma_specs::nfs4::Linktext4(Bytes::from_static(b"over/there"));
                    (Nfsstat4::Ok, Res::Readlink(Readlink4res::Ok(Readlink4resok { link })))
                }
                Op::Write(write) if write.data == contents(write.offset, write.data.len() as u64) => {
                    let count = write.data.len() as u32;
                    let ok = Write4resok { count, committed: StableHow4::FileSync4, writeverf: Verifier4([1; 8]) };
                    (Nfsstat4::Ok, Res::Write(Write4res::Ok(ok)))
                }
                // Large, like an access control list.
                Op::Getattr(getattr) => {
                    let attr_vals = Attrlist4(contents(0, ATTRIBUTES));
                    let obj_attributes = Fattr4 { attrmask: getattr.attr_request, attr_vals };
                    (Nfsstat4::Ok, Res::Getattr(Getattr4res::Ok(Getattr4resok { obj_attributes })))
                }
                Op::Putrootfh => (Nfsstat4::Ok, Res::Putrootfh(Putrootfh4res { status: Nfsstat4::Ok })),
                // RFC 8881 §15.1.3.4: the result has the opcode of OP_ILLEGAL.
                Op::Unknown(_) => {
                    let status = Nfsstat4::OpIllegal;
                    (status, Res::Illegal(Illegal4res { status }))
                }
                _ => (Nfsstat4::Io, Res::Write(Write4res::Default(Nfsstat4::Io))),
            };
            reply.status = status;
            reply.resarray.push(result);
            if status != Nfsstat4::Ok {
                break;
            }
        }
        Ok(reply)
    }
}

async fn client() -> NfsV4Client {
    client_of(Versions::Both).await
}

/// Starts a server, and connects a client that offers these versions of RPC-over-RDMA.
async fn client_of(versions: Versions) -> NfsV4Client {
    let server = Server::builder().service(NfsV4Server::new(Files)).listen("iwarp://127.0.0.1:0").bind().await.unwrap();
    let url = server.urls()[0].clone();
    tokio::spawn(server.serve());
    // Without probes, the channel counts the calls of the test only.
    let connection = ConnectionConfig::new().keepalive_interval(Duration::MAX);
    let builder = Channel::builder().connection(connection).versions(versions).call_timeout(Duration::from_secs(60));
    NfsV4Client::new(builder.connect(&url).await.unwrap())
}

fn stateid() -> Stateid4 {
    Stateid4 { seqid: 0, other: [0; 12] }
}

fn read(offset: u64, count: u32) -> Op {
    Op::Read(Read4args { stateid: stateid(), offset, count })
}

fn write(offset: u64, len: u64) -> Op {
    let data = contents(offset, len);
    Op::Write(Write4args { stateid: stateid(), offset, stable: StableHow4::FileSync4, data })
}

fn compound(argarray: Vec<Op>) -> Compound4args {
    Compound4args { tag: Utf8string(Bytes::from_static(b"t")), minorversion: 2, argarray }
}

fn data(result: &Res) -> &Bytes {
    match result {
        Res::Read(Read4res::Ok(ok)) => &ok.data,
        other => panic!("{other:?}"),
    }
}

/// RFC 8267 §6.4.3: the chunks belong to the READs and READLINKs in call order.
#[tokio::test]
async fn each_read_of_a_compound_has_its_chunk() {
    let client = client().await;
    let reply = client.nfsproc4_compound(&compound(vec![read(0, 70_001), Op::Readlink, read(7, 5_003)])).await.unwrap();
    assert_eq!((reply.status, reply.resarray.len()), (Nfsstat4::Ok, 3));
    assert!(data(&reply.resarray[0]) == &contents(0, 70_001));
    let Res::Readlink(Readlink4res::Ok(link)) = &reply.resarray[1] else { panic!("{:?}", reply.resarray[1]) };
    assert_eq!(link.link.as_ref(), b"over/there");
    assert!(data(&reply.resarray[2]) == &contents(7, 5_003));
    let counters = client.channel().counters();
    assert!(counters.written_by_peer_bytes >= 70_001 + 5_003, "not returned by RDMA Write: {counters:?}");
}

#[tokio::test]
async fn a_read_that_fails_leaves_its_chunk_and_those_after_it_unused() {
    let client = client().await;
    let call = compound(vec![read(3, 40_000), read(SIZE + 1, 40_000), read(0, 40_000)]);
    let reply = client.nfsproc4_compound(&call).await.unwrap();
    assert_eq!((reply.status, reply.resarray.len()), (Nfsstat4::Inval, 2));
    assert!(data(&reply.resarray[0]) == &contents(3, 40_000));
    assert_eq!(reply.resarray[1], Res::Read(Read4res::Default(Nfsstat4::Inval)));
}

#[tokio::test]
async fn each_write_of_a_compound_has_its_chunk() {
    let client = client().await;
    let reply =
        client.nfsproc4_compound(&compound(vec![write(0, 50_001), write(11, 30_003), read(5, 6)])).await.unwrap();
    assert_eq!(reply.status, Nfsstat4::Ok, "{reply:?}");
    assert!(data(&reply.resarray[2]) == &contents(5, 6));
    let counters = client.channel().counters();
    assert!(counters.read_by_peer_bytes >= 50_001 + 30_003, "not sent by RDMA Read: {counters:?}");
}

/// RFC 8267 §3.1, §6.2.1: attributes of unpredictable size do not fit at first, but fit when the caller repeats the
/// call with more room.
#[tokio::test]
async fn repeated_call_with_more_room_succeeds() {
    // Version 1 only: version 2 continues a reply that is longer than expected in further messages.
    let client = client_of(Versions::V1).await;
    let acl = Op::Getattr(Getattr4args { attr_request: Bitmap4(vec![1 << FATTR4_ACL]) });
    let call = compound(vec![acl]);
    // RFC 8267 §3.1, §6.4.2: the channel does not repeat the call, even if that does no harm.
    let error = client.nfsproc4_compound_with(&call, CallOptions::new().repeatable()).await.unwrap_err();
    let CallError::Transport { failure: CallFailure::ChunkError, retries, .. } = &error else { panic!("{error}") };
    assert_eq!((retries.count(), client.channel().counters().calls_sent), (0, 1));
    // RFC 8267 §4, §6.6: the error does not say whether the server executed the call.
    assert!(!error.is_retry_safe(), "{error}");
    let more = CallOptions::new().reply_bounds(ReplyBounds::new(64 << 10, &[]));
    let reply = client.nfsproc4_compound_with(&call, more).await.unwrap();
    let Res::Getattr(Getattr4res::Ok(ok)) = &reply.resarray[0] else { panic!("{reply:?}") };
    assert_eq!(ok.obj_attributes.attr_vals.0.len() as u64, ATTRIBUTES);
}

/// RFC 8267 §6.2.2: with a session, the client needs no more memory than `ca_maxresponsesize`.
#[tokio::test]
async fn reply_limit_of_a_session() {
    let client = client().await;
    let call = compound(vec![read(0, 70_000)]);
    let short = || CallOptions::new().landing(vec![0; 8192].into());
    let error = client.nfsproc4_compound_with(&call, short()).await.unwrap_err();
    assert!(matches!(error, CallError::Landing { len: 8192, needed: 70_000, .. }), "{error}");
    // The server ignores the limit, which a server with a session must not do, and the call fails.
    let limited = || short().reply_limit(8192);
    assert!(client.nfsproc4_compound_with(&call, limited()).await.is_err());
    let small = compound(vec![read(SIZE - 5000, 70_000)]);
    let reply = client.nfsproc4_compound_with(&small, limited()).await.unwrap();
    assert!(data(&reply.resarray[0]) == &contents(SIZE - 5000, 5000));
}

/// RFC 8267 §6.4.1, §6.4.3: an empty Write chunk requests an inline result. The other results keep their chunks.
#[tokio::test]
async fn empty_chunk_asks_for_an_inline_result() {
    let client = client().await;
    let call = compound(vec![read(0, 9_000), Op::Readlink, read(7, 600), read(9, 5_003)]);
    let mut bounds = Nfsproc4Compound::reply_bounds(&call);
    assert_eq!(bounds.chunks.len(), 4);
    for index in [1, 2] {
        bounds.inline += std::mem::take(&mut bounds.chunks[index]).next_multiple_of(4);
    }
    let before = client.channel().counters().written_by_peer_bytes;
    let reply = client.nfsproc4_compound_with(&call, CallOptions::new().reply_bounds(bounds)).await.unwrap();
    assert!(data(&reply.resarray[0]) == &contents(0, 9_000));
    assert!(data(&reply.resarray[2]) == &contents(7, 600));
    assert!(data(&reply.resarray[3]) == &contents(9, 5_003));
    let Res::Readlink(Readlink4res::Ok(link)) = &reply.resarray[1] else { panic!("{:?}", reply.resarray[1]) };
    assert_eq!(link.link.as_ref(), b"over/there");
    assert_eq!(client.channel().counters().written_by_peer_bytes - before, 9_000 + 5_003);
}

/// RFC 8267 §6.4.1: READs without a Write chunk return their data inline.
#[tokio::test]
async fn reads_beyond_the_chunks_return_inline() {
    let client = client().await;
    let call = compound(vec![read(0, 9_000), read(7, 600), read(9, 5_003)]);
    for (chunks, written) in [(2, 9_000 + 600), (1, 9_000), (0, 0)] {
        let mut bounds = Nfsproc4Compound::reply_bounds(&call);
        for inline in bounds.chunks.drain(chunks..) {
            bounds.inline += inline.next_multiple_of(4);
        }
        let before = client.channel().counters().written_by_peer_bytes;
        let reply = client.nfsproc4_compound_with(&call, CallOptions::new().reply_bounds(bounds)).await.unwrap();
        for (result, (offset, len)) in reply.resarray.iter().zip([(0, 9_000), (7, 600), (9, 5_003)]) {
            assert!(data(result) == &contents(offset, len), "{chunks} chunks");
        }
        // A reply that does not fit inline is written to the Reply chunk, without the data that has a chunk of its own.
        let total = client.channel().counters().written_by_peer_bytes - before;
        let inline = [9_000, 600, 5_003].iter().skip(chunks).sum::<u64>();
        assert!((written..=written + inline + 200).contains(&total), "{chunks} chunks: {total}");
    }
}

/// RFC 8881 §15.1.3.4: the server executes the operations before an unknown one, and cannot decode the operations after
/// the unknown one, even if their data is in a Read chunk.
#[tokio::test]
async fn operations_before_an_unknown_one_are_executed() {
    let client = client().await;
    let reply = client.nfsproc4_compound(&compound(vec![Op::Putrootfh, Op::Unknown(9999)])).await.unwrap();
    assert_eq!((reply.status, reply.resarray.len()), (Nfsstat4::OpIllegal, 2));
    assert_eq!(reply.resarray[0], Res::Putrootfh(Putrootfh4res { status: Nfsstat4::Ok }));
    assert_eq!(reply.resarray[1], Res::Illegal(Illegal4res { status: Nfsstat4::OpIllegal }));

    let after = compound(vec![Op::Putrootfh, Op::Unknown(9999), write(0, 70_000), Op::Readlink]);
    let reply = client.nfsproc4_compound(&after).await.unwrap();
    assert_eq!((reply.status, reply.resarray.len()), (Nfsstat4::OpIllegal, 2));

    // `Unknown` with a known number is an error: it would decode as that operation.
    let known = client.nfsproc4_compound(&compound(vec![Op::Unknown(9)])).await.unwrap_err();
    assert!(matches!(known, CallError::Encode { .. }), "{known}");
}
