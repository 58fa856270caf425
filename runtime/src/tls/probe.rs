//! The AUTH_TLS probe and its reply (RFC 9289 §4.1), and the records that contain them.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    engine::stream::{RecordAssembler, StreamConfig},
    rpc::{AuthFlavor, CallHeader, OpaqueAuth, ReplyHeader, RpcError},
    xdr::{Decoder, EncodeError, FlatSink},
};

/// The flavor of the probe's credential (RFC 9289 §7.1).
pub(crate) const AUTH_TLS: u32 = 7;
/// The body of the verifier that offers TLS (RFC 9289 §4.1).
const STARTTLS: &[u8] = b"STARTTLS";
/// Length in bytes of the probe without its record marker.
pub(super) const PROBE_LEN: u64 = 40;
/// Maximum length in bytes of the reply to a probe: a verifier of 400 bytes, and the versions of a mismatch
/// (RFC 5531 §9).
pub(super) const MAX_REPLY_LEN: u64 = 28 + 400 + 8;
/// Maximum number of fragments of a record during set-up. All known peers send one fragment.
const MAX_FRAGMENTS: u32 = 8;
/// The bit of a marker that flags the last fragment of a record (RFC 5531 §11).
const LAST: u32 = 1 << 31;

/// Returns an AUTH_TLS probe as a record, including the record marker.
pub(super) fn probe(xid: u32, program: u32, version: u32) -> Result<Vec<u8>, EncodeError> {
    let credential = OpaqueAuth { flavor: AUTH_TLS, body: Default::default() };
    let header = CallHeader { credential, ..CallHeader::new(xid, program, version, 0) };
    record(|sink| header.encode(sink))
}

/// Returns the reply that offers TLS as a record, including the record marker. `outcome` is the outcome of the NULL
/// call, and does not affect the offer.
pub(super) fn offer(xid: u32, outcome: Result<(), RpcError>) -> Result<Vec<u8>, EncodeError> {
    let verifier = OpaqueAuth { body: STARTTLS.to_vec().into(), ..OpaqueAuth::none() };
    reply(&ReplyHeader { xid, verifier, outcome })
}

/// Returns a reply without results as a record, including the record marker.
pub(super) fn reply(header: &ReplyHeader) -> Result<Vec<u8>, EncodeError> {
    record(|sink| header.encode(sink))
}

fn record(message: impl FnOnce(&mut FlatSink<'_, Vec<u8>>) -> Result<(), EncodeError>) -> Result<Vec<u8>, EncodeError> {
    let mut record = vec![0; 4];
    message(&mut FlatSink::new(&mut record))?;
    let marker = LAST | (record.len() - 4) as u32;
    record[..4].copy_from_slice(&marker.to_be_bytes());
    Ok(record)
}

/// Returns the header of the call in `message` if the call is a probe (RFC 9289 §4.1), and `None` otherwise. A probe is
/// a NULL call with an empty AUTH_TLS credential, an empty AUTH_NONE verifier and no arguments.
pub(super) fn as_probe(message: &[u8]) -> Option<CallHeader> {
    let mut decoder = Decoder::new(message);
    let header = CallHeader::decode(&mut decoder).ok()?;
    let CallHeader { procedure, credential, verifier, .. } = &header;
    let is_probe = *procedure == 0
        && credential.flavor == AUTH_TLS
        && credential.body.is_empty()
        && verifier.is(AuthFlavor::AuthNone)
        && verifier.body.is_empty()
        && decoder.finish().is_ok();
    is_probe.then_some(header)
}

/// Returns `true` if a reply offers TLS. The status of the accepted call does not matter (RFC 9289 §4.1).
pub(super) fn offers_tls(reply: &ReplyHeader) -> bool {
    // A denied call has no verifier.
    reply.verifier.is(AuthFlavor::AuthNone) && *reply.verifier.body == *STARTTLS
}

/// A record that was read during set-up.
#[derive(Debug, Default)]
pub(super) struct ShortRecord {
    /// The message, or `None` if the record is longer than the limit or has too many fragments.
    pub(super) message: Option<Vec<u8>>,
    /// All bytes that were read, including the record markers.
    pub(super) raw: Vec<u8>,
}

/// Reads a record of at most `max` bytes and [`MAX_FRAGMENTS`] fragments, and nothing after the record. If the record
/// exceeds a limit, reads no more than `max` bytes and the record markers.
pub(super) async fn read_record(stream: &mut (impl AsyncRead + Unpin), max: u64) -> io::Result<ShortRecord> {
    let mut limits = StreamConfig::default();
    (limits.max_record, limits.max_fragments) = (max, MAX_FRAGMENTS);
    let mut assembler = RecordAssembler::new(limits);
    let mut raw = Vec::new();
    loop {
        match assembler.next_record() {
            Ok(Some(message)) => return Ok(ShortRecord { message: Some(message.to_vec()), raw }),
            Ok(None) => {}
            Err(_) => return Ok(ShortRecord { message: None, raw }),
        }
        // Between fragments, the next bytes are a marker.
        let wanted = match assembler.missing() {
            0 => 4,
            missing => missing,
        };
        let at = raw.len();
        raw.resize(at + wanted, 0);
        let bytes = raw.get_mut(at..).unwrap_or_default();
        stream.read_exact(bytes).await?;
        assembler.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// The probe and the reply that offers TLS are encoded as in RFC 5531 §9 and RFC 9289 §4.1, word by word.
    #[test]
    fn encodings() {
        assert_eq!(probe(9, 100_003, 3).unwrap(), words(&[LAST | 40, 9, 0, 2, 100_003, 3, 0, 7, 0, 0, 0]));
        let offered = [&words(&[LAST | 32, 9, 1, 0, 0, 8])[..], b"STARTTLS", &words(&[0])].concat();
        assert_eq!(offer(9, Ok(())).unwrap(), offered);
    }

    #[test]
    fn only_conforming_calls_are_probes() {
        assert!(as_probe(&words(&[9, 0, 2, 1, 1, 0, 7, 0, 0, 0])).is_some());
        for (call, problem) in [
            (words(&[9, 0, 2, 1, 1, 1, 7, 0, 0, 0]), "procedure"),
            (words(&[9, 0, 2, 1, 1, 0, 0, 0, 0, 0]), "flavor"),
            (words(&[9, 0, 2, 1, 1, 0, 7, 4, 1, 0, 0]), "credential"),
            (words(&[9, 0, 2, 1, 1, 0, 7, 0, 1, 0]), "flavor of the verifier"),
            (words(&[9, 0, 2, 1, 1, 0, 7, 0, 0, 4, 1]), "verifier"),
            (words(&[9, 0, 2, 1, 1, 0, 7, 0, 0, 0, 1]), "arguments"),
            (words(&[9, 1, 0, 0, 0, 0]), "a reply"),
            (words(&[9, 0, 2, 1]), "truncated"),
        ] {
            assert!(as_probe(&call).is_none(), "{problem}");
        }
    }

    #[test]
    fn only_the_token_offers_tls() {
        let decode = |record: &[u8]| ReplyHeader::decode(&mut Decoder::new(&record[4..])).unwrap();
        // RFC 9289 §4.1: whatever the status of the call is.
        for outcome in [
            Ok(()),
            Err(RpcError::ProgramUnavailable),
            Err(RpcError::ProgramMismatch { low: 1, high: 2 }),
            Err(RpcError::ProcedureUnavailable),
            Err(RpcError::GarbageArguments),
            Err(RpcError::SystemError),
        ] {
            assert!(offers_tls(&decode(&offer(1, outcome).unwrap())), "{outcome:?}");
        }
        let with = |flavor, body: &[u8]| ReplyHeader {
            xid: 1,
            verifier: OpaqueAuth { flavor, body: body.to_vec().into() },
            outcome: Ok(()),
        };
        for reply in [
            with(0, b""),
            with(0, b"START"),
            with(0, b"STARTTL"),
            with(0, b"STARTTLS\0"),
            with(0, b" STARTTLS"),
            with(0, b"starttls"),
            with(1, b"STARTTLS"),
            with(6, b"STARTTLS"),
            with(7, b"STARTTLS"),
        ] {
            assert!(!offers_tls(&reply), "{reply:?}");
        }
    }

    /// Reading a record of three fragments, one of them empty, stops at the end of the record.
    #[tokio::test]
    async fn nothing_behind_a_record_is_read() {
        let fragments = [&words(&[2])[..], b"ab", &words(&[0]), &words(&[LAST | 1]), b"c"].concat();
        let mut stream = &[&fragments[..], b"behind"].concat()[..];
        let record = read_record(&mut stream, 40).await.unwrap();
        assert_eq!((record.message.as_deref(), record.raw, stream), (Some(&b"abc"[..]), fragments, &b"behind"[..]));
    }

    #[tokio::test]
    async fn long_records_are_not_read() {
        let mut stream = &[&words(&[LAST | 41])[..], &[7; 41]].concat()[..];
        let record = read_record(&mut stream, 40).await.unwrap();
        assert_eq!((record.message, record.raw.len(), stream.len()), (None, 4, 41));
        let empty = words(&[0; 20]);
        let mut stream = &empty[..];
        let record = read_record(&mut stream, 40).await.unwrap();
        assert_eq!(record.message, None);
        assert!(stream.len() >= 40, "{}", stream.len());
        assert!(read_record(&mut &words(&[LAST | 8, 1])[..], 40).await.is_err());
    }
}
