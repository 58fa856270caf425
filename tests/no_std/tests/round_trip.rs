//! Tests of the crate without the standard library, in a test harness that has it.

use rpcrdma::{
    rpc::{CallHeader, Credential, ReplyHeader},
    service::Procedure,
    xdr::{Decoder, FlatSink, Quadruple, XdrDecodeRef, XdrEncode, encode_to_bytes},
};
use rpcrdma_specs::{
    nfs3::{NfsFh3, PostOpAttr, Read3args, Read3res, Read3resok, nfs_v3},
    nfs4::{Compound4args, NfsArgop4, Utf8strCs, nfs_v4},
};
use rpcrdma_tests_no_std::{Mode, Settings, by_macro, by_script, call, inline, reply, round_trip};

/// A report with a value in each field.
macro_rules! report {
    ($module:ident) => {{
        use $module::*;
        let cold = Condition { of: Unit::Kelvin, above: 3.5, unless: None, alternatives: Vec::new() };
        Report {
            from: Serial([1, 2, 3, 4, 5, 6]),
            name: "probe 7".into(),
            readings: vec![Reading { time: 1 << 40, value: -0.25, of: Unit::Volt, trusted: true }],
            drift: Quadruple::default(),
            from_where: Power::Default(9, b"sun".as_slice().into()),
            trigger: Some(Condition {
                of: Unit::Pascal,
                above: 1e5,
                unless: Some(Box::new(cold.clone())),
                alternatives: vec![cold],
            }),
            notes: ["one", "two"].map(|text| Note { text: text.into() }).into(),
            samples: vec![7; 9].into(),
        }
    }};
}

#[test]
fn generated_types_round_trip() {
    let report = report!(by_macro);
    assert_eq!(round_trip(&report).as_ref(), Ok(&report));
    let bytes = encode_to_bytes(&report).unwrap();
    // RFC 4506 §4.9: opaque data of 6 bytes with padding; §4.11: the length, bytes and padding of a string.
    assert_eq!(bytes[..20], *b"\x01\x02\x03\x04\x05\x06\0\0\0\0\0\x07probe 7\0");
    // The module from the build script gives the same encoding.
    let by_script = report!(by_script);
    assert_eq!(encode_to_bytes(&by_script).unwrap(), bytes);
    assert_eq!(round_trip(&by_script).as_ref(), Ok(&by_script));
    // The borrowed form refers to the message.
    let mut decoder = Decoder::new(&bytes);
    let view = by_macro::ReportRef::decode_ref(&mut decoder).unwrap();
    assert_eq!((view.name.to_str(), view.samples), (Ok("probe 7"), &[7; 9][..]));
    assert_eq!(encode_to_bytes(&view).unwrap(), bytes);
}

#[test]
fn errors_name_their_place() {
    let report = by_script::Report { name: "n".repeat(65).as_str().into(), ..report!(by_script) };
    let error = round_trip(&report).unwrap_err();
    assert_eq!(error, "label: length 65 exceeds the declared maximum 64");
    let mut bytes = encode_to_bytes(&report!(by_macro)).unwrap().to_vec();
    bytes[40..44].copy_from_slice(&9_u32.to_be_bytes());
    let error = Decoder::new(&bytes).read::<by_macro::Report>().unwrap_err();
    assert_eq!(error.to_string(), "report.readings[0].of: 9 is not a value of enum unit");
}

#[test]
fn names_of_the_prelude_may_mean_something_else() {
    let value = inline::Result::True(inline::Option { of: Some(inline::Vec { x: vec![1, 2] }) });
    assert_eq!(round_trip(&value).as_ref(), Ok(&value));
}

#[test]
fn derived_types_round_trip() {
    let settings = Settings {
        name: "night".to_owned(),
        key: vec![1, 2, 3],
        intervals: vec![60, 600],
        firmware: vec![0; 33].into(),
        mode: Some(Mode::Busy),
    };
    assert_eq!(round_trip(&settings).as_ref(), Ok(&settings));
}

#[test]
fn calls_over_a_custom_transport() {
    use by_macro::probe_v1::{PROGRAM, Report, ReportArgs};

    let args = ReportArgs { of: by_macro::Serial([9; 6]), samples: 16 };
    let message = call::<Report>(7, &Credential::None, &args).unwrap();
    let mut decoder = Decoder::new(&message);
    let header = CallHeader::decode(&mut decoder).unwrap();
    assert_eq!((header.xid, header.program, header.version, header.procedure), (7, PROGRAM, 1, 1));
    assert_eq!(decoder.read::<ReportArgs>().unwrap(), args);
    decoder.finish().unwrap();

    let result = report!(by_macro);
    let mut message = Vec::new();
    let mut sink = FlatSink::new(&mut message);
    ReplyHeader::success(7).encode(&mut sink).unwrap();
    result.encode(&mut sink).unwrap();
    assert_eq!(reply::<Report>(7, &message), Some(result));
    assert_eq!(reply::<Report>(8, &message), None);
    // RFC 8166 §6.2: the reply bounds follow from the arguments.
    assert_eq!(Report::reply_bounds(&args).chunks.as_slice(), [16]);
}

#[test]
fn specifications_work() {
    let args = Read3args { file: NfsFh3 { data: vec![1; 16].into() }, offset: 5, count: 4096 };
    let message = call::<nfs_v3::Nfsproc3Read>(1, &Credential::sys("host", 1, 2, [3]), &args).unwrap();
    assert_eq!(message.len() % 4, 0);
    let ok = Read3resok { file_attributes: PostOpAttr::False, count: 3, eof: true, data: b"abc".as_slice().into() };
    assert_eq!(round_trip(&Read3res::Ok(ok.clone())), Ok(Read3res::Ok(ok)));

    let args = Compound4args {
        tag: Utf8strCs::default(),
        minorversion: 1,
        argarray: vec![NfsArgop4::Readlink, NfsArgop4::Getfh],
    };
    assert_eq!(nfs_v4::Nfsproc4Compound::reply_bounds(&args).chunks.len(), 1);
    assert_eq!(round_trip(&args).as_ref(), Ok(&args));
}

#[cfg(feature = "serde")]
#[test]
fn other_traits_are_derived() {
    fn is_serde<T: serde::Serialize + serde::de::DeserializeOwned>() {}
    is_serde::<rpcrdma_tests_no_std::derived::Named>();
}
