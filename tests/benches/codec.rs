//! Benchmarks of the generated codec: `cargo bench -p rpcrdma-tests --bench codec`.
//!
//! The messages are small (file attributes, and two replies of NFS 3), consist of many small items (a directory page),
//! or have one large eligible item. Handwritten decoders of the two replies serve as a comparison. The large item is
//! encoded flat and reduced, and decoded inline and spliced.
//!
//! `-- --profile MESSAGE-encode|decode|by-hand N` only makes N operations of that kind, for a profiler; see
//! `codec/profile.rs`.

#[path = "codec/by_hand.rs"]
mod by_hand;
#[path = "codec/profile.rs"]
mod profile;
#[path = "codec/reduced.rs"]
mod reduced;

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use rpcrdma::xdr::{Decoder, FlatSink, XdrDecode, XdrEncode};
use rpcrdma_specs::nfs3::Getattr3res;

rpcrdma::xdr! {
    enum kind { REGULAR = 1, DIRECTORY = 2 };
    struct attributes {
        kind type;
        unsigned int mode;
        unsigned int links;
        unsigned hyper size;
        unsigned hyper id;
        hyper changed;
    };
    struct entry {
        unsigned hyper id;
        string name<255>;
        attributes *attr;
        opaque handle<64>;
        entry *next;
    };
    struct page { entry *entries; bool eof; };
    struct data { attributes attr; @ddp opaque contents<>; };
}

const MIB: usize = 1 << 20;

fn attributes() -> Attributes {
    Attributes { r#type: Kind::Regular, mode: 0o644, links: 1, size: 12345, id: 99, changed: 1 << 40 }
}

fn page() -> Page {
    let entry = |n: u64| Entry {
        id: n,
        name: format!("a-file-of-some-name-{n:04}").into(),
        attr: Some(attributes()),
        handle: Bytes::from(vec![7; 28]),
    };
    Page { entries: (0..100).map(entry).collect(), eof: true }
}

fn large_value() -> Data {
    Data { attr: attributes(), contents: Bytes::from(vec![0x5a; MIB]) }
}

fn flat<T: XdrEncode>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.encoded_len());
    value.encode(&mut FlatSink::new(&mut out)).expect("within bounds");
    out
}

fn both_ways<T: XdrEncode + XdrDecode>(criterion: &mut Criterion, name: &str, value: &T) {
    let bytes = flat(value);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    let mut out = Vec::with_capacity(bytes.len());
    group.bench_function("encode", |b| {
        b.iter(|| {
            out.clear();
            black_box(value).encode(&mut FlatSink::new(&mut out)).expect("within bounds");
            black_box(out.len())
        });
    });
    group.bench_function("decode", |b| {
        b.iter(|| T::decode(&mut Decoder::new(black_box(&bytes))).expect("encoded message does not decode"));
    });
    group.finish();
}

fn small(criterion: &mut Criterion) {
    both_ways(criterion, "attributes", &attributes());
}

/// Measures the decoding of two NFS 3 replies, with generated and with handwritten decoders.
fn replies(criterion: &mut Criterion) {
    let (getattr, lookup) = (profile::getattr_reply(), profile::lookup_reply());
    let mut group = criterion.benchmark_group("getattr");
    group.bench_function("decode", |b| b.iter(|| Decoder::new(black_box(&getattr)).read::<Getattr3res>()));
    group.bench_function("by hand", |b| b.iter(|| by_hand::getattr(black_box(&getattr))));
    group.finish();
    let mut group = criterion.benchmark_group("lookup, borrowed");
    group.bench_function("decode", |b| b.iter(|| profile::lookup(black_box(&lookup))));
    group.bench_function("by hand", |b| b.iter(|| by_hand::lookup(black_box(&lookup))));
    group.finish();
}

fn many(criterion: &mut Criterion) {
    both_ways(criterion, "page of 100 entries", &page());
}

fn large(criterion: &mut Criterion) {
    both_ways(criterion, "1 MiB inline", &large_value());

    let mut group = criterion.benchmark_group("1 MiB reduced");
    let message = reduced::Message::new();
    let mut stream = Vec::with_capacity(128);
    group.bench_function("encode", |b| b.iter(|| message.encode(&mut stream)));
    group.bench_function("decode", |b| b.iter_batched(|| (), |()| message.decode(), BatchSize::SmallInput));
    group.finish();
}

// Criterion's macro makes a public function.
#[allow(missing_docs)]
mod group {
    use super::{large, many, replies, small};
    criterion::criterion_group!(codec, small, replies, many, large);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--profile") {
        let count = args.get(at + 2).and_then(|count| count.parse().ok()).expect("usage: --profile KIND COUNT");
        return profile::run(&args[at + 1], count);
    }
    group::codec();
    Criterion::default().configure_from_args().final_summary();
}
