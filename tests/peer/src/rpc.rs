//! Messages of ONC RPC (RFC 5531), and transaction IDs.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use rpcrdma_xdr::{
    rpc::{CallHeader, Credential, ReplyHeader},
    xdr::{Decoder, FlatSink, XdrEncode},
};

/// A procedure: the numbers of the program, its version and the procedure.
pub(crate) type Procedure = (u32, u32, u32);

/// Returns an XID that no other call of this process has. The first XID depends on the time, because a server may
/// remember its replies to an earlier run of the program.
pub(crate) fn next_xid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_micros() as u32) | 1
    };
    let _ = NEXT.compare_exchange(0, start(), Relaxed, Relaxed);
    NEXT.fetch_add(1, Relaxed)
}

/// Encodes a value in XDR. Errors are ignored, because no value of this crate exceeds a limit.
pub(crate) fn encode(value: &impl XdrEncode) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = value.encode(&mut FlatSink::new(&mut bytes));
    bytes
}

/// Encodes words in big-endian order.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Decodes the words of a message. An incomplete last word is dropped.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

/// Replaces a word of a message. Does nothing if the message is too short.
pub(crate) fn set_word(message: &mut [u8], index: usize, word: u32) {
    if let Some(place) = message.get_mut(index * 4..index * 4 + 4) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// Encodes a call with encoded arguments. A credential that cannot be encoded is left out.
pub(crate) fn call(xid: u32, procedure: Procedure, credential: &Credential, args: &[u8]) -> Vec<u8> {
    let (program, version, procedure) = procedure;
    let mut header = CallHeader::new(xid, program, version, procedure);
    if let Ok(credential) = credential.to_opaque() {
        header.credential = credential;
    }
    let mut bytes = Vec::new();
    let _ = header.encode(&mut FlatSink::new(&mut bytes));
    bytes.extend_from_slice(args);
    bytes
}

/// Encodes a reply with SYSTEM_ERR.
pub(crate) fn system_err(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 5])
}

/// Encodes a successful reply with encoded results.
pub(crate) fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = ReplyHeader::success(xid).encode(&mut FlatSink::new(&mut bytes));
    bytes.extend_from_slice(results);
    bytes
}

/// A reply of an RPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) xid: u32,
    pub(crate) status: &'static str,
    pub(crate) results: Bytes,
}

impl Reply {
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, String> {
        let mut decoder = Decoder::shared(bytes);
        let header = ReplyHeader::decode(&mut decoder).map_err(|error| format!("an invalid RPC reply: {error}"))?;
        let status = header.outcome.map_or_else(|error| error.status(), |()| "SUCCESS");
        Ok(Self { xid: header.xid, status, results: bytes.slice(decoder.consumed()..) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_replies() {
        let call = call(7, (100_003, 3, 1), &Credential::None, &[1, 2, 3, 4]);
        assert_eq!(to_words(&call), [7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 0x0102_0304]);
        let reply = Reply::decode(&reply(7, &words(&[9])).into()).unwrap();
        assert_eq!((reply.xid, reply.status, &reply.results[..]), (7, "SUCCESS", &[0, 0, 0, 9][..]));
        let garbage = Reply::decode(&words(&[7, 1, 0, 0, 0, 4]).into()).unwrap();
        assert_eq!(garbage.status, "GARBAGE_ARGS");
        assert!(Reply::decode(&words(&[7, 0, 2]).into()).is_err());
        assert_ne!(next_xid(), next_xid());
    }
}
