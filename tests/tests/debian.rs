//! The specifications that Debian's packages install compile as they are, and what is generated from them does too,
//! without warnings: all of them in this one crate. `build.rs` has the flags that each needs.
#![deny(warnings, missing_docs, rust_2018_idioms, unreachable_pub)]

use rpcrdma::{XdrDecode, XdrEncode, xdr::Bytes};

/// `netobj` of `<rpc/xdr.h>`, as the user of a specification may have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, XdrEncode, XdrDecode)]
pub struct Netobj(#[xdr(max = 1024)] pub Bytes);

/// `des_block` of `<rpc/key_prot.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, XdrEncode, XdrDecode)]
pub struct DesBlock(pub [u8; 8]);

/// `netbuf` of `<rpc/types.h>`, as RFC 1833 section 2.1 has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, XdrEncode, XdrDecode)]
pub struct Netbuf {
    /// Most octets of an address.
    pub maxlen: u32,
    /// The address.
    pub buf: Bytes,
}

include!(concat!(env!("OUT_DIR"), "/debian.rs"));

#[test]
fn what_is_installed_compiles() {
    for (path, package) in MISSING {
        eprintln!("{path} is not installed (Debian: {package}): nothing is generated from it");
    }
    let failed: Vec<String> = FAILED.iter().map(|(path, said)| format!("{path}:\n{said}")).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
