//! The bindings of `rdma-sys`, which links the libraries.

use std::ffi::{CStr, c_int};

pub(crate) use ::rdma_sys::*;

use crate::VerbsError;

/// Queries a port. Returns 0 or an error number. (The function `ibv_query_port` of `rdma-sys` is the compatibility
/// symbol, which fills in fewer fields.)
///
/// # Safety
/// `context` must be the context of an open device, and `attributes` must point to writable memory.
pub(crate) unsafe fn query_port(context: *mut ibv_context, port: u8, attributes: *mut ibv_port_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { ___ibv_query_port(context, port, attributes) }
}

/// Allocates a memory window of type 2. Returns null and sets `errno` on failure.
///
/// # Safety
/// `pd` must be a live protection domain.
pub(crate) unsafe fn alloc_window(pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: guaranteed by the caller.
    unsafe { ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_2) }.unwrap_or(std::ptr::null_mut())
}

/// Returns libibverbs' text for a completion code.
pub(crate) fn status_text(code: ibv_wc_status::Type) -> Option<&'static CStr> {
    // SAFETY: the function takes any number, and returns a constant string.
    Some(unsafe { CStr::from_ptr(ibv_wc_status_str(code)) })
}

/// Makes the functions of the libraries available. Linked libraries were loaded before `main`.
#[allow(clippy::unnecessary_wraps, reason = "loading can fail with the other feature")]
pub(crate) fn load() -> Result<(), VerbsError> {
    Ok(())
}
