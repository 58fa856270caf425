//! RDMA devices and their capabilities.

use std::{ffi::CStr, io, mem::MaybeUninit, ptr::NonNull};

use super::{
    error::VerbsError,
    ffi::{self, ibv_device_cap_flags as cap, ibv_node_type, ibv_transport_type, ibv_wc_flags as wc_flag},
};

/// Device families. The limits of some families differ from the attributes that the device reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceFamily {
    /// Soft RoCE.
    Rxe,
    /// Soft iWARP.
    Siw,
    Other,
}

/// The capabilities of a device and its port.
#[derive(Debug, Clone)]
pub(super) struct DeviceLimits {
    /// The device name, as in `rdma link`.
    pub(super) name: String,
    family: DeviceFamily,
    /// `true` if the device uses iWARP, so that the rules of RFC 5040 apply.
    pub(super) iwarp: bool,
    /// `true` if the device has memory windows of type 2B.
    pub(super) windows: bool,
    /// Maximum number of work requests in a queue.
    pub(super) max_queue: u32,
    /// Maximum number of completions in a completion queue.
    pub(super) max_completions: u32,
    /// Maximum number of the peer's RDMA Reads that a queue pair serves at a time.
    pub(super) max_responses: u8,
    /// Maximum number of local RDMA Reads in flight on a queue pair.
    pub(super) max_reads: u8,
    /// Maximum length of a message, RDMA Read or RDMA Write, in bytes.
    pub(super) max_transfer: u32,
    /// Maximum number of Receives in a shared receive queue, or 0 if connections must not share Receives.
    ///
    /// Receives can be shared only within a protection domain. With windows of type 2B, each of which belongs to a
    /// queue pair, connections in one domain still cannot access the memory of each other (RFC 8166 §8.1, RFC 5042
    /// §6.1.1). Without such windows, they could. On iWARP, an empty queue would end the connection of a peer that did
    /// nothing wrong (RFC 5041 §7.2), whereas an InfiniBand receiver asks for a retry.
    pub(super) max_shared_receives: u32,
}

impl DeviceLimits {
    /// Queries the device, and its port `port` unless `port` is 0.
    pub(super) fn query(context: NonNull<ffi::ibv_context>, port: u8) -> Result<Self, VerbsError> {
        let mut device = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        let mut port_attr = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the context is that of an open device, and both structures are writable. They contain integers, for
        // which zeros are valid. An older library may leave fields zero.
        let (device, port_attr) = unsafe {
            let code = ffi::ibv_query_device(context.as_ptr(), device.as_mut_ptr());
            if code != 0 {
                return Err(VerbsError::os("query of the device", io::Error::from_raw_os_error(code)));
            }
            // Port 0 is not known yet, so it has no limits to query.
            if port != 0 {
                let code = ffi::query_port(context.as_ptr(), port, port_attr.as_mut_ptr());
                if code != 0 {
                    return Err(VerbsError::os("query of the device's port", io::Error::from_raw_os_error(code)));
                }
            }
            (device.assume_init(), port_attr.assume_init())
        };
        // SAFETY: the context of an open device refers to the device, which lives as long as the process.
        let (name, transport) = unsafe {
            let device = (*context.as_ptr()).device;
            (name_of(device), (*device).transport_type)
        };
        Ok(Self::from_attributes(name, transport, &device, port_attr.max_msg_sz))
    }

    fn from_attributes(
        name: String,
        transport: ibv_transport_type::Type,
        device: &ffi::ibv_device_attr,
        max_message: u32,
    ) -> Self {
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let depth = |value: i32| u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX);
        // Linux: `RXE_VENDOR_ID`, `SIW_VENDOR_ID`.
        let family = match (device.vendor_id, transport) {
            (0x00ff_ffff, ibv_transport_type::IBV_TRANSPORT_IB) => DeviceFamily::Rxe,
            (0x0062_6d74, ibv_transport_type::IBV_TRANSPORT_IWARP) => DeviceFamily::Siw,
            _ => DeviceFamily::Other,
        };
        let windows = device.device_cap_flags & cap::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0 != 0 && device.max_mw > 0;
        let iwarp = transport == ibv_transport_type::IBV_TRANSPORT_IWARP;
        let shares = windows && !iwarp && device.max_srq > 0 && device.max_srq_sge > 0;
        Self {
            name,
            family,
            iwarp,
            windows,
            max_queue: count(device.max_qp_wr).max(1),
            max_completions: count(device.max_cqe).max(1),
            max_responses: depth(device.max_qp_rd_atom),
            max_reads: depth(device.max_qp_init_rd_atom),
            max_transfer: if max_message == 0 { 1 << 30 } else { max_message.min(1 << 31) },
            max_shared_receives: if shares { count(device.max_srq_wr) } else { 0 },
        }
    }

    /// Returns the maximum number of the peer's RDMA Reads that a queue pair serves at a time, and the maximum number
    /// of its own RDMA Reads in flight.
    pub(super) fn depths(&self) -> (u8, u8) {
        (self.max_responses, self.max_reads)
    }

    /// Returns `true` if the device enforces the bounds of a window, and not only those of its region. Soft RoCE
    /// (`check_rkey` of Linux 6.1) checks only the region.
    pub(super) fn windows_have_bounds(&self) -> bool {
        self.family != DeviceFamily::Rxe
    }

    /// Returns `true` if an invalidated window may be bound again under another handle.
    ///
    /// Soft RoCE (`rxe_invalidate_mw` of Linux 6.1) crashes the kernel if an unbound window is invalidated: by a peer
    /// that invalidates it twice, or by both sides at once. Its windows are freed instead, after which their handles
    /// are unknown.
    pub(super) fn windows_are_reusable(&self) -> bool {
        self.family != DeviceFamily::Rxe
    }

    /// Returns `true` if the device repeats only the requests that the peer has not acknowledged. When soft RoCE
    /// (`req_retry` of Linux 6.1) repeats a Send, it also repeats the window binds that follow the Send. They fail, and
    /// the queue pair then neither works nor reports an error. A bind must therefore not follow a request that may be
    /// repeated.
    pub(super) fn repeats_only_unacknowledged(&self) -> bool {
        self.family != DeviceFamily::Rxe
    }

    /// Returns `true` if the device reports the last Receive that a failed queue pair took from a shared queue. Soft
    /// RoCE (Linux 6.1) does not.
    pub(super) fn reports_last_receive(&self) -> bool {
        self.family != DeviceFamily::Rxe
    }

    /// Returns the flags of a Receive's completion that report an invalidation by the peer. Soft RoCE sets the flag of
    /// the Linux kernel (`IB_WC_WITH_INVALIDATE`), which differs from the flag of libibverbs (at least up to Linux
    /// 6.1).
    pub(super) fn invalidated_flags(&self) -> u32 {
        let flag = wc_flag::IBV_WC_WITH_INV.0;
        if self.family == DeviceFamily::Rxe { flag | 1 << 2 } else { flag }
    }

    /// Returns `true` if the sink of an RDMA Read must be registered for remote write. Most iWARP adapters require
    /// that, because the response names the sink like an RDMA Write. `siw` does not.
    pub(super) fn read_sink_is_remote(&self) -> bool {
        self.iwarp && self.family != DeviceFamily::Siw
    }
}

/// Returns the name of a device.
///
/// # Safety
/// `device` must be a valid device of libibverbs.
unsafe fn name_of(device: *mut ffi::ibv_device) -> String {
    // SAFETY: guaranteed by the caller; the name is an array that ends with a zero.
    unsafe { CStr::from_ptr((&raw const (*device).name).cast()) }.to_string_lossy().into_owned()
}

/// An RDMA device of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// The device name, as in `rdma link`.
    pub name: String,
    /// The protocol of the device.
    pub protocol: DeviceProtocol,
}

/// The protocol of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceProtocol {
    /// InfiniBand or RoCE.
    InfiniBand,
    /// iWARP.
    Iwarp,
    /// Another protocol.
    Other,
}

/// Lists the RDMA devices of this machine.
///
/// # Errors
/// Returns a [`VerbsError`] inside the I/O error, for example if there is no device, no library or no permission.
pub fn devices() -> io::Result<Vec<Device>> {
    ffi::load()?;
    let mut count = 0;
    // SAFETY: the libraries are loaded, and `count` is writable.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    let Some(list) = NonNull::new(list) else {
        return Err(VerbsError::last("listing RDMA devices").into());
    };
    let found = (0..usize::try_from(count).unwrap_or(0))
        .map(|index| {
            // SAFETY: the list has `count` entries, each a device until the list is freed.
            unsafe {
                let device = *list.as_ptr().add(index);
                let protocol = match ((*device).transport_type, (*device).node_type) {
                    (ibv_transport_type::IBV_TRANSPORT_IWARP, _) => DeviceProtocol::Iwarp,
                    (ibv_transport_type::IBV_TRANSPORT_IB, ibv_node_type::IBV_NODE_CA) => DeviceProtocol::InfiniBand,
                    _ => DeviceProtocol::Other,
                };
                Device { name: name_of(device), protocol }
            }
        })
        .collect::<Vec<_>>();
    // SAFETY: the library allocated the list, which is freed once.
    unsafe { ffi::ibv_free_device_list(list.as_ptr()) };
    if found.is_empty() { Err(VerbsError::none_found().into()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> ffi::ibv_device_attr {
        // SAFETY: plain integers, for which zeros are valid.
        let mut attributes: ffi::ibv_device_attr = unsafe { std::mem::zeroed() };
        attributes.max_qp_wr = 1 << 20;
        attributes.max_cqe = 32767;
        attributes.max_qp_rd_atom = 128;
        attributes.max_qp_init_rd_atom = 1000;
        attributes
    }

    #[test]
    fn limits() {
        let mut rxe = attributes();
        rxe.vendor_id = 0x00ff_ffff;
        rxe.max_mw = 1000;
        rxe.device_cap_flags = cap::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        let limits = DeviceLimits::from_attributes("rxe0".into(), ibv_transport_type::IBV_TRANSPORT_IB, &rxe, 1 << 23);
        assert_eq!((limits.invalidated_flags(), limits.max_shared_receives), (0b1100, 0));
        (rxe.max_srq, rxe.max_srq_sge, rxe.max_srq_wr) = (1000, 27, 1 << 20);
        let limits = DeviceLimits::from_attributes("rxe0".into(), ibv_transport_type::IBV_TRANSPORT_IB, &rxe, 1 << 23);
        assert_eq!(limits.max_shared_receives, 1 << 20);
        assert!(
            limits.windows
                && !limits.repeats_only_unacknowledged()
                && !limits.windows_have_bounds()
                && !limits.iwarp
                && !limits.read_sink_is_remote()
        );
        assert_eq!((limits.max_responses, limits.max_reads, limits.max_transfer), (128, 255, 1 << 23));

        let mut iwarp = attributes();
        iwarp.max_qp_rd_atom = -1;
        iwarp.max_qp_wr = 0;
        (iwarp.max_srq, iwarp.max_srq_sge, iwarp.max_srq_wr) = (1000, 27, 1 << 20);
        let limits = DeviceLimits::from_attributes("iw0".into(), ibv_transport_type::IBV_TRANSPORT_IWARP, &iwarp, 0);
        assert!(!limits.windows && limits.iwarp && limits.read_sink_is_remote());
        assert_eq!(limits.max_shared_receives, 0);
        assert_eq!((limits.max_responses, limits.max_queue, limits.max_transfer), (0, 1, 1 << 30));
    }

    /// A machine without devices reports an error. A machine with devices lists their names.
    #[test]
    fn discovery() {
        match devices() {
            Ok(devices) => assert!(devices.iter().all(|device| !device.name.is_empty())),
            Err(error) => assert!(error.to_string().contains("RDMA"), "{error}"),
        }
    }
}
