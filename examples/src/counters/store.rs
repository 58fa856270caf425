//! The database of counters and recorded replies.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use rpcrdma::{
    server::{RecordedReply, ReplyStore, RequestKey, StoreFuture},
    xdr::{DecodeError, EncodeError},
};

use super::protocol::{Addition, CounterName, counters_v1::Add};

/// The table of the values of counters, by name.
const COUNTERS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("counters");
/// The table of recorded replies, by request key.
const REPLIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("replies");
/// The table of request keys with the times of their replies, in seconds since 1970. It is sorted by time, to find old
/// replies.
const TIMES: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("times");

/// Minimum time for which replies are kept. Clients must stop repeating a call before it has passed.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Maximum number of old replies that one addition deletes, so that no call takes long.
const MAX_DELETED: usize = 16;

/// The error of a [`CounterStore`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The database failed, or is open already.
    #[error("the database of counters failed")]
    Database(#[source] Box<redb::Error>),
    /// The database failed, and nothing was added. The call can be repeated.
    #[error("the database of counters failed, nothing was added")]
    NotAdded(#[source] Box<redb::Error>),
    /// The file of a new database exists already.
    #[error("{} exists: open it, or create the database elsewhere", .path.display())]
    Exists {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("cannot use {}", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file is empty, shorter than it was, or damaged.
    #[error(
        "{} is no complete database ({reason}): its counters and recorded replies are lost. Restore a copy, or remove the file and create \
         the database anew, which forgets all acknowledged additions",
        .path.display()
    )]
    Unusable {
        /// The path of the file.
        path: PathBuf,
        /// Description of the defect.
        reason: String,
    },
    /// The sum exceeds 64 bits. Nothing was added.
    #[error("the counter overflows")]
    Overflow,
    /// The reply cannot be encoded.
    #[error("the reply cannot be recorded")]
    Encode(#[from] EncodeError),
    /// A recorded reply is damaged.
    #[error("a recorded reply is damaged")]
    Damaged(#[from] DecodeError),
}

impl<E: Into<redb::Error>> From<DatabaseError<E>> for CounterError {
    fn from(DatabaseError(error): DatabaseError<E>) -> Self {
        Self::Database(Box::new(error.into()))
    }
}

/// A wrapper for the errors of redb, which has an error type for each operation.
struct DatabaseError<E>(E);

/// Counters and recorded replies in one database file. Clones share the database.
///
/// After a disk error, for example because the disk is full, the next call opens the database again.
#[derive(Debug, Clone)]
pub struct CounterStore(Arc<SharedDatabase>);

/// A function that opens the database.
type OpenDatabase = Box<dyn Fn() -> Result<Database, CounterError> + Send + Sync>;

struct SharedDatabase {
    open: OpenDatabase,
    state: RwLock<DatabaseState>,
    /// The lock that the addition in progress holds.
    adding: Mutex<()>,
}

/// The state of the database, which is closed after a disk error.
struct DatabaseState {
    database: Option<Database>,
    /// The number of times that the database was closed.
    closed: u64,
}

impl fmt::Debug for SharedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDatabase").finish_non_exhaustive()
    }
}

impl CounterStore {
    /// Creates the database, for the first run of a server.
    ///
    /// # Errors
    /// Returns [`CounterError::Exists`] if the file exists, and other errors if the database cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, CounterError> {
        let path = path.as_ref();
        let failed = |source| CounterError::File { path: path.to_owned(), source };
        if path.try_exists().map_err(failed)? {
            return Err(CounterError::Exists { path: path.to_owned() });
        }
        // The database gets its name when it is complete. What a crash leaves behind before that has no counters.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        create_tables(&Database::create(&new).map_err(DatabaseError)?)?;
        fs::rename(&new, path).map_err(failed)?;
        Self::open(path)
    }

    /// Opens the database, and checks its integrity.
    ///
    /// # Errors
    /// Returns [`CounterError::Unusable`] if the file is empty, shorter than it was, or damaged, and
    /// [`CounterError::File`] if there is no file. Returns [`CounterError::Database`] if the disk fails, or if the
    /// database is open already.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CounterError> {
        let path = path.as_ref().to_owned();
        Self::opened_by(Box::new(move || open_file(&path)))
    }

    fn opened_by(open: OpenDatabase) -> Result<Self, CounterError> {
        let state = RwLock::new(DatabaseState { database: Some(open()?), closed: 0 });
        Ok(Self(Arc::new(SharedDatabase { open, state, adding: Mutex::new(()) })))
    }

    /// Calls `work` with the database, which is opened first if it is closed. Closes the database after a disk error,
    /// because redb refuses all further operations on it.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, CounterError>) -> Result<T, CounterError> {
        let SharedDatabase { open, state, .. } = &*self.0;
        let read = || state.read().unwrap_or_else(PoisonError::into_inner);
        let write = || state.write().unwrap_or_else(PoisonError::into_inner);
        if read().database.is_none() {
            let mut state = write();
            if state.database.is_none() {
                state.database = Some(open()?);
            }
        }
        let (result, closed) = {
            let state = read();
            let Some(database) = &state.database else {
                // Another call has met an error meanwhile.
                return Err(CounterError::NotAdded(Box::new(redb::Error::PreviousIo)));
            };
            (work(database), state.closed)
        };
        if let Err(CounterError::Database(error)) = &result
            && matches!(**error, redb::Error::Io(_) | redb::Error::PreviousIo)
        {
            let mut state = write();
            // Unless another call has closed it since.
            if state.closed == closed {
                state.database = None;
                state.closed += 1;
            }
        }
        result
    }

    /// Adds to a counter and records the reply under `key`, in one transaction. Returns the sum. Blocks until both are
    /// on disk. If a reply is recorded under `key` already, adds nothing, and returns the sum in that reply.
    ///
    /// # Errors
    /// Returns [`CounterError::Overflow`] if the sum is too large. Returns [`CounterError::NotAdded`] if the database
    /// failed and nothing was added, and [`CounterError::Database`] if it failed and the addition may have happened.
    /// Returns [`CounterError::Encode`] if the reply cannot be encoded, [`CounterError::Damaged`] if the recorded reply
    /// is damaged, and the errors of [`open`](Self::open) if the database was closed and cannot be opened again.
    pub fn add(&self, key: Option<&RequestKey>, args: &Addition) -> Result<u64, CounterError> {
        let added = {
            // redb lets additions wait for each other, too. After an error of the disk, it panics in those that wait.
            // Here, the database is closed before the next one begins.
            let _turn = self.0.adding.lock().unwrap_or_else(PoisonError::into_inner);
            self.with(|database| add_in(database, key, args))
        };
        // The transaction may be complete nevertheless. Then it has recorded the reply.
        match (added, key) {
            (Err(CounterError::Database(error)), Some(key)) => {
                match self.with(|database| recorded_sum(database, key)) {
                    Ok(Some(sum)) => Ok(sum),
                    Ok(None) => Err(CounterError::NotAdded(error)),
                    Err(_) => Err(CounterError::Database(error)),
                }
            }
            (added, _) => added,
        }
    }

    /// Returns the value of a counter. It is 0 if nothing was added to the counter.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn value(&self, name: &CounterName) -> Result<u64, CounterError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(DatabaseError)?;
            let counters = transaction.open_table(COUNTERS).map_err(DatabaseError)?;
            Ok(counters.get(name.as_bytes()).map_err(DatabaseError)?.map_or(0, |value| value.value()))
        })
    }

    /// Returns the values of all counters, by name.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn values(&self) -> Result<BTreeMap<Vec<u8>, u64>, CounterError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(DatabaseError)?;
            let counters = transaction.open_table(COUNTERS).map_err(DatabaseError)?;
            let mut values = BTreeMap::new();
            for entry in counters.iter().map_err(DatabaseError)? {
                let (name, value) = entry.map_err(DatabaseError)?;
                values.insert(name.value().to_vec(), value.value());
            }
            Ok(values)
        })
    }
}

/// Opens the database in a file, and checks its integrity.
fn open_file(path: &Path) -> Result<Database, CounterError> {
    let failed = |source| CounterError::File { path: path.to_owned(), source };
    let unusable = |reason: String| CounterError::Unusable { path: path.to_owned(), reason };
    // redb takes an empty file for a new database.
    if fs::metadata(path).map_err(failed)?.len() == 0 {
        return Err(unusable("it is empty".into()));
    }
    // redb panics on some damaged files.
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<Database, redb::Error> {
        let mut database = Database::open(path)?;
        database.check_integrity()?;
        let transaction = database.begin_read()?;
        transaction.open_table(COUNTERS)?;
        transaction.open_table(REPLIES)?;
        transaction.open_table(TIMES)?;
        drop(transaction);
        Ok(database)
    }));
    match opened {
        Ok(Ok(database)) => Ok(database),
        // The disk fails, and not what is on it.
        Ok(Err(error @ (redb::Error::DatabaseAlreadyOpen | redb::Error::PreviousIo))) => {
            Err(CounterError::Database(Box::new(error)))
        }
        Ok(Err(redb::Error::Io(error)))
            if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) =>
        {
            Err(CounterError::Database(Box::new(redb::Error::Io(error))))
        }
        Ok(Err(error)) => Err(unusable(error.to_string())),
        Err(_) => Err(unusable("it is damaged".into())),
    }
}

/// Starts a write transaction with a two-phase commit.
///
/// A commit with two phases takes one more `fsync` than one with a single phase. After a crash, redb takes a damaged
/// single-phase commit for an incomplete one, and returns to the state before it. This would silently lose an
/// acknowledged addition. A damaged two-phase commit is an error.
fn begin_write(database: &Database) -> Result<WriteTransaction, CounterError> {
    let mut transaction = database.begin_write().map_err(DatabaseError)?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

fn create_tables(database: &Database) -> Result<(), CounterError> {
    let transaction = begin_write(database)?;
    transaction.open_table(COUNTERS).map_err(DatabaseError)?;
    transaction.open_table(REPLIES).map_err(DatabaseError)?;
    transaction.open_table(TIMES).map_err(DatabaseError)?;
    Ok(transaction.commit().map_err(DatabaseError)?)
}

/// Adds to a counter. If there is a key, also records the reply and deletes old replies. If a reply is recorded
/// already, does nothing but return its sum. Returns the sum.
fn add_in(database: &Database, key: Option<&RequestKey>, args: &Addition) -> Result<u64, CounterError> {
    let transaction = begin_write(database)?;
    // The handler of an earlier copy of the call may have been dropped while this function was running for it.
    if let Some(sum) = key.map_or(Ok(None), |key| recorded_sum(database, key))? {
        return Ok(sum);
    }
    let sum = {
        let mut counters = transaction.open_table(COUNTERS).map_err(DatabaseError)?;
        let value = counters.get(args.name.as_bytes()).map_err(DatabaseError)?.map_or(0, |value| value.value());
        let sum = value.checked_add(args.amount).ok_or(CounterError::Overflow)?;
        counters.insert(args.name.as_bytes(), sum).map_err(DatabaseError)?;
        if let Some(key) = key {
            let mut replies = transaction.open_table(REPLIES).map_err(DatabaseError)?;
            let mut times = transaction.open_table(TIMES).map_err(DatabaseError)?;
            let (key, now) = (key.to_bytes(), now());
            replies.insert(&key[..], &RecordedReply::of::<Add>(&sum)?.to_bytes()[..]).map_err(DatabaseError)?;
            times.insert((now, &key[..]), ()).map_err(DatabaseError)?;
            let mut old = Vec::new();
            let until = (now.saturating_sub(MAX_AGE.as_secs()), &[][..]);
            for entry in times.range(..until).map_err(DatabaseError)?.take(MAX_DELETED) {
                let (entry, _) = entry.map_err(DatabaseError)?;
                let (time, key) = entry.value();
                old.push((time, key.to_vec()));
            }
            for (time, key) in old {
                times.remove((time, &key[..])).map_err(DatabaseError)?;
                replies.remove(&key[..]).map_err(DatabaseError)?;
            }
        }
        sum
    };
    transaction.commit().map_err(DatabaseError)?;
    Ok(sum)
}

/// Returns the recorded reply to a call, if there is one.
fn recorded(database: &Database, key: &RequestKey) -> Result<Option<RecordedReply>, CounterError> {
    let transaction = database.begin_read().map_err(DatabaseError)?;
    let replies = transaction.open_table(REPLIES).map_err(DatabaseError)?;
    let Some(reply) = replies.get(&key.to_bytes()[..]).map_err(DatabaseError)? else { return Ok(None) };
    Ok(Some(RecordedReply::from_bytes(&Bytes::copy_from_slice(reply.value()))?))
}

/// Returns the sum in the recorded reply to a call of ADD, if there is one.
fn recorded_sum(database: &Database, key: &RequestKey) -> Result<Option<u64>, CounterError> {
    let sum = recorded(database, key)?.map(|reply| reply.decode::<Add>()).transpose()?;
    Ok(sum.map(Option::unwrap_or_default))
}

impl ReplyStore for CounterStore {
    fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
        // A read finds its page in the cache of the database or of the system, and does not wait for writers.
        Box::pin(async move { Ok(self.with(|database| recorded(database, key))?) })
    }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
    };

    use redb::{StorageBackend, backends::FileBackend};
    use rpcrdma::{
        CallError, Channel, Server,
        rpc::{Credential, RpcError},
        server::DuplicateRequests,
    };

    use super::*;
    use crate::counters::{
        Counters,
        protocol::counters_v1::{CountersV1Client, CountersV1Server, PROGRAM},
    };

    fn addition(name: &str) -> Addition {
        Addition { name: name.into(), amount: 1 }
    }

    #[test]
    fn only_a_complete_database_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        assert!(matches!(CounterStore::open(&path), Err(CounterError::File { .. })), "there is none");
        // What a crash has left behind.
        fs::write(folder.path().join("counters.new"), b"half").unwrap();
        let store = CounterStore::create(&path).unwrap();
        for n in 0..500 {
            store.add(None, &addition(&n.to_string())).unwrap();
        }
        drop(store);
        assert!(matches!(CounterStore::create(&path), Err(CounterError::Exists { .. })));
        assert_eq!(CounterStore::open(&path).unwrap().values().unwrap().len(), 500);
        let whole = fs::read(&path).unwrap();
        let len = whole.len();
        for len in [0, 1, 100, 4096, len / 4, len / 2, len - 4096] {
            fs::write(&path, &whole[..len]).unwrap();
            let error = CounterStore::open(&path).unwrap_err();
            assert!(matches!(&error, CounterError::Unusable { .. }), "{len} bytes: {error:?}");
            assert!(error.to_string().contains("forgets all acknowledged additions"), "{error}");
            assert_eq!(fs::read(&path).unwrap().len(), len, "the file is left as it is");
        }
        let mut zeroed = whole.clone();
        zeroed[4096..].fill(0);
        fs::write(&path, &zeroed).unwrap();
        assert!(matches!(CounterStore::open(&path), Err(CounterError::Unusable { .. })));
        fs::write(&path, &whole).unwrap();
        assert_eq!(CounterStore::open(&path).unwrap().values().unwrap().len(), 500);
    }

    /// After a crash, the store does not mistake a damaged last commit for an incomplete one.
    #[test]
    fn damage_after_a_crash_loses_no_addition_in_silence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let store = CounterStore::create(&path).unwrap();
        for n in 0..50 {
            store.add(None, &addition(&n.to_string())).unwrap();
        }
        let before = fs::read(&path).unwrap();
        store.add(None, &addition("last")).unwrap();
        // The file as a crash leaves it: the database is not closed. What differs is the last commit.
        let whole = fs::read(&path).unwrap();
        let changed = (0..before.len()).filter(|at| before[*at] != whole[*at] && whole[*at] != 0);
        let changed: Vec<usize> = changed.collect();
        let copy = folder.path().join("copy");
        let mut refused = 0;
        for at in changed.iter().step_by(changed.len() / 100) {
            let mut damaged = whole.clone();
            damaged[*at] ^= 0x10;
            fs::write(&copy, damaged).unwrap();
            match CounterStore::open(&copy) {
                Ok(store) => assert_eq!(store.values().unwrap().len(), 51, "byte {at}"),
                Err(error) => {
                    assert!(matches!(error, CounterError::Unusable { .. }), "byte {at}: {error:?}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 10, "{refused} damages were noticed");
        drop(store);
    }

    /// The simulated state of a disk.
    #[derive(Debug, Default)]
    struct Fullness {
        is_full: AtomicBool,
        /// Number of calls of the test that have not begun. Operations that change the full disk wait until it is 0,
        /// and then fail.
        awaited: AtomicUsize,
    }

    /// A disk that can be full.
    #[derive(Debug)]
    struct Disk {
        file: FileBackend,
        fullness: Arc<Fullness>,
    }

    impl Disk {
        fn check(&self) -> io::Result<()> {
            if !self.fullness.is_full.load(Ordering::SeqCst) {
                return Ok(());
            }
            while self.fullness.awaited.load(Ordering::SeqCst) > 0 {
                thread::yield_now();
            }
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.check()?;
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.check()?;
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check()?;
            self.file.write(offset, data)
        }

        fn close(&self) -> io::Result<()> {
            self.file.close()
        }
    }

    /// Creates a database on a disk that can be full.
    fn on_a_disk(folder: &Path) -> (CounterStore, Arc<Fullness>) {
        let path = folder.join("counters");
        drop(CounterStore::create(&path).unwrap());
        let shared = Arc::<Fullness>::default();
        let fullness = Arc::clone(&shared);
        let store = CounterStore::opened_by(Box::new(move || {
            let failed = |source| CounterError::File { path: path.clone(), source };
            let file = fs::OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
            let file = FileBackend::new(file).map_err(DatabaseError)?;
            let disk = Disk { file, fullness: Arc::clone(&fullness) };
            Ok(Database::builder().create_with_backend(disk).map_err(DatabaseError)?)
        }));
        (store.unwrap(), shared)
    }

    /// Additions wait for each other. Additions that wait while the disk fails must not continue with the database that
    /// is open then, because redb would panic.
    #[test]
    fn additions_that_wait_while_the_disk_fails_do_not_panic() {
        const ADDITIONS: usize = 8;
        let folder = tempfile::tempdir().unwrap();
        let (store, disk) = on_a_disk(folder.path());
        let mut acknowledged = 0;
        for _ in 0..20 {
            acknowledged += store.add(None, &addition("a")).iter().count();
            disk.awaited.store(ADDITIONS, Ordering::SeqCst);
            disk.is_full.store(true, Ordering::SeqCst);
            let add = || {
                disk.awaited.fetch_sub(1, Ordering::SeqCst);
                store.add(None, &addition("a"))
            };
            thread::scope(|scope| {
                let adding: Vec<_> = (0..ADDITIONS).map(|_| scope.spawn(add)).collect();
                for addition in adding {
                    assert!(addition.join().unwrap().is_err(), "the disk is full");
                }
            });
            disk.is_full.store(false, Ordering::SeqCst);
        }
        assert_eq!(acknowledged, 20);
        assert_eq!(store.value(&"a".into()).unwrap(), 20);
    }

    /// Additions fail while the disk is full, and succeed again when it is not. No addition is lost or made twice.
    #[tokio::test]
    async fn a_full_disk_fails_calls_only_while_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let (store, disk) = on_a_disk(folder.path());
        let server = Server::builder()
            .service(CountersV1Server::new(Counters::new(store.clone())))
            .duplicate_requests(PROGRAM, DuplicateRequests::new().store(store.clone()))
            .listen("iwarp://127.0.0.1:0")
            .bind()
            .await
            .unwrap();
        let url = server.urls()[0].clone();
        tokio::spawn(server.serve());
        let credential = Credential::sys("client", 1, 1, []).to_opaque().unwrap();
        let builder = Channel::builder().deduplicated([PROGRAM]).credential(credential);
        let client = CountersV1Client::new(builder.connect(&url).await.unwrap());
        let mut acknowledged = 0;
        for round in 0..3 {
            for _ in 0..5 {
                acknowledged += 1;
                assert_eq!(client.add(&addition("a")).await.unwrap(), acknowledged);
            }
            disk.is_full.store(true, Ordering::SeqCst);
            for _ in 0..5 {
                let error = client.add(&addition("a")).await.unwrap_err();
                let CallError::Rpc { source, .. } = &error else { panic!("{error}") };
                assert!(matches!(source, RpcError::Unavailable | RpcError::SystemError), "round {round}: {error}");
            }
            disk.is_full.store(false, Ordering::SeqCst);
        }
        assert_eq!(client.value(&"a".into()).await.unwrap(), acknowledged);
        drop(client);
    }
}
