//! The generated codec: `cargo bench -p rpcrdma-tests --bench codec`.
//!
//! The messages are small (file attributes), consist of many small items (a directory page), or have one large eligible item.
//! The large item is encoded flat and reduced, and decoded inline and spliced.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_main};
use rpcrdma::xdr::{Decoder, FlatSink, ReadChunk, ReducingSink, XdrDecode, XdrEncode};

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

fn many(criterion: &mut Criterion) {
    both_ways(criterion, "page of 100 entries", &page());
}

fn large(criterion: &mut Criterion) {
    let value = Data { attr: attributes(), contents: Bytes::from(vec![0x5a; MIB]) };
    both_ways(criterion, "1 MiB inline", &value);

    let mut group = criterion.benchmark_group("1 MiB reduced");
    let mut stream = Vec::with_capacity(128);
    group.bench_function("encode", |b| {
        b.iter(|| {
            stream.clear();
            let mut sink = ReducingSink::for_call(&mut stream, 1024);
            black_box(&value).encode(&mut sink).expect("within bounds");
            black_box(sink.finish())
        });
    });
    stream.clear();
    let mut sink = ReducingSink::for_call(&mut stream, 1024);
    value.encode(&mut sink).expect("within bounds");
    let (reduced, _) = sink.finish();
    let chunks: Vec<ReadChunk> =
        reduced.into_iter().map(|item| ReadChunk { position: item.position as u32, data: item.data }).collect();
    group.bench_function("decode", |b| {
        b.iter_batched(
            || (),
            |()| {
                let mut decoder = Decoder::new(black_box(&stream)).with_read_chunks(&chunks);
                let value: Data = decoder.read().expect("encoded message does not decode");
                decoder.finish().expect("bytes left over");
                value
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

// Criterion's macro makes a public function.
#[allow(missing_docs)]
mod group {
    use super::{large, many, small};
    criterion::criterion_group!(codec, small, many, large);
}
use group::codec;
criterion_main!(codec);
