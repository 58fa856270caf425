//! Tests with hostile input: random and damaged input causes no panic, and repeated chunks do not multiply the output.

use proptest::prelude::*;
use rpcrdma_xdrgen::decode::{Decoded, MessageFormat, parse_hex};

use crate::{
    decoder,
    messages::{over_iwarp, over_tcp, version_1, version_2},
    roce,
    wire::Capture,
};

fn print(decoded: &Decoded<'_>) -> usize {
    decoded.iter().map(|message| message.to_text(decoded.start(), 64).len() + message.to_json().len()).sum()
}

fn captures() -> Vec<Capture> {
    vec![
        over_tcp().capture,
        over_iwarp(version_1).tcp.capture,
        over_iwarp(version_2).tcp.capture,
        roce(version_1),
        roce(version_2),
    ]
}

const FORMATS: [MessageFormat; 6] = [
    MessageFormat::Detect,
    MessageFormat::Rpc,
    MessageFormat::Tcp,
    MessageFormat::Rdma,
    MessageFormat::Iwarp,
    MessageFormat::Roce,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The decoder does not panic on packets with wrong bytes after the Ethernet header. The packets may also be cut.
    #[test]
    fn mutated_packets(
        which in 0..5usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 14..200usize, any::<u8>()), 1..20),
        snap in prop_oneof![Just(65535usize), 40..300usize],
    ) {
        let mut capture = captures().swap_remove(which);
        for (packet, at, value) in changes {
            let packet = packet.index(capture.packets.len());
            if let Some(byte) = capture.packets[packet].get_mut(at) {
                *byte = value;
            }
        }
        print(&decoder().capture(&capture.pcap(snap)));
    }

    /// The decoder does not panic if packets are missing, repeated or out of order.
    #[test]
    fn packets_in_any_order(which in 0..5usize, order in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let whole = captures().swap_remove(which);
        let packets = order.iter().map(|index| whole.packets[index.index(whole.packets.len())].clone()).collect();
        print(&decoder().capture(&Capture { packets }.pcap(65535)));
    }

    /// The decoder does not panic on truncated capture files with wrong bytes.
    #[test]
    fn mutated_files(
        which in 0..5usize,
        ng in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..10),
        len in any::<prop::sample::Index>(),
    ) {
        let capture = captures().swap_remove(which);
        let mut file = if ng { capture.pcapng() } else { capture.pcap(65535) };
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        file.truncate(len.index(file.len()) + 1);
        print(&decoder().capture(&file));
    }

    #[test]
    fn random_messages(bytes in prop::collection::vec(any::<u8>(), 0..300), format in 0..FORMATS.len()) {
        print(&decoder().messages([bytes.clone(), bytes], FORMATS[format]));
    }

    /// The decoder does not panic on messages of small, extreme and random numbers, which stand for lengths, positions
    /// and discriminants.
    #[test]
    fn random_words(
        words in prop::collection::vec(prop_oneof![0..6u32, Just(u32::MAX), Just(40u32), any::<u32>()], 0..60),
        version in 1..3u32,
    ) {
        let mut words = words;
        if let Some(word) = words.get_mut(1) {
            *word = version;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        for format in FORMATS {
            print(&decoder().messages([bytes.clone()], format));
        }
    }

    #[test]
    fn random_text(text in "[0-9a-fx:# \n]{0,60}|.{0,20}") {
        let _ = parse_hex(&text);
    }
}

/// Replies that all name the same chunk do not multiply its data.
#[test]
fn repeated_chunks_do_not_multiply() {
    let call = |xid: u32| [xid, 1, 32, 0, 0, 1, 1, 7, 60_000, 0, 0, 0, 0];
    let reply = |xid: u32| [&call(xid)[..], &[xid, 1, 0, 0, 0, 0]].concat();
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut roce = crate::wire::Roce::connect();
    {
        use crate::wire::Rdma as _;
        roce.send(true, &bytes(&call(1)));
        roce.write(7, 0, &[5; 60_000]);
        for _ in 0..2000 {
            roce.send(false, &bytes(&reply(1)));
        }
    }
    let file = roce.capture.pcap(65535);
    let printed = print(&decoder().capture(&file));
    assert!(printed < 20 * file.len(), "{printed} bytes from {}", file.len());
}
