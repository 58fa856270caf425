//! The C interface of libibverbs and librdmacm. The features `verbs` and `verbs-dlopen` each have a module of bindings,
//! and both modules use the same names. This module selects one of them, and is the only one that imports it.

#[cfg(not(feature = "verbs"))]
mod bindings;
#[cfg(feature = "verbs")]
mod rdma_sys;

#[cfg(not(feature = "verbs"))]
pub(super) use self::bindings::*;
#[cfg(feature = "verbs")]
pub(super) use self::rdma_sys::*;

/// `RDMA_OPTION_ID` of `rdma/rdma_cma.h`: the level of the options of connection identifiers. The modules of bindings
/// define neither this level nor its options.
pub(super) const OPTION_ID: std::ffi::c_int = 0;
/// `RDMA_OPTION_ID_TOS`: the traffic class.
pub(super) const OPTION_ID_TOS: std::ffi::c_int = 0;
/// `RDMA_OPTION_ID_ACK_TIMEOUT`: the exponent of the acknowledgment time-out.
pub(super) const OPTION_ID_ACK_TIMEOUT: std::ffi::c_int = 3;
/// `RDMA_OPTION_ID_AFONLY`: the restriction of an IPv6 identifier to IPv6.
pub(super) const OPTION_ID_AFONLY: std::ffi::c_int = 2;
