//! The only import of the C libraries' interface. Each feature has a module of bindings, and both modules use the same
//! names. This module selects one of them.

#[cfg(not(feature = "verbs"))]
mod bindings;
#[cfg(feature = "verbs")]
mod rdma_sys;

#[cfg(not(feature = "verbs"))]
pub(super) use self::bindings::*;
#[cfg(feature = "verbs")]
pub(super) use self::rdma_sys::*;

/// `RDMA_OPTION_ID` and some of its options, of `rdma/rdma_cma.h`, which the modules do not define.
pub(super) const OPTION_ID: std::ffi::c_int = 0;
pub(super) const OPTION_ID_TOS: std::ffi::c_int = 0;
pub(super) const OPTION_ID_ACK_TIMEOUT: std::ffi::c_int = 3;
pub(super) const OPTION_ID_AFONLY: std::ffi::c_int = 2;
