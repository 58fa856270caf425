//! Huge pages for the buffers of a pool.
//!
//! A device reads and writes memory through a table with an entry for each page. With pages of 2 MiB instead of 4 KiB,
//! 2 MiB of memory need one entry instead of 512, registration is faster, and the device and the processor find more
//! entries in their caches.

use std::{
    io, ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::memory::{BufferSource, LandingMemory};

/// Size of a huge page, and alignment of mappings, in bytes.
const HUGE: usize = 2 << 20;

/// `MAP_HUGE_2MB` of `linux/mman.h`: the binary logarithm of the page size, in the upper bits of the flags. `libc` does
/// not define it for every target.
const MAP_HUGE_2MB: libc::c_int = 21 << 26;

/// Huge pages for the buffers of a [`BufferPool`](super::memory::BufferPool), of 2 MiB each.
///
/// Takes pages that the system has reserved (`vm.nr_hugepages`). If too few reserved pages are free, or this process
/// may not use them, it takes normal pages, for which the kernel is asked to use transparent huge pages, and logs this
/// once. Buffers of less than 2 MiB share a page. Needs Linux 5.14 for reserved pages.
///
/// Pools do not use huge pages by default: most systems have no reserved pages, and a pool with huge pages returns
/// memory to the system only in pieces of at least 2 MiB.
///
/// ```
/// use rpcrdma_verbs::HugePages;
/// use rpcrdma_proto::memory::BufferPool;
///
/// let pool = BufferPool::with_source(BufferPool::DEFAULT_MAX_KEPT, HugePages::new());
/// assert_eq!(pool.alloc(4 << 20).len(), 4 << 20);
/// ```
#[derive(Debug, Default)]
pub struct HugePages {
    /// The page that small buffers are taken from.
    shared: Mutex<Option<SharedPage>>,
    /// `true` if the use of normal pages was logged.
    is_logged: AtomicBool,
}

/// A page that buffers share, and the number of bytes that were taken from it.
#[derive(Debug)]
struct SharedPage {
    mapping: Arc<Mapping>,
    used: usize,
}

impl HugePages {
    /// Creates a source without pages. Pages are taken when buffers need them.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn map(&self, len: usize) -> io::Result<Arc<Mapping>> {
        let len = len.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = match Mapping::reserved(len) {
            Ok(mapping) => mapping,
            Err(error) => {
                if !self.is_logged.swap(true, Ordering::Relaxed) {
                    tracing::info!(
                        target: "rpcrdma",
                        %error,
                        "no reserved huge pages, using normal pages: reserve some with `sysctl vm.nr_hugepages=N`"
                    );
                }
                Mapping::transparent(len)?
            }
        };
        Ok(Arc::new(mapping))
    }

    fn piece(&self, len: usize) -> io::Result<Piece> {
        if len >= HUGE {
            return Ok(Piece { mapping: self.map(len)?, offset: 0, len });
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = shared.as_mut()
            && let offset = page.used.next_multiple_of(len.max(1))
            && offset + len <= HUGE
        {
            page.used = offset + len;
            return Ok(Piece { mapping: Arc::clone(&page.mapping), offset, len });
        }
        let mapping = self.map(HUGE)?;
        *shared = Some(SharedPage { mapping: Arc::clone(&mapping), used: len });
        Ok(Piece { mapping, offset: 0, len })
    }
}

impl BufferSource for HugePages {
    fn allocate(&self, len: usize) -> Option<Box<dyn LandingMemory>> {
        match self.piece(len) {
            Ok(piece) => Some(Box::new(piece)),
            Err(error) => {
                tracing::debug!(%error, len, "failed to map memory for a buffer, using the allocator");
                None
            }
        }
    }
}

/// A mapping of anonymous memory, aligned to huge pages.
#[derive(Debug)]
struct Mapping {
    start: ptr::NonNull<u8>,
    len: usize,
    /// `true` if the pages are reserved huge pages.
    #[cfg_attr(not(test), expect(dead_code, reason = "for tests and the derived `Debug`"))]
    is_reserved: bool,
}

// SAFETY: the mapping is owned, and has no thread of its own. Pieces, which do not overlap, control the access to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps reserved huge pages, and takes them from the system at once. Fails if too few are free, or if this process
    /// may not use them.
    fn reserved(len: usize) -> io::Result<Self> {
        let start = map(len, libc::MAP_HUGETLB | MAP_HUGE_2MB)?;
        let mapping = Self { start, len, is_reserved: true };
        // A control group may forbid pages that the system has reserved, and the first access would end the process
        // with SIGBUS. SAFETY: the range is that of the mapping.
        let code = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
        if code == 0 { Ok(mapping) } else { Err(io::Error::last_os_error()) }
    }

    /// Maps normal pages, and asks for transparent huge pages.
    fn transparent(len: usize) -> io::Result<Self> {
        let room = len.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let whole = map(room, 0)?;
        let before = whole.as_ptr().align_offset(HUGE).min(HUGE);
        let after = room - before - len;
        // SAFETY: the aligned range and what is around it are inside the mapping, which nothing else refers to.
        let start = unsafe {
            let start = whole.add(before);
            unmap(whole, before);
            unmap(start.add(len), after);
            // Without effect on a system that has no transparent huge pages.
            libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE);
            start
        };
        Ok(Self { start, len, is_reserved: false })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and unmapped once. No piece is left, because each holds the mapping.
        unsafe { unmap(self.start, self.len) }
    }
}

/// Maps anonymous memory, filled with zeros.
fn map(len: usize, flags: libc::c_int) -> io::Result<ptr::NonNull<u8>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the system chooses a range that nothing else uses.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    ptr::NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Unmaps memory, if `len` is not 0.
///
/// # Safety
/// The range must be mapped, and nothing may refer to it.
unsafe fn unmap(start: ptr::NonNull<u8>, len: usize) {
    // SAFETY: guaranteed by the caller.
    if len > 0 && unsafe { libc::munmap(start.as_ptr().cast(), len) } != 0 {
        tracing::warn!(error = %io::Error::last_os_error(), len, "failed to unmap memory");
    }
}

/// A part of a mapping, for one buffer.
#[derive(Debug)]
struct Piece {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Piece {
    fn start(&self) -> *mut u8 {
        // SAFETY: `HugePages::piece` takes pieces from inside the mapping.
        unsafe { self.mapping.start.as_ptr().add(self.offset) }
    }
}

impl LandingMemory for Piece {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is mapped, initialized, and belongs to this piece alone.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::memory::BufferPool;

    fn range(piece: &Piece) -> Range<usize> {
        let start = piece.start() as usize;
        start..start + piece.len
    }

    /// Pieces are aligned to their size, or to 2 MiB if they are larger. They do not overlap, are initially zero, and
    /// outlive the source.
    #[test]
    fn pieces() {
        let source = HugePages::new();
        let lens = [64 << 10, 1 << 20, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20, 64 << 10, 1 << 20];
        let mut pieces: Vec<_> = lens.iter().map(|len| source.piece(*len).unwrap()).collect();
        for (nth, (piece, len)) in pieces.iter_mut().zip(lens).enumerate() {
            assert_eq!((piece.as_slice().len(), piece.start().align_offset(len.min(HUGE))), (len, 0));
            assert!(piece.as_slice().iter().all(|byte| *byte == 0));
            piece.as_mut_slice().fill(nth as u8 + 1);
        }
        for (nth, piece) in pieces.iter().enumerate() {
            let others = pieces.iter().enumerate().filter(|(other, _)| *other != nth);
            for (_, other) in others {
                assert!(range(piece).end <= range(other).start || range(other).end <= range(piece).start);
            }
        }
        drop(source);
        for (nth, piece) in pieces.iter().enumerate() {
            assert!(piece.as_slice().iter().all(|byte| *byte == nth as u8 + 1));
        }
    }

    #[test]
    fn small_pieces_share_a_page() {
        let source = HugePages::new();
        let pieces: Vec<_> = (0..8).map(|_| source.piece(256 << 10).unwrap()).collect();
        assert!(pieces.iter().all(|piece| Arc::ptr_eq(&piece.mapping, &pieces[0].mapping)));
        let next = source.piece(256 << 10).unwrap();
        assert!(!Arc::ptr_eq(&next.mapping, &pieces[0].mapping));
        assert_eq!(Arc::strong_count(&pieces[0].mapping), 8, "the source has forgotten the full page");
    }

    #[test]
    fn normal_pages_are_aligned() {
        let mapping = Mapping::transparent(3 * HUGE).unwrap();
        assert_eq!((mapping.start.as_ptr().align_offset(HUGE), mapping.len), (0, 3 * HUGE));
        assert!(!mapping.is_reserved);
        assert!(Mapping::transparent(usize::MAX - HUGE).is_err());
        assert!(HugePages::new().allocate(usize::MAX).is_none());
    }

    #[test]
    fn a_pool_uses_the_pages() {
        let pool = BufferPool::with_source(64 << 20, HugePages::new());
        let mut buffer = pool.alloc(4 << 20);
        assert_eq!(buffer.as_ptr().align_offset(HUGE), 0);
        buffer.fill(3);
        let bytes = buffer.freeze();
        assert!(bytes.iter().all(|byte| *byte == 3));
        drop(bytes);
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 4 << 20));
    }
}
