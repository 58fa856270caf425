//! The only import of the C libraries' interface: `rdma-sys`, which links them, or `rdma-mummy-sys`, which loads them at
//! run time. Both crates use the same names. This module hides the differences.

#[cfg(not(feature = "verbs"))]
pub(super) use rdma_mummy_sys::*;
#[cfg(feature = "verbs")]
pub(super) use rdma_sys::*;

/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_AFONLY` of `rdma/rdma_cma.h`, which neither crate defines.
pub(super) const OPTION_ID: std::ffi::c_int = 0;
pub(super) const OPTION_ID_AFONLY: std::ffi::c_int = 2;

/// Queries a port. (The function `ibv_query_port` of `rdma-sys` is the compatibility symbol, which fills in fewer
/// fields.)
///
/// # Safety
/// `context` must be the context of an open device, and `attributes` must point to writable memory.
pub(super) unsafe fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> std::ffi::c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        #[cfg(feature = "verbs")]
        return ___ibv_query_port(context, port, attributes);
        #[cfg(not(feature = "verbs"))]
        return ibv_query_port(context, port, attributes);
    }
}

/// Allocates a memory window of type 2. Returns null and sets `errno` on failure.
///
/// # Safety
/// `pd` must be a live protection domain.
pub(super) unsafe fn alloc_window(pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: guaranteed by the caller.
    let window = unsafe { ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_2) };
    #[cfg(feature = "verbs")]
    let window = window.unwrap_or(std::ptr::null_mut());
    window
}

/// Returns the library that could not be loaded. Linked libraries are loaded before `main`, so there is none.
#[cfg(feature = "verbs")]
pub(super) fn missing_library() -> Option<&'static str> {
    None
}

/// Returns the library that could not be loaded, if any. `rdma-mummy-sys` loads the libraries before `main` and does not
/// report a failure. Its functions then fail.
#[cfg(not(feature = "verbs"))]
pub(super) fn missing_library() -> Option<&'static str> {
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
