//! Programs over [`rpcrdma`] to copy from.
//!
//! [`blobstore`]: a store of named blobs, from its protocol in annotated XDR (`xdr/blobstore.x`) to a command that
//! serves, stores, fetches and measures (`src/bin/blobstore`).
//!
//! [`nfscp`]: a client of NFS 3 that copies files and trees (`src/bin/nfscp`).
//!
//! `nfs3d`: an NFS 3 server for a directory tree, on Linux (`src/bin/nfs3d`).
//!
//! [`command`]: what all commands log, take, tell and end by.
#![forbid(unsafe_code)]

pub mod blobstore;
pub mod command;
pub mod nfs3;
#[cfg(target_os = "linux")]
pub mod nfs3d;
#[cfg(unix)]
pub mod nfscp;
