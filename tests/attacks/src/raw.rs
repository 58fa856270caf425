//! Raw peers over TCP: records of ONC RPC (RFC 5531), whole or not, from any address of the loopback interface.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rpcrdma::{
    rpc::{CallHeader, Credential, ReplyHeader},
    service::Procedure,
    xdr::{Decoder, FlatSink, XdrDecode, XdrEncode},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// The local address of the attackers.
pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Maximum time for a raw peer to connect, write or read. Also the maximum time for `nfs3d` to start or fail in the
/// attack with capabilities.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The bit of a record mark that marks the last fragment (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;
/// Maximum length in bytes of a reply that a raw peer reads.
const MAX_REPLY: u32 = 4 << 20;

/// Connects from a local address. `buffer` is the approximate number of received bytes that the kernel stores. `None`
/// stands for the default of the kernel.
pub(crate) async fn connect(from: Ipv4Addr, to: SocketAddr, buffer: Option<u32>) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(buffer) = buffer {
        socket.set_recv_buffer_size(buffer)?;
    }
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = timeout(PATIENCE, socket.connect(to)).await.context("an attacker could not connect in time")??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens `count` connections from the attackers' address.
pub(crate) async fn connect_many(count: usize, to: SocketAddr) -> anyhow::Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(connect(ATTACKER, to, None).await?);
    }
    Ok(streams)
}

/// Writes bytes. Fails if that takes longer than [`PATIENCE`].
pub(crate) async fn write(stream: &mut TcpStream, bytes: &[u8]) -> anyhow::Result<()> {
    timeout(PATIENCE, stream.write_all(bytes)).await.context("the server stopped reading")??;
    Ok(())
}

/// Encodes the mark of a record of `len` bytes in one fragment.
pub(crate) fn mark(len: u32) -> [u8; 4] {
    (LAST_FRAGMENT | len).to_be_bytes()
}

/// Encodes a message as a record of one fragment.
pub(crate) fn record(message: &[u8]) -> Vec<u8> {
    [&mark(message.len() as u32), message].concat()
}

pub(crate) fn encode(value: &impl XdrEncode) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.encode(&mut FlatSink::new(&mut bytes))?;
    Ok(bytes)
}

/// Encodes the header of a call, for a procedure given by its numbers.
pub(crate) fn header(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    credential: &Credential,
) -> anyhow::Result<Vec<u8>> {
    let mut header = CallHeader::new(xid, program, version, procedure);
    header.credential = credential.to_opaque()?;
    let mut message = Vec::new();
    header.encode(&mut FlatSink::new(&mut message))?;
    Ok(message)
}

/// Encodes the header of a call of `P`.
pub(crate) fn header_of<P: Procedure>(xid: u32, credential: &Credential) -> anyhow::Result<Vec<u8>> {
    header(xid, (P::PROGRAM, P::VERSION, P::NUMBER), credential)
}

/// Encodes a call of `P`: header and arguments.
pub(crate) fn call<P: Procedure>(xid: u32, credential: &Credential, args: &P::Args) -> anyhow::Result<Vec<u8>> {
    Ok([header_of::<P>(xid, credential)?, encode(args)?].concat())
}

/// Reads a record of one fragment. Fails if the record has several fragments or is longer than [`MAX_REPLY`], or if
/// reading takes longer than [`PATIENCE`].
pub(crate) async fn read_record(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let read = async {
        let mark = stream.read_u32().await?;
        let len = mark & !LAST_FRAGMENT;
        ensure!(mark & LAST_FRAGMENT != 0 && len <= MAX_REPLY, "the server sent an unexpected record mark: {mark:#x}");
        let mut record = vec![0; len as usize];
        stream.read_exact(&mut record).await?;
        Ok(record)
    };
    timeout(PATIENCE, read).await.context("the server sent no reply in time")?
}

/// Decodes the results of a successful reply to the call `xid`.
pub(crate) fn results<P: Procedure>(reply: &[u8], xid: u32) -> anyhow::Result<P::Reply> {
    let mut decoder = Decoder::new(reply);
    let header = ReplyHeader::decode(&mut decoder)?;
    ensure!(header.xid == xid, "the reply has the XID {:#x} instead of {xid:#x}", header.xid);
    if let Err(error) = header.outcome {
        bail!("the server rejected a call: {error}");
    }
    Ok(XdrDecode::decode(&mut decoder)?)
}

/// Returns `true` if the server has closed the connection. Discards up to 1 MiB of received data.
pub(crate) fn is_closed(stream: &TcpStream) -> bool {
    let mut discarded = [0; 4096];
    for _ in 0..256 {
        match stream.try_read(&mut discarded) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
    false
}

/// Returns the number of closed connections, and a description of all, such as `3 of 16 connections closed, 13 wait`.
pub(crate) fn fates<'a>(streams: impl IntoIterator<Item = &'a TcpStream>) -> (usize, String) {
    let closed: Vec<bool> = streams.into_iter().map(is_closed).collect();
    let (all, closed) = (closed.len(), closed.iter().filter(|closed| **closed).count());
    (closed, format!("{closed} of {all} connections closed, {} wait", all - closed))
}

/// Waits for the server to close a connection. Returns `false` if it stays open for [`PATIENCE`].
pub(crate) async fn closes(stream: &mut TcpStream) -> bool {
    let mut discarded = [0; 4096];
    let end = async { while matches!(stream.read(&mut discarded).await, Ok(1..)) {} };
    timeout(PATIENCE, end).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_a_mark() {
        assert_eq!(record(b"abcd"), [0x80, 0, 0, 4, b'a', b'b', b'c', b'd']);
        let header = header(7, (100_003, 3, 1), &Credential::None);
        let words = [7_u32, 0, 2, 100_003, 3, 1, 0, 0, 0, 0];
        assert!(header.is_ok_and(|header| header == words.map(u32::to_be_bytes).concat()));
    }
}
