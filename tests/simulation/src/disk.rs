//! The parts that outlive a server: the disk with the service's data, and the state of its host.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use rpcrdma::server::{RecordedReply, ReplyStore, RequestKey, StoreFuture};

use crate::file_tree::FileTree;

/// An addition that was executed.
#[derive(Debug, Clone, Copy)]
pub struct Applied {
    /// Number of the counter.
    pub counter: u32,
    /// The sum after the first execution of the addition.
    pub sum: u64,
    /// Number of times that the addition was executed.
    pub times: u32,
}

/// A recorded reply on a disk.
#[derive(Debug, Clone)]
pub(crate) struct StoredReply {
    /// The encoded reply. `None` if the server crashed while it wrote the reply, so that its checksum is wrong.
    pub(crate) bytes: Option<Bytes>,
}

/// The data of the service. Several servers may share it.
#[derive(Debug, Default)]
pub struct Disk {
    /// The values of the counters, by number.
    pub counters: BTreeMap<u32, u64>,
    /// The additions, by the number of the operation.
    pub applied: BTreeMap<u64, Applied>,
    /// The versions and the data of the blobs, by key.
    pub blobs: BTreeMap<u32, (u64, Bytes)>,
    /// The directories and files of the NFS service.
    pub files: FileTree,
    /// The recorded replies, by request key.
    pub(crate) replies: BTreeMap<Vec<u8>, StoredReply>,
}

/// A [`Disk`] that servers and the simulation share.
#[derive(Debug, Clone, Default)]
pub struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    /// Locks the disk.
    pub fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if `self` and `other` refer to one disk.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ReplyStore for SharedDisk {
    fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
        Box::pin(async move {
            let Some(stored) = self.lock().replies.get(&key.to_bytes()).cloned() else { return Ok(None) };
            let bytes = stored.bytes.ok_or("the recorded reply is damaged")?;
            Ok(Some(RecordedReply::from_bytes(&bytes)?))
        })
    }
}

/// The part of a transaction that a crash in the middle of its write destroys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TornPart {
    /// The effect and the reply.
    All,
    /// The recorded reply. The effect has happened, but its result is unknown.
    Reply,
}

/// The state of a server's host, which outlives its server.
#[derive(Debug, Default)]
pub struct HostState {
    /// A number that each start, kill and crash of the server increases. The handlers of a server that started with a
    /// lower number have no effect.
    pub epoch: u64,
    /// `true` if the disk is full for this host, so that the server can store nothing.
    pub is_full: bool,
    /// `true` if the server crashes after its next effect, before the reply.
    pub crashes_after_effect: bool,
    /// The part of the next transaction that is lost, because the server crashes while writing the transaction. `None`
    /// if the server does not crash.
    pub torn: Option<TornPart>,
    /// Maximum additional time of each handler, in milliseconds.
    pub handler_pause: u64,
}

/// A [`HostState`] that a server and the simulation share.
#[derive(Debug, Clone, Default)]
pub struct SharedHost(Arc<Mutex<HostState>>);

impl SharedHost {
    /// Locks the host's state.
    pub fn lock(&self) -> MutexGuard<'_, HostState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
