//! Generated code gives no warnings in a program that uses little of it, whichever way it is included.
#![deny(warnings)]
#![allow(unreachable_pub)]

/// Declares a module for each golden file.
macro_rules! files {
    ($($name:ident $path:literal)*) => {
        $(#[path = $path] mod $name;)*
    };
}

files! {
    borrowed "../../xdrgen/tests/golden/borrowed.rs"
    client "../../xdrgen/tests/golden/client.rs"
    constant "../../xdrgen/tests/golden/constant.rs"
    enumeration "../../xdrgen/tests/golden/enumeration.rs"
    option "../../xdrgen/tests/golden/option.rs"
    procedure "../../xdrgen/tests/golden/procedure.rs"
    result "../../xdrgen/tests/golden/result.rs"
    server "../../xdrgen/tests/golden/server.rs"
    typedef "../../xdrgen/tests/golden/typedef.rs"
    union "../../xdrgen/tests/golden/union.rs"
}

mod included {
    include!("../../xdrgen/tests/golden/eligible.rs");
}

/// Generated code in one module with other generated code, and with an import of a name that generated code uses.
mod beside {
    use rpcrdma::xdr::Bytes;

    include!("../../xdrgen/tests/golden/list.rs");
    include!("../../xdrgen/tests/golden/prefix.rs");

    pub(crate) fn empty() -> Bytes {
        Bytes::new()
    }
}

mod expanded {
    rpcrdma::include_xdr!("../xdrgen/tests/constructs/blobstore.x", strip_enum_prefix);
}

#[test]
fn some_of_it_is_used() {
    assert_eq!(expanded::BlobStatus::Ok.to_string(), "BLOB_OK");
    assert_eq!(beside::Kind::File.to_string(), "KIND_FILE");
    assert!(beside::empty().is_empty());
}
