//! TCP sockets with the options that long-lived connections need: `TCP_NODELAY`, keep-alive, a user timeout, a traffic
//! class and a shared port.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The maximum number of connections that wait to be accepted. The kernel may apply a lower limit.
const BACKLOG: u32 = 1024;

/// The idle time before the first keep-alive probe. Without probes, an idle connection to a host that has crashed or
/// become unreachable would stay open forever.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The time between keep-alive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The number of unanswered probes after which the connection is lost: 110 seconds after the peer was last heard from.
const KEEPALIVE_PROBES: u32 = 5;

/// The time that sent data may stay unacknowledged before the connection is lost. Keep-alive probes end an idle
/// connection after the same time. Without this option, Linux gives up after about 15 minutes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(110);

/// Sets the options that long-lived connections need: `TCP_NODELAY`, keep-alive and, on Linux and Android,
/// `TCP_USER_TIMEOUT`. The peer's kernel replies to keep-alive probes even if the process is busy.
///
/// # Errors
/// Returns an error if `TCP_NODELAY` cannot be set. If another option cannot be set, the connection works without it.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Callers already batch their writes.
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        // The connection works without keep-alive.
        tracing::debug!(%error, "failed to enable TCP keep-alive");
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = SockRef::from(stream).set_tcp_user_timeout(Some(USER_TIMEOUT)) {
        tracing::debug!(%error, "failed to set TCP_USER_TIMEOUT");
    }
    Ok(())
}

/// Registers a socket with the I/O driver of the current runtime, and deregisters it from the driver of its previous
/// runtime.
///
/// # Errors
/// Returns an error if the socket cannot be deregistered or registered.
pub fn move_to_current_runtime(stream: TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(stream.into_std()?)
}

/// Connects to `peer`, from the address `local`, if given.
///
/// # Errors
/// Returns an error if the connection fails, or `local` is not an address of this machine.
pub async fn connect(peer: SocketAddr, local: Option<IpAddr>) -> io::Result<TcpStream> {
    connect_in_class(peer, local, None).await
}

/// Connects to `peer` like [`connect`]. All packets have the traffic class `class`, if given.
pub(crate) async fn connect_in_class(
    peer: SocketAddr,
    local: Option<IpAddr>,
    class: Option<u8>,
) -> io::Result<TcpStream> {
    let socket = if peer.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    set_traffic_class(SockRef::from(&socket), class)?;
    if let Some(local) = local {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    socket.connect(peer).await
}

/// Sets the traffic class of the packets that a socket sends, if given.
#[cfg(target_os = "linux")]
pub(crate) fn set_traffic_class(socket: SockRef<'_>, class: Option<u8>) -> io::Result<()> {
    let Some(class) = class else { return Ok(()) };
    if socket.domain()? == socket2::Domain::IPV6 {
        socket.set_tclass_v6(class.into())?;
    }
    // An IPv6 socket sends IPv4 packets to addresses that are mapped.
    socket.set_tos_v4(class.into())
}

/// Fails if a traffic class is given, because this system cannot set it for each kind of socket.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_traffic_class(_socket: SockRef<'_>, class: Option<u8>) -> io::Result<()> {
    match class {
        None => Ok(()),
        Some(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "a traffic class can only be set on Linux: leave it out"))
        }
    }
}

/// Listens on `addr`. If `shares_port` is `true`, other sockets of the same user may listen on the same port if they
/// share it too. On Linux, the kernel then distributes the connections among them.
///
/// # Errors
/// Returns the error of the operating system, for example if the address is in use. Returns an error of kind
/// [`Unsupported`](io::ErrorKind::Unsupported) if `shares_port` is `true` and the system cannot share a port.
pub fn listen(addr: SocketAddr, shares_port: bool) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server can be restarted while connections of its predecessor are in TIME-WAIT.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    if shares_port {
        share_port(&socket)?;
    }
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

#[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))))]
fn share_port(socket: &TcpSocket) -> io::Result<()> {
    socket.set_reuseport(true)
}

#[cfg(not(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin")))))]
fn share_port(_socket: &TcpSocket) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system cannot share a port among listeners"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the options of a socket as reported by the operating system.
    fn options(stream: &TcpStream) -> (bool, bool, Duration, Duration, u32) {
        let socket = SockRef::from(stream);
        (
            stream.nodelay().unwrap(),
            socket.keepalive().unwrap(),
            socket.tcp_keepalive_time().unwrap(),
            socket.tcp_keepalive_interval().unwrap(),
            socket.tcp_keepalive_retries().unwrap(),
        )
    }

    const WANTED: (bool, bool, Duration, Duration, u32) =
        (true, true, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES);

    #[tokio::test]
    async fn the_local_address_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local: IpAddr = "127.0.0.7".parse().unwrap();
        let _stream = connect(listener.local_addr().unwrap(), Some(local)).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().1.ip(), local);
    }

    #[tokio::test]
    async fn options_are_set() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!options(&stream).1, "keep-alive is on by default");
        prepare(&stream).unwrap();
        assert_eq!(options(&stream), WANTED);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }
}
