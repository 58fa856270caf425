//! An NFS version 3 server (RFC 1813) on RPC-over-RDMA (RFC 8267), with MOUNT version 3, access control lists and
//! locks. It serves a local directory tree to the NFS client of Linux and to others. It is only available on Linux. The
//! program is in `src/bin/nfs3d`.
//!
//! | subject | module |
//! | --- | --- |
//! | the exported directory tree and its settings | `export` |
//! | counters of calls and bytes | [`counters`] |
//! | services, which dispatch calls to the procedures below | [`service`], [`mount`] |
//! | identity of the caller | [`identity`], [`principals`] |
//! | file handles and how their files are found | [`handle`], `tree`, `search`, `object`, [`key`] |
//! | attributes, and how changes affect them | `attributes`, `set_attributes`, `locks` |
//! | names: LOOKUP, CREATE, REMOVE and related procedures | [`name`], `lookup`, `directory`, `create`, `remove` |
//! | READDIR, READDIRPLUS | `listing` |
//! | retransmitted calls | [`service::duplicate_requests`] |
//! | READ, WRITE, COMMIT | `io`, `write_verifier` |
//! | ACCESS; FSSTAT, FSINFO, PATHCONF | `access`; `file_system` |
//! | locks of clients, by NLM and NSM | [`locking`] |
//! | access control lists, by NFSACL | [`acl`] |
//! | calls that need no blocking thread | `prompt` |
//! | errors | [`status`] |
//!
//! # Guarantees
//!
//! - Clients can access only what is in the export. `tree` describes how files are found, and [`handle`] why handles
//!   cannot be forged.
//! - The kernel checks the caller's permissions for every call that depends on them: see [`identity`].
//! - Changes are on stable storage before the reply is sent, except for unstable WRITEs, which use COMMIT and the
//!   verifier.
//! - READ and WRITE do not copy data between the file system and registered memory: see `io`.
//! - Calls of one connection run concurrently, up to its credits.

mod access;
pub mod acl;
mod attributes;
pub mod counters;
mod create;
mod directory;
mod export;
mod file_system;
pub mod handle;
pub mod identity;
mod io;
pub mod key;
mod listing;
pub use listing::{MAX_ENTRIES, READERS};
pub mod locking;
mod locks;
mod lookup;
pub mod mount;
pub mod name;
mod object;
pub mod principals;
mod prompt;
mod remove;
mod search;
pub mod service;
mod set_attributes;
pub mod status;
mod tree;
mod write_verifier;

pub use export::Export;
pub use file_system::DATA_MAX;
