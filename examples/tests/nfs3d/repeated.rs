//! Calls that come twice, as from a client that has lost its connection (RFC 1813 §4.5).

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use rpcrdma::{
    rpc::{CallHeader, Credential},
    xdr::{Decoder, FlatSink, XdrEncode as _},
};
use rpcrdma_specs::nfs3::*;

use crate::support::{Served, at, own_gid, own_uid};

/// REMOVE with an XID of the test's choice, and its status.
fn remove(stream: &mut TcpStream, xid: u32, object: &Diropargs3) -> Nfsstat3 {
    let mut header = CallHeader::new(xid, 100_003, 3, 12);
    header.credential = Credential::sys("test", own_uid(), own_gid(), []).to_opaque().unwrap();
    let mut call = Vec::new();
    header.encode(&mut FlatSink::new(&mut call)).unwrap();
    Remove3args { object: object.clone() }.encode(&mut FlatSink::new(&mut call)).unwrap();
    // RFC 5531 §11: the last fragment, and its length.
    stream.write_all(&(0x8000_0000 | call.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(&call).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    // XID, REPLY, MSG_ACCEPTED, an empty verifier, SUCCESS.
    assert_eq!(reply[..4], xid.to_be_bytes());
    assert_eq!(reply[4..24], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    Decoder::new(&reply[24..]).read::<Remove3res>().unwrap().discriminant()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_repeated_gets_its_first_result() {
    let served = Served::new().await;
    let nfs = served.client().await;
    nfs.file(&nfs.root, "a").await;
    let (what, address) = (at(&nfs.root, "a"), served.tcp.strip_prefix("tcp://").unwrap().to_owned());
    let statuses = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        [7, 7, 8, 7].map(|xid| remove(&mut stream, xid, &what))
    });
    let (ok, gone) = (Nfsstat3::Nfs3Ok, Nfsstat3::Nfs3errNoent);
    assert_eq!(statuses.await.unwrap(), [ok, ok, gone, ok]);
}
