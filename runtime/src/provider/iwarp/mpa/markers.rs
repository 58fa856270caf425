//! Markers (RFC 5044 §4.2, §4.3): sent when the peer asks for them, never asked for by this end.

/// Octets of a marker.
pub(crate) const LENGTH: usize = 4;
/// Octets of the TCP stream from the start of one marker to the start of the next.
pub(crate) const INTERVAL: usize = 512;

/// Where this end's stream stands between two markers.
///
/// Counts octets from the first of full operation, which is a marker's (RFC 5044 §4.3, §7.1.2 rule 7).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MarkerClock {
    position: usize,
    since_fpdu: usize,
}

impl MarkerClock {
    /// An FPDU's ULPDU_Length field, or the marker in front of it, comes next.
    pub(crate) fn begin_fpdu(&mut self) {
        self.since_fpdu = 0;
    }

    /// The marker that is due now, if one is.
    ///
    /// RFC 5044 §4.3: FPDUPTR is the distance from the ULPDU_Length field of the FPDU that contains the marker,
    /// markers in between included, and 0 where the marker falls between FPDUs: then it belongs to the next one.
    pub(crate) fn due(&self) -> Option<[u8; LENGTH]> {
        if self.position != 0 {
            return None;
        }
        // An FPDU is at most 2 + 64768 + 7 octets and 127 markers long, so the distance fits 16 bits.
        let pointer = u16::try_from(self.since_fpdu).unwrap_or(u16::MAX).to_be_bytes();
        Some([0, 0, pointer[0], pointer[1]])
    }

    /// The due marker has been put into the stream.
    pub(crate) fn put(&mut self) {
        let before_fpdu = self.since_fpdu == 0;
        self.advance(LENGTH);
        if before_fpdu {
            self.since_fpdu = 0;
        }
    }

    /// Octets until a marker is due; not 0 just after [`put`](Self::put).
    pub(crate) fn room(&self) -> usize {
        INTERVAL - self.position
    }

    /// `len` octets, at most [`room`](Self::room), have been put into the stream.
    pub(crate) fn advance(&mut self, len: usize) {
        self.position = (self.position + len) % INTERVAL;
        self.since_fpdu += len;
    }
}
