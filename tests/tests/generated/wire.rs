//! Encodings of generated types, byte by byte (RFC 4506).

use rpcrdma::xdr::{NonEmpty, Quadruple};

use super::wire;
use crate::{
    blobstore::{BlobName, BlobStatus, GetArgs, GetOk, GetRes},
    declarators::{EveryDeclarator, Handle, OneByte, Page, Path, Table, Triple, Verifier},
    hyper_union::{ByColor, ByHyper, ByKey},
    lists::{AtLeastOne, Entry, EntryList, Expression, Listing, StringList, StringListElement, Tree, TwoLists},
    programs::calc_v1,
    scalars::{AllScalars, HEX, LARGE, NEGATIVE, OCTAL},
    unions::{ByBool, ByInt, ByUnsigned, Color, Exhaustive, NeedlessDefault, Partial, WithDefault},
};

#[test]
fn constants() {
    assert_eq!((HEX, OCTAL, NEGATIVE, LARGE), (255, 0o777, -5, 0x1_0000_0000));
}

#[test]
fn scalars() {
    let value = AllScalars {
        a: -2,
        b: 3,
        c: -4,
        d: 5 << 32,
        e: 1.5,
        f: -0.5,
        g: Quadruple(*b"0123456789abcdef"),
        h: true,
        i: 9,
    };
    wire(
        &value,
        &[
            0xffff_fffe,
            3,
            0xffff_ffff,
            0xffff_fffc,
            5,
            0,
            0x3fc0_0000,
            0xbfe0_0000,
            0,
            0x3031_3233,
            0x3435_3637,
            0x3839_6162,
            0x6364_6566,
            1,
            9,
        ],
    );
}

#[test]
fn declarators() {
    let value = EveryDeclarator {
        fixed: *b"abcde",
        limited: (&b"xy"[..]).into(),
        unlimited: (&b""[..]).into(),
        name: "n".into(),
        matrix: [1, 2],
        verifiers: [Verifier(*b"12345678"), Verifier::default()],
        offsets: vec![7],
        paths: vec![Path::from("p")],
        maybe: Some(6),
        maybe_handle: None,
        big: Page(vec![0; 65536].into()),
        other: Handle::default(),
    };
    let mut words = vec![
        0x6162_6364,
        0x6500_0000,
        2,
        0x7879_0000,
        0,
        1,
        0x6e00_0000,
        1,
        2,
        0x3132_3334,
        0x3536_3738,
        0,
        0,
        1,
        0,
        7,
        1,
        1,
        0x7000_0000,
        1,
        6,
        0,
    ];
    words.extend([0; 65536 / 4]);
    words.push(0);
    wire(&value, &words);
    wire(&OneByte { byte: [9] }, &[0x0900_0000]);
    wire(&Triple([1, 2, 3]), &[1, 2, 3]);
    wire(&Table(vec![0; 4096]), &[0; 8192]);
}

#[test]
fn unions() {
    wire(&Exhaustive::Red(5), &[0, 5]);
    wire(&Exhaustive::Blue((&b"b"[..]).into()), &[2, 1, 0x6200_0000]);
    wire(&Exhaustive::NegativeOne, &[u32::MAX]);
    wire(&Partial::Red(5), &[0, 0, 5]);
    wire(&WithDefault::Default(Color::Blue, "x".into()), &[2, 1, 0x7800_0000]);
    wire(&NeedlessDefault::True(1), &[1, 1]);
    wire(&NeedlessDefault::False, &[0]);
    wire(&ByInt::Case0, &[0]);
    wire(&ByInt::CaseMinus3(1), &[0xffff_fffd, 1]);
    wire(&ByInt::Case16(*b"abc"), &[16, 0x6162_6300]);
    wire(&ByInt::Default(17, vec![1, 2]), &[17, 2, 1, 2]);
    wire(&ByUnsigned::Limit(true), &[9, 1]);
    wire(&ByUnsigned::Case4000000000, &[4_000_000_000]);
    wire(&ByBool::True(1.0), &[1, 0x3ff0_0000, 0]);
    wire(&ByBool::False, &[0]);
    assert_eq!(Color::AZURE, Color::Blue);
}

#[test]
fn lists() {
    let entry = |fileid| Entry { fileid, name: "e".into() };
    wire(
        &Listing { entries: vec![entry(1), entry(2)], eof: true },
        &[1, 0, 1, 1, 0x6500_0000, 1, 0, 2, 1, 0x6500_0000, 0, 1],
    );
    wire(&Listing::default(), &[0, 0]);
    wire(
        &AtLeastOne { entries: NonEmpty { first: entry(1), rest: vec![entry(2)] } },
        &[0, 1, 1, 0x6500_0000, 1, 0, 2, 1, 0x6500_0000, 0],
    );
    wire(&EntryList(vec![entry(3)]), &[1, 0, 3, 1, 0x6500_0000, 0]);
    // RFC 4506 §4.19: a list written as a union.
    let element = |item: &str| StringListElement { item: item.into() };
    let some = StringList(vec![element("a"), element("bc")]);
    wire(
        &TwoLists { some, others: StringList(vec![element("")]) },
        &[1, 1, 0x6100_0000, 1, 2, 0x6263_0000, 0, 1, 0, 0],
    );
}

#[test]
fn recursion() {
    let leaf = || Some(Box::new(Tree { left: None, right: None, value: 1 }));
    wire(&Tree { left: leaf(), right: None, value: 2 }, &[1, 0, 0, 1, 0, 2]);
    wire(&Expression::Case1(Box::new(Expression::Case0(7))), &[1, 0, 7]);
    wire(&Expression::Case2(vec![Expression::Case0(7); 2]), &[2, 2, 0, 7, 0, 7]);
}

#[test]
fn program() {
    wire(&GetArgs { name: BlobName::from("ab"), offset: 1, count: 2 }, &[2, 0x6162_0000, 0, 1, 2]);
    wire(&GetRes::BlobOk(GetOk { eof: true, data: (&b"abcd"[..]).into() }), &[0, 1, 4, 0x6162_6364]);
    wire(&GetRes::Default(BlobStatus::BlobNoent), &[2]);
    // Several arguments are encoded in order.
    wire(&calc_v1::AddTwoArgs { arg: 1, arg2: 2 }, &[1, 2]);
}

#[test]
fn unions_of_unsigned_hypers() {
    wire(&ByHyper::Case18446744073709551615(-1), &[0xffff_ffff, 0xffff_ffff, 0xffff_ffff]);
    wire(&ByHyper::Case7, &[0, 7]);
    wire(&ByKey::Case1000("ab".into()), &[0, 1000, 2, 0x6162_0000]);
    wire(&ByKey::Default(1 << 32, 5), &[1, 0, 5]);
    wire(&ByColor::Red(3), &[1, 3]);
}
