//! FPDU arithmetic (RFC 5044 §4.1, §4.5): `length(2) ULPDU pad(0..3) CRC(4)`.

use super::markers;

/// Length of the ULPDU_Length field, in bytes.
pub(crate) const LENGTH: usize = 2;
/// Length of the CRC field, in bytes. It is present whether CRCs are used or not (RFC 5044 §4.1).
pub(crate) const CRC: usize = 4;
/// Size of the largest ULPDU that may be sent, in bytes. RFC 5044 §3: DDP MUST NOT post a larger one, so that an FPDU
/// with its markers fits an IP datagram.
pub(crate) const MAX_ULPDU: usize = 64768;
/// Smallest MULPDU that may be reported to DDP, in bytes (RFC 5044 §3).
pub(crate) const MIN_MULPDU: usize = 128;

/// Returns the pad length after a ULPDU of `ulpdu` bytes. It makes the FPDU's size a multiple of four (RFC 5044 §4.1).
pub(crate) fn pad(ulpdu: usize) -> usize {
    (LENGTH + ulpdu).wrapping_neg() & 3
}

/// Returns the length of pad and CRC after a ULPDU of `ulpdu` bytes.
pub(crate) fn trailer(ulpdu: usize) -> usize {
    pad(ulpdu) + CRC
}

/// Returns the MULPDU for a TCP segment of `emss` bytes (RFC 5044 §4.5), within the bounds of §3.
pub(crate) fn mulpdu(emss: usize, with_markers: bool) -> usize {
    let mut overhead = LENGTH + CRC + emss % 4;
    if with_markers {
        overhead += markers::LENGTH * emss.div_ceil(markers::INTERVAL);
    }
    emss.saturating_sub(overhead).clamp(MIN_MULPDU, MAX_ULPDU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pad_makes_fpdus_multiples_of_four() {
        for ulpdu in 0..64 {
            assert_eq!((LENGTH + ulpdu + trailer(ulpdu)) % 4, 0);
            assert!(pad(ulpdu) < 4);
        }
        // RFC 5044 figure 5: a 42-byte ULPDU needs no pad.
        assert_eq!(pad(42), 0);
        // RFC 5044 figure 4: a 16-byte ULPDU has a two-byte pad.
        assert_eq!(pad(16), 2);
    }

    #[test]
    fn mulpdu_follows_the_formula_and_its_bounds() {
        assert_eq!(mulpdu(1448, false), 1442);
        assert_eq!(mulpdu(1460, false), 1454);
        assert_eq!(mulpdu(1448, true), 1448 - (6 + 4 * 3));
        assert_eq!(mulpdu(1449, false), 1449 - (6 + 1));
        assert_eq!(mulpdu(40, false), MIN_MULPDU);
        assert_eq!(mulpdu(usize::MAX, false), MAX_ULPDU);
    }

    /// RFC 5044 §4.1: the pad is the shortest that makes the FPDU a multiple of four, for every length that the field
    /// can hold.
    #[test]
    fn all_pads_are_the_shortest() {
        for ulpdu in 0..=usize::from(u16::MAX) {
            let shortest = (0..4).find(|pad| (2 + ulpdu + pad + 4) % 4 == 0);
            assert_eq!((Some(pad(ulpdu)), trailer(ulpdu)), (shortest, pad(ulpdu) + 4), "{ulpdu}");
        }
    }

    /// For every TCP segment size up to 65,535 bytes, the FPDU of the MULPDU fits a segment with its markers. The FPDU
    /// of a ULPDU that is eight bytes longer does not (RFC 5044 §4.5). For the minimum MULPDU, only the second
    /// statement holds. For the maximum ULPDU, only the first one holds.
    #[test]
    fn all_mulpdus_fit_a_segment() {
        for emss in 0..=usize::from(u16::MAX) {
            for with_markers in [false, true] {
                let mulpdu = mulpdu(emss, with_markers);
                let size = |ulpdu: usize| {
                    let markers = if with_markers { emss / 512 + usize::from(emss % 512 > 0) } else { 0 };
                    2 + ulpdu + pad(ulpdu) + 4 + 4 * markers
                };
                match mulpdu {
                    MIN_MULPDU => assert!(size(MIN_MULPDU + 8) > emss, "{emss}"),
                    MAX_ULPDU => assert!(size(MAX_ULPDU) <= emss, "{emss}"),
                    _ => assert!(size(mulpdu) <= emss && size(mulpdu + 8) > emss, "{emss}, {mulpdu}"),
                }
            }
        }
    }
}
