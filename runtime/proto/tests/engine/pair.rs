//! Two engines in version 1: message formats, combinations of chunks, and thresholds.

use crate::support::{Pair, PairConfig, Script};
use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::engine::{Connection, EngineConfig, MessageFormat};

fn one(config: PairConfig, script: Script) -> (Pair, MessageFormat) {
    let mut pair = Pair::new(config);
    pair.call(script);
    pair.run();
    let reply = pair.outcomes().remove(&0).expect("call not finished").expect("call failed");
    pair.assert_nothing_exposed();
    (pair, reply.format)
}

/// RFC 8166 §3.5.1: a Short call and its reply take one Send in each direction, and no memory is registered.
#[test]
fn short_message() {
    let (pair, format) = one(PairConfig::default(), Script { inline: 100, reply_inline: 100, ..Script::default() });
    assert_eq!(format, MessageFormat::Short);
    let counters = pair.client.conn.counters();
    assert_eq!((counters.registrations, counters.calls_sent, counters.replies_received), (0, 1, 1));
    assert_eq!(counters.bytes_sent, 28 + 112);
}

/// RFC 8166 §3.5.2: a call with one Read chunk.
#[test]
fn read_chunk() {
    let script = Script { inline: 40, args: vec![10_001], reduce: true, ..Script::default() };
    let (pair, format) = one(PairConfig::default(), script);
    assert_eq!(format, MessageFormat::Short);
    assert_eq!(pair.client.conn.counters().read_by_peer_bytes, 10_001);
    assert_eq!(pair.server.conn.counters().rdma_read_bytes, 10_001);
}

/// RFC 8166 §3.5.2: a call with two Read chunks of several segments, a small argument, and several Write chunks.
#[test]
fn many_chunks_both_ways() {
    let mut config = PairConfig::default();
    config.client.max_segment_len = 1000;
    let script = Script {
        inline: 40,
        args: vec![3001, 2, 4000],
        reduce: true,
        reply_inline: 9,
        results: vec![(5003, 6000), (1, 2000), (0, 4096)],
        ..Script::default()
    };
    let (pair, format) = one(config, script);
    assert_eq!(format, MessageFormat::Chunked);
    assert_eq!(pair.client.conn.counters().written_by_peer_bytes, 5004);
    assert_eq!(pair.server.conn.counters().rdma_write_bytes, 5004);
}

/// RFC 8166 §3.5.3: a Long call and a Long reply.
#[test]
fn long_call_and_reply() {
    let script = Script { inline: 9000, reply_inline: 20_000, ..Script::default() };
    let (pair, format) = one(PairConfig::default(), script);
    assert_eq!(format, MessageFormat::Long);
    assert_eq!(pair.server.conn.counters().rdma_read_bytes, 9012);
}

/// RFC 8166 §3.5.3: a call with a Position-Zero Read chunk and other Read chunks, and a reply with a Reply chunk and a
/// Write list.
#[test]
fn long_messages_with_chunks() {
    let script = Script {
        inline: 9001,
        args: vec![5000, 70_000],
        reduce: true,
        reply_inline: 5001,
        results: vec![(99_999, 100_000)],
        ..Script::default()
    };
    let (_, format) = one(PairConfig::default(), script);
    assert_eq!(format, MessageFormat::Long);
}

/// RFC 8797 §5.1: unless both peers send private data, the inline thresholds are 1024 bytes.
#[test]
fn default_thresholds() {
    let config = PairConfig { private_data: [true, false], ..PairConfig::default() };
    let (_, format) = one(config.clone(), Script { inline: 1024 - 28 - 12, ..Script::default() });
    assert_eq!(format, MessageFormat::Short);
    let (pair, _) = one(config.clone(), Script { inline: 1024 - 28 - 11, ..Script::default() });
    assert_eq!(pair.client.conn.counters().registrations, 1);
    let (_, format) = one(config, Script { reply_inline: 1024 - 28 - 11, ..Script::default() });
    assert_eq!(format, MessageFormat::Long);
}

/// The provider parameters of an engine: private data of RFC 8797, at least one Receive for each credit (RFC 8166
/// §3.3.1), and the size of the Receives. The size is at least 4096 bytes, because Linux servers send messages of this
/// size to all peers.
#[test]
fn setup_params() {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (5, 3);
    config.receive_size = 2048;
    let params = Connection::setup_params(&config, true);
    assert_eq!(&params.private_data[..], &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 1]);
    assert!(params.receive_count >= 5 + 3);
    assert_eq!(params.receive_size, 4096);
    config.receive_size = 65536;
    assert_eq!(Connection::setup_params(&config, false).receive_size, 65536);
}

/// RFC 8166 §3.3.2: the threshold of a direction is the smaller of the sender's and the receiver's size.
#[test]
fn thresholds_by_direction() {
    // The senders' sizes are the smaller ones, then the receivers'.
    for (client, server) in [((2048, 8192), (3072, 8192)), ((8192, 3072), (8192, 2048))] {
        let mut config = PairConfig::default();
        (config.client.send_size, config.client.receive_size) = client;
        (config.server.send_size, config.server.receive_size) = server;
        let format = |inline, reply_inline| {
            let script = Script { inline, reply_inline, ..Script::default() };
            let (pair, format) = one(config.clone(), script);
            (pair.server.conn.counters().rdma_read_bytes > 0, format)
        };
        assert_eq!(format(2048 - 40, 3072 - 40), (false, MessageFormat::Short));
        assert_eq!(format(2048 - 36, 3072 - 40), (true, MessageFormat::Short));
        assert_eq!(format(0, 3072 - 36), (false, MessageFormat::Long));
    }
}
