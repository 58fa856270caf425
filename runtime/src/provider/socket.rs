//! What the sockets of `tcp://` and `iwarp://` are set to, at both ends.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// How long nothing is heard of a peer before it is asked for a sign of life. A host that has died without a word, or that a
/// network no longer reaches, is not noticed otherwise while nothing is sent to it: its connection would stay for ever.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long each question waits for its answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer after which the connection is lost: after 110 seconds in all.
const KEEPALIVE_PROBES: u32 = 5;

/// Sets a socket's options. Peers' kernels answer the questions, whatever their processes do.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    // What is to go out together is written together.
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        // The connection is as good as it can be without.
        tracing::debug!(%error, "no keep-alive on a socket");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the system says of a socket.
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
    async fn options_are_set() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!options(&stream).1, "a system's sockets are without");
        prepare(&stream).unwrap();
        assert_eq!(options(&stream), WANTED);
    }
}
