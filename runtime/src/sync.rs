//! Synchronization primitives for modules whose state several threads share.
//!
//! The thread tests compile such a module a second time, with the primitives of `model` in place of these.

#[cfg(feature = "discover")]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};
mod changes;

pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use tokio::sync::Notify;

pub(crate) use self::changes::Changes;

#[cfg(test)]
pub(crate) mod model;
