//! READDIR (RFC 1813 §3.3.16) and READDIRPLUS (§3.3.17), with cookies that stay valid.
//!
//! What file systems number their entries with is not always fit for cookies: in memory it is a count, which moves when
//! an entry before is removed, so that a client that removes what it reads misses every other page. Here an entry's
//! cookie is a keyed hash of its name, and a directory is told in the order of cookies. So a cookie means the same
//! whatever is made or removed around it, over restarts, and for an entry that is no more; an entry that stays is told
//! exactly once. The key keeps clients from making names of one cookie.
//!
//! The order takes reading the whole directory. A listing is kept for the pages that follow; it is read anew from the
//! first page on, and when the directory has changed, unless that would take most of the time.

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
    file_system::DATA_MAX,
    handle::FileId,
    identity::Identity,
    object::{Object, Stat},
    status::{Outcome, Refusal},
};

/// Most listings kept.
const MOST_LISTINGS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Most entries of all listings kept, unless one alone has more.
const MOST_ENTRIES: usize = 1 << 20;

/// What takes longer to read is not read anew for each page of a directory that is always changing ..
const SLOW: Duration = Duration::from_millis(10);
/// .. but when it is as many times as old as it took to read. Entries made or removed since the listing began may be told
/// or not, as ever.
const KEPT_FOR: u32 = 20;

/// Cookies of `.` and `..`; 0 is where a client begins.
const CURRENT: u64 = 1;
const PARENT: u64 = 2;
const FIRST: u64 = 3;

/// Listings of directories, and what their cookies are made with.
#[derive(Debug)]
pub(super) struct Listings {
    key: [u8; 32],
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    listings: LruCache<FileId, Arc<Listing>>,
    entries: usize,
}

#[derive(Debug)]
struct Listing {
    changed: (Nfstime3, Nfstime3),
    began: Instant,
    took: Duration,
    /// In the order of their cookies.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    cookie: u64,
    ino: u64,
    name: CString,
}

impl Listings {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { key, kept: Mutex::new(Kept { listings: LruCache::new(MOST_LISTINGS), entries: 0 }) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of 63 bits, as clients hand cookies on to programs as signed numbers.
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

    /// All entries of a directory that is open for reading.
    fn read(&self, file: &OwnedFd, stat: &Stat) -> Outcome<Listing> {
        let began = Instant::now();
        let mut entries = Vec::new();
        for entry in Dir::read_from(file)? {
            let entry = entry?;
            let name = entry.file_name();
            entries.push(Entry { cookie: self.cookie(name.to_bytes()), ino: entry.ino(), name: name.to_owned() });
        }
        entries.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        // Two of one cookie come along about once in a directory of 2^32 entries; then the later one gets the next.
        for at in 1..entries.len() {
            if let [before, after] = &mut entries[at - 1..=at] {
                after.cookie = after.cookie.max(before.cookie.saturating_add(1));
            }
        }
        Ok(Listing { changed: (stat.mtime(), stat.ctime()), began, took: began.elapsed(), entries })
    }

    /// The listing to go on with from `cookie`.
    fn of(&self, object: &Object, file: &OwnedFd, cookie: u64) -> Outcome<Arc<Listing>> {
        // From before it is read, so that what changes meanwhile shows.
        let stat = Stat::of(file)?;
        if cookie != 0
            && let Some(listing) = self.kept().listings.get(&object.id)
            && (listing.changed == (stat.mtime(), stat.ctime()) || listing.will_do(listing.began.elapsed()))
        {
            return Ok(Arc::clone(listing));
        }
        let listing = Arc::new(self.read(file, &stat)?);
        let mut kept = self.kept();
        kept.entries += listing.entries.len();
        if let Some((_, gone)) = kept.listings.push(object.id, Arc::clone(&listing)) {
            kept.entries -= gone.entries.len();
        }
        while kept.entries > MOST_ENTRIES && kept.listings.len() > 1 {
            let Some((_, gone)) = kept.listings.pop_lru() else { break };
            kept.entries -= gone.entries.len();
        }
        Ok(listing)
    }
}

impl Listing {
    /// Whether it is good enough at an age, though the directory has changed.
    fn will_do(&self, age: Duration) -> bool {
        self.took > SLOW && age < self.took * KEPT_FOR
    }

    /// The entries after a cookie.
    fn after(&self, cookie: u64) -> &[Entry] {
        &self.entries[self.entries.partition_point(|entry| entry.cookie <= cookie)..]
    }
}

/// `status`, `dir_attributes`, `cookieverf`, and the ends of the list: what a reply has besides its entries. The status is
/// not in the count that clients give.
const AROUND_ENTRIES: usize = 88 + 8 + 4 + 4;
/// What says that there is an entry.
const ENTRY_FOLLOWS: usize = 4;

/// Room in a reply.
struct Room(usize);

impl Room {
    /// Takes some, if there is as much.
    fn take(&mut self, octets: usize) -> bool {
        self.0.checked_sub(octets).map(|rest| self.0 = rest).is_some()
    }
}

impl Export {
    /// READDIR.
    pub fn readdir(&self, who: &Identity, args: &Readdir3args) -> Readdir3res {
        let (dir_attributes, page) = self.page(&args.dir, |directory| {
            let (listing, file) = self.listing(who, directory, args.cookie, &args.cookieverf)?;
            drop(file);
            let mut room = Room(args.count.min(DATA_MAX) as usize);
            let mut entries = Vec::new();
            let mut rest = if room.take(AROUND_ENTRIES) { listing.after(args.cookie).iter() } else { [].iter() };
            let mut eof = true;
            for entry in rest.by_ref() {
                let told = Entry3 { fileid: self.fileid(directory, entry), name: name(entry), cookie: entry.cookie };
                if !room.take(ENTRY_FOLLOWS + told.encoded_len()) {
                    eof = false;
                    break;
                }
                entries.push(told);
            }
            too_small(entries.is_empty() && (!eof || args.count < AROUND_ENTRIES as u32))?;
            Ok(Dirlist3 { entries, eof })
        });
        match page {
            Ok((cookieverf, reply)) => Readdir3res::Ok(Readdir3resok { dir_attributes, cookieverf, reply }),
            Err(refusal) => Readdir3res::Default(refusal.0, Readdir3resfail { dir_attributes }),
        }
    }

    /// READDIRPLUS.
    pub fn readdirplus(&self, who: &Identity, args: &Readdirplus3args) -> Readdirplus3res {
        let (dir_attributes, page) = self.page(&args.dir, |directory| {
            let (listing, file) = self.listing(who, directory, args.cookie, &args.cookieverf)?;
            // What can be said of an entry is what its own LOOKUP would say.
            let _acting = self.identities.assume(who)?;
            let mut room = Room(args.maxcount.min(DATA_MAX) as usize);
            // §3.3.17: of names, fileids and cookies alone. A client that wants none gets one, or it would get no further.
            let mut names = Room(args.dircount as usize);
            let mut entries = Vec::new();
            let mut rest = if room.take(AROUND_ENTRIES) { listing.after(args.cookie).iter() } else { [].iter() };
            let mut eof = true;
            for entry in rest.by_ref() {
                let Some(told) = self.tell(directory, &file, entry) else { continue };
                let plain = 8 + told.name.encoded_len() + 8;
                if !(names.take(plain) || entries.is_empty()) || !room.take(ENTRY_FOLLOWS + told.encoded_len()) {
                    eof = false;
                    break;
                }
                entries.push(told);
            }
            too_small(entries.is_empty() && (!eof || args.maxcount < AROUND_ENTRIES as u32))?;
            Ok(Dirlistplus3 { entries, eof })
        });
        match page {
            Ok((cookieverf, reply)) => Readdirplus3res::Ok(Readdirplus3resok { dir_attributes, cookieverf, reply }),
            Err(refusal) => Readdirplus3res::Default(refusal.0, Readdirplus3resfail { dir_attributes }),
        }
    }

    /// One page of a directory, with the attributes and the verifier that go with it.
    fn page<T>(
        &self,
        handle: &rpcrdma_specs::nfs3::NfsFh3,
        page: impl FnOnce(&Object) -> Outcome<T>,
    ) -> (PostOpAttr, Outcome<(Cookieverf3, T)>) {
        match self.find(handle) {
            Ok(object) => {
                let attributes = PostOpAttr::True(object.stat.attributes(self.fsid));
                let page = object.directory().and_then(|object| Ok((self.cookie_verifier(&object), page(&object)?)));
                (attributes, page)
            }
            Err(refusal) => (PostOpAttr::False, Err(refusal)),
        }
    }

    /// The directory, opened as `who`, and its listing.
    fn listing(
        &self,
        who: &Identity,
        directory: &Object,
        cookie: u64,
        verifier: &Cookieverf3,
    ) -> Outcome<(Arc<Listing>, OwnedFd)> {
        if cookie != 0 && *verifier != self.cookie_verifier(directory) {
            return Err(Refusal(Nfsstat3::BadCookie));
        }
        let acting = self.identities.assume(who)?;
        let file = self.descriptors.reopen(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        drop(acting);
        let listing = self.listings.of(directory, &file, cookie)?;
        Ok((listing, file))
    }

    /// Which cookies are valid: those of this directory, made with this key, whatever has happened in it.
    fn cookie_verifier(&self, directory: &Object) -> Cookieverf3 {
        let [a, b, c, d, e, f, g, h, ..] =
            *blake3::keyed_hash(&self.listings.key, &directory.id.born.to_be_bytes()).as_bytes();
        Cookieverf3([a, b, c, d, e, f, g, h])
    }

    /// What READDIRPLUS tells of an entry; nothing if it has been removed.
    fn tell(&self, directory: &Object, file: &OwnedFd, entry: &Entry) -> Option<Entryplus3> {
        let mut told = Entryplus3 {
            fileid: self.fileid(directory, entry),
            name: name(entry),
            cookie: entry.cookie,
            name_attributes: PostOpAttr::False,
            name_handle: PostOpFh3::False,
        };
        let _staying = self.tree.staying();
        let stat = match entry.cookie {
            CURRENT => directory.stat_now().ok(),
            // What is above the root is not told, and what is above others is the client's to look up.
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
                self.tree.note(id.ino, directory.id.ino, entry.name.to_bytes());
            }
            told.fileid = id.ino;
            told.name_handle = PostOpFh3::True(self.sealer.seal(id));
            told.name_attributes = PostOpAttr::True(stat.attributes(self.fsid));
        }
        Some(told)
    }

    /// The root is its own parent, whatever is above it on this machine.
    fn fileid(&self, directory: &Object, entry: &Entry) -> u64 {
        let root = self.tree.root().id;
        if entry.cookie == PARENT && directory.id == root { root.ino } else { entry.ino }
    }
}

fn name(entry: &Entry) -> Filename3 {
    Filename3(bytes::Bytes::copy_from_slice(entry.name.to_bytes()).into())
}

/// Not one entry fits into what the client has room for, and there are some.
fn too_small(too_small: bool) -> Outcome<()> {
    if too_small { Err(Refusal(Nfsstat3::Toosmall)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_to_read_is_not_read_for_each_page() {
        let of = |took| Listing {
            changed: (Nfstime3 { seconds: 0, nseconds: 0 }, Nfstime3 { seconds: 0, nseconds: 0 }),
            began: Instant::now(),
            took: Duration::from_millis(took),
            entries: Vec::new(),
        };
        assert!(!of(1).will_do(Duration::ZERO), "a small one is always as it is");
        assert!(of(200).will_do(Duration::from_secs(3)));
        assert!(!of(200).will_do(Duration::from_secs(5)));
    }
}
