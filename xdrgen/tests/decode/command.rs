//! Tests of the `xdrgen decode` command: options, output and errors.

use std::{
    fs,
    io::Write as _,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::{
    hex,
    messages::{over_tcp, read_call, read_reply},
    text,
    wire::SPECIFICATION,
};

fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("files.x"), SPECIFICATION).unwrap();
    fs::write(place.path().join("tcp.pcap"), over_tcp().capture.pcap(65535)).unwrap();
    place
}

fn run(place: &TempDir, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdrgen"));
    let command = command.arg("decode").args(arguments).current_dir(place.path());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A command that does not read its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_file_and_standard_input_give_the_same() {
    let place = place();
    let capture = fs::read(place.path().join("tcp.pcap")).unwrap();
    let output = run(&place, &["files.x", "tcp.pcap", "--bytes", "16"], &[]);
    assert_eq!((output.status.code(), string(&output.stderr)), (Some(0), String::new()));
    assert_eq!(string(&output.stdout), text(&capture));
    let piped = run(&place, &["--bytes", "16", "files.x", "-"], &capture);
    assert_eq!(string(&piped.stdout), string(&output.stdout));
}

#[test]
fn json_is_an_object_per_line() {
    let output = run(&place(), &["files.x", "tcp.pcap", "--json", "--program", "FILES"], &[]);
    let text = string(&output.stdout);
    // The messages of the unknown program are left out.
    assert_eq!(text.lines().count(), 6);
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["rpc"]["program"]["name"], "FILES", "{line}");
    }
    let other = run(&place(), &["files.x", "tcp.pcap", "--program", "99"], &[]);
    assert_eq!(string(&other.stdout).lines().filter(|line| line.starts_with('#')).count(), 2);
}

#[test]
fn hexadecimal_messages_of_every_transport() {
    let place = place();
    let (call, reply) = (read_call(1, 8), [read_reply(1, 5), b"hello\0\0\0".to_vec()].concat());
    let input = format!("# call\n{}\n\n{}\n", hex(&call), hex(&reply));
    for transport in ["rpc", "detect"] {
        let output = run(&place, &["files.x", "-", "--transport", transport], input.as_bytes());
        let text = string(&output.stdout);
        assert!(text.contains("reply 0x00000001 FILES (0x20000001) FILES_V1 (1) READ (1)"), "{text}");
        assert!(text.contains("name: \"a.txt\"") && text.contains("data: 5 bytes: 68 65 6c 6c 6f"), "{text}");
    }
    let header = |xid: u32| [xid, 1, 32, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let input = format!("{}{}", hex(&header(1)), hex(&call));
    for transport in ["rdma", "rdma-v1", "detect"] {
        let output = run(&place, &["files.x", "-", "--transport", transport], input.as_bytes());
        let text = string(&output.stdout);
        assert!(text.contains("RPC-over-RDMA version 1: RDMA_MSG") && text.contains("READ (1)"), "{text}");
    }
    let record = [&(call.len() as u32 | 1 << 31).to_be_bytes()[..], &call].concat();
    for transport in ["tcp", "detect"] {
        let output = run(&place, &["files.x", "-", "--transport", transport], hex(&record).as_bytes());
        assert!(string(&output.stdout).contains("READ (1)"));
    }
}

/// The messages of a procedure that a version takes over from its base version are decoded with the declaration in the
/// base version.
#[test]
fn procedures_of_a_base_version() {
    let place = place();
    let text = std::fs::read_to_string(place.path().join("files.x")).unwrap();
    let (head, tail) = text.rsplit_once("} =").unwrap();
    let based = format!("{head}    version FILES_V2 : FILES_V1 {{ void CLOSE(void) = 9; }} = 2;\n}} ={tail}");
    std::fs::write(place.path().join("based.x"), based).unwrap();
    let mut call = read_call(1, 8);
    // The version (RFC 5531 §9).
    call[19] = 2;
    let output = run(&place, &["based.x", "-", "--transport", "rpc"], hex(&call).as_bytes());
    let text = string(&output.stdout);
    assert!(text.contains("FILES_V2 (2) READ (1)") && text.contains("name: \"a.txt\""), "{text}");
}

#[test]
fn wrong_input_has_exit_codes() {
    let place = place();
    let output = run(&place, &["files.x", "-"], b"not hex");
    assert_eq!(output.status.code(), Some(1));
    assert!(string(&output.stderr).contains("line 1: `n` is not a hexadecimal digit"), "{}", string(&output.stderr));
    assert_eq!(run(&place, &["files.x", "absent.pcap"], &[]).status.code(), Some(3));
    assert_eq!(run(&place, &["absent.x", "tcp.pcap"], &[]).status.code(), Some(3));
    assert_eq!(run(&place, &["files.x"], &[]).status.code(), Some(2));
    let output = run(&place, &["files.x", "tcp.pcap", "--program", "FILE"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(string(&output.stderr).contains("no program is named `FILE`"));
    // The messages before the end of a file that is cut are printed.
    let capture = fs::read(place.path().join("tcp.pcap")).unwrap();
    let output = run(&place, &["files.x", "-"], &capture[..capture.len() - 1]);
    assert_eq!(output.status.code(), Some(1));
    assert!(string(&output.stdout).contains("READ (1)"));
    assert!(string(&output.stderr).contains("standard input: the capture cannot be read after packet"));
}

#[test]
fn a_capture_without_messages_says_so() {
    let output = run(
        &place(),
        &["files.x", "-"],
        &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0],
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(string(&output.stderr), "note: no message was found in 0 packets of standard input\n");
}
