//! The bindings of `rdma-mummy-sys`, which loads the libraries at run time.

use std::ffi::c_int;

pub(crate) use ::rdma_mummy_sys::*;

/// Queries a port.
///
/// # Safety
/// `context` must be the context of an open device, and `attributes` must point to writable memory.
pub(crate) unsafe fn query_port(context: *mut ibv_context, port: u8, attributes: *mut ibv_port_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { ibv_query_port(context, port, attributes) }
}

/// Allocates a memory window of type 2. Returns null and sets `errno` on failure.
///
/// # Safety
/// `pd` must be a live protection domain.
pub(crate) unsafe fn alloc_window(pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: guaranteed by the caller.
    unsafe { ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_2) }
}

/// Returns the library that could not be loaded, if any. `rdma-mummy-sys` loads the libraries before `main` and does not
/// report a failure. Its functions then fail.
pub(crate) fn missing_library() -> Option<&'static str> {
    [c"libibverbs.so.1", c"librdmacm.so.1"].into_iter().find_map(|name| {
        // SAFETY: the name is a NUL-terminated string. RTLD_NOLOAD loads nothing, so no library code runs.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return name.to_str().ok();
        }
        // SAFETY: opened above and closed once. The crate that loaded the library still holds it.
        unsafe { libc::dlclose(library) };
        None
    })
}
