//! Results whose maximum the requester cannot compute (RFC 8166 §6.2).

use rpcrdma::{
    XdrDecode, XdrEncode,
    server::{Context, Failure},
    xdr::Bytes,
};

#[derive(XdrEncode, XdrDecode)]
struct Data {
    #[xdr(ddp)]
    data: Bytes,
}

#[rpcrdma::service(program = 0x2000_0000, version = 1)]
trait Unbounded {
    #[procedure(1)]
    async fn numbers(&self, cx: &Context) -> Result<Vec<u32>, Failure>;

    #[procedure(2)]
    async fn data(&self, cx: &Context) -> Result<Data, Failure>;

    #[procedure(3)]
    #[reply_max(chunks = [1, 2])]
    async fn too_many(&self, cx: &Context) -> Result<Data, Failure>;
}

fn main() {}
