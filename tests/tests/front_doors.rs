//! Tests that three ways to define a protocol give the same encoding. The three ways are an XDR file, XDR in Rust, and
//! Rust types.
#![deny(warnings, missing_docs)]

mod front_doors {
    pub(crate) mod based_version;
    pub(crate) mod bound;
    pub(crate) mod derived;
    pub(crate) mod generic;
    pub(crate) mod included;
    pub(crate) mod inline;
    pub(crate) mod many_chunks;
    pub(crate) mod service;
    pub(crate) mod two_of_many;
}

use front_doors::{derived, included, inline};
use rpcrdma::xdr::{Bytes, Decoder, ReducingSink, XdrDecode, XdrEncode, encode_to_bytes};

fn reduced<T: XdrEncode>(value: &T) -> (Vec<u8>, Vec<(u64, Bytes)>) {
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 1);
    value.encode(&mut sink).unwrap();
    let (items, _) = sink.finish();
    (inline, items.into_iter().map(|item| (item.position, item.data)).collect())
}

/// Checks that a value has the same encoding in each of the three types, and that the types have the same bounds.
#[track_caller]
fn same<A, B, C>(a: &A, b: &B, c: &C)
where
    A: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug,
    B: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug,
    C: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug,
{
    let bytes = encode_to_bytes(a).unwrap();
    assert_eq!(encode_to_bytes(b).unwrap(), bytes);
    assert_eq!(encode_to_bytes(c).unwrap(), bytes);
    assert_eq!((a.encoded_len(), b.encoded_len(), c.encoded_len()), (bytes.len(), bytes.len(), bytes.len()));
    assert_eq!(A::decode(&mut Decoder::shared(&bytes)).unwrap(), *a);
    assert_eq!(B::decode(&mut Decoder::shared(&bytes)).unwrap(), *b);
    assert_eq!(C::decode(&mut Decoder::shared(&bytes)).unwrap(), *c);
    assert_eq!(reduced(a), reduced(b));
    assert_eq!(reduced(a), reduced(c));
    let facts = |min, max, inline, items, union| (min, max, inline, items, union);
    let of_a = facts(A::MIN_LEN, A::MAX_LEN, A::MAX_INLINE, A::MAX_DDP_ITEMS, A::IS_UNION);
    assert_eq!(facts(B::MIN_LEN, B::MAX_LEN, B::MAX_INLINE, B::MAX_DDP_ITEMS, B::IS_UNION), of_a);
    assert_eq!(facts(C::MIN_LEN, C::MAX_LEN, C::MAX_INLINE, C::MAX_DDP_ITEMS, C::IS_UNION), of_a);
}

#[test]
fn structs() {
    same(
        &included::GetArgs { name: "n".into(), offset: 1, count: 2 },
        &inline::GetArgs { name: "n".into(), offset: 1, count: 2 },
        &derived::GetArgs { name: "n".into(), offset: 1, count: 2 },
    );
}

#[test]
fn unions_and_eligible_items() {
    let data = Bytes::from_static(b"12345");
    same(
        &included::GetRes::BlobOk(included::GetOk { eof: true, data: data.clone() }),
        &inline::GetRes::BlobOk(inline::GetOk { eof: true, data: data.clone() }),
        &derived::GetRes::Ok(derived::GetOk { eof: true, data }),
    );
    same(
        &included::GetRes::Default(included::BlobStatus::BlobNoent),
        &inline::GetRes::Default(inline::BlobStatus::BlobNoent),
        &derived::GetRes::Other(derived::BlobStatus::Noent),
    );
}

#[test]
fn stubs() {
    use rpcrdma::service::{Procedure, ReplyBounds};
    let get = included::GetArgs { name: "n".into(), offset: 1, count: 1000 };
    let bounds = included::blobstore_v1::Get::reply_bounds(&get);
    assert_eq!(bounds, ReplyBounds::new(12, &[1000]));
    let get = inline::GetArgs { name: "n".into(), offset: 1, count: 1000 };
    assert_eq!(inline::blobstore_v1::Get::reply_bounds(&get), bounds);
    let get = derived::GetArgs { name: "n".into(), offset: 1, count: 1000 };
    assert_eq!(front_doors::service::blobstore::Get::reply_bounds(&get), bounds);
    const { assert!(included::blobstore_v1::Get::IDEMPOTENT && front_doors::service::blobstore::Get::IDEMPOTENT) };
    const { assert!(!included::blobstore_v1::Put::IDEMPOTENT && !front_doors::service::blobstore::Put::IDEMPOTENT) };
    assert_eq!(included::blobstore_v1::PROGRAM, front_doors::service::blobstore::PROGRAM);
    assert_eq!(included::blobstore_v1::PORT, front_doors::service::blobstore::PORT);
    assert_eq!(included::blobstore_v1::Get::NAME, "BLOBSTORE_V1.GET");
    assert_eq!(front_doors::service::blobstore::Get::NAME, "BLOBSTORE_V1.get");
}

#[test]
fn comments_of_inline_xdr_are_documentation() {
    // Rustdoc output cannot be tested here. This shows that comments reach the compiler, whatever they contain.
    mod commented {
        rpcrdma::xdr! {
            /* A comment with a declaration: const HIDDEN = 1; */
            const SHOWN = 1; // and another: const HIDDEN = 2;
            /// Rust's own
            const ALSO_SHOWN = 2;
        }
    }
    assert_eq!((commented::SHOWN, commented::ALSO_SHOWN), (1, 2));
}

/// Checks at compile time that the futures of calls are `Send`, so that calls can be made from any task.
#[allow(dead_code)]
fn futures_are_send(
    included: &included::blobstore_v1::BlobstoreV1Client,
    service: &front_doors::service::BlobstoreClient,
    args: (&included::GetArgs, &derived::GetArgs),
) {
    fn is_send<T: Send>(_: T) {}
    is_send(included.get(args.0));
    is_send(service.get(args.1));
    is_send(service.several(1, 2));
}

/// A separate binding file has the effect of annotations, with both macros.
#[test]
fn separate_binding_file() {
    use front_doors::bound::{included, inline};
    use rpcrdma::service::Procedure;

    assert_eq!(
        <included::PlainOk as rpcrdma::xdr::XdrType>::MAX_DDP_ITEMS,
        <inline::PlainOk as rpcrdma::xdr::XdrType>::MAX_DDP_ITEMS
    );
    let (label, data) = (Bytes::from_static(b"ab"), Bytes::from_static(b"data"));
    let first = reduced(&included::PlainOk { label: label.clone(), data: data.clone() });
    assert_eq!(first, (vec![0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 4], vec![(12, data.clone())]));
    assert_eq!(reduced(&inline::PlainOk { label, data }), first);
    let bounds = included::plain_v1::Get::reply_bounds(&1000);
    assert_eq!((bounds.inline, bounds.chunks.as_slice()), (4 + 64 + 4, &[1000][..]));
    assert_eq!(inline::plain_v1::Get::reply_bounds(&1000).chunks, bounds.chunks);
}
