//! Tests of retransmitted calls, as after a lost connection (RFC 1813 §4.5).

use rpcrdma::{rpc::Credential, xdr::Decoder};
use rpcrdma_specs::nfs3::*;

use crate::{
    raw::{Raw, encoded, header},
    support::{Served, at, own_gid, own_uid},
};

/// Calls REMOVE with the given XID and stamp, and returns its status.
fn remove(server: &mut Raw, xid: u32, stamp: u32, object: &Diropargs3) -> Nfsstat3 {
    let mut credential = Credential::sys("test", own_uid(), own_gid(), []);
    if let Credential::Sys(parms) = &mut credential {
        parms.stamp = stamp;
    }
    let mut call = header(xid, 12, &credential);
    call.extend(encoded(&Remove3args { object: object.clone() }));
    let reply = server.call(&call).unwrap();
    // XID, REPLY, MSG_ACCEPTED, an empty verifier, SUCCESS.
    assert_eq!(reply[..4], xid.to_be_bytes());
    assert_eq!(reply[4..24], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    Decoder::new(&reply[24..]).read::<Remove3res>().unwrap().discriminant()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retransmitted_call_gets_the_original_result() {
    let served = Served::new().await;
    let nfs = served.client().await;
    nfs.file(&nfs.root, "a").await;
    let (what, url) = (at(&nfs.root, "a"), served.tcp.clone());
    let statuses = tokio::task::spawn_blocking(move || {
        let mut server = Raw::connect(&url);
        let first = [7, 7, 8, 7].map(|xid| remove(&mut server, xid, 0, &what));
        // Another connection comes from another port. Older clients have another stamp in each call.
        let mut next = Raw::connect(&url);
        (first, [7, 9].map(|xid| remove(&mut next, xid, 1, &what)))
    });
    let (ok, gone) = (Nfsstat3::Ok, Nfsstat3::Noent);
    assert_eq!(statuses.await.unwrap(), ([ok, ok, gone, ok], [ok, gone]));
}

/// Calls that fail before they change anything displace no replies from the cache, not even replies to the same client.
#[tokio::test(flavor = "multi_thread")]
async fn calls_without_effect_use_no_room() {
    let served = Served::new().await;
    let nfs = served.client().await;
    nfs.file(&nfs.root, "a").await;
    let (a, missing, url) = (at(&nfs.root, "a"), at(&nfs.root, "missing"), served.tcp.clone());
    let statuses = tokio::task::spawn_blocking(move || {
        let mut server = Raw::connect(&url);
        let first = remove(&mut server, 1, 0, &a);
        // More than the cache has room for.
        let failed = (2..8300).filter(|&xid| remove(&mut server, xid, 0, &missing) == Nfsstat3::Noent).count();
        (first, failed, remove(&mut server, 1, 0, &a))
    });
    assert_eq!(statuses.await.unwrap(), (Nfsstat3::Ok, 8298, Nfsstat3::Ok));
    let [stats] = served.duplicate_requests()[..] else { panic!("one cache") };
    // The creation of the file, and its removal.
    assert_eq!((stats.entries, stats.evicted), (2, 0));
}
