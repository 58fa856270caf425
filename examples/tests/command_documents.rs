//! Shell completions and man pages of the programs.
#![cfg(unix)]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/command_documents.rs"]
mod command_documents;

use command_documents::Program;

#[test]
fn blobstore() {
    Program {
        name: "blobstore",
        path: env!("CARGO_BIN_EXE_blobstore"),
        completions: &[
            (&["se"], "serve"),
            (&["serve", "--li"], "--listen"),
            (&["put", "--att"], "--attach"),
            (&["--gen"], "--generate"),
            (&["--generate", "completions-z"], "completions-zsh"),
        ],
        described: &[
            "Store and fetch named blobs",
            "blobstore serve",
            "Directory for the blobs",
            "blobstore watch",
            "--into",
            "BLOBSTORE_DEMO_SIZE",
            "blobstore put iwarp://localhost:20100 docs/README.md README.md",
        ],
    }
    .check();
}

#[test]
fn iwping() {
    Program {
        name: "iwping",
        path: env!("CARGO_BIN_EXE_iwping"),
        completions: &[(&["cl"], "client"), (&["server", "--max"], "--max-size")],
        described: &["iwping server", "Largest ping to answer", "--connections"],
    }
    .check();
}

#[cfg(target_os = "linux")]
#[test]
fn nfs3d() {
    Program {
        name: "nfs3d",
        path: env!("CARGO_BIN_EXE_nfs3d"),
        completions: &[(&["--no-r"], "--no-root-squash"), (&["--root", "/", "--max"], "--max-memory")],
        described: &["--anon-uid", "$STATE_DIRECTORY", "mount -t nfs", "Ctrl-C stops the server"],
    }
    .check();
}

#[test]
fn nfs41cb() {
    Program {
        name: "nfs41cb",
        path: env!("CARGO_BIN_EXE_nfs41cb"),
        completions: &[(&["--cal"], "--call-timeout")],
        described: &["--wait", "File in the root of the export"],
    }
    .check();
}

#[test]
fn nfscp() {
    Program {
        name: "nfscp",
        path: env!("CARGO_BIN_EXE_nfscp"),
        completions: &[(&["--rec"], "--recursive"), (&["a", "--chunk"], "--chunk-size")],
        described: &["nfscp [OPTIONS] SRC.. DST", "--root-handle", "Symbolic links are copied as links"],
    }
    .check();
}

#[test]
fn rpcping() {
    Program {
        name: "rpcping",
        path: env!("CARGO_BIN_EXE_rpcping"),
        completions: &[(&["--pro"], "--program"), (&["--rpcrdma-version", "1", "--cou"], "--count")],
        described: &["--program", "Number of calls", "Exit status: 0 if every call succeeded"],
    }
    .check();
}

/// `xdrgen` has the same option `--generate`. Neither package depends on the other, so each has a copy of the code.
#[test]
fn both_copies_of_the_code_are_equal() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let other = folder.join("../xdrgen/src/cli/generate.rs");
    // The published package has no neighbour.
    if other.exists() {
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert!(read(folder.join("src/command/generate.rs")) == read(other), "copy one generate.rs over the other");
    }
}
