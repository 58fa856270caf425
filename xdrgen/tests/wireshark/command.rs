//! Tests of the `xdrgen wireshark` command, and of its section in the guide.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::{
    iwarp,
    messages::{PROGRAM, READ, call, over_iwarp, read_reply, version_2, words},
    tshark::Tshark,
    wire::{Rdma, SPECIFICATION},
};

fn xdrgen(place: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xdrgen")).args(arguments).current_dir(place).output().unwrap()
}

#[test]
fn wrong_input_has_exit_codes() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("files.x"), SPECIFICATION).unwrap();
    fs::write(place.path().join("types.x"), "struct point { int x; int y; };").unwrap();
    let output = xdrgen(place.path(), &["wireshark", "types.x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("declares no program"));
    for name in ["Files", "4files", "a b", ""] {
        let output = xdrgen(place.path(), &["wireshark", "files.x", "--protocol", name]);
        assert_eq!(output.status.code(), Some(2), "{name}");
    }
    let output = xdrgen(place.path(), &["wireshark", "files.x", "--protocol", "my.files-1"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("specification(\"my.files-1\", \"FILES (my.files-1)\")"));
    // Without the option, the protocol is named after the program.
    assert_eq!(xdrgen(place.path(), &["wireshark", "files.x", "-o", "out.lua"]).status.code(), Some(0));
    assert!(fs::read_to_string(place.path().join("out.lua")).unwrap().contains("specification(\"files\", \"FILES\")"));
}

/// Wireshark reports an error if it already has a protocol with the name of the dissector.
#[test]
fn a_name_that_is_taken_is_an_error() {
    let Some(tshark) = Tshark::new(&[]) else { return };
    fs::write(tshark.place().join("files.x"), SPECIFICATION).unwrap();
    xdrgen(tshark.place(), &["wireshark", "files.x", "--protocol", "nfs", "-o", "nfs.lua"]);
    let output = Command::new("tshark")
        .args(["-G", "protocols", "-X", "lua_script:nfs.lua"])
        .current_dir(tshark.place())
        .output();
    let errors = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(errors.contains("Wireshark rejects the protocol `nfs`; choose another name"), "{errors}");
}

/// Wireshark loads a dissector from the folder of personal plugins.
#[test]
fn a_dissector_in_the_folder_of_plugins() {
    let Some(tshark) = Tshark::new(&[]) else { return };
    let folders = tshark.run(&["-G", "folders"]);
    let folder = folders.lines().find_map(|line| line.strip_prefix("Personal Lua Plugins:")).unwrap().trim();
    assert!(Path::new(folder).starts_with(tshark.place()), "{folder}");
    fs::create_dir_all(folder).unwrap();
    fs::write(tshark.place().join("files.x"), SPECIFICATION).unwrap();
    let output = format!("{folder}/files.lua");
    assert!(xdrgen(tshark.place(), &["wireshark", "files.x", "-o", &output]).status.success());
    let names = tshark.fields(&iwarp(version_2).pcapng(), "files", &["files.procedure_name"]);
    assert_eq!(names, ["READ", "READ"]);
}

/// The commands on the guide's page work with the specification there, and print the output that the page shows.
#[test]
fn commands_of_the_guide_run() {
    let Some(tshark) = Tshark::new(&[]) else { return };
    let page = include_str!("../../../examples/guide/src/decoding.md");
    let blocks: Vec<(&str, &str)> =
        page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap()).collect();
    let specification = blocks.iter().find(|(language, _)| *language == "xdr").unwrap().1;
    let at = blocks.iter().position(|(language, text)| *language == "sh" && text.contains("tshark ")).unwrap();
    fs::write(tshark.place().join("files.x"), specification).unwrap();
    fs::write(tshark.place().join("traffic.pcapng"), over_iwarp(read).tcp.capture.pcapng()).unwrap();
    let path = Path::new(env!("CARGO_BIN_EXE_xdrgen")).parent().unwrap().display();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let mut output = String::new();
    for line in blocks[at].1.lines() {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", line]).current_dir(tshark.place()).env("PATH", &path);
        let command = shell.env("HOME", tshark.place()).output().unwrap();
        assert!(command.status.success(), "{line}: {}", String::from_utf8_lossy(&command.stderr));
        output += &String::from_utf8_lossy(&command.stdout);
    }
    assert_eq!(blocks[at + 1], ("text", output.as_str()));
}

/// Sends the call in the guide and its reply, over RPC-over-RDMA version 2.
fn read(rdma: &mut dyn Rdma) {
    let chunk = |len: u32| [0x2a, 2, 32, 0, u32::from(len < 4096), 0x1f07, 0, 1, 1, 0x1f07, len, 0, 0x7000, 0, 0];
    let arguments = b"\0\0\0\x09notes.txt\0\0\0\0\0\x10\0".to_vec();
    rdma.send(true, &[words(&chunk(4096)), call(0x2a, PROGRAM, READ), arguments].concat());
    rdma.write(0x1f07, 0x7000, b"hello world");
    rdma.send(false, &[words(&chunk(11)), read_reply(0x2a, 11)].concat());
}
