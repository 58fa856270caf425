//! Traits that are not valid services.

use rpcrdma::server::{Context, HandlerError};

#[rpcrdma::service(program = 0x2000_0000, version = 1)]
trait Wrong {
    async fn no_number(&self, cx: &Context) -> Result<(), HandlerError>;

    #[procedure(1)]
    fn not_async(&self, cx: &Context) -> Result<(), HandlerError>;

    #[procedure(2)]
    async fn no_receiver(cx: &Context) -> Result<(), HandlerError>;

    #[procedure(3)]
    async fn no_context(&self) -> Result<(), HandlerError>;

    #[procedure(4)]
    async fn no_result(&self, cx: &Context) -> u32;

    #[procedure(5)]
    async fn five(&self, cx: &Context) -> Result<(), HandlerError>;

    #[procedure(5)]
    async fn five_again(&self, cx: &Context) -> Result<(), HandlerError>;

    const NOT_A_PROCEDURE: u32;
}

#[rpcrdma::service(program = 0x2000_0000)]
trait NoVersion {}

#[rpcrdma::service(program = 0x2000_0000, version = 1, colour = 3)]
trait UnknownOption {}

#[rpcrdma::service(program = 0x2000_0000, version = 1)]
trait WrongBounds {
    #[procedure(1)]
    #[reply_max(computed)]
    async fn no_argument(&self, cx: &Context) -> Result<(), HandlerError>;

    #[procedure(2)]
    #[reply_max(computed)]
    async fn two_arguments(&self, cx: &Context, a: u32, b: u32) -> Result<(), HandlerError>;

    #[procedure(3)]
    #[reply_max(computed, inline = 4)]
    async fn both(&self, cx: &Context, a: u32) -> Result<(), HandlerError>;
}

fn main() {}
