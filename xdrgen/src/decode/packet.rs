//! A parser for the TCP segment or UDP datagram in a captured packet.

use std::net::IpAddr;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

use super::capture::CapturedPacket;

/// A captured TCP segment or UDP datagram.
#[derive(Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) ports: (u16, u16),
    /// The fields of the TCP header. `None` for UDP.
    pub(super) tcp: Option<TcpFields>,
    pub(super) payload: &'a [u8],
    /// Number of bytes at the end of the payload that were not captured.
    pub(super) missing: usize,
}

/// The fields of a TCP header that reassembly needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct TcpFields {
    pub(super) sequence: u32,
    /// The acknowledgement number. `None` if the flag ACK is not set.
    pub(super) acknowledged: Option<u32>,
    pub(super) syn: bool,
}

/// Returns the TCP segment or UDP datagram of a packet. Returns `None` for IP fragments, other protocols, unknown link
/// types, and packets that cannot be parsed.
pub(super) fn datagram<'a>(packet: &CapturedPacket<'a>) -> Option<Datagram<'a>> {
    let data = packet.data;
    let ether_type = |at: usize| {
        let bytes: [u8; 2] = data.get(at..at + 2)?.try_into().ok()?;
        Some(EtherType(u16::from_be_bytes(bytes)))
    };
    let (sliced, skipped) = match packet.link {
        Linktype::ETHERNET => (LaxSlicedPacket::from_ethernet(data).ok()?, 14),
        Linktype::LINUX_SLL => (LaxSlicedPacket::from_ether_type(ether_type(14)?, data.get(16..)?), 16),
        Linktype::LINUX_SLL2 => (LaxSlicedPacket::from_ether_type(ether_type(0)?, data.get(20..)?), 20),
        Linktype::NULL | Linktype::LOOP => (LaxSlicedPacket::from_ip(data.get(4..)?).ok()?, 4),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => (LaxSlicedPacket::from_ip(data).ok()?, 0),
        _ => return None,
    };
    let (from, to, header_len, ip_len, is_fragment) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let addresses = (IpAddr::from(header.source_addr()), IpAddr::from(header.destination_addr()));
            let len = header.slice().len();
            (addresses.0, addresses.1, len, usize::from(header.total_len()), ip.is_payload_fragmented())
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let len = match header.payload_length() {
                0 => 0,
                len => usize::from(len) + 40,
            };
            let addresses = (IpAddr::from(header.source_addr()), IpAddr::from(header.destination_addr()));
            (addresses.0, addresses.1, 40, len, ip.is_payload_fragmented())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    if is_fragment {
        return None;
    }
    let extensions = sliced.link_exts.iter().map(|it| it.header_len()).sum::<usize>();
    let available = data.len().saturating_sub(skipped + extensions);
    // Segments that the network card splits may have the length 0. The length of the packet then tells.
    let ip_len = match ip_len {
        len if len >= header_len => len,
        _ => packet.wire_len.saturating_sub(skipped + extensions),
    };
    let missing = ip_len.saturating_sub(available);
    match sliced.transport? {
        TransportSlice::Tcp(tcp) => Some(Datagram {
            from,
            to,
            ports: (tcp.source_port(), tcp.destination_port()),
            tcp: Some(TcpFields {
                sequence: tcp.sequence_number(),
                acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
                syn: tcp.syn(),
            }),
            payload: tcp.payload(),
            missing,
        }),
        TransportSlice::Udp(udp) => Some(Datagram {
            from,
            to,
            ports: (udp.source_port(), udp.destination_port()),
            tcp: None,
            payload: udp.payload(),
            missing: usize::from(udp.length()).saturating_sub(udp.slice().len()),
        }),
        _ => None,
    }
}
