use super::*;

fn sink(len: usize) -> RegisterableMemory {
    RegisterableMemory::Sink(vec![0; len].into())
}

fn table() -> (StagTable, u32, u32, u32) {
    let mut table = StagTable::default();
    let source = table.register(RegisterableMemory::Source(Bytes::from(vec![1; 100])), Access::RemoteRead).unwrap().0;
    let target = table.register(sink(100), Access::RemoteWrite).unwrap().0;
    let landing = table.register(sink(100), Access::ReadSink).unwrap().0;
    (table, source, target, landing)
}

#[test]
fn writes_are_checked() {
    let (mut table, source, target, landing) = table();
    assert_eq!(table.check_write(target, 0, 100), Ok(0));
    assert_eq!(table.check_write(target, 99, 1), Ok(99));
    assert_eq!(table.check_write(target, 99, 2), Err(TerminateCode::TAGGED_BOUNDS));
    assert_eq!(table.check_write(target, 100, 1), Err(TerminateCode::TAGGED_BOUNDS));
    assert_eq!(table.check_write(target, u64::MAX, 1), Err(TerminateCode::TAGGED_TO_WRAP));
    assert_eq!(table.check_write(target, u64::MAX - 1, 1), Err(TerminateCode::TAGGED_BOUNDS));
    for other in [source, landing, 0, target ^ 1] {
        assert_eq!(table.check_write(other, 0, 1), Err(TerminateCode::TAGGED_INVALID_STAG));
    }
}

#[test]
fn reads_are_checked() {
    let (mut table, source, target, landing) = table();
    assert_eq!(table.begin_response(source, 10, 5).unwrap(), vec![1; 5]);
    assert_eq!(table.begin_response(source, 96, 5), Err(TerminateCode::READ_BOUNDS));
    assert_eq!(table.begin_response(source, u64::MAX, 5), Err(TerminateCode::READ_TO_WRAP));
    assert_eq!(table.begin_response(source ^ 1, 0, 5), Err(TerminateCode::READ_INVALID_STAG));
    for sink in [target, landing] {
        assert_eq!(table.begin_response(sink, 0, 5), Err(TerminateCode::READ_ACCESS));
    }
}

#[test]
fn own_reads_are_checked() {
    let (mut table, source, target, landing) = table();
    assert!(table.begin_read(MemoryHandle(landing), 90, 10).is_ok());
    assert!(table.begin_read(MemoryHandle(landing), 90, 11).is_err());
    assert!(table.begin_read(MemoryHandle(landing), u64::MAX, 11).is_err());
    for other in [source, target] {
        assert!(table.begin_read(MemoryHandle(other), 0, 1).is_err());
    }
}

#[test]
fn invalidate_waits_for_users() {
    let (mut table, source, target, landing) = table();
    table.begin_response(source, 0, 1).unwrap();
    table.begin_response(source, 0, 1).unwrap();
    assert!(matches!(table.invalidate(WrId(1), MemoryHandle(source)), InvalidateOutcome::Later));
    assert!(matches!(table.invalidate(WrId(2), MemoryHandle(source)), InvalidateOutcome::Unknown));
    assert_eq!(table.begin_response(source, 0, 1), Err(TerminateCode::READ_INVALID_STAG));
    assert!(table.end_use(source).is_none());
    assert!(matches!(table.end_use(source), Some((WrId(1), RegisterableMemory::Source(_)))));
    assert!(table.end_use(source).is_none());

    table.begin_read(MemoryHandle(landing), 0, 10).unwrap();
    assert!(matches!(table.invalidate(WrId(3), MemoryHandle(landing)), InvalidateOutcome::Later));
    assert!(table.sink(landing, 0, 10).is_some(), "the response has not been placed yet");
    assert!(table.begin_read(MemoryHandle(landing), 0, 10).is_err());
    assert_eq!(table.end_all_uses().len(), 1);

    assert!(matches!(
        table.invalidate(WrId(4), MemoryHandle(target)),
        InvalidateOutcome::Now(RegisterableMemory::Sink(_))
    ));
    assert!(!table.expects_tagged());
}

#[test]
fn peer_invalidates_what_it_was_given() {
    let (mut table, source, target, landing) = table();
    assert!(!table.invalidate_by_peer(landing));
    assert!(table.invalidate_by_peer(source));
    assert!(table.invalidate_by_peer(target));
    assert!(!table.invalidate_by_peer(target), "already invalidated");
    assert_eq!(table.check_write(target, 0, 1), Err(TerminateCode::TAGGED_INVALID_STAG));
    assert!(table.sink(target, 0, 1).is_none());
    assert_eq!(table.begin_response(source, 0, 1), Err(TerminateCode::READ_INVALID_STAG));
    assert!(matches!(table.invalidate(WrId(1), MemoryHandle(target)), InvalidateOutcome::Now(_)));
    assert!(table.expects_tagged(), "the sink of local RDMA Reads is still registered");
    assert!(matches!(table.invalidate(WrId(2), MemoryHandle(landing)), InvalidateOutcome::Now(_)));
    assert!(!table.expects_tagged());
}

#[test]
fn access_must_suit_memory() {
    let mut table = StagTable::default();
    assert!(table.register(sink(1), Access::RemoteRead).is_err());
    assert!(table.register(RegisterableMemory::Source(Bytes::new()), Access::RemoteWrite).is_err());
    assert!(table.register(RegisterableMemory::Source(Bytes::new()), Access::ReadSink).is_err());
    assert!(!table.expects_tagged());
}

/// An STag is neither 0, nor in use, nor recently released (RFC 5042 §6.3.3).
#[test]
fn stags_are_new() {
    let (mut table, source, target, landing) = table();
    for handle in [source, target] {
        assert!(matches!(table.invalidate(WrId(1), MemoryHandle(handle)), InvalidateOutcome::Now(_)));
    }
    let mut random = [source, target, landing, 0, 0x1234_5678].into_iter().flat_map(u32::to_le_bytes);
    table.random = RandomWords { words: [(); 256].map(|()| random.next().unwrap_or(0xff)), used: 0 };
    let registered = table.register(RegisterableMemory::Source(Bytes::new()), Access::RemoteRead).unwrap();
    assert_eq!(registered, MemoryHandle(0x1234_5678));
}

/// RFC 5040 §8.1.1, RFC 5042 §6.1.1: each of the 32 bits is 0 in some STags and 1 in others.
#[test]
fn stags_use_all_bits() {
    let mut table = StagTable::default();
    let (mut ones, mut zeros) = (0, 0);
    for _ in 0..200 {
        let MemoryHandle(stag) = table.register(RegisterableMemory::Source(Bytes::new()), Access::RemoteRead).unwrap();
        assert_ne!(stag, 0);
        (ones, zeros) = (ones | stag, zeros | !stag);
    }
    assert_eq!((ones, zeros), (u32::MAX, u32::MAX));
}

/// The results for ranges with small and with extreme offsets and lengths match a calculation with 128-bit numbers (RFC
/// 5041 §7.1).
#[test]
fn all_ranges_are_placed_or_refused() {
    let ends = [u64::from(u32::MAX), 1 << 32, i64::MAX as u64, u64::MAX];
    let numbers: Vec<u64> = (0..10).chain(ends.iter().flat_map(|end| end - 9..=*end)).collect();
    for (offset, len) in numbers.iter().flat_map(|offset| numbers.iter().map(move |len| (*offset, *len))) {
        for size in &numbers {
            let end = u128::from(offset) + u128::from(len);
            let expected = match end {
                _ if end > u128::from(u64::MAX) => Err(true),
                _ if end > u128::from(*size) => Err(false),
                _ => Ok(offset as usize),
            };
            let placed = place(offset, len as usize, *size as usize);
            assert_eq!(placed, expected, "{len} bytes at {offset} of {size}");
        }
    }
}
