//! Calls written octet by octet, by TCP.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use rpcrdma::{
    rpc::{CallHeader, Credential},
    xdr::{FlatSink, XdrEncode},
};

/// The header of a call of an NFS version 3 procedure.
pub(crate) fn header(xid: u32, procedure: u32, credential: &Credential) -> Vec<u8> {
    let mut header = CallHeader::new(xid, 100_003, 3, procedure);
    header.credential = credential.to_opaque().unwrap();
    let mut call = Vec::new();
    header.encode(&mut FlatSink::new(&mut call)).unwrap();
    call
}

pub(crate) fn encoded(args: &impl XdrEncode) -> Vec<u8> {
    let mut octets = Vec::new();
    args.encode(&mut FlatSink::new(&mut octets)).unwrap();
    octets
}

/// A connection to a server at `tcp://..`.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("tcp://").unwrap()).unwrap();
        // So that a server that answers nothing fails a test.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    /// Sends a record, and returns the next.
    pub(crate) fn call(&mut self, call: &[u8]) -> io::Result<Vec<u8>> {
        // RFC 5531 §11: the last fragment, and its length.
        let mark = (0x8000_0000 | call.len() as u32).to_be_bytes();
        self.0.write_all(&[&mark, call].concat())?;
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply)?;
        Ok(reply)
    }
}
