//! Calls that ended a connection, and that the requester sends again over the next one (RFC 8166 §4.5.3,
//! RPC-over-RDMA v2 §7.3).

use std::sync::Arc;

use rpcrdma::xdr::ReducedItem;

use rpcrdma_proto::{
    engine::{Engine as _, EngineConfig, FailedCalls, OutgoingReply, Role},
    memory::{MessageBuf, Output},
    provider::{DisconnectReason, QueuePair as _, sim::SimEnd},
};

use crate::{
    support::{NO_CHUNKS, ScriptedPeer, plain, split, take_call},
    v2::scripted::{CREDIT, ERROR, Facing, MSG, RESPONSE},
};

const XID: u32 = 0xabcd_0001;

/// Returns the configuration of a server for the connections of `peer`, with the table `failed`.
fn config(failed: &Arc<FailedCalls>, peer: u128) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.failed_calls = Some(failed.of_peer(peer));
    config
}

fn server(failed: &Arc<FailedCalls>, peer: u128) -> ScriptedPeer {
    ScriptedPeer::new(Role::Server, config(failed, peer), true)
}

/// Returns a call with a Read chunk of memory that does not exist.
fn unreadable(xid: u32) -> Vec<u32> {
    [&[xid, 1, 8, 0, 1, 8, 0xdead, 4, 0, 0][..], &NO_CHUNKS, &[xid, 0, 0]].concat()
}

/// Returns a call with a Write chunk in memory that does not exist.
fn unwritable(xid: u32) -> Vec<u32> {
    [&[xid, 1, 8, 0, 0, 1, 1, 0xdead, 8, 0, 0, 0, 0][..], &[xid, 0]].concat()
}

/// Returns a reply whose eligible item goes in a Write chunk.
fn reduced_reply() -> OutgoingReply {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    [0, 1, 8].iter().for_each(|word: &u32| message.append(&word.to_be_bytes()));
    let item = ReducedItem { position: 12, chunk: 0, data: vec![7; 8].into() };
    OutgoingReply { message, reduced: [item].into_iter().collect() }
}

#[test]
fn read_chunk_ends_one_connection() {
    let failed = Arc::default();
    let mut first = server(&failed, 1);
    // Calls beside it are not to blame.
    first.raw.send(&plain(XID + 1, 8, 0, 0), &[]);
    first.raw.send(&unreadable(XID), &[]);
    first.run();
    assert!(first.raw.disconnected());

    let mut second = server(&failed, 1);
    second.raw.send(&unreadable(XID), &[]);
    second.run();
    assert_eq!(second.raw.next().unwrap(), [XID, 1, 32, 4, 2]);
    second.raw.send(&plain(XID + 1, 8, 0, 0), &[]);
    second.run();
    assert!(!second.raw.disconnected());
    // The call beside it, on both connections.
    assert_eq!(take_call(&mut first.engine).unwrap().xid, XID + 1);
    assert_eq!(take_call(&mut second.engine).unwrap().xid, XID + 1);
    assert!(take_call(&mut second.engine).is_none());
    assert_eq!(second.network.registered(SimEnd::B), 0);
    // It is refused once. The same XID may be that of a later call.
    second.raw.send(&plain(XID, 8, 0, 0), &[]);
    second.run();
    assert_eq!(take_call(&mut second.engine).unwrap().xid, XID);
}

#[test]
fn write_chunk_ends_one_connection() {
    let failed = Arc::default();
    let mut first = server(&failed, 1);
    first.raw.send(&unwritable(XID), &[]);
    first.run();
    let call = take_call(&mut first.engine).unwrap();
    first.engine.conn.reply(call.token, reduced_reply());
    first.run();
    assert!(first.raw.disconnected());

    // Other peers are not affected.
    let mut other = server(&failed, 2);
    other.raw.send(&unwritable(XID), &[]);
    other.run();
    assert!(take_call(&mut other.engine).is_some());

    let mut second = server(&failed, 1);
    second.raw.send(&unwritable(XID), &[]);
    second.run();
    assert_eq!(second.raw.next().unwrap(), [XID, 1, 32, 4, 2]);
    assert!(take_call(&mut second.engine).is_none() && !second.raw.disconnected());
}

/// A call whose chunks did not cause the end of the connection, here because the client disconnected, is not refused on
/// the next connection.
#[test]
fn other_ends_are_forgotten() {
    let failed = Arc::default();
    let mut first = server(&failed, 1);
    first.raw.send(&unwritable(XID), &[]);
    first.run();
    let call = take_call(&mut first.engine).unwrap();
    first.raw.qp.disconnect();
    first.engine.conn.reply(call.token, reduced_reply());
    first.run();
    let mut second = server(&failed, 1);
    second.raw.send(&unwritable(XID), &[]);
    second.run();
    assert!(take_call(&mut second.engine).is_some());
}

#[test]
fn version_2() {
    let failed = Arc::default();
    let call = [XID, 2, CREDIT, MSG, 0, 0, 1, 8, 0xdead, 4, 0, 0, 0, 0, 0, XID, 0, 0];
    let mut first = Facing::new(Role::Server, config(&failed, 1));
    first.send(&call);
    assert!(first.raw.disconnected());
    let mut second = Facing::new(Role::Server, config(&failed, 1));
    second.send(&call);
    let answer = second.next().unwrap();
    // RDMA2_ERR_SYSTEM.
    assert_eq!([answer[0], answer[1], answer[3], answer[4], answer[5]], [XID, 2, ERROR, RESPONSE, 100]);
    assert!(take_call(&mut second.engine).is_none() && !second.raw.disconnected());
}

/// Only the call that is known to have ended the connection is refused on the next connection, although replies to
/// other calls were written. The call is refused even if it has no chunks when it is sent again.
#[test]
fn only_the_call_at_fault_is_remembered() {
    let failed = Arc::default();
    let mut first = server(&failed, 1);
    let (handle, base) = first.raw.sink(8);
    let written = [&[XID + 1, 1, 8, 0, 0, 1, 1, handle, 8][..], &split(base), &[0, 0], &[XID + 1, 0]].concat();
    for words in [written, unwritable(XID)] {
        first.raw.send(&words, &[]);
        first.run();
        let call = take_call(&mut first.engine).unwrap();
        first.engine.conn.reply(call.token, reduced_reply());
        first.run();
    }
    assert!(first.raw.disconnected());
    let mut second = server(&failed, 1);
    for xid in [XID, XID + 1] {
        second.raw.send(&plain(xid, 8, 0, 0), &[]);
        second.run();
    }
    assert_eq!(second.raw.next().unwrap(), [XID, 1, 32, 4, 2]);
    assert_eq!(take_call(&mut second.engine).unwrap().xid, XID + 1);
}

/// iWARP reports a refused RDMA Write only with the end of the connection. The calls whose replies were written last
/// are then refused on the next connection, unless the connection ended for another reason.
#[test]
fn written_replies_are_to_blame_if_no_call_is() {
    for (reason, is_blamed) in [
        (DisconnectReason::RemoteAccess("bad handle".into()), true),
        (DisconnectReason::Remote, false),
        (DisconnectReason::Transport("lost".into()), false),
    ] {
        let failed = Arc::default();
        let mut first = server(&failed, 1);
        let (handle, base) = first.raw.sink(8);
        first.raw.send(&[&[XID, 1, 8, 0, 0, 1, 1, handle, 8][..], &split(base), &[0, 0], &[XID, 0]].concat(), &[]);
        first.run();
        let call = take_call(&mut first.engine).unwrap();
        first.engine.conn.reply(call.token, reduced_reply());
        first.run();
        first.engine.conn.connection_lost(reason);
        let mut second = server(&failed, 1);
        second.raw.send(&plain(XID, 8, 0, 0), &[]);
        second.run();
        assert_eq!(take_call(&mut second.engine).is_none(), is_blamed);
    }
}
