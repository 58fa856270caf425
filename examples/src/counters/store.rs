//! The database of counters and recorded replies.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use rpcrdma::{
    server::{RecordedReply, ReplyStore, RequestKey, StoreFuture},
    xdr::{DecodeError, EncodeError},
};

use super::protocol::{Addition, CounterName, counters_v1::Add};

/// The values, by name.
const COUNTERS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("counters");
/// The replies, by request key.
const REPLIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("replies");
/// The request keys, by the time of their replies in seconds since 1970.
const TIMES: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("times");

/// The time for which replies are kept. Clients have to stop repeating a call before that.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Maximum number of old replies that one addition deletes, so that no call takes long.
const MAX_DELETED: usize = 16;

/// The error of a [`CounterStore`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The database failed.
    #[error("the database of counters failed")]
    Database(#[source] Box<redb::Error>),
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

/// An error of the database, which has a type for each operation.
struct DatabaseError<E>(E);

/// Counters and recorded replies in one database file. Clones share it.
#[derive(Debug, Clone)]
pub struct CounterStore(Arc<Database>);

impl CounterStore {
    /// Opens or creates the database.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or if it is no such database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CounterError> {
        let database = Database::create(path).map_err(DatabaseError)?;
        let transaction = database.begin_write().map_err(DatabaseError)?;
        transaction.open_table(COUNTERS).map_err(DatabaseError)?;
        transaction.open_table(REPLIES).map_err(DatabaseError)?;
        transaction.open_table(TIMES).map_err(DatabaseError)?;
        transaction.commit().map_err(DatabaseError)?;
        Ok(Self(Arc::new(database)))
    }

    /// Adds to a counter and records the reply under `key`, in one transaction. Returns the sum. Blocks until both are on disk.
    /// Adds nothing if there is a reply already.
    ///
    /// # Errors
    /// Returns an error if the database fails, or if the counter overflows. Then nothing was added.
    pub fn add(&self, key: Option<&RequestKey>, args: &Addition) -> Result<u64, CounterError> {
        let transaction = self.0.begin_write().map_err(DatabaseError)?;
        // The handler of an earlier copy of the call may have been dropped while this function was running for it.
        if let Some(sum) =
            key.map_or(Ok(None), |key| self.reply(key))?.map(|reply| reply.decode::<Add>()).transpose()?
        {
            return Ok(sum.unwrap_or_default());
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

    /// Returns the value of a counter.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn value(&self, name: &CounterName) -> Result<u64, CounterError> {
        let transaction = self.0.begin_read().map_err(DatabaseError)?;
        let counters = transaction.open_table(COUNTERS).map_err(DatabaseError)?;
        Ok(counters.get(name.as_bytes()).map_err(DatabaseError)?.map_or(0, |value| value.value()))
    }

    /// Returns all counters.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn values(&self) -> Result<BTreeMap<Vec<u8>, u64>, CounterError> {
        let transaction = self.0.begin_read().map_err(DatabaseError)?;
        let counters = transaction.open_table(COUNTERS).map_err(DatabaseError)?;
        let mut values = BTreeMap::new();
        for entry in counters.iter().map_err(DatabaseError)? {
            let (name, value) = entry.map_err(DatabaseError)?;
            values.insert(name.value().to_vec(), value.value());
        }
        Ok(values)
    }

    fn reply(&self, key: &RequestKey) -> Result<Option<RecordedReply>, CounterError> {
        let transaction = self.0.begin_read().map_err(DatabaseError)?;
        let replies = transaction.open_table(REPLIES).map_err(DatabaseError)?;
        let Some(reply) = replies.get(&key.to_bytes()[..]).map_err(DatabaseError)? else { return Ok(None) };
        Ok(Some(RecordedReply::from_bytes(&Bytes::copy_from_slice(reply.value()))?))
    }
}

impl ReplyStore for CounterStore {
    fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
        // A read finds its page in the cache of the database or of the system, and does not wait for writers.
        Box::pin(async move { Ok(self.reply(key)?) })
    }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}
