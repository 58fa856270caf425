//! The types of the blobstore protocol, written in Rust.

use rpcrdma::{
    XdrDecode, XdrEncode,
    xdr::{Bytes, XdrString},
};

pub(crate) const MAX_NAME: u32 = 255;

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
pub(crate) struct GetArgs {
    #[xdr(max = MAX_NAME)]
    pub(crate) name: XdrString,
    pub(crate) offset: u64,
    pub(crate) count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, XdrEncode, XdrDecode)]
pub(crate) enum BlobStatus {
    Ok = 0,
    Noent = 2,
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
pub(crate) struct GetOk {
    pub(crate) eof: bool,
    #[xdr(ddp)]
    pub(crate) data: Bytes,
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
#[xdr(discriminant = BlobStatus)]
pub(crate) enum GetRes {
    #[xdr(case = BlobStatus::Ok)]
    Ok(GetOk),
    #[xdr(default)]
    Other(BlobStatus),
}

#[derive(Debug, Clone, PartialEq, XdrEncode, XdrDecode)]
pub(crate) struct PutArgs {
    #[xdr(max = MAX_NAME)]
    pub(crate) name: XdrString,
    #[xdr(ddp)]
    pub(crate) data: Bytes,
}
