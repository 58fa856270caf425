//! Segments and FPDUs: encoding, and the error codes of received Terminates.

use crc_fast::crc32_iscsi;

/// Control bytes of a Send, in its last segment (RFC 5041 section 4.1, RFC 5040 section 4.1).
pub(super) const SEND: [u8; 2] = [0x41, 0x43];
/// Control bytes of a Send, in a segment that is not the last.
pub(super) const SEND_PART: [u8; 2] = [0x01, 0x43];
pub(super) const SEND_INVALIDATE: [u8; 2] = [0x41, 0x44];
pub(super) const WRITE: [u8; 2] = [0xc1, 0x40];
pub(super) const READ_REQUEST: [u8; 2] = [0x41, 0x41];
pub(super) const READ_RESPONSE: [u8; 2] = [0xc1, 0x42];
pub(super) const TERMINATE: [u8; 2] = [0x41, 0x47];
/// Length in bytes of the header of an untagged segment (RFC 5041 section 4.3). Its RsvdULP field contains the control
/// byte and the Invalidate STag of RDMAP (RFC 5040 section 4.1).
pub(super) const UNTAGGED_LEN: usize = 18;

/// Encodes an untagged segment for a queue, with its message number and offset.
pub(super) fn untagged(control: [u8; 2], (queue, msn, mo): (u32, u32, u32), payload: &[u8]) -> Vec<u8> {
    invalidating(control, 0, (queue, msn, mo), payload)
}

/// Encodes an untagged segment that names an STag to invalidate.
pub(super) fn invalidating(control: [u8; 2], stag: u32, (queue, msn, mo): (u32, u32, u32), payload: &[u8]) -> Vec<u8> {
    let mut out = control.to_vec();
    for word in [stag, queue, msn, mo] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(payload);
    out
}

/// Encodes a tagged segment.
pub(super) fn tagged(control: [u8; 2], stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = control.to_vec();
    out.extend_from_slice(&stag.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Encodes an RDMA Read Request of `len` bytes, with the message number `msn`. `sink` and `source` are pairs of an STag
/// and an offset.
pub(super) fn read_request(msn: u32, sink: (u32, u64), len: u32, source: (u32, u64)) -> Vec<u8> {
    let mut payload = sink.0.to_be_bytes().to_vec();
    payload.extend_from_slice(&sink.1.to_be_bytes());
    payload.extend_from_slice(&len.to_be_bytes());
    payload.extend_from_slice(&source.0.to_be_bytes());
    payload.extend_from_slice(&source.1.to_be_bytes());
    untagged(READ_REQUEST, (1, msn, 0), &payload)
}

/// Frames a segment as an FPDU (RFC 5044 section 4.1), in which each byte of the padding is `pad`.
pub(super) fn fpdu_padded_with(segment: &[u8], pad: u8) -> Vec<u8> {
    let mut out = (segment.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(segment);
    out.resize(out.len().next_multiple_of(4), pad);
    let crc = crc32_iscsi(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Frames a segment as an FPDU with zeros as padding.
pub(super) fn fpdu(segment: &[u8]) -> Vec<u8> {
    fpdu_padded_with(segment, 0)
}

/// Frames each segment as an FPDU, and joins the FPDUs.
pub(super) fn fpdus(segments: &[Vec<u8>]) -> Vec<u8> {
    segments.iter().flat_map(|segment| fpdu(segment)).collect()
}

/// The error in a Terminate: its layer and type in one byte, and its code.
pub(super) type ErrorCode = (u8, u8);

/// Returns the error that a segment reports, if the segment is a valid Terminate (RFC 5040 section 5.4).
pub(super) fn terminate_code(segment: &[u8]) -> Option<ErrorCode> {
    let (header, payload) = segment.split_at_checked(UNTAGGED_LEN)?;
    let is_terminate = header[..2] == TERMINATE && header[6..] == [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
    is_terminate.then_some((*payload.first()?, *payload.get(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_a_length_and_a_crc() {
        // RFC 3720 appendix B.4.
        assert_eq!(crc32_iscsi(&[0; 32]), 0x8a91_36aa);
        let frame = fpdu_padded_with(&[1, 2, 3], 9);
        assert_eq!((frame.len(), &frame[..8]), (12, &[0, 3, 1, 2, 3, 9, 9, 9][..]));
        let read = read_request(1, (2, 3), 4, (5, 6));
        assert_eq!(read.len(), UNTAGGED_LEN + 28);
    }

    #[test]
    fn terminates_are_recognized() {
        let terminate = untagged(TERMINATE, (2, 1, 0), &[0x11, 0x04, 0, 0]);
        assert_eq!(terminate_code(&terminate), Some((0x11, 0x04)));
        assert_eq!(terminate_code(&untagged(TERMINATE, (1, 1, 0), &[0x11, 0x04])), None);
        assert_eq!(terminate_code(&untagged(SEND, (2, 1, 0), &[0x11, 0x04])), None);
        assert_eq!(terminate_code(&terminate[..UNTAGGED_LEN]), None);
    }
}
