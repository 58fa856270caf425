//! Tests that every construct of XDR is declared to Wireshark and shown.

use std::{collections::BTreeSet, fs, path::Path};

use rpcrdma_xdrgen::{
    Compiler,
    ir::{ItemKind, Spec},
};

use crate::{
    golden,
    messages::words,
    tshark::{Tshark, generate},
    wire::{Iwarp, Rdma as _},
};

const SPECIFICATION: &str = include_str!("constructs.x");
const PROGRAM: u32 = 0x2000_0099;

/// Returns an RPC-over-RDMA version 2 message with a call of the program [`PROGRAM`], with AUTH_NONE as credential and
/// verifier.
pub(crate) fn call(xid: u32, (version, procedure): (u32, u32), arguments: &[u8]) -> Vec<u8> {
    let header = [xid, 2, 32, 0, 0, 0, 0, 0, 0, xid, 0, 2, PROGRAM, version, procedure, 0, 0, 0, 0];
    [words(&header), arguments.to_vec()].concat()
}

pub(crate) fn scalars() -> Vec<u8> {
    [
        words(&[-7_i32 as u32, 4_000_000_000, 0xffff_ffff, 0xffff_fffe, 0xffff_ffff, 0xffff_ffff, 1]),
        1.5_f32.to_be_bytes().to_vec(),
        (-2.25_f64).to_be_bytes().to_vec(),
        vec![0xab; 16],
        words(&[-128_i32 as u32, 255, -32768_i32 as u32, 65535, -2_i32 as u32]),
    ]
    .concat()
}

pub(crate) fn sequences() -> Vec<u8> {
    [
        &b"12345\0\0\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\x05hello\0\0\0"[..],
        &words(&[1, 2, 3, 4]),
        // Two rows, the second one empty.
        &words(&[2, 2, 10, 20, 0]),
        // One point is present, the other one is not.
        &words(&[1, 5, 6, 0]),
        // Lists of two nodes, of none, and of one.
        &words(&[1, 11, 1, 12, 0, 0, 13, 0]),
        // A root with a right child.
        &words(&[1, 0, 1, 2, 0, 0]),
    ]
    .concat()
}

pub(crate) fn unions() -> Vec<u8> {
    [
        words(&[1, 77, -2_i32 as u32]),
        words(&[u32::MAX, u32::MAX, 2]),
        b"hi\0\0".to_vec(),
        words(&[0, 5, 8, 9]),
        words(&[u32::MAX, 3, 4_000_000_000, 1, 1, 2]),
        vec![0xcd, 0xef, 0, 0],
        // The length of an arm precedes it, if it has none of its own.
        words(&[1, 8, 6, 7, 2, 3]),
        vec![1, 2, 3, 0],
        words(&[9, 0]),
    ]
    .concat()
}

#[test]
fn every_construct_is_shown() {
    let Some(tshark) = Tshark::new(&[("constructs", SPECIFICATION)]) else { return };
    let mut iwarp = Iwarp::connect();
    iwarp.send(true, &call(1, (1, 1), &scalars()));
    iwarp.send(true, &call(2, (1, 2), &sequences()));
    iwarp.send(true, &call(3, (1, 3), &unions()));
    iwarp.send(true, &call(4, (1, 4), &words(&[1, 0, 2, 3])));
    iwarp.send(true, &call(5, (1, 0), &[]));
    let trees = tshark.trees(&iwarp.tcp.capture.pcapng(), &["constructs"]);
    golden("constructs.txt", &trees);
    assert!(!trees.contains("Expert Info"));
}

/// The generated tables equal the golden file. The runtime before them is the same for all specifications.
#[test]
fn tables_of_every_construct() {
    let lua = generate(SPECIFICATION, "constructs");
    let (runtime, tables) = lua.split_once("-- The specification.\n").unwrap();
    golden("constructs.lua", tables);
    // All files have the same runtime, so that the first one serves all of them.
    assert!(generate(crate::wire::SPECIFICATION, "files").starts_with(runtime));
}

/// Wireshark has a registered field for each field, arm, discriminant, argument and result.
#[test]
fn every_field_is_registered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/constructs");
    let mut specifications = vec![("constructs".to_owned(), SPECIFICATION.to_owned())];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "x") {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            let program =
                "program APPENDED { version APPENDED_V1 { void APPENDED_NULL(void) = 0; } = 1; } = 0x3fffffff;";
            specifications.push((format!("t_{}", path.file_stem().unwrap().display()), format!("{text}\n{program}")));
        }
    }
    let named: Vec<(&str, &str)> = specifications.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let Some(tshark) = Tshark::new(&named) else { return };
    let listed = tshark.run(&["-G", "fields"]);
    let known: BTreeSet<&str> =
        listed.lines().filter(|line| line.starts_with("F\t")).filter_map(|line| line.split('\t').nth(2)).collect();
    let mut count = 0;
    for (protocol, text) in named {
        let spec = Compiler::new().source("test.x", text).no_client().compile().unwrap().spec;
        for field in fields(&spec) {
            assert!(known.contains(format!("{protocol}.{field}").as_str()), "{protocol}.{field}");
            count += 1;
        }
    }
    assert!(count > 300, "{count}");
}

/// Returns the names of the fields that a dissector of the specification has.
fn fields(spec: &Spec) -> Vec<String> {
    let mut out = Vec::new();
    for item in &spec.items {
        let (fields, union) = match &item.kind {
            ItemKind::Struct { fields, .. } => (fields.as_slice(), None),
            ItemKind::Union(union) => (&[][..], Some(union)),
            _ => continue,
        };
        let arms = union.into_iter().flat_map(|union| {
            let arms = union.arms.iter().filter_map(|arm| arm.field.as_ref()).chain(union.default.iter().flatten());
            std::iter::once(&*union.discriminant).chain(arms)
        });
        out.extend(fields.iter().chain(arms).map(|field| format!("{}.{}", item.name.text, field.name.text)));
    }
    for procedure in spec.programs.iter().flat_map(|it| &it.versions).flat_map(|it| &it.procedures) {
        let fields = procedure.args.iter().chain(&procedure.result);
        out.extend(fields.map(|field| format!("{}.{}", procedure.name.text, field.name.text)));
    }
    out
}
