//! Header types and flags (RPC-over-RDMA v2 §6.1, §6.2).

use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{CallFailure, EngineConfig, Role, TransportError, Versions},
    provider::MemoryHandle,
};

use super::{
    refusals::{refused, segment, server, serves},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, connprop, plain},
};
use crate::support::{Script, join, take_call, with_versions};

/// Returns RDMA2_NOMSG with a Position-Zero Read chunk that contains these words.
fn special_call(facing: &mut Facing, xid: u32, flags: u32, payload: &[u32]) -> Vec<u32> {
    let bytes = payload.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let (handle, offset) = facing.raw.source(&bytes);
    [vec![xid, 2, CREDIT, NOMSG, flags, 0, 1], segment(Some(0), handle, bytes.len() as u32, offset), vec![0, 0, 0]]
        .concat()
}

/// §6.1, §7.1.2: a client and a server refuse an unknown header type, whatever its flags. Its body is not taken for an
/// RPC message.
#[test]
fn unknown_header_types_at_client_and_server() {
    for role in [Role::Client, Role::Server] {
        let mut facing = Facing::new(role, EngineConfig::default());
        for (htype, flags) in [(2, 0), (3, 0), (6, 0), (6, RESPONSE), (1 << 31, 0)] {
            let mut words = plain(3, CREDIT, 0, 1);
            (words[3], words[4]) = (htype, flags);
            refused(&mut facing, &words, &[4]);
        }
        serves(&mut facing);
    }
}

/// §6.2.2: reserved flags are ignored in all header types.
#[test]
fn reserved_flags_of_all_header_types() {
    for reserved in [8, 1 << 31, !(RESPONSE | MORE | TPMORE)] {
        let mut facing = Facing::silent(Role::Server, EngineConfig::default());
        facing.send(&connprop(7, TPMORE | reserved, &[(2, &[8192])]));
        facing.send(&connprop(7, reserved, &[]));
        assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().receive_size, 8192);
        facing.raw.received.clear();
        facing.send(&[4, 2, CREDIT, MSG, reserved, 0, 0, 0, 0, 4, 0, 1]);
        facing.send(&[5, 2, CREDIT, MSG, MORE | reserved, 0, 0, 0, 0, 5, 0]);
        facing.send(&[5, 2, CREDIT, MSG, reserved, 0, 0, 0, 0, 1]);
        facing.send(&[6, 2, CREDIT, MSG, reserved, 0, 0, 1, 0, 0, 0, 6, 0, 1]);
        let special = special_call(&mut facing, 7, reserved, &[7, 0, 1]);
        facing.send(&special);
        for xid in 4..8 {
            let call = take_call(&mut facing.engine).expect("call not served");
            assert_eq!((call.xid, call.payload.as_slice().len()), (xid, 12));
        }
        assert!(facing.next().is_none());

        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.send(&[0, 2, CREDIT, NOMSG, reserved, 0, 0, 0, 0]);
        assert_eq!(facing.engine.conn.counters().grants_received, 1);
        facing.call(&Script { number: 4, ..Script::default() });
        let mut reply = plain(facing.next().unwrap()[0], CREDIT, 1, 4);
        reply[4] |= reserved;
        facing.send(&reply);
        facing.finished().expect("reply ignored").unwrap();
        facing.call(&Script { number: 5, ..Script::default() });
        let xid = facing.next().unwrap()[0];
        facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE | reserved, 100]);
        assert_eq!(
            facing.finished().expect("error ignored").unwrap_err(),
            CallFailure::Refused(TransportError::System)
        );
    }
}

/// §6.2.2.1, §7.2: a call is not used if its `msg_type` is not CALL, or if its XID differs from the XID in its header.
/// The same applies to replies, in every format, with the `msg_type` REPLY.
#[test]
fn rpc_message_that_contradicts_its_header() {
    let mut facing = server();
    for [xid, msg_type] in [[3, 1], [4, 0], [4, 1], [3, 2]] {
        refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 0, 0, 0, xid, msg_type, 1], &[2]);
        refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 0, 1, 0, 0, 0, xid, msg_type, 1], &[2]);
        facing.send(&[3, 2, CREDIT, MSG, MORE, 0, 0, 0, 0, xid, msg_type]);
        refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 0, 0, 0, 1], &[2]);
        let special = special_call(&mut facing, 3, 0, &[xid, msg_type, 1]);
        refused(&mut facing, &special, &[2]);
    }
    serves(&mut facing);

    let mut config = EngineConfig::default();
    config.max_continued = 0;
    for (format, xid_offset, msg_type) in (0..4).flat_map(|format| [(format, 0, 0), (format, 1, 1), (format, 0, 2)]) {
        let mut facing = Facing::new(Role::Client, config.clone());
        facing.call(&Script { number: 4, reply_inline: 6000, ..Script::default() });
        let call = facing.next().unwrap();
        let (xid, payload) = (call[0], [call[0] + xid_offset, msg_type, 4]);
        let [handle, high, low] = [call[10], call[12], call[13]];
        match format {
            0 => facing.send(&[&[xid, 2, CREDIT, MSG, RESPONSE, 0, 0, 0, 0], &payload[..]].concat()),
            1 => {
                let chunk = [1, 1, handle, 0, high, low];
                facing.send(&[&[xid, 2, CREDIT, MSG, RESPONSE, 0, 0, 0], &chunk[..], &payload].concat());
            }
            2 => {
                facing.send(&[&[xid, 2, CREDIT, MSG, RESPONSE | MORE, 0, 0, 0, 0], &payload[..2]].concat());
                facing.send(&[xid, 2, CREDIT, MSG, RESPONSE, 0, 0, 0, 0, 4]);
            }
            _ => {
                facing.raw.write(handle, join(high, low), &payload.map(u32::to_be_bytes).concat());
                facing.send(&[xid, 2, CREDIT, NOMSG, RESPONSE, 0, 0, 0, 1, 1, handle, 12, high, low]);
            }
        }
        assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))), "format {format}, {payload:?}");
        assert!(facing.next().is_none(), "the requester responded with an error");
    }
}

/// §6.2.4: the reply invalidates the handle that the call names in `rdma_inv_handle`, whichever of its handles that is.
/// It invalidates no handle if the field is zero or names a handle that is not in the header.
#[test]
fn handle_to_invalidate() {
    for named in [Some(0), Some(1), None] {
        for stray in [0, 0xbad] {
            let mut facing = server();
            let (sinks, lens) = ([facing.raw.sink(40), facing.raw.sink(60)], [40, 60]);
            let handle = named.map_or(stray, |n: usize| sinks[n].0);
            let mut words = vec![3, 2, CREDIT, MSG, 0, handle, 0];
            for ((handle, offset), len) in sinks.into_iter().zip(lens) {
                words.extend([1, 1]);
                words.extend(segment(None, handle, len, offset));
            }
            words.extend([0, 0, 3, 0, 1]);
            facing.send(&words);
            let call = take_call(&mut facing.engine).unwrap();
            facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
            facing.run();
            let (_, invalidated) = facing.raw.received.pop_front().expect("no reply");
            assert_eq!(invalidated, named.map(|_| MemoryHandle(handle)), "rdma_inv_handle {handle:#x}");
        }
    }
}

/// §6.2.4: a call asks for no invalidation if the requester did not announce it, or if its provider does not support
/// it.
#[test]
fn no_handle_to_invalidate() {
    for (announced, supported) in [(true, true), (false, true), (true, false)] {
        let config = with_versions(EngineConfig::default(), Versions::V2);
        let mut facing = Facing::with_invalidation(Role::Client, config, announced, supported);
        facing.send(&connprop(7, 0, &[]));
        facing.raw.received.clear();
        facing.call(&Script { args: vec![5000], reduce: true, ..Script::default() });
        let call = facing.next().unwrap();
        assert_eq!(call[5], if announced && supported { call[8] } else { 0 });
    }
}

/// §6.3.2: only RDMA2_NOMSG with XID zero and without chunks is a separate grant of credits. Such a message gets no
/// response.
#[test]
fn credit_grants() {
    let mut facing = server();
    refused(&mut facing, &[3, 2, CREDIT, NOMSG, 0, 0, 0, 0, 0], &[2]);
    refused(&mut facing, &[0, 2, CREDIT, MSG, 0, 0, 0, 0, 0], &[2]);
    assert_eq!(facing.engine.conn.counters().grants_received, 0);
    facing.send(&[0, 2, CREDIT, NOMSG, 0, 0, 0, 0, 0]);
    assert!(facing.next().is_none());
    assert_eq!(facing.engine.conn.counters().grants_received, 1);
}

/// §7: a message shorter than the prefix is discarded without a response, whatever its length.
#[test]
fn messages_shorter_than_a_prefix() {
    for role in [Role::Client, Role::Server] {
        let mut facing = Facing::new(role, EngineConfig::default());
        for len in 0..20 {
            let bytes = [3, 2, CREDIT, 77, 0].map(u32::to_be_bytes).concat();
            facing.raw.send(&[], &bytes[..len]);
            facing.run();
            assert!(facing.next().is_none(), "a response to {len} bytes");
            assert_eq!(facing.engine.conn.counters().messages_discarded, len as u64 + 1);
        }
        refused(&mut facing, &[3, 2, CREDIT, 77, 0], &[4]);
        serves(&mut facing);
    }
}

/// §7.1.1: a call whose header has another version is refused with RDMA2_ERR_VERS and not served, even if its other
/// fields are valid in version 2. An error whose header has another version gets no response.
#[test]
fn call_of_another_version() {
    let mut facing = server();
    for version in [0, 1, 3, u32::MAX] {
        let mut words = plain(3, CREDIT, 0, 1);
        words[1] = version;
        refused(&mut facing, &words, &[1, 2, 2]);
    }
    // A requester gets no error for an error of another version.
    facing.send(&[3, 3, CREDIT, ERROR, RESPONSE, 100]);
    assert!(facing.next().is_none());
    serves(&mut facing);
}

/// §6.3.2: a Position-Zero Read chunk contains the call, which has the XID of the header. A header with XID zero and
/// such a chunk is not a grant of credits.
#[test]
fn special_call_is_served() {
    for xid in [3, 0] {
        let mut facing = server();
        let special = special_call(&mut facing, xid, 0, &[xid, 0, 9]);
        facing.send(&special);
        let call = take_call(&mut facing.engine).expect("call not served");
        assert_eq!((call.xid, call.payload.as_slice()), (xid, &[xid, 0, 9].map(u32::to_be_bytes).concat()[..]));
        assert_eq!(facing.engine.conn.counters().grants_received, 0);
    }
}
