//! Tests of generated types: the limits on recursion, open unions, and the errors for truncated values.
#![allow(clippy::unwrap_used, missing_docs)]

// Generated code refers to the runtime as `rpcrdma`.
extern crate rpcrdma_xdr as rpcrdma;

use rpcrdma::xdr::{
    DecodeErrorKind, DecodeLimits, Decoder, EncodeError, ReducingSink, XdrDecode, XdrEncode, XdrType, encode_to_bytes,
};

mod types {
    rpcrdma::xdr! {
        #![types_only]
        #![open(arg, arg2)]
        struct tree { opaque key[4096]; tree *left; tree *right; };
        struct wide { opaque a[4096]; opaque b[4096]; opaque c[4096]; opaque d[4096]; wide *left; wide *right; };
        struct small { int key; small *left; small *right; };

        enum op { A = 1, B = 2 };
        union arg switch (op x) { case A: hyper a; case B: hyper b; };
        struct compound { int tag; arg ops<>; };
        struct one { int tag; arg a; };
        struct inner { int a; hyper b; };
        struct outer { int head; inner pair[2]; opaque id[6]; int tail; };
        union arg2 switch (op x) { case A: opaque a[64]; case B: opaque b[64]; };
        struct compound2 { arg2 ops<>; };
    }
}
use types::{Arg, Arg2, Compound, Compound2, One, Outer, Small, Tree, Wide};

/// Encodes `nodes` nested nodes. Each has `bytes` bytes and two links. The left link holds the next node.
fn nested(bytes: usize, nodes: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for node in 0..nodes {
        message.resize(message.len() + bytes, 7);
        message.extend(u32::from(node + 1 < nodes).to_be_bytes());
    }
    message.resize(message.len() + 4 * nodes, 0);
    message
}

/// Decodes and drops a value in a thread with 2 MiB of stack, like tokio's.
fn decoded<T: XdrDecode + 'static>(message: Vec<u8>) -> Result<(), DecodeErrorKind> {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let decode = move || Decoder::new(&message).read::<T>().map(|_| ()).map_err(|error| error.kind().clone());
    thread.spawn(decode).unwrap().join().unwrap()
}

/// The maximum depth depends on the stack size of a level, so no message exhausts the stack.
#[test]
fn depth_limit_depends_on_the_level_size() {
    assert_eq!(decoded::<Small>(nested(4, 100)), Ok(()));
    assert_eq!(decoded::<Small>(nested(4, 101)), Err(DecodeErrorKind::TooDeep { max: 100 }));
    assert_eq!(decoded::<Tree>(nested(4096, 30)), Ok(()));
    assert!(matches!(decoded::<Tree>(nested(4096, 100)), Err(DecodeErrorKind::TooDeep { .. })));
    assert_eq!(decoded::<Wide>(nested(4 * 4096, 5)), Ok(()));
    assert!(matches!(decoded::<Wide>(nested(4 * 4096, 100)), Err(DecodeErrorKind::TooDeep { .. })));
    // Values side by side do not count as depth.
    assert_eq!(decoded::<(Tree, Tree, Tree)>([nested(4096, 30), nested(4096, 30), nested(4096, 30)].concat()), Ok(()));
}

/// An encoder refuses a value that a decoder with default limits would refuse.
#[test]
fn encoders_and_decoders_have_the_same_depth_limit() {
    let mut limits = DecodeLimits::default();
    limits.max_depth = 1000;
    let value = |depth| Decoder::new(&nested(4, depth)).with_limits(limits).read::<Small>().unwrap();
    assert_eq!(value(100).to_bytes().unwrap(), nested(4, 100));
    assert_eq!(value(101).to_bytes().unwrap_err(), EncodeError::TooDeep { max: 100 });
    let mut out = Vec::new();
    assert!(value(101).encode(&mut ReducingSink::for_call(&mut out, 1)).is_err());
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An unknown operation of a later version may consist of its number only, however long the known operations are.
#[test]
fn unknown_arms_may_be_short() {
    assert_eq!(Decoder::new(&words(&[0, 1, 99])).read::<Compound>().unwrap().ops, [Arg::Unknown(99)]);
    assert_eq!(Decoder::new(&words(&[1, 99])).read::<Compound2>().unwrap().ops, [Arg2::Unknown(99)]);
    assert_eq!((Arg::MIN_LEN, Arg2::MIN_LEN), (4, 4));
}

#[test]
fn encoded_length_of_unknown_arms() {
    let compound = Compound { tag: 0, ops: vec![Arg::Unknown(99)] };
    assert_eq!(encode_to_bytes(&compound).unwrap().len(), compound.encoded_len());
    let one = One { tag: 0, a: Arg::Unknown(99) };
    assert_eq!(encode_to_bytes(&one).unwrap().len(), one.encoded_len());
}

/// The error for a truncated value names the innermost truncated item, with its position.
#[test]
fn a_truncated_struct_names_the_item() {
    let items = [
        (0, 4, "outer.head"),
        (4, 4, "outer.pair[0].a"),
        (8, 8, "outer.pair[0].b"),
        (16, 4, "outer.pair[1].a"),
        (20, 8, "outer.pair[1].b"),
        (28, 8, "outer.id"),
        (36, 4, "outer.tail"),
    ];
    let wire = words(&[0; 10]);
    assert!(Decoder::new(&wire).read::<Outer>().is_ok());
    for (start, needed, name) in items {
        for remaining in 0..needed {
            let error = Decoder::new(&wire[..start + remaining]).read::<Outer>().unwrap_err();
            assert_eq!(*error.kind(), DecodeErrorKind::Truncated { needed, remaining }, "{name}");
            assert_eq!(error.offset(), start as u64, "{name}");
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        }
    }
}
