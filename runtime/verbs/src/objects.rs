//! Owned libibverbs objects, each freed when dropped. Owners drop each object before those that it uses: bound windows
//! before their queue pair and their regions, the queue pair before its completion queue, its shared receive queue and
//! its identifier, and all objects of a protection domain before the domain.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    ptr::{self, NonNull},
    task::{Context, Poll},
};

use tokio::io::unix::AsyncFd;

use super::{
    cm::{CmId, register_fd},
    error::VerbsError,
    ffi::{self, ibv_access_flags as access, ibv_qp_attr_mask as qp_attribute, ibv_wc},
    optional_access::OptionalAccess,
};

/// A protection domain.
#[derive(Debug)]
pub(super) struct Pd {
    pd: NonNull<ffi::ibv_pd>,
    optional: OptionalAccess,
}

// SAFETY: libibverbs' objects are not bound to a thread, and the library locks shared state.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a domain of a device. Its regions request relaxed ordering if `relaxed_ordering` is `true`.
    pub(super) fn new(context: NonNull<ffi::ibv_context>, relaxed_ordering: bool) -> Result<Self, VerbsError> {
        // SAFETY: the context is that of an open device.
        let pd = unsafe { ffi::ibv_alloc_pd(context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| VerbsError::last("creation of a protection domain"))?;
        Ok(Self { pd, optional: OptionalAccess::new(relaxed_ordering) })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_pd {
        self.pd.as_ptr()
    }

    /// Registers `len` bytes of memory for the access `rights`.
    ///
    /// # Safety
    /// The memory must stay allocated until the region is dropped. Nothing else may access it while work requests or a
    /// peer may write to it through the region, and nothing may write to it while they may read it.
    pub(super) unsafe fn register(&self, memory: *const u8, len: usize, rights: RegionAccess) -> io::Result<Mr> {
        let address = memory.cast_mut().cast();
        let mr = self.optional.register(|optional| {
            let flags = rights.flags() | optional.0;
            // SAFETY: the caller guarantees the state of the memory; the domain is live.
            let mr = unsafe { ffi::ibv_reg_mr(self.pd.as_ptr(), address, len, flags as i32) };
            NonNull::new(mr).map(Mr).ok_or_else(io::Error::last_os_error)
        });
        mr.map_err(|source| VerbsError::registration(len, source).into())
    }

    /// Allocates an unbound memory window of type 2.
    pub(super) fn window(&self) -> io::Result<Mw> {
        // SAFETY: the domain is live.
        let window = unsafe { ffi::alloc_window(self.pd.as_ptr()) };
        NonNull::new(window).map(Mw).ok_or_else(io::Error::last_os_error)
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated by libibverbs, freed once, after all that is in it.
        let code = unsafe { ffi::ibv_dealloc_pd(self.pd.as_ptr()) };
        if code != 0 {
            tracing::warn!(code, "failed to free a protection domain");
        }
    }
}

/// The access rights of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionAccess {
    /// Local Sends and RDMA Writes read the region.
    LocalRead,
    /// Local Receives and RDMA Reads write the region.
    LocalWrite,
    /// A window permits the peer to read the region.
    WindowRead,
    /// A window permits the peer to write the region.
    WindowWrite,
    /// The peer may read the region.
    RemoteRead,
    /// The peer may write the region.
    RemoteWrite,
}

impl RegionAccess {
    pub(super) fn flags(self) -> u32 {
        let flags = match self {
            Self::LocalRead => access(0),
            Self::LocalWrite => access::IBV_ACCESS_LOCAL_WRITE,
            Self::WindowRead => access::IBV_ACCESS_MW_BIND,
            Self::WindowWrite => access::IBV_ACCESS_MW_BIND | access::IBV_ACCESS_LOCAL_WRITE,
            Self::RemoteRead => access::IBV_ACCESS_REMOTE_READ,
            // Remote write requires local write (InfiniBand Architecture 11.2.8.2).
            Self::RemoteWrite => access::IBV_ACCESS_REMOTE_WRITE | access::IBV_ACCESS_LOCAL_WRITE,
        };
        flags.0
    }
}

/// A memory region.
#[derive(Debug)]
pub(super) struct Mr(NonNull<ffi::ibv_mr>);

// SAFETY: as for `Pd`.
unsafe impl Send for Mr {}
// SAFETY: a shared reference only gives access to the keys, which never change.
unsafe impl Sync for Mr {}

impl Mr {
    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_mr {
        self.0.as_ptr()
    }

    /// Returns the key for local work requests.
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region is live.
        unsafe { (*self.0.as_ptr()).lkey }
    }

    /// Returns the remote key (rkey), which the peer uses.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the region is live.
        unsafe { (*self.0.as_ptr()).rkey }
    }

    /// Deregisters the region, which ends all access through it.
    pub(super) fn deregister(self) -> io::Result<()> {
        let region = std::mem::ManuallyDrop::new(self);
        // SAFETY: registered by libibverbs and deregistered once, because `ManuallyDrop` prevents the drop.
        let code = unsafe { ffi::ibv_dereg_mr(region.0.as_ptr()) };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: registered by libibverbs, deregistered once.
        let code = unsafe { ffi::ibv_dereg_mr(self.0.as_ptr()) };
        if code != 0 {
            tracing::warn!(code, "failed to deregister a memory region");
        }
    }
}

/// A memory window of type 2.
#[derive(Debug)]
pub(super) struct Mw(NonNull<ffi::ibv_mw>);

// SAFETY: as for `Pd`.
unsafe impl Send for Mw {}

impl Mw {
    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_mw {
        self.0.as_ptr()
    }

    /// Returns the current or most recent handle.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the window is live.
        unsafe { (*self.0.as_ptr()).rkey }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // SAFETY: allocated by libibverbs, freed once.
        let code = unsafe { ffi::ibv_dealloc_mw(self.0.as_ptr()) };
        if code != 0 {
            tracing::warn!(code, "failed to free a memory window");
        }
    }
}

#[derive(Debug)]
struct CompletionChannel(NonNull<ffi::ibv_comp_channel>);

// SAFETY: as for `Pd`.
unsafe impl Send for CompletionChannel {}
// SAFETY: a shared reference only gives access to the file descriptor.
unsafe impl Sync for CompletionChannel {}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its file descriptor never changes.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: created by libibverbs, freed once, after its completion queue.
        unsafe {
            ffi::ibv_destroy_comp_channel(self.0.as_ptr());
        }
    }
}

/// A completion queue with its channel.
#[derive(Debug)]
pub(super) struct Cq {
    cq: NonNull<ffi::ibv_cq>,
    /// Number of events fetched but not acknowledged.
    events: u32,
    /// `true` if the next completion causes an event, or an event is waiting to be fetched.
    armed: bool,
    // Dropped after `drop` has destroyed the queue.
    channel: AsyncFd<CompletionChannel>,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Cq {}

/// The result of waiting for completions, as in [`Cq::poll_event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventWait {
    /// Completions may have arrived: check the queue again.
    Again,
    /// The next event wakes the task.
    Registered,
}

impl Cq {
    /// Number of events acknowledged together, because each acknowledgment takes a lock.
    const ACKNOWLEDGE: u32 = 64;

    pub(super) fn new(context: NonNull<ffi::ibv_context>, len: u32) -> Result<Self, VerbsError> {
        const DOING: &str = "creation of a completion queue";
        // SAFETY: the context is that of an open device.
        let channel = unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) };
        let channel = CompletionChannel(NonNull::new(channel).ok_or_else(|| VerbsError::last(DOING))?);
        // SAFETY: the channel owns its file descriptor.
        let channel = unsafe { register_fd(channel) }.map_err(|source| VerbsError::os(DOING, source))?;
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        let to = channel.get_ref().0.as_ptr();
        // SAFETY: context and channel are live.
        let cq = unsafe { ffi::ibv_create_cq(context.as_ptr(), len, ptr::null_mut(), to, 0) };
        let cq = NonNull::new(cq).ok_or_else(|| VerbsError::last(DOING))?;
        Ok(Self { cq, events: 0, armed: false, channel })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_cq {
        self.cq.as_ptr()
    }

    /// Configures completion moderation: the device raises an event once it has collected `count` completions, or after
    /// at most `microseconds`. Has no effect if the device does not support moderation.
    pub(super) fn moderate(&mut self, count: u16, microseconds: u16) {
        let mut attributes = ffi::ibv_modify_cq_attr {
            attr_mask: ffi::ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
            moderate: ffi::ibv_moderate_cq { cq_count: count, cq_period: microseconds },
        };
        // SAFETY: the queue is live, and the attributes readable for the call.
        let code = unsafe { ffi::ibv_modify_cq(self.cq.as_ptr(), &raw mut attributes) };
        if code != 0 {
            tracing::debug!(code, "device does not support completion moderation");
        }
    }

    /// Fetches completions, at most as many as fit in `into`.
    pub(super) fn take<'a>(&mut self, into: &'a mut [ibv_wc]) -> io::Result<&'a [ibv_wc]> {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is live, and `into` has room for `room` entries.
        let taken = unsafe { ffi::ibv_poll_cq(self.cq.as_ptr(), room, into.as_mut_ptr()) };
        let taken = usize::try_from(taken).map_err(|_| io::Error::other("failed to poll the completion queue"))?;
        Ok(into.get(..taken).unwrap_or_default())
    }

    /// Returns `true` if the next completion causes an event, or an event is waiting to be fetched.
    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Arms the queue, so that the next completion causes an event. Returns `true` if the queue was not armed before
    /// the call. A completion may then have arrived just before.
    pub(super) fn arm(&mut self) -> io::Result<bool> {
        if self.armed {
            return Ok(false);
        }
        // SAFETY: the queue is live.
        let code = unsafe { ffi::ibv_req_notify_cq(self.cq.as_ptr(), 0) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.abs()));
        }
        self.armed = true;
        Ok(true)
    }

    /// Registers the task for the event of an armed queue, or fetches an event that has already occurred.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> io::Result<EventWait> {
        let mut ready = match self.channel.poll_read_ready(cx) {
            Poll::Pending => return Ok(EventWait::Registered),
            Poll::Ready(ready) => ready?,
        };
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // The channel has one queue, which causes one event each time it is armed. No further event can follow the one
        // fetched here, so the readiness can be cleared without another check.
        let from = self.channel.get_ref().0.as_ptr();
        // SAFETY: the channel is live, and both pointers writable.
        if unsafe { ffi::ibv_get_cq_event(from, &raw mut cq, &raw mut context) } == 0 {
            self.armed = false;
            self.events += 1;
        } else {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => {}
                error if error.kind() == io::ErrorKind::Interrupted => return Ok(EventWait::Again),
                error => return Err(error),
            }
        }
        ready.clear_ready();
        if self.events >= Self::ACKNOWLEDGE {
            self.acknowledge();
        }
        Ok(EventWait::Again)
    }

    fn acknowledge(&mut self) {
        if self.events > 0 {
            // SAFETY: the queue is live, and as many events have been fetched.
            unsafe { ffi::ibv_ack_cq_events(self.cq.as_ptr(), self.events) };
            self.events = 0;
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Destruction waits until all events are acknowledged.
        self.acknowledge();
        // SAFETY: created by libibverbs, destroyed once, after the queue pair that uses it.
        let code = unsafe { ffi::ibv_destroy_cq(self.cq.as_ptr()) };
        if code != 0 {
            tracing::warn!(code, "a completion queue could not be destroyed");
        }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct Srq(NonNull<ffi::ibv_srq>);

// SAFETY: as for `Pd`.
unsafe impl Send for Srq {}
// SAFETY: as for `Pd`.
unsafe impl Sync for Srq {}

impl Srq {
    /// Creates a queue with room for `room` Receives of one segment each. `pd` must outlive it.
    pub(super) fn new(pd: &Pd, room: u32) -> Result<Self, VerbsError> {
        let mut attributes = ffi::ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ffi::ibv_srq_attr { max_wr: room, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the domain is live, and the attributes are writable.
        let srq = unsafe { ffi::ibv_create_srq(pd.as_ptr(), &raw mut attributes) };
        NonNull::new(srq).map(Self).ok_or_else(|| VerbsError::last("creation of a shared receive queue"))
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_srq {
        self.0.as_ptr()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: created by libibverbs, destroyed once, after the queue pairs that use it.
        let code = unsafe { ffi::ibv_destroy_srq(self.0.as_ptr()) };
        if code != 0 {
            tracing::warn!(code, "failed to destroy a shared receive queue");
        }
    }
}

/// The receive queue of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReceiveQueueKind {
    /// A separate queue with room for the given number of Receives.
    Own(u32),
    /// A queue that other queue pairs use as well.
    Shared(*mut ffi::ibv_srq),
}

/// The path of a queue pair, as set up by the connection manager. Shown in logs.
#[derive(Debug)]
#[expect(dead_code, reason = "read by the derived `Debug`")]
pub(super) struct PathAttributes {
    traffic_class: u8,
    service_level: u8,
    mtu: u32,
    ack_timeout: u8,
    retries: u8,
    rnr_retries: u8,
}

/// The queue pair of an identifier.
#[derive(Debug)]
pub(super) struct Qp {
    id: *mut ffi::rdma_cm_id,
    qp: NonNull<ffi::ibv_qp>,
    /// Maximum inline data of a work request, in bytes.
    pub(super) max_inline: u32,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Qp {}

impl Qp {
    /// The sizes of inline data to request, in bytes, until the device accepts one. `siw` supports 80, enough for a
    /// call without arguments and its reply in both versions of RPC-over-RDMA.
    const INLINE_SIZES: [u32; 5] = [256, 128, 80, 64, 0];

    /// Creates a queue pair with room for `sends` requests in the send queue. `id` and the objects that `cq` and
    /// `receives` point to must outlive it.
    ///
    /// # Safety
    /// `cq` and the queue in `receives` must be live objects of the identifier's device.
    pub(super) unsafe fn new(
        id: &CmId,
        pd: &Pd,
        cq: *mut ffi::ibv_cq,
        sends: u32,
        receives: ReceiveQueueKind,
    ) -> Result<Self, VerbsError> {
        let (srq, max_recv_wr, max_recv_sge) = match receives {
            ReceiveQueueKind::Own(room) => (ptr::null_mut(), room, 1),
            ReceiveQueueKind::Shared(srq) => (srq, 0, 0),
        };
        let mut refused = None;
        for inline in Self::INLINE_SIZES {
            let mut attributes = ffi::ibv_qp_init_attr {
                qp_context: ptr::null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq,
                cap: ffi::ibv_qp_cap {
                    max_send_wr: sends,
                    max_recv_wr,
                    max_send_sge: 1,
                    max_recv_sge,
                    max_inline_data: inline,
                },
                qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: identifier and domain are live, and the caller guarantees the rest; the attributes are writable.
            let code = unsafe { ffi::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &raw mut attributes) };
            if code == 0 {
                // SAFETY: the call has set the identifier's queue pair.
                let qp = unsafe { (*id.as_ptr()).qp };
                let qp = NonNull::new(qp).ok_or_else(|| VerbsError::last("creation of a queue pair"))?;
                return Ok(Self { id: id.as_ptr(), qp, max_inline: attributes.cap.max_inline_data });
            }
            refused = Some(io::Error::last_os_error());
        }
        Err(VerbsError::os("creation of a queue pair", refused.unwrap_or_else(io::Error::last_os_error)))
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_qp {
        self.qp.as_ptr()
    }

    /// Returns the queue pair number, which completions carry.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is live.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// Sets the time after which the peer may repeat a Send that found no Receive, as an RNR timer code (InfiniBand
    /// Architecture 9.7.5.2.8). The queue pair must be connected.
    pub(super) fn set_rnr_timer(&self, code: u8) {
        // SAFETY: plain integers, for which zeros are valid.
        let mut attributes: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.min_rnr_timer = code;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0 as i32;
        // SAFETY: the queue pair is live, and the attributes readable.
        let code = unsafe { ffi::ibv_modify_qp(self.as_ptr(), &raw mut attributes, mask) };
        if code != 0 {
            tracing::debug!(code, "failed to set the RNR timer");
        }
    }

    /// Queries the attributes in `mask`. Returns `None` if the device refuses.
    fn query(&self, mask: qp_attribute) -> Option<ffi::ibv_qp_attr> {
        // SAFETY: plain integers, for which zeros are valid.
        let (mut attributes, mut init): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) = unsafe { std::mem::zeroed() };
        // SAFETY: the queue pair is live, and both structures are writable.
        let code = unsafe { ffi::ibv_query_qp(self.as_ptr(), &raw mut attributes, mask.0 as i32, &raw mut init) };
        (code == 0).then_some(attributes)
    }

    /// Returns `true` if the queue pair is in the error state.
    pub(super) fn is_in_error(&self) -> bool {
        let attributes = self.query(qp_attribute::IBV_QP_STATE);
        attributes.is_some_and(|attributes| attributes.qp_state == ffi::ibv_qp_state::IBV_QPS_ERR)
    }

    /// Returns the path of a connected queue pair, or `None` if the device does not report it.
    pub(super) fn path(&self) -> Option<PathAttributes> {
        let asked = qp_attribute::IBV_QP_AV
            | qp_attribute::IBV_QP_PATH_MTU
            | qp_attribute::IBV_QP_TIMEOUT
            | qp_attribute::IBV_QP_RETRY_CNT
            | qp_attribute::IBV_QP_RNR_RETRY;
        self.query(asked).map(|attributes| PathAttributes {
            traffic_class: attributes.ah_attr.grh.traffic_class,
            service_level: attributes.ah_attr.sl,
            // The codes 1 to 5 are 256 to 4096 bytes.
            mtu: 128_u32.checked_shl(attributes.path_mtu).unwrap_or(0),
            ack_timeout: attributes.timeout,
            retries: attributes.retry_cnt,
            rnr_retries: attributes.rnr_retry,
        })
    }

    /// Moves the queue pair to the error state, in which it refuses incoming requests and flushes posted ones.
    pub(super) fn fail(&self) {
        // SAFETY: plain integers, for which zeros are valid.
        let mut attributes: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
        // SAFETY: the queue pair is live, and the attributes readable.
        let code = unsafe { ffi::ibv_modify_qp(self.as_ptr(), &raw mut attributes, mask) };
        if code != 0 {
            tracing::debug!(code, "failed to move the queue pair to the error state");
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: created by librdmacm for the identifier, which is still live; destroyed once.
        unsafe { ffi::rdma_destroy_qp(self.id) }
    }
}
