//! A proxy between the peer and an iWARP implementation. The proxy plants faults: it changes or drops frames that the
//! implementation receives or sends.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// A fault that the proxy plants, as if the iWARP implementation had it.
pub(crate) struct IwarpFault {
    pub(crate) what: &'static str,
    pub(crate) found_by: &'static str,
    /// Changes an MPA connection set-up frame or an FPDU. A frame that becomes empty is dropped.
    pub(crate) change: fn(&mut Vec<u8>),
    /// `true` if the fault changes what the implementation sends, `false` if it changes what the implementation
    /// receives.
    pub(crate) of_sent: bool,
}

/// Starts a proxy that forwards connections to `to` and plants `fault` in them. Returns the address of the proxy.
/// `is_client` is `true` if the implementation connects, and `false` if it listens.
pub(crate) async fn start(to: SocketAddr, fault: &'static IwarpFault, is_client: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(other) = TcpStream::connect(to).await else { continue };
            let _ = (stream.set_nodelay(true), other.set_nodelay(true));
            // The stream that was accepted comes from the peer, unless the implementation is the client.
            let ((peer_in, peer_out), (own_in, own_out)) = match is_client {
                false => (stream.into_split(), other.into_split()),
                true => (other.into_split(), stream.into_split()),
            };
            tokio::spawn(forward(peer_in, own_out, if fault.of_sent { |_| {} } else { fault.change }));
            tokio::spawn(forward(own_in, peer_out, if fault.of_sent { fault.change } else { |_| {} }));
        }
    });
    addr
}

/// Applies `change` to the frames of one direction and forwards them, until the stream ends, or a read or a write
/// fails.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, change: fn(&mut Vec<u8>)) {
    let mut is_setup = true;
    while let Some(mut frame) = next(&mut from, is_setup).await {
        is_setup = false;
        change(&mut frame);
        if to.write_all(&frame).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// Reads a connection set-up frame if `is_setup` is `true`, and an FPDU without markers otherwise. Returns `None` if
/// the stream ends or a read fails.
async fn next(from: &mut OwnedReadHalf, is_setup: bool) -> Option<Vec<u8>> {
    let head = if is_setup { 20 } else { 2 };
    let mut frame = vec![0; head];
    from.read_exact(&mut frame).await.ok()?;
    let len = usize::from(u16::from_be_bytes([frame[head - 2], frame[head - 1]]));
    let whole = if is_setup { head + len } else { (len + 2).next_multiple_of(4) + 4 };
    frame.resize(whole, 0);
    from.read_exact(&mut frame[head..]).await.ok()?;
    Some(frame)
}
