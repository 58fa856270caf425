//! Tests of the shell completions and the man page of `xdrgen`.
#![cfg(unix)]

#[path = "../../examples/tests/common/command_documents.rs"]
mod command_documents;

#[test]
fn xdrgen() {
    command_documents::Program {
        name: "xdrgen",
        path: env!("CARGO_BIN_EXE_xdrgen"),
        completions: &[
            (&["che"], "check"),
            (&["gen", "--def"], "--default-reply-max"),
            (&["gen", "store.x", "--der"], "--derive"),
            (&["check", "--tog"], "--together"),
            (&["--color", "al"], "always"),
        ],
        described: &[
            "Compiler for XDR",
            "xdrgen gen",
            "Generate no clients. Replies then need no maximum size",
            "xdrgen extract",
            "Repair `///` marks",
            "--default-reply-max",
            "xdrgen gen blobstore.x -o src/blobstore.rs",
            "a file cannot be read or written",
        ],
    }
    .check();
}

/// `--generate` together with a subcommand is an error.
#[test]
fn the_option_excludes_subcommands() {
    for arguments in [["--generate", "man", "check", "x.x"], ["check", "--generate", "man", "x.x"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_xdrgen")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("--generate"), "{arguments:?}: {errors}");
    }
}
