//! Attributes that do not fit their item.

use rpcrdma::xdr::{Bytes, XdrString};

#[derive(rpcrdma::XdrEncode)]
struct UnknownOption {
    #[xdr(eligible)]
    data: Bytes,
}

#[derive(rpcrdma::XdrEncode)]
struct MaximumOfNumber {
    #[xdr(max = 4)]
    number: u32,
}

#[derive(rpcrdma::XdrEncode)]
struct BothBounds {
    #[xdr(max = 4, len = 4)]
    data: Bytes,
}

#[derive(rpcrdma::XdrEncode)]
struct EligibleCopy {
    #[xdr(ddp)]
    text: String,
}

#[derive(rpcrdma::XdrEncode)]
struct EligibleList {
    #[xdr(list, ddp)]
    nodes: Vec<u32>,
}

#[derive(rpcrdma::XdrEncode)]
struct NoString {
    #[xdr(string)]
    bytes: Bytes,
}

#[derive(rpcrdma::XdrEncode)]
enum NoCase {
    #[xdr(case = 1)]
    One(u32),
    Two(u32),
}

#[derive(rpcrdma::XdrEncode)]
#[xdr(discriminant = bool)]
enum WrongCase {
    #[xdr(case = 1)]
    One(u32),
    #[xdr(case = true)]
    Yes(u32),
    #[xdr(case = true)]
    YesAgain(u32),
}

#[derive(rpcrdma::XdrEncode)]
enum NoDiscriminant {
    #[xdr(default)]
    Other,
}

#[derive(rpcrdma::XdrEncode)]
#[xdr(discriminant = u32)]
struct Plain {
    name: XdrString,
}

#[derive(rpcrdma::XdrEncode)]
enum Empty {}

#[derive(rpcrdma::XdrEncode)]
union Rusts {
    a: u32,
}

fn main() {}
