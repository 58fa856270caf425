//! An NFS version 3 server (RFC 1813) on RPC-over-RDMA (RFC 8267): a directory tree of this machine for Linux's NFS client
//! and others, with MOUNT version 3 beside it. The command is in `src/bin/nfs3d`. Linux only.
//!
//! | concern | where |
//! | --- | --- |
//! | the services: from a call to a procedure below | [`service`], [`mount`] |
//! | who a call is carried out as | [`identity`] |
//! | file handles, and finding their files | [`handle`], `tree`, `search`, `object`, [`key`] |
//! | attributes, and the effect of a change on them | `attributes`, `set_attributes`, `locks` |
//! | names: LOOKUP, CREATE .., REMOVE .. | [`name`], `lookup`, `directory`, `create`, `remove` |
//! | READDIR, READDIRPLUS | `listing` |
//! | calls that are repeated | `replies` |
//! | READ, WRITE, COMMIT | `io`, `write_verifier` |
//! | ACCESS; FSSTAT, FSINFO, PATHCONF | `access`; `file_system` |
//! | errors | [`status`] |
//!
//! # What holds
//!
//! - A client reaches what is in the export, and nothing else: see `tree` for how files are found, [`handle`] for why a
//!   handle cannot be made up.
//! - What a call may do is the kernel's decision, taken for the caller: see [`identity`].
//! - What is answered as done is on stable storage, unstable WRITEs apart; for those there are COMMIT and the verifier.
//! - The data of READ and WRITE is not copied between the file system and registered memory: see `io`.
//! - Calls of one connection are carried out concurrently, up to the credits granted to it.

mod access;
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
mod locks;
mod lookup;
pub mod mount;
pub mod name;
mod object;
mod remove;
mod replies;
mod search;
pub mod service;
mod set_attributes;
pub mod status;
mod tree;
mod write_verifier;

pub use export::Export;
pub use file_system::DATA_MAX;
