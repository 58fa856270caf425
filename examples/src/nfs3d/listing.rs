//! The procedures READDIR (RFC 1813 §3.3.16) and READDIRPLUS (§3.3.17), with cookies that stay valid.
//!
//! The positions that file systems assign to entries are not always suitable as cookies. In tmpfs a position is a count
//! that shifts when an earlier entry is removed, so a client that removes what it reads would skip every other page.
//! Here, the cookie of an entry is a keyed hash of its name, and directories are listed in cookie order. A cookie
//! therefore keeps its meaning across changes and restarts, even when its entry is removed, and an entry that persists
//! is listed exactly once. The key keeps clients from constructing names with equal cookies.
//!
//! This order requires reading the whole directory. A listing is cached for the following pages. The directory is read
//! again for the first page, and when it has changed, unless this would take most of the time.
//!
//! Calls that wait while a large directory is read share the next listing of it. Only a few large directories are read
//! at a time. The memory for listings therefore does not grow with the number of calls.

use std::{
    ffi::CString,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use rpcrdma::xdr::XdrEncode;
use rpcrdma_specs::nfs3::{
    Cookieverf3, Dirlist3, Dirlistplus3, Entry3, Entryplus3, Filename3, Nfsstat3, Nfstime3, PostOpAttr, PostOpFh3,
    Readdir3args, Readdir3res, Readdir3resfail, Readdir3resok, Readdirplus3args, Readdirplus3res, Readdirplus3resfail,
    Readdirplus3resok,
};
use rustix::{
    fd::OwnedFd,
    fs::{Dir, OFlags},
};

use super::{
    export::Export,
    file_system::DIRECTORY_MAX,
    handle::FileId,
    identity::Identity,
    object::{Object, Stat},
    prompt,
    status::{NfsError, NfsResult},
};

/// Maximum number of cached listings.
const MAX_LISTINGS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Maximum number of entries in all cached listings together. A single listing may exceed it.
pub const MAX_ENTRIES: usize = 1 << 18;
/// Maximum number of large directories that are read at a time.
pub const READERS: usize = 4;

/// Size of the largest directory that is read without a blocking thread, in bytes. On tmpfs, it has 400 entries.
const MAX_PROMPT: u64 = 8000;

/// Reading time beyond which a listing of a changing directory is reused, for as long as [`KEPT_FOR`] allows.
const SLOW: Duration = Duration::from_millis(10);
/// Maximum age of a reused listing, as a multiple of its reading time. Entries created or removed since the listing
/// began may or may not be listed, as with any file system.
const KEPT_FOR: u32 = 20;

/// The cookie of `.`. The cookie 0 starts a listing.
const CURRENT: u64 = 1;
/// The cookie of `..`.
const PARENT: u64 = 2;
/// The smallest cookie of entries other than `.` and `..`.
const FIRST: u64 = 3;

/// The cache of directory listings, and the key from which cookies are computed.
#[derive(Debug)]
pub(super) struct Listings {
    key: [u8; 32],
    kept: Mutex<CachedListing>,
    /// Locks that are held while a large directory is read. The inode number selects the lock.
    readers: [Mutex<()>; READERS],
}

#[derive(Debug)]
struct CachedListing {
    listings: LruCache<FileId, Arc<Listing>>,
    entries: usize,
}

#[derive(Debug)]
struct Listing {
    changed: (Nfstime3, Nfstime3),
    began: Instant,
    took: Duration,
    /// Entries in cookie order.
    entries: Vec<ListingEntry>,
}

#[derive(Debug)]
struct ListingEntry {
    cookie: u64,
    ino: u64,
    name: CString,
}

impl Listings {
    pub(super) fn new(key: [u8; 32]) -> Self {
        let kept = Mutex::new(CachedListing { listings: LruCache::new(MAX_LISTINGS), entries: 0 });
        Self { key, kept, readers: Default::default() }
    }

    fn kept(&self) -> MutexGuard<'_, CachedListing> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cookie of a name. It has 63 bits, because clients pass cookies to programs as signed numbers.
    fn cookie(&self, name: &[u8]) -> u64 {
        match name {
            b"." => CURRENT,
            b".." => PARENT,
            name => {
                let [a, b, c, d, e, f, g, h, ..] = *blake3::keyed_hash(&self.key, name).as_bytes();
                (u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1).max(FIRST)
            }
        }
    }

    /// Reads all entries of a directory that is open for reading.
    fn read(&self, file: &OwnedFd, stat: &Stat) -> NfsResult<Listing> {
        let began = Instant::now();
        let mut entries = Vec::new();
        for entry in Dir::read_from(file)? {
            let entry = entry?;
            let name = entry.file_name();
            entries.push(ListingEntry {
                cookie: self.cookie(name.to_bytes()),
                ino: entry.ino(),
                name: name.to_owned(),
            });
        }
        entries.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        // About one directory of 2^32 entries has two equal cookies. The later entry then gets the next number.
        for at in 1..entries.len() {
            if let [before, after] = &mut entries[at - 1..=at] {
                after.cookie = after.cookie.max(before.cookie.saturating_add(1));
            }
        }
        Ok(Listing { changed: (stat.mtime(), stat.ctime()), began, took: began.elapsed(), entries })
    }

    /// Returns the listing in the cache if it is suitable for a call that arrived at `arrived` and continues from
    /// `cookie`.
    fn cached(&self, object: &Object, stat: &Stat, cookie: u64, arrived: Instant) -> Option<Arc<Listing>> {
        let mut kept = self.kept();
        let listing = kept.listings.get(&object.id)?;
        let is_current =
            || listing.changed == (stat.mtime(), stat.ctime()) || listing.is_reusable(listing.began.elapsed());
        // A listing that began after the call arrived is as new as one that the call would read.
        (listing.began >= arrived || (cookie != 0 && is_current())).then(|| Arc::clone(listing))
    }

    /// Returns the listing from which a call gets its page. The call arrived at `arrived` and continues from `cookie`.
    fn of(&self, object: &Object, file: &OwnedFd, cookie: u64, arrived: Instant) -> NfsResult<Arc<Listing>> {
        if let Some(listing) = self.cached(object, &Stat::of(file)?, cookie, arrived) {
            return Ok(listing);
        }
        let mut reading = None;
        if object.stat.0.stx_size > MAX_PROMPT {
            let reader = &self.readers[(object.id.ino % READERS as u64) as usize];
            reading = Some(reader.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // Get the times before reading, so that later changes are detected.
        let stat = Stat::of(file)?;
        if reading.is_some()
            && let Some(listing) = self.cached(object, &stat, cookie, arrived)
        {
            return Ok(listing);
        }
        let listing = Arc::new(self.read(file, &stat)?);
        let mut kept = self.kept();
        kept.entries += listing.entries.len();
        if let Some((_, gone)) = kept.listings.push(object.id, Arc::clone(&listing)) {
            kept.entries -= gone.entries.len();
        }
        while kept.entries > MAX_ENTRIES && kept.listings.len() > 1 {
            let Some((_, gone)) = kept.listings.pop_lru() else { break };
            kept.entries -= gone.entries.len();
        }
        Ok(listing)
    }
}

impl Listing {
    /// Returns `true` if a listing with the age `age` may be used although the directory has changed.
    fn is_reusable(&self, age: Duration) -> bool {
        self.took > SLOW && age < self.took * KEPT_FOR
    }

    /// Returns the entries after a cookie.
    fn after(&self, cookie: u64) -> &[ListingEntry] {
        &self.entries[self.entries.partition_point(|entry| entry.cookie <= cookie)..]
    }
}

/// Size of a reply without its entries, in bytes. It includes `dir_attributes`, `cookieverf` and the end of the list,
/// but not the status, which the clients' counts do not include either.
const AROUND_ENTRIES: usize = 88 + 8 + 4 + 4;
/// Size, in bytes, of the flag that announces an entry.
const ENTRY_FOLLOWS: usize = 4;

/// Space left in a reply, in bytes.
struct ReplyRoom(usize);

impl ReplyRoom {
    /// Takes `bytes` bytes if they are available. Returns `true` if they are.
    fn take(&mut self, bytes: usize) -> bool {
        self.0.checked_sub(bytes).map(|rest| self.0 = rest).is_some()
    }
}

impl Export {
    /// Performs READDIR as `who`.
    pub fn readdir(&self, who: &Identity, args: &Readdir3args) -> Readdir3res {
        let (dir_attributes, page) = self.page(&args.dir, |directory| {
            let (listing, file) = self.listing(who, directory, args.cookie, &args.cookieverf)?;
            drop(file);
            let mut room = ReplyRoom(args.count.min(DIRECTORY_MAX) as usize);
            let mut entries = Vec::new();
            let mut rest = if room.take(AROUND_ENTRIES) { listing.after(args.cookie).iter() } else { [].iter() };
            let mut eof = true;
            for entry in rest.by_ref() {
                let reply_entry =
                    Entry3 { fileid: self.fileid(directory, entry), name: name(entry), cookie: entry.cookie };
                if !room.take(ENTRY_FOLLOWS + reply_entry.encoded_len()) {
                    eof = false;
                    break;
                }
                entries.push(reply_entry);
            }
            too_small(entries.is_empty() && (!eof || args.count < AROUND_ENTRIES as u32))?;
            Ok(Dirlist3 { entries, eof })
        });
        match page {
            Ok((cookieverf, reply)) => Readdir3res::Ok(Readdir3resok { dir_attributes, cookieverf, reply }),
            Err(refusal) => Readdir3res::Default(refusal.0, Readdir3resfail { dir_attributes }),
        }
    }

    /// Performs READDIRPLUS as `who`.
    pub fn readdirplus(&self, who: &Identity, args: &Readdirplus3args) -> Readdirplus3res {
        let (dir_attributes, page) = self.page(&args.dir, |directory| {
            let (listing, file) = self.listing(who, directory, args.cookie, &args.cookieverf)?;
            // An entry's attributes are those that its LOOKUP by the caller would return.
            let _acting = self.identities.assume(who)?;
            let mut room = ReplyRoom(args.maxcount.min(DIRECTORY_MAX) as usize);
            // `dircount` limits names, fileids and cookies only (RFC 1813 §3.3.17). At least one entry is returned, so
            // that the client makes progress.
            let mut names = ReplyRoom(args.dircount as usize);
            let mut entries = Vec::new();
            let mut rest = if room.take(AROUND_ENTRIES) { listing.after(args.cookie).iter() } else { [].iter() };
            let mut eof = true;
            for entry in rest.by_ref() {
                let Some(reply_entry) = self.entry_plus(directory, &file, entry) else { continue };
                let plain = 8 + reply_entry.name.encoded_len() + 8;
                if !(names.take(plain) || entries.is_empty()) || !room.take(ENTRY_FOLLOWS + reply_entry.encoded_len()) {
                    eof = false;
                    break;
                }
                entries.push(reply_entry);
            }
            too_small(entries.is_empty() && (!eof || args.maxcount < AROUND_ENTRIES as u32))?;
            Ok(Dirlistplus3 { entries, eof })
        });
        match page {
            Ok((cookieverf, reply)) => Readdirplus3res::Ok(Readdirplus3resok { dir_attributes, cookieverf, reply }),
            Err(refusal) => Readdirplus3res::Default(refusal.0, Readdirplus3resfail { dir_attributes }),
        }
    }

    /// Calls `page` with the directory that `handle` identifies. Returns the attributes of the directory, and its
    /// cookie verifier with the page.
    fn page<T>(
        &self,
        handle: &rpcrdma_specs::nfs3::NfsFh3,
        page: impl FnOnce(&Object) -> NfsResult<T>,
    ) -> (PostOpAttr, NfsResult<(Cookieverf3, T)>) {
        match self.find(handle) {
            Ok(object) => {
                let attributes = PostOpAttr::True(object.stat.attributes(self.fsid));
                let page = object.directory().and_then(|object| Ok((self.cookie_verifier(&object), page(&object)?)));
                (attributes, page)
            }
            Err(refusal) => (PostOpAttr::False, Err(refusal)),
        }
    }

    /// Opens the directory as `who`, and returns its listing and the open directory. Fails with NFS3ERR_BAD_COOKIE if
    /// `cookie` is not 0 and `verifier` is not that of the directory.
    fn listing(
        &self,
        who: &Identity,
        directory: &Object,
        cookie: u64,
        verifier: &Cookieverf3,
    ) -> NfsResult<(Arc<Listing>, OwnedFd)> {
        if cookie != 0 && *verifier != self.cookie_verifier(directory) {
            return Err(NfsError(Nfsstat3::BadCookie));
        }
        if directory.stat.0.stx_size > MAX_PROMPT && !prompt::may_wait() {
            return Err(NfsError(Nfsstat3::Jukebox));
        }
        let acting = self.identities.assume(who)?;
        let file = self.descriptors.reopen(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        drop(acting);
        let listing = self.listings.of(directory, &file, cookie, Instant::now())?;
        Ok((listing, file))
    }

    /// Returns the cookie verifier of a directory. It depends only on the directory and the key, because cookies stay
    /// valid when the directory changes.
    fn cookie_verifier(&self, directory: &Object) -> Cookieverf3 {
        let [a, b, c, d, e, f, g, h, ..] =
            *blake3::keyed_hash(&self.listings.key, &directory.id.born.to_be_bytes()).as_bytes();
        Cookieverf3([a, b, c, d, e, f, g, h])
    }

    /// Returns the READDIRPLUS entry of a directory entry, or `None` if the entry has been removed, or if the thread
    /// runs an attempt that would have to wait.
    fn entry_plus(&self, directory: &Object, file: &OwnedFd, entry: &ListingEntry) -> Option<Entryplus3> {
        let mut reply_entry = Entryplus3 {
            fileid: self.fileid(directory, entry),
            name: name(entry),
            cookie: entry.cookie,
            name_attributes: PostOpAttr::False,
            name_handle: PostOpFh3::False,
        };
        let _staying = self.tree.lock_for_read().ok()?;
        let stat = match entry.cookie {
            CURRENT => directory.stat_now().ok(),
            // Nothing above the root is exported, and clients look up other parents themselves.
            PARENT => None,
            _ => match Stat::of_entry(file, &entry.name) {
                Ok(stat) if stat.is_mount_point() => None,
                Ok(stat) => Some(stat),
                Err(rustix::io::Errno::NOENT) => return None,
                Err(_) => None,
            },
        };
        if let Some(stat) = stat {
            let id = self.tree.id(&stat);
            if entry.cookie >= FIRST {
                self.tree.record_place(id.ino, directory.id.ino, entry.name.to_bytes());
            }
            reply_entry.fileid = id.ino;
            reply_entry.name_handle = PostOpFh3::True(self.sealer.seal(id));
            reply_entry.name_attributes = PostOpAttr::True(stat.attributes(self.fsid));
        }
        Some(reply_entry)
    }

    /// Returns the fileid of an entry. The root of the export is its own parent.
    fn fileid(&self, directory: &Object, entry: &ListingEntry) -> u64 {
        let root = self.tree.root().id;
        if entry.cookie == PARENT && directory.id == root { root.ino } else { entry.ino }
    }
}

fn name(entry: &ListingEntry) -> Filename3 {
    Filename3(bytes::Bytes::copy_from_slice(entry.name.to_bytes()).into())
}

/// Fails with NFS3ERR_TOOSMALL if `too_small` is `true`, because not even one entry fits into the reply.
fn too_small(too_small: bool) -> NfsResult<()> {
    if too_small { Err(NfsError(Nfsstat3::Toosmall)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::Mode;

    use super::*;
    use crate::nfs3d::{object::ProcSelfFd, tree::Tree};

    /// Calls that waited while a large directory was read share the next listing.
    #[test]
    fn waiting_calls_share_a_listing() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        (0..2000).try_for_each(|number| fs::write(folder.path().join(format!("a file with number {number}")), b""))?;
        let root = rustix::fs::open(folder.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let tree = Tree::new(root)?;
        let file = ProcSelfFd::new()?.reopen(tree.root(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        assert!(tree.root().stat.0.stx_size > MAX_PROMPT);
        let listings = Listings::new([0; 32]);
        let of = |arrived| listings.of(tree.root(), &file, 0, arrived).map_err(|_| "refused");

        let together = Instant::now();
        let first = of(together)?;
        assert_eq!(first.entries.len(), 2002);
        let shared: Vec<_> = (0..64).map(|_| of(together)).collect::<Result<_, _>>()?;
        assert!(shared.iter().all(|listing| Arc::ptr_eq(listing, &first)));
        fs::write(folder.path().join("new"), b"")?;
        let later = of(Instant::now())?;
        assert_eq!(later.entries.len(), 2003, "a call sees what was there when it arrived");
        Ok(())
    }

    #[test]
    fn slow_listings_are_reused() {
        let of = |took| Listing {
            changed: (Nfstime3 { seconds: 0, nseconds: 0 }, Nfstime3 { seconds: 0, nseconds: 0 }),
            began: Instant::now(),
            took: Duration::from_millis(took),
            entries: Vec::new(),
        };
        assert!(!of(1).is_reusable(Duration::ZERO), "small directories are always read again");
        assert!(of(200).is_reusable(Duration::from_secs(3)));
        assert!(!of(200).is_reusable(Duration::from_secs(5)));
    }
}
