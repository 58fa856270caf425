//! Tests of records and their parts: sizes of reads, lengths to reserve, and skipped or dropped input.

use super::*;
use crate::engine::stream::{
    output::RecordOutput,
    record::{READ, SMALL},
};

const LARGE: usize = 64 << 10;

fn marker(is_last: bool, len: usize) -> [u8; 4] {
    (u32::from(is_last) << 31 | len as u32).to_be_bytes()
}

fn assembler(change: impl FnOnce(&mut StreamConfig)) -> RecordAssembler {
    let mut config = StreamConfig::default();
    change(&mut config);
    RecordAssembler::new(config)
}

fn limit(assembler: &mut RecordAssembler) -> usize {
    assembler.room(usize::MAX).limit()
}

/// Reads are as long as the fragment, within bounds. Reads of a skipped record are long.
#[test]
fn lengths_of_reads() {
    let mut assembler = assembler(|config| config.max_record = 100_000);
    assert_eq!((limit(&mut assembler), assembler.missing()), (READ, 0));
    assembler.extend(&marker(false, 30_000));
    assert_eq!(assembler.expected(), Ok(Some(100_000)));
    assert_eq!((limit(&mut assembler), assembler.missing()), (30_000, 30_000));
    assembler.extend(&[7; 20_000]);
    assert_eq!((limit(&mut assembler), assembler.missing()), (READ, 10_000));
    assert_eq!(assembler.room(100).limit(), 100);
    assembler.extend(&[7; 10_000]);
    assert_eq!(assembler.next_record(), Ok(None));
    assembler.extend(&marker(true, 70_001));
    assert!(matches!(assembler.next_record(), Err(StreamError::RecordTooLong { len: 100_001, .. })));
    assembler.skip();
    assert_eq!((assembler.next_record(), assembler.expected()), (Ok(None), Ok(None)));
    assert_eq!((limit(&mut assembler), assembler.missing()), (LARGE, 0));
    assembler.extend(&[7; 70_000]);
    assert_eq!((assembler.next_record(), assembler.expected()), (Ok(None), Ok(None)));
    assert_eq!((assembler.in_progress(), assembler.complete()), (Some(100_000), 0));
    assembler.extend(&[7]);
    assembler.extend(&[&marker(true, 2)[..], b"ab"].concat());
    assert_eq!(assembler.expected(), Ok(Some(2)));
    assert_eq!(assembler.next_record().unwrap().unwrap(), "ab");
    assert_eq!((assembler.in_progress(), assembler.complete(), assembler.missing()), (None, 2, 0));
}

/// The length to reserve memory for is the announced length, or the maximum if more fragments follow and the record is
/// not small.
#[test]
fn lengths_to_reserve() {
    for (is_last, len, expected) in [
        (true, SMALL + 1, SMALL as u64 + 1),
        (true, SMALL, SMALL as u64),
        (false, SMALL, SMALL as u64),
        (false, SMALL + 1, 100_000),
        (false, 0, 0),
    ] {
        let mut assembler = assembler(|config| config.max_record = 100_000);
        assembler.extend(&marker(is_last, len));
        assert_eq!(assembler.expected(), Ok(Some(expected)), "{is_last}, {len}");
    }
    // The first fragment counts as one.
    let mut assembler = assembler(|config| config.max_fragments = 1);
    assembler.extend(&[&marker(true, 1)[..], b"a", &marker(false, 1), b"b", &marker(true, 1)].concat());
    assert_eq!(assembler.next_record().unwrap().unwrap(), "a");
    assert_eq!(assembler.next_record(), Err(StreamError::TooManyFragments { max: 1 }));
}

/// After all of its input is dropped, an assembler is empty in any state, and a new record may begin.
#[test]
fn cleared_assemblers_are_empty() {
    let parts: [&[u8]; 4] = [
        &[0, 0],
        &[&marker(true, 9)[..], b"abc"].concat(),
        &[&marker(false, 2)[..], b"ab"].concat(),
        &marker(true, 99),
    ];
    for part in parts {
        let mut assembler = assembler(|config| (config.max_record, config.max_fragments) = (50, 1));
        assembler.extend(part);
        if assembler.next_record().is_err() {
            assembler.skip();
            assert_eq!(assembler.next_record(), Ok(None));
        }
        assert!(assembler.in_progress().is_some());
        assembler.clear();
        assert_eq!((assembler.in_progress(), assembler.held(), assembler.missing()), (None, 0, 0));
        assembler.extend(&[&marker(true, 2)[..], b"ab"].concat());
        assert_eq!(assembler.next_record().unwrap().unwrap(), "ab", "{part:?}");
    }
}

/// A reply is complete when its last byte has been sent, whatever the number of its fragments.
#[test]
fn replies_are_complete_with_their_last_byte() {
    for fragment_size in [u32::MAX, 12, 8, 4, 2] {
        let mut output = RecordOutput::default();
        let item = |position, len| ReducedItem { position, chunk: 0, data: vec![7; len].into() };
        output.push(message(&[1, 1, 5, 4, 9, 9]), &[item(12, 5), item(24, 4)], Some(ReplyToken(3)), fragment_size);
        let bytes: Vec<u8> = output.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!((output.queued, output.has_replies(), output.complete()), (bytes.len(), true, 0));
        let mut assembler = assembler(|_| {});
        assembler.extend(&bytes);
        let whole = [
            &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5][..],
            &[7, 7, 7, 7, 7, 0, 0, 0],
            &[0, 0, 0, 4],
            &[7; 4],
            &[0, 0, 0, 9, 0, 0, 0, 9],
        ]
        .concat();
        assert_eq!(assembler.next_record().unwrap().unwrap(), whole, "{fragment_size}");
        for sent in 1..bytes.len() {
            output.advance(1, |_| panic!("complete after {sent} bytes"));
            assert_eq!((output.queued, output.has_replies()), (bytes.len() - sent, true));
        }
        let mut replied = Vec::new();
        output.advance(1, |token| replied.push(token));
        assert_eq!(replied, [ReplyToken(3)]);
        assert_eq!((output.queued, output.has_replies(), output.complete()), (0, false, 1));
        assert!(output.is_empty());
    }
}

/// A skipped record that arrives all at once is dropped. The next record is not dropped.
#[test]
fn skipped_records_are_dropped() {
    let mut assembler = assembler(|config| config.max_record = 10);
    assembler.extend(&marker(true, 20));
    assert!(assembler.next_record().is_err());
    assembler.skip();
    assembler.extend(&[&[7; 20][..], &marker(true, 2), b"ab"].concat());
    assert_eq!(assembler.next_record().unwrap().unwrap(), "ab");
    assert_eq!(assembler.complete(), 2);
}
