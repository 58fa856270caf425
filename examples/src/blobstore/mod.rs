//! A store of named blobs over RPC-over-RDMA.
//!
//! | module | |
//! | --- | --- |
//! | [`protocol`] | what the compiler makes of `xdr/blobstore.x`: types, codecs, client, server |
//! | [`store`] | the blobs on disk; knows nothing of the network |
//! | [`service`] | the server side: the protocol's procedures in terms of the store |
//! | [`watch`] | both sides of watching: the server calls its clients back |
//! | [`transfer`] | the client side: files to blobs and back, several ranges at a time |

mod name;
pub mod service;
pub mod store;
pub mod transfer;
pub mod watch;

pub use name::{Name, NameError};

pub mod protocol {
    //! Types, client and server, generated from `xdr/blobstore.x`.
    #![allow(missing_docs, reason = "fields without a comment in the XDR have none here")]
    rpcrdma::include_xdr!("xdr/blobstore.x");
}
