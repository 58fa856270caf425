use proptest::prelude::*;

use super::*;
use crate::{
    ddp::{DdpControl, DdpHeader, UNTAGGED, queue},
    output::{PieceLocation, SendBatch},
    rdmap::Opcode,
};

/// Encodes Sends, each in segments of at most `max` bytes of payload.
fn sends(messages: &[Vec<u8>], max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for (message, msn) in messages.iter().zip(1..) {
        let mut from = 0;
        loop {
            let end = message.len().min(from + max);
            let control = DdpControl::new(Opcode::Send, end == message.len());
            let header = DdpHeader::Untagged { control, invalidate: 0, queue: queue::SEND, msn, mo: from as u32 };
            let mut bytes = [0; UNTAGGED];
            header.encode(&mut bytes);
            let mut output = SendBatch::new(true, false);
            output.begin(UNTAGGED + end - from, &bytes);
            output.put_by_reference(PieceLocation::Work(0), from, &message[from..end]);
            output.end();
            out.extend(output.gather(|_| message).flat_map(|iovec| iovec.to_vec()));
            from = end;
            if from == message.len() {
                break;
            }
        }
    }
    out
}

/// Returns the completions of a stream that arrives in pieces of these sizes. Writable memory is registered first if
/// `expects_tagged` is `true`.
fn received(stream: &[u8], pieces: &[u8], expects_tagged: bool) -> Vec<Completion> {
    received_by(endpoint(true), stream, pieces, expects_tagged)
}

fn received_by(mut endpoint: Endpoint, stream: &[u8], pieces: &[u8], expects_tagged: bool) -> Vec<Completion> {
    if expects_tagged {
        endpoint.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).unwrap();
    }
    Script::new(stream, pieces).run_to_end(&mut endpoint)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// All Sends are delivered, however the stream is cut.
    #[test]
    fn any_split_delivers_the_same(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..256), 1..8),
        max in 1_usize..300,
        pieces in proptest::collection::vec(0_u8..255, 0..6),
        expects_tagged: bool,
    ) {
        let completions = received(&sends(&messages, max), &pieces, expects_tagged);
        prop_assert_eq!(completions.len(), messages.len() + 1);
        for (completion, expected) in completions.iter().zip(&messages) {
            match completion {
                Completion::Received { message, invalidated: None } => prop_assert_eq!(&message[..], &expected[..]),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    /// A flipped bit anywhere is detected, and no later message is delivered.
    #[test]
    fn any_flipped_bit_is_noticed(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..100), 1..5),
        at: proptest::sample::Index,
        bit in 0_u8..8,
    ) {
        let mut stream = sends(&messages, 1000);
        let at = at.index(stream.len());
        stream[at] ^= 1_u8 << bit;
        let completions = received(&stream, &[], false);
        let intact = completions.iter().take_while(|c| matches!(c, Completion::Received { .. })).count();
        prop_assert!(intact < messages.len());
        for (completion, expected) in completions.iter().take(intact).zip(&messages) {
            let Completion::Received { message, .. } = completion else { unreachable!() };
            prop_assert_eq!(&message[..], &expected[..]);
        }
        prop_assert_eq!(completions.len(), intact + 1);
    }

    /// Arbitrary bytes cause exactly one `Disconnected`, and no panic.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_mpa_stream(&bytes);
    }

    /// Nearly valid headers cause exactly one `Disconnected`, and no panic.
    #[test]
    fn nearly_right_headers(
        mode: u8,
        segments in proptest::collection::vec(
            (0_u16..120, prop_oneof![Just(0x41_u8), Just(0x01), Just(0xc1), Just(0x81), any::<u8>()], 0x40_u8..0x48,
             proptest::collection::vec(prop_oneof![Just(0_u8), Just(1_u8), 0..5_u8], 140)),
            1..12,
        ),
    ) {
        let mut stream = vec![mode];
        for (len, ddp, rdmap, rest) in segments {
            stream.extend_from_slice(&len.to_be_bytes());
            let len = usize::from(len);
            let ulpdu = [ddp, rdmap].into_iter().chain(rest).take(len + fpdu::trailer(len));
            stream.extend(ulpdu);
        }
        fuzz_mpa_stream(&stream);
    }
}

/// RFC 5044 §4.1, §7.1.1: if CRCs are not used, the CRC field is present but not checked, however the stream is cut.
#[test]
fn without_crcs_the_field_is_not_checked() {
    let messages = [vec![1; 5], vec![2; 200], vec![3; 8]];
    let mut stream = Vec::new();
    for (message, msn) in messages.iter().zip(1_u8..) {
        let mut one = sends(std::slice::from_ref(message), 1000);
        // The sequence number, which the CRC covers as well.
        one[15] = msn;
        let end = one.len() - fpdu::CRC;
        one[end..].copy_from_slice(b"junk");
        stream.extend(one);
    }
    for pieces in [&[][..], &[1], &[23, 2]] {
        for expects_tagged in [false, true] {
            let completions = received_by(endpoint(false), &stream, pieces, expects_tagged);
            let got: Vec<_> = completions
                .iter()
                .filter_map(
                    |one| if let Completion::Received { message, .. } = one { Some(message.to_vec()) } else { None },
                )
                .collect();
            assert_eq!(got, messages);
        }
    }
}

/// Runs the entry points on their seeds. Inputs that failed once become seeds.
#[test]
fn seeds() {
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 2] = [("mpa_frames", mpa_frames), ("mpa_stream", fuzz_mpa_stream)];
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds");
    for (target, run) in targets {
        let mut count = 0;
        for seed in std::fs::read_dir(seeds.join(target)).unwrap() {
            let bytes = std::fs::read(seed.unwrap().path()).unwrap();
            run(&bytes);
            // Truncated seeds, too.
            (0..bytes.len()).step_by(7).for_each(|len| run(&bytes[..len]));
            count += 1;
        }
        assert!(count > 0, "{target} has no seeds");
    }
}

proptest! {
    #[test]
    fn setup_frames(flags: u8, revision in 0u8..4, len in 0u8..9, rest in proptest::collection::vec(any::<u8>(), 0..9)) {
        for key in [b"MPA ID Req Frame", b"MPA ID Rep Frame"] {
            mpa_frames(&[&key[..], &[flags, revision, 0, len], &rest].concat());
        }
    }
}
