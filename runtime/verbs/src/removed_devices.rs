//! Closing of removed devices.
//!
//! librdmacm opens a device for all connections of the process, and keeps the device open after the last connection has
//! ended. It closes a removed device only when it compares its list of devices with that of the system, and it compares
//! them by itself only when a connection needs a device that its list lacks. Until then, the removal of a soft RoCE or
//! soft iWARP device waits. Drivers of adapters do not wait, and disconnect the process instead. The comparison also
//! opens all devices of the system, so this module causes it only after a removal.

use std::{
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::ffi;

/// Time before each comparison of librdmacm's list of devices with that of the system.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of comparisons after the report of a removal. Several are needed, because the system lists a removed device
/// until it has informed all users of the device.
const COMPARISONS: u32 = 10;

/// The progress of closing removed devices: the number of remaining comparisons, and whether a thread makes them.
#[derive(Debug)]
struct Closing {
    remaining: u32,
    /// `true` while a thread makes comparisons.
    is_running: bool,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { remaining: 0, is_running: false });

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes librdmacm close the removed devices that nothing in this process uses any more, by [`COMPARISONS`] comparisons
/// in a thread. Call this function when the connection manager has reported a removal.
pub(super) fn close_removed_devices() {
    let mut closing = closing();
    closing.remaining = COMPARISONS;
    if closing.is_running {
        return;
    }
    // Not a task: the runtime may end first, and opening a device takes time.
    let thread = thread::Builder::new().name("rdma-devices".into()).spawn(compare_devices);
    match thread {
        Ok(_) => closing.is_running = true,
        Err(error) => tracing::debug!(%error, "failed to start a thread that closes removed devices"),
    }
}

fn compare_devices() {
    loop {
        thread::sleep(PAUSE);
        {
            let mut closing = closing();
            if closing.remaining == 0 {
                closing.is_running = false;
                return;
            }
            closing.remaining -= 1;
        }
        // SAFETY: the libraries are loaded, because a connection exists or existed. The number of devices may be null.
        let devices = unsafe { ffi::rdma_get_devices(ptr::null_mut()) };
        // The library fails if there is no device, and then keeps the removed one open.
        if !devices.is_null() {
            // SAFETY: returned by `rdma_get_devices`, and freed once.
            unsafe { ffi::rdma_free_devices(devices) };
        }
    }
}
