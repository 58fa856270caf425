//! Tests of `xdrgen wireshark`: `tshark` runs the generated dissectors on captures of all transports and both versions.
//!
//! If no `tshark` that runs Lua scripts is installed, the tests print a message and pass.
#![cfg(feature = "cli")]

mod command;
mod constructs;
mod hostile;
#[path = "../decode/messages.rs"]
mod messages;
mod tshark;
#[path = "../decode/wire.rs"]
mod wire;

use messages::{PROGRAM, READ, WRITE, call, over_iwarp, over_tcp, read_call, version_1, version_2, words, write_call};
use tshark::Tshark;
use wire::{Capture, Iwarp, Rdma, Roce, SPECIFICATION};

/// The fields of calls and replies that the tests compare.
const MESSAGE: [&str; 9] = [
    "files.type",
    "files.xid",
    "files.procedure_name",
    "files.read_args.name",
    "files.write_args.name",
    "files.reduced",
    "files.read_res.status",
    "files.read_ok.data",
    "files.WRITE.result",
];

fn roce(calls: fn(&mut dyn Rdma)) -> Capture {
    let mut roce = Roce::connect();
    calls(&mut roce);
    roce.capture
}

fn iwarp(calls: fn(&mut dyn Rdma)) -> Capture {
    over_iwarp(calls).tcp.capture
}

/// Compares `actual` with the file `name` in this folder. If the environment variable `BLESS` is set, writes the file
/// first.
fn golden(name: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wireshark").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), actual, "{name}; BLESS=1 accepts the new output");
}

#[test]
fn calls_and_replies_of_version_1() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    let expected = [
        "0|0x00000001|WRITE||b.txt|10|||",
        "1|0x00000001|WRITE||||||0",
        "0|0x00000002|READ|a.txt|||||",
        "1|0x00000002|READ|||2500|0||",
        "0|0x00000003|READ|a.txt|||||",
        "1|0x00000003|READ||||0|68656c6c6f|",
    ];
    // Wireshark puts long messages together on iWARP only.
    for (capture, count) in [(iwarp(version_1), 6), (roce(version_1), 4)] {
        assert_eq!(tshark.fields(&capture.pcapng(), "files", &MESSAGE), expected[..count]);
        // Wireshark's own dissector shows the header.
        let headers = tshark.fields(&capture.pcapng(), "rpcordma.version == 1 && files.xid == 2", &["rpcordma.xid"]);
        assert_eq!(headers, ["0x00000002", "0x00000002"]);
    }
}

#[test]
fn calls_and_replies_of_version_2() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    let expected = ["0|0x00000051|READ|a.txt|||||", "1|0x00000051|READ|||6|0||"];
    for capture in [iwarp(version_2), roce(version_2)] {
        assert_eq!(tshark.fields(&capture.pcapng(), "files", &MESSAGE), expected);
    }
}

/// The header of each kind of message is shown: properties, a call in two messages, chunk lists and an error.
#[test]
fn headers_of_version_2() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    let trees = tshark.trees(&roce(version_2).pcapng(), &["rpcrdma2", "oncrpc", "files"]);
    golden("version_2.txt", &trees);
    // The call is in another packet.
    let iwarp = tshark.trees(&iwarp(version_2).pcapng(), &["rpcrdma2", "oncrpc", "files"]);
    assert_eq!(iwarp, trees.replace("[Call in: 5]", "[Call in: 7]"));
}

/// Retransmitted packets and a second pass over the capture do not change the messages.
#[test]
fn repeated_packets_change_nothing() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    for whole in [iwarp(version_1), roce(version_2)] {
        let expected = tshark.fields(&whole.pcapng(), "files", &MESSAGE);
        let mut twice = Capture::default();
        for packet in &whole.packets {
            twice.packets.extend([packet.clone(), packet.clone()]);
        }
        let mut found = tshark.fields(&twice.pcapng(), "files", &MESSAGE);
        found.dedup();
        assert_eq!(found, expected);
        let arguments = ["-2", "-Y", "files", "-T", "fields", "-e", "frame.number", "-e", "files.call_in"];
        let second = tshark.dissect(&whole.pcapng(), &arguments);
        assert_eq!(second, tshark.dissect(&whole.pcapng(), &arguments[1..]));
    }
}

/// Over TCP, the generated dissector gets calls and replies from Wireshark's own dissector of RPC, which dissects
/// unknown programs only with an option.
#[test]
fn calls_and_replies_over_tcp() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    let mut arguments = vec!["-o", "rpc.dissect_unknown_programs:TRUE", "-d", "tcp.port==20049,rpc"];
    arguments.extend(["-Y", "files", "-T", "fields", "-E", "separator=|"]);
    MESSAGE.iter().for_each(|name| arguments.extend(["-e", name]));
    let text = tshark.dissect(&over_tcp().capture.pcapng(), &arguments);
    let expected = [
        "0|0x00000001|READ|a.txt|||||",
        "1|0x00000001|READ||||0|68656c6c6f|",
        "0|0x00000002|WRITE||b.txt||||",
        "1|0x00000002|WRITE||||||2",
        "0|0x00000004|READ|a.txt|||||",
        "1|0x00000004|READ||||||",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// Calls over RPC-over-RDMA version 2 to programs that no specification declares are dissected by Wireshark itself.
#[test]
fn programs_that_wireshark_knows() {
    const PORTMAP: u32 = 100_000;
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    let mut iwarp = Iwarp::connect();
    // PMAPPROC_NULL of version 2.
    let null = words(&[7, 0, 2, PORTMAP, 2, 0, 0, 0, 0, 0]);
    iwarp.send(true, &[words(&[7, 2, 32, 0, 0, 0, 0, 0, 0]), null].concat());
    let capture = iwarp.tcp.capture.pcapng();
    assert_eq!(tshark.fields(&capture, "rpcrdma2 && portmap", &["rpc.program", "rpc.xid"]), ["100000|0x00000007"]);
}

#[test]
fn notes_about_messages() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    let header = |xid: u32| words(&[xid, 1, 32, 0, 0, 0, 0]);
    let mut iwarp = Iwarp::connect();
    // Four bytes too many, an unknown procedure, a chunk at no item, a Write chunk that is longer than the item, GSS
    // privacy.
    iwarp.send(true, &[header(1), read_call(1, 8), words(&[9])].concat());
    iwarp.send(true, &[header(2), call(2, PROGRAM, 9)].concat());
    let (write, position) = write_call(3, 4);
    let chunk = words(&[3, 1, 32, 0, 1, position + 4, 0xaa, 40, 0, 0x1000, 0, 0, 0]);
    iwarp.send(true, &[chunk, write, words(&[7])].concat());
    iwarp.send(true, &[header(4), read_call(4, 8)].concat());
    let chunk = words(&[4, 1, 32, 0, 0, 1, 1, 0xbb, 77, 0, 0x2000, 0, 0]);
    iwarp.send(false, &[chunk, messages::read_reply(4, 6)].concat());
    let gss = words(&[5, 0, 2, PROGRAM, 1, READ, 6, 20, 1, 0, 1, 3, 0, 0, 0]);
    iwarp.send(true, &[header(5), gss, vec![0xee; 40]].concat());
    iwarp.send(true, &[header(6), words(&[6, 0, 2, PROGRAM, 1, WRITE, 0, 0, 0, 0, 3])].concat());
    let capture = iwarp.tcp.capture.pcapng();
    let found = tshark.fields(&capture, "files.note || files.malformed", &["files.xid", "_ws.expert.message"]);
    assert_eq!(
        found,
        [
            "0x00000001|4 bytes follow the arguments",
            "0x00000002|the specification does not declare this procedure",
            "0x00000003|Read chunk 1 of 40 bytes belongs to no item",
            "0x00000004|the item has 6 bytes, but its chunk has 77",
            "0x00000005|RPCSEC_GSS protects the data, which is therefore not decoded",
            "0x00000006|3 bytes are expected, but the message ends after 0",
        ]
    );
}
