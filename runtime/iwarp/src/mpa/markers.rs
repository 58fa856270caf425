//! Markers (RFC 5044 §4.2, §4.3). They are sent if the peer requires them, and never required locally.

/// Length of a marker, in bytes.
pub(crate) const LENGTH: usize = 4;
/// Number of TCP stream bytes from the start of one marker to the start of the next.
pub(crate) const INTERVAL: usize = 512;

/// The position in the outgoing stream, which determines where markers are due and what they contain.
///
/// The position counts from the first byte of full operation, which is the start of a marker (RFC 5044 §4.3, §7.1.2
/// rule 7).
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
    /// RFC 5044 §4.3: FPDUPTR is the distance from the ULPDU_Length field of the FPDU that contains the marker,
    /// including the markers in between. It is 0 if the marker falls between FPDUs; the marker then belongs to the next
    /// FPDU.
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

    /// Returns the number of bytes until the next marker, at least 1. A marker that is due must be [`put`](Self::put)
    /// first.
    pub(crate) fn room(&self) -> usize {
        INTERVAL - self.position
    }

    /// Records that `len` bytes, at most [`room`](Self::room), were put into the stream.
    pub(crate) fn advance(&mut self, len: usize) {
        self.position = (self.position + len) % INTERVAL;
        self.since_fpdu += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Markers are correct for FPDUs that begin at any position of the stream. A marker is at each multiple of 512
    /// bytes. It points to the length field of its FPDU, or to the next FPDU if it falls between two (RFC 5044 §4.3).
    #[test]
    fn markers_of_all_positions_point_to_their_fpdu() {
        for start in 0..INTERVAL {
            for len in [1, 8, 24, 500, 504, 508, 512, 516, 1020, 1024, 1028] {
                let mut clock = MarkerClock::default();
                // The position in the stream counts markers, too.
                let mut stream = 0;
                let mut markers = Vec::new();
                let mut expected = Vec::new();
                for fpdu in [start, len, len] {
                    clock.begin_fpdu();
                    let mut begin = None;
                    let mut left = fpdu;
                    while left > 0 {
                        if let Some(marker) = clock.due() {
                            markers.push((stream, marker));
                            clock.put();
                        }
                        let part = clock.room().min(left);
                        assert!(part > 0);
                        clock.advance(part);
                        left -= part;
                        for _ in 0..part {
                            if stream % INTERVAL == 0 {
                                let pointer = begin.map_or(0, |begin| stream - begin) as u16;
                                let [high, low] = pointer.to_be_bytes();
                                expected.push((stream, [0, 0, high, low]));
                                stream += LENGTH;
                            }
                            begin.get_or_insert(stream);
                            stream += 1;
                        }
                    }
                }
                let found: Vec<_> = markers.iter().map(|(_, marker)| *marker).collect();
                let wanted: Vec<_> = expected.iter().map(|(_, marker)| *marker).collect();
                assert_eq!(found, wanted, "{start} bytes, then {len}");
                assert!(expected.iter().all(|(at, _)| at % INTERVAL == 0));
                assert!(markers.iter().zip(&expected).all(|((at, _), (wanted, _))| at == wanted));
            }
        }
    }
}
