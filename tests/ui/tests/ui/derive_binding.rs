//! Invalid Upper-Layer Bindings, and a field whose type has no XDR encoding. Only rustc can detect them.

use rpcrdma::{XdrDecode, XdrEncode, xdr::Bytes};

#[derive(XdrEncode, XdrDecode)]
struct Inner {
    #[xdr(ddp)]
    data: Bytes,
}

#[derive(XdrEncode, XdrDecode)]
struct HoldsEligible {
    #[xdr(ddp)]
    inner: Inner,
}

#[derive(XdrEncode, XdrDecode)]
enum Union {
    #[xdr(case = 0)]
    A(u32),
    #[xdr(case = 1)]
    B(u32),
}

#[derive(XdrEncode, XdrDecode)]
struct EligibleUnion {
    #[xdr(ddp)]
    union: Union,
}

#[derive(XdrEncode, XdrDecode)]
struct EligibleElements {
    #[xdr(ddp)]
    names: Vec<Bytes>,
}

#[derive(XdrEncode)]
struct NotXdr {
    number: usize,
}

fn main() {}
