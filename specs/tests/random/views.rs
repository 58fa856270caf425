//! Tests with random values that the borrowed types of NFS versions 3 and 4 behave like the owned types. Both encode to
//! the same bytes, and both report the same errors for truncated or damaged input.

use proptest::{
    collection::vec,
    prelude::any,
    test_runner::{Config, TestCaseError, TestRunner},
};
use rpcrdma::xdr::{Decoder, XdrDecode, XdrDecodeRef, XdrEncode, encode_to_bytes};
use rpcrdma_specs::nfs3;

use crate::{
    Comparison,
    wire::{Choices, encoding},
};

/// NFS version 4 with borrowed types, as `xdrgen gen --borrowed` generates them.
#[allow(dead_code)]
mod nfs4 {
    use rpcrdma::service::{BoundsReply, ReplyBounds};

    rpcrdma::include_xdr!("xdr/nfs4.x", ulb = "xdr/nfs4.ulb", borrowed, open(nfs_argop4, nfs_cb_argop4), types_only);

    // The bounds are not used here.
    impl BoundsReply for Compound4args {
        fn reply_bounds(&self) -> ReplyBounds {
            ReplyBounds::default()
        }
    }

    impl BoundsReply for CbCompound4args {
        fn reply_bounds(&self) -> ReplyBounds {
            ReplyBounds::default()
        }
    }
}

/// Decodes and re-encodes `bytes`. Returns an error as text, with its offset if `read` fails.
fn transcoded<'a, T: XdrEncode>(
    bytes: &'a [u8],
    read: impl Fn(&mut Decoder<'a>) -> Result<T, rpcrdma::xdr::DecodeError>,
) -> Result<Vec<u8>, String> {
    let mut decoder = Decoder::new(bytes);
    let value = read(&mut decoder).map_err(|error| format!("{error} at {}", error.offset()))?;
    decoder.finish().map_err(|error| error.to_string())?;
    let back = encode_to_bytes(&value).map_err(|error| error.to_string())?;
    assert_eq!(value.encoded_len(), back.len());
    Ok(back.to_vec())
}

type Transcode = for<'a> fn(&'a [u8]) -> Result<Vec<u8>, String>;

fn same(comparison: &Comparison, name: &str, owned: Transcode, borrowed: Transcode) {
    let config = Config { cases: super::CASES, failure_persistence: None, ..Config::default() };
    let input = (vec(any::<u8>(), 0..400), any::<proptest::sample::Index>(), any::<u8>());
    let outcome = TestRunner::new(config).run(&input, |(choices, at, byte)| {
        let bytes = encoding(&comparison.spec, name, false, Choices(&choices));
        let check = |what: &str, bytes: &[u8]| match (owned(bytes), borrowed(bytes)) {
            (one, other) if one == other => Ok(one),
            (one, other) => Err(TestCaseError::fail(format!("{name}, {what}: {one:02x?}, but {other:02x?}"))),
        };
        if check("whole", &bytes)?.as_ref() != Ok(&bytes) {
            return Err(TestCaseError::fail(format!("{name} re-encodes to other bytes: {bytes:02x?}")));
        }
        let at = at.index(bytes.len());
        check("cut off", &bytes[..at])?.expect_err("a truncated value decodes");
        let mut damaged = bytes;
        damaged[at] = byte;
        check("damaged", &damaged).map(drop)
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Defines the test of one protocol, for types given by the name in the specification, the owned type and the borrowed
/// type.
macro_rules! compare_views {
    ($protocol:ident: $($name:ident $owned:ident $borrowed:ident),* $(,)?) => {
        #[test]
        fn $protocol() {
            let comparison = Comparison::new(stringify!($protocol));
            $(same(
                &comparison,
                stringify!($name),
                |bytes| transcoded(bytes, $protocol::$owned::decode),
                |bytes| transcoded(bytes, $protocol::$borrowed::decode_ref),
            );)*
        }
    };
}

compare_views! {
    nfs3:
    SETATTR3args Setattr3args Setattr3argsRef, LOOKUP3args Lookup3args Lookup3argsRef,
    LOOKUP3res Lookup3res Lookup3resRef, READLINK3res Readlink3res Readlink3resRef, READ3args Read3args Read3argsRef,
    READ3res Read3res Read3resRef, WRITE3args Write3args Write3argsRef, CREATE3args Create3args Create3argsRef,
    CREATE3res Create3res Create3resRef, SYMLINK3args Symlink3args Symlink3argsRef,
    MKNOD3args Mknod3args Mknod3argsRef, RENAME3args Rename3args Rename3argsRef, READDIR3res Readdir3res Readdir3resRef,
    READDIRPLUS3res Readdirplus3res Readdirplus3resRef,
}

compare_views! {
    nfs4:
    COMPOUND4args Compound4args Compound4argsRef, COMPOUND4res Compound4res Compound4resRef,
    CB_COMPOUND4args CbCompound4args CbCompound4argsRef, CB_COMPOUND4res CbCompound4res CbCompound4resRef,
    nfs_argop4 NfsArgop4 NfsArgop4Ref, nfs_resop4 NfsResop4 NfsResop4Ref,
}
