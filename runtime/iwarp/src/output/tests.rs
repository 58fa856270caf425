use proptest::prelude::*;

use super::*;

/// Writes everything in steps of these sizes, in bytes. Returns the written bytes.
fn written(output: &mut SendBatch, payload: &[u8], steps: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut turn = 0;
    while !output.is_empty() {
        let bytes: Vec<u8> = output.gather(|_| payload).flat_map(|iovec| iovec.to_vec()).collect();
        let step = steps.get(turn % steps.len().max(1)).map_or(bytes.len(), |step| bytes.len().min(*step));
        turn += 1;
        out.extend_from_slice(&bytes[..step]);
        output.advance(step);
    }
    out
}

/// Returns the ULPDU of the examples in RFC 5044: a Send of 24 zeros.
fn example(msn: u8) -> [u8; 42] {
    let mut ulpdu = [0; 42];
    ulpdu[..2].copy_from_slice(&[0x41, 0x43]);
    ulpdu[13] = msn;
    ulpdu
}

#[test]
fn rfc_5044_figures_5_and_6() {
    let mut output = SendBatch::new(true, true);
    output.begin(42, &example(1));
    output.end();
    let first = written(&mut output, &[], &[]);
    let mut expected = vec![0, 0, 0, 0, 0, 0x2a];
    expected.extend_from_slice(&example(1));
    expected.extend_from_slice(&[0x52, 0x23, 0x99, 0x83]);
    assert_eq!(first, expected, "figure 5");

    // Figure 6 follows an FPDU that ends at byte 492: a ULPDU of 482 bytes, with its marker.
    let mut output = SendBatch::new(true, true);
    output.begin(482, &[0; 482]);
    output.end();
    assert_eq!(written(&mut output, &[], &[]).len(), 0x1ec);
    let ulpdu = example(2);
    output.begin(42, &ulpdu[..18]);
    output.put_by_reference(PieceLocation::Work(0), 18, &ulpdu[18..]);
    output.end();
    let second = written(&mut output, &ulpdu, &[]);
    let mut expected = vec![0, 0x2a];
    expected.extend_from_slice(&ulpdu[..18]);
    expected.extend_from_slice(&[0, 0, 0, 0x14]);
    expected.extend_from_slice(&ulpdu[18..]);
    expected.extend_from_slice(&[0x84, 0x92, 0x58, 0x98]);
    assert_eq!(second, expected, "figure 6");
}

/// Returns the stream of these ULPDUs with markers, byte by byte as RFC 5044 §4.3 describes it.
fn with_markers(ulpdus: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for ulpdu in ulpdus {
        let start = out.len();
        let mut fpdu_start = None;
        let length = u16::try_from(ulpdu.len()).unwrap().to_be_bytes();
        let pad = &[0; 3][..(2 + ulpdu.len()).next_multiple_of(4) - 2 - ulpdu.len()];
        let add_marker = |out: &mut Vec<u8>, fpdu_start: Option<usize>| {
            if out.len().is_multiple_of(512) {
                let pointer = fpdu_start.map_or(0, |start| out.len() - start);
                out.extend_from_slice(&u32::try_from(pointer).unwrap().to_be_bytes());
            }
        };
        for byte in length.iter().chain(*ulpdu).chain(pad) {
            add_marker(&mut out, fpdu_start);
            fpdu_start.get_or_insert(out.len());
            out.push(*byte);
        }
        add_marker(&mut out, fpdu_start);
        let crc = crc::of(&out[start..]);
        out.extend_from_slice(&crc);
    }
    out
}

#[test]
fn markers_have_their_places() {
    let payload: Vec<u8> = (0..3000_usize).map(|i| (i % 251) as u8).collect();
    for first in 440..540 {
        let lens = [first, 18, 20, 1100, first, 496];
        let mut output = SendBatch::new(true, true);
        let mut stream = Vec::new();
        for (index, len) in lens.into_iter().enumerate() {
            if index % 2 == 0 {
                output.begin(len, &payload[..len]);
            } else {
                output.begin(len, &payload[..14]);
                output.put_by_reference(PieceLocation::Work(0), 14, &payload[14..len]);
            }
            output.end();
            stream.extend(written(&mut output, &payload, &[]));
        }
        assert!(stream == with_markers(&lens.map(|len| &payload[..len])), "{first}");
    }
}

#[test]
fn without_crc_the_field_is_zero() {
    let mut output = SendBatch::new(false, false);
    output.begin(3, b"abc");
    output.end();
    assert_eq!(written(&mut output, &[], &[]), b"\0\x03abc\0\0\0\0\0\0\0");
}

#[test]
fn neighbours_share_a_piece() {
    let mut output = SendBatch::new(true, false);
    for seq in 0..10 {
        output.begin(20, &[1; 20]);
        output.end();
        output.mark(SendMark::Work(seq));
    }
    assert_eq!(output.gather(|_| &[]).count(), 1);
    assert_eq!(output.reached(), None);
    output.advance(28 + 27);
    assert_eq!((output.reached(), output.reached()), (Some(SendMark::Work(0)), None));
    output.advance(1);
    assert_eq!((output.reached(), output.reached()), (Some(SendMark::Work(1)), None));
    assert_eq!(output.written(), 56);
}

#[test]
fn batches_are_bounded() {
    let mut output = SendBatch::new(true, false);
    let payload = vec![0; 60_000];
    let mut fpdus = 0;
    while !output.is_full() {
        output.begin(60_000, &[]);
        output.put_by_reference(PieceLocation::Work(0), 0, &payload);
        output.end();
        fpdus += 1;
    }
    assert_eq!(fpdus, 5);
    output.clear();
    assert!(output.is_empty() && !output.is_full());
}

proptest! {
    /// The output depends neither on whether payload is copied or referenced, nor on the amount that the socket accepts
    /// at a time.
    #[test]
    fn steps_and_places_do_not_matter(
        lens in proptest::collection::vec(0_usize..1500, 1..8),
        steps in proptest::collection::vec(1_usize..700, 1..5),
        markers: bool,
    ) {
        let payload: Vec<u8> = (0..1500_usize).map(|i| (i % 253) as u8).collect();
        let (mut copied, mut referred) = (SendBatch::new(true, markers), SendBatch::new(true, markers));
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for len in lens {
            copied.begin(len, &payload[..len / 2]);
            copied.put(&payload[len / 2..len]);
            copied.end();
            one.extend(written(&mut copied, &[], &[]));
            let head = len / 3;
            referred.begin(len, &payload[..head]);
            referred.put_by_reference(PieceLocation::Response(0), head, &payload[head..len]);
            referred.end();
            other.extend(written(&mut referred, &payload, &steps));
        }
        prop_assert_eq!(one.len() as u64, copied.written());
        prop_assert_eq!(one, other);
    }
}
