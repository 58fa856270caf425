//! What `specs/xdr` holds is what the extractor makes of the specifications. Their texts are not part of this
//! repository: the environment variable `SPEC_TEXTS` names a directory that has them; without it there is nothing to
//! compare with.

use std::{env, fs, path::PathBuf};

use rpcrdma_xdrgen::extract::{Amendments, Extraction, extract};

const DRAFT: &str = "draft-ietf-nfsv4-rpcrdma-version-two-01.txt";

fn spec_text(name: &str) -> Option<String> {
    let Some(directory) = env::var_os("SPEC_TEXTS") else {
        eprintln!("SPEC_TEXTS is not set: {name} is not compared");
        return None;
    };
    let path = PathBuf::from(directory).join(name);
    Some(fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn ours(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("xdr").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn amendments(name: &str) -> Amendments {
    Amendments::parse(&ours(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Compares, or rewrites our file when `BLESS` is set.
fn compare(extraction: &Extraction, name: &str) {
    if env::var_os("BLESS").is_some() {
        fs::write(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("xdr").join(name), &extraction.text).unwrap();
    }
    assert_eq!(extraction.text, ours(name), "{name} is not what the extractor makes");
}

#[test]
fn rpcrdma1_is_as_extracted() {
    let Some(document) = spec_text("rfc8166.txt") else { return };
    let extraction = extract(&document, &amendments("rpcrdma1.amend")).unwrap();
    assert_eq!(extraction.sections, ["4.1.1", "4.1.2"]);
    assert!(extraction.files.is_empty());
    compare(&extraction, "rpcrdma1.x");
}

#[test]
fn rpcrdma2_is_as_extracted() {
    let Some(document) = spec_text(DRAFT) else { return };
    let extraction = extract(&document, &amendments("rpcrdma2.amend")).unwrap();
    assert_eq!(extraction.sections, ["8.1", "8.3", "8.4"]);
    compare(&extraction, "rpcrdma2.x");
}
