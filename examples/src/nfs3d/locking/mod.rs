//! Locks of files: NLM version 4 (RFC 1813, appendix II) and NSM version 1 (XNFS), as Linux's client uses them.
//!
//! NFS version 3 has no locks. Clients lock ranges of files by NLM. Clients and server notify each other of restarts by
//! NSM. Both protocols are served over TCP (RFC 8267 §5.1), also for clients that use NFS over RDMA. Linux's
//! `sm-notify` also needs NSM over UDP.
//!
//! - A lock belongs to a process on a host. `owner` describes how hosts are told apart.
//! - A blocked request is granted by a call to the NLM service on the client, which rpcbind on the client's host
//!   locates. `callback` describes what happens if the client does not answer.
//! - Hosts with monitored locks are listed in a file. After a restart of the server, they are notified, and for a grace
//!   period the server grants only reclaims.
//! - A client that restarts loses its locks.
//! - [`LockLimits`] bound the locks of each client, and those of all clients together.
//!
//! Asynchronous procedures (`_MSG`, `_RES`) and DOS reservations (SHARE, UNSHARE) are not implemented. Linux's client
//! uses neither. The server does not look for deadlocks. Locks do not affect NFS calls or local processes: they are
//! advisory.

mod access;
mod callback;
mod limits;
mod manager;
mod monitored;
mod nlm;
mod notify;
mod nsm;
mod owner;
mod range;
mod table;
#[cfg(test)]
mod table_tests;
mod udp;

pub use limits::LockLimits;
pub use manager::{CallbackTiming, LockConfig, LockManager};
pub use nlm::NlmService;
pub use nsm::NsmService;
