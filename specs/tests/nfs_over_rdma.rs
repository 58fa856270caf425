//! NFS over iWARP on loopback, with its upper-layer binding: which items travel by RDMA (RFC 8267).
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{
    client::Channel,
    server::{Context, Failure, Server},
};
use rpcrdma_specs::nfs4::{
    Compound4args, Compound4res, NfsArgop4 as Op, NfsResop4 as Res, Nfsstat4, Read4args, Read4res, Read4resok,
    Readlink4res, Readlink4resok, StableHow4, Stateid4, Utf8string, Verifier4, Write4args, Write4res, Write4resok,
    nfs_v4::{NfsV4, NfsV4Client, NfsV4Server},
};

/// Has a file of which octet `n` is `n` modulo 251, whatever is looked up, and of 100 000 octets.
struct Files;

const SIZE: u64 = 100_000;

fn contents(offset: u64, len: u64) -> Bytes {
    (offset..SIZE.min(offset.saturating_add(len))).map(|n| (n % 251) as u8).collect()
}

impl NfsV4 for Files {
    /// Operations one after another, up to the first that fails (RFC 8881 §2.3).
    async fn nfsproc4_compound(&self, _cx: &Context, args: Compound4args) -> Result<Compound4res, Failure> {
        let mut reply = Compound4res { status: Nfsstat4::Nfs4Ok, tag: args.tag, resarray: Vec::new() };
        for operation in args.argarray {
            let (status, result) = match operation {
                Op::OpRead(read) if read.offset > SIZE => {
                    (Nfsstat4::Nfs4errInval, Res::OpRead(Read4res::Default(Nfsstat4::Nfs4errInval)))
                }
                Op::OpRead(read) => {
                    let data = contents(read.offset, u64::from(read.count));
                    let eof = read.offset + data.len() as u64 == SIZE;
                    (Nfsstat4::Nfs4Ok, Res::OpRead(Read4res::Nfs4Ok(Read4resok { eof, data })))
                }
                Op::OpReadlink => {
                    let link = rpcrdma_specs::nfs4::Linktext4(Bytes::from_static(b"over/there"));
                    (Nfsstat4::Nfs4Ok, Res::OpReadlink(Readlink4res::Nfs4Ok(Readlink4resok { link })))
                }
                Op::OpWrite(write) if write.data == contents(write.offset, write.data.len() as u64) => {
                    let count = write.data.len() as u32;
                    let ok = Write4resok { count, committed: StableHow4::FileSync4, writeverf: Verifier4([1; 8]) };
                    (Nfsstat4::Nfs4Ok, Res::OpWrite(Write4res::Nfs4Ok(ok)))
                }
                _ => (Nfsstat4::Nfs4errIo, Res::OpWrite(Write4res::Default(Nfsstat4::Nfs4errIo))),
            };
            reply.status = status;
            reply.resarray.push(result);
            if status != Nfsstat4::Nfs4Ok {
                break;
            }
        }
        Ok(reply)
    }
}

async fn client() -> NfsV4Client {
    let server = Server::builder().service(NfsV4Server::new(Files)).listen("iwarp://127.0.0.1:0").bind().await.unwrap();
    let url = format!("iwarp://{}", server.local_addrs()[0]);
    tokio::spawn(server.serve());
    NfsV4Client::new(Channel::builder().call_timeout(Duration::from_secs(30)).connect(&url).await.unwrap())
}

fn stateid() -> Stateid4 {
    Stateid4 { seqid: 0, other: [0; 12] }
}

fn read(offset: u64, count: u32) -> Op {
    Op::OpRead(Read4args { stateid: stateid(), offset, count })
}

fn write(offset: u64, len: u64) -> Op {
    let data = contents(offset, len);
    Op::OpWrite(Write4args { stateid: stateid(), offset, stable: StableHow4::FileSync4, data })
}

fn compound(argarray: Vec<Op>) -> Compound4args {
    Compound4args { tag: Utf8string(Bytes::from_static(b"t")), minorversion: 2, argarray }
}

fn data(result: &Res) -> &Bytes {
    match result {
        Res::OpRead(Read4res::Nfs4Ok(ok)) => &ok.data,
        other => panic!("{other:?}"),
    }
}

/// RFC 8267 §6.4.3: the first chunk is of the first READ, the next of the READLINK, the next of the next READ.
#[tokio::test]
async fn reads_of_one_compound_land_each_in_its_chunk() {
    let client = client().await;
    let reply =
        client.nfsproc4_compound(&compound(vec![read(0, 70_001), Op::OpReadlink, read(7, 5_003)])).await.unwrap();
    assert_eq!((reply.status, reply.resarray.len()), (Nfsstat4::Nfs4Ok, 3));
    assert!(data(&reply.resarray[0]) == &contents(0, 70_001));
    let Res::OpReadlink(Readlink4res::Nfs4Ok(link)) = &reply.resarray[1] else { panic!("{:?}", reply.resarray[1]) };
    assert_eq!(link.link.as_ref(), b"over/there");
    assert!(data(&reply.resarray[2]) == &contents(7, 5_003));
    let counters = client.channel().counters();
    assert!(counters.returned_written >= 70_001 + 5_003, "by RDMA Write: {counters:?}");
}

#[tokio::test]
async fn a_read_that_fails_leaves_its_chunk_and_those_after_it_unused() {
    let client = client().await;
    let call = compound(vec![read(3, 40_000), read(SIZE + 1, 40_000), read(0, 40_000)]);
    let reply = client.nfsproc4_compound(&call).await.unwrap();
    assert_eq!((reply.status, reply.resarray.len()), (Nfsstat4::Nfs4errInval, 2));
    assert!(data(&reply.resarray[0]) == &contents(3, 40_000));
    assert_eq!(reply.resarray[1], Res::OpRead(Read4res::Default(Nfsstat4::Nfs4errInval)));
}

#[tokio::test]
async fn writes_of_one_compound_are_read_each_from_its_chunk() {
    let client = client().await;
    let reply =
        client.nfsproc4_compound(&compound(vec![write(0, 50_001), write(11, 30_003), read(5, 6)])).await.unwrap();
    assert_eq!(reply.status, Nfsstat4::Nfs4Ok, "{reply:?}");
    assert!(data(&reply.resarray[2]) == &contents(5, 6));
    let counters = client.channel().counters();
    assert!(counters.offered_read >= 50_001 + 30_003, "by RDMA Read: {counters:?}");
}
