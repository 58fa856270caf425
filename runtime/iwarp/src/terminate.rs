//! The Terminate message (RFC 5040 §4.8): encoding, decoding and description.

use std::borrow::Cow;

use super::{ddp, rdmap::READ_REQUEST};

/// The layer, type and code of an error (RFC 5040 figure 9, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8, §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminateCode {
    pub(crate) layer: u8,
    pub(crate) etype: u8,
    pub(crate) code: u8,
}

const fn code(layer: u8, etype: u8, code: u8) -> TerminateCode {
    TerminateCode { layer, etype, code }
}

const RDMAP: u8 = 0;
const DDP: u8 = 1;
const LLP: u8 = 2;

impl TerminateCode {
    pub(crate) const LOCAL_CATASTROPHIC: Self = code(RDMAP, 0, 0);
    pub(crate) const READ_INVALID_STAG: Self = code(RDMAP, 1, 0x00);
    pub(crate) const READ_BOUNDS: Self = code(RDMAP, 1, 0x01);
    pub(crate) const READ_ACCESS: Self = code(RDMAP, 1, 0x02);
    pub(crate) const READ_TO_WRAP: Self = code(RDMAP, 1, 0x04);
    pub(crate) const CANNOT_INVALIDATE: Self = code(RDMAP, 1, 0x09);
    pub(crate) const RDMAP_VERSION: Self = code(RDMAP, 2, 0x05);
    pub(crate) const UNEXPECTED_OPCODE: Self = code(RDMAP, 2, 0x06);
    pub(crate) const STREAM_CATASTROPHIC: Self = code(RDMAP, 2, 0x07);
    pub(crate) const UNSPECIFIED: Self = code(RDMAP, 2, 0xff);
    pub(crate) const TAGGED_INVALID_STAG: Self = code(DDP, 1, 0x00);
    pub(crate) const TAGGED_BOUNDS: Self = code(DDP, 1, 0x01);
    pub(crate) const TAGGED_TO_WRAP: Self = code(DDP, 1, 0x03);
    pub(crate) const TAGGED_DDP_VERSION: Self = code(DDP, 1, 0x04);
    pub(crate) const INVALID_QN: Self = code(DDP, 2, 0x01);
    pub(crate) const NO_BUFFER: Self = code(DDP, 2, 0x02);
    pub(crate) const INVALID_MSN: Self = code(DDP, 2, 0x03);
    pub(crate) const INVALID_MO: Self = code(DDP, 2, 0x04);
    pub(crate) const TOO_LONG: Self = code(DDP, 2, 0x05);
    pub(crate) const UNTAGGED_DDP_VERSION: Self = code(DDP, 2, 0x06);
    pub(crate) const MPA_CRC: Self = code(LLP, 0, 0x02);
    pub(crate) const INSUFFICIENT_IRD: Self = code(LLP, 0, 0x06);

    /// Returns `true` if RFC 5040 figure 10 includes the DDP header in the Terminate.
    fn includes_ddp_header(self) -> bool {
        self.layer == DDP || self.layer == RDMAP && self.etype != 0
    }

    /// Returns `true` if RFC 5040 figure 10 includes the RDMAP header in the Terminate, provided that the segment has
    /// one.
    fn includes_rdmap_header(self) -> bool {
        self.layer == RDMAP && self.etype == 1
    }

    /// Returns a description of the code, or `None` if the specifications do not define it.
    fn name(self) -> Option<&'static str> {
        Some(match (self.layer, self.etype, self.code) {
            (RDMAP, 0, _) => "RDMAP: local catastrophic error",
            (RDMAP, 1, 0x00) => "RDMAP: remote protection error, invalid STag",
            (RDMAP, 1, 0x01) => "RDMAP: remote protection error, base or bounds violation",
            (RDMAP, 1, 0x02) => "RDMAP: remote protection error, access rights violation",
            (RDMAP, 1, 0x03) => "RDMAP: remote protection error, STag not associated with the stream",
            (RDMAP, 1, 0x04) => "RDMAP: remote protection error, tagged offset wraps",
            (RDMAP, 1, 0x09) => "RDMAP: remote protection error, STag cannot be invalidated",
            (RDMAP, 1, 0xff) => "RDMAP: remote protection error",
            (RDMAP, 2, 0x05) => "RDMAP: remote operation error, invalid RDMAP version",
            (RDMAP, 2, 0x06) => "RDMAP: remote operation error, unexpected opcode",
            (RDMAP, 2, 0x07) => "RDMAP: remote operation error, catastrophic, this stream",
            (RDMAP, 2, 0x08) => "RDMAP: remote operation error, catastrophic, global",
            (RDMAP, 2, 0x09) => "RDMAP: remote operation error, STag cannot be invalidated",
            (RDMAP, 2, 0xff) => "RDMAP: remote operation error",
            (DDP, 0, 0x00) => "DDP: local catastrophic error",
            (DDP, 1, 0x00) => "DDP: tagged buffer error, invalid STag",
            (DDP, 1, 0x01) => "DDP: tagged buffer error, base or bounds violation",
            (DDP, 1, 0x02) => "DDP: tagged buffer error, STag not associated with the stream",
            (DDP, 1, 0x03) => "DDP: tagged buffer error, tagged offset wraps",
            (DDP, 1, 0x04) => "DDP: tagged buffer error, invalid DDP version",
            (DDP, 2, 0x01) => "DDP: untagged buffer error, invalid queue number",
            (DDP, 2, 0x02) => "DDP: untagged buffer error, no buffer available",
            (DDP, 2, 0x03) => "DDP: untagged buffer error, message sequence number out of range",
            (DDP, 2, 0x04) => "DDP: untagged buffer error, invalid message offset",
            (DDP, 2, 0x05) => "DDP: untagged buffer error, message too long for the buffer",
            (DDP, 2, 0x06) => "DDP: untagged buffer error, invalid DDP version",
            (LLP, 0, 0x01) => "MPA: TCP connection closed, terminated or lost",
            (LLP, 0, 0x02) => "MPA: CRC error",
            (LLP, 0, 0x03) => "MPA: marker and ULPDU length disagree",
            (LLP, 0, 0x04) => "MPA: invalid request or reply frame",
            (LLP, 0, 0x05) => "MPA: local catastrophic error",
            (LLP, 0, 0x06) => "MPA: insufficient IRD resources",
            (LLP, 0, 0x07) => "MPA: no matching RTR option",
            _ => return None,
        })
    }

    fn nibbles_swapped(self) -> Self {
        Self { layer: self.etype, etype: self.layer, code: self.code }
    }
}

/// An error in received data, which is reported to the peer and to the upper layer.
#[derive(Debug, Clone)]
pub(crate) struct ProtocolFault {
    pub(crate) code: TerminateCode,
    /// A description for the local user.
    pub(crate) detail: Cow<'static, str>,
}

impl ProtocolFault {
    pub(crate) fn new(code: TerminateCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// The start of the ULPDU of the segment in which an error was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultySegment {
    /// The ULPDU_Length field.
    pub(crate) ulpdu_len: u16,
    /// The DDP header, followed by the RDMA Read Request header if there is one.
    pub(crate) bytes: [u8; ddp::UNTAGGED + READ_REQUEST],
    /// Number of valid bytes in `bytes`.
    pub(crate) len: usize,
}

impl Default for FaultySegment {
    fn default() -> Self {
        Self { ulpdu_len: 0, bytes: [0; ddp::UNTAGGED + READ_REQUEST], len: 0 }
    }
}

impl FaultySegment {
    /// Starts the record of another segment. A Terminate includes the headers of the segment that has the error (RFC
    /// 5040 §7.1).
    pub(crate) fn begin(&mut self, ulpdu_len: u16) {
        (self.ulpdu_len, self.len) = (ulpdu_len, 0);
    }

    /// Appends bytes of the segment, as far as they fit.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }
}

/// Encodes the Terminate header (RFC 5040 §4.2, §4.8) that reports `code`. It includes the headers of the segment
/// `offender` that RFC 5040 figure 10 requires for the code (RFC 5041 §7.1).
pub(crate) fn encode(code: TerminateCode, offender: Option<&FaultySegment>) -> Vec<u8> {
    const DDP_SEGMENT_LENGTH: u8 = 0x80;
    const DDP_HEADER: u8 = 0x40;
    const RDMAP_HEADER: u8 = 0x20;
    let mut out = vec![code.layer << 4 | code.etype & 0xf, code.code, 0, 0];
    let Some(offender) = offender.filter(|_| code.includes_ddp_header()) else { return out };
    let kept = offender.bytes.get(..offender.len).unwrap_or_default();
    let ddp_len = kept.first().map_or(0, |control| ddp::header_len(*control));
    let (true, Some(ddp_header)) = (ddp_len > 0, kept.get(..ddp_len)) else { return out };
    out[2] |= DDP_SEGMENT_LENGTH | DDP_HEADER;
    out.extend_from_slice(&offender.ulpdu_len.to_be_bytes());
    out.extend_from_slice(ddp_header);
    if let Some(request) = kept.get(ddp_len..ddp_len + READ_REQUEST).filter(|_| code.includes_rdmap_header()) {
        out[2] |= RDMAP_HEADER;
        out.extend_from_slice(request);
    }
    out
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedTerminate {
    code: TerminateCode,
    pub(crate) about: TerminateSubject,
}

/// The message that a Terminate refers to, according to its DDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminateSubject {
    /// The Terminate has no DDP header, or an incomplete one.
    Unknown,
    /// The RDMA Read Request with this sequence number.
    Read { msn: u32 },
    /// Another message.
    Other,
}

impl ReceivedTerminate {
    /// Decodes a Terminate header. Returns `None` if `payload` is shorter than the control field.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let (&[types, code, flags, _], rest) = payload.split_first_chunk::<4>()?;
        let code = TerminateCode { layer: types >> 4, etype: types & 0xf, code };
        let about = match (flags & 0x40 != 0).then(|| ddp::DdpHeader::decode(rest.get(2..)?)).flatten() {
            None => TerminateSubject::Unknown,
            Some(ddp::DdpHeader::Untagged { queue: ddp::queue::READ_REQUEST, msn, .. }) => {
                TerminateSubject::Read { msn }
            }
            Some(_) => TerminateSubject::Other,
        };
        Some(Self { code, about })
    }

    /// Returns `true` if the peer refused an RDMA Write or the response to an RDMA Read (RFC 5041 §7.1, §7.2).
    pub(crate) fn is_tagged_buffer_error(&self) -> bool {
        (self.code.layer, self.code.etype) == (DDP, 1) && self.code.name().is_some()
    }

    /// Returns `true` if the peer refused access to its memory by an RDMA Read. Also recognizes codes that are valid
    /// only with layer and type swapped, as `siw` sends them.
    pub(crate) fn is_remote_access(&self) -> bool {
        let is_protection = |code: TerminateCode| code.layer == RDMAP && code.etype == 1 && code.name().is_some();
        is_protection(self.code) || self.code.name().is_none() && is_protection(self.code.nibbles_swapped())
    }

    /// Describes the error to the upper layer (RFC 5040 §5.4), including its numbers.
    ///
    /// Linux's `siw` swaps layer and type on little-endian machines. If the bytes are valid only with layer and type
    /// swapped, that reading is described. If both readings are valid, both are described.
    pub(crate) fn describe(&self) -> String {
        let TerminateCode { layer, etype, code } = self.code;
        let swapped = self.code.nibbles_swapped();
        let what = match (self.code.name(), swapped.name()) {
            (Some(name), Some(other)) if swapped != self.code => format!("{name} (or, from siw, {other})"),
            (Some(name), _) => name.to_owned(),
            (None, Some(other)) => format!("{other} (layer and type swapped, as siw does)"),
            (None, None) => "an error that the specifications do not define".to_owned(),
        };
        format!("Terminate, {what} [layer {layer:#x}, type {etype:#x}, code {code:#04x}]")
    }
}

#[cfg(test)]
mod tests;
