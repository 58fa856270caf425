//! Capture files: pcap and pcapng.

use pcap_parser::{
    Linktype,
    nom::Err as NomError,
    parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
    pcapng::{Block, parse_block_be, parse_block_le},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct CapturedPacket<'a> {
    /// The number of the packet, from 1.
    pub(super) frame: u64,
    /// The time since 1970, in nanoseconds. `None` if the packet has no time, as in some blocks of a pcapng file.
    pub(super) time: Option<u128>,
    pub(super) link: Linktype,
    pub(super) data: &'a [u8],
    /// The length of the packet on the wire, in bytes.
    pub(super) wire_len: usize,
}

/// The packets of a capture file.
#[derive(Debug, Default)]
pub(super) struct Packets<'a> {
    pub(super) packets: Vec<CapturedPacket<'a>>,
    /// The reason why the rest of the file is not readable. `None` if the whole file was read.
    pub(super) error: Option<String>,
}

/// Returns `true` if a file begins like a pcap or pcapng file.
pub(super) fn is_capture(file: &[u8]) -> bool {
    let magic = file.get(..4).and_then(|magic| magic.try_into().ok()).map(u32::from_le_bytes);
    matches!(magic, Some(0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 | 0xa1b2_cd34 | 0x0a0d_0d0a))
}

pub(super) fn read(file: &[u8]) -> Packets<'_> {
    if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) { read_pcapng(file) } else { read_pcap(file) }
}

fn read_pcap(file: &[u8]) -> Packets<'_> {
    let mut out = Packets::default();
    let (mut rest, header) = match parse_pcap_header(file) {
        Ok(parsed) => parsed,
        Err(error) => {
            out.error = Some(format!("the header of the capture cannot be read: {}", why(&error)));
            return out;
        }
    };
    let parse = match (header.is_modified_format(), header.is_bigendian()) {
        (true, _) => parse_pcap_frame_modified,
        (false, true) => parse_pcap_frame_be,
        (false, false) => parse_pcap_frame,
    };
    let unit = if header.is_nanosecond_precision() { 1 } else { 1000 };
    while !rest.is_empty() {
        match parse(rest) {
            Ok((after, block)) => {
                // Bit 26 and above of the link type are flags.
                let link = Linktype(header.network.0 & 0xffff);
                let time = u128::from(block.ts_sec) * 1_000_000_000 + u128::from(block.ts_usec) * unit;
                out.push(Some(time), link, block.data, block.origlen);
                rest = after;
            }
            Err(error) => {
                out.stop(&error);
                break;
            }
        }
    }
    out
}

/// An interface of a pcapng file: its link type, the units of time per second, and the offset of time in seconds.
struct Interface {
    link: Linktype,
    resolution: u128,
    offset: u128,
}

fn read_pcapng(file: &[u8]) -> Packets<'_> {
    let mut out = Packets::default();
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut big_endian = false;
    let mut rest = file;
    while !rest.is_empty() {
        let parsed = if big_endian { parse_block_be(rest) } else { parse_block_le(rest) };
        let (after, block) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                out.stop(&error);
                break;
            }
        };
        match block {
            Block::SectionHeader(section) => {
                big_endian = section.big_endian();
                interfaces.clear();
            }
            Block::InterfaceDescription(it) => interfaces.push(Interface {
                link: it.linktype,
                resolution: resolution(it.if_tsresol),
                offset: u128::try_from(it.if_tsoffset).unwrap_or_default(),
            }),
            Block::EnhancedPacket(packet) => {
                let interface = usize::try_from(packet.if_id).ok().and_then(|id| interfaces.get(id));
                let Some(interface) = interface else {
                    out.error = Some("a packet belongs to an interface that the capture does not describe".to_owned());
                    break;
                };
                let time = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                let time = interface.offset * 1_000_000_000 + time * 1_000_000_000 / interface.resolution;
                let len = usize::try_from(packet.caplen).unwrap_or(usize::MAX).min(packet.data.len());
                out.push(Some(time), interface.link, &packet.data[..len], packet.origlen);
            }
            Block::SimplePacket(packet) => {
                let Some(interface) = interfaces.first() else { continue };
                let len = usize::try_from(packet.origlen).unwrap_or(usize::MAX).min(packet.data.len());
                out.push(None, interface.link, &packet.data[..len], packet.origlen);
            }
            _ => {}
        }
        rest = after;
    }
    out
}

/// Returns the number of time units per second that the option `if_tsresol` states as a power of 10 or 2.
fn resolution(option: u8) -> u128 {
    let exponent = u32::from(option & 0x7f);
    let base: u128 = if option & 0x80 == 0 { 10 } else { 2 };
    // A finer resolution than that of 64 bits means nothing.
    base.checked_pow(exponent.min(63)).unwrap_or(u128::from(u64::MAX))
}

impl<'a> Packets<'a> {
    fn push(&mut self, time: Option<u128>, link: Linktype, data: &'a [u8], wire_len: u32) {
        let wire_len = usize::try_from(wire_len).unwrap_or(usize::MAX).max(data.len());
        let frame = self.packets.len() as u64 + 1;
        self.packets.push(CapturedPacket { frame, time, link, data, wire_len });
    }

    fn stop<E: std::fmt::Debug>(&mut self, error: &NomError<E>) {
        self.error = Some(format!("the capture cannot be read after packet {}: {}", self.packets.len(), why(error)));
    }
}

fn why<E: std::fmt::Debug>(error: &NomError<E>) -> &'static str {
    match error {
        NomError::Incomplete(_) => "the file ends within a packet or block",
        NomError::Error(_) | NomError::Failure(_) => "it is malformed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions() {
        assert_eq!(resolution(6), 1_000_000);
        assert_eq!(resolution(9), 1_000_000_000);
        assert_eq!(resolution(0x80 | 10), 1024);
        assert!(resolution(0x7f) > 0 && resolution(0xff) > 0);
    }

    #[test]
    fn a_file_that_is_cut_keeps_its_packets() {
        let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1].map(u32::to_le_bytes).concat();
        file.extend([7u32, 5, 4, 60].map(u32::to_le_bytes).concat());
        file.extend([1, 2, 3, 4]);
        let packets = read(&file);
        assert!(is_capture(&file) && packets.error.is_none());
        let [packet] = packets.packets.as_slice() else { panic!("{packets:?}") };
        assert_eq!((packet.time, packet.data, packet.wire_len), (Some(7_000_005_000), &[1, 2, 3, 4][..], 60));
        file.extend([7, 7, 7]);
        let packets = read(&file);
        assert_eq!(packets.packets.len(), 1);
        assert!(packets.error.unwrap().contains("after packet 1: the file ends"));
        assert!(read(&file[..20]).error.is_some());
    }
}
