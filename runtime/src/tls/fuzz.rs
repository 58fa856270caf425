//! The entry point for fuzzers of what a peer sends before the handshake.

use std::{
    future::Future,
    io,
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::probe::{self, MAX_REPLY_LEN, PROBE_LEN, ShortRecord};
use crate::{rpc::ReplyHeader, xdr::Decoder};

/// Markers of all fragments that a record may have.
const MARKERS_LEN: usize = 4 * 9;

/// Reads `bytes` as the first call of a client, and as the reply of a server to the probe.
pub fn tls_probe(bytes: &[u8]) {
    if let Some(ShortRecord { message: Some(message), .. }) = record(bytes, PROBE_LEN)
        && let Some(header) = probe::as_probe(&message)
    {
        let sent = probe::probe(header.xid, header.program, header.version).expect("a short header");
        assert_eq!(sent[4..], message, "a probe has one encoding");
        for outcome in [Ok(()), Err(crate::rpc::RpcError::ProgramUnavailable)] {
            let offer = probe::offer(header.xid, outcome).expect("a short header");
            let reply = record(&offer, MAX_REPLY_LEN).and_then(|record| record.message).expect("a short record");
            assert!(is_offer(&reply), "every reply to a probe is an offer");
        }
    }
    if let Some(ShortRecord { message: Some(message), .. }) = record(bytes, MAX_REPLY_LEN)
        && is_offer(&message)
    {
        assert!(message.windows(8).any(|token| token == b"STARTTLS"), "an offer contains the token");
    }
}

fn is_offer(message: &[u8]) -> bool {
    let mut decoder = Decoder::new(message);
    ReplyHeader::decode(&mut decoder).is_ok_and(|reply| decoder.finish().is_ok() && probe::offers_tls(&reply))
}

/// Reads a record. `None` if the stream ends within it.
fn record(bytes: &[u8], max: u64) -> Option<ShortRecord> {
    let mut rest = bytes;
    let read: io::Result<ShortRecord> = {
        let mut reading = pin!(probe::read_record(&mut rest, max));
        let Poll::Ready(read) = reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            unreachable!("a slice is always ready")
        };
        read
    };
    let record = read.ok()?;
    assert!(bytes.starts_with(&record.raw) && record.raw.len() + rest.len() == bytes.len(), "bytes are kept in order");
    assert!(record.raw.len() <= max as usize + MARKERS_LEN, "no more is read than a short record");
    Some(record)
}
