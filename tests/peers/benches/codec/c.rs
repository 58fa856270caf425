//! rpcgen's codecs with libtirpc's memory streams. They are compiled without LTO, as in C programs.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::harness::{Arm, Message};

unsafe extern "C" {
    fn peer_decode(which: c_uint, bytes: *mut c_char, len: c_uint) -> c_int;
    fn peer_value(which: c_uint, bytes: *mut c_char, len: c_uint) -> *mut c_void;
    fn peer_encode(which: c_uint, value: *mut c_void, out: *mut c_char, capacity: c_uint) -> c_uint;
}

/// A message that C has decoded.
struct Value(*mut c_void);

pub(crate) fn arm(which: Message, bytes: &'static [u8]) -> Arm {
    let number = which as c_uint;
    let len = c_uint::try_from(bytes.len()).expect("message of 4 GiB or more");
    // SAFETY: C only reads from the stream, which has `len` bytes.
    let value = Value(unsafe { peer_value(number, bytes.as_ptr().cast_mut().cast(), len) });
    assert!(!value.0.is_null(), "C cannot decode the message");
    Arm::new("rpcgen, libtirpc")
        .decode(move || {
            // SAFETY: as above; C keeps no pointer.
            let done = unsafe { peer_decode(number, bytes.as_ptr().cast_mut().cast(), len) };
            assert_eq!(done, 1);
        })
        .encode(bytes, move |out| {
            // Only the first call resizes; later ones overwrite the contents.
            out.resize(bytes.len(), 0);
            // SAFETY: the value is of this message type, and `out` has `len` bytes.
            let written = unsafe { peer_encode(number, value.0, out.as_mut_ptr().cast(), len) };
            assert_eq!(written, len);
        })
}
