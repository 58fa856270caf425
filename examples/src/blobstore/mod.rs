//! A store of named blobs over RPC-over-RDMA.
//!
//! | module | |
//! | --- | --- |
//! | [`protocol`] | what the compiler makes of `xdr/blobstore.x` |
//! | [`store`] | the blobs on disk; knows nothing of the network |

mod name;
pub mod store;

pub use name::{Name, NameError};

/// Types, client and server of `xdr/blobstore.x`.
pub mod protocol {
    /// Longest name.
    pub const BLOB_NAME_MAX: u32 = 255;
    /// Longest attachment.
    pub const BLOB_ATTACHMENT_MAX: u32 = 1 << 20;
}
