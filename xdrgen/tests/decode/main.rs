//! Tests of `xdrgen decode` with synthetic captures of TCP, iWARP and RoCE v2. Some captures are incomplete.
#![cfg(feature = "decode")]

mod command;
mod messages;
mod robust;
mod wire;

use std::sync::LazyLock;

use messages::{over_iwarp, over_tcp, version_1, version_2};
use rpcrdma_xdrgen::{Compiler, decode::Decoder};
use serde_json::Value;
use wire::{Capture, Roce, SPECIFICATION};

fn decoder() -> &'static Decoder {
    static DECODER: LazyLock<Decoder> =
        LazyLock::new(|| Decoder::new(Compiler::new().source("files.x", SPECIFICATION).compile().unwrap().spec));
    &DECODER
}

/// Decodes a capture to text.
fn text(file: &[u8]) -> String {
    let decoder = decoder();
    let decoded = decoder.capture(file);
    decoded.iter().map(|message| message.to_text(decoded.start(), 16)).collect()
}

/// Decodes a capture to JSON.
fn json(file: &[u8]) -> Vec<Value> {
    let decoder = decoder();
    decoder.capture(file).iter().map(|message| serde_json::from_str(&message.to_json()).unwrap()).collect()
}

/// Returns a decoded text without packet numbers, times and addresses.
fn without_places(text: &str) -> String {
    let lines = text.lines().map(|line| if line.starts_with('#') { "#" } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares `actual` with the file `name` in this folder. If the environment variable `BLESS` is set, writes the file
/// first.
fn golden(name: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decode").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), actual, "{name}; BLESS=1 accepts the new output");
}

fn roce(calls: fn(&mut dyn wire::Rdma)) -> Capture {
    let mut roce = Roce::connect();
    calls(&mut roce);
    roce.capture
}

#[test]
fn tcp() {
    golden("tcp.txt", &text(&over_tcp().capture.pcap(65535)));
}

#[test]
fn iwarp_version_1() {
    golden("iwarp.txt", &text(&over_iwarp(version_1).tcp.capture.pcap(65535)));
}

#[test]
fn roce_version_2() {
    golden("roce.txt", &text(&roce(version_2).pcap(65535)));
}

/// The same calls over iWARP and over RoCE decode to the same messages.
#[test]
fn iwarp_and_roce_give_the_same() {
    for calls in [version_1, version_2] {
        let iwarp = text(&over_iwarp(calls).tcp.capture.pcap(65535));
        assert_eq!(without_places(&text(&roce(calls).pcap(65535))), without_places(&iwarp));
    }
}

#[test]
fn pcapng_gives_the_same_as_pcap() {
    let capture = over_iwarp(version_1).tcp.capture;
    assert_eq!(text(&capture.pcapng()), text(&capture.pcap(65535)));
}

#[test]
fn chunks_have_the_data_of_the_capture() {
    for file in [over_iwarp(version_1).tcp.capture.pcap(65535), roce(version_1).pcap(65535)] {
        let messages = json(&file);
        assert_eq!(messages.len(), 6);
        let data = |message: &Value, pointer: &str| message.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        assert_eq!(data(&messages[0], "/rpc/arguments/data/data"), hex(&messages::data(10)));
        assert_eq!(data(&messages[0], "/rpc/credential/body/machinename"), "host");
        assert_eq!(messages[1].pointer("/rpc/result").unwrap(), "OK");
        assert_eq!(data(&messages[3], "/rpc/result/ok/data/data"), hex(&messages::data(2500)));
        assert_eq!(data(&messages[4], "/rpc/arguments/name"), "a.txt");
        assert_eq!(data(&messages[5], "/rpc/result/ok/data"), hex(b"hello"));
        assert!(messages.iter().all(|message| message.get("notes").is_none()), "{messages:?}");
    }
}

#[test]
fn segments_out_of_order_and_retransmissions_change_nothing() {
    let whole = over_iwarp(version_1).tcp.capture;
    let expected = without_places(&text(&whole.pcap(65535)));
    let mut copied = Capture::default();
    for packet in &whole.packets {
        copied.packets.extend([packet.clone(), packet.clone()]);
    }
    assert_eq!(without_places(&text(&copied.pcap(65535))), expected);
    // The three segments of one message of the server, the last one first.
    let mut swapped = whole.clone();
    let large: Vec<usize> = (0..whole.packets.len()).filter(|at| whole.packets[*at].len() > 1000).collect();
    assert!(large.len() >= 2, "{large:?}");
    swapped.packets.swap(large[0], large[0] + 1);
    assert_ne!(swapped.packets, whole.packets);
    assert_eq!(without_places(&text(&swapped.pcap(65535))), expected);

    let whole = roce(version_1);
    let expected = without_places(&text(&whole.pcap(65535)));
    let mut copied = Capture::default();
    for packet in &whole.packets {
        copied.packets.extend([packet.clone(), packet.clone()]);
    }
    assert_eq!(without_places(&text(&copied.pcap(65535))), expected);
}

#[test]
fn a_capture_may_begin_within_a_connection() {
    let mut capture = over_iwarp(version_1).tcp.capture;
    // The set-up, and the first call.
    capture.packets.drain(..5);
    let messages = json(&capture.pcap(65535));
    let note = messages[0].pointer("/notes/0").unwrap().as_str().unwrap();
    assert_eq!(note, "the call of this reply is not in the capture, so its procedure is unknown");
    assert_eq!(messages[1].pointer("/rpc/procedure/name").unwrap(), "READ");
    let data = messages[2].pointer("/rpc/result/ok/data/data").unwrap();
    assert_eq!(data, &hex(&messages::data(2500)));

    // Without the set-up and the first call.
    let mut capture = over_tcp().capture;
    capture.packets.drain(..3);
    let messages = json(&capture.pcap(65535));
    assert_eq!(messages[0].pointer("/rpc/type").unwrap(), "reply");
    assert_eq!(messages[1].pointer("/rpc/procedure/name").unwrap(), "WRITE");
}

#[test]
fn data_that_was_not_captured_is_described() {
    let mut capture = over_iwarp(version_1).tcp.capture;
    // Without the RDMA Reads and Writes.
    let is_rdma = |packet: &Vec<u8>| packet.len() > 56 && packet[54 + 2] & 0x80 != 0;
    capture.packets.retain(|packet| !is_rdma(packet));
    let text = text(&capture.pcap(65535));
    assert!(text.contains("data: reduced, 10 bytes, chunk at 0x000000aa:0x0000000000001000"), "{text}");
    assert!(text.contains("of which 0 bytes were captured"), "{text}");
}

#[test]
fn cut_packets_give_what_they_contain() {
    for capture in [over_iwarp(version_1).tcp.capture, roce(version_1)] {
        for snap in [0, 14, 40, 60, 90, 120, 200, 300, 700] {
            let messages = json(&capture.pcap(snap));
            if snap >= 200 {
                let names = messages.iter().filter_map(|message| message.pointer("/rpc/procedure/name")?.as_str());
                assert!(names.clone().any(|name| name == "WRITE"), "{snap}: {:?}", names.collect::<Vec<_>>());
            }
        }
        let messages = json(&capture.pcap(300));
        let data = messages.iter().find_map(|message| message.pointer("/rpc/result/ok/data")).unwrap();
        assert_eq!(data["length"], 2500);
        let captured = data["captured"].as_u64().unwrap();
        assert!(captured > 100 && captured < 300, "{captured}");
        assert_eq!(data["data"], hex(&messages::data(2500)[..captured as usize]));
    }
}

/// The procedure of a captured call is known even if the capture lacks the end of the credential. The procedure of the
/// reply is then known as well.
#[test]
fn a_call_that_is_cut_within_its_header_has_a_procedure() {
    // Ethernet, IP, TCP, the fragment's mark, and 28 bytes of the header.
    let messages = json(&over_tcp().capture.pcap(14 + 20 + 20 + 4 + 28));
    assert_eq!(messages[0].pointer("/rpc/procedure/name").unwrap(), "READ");
    let notes = messages[0]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with("the header of the call is cut")), "{notes:?}");
    assert_eq!(messages[1].pointer("/rpc/procedure/name").unwrap(), "READ");
}

#[test]
fn a_lost_segment_loses_one_message() {
    let whole = over_tcp().capture;
    let all = json(&whole.pcap(65535)).len();
    // The first call.
    let mut capture = whole;
    capture.packets.remove(2);
    let messages = json(&capture.pcap(65535));
    let procedures: Vec<_> = messages.iter().filter_map(|it| it.pointer("/rpc/procedure/name")?.as_str()).collect();
    assert!(procedures.contains(&"WRITE") && messages.len() >= all - 1, "{messages:?}");
    assert!(messages.iter().any(|it| it.pointer("/notes/0").is_some()));
}
