//! Storage of replies that outlives the server.

use std::{error::Error, future::Future, pin::Pin, sync::Arc};

use crate::session::{RecordedReply, RequestKey};

/// The error of a [`ReplyStore`].
pub type StoreError = Box<dyn Error + Send + Sync>;

/// The future that a [`ReplyStore`] returns. It may borrow the store, the key and the reply.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of replies, with which a restarted server recognizes the calls that it has executed before.
///
/// For exactly-once execution, the handler has to store the reply itself, in the same transaction as its effect: the
/// server may be killed at any moment. The handler takes the key from
/// [`Context::request_key`](super::super::Context::request_key), and encodes its result with [`RecordedReply::of`]. The
/// store then only has to implement [`load`](Self::load). If the store uses [`save`](Self::save) instead, a call is
/// executed twice if the server is killed between the effect and `save`.
///
/// The store has to delete old replies. It may do so as soon as clients no longer send their calls again.
///
/// ```
/// use std::{collections::HashMap, sync::Mutex};
///
/// use rpcrdma::server::{RecordedReply, ReplyStore, RequestKey, StoreFuture};
///
/// #[derive(Default)]
/// struct InMemory(Mutex<HashMap<Vec<u8>, bytes::Bytes>>);
///
/// impl ReplyStore for InMemory {
///     fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
///         Box::pin(async move {
///             let stored = self.0.lock().map_err(|error| error.to_string())?.get(&key.to_bytes()).cloned();
///             Ok(stored.map(|bytes| RecordedReply::from_bytes(&bytes)).transpose()?)
///         })
///     }
/// }
/// ```
pub trait ReplyStore: Send + Sync + 'static {
    /// Returns the reply to an earlier call with this key, or `None` if the store has no such reply. Called for each
    /// call of a covered procedure that the cache does not know, before the handler runs. If it fails, the call is not
    /// executed, and the client gets an [error](crate::rpc::RpcError::Unavailable) that is safe to retry.
    fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>>;

    /// Stores the reply to a call whose handler has finished, before the reply is sent. If it fails, the error is
    /// traced, and the reply is sent. The default does nothing, for handlers that store their replies themselves.
    fn save<'a>(&'a self, key: &'a RequestKey, reply: &'a RecordedReply) -> StoreFuture<'a, ()> {
        let _ = (key, reply);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl<T: ReplyStore + ?Sized> ReplyStore for Arc<T> {
    fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
        (**self).load(key)
    }

    fn save<'a>(&'a self, key: &'a RequestKey, reply: &'a RecordedReply) -> StoreFuture<'a, ()> {
        (**self).save(key, reply)
    }
}
