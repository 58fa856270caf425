//! The service, which keeps the values in memory.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use rpcrdma::{
    server::{Context, HandlerError},
    xdr::XdrString,
};

use crate::protocol::{
    GetArgs, GetRes, Key, KeyList, LIST_MAX, PutArgs, StoreStatus, store_v1::StoreV1,
};

/// A store of values in memory.
#[derive(Debug)]
pub struct Store {
    values: Mutex<Values>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Values {
    by_key: BTreeMap<XdrString, Bytes>,
    /// Sum of the lengths of all values, in bytes.
    bytes: usize,
}

impl Store {
    /// Creates an empty store for values of at most `max_bytes` bytes in total.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            values: Mutex::default(),
            max_bytes,
        }
    }

    /// Locks the values. No handler waits for anything else while it holds the lock.
    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreV1 for Store {
    async fn put(&self, cx: &Context, args: PutArgs) -> Result<StoreStatus, HandlerError> {
        let mut values = self.values();
        let replaced = values.by_key.get(&args.key.0).map_or(0, Bytes::len);
        let bytes = values.bytes - replaced + args.value.len();
        if bytes > self.max_bytes {
            return Ok(StoreStatus::Full);
        }
        tracing::debug!(key = %args.key.0, len = args.value.len(), peer = %cx.peer_addr(), "put");
        values.bytes = bytes;
        // The memory that the RDMA Read filled becomes the value, without a copy.
        values.by_key.insert(args.key.0, args.value);
        Ok(StoreStatus::Ok)
    }

    async fn get(&self, _cx: &Context, args: GetArgs) -> Result<GetRes, HandlerError> {
        // A clone of `Bytes` is a view. The RDMA Write reads from the memory of the value.
        let value = self.values().by_key.get(&args.key.0).cloned();
        let result = match value {
            None => Err(StoreStatus::NotFound),
            Some(value) if value.len() > args.room as usize => Err(StoreStatus::TooLong),
            Some(value) => Ok(value),
        };
        Ok(result.into())
    }

    async fn remove(&self, _cx: &Context, key: Key) -> Result<StoreStatus, HandlerError> {
        let mut values = self.values();
        let Some(value) = values.by_key.remove(&key.0) else {
            return Ok(StoreStatus::NotFound);
        };
        values.bytes -= value.len();
        Ok(StoreStatus::Ok)
    }

    async fn list(&self, _cx: &Context, after: Key) -> Result<KeyList, HandlerError> {
        let values = self.values();
        let after = (Bound::Excluded(&after.0), Bound::Unbounded);
        let keys = values
            .by_key
            .range::<XdrString, _>(after)
            .map(|(key, _)| Key(key.clone()));
        Ok(KeyList(keys.take(LIST_MAX as usize).collect()))
    }
}
