//! What can only be linked without the standard library: it has a panic handler and an allocator of its own, and a crate
//! underneath that brings the standard library in brings those twice. It is built, not run: `.ci/run no_std`.
#![no_std]
#![allow(unsafe_code)] // An allocator, and a name to link to.

use core::{
    alloc::{GlobalAlloc, Layout},
    panic::PanicInfo,
    ptr,
};

use rpcrdma::rpc::Credential;
use rpcrdma_specs::nfs3::{NfsFh3, Read3args, nfs_v3::Nfsproc3Read};
use rpcrdma_tests_no_std::{by_macro, by_script, call, reply, round_trip};

/// Has no memory to give.
struct Nothing;

// SAFETY: null means that there is no memory, for any layout. So nothing is ever given back.
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

/// Codecs of each kind, so that there is code of them: how many octets the call of a READ takes.
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
