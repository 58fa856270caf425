//! Tests of the files in `specs/xdr`: the extracted ones equal the output of the extractor, the headers name their
//! sources and all amendments, each amendment is needed, and the files follow RFC 4506.
//!
//! The texts of the specifications are not part of this repository. The environment variable `SPEC_TEXTS` contains the
//! path of a directory with them. Without it, the tests that need a specification check nothing.

use std::{env, fs, path::PathBuf};

use rpcrdma_specs::binding;
use rpcrdma_xdrgen::{
    Compiler,
    extract::{Amendments, ExtractOptions, Extraction, extract, extract_with},
};

const DRAFT: &str = "draft-ietf-nfsv4-rpcrdma-version-two-01.txt";

fn spec_text(name: &str) -> Option<String> {
    let Some(directory) = env::var_os("SPEC_TEXTS") else {
        eprintln!("SPEC_TEXTS is not set, {name} is not compared");
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

/// Compares an extraction with the file `name` in `specs/xdr`. If the environment variable `BLESS` is set, writes the
/// file first.
fn compare(extraction: &Extraction, name: &str) {
    if env::var_os("BLESS").is_some() {
        fs::write(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("xdr").join(name), &extraction.text).unwrap();
    }
    assert_eq!(extraction.text, ours(name), "{name} differs from the extractor's output; set BLESS=1 to update it");
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

#[test]
fn rpcbind_is_as_extracted() {
    let Some(document) = spec_text("rfc1833.txt") else { return };
    let extraction = extract(&document, &amendments("rpcbind.amend")).unwrap();
    assert_eq!(extraction.sections, ["2.1", "3.1"]);
    compare(&extraction, "rpcbind.x");
}

#[test]
fn rpcsec_gss_is_as_extracted() {
    let Some(document) = spec_text("rfc2203.txt") else { return };
    let extraction = extract(&document, &amendments("rpcsec_gss.amend")).unwrap();
    assert_eq!(extraction.sections, ["5", "5.2.2", "5.2.3.1", "5.3.2.2", "5.3.2.3"]);
    compare(&extraction, "rpcsec_gss.x");
}

#[test]
fn mount3_is_as_extracted() {
    let Some(document) = spec_text("rfc1813.txt") else { return };
    let extraction = extract(&document, &amendments("mount3.amend")).unwrap();
    assert_eq!(extraction.sections, ["5.1.4", "5.1.5", "5.2", "5.2.1", "5.2.2", "5.2.5"]);
    compare(&extraction, "mount3.x");
}

#[test]
fn nlm4_is_as_extracted() {
    let Some(document) = spec_text("rfc1813.txt") else { return };
    let extraction = extract(&document, &amendments("nlm4.amend")).unwrap();
    assert_eq!(extraction.sections, ["6.1.4"]);
    compare(&extraction, "nlm4.x");
}

#[test]
fn nfs3_is_as_extracted() {
    let Some(document) = spec_text("rfc1813.txt") else { return };
    let extraction = extract(&document, &amendments("nfs3.amend")).unwrap();
    // The types, the program, and each of its procedures except NULL.
    let procedures = (1..=21).map(|number| format!("3.3.{number}"));
    let sections: Vec<_> = ["2.5", "2.6", "3"].map(str::to_owned).into_iter().chain(procedures).collect();
    assert_eq!(extraction.sections, sections);
    compare(&extraction, "nfs3.x");
}

#[test]
fn nfs4_is_as_extracted() {
    let Some(document) = spec_text("rfc7863.txt") else { return };
    let extraction = extract(&document, &amendments("nfs4.amend")).unwrap();
    assert_eq!(extraction.sections, ["2"]);
    compare(&extraction, "nfs4.x");
}

#[test]
fn rpcrdma2_divides_into_the_two_files_of_the_draft() {
    let Some(document) = spec_text(DRAFT) else { return };
    let extraction = extract(&document, &amendments("rpcrdma2.amend")).unwrap();
    let names: Vec<_> = extraction.files.iter().map(|file| file.name.as_deref().unwrap()).collect();
    // Section 8.2.
    assert_eq!(names, ["common.x", "baseops.x"]);
    let [common, baseops] = &extraction.files[..] else { panic!("two files") };
    assert!(common.text.contains("struct rpcrdma2_segment {") && common.text.contains("WARRANTIES"));
    assert!(
        baseops.text.contains("union rpcrdma2_error switch") && !baseops.text.contains("struct rpcrdma2_segment {")
    );
    let both = declarations(&common.text) + &declarations(&baseops.text);
    assert_eq!(both, declarations(&extraction.text));
}

#[test]
fn a_scanned_copy_of_the_draft_declares_the_same() {
    let Some(document) = spec_text("004_9cf09b66098ebfd9.txt") else { return };
    let sets = [amendments("rpcrdma2-scanned.amend"), amendments("rpcrdma2.amend")];
    let extraction = extract_with(&document, &sets, ExtractOptions::default().scanned()).unwrap();
    assert!(!extraction.repairs.is_empty());
    assert_eq!(declarations(&extraction.text), declarations(&ours("rpcrdma2.x")));
    assert_eq!(extraction.sections, ["8.1", "8.3", "8.4"]);
}

/// Returns the words of an XDR text without its comments.
fn declarations(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        words.push_str(before);
        rest = after.split_once("*/").expect("a comment has an end").1;
    }
    words.push_str(rest);
    words.split_whitespace().map(|word| word.to_owned() + " ").collect()
}

#[test]
fn every_file_names_its_source() {
    let licensed =
        [("rpc.x", "RFC 5531"), ("rpcrdma1.x", "RFC 8166"), ("rpcrdma2.x", "version-two-01"), ("nfs4.x", "RFC 7863")];
    // These RFCs predate the IETF's terms for code components, which the header has to say.
    let older = [
        ("rpcsec_gss.x", "RFC 2203"),
        ("rpcbind.x", "RFC 1833"),
        ("mount3.x", "RFC 1813"),
        ("nlm4.x", "RFC 1813"),
        ("nfsacl3.x", "RFC 1813"),
        ("nfs3.x", "RFC 1813"),
    ];
    for (name, source) in licensed.into_iter().chain(older) {
        let text = ours(name);
        let header = text.split_once("*/").expect("a comment comes first").0;
        assert!(header.contains(source), "{name}");
        if older.contains(&(name, source)) {
            assert!(header.contains("predates the IETF's terms for code components"), "{name}");
        } else {
            // Code components keep their licence.
            assert!(text.contains("IETF Trust and the persons"), "{name}");
        }
    }
}

#[test]
fn the_amendments_are_listed_with_their_reasons() {
    for stem in ["rpcrdma1", "rpcrdma2", "rpcsec_gss", "rpcbind", "mount3", "nlm4", "nfs3", "nfs4"] {
        let (name, list) = (format!("{stem}.x"), &format!("{stem}.amend"));
        // The extractor wraps the header.
        let unwrapped = ours(&name).replace("\n * ", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        for amendment in amendments(list).entries() {
            assert!(
                unwrapped.contains(&amendment.title) && unwrapped.contains(&amendment.reason),
                "{name}: {amendment:?}"
            );
        }
    }
}

/// Returns `true` if the XDR text extracted from `document` compiles, together with its binding if there is one. `text`
/// is the text of the amendments.
fn compiles(document: &str, text: &str, binding: Option<&str>) -> bool {
    let extraction = extract(document, &Amendments::parse(text).unwrap()).unwrap();
    let compiler = Compiler::new().source("extracted.x", extraction.text);
    let compiler = match binding {
        Some(binding) => compiler.ulb_source("extracted.ulb", binding),
        None => compiler,
    };
    compiler.compile().is_ok()
}

/// Titles of amendments without which the extracted text also compiles. Tools that follow RFC 4506 strictly need them.
const TOLERATED: [&str; 7] = [
    "uint32 and uint64 are not declared",
    "`struct` precedes the name of a type",
    "`struct` precedes the name of a type, and lists are joined by typedefs",
    "`long` is not an XDR type",
    "`string` without `<>`",
    "Names of procedures are used as constants",
    "The typedef of rpcrdma2_propid is in the wrong order",
];

#[test]
fn no_amendment_is_superfluous() {
    let all = [
        ("rfc8166.txt", "rpcrdma1", None),
        (DRAFT, "rpcrdma2", None),
        ("rfc2203.txt", "rpcsec_gss", None),
        ("rfc1833.txt", "rpcbind", Some(binding::RPCBIND)),
        ("rfc1813.txt", "mount3", Some(binding::MOUNT3)),
        ("rfc1813.txt", "nlm4", Some(binding::NLM4)),
        ("rfc1813.txt", "nfs3", Some(binding::NFS3)),
        ("rfc7863.txt", "nfs4", Some(binding::NFS4)),
    ];
    for (document, name, binding) in all {
        let Some(document) = spec_text(document) else { return };
        let text = ours(&format!("{name}.amend"));
        assert!(compiles(&document, &text, binding), "{name}");
        let starts: Vec<usize> = text.match_indices("amendment: ").map(|(at, _)| at).chain([text.len()]).collect();
        for pair in starts.windows(2) {
            let one = &text[pair[0]..pair[1]];
            let title = one.lines().next().unwrap_or_default().trim_start_matches("amendment: ");
            let is_legal = title.starts_with("RDMA2_RVRSDIR_CONT has the value of");
            // A later amendment searches for the text that this one inserts.
            let is_needed_by_another = title == "Constants with a type";
            if !is_legal && !is_needed_by_another && !TOLERATED.contains(&title) {
                let without = [&text[..pair[0]], &text[pair[1]..]].concat();
                assert!(!compiles(&document, &without, binding), "{name} compiles without the amendment `{title}`");
            }
        }
    }
}

#[test]
fn files_follow_rfc_4506() {
    for name in [
        "rpc.x",
        "rpcrdma1.x",
        "rpcrdma2.x",
        "rpcsec_gss.x",
        "rpcbind.x",
        "mount3.x",
        "nlm4.x",
        "nsm1.x",
        "nfsacl3.x",
        "nfs3.x",
    ] {
        let text = declarations(&ours(name));
        let words: Vec<&str> = text.split_whitespace().collect();
        for three in words.windows(3) {
            match three {
                // RFC 4506 section 6.3: a name and a body.
                ["struct" | "enum", _, after] => assert_eq!(*after, "{", "{name}: {three:?}"),
                ["union", _, after] => assert_eq!(*after, "switch", "{name}: {three:?}"),
                ["const", _, after] => assert_eq!(*after, "=", "{name}: {three:?}"),
                _ => {}
            }
        }
        if words.iter().any(|word| word.starts_with("uint32")) {
            assert!(text.contains("typedef unsigned int uint32;"), "{name}");
        }
    }
}
