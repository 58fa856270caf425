//! Tests of the NFS version 3 server over userspace iWARP and TCP on loopback, with the generated client. Results are
//! compared with the directory that is served.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod acl;
mod attributes;
mod command;
mod data;
mod flavors;
mod fuzzed;
mod hostile;
mod identity;
mod listing;
mod locking;
mod mount;
mod names;
mod raced;
mod raw;
mod repeated;
mod restart;
mod support;
#[path = "../common/time_limit.rs"]
mod time_limit;
