//! RDMAP: opcodes and the RDMA Read Request header (RFC 5040 §4.1, §4.4). Terminate is in `terminate`.

/// The RDMAP version (RFC 5040 §4.1).
pub(crate) const VERSION: u8 = 1;
/// Length of an RDMA Read Request header, in bytes (RFC 5040 §4.4).
pub(crate) const READ_REQUEST: usize = 28;

/// An RDMA message type (RFC 5040 §4.1, figure 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    Write = 0,
    ReadRequest = 1,
    ReadResponse = 2,
    Send = 3,
    SendInvalidate = 4,
    SendSolicited = 5,
    SendSolicitedInvalidate = 6,
    Terminate = 7,
}

impl Opcode {
    /// Returns the opcode of a Send with these properties.
    pub(crate) fn send(solicited: bool, invalidate: bool) -> Self {
        match (solicited, invalidate) {
            (false, false) => Self::Send,
            (false, true) => Self::SendInvalidate,
            (true, false) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Decodes a received opcode. Returns `None` if it is reserved (RFC 5040 §7.2).
    pub(crate) fn decode(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            _ => return None,
        })
    }

    /// Returns `true` if the Invalidate STag field is valid.
    pub(crate) fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// An RDMA Read Request header (RFC 5040 §4.2, §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) sink_stag: u32,
    pub(crate) sink_offset: u64,
    pub(crate) len: u32,
    pub(crate) source_stag: u32,
    pub(crate) source_offset: u64,
}

impl ReadRequest {
    pub(crate) fn encode(&self) -> [u8; READ_REQUEST] {
        let mut out = [0; READ_REQUEST];
        out[..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.len.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        out[20..].copy_from_slice(&self.source_offset.to_be_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; READ_REQUEST]) -> Self {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |o| u32::from_be_bytes(*o));
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |o| u64::from_be_bytes(*o));
        Self { sink_stag: word(0), sink_offset: long(4), len: word(12), source_stag: word(16), source_offset: long(20) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_request_encoding() {
        let request = ReadRequest {
            sink_stag: 0x0102_0304,
            sink_offset: 0x1112_1314_1516_1718,
            len: 0x2122_2324,
            source_stag: 0x3132_3334,
            source_offset: 0x4142_4344_4546_4748,
        };
        let wire = [
            0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32,
            0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
        ];
        assert_eq!(request.encode(), wire);
        assert_eq!(ReadRequest::decode(&wire), request);
    }

    #[test]
    fn opcodes() {
        for opcode in 0..16 {
            assert_eq!(Opcode::decode(opcode).map(|o| o as u8), (opcode < 8).then_some(opcode));
        }
        assert_eq!(Opcode::send(false, false) as u8, 3);
        assert_eq!(Opcode::send(false, true) as u8, 4);
        assert_eq!(Opcode::send(true, false) as u8, 5);
        assert_eq!(Opcode::send(true, true) as u8, 6);
    }
}
