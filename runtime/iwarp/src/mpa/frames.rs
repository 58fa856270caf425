//! MPA request and reply frames (RFC 5044 §7.1.1), with enhanced set-up data (RFC 6581 §6, §9).

use bytes::Bytes;

/// Length of a frame before its private data, in bytes.
pub(crate) const HEADER: usize = 20;
/// Maximum length of a frame's private data (RFC 5044 §7.1.1) in bytes, including enhanced set-up data.
pub(crate) const MAX_PRIVATE_DATA: usize = 512;
/// Length of enhanced set-up data, in bytes (RFC 6581 §9).
pub(crate) const ENHANCED: usize = 4;
/// The IRD or ORD value that leaves the negotiation to the upper layers. It is also the largest 14-bit value (RFC 6581
/// §9.1).
pub(crate) const UNNEGOTIATED: u16 = 0x3fff;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED_DATA: u8 = 0x10;

/// The kind of an MPA frame: request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The initiator's frame, which is sent first.
    Request,
    /// The responder's frame.
    Reply,
}

impl FrameKind {
    /// Returns the key at the start of the frame (RFC 5044 §7.1.1).
    pub(crate) const fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// A frame without the private data of the upper layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MpaFrame {
    pub(crate) kind: FrameKind,
    /// M: `true` if the sender of the frame requires markers in the data that it receives.
    pub(crate) markers: bool,
    /// C: `true` if the sender of the frame requests CRCs.
    pub(crate) crc: bool,
    /// R, in replies: `true` if the connection is rejected.
    pub(crate) reject: bool,
    /// The MPA revision, 1 or 2.
    pub(crate) revision: u8,
    /// The enhanced set-up data, which the flag S announces. `None` if S is not set.
    pub(crate) enhanced: Option<EnhancedData>,
}

/// Enhanced set-up data (RFC 6581 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EnhancedData {
    /// Maximum number of the receiver's RDMA Reads that the sender serves at a time (14 bits).
    pub(crate) ird: u16,
    /// Maximum number of the sender's RDMA Reads in flight (14 bits).
    pub(crate) ord: u16,
    /// A: `true` in the peer-to-peer model, in which the initiator sends a ready-to-receive indication.
    pub(crate) peer_to_peer: bool,
    /// B: `true` if the indication can be a zero-length Send.
    pub(crate) rtr_send: bool,
    /// C: `true` if the indication can be a zero-length RDMA Write.
    pub(crate) rtr_write: bool,
    /// D: `true` if the indication can be a zero-length RDMA Read.
    pub(crate) rtr_read: bool,
}

impl EnhancedData {
    fn encode(self) -> [u8; ENHANCED] {
        let bit = |flag: bool, mask: u16| if flag { mask } else { 0 };
        // RFC 6581 §9.2: without A, the flags B, C and D are 0.
        let a = self.peer_to_peer;
        let first = self.ird.min(UNNEGOTIATED) | bit(a, 0x8000) | bit(a && self.rtr_send, 0x4000);
        let second = self.ord.min(UNNEGOTIATED) | bit(a && self.rtr_write, 0x8000) | bit(a && self.rtr_read, 0x4000);
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }

    fn decode([a, b, c, d]: [u8; ENHANCED]) -> Self {
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let peer_to_peer = first & 0x8000 != 0;
        // RFC 6581 §9.2: without A, the flags B, C and D are ignored.
        let flag = |word: u16, mask: u16| peer_to_peer && word & mask != 0;
        Self {
            ird: first & UNNEGOTIATED,
            ord: second & UNNEGOTIATED,
            peer_to_peer,
            rtr_send: flag(first, 0x4000),
            rtr_write: flag(second, 0x8000),
            rtr_read: flag(second, 0x4000),
        }
    }
}

/// An invalid frame (RFC 5044 §8 code 4). The subject of each error message is the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("sent {:?} instead of the MPA key {:?}", String::from_utf8_lossy(.got), String::from_utf8_lossy(.expected))]
    Key { got: Vec<u8>, expected: &'static [u8] },
    #[error("sent an MPA request frame instead of a reply: both sides are initiators")]
    BothInitiate,
    #[error("speaks MPA revision {0}, but only 1 and 2 are supported")]
    Revision(u8),
    #[error("declares {0} bytes of private data, but the limit is 512")]
    PrivateDataTooLong(usize),
    #[error("announces enhanced set-up data, but has only {0} bytes of private data")]
    NoRoomForEnhancedData(usize),
}

/// The first 20 bytes of a frame, decoded and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    frame: MpaFrame,
    has_enhanced: bool,
    private_data_len: usize,
}

impl FrameHeader {
    /// Checks that a frame of this kind can begin with these bytes.
    pub(crate) fn check_key(kind: FrameKind, bytes: &[u8]) -> Result<(), FrameError> {
        let key = kind.key();
        let len = bytes.len().min(key.len());
        if bytes[..len] == key[..len] {
            return Ok(());
        }
        // RFC 5044 §7.1.2 rule 8: report to an initiator that it has reached another initiator.
        if kind == FrameKind::Reply && len == key.len() && bytes[..len] == FrameKind::Request.key()[..] {
            return Err(FrameError::BothInitiate);
        }
        // The keys differ in the end only. Wait for all of the key before reporting the wrong role.
        if kind == FrameKind::Reply && len < key.len() && bytes[..len] == FrameKind::Request.key()[..len] {
            return Ok(());
        }
        Err(FrameError::Key { got: bytes[..len].to_vec(), expected: key })
    }

    /// Checks and decodes the first bytes of a frame (RFC 5044 §7.1.1).
    pub(crate) fn decode(kind: FrameKind, bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        // RFC 5044 §7.1.1: receivers MUST check the key.
        Self::check_key(kind, &bytes[..16])?;
        let [flags, revision, len_high, len_low] = [bytes[16], bytes[17], bytes[18], bytes[19]];
        // RFC 5044 §7.1.1: receivers MUST check the revision. RFC 6581 §6, §10: revision 1 is always accepted.
        if !matches!(revision, 1 | 2) {
            return Err(FrameError::Revision(revision));
        }
        let private_data_len = usize::from(u16::from_be_bytes([len_high, len_low]));
        // RFC 5044 §7.1.1: more than 512 bytes of private data MUST close the connection.
        if private_data_len > MAX_PRIVATE_DATA {
            return Err(FrameError::PrivateDataTooLong(private_data_len));
        }
        // In revision 1, S is a reserved bit, which is not checked on reception (RFC 5044 §7.1.1).
        let has_enhanced = revision >= 2 && flags & ENHANCED_DATA != 0;
        if has_enhanced && private_data_len < ENHANCED {
            return Err(FrameError::NoRoomForEnhancedData(private_data_len));
        }
        let frame = MpaFrame {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            // RFC 5044 §7.1.1: R is not checked in requests.
            reject: kind == FrameKind::Reply && flags & REJECT != 0,
            revision,
            enhanced: None,
        };
        Ok(Self { frame, has_enhanced, private_data_len })
    }

    /// Returns the length in bytes of the private data that follows, including enhanced set-up data.
    pub(crate) fn private_data_len(&self) -> usize {
        self.private_data_len
    }

    /// Returns the frame and the upper layer's private data, given the bytes that follow the header.
    pub(crate) fn with_private_data(self, bytes: &[u8]) -> (MpaFrame, Bytes) {
        let mut frame = self.frame;
        match bytes.split_first_chunk::<ENHANCED>() {
            Some((enhanced, rest)) if self.has_enhanced => {
                frame.enhanced = Some(EnhancedData::decode(*enhanced));
                (frame, Bytes::copy_from_slice(rest))
            }
            _ => (frame, Bytes::copy_from_slice(bytes)),
        }
    }
}

impl MpaFrame {
    /// Returns the maximum length of the upper layer's private data in this frame, in bytes.
    pub(crate) fn max_private_data(&self) -> usize {
        MAX_PRIVATE_DATA - if self.enhanced.is_some() { ENHANCED } else { 0 }
    }

    /// Encodes the frame. Returns `None` if the private data is too long.
    pub(crate) fn encode(&self, private_data: &[u8]) -> Option<Vec<u8>> {
        if private_data.len() > self.max_private_data() {
            return None;
        }
        let enhanced = self.enhanced.map(EnhancedData::encode);
        let len = private_data.len() + enhanced.map_or(0, |e| e.len());
        let bit = |flag: bool, mask: u8| if flag { mask } else { 0 };
        let mut bytes = Vec::with_capacity(HEADER + len);
        bytes.extend_from_slice(self.kind.key());
        bytes.push(
            bit(self.markers, MARKERS)
                | bit(self.crc, CRC)
                | bit(self.reject, REJECT)
                | bit(enhanced.is_some(), ENHANCED_DATA),
        );
        bytes.push(self.revision);
        bytes.extend_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        bytes.extend_from_slice(enhanced.as_ref().map_or(&[][..], |e| &e[..]));
        bytes.extend_from_slice(private_data);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests;
