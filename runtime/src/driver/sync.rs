//! The synchronization primitives of `port`.
//!
//! The thread tests compile `port` a second time, with a `sync` module of `shuttle`'s primitives in place of this one.

pub(super) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
