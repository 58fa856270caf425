//! {{project-name}}: a key-value store over RPC-over-RDMA.

pub mod store;

/// Types, client and server, generated from `protocol.x` by `build.rs`.
pub mod protocol {
    include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
}
