//! The specifications that Debian's packages install compile unchanged, and the code generated from them compiles
//! without warnings in this crate. `build.rs` has the flags of each specification.
#![deny(warnings, missing_docs, rust_2018_idioms, unreachable_pub)]

use rpcrdma::{XdrDecode, XdrEncode, xdr::Bytes};

/// `netobj` of `<rpc/xdr.h>`, as a user of a specification could define it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, XdrEncode, XdrDecode)]
pub struct Netobj(#[xdr(max = 1024)] pub Bytes);

/// `des_block` of `<rpc/auth.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, XdrEncode, XdrDecode)]
pub struct DesBlock(pub [u8; 8]);

/// `netbuf` of `<rpc/types.h>`, as in RFC 1833 section 2.1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, XdrEncode, XdrDecode)]
pub struct Netbuf {
    /// Maximum length of an address, in bytes.
    pub maxlen: u32,
    /// The address.
    pub buf: Bytes,
}

include!(concat!(env!("OUT_DIR"), "/debian.rs"));

#[test]
fn installed_specifications_compile() {
    for (path, package) in MISSING {
        eprintln!("{path} is not installed (Debian: {package}), not tested");
    }
    let failed: Vec<String> = FAILED.iter().map(|(path, said)| format!("{path}:\n{said}")).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
