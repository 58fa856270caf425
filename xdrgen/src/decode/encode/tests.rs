#![allow(clippy::unwrap_used)]

use super::*;
use crate::Compiler;

const SPEC: &str = "
    enum colour { RED = 1, BLUE = -2 };
    typedef opaque hash[3];
    typedef int *maybe;
    struct node { int n; node *next; };
    struct tree { tree *left; tree *right; };
    union shade switch (colour c) { case RED: unsigned hyper light; case BLUE: void; };
    union open switch (int n) { case 1: case 2: string s<3>; default: bool flag; };
    union flags switch (bool b) { case TRUE: int x; case FALSE: void; };
    union same switch (int n) { case 1: int n; default: void; };
    opaque_union wrapped switch (int kind) { case 1: int x; case 2: opaque bytes<>; default: void; };
    struct pair { int a; unsigned int b; };
    struct inner { pair pairs<2>; };
    struct outer { inner in; maybe m; };
    struct numbers { short s; unsigned char c; float f; double d; quadruple q; hyper h; unsigned hyper u; };
    struct eligible { @ddp opaque x<8>; @ddp pair y<2>; @ddp pair z; @ddp hash h; @ddp opaque fixed[4]; int end; };
    typedef string name<4>;
    typedef int three[3];
    typedef opaque data<4>;
    typedef node *nodes;
";

/// Encodes `json` as the type `name`. The file `f` has three bytes. No other file can be read.
fn parts(name: &str, json: &str) -> Result<Vec<EncodedPart>, JsonError> {
    let spec = Compiler::new().source("test.x", SPEC).no_client().compile().unwrap().spec;
    let id = spec.items.iter().position(|item| item.name.text == name).unwrap();
    let mut read = |name: &str| if name == "f" { Ok(vec![7, 8, 9]) } else { Err(format!("cannot read {name}")) };
    let mut encoder = JsonEncoder::new(&spec, &mut read);
    encoder.item(ItemId(id), &serde_json::from_str(json).unwrap(), false)?;
    Ok(encoder.into_parts())
}

/// Encodes `json` as the type `name`, which has no eligible items. Returns the 32-bit words.
fn words(name: &str, json: &str) -> Vec<u32> {
    let parts = parts(name, json).unwrap_or_else(|error| panic!("{name} {json}: {error}"));
    let bytes: Vec<u8> = parts.into_iter().flat_map(EncodedPart::into_bytes).collect();
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "{name} {json}");
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

fn error(name: &str, json: &str) -> String {
    match parts(name, json) {
        Ok(parts) => panic!("{name} {json} was encoded: {parts:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn all_kinds_of_types() {
    const MINUS_ONE: u32 = u32::MAX;
    for (name, json, expected) in [
        ("colour", r#""RED""#, &[1][..]),
        ("colour", "-2", &[0xffff_fffe]),
        ("hash", r#""0a0B0c""#, &[0x0a0b_0c00]),
        ("hash", r#""@f""#, &[0x0708_0900]),
        ("data", r#""0102""#, &[2, 0x0102_0000]),
        ("data", r#""""#, &[0]),
        ("data", r#""@f""#, &[3, 0x0708_0900]),
        ("name", r#""h@""#, &[2, 0x6840_0000]),
        ("name", r#""@f""#, &[2, 0x4066_0000]),
        ("name", r#"{"hex": "ff"}"#, &[1, 0xff00_0000]),
        ("three", "[1, -1, 3]", &[1, MINUS_ONE, 3]),
        ("maybe", "null", &[0]),
        ("maybe", "5", &[1, 5]),
        ("nodes", r#"[{"n": 1}, {"n": 2}]"#, &[1, 1, 1, 2, 0]),
        ("nodes", "[]", &[0]),
        ("tree", r#"{"left": {"left": null}, "right": null}"#, &[1, 0, 0, 0]),
        ("shade", r#"{"c": "RED", "light": 18446744073709551615}"#, &[1, MINUS_ONE, MINUS_ONE]),
        ("shade", r#"{"c": "BLUE"}"#, &[0xffff_fffe]),
        ("open", r#"{"n": 2, "s": "ab"}"#, &[2, 2, 0x6162_0000]),
        ("open", r#"{"n": 9, "flag": true}"#, &[9, 1]),
        ("flags", r#"{"b": true, "x": 4}"#, &[1, 4]),
        ("flags", r#"{"b": false}"#, &[0]),
        ("same", r#"{"n": 1, "arm": 4}"#, &[1, 4]),
        ("wrapped", r#"{"kind": 1, "x": 4}"#, &[1, 4, 4]),
        ("wrapped", r#"{"kind": 2, "bytes": "01"}"#, &[2, 1, 0x0100_0000]),
        ("wrapped", r#"{"kind": 3}"#, &[3, 0]),
        ("outer", r#"{"in": {"pairs": [{"a": -1, "b": 2}]}}"#, &[1, MINUS_ONE, 2, 0]),
        (
            "numbers",
            r#"{"s": -1, "c": 255, "f": 1.5, "d": "-inf", "q": "000102030405060708090a0b0c0d0e0f", "h": -1, "u": 1}"#,
            &[
                MINUS_ONE,
                255,
                0x3fc0_0000,
                0xfff0_0000,
                0,
                0x0001_0203,
                0x0405_0607,
                0x0809_0a0b,
                0x0c0d_0e0f,
                MINUS_ONE,
                MINUS_ONE,
                0,
                1,
            ],
        ),
    ] {
        assert_eq!(words(name, json), expected, "{name} {json}");
    }
}

#[test]
fn eligible_items_are_parts_of_their_own() {
    let json =
        r#"{"x": "@f", "y": [{"a": 1, "b": 2}], "z": {"a": 3, "b": 4}, "h": "010203", "fixed": "05060708", "end": 9}"#;
    let inline = |words: &[u32]| EncodedPart::Inline(words.iter().flat_map(|word| word.to_be_bytes()).collect());
    let eligible = |bytes: &[u8]| EncodedPart::Eligible(bytes.to_vec());
    let expected = [
        inline(&[3]),
        eligible(&[7, 8, 9]),
        inline(&[1]),
        eligible(&[0, 0, 0, 1, 0, 0, 0, 2]),
        eligible(&[0, 0, 0, 3, 0, 0, 0, 4]),
        eligible(&[1, 2, 3]),
        eligible(&[5, 6, 7, 8]),
        inline(&[9]),
    ];
    assert_eq!(parts("eligible", json).unwrap(), expected);
}

#[test]
fn errors_name_the_path_and_the_type() {
    for (name, json, expected) in [
        ("colour", r#""RAD""#, ".: expected an enumerator of `colour` (RED, BLUE), found \"RAD\", did you mean `RED`?"),
        ("colour", "3", ".: expected an enumerator of `colour` (RED, BLUE), found 3"),
        ("colour", "1.0", ".: expected an enumerator of `colour` (RED, BLUE), found 1.0"),
        ("hash", r#""0102""#, ".: expected 3 bytes, found 2"),
        ("hash", r#""012""#, ".: expected hexadecimal digits of 3 bytes, or \"@FILE\", found \"012\""),
        ("hash", r#""01020é""#, ".: expected hexadecimal digits of 3 bytes, or \"@FILE\", found \"01020é\""),
        ("hash", "[1, 2, 3]", ".: expected hexadecimal digits of 3 bytes, or \"@FILE\", found an array of 3 elements"),
        ("data", r#""0102030405""#, ".: 5 bytes exceed the maximum of 4"),
        ("data", r#""@g""#, ".: cannot read g"),
        ("name", r#""abcde""#, ".: 5 bytes exceed the maximum of 4"),
        ("name", "5", ".: expected a string of at most 4 bytes, found 5"),
        ("name", r#"{"hex": "0"}"#, ".: expected a string of at most 4 bytes, found an object"),
        ("three", "[1, 2]", ".: expected 3 elements, found 2"),
        ("three", r#"[1, "2", 3]"#, "[1]: expected a number of `int`, found \"2\""),
        ("three", "{}", ".: expected an array of 3 `int`, found an object"),
        ("maybe", "2147483648", ".: expected a number of `int`, found 2147483648"),
        ("nodes", r#"[{"n": 1}, {"m": 2}]"#, "[1]: `m` is not a field here, expected n"),
        ("nodes", r#"{"n": 1}"#, ".: expected an array of `node`, found an object"),
        ("shade", r#"{"light": 1}"#, ".: the discriminant `c` of the union `shade` is missing"),
        ("shade", r#"{"c": "RED"}"#, ".: `light` is missing, which is `unsigned hyper`"),
        ("shade", r#"{"c": "BLUE", "light": 1}"#, ".: `light` is not a field here, expected c"),
        ("shade", r#"{"c": "RED", "light": -1}"#, ".light: expected a number of `unsigned hyper`, found -1"),
        ("shade", "null", ".: expected an object for the union `shade`, found null"),
        ("open", r#"{"n": true}"#, ".n: expected a number of `int`, found true"),
        ("open", r#"{"n": 3, "flag": 1}"#, ".flag: expected `true` or `false`, found 1"),
        ("flags", r#"{"b": 1, "x": 2}"#, ".b: expected `true` or `false`, found 1"),
        (
            "outer",
            r#"{"in": {"pairs": [{"a": 1, "b": -2}]}}"#,
            ".in.pairs[0].b: expected a number of `unsigned int`, found -2",
        ),
        ("outer", r#"{"in": {"pairs": [{}, {}, {}]}}"#, ".in.pairs: 3 elements exceed the maximum of 2"),
        ("outer", r#"{"in": {"pair": []}}"#, ".in: `pair` is not a field here, expected pairs, did you mean `pairs`?"),
        ("outer", "{}", ".: `in` is missing, which is `inner`"),
        ("numbers", r#"{"s": 32768}"#, ".s: expected a number of `short`, found 32768"),
        ("numbers", r#"{"s": 1, "c": 256}"#, ".c: expected a number of `unsigned char`, found 256"),
        (
            "numbers",
            r#"{"s": 1, "c": 2, "f": 1e39}"#,
            ".f: 1000000000000000000000000000000000000000 is too large for `float`",
        ),
        (
            "numbers",
            r#"{"s": 1, "c": 2, "f": "1"}"#,
            ".f: expected a number of `float`, \"NaN\", \"inf\" or \"-inf\", found \"1\"",
        ),
        (
            "numbers",
            r#"{"s": 1, "c": 2, "f": 1, "d": 2, "q": "00"}"#,
            ".q: expected 32 hexadecimal digits of a `quadruple`, found \"00\"",
        ),
    ] {
        assert_eq!(error(name, json), expected, "{name} {json}");
    }
}

/// The encoder rejects values that are nested more deeply than the decoder allows. Error messages cut long values.
#[test]
fn hostile_values() {
    let mut deep = serde_json::Value::Null;
    for _ in 0..MAX_DEPTH {
        deep = serde_json::json!({ "left": deep });
    }
    let spec = Compiler::new().source("test.x", SPEC).no_client().compile().unwrap().spec;
    let id = ItemId(spec.items.iter().position(|item| item.name.text == "tree").unwrap());
    let mut read = |_: &str| Err(String::new());
    let failed = JsonEncoder::new(&spec, &mut read).item(id, &deep, false).unwrap_err();
    assert!(failed.to_string().ends_with("nested more than 200 levels deep"), "{failed}");
    assert!(failed.path().starts_with(".left.left"));
    let long = format!("\"{}\"", "é".repeat(1000));
    assert!(error("colour", &long).len() < 200);
}
