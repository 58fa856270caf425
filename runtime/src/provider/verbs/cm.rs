//! The connection manager (`librdmacm`): identifiers, and the channels that their events come by.

use std::{
    ffi::c_void,
    future::poll_fn,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsRawFd, RawFd},
    ptr::{self, NonNull},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    error::VerbsError,
    ffi::{self, rdma_cm_event_type},
};

/// Has tokio wait until something can be read. The file descriptor, a C library's, is made non-blocking.
///
/// # Safety
/// `inner`'s file descriptor is open until `inner` is dropped, and always the same.
pub(super) unsafe fn wait_for<T: AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    let fd = inner.as_raw_fd();
    // SAFETY: these calls touch no memory of ours.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) }?)
}

/// An event channel.
#[derive(Debug)]
struct Channel(NonNull<ffi::rdma_event_channel>);

// SAFETY: librdmacm's objects belong to no thread, and it locks what its calls share.
unsafe impl Send for Channel {}
// SAFETY: as above; the only calls through a shared reference fetch events, which the kernel serializes.
unsafe impl Sync for Channel {}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its file descriptor never changes.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by rdma_create_event_channel; the identifiers on it are gone (fields are dropped in their order).
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) }
    }
}

/// What has happened to an identifier.
#[derive(Debug)]
pub(super) struct CmEvent {
    pub(super) kind: rdma_cm_event_type::Type,
    /// 0, or why: the negative of an error number, or a reason of the fabric's connection manager.
    pub(super) status: i32,
    /// Of a connection request: the new connection's.
    pub(super) request: Option<CmId>,
    /// The peer's. InfiniBand's has a fixed length, filled up with zeros.
    pub(super) private_data: Bytes,
    /// Most RDMA Reads that the peer wants to have under way.
    pub(super) responder_resources: u8,
    /// Most RDMA Reads that the peer serves at a time.
    pub(super) initiator_depth: u8,
}

/// The events of an identifier, or of a listener and its requests.
#[derive(Debug)]
pub(super) struct Events(AsyncFd<Channel>);

impl Events {
    /// A new channel, which belongs to the current tokio runtime.
    pub(super) fn new() -> Result<Self, VerbsError> {
        // SAFETY: no arguments.
        let channel = unsafe { ffi::rdma_create_event_channel() };
        let channel = Channel(NonNull::new(channel).ok_or_else(|| VerbsError::last("opening the connection manager"))?);
        // SAFETY: the channel owns its file descriptor.
        let made = unsafe { wait_for(channel) };
        Ok(Self(made.map_err(|source| VerbsError::os("opening the connection manager", source))?))
    }

    /// The next event.
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
        // SAFETY: the call succeeded, so `event` points to an event until it is acknowledged. Everything wanted of it is
        // copied first. Of `param`, `conn` is the variant in use: all identifiers are made with RDMA_PS_TCP, and
        // the library fills it in, or zeroes it, for every kind of event. Private data is as long as the event says.
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

/// What a connection is set up with.
pub(super) struct ConnParam<'a> {
    pub(super) private_data: &'a [u8],
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

impl ConnParam<'_> {
    /// Retransmissions before a silent peer is given up: the most there can be.
    const RETRIES: u8 = 7;
    /// Tries of a Send that meets no Receive. Credits see to it that there is one; a peer that sends more than it has
    /// credits for is in the wrong (RFC 8166 §3.3.1), and Linux does not try again either.
    const RECEIVER_NOT_READY: u8 = 0;

    /// For the length of `self.private_data`'s life.
    fn raw(&self) -> io::Result<ffi::rdma_conn_param> {
        let private_data_len = u8::try_from(self.private_data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 255 octets of private data"))?;
        Ok(ffi::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: Self::RETRIES,
            rnr_retry_count: Self::RECEIVER_NOT_READY,
            srq: 0,
            qp_num: 0,
        })
    }
}

/// An identifier: of a listener, or of a connection.
#[derive(Debug)]
pub(super) struct CmId(NonNull<ffi::rdma_cm_id>);

// SAFETY: librdmacm's objects belong to no thread, and it locks what its calls share.
unsafe impl Send for CmId {}
// SAFETY: through a shared reference only fields are read that do not change once the address is bound.
unsafe impl Sync for CmId {}

impl CmId {
    /// A new one, whose events come by `events`.
    pub(super) fn new(events: &Events) -> Result<Self, VerbsError> {
        let mut id = ptr::null_mut();
        let channel = events.0.get_ref().0.as_ptr();
        // SAFETY: the channel is live and `id` writable.
        let code =
            unsafe { ffi::rdma_create_id(channel, &raw mut id, ptr::null_mut(), ffi::rdma_port_space::RDMA_PS_TCP) };
        match NonNull::new(id) {
            Some(id) if code == 0 => Ok(Self(id)),
            _ => Err(VerbsError::last("opening the connection manager")),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::rdma_cm_id {
        self.0.as_ptr()
    }

    /// The device, once an address is bound or resolved.
    pub(super) fn context(&self) -> Option<NonNull<ffi::ibv_context>> {
        // SAFETY: the identifier is live.
        NonNull::new(unsafe { (*self.0.as_ptr()).verbs })
    }

    /// The device's port.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier is live.
        unsafe { (*self.0.as_ptr()).port_num }
    }

    /// Moves it to a channel of its own.
    pub(super) fn migrate(&self, events: &Events) -> io::Result<()> {
        // SAFETY: both are live; no event of the identifier's is unacknowledged, since `Events` acknowledges at once.
        check(unsafe { ffi::rdma_migrate_id(self.0.as_ptr(), events.0.get_ref().0.as_ptr()) })
    }

    /// Keeps an IPv6 listener from taking IPv4's port as well.
    pub(super) fn only_its_family(&self) -> io::Result<()> {
        let mut on: std::ffi::c_int = 1;
        // SAFETY: `on` is readable for the call, and as long as it is said to be.
        check(unsafe {
            let (value, len) = (ptr::from_mut(&mut on).cast::<c_void>(), size_of_val(&on));
            ffi::rdma_set_option(self.0.as_ptr(), ffi::OPTION_ID, ffi::OPTION_ID_AFONLY, value, len)
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

    pub(super) fn resolve_addr(&self, peer: SocketAddr, timeout_ms: i32) -> io::Result<()> {
        let peer = socket2::SockAddr::from(peer);
        let to = peer.as_ptr().cast_mut().cast();
        // SAFETY: the address is readable for the call, which does not write to it.
        check(unsafe { ffi::rdma_resolve_addr(self.0.as_ptr(), ptr::null_mut(), to, timeout_ms) })
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
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 255 octets of private data"))?;
        // SAFETY: the private data is readable for the call.
        check(unsafe { ffi::rdma_reject(self.0.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    /// Tells the peer, and moves the queue pair to its error state.
    pub(super) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_disconnect(self.0.as_ptr()) })
    }

    /// This end's address.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        // SAFETY: the identifier is live; the library keeps both addresses in storage that fits any family.
        let storage = unsafe { &(*self.0.as_ptr()).route.addr.src_addr_union.src_storage };
        to_socket_addr(storage)
    }

    /// The peer's address.
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        // SAFETY: as above.
        let storage = unsafe { &(*self.0.as_ptr()).route.addr.dst_addr_union.dst_storage };
        to_socket_addr(storage)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: made by the library and destroyed once; its queue pair is gone (owners drop that first), and no event
        // of it is unacknowledged, for which the call would wait.
        let code = unsafe { ffi::rdma_destroy_id(self.0.as_ptr()) };
        if code != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "an identifier could not be destroyed");
        }
    }
}

/// The convention of librdmacm: 0, or -1 and `errno`.
fn check(code: std::ffi::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn to_socket_addr(storage: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    let from = ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is what the storage holds, and it is large and aligned enough.
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
        family => Err(io::Error::other(format!("the connection manager gave an address of family {family}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["10.9.1.1:20049", "[fd09::1]:7", "[fe80::1%3]:20049", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            let raw = socket2::SockAddr::from(addr);
            // SAFETY: a socket address's storage is `sockaddr_storage`, all of it initialized.
            let storage = unsafe { &*raw.as_ptr().cast::<libc::sockaddr_storage>() };
            assert_eq!(to_socket_addr(storage).unwrap(), addr);
        }
        // SAFETY: all zeros is a socket address of no family.
        let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        assert!(to_socket_addr(&none).is_err());
    }

    #[test]
    fn private_data_has_a_limit() {
        let param = |private_data| ConnParam { private_data, responder_resources: 1, initiator_depth: 2 };
        let raw = param(&[7; 255]).raw().unwrap();
        assert_eq!((raw.private_data_len, raw.responder_resources, raw.initiator_depth), (255, 1, 2));
        assert!(param(&[7; 256]).raw().is_err());
    }
}
