//! Copies files and trees from and to an export of NFS version 3, over RDMA or TCP.
//!
//! | module | |
//! | --- | --- |
//! | [`location`] | `nfs3+rdma://host:port/path`, or a path on this machine |
//! | [`mount`] | an export's root: rpcbind and MOUNT version 3, over TCP |
//! | [`client`] | NFS 3's procedures as one wants them: failures as errors, calls made again where that may help |
//! | [`window`] | how many calls carry data at a time: as many as the server grants credits |
//! | [`resolve`] | paths below an export, symbolic links included |
//! | [`read`], [`write`](mod@write) | a file's data: ranges in parallel, UNSTABLE writes with COMMIT, sparse files |
//! | [`copy`] | trees: what is to be done next, what has become of it |
//! | [`session`] | which server, which export, from where to where |
//!
//! Data is not copied on its way. A READ's result is written to the file from the memory that the server's RDMA Write put
//! it in; a WRITE's argument is read from the file into memory of the channel's pool, and fetched from there by the
//! server's RDMA Read.

mod attributes;
pub mod client;
pub mod copy;
pub mod error;
mod extents;
pub mod location;
pub mod mount;
pub mod read;
pub mod resolve;
mod retry;
mod same;
pub mod session;
pub mod window;
pub mod write;
