//! Introspection of a running server: an ONC RPC program that reports programs and procedures, connections, memory and
//! the slowest calls. Needs the feature `introspection`.
//!
//! [`ServerBuilder::introspection`](crate::server::ServerBuilder::introspection) adds the program to a server. It is
//! served on all listeners of the server, and the server's authenticator and layers apply to it. It reveals the
//! addresses of clients, and the names of procedures.
//!
//! The program has the number 0x20525043, which is in the range for users (RFC 5531 §8.3).
//! `runtime/src/introspection/introspection.x` defines it, and [`protocol`] is generated from this file. Lists come in
//! pages of at most 32 entries. The example program `rpctop` shows the reports.
//!
//! ```no_run
//! # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::{Channel, Server, introspection::protocol::introspection_v1::IntrospectionV1Client};
//!
//! let local_only = |cx: &rpcrdma::Context| cx.peer_addr().ip().is_loopback();
//! let server =
//!     Server::builder().service(service).introspection(local_only).listen("iwarp://127.0.0.1:0").bind().await?;
//! let url = server.urls()[0].clone();
//! let serving = tokio::spawn(server.serve());
//!
//! let client = IntrospectionV1Client::new(Channel::connect(&url).await?);
//! let state = client.server().await?;
//! println!("{} open connections", state.open);
//! # serving.await?; Ok(()) }
//! ```

mod observed;

pub mod protocol {
    //! Types, client and server of the program INTROSPECTION, generated from `introspection.x`.
    crate::include_xdr!("src/introspection/introspection.x");
}

pub(crate) use self::observed::{ObservedCalls, SlowCall};
