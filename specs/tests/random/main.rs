//! Tests with random values of each specification except RPCSEC_GSS: the generated codecs and, if the tools are
//! installed, the C codecs of rpcgen decode an encoding and re-encode it to the same bytes. The module `wire` produces
//! the encodings independently, from the rules of RFC 4506. The module `views` tests borrowed types.

mod c;
mod views;
mod wire;

use std::path::Path;

use proptest::{
    collection::vec,
    prelude::any,
    test_runner::{Config, TestCaseError, TestRunner},
};
use rpcrdma::xdr::{Decoder, XdrDecode, XdrEncode, encode_to_bytes};
use rpcrdma_specs::{mount3, nfs3, nfs4, nfsacl3, nlm4, nsm1, rpc, rpcbind, rpcrdma1, rpcrdma2};
use rpcrdma_xdrgen::{Compiler, ir::Spec};

use crate::{
    c::Transcoder,
    wire::{Choices, encoding},
};

/// Number of random values per type.
const CASES: u32 = 64;

/// A specification that uses the extensions of the XDR language that rpcgen accepts.
mod dialect {
    rpcrdma::include_xdr!("tests/random/dialect.x");
}

struct Comparison {
    spec: Spec,
    narrow: bool,
    c: Option<Transcoder>,
}

impl Comparison {
    fn new(protocol: &str) -> Self {
        let narrow = protocol == "dialect";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(if narrow { "tests/random" } else { "xdr" });
        let path = folder.join(format!("{protocol}.x"));
        let spec = Compiler::new().file(&path).default_reply_max(1 << 20).compile().unwrap().spec;
        let c = Transcoder::new(&path, &spec);
        Self { spec, narrow, c }
    }

    fn check<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(&mut self, name: &str) {
        let Self { spec, narrow, c } = self;
        let c = std::cell::RefCell::new(c.as_mut());
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&vec(any::<u8>(), 0..400), |choices| {
            let bytes = encoding(spec, name, *narrow, Choices(&choices));
            let wrong = |what: String| TestCaseError::fail(format!("{name}: {what}: {bytes:02x?}"));
            let mut decoder = Decoder::new(&bytes);
            let value: T = decoder.read().map_err(|error| wrong(error.to_string()))?;
            decoder.finish().map_err(|error| wrong(error.to_string()))?;
            let back = encode_to_bytes(&value).map_err(|error| wrong(error.to_string()))?;
            if back != bytes {
                return Err(wrong(format!("{value:?} becomes {back:02x?}")));
            }
            let len = value.encoded_len();
            if len != bytes.len() {
                return Err(wrong(format!("encoded_len is {len}")));
            }
            match c.borrow_mut().as_mut().map(|c| c.transcode(name, &bytes)) {
                None => Ok(()),
                Some(Ok(theirs)) if theirs == bytes => Ok(()),
                Some(theirs) => Err(wrong(format!("C gives {theirs:02x?}"))),
            }
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Defines the test of one protocol, for types given by their names in the specification and in Rust.
macro_rules! compare {
    ($protocol:ident: $($name:ident $ty:ident),* $(,)?) => {
        #[test]
        fn $protocol() {
            let mut comparison = Comparison::new(stringify!($protocol));
            $(comparison.check::<$protocol::$ty>(stringify!($name));)*
        }
    };
}

compare! { rpc: rpc_msg RpcMsg, authsys_parms AuthsysParms, opaque_auth OpaqueAuth }

compare! {
    rpcrdma1:
    rdma_msg RdmaMsg, rpc_rdma_header RpcRdmaHeader, rpc_rdma_header_nomsg RpcRdmaHeaderNomsg,
    rpc_rdma_header_padded RpcRdmaHeaderPadded, rpc_rdma_error RpcRdmaError, xdr_rdma_segment XdrRdmaSegment,
    xdr_read_chunk XdrReadChunk, xdr_write_chunk XdrWriteChunk,
}

compare! {
    rpcrdma2:
    rpcrdma2_hdr_prefix Rpcrdma2HdrPrefix, rpcrdma2_chunk_lists Rpcrdma2ChunkLists, rpcrdma2_msg Rpcrdma2Msg,
    rpcrdma2_nomsg Rpcrdma2Nomsg, rpcrdma2_error Rpcrdma2Error, rpcrdma2_connprop Rpcrdma2Connprop,
    rpcrdma2_propset Rpcrdma2Propset, rpcrdma2_propsubset Rpcrdma2Propsubset, rpcrdma2_prop_hostauth
    Rpcrdma2PropHostauth, rpcrdma2_read_segment Rpcrdma2ReadSegment, rpcrdma2_write_chunk Rpcrdma2WriteChunk,
}

compare! {
    rpcbind:
    rpcb Rpcb, rpcb_uaddr RpcbUaddr, rpcblist_ptr RpcblistPtr, rpcb_rmtcallargs RpcbRmtcallargs, rpcb_rmtcallres
    RpcbRmtcallres, netbuf Netbuf, rpcb_entry_list_ptr RpcbEntryListPtr, rpcb_stat_byvers RpcbStatByvers, mapping Mapping,
    pmaplist Pmaplist, call_args CallArgs, call_result CallResult,
}

compare! { mount3: dirpath Dirpath, mountres3 Mountres3, mountlist Mountlist, exports Exports }

compare! {
    nlm4:
    nlm4_testargs Nlm4Testargs, nlm4_testres Nlm4Testres, nlm4_lockargs Nlm4Lockargs, nlm4_cancargs Nlm4Cancargs,
    nlm4_unlockargs Nlm4Unlockargs, nlm4_res Nlm4Res, nlm4_shareargs Nlm4Shareargs, nlm4_shareres Nlm4Shareres,
    nlm4_notify Nlm4Notify,
}

compare! { nfsacl3: GETACL3args Getacl3args, GETACL3res Getacl3res, SETACL3args Setacl3args, SETACL3res Setacl3res }

compare! { nsm1: sm_name SmName, sm_stat_res SmStatRes, mon Mon, mon_id MonId, my_id MyId, sm_stat SmStat, stat_chge StatChge }

compare! {
    nfs3:
    GETATTR3args Getattr3args, GETATTR3res Getattr3res, SETATTR3args Setattr3args, SETATTR3res Setattr3res,
    LOOKUP3args Lookup3args, LOOKUP3res Lookup3res, ACCESS3args Access3args, ACCESS3res Access3res,
    READLINK3args Readlink3args, READLINK3res Readlink3res, READ3args Read3args, READ3res Read3res,
    WRITE3args Write3args, WRITE3res Write3res, CREATE3args Create3args, CREATE3res Create3res,
    MKDIR3args Mkdir3args, MKDIR3res Mkdir3res, SYMLINK3args Symlink3args, SYMLINK3res Symlink3res,
    MKNOD3args Mknod3args, MKNOD3res Mknod3res, REMOVE3args Remove3args, REMOVE3res Remove3res,
    RMDIR3args Rmdir3args, RMDIR3res Rmdir3res, RENAME3args Rename3args, RENAME3res Rename3res,
    LINK3args Link3args, LINK3res Link3res, READDIR3args Readdir3args, READDIR3res Readdir3res,
    READDIRPLUS3args Readdirplus3args, READDIRPLUS3res Readdirplus3res, FSSTAT3args Fsstat3args,
    FSSTAT3res Fsstat3res, FSINFO3args Fsinfo3args, FSINFO3res Fsinfo3res, PATHCONF3args Pathconf3args,
    PATHCONF3res Pathconf3res, COMMIT3args Commit3args, COMMIT3res Commit3res,
}

compare! {
    nfs4:
    COMPOUND4args Compound4args, COMPOUND4res Compound4res, CB_COMPOUND4args CbCompound4args, CB_COMPOUND4res
    CbCompound4res, nfs_argop4 NfsArgop4, nfs_resop4 NfsResop4, nfs_cb_argop4 NfsCbArgop4, nfs_cb_resop4 NfsCbResop4,
}

compare! {
    dialect:
    op Op, unnumbered Unnumbered, thing Thing, c_types CTypes, nodes Nodes, tags Tags, shared Shared, by_letter ByLetter,
    by_bool ByBool, by_number ByNumber,
}
