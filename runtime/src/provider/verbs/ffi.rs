//! The one place that names the crate with the C libraries' interface: `rdma-sys`, which links them, or
//! `rdma-mummy-sys`, which loads them at run time. Both have the same names; where they differ is here.

#[cfg(not(feature = "verbs"))]
pub(super) use rdma_mummy_sys::*;
#[cfg(feature = "verbs")]
pub(super) use rdma_sys::*;

/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_AFONLY` of `rdma/rdma_cma.h`, which neither crate has.
pub(super) const OPTION_ID: std::ffi::c_int = 0;
pub(super) const OPTION_ID_AFONLY: std::ffi::c_int = 2;

/// Queries a port. (The function of this name in `rdma-sys` is the compatibility symbol, which fills in less.)
///
/// # Safety
/// `context` is an open device's, and `attributes` points to writable memory.
pub(super) unsafe fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> std::ffi::c_int {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(feature = "verbs")]
        return ___ibv_query_port(context, port, attributes);
        #[cfg(not(feature = "verbs"))]
        return ibv_query_port(context, port, attributes);
    }
}

/// Allocates a memory window of type 2; null, with `errno`, where there is none to be had.
///
/// # Safety
/// `pd` is a protection domain.
pub(super) unsafe fn alloc_window(pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: the caller's promise.
    let window = unsafe { ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_2) };
    #[cfg(feature = "verbs")]
    let window = window.unwrap_or(std::ptr::null_mut());
    window
}

/// The library that could not be loaded, if one could not: it is linked, or was loaded before `main`.
#[cfg(feature = "verbs")]
pub(super) fn missing_library() -> Option<&'static str> {
    None
}

/// The library that could not be loaded, if one could not. `rdma-mummy-sys` tries before `main`, keeps it to itself if it
/// cannot, and then has every function of the library's fail.
#[cfg(not(feature = "verbs"))]
pub(super) fn missing_library() -> Option<&'static str> {
    [c"libibverbs.so.1", c"librdmacm.so.1"].into_iter().find_map(|name| {
        // SAFETY: the name is a string that ends with a zero; nothing is loaded that is not there already, so nothing runs.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return name.to_str().ok();
        }
        // SAFETY: opened above, and closed once: who loaded it holds it as well.
        unsafe { libc::dlclose(library) };
        None
    })
}
