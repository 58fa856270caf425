//! The only import of the C libraries' interface. It has one module for each feature. All of them use the same names. This
//! module selects one of them.

#[cfg(all(feature = "verbs-bindings", not(feature = "verbs")))]
mod bindings;
#[cfg(all(feature = "verbs-dlopen", not(any(feature = "verbs", feature = "verbs-bindings"))))]
mod rdma_mummy_sys;
#[cfg(feature = "verbs")]
mod rdma_sys;

#[cfg(all(feature = "verbs-bindings", not(feature = "verbs")))]
pub(super) use self::bindings::*;
#[cfg(all(feature = "verbs-dlopen", not(any(feature = "verbs", feature = "verbs-bindings"))))]
pub(super) use self::rdma_mummy_sys::*;
#[cfg(feature = "verbs")]
pub(super) use self::rdma_sys::*;

/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_AFONLY` of `rdma/rdma_cma.h`, which the crates do not define.
pub(super) const OPTION_ID: std::ffi::c_int = 0;
pub(super) const OPTION_ID_AFONLY: std::ffi::c_int = 2;
