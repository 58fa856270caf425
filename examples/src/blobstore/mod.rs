//! A store of named blobs over RPC-over-RDMA.
//!
//! | module | contents |
//! | --- | --- |
//! | [`protocol`] | types, codecs, client and server, generated from `xdr/blobstore.x` |
//! | [`store`] | the blobs on disk, independent of the network |
//! | [`service`] | the server: implements the protocol's procedures with the store |
//! | [`watch`] | change notifications by reverse-direction calls, for server and client |
//! | [`transfer`] | the client: stores and fetches files, several ranges at a time |

mod name;
pub mod service;
mod slots;
pub mod store;
pub mod transfer;
pub mod watch;

pub use name::{NameError, ValidName};

pub mod protocol {
    //! Types, client and server of the blobstore protocol, generated from `xdr/blobstore.x`.
    #![allow(missing_docs, reason = "the XDR does not comment every field")]
    rpcrdma::include_xdr!("xdr/blobstore.x");
}
