//! Arguments that do not implement `BoundsReply`, although `reply_max(computed)` requires it.

use rpcrdma::server::{Context, HandlerError};

mod store {
    rpcrdma::xdr! {
        #![server = false]

        typedef string key<64>;
        struct keys { key names<16>; };
        struct value { @ddp opaque data<>; };
        program STORE {
            version STORE_V1 { @reply_max(computed) value GET(keys) = 1; } = 1;
        } = 0x20000000;
    }
}

#[rpcrdma::service(program = 0x2000_0001, version = 1)]
trait Finder {
    #[procedure(1)]
    #[reply_max(computed)]
    async fn find(&self, cx: &Context, keys: store::Keys) -> Result<store::Value, HandlerError>;
}

fn main() {}
