//! Tests with truncated captures and damaged messages, which the dissector reports without failing.

use crate::{
    constructs, iwarp,
    messages::{self, read_call, read_reply, words, write_call},
    roce,
    tshark::Tshark,
    wire::{Iwarp, Rdma as _, SPECIFICATION},
};

const CONSTRUCTS: &str = include_str!("constructs.x");

#[test]
fn packets_that_are_cut() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION)]) else { return };
    for capture in [iwarp(messages::version_1), roce(messages::version_1), iwarp(messages::version_2)] {
        for snap in [60, 110, 180] {
            let text = tshark.dissect(&capture.pcap(snap), &["-O", "files,rpcrdma2,oncrpc"]);
            // Wireshark's own dissector handles the header of version 1.
            if snap == 180 {
                assert!(text.contains("the rest of the message was not captured"), "{snap}: {text}");
            }
        }
        let names = tshark.fields(&capture.pcap(220), "files.type == 0", &["files.procedure_name"]);
        assert!(names.contains(&"READ".to_owned()), "{names:?}");
    }
}

/// A generator of pseudo-random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn damaged_messages() {
    let Some(tshark) = Tshark::new(&[("files", SPECIFICATION), ("constructs", CONSTRUCTS)]) else { return };
    let read_chunk = |xid: u32, version: u32, position: u32| match version {
        1 => words(&[xid, 1, 32, 0, 1, position, 0xaa, 10, 0, 0x1000, 0, 0, 0]),
        _ => words(&[xid, 2, 32, 0, 0, 0, 1, position, 0xaa, 10, 0, 0x1000, 0, 0, 0]),
    };
    let write_chunk = |xid: u32| words(&[xid, 2, 32, 0, 1, 0, 0, 1, 1, 0xbb, 6, 0, 0x2000, 0, 0]);
    let (write, position) = write_call(1, 10);
    let samples: Vec<(bool, Vec<u8>)> = vec![
        (true, [read_chunk(1, 1, position), write.clone()].concat()),
        (true, [read_chunk(1, 2, position), write].concat()),
        (true, [words(&[2, 1, 32, 0, 0, 0, 0]), read_call(2, 8)].concat()),
        (false, [write_chunk(2), read_reply(2, 6)].concat()),
        (true, words(&[3, 2, 32, 5, 0, 2, 1, 4, 4096, 5, 4, 1])),
        (false, words(&[3, 2, 32, 4, 1, 8, 16])),
        (true, [words(&[4, 2, 32, 0, 2, 0, 0, 0, 0]), read_call(4, 8)].concat()),
        (true, constructs::call(5, (1, 1), &constructs::scalars())),
        (true, constructs::call(6, (1, 2), &constructs::sequences())),
        (true, constructs::call(7, (1, 3), &constructs::unions())),
    ];
    let (mut random, mut iwarp) = (Random(7), Iwarp::connect());
    for turn in 0..1000 {
        let (from_client, mut message) = samples[turn % samples.len()].clone();
        for _ in 0..=random.below(2) {
            let at = random.below(message.len() / 4) * 4;
            let word = [0, 1, 2, 5, 0x7fff_ffff, u32::MAX, random.below(1 << 30) as u32][random.below(7)];
            message[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        if turn % 3 == 0 {
            message.truncate(random.below(message.len()).max(1));
        }
        iwarp.send(from_client, &message);
    }
    let capture = iwarp.tcp.capture.pcapng();
    let text = tshark.dissect(&capture, &["-V", "-o", "rpc.dissect_unknown_programs:TRUE"]);
    for expected in
        ["is not a boolean", "exceeds the maximum", "but the message ends after", "has no arm for", "is not a value of"]
    {
        assert!(text.contains(expected), "{expected}");
    }
}

#[test]
fn deep_and_long_messages() {
    let Some(tshark) = Tshark::new(&[("constructs", CONSTRUCTS)]) else { return };
    let mut iwarp = Iwarp::connect();
    // A tree whose nodes have left children only, more numbers and nodes than Wireshark can show, and a count without
    // elements.
    let root = words(&[1; 2000]);
    iwarp.send(true, &constructs::call(1, (1, 6), &root));
    let numbers = [vec![120_000], vec![7; 120_000]].concat();
    iwarp.send(true, &constructs::call(2, (1, 5), &words(&numbers)));
    iwarp.send(true, &constructs::call(3, (1, 7), &words(&[1; 120_000])));
    iwarp.send(true, &constructs::call(4, (1, 5), &words(&[u32::MAX, 1])));
    let capture = iwarp.tcp.capture.pcapng();
    let found = tshark.fields(&capture, "constructs", &["constructs.xid", "_ws.expert.message"]);
    assert_eq!(
        found,
        [
            "0x00000001|nested more than 100 levels deep",
            "0x00000002|the packet has too many items to show",
            "0x00000003|the packet has too many items to show",
            "0x00000004|4 bytes are expected, but the message ends after 0",
        ]
    );
}
