//! Results whose maximum is not known, and stated maxima that do not fit the result (RFC 8166 §6.2).

use rpcrdma::{
    XdrDecode, XdrEncode,
    server::{Context, HandlerError},
    xdr::{Bytes, XdrString},
};

#[derive(XdrEncode, XdrDecode)]
struct Data {
    #[xdr(ddp)]
    data: Bytes,
}

#[derive(XdrEncode, XdrDecode)]
struct Pair {
    #[xdr(ddp)]
    first: Bytes,
    #[xdr(ddp)]
    second: Bytes,
}

#[derive(XdrEncode, XdrDecode)]
struct Tree {
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

#[rpcrdma::service(program = 0x2000_0000, version = 1)]
trait Unbounded {
    #[procedure(1)]
    async fn numbers(&self, cx: &Context) -> Result<Vec<u32>, HandlerError>;

    #[procedure(2)]
    async fn data(&self, cx: &Context) -> Result<Data, HandlerError>;

    #[procedure(3)]
    #[reply_max(chunks = [1, 2])]
    async fn too_many(&self, cx: &Context) -> Result<Data, HandlerError>;

    #[procedure(4)]
    async fn text(&self, cx: &Context) -> Result<XdrString, HandlerError>;

    #[procedure(5)]
    #[reply_max(chunks = [8192])]
    async fn too_few(&self, cx: &Context) -> Result<Pair, HandlerError>;

    #[procedure(7)]
    #[reply_max(inline = 1000)]
    async fn recursive(&self, cx: &Context) -> Result<Tree, HandlerError>;

    #[procedure(6)]
    #[reply_max(chunks = [8192], inline = 9000)]
    async fn second_inline(&self, cx: &Context) -> Result<Pair, HandlerError>;
}

fn main() {}
