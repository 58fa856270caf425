//! A complete server against clients that violate the protocol.

use rpcrdma::config::ConnectionConfig;

use super::{
    PROGRAM, Served, bytes, limited, payload,
    raw::{READ_REQUEST, REPLY, REQUEST, Raw, TERMINATE, WRITE, fpdu, mpa, read_request, send, tagged, untagged},
    words,
};

const NO_CHUNKS: [u32; 3] = [0, 0, 0];

/// Opens a connection with a valid set-up.
async fn client(served: &Served) -> Raw {
    let mut raw = Raw::connect(served.addr).await;
    // IRD and ORD 16; RFC 8797: 4096 bytes in both directions.
    let private_data = [0, 16, 0, 16, 0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3];
    raw.write(&mpa(REQUEST, 0x50, 2, &private_data)).await;
    let (flags, revision, _) = raw.frame(REPLY).await;
    assert_eq!((flags, revision), (0x50, 2));
    raw
}

/// Returns a call with these chunk lists, procedure and arguments.
fn call(xid: u32, chunks: &[u32], procedure: u32, args: &[u32]) -> Vec<u8> {
    bytes(&[&[xid, 1, 8, 0], chunks, &[xid, 0, 2, PROGRAM, 1, procedure, 0, 0, 0, 0], args].concat())
}

/// Checks that the connection works: a valid call gets a reply.
async fn works(raw: &mut Raw, msn: u32) {
    raw.fpdus(&[&send(msn, &call(0x600d, &NO_CHUNKS, 0, &[]))]).await;
    let reply = raw.ulpdu().await;
    assert_eq!(words(payload(&reply))[..9], [0x600d, 1, 32, 0, 0, 0, 0, 0x600d, 1]);
}

/// Checks that the server sends a Terminate (RFC 5040 §4.8) with this layer, type and code, and then closes the
/// connection.
async fn terminated(mut raw: Raw, layer_type: u8, code: u8) {
    let ulpdu = raw.ulpdu().await;
    assert_eq!(ulpdu[..2], TERMINATE);
    assert_eq!(payload(&ulpdu)[..2], [layer_type, code], "{ulpdu:02x?}");
    raw.end().await;
}

#[tokio::test]
async fn truncated_header() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    let whole = call(0xbad, &NO_CHUNKS, 0, &[]);
    // RFC 8166 §4.5: messages shorter than the shortest header are silently discarded.
    raw.fpdus(&[&send(1, &[]), &send(2, &whole[..3]), &send(3, &whole[..24])]).await;
    works(&mut raw, 4).await;
    // RFC 8166 §4.5.2: a header with malformed chunk lists is refused. This one announces another Read segment.
    raw.fpdus(&[&send(5, &bytes(&[0xbad, 1, 8, 0, 1, 44, 0x1234]))]).await;
    assert_eq!(words(payload(&raw.ulpdu().await)), [0xbad, 1, 32, 4, 2]);
    works(&mut raw, 6).await;
    served.unharmed().await;
}

#[tokio::test]
async fn unsupported_version() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    raw.fpdus(&[&send(1, &bytes(&[0xbad, 9, 8, 0, 0, 0, 0]))]).await;
    // RFC 8166 §4.5, §4.5.1: ERR_VERS with the version of the request and the supported range. The header has the
    // layout of the highest supported version: RPC-over-RDMA v2 §6.2.2.1, §7.1.1.
    assert_eq!(words(payload(&raw.ulpdu().await)), [0xbad, 9, 32, 4, 1, 1, 1, 2]);
    works(&mut raw, 2).await;
    served.unharmed().await;
}

#[tokio::test]
async fn bad_crc() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    works(&mut raw, 1).await;
    let mut frame = fpdu(&send(2, &call(0xbad, &NO_CHUNKS, 0, &[])));
    *frame.last_mut().unwrap() ^= 1;
    raw.write(&frame).await;
    // RFC 5044 §8, RFC 5040 §4.8: layer 2 (LLP), MPA error 2.
    terminated(raw, 0x20, 2).await;
    served.unharmed().await;
}

#[tokio::test]
async fn wrong_stag() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    raw.fpdus(&[&tagged(WRITE, 0x1234_5678, 0, b"where it does not belong")]).await;
    // RFC 5041 §8.2: layer 1, tagged buffer, invalid STag.
    terminated(raw, 0x11, 0).await;

    // The same for an RDMA Read: layer 0, remote protection, invalid STag.
    let mut raw = client(&served).await;
    raw.fpdus(&[&read_request(1, (1, 0), 100, (0x1234_5678, 0))]).await;
    terminated(raw, 0x01, 0).await;
    served.unharmed().await;
}

/// Repeats a call that has ended its connection over a new connection. Checks that the server replies with ERR_CHUNK
/// and transfers nothing (RFC 8166 §4.5.3). Returns the new connection, which still works.
async fn refused_again(served: &Served, call: &[u8]) -> Raw {
    let mut raw = client(served).await;
    raw.fpdus(&[&send(1, call)]).await;
    assert_eq!(words(payload(&raw.ulpdu().await)), [0xbad, 1, 32, 4, 2]);
    works(&mut raw, 2).await;
    raw
}

#[tokio::test]
async fn chunk_with_a_wrong_stag() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    // PUT of 100 bytes with a handle of unregistered memory.
    let chunks = [1, 44, 0xdead, 100, 0, 0, 0, 0, 0];
    raw.fpdus(&[&send(1, &call(0xbad, &chunks, 2, &[100]))]).await;
    let request = raw.ulpdu().await;
    assert_eq!(request[..2], READ_REQUEST);
    assert_eq!(words(payload(&request))[3..], [100, 0xdead, 0, 0], "not the segment of the chunk");
    // The response of an adapter: remote protection error, invalid STag, with the offending header.
    let about = [&[0x01, 0x00, 0xc0, 0x00, 0, request.len() as u8][..], &request].concat();
    raw.fpdus(&[&untagged(TERMINATE, 0, 2, 1, 0, &about)]).await;
    raw.end().await;
    let mut raw = refused_again(&served, &call(0xbad, &chunks, 2, &[100])).await;
    // It is refused only once.
    raw.fpdus(&[&send(3, &call(0xbad, &chunks, 2, &[100]))]).await;
    assert_eq!(raw.ulpdu().await[..2], READ_REQUEST);
    drop(raw);
    served.unharmed().await;
}

/// The client refuses an RDMA Write after the server has sent the reply. The connection ends, and the server refuses
/// the call when it is repeated.
#[tokio::test]
async fn write_chunk_with_a_wrong_stag() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    // GET of 100 bytes with a handle of unregistered memory.
    let chunks = [0, 1, 1, 0xdead, 100, 0, 0, 0, 0];
    raw.fpdus(&[&send(1, &call(0xbad, &chunks, 1, &[100]))]).await;
    let write = raw.ulpdu().await;
    assert_eq!(write[..2], WRITE);
    let reply = raw.ulpdu().await;
    assert_eq!(words(payload(&reply))[..2], [0xbad, 1]);
    // The response of an adapter: tagged buffer error, invalid STag, with the offending header.
    let about = [&[0x11, 0x00, 0xc0, 0x00, 0, write.len() as u8][..], &write[..14]].concat();
    raw.fpdus(&[&untagged(TERMINATE, 0, 2, 1, 0, &about)]).await;
    raw.end().await;
    refused_again(&served, &call(0xbad, &chunks, 1, &[100])).await;
    served.unharmed().await;
}

#[tokio::test]
async fn chunks_out_of_bounds() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    let mut msn = 0;
    for (what, chunks) in [
        ("a Read chunk of 4 GiB", vec![1, 44, 1, u32::MAX, 0, 0, 0, 0, 0]),
        (
            "lengths whose sum overflows",
            [vec![1, 44, 1, u32::MAX, 0, 0], vec![1, 44, 1, u32::MAX, 0, 0], vec![0; 3]].concat(),
        ),
        ("a position that is not a multiple of four", vec![1, 45, 1, 100, 0, 0, 0, 0, 0]),
        ("a position beyond the message", vec![1, 4000, 1, 100, 0, 0, 0, 0, 0]),
        ("two chunks that overlap", [vec![1, 44, 1, 100, 0, 0], vec![1, 48, 1, 100, 0, 0], vec![0; 3]].concat()),
    ] {
        msn += 1;
        raw.fpdus(&[&send(msn, &call(0xbad, &chunks, 2, &[100]))]).await;
        let answer = raw.ulpdu().await;
        assert_eq!(words(payload(&answer)), [0xbad, 1, 32, 4, 2], "{what}");
    }
    works(&mut raw, msn + 1).await;
    served.unharmed().await;
}

#[tokio::test]
async fn too_many_segments() {
    let config = ConnectionConfig::new().max_segments(16);
    let served = Served::start(config).await;
    let mut raw = client(&served).await;
    let segments = |count| [[1, 44, 1, 4, 0, 0].repeat(count), vec![0; 3]].concat();
    raw.fpdus(&[&send(1, &call(0xbad, &segments(17), 2, &[68]))]).await;
    assert_eq!(words(payload(&raw.ulpdu().await)), [0xbad, 1, 32, 4, 2]);
    // A count is not trusted either: this Write chunk claims 2^30 segments.
    raw.fpdus(&[&send(2, &call(0xbad, &[0, 1, 1 << 30, 1, 4, 0, 0], 1, &[4]))]).await;
    assert_eq!(words(payload(&raw.ulpdu().await)), [0xbad, 1, 32, 4, 2]);
    // The maximum number of segments is accepted.
    raw.fpdus(&[&send(3, &call(0x600d, &segments(16), 2, &[64]))]).await;
    for _ in 0..16 {
        assert_eq!(raw.ulpdu().await[..2], READ_REQUEST);
    }
    drop(raw);
    served.unharmed().await;
}

#[tokio::test]
async fn calls_beyond_the_credits() {
    let config = ConnectionConfig::new().credits(2);
    let served = Served::start(config).await;
    let raw = client(&served).await;
    // WAIT gets no reply, so the Receives run out: RFC 8166 §3.3.1 does not allow more calls than granted.
    for msn in 1..=200 {
        if raw.0.try_write(&fpdu(&send(msn, &call(msn, &NO_CHUNKS, 3, &[0])))).is_err() {
            break;
        }
    }
    let ended = limited(async {
        while served.handle.connections().len() > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    ended.await;
    served.unharmed().await;
}

#[tokio::test]
async fn malformed_arguments() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    // GET without its argument.
    raw.fpdus(&[&send(1, &call(0xbad, &NO_CHUNKS, 1, &[]))]).await;
    let reply = words(payload(&raw.ulpdu().await));
    assert_eq!(reply[7..], [0xbad, 1, 0, 0, 0, 4], "GARBAGE_ARGS");
    works(&mut raw, 2).await;
    served.unharmed().await;
}

#[tokio::test]
async fn peer_disconnects_within_a_message() {
    let served = Served::start(ConnectionConfig::default()).await;
    let whole = fpdu(&send(1, &call(0xbad, &NO_CHUNKS, 0, &[])));
    for len in [1, 2, 19, whole.len() - 1] {
        let mut raw = client(&served).await;
        raw.write(&whole[..len]).await;
    }
    served.unharmed().await;
}

/// A client requests results of 1 MiB each and reads none of them. The server still serves other clients.
#[tokio::test]
async fn peer_stops_reading() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    let chunks = [0, 1, 1, 1, 1 << 20, 0, 0, 0, 0];
    for msn in 1..=24 {
        raw.fpdus(&[&send(msn, &call(msn, &chunks, 1, &[1 << 20]))]).await;
    }
    served.unharmed().await;
    drop(raw);
}

#[tokio::test]
async fn replayed_xid() {
    let served = Served::start(ConnectionConfig::default()).await;
    let mut raw = client(&served).await;
    // WAIT is in progress; its XID is used again for another procedure.
    raw.fpdus(&[&send(1, &call(0xbad, &NO_CHUNKS, 3, &[7])), &send(2, &call(0xbad, &NO_CHUNKS, 0, &[]))]).await;
    // The second call gets no reply, and the connection stays open.
    works(&mut raw, 3).await;
    drop(raw);
    served.unharmed().await;
}
