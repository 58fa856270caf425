//! A library that can only be linked without the standard library, because it defines a panic handler.
//!
//! If a dependency used the standard library, there would be two panic handlers. `.ci/run no_std` builds this library,
//! but does not run it.
#![no_std]
#![allow(unsafe_code)] // The allocator and the exported symbol need it.

use core::{
    alloc::{GlobalAlloc, Layout},
    panic::PanicInfo,
    ptr,
};

use rpcrdma::rpc::Credential;
use rpcrdma_specs::nfs3::{NfsFh3, Read3args, nfs_v3::Nfsproc3Read};
use rpcrdma_tests_no_std::{by_macro, by_script, call, reply, round_trip};

/// An allocator without memory.
struct Nothing;

// SAFETY: `alloc` returns null, which reports failure for any layout, so `dealloc` is never called with memory.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// Uses codecs from `rpcrdma-specs`, the macro and the build script, so that their code is linked. Returns the sum of
/// the length of a READ call and the number of successful decodings, or 0 if the call cannot be encoded.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_bare(xid: u32, offset: u64) -> usize {
    let args = Read3args { file: NfsFh3::default(), offset, count: 1 << 20 };
    let Ok(message) = call::<Nfsproc3Read>(xid, &Credential::sys("bare", 0, 0, []), &args) else { return 0 };
    let understood = [
        reply::<Nfsproc3Read>(xid, &message).is_some(),
        round_trip(&by_macro::Label::from("bare")).is_ok(),
        round_trip(&by_script::Serial::default()).is_ok(),
    ];
    message.len() + understood.into_iter().filter(|understood| *understood).count()
}
