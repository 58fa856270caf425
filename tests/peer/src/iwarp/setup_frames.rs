//! Frames of connection set-up: requests and replies (RFC 5044 section 7.1.1, RFC 6581 section 6).

/// The key of a request.
pub(super) const REQUEST: [u8; 16] = *b"MPA ID Req Frame";
/// The key of a reply.
pub(super) const REPLY: [u8; 16] = *b"MPA ID Rep Frame";
/// Flag: the sender requires markers.
pub(super) const M: u8 = 0x80;
/// Flag: the sender requires CRCs.
pub(super) const C: u8 = 0x40;
/// Flag: the reply rejects the connection.
pub(super) const R: u8 = 0x20;
/// Flag: enhanced set-up data precedes the private data.
pub(super) const S: u8 = 0x10;
/// The IRD and the ORD that the peer announces.
pub(super) const DEPTH: u16 = 16;

/// A frame of connection set-up: a request or a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetupFrame {
    pub(super) key: [u8; 16],
    pub(super) flags: u8,
    pub(super) revision: u8,
    /// Enhanced set-up data, if there is any, and private data.
    pub(super) private_data: Vec<u8>,
}

impl SetupFrame {
    /// Returns a frame of revision 2 with CRCs, IRD and ORD, and this private data.
    pub(super) fn enhanced(key: [u8; 16], private_data: &[u8]) -> Self {
        let depths = [DEPTH.to_be_bytes(), DEPTH.to_be_bytes()].concat();
        Self { key, flags: C | S, revision: 2, private_data: [&depths, private_data].concat() }
    }

    /// Returns a frame of revision 1 with CRCs, and this private data.
    pub(super) fn plain(key: [u8; 16], private_data: &[u8]) -> Self {
        Self { key, flags: C, revision: 1, private_data: private_data.to_vec() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.key.to_vec();
        out.extend_from_slice(&[self.flags, self.revision]);
        out.extend_from_slice(&(self.private_data.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.private_data);
        out
    }

    /// Returns `true` if the frame has enhanced set-up data.
    pub(super) fn is_enhanced(&self) -> bool {
        self.revision >= 2 && self.flags & S != 0 && self.private_data.len() >= 4
    }

    /// Returns IRD and ORD without their flags, or `None` if the frame has no enhanced set-up data.
    pub(super) fn depths(&self) -> Option<(u16, u16)> {
        let depth = |at: usize| Some(u16::from_be_bytes(*self.private_data.get(at..)?.first_chunk()?) & 0x3fff);
        if self.is_enhanced() { Some((depth(0)?, depth(2)?)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_setup() {
        let frame = SetupFrame::enhanced(REQUEST, &[7]);
        assert_eq!(frame.encode(), [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 5, 0, 16, 0, 16, 7]].concat());
        assert_eq!(frame.depths(), Some((16, 16)));
        assert_eq!(SetupFrame::plain(REPLY, &[0, 1, 0, 1]).depths(), None);
    }
}
