//! The bindings that are part of this crate: the declarations in `generated.rs`, the inline functions of
//! `infiniband/verbs.h`, which the libraries do not export, and in `libraries` the functions that they do export.
//!
//! The bindings belong to `libibverbs.so.1` and `librdmacm.so.1`, and load these files by name. A program compiled from
//! any version of the headers has the same layouts compiled in, through the inline functions. The libraries therefore
//! cannot change the layouts without a new name. `tests/bindings/generate` writes `generated.rs`, and
//! `tests/bindings/check` compares it with installed headers.

use std::{
    ffi::{CStr, c_int},
    mem::offset_of,
    ptr,
};

/// Fails to compile if a structure does not have this size, or a field does not have this offset, in bytes.
macro_rules! layout {
    ($type:ident $size:literal: $($($field:ident).+ = $offset:literal)*) => {
        const _: () = assert!(
            size_of::<$type>() == $size $(&& super::offset_of!($type, $($field).+) == $offset)*,
            concat!("the layout of ", stringify!($type), " differs from that in C")
        );
    };
}

#[macro_use]
mod libraries;

#[allow(dead_code, non_camel_case_types, unreachable_pub, clippy::all)]
#[rustfmt::skip]
mod generated;

pub(crate) use self::{generated::*, libraries::load};

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("the feature `verbs-dlopen` is for Linux on x86-64 and AArch64: use the feature `verbs`");

/// The error number that reports a function that the device's driver does not have.
const UNSUPPORTED: c_int = libc::EOPNOTSUPP;

/// Posts a chain of work requests to the send queue. Returns 0 or an error number.
///
/// # Safety
/// `qp` must be a live queue pair, and `wr` a chain of valid requests that ends with null. `bad` must be writable.
#[inline]
pub(crate) unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: guaranteed by the caller. A live object refers to the context of its device.
    unsafe { (*(*qp).context).ops.post_send.map_or(UNSUPPORTED, |post| post(qp, wr, bad)) }
}

/// Posts a chain of Receives. Returns 0 or an error number.
///
/// # Safety
/// As for [`ibv_post_send`].
#[inline]
pub(crate) unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*qp).context).ops.post_recv.map_or(UNSUPPORTED, |post| post(qp, wr, bad)) }
}

/// Posts a chain of Receives to a shared receive queue. Returns 0 or an error number.
///
/// # Safety
/// `srq` must be a live shared receive queue. The rest is as for [`ibv_post_send`].
#[inline]
pub(crate) unsafe fn ibv_post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*srq).context).ops.post_srq_recv.map_or(UNSUPPORTED, |post| post(srq, wr, bad)) }
}

/// Fetches up to `room` completions. Returns their number, or a negative number on failure.
///
/// # Safety
/// `cq` must be a live completion queue, and `into` must have room for `room` completions.
#[inline]
pub(crate) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, room: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*cq).context).ops.poll_cq.map_or(-1, |poll| poll(cq, room, into)) }
}

/// Arms a completion queue. Returns 0 or an error number.
///
/// # Safety
/// `cq` must be a live completion queue.
#[inline]
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*cq).context).ops.req_notify_cq.map_or(UNSUPPORTED, |notify| notify(cq, solicited_only)) }
}

/// Sets the moderation of a completion queue. Returns 0 or an error number.
///
/// # Safety
/// `cq` must be a live completion queue, and `attributes` readable.
pub(crate) unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attributes: *mut ibv_modify_cq_attr) -> c_int {
    type ModifyCq = unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int;
    // SAFETY: as in `ibv_post_send`. If the context says so, it is the last field of a `verbs_context`. That structure
    // grows at its beginning, and its size tells whether it has the function.
    unsafe {
        let context = (*cq).context;
        if (*context).abi_compat.addr() != usize::MAX {
            return UNSUPPORTED;
        }
        let before = |distance: u32| context.cast::<u8>().sub(distance as usize);
        let size = before(verbs_context_before::SZ).cast::<usize>().read();
        if size < verbs_context_before::MODIFY_CQ as usize + size_of::<ibv_context>() {
            return UNSUPPORTED;
        }
        let modify = before(verbs_context_before::MODIFY_CQ).cast::<Option<ModifyCq>>().read();
        modify.map_or(UNSUPPORTED, |modify| modify(cq, attributes))
    }
}

/// Frees a memory window. Returns 0 or an error number.
///
/// # Safety
/// `window` must be a live window that no work request uses.
pub(crate) unsafe fn ibv_dealloc_mw(window: *mut ibv_mw) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*window).context).ops.dealloc_mw.map_or(UNSUPPORTED, |dealloc| dealloc(window)) }
}

/// Allocates a memory window of type 2. Returns null and sets `errno` on failure.
///
/// # Safety
/// `pd` must be a live protection domain.
pub(crate) unsafe fn alloc_window(pd: *mut ibv_pd) -> *mut ibv_mw {
    // SAFETY: as in `ibv_post_send`; `errno` belongs to this thread.
    unsafe {
        let Some(alloc) = (*(*pd).context).ops.alloc_mw else {
            *libc::__errno_location() = UNSUPPORTED;
            return ptr::null_mut();
        };
        alloc(pd, ibv_mw_type::IBV_MW_TYPE_2)
    }
}

/// Queries a port. Returns 0 or an error number. The exported function is for programs that were compiled with older
/// headers: it leaves the last fields of the structure unchanged, which this crate does not use.
///
/// # Safety
/// `context` must be the context of an open device, and `attributes` must point to writable memory.
pub(crate) unsafe fn query_port(context: *mut ibv_context, port: u8, attributes: *mut ibv_port_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { ibv_query_port(context, port, attributes.cast()) }
}

/// Returns libibverbs' text for a completion code, or `None` if the library is not loaded.
pub(crate) fn status_text(code: ibv_wc_status::Type) -> Option<&'static CStr> {
    libraries::are_loaded().then(|| {
        // SAFETY: the function takes any number, and returns a constant string.
        unsafe { CStr::from_ptr(ibv_wc_status_str(code)) }
    })
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    /// The end of a `verbs_context`, from the function that `ibv_modify_cq` calls.
    #[repr(C)]
    struct ExtendedContext {
        modify_cq: unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int,
        between: [usize; 21],
        size: usize,
        context: ibv_context,
    }

    unsafe extern "C" fn modify(_: *mut ibv_cq, attributes: *mut ibv_modify_cq_attr) -> c_int {
        // SAFETY: the test passes readable attributes.
        unsafe { (*attributes).moderate.cq_count.into() }
    }

    #[test]
    fn extended_functions_need_a_library_that_has_them() {
        let whole = size_of::<ExtendedContext>();
        for (abi, size, result) in [
            (usize::MAX, whole, 7),
            (usize::MAX, whole + 200, 7),
            // An older library, whose structure begins later.
            (usize::MAX, whole - 8, UNSUPPORTED),
            // An `ibv_context` that is not part of a larger structure.
            (0, whole, UNSUPPORTED),
        ] {
            // SAFETY: integers, pointers and functions that may be absent, for which zeros are valid.
            let (mut context, mut cq): (ibv_context, ibv_cq) = unsafe { std::mem::zeroed() };
            context.abi_compat = ptr::without_provenance_mut(abi);
            let mut extended = ExtendedContext { modify_cq: modify, between: [0; 21], size, context };
            let start = (&raw mut extended).cast::<u8>();
            cq.context = start.wrapping_add(offset_of!(ExtendedContext, context)).cast();
            let mut attributes = ibv_modify_cq_attr {
                attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
                moderate: ibv_moderate_cq { cq_count: 7, cq_period: 1 },
            };
            // SAFETY: the queue refers to the context above, which is large enough for the stated size.
            let code = unsafe { ibv_modify_cq(&raw mut cq, &raw mut attributes) };
            assert_eq!(code, result, "{abi:#x}, {size}");
        }
    }

    #[test]
    fn functions_that_a_device_lacks_fail() {
        // SAFETY: as above.
        let (mut context, mut cq, mut qp, mut pd): (ibv_context, ibv_cq, ibv_qp, ibv_pd) =
            unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut srq: ibv_srq = unsafe { std::mem::zeroed() };
        srq.context = &raw mut context;
        cq.context = &raw mut context;
        qp.context = &raw mut context;
        pd.context = &raw mut context;
        let mut completion = MaybeUninit::uninit();
        // SAFETY: the objects are live. No function is called.
        unsafe {
            assert_eq!(ibv_poll_cq(&raw mut cq, 1, completion.as_mut_ptr()), -1);
            assert_eq!(ibv_req_notify_cq(&raw mut cq, 0), UNSUPPORTED);
            assert_eq!(ibv_post_send(&raw mut qp, ptr::null_mut(), &mut ptr::null_mut()), UNSUPPORTED);
            assert_eq!(ibv_post_recv(&raw mut qp, ptr::null_mut(), &mut ptr::null_mut()), UNSUPPORTED);
            assert_eq!(ibv_post_srq_recv(&raw mut srq, ptr::null_mut(), &mut ptr::null_mut()), UNSUPPORTED);
            assert!(alloc_window(&raw mut pd).is_null());
        }
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(UNSUPPORTED));
    }
}
