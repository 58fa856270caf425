//! Messages encoded or decoded a number of times, for a profiler.

use std::hint::black_box;

use rpcrdma::xdr::{Decoder, FlatSink, XdrDecode, XdrEncode};
use rpcrdma_specs::nfs3::Getattr3res;

use crate::{attributes, flat, page, reduced};

/// Encodes or decodes a message `n` times. `kind` is a message, a hyphen, and `encode` or `decode`.
pub(crate) fn run(kind: &str, n: usize) {
    let (message, way) = kind.split_once('-').expect("expected MESSAGE-encode or MESSAGE-decode");
    match message {
        "attributes" => repeat(&attributes(), way, n),
        "getattr" => repeat(&getattr(), way, n),
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
        other => panic!("unknown message {other:?}, expected attributes, getattr, page or reduced"),
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
                black_box(out.len());
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

/// Returns the reply of NFS 3 to GETATTR for a regular file.
fn getattr() -> Getattr3res {
    // The status NFS3_OK, the file type NF3REG, and 20 words of which every value is valid.
    let words = [0u32, 1].into_iter().chain(100..120);
    let bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    let mut decoder = Decoder::new(&bytes);
    let value = decoder.read().expect("encoded message does not decode");
    decoder.finish().expect("bytes left over");
    value
}
