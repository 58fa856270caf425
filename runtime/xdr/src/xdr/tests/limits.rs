//! Tests of the limits on memory and stack at their exact values, of the memory of copied items, and of abandoned data.

use super::*;

/// A value of one word that occupies no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marker;

sample! { Marker: 4, Some(4), Some(4), Some(0);
    len(_v) 4;
    put(_v, sink) {
        sink.put_u32(0);
        Ok(())
    };
    take(decoder) decoder.take_u32().map(|_| Self)
}

/// An operation, identified by its number. Its decoder abandons the stream after operation 9.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Operation(u32);

sample! { Operation: 4, None, None, Some(0);
    len(_v) 4;
    put(v, sink) v.0.encode(sink);
    take(decoder) {
        let number = decoder.take_u32()?;
        if number == 9 {
            decoder.abandon();
        }
        Ok(Self(number))
    }
}

/// Decodes a value with a memory limit of `max_memory` bytes.
fn within<T: XdrDecode>(wire: &[u8], max_memory: usize) -> Result<T, DecodeError> {
    let limits = DecodeLimits { max_memory, ..DecodeLimits::default() };
    Decoder::new(wire).with_limits(limits).read()
}

#[test]
fn every_allocation_counts() {
    let too_much = |max| DecodeErrorKind::TooMuchMemory { max };
    let text = encode_words(&[4, 0x6161_6161]);
    let take = |max_memory| {
        let limits = DecodeLimits { max_memory, ..DecodeLimits::default() };
        take_utf8(&mut Decoder::new(&text).with_limits(limits), 4)
    };
    assert_eq!(take(4).as_deref(), Ok("aaaa"));
    assert_eq!(*take(3).unwrap_err().kind(), too_much(3));
    // A value in a box.
    let boxed = encode_words(&[7, 0, 0]);
    assert!(within::<Box<Tree>>(&boxed, size_of::<Tree>()).is_ok());
    assert_eq!(
        *within::<Box<Tree>>(&boxed, size_of::<Tree>() - 1).unwrap_err().kind(),
        too_much(size_of::<Tree>() - 1)
    );
    // Elements and nodes without memory take time.
    let markers = encode_words(&[3, 0, 0, 0]);
    assert_eq!(within::<Vec<Marker>>(&markers, 3), Ok(vec![Marker; 3]));
    assert_eq!(*within::<Vec<Marker>>(&markers, 2).unwrap_err().kind(), too_much(2));
    let nodes = encode_words(&[1, 0, 1, 0, 1, 0, 0]);
    let limits = |max_memory| DecodeLimits { max_memory, ..DecodeLimits::default() };
    assert_eq!(take_list::<Marker>(&mut Decoder::new(&nodes).with_limits(limits(3))), Ok(vec![Marker; 3]));
    assert!(take_list::<Marker>(&mut Decoder::new(&nodes).with_limits(limits(2))).is_err());
}

/// The stack of all levels together has a limit of 128 KiB. A single level may be larger.
#[test]
fn levels_share_the_stack() {
    const ALL: usize = 128 << 10;
    let mut decoder = Decoder::new(&[]);
    assert_eq!((decoder.enter(1), decoder.enter(ALL - 1)), (Ok(()), Ok(())));
    assert_eq!(*decoder.enter(1).unwrap_err().kind(), DecodeErrorKind::TooDeep { max: 2 });
    let mut decoder = Decoder::new(&[]);
    assert_eq!(decoder.enter(ALL + 1), Ok(()));
    assert_eq!(*decoder.enter(0).unwrap_err().kind(), DecodeErrorKind::TooDeep { max: 1 });
}

/// The first four short items of a message have memory of their own. Later ones share blocks of at most 1 KiB.
#[test]
fn many_short_items_share_memory() {
    const ITEM: usize = 128;
    let items: Vec<_> = (0..30_u8).map(|n| bytes(&[n; ITEM])).collect();
    let wire = flat(&items);
    let mut decoder = Decoder::new(&wire);
    let count = decoder.take_u32().unwrap();
    let mut memory = Vec::new();
    let mut copies = Vec::new();
    for _ in 0..count {
        let before = decoder.memory();
        let len = decoder.take_u32().unwrap();
        copies.push(decoder.take_opaque(len).unwrap());
        memory.push(decoder.memory() - before);
    }
    // A block has room for eight items.
    let block = [1024, 0, 0, 0, 0, 0, 0, 0];
    // The last block is as long as the rest of the stream, from the last item but one.
    let rest = 2 * ITEM + 4;
    let expected: Vec<_> = [ITEM; 4].into_iter().chain([block; 3].concat()).chain([rest, 0]).collect();
    assert_eq!(memory, expected);
    for (n, pair) in copies.windows(2).enumerate() {
        let are_adjacent = pair[0].as_ptr().wrapping_add(ITEM) == pair[1].as_ptr();
        assert_eq!(are_adjacent, expected[n + 1] == 0, "items {n} and {}", n + 1);
    }
}

/// An item of 256 bytes or more is not copied if the message is in shared memory ([`Decoder::shared`]). Otherwise it is
/// copied into an allocation of its own, not into a shared block.
#[test]
fn the_length_from_which_items_are_not_copied() {
    for (len, is_shared) in [(255, false), (256, true)] {
        let wire = Bytes::from(flat(&bytes(&vec![7; len])));
        let item = Decoder::shared(&wire).read::<Bytes>().unwrap();
        assert_eq!(item.as_ptr() == wire[4..].as_ptr(), is_shared, "{len}");
        // Behind short items, and before others.
        let items: Vec<_> = [1, 1, 1, 1, len, 200, 200, 200, 200].map(|len| bytes(&vec![7; len])).into();
        let wire = flat(&items);
        let mut decoder = Decoder::new(&wire);
        decoder.take_u32().unwrap();
        let mut memory = 0;
        for item in &items[..5] {
            memory = decoder.memory();
            assert_eq!(decoder.read().as_ref(), Ok(item));
        }
        assert_eq!(decoder.memory() - memory, if is_shared { len } else { 1024 }, "{len}");
    }
}

#[test]
fn nothing_is_decoded_behind_abandoned_data() {
    let operations = |numbers: &[u32]| Ok(numbers.iter().map(|&number| Operation(number)).collect::<Vec<_>>());
    let wire = encode_words(&[3, 7, 9, 0xFFFF_FFFF, 5]);
    let chunks = [ReadChunk { position: 40, data: bytes(&[1; 4]) }];
    let mut decoder = Decoder::new(&wire).with_read_chunks(&chunks);
    assert_eq!(decoder.read::<Vec<Operation>>(), operations(&[7, 9]));
    assert!(decoder.is_abandoned());
    assert_eq!((decoder.position(), decoder.remaining(), decoder.finish()), (12, 0, Ok(())));
    let list = encode_words(&[1, 7, 1, 9, 0xFFFF_FFFF]);
    let mut decoder = Decoder::new(&list);
    assert_eq!(take_list::<Operation>(&mut decoder), operations(&[7, 9]));
    // Without such an item, the same data is an error.
    assert!(decode::<Vec<Operation>>(&encode_words(&[3, 7, 8])).is_err());
    assert!(!Decoder::new(&wire).is_abandoned());
}
