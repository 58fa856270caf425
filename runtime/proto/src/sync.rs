//! The synchronization primitives of the modules that threads share.
//!
//! The thread tests compile such a module a second time, with `model` in place of this module.

pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(test)]
pub(crate) mod model;
