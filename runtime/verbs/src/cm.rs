//! The connection manager (`librdmacm`): identifiers and event channels.

use std::{
    ffi::c_void,
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsRawFd, RawFd},
    ptr::{self, NonNull},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    error::VerbsError,
    ffi::{self, rdma_cm_event_type},
};

/// Registers a C library's file descriptor with tokio for reading, and makes it non-blocking.
///
/// # Safety
/// `inner`'s file descriptor must stay open until `inner` is dropped, and must not change.
pub(super) unsafe fn register_fd<T: AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    let fd = inner.as_raw_fd();
    // SAFETY: the calls access no memory of this process.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) }?)
}

/// An event channel. By itself, it is not registered with a tokio runtime.
#[derive(Debug)]
pub(super) struct EventChannel(NonNull<ffi::rdma_event_channel>);

// SAFETY: librdmacm's objects are not bound to a thread, and the library locks shared state.
unsafe impl Send for EventChannel {}
// SAFETY: as above; the only calls through a shared reference fetch events, which the kernel serializes.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(super) fn new() -> Result<Self, VerbsError> {
        ffi::load()?;
        // SAFETY: the libraries are loaded, and there are no arguments.
        let channel = unsafe { ffi::rdma_create_event_channel() };
        NonNull::new(channel).map(Self).ok_or_else(|| VerbsError::last("opening of the connection manager"))
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its file descriptor never changes.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: created by rdma_create_event_channel; its identifiers were dropped before (fields are dropped in
        // order).
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) }
    }
}

/// An event of the connection manager for an identifier.
#[derive(Debug)]
pub(super) struct CmEvent {
    pub(super) kind: rdma_cm_event_type::Type,
    /// 0, or the cause of a failure: a negative error number, or a reason code of the fabric's connection manager.
    pub(super) status: i32,
    /// The new connection's identifier, in a connection request.
    pub(super) request: Option<CmId>,
    /// The peer's private data. InfiniBand pads it with zeros to a fixed length.
    pub(super) private_data: Bytes,
    /// Maximum number of RDMA Reads that the peer wants to have in flight.
    pub(super) responder_resources: u8,
    /// Maximum number of RDMA Reads that the peer serves at a time.
    pub(super) initiator_depth: u8,
}

/// An event channel that is registered with a tokio runtime. It reports the events of one identifier, or of a listener
/// and its connection requests.
#[derive(Debug)]
pub(super) struct CmEvents(AsyncFd<Arc<EventChannel>>);

impl CmEvents {
    /// Creates a channel that belongs to the current tokio runtime.
    pub(super) fn new() -> Result<Self, VerbsError> {
        Self::register(Arc::new(EventChannel::new()?))
    }

    /// Registers a channel with the current tokio runtime.
    ///
    /// Drops `channel` on failure. A caller whose identifiers use the channel must keep a reference until they are
    /// dropped.
    pub(super) fn register(channel: Arc<EventChannel>) -> Result<Self, VerbsError> {
        // SAFETY: the channel owns its file descriptor.
        let made = unsafe { register_fd(channel) };
        Ok(Self(made.map_err(|source| VerbsError::os("opening of the connection manager", source))?))
    }

    /// Polls for the next event.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<CmEvent>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            match self.fetch() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                other => return Poll::Ready(other),
            }
        }
    }

    /// Waits for the next event.
    pub(super) async fn next(&self) -> io::Result<CmEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn fetch(&self) -> io::Result<CmEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is live and `event` writable.
        if unsafe { ffi::rdma_get_cm_event(self.0.get_ref().0.as_ptr(), &raw mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `event` points to an event until it is acknowledged. All data is copied first.
        // `conn` is the variant of `param` in use: all identifiers are created with RDMA_PS_TCP, and the library fills
        // it in or zeroes it for every kind of event. Private data has the length given by the event.
        unsafe {
            let raw = &*event;
            let conn = raw.param.conn;
            let request = (raw.event == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST)
                .then(|| NonNull::new(raw.id).map(CmId))
                .flatten();
            let has_data = matches!(
                raw.event,
                rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST
                    | rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED
                    | rdma_cm_event_type::RDMA_CM_EVENT_REJECTED
            );
            let private_data = if !has_data || conn.private_data.is_null() {
                Bytes::new()
            } else {
                let data = conn.private_data.cast::<u8>();
                Bytes::copy_from_slice(std::slice::from_raw_parts(data, conn.private_data_len.into()))
            };
            let copied = CmEvent {
                kind: raw.event,
                status: raw.status,
                request,
                private_data,
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
            };
            ffi::rdma_ack_cm_event(event);
            Ok(copied)
        }
    }
}

/// The parameters of connection set-up.
pub(super) struct ConnParam<'a> {
    pub(super) private_data: &'a [u8],
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    /// Maximum number of times that both sides repeat a packet that is not acknowledged. Only the initiator's number
    /// counts.
    pub(super) retries: u8,
    /// Maximum number of times that the peer repeats a Send that found no Receive; 7 means without limit.
    pub(super) rnr_retries: u8,
}

impl ConnParam<'_> {
    /// Returns the C structure, which is valid as long as `self.private_data`. Fails if the private data is longer than
    /// 255 bytes.
    fn raw(&self) -> io::Result<ffi::rdma_conn_param> {
        let private_data_len = u8::try_from(self.private_data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "private data is longer than 255 bytes"))?;
        Ok(ffi::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: self.retries,
            rnr_retry_count: self.rnr_retries,
            srq: 0,
            qp_num: 0,
        })
    }
}

/// An identifier of a listener or a connection.
#[derive(Debug)]
pub(super) struct CmId(NonNull<ffi::rdma_cm_id>);

// SAFETY: librdmacm's objects are not bound to a thread, and the library locks shared state.
unsafe impl Send for CmId {}
// SAFETY: through a shared reference only fields are read that do not change once the address is bound.
unsafe impl Sync for CmId {}

impl CmId {
    /// Creates an identifier whose events are reported on `events`.
    pub(super) fn new(events: &CmEvents) -> Result<Self, VerbsError> {
        let mut id = ptr::null_mut();
        let channel = events.0.get_ref().0.as_ptr();
        // SAFETY: the channel is live and `id` writable.
        let code =
            unsafe { ffi::rdma_create_id(channel, &raw mut id, ptr::null_mut(), ffi::rdma_port_space::RDMA_PS_TCP) };
        match NonNull::new(id) {
            Some(id) if code == 0 => Ok(Self(id)),
            _ => Err(VerbsError::last("opening of the connection manager")),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::rdma_cm_id {
        self.0.as_ptr()
    }

    /// Returns the device's context, or `None` if no address of a device is bound or resolved yet.
    pub(super) fn context(&self) -> Option<NonNull<ffi::ibv_context>> {
        // SAFETY: the identifier is live.
        NonNull::new(unsafe { (*self.0.as_ptr()).verbs })
    }

    /// Returns the device's port, or 0 if it is not known yet.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier is live.
        unsafe { (*self.0.as_ptr()).port_num }
    }

    /// Moves the identifier to another channel.
    pub(super) fn migrate(&self, channel: &EventChannel) -> io::Result<()> {
        // SAFETY: both are live. No event of the identifier is unacknowledged, because `CmEvents` acknowledges at once.
        check(unsafe { ffi::rdma_migrate_id(self.0.as_ptr(), channel.0.as_ptr()) })
    }

    /// Keeps an IPv6 listener from occupying the IPv4 port as well.
    pub(super) fn set_ipv6_only(&self) -> io::Result<()> {
        let on: std::ffi::c_int = 1;
        self.set_option(ffi::OPTION_ID_AFONLY, on)
    }

    /// Sets the traffic class of the packets. Must be called before the route is resolved, or before the identifier
    /// listens.
    pub(super) fn set_traffic_class(&self, class: u8) -> Result<(), VerbsError> {
        let set = self.set_option(ffi::OPTION_ID_TOS, class);
        set.map_err(|source| VerbsError::Os { doing: "setting the traffic class (`tclass`)", source })
    }

    /// Sets the time that the device waits for an acknowledgment: 4.096 microseconds times 2 to the power of
    /// `exponent`. Must be called before the connection is set up.
    pub(super) fn set_ack_timeout(&self, exponent: u8) -> Result<(), VerbsError> {
        let set = self.set_option(ffi::OPTION_ID_ACK_TIMEOUT, exponent);
        const DOING: &str = "setting the ACK timeout (`ack_timeout`, which needs Linux 5.1)";
        set.map_err(|source| VerbsError::Os { doing: DOING, source })
    }

    fn set_option<T>(&self, option: std::ffi::c_int, mut value: T) -> io::Result<()> {
        // SAFETY: the identifier is live, and `value` is readable for the call and has the stated length.
        check(unsafe {
            let (value, len) = (ptr::from_mut(&mut value).cast::<c_void>(), size_of::<T>());
            ffi::rdma_set_option(self.0.as_ptr(), ffi::OPTION_ID, option, value, len)
        })
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let addr = socket2::SockAddr::from(addr);
        // SAFETY: the address is readable for the call, which does not write to it.
        check(unsafe { ffi::rdma_bind_addr(self.0.as_ptr(), addr.as_ptr().cast_mut().cast()) })
    }

    pub(super) fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_listen(self.0.as_ptr(), backlog) })
    }

    /// Starts to resolve `peer` to an RDMA device, within `timeout_ms` milliseconds. `local` selects the device by its
    /// address. An event reports the result.
    // RFC 8166 §5, RPC-over-RDMA v2 §9: librdmacm translates IP addresses and ports to those of an InfiniBand network.
    pub(super) fn resolve_addr(&self, local: Option<IpAddr>, peer: SocketAddr, timeout_ms: i32) -> io::Result<()> {
        let local = local.map(|ip| socket2::SockAddr::from(SocketAddr::new(ip, 0)));
        let peer = socket2::SockAddr::from(peer);
        let from = local.as_ref().map_or(ptr::null_mut(), |local| local.as_ptr().cast_mut().cast());
        let to = peer.as_ptr().cast_mut().cast();
        // SAFETY: the addresses are readable for the call, which does not write to them.
        check(unsafe { ffi::rdma_resolve_addr(self.0.as_ptr(), from, to, timeout_ms) })
    }

    pub(super) fn resolve_route(&self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_resolve_route(self.0.as_ptr(), timeout_ms) })
    }

    pub(super) fn connect(&self, param: &ConnParam<'_>) -> io::Result<()> {
        let mut raw = param.raw()?;
        // SAFETY: the parameters, and the private data they point to, are readable for the call.
        check(unsafe { ffi::rdma_connect(self.0.as_ptr(), &raw mut raw) })
    }

    pub(super) fn accept(&self, param: &ConnParam<'_>) -> io::Result<()> {
        let mut raw = param.raw()?;
        // SAFETY: the parameters, and the private data they point to, are readable for the call.
        check(unsafe { ffi::rdma_accept(self.0.as_ptr(), &raw mut raw) })
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "private data is longer than 255 bytes"))?;
        // SAFETY: the private data is readable for the call.
        check(unsafe { ffi::rdma_reject(self.0.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    /// Notifies the peer, and moves the queue pair to the error state.
    pub(super) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_disconnect(self.0.as_ptr()) })
    }

    /// Returns the local address.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        // SAFETY: the identifier is live; the library keeps both addresses in storage that fits any family.
        let storage = unsafe { &(*self.0.as_ptr()).route.addr.src_addr_union.src_storage };
        to_socket_addr(storage)
    }

    /// Returns the peer's address.
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        // SAFETY: as above.
        let storage = unsafe { &(*self.0.as_ptr()).route.addr.dst_addr_union.dst_storage };
        to_socket_addr(storage)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: created by the library and destroyed once. Owners drop its queue pair first. No event of it is
        // unacknowledged; the call would wait for one.
        let code = unsafe { ffi::rdma_destroy_id(self.0.as_ptr()) };
        if code != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "a connection identifier could not be destroyed");
        }
    }
}

/// Converts the return value of librdmacm: 0, or -1 with `errno`.
fn check(code: std::ffi::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn to_socket_addr(storage: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    let from = ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family identifies the content of the storage, which is large enough and aligned.
            let v4 = unsafe { &*from.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*from.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        family => Err(io::Error::other(format!("connection manager returned an address of unknown family {family}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["10.9.1.1:20049", "[fd09::1]:7", "[fe80::1%3]:20049", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            let raw = socket2::SockAddr::from(addr);
            // SAFETY: a socket address's storage is `sockaddr_storage`, all of it initialized.
            let storage = unsafe { &*raw.as_ptr().cast::<libc::sockaddr_storage>() };
            assert_eq!(to_socket_addr(storage).unwrap(), addr);
        }
        // SAFETY: all zeros are a socket address of unspecified family.
        let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        assert!(to_socket_addr(&none).is_err());
    }

    #[test]
    fn private_data_has_a_limit() {
        let numbers =
            ConnParam { private_data: &[], responder_resources: 1, initiator_depth: 2, retries: 3, rnr_retries: 4 };
        let param = |private_data| ConnParam { private_data, ..numbers };
        let raw = param(&[7; 255]).raw().unwrap();
        assert_eq!((raw.private_data_len, raw.responder_resources, raw.initiator_depth), (255, 1, 2));
        assert_eq!((raw.retry_count, raw.rnr_retry_count), (3, 4));
        assert!(param(&[7; 256]).raw().is_err());
    }
}
