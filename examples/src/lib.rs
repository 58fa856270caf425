//! Example programs for [`rpcrdma`].
//!
//! - [`blobstore`]: a store of named blobs. It shows every step from the protocol in annotated XDR (`xdr/blobstore.x`)
//!   to a command-line program (`src/bin/blobstore`).
//! - [`counters`]: a service of counters whose additions are made exactly once, with an embedded database.
//! - [`nfscp`]: an NFS version 3 client that copies files and directory trees (`src/bin/nfscp`).
//! - `nfs3d`: an NFS version 3 server for a directory tree, on Linux (`src/bin/nfs3d`).
//! - [`nfs3`]: NFS version 3 values that both the client and the server create.
//! - `inspect`: reads the state of running servers, with the feature `introspection` (`src/bin/rpctop`).
//! - [`command`]: logging, options, errors and shutdown, shared by all commands.
#![forbid(unsafe_code)]

pub mod blobstore;
pub mod command;
pub mod counters;
#[cfg(feature = "introspection")]
pub mod inspect;
pub mod nfs3;
#[cfg(target_os = "linux")]
pub mod nfs3d;
#[cfg(unix)]
pub mod nfscp;

/// Doc tests of the guide's pages with code that needs the feature `tls` or `gss`. `rpcrdma-tests` tests the same pages
/// without these features.
#[cfg(doctest)]
mod guide {
    #[cfg(feature = "tls")]
    #[doc = include_str!("../guide/src/callers.md")]
    pub struct Callers;
    #[cfg(feature = "gss")]
    #[doc = include_str!("../guide/src/kerberos.md")]
    pub struct Kerberos;
    #[cfg(feature = "tls")]
    #[doc = include_str!("../guide/src/tls.md")]
    pub struct Tls;
}
