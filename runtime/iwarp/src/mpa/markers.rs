//! Markers (RFC 5044 §4.2, §4.3). They are sent if the peer requires them, and never required locally.

/// Length of a marker, in bytes.
pub(crate) const LENGTH: usize = 4;
/// Number of TCP stream bytes from the start of one marker to the start of the next.
pub(crate) const INTERVAL: usize = 512;

/// The position of the outgoing stream between two markers.
///
/// The position counts from the first byte of full operation, which is the start of a marker (RFC 5044 §4.3, §7.1.2 rule
/// 7).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MarkerClock {
    position: usize,
    since_fpdu: usize,
}

impl MarkerClock {
    /// Starts an FPDU: its ULPDU_Length field, or the marker in front of it, comes next.
    pub(crate) fn begin_fpdu(&mut self) {
        self.since_fpdu = 0;
    }

    /// Returns the marker to put now, if one is due.
    ///
    /// RFC 5044 §4.3: FPDUPTR is the distance from the ULPDU_Length field of the FPDU that contains the marker, including the
    /// markers in between. It is 0 if the marker falls between FPDUs; the marker then belongs to the next FPDU.
    pub(crate) fn due(&self) -> Option<[u8; LENGTH]> {
        if self.position != 0 {
            return None;
        }
        // An FPDU has at most 2 + 64768 + 7 bytes and 127 markers, so the distance fits 16 bits.
        let pointer = u16::try_from(self.since_fpdu).unwrap_or(u16::MAX).to_be_bytes();
        Some([0, 0, pointer[0], pointer[1]])
    }

    /// Records that the due marker was put into the stream.
    pub(crate) fn put(&mut self) {
        let before_fpdu = self.since_fpdu == 0;
        self.advance(LENGTH);
        if before_fpdu {
            self.since_fpdu = 0;
        }
    }

    /// Returns the number of bytes until the next marker. It is not 0 directly after [`put`](Self::put).
    pub(crate) fn room(&self) -> usize {
        INTERVAL - self.position
    }

    /// Records that `len` bytes, at most [`room`](Self::room), were put into the stream.
    pub(crate) fn advance(&mut self, len: usize) {
        self.position = (self.position + len) % INTERVAL;
        self.since_fpdu += len;
    }
}
