//! Tests of buffers, pools, user-provided memory and messages: their contents, their reuse and their limits.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use proptest::prelude::*;

use super::*;

#[test]
fn returned_memory_is_reused() {
    let pool = BufferPool::default();
    let first = pool.alloc(5000);
    assert_eq!(first.len(), 5000);
    let address = first.as_ptr();
    assert_eq!((pool.stats().outstanding, pool.stats().allocated), (1, 1));
    drop(first);
    assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 8192));
    // Any length with the same power of two reuses the buffer.
    let again = pool.alloc(8192);
    assert_eq!((again.as_ptr(), again.len()), (address, 8192));
    assert_eq!((pool.stats().allocated, pool.stats().kept), (1, 0));
    assert_eq!(pool.alloc(8193).len(), 8193);
    assert_eq!(pool.stats().allocated, 2);
}

#[test]
fn small_buffers_share_one_size() {
    let pool = BufferPool::default();
    drop(pool.alloc(0));
    assert_eq!(pool.stats().kept, 1024);
    assert_eq!(pool.alloc(1024).len(), 1024);
    assert_eq!(pool.stats().allocated, 1);
}

#[test]
fn shared_memory_returns_when_its_last_view_is_dropped() {
    let pool = BufferPool::default();
    let mut buf = pool.alloc(4);
    buf.copy_from_slice(b"abcd");
    let bytes = buf.freeze();
    let (all, part) = (bytes.clone(), bytes.slice(1..3));
    drop(bytes);
    drop(all);
    assert_eq!((&part[..], pool.stats().outstanding), (&b"bc"[..], 1));
    drop(part);
    assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 1024));
}

#[test]
fn freezing_an_empty_buffer_returns_its_memory() {
    let pool = BufferPool::default();
    let mut buf = pool.alloc(100);
    buf.truncate(0);
    let bytes = buf.freeze();
    assert!(bytes.is_empty());
    assert_eq!(pool.stats().outstanding, 0);
}

#[test]
fn a_truncated_buffer_returns_whole() {
    let pool = BufferPool::default();
    let mut buf = pool.alloc(4096);
    buf.truncate(10);
    buf.truncate(20);
    assert_eq!(buf.len(), 10);
    drop(buf.freeze());
    assert_eq!(pool.stats().kept, 4096);
}

#[test]
fn a_pool_respects_its_limit() {
    let pool = BufferPool::with_max_kept(4096);
    let buffers: Vec<_> = (0..5).map(|_| pool.alloc(2000)).collect();
    drop(buffers);
    assert_eq!((pool.stats().kept, pool.stats().outstanding), (4096, 0));
    drop(pool.alloc(8192));
    assert_eq!(pool.stats().kept, 4096);
    let none = BufferPool::with_max_kept(0);
    drop(none.alloc(1));
    assert_eq!(none.stats().kept, 0);
}

#[test]
fn growing_keeps_the_contents_and_returns_the_old_memory() {
    let pool = BufferPool::default();
    let mut buf = pool.alloc(1000);
    buf.fill(7);
    let address = buf.as_ptr();
    // First within the memory, then beyond it.
    buf.grow(1024);
    assert_eq!((buf.as_ptr(), buf.len()), (address, 1024));
    buf.grow(1025);
    assert_eq!((buf.len(), &buf[..1000]), (1025, &[7; 1000][..]));
    assert_eq!((pool.stats().outstanding, pool.stats().kept), (1, 1024));
    buf.grow(3);
    assert_eq!(buf.len(), 1025);
}

#[test]
fn memory_without_a_pool_grows_too() {
    let mut buf = PayloadBuf::from(vec![1, 2, 3]);
    buf.grow(5);
    assert_eq!((buf.len(), &buf[..3]), (5, &[1, 2, 3][..]));
    assert_eq!(buf.freeze().len(), 5);
}

/// User-provided memory that counts its live instances.
struct Own {
    memory: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl Own {
    fn boxed(len: usize, alive: &Arc<AtomicUsize>) -> Box<dyn LandingMemory> {
        alive.fetch_add(1, Ordering::SeqCst);
        Box::new(Self { memory: vec![9; len], alive: alive.clone() })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl LandingMemory for Own {
    fn as_slice(&self) -> &[u8] {
        &self.memory
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

#[test]
fn user_memory_is_used_and_released() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut buf = PayloadBuf::from_memory(Own::boxed(8, &alive));
    assert_eq!((&buf[..], buf.len()), (&[9; 8][..], 8));
    buf[..2].copy_from_slice(b"ab");
    buf.truncate(3);
    let bytes = buf.freeze();
    assert_eq!(&bytes[..], b"ab\x09");
    assert_eq!(alive.load(Ordering::SeqCst), 1, "the view keeps the memory alive");
    drop(bytes);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn growing_beyond_user_memory_moves_to_other_memory() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut buf = PayloadBuf::from_memory(Own::boxed(4, &alive));
    buf.grow(6);
    assert_eq!((buf.len(), &buf[..4]), (6, &[9; 4][..]));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// User-provided memory that breaks the contract of [`LandingMemory`]: it becomes shorter when it is borrowed mutably.
struct Shrinking(Vec<u8>);

impl LandingMemory for Shrinking {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.clear();
        &mut self.0
    }
}

#[test]
fn user_memory_that_shrinks_does_not_panic() {
    let mut buf = PayloadBuf::from_memory(Box::new(Shrinking(vec![1; 4])));
    assert_eq!(buf.len(), 4);
    assert!(buf.iter_mut().next().is_none());
    assert!(buf.is_empty());
}

#[test]
fn threads_share_a_pool() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 2000;
    let pool = BufferPool::with_max_kept(64 << 10);
    let start = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (pool, start) = (pool.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    let len = 1 + (round * 37 + thread * 1009) % 9000;
                    let mut buf = pool.alloc(len);
                    let mark = (thread * ROUNDS + round) as u8;
                    buf.fill(mark);
                    if round % 2 == 0 {
                        let bytes = buf.freeze();
                        assert!(bytes.iter().all(|&byte| byte == mark), "another thread wrote to the buffer");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let stats = pool.stats();
    assert_eq!(stats.outstanding, 0);
    assert!(stats.kept <= 64 << 10);
    // At most one allocation for each size and thread, not for each round.
    assert!(stats.allocated < (THREADS * ROUNDS) as u64 / 2, "{stats:?}");
}

#[test]
fn another_thread_may_return_memory() {
    let pool = BufferPool::default();
    let bytes = pool.alloc(10_000).freeze();
    thread::spawn(move || drop(bytes)).join().unwrap();
    assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 16_384));
}

#[test]
fn memory_may_outlive_every_handle_of_its_pool() {
    let pool = BufferPool::default();
    let bytes = pool.alloc(3).freeze();
    drop(pool);
    assert_eq!(bytes.len(), 3);
}

#[test]
fn a_message_has_headroom() {
    let mut message = MessageBuf::new(BufferPool::default().alloc(100), 8);
    message.append(b"payload");
    assert_eq!((&message[..], message.headroom()), (&b"payload"[..], 8));
    assert!(message.prepend(b"head"));
    assert!(!message.prepend(b"more!"), "five bytes do not fit into four");
    assert!(message.prepend(b"more"));
    assert_eq!((&message[..], message.headroom()), (&b"moreheadpayload"[..], 0));
    message.advance(8);
    assert_eq!(&message[..], b"payload");
    assert!(message.prepend(b"h"), "removed bytes become headroom");
    message[0] = b'H';
    message.advance(100);
    assert!(message.is_empty());
}

#[test]
fn headroom_is_at_most_the_memory() {
    let mut message = MessageBuf::new(PayloadBuf::from(vec![0; 4]), 9);
    assert_eq!((message.headroom(), message.len()), (4, 0));
    message.append(b"x");
    assert_eq!((&message[..], message.headroom()), (&b"x"[..], 4));
}

#[test]
fn a_received_message_has_the_received_bytes() {
    let mut memory = BufferPool::default().alloc(16);
    memory[..4].copy_from_slice(b"abcd");
    let message = MessageBuf::received(memory, 4);
    assert_eq!((&message[..], message.headroom()), (&b"abcd"[..], 0));
    assert_eq!(MessageBuf::received(PayloadBuf::from(vec![1; 3]), 9).len(), 3);
}

/// `reset` reuses the memory of a received message for another message. The new message may outgrow this memory.
#[test]
fn a_message_is_reset_for_other_contents() {
    let pool = BufferPool::default();
    let mut message = MessageBuf::received(pool.alloc(40), 40);
    let address = message.as_ptr();
    message.advance(8);
    message.reset(64);
    assert_eq!((message.len(), message.headroom()), (0, 64));
    message.append(&[1; 900]);
    assert!(message.prepend(&[2; 64]));
    assert_eq!((message.as_ptr(), &message[62..66]), (address, &[2, 2, 1, 1][..]));
    message.append(&[3; 5000]);
    assert_eq!((message.len(), &message[..2], &message[5962..]), (5964, &[2, 2][..], &[3, 3][..]));
}

#[test]
fn a_message_returns_its_memory() {
    let pool = BufferPool::default();
    let mut message = MessageBuf::new(pool.alloc(10), 4);
    message.append(&[7; 2000]);
    message.advance(1);
    let (memory, range) = message.into_parts();
    assert_eq!((range.clone(), &memory[range]), (5..2004, &[7; 1999][..]));
    let bytes = MessageBuf::received(memory, 2004).freeze();
    assert_eq!((bytes.len(), pool.stats().outstanding), (2004, 1));
    drop(bytes);
    assert_eq!(pool.stats().outstanding, 0);
}

#[test]
fn appending_many_words_seldom_reallocates() {
    let taken = allocation_counter::measure(|| {
        let mut message = MessageBuf::new(PayloadBuf::from(Vec::new()), 0);
        for word in 0..100_000u32 {
            message.append(&word.to_be_bytes());
        }
        assert_eq!(message.len(), 400_000);
    });
    assert!(taken.count_total < 40, "{taken:?}");
    assert!(taken.bytes_total < 4 * 400_000, "{taken:?}");
}

#[test]
fn a_warm_pool_allocates_nothing() {
    let pool = BufferPool::default();
    drop((pool.alloc(4096), pool.alloc(100_000)));
    let taken = allocation_counter::measure(|| {
        for _ in 0..100 {
            let mut message = MessageBuf::new(pool.alloc(4096), 100);
            message.append(b"bytes");
            drop((message, pool.alloc(100_000)));
        }
    });
    assert_eq!(taken.count_total, 0);
}

/// A buffer is reset only for lengths of its own size class, and only if it belongs to the pool.
#[test]
fn buffers_are_reused_within_their_pool_and_size() {
    let (pool, other) = (BufferPool::default(), BufferPool::default());
    let mut buffer = pool.alloc(3000);
    buffer.truncate(10);
    let mut resets = |len, pool| buffer.reset_for(len, BufferPool::class_of(len), pool).then_some(buffer.len());
    assert_eq!((resets(4096, &pool), resets(4000, &pool)), (Some(4096), Some(4000)));
    assert_eq!((resets(4096, &other), resets(4097, &pool), resets(2048, &pool)), (None, None, None));
    assert!(!PayloadBuf::from(vec![0; 4096]).reset_for(4096, 4096, &pool));
}

proptest! {
    /// A message consists of the prepended and appended bytes, whatever its initial memory.
    #[test]
    fn a_message_consists_of_the_written_bytes(
        capacity in 0..3000usize, headroom in 0..100usize,
        pieces in proptest::collection::vec(0..700usize, 0..12), head in 0..120usize,
    ) {
        let pool = BufferPool::default();
        let mut message = MessageBuf::new(pool.alloc(capacity), headroom);
        let mut expected = Vec::new();
        for (index, len) in pieces.into_iter().enumerate() {
            let piece = vec![index as u8; len];
            message.append(&piece);
            expected.extend(piece);
        }
        if message.prepend(&vec![0xAA; head]) {
            expected.splice(0..0, vec![0xAA; head]);
        } else {
            prop_assert!(head > headroom.min(capacity));
        }
        prop_assert_eq!(&message[..], &expected[..]);
        prop_assert_eq!(&message.freeze()[..], &expected[..]);
        prop_assert_eq!(pool.stats().outstanding, 0);
    }
}

/// Zeros that are appended to a message are zeros, even if its memory contained other data before.
#[test]
fn appended_zeros_are_zeros() {
    let pool = BufferPool::default();
    pool.alloc(1024).fill(0xff);
    let mut message = MessageBuf::new(pool.alloc(1024), 24);
    assert_eq!((message.tailroom(), message.headroom()), (1000, 24));
    message.append(&[7; 3]);
    message.append_zeros(9);
    assert_eq!((&message[..], message.tailroom()), (&[7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], 988));
}

/// A buffer is reset for other contents only if it belongs to the pool, is long enough, and has the requested size
/// class.
#[test]
fn buffers_are_reset_within_their_class() {
    let (pool, other) = (BufferPool::default(), BufferPool::default());
    let mut buffer = pool.alloc(2000);
    for (len, class, pool, fits) in
        [(2048, 2048, &pool, true), (2049, 2048, &pool, false), (8, 1024, &pool, false), (8, 2048, &other, false)]
    {
        assert_eq!(buffer.reset_for(len, class, pool), fits, "{len}, {class}");
        assert_eq!(buffer.len(), 2048);
    }
    assert!(buffer.reset_for(8, 2048, &pool) && buffer.len() == 8);
}

/// A provider finds the buffers of a pool by their addresses, and can tell whether a buffer has been freed.
#[test]
fn freed_buffers_are_not_current() {
    let pool = BufferPool::with_max_kept(0);
    let buffer = pool.alloc(2000);
    let found = pool.find_buffer(buffer.as_ptr(), 2000).unwrap();
    assert!(pool.is_current(found));
    drop(buffer);
    assert!(!pool.is_current(found) && pool.freed() == 1);
    let landing = LandingPool::new(&pool, 1);
    let byte = landing.alloc();
    assert!(pool.find_buffer(byte.as_ptr(), 1).is_some());
}
