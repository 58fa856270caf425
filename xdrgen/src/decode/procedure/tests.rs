#![allow(clippy::unwrap_used)]

use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;
use crate::Compiler;

const SPEC: &str = "
    enum kind { SMALL = 1, LARGE = -2 };
    struct node { int n; node *next; };
    union shape switch (kind k) { case SMALL: hyper side; default: void; };
    opaque_union wrapped switch (bool on) { case TRUE: int x; case FALSE: void; };
    struct pair { int a; unsigned int b; };
    struct all {
        string s<>; opaque o<>; opaque f[3]; shape u<>; wrapped w; node *list; pair *maybe; bool flag; float small;
        double large; unsigned hyper big; kind k; @ddp opaque first<>; @ddp pair second<>; @ddp opaque fixed[5];
    };
    struct range { unsigned int len; hyper at; };
    struct names { string name<>; range inside; };
    struct found { unsigned int more; @ddp opaque data<>; @ddp opaque rest<>; };
    program P {
        version V1 { all ECHO(all) = 1; void NOTHING(void) = 2; int SUM(int, int) = 3; } = 1;
        version V2 {
            all ECHO(all) = 1;
            @reply_max(4 + len(name) * 2 / 3) @idempotent
            found FIND(names) = 4;
            @reply_max(computed) found ANY(range) = 5;
        } = 2;
    } = 0x20000001;
";

const ULB: &str = "
    ddp V2.FIND: found.data max = inside.len;
    ddp V2.FIND: found.rest max = min(inside.len - 10, 7);
    reply_max V1.ECHO = 64K; reply_max V2.ECHO = 64K;
    ddp V1.ECHO: all.first max = 9; ddp V1.ECHO: all.second max = 9;
    ddp V2.ECHO: all.first max = 9; ddp V2.ECHO: all.second max = 9;
";

fn spec() -> Spec {
    let compiled = Compiler::new().source("test.x", SPEC).ulb_source("test.ulb", ULB).compile();
    compiled.unwrap_or_else(|errors| panic!("{errors}")).spec
}

fn no_files(name: &str) -> Result<Vec<u8>, String> {
    Err(format!("no file {name}"))
}

#[test]
fn procedures_are_found_by_their_names() {
    let spec = spec();
    let find = |name, version| JsonProcedure::find(&spec, name, version);
    let found = find("P.ECHO", None).unwrap();
    assert_eq!((found.program(), found.version(), found.number(), found.name()), (0x2000_0001, 2, 1, "ECHO"));
    assert!(find("P.FIND", None).unwrap().is_idempotent() && !found.is_idempotent());
    for (name, version) in [("P.NOTHING", None), ("P.ECHO", Some(1)), ("P.V1.ECHO", None), ("P.V1.ECHO", Some(1))] {
        assert_eq!(find(name, version).unwrap().version(), 1, "{name} {version:?}");
    }
    for (name, version, expected) in [
        ("P", None, "`P` is not PROGRAM.PROCEDURE or PROGRAM.VERSION.PROCEDURE"),
        ("Q.ECHO", None, "no program is named `Q`, known are P"),
        ("P.ECKO", None, "no procedure of `P` is named `ECKO`, did you mean `ECHO`?"),
        ("P.X", Some(1), "no procedure of `P` is named `X`, known are ECHO, NOTHING, SUM"),
        ("P.V3.ECHO", None, "no version of `P` is named `V3`, known are V1, V2"),
        ("P.ECHO", Some(3), "`P` has no such version with the number 3"),
        ("P.V1.ECHO", Some(2), "`P` has no such version with the number 2"),
    ] {
        assert_eq!(find(name, version).unwrap_err().to_string(), expected);
    }
}

#[test]
fn arguments_of_any_number() {
    let spec = spec();
    let encode = |name, json: &str| JsonProcedure::find(&spec, name, None).unwrap().encode(json, &mut no_files);
    assert_eq!(encode("P.NOTHING", "null").unwrap().parts, []);
    assert_eq!(encode("P.NOTHING", "{}").unwrap_err().to_string(), ".: the procedure has no arguments, expected null");
    let error = encode("P.SUM", "[1, 2]").unwrap_err();
    assert_eq!(error.to_string(), ".: expected an object, found an array of 2 elements");
    let sum = JsonProcedure::find(&spec, "P.SUM", None).unwrap();
    let keys: Vec<_> = sum.procedure.args.iter().map(|field| field.name.text.clone()).collect();
    let object = json!({ keys[0].as_str(): 1, keys[1].as_str(): -1 }).to_string();
    let expected = EncodedPart::Inline([1u32, u32::MAX].map(u32::to_be_bytes).concat());
    assert_eq!(encode("P.SUM", &object).unwrap().parts, [expected]);
    assert!(encode("P.SUM", "{").unwrap_err().to_string().starts_with(".: the arguments are not JSON: EOF"));
}

/// The room for the reply is computed from the arguments, as in generated code.
#[test]
fn the_room_for_the_reply() {
    let spec = spec();
    let find = JsonProcedure::find(&spec, "P.FIND", None).unwrap();
    for (len, rest) in [(5, 0), (12, 2), (100, 7)] {
        let arguments = json!({ "name": "abcd", "inside": { "len": len, "at": -1 } }).to_string();
        let call = find.encode(&arguments, &mut no_files).unwrap();
        assert_eq!((call.max_inline, call.max_items, call.is_estimate), (6, vec![len, rest], false));
    }
    let any = JsonProcedure::find(&spec, "P.ANY", None).unwrap();
    let any = any.encode(r#"{"len": 1, "at": 2}"#, &mut no_files).unwrap();
    assert_eq!((any.max_inline, any.max_items, any.is_estimate), (DEFAULT_REPLY_MAX, vec![], true));
}

/// The room for the reply includes the eligible items of each array element that the arguments request.
#[test]
fn repeated_items_have_room() {
    let text = "struct keys { unsigned int numbers<16>; }; struct piece { @ddp opaque data<100>; };
        struct pieces { @max(len(numbers)) piece all<16>; };
        program P { version V { pieces GET(keys) = 1; } = 1; } = 7;";
    let spec = crate::Compiler::new().source("p.x", text).compile().unwrap().spec;
    let get = JsonProcedure::find(&spec, "P.GET", None).unwrap();
    for count in 0..3 {
        let arguments = json!({ "numbers": vec![7; count] }).to_string();
        let call = get.encode(&arguments, &mut no_files).unwrap();
        assert_eq!(call.max_items, vec![100; count]);
    }
}

#[test]
fn results() {
    let spec = spec();
    let find = JsonProcedure::find(&spec, "P.FIND", None).unwrap();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let expected = json!({ "more": 1, "data": "010203", "rest": "05" });
    let decoded = |inline: &[u32], chunks: &[&[u8]]| {
        let decoded = find.decode(&words(inline), chunks).map_err(|error| error.to_string());
        decoded.map(|json| serde_json::from_str::<Value>(&json).unwrap())
    };
    assert_eq!(decoded(&[1, 3, 0x0102_0300, 1, 0x0500_0000], &[]).unwrap(), expected);
    assert_eq!(decoded(&[1, 3, 1], &[&[1, 2, 3], &[5]]).unwrap(), expected);
    assert_eq!(decoded(&[1, 3, 0x0102_0300, 1], &[&[], &[5]]).unwrap(), expected);
    // An empty item may leave its chunk to the next one.
    assert_eq!(decoded(&[1, 0, 1], &[&[5]]).unwrap(), json!({ "more": 1, "data": "", "rest": "05" }));
    assert_eq!(decoded(&[1, 0, 0, 9], &[]).unwrap_err(), "4 bytes follow the result");
    assert_eq!(decoded(&[1, 0, 0], &[&[5]]).unwrap_err(), "a chunk belongs to no item of the result");
    assert_eq!(decoded(&[1], &[]).unwrap_err(), "the message ends here (at byte 4)");
    let nothing = JsonProcedure::find(&spec, "P.NOTHING", None).unwrap();
    assert_eq!(nothing.decode(&[], &[]).unwrap(), "null");
}

/// Returns a strategy for JSON values of `struct all`.
fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>().prop_map(Value::from), Just(json!({ "hex": "ff00" }))];
    let opaque = |len| vec(any::<u8>(), len).prop_map(|bytes| super::super::hex::hex(&bytes, usize::MAX, ""));
    let shape = prop_oneof![
        any::<i64>().prop_map(|side| json!({ "k": "SMALL", "side": side })),
        Just(json!({ "k": "LARGE" })),
    ];
    let wrapped = prop_oneof![any::<i32>().prop_map(|x| json!({ "on": true, "x": x })), Just(json!({ "on": false })),];
    let pair = (any::<i32>(), any::<u32>()).prop_map(|(a, b)| json!({ "a": a, "b": b }));
    let float = prop_oneof![any::<f32>().prop_map(|float| json!(float)), Just(json!("NaN")), Just(json!("-inf"))];
    let list = vec(any::<i32>().prop_map(|n| json!({ "n": n })), 0..4);
    let first = (text, opaque(0..9), opaque(3..4), vec(shape, 0..3), wrapped, list, proptest::option::of(pair.clone()));
    let second = (any::<bool>(), float, any::<f64>(), any::<u64>(), prop_oneof![Just("SMALL"), Just("LARGE")]);
    let third = (opaque(0..9), vec(pair, 0..3), opaque(5..6));
    (first, second, third).prop_filter_map("a float that JSON has", |(first, second, third)| {
        let ((s, o, f, u, w, list, maybe), (flag, small, large, big, k), (data, pairs, fixed)) = (first, second, third);
        let is_json = !small.is_null() && large.is_finite();
        is_json.then(|| {
            json!({
                "s": s, "o": o, "f": f, "u": u, "w": w, "list": list, "maybe": maybe, "flag": flag, "small": small,
                "large": large, "big": big, "k": k, "first": data, "second": pairs, "fixed": fixed,
            })
        })
    })
}

proptest! {
    /// Encoding and decoding preserve a value, with and without chunks.
    #[test]
    fn json_survives(value in values(), reduced in any::<[bool; 3]>()) {
        let spec = spec();
        let echo = JsonProcedure::find(&spec, "P.ECHO", None).unwrap();
        let call = echo.encode(&value.to_string(), &mut no_files).unwrap();
        let (mut inline, mut chunks, mut reduced) = (Vec::new(), Vec::new(), reduced.into_iter());
        for part in &call.parts {
            match part {
                EncodedPart::Inline(bytes) => inline.extend_from_slice(bytes),
                EncodedPart::Eligible(bytes) if reduced.next().unwrap() => chunks.push(&bytes[..]),
                EncodedPart::Eligible(bytes) => {
                    chunks.push(&[]);
                    inline.extend_from_slice(bytes);
                    inline.resize(inline.len().next_multiple_of(4), 0);
                }
            }
        }
        let decoded: Value = serde_json::from_str(&echo.decode(&inline, &chunks).unwrap()).unwrap();
        prop_assert_eq!(decoded, value);
    }
}
