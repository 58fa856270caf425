//! rpcgen's codecs, called by libtirpc's memory streams. The C compiler and the linker that is told of no LTO see them by
//! themselves, as C programs do.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::harness::{Arm, Message};

unsafe extern "C" {
    fn peer_decode(which: c_uint, octets: *mut c_char, len: c_uint) -> c_int;
    fn peer_value(which: c_uint, octets: *mut c_char, len: c_uint) -> *mut c_void;
    fn peer_encode(which: c_uint, value: *mut c_void, out: *mut c_char, capacity: c_uint) -> c_uint;
}

/// A decoded message of C's.
struct Value(*mut c_void);

pub(crate) fn arm(which: Message, octets: &'static [u8]) -> Arm {
    let number = which as c_uint;
    let len = c_uint::try_from(octets.len()).expect("less than 4 GiB");
    // SAFETY: the stream is only read from, and `len` octets long.
    let value = Value(unsafe { peer_value(number, octets.as_ptr().cast_mut().cast(), len) });
    assert!(!value.0.is_null(), "C does not decode it");
    Arm::new("rpcgen, libtirpc")
        .decode(move || {
            // SAFETY: as above; nothing of it is kept.
            let done = unsafe { peer_decode(number, octets.as_ptr().cast_mut().cast(), len) };
            assert_eq!(done, 1);
        })
        .encode(octets, move |out| {
            // The first time only: C writes over what is there.
            out.resize(octets.len(), 0);
            // SAFETY: the value is of this message, and `out` has room for as much as is told.
            let written = unsafe { peer_encode(number, value.0, out.as_mut_ptr().cast(), len) };
            assert_eq!(written, len);
        })
}
