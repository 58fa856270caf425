//! Entry points for fuzzers of the code that decodes data from a peer. Each takes the fuzzer's bytes and panics if an
//! invariant is violated.
//!
//! | function | target |
//! | --- | --- |
//! | `mpa_stream` | MPA, DDP and RDMAP: the bytes of an established iWARP connection |
//! | `mpa_frames` | MPA request and reply frames |
//! | [`private_data`] | private data of RFC 8797 |
//! | [`rpcrdma_header`] | headers of RPC-over-RDMA version 1 |
//! | [`rpcrdma2_header`] | headers of RPC-over-RDMA version 2 |
//! | [`engine`] | a client or server engine, version 1, with messages and completions in any order |
//! | [`engine_v2`] | a client or server engine with version negotiation, with messages and completions in any order |
//! | [`tcp_stream`] | a client or server engine of a TCP connection, with received bytes and other events |
//! | [`gss_server`] | calls to a server with RPCSEC_GSS: credentials, verifiers, tokens, protected bodies |
//! | [`gss_client`] | replies to a client with RPCSEC_GSS: to requests for a context, and to calls |
//! | `tls_probe`, with the feature `tls` | what a peer sends before a TLS handshake |
//! | `tls_accept`, with the feature `tls` | what a client sends to a server before and during a TLS handshake |
//! | [`rpc_message`] | RPC headers and credentials |
//! | [`payload_stream`] | XDR with chunks to splice in |
//! | [`reencodes`] | any generated type |
//!
//! Each function has a fuzz target in `tests/fuzz`, and a property test beside it. The module exists only if the crate
//! is compiled for a fuzzer (`--cfg fuzzing`) or for its own tests. The published crate does not have it.

mod engine;
mod rdma;
mod stream;

use bytes::Bytes;

pub use rdma::{engine, engine_v2};
pub use stream::tcp_stream;

pub use crate::gss::fuzz::{gss_client, gss_server};
// The tests of these are in the crate of the provider.
#[cfg(fuzzing)]
pub use crate::provider::iwarp::fuzz::{fuzz_mpa_stream as mpa_stream, mpa_frames};
#[cfg(feature = "tls")]
pub use crate::tls::fuzz::{tls_accept, tls_probe};
use crate::{
    engine::{
        PrivateData,
        v1::header::RdmaMsg,
        v2::header::{Rpcrdma2Connprop, Rpcrdma2Error, Rpcrdma2HdrPrefix, Rpcrdma2Msg, Rpcrdma2Nomsg},
    },
    rpc::{CallHeader, ReplyHeader, wire::RpcMsg},
    security::{Authenticator, ReceivedCall, StandardAuthenticator},
    xdr::{self, DecodeError, Decoder, FlatSink, ReadChunk, WriteChunk, XdrDecode, XdrString, encode_to_bytes},
};

/// Decodes `bytes` as an RPC message, as a server and as a client.
pub fn rpc_message(bytes: &[u8]) {
    reencodes::<RpcMsg>(bytes);

    let mut decoder = Decoder::new(bytes);
    match CallHeader::decode(&mut decoder) {
        Ok(call) => {
            // Any padding is accepted, but zero is sent, here and below.
            let wire = encoded(|out| call.encode(&mut FlatSink::new(out)));
            assert_eq!(wire.len(), decoder.consumed());
            assert_eq!(CallHeader::decode(&mut Decoder::new(&wire)).as_ref(), Ok(&call));
            let received = ReceivedCall::new(&call, ([127, 0, 0, 1], 1).into());
            let _ = StandardAuthenticator.authenticate(&received);
        }
        Err(fault) => {
            // The reply that rejects a call must be valid.
            if let Some(reply) = fault.reply() {
                let wire = encoded(|out| reply.encode(&mut FlatSink::new(out)));
                assert_eq!(ReplyHeader::decode(&mut Decoder::new(&wire)).as_ref(), Ok(&reply), "{fault}");
                assert_eq!(bytes.first_chunk(), Some(&reply.xid.to_be_bytes()));
            }
        }
    }

    let mut decoder = Decoder::new(bytes);
    if let Ok(reply) = ReplyHeader::decode(&mut decoder) {
        let wire = encoded(|out| reply.encode(&mut FlatSink::new(out)));
        assert_eq!(wire.len(), decoder.consumed());
        assert_eq!(ReplyHeader::decode(&mut Decoder::new(&wire)).as_ref(), Ok(&reply));
    }
}

/// Decodes `bytes` as a header of RPC-over-RDMA version 1 (RFC 8166 §4.1.2).
pub fn rpcrdma_header(bytes: &[u8]) {
    reencodes::<RdmaMsg>(bytes);
}

/// Decodes `bytes` as the headers of RPC-over-RDMA version 2 (RPC-over-RDMA v2 §6.2.2, §6.3): the prefix, followed by
/// each of the four types.
pub fn rpcrdma2_header(bytes: &[u8]) {
    reencodes::<Rpcrdma2HdrPrefix>(bytes);
    let rest = bytes.get(20..).unwrap_or_default();
    reencodes::<Rpcrdma2Msg>(rest);
    reencodes::<Rpcrdma2Nomsg>(rest);
    reencodes::<Rpcrdma2Error>(rest);
    reencodes::<Rpcrdma2Connprop>(rest);
}

/// Decodes `bytes` as private data of a connection request or reply (RFC 8797).
pub fn private_data(bytes: &[u8]) {
    if let Some(said) = PrivateData::find(bytes) {
        assert!(bytes.len() >= PrivateData::LEN);
        assert_eq!(PrivateData::find(&said.encode()), Some(said));
        assert!(said.send_size >= 1024 && said.receive_size >= 1024);
    }
}

/// Decodes a payload stream with all kinds of items and with chunks to splice in.
///
/// The first byte holds the number of steps (low 5 bits) and of chunks (high 3 bits). It is followed by one byte for
/// each step, which selects the item to read, and by two bytes for each chunk: its position in words and its length in
/// bytes. The rest is the stream.
pub fn payload_stream(bytes: &[u8]) {
    let Some((&counts, rest)) = bytes.split_first() else { return };
    let Some((steps, rest)) = rest.split_at_checked(usize::from(counts & 0x1F)) else { return };
    let Some((chunks, stream)) = rest.split_at_checked(usize::from(counts >> 5) * 2) else { return };
    let chunks: Vec<(u32, Bytes)> = chunks
        .chunks_exact(2)
        .map(|chunk| (u32::from(chunk[0]) * 4, Bytes::from(vec![chunk[0]; usize::from(chunk[1])])))
        .collect();
    let mut reads: Vec<_> =
        chunks.iter().map(|(position, data)| ReadChunk { position: *position, data: data.clone() }).collect();
    reads.sort_by_key(|chunk| chunk.position);
    let writes: Vec<_> =
        chunks.iter().map(|(position, data)| WriteChunk { data: data.clone(), provided: position % 8 == 0 }).collect();
    let shared = Bytes::copy_from_slice(stream);
    for decoder in [
        Decoder::new(stream),
        Decoder::shared(&shared),
        Decoder::new(stream).with_read_chunks(&reads),
        Decoder::new(stream).with_write_chunks(&writes),
    ] {
        walk(decoder, steps, stream.len());
    }
}

fn walk(mut decoder: Decoder<'_>, steps: &[u8], len: usize) {
    for &step in steps {
        let before = (decoder.consumed(), decoder.position());
        if read_one(&mut decoder, step).is_err() {
            return;
        }
        let after = (decoder.consumed(), decoder.position());
        assert!(after.0 >= before.0 && after.0 <= len, "the decoder left its stream");
        assert!(after.1 - before.1 >= (after.0 - before.0) as u64, "the position does not include spliced items");
        assert_eq!(after.1 % 4, 0, "an item is not a whole number of words");
    }
    let (consumed, result) = (decoder.consumed(), decoder.finish());
    assert!(result.is_err() || consumed == len, "finish accepted unread bytes");
}

fn read_one(decoder: &mut Decoder<'_>, step: u8) -> Result<(), DecodeError> {
    let max = u32::from(step >> 4) * 64;
    match step & 0x0F {
        0 => decoder.take_u32().map(drop),
        1 => decoder.take_u64().map(drop),
        2 => decoder.take_bool().map(drop),
        3 => xdr::take_opaque(decoder, max).map(drop),
        4 => xdr::take_opaque_fixed::<5>(decoder).map(drop),
        5 => xdr::take_ddp_opaque(decoder, xdr::UNBOUNDED).map(drop),
        6 => xdr::take_ddp_opaque_fixed(decoder, max).map(drop),
        7 => xdr::take_array::<Option<u64>>(decoder, max).map(drop),
        8 => xdr::take_list::<XdrString>(decoder).map(drop),
        9 => xdr::take_ddp_array::<u32>(decoder, max).map(drop),
        10 => xdr::take_array::<()>(decoder, xdr::UNBOUNDED).map(drop),
        11 => decoder.read::<Vec<Vec<Bytes>>>().map(drop),
        12 => decoder.read::<RpcMsg>().map(drop),
        13 => xdr::take_array_fixed::<f64, 3>(decoder).map(drop),
        14 => decoder.read::<xdr::NonEmpty<i32>>().map(drop),
        _ => xdr::take_utf8(decoder, max).map(drop),
    }
}

/// Decodes `bytes` as a `T` and checks the encoding of the value. It must be as long as the decoded bytes, be within
/// the length bounds of `T`, and decode to a value with the same encoding. The contents may differ from `bytes`,
/// because the decoder accepts any padding and the encoder writes zeros. Bytes that do not decode are ignored.
pub fn reencodes<T: XdrDecode + xdr::XdrEncode>(bytes: &[u8]) {
    let mut decoder = Decoder::new(bytes);
    if let Ok(value) = decoder.read::<T>() {
        let read = decoder.consumed();
        assert_eq!(value.encoded_len(), read);
        let encoded = encode_to_bytes(&value).expect("a decoded value is within its bounds");
        assert_eq!(encoded.len(), read);
        let again = Decoder::new(&encoded).read::<T>().expect("an encoded value decodes");
        assert_eq!(encode_to_bytes(&again).as_ref(), Ok(&encoded));
        assert!(T::MIN_LEN <= read);
        assert!(T::MAX_LEN.is_none_or(|most| read as u64 <= most));
    }
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), xdr::EncodeError>) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(encode(&mut out), Ok(()), "a decoded value is within its bounds");
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let words = proptest::collection::vec(prop_oneof![0..8u32, any::<u32>()], 0..64)
            .prop_map(|words| words.iter().flat_map(|word| word.to_be_bytes()).collect());
        prop_oneof![words, proptest::collection::vec(any::<u8>(), 0..300)]
    }

    /// Generates the input for one step of [`engine`], often a message.
    fn step() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            6 => 0..3u32,
            1 => (1..10u32).prop_map(|n| 4 * n),
            1 => (0..4u32).prop_map(|n| 0x1000 + n),
            1 => any::<u32>(),
        ];
        let message =
            (0x1000..0x1004u32, 0..3u32, proptest::collection::vec(word, 0..24)).prop_map(|(xid, proc, rest)| {
                let words = [&[xid, 1, 4, proc], &rest[..]].concat();
                let bytes = words.iter().flat_map(|word| word.to_be_bytes());
                [0, words.len() as u8].into_iter().chain(bytes).collect()
            });
        prop_oneof![message, proptest::collection::vec(any::<u8>(), 1..7)]
    }

    /// Generates the input for one step of [`engine_v2`]: a message that begins with a prefix of version 2, or
    /// arbitrary bytes.
    fn step_v2() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            6 => 0..3u32,
            1 => (1..10u32).prop_map(|n| 4 * n),
            1 => (0..4u32).prop_map(|n| 0x1000 + n),
            1 => any::<u32>(),
        ];
        let htype = prop_oneof![4 => Just(0), 2 => Just(1), 1 => Just(4), 3 => Just(5), 1 => any::<u32>()];
        let flags = prop_oneof![3 => Just(0), 2 => Just(1), 1 => 2..8u32];
        let message = (0x1000..0x1004u32, htype, flags, proptest::collection::vec(word, 0..24));
        let message = message.prop_map(|(xid, htype, flags, rest)| {
            let words = [&[xid, 2, 4 << 16 | 4, htype, flags], &rest[..]].concat();
            let bytes = words.iter().flat_map(|word| word.to_be_bytes());
            [0, words.len() as u8].into_iter().chain(bytes).collect()
        });
        // A message without properties ends the exchange at once.
        let connprop = [0x2000, 2, 4 << 16 | 4, 5, 0, 0].iter().flat_map(|word: &u32| word.to_be_bytes());
        let connprop: Vec<u8> = [0, 6].into_iter().chain(connprop).collect();
        prop_oneof![4 => message, 1 => Just(connprop), 4 => proptest::collection::vec(any::<u8>(), 1..7)]
    }

    /// Generates a record of two fragments, one of which may be empty, followed by arbitrary bytes. The record is a TLS
    /// probe or an offer of TLS, sometimes with a changed byte.
    #[cfg(feature = "tls")]
    fn first_record() -> impl Strategy<Value = Vec<u8>> {
        let probe = [9_u32, 0, 2, 7, 1, 0, 7, 0, 0, 0].map(u32::to_be_bytes).concat();
        let offer = [&[9_u32, 1, 0, 0, 8].map(u32::to_be_bytes).concat()[..], b"STARTTLS", &[0; 4]].concat();
        let change = proptest::option::of((any::<prop::sample::Index>(), any::<u8>()));
        (prop_oneof![Just(probe), Just(offer)], change, 0..48_usize, any_bytes()).prop_map(
            |(mut message, change, cut, behind)| {
                if let Some((at, byte)) = change {
                    let at = at.index(message.len());
                    message[at] = byte;
                }
                let (first, second) = message.split_at(cut.min(message.len()));
                let marker = |len: usize, last: u32| (last << 31 | len as u32).to_be_bytes();
                [&marker(first.len(), 0)[..], first, &marker(second.len(), 1), second, &behind].concat()
            },
        )
    }

    /// Generates the input for one step of [`tcp_stream`]: a whole or partial fragment, or anything else.
    fn step_tcp() -> impl Strategy<Value = Vec<u8>> {
        let (xid, call) = (0x1000..0x1004u32, prop_oneof![4 => 0..2u32, 1 => any::<u32>()]);
        let fragment = (any::<bool>(), xid, call, 0..60u32).prop_map(|(last, xid, call, more)| {
            let words = [(u32::from(last) << 31) | (8 + more), xid, call];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            [&[0, 12][..], &bytes, &[0, more as u8], &vec![0; more as usize]].concat()
        });
        prop_oneof![4 => fragment, 6 => proptest::collection::vec(any::<u8>(), 1..7)]
    }

    #[cfg(feature = "tls")]
    proptest! {
        #[test]
        fn first_records(record in first_record()) {
            tls_probe(&record);
        }

        #[test]
        fn handshakes(choice: u8, whole in 0..8_u8, cut in 0..400_usize, (at, byte) in (0..400_usize, any::<u8>()), behind in any_bytes()) {
            let (config, mut hello) = handshake();
            if whole > 0 {
                hello.truncate(cut);
                if let Some(hit) = hello.get_mut(at) {
                    *hit = byte;
                }
                hello.extend(behind);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _clock = runtime.enter();
            let sent = tls_accept(&config, &[&[choice][..], &hello].concat());
            // The server replies to a whole message behind a probe with its own, which has a certificate.
            prop_assert!(whole > 0 || choice & 1 == 1 || sent > 500, "{sent}");
        }
    }

    /// Returns the configuration of a server, and the first message of a TLS client.
    #[cfg(feature = "tls")]
    fn handshake() -> (crate::tls::TlsServerConfig, Vec<u8>) {
        use crate::tls::{TlsServerConfig, rustls};
        use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, version::TLS13};
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_protocol_versions(&[&TLS13]).with_no_client_auth();
        let mut server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
        server.alpn_protocols = vec![b"sunrpc".to_vec()];
        let client = ClientConfig::builder_with_protocol_versions(&[&TLS13]);
        let mut client = client.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        client.alpn_protocols = vec![b"sunrpc".to_vec()];
        let mut client = ClientConnection::new(client.into(), "localhost".try_into().unwrap()).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        (TlsServerConfig::builder().rustls(server.into()).build().unwrap(), hello)
    }

    proptest! {
        #[test]
        fn headers_v2(bytes in any_bytes()) {
            rpcrdma2_header(&bytes);
        }

        #[test]
        fn engines_v2(mode: u8, steps in proptest::collection::vec(step_v2(), 0..40)) {
            engine_v2(&[&[mode][..], &steps.concat()].concat());
        }

        #[test]
        fn streams(mode: u8, steps in proptest::collection::vec(step_tcp(), 0..40)) {
            tcp_stream(&[&[mode][..], &steps.concat()].concat());
        }

        #[test]
        fn headers(bytes in any_bytes()) {
            rpcrdma_header(&bytes);
        }

        #[test]
        fn private_data_anywhere(before in proptest::collection::vec(any::<u8>(), 0..9), after: [u8; 4]) {
            private_data(&[&before[..], &[0xf6, 0xab, 0x0e, 0x18, 1], &after].concat());
            private_data(&before);
        }

        #[test]
        fn engines(mode: u8, steps in proptest::collection::vec(step(), 0..40)) {
            engine(&[&[mode][..], &steps.concat()].concat());
        }

        #[test]
        fn gss_servers(rounds in 0..6_u8, steps in proptest::collection::vec((0..8_u8, proptest::collection::vec(0..9_u8, 0..12)), 0..30)) {
            let steps = steps.into_iter().flat_map(|(kind, rest)| [vec![kind], rest].concat());
            gss_server(&[rounds].into_iter().chain(steps).collect::<Vec<_>>());
        }

        #[test]
        fn gss_clients(rounds in 0..6_u8, honest in 0..4_usize, bytes in any_bytes()) {
            gss_client(&[&[rounds], &[5; 3][..honest.min(3)], &bytes].concat());
        }

        #[test]
        fn rpc_messages(bytes in any_bytes()) {
            rpc_message(&bytes);
        }

        #[test]
        fn payload_streams(counts: u8, script in proptest::collection::vec(any::<u8>(), 45), bytes in any_bytes()) {
            let script = &script[..usize::from(counts & 0x1F) + usize::from(counts >> 5) * 2];
            payload_stream(&[&[counts], script, &bytes].concat());
        }
    }

    /// Runs some of the entry points on their seeds, whole and truncated. Inputs that failed once become seeds.
    #[test]
    fn seeds() {
        type Target = fn(&[u8]);
        let targets: [(&str, Target); 7] = [
            ("engine", engine),
            ("gss_client", gss_client),
            ("gss_server", gss_server),
            ("payload_stream", payload_stream),
            ("private_data", private_data),
            ("rpc_message", rpc_message),
            ("rpcrdma_header", rpcrdma_header),
        ];
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds");
        for (target, run) in targets {
            let mut count = 0;
            for seed in std::fs::read_dir(seeds.join(target)).unwrap() {
                let bytes = std::fs::read(seed.unwrap().path()).unwrap();
                run(&bytes);
                // Truncated seeds, too.
                (0..bytes.len()).step_by(7).for_each(|len| run(&bytes[..len]));
                count += 1;
            }
            assert!(count > 0, "{target} has no seeds");
        }
    }
}
