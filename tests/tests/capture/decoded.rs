//! Checks of a capture that `xdrgen decode` has decoded.

use rpcrdma_xdrgen::{Compiler, decode::Decoder};
use serde_json::Value;

use super::traffic::{ATTACHMENT, DATA, TEXT, bytes};

/// The protocol of `traffic::long`.
pub(crate) const LONG: &str = "typedef opaque text<65536>;
    program LONG { version LONG_V1 { @reply_max(7 + len(args)) text ECHO(text) = 1; } = 1; } = 0x20100C01;";

/// The procedures that `traffic::calls` calls, in the order of the calls.
const CALLS: [&str; 6] = ["NULL", "PUT", "GET", "FETCH", "LIST", "ECHO"];

/// Decodes a capture file to JSON.
pub(crate) fn decode(file: &[u8]) -> Vec<Value> {
    let specification = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/xdr/blobstore.x");
    let compiled = Compiler::new().file(specification).source("long.x", LONG).compile().unwrap();
    let decoder = Decoder::new(compiled.spec);
    let decoded = decoder.capture(file);
    assert_eq!(decoded.error(), None);
    decoded.iter().map(|message| serde_json::from_str(&message.to_json()).unwrap()).collect()
}

/// Checks the messages on the connection of the client with this port: the calls, the replies, and the blobs and texts
/// in both. `version` is the expected version of RPC-over-RDMA.
pub(crate) fn check(messages: &[Value], client: u16, version: u64) {
    let client = format!("127.0.0.1:{client}");
    let of = |kind: &str, end: &str| -> Vec<&Value> {
        let is_it = |it: &&Value| it[end] == client.as_str() && it["rpc"]["type"] == kind;
        messages.iter().filter(is_it).collect()
    };
    let (calls, replies) = (of("call", "from"), of("reply", "to"));
    for messages in [&calls, &replies] {
        let names: Vec<&str> = messages.iter().map(|it| it["rpc"]["procedure"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, CALLS);
    }
    for message in calls.iter().chain(&replies) {
        assert_eq!(message["transport"], "iWARP");
        assert_eq!(message["rdma"]["version"], version);
        // No data is missing and nothing is left over. A message that was continued says so.
        let notes = message["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        assert!(notes.clone().all(|note| note.starts_with("joined from")), "{:?}", notes.collect::<Vec<_>>());
        assert_eq!(message["rpc"].get("chunks"), None, "{message}");
    }
    let (data, attachment) = (bytes(DATA, 1), bytes(ATTACHMENT, 2));
    let put = &calls[1]["rpc"]["arguments"];
    assert_eq!((&put["name"], contents(&put["data"])), (&Value::from("blob"), hex(&data)));
    assert_eq!(contents(&put["attachment"]), hex(&attachment));
    let get = &replies[2]["rpc"]["result"];
    assert_eq!((&get["status"], &get["ok"]["eof"]), (&Value::from("BLOB_OK"), &Value::from(true)));
    assert_eq!(contents(&get["ok"]["data"]), hex(&data[1..]));
    let fetch = &replies[3]["rpc"]["result"]["ok"];
    assert_eq!(contents(&fetch["data"]), hex(&data));
    assert_eq!(contents(&fetch["attachment"]), hex(&attachment));
    assert_eq!(fetch["stat"]["attachment_len"], ATTACHMENT);
    assert_eq!(replies[4]["rpc"]["result"]["page"]["entries"][0]["name"], "blob");
    let text = hex(&bytes(TEXT, 3));
    assert_eq!(contents(&calls[5]["rpc"]["arguments"]), text);
    assert_eq!(contents(&replies[5]["rpc"]["result"]), text);
}

/// Returns the hexadecimal digits of opaque data, which is in the message or in a chunk.
fn contents(value: &Value) -> String {
    value.as_str().or_else(|| value["data"].as_str()).unwrap_or_default().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
