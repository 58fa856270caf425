//! DDP segment headers (RFC 5041 §4), including RDMAP's control field (RFC 5040 §4.1).

use super::rdmap::{Opcode, VERSION as RDMAP_VERSION};

/// Length of a tagged segment's header, in bytes (RFC 5041 §4.2).
pub(crate) const TAGGED: usize = 14;
/// Length of an untagged segment's header, in bytes (RFC 5041 §4.3).
pub(crate) const UNTAGGED: usize = 18;
/// The DDP version (RFC 5041 §4.1).
pub(crate) const VERSION: u8 = 1;

/// The untagged queues that RDMAP uses (RFC 5040 §4.1, figure 4).
pub(crate) mod queue {
    /// Sends of all kinds.
    pub(crate) const SEND: u32 = 0;
    /// RDMA Read Requests.
    pub(crate) const READ_REQUEST: u32 = 1;
    /// Terminate messages.
    pub(crate) const TERMINATE: u32 = 2;
}

const TAGGED_FLAG: u8 = 0x80;
const LAST_FLAG: u8 = 0x40;

/// Returns `true` if a segment with this DDP control byte is tagged.
pub(crate) fn is_tagged(ddp_control: u8) -> bool {
    ddp_control & TAGGED_FLAG != 0
}

/// Returns the length in bytes of the header that begins with this DDP control byte.
pub(crate) fn header_len(ddp_control: u8) -> usize {
    if is_tagged(ddp_control) { TAGGED } else { UNTAGGED }
}

/// The two control bytes at the start of each header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DdpControl {
    /// L: `true` in the last segment of a message.
    pub(crate) last: bool,
    /// The DDP version (DV).
    pub(crate) ddp_version: u8,
    /// The RDMAP version (RV).
    pub(crate) rdmap_version: u8,
    /// The RDMAP opcode, not yet checked.
    pub(crate) opcode: u8,
}

/// The header of a DDP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DdpHeader {
    /// A segment for memory named by an STag.
    Tagged { control: DdpControl, stag: u32, offset: u64 },
    /// A segment for the next buffer of a queue.
    Untagged { control: DdpControl, invalidate: u32, queue: u32, msn: u32, mo: u32 },
}

impl DdpControl {
    /// Creates the control field of a segment to send.
    pub(crate) fn new(opcode: Opcode, last: bool) -> Self {
        Self { last, ddp_version: VERSION, rdmap_version: RDMAP_VERSION, opcode: opcode as u8 }
    }

    fn encode(self, tagged: bool) -> [u8; 2] {
        let flags = if tagged { TAGGED_FLAG } else { 0 } | if self.last { LAST_FLAG } else { 0 };
        // RFC 5041 §4.1 and RFC 5040 §4.1: reserved bits are sent as zero and ignored on reception.
        [flags | self.ddp_version & 3, self.rdmap_version << 6 | self.opcode & 0xf]
    }

    fn decode([ddp, rdmap]: [u8; 2]) -> Self {
        Self { last: ddp & LAST_FLAG != 0, ddp_version: ddp & 3, rdmap_version: rdmap >> 6, opcode: rdmap & 0xf }
    }
}

/// Returns the header of a Send that fits in one segment, as nearly all Sends do. Sends use queue 0 (RFC 5040 §5.3).
#[inline]
pub(crate) fn whole_send(opcode: Opcode, invalidate: u32, msn: u32) -> [u8; UNTAGGED] {
    let mut header = [0; UNTAGGED];
    let control = DdpControl::new(opcode, true);
    DdpHeader::Untagged { control, invalidate, queue: queue::SEND, msn, mo: 0 }.encode(&mut header);
    header
}

impl DdpHeader {
    /// Encodes the header at the front of `out` and returns its length in bytes. RDMA Writes and RDMA Read Responses
    /// are tagged (RFC 5040 §5.1, §5.2.2).
    #[inline]
    pub(crate) fn encode(&self, out: &mut [u8; UNTAGGED]) -> usize {
        match *self {
            Self::Tagged { control, stag, offset } => {
                out[..2].copy_from_slice(&control.encode(true));
                out[2..6].copy_from_slice(&stag.to_be_bytes());
                out[6..14].copy_from_slice(&offset.to_be_bytes());
                TAGGED
            }
            Self::Untagged { control, invalidate, queue, msn, mo } => {
                out[..2].copy_from_slice(&control.encode(false));
                for (place, word) in out[2..].chunks_exact_mut(4).zip([invalidate, queue, msn, mo]) {
                    place.copy_from_slice(&word.to_be_bytes());
                }
                UNTAGGED
            }
        }
    }

    /// Decodes a header from the front of the buffer, or returns `None` if it is incomplete.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (control_bytes, rest) = bytes.split_first_chunk::<2>()?;
        let control = DdpControl::decode(*control_bytes);
        let word = |at: usize| rest.get(at..at + 4).and_then(|o| o.try_into().ok()).map(u32::from_be_bytes);
        Some(if is_tagged(control_bytes[0]) {
            let offset = rest.get(4..12).and_then(|o| o.try_into().ok()).map(u64::from_be_bytes)?;
            Self::Tagged { control, stag: word(0)?, offset }
        } else {
            Self::Untagged { control, invalidate: word(0)?, queue: word(4)?, msn: word(8)?, mo: word(12)? }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untagged_header_encoding() {
        // RFC 5044 figure 5: a Send, last, MSN 1.
        let wire = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let header = DdpHeader::Untagged {
            control: DdpControl::new(Opcode::Send, true),
            invalidate: 0,
            queue: queue::SEND,
            msn: 1,
            mo: 0,
        };
        let mut out = [0xff; UNTAGGED];
        assert_eq!(header.encode(&mut out), UNTAGGED);
        assert_eq!(out, wire);
        assert_eq!(whole_send(Opcode::Send, 0, 1), wire);
        assert_eq!(DdpHeader::decode(&wire), Some(header));
        assert_eq!(DdpHeader::decode(&wire[..17]), None);
    }

    #[test]
    fn tagged_header_encoding() {
        let wire = [0x81, 0x42, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8];
        let header = DdpHeader::Tagged {
            control: DdpControl::new(Opcode::ReadResponse, false),
            stag: 0xdead_beef,
            offset: 0x0102_0304_0506_0708,
        };
        let mut out = [0; UNTAGGED];
        assert_eq!(header.encode(&mut out), TAGGED);
        assert_eq!(out[..TAGGED], wire);
        assert_eq!(DdpHeader::decode(&wire), Some(header));
        assert_eq!(DdpHeader::decode(&wire[..13]), None);
        assert_eq!(DdpHeader::decode(&[]), None);
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let Some(DdpHeader::Untagged { control, .. }) =
            DdpHeader::decode(&[0x7d, 0x73, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
        else {
            panic!("untagged");
        };
        assert_eq!(control, DdpControl::new(Opcode::Send, true));
    }
}
