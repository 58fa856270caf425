//! Faulty version 1 messages: the engine responds to calls with an error and discards replies (RFC 8166 §4.2.4, §4.5).
//! Also, the empty Write chunks of a reply (RFC 8166 §4.3.2.3).

use rpcrdma_proto::engine::{CallFailure, Engine as _, EngineConfig, MessageFault, Role};

use crate::support::{Script, ScriptedPeer, plain, take_call, take_finished};

/// The engine's first XID.
const XID: u32 = 0x1000;
/// An XID of the peer that the engine does not use.
const THEIRS: u32 = 0x2000;

fn facing(role: Role) -> ScriptedPeer {
    ScriptedPeer::new(role, EngineConfig::default(), true)
}

fn send(facing: &mut ScriptedPeer, words: &[u32]) -> Option<Vec<u32>> {
    facing.raw.send(words, &[]);
    facing.run();
    facing.raw.next()
}

/// RFC 8166 §4.2.4, §4.5: a server discards a reply whose XID differs from the XID in its header. An unrelated call of
/// the server with the header's XID continues.
#[test]
fn server_discards_faulty_replies() {
    let words = [XID, 1, 4, 0, 0, 0, 0, XID + 1, 1, 0];
    let mut server = facing(Role::Server);
    assert_eq!(send(&mut server, &words), None);
    assert_eq!((server.engine.conn.counters().errors_sent, server.engine.conn.counters().messages_discarded), (0, 1));

    let id = server.call(&Script::default());
    server.run();
    assert_eq!(server.raw.next().unwrap()[0], XID);
    assert_eq!(send(&mut server, &words), None);
    assert!(take_finished(&mut server.engine).is_none(), "the unrelated call with that XID failed");
    assert_eq!(send(&mut server, &plain(XID, 3, 1, 0)), None);
    let (finished, result) = take_finished(&mut server.engine).unwrap();
    assert_eq!((finished, result.is_ok()), (id, true));
}

/// RFC 8166 §4.5.1, §4.5.2: a client that accepts reverse-direction calls responds to faulty calls with an error.
#[test]
fn client_responds_to_faulty_calls() {
    let grant = EngineConfig::default().reverse_credits;
    for (words, error) in [
        // Another version.
        (vec![THEIRS, 3, 4, 0, 0, 0, 0, THEIRS, 0, 0], vec![1, 1, 1]),
        // Chunk lists that cannot be parsed.
        (vec![THEIRS, 1, 4, 0, 7, 0, 0, THEIRS, 0, 0], vec![2]),
        // An RPC call with another XID.
        (vec![THEIRS, 1, 4, 0, 0, 0, 0, THEIRS + 1, 0, 0], vec![2]),
        // RDMA_MSGP.
        (vec![THEIRS, 1, 4, 2, 0, 0, 0, 0, 0, THEIRS, 0, 0], vec![2]),
    ] {
        let mut client = facing(Role::Client);
        let answer = send(&mut client, &words).unwrap_or_else(|| panic!("no reply to {words:?}"));
        assert_eq!(answer, [&[THEIRS, words[1], grant, 4], &error[..]].concat());
        assert!(take_call(&mut client.engine).is_none());
        // A well-formed call is served.
        assert_eq!(send(&mut client, &plain(THEIRS, 4, 0, 1)), None);
        assert!(take_call(&mut client.engine).is_some());
    }
}

/// RFC 8166 §4.5: a client sends no error in response to a faulty message that may be a reply or an error. It discards
/// the message, and its call in flight continues.
#[test]
fn client_discards_faulty_replies() {
    for words in [
        &[XID, 3, 4, 0, 0, 0, 0, XID, 1, 0][..],
        &[XID, 1, 4, 0, 7, 0, 0, XID, 1, 0],
        &[XID, 1, 4, 7, 0, 0, 0, XID, 1, 0],
        &[THEIRS, 1, 4, 0, 0, 0, 0, THEIRS + 1, 1, 0],
        &[THEIRS, 3, 4, 4, 2, 0, 0, 0, 0, 0],
        // An RDMA_ERROR that does not decode.
        &[XID, 1, 4, 4, 3, 0, 0],
        // RDMA_MSGP in place of the reply, and RDMA_DONE.
        &[XID, 1, 4, 2, 0, 0, 0, 0, 0, XID, 1, 0],
        &[XID, 1, 4, 3, 0, 0, 0],
        &[THEIRS, 1, 4, 3, 0, 0, 0],
    ] {
        let mut client = facing(Role::Client);
        client.call(&Script::default());
        client.run();
        client.raw.next().expect("call not sent");
        assert_eq!(send(&mut client, words), None, "{words:?}");
        let counters = client.engine.conn.counters();
        assert_eq!(
            (counters.errors_sent, counters.messages_discarded, counters.credits_granted),
            (0, 1, 1),
            "{words:?}"
        );
        assert!(take_finished(&mut client.engine).is_none(), "the call is finished by {words:?}");
    }
}

/// RFC 8167 §6, RFC 8166 §4.5: a client without reverse-direction support responds to no call.
#[test]
fn client_without_reverse_direction_discards_faulty_calls() {
    let mut config = EngineConfig::default();
    config.reverse_credits = 0;
    let mut client = ScriptedPeer::new(Role::Client, config, true);
    for words in [plain(THEIRS, 4, 0, 1), vec![THEIRS, 1, 4, 0, 7, 0, 0, THEIRS, 0, 0]] {
        assert_eq!(send(&mut client, &words), None, "{words:?}");
    }
    assert_eq!(client.engine.conn.counters().messages_discarded, 2);
}

/// RFC 8166 §4.5.2: a server responds to a faulty call, even if it makes calls itself.
#[test]
fn server_responds_to_faulty_calls() {
    for reverse_credits in [0, 8] {
        let mut config = EngineConfig::default();
        config.reverse_credits = reverse_credits;
        let mut server = ScriptedPeer::new(Role::Server, config, true);
        let answer = send(&mut server, &[THEIRS, 1, 4, 0, 7, 0, 0, THEIRS, 0, 0]);
        assert_eq!(answer, Some(vec![THEIRS, 1, 32, 4, 2]), "{reverse_credits}");
    }
}

/// RFC 8166 §4.3.2.3: the reply must return an empty Write chunk empty. A reply with a filled one fails its call.
#[test]
fn empty_write_chunks_are_returned_empty() {
    for is_filled in [false, true] {
        let mut client = facing(Role::Client);
        client.call(&Script { results: vec![(0, 0), (0, 5000)], ..Script::default() });
        client.run();
        let call = client.raw.next().expect("call not sent");
        let [handle, high, low] = [call[9], call[11], call[12]];
        assert_eq!(call[4..9], [0, 1, 0, 1, 1]);
        let first = if is_filled { &[1, 1, handle, 4, high, low][..] } else { &[1, 0] };
        let reply = [&[XID, 1, 4, 0, 0], first, &[1, 1, handle, 0, high, low, 0, 0, XID, 1, 0]].concat();
        assert_eq!(send(&mut client, &reply), None);
        let (_, result) = take_finished(&mut client.engine).expect("not finished");
        let failure = is_filled.then_some(CallFailure::BadReply(MessageFault::FilledEmptyChunk));
        assert_eq!(result.map(|reply| reply.format).err(), failure);
        assert_eq!(client.engine.conn.counters().written_by_peer_bytes, 0);
    }
}
