//! Random values of generated types decode from their encoding, and decoders do not panic on random bytes.

use proptest::{collection::vec, option, prelude::*};
use rpcrdma::xdr::{Bytes, NonEmpty, XdrString};

use super::round_trip;
use crate::{
    declarators::{EveryDeclarator, Handle, Page, Path, Verifier},
    lists::{AtLeastOne, Entry, Expression, Listing, Tree},
    unions::{ByInt, ByUnsigned, Color, Exhaustive, Uneven, WithDefault},
};

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn string(most: usize) -> impl Strategy<Value = XdrString> {
    bytes(most).prop_map(XdrString)
}

fn every_declarator() -> impl Strategy<Value = EveryDeclarator> {
    let first = (any::<[u8; 5]>(), bytes(100), bytes(300), string(255), any::<[i32; 2]>());
    let second = (any::<[[u8; 8]; 2]>(), vec(any::<u64>(), 0..=4), vec(string(1024).prop_map(Path), 0..4));
    let third = (any::<Option<i32>>(), option::of(bytes(64).prop_map(Handle)), bytes(64), any::<u8>());
    (first, second, third).prop_map(
        |((fixed, limited, unlimited, name, matrix), (verifiers, offsets, paths), (maybe, handle, other, fill))| {
            EveryDeclarator {
                fixed,
                limited,
                unlimited,
                name,
                matrix,
                verifiers: verifiers.map(Verifier),
                offsets,
                paths,
                maybe,
                maybe_handle: handle,
                big: Page(vec![fill; 65536].into()),
                other: Handle(other),
            }
        },
    )
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = any::<i32>().prop_map(|value| Tree { left: None, right: None, value });
    leaf.prop_recursive(20, 200, 2, |inner| {
        (option::of(inner.clone()), option::of(inner), any::<i32>()).prop_map(|(left, right, value)| Tree {
            left: left.map(Box::new),
            right: right.map(Box::new),
            value,
        })
    })
}

fn expression() -> impl Strategy<Value = Expression> {
    any::<i32>().prop_map(Expression::Case0).prop_recursive(20, 100, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|negated| Expression::Case1(Box::new(negated))),
            vec(inner, 0..=2).prop_map(Expression::Case2),
        ]
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), string(255)).prop_map(|(fileid, name)| Entry { fileid, name })
}

fn exhaustive() -> impl Strategy<Value = Exhaustive> {
    prop_oneof![
        any::<i32>().prop_map(Exhaustive::Red),
        bytes(8).prop_map(Exhaustive::Green),
        bytes(8).prop_map(Exhaustive::Blue),
        Just(Exhaustive::NegativeOne),
    ]
}

fn with_default() -> impl Strategy<Value = WithDefault> {
    let others = prop_oneof![Just(Color::Red), Just(Color::Blue), Just(Color::NegativeOne)];
    prop_oneof![
        any::<i32>().prop_map(WithDefault::Green),
        (others, string(32)).prop_map(|(color, other)| WithDefault::Default(color, other)),
    ]
}

fn by_int() -> impl Strategy<Value = ByInt> {
    let other = any::<i32>().prop_filter("has an arm", |n| ![0, -3, 16].contains(n));
    prop_oneof![
        Just(ByInt::Case0),
        any::<i32>().prop_map(ByInt::CaseMinus3),
        any::<[u8; 3]>().prop_map(ByInt::Case16),
        (other, vec(any::<i32>(), 0..=4)).prop_map(|(n, numbers)| ByInt::Default(n, numbers)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn declarators(value in every_declarator()) {
        round_trip(&value);
    }

    #[test]
    fn recursive_types(tree in tree(), expression in expression()) {
        round_trip(&tree);
        round_trip(&expression);
    }

    #[test]
    fn lists(first in entry(), rest in vec(entry(), 0..20), eof in any::<bool>()) {
        round_trip(&Listing { entries: rest.clone(), eof });
        round_trip(&AtLeastOne { entries: NonEmpty { first, rest } });
    }

    #[test]
    fn unions(a in exhaustive(), b in with_default(), c in by_int(), d in any::<bool>(), e in any::<i32>()) {
        round_trip(&a);
        round_trip(&b);
        round_trip(&c);
        round_trip(&ByUnsigned::Limit(d));
        round_trip(&Uneven::False(e));
    }

    /// No input makes a decoder panic, and accepted input encodes to the same bytes.
    #[test]
    fn any_bytes(bytes in vec(prop_oneof![Just(0_u8), Just(1), Just(2), any::<u8>()], 0..200)) {
        let bytes = Bytes::from(bytes);
        canonical::<Listing>(&bytes);
        canonical::<Tree>(&bytes);
        canonical::<Expression>(&bytes);
        canonical::<EveryDeclarator>(&bytes);
        canonical::<ByInt>(&bytes);
        canonical::<WithDefault>(&bytes);
    }
}

fn canonical<T: rpcrdma::xdr::XdrDecode + rpcrdma::xdr::XdrEncode>(bytes: &Bytes) {
    if let Ok(value) = super::decode::<T>(bytes) {
        assert_eq!(super::encode(&value), *bytes);
    }
}
