//! Repeated encoding or decoding of one message, for a profiler.

use std::hint::black_box;

use rpcrdma::xdr::{DecodeError, Decoder, FlatSink, XdrDecode, XdrEncode};
use rpcrdma_specs::nfs3::{Getattr3res, Lookup3resRef};

use crate::{attributes, by_hand, flat, page, reduced};

/// Encodes or decodes a message `n` times. `kind` is a message, a hyphen, and `encode` or `decode`. For `getattr` and
/// `lookup`, `by-hand` selects the handwritten decoder. `lookup` is only decoded.
pub(crate) fn run(kind: &str, n: usize) {
    let (message, way) = kind.split_once('-').expect("expected MESSAGE-encode or MESSAGE-decode");
    match message {
        "attributes" => repeat(&attributes(), way, n),
        "getattr" if way == "by-hand" => decode(&getattr_reply(), n, by_hand::getattr),
        "getattr" => repeat(&getattr(), way, n),
        "lookup" if way == "by-hand" => decode(&lookup_reply(), n, |bytes| by_hand::lookup(bytes)),
        "lookup" if way == "decode" => decode(&lookup_reply(), n, lookup),
        "page" => repeat(&page(), way, n),
        "reduced" => {
            let message = reduced::Message::new();
            let mut stream = Vec::with_capacity(128);
            match way {
                "encode" => (0..n).for_each(|_| message.encode(&mut stream)),
                "decode" => (0..n).for_each(|_| drop(black_box(message.decode()))),
                other => panic!("unknown direction {other:?}, expected encode or decode"),
            }
        }
        _ => panic!("unknown kind {kind:?}, expected attributes, getattr, lookup (decode only), page or reduced"),
    }
}

fn repeat<T: XdrEncode + XdrDecode>(value: &T, way: &str, n: usize) {
    let bytes = flat(value);
    let mut out = Vec::with_capacity(bytes.len());
    match way {
        "encode" => {
            for _ in 0..n {
                out.clear();
                black_box(value).encode(&mut FlatSink::new(&mut out)).expect("within bounds");
                // The contents, not only the length: the compiler would leave the writes out.
                black_box(out.as_slice());
            }
        }
        "decode" => {
            for _ in 0..n {
                let value = T::decode(&mut Decoder::new(black_box(&bytes))).expect("encoded message does not decode");
                black_box(value);
            }
        }
        other => panic!("unknown direction {other:?}, expected encode or decode"),
    }
}

/// Decodes `message` with `decode` `n` times.
fn decode<'a, T, E: std::fmt::Debug>(message: &'a [u8], n: usize, decode: impl Fn(&'a [u8]) -> Result<T, E>) {
    for _ in 0..n {
        black_box(decode(black_box(message)).expect("encoded message does not decode"));
    }
}

/// Returns the encoded attributes of a regular file: 21 words, all with valid values.
fn file_attributes() -> impl Iterator<Item = u32> {
    [1].into_iter().chain(100..120)
}

/// Returns the encoded reply to GETATTR.
pub(crate) fn getattr_reply() -> Vec<u8> {
    [0].into_iter().chain(file_attributes()).flat_map(u32::to_be_bytes).collect()
}

/// Returns the encoded reply to LOOKUP, with a handle of 28 bytes and both attributes.
pub(crate) fn lookup_reply() -> Vec<u8> {
    let handle = [0, 28].into_iter().chain(200..207);
    let attributes = || [1].into_iter().chain(file_attributes());
    handle.chain(attributes()).chain(attributes()).flat_map(u32::to_be_bytes).collect()
}

#[inline]
pub(crate) fn lookup(bytes: &[u8]) -> Result<Lookup3resRef<'_>, DecodeError> {
    Decoder::new(bytes).read_ref()
}

fn getattr() -> Getattr3res {
    let bytes = getattr_reply();
    let mut decoder = Decoder::new(&bytes);
    let value = decoder.read().expect("encoded message does not decode");
    decoder.finish().expect("bytes left over");
    value
}
