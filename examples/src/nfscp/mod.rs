//! A client that copies files and directory trees to or from an NFS version 3 server, over RDMA or TCP.
//!
//! | module | contents |
//! | --- | --- |
//! | [`location`] | `nfs3+rdma://host:port/path`, or a local path |
//! | [`mount`] | the root of an export: rpcbind and MOUNT version 3, over TCP |
//! | [`client`] | NFS version 3 procedures with errors and retries |
//! | [`window`] | the limit on concurrent calls that carry data |
//! | [`resolve`] | path lookup in an export, including symbolic links |
//! | [`read`], [`write`](mod@write) | file data: parallel ranges, UNSTABLE writes with COMMIT, sparse files |
//! | [`copy`] | trees: schedules the work and counts the results |
//! | [`session`] | a server, its mounted exports, and copies between them and the local machine |
//!
//! Over RDMA, file data is not copied in memory, unless it is short or protected by krb5i or krb5p. A READ's result is
//! written to the file from the buffer in which the server's RDMA Write placed it. A WRITE's data is read from the file
//! into a buffer of the channel's pool, from which the server's RDMA Read fetches it.

mod attributes;
pub mod client;
pub mod copy;
pub mod error;
mod extents;
pub mod location;
pub mod mount;
mod options;
pub mod read;
pub mod resolve;
mod retry;
pub mod session;
pub mod window;
pub mod write;
mod written_files;
