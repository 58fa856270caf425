//! Raw RPC calls over TCP.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use rpcrdma::{
    rpc::{CallHeader, Credential},
    xdr::{FlatSink, XdrEncode},
};

/// Encodes the header of an NFS version 3 call.
pub(crate) fn header(xid: u32, procedure: u32, credential: &Credential) -> Vec<u8> {
    let mut header = CallHeader::new(xid, 100_003, 3, procedure);
    header.credential = credential.to_opaque().unwrap();
    let mut call = Vec::new();
    header.encode(&mut FlatSink::new(&mut call)).unwrap();
    call
}

pub(crate) fn encoded(args: &impl XdrEncode) -> Vec<u8> {
    let mut bytes = Vec::new();
    args.encode(&mut FlatSink::new(&mut bytes)).unwrap();
    bytes
}

/// A connection to a server at `tcp://..`.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("tcp://").unwrap()).unwrap();
        // A server that does not reply fails the test.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    /// Sends a call as a record, and returns the next record.
    pub(crate) fn call(&mut self, call: &[u8]) -> io::Result<Vec<u8>> {
        // Record mark: the last-fragment bit and the length (RFC 5531 §11).
        let mark = (0x8000_0000 | call.len() as u32).to_be_bytes();
        self.0.write_all(&[&mark, call].concat())?;
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply)?;
        Ok(reply)
    }
}
